//! Rows of a table through a transaction.

use super::tables::{Table, TreeRef};
use crate::locks::{LockMode, Locked};
use crate::paranoid::paranoid;
use crate::rows::{
    Cursor, GATHERED_BYTES, GATHERED_ROWS, LockingCursor, LockingScan, RowRef, Wait,
};
use crate::txn::Transaction;
use crate::{Error, Result};
use std::ops::{Bound, RangeBounds};

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
    /// The value of a key, as the statement's snapshot sees it. Takes no lock and waits for no
    /// other transaction, but at [`Isolation::Serializable`](crate::Isolation::Serializable), where
    /// it locks the key shared.
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
    /// ([`Error::LockTimeout`]). A key has at most 3072 bytes (768 in pages of 4 KiB, 1536 in 8
    /// KiB; [`Error::KeyTooLong`]), a value at most 2^30 ([`Error::ValueTooLong`]).
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
        self.insert_or_lock(tree, key, value, LockMode::Shared)
    }

    /// As [`insert`](Self::insert). The row that is there already is locked as `duplicate` says:
    /// exclusively for a caller that is about to change it.
    pub fn insert_or_lock(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        value: &[u8],
        duplicate: LockMode,
    ) -> Result<()> {
        let tree = tree.tree_ref();
        if self.put_new(tree.live()?, key, value, duplicate)? {
            Ok(())
        } else {
            Err(tree.duplicate())
        }
    }

    /// Changes a row's value; [`Error::RowNotFound`] if there is none of this key. Waits as
    /// [`insert`](Self::insert) does. At repeatable read [`Error::WriteConflict`] if the row was
    /// changed by a transaction that committed after this one's snapshot.
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
                let (done, result) = transaction.insert_run(tree.live()?, &batch);
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
    /// what came of the next one: [`Error::DuplicateKey`] or another failure. The rows before it
    /// stay; go back to a [`mark`](Transaction::mark) to undo them.
    pub fn insert_until_duplicate(
        &self,
        tree: &impl TreeRef,
        rows: &[(&[u8], &[u8])],
    ) -> (usize, Result<(), Error>) {
        let tree = tree.tree_ref();
        let (done, result) = match tree.live() {
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

    /// Has a cursor over a range of `tree` go to another range, or direction, with the memory that
    /// it has, and the snapshot of the statement that goes on now.
    pub fn seek<'k>(
        &self,
        tree: &impl TreeRef,
        cursor: &mut Cursor,
        range: impl RangeBounds<&'k [u8]>,
        backward: bool,
    ) -> Result<()> {
        tree.tree_ref().live()?;
        self.scan_again(cursor, bounds(range), backward)
    }

    /// As [`get`](Self::get), into a buffer whose memory is used again. False: there is no such
    /// row.
    pub fn get_into(&self, tree: &impl TreeRef, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.read_into(tree.tree_ref().live()?, key, value)
    }

    /// Locks a row (`SELECT ... FOR SHARE`, `FOR UPDATE`) until the transaction ends, and reads its
    /// newest committed version. `None`: there is no such row, or it is locked and was to be
    /// skipped. At repeatable read [`Error::WriteConflict`] if that version is newer than the
    /// transaction's snapshot. With [`Wait::NoWait`] [`Error::LockNotAvailable`] instead of
    /// waiting.
    pub fn get_locking(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<Option<Vec<u8>>> {
        let found = self.read_locking(tree.tree_ref().live()?, key, mode, wait)?;
        Ok(found.0)
    }

    /// As [`get_locking`](Self::get_locking), and whether that took a lock which the transaction
    /// did not have.
    pub fn get_locking_new(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        mode: LockMode,
        wait: Wait,
    ) -> Result<(Option<Vec<u8>>, Locked)> {
        self.read_locking(tree.tree_ref().live()?, key, mode, wait)
    }

    /// Gives the lock of a row back that a locking read has taken, because the row is not wanted
    /// after all; its waiters go on. Only at read committed and below: at other levels the lock
    /// stays, and this returns false. A row that the transaction has changed stays locked.
    pub fn unlock_row(&self, tree: &impl TreeRef, key: &[u8]) -> Result<bool> {
        self.release_row(tree.tree_ref().live()?, key)
    }

    /// Takes the *statement lock* of a table, and waits for it as for a row's: an exclusive lock
    /// that has nothing to do with its rows, for code that gives out numbers, say. It is given back
    /// when the statement ends ([`end_statement`](Self::end_statement),
    /// [`rollback_statement`](Self::rollback_statement), the next
    /// [`begin_statement`](Self::begin_statement)), or with the transaction. Having it already,
    /// this does nothing.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.begin_statement()?;
    /// txn.lock_for_statement(&table)?;
    /// assert!(db.is_locked_for_statement(&table));
    /// txn.end_statement()?;
    /// assert!(!db.is_locked_for_statement(&table));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn lock_for_statement(&self, table: &Table) -> Result<()> {
        let tree = table.tree_ref().live()?;
        self.take_statement_lock(tree.space.id)
    }

    /// Locks and reads the rows of a range one by one, each as [`get_locking`](Self::get_locking)
    /// does. At serializable the range itself is locked first, so that no row can come in between;
    /// at [`Isolation::LockingRepeatableRead`](crate::Isolation::LockingRepeatableRead) the gaps
    /// that the cursor passes are.
    pub fn range_locking<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingCursor<'_>> {
        self.scan_locking(tree.tree_ref().live()?, bounds(range), false, mode, wait)
    }

    /// As [`range_locking`](Self::range_locking), in either direction, as a state that is kept
    /// apart from the transaction.
    pub fn locking_scan_of<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
        backward: bool,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockingScan> {
        self.locking_scan(tree.tree_ref().live()?, bounds(range), backward, mode, wait)
    }
}
