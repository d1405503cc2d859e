//! Range cursors, forwards and backwards.
//!
//! A cursor copies the rows of one leaf at a time under the leaf's shared latch, and hands them out
//! without any latch. It sees its statement's snapshot; changes that its own transaction makes to
//! rows that were copied already are not seen by it.

use super::core::Core;
use super::locks::LockMode;
use super::read::{Seen, Wait};
use super::system::Snapshot;
use super::transaction::{Isolation, Transaction};
use super::write::remove_dead_rows;
use crate::Result;
use crate::btree::{Target, Tree};
use crate::counters::Counter;
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, TreePage};
use inkstone_format::{TrxId, VersionAddress};
use std::ops::Bound;
use std::sync::Arc;

/// A scan over at least so many dead rows in a leaf removes them.
const DEAD_ROWS: usize = 16;
/// Rows copied from the first leaf; a cursor that goes on takes whole leaves.
const FIRST_ROWS: usize = 128;

/// A copied row: where its key and value lie in the batch's bytes.
#[derive(Clone, Copy)]
struct Copied {
    key_at: usize,
    value_at: usize,
    end: usize,
    flags: u8,
    version: Option<VersionAddress>,
}

/// The rows of a leaf, or of a part of it, in the order in which they are handed out.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Copied>,
    /// The next row to hand out.
    at: usize,
}

impl Batch {
    fn copy(&mut self, page: TreePage<'_>, slots: impl Iterator<Item = usize>) {
        self.bytes.clear();
        self.rows.clear();
        self.at = 0;
        for slot in slots {
            let cell = page.cell(slot);
            let key_at = self.bytes.len();
            self.bytes.extend_from_slice(page.prefix());
            self.bytes.extend_from_slice(cell.suffix);
            let value_at = self.bytes.len();
            self.bytes.extend_from_slice(cell.value);
            let end = self.bytes.len();
            let (flags, version) = (cell.flags, cell.version);
            self.rows.push(Copied {
                key_at,
                value_at,
                end,
                flags,
                version,
            });
        }
    }

    fn key(&self, row: Copied) -> &[u8] {
        &self.bytes[row.key_at..row.value_at]
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.rows.last().map(|&row| self.key(row))
    }
}

/// A key range and the direction in which it is gone through.
struct Scope {
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    backward: bool,
}

#[derive(Clone, Debug)]
enum Next {
    /// The leaf that covers this key, from it on.
    From(Vec<u8>),
    /// The leaf of the greatest key below this one.
    Before(Vec<u8>),
    /// The last leaf.
    Last,
}

impl Next {
    fn target(&self) -> Target<'_> {
        match self {
            Self::From(key) => Target::Key(key),
            Self::Before(key) => Target::Before(key),
            Self::Last => Target::Last,
        }
    }
}

impl Scope {
    fn start(&self) -> Next {
        match (self.backward, &self.low, &self.high) {
            (false, Bound::Unbounded, _) => Next::From(Vec::new()),
            (false, Bound::Included(key) | Bound::Excluded(key), _) => Next::From(key.clone()),
            (true, _, Bound::Unbounded) => Next::Last,
            (true, _, Bound::Excluded(key)) => Next::Before(key.clone()),
            (true, _, Bound::Included(key)) => Next::Before([key, &[0][..]].concat()),
        }
    }

    /// The slots of a leaf that lie in the range and have not been passed.
    fn slots(&self, page: TreePage<'_>, next: &Next) -> (usize, usize) {
        let at = |key: &[u8]| page.search(key).unwrap_or_else(|slot| slot);
        let after = |key: &[u8]| page.search(key).map_or_else(|slot| slot, |slot| slot + 1);
        let from = match &self.low {
            Bound::Unbounded => 0,
            Bound::Included(key) => at(key),
            Bound::Excluded(key) => after(key),
        };
        let to = match &self.high {
            Bound::Unbounded => page.count(),
            Bound::Excluded(key) => at(key),
            Bound::Included(key) => after(key),
        };
        match next {
            Next::From(key) => (from.max(at(key)), to),
            Next::Before(key) => (from, to.min(at(key))),
            Next::Last => (from, to),
        }
    }

    /// Where to go on after a leaf.
    fn following(&self, page: TreePage<'_>) -> Option<Next> {
        if self.backward {
            let low = page.low();
            let more = match &self.low {
                Bound::Included(bound) | Bound::Excluded(bound) => low > bound.as_slice(),
                Bound::Unbounded => true,
            };
            return (!low.is_empty() && more).then(|| Next::Before(low.to_vec()));
        }
        let high = page.high()?;
        let more = match &self.high {
            Bound::Included(bound) => high <= bound.as_slice(),
            Bound::Excluded(bound) => high < bound.as_slice(),
            Bound::Unbounded => true,
        };
        more.then(|| Next::From(high.to_vec()))
    }

    /// Where to go on after a row.
    fn following_row(&self, key: &[u8]) -> Next {
        match self.backward {
            true => Next::Before(key.to_vec()),
            false => Next::From([key, &[0][..]].concat()),
        }
    }
}

/// Rows of a range in key order, or in reverse. See the module.
pub struct Cursor {
    core: Arc<Core>,
    tree: Tree,
    snapshot: Option<Snapshot>,
    me: TrxId,
    scope: Scope,
    /// Where the next leaf is to be looked for; `None` at the end.
    next: Option<Next>,
    batch: Batch,
    /// A row that is not as it lies in the batch: an older version, a long value.
    other: Seen,
    /// Rows to copy from the next leaf, at most.
    limit: usize,
    reads: u64,
}

impl Cursor {
    fn new(
        core: &Arc<Core>,
        tree: &Tree,
        snapshot: Option<Snapshot>,
        me: TrxId,
        (low, high): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        backward: bool,
    ) -> Self {
        let scope = Scope {
            low,
            high,
            backward,
        };
        Self {
            core: core.clone(),
            tree: tree.clone(),
            snapshot,
            me,
            next: Some(scope.start()),
            scope,
            batch: Batch::default(),
            other: Seen::default(),
            limit: FIRST_ROWS,
            reads: 0,
        }
    }

    /// The next row: key and value. The slices are valid until the next call.
    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            let Some(&row) = self.batch.rows.get(self.batch.at) else {
                if !self.fill()? {
                    return Ok(None);
                }
                continue;
            };
            self.batch.at += 1;
            let plain = row.version.is_none() && row.flags & CELL_OVERFLOW == 0;
            if plain && row.flags & CELL_DELETED != 0 {
                continue;
            }
            if !plain && !self.resolve(row)? {
                continue;
            }
            self.reads += 1;
            let value = if plain {
                &self.batch.bytes[row.value_at..row.end]
            } else {
                &self.other.value
            };
            return Ok(Some((self.batch.key(row), value)));
        }
    }

    /// Finds the version of a row that the snapshot sees, and its whole value.
    fn resolve(&mut self, row: Copied) -> Result<bool> {
        self.other.flags = row.flags;
        self.other.version = row.version;
        self.other.value.clear();
        self.other
            .value
            .extend_from_slice(&self.batch.bytes[row.value_at..row.end]);
        if let Some(snapshot) = &self.snapshot
            && !self.core.resolve(snapshot, self.me, &mut self.other)?
        {
            return Ok(false);
        }
        self.core.value_of(&self.tree, &mut self.other)?;
        Ok(true)
    }

    /// Copies the rows of the next leaf; false at the end.
    fn fill(&mut self) -> Result<bool> {
        let Some(next) = self.next.take() else {
            return Ok(false);
        };
        self.core.redo.poison.check()?;
        let leaf = self.tree.leaf_shared(next.target())?;
        let page = TreePage(&leaf);
        let (from, to) = self.scope.slots(page, &next);
        let all = to.saturating_sub(from);
        let take = all.min(self.limit);
        match self.scope.backward {
            false => self.batch.copy(page, from..from + take),
            true => self.batch.copy(page, (to.max(take) - take..to).rev()),
        }
        self.next = match self.batch.last_key() {
            Some(key) if take < all => Some(self.scope.following_row(key)),
            _ => self.scope.following(page),
        };
        self.limit = usize::MAX;
        drop(leaf);
        self.clean(&next)?;
        Ok(true)
    }

    /// Removes dead rows from a leaf in which they are the majority: after a restart nobody else
    /// remembers them.
    fn clean(&self, leaf: &Next) -> Result<()> {
        let dead = |row: &&Copied| {
            row.flags & CELL_DELETED != 0 && row.version.is_none_or(|v| !self.core.is_live(v))
        };
        let marked = self
            .batch
            .rows
            .iter()
            .filter(|row| row.flags & CELL_DELETED != 0)
            .count();
        if marked < DEAD_ROWS || marked < self.batch.rows.len() / 2 {
            return Ok(());
        }
        if self.batch.rows.iter().filter(dead).count() < DEAD_ROWS {
            return Ok(());
        }
        if !self.core.redo.log.has_room() {
            return Ok(());
        }
        self.core.redo.log.wait_for_space()?;
        let latched = self.tree.leaf_exclusive(leaf.target())?;
        let key = TreePage(&latched).low().to_vec();
        remove_dead_rows(&self.core, latched, None)?;
        self.tree
            .merge_around(&key, &|address| self.core.is_live(address))
    }

    /// The next key that the tree holds, visible or not, and its version.
    fn next_key(&mut self) -> Result<Option<(Vec<u8>, Option<VersionAddress>)>> {
        loop {
            if let Some(&row) = self.batch.rows.get(self.batch.at) {
                self.batch.at += 1;
                return Ok(Some((self.batch.key(row).to_vec(), row.version)));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.core.redo.counters.add(Counter::RowsRead, self.reads);
    }
}

impl Iterator for Cursor {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_row() {
            Ok(Some((key, value))) => Some(Ok((key.to_vec(), value.to_vec()))),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Rows of a range that are locked one by one as they are read.
pub struct LockingCursor<'t> {
    transaction: &'t Transaction,
    tree: Tree,
    /// Finds the keys: every one that is there in any version.
    keys: Cursor,
    mode: LockMode,
    wait: Wait,
}

impl LockingCursor<'_> {
    /// Locks and returns the next row: key and newest value.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            let Some((key, _)) = self.keys.next_key()? else {
                return Ok(None);
            };
            let found = self
                .transaction
                .read_locking(&self.tree, &key, self.mode, self.wait)?;
            if let Some(value) = found {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl Iterator for LockingCursor<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

impl Transaction {
    /// A cursor over a range of a tree, as of the statement's snapshot. At serializable the range is
    /// locked shared first.
    pub(crate) fn scan(
        &self,
        tree: &Tree,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        backward: bool,
    ) -> Result<Cursor> {
        self.core.redo.poison.check()?;
        let mut inner = self.active()?;
        if self.isolation() == Isolation::Serializable {
            let result = self.lock_scan(&mut inner, tree, &bounds, LockMode::Shared, Wait::Timeout);
            self.after_error(inner, result)?;
            inner = self.active()?;
        }
        let snapshot = match self.isolation() {
            // The range is locked: the newest versions are the ones to read.
            Isolation::Serializable => self.core.trxs.snapshot(),
            _ => self.snapshot_of(&mut inner),
        };
        drop(inner);
        let me = self.shared.state.id();
        Ok(Cursor::new(
            &self.core,
            tree,
            Some(snapshot),
            me,
            bounds,
            backward,
        ))
    }

    /// A cursor that locks each row that it returns.
    pub(crate) fn scan_locking(
        &self,
        tree: &Tree,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        backward: bool,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingCursor<'_>> {
        self.core.redo.poison.check()?;
        let mut inner = self.active()?;
        if self.isolation() == Isolation::Serializable {
            let result = self.lock_scan(&mut inner, tree, &bounds, mode, wait);
            self.after_error(inner, result)?;
        } else {
            drop(inner);
        }
        let me = self.shared.state.id();
        let keys = Cursor::new(&self.core, tree, None, me, bounds, backward);
        Ok(LockingCursor {
            transaction: self,
            tree: tree.clone(),
            keys,
            mode,
            wait,
        })
    }

    /// Locks a range, then waits for everyone who has changed a row in it and not ended: who
    /// comes later finds the lock.
    fn lock_scan(
        &self,
        inner: &mut super::transaction::Inner,
        tree: &Tree,
        bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
        mode: LockMode,
        wait: Wait,
    ) -> Result<()> {
        let deadline = (wait == Wait::Timeout).then(|| self.deadline());
        let (low, high) = (bound(&bounds.0), bound(&bounds.1));
        self.lock_range(inner, tree, (low, high), mode, deadline)?;
        let me = self.shared.state.id();
        let mut keys = Cursor::new(&self.core, tree, None, me, bounds.clone(), false);
        while let Some((key, version)) = keys.next_key()? {
            if wait == Wait::SkipLocked {
                continue;
            }
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
