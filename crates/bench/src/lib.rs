//! What measures the engine, as a library: `inkstone bench`, `cargo xtask counts`,
//! `cargo xtask lock-times`, `cargo bench -p inkstone-bench` and `crates/bench-peers` are made of
//! it. What measures a MariaDB server is in `crates/mariadb-kit`, with the statistics of this one.
//!
//! A module uses those above it in this table:
//!
//! | module | subject |
//! |---|---|
//! | [`random`], [`statistics`] | random numbers from a seed; medians and percentiles |
//! | [`values`] | what rows hold, and which of them are taken |
//! | [`failure`] | what goes wrong |
//! | [`output`], [`progress`] | text and JSON on stdout; progress bars on stderr |
//! | [`database`] | opening databases with progress, engine options, temporary directories |
//! | [`counts`], [`wide`] | counters between two moments; the wide table of writebench |
//! | [`chart`], [`sink`] | results as a table or as JSON, one object a line; as a chart |
//! | [`clients`] | threads that do one thing over and over; latencies and rates |
//! | `probe` | what the device can do, measured in the same run |
//! | [`device`] | what the kernel counts for the device: a check on our own counters |
//! | `memory` | peak resident memory against what the options allow |
//! | [`workloads`] | `inkstone bench`: the workloads that have published figures |
//! | [`operations`] | single operations, whose instructions are counted, and locks timed |
//!
//! Bytes and counts are the engine's own counters: `/proc/self/io` counts whole folios.

pub mod chart;
pub mod clients;
pub mod counts;
pub mod database;
pub mod device;
pub mod failure;
mod memory;
pub mod operations;
pub mod output;
mod probe;
pub mod progress;
pub mod random;
pub mod sink;
pub mod statistics;
pub mod values;
pub mod wide;
pub mod workloads;

pub use failure::{Failure, Result};
