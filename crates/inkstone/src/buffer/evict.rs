//! Which page leaves: a clock that a scan does not sweep empty.
//!
//! One hand goes round all frames. A page has a `referenced` bit, which users set, and a `heat`
//! from 0 to 3, which only the hand changes:
//!
//! | the hand finds       | what happens                                  |
//! |----------------------|-----------------------------------------------|
//! | referenced           | the bit is cleared, `heat` rises by one       |
//! | not, `heat` 2 or 3   | `heat` falls by one                           |
//! | not, `heat` 0 or 1   | *cold*: evicted if clean, reported if dirty   |
//!
//! A loaded page starts at 0 without the bit: a page that a scan touches once leaves at the first
//! visit, about one revolution after it came. A page that is used in a burst and then no more (a
//! scan that reads it row by row) leaves at the second. Only use in two different revolutions makes
//! it warm (2), and then it takes two idle revolutions to leave. A revolution takes as long as it
//! takes to replace the cold pages, so during a scan the warm ones stay.

use super::frame::Frame;
use super::pool::Inner;
use crate::counters::Counter;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use inkstone_format::PageId;

const HEAT_MAX: u8 = 3;
const HEAT_WARM: u8 = 2;

/// What the hand found in a frame.
pub(crate) enum Visit {
    /// Nothing to take: empty, warm, latched, in flight or refused.
    Nothing,
    /// A cold page that must be written first.
    ColdDirty(u32, PageId),
    /// The page was evicted, the caller owns the frame.
    Evicted(u32),
}

impl Inner {
    /// Moves the hand by one frame.
    pub(crate) fn visit_next(&self) -> Visit {
        let ticket = self.hand.fetch_add(1, Ordering::Relaxed);
        let index = (ticket % self.arena.len()) as u32;
        let frame = self.arena.frame(index);
        let Some(id) = frame.page_id() else {
            return Visit::Nothing;
        };
        if !is_cold(frame) || frame.flushing.load(Ordering::Relaxed) {
            return Visit::Nothing;
        }
        if frame.is_dirty() {
            // A refused one is the cleaner's.
            return if frame.refused.load(Ordering::Relaxed) {
                Visit::Nothing
            } else {
                Visit::ColdDirty(index, id)
            };
        }
        if self.try_evict(index, id) {
            Visit::Evicted(index)
        } else {
            Visit::Nothing
        }
    }

    /// Evicts a clean page that was not used since the hand came by; the caller then owns the
    /// frame. Never waits for the latch.
    pub(crate) fn try_evict(&self, index: u32, id: PageId) -> bool {
        let frame = self.arena.frame(index);
        let pinned = || frame.pins.load(Ordering::Acquire) > 0;
        // To latch a pinned page would change its version, and send its optimistic readers back.
        if pinned() || !frame.latch.try_lock_exclusive() {
            return false;
        }
        // `flushing` before `oldest`: see `DirtySets::note_change`.
        let evictable = frame.holds(id)
            && !frame.referenced.load(Ordering::Relaxed)
            && !pinned()
            && !frame.flushing.load(Ordering::Acquire)
            && (!frame.is_dirty() || mutants::on(Mutant::DirtyPageEvicted));
        if evictable {
            self.unlink(index, id);
            self.counters.add(Counter::BufferEvictions, 1);
            frame.latch.unlock_exclusive_gone();
        } else {
            frame.latch.unlock_exclusive();
        }
        evictable
    }

    /// Takes a clean or forgotten page out of the table. The caller holds the latch exclusively.
    pub(crate) fn unlink(&self, index: u32, id: PageId) {
        let frame = self.arena.frame(index);
        self.table.shard(&self.arena, id).remove(id, index);
        frame.referenced.store(false, Ordering::Relaxed);
        frame.heat.store(0, Ordering::Relaxed);
        frame.fresh.store(false, Ordering::Relaxed);
    }

    /// Moves the hand over at most `visits_max` frames until it evicts a page.
    pub(crate) fn sweep_clean(&self, visits_max: usize) -> Option<u32> {
        (0..visits_max).find_map(|_| match self.visit_next() {
            Visit::Evicted(index) => Some(index),
            _ => None,
        })
    }
}

/// Applies the table in the module's comment.
fn is_cold(frame: &Frame) -> bool {
    let heat = frame.heat.load(Ordering::Relaxed);
    paranoid!(heat <= HEAT_MAX, "a page has heat {heat}");
    if frame.referenced.load(Ordering::Relaxed) {
        frame.referenced.store(false, Ordering::Relaxed);
        frame
            .heat
            .store((heat + 1).min(HEAT_MAX), Ordering::Relaxed);
        return false;
    }
    if heat >= HEAT_WARM {
        frame.heat.store(heat - 1, Ordering::Relaxed);
        return false;
    }
    true
}
