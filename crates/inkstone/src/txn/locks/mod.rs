//! Explicit row and range locks, and waiting for transactions.
//!
//! # Words
//!
//! - *implicit lock*: a row's newest uncommitted version. It is found by whoever looks at the row and
//!   is not in this table.
//! - *explicit lock*: an entry of the [`LockTable`]: shared or exclusive, on a row (locked reads) or on
//!   a key range (serializable). Held until its transaction ends, but for rows that turn out not to be
//!   wanted at read committed.
//! - *gap lock*: an entry that forbids others to insert rows in a range, and nothing else: gap locks
//!   do not conflict with each other, nor with changes of rows that are there.
//! - *blocker*: a transaction that has not ended and holds a conflicting lock.
//!
//! # Promises
//!
//! 1. Of two transactions that have not ended, never do both hold conflicting explicit locks of the
//!    same row; the same for overlapping ranges.
//! 2. A lock does nothing but conflict: no call here waits. Waiting is always for another transaction
//!    to *end*, or to give something back, through the [`WaitGraph`]; after waking the caller checks
//!    everything again.
//! 3. An ended transaction blocks nobody, even before `release_all` has removed its locks.
//! 4. A transaction that locks the same row again, or ranges that overlap or touch, does not make its
//!    lists longer.
//! 5. A wait ends when the blocker ended or gave something back, the waiter was made a deadlock's
//!    victim or was interrupted, time is up, or the engine is poisoned. No wakeup is lost (see
//!    [`super::system`], promise 5).
//! 6. A set of transactions that wait for each other in a circle loses a member at once.
//!
//! # What the caller must do
//!
//! Checking for a lock and changing the row are made one by the latch of the row's leaf: whoever locks
//! a row explicitly looks for an implicit lock, and takes the explicit one, while it holds the leaf's
//! latch (shared suffices); whoever changes a row calls [`LockTable::record_blockers`] and
//! [`LockTable::range_blockers`] while it holds the latch exclusively. A range is locked *before* its
//! leaves are read, and for each row found in it the reader looks at the implicit lock, and calls
//! `record_blockers` (a range lock is not compared with record locks). A gap is locked under the latch of
//! the leaf that covers it, when the reader has seen what the leaf holds there; whoever inserts looks for
//! gap locks under that latch. All atomics that serve the fast
//! paths are SeqCst, but they are ordered against page contents by that latch alone.
//!
//! # Fairness
//!
//! There is no queue. All who wait for a transaction wake when it ends, and check again; the first to
//! get there wins, a newcomer may overtake, and a stream of shared locks can keep an exclusive
//! one waiting until its deadline. In return a waiter holds no place in any structure, locks are
//! granted only to running threads (no convoys), and nothing must be handed over at a time-out.
//!
//! # Latches
//!
//! A shard of records or ranges: held for one operation, nothing is taken inside but `status` loads
//! ([`LockTable::rest`] takes all shards of records, in order).
//! `WaitGraph::state`: global, on the slow path only; inside it, waiters' `woken` latches. No latch is held
//! while [`LockWaitHooks::about_to_wait`] runs.

mod hooks;
mod ranges;
mod records;
mod wait;

#[cfg(test)]
mod tests;

pub use hooks::LockWaitHooks;
pub use wait::{WaitGraph, Waiter};

use super::system::TrxState;
use inkstone_format::{SpaceId, TreeId, TrxId};
use std::ops::Bound;
use std::sync::Arc;

/// How a lock is held, or an access needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Compatible with other shared locks.
    Shared,
    /// Compatible with nothing.
    Exclusive,
}

impl LockMode {
    /// Whether two transactions may not hold these modes at once.
    pub fn conflicts(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

/// What a transaction must give back at its end. Kept by the transaction.
#[derive(Debug, Default)]
pub struct HeldLocks {
    /// Names (hashes) of record locks.
    records: Vec<u64>,
    /// Trees in which it has range locks.
    trees: Vec<(SpaceId, TreeId)>,
}

impl HeldLocks {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.trees.is_empty()
    }

    /// Number of record locks held.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }
}

/// A transaction that was in the way when somebody looked.
#[derive(Clone, Debug)]
pub struct Blocker {
    trx: Arc<TrxState>,
    /// How often it had given something back by then. Read while the latch is held under which what is
    /// in the way was seen, and which is needed to take it away: who waits misses nothing since.
    releases: u64,
}

impl Blocker {
    /// Whether it is worth while to look again.
    fn is_over(&self) -> bool {
        self.trx.is_ended() || self.trx.releases() != self.releases
    }
}

impl From<&Arc<TrxState>> for Blocker {
    fn from(trx: &Arc<TrxState>) -> Self {
        Self {
            trx: trx.clone(),
            releases: trx.releases(),
        }
    }
}

impl From<&Blocker> for Blocker {
    fn from(blocker: &Blocker) -> Self {
        blocker.clone()
    }
}

impl std::ops::Deref for Blocker {
    type Target = Arc<TrxState>;

    fn deref(&self) -> &Self::Target {
        &self.trx
    }
}

/// Conflicting transactions, without duplicates. Waiting for the first is as good as for any.
pub type Blockers = Vec<Blocker>;

fn push_blocker(blockers: &mut Blockers, trx: &Arc<TrxState>) {
    if !trx.is_ended() && !blockers.iter().any(|b| b.id() == trx.id()) {
        blockers.push(Blocker::from(trx));
    }
}

/// An explicit lock, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Who holds it.
    pub transaction: TrxId,
    /// The tablespace.
    pub space: SpaceId,
    /// The tree.
    pub tree: TreeId,
    /// How it is held; of a gap lock this says nothing.
    pub mode: LockMode,
    /// What is locked.
    pub target: LockTarget,
}

/// What an explicit lock is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTarget {
    /// A row, of which a hash of the key is known.
    Row(u64),
    /// All keys between two bounds.
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// As a range, against inserts only.
    Gap(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

/// All explicit locks of an open database.
#[derive(Debug, Default)]
pub struct LockTable {
    records: records::RecordLocks,
    ranges: ranges::RangeLocks,
}

impl LockTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks a row for `trx`, or says who is in the way. Having it shared and asking for exclusive
    /// upgrades; having it at least as strong does nothing. True if `trx` had no lock of the row.
    pub fn try_lock_record(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
    ) -> Result<bool, Blockers> {
        let name = self.records.name(space, tree, key);
        let new = self.records.try_lock(trx, name, (space, tree), mode)?;
        if new {
            held.records.push(name);
        }
        Ok(new)
    }

    /// Gives a row's lock back before the transaction ends; false if it has none. Its waiters are
    /// woken.
    pub fn unlock_record(
        &self,
        trx: &TrxState,
        held: &mut HeldLocks,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
    ) -> bool {
        let name = self.records.name(space, tree, key);
        // Most often it is the latest.
        let Some(at) = held.records.iter().rposition(|&held| held == name) else {
            return false;
        };
        held.records.swap_remove(at);
        self.records.release(trx, name);
        trx.note_release();
        true
    }

    /// Whether `trx` itself has locked a row at least so.
    pub fn holds_record(
        &self,
        trx: &TrxState,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
    ) -> bool {
        self.records
            .holds(trx, self.records.name(space, tree, key), mode)
    }

    /// Who is in the way of an access to a row that takes no explicit lock itself. One atomic load
    /// while there are no explicit locks of rows.
    pub fn record_blockers(
        &self,
        trx: &TrxState,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
    ) -> Blockers {
        if !self.records.in_use() {
            return Vec::new();
        }
        self.records
            .blockers(trx, self.records.name(space, tree, key), mode)
    }

    /// Locks a range of keys, existing or not, for `trx`, or says whose *ranges* are in the way.
    #[expect(clippy::too_many_arguments, reason = "a range is four of them")]
    pub fn try_lock_range(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        space: SpaceId,
        tree: TreeId,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: LockMode,
    ) -> Result<(), Blockers> {
        let tree = (space, tree);
        if self.ranges.try_lock(trx, tree, low, high, mode)? {
            held.trees.push(tree);
        }
        Ok(())
    }

    /// Whose range locks are in the way of an access to a key. One atomic load while there are no
    /// range locks in the tree's shard.
    pub fn range_blockers(
        &self,
        trx: &TrxState,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
        mode: LockMode,
    ) -> Blockers {
        let access = ranges::Access::Row(mode);
        self.ranges.blockers(trx, (space, tree), key, access)
    }

    /// Whose range or gap locks are in the way of a new row. As cheap as
    /// [`range_blockers`](Self::range_blockers).
    pub fn insert_blockers(
        &self,
        trx: &TrxState,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
    ) -> Blockers {
        let access = ranges::Access::Insert;
        self.ranges.blockers(trx, (space, tree), key, access)
    }

    /// Locks a gap for `trx`. Nobody can be in the way: rows that are there are not its matter.
    pub fn lock_gap(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        space: SpaceId,
        tree: TreeId,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) {
        if self.ranges.lock_gap(trx, (space, tree), low, high) {
            held.trees.push((space, tree));
        }
    }

    /// Gives back everything that `trx` holds. Called at its end, after or shortly before its status
    /// was set; nobody waits for this.
    pub fn release_all(&self, trx: &TrxState, held: &mut HeldLocks) {
        for name in std::mem::take(&mut held.records) {
            self.records.release(trx, name);
        }
        for tree in std::mem::take(&mut held.trees) {
            self.ranges.release(trx, tree);
        }
    }

    /// Whether no row and no range of the tree is locked explicitly, for sure. Two atomic loads.
    #[inline]
    pub fn is_idle(&self, space: SpaceId, tree: TreeId) -> bool {
        !self.records.in_use() && self.ranges.is_idle((space, tree))
    }

    /// Makes looking for locks cheap again once there are none left. To be called about twice a
    /// second.
    pub fn rest(&self) {
        self.records.rest();
    }

    /// All explicit locks, as far as they hold still.
    pub fn list(&self) -> Vec<LockInfo> {
        let mut all = self.records.list();
        all.extend(self.ranges.list());
        all
    }

    /// Number of explicit locks of rows (each holder counts) and of transactions' ranges (each tree
    /// counts once for each transaction).
    pub fn counts(&self) -> (usize, usize) {
        (self.records.count(), self.ranges.count())
    }
}
