//! The seam with a clock at each lock (`--cfg inkstone_lock_times`, see `cargo xtask lock-times`):
//! which thread took which lock where, whether it had to wait, and how long it held it
//! ([`held::take`]).
//!
//! Everything else is what ordinary builds have. What is noted is noted after the lock was
//! released, so that a hold is longer than in an ordinary build by one look at the clock.

pub mod held;
mod locks;

pub use super::real::{
    HashMap, HashSet, Instant, RandomState, atomic, hint, parking, random_bits, thread,
};
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, ShardedLock};
