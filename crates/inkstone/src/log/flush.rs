//! The way from the ring to the disk: group commit that clocks itself.
//!
//! # Words
//! - A *flight* is one write under way, of everything published when it was sealed. Its *leader* is
//!   the committer that does it; committers that come meanwhile join a [`Group`].
//! - *next*: the group of the committers with frames that no flight covers yet. The next flight
//!   takes it over.
//! - *awaiting*: groups whose frames are written and not yet durable. The next *sync* takes them
//!   all, and wakes them all.
//! - With `LogWrite::Async` a flight's write and sync go to the kernel together.
//!
//! # Promises
//! 1. Two flights under way never share a block: a flight that ends within a block is the last
//!    one until it is done. Checked by `Pipeline::check`.
//! 2. `written` advances over flights in log order. `durable` advances only over what was written
//!    before a successful sync began (or what the sync's own batch wrote before it). Checked by
//!    `Pipeline::check`. Tested by `durable_is_never_claimed_early`.
//! 3. Whenever a lead is free and awaited, a running thread is about to take it: a finished flight
//!    or sync pokes one waiter, which leads or hands the poke on. A waiter that may not lead a
//!    write because a sync must go first leads that sync, also if its own frame is not written.
//!    Tested by `nothing_is_lost_when_640_threads_wait`,
//!    `a_flight_that_ends_before_all_waiters_is_synced`.
//! 4. `written` and `durable` are frame boundaries. A flight may end within a frame; then what it
//!    wrote of that frame does not count. (If a claim could name a place within a frame, that
//!    frame's lost rest would look like damage to recovery.) Tested by
//!    `durable_is_never_claimed_early`, `random_power_losses`.
//! 5. After a failed write or sync (the poison is set) neither LSN advances. Tested by
//!    `a_failed_write_poisons_and_wakes_all_waiters`,
//!    `a_failed_sync_poisons_and_nothing_becomes_durable_after_it`. Tested by the simulator
//!    (`failed-sync-ignored`).
//! 6. One sync is under way. A kernel or device may report a failure to one sync only: a second one
//!    would succeed wrongly, and be told before the first one's thread has set the poison. Checked
//!    by `Pipeline::check`. Tested by the simulator (`log-syncs-apart`).
//!
//! Latches: `state` (short, never held over I/O) before the ring's `walk`.

use super::LogShared;
use super::group::{Goal, Group};
use crate::counters::{Counter, Timed};
use crate::mutants::{self, Mutant};
use crate::paranoid::{Check, MANY, paranoid};
use crate::sync::atomic::Ordering;
use crate::sync::{hint, thread};
use crate::{Error, Result};
use inkstone_format::segment::LOG_BLOCK;
use inkstone_io::{AlignedBuffer, Batch, File, Op};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

const BLOCK: u64 = LOG_BLOCK as u64;
/// Flights up to this size are copied together and go out as one write.
const SCRATCH_BYTES: usize = 64 << 10;
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
/// Times that a leader yields so that frames before its own get published.
const PUBLISH_YIELDS: usize = 100;

fn block_floor(lsn: u64) -> u64 {
    lsn / BLOCK * BLOCK
}

fn block_ceil(lsn: u64) -> u64 {
    lsn.div_ceil(BLOCK) * BLOCK
}

/// What one flight needs for itself.
struct Slot {
    scratch: AlignedBuffer,
    batch: Option<Box<dyn Batch>>,
}

/// The shared state of writers, under one short lock.
pub(super) struct Pipeline {
    /// A leader is about to seal a flight.
    leading: bool,
    /// End of the last flight that was sealed, the last frame boundary up to there, and the first
    /// one from there on.
    submitted: u64,
    submitted_frames: u64,
    next_frames: u64,
    /// End of the last flight that landed; `written` is the last frame boundary in it.
    written_bytes: u64,
    /// What is durable to the byte; `durable` is the last frame boundary in it.
    durable_bytes: u64,
    flights: VecDeque<Flight>,
    next: Arc<Group>,
    awaiting: Vec<Arc<Group>>,
    syncs: Vec<SyncUnderWay>,
    slots: Vec<Slot>,
    flights_max: usize,
    asynchronous: bool,
    last_id: u64,
}

#[derive(Clone)]
struct Flight {
    id: u64,
    start: u64,
    end: u64,
    /// The last frame boundary at or below `end`.
    frames: u64,
    /// What was written when the flight was sealed: its own sync covers that too.
    before: Reach,
    /// Where the log was durable then: segments from here on need the sync.
    durable_before: u64,
    syncs: bool,
    done: bool,
    group: Arc<Group>,
}

/// How far something went, and the last frame boundary in it.
#[derive(Clone, Copy)]
struct Reach {
    bytes: u64,
    frames: u64,
}

struct SyncUnderWay {
    id: u64,
    covers: Reach,
    groups: Vec<Arc<Group>>,
}

/// What a waiting thread does next.
enum Turn {
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
            flights: VecDeque::new(),
            next: Arc::default(),
            awaiting: Vec::new(),
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

    fn can_lead(&self) -> bool {
        let aligned = self.submitted.is_multiple_of(BLOCK);
        !self.leading
            && self.flights.len() < self.flights_max
            && (aligned || self.flights.is_empty())
    }

    /// Syncs that are under way, by themselves or with a flight. One that failed stays here.
    fn syncs_under_way(&self) -> usize {
        let with_flights = self.flights.iter().filter(|f| f.syncs && !f.done);
        self.syncs.len() + with_flights.count()
    }

    /// Whether a sync may begin (promise 6).
    fn may_sync(&self) -> bool {
        self.syncs_under_way()
            < if mutants::on(Mutant::LogSyncsApart) {
                2
            } else {
                1
            }
    }

    /// Whether a write for the sake of durability would soon be synced.
    fn may_flush(&self) -> bool {
        let syncs = self.syncs_under_way() + usize::from(self.awaits_sync().is_some());
        syncs
            < if self.asynchronous || mutants::on(Mutant::LogSyncsApart) {
                ASYNC_SYNCS_MAX
            } else {
                SYNC_CALLS_MAX
            }
    }

    /// A group with a member that waits for a sync that is not under way.
    fn awaits_sync(&self) -> Option<&Arc<Group>> {
        self.awaiting.iter().find(|g| g.has(Goal::Durable))
    }

    fn take_lead(&mut self) -> Turn {
        paranoid!(
            !self.leading && !self.slots.is_empty(),
            "a lead taken of {self:?}, with {} slots",
            self.slots.len()
        );
        self.leading = true;
        self.next.settle();
        Turn::LeadWrite
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn begin_sync(&mut self, from: u64, covers: Reach) -> Turn {
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
    fn hand_on(&self, sync_too: bool) -> Poked {
        let mut poked = Poked::default();
        if self.can_lead() {
            match self.may_flush() && self.next.has(Goal::Durable) {
                true => poked.poke(&self.next, Goal::Durable),
                false => poked.poke(&self.next, Goal::Written),
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

    fn all_groups(&self) -> Vec<Arc<Group>> {
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
struct Poked(SmallVec<[(Arc<Group>, Goal); 2]>);

impl Poked {
    fn poke(&mut self, group: &Arc<Group>, goal: Goal) {
        if group.poke(goal) {
            self.0.push((group.clone(), goal));
        }
    }

    fn wake(self) {
        for (group, goal) in self.0 {
            group.wake_one(goal);
        }
    }
}

fn join(group: &Arc<Group>, goal: Goal) -> Turn {
    group.join(goal);
    Turn::Wait(group.clone())
}

impl LogShared {
    fn reached(&self, lsn: u64, goal: Goal) -> bool {
        let reached = match goal {
            Goal::Written => &self.written,
            Goal::Durable => &self.durable,
        };
        reached.load(Ordering::Acquire) >= lsn
    }

    /// Waits until the log is written or durable up to `lsn`, leading flights where no other thread
    /// does.
    pub(super) fn wait(&self, lsn: u64, goal: Goal) -> Result<()> {
        if self.reached(lsn, goal) {
            return Ok(());
        }
        crate::invariant!(
            lsn <= self.reserved.load(Ordering::Acquire),
            "waiting for LSN {lsn}, which was never reserved"
        );
        let mut owes = false;
        let result = self.wait_loop(lsn, goal, &mut owes);
        self.leave(result, owes)
    }

    /// What every thread that waited does before anything else: others may count on it (promise
    /// 3).
    fn leave(&self, result: Result<()>, owes: bool) -> Result<()> {
        match result {
            // Also if the poison was set by a part of the engine that knows nothing of the log.
            Err(error) => Err(self.fail(error)),
            Ok(()) => {
                if owes {
                    let poked = self.state.lock().hand_on(true);
                    poked.wake();
                }
                Ok(())
            }
        }
    }

    fn wait_loop(&self, lsn: u64, goal: Goal, owes: &mut bool) -> Result<()> {
        while !self.reached(lsn, goal) {
            match self.turn(lsn, goal)? {
                Turn::Reached => break,
                Turn::LeadWrite => *owes |= !self.lead_write(lsn, goal)?,
                Turn::LeadSync { id, from, covers } => self.lead_sync(id, from, covers)?,
                Turn::Wait(group) => *owes |= group.park(goal),
            }
        }
        Ok(())
    }

    fn turn(&self, lsn: u64, goal: Goal) -> Result<Turn> {
        let mut state = self.state.lock();
        // Under the latch: `fail` sees a thread that joins a group now.
        self.poison.check()?;
        if self.reached(lsn, goal) {
            return Ok(Turn::Reached);
        }
        if self.reached(lsn, Goal::Written) {
            return Ok(self.turn_to_sync(&mut state, lsn));
        }
        if let Some(flight) = state.flights.iter().find(|f| f.frames >= lsn) {
            return Ok(join(&flight.group, goal));
        }
        if state.can_lead() {
            if goal == Goal::Written || state.may_flush() {
                return Ok(state.take_lead());
            }
            if state.may_sync() {
                // Others wait for a sync first. Those of them that were poked may be no better off
                // than this thread: the last flight ended before their frames (promise 3).
                return Ok(self.begin_sync(&mut state));
            }
        }
        // Otherwise the poked waiter spins until the lead is free.
        state.next.take_back(goal);
        Ok(join(&state.next, goal))
    }

    fn written_reach(&self, state: &Pipeline) -> Reach {
        Reach {
            bytes: state.written_bytes,
            frames: self.written.load(Ordering::Acquire),
        }
    }

    fn begin_sync(&self, state: &mut Pipeline) -> Turn {
        let from = self.durable.load(Ordering::Acquire);
        let covers = self.written_reach(state);
        state.begin_sync(from, covers)
    }

    fn turn_to_sync(&self, state: &mut Pipeline, lsn: u64) -> Turn {
        let under_way = state.syncs.iter().find(|s| s.covers.frames >= lsn);
        if let Some(group) = under_way.and_then(|s| s.groups.last()) {
            return join(group, Goal::Durable);
        }
        if state.may_sync() {
            return self.begin_sync(state);
        }
        if state.awaiting.is_empty() {
            state.awaiting.push(Arc::default());
        }
        state.awaiting[0].take_back(Goal::Durable);
        join(&state.awaiting[0], Goal::Durable)
    }

    /// Waits until the ring is released up to `lsn`, leading flights where no other thread does.
    pub(super) fn wait_released(&self, lsn: u64) -> Result<()> {
        let mut owes = false;
        let result = self.wait_released_loop(lsn, &mut owes);
        self.leave(result, owes)
    }

    fn wait_released_loop(&self, lsn: u64, owes: &mut bool) -> Result<()> {
        while self.ring.released() < lsn {
            let turn = {
                let mut state = self.state.lock();
                self.poison.check()?;
                match state.flights.front() {
                    _ if self.ring.released() >= lsn => Turn::Reached,
                    Some(flight) => join(&flight.group, Goal::Written),
                    None if state.leading => join(&state.next, Goal::Written),
                    None => state.take_lead(),
                }
            };
            match turn {
                Turn::Wait(group) => *owes |= group.park(Goal::Written),
                Turn::LeadWrite => *owes |= !self.lead_write(0, Goal::Written)?,
                Turn::Reached | Turn::LeadSync { .. } => {}
            }
        }
        Ok(())
    }

    /// Writes what is published. The caller has the lead, wants `want`, and gives the lead up
    /// here. False when there was nothing to write.
    fn lead_write(&self, want: u64, goal: Goal) -> Result<bool> {
        self.await_published(want);
        let Some((flight, mut slot)) = self.seal(goal) else {
            return Ok(false);
        };
        let written = self.write_flight(&flight, &mut slot);
        match written.and_then(|()| self.land(&flight, slot, want, goal)) {
            Ok(()) => Ok(true),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Lets frames before `want` get published: their owners are copying. Bounded, because one of
    /// them may wait for ring space, which this thread is about to give back.
    fn await_published(&self, want: u64) {
        for turn in 0..PUBLISH_YIELDS {
            if self.ring.advance_ready() >= want.max(self.written.load(Ordering::Acquire) + 1) {
                return;
            }
            if turn < 3 {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    fn seal(&self, goal: Goal) -> Option<(Flight, Slot)> {
        let mut state = self.state.lock();
        let ready = self.ring.advance_ready();
        state.leading = false;
        let start = state.submitted;
        let end = flight_end(&state, ready);
        paranoid!(
            end <= ready.max(start),
            "a flight to LSN {end}, published up to {ready}"
        );
        if end <= start {
            return None;
        }
        let (frames, next_frames) = self.frames_of(&state, end, ready);
        paranoid!(
            frames <= end && end <= next_frames && next_frames <= ready,
            "frames end at LSN {frames} and {next_frames} around {end}, published to {ready}"
        );
        let Some(slot) = state.slots.pop() else {
            crate::error::broken_invariant(format_args!("no slot for a flight"), file!(), line!())
        };
        let group = std::mem::take(&mut state.next);
        let wants_sync = goal == Goal::Durable || group.has(Goal::Durable);
        let flight = Flight {
            id: state.new_id(),
            start,
            end,
            frames,
            before: self.written_reach(&state),
            durable_before: self.durable.load(Ordering::Acquire),
            syncs: state.asynchronous && !self.write_through && wants_sync && state.may_sync(),
            done: false,
            group,
        };
        state.submitted = end;
        state.submitted_frames = frames;
        state.next_frames = next_frames;
        state.flights.push_back(flight.clone());
        let rest_may_go = end < ready && state.can_lead();
        drop(state);
        if rest_may_go {
            // Some of this flight's group are covered by the rest only: one may lead it now.
            flight.group.wake_one(Goal::Durable);
        }
        Some((flight, slot))
    }

    /// The frame boundaries around the end of the next flight.
    fn frames_of(&self, state: &Pipeline, end: u64, ready: u64) -> (u64, u64) {
        if end == ready {
            (ready, ready)
        } else if end < state.next_frames {
            // Still the frame that the last flight ended in.
            (state.submitted_frames, state.next_frames)
        } else {
            // SAFETY: from `next_frames`, which is not below the last flight's end, to `ready`,
            // which is above `end`, all is published and not written, hence not released.
            unsafe { self.ring.boundaries_around(state.next_frames, end) }
        }
    }

    fn write_flight(&self, flight: &Flight, slot: &mut Slot) -> Result<()> {
        let (from, to) = (block_floor(flight.start), block_ceil(flight.end));
        let whole = block_floor(flight.end);
        let small = to - from <= SCRATCH_BYTES as u64;
        let staged_from = if small { from } else { whole };
        paranoid!(
            staged_from <= flight.end && to - staged_from <= SCRATCH_BYTES as u64,
            "bytes from LSN {staged_from} to {to} do not fit the scratch memory"
        );
        let Slot { scratch, batch } = slot;
        self.stage(scratch, staged_from, flight.end);
        let [first, second] = if small {
            [&[][..], &[][..]]
        } else {
            // SAFETY: whole blocks below `ready`; they are released when this flight lands.
            unsafe { self.ring.parts(from, whole) }
        };
        let staged = &scratch[..(to - staged_from) as usize];
        let pieces = self.pieces(from, [first, second, staged])?;
        self.counters.add(Counter::LogBytesWritten, to - from);
        match batch {
            None => self.write_pieces(&pieces),
            Some(batch) => self.run_batch(&mut **batch, &pieces, flight),
        }
    }

    /// Copies `[from, end)` out of the ring and zeroes the rest of its last block: others may be
    /// copying there.
    fn stage(&self, scratch: &mut [u8], from: u64, end: u64) {
        let len = (end - from) as usize;
        paranoid!(
            from.is_multiple_of(BLOCK) && len <= scratch.len(),
            "{len} bytes from LSN {from} are staged in {}",
            scratch.len()
        );
        // SAFETY: below `ready`; released not before this flight lands.
        let [first, second] = unsafe { self.ring.parts(from, end) };
        scratch[..first.len()].copy_from_slice(first);
        scratch[first.len()..len].copy_from_slice(second);
        scratch[len..block_ceil(len as u64) as usize].fill(0);
    }

    /// Splits the bytes from LSN `from` on where segments end.
    fn pieces<'a>(&self, from: u64, buffers: [&'a [u8]; 3]) -> Result<Vec<Piece<'a>>> {
        let mut pieces: Vec<Piece<'a>> = Vec::with_capacity(2);
        let mut at = from;
        for mut buffer in buffers {
            paranoid!(
                at.is_multiple_of(BLOCK) && buffer.len().is_multiple_of(LOG_BLOCK),
                "{} bytes from LSN {at} are written, a part of a block",
                buffer.len()
            );
            while !buffer.is_empty() {
                let number = self.segments.number(at);
                let room = self.segments.segment_bytes() - at % self.segments.segment_bytes();
                let (part, rest) = buffer.split_at(buffer.len().min(room as usize));
                match pieces.last_mut() {
                    Some(piece) if piece.number == number => piece.buffers.push(part),
                    _ => pieces.push(Piece {
                        number,
                        file: self
                            .segments
                            .file(number, self.durable.load(Ordering::Acquire))?,
                        offset: self.segments.offset(at),
                        buffers: vec![part],
                    }),
                }
                at += part.len() as u64;
                buffer = rest;
            }
        }
        Ok(pieces)
    }

    fn write_pieces(&self, pieces: &[Piece<'_>]) -> Result<()> {
        for piece in pieces {
            let mut offset = piece.offset;
            for buffer in &piece.buffers {
                self.counters.add(Counter::LogWriteCalls, 1);
                let timing = self.counters.time(Timed::LogWrite);
                let written = piece.file.write_at(buffer, offset);
                drop(timing);
                written.map_err(|e| Error::io("write", piece.file.path(), e))?;
                offset += buffer.len() as u64;
            }
        }
        Ok(())
    }

    fn run_batch(
        &self,
        batch: &mut dyn Batch,
        pieces: &[Piece<'_>],
        flight: &Flight,
    ) -> Result<()> {
        let syncs = if flight.syncs {
            self.segments.live(flight.durable_before, flight.end)
        } else {
            Vec::new()
        };
        let writes = pieces.iter().map(|piece| Op::Write {
            file: &*piece.file,
            buffers: piece.buffers.clone(),
            offset: piece.offset,
            atomic: false,
        });
        let mut operations: Vec<Op<'_>> = writes
            .chain(syncs.iter().map(|file| Op::Sync { file: &**file }))
            .collect();
        self.counters
            .add(Counter::LogWriteCalls, pieces.len() as u64);
        self.counters.add(Counter::LogSyncs, syncs.len() as u64);
        let under_way: Vec<_> = syncs.iter().map(|_| self.poison.begin_sync()).collect();
        let timing = self.counters.time(Timed::LogWrite);
        let results = batch.run(&mut operations);
        drop((timing, operations));
        crate::invariant!(
            results.len() == pieces.len() + syncs.len(),
            "a batch lost results"
        );
        let mut results = results.into_iter();
        let mut outcome = Ok(());
        for (piece, result) in pieces.iter().zip(&mut results) {
            let written = result.map_err(|e| Error::io("write", piece.file.path(), e));
            outcome = outcome.and(written);
        }
        // All of them, whatever came before: each failed sync poisons before its end is known.
        for ((file, sync), result) in syncs.iter().zip(under_way).zip(results) {
            outcome = outcome.and(sync.end(file.path(), result));
        }
        outcome
    }

    /// Takes in a flight whose write (and sync, if it has one) succeeded.
    fn land(&self, flight: &Flight, slot: Slot, want: u64, goal: Goal) -> Result<()> {
        let (from, whole) = (block_floor(flight.start), block_floor(flight.end));
        if whole > from {
            // SAFETY: these blocks are written, and this flight alone covers them (promise 1).
            unsafe { self.ring.zero(from, whole) };
        }
        let mut landed = Vec::new();
        let poked = {
            let mut state = self.state.lock();
            self.poison.check()?;
            state.slots.push(slot);
            for under_way in &mut state.flights {
                under_way.done |= under_way.id == flight.id;
            }
            while state.flights.front().is_some_and(|f| f.done) {
                if let Some(done) = state.flights.pop_front() {
                    let durable = self.advance(&mut state, &done);
                    landed.push((done.group, durable));
                }
            }
            // Not where the flight ended before `want`: then the leader may have to wait for a
            // sync.
            let leader_syncs = goal == Goal::Durable
                && self.reached(want, Goal::Written)
                && !self.reached(want, Goal::Durable);
            state.hand_on(!leader_syncs)
        };
        poked.wake();
        for (group, durable) in landed {
            group.release(Goal::Written);
            if durable {
                group.release(Goal::Durable);
            }
        }
        if self.segments.number(flight.start) != self.segments.number(flight.end) {
            self.background.nudge();
        }
        Ok(())
    }

    /// Advances `written`, and `durable` where the flight made it so, over the oldest flight.
    /// Returns whether no member of its group has to wait for a sync.
    fn advance(&self, state: &mut Pipeline, done: &Flight) -> bool {
        paranoid!(
            done.done && done.start == state.written_bytes,
            "a flight from LSN {} lands where {} is written",
            done.start,
            state.written_bytes
        );
        state.written_bytes = done.end;
        self.written.store(done.frames, Ordering::Release);
        self.ring.release(block_floor(done.end));
        let all = Reach {
            bytes: done.end,
            frames: done.frames,
        };
        if self.write_through {
            self.set_durable(state, all);
        } else if done.syncs {
            let gapless = state.durable_bytes.max(done.before.bytes) >= done.start;
            // Otherwise an earlier flight without a sync was under way when this one began: its
            // bytes may not be covered.
            self.set_durable(state, if gapless { all } else { done.before });
        }
        let waits = state.durable_bytes < done.end && done.group.has(Goal::Durable);
        if waits {
            state.awaiting.push(done.group.clone());
        }
        !waits
    }

    fn set_durable(&self, state: &mut Pipeline, reach: Reach) {
        state.durable_bytes = state.durable_bytes.max(reach.bytes);
        let before = self.durable.fetch_max(reach.frames, Ordering::AcqRel);
        paranoid!(
            before.max(reach.frames) <= state.durable_bytes,
            "frames durable to LSN {before} or {}, bytes to {}",
            reach.frames,
            state.durable_bytes
        );
    }

    /// Makes durable what was written when the sync began.
    fn lead_sync(&self, id: u64, from: u64, covers: Reach) -> Result<()> {
        // The poison may be set by a part of the engine that knows nothing of the log, so the log's
        // waiters are woken here.
        if let Err(error) = self.sync_segments(from, covers.bytes) {
            return Err(self.fail(error));
        }
        let (groups, poked) = {
            let mut state = self.state.lock();
            self.set_durable(&mut state, covers);
            let at = state.syncs.iter().position(|s| s.id == id);
            paranoid!(at.is_some(), "sync {id} is not under way at its end");
            let groups = at.map(|at| state.syncs.swap_remove(at).groups);
            (groups.unwrap_or_default(), state.hand_on(true))
        };
        poked.wake();
        for group in groups {
            group.release(Goal::Durable);
        }
        Ok(())
    }

    fn sync_segments(&self, from: u64, to: u64) -> Result<()> {
        paranoid!(from <= to, "a sync from LSN {from} to {to}");
        for file in self.segments.live(from, to) {
            self.counters.add(Counter::LogSyncs, 1);
            if mutants::on(Mutant::LogUnsynced) {
                continue;
            }
            let under_way = self.poison.begin_sync();
            let timing = self.counters.time(Timed::LogSync);
            let result = match file.sync() {
                Err(_) if mutants::on(Mutant::FailedSyncIgnored) => Ok(()),
                result => result,
            };
            drop(timing);
            under_way.end(file.path(), result)?;
        }
        self.poison.check()
    }

    /// Poisons the engine and wakes all waiters, which then see the poison. Flights and syncs that
    /// failed stay where they are: nothing passes them any more.
    pub(super) fn fail(&self, error: Error) -> Error {
        let error = match error {
            Error::Poisoned(_) => self.poison.check().err().unwrap_or(error),
            other => self.poison.set(other),
        };
        let groups = self.state.lock().all_groups();
        for group in groups {
            group.release(Goal::Written);
            group.release(Goal::Durable);
        }
        error
    }
}

#[cfg(test)]
impl LogShared {
    /// How many threads wait until their frames are durable, without the leaders.
    pub(super) fn waiting(&self) -> u32 {
        let groups = self.state.lock().all_groups();
        groups.iter().map(|group| group.count(Goal::Durable)).sum()
    }
}

/// Bytes for one segment file, in order.
struct Piece<'a> {
    number: u64,
    file: Arc<dyn File>,
    offset: u64,
    buffers: Vec<&'a [u8]>,
}

/// Where the next flight ends, if everything up to `ready` is published.
fn flight_end(state: &Pipeline, ready: u64) -> u64 {
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
