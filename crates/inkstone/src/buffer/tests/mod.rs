//! Tests of the buffer pool against a store and a log in memory.

mod flush;
mod latch;
mod mock;
mod model;
mod pool;
#[cfg(inkstone_shuttle)]
mod races;
mod speed;
