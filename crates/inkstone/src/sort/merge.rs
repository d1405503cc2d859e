//! Giving sorted rows back: from memory, or merged from runs.

use super::file::Runs;
use super::{Place, compare_keys, prefix_of};
use crate::Result;
use crate::paranoid::{ON, paranoid};
use inkstone_format::codec::Reader;
use std::cmp::Ordering;

/// A row of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// How many rows were added before.
    pub number: u64,
}

/// A row whose key an earlier one has: how many were added before it, its key, its value.
pub type Repeated = (u64, Vec<u8>, Vec<u8>);

/// Rows in the order of their keys, as a [`Sorter`](super::Sorter) has sorted them.
#[derive(Debug)]
pub struct Sorted {
    source: Source,
    /// The key of the row that was given back last, where promises are executed.
    last: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    Memory(Held, usize),
    Runs(Merge),
}

/// Sorted rows that fitted into memory.
#[derive(Debug)]
pub(super) struct Held {
    pub bytes: Vec<u8>,
    pub places: Vec<Place>,
}

impl Sorted {
    pub(super) fn of_memory(held: Held) -> Self {
        Self::of(Source::Memory(held, 0))
    }

    pub(super) fn of_runs(runs: Runs) -> Result<Self> {
        Merge::new(runs).map(|merge| Self::of(Source::Runs(merge)))
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            last: Vec::new(),
        }
    }

    /// The next row; `None` behind the last one.
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>> {
        let entry = match &mut self.source {
            Source::Memory(held, next) => {
                let place = held.places.get(*next);
                *next += 1;
                place.map(|place| Entry {
                    key: place.key(&held.bytes),
                    value: place.value(&held.bytes),
                    number: place.number.into(),
                })
            }
            Source::Runs(merge) => merge.next()?,
        };
        if ON && let Some(entry) = entry {
            settle(&mut self.last, entry.key);
        }
        Ok(entry)
    }

    /// Goes back to the first row.
    pub fn rewind(&mut self) -> Result<()> {
        self.last.clear();
        match &mut self.source {
            Source::Memory(_, next) => {
                *next = 0;
                Ok(())
            }
            Source::Runs(merge) => merge.rewind(),
        }
    }

    /// The first row, in the order in which they were added, that had the key of an earlier one.
    /// Looks at all rows, and goes back to the first.
    pub fn first_repeated(&mut self) -> Result<Option<Repeated>> {
        self.rewind()?;
        let (mut before, mut known) = (Vec::new(), false);
        let mut first: Option<Repeated> = None;
        while let Some(entry) = self.next_entry()? {
            let repeats = known && before == entry.key;
            if repeats && first.as_ref().is_none_or(|(n, ..)| entry.number < *n) {
                first = Some((entry.number, entry.key.to_vec(), entry.value.to_vec()));
            }
            known = true;
            before.clear();
            before.extend_from_slice(entry.key);
        }
        self.rewind()?;
        Ok(first)
    }
}

/// Promise 1 of `sort`.
fn settle(last: &mut Vec<u8>, key: &[u8]) {
    paranoid!(
        last.as_slice() <= key,
        "a sorted row is less than the one before"
    );
    last.clear();
    last.extend_from_slice(key);
}

/// Where a run is read.
#[derive(Debug, Default)]
struct Cursor {
    /// Chunks that were read.
    chunks: usize,
    buffer: Vec<u8>,
    /// Where the present row ends.
    end: usize,
    prefix: u64,
    key: (usize, usize),
    number: u64,
}

impl Cursor {
    fn key<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        &buffer[self.key.0..self.key.1]
    }

    fn entry(&self) -> Entry<'_> {
        Entry {
            key: self.key(&self.buffer),
            value: &self.buffer[self.key.1..self.end],
            number: self.number,
        }
    }

    /// Goes to the next row of a run; false at its end.
    fn advance(&mut self, runs: &Runs, run: usize) -> Result<bool> {
        loop {
            if let Some((key, end, number)) = self.parse() {
                (self.key, self.end, self.number) = (key, end, number);
                self.prefix = prefix_of(&self.buffer[key.0..key.1]);
                return Ok(true);
            }
            self.buffer.drain(..self.end);
            (self.end, self.key) = (0, (0, 0));
            if self.chunks == runs.chunks(run) {
                paranoid!(self.buffer.is_empty(), "a run ends within a row");
                return Ok(false);
            }
            runs.read(run, self.chunks, &mut self.buffer)?;
            self.chunks += 1;
        }
    }

    /// The row behind the present one, if all of it was read.
    fn parse(&self) -> Option<((usize, usize), usize, u64)> {
        let mut reader = Reader::new(&self.buffer[self.end..]);
        let key_len = reader.varint().ok()? as usize;
        let value_len = reader.varint().ok()? as usize;
        let number = reader.varint().ok()?;
        let at = self.buffer.len() - reader.rest().len();
        let end = at + key_len + value_len;
        (end <= self.buffer.len()).then_some(((at, at + key_len), end, number))
    }
}

/// Runs that are merged: a heap of those that are not at their end, the one with the least row at
/// the top.
#[derive(Debug)]
struct Merge {
    runs: Runs,
    cursors: Vec<Cursor>,
    heap: Vec<usize>,
    /// The row at the top was given out.
    given: bool,
}

impl Merge {
    fn new(runs: Runs) -> Result<Self> {
        let mut merge = Self {
            runs,
            cursors: Vec::new(),
            heap: Vec::new(),
            given: false,
        };
        merge.rewind()?;
        Ok(merge)
    }

    fn rewind(&mut self) -> Result<()> {
        self.cursors.clear();
        self.heap.clear();
        self.given = false;
        for run in 0..self.runs.len() {
            let mut cursor = Cursor::default();
            if cursor.advance(&self.runs, run)? {
                self.heap.push(run);
            }
            self.cursors.push(cursor);
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        Ok(())
    }

    /// Rows of an earlier run were added before those of a later one.
    fn is_less(&self, run: usize, other: usize) -> bool {
        let (a, b) = (&self.cursors[run], &self.cursors[other]);
        let keys = compare_keys((a.prefix, a.key(&a.buffer)), (b.prefix, b.key(&b.buffer)));
        keys.then_with(|| run.cmp(&other)) == Ordering::Less
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_less(self.heap[child], self.heap[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn next(&mut self) -> Result<Option<Entry<'_>>> {
        if self.given {
            let run = self.heap[0];
            if !self.cursors[run].advance(&self.runs, run)? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        self.given = !self.heap.is_empty();
        Ok(self.heap.first().map(|&run| self.cursors[run].entry()))
    }
}
