//! Splitting nodes, and growing the root.

use super::{Descent, Target, Tree};
use crate::Result;
use crate::buffer::{Exclusive, Pins};
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::space::FreePage;
use crate::unlogged::{is_all_of, put_cells, put_rows_left_out};
use inkstone_format::codec::common_prefix;
use inkstone_format::record::Record;
use inkstone_format::tree_page::{
    CELL_VERSIONED, IsLive, NoRoom, SLOT_LEN, TreePage, TreePageInit, TreePageMut, cell_len,
    key_len_max,
};
use inkstone_format::{PageId, VersionAddress};

/// What a split is for.
#[derive(Clone, Copy, Debug)]
pub struct SplitFor<'k> {
    /// The key whose leaf (or the path to it) needs room.
    pub key: &'k [u8],
    /// Bytes that must be free.
    pub need: usize,
    /// Keys are arriving in ascending order: leave the left page full.
    pub ascending: bool,
    /// The caller's bulk insert of which the log lacks rows: a leaf that it has to itself is split
    /// without them.
    pub unlogged: Option<VersionAddress>,
}

impl<'k> SplitFor<'k> {
    /// So many bytes for one row, where keys come in any order.
    pub fn row(key: &'k [u8], need: usize) -> Self {
        Self {
            key,
            need,
            ascending: false,
            unlogged: None,
        }
    }
}

/// Two latched nodes of neighbouring levels, or what to do before trying again.
pub(super) enum Pair<'p> {
    /// The upper one, the slot in it of the lower one, and that.
    Nodes(Exclusive<'p>, usize, Exclusive<'p>),
    Root(Exclusive<'p>),
    /// Let go of every latch, read the page if one is named, and begin again.
    Again(Option<PageId>),
}

impl Tree {
    /// Makes room in the leaf of `wanted.key`, unless it has become roomy meanwhile. The caller
    /// holds no latch, and looks for its leaf again afterwards.
    pub fn split_leaf(&self, wanted: SplitFor<'_>, live: IsLive<'_>) -> Result<()> {
        self.split(wanted, 0, live)
    }

    fn split(&self, wanted: SplitFor<'_>, level: u8, live: IsLive<'_>) -> Result<()> {
        let mut pins = self.storage.pool.pins();
        loop {
            let mut frames = self.storage.pool.reserve(2)?;
            let (mut mtr, found) = self
                .space
                .find_free(1, &mut frames, || Mtr::new(&self.storage))?;
            let (parent, slot, child) = match self.latch_pair(Target::Key(wanted.key), level)? {
                Pair::Again(missing) => {
                    drop((mtr, frames));
                    self.load_missing(&mut pins, missing, wanted.key)?;
                    continue;
                }
                Pair::Root(root) => {
                    let node = TreePage(&root);
                    if node.level() < level || node.free() >= wanted.need {
                        // The tree shrank below that level, or another thread made room.
                        return Ok(());
                    }
                    let page = self.space.page_id(found[0].page);
                    let new = self.storage.pool.create(page, &mut frames)?;
                    let rows = Rows::of(TreePage(&root), wanted);
                    self.grow_root(mtr, (root, new), found[0], rows)?;
                    continue;
                }
                Pair::Nodes(parent, slot, child) => (parent, slot, child),
            };
            if TreePage(&child).free() >= wanted.need {
                return Ok(());
            }
            let Some(plan) = plan_split(&child, wanted, live) else {
                let id = child.id();
                let what = format!("a row of {} bytes does not fit", wanted.need);
                return Err(self.corrupt(id, 30, what));
            };
            let separator_len = plan.separator.len() - TreePage(&parent).prefix_len();
            let need = cell_len(separator_len, 4, false) + SLOT_LEN;
            if TreePage(&parent).free() < need {
                drop((mtr, parent, child, frames));
                let need = cell_len(key_len_max(self.storage.page_size), 4, false) + SLOT_LEN;
                self.split(SplitFor { need, ..wanted }, level + 1, live)?;
                continue;
            }
            let page = self.space.page_id(found[0].page);
            let new = self.storage.pool.create(page, &mut frames)?;
            let rows = Rows::of(TreePage(&child), wanted);
            let (parent, child, new) = (mtr.push(parent), mtr.push(child), mtr.push(new));
            self.space.mark(&mut mtr, found[0]);
            self.fill_right(&mut mtr, (child, new), &plan, rows);
            cut_left(&mut mtr, child, &plan, rows, live);
            paranoid!(
                is_cut(TreePage(mtr.page(child)), TreePage(mtr.page(new)), &plan),
                "page {} was not cut at slot {} into itself and {page}",
                mtr.id(child),
                plan.at
            );
            let children = vec![(plan.separator, page.page)];
            let slot = slot as u16 + 1;
            mtr.replay(
                parent,
                &Record::InnerCells {
                    page: mtr.id(parent),
                    slot,
                    children,
                },
            );
            paranoid!(
                TreePage(mtr.page(parent)).child(usize::from(slot)) == page.page,
                "the new page {page} does not stand behind the one that was split"
            );
            mtr.commit()?;
            let counter = if level == 0 {
                Counter::LeafSplits
            } else {
                Counter::InnerSplits
            };
            self.storage.counters.add(counter, 1);
            return Ok(());
        }
    }

    /// Latches the node at `level` on the target's path, and its parent.
    pub(super) fn latch_pair(&self, target: Target<'_>, level: u8) -> Result<Pair<'_>> {
        match self.descend_resident(target, level)? {
            Descent::Missing { page, .. } => Ok(Pair::Again(Some(page))),
            Descent::Root(root) => Ok(root.try_upgrade().map_or(Pair::Again(None), Pair::Root)),
            Descent::Child {
                parent,
                slot,
                child,
            } => {
                let Some(parent) = parent.try_upgrade() else {
                    return Ok(Pair::Again(None));
                };
                match self.storage.pool.exclusive_if_resident(child) {
                    Some(guard) => {
                        self.check_node(child, &guard)?;
                        Ok(Pair::Nodes(parent, slot, guard))
                    }
                    None => Ok(Pair::Again(Some(child))),
                }
            }
        }
    }

    /// Reads a page that a structure change found missing. The caller holds no latch.
    pub(super) fn load_missing(
        &self,
        pins: &mut Pins<'_>,
        missing: Option<PageId>,
        key: &[u8],
    ) -> Result<()> {
        let Some(page) = missing else { return Ok(()) };
        if pins.hold(page).is_err() {
            // The page may have been freed meanwhile; if it has not, this finds the same error.
            self.leaf_shared(Target::Key(key))?;
        }
        Ok(())
    }

    /// Moves the root's content to a new child, so that the root is an inner node over it.
    fn grow_root<'p>(
        &self,
        mut mtr: Mtr<'p>,
        (root, new): (Exclusive<'p>, Exclusive<'p>),
        free: FreePage,
        rows: Rows,
    ) -> Result<()> {
        paranoid!(
            root.id() == self.root() && new.id().page == free.page,
            "page {} grows as the root over page {}",
            root.id(),
            new.id()
        );
        let (root, new) = (mtr.push(root), mtr.push(new));
        self.space.mark(&mut mtr, free);
        let content = mtr.page(root).to_vec();
        let level = TreePage(&content).level();
        let init = |level| TreePageInit {
            tree: self.id,
            level,
            low: Vec::new(),
            high: None,
        };
        mtr.replay(
            new,
            &Record::TreeInit {
                page: mtr.id(new),
                init: init(level),
            },
        );
        rows.append(&mut mtr, new, TreePage(&content), 0);
        mtr.replay(
            root,
            &Record::TreeInit {
                page: mtr.id(root),
                init: init(level + 1),
            },
        );
        let children = vec![(Vec::new(), free.page)];
        mtr.replay(
            root,
            &Record::InnerCells {
                page: mtr.id(root),
                slot: 0,
                children,
            },
        );
        let (above, below) = (TreePage(mtr.page(root)), TreePage(mtr.page(new)));
        paranoid!(
            (above.count(), above.level()) == (1, level + 1)
                && (below.count(), below.level()) == (TreePage(&content).count(), level),
            "the root grew to {} children of level {level}",
            above.count()
        );
        mtr.commit().map(drop)
    }

    fn fill_right(&self, mtr: &mut Mtr<'_>, (child, new): (usize, usize), plan: &Plan, rows: Rows) {
        let page = TreePage(mtr.page(child));
        let moves = plan.at < page.count();
        let init = TreePageInit {
            tree: self.id,
            level: page.level(),
            low: plan.separator.clone(),
            high: page.high().map(<[u8]>::to_vec),
        };
        mtr.replay(
            new,
            &Record::TreeInit {
                page: mtr.id(new),
                init,
            },
        );
        if moves {
            let content = mtr.page(child).to_vec();
            rows.append(mtr, new, TreePage(&content), plan.at);
        }
    }
}

/// What the log says of the rows of a node that is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Logged,
    /// They are the caller's bulk insert's, and may be lost in a crash.
    LeftOut,
}

impl Rows {
    fn of(node: TreePage<'_>, wanted: SplitFor<'_>) -> Self {
        match wanted.unlogged {
            Some(address) if is_all_of(node, address) => Self::LeftOut,
            _ => Self::Logged,
        }
    }

    /// Appends cells to a page that is new.
    fn append(self, mtr: &mut Mtr<'_>, to: usize, from: TreePage<'_>, first: usize) {
        if self == Self::Logged {
            return append_cells(mtr, to, from, first);
        }
        let keys: Vec<Vec<u8>> = (first..from.count()).map(|slot| from.key(slot)).collect();
        let page = mtr.id(to);
        mtr.change_unlogged(to, |bytes, payload| {
            let placed = place_cells(bytes, 0, from, first, &keys);
            crate::invariant!(placed.is_ok(), "moved cells do not fit page {page}");
            put_rows_left_out(payload, page);
        });
    }
}

/// Takes from a node what went to its new neighbour. A record that leaves rows out keeps none:
/// which of them the page has when it is replayed is not known.
fn cut_left(mtr: &mut Mtr<'_>, child: usize, plan: &Plan, rows: Rows, live: IsLive<'_>) {
    let high = Some(plan.separator.clone());
    let page = mtr.id(child);
    let keep = match rows {
        Rows::LeftOut if !mutants::on(Mutant::SplitKeepsSlots) => 0,
        Rows::Logged | Rows::LeftOut => plan.at as u16,
    };
    let change = |bytes: &mut [u8], payload: &mut Vec<u8>| {
        match &plan.left {
            Some(left) => bytes.copy_from_slice(left),
            None => {
                let set = TreePageMut(bytes).set_high(plan.at, Some(&plan.separator), live);
                crate::invariant!(set.is_ok(), "a fence does not fit where it was to");
            }
        }
        Record::SetHigh { page, keep, high }.put(payload);
    };
    match rows {
        Rows::Logged => mtr.change(child, change),
        Rows::LeftOut => mtr.change_unlogged(child, change),
    }
}

/// Appends the cells of `from` from slot `first` on to the page `to`, with their version
/// addresses. In the log are those that outlive a restart.
pub(super) fn append_cells(mtr: &mut Mtr<'_>, to: usize, from: TreePage<'_>, first: usize) {
    paranoid!(
        first <= from.count() && from.level() == TreePage(mtr.page(to)).level(),
        "cells of level {} from slot {first} on go to page {}",
        from.level(),
        mtr.id(to)
    );
    let count = from.count() - first;
    if count == 0 {
        return;
    }
    let page = mtr.id(to);
    let at = TreePage(mtr.page(to)).count();
    if !from.is_leaf() {
        let child = |slot| (from.key(slot), from.child(slot));
        let children = (first..from.count()).map(child).collect();
        mtr.replay(
            to,
            &Record::InnerCells {
                page,
                slot: at as u16,
                children,
            },
        );
        return;
    }
    let keys: Vec<Vec<u8>> = (first..from.count()).map(|slot| from.key(slot)).collect();
    mtr.change(to, |bytes, payload| {
        put_cells(payload, (page, at), from, first, &keys);
        let placed = place_cells(bytes, at, from, first, &keys);
        crate::invariant!(placed.is_ok(), "moved cells do not fit page {page}");
        paranoid!(
            TreePage(bytes).count() == at + count,
            "{} cells where {count} were put behind {at}",
            TreePage(bytes).count()
        );
    });
}

/// Inserts leaf cells with their version addresses.
pub(super) fn place_cells(
    bytes: &mut [u8],
    at: usize,
    from: TreePage<'_>,
    first: usize,
    keys: &[Vec<u8>],
) -> Result<(), NoRoom> {
    let mut page = TreePageMut(bytes);
    for (n, key) in keys.iter().enumerate() {
        let cell = from.cell(first + n);
        let flags = cell.flags & !CELL_VERSIONED;
        page.insert(at + n, flags, cell.version, key, cell.value, &|_| true)?;
    }
    Ok(())
}

/// Whether the cells of a node and its fences are now those of two.
fn is_cut(left: TreePage<'_>, right: TreePage<'_>, plan: &Plan) -> bool {
    left.count() == plan.at
        && left.level() == right.level()
        && left.high() == Some(&plan.separator[..])
        && right.low() == plan.separator
}

/// How a node will be split.
struct Plan {
    /// The first slot that moves to the right.
    at: usize,
    /// Low fence of the right node.
    separator: Vec<u8>,
    /// The left node as it will be; `None` if it takes the new fence where it is.
    left: Option<Vec<u8>>,
}

/// `None`: the node cannot be split (too few cells), and need not be.
fn plan_split(bytes: &[u8], wanted: SplitFor<'_>, live: IsLive<'_>) -> Option<Plan> {
    let page = TreePage(bytes);
    let mut at = first_choice(page, wanted);
    paranoid!(
        at <= page.count(),
        "a split at slot {at} of {}",
        page.count()
    );
    loop {
        let separator = separator(page, at, wanted.key)?;
        paranoid!(
            page.low() < &separator[..] && page.high().is_none_or(|high| &separator[..] < high),
            "a separator that is not between the fences"
        );
        let left = if at == page.count() && page.takes_high_in_place(&separator) {
            Ok(None)
        } else {
            let mut left = bytes.to_vec();
            let set = TreePageMut(&mut left).set_high(at, Some(&separator), live);
            set.map(|()| Some(left))
        };
        if let Ok(left) = left {
            return Some(Plan {
                at,
                separator,
                left,
            });
        }
        // The fence takes more room than there is: one cell more goes to the right.
        at = at.checked_sub(1)?;
    }
}

fn first_choice(page: TreePage<'_>, wanted: SplitFor<'_>) -> usize {
    let count = page.count();
    if !page.is_leaf() {
        // Growing at the right edge: leave the left node full.
        return if page.high().is_none() && page.child_slot(wanted.key) == count - 1 {
            count - 1
        } else {
            middle(page)
        };
    }
    match page.search(wanted.key) {
        Err(slot) if slot == count && (wanted.ascending || page.high().is_none() || count == 1) => {
            count
        }
        Err(0) if count == 1 => 0,
        _ => middle(page),
    }
}

/// The slot at which the bytes of the cells are halved; neither side is empty.
fn middle(page: TreePage<'_>) -> usize {
    let (count, half) = (page.count(), page.used() / 2);
    let mut sum = 0;
    for slot in 0..count {
        sum += page.cell(slot).len + SLOT_LEN;
        if sum >= half {
            return (slot + 1).clamp(1, count.saturating_sub(1).max(1));
        }
    }
    count / 2
}

/// The shortest key above everything left of slot `at` and not above anything right of it.
pub(super) fn separator(page: TreePage<'_>, at: usize, wanted: &[u8]) -> Option<Vec<u8>> {
    let count = page.count();
    if !page.is_leaf() {
        return (at > 0 && at < count).then(|| page.key(at));
    }
    let right = if at < count {
        page.key(at)
    } else {
        wanted.to_vec()
    };
    let left = if at > 0 {
        page.key(at - 1)
    } else {
        wanted.to_vec()
    };
    if left >= right {
        return None;
    }
    let length = common_prefix(&left, &right) + 1;
    paranoid!(
        left[..] < right[..length],
        "a separator of {length} bytes is not above the key to the left"
    );
    Some(right[..length].to_vec())
}
