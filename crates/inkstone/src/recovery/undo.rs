//! Transactions that recovery found: rolling losers back, taking prepared ones up again.
//!
//! To undo a change may take pages: others may have used the room that it left. Where the disk has
//! none to give, what is left of the loser is taken up as a prepared transaction is, with its
//! versions as locks, and purge rolls it back when it can. That itself takes no page: when the
//! process ended the versions' addresses were in the rows, so there is room for them.

use crate::btree::{SplitFor, Target};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::mvcc::versions::{NO_PURGE, NewVersion, VersionKind, VersionView};
use crate::paranoid::paranoid;
use crate::recovery::OpenTransaction;
use crate::sync::HashMap;
use crate::txn::core::Core;
use crate::txn::promise::undo_log_bytes;
use crate::txn::rollback::{undo_bulk, undo_logged, undo_recovered_version};
use crate::txn::state::{Inner, Phase, Shared};
use crate::txn::undo_place::UndoPlace;
use crate::{Error, Result};
use inkstone_format::record::{Record, Undo, UndoEntry};
use inkstone_format::space::{CLUSTERED_TREE, PENDING_FREE_TREE};
use inkstone_format::tree_page::{CELL_DELETED, CELL_VERSIONED, TreePage, TreePageMut, cell_len};
use inkstone_format::version::version_bytes;
use inkstone_format::{Lsn, SpaceId, TreeId, TrxId, VersionAddress};
use std::sync::Arc;

/// A row: tablespace, tree, key.
type RowName<'k> = (SpaceId, TreeId, &'k [u8]);

/// One change of a transaction that is taken up again, with the row as it was before.
struct Before {
    kind: VersionKind,
    flags: u8,
    value: Vec<u8>,
}

impl Core {
    /// The state of a transaction that the log showed, under its old slot.
    pub(crate) fn recovered_state(
        &self,
        id: TrxId,
        slot: u32,
        first: Lsn,
    ) -> Result<Arc<TrxState>> {
        let state = self.trxs.begin_recovered(id, slot).ok_or_else(|| {
            self.storage.poison.set(format!(
                "two unfinished transactions have slot {slot} in the log"
            ))
        })?;
        state.note_first_lsn(first);
        Ok(state)
    }

    /// Undoes what an unfinished transaction did. How many of its changes are left to purge, for
    /// want of space.
    pub(crate) fn roll_back_recovered(
        self: &Arc<Self>,
        state: &Arc<TrxState>,
        open: &OpenTransaction,
    ) -> Result<usize> {
        let mut left = open.undo.len();
        match self.undo_recovered(open, &mut left) {
            // What cannot be read now, or is damaged, is the opener's to mend.
            Err(Error::DiskFull { .. }) if self.storage.poison.check().is_ok() => {
                self.leave_recovered(state, &open.undo[..left])?;
                return Ok(left);
            }
            undone => undone?,
        }
        paranoid!(
            left == 0,
            "{left} changes of transaction {} are left behind its rollback",
            open.id
        );
        let mut mtr = Mtr::new(&self.storage);
        mtr.note(&Record::RollbackEnd {
            trx_slot: open.slot,
        });
        mtr.commit()?;
        self.trxs.finish_abort(state);
        Ok(0)
    }

    /// Takes a loser up with its versions, which hide its changes and lock its rows, to be rolled
    /// back later, if at all.
    pub(crate) fn leave_recovered(
        self: &Arc<Self>,
        state: &Arc<TrxState>,
        changes: &[UndoEntry],
    ) -> Result<()> {
        let shared = self.take_up(state, changes)?;
        shared.inner.lock().phase = Phase::RollingBack;
        state.set_owner(0);
        self.add_writer(&shared);
        self.unfinished.lock().push(shared);
        Ok(())
    }

    /// `left`: the changes that are not undone yet.
    fn undo_recovered(self: &Arc<Self>, open: &OpenTransaction, left: &mut usize) -> Result<()> {
        for entry in open.undo.iter().rev() {
            // A table that was dropped since needs no undo.
            if let Some(tree) = self.tree(entry.space, entry.tree)? {
                undo_logged(self, open.slot, &tree, &entry.key, &entry.undo)?;
            }
            *left -= 1;
        }
        Ok(())
    }

    /// Takes over the transactions whose undo has moved: their rows carry the addresses of their
    /// versions, so they are locked and invisible without a look at them. Losers are rolled back
    /// behind the opening.
    pub(crate) fn adopt_moved(
        self: &Arc<Self>,
        states: &HashMap<TrxId, Arc<TrxState>>,
        open: &[&OpenTransaction],
    ) -> Result<()> {
        let lists: Vec<_> = open.iter().map(|open| open.list()).collect();
        let lossy = self.options.rows_may_be_lost;
        let saved = self.versions.adopt_saved(&lists, lossy)?;
        paranoid!(
            saved.len() == open.len(),
            "{} transactions have moved undo, {} lists were read",
            open.len(),
            saved.len()
        );
        for (open, saved) in open.iter().zip(saved) {
            paranoid!(
                states.contains_key(&open.id),
                "transaction {} has moved undo and no state",
                open.id
            );
            let (state, Some(moved)) = (&states[&open.id], &open.moved) else {
                continue;
            };
            paranoid!(
                open.undo.is_empty(),
                "transaction {} has undo in the log and apart from it",
                open.id
            );
            let shared = Shared::new(state.clone());
            let mut inner = shared.inner.lock();
            let rebuilt = moved.rebuilt.clone();
            inner.touched = self.versions.adopt(state, &saved, rebuilt)?;
            inner.undo_place = UndoPlace::recovered();
            inner.undo_count = moved.changes;
            inner.logged = true;
            inner.orphans = true;
            inner.promise.undo_moved(self);
            state.add_weight(moved.changes);
            state.set_owner(0);
            self.add_writer(&shared);
            match &open.xid {
                Some(xid) => {
                    state.set_prepared();
                    inner.phase = Phase::Prepared;
                    inner.xid = Some(xid.clone());
                    drop(inner);
                    self.enter_prepared(open, shared)?;
                }
                None => {
                    inner.phase = Phase::RollingBack;
                    self.recovered.lock().push(shared.clone());
                }
            }
        }
        Ok(())
    }

    /// Undoes what an earlier run has left of a transaction whose undo had moved: version by
    /// version, the newest first, in the memory of one segment.
    pub(crate) fn undo_moved(self: &Arc<Self>, shared: &Shared, inner: &mut Inner) -> Result<()> {
        paranoid!(
            inner.undo_place.is_recovered && inner.undo_place.is_moved(),
            "{:?} is of this run",
            shared.state.id()
        );
        inner.orphans = true;
        // DDL of other tables need not wait for this.
        let read = shared.recovered_spaces(self, inner);
        if !self.options.rows_may_be_lost {
            read?;
        }
        // Of the segment: its bulks so far, and the versions from which on all are undone.
        let (mut bulks, mut undone_from) = (Vec::new(), VersionAddress(u64::MAX));
        loop {
            self.before_undo(Some((shared, inner)))?;
            let _whole_trees = self.undoing.lock();
            let (mut rows, undone) = (0, inner.undo_place.undone);
            let mut has_room = true;
            let mut undo = |address, view: &VersionView<'_>| {
                self.check_stopping()?;
                if !has_room || address >= undone_from {
                    return Ok(());
                }
                if view.is_bulk() {
                    bulks.push(view.bulk_rows(address));
                } else if let Some(tree) = self.tree(view.space, view.tree)? {
                    has_room = undo_recovered_version(self, &tree, address, view, &mut rows)?;
                }
                if has_room {
                    undone_from = address;
                }
                Ok(())
            };
            let lossy = self.options.rows_may_be_lost;
            let versions = &self.versions;
            let more = versions.last_logged(&inner.touched, undone, lossy, &mut undo)?;
            if !has_room {
                inner.undo_count = inner.undo_count.saturating_sub(rows);
                shared.state.take_back_weight(rows);
                continue;
            }
            // Later changes of their rows are undone by now. Of the earlier changes none is of
            // such a row: a bulk insert has rows only of keys that were not there, a bulk delete
            // such that the transaction had not changed.
            for bulk in bulks.drain(..) {
                let mutant = match bulk.deleted_to {
                    Some(_) => Mutant::BulkDeleteLeftAfterCrash,
                    None => Mutant::BulkLeftAfterCrash,
                };
                if let Some(tree) = self.tree(bulk.space, bulk.tree)?
                    && !mutants::on(mutant)
                {
                    rows += undo_bulk(self, &tree, &bulk, &mut || {
                        self.check_stopping()?;
                        self.before_undo(Some((shared, inner)))
                    })?;
                }
            }
            inner.undo_count = inner.undo_count.saturating_sub(rows);
            shared.state.take_back_weight(rows);
            if !more {
                return Ok(());
            }
            inner.undo_place.undone += 1;
            undone_from = VersionAddress(u64::MAX);
            // Threads that wait for its rows look at them again.
            self.locks.changes_taken_back(&shared.state);
        }
    }

    /// Whether the row of a change is lost, where it may be.
    fn is_lost(&self, entry: &UndoEntry) -> Result<bool> {
        if !self.options.rows_may_be_lost {
            return Ok(false);
        }
        let Some(tree) = self.tree(entry.space, entry.tree)? else {
            return Ok(false);
        };
        let leaf = tree.leaf_shared(Target::Key(&entry.key))?;
        Ok(TreePage(&leaf).search(&entry.key).is_err())
    }

    /// Takes a prepared transaction up again.
    pub(crate) fn adopt_prepared(
        self: &Arc<Self>,
        state: &Arc<TrxState>,
        open: &OpenTransaction,
    ) -> Result<()> {
        paranoid!(
            open.xid.is_some(),
            "transaction {} is taken up as prepared, and has no XID",
            open.id
        );
        let shared = self.take_up(state, &open.undo)?;
        state.set_prepared();
        let mut inner = shared.inner.lock();
        inner.phase = Phase::Prepared;
        inner.xid.clone_from(&open.xid);
        drop(inner);
        self.add_writer(&shared);
        self.enter_prepared(open, shared)
    }

    fn enter_prepared(&self, open: &OpenTransaction, shared: Arc<Shared>) -> Result<()> {
        paranoid!(
            open.xid.is_some() && shared.state.id() == open.id,
            "transaction {} is entered as prepared, and has no XID",
            open.id
        );
        let xid = open.xid.clone().unwrap_or_default();
        match self.prepared.lock().insert(xid, shared) {
            None => Ok(()),
            Some(_) => Err(self.storage.poison.set(format!(
                "prepared transaction {} has another one's XID in the log",
                open.id
            ))),
        }
    }

    /// Gives a transaction its versions (which are its locks) again.
    fn take_up(
        self: &Arc<Self>,
        state: &Arc<TrxState>,
        changes: &[UndoEntry],
    ) -> Result<Arc<Shared>> {
        let shared = Shared::new(state.clone());
        let mut inner = shared.inner.lock();
        // Changes in tables that were dropped since are void, as are those of rows that are lost.
        let mut undo = Vec::with_capacity(changes.len());
        for entry in changes {
            if !self.is_lost(entry)? && self.space(entry.space)?.is_some() {
                undo.push(entry.clone());
            }
        }
        inner.undo_place.passed_over = undo.len() < changes.len();
        let befores = self.befores(&undo)?;
        let mut newest: HashMap<RowName<'_>, VersionAddress> = HashMap::default();
        for (entry, before) in undo.iter().zip(&befores) {
            let row = (entry.space, entry.tree, entry.key.as_slice());
            if entry.tree == PENDING_FREE_TREE && !inner.long_values.contains(&entry.space) {
                inner.long_values.push(entry.space);
            }
            let previous = newest.get(&row).copied().unwrap_or_default();
            let undo_previous = inner.undo_last;
            let version = NewVersion {
                kind: before.kind,
                // As for any insert, except that of a long value that is given up.
                flags: if before.kind == VersionKind::Insert && entry.tree != PENDING_FREE_TREE {
                    NO_PURGE
                } else {
                    0
                },
                space: entry.space,
                tree: entry.tree,
                key: &entry.key,
                old_flags: before.flags,
                old_value: &before.value,
                previous,
                undo_previous,
                steps: 0,
            };
            let bytes = version_bytes(entry.key.len(), before.value.len());
            inner.undo_place.add(bytes as u64, &shared);
            let address = self.versions.append(state, &mut inner.touched, version)?;
            newest.insert(row, address);
            inner.undo_last = address;
            inner.undo_count += 1;
        }
        for ((space, tree, key), address) in newest {
            self.set_version(space, tree, key, address)?;
        }
        state.add_weight(undo.len() as u64);
        let rows = undo.iter().filter(|entry| entry.tree == CLUSTERED_TREE);
        state.add_rows(rows.count() as u64);
        let put_back = |before: &Before| undo_log_bytes(2 * before.value.len(), 0);
        inner
            .promise
            .cover_recovered(self, befores.iter().map(put_back).sum());
        inner.logged = true;
        drop(inner);
        Ok(shared)
    }

    /// For each change the row as it was before: found from the present rows, backwards.
    fn befores(&self, undo: &[UndoEntry]) -> Result<Vec<Before>> {
        let mut rows: HashMap<RowName<'_>, (u8, Vec<u8>)> = HashMap::default();
        let mut befores = Vec::with_capacity(undo.len());
        for entry in undo.iter().rev() {
            let row = (entry.space, entry.tree, entry.key.as_slice());
            if let std::collections::hash_map::Entry::Vacant(e) = rows.entry(row) {
                e.insert(self.present_row(entry)?);
            }
            let Some((flags, value)) = rows.get_mut(&row) else {
                continue;
            };
            let kind = match &entry.undo {
                Undo::Insert => VersionKind::Insert,
                Undo::Update { flags: old, diff } => {
                    *value = diff
                        .apply(value)
                        .map_err(|c| self.unfit(entry, &c.detail))?;
                    *flags = *old;
                    VersionKind::Update
                }
                Undo::Restore {
                    flags: old,
                    value: old_value,
                } => {
                    value.clone_from(old_value);
                    *flags = *old;
                    VersionKind::Update
                }
                Undo::Mark => {
                    *flags &= !CELL_DELETED;
                    VersionKind::DeleteMark
                }
                Undo::Revive => {
                    *flags |= CELL_DELETED;
                    VersionKind::Unmark
                }
            };
            let value = if kind == VersionKind::DeleteMark {
                Vec::new()
            } else {
                value.clone()
            };
            befores.push(Before {
                kind,
                flags: *flags,
                value,
            });
        }
        paranoid!(
            befores.len() == undo.len(),
            "{} versions of {} changes",
            befores.len(),
            undo.len()
        );
        befores.reverse();
        Ok(befores)
    }

    fn present_row(&self, entry: &UndoEntry) -> Result<(u8, Vec<u8>)> {
        let Some(tree) = self.tree(entry.space, entry.tree)? else {
            return Ok((0, Vec::new()));
        };
        let leaf = tree.leaf_shared(Target::Key(&entry.key))?;
        let page = TreePage(&leaf);
        let slot = page
            .search(&entry.key)
            .map_err(|_| self.unfit(entry, "the row is missing"))?;
        let cell = page.cell(slot);
        Ok((cell.flags & !CELL_VERSIONED, cell.value.to_vec()))
    }

    fn unfit(&self, entry: &UndoEntry, why: &str) -> Error {
        self.storage.poison.set(format!(
            "an unfinished transaction's change in tablespace {} does not fit its row: {why}",
            entry.space
        ))
    }

    /// Writes a version address into a row. No address outlives a restart, so what is logged is a
    /// change of nothing: it makes the page dirty, for a clean one would be evicted without the
    /// address, and the row be free.
    fn set_version(
        &self,
        space: SpaceId,
        tree: TreeId,
        key: &[u8],
        address: VersionAddress,
    ) -> Result<()> {
        let Some(tree) = self.tree(space, tree)? else {
            return Ok(());
        };
        let live = |address| self.keeps(address);
        loop {
            self.storage.log.prepare()?;
            self.storage.log.wait_for_space()?;
            let leaf = tree.leaf_exclusive(Target::Key(key))?;
            let page = TreePage(&leaf);
            let Ok(slot) = page.search(key) else {
                return Ok(());
            };
            let cell = page.cell(slot);
            let (flags, value) = (cell.flags & !CELL_VERSIONED, cell.value.to_vec());
            let len = cell_len(cell.suffix.len(), value.len(), true);
            // An old address, dead by now, is part of the cell's length already.
            let need = if len <= cell.len {
                0
            } else {
                len - cell.len + 8
            };
            if page.has_room(need, &live) {
                let touch = Record::Remove {
                    page: leaf.id(),
                    slot: 0,
                    count: 0,
                };
                let mut mtr = Mtr::new(&self.storage);
                let index = mtr.push(leaf);
                mtr.change(index, |bytes, payload| {
                    let mut target = TreePageMut(bytes);
                    let placed = target.replace(slot, flags, Some(address), &value, &live);
                    crate::invariant!(placed.is_ok(), "a version address does not fit after all");
                    touch.put(payload);
                });
                return mtr.commit().map(drop);
            }
            drop(leaf);
            tree.split_leaf(SplitFor::row(key, need), &live)?;
        }
    }
}
