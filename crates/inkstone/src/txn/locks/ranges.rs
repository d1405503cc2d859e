//! Locks of key ranges.
//!
//! A range lies between two *cuts*: places before or after a key. Half-open intervals of cuts express
//! every pair of bounds, and two ranges overlap iff each begins before the other ends. A transaction's
//! ranges of one tree and mode are kept as disjoint intervals that do not touch, so a check costs one
//! search in an ordered map for each transaction that has ranges in the tree.
//!
//! Gaps are a third set beside shared and exclusive ranges: an insert looks at all three, any other
//! access at those two.

use super::{Blockers, LockInfo, LockMode, LockTarget, push_blocker};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{HashMap, Mutex};
use crate::txn::system::TrxState;
use crossbeam_utils::CachePadded;
use inkstone_format::{SpaceId, TreeId};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Shards of the table, by tree; a power of two.
const SHARDS: usize = 64;

/// On which side of its key a cut is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    After,
}

/// A place between keys. The derived order is the order of places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    At(Box<[u8]>, Side),
    /// After all keys.
    End,
}

impl Cut {
    fn as_low(&self) -> Bound<Vec<u8>> {
        match self {
            Self::At(key, Side::Before) if key.is_empty() => Bound::Unbounded,
            Self::At(key, Side::Before) => Bound::Included(key.to_vec()),
            Self::At(key, Side::After) => Bound::Excluded(key.to_vec()),
            Self::End => Bound::Unbounded,
        }
    }

    fn as_high(&self) -> Bound<Vec<u8>> {
        match self {
            Self::At(key, Side::Before) => Bound::Excluded(key.to_vec()),
            Self::At(key, Side::After) => Bound::Included(key.to_vec()),
            Self::End => Bound::Unbounded,
        }
    }

    /// Nothing lies between a key and the same with a zero behind it: the cut between them has one
    /// name, so that ranges that touch there become one.
    fn before(key: &[u8]) -> Self {
        match key.split_last() {
            Some((0, shorter)) => Self::after(shorter),
            _ => Self::At(key.into(), Side::Before),
        }
    }

    fn after(key: &[u8]) -> Self {
        Self::At(key.into(), Side::After)
    }

    fn low(bound: Bound<&[u8]>) -> Self {
        match bound {
            Bound::Included(key) => Self::before(key),
            Bound::Excluded(key) => Self::after(key),
            // The empty key is the smallest.
            Bound::Unbounded => Self::before(&[]),
        }
    }

    fn high(bound: Bound<&[u8]>) -> Self {
        match bound {
            Bound::Included(key) => Self::after(key),
            Bound::Excluded(key) => Self::before(key),
            Bound::Unbounded => Self::End,
        }
    }
}

/// Disjoint, not touching, not empty intervals: low cut -> high cut.
#[derive(Debug, Default)]
struct RangeSet(BTreeMap<Cut, Cut>);

impl RangeSet {
    fn overlaps(&self, low: &Cut, high: &Cut) -> bool {
        // Of the intervals that begin before `high` the last one ends last.
        let last = self.0.range(..high).next_back();
        last.is_some_and(|(_, end)| end > low)
    }

    fn covers(&self, low: &Cut, high: &Cut) -> bool {
        let last = self.0.range(..=low).next_back();
        last.is_some_and(|(_, end)| end >= high)
    }

    fn insert(&mut self, mut low: Cut, mut high: Cut) {
        while let Some((l, h)) = self.0.range(..=&high).next_back() {
            if *h < low {
                break;
            }
            let (l, h) = (l.clone(), h.clone());
            self.0.remove(&l);
            low = low.min(l);
            high = high.max(h);
        }
        self.0.insert(low, high);
    }
}

/// One transaction's ranges in one tree.
#[derive(Debug)]
struct Owner {
    trx: Arc<TrxState>,
    shared: RangeSet,
    exclusive: RangeSet,
    gaps: RangeSet,
}

/// What somebody wants to do in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Lock or change what is there.
    Row(LockMode),
    /// Put a new row there.
    Insert,
}

impl Owner {
    fn new(trx: &Arc<TrxState>) -> Self {
        Self {
            trx: trx.clone(),
            shared: RangeSet::default(),
            exclusive: RangeSet::default(),
            gaps: RangeSet::default(),
        }
    }

    fn conflicts(&self, low: &Cut, high: &Cut, access: Access) -> bool {
        self.exclusive.overlaps(low, high)
            || access != Access::Row(LockMode::Shared) && self.shared.overlaps(low, high)
            || access == Access::Insert && self.gaps.overlaps(low, high)
    }
}

type TreeKey = (SpaceId, TreeId);

#[derive(Debug, Default)]
struct Shard {
    /// Owners in `trees`; changed under its latch.
    count: AtomicUsize,
    trees: Mutex<HashMap<TreeKey, Vec<Owner>>>,
}

impl Shard {
    /// The transaction's entry of a tree, made if there is none (true).
    fn owner<'o>(&self, owners: &'o mut Vec<Owner>, trx: &Arc<TrxState>) -> (&'o mut Owner, bool) {
        let at = owners.iter().position(|o| o.trx.id() == trx.id());
        if at.is_none() {
            owners.push(Owner::new(trx));
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        let index = at.unwrap_or(owners.len() - 1);
        (&mut owners[index], at.is_none())
    }
}

#[derive(Debug)]
pub(super) struct RangeLocks(Box<[CachePadded<Shard>]>);

impl Default for RangeLocks {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| CachePadded::default()).collect())
    }
}

fn blockers(owners: &[Owner], trx: &TrxState, low: &Cut, high: &Cut, access: Access) -> Blockers {
    let mut found = Vec::new();
    for owner in owners {
        if owner.trx.id() != trx.id() && owner.conflicts(low, high, access) {
            push_blocker(&mut found, &owner.trx);
        }
    }
    found
}

impl RangeLocks {
    fn shard(&self, (space, tree): TreeKey) -> &Shard {
        let mixed = (space.0 as usize).wrapping_mul(31) + tree.0 as usize;
        &self.0[mixed % SHARDS]
    }

    /// `Ok(true)` if `trx` had no range in the tree before.
    pub fn try_lock(
        &self,
        trx: &Arc<TrxState>,
        tree: TreeKey,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: LockMode,
    ) -> Result<bool, Blockers> {
        let (low, high) = (Cut::low(low), Cut::high(high));
        if low >= high {
            return Ok(false);
        }
        let shard = self.shard(tree);
        let mut trees = shard.trees.lock();
        let owners = trees.entry(tree).or_default();
        let found = blockers(owners, trx, &low, &high, Access::Row(mode));
        if !found.is_empty() {
            return Err(found);
        }
        let (owner, new) = shard.owner(owners, trx);
        if !owner.exclusive.covers(&low, &high) {
            match mode {
                LockMode::Exclusive => owner.exclusive.insert(low, high),
                LockMode::Shared if owner.shared.covers(&low, &high) => {}
                LockMode::Shared => owner.shared.insert(low, high),
            }
        }
        Ok(new)
    }

    /// True if `trx` had no range in the tree before.
    pub fn lock_gap(
        &self,
        trx: &Arc<TrxState>,
        tree: TreeKey,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) -> bool {
        let (low, high) = (Cut::low(low), Cut::high(high));
        if low >= high {
            return false;
        }
        let shard = self.shard(tree);
        let mut trees = shard.trees.lock();
        let (owner, new) = shard.owner(trees.entry(tree).or_default(), trx);
        if !owner.gaps.covers(&low, &high) {
            owner.gaps.insert(low, high);
        }
        new
    }

    pub fn list(&self) -> Vec<LockInfo> {
        let mut all = Vec::new();
        for shard in &self.0 {
            let trees = shard.trees.lock();
            for (&(space, tree), owners) in trees.iter() {
                for owner in owners {
                    let mut add = |set: &RangeSet, mode, gap: bool| {
                        all.extend(set.0.iter().map(|(low, high)| {
                            let (low, high) = (low.as_low(), high.as_high());
                            let target = match gap {
                                true => LockTarget::Gap(low, high),
                                false => LockTarget::Range(low, high),
                            };
                            LockInfo {
                                transaction: owner.trx.id(),
                                space,
                                tree,
                                mode,
                                target,
                            }
                        }));
                    };
                    add(&owner.shared, LockMode::Shared, false);
                    add(&owner.exclusive, LockMode::Exclusive, false);
                    add(&owner.gaps, LockMode::Shared, true);
                }
            }
        }
        all
    }

    /// Whether nothing in the tree's shard is locked.
    #[inline]
    pub fn is_idle(&self, tree: TreeKey) -> bool {
        self.shard(tree).count.load(Ordering::SeqCst) == 0
    }

    pub fn blockers(&self, trx: &TrxState, tree: TreeKey, key: &[u8], access: Access) -> Blockers {
        let shard = self.shard(tree);
        if shard.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let (low, high) = (Cut::before(key), Cut::after(key));
        let trees = shard.trees.lock();
        trees
            .get(&tree)
            .map_or_else(Vec::new, |o| blockers(o, trx, &low, &high, access))
    }

    pub fn release(&self, trx: &TrxState, tree: TreeKey) {
        let shard = self.shard(tree);
        let mut trees = shard.trees.lock();
        let owners = trees.get_mut(&tree);
        let at = owners
            .as_ref()
            .and_then(|o| o.iter().position(|o| o.trx.id() == trx.id()));
        let (Some(owners), Some(at)) = (owners, at) else {
            crate::invariant!(false, "{trx:?} has no range lock in {tree:?}");
            return;
        };
        owners.swap_remove(at);
        if owners.is_empty() {
            trees.remove(&tree);
        }
        shard.count.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn count(&self) -> usize {
        let counts = self.0.iter().map(|s| s.count.load(Ordering::Relaxed));
        counts.sum()
    }

    /// Intervals that a transaction has in a tree: shared, exclusive.
    #[cfg(test)]
    pub fn intervals(&self, trx: &TrxState, tree: TreeKey) -> (usize, usize) {
        let trees = self.shard(tree).trees.lock();
        let owners = trees.get(&tree).map_or(&[][..], |o| o);
        let owner = owners.iter().find(|o| o.trx.id() == trx.id());
        owner.map_or((0, 0), |o| (o.shared.0.len(), o.exclusive.0.len()))
    }
}
