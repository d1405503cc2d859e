//! What writers of the log share: which flights and syncs are under way, and which groups wait for
//! them. [`flush`](super::flush) has the words, and the promises that are checked here.

use super::group::{Goal, Group};
use super::wakers::Wakers;
use crate::mutants::{self, Mutant};
use crate::paranoid::{Check, MANY, paranoid};
use inkstone_format::segment::LOG_BLOCK;
use inkstone_io::{AlignedBuffer, Batch};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) const BLOCK: u64 = LOG_BLOCK as u64;
/// Flights up to this size are copied together and go out as one write.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;
/// No flight is longer, so that ring space comes back in portions.
const FLIGHT_BYTES_MAX: u64 = 4 << 20;
/// A flight of at least this size ends at a block boundary when that lets another one start.
const CUT_BYTES: u64 = 16 << 10;
/// Syncs under way or awaited, from which on committers gather rather than write, if a flight
/// brings its own sync: small writes that only wait for the sync before them are no use.
const ASYNC_SYNCS_MAX: usize = 2;
/// The same where a sync is a call of its own. The leader of the next one writes for all committers
/// that came during this one: had the first of them written at once, it would be synced without the
/// others.
const SYNC_CALLS_MAX: usize = 1;
/// Batches in flight with `LogWrite::Async`.
const ASYNC_FLIGHTS: usize = 4;

pub(super) fn block_floor(lsn: u64) -> u64 {
    lsn / BLOCK * BLOCK
}

pub(super) fn block_ceil(lsn: u64) -> u64 {
    lsn.div_ceil(BLOCK) * BLOCK
}

/// What one flight needs for itself.
pub(super) struct Slot {
    pub(super) scratch: AlignedBuffer,
    pub(super) batch: Option<Box<dyn Batch>>,
}

/// The shared state of writers, under one short lock.
pub(super) struct Pipeline {
    /// A leader is about to seal a flight.
    pub(super) leading: bool,
    /// End of the last flight that was sealed, the last frame boundary up to there, and the first
    /// one from there on.
    pub(super) submitted: u64,
    pub(super) submitted_frames: u64,
    pub(super) next_frames: u64,
    /// End of the last flight that landed; `written` is the last frame boundary in it.
    pub(super) written_bytes: u64,
    /// What is durable to the byte; `durable` is the last frame boundary in it.
    pub(super) durable_bytes: u64,
    /// End of the last flight that was handed to the page cache.
    pub(super) cached_bytes: u64,
    pub(super) flights: VecDeque<Flight>,
    pub(super) next: Arc<Group>,
    pub(super) awaiting: Vec<Arc<Group>>,
    pub(super) wakers: Wakers,
    pub(super) syncs: Vec<SyncUnderWay>,
    pub(super) slots: Vec<Slot>,
    pub(super) flights_max: usize,
    pub(super) asynchronous: bool,
    pub(super) last_id: u64,
}

#[derive(Clone)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The last frame boundary at or below `end`.
    pub(super) frames: u64,
    /// What was written when the flight was sealed: its own sync covers that too.
    pub(super) before: Reach,
    /// Where the log was durable then: segments from here on need the sync.
    pub(super) durable_before: u64,
    pub(super) syncs: bool,
    /// It goes through the page cache, whatever the options say (promise 7).
    pub(super) cached: bool,
    pub(super) done: bool,
    pub(super) group: Arc<Group>,
}

/// How far something went, and the last frame boundary in it.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) bytes: u64,
    pub(super) frames: u64,
}

pub(super) struct SyncUnderWay {
    pub(super) id: u64,
    pub(super) covers: Reach,
    pub(super) groups: Vec<Arc<Group>>,
}

/// What a waiting thread does next.
pub(super) enum Turn {
    Reached,
    LeadWrite,
    LeadSync { id: u64, from: u64, covers: Reach },
    Wait(Arc<Group>),
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("leading", &self.leading)
            .field("submitted", &self.submitted)
            .field("flights", &self.flights.len())
            .field("syncs", &self.syncs.len())
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// The pipeline of a log that ends at `start`; without batches flights are written by calls.
    pub(super) fn new(start: u64, batches: Option<Vec<Box<dyn Batch>>>) -> Self {
        let asynchronous = batches.is_some();
        paranoid!(
            batches.as_ref().is_none_or(|batches| !batches.is_empty()),
            "a pipeline without a batch cannot write"
        );
        let batches: Vec<Option<Box<dyn Batch>>> = match batches {
            Some(batches) => batches.into_iter().map(Some).collect(),
            None => vec![None],
        };
        let slots: Vec<Slot> = batches
            .into_iter()
            .map(|mut batch| {
                let scratch = AlignedBuffer::zeroed(SCRATCH_BYTES);
                if let Some(batch) = &mut batch {
                    // The ring is not: the memory that a user may pin is little.
                    batch.register(&[scratch.handle()]);
                }
                Slot { scratch, batch }
            })
            .collect();
        Self {
            leading: false,
            submitted: start,
            submitted_frames: start,
            next_frames: start,
            written_bytes: start,
            durable_bytes: start,
            cached_bytes: start,
            flights: VecDeque::new(),
            next: Arc::default(),
            awaiting: Vec::new(),
            wakers: Wakers::default(),
            syncs: Vec::new(),
            flights_max: slots.len(),
            slots,
            asynchronous,
            last_id: 0,
        }
    }

    /// Batches that the pipeline can use.
    pub(super) fn batches_wanted(buffered: bool) -> usize {
        if buffered { 1 } else { ASYNC_FLIGHTS }
    }

    pub(super) fn can_lead(&self) -> bool {
        let aligned = self.submitted.is_multiple_of(BLOCK);
        !self.leading
            && self.flights.len() < self.flights_max
            && (aligned || self.flights.is_empty())
    }

    /// Syncs that are under way, by themselves or with a flight. One that failed stays here.
    pub(super) fn syncs_under_way(&self) -> usize {
        let with_flights = self.flights.iter().filter(|f| f.syncs && !f.done);
        self.syncs.len() + with_flights.count()
    }

    /// Whether a sync may begin (promise 6).
    pub(super) fn may_sync(&self) -> bool {
        self.syncs_under_way()
            < if mutants::on(Mutant::LogSyncsApart) {
                2
            } else {
                1
            }
    }

    /// Whether a write for the sake of durability would soon be synced.
    pub(super) fn may_flush(&self) -> bool {
        let syncs = self.syncs_under_way() + usize::from(self.awaits_sync().is_some());
        syncs
            < if self.asynchronous || mutants::on(Mutant::LogSyncsApart) {
                ASYNC_SYNCS_MAX
            } else {
                SYNC_CALLS_MAX
            }
    }

    /// A group with a member that waits for a sync that is not under way.
    pub(super) fn awaits_sync(&self) -> Option<&Arc<Group>> {
        self.awaiting.iter().find(|g| g.has(Goal::Durable))
    }

    /// Whether the next flight goes through the page cache (promise 7). `only_written`: its commits
    /// want no more than that the operating system has it.
    pub(super) fn is_next_cached(&self, only_written: bool) -> bool {
        let continues = self.cached_bytes > self.durable_bytes;
        continues || only_written && self.flights.is_empty()
    }

    pub(super) fn take_lead(&mut self) -> Turn {
        paranoid!(
            !self.leading && !self.slots.is_empty(),
            "a lead taken of {self:?}, with {} slots",
            self.slots.len()
        );
        self.leading = true;
        self.next.settle();
        Turn::LeadWrite
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn begin_sync(&mut self, from: u64, covers: Reach) -> Turn {
        let id = self.new_id();
        let mut groups = std::mem::take(&mut self.awaiting);
        groups.iter().for_each(|g| g.settle());
        if groups.is_empty() {
            groups.push(Arc::default());
        }
        paranoid!(
            from <= covers.frames && covers.frames <= covers.bytes,
            "a sync from LSN {from} to {} in {}",
            covers.frames,
            covers.bytes
        );
        self.syncs.push(SyncUnderWay { id, covers, groups });
        Turn::LeadSync { id, from, covers }
    }

    /// Pokes a waiter for each lead that is free (promise 3); the caller wakes them when it has
    /// let go of the latch.
    pub(super) fn hand_on(&self, sync_too: bool) -> Poked {
        let mut poked = Poked::default();
        if self.can_lead() {
            if self.may_flush() && self.next.has(Goal::Durable) {
                poked.poke(&self.next, Goal::Durable);
            } else {
                poked.poke(&self.next, Goal::Written);
            }
        }
        if sync_too
            && self.may_sync()
            && let Some(group) = self.awaits_sync()
        {
            poked.poke(group, Goal::Durable);
        }
        poked
    }

    pub(super) fn all_groups(&self) -> Vec<Arc<Group>> {
        let flights = self.flights.iter().map(|f| f.group.clone());
        let syncs = self.syncs.iter().flat_map(|s| s.groups.iter().cloned());
        let rest = self.awaiting.iter().chain(std::iter::once(&self.next));
        flights.chain(syncs).chain(rest.cloned()).collect()
    }
}

impl Check for Pipeline {
    fn check(&self) {
        paranoid!(
            self.submitted_frames <= self.submitted && self.submitted <= self.next_frames,
            "flights end at LSN {}, between {} and {}",
            self.submitted,
            self.submitted_frames,
            self.next_frames
        );
        paranoid!(
            self.durable_bytes <= self.written_bytes && self.written_bytes <= self.submitted,
            "durable to LSN {}, written to {}, submitted to {}",
            self.durable_bytes,
            self.written_bytes,
            self.submitted
        );
        // One that has landed before an earlier one has given its slot back.
        let in_the_air = self.flights.iter().filter(|flight| !flight.done).count();
        paranoid!(
            in_the_air + self.slots.len() <= self.flights_max,
            "{in_the_air} flights under way with {} slots left of {}",
            self.slots.len(),
            self.flights_max
        );
        let mut end = self.written_bytes;
        for (at, flight) in self.flights.iter().enumerate() {
            let is_last = at + 1 == self.flights.len();
            paranoid!(
                flight.start == end && flight.start < flight.end && flight.frames <= flight.end,
                "a flight from LSN {} to {} behind {end}",
                flight.start,
                flight.end
            );
            // Promise 1.
            paranoid!(
                is_last || flight.end.is_multiple_of(BLOCK),
                "a flight begins in the block of another, at LSN {}",
                flight.end
            );
            end = flight.end;
        }
        paranoid!(
            end == self.submitted,
            "flights end at LSN {end}, not at {}",
            self.submitted
        );
        self.check_order();
        self.wakers.check(self.written_bytes, self.durable_bytes);
        // Promise 7.
        let cached = self.flights.iter().filter(|flight| flight.cached).count();
        paranoid!(
            cached == 0 || cached == self.flights.len(),
            "{cached} of {} flights under way go through the page cache",
            self.flights.len()
        );
        // Promise 6.
        paranoid!(
            self.syncs_under_way() <= 1 || mutants::on(Mutant::LogSyncsApart),
            "{} syncs of the log at a time",
            self.syncs_under_way()
        );
    }
}

impl Pipeline {
    /// What is numbered, and what stands in a row.
    fn check_order(&self) {
        let mut last = 0;
        for flight in self.flights.iter().take(MANY) {
            paranoid!(
                last < flight.id && flight.id <= self.last_id,
                "flight {} behind flight {last}, the latest id is {}",
                flight.id,
                self.last_id
            );
            last = flight.id;
            let before = &flight.before;
            paranoid!(
                before.frames <= before.bytes && before.bytes <= flight.start,
                "before flight {} LSN {} was written, frames to {}",
                flight.id,
                before.bytes,
                before.frames
            );
            paranoid!(
                flight.durable_before <= before.frames,
                "flight {} began when LSN {} was durable and {} written",
                flight.id,
                flight.durable_before,
                before.frames
            );
            paranoid!(
                !flight.syncs || self.asynchronous,
                "flight {} brings a sync without a batch",
                flight.id
            );
        }
        // Else `advance` would have taken it in.
        paranoid!(
            self.flights.front().is_none_or(|flight| !flight.done),
            "the first flight has landed and was not taken in"
        );
        for sync in self.syncs.iter().take(MANY) {
            paranoid!(
                sync.id <= self.last_id && !sync.groups.is_empty(),
                "sync {} of {} groups, the latest id is {}",
                sync.id,
                sync.groups.len(),
                self.last_id
            );
            paranoid!(
                sync.covers.bytes <= self.written_bytes && sync.covers.frames <= sync.covers.bytes,
                "sync {} covers LSN {}, written to {}",
                sync.id,
                sync.covers.bytes,
                self.written_bytes
            );
        }
    }
}

/// Members that were poked under the latch, and are woken after it: a wake-up is a system call, and
/// a thread that runs at once would wait for the latch.
#[derive(Default)]
#[must_use = "a poked waiter sleeps until it is woken"]
pub(super) struct Poked(SmallVec<[(Arc<Group>, Goal); 2]>);

impl Poked {
    fn poke(&mut self, group: &Arc<Group>, goal: Goal) {
        if group.poke(goal) {
            self.0.push((group.clone(), goal));
        }
    }

    pub(super) fn wake(self) {
        for (group, goal) in self.0 {
            group.wake_one(goal);
        }
    }
}

pub(super) fn join(group: &Arc<Group>, goal: Goal) -> Turn {
    group.join(goal);
    Turn::Wait(group.clone())
}

/// Where the next flight ends, if everything up to `ready` is published.
pub(super) fn flight_end(state: &Pipeline, ready: u64) -> u64 {
    let start = state.submitted;
    if ready.saturating_sub(start) > FLIGHT_BYTES_MAX {
        return block_floor(start + FLIGHT_BYTES_MAX);
    }
    let others_wait = state.next.has(Goal::Durable);
    let another_may_start = state.flights.len() + 1 < state.flights_max;
    if others_wait && another_may_start && ready.saturating_sub(start) >= CUT_BYTES {
        return block_floor(ready);
    }
    ready
}
