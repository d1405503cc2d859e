//! Reading an inner node that others may be changing at the same time.
//!
//! An optimistic reader looks at a page without a latch and asks afterwards, by the latch's
//! version, whether what it saw was consistent. Until then every byte may be anything, so each
//! access is checked against the page's bounds, and a nonsense answer is `None`.
//!
//! Bytes are read through volatile loads: the compiler may neither repeat nor merge them, so a
//! value that was checked is the value that is used.

use inkstone_format::PageNo;
use inkstone_format::tree_page::{COUNT_AT, HEAD_LEN, PREFIX_LEN_AT, SLOT_LEN, SLOTS_AT, head};
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
        // will do; every bit pattern is valid (T is an integer or an array of bytes here).
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
    #[inline]
    fn suffix(self, slot: usize) -> Option<(usize, usize)> {
        let at = self.u16(SLOTS_AT + slot * SLOT_LEN)? + 1;
        let [length, value_length] = self.load::<[u8; 2]>(at)?;
        if length | value_length < 0x80 {
            return Some((at + 2, usize::from(length)));
        }
        self.long_suffix(at)
    }

    #[cold]
    fn long_suffix(self, mut at: usize) -> Option<(usize, usize)> {
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

    /// Compares the key suffix of a slot with the one wanted, the heads of which are equal.
    fn compare_suffix(self, slot: usize, wanted: &[u8]) -> Option<Ordering> {
        let (at, length) = self.suffix(slot)?;
        let common = length.min(wanted.len());
        let mut n = 0;
        while let Some(word) = wanted[n..common].first_chunk() {
            let found = u64::from_be(self.load::<u64>(at + n)?);
            let ordering = found.cmp(&u64::from_be_bytes(*word));
            if ordering.is_ne() {
                return Some(ordering);
            }
            n += word.len();
        }
        let rest = wanted.get(n.max(HEAD_LEN)..common).unwrap_or(&[]);
        let at = at + common - rest.len();
        for (n, byte) in rest.iter().enumerate() {
            let ordering = self.load::<u8>(at + n)?.cmp(byte);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with two cells: of the low fence, and of a key suffix.
    fn page_with(suffix: &[u8]) -> Vec<u8> {
        let mut page = vec![0; 512];
        page[COUNT_AT..COUNT_AT + 2].copy_from_slice(&2_u16.to_le_bytes());
        let slot = SLOTS_AT + SLOT_LEN;
        page[slot..slot + 2].copy_from_slice(&200_u16.to_le_bytes());
        page[slot + 2..slot + 6].copy_from_slice(&head(suffix).to_le_bytes());
        page[201] = suffix.len() as u8 & 0x7f | if suffix.len() > 0x7f { 0x80 } else { 0 };
        let mut at = 202;
        if suffix.len() > 0x7f {
            page[at] = (suffix.len() >> 7) as u8;
            at += 1;
        }
        page[at] = 4;
        page[at + 1..at + 1 + suffix.len()].copy_from_slice(suffix);
        page
    }

    #[test]
    fn suffixes_compare_as_their_bytes_do_whatever_their_lengths() {
        let lengths = [0, 1, 3, 4, 5, 7, 8, 9, 11, 12, 16, 17, 130];
        let key_of = |length: usize, differs_at: usize, by: u8| -> Vec<u8> {
            let mut key = vec![7; length];
            if let Some(byte) = key.get_mut(differs_at) {
                *byte = by;
            }
            key
        };
        for found in lengths {
            let suffix = key_of(found, usize::MAX, 0);
            let bytes = page_with(&suffix);
            // SAFETY: the bytes outlive the value.
            let page = unsafe { RacyPage::new(bytes.as_ptr(), bytes.len()) };
            for wanted in lengths {
                for (at, by) in [
                    (usize::MAX, 0),
                    (0, 6),
                    (3, 8),
                    (5, 6),
                    (8, 8),
                    (wanted.max(1) - 1, 6),
                ] {
                    let wanted = key_of(wanted, at, by);
                    let expected = match suffix.cmp(&wanted) {
                        Ordering::Less => (2, false),
                        Ordering::Greater => (1, false),
                        Ordering::Equal => (1, true),
                    };
                    assert_eq!(
                        page.search(&wanted, 2),
                        Some(expected),
                        "{suffix:?} {wanted:?}"
                    );
                }
            }
        }
    }
}
