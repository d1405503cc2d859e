//! The engine's one-way switch: after a failed log write or a failed sync nothing can be promised,
//! so every later call gets the same error until the database is opened again and recovered. A
//! database that was closed in order has the same switch thrown: what outlives it does no harm.
//!
//! All syncs of an open database go past here ([`Poison::sync`], `Poison::begin_sync`), so that a
//! failed one sets the switch before any thread is told of a success that it belies (`syncs`).
//!
//! In a forked child every call that asks here gets [`Error::Forked`]: the database is its
//! parent's.

pub(crate) mod syncs;

use crate::sync::OnceLock;
use crate::trace;
use crate::{Error, Result};
use inkstone_io::process::Owner;
use std::path::Path;
use std::sync::Arc;
use syncs::{SyncMoment, SyncUnderWay, Syncs};

/// Shared by all parts of an open database.
#[derive(Clone, Debug, Default)]
pub struct Poison {
    shared: Arc<Shared>,
    owner: Owner,
}

#[derive(Debug, Default)]
struct Shared {
    end: OnceLock<End>,
    syncs: Syncs,
}

/// Why nothing goes on.
#[derive(Debug)]
enum End {
    /// Something failed.
    Poisoned(Arc<str>),
    /// The database was closed, and nothing had failed.
    Closed,
}

impl End {
    fn error(&self) -> Error {
        match self {
            Self::Poisoned(reason) => Error::Poisoned(reason.clone()),
            Self::Closed => Error::Closed,
        }
    }
}

impl Poison {
    /// `Err(Error::Poisoned)` once the engine is poisoned, `Err(Error::Closed)` once it was closed,
    /// `Err(Error::Forked)` in a child of the process that opened the database.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        match self.shared.end.get() {
            None => Ok(()),
            Some(end) => Err(end.error()),
        }
    }

    /// Poisons the engine (the first reason stays) and returns the error that callers get.
    pub fn set(&self, reason: impl std::fmt::Display) -> Error {
        let mut is_first = false;
        let end = self.shared.end.get_or_init(|| {
            is_first = true;
            End::Poisoned(reason.to_string().into())
        });
        let error = end.error();
        if is_first {
            trace::poisoned(&error);
        }
        error
    }

    /// The database was closed: later calls get [`Error::Closed`], or the poison if there is one.
    pub fn close(&self) {
        self.shared.end.get_or_init(|| End::Closed);
    }

    /// Whether the engine is poisoned, or closed.
    pub fn is_set(&self) -> bool {
        self.shared.end.get().is_some()
    }

    /// Whether this is a forked child of the process that opened the database.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.owner.is_this_process()
    }

    /// Runs a sync of `path`. A failure poisons the engine; so does, for the caller, the failure of
    /// another sync meanwhile.
    pub fn sync(&self, path: &Path, sync: impl FnOnce() -> std::io::Result<()>) -> Result<()> {
        let under_way = self.begin_sync();
        under_way.end(path, sync())
    }

    /// A sync begins; its result goes to [`SyncUnderWay::end`].
    pub(crate) fn begin_sync(&self) -> SyncUnderWay {
        SyncUnderWay::new(self.clone())
    }

    /// Now, to be given to [`Poison::settle_syncs`].
    pub(crate) fn sync_moment(&self) -> SyncMoment {
        self.shared.syncs.moment()
    }

    /// Returns when every sync that was under way at `moment` has ended: with an error if one of
    /// them failed, or anything else has poisoned the engine.
    pub(crate) fn settle_syncs(&self, moment: SyncMoment) -> Result<()> {
        // A forked child has none of the threads that it would wait for.
        self.check()?;
        self.shared.syncs.wait_for(moment);
        self.check()
    }
}
