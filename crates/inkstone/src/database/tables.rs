//! Tables that are dropped, and trees that no table has.

use crate::Result;
use crate::catalog::{CATALOG_SPACE, TableDefinition};
use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use crate::space::Space;
use crate::txn::core::Core;
use inkstone_format::record::Record;
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::{SpaceId, TreeId};

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
        paranoid!(
            dropped.as_ref().is_none_or(|dropped| dropped.id == space),
            "tablespace {space} was forgotten under the name of another"
        );
        let pages = dropped.as_ref().map_or(u32::MAX, |it| it.file().pages());
        if let Some(dropped) = dropped {
            dropped.set_dropped();
        }
        // Before its pages leave the pool, or a reader that comes for one would get an older one
        // from the file, or none.
        self.set_file_dropped(space);
        self.storage.pool.drop_space(space, pages);
    }
}
