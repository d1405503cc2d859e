//! One run of MariaDB's test driver for one engine, and what came of each test.

use super::suite::{Kind, Suite};
use crate::tree::Tree;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end, and printed this.
    Printed(String),
    /// It says that the engine cannot run it.
    Skipped(String),
    /// It was cut off: by an error that it does not expect, a crash or a hang.
    Failed(String),
}

/// Outcomes by suite and test.
pub type Outcomes = BTreeMap<(String, String), Outcome>;

/// The test driver for these tests of a suite.
fn driver(tree: &Tree, tests: &Path, suite: &Suite, names: &[String]) -> Command {
    let mut command = tree.command(Path::new("perl"));
    command
        .current_dir(tests)
        .env("PERL5LIB", tree.perl_path())
        .env("MTR_BUILD_THREAD", "auto")
        .arg("mariadb-test-run.pl")
        .arg(format!("--vardir={}", tests.join("var").display()))
        .arg(format!("--suite={}", suite.printed()))
        .args(["--record", "--force", "--max-test-fail=0", "--retry=0"])
        .args([
            "--enable-disabled",
            "--nocheck-testcases",
            "--testcase-timeout=4",
        ])
        .args([
            "--suite-timeout=120",
            "--max-save-core=0",
            "--max-save-datadir=0",
        ])
        .args(
            names
                .iter()
                .map(|name| format!("{}.{name}", suite.printed())),
        );
    if let Kind::NamedEngine = suite.kind() {
        command.args([
            "--mysqld=--plugin-maturity=experimental",
            "--mysqld=--plugin-load-add=ha_inkstone.so",
        ]);
    }
    command
}

/// Runs the tests of the suites, one after the other, and records what each prints. The servers,
/// not the programs of the driver, have the environment.
pub fn run(
    tree: &Tree,
    tests: &Path,
    engine: &'static str,
    environment: &[(&str, String)],
    suites: &[(Suite, Vec<String>)],
    progress: &(dyn Fn(&str) + Sync),
) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for (suite, names) in suites {
        let mut command = driver(tree, tests, suite, names);
        let environment = environment.iter();
        command.args(environment.map(|(name, value)| format!("--mysqld-env={name}={value}")));
        let lines = lines(&mut command, |line| {
            if let Some((test, result)) = verdict(line) {
                progress(&format!(
                    "{engine:8}  {:50} {result}",
                    format!("{}.{test}", suite.name)
                ));
            }
        })?;
        let verdicts = verdicts(&lines);
        for name in names {
            let outcome = outcome(
                verdicts.get(name.as_str()),
                &tests.join(suite.recorded(name)),
                &tests.display().to_string(),
            );
            outcomes.insert((suite.name.clone(), name.clone()), outcome);
        }
        if verdicts.is_empty() {
            let end = lines[lines.len().saturating_sub(30)..].join("\n");
            return Err(format!(
                "the test driver ran nothing of {}:\n{end}",
                suite.name
            ));
        }
    }
    Ok(outcomes)
}

/// Runs a command to its end; its lines are handed on as they come.
fn lines(command: &mut Command, each: impl Fn(&str)) -> Result<Vec<String>> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| {
        format!("perl, which the test driver needs, cannot be started: {error}")
    })?;
    let mut lines = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader
            .read_until(b'\n', &mut line)
            .is_ok_and(|bytes| bytes > 0)
        {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            each(&text);
            lines.push(text);
            line.clear();
        }
    }
    let _ = child.wait();
    Ok(lines)
}

/// The test and the result in a line like `suite.test 'combination' w1 [ pass ]  35`.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let (head, rest) = line.split_once(" [ ")?;
    let (result, _) = rest.split_once(" ]")?;
    let name = head.split_whitespace().next()?;
    let (_, test) = name.split_once('.')?;
    ["pass", "fail", "skipped", "disabled"]
        .iter()
        .any(|known| result.starts_with(known))
        .then_some((test, result))
}

/// What the driver says of each test: the result, and the lines after it up to the next.
fn verdicts(lines: &[String]) -> BTreeMap<&str, (&str, String)> {
    let mut verdicts: BTreeMap<&str, (&str, String)> = BTreeMap::new();
    let mut latest = None;
    for line in lines {
        if let Some((test, result)) = verdict(line) {
            let (_, remark) = line.split_once(" ]").unwrap_or_default();
            // One failure of several combinations is a failure.
            let failed_before = verdicts
                .get(test)
                .is_some_and(|(before, _)| *before == "fail");
            if !failed_before {
                verdicts.insert(test, (result, remark.trim().to_owned()));
            }
            latest = Some(test);
        } else if line.starts_with("----") || line.starts_with("worker[") {
            latest = None;
        } else if let Some((_, text)) = latest.and_then(|test| verdicts.get_mut(test)) {
            text.push('\n');
            text.push_str(line);
        }
    }
    verdicts
}

fn outcome(verdict: Option<&(&str, String)>, recorded: &Path, place: &str) -> Outcome {
    match verdict {
        Some(("pass", _)) => match std::fs::read(recorded) {
            // Paths are of this run alone.
            Ok(bytes) => Outcome::Printed(String::from_utf8_lossy(&bytes).replace(place, "<RUN>")),
            Err(error) => Outcome::Failed(format!("no output was recorded: {error}")),
        },
        Some(("skipped" | "disabled", remark)) => Outcome::Skipped(remark.clone()),
        Some((_, remark)) => Outcome::Failed(remark.clone()),
        None => Outcome::Failed("the driver did not run it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_lines_are_understood() {
        let lines: Vec<String> = [
            "storage_engine-inkstone.1st              [ pass ]     12",
            "storage_engine-inkstone.index            [ fail ]",
            "        Test ended at 2026-01-01",
            "mysqltest: At line 8: query failed",
            "engines/iuds.delete 'Inkstone'           [ skipped ]  needs more",
            "--------------------------------------------------------------------------",
            "The servers were restarted 1 times",
        ]
        .map(str::to_owned)
        .to_vec();
        let verdicts = verdicts(&lines);
        assert_eq!(verdicts["1st"].0, "pass");
        assert_eq!(verdicts["index"].0, "fail");
        assert!(verdicts["index"].1.ends_with("query failed"));
        assert_eq!(verdicts["delete"], ("skipped", "needs more".to_owned()));
        assert_eq!(verdicts.len(), 3);
    }
}
