//! Threads of shuttle.

pub use shuttle::thread::{JoinHandle, Thread, current, yield_now};
pub use std::thread::panicking;

use std::cell::Cell;
use std::io::Result;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Lets the others go on. (Shuttle's own is a mere point of the schedule: a scheduler with
/// priorities may let a thread that looks, sleeps and looks again run for ever.)
pub fn sleep(_: Duration) {
    yield_now();
}

shuttle::thread_local! {
    static NUMBER: Cell<usize> = Cell::new(usize::MAX);
}

shuttle::lazy_static! {
    static ref NEXT: AtomicUsize = AtomicUsize::new(0);
}

/// A number for the calling thread; threads are dealt them in turn, from 0.
pub fn number() -> usize {
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Two, so that there is something to interleave.
pub fn available_parallelism() -> Result<NonZeroUsize> {
    Ok(NonZeroUsize::MIN.saturating_add(1))
}

/// Starts a thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    shuttle::thread::Builder::new()
        .name(name.into())
        .spawn(body)
}

/// Where threads are started that end before [`scope`] returns.
#[derive(Debug)]
pub struct Scope<'scope, 'env>(&'scope shuttle::thread::Scope<'scope, 'env>);

/// Lets `f` start threads that borrow what the caller has, and waits for their ends.
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    shuttle::thread::scope(|scope| f(Scope(scope)))
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn(
        &self,
        name: impl Into<String>,
        body: impl FnOnce() + Send + 'scope,
    ) -> Result<()> {
        let _ = name.into();
        self.0.spawn(body);
        Ok(())
    }
}
