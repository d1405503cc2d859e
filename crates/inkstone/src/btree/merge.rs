//! Giving space back: merging a thin node with its right neighbour, and shrinking the root.

use super::split::{Pair, append_cells, place_cells};
use super::{Target, Tree};
use crate::Result;
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use crate::sync::thread;
use inkstone_format::PageId;
use inkstone_format::record::Record;
use inkstone_format::tree_page::{IsLive, TreePage, TreePageInit, TreePageMut};

/// On which side of a node its neighbour is.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// What came of merging around a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Merging {
    /// Nothing is left to merge.
    Finished,
    /// Readers latched the pages, or there were no frames for them: it is worth another try.
    GivenUp,
}

/// What came of looking for a merge.
enum Attempt<T> {
    Done(T),
    /// There is nothing to merge.
    Nothing,
    /// As [`Pair::Again`].
    Again(Option<PageId>),
}

/// How often a merge is tried that finds pages latched, or missing.
const TRIES: usize = 32;

/// The latched pages of a merge.
struct Nodes<'p> {
    /// The space map page, by its number in the mini-transaction.
    map: usize,
    parent: Exclusive<'p>,
    /// Where the parent has the left node.
    left_slot: usize,
    left: Exclusive<'p>,
    right: Exclusive<'p>,
}

/// Merges around a key, on the way up the tree.
struct Merges<'t> {
    tree: &'t Tree,
    key: &'t [u8],
    live: IsLive<'t>,
    merging: Merging,
}

impl Merges<'_> {
    /// Whether inner nodes were merged.
    fn upwards(&mut self) -> Result<bool> {
        let (mut level, mut inner) = (0, false);
        loop {
            if self.at(level)? {
                let counters = &self.tree.storage.counters;
                counters.add(Counter::PageMerges, 1);
                inner |= level > 0;
                paranoid!(
                    level < u8::MAX,
                    "a node of level {level} was merged under the root {}",
                    self.tree.root()
                );
            } else if !self.is_only_child(level)? {
                return Ok(inner);
            }
            level += 1;
        }
    }

    fn at(&mut self, level: u8) -> Result<bool> {
        let Self {
            tree, key, live, ..
        } = *self;
        // A queue leaves thin nodes to the left of full ones: both sides are tried.
        for side in [Side::Right, Side::Left] {
            if self.patiently(|| tree.merge_beside(key, level, side, live))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the thin node of the key at `level` has no neighbour under its parent, which is
    /// thin, too, and may be merged with its own.
    fn is_only_child(&mut self, level: u8) -> Result<bool> {
        let Self { tree, key, .. } = *self;
        self.patiently(|| {
            Ok(match tree.latch_pair(Target::Key(key), level)? {
                Pair::Nodes(parent, _, child)
                    if TreePage(&parent).count() == 1 && Tree::is_thin(TreePage(&child)) =>
                {
                    Attempt::Done(())
                }
                Pair::Again(missing) => Attempt::Again(missing),
                _ => Attempt::Nothing,
            })
        })
    }

    fn shrink_root(&mut self) -> Result<()> {
        let tree = self.tree;
        while self.patiently(|| tree.shrink_root())? {}
        Ok(())
    }

    /// Whether something is done that is tried until it is, or there is nothing to do, and not for
    /// ever.
    fn patiently(&mut self, mut attempt: impl FnMut() -> Result<Attempt<()>>) -> Result<bool> {
        let pool = &self.tree.storage.pool;
        let mut pins = pool.pins();
        for _ in 0..TRIES {
            match attempt()? {
                Attempt::Done(()) => return Ok(true),
                Attempt::Nothing => return Ok(false),
                Attempt::Again(None) => thread::yield_now(),
                Attempt::Again(missing) => {
                    // One page at a time: a small pool has few to spare.
                    drop(std::mem::replace(&mut pins, pool.pins()));
                    self.tree.load_missing(&mut pins, missing, self.key)?;
                }
            }
        }
        self.merging = Merging::GivenUp;
        Ok(false)
    }
}

impl Tree {
    /// Merges the leaf of `key` with a neighbour if both together fill at most three quarters of a
    /// page, or one of them is empty, and so on up the tree. It never waits long for other threads.
    pub fn merge_around(&self, key: &[u8], live: IsLive<'_>) -> Result<Merging> {
        let mut merges = Merges {
            tree: self,
            key,
            live,
            merging: Merging::Finished,
        };
        // Inner nodes that were merged bring children side by side that had other parents.
        while merges.upwards()? {}
        merges.shrink_root()?;
        Ok(merges.merging)
    }

    /// Whether a leaf has so few bytes in use that a merge is worth trying.
    pub fn is_thin(page: TreePage<'_>) -> bool {
        page.used() < page.capacity() / 4
    }

    fn merge_beside(
        &self,
        key: &[u8],
        level: u8,
        side: Side,
        live: IsLive<'_>,
    ) -> Result<Attempt<()>> {
        let (left, right) = match self.neighbours(key, level, side)? {
            Attempt::Done(found) => found,
            Attempt::Nothing => return Ok(Attempt::Nothing),
            Attempt::Again(missing) => return Ok(Attempt::Again(missing)),
        };
        let mut pins = self.storage.pool.pins();
        for page in [left, right] {
            if pins.hold(page).is_err() {
                return Ok(Attempt::Nothing);
            }
        }
        let mut mtr = Mtr::new(&self.storage);
        let Some(map) = self.space.latch_map_if_any(&mut mtr, right.page)? else {
            return Ok(Attempt::Nothing);
        };
        let (parent, slot, child) = match self.latch_pair(Target::Key(key), level)? {
            Pair::Nodes(parent, slot, child) => (parent, slot, child),
            Pair::Root(_) => return Ok(Attempt::Nothing),
            Pair::Again(missing) => return Ok(Attempt::Again(missing)),
        };
        // The key's node may be the left or the right one of the two.
        let (left_slot, child) = match child.id() {
            id if id == left => (slot, Some(child)),
            id if id == right && slot > 0 => {
                drop(child);
                (slot - 1, None)
            }
            _ => return Ok(Attempt::Again(None)),
        };
        let node = TreePage(&parent);
        let same = left_slot + 1 < node.count()
            && node.child(left_slot) == left.page
            && node.child(left_slot + 1) == right.page;
        if !same {
            return Ok(Attempt::Again(None));
        }
        // From left to right, as everywhere that two neighbours are latched.
        let left_guard = match child {
            Some(guard) => Some(guard),
            None => self.storage.pool.exclusive_if_resident(left),
        };
        let right_guard = self.storage.pool.exclusive_if_resident(right);
        let (Some(left_guard), Some(right_guard)) = (left_guard, right_guard) else {
            return Ok(Attempt::Again(None));
        };
        let nodes = Nodes {
            map,
            parent,
            left_slot,
            left: left_guard,
            right: right_guard,
        };
        Ok(if self.merge_nodes(mtr, nodes, live)? {
            Attempt::Done(())
        } else {
            Attempt::Nothing
        })
    }

    /// The node of `key` at `level` and its neighbour on `side` under the same parent, from the
    /// left.
    fn neighbours(&self, key: &[u8], level: u8, side: Side) -> Result<Attempt<(PageId, PageId)>> {
        let (parent, slot, child) = match self.latch_pair(Target::Key(key), level)? {
            Pair::Nodes(parent, slot, child) => (parent, slot, child),
            Pair::Root(_) => return Ok(Attempt::Nothing),
            Pair::Again(missing) => return Ok(Attempt::Again(missing)),
        };
        let node = TreePage(&parent);
        let left = match side {
            Side::Right => (slot + 1 < node.count()).then_some(slot),
            Side::Left => slot.checked_sub(1),
        };
        let Some(left) = left.filter(|_| Self::is_thin(TreePage(&child))) else {
            return Ok(Attempt::Nothing);
        };
        let page = |slot| self.space.page_id(node.child(slot));
        Ok(Attempt::Done((page(left), page(left + 1))))
    }

    fn merge_nodes<'p>(
        &self,
        mut mtr: Mtr<'p>,
        nodes: Nodes<'p>,
        live: IsLive<'_>,
    ) -> Result<bool> {
        let Nodes {
            map,
            parent,
            left_slot,
            left,
            right,
        } = nodes;
        paranoid!(
            left.id() != right.id() && parent.id() != left.id() && parent.id() != right.id(),
            "pages {} and {} are merged under {}",
            left.id(),
            right.id(),
            parent.id()
        );
        let (l, r) = (TreePage(&left), TreePage(&right));
        let all = l.count() + r.count();
        let (kept, high) = (l.count(), r.high().map(<[u8]>::to_vec));
        let too_much = l.used() + r.used() > l.capacity().min(r.capacity()) * 3 / 4;
        if too_much && l.count() > 0 && r.count() > 0 {
            return Ok(false);
        }
        // A trial on a copy: nothing may fail after the first change.
        let mut merged = left.to_vec();
        let widened = TreePageMut(&mut merged).set_high(kept, high.as_deref(), live);
        if widened.is_err() || !fits(&merged, r, kept) {
            return Ok(false);
        }
        let (parent, left, right) = (mtr.push(parent), mtr.push(left), mtr.push(right));
        let record = Record::SetHigh {
            page: mtr.id(left),
            keep: kept as u16,
            high,
        };
        mtr.change(left, |bytes, payload| {
            bytes.copy_from_slice(&merged);
            record.put(payload);
        });
        let content = mtr.page(right).to_vec();
        append_cells(&mut mtr, left, TreePage(&content), 0);
        let slot = left_slot as u16 + 1;
        let both = TreePage(mtr.page(left));
        paranoid!(
            both.count() == all && both.high() == TreePage(&content).high(),
            "{} cells after a merge of {all}",
            both.count()
        );
        let children = TreePage(mtr.page(parent)).count();
        paranoid!(
            usize::from(slot) < children,
            "child {slot} of {children} is merged into the one before"
        );
        mtr.replay(
            parent,
            &Record::Remove {
                page: mtr.id(parent),
                slot,
                count: 1,
            },
        );
        self.space.free(&mut mtr, map, right);
        mtr.commit()?;
        Ok(true)
    }

    /// While the root is an inner node over one child, the child's content moves into the root, a
    /// level at each call.
    fn shrink_root(&self) -> Result<Attempt<()>> {
        let only_child = {
            let root = self.root_shared()?;
            let node = TreePage(&root);
            if node.is_leaf() || node.count() != 1 {
                return Ok(Attempt::Nothing);
            }
            self.space.page_id(node.child(0))
        };
        let mut pins = self.storage.pool.pins();
        if pins.hold(only_child).is_err() {
            return Ok(Attempt::Nothing);
        }
        let mut mtr = Mtr::new(&self.storage);
        let Some(map) = self.space.latch_map_if_any(&mut mtr, only_child.page)? else {
            return Ok(Attempt::Nothing);
        };
        let root_id = self.root();
        let Some(root) = self.storage.pool.exclusive_if_resident(root_id) else {
            return Ok(Attempt::Again(Some(root_id)));
        };
        if self.root() != root_id {
            return Ok(Attempt::Again(None));
        }
        let node = TreePage(&root);
        if node.is_leaf() || node.count() != 1 || node.child(0) != only_child.page {
            return Ok(Attempt::Again(None));
        }
        let Some(child) = self.storage.pool.exclusive_if_resident(only_child) else {
            return Ok(Attempt::Again(Some(only_child)));
        };
        let content = child.to_vec();
        let level = TreePage(&content).level();
        paranoid!(
            level + 1 == node.level(),
            "page {} of level {level} is below a root of level {}",
            child.id(),
            node.level()
        );
        let (root, child) = (mtr.push(root), mtr.push(child));
        let init = TreePageInit {
            tree: self.id,
            level,
            low: Vec::new(),
            high: None,
        };
        mtr.replay(
            root,
            &Record::TreeInit {
                page: mtr.id(root),
                init,
            },
        );
        append_cells(&mut mtr, root, TreePage(&content), 0);
        let shrunk = TreePage(mtr.page(root));
        paranoid!(
            (shrunk.count(), shrunk.level()) == (TreePage(&content).count(), level),
            "{} cells of level {} moved into the root",
            TreePage(&content).count(),
            level
        );
        self.space.free(&mut mtr, map, child);
        mtr.commit()?;
        Ok(Attempt::Done(()))
    }
}

pub(super) fn fits(merged: &[u8], right: TreePage<'_>, at: usize) -> bool {
    let mut trial = merged.to_vec();
    if right.is_leaf() {
        let keys: Vec<Vec<u8>> = (0..right.count()).map(|slot| right.key(slot)).collect();
        return place_cells(&mut trial, at, right, 0, &keys).is_ok();
    }
    let mut page = TreePageMut(&mut trial);
    (0..right.count()).all(|slot| {
        page.insert_child(at + slot, &right.key(slot), right.child(slot))
            .is_ok()
    })
}
