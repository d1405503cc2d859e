//! Inkstone, the engine.
pub mod counters;
pub mod error;
pub mod log;
pub mod options;
pub mod poison;

pub use error::{Error, Result};
