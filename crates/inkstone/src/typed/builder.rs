//! A typed table is described, and opened.

use super::table::TypedTable;
use crate::database::Database;
use crate::rows::TableTree;
use crate::{Error, Result};
use inkstone_format::catalog::CLUSTERED;
use inkstone_format::field::{Field, Key};
use std::any::type_name;
use std::sync::Arc;

type Extract<K, V> = dyn Fn(&K, &V, &mut Vec<u8>) + Send + Sync;

/// A secondary tree, and how its entries are made.
pub(super) struct Index<K, V> {
    pub name: String,
    pub unique: bool,
    /// The type of its keys, as the compiler names it.
    pub key_type: &'static str,
    extract: Arc<Extract<K, V>>,
}

impl<K: Key, V: Field> Index<K, V> {
    /// An entry's key and value in the secondary tree.
    pub fn entry(&self, key: &K, value: &V) -> (Vec<u8>, Vec<u8>) {
        let mut entry = Vec::new();
        (self.extract)(key, value, &mut entry);
        if self.unique {
            return (entry, key.to_bytes());
        }
        key.put(&mut entry);
        (entry, Vec::new())
    }
}

/// How a typed table is opened, or created.
pub struct Builder<K, V> {
    pub(super) name: String,
    pub(super) indexes: Vec<Index<K, V>>,
}

impl<K: Key, V: Field> Builder<K, V> {
    /// A secondary tree on what `extract` makes of a row. Several rows may have the same.
    #[must_use]
    pub fn index<I: Key>(
        self,
        name: &str,
        extract: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add(name, false, extract)
    }

    /// A secondary tree on what `extract` makes of a row, which must be unique.
    #[must_use]
    pub fn unique_index<I: Key>(
        self,
        name: &str,
        extract: impl Fn(&K, &V) -> I + Send + Sync + 'static,
    ) -> Self {
        self.add(name, true, extract)
    }

    fn add<I: Key>(
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
