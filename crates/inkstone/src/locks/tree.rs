//! The locks of one tree, and the waiters for them.
//!
//! Each transaction that has locks in the tree is an *owner*: rows that it locked one by one, and
//! intervals. A filter says at once of most keys that they are not locked as rows; intervals are
//! few.
//!
//! A row with waiters has a *queue*. It is removed when no waiter is left.

use super::graph::{Blockers, WaitGraph};
use super::intervals::{Interval, IntervalSet, low_bound};
use super::points::{Point, PointSet};
use super::request::{Request, Target};
use super::{Access, Blocker, LockMode, Locked, TreeKey};
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::paranoid::{Check, paranoid};
use inkstone_format::TrxId;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// What an interval's lock is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// Rows that are there, and that there be no others.
    All(LockMode),
    /// That there be no others.
    Gap,
}

impl RangeKind {
    pub(crate) const ALL: [Self; 3] = [
        Self::All(LockMode::Shared),
        Self::All(LockMode::Exclusive),
        Self::Gap,
    ];

    fn index(self) -> usize {
        match self {
            Self::All(LockMode::Shared) => 0,
            Self::All(LockMode::Exclusive) => 1,
            Self::Gap => 2,
        }
    }

    fn conflicts(self, access: Access) -> bool {
        match (self, access) {
            (Self::All(held), Access::Row(mode)) => mode.conflicts(held),
            (Self::All(_) | Self::Gap, Access::Insert) => !mutants::on(Mutant::GapUnseen),
            (Self::Gap, Access::Row(_)) => false,
        }
    }
}

/// A lock that a waiter was handed and has not made its own yet: its statement is about to look
/// again.
#[derive(Debug)]
pub(crate) struct Handed {
    pub key: Box<[u8]>,
    pub mode: LockMode,
}

/// What one transaction holds in the tree.
#[derive(Debug)]
pub(crate) struct Owner {
    pub trx: Arc<TrxState>,
    pub points: PointSet,
    /// Whether its rows have been counted: those of read committed come and go.
    counts_rows: bool,
    ranges: [IntervalSet; 3],
    /// Which of them have been counted: gaps come and go.
    counts_ranges: [bool; 3],
    pub handed: Option<Handed>,
    /// What they took when they were joined last; see [`TreeLocks::join_if_large`].
    pub bytes_after_join: usize,
}

impl Owner {
    fn new(trx: &Arc<TrxState>) -> Self {
        Self {
            trx: trx.clone(),
            points: PointSet::default(),
            counts_rows: false,
            ranges: Default::default(),
            counts_ranges: [false; 3],
            handed: None,
            bytes_after_join: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.handed.is_none() && self.points.is_empty() && !self.has_ranges()
    }

    fn has_ranges(&self) -> bool {
        self.ranges.iter().any(|set| !set.is_empty())
    }

    pub fn range(&self, kind: RangeKind) -> &IntervalSet {
        &self.ranges[kind.index()]
    }

    pub fn range_mut(&mut self, kind: RangeKind) -> &mut IntervalSet {
        &mut self.ranges[kind.index()]
    }

    /// Rows and ranges.
    pub fn count(&self) -> usize {
        self.points.len() + self.ranges.iter().map(IntervalSet::len).sum::<usize>()
    }

    /// Memory, in bytes, but for what the allocator adds.
    pub fn bytes(&self) -> usize {
        self.points.bytes() + self.ranges.iter().map(IntervalSet::bytes).sum::<usize>()
    }

    pub fn ranges(&self) -> impl Iterator<Item = (RangeKind, &IntervalSet)> {
        RangeKind::ALL.into_iter().zip(&self.ranges)
    }

    fn range_conflicts(&self, interval: &Interval, access: Access) -> bool {
        self.ranges()
            .any(|(kind, set)| kind.conflicts(access) && set.overlaps(interval))
    }

    fn range_at_conflicts(&self, key: &[u8], access: Access) -> bool {
        self.ranges()
            .any(|(kind, set)| kind.conflicts(access) && set.has(key))
    }

    fn point_conflicts(&self, key: &[u8], mode: LockMode) -> bool {
        let handed = self.handed.as_ref();
        handed.is_some_and(|handed| *handed.key == *key && handed.mode.conflicts(mode))
            || (self.points.get(key)).is_some_and(|point| point.mode.conflicts(mode))
    }

    /// Whether it has locked a row, or all rows around it, at least so. Not by what it was handed.
    pub fn has_row(&self, key: &[u8], mode: LockMode) -> bool {
        if self.points.get(key).is_some_and(|point| point.mode >= mode) {
            return true;
        }
        let rows = |kind| match kind {
            RangeKind::All(held) => held >= mode,
            RangeKind::Gap => false,
        };
        self.ranges().any(|(kind, set)| rows(kind) && set.has(key))
    }

    /// Whether anything that it holds touches a key.
    fn touches(&self, key: &[u8]) -> bool {
        let any = [Access::Insert, Access::Row(LockMode::Exclusive)];
        self.point_conflicts(key, LockMode::Exclusive)
            || any
                .iter()
                .any(|&access| self.range_at_conflicts(key, access))
    }
}

/// How many rows with each hash are locked as rows.
#[derive(Debug, Default)]
pub(crate) struct PointFilter(Vec<u32>);

impl PointFilter {
    const SLOTS: usize = 1024;

    fn slot(key: &[u8]) -> usize {
        // FNV-1a. Keys chosen to collide make looking for locks slower, no more.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 32) as usize % Self::SLOTS
    }

    /// The first of a set's rows.
    fn may_have_first(&self, points: &PointSet) -> bool {
        let mut first = points.iter().take(CHECKED);
        first.all(|(key, _)| self.may_have(key))
    }

    fn add(&mut self, key: &[u8]) {
        if self.0.is_empty() {
            self.0.resize(Self::SLOTS, 0);
        }
        self.0[Self::slot(key)] += 1;
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        paranoid!(self.may_have(key), "row {key:x?} was not locked");
        self.0[Self::slot(key)] -= 1;
    }

    fn may_have(&self, key: &[u8]) -> bool {
        self.0.get(Self::slot(key)).is_some_and(|&count| count > 0)
    }
}

/// The waiters for one row, or for the place of one.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The transaction that had changed the row and not ended when the row was looked at last.
    holder: Option<Blocker>,
    waiting: VecDeque<Arc<Request>>,
}

impl Queue {
    /// The places of the waiters with no waiter before them that waits for all that they wait for.
    fn front(&self) -> impl Iterator<Item = usize> {
        let mut covered: [bool; 2] = [false; 2];
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.waiting.len() && covered != [true; 2] {
                let access = self.waiting[at].access;
                at += 1;
                let is_insert = usize::from(access == Access::Insert);
                if !covered[is_insert] {
                    covered[is_insert] = access.waits_for_all_of(access);
                    return Some(at - 1);
                }
            }
            None
        })
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct TreeLocks {
    owners: BTreeMap<TrxId, Owner>,
    pub(crate) filter: PointFilter,
    queues: BTreeMap<Box<[u8]>, Queue>,
    /// Waiters for an interval. They have no order.
    ranges_wanted: Vec<Arc<Request>>,
}

/// Owners and queues of a tree that a check looks at.
const CHECKED: usize = 4;

impl Check for Owner {
    fn check(&self) {
        self.points.check();
        for (_, set) in self.ranges() {
            set.check();
        }
        paranoid!(
            self.counts_ranges[RangeKind::Gap.index()] || self.range(RangeKind::Gap).is_empty(),
            "gaps of {:?} were not counted",
            self.trx.id()
        );
        paranoid!(
            self.counts_rows || self.points.is_empty(),
            "{} rows of {:?} were not counted",
            self.points.len(),
            self.trx.id()
        );
    }
}

impl Check for Queue {
    /// A transaction waits once at a time.
    fn check(&self) {
        let mut before: [Option<TrxId>; CHECKED] = [None; CHECKED];
        for (at, request) in self.waiting.iter().take(CHECKED).enumerate() {
            let id = Some(request.trx.id());
            paranoid!(
                !before.contains(&id),
                "{id:?} stands in the queue of {:?} twice",
                request.target
            );
            before[at] = id;
        }
    }
}

impl Check for TreeLocks {
    fn check(&self) {
        for (id, owner) in self.owners.iter().take(CHECKED) {
            paranoid!(
                owner.trx.id() == *id,
                "locks of {id:?} under another's name"
            );
            owner.check();
            paranoid!(
                self.filter.may_have_first(&owner.points),
                "a row that {id:?} has locked looks free"
            );
            // An owner may have nothing left: it goes when its transaction ends.
            if let Some(handed) = &owner.handed {
                paranoid!(
                    self.filter.may_have(&handed.key),
                    "row {:x?}, which was handed to {id:?}, looks free",
                    handed.key
                );
            }
        }
        for (key, queue) in self.queues.iter().take(CHECKED) {
            paranoid!(
                !queue.waiting.is_empty(),
                "the queue of row {key:x?} is empty"
            );
            queue.check();
            let strays =
                queue.waiting.iter().take(CHECKED).find(
                    |request| !matches!(&request.target, Target::Row(wanted) if wanted == key),
                );
            paranoid!(strays.is_none(), "in the queue of row {key:x?}: {strays:?}");
        }
        for request in self.ranges_wanted.iter().take(CHECKED) {
            paranoid!(
                matches!(request.target, Target::Range(_)),
                "among the wishes for ranges: {request:?}"
            );
        }
    }
}

impl TreeLocks {
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty() && self.queues.is_empty() && self.ranges_wanted.is_empty()
    }

    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.values()
    }

    pub fn owner(&self, trx: TrxId) -> Option<&Owner> {
        self.owners.get(&trx)
    }

    /// The first row behind a key, or of all, that has a queue.
    pub fn queue_after(&self, key: Option<&[u8]>) -> Option<&[u8]> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let mut queues = self.queues.range::<[u8], _>((from, Bound::Unbounded));
        queues.next().map(|(key, _)| &**key)
    }

    /// The transaction that has changed a row for which others wait.
    pub fn holder(&self, key: &[u8]) -> Option<&Arc<TrxState>> {
        let holder = self.queues.get(key)?.holder.as_ref()?;
        (!holder.is_over()).then_some(&holder.trx)
    }

    /// The waiters for a row, each with the transactions that it waits for: of several before it in
    /// the queue the last that waits for the others, too.
    pub fn waiting(&self, key: &[u8]) -> impl Iterator<Item = (&Arc<Request>, Vec<Arc<TrxState>>)> {
        let queue = self.queues.get(key).into_iter();
        queue.flat_map(|queue| {
            let requests = queue.waiting.iter().enumerate();
            requests.map(|(at, request)| (request, self.blockers(queue, at, false).trxs))
        })
    }

    pub fn ranges_wanted(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.ranges_wanted.iter()
    }

    pub(crate) fn take_owner(&mut self, trx: TrxId) -> Option<Owner> {
        self.owners.remove(&trx)
    }

    pub(crate) fn put_owner(&mut self, trx: TrxId, owner: Owner) {
        paranoid!(
            owner.trx.id() == trx,
            "locks of {:?} under the name {trx:?}",
            owner.trx.id()
        );
        let other = self.owners.insert(trx, owner);
        paranoid!(other.is_none(), "two owners {trx:?}: {other:?}");
    }

    /// Whether a transaction waits for something in an interval.
    pub(crate) fn is_awaited(&self, interval: &Interval) -> bool {
        let (low, high) = (low_bound(&interval.low), interval.high.as_bound());
        let bounds = (
            low.as_ref().map(|key| &key[..]),
            high.as_ref().map(|key| &key[..]),
        );
        let overlaps = |request: &Arc<Request>| match &request.target {
            Target::Range(wanted) => wanted.overlaps(interval),
            Target::Row(key) => interval.has(key),
        };
        self.queues.range::<[u8], _>(bounds).next().is_some()
            || self.ranges_wanted.iter().any(overlaps)
    }

    fn owner_mut(&mut self, trx: &Arc<TrxState>) -> &mut Owner {
        self.owners
            .entry(trx.id())
            .or_insert_with(|| Owner::new(trx))
    }

    /// Other transactions whose locks are in the way of an access to a row.
    fn in_the_way<'l>(
        &'l self,
        me: TrxId,
        key: &'l [u8],
        access: Access,
    ) -> impl Iterator<Item = &'l Arc<TrxState>> {
        let may_be_point = self.filter.may_have(key);
        self.owners.iter().filter_map(move |(&id, owner)| {
            if id == me || owner.trx.is_ended() {
                return None;
            }
            let conflicts = may_be_point && owner.point_conflicts(key, access.mode())
                || owner.range_at_conflicts(key, access);
            conflicts.then_some(&owner.trx)
        })
    }

    fn in_the_way_of_range<'l>(
        &'l self,
        me: TrxId,
        interval: &'l Interval,
        mode: LockMode,
    ) -> impl Iterator<Item = &'l Arc<TrxState>> {
        self.owners.iter().filter_map(move |(&id, owner)| {
            if id == me || owner.trx.is_ended() {
                return None;
            }
            let handed = || {
                let handed = owner.handed.as_ref();
                handed.is_some_and(|h| interval.has(&h.key) && h.mode.conflicts(mode))
            };
            let conflicts = owner.range_conflicts(interval, Access::Row(mode))
                || handed()
                || owner.points.conflicts_in(interval, mode);
            conflicts.then_some(&owner.trx)
        })
    }

    /// Whether an access to a row is free of locks, and of waiters that came before.
    pub fn is_free(&self, me: TrxId, key: &[u8], access: Access) -> bool {
        if self.in_the_way(me, key, access).next().is_some() {
            return false;
        }
        let Some(queue) = self.queues.get(key) else {
            return true;
        };
        let earlier =
            |request: &Arc<Request>| request.trx.id() != me && request.access.conflicts(access);
        // A transaction that has the row already, or was handed it, does not wait behind the
        // waiters for it. (Being handed a place for a new row is no more than that: gaps have no
        // place in queues, and may have come since.)
        !queue.waiting.iter().any(earlier)
            || self.has_part(me, key)
            || self
                .was_handed(me, key)
                .is_some_and(|handed| handed >= access.mode())
    }

    /// Whether a transaction has locked the row in some way.
    fn has_part(&self, trx: TrxId, key: &[u8]) -> bool {
        let owner = self.owners.get(&trx);
        owner.is_some_and(|owner| owner.has_row(key, LockMode::Shared))
    }

    pub fn is_range_free(&self, me: TrxId, interval: &Interval, mode: LockMode) -> bool {
        self.in_the_way_of_range(me, interval, mode)
            .next()
            .is_none()
    }

    /// Locks a row. [`Locked::Now`]: the transaction had no lock of it that is as strong.
    pub fn lock_point(&mut self, trx: &Arc<TrxState>, key: &[u8], mode: LockMode) -> Locked {
        let owner = self.owner_mut(trx);
        if let Some(had) = owner.points.get(key) {
            let is_raised = mode > had.mode;
            let mode = had.mode.max(mode);
            let kept = Some(had.mode);
            owner.points.set(key, Point { mode, kept });
            return if is_raised {
                Locked::Now
            } else {
                Locked::Before
            };
        }
        if owner.has_row(key, mode) {
            return Locked::Before;
        }
        if !std::mem::replace(&mut owner.counts_rows, true) {
            trx.add_cost();
        }
        owner.points.set(key, Point { mode, kept: None });
        self.filter.add(key);
        Locked::Now
    }

    pub fn lock_interval(&mut self, trx: &Arc<TrxState>, interval: &Interval, kind: RangeKind) {
        let owner = self.owner_mut(trx);
        let exclusive = owner.range(RangeKind::All(LockMode::Exclusive));
        if kind == RangeKind::All(LockMode::Shared) && exclusive.covers(interval) {
            return;
        }
        if !std::mem::replace(&mut owner.counts_ranges[kind.index()], true) {
            trx.add_cost();
        }
        owner.range_mut(kind).insert(interval);
    }

    /// Locks what a scan has passed with a row, and gaps beside it that the transaction has locked:
    /// at the end of a leaf a scan locks the gap up to there, and goes on in the next leaf. So what
    /// it has passed stays one interval.
    pub fn lock_scanned(
        &mut self,
        trx: &Arc<TrxState>,
        passed: &Interval,
        mode: LockMode,
        graph: &WaitGraph,
    ) {
        let me = trx.id();
        let gaps = self.owner(me).map(|owner| owner.range(RangeKind::Gap));
        let whole = gaps.and_then(|gaps| gaps.with_neighbours(passed));
        let whole = whole.filter(|whole| self.is_range_free(me, whole, mode));
        if let Some(whole) = &whole {
            self.owner_mut(trx)
                .range_mut(RangeKind::Gap)
                .remove_in(whole);
        }
        let interval = whole.as_ref().unwrap_or(passed);
        self.lock_interval(trx, interval, RangeKind::All(mode));
        self.refresh_within(interval, graph);
    }

    /// Whether the transaction was handed this row and has not taken it.
    pub fn was_handed(&self, trx: TrxId, key: &[u8]) -> Option<LockMode> {
        let handed = self.owners.get(&trx)?.handed.as_ref()?;
        (*handed.key == *key).then_some(handed.mode)
    }

    /// Forgets what the transaction was handed. Returns the key, as that row's queue may go on.
    pub fn drop_handed(&mut self, trx: TrxId) -> Option<Box<[u8]>> {
        let owner = self.owners.get_mut(&trx)?;
        let handed = owner.handed.take()?;
        if owner.is_empty() {
            self.owners.remove(&trx);
        }
        self.filter.remove(&handed.key);
        Some(handed.key)
    }

    /// Gives back what the last request for a row has added: the lock, or what made it exclusive.
    /// False: it stays, or there is none.
    pub fn unlock_point(&mut self, trx: TrxId, key: &[u8]) -> bool {
        let Some(owner) = self.owners.get_mut(&trx) else {
            return false;
        };
        let Some(point) = owner.points.get(key) else {
            return false;
        };
        let earlier = point.given_back();
        match earlier.filter(|_| !mutants::on(Mutant::LockTokenIgnored)) {
            Some(earlier) if earlier == point => return false,
            Some(earlier) => {
                let is_new = owner.points.set(key, earlier);
                paranoid!(!is_new, "row {key:x?} of {trx:?} was not locked");
            }
            None => {
                let was_there = owner.points.remove(key);
                paranoid!(was_there, "row {key:x?} of {trx:?} was not locked");
                self.filter.remove(key);
            }
        }
        true
    }

    /// Forgets an owner that holds nothing.
    pub fn forget_if_idle(&mut self, trx: TrxId) {
        if self.owners.get(&trx).is_some_and(Owner::is_empty) {
            self.owners.remove(&trx);
        }
    }

    /// Notes which transaction has changed a row for which others wait: its end, or what it gives
    /// back, lets the queue go on.
    pub fn set_holder(&mut self, tree: TreeKey, key: &[u8], holder: &Blocker) {
        let Some(queue) = self.queues.get_mut(key) else {
            return;
        };
        if queue.holder.as_ref() != Some(holder) {
            let goes_on = holder.trx.add_watch(tree, key, holder.releases);
            queue.holder = goes_on.then(|| holder.clone());
        }
    }

    /// Enters a request for a row that `busy` has changed. `first`: it was handed the row in vain.
    pub fn enqueue(
        &mut self,
        request: &Arc<Request>,
        busy: Option<&Blocker>,
        first: bool,
        graph: &WaitGraph,
    ) {
        let Target::Row(key) = &request.target else {
            return;
        };
        // A transaction that has the row in part goes first: the waiters wait for it.
        let first = first || self.has_part(request.trx.id(), key);
        let queue = self.queues.entry(key.clone()).or_default();
        if first {
            queue.waiting.push_front(request.clone());
        } else {
            queue.waiting.push_back(request.clone());
        }
        if let Some(busy) = busy {
            self.set_holder(request.tree, key, busy);
        }
        if first {
            // Those behind it wait for it, too: known before a circle is looked for.
            self.refresh(key, 1, graph);
        }
        let queue = &self.queues[&**key];
        let at = if first { 0 } else { queue.waiting.len() - 1 };
        let blockers = self.blockers(queue, at, false);
        graph.enter(request, blockers, || self.blockers(queue, at, true));
        // What was in the way may be over by now.
        self.hand_off(key, graph);
    }

    pub fn enqueue_range(&mut self, request: &Arc<Request>, graph: &WaitGraph) {
        let (Target::Range(interval), mode) = (&request.target, request.access.mode()) else {
            return;
        };
        let me = request.trx.id();
        let blockers = self.in_the_way_of_range(me, interval, mode).cloned();
        let blockers: Vec<_> = blockers.collect();
        self.ranges_wanted.push(request.clone());
        let of_range = |trxs| Blockers {
            trxs,
            are_exclusive: false,
        };
        graph.enter(request, of_range(blockers.clone()), || of_range(blockers));
        self.grant_ranges(graph);
    }

    /// The transactions that the request at place `at` of a queue waits for. Unless `all` are
    /// wanted, only up to the last one before it that waits for all the others itself.
    fn blockers(&self, queue: &Queue, at: usize, all: bool) -> Blockers {
        paranoid!(
            at < queue.waiting.len(),
            "place {at} in a queue of {}",
            queue.waiting.len()
        );
        let request = &queue.waiting[at];
        let Target::Row(key) = &request.target else {
            return Blockers::default();
        };
        let me = request.trx.id();
        let mut found = Blockers {
            trxs: Vec::new(),
            are_exclusive: matches!(request.access, Access::Row(_)),
        };
        let mut add = |trx: &Arc<TrxState>, is_exclusive: bool| {
            if trx.id() != me && !trx.is_ended() {
                found.are_exclusive &= is_exclusive;
                if !found.trxs.iter().any(|f| f.id() == trx.id()) {
                    found.trxs.push(trx.clone());
                }
            }
        };
        for earlier in queue.waiting.iter().take(at).rev() {
            if earlier.access.conflicts(request.access) {
                let is_exclusive = earlier.access == Access::Row(LockMode::Exclusive);
                add(&earlier.trx, is_exclusive);
                if earlier.access.waits_for_all_of(request.access) && !all {
                    return found;
                }
            }
        }
        for trx in self.in_the_way(me, key, request.access) {
            add(trx, self.is_exclusive(trx.id(), key));
        }
        if let Some(holder) = &queue.holder {
            add(&holder.trx, true);
        }
        paranoid!(
            found.trxs.iter().all(|trx| trx.id() != me),
            "{me:?} waits for itself"
        );
        found
    }

    /// Whether a transaction's locks of a row are in the way of a shared one.
    fn is_exclusive(&self, trx: TrxId, key: &[u8]) -> bool {
        let shared = LockMode::Shared;
        self.owners.get(&trx).is_some_and(|owner| {
            owner.point_conflicts(key, shared) || owner.range_at_conflicts(key, Access::Row(shared))
        })
    }

    /// Every transaction that a request waits for.
    pub fn all_blockers(&self, request: &Request) -> Vec<Arc<TrxState>> {
        let me = request.trx.id();
        match &request.target {
            Target::Range(interval) => {
                let mode = request.access.mode();
                self.in_the_way_of_range(me, interval, mode)
                    .cloned()
                    .collect()
            }
            Target::Row(key) => {
                let Some(queue) = self.queues.get(&**key) else {
                    return Vec::new();
                };
                let at = queue.waiting.iter().position(|r| r.trx.id() == me);
                at.map_or_else(Vec::new, |at| self.blockers(queue, at, true).trxs)
            }
        }
    }

    /// What those of a queue from `from` on wait for has changed.
    fn refresh(&self, key: &[u8], from: usize, graph: &WaitGraph) {
        let Some(queue) = self.queues.get(key) else {
            return;
        };
        for at in from..queue.waiting.len() {
            let blockers = self.blockers(queue, at, false);
            let all = || self.blockers(queue, at, true);
            graph.set_blockers(&queue.waiting[at].trx, blockers, all);
        }
    }

    /// As [`refresh`](Self::refresh), for the waiters that wait for holders of the row and not only
    /// for others in the queue.
    fn refresh_front(&self, key: &[u8], graph: &WaitGraph) {
        let Some(queue) = self.queues.get(key) else {
            return;
        };
        for at in queue.front() {
            let blockers = self.blockers(queue, at, false);
            let all = || self.blockers(queue, at, true);
            graph.set_blockers(&queue.waiting[at].trx, blockers, all);
        }
    }

    /// There is a new lock of an interval: waiters there may wait for its owner, too.
    pub fn refresh_within(&self, interval: &Interval, graph: &WaitGraph) {
        for key in self.queues.keys().filter(|key| interval.has(key)) {
            self.refresh_front(key, graph);
        }
    }

    /// There is a new lock. A waiter for a range stands in no queue: it may wait for the owner,
    /// too.
    pub fn refresh_ranges(&self, graph: &WaitGraph) {
        for request in &self.ranges_wanted {
            let all = || Blockers {
                trxs: self.all_blockers(request),
                are_exclusive: false,
            };
            graph.set_blockers(&request.trx, all(), all);
        }
    }

    /// Takes a request out that was not granted. False: it was, or is not there.
    pub fn cancel(&mut self, request: &Arc<Request>, graph: &WaitGraph) -> bool {
        match &request.target {
            Target::Range(_) => {
                let before = self.ranges_wanted.len();
                self.ranges_wanted.retain(|r| !Arc::ptr_eq(r, request));
                self.ranges_wanted.len() < before
            }
            Target::Row(key) => {
                let Some(queue) = self.queues.get_mut(&**key) else {
                    return false;
                };
                let at = queue.waiting.iter().position(|r| Arc::ptr_eq(r, request));
                let Some(at) = at else {
                    return false;
                };
                queue.waiting.remove(at);
                self.refresh(key, at, graph);
                self.hand_off(key, graph);
                true
            }
        }
    }

    /// Grants those at the front of a queue what they wait for, as far as that is free.
    pub fn hand_off(&mut self, key: &[u8], graph: &WaitGraph) {
        loop {
            let Some(queue) = self.queues.get_mut(key) else {
                return;
            };
            queue.holder.take_if(|holder| holder.is_over());
            let Some(front) = queue.waiting.front().cloned() else {
                // Its holder's watch will find no queue.
                self.queues.remove(key);
                return;
            };
            let is_other = |holder: &Blocker| holder.trx.id() != front.trx.id();
            if queue.holder.as_ref().is_some_and(is_other) {
                return self.refresh_front(key, graph);
            }
            if self
                .in_the_way(front.trx.id(), key, front.access)
                .next()
                .is_some()
            {
                return self.refresh_front(key, graph);
            }
            if let Some(queue) = self.queues.get_mut(key) {
                queue.waiting.pop_front();
            }
            self.filter.add(key);
            let handed = Handed {
                key: key.into(),
                mode: front.access.mode(),
            };
            let former = self.owner_mut(&front.trx).handed.replace(handed);
            paranoid!(
                former.is_none(),
                "{:?} was handed row {key:x?} while it had {former:?}",
                front.trx.id()
            );
            graph.leave(&front.trx);
            front.grant();
            self.refresh_ranges(graph);
        }
    }

    /// As [`hand_off`](Self::hand_off), for every waiter that something that was given back may
    /// have kept waiting.
    pub fn hand_off_all(&mut self, given_back: &Owner, graph: &WaitGraph) {
        let keys: Vec<Box<[u8]>> = (self.queues.keys())
            .filter(|key| given_back.touches(key))
            .cloned()
            .collect();
        for key in keys {
            self.hand_off(&key, graph);
        }
        self.grant_ranges(graph);
    }

    pub fn grant_ranges(&mut self, graph: &WaitGraph) {
        for request in std::mem::take(&mut self.ranges_wanted) {
            let (Target::Range(interval), mode) = (&request.target, request.access.mode()) else {
                continue;
            };
            if !self.is_range_free(request.trx.id(), interval, mode) {
                self.ranges_wanted.push(request);
                continue;
            }
            self.lock_interval(&request.trx, interval, RangeKind::All(mode));
            graph.leave(&request.trx);
            request.grant();
            self.refresh_within(interval, graph);
        }
        self.refresh_ranges(graph);
    }

    /// Takes out what a transaction has locked shared, and its gaps; the other rows stay.
    pub fn take_shared(&mut self, trx: TrxId) -> Option<Owner> {
        let mut given_back = self.remove_owner(trx)?;
        let mut kept = Owner::new(&given_back.trx);
        kept.counts_rows = given_back.counts_rows;
        kept.counts_ranges = given_back.counts_ranges;
        for (key, point) in given_back.points.iter() {
            if point.mode == LockMode::Exclusive {
                kept.points.set(key, point);
                self.filter.add(key);
            }
        }
        let exclusive = RangeKind::All(LockMode::Exclusive);
        *kept.range_mut(exclusive) = std::mem::take(given_back.range_mut(exclusive));
        if !kept.is_empty() {
            self.put_owner(trx, kept);
        }
        Some(given_back)
    }

    /// What a transaction gives back at its end.
    pub fn remove_owner(&mut self, trx: TrxId) -> Option<Owner> {
        let owner = self.owners.remove(&trx)?;
        if self.owners.is_empty() {
            self.filter = PointFilter::default();
        } else {
            let handed = owner.handed.iter().map(|handed| &*handed.key);
            for key in owner.points.iter().map(|(key, _)| key).chain(handed) {
                self.filter.remove(key);
            }
        }
        Some(owner)
    }
}
