//! Images of pages: how a page of a placed tablespace is stored.
//!
//! An image takes whole *units* of [`UNIT_LEN`] bytes. One that is not compressed is the page as
//! it is, with its own checksum. A compressed one, where that saves a unit, is a header, the
//! compressed bytes, and zeroes to the end of the unit:
//!
//! | bytes  | field                                     |
//! |--------|-------------------------------------------|
//! | 0..4   | CRC-32C of bytes 4 to the end of the image |
//! | 4      | codec: 1 LZ4 (block format), 2 Zstandard (one frame) |
//! | 5..8   | reserved, zero                            |
//! | 8..12  | bytes of the image, with the header       |
//! | 12..16 | tablespace                                |
//! | 16..20 | page                                      |
//! | 20..28 | page LSN                                  |
//!
//! The checksum is looked at before anything is unpacked. Integers are little-endian.

use crate::header::{get_u32, get_u64, put_u32, put_u64};
use crate::{Corrupt, Lsn, PageId, PageNo, SpaceId};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

/// Bytes in a unit: what unbuffered I/O takes.
pub const UNIT_LEN: usize = 4096;
/// Bytes before what is compressed.
pub const IMAGE_HEADER_LEN: usize = 28;

const CODEC: usize = 4;
const RESERVED: usize = 5;
const LENGTH: usize = 8;
const SPACE: usize = 12;
const PAGE: usize = 16;
const LSN: usize = 20;

/// How an image is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As the page is.
    #[default]
    None = 0,
    /// LZ4, block format.
    Lz4 = 1,
    /// Zstandard, one frame.
    Zstd = 2,
}

impl Codec {
    /// The codec of a number in a file.
    pub fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Levels of Zstandard, from fast to small. The first one looks for long repetitions alone: half
/// its time goes by with short ones otherwise, and in rows of digits, which repeat a few of them by
/// chance, those make the image larger.
pub const ZSTD_LEVELS: RangeInclusive<u8> = 1..=19;
/// Bytes that are a repetition for the first level.
const MATCH_LEN: u32 = 7;
/// And log2 of the places in a page that it remembers.
const HASH_LOG: u32 = 13;

/// How new images are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As the page is.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard, with this level: one of [`ZSTD_LEVELS`].
    Zstd(u8),
}

impl Compression {
    /// That of a codec, with the level that a file says, 0 if the codec has none.
    pub fn of(codec: Codec, level: u8) -> Option<Self> {
        match (codec, level) {
            (Codec::None, 0) => Some(Self::None),
            (Codec::Lz4, 0) => Some(Self::Lz4),
            (Codec::Zstd, level) if ZSTD_LEVELS.contains(&level) => Some(Self::Zstd(level)),
            _ => None,
        }
    }

    /// Its codec.
    pub fn codec(self) -> Codec {
        match self {
            Self::None => Codec::None,
            Self::Lz4 => Codec::Lz4,
            Self::Zstd(_) => Codec::Zstd,
        }
    }

    /// Its level, 0 if the codec has none.
    pub fn level(self) -> u8 {
        match self {
            Self::None | Self::Lz4 => 0,
            Self::Zstd(level) => level,
        }
    }
}

/// Memory for making images, used again for each.
#[derive(Default)]
pub struct Packer {
    packed: Vec<u8>,
    /// With the level that it is set to.
    zstd: Option<(u8, Compressor<'static>)>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    /// The compressed bytes of a page; none, if the codec has failed or there are more than the
    /// page has.
    fn pack(&mut self, compression: Compression, page: &[u8]) -> Option<&[u8]> {
        let bytes = match compression {
            Compression::None => return None,
            Compression::Lz4 => {
                let room = lz4_flex::block::get_maximum_output_size(page.len());
                self.packed.resize(room, 0);
                lz4_flex::block::compress_into(page, &mut self.packed).ok()?
            }
            Compression::Zstd(level) => {
                self.packed.resize(page.len(), 0);
                let compressor = compressor(&mut self.zstd, level)?;
                compressor
                    .compress_to_buffer(page, &mut self.packed[..])
                    .ok()?
            }
        };
        self.packed.get(..bytes)
    }
}

/// The compressor, set to a level; none, if there is no memory for it.
fn compressor<'z>(
    zstd: &'z mut Option<(u8, Compressor<'static>)>,
    level: u8,
) -> Option<&'z mut Compressor<'static>> {
    if zstd.is_none() {
        // Of a level that there is not: it is set below.
        *zstd = Some((0, Compressor::default()));
    }
    let (set, compressor) = zstd.as_mut()?;
    if *set != level {
        set_level(compressor, level).ok()?;
        *set = level;
    }
    Some(compressor)
}

fn set_level(compressor: &mut Compressor<'static>, level: u8) -> std::io::Result<()> {
    compressor.set_compression_level(level.into())?;
    // 0: as the level has it.
    let (match_len, hash_log) = match level {
        1 => (MATCH_LEN, HASH_LOG),
        _ => (0, 0),
    };
    compressor.set_parameter(CParameter::MinMatch(match_len))?;
    compressor.set_parameter(CParameter::HashLog(hash_log))
}

thread_local! {
    /// What unpacks images for this thread, between two of them.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Unpacks a frame into a page; tells how many bytes it had.
fn decompress_zstd(frame: &[u8], page: &mut [u8]) -> std::io::Result<usize> {
    let kept = DECOMPRESSOR.try_with(|kept| kept.take()).ok().flatten();
    let mut decompressor = match kept {
        Some(decompressor) => decompressor,
        None => Decompressor::new()?,
    };
    let unpacked = decompressor.decompress_to_buffer(frame, page);
    // A thread that is ending keeps none.
    let _ = DECOMPRESSOR.try_with(|kept| kept.replace(Some(decompressor)));
    unpacked
}

/// An image that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// How it is stored.
    pub codec: Codec,
    /// Its bytes, without those that fill its last unit.
    pub length: u32,
}

impl Made {
    /// Bytes of its units.
    pub fn unit_bytes(&self) -> usize {
        (self.length as usize).next_multiple_of(UNIT_LEN)
    }
}

/// Puts the compressed image of a page into `room`, with the rest of its last unit: it takes fewer
/// bytes than the page. Where that saves no unit, the image is the page as it is ([`Codec::None`]),
/// and `room` is left alone.
pub fn make(
    compression: Compression,
    (id, lsn): (PageId, Lsn),
    page: &[u8],
    room: &mut [u8],
    packer: &mut Packer,
) -> Made {
    if let Some(packed) = packer.pack(compression, page)
        && let Some(made) = put_packed(compression.codec(), (id, lsn), packed, page.len(), room)
    {
        return made;
    }
    Made {
        codec: Codec::None,
        length: page.len() as u32,
    }
}

/// Puts compressed bytes of a page of `page_len` into `room`, if that saves a unit.
fn put_packed(
    codec: Codec,
    (id, lsn): (PageId, Lsn),
    packed: &[u8],
    page_len: usize,
    room: &mut [u8],
) -> Option<Made> {
    let length = IMAGE_HEADER_LEN + packed.len();
    let units = length.next_multiple_of(UNIT_LEN);
    if units >= page_len {
        return None;
    }
    let image = room.get_mut(..units)?;
    image[..IMAGE_HEADER_LEN].fill(0);
    image[CODEC] = codec as u8;
    put_u32(image, LENGTH, length as u32);
    put_u32(image, SPACE, id.space.0);
    put_u32(image, PAGE, id.page.0);
    put_u64(image, LSN, lsn.0);
    image[IMAGE_HEADER_LEN..length].copy_from_slice(packed);
    image[length..].fill(0);
    let crc = crc32c::crc32c(&image[4..length]);
    put_u32(image, 0, crc);
    Some(Made {
        codec,
        length: length as u32,
    })
}

/// Puts the page of an image into `page`: the caller checks it as any page. `image` has
/// `made.length` bytes at least.
pub fn unpack(made: Made, id: PageId, image: &[u8], page: &mut [u8]) -> Result<(), Corrupt> {
    let length = made.length as usize;
    let image = image.get(..length).ok_or_else(|| {
        Corrupt::at(
            0,
            format!(
                "an image of {length} bytes, of which {} are there",
                image.len()
            ),
        )
    })?;
    match made.codec {
        Codec::None if length == page.len() => page.copy_from_slice(image),
        Codec::None => {
            let detail = format!("an image of {length} bytes, and pages have {}", page.len());
            return Err(Corrupt::at(0, detail));
        }
        Codec::Lz4 | Codec::Zstd => decompress(made.codec, id, image, page)?,
    }
    Ok(())
}

/// Of which page the bytes begin with a compressed image, and with which page LSN, as its header
/// says. Nothing is checked yet: [`unpack`] does that.
pub fn look_at_header(bytes: &[u8]) -> Option<(PageId, Lsn, Made)> {
    let header = bytes.get(..IMAGE_HEADER_LEN)?;
    let codec = Codec::of(header[CODEC]).filter(|codec| *codec != Codec::None)?;
    if header[RESERVED..LENGTH] != [0; 3] {
        return None;
    }
    let made = Made {
        codec,
        length: get_u32(header, LENGTH),
    };
    let id = PageId::new(
        SpaceId(get_u32(header, SPACE)),
        PageNo(get_u32(header, PAGE)),
    );
    let fits = made.length as usize > IMAGE_HEADER_LEN && made.length as usize <= bytes.len();
    fits.then_some((id, Lsn(get_u64(header, LSN)), made))
}

fn decompress(codec: Codec, id: PageId, image: &[u8], page: &mut [u8]) -> Result<(), Corrupt> {
    if image.len() < IMAGE_HEADER_LEN {
        let detail = format!("{} bytes are no compressed image", image.len());
        return Err(Corrupt::at(0, detail));
    }
    let (stored, computed) = (get_u32(image, 0), crc32c::crc32c(&image[4..]));
    if stored != computed {
        let detail = format!("image of {id}: checksum {stored:08x}, computed {computed:08x}");
        return Err(Corrupt::at(0, detail));
    }
    let found = PageId::new(SpaceId(get_u32(image, SPACE)), PageNo(get_u32(image, PAGE)));
    if found != id {
        return Err(Corrupt::at(
            SPACE,
            format!("the image of page {found}, not {id}"),
        ));
    }
    let length = get_u32(image, LENGTH) as usize;
    let is_plain = image[RESERVED..LENGTH] == [0; 3] && image[CODEC] == codec as u8;
    if length != image.len() || !is_plain {
        let detail = format!("image of {id}: {length} bytes in one of {}", image.len());
        return Err(Corrupt::at(CODEC, detail));
    }
    let packed = &image[IMAGE_HEADER_LEN..];
    let unpacked = match codec {
        Codec::Zstd => decompress_zstd(packed, page).map_err(|e| e.to_string()),
        _ => lz4_flex::block::decompress_into(packed, page).map_err(|e| e.to_string()),
    };
    match unpacked {
        Ok(bytes) if bytes == page.len() => Ok(()),
        Ok(bytes) => {
            let detail = format!("image of {id}: {bytes} bytes unpacked, not {}", page.len());
            Err(Corrupt::at(IMAGE_HEADER_LEN, detail))
        }
        Err(error) => {
            let detail = format!("image of {id}: {error}");
            Err(Corrupt::at(IMAGE_HEADER_LEN, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PageId = PageId {
        space: SpaceId(3),
        page: PageNo(9),
    };

    fn page(compresses: bool) -> Vec<u8> {
        let mut state = 1_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        let byte = |n: usize| if compresses { (n / 64) as u8 } else { random() };
        (0..16384).map(byte).collect()
    }

    #[test]
    fn a_page_comes_back_from_its_image() {
        let mut packer = Packer::default();
        for (compression, compresses, expected) in [
            (Compression::None, true, (Codec::None, 16384)),
            (Compression::Lz4, false, (Codec::None, 16384)),
            (Compression::Lz4, true, (Codec::Lz4, 4096)),
            (Compression::Zstd(3), false, (Codec::None, 16384)),
            (Compression::Zstd(3), true, (Codec::Zstd, 4096)),
            (Compression::Zstd(19), true, (Codec::Zstd, 4096)),
            (Compression::Zstd(1), true, (Codec::Zstd, 4096)),
        ] {
            let page = page(compresses);
            let (mut room, mut back) = (vec![1; 16384], vec![0; 16384]);
            let made = make(compression, (ID, Lsn(77)), &page, &mut room, &mut packer);
            assert_eq!((made.codec, made.unit_bytes()), expected);
            let image = match made.codec {
                Codec::None => {
                    assert!(room.iter().all(|&byte| byte == 1));
                    &page
                }
                _ => &room,
            };
            unpack(made, ID, image, &mut back).unwrap();
            assert_eq!(back, page);
        }
    }

    #[test]
    fn a_higher_level_is_not_larger() {
        let text: Vec<u8> = (0..2000_u32)
            .flat_map(|n| format!("row {} of {}; ", n * n % 977, n % 31).into_bytes())
            .take(16384)
            .collect();
        let (mut room, mut packer) = (vec![0; 16384], Packer::default());
        let mut length =
            |compression| make(compression, (ID, Lsn(1)), &text, &mut room, &mut packer).length;
        let (one, nineteen) = (length(Compression::Zstd(1)), length(Compression::Zstd(19)));
        assert!(
            nineteen < one && one < length(Compression::Lz4),
            "{nineteen}, {one}"
        );
        // The level of one page is not that of the next.
        assert_eq!(length(Compression::Zstd(1)), one);
        let mut fresh = Packer::default();
        let made = make(
            Compression::Zstd(19),
            (ID, Lsn(1)),
            &text,
            &mut room,
            &mut fresh,
        );
        assert_eq!(made.length, nineteen);
        for (codec, level) in [(Codec::None, 1), (Codec::Lz4, 3), (Codec::Zstd, 0)] {
            assert_eq!(Compression::of(codec, level), None);
        }
        assert_eq!(Compression::of(Codec::Zstd, 20), None);
    }

    #[test]
    fn a_damaged_image_is_told_of() {
        for compression in [Compression::Lz4, Compression::Zstd(3)] {
            damage_each_byte(compression);
        }
    }

    fn damage_each_byte(compression: Compression) {
        let (mut room, mut back) = (vec![1; 16384], vec![0; 16384]);
        let made = make(
            compression,
            (ID, Lsn(77)),
            &page(true),
            &mut room,
            &mut Packer::default(),
        );
        let other = PageId::new(SpaceId(3), PageNo(8));
        assert!(unpack(made, other, &room, &mut back).is_err());
        for at in 0..made.length as usize {
            let mut damaged = room.clone();
            damaged[at] ^= 4;
            assert!(unpack(made, ID, &damaged, &mut back).is_err(), "byte {at}");
            let crc = crc32c::crc32c(&damaged[4..made.length as usize]);
            put_u32(&mut damaged, 0, crc);
            // Whatever it says with its checksum: an error or a page, and no panic.
            let _ = unpack(made, ID, &damaged, &mut back);
        }
        let short = Made {
            length: 100_000,
            ..made
        };
        assert!(unpack(short, ID, &room, &mut back).is_err());
        // Room for a smaller page: nothing is written behind it.
        let mut small = vec![0; 8192];
        assert!(unpack(made, ID, &room, &mut small).is_err());
    }
}
