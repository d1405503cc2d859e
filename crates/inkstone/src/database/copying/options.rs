//! How a copy of a database is made, and what is said of it.

use inkstone_format::Lsn;
use std::fmt;

/// How [`Database::checkpoint_to_with`](crate::Database::checkpoint_to_with) copies.
///
/// ```
/// use inkstone::CheckpointOptions;
/// let options = CheckpointOptions::new().bytes_per_second(100 << 20);
/// assert_eq!(options.bytes_per_second, Some(100 << 20));
/// ```
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct CheckpointOptions<'p> {
    /// Bytes of pages that are copied in a second at most, on the average; `None`: as fast as it
    /// goes. The log is not held up.
    pub bytes_per_second: Option<u64>,
    /// Told after each step how far the copy has come, by the thread that copies, which it must not
    /// hold up: the log is copied by that thread, too. It may use the database, but not create,
    /// drop or open tables.
    pub progress: Option<&'p dyn Fn(CheckpointProgress)>,
}

impl<'p> CheckpointOptions<'p> {
    /// As fast as it goes, and silent.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many bytes of pages in a second, and one at least.
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = Some(bytes.max(1));
        self
    }

    /// Tells of progress.
    pub fn progress(mut self, progress: &'p dyn Fn(CheckpointProgress)) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl fmt::Debug for CheckpointOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointProgress {
    /// Bytes of pages that are copied.
    pub page_bytes: u64,
    /// Bytes of the pages that there are to copy, as far as is known: tables are made meanwhile.
    pub page_bytes_total: u64,
    /// Bytes of log that are copied.
    pub log_bytes: u64,
}

/// What a copy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// From where opening the copy makes changes again.
    pub checkpoint: Lsn,
    /// The end of its log: it is the database as of here.
    pub end: Lsn,
    /// Its tables.
    pub tables: usize,
    /// Bytes of their pages, and of the catalog's.
    pub page_bytes: u64,
    /// Bytes of log.
    pub log_bytes: u64,
    /// Bytes of its undo file.
    pub undo_bytes: u64,
}
