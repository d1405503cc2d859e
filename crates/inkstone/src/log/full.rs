//! Threads that wait until the log has room again, and the one that makes it: each checkpoint lets
//! segments be used again.
//!
//! # Promises
//! 1. A call for a checkpoint that is made while `ink-checkpoint` is at one is answered by another
//!    one. Tested by `a_call_during_a_checkpoint_is_answered`.
//! 2. A thread that waits for room looks again when any was made. Tested by
//!    `the_log_is_no_longer_than_its_size`.

use crate::Error;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Full {
    /// A checkpoint is called for, and none has begun since.
    called: Mutex<bool>,
    call: Condvar,
    /// Times that the thread has come back for a call: checkpoints that are over.
    rounds: AtomicU64,
    /// Why the last one failed.
    failure: Mutex<Option<Error>>,
    /// Whether there is a thread that answers, or will as soon as it runs.
    is_heard: AtomicBool,
    waiting: AtomicUsize,
    room: Mutex<()>,
    made: Condvar,
}

impl Full {
    /// Asks for a checkpoint. False: no thread would write one.
    pub fn call(&self) -> bool {
        if !self.is_heard.load(Ordering::Acquire) {
            return false;
        }
        let mut called = self.called.lock();
        if !*called {
            *called = true;
            self.call.notify_one();
        }
        true
    }

    /// From now on calls are answered.
    pub fn listen(&self) {
        self.is_heard.store(true, Ordering::Release);
    }

    /// Waits for a call; whether there was one.
    pub fn next_call(&self, at_most: Duration) -> bool {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        let mut called = self.called.lock();
        if !*called {
            self.call.wait_for(&mut called, at_most);
        }
        std::mem::take(&mut *called)
    }

    /// A number that grows with each checkpoint that is over, whether it has made room or not.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// How the last round has ended.
    pub fn set_failure(&self, failure: Option<Error>) {
        *self.failure.lock() = failure;
    }

    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Calls are not answered any more. Lets a wait for one end.
    pub fn stop(&self) {
        self.is_heard.store(false, Ordering::Release);
        *self.called.lock() = true;
        self.call.notify_all();
    }

    /// Room was made.
    pub fn announce(&self) {
        // Either the waiter's last look sees the room, or we see the waiter.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            drop(self.room.lock());
            self.made.notify_all();
        }
    }

    /// Waits until room was made, unless `has_room`, which is asked first.
    pub fn wait(&self, at_most: Duration, has_room: impl FnOnce() -> bool) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut room = self.room.lock();
        fence(Ordering::SeqCst);
        if !has_room() {
            self.made.wait_for(&mut room, at_most);
        }
        drop(room);
        let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed);
        paranoid!(waiting > 0, "a waiter for room was not counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_during_a_checkpoint_is_answered() {
        let full = Full::default();
        let none = Duration::ZERO;
        assert!(!full.call(), "no thread listens");
        // The thread may run late.
        full.listen();
        assert!(full.call());
        assert!(full.next_call(none));
        assert!(!full.next_call(none));
        assert!(full.call() && full.call());
        assert!(full.next_call(Duration::from_secs(60)));
        // The checkpoint goes on, and is called for again.
        assert!(full.call());
        assert!(full.next_call(Duration::from_secs(60)));
        assert!(!full.next_call(none));
        full.stop();
        assert_eq!(full.rounds(), 5);
        assert!(full.next_call(none), "its last round");
        assert!(!full.call());
    }
}
