//! The place map of a placed tablespace: where the image of each page is, in units of its file.
//!
//! A file beside the tablespace's: a header block, then two *slots* for each block of the map. They
//! are written one after the other, so that one of them is whole whatever power loss does to the
//! other, and say the same when both are written: so nothing is lost with one of them. Block `n`
//! has the places of pages `n` * [`BLOCK_PLACES`] and on.
//!
//! Header, the first [`BLOCK_LEN`] bytes. The first unit of the tablespace's file is the same with
//! the magic [`DATA_MAGIC`]: by it the file is known as one that needs a map.
//!
//!
//! | bytes    | field                         |
//! |----------|-------------------------------|
//! | 0..4     | CRC-32C of the rest           |
//! | 4..12    | magic, [`MAGIC`]              |
//! | 12..16   | format version: 2 with codec 2, else 1 |
//! | 16..20   | tablespace                    |
//! | 20..24   | bytes in a page               |
//! | 24..28   | bytes in a unit               |
//! | 28       | codec of new images           |
//! | 29       | level of codec 2, 1 to 19; else 0 |
//! | 30..4096 | reserved, zero                |
//!
//! Block, [`BLOCK_LEN`] bytes; all zeroes: it was never written, and no page of it has an image:
//!
//! | bytes         | field                                                         |
//! |---------------|---------------------------------------------------------------|
//! | 0..4          | CRC-32C of the rest                                           |
//! | 4..8          | number of the block                                           |
//! | 8..16         | how often it was written: of two whole slots the higher counts |
//! | 16 + 16 i     | the place of page i of the block                              |
//!
//! Place, 16 bytes; all zeroes: the page has no image; unit 2^32 - 1 and no bytes: it is not known
//! any more where that is, as a block of the map was damaged:
//!
//! | bytes | field                      |
//! |-------|----------------------------|
//! | 0..4  | first unit                 |
//! | 4..7  | bytes of the image         |
//! | 7     | its codec                  |
//! | 8..16 | page LSN                   |
//!
//! Integers are little-endian. An image is as `image` says.

use crate::header::{get_u32, get_u64, put_u32, put_u64};
use crate::image::{Codec, Compression, UNIT_LEN};
use crate::{Corrupt, Lsn, SpaceId};

/// Bytes in a block.
pub const BLOCK_LEN: usize = 4096;
/// Places in a block.
pub const BLOCK_PLACES: usize = (BLOCK_LEN - PLACES) / PLACE_LEN;
/// The first bytes of the file, behind the checksum.
pub const MAGIC: [u8; 8] = *b"INKPLACE";
/// As [`MAGIC`], in the tablespace's own file.
pub const DATA_MAGIC: [u8; 8] = *b"INKPAGES";
/// A block was not written more often.
const WRITTEN_MAX: u64 = 1 << 62;
/// The version of the file's format. Files without Zstandard are written in the first one.
pub const PLACE_MAP_VERSION: u32 = 2;
/// The version of files without Zstandard.
const VERSION_WITHOUT_ZSTD: u32 = 1;

// Header.
const MAGIC_AT: usize = 4;
const VERSION: usize = 12;
const SPACE: usize = 16;
const PAGE_SIZE: usize = 20;
const UNIT: usize = 24;
const CODEC: usize = 28;
const LEVEL: usize = 29;
const HEADER_END: usize = 30;
// Block.
const NUMBER: usize = 4;
const WRITTEN: usize = 8;
const PLACES: usize = 16;
const PLACE_LEN: usize = 16;

const _: () = assert!(BLOCK_PLACES == 255 && BLOCK_PLACES * PLACE_LEN + PLACES == BLOCK_LEN);

/// The header of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceMapHeader {
    /// The tablespace.
    pub space: SpaceId,
    /// Bytes in a page.
    pub page_size: u32,
    /// How new images are stored.
    pub compression: Compression,
}

impl PlaceMapHeader {
    /// Its block in the map.
    pub fn encode(&self) -> [u8; BLOCK_LEN] {
        self.encode_with(MAGIC)
    }

    /// Its unit in the tablespace's file.
    pub fn encode_in_data(&self) -> [u8; BLOCK_LEN] {
        self.encode_with(DATA_MAGIC)
    }

    fn encode_with(&self, magic: [u8; 8]) -> [u8; BLOCK_LEN] {
        let mut block = [0; BLOCK_LEN];
        block[MAGIC_AT..VERSION].copy_from_slice(&magic);
        put_u32(&mut block, VERSION, self.version());
        put_u32(&mut block, SPACE, self.space.0);
        put_u32(&mut block, PAGE_SIZE, self.page_size);
        put_u32(&mut block, UNIT, UNIT_LEN as u32);
        block[CODEC] = self.compression.codec() as u8;
        block[LEVEL] = self.compression.level();
        stamp(&mut block);
        block
    }

    fn version(&self) -> u32 {
        match self.compression {
            Compression::Zstd(_) => PLACE_MAP_VERSION,
            Compression::None | Compression::Lz4 => VERSION_WITHOUT_ZSTD,
        }
    }

    /// The header in a block of the map.
    pub fn decode(block: &[u8; BLOCK_LEN]) -> Result<Self, Corrupt> {
        Self::decode_with(block, MAGIC)
    }

    /// The header in the first unit of a tablespace's file.
    pub fn decode_in_data(block: &[u8; BLOCK_LEN]) -> Result<Self, Corrupt> {
        Self::decode_with(block, DATA_MAGIC)
    }

    fn decode_with(block: &[u8; BLOCK_LEN], magic: [u8; 8]) -> Result<Self, Corrupt> {
        check(block)?;
        if block[MAGIC_AT..VERSION] != magic {
            return Err(Corrupt::at(
                MAGIC_AT,
                "this is no header of a placed tablespace",
            ));
        }
        let version = get_u32(block, VERSION);
        if !(VERSION_WITHOUT_ZSTD..=PLACE_MAP_VERSION).contains(&version) {
            let detail = format!(
                "a place map of version {version}, and this build knows those up to \
                 {PLACE_MAP_VERSION}"
            );
            return Err(Corrupt::at(VERSION, detail));
        }
        let unit = get_u32(block, UNIT);
        if unit as usize != UNIT_LEN {
            let detail = format!("units of {unit} bytes, not {UNIT_LEN}");
            return Err(Corrupt::at(UNIT, detail));
        }
        if let Some(at) = block[HEADER_END..].iter().position(|&byte| byte != 0) {
            return Err(Corrupt::at(HEADER_END + at, "reserved bytes are set"));
        }
        let codec = Codec::of(block[CODEC]).ok_or_else(|| no_codec(CODEC, block[CODEC]))?;
        let level = block[LEVEL];
        let header = Self {
            space: SpaceId(get_u32(block, SPACE)),
            page_size: get_u32(block, PAGE_SIZE),
            compression: Compression::of(codec, level).ok_or_else(|| {
                Corrupt::at(LEVEL, format!("codec {} has no level {level}", codec as u8))
            })?,
        };
        if header.version() != version {
            let detail = format!(
                "a place map of version {version} with codec {}",
                codec as u8
            );
            return Err(Corrupt::at(VERSION, detail));
        }
        Ok(header)
    }
}

/// Where the image of a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The first unit.
    pub unit: u32,
    /// Bytes of the image; 0: there is none.
    pub length: u32,
    /// How it is stored.
    pub codec: Codec,
    /// The page LSN in it.
    pub lsn: Lsn,
}

impl Place {
    /// Of a page of which it is not known any more where it is.
    pub const LOST: Self = Self {
        unit: u32::MAX,
        length: 0,
        codec: Codec::None,
        lsn: Lsn(0),
    };

    /// Whether it is [`Place::LOST`].
    pub fn is_lost(&self) -> bool {
        *self == Self::LOST
    }

    /// Whether the page has no image, or none that is known.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Units that it takes.
    pub fn units(&self) -> u32 {
        self.length.div_ceil(UNIT_LEN as u32)
    }

    /// The unit behind it.
    pub fn end(&self) -> u32 {
        self.unit.saturating_add(self.units())
    }

    fn encode(&self, to: &mut [u8]) {
        put_u32(to, 0, self.unit);
        put_u32(to, 4, self.length | u32::from(self.codec as u8) << 24);
        put_u64(to, 8, self.lsn.0);
    }

    fn decode(from: &[u8], at: usize) -> Result<Self, Corrupt> {
        let second = get_u32(from, 4);
        let codec = (second >> 24) as u8;
        Ok(Self {
            unit: get_u32(from, 0),
            length: second & 0xff_ffff,
            codec: Codec::of(codec).ok_or_else(|| no_codec(at + 7, codec))?,
            lsn: Lsn(get_u64(from, 8)),
        })
    }
}

/// A block of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceBlock {
    /// How often it was written.
    pub written: u64,
    /// Of each of its pages.
    pub places: Vec<Place>,
}

impl PlaceBlock {
    /// One that was never written.
    pub fn empty() -> Self {
        Self {
            written: 0,
            places: vec![Place::default(); BLOCK_PLACES],
        }
    }

    /// The block of what its two slots hold; an error if neither can be believed.
    pub fn choose(number: u32, slots: [&[u8; BLOCK_LEN]; 2]) -> Result<Self, Corrupt> {
        let read = slots.map(|slot| decode_block(number, slot));
        match read {
            [Ok(a), Ok(b)] => Ok(if a.written >= b.written { a } else { b }),
            // The other one was being written when power was lost.
            [Ok(block), Err(_)] | [Err(_), Ok(block)] => Ok(block),
            [Err(error), Err(_)] => Err(error),
        }
    }

    /// One of which nothing is known any more. What is written next counts more than whatever may
    /// still be in a slot.
    pub fn lost() -> Self {
        Self {
            written: WRITTEN_MAX / 2,
            places: vec![Place::LOST; BLOCK_PLACES],
        }
    }
}

/// Of two readings of a slot of a block the one to be believed: the storage may have answered one
/// with older bytes, or wrong ones.
pub fn newer_reading(number: u32, readings: [&[u8; BLOCK_LEN]; 2]) -> &[u8; BLOCK_LEN] {
    let [first, second] = readings;
    if first == second {
        return first;
    }
    match readings.map(|reading| decode_block(number, reading)) {
        [Ok(a), Ok(b)] if b.written > a.written => second,
        [Err(_), Ok(_)] => second,
        _ => first,
    }
}

/// Whether these are the first bytes of a placed tablespace's file.
pub fn is_placed(file: &[u8]) -> bool {
    file.get(MAGIC_AT..VERSION) == Some(&DATA_MAGIC[..])
}

/// Reads a whole file: its header, and the places of pages 0 and on.
pub fn parse(file: &[u8]) -> Result<(PlaceMapHeader, Vec<Place>), Corrupt> {
    let (header, blocks) = parse_blocks(file)?;
    let mut places = Vec::new();
    for block in blocks {
        places.extend(block?.places);
    }
    Ok((header, places))
}

/// As [`parse`]; the places of a block that is damaged in both slots are [`Place::LOST`].
pub fn parse_damaged(file: &[u8]) -> Result<(PlaceMapHeader, Vec<Place>), Corrupt> {
    let (header, blocks) = parse_blocks(file)?;
    let blocks = blocks.map(|block| block.unwrap_or_else(|_| PlaceBlock::lost()));
    Ok((header, blocks.flat_map(|block| block.places).collect()))
}

fn parse_blocks(
    file: &[u8],
) -> Result<
    (
        PlaceMapHeader,
        impl Iterator<Item = Result<PlaceBlock, Corrupt>>,
    ),
    Corrupt,
> {
    let mut blocks = file.as_chunks::<BLOCK_LEN>().0.iter();
    let header = blocks.next();
    let header = header.ok_or_else(|| Corrupt::at(0, "the place map has no header"))?;
    let header = PlaceMapHeader::decode(header)?;
    let blocks = (0..).zip(blocks.as_slice().chunks(2));
    let blocks = blocks.map(|(number, slots)| {
        let at = slot_offset(number, 0) as usize;
        let second = slots.get(1).unwrap_or(&[0; BLOCK_LEN]);
        let block = PlaceBlock::choose(number, [&slots[0], second]);
        block.map_err(|c| Corrupt::at(at + c.offset, c.detail))
    });
    Ok((header, blocks))
}

/// A block as it goes into its slot.
pub fn encode_block(number: u32, written: u64, places: &[Place]) -> [u8; BLOCK_LEN] {
    let mut block = [0; BLOCK_LEN];
    put_u32(&mut block, NUMBER, number);
    put_u64(&mut block, WRITTEN, written);
    for (place, to) in places
        .iter()
        .zip(block[PLACES..].chunks_exact_mut(PLACE_LEN))
    {
        place.encode(to);
    }
    stamp(&mut block);
    block
}

/// The same block, written once more.
pub fn encode_again(block: &mut [u8; BLOCK_LEN]) {
    let written = get_u64(block, WRITTEN);
    put_u64(block, WRITTEN, written + 1);
    stamp(block);
}

fn decode_block(number: u32, block: &[u8; BLOCK_LEN]) -> Result<PlaceBlock, Corrupt> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(PlaceBlock::empty());
    }
    check(block)?;
    let found = get_u32(block, NUMBER);
    if found != number {
        let detail = format!("block {found} of the map, not {number}");
        return Err(Corrupt::at(NUMBER, detail));
    }
    let written = get_u64(block, WRITTEN);
    if written > WRITTEN_MAX {
        let detail = format!("block {number} of the map, written {written} times");
        return Err(Corrupt::at(WRITTEN, detail));
    }
    let places = block[PLACES..].chunks_exact(PLACE_LEN).enumerate();
    let places = places.map(|(n, place)| Place::decode(place, PLACES + n * PLACE_LEN));
    Ok(PlaceBlock {
        written,
        places: places.collect::<Result<_, _>>()?,
    })
}

/// Where a block goes when it is written the `written`th time: offset in the file.
pub fn slot_offset(number: u32, written: u64) -> u64 {
    (1 + 2 * u64::from(number) + written % 2) * BLOCK_LEN as u64
}

/// Bytes of a file with so many blocks.
pub fn file_bytes(blocks: u32) -> u64 {
    slot_offset(blocks, 0)
}

fn stamp(block: &mut [u8; BLOCK_LEN]) {
    let crc = crc32c::crc32c(&block[4..]);
    put_u32(block, 0, crc);
}

fn check(block: &[u8; BLOCK_LEN]) -> Result<(), Corrupt> {
    let (stored, computed) = (get_u32(block, 0), crc32c::crc32c(&block[4..]));
    if stored == computed {
        return Ok(());
    }
    let detail = format!("checksum {stored:08x}, computed {computed:08x}");
    Err(Corrupt::at(0, detail))
}

fn no_codec(at: usize, found: u8) -> Corrupt {
    Corrupt::at(at, format!("codec {found} is not known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<Place> {
        let place = |n: u32| match n % 4 {
            0 => Place::default(),
            codec => Place {
                unit: 7 * n,
                length: 100 + 257 * n,
                codec: Codec::of(codec as u8 - 1).unwrap(),
                lsn: Lsn(1 << 40 | u64::from(n)),
            },
        };
        (0..BLOCK_PLACES as u32).map(place).collect()
    }

    #[test]
    fn a_block_is_what_its_newest_whole_slot_says() {
        let (older, newer) = (
            encode_block(3, 4, &places()),
            encode_block(3, 5, &places()[1..]),
        );
        let chosen = PlaceBlock::choose(3, [&older, &newer]).unwrap();
        assert_eq!(chosen.written, 5);
        let mut torn = newer;
        torn[512..1024].fill(0);
        let chosen = PlaceBlock::choose(3, [&older, &torn]).unwrap();
        assert_eq!((chosen.written, chosen.places), (4, places()));
        let never = [0; BLOCK_LEN];
        assert_eq!(
            PlaceBlock::choose(3, [&never, &torn]).unwrap(),
            PlaceBlock::empty()
        );
        let mut other = older;
        other[900] ^= 1;
        assert!(PlaceBlock::choose(3, [&other, &torn]).is_err());
        assert!(PlaceBlock::choose(4, [&older, &older]).is_err());
    }

    #[test]
    fn slots_do_not_overlap() {
        let mut offsets: Vec<_> = (0..4)
            .flat_map(|number| [slot_offset(number, 6), slot_offset(number, 7)])
            .collect();
        offsets.dedup();
        let expected: Vec<_> = (1..=8).map(|n| n * BLOCK_LEN as u64).collect();
        assert_eq!(offsets, expected);
        assert_eq!(file_bytes(4), 9 * BLOCK_LEN as u64);
    }

    #[test]
    fn a_header_is_read_or_refused() {
        let header = |compression| PlaceMapHeader {
            space: SpaceId(5),
            page_size: 16384,
            compression,
        };
        for (compression, bytes) in [
            (Compression::None, [1, 0, 0]),
            (Compression::Lz4, [1, 1, 0]),
            (Compression::Zstd(1), [2, 2, 1]),
            (Compression::Zstd(19), [2, 2, 19]),
        ] {
            let block = header(compression).encode();
            assert_eq!([block[12], block[28], block[29]], bytes);
            let read = PlaceMapHeader::decode(&block).unwrap();
            assert_eq!(read, header(compression));
        }
        let block = header(Compression::Lz4).encode();
        for at in [6, 12, 13, 18, 26, 28, 29, 100] {
            let mut damaged = block;
            damaged[at] ^= 0x10;
            assert!(PlaceMapHeader::decode(&damaged).is_err(), "byte {at}");
            stamp(&mut damaged);
            let passes = PlaceMapHeader::decode(&damaged).is_ok();
            assert_eq!(
                passes,
                (16..24).contains(&at),
                "byte {at}, with its checksum"
            );
        }
    }
}
