//! Inkstone, the engine.
pub mod counters;
pub mod error;
pub mod options;
pub mod poison;
pub mod txn;

pub use error::{Error, Result};
