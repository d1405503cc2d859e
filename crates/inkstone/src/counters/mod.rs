//! Counters that one can watch: one declarative table, from which the names, the descriptions and
//! the snapshot come. Beside them [durations](DurationSummary), which have a table of their own.
//!
//! Counting never serialises threads: each of the first 64 threads of the process has cache
//! lines of its own, to which it adds without an atomic read-modify-write; those after them share
//! [`STRIPES`] sets of lines. Reading sums all. A sum is exact once the counted threads are quiet.

mod durations;

pub use durations::{DURATIONS, DurationBucket, DurationSummary, SlowWait, Timed, Timing};

use crossbeam_utils::CachePadded;
use durations::Durations;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Copies of every counter, so that threads do not share cache lines.
pub const STRIPES: usize = 16;

macro_rules! counters {
    ($($variant:ident $name:literal $help:literal,)+) => {
        /// A counter's identity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $(#[doc = $help] $variant,)+ }

        /// Every counter with its name and description, in declaration order.
        pub const COUNTERS: &[(Counter, &str, &str)] = &[$((Counter::$variant, $name, $help),)+];
    };
}

counters! {
    LogBytes "log_bytes" "Bytes of mini-transactions appended to the redo log",
    LogMiniTransactions "log_mini_transactions" "Mini-transactions appended to the redo log",
    LogWriteCalls "log_write_calls" "Write calls to log segments",
    LogBytesWritten "log_bytes_written" "Bytes written to log segments, with block padding and rewritten tail blocks",
    LogSyncs "log_syncs" "Syncs of log segments",
    LogWaits "log_waits" "Times that an append waited for room in the log buffer",
    LogSegmentsCreated "log_segments_created" "Log segments created and filled with zeroes",
    LogSegmentsRecycled "log_segments_recycled" "Log segments recycled",
    Checkpoints "checkpoints" "Checkpoints written to the control file",
    PagesRead "pages_read" "Pages read from tablespace files",
    DataReadCalls "data_read_calls" "Read calls to tablespace files (scans and a warm start combine adjacent pages)",
    PagesWritten "pages_written" "Pages written to tablespace files",
    PageBytesWritten "page_bytes_written" "Bytes of pages, or of their images, written to tablespace files",
    PagesCompressed "pages_compressed" "Images of pages that were made shorter by compression",
    DataWriteCalls "data_write_calls" "Write calls to tablespace files (adjacent pages are combined)",
    PageWriteFailures "page_write_failures" "Writes of pages, or of their copies, that failed: the pages stay in memory and are tried again",
    FileCuts "file_cuts" "Times that the free end of a tablespace file was given back to the file system",
    FileBytesGivenBack "file_bytes_given_back" "Bytes of tablespace files given back to the file system",
    DataSyncs "data_syncs" "Syncs of tablespace files",
    TableFilesOpened "table_files_opened" "Times that the file of a table was opened",
    DoublewritePages "doublewrite_pages" "Pages written to the doublewrite file",
    PlaceMapBytes "place_map_bytes" "Bytes written to the place maps of placed tables",
    ImagesMoved "images_moved" "Images of placed pages that were moved to bring free units together",
    DoublewriteBytes "doublewrite_bytes" "Bytes written to the doublewrite file, with batch headers",
    DoublewriteWriteCalls "doublewrite_write_calls" "Write calls to the doublewrite file",
    DoublewriteSyncs "doublewrite_syncs" "Syncs of the doublewrite file",
    PageLsnMapBlocksWritten "page_lsn_map_blocks_written" "Blocks of 4 KiB written to the page LSN map",
    PageLsnMapWriteCalls "page_lsn_map_write_calls" "Write operations that took",
    PageLsnMapBlocksRead "page_lsn_map_blocks_read" "Blocks of the page LSN map read while the database was open",
    PageLsnMapReadCalls "page_lsn_map_read_calls" "Read operations that took",
    PageLsnMapSyncs "page_lsn_map_syncs" "Syncs of the page LSN map",
    PageLsnMapFailures "page_lsn_map_failures" "Times that a part of the page LSN map was damaged, or could not be read or written: stale versions of its pages may pass for new",
    PagesReadAhead "pages_read_ahead" "Pages read before the scan that they were read for had come to them",
    StalePagesFound "stale_pages_found" "Times that an older version of a page was read in its own place",
    StalePagesReplaced "stale_pages_replaced" "Of those, times that a second read or the doublewrite file had the newest version",
    DoublewriteSkipped "doublewrite_skipped" "Freshly initialised pages that were written without a doublewrite copy",
    BufferReadRequests "buffer_read_requests" "Accesses to pages through the buffer pool; those that had to read a file are in pages_read",
    PagesRedoneLate "pages_redone_late" "Pages that got what recovery had left of redo when they were read",
    BufferEvictions "buffer_evictions" "Frames taken from a page to hold another",
    BufferFrameWaits "buffer_frame_waits" "Times that a thread waited for a free frame",
    CheckpointWaits "checkpoint_waits" "Times that a transaction was slowed down because the checkpoint age was high",
    UndoMoves "undo_moves" "Large and old transactions whose undo got a place of its own",
    UndoSaves "undo_saves" "Times that the undo of such a transaction was saved, so that older log need not be kept",
    UndoBytesSaved "undo_bytes_saved" "Bytes written to the undo file",
    UndoFileCuts "undo_file_cuts" "Times that the free end of the undo file was given back to the file system",
    UndoFileBytesGivenBack "undo_file_bytes_given_back" "Bytes of the undo file given back to the file system",
    RowsRead "rows_read" "Rows returned by point reads and cursors",
    RowsInserted "rows_inserted" "Rows inserted, entries of secondary trees among them",
    BulkInserts "bulk_inserts" "Trees into which a statement has inserted many rows with one version",
    BulksUndone "bulk_inserts_undone" "Times that such rows were removed again",
    BulkDeletes "bulk_deletes" "Ranges of rows that a statement has begun to delete with one version",
    BulkDeletesUndone "bulk_deletes_undone" "Times that such rows were given back",
    RowsLeftOut "rows_left_out" "Rows of those that the log does not have: their pages were on disk before the commit",
    PagesLoggedWhole "pages_logged_whole" "Pages with such rows that were logged whole before something else changed them",
    UnloggedCommits "unlogged_commits" "Transactions with such rows whose pages were written before they committed, or were prepared",
    RowsUpdated "rows_updated" "Rows updated, entries of secondary trees among them",
    RowsDeleted "rows_deleted" "Rows delete-marked, entries of secondary trees among them",
    RowsBulkDeleted "rows_bulk_deleted" "Of those the rows that share one version with others",
    RowsPurged "rows_purged" "Delete-marked rows removed physically",
    LeafSplits "leaf_splits" "Leaf pages split",
    InnerSplits "inner_splits" "Inner pages split",
    PageMerges "page_merges" "Pages merged into a neighbour",
    PagesMoved "pages_moved" "Pages of trees moved nearer to the beginning of their file by a compaction",
    Commits "commits" "Transactions committed",
    RollbackWaits "rollback_waits" "Times that a step of a rollback waited for room in the log",
    Rollbacks "rollbacks" "Transactions rolled back, without the database's own",
    LockWaits "lock_waits" "Times that a transaction waited for a row or range lock",
    LockTimeouts "lock_timeouts" "Lock waits that timed out",
    Deadlocks "deadlocks" "Deadlocks found",
    LocksJoined "locks_joined" "Locks that became one with a neighbour to save memory",
    VersionsPassed "versions_passed" "Versions of rows that reads have gone past, to those that their snapshots see",
    MilestonesTaken "milestones_taken" "Times that a read has passed many versions of a row at once",
    VersionBytes "version_bytes" "Bytes of old versions stored",
    VersionSegmentsSpilled "version_segments_spilled" "Version segments written to the spill file",
    VersionBytesSpilled "version_bytes_spilled" "Bytes written to the spill file",
    VersionSegmentsRetired "version_segments_retired" "Version segments retired",
}

/// Threads that count on cache lines of their own. A thread's number is never given to another.
const OWNERS: usize = 64;

/// A stripe for the calling thread, below [`STRIPES`]; threads are dealt out in turn.
pub fn thread_stripe() -> usize {
    crate::sync::thread::number() % STRIPES
}

/// The counters of one database.
#[derive(Debug)]
pub struct Counters {
    /// Those of the owners, then those that are shared.
    stripes: Box<[CachePadded<[AtomicU64; COUNTERS.len()]>]>,
    durations: Durations,
}

impl Default for Counters {
    fn default() -> Self {
        let stripe = || CachePadded::new([const { AtomicU64::new(0) }; COUNTERS.len()]);
        Self {
            stripes: (0..OWNERS + STRIPES).map(|_| stripe()).collect(),
            durations: Durations::default(),
        }
    }
}

impl Counters {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        let thread = crate::sync::thread::number();
        if thread < OWNERS {
            // No other thread adds to it.
            let own = &self.stripes[thread][counter as usize];
            own.store(own.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        } else {
            let shared = &self.stripes[OWNERS + thread % STRIPES][counter as usize];
            shared.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The sum over all threads.
    pub fn get(&self, counter: Counter) -> u64 {
        self.stripes
            .iter()
            .map(|s| s[counter as usize].load(Ordering::Relaxed))
            .sum()
    }

    /// Times an operation until what this returns is dropped.
    pub fn time(&self, timed: Timed) -> Timing<'_> {
        self.durations.begin(timed)
    }

    /// As [`Counters::time`], for a caller that has read the clock.
    pub fn record(&self, timed: Timed, took: Duration) {
        self.durations.record(timed, took);
    }

    /// How long operations took, in the order of [`DURATIONS`].
    pub fn durations(&self) -> Vec<DurationSummary> {
        self.durations.summaries()
    }

    /// How many operations took how long, in the order of [`DURATIONS`].
    pub fn duration_histogram(&self) -> Vec<DurationBucket> {
        self.durations.histogram()
    }

    /// Waits of this length and longer are kept; zero: none is.
    pub fn set_slow_from(&self, from: Duration) {
        self.durations.set_slow_from(from);
    }

    /// The latest slow waits, the last one last.
    pub fn slow_waits(&self) -> Vec<SlowWait> {
        self.durations.slow_waits()
    }

    /// Name and value of every counter.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        COUNTERS
            .iter()
            .map(|&(counter, name, _)| (name, self.get(counter)))
            .collect()
    }
}
