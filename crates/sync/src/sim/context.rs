//! What a thread knows of the scheduler that it runs under, if any.

use super::scheduler::Scheduler;
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::Thread;

/// What operations cost of a thread's turn.
pub(super) mod cost {
    pub const ATOMIC: i64 = 1;
    pub const LOCK: i64 = 8;
    pub const DISK: i64 = 50;
}

/// Where in the source an operation stands.
pub(super) type Place = &'static Location<'static>;

/// What lets a thread run: it has the token when `passed` says so.
#[derive(Debug, Default)]
pub(super) struct Baton {
    passed: AtomicBool,
    /// Units of the turn that begins.
    turn: AtomicI64,
}

impl Baton {
    /// Lets `thread`, whose baton this is, run.
    pub fn pass(&self, thread: &Thread, turn: i64) {
        self.turn.store(turn, Ordering::Relaxed);
        self.passed.store(true, Ordering::Release);
        thread.unpark();
    }

    fn wait(&self) -> i64 {
        while !self.passed.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
        self.turn.load(Ordering::Relaxed)
    }
}

/// A scheduled thread.
#[derive(Debug)]
pub(super) struct Context {
    pub scheduler: Arc<Scheduler>,
    pub number: usize,
    pub baton: Arc<Baton>,
}

thread_local! {
    static ME: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
    /// Whether operations of this thread are scheduled.
    static SCHEDULED: Cell<bool> = const { Cell::new(false) };
    /// Units of the present turn, and how many of them are left.
    static TURN: Cell<i64> = const { Cell::new(0) };
    static LEFT: Cell<i64> = const { Cell::new(0) };
}

/// Whether the calling thread is scheduled. Others get the real thing.
#[inline]
pub(super) fn is_scheduled() -> bool {
    SCHEDULED.get()
}

/// The calling thread's context, if it is scheduled.
pub(super) fn current() -> Option<Arc<Context>> {
    if !is_scheduled() {
        return None;
    }
    ME.try_with(|me| me.borrow().clone()).ok().flatten()
}

/// A place at which another thread may go on.
#[inline]
#[track_caller]
pub(super) fn point(cost: i64) {
    let left = LEFT.get() - cost;
    LEFT.set(left);
    if left <= 0 && SCHEDULED.get() {
        turn_is_over(Location::caller());
    }
}

#[cold]
fn turn_is_over(at: Place) {
    if let Some(me) = current() {
        me.scheduler.preempt(&me, at);
    }
}

/// Runs `f`, in which no other thread may go on: it sees a state that no other thread may see.
pub(super) fn undisturbed<T>(f: impl FnOnce() -> T) -> T {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            SCHEDULED.set(true);
        }
    }
    SCHEDULED.set(false);
    let _restore = Restore;
    f()
}

impl Context {
    /// Units since the last call, or since the turn began.
    pub fn spent(&self) -> u64 {
        let left = LEFT.get();
        let spent = TURN.replace(left) - left;
        spent.max(0) as u64
    }

    /// Begins a turn.
    pub fn begin_turn(&self, units: i64) {
        TURN.set(units);
        LEFT.set(units);
    }

    /// Waits until it is this thread's turn.
    pub fn await_turn(&self) {
        let units = self.baton.wait();
        self.begin_turn(units);
    }

    /// Makes the calling thread this one, which waits for its first turn.
    pub fn enter(self: &Arc<Self>) {
        ME.with(|me| *me.borrow_mut() = Some(self.clone()));
        self.await_turn();
        SCHEDULED.set(true);
    }

    /// From here on the calling thread is like any other.
    pub fn leave() {
        SCHEDULED.set(false);
        ME.with(|me| me.borrow_mut().take());
    }
}
