//! Writing rows: insert, update, upsert, delete, and locking them first.
//!
//! A writer latches the leaf, looks at the newest version of the row, and changes it if no other
//! transaction is in the way; otherwise it takes its place in the row's queue, lets go, waits, and
//! looks again. Explicit locks are checked under the leaf's exclusive latch. A row is locked under
//! the leaf's shared latch, when no other transaction is changing it; a lock on a range enters the
//! lock table first, and the rows are looked at afterwards. So one of the two sees the other.
//!
//! An insert that finds a row of its key locks that: what it has told its caller stays true.

use crate::btree::{SplitFor, Target, Tree};
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::locks::{Access, Blocker, IfTaken, LockMode, Newest, Taken, Waiting};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxStatus;
use crate::mvcc::versions::{NO_PURGE, SPLICED, VersionKind, spliced};
use crate::rows::read::row_name;
use crate::txn::core::Core;
use crate::txn::promise::undo_log_bytes;
use crate::txn::transaction::{Change, Coding, Inner, Made, Transaction};
use crate::{Error, Result};
use inkstone_format::VersionAddress;
use inkstone_format::record::{Diff, Record, put_insert};
use inkstone_format::tree_page::{
    CELL_DELETED, CELL_OVERFLOW, CELL_VERSIONED, SLOT_LEN, TreePage, TreePageMut, cell_len,
    is_inline, key_len_max,
};
use std::borrow::Cow;
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

/// What a write found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// There was no row.
    Inserted,
    /// The row was changed or deleted.
    Changed,
    /// There is a row, and the write wanted none.
    Exists,
    /// There is no row, and the write wanted one.
    Missing,
}

/// A value as it is put into a cell.
#[derive(Clone, Copy)]
struct CellValue<'a> {
    bytes: &'a [u8],
    /// 0 or `CELL_OVERFLOW`.
    flags: u8,
}

/// One attempt's outcome.
enum Attempt<'l> {
    Done(Written),
    Wait(Waiting<'l>),
    /// The leaf was cleaned under a latch that is gone now: look again.
    Again,
    Split {
        need: usize,
        ascending: bool,
    },
}

impl Transaction {
    /// Writes one row of a tree.
    pub(crate) fn write(&self, tree: &Tree, key: &[u8], write: Write<'_>) -> Result<Written> {
        let limit = key_len_max(tree.storage().page_size);
        if key.len() > limit {
            return Err(Error::KeyTooLong {
                length: key.len(),
                limit,
            });
        }
        let mut inner = self.begin_write()?;
        let place = inner.place();
        let result = self.write_locked(&mut inner, tree, key, write);
        if result.is_err() && !matches!(result, Err(Error::Deadlock)) {
            // A long value may be half exchanged: the statement has no effect.
            self.undo_to(&mut inner, place)?;
        }
        self.after_error(inner, result)
    }

    pub(crate) fn write_locked(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
    ) -> Result<Written> {
        if self.shared.state.is_doomed() {
            return Err(Error::Deadlock);
        }
        self.pin_snapshot(inner);
        let value = match write {
            Write::Insert(value, _) | Write::Update(value) | Write::Upsert(value) => value,
            Write::Delete => &[],
        };
        if is_inline(tree.storage().page_size, key.len(), value.len()) {
            return self.write_cell(
                inner,
                tree,
                key,
                write,
                CellValue {
                    bytes: value,
                    flags: 0,
                },
            );
        }
        let written = self.write_long(inner, tree, key, write, value);
        if !matches!(written, Ok(Written::Inserted | Written::Changed)) {
            inner.orphans = true;
        }
        written
    }

    fn write_long(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        value: &[u8],
    ) -> Result<Written> {
        let reference = self.store_long_value(inner, tree, value)?;
        let cell = CellValue {
            bytes: &reference,
            flags: CELL_OVERFLOW,
        };
        let written = self.write_cell(inner, tree, key, write, cell)?;
        if matches!(written, Written::Inserted | Written::Changed) {
            self.adopt_long_value(inner, tree, &reference)?;
        }
        Ok(written)
    }

    fn write_cell(
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
            match self.attempt(inner, tree, key, write, value)? {
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
                    self.core.locks.wait(waiting, deadline)?;
                }
                Attempt::Split { need, ascending } => {
                    let live = self.core.liveness();
                    tree.split_leaf(
                        SplitFor {
                            key,
                            need,
                            ascending,
                        },
                        &live,
                    )?;
                }
            }
        }
    }

    fn attempt(
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
        let access = match is_there || wants_row {
            true => Access::Row(LockMode::Exclusive),
            false => Access::Insert,
        };
        let (locks, state, row) = (&self.core.locks, &self.shared.state, row_name(tree, key));
        if let Err(waiting) = locks.may_write(state, &mut inner.held, row, access, &newest) {
            return Ok(Attempt::Wait(waiting));
        }
        let slot = match found {
            Err(slot) => return self.insert_row(inner, tree, leaf, slot, key, value),
            Ok(slot) => slot,
        };
        match (write, is_there) {
            (Write::Insert(..) | Write::Upsert(_), false) => {
                self.revive_row(inner, tree, leaf, slot, key, value)
            }
            (Write::Update(_) | Write::Delete, false) => Ok(Attempt::Done(Written::Missing)),
            (Write::Insert(..), true) => Ok(Attempt::Done(Written::Exists)),
            (Write::Update(_) | Write::Upsert(_), true) => {
                self.update_row(inner, tree, leaf, slot, key, value)
            }
            (Write::Delete, true) => self.mark_row(inner, tree, leaf, slot, key),
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

    /// Whether this transaction made the newest version of a row.
    fn is_own(&self, version: Option<VersionAddress>) -> bool {
        let trx = version.and_then(|address| self.core.versions.trx_of(address));
        trx.is_some_and(|trx| trx.id() == self.shared.state.id())
    }

    /// How the newest version of a row stands to this transaction. [`Error::WriteConflict`]: it was
    /// committed after the snapshot of a transaction that must not pass over it.
    pub(crate) fn newest(&self, inner: &Inner, version: Option<VersionAddress>) -> Result<Newest> {
        let Some(trx) = version.and_then(|address| self.core.versions.trx_of(address)) else {
            return Ok(Newest::Free);
        };
        if trx.id() == self.shared.state.id() {
            return Ok(Newest::Own);
        }
        if mutants::on(Mutant::RowLockUnseen) {
            return Ok(Newest::Free);
        }
        Ok(match trx.settled_status() {
            TrxStatus::Committed(seq) => match &inner.snapshot {
                Some(snapshot)
                    if self.isolation().first_committer_wins()
                        && seq > snapshot.seq()
                        && !mutants::on(Mutant::LostUpdate) =>
                {
                    return Err(Error::WriteConflict);
                }
                _ => Newest::Free,
            },
            TrxStatus::Aborted => Newest::Free,
            _ => Newest::Busy(Blocker::from(&trx)),
        })
    }

    fn change<'a>(&'a self, inner: &'a mut Inner) -> Change<'a> {
        Change {
            core: &self.core,
            shared: &self.shared,
            inner,
        }
    }

    fn insert_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        leaf: Exclusive<'_>,
        slot: usize,
        key: &[u8],
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let (core, page) = (&self.core, leaf.id());
        let live = core.liveness();
        let prefix_len = TreePage(&leaf).prefix_len();
        let need = cell_len(key.len() - prefix_len, value.bytes.len(), true) + SLOT_LEN;
        let last = inner.last_insert;
        let beside = |at: usize| last == Some((page.space, tree.id, page.page, at as u16));
        let ascending = slot > 0 && beside(slot - 1);
        let leaf = match make_room(core, leaf, need, key)? {
            Room::Yes(leaf) => leaf,
            Room::Cleaned => return Ok(Attempt::Again),
            Room::No => return Ok(Attempt::Split { need, ascending }),
        };
        let mut change = self.change(inner);
        change.ready_context();
        let coding = if change.inner.context.is_known() && change.inner.logged {
            Coding::InContext
        } else {
            Coding::InFull
        };
        // The entry of a long value's reference must be shown to purge: see `overflow`.
        let flags = if tree.id == inkstone_format::space::PENDING_FREE_TREE {
            0
        } else {
            NO_PURGE
        };
        let address =
            change.version(VersionKind::Insert, flags, page, tree.id, key, 0, &[], None)?;
        let trx = change.shared.trx_ref(change.inner, address, None);
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        let context = &mut change.inner.context;
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            let placed = target.insert(slot, value.flags, Some(address), key, value.bytes, &live);
            crate::invariant!(placed.is_ok(), "a row does not fit page {page} after all");
            let slot = slot as u16;
            put_insert(
                payload,
                context,
                trx,
                page,
                tree.id,
                slot,
                value.flags,
                key,
                value.bytes,
            );
        });
        let made = Made {
            address,
            tree: tree.id,
            rows: 1,
            undo_bytes: undo_log_bytes(0, 0),
            coding,
        };
        change.commit(mtr, made)?;
        inner.last_insert = Some((page.space, tree.id, page.page, slot as u16));
        core.storage.counters.add(Counter::RowsInserted, 1);
        Ok(Attempt::Done(Written::Inserted))
    }

    fn update_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        leaf: Exclusive<'_>,
        slot: usize,
        key: &[u8],
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let old = OldCell::of(&leaf, slot);
        let diff = Diff::between(&old.value, value.bytes);
        let purge = if old.flags & CELL_OVERFLOW != 0 {
            0
        } else {
            NO_PURGE
        };
        let kept = KeptValue::of(inner, &old, Some(&diff), purge);
        let (old_flags, flags) = (old.flags, value.flags);
        let record = |page, trx, slot| Record::RowUpdate {
            page,
            trx,
            tree: tree.id,
            slot,
            key: key.to_vec(),
            old_flags,
            flags,
            diff,
        };
        let done = self.replace_row(
            inner,
            tree,
            leaf,
            slot,
            key,
            value,
            &old,
            VersionKind::Update,
            kept,
            record,
        )?;
        if matches!(done, Attempt::Done(_)) {
            self.core.storage.counters.add(Counter::RowsUpdated, 1);
            self.drop_long_value(inner, tree, &old)?;
        }
        Ok(done)
    }

    fn revive_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        leaf: Exclusive<'_>,
        slot: usize,
        key: &[u8],
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let old = OldCell::of(&leaf, slot);
        let (old_flags, flags) = (old.flags, value.flags);
        // If this transaction has deleted the row, undoing that needs the old value again, which a
        // revival's record does not hold.
        let own = self.is_own(old.version);
        let diff = own.then(|| Diff::between(&old.value, value.bytes));
        let purge = if tree.id == inkstone_format::space::PENDING_FREE_TREE {
            0
        } else {
            NO_PURGE
        };
        let kept = KeptValue::of(inner, &old, diff.as_ref(), purge);
        let record = |page, trx, slot| match diff {
            Some(diff) => Record::RowUpdate {
                page,
                trx,
                tree: tree.id,
                slot,
                key: key.to_vec(),
                old_flags,
                flags,
                diff,
            },
            None => Record::RowRevive {
                page,
                trx,
                tree: tree.id,
                slot,
                flags,
                key: key.to_vec(),
                value: value.bytes.to_vec(),
            },
        };
        let done = self.replace_row(
            inner,
            tree,
            leaf,
            slot,
            key,
            value,
            &old,
            VersionKind::Unmark,
            kept,
            record,
        )?;
        if let Attempt::Done(_) = done {
            self.core.storage.counters.add(Counter::RowsInserted, 1);
            return Ok(Attempt::Done(Written::Inserted));
        }
        Ok(done)
    }

    fn mark_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        leaf: Exclusive<'_>,
        slot: usize,
        key: &[u8],
    ) -> Result<Attempt<'_>> {
        let old = OldCell::of(&leaf, slot);
        let kept = old.value.clone();
        let value = CellValue {
            bytes: &kept,
            flags: old.flags | CELL_DELETED,
        };
        let record = |page, trx, slot| Record::RowMark {
            page,
            trx,
            tree: tree.id,
            slot,
            key: key.to_vec(),
        };
        let none = KeptValue {
            bytes: Cow::Borrowed(&[]),
            flags: 0,
        };
        let done = self.replace_row(
            inner,
            tree,
            leaf,
            slot,
            key,
            value,
            &old,
            VersionKind::DeleteMark,
            none,
            record,
        )?;
        if matches!(done, Attempt::Done(_)) {
            self.core.storage.counters.add(Counter::RowsDeleted, 1);
            self.drop_long_value(inner, tree, &old)?;
        }
        Ok(done)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one row change, wholly described"
    )]
    fn replace_row(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        leaf: Exclusive<'_>,
        slot: usize,
        key: &[u8],
        value: CellValue<'_>,
        old: &OldCell,
        kind: VersionKind,
        kept: KeptValue<'_>,
        record: impl FnOnce(inkstone_format::PageId, inkstone_format::record::TrxRef, u16) -> Record,
    ) -> Result<Attempt<'_>> {
        let (core, page) = (&self.core, leaf.id());
        let live = core.liveness();
        let suffix = key.len() - TreePage(&leaf).prefix_len();
        let len = cell_len(suffix, value.bytes.len(), true);
        // An address that no longer matters is part of the old cell's length already.
        let own_dead = if old.version.is_some_and(|v| !core.keeps(v)) {
            8
        } else {
            0
        };
        let need = if len <= old.len {
            0
        } else {
            len - old.len + own_dead
        };
        let leaf = match make_room(core, leaf, need, key)? {
            Room::Yes(leaf) => leaf,
            Room::Cleaned => return Ok(Attempt::Again),
            Room::No => {
                return Ok(Attempt::Split {
                    need,
                    ascending: false,
                });
            }
        };
        let mut change = self.change(inner);
        let previous = old.version.filter(|&address| core.is_live(address));
        let KeptValue {
            bytes: old_value,
            flags: kept,
        } = kept;
        let address = change.version(
            kind, kept, page, tree.id, key, old.flags, &old_value, previous,
        )?;
        let trx = change.shared.trx_ref(change.inner, address, previous);
        let record = record(page, trx, slot as u16);
        let put_back = match &record {
            Record::RowMark { .. } => 0,
            Record::RowUpdate { diff, .. } if kind == VersionKind::Update => {
                diff.old.len() + diff.new.len()
            }
            _ => old.value.len(),
        };
        let made = Made {
            address,
            tree: tree.id,
            rows: 1,
            undo_bytes: undo_log_bytes(put_back, old.len.saturating_sub(len)),
            coding: Coding::Apart,
        };
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            let placed = target.replace(slot, value.flags, Some(address), value.bytes, &live);
            crate::invariant!(placed.is_ok(), "a row does not fit page {page} after all");
            record.put(payload);
        });
        change.commit(mtr, made)?;
        Ok(Attempt::Done(Written::Changed))
    }
}

/// A cell as it was before a change.
pub(crate) struct OldCell {
    pub flags: u8,
    pub version: Option<VersionAddress>,
    pub value: Vec<u8>,
    pub len: usize,
}

impl OldCell {
    fn of(leaf: &[u8], slot: usize) -> Self {
        let cell = TreePage(leaf).cell(slot);
        Self {
            flags: cell.flags & !CELL_VERSIONED,
            version: cell.version,
            value: cell.value.to_vec(),
            len: cell.len,
        }
    }
}

/// What a version keeps of its row's old value.
struct KeptValue<'o> {
    bytes: Cow<'o, [u8]>,
    flags: u8,
}

impl<'o> KeptValue<'o> {
    /// The whole value, or for a transaction whose versions are made anew of the log what the
    /// record has of it. Without a difference the record has none: then it is for this run only.
    fn of(inner: &Inner, old: &'o OldCell, diff: Option<&Diff>, flags: u8) -> Self {
        match diff.filter(|_| inner.undo_place.is_moved()) {
            Some(diff) => Self {
                bytes: Cow::Owned(spliced(diff.prefix, diff.suffix, &diff.old)),
                flags: flags | SPLICED,
            },
            None => Self {
                bytes: Cow::Borrowed(&old.value),
                flags,
            },
        }
    }
}

/// Whether a leaf has room.
pub(crate) enum Room<'p> {
    /// As it is, or by compaction.
    Yes(Exclusive<'p>),
    /// Dead rows were removed; the latch is gone.
    Cleaned,
    /// It must be split.
    No,
}

/// Looks for `need` bytes in a leaf: free, held by addresses that no longer matter, or held by
/// delete-marked rows that no transaction can see, which are then removed.
pub(crate) fn make_room<'p>(
    core: &Core,
    leaf: Exclusive<'p>,
    need: usize,
    key: &[u8],
) -> Result<Room<'p>> {
    let live = core.liveness();
    if TreePage(&leaf).has_room(need, &live) {
        return Ok(Room::Yes(leaf));
    }
    if remove_dead_rows(core, leaf, Some(key))? > 0 {
        Ok(Room::Cleaned)
    } else {
        Ok(Room::No)
    }
}

/// Removes the delete-marked rows of a leaf whose version no transaction can need, apart from the
/// row of `except`, and logged addresses that no longer matter. How many of both.
pub(crate) fn remove_dead_rows(
    core: &Core,
    leaf: Exclusive<'_>,
    except: Option<&[u8]>,
) -> Result<u64> {
    let page = TreePage(&leaf);
    let is_dead = |slot: &usize| {
        page.version(*slot)
            .is_some_and(|v| v.is_logged() && !core.is_live(v))
    };
    let dead: Vec<usize> = (0..page.count())
        .filter(|&slot| page.is_deleted(slot))
        .filter(|&slot| {
            let dead = page
                .version(slot)
                .is_none_or(|address| !core.is_live(address));
            dead || mutants::on(Mutant::MarkedRowRemovedEarly)
        })
        .filter(|&slot| except.is_none_or(|key| page.key(slot) != key))
        .collect();
    let addresses: Vec<_> = (0..page.count())
        .filter(is_dead)
        .filter(|slot| dead.binary_search(slot).is_err())
        .map(|slot| (slot as u16, None))
        .collect();
    if dead.is_empty() && addresses.is_empty() {
        return Ok(0);
    }
    let id = leaf.id();
    let freed = (dead.len() + addresses.len()) as u64;
    let mut mtr = Mtr::new(&core.storage);
    let index = mtr.push(leaf);
    if !addresses.is_empty() {
        let record = Record::SetVersions {
            page: id,
            versions: addresses,
        };
        mtr.replay(index, &record);
    }
    for &slot in dead.iter().rev() {
        mtr.replay(
            index,
            &Record::Remove {
                page: id,
                slot: slot as u16,
                count: 1,
            },
        );
    }
    mtr.commit()?;
    core.storage
        .counters
        .add(Counter::RowsPurged, dead.len() as u64);
    Ok(freed)
}

impl Transaction {
    /// Inserts a row; false if there is one of this key, which is locked as `duplicate` says.
    pub(crate) fn put_new(
        &self,
        tree: &Tree,
        key: &[u8],
        value: &[u8],
        duplicate: LockMode,
    ) -> Result<bool> {
        Ok(self.write(tree, key, Write::Insert(value, duplicate))? == Written::Inserted)
    }

    /// Changes a row; false if there is none.
    pub(crate) fn change_row(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.write(tree, key, Write::Update(value))? == Written::Changed)
    }

    /// Inserts or changes a row; true if it was inserted.
    pub(crate) fn put_any(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.write(tree, key, Write::Upsert(value))? == Written::Inserted)
    }

    /// Inserts or changes a row.
    pub(crate) fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_any(tree, key, value).map(drop)
    }

    /// Deletes a row; false if there is none.
    pub(crate) fn remove(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        Ok(self.write(tree, key, Write::Delete)? == Written::Changed)
    }
}
