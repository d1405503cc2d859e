//! Guards: how a caller sees a page.
//!
//! They form a small state machine: [`Optimistic`] (nothing held, must be validated) becomes
//! [`Shared`] or [`Exclusive`], or the caller starts over.

use super::frame::Frame;
use super::latch::Version;
use super::pool::Inner;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use inkstone_format::{Lsn, PageId, header};
use std::ops::{Deref, DerefMut};

/// A page that may change under the reader. What was read counts only if
/// [`validate`](Optimistic::validate) says so afterwards.
#[derive(Clone, Copy)]
pub struct Optimistic<'a> {
    pub(super) pool: &'a Inner,
    pub(super) index: u32,
    pub(super) version: Version,
    pub(super) id: PageId,
}

impl<'a> Optimistic<'a> {
    fn frame(&self) -> &'a Frame {
        self.pool.arena.frame(self.index)
    }

    /// The first byte of the page (`page_size` bytes, 4096-aligned). Others may write at the same
    /// time: read with volatile reads, check every length and offset before use, believe
    /// nothing before validating.
    #[inline]
    pub fn page_ptr(&self) -> *const u8 {
        self.pool.arena.page_ptr(self.index)
    }

    /// The frame, as a hint for [`BufferPool::optimistic_at`](super::BufferPool::optimistic_at).
    #[inline]
    pub fn frame_index(&self) -> u32 {
        self.index
    }

    /// The page that was asked for.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The page's id, if the frame still holds the page unchanged.
    #[inline]
    pub fn try_page_id(&self) -> Option<PageId> {
        self.validate().then_some(self.id)
    }

    /// Whether the frame still holds the page, and the page was not changed, and is not being
    /// changed, since this guard was made: everything read so far is consistent.
    #[inline]
    #[must_use]
    pub fn validate(&self) -> bool {
        self.frame().latch.validate(self.version)
    }

    /// Latches exclusively, if the page is unchanged and its latch is free. Never waits.
    #[inline]
    pub fn try_upgrade(self) -> Option<Exclusive<'a>> {
        let taken = self.frame().latch.try_upgrade(self.version);
        taken.then(|| Exclusive {
            pool: self.pool,
            index: self.index,
        })
    }

    /// Latches shared, if the page is unchanged, not held exclusively, and no thread queues for it.
    /// Never waits; on `None` fall back to a call that does, rather than trying again.
    #[inline]
    pub fn try_shared(self) -> Option<Shared<'a>> {
        let taken = self.frame().latch.try_shared_at(self.version);
        taken.then(|| Shared {
            pool: self.pool,
            index: self.index,
        })
    }

    /// Latches shared; waits for exclusive holders, never for I/O. `None` if the page has changed.
    pub fn into_shared(self) -> Option<Shared<'a>> {
        let frame = self.frame();
        if !frame.latch.lock_shared(|| frame.holds(self.id)) {
            return None;
        }
        let guard = Shared {
            pool: self.pool,
            index: self.index,
        };
        self.validate().then_some(guard)
    }
}

/// A page that does not change while this lives.
pub struct Shared<'a> {
    pub(super) pool: &'a Inner,
    pub(super) index: u32,
}

impl Shared<'_> {
    /// The page.
    pub fn id(&self) -> PageId {
        held_id(self.pool, self.index)
    }

    /// The frame, as a hint for [`BufferPool::optimistic_at`](super::BufferPool::optimistic_at).
    pub fn frame_index(&self) -> u32 {
        self.index
    }
}

impl Deref for Shared<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the guard holds the latch in shared mode.
        unsafe { self.pool.arena.bytes(self.index) }
    }
}

impl Drop for Shared<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.arena.frame(self.index).latch.unlock_shared();
    }
}

/// A page that no other thread sees while this lives. The page's version changes when this is
/// dropped.
pub struct Exclusive<'a> {
    pub(super) pool: &'a Inner,
    pub(super) index: u32,
}

impl Exclusive<'_> {
    fn frame(&self) -> &Frame {
        self.pool.arena.frame(self.index)
    }

    /// The page.
    pub fn id(&self) -> PageId {
        held_id(self.pool, self.index)
    }

    /// The frame, as a hint for [`BufferPool::optimistic_at`](super::BufferPool::optimistic_at).
    pub fn frame_index(&self) -> u32 {
        self.index
    }

    /// Notes that the mini-transaction from `start` to `end` changed the page: stamps the page LSN
    /// and links the page to its dirty set. To be called before the mini-transaction is published
    /// to the log's readers, while the latch is held, in LSN order for one page.
    pub fn mark_dirty(&mut self, start: Lsn, end: Lsn) {
        if mutants::on(Mutant::LatchReleasedEarly) {
            self.frame().latch.unlock_exclusive();
            for _ in 0..8 {
                crate::sync::thread::yield_now();
            }
            self.frame().latch.lock_exclusive(|| true);
        }
        paranoid!(start < end, "a mini-transaction from LSN {start} to {end}");
        paranoid!(
            header::page_lsn(self) < end || mutants::on(Mutant::PageLsnUnchecked),
            "a page of LSN {} is changed at LSN {start}",
            header::page_lsn(self)
        );
        header::set_page_lsn(self, end);
        let frame = self.pool.arena.frame(self.index);
        self.pool.dirty.note_change(frame, self.index, start);
    }

    /// Notes that a logged PAGE_INIT of the mini-transaction that will call
    /// [`mark_dirty`](Exclusive::mark_dirty) under this latch set the whole page. The next copy
    /// that goes to disk says so, later ones do not.
    pub fn mark_fresh(&mut self) {
        self.frame().fresh.store(true, Ordering::Relaxed);
    }

    /// Notes a change that is not logged and need not survive (version addresses, compaction). A
    /// clean page stays clean and may be evicted without it; readers see the change, because the
    /// version changes with every exclusive release; the next copy to disk has it, whole.
    pub fn mark_changed_unlogged(&mut self) {}

    /// Whether the disk lacks logged changes of this page.
    pub fn is_dirty(&self) -> bool {
        self.frame().is_dirty()
    }
}

impl Deref for Exclusive<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the guard holds the latch in exclusive mode.
        unsafe { self.pool.arena.bytes(self.index) }
    }
}

impl DerefMut for Exclusive<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the guard holds the latch in exclusive mode, and is borrowed exclusively.
        unsafe { self.pool.arena.bytes_mut(self.index) }
    }
}

impl Drop for Exclusive<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frame().latch.unlock_exclusive();
    }
}

/// The page in a frame whose latch the caller holds.
fn held_id(pool: &Inner, index: u32) -> PageId {
    PageId::from_u64(pool.arena.frame(index).id.load(Ordering::Relaxed))
}

/// Free frames set aside for one caller, so that [`BufferPool::create`](super::BufferPool::create)
/// needs to wait for nothing. Unused ones go back when it is dropped.
pub struct Reservation<'a> {
    pub(super) pool: &'a Inner,
    pub(super) frames: Vec<u32>,
    pub(super) budget: usize,
}

impl Reservation<'_> {
    /// Number of frames left.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether no frame is left.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        paranoid!(
            self.frames.len() <= self.budget,
            "{} frames left of a reservation of {}",
            self.frames.len(),
            self.budget
        );
        for index in self.frames.drain(..) {
            self.pool.free.push(index, self.pool.arena.frame(index));
        }
        if self.budget > 0 {
            self.pool.budget.give_back(self.budget);
        }
    }
}
