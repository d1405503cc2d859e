//! The bytes of a simulated file: a sparse map of shared 4 KiB blocks.
//!
//! # Promises
//!
//! 1. Bytes beyond `length` are zero, so that a file that grows again shows zeroes. Tested by
//!    `lengths_change`, `lengths_survive_in_order`.
//! 2. A block that is present takes disk space, also when it holds zeroes. Tested by
//!    `a_full_disk_refuses_and_changes_nothing`.
//! 3. A block is unwritten if its space was taken and nothing was written to it since. It is
//!    present. Tested by `a_disk_without_a_cache_keeps_replaced_bytes_and_promises_no_more`.
//!
//! Cloning copies the map, not the blocks; a block is copied when one of its owners writes to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

pub(super) const BLOCK_BYTES: usize = 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;

type Block = [u8; BLOCK_BYTES];
const FULL_BYTE: u8 = 0xff;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    blocks: BTreeMap<u64, Arc<Block>>,
    length: u64,
    unwritten: BTreeSet<u64>,
}

/// A part of one block that a byte range covers.
struct Piece {
    block: u64,
    in_block: std::ops::Range<usize>,
    in_buffer: std::ops::Range<usize>,
}

fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = offset + done as u64;
        let start = (position % BLOCK) as usize;
        let bytes = (BLOCK_BYTES - start).min(length - done);
        let piece = Piece {
            block: position / BLOCK,
            in_block: start..start + bytes,
            in_buffer: done..done + bytes,
        };
        done += bytes;
        Some(piece)
    })
}

/// One block for all that are written with nothing but [`FULL_BYTE`]: maps that say that terabytes
/// are in use fit in memory.
fn full_block() -> Arc<Block> {
    static FULL: OnceLock<Arc<Block>> = OnceLock::new();
    let full = FULL.get_or_init(|| Arc::new([FULL_BYTE; BLOCK_BYTES]));
    Arc::clone(full)
}

/// The blocks that a byte range touches.
fn block_range(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / BLOCK..(offset + length).div_ceil(BLOCK)
}

impl Content {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Number of blocks that take space.
    pub(super) fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Number of blocks of a byte range that do not take space yet.
    pub(super) fn missing_blocks(&self, offset: u64, length: u64) -> u64 {
        let range = block_range(offset, length);
        if length == 0 {
            return 0;
        }
        (range.end - range.start) - self.blocks.range(range).count() as u64
    }

    /// Whether all blocks of a byte range have been written, so that writing them again changes
    /// nothing that a file system has to note.
    pub(super) fn is_written(&self, offset: u64, length: u64) -> bool {
        let range = block_range(offset, length);
        self.missing_blocks(offset, length) == 0 && self.unwritten.range(range).next().is_none()
    }

    /// Bytes from `offset` on; zeroes where nothing was written.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) {
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.in_buffer];
            match self.blocks.get(&piece.block) {
                Some(block) => target.copy_from_slice(&block[piece.in_block]),
                None => target.fill(0),
            }
        }
    }

    /// Bytes from `offset` on, of the blocks that are present; others stay as they are.
    pub(super) fn read_present(&self, buffer: &mut [u8], offset: u64) {
        for piece in pieces(offset, buffer.len()) {
            if let Some(block) = self.blocks.get(&piece.block) {
                buffer[piece.in_buffer].copy_from_slice(&block[piece.in_block]);
            }
        }
    }

    /// Writes, and extends the length when needed.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.in_buffer];
            self.unwritten.remove(&piece.block);
            let block = self
                .blocks
                .entry(piece.block)
                .or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            match <&Block>::try_from(source) {
                Ok(whole) if *whole == [FULL_BYTE; BLOCK_BYTES] => *block = full_block(),
                Ok(whole) if Arc::get_mut(block).is_none() => *block = Arc::new(*whole),
                _ => Arc::make_mut(block)[piece.in_block].copy_from_slice(source),
            }
        }
        if !bytes.is_empty() {
            self.length = self.length.max(offset + bytes.len() as u64);
        }
    }

    /// Takes space for a byte range and extends the length over it.
    pub(super) fn allocate(&mut self, offset: u64, length: u64) {
        let zeroes = Arc::new([0; BLOCK_BYTES]);
        for block in block_range(offset, length) {
            self.blocks.entry(block).or_insert_with(|| {
                self.unwritten.insert(block);
                Arc::clone(&zeroes)
            });
        }
        self.length = self.length.max(offset + length);
    }

    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.blocks.split_off(&length.div_ceil(BLOCK));
            self.unwritten.split_off(&length.div_ceil(BLOCK));
            let tail = (length % BLOCK) as usize;
            if let Some(block) = self.blocks.get_mut(&(length / BLOCK)) {
                Arc::make_mut(block)[tail..].fill(0);
            }
        }
        self.length = length;
    }

    /// Makes the blocks of a byte range those of `other`.
    pub(super) fn share(&mut self, other: &Self, offset: u64, length: u64) {
        for (number, block) in other.blocks.range(block_range(offset, length)) {
            self.blocks.insert(*number, Arc::clone(block));
            if other.unwritten.contains(number) {
                self.unwritten.insert(*number)
            } else {
                self.unwritten.remove(number)
            };
        }
        self.length = other.length;
    }
}
