//! The thread `ink-log`: flushes about once a second the log that no commit awaits (settings 0 and
//! 2), writes early when the ring fills, and keeps spare segments ready. No commit waits for it.

use super::LogShared;
use super::group::Goal;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Instant, Mutex};
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Orders to the thread.
#[derive(Debug, Default)]
pub(super) struct Background {
    orders: Mutex<Orders>,
    changed: Condvar,
    /// A nudge is pending: no other one is needed.
    nudged: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    stop: bool,
    nudge: bool,
    flush: bool,
}

impl Background {
    /// There may be something to do: segments, or a ring that fills.
    #[inline]
    pub(super) fn nudge(&self) {
        if !self.nudged.load(Ordering::Relaxed) && !self.nudged.swap(true, Ordering::AcqRel) {
            self.order(|orders| orders.nudge = true);
        }
    }

    /// Flush now rather than within a second.
    pub(super) fn request_flush(&self) {
        self.order(|orders| orders.flush = true);
    }

    pub(super) fn stop(&self) {
        self.order(|orders| orders.stop = true);
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock());
        self.changed.notify_all();
    }

    /// Sleeps until there are orders, or until `deadline`.
    fn next(&self, deadline: Instant) -> Orders {
        let mut orders = self.orders.lock();
        while !(orders.stop || orders.nudge || orders.flush) {
            if self.changed.wait_until(&mut orders, deadline).timed_out() {
                break;
            }
        }
        self.nudged.store(false, Ordering::Release);
        let taken = *orders;
        *orders = Orders {
            stop: taken.stop,
            ..Orders::default()
        };
        taken
    }
}

/// Starts the thread.
pub(super) fn start(shared: Arc<LogShared>, dir: &Path) -> Result<JoinHandle<()>> {
    thread::spawn("ink-log", move || run(&shared))
        .map_err(|e| Error::io("start the thread ink-log for", dir, e))
}

fn run(log: &LogShared) {
    let mut next_flush = Instant::now() + FLUSH_EVERY;
    loop {
        let orders = log.background.next(next_flush);
        if orders.stop {
            return;
        }
        let now = Instant::now();
        let tick = now >= next_flush;
        if tick {
            next_flush = now + FLUSH_EVERY;
        }
        if !log.poison.is_set() {
            log.upkeep(tick);
            // An error has poisoned the engine: other threads will report it.
            let _ = log.background_flush(tick || orders.flush);
        }
    }
}

impl LogShared {
    fn upkeep(&self, tick: bool) {
        let reserved = self.reserved.load(Ordering::Acquire);
        if tick && self.segments.has_reserve_surplus(reserved) {
            // A file that cannot be removed does no harm.
            let _ = self.segments.trim(reserved);
        }
        // A shortage is tried again each second, as what it lacks is still wanted.
        if self.segments.is_short() && !tick && !self.segments.can_recycle() {
            return;
        }
        if self.segments.wants_upkeep(reserved) {
            // A thread that needs what cannot be made gets the error.
            let _ = self.maintain(reserved);
        }
    }

    fn maintain(&self, reserved: u64) -> Result<()> {
        let durable = self.durable.load(Ordering::Acquire);
        self.segments.maintain(durable, reserved).map_err(|error| {
            if self.poison.is_set() {
                self.fail(error)
            } else {
                error
            }
        })
    }

    /// Makes what the promises to rollbacks lack, or says why that cannot be. While the disk is
    /// known to be full only the background thread asks it again.
    #[cold]
    pub(super) fn make_room(&self) -> Result<()> {
        loop {
            self.poison.check()?;
            let reserved = self.reserved.load(Ordering::Acquire);
            if self.segments.has_room(reserved) {
                return Ok(());
            }
            if self.segments.is_short()
                && let Some(error) = self.segments.shortage()
            {
                self.background.nudge();
                return Err(error);
            }
            self.maintain(reserved)?;
            let reserved = self.reserved.load(Ordering::Acquire);
            if !self.segments.has_room(reserved) && !self.segments.wants_upkeep(reserved) {
                self.full.call();
                return Err(self.segments.used_up());
            }
        }
    }

    fn background_flush(&self, everything: bool) -> Result<()> {
        let ready = self.ring.advance_ready();
        if everything {
            return self.wait(ready, Goal::Durable);
        }
        let unwritten = ready.saturating_sub(self.written.load(Ordering::Acquire));
        if unwritten > self.ring.capacity() / 8 {
            return self.wait(ready, Goal::Written);
        }
        Ok(())
    }
}
