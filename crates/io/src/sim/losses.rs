//! What a crash made of the changes that were not durable.

/// Counts of a crash's decisions. See [`SimVfs::losses`](super::SimVfs::losses).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Writes that survived without a sync.
    pub writes_kept: u64,
    /// Writes that are gone.
    pub writes_lost: u64,
    /// Writes of which only some sectors survived.
    pub writes_torn: u64,
    /// Changes of a file's length, and allocations, that are gone.
    pub lengths_lost: u64,
    /// Created names that are gone.
    pub creates_lost: u64,
    /// Removed names that are there again.
    pub removals_lost: u64,
    /// Renames that did not happen.
    pub renames_lost: u64,
}
