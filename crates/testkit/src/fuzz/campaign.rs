//! libFuzzer over all targets, one after the other, and the inputs that are kept.
//!
//! Under `target/fuzz/work/TARGET` lie `seeds` (written anew each time), `corpus` (what libFuzzer
//! has found worth keeping; it grows over campaigns), `found` (inputs that fail) and `log`. Inputs
//! that once failed are kept for ever in `fuzz/regressions/TARGET`, and every campaign and every
//! `cargo test` begins with them.

use super::{TARGETS, Target};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What goes wrong around the targets, as text for people.
pub type Result<T> = std::result::Result<T, String>;

/// The most memory that a target's process may take, MiB: AddressSanitizer's own and the engine's.
const PROCESS_MAX_MIB: u64 = 2048;
/// Seconds after which an input counts as hanging.
const INPUT_SECONDS_MAX: u64 = 30;

/// The repository's folder of inputs that once failed.
pub fn regressions(target: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    crates.join("fuzz/regressions").join(target)
}

/// All inputs that every change is tested with: seeds, and what once failed.
pub fn kept_inputs(target: &Target) -> Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = (target.seeds)();
    let folder = regressions(target.name);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Ok(inputs);
    };
    for entry in entries {
        let path = entry
            .map_err(|error| failed("list", &folder, &error))?
            .path();
        let bytes = std::fs::read(&path).map_err(|error| failed("read", &path, &error))?;
        inputs.push((path.display().to_string(), bytes));
    }
    Ok(inputs)
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("{} cannot be {what}: {error}", path.display())
}

/// Where a campaign works, and for how long.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The folder of the instrumented programs.
    pub programs: PathBuf,
    /// The folder for seeds, corpora and findings.
    pub work: PathBuf,
    /// Seconds for each target.
    pub seconds: u64,
}

/// What came of a target.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Inputs that were run.
    pub runs: u64,
    /// Edges of the program that were reached.
    pub coverage: u64,
    /// Inputs worth keeping.
    pub corpus: u64,
    /// The most memory, MiB.
    pub memory: u64,
    /// The input that fails, or why there is none.
    pub failure: Option<Failure>,
}

/// A failing input, and the end of what libFuzzer said.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input; `None` if the process died without writing one.
    pub input: Option<PathBuf>,
    /// The last lines of the log.
    pub text: String,
}

impl Campaign {
    /// Runs the targets in turn, tells how it goes, and returns whether none failed.
    pub fn run(&self, targets: &[&Target]) -> Result<bool> {
        let mut outcomes = Vec::new();
        for target in targets {
            let begin = Instant::now();
            let outcome = self.fuzz(target)?;
            println!(
                "{:<12} {:>10} runs {:>6} edges {:>6} corpus {:>5} MiB {:>4} s  {}",
                target.name,
                outcome.runs,
                outcome.coverage,
                outcome.corpus,
                outcome.memory,
                begin.elapsed().as_secs(),
                if outcome.failure.is_some() {
                    "FAILED"
                } else {
                    "ok"
                },
            );
            if let Some(failure) = &outcome.failure {
                self.tell(target, failure);
            }
            outcomes.push((target, outcome));
        }
        let failed = outcomes
            .iter()
            .filter(|(_, outcome)| outcome.failure.is_some())
            .count();
        let runs: u64 = outcomes.iter().map(|(_, outcome)| outcome.runs).sum();
        println!("{} targets, {runs} runs, {failed} failed", outcomes.len());
        Ok(failed == 0)
    }

    fn tell(&self, target: &Target, failure: &Failure) {
        println!("{}", failure.text);
        match &failure.input {
            Some(input) => println!(
                "  input:  {input}\n  repeat: cargo xtask fuzz --target {} --input {input}\n  keep:   cp {input} {}/",
                target.name,
                Path::new("fuzz/regressions").join(target.name).display(),
                input = input.display(),
            ),
            None => println!(
                "  no input was written; the log is {}",
                self.folder(target).join("log").display()
            ),
        }
    }

    fn folder(&self, target: &Target) -> PathBuf {
        self.work.join(target.name)
    }

    fn make_folder(&self, target: &Target, name: &str) -> Result<PathBuf> {
        let folder = self.folder(target).join(name);
        std::fs::create_dir_all(&folder).map_err(|error| failed("made", &folder, &error))?;
        Ok(folder)
    }

    fn write_seeds(&self, target: &Target) -> Result<PathBuf> {
        let folder = self.folder(target).join("seeds");
        let _ = std::fs::remove_dir_all(&folder);
        self.make_folder(target, "seeds")?;
        for (name, bytes) in (target.seeds)() {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(|error| failed("written", &path, &error))?;
        }
        Ok(folder)
    }

    /// The program of a target, with the limits of every run.
    pub fn program(&self, target: &Target) -> Command {
        let mut command = Command::new(self.programs.join(target.name));
        // Threads of the engine end with its last handle, often after the run.
        command
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env("RUST_BACKTRACE", "1");
        command.args([
            format!("-rss_limit_mb={PROCESS_MAX_MIB}"),
            format!("-malloc_limit_mb={}", target.allocation_max_mib),
            format!("-timeout={INPUT_SECONDS_MAX}"),
            format!("-max_len={}", target.input_max),
        ]);
        command
    }

    fn fuzz(&self, target: &Target) -> Result<Outcome> {
        let seeds = self.write_seeds(target)?;
        let (corpus, found) = (
            self.make_folder(target, "corpus")?,
            self.make_folder(target, "found")?,
        );
        let mut command = self.program(target);
        command
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-artifact_prefix={}/", found.display()))
            .args(["-print_final_stats=1", "-detect_leaks=0"])
            .args([corpus, seeds]);
        if regressions(target.name).is_dir() {
            command.arg(regressions(target.name));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let program = format!("{:?}", command.get_program());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program} cannot be started: {error}"))?;
        let stderr = child.stderr.take().ok_or("no pipe to libFuzzer")?;
        let (outcome, tail, input) = self.follow(target, BufReader::new(stderr))?;
        let status = child
            .wait()
            .map_err(|error| format!("{program}: {error}"))?;
        let failure = (!status.success()).then_some(Failure { input, text: tail });
        Ok(Outcome { failure, ..outcome })
    }

    /// Reads what libFuzzer says: keeps it, and shows how far it is.
    fn follow(
        &self,
        target: &Target,
        lines: impl BufRead,
    ) -> Result<(Outcome, String, Option<PathBuf>)> {
        let path = self.folder(target).join("log");
        let mut log =
            std::fs::File::create(&path).map_err(|error| failed("written", &path, &error))?;
        let bar = ProgressBar::new(self.seconds);
        let style = ProgressStyle::with_template("{prefix:<12} [{bar:30}] {pos}/{len} s  {msg}");
        bar.set_style(style.map_err(|error| error.to_string())?);
        bar.set_prefix(target.name);
        bar.enable_steady_tick(Duration::from_millis(500));
        let (begin, mut outcome, mut input) = (Instant::now(), Outcome::default(), None);
        let mut tail: Vec<String> = Vec::new();
        for line in lines.split(b'\n') {
            let line = line.map_err(|error| format!("libFuzzer cannot be read: {error}"))?;
            let line = String::from_utf8_lossy(&line).into_owned();
            writeln!(log, "{line}").map_err(|error| failed("written", &path, &error))?;
            if note(&line, &mut outcome) {
                bar.set_position(begin.elapsed().as_secs().min(self.seconds));
                bar.set_message(format!("{} runs, {} edges", outcome.runs, outcome.coverage));
                continue;
            }
            if let Some((_, path)) = line.split_once("Test unit written to ") {
                input = Some(PathBuf::from(path));
            }
            tail.push(line);
            if tail.len() > 40 {
                tail.remove(0);
            }
        }
        bar.finish_and_clear();
        Ok((outcome, tail.join("\n"), input))
    }
}

/// Takes the numbers out of a line of libFuzzer; false if it has none.
fn note(line: &str, outcome: &mut Outcome) -> bool {
    let number = |text: &str| text.trim().parse().ok();
    if let Some((name, value)) = line
        .strip_prefix("stat::")
        .and_then(|line| line.split_once(':'))
    {
        match name {
            "number_of_executed_units" => outcome.runs = number(value).unwrap_or(outcome.runs),
            "peak_rss_mb" => outcome.memory = number(value).unwrap_or(outcome.memory),
            _ => {}
        }
        return true;
    }
    let Some(rest) = line.strip_prefix('#') else {
        return false;
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let Some(runs) = words.first().and_then(|word| number(word)) else {
        return false;
    };
    outcome.runs = runs;
    for pair in words.windows(2) {
        let value = pair[1].split('/').next().and_then(number);
        match pair[0] {
            "cov:" => outcome.coverage = value.unwrap_or(outcome.coverage),
            "corp:" => outcome.corpus = value.unwrap_or(outcome.corpus),
            _ => {}
        }
    }
    true
}

/// The targets of these names, or all.
pub fn select(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let names = names.iter();
    names
        .map(|name| {
            super::find(name).ok_or_else(|| {
                let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
                format!("there is no target {name}; there are {}", known.join(", "))
            })
        })
        .collect()
}
