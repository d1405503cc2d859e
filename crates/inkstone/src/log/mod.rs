//! The redo log: what makes a mini-transaction atomic, and a commit durable.
//!
//! # Promises
//! 1. [`Log::append`] gives a mini-transaction its place in the log with one `fetch_add`, and
//!    copies it there in parallel with others; no lock is held for it. A reservation is never given
//!    up or made anew (MDEV-34689): an appender that has one and finds the ring full makes room.
//!    Checked by `Publish::drop`. Tested by `many_threads_wrap_a_small_ring`.
//! 2. The frames below [`Log::ready_lsn`] are published, each after its `before_publish` ran.
//!    Tested by `many_threads_wrap_a_small_ring`.
//! 3. [`Log::wait_durable`] returns `Ok` only when everything below that LSN survives power loss.
//!    Tested by `durable_is_never_claimed_early`. Tested by the simulator (`log-unsynced`).
//! 4. A failed write or sync poisons the engine: no thread is told "durable" any more, every waiter
//!    gets the error, nothing is tried again. Tested by
//!    `a_failed_write_poisons_and_wakes_all_waiters`,
//!    `a_failed_sync_poisons_and_nothing_becomes_durable_after_it`.
//! 5. The end of the log is proven when it is read ([`reader`]): a torn or lost tail is an end, a
//!    damaged middle is an error. Tested by `a_torn_tail_is_an_end`,
//!    `a_flipped_bit_in_the_middle_is_damage_not_an_end`.
//!
//! # Words
//! `durable <= written <= ready <= reserved`, all of them LSNs. A *claim* is the durable LSN as it
//! was known when a frame was built: it stands in the frame, and makes promise 5 possible. The
//! first frame of each epoch has a claim, and after that every one that wants it when there is
//! news, and at least one in [`CLAIM_EVERY`] bytes. An *epoch* is one opening of the database.
//!
//! # Parts
//! `ring` (memory), `flush` (group commit), `pipeline` (the state that its threads share), `group`
//! (threads that wait for the same flush), `wakers` (futures that wait), `flight` (a write on the
//! disk), `segments` (files), `background` (thread `ink-log`), `full` (threads that wait for a
//! checkpoint), `reader`, `ahead` (thread `ink-log-ahead`, which reads for it), `copying` (copies
//! of a log that is being written).
//!
//! # Not promised
//! Frames that were not awaited may be lost by a crash, and some later ones kept.
//!
//! Latches, in order: `upkeep` (segments; file operations), `state` (flush; short), `walk` (ring).

mod ahead;
mod background;
mod copying;
mod flight;
mod flush;
mod full;
mod group;
mod pipeline;
pub mod reader;
mod ring;
mod segments;
mod wakers;

#[cfg(test)]
mod tests;

pub(crate) use copying::LogCopy;
pub(crate) use segments::PROMISE_UNIT;
pub(crate) use wakers::Ticket;

pub use reader::{Frame, LogReader, ReadParams, SegmentInfo};

use crate::aside::SetAside;
use crate::counters::{Counter, Counters, Timed};
use crate::mutants::{self, Mutant};
use crate::options::{Durability, LogWrite};
use crate::paranoid::{Check, Checked, ON, paranoid};
use crate::poison::Poison;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::JoinHandle;
use crate::{Error, Result};
use background::Background;
use crossbeam_utils::CachePadded;
use full::Full;
use group::Goal;
use inkstone_format::Lsn;
use inkstone_format::frame::{FRAME_MAX, FRAME_PAYLOAD_MAX, FrameHead};
use inkstone_format::segment::{LOG_BLOCK, segment_bytes_is_valid};
use inkstone_io::{Directory, Vfs};
use pipeline::Pipeline;
use ring::Ring;
use segments::{SegmentParams, Segments};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of log after which a frame carries a claim, wanted or not.
pub const CLAIM_EVERY: u64 = 64 << 10;
/// The least distance of the frame boundaries that are remembered, where a scan may begin. In the
/// simulator it begins nearly anywhere.
pub const BOUNDARY_DISTANCE: u64 = if cfg!(inkstone_sim) { 64 } else { WRITE_BYTES };
/// What is written at once is about as long, and has its boundary at the end.
const WRITE_BYTES: u64 = 64 << 10;
/// As many as a checkpoint finds, at most, each as far from the next as a checkpoint is late.
const BOUNDARIES_MAX: usize = 4096;
/// The least number of files: one that is kept, one that is written, one that is promised, and one
/// that is made.
const FILES_MIN: u64 = 4;
/// See [`Log::context_reach`]. (In the simulator a life logs little.)
const CONTEXT_REACH_PARTS: u64 = if cfg!(inkstone_sim) { 1024 } else { 16 };
const CONTEXT_REACH_MAX: u64 = 1 << 20;
/// No claim was made in this epoch yet.
const NEVER: u64 = u64::MAX;
/// Operations in flight in one batch with `LogWrite::Async`.
const BATCH_DEPTH: usize = 16;

/// The options of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes that its files take at most (`log_file_size`).
    pub capacity_bytes: u64,
    /// Bytes of the ring (`log_buffer_size`), a power of two, at least 2 MiB.
    pub buffer_bytes: usize,
    /// Through the page cache (off: `O_DIRECT`).
    pub buffering: bool,
    /// How writes are submitted.
    pub write: LogWrite,
    /// `O_DSYNC`: each write is durable.
    pub write_through: bool,
    /// Move segments to `archive/` instead of recycling them.
    pub archive: bool,
}

/// When a frame says how far the log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// When enough log has gone by since the last one that did.
    WhenDue,
    /// Also when there is news of it.
    IfNews,
}

impl Claim {
    /// Of the frame that ends a transaction: one that is synced claims what is new, as the log may
    /// end behind it.
    pub fn of_commit(durability: Durability) -> Self {
        if durability == Durability::Sync {
            Self::IfNews
        } else {
            Self::WhenDue
        }
    }
}

/// What [`Log::open`] needs to know.
#[derive(Clone, Debug)]
pub struct LogParams {
    /// Where queues are made.
    pub vfs: Arc<dyn Vfs>,
    /// Directory of the segment files.
    pub directory: Arc<dyn Directory>,
    /// The database's UUID.
    pub uuid: [u8; 16],
    /// Bytes of log in a segment, as chosen when the database was created.
    pub segment_bytes: u64,
    /// This opening of the database. Durable in the control file before the log is opened.
    pub epoch: u64,
    /// The proven end of the log; for a new database [`LogParams::segment_bytes`].
    pub start_lsn: Lsn,
    /// The bytes of the block of `start_lsn` that stand before it, as the reader has verified them
    /// ([`LogReader::end_block`]): they are written again with what follows, so they must not be
    /// read again unverified.
    pub end_block: Vec<u8>,
    /// How it is written.
    pub options: LogOptions,
    /// Recovery needs nothing below, as the durable control file says.
    pub keep_from: Lsn,
    /// The log is begun. One that goes on opens on a full disk, too.
    pub is_new: bool,
    /// It was closed in order, at `start_lsn`: all that there is of it is durable.
    pub is_closed: bool,
    /// Until [`Log::prepare`] wants room a new log, or one that was closed so, may be a part of its
    /// first segment.
    pub may_be_unused: bool,
}

/// The redo log of an open database. See the module.
#[derive(Debug)]
pub struct Log {
    shared: Arc<LogShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the background thread shares with the callers.
#[derive(Debug)]
struct LogShared {
    ring: Ring,
    reserved: CachePadded<AtomicU64>,
    written: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    claims: CachePadded<Claims>,
    epoch: u64,
    write_through: bool,
    capacity_bytes: u64,
    state: Checked<Pipeline>,
    segments: Segments,
    background: Background,
    full: Full,
    /// Frame boundaries that were written, some way apart, for the checkpoint.
    boundaries: Mutex<Vec<u64>>,
    /// See [`Log::checkpoint_lsn`].
    checkpoint: AtomicU64,
    counters: Arc<Counters>,
    poison: Poison,
}

/// The last claim: what it said, and where its frame starts.
#[derive(Debug)]
struct Claims {
    claimed: AtomicU64,
    at: AtomicU64,
}

/// Positions of the log, for `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStat {
    /// End of the last reservation.
    pub current: Lsn,
    /// End of the published prefix.
    pub ready: Lsn,
    /// Handed to the operating system up to here.
    pub written: Lsn,
    /// On stable storage up to here.
    pub durable: Lsn,
    /// Recovery needs nothing below.
    pub keep_from: Lsn,
    /// Segment files that exist.
    pub segments: usize,
    /// Segments ready beyond the current one.
    pub spare_segments: u64,
    /// Bytes promised to the rollbacks of active transactions.
    pub promised_bytes: u64,
    /// Files that are allocated for promises beyond the spare segments.
    pub reserve_files: u64,
    /// Bytes in the ring that are not written yet.
    pub unwritten_bytes: u64,
}

impl Log {
    /// Opens the log for writing at its proven end. Syncs what a killed process may have left
    /// unsynced, makes the end itself durable (what stands there of older epochs is zeroed), and
    /// makes sure that the current segment and at least two more exist.
    pub fn open(params: LogParams, counters: Arc<Counters>, poison: Poison) -> Result<Arc<Self>> {
        params.check()?;
        let start = params.start_lsn.0;
        crate::invariant!(
            params.end_block.len() as u64 == start % LOG_BLOCK as u64,
            "{} bytes before LSN {start} in its block",
            params.end_block.len()
        );
        let segments = Segments::open(
            params.segments(),
            start,
            &params.end_block,
            counters.clone(),
            poison.clone(),
        )?;
        let state = Pipeline::new(start, params.batches()?);
        let position = || CachePadded::new(AtomicU64::new(start));
        let shared = Arc::new(LogShared {
            ring: Ring::new(params.options.buffer_bytes, start, &params.end_block),
            reserved: position(),
            written: position(),
            durable: position(),
            claims: CachePadded::new(Claims {
                claimed: AtomicU64::new(NEVER),
                at: AtomicU64::new(NEVER),
            }),
            epoch: params.epoch,
            write_through: params.options.write_through,
            capacity_bytes: params.options.capacity_bytes,
            state: Checked::new(state),
            segments,
            background: Background::default(),
            full: Full::default(),
            boundaries: Mutex::default(),
            checkpoint: AtomicU64::new(0),
            counters,
            poison,
        });
        let thread = background::start(shared.clone(), params.directory.path())?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Appends a mini-transaction: reserves its LSNs `[start, end)`, copies it, calls
    /// `before_publish(start, end)`, publishes it, and returns `(start, end)`.
    ///
    /// Waits only when the ring is full, which [`Log::wait_for_space`] beforehand makes rare. An
    /// error means that the engine is poisoned; `before_publish` was not called.
    #[inline]
    pub fn append(
        &self,
        payload: &[u8],
        claim: Claim,
        before_publish: impl FnOnce(Lsn, Lsn),
    ) -> Result<(Lsn, Lsn)> {
        let log = &*self.shared;
        crate::invariant!(
            payload.len() <= FRAME_PAYLOAD_MAX,
            "a mini-transaction of {} bytes",
            payload.len()
        );
        log.poison.check()?;
        let claim = log.claimed_in(claim);
        let mut head = FrameHead::new(payload, claim);
        let len = head.frame_len() as u64;
        paranoid!(
            len as usize <= FRAME_MAX && len > payload.len() as u64,
            "a frame of {len} bytes for {} of payload",
            payload.len()
        );
        let start = log.reserved.fetch_add(len, Ordering::AcqRel);
        let end = start + len;
        if let Some(claim) = claim {
            paranoid!(
                claim.0 <= start,
                "durable to LSN {claim}, claimed at {start}"
            );
            log.claims.claimed.store(claim.0, Ordering::Relaxed);
            log.claims.at.store(start, Ordering::Release);
        }
        if end > log.ring.released() + log.ring.capacity() {
            log.wait_for_room(end)?;
        }
        let head = head.seal(Lsn(start), log.epoch);
        paranoid!(
            head.len() as u64 + payload.len() as u64 == len,
            "a head of {} bytes in a frame of {len}",
            head.len()
        );
        // SAFETY: `[start, end)` was reserved by this thread just now, is not published, and there
        // is room for it.
        unsafe {
            log.ring.copy_in(start + 1, &head[1..]);
            log.ring.copy_in(start + head.len() as u64, payload);
        }
        let publish = Publish;
        before_publish(Lsn(start), Lsn(end));
        log.ring.publish(start, head[0]);
        std::mem::forget(publish);
        log.counters.add(Counter::LogBytes, len);
        log.counters.add(Counter::LogMiniTransactions, 1);
        Ok((Lsn(start), Lsn(end)))
    }

    /// Waits while the ring is more than half full. Called where a transaction begins a write,
    /// before it takes latches.
    #[inline]
    pub fn wait_for_space(&self) -> Result<()> {
        let log = &*self.shared;
        let reserved = log.reserved.load(Ordering::Relaxed);
        let released = log.ring.released();
        let used = reserved.saturating_sub(released);
        paranoid!(
            released.is_multiple_of(LOG_BLOCK as u64),
            "the ring is released up to LSN {released}, within a block"
        );
        if used <= log.ring.capacity() / 4 {
            return Ok(());
        }
        log.background.nudge();
        if used <= log.ring.capacity() / 2 {
            return Ok(());
        }
        log.counters.add(Counter::LogWaits, 1);
        let _timing = log.counters.time(Timed::LogBufferWait);
        log.wait_released(
            (reserved - log.ring.capacity() / 2) / LOG_BLOCK as u64 * LOG_BLOCK as u64,
        )
    }

    /// End of the last reservation.
    pub fn current_lsn(&self) -> Lsn {
        Lsn(self.shared.reserved.load(Ordering::Acquire))
    }

    /// Everything below is published. Walks over what was published since the last call.
    pub fn ready_lsn(&self) -> Lsn {
        Lsn(self.shared.ring.advance_ready())
    }

    /// Everything below was handed to the operating system.
    pub fn written_lsn(&self) -> Lsn {
        Lsn(self.shared.written.load(Ordering::Acquire))
    }

    /// Everything below survives power loss.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.shared.durable.load(Ordering::Acquire))
    }

    /// Bytes of log that may be kept as things are: fewer than `log_file_size`, of which rollbacks
    /// were promised a part. What makes room in the log is paced by it.
    pub fn capacity_bytes(&self) -> u64 {
        self.shared.segments.capacity()
    }

    /// Recovery needs nothing below.
    pub fn keep_from(&self) -> Lsn {
        Lsn(self.shared.segments.keep_from())
    }

    /// How far pages on disk have every change, and recovery will not make it again, as the control
    /// file says; 0 before the first checkpoint of this run.
    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.shared.checkpoint.load(Ordering::Acquire))
    }

    /// The control file says so, durably.
    pub fn set_checkpoint(&self, lsn: Lsn) {
        let before = self.shared.checkpoint.fetch_max(lsn.0, Ordering::AcqRel);
        paranoid!(
            before <= lsn.0,
            "a checkpoint at LSN {lsn} behind one at {before}"
        );
    }

    /// Waits until the checkpoint has come to an LSN, or it was `at_most` so long.
    pub fn wait_for_checkpoint(&self, lsn: Lsn, at_most: Duration) {
        self.shared
            .full
            .wait(at_most, || self.checkpoint_lsn() >= lsn);
    }

    /// How far back the log is that a record may be coded against, in bytes.
    pub fn context_reach(&self) -> u64 {
        context_reach(self.shared.capacity_bytes)
    }

    /// Frame boundaries that were written since the last call, in order.
    pub fn take_boundaries(&self) -> Vec<u64> {
        std::mem::take(&mut *self.shared.boundaries.lock())
    }

    /// Calls for a checkpoint, as the log is short of room. False: no thread would write one.
    pub fn call_checkpoint(&self) -> bool {
        self.shared.full.call()
    }

    /// Before the thread that writes checkpoints is started: from now on it may be called for one,
    /// although it does not run yet.
    pub fn answer_calls(&self) {
        self.shared.segments.pace();
        self.shared.full.listen();
    }

    /// For that thread: waits for a call, `at_most` so long; whether there was one.
    pub fn next_call(&self, at_most: Duration) -> bool {
        self.shared.full.next_call(at_most)
    }

    /// A number that grows with each round of that thread that is over.
    pub fn checkpoint_rounds(&self) -> u64 {
        self.shared.full.rounds()
    }

    /// For that thread, behind each round: why it failed, if it did.
    pub fn set_checkpoint_failure(&self, failure: Option<Error>) {
        self.shared.full.set_failure(failure);
    }

    /// Why the last round failed, if it did.
    pub fn checkpoint_failure(&self) -> Option<Error> {
        self.shared.full.failure()
    }

    /// There are no more checkpoints to call for.
    pub fn end_calls(&self) {
        self.shared.full.stop();
    }

    /// Waits until room was made in the log, or it was `at_most` so long.
    pub fn wait_for_room(&self, at_most: Duration) {
        paranoid!(!at_most.is_zero(), "no time to wait for room in the log");
        self.shared.full.wait(at_most, || self.has_room());
    }

    /// Lets the log be longer than `log_file_size`: what keeps it cannot be moved.
    pub fn grow_beyond(&self) {
        self.shared.segments.raise_bound();
    }

    /// Whether the disk has refused a file that the log needs.
    pub fn is_disk_full(&self) -> bool {
        self.shared.segments.is_short()
    }

    /// Bytes appended and not yet handed to the operating system.
    pub fn unwritten_bytes(&self) -> u64 {
        self.current_lsn().0.saturating_sub(self.written_lsn().0)
    }

    /// Waits until the log below `lsn` is handed to the operating system.
    pub fn wait_written(&self, lsn: Lsn) -> Result<()> {
        self.shared.wait(lsn.0, Goal::Written)
    }

    /// Waits until the log below `lsn` survives power loss.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.shared.wait(lsn.0, Goal::Durable)
    }

    /// Lets the background thread write and sync what is published, soon; does not wait.
    pub fn flush_in_background(&self) {
        self.shared.background.request_flush();
    }

    /// Recovery no longer needs anything below `lsn`: call this only once the checkpoint that says
    /// so is durable. Segments wholly below are recycled or archived.
    pub fn set_keep_from(&self, lsn: Lsn) {
        let log = &*self.shared;
        log.segments.set_keep_from(lsn.0);
        if log
            .segments
            .wants_upkeep(log.reserved.load(Ordering::Acquire))
        {
            log.background.nudge();
        }
        log.full.announce();
    }

    /// To be called before log is written on behalf of a statement, with no latch held: fails when
    /// the disk is full and what is left of the log is promised to rollbacks.
    #[inline]
    pub fn prepare(&self) -> Result<()> {
        let log = &*self.shared;
        if log.segments.has_room(log.reserved.load(Ordering::Relaxed)) {
            return Ok(());
        }
        log.make_room()
    }

    /// As [`Log::prepare_rollback_step`], for a rollback that was promised no log.
    #[inline]
    pub fn prepare_step_beside(&self, step: u64) -> Result<()> {
        let log = &*self.shared;
        paranoid!(step > 0, "a step of a rollback that logs nothing");
        let has_room = || {
            let reserved = log.reserved.load(Ordering::Relaxed);
            log.segments.has_room_beside(reserved, step)
        };
        if has_room() {
            return Ok(());
        }
        match log.make_room() {
            Err(error) if !has_room() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether no statement has logged anything since the database was created.
    pub fn is_unused(&self) -> bool {
        self.shared.segments.is_unused()
    }

    /// Whether [`Log::prepare`] would succeed as things are: for work that can as well be left.
    pub fn has_room(&self) -> bool {
        let log = &*self.shared;
        log.segments.has_room(log.reserved.load(Ordering::Relaxed))
    }

    /// Before each step of a rollback, with no latch held: fails rather than begin a step, of at
    /// most `step` bytes, that the log may not take on a full disk.
    #[inline]
    pub fn prepare_rollback_step(&self, step: u64) -> Result<()> {
        let log = &*self.shared;
        paranoid!(step > 0, "a step of a rollback that logs nothing");
        let has_room = || {
            let reserved = log.reserved.load(Ordering::Relaxed);
            log.segments.has_room_for_step(reserved, step)
        };
        if has_room() {
            return Ok(());
        }
        match log.make_room() {
            Err(error) if !has_room() => Err(error),
            _ => Ok(()),
        }
    }

    /// Promises `bytes` of log, whole units of `PROMISE_UNIT`, to a transaction, for its rollback;
    /// `first`: it holds no promise yet. No latch may be held. Fails when the disk is full.
    pub fn promise(&self, bytes: u64, first: bool) -> Result<()> {
        let log = &*self.shared;
        paranoid!(bytes > 0, "a promise of nothing");
        self.promise_regardless(bytes, first);
        if log
            .segments
            .lacks_reserve(log.reserved.load(Ordering::Relaxed))
            && !log.segments.is_short()
        {
            log.background.nudge();
        }
        let kept = self.prepare();
        if kept.is_err() {
            log.segments.take_back(bytes, u64::from(first));
        }
        kept
    }

    /// As [`Log::promise`], for a transaction that recovery found: what it logged is there already.
    pub fn promise_regardless(&self, bytes: u64, first: bool) {
        self.shared.segments.add_promise(bytes, u64::from(first));
    }

    /// Takes back promised bytes that are not needed; `last`: all that the transaction held.
    pub fn take_back_promise(&self, bytes: u64, last: bool) {
        self.shared.segments.take_back(bytes, u64::from(last));
        self.shared.full.announce();
    }

    /// What a transaction may be promised for one operation: less where much is promised.
    #[inline]
    pub fn promise_share(&self) -> u64 {
        self.shared.segments.promise_share()
    }

    /// Files of the log's directory that opening has set aside.
    pub fn set_aside(&self) -> Vec<SetAside> {
        self.shared.segments.aside()
    }

    /// Where the log stands.
    pub fn stat(&self) -> LogStat {
        let log = &*self.shared;
        // Fields are read in the order in which they stand: each is at least the one before.
        let stat = LogStat {
            durable: self.durable_lsn(),
            written: self.written_lsn(),
            ready: self.ready_lsn(),
            current: self.current_lsn(),
            keep_from: Lsn(log.segments.keep_from()),
            segments: log.segments.count(),
            spare_segments: log.segments.spares(self.current_lsn().0),
            promised_bytes: log.segments.promised(),
            reserve_files: log.segments.reserve_files(),
            unwritten_bytes: self.unwritten_bytes(),
        };
        if ON {
            stat.check();
        }
        stat
    }

    /// Makes everything durable and stops the background thread. Nothing may be appended at the
    /// same time. Dropping the log does the same and ignores errors.
    pub fn close(&self) -> Result<()> {
        self.shared.background.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let joined = thread.join();
            crate::invariant!(joined.is_ok(), "the thread ink-log panicked");
        }
        self.shared.poison.check()?;
        let end = self.current_lsn();
        if mutants::on(Mutant::ClosedLogUnsynced) {
            return self.wait_written(end);
        }
        self.wait_durable(end)
    }
}

impl Check for LogStat {
    fn check(&self) {
        paranoid!(
            self.durable <= self.written
                && self.written <= self.ready
                && self.ready <= self.current,
            "positions of the log out of order: {self:?}"
        );
        paranoid!(
            self.promised_bytes.is_multiple_of(PROMISE_UNIT),
            "a part of a unit is promised: {self:?}"
        );
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A caller that wants the error calls `close`.
        let _ = self.close();
    }
}

/// Ends the process when `before_publish` panics: the hole in the log would stop all threads.
struct Publish;

impl Drop for Publish {
    fn drop(&mut self) {
        crate::invariant!(false, "a reserved mini-transaction was not published");
    }
}

/// How far back the log is that a record may be coded against: a checkpoint keeps as much.
fn context_reach(capacity_bytes: u64) -> u64 {
    let reach = (capacity_bytes / CONTEXT_REACH_PARTS).min(CONTEXT_REACH_MAX);
    paranoid!(
        reach < capacity_bytes,
        "a reach of {reach} bytes in a log of {capacity_bytes}"
    );
    reach
}

impl LogShared {
    /// The claim for a frame about to be built, if it shall have one.
    #[inline]
    fn claimed_in(&self, claim: Claim) -> Option<Lsn> {
        let durable = self.durable.load(Ordering::Acquire);
        let at = self.claims.at.load(Ordering::Acquire);
        let due = at == NEVER
            || claim == Claim::IfNews && self.claims.claimed.load(Ordering::Relaxed) != durable
            || self.reserved.load(Ordering::Relaxed).saturating_sub(at) >= CLAIM_EVERY;
        due.then_some(Lsn(durable))
    }

    /// Waits until `[.., end)` fits into the ring. The reservation stands.
    #[cold]
    fn wait_for_room(&self, end: u64) -> Result<()> {
        self.counters.add(Counter::LogWaits, 1);
        let _timing = self.counters.time(Timed::LogBufferWait);
        let over = end.saturating_sub(self.ring.capacity());
        paranoid!(
            over > 0,
            "waiting for room up to LSN {end}, which the ring has"
        );
        self.wait_released(over)
    }
}

impl LogParams {
    fn check(&self) -> Result<()> {
        let invalid = |name: &str, value: String, reason: &str| {
            Err(Error::InvalidOption {
                name: name.to_owned(),
                value,
                reason: reason.to_owned(),
            })
        };
        if !segment_bytes_is_valid(self.segment_bytes) {
            let reason = "must be a power of two from 4096 to 64m";
            return invalid("segment_bytes", self.segment_bytes.to_string(), reason);
        }
        let buffer = self.options.buffer_bytes;
        if !buffer.is_power_of_two() || buffer < 2 * FRAME_PAYLOAD_MAX {
            let reason = "must be a power of two, at least 2m";
            return invalid("log_buffer_size", buffer.to_string(), reason);
        }
        if self.start_lsn.0 == 0 {
            return invalid("start_lsn", "0".to_owned(), "must not be zero");
        }
        Ok(())
    }

    fn segments(&self) -> SegmentParams {
        // Half a ring may be reserved in one burst, before segments are made for it.
        let ring_bytes = self.options.buffer_bytes as u64;
        let capacity_bytes = self.options.capacity_bytes;
        let files_max = capacity_bytes / (LOG_BLOCK as u64 + self.segment_bytes);
        // An earlier run may have made segments that are long for this log.
        let files_max = files_max.max(FILES_MIN);
        let ahead = (2 + ring_bytes / 2 / self.segment_bytes).min(files_max / 3);
        paranoid!(
            ahead > 0 && ahead + 1 < files_max,
            "{ahead} segments ahead of {files_max}"
        );
        SegmentParams {
            directory: self.directory.clone(),
            uuid: self.uuid,
            segment_bytes: self.segment_bytes,
            direct: !self.options.buffering,
            dsync: self.options.write_through,
            archive: self.options.archive,
            keep_from: self.keep_from.0,
            ahead,
            is_new: self.is_new,
            is_closed: self.is_closed,
            may_be_unused: self.may_be_unused,
            files_max,
            capacity_bytes,
            lag_bytes: context_reach(capacity_bytes) + WRITE_BYTES,
        }
    }

    fn batches(&self) -> Result<Option<Vec<Box<dyn inkstone_io::Batch>>>> {
        if self.options.write == LogWrite::Sync {
            return Ok(None);
        }
        let wanted = Pipeline::batches_wanted(self.options.buffering);
        let batches: std::io::Result<Vec<_>> =
            (0..wanted).map(|_| self.vfs.batch(BATCH_DEPTH)).collect();
        let batches =
            batches.map_err(|e| Error::io("make a queue for", self.directory.path(), e))?;
        Ok(Some(batches))
    }
}

// A frame and the block of its start always fit the smallest ring, so a thread that waits for room
// gets it.
const _: () = assert!(FRAME_MAX + 2 * LOG_BLOCK <= 2 * FRAME_PAYLOAD_MAX);
