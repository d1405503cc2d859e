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

/// Rows that were taken from a sort, one behind the other.
#[derive(Debug, Default)]
struct Taken {
    bytes: Vec<u8>,
    /// Where the key and the value of each end.
    ends: Vec<(usize, usize)>,
    /// Which of them could not be inserted.
    refused: Option<usize>,
}

impl Taken {
    fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&(_, end)| end));
        let places = starts.zip(&self.ends);
        places.map(|(start, &(key, end))| (&self.bytes[start..key], &self.bytes[key..end]))
    }
}

/// A row whose key an earlier one has: how many were added before it, its key, its value.
pub type Repeated = (u64, Vec<u8>, Vec<u8>);

/// Rows in the order of their keys, as a [`Sorter`](super::Sorter) has sorted them.
#[derive(Debug)]
pub struct Sorted {
    source: Source,
    /// Key and number of the row that was given back last, where promises are executed.
    last: Option<(Vec<u8>, u64)>,
    taken: Taken,
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
            last: None,
            taken: Taken::default(),
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
            settle(&mut self.last, entry);
        }
        Ok(entry)
    }

    /// Takes the next rows, up to so many and about so many bytes; none behind the last one.
    pub(crate) fn take(&mut self, rows: usize, bytes: usize) -> Result<Vec<(&[u8], &[u8])>> {
        let mut taken = std::mem::take(&mut self.taken);
        taken.bytes.clear();
        taken.ends.clear();
        taken.refused = None;
        while taken.ends.len() < rows && taken.bytes.len() < bytes {
            let Some(entry) = self.next_entry()? else {
                break;
            };
            taken.bytes.extend_from_slice(entry.key);
            let key_end = taken.bytes.len();
            taken.bytes.extend_from_slice(entry.value);
            taken.ends.push((key_end, taken.bytes.len()));
        }
        paranoid!(
            taken.ends.len() <= rows && taken.ends.last().is_none_or(|e| e.1 == taken.bytes.len()),
            "{} rows of {} bytes were taken, of {rows} at most",
            taken.ends.len(),
            taken.bytes.len()
        );
        self.taken = taken;
        Ok(self.taken.rows().collect())
    }

    /// Of the rows that were taken last this one could not be inserted.
    pub(crate) fn refuse(&mut self, number: usize) {
        paranoid!(
            number <= self.taken.ends.len(),
            "row {number} of {} was refused",
            self.taken.ends.len()
        );
        self.taken.refused = (number < self.taken.ends.len()).then_some(number);
    }

    /// Key and value of the row that
    /// [`insert_sorted`](crate::Transaction::insert_sorted) could not insert, if its last call
    /// failed at one.
    pub fn refused(&self) -> Option<(&[u8], &[u8])> {
        self.taken.rows().nth(self.taken.refused?)
    }

    /// Goes back to the first row.
    pub fn rewind(&mut self) -> Result<()> {
        self.last = None;
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
fn settle(last: &mut Option<(Vec<u8>, u64)>, entry: Entry<'_>) {
    let Some((key, number)) = last else {
        *last = Some((entry.key.to_vec(), entry.number));
        return;
    };
    paranoid!(
        key.as_slice() <= entry.key,
        "a sorted row is less than the one before"
    );
    paranoid!(
        key.as_slice() < entry.key || *number < entry.number,
        "of two rows of one key number {} comes behind number {number}",
        entry.number
    );
    key.clear();
    key.extend_from_slice(entry.key);
    *number = entry.number;
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
        paranoid!(
            self.key.0 <= self.key.1 && self.key.1 <= self.end && self.end <= self.buffer.len(),
            "a row with its key at {:?}, to {} of {} bytes",
            self.key,
            self.end,
            self.buffer.len()
        );
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
            paranoid!(
                self.chunks <= runs.chunks(run) && self.end <= self.buffer.len(),
                "{} chunks of run {run} were read, of {}",
                self.chunks,
                runs.chunks(run)
            );
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
        paranoid!(
            self.cursors.len() == self.runs.len(),
            "{} runs are read of {}",
            self.cursors.len(),
            self.runs.len()
        );
        Ok(())
    }

    /// Rows of an earlier run were added before those of a later one.
    fn is_less(&self, run: usize, other: usize) -> bool {
        paranoid!(run != other, "run {run} is twice among those merged");
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
        let (top, below) = (self.heap.first(), self.heap.iter().skip(1).take(2));
        paranoid!(
            top.is_none_or(|&top| below.copied().all(|run| !self.is_less(run, top))),
            "run {top:?} is at the top, and another one has a lesser row"
        );
        self.given = !self.heap.is_empty();
        Ok(self.heap.first().map(|&run| self.cursors[run].entry()))
    }
}
