//! A campaign on all cores. Runs happen in worker processes: one that hangs, aborts or misbehaves
//! costs its seed, and the campaign goes on and can say which seed it was.
//!
//! A worker is the same program with `--worker`. It reads seeds from its input, one a line, and
//! answers each with a line of JSON: `{"seed": 7, "marks": {"crashes": 3}, "error": null}`.

use crate::marks::Marks;
// Not the standard library's, which was not compiled for ThreadSanitizer (`cargo xtask tsan`).
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a dead worker's last words that are shown.
const LAST_WORDS_BYTES: usize = 6000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed; the others follow.
    pub first_seed: u64,
    /// How many runs, at most.
    pub runs: Option<u64>,
    /// No run begins after so long.
    pub time: Option<Duration>,
    /// Worker processes.
    pub jobs: usize,
    /// Whether to go on after a failure.
    pub keep_going: bool,
    /// Whether what workers print is for the terminal, as it comes.
    pub show_output: bool,
    /// Arguments of a worker, without `--worker`.
    pub arguments: Vec<String>,
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What is wrong, and how to repeat it.
    pub text: String,
}

/// What a campaign has come to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// What was seen; "runs" among it.
    pub marks: Marks,
    /// Runs that failed.
    pub failures: Vec<Failure>,
}

impl Tally {
    /// Whether it was long enough that it must have seen every mark.
    pub fn is_judged(&self) -> bool {
        self.failures.is_empty() && self.marks.get("runs") >= crate::marks::RUNS_TO_JUDGE
    }

    /// Marks that it should have seen and did not.
    pub fn missing(&self) -> Vec<&'static str> {
        if self.is_judged() {
            self.marks.missing()
        } else {
            Vec::new()
        }
    }

    /// The answer for programs.
    pub fn to_json(&self) -> Value {
        let failures = self.failures.iter();
        let failures: Vec<Value> = failures
            .map(|failure| json!({"seed": failure.seed, "text": failure.text}))
            .collect();
        json!({
            "runs": self.marks.get("runs"),
            "crashes": self.marks.crashes(),
            "commits_checked": self.marks.get("commits checked"),
            "marks": self.marks.0,
            "missing": self.missing(),
            "failures": failures,
        })
    }
}

struct Progress {
    next: u64,
    end: u64,
    stopped: bool,
    tally: Tally,
}

/// Runs a campaign. `seen` is told after each run.
pub fn run(campaign: &Campaign, seen: &(dyn Fn(&Tally) + Sync)) -> std::io::Result<Tally> {
    let begin = Instant::now();
    let runs = campaign.runs.unwrap_or(u64::MAX);
    let progress = Mutex::new(Progress {
        next: campaign.first_seed,
        end: campaign.first_seed.saturating_add(runs),
        stopped: false,
        tally: Tally::default(),
    });
    let next_seed = || {
        let mut progress = progress.lock();
        let late = campaign.time.is_some_and(|time| begin.elapsed() >= time);
        if progress.stopped || late || progress.next == progress.end {
            return None;
        }
        progress.next += 1;
        Some(progress.next - 1)
    };
    let note = |marks: &Marks, failure: Option<Failure>| {
        let mut progress = progress.lock();
        progress.tally.marks.merge(marks);
        progress.tally.marks.add("runs", 1);
        if let Some(failure) = failure {
            progress.stopped |= !campaign.keep_going;
            progress.tally.failures.push(failure);
        }
        seen(&progress.tally);
    };
    std::thread::scope(|scope| {
        let work = |n: usize| -> std::io::Result<()> {
            let mut worker = None;
            while let Some(seed) = next_seed() {
                let mut running = match worker.take() {
                    Some(running) => running,
                    None => Worker::start(campaign, n)?,
                };
                match running.run(seed) {
                    Ok((marks, error)) => {
                        note(&marks, error.map(|text| Failure { seed, text }));
                        worker = Some(running);
                    }
                    Err(_) => {
                        let text = running.last_words(seed);
                        note(&Marks::default(), Some(Failure { seed, text }));
                    }
                }
            }
            Ok(())
        };
        let jobs: Vec<_> = (0..campaign.jobs)
            .map(|n| scope.spawn(move || work(n)))
            .collect();
        let ends = jobs.into_iter().map(|job| match job.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<std::io::Result<()>>()
    })?;
    Ok(progress.lock().tally.clone())
}

struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: Option<JoinHandle<Vec<u8>>>,
}

impl Worker {
    fn start(campaign: &Campaign, n: usize) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--worker")
            .args(&campaign.arguments)
            .env(crate::cores::WORKER, n.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if !campaign.show_output {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn()?;
        let pipe = || std::io::Error::other("a worker without a pipe");
        let input = child.stdin.take().ok_or_else(pipe)?;
        let output = child.stdout.take().ok_or_else(pipe)?;
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                // What can be read is shown.
                let _ = errors.read_to_end(&mut all);
                all
            })
        });
        Ok(Self {
            child,
            input: Some(input),
            output: BufReader::new(output),
            errors,
        })
    }

    /// Has a seed run. An error means that the worker is dead.
    fn run(&mut self, seed: u64) -> std::io::Result<(Marks, Option<String>)> {
        let dead = || std::io::Error::other("the worker is dead");
        writeln!(self.input.as_mut().ok_or_else(dead)?, "{seed}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        let marks = answer["marks"].as_object().ok_or_else(dead)?;
        let count = |(name, count): (&String, &Value)| (name.clone(), count.as_u64().unwrap_or(0));
        Ok((
            Marks(marks.iter().map(count).collect()),
            answer["error"].as_str().map(str::to_owned),
        ))
    }

    fn last_words(mut self, seed: u64) -> String {
        let status = self.child.wait();
        let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        let errors = errors.unwrap_or_default();
        let words = &errors[errors.len().saturating_sub(LAST_WORDS_BYTES)..];
        let words = String::from_utf8_lossy(words);
        format!("the process ended ({status}) while it ran seed {seed}\n{words}")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// The worker's side: runs the seeds that it is given.
pub fn serve(run: impl Fn(u64) -> (Marks, Result<(), String>)) -> std::io::Result<()> {
    let mut output = std::io::stdout();
    for line in std::io::stdin().lines() {
        let line = line?;
        let seed = line.trim().parse().map_err(std::io::Error::other)?;
        let (marks, result) = run(seed);
        let answer = json!({"seed": seed, "marks": marks.0, "error": result.err()});
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
