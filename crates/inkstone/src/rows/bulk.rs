//! Inserting many rows: those that arrive in key order and belong to one leaf side by side are
//! inserted under one latch and logged in one record.

use crate::Result;
use crate::btree::{Target, Tree};
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::locks::LockMode;
use crate::mtr::Mtr;
use crate::mvcc::versions::{NO_PURGE, NewVersion, RUN, VersionKind, run_of};
use crate::paranoid::paranoid;
use crate::rows::change::{Room, Written, make_room};
use crate::rows::read::row_name;
use crate::rows::tables::TreeRef;
use crate::rows::write::Write;
use crate::txn::promise::undo_log_bytes;
use crate::txn::transaction::{Change, Coding, Inner, Made, Transaction};
use inkstone_format::VersionAddress;
use inkstone_format::record::put_rows_insert;
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::tree_page::{
    SLOT_LEN, TreePage, TreePageMut, cell_len, is_inline, key_len_max,
};

/// A row: key and value.
type RowRef<'r> = (&'r [u8], &'r [u8]);

/// Rows in one record, at most.
const RUN_ROWS: usize = 256;
/// Bytes of rows in one record, at most.
const RUN_BYTES: usize = 128 << 10;

/// Rows, and bytes of them, that are taken from a caller's iterator before they are inserted: more
/// would not be in the processor's caches any more when they are.
const GATHERED_ROWS: usize = 1024;
const GATHERED_BYTES: usize = 128 << 10;

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
                let (done, result) = transaction.insert_run(tree.live(&self.core)?, &batch);
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
        let tree = tree.tree_ref();
        let (done, result) = match tree.live(&self.core) {
            Ok(live) => self.insert_run(live, rows),
            Err(error) => (0, Err(error)),
        };
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

    /// Inserts rows; stops at the first whose key exists, or that fails. How many were inserted.
    /// Rows in key order are inserted in runs.
    fn insert_run(&self, tree: &Tree, rows: &[RowRef<'_>]) -> (usize, Result<()>) {
        let mut done = 0;
        let result = self.insert_run_from(tree, rows, &mut done);
        (done, result)
    }

    fn insert_run_from(&self, tree: &Tree, rows: &[RowRef<'_>], done: &mut usize) -> Result<()> {
        while *done < rows.len() {
            let mut inner = self.begin_write()?;
            let result = self.insert_leaf_run(&mut inner, tree, &rows[*done..]);
            let count = self.after_error(inner, result)?;
            *done += count;
            if count == 0 {
                // Not a plain case: a long value, a full leaf, a lock of another transaction, an
                // existing key.
                let (key, value) = rows[*done];
                let write = Write::Insert(value, LockMode::Shared);
                if self.write(tree, key, write)? == Written::Exists {
                    return Ok(());
                }
                *done += 1;
            }
        }
        Ok(())
    }

    /// Inserts the rows at the front that go side by side into one leaf. 0: the first is not plain.
    fn insert_leaf_run(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        rows: &[RowRef<'_>],
    ) -> Result<usize> {
        let (page_size, first) = (tree.storage().page_size, rows[0].0);
        if first.len() > key_len_max(page_size) || self.shared.state.is_doomed() {
            return Ok(0);
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
            return Ok(0);
        };
        let count = self.run_length(tree, TreePage(&leaf), slot, rows);
        if count == 0 {
            return Ok(0);
        }
        let prefix = TreePage(&leaf).prefix_len();
        let bytes: usize = rows[..count]
            .iter()
            .map(|(key, value)| cell_len(key.len() - prefix, value.len(), true) + SLOT_LEN)
            .sum();
        let Room::Yes(leaf) = make_room(&self.core, leaf, bytes, first)? else {
            return Ok(0);
        };
        self.place_run(inner, tree, leaf, slot, &rows[..count])?;
        Ok(count)
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
        let live = core.liveness();
        let mut change = Change {
            core,
            shared: &self.shared,
            inner,
        };
        let (flags, others) = match rows {
            [_] => (NO_PURGE, Vec::new()),
            _ => (NO_PURGE | RUN, run_of(rows.iter().map(|&(key, _)| key))),
        };
        let address = change.version(NewVersion {
            kind: VersionKind::Insert,
            flags,
            space: page.space,
            tree: tree.id,
            key: rows[0].0,
            old_flags: 0,
            old_value: &others,
            previous: VersionAddress(0),
            undo_previous: change.inner.undo_last,
        })?;
        if tree.id == CLUSTERED_TREE {
            (1..rows.len()).for_each(|_| self.shared.state.add_cost());
        }
        let trx = change.shared.trx_ref(change.inner, address, None);
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        let context = &mut change.inner.context;
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            for (n, (key, value)) in rows.iter().enumerate() {
                let placed = target.insert(slot + n, 0, Some(address), key, value, &live);
                crate::invariant!(placed.is_ok(), "rows do not fit page {page} after all");
            }
            let (slot, count) = (slot as u16, rows.len());
            let rows = rows.iter().map(|&(key, value)| (0, key, value));
            put_rows_insert(payload, context, trx, page, tree.id, slot, count, rows);
        });
        let made = Made {
            address,
            tree: tree.id,
            rows: rows.len() as u64,
            undo_bytes: rows.len() as u64 * undo_log_bytes(0, 0),
            coding: Coding::InFull,
        };
        change.commit(mtr, made)?;
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
