//! Inkstone, the engine.
pub mod buffer;
pub mod counters;
pub mod error;
pub mod options;
pub mod poison;

pub use error::{Error, Result};
