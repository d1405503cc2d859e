//! Real processes on files of this machine, with budgets that the kernel keeps or counts.
//!
//! # What must hold
//!
//! 1. *Descriptors*: a process that may have fewer files open than the database has tables creates
//!    them, writes to each, is killed; the next ones open the database, write to each table, are
//!    killed, verify all over an overlay, and verify all and close. Every acknowledged row is
//!    there.
//! 2. *Memory of an opening*: that of one that rolls a killed transaction back, however large it
//!    was, is within [`LOSER_OPENING`].

use super::figure::Figure;
use crate::campaign::{alive, watched};
use clap::ValueEnum;
use inkstone::internals::options::FlushMethod;
use inkstone::{Database, Error, Isolation, Options, Table};
use inkstone_io::BackendChoice;
use inkstone_io::overlay::OverlayVfs;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A child that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(50);
/// What a child says when it has done its work.
const DONE: &str = "done";
/// What a child says before what went wrong.
const ERROR: &str = "error: ";
/// What an opening says before its memory in bytes.
const MEMORY: &str = "memory: ";

/// Memory of the process that opens a database and rolls a transaction back.
pub const LOSER_OPENING: Figure = Figure {
    name: "memory of an opening with a large loser",
    unit: "MiB",
    // What of its undo is not saved, 16 MiB and what comes while that is saved; and a process.
    bound: 64.0,
    breach: None,
};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// So many tables, and so many descriptors.
    Descriptors {
        /// `RLIMIT_NOFILE`, soft and hard.
        limit: u64,
        /// Tables.
        tables: u64,
    },
    /// A transaction of so many rows is rolled back.
    Loser {
        /// Its rows.
        rows: u64,
    },
}

impl Case {
    /// All cases.
    pub const ALL: [Case; 3] = [
        Case::Descriptors {
            limit: 64,
            tables: 300,
        },
        Case::Descriptors {
            limit: 256,
            tables: 2000,
        },
        Case::Loser { rows: 2_000_000 },
    ];

    /// Its sort and budget, for tables.
    pub fn names(self) -> (String, String) {
        match self {
            Case::Descriptors { limit, tables } => {
                ("descriptors".to_owned(), format!("{limit}/{tables}"))
            }
            Case::Loser { rows } => ("loser".to_owned(), rows.to_string()),
        }
    }

    /// Runs the case; gives the figure that was measured.
    pub fn run(self) -> Result<Option<f64>, String> {
        let line = format!("cargo xtask faults --case {self}");
        watched(&line, || self.run_watched())
    }

    fn run_watched(self) -> Result<Option<f64>, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let run = Run {
            directory: directory.path().join("db"),
        };
        match self {
            Case::Descriptors { limit, tables } => {
                run.descriptors(limit, tables)?;
                Ok(None)
            }
            Case::Loser { rows } => run.loser(rows).map(Some),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sort, budget) = self.names();
        write!(f, "processes/{sort}/{budget}")
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let parse = || match &parts[..] {
            ["processes", "descriptors", limit, tables] => Some(Case::Descriptors {
                limit: limit.parse().ok()?,
                tables: tables.parse().ok()?,
            }),
            ["processes", "loser", rows] => Some(Case::Loser {
                rows: rows.parse().ok()?,
            }),
            _ => None,
        };
        parse().ok_or_else(|| {
            format!("{text}: not processes/descriptors/LIMIT/TABLES or processes/loser/ROWS")
        })
    }
}

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Creates the tables, a row in each, and waits to be killed.
    Create,
    /// Changes the row of each table, flushes all, and waits to be killed.
    Change,
    /// Verifies all tables and rows over an overlay, as `inkstone verify` does: nothing is written.
    Look,
    /// Verifies all tables and rows, and closes.
    Verify,
    /// Inserts rows in a transaction that it leaves open, and waits to be killed.
    Lose,
    /// Opens, says what memory that took, and closes.
    Open,
}

/// Arguments of the hidden `child`.
#[derive(clap::Args, Clone, Debug)]
pub struct ChildArguments {
    /// The database.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// What to do.
    #[arg(long)]
    role: Role,
    /// Tables, or rows.
    #[arg(long)]
    count: u64,
    /// How many descriptors the process may have.
    #[arg(long)]
    descriptors: Option<u64>,
}

/// The parent's side of a case.
struct Run {
    directory: PathBuf,
}

impl Run {
    fn descriptors(&self, limit: u64, tables: u64) -> Result<(), String> {
        let start = |role| Talking::start(&self.directory, role, tables, Some(limit));
        for (role, what) in [(Role::Create, "creating"), (Role::Change, "changing")] {
            let lines = start(role)?.until_done(what)?;
            if lines.len() as u64 != tables {
                return Err(format!("{what}: {} of {tables} tables", lines.len()));
            }
        }
        start(Role::Look)?.until_done("looking over an overlay")?;
        start(Role::Verify)?.until_done("verifying").map(drop)
    }

    /// The memory of an opening that rolls so many rows back, in MiB.
    fn loser(&self, rows: u64) -> Result<f64, String> {
        let start = |role| Talking::start(&self.directory, role, rows, None);
        start(Role::Lose)?.until_done("inserting")?;
        let lines = start(Role::Open)?.until_done("opening")?;
        std::fs::remove_dir_all(&self.directory).map_err(|error| error.to_string())?;
        let memory = lines.iter().find_map(|line| line.strip_prefix(MEMORY));
        let bytes = memory.and_then(|bytes| bytes.parse::<u64>().ok());
        let mib = bytes.map(|bytes| bytes as f64 / (1 << 20) as f64);
        mib.ok_or_else(|| format!("the opening did not say its memory: {lines:?}"))
    }
}

/// A child that says line by line what it has done. Killed when dropped.
struct Talking {
    child: Child,
    lines: Receiver<String>,
}

impl Talking {
    fn start(
        directory: &Path,
        role: Role,
        count: u64,
        descriptors: Option<u64>,
    ) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a child cannot be started: {error}");
        let role = role.to_possible_value();
        let role = role.map(|role| role.get_name().to_owned());
        // This very program, also if its file has been built anew meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg("child").arg(directory);
        command
            .args(["--count", &count.to_string(), "--role"])
            .args(role);
        if let Some(limit) = descriptors {
            command.args(["--descriptors", &limit.to_string()]);
        }
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (sender, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            let mut said = BufReader::new(stdout).lines().map_while(Result::ok);
            std::thread::spawn(move || said.try_for_each(|line| sender.send(line)));
        }
        Ok(Self { child, lines })
    }

    /// What it says before it is done.
    fn until_done(&self, what: &str) -> Result<Vec<String>, String> {
        let mut said = Vec::new();
        loop {
            alive();
            match self.lines.recv_timeout(SILENCE_MAX) {
                Ok(line) if line == DONE => return Ok(said),
                Ok(line) if line.starts_with(ERROR) => {
                    return Err(format!("{what}, after {} steps: {line}", said.len()));
                }
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{what} hangs after {} steps", said.len()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("{what} ended after {} steps", said.len()));
                }
            }
        }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: impl fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if written.is_err() {
        // The output is not read any more.
        std::process::abort();
    }
}

/// Does what the arguments say. The result is the exit code.
pub fn run_child(arguments: &ChildArguments) -> ExitCode {
    // Where the kernel refuses this, the closed pipe has to do.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if let Some(limit) = arguments.descriptors {
        let limit = Some(limit);
        let both = Rlimit {
            current: limit,
            maximum: limit,
        };
        if let Err(error) = setrlimit(Resource::Nofile, both) {
            say(format_args!("{ERROR}no such limit of descriptors: {error}"));
            return ExitCode::FAILURE;
        }
    }
    match work(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{ERROR}{error}"));
            ExitCode::FAILURE
        }
    }
}

fn work(arguments: &ChildArguments) -> Result<(), Error> {
    let (directory, count) = (&arguments.directory, arguments.count);
    match arguments.role {
        Role::Create => {
            let db = Database::open(directory, options())?;
            for n in 0..count {
                put(&db, &db.create_table(&table_name(n), &[])?, n, 1)?;
                say(n);
            }
            wait_to_be_killed(&db);
        }
        Role::Change => {
            let db = Database::open(directory, options())?;
            for n in 0..count {
                let table = db.table(&table_name(n))?;
                check(&db, &table, n, 1)?;
                put(&db, &table, n, 2)?;
                db.flush_table(&table)?;
                say(n);
            }
            db.checkpoint()?;
            wait_to_be_killed(&db);
        }
        Role::Look | Role::Verify => {
            let db = match arguments.role {
                Role::Look => {
                    let below = inkstone_io::default_vfs(BackendChoice::Posix);
                    let below = below.map_err(|e| Error::Unsupported(e.to_string()))?;
                    let overlay = Arc::new(OverlayVfs::new(below));
                    Database::open_on(overlay, directory, options(), &|_| {})?
                }
                _ => Database::open(directory, options())?,
            };
            for n in 0..count {
                let table = db.table(&table_name(n))?;
                check(&db, &table, n, 2)?;
                db.verify_table(&table)?;
                say(n);
            }
            db.close()?;
            say(DONE);
        }
        Role::Lose => lose(directory, count)?,
        Role::Open => {
            let db = Database::open(directory, small())?;
            say(format_args!("{MEMORY}{}", memory_max_bytes()));
            db.close()?;
            say(DONE);
        }
    }
    Ok(())
}

fn lose(directory: &Path, rows: u64) -> Result<(), Error> {
    let db = Database::open(directory, small())?;
    let table = db.create_table("rows", &[])?;
    let txn = db.begin(Isolation::RepeatableRead)?;
    for n in 0..rows {
        txn.insert(&table, &n.to_be_bytes(), b"lost")?;
        if n % 10_000 == 0 {
            say(n);
        }
    }
    db.flush_log()?;
    wait_to_be_killed(&db);
    Ok(())
}

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 16 << 20,
        buffer_pool_instances: 1,
        log_file_size: 16 << 20,
        // Every file system of a developer takes these.
        flush_method: FlushMethod::Fsync,
        log_file_buffering: true,
        ..Options::default()
    }
}

/// Nothing that grows with the rows but what is measured.
fn small() -> Options {
    Options {
        buffer_pool_size: 64 * 4096,
        log_file_size: 256 << 20,
        recovery_memory: 64 << 10,
        recovery_threads: 1,
        ..options()
    }
}

fn table_name(n: u64) -> String {
    format!("table{n:05}")
}

fn value(n: u64, round: u8) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(120, round);
    value
}

fn put(db: &Database, table: &Table, n: u64, round: u8) -> Result<(), Error> {
    let txn = db.begin(Isolation::RepeatableRead)?;
    txn.upsert(table, b"row", &value(n, round))?;
    txn.commit()
}

/// The row is as it was acknowledged.
fn check(db: &Database, table: &Table, n: u64, round: u8) -> Result<(), Error> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    match txn.get(table, b"row")? {
        Some(found) if found == value(n, round) => Ok(()),
        found => Err(Error::NotFound(format!(
            "row {n} as of round {round} (there is {found:?})"
        ))),
    }
}

fn wait_to_be_killed(_open: &Database) {
    say(DONE);
    std::thread::sleep(SILENCE_MAX * 2);
}

/// The most memory that this process has had, bytes.
fn memory_max_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.split_whitespace().next());
    let kib: Option<u64> = digits.and_then(|digits| digits.parse().ok());
    kib.map_or(0, |kib| kib << 10)
}
