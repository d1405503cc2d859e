//! The seam as ordinary builds have it: the operating system's threads, `parking_lot`'s locks.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
pub use std::collections::{HashMap, HashSet};
pub use std::hash::RandomState;
pub use std::hint;
pub use std::sync::atomic;
pub use std::time::Instant;

use crossbeam_utils::sync::{ShardedLockReadGuard, ShardedLockWriteGuard};
use std::hash::{BuildHasher, Hasher};
use std::sync::PoisonError;

/// Bits that cannot be foretold, from the operating system.
pub fn random_bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A lock for what is read all the time and hardly ever changed: readers on different processors do
/// not share a cache line. A panic of a holder changes nothing.
#[derive(Debug)]
pub struct ShardedLock<T>(crossbeam_utils::sync::ShardedLock<T>);

impl<T> ShardedLock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self(crossbeam_utils::sync::ShardedLock::new(value))
    }

    /// Waits until there is no writer.
    #[inline]
    pub fn read(&self) -> ShardedLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is no reader or writer.
    #[inline]
    pub fn write(&self) -> ShardedLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads of the operating system.
pub mod thread {
    pub use std::thread::{
        JoinHandle, Thread, available_parallelism, current, panicking, sleep, yield_now,
    };

    use std::cell::Cell;
    use std::io::Result;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::Builder;

    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// A number for the calling thread; threads are dealt them in turn, from 0.
    #[inline]
    pub fn number() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        })
    }

    /// Starts a thread.
    pub fn spawn<T: Send + 'static>(
        name: impl Into<String>,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>> {
        Builder::new().name(name.into()).spawn(body)
    }

    /// Where threads are started that end before [`scope`] returns.
    #[derive(Debug)]
    pub struct Scope<'scope, 'env>(&'scope std::thread::Scope<'scope, 'env>);

    /// Lets `f` start threads that borrow what the caller has, and waits for their ends.
    pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
        std::thread::scope(|scope| f(&Scope(scope)))
    }

    impl<'scope> Scope<'scope, '_> {
        /// Starts a thread.
        pub fn spawn(
            &self,
            name: impl Into<String>,
            body: impl FnOnce() + Send + 'scope,
        ) -> Result<()> {
            let builder = Builder::new().name(name.into());
            builder.spawn_scoped(self.0, body).map(drop)
        }
    }
}

/// Waiting at an address, for locks whose whole state is a word of their own.
pub mod parking {
    pub use super::super::parked::{Choice, Woken};
    pub use parking_lot_core::SpinWait;

    use parking_lot_core::{FilterOp, ParkResult, ParkToken, UnparkToken};

    /// Queues the calling thread at `key` and lets it sleep, if `validate` says so; the queue does
    /// not move while it is asked. Others see `token`. Returns the waker's token, or `None` if it
    /// did not sleep.
    ///
    /// # Safety
    ///
    /// `key` is the address of something of the caller's, at which no other code parks. `validate`
    /// neither panics nor uses a lock or this module.
    pub unsafe fn park(key: usize, token: usize, validate: impl FnOnce() -> bool) -> Option<usize> {
        // SAFETY: the caller's promises are those that are asked for here.
        let parked = unsafe {
            parking_lot_core::park(key, validate, || {}, |_, _| {}, ParkToken(token), None)
        };
        match parked {
            ParkResult::Unparked(UnparkToken(token)) => Some(token),
            ParkResult::Invalid | ParkResult::TimedOut => None,
        }
    }

    /// Wakes the thread that has been parked longest.
    ///
    /// # Safety
    ///
    /// As for [`park`].
    pub unsafe fn unpark_one(key: usize, token: usize) {
        // SAFETY: the caller's promises are those that are asked for here.
        unsafe { parking_lot_core::unpark_one(key, |_| UnparkToken(token)) };
    }

    /// Wakes all parked threads.
    ///
    /// # Safety
    ///
    /// As for [`park`].
    pub unsafe fn unpark_all(key: usize, token: usize) {
        // SAFETY: the caller's promises are those that are asked for here.
        unsafe { parking_lot_core::unpark_all(key, UnparkToken(token)) };
    }

    /// Wakes the threads that `choose` picks by their tokens, from the one that has been parked
    /// longest. `settle` gives the token that they get; the queue has not moved since they were
    /// chosen.
    ///
    /// # Safety
    ///
    /// As for [`park`], also for `choose` and `settle`.
    pub unsafe fn unpark_filter(
        key: usize,
        mut choose: impl FnMut(usize) -> Choice,
        settle: impl FnOnce(Woken) -> usize,
    ) {
        let filter = |token: ParkToken| match choose(token.0) {
            Choice::Wake => FilterOp::Unpark,
            Choice::Stop => FilterOp::Stop,
        };
        let callback = |result: parking_lot_core::UnparkResult| {
            UnparkToken(settle(Woken {
                count: result.unparked_threads,
                more: result.have_more_threads,
                be_fair: result.be_fair,
            }))
        };
        // SAFETY: the caller's promises are those that are asked for here.
        unsafe { parking_lot_core::unpark_filter(key, filter, callback) };
    }
}
