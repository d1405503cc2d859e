//! Sorting more rows than fit into memory: they are gathered, sorted in runs that go to a temporary
//! file, and merged once. What fills a tree with them inserts in key order, page by page, whatever
//! the order in which they came.
//!
//! # Promises
//!
//! 1. What was added comes out, each row once, by key, and those of one key in the order in which
//!    they were added. `settle` looks at each key. Tested by
//!    `rows_come_out_in_order_however_many_runs_there_are`.
//! 2. All sorters together hold about [`SORT_MEMORY`] at most, however many there are. Tested by
//!    `sorters_share_their_memory`.
//! 3. What the file holds is found as it was written, or the sort fails. Tested by
//!    `a_changed_byte_fails_the_sort`.

mod file;
mod merge;

#[cfg(test)]
mod tests;

pub(crate) use file::SortFile;
pub use merge::{Entry, Repeated, Sorted};

use crate::Result;
use crate::paranoid::paranoid;
use file::{CHUNK_BYTES, Runs};
use inkstone_format::codec::{compare, put_varint};
use merge::Held;
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of rows that all sorters of a database hold in memory, about.
pub(crate) const SORT_MEMORY: usize = 32 << 20;
/// A run is not smaller than this, however many sorters there are.
const RUN_BYTES_MIN: usize = CHUNK_BYTES;

/// Where a row lies in the bytes of those that are held.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The key's first bytes, as a number that compares as they do.
    prefix: u64,
    at: usize,
    key_len: u32,
    value_len: u32,
    /// How many are held that came before.
    number: u32,
}

impl Place {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at..self.at + self.key_len as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        let at = self.at + self.key_len as usize;
        &bytes[at..at + self.value_len as usize]
    }
}

/// The first eight bytes of a key, zeroes behind its end.
fn prefix_of(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = key.len().min(8);
    first[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(first)
}

/// Compares keys of which the prefixes are known.
fn compare_keys((prefix, key): (u64, &[u8]), (other_prefix, other): (u64, &[u8])) -> Ordering {
    prefix.cmp(&other_prefix).then_with(|| compare(key, other))
}

/// Rows on their way into a tree: added in any order, given back by key. Made by
/// [`Database::sorter`](crate::Database::sorter).
///
/// What it holds beyond its memory lies in a temporary file of the database.
#[derive(Debug)]
pub struct Sorter {
    file: Arc<SortFile>,
    /// What all sorters of the file hold, about.
    memory: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// Rows in the runs.
    in_runs: u64,
    runs: Runs,
}

impl Sorter {
    pub(crate) fn new(file: Arc<SortFile>) -> Self {
        Self::of_memory(file, SORT_MEMORY)
    }

    fn of_memory(file: Arc<SortFile>, memory: usize) -> Self {
        file.enter();
        Self {
            runs: Runs::new(file.clone()),
            file,
            memory,
            bytes: Vec::new(),
            places: Vec::new(),
            in_runs: 0,
        }
    }

    /// Adds a row. Several may have one key. After an error the sorter is of no more use.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.held_bytes() >= self.file.share(self.memory).max(RUN_BYTES_MIN) {
            self.write_run()?;
        }
        let len = |bytes: &[u8]| u32::try_from(bytes.len());
        let (Ok(key_len), Ok(value_len)) = (len(key), len(value)) else {
            return Err(crate::Error::ValueTooLong {
                length: key.len().max(value.len()) as u64,
                limit: u64::from(u32::MAX),
            });
        };
        paranoid!(
            self.places.len() < u32::MAX as usize,
            "{} rows are held, more than have a number",
            self.places.len()
        );
        self.places.push(Place {
            prefix: prefix_of(key),
            at: self.bytes.len(),
            key_len,
            value_len,
            number: self.places.len() as u32,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<Place>()
    }

    /// How many rows were added.
    pub fn len(&self) -> u64 {
        self.in_runs + self.places.len() as u64
    }

    /// Whether none was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No more rows: gives them back by key.
    pub fn sort(mut self) -> Result<Sorted> {
        paranoid!(
            self.runs.is_empty() == (self.in_runs == 0),
            "{} rows in {} runs",
            self.in_runs,
            self.runs.len()
        );
        if self.runs.is_empty() {
            self.sort_held();
            let held = Held {
                bytes: std::mem::take(&mut self.bytes),
                places: std::mem::take(&mut self.places),
            };
            return Ok(Sorted::of_memory(held));
        }
        if !self.places.is_empty() {
            self.write_run()?;
        }
        self.bytes = Vec::new();
        self.places = Vec::new();
        let runs = std::mem::replace(&mut self.runs, Runs::new(self.file.clone()));
        Sorted::of_runs(runs)
    }

    /// Those of one key stay in the order in which they came.
    fn sort_held(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|a, b| {
            compare_keys((a.prefix, a.key(bytes)), (b.prefix, b.key(bytes)))
                .then_with(|| a.number.cmp(&b.number))
        });
    }

    /// Writes what is held as a run.
    fn write_run(&mut self) -> Result<()> {
        paranoid!(!self.places.is_empty(), "a run of no rows");
        self.sort_held();
        let bytes = &self.bytes;
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + 64);
        self.runs.begin();
        for &place in &self.places {
            put_varint(&mut chunk, u64::from(place.key_len));
            put_varint(&mut chunk, u64::from(place.value_len));
            put_varint(&mut chunk, self.in_runs + u64::from(place.number));
            chunk.extend_from_slice(place.key(bytes));
            chunk.extend_from_slice(place.value(bytes));
            while chunk.len() >= CHUNK_BYTES {
                self.runs.write(&chunk[..CHUNK_BYTES])?;
                chunk.drain(..CHUNK_BYTES);
            }
        }
        if !chunk.is_empty() {
            self.runs.write(&chunk)?;
        }
        paranoid!(
            self.runs.chunks(self.runs.len() - 1) > 0,
            "{} rows were written in no chunk",
            self.places.len()
        );
        self.in_runs += self.places.len() as u64;
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }
}

impl Drop for Sorter {
    fn drop(&mut self) {
        self.file.leave();
    }
}
