//! The part of `bench recovery` that is killed: a process that updates rows, and says on stdout how
//! many bytes of log recovery would have to read.
//!
//! | line | meaning |
//! |---|---|
//! | `A bytes rows us` | what recovery would have to read now; rows changed, in so many microseconds |
//! | `E text` | an error, the process ends |

use super::case::Case;
use super::{LOSER_TABLE, Recovery, other_table};
use crate::database::{EngineArguments, open_existing};
use crate::failure::{Failure, Result};
use crate::output::{bytes, name_of};
use crate::progress;
use clap::Args;
use inkstone::{Database, Durability, Isolation, Options};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arguments of the hidden `bench-recovery-child`.
#[derive(Args, Clone, Debug)]
pub struct RecoveryChild {
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[arg(long)]
    case: Case,
    #[arg(long)]
    rows: u64,
    #[arg(long)]
    loser_rows: u64,
    #[arg(long)]
    tables: u64,
    #[arg(long)]
    clients: u64,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Seconds after which an orphan ends by itself.
const LIFETIME_S: f64 = 3600.0;
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// Writes a line in one call; false when the output is not read any more.
fn say(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(format!("{line}\n").as_bytes());
    said.and_then(|()| out.flush()).is_ok()
}

/// `inkstone bench-recovery-child`.
pub fn run(arguments: &RecoveryChild) -> Result<()> {
    let result = work(arguments);
    if let Err(failure) = &result {
        say(&format!("E {}", failure));
    }
    result
}

fn work(arguments: &RecoveryChild) -> Result<()> {
    let db = open_existing(&arguments.directory, arguments.engine.for_existing()?)?;
    let loser = db.begin(Isolation::ReadCommitted)?;
    let loser_table = db.table(LOSER_TABLE)?;
    for n in 0..arguments.loser_rows {
        loser.insert(&loser_table, &n.to_be_bytes(), &[b'l'; 16])?;
    }
    for number in 0..arguments.tables {
        let table = db.table(&other_table(number))?;
        let transaction = db.begin(Isolation::ReadCommitted)?;
        transaction.upsert(&table, b"key", &std::process::id().to_be_bytes())?;
        transaction.commit_with(Durability::Lazy)?;
    }
    let (ended, done, begin) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let (redo, done) = (redo_bytes(&db), done.load(Ordering::Relaxed));
                let elapsed = begin.elapsed().as_micros();
                if !say(&format!("A {redo} {done} {elapsed}")) {
                    std::process::exit(3);
                }
                std::thread::sleep(REPORT_EVERY);
            }
        });
        let count = |rows| {
            done.fetch_add(rows, Ordering::Relaxed);
        };
        let RecoveryChild { rows, clients, .. } = *arguments;
        let run = arguments.case.work(&db, rows, clients, LIFETIME_S, &count);
        ended.store(true, Ordering::Relaxed);
        run.map(drop)
    })
}

/// Bytes of log behind the checkpoint that a kill would leave: those in the ring would be lost.
fn redo_bytes(db: &Database) -> u64 {
    let status: HashMap<_, _> = db.status().into_iter().collect();
    let gauge = |name| status.get(name).copied().unwrap_or(0);
    let unwritten = gauge("lsn_current").saturating_sub(gauge("lsn_written"));
    gauge("checkpoint_age_bytes").saturating_sub(unwritten)
}

/// Kills the child in any case.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the child had done.
pub struct KilledChild {
    /// Rows changed a second.
    pub rate: f64,
}

/// Lets the child work until recovery would have enough to do, and kills it.
pub fn run_and_kill(
    arguments: &Recovery,
    case: Case,
    options: &Options,
    directory: &Path,
) -> Result<KilledChild> {
    let program = std::env::current_exe().map_err(|e| Failure::io("find", directory, e))?;
    let mut command = Command::new(&program);
    command.arg("bench-recovery-child").arg(directory);
    command.arg("--case").arg(name_of(case));
    command.arg("--rows").arg(arguments.rows.to_string());
    command
        .arg("--loser-rows")
        .arg(arguments.loser_rows.to_string());
    command.arg("--tables").arg(arguments.tables.to_string());
    command.arg("--clients").arg(arguments.clients.to_string());
    for (name, value) in options.show() {
        command.arg("--set").arg(format!("{name}={value}"));
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = Killed(child.map_err(|e| Failure::io("start", &program, e))?);
    let missing = || Failure::Check("the child has no stdout".to_owned());
    let stdout = child.0.stdout.take().ok_or_else(missing)?;
    let bar = progress::bytes_bar("writing redo log", arguments.redo);
    for line in BufReader::new(stdout)
        .lines()
        .map_while(std::io::Result::ok)
    {
        match line.split_once(' ') {
            Some(("A", said)) => {
                let mut said = said.split(' ').map(|word| word.parse().unwrap_or(0));
                let mut next = || said.next().unwrap_or(0_u64);
                let (age, rows, us) = (next(), next(), next());
                bar.set_position(age.min(arguments.redo));
                if age >= arguments.redo {
                    // `kill` is SIGKILL: no handler runs, nothing is flushed.
                    drop(child);
                    bar.finish_and_clear();
                    let rate = rows as f64 * 1e6 / us.max(1) as f64;
                    return Ok(KilledChild { rate });
                }
            }
            Some(("E", why)) => return Err(Failure::Check(format!("the child failed: {why}"))),
            _ => {}
        }
    }
    Err(Failure::Check(format!(
        "the child ended before there were {} of redo log",
        bytes(arguments.redo)
    )))
}
