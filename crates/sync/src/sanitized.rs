//! The seam as ThreadSanitizer must see it (`--cfg inkstone_tsan`, see `cargo xtask tsan`).
//!
//! It knows of the order between two threads only by atomics and calls that were compiled for it,
//! and the standard library was not. What the engine takes from there as a lock is replaced here,
//! or told in its own words; everything else is what ordinary builds have.

pub use super::real::{
    Condvar, HashMap, HashSet, Instant, Mutex, MutexGuard, RandomState, RwLock, atomic, hint,
    parking, random_bits,
};
/// The sharded lock of ordinary builds consists of the standard library's locks.
pub use parking_lot::RwLock as ShardedLock;

use atomic::{AtomicBool, Ordering};

/// A value that is written once. Its own word says to readers that it was written.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    writing: Mutex<()>,
    written: AtomicBool,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        let clone = Self::new();
        if let Some(value) = self.get() {
            let _ = clone.set(value.clone());
        }
        clone
    }
}

impl<T> OnceLock<T> {
    /// Not yet written.
    pub fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            writing: Mutex::new(()),
            written: AtomicBool::new(false),
        }
    }

    /// The value, if it was written.
    pub fn get(&self) -> Option<&T> {
        let written = self.written.load(Ordering::Acquire);
        written.then(|| self.value.get()).flatten()
    }

    /// Writes the value; gives it back if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _writing = self.writing.lock();
        let result = self.value.set(value);
        self.written.store(true, Ordering::Release);
        result
    }

    /// The value; writes what `f` gives if there is none.
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        let _writing = self.writing.lock();
        let value = self.value.get_or_init(f);
        self.written.store(true, Ordering::Release);
        value
    }
}

/// Threads of the operating system, and a word of their own for the end of a scope's threads.
pub mod thread {
    pub use super::super::real::thread::{
        JoinHandle, Thread, available_parallelism, current, number, panicking, sleep, spawn,
        yield_now,
    };

    use std::io::Result;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::Builder;

    /// Threads of scopes that have ended.
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    /// Where threads are started that end before [`scope`] returns.
    #[derive(Debug)]
    pub struct Scope<'scope, 'env>(&'scope std::thread::Scope<'scope, 'env>);

    /// Lets `f` start threads that borrow what the caller has, and waits for their ends.
    pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
        let result = std::thread::scope(|scope| f(&Scope(scope)));
        ENDED.load(Ordering::Acquire);
        result
    }

    impl<'scope> Scope<'scope, '_> {
        /// Starts a thread.
        pub fn spawn(
            &self,
            name: impl Into<String>,
            body: impl FnOnce() + Send + 'scope,
        ) -> Result<()> {
            let body = || {
                body();
                ENDED.fetch_add(1, Ordering::Release);
            };
            let builder = Builder::new().name(name.into());
            builder.spawn_scoped(self.0, body).map(drop)
        }
    }
}
