//! Inkstone, the engine.
pub mod buffer;
pub mod control;
pub mod counters;
pub mod error;
pub mod options;
pub mod poison;
pub mod store;

pub use error::{Error, Result};
