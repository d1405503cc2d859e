//! The doublewrite file: copies of pages that are about to be overwritten in place.
//!
//! The file is one header block, then *areas* of equal size. An area is one header block and room
//! for [`Layout::batch_pages`] page images; one *batch* at a time stands in it. The file header is
//! written once, before the file gets its name.
//!
//! File header, [`BLOCK_LEN`] bytes at offset 0:
//!
//! | bytes      | field                                                   |
//! |------------|---------------------------------------------------------|
//! | 0..8       | magic, [`FILE_MAGIC`]                                   |
//! | 8..12      | format version, 1                                       |
//! | 12..16     | page size, bytes                                        |
//! | 16..32     | uuid of the database                                    |
//! | 32..36     | number of areas                                         |
//! | 36..40     | page images in an area                                  |
//! | 40..4092   | reserved, zero                                          |
//! | 4092..4096 | CRC-32C of bytes 0..4092                                |
//!
//! Batch header, [`BLOCK_LEN`] bytes at the start of an area (all zeroes: no batch yet):
//!
//! | bytes            | field                                                 |
//! |------------------|-------------------------------------------------------|
//! | 0..8             | magic, [`BATCH_MAGIC`]                                |
//! | 8..16            | sequence: one higher for each batch of the database   |
//! | 16..32           | uuid of the database                                  |
//! | 32..36           | page size, bytes                                      |
//! | 36..40           | number of pages in the batch, n                       |
//! | 40..48           | reserved, zero                                        |
//! | 48 + 12 i (i < n)| entry i: tablespace u32, page number u32, CRC-32C of all bytes of image i |
//! | ..4092           | reserved, zero                                        |
//! | 4092..4096       | CRC-32C of bytes 0..4092                              |
//!
//! Image i follows at [`BLOCK_LEN`] + i pages. Integers are little-endian.

use crate::header::{get_u32, get_u64, page_size_is_valid, put_u32, put_u64};
use crate::{Corrupt, PageId, PageNo, SpaceId};

/// Bytes in the file header and in a batch header: a multiple of what unbuffered I/O asks for.
pub const BLOCK_LEN: usize = 4096;
/// The first bytes of the file.
pub const FILE_MAGIC: [u8; 8] = *b"INKSTDWF";
/// The first bytes of a batch.
pub const BATCH_MAGIC: [u8; 8] = *b"INKSTDWB";
/// The newest version of the file's format that this code knows.
pub const DOUBLEWRITE_VERSION: u32 = 1;
/// The most pages that one batch header has entries for.
pub const BATCH_PAGES_MAX: usize = (CRC - ENTRIES) / ENTRY_LEN;
/// The most areas that a file may have.
pub const AREAS_MAX: u32 = 1024;

const CRC: usize = BLOCK_LEN - 4;
// File header.
const FILE_VERSION: usize = 8;
const FILE_PAGE_SIZE: usize = 12;
const FILE_UUID: usize = 16;
const FILE_AREAS: usize = 32;
const FILE_BATCH_PAGES: usize = 36;
const FILE_END: usize = 40;
// Batch header.
const BATCH_SEQUENCE: usize = 8;
const BATCH_UUID: usize = 16;
const BATCH_PAGE_SIZE: usize = 32;
const BATCH_COUNT: usize = 36;
const BATCH_RESERVED: usize = 40;
const ENTRIES: usize = 48;
const ENTRY_LEN: usize = 12;

const _: () = {
    assert!(FILE_UUID == FILE_PAGE_SIZE + 4 && FILE_AREAS == FILE_UUID + 16);
    assert!(FILE_END == FILE_BATCH_PAGES + 4 && FILE_END <= CRC);
    assert!(BATCH_UUID == BATCH_SEQUENCE + 8 && BATCH_PAGE_SIZE == BATCH_UUID + 16);
    assert!(BATCH_COUNT == BATCH_PAGE_SIZE + 4 && BATCH_RESERVED == BATCH_COUNT + 4);
    assert!(BATCH_PAGES_MAX >= 256 && ENTRIES + BATCH_PAGES_MAX * ENTRY_LEN <= CRC);
};

/// The file header's contents: where areas begin and whose pages they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes in a page.
    pub page_size: u32,
    /// The database.
    pub uuid: [u8; 16],
    /// Number of areas.
    pub areas: u32,
    /// Page images in an area, at most [`BATCH_PAGES_MAX`].
    pub batch_pages: u32,
}

/// Why a doublewrite file header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The bytes are not a doublewrite file header.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// A format that came after this code.
    #[error("format version {found} is newer than {DOUBLEWRITE_VERSION}")]
    Newer {
        /// The version found.
        found: u32,
    },
}

impl Layout {
    /// Bytes in an area, header block included.
    pub fn area_len(&self) -> u64 {
        BLOCK_LEN as u64 + u64::from(self.batch_pages) * u64::from(self.page_size)
    }

    /// File offset of an area.
    pub fn area_offset(&self, area: u32) -> u64 {
        BLOCK_LEN as u64 + u64::from(area) * self.area_len()
    }

    /// File offset of a page image in an area.
    pub fn image_offset(&self, area: u32, image: u32) -> u64 {
        self.area_offset(area) + BLOCK_LEN as u64 + u64::from(image) * u64::from(self.page_size)
    }

    /// Bytes in the file.
    pub fn file_len(&self) -> u64 {
        self.area_offset(self.areas)
    }

    /// Whether the numbers are within their limits.
    pub fn check(&self) -> Result<(), Corrupt> {
        if !page_size_is_valid(self.page_size as usize) {
            let detail = format!("page size {} is none", self.page_size);
            return Err(Corrupt::at(FILE_PAGE_SIZE, detail));
        }
        if !(1..=AREAS_MAX).contains(&self.areas) {
            let detail = format!("{} areas, 1 to {AREAS_MAX} can be", self.areas);
            return Err(Corrupt::at(FILE_AREAS, detail));
        }
        if !(1..=BATCH_PAGES_MAX as u32).contains(&self.batch_pages) {
            let detail = format!(
                "{} pages in an area, 1 to {BATCH_PAGES_MAX} can be",
                self.batch_pages
            );
            return Err(Corrupt::at(FILE_BATCH_PAGES, detail));
        }
        Ok(())
    }

    /// The bytes of the file header.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        let mut b = [0; BLOCK_LEN];
        b[..FILE_VERSION].copy_from_slice(&FILE_MAGIC);
        put_u32(&mut b, FILE_VERSION, DOUBLEWRITE_VERSION);
        put_u32(&mut b, FILE_PAGE_SIZE, self.page_size);
        b[FILE_UUID..FILE_AREAS].copy_from_slice(&self.uuid);
        put_u32(&mut b, FILE_AREAS, self.areas);
        put_u32(&mut b, FILE_BATCH_PAGES, self.batch_pages);
        seal(&mut b);
        b
    }

    /// Reads the file header.
    pub fn parse(b: &[u8]) -> Result<Self, LayoutError> {
        check_block(b, FILE_MAGIC)?;
        let found = get_u32(b, FILE_VERSION);
        if found > DOUBLEWRITE_VERSION {
            return Err(LayoutError::Newer { found });
        }
        if found != DOUBLEWRITE_VERSION {
            return Err(Corrupt::at(FILE_VERSION, format!("version {found} never was")).into());
        }
        check_zero(b, FILE_END..CRC)?;
        let layout = Self {
            page_size: get_u32(b, FILE_PAGE_SIZE),
            uuid: b[FILE_UUID..FILE_AREAS].try_into().expect("sixteen bytes"),
            areas: get_u32(b, FILE_AREAS),
            batch_pages: get_u32(b, FILE_BATCH_PAGES),
        };
        layout.check()?;
        Ok(layout)
    }
}

/// One page of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchEntry {
    /// The page.
    pub id: PageId,
    /// CRC-32C of all bytes of its image.
    pub crc: u32,
}

/// A batch header that was found whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// One higher for each batch of the database.
    pub sequence: u64,
    /// The pages, in the order of their images.
    pub entries: Vec<BatchEntry>,
}

impl BatchHeader {
    /// Writes the header of a batch into `b` ([`BLOCK_LEN`] bytes).
    ///
    /// # Panics
    /// If there are more than [`BATCH_PAGES_MAX`] entries.
    pub fn encode(&self, layout: &Layout, b: &mut [u8]) {
        assert!(
            self.entries.len() <= BATCH_PAGES_MAX,
            "the batch is too long"
        );
        b.fill(0);
        b[..BATCH_SEQUENCE].copy_from_slice(&BATCH_MAGIC);
        put_u64(b, BATCH_SEQUENCE, self.sequence);
        b[BATCH_UUID..BATCH_PAGE_SIZE].copy_from_slice(&layout.uuid);
        put_u32(b, BATCH_PAGE_SIZE, layout.page_size);
        put_u32(b, BATCH_COUNT, self.entries.len() as u32);
        for (i, entry) in self.entries.iter().enumerate() {
            let at = ENTRIES + i * ENTRY_LEN;
            put_u32(b, at, entry.id.space.0);
            put_u32(b, at + 4, entry.id.page.0);
            put_u32(b, at + 8, entry.crc);
        }
        seal(b);
    }

    /// Reads a batch header; `None` where no batch was ever written.
    pub fn parse(layout: &Layout, b: &[u8]) -> Result<Option<Self>, Corrupt> {
        if b.len() == BLOCK_LEN && b.iter().all(|&x| x == 0) {
            return Ok(None);
        }
        check_block(b, BATCH_MAGIC)?;
        if b[BATCH_UUID..BATCH_PAGE_SIZE] != layout.uuid {
            return Err(Corrupt::at(BATCH_UUID, "a batch of another database"));
        }
        let page_size = get_u32(b, BATCH_PAGE_SIZE);
        if page_size != layout.page_size {
            let detail = format!("page size {page_size}, the file's is {}", layout.page_size);
            return Err(Corrupt::at(BATCH_PAGE_SIZE, detail));
        }
        let count = get_u32(b, BATCH_COUNT);
        if count == 0 || count > layout.batch_pages {
            let detail = format!("{count} pages, 1 to {} can be", layout.batch_pages);
            return Err(Corrupt::at(BATCH_COUNT, detail));
        }
        let end = ENTRIES + count as usize * ENTRY_LEN;
        if end > CRC {
            return Err(Corrupt::at(BATCH_COUNT, "more pages than the block holds"));
        }
        check_zero(b, BATCH_RESERVED..ENTRIES)?;
        check_zero(b, end..CRC)?;
        let entries = b[ENTRIES..end].chunks_exact(ENTRY_LEN).map(|e| BatchEntry {
            id: PageId::new(SpaceId(get_u32(e, 0)), PageNo(get_u32(e, 4))),
            crc: get_u32(e, 8),
        });
        Ok(Some(Self {
            sequence: get_u64(b, BATCH_SEQUENCE),
            entries: entries.collect(),
        }))
    }
}

/// The checksum that a [`BatchEntry`] holds of its image.
pub fn image_crc(image: &[u8]) -> u32 {
    crc32c::crc32c(image)
}

fn seal(b: &mut [u8]) {
    let crc = crc32c::crc32c(&b[..CRC]);
    put_u32(b, CRC, crc);
}

fn check_block(b: &[u8], magic: [u8; 8]) -> Result<(), Corrupt> {
    if b.len() != BLOCK_LEN {
        return Err(Corrupt::at(
            0,
            format!("{} bytes, not {BLOCK_LEN}", b.len()),
        ));
    }
    if b[..magic.len()] != magic {
        return Err(Corrupt::at(
            0,
            format!("magic is {:02x?}", &b[..magic.len()]),
        ));
    }
    let (stored, computed) = (get_u32(b, CRC), crc32c::crc32c(&b[..CRC]));
    if stored != computed {
        let detail = format!("checksum {stored:08x}, computed {computed:08x}");
        return Err(Corrupt::at(CRC, detail));
    }
    Ok(())
}

fn check_zero(b: &[u8], mut range: std::ops::Range<usize>) -> Result<(), Corrupt> {
    match range.find(|&at| b[at] != 0) {
        Some(at) => Err(Corrupt::at(at, "a reserved byte is not zero")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
