//! Redo: brings the pages to where the log ends, and finds which transactions are to be rolled
//! back.
//!
//! # Promises
//!
//! 1. When [`Gathered::redo`] returns, every page has, in the buffer pool or on disk, every change
//!    that the log has for it, and no page holds a change that the log does not have. Tested by
//!    `redo_gives_the_model`. Tested by the simulator (`page-lsn-unchecked`).
//! 2. Nothing but redo is written: pages get changes that are in the log, with the page LSNs that
//!    they had before the crash. So it may be interrupted anywhere and begun again. Tested by
//!    `redo_may_be_interrupted_anywhere`.
//! 3. The pool's `oldest_lsn` of a page is the start of the first change that its copy on disk may
//!    lack, so checkpoints are right once redo is done. Tested by
//!    `changes_that_a_page_has_are_not_applied_again`,
//!    `an_initialised_page_is_dirty_since_the_first_change_that_was_dropped`.
//! 4. Whatever does not fit together is an error that names file and place: a page LSN beyond the
//!    proven end of the log, a change that does not fit its page, a missing file, a page that
//!    cannot be read, an open transaction whose beginning is not in the log. What the log itself
//!    makes up for later (it initialises the page, or deletes its file) is no error, whatever
//!    the size of the batches. Tested by `a_page_from_the_future_is_corrupt`,
//!    `changes_that_do_not_fit_leave_the_page_and_name_it`,
//!    `changes_of_a_missing_file_need_its_deletion`,
//!    `a_page_that_cannot_be_read_is_an_error_unless_it_is_initialised_later`,
//!    `an_open_transaction_of_unknown_beginning_is_an_error`.
//!
//! # Words
//!
//! *Scan start*: where the log is read from. *Tail*: the log from the checkpoint on, whose changes
//! are applied; before it only transactions and files matter. *Batch*: the changes that are
//! gathered, in memory and in a file, until memory is used up (`index_bytes_max`), applied
//! together. *Loser*: a transaction
//! without an end in the log; *prepared*: one that waits for its coordinator's decision.
//!
//! # How the log is scanned
//!
//! Frames go through three steps (`pipeline.rs`): one thread at a time reads and verifies them,
//! several take them apart, a batch of at most about a megabyte each, the calling one notes
//! in order what they say. A record is not made a value there but for the table of transactions,
//! and only if its transaction does not end in the batch; the index keeps its bytes. Batches take
//! an eighth of `index_bytes_max`, about.
//!
//! # What it relies on
//!
//! 1. The scan starts at or before the `first_lsn` (see [`OpenTransaction`]) of every transaction
//!    that is open at the end of the log, and at or before what any insert of the tail, of whatever
//!    transaction, is coded against. Otherwise redo fails. (What an insert is coded against must
//!    not stand in one frame behind an insert that needs an older context: a frame is decoded
//!    whole.)
//! 2. The log is durable up to the end that is read before the pool writes a page: the
//!    `RedoLog` that the pool has must see to it.
//! 3. Torn pages were repaired from the doublewrite file before.
//! 4. A frame has the row changes of one transaction only; another one is refused. One with an
//!    insert that is coded against another has no record that names another transaction. A
//!    transaction's undo is copied with its insert context cleared, and nothing of it stands
//!    between the parts.
//!
//! # What it leaves to the caller
//!
//! Rolling losers back (under their slots), removing the files in `files_deleted` (with their pages
//! in the pool), and writing a checkpoint.
//!
//! Latches: that of one page at a time, never while waiting for I/O or a frame.

mod apply;
mod index;
mod late;
mod log_source;
mod losers;
mod moved;
mod pipeline;
mod progress;
mod scan;
mod spaces;
mod spill;
#[cfg(test)]
mod tests;
pub(crate) mod undo;

pub use apply::{Applied, apply_changes};
pub use index::Change;
pub use late::{RedoLeft, RedoStat};
pub use log_source::LogSource;
pub use losers::{MovedUndo, OpenTransaction};
pub use progress::{Phase, Progress, RecoveryReport};
pub use spaces::TablespaceFiles;
pub(crate) use spill::remove_spill;

use crate::Result;
use crate::buffer::BufferPool;
use inkstone_format::{Lsn, SpaceId, TrxId};
use inkstone_io::Directory;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// A mini-transaction as it stands in the log.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    /// Where it starts.
    pub start: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// The opening of the database that wrote it.
    pub epoch: u64,
    /// Its records.
    pub payload: &'a [u8],
}

/// Where redo reads the log from: verified frames in order, without gaps, up to the proven end.
pub trait FrameSource: Send {
    /// The next frame; `None` at the end of the log.
    fn next(&mut self) -> Result<Option<FrameView<'_>>>;
    /// End of the last frame; before the first one, where reading begins.
    fn position(&self) -> Lsn;
    /// Epoch of the last frame; before the first one, as the control file says.
    fn epoch(&self) -> u64;
    /// File and byte offset of a place in the log, for messages.
    fn locate(&self, lsn: Lsn) -> (PathBuf, u64);
    /// Bytes from where reading begins to where the log ends at the latest, if that is known.
    fn bytes_total(&self) -> Option<u64>;
}

/// The options of redo.
#[derive(Clone, Copy, Debug)]
pub struct RedoOptions {
    /// Threads that take the log apart and apply changes, with the calling one.
    pub threads: usize,
    /// Bytes of changes that are gathered before they are applied, with those on their way.
    pub index_bytes_max: usize,
}

/// What redo works on.
#[derive(Clone)]
pub struct RedoInputs<'a> {
    /// The pages.
    pub pool: Arc<BufferPool>,
    /// The tablespace files.
    pub files: Arc<dyn TablespaceFiles>,
    /// Pages on disk have every change below this.
    pub checkpoint: Lsn,
    /// How much it may use.
    pub options: RedoOptions,
    /// Where a temporary file may be made for what memory has no room for; `None`: nowhere.
    pub spill: Option<Arc<dyn Directory>>,
    /// Told from time to time (at most about ten times a second) how far redo is.
    pub progress: &'a dyn Fn(Progress),
}

/// What redo found.
#[derive(Clone, Debug)]
pub struct RedoOutcome {
    /// End of the log: the next mini-transaction starts here.
    pub end: Lsn,
    /// Epoch of the last frame.
    pub epoch: u64,
    /// Transactions to be rolled back, by id.
    pub losers: Vec<OpenTransaction>,
    /// Prepared transactions, by id.
    pub prepared: Vec<OpenTransaction>,
    /// The largest transaction id that was read (0: none).
    pub trx_id_max: TrxId,
    /// The largest tablespace id that was read.
    pub space_id_max: Option<SpaceId>,
    /// Tablespaces whose file creation was read.
    pub files_created: BTreeSet<SpaceId>,
    /// Tablespaces whose file is no longer needed: to be removed, if it is there.
    pub files_deleted: BTreeSet<SpaceId>,
    /// What is left of redo, where pages are redone when they are read.
    pub left: Option<Arc<RedoLeft>>,
    /// Numbers for people.
    pub report: RecoveryReport,
}

/// When pages are redone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All of them at once.
    Now,
    /// When they are read. The changes stay in memory until then, or in a file; where that would
    /// not do, only those of the last batch. Nothing but redo has read pages so far.
    Read,
}

/// What the log says, read without changing anything: to its end if that fits `index_bytes_max`,
/// else as far as it fits. A log that is damaged, or that does not fit the files, is refused by
/// then if it was read to its end.
pub struct Gathered<'a> {
    scan: scan::Scan<'a>,
    log_end: Option<Lsn>,
}

/// Reads `log` until its end, or until memory is used up. See the [module](self).
pub fn gather<'a>(log: &mut dyn FrameSource, inputs: RedoInputs<'a>) -> Result<Gathered<'a>> {
    let mut scan = scan::Scan::new(inputs, log);
    let log_end = scan.read(log)?;
    Ok(Gathered { scan, log_end })
}

impl Gathered<'_> {
    /// Where the log was proven to end, if it was read so far.
    pub fn log_end(&self) -> Option<Lsn> {
        self.log_end
    }

    /// Applies what was read, and the rest of `log`, which is the one that was read so far.
    pub fn redo(mut self, log: &mut dyn FrameSource, when: When) -> Result<RedoOutcome> {
        let (end, left) = loop {
            match self.log_end {
                Some(end) if when == When::Read && !self.scan.needs_all() => {
                    break (end, Some(self.scan.leave_gathered(end)?));
                }
                None if when == When::Read && !self.scan.needs_all() && self.scan.spill() => {}
                _ => self.scan.apply_gathered()?,
            }
            if let Some(end) = self.log_end {
                break (end, None);
            }
            self.scan.report_progress();
            self.log_end = self.scan.read(log)?;
        };
        self.scan.finish(log, end, left)
    }
}

/// Reads `log` to its end and applies it.
#[cfg(test)]
fn redo(log: &mut dyn FrameSource, inputs: RedoInputs<'_>) -> Result<RedoOutcome> {
    gather(log, inputs)?.redo(log, When::Now)
}
