//! Page 0 of a tablespace: what the file is, and where its trees begin.
//!
//! | bytes  | field                                                          |
//! |--------|----------------------------------------------------------------|
//! | 0..24  | common page header, type 1                                     |
//! | 24..28 | format version of the tablespace                               |
//! | 28..44 | uuid of the database                                           |
//! | 44..48 | page size, bytes                                               |
//! | 48..52 | space map pages beyond the first                               |
//! | 52..64 | reserved, zero                                                 |
//! | 64..   | root page of tree 0, 1, .. 127: u32 each, 0 for no such tree   |
//!
//! Page 1, and every page p with p mod [`crate::apply::map_pages`] = 1, is a space map: bytes 32..
//! hold one bit for each page from p - 1 on, set when the page is allocated.

use crate::apply::map_pages;
use crate::header::{PAGE_HEADER_LEN, PAGE_TYPE_AT, PageType, get_u32, page_type, put_u32};
use crate::{Corrupt, PageNo, TreeId};

/// Version of the tablespace format that this program writes.
pub const SPACE_VERSION: u32 = 1;
/// Trees that a tablespace can hold.
pub const TREES_MAX: u32 = 128;
/// Pages that a tablespace can have: their number is a u32, so the last page is 2^32 - 2.
pub const PAGES_MAX: u32 = u32::MAX;
/// A table's clustered tree: its rows.
pub const CLUSTERED_TREE: TreeId = TreeId(0);
/// The tree of long values that wait to be freed; tables use the trees below it.
pub const PENDING_FREE_TREE: TreeId = TreeId(TREES_MAX - 1);

const UUID_AT: usize = 28;
const PAGE_SIZE_AT: usize = 44;
/// Offset of the number of space map pages beyond the first.
pub const MORE_MAPS_AT: usize = 48;
const ROOTS_AT: usize = 64;

/// The body of page 0 of a new tablespace, from byte [`PAGE_HEADER_LEN`] on.
pub fn new_header(uuid: &[u8; 16], page_size: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(ROOTS_AT - PAGE_HEADER_LEN);
    body.extend_from_slice(&SPACE_VERSION.to_le_bytes());
    body.extend_from_slice(uuid);
    body.extend_from_slice(&page_size.to_le_bytes());
    body
}

/// Number of the last space map that a tablespace can have: behind it lies a page at least that can
/// be used.
pub const fn region_max(page_size: usize) -> u32 {
    (PAGES_MAX - 3) / map_pages(page_size)
}

/// Pages of a region that there can be: only the last region that there can be has fewer than its
/// map has bits.
pub const fn region_pages(page_size: usize, region: u32) -> u32 {
    let covered = map_pages(page_size);
    let behind = PAGES_MAX - region * covered;
    if behind < covered { behind } else { covered }
}

/// Whether a page is the first one of a later region, which stays unused, though its map has it for
/// allocated.
pub const fn is_spare(page_size: usize, page: PageNo) -> bool {
    page.0 > 0 && page.0.is_multiple_of(map_pages(page_size))
}

/// Offset of a tree's root page number in page 0.
pub fn root_offset(tree: TreeId) -> usize {
    ROOTS_AT + 4 * tree.0 as usize
}

/// Number of space map pages beyond the first.
pub fn more_maps(page: &[u8]) -> u32 {
    get_u32(page, MORE_MAPS_AT)
}

/// The root page of a tree, if the tablespace has that tree.
pub fn root(page: &[u8], tree: TreeId) -> Option<PageNo> {
    let root = get_u32(page, root_offset(tree));
    (root != 0).then_some(PageNo(root))
}

/// Sets a root page number (for tools; the engine logs a byte write).
pub fn set_root(page: &mut [u8], tree: TreeId, root: PageNo) {
    put_u32(page, root_offset(tree), root.0);
}

/// The version of the tablespace format; where it stands does not change with it.
pub fn version(page: &[u8]) -> u32 {
    get_u32(page, PAGE_HEADER_LEN)
}

/// The database that the tablespace says it belongs to.
pub fn uuid(page: &[u8]) -> [u8; 16] {
    page[UUID_AT..UUID_AT + 16]
        .try_into()
        .expect("sixteen bytes")
}

/// Has the tablespace say that it belongs to a database.
pub fn set_uuid(page: &mut [u8], uuid: &[u8; 16]) {
    page[UUID_AT..UUID_AT + 16].copy_from_slice(uuid);
}

/// The page size that the tablespace says it has; readable without knowing it.
pub fn page_size(page: &[u8]) -> u32 {
    get_u32(page, PAGE_SIZE_AT)
}

/// Checks page 0 against what the database expects.
pub fn check_header(page: &[u8], expected_uuid: &[u8; 16]) -> Result<(), Corrupt> {
    if page_type(page) != Some(PageType::SpaceHeader) {
        return Err(Corrupt::at(
            12,
            format!(
                "page type {} instead of a tablespace header",
                page[PAGE_TYPE_AT]
            ),
        ));
    }
    let version = version(page);
    if version != SPACE_VERSION {
        return Err(Corrupt::at(
            PAGE_HEADER_LEN,
            format!("tablespace format {version}, this program knows {SPACE_VERSION}"),
        ));
    }
    if page_size(page) as usize != page.len() {
        return Err(Corrupt::at(
            PAGE_SIZE_AT,
            format!(
                "pages of {} bytes, expected {}",
                page_size(page),
                page.len()
            ),
        ));
    }
    if uuid(page) != *expected_uuid {
        return Err(Corrupt::at(UUID_AT, "the file belongs to another database"));
    }
    Ok(())
}
