//! Starts the child, listens to it, kills it.

use super::Tour;
use crate::failure::{Failure, Result};
use inkstone_bench::counts::Counts;
use inkstone_bench::progress;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What the child said before it died.
#[derive(Debug, Default)]
pub struct Heard {
    /// Commits that it acknowledged, by client.
    pub committed: Vec<HashSet<u64>>,
    /// Rollbacks that it acknowledged, by client.
    pub rolled_back: Vec<HashSet<u64>>,
    /// Its counters, a moment before it died.
    pub counts: Counts,
    /// How long it ran.
    pub seconds: f64,
    /// What ended it if not the kill.
    pub error: Option<String>,
}

impl Heard {
    pub fn commits(&self) -> u64 {
        self.committed.iter().map(|set| set.len() as u64).sum()
    }

    pub fn rollbacks(&self) -> u64 {
        self.rolled_back.iter().map(|set| set.len() as u64).sum()
    }

    fn hear(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "C" | "R" => {
                let (client, sequence) = rest.split_once(' ')?;
                let sets = match kind {
                    "C" => &mut self.committed,
                    _ => &mut self.rolled_back,
                };
                sets.get_mut(client.parse::<usize>().ok()?)?
                    .insert(sequence.parse().ok()?);
            }
            "S" => self.counts = Counts::parse(rest),
            "E" => self.error = Some(rest.to_owned()),
            _ => {}
        }
        Some(())
    }
}

/// Kills the child in any case.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets the child work for a while, and kills it in the middle.
pub fn run_and_kill(tour: &Tour, directory: &Path) -> Result<Heard> {
    let program = std::env::current_exe().map_err(|e| Failure::io("find", directory, e))?;
    let mut command = Command::new(&program);
    command.arg("tour-child").arg(directory);
    for (name, value) in [
        ("--clients", u64::from(tour.clients)),
        ("--accounts", u64::from(tour.accounts)),
        ("--rows", tour.rows),
        ("--seed", tour.seed),
    ] {
        command.arg(name).arg(value.to_string());
    }
    for assignment in &tour.engine.set {
        command.arg("--set").arg(assignment);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.map_err(|e| Failure::io("start", &program, e))?);
    let Some(stdout) = child.0.stdout.take() else {
        return Err(Failure::Check("the child has no stdout".to_owned()));
    };
    let lines = listen(stdout);
    let mut heard = Heard {
        committed: vec![HashSet::new(); tour.clients as usize],
        rolled_back: vec![HashSet::new(); tour.clients as usize],
        ..Heard::default()
    };
    let bar = progress::spinner("transactions in a child process");
    let mut until = None;
    let mut begin = Instant::now();
    // First until it is time; then, after the kill, whatever is left in the pipe.
    loop {
        let wait = until.map_or(Duration::from_secs(60), |until: Instant| {
            until.saturating_duration_since(Instant::now())
        });
        match lines.recv_timeout(wait) {
            Ok(line) if line == "O" => {
                begin = Instant::now();
                until = Some(begin + Duration::from_secs_f64(tour.seconds));
            }
            Ok(line) => {
                heard.hear(&line);
            }
            Err(_) => break,
        }
        if until.is_some_and(|until| Instant::now() >= until) || heard.error.is_some() {
            break;
        }
        if heard.commits().is_multiple_of(64) {
            bar.set_message(format!("{} acknowledged commits", heard.commits()));
        }
    }
    heard.seconds = begin.elapsed().as_secs_f64();
    // `kill` is SIGKILL: no handler runs, nothing is flushed.
    let already_dead = matches!(child.0.try_wait(), Ok(Some(_)));
    drop(child);
    while let Ok(line) = lines.recv() {
        heard.hear(&line);
    }
    bar.finish_and_clear();
    if already_dead || until.is_none() {
        let why = heard
            .error
            .clone()
            .unwrap_or_else(|| "it gave no reason".to_owned());
        return Err(Failure::Check(format!(
            "the child ended before it was killed: {why}"
        )));
    }
    Ok(heard)
}

/// Lines of the child, until the pipe ends. A last line without an end is not one.
fn listen(stdout: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(n) if n > 0) {
            if line.ends_with('\n') && sender.send(line.trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}
