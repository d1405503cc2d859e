//! The seam over `shuttle`, which runs a test again and again, each time with another interleaving
//! of its threads, and says which one failed (`cargo xtask races`).
//!
//! Each operation on an atomic, a lock or a parking queue is a point where another thread may go
//! on. Memory is sequentially consistent. Nothing here works outside of a test that shuttle runs.
//!
//! # Time
//!
//! Shuttle knows none. The clock here goes on by a [`TICK`] with each look at it and with each
//! timed wait that wakes in vain. A wait that would end within [`SOON`] wakes again and again,
//! which every caller must bear; a longer one wakes only when it is told to, so that a lost wake-up
//! is a deadlock, which shuttle reports.

pub mod explore;
mod locks;
pub mod parking;
pub mod thread;

pub use super::pointed as atomic;
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, ShardedLock};
pub use shuttle::hint;

use shuttle::rand::Rng;
use shuttle::sync::atomic::AtomicBool;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Hashing without randomness, so that an execution can be repeated.
pub type RandomState = BuildHasherDefault<DefaultHasher>;
/// A hash table whose order repeats.
pub type HashMap<K, V, S = RandomState> = std::collections::HashMap<K, V, S>;
/// A hash set whose order repeats.
pub type HashSet<K, S = RandomState> = std::collections::HashSet<K, S>;

/// How far the clock goes at a time.
const TICK: Duration = Duration::from_micros(100);
/// Timed waits up to this long end by themselves.
const SOON: Duration = Duration::from_secs(1);

shuttle::lazy_static! {
    /// Nanoseconds; a plain atomic, as looking at the clock is no reason to switch.
    static ref CLOCK: AtomicU64 = AtomicU64::new(0);
}

/// The place before an operation on an atomic: shuttle has one in its own.
pub(super) fn atomic_point() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// Bits from the execution's seed.
pub fn random_bits() -> u64 {
    shuttle::rand::thread_rng().r#gen()
}

/// A time of the clock that only waiting moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The time now.
    pub fn now() -> Self {
        let tick = TICK.as_nanos() as u64;
        Self(Duration::from_nanos(
            CLOCK.fetch_add(tick, Ordering::Relaxed),
        ))
    }

    /// Time since then.
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// A later time, if the clock can show it.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// Time since an earlier one; nothing since a later one.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}
