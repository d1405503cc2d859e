//! The thread `ink-behind`: writes new pages soon after they were filled and left.
//!
//! A load makes pages, fills them, and does not come back. To write them early costs nothing: each
//! is written once, without a doublewrite copy, and in long runs. To leave them to the cleaner
//! would: it begins when much of the log has gone by, and then the device, idle so far, has both to
//! keep up and to catch up.
//!
//! *Left* is a fresh page that began to be dirty, and was last changed, more than [`DISTANCE`]th of
//! the log's capacity ago. Each page is judged once, when that point passes the LSN at which it
//! began to be dirty; what is still being changed then is the cleaner's. So a page that turns out
//! not to have been left costs one write more in its life.

use super::flush::Flusher;
use super::pool::Inner;
use crate::Result;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use inkstone_format::{Lsn, PageId};
use std::time::Duration;

/// The log's capacity over the log that lies between a page and its being left.
const DISTANCE: u64 = 32;
/// How long to wait before looking again: while the log grows, while it does not, after a write
/// failed.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_IDLE: Duration = Duration::from_millis(250);
const PAUSE_REFUSED: Duration = Duration::from_millis(500);

pub(crate) struct WriteBehind<'a> {
    pool: &'a Inner,
    flusher: Flusher,
    /// Pages that began to be dirty below were judged.
    judged: Lsn,
    last_ready: Lsn,
}

impl<'a> WriteBehind<'a> {
    pub fn new(pool: &'a Inner, flusher: Flusher) -> Self {
        Self {
            pool,
            flusher,
            judged: Lsn(0),
            last_ready: pool.log.ready_lsn(),
        }
    }

    /// The thread's life: until the pool closes or is poisoned.
    pub fn run(&mut self) {
        while self.pool.check().is_ok() {
            let Ok(pause) = self.round() else { break };
            if !pause.is_zero() {
                self.pool.leaving.wait(pause);
            }
        }
    }

    /// Judges some pages and writes those that were left; returns how long to pause.
    fn round(&mut self) -> Result<Duration> {
        let pool = self.pool;
        let ready = pool.log.ready_lsn();
        let limit = Lsn(ready.0.saturating_sub(pool.log.capacity_bytes() / DISTANCE));
        let room = self.flusher.capacity();
        let due = pool.dirty.begun_between(self.judged, limit, room);
        let Some(&(last, _)) = due.last() else {
            let grows = std::mem::replace(&mut self.last_ready, ready) != ready;
            self.judged = self.judged.max(limit);
            return Ok(if grows { PAUSE } else { PAUSE_IDLE });
        };
        paranoid!(
            self.judged <= last && last < limit && due.len() <= room,
            "{} pages to LSN {last} are judged, behind {} and before {limit}",
            due.len(),
            self.judged
        );
        self.judged = Lsn(last.0 + 1);
        let new = due
            .iter()
            .map(|&(_, index)| (index, pool.arena.frame(index)));
        let new = new.filter(|(_, frame)| frame.fresh.load(Ordering::Relaxed));
        let mut batch: Vec<(PageId, u32)> = new
            .filter_map(|(index, frame)| Some((frame.page_id()?, index)))
            .collect();
        batch.sort_unstable();
        for (id, index) in batch {
            self.flusher.join_if_left(pool, index, id, limit);
        }
        match self.flusher.write(pool)?.failed {
            None => Ok(Duration::ZERO),
            // The cleaner will try them again.
            Some(_) => Ok(PAUSE_REFUSED),
        }
    }
}
