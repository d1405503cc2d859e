//! Mutex, reader-writer lock and condition variable under the scheduler.
//!
//! Each holds the real thing, which scheduled threads only ever try: as one of them runs at a time,
//! it tells which thread holds it, and the scheduler keeps the waiters. Threads that are not
//! scheduled use the real thing as it is. The two kinds cannot wait for each other: they must not
//! share a lock at the same time.

use super::clock::Instant;
use super::context::{Context, cost, current, is_scheduled, point};
use super::scheduler::{Key, Wait, Woken};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

fn address<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

/// Takes a lock by `attempt`, or waits until it was released.
#[track_caller]
fn take<G>(me: &Context, key: usize, attempt: impl Fn() -> Option<G>) -> G {
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        let wait = Wait {
            key: Key::Lock(key),
            deadline: None,
            token: 0,
            at: Location::caller(),
        };
        me.scheduler.block(me, wait);
    }
}

/// Lets all waiters for the lock at `key`, which is free, try again.
fn let_go(key: usize) {
    if let Some(me) = current() {
        me.scheduler.state().wake_all(Key::Lock(key), 0);
    }
}

/// `parking_lot::Mutex`, scheduled.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

/// Holds a [`Mutex`].
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// None while it waits for a condition variable, and when it is dropped.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A mutex that is free.
    pub const fn new(value: T) -> Self {
        Self {
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard<'a>(&'a self, inner: parking_lot::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            lock: self,
            inner: Some(inner),
        }
    }

    fn key(&self) -> usize {
        address(&self.inner)
    }

    /// Waits until it is free.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        point(cost::LOCK);
        match current() {
            Some(me) => self.guard(take(&me, self.key(), || self.inner.try_lock())),
            None => self.guard(self.inner.lock()),
        }
    }

    /// Takes it if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        point(cost::LOCK);
        self.inner.try_lock().map(|inner| self.guard(inner))
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        if is_scheduled() {
            let_go(self.lock.key());
            point(cost::LOCK);
        }
    }
}

/// `parking_lot::RwLock`, scheduled.
#[derive(Default)]
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
}

/// Holds an [`RwLock`] in one of its modes.
pub struct Held<G> {
    key: usize,
    inner: Option<G>,
}

/// Holds an [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = Held<parking_lot::RwLockReadGuard<'a, T>>;

/// Holds an [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = Held<parking_lot::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self {
            inner: parking_lot::RwLock::new(value),
        }
    }

    /// Waits until there is no writer.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        point(cost::LOCK);
        let key = address(&self.inner);
        let inner = match current() {
            Some(me) => take(&me, key, || self.inner.try_read()),
            None => self.inner.read(),
        };
        Held {
            key,
            inner: Some(inner),
        }
    }

    /// Takes it for reading if there is no writer.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        point(cost::LOCK);
        let key = address(&self.inner);
        let inner = Some(self.inner.try_read()?);
        Some(Held { key, inner })
    }

    /// Takes it for writing if there is no reader or writer.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        point(cost::LOCK);
        let key = address(&self.inner);
        let inner = Some(self.inner.try_write()?);
        Some(Held { key, inner })
    }

    /// Waits until there is no reader or writer.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        point(cost::LOCK);
        let key = address(&self.inner);
        let inner = match current() {
            Some(me) => take(&me, key, || self.inner.try_write()),
            None => self.inner.write(),
        };
        Held {
            key,
            inner: Some(inner),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        self.inner.as_ref().expect("held")
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.inner.as_mut().expect("held")
    }
}

impl<G> Drop for Held<G> {
    fn drop(&mut self) {
        self.inner = None;
        if is_scheduled() {
            let_go(self.key);
            point(cost::LOCK);
        }
    }
}

/// Under the scheduler a lock like others.
pub type ShardedLock<T> = RwLock<T>;

/// Whether a wait ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// `parking_lot::Condvar`, scheduled; `notify_one` wakes any one waiter.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self {
            inner: parking_lot::Condvar::new(),
        }
    }

    fn key(&self) -> Key {
        Key::Condvar(address(&self.inner))
    }

    #[track_caller]
    fn wait_scheduled<T>(
        &self,
        me: &Context,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<u64>,
    ) -> WaitTimeoutResult {
        // No other thread runs between letting go and waiting.
        guard.inner = None;
        let_go(guard.lock.key());
        let wait = Wait {
            key: self.key(),
            deadline,
            token: 0,
            at: Location::caller(),
        };
        let woken = me.scheduler.block(me, wait);
        let key = guard.lock.key();
        guard.inner = Some(take(me, key, || guard.lock.inner.try_lock()));
        WaitTimeoutResult(woken == Woken::TimedOut)
    }

    /// Lets go of the mutex until notified.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match current() {
            Some(me) => drop(self.wait_scheduled(&me, guard, None)),
            None => self.inner.wait(guard.inner.as_mut().expect("held")),
        }
    }

    /// Lets go of the mutex until notified, for `timeout` at most.
    #[track_caller]
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        match current() {
            Some(me) => {
                let deadline = Instant::now() + timeout;
                self.wait_scheduled(&me, guard, Some(deadline.nanos()))
            }
            None => {
                let guard = guard.inner.as_mut().expect("held");
                WaitTimeoutResult(self.inner.wait_for(guard, timeout).timed_out())
            }
        }
    }

    /// Lets go of the mutex until notified, or until `deadline`.
    #[track_caller]
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        match current() {
            Some(me) => self.wait_scheduled(&me, guard, Some(deadline.nanos())),
            None => {
                let guard = guard.inner.as_mut().expect("held");
                let waited = self.inner.wait_until(guard, deadline.real());
                WaitTimeoutResult(waited.timed_out())
            }
        }
    }

    /// Lets go of the mutex as long as `condition` says so.
    #[track_caller]
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        self.inner.notify_one();
        if let Some(me) = current() {
            me.scheduler.state().wake_any(self.key(), 0);
            point(cost::LOCK);
        }
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        self.inner.notify_all();
        if let Some(me) = current() {
            me.scheduler.state().wake_all(self.key(), 0);
            point(cost::LOCK);
        }
    }
}
