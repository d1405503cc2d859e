//! The seam under a seeded scheduler (`--cfg inkstone_sim`): a run repeats from its seed.
//!
//! # How it works
//!
//! [`simulate`] runs a closure, and every thread that it starts, on threads of the operating system
//! of which one at a time has the token. Operations of the seam cost units of the thread's turn;
//! when the turn is over, or the thread waits, gives way or ends, the scheduler picks the thread
//! that goes on, by its seed. The scheduler keeps the waiters, so that it sees a deadlock the
//! moment it is one.
//!
//! Time is virtual: it passes with the units, and jumps to the next deadline when no thread can
//! run.
//!
//! Threads that are in no run get the real things, so that ordinary tests pass in such a build too.
//!
//! # What it does not do
//!
//! It reorders no memory accesses: atomics are sequentially consistent here. And it switches
//! threads only at operations of the seam.

mod clock;
mod context;
mod hash;
mod lock;
pub mod parking;
mod policy;
mod report;
mod scheduler;
pub mod thread;

pub use super::pointed as atomic;
pub use clock::Instant;
pub use hash::{HashMap, HashSet, RandomState, random_bits};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, ShardedLock};
pub use report::{Event, Report, Turn};

use context::{cost, current, point};
use scheduler::Scheduler;
use std::sync::Arc;
use std::time::Duration;

/// The place before an operation on an atomic.
#[inline]
#[track_caller]
pub(super) fn atomic_point() {
    point(cost::ATOMIC);
}

/// What tells that a thread waits for another without sleeping.
pub mod hint {
    /// Lets others run.
    #[track_caller]
    pub fn spin_loop() {
        super::thread::yield_now();
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides the schedule.
    pub seed: u64,
    /// A run with more steps than this fails: its threads run without getting anywhere.
    pub steps_max: u64,
    /// Whether the report lists each decision.
    pub record: bool,
}

impl Config {
    /// The usual run of a seed.
    pub fn of_seed(seed: u64) -> Self {
        Self {
            seed,
            steps_max: 500_000_000,
            record: false,
        }
    }
}

/// Runs `f` and all threads that it starts, under a schedule that follows from the seed; returns
/// when all of them have ended. The error is the text of a panic, a deadlock or a run without end,
/// with the seed. After the latter two the run's threads are left where they are, for good.
pub fn simulate<T: Send + 'static>(
    config: &Config,
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Report), String> {
    assert!(current().is_none(), "a simulation within a simulation");
    let scheduler = Arc::new(Scheduler::new(config));
    let first = thread::spawn_first(&scheduler, f)
        .map_err(|error| format!("a thread cannot be started: {error}"))?;
    scheduler.begin();
    let report = scheduler.await_end()?;
    let result = first.join();
    let panics = std::mem::take(&mut scheduler.state().panics);
    match (result, panics.is_empty()) {
        (Ok(result), true) => Ok((result, report)),
        _ => Err(format!(
            "{} (schedule of seed {})",
            panics.join("; "),
            config.seed
        )),
    }
}

/// An operation of the disk begins, which `digest` stands for in the run's fingerprint: another
/// thread may go on first, and it may take a while.
#[track_caller]
pub fn disk_operation(digest: u64) {
    point(cost::DISK);
    let Some(me) = current() else { return };
    let time = {
        let mut state = me.scheduler.state();
        state.see(digest);
        let policy = state.policy();
        let dice = state.dice();
        let slow = dice.chance(policy.slow_disk_percent);
        slow.then(|| Duration::from_micros(1 + dice.below(policy.slow_disk_micros)))
    };
    if let Some(time) = time {
        thread::sleep(time);
    }
}

#[cfg(test)]
mod tests;
