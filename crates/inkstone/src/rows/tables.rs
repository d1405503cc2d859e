//! Handles of tables and their trees.

use crate::btree::Tree;
use crate::debug::debug_as;
use crate::options::{PageCompression, PagePlacement, TableOptions};
use crate::paranoid::paranoid;
use crate::space::Space;
use crate::txn::core::Core;
use crate::{Error, Result};
use inkstone_format::space::CLUSTERED_TREE;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// A table: a clustered tree and any number of secondary trees in one file. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    pub(crate) trees: Arc<[TableTree]>,
    pub(crate) inner: Arc<TableInner>,
}

debug_as!(
    Table,
    "Table",
    |this| "name" = this.name(),
    "trees" = this.trees.iter().map(TableTree::name).collect::<Vec<_>>()
);

/// What the trees of a table share.
pub(crate) struct TableInner {
    pub name: String,
    pub space: Arc<Space>,
}

/// A tree of a table. Cheap to clone.
#[derive(Clone)]
pub struct TableTree {
    pub(crate) tree: Tree,
    pub(crate) name: Arc<str>,
    pub(crate) table: Arc<TableInner>,
}

debug_as!(
    TableTree,
    "TableTree",
    |this| "table" = this.table.name,
    "name" = this.name()
);

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
    pub(crate) fn over(tree: &Tree, name: &str, name_of_tree: &str) -> Self {
        paranoid!(
            tree.id == CLUSTERED_TREE,
            "tree {} is the first of table {name}",
            tree.id
        );
        let inner = Arc::new(TableInner {
            name: name.to_owned(),
            space: tree.space.clone(),
        });
        let tree = TableTree {
            tree: tree.clone(),
            name: name_of_tree.into(),
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
            .find(|tree| &*tree.name == name)
            .ok_or_else(|| Error::NotFound(format!("tree {name} of table {}", self.inner.name)))
    }

    /// Its file.
    pub fn path(&self) -> &std::path::Path {
        self.inner.space.file().path()
    }

    /// Where its pages are kept, as was chosen when it was made.
    pub fn page_placement(&self) -> PagePlacement {
        let options = self.options();
        options.page_placement.unwrap_or(PagePlacement::InPlace)
    }

    /// How its pages are compressed; [`PageCompression::None`] if they are in place.
    pub fn page_compression(&self) -> PageCompression {
        let options = self.options();
        options.page_compression.unwrap_or(PageCompression::None)
    }

    /// What it was made with; a table that is made with the same is of its kind:
    ///
    /// ```
    /// # use inkstone::{Database, Options, PagePlacement, TableOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let placed = TableOptions::new().page_placement(PagePlacement::Placed);
    /// let table = db.create_table_with("t", &[], &placed)?;
    /// let other = db.create_table_with("other", &[], &table.options())?;
    /// assert_eq!(other.page_placement(), PagePlacement::Placed);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn options(&self) -> TableOptions {
        let options = self.inner.space.file().placement().options();
        paranoid!(
            options.page_placement.is_some() && options.page_compression.is_some(),
            "table {} says of itself {options:?}",
            self.inner.name
        );
        options
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

    /// Its number in its table's file.
    pub fn number(&self) -> u32 {
        self.tree.id.0
    }

    /// The name of its table.
    pub fn table_name(&self) -> &str {
        &self.table.name
    }

    /// Its tree, for a call of the database that `core` is of: it was not dropped, and is of no
    /// other database.
    pub(crate) fn live(&self, core: &Core) -> Result<&Tree> {
        core.check_own(&self.tree)?;
        self.not_dropped()
    }

    /// Its tree, for a call that names no database but the handle's own.
    pub(crate) fn not_dropped(&self) -> Result<&Tree> {
        paranoid!(
            self.tree.space.id == self.table.space.id,
            "tree {} of table {} lies in tablespace {}, the table in {}",
            self.name,
            self.table.name,
            self.tree.space.id,
            self.table.space.id
        );
        self.tree.storage().poison.check()?;
        if self.table.space.is_dropped() {
            return Err(Error::NotFound(format!(
                "table {} (it was dropped)",
                self.table.name
            )));
        }
        if self.tree.is_dropped() {
            return Err(Error::NotFound(format!(
                "tree {} of table {} (it was dropped)",
                self.name, self.table.name
            )));
        }
        Ok(&self.tree)
    }

    pub(crate) fn duplicate(&self) -> Error {
        Error::DuplicateKey {
            table: self.table.name.clone(),
            tree: self.name.to_string(),
        }
    }

    pub(crate) fn missing(&self) -> Error {
        Error::RowNotFound {
            table: self.table.name.clone(),
            tree: self.name.to_string(),
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

/// The bounds of a range of keys.
pub(super) fn bounds<'k>(range: impl RangeBounds<&'k [u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (
        owned(range.start_bound().map(|key| *key)),
        owned(range.end_bound().map(|key| *key)),
    )
}
