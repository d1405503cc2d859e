//! Typed tables: rows of Rust types, with secondary trees that are kept up to date by themselves.
//!
//! Keys and values are [`Field`]s: integers, strings, bytes, floats, options, tuples of them. Keys
//! sort as the types do; `None` comes first, and floats are in the order of `total_cmp`: -0.0
//! before 0.0 (a range that begins at 0.0 has no -0.0), NaNs at the ends.
//!
//! ```
//! use inkstone::typed::TypedTable;
//! use inkstone::{Database, Isolation, Options};
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path(), Options::default())?;
//! let people = TypedTable::<u64, (String, u32)>::builder("people")
//!     .index("by_age", |_id, (_name, age)| *age)
//!     .open(&db)?;
//! let txn = db.begin(Isolation::RepeatableRead)?;
//! people.insert(&txn, &1, &("Ada".to_owned(), 36))?;
//! people.insert(&txn, &2, &("Alan".to_owned(), 41))?;
//! let older: Vec<u64> = people
//!     .by_index(&txn, "by_age", 40u32..)?
//!     .map(|entry| entry.map(|(_age, id)| id))
//!     .collect::<Result<_, _>>()?;
//! assert_eq!(older, [2]);
//! txn.commit()?;
//! # Ok::<(), inkstone::Error>(())
//! ```

pub use inkstone_format::field::{Descending, Field};

use crate::database::Database;
use crate::options::Durability;
use crate::paranoid::paranoid;
use crate::rows::Cursor;
use crate::rows::{Table, TableTree, TreeRef};
use crate::txn::Transaction;
use crate::{Error, Result};
use inkstone_format::Corrupt;
use inkstone_format::catalog::CLUSTERED;
pub use inkstone_format::codec::Reader;
use std::any::type_name;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

type Extract<K, V> = dyn Fn(&K, &V, &mut Vec<u8>) + Send + Sync;

struct Index<K, V> {
    name: String,
    unique: bool,
    /// The type of its keys, as the compiler names it.
    key_type: &'static str,
    extract: Arc<Extract<K, V>>,
}

/// A table of rows `(K, V)`. See the module.
pub struct TypedTable<K, V> {
    table: Table,
    indexes: Vec<Index<K, V>>,
}

/// How a typed table is opened, or created.
pub struct Builder<K, V> {
    name: String,
    indexes: Vec<Index<K, V>>,
}

impl<K: Field, V: Field> Builder<K, V> {
    /// A secondary tree on what `extract` makes of a row. Several rows may have the same.
    #[must_use]
    pub fn index<I: Field>(
        self,
        name: &str,
        extract: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add(name, false, extract)
    }

    /// A secondary tree on what `extract` makes of a row, which must be unique.
    #[must_use]
    pub fn unique_index<I: Field>(
        self,
        name: &str,
        extract: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add(name, true, extract)
    }

    fn add<I: Field>(
        mut self,
        name: &str,
        unique: bool,
        extract: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Self {
        let extract = Arc::new(move |key: &K, value: &V, out: &mut Vec<u8>| {
            extract(key, value).put(out);
        });
        self.indexes.push(Index {
            name: name.to_owned(),
            unique,
            key_type: type_name::<I>(),
            extract,
        });
        self
    }

    /// Opens the table; creates it, with its secondary trees, if it does not exist. A secondary
    /// tree that the table does not have yet is created and filled, in one durable step: if that
    /// fails ([`Error::DuplicateKey`] for a unique one), or the process ends meanwhile, there is no
    /// such tree, and the next call makes it anew. Nothing else may write the table meanwhile.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: the table has a secondary tree that is not named here. Its entries
    /// would stay as they are while rows change. [`Database::drop_tree`] removes it.
    ///
    /// [`Error::AlreadyExists`]: two indexes have one name, or one has that of the rows, `primary`.
    pub fn open(self, db: &Database) -> Result<TypedTable<K, V>> {
        let names: Vec<&str> = self
            .indexes
            .iter()
            .map(|index| index.name.as_str())
            .collect();
        for (at, name) in names.iter().enumerate() {
            if *name == CLUSTERED || names[..at].contains(name) {
                return Err(Error::AlreadyExists(format!(
                    "tree {name} of table {}: name the index otherwise",
                    self.name
                )));
            }
        }
        let table = match db.table(&self.name) {
            Err(Error::NotFound(_)) => match db.create_table(&self.name, &names) {
                Err(Error::AlreadyExists(_)) => db.table(&self.name)?,
                other => other?,
            },
            other => other?,
        };
        let left_out = |tree: &&TableTree| !names.contains(&tree.name());
        if let Some(tree) = table.trees().iter().skip(1).find(left_out) {
            return Err(Error::Unsupported(format!(
                "table {} has the secondary tree {}, which would not follow its rows: name it as \
                 an index, or remove it with drop_tree",
                self.name,
                tree.name()
            )));
        }
        let mut typed = TypedTable {
            table,
            indexes: self.indexes,
        };
        for at in 0..typed.indexes.len() {
            let index = &typed.indexes[at];
            if typed.table.tree(&index.name).is_err() {
                let fill = |tree: &TableTree| typed.fill(db, index, tree);
                typed.table = match db.create_filled_tree(&self.name, &index.name, fill) {
                    Err(Error::AlreadyExists(_)) => db.table(&self.name)?,
                    other => other?,
                };
            }
        }
        Ok(typed)
    }
}

/// A key range as bytes.
fn byte_bounds<F: Field>(range: &impl RangeBounds<F>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let bytes = |bound: Bound<&F>| match bound {
        Bound::Included(field) => Bound::Included(field.to_bytes()),
        Bound::Excluded(field) => Bound::Excluded(field.to_bytes()),
        Bound::Unbounded => Bound::Unbounded,
    };
    (bytes(range.start_bound()), bytes(range.end_bound()))
}

/// The least byte string that is above everything that begins with `prefix`. `None`: nothing is.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.last() == Some(&0xff) {
        prefix.pop();
    }
    *prefix.last_mut()? += 1;
    Some(prefix)
}

/// The entries of a range of keys that others follow: a bound means all that begin with it.
fn prefix_bounds(range: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (low, high) = range;
    let high = match high {
        Bound::Included(prefix) => after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded),
        other => other,
    };
    match low {
        Bound::Excluded(prefix) => match after_prefix(prefix.clone()) {
            Some(after) => {
                paranoid!(
                    after > prefix && !after.starts_with(&prefix),
                    "{after:x?} is not behind all that begins with {prefix:x?}"
                );
                (Bound::Included(after), high)
            }
            // Nothing is above it.
            None => (Bound::Included(prefix.clone()), Bound::Excluded(prefix)),
        },
        other => (other, high),
    }
}

impl<K: Field, V: Field> TypedTable<K, V> {
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

    /// Fills a secondary tree that has no name yet.
    fn fill(&self, db: &Database, index: &Index<K, V>, tree: &TableTree) -> Result<()> {
        let txn = db.begin(crate::Isolation::RepeatableRead)?;
        for row in self.range(&txn, ..)? {
            let (key, value) = row?;
            let (entry, primary) = Self::entry(index, &key, &value);
            txn.insert(tree, &entry, &primary)?;
        }
        // Durable with its name, which comes after it in the log.
        txn.commit_with(Durability::Lazy)
    }

    fn tree(&self, index: &Index<K, V>) -> Result<&TableTree> {
        self.table.tree(&index.name)
    }

    /// An entry's key and value in a secondary tree.
    fn entry(index: &Index<K, V>, key: &K, value: &V) -> (Vec<u8>, Vec<u8>) {
        let mut entry = Vec::new();
        (index.extract)(key, value, &mut entry);
        if index.unique {
            return (entry, key.to_bytes());
        }
        key.put(&mut entry);
        (entry, Vec::new())
    }

    fn add_entry(&self, txn: &Transaction, index: &Index<K, V>, key: &K, value: &V) -> Result<()> {
        let (entry, primary) = Self::entry(index, key, value);
        txn.insert(self.tree(index)?, &entry, &primary)
    }

    fn remove_entry(
        &self,
        txn: &Transaction,
        index: &Index<K, V>,
        key: &K,
        value: &V,
    ) -> Result<()> {
        let (entry, _) = Self::entry(index, key, value);
        txn.delete(self.tree(index)?, &entry).map(drop)
    }

    fn decode<F: Field>(&self, bytes: &[u8]) -> Result<F> {
        F::from_bytes(bytes).map_err(|corrupt| misfit(&self.table, &corrupt))
    }

    /// The value of a key.
    pub fn get(&self, txn: &Transaction, key: &K) -> Result<Option<V>> {
        let value = txn.get(&self.table, &key.to_bytes())?;
        value.map(|value| self.decode(&value)).transpose()
    }

    /// Inserts a row, with its entries in the secondary trees. [`Error::DuplicateKey`] if the key,
    /// or a unique secondary key, is there already; then nothing is inserted.
    pub fn insert(&self, txn: &Transaction, key: &K, value: &V) -> Result<()> {
        txn.statement(|txn| {
            txn.insert(&self.table, &key.to_bytes(), &value.to_bytes())?;
            self.indexes
                .iter()
                .try_for_each(|index| self.add_entry(txn, index, key, value))
        })
    }

    /// Changes a row. [`Error::RowNotFound`] if there is none.
    pub fn update(&self, txn: &Transaction, key: &K, value: &V) -> Result<()> {
        txn.statement(|txn| {
            // A row that comes behind this look is none: its entries are not known.
            let Some(old) = self.lock(txn, key)? else {
                return Err(self.table.tree_ref().missing());
            };
            txn.update(&self.table, &key.to_bytes(), &value.to_bytes())?;
            for index in &self.indexes {
                if Self::entry(index, key, &old) != Self::entry(index, key, value) {
                    self.remove_entry(txn, index, key, &old)?;
                    self.add_entry(txn, index, key, value)?;
                }
            }
            Ok(())
        })
    }

    /// Inserts or changes a row; true if it was inserted.
    pub fn upsert(&self, txn: &Transaction, key: &K, value: &V) -> Result<bool> {
        if self.lock(txn, key)?.is_some() {
            self.update(txn, key, value).map(|()| false)
        } else {
            self.insert(txn, key, value).map(|()| true)
        }
    }

    /// Deletes a row, with its entries; false if there is none.
    pub fn delete(&self, txn: &Transaction, key: &K) -> Result<bool> {
        txn.statement(|txn| {
            let Some(old) = self.lock(txn, key)? else {
                return Ok(false);
            };
            self.indexes
                .iter()
                .try_for_each(|index| self.remove_entry(txn, index, key, &old))?;
            txn.delete(&self.table, &key.to_bytes())
        })
    }

    /// The newest version of a row, locked: its entries are to be changed with it.
    fn lock(&self, txn: &Transaction, key: &K) -> Result<Option<V>> {
        let (mode, wait) = (crate::LockMode::Exclusive, crate::Wait::Timeout);
        let value = txn.get_locking(&self.table, &key.to_bytes(), mode, wait)?;
        value.map(|value| self.decode(&value)).transpose()
    }

    /// Rows of a key range in key order.
    pub fn range(&self, txn: &Transaction, range: impl RangeBounds<K>) -> Result<Rows<K, V>> {
        Ok(Rows {
            cursor: self.cursor(txn, &range, false)?,
            table: self.table.clone(),
            types: PhantomData,
        })
    }

    /// Rows of a key range in reverse key order.
    pub fn range_backward(
        &self,
        txn: &Transaction,
        range: impl RangeBounds<K>,
    ) -> Result<Rows<K, V>> {
        Ok(Rows {
            cursor: self.cursor(txn, &range, true)?,
            table: self.table.clone(),
            types: PhantomData,
        })
    }

    fn cursor(
        &self,
        txn: &Transaction,
        range: &impl RangeBounds<K>,
        backward: bool,
    ) -> Result<Cursor> {
        let (low, high) = byte_bounds(range);
        let bounds = (as_slice(&low), as_slice(&high));
        if backward {
            txn.range_backward(&self.table, bounds)
        } else {
            txn.range(&self.table, bounds)
        }
    }

    /// Entries of a secondary tree in a range of its keys: the secondary key and the row's key.
    /// [`Error::Unsupported`] if `I` is not what the index was declared with.
    pub fn by_index<I: Field>(
        &self,
        txn: &Transaction,
        name: &str,
        range: impl RangeBounds<I>,
    ) -> Result<Entries<I, K>> {
        let index = self
            .indexes
            .iter()
            .find(|index| index.name == name)
            .ok_or_else(|| {
                Error::NotFound(format!("index {name} of table {}", self.table.name()))
            })?;
        let (declared, asked) = (index.key_type, type_name::<I>());
        if declared != asked {
            return Err(Error::Unsupported(format!(
                "index {name} of table {} has keys of type {declared}, not {asked}",
                self.table.name()
            )));
        }
        let (low, high) = match (index.unique, byte_bounds(&range)) {
            (true, bounds) => bounds,
            // Row keys follow.
            (false, bounds) => prefix_bounds(bounds),
        };
        let cursor = txn.range(self.tree(index)?, (as_slice(&low), as_slice(&high)))?;
        let table = self.table.clone();
        Ok(Entries {
            cursor,
            unique: index.unique,
            table,
            types: PhantomData,
        })
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(bytes) => Bound::Included(bytes),
        Bound::Excluded(bytes) => Bound::Excluded(bytes),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn misfit(table: &Table, corrupt: &Corrupt) -> Error {
    Error::Unsupported(format!(
        "a row of table {} is not of the type that it is read as: {corrupt}",
        table.name()
    ))
}

/// Rows of a range. See [`TypedTable::range`].
pub struct Rows<K, V> {
    cursor: Cursor,
    table: Table,
    types: PhantomData<(K, V)>,
}

impl<K: Field, V: Field> Iterator for Rows<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next_of_iterator(|key, value| {
            let row = K::from_bytes(key).and_then(|key| Ok((key, V::from_bytes(value)?)));
            row.map_err(|corrupt| misfit(&self.table, &corrupt))
        })
    }
}

/// Entries of a secondary tree. See [`TypedTable::by_index`].
pub struct Entries<I, K> {
    cursor: Cursor,
    unique: bool,
    table: Table,
    types: PhantomData<(I, K)>,
}

impl<I: Field, K: Field> Iterator for Entries<I, K> {
    type Item = Result<(I, K)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next_of_iterator(|key, value| {
            let mut r = Reader::new(key);
            let entry = I::get(&mut r).and_then(|index| {
                let primary = if self.unique {
                    K::from_bytes(value)?
                } else {
                    K::get(&mut r)?
                };
                Ok((index, primary))
            });
            entry.map_err(|corrupt| misfit(&self.table, &corrupt))
        })
    }
}
