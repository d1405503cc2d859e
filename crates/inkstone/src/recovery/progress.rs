//! What recovery tells while it runs, and when it is done.

use crate::sync::Instant;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// What recovery is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the log.
    Scan,
    /// Applying changes to pages.
    Apply,
    /// Redo is complete.
    Done,
}

/// How far recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Bytes of log read.
    pub bytes_done: u64,
    /// Bytes of log to be read, at most; `None` when that is not known.
    pub bytes_total: Option<u64>,
    /// Pages that all changes read so far were applied to.
    pub pages_done: u64,
    /// Pages of the present batch and those before it.
    pub pages_total: u64,
    /// Seconds since redo began.
    pub seconds: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bytes_done: bytes,
            pages_done,
            pages_total,
            seconds,
            ..
        } = self;
        match (self.phase, self.bytes_total) {
            (Phase::Scan, Some(total)) => {
                write!(f, "{bytes} of at most {total} bytes of log read")?;
            }
            (Phase::Scan, None) => write!(f, "{bytes} bytes of log read")?,
            (Phase::Apply, _) => write!(
                f,
                "{bytes} bytes of log read, {pages_done} of {pages_total} pages changed"
            )?,
            (Phase::Done, _) => write!(
                f,
                "{bytes} bytes of log read, {pages_done} pages changed, redo is complete"
            )?,
        }
        write!(f, ", {seconds} s")
    }
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes of log read.
    pub bytes_scanned: u64,
    /// Mini-transactions read.
    pub frames: u64,
    /// Mini-transactions before the checkpoint that could not be decoded and were not needed.
    pub frames_without_context: u64,
    /// Records read.
    pub records: u64,
    /// Records that changed a page.
    pub records_applied: u64,
    /// Times that the gathered changes were applied.
    pub batches: u64,
    /// Pages that changes were applied to. One that several batches change counts in each.
    pub pages_applied: u64,
    /// Pages that were rebuilt from the log without reading them.
    pub pages_initialised: u64,
    /// Pages that were read.
    pub pages_read: u64,
    /// Pages whose changes were not needed, as their tablespace was deleted later.
    pub pages_dropped: u64,
    /// Pages that were left to be redone when they are read, or behind the opening.
    pub pages_left: u64,
    /// Bytes of changes of those.
    pub bytes_left: u64,
    /// Bytes of changes that went to a temporary file, as memory (`recovery_memory`) had no room
    /// for them.
    pub bytes_spilled: u64,
    /// Torn pages that were repaired from the doublewrite file. Filled in by the caller.
    pub torn_pages_repaired: u64,
    /// Transactions to be rolled back.
    pub losers: u64,
    /// Changes of theirs that have to be undone.
    pub loser_changes: u64,
    /// Prepared transactions.
    pub prepared: u64,
    /// Milliseconds spent reading the log.
    pub scan_ms: u64,
    /// Milliseconds spent applying changes.
    pub apply_ms: u64,
}

/// Shortest time between two calls of the callback.
const INTERVAL: Duration = Duration::from_millis(100);

/// Calls the callback, not too often.
pub(super) struct Reporter<'a> {
    callback: &'a dyn Fn(Progress),
    begin: Instant,
    next: Cell<Duration>,
}

impl<'a> Reporter<'a> {
    pub fn new(callback: &'a dyn Fn(Progress)) -> Self {
        Self {
            callback,
            begin: Instant::now(),
            next: Cell::new(INTERVAL),
        }
    }

    /// Calls the callback if it is time for it, or `now`.
    pub fn report(&self, now: bool, progress: impl FnOnce() -> Progress) {
        let elapsed = self.begin.elapsed();
        if now || elapsed >= self.next.get() {
            self.next.set(elapsed + INTERVAL);
            let seconds = elapsed.as_secs();
            (self.callback)(Progress {
                seconds,
                ..progress()
            });
        }
    }
}
