//! Tables and their trees, and rows through a transaction.

use crate::btree::Tree;
use crate::space::Space;
use crate::txn::locks::LockMode;
use crate::txn::{Cursor, LockingCursor, Transaction, Wait};
use crate::{Error, Result};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A table: a clustered tree and any number of secondary trees in one file. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    pub(super) trees: Arc<[TableTree]>,
    pub(super) inner: Arc<TableInner>,
}

/// What the trees of a table share.
pub(crate) struct TableInner {
    pub name: String,
    pub space: Arc<Space>,
}

/// A tree of a table. Cheap to clone.
#[derive(Clone)]
pub struct TableTree {
    pub(crate) tree: Tree,
    pub(super) name: String,
    pub(super) table: Arc<TableInner>,
}

/// A table (meaning its clustered tree) or one of its trees.
pub trait TreeRef {
    /// The tree.
    fn tree_ref(&self) -> &TableTree;
}

impl TreeRef for Table {
    fn tree_ref(&self) -> &TableTree {
        &self.trees[0]
    }
}

impl TreeRef for TableTree {
    fn tree_ref(&self) -> &TableTree {
        self
    }
}

impl Table {
    /// A table of one tree that is not in the catalog: the catalog itself.
    pub(super) fn over(tree: &Tree, name: &str) -> Self {
        let inner = Arc::new(TableInner {
            name: name.to_owned(),
            space: tree.space.clone(),
        });
        let tree = TableTree {
            tree: tree.clone(),
            name: crate::catalog::CLUSTERED.to_owned(),
            table: inner.clone(),
        };
        Self {
            trees: [tree].into(),
            inner,
        }
    }

    /// Its name when it was opened.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The tree of a name.
    pub fn tree(&self, name: &str) -> Result<&TableTree> {
        self.trees
            .iter()
            .find(|tree| tree.name == name)
            .ok_or_else(|| Error::NotFound(format!("tree {name} of table {}", self.inner.name)))
    }

    /// All of its trees, the clustered one first.
    pub fn trees(&self) -> &[TableTree] {
        &self.trees
    }
}

impl TableTree {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its table.
    pub fn table_name(&self) -> &str {
        &self.table.name
    }

    pub(super) fn live(&self) -> Result<&Tree> {
        self.tree.redo().poison.check()?;
        if self.table.space.is_dropped() {
            return Err(Error::NotFound(format!(
                "table {} (it was dropped)",
                self.table.name
            )));
        }
        Ok(&self.tree)
    }

    fn duplicate(&self) -> Error {
        Error::DuplicateKey {
            table: self.table.name.clone(),
            tree: self.name.clone(),
        }
    }

    fn missing(&self) -> Error {
        Error::RowNotFound {
            table: self.table.name.clone(),
            tree: self.name.clone(),
        }
    }
}

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    match bound {
        Bound::Included(key) => Bound::Included(key.to_vec()),
        Bound::Excluded(key) => Bound::Excluded(key.to_vec()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn bounds<'k>(range: impl RangeBounds<&'k [u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (
        owned(range.start_bound().map(|key| *key)),
        owned(range.end_bound().map(|key| *key)),
    )
}

/// Rows of a tree. Each call is a statement: if it fails it has no effect, and the transaction goes
/// on (after [`Error::Deadlock`] it is rolled back).
impl Transaction {
    /// The value of a key, as the statement's snapshot sees it. Takes no lock and waits for nobody,
    /// but at [`Isolation::Serializable`](crate::Isolation::Serializable), where it locks the key shared.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"value")?;
    /// assert_eq!(txn.get(&table, b"key")?, Some(b"value".to_vec()));
    /// assert_eq!(txn.get(&table, b"other")?, None);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn get(&self, tree: &impl TreeRef, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(tree.tree_ref().live()?, key)
    }

    /// Inserts a row; [`Error::DuplicateKey`] if there is one of this key. Waits for a transaction
    /// that has changed the key and not ended, at most the lock wait timeout
    /// ([`Error::LockTimeout`]). A key has at most 3072 bytes (768 in pages of 4 KiB, 1536 in 8 KiB;
    /// [`Error::KeyTooLong`]), a value at most 2^30 ([`Error::ValueTooLong`]).
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
        let tree = tree.tree_ref();
        if self.put_new(tree.live()?, key, value)? {
            Ok(())
        } else {
            Err(tree.duplicate())
        }
    }

    /// Changes a row's value; [`Error::RowNotFound`] if there is none of this key. Waits as
    /// [`insert`](Self::insert) does. At repeatable read [`Error::WriteConflict`] if the row was
    /// changed by someone who committed after this transaction's snapshot.
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
        if self.change_row(tree.live()?, key, value)? {
            Ok(())
        } else {
            Err(tree.missing())
        }
    }

    /// Inserts or changes a row; true if it was inserted. Waits and fails as
    /// [`update`](Self::update) does.
    pub fn upsert(&self, tree: &impl TreeRef, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put_any(tree.tree_ref().live()?, key, value)
    }

    /// Deletes a row; false if there is none of this key. Waits and fails as
    /// [`update`](Self::update) does. The space comes back when no snapshot needs the row.
    pub fn delete(&self, tree: &impl TreeRef, key: &[u8]) -> Result<bool> {
        self.remove(tree.tree_ref().live()?, key)
    }

    /// Inserts many rows, as one statement: [`Error::DuplicateKey`] undoes those inserted before.
    /// Rows in key order are inserted and logged in runs, which is several times as fast.
    pub fn insert_many<K, V>(
        &self,
        tree: &impl TreeRef,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
    {
        const BATCH: usize = 1024;
        let tree = tree.tree_ref();
        self.statement(|transaction| {
            let mut rows = rows.into_iter();
            let mut total = 0;
            loop {
                let batch: Vec<(Vec<u8>, Vec<u8>)> = rows
                    .by_ref()
                    .take(BATCH)
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect();
                if batch.is_empty() {
                    return Ok(total);
                }
                if transaction.insert_run(tree.live()?, &batch)? < batch.len() {
                    return Err(tree.duplicate());
                }
                total += batch.len() as u64;
            }
        })
    }

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
        self.scan(tree.tree_ref().live()?, bounds(range), false)
    }

    /// Rows of a key range in reverse key order.
    pub fn range_backward<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Result<Cursor> {
        self.scan(tree.tree_ref().live()?, bounds(range), true)
    }

    /// Locks a row (`SELECT ... FOR SHARE`, `FOR UPDATE`) until the transaction ends, and reads its
    /// newest committed version. `None`: there is no such row, or it is locked and was to be
    /// skipped. At repeatable read [`Error::WriteConflict`] if that version is newer than the
    /// transaction's snapshot. With [`Wait::NoWait`] [`Error::LockNotAvailable`] instead of waiting.
    pub fn get_locking(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<Option<Vec<u8>>> {
        self.read_locking(tree.tree_ref().live()?, key, mode, wait)
    }

    /// Locks and reads the rows of a range one by one, each as [`get_locking`](Self::get_locking)
    /// does. Only at serializable is the range itself locked, so that no row can come in between.
    pub fn range_locking<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingCursor<'_>> {
        self.scan_locking(tree.tree_ref().live()?, bounds(range), false, mode, wait)
    }
}
