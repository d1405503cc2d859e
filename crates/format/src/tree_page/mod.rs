//! The slotted page of a B+tree: leaves and inner nodes.
//!
//! | bytes  | field                                                                  |
//! |--------|------------------------------------------------------------------------|
//! | 0..24  | common page header                                                     |
//! | 24..28 | tree                                                                   |
//! | 28     | level: 0 for a leaf                                                    |
//! | 29     | flags: bit 0 set when there is a high fence                            |
//! | 30..32 | number of slots                                                        |
//! | 32..36 | heap start: offset of the lowest byte in use by cells                  |
//! | 36..40 | garbage: bytes of the heap that belong to no cell                      |
//! | 40..42 | length of the low fence                                                |
//! | 42..44 | length of the high fence                                               |
//! | 44..46 | prefix length: bytes that all keys of the page share                   |
//! | 46..48 | reserved, zero                                                         |
//! | 48..   | slots of 6 bytes, ordered by key: cell offset u16, head u32            |
//! | ..end  | heap of cells (grows down), then low fence, then high fence at the end |
//!
//! A page holds the keys k with low <= k < high (no high fence: no upper bound). The longest
//! common prefix of the fences is the prefix of every key, so cells hold only the suffix. The head
//! of a slot is the first four bytes of the suffix (zero-padded) as a big-endian number: most
//! comparisons end there.
//!
//! A cell: flags u8, suffix length varint, value length varint, version address u64 if flagged,
//! suffix, value. In an inner node the value is the child's page number (u32); slot i leads to the
//! keys from its own key up to the next slot's, and slot 0 stands for the low fence (its suffix is
//! empty and never compared).
//!
//! Invariants, executed by [`TreePage::check`]: slots are sorted by key without duplicates; cells
//! lie within the heap and do not overlap it; used + garbage bytes = heap size; every key lies
//! within the fences.

mod cell;
mod change;
#[cfg(test)]
mod tests;

pub use cell::{Cell, HEAD_LEN, cell_len, head};
pub use change::TreePageMut;

use crate::codec::{common_prefix, compare, starts_with};
use crate::header::{PAGE_HEADER_LEN, PAGE_TYPE_AT, PageType, get_u16, get_u32};
use crate::{Corrupt, PageNo, TreeId, VersionAddress};
use std::cmp::Ordering;

/// Offset of the first slot.
pub const SLOTS_AT: usize = 48;
/// Bytes of a slot.
pub const SLOT_LEN: usize = 6;

const TREE_AT: usize = PAGE_HEADER_LEN;
const LEVEL_AT: usize = 28;
const FLAGS_AT: usize = 29;
/// Offset of the slot count (for readers that look at racing memory).
pub const COUNT_AT: usize = 30;
const HEAP_START_AT: usize = 32;
const GARBAGE_AT: usize = 36;
const LOW_LEN_AT: usize = 40;
const HIGH_LEN_AT: usize = 42;
/// Offset of the prefix length (for readers that look at racing memory).
pub const PREFIX_LEN_AT: usize = 44;

const HAS_HIGH: u8 = 1;

/// Cell flag: the row is deleted; it stays until no snapshot needs it.
pub const CELL_DELETED: u8 = 1;
/// Cell flag: a version address precedes the key.
pub const CELL_VERSIONED: u8 = 2;
/// Cell flag: the value is a reference to a chain of overflow pages.
pub const CELL_OVERFLOW: u8 = 4;
/// All flags that a cell may have.
pub(crate) const CELL_FLAGS_KNOWN: u8 = 7;
/// The highest level of a tree page.
pub(crate) const LEVEL_MAX: u8 = 64;

/// The longest key for a page size: 3072 bytes from 16 KiB on, less on smaller pages so that an
/// inner node always holds several.
pub const fn key_len_max(page_size: usize) -> usize {
    let limit = page_size * 3 / 16;
    if limit < 3072 { limit } else { 3072 }
}

/// Whether a row stays in its leaf as it is; the value of a longer one goes to overflow pages. Two
/// rows fit a leaf unless its fences are long, and one always does.
pub const fn is_inline(page_size: usize, key_len: usize, value_len: usize) -> bool {
    key_len + value_len <= page_size / 2 - 128
}

const _: () = {
    // The largest row with its slot, lengths and version address, between the longest fences.
    let mut page_size = crate::header::PAGE_SIZE_MIN;
    while page_size <= crate::header::PAGE_SIZE_MAX {
        let largest = page_size / 2 - 128 + SLOT_LEN + 1 + 3 + 3 + 8;
        assert!(largest + SLOTS_AT + 2 * key_len_max(page_size) <= page_size);
        page_size *= 2;
    }
};

/// The cell does not fit into the page, even after compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// What a tree page is initialised with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePageInit {
    /// The tree.
    pub tree: TreeId,
    /// 0 for a leaf.
    pub level: u8,
    /// Smallest key that may be in the page.
    pub low: Vec<u8>,
    /// Keys in the page are below this; `None`: no bound.
    pub high: Option<Vec<u8>>,
}

/// A tree page that is read.
#[derive(Clone, Copy)]
pub struct TreePage<'a>(pub &'a [u8]);

impl<'a> TreePage<'a> {
    /// The tree that the page belongs to.
    pub fn tree(self) -> TreeId {
        TreeId(get_u32(self.0, TREE_AT))
    }
    /// 0 for a leaf.
    pub fn level(self) -> u8 {
        self.0[LEVEL_AT]
    }
    /// Whether the page is a leaf.
    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }
    /// Number of slots.
    #[inline]
    pub fn count(self) -> usize {
        usize::from(get_u16(self.0, COUNT_AT))
    }
    fn heap_start(self) -> usize {
        get_u32(self.0, HEAP_START_AT) as usize
    }
    fn garbage(self) -> usize {
        get_u32(self.0, GARBAGE_AT) as usize
    }
    fn low_len(self) -> usize {
        usize::from(get_u16(self.0, LOW_LEN_AT))
    }
    fn high_len(self) -> usize {
        usize::from(get_u16(self.0, HIGH_LEN_AT))
    }
    fn heap_end(self) -> usize {
        self.0.len() - self.low_len() - self.high_len()
    }
    /// Bytes that all keys of the page share.
    #[inline]
    pub fn prefix_len(self) -> usize {
        usize::from(get_u16(self.0, PREFIX_LEN_AT))
    }
    /// Smallest key that may be in the page.
    pub fn low(self) -> &'a [u8] {
        let at = self.heap_end();
        &self.0[at..at + self.low_len()]
    }
    /// Keys in the page are below this; `None`: no bound.
    pub fn high(self) -> Option<&'a [u8]> {
        (self.0[FLAGS_AT] & HAS_HIGH != 0).then(|| &self.0[self.0.len() - self.high_len()..])
    }
    /// The common prefix of all keys.
    pub fn prefix(self) -> &'a [u8] {
        &self.low()[..self.prefix_len()]
    }
    /// Whether `key` belongs to this page.
    pub fn covers(self, key: &[u8]) -> bool {
        compare(key, self.low()).is_ge()
            && self.high().is_none_or(|high| compare(key, high).is_lt())
    }
    /// Free bytes between the slots and the heap.
    pub fn contiguous_free(self) -> usize {
        self.heap_start() - SLOTS_AT - self.count() * SLOT_LEN
    }
    /// All free bytes, counting those that compaction would free.
    pub fn free(self) -> usize {
        self.contiguous_free() + self.garbage()
    }
    /// Bytes in use by slots and cells.
    pub fn used(self) -> usize {
        self.heap_end() - SLOTS_AT - self.free()
    }
    /// Bytes for slots and cells in an empty page with these fences.
    pub fn capacity(self) -> usize {
        self.heap_end() - SLOTS_AT
    }
    /// Where the cell of a slot begins.
    #[inline]
    pub fn slot_offset(self, slot: usize) -> usize {
        usize::from(get_u16(self.0, SLOTS_AT + slot * SLOT_LEN))
    }
    /// Where the cells of slots begin.
    #[inline]
    pub fn slot_offsets(self, slots: std::ops::Range<usize>) -> impl ExactSizeIterator<Item = u16> {
        let bytes = &self.0[SLOTS_AT + slots.start * SLOT_LEN..SLOTS_AT + slots.end * SLOT_LEN];
        let offset = |slot: &[u8]| u16::from_le_bytes([slot[0], slot[1]]);
        bytes.chunks_exact(SLOT_LEN).map(offset)
    }
    #[inline]
    fn slot_head(self, slot: usize) -> u32 {
        get_u32(self.0, SLOTS_AT + slot * SLOT_LEN + 2)
    }
    /// The cell of a slot.
    #[inline]
    pub fn cell(self, slot: usize) -> Cell<'a> {
        Cell::read(self.0, self.slot_offset(slot))
    }
    /// The version address in the cell of a slot.
    #[inline]
    pub fn version(self, slot: usize) -> Option<VersionAddress> {
        cell::read_version(self.0, self.slot_offset(slot))
    }
    /// Whether the row of a slot is delete-marked.
    #[inline]
    pub fn is_deleted(self, slot: usize) -> bool {
        self.0[self.slot_offset(slot)] & CELL_DELETED != 0
    }
    /// Appends the full key of a slot to `out` (which is cleared first).
    pub fn key_into(self, slot: usize, out: &mut Vec<u8>) {
        out.clear();
        if slot == 0 && !self.is_leaf() {
            out.extend_from_slice(self.low());
            return;
        }
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.cell(slot).suffix);
    }
    /// The full key of a slot.
    pub fn key(self, slot: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(slot, &mut key);
        key
    }
    /// The child that a slot of an inner node leads to.
    pub fn child(self, slot: usize) -> PageNo {
        PageNo(get_u32(self.cell(slot).value, 0))
    }

    /// The slot of `key`, or the slot where it would be inserted.
    #[inline]
    pub fn search(self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        if !starts_with(key, prefix) {
            return Err(if key < prefix { 0 } else { self.count() });
        }
        let suffix = &key[prefix.len()..];
        // Rows often arrive in key order: look at the end first.
        if let Some(last) = self.count().checked_sub(1)
            && self.compare(last, head(suffix), suffix).is_lt()
        {
            return Err(last + 1);
        }
        self.search_suffix(suffix, 0)
    }

    /// How the key of a slot compares with a suffix whose head is known.
    #[inline]
    fn compare(self, slot: usize, head: u32, suffix: &[u8]) -> Ordering {
        self.slot_head(slot)
            .cmp(&head)
            .then_with(|| compare(self.cell(slot).suffix, suffix))
    }

    /// Binary search among the slots from `first` on.
    #[inline]
    fn search_suffix(self, suffix: &[u8], first: usize) -> Result<usize, usize> {
        let wanted = head(suffix);
        let (mut from, mut to) = (first, self.count());
        while from < to {
            let middle = (from + to) / 2;
            match self.compare(middle, wanted, suffix) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(from)
    }

    /// In an inner node: the slot whose child may hold `key`.
    pub fn child_slot(self, key: &[u8]) -> usize {
        let prefix = self.prefix();
        if !starts_with(key, prefix) {
            return if key < prefix { 0 } else { self.count() - 1 };
        }
        let suffix = &key[prefix.len()..];
        match self.search_suffix(suffix, 1) {
            Ok(slot) => slot,
            Err(slot) => slot - 1,
        }
    }

    /// In an inner node: the slot whose child may hold the greatest key below `key`.
    pub fn child_slot_before(self, key: &[u8]) -> usize {
        let prefix = self.prefix();
        if !starts_with(key, prefix) {
            return if key < prefix { 0 } else { self.count() - 1 };
        }
        let suffix = &key[prefix.len()..];
        match self.search_suffix(suffix, 1) {
            Ok(slot) | Err(slot) => slot - 1,
        }
    }

    /// Whether compaction, dropping addresses that no longer matter, would make `need` bytes free.
    pub fn has_room(self, need: usize, live: IsLive<'_>) -> bool {
        let mut found = self.free();
        found >= need
            || (0..self.count()).any(|slot| {
                if self.version(slot).is_some_and(|v| !live(v)) {
                    found += 8;
                }
                found >= need
            })
    }

    /// Whether [`TreePageMut::set_high`] to `high`, with every cell kept, changes the page where it
    /// is: it cannot fail then, and costs next to nothing. The rule: a leaf, keys that lose some of
    /// their bytes to the prefix or none, and room for the fence without compaction.
    pub fn takes_high_in_place(self, high: &[u8]) -> bool {
        self.is_leaf()
            && common_prefix(self.low(), high) >= self.prefix_len()
            && self.contiguous_free() + self.high_len() >= high.len()
    }

    /// Checks the page's structure; every other method may be called only on checked pages.
    pub fn check(self) -> Result<(), Corrupt> {
        let count = self.count();
        let bad = |at: usize, what: String| Err(Corrupt::at(at, what));
        let leaf = self.0[PAGE_TYPE_AT] == PageType::Leaf as u8;
        if leaf != self.is_leaf() || self.level() > LEVEL_MAX {
            return bad(
                LEVEL_AT,
                format!(
                    "level {} in a page of type {}",
                    self.level(),
                    self.0[PAGE_TYPE_AT]
                ),
            );
        }
        if self.0[FLAGS_AT] & !HAS_HIGH != 0 || get_u16(self.0, 46) != 0 {
            return bad(FLAGS_AT, "reserved bits are set".to_owned());
        }
        self.check_fences()?;
        if !leaf && count == 0 {
            return bad(COUNT_AT, "inner node without children".to_owned());
        }
        let mut used = 0;
        for slot in 0..count {
            used += self.check_cell(slot, leaf)?;
            if slot > usize::from(!leaf) && self.cell(slot - 1).suffix >= self.cell(slot).suffix {
                return bad(
                    SLOTS_AT + slot * SLOT_LEN,
                    format!("slot {slot} is out of order"),
                );
            }
        }
        if used + self.garbage() != self.heap_end() - self.heap_start() {
            return bad(
                GARBAGE_AT,
                format!(
                    "{used} bytes of cells and {} of garbage do not fill the heap",
                    self.garbage()
                ),
            );
        }
        // Slot 0 of an inner node has the low fence for its key.
        let first = usize::from(!leaf);
        if count > first {
            let (low, high) = (self.key(first), self.key(count - 1));
            if low.as_slice() < self.low() || self.high().is_some_and(|h| high.as_slice() >= h) {
                return bad(SLOTS_AT, "a key lies outside of the fences".to_owned());
            }
        }
        Ok(())
    }

    /// Checks where the fences and the heap lie, and the prefix that the fences have in common.
    fn check_fences(self) -> Result<(), Corrupt> {
        let (size, count) = (self.0.len(), self.count());
        let bad = |at: usize, what: String| Err(Corrupt::at(at, what));
        let slots_end = SLOTS_AT + count * SLOT_LEN;
        let fences = self.low_len() + self.high_len();
        if fences + SLOTS_AT > size
            || self.heap_start() > size - fences
            || self.heap_start() < slots_end
            || self.garbage() > size
        {
            return bad(
                HEAP_START_AT,
                format!(
                    "heap starts at {}, {count} slots, fences of {fences} bytes",
                    self.heap_start()
                ),
            );
        }
        if self.high().is_none() && self.high_len() != 0 {
            return bad(
                HIGH_LEN_AT,
                "a high fence has a length but is not there".to_owned(),
            );
        }
        let expected_prefix = self.high().map_or(0, |h| common_prefix(self.low(), h));
        if self.prefix_len() != expected_prefix {
            return bad(
                PREFIX_LEN_AT,
                format!("prefix {} should be {expected_prefix}", self.prefix_len()),
            );
        }
        Ok(())
    }

    fn check_cell(self, slot: usize, leaf: bool) -> Result<usize, Corrupt> {
        let (start, end) = (self.slot_offset(slot), self.heap_end());
        let bad = |what: &str| Corrupt::at(start, format!("cell of slot {slot}: {what}"));
        if start < self.heap_start() {
            return Err(bad("starts before the heap"));
        }
        let cell = self
            .0
            .get(start..end)
            .ok_or_else(|| bad("starts after the heap"))?;
        let mut r = crate::codec::Reader::new(cell);
        let flags = r.u8()?;
        if flags & !CELL_FLAGS_KNOWN != 0 || (!leaf && flags != 0) {
            return Err(bad("unknown flags"));
        }
        let suffix_len = r.varint_max(1 << 16, "suffix length")? as usize;
        let value_len = r.varint_max(1 << 16, "value length")? as usize;
        if flags & CELL_VERSIONED != 0 {
            r.u64()?;
        }
        let suffix = r.take(suffix_len)?;
        r.take(value_len)?;
        if r.offset() != cell_len(suffix_len, value_len, flags & CELL_VERSIONED != 0) {
            return Err(bad("length written in more bytes than needed"));
        }
        if head(suffix) != self.slot_head(slot) {
            return Err(bad("the slot's head is not that of the key"));
        }
        if !leaf && (value_len != 4 || (slot == 0 && suffix_len != 0)) {
            return Err(bad("not a child reference"));
        }
        Ok(r.offset())
    }
}

/// Tells whether a version address still matters.
pub type IsLive<'a> = &'a dyn Fn(VersionAddress) -> bool;

/// For recovery: no address of an earlier run matters.
pub const NOTHING_LIVE: IsLive<'static> = &|_| false;

/// Logged addresses alone matter: for replay, which knows no others.
pub const LOGGED_LIVE: IsLive<'static> = &|address| address.is_logged();
