//! Reading an inner node that others may be changing at the same time.
//!
//! An optimistic reader looks at a page without a latch and asks afterwards, by the latch's
//! version, whether what it saw was consistent. Until then every byte may be anything, so each
//! access is checked against the page's bounds, and a nonsense answer is `None`.
//!
//! Bytes are read through volatile loads: the compiler may neither repeat nor merge them, so a
//! value that was checked is the value that is used.

use inkstone_format::PageNo;
use inkstone_format::tree_page::{COUNT_AT, PREFIX_LEN_AT, SLOT_LEN, SLOTS_AT, head};
use std::cmp::Ordering;

#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T: Copy>(T);

/// A page in memory that may change while it is read.
#[derive(Clone, Copy)]
pub struct RacyPage {
    start: *const u8,
    len: usize,
}

/// Which child of an inner node is wanted.
#[derive(Clone, Copy, Debug)]
pub enum Target<'k> {
    /// The one that may hold the key.
    Key(&'k [u8]),
    /// The one that may hold the greatest key below this one.
    Before(&'k [u8]),
    /// The last one.
    Last,
}

impl RacyPage {
    /// A page of `len` bytes at `start`.
    ///
    /// # Safety
    /// `start..start + len` must stay mapped and readable as long as the value is used; the bytes
    /// may change at any time.
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Self { start, len }
    }

    #[inline]
    fn load<T: Copy>(self, at: usize) -> Option<T> {
        if at + size_of::<T>() > self.len {
            return None;
        }
        // SAFETY: within the page, which `new`'s caller keeps mapped; packed, so any alignment
        // will do; every bit pattern is a valid integer (T is u8, u16 or u32 here).
        Some(unsafe { self.start.add(at).cast::<Unaligned<T>>().read_volatile() }.0)
    }

    #[inline]
    fn u16(self, at: usize) -> Option<usize> {
        self.load::<u16>(at).map(|v| usize::from(u16::from_le(v)))
    }

    /// Level of the node: 0 for a leaf.
    pub fn level(self) -> Option<u8> {
        self.load::<u8>(28)
    }

    /// Type byte of the page.
    pub fn page_type(self) -> Option<u8> {
        self.load::<u8>(12)
    }

    /// Number of slots.
    pub fn count(self) -> Option<usize> {
        self.u16(COUNT_AT)
    }

    /// Offset and length of a slot's key suffix.
    fn suffix(self, slot: usize) -> Option<(usize, usize)> {
        let mut at = self.u16(SLOTS_AT + slot * SLOT_LEN)? + 1;
        let length = self.varint(&mut at)?;
        self.varint(&mut at)?;
        Some((at, length))
    }

    fn varint(self, at: &mut usize) -> Option<usize> {
        let mut value = 0;
        for shift in [0, 7, 14] {
            let byte = usize::from(self.load::<u8>(*at)?);
            *at += 1;
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn compare_suffix(self, slot: usize, wanted: &[u8]) -> Option<Ordering> {
        let (at, length) = self.suffix(slot)?;
        for (n, &byte) in wanted.iter().enumerate().take(length) {
            let ordering = self.load::<u8>(at + n)?.cmp(&byte);
            if ordering.is_ne() {
                return Some(ordering);
            }
        }
        Some(length.cmp(&wanted.len()))
    }

    /// The slot that leads to the target, and the child there.
    #[inline]
    pub fn child(self, target: Target<'_>) -> Option<(usize, PageNo)> {
        let count = self.count()?;
        if count == 0 || SLOTS_AT + count * SLOT_LEN > self.len {
            return None;
        }
        let slot = match target {
            Target::Last => count - 1,
            Target::Key(key) => {
                let (at, found) = self.search(key, count)?;
                if found { at } else { at - 1 }
            }
            Target::Before(key) => self.search(key, count)?.0 - 1,
        };
        Some((slot, self.child_at(slot)?))
    }

    /// The child of a slot.
    pub fn child_at(self, slot: usize) -> Option<PageNo> {
        let (at, length) = self.suffix(slot)?;
        self.load::<u32>(at + length)
            .map(|child| PageNo(u32::from_le(child)))
    }

    /// The child of the slot behind this one.
    pub fn child_behind(self, slot: usize) -> Option<PageNo> {
        let behind = slot + 1;
        (behind < self.count()?)
            .then(|| self.child_at(behind))
            .flatten()
    }

    /// Binary search from slot 1 on (slot 0 stands for the low fence).
    fn search(self, key: &[u8], count: usize) -> Option<(usize, bool)> {
        let suffix = key.get(self.u16(PREFIX_LEN_AT)?..)?;
        let wanted = head(suffix);
        let (mut from, mut to) = (1, count);
        while from < to {
            let middle = (from + to) / 2;
            let slot_head = u32::from_le(self.load::<u32>(SLOTS_AT + middle * SLOT_LEN + 2)?);
            let ordering = match slot_head.cmp(&wanted) {
                Ordering::Equal => self.compare_suffix(middle, suffix)?,
                other => other,
            };
            match ordering {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Some((middle, true)),
            }
        }
        Some((from, false))
    }
}
