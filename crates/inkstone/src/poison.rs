//! The engine's one-way switch: after a failed log write or a failed sync nothing can be promised,
//! so every later call gets the same error until the database is opened again and recovered.
//!
//! In a forked child every call that asks here gets [`Error::Forked`]: the database is its parent's.

use crate::sync::OnceLock;
use crate::{Error, Result};
use inkstone_io::process::Owner;
use std::sync::Arc;

/// Shared by all parts of an open database.
#[derive(Clone, Debug, Default)]
pub struct Poison {
    reason: Arc<OnceLock<Arc<str>>>,
    owner: Owner,
}

impl Poison {
    /// `Err(Error::Poisoned)` once the engine is poisoned, `Err(Error::Forked)` in a child of the process
    /// that opened the database.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned(reason.clone())),
        }
    }

    /// Poisons the engine (the first reason stays) and returns the error that callers get.
    pub fn set(&self, reason: impl std::fmt::Display) -> Error {
        Error::Poisoned(
            self.reason
                .get_or_init(|| reason.to_string().into())
                .clone(),
        )
    }

    /// Whether the engine is poisoned.
    pub fn is_set(&self) -> bool {
        self.reason.get().is_some()
    }

    /// Whether this is a forked child of the process that opened the database.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.owner.is_this_process()
    }
}
