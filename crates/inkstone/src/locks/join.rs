//! Joining locks: where one transaction's locks in one tree take more memory than
//! [`Options::lock_memory_max`](crate::Options::lock_memory_max), neighbouring ones become one
//! range.
//!
//! # Promises
//!
//! 1. What was locked stays locked, at least as strongly. More may be: the keys in between, and
//!    rows that were locked shared beside ones that were locked exclusively. Tested by
//!    `joined_locks_cover_no_less`.
//! 2. Nothing is joined over a lock of another transaction that would conflict, nor over a place
//!    where another waits: a join takes nothing from another transaction and overtakes no waiter.
//!    Tested by `joined_locks_cover_no_less`, `locks_beyond_their_memory_are_joined`.
//!
//! A row that another transaction has changed, and not locked here, is no obstacle: as with any
//! range, an access to that row meets the change.

use super::intervals::Interval;
use super::tree::{Owner, RangeKind, TreeLocks};
use crate::paranoid::paranoid;
use inkstone_format::TrxId;

impl TreeLocks {
    /// Joins locks of a transaction that take more than `bytes_max` until they take half of that,
    /// or nothing more can be joined. Returns how many there are fewer.
    pub fn join_if_large(&mut self, trx: TrxId, bytes_max: u64) -> usize {
        let is_large = |owner: &Owner| {
            let bytes = owner.bytes();
            // What could not be joined is not tried again with each new lock.
            bytes as u64 > bytes_max && bytes / 2 > owner.bytes_after_join
        };
        if !self.owner(trx).is_some_and(is_large) {
            return 0;
        }
        let Some(mut owner) = self.take_owner(trx) else {
            return 0;
        };
        let before = owner.count();
        self.join_rows(trx, &mut owner);
        let mut count = owner.count();
        while owner.bytes() as u64 > bytes_max / 2 {
            for kind in RangeKind::ALL {
                self.join_ranges(trx, &mut owner, kind);
            }
            if std::mem::replace(&mut count, owner.count()) == count {
                break;
            }
        }
        owner.bytes_after_join = owner.bytes();
        paranoid!(
            owner.count() <= before && (before == 0 || owner.count() > 0),
            "{before} locks of {trx:?} were joined to {}",
            owner.count()
        );
        self.put_owner(trx, owner);
        before - count
    }

    /// Joins the rows of each block.
    fn join_rows(&mut self, me: TrxId, owner: &mut Owner) {
        let mut from = Some(Box::default());
        while let Some((rows, next)) =
            from.and_then(|from: Box<[u8]>| owner.points.neighbours(&from))
        {
            let kind = RangeKind::All(rows.mode);
            if self.may_join(me, &rows.interval, kind) {
                owner.points.take(&rows, |key| self.filter.remove(key));
                owner.range_mut(kind).insert(&rows.interval);
                paranoid!(
                    !owner.range(kind).is_empty(),
                    "rows of {me:?} were joined and no range is locked"
                );
            }
            from = next;
        }
    }

    /// Joins each range with the next one.
    fn join_ranges(&self, me: TrxId, owner: &mut Owner, kind: RangeKind) {
        let set = owner.range_mut(kind);
        let mut next = set.two_after(None);
        while let Some(joined) = next {
            let after = joined.low.clone();
            if self.may_join(me, &joined, kind) {
                set.insert(&joined);
            }
            next = set.two_after(Some(&after));
        }
    }

    fn may_join(&self, me: TrxId, interval: &Interval, kind: RangeKind) -> bool {
        let is_free = match kind {
            RangeKind::All(mode) => self.is_range_free(me, interval, mode),
            RangeKind::Gap => true,
        };
        is_free && !self.is_awaited(interval)
    }
}
