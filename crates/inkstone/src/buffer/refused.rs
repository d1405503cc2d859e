//! Refused pages: dirty ones whose last write failed, for want of space or because the device
//! said no. They stay in memory, `ink-cleaner` tries them again, and nothing else does.
//!
//! # Promises
//!
//! 1. While there is a refused page, [`Refusals::why`] says why the last write failed. Tested by
//!    `a_page_that_cannot_be_written_stays_and_the_others_land`.
//! 2. A thread that needs what only writing could give (a frame, room in the log) waits until a
//!    round of tries that began later wrote nothing ([`Patience`]), and then gets that error: it is
//!    never one of a time when things were worse. While others are being served, the wait goes on;
//!    that for a frame also while `ink-frames` finds any page to write, or to evict. Tested by
//!    `a_thread_waits_for_frames_while_there_are_other_pages_to_write`, `a_full_log_behind_a_refused_page_is_an_error_until_it_can_be_written`,
//!    `a_full_disk_keeps_pages_dirty_and_can_be_retried`.
//! 3. Tries are [`PAUSE_MIN`] apart while a thread waits for them. Else each pause is twice as long
//!    as the one before, up to [`PAUSE_MAX`]; a try that writes something is followed by another at
//!    once. Tested by `pauses_double_until_a_page_lands_and_are_short_for_a_waiter`.
//! 4. A round tries a batch of them; each has its turn. Tested by `each_refused_page_has_its_turn`.

use super::pool::Inner;
use crate::Error;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Instant, Mutex};
use std::time::Duration;

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What the pool's threads know of refused pages.
#[derive(Default)]
pub(crate) struct Refusals {
    why: Mutex<Option<Error>>,
    /// Rounds of tries that have begun, and that have ended: one at a time.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Pages that they wrote.
    landed: AtomicU64,
    /// A thread waits for a round.
    wanted: AtomicBool,
    supply: Supply,
}

/// What is known of the rounds in which the threads `ink-frames` look for frames.
#[derive(Default)]
struct Supply {
    begun: AtomicU64,
    under_way: AtomicUsize,
    /// The latest one that found nothing to write or to evict.
    fruitless: AtomicU64,
}

/// A round of `ink-frames`; over when it is dropped.
pub(crate) struct SupplyRound<'a> {
    supply: &'a Supply,
    number: u64,
}

impl SupplyRound<'_> {
    /// Nothing could be done.
    pub fn was_fruitless(&self) {
        self.supply
            .fruitless
            .fetch_max(self.number, Ordering::AcqRel);
    }
}

impl Drop for SupplyRound<'_> {
    fn drop(&mut self) {
        let before = self.supply.under_way.fetch_sub(1, Ordering::AcqRel);
        paranoid!(before > 0, "a round of ink-frames ends that did not begin");
    }
}

impl Refusals {
    /// A write has failed, and its pages are marked.
    pub fn note(&self, error: &Error) {
        *self.why.lock() = Some(error.clone());
    }

    /// Why pages are refused, if any are.
    pub fn why(&self) -> Option<Error> {
        self.why.lock().clone()
    }

    /// A thread `ink-frames` begins to look for frames.
    pub fn begin_supply(&self) -> SupplyRound<'_> {
        let supply = &self.supply;
        supply.under_way.fetch_add(1, Ordering::AcqRel);
        let number = supply.begun.fetch_add(1, Ordering::AcqRel) + 1;
        SupplyRound { supply, number }
    }
}

/// When the refused pages are tried next.
pub(crate) struct Retries {
    last: Option<Instant>,
    pause: Duration,
    /// How many of them, the oldest first, have had their turn.
    passed: usize,
}

impl Retries {
    pub fn new() -> Self {
        Self {
            last: None,
            pause: PAUSE_MIN,
            passed: 0,
        }
    }

    /// Those that are next.
    pub fn turn<'f>(&mut self, refused: &'f [u32], room: usize) -> &'f [u32] {
        let rest = refused.get(self.passed..).filter(|rest| !rest.is_empty());
        let from = rest.map_or(0, |_| self.passed);
        let turn = &refused[from..refused.len().min(from + room)];
        self.passed = from + turn.len();
        paranoid!(
            turn.len() <= room && self.passed <= refused.len(),
            "{} refused pages have their turn, {} of {} had it",
            turn.len(),
            self.passed,
            refused.len()
        );
        turn
    }

    /// How long until they are due.
    pub fn due_in(&mut self, refusals: &Refusals) -> Duration {
        let last = *self.last.get_or_insert_with(Instant::now);
        let pause = if refusals.wanted.load(Ordering::Relaxed) {
            self.pause.min(PAUSE_MIN)
        } else {
            self.pause
        };
        pause.saturating_sub(last.elapsed())
    }

    /// They were tried, and so many were written.
    pub fn tried(&mut self, landed: usize) {
        self.last = Some(Instant::now());
        if landed > 0 {
            (self.pause, self.passed) = (Duration::ZERO, 0);
        } else {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        }
    }
}

/// How long one waits for what refused pages may stand in the way of.
pub(crate) struct Patience {
    /// Rounds that had begun.
    begun: u64,
    /// What the refused pages and others got of it.
    served: (u64, u64),
    /// For a frame: the rounds of `ink-frames` that had begun.
    supplied: Option<u64>,
}

impl Patience {
    /// `served`: a number that changes whenever a thread gets what is waited for.
    pub fn new(pool: &Inner, served: u64) -> Self {
        Self {
            begun: pool.refusals.begun.load(Ordering::Acquire),
            served: (served, pool.refusals.landed.load(Ordering::Acquire)),
            supplied: None,
        }
    }

    /// That of a thread which waits for a frame.
    pub fn for_frame(pool: &Inner) -> Self {
        let supplied = pool.refusals.supply.begun.load(Ordering::Acquire);
        Self {
            supplied: Some(supplied),
            ..Self::new(pool, pool.free.given())
        }
    }

    /// Whether other pages than the refused ones may give what is waited for.
    fn others_may(&self, pool: &Inner) -> bool {
        let supply = &pool.refusals.supply;
        self.supplied.is_some_and(|before| {
            supply.under_way.load(Ordering::Acquire) > 0
                || supply.fruitless.load(Ordering::Acquire) <= before
        })
    }

    /// The error to give up with, when it is time to.
    pub fn end(&mut self, pool: &Inner, served: u64) -> Option<Error> {
        let why = pool.refusals.why()?;
        let now = Self::new(pool, served);
        if now.served != self.served {
            let supplied = self.supplied.is_some();
            *self = if supplied { Self::for_frame(pool) } else { now };
        }
        let tried = pool.refusals.ended.load(Ordering::Acquire) > self.begun;
        if tried && !self.others_may(pool) {
            return Some(why);
        }
        if !pool.refusals.wanted.swap(true, Ordering::Relaxed) {
            pool.cleaning.raise();
        }
        None
    }
}

impl Inner {
    /// A round of tries begins.
    pub(crate) fn begin_round(&self) {
        self.refusals.begun.fetch_add(1, Ordering::AcqRel);
        self.refusals.wanted.store(false, Ordering::Relaxed);
    }

    /// A round of tries is over, which wrote so many pages. Forgets the error if none is refused
    /// any more.
    pub(crate) fn end_round(&self, landed: usize) {
        let landed = landed as u64;
        self.refusals.landed.fetch_add(landed, Ordering::AcqRel);
        let mut why = self.refusals.why.lock();
        // Under the latch: a thread that marks pages notes the error after that.
        if self.dirty.count_refused(&self.arena) == 0 {
            *why = None;
        }
        drop(why);
        self.refusals.ended.fetch_add(1, Ordering::AcqRel);
        self.flights.announce();
        self.free.announce();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_a_page_lands_and_are_short_for_a_waiter() {
        let (mut retries, refusals) = (Retries::new(), Refusals::default());
        for milliseconds in [40, 80, 160, 320, 500, 500] {
            retries.tried(0);
            let pause = Duration::from_millis(milliseconds);
            assert_eq!(retries.pause, pause);
            assert!(retries.due_in(&refusals) <= pause);
        }
        refusals.wanted.store(true, Ordering::Relaxed);
        assert!(retries.due_in(&refusals) <= PAUSE_MIN);
        retries.tried(1);
        assert_eq!(retries.due_in(&refusals), Duration::ZERO);
    }

    #[test]
    fn each_refused_page_has_its_turn() {
        let (mut retries, refused) = (Retries::new(), [1, 2, 3, 4, 5]);
        let mut turns = || {
            let turn = retries.turn(&refused, 2).to_vec();
            retries.tried(0);
            turn
        };
        for expected in [&[1, 2][..], &[3, 4], &[5], &[1, 2]] {
            assert_eq!(turns(), expected);
        }
        retries.tried(1);
        assert_eq!(retries.turn(&refused, 9), refused);
    }
}
