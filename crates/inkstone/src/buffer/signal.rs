//! Two small ways to wait: a signal for one background thread, and news for many.

use super::free::WAIT_SLICE;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};
use std::time::Duration;

/// Wakes a background thread: one of those that wait for it. Raising it again before it was seen costs one load.
#[derive(Default)]
pub(crate) struct Signal {
    raised: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Signal {
    /// Lets the thread's present or next wait end.
    pub fn raise(&self) {
        if !self.raised.load(Ordering::Relaxed) && !self.raised.swap(true, Ordering::SeqCst) {
            drop(self.lock.lock());
            self.wake.notify_one();
        }
    }

    /// Waits until the signal is raised or the time is over, and takes it down.
    pub fn wait(&self, at_most: Duration) {
        let mut lock = self.lock.lock();
        if !self.raised.load(Ordering::SeqCst) {
            self.wake.wait_for(&mut lock, at_most);
        }
        self.raised.store(false, Ordering::SeqCst);
    }
}

/// Tells many threads that something has moved on.
#[derive(Default)]
pub(crate) struct News {
    waiting: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl News {
    /// Lets everyone who waits look again.
    pub fn announce(&self) {
        // Either the waiter's last look sees what moved, or we see the waiter.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            drop(self.lock.lock());
            self.wake.notify_all();
        }
    }

    /// Waits until `done` (which is asked after every announcement, and now and then) says so.
    pub fn wait_until(&self, mut done: impl FnMut() -> bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        loop {
            let mut lock = self.lock.lock();
            fence(Ordering::SeqCst);
            if done() {
                break;
            }
            self.wake.wait_for(&mut lock, WAIT_SLICE);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
