//! Frames: how a mini-transaction stands in the redo log.
//!
//! | bytes   | field                                                                        |
//! |---------|------------------------------------------------------------------------------|
//! | 1       | tag: bit 7 set, bit 6 "has a claim", bits 0..6 hash of (start LSN, epoch)     |
//! | 1 to 3  | payload length, LEB128, shortest form                                        |
//! | 4       | checksum, little-endian                                                      |
//! | 0 or 8  | claim, little-endian: the log was durable up to this LSN when this was built  |
//! | length  | payload                                                                      |
//!
//! A frame begins at its *start LSN* and ends at its *end LSN*, where the next one begins.
//!
//! The checksum is `crc32c(length bytes ++ claim bytes ++ payload) XOR mix32(start LSN, epoch)`.
//! The CRC, the costly part, is computed before the LSN is reserved; the seed is put in after.
//! That is as strong as a CRC whose register is seeded: CRC is affine, so seeding the register
//! with `s` changes the result by `L(s)`, where `L` is a bijection of 32-bit words that depends on
//! the length only. XOR with `m` afterwards equals seeding with `L⁻¹(m)`. Either way bytes that
//! are whole in themselves but belong to another LSN or epoch pass exactly when the two seeds
//! collide: 1 in 2³² (and 1 in 2³⁸ with the hash bits of the tag, which come from other bits of
//! the same hash). Errors within the bytes are found as by the CRC alone. The tag is checked
//! against its expected value; its claim bit changes which bytes the CRC covers.
//!
//! A tag is never zero, so zero bytes are never a frame.

use crate::Lsn;

#[cfg(test)]
mod tests;

/// The longest payload of a frame, bytes.
pub const FRAME_PAYLOAD_MAX: usize = 1 << 20;
/// The longest frame header, bytes: tag, three length bytes, checksum, claim.
pub const FRAME_HEADER_MAX: usize = 1 + 3 + 4 + 8;
/// The longest frame, bytes.
pub const FRAME_MAX: usize = FRAME_HEADER_MAX + FRAME_PAYLOAD_MAX;

/// Bit of the tag that every frame has.
pub const TAG_VALID: u8 = 0x80;
/// Bit of the tag of a frame that carries a claim.
pub const TAG_CLAIM: u8 = 0x40;
const TAG_HASH: u8 = 0x3f;

const _: () = assert!(
    FRAME_PAYLOAD_MAX < 1 << 21,
    "a length takes at most three bytes"
);

/// 64 well-mixed bits of where and when a frame was written.
#[inline]
fn mix(start: Lsn, epoch: u64) -> u64 {
    let mut x = start.0 ^ epoch.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[inline]
fn tag_of(mixed: u64, has_claim: bool) -> u8 {
    TAG_VALID | if has_claim { TAG_CLAIM } else { 0 } | (mixed >> 58) as u8
}

/// A frame's header under construction: [`FrameHead::new`] does the costly part, before the LSN
/// is known, and [`FrameHead::seal`] the rest.
#[derive(Clone, Debug)]
pub struct FrameHead {
    bytes: [u8; FRAME_HEADER_MAX],
    len: usize,
    payload_len: usize,
    crc_at: usize,
    crc: u32,
    has_claim: bool,
}

impl FrameHead {
    /// Prepares the header of a frame.
    ///
    /// # Panics
    /// If the payload is longer than [`FRAME_PAYLOAD_MAX`].
    #[inline]
    pub fn new(payload: &[u8], claim: Option<Lsn>) -> Self {
        assert!(payload.len() <= FRAME_PAYLOAD_MAX, "frame payload too long");
        let mut bytes = [0; FRAME_HEADER_MAX];
        let crc_at = 1 + put_length(&mut bytes[1..4], payload.len());
        let mut crc = length_crc(&bytes[1..crc_at]);
        let mut len = crc_at + 4;
        if let Some(claim) = claim {
            bytes[len..len + 8].copy_from_slice(&claim.0.to_le_bytes());
            crc = crc32c::crc32c_append(crc, &bytes[len..len + 8]);
            len += 8;
        }
        Self {
            bytes,
            len,
            payload_len: payload.len(),
            crc_at,
            crc: crc32c::crc32c_append(crc, payload),
            has_claim: claim.is_some(),
        }
    }

    /// Bytes of the whole frame.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.len + self.payload_len
    }

    /// Puts in what depends on the place in the log, and returns the header's bytes (the payload
    /// follows them). May be called again for another place.
    #[inline]
    pub fn seal(&mut self, start: Lsn, epoch: u64) -> &[u8] {
        let mixed = mix(start, epoch);
        self.bytes[0] = tag_of(mixed, self.has_claim);
        let crc = self.crc ^ mixed as u32;
        self.bytes[self.crc_at..self.crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        &self.bytes[..self.len]
    }
}

/// CRC-32C of the one to three bytes of a length: they are too few for a call.
#[inline]
fn length_crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| CRC_OF_BYTE[(crc as u8 ^ byte) as usize] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

const CRC_OF_BYTE: [u32; 256] = {
    /// The polynomial, lowest bit first.
    const CASTAGNOLI: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { CASTAGNOLI } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Appends a whole frame to `out` (tests and tools; the log builds frames in place).
pub fn encode(payload: &[u8], claim: Option<Lsn>, start: Lsn, epoch: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(FrameHead::new(payload, claim).seal(start, epoch));
    out.extend_from_slice(payload);
}

/// A frame that verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame<'a> {
    /// Bytes of the whole frame.
    pub len: usize,
    /// The log was durable up to here when the frame was built.
    pub claim: Option<Lsn>,
    /// The mini-transaction's records.
    pub payload: &'a [u8],
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// A zero byte where a tag should be.
    #[error("there is no frame (the tag byte is zero)")]
    NoFrame,
    /// The tag byte belongs to no frame of this place and epoch.
    #[error("the tag byte is {found:02x}, but {expected:02x} is expected")]
    Tag {
        /// What is there.
        found: u8,
        /// What a frame of this place and epoch has (with the same claim bit).
        expected: u8,
    },
    /// The length is not in its shortest form, or beyond [`FRAME_PAYLOAD_MAX`].
    #[error("the payload length is malformed")]
    Length,
    /// The checksum does not fit.
    #[error("the checksum is {stored:08x}, but {computed:08x} is computed")]
    Checksum {
        /// What is there.
        stored: u32,
        /// What these bytes would have.
        computed: u32,
    },
    /// The claim is about log that was not yet written.
    #[error("the claim {claim} is beyond the frame itself")]
    Claim {
        /// The claim.
        claim: Lsn,
    },
}

/// What [`parse`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A frame that verified.
    Frame(RawFrame<'a>),
    /// May be a frame, of which at least this many bytes are needed to go on.
    Short(usize),
    /// Not a frame of this place and epoch.
    Not(Defect),
}

/// Parses and verifies the frame that starts with the first of these bytes.
pub fn parse(bytes: &[u8], start: Lsn, epoch: u64) -> Parsed<'_> {
    let Some(&tag) = bytes.first() else {
        return Parsed::Short(1);
    };
    if tag == 0 {
        return Parsed::Not(Defect::NoFrame);
    }
    let mixed = mix(start, epoch);
    let expected = tag_of(mixed, tag & TAG_CLAIM != 0);
    if tag != expected {
        return Parsed::Not(Defect::Tag {
            found: tag,
            expected,
        });
    }
    let head = match parse_head(bytes) {
        Head::Whole(head) => head,
        Head::Short(needed) => return Parsed::Short(needed),
        Head::Malformed => return Parsed::Not(Defect::Length),
    };
    if bytes.len() < head.frame_len() {
        return Parsed::Short(head.frame_len());
    }
    let payload = &bytes[head.header_len..head.frame_len()];
    let crc = length_crc(&bytes[1..head.crc_at]);
    let crc = crc32c::crc32c_append(crc, &bytes[head.crc_at + 4..head.frame_len()]);
    let computed = crc ^ mixed as u32;
    if computed != head.crc {
        return Parsed::Not(Defect::Checksum {
            stored: head.crc,
            computed,
        });
    }
    match head.claim {
        Some(claim) if claim > start => Parsed::Not(Defect::Claim { claim }),
        claim => Parsed::Frame(RawFrame {
            len: head.frame_len(),
            claim,
            payload,
        }),
    }
}

/// A header that was taken apart, and not verified.
#[derive(Clone, Copy, Debug)]
struct ParsedHead {
    crc_at: usize,
    header_len: usize,
    payload_len: usize,
    crc: u32,
    claim: Option<Lsn>,
}

impl ParsedHead {
    fn frame_len(&self) -> usize {
        self.header_len + self.payload_len
    }
}

enum Head {
    Whole(ParsedHead),
    Short(usize),
    Malformed,
}

#[inline]
fn parse_head(bytes: &[u8]) -> Head {
    let (payload_len, length_bytes) = match get_length(&bytes[1..]) {
        Length::Is(length, bytes) => (length, bytes),
        Length::Short => return Head::Short(bytes.len() + 1),
        Length::Malformed => return Head::Malformed,
    };
    let crc_at = 1 + length_bytes;
    let has_claim = bytes[0] & TAG_CLAIM != 0;
    let header_len = crc_at + 4 + if has_claim { 8 } else { 0 };
    if bytes.len() < header_len {
        return Head::Short(header_len);
    }
    Head::Whole(ParsedHead {
        crc_at,
        header_len,
        payload_len,
        crc: crate::header::get_u32(bytes, crc_at),
        claim: has_claim.then(|| Lsn(crate::header::get_u64(bytes, crc_at + 4))),
    })
}

/// Length of the whole frame whose first bytes are these, unverified: for frames that this
/// process itself has just published. `None` when the bytes are too few or malformed.
#[inline]
pub fn frame_len(first_bytes: &[u8; 4]) -> Option<usize> {
    match get_length(&first_bytes[1..]) {
        Length::Is(length, bytes) => {
            let claim = if first_bytes[0] & TAG_CLAIM != 0 {
                8
            } else {
                0
            };
            Some(1 + bytes + 4 + claim + length)
        }
        Length::Short | Length::Malformed => None,
    }
}

/// A place where a frame with a claim may start: see [`find_claims`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimCandidate {
    /// Offset in the searched bytes.
    pub offset: usize,
    /// Bytes that [`parse`] needs to verify it.
    pub frame_len: usize,
    /// What it would claim.
    pub claim: Lsn,
}

/// Finds the next place at or after `offset` in `bytes` (which stand at LSN `base`) that looks
/// like a frame which claims that the log was durable beyond `beyond`. Such a place is verified
/// with [`parse`]; nearly none is found in junk, because a claim must lie between `beyond` and the
/// frame. Places whose header is not wholly in `bytes` are not looked at: let the next call's
/// bytes overlap by [`FRAME_HEADER_MAX`] - 1.
pub fn find_claims(bytes: &[u8], base: Lsn, offset: usize, beyond: Lsn) -> Option<ClaimCandidate> {
    let mut at = offset;
    while at < bytes.len() {
        at = next_claim_tag(bytes, at)?;
        if let Head::Whole(head) = parse_head(&bytes[at..]) {
            let start = Lsn(base.0.saturating_add(at as u64));
            if let Some(claim) = head.claim.filter(|c| *c > beyond && *c <= start) {
                return Some(ClaimCandidate {
                    offset: at,
                    frame_len: head.frame_len(),
                    claim,
                });
            }
        }
        at += 1;
    }
    None
}

/// The next byte with both upper bits set, eight at a time.
#[inline]
fn next_claim_tag(bytes: &[u8], mut at: usize) -> Option<usize> {
    const UPPER: u64 = 0x8080_8080_8080_8080;
    while let Some(word) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let both = word & (word << 1) & UPPER;
        // `word << 1` brings bit 6 of each byte under its bit 7.
        if both != 0 {
            return Some(at + both.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    (at..bytes.len()).find(|&i| bytes[i] & (TAG_VALID | TAG_CLAIM) == TAG_VALID | TAG_CLAIM)
}

#[inline]
fn put_length(out: &mut [u8], length: usize) -> usize {
    let mut rest = length;
    let mut at = 0;
    while rest >= 0x80 {
        out[at] = rest as u8 | 0x80;
        rest >>= 7;
        at += 1;
    }
    out[at] = rest as u8;
    at + 1
}

enum Length {
    Is(usize, usize),
    Short,
    Malformed,
}

#[inline]
fn get_length(bytes: &[u8]) -> Length {
    let mut length = 0;
    for at in 0..3 {
        let Some(&byte) = bytes.get(at) else {
            return Length::Short;
        };
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            let shortest = at == 0 || byte != 0;
            return if shortest && length <= FRAME_PAYLOAD_MAX {
                Length::Is(length, at + 1)
            } else {
                Length::Malformed
            };
        }
    }
    Length::Malformed
}

const _: () = assert!(TAG_VALID | TAG_CLAIM | TAG_HASH == 0xff);
