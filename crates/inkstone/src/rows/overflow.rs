//! Long values: a value that does not fit a leaf lies in a chain of overflow pages of its own, and
//! its cell holds a reference to it ([`inkstone_format::overflow`]). Of a value with parts only
//! these lie in chains, one each: see `parts`.
//!
//! # How no page is lost
//!
//! Each tablespace has a tree of chains that wait to be freed (key: first page, big-endian). Its
//! rows are versioned like all others, and that is the whole mechanism:
//! 1. A new chain is entered there by the mini-transaction that allocates its first pages, outside
//!    of any transaction, and locked by the transaction that makes it. When the row refers to the
//!    chain, that transaction deletes the entry. If it rolls back, or the process dies, the entry
//!    is there (again) and its lock is free: the chain is freed.
//! 2. A transaction that gives up a reference (update, delete) inserts an entry for the chain. It
//!    takes effect at commit, and the chain is freed when no snapshot can see the old row. A chain
//!    that the updated row keeps has no entry, before and after: rolled back or not, a row has it.
//! 3. Freeing takes some pages from behind the first one in each mini-transaction, and at last the
//!    first page with the entry that names it; it can stop anywhere.

use crate::btree::{SplitFor, Target, Tree};
use crate::locks::{IfTaken, LockMode, Newest, RowName, Taken};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::rows::change::{OldCell, Written, remove_dead_rows};
use crate::rows::read::row_name;
use crate::rows::write::Write;
use crate::space::{FreePage, Space};
use crate::txn::core::Core;
use crate::txn::state::{Inner, Shared};
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::apply::map_pages;
use inkstone_format::header::{PAGE_TYPE_AT, PageType};
use inkstone_format::overflow::{
    LongValue, NEXT_AT, OverflowPage, Part, bytes_per_page, overflow_bytes,
};
use inkstone_format::record::{Record, Row};
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::tree_page::{CELL_OVERFLOW, SLOT_LEN, TreePage, TreePageMut, cell_len};
use inkstone_format::{Corrupt, PageNo, SpaceId};
use std::ops::Range;
use std::sync::Arc;

/// Pages that are allocated, or freed, in one mini-transaction.
const BATCH_PAGES: usize = 8;

/// A page of a chain, and which byte of the value is its first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainPlace {
    page: PageNo,
    pub at: u64,
}

impl ChainPlace {
    pub fn start_of(part: &Part) -> Self {
        paranoid!(
            part.first != PageNo(0) && part.length > 0,
            "a chain of no pages has the part {part:?}"
        );
        let (page, at) = (part.first, part.at);
        Self { page, at }
    }
}

/// What a look at the chains that wait to be freed came to.
enum Pending {
    /// The key of one that may be freed now.
    Free(Vec<u8>),
    /// There is none in this leaf; where the next leaf begins.
    NextLeaf(Vec<u8>),
    End,
}

impl Core {
    /// The tree of chains that wait to be freed, if the tablespace has one.
    fn pending_free_tree(&self, space: &Arc<Space>) -> Result<Option<Tree>> {
        match space.root(PENDING_FREE_TREE)? {
            Some(root) => Ok(Some(Tree::new(
                space.clone(),
                PENDING_FREE_TREE,
                root,
                self.storage.clone(),
            ))),
            None => Ok(None),
        }
    }

    fn make_pending_free_tree(&self, space: &Arc<Space>) -> Result<Tree> {
        if let Some(tree) = self.pending_free_tree(space)? {
            return Ok(tree);
        }
        let _one = self.making_pending_free.lock();
        match self.pending_free_tree(space)? {
            Some(tree) => Ok(tree),
            None => Tree::create(space.clone(), PENDING_FREE_TREE, self.storage.clone()),
        }
    }

    /// A cell with the overflow flag: which chains its value has, and what it holds itself.
    pub(crate) fn long_value<'c>(&self, tree: &Tree, cell: &'c [u8]) -> Result<LongValue<'c>> {
        LongValue::parse(cell).ok_or_else(|| {
            let what = format!("{} bytes are no reference to a long value", cell.len());
            bad_chain(&tree.space, PageNo(0), what)
        })
    }

    /// Reads these bytes of a long value, as far as it has them. Chains without any of them are
    /// not touched.
    pub(crate) fn read_long_value(
        &self,
        tree: &Tree,
        cell: &[u8],
        wanted: &Range<u64>,
    ) -> Result<Vec<u8>> {
        let value = self.long_value(tree, cell)?;
        let end = wanted.end.min(value.length());
        let wanted = wanted.start.min(end)..end;
        let mut read = Vec::with_capacity((wanted.end - wanted.start).min(1 << 24) as usize);
        let (mut at, mut inline) = (0, value.inline);
        for part in &value.parts {
            let (before, behind) = inline.split_at((part.at - at) as usize);
            read.extend_from_slice(overlap(before, at, &wanted));
            inline = behind;
            at = part.at + part.length;
            if part.at < wanted.end && wanted.start < at {
                self.read_chain(&tree.space, part, &wanted, &mut read)?;
            }
        }
        read.extend_from_slice(overlap(inline, at, &wanted));
        paranoid!(
            read.len() as u64 == wanted.end - wanted.start,
            "{} bytes of a long value were read, not {wanted:?}",
            read.len()
        );
        Ok(read)
    }

    /// Reads what a part of a value has of the wanted bytes.
    fn read_chain(
        &self,
        space: &Arc<Space>,
        part: &Part,
        wanted: &Range<u64>,
        read: &mut Vec<u8>,
    ) -> Result<()> {
        let start = ChainPlace::start_of(part);
        self.walk_chain(space, part, start, wanted.end, |data, at| {
            read.extend_from_slice(overlap(data, at, wanted));
        })?;
        Ok(())
    }

    /// Fills `to` with the bytes of a part that begin at `from` of the value. The chain is walked
    /// from `start` on, which lies before them; the place of the last page that was visited.
    pub(crate) fn read_part(
        &self,
        tree: &Tree,
        part: &Part,
        (start, from): (ChainPlace, u64),
        to: &mut [u8],
    ) -> Result<ChainPlace> {
        let wanted = from..from + to.len() as u64;
        paranoid!(
            part.at <= start.at && start.at <= from && wanted.end <= part.at + part.length,
            "bytes {wanted:?} of the part {part:?} are read from {start:?} on"
        );
        let mut filled = 0;
        let last = self.walk_chain(&tree.space, part, start, wanted.end, |data, at| {
            let data = overlap(data, at, &wanted);
            to[filled..filled + data.len()].copy_from_slice(data);
            filled += data.len();
        })?;
        paranoid!(
            filled == to.len(),
            "{filled} bytes of a part were read, not {}",
            to.len()
        );
        Ok(last)
    }

    /// Visits the pages of a chain from a place on, as far as byte `until` of the value: their
    /// bytes, and where these begin in the value. The place of the last one.
    fn walk_chain(
        &self,
        space: &Arc<Space>,
        part: &Part,
        start: ChainPlace,
        until: u64,
        mut visit: impl FnMut(&[u8], u64),
    ) -> Result<ChainPlace> {
        let (mut last, mut next, end) = (start, start, part.at + part.length);
        while next.at < end.min(until) {
            let page = self.storage.pool.shared(space.page_id(next.page))?;
            let overflow = OverflowPage::of(&page);
            let data = overflow.and_then(OverflowPage::data);
            let left = (end - next.at) as usize;
            let (Some(overflow), Some(data)) = (overflow, data.filter(|data| data.len() <= left))
            else {
                let here = overflow.map_or(0, OverflowPage::length);
                let (before, length) = (next.at - part.at, part.length);
                let what = format!("{here} bytes of a long value after {before} of {length}");
                return Err(bad_chain(space, next.page, what));
            };
            visit(data, next.at);
            last = next;
            next.at += data.len() as u64;
            next.page = overflow.next();
        }
        paranoid!(
            next.at <= end,
            "{} bytes of a value were passed whose part ends at {end}",
            next.at
        );
        Ok(last)
    }

    /// Whether a chain holds these bytes and no others. It is read as far as they are the same.
    pub(crate) fn chain_holds(
        &self,
        space: &Arc<Space>,
        first: PageNo,
        bytes: &[u8],
    ) -> Result<bool> {
        let (mut next, mut rest) = (first, bytes);
        while !rest.is_empty() {
            let page = self.storage.pool.shared(space.page_id(next))?;
            let overflow = OverflowPage::of(&page);
            let data = overflow.and_then(|page| Some((page.next(), page.data()?)));
            let Some((following, data)) = data else {
                let what = format!("no bytes of a long value, {} are left", rest.len());
                return Err(bad_chain(space, next, what));
            };
            match rest.strip_prefix(data) {
                Some(behind) => (next, rest) = (following, behind),
                None => return Ok(false),
            }
        }
        Ok(next == PageNo(0))
    }

    /// A chain that a transaction has made, and that no row has referred to: it is freed before the
    /// transaction ends. (One of a row that was taken back is not: a cursor of the transaction may
    /// have copied the row, and reads the value when it comes to it.)
    pub(crate) fn disown_long_value(
        &self,
        shared: &Shared,
        space: &Arc<Space>,
        first: PageNo,
    ) -> Result<()> {
        if let Some(pending) = self.pending_free_tree(space)? {
            let key = first.0.to_be_bytes();
            self.locks
                .unlock_row(&shared.state, row_name(&pending, &key));
            self.pending_free.lock().insert(space.id);
        }
        Ok(())
    }

    /// The pages of the chains of a cell, for verification.
    pub fn long_value_pages(&self, tree: &Tree, cell: &[u8]) -> Result<Vec<PageNo>> {
        let mut pages = Vec::new();
        for first in chains(cell) {
            self.chain_pages(&tree.space, first, &mut pages)?;
        }
        Ok(pages)
    }

    pub(crate) fn chain_pages(
        &self,
        space: &Arc<Space>,
        first: PageNo,
        pages: &mut Vec<PageNo>,
    ) -> Result<()> {
        let mut next = first;
        let most = pages.len() + (1 << 20);
        while next != PageNo(0) && pages.len() < most {
            let page = self.storage.pool.shared(space.page_id(next))?;
            let Some(overflow) = OverflowPage::of(&page) else {
                break;
            };
            pages.push(next);
            next = overflow.next();
        }
        Ok(())
    }

    /// The pages of all chains that wait to be freed.
    pub fn pending_pages(&self, space: &Arc<Space>) -> Result<Vec<PageNo>> {
        let mut pages = Vec::new();
        let Some(tree) = self.pending_free_tree(space)? else {
            return Ok(pages);
        };
        tree.verify(&mut |_, page| {
            for slot in 0..page.count() {
                // A deleted entry's chain belongs to a row.
                if !page.cell(slot).is_deleted() {
                    self.chain_pages(space, first_page(&page.key(slot)), &mut pages)?;
                }
            }
            Ok(())
        })?;
        Ok(pages)
    }

    /// Frees the chains of a tablespace whose entries are committed, needed by no snapshot, and not
    /// locked by a transaction that is still making them.
    pub fn free_pending(self: &Arc<Self>, space: SpaceId) -> Result<()> {
        let Some(space) = self.space(space)? else {
            return Ok(());
        };
        let Some(_tidy) = space.tidy() else {
            // In a later round.
            self.pending_free.lock().insert(space.id);
            return Ok(());
        };
        let Some(tree) = self.pending_free_tree(&space)? else {
            return Ok(());
        };
        let mut from = Vec::new();
        while !self.is_stopping() {
            let next = {
                let leaf = tree.leaf_shared(Target::Key(&from))?;
                let page = TreePage(&leaf);
                let start = page.search(&from).unwrap_or_else(|slot| slot);
                let ready = (start..page.count()).find(|&slot| self.may_free(&tree, page, slot));
                match (ready, page.high()) {
                    (Some(slot), _) => Pending::Free(page.key(slot)),
                    (None, Some(high)) => Pending::NextLeaf(high.to_vec()),
                    (None, None) => Pending::End,
                }
            };
            match next {
                Pending::Free(key) => {
                    self.free_chain(&tree, first_page(&key))?;
                    from = [&key[..], &[0]].concat();
                }
                Pending::NextLeaf(first) => {
                    paranoid!(
                        first > from,
                        "the leaf behind {from:x?} begins at {first:x?}"
                    );
                    from = first;
                }
                Pending::End => break,
            }
        }
        Ok(())
    }

    fn may_free(&self, tree: &Tree, page: TreePage<'_>, slot: usize) -> bool {
        paranoid!(
            tree.id == PENDING_FREE_TREE && slot < page.count(),
            "slot {slot} of {} in tree {} is no chain that waits to be freed",
            page.count(),
            tree.id
        );
        let cell = page.cell(slot);
        if cell.is_deleted() || cell.version.is_some_and(|address| self.is_live(address)) {
            return false;
        }
        let (space, key) = (tree.space.id, page.key(slot));
        let tree = (space, tree.id);
        !self.locks.is_locked(RowName { tree, key: &key })
    }

    /// Frees a whole chain, a few pages in each mini-transaction: those behind the first page,
    /// which the entry names, then the first page with the entry.
    fn free_chain(self: &Arc<Self>, tree: &Tree, first: PageNo) -> Result<()> {
        paranoid!(
            tree.id == PENDING_FREE_TREE,
            "a chain of tree {} is freed",
            tree.id
        );
        loop {
            if self.is_stopping() {
                return Ok(());
            }
            self.before_upkeep()?;
            let space = &tree.space;
            let batch = self.pages_behind(space, first)?;
            if batch.is_empty() {
                return self.free_first(tree, first);
            }
            self.free_batch(space, first, &batch)?;
        }
    }

    /// Some pages that follow the first one, all under one space map page.
    fn pages_behind(&self, space: &Arc<Space>, first: PageNo) -> Result<Vec<PageNo>> {
        let covered = map_pages(self.storage.page_size);
        // Beside the first page.
        let pages_max = (self.storage.pool.pins_max() - 1).min(BATCH_PAGES);
        let mut pages: Vec<PageNo> = Vec::new();
        let mut next = self.next_in_chain(space, first)?;
        while next != PageNo(0)
            && pages.len() < pages_max
            && pages
                .first()
                .is_none_or(|p| p.0 / covered == next.0 / covered)
        {
            // The pages of a batch are latched together.
            if next == first || pages.contains(&next) {
                let what = "a chain that is to be freed comes back to this page";
                let (id, what) = (space.page_id(next), Corrupt::at(NEXT_AT, what));
                return Err(Error::corrupt_page(space.file().path(), id, what));
            }
            pages.push(next);
            next = self.next_in_chain(space, next)?;
        }
        Ok(pages)
    }

    fn next_in_chain(&self, space: &Arc<Space>, page: PageNo) -> Result<PageNo> {
        let id = space.page_id(page);
        let guard = self.storage.pool.shared(id)?;
        match OverflowPage::of(&guard) {
            Some(overflow) => Ok(overflow.next()),
            None => {
                let what = "a chain that is to be freed leads to a page of another type";
                let what = Corrupt::at(PAGE_TYPE_AT, what);
                Err(Error::corrupt_page(space.file().path(), id, what))
            }
        }
    }

    fn free_batch(&self, space: &Arc<Space>, first: PageNo, batch: &[PageNo]) -> Result<()> {
        let region = |page: PageNo| page.0 / map_pages(self.storage.page_size);
        paranoid!(
            !batch.is_empty() && batch.len() <= BATCH_PAGES,
            "{} pages of the chain at {first} are freed together",
            batch.len()
        );
        paranoid!(
            batch
                .iter()
                .all(|&page| page != first && region(page) == region(batch[0])),
            "pages {batch:?} of the chain at {first} are not under one space map page"
        );
        let next = self.next_in_chain(space, batch[batch.len() - 1])?;
        loop {
            let mut pins = self.storage.pool.pins();
            for &page in std::iter::once(&first).chain(batch) {
                pins.hold(space.page_id(page))?;
            }
            let mut mtr = Mtr::new(&self.storage);
            let map = space.latch_map_of(&mut mtr, batch[0])?;
            let mut guards = Vec::new();
            for &page in std::iter::once(&first).chain(batch) {
                guards.extend(self.storage.pool.exclusive_if_resident(space.page_id(page)));
            }
            if guards.len() <= batch.len() {
                continue;
            }
            let mut indexes: Vec<usize> = guards.into_iter().map(|guard| mtr.push(guard)).collect();
            let head = indexes.remove(0);
            let bytes = next.0.to_le_bytes().to_vec();
            mtr.replay(
                head,
                &Record::Bytes {
                    page: mtr.id(head),
                    offset: NEXT_AT as u32,
                    bytes,
                },
            );
            for index in indexes {
                space.free(&mut mtr, map, index);
            }
            return mtr.commit().map(drop);
        }
    }

    /// Frees the only page that is left, and removes the entry.
    fn free_first(&self, tree: &Tree, first: PageNo) -> Result<()> {
        let (space, key) = (&tree.space, first.0.to_be_bytes());
        let mut pins = self.storage.pool.pins();
        loop {
            pins.hold(space.page_id(first))?;
            let mut mtr = Mtr::new(&self.storage);
            let map = space.latch_map_of(&mut mtr, first)?;
            let leaf = match tree.leaf_if_resident(&key)? {
                Ok(leaf) => leaf,
                Err(missing) => {
                    drop(mtr);
                    pins.hold(missing)?;
                    continue;
                }
            };
            let Ok(slot) = TreePage(&leaf).search(&key) else {
                return Ok(());
            };
            let Some(page) = self
                .storage
                .pool
                .exclusive_if_resident(space.page_id(first))
            else {
                continue;
            };
            paranoid!(
                slot < TreePage(&leaf).count() && TreePage(&leaf).key(slot) == key,
                "slot {slot} of page {} is not the entry of the chain at {first}",
                leaf.id()
            );
            let id = leaf.id();
            let leaf = mtr.push(leaf);
            mtr.replay(
                leaf,
                &Record::Remove {
                    page: id,
                    slot: slot as u16,
                    count: 1,
                },
            );
            let page = mtr.push(page);
            paranoid!(
                TreePage(mtr.page(leaf)).search(&key).is_err(),
                "the entry of the chain at {first} is still there"
            );
            space.free(&mut mtr, map, page);
            return mtr.commit().map(drop);
        }
    }
}

/// Damage of a chain, found at this page of it.
fn bad_chain(space: &Arc<Space>, page: PageNo, what: String) -> Error {
    let id = space.page_id(page);
    Error::corrupt_page(space.file().path(), id, Corrupt::at(NEXT_AT, what))
}

/// What of bytes that begin at `at` of a value is wanted.
fn overlap<'b>(bytes: &'b [u8], at: u64, wanted: &Range<u64>) -> &'b [u8] {
    let place = |offset: u64| offset.saturating_sub(at).min(bytes.len() as u64) as usize;
    let (start, end) = (place(wanted.start), place(wanted.end));
    paranoid!(
        start <= end && end <= bytes.len(),
        "bytes {start}..{end} of {} are wanted",
        bytes.len()
    );
    &bytes[start..end]
}

/// The first pages of the chains that a cell with the overflow flag refers to. None of one that is
/// damaged, which is an error to its readers.
pub(crate) fn chains(cell: &[u8]) -> Vec<PageNo> {
    let parts = LongValue::parse(cell).map_or(Vec::new(), |value| value.parts);
    parts.into_iter().map(|part| part.first).collect()
}

/// For a part of a long value so many pages were asked for.
fn check_found(free: &[FreePage], count: usize) {
    paranoid!(
        free.len() == count && (1..=BATCH_PAGES).contains(&count),
        "{} free pages were found for a part of {count}",
        free.len()
    );
}

fn first_page(key: &[u8]) -> PageNo {
    PageNo(key.try_into().map_or(0, u32::from_be_bytes))
}

/// Inserts an entry, outside of any transaction, into a latched leaf that has room for it. Other
/// entries keep their version addresses, which replaying the record would not do.
fn insert_entry(core: &Core, mtr: &mut Mtr<'_>, leaf: usize, key: &[u8]) {
    let (id, live) = (mtr.id(leaf), |address| core.keeps(address));
    paranoid!(
        key.len() == size_of::<PageNo>(),
        "the key {key:x?} names no page"
    );
    if let Ok(slot) = TreePage(mtr.page(leaf)).search(key) {
        // A deleted entry of the same page, which purge has not removed yet.
        let record = Record::Remove {
            page: id,
            slot: slot as u16,
            count: 1,
        };
        mtr.replay(leaf, &record);
    }
    mtr.change(leaf, |bytes, payload| {
        let slot = TreePage(bytes).search(key).unwrap_or_else(|slot| slot);
        let placed = TreePageMut(bytes).insert(slot, 0, None, key, &[], &live);
        crate::invariant!(placed.is_ok(), "an entry does not fit page {id} after all");
        let row = Row {
            flags: 0,
            key: key.to_vec(),
            value: Vec::new(),
        };
        let record = Record::LeafCells {
            page: id,
            slot: slot as u16,
            rows: vec![row],
        };
        record.put(payload);
    });
    paranoid!(
        TreePage(mtr.page(leaf)).search(key).is_ok(),
        "the entry {key:x?} is not in page {id} after all"
    );
}

impl Transaction {
    /// Stores a long value, or a part of one, in a chain of its own and returns its first page. The
    /// chain is entered as waiting to be freed until [`Transaction::adopt_long_value`].
    pub(crate) fn store_long_value(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        value: &[u8],
    ) -> Result<PageNo> {
        let core = &self.core;
        let pending = core.make_pending_free_tree(&tree.space)?;
        if !inner.long_values.contains(&tree.space.id) {
            inner.long_values.push(tree.space.id);
        }
        let per_page = bytes_per_page(core.storage.page_size);
        let (mut first, mut last, mut rest) = (None, None, value);
        while !rest.is_empty() {
            let mut store = || {
                self.go_on_writing(inner)?;
                let pages = inner.promise.pages_at_once(core, BATCH_PAGES);
                let (part, more) = rest.split_at(rest.len().min(pages * per_page));
                rest = more;
                match last {
                    None => self.store_first(inner, &pending, part, per_page),
                    Some(last) => self.store_more(&pending, part, per_page, last),
                }
            };
            let stored = store();
            if let (Err(_), Some(first)) = (&stored, first) {
                core.disown_long_value(&self.shared, &tree.space, first)?;
            }
            let (head, tail) = stored?;
            first.get_or_insert(head);
            last = Some(tail);
        }
        let first = first.expect("a long value has bytes");
        paranoid!(
            first != PageNo(0),
            "{} bytes of a long value are in page 0",
            value.len()
        );
        Ok(first)
    }

    fn store_first(
        &self,
        inner: &mut Inner,
        pending: &Tree,
        part: &[u8],
        per_page: usize,
    ) -> Result<(PageNo, PageNo)> {
        let core = &self.core;
        let count = part.len().div_ceil(per_page);
        let mut pins = core.storage.pool.pins();
        loop {
            let mut frames = core.storage.pool.reserve(count + 1)?;
            let (mut mtr, free) = pending
                .space
                .find_free(count, &mut frames, || Mtr::new(&core.storage))?;
            check_found(&free, count);
            let key = free[0].page.0.to_be_bytes();
            let leaf = match pending.leaf_if_resident(&key)? {
                Ok(leaf) => leaf,
                Err(missing) => {
                    drop((mtr, frames));
                    pins.hold(missing)?;
                    continue;
                }
            };
            let need = cell_len(key.len(), 0, false) + SLOT_LEN;
            if TreePage(&leaf).free() < need {
                drop((mtr, frames));
                if remove_dead_rows(core, leaf, None)? == 0 {
                    let live = |address| core.keeps(address);
                    pending.split_leaf(SplitFor::row(&key, need), &live)?;
                }
                continue;
            }
            let (state, row) = (&self.shared.state, row_name(pending, &key));
            let (mode, newest) = (LockMode::Exclusive, Newest::Free);
            let locked =
                core.locks
                    .lock_row(state, &mut inner.held, row, mode, &newest, IfTaken::Queue);
            if let Err(taken) = locked {
                drop((mtr, leaf, frames));
                if let Taken::Queued(waiting) = taken {
                    self.wait_for_row(inner, waiting, self.deadline())?;
                    // Another page will do as well.
                    core.locks.give_up(state, row.tree);
                }
                continue;
            }
            let leaf = mtr.push(leaf);
            self.fill_pages(&mut mtr, pending, &free, part, per_page, &mut frames)?;
            insert_entry(core, &mut mtr, leaf, &key);
            mtr.commit()?;
            return Ok((free[0].page, free[count - 1].page));
        }
    }

    fn store_more(
        &self,
        pending: &Tree,
        part: &[u8],
        per_page: usize,
        last: PageNo,
    ) -> Result<(PageNo, PageNo)> {
        let core = &self.core;
        let count = part.len().div_ceil(per_page);
        let last = pending.space.page_id(last);
        let mut pins = core.storage.pool.pins();
        loop {
            let mut frames = core.storage.pool.reserve(count + 1)?;
            pins.hold(last)?;
            let (mut mtr, free) = pending
                .space
                .find_free(count, &mut frames, || Mtr::new(&core.storage))?;
            check_found(&free, count);
            let Some(guard) = core.storage.pool.exclusive_if_resident(last) else {
                continue;
            };
            let tail = mtr.push(guard);
            self.fill_pages(&mut mtr, pending, &free, part, per_page, &mut frames)?;
            let bytes = free[0].page.0.to_le_bytes().to_vec();
            mtr.replay(
                tail,
                &Record::Bytes {
                    page: last,
                    offset: NEXT_AT as u32,
                    bytes,
                },
            );
            mtr.commit()?;
            return Ok((free[0].page, free[count - 1].page));
        }
    }

    fn fill_pages<'p>(
        &self,
        mtr: &mut Mtr<'p>,
        pending: &'p Tree,
        free: &[FreePage],
        part: &[u8],
        per_page: usize,
        frames: &mut crate::buffer::Reservation<'p>,
    ) -> Result<()> {
        let storage = pending.storage();
        paranoid!(
            part.len().div_ceil(per_page) == free.len(),
            "{} bytes of a long value go into {} pages",
            part.len(),
            free.len()
        );
        // All frames first: nothing may fail after the first change.
        let mut indexes = Vec::with_capacity(free.len());
        for free in free {
            let guard = storage
                .pool
                .create(pending.space.page_id(free.page), frames)?;
            indexes.push(mtr.push(guard));
        }
        for (n, chunk) in part.chunks(per_page).enumerate() {
            pending.space.mark(mtr, free[n]);
            let page = mtr.id(indexes[n]);
            let page_type = PageType::Overflow as u8;
            mtr.replay(indexes[n], &Record::PageInit { page, page_type });
            let next = free.get(n + 1).map_or(PageNo(0), |free| free.page);
            let bytes = overflow_bytes(next, chunk);
            mtr.replay(
                indexes[n],
                &Record::Bytes {
                    page,
                    offset: NEXT_AT as u32,
                    bytes,
                },
            );
        }
        Ok(())
    }

    /// The row now refers to the chain: it no longer waits to be freed.
    pub(crate) fn adopt_long_value(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        first: PageNo,
    ) -> Result<()> {
        paranoid!(
            first != PageNo(0),
            "a row of {} is to refer to no chain",
            tree.id
        );
        let pending = self.core.make_pending_free_tree(&tree.space)?;
        let written = self.write_row(inner, &pending, &first.0.to_be_bytes(), Write::Delete)?;
        self.expect(written, Written::Changed, first)
    }

    /// A row gave up its chains, but for those that it goes on to refer to: they are to be freed
    /// once no snapshot sees the old row.
    pub(crate) fn drop_long_value(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        old: &OldCell,
        kept: &[PageNo],
    ) -> Result<()> {
        if old.flags & CELL_OVERFLOW == 0 {
            return Ok(());
        }
        let given_up: Vec<PageNo> = (self.core.long_value(tree, &old.value)?.parts.iter())
            .map(|part| part.first)
            .filter(|first| !kept.contains(first) || mutants::on(Mutant::KeptPartFreed))
            .collect();
        if given_up.is_empty() {
            return Ok(());
        }
        let pending = self.core.make_pending_free_tree(&tree.space)?;
        if !inner.long_values.contains(&tree.space.id) {
            inner.long_values.push(tree.space.id);
        }
        for first in given_up {
            let write = Write::Insert(&[], LockMode::Shared);
            let written = self.write_row(inner, &pending, &first.0.to_be_bytes(), write)?;
            self.expect(written, Written::Inserted, first)?;
        }
        Ok(())
    }

    /// That an entry was, or was not, there: otherwise a chain would be lost, or freed while in
    /// use.
    fn expect(&self, written: Written, expected: Written, first: PageNo) -> Result<()> {
        if written == expected {
            return Ok(());
        }
        Err(self.core.storage.poison.set(format!(
            "the entry of the long value at page {first} was {written:?} where {expected:?} was to be"
        )))
    }
}
