//! `--mtr`: MariaDB's own tests, InnoDB's output against Inkstone's in the same server.
//!
//! The suite's result files are stale: stock InnoDB passes 52 of 121. So each test runs for both
//! engines and records what it prints, and the two records are compared but for the engine's name.
//! A difference is accepted only if `mariadb/mtr/differences/SUITE/TEST.diff` has its lines, and
//! says why they are right.

mod driver;
mod layout;
mod named;
mod suite;
mod verdict;

use super::plugin::Plugin;
use super::server::run_folder;
use super::tree::{Tree, home};
use driver::{Outcome, Outcomes};
use inkstone_testkit::build::{Result, root};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use suite::Suite;
use verdict::{Verdict, compare};

/// Runs the suites for both engines at the same time, and compares.
pub fn run(tree: &Tree, plugin: &Plugin, suites: &[String], json: bool) -> Result<ExitCode> {
    let usual = suite::USUAL.map(str::to_owned);
    let suites = if suites.is_empty() {
        &usual[..]
    } else {
        suites
    };
    let suites: Vec<Suite> = suites.iter().map(|text| Suite::parse(text)).collect();
    let tests: Result<Vec<(Suite, Vec<String>)>> = suites
        .iter()
        .map(|suite| Ok((suite.clone(), suite.tests(tree)?)))
        .collect();
    let tests = tests?;
    let folder = run_folder("mtr");
    let _ = std::fs::remove_dir_all(&folder);
    let one = |engine| run_engine(tree, plugin, engine, &suites, &tests, &folder);
    let (innodb, inkstone) = std::thread::scope(|scope| {
        let innodb = scope.spawn(|| one("InnoDB"));
        let inkstone = one("Inkstone");
        (innodb.join(), inkstone)
    });
    let innodb = innodb.map_err(|_| "the thread of InnoDB's run panicked".to_owned())??;
    let found = found_folder()?;
    let verdicts = judge(&innodb, &inkstone?, &folder, &found)?;
    let wrong = report(&verdicts, json, &found);
    let is_compared =
        |(_, _, verdict): &(_, _, Verdict)| !matches!(verdict, Verdict::NotForInnoDb(_));
    if !verdicts.iter().any(is_compared) {
        return Err("InnoDB can run none of these tests, so nothing was compared".to_owned());
    }
    // Logs of a failure are worth keeping.
    if wrong == 0 {
        let _ = std::fs::remove_dir_all(&folder);
    } else {
        eprintln!(
            "servers' logs: {}/*/usr/share/mysql/mysql-test/var/log",
            folder.display()
        );
    }
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

fn run_engine(
    tree: &Tree,
    plugin: &Plugin,
    engine: &'static str,
    suites: &[Suite],
    tests: &[(Suite, Vec<String>)],
    folder: &Path,
) -> Result<Outcomes> {
    let overlay = root().join("mariadb/mtr");
    // Tests mask the engine's name, also in paths: these have none.
    let place = folder.join(if engine == "InnoDB" { "theirs" } else { "ours" });
    let driver = layout::make(tree, plugin, &overlay, engine, suites, &place)?;
    let environment = &plugin.environment;
    driver::run(tree, &driver, engine, environment, tests, &|line| {
        eprintln!("{line}");
    })
}

type Verdicts = Vec<(String, String, Verdict)>;

fn judge(innodb: &Outcomes, inkstone: &Outcomes, work: &Path, found: &Path) -> Result<Verdicts> {
    let mut verdicts = Vec::new();
    for ((suite, test), theirs) in innodb {
        let missing = Outcome::Failed("it was not run".to_owned());
        let key = (suite.clone(), test.clone());
        let ours = inkstone.get(&key).unwrap_or(&missing);
        let name = PathBuf::from(suite).join(format!("{test}.diff"));
        let documented = root().join("mariadb/mtr/differences").join(&name);
        let verdict = compare(theirs, ours, work, &documented)?;
        if let Verdict::Differs(lines) | Verdict::Failed(lines) = &verdict {
            keep(&found.join(&name), lines)?;
        }
        verdicts.push((suite.clone(), test.clone(), verdict));
    }
    Ok(verdicts)
}

/// Where the differences of the latest run are kept, one file for each test.
fn found_folder() -> Result<PathBuf> {
    let folder = home().join("differences");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    Ok(folder)
}

fn keep(path: &Path, lines: &str) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, lines))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Prints the table; gives how many tests are wrong.
fn report(verdicts: &Verdicts, json: bool, found: &Path) -> usize {
    let wrong = verdicts
        .iter()
        .filter(|(_, _, verdict)| verdict.is_wrong())
        .count();
    if json {
        println!("{:#}", as_json(verdicts));
        return wrong;
    }
    for (suite, test, verdict) in verdicts {
        let remark = match verdict {
            Verdict::Equal => "",
            Verdict::Documented(reason) => reason,
            Verdict::Differs(lines) | Verdict::Failed(lines) | Verdict::NotForInnoDb(lines) => {
                lines
            }
        };
        let lines = || {
            remark
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
        };
        // Of a failure, the line that says what failed.
        let said = lines().find(|line| line.starts_with("mysqltest:"));
        let remark = said.or_else(|| lines().next());
        let remark: String = remark.unwrap_or_default().chars().take(80).collect();
        println!(
            "{:48} {:21} {remark}",
            format!("{suite}.{test}"),
            verdict.name()
        );
    }
    let count = |name| {
        verdicts
            .iter()
            .filter(|(_, _, verdict)| verdict.name() == name)
            .count()
    };
    let names = [
        "equal",
        "differs (documented)",
        "DIFFERS",
        "FAILED",
        "InnoDB cannot run it",
    ];
    let counts = names.map(|name| format!("{} {name}", count(name)));
    println!("{} tests: {}", verdicts.len(), counts.join(", "));
    if wrong > 0 {
        println!("the differences are in {}", found.display());
    }
    wrong
}

fn as_json(verdicts: &Verdicts) -> serde_json::Value {
    let tests = verdicts.iter().map(|(suite, test, verdict)| {
        let detail = match verdict {
            Verdict::Equal => "",
            Verdict::Documented(text)
            | Verdict::Differs(text)
            | Verdict::Failed(text)
            | Verdict::NotForInnoDb(text) => text,
        };
        serde_json::json!({"suite": suite, "test": test, "verdict": verdict.name(), "detail": detail})
    });
    tests.collect()
}
