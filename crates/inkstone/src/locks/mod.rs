//! Explicit locks of rows and ranges, waiting for them, and deadlocks.
//!
//! # Words
//!
//! - *implicit lock*: a row's newest uncommitted version. It is found by a look at the row and is
//!   not in this table.
//! - *explicit lock*: shared or exclusive, on a row or on all rows of a range, existing or not; or
//!   a *gap lock*, which forbids others to insert rows in a range, and nothing else: gap locks
//!   conflict neither with each other nor with changes of rows that are there. Held until the
//!   transaction ends, but for rows that turn out not to be wanted at read committed.
//! - *statement lock*: an exclusive lock of a table and of none of its rows; it is given back when
//!   its holder's statement ends (`statement.rs`).
//! - *queue*: the waiters for a row, in the order in which they came.
//! - *handed*: granted to a waiter whose statement has not looked again yet.
//!
//! # Promises
//!
//! 1. Of two transactions that have not ended, never do both hold conflicting explicit locks of the
//!    same row; the same for overlapping ranges. Tested by `exclusive_locks_exclude`,
//!    `ranges_match_a_model`.
//! 2. The waiters for a row are handed it in order, each when nothing is in its way: none is woken
//!    that cannot go on, and none is overtaken by a later one. Three exceptions: a transaction that
//!    has the row shared, and wants it exclusively, does not wait behind the waiters for it; one
//!    that gave it back by rolling back to a savepoint may change its own rows; a waiter for a
//!    range has no place in any queue. Tested by `a_queue_is_served_in_order_without_overtaking`,
//!    `an_upgrade_of_a_shared_lock_goes_before_the_waiters`,
//!    `a_writer_goes_on_with_its_row_whatever_waits_for_it`.
//! 3. An ended transaction blocks no other, even before `release_all` has removed its locks. Tested
//!    by `record_locks_conflict_upgrade_and_are_reentrant`.
//! 4. A lock that was asked for twice is not given back before the transaction ends; nor is one
//!    that was joined with others (`join.rs`). Tested by
//!    `a_lock_that_was_taken_twice_is_not_given_back_early`,
//!    `locks_beyond_their_memory_are_joined`. Tested by the simulator (`lock-token-ignored`).
//! 5. A wait ends when what was waited for is handed over, the waiter was made a deadlock's victim
//!    or was interrupted, time is up, or the engine is poisoned. Tested by
//!    `a_deadlock_through_any_blocker_is_found`, `interrupts_end_waits_and_scans`,
//!    `a_wait_times_out`, `a_wait_ends_when_the_engine_is_poisoned`.
//! 6. A set of transactions that wait for each other in a circle loses a member at once. Tested by
//!    `the_cheapest_of_a_circle_is_the_victim`, `a_new_gap_is_seen_by_a_waiting_insert`.
//!
//! # What the caller must do
//!
//! The latch of the row's leaf makes one step of checking for a lock and changing the row: a caller
//! that locks a row looks for an implicit lock, and calls [`LockTable::lock_row`], while it holds
//! the leaf's latch (shared suffices); one that changes a row calls [`LockTable::may_write`] while
//! it holds the latch exclusively. Both are told of the implicit lock that the caller found, and
//! enter the queue then and there. The caller drops the latch, waits ([`LockTable::wait`]), and
//! looks again: what it was handed is free for it, but for an implicit lock of a transaction that
//! gave back another change. A range is locked *before* its leaves are read, and for each row found
//! in it the reader looks for an implicit lock. A gap is locked under the latch of the leaf that
//! covers it, when the reader has seen what the leaf holds there.
//!
//! A caller that has waited to write calls [`LockTable::wrote`] or [`LockTable::give_up`] in the
//! end.
//!
//! # Latches
//!
//! A shard of trees: held for one operation. Inside it the [`WaitGraph`]'s, then those of
//! transactions' watches and `woken`. No latch is held while [`LockWaitHooks::about_to_wait`] runs.

mod deadlock;
mod graph;
mod hooks;
mod intervals;
mod join;
mod list;
mod own_thread;
mod points;
mod request;
mod statement;
mod taking;
mod tree;

#[cfg(test)]
mod tests;

pub use deadlock::{Names, TreeNames};
pub use graph::WaitGraph;
pub use hooks::LockWaitHooks;
pub use list::{LockInfo, Standing};
pub use taking::{IfTaken, Locked, Taken};
pub use tree::RangeKind;

use crate::counters::{Counter, Counters, Timed};
use crate::mutants::{self, Mutant};
use crate::mvcc::Interrupt;
pub use crate::mvcc::system::TreeKey;
use crate::mvcc::system::TrxState;
use crate::paranoid::{Check, Checked, MANY, ON, paranoid};
use crate::poison::Poison;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{HashMap, Instant};
use crate::trace;
use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use inkstone_format::TrxId;
use intervals::Interval;
use request::{Request, Target};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tree::TreeLocks;

/// A waiter looks at least this often whether the engine is poisoned.
const POISON_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Shards of the table, by tree; a power of two.
const SHARDS: usize = 256;

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

/// What a transaction wants to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Lock or change it.
    Row(LockMode),
    /// Put a new one there.
    Insert,
}

impl Access {
    fn mode(self) -> LockMode {
        match self {
            Self::Row(mode) => mode,
            Self::Insert => LockMode::Exclusive,
        }
    }

    /// Whether two may not be granted at once.
    fn conflicts(self, other: Self) -> bool {
        self.mode().conflicts(other.mode())
    }

    /// Whether everything is in its way that is in the way of `later`.
    fn waits_for_all_of(self, later: Self) -> bool {
        match self {
            Self::Row(LockMode::Shared) => false,
            Self::Row(LockMode::Exclusive) => later != Self::Insert,
            Self::Insert => later == Self::Insert,
        }
    }
}

/// A row, or the place of one.
#[derive(Clone, Copy, Debug)]
pub struct RowName<'k> {
    /// Its tree.
    pub tree: TreeKey,
    /// Its key.
    pub key: &'k [u8],
}

/// In which trees a transaction has locks that it must give back at its end. Kept by the
/// transaction.
#[derive(Debug, Default)]
pub struct HeldLocks {
    trees: Vec<TreeKey>,
}

impl HeldLocks {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    fn note(&mut self, trx: &TrxState, tree: TreeKey) {
        // Most often it is one of the latest.
        if !self.trees.iter().rev().any(|&held| held == tree) {
            self.trees.push(tree);
            trx.add_cost();
        }
    }
}

impl Check for HeldLocks {
    fn check(&self) {
        if let Some((last, others)) = self.trees.split_last() {
            let mut others = others.iter().rev().take(MANY);
            paranoid!(
                others.all(|tree| tree != last),
                "locks in tree {last:?} were noted twice"
            );
        }
    }
}

/// A transaction that had changed a row when the row was looked at.
#[derive(Clone, Debug)]
pub struct Blocker {
    trx: Arc<TrxState>,
    /// How often it had given something back by then. Read while the latch is held under which the
    /// change was seen, and which is needed to take it back: a waiter misses nothing since.
    releases: u32,
}

/// How a row's newest version stands to the transaction that looks at it.
#[derive(Clone, Debug)]
pub enum Newest {
    /// It was committed, or there is none.
    Free,
    /// It is the transaction's own: no other has the row.
    Own,
    /// An unfinished transaction has made it.
    Busy(Blocker),
}

impl Newest {
    fn busy(&self) -> Option<&Blocker> {
        match self {
            Self::Busy(blocker) => Some(blocker),
            Self::Free | Self::Own => None,
        }
    }
}

impl PartialEq for Blocker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.trx, &other.trx) && self.releases == other.releases
    }
}

impl Blocker {
    /// Whether it has ended or given something back since: then a new look is worthwhile.
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

/// What an explicit lock is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTarget {
    /// A row: its key.
    Row(Vec<u8>),
    /// All keys between two bounds.
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// As a range, against inserts only.
    Gap(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

#[derive(Debug, Default)]
struct Shard {
    /// Trees with locks or waiters; changed under its latch.
    in_use: AtomicUsize,
    trees: Checked<HashMap<TreeKey, TreeLocks>>,
}

impl Shard {
    /// Of a tree without locks and waiters nothing is kept. The caller has the latch.
    fn forget(&self, trees: &mut HashMap<TreeKey, TreeLocks>, tree: TreeKey) {
        trees.remove(&tree);
        let before = self.in_use.fetch_sub(1, Ordering::SeqCst);
        paranoid!(
            before == trees.len() + 1,
            "{before} trees had locks, {} are left",
            trees.len()
        );
    }
}

impl Check for HashMap<TreeKey, TreeLocks> {
    fn check(&self) {
        for (tree, locks) in self.iter().take(MANY) {
            paranoid!(!locks.is_empty(), "tree {tree:?} has no locks");
            locks.check();
        }
    }
}

/// A place in a queue. [`LockTable::wait`] waits there; if it is dropped, the place is given up.
#[must_use]
pub struct Waiting<'l> {
    table: &'l LockTable,
    request: Arc<Request>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.request.is_granted() {
            self.table.cancel(&self.request);
        }
    }
}

/// All explicit locks of an open database, and their waiters.
pub struct LockTable {
    shards: Box<[CachePadded<Shard>]>,
    graph: WaitGraph,
    /// Bytes of one transaction's locks in one tree beyond which they are joined.
    memory_max: u64,
    counters: Arc<Counters>,
    poison: Poison,
}

impl LockTable {
    /// An empty table, in which the locks of one transaction in one tree are joined when they take
    /// more than `memory_max` bytes.
    pub fn new(memory_max: u64, counters: Arc<Counters>, poison: Poison) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            graph: WaitGraph::new(counters.clone()),
            memory_max,
            counters,
            poison,
        }
    }

    /// Which transaction waits for which.
    pub fn graph(&self) -> &WaitGraph {
        &self.graph
    }

    fn shard(&self, (space, tree): TreeKey) -> &Shard {
        let mixed = (space.0 as usize).wrapping_mul(31) + tree.0 as usize;
        &self.shards[mixed % SHARDS]
    }

    /// Whether it is certain that nothing of the tree is locked or waited for. One atomic load.
    #[inline]
    pub fn is_idle(&self, tree: TreeKey) -> bool {
        self.shard(tree).in_use.load(Ordering::SeqCst) == 0
    }

    fn change<T>(&self, tree: TreeKey, change: impl FnOnce(&mut TreeLocks) -> T) -> T {
        let shard = self.shard(tree);
        let mut trees = shard.trees.lock();
        let locks = trees.entry(tree).or_insert_with(|| {
            shard.in_use.fetch_add(1, Ordering::SeqCst);
            TreeLocks::default()
        });
        let result = change(locks);
        if locks.is_empty() {
            shard.forget(&mut trees, tree);
        }
        result
    }

    /// As [`change`](Self::change), where there is nothing to do without locks.
    fn change_used<T: Default>(
        &self,
        tree: TreeKey,
        change: impl FnOnce(&mut TreeLocks) -> T,
    ) -> T {
        let shard = self.shard(tree);
        if shard.in_use.load(Ordering::SeqCst) == 0 {
            return T::default();
        }
        let mut trees = shard.trees.lock();
        let Some(locks) = trees.get_mut(&tree) else {
            return T::default();
        };
        let result = change(locks);
        if locks.is_empty() {
            shard.forget(&mut trees, tree);
        }
        result
    }

    /// Locks a row for `trx`. Having it shared and asking for exclusive upgrades; having it at
    /// least as strong does nothing. [`Locked::Now`]: `trx` had no lock of the row that is as
    /// strong, and may give back what was added.
    pub fn lock_row(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        row: RowName<'_>,
        mode: LockMode,
        newest: &Newest,
        if_taken: IfTaken,
    ) -> std::result::Result<Locked, Taken<'_>> {
        self.lock_found(trx, held, row, mode, newest, if_taken, |locks| {
            locks.lock_point(trx, row.key, mode)
        })
    }

    /// Locks a row that a scan has come to, and with it the gap in front of it, or all between the
    /// bounds: what a scan has passed is one interval that grows.
    #[expect(clippy::too_many_arguments, reason = "as `lock_row`, and the bounds")]
    pub fn lock_passed(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        row: RowName<'_>,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        mode: LockMode,
        newest: &Newest,
        if_taken: IfTaken,
    ) -> std::result::Result<Locked, Taken<'_>> {
        self.lock_found(trx, held, row, mode, newest, if_taken, |locks| {
            let Some(interval) = Interval::new(low, high) else {
                return locks.lock_point(trx, row.key, mode);
            };
            if locks.is_range_free(trx.id(), &interval, mode) {
                locks.lock_scanned(trx, &interval, mode, &self.graph);
            } else {
                locks.lock_point(trx, row.key, mode);
                locks.lock_interval(trx, &interval, RangeKind::Gap);
                locks.refresh_within(&interval, &self.graph);
            }
            Locked::Before
        })
    }

    #[expect(clippy::too_many_arguments, reason = "as `lock_row`")]
    fn lock_found(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        row: RowName<'_>,
        mode: LockMode,
        newest: &Newest,
        if_taken: IfTaken,
        lock: impl FnOnce(&mut TreeLocks) -> Locked,
    ) -> std::result::Result<Locked, Taken<'_>> {
        let access = Access::Row(mode);
        self.change(row.tree, |locks| {
            let me = trx.id();
            let is_mine = |locks: &TreeLocks| {
                let owner = locks.owner(me);
                owner.is_some_and(|owner| owner.has_row(row.key, mode))
            };
            let may = match newest {
                Newest::Own => true,
                Newest::Busy(_) => false,
                // In this order: mostly there is no other's lock to be looked for.
                Newest::Free => locks.is_free(me, row.key, access) || is_mine(locks),
            };
            if may {
                held.note(trx, row.tree);
                let locked = lock(locks);
                paranoid!(
                    is_mine(locks),
                    "{me:?} has locked row {:x?} of {:?} and does not have it",
                    row.key,
                    row.tree
                );
                self.join_if_large(locks, me);
                self.drop_handed(locks, me);
                locks.refresh_ranges(&self.graph);
                return Ok(locked);
            }
            Err(match if_taken {
                IfTaken::Queue => {
                    let busy = newest.busy();
                    Taken::Queued(self.enqueue(locks, trx, held, row, access, busy))
                }
                IfTaken::Refuse => Taken::Refused,
            })
        })
    }

    /// Whether `trx` may change a row, or put one there; or a place in the queue. If it has made
    /// the row's newest version, it waits for no other: the others wait for it.
    pub fn may_write(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        row: RowName<'_>,
        access: Access,
        newest: &Newest,
    ) -> std::result::Result<(), Waiting<'_>> {
        if matches!(newest, Newest::Own) {
            return Ok(());
        }
        let busy = newest.busy();
        let enter = |locks: &mut TreeLocks| {
            let me = trx.id();
            if busy.is_none() {
                let exclusive = LockMode::Exclusive;
                // A transaction that has locked a range around it has not read the row: it waits
                // for this transaction to end, and must not be waited for.
                let locked = || {
                    let point = locks.owner(me).and_then(|owner| owner.points.get(row.key));
                    access != Access::Insert && point.is_some_and(|point| point.mode == exclusive)
                };
                if locked() || locks.is_free(me, row.key, access) {
                    return None;
                }
            }
            Some(self.enqueue(locks, trx, held, row, access, busy))
        };
        let waiting = match busy {
            None => self.change_used(row.tree, enter),
            Some(_) => self.change(row.tree, enter),
        };
        waiting.map_or(Ok(()), Err)
    }

    fn enqueue(
        &self,
        locks: &mut TreeLocks,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        row: RowName<'_>,
        access: Access,
        busy: Option<&Blocker>,
    ) -> Waiting<'_> {
        let target = Target::Row(row.key.into());
        let request = Request::new(trx, row.tree, target, access);
        let handed = locks.was_handed(trx.id(), row.key);
        let in_vain = handed.is_some_and(|handed| handed >= access.mode());
        held.note(trx, row.tree);
        if in_vain {
            locks.drop_handed(trx.id());
        } else {
            // Before it waits: then the waiters for what it gives back do not wait for it any more.
            self.drop_handed(locks, trx.id());
        }
        paranoid!(
            locks.was_handed(trx.id(), row.key).is_none(),
            "{:?} waits for row {:x?}, which it was handed",
            trx.id(),
            row.key
        );
        locks.enqueue(&request, busy, in_vain, &self.graph);
        Waiting {
            table: self,
            request,
        }
    }

    fn join_if_large(&self, locks: &mut TreeLocks, trx: TrxId) {
        let joined = locks.join_if_large(trx, self.memory_max);
        paranoid!(
            joined == 0 || locks.owner(trx).is_some_and(|owner| owner.count() > 0),
            "{joined} locks of {trx:?} were joined, and it has none"
        );
        if joined > 0 {
            self.counters.add(Counter::LocksJoined, joined as u64);
        }
    }

    fn drop_handed(&self, locks: &mut TreeLocks, trx: TrxId) {
        if let Some(key) = locks.drop_handed(trx) {
            locks.hand_off(&key, &self.graph);
            locks.grant_ranges(&self.graph);
        }
    }

    /// `trx`, which has waited for the row, has changed it: those behind it wait for its end.
    pub fn wrote(&self, trx: &Arc<TrxState>, row: RowName<'_>) {
        self.change_used(row.tree, |locks| {
            if locks.was_handed(trx.id(), row.key).is_some() {
                locks.set_holder(row.tree, row.key, &Blocker::from(trx));
            }
            self.drop_handed(locks, trx.id());
        });
    }

    /// `trx` has waited in the tree, and does not want what it was handed.
    pub fn give_up(&self, trx: &TrxState, tree: TreeKey) {
        self.change_used(tree, |locks| self.drop_handed(locks, trx.id()));
    }

    /// Whether something is in the way of a new row; the caller does not wait for it.
    pub fn blocks_insert(&self, trx: &TrxState, row: RowName<'_>) -> bool {
        self.change_used(row.tree, |locks| {
            !locks.is_free(trx.id(), row.key, Access::Insert)
        })
    }

    /// Whether a transaction has locked a row, or waits for it.
    pub fn is_locked(&self, row: RowName<'_>) -> bool {
        self.change_used(row.tree, |locks| {
            !locks.is_free(TrxId(0), row.key, Access::Row(LockMode::Exclusive))
        })
    }

    /// Gives a row's lock back before the transaction ends, or what the last request for it has
    /// added to it. False if that was nothing. The waiters for it go on.
    pub fn unlock_row(&self, trx: &TrxState, row: RowName<'_>) -> bool {
        self.change_used(row.tree, |locks| {
            let unlocked = locks.unlock_point(trx.id(), row.key);
            if unlocked {
                let owner = locks.owner(trx.id());
                paranoid!(
                    owner.is_none_or(|owner| {
                        let point = owner.points.get(row.key);
                        point.is_none_or(|point| point.given_back() == Some(point))
                    }),
                    "{:?} has row {:x?} still, which it has unlocked",
                    trx.id(),
                    row.key
                );
                locks.hand_off(row.key, &self.graph);
                locks.grant_ranges(&self.graph);
            }
            unlocked
        })
    }

    /// Locks all keys of a range, existing or not, for `trx`.
    pub fn lock_range(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        tree: TreeKey,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        mode: LockMode,
        if_taken: IfTaken,
    ) -> std::result::Result<(), Taken<'_>> {
        let Some(interval) = Interval::new(low, high) else {
            return Ok(());
        };
        self.change(tree, |locks| {
            if locks.is_range_free(trx.id(), &interval, mode) {
                held.note(trx, tree);
                locks.lock_interval(trx, &interval, RangeKind::All(mode));
                paranoid!(
                    locks.owner(trx.id()).is_some(),
                    "{:?} has locked {interval:?} and owns nothing",
                    trx.id()
                );
                self.join_if_large(locks, trx.id());
                locks.refresh_within(&interval, &self.graph);
                locks.refresh_ranges(&self.graph);
                return Ok(());
            }
            if if_taken == IfTaken::Refuse {
                return Err(Taken::Refused);
            }
            held.note(trx, tree);
            let request = Request::new(trx, tree, Target::Range(interval), Access::Row(mode));
            locks.enqueue_range(&request, &self.graph);
            Err(Taken::Queued(Waiting {
                table: self,
                request,
            }))
        })
    }

    /// Locks a gap for `trx`. Nothing can be in the way: rows that are there do not concern it.
    pub fn lock_gap(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        tree: TreeKey,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    ) {
        if let Some(interval) = Interval::new(low, high) {
            self.change(tree, |locks| {
                held.note(trx, tree);
                locks.lock_interval(trx, &interval, RangeKind::Gap);
                self.join_if_large(locks, trx.id());
                locks.refresh_within(&interval, &self.graph);
            });
        }
    }

    /// Gives back everything that `trx` holds. Called at its end, after its status was set.
    pub fn release_all(&self, trx: &TrxState, held: &mut HeldLocks) {
        if ON {
            held.check();
        }
        for tree in std::mem::take(&mut held.trees) {
            self.change(tree, |locks| {
                if let Some(owner) = locks.remove_owner(trx.id()) {
                    locks.hand_off_all(&owner, &self.graph);
                }
                paranoid!(
                    locks.owner(trx.id()).is_none(),
                    "{:?} ends, and has locks in {tree:?}",
                    trx.id()
                );
            });
        }
        self.hand_off_watched(trx);
    }

    /// Gives back what `trx` has locked shared, and its gaps. It must lock nothing any more.
    pub fn release_shared(&self, trx: &TrxState, held: &HeldLocks) {
        if mutants::on(Mutant::PreparedKeepsShared) {
            return;
        }
        for &tree in &held.trees {
            self.change_used(tree, |locks| {
                if let Some(given_back) = locks.take_shared(trx.id()) {
                    locks.hand_off_all(&given_back, &self.graph);
                }
            });
        }
    }

    /// `trx` has taken changes back, and goes on: the waiters for rows that it had changed look
    /// again.
    pub fn changes_taken_back(&self, trx: &TrxState) {
        trx.note_release();
        self.hand_off_watched(trx);
    }

    fn hand_off_watched(&self, trx: &TrxState) {
        if mutants::on(Mutant::HandOffLost) {
            return;
        }
        for (tree, key) in trx.take_watches() {
            self.change_used(tree, |locks| locks.hand_off(&key, &self.graph));
        }
    }

    /// Sleeps until what `waiting` stands for is granted. Afterwards the caller looks at the row
    /// again. `meanwhile` is called now and then; its error ends the wait.
    ///
    /// # Errors
    /// - [`Error::Deadlock`]: the waiter was chosen as the victim and must be rolled back. The
    ///   cheapest member of a circle is chosen (fewest rows changed and locks, as InnoDB counts
    ///   them; of equals the one that closed the circle, then the youngest), or the one that the
    ///   hooks prefer.
    /// - [`Error::LockTimeout`]: `deadline` has passed; it says how long this one wait took.
    /// - [`Error::Interrupted`]: the transaction's interrupt was raised. It is no victim then.
    /// - [`Error::Poisoned`].
    pub fn wait(
        &self,
        waiting: Waiting<'_>,
        deadline: Instant,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let request = &waiting.request;
        let me = &request.trx;
        self.poison.check()?;
        let interrupt = me.details().interrupt;
        let _watch = interrupt.as_ref().map(|interrupt| interrupt.watch(me));
        if me.is_patient() {
            self.tell_hooks(request);
        }
        self.counters.add(Counter::LockWaits, 1);
        let woken = self.sleep(request, interrupt.as_ref(), deadline, meanwhile);
        self.counters
            .record(Timed::RowLockWait, request.since.elapsed());
        let granted = request.is_granted() || !self.cancel(request);
        // Only a waiter with edges is doomed: from here on that cannot happen, and what happened
        // before is reported by this very wait. One that is interrupted does not wait any more,
        // which ends the deadlock as well: its program stops a statement, and goes on with the
        // transaction.
        let is_raised = interrupt.as_ref().is_some_and(Interrupt::is_raised);
        let interrupted = is_raised || matches!(woken, Err(Error::Interrupted));
        let result = match woken {
            _ if me.is_doomed() && interrupted => {
                self.graph.spare(me);
                Err(Error::Interrupted)
            }
            _ if me.is_doomed() => Err(Error::Deadlock),
            Err(Error::LockTimeout { .. }) if granted => Ok(()),
            other => other,
        };
        if matches!(result, Err(Error::LockTimeout { .. })) {
            self.counters.add(Counter::LockTimeouts, 1);
        }
        if result.is_err() {
            self.give_up(me, request.tree);
        }
        if matches!(result, Err(Error::Deadlock)) {
            self.graph.tell_of_deadlock(me);
        }
        trace::lock_wait(me.id().0, &result);
        result
    }

    /// Takes back a request. False: it was granted in the meantime.
    fn cancel(&self, request: &Arc<Request>) -> bool {
        self.change_used(request.tree, |locks| {
            let taken_back = locks.cancel(request, &self.graph);
            if taken_back {
                paranoid!(
                    !request.is_granted(),
                    "{:?} gives up a wait for what it was given",
                    request.trx.id()
                );
                self.graph.leave(&request.trx);
            }
            taken_back
        })
    }

    /// The statement that a transaction is in, if the hooks say so.
    pub fn statement(&self, trx: &TrxState) -> Option<String> {
        let hooks = self.graph.hooks()?;
        let owner = trx.hold_owner()?;
        match owner.get() {
            0 => None,
            owner => hooks.statement(owner),
        }
    }

    fn tell_hooks(&self, request: &Arc<Request>) {
        if statement::is_statement_lock(request.tree) {
            return;
        }
        let Some(hooks) = self.graph.hooks() else {
            return;
        };
        let owner = request.trx.owner();
        if !hooks.wants_waits(owner) {
            return;
        }
        let blockers = self.change_used(request.tree, |locks| locks.all_blockers(request));
        paranoid!(
            blockers
                .iter()
                .all(|blocker| blocker.id() != request.trx.id()),
            "{:?} is in its own way",
            request.trx.id()
        );
        for blocker in blockers {
            if let Some(blocking) = blocker.hold_owner() {
                hooks.about_to_wait(owner, blocking.get());
            }
        }
    }

    fn sleep(
        &self,
        request: &Arc<Request>,
        interrupt: Option<&Interrupt>,
        deadline: Instant,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut says_own_thread = own_thread::SAID;
        loop {
            if request.trx.is_doomed() || request.is_granted() {
                return Ok(());
            }
            self.poison.check()?;
            interrupt.map_or(Ok(()), Interrupt::check)?;
            let now = Instant::now();
            if now >= deadline {
                let waited_ms = request.since.elapsed().as_millis() as u64;
                let place = self.graph.place_of(request);
                return Err(Error::LockTimeout { waited_ms, place });
            }
            request.trx.sleep(deadline.min(now + POISON_CHECK_INTERVAL));
            meanwhile()?;
            if says_own_thread && request.since.elapsed() >= POISON_CHECK_INTERVAL {
                says_own_thread = false;
                self.warn_of_own_thread(request);
            }
        }
    }

    /// Number of explicit locks of rows (each holder counts), and of intervals.
    pub fn counts(&self) -> (usize, usize) {
        let (mut points, mut intervals) = (0, 0);
        for shard in &self.shards {
            for locks in shard.trees.lock().values() {
                for owner in locks.owners() {
                    points += owner.points.len();
                    intervals += owner.ranges().map(|(_, set)| set.len()).sum::<usize>();
                }
            }
        }
        (points, intervals)
    }
}
