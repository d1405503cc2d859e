//! Inkstone, the engine.
pub mod btree;
pub mod buffer;
pub mod catalog;
pub mod control;
pub mod counters;
pub mod error;
pub mod mtr;
pub mod log;
pub mod options;
pub mod poison;
pub mod space;
pub mod store;
pub mod txn;

pub use error::{Error, Result};
