//! Frames on their way from the log to the scan: read and verified by one thread at a time, taken
//! apart by several, handed out in order.
//!
//! # Promises
//! 1. What is handed out does not depend on the number of threads, nor on what they do when:
//!    frames in the order of the log, then the end of the log or the error of its reader. Tested
//!    by `threads_give_what_one_gives`.
//! 2. A transaction that is said to lie within a batch has its first record and its end there, and
//!    changes of rows alone between them. Tested by `threads_give_what_one_gives`. Tested by the
//!    simulator (`end-not-awaited`).
//!
//! Any thread does what is next: takes a batch apart, or reads one. A thread that could not be
//! started only makes it slower.
//!
//! Memory is bounded: so many batches are between the reader and the caller, and a batch whose
//! records take more room than they took in the log is cut: its rest is taken apart as a batch of
//! its own, when those before it were handed out.

use super::FrameSource;
use super::index::Place;
use crate::mutants::{self, Mutant};
use crate::paranoid::{self, paranoid};
use crate::sync::{Condvar, HashMap, Mutex, thread};
use crate::{Result, invariant};
use inkstone_format::record::{DecodeError, SkimError, Skimmed, Skimmer};
use inkstone_format::{IdHash, TrxId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of frames of a batch, at most, but for the last frame.
const READ_MAX: usize = 1 << 20;
/// Bytes that are few.
const LITTLE: usize = 4 << 10;
/// Bytes of a frame beside its payload, and of a record beside its bytes.
const FRAME_BYTES: usize = size_of::<BatchFrame>();
const RECORD_BYTES: usize = size_of::<Skimmed>() + size_of::<u32>();

/// How much memory batches take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Batches between the reader and the caller, and as many that are or were taken apart.
    batches: u64,
    /// Bytes of a batch's frames, and of its records, but for the last frame.
    read: usize,
    kept: usize,
}

impl Bounds {
    fn new(threads: usize, memory: usize) -> Self {
        let batches = 2 * threads + 2;
        let share = memory / batches;
        // With assertions small, so that tests have many.
        let (read, kept) = if paranoid::ON {
            (LITTLE, LITTLE)
        } else {
            ((share / 4).clamp(LITTLE, READ_MAX), share / 2)
        };
        Self {
            batches: batches as u64,
            read,
            kept: kept.max(LITTLE),
        }
    }
}

/// What came of taking a frame apart.
#[derive(Debug)]
pub enum Outcome {
    /// Its records.
    Records(Range<u32>),
    /// It needs what came before the batch.
    Earlier,
    /// It cannot be decoded.
    Failed(Box<DecodeError>),
}

/// A frame of a batch.
#[derive(Debug)]
pub struct BatchFrame {
    pub place: Place,
    pub outcome: Outcome,
    payload: Range<u32>,
}

/// Frames that follow one another.
#[derive(Debug, Default)]
pub struct Batch {
    place: Key,
    /// It was cut: a batch with its rest follows.
    is_cut: bool,
    payloads: Vec<u8>,
    frames: Vec<BatchFrame>,
    /// Frames that were handed out.
    taken: usize,
    bytes: Vec<u8>,
    records: Vec<Skimmed>,
    /// For each record the number of its transaction in `ended`, or `NONE`.
    transactions: Vec<u32>,
    /// For each transaction that begins in the batch whether it ends there.
    ended: Vec<bool>,
    /// The transaction of a slot that has begun and not ended: its number, and its id.
    begun: HashMap<u32, (u32, TrxId), IdHash>,
    /// What is known of transactions at the batch's end.
    pub contexts: Skimmer,
}

const NONE: u32 = u32::MAX;

/// Number of a batch as it was read, and of the piece of it: batches are handed out in this order.
type Key = (u64, u32);

impl Batch {
    /// The number of the next frame; `None` when all were taken.
    pub fn next(&mut self) -> Option<usize> {
        let next = self.taken;
        self.taken += 1;
        (next < self.frames.len()).then_some(next)
    }

    pub fn frame(&self, number: usize) -> &BatchFrame {
        &self.frames[number]
    }

    pub fn payload(&self, frame: &BatchFrame) -> &[u8] {
        &self.payloads[frame.payload.start as usize..frame.payload.end as usize]
    }

    /// A record, its bytes, and whether its transaction lies within the batch.
    pub fn record(&self, number: u32) -> (Skimmed, &[u8], bool) {
        let record = self.records[number as usize];
        paranoid!(record.from < record.to, "a record of no bytes");
        let bytes = &self.bytes[record.from as usize..record.to as usize];
        let transaction = self.transactions[number as usize];
        let within = transaction != NONE && self.ended[transaction as usize];
        (record, bytes, within)
    }

    fn clear(&mut self) {
        self.payloads.clear();
        self.frames.clear();
        self.bytes.clear();
        self.records.clear();
        self.transactions.clear();
        self.ended.clear();
        self.begun.clear();
        self.taken = 0;
        self.is_cut = false;
    }

    /// Bytes of its frames, and of their records.
    pub fn sizes(&self) -> (usize, usize) {
        let read = self.payloads.len() + self.frames.len() * FRAME_BYTES;
        (read, self.bytes.len() + self.records.len() * RECORD_BYTES)
    }

    /// Whether it may be used again: one that had a large frame is not kept.
    fn is_small(&self, bounds: Bounds) -> bool {
        let (read, kept) = (self.payloads.capacity(), self.bytes.capacity());
        read <= 2 * bounds.read && kept <= 2 * bounds.kept
    }

    /// Reads frames until there are enough: whether the log goes on.
    fn read(&mut self, log: &mut dyn FrameSource, bytes: usize) -> Result<bool> {
        while self.sizes().0 < bytes {
            let Some(frame) = log.next()? else {
                return Ok(false);
            };
            paranoid!(frame.start < frame.end, "a frame of no bytes");
            let from = self.payloads.len() as u32;
            self.payloads.extend_from_slice(frame.payload);
            self.frames.push(BatchFrame {
                place: Place {
                    start: frame.start,
                    end: frame.end,
                },
                outcome: Outcome::Earlier,
                payload: from..self.payloads.len() as u32,
            });
        }
        Ok(true)
    }

    /// Takes its frames apart, until their records have so many bytes. The rest is returned.
    fn skim(&mut self, bytes_max: usize) -> Option<Self> {
        for number in 0..self.frames.len() {
            if number > 0 && self.sizes().1 > bytes_max {
                return Some(self.cut(number));
            }
            let payload = self.frames[number].payload.clone();
            let payload = &self.payloads[payload.start as usize..payload.end as usize];
            let (bytes, first) = (self.bytes.len(), self.records.len());
            let skimmed = self
                .contexts
                .skim(payload, &mut self.bytes, &mut self.records);
            let outcome = match skimmed {
                Ok(()) => {
                    (first..self.records.len()).for_each(|record| self.follow(record));
                    Outcome::Records(first as u32..self.records.len() as u32)
                }
                Err(error) => {
                    self.bytes.truncate(bytes);
                    self.records.truncate(first);
                    match error {
                        // It has records of this transaction alone, or is refused later.
                        SkimError::Earlier { trx_slot } => {
                            self.begun.remove(&trx_slot);
                            Outcome::Earlier
                        }
                        // Whose records it has is not known.
                        SkimError::Decode(error) => {
                            self.begun.clear();
                            Outcome::Failed(Box::new(error))
                        }
                    }
                }
            };
            self.frames[number].outcome = outcome;
            paranoid!(
                self.transactions.len() == self.records.len(),
                "{} of {} records were followed",
                self.transactions.len(),
                self.records.len()
            );
        }
        None
    }

    /// Takes off the frames from a number on.
    fn cut(&mut self, number: usize) -> Self {
        let from = self.frames[number].payload.start;
        paranoid!(number > 0, "a batch is cut before its first frame");
        let mut rest = Self {
            place: (self.place.0, self.place.1 + 1),
            payloads: self.payloads.split_off(from as usize),
            frames: self.frames.split_off(number),
            ..Self::default()
        };
        for frame in &mut rest.frames {
            frame.payload = frame.payload.start - from..frame.payload.end - from;
        }
        self.is_cut = true;
        rest
    }

    /// Finds out which transactions lie within the batch.
    fn follow(&mut self, record: usize) {
        paranoid!(
            self.transactions.len() == record,
            "record {record} is followed behind {} others",
            self.transactions.len()
        );
        let record = self.records[record];
        let number = match record.slot {
            Some(slot) if record.is_plain_row() => match (self.begun.get(&slot), record.first) {
                (Some(&(number, _)), None) => number,
                (Some(&(number, id)), Some(first)) if id == first => number,
                (Some(_), Some(_)) => {
                    // It is an error, and both have to be noted for it.
                    self.begun.remove(&slot);
                    NONE
                }
                (None, None) => NONE,
                (None, Some(id)) => {
                    let number = self.ended.len() as u32;
                    self.ended.push(mutants::on(Mutant::EndNotAwaited));
                    self.begun.insert(slot, (number, id));
                    number
                }
            },
            // Whatever else it is, the table of transactions has to know all.
            Some(slot) => match self.begun.remove(&slot) {
                Some((number, _)) if record.ends() => {
                    self.ended[number as usize] = true;
                    number
                }
                _ => NONE,
            },
            None => NONE,
        };
        self.transactions.push(number);
    }
}

#[derive(Default)]
struct State {
    /// Read, and not taken apart.
    read: BTreeMap<Key, Batch>,
    /// How many are being taken apart.
    working: u64,
    /// Taken apart, and not handed out.
    done: BTreeMap<Key, Batch>,
    /// To be used again.
    spare: Vec<Batch>,
    /// Number of the next batch that is read.
    next: u64,
    /// The batch that is handed out next.
    due: Key,
    /// A thread is reading.
    reading: bool,
    /// How reading ended.
    end: Option<Result<()>>,
    stop: bool,
}

/// See the module.
pub struct Pipeline {
    state: Mutex<State>,
    changed: Condvar,
    threads: usize,
    bounds: Bounds,
}

/// What a thread may do.
enum Job {
    Skim(Batch),
    Read(Batch),
    Wait,
    /// Nothing any more.
    Leave,
}

impl Pipeline {
    /// For so many threads, with the calling one, and so many bytes of memory, about.
    pub fn new(threads: usize, memory: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            threads,
            bounds: Bounds::new(threads, memory),
        }
    }

    /// Lets `f` take batches of the log. What was read beyond its last one waits for the next call,
    /// which must be with the same log.
    pub fn run<T>(&self, log: &mut dyn FrameSource, f: impl FnOnce(&Feed<'_, '_>) -> T) -> T {
        self.state.lock().stop = false;
        let feed = Feed {
            pipeline: self,
            log: Mutex::new(log),
        };
        // Most logs are short.
        let job = self.job(&mut self.state.lock());
        feed.work(job);
        thread::scope(|scope| {
            let _stop = Stop(self);
            if self.threads > 1 && self.state.lock().end.is_none() {
                // One more than there are to be busy: one waits for the disk.
                for number in 1..=self.threads {
                    let helper = || {
                        let _stop = StopAtPanic(self);
                        feed.help();
                    };
                    // With fewer threads it only takes longer.
                    let _ = scope.spawn(format!("ink-scan-{number}"), helper);
                }
            }
            f(&feed)
        })
    }

    fn job(&self, state: &mut State) -> Job {
        if state.stop {
            return Job::Leave;
        }
        paranoid!(
            state.due.0 <= state.next,
            "batch {} is due, and {} were read",
            state.due.0,
            state.next
        );
        // The one that is due always goes on: the others wait until it was handed out.
        let busy = state.working + state.done.len() as u64 >= self.bounds.batches;
        if let Some(next) = state.read.first_entry()
            && (!busy || *next.key() == state.due)
        {
            state.working += 1;
            return Job::Skim(next.remove());
        }
        if state.end.is_some() {
            return if state.read.is_empty() && state.working == 0 {
                Job::Leave
            } else {
                Job::Wait
            };
        }
        if state.reading || state.next - state.due.0 >= self.bounds.batches {
            return Job::Wait;
        }
        state.reading = true;
        let mut batch = state.spare.pop().unwrap_or_default();
        batch.clear();
        batch.place = (state.next, 0);
        state.next += 1;
        Job::Read(batch)
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}

/// Lets the helpers leave.
struct Stop<'a>(&'a Pipeline);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A helper that panics does not leave the others waiting for it.
struct StopAtPanic<'a>(&'a Pipeline);

impl Drop for StopAtPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Where batches come from.
pub struct Feed<'a, 'l> {
    pipeline: &'a Pipeline,
    log: Mutex<&'l mut dyn FrameSource>,
}

impl Feed<'_, '_> {
    /// The next batch; `None` at the proven end of the log.
    pub fn next(&self) -> Result<Option<Batch>> {
        let pipeline = self.pipeline;
        let mut state = pipeline.state.lock();
        loop {
            let due = state.due;
            if let Some(batch) = state.done.remove(&due) {
                state.due = if batch.is_cut {
                    (due.0, due.1 + 1)
                } else {
                    (due.0 + 1, 0)
                };
                pipeline.changed.notify_all();
                return Ok(Some(batch));
            }
            if due.0 == state.next && !state.reading && state.end.is_some() {
                paranoid!(
                    state.read.is_empty() && state.done.is_empty() && state.working == 0,
                    "the log ends before what was read of it"
                );
                return state.end.replace(Ok(())).unwrap_or(Ok(())).map(|()| None);
            }
            invariant!(!state.stop, "a thread of the scan failed");
            match pipeline.job(&mut state) {
                Job::Wait | Job::Leave => pipeline.changed.wait(&mut state),
                job => {
                    drop(state);
                    self.work(job);
                    state = pipeline.state.lock();
                }
            }
        }
    }

    /// Takes back what is not needed any more.
    pub fn give_back(&self, batch: Batch) {
        paranoid!(
            batch.taken > batch.frames.len(),
            "{} of {} frames were taken of a batch that is given back",
            batch.taken,
            batch.frames.len()
        );
        let bounds = self.pipeline.bounds;
        let mut state = self.pipeline.state.lock();
        // Those that were cut off others are new ones, and would be ever more.
        if batch.is_small(bounds) && (state.spare.len() as u64) < bounds.batches {
            state.spare.push(batch);
        }
    }

    fn help(&self) {
        let pipeline = self.pipeline;
        loop {
            let mut state = pipeline.state.lock();
            let job = loop {
                match pipeline.job(&mut state) {
                    Job::Wait => pipeline.changed.wait(&mut state),
                    Job::Leave => return,
                    job => break job,
                }
            };
            drop(state);
            self.work(job);
        }
    }

    fn work(&self, job: Job) {
        match job {
            Job::Skim(mut batch) => {
                let rest = batch.skim(self.pipeline.bounds.kept);
                let mut state = self.pipeline.state.lock();
                state.working -= 1;
                state.read.extend(rest.map(|rest| (rest.place, rest)));
                let before = state.done.insert(batch.place, batch);
                let kept = state.working + state.done.len() as u64;
                paranoid!(
                    before.is_none() && kept <= self.pipeline.bounds.batches + 1,
                    "{kept} batches are or were taken apart"
                );
                self.pipeline.changed.notify_all();
            }
            Job::Read(batch) => self.read(batch),
            Job::Wait | Job::Leave => {}
        }
    }

    fn read(&self, mut batch: Batch) {
        let read = batch.read(&mut **self.log.lock(), self.pipeline.bounds.read);
        let mut state = self.pipeline.state.lock();
        paranoid!(state.reading, "two threads read the log");
        state.reading = false;
        match read {
            Ok(true) => {}
            Ok(false) => state.end = Some(Ok(())),
            Err(error) => state.end = Some(Err(error)),
        }
        if batch.frames.is_empty() {
            // The last number is that of the only thread that reads.
            state.next -= 1;
        } else {
            state.read.insert(batch.place, batch);
        }
        self.pipeline.changed.notify_all();
    }
}
