//! Segment files: where the redo log lies on disk.
//!
//! Segment `n` is the file `log/%016x.log`. It holds the LSNs from `n * S` up to `(n + 1) * S`
//! after a header block; `S`, a power of two, is chosen when the database is created. So LSN `x`
//! stands at byte `4096 + x % S` of segment `x / S`, and LSNs and file offsets have the same
//! alignment.
//!
//! | bytes       | field of the header block                  |
//! |-------------|--------------------------------------------|
//! | 0..8        | magic `INKSTLOG`                           |
//! | 8..12       | format version, 1                          |
//! | 12..16      | reserved, zero                             |
//! | 16..24      | segment number `n`                         |
//! | 24..32      | bytes of log in a segment, `S`             |
//! | 32..40      | first LSN, `n * S`                         |
//! | 40..56      | the database's UUID                        |
//! | 56..4092    | reserved, zero                             |
//! | 4092..4096  | CRC-32C of bytes 0..4092                   |

use crate::header::{get_u32, get_u64, put_u32, put_u64};
use crate::{Corrupt, Lsn};

#[cfg(test)]
mod tests;

/// Bytes of the header block, and unit of log writes.
pub const LOG_BLOCK: usize = 4096;
/// The smallest segment, bytes of log.
pub const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// The largest segment, bytes of log.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// The format version that this program writes.
pub const SEGMENT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"INKSTLOG";
const CRC_AT: usize = LOG_BLOCK - 4;

/// Bytes of log in a segment for a database created with this `log_file_size`: a 32nd of it, as the
/// files may take no more, and the first and the last of them are in use in part.
pub fn segment_bytes_for(log_file_size: u64) -> u64 {
    let part = (log_file_size / 32).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    1 << part.ilog2()
}

/// Whether segments may hold this many bytes of log. Tests may use less than
/// [`SEGMENT_BYTES_MIN`].
pub fn segment_bytes_is_valid(bytes: u64) -> bool {
    bytes.is_power_of_two() && (LOG_BLOCK as u64..=SEGMENT_BYTES_MAX).contains(&bytes)
}

/// Name of a segment's file.
pub fn segment_file_name(number: u64) -> String {
    format!("{number:016x}.log")
}

/// The segment number of a file name; `None` for other files.
pub fn parse_segment_file_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if digits.len() != 16 || !digits.bytes().all(lower_hex) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// What the header block of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment's number.
    pub number: u64,
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// The database that the segment belongs to.
    pub uuid: [u8; 16],
}

impl SegmentHeader {
    /// First LSN of the segment.
    pub fn start_lsn(&self) -> Lsn {
        Lsn(self.number.saturating_mul(self.segment_bytes))
    }

    /// Writes the header block.
    ///
    /// # Panics
    /// If `block` is not [`LOG_BLOCK`] bytes long.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), LOG_BLOCK, "a header is one block");
        block.fill(0);
        block[..8].copy_from_slice(MAGIC);
        put_u32(block, 8, SEGMENT_VERSION);
        put_u64(block, 16, self.number);
        put_u64(block, 24, self.segment_bytes);
        put_u64(block, 32, self.start_lsn().0);
        block[40..56].copy_from_slice(&self.uuid);
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        put_u32(block, CRC_AT, crc);
    }

    /// Parses a header block.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        let corrupt = |at, detail: String| Err(Corrupt::at(at, detail));
        if block.len() < LOG_BLOCK {
            return corrupt(block.len(), "the segment header is cut off".to_owned());
        }
        let block = &block[..LOG_BLOCK];
        if &block[..8] != MAGIC {
            return corrupt(0, "this is no log segment (wrong magic)".to_owned());
        }
        let (stored, computed) = (get_u32(block, CRC_AT), crc32c::crc32c(&block[..CRC_AT]));
        if stored != computed {
            return corrupt(
                CRC_AT,
                format!("segment header: checksum {stored:08x}, computed {computed:08x}"),
            );
        }
        let version = get_u32(block, 8);
        if version != SEGMENT_VERSION {
            return corrupt(
                8,
                format!("log format version {version}, this program knows {SEGMENT_VERSION}"),
            );
        }
        let header = Self {
            number: get_u64(block, 16),
            segment_bytes: get_u64(block, 24),
            uuid: block[40..56].try_into().expect("sixteen bytes"),
        };
        if !segment_bytes_is_valid(header.segment_bytes) {
            return corrupt(
                24,
                format!("segment size {} is impossible", header.segment_bytes),
            );
        }
        let start = header.number.checked_mul(header.segment_bytes);
        if start != Some(get_u64(block, 32)) {
            return corrupt(
                32,
                "the first LSN does not fit the segment number".to_owned(),
            );
        }
        if block[12..16]
            .iter()
            .chain(&block[56..CRC_AT])
            .any(|&b| b != 0)
        {
            return corrupt(56, "reserved bytes are not zero".to_owned());
        }
        Ok(header)
    }

    /// Checks that a header is the one that is expected.
    pub fn check(&self, expected: &Self) -> Result<(), Corrupt> {
        if self.uuid != expected.uuid {
            return Err(Corrupt::at(
                40,
                "the segment belongs to another database (UUID)",
            ));
        }
        if self.segment_bytes != expected.segment_bytes {
            return Err(Corrupt::at(
                24,
                format!(
                    "segment size {} where {} is expected",
                    self.segment_bytes, expected.segment_bytes
                ),
            ));
        }
        if self.number != expected.number {
            return Err(Corrupt::at(
                16,
                format!(
                    "this is segment {:x}, but its name says {:x}",
                    self.number, expected.number
                ),
            ));
        }
        Ok(())
    }
}
