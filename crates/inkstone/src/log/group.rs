//! Groups of waiting committers: all members of a group are woken by the same flush, and check the
//! log's position without a lock. So 640 waiters cost one wake-up each, and no lock.
//!
//! A *poke* wakes a single member, which then looks whether it should lead. A poke is never lost:
//! it is remembered in the group's word until a thread takes the lead ([`Group::settle`]), or finds
//! that the lead is not free ([`Group::take_back`]); a thread that was poked and does not lead
//! hands the poke on.

use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::parking;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Handed to the operating system.
    Written = 0,
    /// On stable storage.
    Durable = 1,
}

const WAITING: u32 = 0;
const POKED: u32 = 1;
const DONE: u32 = 2;
/// What the threads tell each other: nothing (on parking), see the word, you lead.
const MEMBER: usize = 0;
const RELEASED: usize = 0;
const POKE: usize = 1;

/// Threads that wait for the same flush; see the module.
#[derive(Debug, Default)]
pub(super) struct Group {
    words: [AtomicU32; 2],
    members: [AtomicU32; 2],
}

impl Group {
    /// Counts the calling thread in (under the pipeline's lock).
    pub(super) fn join(&self, goal: Goal) {
        self.members[goal as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it has members for this goal.
    pub(super) fn has(&self, goal: Goal) -> bool {
        self.count(goal) > 0
    }

    /// How many joined for this goal and were not poked.
    pub(super) fn count(&self, goal: Goal) -> u32 {
        self.members[goal as usize].load(Ordering::Relaxed)
    }

    fn key(&self, goal: Goal) -> usize {
        std::ptr::from_ref(&self.words[goal as usize]) as usize
    }

    /// Sleeps until released or poked; whether it was poked. Then it is no member any more.
    pub(super) fn park(&self, goal: Goal) -> bool {
        let poked = self.sleep(goal);
        if poked {
            let before = self.members[goal as usize].fetch_sub(1, Ordering::Relaxed);
            paranoid!(before > 0, "a thread left a group that nothing joined");
        }
        poked
    }

    fn sleep(&self, goal: Goal) -> bool {
        let word = &self.words[goal as usize];
        // SAFETY: the key is an address within `self`, which outlives the call and is used as a key
        // for nothing else; the callback neither panics nor parks.
        let result = unsafe {
            parking::park(self.key(goal), MEMBER, || {
                word.load(Ordering::Acquire) == WAITING
            })
        };
        match result {
            Some(token) => {
                paranoid!(
                    token == POKE || token == RELEASED,
                    "woken in a group with token {token}"
                );
                token == POKE
            }
            // It was poked, though that may have been taken back meanwhile.
            None => word.load(Ordering::Acquire) != DONE,
        }
    }

    /// Pokes one member that waits for `goal`, if there is one: then the caller wakes it with
    /// [`wake_one`](Self::wake_one), and should hold no latch in doing so.
    #[must_use]
    pub(super) fn poke(&self, goal: Goal) -> bool {
        if !self.has(goal) {
            return false;
        }
        let word = &self.words[goal as usize];
        let poked = word.compare_exchange(WAITING, POKED, Ordering::AcqRel, Ordering::Relaxed);
        if let Err(found) = poked {
            paranoid!(
                found == POKED || found == DONE,
                "a group's word holds {found}"
            );
        }
        poked != Err(DONE)
    }

    /// Wakes one parked member that waits for `goal`, if there is one. Without a poke before it
    /// that is a hint, which is lost if no member is parked yet.
    pub(super) fn wake_one(&self, goal: Goal) {
        // SAFETY: the key is ours (see `sleep`).
        unsafe { parking::unpark_one(self.key(goal), POKE) };
    }

    /// Forgets a poke: a thread leads.
    pub(super) fn settle(&self) {
        self.take_back(Goal::Written);
        self.take_back(Goal::Durable);
    }

    /// Forgets a poke: the lead that it was about is not free now. The thread that frees it pokes
    /// again.
    pub(super) fn take_back(&self, goal: Goal) {
        let word = &self.words[goal as usize];
        let found = word.compare_exchange(POKED, WAITING, Ordering::AcqRel, Ordering::Relaxed);
        if let Err(found) = found {
            paranoid!(
                found == WAITING || found == DONE,
                "a group's word holds {found}"
            );
        }
    }

    /// Wakes all threads that wait for `goal`; none can sleep here again.
    pub(super) fn release(&self, goal: Goal) {
        self.words[goal as usize].store(DONE, Ordering::Release);
        if self.has(goal) {
            // SAFETY: the key is ours (see `sleep`).
            unsafe { parking::unpark_all(self.key(goal), RELEASED) };
        }
    }
}
