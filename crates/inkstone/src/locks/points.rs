//! The rows that one transaction has locked one by one in one tree.
//!
//! Sorted keys, packed into blocks: a transaction that locks millions of scattered rows must not
//! need more memory for its locks than for its changes. A row costs its key and three bytes, and
//! the block's part that is free; rows that are locked in order fill their blocks.

use super::LockMode;
use super::intervals::Interval;
use crate::paranoid::{Check, paranoid};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A block of this many bytes is split, or followed by another. Keys may be longer.
const BLOCK_BYTES: usize = 1024;

/// How a row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub mode: LockMode,
    /// What stays when the last request for it gives it back: earlier ones have it, too.
    pub kept: Option<LockMode>,
}

impl Point {
    /// What the set has of it when the last request for it gives it back.
    pub fn given_back(self) -> Option<Self> {
        let mode = self.kept?;
        Some(Self { mode, ..self })
    }

    fn encode(self) -> u8 {
        let kept = match self.kept {
            None => 0,
            Some(LockMode::Shared) => 2,
            Some(LockMode::Exclusive) => 4,
        };
        u8::from(self.mode == LockMode::Exclusive) | kept
    }

    fn decode(byte: u8) -> Self {
        let mode = match byte & 1 {
            0 => LockMode::Shared,
            _ => LockMode::Exclusive,
        };
        let kept = match byte >> 1 {
            0 => None,
            1 => Some(LockMode::Shared),
            _ => Some(LockMode::Exclusive),
        };
        Self { mode, kept }
    }
}

/// Entries in key order: length of the key (2 bytes), point (1 byte), key.
#[derive(Debug, Default)]
struct Block(Vec<u8>);

/// Where an entry is in its block.
struct At {
    begin: usize,
    end: usize,
}

impl Block {
    fn entries(&self) -> impl Iterator<Item = (At, Point, &[u8])> {
        let mut begin = 0;
        std::iter::from_fn(move || {
            let head = self.0.get(begin..begin + 3)?;
            let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let end = begin + 3 + len;
            let found = (
                At { begin, end },
                Point::decode(head[2]),
                &self.0[begin + 3..end],
            );
            begin = end;
            Some(found)
        })
    }

    /// The entry of a key, or the place where it belongs.
    fn search(&self, key: &[u8]) -> Result<(At, Point), usize> {
        for (at, point, found) in self.entries() {
            match found.cmp(key) {
                Ordering::Less => {}
                Ordering::Equal => return Ok((at, point)),
                Ordering::Greater => return Err(at.begin),
            }
        }
        Err(self.0.len())
    }

    fn insert(&mut self, at: usize, key: &[u8], point: Point) {
        paranoid!(
            key.len() <= usize::from(u16::MAX) && at <= self.0.len(),
            "a key of {} bytes at byte {at} of {}",
            key.len(),
            self.0.len()
        );
        let len = (key.len() as u16).to_le_bytes();
        let head = [len[0], len[1], point.encode()];
        let entry = head.iter().chain(key).copied();
        let need = 3 + key.len();
        if self.0.capacity() - self.0.len() < need {
            self.0.reserve_exact(need.max(64));
        }
        self.0.splice(at..at, entry);
    }

    /// Its second half, and the key with which that begins.
    fn split(&mut self) -> Option<(Box<[u8]>, Block)> {
        let half = self.0.len() / 2;
        let middle = self.entries().skip(1).find(|(at, ..)| at.begin >= half);
        let (begin, key) = middle.map(|(at, _, key)| (at.begin, Box::from(key)))?;
        paranoid!(
            begin > 0 && begin < self.0.len(),
            "a block of {} bytes is split at {begin}",
            self.0.len()
        );
        Some((key, Block(self.0.split_off(begin))))
    }
}

fn upto(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// Rows of a set between which it has no others.
#[derive(Debug)]
pub(crate) struct Neighbours {
    bound: Box<[u8]>,
    /// The strongest of theirs.
    pub mode: LockMode,
    /// From the first to the last.
    pub interval: Interval,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PointSet {
    /// By a bound of their keys: the first block's is empty.
    blocks: BTreeMap<Box<[u8]>, Block>,
    len: usize,
    bytes: usize,
}

/// Rows of a set that a check looks at.
const CHECKED: usize = 8;

impl Check for PointSet {
    fn check(&self) {
        let mut before: Option<&[u8]> = None;
        let mut found = 0;
        for (key, _) in self.iter().take(CHECKED) {
            paranoid!(
                before.is_none_or(|before| before < key),
                "row {key:x?} is locked behind {before:x?}"
            );
            before = Some(key);
            found += 1;
        }
        paranoid!(
            found == self.len.min(CHECKED),
            "{found} of {} locked rows were found",
            self.len
        );
        let first = self.blocks.first_key_value();
        paranoid!(
            first.is_none_or(|(bound, _)| bound.is_empty()),
            "no block has the rows below {first:x?}"
        );
        let mut bytes = 0;
        for (bound, block) in self.blocks.iter().take(CHECKED) {
            paranoid!(
                bound.is_empty()
                    || block
                        .entries()
                        .next()
                        .is_some_and(|(_, _, key)| key >= bound),
                "the block from row {bound:x?} on begins before it, or is empty"
            );
            bytes += bytes_of_block(bound) + block.0.capacity();
        }
        paranoid!(
            self.blocks.len() > CHECKED || bytes == self.bytes,
            "{} blocks of rows take {bytes} bytes, not {}",
            self.blocks.len(),
            self.bytes
        );
    }
}

/// What a block takes beside its entries.
fn bytes_of_block(bound: &[u8]) -> usize {
    bound.len() + size_of::<(Box<[u8]>, Block)>()
}

impl PointSet {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Point)> {
        let blocks = self.blocks.values();
        blocks.flat_map(|block| block.entries().map(|(_, point, key)| (key, point)))
    }

    /// The rows behind a key, or all.
    pub fn iter_after(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&[u8], Point)> {
        let first = self
            .blocks
            .range::<[u8], _>(upto(after.unwrap_or_default()))
            .next_back();
        let from = first.map_or(&[][..], |(bound, _)| bound);
        let blocks = self
            .blocks
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let entries = blocks.flat_map(|(_, block)| block.entries());
        let behind =
            entries.skip_while(move |(_, _, key)| after.is_some_and(|after| *key <= after));
        behind.map(|(_, point, key)| (key, point))
    }

    /// Memory, in bytes, but for what the allocator adds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub fn counted_bytes(&self) -> usize {
        let blocks = self.blocks.iter();
        blocks
            .map(|(bound, block)| bytes_of_block(bound) + block.0.capacity())
            .sum()
    }

    /// Rows that lie next to each other: as many as a block has, the first ones of those from
    /// `from` on. With them the bound from which the next ones lie.
    pub fn neighbours(&self, from: &[u8]) -> Option<(Neighbours, Option<Box<[u8]>>)> {
        let mut blocks = self
            .blocks
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        // The first block may be empty.
        let (bound, block) = blocks.find(|(_, block)| !block.0.is_empty())?;
        let (mut mode, mut first, mut last) = (LockMode::Shared, None, &[][..]);
        for (_, point, key) in block.entries() {
            mode = mode.max(point.mode);
            first.get_or_insert(key);
            last = key;
        }
        let interval = Interval::of_keys(first?, last);
        let next = blocks.next().map(|(bound, _)| bound.clone());
        let bound = bound.clone();
        Some((
            Neighbours {
                bound,
                mode,
                interval,
            },
            next,
        ))
    }

    /// Takes neighbours out; gives their keys.
    pub fn take(&mut self, neighbours: &Neighbours, mut taken: impl FnMut(&[u8])) {
        if let Some(block) = self.blocks.remove(&neighbours.bound) {
            self.bytes -= bytes_of_block(&neighbours.bound) + block.0.capacity();
            for (_, _, key) in block.entries() {
                self.len -= 1;
                taken(key);
            }
        }
        // Keys below the second block belong to the first.
        if let Some((bound, _)) = self.blocks.first_key_value()
            && !bound.is_empty()
        {
            self.add_block(Box::default(), Block::default());
        }
    }

    fn add_block(&mut self, bound: Box<[u8]>, block: Block) {
        self.bytes += bytes_of_block(&bound) + block.0.capacity();
        let other = self.blocks.insert(bound, block);
        paranoid!(
            other.is_none(),
            "two blocks of rows have one bound: {other:x?}"
        );
    }

    fn block(&self, key: &[u8]) -> Option<&Block> {
        let found = self.blocks.range::<[u8], _>(upto(key)).next_back();
        found.map(|(_, block)| block)
    }

    pub fn get(&self, key: &[u8]) -> Option<Point> {
        let found = self.block(key)?.search(key).ok();
        found.map(|(_, point)| point)
    }

    /// Whether a row in the interval is locked so that `mode` conflicts.
    pub fn conflicts_in(&self, interval: &Interval, mode: LockMode) -> bool {
        paranoid!(!interval.is_before(&interval.low), "rows in {interval:x?}");
        let first = self
            .blocks
            .range::<[u8], _>(upto(&interval.low))
            .next_back();
        let from = first.map_or(&[][..], |(key, _)| key);
        let blocks = self
            .blocks
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let entries = blocks.flat_map(|(_, block)| block.entries());
        entries
            .skip_while(|(_, _, key)| interval.is_behind(key))
            .take_while(|(_, _, key)| !interval.is_before(key))
            .any(|(_, point, _)| mode.conflicts(point.mode))
    }

    /// Sets how a row is locked. True: it was not.
    pub fn set(&mut self, key: &[u8], point: Point) -> bool {
        if self.blocks.is_empty() {
            self.add_block(Box::default(), Block::default());
        }
        let is_last = self
            .blocks
            .last_key_value()
            .is_some_and(|(bound, _)| **bound <= *key);
        let found = self.blocks.range_mut::<[u8], _>(upto(key)).next_back();
        let Some((_, block)) = found else {
            return false;
        };
        match block.search(key) {
            Ok((at, _)) => {
                block.0[at.begin + 2] = point.encode();
                return false;
            }
            Err(at) if is_last && at == block.0.len() && at + key.len() + 3 > BLOCK_BYTES => {
                let mut next = Block::default();
                next.insert(0, key, point);
                self.add_block(key.into(), next);
            }
            Err(at) => {
                self.bytes -= block.0.capacity();
                block.insert(at, key, point);
                let second = if block.0.len() > BLOCK_BYTES {
                    block.split()
                } else {
                    None
                };
                self.bytes += block.0.capacity();
                if let Some((bound, second)) = second {
                    self.add_block(bound, second);
                }
            }
        }
        self.len += 1;
        paranoid!(
            self.get(key) == Some(point),
            "row {key:x?} is locked and not found"
        );
        true
    }

    /// False: the row was not locked.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let found = self.blocks.range_mut::<[u8], _>(upto(key)).next_back();
        let Some((bound, block)) = found else {
            return false;
        };
        let Ok((at, _)) = block.search(key) else {
            return false;
        };
        block.0.drain(at.begin..at.end);
        if block.0.is_empty() && !bound.is_empty() {
            let bound = bound.clone();
            self.bytes -= bytes_of_block(&bound) + block.0.capacity();
            self.blocks.remove(&bound);
        }
        self.len -= 1;
        paranoid!(self.get(key).is_none(), "row {key:x?} is still locked");
        true
    }
}
