//! An entry of a segment as bytes: native only to this process and its spill file.
//!
//! ```text
//! bytes  0..4   key length                24..32  address of the transaction's preceding entry
//!        4..8   old value length          32..36  tablespace
//!        8      kind                      36..40  tree
//!        9      flags                     40..44  marker: low half of the entry's address
//!       10      old flags of the cell     44..48  CRC-32C, in the spill file only
//!       11      steps                     48..    key, old value
//!       12..16  index of the writer               zeroes up to a multiple of 16
//!       16..24  address of the row's older version
//! ```

use super::VersionKind;
use crate::paranoid::paranoid;
use inkstone_format::version::version_bytes;
use inkstone_format::{Corrupt, SpaceId, TreeId, VersionAddress};
use std::ops::Range;

pub(super) use inkstone_format::version::{
    VERSION_HEADER_BYTES as HEADER_BYTES, VERSION_UNIT as UNIT, VERSION_UNIT_BITS,
};

const KIND: usize = 8;
pub(super) const STEPS: usize = 11;
const MARKER: usize = 40;
const CHECKSUM: Range<usize> = 44..48;

/// A change that is about to be made, as its version entry tells it.
#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    /// What the change does to the row.
    pub kind: VersionKind,
    /// Flags, see [`super::NO_PURGE`]; other bits are the caller's.
    pub flags: u8,
    /// Tablespace of the row.
    pub space: SpaceId,
    /// Tree of the row.
    pub tree: TreeId,
    /// The row's key.
    pub key: &'a [u8],
    /// Flags of the cell before the change.
    pub old_flags: u8,
    /// Value of the cell before the change; empty if there is none.
    pub old_value: &'a [u8],
    /// The version that the cell had before the change; 0 if none.
    pub previous: VersionAddress,
    /// The entry that the same transaction made before this one; 0 if none.
    pub undo_previous: VersionAddress,
    /// How many of the row's live changes it is after the last milestone, see
    /// [`VersionStore::steps_after`](super::VersionStore::steps_after).
    pub steps: u8,
}

impl NewVersion<'_> {
    /// Bytes that it takes in a segment.
    pub(crate) fn encoded_bytes(&self) -> usize {
        version_bytes(self.key.len(), self.old_value.len())
    }

    /// Appends the entry to a segment's bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>, address: VersionAddress, writer: u32) {
        let start = out.len();
        paranoid!(
            start.is_multiple_of(UNIT) && self.key.len() <= u32::MAX as usize,
            "version {address:#x?} with a key of {} bytes begins at byte {start}",
            self.key.len()
        );
        paranoid!(
            address.0 != 0 && self.previous != address && self.undo_previous != address,
            "version {address:#x?} leads to itself: {self:?}"
        );
        let mut header = [0; HEADER_BYTES];
        header[0..4].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(self.old_value.len() as u32).to_le_bytes());
        header[8..12].copy_from_slice(&[self.kind as u8, self.flags, self.old_flags, self.steps]);
        header[12..16].copy_from_slice(&writer.to_le_bytes());
        header[16..24].copy_from_slice(&self.previous.0.to_le_bytes());
        header[24..32].copy_from_slice(&self.undo_previous.0.to_le_bytes());
        header[32..36].copy_from_slice(&self.space.0.to_le_bytes());
        header[36..40].copy_from_slice(&self.tree.0.to_le_bytes());
        header[MARKER..MARKER + 4].copy_from_slice(&(address.0 as u32).to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.old_value);
        paranoid!(
            out.len() <= start + self.encoded_bytes(),
            "version {address:#x?} takes {} bytes, not {}",
            out.len() - start,
            self.encoded_bytes()
        );
        out.resize(start + self.encoded_bytes(), 0);
    }
}

/// The parsed first part of an entry. Its lengths fit the bytes that it was parsed from, unless it
/// was parsed as a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub kind: VersionKind,
    pub flags: u8,
    pub old_flags: u8,
    pub steps: u8,
    pub writer: u32,
    pub previous: VersionAddress,
    pub undo_previous: VersionAddress,
    pub space: SpaceId,
    pub tree: TreeId,
    key_bytes: usize,
    old_value_bytes: usize,
}

impl Header {
    /// Parses the header of the entry at `at`, whose body may go on beyond `bytes`.
    pub fn parse_prefix(bytes: &[u8], at: usize, address: VersionAddress) -> Result<Self, Corrupt> {
        let header: &[u8; HEADER_BYTES] = bytes
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .ok_or_else(|| Corrupt::at(at, format!("no version at address {address:#x?}")))?;
        let u32_at = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|j| header[i + j]));
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        if u32_at(MARKER) != address.0 as u32 {
            return Err(Corrupt::at(
                at,
                format!("no version at address {address:#x?}"),
            ));
        }
        let kind = VersionKind::from_byte(header[8])
            .ok_or_else(|| Corrupt::at(at + 8, format!("version kind {}", header[8])))?;
        Ok(Self {
            kind,
            flags: header[9],
            old_flags: header[10],
            steps: header[STEPS],
            writer: u32_at(12),
            previous: VersionAddress(u64_at(16)),
            undo_previous: VersionAddress(u64_at(24)),
            space: SpaceId(u32_at(32)),
            tree: TreeId(u32_at(36)),
            key_bytes: u32_at(0) as usize,
            old_value_bytes: u32_at(4) as usize,
        })
    }

    /// Parses the header of the entry at `at`, and sees that all of the entry is there.
    pub fn parse(bytes: &[u8], at: usize, address: VersionAddress) -> Result<Self, Corrupt> {
        let header = Self::parse_prefix(bytes, at, address)?;
        if header.encoded_bytes() > bytes.len() - at {
            return Err(Corrupt::at(at, "version entry runs beyond its segment"));
        }
        Ok(header)
    }

    /// Bytes of the whole entry.
    pub fn encoded_bytes(&self) -> usize {
        version_bytes(self.key_bytes, self.old_value_bytes)
    }

    /// The key of the entry at `at`.
    pub fn key<'a>(&self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        &bytes[at + HEADER_BYTES..][..self.key_bytes]
    }

    /// The old value of the entry at `at`.
    pub fn old_value<'a>(&self, bytes: &'a [u8], at: usize) -> &'a [u8] {
        &bytes[at + HEADER_BYTES + self.key_bytes..][..self.old_value_bytes]
    }
}

/// The entries of a segment's bytes, in order, and where each begins. In a segment that was made
/// anew of the log an entry may end before the next begins: zeroes are between them.
pub(super) fn entries(
    bytes: &[u8],
    segment: u64,
) -> impl Iterator<Item = Result<(usize, Header), Corrupt>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while bytes.get(at + KIND) == Some(&0) {
            at += UNIT;
        }
        if at + HEADER_BYTES > bytes.len() {
            return None;
        }
        let start = at;
        let address = VersionAddress::of(segment, start / UNIT);
        let header = match (start / UNIT) >> VERSION_UNIT_BITS {
            0 => Header::parse(bytes, start, address),
            _ => Err(Corrupt::at(
                start,
                "a version begins behind the last address",
            )),
        };
        // After an error there is no way on.
        at = header
            .as_ref()
            .map_or(bytes.len(), |h| start + h.encoded_bytes());
        Some(header.map(|header| (start, header)))
    })
}

/// The entries of a damaged segment that match their checksums, in order. Only bytes that came from
/// a file have such.
pub(super) fn whole_entries(
    bytes: &[u8],
    segment: u64,
) -> impl Iterator<Item = (usize, Header)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at + HEADER_BYTES <= bytes.len() && (at / UNIT) >> VERSION_UNIT_BITS == 0 {
            let (start, address) = (at, VersionAddress::of(segment, at / UNIT));
            let header = Header::parse(bytes, start, address).ok();
            let end = header.map_or(start, |header| start + header.encoded_bytes());
            if let Some(header) = header
                && verify_checksum(&bytes[start..end], address).is_ok()
            {
                at = end;
                return Some((start, header));
            }
            at += UNIT;
        }
        None
    })
}

fn checksum(entry: &[u8], address: VersionAddress) -> u32 {
    let crc = crc32c::crc32c(&address.0.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &entry[..CHECKSUM.start]);
    crc32c::crc32c_append(crc, &entry[CHECKSUM.end..])
}

/// Writes the checksum into an entry that goes to the spill file.
pub(super) fn seal_checksum(entry: &mut [u8], address: VersionAddress) {
    let crc = checksum(entry, address);
    entry[CHECKSUM].copy_from_slice(&crc.to_le_bytes());
}

/// Whether an entry that came from the spill file is what went there.
pub(super) fn verify_checksum(entry: &[u8], address: VersionAddress) -> Result<(), Corrupt> {
    if entry[CHECKSUM] == checksum(entry, address).to_le_bytes() {
        return Ok(());
    }
    Err(Corrupt::at(
        CHECKSUM.start,
        format!("checksum of version {address:#x?} does not match"),
    ))
}
