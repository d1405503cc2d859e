//! Cells: a row, or a child, as it lies in the heap of a tree page.

use super::{CELL_DELETED, CELL_OVERFLOW, CELL_VERSIONED};
use crate::VersionAddress;

/// A cell as it lies in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    /// `CELL_*` bits.
    pub flags: u8,
    /// Address of the older version, if the cell carries one.
    pub version: Option<VersionAddress>,
    /// The key without the page's prefix.
    pub suffix: &'a [u8],
    /// The value, the reference to overflow pages, or the child's page number.
    pub value: &'a [u8],
    /// Bytes that the cell takes in the heap.
    pub len: usize,
}

impl<'a> Cell<'a> {
    /// The cell that begins at `start`, in a page or in a copy of a part of its heap.
    #[inline(always)]
    pub fn read(bytes: &'a [u8], start: usize) -> Self {
        let mut at = start;
        let flags = bytes[at];
        at += 1;
        let suffix_len = get_short_varint(bytes, &mut at);
        let value_len = get_short_varint(bytes, &mut at);
        let version = if flags & CELL_VERSIONED != 0 {
            let address = bytes[at..at + 8].try_into().expect("eight bytes");
            at += 8;
            Some(VersionAddress(u64::from_le_bytes(address)))
        } else {
            None
        };
        let value_at = at + suffix_len;
        Self {
            flags,
            version,
            suffix: &bytes[at..value_at],
            value: &bytes[value_at..value_at + value_len],
            len: value_at + value_len - start,
        }
    }
    /// Whether the row is delete-marked.
    pub fn is_deleted(&self) -> bool {
        self.flags & CELL_DELETED != 0
    }
    /// Whether the value lies in overflow pages.
    pub fn is_overflow(&self) -> bool {
        self.flags & CELL_OVERFLOW != 0
    }
}

/// The version address of the cell at `at`.
#[inline]
pub(super) fn read_version(b: &[u8], mut at: usize) -> Option<VersionAddress> {
    if b[at] & CELL_VERSIONED == 0 {
        return None;
    }
    at += 1;
    get_short_varint(b, &mut at);
    get_short_varint(b, &mut at);
    let address = b[at..at + 8].try_into().expect("eight bytes");
    Some(VersionAddress(u64::from_le_bytes(address)))
}

/// Writes another version address over that of the cell at `at`; false if the cell has none.
pub(super) fn set_version(b: &mut [u8], mut at: usize, version: VersionAddress) -> bool {
    if b[at] & CELL_VERSIONED == 0 {
        return false;
    }
    at += 1;
    get_short_varint(b, &mut at);
    get_short_varint(b, &mut at);
    b[at..at + 8].copy_from_slice(&version.0.to_le_bytes());
    true
}

/// Writes what precedes the suffix of a cell at `at`; returns where the suffix begins.
#[inline]
pub(super) fn write_head(
    b: &mut [u8],
    mut at: usize,
    flags: u8,
    version: Option<VersionAddress>,
    suffix_len: usize,
    value_len: usize,
) -> usize {
    let versioned = if version.is_some() { CELL_VERSIONED } else { 0 };
    b[at] = flags & !CELL_VERSIONED | versioned;
    at += 1;
    put_short_varint(b, &mut at, suffix_len);
    put_short_varint(b, &mut at, value_len);
    if let Some(version) = version {
        b[at..at + 8].copy_from_slice(&version.0.to_le_bytes());
        at += 8;
    }
    at
}

fn varint_len(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

#[inline]
fn put_short_varint(b: &mut [u8], at: &mut usize, mut value: usize) {
    while value >= 0x80 {
        b[*at] = value as u8 | 0x80;
        *at += 1;
        value >>= 7;
    }
    b[*at] = value as u8;
    *at += 1;
}

#[inline]
fn get_short_varint(b: &[u8], at: &mut usize) -> usize {
    let first = b[*at];
    *at += 1;
    if first < 0x80 {
        return usize::from(first);
    }
    get_long_varint(b, at, usize::from(first & 0x7f))
}

/// The rest of a number that does not fit in its first byte.
fn get_long_varint(b: &[u8], at: &mut usize, mut value: usize) -> usize {
    for shift in [7, 14] {
        let byte = b[*at];
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Bytes that a cell takes in the heap.
#[inline]
pub fn cell_len(suffix_len: usize, value_len: usize, versioned: bool) -> usize {
    1 + varint_len(suffix_len)
        + varint_len(value_len)
        + if versioned { 8 } else { 0 }
        + suffix_len
        + value_len
}

/// Bytes of a suffix that its [`head`] holds.
pub const HEAD_LEN: usize = 4;

/// The first four bytes of a suffix as a number that compares as they do.
#[inline]
pub fn head(suffix: &[u8]) -> u32 {
    if suffix.len() >= 4 {
        return u32::from_be_bytes([suffix[0], suffix[1], suffix[2], suffix[3]]);
    }
    let mut bytes = [0; 4];
    bytes[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(bytes)
}
