//! Reading rows: what a snapshot sees, and what a locking read sees.
//!
//! A cell is the newest version of its row. If it carries a live version address, the entry there
//! says who made it; a reader that may not see that one goes on to the before-image, and so on.
//! The chain is walked after the leaf's latch is released: entries never change, and stay while the
//! reader's snapshot lives.

use super::core::Core;
use super::isolation::Isolation;
use super::locks::{Blocker, LockMode};
use super::system::Snapshot;
use super::transaction::{Inner, Transaction};
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

/// Whether a locking read took a lock that its transaction did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It took one, which [`Transaction::unlock_row`] can give back.
    Now,
    /// The transaction had the lock before, or none was taken.
    Before,
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

/// Whether a plain read takes a cell as it is, whoever made it. Not one with a long value: of one
/// that is not committed the pages may be freed while they are read.
pub(super) fn sees_newest(isolation: Isolation, flags: u8) -> bool {
    isolation == Isolation::ReadUncommitted && flags & CELL_OVERFLOW == 0
}

impl Transaction {
    /// Reads a row as of the statement's snapshot (at serializable: locks it shared first).
    pub(crate) fn read(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.read_into(tree, key, &mut value)?.then_some(value))
    }

    /// As [`read`](Self::read), into a buffer whose memory is used again. False: no row.
    pub(crate) fn read_into(&self, tree: &Tree, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        if self.isolation().locks_reads() {
            let found = self.read_serializable(tree, key)?;
            return Ok(found.map(|found| *value = found).is_some());
        }
        let mut inner = self.active()?;
        let own;
        // Borrowed, not cloned, where it is kept: a clone would be registered.
        let snapshot = match self.kept_snapshot(&mut inner) {
            Some(snapshot) => snapshot,
            None => {
                own = self.core.trxs.snapshot();
                &own
            }
        };
        tree.check_complete_at(snapshot.seq())?;
        let mut seen = Seen {
            value: std::mem::take(value),
            ..Seen::default()
        };
        {
            let leaf = tree.leaf_shared(Target::Key(key))?;
            let page = TreePage(&leaf);
            let Ok(slot) = page.search(key) else {
                *value = seen.value;
                return Ok(false);
            };
            seen.set(page.cell(slot));
        }
        let found = self.see(tree, snapshot, &mut seen)?;
        *value = seen.value;
        self.core
            .redo
            .counters
            .add(Counter::RowsRead, u64::from(found));
        Ok(found)
    }

    /// Replaces a copied cell by what a plain read sees of it: the snapshot's version, at read
    /// uncommitted the newest. The whole value. False: no row.
    fn see(&self, tree: &Tree, snapshot: &Snapshot, seen: &mut Seen) -> Result<bool> {
        let core = &self.core;
        if sees_newest(self.isolation(), seen.flags) {
            return Ok(seen.flags & CELL_DELETED == 0);
        }
        Ok(core.resolve(snapshot, self.shared.state.id(), seen)? && {
            core.value_of(tree, seen)?;
            true
        })
    }

    fn read_serializable(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_interrupt()?;
        let mut inner = self.active()?;
        let bounds = (Bound::Included(key), Bound::Included(key));
        let deadline = Some(self.deadline());
        let result = self
            .lock_range(&mut inner, tree, bounds, LockMode::Shared, deadline)
            .and_then(|()| {
                let mode = (LockMode::Shared, false);
                Ok(self.newest_row(&mut inner, tree, key, mode, deadline)?.0)
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
                        let key = match low {
                            Bound::Included(key) | Bound::Excluded(key) => key,
                            Bound::Unbounded => &[],
                        };
                        let wanted = (tree, key, mode);
                        self.core.wait_for(state, blocker, deadline, wanted)?
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
    ) -> Result<(Option<Vec<u8>>, Locked)> {
        loop {
            if self.shared.state.is_doomed() {
                return Err(Error::Deadlock);
            }
            let mut seen = Seen::default();
            let (found, blocker, locked) = {
                let leaf = tree.leaf_shared(Target::Key(key))?;
                let page = TreePage(&leaf);
                let found = page.search(key);
                if let Ok(slot) = found {
                    seen.set(page.cell(slot));
                }
                let (blocker, locked) = match self.newest(inner, seen.version)? {
                    Newest::Free if lock => match self.lock_row(inner, tree, key, mode) {
                        Ok(locked) => (None, locked),
                        Err(blocker) => (Some(blocker), Locked::Before),
                    },
                    Newest::Free => (self.row_blocker(tree, key, mode), Locked::Before),
                    Newest::Busy(blocker) => (Some(blocker), Locked::Before),
                    Newest::TooNew => return Err(Error::WriteConflict),
                };
                (
                    found.is_ok() && seen.flags & CELL_DELETED == 0,
                    blocker,
                    locked,
                )
            };
            if let Some(blocker) = blocker {
                let wanted = (tree, key, mode);
                self.core
                    .wait_for(&self.shared.state, &blocker, deadline, wanted)?;
                continue;
            }
            if !found {
                return Ok((None, locked));
            }
            self.core.value_of(tree, &mut seen)?;
            self.core.redo.counters.add(Counter::RowsRead, 1);
            return Ok((Some(seen.value), locked));
        }
    }

    fn row_blocker(&self, tree: &Tree, key: &[u8], mode: LockMode) -> Option<Blocker> {
        let (locks, state) = (&self.core.locks, &self.shared.state);
        let blockers = locks.record_blockers(state, tree.space.id, tree.id, key, mode);
        blockers.into_iter().next()
    }

    /// Takes a row's explicit lock, or says who is in the way of it. To be called under the latch of
    /// the row's leaf, when nobody else is changing the row.
    pub(super) fn lock_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
    ) -> std::result::Result<Locked, Blocker> {
        let (locks, state) = (&self.core.locks, &self.shared.state);
        let (space, id) = (tree.space.id, tree.id);
        let ranges = || {
            let blockers = locks.range_blockers(state, space, id, key, mode);
            blockers.into_iter().next().map_or(Ok(()), Err)
        };
        ranges()?;
        let held = &mut inner.held;
        match locks.try_lock_record(state, held, space, id, key, mode) {
            Ok(new) => {
                // Who locked a range between the two may have read the row before it was locked.
                // Who does so later finds the row's lock.
                ranges()?;
                Ok(if new { Locked::Now } else { Locked::Before })
            }
            Err(blockers) => blockers.into_iter().next().map_or(Ok(Locked::Before), Err),
        }
    }

    /// Locks a row and reads its newest version. `None`: no such row, or it is locked and was
    /// to be skipped.
    pub(crate) fn read_locking(
        &self,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<(Option<Vec<u8>>, Locked)> {
        self.core.redo.poison.check()?;
        self.check_interrupt()?;
        let mut inner = self.active()?;
        self.pin_snapshot(&mut inner);
        let deadline = (wait == Wait::Timeout).then(|| self.deadline());
        let result = match self.isolation().locks_reads() {
            true => {
                let bounds = (Bound::Included(key), Bound::Included(key));
                self.lock_range(&mut inner, tree, bounds, mode, deadline)
            }
            false => Ok(()),
        };
        let result =
            result.and_then(|()| self.newest_row(&mut inner, tree, key, (mode, true), deadline));
        let result = match result {
            Err(Error::LockNotAvailable) if wait == Wait::SkipLocked => Ok((None, Locked::Before)),
            other => other,
        };
        self.after_error(inner, result)
    }

    /// Gives a row's explicit lock back before the transaction ends, if the isolation level lets it,
    /// and the row is not changed by it. False if nothing was given back.
    pub(crate) fn release_row(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        if !self.isolation().unlocks_rows() {
            return Ok(false);
        }
        let mut inner = self.active()?;
        let (locks, state) = (&self.core.locks, &self.shared.state);
        Ok(locks.unlock_record(state, &mut inner.held, tree.space.id, tree.id, key))
    }
}
