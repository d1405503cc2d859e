//! A buffer that unbuffered I/O accepts.

use inkstone_io::DIRECT_ALIGNMENT;
use std::ops::{Deref, DerefMut};

/// Zeroed bytes whose address is a multiple of [`DIRECT_ALIGNMENT`].
pub struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    /// `length` zeroes.
    pub fn zeroed(length: usize) -> Self {
        let bytes = vec![0; length + DIRECT_ALIGNMENT];
        // The vector never grows, so the address stays.
        let start = bytes.as_ptr().addr().wrapping_neg() % DIRECT_ALIGNMENT;
        Self {
            bytes,
            start,
            length,
        }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
