//! The seam between the engine and whatever schedules it: threads, locks, condition variables,
//! parking by address, atomics, clocks, and the randomness of hash tables. The engine takes them
//! from here and from nowhere else (`crates/inkstone/tests/sync_seam.rs` checks it).
//!
//! # Promises
//!
//! 1. Every operation by which a thread can wait for another, or see what another did, is one of
//!    these. So their provider decides what happens next, and can do so from a seed. Tested by
//!    `only_the_seam_names_threads_locks_and_clocks`, `a_seed_repeats_and_seeds_differ`.
//!
//! In an ordinary build all of this is `parking_lot`, `crossbeam` and `std`, re-exported or behind
//! a call that the compiler removes.
//!
//! Counters that decide nothing stay plain (`counters/mod.rs`), as does `Arc`, and `OnceLock` but
//! under ThreadSanitizer: no thread waits for these while others run. [Decision
//! 0011](../../../docs/decisions/0011-a-seam-for-threads-locks-and-clocks.md).

mod parked;
#[cfg(any(inkstone_sim, inkstone_shuttle))]
pub mod pointed;

#[cfg(all(inkstone_sim, inkstone_shuttle))]
compile_error!("inkstone_sim and inkstone_shuttle exclude each other");
#[cfg(all(inkstone_tsan, any(inkstone_sim, inkstone_shuttle)))]
compile_error!("inkstone_tsan is for the threads of the operating system");

#[cfg(all(
    inkstone_lock_times,
    any(inkstone_sim, inkstone_shuttle, inkstone_tsan)
))]
compile_error!(
    "inkstone_lock_times is for the threads of the operating system, and no other clock"
);

#[cfg(not(inkstone_shuttle))]
#[cfg_attr(
    inkstone_sim,
    allow(
        unused_imports,
        dead_code,
        reason = "threads that are in no simulation use parts of it"
    )
)]
#[cfg_attr(
    inkstone_tsan,
    allow(dead_code, reason = "ThreadSanitizer sees other locks and scopes")
)]
#[cfg_attr(
    inkstone_lock_times,
    allow(unused_imports, dead_code, reason = "other locks")
)]
mod real;
#[cfg(inkstone_tsan)]
mod sanitized;
#[cfg(inkstone_shuttle)]
mod shuttled;
#[cfg(inkstone_sim)]
mod sim;
mod test_scope;
#[cfg(inkstone_lock_times)]
mod timed;

#[cfg(not(any(inkstone_sim, inkstone_shuttle, inkstone_tsan, inkstone_lock_times)))]
use real as backend;
#[cfg(inkstone_tsan)]
use sanitized as backend;
#[cfg(inkstone_shuttle)]
use shuttled as backend;
#[cfg(inkstone_sim)]
use sim as backend;
#[cfg(inkstone_lock_times)]
use timed as backend;

#[cfg(inkstone_shuttle)]
pub use shuttled::explore;

pub use backend::{
    Condvar, HashMap, HashSet, Instant, Mutex, MutexGuard, RandomState, RwLock, ShardedLock,
    atomic, hint, parking, random_bits, thread,
};
#[cfg(inkstone_tsan)]
pub use sanitized::OnceLock;
#[cfg(inkstone_sim)]
pub use sim::{Config, Event, Report, Turn, disk_operation, simulate};
#[cfg(not(inkstone_tsan))]
pub use std::sync::OnceLock;
#[doc(hidden)]
pub use test_scope::test_scope;
#[cfg(inkstone_lock_times)]
pub use timed::held;

/// What a latch tells a clock, in builds that have one.
#[cfg(not(inkstone_lock_times))]
#[doc(hidden)]
pub mod held {
    #[inline(always)]
    pub fn began(_address: usize) {}

    #[inline(always)]
    pub fn ended(_address: usize) {}
}
