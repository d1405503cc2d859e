//! Cursors that lock the rows that they return.
//!
//! A row is looked at and locked under the latch of its leaf. Where gaps are locked, the gap up to the
//! row is locked under the same latch, when it is known what the leaf holds there: nobody can put a row
//! between what was seen and what is locked. A gap is locked only once its row is: who waits for a row
//! does not keep others from inserting beside it.

use super::isolation::Isolation;
use super::locks::{Blocker, LockMode};
use super::read::{Locked, Seen, Wait};
use super::scan::{Cursor, KeyRange, Next, Scope, check_not_dropped, clean_leaf};
use super::transaction::{Inner, Transaction};
use super::write::Newest;
use crate::btree::Tree;
use crate::counters::Counter;
use crate::{Error, Result};
use inkstone_format::tree_page::TreePage;
use std::ops::Bound;

/// Rows of a range that are locked one by one as they are read.
pub struct LockingCursor<'t> {
    transaction: &'t Transaction,
    scan: LockingScan,
}

impl LockingCursor<'_> {
    /// Locks and returns the next row: key and newest value.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match self.scan.next_row(self.transaction)? {
            true => Ok(Some((self.scan.key.clone(), self.scan.row.value.clone()))),
            false => Ok(None),
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
        self.next_row().transpose()
    }
}

/// The state of a [`LockingCursor`], for those who keep it apart from its transaction.
pub struct LockingScan {
    tree: Tree,
    scope: Scope,
    /// Where to go on; `None` at the end.
    next: Option<Next>,
    mode: LockMode,
    wait: Wait,
    /// Whether gaps are locked.
    gaps: bool,
    key: Vec<u8>,
    row: Seen,
    locked: Locked,
}

/// What a visit of a leaf came to.
enum Visit {
    /// A row, locked: in `key` and `row`.
    Row,
    /// Somebody has changed or locked the row in `key`.
    Blocked(Blocker),
    /// Nothing more in this leaf.
    Passed,
}

impl LockingScan {
    /// Locks the next row of the range and makes it [`key`](Self::key) and [`value`](Self::value);
    /// false at the end. `transaction` is the one that the scan was begun with.
    pub fn next_row(&mut self, transaction: &Transaction) -> Result<bool> {
        transaction.core.redo.poison.check()?;
        transaction.check_interrupt()?;
        check_not_dropped(&self.tree)?;
        self.locked = Locked::Before;
        let mut inner = transaction.active()?;
        let result = self.lock_next(transaction, &mut inner);
        let found = transaction.after_error(inner, result)?;
        if found {
            transaction.core.value_of(&self.tree, &mut self.row)?;
            let counters = &transaction.core.redo.counters;
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
            Locked::Now => transaction.release_row(&self.tree, &self.key),
            Locked::Before => Ok(false),
        }
    }

    fn lock_next(&mut self, transaction: &Transaction, inner: &mut Inner) -> Result<bool> {
        let mut deadline = None;
        while let Some(next) = self.next.take() {
            if transaction.shared.state.is_doomed() {
                return Err(Error::Deadlock);
            }
            let visit = self.visit(transaction, inner, &next);
            if !matches!(visit, Ok(Visit::Row | Visit::Passed)) {
                self.next = Some(next);
            }
            let blocker = match visit? {
                Visit::Row => return Ok(true),
                Visit::Passed => {
                    transaction.check_interrupt()?;
                    continue;
                }
                Visit::Blocked(blocker) => blocker,
            };
            if self.wait == Wait::Timeout {
                deadline = deadline.or_else(|| Some(transaction.deadline()));
            }
            let wanted = (&self.tree, &self.key[..], self.mode);
            let state = &transaction.shared.state;
            transaction
                .core
                .wait_for(state, &blocker, deadline, wanted)?;
        }
        Ok(false)
    }

    /// Looks for the next row in the leaf where `next` is, and locks it.
    fn visit(
        &mut self,
        transaction: &Transaction,
        inner: &mut Inner,
        next: &Next,
    ) -> Result<Visit> {
        let tree = self.tree.clone();
        let leaf = tree.leaf_shared(next.target())?;
        let page = TreePage(&leaf);
        let (from, to) = self.scope.slots(page, next);
        let all = to.saturating_sub(from);
        let mut dead = 0;
        for n in 0..all {
            let slot = if self.scope.backward {
                to - 1 - n
            } else {
                from + n
            };
            let cell = page.cell(slot);
            let newest = transaction.newest(inner, cell.version)?;
            if matches!(newest, Newest::Free) && cell.is_deleted() {
                let live = cell.version.is_some_and(|v| transaction.core.is_live(v));
                dead += usize::from(!live);
                continue;
            }
            self.key = page.key(slot);
            let blocker = match newest {
                Newest::TooNew => return Err(Error::WriteConflict),
                Newest::Busy(blocker) => blocker,
                Newest::Free => match transaction.lock_row(inner, &tree, &self.key, self.mode) {
                    Err(blocker) => blocker,
                    Ok(locked) => {
                        self.locked = locked;
                        self.row.set(cell);
                        let upto = Some(Bound::Included(&self.key[..]));
                        self.lock_gap(transaction, inner, next, upto);
                        self.next = Some(self.scope.following_row(&self.key));
                        return Ok(Visit::Row);
                    }
                },
            };
            if self.wait != Wait::SkipLocked {
                return Ok(Visit::Blocked(blocker));
            }
        }
        let fence = match self.scope.backward {
            true => Some(Bound::Included(page.low())),
            false => page.high().map(Bound::Excluded),
        };
        self.next = self.scope.following(page);
        let upto = fence.filter(|_| self.next.is_some());
        self.lock_gap(transaction, inner, next, upto);
        drop(leaf);
        clean_leaf(&transaction.core, &tree, next, (dead, all))?;
        Ok(Visit::Passed)
    }

    /// Locks the gap from `next` to `upto`, or to the end of the range.
    fn lock_gap(
        &self,
        transaction: &Transaction,
        inner: &mut Inner,
        next: &Next,
        upto: Option<Bound<&[u8]>>,
    ) {
        if !self.gaps {
            return;
        }
        let Scope { low, high, .. } = &self.scope;
        let (low, high) = match next {
            Next::From(key) => {
                let low = match low {
                    Bound::Excluded(bound) if bound == key => Bound::Excluded(&key[..]),
                    _ => Bound::Included(&key[..]),
                };
                (low, upto.unwrap_or(bound(high)))
            }
            Next::Before(key) => (upto.unwrap_or(bound(low)), Bound::Excluded(&key[..])),
            Next::Last => (upto.unwrap_or(bound(low)), Bound::Unbounded),
        };
        let (locks, state) = (&transaction.core.locks, &transaction.shared.state);
        let held = &mut inner.held;
        locks.lock_gap(state, held, self.tree.space.id, self.tree.id, low, high);
    }
}

impl Transaction {
    /// A cursor that locks each row that it returns.
    pub(crate) fn scan_locking(
        &self,
        tree: &Tree,
        bounds: KeyRange,
        backward: bool,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingCursor<'_>> {
        Ok(LockingCursor {
            transaction: self,
            scan: self.locking_scan(tree, bounds, backward, mode, wait)?,
        })
    }

    /// The state of such a cursor.
    pub(crate) fn locking_scan(
        &self,
        tree: &Tree,
        bounds: KeyRange,
        backward: bool,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingScan> {
        self.core.redo.poison.check()?;
        let mut inner = self.active()?;
        self.pin_snapshot(&mut inner);
        let serializable = self.isolation() == Isolation::Serializable;
        // Who skips locked rows does not wait for ranges, and does not claim to have read them: the gaps
        // between the rows that it gets are what it has read.
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
            scope,
            mode,
            wait,
            gaps,
            key: Vec::new(),
            row: Seen::default(),
            locked: Locked::Before,
        })
    }

    /// Locks a range, then waits for everyone who has changed a row in it and not ended: who
    /// comes later finds the lock.
    pub(super) fn lock_scan(
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
            let (state, space) = (&self.shared.state, tree.space.id);
            let live = version.is_some_and(|address| self.core.is_live(address));
            if live
                || !self
                    .core
                    .locks
                    .record_blockers(state, space, tree.id, &key, mode)
                    .is_empty()
            {
                self.newest_row(inner, tree, &key, (mode, false), deadline)?;
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
