//! The file of the pages that were resident at the last close: eight bytes each, page number u32
//! and tablespace u32, little-endian. No header and no checksum: it is a hint.

use crate::PageId;

const ENTRY_LEN: usize = 8;

/// The file's bytes.
pub fn encode(pages: &[PageId]) -> Vec<u8> {
    let bytes = pages.iter().flat_map(|page| page.to_u64().to_le_bytes());
    bytes.collect()
}

/// The pages that the file names; bytes behind the last whole entry are passed over.
pub fn decode(bytes: &[u8]) -> Vec<PageId> {
    let word = |entry: &[u8]| u64::from_le_bytes(entry.try_into().expect("eight bytes"));
    let entries = bytes.chunks_exact(ENTRY_LEN);
    entries.map(|entry| PageId::from_u64(word(entry))).collect()
}
