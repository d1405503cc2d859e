//! Tables and their trees.

use crate::btree::Tree;
use crate::catalog::{CATALOG_SPACE, TableDefinition};
use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use crate::space::Space;
use crate::txn::core::Core;
use crate::{Error, Result};
use inkstone_format::record::Record;
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::{SpaceId, TreeId};
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
    pub(super) name: Arc<str>,
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
            name: crate::catalog::CLUSTERED.into(),
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

    pub(super) fn live(&self) -> Result<&Tree> {
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

    pub(super) fn duplicate(&self) -> Error {
        Error::DuplicateKey {
            table: self.table.name.clone(),
            tree: self.name.to_string(),
        }
    }

    pub(super) fn missing(&self) -> Error {
        Error::RowNotFound {
            table: self.table.name.clone(),
            tree: self.name.to_string(),
        }
    }
}

impl Core {
    /// Has trees removed that a table's file has and its definition does not name: a crash came
    /// between making the tree and naming it, or before all pages of a dropped tree were free; or
    /// the file was imported without them.
    pub(super) fn remove_unnamed_trees(
        &self,
        table: &TableDefinition,
        space: &Space,
    ) -> Result<()> {
        let dropped = self.dropped_trees_of(table.space);
        for tree in (0..PENDING_FREE_TREE.0).map(TreeId) {
            let named = table.trees.iter().any(|(id, _)| *id == tree);
            if !named && !dropped.contains(&tree) && space.root(tree)?.is_some() {
                self.drop_tree(space, tree);
            }
        }
        Ok(())
    }

    /// Says in the log, durably, that a tablespace's file is no longer needed.
    pub(super) fn log_file_delete(&self, space: SpaceId) -> Result<()> {
        paranoid!(space != CATALOG_SPACE, "the catalog's file is to go");
        let mut mtr = Mtr::new(&self.storage);
        mtr.note(&Record::FileDelete { space });
        let (_, end) = mtr.commit()?;
        self.storage.log.wait_durable(end)
    }

    /// Forgets a tablespace and its pages: it is not found any more.
    pub(super) fn forget_space(&self, space: SpaceId) {
        let dropped = self.remove_space(space);
        let pages = dropped.as_ref().map_or(u32::MAX, |it| it.file().pages());
        if let Some(dropped) = dropped {
            dropped.set_dropped();
        }
        self.storage.pool.drop_space(space, pages);
    }
}
