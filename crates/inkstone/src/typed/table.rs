//! Reading and changing the rows of a typed table.

use super::builder::{Builder, Index};
use super::cursors::{Entries, LockedRows, Rows};
use super::decoded;
use super::ranges::{KeyRange, as_slices, prefix_bounds};
use crate::database::Database;
use crate::debug::debug_as;
use crate::locks::LockMode;
use crate::options::Durability;
use crate::paranoid::paranoid;
use crate::rows::merging::CHANGED_BY_COMBINE;
use crate::rows::{Cursor, Table, TableTree, TreeRef, Wait};
use crate::txn::Transaction;
use crate::{Error, Result};
use inkstone_format::field::{Field, Key};
use std::any::type_name;
use std::marker::PhantomData;
use std::ops::Bound;

/// Keys of [`TypedTable::get_many`] whose pages are read together.
const READ_TOGETHER: usize = 64;
/// Entries of a new index that are inserted in one step.
const INSERTED_TOGETHER: usize = 4096;
/// Where nothing was to be read, the next look is so many times as many keys later: it costs as
/// much as they do.
const CHUNKS_BETWEEN_LOOKS: usize = 8;
/// Entries of rows of a range that are gathered, and deleted in the order of their keys.
const ENTRIES_AT_A_TIME: usize = 8192;

/// A table of rows `(K, V)`. See the [module](super).
pub struct TypedTable<K, V> {
    pub(super) table: Table,
    pub(super) indexes: Vec<Index<K, V>>,
}

debug_as!(TypedTable<K, V>, "TypedTable", |this| "table" = this.table; K, V);

/// What a row is found by in a secondary tree: an entry for each index.
type EntriesOfRow = Vec<(Vec<u8>, Vec<u8>)>;

impl<K: Key, V: Field> TypedTable<K, V> {
    /// Begins to describe a table.
    pub fn builder(name: &str) -> Builder<K, V> {
        Builder {
            name: name.to_owned(),
            indexes: Vec::new(),
        }
    }

    /// The table below.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Fills a secondary tree that has no name yet, with its entries in order.
    pub(super) fn fill(&self, db: &Database, index: &Index<K, V>, tree: &TableTree) -> Result<()> {
        let txn = db.begin(crate::Isolation::RepeatableRead)?;
        let mut sorter = db.sorter();
        for row in self.range(&txn, ..)? {
            let (key, value) = row?;
            let (entry, primary) = index.entry(&key, &value);
            sorter.add(&entry, &primary)?;
        }
        let mut sorted = sorter.sort()?;
        while txn
            .insert_sorted(tree, &mut sorted, INSERTED_TOGETHER)?
            .rows
            > 0
        {}
        // Durable with its name, which comes after it in the log.
        txn.commit_with(Durability::Lazy)
    }

    fn tree(&self, index: &Index<K, V>) -> Result<&TableTree> {
        self.table.tree(&index.name)
    }

    fn entries(&self, key: &K, value: &V) -> EntriesOfRow {
        let entry = |index: &Index<K, V>| index.entry(key, value);
        self.indexes.iter().map(entry).collect()
    }

    fn decode<F: Field>(&self, bytes: &[u8]) -> Result<F> {
        decoded(&self.table, F::from_bytes(bytes))
    }
}

/// One row.
impl<K: Key, V: Field> TypedTable<K, V> {
    /// The value of a key, as [`Transaction::get`] sees it.
    pub fn get(&self, txn: &Transaction, key: &K) -> Result<Option<V>> {
        let value = txn.get(&self.table, &key.to_bytes())?;
        value.map(|value| self.decode(&value)).transpose()
    }

    /// Locks a row and reads its newest committed version: see [`Transaction::get_locking`]. What
    /// is read stays true until the transaction ends.
    ///
    /// ```
    /// use inkstone::typed::TypedTable;
    /// use inkstone::{Database, Isolation, LockMode, Options, Wait};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let seats = TypedTable::<u32, Option<String>>::builder("seats").open(&db)?;
    /// db.transact(Isolation::ReadCommitted, |txn| seats.insert(txn, &7, &None))?;
    /// let booked = db.transact(Isolation::ReadCommitted, |txn| {
    ///     match seats.get_locking(txn, &7, LockMode::Exclusive, Wait::Timeout)? {
    ///         Some(None) => seats.update(txn, &7, &Some("Ada".to_owned())).map(|()| true),
    ///         _ => Ok(false),
    ///     }
    /// })?;
    /// assert!(booked);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn get_locking(
        &self,
        txn: &Transaction,
        key: &K,
        mode: LockMode,
        wait: Wait,
    ) -> Result<Option<V>> {
        let value = txn.get_locking(&self.table, &key.to_bytes(), mode, wait)?;
        value.map(|value| self.decode(&value)).transpose()
    }

    /// The values of many keys, in the order of the keys, all of one snapshot: their pages are read
    /// together where they are not in memory.
    ///
    /// ```
    /// # use inkstone::typed::TypedTable;
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let squares = TypedTable::<u32, u64>::builder("squares").open(&db)?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// squares.insert(&txn, &3, &9)?;
    /// assert_eq!(squares.get_many(&txn, &[2, 3])?, [None, Some(9)]);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn get_many(&self, txn: &Transaction, keys: &[K]) -> Result<Vec<Option<V>>> {
        txn.with_one_snapshot(|txn| {
            let mut values = Vec::with_capacity(keys.len());
            let mut bytes = Vec::new();
            let mut looks_at = 0;
            for (n, keys) in keys.chunks(READ_TOGETHER).enumerate() {
                let keys: Vec<Vec<u8>> = keys.iter().map(Field::to_bytes).collect();
                if n >= looks_at && txn.prefetch(&self.table, &keys)? == 0 {
                    looks_at = n + CHUNKS_BETWEEN_LOOKS;
                }
                for key in &keys {
                    let found = txn.get_into(&self.table, key, &mut bytes)?;
                    values.push(found.then(|| self.decode(&bytes)).transpose()?);
                }
            }
            paranoid!(
                values.len() == keys.len(),
                "{} values of {} keys",
                values.len(),
                keys.len()
            );
            Ok(values)
        })
    }

    /// Inserts a row, with its entries in the secondary trees. [`Error::DuplicateKey`] if the key,
    /// or a unique secondary key, is there already; then nothing is inserted.
    pub fn insert(&self, txn: &Transaction, key: &K, value: &V) -> Result<()> {
        txn.statement(|txn| {
            txn.insert(&self.table, &key.to_bytes(), &value.to_bytes())?;
            self.indexes.iter().try_for_each(|index| {
                let (entry, primary) = index.entry(key, value);
                txn.insert(self.tree(index)?, &entry, &primary)
            })
        })
    }

    /// Changes a row. [`Error::RowNotFound`] if there is none.
    pub fn update(&self, txn: &Transaction, key: &K, value: &V) -> Result<()> {
        txn.statement(|txn| {
            let old = self.entries(key, &self.lock(txn, key)?);
            self.replace(txn, key, &old, value)
        })
    }

    /// Locks a row, has `change` change its value, and writes that: no other transaction's change
    /// comes in between. What `change` returns; [`Error::RowNotFound`] if there is no row. `change`
    /// may use the transaction, but for this row: [`Error::TransactionState`] if it has changed,
    /// deleted or restored it, and nothing of it is kept.
    ///
    /// ```
    /// # use inkstone::typed::TypedTable;
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let counters = TypedTable::<String, u64>::builder("counters").open(&db)?;
    /// let visits = "visits".to_owned();
    /// db.transact(Isolation::ReadCommitted, |txn| counters.insert(txn, &visits, &0))?;
    /// let ticket = db.transact(Isolation::ReadCommitted, |txn| {
    ///     counters.update_with(txn, &visits, |count| {
    ///         *count += 1;
    ///         *count
    ///     })
    /// })?;
    /// assert_eq!(ticket, 1);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn update_with<R>(
        &self,
        txn: &Transaction,
        key: &K,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R> {
        txn.statement(|txn| {
            let stored = self.lock_stored(txn, key)?;
            let stored = stored.ok_or_else(|| self.table.tree_ref().missing())?;
            let mut value = self.decode(&stored)?;
            let old = self.entries(key, &value);
            let before = txn.progress()?;
            let result = change(&mut value);
            if txn.progress()? != before && self.lock_stored(txn, key)? != Some(stored) {
                return Err(Error::TransactionState(
                    "changing a row by update_with, whose closure has changed that row itself",
                ));
            }
            self.replace(txn, key, &old, &value)?;
            Ok(result)
        })
    }

    /// Gives `combine` the newest committed value of a row (`None`: there is no row), and makes
    /// what it returns the row's value: as [`Transaction::merge`], for changes that come to the
    /// same in any order. At repeatable read what others have changed since the snapshot is no
    /// conflict. `combine` may use the transaction, but for this row, as there.
    ///
    /// ```
    /// # use inkstone::typed::TypedTable;
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let counters = TypedTable::<String, u64>::builder("counters").open(&db)?;
    /// let visits = "visits".to_owned();
    /// for _ in 0..2 {
    ///     db.transact(Isolation::RepeatableRead, |txn| {
    ///         counters.merge(txn, &visits, |count| count.unwrap_or(0) + 1)
    ///     })?;
    /// }
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// assert_eq!(counters.get(&txn, &visits)?, Some(2));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn merge(
        &self,
        txn: &Transaction,
        key: &K,
        mut combine: impl FnMut(Option<V>) -> V,
    ) -> Result<()> {
        txn.statement(|txn| {
            loop {
                let read = || txn.passing_over(|| self.lock_stored(txn, key));
                let stored = read()?;
                let old = stored.as_ref().map(|stored| self.decode(stored));
                let old = old.transpose()?;
                let entries = old.as_ref().map(|old| self.entries(key, old));
                let before = txn.progress()?;
                let value = combine(old);
                if txn.progress()? != before && read()? != stored {
                    return Err(Error::TransactionState(CHANGED_BY_COMBINE));
                }
                let written = txn.passing_over(|| match &entries {
                    Some(entries) => self.replace(txn, key, entries, &value),
                    None => self.insert(txn, key, &value),
                });
                let has_come = entries.is_none()
                    && matches!(written, Err(Error::DuplicateKey { .. }))
                    && read()?.is_some();
                if !has_come {
                    return written;
                }
            }
        })
    }

    /// Inserts or changes a row; true if it was inserted.
    pub fn upsert(&self, txn: &Transaction, key: &K, value: &V) -> Result<bool> {
        txn.statement(|txn| match self.lock_if_there(txn, key)? {
            Some(old) => {
                let old = self.entries(key, &old);
                self.replace(txn, key, &old, value).map(|()| false)
            }
            None => self.insert(txn, key, value).map(|()| true),
        })
    }

    /// Deletes a row, with its entries; false if there is none.
    pub fn delete(&self, txn: &Transaction, key: &K) -> Result<bool> {
        txn.statement(|txn| match self.lock_if_there(txn, key)? {
            Some(old) => {
                self.remove_entries(txn, &self.entries(key, &old))?;
                txn.delete(&self.table, &key.to_bytes())
            }
            None => Ok(false),
        })
    }

    /// The newest version of a row, locked: its entries are to be changed with it. A row that comes
    /// behind this look is none.
    fn lock(&self, txn: &Transaction, key: &K) -> Result<V> {
        let value = self.lock_if_there(txn, key)?;
        value.ok_or_else(|| self.table.tree_ref().missing())
    }

    /// The bytes of the newest version of a row, locked.
    fn lock_stored(&self, txn: &Transaction, key: &K) -> Result<Option<Vec<u8>>> {
        let (mode, wait) = (LockMode::Exclusive, Wait::Timeout);
        txn.get_locking(&self.table, &key.to_bytes(), mode, wait)
    }

    fn lock_if_there(&self, txn: &Transaction, key: &K) -> Result<Option<V>> {
        self.get_locking(txn, key, LockMode::Exclusive, Wait::Timeout)
    }

    /// Writes the value of a row that is locked, and has the entries `old`.
    fn replace(&self, txn: &Transaction, key: &K, old: &EntriesOfRow, value: &V) -> Result<()> {
        txn.update(&self.table, &key.to_bytes(), &value.to_bytes())?;
        for (index, old) in self.indexes.iter().zip(old) {
            let new = index.entry(key, value);
            if new != *old {
                txn.delete(self.tree(index)?, &old.0)?;
                txn.insert(self.tree(index)?, &new.0, &new.1)?;
            }
        }
        Ok(())
    }

    fn remove_entries(&self, txn: &Transaction, entries: &EntriesOfRow) -> Result<()> {
        for (index, (entry, _)) in self.indexes.iter().zip(entries) {
            txn.delete(self.tree(index)?, entry)?;
        }
        Ok(())
    }
}

/// Ranges of rows.
impl<K: Key, V: Field> TypedTable<K, V> {
    /// Rows of a key range in key order. Of all keys that begin alike:
    /// [`starting_with`](super::starting_with).
    pub fn range(&self, txn: &Transaction, range: impl KeyRange<K>) -> Result<Rows<K, V>> {
        let bounds = range.byte_bounds();
        Ok(self.rows(txn.range(&self.table, as_slices(&bounds))?))
    }

    /// Rows of a key range in reverse key order.
    pub fn range_backward(&self, txn: &Transaction, range: impl KeyRange<K>) -> Result<Rows<K, V>> {
        let bounds = range.byte_bounds();
        Ok(self.rows(txn.range_backward(&self.table, as_slices(&bounds))?))
    }

    fn rows(&self, cursor: Cursor) -> Rows<K, V> {
        Rows {
            cursor,
            table: self.table.clone(),
            types: PhantomData,
        }
    }

    /// Locks and reads the rows of a range one by one, in key order: see
    /// [`Transaction::range_locking`].
    ///
    /// ```
    /// use inkstone::typed::TypedTable;
    /// use inkstone::{Database, Isolation, LockMode, Options, Wait};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let jobs = TypedTable::<u64, String>::builder("jobs").open(&db)?;
    /// db.transact(Isolation::ReadCommitted, |txn| {
    ///     (1..=3).try_for_each(|id| jobs.insert(txn, &id, &format!("job {id}")))
    /// })?;
    /// // Each worker takes the first job that no other one has.
    /// let take = |txn: &_| -> inkstone::Result<Option<String>> {
    ///     let mut free = jobs.range_locking(txn, .., LockMode::Exclusive, Wait::SkipLocked)?;
    ///     let Some((id, job)) = free.next().transpose()? else {
    ///         return Ok(None);
    ///     };
    ///     jobs.delete(txn, &id)?;
    ///     Ok(Some(job))
    /// };
    /// let ada = db.begin(Isolation::ReadCommitted)?;
    /// let alan = db.begin(Isolation::ReadCommitted)?;
    /// assert_eq!(take(&ada)?.as_deref(), Some("job 1"));
    /// assert_eq!(take(&alan)?.as_deref(), Some("job 2"));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn range_locking<'t>(
        &self,
        txn: &'t Transaction,
        range: impl KeyRange<K>,
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockedRows<'t, K, V>> {
        let bounds = range.byte_bounds();
        Ok(LockedRows {
            cursor: txn.range_locking(&self.table, as_slices(&bounds), mode, wait)?,
            table: self.table.clone(),
            types: PhantomData,
        })
    }

    /// Deletes all rows of a range, with their entries; how many there were. If it fails none is
    /// deleted. It locks the whole range exclusively, as [`Transaction::delete_range`] does, which
    /// says what it costs: without indexes, and of all rows (`..`), not much more than a record for
    /// each leaf. With indexes the rows of a part are read, to name their entries, and those are
    /// deleted in the order of their keys, one by one.
    ///
    /// ```
    /// # use inkstone::typed::{TypedTable, starting_with};
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let events = TypedTable::<(u32, u64), String>::builder("events").open(&db)?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// for at in 0..10 {
    ///     events.insert(&txn, &(7, at), &"an event".to_owned())?;
    /// }
    /// assert_eq!(events.delete_range(&txn, ..(7, 4))?, 4);
    /// assert_eq!(events.delete_range(&txn, starting_with((7,)))?, 6);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn delete_range(&self, txn: &Transaction, range: impl KeyRange<K>) -> Result<u64> {
        let bounds = range.byte_bounds();
        txn.statement(|txn| {
            let whole = matches!(bounds, (Bound::Unbounded, Bound::Unbounded));
            if whole {
                for index in &self.indexes {
                    self.tree(index)?;
                }
            }
            if !whole && !self.indexes.is_empty() {
                txn.lock_to_delete(&self.table, as_slices(&bounds))?;
                self.remove_entries_of(txn, as_slices(&bounds))?;
            }
            let deleted = txn.delete_range(&self.table, as_slices(&bounds))?;
            if whole {
                for index in &self.indexes {
                    let entries = txn.delete_range(self.tree(index)?, ..)?;
                    paranoid!(
                        entries == deleted,
                        "{deleted} rows had {entries} entries in {}",
                        index.name
                    );
                }
            }
            Ok(deleted)
        })
    }

    /// Deletes all rows, with their entries; how many there were. It is
    /// [`delete_range`](Self::delete_range) of all keys: a part of the transaction, which older
    /// snapshots do not see and a rollback takes back.
    ///
    /// ```
    /// # use inkstone::typed::TypedTable;
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let events = TypedTable::<u64, String>::builder("events").open(&db)?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// events.insert(&txn, &1, &"an event".to_owned())?;
    /// assert_eq!(events.truncate(&txn)?, 1);
    /// assert_eq!(events.get(&txn, &1)?, None);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn truncate(&self, txn: &Transaction) -> Result<u64> {
        self.delete_range(txn, ..)
    }

    /// Deletes the entries of all rows of a range, which is locked.
    fn remove_entries_of(
        &self,
        txn: &Transaction,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<()> {
        let (mode, wait) = (LockMode::Exclusive, Wait::Timeout);
        let mut rows = txn.range_locking(&self.table, bounds, mode, wait)?;
        let mut batch: Vec<Vec<Vec<u8>>> = vec![Vec::new(); self.indexes.len()];
        loop {
            let row = rows.next_row()?;
            if let Some((key, value)) = &row {
                let (key, value) = (self.decode(key)?, self.decode(value)?);
                let entries = self.entries(&key, &value);
                for (batch, (entry, _)) in batch.iter_mut().zip(entries) {
                    batch.push(entry);
                }
            }
            let is_full = batch.first().is_some_and(|b| b.len() >= ENTRIES_AT_A_TIME);
            if row.is_none() || is_full {
                for (index, batch) in self.indexes.iter().zip(&mut batch) {
                    batch.sort_unstable();
                    for entry in batch.drain(..) {
                        txn.delete(self.tree(index)?, &entry)?;
                    }
                }
            }
            if row.is_none() {
                return Ok(());
            }
        }
    }
}

/// Rows by their secondary keys.
impl<K: Key, V: Field> TypedTable<K, V> {
    /// The row of a secondary key of a unique index: its key and its value.
    /// [`Error::Unsupported`] if the index is not unique, or `I` is not what it was declared with.
    pub fn get_by_index<I: Key>(
        &self,
        txn: &Transaction,
        name: &str,
        secondary: &I,
    ) -> Result<Option<(K, V)>> {
        let index = self.index::<I>(name)?;
        if !index.unique {
            return Err(Error::Unsupported(format!(
                "index {name} of table {} is not unique: by_index has its entries",
                self.table.name()
            )));
        }
        txn.with_one_snapshot(|txn| {
            let primary = txn.get(self.tree(index)?, &secondary.to_bytes())?;
            let Some(primary) = primary else {
                return Ok(None);
            };
            let Some(value) = txn.get(&self.table, &primary)? else {
                return Ok(None);
            };
            Ok(Some((self.decode(&primary)?, self.decode(&value)?)))
        })
    }

    /// Entries of a secondary tree in a range of its keys: the secondary key and the row's key.
    /// [`Error::Unsupported`] if `I` is not what the index was declared with.
    pub fn by_index<I: Key>(
        &self,
        txn: &Transaction,
        name: &str,
        range: impl KeyRange<I>,
    ) -> Result<Entries<I, K>> {
        self.entries_of(txn, name, range, false)
    }

    /// As [`by_index`](Self::by_index), in reverse order.
    ///
    /// ```
    /// # use inkstone::typed::TypedTable;
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let people = TypedTable::<u64, u32>::builder("ages")
    ///     .index("by_age", |_, age| *age)
    ///     .open(&db)?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// people.insert(&txn, &1, &36)?;
    /// people.insert(&txn, &2, &41)?;
    /// let oldest = people.by_index_backward::<u32>(&txn, "by_age", ..)?.next();
    /// assert_eq!(oldest.transpose()?, Some((41, 2)));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn by_index_backward<I: Key>(
        &self,
        txn: &Transaction,
        name: &str,
        range: impl KeyRange<I>,
    ) -> Result<Entries<I, K>> {
        self.entries_of(txn, name, range, true)
    }

    fn entries_of<I: Key>(
        &self,
        txn: &Transaction,
        name: &str,
        range: impl KeyRange<I>,
        backward: bool,
    ) -> Result<Entries<I, K>> {
        let index = self.index::<I>(name)?;
        let bounds = if index.unique {
            range.byte_bounds()
        } else {
            // Row keys follow.
            prefix_bounds(range.byte_bounds())
        };
        let (tree, bounds) = (self.tree(index)?, as_slices(&bounds));
        let cursor = if backward {
            txn.range_backward(tree, bounds)?
        } else {
            txn.range(tree, bounds)?
        };
        Ok(Entries {
            cursor,
            unique: index.unique,
            table: self.table.clone(),
            types: PhantomData,
        })
    }

    /// The index of a name, whose keys are of type `I`.
    fn index<I: Key>(&self, name: &str) -> Result<&Index<K, V>> {
        let index = self.indexes.iter().find(|index| index.name == name);
        let index = index.ok_or_else(|| {
            Error::NotFound(format!("index {name} of table {}", self.table.name()))
        })?;
        let (declared, asked) = (index.key_type, type_name::<I>());
        if declared != asked {
            return Err(Error::Unsupported(format!(
                "index {name} of table {} has keys of type {declared}, not {asked}",
                self.table.name()
            )));
        }
        Ok(index)
    }
}
