//! Mutex, reader-writer locks and condition variable of `parking_lot`, with a clock.

use super::held::{Hold, Users};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
use std::any::type_name;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// What a hold excludes.
const ALL: bool = true;
const WRITERS: bool = false;

/// Holds a lock in one of its modes.
#[derive(Debug)]
pub struct Held<G> {
    /// None when it is dropped.
    inner: Option<G>,
    hold: Hold,
}

impl<G> Held<G> {
    /// Takes a lock: `at_once`, or by `wait`.
    #[track_caller]
    fn take<T: ?Sized>(
        users: &Users,
        exclusive: bool,
        at_once: Option<G>,
        wait: impl FnOnce() -> G,
    ) -> Self {
        let waited = at_once.is_none();
        let inner = at_once.unwrap_or_else(wait);
        Self {
            inner: Some(inner),
            hold: Hold::begin(users, type_name::<T>(), exclusive, waited),
        }
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
        let nanos = self.hold.nanos();
        drop(self.inner.take());
        self.hold.ended(nanos);
    }
}

/// `parking_lot::Mutex`, timed.
#[derive(Default)]
pub struct Mutex<T> {
    users: Users,
    inner: parking_lot::Mutex<T>,
}

/// Holds a [`Mutex`].
pub type MutexGuard<'a, T> = Held<parking_lot::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// A mutex that is free.
    pub const fn new(value: T) -> Self {
        Self {
            users: Users::none(),
            inner: parking_lot::Mutex::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    /// Waits until it is free.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        Held::take::<T>(&self.users, ALL, self.inner.try_lock(), || {
            self.inner.lock()
        })
    }

    /// Takes it if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(Held::take::<T>(&self.users, ALL, Some(inner), || {
            self.inner.lock()
        }))
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// `parking_lot::RwLock`, timed.
#[derive(Default)]
pub struct RwLock<T> {
    users: Users,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self {
            users: Users::none(),
            inner: parking_lot::RwLock::new(value),
        }
    }

    /// Waits until there is no writer.
    #[track_caller]
    pub fn read(&self) -> Held<RwLockReadGuard<'_, T>> {
        Held::take::<T>(&self.users, WRITERS, self.inner.try_read(), || {
            self.inner.read()
        })
    }

    /// Takes it for reading if there is no writer.
    #[track_caller]
    pub fn try_read(&self) -> Option<Held<RwLockReadGuard<'_, T>>> {
        let inner = self.inner.try_read()?;
        Some(Held::take::<T>(&self.users, WRITERS, Some(inner), || {
            self.inner.read()
        }))
    }

    /// Waits until there is no reader or writer.
    #[track_caller]
    pub fn write(&self) -> Held<RwLockWriteGuard<'_, T>> {
        Held::take::<T>(&self.users, ALL, self.inner.try_write(), || {
            self.inner.write()
        })
    }

    /// Takes it for writing if there is no reader or writer.
    #[track_caller]
    pub fn try_write(&self) -> Option<Held<RwLockWriteGuard<'_, T>>> {
        let inner = self.inner.try_write()?;
        Some(Held::take::<T>(&self.users, ALL, Some(inner), || {
            self.inner.write()
        }))
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Here a lock like others.
pub type ShardedLock<T> = RwLock<T>;

/// `parking_lot::Condvar`, which ends a hold of the mutex and begins another one.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    fn between<T, R>(
        guard: &mut MutexGuard<'_, T>,
        wait: impl FnOnce(&mut parking_lot::MutexGuard<'_, T>) -> R,
    ) -> R {
        let nanos = guard.hold.nanos();
        let result = wait(guard.inner.as_mut().expect("held"));
        guard.hold.ended(nanos);
        guard.hold = guard.hold.again();
        result
    }

    /// Lets go of the mutex until notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        Self::between(guard, |inner| self.0.wait(inner));
    }

    /// Lets go of the mutex until notified, for `timeout` at most.
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        Self::between(guard, |inner| self.0.wait_for(inner, timeout))
    }

    /// Lets go of the mutex until notified, or until `deadline`.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        Self::between(guard, |inner| self.0.wait_until(inner, deadline))
    }

    /// Lets go of the mutex as long as `condition` says so.
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
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
