//! Reading rows: what a snapshot sees, and what a locking read sees.
//!
//! A cell is the newest version of its row. If it carries a live version address, the entry there
//! says which transaction made it; a reader that may not see that one goes on to the before-image,
//! and so on. The chain is walked after the leaf's latch is released: entries never change, and
//! stay while the reader's snapshot lives.

use super::tables::{Table, TreeRef};
use crate::btree::{Target, Tree};
use crate::counters::Counter;
use crate::locks::{IfTaken, LockMode, Locked, Newest, RowName, Taken};
use crate::mutants::{self, Mutant};
use crate::mvcc::isolation::{Isolation, MissingRow};
use crate::mvcc::system::{Snapshot, TrxState};
use crate::mvcc::versions::{MARK_ONLY, VersionKind};
use crate::paranoid::paranoid;
use crate::sync::Instant;
use crate::txn::core::Core;
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, Cell, TreePage};
use inkstone_format::{TrxId, VersionAddress};
use std::ops::{Bound, Range};

/// What a locking read does about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait, at most the transaction's lock wait timeout.
    Timeout,
    /// Fail at once (`NOWAIT`).
    NoWait,
    /// Pass over the row (`SKIP LOCKED`).
    SkipLocked,
}

/// What a locking read of one row came to.
enum Look<'l> {
    Row(Locked),
    Missing,
    /// Another transaction has changed or locked the row.
    Blocked(Taken<'l>),
}

/// All bytes of a value.
const WHOLE: Range<u64> = 0..u64::MAX;

/// A row's name in the lock table.
pub(crate) fn row_name<'k>(tree: &Tree, key: &'k [u8]) -> RowName<'k> {
    RowName {
        tree: (tree.space.id, tree.id),
        key,
    }
}

/// A row's content as it was copied from a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
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
    pub(crate) fn resolve(&self, snapshot: &Snapshot, me: TrxId, seen: &mut Seen) -> Result<bool> {
        let mut passed = 0;
        let is_there = self.go_back(snapshot, me, seen, &mut passed);
        if passed > 0 {
            let counters = &self.storage.counters;
            counters.add(Counter::VersionsPassed, passed as u64);
        }
        is_there
    }

    fn go_back(
        &self,
        snapshot: &Snapshot,
        me: TrxId,
        seen: &mut Seen,
        passed: &mut usize,
    ) -> Result<bool> {
        while let Some(mut address) = seen.version {
            let Some(mut entry) = self.versions.read(address)? else {
                break;
            };
            if snapshot.sees(me, entry.view().trx) {
                break;
            }
            *passed += 1;
            if *passed == self.versions.steps_between_milestones() {
                let sees = |trx: &TrxState| snapshot.sees(me, trx);
                let oldest = self.versions.oldest_unseen(&entry.view(), sees)?;
                if let Some(oldest) = oldest {
                    self.storage.counters.add(Counter::MilestonesTaken, 1);
                    (address, entry) = oldest;
                }
            }
            let entry = entry.view();
            match entry.kind {
                VersionKind::Insert => return Ok(false),
                VersionKind::DeleteMark => seen.flags &= !CELL_DELETED,
                VersionKind::Unmark if entry.flags & MARK_ONLY != 0 => {
                    seen.flags |= CELL_DELETED;
                }
                VersionKind::Update | VersionKind::Unmark => {
                    seen.flags = entry.old_flags;
                    let old = entry.old_value(&seen.value);
                    let old = old.map_err(|c| self.versions.corrupt(address, c))?;
                    let old = old.into_owned();
                    seen.value.clear();
                    seen.value.extend_from_slice(&old);
                }
            }
            seen.version = (entry.previous != VersionAddress(0)).then_some(entry.previous);
        }
        Ok(seen.flags & CELL_DELETED == 0)
    }

    /// The value behind a cell that was copied: fetches long values.
    pub(crate) fn value_of(&self, tree: &Tree, seen: &mut Seen) -> Result<()> {
        self.slice_of(tree, seen, &WHOLE)
    }

    /// These bytes of the value behind a cell that was copied, as far as it has them. Of a long
    /// value only the parts are fetched in which they lie.
    fn slice_of(&self, tree: &Tree, seen: &mut Seen, wanted: &Range<u64>) -> Result<()> {
        if seen.flags & CELL_OVERFLOW != 0 {
            seen.value = self.read_long_value(tree, &seen.value, wanted)?;
        } else if *wanted != WHOLE {
            let length = seen.value.len() as u64;
            let (start, end) = (wanted.start.min(length), wanted.end.min(length));
            seen.value.truncate(end as usize);
            seen.value.drain(..start.min(end) as usize);
        }
        paranoid!(
            seen.value.len() as u64 <= wanted.end.saturating_sub(wanted.start),
            "{} bytes are read of {wanted:?}",
            seen.value.len()
        );
        Ok(())
    }
}

/// What a statement does about a lock that another transaction has, if it waits until `deadline`.
fn if_taken(deadline: Option<Instant>) -> IfTaken {
    if deadline.is_some() {
        IfTaken::Queue
    } else {
        IfTaken::Refuse
    }
}

/// Whether a plain read takes a cell as it is, whichever transaction made it. Not one with a long
/// value: of one that is not committed the pages may be freed while they are read.
pub(crate) fn sees_newest(isolation: Isolation, flags: u8) -> bool {
    isolation == Isolation::ReadUncommitted && flags & CELL_OVERFLOW == 0
}

/// Each call is a statement: if it fails it has no effect, and the transaction goes on (after
/// [`Error::Deadlock`] it is rolled back).
impl Transaction {
    /// The value of a key, as the statement's snapshot sees it. Takes no lock and waits for no
    /// other transaction, but at [`Isolation::Serializable`](crate::Isolation::Serializable), where
    /// it locks the key shared.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"value")?;
    /// assert_eq!(txn.get(&table, b"key")?, Some(b"value".to_vec()));
    /// assert_eq!(txn.get(&table, b"other")?, None);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn get(&self, tree: &impl TreeRef, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(tree, key, &mut value)?.then_some(value))
    }

    /// As [`get`](Self::get), into a buffer whose memory is used again. False: there is no such
    /// row.
    pub fn get_into(&self, tree: &impl TreeRef, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.read_into(tree.tree_ref().live(&self.core)?, key, value)
    }

    /// As [`get`](Self::get), these bytes of the value only, as far as it has them. What lies in
    /// pages of its own ([`insert_with_parts`](Self::insert_with_parts)) and is not among them is
    /// not fetched.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// let value = [&b"name"[..], &[7; 1_000_000]].concat();
    /// txn.insert_with_parts(&table, b"key", &value, &[4..1_000_004])?;
    /// assert_eq!(txn.get_slice(&table, b"key", 0..4)?, Some(b"name".to_vec())); // one page
    /// assert_eq!(txn.get_slice(&table, b"key", 3..6)?, Some(b"e\x07\x07".to_vec()));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn get_slice(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        bytes: Range<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let tree = tree.tree_ref().live(&self.core)?;
        let found = self.read_slice(tree, key, &mut value, &bytes)?;
        Ok(found.then_some(value))
    }

    /// Reads the pages of these rows together, those that are not in memory, before they are
    /// looked up one by one. How many pages that were. It is a hint: of many keys those at the
    /// front count, as pages must stay until they are wanted. Where all are in memory it costs a
    /// part of the lookups, for nothing.
    pub fn prefetch<K: AsRef<[u8]>>(&self, tree: &impl TreeRef, keys: &[K]) -> Result<usize> {
        let tree = tree.tree_ref().live(&self.core)?;
        let pages = tree.read_leaves_of(keys.iter().map(AsRef::as_ref))?;
        paranoid!(
            pages <= keys.len(),
            "{pages} pages were read for {} rows",
            keys.len()
        );
        Ok(pages)
    }

    /// Locks a row (`SELECT ... FOR SHARE`, `FOR UPDATE`) until the transaction ends, and reads its
    /// newest committed version. `None`: there is no such row, or it is locked and was to be
    /// skipped. At repeatable read [`Error::WriteConflict`] if that version is newer than the
    /// transaction's snapshot. With [`Wait::NoWait`] [`Error::LockNotAvailable`] instead of
    /// waiting.
    pub fn get_locking(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<Option<Vec<u8>>> {
        Ok(self.get_locking_new(tree, key, mode, wait)?.0)
    }

    /// As [`get_locking`](Self::get_locking), and whether that took a lock which the transaction
    /// did not have.
    pub fn get_locking_new(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<(Option<Vec<u8>>, Locked)> {
        let tree = tree.tree_ref().live(&self.core)?;
        self.core.storage.poison.check()?;
        self.check_interrupt()?;
        let mut inner = self.active()?;
        self.pin_snapshot(&mut inner);
        let deadline = (wait == Wait::Timeout).then(|| self.deadline());
        let result = if self.isolation().locks_reads() {
            let bounds = (Bound::Included(key), Bound::Included(key));
            self.lock_range(&mut inner, tree, bounds, mode, deadline)
        } else {
            Ok(())
        };
        let result = result.and_then(|()| self.newest_row(&mut inner, tree, key, mode, deadline));
        let result = match result {
            Err(Error::LockNotAvailable) if wait == Wait::SkipLocked => Ok((None, Locked::Before)),
            other => other,
        };
        self.after_error(inner, result)
    }

    /// Gives the lock of a row back that a locking read has taken, because the row is not wanted
    /// after all; its waiters go on. Only at read committed and below: at other levels the lock
    /// stays, and this returns false. A row that the transaction has changed stays locked. Of a row
    /// that was locked before, only what the last read has added is given back.
    pub fn unlock_row(&self, tree: &impl TreeRef, key: &[u8]) -> Result<bool> {
        self.release_row(tree.tree_ref().live(&self.core)?, key)
    }

    /// Takes the *statement lock* of a table, and waits for it as for a row's: an exclusive lock
    /// that has nothing to do with its rows, for code that gives out numbers, say. It is given back
    /// when the statement ends ([`end_statement`](Self::end_statement),
    /// [`rollback_statement`](Self::rollback_statement), the next
    /// [`begin_statement`](Self::begin_statement)), or with the transaction. Having it already,
    /// this does nothing.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.begin_statement()?;
    /// txn.lock_for_statement(&table)?;
    /// assert!(db.is_locked_for_statement(&table));
    /// txn.end_statement()?;
    /// assert!(!db.is_locked_for_statement(&table));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn lock_for_statement(&self, table: &Table) -> Result<()> {
        let tree = table.tree_ref().live(&self.core)?;
        self.take_statement_lock(tree.space.id)
    }
}

impl Transaction {
    /// Reads a row of a tree, which may have no table, as of the statement's snapshot (at
    /// serializable: locks it shared first), into a buffer whose memory is used again. False: no
    /// row.
    pub(crate) fn read_into(&self, tree: &Tree, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.read_slice(tree, key, value, &WHOLE)
    }

    fn read_slice(
        &self,
        tree: &Tree,
        key: &[u8],
        value: &mut Vec<u8>,
        wanted: &Range<u64>,
    ) -> Result<bool> {
        self.read_cell(tree, key, value, |seen, _| {
            self.core.slice_of(tree, seen, wanted)
        })
    }

    /// As [`read_into`](Self::read_into). `fetch` makes what the caller wants of the cell that it
    /// sees; the snapshot with which it does is in force as long. None: it has locked the row, of
    /// which any snapshot from now on keeps the chains.
    pub(super) fn read_cell(
        &self,
        tree: &Tree,
        key: &[u8],
        value: &mut Vec<u8>,
        fetch: impl FnOnce(&mut Seen, Option<&Snapshot>) -> Result<()>,
    ) -> Result<bool> {
        if self.isolation().locks_reads() {
            let found = self.read_serializable(tree, key, fetch)?;
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
        if let Err(error) = tree.check_complete_at(snapshot.seq()) {
            inner.had_conflict = true;
            return Err(error);
        }
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
        let found = self.see(snapshot, &mut seen)?;
        if found {
            fetch(&mut seen, Some(snapshot))?;
        }
        *value = seen.value;
        self.core
            .storage
            .counters
            .add(Counter::RowsRead, u64::from(found));
        Ok(found)
    }

    /// Replaces a copied cell by what a plain read sees of it: the snapshot's version, at read
    /// uncommitted the newest. False: no row.
    fn see(&self, snapshot: &Snapshot, seen: &mut Seen) -> Result<bool> {
        if sees_newest(self.isolation(), seen.flags) {
            return Ok(seen.flags & CELL_DELETED == 0);
        }
        self.core.resolve(snapshot, self.shared.state.id(), seen)
    }

    fn read_serializable(
        &self,
        tree: &Tree,
        key: &[u8],
        fetch: impl FnOnce(&mut Seen, Option<&Snapshot>) -> Result<()>,
    ) -> Result<Option<Vec<u8>>> {
        paranoid!(
            self.isolation().locks_reads(),
            "a plain read at {:?} locks",
            self.isolation()
        );
        self.check_interrupt()?;
        let mut inner = self.active()?;
        let bounds = (Bound::Included(key), Bound::Included(key));
        let deadline = Some(self.deadline());
        let result = self
            .lock_range(&mut inner, tree, bounds, LockMode::Shared, deadline)
            .and_then(|()| {
                let mode = LockMode::Shared;
                let found = self.newest_cell(&mut inner, tree, key, mode, deadline)?;
                let Some((mut seen, _)) = found else {
                    return Ok(None);
                };
                fetch(&mut seen, None)?;
                self.core.storage.counters.add(Counter::RowsRead, 1);
                Ok(Some(seen.value))
            });
        self.after_error(inner, result)
    }

    /// Locks a range of keys, so that no other transaction changes or inserts a row in it.
    pub(crate) fn lock_range(
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
        let (locks, state) = (&self.core.locks, &self.shared.state);
        let (held, tree) = (&mut inner.held, row_name(tree, &[]).tree);
        match locks.lock_range(state, held, tree, (low, high), mode, if_taken(deadline)) {
            Ok(()) => Ok(()),
            Err(taken) => self.wait(inner, taken, deadline),
        }
    }

    /// Waits in the queue for a lock, if there is time.
    pub(crate) fn wait(
        &self,
        inner: &mut Inner,
        taken: Taken<'_>,
        deadline: Option<Instant>,
    ) -> Result<()> {
        paranoid!(
            deadline.is_some() || matches!(taken, Taken::Refused),
            "a statement of {:?} that does not wait stands in a queue",
            self.id()
        );
        match (taken, deadline) {
            (Taken::Queued(waiting), Some(deadline)) => self.wait_for_row(inner, waiting, deadline),
            _ => Err(Error::LockNotAvailable),
        }
    }

    /// The newest version of a row, waiting for transactions that are changing it or have locked
    /// it. The row, or its place as the isolation level has it, is locked then and there, under the
    /// leaf's latch: while it waits, a transaction holds no lock on the row, so the one that it
    /// waits for can go on with the row.
    pub(crate) fn newest_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
        deadline: Option<Instant>,
    ) -> Result<(Option<Vec<u8>>, Locked)> {
        let Some((mut seen, locked)) = self.newest_cell(inner, tree, key, mode, deadline)? else {
            return Ok((None, Locked::Before));
        };
        self.core.value_of(tree, &mut seen)?;
        self.core.storage.counters.add(Counter::RowsRead, 1);
        Ok((Some(seen.value), locked))
    }

    /// As [`newest_row`](Self::newest_row), as it is in the leaf: a long value is not fetched.
    pub(crate) fn newest_cell(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
        deadline: Option<Instant>,
    ) -> Result<Option<(Seen, Locked)>> {
        let row = row_name(tree, key);
        let mut seen = Seen::default();
        let mut waited = false;
        let looked = loop {
            if self.shared.state.is_doomed() {
                break Err(Error::Deadlock);
            }
            let if_taken = if_taken(deadline);
            let taken = match self.look_and_lock(inner, tree, row, mode, if_taken, &mut seen) {
                Ok(Look::Blocked(taken)) => taken,
                looked => break looked,
            };
            waited = true;
            if let Err(error) = self.wait(inner, taken, deadline) {
                break Err(error);
            }
        };
        if waited {
            self.core.locks.give_up(&self.shared.state, row.tree);
        }
        let looked = looked?;
        let Look::Row(locked) = looked else {
            return Ok(None);
        };
        paranoid!(
            seen.flags & CELL_DELETED == 0,
            "a locking read returns row {key:x?}, which is deleted"
        );
        Ok(Some((seen, locked)))
    }

    fn look_and_lock(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        row: RowName<'_>,
        mode: LockMode,
        if_taken: IfTaken,
        seen: &mut Seen,
    ) -> Result<Look<'_>> {
        let (locks, state) = (&self.core.locks, &self.shared.state);
        let leaf = tree.leaf_shared(Target::Key(row.key))?;
        let page = TreePage(&leaf);
        let cell = page.search(row.key).ok().map(|slot| page.cell(slot));
        let newest = self.newest(inner, cell.and_then(|cell| cell.version))?;
        let held = &mut inner.held;
        let cell = cell.filter(|cell| !cell.is_deleted());
        if cell.is_none() && !matches!(newest, Newest::Busy(_)) {
            match self.isolation().locks_missing_rows() {
                MissingRow::Free => return Ok(Look::Missing),
                MissingRow::Gap => {
                    let bounds = (Bound::Included(row.key), Bound::Included(row.key));
                    locks.lock_gap(state, held, row.tree, bounds);
                    return Ok(Look::Missing);
                }
                MissingRow::Row => {}
            }
        }
        let locked = locks.lock_row(state, held, row, mode, &newest, if_taken);
        match (locked, cell) {
            (Err(taken), _) => Ok(Look::Blocked(taken)),
            (Ok(_), None) => Ok(Look::Missing),
            (Ok(locked), Some(cell)) => {
                seen.set(cell);
                Ok(Look::Row(locked))
            }
        }
    }

    /// Gives a row's explicit lock back before the transaction ends, if the isolation level lets
    /// it, and the row is not changed by it. False if nothing was given back.
    pub(crate) fn release_row(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        if !self.isolation().unlocks_rows() {
            return Ok(false);
        }
        let _inner = self.active()?;
        let (locks, state) = (&self.core.locks, &self.shared.state);
        Ok(locks.unlock_row(state, row_name(tree, key)))
    }
}
