//! Scoped threads for tests: those of the standard library, and a word of their own for their end,
//! which ThreadSanitizer sees (`cargo xtask tsan`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

/// Threads of scopes that have ended.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// Where threads are started that end before [`test_scope`] returns.
pub struct TestScope<'scope, 'env>(&'scope std::thread::Scope<'scope, 'env>);

/// As `std::thread::scope`.
pub fn test_scope<'env, T>(f: impl for<'scope> FnOnce(&TestScope<'scope, 'env>) -> T) -> T {
    let result = std::thread::scope(|scope| f(&TestScope(scope)));
    ENDED.load(Ordering::Acquire);
    result
}

impl<'scope> TestScope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: Send + 'scope>(
        &self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        self.0.spawn(|| {
            let result = body();
            ENDED.fetch_add(1, Ordering::Release);
            result
        })
    }
}
