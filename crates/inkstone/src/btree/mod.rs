//! B+trees: rows in key order in leaves, which are found from the root, whose page never moves.
//!
//! # Promises
//!
//! 1. A leaf found for a key is latched and covers the key.
//! 2. Changes of the structure (splits, merges, growing the root) are mini-transactions of their
//!    own, never undone, and leave a tree in which everything is found, at every moment.
//! 3. There is no latch on a tree. Inner nodes are read optimistically (version-checked, in
//!    `racy`); a structure change latches the space map, then a parent, then its children.
//! 4. No latch is held over I/O: a structure change that misses a page lets go of everything,
//!    reads the page, and begins again.
//!
//! Leaves are not linked. A page knows its fences, so the next leaf is the one that covers the
//! high fence, the one before is found as the last one below the low fence.
//!
//! Source of the optimistic descent: Leis, Haubenschild, Neumann, "Optimistic Lock Coupling" (2019).
//! It differs in that leaves are latched, and that structure changes begin at the space map.

mod estimate;
mod merge;
mod racy;
mod split;
#[cfg(test)]
mod tests;
mod verify;

pub use racy::Target;
pub use split::SplitFor;
pub use verify::TreeReport;

use crate::buffer::{Exclusive, Optimistic, Shared};
use crate::mtr::{Mtr, Redo};
use crate::space::Space;
use crate::{Error, Result};
use inkstone_format::header::PageType;
use inkstone_format::record::Record;
use inkstone_format::tree_page::{TreePage, TreePageInit};
use inkstone_format::{Corrupt, PageId, PageNo, TreeId};
use racy::RacyPage;
use std::sync::Arc;

/// An open tree. Cheap to clone.
#[derive(Clone)]
pub struct Tree {
    /// The tablespace that it lies in.
    pub space: Arc<Space>,
    /// Its number in the tablespace.
    pub id: TreeId,
    /// Its root page.
    pub root: PageId,
    redo: Redo,
}

impl Tree {
    /// The tree of a known root.
    pub fn new(space: Arc<Space>, id: TreeId, root: PageNo, redo: Redo) -> Self {
        let root = space.page_id(root);
        Self {
            space,
            id,
            root,
            redo,
        }
    }

    /// Opens a tree of a tablespace by its number.
    pub fn open(space: Arc<Space>, id: TreeId, redo: Redo) -> Result<Self> {
        let root = space.root(id)?.ok_or_else(|| {
            Error::corrupt_file(
                space.file().path(),
                0,
                format!("there is no tree {id} in it"),
            )
        })?;
        Ok(Self::new(space, id, root, redo))
    }

    /// Creates an empty tree: one leaf, the root.
    pub fn create(space: Arc<Space>, id: TreeId, redo: Redo) -> Result<Self> {
        let root = {
            let mut frames = redo.pool.reserve(2)?;
            let header_id = space.page_id(PageNo(0));
            redo.pool.load(header_id)?;
            let (mut mtr, found) = space.find_free(1, &mut frames, || Mtr::new(&redo))?;
            let header = mtr.push(redo.pool.exclusive(header_id)?);
            let root = found[0].page;
            let page = space.page_id(root);
            let leaf = mtr.push(redo.pool.create(page, &mut frames)?);
            space.mark(&mut mtr, found[0]);
            let init = TreePageInit {
                tree: id,
                level: 0,
                low: Vec::new(),
                high: None,
            };
            mtr.replay(leaf, &Record::TreeInit { page, init });
            space.set_root(&mut mtr, header, id, root);
            mtr.commit()?;
            root
        };
        Ok(Self::new(space, id, root, redo))
    }

    /// Frees the tree's only page, if it is an empty leaf. For a tree that nobody uses.
    pub fn remove_if_empty(self) -> Result<()> {
        let (redo, space) = (&self.redo, &self.space);
        let header_id = space.page_id(PageNo(0));
        redo.pool.load(header_id)?;
        redo.pool.load(self.root)?;
        let mut mtr = Mtr::new(redo);
        let map = space.latch_map_of(&mut mtr, self.root.page)?;
        let header = mtr.push(redo.pool.exclusive(header_id)?);
        let root = redo.pool.exclusive(self.root)?;
        let page = self.check_node(self.root, &root)?;
        if page.is_leaf() && page.count() == 0 {
            let root = mtr.push(root);
            space.set_root(&mut mtr, header, self.id, PageNo(0));
            space.free(&mut mtr, map, root);
            mtr.commit()?;
        }
        Ok(())
    }

    /// What the tree works on.
    pub fn redo(&self) -> &Redo {
        &self.redo
    }

    /// The leaf of the target, latched shared.
    pub fn leaf_shared(&self, target: Target<'_>) -> Result<Shared<'_>> {
        self.leaf(target, |id| self.redo.pool.shared(id))
    }

    /// The leaf of the target, latched exclusively.
    pub fn leaf_exclusive(&self, target: Target<'_>) -> Result<Exclusive<'_>> {
        self.leaf(target, |id| self.redo.pool.exclusive(id))
    }

    /// The leaf at `hint`, latched exclusively, if it is resident and covers `key`.
    pub fn leaf_at_hint(&self, hint: PageNo, key: &[u8]) -> Option<Exclusive<'_>> {
        let guard = self
            .redo
            .pool
            .exclusive_if_resident(self.space.page_id(hint))?;
        let page = TreePage(&guard);
        let mine = guard[12] == PageType::Leaf as u8 && page.tree() == self.id;
        (mine && page.covers(key)).then_some(guard)
    }

    fn leaf<G>(&self, target: Target<'_>, latch: impl Fn(PageId) -> Result<G>) -> Result<G>
    where
        G: std::ops::Deref<Target = [u8]>,
    {
        loop {
            match self.descend(target, 0)? {
                Descent::Root(_) => {
                    let guard = latch(self.root)?;
                    if self.check_node(self.root, &guard)?.is_leaf() {
                        return Ok(guard);
                    }
                }
                Descent::Child { parent, child, .. } => {
                    let latched = latch(child);
                    if !parent.validate() {
                        continue;
                    }
                    let guard = latched?;
                    self.check_node(child, &guard)?;
                    return Ok(guard);
                }
            }
        }
    }

    /// That a latched page is a node of this tree.
    fn check_node<'g>(&self, id: PageId, page: &'g [u8]) -> Result<TreePage<'g>> {
        let node = matches!(page[12], t if t == PageType::Leaf as u8 || t == PageType::Inner as u8);
        let tree = TreePage(page);
        if node && tree.tree() == self.id {
            return Ok(tree);
        }
        let what = format!(
            "a page of type {} and tree {} where a node of tree {} is expected",
            page[12],
            tree.tree(),
            self.id
        );
        Err(self.corrupt(id, 12, what))
    }

    fn corrupt(&self, id: PageId, at: usize, what: String) -> Error {
        Error::corrupt_page(self.space.file().path(), id, Corrupt::at(at, what))
    }

    /// Goes down to the node at `level` on the target's path.
    fn descend<'p>(&'p self, target: Target<'_>, level: u8) -> Result<Descent<'p>> {
        'restart: loop {
            let mut node = self.redo.pool.optimistic(self.root)?;
            let mut node_id = self.root;
            loop {
                let racy = self.racy(&node);
                let (node_level, page_type) = (racy.level(), racy.page_type());
                let step = racy.child(target);
                if !node.validate() {
                    continue 'restart;
                }
                let (Some(node_level), Some(page_type)) = (node_level, page_type) else {
                    continue 'restart;
                };
                if node_id == self.root && node_level <= level {
                    return Ok(Descent::Root(node));
                }
                if page_type != PageType::Inner as u8 || node_level <= level {
                    return Err(self.corrupt(node_id, 12,
                        format!("type {page_type}, level {node_level} where an inner node above level {level} is expected")));
                }
                let Some((slot, child)) = step else {
                    return Err(self.corrupt(node_id, 30, "no child for the key".to_owned()));
                };
                let child = self.space.page_id(child);
                if node_level == level + 1 {
                    return Ok(Descent::Child {
                        parent: node,
                        slot,
                        child,
                    });
                }
                let next = self.redo.pool.optimistic(child);
                if !node.validate() {
                    continue 'restart;
                }
                (node, node_id) = (next?, child);
            }
        }
    }

    fn racy(&self, node: &Optimistic<'_>) -> RacyPage {
        // SAFETY: frames of the pool stay mapped as long as the pool, which the guard borrows.
        unsafe { RacyPage::new(node.page_ptr(), self.redo.page_size) }
    }

    /// Number of levels; 1 for a tree of one leaf.
    pub fn height(&self) -> Result<u8> {
        let root = self.redo.pool.shared(self.root)?;
        Ok(self.check_node(self.root, &root)?.level() + 1)
    }
}

/// Where a descent ended.
enum Descent<'p> {
    /// The root itself is at the level (or below it).
    Root(Optimistic<'p>),
    /// A node at the level above, and the child on the path.
    Child {
        parent: Optimistic<'p>,
        slot: usize,
        child: PageId,
    },
}
