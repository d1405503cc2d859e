//! Removing a whole tree that is no longer in use, page by page from its end.
//!
//! There are no searches in the tree while it goes, but for rows of the leaf that is the last one
//! (a row with a long value is deleted before its leaf goes). So fences and levels need not stay
//! right where pages are gone. But after each step every page that is left can be reached from the
//! root, so that the removal can go on after a crash.

use super::Tree;
use crate::Result;
use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use inkstone_format::PageId;
use inkstone_format::record::Record;
use inkstone_format::tree_page::{Cell, TreePage, TreePageInit};

/// Shows a page of a tree.
pub type Visit<'v> = &'v mut dyn FnMut(PageId, TreePage<'_>) -> Result<()>;

impl Tree {
    /// Visits every page that can be reached from the root, with its latch held shared.
    pub fn visit_pages(&self, visit: Visit<'_>) -> Result<()> {
        let mut waiting = vec![self.root()];
        while let Some(id) = waiting.pop() {
            let guard = self.storage.pool.shared(id)?;
            let page = self.check_node(id, &guard)?;
            if !page.is_leaf() {
                let children = (0..page.count()).map(|slot| self.space.page_id(page.child(slot)));
                waiting.extend(children);
            }
            visit(id, page)?;
        }
        Ok(())
    }

    /// The keys of those rows of the last leaf that `which` selects.
    pub fn last_leaf_keys(&self, which: impl Fn(&Cell<'_>) -> bool) -> Result<Vec<Vec<u8>>> {
        let leaf = self.last_leaf()?.map_or(self.root(), |(_, leaf)| leaf);
        let guard = self.storage.pool.shared(leaf)?;
        let page = self.check_node(leaf, &guard)?;
        let slots = (0..page.count()).filter(|&slot| which(&page.cell(slot)));
        Ok(slots.map(|slot| page.key(slot)).collect())
    }

    /// Frees one page of the tree, the root last. False when there is none left, and the tree's
    /// number is free. One thread at a time; the caller holds no latch, and has made sure that the
    /// log has room.
    pub fn remove_last_page(&self) -> Result<bool> {
        let Some((parent, child)) = self.last_leaf()? else {
            return self.remove_root();
        };
        let mut pins = self.storage.pool.pins();
        for page in [parent, child] {
            pins.hold(page)?;
        }
        let mut mtr = Mtr::new(&self.storage);
        let map = self.space.latch_map_of(&mut mtr, child.page)?;
        let parent = mtr.push(self.storage.pool.exclusive(parent)?);
        let child = mtr.push(self.storage.pool.exclusive(child)?);
        let node = TreePage(mtr.page(parent));
        let (page, last) = (mtr.id(parent), node.count() - 1);
        let record = match last {
            // An inner node has children: without any it becomes a leaf.
            0 => Record::TreeInit {
                page,
                init: TreePageInit {
                    tree: self.id,
                    level: 0,
                    low: node.low().to_vec(),
                    high: node.high().map(<[u8]>::to_vec),
                },
            },
            last => Record::Remove {
                page,
                slot: last as u16,
                count: 1,
            },
        };
        mtr.replay(parent, &record);
        let left = TreePage(mtr.page(parent));
        paranoid!(
            left.count() == last && left.is_leaf() == (last == 0),
            "{} children are left of {}",
            left.count(),
            last + 1
        );
        self.space.free(&mut mtr, map, child);
        mtr.commit()?;
        Ok(true)
    }

    /// The last leaf and its parent; `None` if the root is a leaf.
    fn last_leaf(&self) -> Result<Option<(PageId, PageId)>> {
        let (mut parent, mut id) = (None, self.root());
        loop {
            let guard = self.storage.pool.shared(id)?;
            let page = self.check_node(id, &guard)?;
            if page.is_leaf() {
                return Ok(parent.map(|parent| (parent, id)));
            }
            parent = Some(id);
            id = self.space.page_id(page.child(page.count() - 1));
        }
    }

    fn remove_root(&self) -> Result<bool> {
        let root = self.storage.pool.exclusive(self.root())?;
        let count = self.check_node(self.root(), &root)?.count() as u16;
        if count > 0 {
            let mut mtr = Mtr::new(&self.storage);
            let (page, slot) = (root.id(), 0);
            let root = mtr.push(root);
            mtr.replay(root, &Record::Remove { page, slot, count });
            paranoid!(
                TreePage(mtr.page(root)).count() == 0,
                "rows are left in the root of a tree that is removed"
            );
            mtr.commit()?;
            return Ok(true);
        }
        drop(root);
        self.clone().remove_if_empty()?;
        Ok(false)
    }
}
