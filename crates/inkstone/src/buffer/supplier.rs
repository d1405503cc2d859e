//! The threads `ink-frames`: keep a stock of free frames ahead of demand.
//!
//! They do nothing else: whatever the checkpoint needs, frames come from here, each thread with a
//! page writer of its own (a frame supply that waited for checkpoint flushing is InnoDB's oldest
//! stall). Clean cold pages are evicted at once. Dirty cold ones are gathered; they are written
//! when they fill half a batch, or earlier when clean ones do not suffice.

use super::evict::Visit;
use super::flush::{BATCH_PAGES_MAX, Flusher, Join};
use super::pool::Inner;
use crate::Result;
use crate::paranoid::paranoid;
use inkstone_format::PageId;
use std::time::Duration;

/// Frames that one round looks at, at most.
const VISITS_MAX: usize = 1 << 16;
/// Revolutions after which even the hottest unused page is cold.
const REVOLUTIONS_MAX: usize = 5;
/// How long to wait when everything was latched.
const PAUSE_BUSY: Duration = Duration::from_millis(2);
/// And how long when there are refused pages.
const PAUSE_REFUSED: Duration = Duration::from_millis(20);
/// How long to sleep when nothing is wanted (the signal ends it).
const PAUSE_IDLE: Duration = Duration::from_secs(1);

/// Threads for a pool of so many frames. A batch waits for the device four times, one after the
/// other (copies, their sync, the pages in place, their sync), and each time behind whatever the
/// clients read; or its pages are compressed before. The more clients read, the fewer frames one
/// thread supplies. In a small pool the batch of one thread is a large part of it already.
pub(crate) fn threads_for(frames: usize) -> usize {
    match frames / BATCH_PAGES_MAX {
        0..8 => 1,
        8..16 => 2,
        16.. => 3,
    }
}

pub(crate) struct Supplier<'a> {
    pool: &'a Inner,
    flusher: Flusher,
    cold_dirty: Vec<(PageId, u32)>,
}

impl<'a> Supplier<'a> {
    pub fn new(pool: &'a Inner, flusher: Flusher) -> Self {
        Self {
            pool,
            flusher,
            cold_dirty: Vec::new(),
        }
    }

    /// The thread's life: until the pool closes or is poisoned.
    pub fn run(&mut self) {
        while self.pool.check().is_ok() {
            let Ok(done) = self.round() else { break };
            let pause = match done {
                _ if self.is_stocked() => PAUSE_IDLE,
                0 if self.pool.refusals.why().is_some() => PAUSE_REFUSED,
                0 => PAUSE_BUSY,
                _ => continue,
            };
            self.pool.supply.wait(pause);
        }
        if let Err(error) = self.pool.check() {
            self.pool.free.set_error(error);
        }
    }

    fn is_stocked(&self) -> bool {
        self.pool.free.count() >= self.demand(self.pool.stock_low)
    }

    /// A level of stock, and a frame for each waiter; never more than a quarter of the pool, or a
    /// waiter that is slow to wake would cost the pool its pages.
    fn demand(&self, stock: usize) -> usize {
        (stock + self.pool.free.waiting()).min(self.pool.arena.len() / 4)
    }

    /// Brings the stock from low to full, as far as one turn of the clock and one batch can.
    /// Returns the frames freed or pages written: 0 means that nothing could be done.
    fn round(&mut self) -> Result<usize> {
        if self.is_stocked() {
            return Ok(0);
        }
        let looking = self.pool.refusals.begin_supply();
        let mut done = self.sweep();
        let short = !self.is_stocked();
        if short || self.cold_dirty.len() * 2 >= self.flusher.capacity() {
            done += self.write_cold()?;
        }
        if done == 0 {
            looking.was_fruitless();
        }
        Ok(done)
    }

    fn sweep(&mut self) -> usize {
        let pool = self.pool;
        let visits = (REVOLUTIONS_MAX * pool.arena.len()).min(VISITS_MAX);
        let mut freed = 0;
        for _ in 0..visits {
            let stocked = pool.free.count() >= self.demand(pool.stock_full);
            if stocked || self.cold_dirty.len() == self.flusher.capacity() {
                break;
            }
            match pool.visit_next() {
                Visit::Nothing => {}
                Visit::ColdDirty(index, id) => self.cold_dirty.push((id, index)),
                Visit::Evicted(index) => {
                    pool.free.push(index, pool.arena.frame(index));
                    freed += 1;
                }
            }
        }
        paranoid!(
            self.cold_dirty.len() <= self.flusher.capacity(),
            "{} cold pages were gathered for a batch of {}",
            self.cold_dirty.len(),
            self.flusher.capacity()
        );
        freed
    }

    /// Writes the gathered pages and evicts those that are still cold.
    fn write_cold(&mut self) -> Result<usize> {
        let pool = self.pool;
        let mut cold = std::mem::take(&mut self.cold_dirty);
        cold.sort_unstable();
        cold.dedup();
        cold.retain(|&(id, index)| {
            let join = self.flusher.join(pool, index, id, false);
            matches!(join, Join::Taken | Join::Clean)
        });
        let written = self.flusher.write(pool)?;
        let mut freed = 0;
        for (id, index) in cold.drain(..) {
            if pool.try_evict(index, id) {
                pool.free.push(index, pool.arena.frame(index));
                freed += 1;
            }
        }
        self.cold_dirty = cold;
        Ok(written.pages + freed)
    }
}
