//! Locks of shuttle with the interface of `parking_lot`: a panic of a holder changes nothing.

use super::{Instant, SOON};
use shuttle::sync as model;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

/// One holder at a time.
#[derive(Debug, Default)]
pub struct Mutex<T>(model::Mutex<T>);

/// Proof that the lock is held.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    lock: &'a model::Mutex<T>,
    /// Absent only while a condition variable waits.
    held: Option<model::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(model::Mutex::new(value))
    }

    /// Waits until it is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard {
            lock: &self.0,
            held: Some(held),
        }
    }

    /// Takes it if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = self.0.try_lock().ok()?;
        Some(MutexGuard {
            lock: &self.0,
            held: Some(held),
        })
    }

    /// The value of a lock that no other thread knows.
    #[allow(dead_code, reason = "part of the seam")]
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held outside of a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held outside of a wait")
    }
}

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    #[allow(dead_code, reason = "part of the seam")]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// Threads that wait for a change of what a lock guards.
#[derive(Debug, Default)]
pub struct Condvar(model::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(model::Condvar::new())
    }

    /// Lets the lock go until there is a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("held outside of a wait");
        let held = self.0.wait(held).unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
    }

    /// As `wait`, at most so long; see the time of [`super`].
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_until(guard, Instant::now() + timeout)
    }

    /// As `wait`, at most until then; see the time of [`super`].
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let left = deadline.saturating_duration_since(Instant::now());
        if left > SOON {
            self.wait(guard);
            return WaitTimeoutResult(false);
        }
        if left > Duration::ZERO {
            drop(guard.held.take());
            shuttle::thread::yield_now();
            guard.held = Some(guard.lock.lock().unwrap_or_else(PoisonError::into_inner));
        }
        WaitTimeoutResult(Instant::now() >= deadline)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T>(model::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Self(model::RwLock::new(value))
    }

    /// Waits until there is no writer.
    pub fn read(&self) -> model::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it for writing if there is no reader or writer.
    pub fn try_write(&self) -> Option<model::RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }

    /// Waits until there is no reader or writer.
    pub fn write(&self) -> model::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In a model there are no cache lines to be spared.
pub type ShardedLock<T> = RwLock<T>;
