//! Events and spans for subscribers of `tracing`, with the feature of that name; without it these
//! functions are empty, and nothing is built for them.
//!
//! All have the target `inkstone`.
//!
//! | what | level |
//! |---|---|
//! | span `open`; in it spans `stage` (settle, scan, repair, redo, undo, tidy) | INFO |
//! | a database is open, with what its opening did | INFO |
//! | a checkpoint was written | DEBUG |
//! | a wait is over, by the name that it has in `Database::durations` | TRACE |
//! | the same, of `slow_wait_ms` and longer | WARN |
//! | a wait for a lock ended in a timeout or a deadlock | WARN |
//! | a database could not be opened | ERROR |
//! | the engine is poisoned | ERROR |
//!
//! A subscriber is called in the middle of things: it must not call the database that it hears of.

use crate::Error;
use std::path::Path;
use std::time::Duration;

#[cfg(feature = "tracing")]
mod told {
    use super::{Duration, Error, Path};
    use crate::Result;
    use crate::sync::Instant;
    use tracing::{debug, error, info, info_span, trace, warn};

    /// When something began that is told of at its end.
    pub(crate) struct Begun(Instant);

    impl Begun {
        pub(crate) fn now() -> Self {
            Self(Instant::now())
        }
    }

    /// Opens the database in `path`.
    pub(crate) fn opening<T>(path: &Path, open: impl FnOnce() -> Result<T>) -> Result<T> {
        let span = info_span!(target: "inkstone", "open", path = %path.display());
        span.in_scope(|| {
            let opened = open();
            if let Err(error) = &opened {
                error!(target: "inkstone", %error, "the database could not be opened");
            }
            opened
        })
    }

    /// A stage of opening.
    pub(crate) fn stage<T>(name: &'static str, stage: impl FnOnce() -> T) -> T {
        info_span!(target: "inkstone", "stage", name).in_scope(stage)
    }

    /// A database is open: whether it was created, or had been closed in order, how many
    /// unfinished transactions were rolled back, and what that took.
    pub(crate) fn opened(created: bool, clean: bool, losers: u64, milliseconds: u64) {
        info!(target: "inkstone", created, clean, losers, milliseconds, "the database is open");
    }

    /// A checkpoint was written.
    pub(crate) fn checkpoint(lsn: u64, scan_start: u64, begun: &Begun) {
        let took = begun.0.elapsed();
        debug!(target: "inkstone", lsn, scan_start, ?took, "checkpoint");
    }

    /// A wait that `Database::durations` counts is over.
    pub(crate) fn waited(
        (name, help): (&'static str, &'static str),
        took: Duration,
        is_slow: bool,
    ) {
        if is_slow {
            warn!(target: "inkstone", name, ?took, reason = help, "a slow wait");
        } else {
            trace!(target: "inkstone", name, ?took, "a wait");
        }
    }

    /// A wait for a lock has ended.
    pub(crate) fn lock_wait(transaction: u64, ended: &Result<()>) {
        if let Err(error) = ended {
            warn!(target: "inkstone", transaction, %error, "a lock was not given");
        }
    }

    /// Nothing goes on.
    pub(crate) fn poisoned(error: &Error) {
        error!(target: "inkstone", %error, "the engine is poisoned");
    }
}

#[cfg(not(feature = "tracing"))]
mod told {
    use super::{Duration, Error, Path};
    use crate::Result;

    pub(crate) struct Begun;

    impl Begun {
        #[inline(always)]
        pub(crate) fn now() -> Self {
            Self
        }
    }

    #[inline(always)]
    pub(crate) fn opening<T>(_: &Path, open: impl FnOnce() -> Result<T>) -> Result<T> {
        open()
    }

    #[inline(always)]
    pub(crate) fn stage<T>(_: &'static str, stage: impl FnOnce() -> T) -> T {
        stage()
    }

    #[inline(always)]
    pub(crate) fn opened(_: bool, _: bool, _: u64, _: u64) {}

    #[inline(always)]
    pub(crate) fn checkpoint(_: u64, _: u64, _: &Begun) {}

    #[inline(always)]
    pub(crate) fn waited(_: (&'static str, &'static str), _: Duration, _: bool) {}

    #[inline(always)]
    pub(crate) fn lock_wait(_: u64, _: &Result<()>) {}

    #[inline(always)]
    pub(crate) fn poisoned(_: &Error) {}
}

pub(crate) use told::{Begun, checkpoint, lock_wait, opened, opening, poisoned, stage, waited};
