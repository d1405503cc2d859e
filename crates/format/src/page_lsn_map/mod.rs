//! The page LSN map: for each page the LSN that its bytes on disk must have at least.
//!
//! The file is one header block, then *groups*. A group is one *index block*, which says whose
//! pages the blocks after it are about, and [`BLOCK_ENTRIES`] *map blocks*. A map block holds the
//! LSNs of a *run*: [`BLOCK_ENTRIES`] consecutive pages of one tablespace. A *slot* is the place of
//! a map block, counted through all groups.
//!
//! A block is eight *sectors*, each with a checksum of its own: a block that power loss has torn is
//! a mix of older and newer sectors, and every one of them is still true.
//!
//! Header, [`SECTOR_LEN`] bytes at offset 0; the rest of its block is zero:
//!
//! | bytes    | field                                                |
//! |----------|------------------------------------------------------|
//! | 0..8     | magic, [`MAGIC`]                                     |
//! | 8..12    | format version, 1                                    |
//! | 12..16   | reserved, zero                                       |
//! | 16..32   | uuid of the database                                 |
//! | 32..40   | epoch of the incarnation that has the map in use     |
//! | 40..48   | the highest LSN in the map                           |
//! | 48..508  | reserved, zero                                       |
//! | 508..512 | CRC-32C of bytes 0..508                              |
//!
//! Sector, [`SECTOR_LEN`] bytes (all zeroes: nothing is known):
//!
//! | bytes            | field                                                              |
//! |------------------|--------------------------------------------------------------------|
//! | 0..4             | CRC-32C of the database's uuid and bytes 4..512                     |
//! | 4..8             | kind: 1 page LSNs, 2 index                                          |
//! | 8..12            | tablespace (index: 0)                                               |
//! | 12..16           | first page (index: first slot)                                      |
//! | 16 + 8 i (i < 62)| page LSN of page first + i, 0: not known (index: owner of slot first + i: tablespace u32, run + 1 u32; 0: free) |
//!
//! Integers are little-endian.

use crate::header::{get_u32, get_u64, put_u32, put_u64};
use crate::{Corrupt, Lsn, PageNo, SpaceId};

/// Bytes in a block: a multiple of what unbuffered I/O asks for.
pub const BLOCK_LEN: usize = 4096;
/// Bytes in a sector, which no disk tears.
pub const SECTOR_LEN: usize = 512;
/// Entries of a sector.
pub const SECTOR_ENTRIES: usize = (SECTOR_LEN - VALUES) / 8;
/// Entries of a block: pages in a run, and slots in a group.
pub const BLOCK_ENTRIES: usize = SECTOR_ENTRIES * (BLOCK_LEN / SECTOR_LEN);
/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"INKSTPLM";
/// The version of the file's format. A map of another version is begun anew.
pub const PAGE_LSN_MAP_VERSION: u32 = 1;

// Header.
const VERSION: usize = 8;
const RESERVED: usize = 12;
const UUID: usize = 16;
const EPOCH: usize = 32;
const NEWEST: usize = 40;
const HEADER_END: usize = 48;
const HEADER_CRC: usize = SECTOR_LEN - 4;
// Sector.
const KIND: usize = 4;
const SPACE: usize = 8;
const FIRST: usize = 12;
const VALUES: usize = 16;

const _: () = {
    assert!(UUID == RESERVED + 4 && EPOCH == UUID + 16 && NEWEST == EPOCH + 8);
    assert!(HEADER_END == NEWEST + 8 && HEADER_END <= HEADER_CRC);
    assert!(SECTOR_ENTRIES == 62 && BLOCK_ENTRIES == 496);
    assert!(VALUES + 8 * SECTOR_ENTRIES == SECTOR_LEN);
};

/// The file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapHeader {
    /// The database.
    pub uuid: [u8; 16],
    /// The incarnation that has, or last had, the map in use.
    pub epoch: u64,
    /// No LSN in the map is higher.
    pub newest: Lsn,
}

impl MapHeader {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; SECTOR_LEN] {
        let mut b = [0; SECTOR_LEN];
        b[..VERSION].copy_from_slice(&MAGIC);
        put_u32(&mut b, VERSION, PAGE_LSN_MAP_VERSION);
        b[UUID..EPOCH].copy_from_slice(&self.uuid);
        put_u64(&mut b, EPOCH, self.epoch);
        put_u64(&mut b, NEWEST, self.newest.0);
        let crc = crc32c::crc32c(&b[..HEADER_CRC]);
        put_u32(&mut b, HEADER_CRC, crc);
        b
    }

    /// Reads a header ([`SECTOR_LEN`] bytes).
    pub fn parse(b: &[u8]) -> Result<Self, Corrupt> {
        check_len(b)?;
        if b[..VERSION] != MAGIC {
            let detail = format!("magic is {:02x?}", &b[..VERSION]);
            return Err(Corrupt::at(0, detail));
        }
        check_crc(b, HEADER_CRC, crc32c::crc32c(&b[..HEADER_CRC]))?;
        let found = get_u32(b, VERSION);
        if found != PAGE_LSN_MAP_VERSION {
            let detail = format!("format version {found}, not {PAGE_LSN_MAP_VERSION}");
            return Err(Corrupt::at(VERSION, detail));
        }
        let reserved = (RESERVED..UUID).chain(HEADER_END..HEADER_CRC);
        if let Some(at) = reserved.into_iter().find(|&at| b[at] != 0) {
            return Err(Corrupt::at(at, "a reserved byte is not zero"));
        }
        Ok(Self {
            uuid: b[UUID..EPOCH].try_into().expect("sixteen bytes"),
            epoch: get_u64(b, EPOCH),
            newest: Lsn(get_u64(b, NEWEST)),
        })
    }
}

/// What the entries of a sector are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Page LSNs of consecutive pages of a tablespace from this one on.
    Pages(SpaceId, PageNo),
    /// Whose consecutive slots from this one on are.
    Slots(u32),
}

impl Subject {
    /// The subject of the entries that come `count` after the first one.
    #[must_use]
    pub fn after(self, count: usize) -> Self {
        match self {
            Self::Pages(space, first) => {
                Self::Pages(space, PageNo(first.0.wrapping_add(count as u32)))
            }
            Self::Slots(first) => Self::Slots(first.wrapping_add(count as u32)),
        }
    }

    fn words(self) -> [u32; 3] {
        match self {
            Self::Pages(space, first) => [1, space.0, first.0],
            Self::Slots(first) => [2, 0, first],
        }
    }
}

/// A sector that was found whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sector {
    /// What its entries are about.
    pub subject: Subject,
    /// The entries.
    pub entries: [u64; SECTOR_ENTRIES],
}

impl Sector {
    /// The sector's bytes, in the map of a database.
    pub fn encode(&self, uuid: &[u8; 16]) -> [u8; SECTOR_LEN] {
        let mut b = [0; SECTOR_LEN];
        for (word, at) in self.subject.words().into_iter().zip([KIND, SPACE, FIRST]) {
            put_u32(&mut b, at, word);
        }
        for (i, &entry) in self.entries.iter().enumerate() {
            put_u64(&mut b, VALUES + 8 * i, entry);
        }
        let crc = sector_crc(uuid, &b);
        put_u32(&mut b, 0, crc);
        b
    }

    /// Reads a sector ([`SECTOR_LEN`] bytes); `None` where none was ever written.
    pub fn parse(uuid: &[u8; 16], b: &[u8]) -> Result<Option<Self>, Corrupt> {
        check_len(b)?;
        if b.iter().all(|&x| x == 0) {
            return Ok(None);
        }
        check_crc(b, 0, sector_crc(uuid, b))?;
        let (space, first) = (get_u32(b, SPACE), get_u32(b, FIRST));
        let subject = match (get_u32(b, KIND), space) {
            (1, _) => Subject::Pages(SpaceId(space), PageNo(first)),
            (2, 0) => Subject::Slots(first),
            (2, _) => return Err(Corrupt::at(SPACE, "an index of one tablespace")),
            (kind, _) => return Err(Corrupt::at(KIND, format!("kind {kind} is unknown"))),
        };
        let mut entries = [0; SECTOR_ENTRIES];
        for (i, entry) in entries.iter_mut().enumerate() {
            *entry = get_u64(b, VALUES + 8 * i);
        }
        Ok(Some(Self { subject, entries }))
    }
}

/// Writes a whole block of entries about `subject` into `b` ([`BLOCK_LEN`] bytes).
pub fn encode_block(
    uuid: &[u8; 16],
    subject: Subject,
    entries: &[u64; BLOCK_ENTRIES],
    b: &mut [u8],
) {
    let sectors = b.chunks_exact_mut(SECTOR_LEN);
    for (i, (bytes, entries)) in sectors.zip(entries.as_chunks().0).enumerate() {
        let sector = Sector {
            subject: subject.after(i * SECTOR_ENTRIES),
            entries: *entries,
        };
        bytes.copy_from_slice(&sector.encode(uuid));
    }
}

/// Reads the entries about `subject` from a block ([`BLOCK_LEN`] bytes). What sectors about
/// something else, empty and damaged ones have to say is nothing: zeroes. Also tells which are
/// damaged.
pub fn parse_block(
    uuid: &[u8; 16],
    subject: Subject,
    b: &[u8],
) -> ([u64; BLOCK_ENTRIES], Vec<usize>) {
    let mut entries = [0; BLOCK_ENTRIES];
    let mut damaged = Vec::new();
    let sectors = b.chunks_exact(SECTOR_LEN);
    for (i, (bytes, entries)) in sectors.zip(entries.as_chunks_mut().0).enumerate() {
        match Sector::parse(uuid, bytes) {
            Ok(Some(sector)) if sector.subject == subject.after(i * SECTOR_ENTRIES) => {
                *entries = sector.entries;
            }
            Ok(_) => {}
            Err(_) => damaged.push(i),
        }
    }
    (entries, damaged)
}

/// The index entry of a slot that belongs to a run of a tablespace.
pub fn index_entry(space: SpaceId, run: u32) -> u64 {
    u64::from(space.0) | u64::from(run + 1) << 32
}

/// The inverse of [`index_entry`]; `None` for a free slot.
pub fn parse_index_entry(entry: u64) -> Option<(SpaceId, u32)> {
    let run = ((entry >> 32) as u32).checked_sub(1)?;
    (run <= run_of(PageNo(u32::MAX))).then_some((SpaceId(entry as u32), run))
}

/// The run that a page is in.
pub fn run_of(page: PageNo) -> u32 {
    page.0 / BLOCK_ENTRIES as u32
}

fn sector_crc(uuid: &[u8; 16], b: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(uuid), &b[KIND..])
}

fn check_len(b: &[u8]) -> Result<(), Corrupt> {
    match b.len() {
        SECTOR_LEN => Ok(()),
        len => Err(Corrupt::at(0, format!("{len} bytes, not {SECTOR_LEN}"))),
    }
}

fn check_crc(b: &[u8], at: usize, computed: u32) -> Result<(), Corrupt> {
    let stored = get_u32(b, at);
    if stored == computed {
        Ok(())
    } else {
        let detail = format!("checksum {stored:08x}, computed {computed:08x}");
        Err(Corrupt::at(at, detail))
    }
}

#[cfg(test)]
mod tests;
