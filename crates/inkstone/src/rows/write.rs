//! Writing rows: insert, update, upsert, delete, and locking them first.
//!
//! A writer latches the leaf, looks at the newest version of the row, and changes it if no other
//! transaction is in the way; otherwise it takes its place in the row's queue, lets go, waits, and
//! looks again. Explicit locks are checked under the leaf's exclusive latch. A row is locked under
//! the leaf's shared latch, when no other transaction is changing it; a lock on a range enters the
//! lock table first, and the rows are looked at afterwards. So one of the two sees the other.
//!
//! An insert that finds a row of its key locks that: what it has told its caller stays true.

use super::change::{Attempt, CellValue, Here, Written};
use super::parts::Layout;
use super::tables::TreeRef;
use crate::btree::{SplitFor, Target, Tree};
use crate::buffer::Exclusive;
use crate::locks::{Access, Blocker, IfTaken, LockMode, Newest, Taken, Waiting};
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxStatus;
use crate::paranoid::paranoid;
use crate::rows::read::row_name;
use crate::sync::{Instant, thread};
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::VersionAddress;
use inkstone_format::tree_page::{TreePage, is_inline, key_len_max};
use std::ops::Bound;

/// What to do with a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write<'a> {
    /// Fails when the row exists, and locks it so.
    Insert(&'a [u8], LockMode),
    /// Fails when it does not.
    Update(&'a [u8]),
    /// Inserts or updates.
    Upsert(&'a [u8]),
    /// Fails when there is no row.
    Delete,
}

/// Each call is a statement: if it fails it has no effect, and the transaction goes on (after
/// [`Error::Deadlock`] it is rolled back).
impl Transaction {
    /// Inserts a row; [`Error::DuplicateKey`] if there is one of this key. Waits for a transaction
    /// that has changed the key and not ended, at most the lock wait timeout
    /// ([`Error::LockTimeout`]). A key has at most 3072 bytes (768 in pages of 4 KiB, 1536 in 8
    /// KiB; [`Error::KeyTooLong`]), a value at most 2^30 ([`Error::ValueTooLong`]).
    ///
    /// It is [`Error::DuplicateKey`] also at repeatable read, where the row was inserted after the
    /// snapshot and a read does not find it. [`Database::transact`](crate::Database::transact)
    /// does not repeat that.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"one")?;
    /// let again = txn.insert(&table, b"key", b"two");
    /// assert!(matches!(again, Err(Error::DuplicateKey { .. })));
    /// txn.commit()?; // the statement failed, the transaction did not
    /// # Ok::<(), Error>(())
    /// ```
    pub fn insert(&self, tree: &impl TreeRef, key: &[u8], value: &[u8]) -> Result<()> {
        self.insert_or_lock(tree, key, value, LockMode::Shared)
    }

    /// As [`insert`](Self::insert). The row that is there already is locked as `duplicate` says:
    /// exclusively for a caller that is about to change it.
    pub fn insert_or_lock(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        value: &[u8],
        duplicate: LockMode,
    ) -> Result<()> {
        let tree = tree.tree_ref();
        match self.write(tree.live(&self.core)?, key, Write::Insert(value, duplicate))? {
            Written::Inserted => Ok(()),
            _ => Err(tree.duplicate()),
        }
    }

    /// Changes a row's value; [`Error::RowNotFound`] if there is none of this key. Waits as
    /// [`insert`](Self::insert) does. At repeatable read [`Error::WriteConflict`] if the row was
    /// changed by a transaction that committed after this one's snapshot.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// # let setup = db.begin(Isolation::RepeatableRead)?;
    /// # setup.insert(&table, b"counter", b"1")?;
    /// # setup.commit()?;
    /// let slow = db.begin_with_snapshot()?;
    /// let fast = db.begin(Isolation::RepeatableRead)?;
    /// fast.update(&table, b"counter", b"2")?;
    /// fast.commit()?;
    /// let lost = slow.update(&table, b"counter", b"2");
    /// assert!(matches!(lost, Err(Error::WriteConflict)));
    /// slow.rollback()?; // and again, with a new snapshot
    /// # Ok::<(), Error>(())
    /// ```
    pub fn update(&self, tree: &impl TreeRef, key: &[u8], value: &[u8]) -> Result<()> {
        let tree = tree.tree_ref();
        match self.write(tree.live(&self.core)?, key, Write::Update(value))? {
            Written::Changed => Ok(()),
            _ => Err(tree.missing()),
        }
    }

    /// Inserts or changes a row; true if it was inserted. Waits and fails as
    /// [`update`](Self::update) does.
    pub fn upsert(&self, tree: &impl TreeRef, key: &[u8], value: &[u8]) -> Result<bool> {
        let written = self.write(tree.tree_ref().live(&self.core)?, key, Write::Upsert(value))?;
        Ok(written == Written::Inserted)
    }

    /// Deletes a row; false if there is none of this key. Waits and fails as
    /// [`update`](Self::update) does. The space comes back when no snapshot needs the row.
    pub fn delete(&self, tree: &impl TreeRef, key: &[u8]) -> Result<bool> {
        let written = self.write(tree.tree_ref().live(&self.core)?, key, Write::Delete)?;
        Ok(written == Written::Changed)
    }
}

impl Transaction {
    /// Writes one row of a tree, which may have no table, as a statement.
    pub(crate) fn write(&self, tree: &Tree, key: &[u8], write: Write<'_>) -> Result<Written> {
        self.write_as(tree, key, write, Layout::WHOLE)
    }

    pub(crate) fn write_as(
        &self,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        layout: Layout<'_>,
    ) -> Result<Written> {
        let limit = key_len_max(tree.storage().page_size);
        if key.len() > limit {
            return Err(Error::KeyTooLong {
                length: key.len(),
                limit,
            });
        }
        if !matches!(write, Write::Delete) {
            tree.space.check_room()?;
        }
        let mut inner = self.begin_write()?;
        let place = inner.place_of_row();
        let result = self.write_row_as(&mut inner, tree, key, write, layout);
        if result.is_err() && !matches!(result, Err(Error::Deadlock)) {
            // A long value may be half exchanged: the statement has no effect.
            self.undo_to(&mut inner, place)?;
        }
        self.after_error(inner, result)
    }

    /// Writes one row, its long value too, as a part of a statement.
    pub(crate) fn write_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
    ) -> Result<Written> {
        self.write_row_as(inner, tree, key, write, Layout::WHOLE)
    }

    fn write_row_as(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        layout: Layout<'_>,
    ) -> Result<Written> {
        if self.shared.state.is_doomed() {
            return Err(Error::Deadlock);
        }
        paranoid!(
            key.len() <= key_len_max(tree.storage().page_size),
            "a key of {} bytes is written",
            key.len()
        );
        self.pin_snapshot(inner);
        let value = match write {
            Write::Insert(value, _) | Write::Update(value) | Write::Upsert(value) => value,
            Write::Delete => &[],
        };
        if is_inline(tree.storage().page_size, key.len(), value.len()) {
            let cell = CellValue {
                bytes: value,
                flags: 0,
                kept: &[],
            };
            return self.write_cell(inner, tree, key, write, cell);
        }
        let written = self.write_long(inner, tree, key, write, (value, layout));
        if !matches!(written, Ok(Written::Inserted | Written::Changed)) {
            inner.orphans = true;
        }
        written
    }

    /// Writes a row's cell, and gives up its place in the queue in the end.
    pub(super) fn write_cell(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        value: CellValue<'_>,
    ) -> Result<Written> {
        let mut waited = false;
        let result = self.write_when_free(inner, tree, key, write, value, &mut waited);
        if waited {
            let (locks, state) = (&self.core.locks, &self.shared.state);
            match result {
                Ok(Written::Inserted | Written::Changed) => locks.wrote(state, row_name(tree, key)),
                _ => locks.give_up(state, row_name(tree, key).tree),
            }
        }
        result
    }

    fn write_when_free(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        value: CellValue<'_>,
        waited: &mut bool,
    ) -> Result<Written> {
        // The clock is asked only when there is something to wait for.
        let mut deadline = None;
        let mut locked = !self.isolation().locks_reads();
        loop {
            match self.try_write(inner, tree, key, write, value)? {
                Attempt::Done(Written::Missing | Written::Exists) if !locked => {
                    // To find no row, or one too many, is to read: it must stay true.
                    let bounds = (Bound::Included(key), Bound::Included(key));
                    let deadline = *deadline.get_or_insert_with(|| self.deadline());
                    self.lock_range(inner, tree, bounds, LockMode::Shared, Some(deadline))?;
                    locked = true;
                }
                Attempt::Done(written) => return Ok(written),
                Attempt::Again => {}
                Attempt::Wait(waiting) => {
                    let deadline = *deadline.get_or_insert_with(|| self.deadline());
                    *waited = true;
                    self.wait_for_row(inner, waiting, deadline)?;
                }
                Attempt::Split { need, ascending } => {
                    paranoid!(need > 0, "a leaf is split to make room for nothing");
                    let live = self.core.liveness();
                    tree.split_leaf(
                        SplitFor {
                            ascending,
                            ..SplitFor::row(key, need)
                        },
                        &live,
                    )?;
                }
            }
        }
    }

    /// Waits for a row lock, with the transaction's latch and no page's. Meanwhile others go on:
    /// the log does not wait for this transaction.
    pub(crate) fn wait_for_row(
        &self,
        inner: &mut Inner,
        waiting: Waiting<'_>,
        deadline: Instant,
    ) -> Result<()> {
        let core = &self.core;
        core.locks.wait(waiting, deadline, &mut || {
            core.save_undo_of_waiter(&self.shared, inner)
        })
    }

    fn try_write(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let leaf = self.leaf_for_write(inner, tree, key)?;
        let page = TreePage(&leaf);
        let found = page.search(key);
        let cell = found.ok().map(|slot| page.cell(slot));
        let version = cell.and_then(|cell| cell.version);
        let is_there = cell.is_some_and(|cell| !cell.is_deleted());
        let wants_row = matches!(write, Write::Update(_) | Write::Delete);
        if wants_row && cell.is_none() {
            return Ok(Attempt::Done(Written::Missing));
        }
        let newest = match (self.newest(inner, version), write) {
            (Err(Error::WriteConflict), Write::Insert(..)) if is_there => Newest::Free,
            (newest, _) => newest?,
        };
        if let (Write::Insert(_, mode), true) = (write, is_there) {
            // Its own row is its own for as long as it is there.
            if matches!(newest, Newest::Own) {
                return Ok(Attempt::Done(Written::Exists));
            }
            return Ok(self.found_duplicate(inner, tree, key, mode, &newest));
        }
        let access = if is_there || wants_row {
            Access::Row(LockMode::Exclusive)
        } else {
            Access::Insert
        };
        let (locks, state, row) = (&self.core.locks, &self.shared.state, row_name(tree, key));
        if let Err(waiting) = locks.may_write(state, &mut inner.held, row, access, &newest) {
            return Ok(Attempt::Wait(waiting));
        }
        paranoid!(
            !matches!(newest, Newest::Busy(_)),
            "a row is written that another transaction is changing: {newest:?}"
        );
        let place = (tree.space.id, tree.id);
        self.core.note_change(place, key, &self.shared.state);
        let is_new = found.is_err();
        let here = Here {
            tree,
            leaf,
            slot: found.unwrap_or_else(|slot| slot),
            key,
        };
        match (write, is_there) {
            _ if is_new => self.insert_row(inner, here, value),
            (Write::Insert(..) | Write::Upsert(_), false) => self.revive_row(inner, here, value),
            (Write::Update(_) | Write::Delete, false) => Ok(Attempt::Done(Written::Missing)),
            (Write::Insert(..), true) => Ok(Attempt::Done(Written::Exists)),
            (Write::Update(_) | Write::Upsert(_), true) => self.update_row(inner, here, value),
            (Write::Delete, true) => self.mark_row(inner, here),
        }
    }

    /// Locks the row that an insert has found instead of a free place.
    fn found_duplicate(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        mode: LockMode,
        newest: &Newest,
    ) -> Attempt<'_> {
        let (locks, state, row) = (&self.core.locks, &self.shared.state, row_name(tree, key));
        // At serializable its place is locked as a range.
        if !matches!(newest, Newest::Busy(_)) && self.isolation().locks_reads() {
            return Attempt::Done(Written::Exists);
        }
        match locks.lock_row(state, &mut inner.held, row, mode, newest, IfTaken::Queue) {
            Err(Taken::Queued(waiting)) => Attempt::Wait(waiting),
            Ok(_) | Err(Taken::Refused) => Attempt::Done(Written::Exists),
        }
    }

    fn leaf_for_write<'p>(
        &self,
        inner: &Inner,
        tree: &'p Tree,
        key: &[u8],
    ) -> Result<Exclusive<'p>> {
        if let Some((space, id, page, _)) = inner.last_insert
            && space == tree.space.id
            && id == tree.id
            && let Some(leaf) = tree.leaf_at_hint(page, key)
        {
            return Ok(leaf);
        }
        tree.leaf_exclusive(Target::Key(key))
    }

    /// How the newest version of a row stands to this transaction. [`Error::WriteConflict`]: it was
    /// committed after the snapshot of a transaction that must not pass over it.
    pub(crate) fn newest(
        &self,
        inner: &Inner,
        mut version: Option<VersionAddress>,
    ) -> Result<Newest> {
        let merges = inner
            .passes_over
            .is_some_and(|number| number == thread::number());
        let first_wins =
            self.isolation().first_committer_wins() && !merges && !mutants::on(Mutant::LostUpdate);
        let snapshot = inner.snapshot.as_ref().filter(|_| first_wins);
        // What has ended before is no conflict.
        let settled = snapshot.map_or(u64::MAX, |snapshot| snapshot.seq());
        let trx = loop {
            let Some(address) = version else {
                return Ok(Newest::Free);
            };
            let Some(trx) = self.core.versions.trx_of(address, settled)? else {
                return Ok(Newest::Free);
            };
            let is_newer =
                matches!(trx.settled_status(), TrxStatus::Committed(number) if number > settled);
            if !(is_newer && trx.only_moves()) {
                break trx;
            }
            // The row has the value of the version before.
            let entry = self.core.versions.read(address)?;
            let previous = entry.map(|entry| entry.view().previous);
            version = previous.filter(|&previous| previous != VersionAddress(0));
        };
        if trx.id() == self.shared.state.id() {
            return Ok(Newest::Own);
        }
        if mutants::on(Mutant::RowLockUnseen) {
            return Ok(Newest::Free);
        }
        Ok(match trx.settled_status() {
            TrxStatus::Committed(number) if number > settled => return Err(Error::WriteConflict),
            TrxStatus::Committed(_) => Newest::Free,
            TrxStatus::Aborted => Newest::Free,
            _ => Newest::Busy(Blocker::from(&trx)),
        })
    }
}
