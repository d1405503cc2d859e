//! The dirty sets: which frames hold changes that the disk lacks, ordered by the oldest of them.
//!
//! # Promises
//!
//! 1. A dirty frame is in its partition's set exactly once, as (`oldest`, frame); a clean one is
//!    not. `oldest` and `next_oldest` change only under the set's mutex. Checked by
//!    `DirtySets::check_invariants`. Tested by `few_threads_small_log`, `one_partition`.
//! 2. `oldest` is the START of the first mini-transaction that changed the page after the copy that
//!    the disk has. While a copy is in flight the disk may or may not get it, so `oldest` stays as
//!    it was when the copy was made, and `next_oldest` notes the first change after the copy. A
//!    finished write turns `next_oldest` into `oldest` in one step: the minimum that others see
//!    never jumps over a change. Tested by `oldest_lsn_is_the_start_of_the_first_change`,
//!    `a_change_during_the_flight_becomes_the_oldest`,
//!    `flights_writers_and_checkpoints_agree_on_what_is_clean`.
//!
//! [`DirtySets::oldest_lsn`] reads one atomic a partition and takes no lock.
//!
//! Why a checkpoint at min(`ready_lsn` read first, `oldest_lsn`) is right: a mini-transaction below
//! `ready_lsn` linked its pages before it was published, so the minimum that is read afterwards
//! counts them, or they are on disk. One at or above `ready_lsn` is not below the checkpoint.
//!
//! Why a change during a flight is seen: copies are begun under a shared latch, changes made under
//! the exclusive one, so a change is before the copy (then it is in it) or after `flushing` was
//! set (then it notes itself).

use super::frame::{Arena, Frame, NO_LSN};
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;
use inkstone_format::Lsn;
use std::collections::BTreeSet;

/// Frames that are listed under one latch of a set.
const LISTED_AT_ONCE: usize = 1024;

struct DirtySet {
    frames: Checked<BTreeSet<(u64, u32)>>,
    /// Copy of the first key's LSN, or [`NO_LSN`].
    oldest: AtomicU64,
    /// Copy of the length.
    count: AtomicUsize,
}

/// Frames of a set that a check looks at.
const CHECKED: usize = 8;

impl Check for BTreeSet<(u64, u32)> {
    /// Promise 1: a frame is listed once.
    fn check(&self) {
        let mut seen = [None; CHECKED];
        for (at, &(lsn, index)) in self.iter().take(CHECKED).enumerate() {
            paranoid!(
                lsn != NO_LSN,
                "frame {index} is clean, and in its dirty set"
            );
            paranoid!(
                !seen.contains(&Some(index)),
                "frame {index} is in its dirty set twice"
            );
            seen[at] = Some(index);
        }
        let last = self.last();
        paranoid!(
            last.is_none_or(|&(lsn, _)| lsn != NO_LSN),
            "a clean frame is in its dirty set: {last:?}"
        );
    }
}

impl DirtySet {
    fn publish(&self, frames: &BTreeSet<(u64, u32)>) {
        let oldest = frames.first().map_or(NO_LSN, |&(lsn, _)| lsn);
        self.oldest.store(oldest, Ordering::Release);
        self.count.store(frames.len(), Ordering::Relaxed);
    }
}

/// One set for each partition; a frame's partition never changes.
pub(crate) struct DirtySets(Box<[CachePadded<DirtySet>]>);

impl DirtySets {
    /// Empty sets.
    pub fn new(partitions: usize) -> Self {
        let set = || DirtySet {
            frames: Checked::default(),
            oldest: AtomicU64::new(NO_LSN),
            count: AtomicUsize::new(0),
        };
        Self((0..partitions).map(|_| CachePadded::new(set())).collect())
    }

    fn of(&self, index: u32) -> &DirtySet {
        &self.0[index as usize % self.0.len()]
    }

    /// Notes a change by the mini-transaction that starts at `start`. The caller holds the frame's
    /// latch exclusively.
    pub fn note_change(&self, frame: &Frame, index: u32, start: Lsn) {
        paranoid!(start.0 != NO_LSN, "frame {index} was changed at no LSN");
        // In this order: with nothing in flight, and none to begin under the exclusive latch,
        // `oldest` stands still.
        let flying = frame.flushing.load(Ordering::Acquire);
        if !flying && frame.is_dirty() {
            return;
        }
        let set = self.of(index);
        let mut frames = set.frames.lock();
        if frame.flushing.load(Ordering::Acquire) {
            if frame.next_oldest.load(Ordering::Relaxed) == NO_LSN {
                frame.next_oldest.store(start.0, Ordering::Relaxed);
            }
        } else if !frame.is_dirty() {
            frame.oldest.store(start.0, Ordering::Release);
            let is_new = frames.insert((start.0, index));
            paranoid!(is_new, "frame {index} was clean, and in its dirty set");
            set.publish(&frames);
        }
    }

    /// Ends a flight: after a successful one the page has only the changes since the copy left.
    pub fn end_flight(&self, frame: &Frame, index: u32, written: bool) {
        let set = self.of(index);
        let mut frames = set.frames.lock();
        let next = frame.next_oldest.swap(NO_LSN, Ordering::Relaxed);
        if written {
            let oldest = frame.oldest.load(Ordering::Relaxed);
            let was_there = frames.remove(&(oldest, index));
            crate::invariant!(
                was_there,
                "frame {index} was in flight and not in its dirty set"
            );
            if next != NO_LSN {
                paranoid!(
                    next > oldest,
                    "frame {index} was changed at LSN {next} after its copy, at {oldest} before"
                );
                let is_new = frames.insert((next, index));
                paranoid!(is_new, "frame {index} is in its dirty set twice");
            }
            frame.oldest.store(next, Ordering::Release);
            set.publish(&frames);
        }
        frame.flushing.store(false, Ordering::Release);
    }

    /// Forgets that the page is dirty. The caller holds the latch exclusively, and nothing is in
    /// flight.
    pub fn forget(&self, frame: &Frame, index: u32) {
        let set = self.of(index);
        let mut frames = set.frames.lock();
        let oldest = frame.oldest.swap(NO_LSN, Ordering::Release);
        frame.refused.store(false, Ordering::Relaxed);
        if oldest != NO_LSN {
            let was_there = frames.remove(&(oldest, index));
            paranoid!(
                was_there,
                "frame {index} was dirty and not in its dirty set"
            );
            set.publish(&frames);
        }
    }

    /// The smallest `oldest` of all dirty frames.
    pub fn oldest_lsn(&self) -> Option<Lsn> {
        let oldest = self.0.iter().map(|set| set.oldest.load(Ordering::Acquire));
        oldest.min().filter(|&lsn| lsn != NO_LSN).map(Lsn)
    }

    /// Number of dirty frames.
    pub fn count(&self) -> usize {
        self.0
            .iter()
            .map(|set| set.count.load(Ordering::Relaxed))
            .sum()
    }

    /// Every frame that is dirty all the time, some of them perhaps twice. No set is latched for
    /// long.
    pub fn all_frames(&self) -> Vec<u32> {
        let mut found = Vec::with_capacity(self.count());
        for set in &self.0 {
            // A frame moves upwards only, so behind `from` or to where it was met already.
            let mut from = (0, 0);
            loop {
                let before = found.len();
                let frames = set.frames.lock();
                let next = frames.range(from..).take(LISTED_AT_ONCE);
                let mut last = None;
                found.extend(next.map(|&key| {
                    last = Some(key);
                    key.1
                }));
                drop(frames);
                match last {
                    Some((lsn, index)) if found.len() - before == LISTED_AT_ONCE => {
                        from = (lsn, index + 1);
                    }
                    _ => break,
                }
            }
        }
        found
    }

    /// Up to `max` frames with `oldest` below `limit` and nothing in flight, the globally oldest
    /// first: those that are `refused`, or the others.
    pub fn oldest_frames(&self, arena: &Arena, limit: Lsn, max: usize, refused: bool) -> Vec<u32> {
        // Each set gives its share and some; a skewed share only means another round.
        let share = max.div_ceil(self.0.len()) * 2;
        let mut found = Vec::new();
        for set in &self.0 {
            if set.oldest.load(Ordering::Acquire) >= limit.0 {
                continue;
            }
            let frames = set.frames.lock();
            let due = frames.iter().take_while(|(lsn, _)| *lsn < limit.0);
            let idle = due.filter(|(_, index)| {
                let frame = arena.frame(*index);
                !frame.flushing.load(Ordering::Relaxed)
                    && frame.refused.load(Ordering::Relaxed) == refused
            });
            found.extend(idle.take(share));
        }
        found.sort_unstable();
        found.truncate(max);
        paranoid!(
            found.last().is_none_or(|(lsn, _)| *lsn < limit.0),
            "a frame that is no older than LSN {limit}: {:?}",
            found.last()
        );
        found.into_iter().map(|(_, index)| index).collect()
    }

    /// How many frames are refused. Looks at each that is dirty.
    pub fn count_refused(&self, arena: &Arena) -> usize {
        let of_set = |set: &CachePadded<DirtySet>| {
            let frames = set.frames.lock();
            let refused =
                |&&(_, index): &&(u64, u32)| arena.frame(index).refused.load(Ordering::Relaxed);
            frames.iter().filter(refused).count()
        };
        self.0.iter().map(of_set).sum()
    }

    /// Up to `max` frames, the oldest first, whose `oldest` is from `from` on and below `limit`,
    /// with it.
    pub fn begun_between(&self, from: Lsn, limit: Lsn, max: usize) -> Vec<(Lsn, u32)> {
        let mut found = Vec::new();
        if from >= limit {
            return found;
        }
        for set in &self.0 {
            let frames = set.frames.lock();
            let begun = frames.range((from.0, 0)..(limit.0, 0));
            found.extend(begun.take(max).map(|&(lsn, index)| (Lsn(lsn), index)));
        }
        found.sort_unstable();
        found.truncate(max);
        paranoid!(
            found
                .iter()
                .take(MANY)
                .all(|(lsn, _)| (from..limit).contains(lsn)),
            "frames that began to be dirty before LSN {from}, or from {limit} on"
        );
        found
    }

    /// Checks promise 1 (when nothing moves).
    #[cfg(test)]
    pub fn check_invariants(&self, arena: &Arena) {
        let mut listed = 0;
        for (number, set) in self.0.iter().enumerate() {
            let frames = set.frames.lock();
            listed += frames.len();
            for &(lsn, index) in frames.iter() {
                assert_eq!(index as usize % self.0.len(), number);
                assert_eq!(arena.frame(index).oldest.load(Ordering::Relaxed), lsn);
                assert!(arena.frame(index).page_id().is_some());
            }
            let first = frames.first().map_or(NO_LSN, |f| f.0);
            assert_eq!(set.oldest.load(Ordering::Relaxed), first);
        }
        let dirty = arena.frames().iter().filter(|f| f.is_dirty()).count();
        assert_eq!(listed, dirty);
    }
}
