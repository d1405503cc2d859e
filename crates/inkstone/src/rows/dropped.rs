//! Trees that were dropped: their pages are freed by purge, once no transaction can have to undo a
//! change in them. Until then such a tree lies in its file without a name; what a crash leaves of
//! it is found by the next open, and goes on here.

use crate::Result;
use crate::btree::Tree;
use crate::mvcc::Isolation;
use crate::options::Durability;
use crate::paranoid::paranoid;
use crate::rows::write::Write;
use crate::space::Space;
use crate::txn::core::{Core, DroppedTree};
use crate::txn::transaction::Transaction;
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::{SpaceId, TreeId, TrxId};
use std::sync::Arc;

/// Rows with long values that are deleted in one transaction.
const BATCH_ROWS: usize = 64;

impl Core {
    /// Has the pages of a tree freed, which the catalog does not name any more.
    pub fn drop_tree(&self, space: &Space, tree: TreeId) {
        paranoid!(
            tree < PENDING_FREE_TREE,
            "tree {tree} of tablespace {} is dropped, which no table has",
            space.id
        );
        space.note_tree_dropped(tree);
        self.versions.unlist_milestones_of(space.id, tree);
        // After the note: a transaction that finds the tree still there has begun by now.
        let users = self.trxs.active().iter().map(|trx| trx.id()).collect();
        let space = space.id;
        self.dropped_trees
            .lock()
            .push(DroppedTree { space, tree, users });
    }

    /// Trees of a tablespace that were dropped, and whose pages are not all free yet.
    pub fn dropped_trees_of(&self, space: SpaceId) -> Vec<TreeId> {
        let dropped = self.dropped_trees.lock();
        let of_space = dropped.iter().filter(|dropped| dropped.space == space);
        of_space.map(|dropped| dropped.tree).collect()
    }

    /// The tree of a version that purge looks at; `None`: it was dropped.
    pub(crate) fn tree_to_purge(&self, space: SpaceId, tree: TreeId) -> Result<Option<Tree>> {
        if self.dropped_trees_of(space).contains(&tree) {
            return Ok(None);
        }
        let Some(space) = self.space(space)? else {
            return Ok(None);
        };
        let root = space.root(tree)?;
        Ok(root.map(|root| Tree::new(space, tree, root, self.storage.clone())))
    }

    /// Frees the pages of dropped trees that no transaction uses. Called by purge.
    pub(crate) fn remove_dropped_trees(self: &Arc<Self>) -> Result<()> {
        let ready: Vec<(SpaceId, TreeId)> = {
            let mut dropped = self.dropped_trees.lock();
            if dropped.is_empty() {
                return Ok(());
            }
            let active: Vec<TrxId> = self.trxs.active().iter().map(|trx| trx.id()).collect();
            for tree in &mut *dropped {
                tree.users.retain(|user| active.contains(user));
            }
            let free = dropped.iter().filter(|tree| tree.users.is_empty());
            free.map(|tree| (tree.space, tree.tree)).collect()
        };
        for (space, tree) in ready {
            if self.remove_tree(space, tree)? {
                let mut dropped = self.dropped_trees.lock();
                dropped.retain(|dropped| (dropped.space, dropped.tree) != (space, tree));
            }
        }
        Ok(())
    }

    /// True when the tree is gone.
    fn remove_tree(self: &Arc<Self>, space: SpaceId, tree: TreeId) -> Result<bool> {
        let Some(space) = self.space(space)? else {
            return Ok(true);
        };
        let Some(root) = space.root(tree)? else {
            return Ok(true);
        };
        let tree = Tree::new(space.clone(), tree, root, self.storage.clone());
        loop {
            if self.is_stopping() {
                return Ok(false);
            }
            self.before_upkeep()?;
            let Some(_tidy) = space.tidy() else {
                return Ok(false);
            };
            self.give_up_long_values(&tree)?;
            let _free = space.free_trees();
            if !tree.remove_last_page()? {
                return Ok(true);
            }
        }
    }

    /// Deletes the rows of the last leaf that have long values, so that these are freed as they
    /// always are.
    fn give_up_long_values(self: &Arc<Self>, tree: &Tree) -> Result<()> {
        let keys = tree.last_leaf_keys(|cell| cell.is_overflow() && !cell.is_deleted())?;
        for batch in keys.chunks(BATCH_ROWS) {
            let transaction = Transaction::begin_own(self, Isolation::ReadCommitted)?;
            for key in batch {
                transaction.write(tree, key, Write::Delete)?;
            }
            transaction.commit_with(Durability::Lazy)?;
        }
        Ok(())
    }
}
