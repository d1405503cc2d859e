//! Checkpoints: how far back recovery must go.
//!
//! A checkpoint is only a statement of how far the page cleaners have come. It is written to the
//! control file, and lets log segments be recycled:
//! - *checkpoint LSN*: pages on disk have every change below it. The smaller of the log's ready LSN
//!   (read first) and the oldest dirty LSN.
//! - *scan start*: where recovery begins to read. At or below the checkpoint, the first record of
//!   every unfinished transaction, and whatever contextual records after the checkpoint are coded
//!   against.
//!
//! Before the control file is written the log is made durable up to its present end: a transaction
//! that has ended by now, and is thus not counted, must not lose its end in a crash.
//!
//! Before that it is looked whether the control file is still ours (`ControlPlace`).
//!
//! Also before it, every sync that is under way must end well: one that fails may be of pages that
//! another sync has just called durable (`poison/syncs/mod.rs`).
//!
//! Then place maps say where pages are that have landed since (`store/placed`), and the page LSN
//! map learns what recovery will need of the pages.
//!
//! A transaction that would keep too much of the log has its undo saved in the undo file
//! (`txn/undo_place.rs`): then only what comes after that is needed. Writers for which the log has
//! no room call for a checkpoint (`Core::wait_for_log`); none waits for a transaction's latch.
//!
//! The log of a file that is being made or dropped is kept until the catalog says the same
//! ([`Checkpoints::hold`]).
//!
//! While the database is copied (`copying`) the log is kept that is not copied yet, too.
//!
//! Over a quiet log (no transaction has written and not ended, nothing was logged after the
//! checkpoint LSN) the scan start is the checkpoint itself.

use super::Inner;
use crate::control::{ControlFile, ControlPlace};
use crate::counters::Counter;
use crate::log::{BOUNDARY_DISTANCE, Log};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::paranoid::{MANY, paranoid};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::trace;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::record::Record;
use inkstone_format::{Lsn, SpaceId};
use std::sync::Arc;

/// The control file and what checkpoints remember.
pub(crate) struct Checkpoints {
    state: Mutex<State>,
    /// Beside the state, whose latch is held over I/O.
    pub place: ControlPlace,
    /// Where this run's log begins: frames below have older epochs.
    run_start: Lsn,
    /// The LSN of a [`Hold`]; [`NOT_HELD`].
    held: AtomicU64,
}

const NOT_HELD: u64 = u64::MAX;

/// Why a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Its time has come: only if there is something new to say.
    Routine,
    /// It was asked for: in any case.
    Demand,
    /// The database is being closed, and all is written: in any case, as the end of the log.
    Close,
}

/// The scan start stays at or below a place in the log as long as this lives.
pub(crate) struct Hold<'a> {
    held: &'a AtomicU64,
}

impl Hold<'_> {
    /// From now on what is logged later is enough.
    pub fn renew(&self, ready: Lsn) {
        let before = self.held.swap(ready.0, Ordering::SeqCst);
        paranoid!(
            before <= ready.0,
            "the log is held from LSN {before} on, and then from {ready}"
        );
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let before = self.held.swap(NOT_HELD, Ordering::SeqCst);
        paranoid!(before != NOT_HELD, "a hold of the log ended before its end");
    }
}

/// A copy of the database that is being made; dropped, it needs nothing any more.
pub(crate) struct CopyUnderWay<'c> {
    checkpoints: &'c Checkpoints,
    log: &'c Log,
    /// What the control file said when it was begun.
    pub control: Control,
}

impl CopyUnderWay<'_> {
    /// The log is copied up to an LSN.
    pub fn log_is_copied(&self, to: Lsn) {
        let mut state = self.checkpoints.state.lock();
        if let Some(copy) = &mut state.copy {
            paranoid!(copy.log <= to, "a copy of the log goes back to LSN {to}");
            copy.log = to;
        }
        self.log.set_keep_from(state.keep_from());
    }
}

impl Drop for CopyUnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.checkpoints.state.lock();
        let before = state.copy.take();
        paranoid!(before.is_some(), "a copy has ended before its end");
        self.log.set_keep_from(state.keep_from());
    }
}

struct State {
    control: ControlFile,
    /// What a copy of the database needs that is being made.
    copy: Option<Copied>,
    /// Frame boundaries in ascending order: where a scan may begin.
    boundaries: Vec<Lsn>,
}

/// A copy under way: it will be recovered from what the control file said when it was begun.
#[derive(Clone, Copy)]
struct Copied {
    checkpoint: Lsn,
    /// Log from here on is not copied yet.
    log: Lsn,
}

impl State {
    /// From where on the log is kept.
    fn keep_from(&self) -> Lsn {
        let scan_start = self.control.current().scan_start_lsn;
        self.copy
            .map_or(scan_start, |copy| copy.log.min(scan_start))
    }

    /// Where a scan may begin stands in order, and not before the present scan start of this run.
    fn check(&self) {
        let first = self.boundaries.len().saturating_sub(MANY);
        paranoid!(
            self.boundaries[first..].is_sorted_by(|a, b| a < b),
            "frame boundaries are not in order: {:?}",
            &self.boundaries[first..]
        );
        let control = self.control.current();
        paranoid!(
            control.scan_start_lsn <= control.checkpoint_lsn
                && control.checkpoint_lsn <= control.known_durable_lsn,
            "the control file has a scan from LSN {} for a checkpoint at {}, durable to {}",
            control.scan_start_lsn,
            control.checkpoint_lsn,
            control.known_durable_lsn
        );
    }
}

impl Checkpoints {
    pub fn new(control: ControlFile, run_start: Lsn) -> Self {
        let place = control.place();
        let state = State {
            control,
            copy: None,
            boundaries: vec![run_start],
        };
        Self {
            place,
            state: Mutex::new(state),
            run_start,
            held: AtomicU64::new(NOT_HELD),
        }
    }

    /// Keeps the log from `ready` on, where the log stands, for recovery to read. One at a time:
    /// the caller holds the latch of DDL.
    pub fn hold(&self, ready: Lsn) -> Hold<'_> {
        let held = &self.held;
        let before = held.swap(ready.0, Ordering::SeqCst);
        paranoid!(
            before == NOT_HELD,
            "the log is held from LSN {before} on, and from {ready}"
        );
        Hold { held }
    }

    /// To be read after the log's ready LSN: a later holder of the log logs behind that.
    fn held(&self) -> Option<Lsn> {
        let held = self.held.load(Ordering::SeqCst);
        (held != NOT_HELD).then_some(Lsn(held))
    }

    /// A copy of the database begins, which needs the log from the scan start on. One at a time.
    pub fn begin_copy<'c>(&'c self, log: &'c Log) -> CopyUnderWay<'c> {
        let mut state = self.state.lock();
        let control = state.control.current().clone();
        let before = state.copy.replace(Copied {
            checkpoint: control.checkpoint_lsn,
            log: control.scan_start_lsn,
        });
        paranoid!(before.is_none(), "two copies of a database at once");
        CopyUnderWay {
            checkpoints: self,
            log,
            control,
        }
    }

    /// The checkpoint that all recoveries to come begin at, or a later one.
    pub fn behind_recoveries(&self) -> Lsn {
        let state = self.state.lock();
        let checkpoint = state.control.current().checkpoint_lsn;
        paranoid!(
            state.copy.is_none_or(|copy| copy.checkpoint <= checkpoint),
            "a copy goes by a checkpoint that there was not"
        );
        state.copy.map_or(checkpoint, |copy| copy.checkpoint)
    }

    /// The control file's present content.
    pub fn control(&self) -> Control {
        self.state.lock().control.current().clone()
    }
}

impl Inner {
    /// Remembers where the log stands, as a place where a scan may begin.
    pub(super) fn note_boundary(&self) {
        let mut state = self.checkpoints.state.lock();
        let ready = self.core.storage.log.ready_lsn();
        // Those that were written since the last time, and the present end.
        let written = self.core.storage.log.take_boundaries();
        for boundary in written.into_iter().map(Lsn).chain([ready]) {
            let last = state.boundaries.last().copied().unwrap_or_default();
            if boundary.0 >= last.0 + BOUNDARY_DISTANCE {
                state.boundaries.push(boundary);
            }
        }
        state.check();
    }

    /// Bytes between the checkpoint and the end of the log.
    pub(crate) fn checkpoint_age(&self) -> u64 {
        let checkpoint = self
            .checkpoints
            .state
            .lock()
            .control
            .current()
            .checkpoint_lsn;
        self.core
            .storage
            .log
            .current_lsn()
            .0
            .saturating_sub(checkpoint.0)
    }

    /// Bytes of log that recovery would have to read.
    pub(crate) fn kept_log(&self) -> u64 {
        let scan_start = self
            .checkpoints
            .state
            .lock()
            .control
            .current()
            .scan_start_lsn;
        self.core
            .storage
            .log
            .current_lsn()
            .0
            .saturating_sub(scan_start.0)
    }

    /// Writes a checkpoint, if the occasion wants one.
    pub(crate) fn checkpoint(&self, occasion: Occasion) -> Result<()> {
        let begun = trace::Begun::now();
        let (core, log) = (&self.core, &self.core.storage.log);
        let mut state = self.checkpoints.state.lock();
        let old = state.control.current().clone();
        let ready = log.ready_lsn();
        let dirty = core.storage.pool.oldest_dirty_lsn();
        let checkpoint = dirty
            .filter(|_| !mutants::on(Mutant::CheckpointTooHigh))
            .map_or(ready, |dirty| dirty.min(ready))
            .max(old.checkpoint_lsn);
        paranoid!(
            dirty.is_none_or(|dirty| dirty >= old.checkpoint_lsn)
                || mutants::on(Mutant::CheckpointTooHigh)
                || mutants::on(Mutant::CheckpointBeforeLateRedo),
            "the disk lacks a change of LSN {dirty:?}, below the checkpoint at {}",
            old.checkpoint_lsn
        );
        let oldest_transaction = core.trxs.oldest_first_lsn();
        // Nothing was logged since `ready` was read, by transactions that were active then or are
        // now.
        let held = self.checkpoints.held();
        let quiet =
            oldest_transaction.is_none() && held.is_none() && log.current_lsn() == checkpoint;
        let scan_start = if quiet {
            state.boundaries = vec![checkpoint];
            checkpoint
        } else {
            let needed = oldest_transaction.into_iter().chain(held).min();
            let scan_start = self.scan_start(&mut state, &old, checkpoint, needed);
            paranoid!(
                needed.is_none_or(|needed| scan_start <= needed),
                "the scan starts at LSN {scan_start}, and {needed:?} is needed"
            );
            scan_start
        };
        paranoid!(
            scan_start <= checkpoint && scan_start >= old.scan_start_lsn,
            "the scan starts at LSN {scan_start}, before at {}, for a checkpoint at {checkpoint}",
            old.scan_start_lsn
        );
        let is_news = checkpoint != old.checkpoint_lsn || scan_start != old.scan_start_lsn;
        if occasion == Occasion::Routine && !is_news {
            return Ok(());
        }
        self.checkpoints.place.check(&*self.directory)?;
        let end = log.current_lsn();
        log.wait_durable(end)?;
        let scan_start_epoch = if scan_start >= self.checkpoints.run_start {
            old.epoch
        } else {
            old.scan_start_epoch
        };
        paranoid!(
            checkpoint <= end && ready <= end,
            "a checkpoint at LSN {checkpoint}, where the log is ready to {ready}, and ends at {end}"
        );
        let control = Control {
            checkpoint_lsn: checkpoint,
            scan_start_lsn: scan_start,
            scan_start_epoch,
            known_durable_lsn: end,
            next_trx_id: core.trxs.peek_next_trx_id(),
            next_space_id: SpaceId(self.next_space.load(Ordering::SeqCst)),
            version_epoch: old.version_epoch.max(core.versions.highest_epoch()),
            // Work that went on while the database was being closed made it unclean.
            clean_shutdown: occasion == Occasion::Close && checkpoint == end,
            ..old
        };
        let grows = |now: &Control, before: &Control| {
            now.next_trx_id >= before.next_trx_id
                && now.next_space_id >= before.next_space_id
                && now.known_durable_lsn >= before.known_durable_lsn
        };
        paranoid!(
            grows(&control, state.control.current()),
            "a checkpoint gives numbers out again: {control:?}"
        );
        let poison = &core.storage.poison;
        poison.settle_syncs(poison.sync_moment())?;
        self.files.settle_places(core.storage.pool.dirty_pages())?;
        self.files.page_lsns().settle_before(checkpoint)?;
        state.control.write(&*self.directory, &control)?;
        state.check();
        core.storage.counters.add(Counter::Checkpoints, 1);
        log.set_checkpoint(checkpoint);
        log.set_keep_from(state.keep_from());
        drop(state);
        trace::checkpoint(checkpoint.0, scan_start.0, &begun);
        Ok(())
    }

    fn scan_start(
        &self,
        state: &mut State,
        old: &Control,
        checkpoint: Lsn,
        needed: Option<Lsn>,
    ) -> Lsn {
        let (reach, run_start) = (
            self.core.storage.log.context_reach(),
            self.checkpoints.run_start,
        );
        let mut reach = Lsn(checkpoint.0.saturating_sub(reach));
        if checkpoint >= run_start {
            // Records of this run are coded against this run's alone: the log of the run before it
            // must not wait for more of this one's, for which it may leave no room.
            reach = reach.max(run_start);
        }
        let behind = state
            .boundaries
            .iter()
            .rposition(|&boundary| boundary <= reach);
        let context = match behind {
            Some(at) => {
                state.boundaries.drain(..at);
                state.boundaries[0]
            }
            None => old.scan_start_lsn,
        };
        let wanted = [
            Some(context),
            needed,
            self.core.far_context_floor(checkpoint),
        ]
        .into_iter()
        .flatten()
        .fold(checkpoint, Lsn::min);
        // Frames of earlier runs have epochs that only the old scan start knows.
        paranoid!(
            !state.boundaries.is_empty(),
            "no frame boundary is left behind LSN {reach}"
        );
        if wanted < run_start {
            return old.scan_start_lsn;
        }
        wanted.max(old.scan_start_lsn)
    }

    /// Saves the undo of transactions that keep more than `limit` bytes of the log.
    pub(super) fn save_long_undo(&self, limit: u64) -> Result<()> {
        let mut failed = None;
        let writers = self.core.writers();
        for (at, writer) in writers.iter().enumerate().take(MANY) {
            paranoid!(
                !writers[..at].iter().any(|other| Arc::ptr_eq(other, writer)),
                "a transaction is entered twice among those that have written"
            );
        }
        self.core.bound_unsaved_undo(&writers);
        for writer in writers {
            if let Err(error) = self.core.save_undo(&writer, limit) {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Notes in the log that a checkpoint was written (for human readers).
    pub(super) fn log_checkpoint(&self) -> Result<(), Error> {
        let control = self.checkpoints.control();
        let mut mtr = Mtr::new(&self.core.storage);
        mtr.note(&Record::Checkpoint {
            checkpoint: control.checkpoint_lsn,
            scan_start: control.scan_start_lsn,
        });
        mtr.commit().map(drop)
    }
}
