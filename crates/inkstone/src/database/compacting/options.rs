//! How a table is compacted, and what is said of it.

use std::fmt;

/// How [`Database::compact_table_with`](crate::Database::compact_table_with) compacts.
///
/// ```
/// use inkstone::CompactOptions;
/// let options = CompactOptions::new().bytes_per_second(20 << 20);
/// assert_eq!(options.bytes_per_second, Some(20 << 20));
/// ```
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct CompactOptions<'p> {
    /// Bytes of pages that are moved in a second at most, on the average; `None`: as fast as it
    /// goes.
    pub bytes_per_second: Option<u64>,
    /// Told now and then how far it has come, by the thread that compacts, which has nothing
    /// latched. False: it ends there, and what it has gained is kept.
    pub progress: Option<&'p dyn Fn(CompactReport) -> bool>,
}

impl<'p> CompactOptions<'p> {
    /// As fast as it goes, and silent.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many bytes of pages in a second, and one at least.
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = Some(bytes.max(1));
        self
    }

    /// Tells of progress, and asks whether to go on.
    pub fn progress(mut self, progress: &'p dyn Fn(CompactReport) -> bool) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl fmt::Debug for CompactOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// What a compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Bytes of the table's file before.
    pub bytes_before: u64,
    /// Bytes of it now. Others may have made it longer meanwhile.
    pub bytes_after: u64,
    /// Times that rows were moved to the leaf before, or nodes to the node before.
    pub nodes_packed: u64,
    /// Pages of trees that were moved to pages nearer the beginning.
    pub pages_moved: u64,
    /// Long values that were written again nearer the beginning.
    pub long_values_moved: u64,
}
