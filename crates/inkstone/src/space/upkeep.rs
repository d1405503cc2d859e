//! What a tablespace remembers of its trees that were dropped, and whether it may be tidied.

use super::{SYSTEM_PAGES, Space};
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{HashMap, Mutex, RwLock};
use inkstone_format::{PageNo, TreeId};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Whether a tree was dropped since the tablespace was opened.
    any_dropped: AtomicBool,
    /// How often a tree of each number was.
    drops: Mutex<HashMap<TreeId, u32>>,
    /// The root pages of trees that have handles, or had.
    roots: Mutex<HashMap<TreeId, Arc<AtomicU32>>>,
    /// Shared: dropped trees stay. Exclusive: a page of one is freed. After `frozen`, before any
    /// page.
    trees: RwLock<()>,
    /// Whether it is to be left as it is. Latched shared by a thread that tidies it, before any
    /// page.
    frozen: RwLock<bool>,
}

impl Space {
    /// How many trees of this number were dropped since the tablespace was opened.
    pub fn generation(&self, tree: TreeId) -> u32 {
        if !self.upkeep.any_dropped.load(Ordering::Acquire) {
            return 0;
        }
        let drops = self.upkeep.drops.lock();
        drops.get(&tree).copied().unwrap_or(0)
    }

    /// Notes that a tree was dropped: open handles of it may not be used any more.
    pub fn note_tree_dropped(&self, tree: TreeId) {
        *self.upkeep.drops.lock().entry(tree).or_default() += 1;
        self.upkeep.any_dropped.store(true, Ordering::Release);
    }

    /// Where the handles of a tree find its root, which is at `root` unless it is known to be
    /// elsewhere.
    pub fn live_root(&self, tree: TreeId, root: PageNo) -> Arc<AtomicU32> {
        let mut roots = self.upkeep.roots.lock();
        let known = roots.entry(tree);
        known
            .or_insert_with(|| Arc::new(AtomicU32::new(root.0)))
            .clone()
    }

    /// A root is somewhere else from now on, or gone (page 0). Its page is latched exclusively, if
    /// there was one, and so is page 0.
    pub(super) fn note_root(&self, tree: TreeId, root: PageNo) {
        paranoid!(
            root == PageNo(0) || root.0 >= SYSTEM_PAGES,
            "the root of tree {tree} goes to page {root}"
        );
        let mut roots = self.upkeep.roots.lock();
        if root == PageNo(0) {
            roots.remove(&tree);
        } else if let Some(known) = roots.get(&tree) {
            known.store(root.0, Ordering::Release);
        }
    }

    /// Has dropped trees stay as long as this is held: for estimates, which no transaction
    /// protects. Not to be taken twice by one thread.
    #[must_use]
    pub fn keep_trees(&self) -> impl Sized + '_ {
        self.upkeep.trees.read()
    }

    /// What must be held while a page of a dropped tree is freed. Waits for estimates.
    #[must_use]
    pub fn free_trees(&self) -> impl Sized + '_ {
        self.upkeep.trees.write()
    }

    /// What must be held while pages are changed that no statement changes: purge, removing dead
    /// rows, giving space back. `None`: the tablespace is to be left as it is.
    #[must_use]
    pub fn tidy(&self) -> Option<impl Sized + '_> {
        let frozen = self.upkeep.frozen.read();
        (!*frozen).then_some(frozen)
    }

    /// Has the tablespace left as it is, or not any more. Waits for threads that are tidying it.
    /// False if it was so already.
    pub fn freeze(&self, freeze: bool) -> bool {
        std::mem::replace(&mut *self.upkeep.frozen.write(), freeze) != freeze
    }
}
