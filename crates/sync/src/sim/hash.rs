//! Hash tables whose order, and random bits that, follow from the seed.

use super::context::current;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

/// `std::hash::RandomState`, keyed from the run's seed.
#[derive(Clone, Debug)]
pub struct RandomState(u64);

impl Default for RandomState {
    fn default() -> Self {
        Self(random_bits())
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// `std::collections::HashMap`.
pub type HashMap<K, V, S = RandomState> = std::collections::HashMap<K, V, S>;

/// `std::collections::HashSet`.
pub type HashSet<T, S = RandomState> = std::collections::HashSet<T, S>;

/// Bits that follow from the seed, for scheduled threads.
pub fn random_bits() -> u64 {
    match current() {
        Some(me) => me.scheduler.state().random_bits(),
        None => crate::real::random_bits(),
    }
}
