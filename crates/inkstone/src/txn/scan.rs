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
use crate::Result;
use crate::btree::{Target, Tree};
use crate::counters::Counter;
use inkstone_format::TrxId;
use inkstone_format::tree_page::TreePage;
use std::ops::Bound;
use std::sync::Arc;

/// Rows copied from the first leaf; a cursor that goes on takes whole leaves.
const FIRST_ROWS: usize = 128;

/// A copied row: where its key and value lie in the batch's bytes.
struct Copied {
    key: (usize, usize),
    seen: Seen,
}

/// Rows of a range in key order, or in reverse. See the module.
pub struct Cursor {
    core: Arc<Core>,
    tree: Tree,
    snapshot: Option<Snapshot>,
    me: TrxId,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    backward: bool,
    /// Where the next leaf is to be looked for; `None` at the end.
    next: Option<Next>,
    keys: Vec<u8>,
    rows: Vec<Copied>,
    at: usize,
    value: Vec<u8>,
    limit: usize,
    reads: u64,
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

impl Cursor {
    fn new(
        core: &Arc<Core>,
        tree: &Tree,
        snapshot: Option<Snapshot>,
        me: TrxId,
        (low, high): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        backward: bool,
    ) -> Self {
        let next = match (backward, &low, &high) {
            (false, Bound::Unbounded, _) => Next::From(Vec::new()),
            (false, Bound::Included(key) | Bound::Excluded(key), _) => Next::From(key.clone()),
            (true, _, Bound::Unbounded) => Next::Last,
            (true, _, Bound::Excluded(key)) => Next::Before(key.clone()),
            (true, _, Bound::Included(key)) => Next::Before([key, &[0][..]].concat()),
        };
        Self {
            core: core.clone(),
            tree: tree.clone(),
            snapshot,
            me,
            low,
            high,
            backward,
            next: Some(next),
            keys: Vec::new(),
            rows: Vec::new(),
            at: 0,
            value: Vec::new(),
            limit: FIRST_ROWS,
            reads: 0,
        }
    }

    /// The next row: key and value. The slices are valid until the next call.
    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            while self.at < self.rows.len() {
                let row = &mut self.rows[self.at];
                self.at += 1;
                let visible = match &self.snapshot {
                    Some(snapshot) => self.core.resolve(snapshot, self.me, &mut row.seen)?,
                    None => true,
                };
                if !visible {
                    continue;
                }
                self.core.value_of(&self.tree, &mut row.seen)?;
                std::mem::swap(&mut self.value, &mut row.seen.value);
                self.reads += 1;
                let (from, to) = row.key;
                return Ok(Some((&self.keys[from..to], &self.value)));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Copies the rows of the next leaf; false at the end.
    fn fill(&mut self) -> Result<bool> {
        let Some(next) = self.next.take() else {
            return Ok(false);
        };
        self.core.redo.poison.check()?;
        let tree = self.tree.clone();
        let leaf = tree.leaf_shared(match &next {
            Next::From(key) => Target::Key(key),
            Next::Before(key) => Target::Before(key),
            Next::Last => Target::Last,
        })?;
        let page = TreePage(&leaf);
        self.keys.clear();
        self.at = 0;
        let (from, to) = (self.first_slot(page), self.end_slot(page));
        let (from, to) = match &next {
            Next::From(key) => (from.max(page.search(key).unwrap_or_else(|slot| slot)), to),
            Next::Before(key) => (from, to.min(page.search(key).unwrap_or_else(|slot| slot))),
            Next::Last => (from, to),
        };
        let take = to.saturating_sub(from).min(self.limit);
        let cut = take < to.saturating_sub(from);
        self.limit = usize::MAX;
        let mut rows = std::mem::take(&mut self.rows);
        rows.truncate(take);
        rows.resize_with(take, || Copied {
            key: (0, 0),
            seen: Seen::default(),
        });
        for (n, row) in rows.iter_mut().enumerate() {
            let slot = if self.backward { to - 1 - n } else { from + n };
            let cell = page.cell(slot);
            let start = self.keys.len();
            self.keys.extend_from_slice(page.prefix());
            self.keys.extend_from_slice(cell.suffix);
            row.key = (start, self.keys.len());
            row.seen.set(cell);
        }
        self.rows = rows;
        self.next = self.following(page, cut);
        Ok(true)
    }

    /// Where to go on after this leaf (or after its part that was copied).
    fn following(&self, page: TreePage<'_>, cut: bool) -> Option<Next> {
        if cut {
            let (from, to) = self.rows.last()?.key;
            let key = &self.keys[from..to];
            return Some(match self.backward {
                true => Next::Before(key.to_vec()),
                false => Next::From([key, &[0][..]].concat()),
            });
        }
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

    fn first_slot(&self, page: TreePage<'_>) -> usize {
        match &self.low {
            Bound::Unbounded => 0,
            Bound::Included(key) => page.search(key).unwrap_or_else(|slot| slot),
            Bound::Excluded(key) => page.search(key).map_or_else(|slot| slot, |slot| slot + 1),
        }
    }

    fn end_slot(&self, page: TreePage<'_>) -> usize {
        match &self.high {
            Bound::Unbounded => page.count(),
            Bound::Excluded(key) => page.search(key).unwrap_or_else(|slot| slot),
            Bound::Included(key) => page.search(key).map_or_else(|slot| slot, |slot| slot + 1),
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
            let Some(key) = self.keys.next_key()? else {
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

impl Cursor {
    /// The next key that the tree holds, visible or not.
    fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(row) = self.rows.get(self.at) {
                self.at += 1;
                return Ok(Some(self.keys[row.key.0..row.key.1].to_vec()));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
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
        while let Some(key) = keys.next_key()? {
            let version = keys.rows[keys.at - 1].seen.version;
            if version.is_some_and(|address| self.core.is_live(address)) && wait != Wait::SkipLocked
            {
                self.newest_row(inner, tree, &key, deadline)?;
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
