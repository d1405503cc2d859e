//! Range cursors, forwards and backwards.
//!
//! A cursor copies the rows of one leaf at a time under the leaf's shared latch, and hands them out
//! without any latch. It sees its statement's snapshot; changes that its own transaction makes to
//! rows that were copied already are not seen by it.

use super::core::Core;
use super::interrupt::Interrupt;
use super::isolation::Isolation;
use super::locks::LockMode;
use super::read::{Seen, Wait, sees_newest};
use super::system::Snapshot;
use super::transaction::Transaction;
use super::write::remove_dead_rows;
use crate::btree::{Target, Tree};
use crate::counters::Counter;
use crate::{Error, Result};
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
pub(super) struct Scope {
    pub low: Bound<Vec<u8>>,
    pub high: Bound<Vec<u8>>,
    pub backward: bool,
}

/// Where to go on.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// The leaf that covers this key, from it on.
    From(Vec<u8>),
    /// The leaf of the greatest key below this one.
    Before(Vec<u8>),
    /// The last leaf.
    Last,
}

impl Next {
    pub fn target(&self) -> Target<'_> {
        match self {
            Self::From(key) => Target::Key(key),
            Self::Before(key) => Target::Before(key),
            Self::Last => Target::Last,
        }
    }
}

impl Scope {
    pub fn start(&self) -> Next {
        match (self.backward, &self.low, &self.high) {
            (false, Bound::Unbounded, _) => Next::From(Vec::new()),
            (false, Bound::Included(key) | Bound::Excluded(key), _) => Next::From(key.clone()),
            (true, _, Bound::Unbounded) => Next::Last,
            (true, _, Bound::Excluded(key)) => Next::Before(key.clone()),
            (true, _, Bound::Included(key)) => Next::Before([key, &[0][..]].concat()),
        }
    }

    /// The slots of a leaf that lie in the range and have not been passed.
    pub fn slots(&self, page: TreePage<'_>, next: &Next) -> (usize, usize) {
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
    pub fn following(&self, page: TreePage<'_>) -> Option<Next> {
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
    pub fn following_row(&self, key: &[u8]) -> Next {
        match self.backward {
            true => Next::Before(key.to_vec()),
            false => Next::From([key, &[0][..]].concat()),
        }
    }
}

/// The bounds of a key range.
pub(super) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Where a value is.
#[derive(Clone, Copy)]
enum Place {
    InBatch,
    /// In the cursor's `others`, from here to the next one.
    Other(usize),
}

/// A row that is to be handed out.
#[derive(Clone, Copy)]
struct Found {
    row: Copied,
    place: Place,
}

/// Rows that a cursor found: keys and values, lent out until its next call.
pub struct Rows<'c> {
    cursor: &'c Cursor,
}

impl<'c> Rows<'c> {
    /// How many.
    pub fn len(&self) -> usize {
        self.cursor.found.len()
    }

    /// Whether there are none: the cursor is at its end.
    pub fn is_empty(&self) -> bool {
        self.cursor.found.is_empty()
    }
}

impl<'c> IntoIterator for Rows<'c> {
    type Item = (&'c [u8], &'c [u8]);
    type IntoIter = RowsIter<'c>;

    fn into_iter(self) -> RowsIter<'c> {
        RowsIter {
            cursor: self.cursor,
            found: &self.cursor.found,
        }
    }
}

/// Iterator over [`Rows`].
pub struct RowsIter<'c> {
    cursor: &'c Cursor,
    found: &'c [Found],
}

impl<'c> Iterator for RowsIter<'c> {
    type Item = (&'c [u8], &'c [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&Found { row, place }, rest) = self.found.split_first()?;
        self.found = rest;
        let value = match place {
            Place::InBatch => &self.cursor.batch.bytes[row.value_at..row.end],
            Place::Other(start) => {
                let next = rest.iter().find_map(|found| match found.place {
                    Place::Other(next) => Some(next),
                    Place::InBatch => None,
                });
                let end = next.unwrap_or(self.cursor.others.len());
                &self.cursor.others[start..end]
            }
        };
        Some((self.cursor.batch.key(row), value))
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
    /// Values of such rows that `next_rows` has found.
    others: Vec<u8>,
    found: Vec<Found>,
    interrupt: Option<Interrupt>,
    isolation: Isolation,
    /// Rows to copy from the next leaf, at most.
    limit: usize,
    reads: u64,
}

impl Cursor {
    /// Without a snapshot: for [`Cursor::next_key`].
    pub(super) fn new(
        core: &Arc<Core>,
        tree: &Tree,
        snapshot: Option<Snapshot>,
        me: TrxId,
        (low, high): KeyRange,
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
            others: Vec::new(),
            found: Vec::new(),
            interrupt: None,
            isolation: Isolation::default(),
            limit: FIRST_ROWS,
            reads: 0,
        }
    }

    /// The next row: key and value. The slices are valid until the next call.
    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.next_rows(1)?.into_iter().next())
    }

    /// The next rows, at least one but at the end, at most `max`: as many as are at hand.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// for n in 0..10u64 {
    ///     txn.insert(&table, &n.to_be_bytes(), b"")?;
    /// }
    /// let mut cursor = txn.range(&table, ..)?;
    /// assert_eq!(cursor.next_rows(4)?.len(), 4);
    /// assert_eq!(cursor.next_rows(100)?.len(), 6);
    /// assert!(cursor.next_rows(100)?.is_empty());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn next_rows(&mut self, max: usize) -> Result<Rows<'_>> {
        self.found.clear();
        self.others.clear();
        while self.found.len() < max {
            let Some(&row) = self.batch.rows.get(self.batch.at) else {
                // What was found lies in the batch.
                if !self.found.is_empty() || !self.fill()? {
                    break;
                }
                continue;
            };
            let seen = self.see(row);
            let place = match seen {
                // The rows before it first; this one again with the next call.
                Err(_) if !self.found.is_empty() => break,
                seen => seen?,
            };
            self.batch.at += 1;
            self.found.extend(place.map(|place| Found { row, place }));
        }
        self.reads += self.found.len() as u64;
        Ok(Rows { cursor: self })
    }

    /// Where the value of a row is that the reader sees; `None`: it sees no row.
    fn see(&mut self, row: Copied) -> Result<Option<Place>> {
        let deleted = row.flags & CELL_DELETED != 0;
        let plain = row.version.is_none() && row.flags & CELL_OVERFLOW == 0;
        if plain || sees_newest(self.isolation, row.flags) {
            return Ok((!deleted).then_some(Place::InBatch));
        }
        if !self.resolve(row)? {
            return Ok(None);
        }
        let start = self.others.len();
        self.others.extend_from_slice(&self.other.value);
        Ok(Some(Place::Other(start)))
    }

    /// Goes to another range of the tree, or direction, with the same snapshot.
    pub(super) fn restart(&mut self, (low, high): KeyRange, backward: bool) {
        self.scope = Scope {
            low,
            high,
            backward,
        };
        self.next = Some(self.scope.start());
        self.batch.rows.clear();
        self.batch.at = 0;
        self.limit = FIRST_ROWS;
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
        if let Some(Err(error)) = self.interrupt.as_ref().map(Interrupt::check) {
            self.next = Some(next);
            return Err(error);
        }
        if self.tree.is_dropped() {
            return Err(Error::NotFound(
                "the table, or its tree, (it was dropped)".to_owned(),
            ));
        }
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
        let Some(_tidy) = self.tree.space.tidy() else {
            return Ok(());
        };
        let latched = self.tree.leaf_exclusive(leaf.target())?;
        let key = TreePage(&latched).low().to_vec();
        remove_dead_rows(&self.core, latched, None)?;
        self.tree
            .merge_around(&key, &|address| self.core.is_live(address))
    }

    /// The next key that the tree holds, visible or not, and its version.
    pub(super) fn next_key(&mut self) -> Result<Option<(Vec<u8>, Option<VersionAddress>)>> {
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

impl Transaction {
    /// A cursor over a range of a tree, as of the statement's snapshot. At serializable the range is
    /// locked shared first.
    pub(crate) fn scan(&self, tree: &Tree, bounds: KeyRange, backward: bool) -> Result<Cursor> {
        let snapshot = self.begin_scan(tree, &bounds)?;
        let me = self.shared.state.id();
        let mut cursor = Cursor::new(&self.core, tree, Some(snapshot), me, bounds, backward);
        cursor.interrupt.clone_from(&self.interrupt);
        cursor.isolation = self.isolation();
        Ok(cursor)
    }

    /// Has a cursor of this transaction go to another range of its tree, as
    /// [`range`](Self::range) would, with the memory that it has.
    pub(crate) fn scan_again(
        &self,
        cursor: &mut Cursor,
        bounds: KeyRange,
        backward: bool,
    ) -> Result<()> {
        cursor.snapshot = Some(self.begin_scan(&cursor.tree, &bounds)?);
        cursor.restart(bounds, backward);
        Ok(())
    }

    fn begin_scan(&self, tree: &Tree, bounds: &KeyRange) -> Result<Snapshot> {
        self.core.redo.poison.check()?;
        self.check_interrupt()?;
        let mut inner = self.active()?;
        if self.isolation().locks_reads() {
            let result = self.lock_scan(&mut inner, tree, bounds, LockMode::Shared, Wait::Timeout);
            self.after_error(inner, result)?;
            inner = self.active()?;
        }
        // Of a range that is locked the newest versions are the ones to read.
        Ok(self.snapshot_of(&mut inner))
    }
}
