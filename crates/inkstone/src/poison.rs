//! The engine's one-way switch: after a failed log write or a failed sync nothing can be promised,
//! so every later call gets the same error until the database is opened again and recovered.

use crate::sync::OnceLock;
use crate::{Error, Result};
use std::sync::Arc;

/// Shared by all parts of an open database.
#[derive(Clone, Debug, Default)]
pub struct Poison(Arc<OnceLock<Arc<str>>>);

impl Poison {
    /// `Err(Error::Poisoned)` once the engine is poisoned.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned(reason.clone())),
        }
    }

    /// Poisons the engine (the first reason stays) and returns the error that callers get.
    pub fn set(&self, reason: impl std::fmt::Display) -> Error {
        Error::Poisoned(self.0.get_or_init(|| reason.to_string().into()).clone())
    }

    /// Whether the engine is poisoned.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
