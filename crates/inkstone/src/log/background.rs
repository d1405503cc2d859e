//! The thread `ink-log`: flushes about once a second the log that no commit awaits (settings 0 and
//! 2), writes early when the ring fills, keeps spare segments ready, and flushes for futures
//! ([`wakers`](super::wakers)). No commit that a thread waits for waits for it.

use super::LogShared;
use super::group::Goal;
use crate::paranoid::paranoid;
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
    serve_futures: bool,
    /// The thread has seen that it is to stop.
    stopping: bool,
}

/// What the thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Stop,
    Nudge,
    Flush,
    ServeFutures,
}

impl Orders {
    fn are_none(&self) -> bool {
        !(self.stop || self.nudge || self.flush || self.serve_futures)
    }
}

impl Background {
    /// There may be something to do: segments, or a ring that fills.
    #[inline]
    pub(super) fn nudge(&self) {
        if !self.nudged.load(Ordering::Relaxed) && !self.nudged.swap(true, Ordering::AcqRel) {
            self.order(Order::Nudge);
        }
    }

    /// Flush now rather than within a second.
    pub(super) fn request_flush(&self) {
        self.order(Order::Flush);
    }

    pub(super) fn stop(&self) {
        self.order(Order::Stop);
    }

    /// False if the thread has ended, or is about to, and will not see it.
    pub(super) fn order(&self, order: Order) -> bool {
        let is_seen = {
            let mut orders = self.orders.lock();
            paranoid!(
                orders.stop || !orders.stopping,
                "ink-log ends unasked: {orders:?}"
            );
            match order {
                Order::Stop => orders.stop = true,
                Order::Nudge => orders.nudge = true,
                Order::Flush => orders.flush = true,
                Order::ServeFutures => orders.serve_futures = true,
            }
            !orders.stopping
        };
        self.changed.notify_all();
        is_seen
    }

    /// Sleeps until there are orders, or until `deadline`.
    fn next(&self, deadline: Instant) -> Orders {
        let mut orders = self.orders.lock();
        while orders.are_none() {
            if self.changed.wait_until(&mut orders, deadline).timed_out() {
                break;
            }
        }
        self.nudged.store(false, Ordering::Release);
        let taken = *orders;
        *orders = Orders {
            stop: taken.stop,
            stopping: taken.stop,
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
        if orders.serve_futures {
            log.serve_futures();
        }
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
            self.segments.want();
            let was_unused = self.segments.is_unused();
            self.maintain(reserved)?;
            if was_unused {
                self.background.nudge();
            }
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
