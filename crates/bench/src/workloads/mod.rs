//! The workloads that have published figures.
//!
//! | module | subject |
//! |---|---|
//! | `writebench` | loading, flushing and dropping a wide table (MDEV-19738) |
//! | `logvolume` | log bytes for each row (MDEV-21724) |
//! | `commit` | single-row updates in memory (MDEV-28766) |
//! | `update` | single-row updates of data larger than the pool (MySQL bug 68555) |
//! | `cold` | scans and point reads from an empty pool |
//! | `reads` | point reads and short range scans in memory |
//! | `locks` | transactions that wait for each other: one row, a mix like TPC-C's |
//! | `load` | loading a narrow and a wide table, against the device's bandwidth |
//! | `giant` | one transaction that is many times what the log holds |
//! | `recovery` | recovery from the log of a killed process; opening a large clean database |

mod cold;
mod commit;
mod giant;
mod layout;
mod load;
mod locks;
mod logvolume;
mod reads;
mod recovery;
mod update;
mod writebench;

use crate::database::{EngineArguments, WorkDirectory, open_or_create};
use crate::failure::{Failure, Result};
use crate::memory;
use crate::output::Output;
use crate::sink::Sink;
use clap::{Args, Subcommand};
use inkstone::{Database, Options};
use std::path::{Path, PathBuf};

pub use recovery::child::{RecoveryChild, run as run_recovery_child};

/// A workload.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// Load a wide table in one transaction, flush it, drop it: the cost of doublewrite
    Writebench(writebench::Writebench),
    /// Log bytes for each row of a narrow table, and of single autocommitted changes
    Logvolume(logvolume::Logvolume),
    /// Single-row updates of random rows in memory: commits a second, by clients and log options
    Commit(commit::Commit),
    /// Single-row updates of data larger than the buffer pool
    Update(update::Update),
    /// Point reads and 100-row range scans in memory
    Reads(reads::Reads),
    /// Scans and point reads of a table of which nothing is in memory
    Cold(cold::Cold),
    /// Transactions that wait for each other: one hot row, a mix like TPC-C's
    Locks(locks::Locks),
    /// Load a narrow and a wide table in one transaction each, against the device's bandwidth
    Load(load::Load),
    /// One transaction many times as large as the log, its rollback, and others beside it
    Giant(giant::Giant),
    /// Kill a process that has written so much redo log; time the recovery
    Recovery(recovery::Recovery),
    /// Time the opening of a large database that was closed in order
    Open(recovery::open::Open),
}

/// Arguments of all workloads.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Make the databases in a fresh directory below this one, which is removed afterwards. Choose
    /// the device to measure; by default it is the system's place for temporary files
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Write a chart of the results to this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArguments,
}

impl Common {
    /// The directory of a run.
    fn work(&self, workload: &str) -> Result<WorkDirectory> {
        let parent = self.directory.clone().unwrap_or_else(std::env::temp_dir);
        WorkDirectory::fresh_in(&parent, workload)
    }

    /// The options that were published, with what the command line sets.
    fn options(&self) -> Result<Options> {
        self.engine.over(published())
    }

    /// Where the results go: a table of these fields, a chart if one is asked for.
    fn sink<'o>(&self, output: &'o Output, columns: &[&'static str]) -> Result<Sink<'o>> {
        Sink::new(output, self.plot.as_deref(), columns)
    }
}

/// Pool and log that hold a workload in memory: the published sizes.
fn published() -> Options {
    Options {
        buffer_pool_size: 1 << 30,
        log_file_size: 1 << 30,
        ..Options::default()
    }
}

/// Opens or creates a database, and lets the peak of resident memory begin anew.
fn open(directory: &Path, options: Options) -> Result<Database> {
    memory::forget_peak();
    open_or_create(directory, options)
}

/// `inkstone bench`. `bench recovery` starts this program again, with the hidden command
/// `bench-recovery-child`: that must call [`run_recovery_child`].
pub fn run(workload: &Workload, output: &Output) -> Result<()> {
    match workload {
        Workload::Writebench(arguments) => writebench::run(arguments, output),
        Workload::Logvolume(arguments) => logvolume::run(arguments, output),
        Workload::Commit(arguments) => commit::run(arguments, output),
        Workload::Update(arguments) => update::run(arguments, output),
        Workload::Reads(arguments) => reads::run(arguments, output),
        Workload::Cold(arguments) => cold::run(arguments, output),
        Workload::Locks(arguments) => locks::run(arguments, output),
        Workload::Load(arguments) => load::run(arguments, output),
        Workload::Giant(arguments) => giant::run(arguments, output),
        Workload::Recovery(arguments) => recovery::run(arguments, output),
        Workload::Open(arguments) => recovery::open::run(arguments, output),
    }
}

/// Removes a database that a workload has finished with.
fn remove(directory: &Path) -> Result<()> {
    std::fs::remove_dir_all(directory).map_err(|e| Failure::io("remove", directory, e))
}

/// Refuses a number that cannot be.
fn at_least(name: &str, value: u64, least: u64) -> Result<()> {
    if value >= least {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--{name} {value}: must be at least {least}"
    )))
}
