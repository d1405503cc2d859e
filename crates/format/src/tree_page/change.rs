//! Changes of tree pages.

use super::cell::{set_version, write_head};
use super::{
    CELL_DELETED, CELL_VERSIONED, COUNT_AT, Cell, FLAGS_AT, GARBAGE_AT, HAS_HIGH, HEAP_START_AT,
    HIGH_LEN_AT, IsLive, LEVEL_AT, LOW_LEN_AT, NOTHING_LIVE, NoRoom, PREFIX_LEN_AT, SLOT_LEN,
    SLOTS_AT, TREE_AT, TreePage, TreePageInit, cell_len, head,
};
use crate::codec::common_prefix;
use crate::header::{PageType, init_page, put_u16, put_u32};
use crate::{PageId, PageNo, VersionAddress};
use std::ops::Range;

/// A tree page that is changed. Changes keep the invariants of the page.
pub struct TreePageMut<'a>(pub &'a mut [u8]);

impl TreePageMut<'_> {
    /// The page, for reading.
    pub fn read(&self) -> TreePage<'_> {
        TreePage(self.0)
    }

    /// Makes an empty tree page of whatever was there.
    pub fn init(&mut self, id: PageId, init: &TreePageInit) {
        let kind = if init.level == 0 {
            PageType::Leaf
        } else {
            PageType::Inner
        };
        init_page(self.0, id, kind);
        put_u32(self.0, TREE_AT, init.tree.0);
        self.0[LEVEL_AT] = init.level;
        self.set_fences(&init.low, init.high.as_deref());
    }

    fn set_fences(&mut self, low: &[u8], high: Option<&[u8]>) {
        let size = self.0.len();
        let high_bytes = high.unwrap_or(&[]);
        let heap_end = size - low.len() - high_bytes.len();
        self.0[heap_end..heap_end + low.len()].copy_from_slice(low);
        self.0[size - high_bytes.len()..].copy_from_slice(high_bytes);
        self.0[FLAGS_AT] = if high.is_some() { HAS_HIGH } else { 0 };
        put_u16(self.0, COUNT_AT, 0);
        put_u32(self.0, HEAP_START_AT, heap_end as u32);
        put_u32(self.0, GARBAGE_AT, 0);
        put_u16(self.0, LOW_LEN_AT, low.len() as u16);
        put_u16(self.0, HIGH_LEN_AT, high_bytes.len() as u16);
        let prefix = high.map_or(0, |high| common_prefix(low, high));
        put_u16(self.0, PREFIX_LEN_AT, prefix as u16);
    }

    #[inline]
    fn write_cell(
        &mut self,
        at: usize,
        flags: u8,
        version: Option<VersionAddress>,
        suffix: &[u8],
        value: &[u8],
    ) {
        let at = write_head(self.0, at, flags, version, suffix.len(), value.len());
        let (suffix_room, rest) = self.0[at..].split_at_mut(suffix.len());
        suffix_room.copy_from_slice(suffix);
        rest[..value.len()].copy_from_slice(value);
    }

    /// Makes `need` contiguous bytes free, compacting if that helps.
    fn make_room(&mut self, need: usize, live: IsLive<'_>) -> Result<(), NoRoom> {
        if self.read().contiguous_free() >= need {
            return Ok(());
        }
        if self.read().free() < need && !self.read().has_room(need, live) {
            return Err(NoRoom);
        }
        self.compact(live);
        if self.read().contiguous_free() >= need {
            Ok(())
        } else {
            Err(NoRoom)
        }
    }

    /// Rewrites the heap without garbage and without version addresses that no longer matter. Not
    /// logged: what the page says does not change.
    pub fn compact(&mut self, live: IsLive<'_>) {
        let old = self.0.to_vec();
        let page = TreePage(&old);
        let placed = self.lay_out(page, page.count(), live);
        debug_assert!(placed.is_ok(), "cells that fitted with garbage fit without");
    }

    /// Makes the first `keep` cells of `from`, a page of the same low fence, the only ones of this
    /// page, without version addresses that no longer matter. The fences are set; the heap and the
    /// slots may hold anything.
    fn lay_out(&mut self, from: TreePage<'_>, keep: usize, live: IsLive<'_>) -> Result<(), NoRoom> {
        self.lay_out_as(from, keep, |_, cell| {
            (cell.flags, cell.version.filter(|&v| live(v)))
        })
    }

    /// The same with the flags and the version that each cell is to have.
    fn lay_out_as(
        &mut self,
        from: TreePage<'_>,
        keep: usize,
        change: impl Fn(usize, Cell<'_>) -> (u8, Option<VersionAddress>),
    ) -> Result<(), NoRoom> {
        let (old_prefix, prefix) = (from.prefix_len(), self.read().prefix_len());
        // What the suffixes lose to the prefix, or get back from it.
        let cut = prefix.saturating_sub(old_prefix);
        let regained = &from.low()[prefix.min(old_prefix)..old_prefix];
        let mut heap = self.read().heap_end();
        for slot in 0..keep {
            let cell = from.cell(slot);
            let (cut, regained) = if slot == 0 && !from.is_leaf() {
                (0, &[][..])
            } else {
                (cut, regained)
            };
            let (flags, version) = change(slot, cell);
            // Suffix and value stand side by side.
            let value_len = cell.value.len();
            let end = from.slot_offset(slot) + cell.len;
            let rest = &from.0[end - value_len - cell.suffix.len() + cut..end];
            let suffix_len = regained.len() + rest.len() - value_len;
            let (len, at) = (
                cell_len(suffix_len, value_len, version.is_some()),
                SLOTS_AT + slot * SLOT_LEN,
            );
            if heap < at + SLOT_LEN + len {
                return Err(NoRoom);
            }
            heap -= len;
            let suffix_at = write_head(self.0, heap, flags, version, suffix_len, value_len);
            let (front, back) = self.0[suffix_at..].split_at_mut(regained.len());
            front.copy_from_slice(regained);
            back[..rest.len()].copy_from_slice(rest);
            self.put_slot(slot, heap, suffix_at..suffix_at + suffix_len);
        }
        put_u16(self.0, COUNT_AT, keep as u16);
        put_u32(self.0, HEAP_START_AT, heap as u32);
        put_u32(self.0, GARBAGE_AT, 0);
        Ok(())
    }

    /// Writes a slot for the cell at `cell`, whose suffix is there already.
    #[inline]
    fn put_slot(&mut self, slot: usize, cell: usize, suffix: Range<usize>) {
        let (at, head) = (SLOTS_AT + slot * SLOT_LEN, head(&self.0[suffix]));
        put_u16(self.0, at, cell as u16);
        put_u32(self.0, at + 2, head);
    }

    fn insert_suffix(
        &mut self,
        slot: usize,
        flags: u8,
        version: Option<VersionAddress>,
        suffix: &[u8],
        value: &[u8],
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        let len = cell_len(suffix.len(), value.len(), version.is_some());
        self.make_room(len + SLOT_LEN, live)?;
        let count = self.read().count();
        let heap = self.read().heap_start() - len;
        self.write_cell(heap, flags, version, suffix, value);
        let (from, to) = (SLOTS_AT + slot * SLOT_LEN, SLOTS_AT + count * SLOT_LEN);
        if from < to {
            self.0.copy_within(from..to, from + SLOT_LEN);
        }
        put_u16(self.0, from, heap as u16);
        put_u32(self.0, from + 2, head(suffix));
        put_u16(self.0, COUNT_AT, (count + 1) as u16);
        put_u32(self.0, HEAP_START_AT, heap as u32);
        Ok(())
    }

    /// Inserts a row at `slot` of a leaf. The key must lie within the fences and between its
    /// neighbours.
    pub fn insert(
        &mut self,
        slot: usize,
        flags: u8,
        version: Option<VersionAddress>,
        key: &[u8],
        value: &[u8],
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        let prefix = self.read().prefix_len();
        self.insert_suffix(slot, flags, version, &key[prefix..], value, live)
    }

    /// Inserts a child at `slot` of an inner node; at slot 0 the key is the low fence.
    pub fn insert_child(&mut self, slot: usize, key: &[u8], child: PageNo) -> Result<(), NoRoom> {
        let prefix = self.read().prefix_len();
        let suffix = if slot == 0 { &[][..] } else { &key[prefix..] };
        self.insert_suffix(slot, 0, None, suffix, &child.0.to_le_bytes(), NOTHING_LIVE)
    }

    /// Gives the cell of `slot` new flags, version address and value.
    pub fn replace(
        &mut self,
        slot: usize,
        flags: u8,
        version: Option<VersionAddress>,
        value: &[u8],
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        let cell = self.read().cell(slot);
        let (suffix_len, old_len) = (cell.suffix.len(), cell.len);
        let len = cell_len(suffix_len, value.len(), version.is_some());
        let suffix = cell.suffix.to_vec();
        // An address that no longer matters is part of the old cell's length already.
        let own_dead = if cell.version.is_some_and(|v| !live(v)) {
            8
        } else {
            0
        };
        let offset = self.read().slot_offset(slot);
        if len <= old_len {
            // The new cell ends where the old one began to be counted: the rest is garbage.
            self.write_cell(offset, flags, version, &suffix, value);
            let garbage = self.read().garbage() + old_len - len;
            put_u32(self.0, GARBAGE_AT, garbage as u32);
            return Ok(());
        }
        if self.read().contiguous_free() < len {
            let room = self.read().free() + old_len;
            if room < len && !self.read().has_room(len - old_len + own_dead, live) {
                return Err(NoRoom);
            }
            return self.replace_by_rebuild(slot, flags, version, &suffix, value, live);
        }
        let heap = self.read().heap_start() - len;
        self.write_cell(heap, flags, version, &suffix, value);
        put_u16(self.0, SLOTS_AT + slot * SLOT_LEN, heap as u16);
        put_u32(self.0, HEAP_START_AT, heap as u32);
        let garbage = self.read().garbage() + old_len;
        put_u32(self.0, GARBAGE_AT, garbage as u32);
        Ok(())
    }

    /// Gives the cell of `slot` another version address, or none. An address in place of another
    /// takes no room.
    pub fn set_version(
        &mut self,
        slot: usize,
        version: Option<VersionAddress>,
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        let offset = self.read().slot_offset(slot);
        if let Some(address) = version
            && set_version(self.0, offset, address)
        {
            return Ok(());
        }
        let cell = self.read().cell(slot);
        let (flags, value) = (cell.flags & !CELL_VERSIONED, cell.value.to_vec());
        self.replace(slot, flags, version, &value, live)
    }

    fn replace_by_rebuild(
        &mut self,
        slot: usize,
        flags: u8,
        version: Option<VersionAddress>,
        suffix: &[u8],
        value: &[u8],
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        let saved = self.0.to_vec();
        self.remove(slot, 1);
        let placed = self.insert_suffix(slot, flags, version, suffix, value, live);
        if placed.is_err() {
            self.0.copy_from_slice(&saved);
        }
        placed
    }

    /// Sets the flags of a cell, but for the version bit.
    pub fn set_flags(&mut self, slot: usize, flags: u8) {
        let at = self.read().slot_offset(slot);
        self.0[at] = self.0[at] & CELL_VERSIONED | flags & !CELL_VERSIONED;
    }

    /// Marks rows side by side deleted, with this version; without one takes mark and version from
    /// them. The page is unchanged where the addresses do not fit.
    pub fn mark(
        &mut self,
        slots: Range<usize>,
        version: Option<VersionAddress>,
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        let page = self.read();
        let in_place = |slot| page.version(slot).is_some() == version.is_some();
        if slots.clone().all(in_place) {
            for slot in slots {
                let offset = self.read().slot_offset(slot);
                let flags = self.0[offset] & !CELL_DELETED;
                self.0[offset] = flags | version.map_or(0, |_| CELL_DELETED);
                if let Some(version) = version {
                    set_version(self.0, offset, version);
                }
            }
            return Ok(());
        }
        let old = self.0.to_vec();
        let page = TreePage(&old);
        let change = |slot: usize, cell: Cell<'_>| match (slots.contains(&slot), version) {
            (true, Some(_)) => (cell.flags | CELL_DELETED, version),
            (true, None) => (cell.flags & !CELL_DELETED, None),
            (false, _) => (cell.flags, cell.version.filter(|&v| live(v))),
        };
        let placed = self.lay_out_as(page, page.count(), change);
        if placed.is_err() {
            self.0.copy_from_slice(&old);
        }
        placed
    }

    /// Removes `count` cells from `slot` on.
    pub fn remove(&mut self, slot: usize, count: usize) {
        let page = self.read();
        let total = page.count();
        let freed: usize = (slot..slot + count).map(|slot| page.cell(slot).len).sum();
        let garbage = page.garbage() + freed;
        let (to, from) = (
            SLOTS_AT + slot * SLOT_LEN,
            SLOTS_AT + (slot + count) * SLOT_LEN,
        );
        self.0.copy_within(from..SLOTS_AT + total * SLOT_LEN, to);
        put_u16(self.0, COUNT_AT, (total - count) as u16);
        put_u32(self.0, GARBAGE_AT, garbage as u32);
        if total == count {
            let end = self.read().heap_end();
            put_u32(self.0, HEAP_START_AT, end as u32);
            put_u32(self.0, GARBAGE_AT, 0);
        }
    }

    /// Keeps the first `keep` cells and sets a new high fence. The page is unchanged when the
    /// cells would not fit (a longer fence, a shorter prefix).
    pub fn set_high(
        &mut self,
        keep: usize,
        high: Option<&[u8]>,
        live: IsLive<'_>,
    ) -> Result<(), NoRoom> {
        if let Some(high) = high
            && keep == self.read().count()
            && self.read().takes_high_in_place(high)
        {
            self.set_high_in_place(high);
            return Ok(());
        }
        let old = self.0.to_vec();
        let page = TreePage(&old);
        if SLOTS_AT + page.low_len() + high.map_or(0, <[u8]>::len) > self.0.len() {
            return Err(NoRoom);
        }
        self.set_fences(page.low(), high);
        let placed = self.lay_out(page, keep, live);
        if placed.is_err() {
            self.0.copy_from_slice(&old);
        }
        placed
    }

    /// Sets a high fence for which [`TreePage::takes_high_in_place`]: the heap moves as a whole,
    /// and where the prefix has grown, the front of each cell moves over the bytes that its suffix
    /// loses.
    fn set_high_in_place(&mut self, high: &[u8]) {
        let page = self.read();
        let (size, low_len) = (self.0.len(), page.low_len());
        let (heap, low_at) = (page.heap_start(), page.heap_end());
        let (old_prefix, prefix) = (page.prefix_len(), common_prefix(page.low(), high));
        let (new_low_at, count) = (size - high.len() - low_len, page.count());
        let new_heap = new_low_at - (low_at - heap);
        self.0.copy_within(heap..low_at + low_len, new_heap);
        self.0[size - high.len()..].copy_from_slice(high);
        self.0[FLAGS_AT] = HAS_HIGH;
        put_u32(self.0, HEAP_START_AT, new_heap as u32);
        put_u16(self.0, HIGH_LEN_AT, high.len() as u16);
        put_u16(self.0, PREFIX_LEN_AT, prefix as u16);
        let (cut, mut garbage) = (prefix - old_prefix, self.read().garbage());
        for slot in 0..count {
            let offset = self.read().slot_offset(slot) + new_heap - heap;
            let cell = Cell::read(self.0, offset);
            let (flags, version, value_len) = (cell.flags, cell.version, cell.value.len());
            let (suffix_len, end) = (cell.suffix.len() - cut, offset + cell.len);
            let len = cell_len(suffix_len, value_len, version.is_some());
            let suffix_at = write_head(self.0, end - len, flags, version, suffix_len, value_len);
            self.put_slot(slot, end - len, suffix_at..suffix_at + suffix_len);
            garbage += end - offset - len;
        }
        put_u32(self.0, GARBAGE_AT, garbage as u32);
    }
}
