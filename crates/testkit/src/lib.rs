//! Whole-engine tests on the simulated disk: a reference model, a driver that runs the real engine
//! beside it and takes its disk away, and a check of what is there afterwards.
//!
//! | module | subject |
//! |---|---|
//! | [`model`] | what a database should hold: tables, versions, commits in their order |
//! | [`driver`] | one run from one seed: random work, power loss, recovery, comparison |
//! | [`marks`] | what runs have seen, and what a campaign must have seen |
//! | [`workers`] | a campaign on all cores: processes that run seeds |
//! | [`faults`] | a small piece of work in which the k-th operation on the disk fails, or whole files, or in which handles and memory are few |
//! | [`failed_sync`] | a sync of each kind of file fails: what the page cache shows afterwards, what others make of it meanwhile |
//! | [`small_log`] | threads roll back to savepoints, with a log that comes round meanwhile |
//! | [`crash`] | real processes, killed, and power loss under them |
//! | [`fuse`] | a mounted file system that forgets what was not synced |
//! | [`loops`] | file systems of the kernel on loop devices, the file of one also on that of [`fuse`] |
//! | [`diagnose`] | what disk and log say of a page that an error names |
//! | [`campaign`] | many seeds, counts, and the line that repeats a failing one |
//! | [`history`] | histories of concurrent transactions, checked for what isolation levels forbid |
//! | [`fixtures`] | databases of each format version, which later ones must open |
//! | [`fuzz`] | targets for fuzzers, and the campaign over them |
//! | `cores` | the core that the threads of a seeded run share |
//! | `rng` | randomness from a seed |
//!
//! # Promises
//!
//! 1. Each read of the engine is compared with the model as of the reader's snapshot.
//! 2. After a power loss the database equals the model at a prefix of the commits that holds each
//!    one acknowledged with `Durability::Sync`; after a kill, also those of `Durability::Write`.
//! 3. The driver of [`driver`] has one thread. In a build with `--cfg inkstone_sim` the engine's
//!    threads run under the schedule of the seed, which repeats all of a run; in other builds they
//!    are real, and a seed repeats what the driver does exactly, and what the disk does nearly.

pub mod build;
pub mod campaign;
#[cfg_attr(
    not(inkstone_sim),
    expect(dead_code, reason = "only seeded runs have one core")
)]
mod cores;
pub mod crash;
pub mod diagnose;
pub mod driver;
pub mod failed_sync;
pub mod faults;
pub mod fixtures;
pub mod fuse;
pub mod fuzz;
pub mod history;
pub mod loops;
pub mod marks;
pub mod model;
mod rng;
pub mod schedule;
pub mod small_log;
pub mod workers;

pub use rng::Rng;

/// A database that was closed, or that did not open, has let go of all files, directories and
/// locks.
pub(crate) fn nothing_is_open(vfs: &inkstone_io::sim::SimVfs) -> Result<(), String> {
    match vfs.handles() {
        0 => Ok(()),
        handles => Err(format!(
            "{handles} files, directories or locks are open behind the end"
        )),
    }
}
