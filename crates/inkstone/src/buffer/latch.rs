//! The hybrid latch: one word that serves optimistic, shared and exclusive access to a frame.
//!
//! # Promises
//!
//! 1. An exclusive holder is alone; shared holders exclude exclusive ones. Tested by
//!    `modes_exclude_each_other`, `many_threads_mix_modes_and_none_is_left_parked`.
//! 2. Every exclusive release changes the version. So if a reader saw version `v` with no exclusive
//!    holder before it read, and sees the same afterwards ([`HybridLatch::validate`]), no thread
//!    wrote in between. What it read before validating may be torn and must not be believed. Tested
//!    by `modes_exclude_each_other`, `optimistic_readers_never_validate_a_torn_read`.
//! 3. A waiter states a condition (that the frame still holds the page it came for), and gives up
//!    when it no longer holds. Without this a thread that holds other latches could wait for a
//!    latch that by now guards an unrelated page: a deadlock that no latch order prevents. A thread
//!    that takes a page out of its frame wakes all waiters (`unlock_exclusive_gone`). Tested by
//!    `every_waiter_for_a_page_that_goes_gives_up`.
//! 4. No waiter starves for good: while a thread is parked, new shared requests do not join shared
//!    holders, and now and then (parking_lot's fairness timer) a release hands the latch over to
//!    the first in the queue instead of letting others barge in. Tested by
//!    `a_writer_gets_in_between_readers_that_overlap`.
//!
//! Optimistic readers write nothing.
//!
//! # The word
//!
//! | bits   | field                                            |
//! |--------|--------------------------------------------------|
//! | 0      | held exclusively                                 |
//! | 1      | threads may be parked on the address of the word |
//! | 2..18  | number of shared holders                         |
//! | 18..64 | version                                          |

use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::held;
use crate::sync::parking::{Choice, SpinWait, Woken, park, unpark_filter};
use std::cell::Cell;

const EXCLUSIVE: u64 = 1;
const PARKED: u64 = 1 << 1;
const SHARED_ONE: u64 = 1 << 2;
const SHARED_MASK: u64 = 0xffff << 2;
const HELD: u64 = EXCLUSIVE | SHARED_MASK;
const VERSION_ONE: u64 = 1 << 18;
const VERSION_MASK: u64 = !(VERSION_ONE - 1);

/// What parked threads wait for.
const WANTS_SHARED: usize = 0;
const WANTS_EXCLUSIVE: usize = 1;
/// What they are told when they are woken.
const TRY_AGAIN: usize = 0;
/// The releasing thread has taken the latch on behalf of the one it wakes.
const HANDED_OVER: usize = 1;

/// What an optimistic reader remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// See the module's comment.
#[derive(Default)]
pub(crate) struct HybridLatch(AtomicU64);

/// Whether a shared request may be granted. A woken waiter may join the others woken with it.
fn may_share(word: u64, woken: bool) -> bool {
    let shared = word & SHARED_MASK;
    word & EXCLUSIVE == 0 && shared != SHARED_MASK && (woken || word & PARKED == 0 || shared == 0)
}

impl HybridLatch {
    /// The version, unless the latch is held exclusively.
    #[inline]
    pub fn try_optimistic(&self) -> Option<Version> {
        let word = self.0.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Version(word & VERSION_MASK))
    }

    /// The version, once the latch is not held exclusively; `None` if it would have to wait and
    /// `wanted` says no.
    #[inline]
    pub fn optimistic(&self, wanted: impl Fn() -> bool) -> Option<Version> {
        match self.try_optimistic() {
            Some(version) => Some(version),
            None => self.optimistic_slow(wanted),
        }
    }

    #[cold]
    fn optimistic_slow(&self, wanted: impl Fn() -> bool) -> Option<Version> {
        self.lock_shared(wanted).then(|| {
            let version = Version(self.0.load(Ordering::Acquire) & VERSION_MASK);
            self.unlock_shared();
            version
        })
    }

    /// Whether no thread wrote since `version` was taken, and none is writing.
    #[inline]
    pub fn validate(&self, version: Version) -> bool {
        // Orders the reads being judged before the load of the word (the reading half of a
        // sequence lock; the writing half is the release fence in `entered_exclusively`).
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) & (VERSION_MASK | EXCLUSIVE) == version.0
    }

    /// Takes the latch exclusively if it is free and no thread wrote since `version`.
    pub fn try_upgrade(&self, version: Version) -> bool {
        self.take_if(
            |word| word & (VERSION_MASK | HELD) == version.0,
            |word| word | EXCLUSIVE,
        ) && self.entered_exclusively()
    }

    /// Joins the shared holders if no thread wrote since `version` and none is queueing.
    pub fn try_shared_at(&self, version: Version) -> bool {
        self.take_if(
            |word| word & VERSION_MASK == version.0 && may_share(word, false),
            |word| word + SHARED_ONE,
        )
    }

    /// Takes the latch shared if that needs no waiting.
    pub fn try_lock_shared(&self) -> bool {
        self.take_if(|word| may_share(word, false), |word| word + SHARED_ONE)
    }

    /// Takes the latch exclusively if that needs no waiting.
    pub fn try_lock_exclusive(&self) -> bool {
        self.take_if(|word| word & HELD == 0, |word| word | EXCLUSIVE) && self.entered_exclusively()
    }

    /// Takes the latch shared; waits as long as `wanted` says yes. False if it gave up.
    #[inline]
    pub fn lock_shared(&self, wanted: impl Fn() -> bool) -> bool {
        self.try_lock_shared()
            || self.lock_slow(WANTS_SHARED, wanted, may_share, |word| word + SHARED_ONE)
    }

    /// Takes the latch exclusively; waits as long as `wanted` says yes. False if it gave up.
    #[inline]
    pub fn lock_exclusive(&self, wanted: impl Fn() -> bool) -> bool {
        self.try_lock_exclusive()
            || (self.lock_slow(
                WANTS_EXCLUSIVE,
                wanted,
                |word, _| word & HELD == 0,
                |word| word | EXCLUSIVE,
            ) && self.entered_exclusively())
    }

    /// Releases a shared hold.
    #[inline]
    pub fn unlock_shared(&self) {
        let before = self.0.fetch_sub(SHARED_ONE, Ordering::Release);
        paranoid!(
            before & SHARED_MASK != 0 && before & EXCLUSIVE == 0,
            "a latch that is not held shared was released: {before:x}"
        );
        if before & (SHARED_MASK | PARKED) == SHARED_ONE | PARKED {
            self.wake(false, |word| word);
        }
    }

    /// Releases the exclusive hold; the version changes.
    #[inline]
    pub fn unlock_exclusive(&self) {
        self.release_exclusive(false);
    }

    /// As `unlock_exclusive`, after the frame's page has gone: every waiter checks again whether it
    /// still wants the latch.
    pub fn unlock_exclusive_gone(&self) {
        self.release_exclusive(true);
    }

    #[inline]
    fn release_exclusive(&self, wake_all: bool) {
        held::ended(self.key());
        let released = |word: u64| (word & !EXCLUSIVE).wrapping_add(VERSION_ONE);
        let word = self.0.load(Ordering::Relaxed);
        paranoid!(
            word & HELD == EXCLUSIVE,
            "a latch that is not held exclusively was released: {word:x}"
        );
        let alone = word & PARKED == 0
            && self
                .0
                .compare_exchange(word, released(word), Ordering::Release, Ordering::Relaxed)
                .is_ok();
        if !alone {
            // While EXCLUSIVE and PARKED are both set, no other thread changes the word.
            self.wake(wake_all, released);
        }
    }

    /// Whether it is held exclusively (a hint).
    #[cfg(test)]
    pub fn is_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// The writing half of the sequence lock: no write to the page becomes visible before the bit.
    #[inline]
    fn entered_exclusively(&self) -> bool {
        fence(Ordering::Release);
        held::began(self.key());
        true
    }

    #[inline]
    fn take_if(&self, allowed: impl Fn(u64) -> bool, taken: impl Fn(u64) -> u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while allowed(word) {
            match self.0.compare_exchange_weak(
                word,
                taken(word),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Spins shortly, then parks until a release wakes the thread or hands the latch over.
    #[cold]
    fn lock_slow(
        &self,
        wants: usize,
        wanted: impl Fn() -> bool,
        allowed: impl Fn(u64, bool) -> bool,
        taken: impl Fn(u64) -> u64,
    ) -> bool {
        let mut spin = SpinWait::new();
        let mut woken = false;
        loop {
            if self.take_if(|word| allowed(word, woken), &taken) {
                return true;
            }
            if !wanted() {
                return false;
            }
            let word = self.0.load(Ordering::Relaxed);
            if allowed(word, woken) {
                continue;
            }
            if word & PARKED == 0 {
                if spin.spin() {
                    continue;
                }
                let mark = self.0.compare_exchange_weak(
                    word,
                    word | PARKED,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if mark.is_err() {
                    continue;
                }
            }
            let must_wait = || {
                let word = self.0.load(Ordering::Relaxed);
                word & PARKED != 0 && !allowed(word, false) && wanted()
            };
            // SAFETY: the key is the address of this word, which only latches use as a key; the
            // callback neither panics nor parks.
            let parked = unsafe { park(self.key(), wants, must_wait) };
            if parked == Some(HANDED_OVER) {
                fence(Ordering::Acquire);
                return true;
            }
            woken = parked.is_some();
            spin.reset();
        }
    }

    /// Wakes the first exclusive request of the queue, or the shared ones before it, or `all`.
    /// `released` computes the released word from the present one.
    #[cold]
    fn wake(&self, all: bool, released: impl Fn(u64) -> u64) {
        let first_wants = Cell::new(None);
        let choose = |wants: usize| match first_wants.get() {
            _ if all => Choice::Wake,
            None => {
                first_wants.set(Some(wants));
                Choice::Wake
            }
            Some(WANTS_SHARED) if wants == WANTS_SHARED => Choice::Wake,
            Some(_) => Choice::Stop,
        };
        let settle = |woken: Woken| {
            let mut word = self.0.load(Ordering::Relaxed);
            loop {
                let mut next = released(word);
                if !woken.more {
                    next &= !PARKED;
                }
                let hand_over = !all && woken.be_fair && woken.count > 0 && next & HELD == 0;
                if hand_over && first_wants.get() == Some(WANTS_EXCLUSIVE) {
                    next |= EXCLUSIVE;
                } else if hand_over {
                    next += woken.count as u64 * SHARED_ONE;
                }
                match self
                    .0
                    .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed)
                {
                    Ok(_) if hand_over => return HANDED_OVER,
                    Ok(_) => return TRY_AGAIN,
                    Err(now) => word = now,
                }
            }
        };
        // SAFETY: as for `park`: the key is ours, and the callbacks neither panic nor park.
        unsafe { unpark_filter(self.key(), choose, settle) };
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.0).addr()
    }
}
