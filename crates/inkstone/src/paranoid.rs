//! Promises that are executed: in debug builds and in simulations. Release builds do not pay.
//!
//! [`paranoid!`] checks a condition where it stands. A structure that has promises of its own
//! implements [`Check`] and lies in a [`Checked`] latch, whose guard executes them when it is
//! released. A check looks at no more than [`MANY`] parts, so that it costs the same in a large
//! structure, and touches no atomic: a simulation takes the same decisions with it and without.

use crate::sync::{Mutex, MutexGuard, thread};
use std::ops::{Deref, DerefMut};

/// Whether promises are executed.
pub(crate) const ON: bool = cfg!(any(debug_assertions, inkstone_sim));

/// Parts of a structure that a check looks at.
pub(crate) const MANY: usize = 64;

/// As [`invariant!`](crate::invariant), in debug builds and simulations.
macro_rules! paranoid {
    ($condition:expr, $($message:tt)+) => {
        if $crate::paranoid::ON {
            $crate::invariant!($condition, $($message)+);
        }
    };
}
pub(crate) use paranoid;

/// What has promises of its own.
pub(crate) trait Check {
    /// Executes them, with [`paranoid!`].
    fn check(&self);
}

/// A latch that executes the promises of what it protects whenever it is released.
#[derive(Debug, Default)]
pub(crate) struct Checked<T>(Mutex<T>);

impl<T: Check> Checked<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    #[track_caller]
    pub fn lock(&self) -> CheckedGuard<'_, T> {
        CheckedGuard(self.0.lock())
    }

    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<CheckedGuard<'_, T>> {
        self.0.try_lock().map(CheckedGuard)
    }
}

/// The latch of a [`Checked`], held.
#[derive(Debug)]
pub(crate) struct CheckedGuard<'a, T: Check>(MutexGuard<'a, T>);

impl<T: Check> Deref for CheckedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Check> DerefMut for CheckedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Check> Drop for CheckedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // A panic may have left it in the middle of a change.
        if ON && !thread::panicking() {
            self.0.check();
        }
    }
}
