//! Addresses of old versions, and the room that a version takes in its segment.
//!
//! | bits of an address | meaning                                                            |
//! |--------------------|--------------------------------------------------------------------|
//! | 63                 | 1: the address is *logged*: it means the same after a restart       |
//! | 14..63             | number of the segment; numbers never repeat                         |
//! | 0..14              | where the version begins in its segment, in units of 16 bytes       |

use crate::VersionAddress;

/// Versions begin at multiples of this many bytes.
pub const VERSION_UNIT: usize = 16;
/// Bytes of a version before its key.
pub const VERSION_HEADER_BYTES: usize = 48;
/// Bits of an address below the segment's number.
pub const VERSION_UNIT_BITS: u32 = 14;

const LOGGED: u64 = 1 << 63;

/// Bytes that a version takes in a segment.
pub const fn version_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (VERSION_HEADER_BYTES + key_bytes + value_bytes).next_multiple_of(VERSION_UNIT)
}

impl VersionAddress {
    /// The address of a unit of a segment.
    pub const fn of(segment: u64, unit: usize) -> Self {
        Self(segment << VERSION_UNIT_BITS | unit as u64)
    }

    /// The segment's number; that of a logged address has its highest bit set.
    pub const fn segment(self) -> u64 {
        self.0 >> VERSION_UNIT_BITS
    }

    /// Where the version begins, in units.
    pub const fn unit(self) -> usize {
        (self.0 & ((1 << VERSION_UNIT_BITS) - 1)) as usize
    }

    /// Whether the address is in the log, and means the same after a restart.
    pub const fn is_logged(self) -> bool {
        self.0 & LOGGED != 0
    }

    /// The number of the segment of logged versions that has this number among all.
    pub const fn logged_segment(number: u64) -> u64 {
        number | LOGGED >> VERSION_UNIT_BITS
    }

    /// As a small number, for the log: 0 for no address. Only logged ones have one.
    pub(crate) const fn to_log(self) -> u64 {
        self.0 & !LOGGED
    }

    /// The inverse of [`VersionAddress::to_log`].
    pub(crate) const fn from_log(number: u64) -> Self {
        match number {
            0 => Self(0),
            number => Self(number | LOGGED),
        }
    }
}
