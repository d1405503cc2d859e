//! Compaction: nodes that are filled from their right neighbours, and nodes that move to pages
//! nearer the beginning of the file. Others read and change the tree meanwhile.
//!
//! # Promises
//! 1. A node that has moved is found at its new page by every search, and its old page is free: one
//!    mini-transaction changes both and the parent. Tested by
//!    `a_crash_at_every_step_of_a_compaction`. Tested by the simulator (`moved-page-not-found`).
//! 2. Neighbours that are packed have the rows that they had, and meet at a fence that their parent
//!    has. Tested by `what_is_pruned_goes_back_beside_readers_and_writers`.
//!
//! As nodes have no links
//! ([decision 0002](../../../../docs/decisions/0002-fences-instead-of-sibling-links.md)) only its
//! parent knows where a node is. The parent is found by the node's low fence.
//! Latch order: space maps by region, page 0, parent, children from left to right, the new page.

use super::merge::fits;
use super::split::{Pair, append_cells, place_cells, separator};
use super::{Target, Tree};
use crate::Result;
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::space::{FreePage, Place};
use crate::sync::thread;
use crate::unlogged::init_like;
use inkstone_format::record::Record;
use inkstone_format::tree_page::{IsLive, TreePage, TreePageInit, TreePageMut};
use inkstone_format::{PageId, PageNo, SpaceId};

/// Times that something is tried which others are in the way of.
const TRIES: usize = 32;
/// How full a node is made: so many parts of sixteen. A row that grows a little finds room.
const FILL_PARTS: usize = 15;

/// What came of filling a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Packing {
    /// Rows moved, or a neighbour went: the same node may take more.
    Moved,
    /// Nothing more goes into it; where the next node of its level begins.
    Next(Vec<u8>),
    /// It is the last one of its level.
    End,
}

/// What came of moving a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Moving {
    /// It is at a page before.
    Moved,
    /// No page before it is free.
    Full,
    /// It is no longer there, or others were in the way again and again.
    Left,
}

/// Two neighbours under one parent, latched, and the space map of the right one.
struct Neighbours<'p> {
    mtr: Mtr<'p>,
    map: usize,
    parent: Exclusive<'p>,
    /// Where the parent has the right one.
    slot: usize,
    left: Exclusive<'p>,
    right: Exclusive<'p>,
}

/// What two neighbours will be.
struct Plan {
    /// Cells of the right one that go to the left; all of them: it goes.
    count: usize,
    /// The high fence of the left one.
    high: Option<Vec<u8>>,
    /// The left one with that fence, and its own cells.
    left: Vec<u8>,
    /// The cells that go to the left, as a page of its own.
    moved: Vec<u8>,
}

impl Tree {
    /// Fills the node of `key` at `level` from the one to its right, if both have one parent. The
    /// caller holds no latch, has made sure that the log has room, and keeps the tree.
    pub fn pack(&self, key: &[u8], level: u8, live: IsLive<'_>) -> Result<Packing> {
        let mut pins = self.storage.pool.pins();
        let mut next = Packing::End;
        for _ in 0..TRIES {
            let (parent, slot, child) = match self.latch_pair(Target::Key(key), level)? {
                Pair::Nodes(parent, slot, child) => (parent, slot, child),
                Pair::Root(_) => return Ok(Packing::End),
                Pair::Again(missing) => {
                    thread::yield_now();
                    self.load_missing(&mut pins, missing, key)?;
                    continue;
                }
            };
            let (node, left) = (TreePage(&parent), TreePage(&child));
            next = after(left);
            if slot + 1 >= node.count() || left.used() >= fill(left) {
                return Ok(next);
            }
            let right = self.space.page_id(node.child(slot + 1));
            let left = child.id();
            drop((parent, child));
            for page in [left, right] {
                if pins.hold(page).is_err() {
                    // It may be gone; one that is damaged is left as it is.
                    return Ok(next);
                }
            }
            let Some(latched) = self.latch_neighbours(key, level, (left, right))? else {
                thread::yield_now();
                continue;
            };
            return Ok(if self.pack_nodes(latched, live)? {
                Packing::Moved
            } else {
                next
            });
        }
        Ok(next)
    }

    /// `None`: they are no longer neighbours, or one of them is latched or gone.
    fn latch_neighbours(
        &self,
        key: &[u8],
        level: u8,
        (left, right): (PageId, PageId),
    ) -> Result<Option<Neighbours<'_>>> {
        let mut mtr = Mtr::new(&self.storage);
        let Some(map) = self.space.latch_map_if_any(&mut mtr, right.page)? else {
            return Ok(None);
        };
        let Pair::Nodes(parent, slot, child) = self.latch_pair(Target::Key(key), level)? else {
            return Ok(None);
        };
        let node = TreePage(&parent);
        let same = child.id() == left
            && slot + 1 < node.count()
            && self.space.page_id(node.child(slot + 1)) == right;
        if !same {
            return Ok(None);
        }
        let Some(right) = self.storage.pool.exclusive_if_resident(right) else {
            return Ok(None);
        };
        Ok(Some(Neighbours {
            mtr,
            map,
            slot: slot + 1,
            parent,
            left: child,
            right,
        }))
    }

    fn pack_nodes(&self, latched: Neighbours<'_>, live: IsLive<'_>) -> Result<bool> {
        let Neighbours {
            mut mtr,
            map,
            parent,
            slot,
            left,
            right,
        } = latched;
        let Some(plan) = plan(&left, &right, live) else {
            return Ok(false);
        };
        let rest = plan.count < TreePage(&right).count();
        if rest && !takes_separator(&parent, slot, &plan) {
            return Ok(false);
        }
        let all = TreePage(&left).count() + TreePage(&right).count();
        let (parent, left, right) = (mtr.push(parent), mtr.push(left), mtr.push(right));
        let record = Record::SetHigh {
            page: mtr.id(left),
            keep: TreePage(mtr.page(left)).count() as u16,
            high: plan.high.clone(),
        };
        mtr.change(left, |bytes, payload| {
            bytes.copy_from_slice(&plan.left);
            record.put(payload);
        });
        append_cells(&mut mtr, left, TreePage(&plan.moved), 0);
        let (page, number) = (mtr.id(parent), mtr.id(right).page);
        let slot = slot as u16;
        let count = 1;
        mtr.replay(parent, &Record::Remove { page, slot, count });
        if rest {
            let content = mtr.page(right).to_vec();
            let old = TreePage(&content);
            let low = plan.high.unwrap_or_default();
            let children = vec![(low.clone(), number)];
            mtr.replay(
                parent,
                &Record::InnerCells {
                    page,
                    slot,
                    children,
                },
            );
            let init = TreePageInit {
                low,
                ..init_like(old)
            };
            let page = mtr.id(right);
            mtr.replay(right, &Record::TreeInit { page, init });
            append_cells(&mut mtr, right, old, plan.count);
            let counts = TreePage(mtr.page(left)).count() + TreePage(mtr.page(right)).count();
            paranoid!(counts == all, "{counts} cells of {all} after packing");
        } else {
            let count = TreePage(mtr.page(left)).count();
            paranoid!(count == all, "{count} cells of {all} after packing");
            self.space.free(&mut mtr, map, right);
            self.storage.counters.add(Counter::PageMerges, 1);
        }
        mtr.commit()?;
        Ok(true)
    }

    /// Moves the node at `page`, which has this level and low fence, to the first free page before
    /// it. The caller holds no latch, has made sure that the log has room, and
    /// keeps the tree.
    pub fn move_node(&self, page: PageId, level: u8, low: &[u8]) -> Result<Moving> {
        let mut pins = self.storage.pool.pins();
        for _ in 0..TRIES {
            let mut frames = self.storage.pool.reserve(1)?;
            let Some(place) = self.space.free_before(page.page, &frames)? else {
                return Ok(Moving::Full);
            };
            let (parent, slot, child) = match self.latch_pair(Target::Key(low), level)? {
                Pair::Nodes(parent, slot, child) => (parent, slot, child),
                Pair::Root(root) if root.id() == page => {
                    drop((place, root, frames));
                    if let Some(moving) = self.move_root(page)? {
                        return Ok(moving);
                    }
                    continue;
                }
                Pair::Root(_) => return Ok(Moving::Left),
                Pair::Again(missing) => {
                    drop((place, frames));
                    thread::yield_now();
                    self.load_missing(&mut pins, missing, low)?;
                    continue;
                }
            };
            if child.id() != page {
                return Ok(Moving::Left);
            }
            let to = self.space.page_id(place.free.page);
            let new = self.storage.pool.create(to, &mut frames)?;
            let Place { mut mtr, free, map } = place;
            let (parent, child, new) = (mtr.push(parent), mtr.push(child), mtr.push(new));
            set_child(&mut mtr, parent, slot, to);
            self.move_content(mtr, (free, map), (child, new))?;
            return Ok(Moving::Moved);
        }
        Ok(Moving::Left)
    }

    /// Moves the root, which page 0 and the handles of the tree know. `None`: begin again.
    fn move_root(&self, page: PageId) -> Result<Option<Moving>> {
        let pool = &self.storage.pool;
        let mut frames = pool.reserve(1)?;
        let header = self.space.page_id(PageNo(0));
        let mut pins = pool.pins();
        for page in [page, header] {
            pins.hold(page)?;
        }
        let Some(place) = self.space.free_before(page.page, &frames)? else {
            return Ok(Some(Moving::Full));
        };
        let Some(header) = pool.exclusive_if_resident(header) else {
            return Ok(None);
        };
        let Some(root) = pool.exclusive_if_resident(page) else {
            return Ok(None);
        };
        if self.root() != page {
            return Ok(Some(Moving::Left));
        }
        let to = self.space.page_id(place.free.page);
        let new = pool.create(to, &mut frames)?;
        let Place { mut mtr, free, map } = place;
        let (header, root, new) = (mtr.push(header), mtr.push(root), mtr.push(new));
        self.space.set_root(&mut mtr, header, self.id, to.page);
        self.move_content(mtr, (free, map), (root, new))?;
        Ok(Some(Moving::Moved))
    }

    /// What names the node is changed: it goes to a new page, with all that is in it.
    fn move_content(
        &self,
        mut mtr: Mtr<'_>,
        (free, map): (FreePage, usize),
        (old, new): (usize, usize),
    ) -> Result<()> {
        self.space.mark(&mut mtr, free);
        let content = mtr.page(old).to_vec();
        let node = TreePage(&content);
        let (page, init) = (mtr.id(new), init_like(node));
        mtr.replay(new, &Record::TreeInit { page, init });
        append_cells(&mut mtr, new, node, 0);
        paranoid!(
            TreePage(mtr.page(new)).count() == node.count(),
            "{} cells of {} moved to page {page}",
            TreePage(mtr.page(new)).count(),
            node.count()
        );
        if !mutants::on(Mutant::MovedPageKept) {
            self.space.free(&mut mtr, map, old);
        }
        mtr.commit()?;
        self.storage.counters.add(Counter::PagesMoved, 1);
        Ok(())
    }
}

/// Has a parent say that its child at `slot` is at page `to`.
fn set_child(mtr: &mut Mtr<'_>, parent: usize, slot: usize, to: PageId) {
    if mutants::on(Mutant::MovedPageNotFound) {
        return;
    }
    let page = mtr.id(parent);
    let node = TreePage(mtr.page(parent));
    let mut children = vec![(node.key(slot), to.page)];
    let slot = slot as u16;
    if slot > 0 {
        let count = 1;
        mtr.replay(parent, &Record::Remove { page, slot, count });
    } else {
        // An inner node is never without its first child: all of it is made again.
        let others = (1..node.count()).map(|slot| (node.key(slot), node.child(slot)));
        children.extend(others);
        let init = init_like(node);
        mtr.replay(parent, &Record::TreeInit { page, init });
    }
    mtr.replay(
        parent,
        &Record::InnerCells {
            page,
            slot,
            children,
        },
    );
    paranoid!(
        TreePage(mtr.page(parent)).child(usize::from(slot)) == to.page,
        "page {page} does not say that a child moved to {to}"
    );
}

/// Where the node behind this one begins.
fn after(node: TreePage<'_>) -> Packing {
    node.high()
        .map_or(Packing::End, |high| Packing::Next(high.to_vec()))
}

/// Bytes in use with which a node is full enough.
fn fill(node: TreePage<'_>) -> usize {
    node.capacity() * FILL_PARTS / 16
}

/// How many cells of the right one go to the left; `None`: not one does.
fn plan(left: &[u8], right: &[u8], live: IsLive<'_>) -> Option<Plan> {
    let (l, r) = (TreePage(left), TreePage(right));
    let room = fill(l).checked_sub(l.used())?;
    let mut count = r.count();
    if r.used() > room {
        let mut sum = 0;
        let bytes = |slot: usize| r.cell(slot).len + inkstone_format::tree_page::SLOT_LEN;
        count = (0..r.count())
            .take_while(|&slot| {
                sum += bytes(slot);
                sum <= room
            })
            .count();
        // A little is not worth a change of three pages.
        if sum < fill(l) / 16 {
            return None;
        }
    }
    // The prefix of the keys may become shorter: fewer fit then.
    while count > 0 || r.count() == 0 {
        if let Some(plan) = plan_of(left, right, count, live) {
            return Some(plan);
        }
        count = if count == r.count() {
            count * 3 / 4
        } else {
            count / 2
        };
        if count < r.count() / 16 {
            return None;
        }
    }
    None
}

fn plan_of(left: &[u8], right: &[u8], count: usize, live: IsLive<'_>) -> Option<Plan> {
    let (l, r) = (TreePage(left), TreePage(right));
    let (high, moved) = if count == r.count() {
        (r.high().map(<[u8]>::to_vec), right.to_vec())
    } else {
        let high = separator(r, count, &[])?;
        let mut moved = right.to_vec();
        let cut = TreePageMut(&mut moved).set_high(count, Some(&high), live);
        cut.ok()?;
        (Some(high), moved)
    };
    let mut widened = left.to_vec();
    let set = TreePageMut(&mut widened).set_high(l.count(), high.as_deref(), live);
    let fit = set.is_ok() && fits(&widened, TreePage(&moved), l.count());
    let plan = Plan {
        count,
        high,
        left: widened,
        moved,
    };
    (fit && (count == r.count() || leaves_room(right, &plan))).then_some(plan)
}

/// Whether what is left of the right node fits it, with its new low fence.
fn leaves_room(right: &[u8], plan: &Plan) -> bool {
    let r = TreePage(right);
    let mut rest = right.to_vec();
    let init = TreePageInit {
        low: plan.high.clone().unwrap_or_default(),
        ..init_like(r)
    };
    let id = PageId::new(SpaceId(0), PageNo(0));
    TreePageMut(&mut rest).init(id, &init);
    if r.is_leaf() {
        let keys: Vec<Vec<u8>> = (plan.count..r.count()).map(|slot| r.key(slot)).collect();
        return place_cells(&mut rest, 0, r, plan.count, &keys).is_ok();
    }
    let mut page = TreePageMut(&mut rest);
    (plan.count..r.count())
        .enumerate()
        .all(|(at, slot)| page.insert_child(at, &r.key(slot), r.child(slot)).is_ok())
}

/// Whether the parent has room for the key that the right node will begin with.
fn takes_separator(parent: &[u8], slot: usize, plan: &Plan) -> bool {
    let Some(high) = &plan.high else { return false };
    let mut trial = parent.to_vec();
    let child = TreePage(parent).child(slot);
    let mut page = TreePageMut(&mut trial);
    page.remove(slot, 1);
    page.insert_child(slot, high, child).is_ok()
}
