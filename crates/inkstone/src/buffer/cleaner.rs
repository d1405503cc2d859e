//! The threads `ink-cleaner`: write the oldest dirty pages, so that the checkpoint can move.
//!
//! In a large pool there are two. A batch waits for the device four times, one after the other
//! (copies, their sync, the pages in place, their sync); the second thread makes the copies of the
//! next batch meanwhile, in another area of the doublewrite file. Pages in flight are passed over,
//! so each takes what the other has left. The first alone tries refused pages again, and writes
//! while the log stands still.
//!
//! # Pacing
//!
//! *Age* is the log between the oldest dirty page and the end of the log; *fill* is age / capacity.
//!
//! | fill            | what the thread does                                                         |
//! |-----------------|------------------------------------------------------------------------------|
//! | below 1/8       | nothing while the log grows; when it stands still, a batch now and then       |
//! | 1/8 to 3/4      | moves the oldest LSN on at 4x² times the rate at which the log grows, x from 0 to 1 |
//! | above 3/4       | writes without pause                                                         |
//!
//! So under a steady load the fill settles near 7/16, where x = 1/2, and half the log is left for
//! bursts. Where the thread cannot keep up, [`Inner::throttle`] slows writers down: from 3/4 to
//! 7/8 by a delay that grows smoothly, so that a load of any number of threads finds a steady state
//! between; above 7/8 they wait.

use super::flush::{BATCH_PAGES_MAX, Flusher, Join};
use super::pool::Inner;
use super::refused::{Patience, Retries};
use crate::Result;
use crate::counters::{Counter, Timed};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::sync::{Instant, thread};
use inkstone_format::{Lsn, PageId, PageNo};
use std::time::Duration;

/// Time between two looks at the age while there is something to do.
const TICK: Duration = Duration::from_millis(20);
/// Time between batches when there are no writes.
const PAUSE_IDLE: Duration = Duration::from_millis(100);
/// Time between looks when nothing is dirty (a signal ends it).
const PAUSE_CLEAN: Duration = Duration::from_millis(250);
/// The longest delay that a transaction gets before the hard wait.
const DELAY_MAX: Duration = Duration::from_millis(50);
/// Pages to each side that are pulled in for combining.
const NEIGHBOURS_MAX: u32 = 15;

/// Threads for a pool of so many frames: in a small pool the batch of one is a large part of it
/// already.
pub(crate) fn threads_for(frames: usize) -> usize {
    if frames >= 16 * BATCH_PAGES_MAX { 2 } else { 1 }
}

/// Which of the threads it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    /// Writes what is due, and nothing else.
    Helper,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Plan {
    /// Nothing for so long.
    Rest(Duration),
    /// One batch, then a pause.
    Idle,
    /// Write what is older than this, then wait for the next tick.
    Advance(Lsn),
    /// Write without pause.
    Furious,
}

/// Decides from the age of the oldest page. `grown`: bytes that the log grew since the last tick,
/// smoothed.
pub(crate) fn plan(ready: Lsn, oldest: Option<Lsn>, capacity: u64, grown: f64) -> Plan {
    let Some(oldest) = oldest else {
        return Plan::Rest(PAUSE_CLEAN);
    };
    paranoid!(
        capacity > 0 && grown >= 0.0,
        "the log of {capacity} bytes grew by {grown}"
    );
    let fill = ready.0.saturating_sub(oldest.0) as f64 / capacity as f64;
    let x = (fill - 0.125) / (0.75 - 0.125);
    if x >= 1.0 {
        Plan::Furious
    } else if grown < 1.0 {
        Plan::Idle
    } else if x <= 0.0 {
        Plan::Rest(TICK)
    } else {
        Plan::Advance(Lsn(oldest.0 + (grown * 4.0 * x * x) as u64 + 1))
    }
}

/// How long a transaction is delayed at this fill; `None`: until the fill is lower.
pub(crate) fn delay(fill: f64) -> Option<Duration> {
    let x = (fill - 0.75) / (0.875 - 0.75);
    if x >= 1.0 {
        return None;
    }
    let delay = DELAY_MAX.mul_f64(x.max(0.0).powi(2));
    paranoid!(
        delay <= DELAY_MAX,
        "a delay of {delay:?} at a fill of {fill}"
    );
    Some(delay)
}

pub(crate) struct Cleaner<'a> {
    pool: &'a Inner,
    flusher: Flusher,
    role: Role,
    last_ready: Lsn,
    last_look: Instant,
    /// Bytes that the log grows in a tick, smoothed.
    grown: f64,
    retries: Retries,
}

impl<'a> Cleaner<'a> {
    pub fn new(pool: &'a Inner, flusher: Flusher, role: Role) -> Self {
        Self {
            pool,
            flusher,
            role,
            last_ready: pool.log.ready_lsn(),
            last_look: Instant::now(),
            grown: 0.0,
            retries: Retries::new(),
        }
    }

    /// The thread's life: until the pool closes or is poisoned.
    pub fn run(&mut self) {
        while self.pool.check().is_ok() {
            let Ok(pause) = self.retry().and_then(|retry| Ok(self.step()?.min(retry))) else {
                break;
            };
            if !pause.is_zero() {
                self.pool.cleaning.wait(pause);
            }
        }
        self.pool.flights.announce();
    }

    /// Tries refused pages again if it is time to; returns how long it is until the next time.
    fn retry(&mut self) -> Result<Duration> {
        let pool = self.pool;
        if self.role == Role::Helper {
            return Ok(Duration::MAX);
        }
        if pool.refusals.why().is_none() {
            self.retries = Retries::new();
            return Ok(Duration::MAX);
        }
        let due_in = self.retries.due_in(&pool.refusals);
        if !due_in.is_zero() {
            return Ok(due_in);
        }
        pool.begin_round();
        let (all, most) = (Lsn(u64::MAX), pool.arena.len());
        let refused = pool.dirty.oldest_frames(&pool.arena, all, most, true);
        let turn = self.retries.turn(&refused, self.flusher.capacity());
        let landed = self.write_batch(self.pages_of(turn))?;
        self.retries.tried(landed);
        pool.end_round(landed);
        Ok(self.retries.due_in(&pool.refusals))
    }

    /// Looks once and acts; returns how long to pause.
    fn step(&mut self) -> Result<Duration> {
        let (ready, _) = self.pool.refresh_age();
        // What is left of redo is not for this thread to write.
        let oldest = self.pool.dirty.oldest_lsn();
        self.measure(ready);
        let began = Instant::now();
        match plan(ready, oldest, self.pool.log.capacity_bytes(), self.grown) {
            Plan::Rest(pause) => Ok(pause),
            Plan::Idle if self.role == Role::Helper => Ok(PAUSE_IDLE),
            Plan::Idle => {
                self.write_older(Lsn(u64::MAX))?;
                Ok(PAUSE_IDLE)
            }
            Plan::Advance(limit) => {
                while began.elapsed() < TICK && self.write_older(limit)? > 0 {}
                Ok(TICK.saturating_sub(began.elapsed()))
            }
            Plan::Furious => match self.write_older(ready)? {
                // Nothing else would help, or all of it is in flight elsewhere.
                0 if self.pool.refusals.why().is_some() => Ok(TICK),
                0 => Ok(Duration::from_millis(1)),
                _ => Ok(Duration::ZERO),
            },
        }
    }

    /// Updates the growth of the log, per tick.
    fn measure(&mut self, ready: Lsn) {
        let elapsed = self.last_look.elapsed();
        if elapsed < TICK / 2 {
            return;
        }
        paranoid!(
            ready >= self.last_ready,
            "the log was published to LSN {}, and is to {ready}",
            self.last_ready
        );
        let ticks = elapsed.as_secs_f64() / TICK.as_secs_f64();
        let now = ready.0.saturating_sub(self.last_ready.0) as f64 / ticks;
        self.grown = if ready == self.last_ready {
            0.0
        } else {
            // About a second of memory; at once when it begins to grow.
            let weight = if self.grown < 1.0 {
                1.0
            } else {
                (ticks / 50.0).min(1.0)
            };
            self.grown + (now - self.grown) * weight
        };
        paranoid!(
            self.grown.is_finite() && self.grown >= 0.0,
            "the log grows by {} bytes in a tick",
            self.grown
        );
        self.last_ready = ready;
        self.last_look = Instant::now();
    }

    /// Writes one batch of pages whose oldest change is below `limit`, with their neighbours.
    /// Returns the number of pages.
    fn write_older(&mut self, limit: Lsn) -> Result<usize> {
        let pool = self.pool;
        let half = self.flusher.capacity().div_ceil(2);
        let due = pool.dirty.oldest_frames(&pool.arena, limit, half, false);
        let mut batch = self.pages_of(&due);
        self.add_neighbours(&mut batch);
        paranoid!(
            batch.len() <= self.flusher.capacity(),
            "{} pages are to go into a batch of {}",
            batch.len(),
            self.flusher.capacity()
        );
        self.write_batch(batch)
    }

    fn pages_of(&self, frames: &[u32]) -> Vec<(PageId, u32)> {
        let page = |&index: &u32| Some((self.pool.arena.frame(index).page_id()?, index));
        frames.iter().filter_map(page).collect()
    }

    /// Returns the number of pages that landed.
    fn write_batch(&mut self, mut batch: Vec<(PageId, u32)>) -> Result<usize> {
        let pool = self.pool;
        batch.sort_unstable();
        batch.dedup();
        let mut latched = Vec::new();
        for (id, index) in batch {
            if self.flusher.join(pool, index, id, false) == Join::Latched {
                latched.push((id, index));
            }
        }
        // A busy page must not hold up the checkpoint for ever: wait for its latch.
        for (id, index) in latched {
            self.flusher.join(pool, index, id, true);
        }
        let room = self.flusher.capacity();
        let written = self.flusher.write(pool)?;
        paranoid!(
            written.pages <= room,
            "{} pages of a batch of {room} landed",
            written.pages
        );
        pool.refresh_age();
        Ok(written.pages)
    }

    /// Pulls in dirty pages beside those of the batch that would be due soon, in the older half of
    /// the age, so that adjacent pages go out in one write.
    fn add_neighbours(&self, batch: &mut Vec<(PageId, u32)>) {
        let pool = self.pool;
        let ready = self.last_ready;
        let oldest = pool.dirty.oldest_lsn().unwrap_or(ready);
        let soon = Lsn(oldest.0 + ready.0.saturating_sub(oldest.0) / 2);
        let take = |id: PageId| {
            let index = pool.table.hint(&pool.arena, id)?;
            let frame = pool.arena.frame(index);
            let due = frame.oldest_lsn()? <= soon
                && !frame.flushing.load(Ordering::Relaxed)
                && !frame.refused.load(Ordering::Relaxed);
            due.then_some((id, index))
        };
        for (id, _) in batch.clone() {
            for step in [1, u32::MAX] {
                let mut page = id.page.0;
                for _ in 0..NEIGHBOURS_MAX {
                    page = page.wrapping_add(step);
                    let neighbour = take(PageId::new(id.space, PageNo(page)));
                    match neighbour {
                        Some(found) if batch.len() < self.flusher.capacity() => batch.push(found),
                        _ => break,
                    }
                }
            }
        }
    }
}

impl Inner {
    /// Looks at the age exactly, and notes for the cheap look of `throttle` where the log may grow
    /// to. The cleaner does this each [`TICK`], so that a capacity that has changed is noticed.
    pub(crate) fn refresh_age(&self) -> (Lsn, Option<Lsn>) {
        // In this order: see `dirty.rs`.
        let ready = self.log.ready_lsn();
        let oldest = self.oldest_lsn();
        let bound = oldest.map_or(ready, |oldest| oldest.min(ready));
        let from = bound.0 + self.log.capacity_bytes() / 4 * 3;
        self.throttle_from.store(from, Ordering::Relaxed);
        (ready, oldest)
    }

    /// Age / capacity, exactly.
    fn fill(&self) -> f64 {
        let (ready, oldest) = self.refresh_age();
        let age = oldest.map_or(0, |oldest| ready.0.saturating_sub(oldest.0));
        age as f64 / self.log.capacity_bytes() as f64
    }

    #[inline]
    pub(crate) fn throttle(&self) -> Result<()> {
        if self.log.reserved_lsn().0 < self.throttle_from.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.throttle_slow()
    }

    #[cold]
    fn throttle_slow(&self) -> Result<()> {
        self.check()?;
        let fill = self.fill();
        if fill < 0.75 || !self.has_threads.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.counters.add(Counter::CheckpointWaits, 1);
        let timing = self.counters.time(Timed::LogSpaceWait);
        self.cleaning.raise();
        match delay(fill) {
            Some(time) if time < Duration::from_micros(50) => return self.check(),
            Some(time) => {
                thread::sleep(time);
                return self.check();
            }
            None => {}
        }
        let checkpoint = || self.oldest_lsn().map_or(0, |lsn| lsn.0);
        let mut patience = Patience::new(self, checkpoint());
        let mut given_up = None;
        self.flights.wait_until(|| {
            let stuck = self.late.get().and_then(|late| late.stuck());
            given_up = patience.end(self, checkpoint()).or(stuck);
            self.check().is_err() || given_up.is_some() || delay(self.fill()).is_some()
        });
        drop(timing);
        self.check()?;
        // The log cannot be freed while a page cannot be written: the wait might never end.
        match (delay(self.fill()), given_up) {
            (None, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }
}
