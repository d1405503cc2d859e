//! Images of pages: how a page of a placed tablespace is stored.
//!
//! An image takes whole *units* of [`UNIT_LEN`] bytes. One that is not compressed is the page as
//! it is, with its own checksum. A compressed one, where that saves a unit, is a header, the
//! compressed bytes, and zeroes to the end of the unit:
//!
//! | bytes  | field                                     |
//! |--------|-------------------------------------------|
//! | 0..4   | CRC-32C of bytes 4 to the end of the image |
//! | 4      | codec: 1 LZ4 (block format)               |
//! | 5..8   | reserved, zero                            |
//! | 8..12  | bytes of the image, with the header       |
//! | 12..16 | tablespace                                |
//! | 16..20 | page                                      |
//! | 20..28 | page LSN                                  |
//!
//! The checksum is looked at before anything is unpacked. Integers are little-endian.

use crate::header::{get_u32, get_u64, put_u32, put_u64};
use crate::{Corrupt, Lsn, PageId, PageNo, SpaceId};

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
}

impl Codec {
    /// The codec of a number in a file.
    pub fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            _ => None,
        }
    }
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

/// Puts the image of a page into `room`, which has as many bytes as the page: with the rest of its
/// last unit. `packed` is memory that is used again.
pub fn make(
    codec: Codec,
    (id, lsn): (PageId, Lsn),
    page: &[u8],
    room: &mut [u8],
    packed: &mut Vec<u8>,
) -> Made {
    if codec == Codec::Lz4
        && let Some(made) = compress((id, lsn), page, room, packed)
    {
        return made;
    }
    room[..page.len()].copy_from_slice(page);
    Made {
        codec: Codec::None,
        length: page.len() as u32,
    }
}

/// As [`make`], if that saves a unit.
fn compress(
    (id, lsn): (PageId, Lsn),
    page: &[u8],
    room: &mut [u8],
    packed: &mut Vec<u8>,
) -> Option<Made> {
    packed.resize(lz4_flex::block::get_maximum_output_size(page.len()), 0);
    let bytes = lz4_flex::block::compress_into(page, packed).ok()?;
    let length = IMAGE_HEADER_LEN + bytes;
    let units = length.next_multiple_of(UNIT_LEN);
    if units >= page.len() {
        return None;
    }
    let image = room.get_mut(..units)?;
    image[..IMAGE_HEADER_LEN].fill(0);
    image[CODEC] = Codec::Lz4 as u8;
    put_u32(image, LENGTH, length as u32);
    put_u32(image, SPACE, id.space.0);
    put_u32(image, PAGE, id.page.0);
    put_u64(image, LSN, lsn.0);
    image[IMAGE_HEADER_LEN..length].copy_from_slice(&packed[..bytes]);
    image[length..].fill(0);
    let crc = crc32c::crc32c(&image[4..length]);
    put_u32(image, 0, crc);
    Some(Made {
        codec: Codec::Lz4,
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
        Codec::Lz4 => decompress(id, image, page)?,
    }
    Ok(())
}

/// Of which page the bytes begin with a compressed image, and with which page LSN, as its header
/// says. Nothing is checked yet: [`unpack`] does that.
pub fn look_at_header(bytes: &[u8]) -> Option<(PageId, Lsn, Made)> {
    let header = bytes.get(..IMAGE_HEADER_LEN)?;
    if header[CODEC] != Codec::Lz4 as u8 || header[RESERVED..LENGTH] != [0; 3] {
        return None;
    }
    let made = Made {
        codec: Codec::Lz4,
        length: get_u32(header, LENGTH),
    };
    let id = PageId::new(
        SpaceId(get_u32(header, SPACE)),
        PageNo(get_u32(header, PAGE)),
    );
    let fits = made.length as usize > IMAGE_HEADER_LEN && made.length as usize <= bytes.len();
    fits.then_some((id, Lsn(get_u64(header, LSN)), made))
}

fn decompress(id: PageId, image: &[u8], page: &mut [u8]) -> Result<(), Corrupt> {
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
    let is_plain = image[RESERVED..LENGTH] == [0; 3] && image[CODEC] == Codec::Lz4 as u8;
    if length != image.len() || !is_plain {
        let detail = format!("image of {id}: {length} bytes in one of {}", image.len());
        return Err(Corrupt::at(CODEC, detail));
    }
    let unpacked = lz4_flex::block::decompress_into(&image[IMAGE_HEADER_LEN..], page);
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
        for (codec, compresses, expected) in [
            (Codec::None, true, (Codec::None, 16384)),
            (Codec::Lz4, false, (Codec::None, 16384)),
            (Codec::Lz4, true, (Codec::Lz4, 4096)),
        ] {
            let page = page(compresses);
            let (mut room, mut packed, mut back) = (vec![1; 16384], Vec::new(), vec![0; 16384]);
            let made = make(codec, (ID, Lsn(77)), &page, &mut room, &mut packed);
            assert_eq!((made.codec, made.unit_bytes()), expected);
            unpack(made, ID, &room, &mut back).unwrap();
            assert_eq!(back, page);
        }
    }

    #[test]
    fn a_damaged_image_is_told_of() {
        let (mut room, mut packed, mut back) = (vec![1; 16384], Vec::new(), vec![0; 16384]);
        let made = make(
            Codec::Lz4,
            (ID, Lsn(77)),
            &page(true),
            &mut room,
            &mut packed,
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
    }
}
