//! B+trees: rows in key order in leaves, which are found from the root.
//!
//! # Promises
//!
//! 1. A leaf found for a key is latched and covers the key. Tested by
//!    `scans_while_leaves_split_and_merge`, `every_page_size_against_a_model`.
//! 2. Changes of the structure (splits, merges, growing the root) are mini-transactions of their
//!    own, never undone, and leave a tree in which everything is found, at every moment. Tested by
//!    `scans_while_leaves_split_and_merge`, `nothing_acknowledged_is_lost_in_a_crash`.
//!
//! There is no latch on a tree. Inner nodes are read optimistically (version-checked, in `racy`);
//! a structure change latches the space map, then a parent, then its children. No latch is held
//! over I/O: a structure change that misses a page lets go of everything, reads the page, and
//! begins again.
//!
//! Leaves are not linked. A page knows its fences, so the next leaf is the one that covers the
//! high fence, the one before is found as the last one below the low fence.
//!
//! Source of the optimistic descent: Leis, Haubenschild, Neumann, "Optimistic Lock Coupling"
//! (2019). It differs in that leaves are latched, and that structure changes begin at the space
//! map.

mod ahead;
mod compact;
mod estimate;
mod merge;
mod racy;
mod remove;
mod split;
#[cfg(test)]
mod tests;
mod verify;

pub use ahead::ReadAhead;
pub use compact::{Moving, Packing};
pub use estimate::RangeEstimates;
pub use merge::Merging;
pub use racy::Target;
pub use split::SplitFor;
pub use verify::TreeReport;

use crate::buffer::{Exclusive, Optimistic, Pins, Shared};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::space::Space;
use crate::storage::Storage;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::{Error, Result};
use inkstone_format::header::{PAGE_TYPE_AT, PageType};
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
    /// Its root page, for all handles of the tree.
    root: Arc<AtomicU32>,
    /// Of the trees that had this number one after the other.
    generation: u32,
    storage: Storage,
}

impl Tree {
    /// The tree of a known root.
    pub fn new(space: Arc<Space>, id: TreeId, root: PageNo, storage: Storage) -> Self {
        let (root, generation) = (space.live_root(id, root), space.generation(id));
        Self {
            generation,
            space,
            id,
            root,
            storage,
        }
    }

    /// Opens a tree of a tablespace by its number.
    pub fn open(space: Arc<Space>, id: TreeId, storage: Storage) -> Result<Self> {
        let root = space.root(id)?.ok_or_else(|| {
            Error::corrupt_file(
                space.file().path(),
                0,
                format!("there is no tree {id} in it"),
            )
        })?;
        Ok(Self::new(space, id, root, storage))
    }

    /// Creates an empty tree: one leaf, the root.
    pub fn create(space: Arc<Space>, id: TreeId, storage: Storage) -> Result<Self> {
        let root = {
            let mut frames = storage.pool.reserve(2)?;
            let header_id = space.page_id(PageNo(0));
            let mut pins = storage.pool.pins();
            let (mut mtr, found, header) = loop {
                pins.hold(header_id)?;
                let (mtr, found) = space.find_free(1, &mut frames, || Mtr::new(&storage))?;
                if let Some(header) = storage.pool.exclusive_if_resident(header_id) {
                    break (mtr, found, header);
                }
            };
            let header = mtr.push(header);
            let root = found[0].page;
            let page = space.page_id(root);
            let leaf = mtr.push(storage.pool.create(page, &mut frames)?);
            space.mark(&mut mtr, found[0]);
            let init = TreePageInit {
                tree: id,
                level: 0,
                low: Vec::new(),
                high: None,
            };
            mtr.replay(leaf, &Record::TreeInit { page, init });
            paranoid!(
                TreePage(mtr.page(leaf)).is_leaf() && TreePage(mtr.page(leaf)).count() == 0,
                "tree {id} begins with a page that is no empty leaf"
            );
            space.set_root(&mut mtr, header, id, root);
            mtr.commit()?;
            root
        };
        Ok(Self::new(space, id, root, storage))
    }

    /// Frees the tree's only page, if it is an empty leaf. For a tree that is not in use.
    pub fn remove_if_empty(self) -> Result<()> {
        let (storage, space) = (&self.storage, &self.space);
        let header_id = space.page_id(PageNo(0));
        let mut pins = storage.pool.pins();
        pins.hold(header_id)?;
        let root_id = self.root();
        pins.hold(root_id)?;
        let mut mtr = Mtr::new(storage);
        let map = space.latch_map_of(&mut mtr, root_id.page)?;
        let header = mtr.push(storage.pool.exclusive(header_id)?);
        let root = storage.pool.exclusive(root_id)?;
        let page = self.check_node(root_id, &root)?;
        if page.is_leaf() && page.count() == 0 {
            let root = mtr.push(root);
            space.set_root(&mut mtr, header, self.id, PageNo(0));
            space.free(&mut mtr, map, root);
            mtr.commit()?;
        }
        Ok(())
    }

    /// Fails if a snapshot of this number is older than the tree, and would see too few of its
    /// rows.
    pub fn check_complete_at(&self, number: u64) -> Result<()> {
        if self.space.is_complete_at(self.id, number) || mutants::on(Mutant::NewerTableRead) {
            Ok(())
        } else {
            Err(Error::TableChanged {
                path: self.space.file().path().to_owned(),
            })
        }
    }

    /// Whether the tree was dropped since it was opened.
    pub fn is_dropped(&self) -> bool {
        self.space.is_dropped() || self.space.generation(self.id) != self.generation
    }

    /// Its root page. It moves when the tree's file is compacted: what was latched is the root if
    /// this says so afterwards.
    #[inline]
    pub fn root(&self) -> PageId {
        self.space
            .page_id(PageNo(self.root.load(Ordering::Acquire)))
    }

    /// The root, latched shared.
    fn root_shared(&self) -> Result<Shared<'_>> {
        loop {
            let root = self.root();
            let latched = self.storage.pool.shared(root);
            if self.root() == root {
                return latched;
            }
        }
    }

    /// What the tree works on.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The leaf of the target, latched shared.
    pub fn leaf_shared(&self, target: Target<'_>) -> Result<Shared<'_>> {
        self.leaf(target, |id| self.storage.pool.shared(id), |_, _, _| {})
    }

    /// As `leaf_shared`, for a scan of leaves until one that covers this key, and the page that
    /// seems to be the leaf behind it: a hint.
    pub fn leaf_of_scan(
        &self,
        target: Target<'_>,
        until: Option<&[u8]>,
        ahead: &mut ReadAhead,
    ) -> Result<(Shared<'_>, Option<PageId>)> {
        let mut next = None;
        let latch = |id| self.storage.pool.shared(id);
        let leaf = self.leaf(target, latch, |parent, slot, child| {
            next = self.racy(parent).child_behind(slot);
            self.read_ahead((parent, child), target, until, ahead);
        })?;
        Ok((leaf, next.map(|page| self.space.page_id(page))))
    }

    /// The leaf of the target, latched exclusively.
    pub fn leaf_exclusive(&self, target: Target<'_>) -> Result<Exclusive<'_>> {
        self.leaf(target, |id| self.storage.pool.exclusive(id), |_, _, _| {})
    }

    /// The leaf at `hint`, latched exclusively, if it is resident and covers `key`.
    pub fn leaf_at_hint(&self, hint: PageNo, key: &[u8]) -> Option<Exclusive<'_>> {
        let guard = self
            .storage
            .pool
            .exclusive_if_resident(self.space.page_id(hint))?;
        self.is_leaf_of(&guard, Target::Key(key)).then_some(guard)
    }

    /// The leaf at `hint`, latched shared, if it is resident and the target's.
    pub fn leaf_shared_at_hint(&self, hint: PageNo, target: Target<'_>) -> Option<Shared<'_>> {
        let page = self.space.page_id(hint);
        let guard = self.storage.pool.shared_if_resident(page)?;
        self.is_leaf_of(&guard, target).then_some(guard)
    }

    /// Whether a page is a leaf of this tree, and the target's.
    #[inline]
    fn is_leaf_of(&self, bytes: &[u8], target: Target<'_>) -> bool {
        let page = TreePage(bytes);
        bytes[PAGE_TYPE_AT] == PageType::Leaf as u8
            && page.tree() == self.id
            && match target {
                Target::Key(key) => page.covers(key),
                Target::Before(key) => {
                    page.low() < key && page.high().is_none_or(|high| key <= high)
                }
                Target::Last => page.high().is_none(),
            }
    }

    /// The leaf of a key, latched exclusively without waiting for I/O: for callers that hold a
    /// latch. The error names a page that must be read first.
    pub fn leaf_if_resident(
        &self,
        key: &[u8],
    ) -> Result<std::result::Result<Exclusive<'_>, PageId>> {
        loop {
            let (page, parent) = match self.descend_resident(Target::Key(key), 0)? {
                Descent::Missing { page, .. } => return Ok(Err(page)),
                Descent::Root(_) => (self.root(), None),
                Descent::Child { parent, child, .. } => (child, Some(parent)),
            };
            let Some(guard) = self.storage.pool.exclusive_if_resident(page) else {
                return Ok(Err(page));
            };
            if parent.map_or(self.root() == page, |parent| parent.validate())
                && self.check_node(page, &guard)?.is_leaf()
            {
                return Ok(Ok(guard));
            }
        }
    }

    /// `on_path`: sees the leaf's parent, which may be changing, the slot there, and the leaf,
    /// before it is latched.
    fn leaf<G>(
        &self,
        target: Target<'_>,
        latch: impl Fn(PageId) -> Result<G>,
        mut on_path: impl FnMut(&Optimistic<'_>, usize, PageId),
    ) -> Result<G>
    where
        G: std::ops::Deref<Target = [u8]>,
    {
        let mut pins = self.storage.pool.pins();
        loop {
            match self.descend(target, 0, &mut pins)? {
                Descent::Root(_) => {
                    let root = self.root();
                    let latched = latch(root);
                    if self.root() != root {
                        continue;
                    }
                    let guard = latched?;
                    let page = self.check_node(root, &guard)?;
                    if page.is_leaf() {
                        // Scans go on from the end of what it covers.
                        if !page.low().is_empty() || page.high().is_some() {
                            let what = "a root that does not cover all keys".to_owned();
                            return Err(self.corrupt(root, 40, what));
                        }
                        return Ok(guard);
                    }
                }
                Descent::Missing { .. } => {}
                Descent::Child {
                    parent,
                    slot,
                    child,
                } => {
                    on_path(&parent, slot, child);
                    let latched = latch(child);
                    if !parent.validate() {
                        continue;
                    }
                    let guard = latched?;
                    let page = self.check_node(child, &guard)?;
                    let right = match target {
                        Target::Key(key) => page.covers(key),
                        Target::Before(key) => page.low() < key,
                        Target::Last => page.high().is_none(),
                    };
                    if !page.is_leaf() || !right {
                        let what = "a leaf that does not cover the key".to_owned();
                        return Err(self.corrupt(child, 40, what));
                    }
                    return Ok(guard);
                }
            }
        }
    }

    /// That a latched page is a node of this tree.
    fn check_node<'g>(&self, id: PageId, page: &'g [u8]) -> Result<TreePage<'g>> {
        let node = matches!(page[PAGE_TYPE_AT], t if t == PageType::Leaf as u8 || t == PageType::Inner as u8);
        let tree = TreePage(page);
        if node && tree.tree() == self.id {
            return Ok(tree);
        }
        let what = format!(
            "a page of type {} and tree {} where a node of tree {} is expected",
            page[PAGE_TYPE_AT],
            tree.tree(),
            self.id
        );
        Err(self.corrupt(id, 12, what))
    }

    fn corrupt(&self, id: PageId, at: usize, what: String) -> Error {
        Error::corrupt_page(self.space.file().path(), id, Corrupt::at(at, what))
    }

    /// Goes down to the node at `level` on the target's path, reading and pinning nodes that are
    /// missing. The caller holds no latch.
    fn descend<'p>(
        &'p self,
        target: Target<'_>,
        level: u8,
        pins: &mut Pins<'p>,
    ) -> Result<Descent<'p>> {
        loop {
            match self.descend_resident(target, level)? {
                Descent::Missing { parent, page } => {
                    let loaded = pins.hold(page);
                    // A page that was freed meanwhile may not be readable.
                    let is_there = match parent {
                        Some(parent) => parent.validate(),
                        None => self.root() == page,
                    };
                    if is_there {
                        loaded?;
                    }
                }
                found => return Ok(found),
            }
        }
    }

    /// As `descend`, but never waits for I/O or for a frame: for callers that hold a latch.
    fn descend_resident<'p>(&'p self, target: Target<'_>, level: u8) -> Result<Descent<'p>> {
        'restart: loop {
            let root = self.root();
            let Some(mut node) = self.storage.pool.optimistic_if_resident(root) else {
                return Ok(Descent::Missing {
                    parent: None,
                    page: root,
                });
            };
            // The root moves under its latch: what was looked at before is noticed as a change.
            if self.root() != root {
                continue;
            }
            let mut node_id = root;
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
                if node_id == root && node_level <= level {
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
                    self.storage.pool.prefetch(child);
                    return Ok(Descent::Child {
                        parent: node,
                        slot,
                        child,
                    });
                }
                let next = self.storage.pool.optimistic_if_resident(child);
                if !node.validate() {
                    continue 'restart;
                }
                let Some(next) = next else {
                    return Ok(Descent::Missing {
                        parent: Some(node),
                        page: child,
                    });
                };
                (node, node_id) = (next, child);
            }
        }
    }

    fn racy(&self, node: &Optimistic<'_>) -> RacyPage {
        // SAFETY: frames of the pool stay mapped as long as the pool, which the guard borrows.
        unsafe { RacyPage::new(node.page_ptr(), self.storage.page_size) }
    }

    /// Number of levels; 1 for a tree of one leaf.
    pub fn height(&self) -> Result<u8> {
        let root = self.root_shared()?;
        Ok(self.check_node(root.id(), &root)?.level() + 1)
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
    /// A node on the path is not resident.
    Missing {
        parent: Option<Optimistic<'p>>,
        page: PageId,
    },
}
