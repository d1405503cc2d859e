//! Inkstone, the engine.
pub mod counters;
pub mod error;
pub mod options;

pub use error::{Error, Result};
