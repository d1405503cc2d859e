//! The way from the ring to the disk: group commit that clocks itself.
//!
//! # Words
//! - A *flight* is one write under way, of everything published when it was sealed. Its *leader* is
//!   the committer that does it; committers that come meanwhile join a [`Group`].
//! - *next*: the group of the committers with frames that no flight covers yet. The next flight
//!   takes it over.
//! - *awaiting*: groups whose frames are written and not yet durable. The next *sync* takes them
//!   all, and wakes them all.
//! - A future that is polled is in no group: [`wakers`](super::wakers).
//! - With `LogWrite::Async` a flight's write and sync go to the kernel together.
//!
//! # Promises
//! 1. Two flights under way never share a block: a flight that ends within a block is the last
//!    one until it is done. Checked by `Pipeline::check`.
//! 2. `written` advances over flights in log order. `durable` advances only over what was written
//!    before a successful sync began (or what the sync's own batch wrote before it). Checked by
//!    `Pipeline::check`. Tested by `durable_is_never_claimed_early`.
//! 3. Whenever a lead is free and awaited, a running thread is about to take it: a finished flight
//!    or sync pokes one waiter, which leads or hands the poke on. A waiter that may not lead a
//!    write because a sync must go first leads that sync, also if its own frame is not written.
//!    Tested by `nothing_is_lost_when_640_threads_wait`,
//!    `a_flight_that_ends_before_all_waiters_is_synced`.
//! 4. `written` and `durable` are frame boundaries. A flight may end within a frame; then what it
//!    wrote of that frame does not count. (If a claim could name a place within a frame, that
//!    frame's lost rest would look like damage to recovery.) Tested by
//!    `durable_is_never_claimed_early`, `random_power_losses`.
//! 5. After a failed write or sync (the poison is set) neither LSN advances. Tested by
//!    `a_failed_write_poisons_and_wakes_all_waiters`,
//!    `a_failed_sync_poisons_and_nothing_becomes_durable_after_it`. Tested by the simulator
//!    (`failed-sync-ignored`).
//! 6. One sync is under way. A kernel or device may report a failure to one sync only: a second one
//!    would succeed wrongly, and be told before the first one's thread has set the poison. Checked
//!    by `Pipeline::check`. Tested by the simulator (`log-syncs-apart`).
//! 7. Where commits want only that the operating system has their frames, a small flight goes
//!    through the page cache, whatever the options say: the device need not be waited for. Until a
//!    sync has covered it all further ones do so too. So a block is never written in both ways at
//!    once, and a write past the cache never meets what the cache has yet to write. Checked by
//!    `Pipeline::check`. Tested by `a_commit_that_is_only_written_waits_for_no_device`. Tested by
//!    the simulator (`cached-counts-as-durable`).
//!
//! Latches: `state` (short, never held over I/O) before the ring's `walk`.

use super::group::Goal;
use super::pipeline::{
    Flight, Pipeline, Reach, SCRATCH_BYTES, Slot, Turn, block_ceil, block_floor, flight_end, join,
};
use super::wakers::Woken;
use super::{BOUNDARIES_MAX, BOUNDARY_DISTANCE, LogShared};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::sync::{hint, thread};
use crate::{Error, Result};
use std::sync::Arc;

/// Times that a leader yields so that frames before its own get published.
const PUBLISH_YIELDS: usize = 100;

impl LogShared {
    pub(super) fn reached(&self, lsn: u64, goal: Goal) -> bool {
        let reached = match goal {
            Goal::Written => &self.written,
            Goal::Durable => &self.durable,
        };
        reached.load(Ordering::Acquire) >= lsn
    }

    /// Waits until the log is written or durable up to `lsn`, leading flights where no other thread
    /// does.
    pub(super) fn wait(&self, lsn: u64, goal: Goal) -> Result<()> {
        if self.reached(lsn, goal) {
            return Ok(());
        }
        crate::invariant!(
            lsn <= self.reserved.load(Ordering::Acquire),
            "waiting for LSN {lsn}, which was never reserved"
        );
        let mut owes = false;
        let result = self.wait_loop(lsn, goal, &mut owes);
        self.leave(result, owes)
    }

    /// What every thread that waited does before anything else: others may count on it (promise
    /// 3).
    fn leave(&self, result: Result<()>, owes: bool) -> Result<()> {
        match result {
            // Also if the poison was set by a part of the engine that knows nothing of the log.
            Err(error) => Err(self.fail(error)),
            Ok(()) => {
                if owes {
                    let poked = self.state.lock().hand_on(true);
                    poked.wake();
                }
                Ok(())
            }
        }
    }

    fn wait_loop(&self, lsn: u64, goal: Goal, owes: &mut bool) -> Result<()> {
        while !self.reached(lsn, goal) {
            match self.turn(lsn, goal)? {
                Turn::Reached => break,
                Turn::LeadWrite => *owes |= !self.lead_write(lsn, goal)?,
                Turn::LeadSync { id, from, covers } => self.lead_sync(id, from, covers)?,
                Turn::Wait(group) => *owes |= group.park(goal),
            }
        }
        Ok(())
    }

    fn turn(&self, lsn: u64, goal: Goal) -> Result<Turn> {
        let mut state = self.state.lock();
        // Under the latch: `fail` sees a thread that joins a group now.
        self.poison.check()?;
        if self.reached(lsn, goal) {
            return Ok(Turn::Reached);
        }
        if self.reached(lsn, Goal::Written) {
            return Ok(self.turn_to_sync(&mut state, lsn));
        }
        if let Some(flight) = state.flights.iter().find(|f| f.frames >= lsn) {
            return Ok(join(&flight.group, goal));
        }
        if state.can_lead() {
            if goal == Goal::Written || state.may_flush() {
                return Ok(state.take_lead());
            }
            if state.may_sync() {
                // Others wait for a sync first. Those of them that were poked may be no better off
                // than this thread: the last flight ended before their frames (promise 3).
                return Ok(self.begin_sync(&mut state));
            }
        }
        // Otherwise the poked waiter spins until the lead is free.
        state.next.take_back(goal);
        Ok(join(&state.next, goal))
    }

    fn written_reach(&self, state: &Pipeline) -> Reach {
        Reach {
            bytes: state.written_bytes,
            frames: self.written.load(Ordering::Acquire),
        }
    }

    fn begin_sync(&self, state: &mut Pipeline) -> Turn {
        let from = self.durable.load(Ordering::Acquire);
        let covers = self.written_reach(state);
        state.begin_sync(from, covers)
    }

    fn turn_to_sync(&self, state: &mut Pipeline, lsn: u64) -> Turn {
        let under_way = state.syncs.iter().find(|s| s.covers.frames >= lsn);
        if let Some(group) = under_way.and_then(|s| s.groups.last()) {
            return join(group, Goal::Durable);
        }
        if state.may_sync() {
            return self.begin_sync(state);
        }
        if state.awaiting.is_empty() {
            state.awaiting.push(Arc::default());
        }
        state.awaiting[0].take_back(Goal::Durable);
        join(&state.awaiting[0], Goal::Durable)
    }

    /// Waits until the ring is released up to `lsn`, leading flights where no other thread does.
    pub(super) fn wait_released(&self, lsn: u64) -> Result<()> {
        let mut owes = false;
        let result = self.wait_released_loop(lsn, &mut owes);
        self.leave(result, owes)
    }

    fn wait_released_loop(&self, lsn: u64, owes: &mut bool) -> Result<()> {
        while self.ring.released() < lsn {
            let turn = {
                let mut state = self.state.lock();
                self.poison.check()?;
                match state.flights.front() {
                    _ if self.ring.released() >= lsn => Turn::Reached,
                    Some(flight) => join(&flight.group, Goal::Written),
                    None if state.leading => join(&state.next, Goal::Written),
                    None => state.take_lead(),
                }
            };
            match turn {
                Turn::Wait(group) => *owes |= group.park(Goal::Written),
                Turn::LeadWrite => *owes |= !self.lead_write(0, Goal::Written)?,
                Turn::Reached | Turn::LeadSync { .. } => {}
            }
        }
        Ok(())
    }

    /// Writes what is published. The caller has the lead, wants `want`, and gives the lead up
    /// here. False when there was nothing to write.
    fn lead_write(&self, want: u64, goal: Goal) -> Result<bool> {
        self.await_published(want);
        let Some((flight, mut slot)) = self.seal(goal) else {
            return Ok(false);
        };
        let written = self.write_flight(&flight, &mut slot);
        match written.and_then(|()| self.land(&flight, slot, want, goal)) {
            Ok(()) => Ok(true),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Lets frames before `want` get published: their owners are copying. Bounded, because one of
    /// them may wait for ring space, which this thread is about to give back.
    fn await_published(&self, want: u64) {
        for turn in 0..PUBLISH_YIELDS {
            if self.ring.advance_ready() >= want.max(self.written.load(Ordering::Acquire) + 1) {
                return;
            }
            if turn < 3 {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    fn seal(&self, goal: Goal) -> Option<(Flight, Slot)> {
        let mut state = self.state.lock();
        let ready = self.ring.advance_ready();
        state.leading = false;
        let start = state.submitted;
        let end = flight_end(&state, ready);
        paranoid!(
            end <= ready.max(start),
            "a flight to LSN {end}, published up to {ready}"
        );
        if end <= start {
            return None;
        }
        let (frames, next_frames) = self.frames_of(&state, end, ready);
        paranoid!(
            frames <= end && end <= next_frames && next_frames <= ready,
            "frames end at LSN {frames} and {next_frames} around {end}, published to {ready}"
        );
        let Some(slot) = state.slots.pop() else {
            crate::error::broken_invariant(format_args!("no slot for a flight"), file!(), line!())
        };
        let group = std::mem::take(&mut state.next);
        let wants_sync = goal == Goal::Durable || group.has(Goal::Durable);
        let is_small = block_ceil(end) - block_floor(start) <= SCRATCH_BYTES as u64;
        let cached = self.segments.has_cached() && state.is_next_cached(!wants_sync && is_small);
        let brings_sync = state.asynchronous && !self.write_through && !cached;
        let flight = Flight {
            id: state.new_id(),
            start,
            end,
            frames,
            before: self.written_reach(&state),
            durable_before: self.durable.load(Ordering::Acquire),
            syncs: brings_sync && wants_sync && state.may_sync(),
            cached,
            done: false,
            group,
        };
        if cached {
            state.cached_bytes = end;
        }
        state.submitted = end;
        state.submitted_frames = frames;
        state.next_frames = next_frames;
        state.flights.push_back(flight.clone());
        let rest_may_go = end < ready && state.can_lead();
        drop(state);
        if rest_may_go {
            // Some of this flight's group are covered by the rest only: one may lead it now.
            flight.group.wake_one(Goal::Durable);
        }
        Some((flight, slot))
    }

    /// The frame boundaries around the end of the next flight.
    fn frames_of(&self, state: &Pipeline, end: u64, ready: u64) -> (u64, u64) {
        if end == ready {
            (ready, ready)
        } else if end < state.next_frames {
            // Still the frame that the last flight ended in.
            (state.submitted_frames, state.next_frames)
        } else {
            // SAFETY: from `next_frames`, which is not below the last flight's end, to `ready`,
            // which is above `end`, all is published and not written, hence not released.
            unsafe { self.ring.boundaries_around(state.next_frames, end) }
        }
    }

    /// Takes in a flight whose write (and sync, if it has one) succeeded.
    fn land(&self, flight: &Flight, slot: Slot, want: u64, goal: Goal) -> Result<()> {
        let (from, whole) = (block_floor(flight.start), block_floor(flight.end));
        if whole > from {
            // SAFETY: these blocks are written, and this flight alone covers them (promise 1).
            unsafe { self.ring.zero(from, whole) };
        }
        let mut landed = Vec::new();
        let (poked, woken) = {
            let mut state = self.state.lock();
            self.poison.check()?;
            state.slots.push(slot);
            for under_way in &mut state.flights {
                under_way.done |= under_way.id == flight.id;
            }
            while state.flights.front().is_some_and(|f| f.done) {
                if let Some(done) = state.flights.pop_front() {
                    let durable = self.advance(&mut state, &done);
                    landed.push((done.group, durable));
                }
            }
            // Not where the flight ended before `want`: then the leader may have to wait for a
            // sync.
            let leader_syncs = goal == Goal::Durable
                && self.reached(want, Goal::Written)
                && !self.reached(want, Goal::Durable);
            (state.hand_on(!leader_syncs), self.take_woken(&mut state))
        };
        poked.wake();
        for (group, durable) in landed {
            group.release(Goal::Written);
            if durable {
                group.release(Goal::Durable);
            }
        }
        woken.wake();
        if self.segments.number(flight.start) != self.segments.number(flight.end) {
            self.background.nudge();
        }
        Ok(())
    }

    /// Advances `written`, and `durable` where the flight made it so, over the oldest flight.
    /// Returns whether no member of its group has to wait for a sync.
    fn advance(&self, state: &mut Pipeline, done: &Flight) -> bool {
        paranoid!(
            done.done && done.start == state.written_bytes,
            "a flight from LSN {} lands where {} is written",
            done.start,
            state.written_bytes
        );
        state.written_bytes = done.end;
        self.written.store(done.frames, Ordering::Release);
        self.note_boundary(done.frames);
        self.ring.release(block_floor(done.end));
        let all = Reach {
            bytes: done.end,
            frames: done.frames,
        };
        if self.write_through && (!done.cached || mutants::on(Mutant::CachedCountsAsDurable)) {
            self.set_durable(state, all);
        } else if done.syncs {
            let gapless = state.durable_bytes.max(done.before.bytes) >= done.start;
            // Otherwise an earlier flight without a sync was under way when this one began: its
            // bytes may not be covered.
            self.set_durable(state, if gapless { all } else { done.before });
        }
        let waits = state.durable_bytes < done.end && done.group.has(Goal::Durable);
        if waits {
            state.awaiting.push(done.group.clone());
        }
        !waits
    }

    fn note_boundary(&self, written: u64) {
        let mut boundaries = self.boundaries.lock();
        let last = boundaries.last().copied().unwrap_or_default();
        paranoid!(
            written >= last,
            "written to LSN {written}, and before to {last}"
        );
        if written >= last + BOUNDARY_DISTANCE && boundaries.len() < BOUNDARIES_MAX {
            boundaries.push(written);
            // Before a writer has to wait for it.
            let kept = written.saturating_sub(self.segments.keep_from());
            if kept > self.segments.capacity() / 2 {
                self.full.call();
            }
        }
    }

    fn set_durable(&self, state: &mut Pipeline, reach: Reach) {
        state.durable_bytes = state.durable_bytes.max(reach.bytes);
        let before = self.durable.fetch_max(reach.frames, Ordering::AcqRel);
        paranoid!(
            before.max(reach.frames) <= state.durable_bytes,
            "frames durable to LSN {before} or {}, bytes to {}",
            reach.frames,
            state.durable_bytes
        );
    }

    /// Makes durable what was written when the sync began.
    fn lead_sync(&self, id: u64, from: u64, covers: Reach) -> Result<()> {
        // The poison may be set by a part of the engine that knows nothing of the log, so the log's
        // waiters are woken here.
        if let Err(error) = self.sync_segments(from, covers.bytes) {
            return Err(self.fail(error));
        }
        let (groups, poked, woken) = {
            let mut state = self.state.lock();
            self.set_durable(&mut state, covers);
            let at = state.syncs.iter().position(|s| s.id == id);
            paranoid!(at.is_some(), "sync {id} is not under way at its end");
            let groups = at.map(|at| state.syncs.swap_remove(at).groups);
            let woken = self.take_woken(&mut state);
            (groups.unwrap_or_default(), state.hand_on(true), woken)
        };
        poked.wake();
        for group in groups {
            group.release(Goal::Durable);
        }
        woken.wake();
        Ok(())
    }

    /// The futures that have what they wait for.
    fn take_woken(&self, state: &mut Pipeline) -> Woken {
        if state.wakers.are_none() {
            return Woken::default();
        }
        let durable = self.durable.load(Ordering::Acquire);
        let written = self.written.load(Ordering::Acquire);
        state.wakers.take_reached(written, durable)
    }

    /// Poisons the engine and wakes all waiters, which then see the poison. Flights and syncs that
    /// failed stay where they are: nothing passes them any more.
    pub(super) fn fail(&self, error: Error) -> Error {
        let error = match error {
            _ if error.is_final() => self.poison.check().err().unwrap_or(error),
            other => self.poison.set(other),
        };
        let (groups, woken) = {
            let mut state = self.state.lock();
            (state.all_groups(), state.wakers.take_all())
        };
        for group in groups {
            group.release(Goal::Written);
            group.release(Goal::Durable);
        }
        woken.wake();
        error
    }
}

#[cfg(test)]
impl LogShared {
    /// How many threads wait until their frames are durable, without the leaders.
    pub(super) fn waiting(&self) -> u32 {
        let groups = self.state.lock().all_groups();
        groups.iter().map(|group| group.count(Goal::Durable)).sum()
    }
}
