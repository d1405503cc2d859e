//! Two small ways to wait: a signal for background threads, and news for many.

use super::free::WAIT_SLICE;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};
use std::time::Duration;

/// Calls one of the background threads that wait for it, whichever; and, once, all of them for
/// good.
///
/// 1. A call is answered by a thread that looks at its work after the call: one that was asleep, or
///    one that was awake and does not fall asleep before. Calling again before it was answered
///    costs a fence and a load.
/// 2. After [`Signal::end`] no thread sleeps: a sleeping one, and one that would sleep, goes on at
///    once.
#[derive(Default)]
pub(crate) struct Signal {
    raised: AtomicBool,
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Signal {
    /// Lets one thread's present or next wait end.
    pub fn raise(&self) {
        // Either the thread that takes the signal down sees why we call, or we see that it is down.
        fence(Ordering::SeqCst);
        if !self.raised.load(Ordering::Relaxed) && !self.raised.swap(true, Ordering::SeqCst) {
            drop(self.ended.lock());
            self.wake.notify_one();
        }
    }

    /// Lets every present wait end, and every later one at once.
    pub fn end(&self) {
        *self.ended.lock() = true;
        self.wake.notify_all();
    }

    /// Waits until the signal is raised or the time is over, and takes it down.
    pub fn wait(&self, at_most: Duration) {
        let mut ended = self.ended.lock();
        if !*ended && !self.raised.load(Ordering::SeqCst) {
            self.wake.wait_for(&mut ended, at_most);
        }
        self.raised.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
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
    /// Lets every waiter look again.
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
        let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed);
        paranoid!(waiting > 0, "a waiter was not counted");
    }
}
