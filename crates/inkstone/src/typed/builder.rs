//! A typed table is described, and opened.

use super::table::TypedTable;
use crate::database::Database;
use crate::debug::debug_as;
use crate::options::TableOptions;
use crate::rows::{Table, TableTree};
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
    /// How they lie.
    pub layout: String,
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

debug_as!(Builder<K, V>, "Builder", |this|
    "name" = this.name,
    "indexes" = this.indexes.iter().map(|index| &index.name).collect::<Vec<_>>(); K, V);

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

    /// A secondary tree on what `extract` makes of a row, which must be unique. `None` is a value
    /// like others: one row may have it.
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
            layout: I::layout(),
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
    /// The same: keys of the table or of an index lie otherwise than those that it was made with,
    /// or an index was not unique and is, or the reverse. A table that was made by an earlier
    /// version, or without types, learns them when it is opened. What an index makes of a row is
    /// not known: if that changes, give the index another name.
    ///
    /// [`Error::AlreadyExists`]: two indexes have one name, or one has that of the rows, `primary`.
    pub fn open(self, db: &Database) -> Result<TypedTable<K, V>> {
        self.check_names()?;
        let layouts = self.layouts();
        let table = match db.table(&self.name) {
            Err(Error::NotFound(_)) => self.create(db, &layouts)?,
            other => other?,
        };
        self.check_trees(&table)?;
        self.check_layouts(db, &layouts)?;
        let mut typed = TypedTable {
            table,
            indexes: self.indexes,
        };
        for (index, (name, layout)) in typed.indexes.iter().zip(&layouts[1..]) {
            if typed.table.tree(name).is_err() {
                let fill = |tree: &TableTree| typed.fill(db, index, tree);
                let layout = Some(layout.clone());
                typed.table = match db.create_filled_tree(&self.name, name, layout, fill) {
                    Err(Error::AlreadyExists(_)) => db.table(&self.name)?,
                    other => other?,
                };
            }
        }
        Ok(typed)
    }

    fn check_names(&self) -> Result<()> {
        let names = self.indexes.iter().map(|index| index.name.as_str());
        let names: Vec<&str> = std::iter::once(CLUSTERED).chain(names).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(Error::AlreadyExists(format!(
                    "tree {name} of table {}: name the index otherwise",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// What the catalog is to say of the trees, that of the rows first: how their keys lie.
    fn layouts(&self) -> Vec<(String, String)> {
        let of_rows = (CLUSTERED.to_owned(), K::layout());
        let of_indexes = self.indexes.iter().map(|index| {
            let unique = if index.unique { "unique " } else { "" };
            (index.name.clone(), format!("{unique}{}", index.layout))
        });
        std::iter::once(of_rows).chain(of_indexes).collect()
    }

    fn create(&self, db: &Database, layouts: &[(String, String)]) -> Result<Table> {
        let names: Vec<&str> = layouts[1..].iter().map(|(name, _)| name.as_str()).collect();
        let layouts: Vec<String> = layouts.iter().map(|(_, layout)| layout.clone()).collect();
        match db.create_laid_out(&self.name, &names, &TableOptions::new(), &layouts) {
            Err(Error::AlreadyExists(_)) => db.table(&self.name),
            other => other,
        }
    }

    /// All secondary trees of the table are declared.
    fn check_trees(&self, table: &Table) -> Result<()> {
        let is_declared = |tree: &&TableTree| self.indexes.iter().any(|i| i.name == tree.name());
        match table.trees().iter().skip(1).find(|tree| !is_declared(tree)) {
            None => Ok(()),
            Some(tree) => Err(Error::Unsupported(format!(
                "table {} has the secondary tree {}, which would not follow its rows: name it as \
                 an index, or remove it with drop_tree",
                self.name,
                tree.name()
            ))),
        }
    }

    /// The catalog says the same, or nothing yet: then it learns it.
    fn check_layouts(&self, db: &Database, declared: &[(String, String)]) -> Result<()> {
        let known = db.layouts(&self.name)?;
        for (tree, layout) in &known {
            let found = declared.iter().find(|(name, _)| name == tree);
            let Some((_, wanted)) = found.filter(|(_, wanted)| wanted != layout) else {
                continue;
            };
            let (what, advice) = if tree == CLUSTERED {
                (
                    "the rows".to_owned(),
                    "open it as that, or name another table",
                )
            } else {
                let advice = "declare it so, or remove it with drop_tree, and it is made anew";
                (format!("index {tree}"), advice)
            };
            return Err(Error::Unsupported(format!(
                "{what} of table {} has keys {layout}, and the program declares {wanted}: {advice}",
                self.name
            )));
        }
        let lacks = |tree: &TableTree| known.iter().all(|(name, _)| name != tree.name());
        if db.table(&self.name)?.trees().iter().any(lacks) && !db.is_read_only() {
            db.add_layouts(&self.name, declared)?;
        }
        Ok(())
    }
}
