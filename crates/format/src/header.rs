//! The header that every page begins with.
//!
//! | bytes  | field                                                               |
//! |--------|---------------------------------------------------------------------|
//! | 0..4   | CRC-32C of bytes 4 to the end of the page                           |
//! | 4..8   | tablespace                                                          |
//! | 8..12  | page number                                                         |
//! | 12     | page type                                                           |
//! | 13..16 | reserved, zero                                                      |
//! | 16..24 | page LSN: end of the last mini-transaction that changed the page    |
//!
//! All integers are little-endian. The checksum is stamped when the page is written and checked
//! when it is read; in memory it is stale. Tablespace and page number are covered by it, so a
//! misdirected or stale page is found. A page of zeroes only was never written.

use crate::{Corrupt, Lsn, PageId, PageNo, SpaceId};

/// Bytes of the common page header.
pub const PAGE_HEADER_LEN: usize = 24;
/// The smallest page, bytes.
pub const PAGE_SIZE_MIN: usize = 4096;
/// The largest page, bytes.
pub const PAGE_SIZE_MAX: usize = 65536;

/// Whether a database may have pages of this many bytes.
pub fn page_size_is_valid(bytes: usize) -> bool {
    bytes.is_power_of_two() && (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&bytes)
}

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageType {
    /// Never initialised, or freed.
    Free = 0,
    /// Page 0 of a tablespace.
    SpaceHeader = 1,
    /// One bit a page: allocated or not.
    SpaceMap = 2,
    /// A leaf of a B+tree.
    Leaf = 3,
    /// An inner node of a B+tree.
    Inner = 4,
    /// Part of a long value.
    Overflow = 5,
}

impl PageType {
    /// The page type of a type byte.
    pub fn from_u8(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Free,
            1 => Self::SpaceHeader,
            2 => Self::SpaceMap,
            3 => Self::Leaf,
            4 => Self::Inner,
            5 => Self::Overflow,
            _ => return None,
        })
    }
}

pub(crate) fn get_u16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
pub(crate) fn get_u32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}
pub(crate) fn get_u64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}
pub(crate) fn put_u16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_le_bytes());
}
pub(crate) fn put_u32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}
pub(crate) fn put_u64(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 8].copy_from_slice(&v.to_le_bytes());
}

/// The tablespace and page number that the page says it is.
pub fn page_id(page: &[u8]) -> PageId {
    PageId::new(SpaceId(get_u32(page, 4)), PageNo(get_u32(page, 8)))
}

/// Where the page's type is.
pub const PAGE_TYPE_AT: usize = 12;

/// The page's type byte.
pub fn page_type(page: &[u8]) -> Option<PageType> {
    PageType::from_u8(page[PAGE_TYPE_AT])
}

/// End LSN of the last mini-transaction that changed the page.
pub fn page_lsn(page: &[u8]) -> Lsn {
    Lsn(get_u64(page, 16))
}

/// Makes the page one of another tablespace, or of another place.
pub fn set_page_id(page: &mut [u8], id: PageId) {
    put_u32(page, 4, id.space.0);
    put_u32(page, 8, id.page.0);
}

/// Sets the page LSN.
pub fn set_page_lsn(page: &mut [u8], lsn: Lsn) {
    put_u64(page, 16, lsn.0);
}

/// Zeroes the page and writes its id and type; the LSN is 0.
pub fn init_page(page: &mut [u8], id: PageId, page_type: PageType) {
    page.fill(0);
    set_page_id(page, id);
    page[PAGE_TYPE_AT] = page_type as u8;
}

/// Computes and stores the checksum: the last thing before a page goes to disk.
pub fn stamp_checksum(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[4..]);
    put_u32(page, 0, crc);
}

/// Whether the page was never written (all zeroes).
pub fn is_zero(page: &[u8]) -> bool {
    page.iter().all(|&b| b == 0)
}

/// Checks a page that came from disk: checksum, then that it is the page that was asked for.
pub fn check_page(page: &[u8], expected: PageId) -> Result<(), Corrupt> {
    let stored = get_u32(page, 0);
    let computed = crc32c::crc32c(&page[4..]);
    if stored != computed {
        let what = if is_zero(page) {
            " (the page is all zeroes)"
        } else {
            ""
        };
        return Err(Corrupt::at(
            0,
            format!("page {expected}: checksum {stored:08x}, computed {computed:08x}{what}"),
        ));
    }
    let found = page_id(page);
    if found != expected {
        return Err(Corrupt::at(
            4,
            format!("page {expected} was asked for, but these bytes are page {found}"),
        ));
    }
    if PageType::from_u8(page[PAGE_TYPE_AT]).is_none() || page[13..16] != [0, 0, 0] {
        return Err(Corrupt::at(
            PAGE_TYPE_AT,
            format!(
                "page {expected}: type bytes {:02x?} are unknown",
                &page[PAGE_TYPE_AT..16]
            ),
        ));
    }
    Ok(())
}
