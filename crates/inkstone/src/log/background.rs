//! The thread `ink-log`: flushes about once a second what nobody waits for (settings 0 and 2),
//! writes early when the ring fills, and keeps spare segments ready. No commit waits for it.

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

/// How the thread is spoken to.
#[derive(Debug, Default)]
pub(super) struct Background {
    orders: Mutex<Orders>,
    changed: Condvar,
    /// A nudge is pending: nobody needs to give another one.
    nudged: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    stop: bool,
    nudge: bool,
    flush: bool,
}

impl Background {
    /// Something may be to do: segments, or a ring that fills.
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
            // An error has poisoned the engine: everybody else will say so.
            let _ = log.background_flush(tick || orders.flush);
        }
    }
}

impl LogShared {
    fn upkeep(&self, tick: bool) {
        let reserved = self.reserved.load(Ordering::Acquire);
        // A shortage is tried again each second, as the segments that it lacks are still wanted.
        if self.segments.is_short() && !tick {
            return;
        }
        if self.segments.wants_upkeep(reserved) {
            let durable = self.durable.load(Ordering::Acquire);
            if let Err(error) = self.segments.maintain(durable, reserved)
                && self.poison.is_set()
            {
                self.fail(error);
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
