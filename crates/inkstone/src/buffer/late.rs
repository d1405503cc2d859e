//! Redo that comes late: changes of pages that the log has, and that a page gets when it is first
//! read.
//!
//! # Promises
//!
//! 1. A page of which something is left is in no frame that others see: its reader makes the
//!    changes in a frame of its own, which is published with them. Tested by the simulator
//!    (`late-redo-passed-over`).
//! 2. What is left of a page counts as a change that the disk lacks, from its first LSN on, until
//!    the frame with the changes is in a dirty set. So the smaller of [`LateRedo::oldest_lsn`],
//!    read first, and the oldest of the dirty sets never jumps over it. Tested by the simulator
//!    (`late-redo-left-clean`, `checkpoint-before-late-redo`).
//! 3. A page that is created anew takes that LSN over: until the disk has the new page, a crash
//!    finds the old changes whole in the log. Tested by
//!    `a_page_that_is_created_keeps_the_log_of_its_past`.
//!
//! Why a page is redone once: a page is read by one thread at a time (`load.rs`), and what is left
//! of it is removed while that thread holds the new frame's latch exclusively. A later one finds
//! the frame, or a page on disk that has the changes.

use super::frame::Frame;
use super::guard::Exclusive;
use super::load::Want;
use super::pool::Inner;
use crate::Result;
use crate::counters::Counter;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use inkstone_format::header::{self, PAGE_HEADER_LEN};
use inkstone_format::{Lsn, PageId, SpaceId};
use std::ops::Range;

/// What is left of redo.
pub trait LateRedo: Send + Sync {
    /// START of the oldest change that is left.
    fn oldest_lsn(&self) -> Option<Lsn>;
    /// What is left of a page.
    fn of(&self, id: PageId) -> Option<Late>;
    /// Makes the changes that are left of a page and that it does not have. `page` is as the disk
    /// has it, or empty if they initialise it. After an error everything is left as it was.
    fn redo(&self, id: PageId, page: &mut [u8]) -> Result<Option<Redone>>;
    /// Nothing is left of the page.
    fn done(&self, id: PageId);
    /// Nothing is left of these pages, which are gone.
    fn forget(&self, space: SpaceId, pages: &Range<u32>);
    /// Whether something is left of one of these pages.
    fn has_any(&self, space: SpaceId, pages: &Range<u32>) -> bool;
    /// Why some of it cannot be made, if that is all that is left.
    fn stuck(&self) -> Option<crate::Error>;
}

/// What is left of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// START of the first change.
    pub start: Lsn,
    /// End of the last one.
    pub end: Lsn,
    /// They need nothing of what the disk has.
    pub initialises: bool,
}

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redone {
    /// START of the first change.
    pub start: Lsn,
    /// End of the last one: the page LSN.
    pub end: Lsn,
    /// Nothing is left of what was there before.
    pub initialised: bool,
}

/// How a page came into a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Come {
    /// As the disk has it.
    Whole,
    /// Changes were left, and were made, as far as it did not have them.
    Late(Option<Redone>),
}

impl Inner {
    /// What is left of redo, if some is left of the page.
    pub(super) fn late_of(&self, id: PageId) -> Option<(&dyn LateRedo, Late)> {
        let late = self.late.get()?;
        let left = late.of(id)?;
        paranoid!(
            left.start < left.end,
            "changes from LSN {} to {} are left of page {id}",
            left.start,
            left.end
        );
        Some((&**late, left))
    }

    /// Fills the frame of a page: `read` does it from the disk.
    pub(super) fn fill_frame(
        &self,
        id: PageId,
        page: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Come> {
        let Some((late, left)) = self.late_of(id) else {
            return read(page).map(|()| Come::Whole);
        };
        if left.initialises {
            header::init_page(page, id, header::PageType::Free);
        } else {
            read(page)?;
        }
        if mutants::on(Mutant::LateRedoPassedOver) && !left.initialises {
            return Ok(Come::Late(None));
        }
        let made = late.redo(id, page)?;
        paranoid!(
            made.is_none_or(|made| made.end == left.end && made.start >= left.start),
            "{left:?} is left of page {id}, and {made:?} was made"
        );
        Ok(Come::Late(made))
    }

    /// The page with late changes was published in this frame, whose latch the caller holds
    /// exclusively: nothing is left of it. Has the latch as it is wanted; false if it is given up.
    pub(super) fn arrive(&self, id: PageId, index: u32, made: Option<Redone>, want: Want) -> bool {
        let mut page = Exclusive { pool: self, index };
        paranoid!(
            page.id() == id && !page.is_dirty(),
            "page {id} was dirty before it was published, or is {}",
            page.id()
        );
        if let Some(made) = made {
            if made.initialised {
                page.mark_fresh();
            }
            if mutants::on(Mutant::LateRedoLeftClean) {
                header::set_page_lsn(&mut page, made.end);
            } else {
                page.mark_dirty(made.start, made.end);
            }
        }
        self.end_late(id);
        self.counters.add(Counter::PagesRedoneLate, 1);
        match want {
            Want::Exclusive => {
                std::mem::forget(page);
                true
            }
            Want::Nothing => true,
            // Another thread may latch it first, or evict it.
            Want::Shared => false,
        }
    }

    /// The page is created in this frame, whose latch the caller holds exclusively.
    pub(super) fn supersede_late(&self, id: PageId, index: u32, page: &mut [u8]) {
        let Some((_, left)) = self.late_of(id) else {
            return;
        };
        paranoid!(
            header::page_lsn(page) == Lsn(0),
            "page {id} is created with LSN {}",
            header::page_lsn(page)
        );
        // As if all of it had been made: the page has what the log has, and nothing in it.
        page[PAGE_HEADER_LEN..].fill(0);
        header::set_page_lsn(page, left.end);
        let frame: &Frame = self.arena.frame(index);
        self.dirty.note_change(frame, index, left.start);
        paranoid!(
            frame.oldest_lsn() == Some(left.start),
            "page {id} is dirty from LSN {:?} on, and lacks changes from {}",
            frame.oldest_lsn(),
            left.start
        );
        self.end_late(id);
    }

    /// These pages are gone, or about to go.
    pub(super) fn forget_late(&self, space: SpaceId, pages: &Range<u32>) {
        if let Some(late) = self.late.get() {
            late.forget(space, pages);
            paranoid!(
                !late.has_any(space, pages),
                "pages {pages:?} of tablespace {space} are gone, and are to be redone"
            );
        }
    }

    fn end_late(&self, id: PageId) {
        if let Some(late) = self.late.get() {
            late.done(id);
            paranoid!(
                late.of(id).is_none(),
                "page {id} was redone, and is to be again"
            );
        }
    }

    /// START of the oldest mini-transaction of which the disk lacks a change.
    pub(crate) fn oldest_lsn(&self) -> Option<Lsn> {
        // In this order: what is late goes over into the dirty sets.
        let late = self.late.get().and_then(|late| late.oldest_lsn());
        let late = late.filter(|_| !mutants::on(Mutant::CheckpointBeforeLateRedo));
        let dirty = self.dirty.oldest_lsn();
        late.into_iter().chain(dirty).min()
    }
}
