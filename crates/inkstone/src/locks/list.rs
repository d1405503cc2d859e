//! Lists of locks and waits, for diagnosis.
//!
//! A list costs what it shows. A transaction may have locked millions of rows: they are copied in
//! portions, and no latch is held while one is shown. What is given and taken meanwhile may be in
//! the list or not.

use super::intervals::{High, low_bound};
use super::tree::{Owner, RangeKind, TreeLocks};
use super::{Access, LockMode, LockTable, LockTarget, TreeKey};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use crate::sync::HashMap;
use crate::sync::atomic::Ordering;
use inkstone_format::TrxId;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Locks that are copied at a time.
const PORTION: usize = 256;

/// A lock, or the wish for one.
#[derive(Clone, Debug)]
pub struct LockInfo {
    /// The transaction that holds or wants it.
    pub transaction: Arc<TrxState>,
    /// Where.
    pub tree: TreeKey,
    /// How it is held or wanted; of a gap lock this says nothing.
    pub mode: LockMode,
    /// What is locked.
    pub target: LockTarget,
    /// Whether it is held.
    pub standing: Standing,
}

/// How a transaction stands to a lock that is listed.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It holds it.
    Held,
    /// It has changed the row, which others wait for. Of changed rows these alone are listed.
    Changed,
    /// It waits for it.
    Waits(Wish),
}

/// A wait.
#[derive(Clone, Debug)]
pub struct Wish {
    /// For how long by now.
    pub waited: Duration,
    /// The place in the row's queue, from 1; none for a range, which has no queue.
    pub place: Option<usize>,
    /// Whether it is to put a new row there.
    pub inserts: bool,
    /// The transactions that it waits for: of several before it in the queue the last that waits
    /// for the others, too.
    pub blockers: Vec<TrxId>,
}

impl LockTable {
    fn read<T>(&self, tree: TreeKey, read: impl FnOnce(&TreeLocks) -> T) -> Option<T> {
        let trees = self.shard(tree).trees.lock();
        trees.get(&tree).map(read)
    }

    /// Trees with locks or waiters.
    fn trees_in_use(&self) -> Vec<TreeKey> {
        let used = |shard: &&_| -> bool {
            let shard: &crossbeam_utils::CachePadded<super::Shard> = shard;
            shard.in_use.load(Ordering::SeqCst) > 0
        };
        let shards = self.shards.iter().filter(used);
        shards
            .flat_map(|shard| shard.trees.lock().keys().copied().collect::<Vec<_>>())
            .collect()
    }

    /// All waits, the longest first.
    pub fn waits(&self) -> Vec<LockInfo> {
        let mut all = Vec::new();
        for tree in self.trees_in_use() {
            all.extend(
                self.read(tree, |locks| waits_in(locks, tree))
                    .into_iter()
                    .flatten(),
            );
        }
        all.sort_by_key(|lock| match &lock.standing {
            Standing::Waits(wish) => std::cmp::Reverse(wish.waited),
            Standing::Held | Standing::Changed => std::cmp::Reverse(Duration::MAX),
        });
        all
    }

    /// Shows all explicit locks, tree by tree, and the queues, until `show` breaks.
    pub fn visit(&self, mut show: impl FnMut(&LockInfo) -> ControlFlow<()>) -> ControlFlow<()> {
        for tree in self.trees_in_use() {
            let owners = self.read(tree, |locks| {
                let mut owners: Vec<TrxId> = locks.owners().map(|owner| owner.trx.id()).collect();
                owners.sort_unstable();
                owners
            });
            for owner in owners.unwrap_or_default() {
                self.visit_points(tree, owner, &mut show)?;
                for kind in RangeKind::ALL {
                    self.visit_ranges(tree, owner, kind, &mut show)?;
                }
            }
            self.visit_queues(tree, &mut show)?;
        }
        ControlFlow::Continue(())
    }

    fn visit_points(
        &self,
        tree: TreeKey,
        owner: TrxId,
        show: &mut impl FnMut(&LockInfo) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let portion = self.read(tree, |locks| {
                let Some(owner) = locks.owner(owner) else {
                    return Vec::new();
                };
                let points = owner.points.iter_after(after.as_deref()).take(PORTION);
                points
                    .map(|(key, point)| {
                        held(owner, tree, point.mode, LockTarget::Row(key.to_vec()))
                    })
                    .collect()
            });
            let portion = portion.unwrap_or_default();
            portion.iter().try_for_each(&mut *show)?;
            match portion.last().map(|lock| &lock.target) {
                Some(LockTarget::Row(key)) if portion.len() == PORTION => {
                    paranoid!(
                        after.as_ref().is_none_or(|after| after < key),
                        "behind row {after:x?} locks come up to {key:x?}"
                    );
                    after = Some(key.clone());
                }
                _ => return ControlFlow::Continue(()),
            }
        }
    }

    fn visit_ranges(
        &self,
        tree: TreeKey,
        owner: TrxId,
        kind: RangeKind,
        show: &mut impl FnMut(&LockInfo) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut after: Option<Box<[u8]>> = None;
        loop {
            let portion = self.read(tree, |locks| {
                let Some(owner) = locks.owner(owner) else {
                    return (Vec::new(), None);
                };
                let intervals: Vec<(&[u8], &High)> = owner
                    .range(kind)
                    .iter_after(after.as_deref())
                    .take(PORTION)
                    .collect();
                let last = intervals.last().map(|&(low, _)| low.into());
                (
                    intervals
                        .into_iter()
                        .map(|ends| held_range(owner, tree, kind, ends))
                        .collect(),
                    last,
                )
            });
            let (portion, last) = portion.unwrap_or_default();
            portion.iter().try_for_each(&mut *show)?;
            if portion.len() < PORTION {
                return ControlFlow::Continue(());
            }
            paranoid!(
                after < last,
                "behind a range from {after:x?} on come those up to {last:x?}"
            );
            after = last;
        }
    }

    fn visit_queues(
        &self,
        tree: TreeKey,
        show: &mut impl FnMut(&LockInfo) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut after: Option<Box<[u8]>> = None;
        while let Some((key, queue)) = self
            .read(tree, |locks| next_queue(locks, tree, after.as_deref()))
            .flatten()
        {
            queue.iter().try_for_each(&mut *show)?;
            paranoid!(
                after.as_ref().is_none_or(|after| *after < key),
                "behind the queue of {after:x?} comes that of {key:x?}"
            );
            after = Some(key);
        }
        let ranges = self.read(tree, |locks| waits_for_ranges(locks, tree));
        ranges.unwrap_or_default().iter().try_for_each(show)
    }

    /// How many rows, and ranges and gaps, each transaction has locked.
    pub fn counts_by_transaction(&self) -> HashMap<TrxId, (u64, u64)> {
        let mut counts: HashMap<TrxId, (u64, u64)> = HashMap::default();
        for tree in self.trees_in_use() {
            self.read(tree, |locks| {
                for owner in locks.owners() {
                    let (rows, ranges) = counts.entry(owner.trx.id()).or_default();
                    *rows += owner.points.len() as u64;
                    *ranges += owner.ranges().map(|(_, set)| set.len() as u64).sum::<u64>();
                }
            });
        }
        counts
    }
}

fn held(owner: &Owner, tree: TreeKey, mode: LockMode, target: LockTarget) -> LockInfo {
    LockInfo {
        transaction: owner.trx.clone(),
        tree,
        mode,
        target,
        standing: Standing::Held,
    }
}

fn held_range(
    owner: &Owner,
    tree: TreeKey,
    kind: RangeKind,
    (low, high): (&[u8], &High),
) -> LockInfo {
    paranoid!(
        High::At(low.into()) < *high,
        "a range is locked from {low:x?} to {high:x?}"
    );
    let (low, high) = (low_bound(low), high.as_bound());
    match kind {
        RangeKind::All(mode) => held(owner, tree, mode, LockTarget::Range(low, high)),
        RangeKind::Gap => held(owner, tree, LockMode::Shared, LockTarget::Gap(low, high)),
    }
}

/// The next queue behind a key: the transaction that has changed the row, and its waiters.
fn next_queue(
    locks: &TreeLocks,
    tree: TreeKey,
    after: Option<&[u8]>,
) -> Option<(Box<[u8]>, Vec<LockInfo>)> {
    let key: Box<[u8]> = locks.queue_after(after)?.into();
    let holder = locks.holder(&key).map(|trx| LockInfo {
        transaction: trx.clone(),
        tree,
        mode: LockMode::Exclusive,
        target: LockTarget::Row(key.to_vec()),
        standing: Standing::Changed,
    });
    let waiting = waits_in_queue(locks, tree, &key);
    Some((key, holder.into_iter().chain(waiting).collect()))
}

fn waits_in_queue(locks: &TreeLocks, tree: TreeKey, key: &[u8]) -> Vec<LockInfo> {
    let waiting = locks.waiting(key).enumerate();
    waiting
        .map(|(at, (request, blockers))| LockInfo {
            transaction: request.trx.clone(),
            tree,
            mode: request.access.mode(),
            target: request.target.for_people(),
            standing: Standing::Waits(Wish {
                waited: request.since.elapsed(),
                place: Some(at + 1),
                inserts: request.access == Access::Insert,
                blockers: blockers.iter().map(|trx| trx.id()).collect(),
            }),
        })
        .collect()
}

fn waits_for_ranges(locks: &TreeLocks, tree: TreeKey) -> Vec<LockInfo> {
    let wanted = locks.ranges_wanted();
    wanted
        .map(|request| LockInfo {
            transaction: request.trx.clone(),
            tree,
            mode: request.access.mode(),
            target: request.target.for_people(),
            standing: Standing::Waits(Wish {
                waited: request.since.elapsed(),
                place: None,
                inserts: false,
                blockers: locks
                    .all_blockers(request)
                    .iter()
                    .map(|trx| trx.id())
                    .collect(),
            }),
        })
        .collect()
}

fn waits_in(locks: &TreeLocks, tree: TreeKey) -> Vec<LockInfo> {
    let mut all = waits_for_ranges(locks, tree);
    let mut after: Option<&[u8]> = None;
    while let Some(key) = locks.queue_after(after) {
        all.extend(waits_in_queue(locks, tree, key));
        after = Some(key);
    }
    all
}
