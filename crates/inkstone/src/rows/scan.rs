//! Range cursors, forwards and backwards.
//!
//! A cursor copies the rows of one leaf at a time under the leaf's shared latch, and hands them out
//! without any latch. It sees its statement's snapshot; changes that its own transaction makes to
//! rows that were copied already are not seen by it.

use crate::btree::{ReadAhead, Target, Tree};
use crate::counters::Counter;
use crate::debug::debug_as;
use crate::locks::LockMode;
use crate::mvcc::interrupt::Interrupt;
use crate::mvcc::isolation::Isolation;
use crate::mvcc::system::{HolderPart, Snapshot};
use crate::paranoid::paranoid;
use crate::rows::batch::{Batch, Row};
use crate::rows::change::remove_dead_rows;
use crate::rows::outline::{Outside, OutsidePart};
use crate::rows::read::{Seen, Wait, sees_newest};
use crate::rows::tables::{TreeRef, bounds};
use crate::txn::core::Core;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, TreePage};
use inkstone_format::{TrxId, VersionAddress};
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

/// A scan over at least so many dead rows in a leaf removes them.
const DEAD_ROWS: usize = 16;
/// Rows copied from the first leaf or two; a cursor that goes on takes whole leaves.
const FIRST_ROWS: usize = 128;
/// As many at least, to go on in a leaf costs finding it again.
const ROWS_MIN: usize = 32;

/// A key range and the direction in which it is gone through.
pub(crate) struct Scope {
    pub low: Bound<Vec<u8>>,
    pub high: Bound<Vec<u8>>,
    pub backward: bool,
}

/// Where to go on.
#[derive(Clone, Debug)]
pub(crate) enum Next {
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

    /// Whether `following` is behind it, or the end: a scan comes to an end.
    pub fn is_passed_by(&self, following: Option<&Self>) -> bool {
        match (self, following) {
            (Self::From(here), Some(Self::From(key))) => here < key,
            (Self::Before(here), Some(Self::Before(key))) => key < here,
            (Self::Last, Some(Self::Before(_))) | (_, None) => true,
            _ => false,
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
        let from = || match &self.low {
            Bound::Unbounded => 0,
            Bound::Included(key) => at(key),
            Bound::Excluded(key) => after(key),
        };
        let to = || match &self.high {
            Bound::Unbounded => page.count(),
            Bound::Excluded(key) => at(key),
            Bound::Included(key) => after(key),
        };
        // Where to go on is mostly within the bound that was started from: one search less.
        match next {
            Next::From(key) => {
                let within = match &self.low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => key >= low,
                    Bound::Excluded(low) => key > low,
                };
                let here = at(key);
                (if within { here } else { here.max(from()) }, to())
            }
            Next::Before(key) => {
                let within = match &self.high {
                    Bound::Unbounded => true,
                    // What lies before the bound's successor is the bound or below it.
                    Bound::Included(high) | Bound::Excluded(high) => key <= high,
                };
                let here = at(key);
                (from(), if within { here } else { here.min(to()) })
            }
            Next::Last => (from(), to()),
        }
    }

    /// The end of the range, in the direction of the scan.
    pub fn until(&self) -> Option<&[u8]> {
        let end = if self.backward { &self.low } else { &self.high };
        match end {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
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

    /// Where to go on to look at a row again.
    pub fn at_row(&self, key: &[u8]) -> Next {
        if self.backward {
            Next::Before([key, &[0][..]].concat())
        } else {
            Next::From(key.to_vec())
        }
    }

    /// Where to go on after a row.
    pub fn following_row(&self, key: &[u8]) -> Next {
        if self.backward {
            Next::Before(key.to_vec())
        } else {
            Next::From([key, &[0][..]].concat())
        }
    }
}

/// The bounds of a key range.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Where the value of a visible row is.
#[derive(Clone, Copy)]
enum Value {
    InBatch,
    /// In [`Cursor::other`].
    Other,
}

/// A row that [`Cursor::next_rows`] hands out: its key, and its value if that is not in the batch,
/// end here in `copied`.
struct Found {
    key_end: usize,
    end: usize,
    in_batch: Option<Range<usize>>,
    /// Where its parts end in [`Cursor::outside`]: those of the row before it come first.
    outside_end: usize,
}

/// Rows that a cursor found: keys and values, lent out until its next call.
pub struct Rows<'c> {
    cursor: &'c Cursor,
}

debug_as!(Rows<'_>, "Rows", |this| "len" = this.len());

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
            found: self.cursor.found.iter(),
            at: 0,
        }
    }
}

/// Iterator over [`Rows`].
pub struct RowsIter<'c> {
    cursor: &'c Cursor,
    found: std::slice::Iter<'c, Found>,
    at: usize,
}

debug_as!(RowsIter<'_>, "RowsIter", |this| "left" = this.found.len());

impl<'c> Iterator for RowsIter<'c> {
    type Item = (&'c [u8], &'c [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.found.next()?;
        let copied = &self.cursor.copied;
        paranoid!(
            self.at <= found.key_end && found.key_end <= found.end && found.end <= copied.len(),
            "a row at {}, {}, {} of {} bytes that were copied",
            self.at,
            found.key_end,
            found.end,
            copied.len()
        );
        let key = &copied[self.at..found.key_end];
        let value = match &found.in_batch {
            Some(range) => self.cursor.batch.bytes(range.clone()),
            None => &copied[found.key_end..found.end],
        };
        self.at = found.end;
        Some((key, value))
    }
}

/// Rows of a range in key order, or in reverse. As an iterator it ends behind an error;
/// [`next_row`](Self::next_row) tries again.
///
/// It has a snapshot of its own until it is dropped, and can be read when its transaction is over.
/// As long as it is there nothing is purged that it may see:
/// [`Database::snapshots`](crate::Database::snapshots) finds one that was forgotten.
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
    /// Whether values come without the parts that lie outside; those of the rows handed out last.
    outlines: bool,
    outside: Outside,
    /// What `next_rows` hands out: keys, and values that are not in the batch.
    found: Vec<Found>,
    copied: Vec<u8>,
    interrupt: Option<Interrupt>,
    isolation: Isolation,
    /// Rows to copy from the next leaf, at most.
    limit: usize,
    ahead: ReadAhead,
    reads: u64,
    /// As an iterator it has given an error.
    has_failed: bool,
}

debug_as!(
    Cursor,
    "Cursor",
    |this| "space" = this.tree.space.id,
    "tree" = this.tree.id,
    "has_snapshot" = this.snapshot.is_some()
);

impl Cursor {
    /// Without a snapshot: for [`Cursor::next_key`].
    pub(crate) fn new(
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
            leaf: Next::Last,
            scope,
            batch: Batch::default(),
            other: Seen::default(),
            outlines: false,
            outside: Outside::default(),
            found: Vec::new(),
            copied: Vec::new(),
            interrupt: None,
            isolation: Isolation::default(),
            limit: FIRST_ROWS,
            ahead: ReadAhead::default(),
            reads: 0,
            has_failed: false,
        }
    }

    /// The next row as an iterator gives it, which ends behind an error: a loop that looks at none
    /// of its rows would not end.
    pub(crate) fn next_of_iterator<T>(
        &mut self,
        read: impl FnOnce(&[u8], &[u8]) -> Result<T>,
    ) -> Option<Result<T>> {
        if self.has_failed {
            return None;
        }
        let row = match self.next_row() {
            Ok(None) => return None,
            Ok(Some((key, value))) => read(key, value),
            Err(error) => Err(error),
        };
        self.has_failed = row.is_err();
        Some(row)
    }

    /// The next row: key and value. The slices are valid until the next call.
    #[inline]
    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.found.clear();
        self.outside.clear();
        loop {
            if let Some((row, value)) = self.next_at_hand()? {
                self.reads += 1;
                let value = match value {
                    Value::InBatch => self.batch.bytes(row.value()),
                    Value::Other => &self.other.value,
                };
                return Ok(Some((self.batch.key(), value)));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
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
        self.copied.clear();
        self.outside.clear();
        while self.found.len() < max {
            match self.next_at_hand() {
                Ok(Some((row, value))) => {
                    self.copied.extend_from_slice(self.batch.key());
                    let key_end = self.copied.len();
                    let in_batch = match value {
                        Value::InBatch => Some(row.value()),
                        Value::Other => {
                            self.copied.extend_from_slice(&self.other.value);
                            None
                        }
                    };
                    let end = self.copied.len();
                    self.found.push(Found {
                        key_end,
                        end,
                        in_batch,
                        outside_end: self.outside.len(),
                    });
                }
                // The rows before it first; what is found lies in the batch.
                Ok(None) | Err(_) if !self.found.is_empty() => break,
                Ok(None) if self.fill()? => {}
                Ok(None) => break,
                Err(error) => return Err(error),
            }
        }
        paranoid!(
            self.found.len() <= max
                && self.found.last().map_or(0, |found| found.end) == self.copied.len(),
            "{} rows of {max} were found, in {} bytes",
            self.found.len(),
            self.copied.len()
        );
        self.reads += self.found.len() as u64;
        Ok(Rows { cursor: self })
    }

    /// Whether rows come, from the next call on, without the parts of their values that lie outside
    /// of the row. [`left_out`](Self::left_out) says which these are, and
    /// [`read_left_out`](Self::read_left_out) reads them.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// let value = [&b"name"[..], &[7; 1_000_000]].concat();
    /// txn.insert_with_parts(&table, b"key", &value, &[4..1_000_004])?;
    /// let mut cursor = txn.range(&table, ..)?;
    /// cursor.set_outlines(true);
    /// assert_eq!(cursor.next_row()?, Some((&b"key"[..], &b"name"[..])));
    /// let mut piece = [0; 100];
    /// cursor.read_left_out(0, 0, 5000, &mut piece)?;
    /// assert_eq!(piece, [7; 100]);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn set_outlines(&mut self, outlines: bool) {
        self.outlines = outlines;
    }

    /// What was left out of a row's value, in its order: of row number `row` of those that
    /// [`next_rows`](Self::next_rows) has given, of row 0 after [`next_row`](Self::next_row).
    pub fn left_out(&self, row: usize) -> &[OutsidePart] {
        let parts = &self.outside.left_out()[self.outside_of(row)];
        paranoid!(
            parts.is_sorted_by_key(|part| part.at),
            "the parts {parts:?} of row {row} are not in the order of its value"
        );
        parts
    }

    /// Fills `to` with the bytes of part number `part` that was left out of a row, from the part's
    /// byte `from` on; it must have as many ([`Error::InvalidOption`]). Until the next call for
    /// rows.
    pub fn read_left_out(
        &mut self,
        row: usize,
        part: usize,
        from: u64,
        to: &mut [u8],
    ) -> Result<()> {
        let parts = self.outside_of(row);
        // One that the row lacks is none that there is.
        let part = if part < parts.len() {
            parts.start + part
        } else {
            usize::MAX
        };
        self.outside.read((&self.core, &self.tree), part, from, to)
    }

    /// Which of the parts in `outside` are a row's.
    fn outside_of(&self, row: usize) -> Range<usize> {
        if self.found.is_empty() {
            return 0..if row == 0 { self.outside.len() } else { 0 };
        }
        let end_of = |row: usize| self.found.get(row).map(|found| found.outside_end);
        let parts = match end_of(row) {
            Some(end) => row.checked_sub(1).and_then(end_of).unwrap_or(0)..end,
            None => 0..0,
        };
        paranoid!(
            parts.start <= parts.end && parts.end <= self.outside.len(),
            "row {row} has parts {parts:?} of {}",
            self.outside.len()
        );
        parts
    }

    /// The next row of the batch that the reader sees. After a failure the row is next again.
    // Inlined: a row that goes through memory on its way costs as much as all the rest.
    #[inline(always)]
    fn next_at_hand(&mut self) -> Result<Option<(Row, Value)>> {
        while let Some(row) = self.batch.next() {
            let unversioned = row
                .version
                .is_none_or(|address| !self.core.is_live(address));
            if unversioned && row.flags & (CELL_DELETED | CELL_OVERFLOW) == 0 {
                return Ok(Some((row, Value::InBatch)));
            }
            if let Some(value) = self.judge(row)? {
                return Ok(Some((row, value)));
            }
        }
        Ok(None)
    }

    /// Where the value of a row is that is not plainly there; `None` if the reader does not see it.
    #[inline(never)]
    fn judge(&mut self, row: Row) -> Result<Option<Value>> {
        let deleted = row.flags & CELL_DELETED != 0;
        if deleted && !self.is_live(row) {
            self.batch.dead += 1;
            paranoid!(
                self.batch.dead <= self.batch.len(),
                "{} dead rows among {}",
                self.batch.dead,
                self.batch.len()
            );
            return Ok(None);
        }
        if sees_newest(self.isolation, row.flags) {
            return Ok((!deleted).then_some(Value::InBatch));
        }
        match self.resolve(row) {
            Ok(seen) => Ok(seen.then_some(Value::Other)),
            Err(error) => {
                self.batch.back();
                Err(error)
            }
        }
    }

    /// Whether some transaction may see another version of the row than the one in the leaf.
    fn is_live(&self, row: Row) -> bool {
        row.version
            .is_some_and(|address| self.core.is_live(address))
    }

    /// Goes to another range of the tree, or direction, with the same snapshot.
    pub(crate) fn restart(&mut self, (low, high): KeyRange, backward: bool) {
        self.scope = Scope {
            low,
            high,
            backward,
        };
        self.next = Some(self.scope.start());
        self.batch.clear();
        self.limit = FIRST_ROWS;
        self.ahead = ReadAhead::default();
    }

    /// Finds the version of a row that the snapshot sees, and its value.
    fn resolve(&mut self, row: Row) -> Result<bool> {
        self.other.set(self.batch.cell(row));
        if let Some(snapshot) = &self.snapshot
            && !self.core.resolve(snapshot, self.me, &mut self.other)?
        {
            return Ok(false);
        }
        if self.outlines {
            self.outside.take(&self.core, &self.tree, &mut self.other)?;
        } else {
            self.core.value_of(&self.tree, &mut self.other)?;
        }
        Ok(true)
    }

    /// Copies the rows of the next leaf; false at the end. After a failure the leaf is next again.
    fn fill(&mut self) -> Result<bool> {
        self.clean()?;
        let Some(next) = self.next.take() else {
            return Ok(false);
        };
        match self.copy_leaf(&next) {
            Ok(following) => {
                paranoid!(
                    next.is_passed_by(following.as_ref()),
                    "a scan goes on from {next:x?} at {following:x?}"
                );
                self.next = following;
                self.leaf = next;
                Ok(true)
            }
            Err(error) => {
                self.next = Some(next);
                Err(error)
            }
        }
    }

    /// Copies rows of the leaf at `next`. Where to go on.
    fn copy_leaf(&mut self, next: &Next) -> Result<Option<Next>> {
        self.core.storage.poison.check()?;
        self.interrupt.as_ref().map_or(Ok(()), Interrupt::check)?;
        check_not_dropped(&self.tree)?;
        let until = self.scope.until();
        let (leaf, behind) = self
            .tree
            .leaf_of_scan(next.target(), until, &mut self.ahead)?;
        let behind = behind.filter(|_| !self.scope.backward);
        let page = TreePage(&leaf);
        let (from, to) = self.scope.slots(page, next);
        paranoid!(
            from <= page.count() && to <= page.count() && self.limit > 0,
            "{} rows of slots {from}..{to} of {} are to be copied",
            self.limit,
            page.count()
        );
        let to = to.max(from);
        let take = (to - from).min(self.limit);
        let slots = if self.scope.backward {
            to - take..to
        } else {
            from..from + take
        };
        self.batch.copy(page, slots, self.scope.backward);
        self.limit = match self.limit - take {
            _ if self.limit == usize::MAX => usize::MAX,
            0 => usize::MAX,
            left => left.max(ROWS_MIN),
        };
        if take < to - from
            && let Some(key) = self.batch.last_key()
        {
            return Ok(Some(self.scope.following_row(&key)));
        }
        let following = self.scope.following(page);
        if let (Some(_), Some(behind)) = (&following, behind) {
            // Of its rows as many as will be copied, if they are like these.
            let bytes = self.batch.heap_len() / take.max(1) * self.limit.min(page.count());
            self.batch.ahead = self.tree.storage().pool.ahead(behind, bytes, take);
        }
        Ok(following)
    }

    /// After a leaf.
    fn clean(&mut self) -> Result<()> {
        let dead = std::mem::take(&mut self.batch.dead);
        clean_leaf(&self.core, &self.tree, &self.leaf, (dead, self.batch.len()))
    }

    /// The next key that the tree holds, visible or not, and its version.
    pub(crate) fn next_key(&mut self) -> Result<Option<(Vec<u8>, Option<VersionAddress>)>> {
        loop {
            if let Some(row) = self.batch.next() {
                if row.flags & CELL_DELETED != 0 && !self.is_live(row) {
                    self.batch.dead += 1;
                }
                return Ok(Some((self.batch.key().to_vec(), row.version)));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }
}

/// That a tree was not dropped since it was opened.
pub(crate) fn check_not_dropped(tree: &Tree) -> Result<()> {
    if tree.is_dropped() {
        Err(Error::NotFound("the tree (it was dropped)".to_owned()))
    } else {
        Ok(())
    }
}

/// Removes the dead rows of a leaf if they are the majority of those that were read: after a
/// restart nothing else remembers them.
pub(crate) fn clean_leaf(
    core: &Core,
    tree: &Tree,
    leaf: &Next,
    (dead, read): (usize, usize),
) -> Result<()> {
    paranoid!(dead <= read, "{dead} of {read} rows are dead");
    if dead < DEAD_ROWS || dead < read / 2 {
        return Ok(());
    }
    if tree.is_dropped() || !core.before_cleaning()? {
        return Ok(());
    }
    let Some(_tidy) = tree.space.tidy() else {
        return Ok(());
    };
    let latched = tree.leaf_exclusive(leaf.target())?;
    let key = TreePage(&latched).low().to_vec();
    remove_dead_rows(core, latched, None)?;
    core.merge_around(tree, &key)
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.core
            .storage
            .counters
            .add(Counter::RowsRead, self.reads);
    }
}

impl Iterator for Cursor {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_of_iterator(|key, value| Ok((key.to_vec(), value.to_vec())))
    }
}

/// Each call is a statement: if it fails it has no effect, and the transaction goes on (after
/// [`Error::Deadlock`] it is rolled back).
impl Transaction {
    /// Rows of a key range in key order, as of the statement's snapshot.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// for n in 0..10u64 {
    ///     txn.insert(&table, &n.to_be_bytes(), b"")?; // big-endian keys sort as numbers
    /// }
    /// let (low, high) = (3u64.to_be_bytes(), 6u64.to_be_bytes());
    /// let mut rows = txn.range(&table, &low[..]..&high[..])?;
    /// let mut found = 0;
    /// while let Some((_key, _value)) = rows.next_row()? { // or as an iterator, which copies
    ///     found += 1;
    /// }
    /// assert_eq!(found, 3);
    /// assert_eq!(txn.range_backward(&table, ..)?.count(), 10);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn range<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Result<Cursor> {
        self.scan(tree.tree_ref().live(&self.core)?, bounds(range), false)
    }

    /// Rows of a key range in reverse key order.
    pub fn range_backward<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Result<Cursor> {
        self.scan(tree.tree_ref().live(&self.core)?, bounds(range), true)
    }

    /// Has a cursor over a range of `tree` go to another range, or direction, with the memory that
    /// it has, and the snapshot of the statement that goes on now.
    pub fn seek<'k>(
        &self,
        tree: &impl TreeRef,
        cursor: &mut Cursor,
        range: impl RangeBounds<&'k [u8]>,
        backward: bool,
    ) -> Result<()> {
        tree.tree_ref().live(&self.core)?;
        self.core.check_own(&cursor.tree)?;
        let bounds = bounds(range);
        cursor.snapshot = Some(self.begin_scan(&cursor.tree, &bounds)?);
        cursor.restart(bounds, backward);
        Ok(())
    }
}

impl Transaction {
    /// A cursor over a range of a tree, which may have no table, as of the statement's snapshot. At
    /// serializable the range is locked shared first.
    pub(crate) fn scan(&self, tree: &Tree, bounds: KeyRange, backward: bool) -> Result<Cursor> {
        let snapshot = self.begin_scan(tree, &bounds)?;
        let me = self.shared.state.id();
        let mut cursor = Cursor::new(&self.core, tree, Some(snapshot), me, bounds, backward);
        cursor.interrupt.clone_from(&self.interrupt);
        cursor.isolation = self.isolation();
        Ok(cursor)
    }

    fn begin_scan(&self, tree: &Tree, bounds: &KeyRange) -> Result<Snapshot> {
        self.core.storage.poison.check()?;
        self.check_interrupt()?;
        let mut inner = self.active()?;
        if self.isolation().locks_reads() {
            let result = self.lock_scan(&mut inner, tree, bounds, LockMode::Shared, Wait::Timeout);
            self.after_error(inner, result)?;
            inner = self.active()?;
        }
        // Of a range that is locked the newest versions are the ones to read.
        let snapshot = self.snapshot_of(&mut inner, HolderPart::Cursor);
        let complete = tree.check_complete_at(snapshot.seq());
        inner.had_conflict |= complete.is_err();
        complete.map(|()| snapshot)
    }
}
