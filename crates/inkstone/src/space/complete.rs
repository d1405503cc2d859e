//! From which commit on the trees of a tablespace can be read.
//!
//! Rows of a tree that was made, or filled, after a snapshot are none to that snapshot: it would
//! read too few of them, and never learn of it. So a tree remembers the number of the commit from
//! which it is complete. Only trees that were made since the database was opened have one: no
//! snapshot is older than that.

use super::Space;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{HashMap, Mutex};
use inkstone_format::TreeId;

#[derive(Debug, Default)]
pub(super) struct Completeness {
    /// The largest of the numbers.
    newest: AtomicU64,
    trees: Mutex<HashMap<TreeId, u64>>,
}

impl Space {
    /// Notes that snapshots below this number cannot read the tree.
    pub fn set_complete_from(&self, tree: TreeId, number: u64) {
        // First: a snapshot below it looks for the tree from now on.
        let newest = &self.completeness.newest;
        newest.fetch_max(number, Ordering::AcqRel);
        let before = self.completeness.trees.lock().insert(tree, number);
        paranoid!(
            before.is_none_or(|before| before <= number),
            "tree {tree} is complete from {number} on, and was from {before:?}"
        );
    }

    /// Notes that every snapshot can read the tree.
    pub fn set_complete_for_all(&self, tree: TreeId) {
        self.completeness.trees.lock().remove(&tree);
    }

    /// Whether a snapshot of this number sees everything that the tree had when it was made.
    pub fn is_complete_at(&self, tree: TreeId, number: u64) -> bool {
        if number >= self.completeness.newest.load(Ordering::Acquire) {
            return true;
        }
        let trees = self.completeness.trees.lock();
        let newest = self.completeness.newest.load(Ordering::Acquire);
        paranoid!(
            trees.values().all(|&from| from <= newest),
            "a tree is complete from behind {newest} on, the newest of all: {trees:?}"
        );
        trees.get(&tree).is_none_or(|&from| number >= from)
    }
}
