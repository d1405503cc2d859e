//! Inkstone: a crash-safe transactional storage engine that a program embeds.
//!
//! A [`Database`] is a directory. It holds [`Table`]s; a table is a clustered tree and any number
//! of secondary trees in one file. Keys and values are byte strings; keys sort as `memcmp` does.
//! Everything is read and changed through a [`Transaction`]. [`typed`] puts Rust types on top.
//!
//! ```
//! use inkstone::{Database, Isolation, Options};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path();
//! let db = Database::open(path, Options::default())?; // creates it if the directory is empty
//! let accounts = db.create_table("accounts", &["by_name"])?;
//!
//! let txn = db.begin(Isolation::RepeatableRead)?;
//! txn.insert(&accounts, b"1001", b"Ada: 50")?;
//! txn.insert(accounts.tree("by_name")?, b"Ada", b"1001")?;
//! txn.commit()?; // on disk when this returns
//!
//! let txn = db.begin(Isolation::RepeatableRead)?;
//! assert_eq!(txn.get(&accounts, b"1001")?.as_deref(), Some(&b"Ada: 50"[..]));
//! for row in txn.range(&accounts, &b"1000"[..]..)? {
//!     let (key, value) = row?;
//!     println!("{} bytes -> {} bytes", key.len(), value.len());
//! }
//! txn.rollback()?;
//! db.close()?;
//! # Ok::<(), inkstone::Error>(())
//! ```
//!
//! | to | there is |
//! |---|---|
//! | have rows of Rust types, and indexes that follow them | [`typed::TypedTable`] |
//! | change what was read, beside others | [`Database::transact`], [`TypedTable::update_with`](typed::TypedTable::update_with) |
//! | add to what is there, whatever others have added | [`Transaction::merge`], [`TypedTable::merge`](typed::TypedTable::merge) |
//! | lock rows, wait for them, or pass over locked ones | [`Transaction::get_locking`], [`Transaction::range_locking`], [`Wait`] |
//! | undo a part | [`Transaction::statement`], [`Transaction::savepoint`] |
//! | read one state for long | [`Database::begin_with_snapshot`] |
//! | load many rows | [`Transaction::insert_many`], [`Database::sorter`] |
//! | wait less for the disk | [`Transaction::commit_with`], [`Transaction::commit_deferred`] |
//! | test without a directory | [`Database::in_memory`], [`Database::temporary`] |
//! | scratch data beside a database, as temporary tables are | [`Database::scratch`] |
//! | see what goes on | [`Database::prometheus`], [`Database::durations`], [`Database::slow_waits`], [`Database::lock_waits`], [`Database::snapshots`] |
//!
//! `docs/cookbook.md` has recipes, `crates/inkstone/examples` whole programs (a job queue, an event
//! store), `docs/coming-from.md` the calls of redb, RocksDB, SQLite and LMDB beside these.
//!
//! # Threads
//!
//! Calls block; there is no async runtime. A commit can be awaited: [`PendingCommit`] is a future
//! that any executor can poll. [`Database`], [`Table`] and [`Options`] can be shared and cloned
//! freely, and many threads may read and write one table at once, each with a transaction of its
//! own.
//!
//! A thread that has two transactions at once, and wants with one what the other has locked, waits
//! for itself: no deadlock that could be seen, but a wait until [`Error::LockTimeout`]. Hence
//! `lock_wait_timeout_ms` is 5 seconds by default, not a server's 50: a program's transactions are
//! mostly short, and an error that comes soon is found soon. Debug builds say it on stderr after a
//! quarter of a second. [`Transaction::set_lock_wait_timeout`] gives a transaction more.
//!
//! # Durability
//!
//! | [`Durability`] | commit returns when | the process is killed | power loss |
//! |---|---|---|---|
//! | [`Sync`](Durability::Sync), the default | the log is written and synced | nothing is lost | nothing is lost |
//! | [`Write`](Durability::Write) | the log is written | nothing is lost | about the last second |
//! | [`Lazy`](Durability::Lazy) | at once | about the last second | about the last second |
//!
//! A transaction survives as a whole or not at all, and what survives is a prefix of the commits.
//! Recovery runs inside [`Database::open`]; [`Database::open_report`] says what it did.
//!
//! # Errors
//!
//! Every call returns an [`Error`] that says what was asked, what was found and what to do;
//! [`Error::kind`] groups them by what a program can do.
//!
//! | error | what it means for the transaction |
//! |---|---|
//! | [`Error::Deadlock`] | it was rolled back; repeat it |
//! | [`Error::WriteConflict`] | the statement had no effect; roll back and repeat the transaction |
//! | [`Error::TableChanged`] | the table is newer than its snapshot; the statement had no effect, what else it does goes on |
//! | [`Error::LockTimeout`], [`Error::LockNotAvailable`], [`Error::Interrupted`], [`Error::DuplicateKey`], [`Error::RowNotFound`], [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::DiskFull`] | the statement had no effect; the transaction goes on |
//! | [`Error::Corrupt`] | bytes on disk are damaged; the error names file, page and offset. What was found cannot be used, the rest can |
//! | [`Error::Poisoned`] | a log write or a sync failed: close the database, open it again, recovery tells what is there |
//! | [`Error::ReadOnly`] | the database was opened for reading only; nothing was changed |
//! | [`Error::OtherDatabase`] | a handle of another open database was given to the call, which did nothing; the transaction goes on |
//! | [`Error::Closed`] | the database was closed; what was not committed is undone |
//!
//! [`Database::transact`] repeats a transaction while others are in its way
//! ([`Error::is_retryable`]).
//!
//! Broken invariants, which would be bugs of Inkstone, abort the process rather than write wrong
//! bytes.
//!
//! # Modules
//!
//! With the feature `tracing` the library tells subscribers of the crate `tracing` of openings,
//! checkpoints, waits (those of 100 ms and longer as warnings, with their reason) and errors, under
//! the target `inkstone`.
//!
//! Programs need what is listed here, and [`typed`], to which the features `derive` and `serde` add
//! (`#[derive(Key, Row)]`, `typed::Serde`). The tools and tests of this repository see
//! more of the engine, with the feature `internals`: that changes without notice. `ARCHITECTURE.md`
//! walks through the modules, `docs/format.md` describes every byte on disk.

#![cfg_attr(
    not(feature = "internals"),
    deny(missing_debug_implementations),
    allow(
        dead_code,
        unused_imports,
        reason = "what the tools and tests alone use"
    )
)]

// The example of the README is compiled and run as well.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

// And the recipes.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cookbook.md")]
struct Cookbook;

mod aside;
mod btree;
mod buffer;
mod catalog;
mod control;
mod counters;
mod database;
mod debug;
mod error;
mod locks;
mod log;
mod mtr;
mod mutants;
mod mvcc;
mod options;
mod paranoid;
mod poison;
mod recovery;
mod rows;
mod salvage;
mod sort;
mod space;
mod storage;
mod store;
mod trace;
mod txn;
pub mod typed;
mod unlogged;

use error::invariant;
use inkstone_sync as sync;

pub use aside::{ASIDE_SUFFIX, SetAside};
pub use btree::{RangeEstimates, TreeReport};
pub use catalog::{Reference, ReferenceAction};
pub use counters::{DurationBucket, DurationSummary, SlowWait};
pub use database::{
    ChangeTracker, ChangedRows, CheckpointOptions, CheckpointProgress, CheckpointReport,
    CompactOptions, CompactReport, Database, Export, LeftOut, LockState, LockView, Metric,
    OpenReport, Recovered, SnapshotView, TableReport, TableStatistics, TransactOptions,
    TransactionView, TreeEstimates,
};
pub use error::{Error, ErrorKind, Result};
pub use inkstone_format::{Corrupt, Lsn, PageId, TrxId};
pub use locks::{LockMode, LockTarget, LockWaitHooks, Locked};
pub use mvcc::{Interrupt, Isolation};
pub use options::{
    BulkLogging, Doublewrite, Durability, FlushMethod, IoBackend, LogWrite, MemoryBound,
    OptionDescription, OptionKind, Options, PageCompression, PagePlacement, Shutdown, TableOptions,
};
pub use recovery::{Phase, Progress, RedoStat};
pub use rows::{
    Cursor, InsertedRows, LockingCursor, LockingScan, Outline, OutsidePart, Rows, RowsIter, Table,
    TableTree, TreeRef, Wait,
};
pub use sort::{Entry, Repeated, Sorted, Sorter};
pub use txn::{Mark, PendingCommit, Prepared, Transaction};

/// What the tools and tests of this repository see of the engine. It is no part of the library's
/// face: nothing here is promised to stay as it is.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals {
    pub mod btree {
        pub use crate::btree::*;
    }
    pub mod buffer {
        pub use crate::buffer::*;
    }
    pub mod catalog {
        pub use crate::catalog::*;
    }
    pub mod control {
        pub use crate::control::*;
    }
    pub mod counters {
        pub use crate::counters::*;
    }
    pub mod database {
        pub use crate::database::*;
    }
    pub mod error {
        pub use crate::error::*;
    }
    pub mod locks {
        pub use crate::locks::*;
    }
    pub mod log {
        pub use crate::log::*;
    }
    pub mod mtr {
        pub use crate::mtr::*;
    }
    pub mod mutants {
        pub use crate::mutants::*;
    }
    pub mod mvcc {
        pub use crate::mvcc::*;
    }
    pub mod options {
        pub use crate::options::*;
    }
    pub mod poison {
        pub use crate::poison::*;
    }
    pub mod recovery {
        pub use crate::recovery::*;
    }
    pub mod rows {
        pub use crate::rows::*;
    }
    pub mod salvage {
        pub use crate::salvage::*;
    }
    pub mod space {
        pub use crate::space::*;
    }
    pub mod storage {
        pub use crate::storage::*;
    }
    pub mod store {
        pub use crate::store::*;
    }
    pub mod txn {
        pub use crate::txn::*;
    }
    pub mod sync {
        pub use inkstone_sync::*;
    }
}
