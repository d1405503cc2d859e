//! Reading rows: what a snapshot sees, and what a locking read sees.
//!
//! A cell is the newest version of its row. If it carries a live version address, the entry there
//! says who made it; a reader that may not see that one goes on to the before-image, and so on.
//! The chain is walked after the leaf's latch is released: entries never change, and stay while the
//! reader's snapshot lives.

use super::core::Core;
use super::locks::LockMode;
use super::system::{Snapshot, TrxState};
use super::transaction::{Inner, Isolation, Transaction};
use super::versions::VersionKind;
use super::write::Newest;
use crate::btree::{Target, Tree};
use crate::counters::Counter;
use crate::mutants::{self, Mutant};
use crate::sync::Instant;
use crate::{Error, Result};
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, Cell, TreePage};
use inkstone_format::{TrxId, VersionAddress};
use std::ops::Bound;
use std::sync::Arc;

/// What a locking read does about a row that someone else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait, at most the transaction's lock wait timeout.
    Timeout,
    /// Fail at once (`NOWAIT`).
    NoWait,
    /// Pass over the row (`SKIP LOCKED`).
    SkipLocked,
}

/// A row's content as it was copied from a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub flags: u8,
    pub version: Option<VersionAddress>,
    pub value: Vec<u8>,
}

impl Seen {
    pub fn set(&mut self, cell: Cell<'_>) {
        self.flags = cell.flags;
        self.version = cell.version;
        self.value.clear();
        self.value.extend_from_slice(cell.value);
    }
}

impl Core {
    /// Replaces a copied cell by the version that the snapshot sees. False: none, the row is not
    /// there for it.
    pub(super) fn resolve(&self, snapshot: &Snapshot, me: TrxId, seen: &mut Seen) -> Result<bool> {
        while let Some(address) = seen.version {
            let Some(entry) = self.versions.read(address)? else {
                break;
            };
            let entry = entry.view();
            if snapshot.sees(me, entry.trx) {
                break;
            }
            match entry.kind {
                VersionKind::Insert => return Ok(false),
                VersionKind::DeleteMark => seen.flags = entry.old_flags,
                VersionKind::Update | VersionKind::Unmark => {
                    seen.flags = entry.old_flags;
                    seen.value.clear();
                    seen.value.extend_from_slice(entry.old_value);
                }
            }
            seen.version = (entry.previous != VersionAddress(0)).then_some(entry.previous);
        }
        Ok(seen.flags & CELL_DELETED == 0)
    }

    /// The value behind a cell that was copied: fetches long values.
    pub(super) fn value_of(&self, tree: &Tree, seen: &mut Seen) -> Result<()> {
        if seen.flags & CELL_OVERFLOW != 0 {
            seen.value = self.read_long_value(tree, &seen.value)?;
        }
        Ok(())
    }
}

impl Transaction {
    /// Reads a row as of the statement's snapshot (at serializable: locks it shared first).
    pub(crate) fn read(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.isolation() == Isolation::Serializable {
            return self.read_serializable(tree, key);
        }
        let mut inner = self.active()?;
        let own;
        // Borrowed, not cloned, at repeatable read: a clone would be registered.
        let snapshot = match self.isolation() {
            Isolation::RepeatableRead => &*inner
                .snapshot
                .get_or_insert_with(|| self.core.trxs.snapshot()),
            _ => {
                own = self.core.trxs.snapshot();
                &own
            }
        };
        let mut seen = Seen::default();
        {
            let leaf = tree.leaf_shared(Target::Key(key))?;
            let page = TreePage(&leaf);
            let Ok(slot) = page.search(key) else {
                return Ok(None);
            };
            seen.set(page.cell(slot));
        }
        if !self
            .core
            .resolve(snapshot, self.shared.state.id(), &mut seen)?
        {
            return Ok(None);
        }
        self.core.value_of(tree, &mut seen)?;
        self.core.redo.counters.add(Counter::RowsRead, 1);
        Ok(Some(seen.value))
    }

    fn read_serializable(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut inner = self.active()?;
        let bounds = (Bound::Included(key), Bound::Included(key));
        let deadline = Some(self.deadline());
        let result = self
            .lock_range(&mut inner, tree, bounds, LockMode::Shared, deadline)
            .and_then(|()| {
                let mode = (LockMode::Shared, false);
                self.newest_row(&mut inner, tree, key, mode, deadline)
            });
        self.after_error(inner, result)
    }

    /// Locks a range of keys, so that nobody else changes or inserts a row in it.
    pub(super) fn lock_range(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        mode: LockMode,
        deadline: Option<Instant>,
    ) -> Result<()> {
        if mutants::on(Mutant::RangeLockSkipped) {
            return Ok(());
        }
        let state = &self.shared.state;
        let (space, id) = (tree.space.id, tree.id);
        loop {
            let held = &mut inner.held;
            match self
                .core
                .locks
                .try_lock_range(state, held, space, id, low, high, mode)
            {
                Ok(()) => return Ok(()),
                Err(blockers) => {
                    if let Some(blocker) = blockers.first() {
                        self.core.wait_for(state, blocker, deadline)?
                    }
                }
            }
        }
    }

    /// The newest version of a row, waiting for whoever is changing it or has locked it. With
    /// `lock` the row (or its place, if there is none) is locked then and there, under the leaf's
    /// latch: while it waits, a transaction holds no lock on the row, so the one that it waits for
    /// can go on with the row.
    pub(super) fn newest_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        (mode, lock): (LockMode, bool),
        deadline: Option<Instant>,
    ) -> Result<Option<Vec<u8>>> {
        loop {
            if self.shared.state.is_doomed() {
                return Err(Error::Deadlock);
            }
            let mut seen = Seen::default();
            let (found, newest) = {
                let leaf = tree.leaf_shared(Target::Key(key))?;
                let page = TreePage(&leaf);
                let found = page.search(key);
                if let Ok(slot) = found {
                    seen.set(page.cell(slot));
                }
                let newest = match self.newest(inner, seen.version)? {
                    Newest::Free => self
                        .explicit_lock(inner, tree, key, mode, lock)
                        .map_or(Newest::Free, Newest::Busy),
                    other => other,
                };
                (found.is_ok() && seen.flags & CELL_DELETED == 0, newest)
            };
            match newest {
                Newest::Busy(blocker) => self.wait(&blocker, deadline)?,
                Newest::TooNew => return Err(Error::WriteConflict),
                Newest::Free if !found => return Ok(None),
                Newest::Free => {
                    self.core.value_of(tree, &mut seen)?;
                    self.core.redo.counters.add(Counter::RowsRead, 1);
                    return Ok(Some(seen.value));
                }
            }
        }
    }

    /// Takes a row's explicit lock (if `lock`), or says who is in the way of it.
    fn explicit_lock(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
        lock: bool,
    ) -> Option<Arc<TrxState>> {
        let (locks, state) = (&self.core.locks, &self.shared.state);
        let (space, id) = (tree.space.id, tree.id);
        let blockers = if lock {
            let ranges = || locks.range_blockers(state, space, id, key, mode);
            let blockers = ranges();
            if !blockers.is_empty() {
                return blockers.into_iter().next();
            }
            let held = &mut inner.held;
            match locks.try_lock_record(state, held, space, id, key, mode) {
                Err(blockers) => blockers,
                // Who locked a range between the two may have read the row before it was locked.
                // Who does so later finds the row's lock.
                Ok(()) => ranges(),
            }
        } else {
            locks.record_blockers(state, space, id, key, mode)
        };
        blockers.into_iter().next()
    }

    fn wait(&self, blocker: &Arc<TrxState>, deadline: Option<Instant>) -> Result<()> {
        self.core.wait_for(&self.shared.state, blocker, deadline)
    }

    /// Locks a row and reads its newest version. `Ok(None)`: no such row, or it is locked and was
    /// to be skipped.
    pub(crate) fn read_locking(
        &self,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<Option<Vec<u8>>> {
        self.core.redo.poison.check()?;
        let mut inner = self.active()?;
        self.pin_snapshot(&mut inner);
        let deadline = (wait == Wait::Timeout).then(|| self.deadline());
        let result = match self.isolation() {
            Isolation::Serializable => {
                let bounds = (Bound::Included(key), Bound::Included(key));
                self.lock_range(&mut inner, tree, bounds, mode, deadline)
            }
            _ => Ok(()),
        };
        let result =
            result.and_then(|()| self.newest_row(&mut inner, tree, key, (mode, true), deadline));
        let result = match result {
            Err(Error::LockNotAvailable) if wait == Wait::SkipLocked => Ok(None),
            other => other,
        };
        self.after_error(inner, result)
    }
}
