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

pub(super) use foundation::LOG_DIRECTORY;
pub(super) use locked::{Locks, lock_error};
pub(super) use preflight::check_lsn;
pub use report::{LeftOut, OpenReport, Recovered};

use super::Database;
use crate::options::Options;
use crate::recovery::Progress;
use crate::sync::Instant;
use crate::trace;
use crate::{Error, Result};
use inkstone_io::Vfs;
use inkstone_io::process::{self, Threaded};
use locked::{Found, lock_directory};
use std::path::Path;
use std::sync::Arc;

/// Brings the pages of a database that was not closed in order to where the log ends, on disk, and
/// opens it no further: what is unfinished is still to be undone. For `salvage`.
pub(super) fn redo_only(vfs: Arc<dyn Vfs>, path: &Path, options: Options) -> Result<()> {
    match lock_directory(vfs, path, options)? {
        Found::Nothing(_) => Ok(()),
        Found::Database(mut locked) => {
            locked.site.options.all.redo_before_open = true;
            let redone = locked.settle()?.scan(&|_| {})?.repair()?.redo()?;
            redone.foundation.pool.flush_all()?;
            // Salvage reads the files itself.
            redone.foundation.files.settle_places(0)
        }
    }
}

/// See [`Database::open_on`]; `salvaged`: [`Database::open_salvaged`].
pub(super) fn open(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    options: Options,
    salvaged: Option<Vec<LeftOut>>,
    progress: &dyn Fn(Progress),
) -> Result<Database> {
    trace::opening(path, || open_untold(vfs, path, options, salvaged, progress))
}

fn open_untold(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    options: Options,
    salvaged: Option<Vec<LeftOut>>,
    progress: &dyn Fn(Progress),
) -> Result<Database> {
    let begin = Instant::now();
    if process::lacks_threads() {
        return Err(Error::Forked);
    }
    let threaded = Threaded::enter();
    let complete = match lock_directory(vfs, path, options)? {
        Found::Nothing(vacant) => vacant.create()?,
        Found::Database(mut locked) => {
            locked.site.options.transactions.rows_may_be_lost = salvaged.is_some();
            locked.report.left_out = salvaged.unwrap_or_default();
            let settled = trace::stage("settle", || locked.settle())?;
            let scanned = trace::stage("scan", || settled.scan(progress))?;
            let repaired = trace::stage("repair", || scanned.repair())?;
            let redone = trace::stage("redo", || repaired.redo())?;
            let undone = trace::stage("undo", || redone.undo())?;
            trace::stage("tidy", || undone.tidy())?
        }
    };
    let db = complete.run(threaded, begin)?;
    let report = db.open_report();
    let losers = report.recovered.as_ref().map_or(0, |done| done.losers);
    trace::opened(report.created, report.clean, losers, report.milliseconds);
    Ok(db)
}
