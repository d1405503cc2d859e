//! Cursors that lock the rows that they return.
//!
//! A row is looked at and locked under the latch of its leaf. Where gaps are locked, the gap up to
//! the row is locked under the same latch, when it is known what the leaf holds there: no
//! transaction can put a row between what was seen and what is locked. A gap is locked only once
//! its row is: a transaction that waits for a row does not keep others from inserting beside it. So
//! what such a scan has passed is one interval.
//!
//! A row that is skipped, as another transaction has locked it, is not passed, nor is the gap in
//! front of it: what a cursor asks for is the gap with the row, as InnoDB's does. At SERIALIZABLE a
//! cursor that skips claims the gaps, too.
//!
//! Where gaps are not locked, a cursor that has waited for a row goes on with that row, as InnoDB's
//! does: what came meanwhile in front of it came too late. Where they are, it looks at the gap
//! again, and locks it.
//!
//! *Semi-consistent*: a row that another transaction has locked is shown as it was committed last,
//! without a lock. Mostly it is not wanted, and there was no wait; if it is, the cursor goes back
//! to it, and waits.

use crate::btree::{ReadAhead, Tree};
use crate::counters::Counter;
use crate::debug::debug_as;
use crate::locks::{IfTaken, LockMode, Locked, Newest, Taken};
use crate::mvcc::isolation::Isolation;
use crate::paranoid::paranoid;
use crate::rows::read::{Seen, Wait, row_name};
use crate::rows::scan::{Cursor, KeyRange, Next, Scope, check_not_dropped, clean_leaf};
use crate::rows::tables::{TreeRef, bounds};
use crate::sync::Instant;
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::PageNo;
use inkstone_format::tree_page::TreePage;
use std::ops::{Bound, RangeBounds};

/// Rows of a range that are locked one by one as they are read. As an iterator it ends behind an
/// error; [`next_row`](Self::next_row) tries again, as after a timeout.
pub struct LockingCursor<'t> {
    transaction: &'t Transaction,
    scan: LockingScan,
    /// As an iterator it has given an error.
    has_failed: bool,
}

debug_as!(
    LockingCursor<'_>,
    "LockingCursor",
    |this| "transaction" = this.transaction,
    "scan" = this.scan,
    "has_failed" = this.has_failed
);

impl LockingCursor<'_> {
    /// Locks and returns the next row: key and newest value.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.scan.next_row(self.transaction)? {
            let (key, Scope { low, high, .. }) = (&self.scan.key, &self.scan.scope);
            paranoid!(
                (low.as_ref(), high.as_ref()).contains(key),
                "row {key:02x?} was locked for a scan from {low:02x?} to {high:02x?}"
            );
            Ok(Some((self.scan.key.clone(), self.scan.row.value.clone())))
        } else {
            Ok(None)
        }
    }

    /// Gives back the lock of the row that was returned last, if it was this cursor that took it
    /// and the isolation level lets it (read committed and below).
    pub fn unlock_row(&mut self) -> Result<bool> {
        self.scan.unlock_row(self.transaction)
    }
}

impl Iterator for LockingCursor<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let row = self.next_row();
        self.has_failed = row.is_err();
        row.transpose()
    }
}

/// The state of a [`LockingCursor`], for callers that keep it apart from its transaction.
pub struct LockingScan {
    tree: Tree,
    scope: Scope,
    /// Where to go on; `None` at the end.
    next: Option<Next>,
    /// The leaf that was visited last: a hint.
    leaf: Option<PageNo>,
    ahead: ReadAhead,
    mode: LockMode,
    wait: Wait,
    /// Whether gaps are locked.
    gaps: bool,
    /// Whether the gap in front of a row that is skipped is one of them.
    gaps_of_skipped: bool,
    key: Vec<u8>,
    row: Seen,
    locked: Locked,
    /// Whether rows that others have locked are shown as they were committed last.
    semi_consistent: bool,
    /// Whether the row in `key` is such a one.
    shown_unlocked: bool,
    /// A row for which the cursor waits, although it is semi-consistent.
    wanted: Option<Vec<u8>>,
}

debug_as!(
    LockingScan,
    "LockingScan",
    |this| "space" = this.tree.space.id,
    "tree" = this.tree.id
);

/// What a visit of a leaf came to.
enum Visit<'l> {
    /// A row, locked: in `key` and `row`.
    Row,
    /// Another transaction has changed or locked the row in `key`.
    Blocked(Taken<'l>),
    /// The same, and its newest cell is in `row`.
    Unlocked,
    /// Nothing more in this leaf.
    Passed,
}

impl LockingScan {
    /// Locks the next row of the range and makes it [`key`](Self::key) and [`value`](Self::value);
    /// false at the end. `transaction` is the one that the scan was begun with.
    pub fn next_row(&mut self, transaction: &Transaction) -> Result<bool> {
        transaction.core.storage.poison.check()?;
        transaction.check_interrupt()?;
        transaction.core.check_own(&self.tree)?;
        check_not_dropped(&self.tree)?;
        self.locked = Locked::Before;
        self.shown_unlocked = false;
        let mut inner = transaction.active()?;
        let result = self.lock_next(transaction, &mut inner);
        let found = transaction.after_error(inner, result)?;
        paranoid!(
            found || self.next.is_none(),
            "a scan ends, and would go on at {:x?}",
            self.next
        );
        paranoid!(
            !self.shown_unlocked || found && self.locked == Locked::Before,
            "a row is shown unlocked, and is locked"
        );
        if found {
            if !self.shown_unlocked {
                transaction.core.value_of(&self.tree, &mut self.row)?;
            }
            let counters = &transaction.core.storage.counters;
            counters.add(Counter::RowsRead, 1);
        }
        Ok(found)
    }

    /// The key of the row that was locked last.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Its newest value.
    pub fn value(&self) -> &[u8] {
        &self.row.value
    }

    /// As [`LockingCursor::unlock_row`].
    pub fn unlock_row(&mut self, transaction: &Transaction) -> Result<bool> {
        match std::mem::replace(&mut self.locked, Locked::Before) {
            Locked::Now => {
                transaction.core.check_own(&self.tree)?;
                transaction.release_row(&self.tree, &self.key)
            }
            Locked::Before => Ok(false),
        }
    }

    /// Has rows that others have locked shown as they were committed last, from the next one on:
    /// without a lock, and [`is_unlocked`](Self::is_unlocked) says so. A row of which nothing was
    /// committed is passed over. At read committed, for statements that look at many rows and want
    /// few.
    pub fn set_semi_consistent(&mut self, semi_consistent: bool) {
        self.semi_consistent = semi_consistent;
    }

    /// Whether the row that was returned last is not locked: a version of it that may be old.
    pub fn is_unlocked(&self) -> bool {
        self.shown_unlocked
    }

    /// Has [`next_row`](Self::next_row) return the row that is not locked again, newest and locked,
    /// if it is still there.
    pub fn want_row(&mut self) {
        if std::mem::take(&mut self.shown_unlocked) {
            paranoid!(
                self.locked == Locked::Before,
                "a row that is wanted after all was locked"
            );
            self.wanted = Some(self.key.clone());
            self.next = Some(self.scope.at_row(&self.key));
        }
    }

    /// Replaces the cell in `row` by what was committed last. False: nothing.
    fn show_committed(&mut self, transaction: &Transaction) -> Result<bool> {
        let core = &transaction.core;
        let snapshot = core.trxs.snapshot();
        let me = transaction.shared.state.id();
        Ok(core.resolve(&snapshot, me, &mut self.row)? && {
            core.value_of(&self.tree, &mut self.row)?;
            true
        })
    }

    fn lock_next(&mut self, transaction: &Transaction, inner: &mut Inner) -> Result<bool> {
        let mut deadline = None;
        let mut waited = false;
        let result = self.lock_next_waiting(transaction, inner, &mut deadline, &mut waited);
        if waited {
            let (locks, state) = (&transaction.core.locks, &transaction.shared.state);
            locks.give_up(state, row_name(&self.tree, &[]).tree);
        }
        result
    }

    fn lock_next_waiting(
        &mut self,
        transaction: &Transaction,
        inner: &mut Inner,
        deadline: &mut Option<Instant>,
        waited: &mut bool,
    ) -> Result<bool> {
        while let Some(next) = self.next.take() {
            if transaction.shared.state.is_doomed() {
                return Err(Error::Deadlock);
            }
            let visit = self.visit(transaction, inner, &next);
            match visit {
                // What it has passed is not locked, and is not looked at again.
                Ok(Visit::Blocked(_)) if !self.gaps => {
                    self.next = Some(self.scope.at_row(&self.key));
                }
                Err(_) | Ok(Visit::Blocked(_)) => self.next = Some(next),
                Ok(_) => paranoid!(
                    next.is_passed_by(self.next.as_ref()),
                    "a scan goes on from {next:x?} at {:x?}",
                    self.next
                ),
            }
            let taken = match visit? {
                Visit::Row => return Ok(true),
                Visit::Unlocked => {
                    paranoid!(
                        self.semi_consistent,
                        "a row is shown unlocked to a scan that locks"
                    );
                    if self.show_committed(transaction)? {
                        self.shown_unlocked = true;
                        return Ok(true);
                    }
                    continue;
                }
                Visit::Passed => {
                    transaction.check_interrupt()?;
                    continue;
                }
                Visit::Blocked(taken) => taken,
            };
            if self.wait == Wait::Timeout {
                *deadline = deadline.or_else(|| Some(transaction.deadline()));
            }
            *waited = true;
            transaction.wait(inner, taken, *deadline)?;
        }
        Ok(false)
    }

    /// Looks for the next row in the leaf where `next` is, and locks it.
    fn visit<'t>(
        &mut self,
        transaction: &'t Transaction,
        inner: &mut Inner,
        next: &Next,
    ) -> Result<Visit<'t>> {
        let tree = &self.tree;
        let hint = self.leaf;
        let leaf = match hint.and_then(|page| tree.leaf_shared_at_hint(page, next.target())) {
            Some(leaf) => leaf,
            None => {
                let (target, until) = (next.target(), self.scope.until());
                tree.leaf_of_scan(target, until, &mut self.ahead)?.0
            }
        };
        self.leaf = Some(leaf.id().page);
        let page = TreePage(&leaf);
        let (from, to) = self.scope.slots(page, next);
        let all = to.saturating_sub(from);
        paranoid!(
            from <= page.count() && to <= page.count(),
            "slots {from}..{to} of {} are to be locked",
            page.count()
        );
        let mut dead = 0;
        // Behind the row that was skipped last.
        let mut behind_skipped = None;
        for n in 0..all {
            let slot = if self.scope.backward {
                to - 1 - n
            } else {
                from + n
            };
            let cell = page.cell(slot);
            let newest = transaction.newest(inner, cell.version)?;
            if !matches!(newest, Newest::Busy(_)) && cell.is_deleted() {
                let live = cell.version.is_some_and(|v| transaction.core.is_live(v));
                dead += usize::from(!live);
                continue;
            }
            page.key_into(slot, &mut self.key);
            let shows = self.semi_consistent && self.wanted.as_ref() != Some(&self.key);
            let row = row_name(tree, &self.key);
            let (locks, state) = (&transaction.core.locks, &transaction.shared.state);
            let (held, mode) = (&mut inner.held, self.mode);
            let if_taken = if self.wait == Wait::Timeout && !shows {
                IfTaken::Queue
            } else {
                IfTaken::Refuse
            };
            let locked = if self.gaps {
                let upto = Some(Bound::Included(&self.key[..]));
                let bounds = self.passed(behind_skipped.as_ref().unwrap_or(next), upto);
                locks.lock_passed(state, held, row, bounds, mode, &newest, if_taken)
            } else {
                locks.lock_row(state, held, row, mode, &newest, if_taken)
            };
            match locked {
                Ok(locked) => {
                    self.locked = locked;
                    self.row.set(cell);
                    self.next = Some(self.scope.following_row(&self.key));
                    return Ok(Visit::Row);
                }
                Err(_) if self.wait == Wait::SkipLocked => {
                    if !self.gaps_of_skipped {
                        behind_skipped = Some(self.scope.following_row(&self.key));
                    }
                }
                Err(_) if shows => {
                    self.row.set(cell);
                    self.next = Some(self.scope.following_row(&self.key));
                    return Ok(Visit::Unlocked);
                }
                Err(taken) => return Ok(Visit::Blocked(taken)),
            }
        }
        let fence = if self.scope.backward {
            Some(Bound::Included(page.low()))
        } else {
            page.high().map(Bound::Excluded)
        };
        self.next = self.scope.following(page);
        let upto = fence.filter(|_| self.next.is_some());
        if self.gaps {
            let (locks, state) = (&transaction.core.locks, &transaction.shared.state);
            let row = row_name(tree, &[]);
            let bounds = self.passed(behind_skipped.as_ref().unwrap_or(next), upto);
            locks.lock_gap(state, &mut inner.held, row.tree, bounds);
        }
        drop(leaf);
        clean_leaf(&transaction.core, tree, next, (dead, all))?;
        Ok(Visit::Passed)
    }

    /// What lies between `next` and `upto`, or the end of the range.
    fn passed<'s>(
        &'s self,
        next: &'s Next,
        upto: Option<Bound<&'s [u8]>>,
    ) -> (Bound<&'s [u8]>, Bound<&'s [u8]>) {
        let Scope { low, high, .. } = &self.scope;
        let is_ordered = match (next, upto) {
            (Next::From(key), Some(Bound::Included(to) | Bound::Excluded(to))) => &key[..] <= to,
            (Next::Before(key), Some(Bound::Included(to))) => to < &key[..],
            _ => true,
        };
        paranoid!(
            is_ordered,
            "a scan that goes on from {next:x?} passes {upto:x?}"
        );
        match next {
            Next::From(key) => {
                let low = match low {
                    Bound::Excluded(bound) if bound == key => Bound::Excluded(&key[..]),
                    _ => Bound::Included(&key[..]),
                };
                (low, upto.unwrap_or(bound(high)))
            }
            Next::Before(key) => (upto.unwrap_or(bound(low)), Bound::Excluded(&key[..])),
            Next::Last => (upto.unwrap_or(bound(low)), Bound::Unbounded),
        }
    }
}

/// Each call is a statement: if it fails it has no effect, and the transaction goes on (after
/// [`Error::Deadlock`] it is rolled back).
impl Transaction {
    /// Locks and reads the rows of a range one by one, each as [`get_locking`](Self::get_locking)
    /// does. At serializable the range itself is locked first, so that no row can come in between;
    /// at [`Isolation::LockingRepeatableRead`](crate::Isolation::LockingRepeatableRead) the gaps
    /// that the cursor passes are.
    pub fn range_locking<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingCursor<'_>> {
        Ok(LockingCursor {
            transaction: self,
            scan: self.locking_scan_of(tree, range, false, mode, wait)?,
            has_failed: false,
        })
    }

    /// As [`range_locking`](Self::range_locking), in either direction, as a state that is kept
    /// apart from the transaction.
    pub fn locking_scan_of<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
        backward: bool,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingScan> {
        let (tree, bounds) = (tree.tree_ref().live(&self.core)?, bounds(range));
        self.core.storage.poison.check()?;
        let mut inner = self.active()?;
        self.pin_snapshot(&mut inner);
        let serializable = self.isolation() == Isolation::Serializable;
        // A cursor that skips locked rows does not wait for ranges, and does not claim to have read
        // them: the gaps between the rows that it gets are what it has read.
        let gaps = self.isolation().locks_gaps() || serializable && wait == Wait::SkipLocked;
        if serializable && !gaps {
            let result = self.lock_scan(&mut inner, tree, &bounds, mode, wait);
            self.after_error(inner, result)?;
        }
        let scope = Scope {
            low: bounds.0,
            high: bounds.1,
            backward,
        };
        Ok(LockingScan {
            tree: tree.clone(),
            next: Some(scope.start()),
            leaf: None,
            ahead: ReadAhead::default(),
            scope,
            mode,
            wait,
            gaps,
            gaps_of_skipped: serializable,
            key: Vec::new(),
            row: Seen::default(),
            locked: Locked::Before,
            semi_consistent: false,
            shown_unlocked: false,
            wanted: None,
        })
    }
}

impl Transaction {
    /// Locks a range, then waits for every transaction that has changed a row in it and not ended:
    /// a later one finds the lock.
    pub(crate) fn lock_scan(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        bounds: &KeyRange,
        mode: LockMode,
        wait: Wait,
    ) -> Result<()> {
        let deadline = (wait == Wait::Timeout).then(|| self.deadline());
        let (low, high) = (bound(&bounds.0), bound(&bounds.1));
        self.lock_range(inner, tree, (low, high), mode, deadline)?;
        let me = self.shared.state.id();
        let mut keys = Cursor::new(&self.core, tree, None, me, bounds.clone(), false);
        while let Some((key, version)) = keys.next_key()? {
            if version.is_some_and(|address| self.core.is_live(address)) {
                self.newest_row(inner, tree, &key, mode, deadline)?;
            }
        }
        Ok(())
    }
}

fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
