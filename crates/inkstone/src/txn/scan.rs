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
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, Cell, TreePage};
use inkstone_format::{TrxId, VersionAddress};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// A scan over at least so many dead rows in a leaf removes them.
const DEAD_ROWS: usize = 16;
/// Rows copied from the first leaf; a cursor that goes on takes whole leaves.
const FIRST_ROWS: usize = 128;

/// A row of a batch. Its key is in [`Batch::key`] as long as it is the last one handed out.
#[derive(Clone, Copy)]
struct Row {
    /// Where its cell begins in the batch's heap.
    cell_at: usize,
    value_at: usize,
    end: usize,
    flags: u8,
    version: Option<VersionAddress>,
}

/// Rows of a leaf, in the order in which they are handed out: their cells, as they lay in the page.
#[derive(Default)]
struct Batch {
    /// The part of the leaf's heap in which the cells lie. Copied as one piece: cells of neighbours
    /// mostly are neighbours.
    heap: Vec<u8>,
    /// Where each row's cell begins in `heap`.
    cells: Vec<usize>,
    /// The next row to hand out.
    at: usize,
    /// The key of the row that was handed out last. It begins with what all keys of the leaf share.
    key: Vec<u8>,
    prefix_len: usize,
    /// Rows handed out that no one will ever see again.
    dead: usize,
}

impl Batch {
    fn copy(&mut self, page: TreePage<'_>, slots: Range<usize>, backward: bool) {
        self.at = 0;
        self.dead = 0;
        self.heap.clear();
        self.key.clear();
        self.key.extend_from_slice(page.prefix());
        self.prefix_len = self.key.len();
        self.cells.clear();
        self.cells.extend(slots.map(|slot| page.slot_offset(slot)));
        let (first, last) = (self.cells.iter().min(), self.cells.iter().max());
        let (Some(&first), Some(&last)) = (first, last) else {
            return;
        };
        let end = last + Cell::read(page.0, last).len;
        self.heap.extend_from_slice(&page.0[first..end]);
        self.cells.iter_mut().for_each(|at| *at -= first);
        if backward {
            self.cells.reverse();
        }
    }

    /// The next row. Makes its key.
    #[inline]
    fn next(&mut self) -> Option<Row> {
        let &cell_at = self.cells.get(self.at)?;
        self.at += 1;
        let cell = Cell::read(&self.heap, cell_at);
        self.key.truncate(self.prefix_len);
        self.key.extend_from_slice(cell.suffix);
        let end = cell_at + cell.len;
        Some(Row {
            cell_at,
            value_at: end - cell.value.len(),
            end,
            flags: cell.flags,
            version: cell.version,
        })
    }

    /// The key of the last row.
    fn last_key(&self) -> Option<Vec<u8>> {
        let last = Cell::read(&self.heap, *self.cells.last()?);
        Some([&self.key[..self.prefix_len], last.suffix].concat())
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
    /// Where the leaf of the batch was found.
    leaf: Next,
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
            leaf: Next::Last,
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
            let Some(row) = self.batch.next() else {
                if !self.fill()? {
                    return Ok(None);
                }
                continue;
            };
            let live = self.is_live(row);
            if !live && row.flags & CELL_DELETED != 0 {
                self.batch.dead += 1;
                continue;
            }
            let plain = !live && row.flags & CELL_OVERFLOW == 0;
            if !plain && !self.resolve(row)? {
                continue;
            }
            self.reads += 1;
            let value = if plain {
                &self.batch.heap[row.value_at..row.end]
            } else {
                &self.other.value
            };
            return Ok(Some((&self.batch.key, value)));
        }
    }

    /// Whether there may be someone who sees another version of the row than the one in the leaf.
    fn is_live(&self, row: Row) -> bool {
        row.version
            .is_some_and(|address| self.core.is_live(address))
    }

    /// Finds the version of a row that the snapshot sees, and its whole value.
    fn resolve(&mut self, row: Row) -> Result<bool> {
        self.other.set(Cell::read(&self.batch.heap, row.cell_at));
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
        self.clean()?;
        let Some(next) = self.next.take() else {
            return Ok(false);
        };
        self.core.redo.poison.check()?;
        let leaf = self.tree.leaf_shared(next.target())?;
        let page = TreePage(&leaf);
        let (from, to) = self.scope.slots(page, &next);
        let to = to.max(from);
        let take = (to - from).min(self.limit);
        let slots = match self.scope.backward {
            false => from..from + take,
            true => to - take..to,
        };
        self.batch.copy(page, slots, self.scope.backward);
        self.next = match self.batch.last_key() {
            Some(key) if take < to - from => Some(self.scope.following_row(&key)),
            _ => self.scope.following(page),
        };
        self.limit = usize::MAX;
        self.leaf = next;
        Ok(true)
    }

    /// Removes the dead rows of a leaf in which they were the majority: after a restart nobody else
    /// remembers them.
    fn clean(&mut self) -> Result<()> {
        let dead = std::mem::take(&mut self.batch.dead);
        if dead < DEAD_ROWS || dead < self.batch.cells.len() / 2 {
            return Ok(());
        }
        if !self.core.redo.log.has_room() {
            return Ok(());
        }
        self.core.redo.log.wait_for_space()?;
        let latched = self.tree.leaf_exclusive(self.leaf.target())?;
        let key = TreePage(&latched).low().to_vec();
        remove_dead_rows(&self.core, latched, None)?;
        self.tree
            .merge_around(&key, &|address| self.core.is_live(address))
    }

    /// The next key that the tree holds, visible or not, and its version.
    fn next_key(&mut self) -> Result<Option<(Vec<u8>, Option<VersionAddress>)>> {
        loop {
            if let Some(row) = self.batch.next() {
                if row.flags & CELL_DELETED != 0 && !self.is_live(row) {
                    self.batch.dead += 1;
                }
                return Ok(Some((self.batch.key.clone(), row.version)));
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
