//! Walking a whole tree to check it.

use super::{Descent, Target, Tree};
use crate::Result;
use crate::paranoid::paranoid;
use inkstone_format::tree_page::TreePage;
use inkstone_format::{PageId, PageNo};

/// What [`Database::verify_table`](crate::Database::verify_table) found in a sound tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Rows, without delete-marked ones.
    pub rows: u64,
    /// Delete-marked rows that purge has not removed yet.
    pub deleted_rows: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Every page of the tree.
    pub pages: Vec<PageNo>,
}

/// What a node's parent says that it covers: from, and up to.
type Fences = (Vec<u8>, Option<Vec<u8>>);

/// A walk over a tree, from the root's level down to the leaves.
struct Walk<'w> {
    tree: &'w Tree,
    report: TreeReport,
    each_leaf: EachLeaf<'w>,
    /// [`Space::changes`](crate::space::Space::changes) at its beginning.
    changes: u64,
}

type EachLeaf<'w> = &'w mut dyn FnMut(PageId, TreePage<'_>) -> Result<()>;

impl Tree {
    /// Checks every page of the tree: structure, order, that fences meet, levels, and that every
    /// page is allocated. `each_leaf` sees each leaf. Others may change the tree meanwhile: a node
    /// is compared with its parent as both are at one moment, and the next one covers the key where
    /// it ends. Pages that they allocate or free may then be missing, or among the pages twice.
    pub fn verify(&self, each_leaf: EachLeaf<'_>) -> Result<TreeReport> {
        let mut walk = Walk {
            tree: self,
            report: TreeReport::default(),
            each_leaf,
            changes: self.space.changes(),
        };
        let (id, root) = {
            let root = self.root_shared()?;
            (root.id(), root.to_vec())
        };
        let top = self.check_node(id, &root)?.level();
        walk.node(id, &root, top, &(Vec::new(), None), &[])?;
        // Downwards: the way to a node leads through those that are checked.
        (0..top).rev().try_for_each(|level| walk.level(level))?;
        Ok(walk.report)
    }

    /// The node at a level that covers a key, and what its parent says of it. `None`: the root is
    /// at that level, or below it.
    fn node_below_root(&self, key: &[u8], level: u8) -> Result<Option<(PageId, Vec<u8>, Fences)>> {
        let mut pins = self.storage.pool.pins();
        loop {
            let (parent, slot, child) = match self.descend(Target::Key(key), level, &mut pins)? {
                Descent::Root(_) => return Ok(None),
                Descent::Missing { .. } => continue,
                Descent::Child {
                    parent,
                    slot,
                    child,
                } => (parent, slot, child),
            };
            let there = pins.hold(child);
            let Some(parent) = parent.into_shared() else {
                continue;
            };
            there?;
            let Some(node) = self.storage.pool.shared_if_resident(child) else {
                continue;
            };
            let above = TreePage(&parent);
            let next = (slot + 1 < above.count()).then(|| above.key(slot + 1));
            let high = next.or_else(|| above.high().map(<[u8]>::to_vec));
            return Ok(Some((child, node.to_vec(), (above.key(slot), high))));
        }
    }
}

impl Walk<'_> {
    fn level(&mut self, level: u8) -> Result<()> {
        let mut key = Vec::new();
        while let Some((id, node, fences)) = self.tree.node_below_root(&key, level)? {
            self.node(id, &node, level, &fences, &key)?;
            let Some(high) = fences.1 else { break };
            if high <= key {
                return Err(self
                    .tree
                    .corrupt(id, 40, "it ends where it begins".to_owned()));
            }
            key = high;
        }
        Ok(())
    }

    /// `from`: where the walk is at this level.
    fn node(
        &mut self,
        id: PageId,
        node: &[u8],
        level: u8,
        (low, high): &Fences,
        from: &[u8],
    ) -> Result<()> {
        let tree = self.tree;
        let page = tree.check_node(id, node)?;
        page.check()
            .map_err(|c| tree.corrupt(id, c.offset, c.detail))?;
        if page.level() != level {
            let what = format!("level {} where {level} is expected", page.level());
            return Err(tree.corrupt(id, 28, what));
        }
        if page.low() != low || page.high() != high.as_deref() {
            let what = "the fences differ from what the parent says".to_owned();
            return Err(tree.corrupt(id, 40, what));
        }
        if !tree.space.is_allocated(id.page)? && tree.space.changes() == self.changes {
            let what = "the page is in use but not allocated".to_owned();
            return Err(tree.corrupt(id, 0, what));
        }
        paranoid!(
            &low[..] <= from,
            "page {id} begins at {low:x?}, behind {from:x?}"
        );
        self.report.pages.push(id.page);
        if !page.is_leaf() {
            self.report.inner_nodes += 1;
            return Ok(());
        }
        self.report.leaves += 1;
        // What lies before was seen in another leaf, with which this one was merged.
        let first = page.search(from).unwrap_or_else(|slot| slot);
        let seen = first..page.count();
        let all = seen.len() as u64;
        let deleted = seen.filter(|&slot| page.cell(slot).is_deleted()).count() as u64;
        self.report.deleted_rows += deleted;
        self.report.rows += all - deleted;
        (self.each_leaf)(id, page)
    }
}
