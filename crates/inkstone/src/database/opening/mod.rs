//! Opening a database, or creating it: a chain of types, each made from the one before, which it
//! consumes. A step that is left out, or taken in the wrong order, does not compile.
//!
//! ```text
//! lock_directory -> Locked  --settle-> Settled --scan-> Scanned --repair-> Repaired
//!        |                                                                    | redo
//!        v                                                                    v
//!      Vacant --create-> Complete <-tidy-- Undone <-------undo------------ Redone
//!                            | run
//!                            v
//!                         Database
//! ```
//!
//! | file | what holds at that stage |
//! |---|---|
//! | `locked` | the database is ours; the control file is read |
//! | `settled` | files are what the disk has, and were checked; no byte was changed |
//! | `scanned` | the log is read; no page, log or control file was changed |
//! | `repaired` | the new epoch is durable, torn pages are mended |
//! | `redone` | pages have every change of the log, whose end is proven |
//! | `undone` | the log goes on; transactions are finished, or prepared |
//! | `complete` | files that no table has are gone (`unknown`) |
//! | `vacant` | there is no database: creating one |
//!
//! `foundation` is what lies below the engine: files, buffer pool, log. `parts` are the options,
//! split into what each part needs. `preflight` is what is checked before anything is changed. Each
//! step can be interrupted and done again. A stage that is dropped releases what it holds, the
//! locks last. See docs/decisions/0030.

mod complete;
mod foundation;
mod locked;
mod parts;
mod preflight;
mod redone;
mod repaired;
mod report;
mod scanned;
mod settled;
mod undone;
mod unknown;
mod vacant;

pub(super) use locked::Locks;
pub(super) use preflight::check_lsn;
pub use report::{OpenReport, Recovered};

use super::Database;
use crate::Result;
use crate::options::Options;
use crate::recovery::Progress;
use crate::sync::Instant;
use inkstone_io::Vfs;
use locked::{Found, lock_directory};
use std::path::Path;
use std::sync::Arc;

/// See [`Database::open_on`].
pub(super) fn open(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    options: Options,
    progress: &dyn Fn(Progress),
) -> Result<Database> {
    let begin = Instant::now();
    let complete = match lock_directory(vfs, path, options)? {
        Found::Nothing(vacant) => vacant.create()?,
        Found::Database(locked) => {
            let scanned = locked.settle()?.scan(progress)?;
            scanned.repair()?.redo()?.undo()?.tidy()?
        }
    };
    complete.run(begin)
}
