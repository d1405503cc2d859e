//! Inserting many rows: those that arrive in key order and belong to one leaf side by side are
//! inserted under one latch and logged in one record.
//!
//! # Bulk inserts
//!
//! Many rows that go behind all rows of a tree, or into an empty one, have one version for all of
//! them, not one for each run: its address is logged, so rows that carry it are invisible and
//! locked until the transaction has ended, in this run and after a crash. Its undo is to remove
//! what has it: from the key on that the bulk began with, or, of a tree that was empty, all. Rows
//! of others among them stay.
//!
//! # Promises
//!
//! 1. A bulk ends at every place to which the transaction can go back, and with every return to
//!    one: what comes later is undone apart. Tested by `a_bulk_ends_at_a_savepoint`. Tested by the
//!    simulator (`bulk-outlives-place`).
//! 2. Undoing a bulk removes its rows and no others, after a crash too. Tested by
//!    `others_rows_stay_when_a_bulk_is_undone`. Tested by the simulator (`bulk-left-after-crash`).

use crate::Result;
use crate::btree::{SplitFor, Target, Tree};
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::locks::LockMode;
use crate::mtr::Mtr;
use crate::mvcc::versions::{BULK, NO_PURGE, NewVersion, RUN, VersionKind, run_of};
use crate::paranoid::paranoid;
use crate::rows::change::{Room, Written, make_room};
use crate::rows::parts::{Layout, layout};
use crate::rows::read::row_name;
use crate::rows::tables::TreeRef;
use crate::rows::write::Write;
use crate::sort::Sorted;
use crate::txn::change::{Change, Coding, Made};
use crate::txn::core::Core;
use crate::txn::promise::undo_log_bytes;
use crate::txn::state::{Bulk, Inner};
use crate::txn::transaction::Transaction;
use crate::unlogged::{is_all_of, put_rows_left_out};
use inkstone_format::record::{LoggedVersion, Record, TrxRef, put_rows_insert};
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::tree_page::{
    SLOT_LEN, TreePage, TreePageMut, cell_len, is_inline, key_len_max,
};
use inkstone_format::{PageId, VersionAddress};
use std::ops::Range;

/// A row: key and value.
type RowRef<'r> = (&'r [u8], &'r [u8]);

/// Rows in one record, at most.
const RUN_ROWS: usize = 256;
/// Bytes of rows in one record, at most.
const RUN_BYTES: usize = 128 << 10;

/// Rows of one call, or bytes of them, for which a bulk is begun: it takes space in the undo file,
/// and the versions of other changes are logged from then on.
const BULK_ROWS: usize = if cfg!(inkstone_sim) { 32 } else { 4096 };
const BULK_BYTES: usize = 256 << 10;
/// Rows for which one is begun where that is so already.
const BULK_ROWS_MOVED: usize = 32;

/// What became of the rows at the front.
enum Run {
    /// So many were inserted.
    Rows(usize),
    /// There is room now, or a bulk has begun: look again.
    Again,
    /// The first is no plain case: a long value, a lock of another transaction, an existing key.
    Single,
}

/// Rows, and bytes of them, that are taken from a caller's iterator before they are inserted: more
/// would not be in the processor's caches any more when they are.
const GATHERED_ROWS: usize = 1024;
const GATHERED_BYTES: usize = 128 << 10;

/// Bytes of rows that are taken from a sort and inserted at a time.
const SORTED_BYTES: usize = 1 << 20;

/// What [`Transaction::insert_sorted`] has inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InsertedRows {
    /// How many rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Each call is a statement: if it fails it has no effect, and the transaction goes on (after
/// [`Error::Deadlock`](crate::Error::Deadlock) it is rolled back).
impl Transaction {
    /// Inserts many rows, as one statement:
    /// [`Error::DuplicateKey`](crate::Error::DuplicateKey) undoes those inserted before. Rows in
    /// key order are inserted and logged in runs, which is several times as fast.
    pub fn insert_many<K, V>(
        &self,
        tree: &impl TreeRef,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let tree = tree.tree_ref();
        self.statement(|transaction| {
            let mut rows = rows.into_iter().fuse();
            let mut ahead = rows.size_hint().0;
            let mut total = 0;
            let mut gathered = Vec::new();
            loop {
                gathered.clear();
                let mut bytes = 0;
                while bytes < GATHERED_BYTES && gathered.len() < GATHERED_ROWS {
                    let Some((key, value)) = rows.next() else {
                        break;
                    };
                    bytes += key.as_ref().len() + value.as_ref().len();
                    gathered.push((key, value));
                }
                if gathered.is_empty() {
                    return Ok(total);
                }
                let batch: Vec<RowRef<'_>> = gathered
                    .iter()
                    .map(|(key, value)| (key.as_ref(), value.as_ref()))
                    .collect();
                ahead = ahead.saturating_sub(batch.len());
                let live = tree.live(&self.core)?;
                let (done, result) = transaction.insert_run(live, &batch, ahead);
                result?;
                paranoid!(
                    done <= batch.len(),
                    "{done} rows of {} were inserted",
                    batch.len()
                );
                if done < batch.len() {
                    return Err(tree.duplicate());
                }
                total += batch.len() as u64;
            }
        })
    }

    /// Inserts rows one after the other, those in key order in runs. How many were inserted, and
    /// what came of the next one: [`Error::DuplicateKey`](crate::Error::DuplicateKey) or another
    /// failure. The rows before it stay; go back to a [`mark`](Transaction::mark) to undo them.
    pub fn insert_until_duplicate(
        &self,
        tree: &impl TreeRef,
        rows: &[(&[u8], &[u8])],
    ) -> (usize, Result<()>) {
        self.insert_until_duplicate_with_parts(tree, rows, &[])
    }

    /// As [`insert_until_duplicate`](Self::insert_until_duplicate). Of row number `n` the ranges
    /// `parts[n]`, if it has that many, may leave it, as with
    /// [`insert_with_parts`](Self::insert_with_parts).
    pub fn insert_until_duplicate_with_parts(
        &self,
        tree: &impl TreeRef,
        rows: &[(&[u8], &[u8])],
        parts: &[Vec<Range<usize>>],
    ) -> (usize, Result<()>) {
        let (tree, mut done) = (tree.tree_ref(), 0);
        let live = tree.live(&self.core);
        let result = live.and_then(|live| self.insert_run_from(live, (rows, parts, 0), &mut done));
        paranoid!(
            done <= rows.len(),
            "{done} rows of {} were inserted",
            rows.len()
        );
        let duplicate = result.is_ok() && done < rows.len();
        (
            done,
            if duplicate {
                Err(tree.duplicate())
            } else {
                result
            },
        )
    }

    /// Inserts the next rows of a sort, up to `max` (1 or more) and about a mebibyte of them: none
    /// only behind the last one. Those before a row that fails
    /// ([`Error::DuplicateKey`](crate::Error::DuplicateKey): its key exists; [`Sorted::refused`]
    /// is that row) stay; go back to a [`mark`](Transaction::mark) to undo them. Rows behind it
    /// that this call has taken from the sort the next call does not insert.
    pub fn insert_sorted(
        &self,
        tree: &impl TreeRef,
        sorted: &mut Sorted,
        max: usize,
    ) -> Result<InsertedRows> {
        let rows = sorted.take(max, SORTED_BYTES)?;
        let (done, result) = self.insert_until_duplicate(tree, &rows);
        let length = |(key, value): &RowRef<'_>| (key.len() + value.len()) as u64;
        let inserted = InsertedRows {
            rows: done as u64,
            bytes: rows[..done].iter().map(length).sum(),
        };
        if result.is_err() {
            sorted.refuse(done);
        }
        result.map(|()| inserted)
    }

    /// Inserts rows; stops at the first whose key exists, or that fails. How many were inserted.
    /// Rows in key order are inserted in runs.
    /// `ahead`: rows that the caller has beyond these, at least.
    fn insert_run(&self, tree: &Tree, rows: &[RowRef<'_>], ahead: usize) -> (usize, Result<()>) {
        let mut done = 0;
        let result = self.insert_run_from(tree, (rows, &[], ahead), &mut done);
        (done, result)
    }

    fn insert_run_from(
        &self,
        tree: &Tree,
        (rows, parts, ahead): (&[RowRef<'_>], &[Vec<Range<usize>>], usize),
        done: &mut usize,
    ) -> Result<()> {
        while *done < rows.len() {
            tree.space.check_room()?;
            let mut inner = self.begin_write()?;
            let result = self.insert_leaf_run(&mut inner, tree, &rows[*done..], ahead);
            match self.after_error(inner, result)? {
                Run::Rows(count) => {
                    paranoid!(
                        count > 0 && *done + count <= rows.len(),
                        "a run of {count} rows behind {done} of {}",
                        rows.len()
                    );
                    *done += count;
                }
                Run::Again => {}
                Run::Single => {
                    let (key, value) = rows[*done];
                    let write = Write::Insert(value, LockMode::Shared);
                    let layout = match parts.get(*done) {
                        Some(parts) => layout(value, parts)?,
                        None => Layout::WHOLE,
                    };
                    if self.write_as(tree, key, write, layout)? == Written::Exists {
                        return Ok(());
                    }
                    *done += 1;
                }
            }
        }
        Ok(())
    }

    /// Inserts the rows at the front that go side by side into one leaf.
    fn insert_leaf_run(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        rows: &[RowRef<'_>],
        ahead: usize,
    ) -> Result<Run> {
        let (page_size, (first, value)) = (tree.storage().page_size, rows[0]);
        if first.len() > key_len_max(page_size)
            || !is_inline(page_size, first.len(), value.len())
            || self.shared.state.is_doomed()
        {
            return Ok(Run::Single);
        }
        self.pin_snapshot(inner);
        let hint = inner
            .last_insert
            .filter(|h| h.0 == tree.space.id && h.1 == tree.id);
        let leaf = match hint.and_then(|(_, _, page, _)| tree.leaf_at_hint(page, first)) {
            Some(leaf) => leaf,
            None => tree.leaf_exclusive(Target::Key(first))?,
        };
        let Err(slot) = TreePage(&leaf).search(first) else {
            return Ok(Run::Single);
        };
        let bulk = inner.bulk_of(tree);
        let is_due = bulk.is_some_and(|bulk| bulk.address.is_none());
        let mut rows = rows;
        if is_due && inner.logged {
            drop(leaf);
            self.begin_bulk(inner, tree)?;
            return Ok(Run::Again);
        }
        let at_end = TreePage(&leaf).high().is_none() && slot == TreePage(&leaf).count();
        if bulk.is_none() && at_end && inner.takes_bulk(rows, ahead) {
            let is_empty = leaf.id() == tree.root() && TreePage(&leaf).count() == 0;
            inner.bulks.push(Bulk {
                space: tree.space.id,
                tree: tree.id,
                from: if is_empty { Vec::new() } else { first.to_vec() },
                address: None,
                is_unlogged: false,
            });
            if inner.logged {
                return Ok(Run::Again);
            }
            // Its first record is that of a single row: what begins a bulk begins no transaction.
            rows = &rows[..1];
        }
        paranoid!(
            inner
                .bulk_of(tree)
                .is_none_or(|bulk| bulk.address.is_some() || !inner.logged),
            "rows of a bulk without a version are inserted by a transaction that has one"
        );
        let count = self.run_length(tree, TreePage(&leaf), slot, rows);
        let prefix = TreePage(&leaf).prefix_len();
        let bytes: usize = rows[..count.max(1)]
            .iter()
            .map(|(key, value)| cell_len(key.len() - prefix, value.len(), true) + SLOT_LEN)
            .sum();
        let name = row_name(tree, first);
        if count == 0 && self.core.locks.blocks_insert(&self.shared.state, name) {
            return Ok(Run::Single);
        }
        let beside = (
            tree.space.id,
            tree.id,
            leaf.id().page,
            (slot as u16).wrapping_sub(1),
        );
        let ascending = slot > 0 && inner.last_insert == Some(beside);
        match make_room(&self.core, leaf, bytes, first)? {
            Room::Yes(leaf) => {
                self.place_run(inner, tree, leaf, slot, &rows[..count.max(1)])?;
                Ok(Run::Rows(count.max(1)))
            }
            Room::Cleaned => Ok(Run::Again),
            Room::No => {
                let unlogged = inner.bulk_of(tree).and_then(Bulk::unlogged);
                let wanted = SplitFor {
                    key: first,
                    need: bytes,
                    ascending,
                    unlogged,
                };
                let split = tree.split_leaf(wanted, &self.core.liveness());
                if unlogged.is_some() {
                    inner.left_out.note(&self.core);
                }
                split.map(|()| Run::Again)
            }
        }
    }

    /// Makes the version of the bulk's rows. No page is latched.
    fn begin_bulk(&self, inner: &mut Inner, tree: &Tree) -> Result<()> {
        paranoid!(
            inner
                .bulk_of(tree)
                .is_some_and(|bulk| bulk.address.is_none()),
            "a bulk of tree {} is begun that is not there, or has a version",
            tree.id
        );
        let core = &self.core;
        core.move_undo_early(&self.shared, inner)?;
        core.versions.reserve_undo(&mut inner.touched, 1)?;
        let from = inner.bulk_of(tree).map(|bulk| bulk.from.clone());
        let from = from.unwrap_or_default();
        let mut change = Change {
            core,
            shared: &self.shared,
            inner,
        };
        let address = change.version(NewVersion {
            kind: VersionKind::Insert,
            flags: NO_PURGE | BULK,
            space: tree.space.id,
            tree: tree.id,
            key: &from,
            old_flags: 0,
            old_value: &[],
            previous: VersionAddress(0),
            undo_previous: change.inner.undo_last,
            steps: 0,
        })?;
        paranoid!(
            address.is_logged() && change.inner.logged,
            "a bulk insert with version {address} begins a transaction, or is not logged"
        );
        let mut mtr = Mtr::new(&core.storage);
        mtr.note(&Record::BulkInsert {
            trx_slot: self.shared.state.slot(),
            address,
            space: tree.space.id,
            tree: tree.id,
            from,
        });
        mtr.commit()?;
        inner.undo_last = address;
        if let Some(bulk) = inner.bulk_of_mut(tree) {
            bulk.address = Some(address);
        }
        core.storage.counters.add(Counter::BulkInserts, 1);
        Ok(())
    }

    /// How many rows from the front fit side by side at `slot`.
    fn run_length(
        &self,
        tree: &Tree,
        page: TreePage<'_>,
        slot: usize,
        rows: &[RowRef<'_>],
    ) -> usize {
        let page_size = tree.storage().page_size;
        let next = (slot < page.count()).then(|| page.key(slot));
        paranoid!(
            slot <= page.count() && page.is_leaf(),
            "rows belong at slot {slot} of {}, in a page of level {}",
            page.count(),
            page.level()
        );
        let prefix = page.prefix_len();
        let (mut room, mut bytes, mut last): (usize, usize, Option<&[u8]>) = (page.free(), 0, None);
        let mut count = 0;
        for (key, value) in rows.iter().take(RUN_ROWS) {
            let plain =
                key.len() <= key_len_max(page_size) && is_inline(page_size, key.len(), value.len());
            let placed = page.covers(key)
                && last.is_none_or(|last| last < *key)
                && next.as_deref().is_none_or(|next| *key < next);
            if !plain
                || !placed
                || self
                    .core
                    .locks
                    .blocks_insert(&self.shared.state, row_name(tree, key))
            {
                break;
            }
            let need = cell_len(key.len() - prefix, value.len(), true) + SLOT_LEN;
            bytes += key.len() + value.len();
            if need > room || bytes > RUN_BYTES {
                break;
            }
            room -= need;
            last = Some(key);
            count += 1;
        }
        count
    }

    fn place_run(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        leaf: Exclusive<'_>,
        slot: usize,
        rows: &[RowRef<'_>],
    ) -> Result<()> {
        let (core, page) = (&self.core, leaf.id());
        for (key, _) in rows {
            core.note_change((page.space, tree.id), key, &self.shared.state);
        }
        let live = core.liveness();
        let before = TreePage(&leaf).count();
        paranoid!(
            rows.iter().all(|(key, _)| TreePage(&leaf).covers(key)),
            "{} rows go into page {page}, which does not cover them",
            rows.len()
        );
        let mut change = Change {
            core,
            shared: &self.shared,
            inner,
        };
        let bulk = change.inner.bulk_of(tree);
        let bulk = bulk.filter(|bulk| bulk.from[..] <= *rows[0].0);
        let bulk = bulk.and_then(|bulk| bulk.address);
        let (address, trx) = match bulk {
            Some(address) => {
                let trx = TrxRef {
                    slot: self.shared.state.slot(),
                    first: None,
                    version: Some(LoggedVersion::of_bulk(address)),
                };
                (address, trx)
            }
            None => {
                let address = change.version_of_run(page, tree, rows)?;
                let trx = change.shared.trx_ref(change.inner, address, None);
                (address, trx)
            }
        };
        paranoid!(
            rows.is_sorted_by(|a, b| a.0 < b.0),
            "rows of one leaf are not in the order of their keys"
        );
        if tree.id == CLUSTERED_TREE {
            let counted = usize::from(bulk.is_none());
            (counted..rows.len()).for_each(|_| self.shared.state.add_cost());
        }
        let is_left_out = bulk.is_some() && change.inner.leaves_out(core, tree, &leaf, rows);
        paranoid!(
            !is_left_out || core.storage.unlogged.has(address),
            "rows of {address} are left out of the log, and it is not known for that"
        );
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        let context = &mut change.inner.context;
        let place = |bytes: &mut [u8]| {
            let mut target = TreePageMut(bytes);
            for (n, (key, value)) in rows.iter().enumerate() {
                let placed = target.insert(slot + n, 0, Some(address), key, value, &live);
                crate::invariant!(placed.is_ok(), "rows do not fit page {page} after all");
            }
        };
        if is_left_out {
            mtr.change_unlogged(index, |bytes, payload| {
                place(bytes);
                put_rows_left_out(payload, page);
            });
        } else {
            mtr.change(index, |bytes, payload| {
                place(bytes);
                let (slot, count) = (slot as u16, rows.len());
                let rows = rows.iter().map(|&(key, value)| (0, key, value));
                put_rows_insert(payload, context, trx, page, tree.id, slot, count, rows);
            });
        }
        paranoid!(
            TreePage(mtr.page(index)).count() == before + rows.len(),
            "page {page} of {before} rows has {} after an insert of {}",
            TreePage(mtr.page(index)).count(),
            rows.len()
        );
        let made = Made {
            address,
            tree: tree.id,
            rows: rows.len() as u64,
            undo_bytes: rows.len() as u64 * undo_log_bytes(0, 0),
            coding: if is_left_out {
                Coding::Apart
            } else {
                Coding::InFull
            },
            is_of_bulk: bulk.is_some(),
        };
        change.commit(mtr, made)?;
        if is_left_out {
            inner.left_out.note(core);
            let counters = &core.storage.counters;
            counters.add(Counter::RowsLeftOut, rows.len() as u64);
        }
        inner.last_insert = Some((
            page.space,
            tree.id,
            page.page,
            (slot + rows.len() - 1) as u16,
        ));
        core.storage
            .counters
            .add(Counter::RowsInserted, rows.len() as u64);
        Ok(())
    }
}

impl Bulk {
    /// Its version, if the log may lack its rows.
    fn unlogged(&self) -> Option<VersionAddress> {
        self.address.filter(|_| self.is_unlogged)
    }
}

impl Inner {
    /// Whether rows, and so many more, are worth a bulk.
    fn takes_bulk(&self, rows: &[RowRef<'_>], ahead: usize) -> bool {
        let bytes = |row: &RowRef<'_>| row.0.len() + row.1.len();
        if self.undo_place.is_moved() {
            rows.len() >= BULK_ROWS_MOVED
        } else {
            rows.len() + ahead >= BULK_ROWS || rows.iter().map(bytes).sum::<usize>() >= BULK_BYTES
        }
    }

    /// The bulk insert into a tree that is going on.
    fn bulk_of(&self, tree: &Tree) -> Option<&Bulk> {
        let mut bulks = self.bulks.iter();
        bulks.find(|bulk| bulk.space == tree.space.id && bulk.tree == tree.id)
    }

    /// Whether the log will not have these rows of a bulk insert, which go into this leaf.
    fn leaves_out(&mut self, core: &Core, tree: &Tree, leaf: &[u8], rows: &[RowRef<'_>]) -> bool {
        let bytes = rows.iter().map(|(key, value)| key.len() + value.len());
        let is_large = self.left_out.count(core, bytes.sum::<usize>() as u64);
        let Some(bulk) = self.bulk_of_mut(tree) else {
            return false;
        };
        let (Some(address), true) = (bulk.address, is_large || bulk.is_unlogged) else {
            return false;
        };
        paranoid!(
            bulk.from[..] <= *rows[0].0,
            "rows before the first of a bulk insert are left out of the log with it"
        );
        let is_unlogged = bulk.is_unlogged || self.left_out.begin(core, address);
        if let Some(bulk) = self.bulk_of_mut(tree) {
            bulk.is_unlogged = is_unlogged;
        }
        is_unlogged && is_all_of(TreePage(leaf), address)
    }

    fn bulk_of_mut(&mut self, tree: &Tree) -> Option<&mut Bulk> {
        let mut bulks = self.bulks.iter_mut();
        bulks.find(|bulk| bulk.space == tree.space.id && bulk.tree == tree.id)
    }
}

impl Change<'_> {
    /// The version of rows that are inserted side by side.
    fn version_of_run(
        &mut self,
        page: PageId,
        tree: &Tree,
        rows: &[RowRef<'_>],
    ) -> Result<VersionAddress> {
        paranoid!(
            page.space == tree.space.id && !rows.is_empty(),
            "{} rows of a tree in tablespace {} go into page {page}",
            rows.len(),
            tree.space.id
        );
        let (flags, others) = match rows {
            [_] => (NO_PURGE, Vec::new()),
            _ => (NO_PURGE | RUN, run_of(rows.iter().map(|&(key, _)| key))),
        };
        self.version(NewVersion {
            kind: VersionKind::Insert,
            flags,
            space: page.space,
            tree: tree.id,
            key: rows[0].0,
            old_flags: 0,
            old_value: &others,
            previous: VersionAddress(0),
            undo_previous: self.inner.undo_last,
            steps: 0,
        })
    }
}
