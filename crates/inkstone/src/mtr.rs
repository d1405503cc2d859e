//! Mini-transactions: the atomic unit of change and of replay.
//!
//! A mini-transaction latches pages exclusively, changes them through operations that change the
//! page and note the redo record at once, and commits: the records become one frame of the log, the
//! pages are stamped with its end LSN and linked into the dirty sets, and only then is the frame
//! published and are the latches released.
//!
//! # Promises
//!
//! 1. No page is changed without a record. Checked by `Mtr::change_unlogged`.
//! 2. A mini-transaction that is dropped after a change and before its commit poisons the engine,
//!    as memory and log would differ. Tested by
//!    `a_mini_transaction_that_is_dropped_after_a_change_poisons`.
//!
//! # What its users must do
//!
//! Whatever can fail (room, reads, reservations) is done before the first change. Pages are made
//! resident before the first latch, so that no latch is held while waiting for I/O. Latches are
//! taken in the order: space map page, then tree pages from the top down.

use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::log::Claim;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::storage::Storage;
use crate::unlogged::put_whole;
use crate::{Result, invariant};
use inkstone_format::header::page_lsn;
use inkstone_format::record::Record;
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Lsn, PageId, apply};
use smallvec::SmallVec;
use std::cell::Cell;

thread_local! {
    /// A payload buffer kept for the thread's next mini-transaction.
    static SPARE_PAYLOAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

struct Latched<'p> {
    guard: Exclusive<'p>,
    changed: bool,
    /// The records so far set the whole page.
    whole: bool,
}

/// A mini-transaction. See the module.
pub struct Mtr<'p> {
    storage: &'p Storage,
    /// A row's change has one, a structure change a few.
    pages: SmallVec<[Latched<'p>; 2]>,
    payload: Vec<u8>,
    committed: bool,
}

impl<'p> Mtr<'p> {
    /// Begins.
    pub fn new(storage: &'p Storage) -> Self {
        let mut payload = SPARE_PAYLOAD.take();
        payload.clear();
        Self {
            storage,
            pages: SmallVec::new(),
            payload,
            committed: false,
        }
    }

    /// Takes over a latched page, and tells by which number it is known here.
    pub fn push(&mut self, guard: Exclusive<'p>) -> usize {
        let mut others = self.pages.iter().map(|page| page.guard.frame_index());
        paranoid!(
            others.all(|frame| frame != guard.frame_index()),
            "frame {} is latched twice",
            guard.frame_index()
        );
        self.pages.push(Latched {
            guard,
            changed: false,
            whole: false,
        });
        self.pages.len() - 1
    }

    /// The bytes of a latched page.
    pub fn page(&self, index: usize) -> &[u8] {
        &self.pages[index].guard
    }

    /// The id of a latched page.
    pub fn id(&self, index: usize) -> PageId {
        self.pages[index].guard.id()
    }

    /// Changes a page by a closure that also appends the redo record of the change.
    pub fn change<T>(&mut self, index: usize, f: impl FnOnce(&mut [u8], &mut Vec<u8>) -> T) -> T {
        self.log_whole(index);
        self.change_unlogged(index, f)
    }

    /// Before a page is changed of which the log may lack rows: all of it is logged. Where the disk
    /// has them, below the checkpoint, the log need not.
    fn log_whole(&mut self, index: usize) {
        let (storage, page) = (self.storage, &mut self.pages[index]);
        let is_due = !page.whole
            && storage.unlogged.has_page(&page.guard)
            && page_lsn(&page.guard) > storage.log.checkpoint_lsn()
            && !mutants::on(Mutant::PageNotLoggedWhole);
        if !is_due {
            return;
        }
        paranoid!(
            !page.changed,
            "page {} is changed, and only then logged whole",
            page.guard.id()
        );
        put_whole(&mut self.payload, page.guard.id(), TreePage(&page.guard));
        page.guard.mark_fresh();
        page.whole = true;
        storage.counters.add(Counter::PagesLoggedWhole, 1);
    }

    /// As `change`, of a leaf that an unlogged bulk insert has to itself: the record is true
    /// whichever of the rows the page has when it is replayed.
    pub fn change_unlogged<T>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut [u8], &mut Vec<u8>) -> T,
    ) -> T {
        let page = &mut self.pages[index];
        page.changed = true;
        let before = self.payload.len();
        let done = f(&mut page.guard, &mut self.payload);
        paranoid!(
            self.payload.len() > before,
            "a page was changed in frame {}, and nothing noted",
            page.guard.frame_index()
        );
        done
    }

    /// Changes a page by replaying `record` on it, and notes the record.
    pub fn replay(&mut self, index: usize, record: &Record) {
        if record.initialises_page() {
            self.pages[index].whole = true;
        } else {
            self.log_whole(index);
        }
        let page = &mut self.pages[index];
        let id = page.guard.id();
        page.changed = true;
        let applied = apply::replay(&mut page.guard, id, record);
        invariant!(
            applied.is_ok(),
            "{} on page {id}: {:?}",
            record.name(),
            applied
        );
        if record.initialises_page() {
            page.guard.mark_fresh();
        }
        record.put(&mut self.payload);
    }

    /// Notes a record that changes no page.
    pub fn note(&mut self, record: &Record) {
        record.put(&mut self.payload);
    }

    /// Writes the log frame, stamps and links the pages, and releases the latches. Returns start
    /// and end LSN.
    pub fn commit(self) -> Result<(Lsn, Lsn)> {
        self.commit_with(Claim::WhenDue, |_, _| {})
    }

    /// As `commit`; `before_publish` runs when the LSNs are known and before any other thread can
    /// see that the frame exists.
    pub fn commit_with(
        mut self,
        claim: Claim,
        before_publish: impl FnOnce(Lsn, Lsn),
    ) -> Result<(Lsn, Lsn)> {
        if self.payload.is_empty() {
            self.committed = true;
            return Ok((Lsn(0), Lsn(0)));
        }
        let pages = &mut self.pages;
        let lsns = self
            .storage
            .log
            .append(&self.payload, claim, |start, end| {
                for page in pages.iter_mut().filter(|page| page.changed) {
                    page.guard.mark_dirty(start, end);
                }
                before_publish(start, end);
            })?;
        self.committed = true;
        Ok(lsns)
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        if !self.committed && self.pages.iter().any(|page| page.changed) {
            let _ = self
                .storage
                .poison
                .set("a page was changed in memory but not in the log");
        }
        SPARE_PAYLOAD.set(std::mem::take(&mut self.payload));
    }
}
