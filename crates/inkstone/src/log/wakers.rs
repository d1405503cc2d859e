//! Futures that wait for the log. They lead no flight: the thread `ink-log` does so on their
//! behalf, one flight for all that have come while it did the one before.
//!
//! # Promises
//! 1. While a future waits, a thread is about to wait for its frames, or does: `ink-log`, or, where
//!    that has ended, the thread that has polled. So it is woken, whatever becomes of the log.
//!    Tested by `futures_hear_of_a_failure`, `a_log_that_closes_wakes_its_futures`.
//! 2. A waker is kept until its frames are where they are awaited, or the log has failed, or its
//!    future is gone; of several that a future was polled with, the last. Tested by
//!    `the_last_waker_counts_and_a_dropped_future_leaves_none`.
//! 3. A waker is cloned, woken and dropped with no latch held: it is the program's code. Tested by
//!    `a_waker_may_poll_and_drop_other_futures`.
//!
//! What futures wait for stands in the pipeline, under its latch, where the log's positions
//! advance: so none is overlooked.

use super::background::Order;
use super::group::Goal;
use super::{Log, LogShared};
use crate::Result;
use crate::paranoid::{MANY, paranoid};
use inkstone_format::Lsn;
use std::collections::BTreeMap;
use std::task::{Poll, Waker};

/// The place of a future among those that wait for one goal: by what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    lsn: u64,
    id: u64,
}

/// A future that waits, as the log knows it.
#[derive(Debug)]
pub(crate) struct Ticket {
    goal: Goal,
    place: Place,
}

/// The wakers of the futures that wait, by goal.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    waiting: [BTreeMap<Place, Waker>; 2],
    last_id: u64,
    /// A thread is about to look what they wait for.
    called: bool,
}

/// Wakers that are to be woken once the pipeline's latch is let go of.
#[derive(Debug, Default)]
#[must_use = "a future sleeps until it is woken"]
pub(super) struct Woken(Vec<Waker>);

impl Woken {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Wakers {
    /// A future waits for `lsn`.
    fn enter(&mut self, goal: Goal, lsn: u64, waker: Waker) -> Ticket {
        self.last_id += 1;
        let place = Place {
            lsn,
            id: self.last_id,
        };
        let before = self.waiting[goal as usize].insert(place, waker);
        paranoid!(before.is_none(), "two futures at {place:?}");
        Ticket { goal, place }
    }

    /// Has a future that waits woken by another waker; gives back the one before, if it waits.
    fn replace(&mut self, ticket: &Ticket, waker: Waker) -> std::result::Result<Waker, Waker> {
        paranoid!(
            ticket.place.id <= self.last_id,
            "{ticket:?} is of another log, whose last one is {}",
            self.last_id
        );
        match self.waiting[ticket.goal as usize].get_mut(&ticket.place) {
            Some(kept) => Ok(std::mem::replace(kept, waker)),
            None => Err(waker),
        }
    }

    pub(super) fn are_none(&self) -> bool {
        self.waiting.iter().all(BTreeMap::is_empty)
    }

    fn remove(&mut self, ticket: &Ticket) -> Option<Waker> {
        self.waiting[ticket.goal as usize].remove(&ticket.place)
    }

    /// Takes out those that have what they wait for.
    pub(super) fn take_reached(&mut self, written: u64, durable: u64) -> Woken {
        paranoid!(
            durable <= written,
            "durable to LSN {durable}, written to {written}"
        );
        let mut reached = Vec::new();
        for (waiting, lsn) in self.waiting.iter_mut().zip([written, durable]) {
            while let Some(first) = waiting.first_entry()
                && first.key().lsn <= lsn
            {
                reached.push(first.remove());
            }
        }
        Woken(reached)
    }

    /// Takes all out: the log has failed.
    pub(super) fn take_all(&mut self) -> Woken {
        self.take_reached(u64::MAX, u64::MAX)
    }

    /// What a thread is to wait for next on their behalf: a write before a sync, which takes
    /// longer. None: no future waits.
    fn farthest(&self) -> Option<(Goal, u64)> {
        let last = |goal: Goal| {
            let (place, _) = self.waiting[goal as usize].last_key_value()?;
            Some((goal, place.lsn))
        };
        last(Goal::Written).or_else(|| last(Goal::Durable))
    }

    /// For the pipeline's check: no future waits for what the log has long.
    pub(super) fn check(&self, written: u64, durable: u64) {
        for (waiting, bytes) in self.waiting.iter().zip([written, durable]) {
            for place in waiting.keys().take(MANY) {
                paranoid!(
                    place.id <= self.last_id && place.lsn > bytes,
                    "a future at {place:?} waits for what is there, up to LSN {bytes}"
                );
            }
        }
    }
}

impl Log {
    /// Whether the log is written (or durable, `synced`) up to `lsn`, or has failed; if neither,
    /// `waker` is woken when that changes, in place of the one of the call before. `ticket`: none
    /// at first; to be given up by [`Log::forget`].
    pub(crate) fn poll_reached(
        &self,
        (lsn, synced): (Lsn, bool),
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Result<()>> {
        let goal = if synced { Goal::Durable } else { Goal::Written };
        let polled = self.shared.poll(lsn.0, goal, ticket, waker);
        if polled.is_ready() {
            *ticket = None;
        }
        polled
    }

    /// A future that waits is gone.
    pub(crate) fn forget(&self, ticket: &Ticket) {
        let waker = self.shared.state.lock().wakers.remove(ticket);
        drop(waker);
    }
}

impl LogShared {
    fn poll(
        &self,
        lsn: u64,
        goal: Goal,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<Result<()>> {
        if self.reached(lsn, goal) {
            return Poll::Ready(Ok(()));
        }
        // In a forked child the latch may be another thread's for ever.
        if let Err(error) = self.poison.check() {
            return Poll::Ready(Err(error));
        }
        let mut waker = waker.clone();
        let mut state = self.state.lock();
        // Again, as nothing advances now, and `fail` sees a future that is entered now.
        if self.reached(lsn, goal) {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = self.poison.check() {
            return Poll::Ready(Err(error));
        }
        if let Some(known) = ticket {
            paranoid!(
                (known.goal, known.place.lsn) == (goal, lsn),
                "{known:?} is polled for LSN {lsn}, {goal:?}"
            );
            match state.wakers.replace(known, waker) {
                Ok(before) => {
                    drop(state);
                    drop(before);
                    return Poll::Pending;
                }
                Err(unused) => waker = unused,
            }
        }
        *ticket = Some(state.wakers.enter(goal, lsn, waker));
        let call = !std::mem::replace(&mut state.wakers.called, true);
        drop(state);
        if call {
            self.call_for_futures();
        }
        Poll::Pending
    }

    /// Has a thread look what futures wait for: `ink-log`, or this one if that has ended.
    fn call_for_futures(&self) {
        if !self.background.order(Order::ServeFutures) {
            while self.wait_for_futures() {}
        }
    }

    /// For the thread that was called: waits for what futures wait for, once. Calls it again if
    /// others have come meanwhile.
    pub(super) fn serve_futures(&self) {
        if self.wait_for_futures() {
            self.call_for_futures();
        }
    }

    /// False: no future waits.
    fn wait_for_futures(&self) -> bool {
        let farthest = {
            let mut state = self.state.lock();
            let farthest = state.wakers.farthest();
            state.wakers.called = farthest.is_some();
            farthest
        };
        let Some((goal, lsn)) = farthest else {
            return false;
        };
        // An error has poisoned the engine, and was told to them all.
        let _ = self.wait(lsn, goal);
        true
    }
}
