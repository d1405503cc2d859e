//! Syncs: one of a file at a time, and what rests on several of them.
//!
//! # Why
//!
//! A kernel reports a failed sync once, and takes the pages that it lost for clean: the next sync
//! of the same file succeeds, and says nothing of them. A failed flush of a device's cache may have
//! dropped what another file's sync calls durable afterwards.
//!
//! # Promises
//!
//! 1. A file with [`FileSyncs`] has one sync under way. A thread that wants one while it runs joins
//!    the next, and all that joined share its result. Tested by
//!    `a_sync_wanted_while_one_runs_joins_the_next`,
//!    `a_sync_covers_only_what_was_written_before_it_began`. Tested by the simulator
//!    (`page-syncs-apart`).
//! 2. A failed sync has poisoned the engine before any thread is told of its end: a thread that
//!    leads or joins a sync of the same file afterwards, or waits for it, gets the error. Tested by
//!    `a_failed_sync_poisons_before_any_thread_is_told`. Tested by the simulator
//!    (`page-syncs-apart`).
//! 3. [`Poison::settle_syncs`] returns `Ok` only if every sync that was under way at its moment
//!    ended well. A checkpoint is stated, and copies in the doublewrite file are given up, only
//!    then. Tested by `a_moment_is_settled_when_the_syncs_before_it_have_ended_well`.
//!
//! # Latches
//!
//! The states here are held for a few instructions, never over I/O; nothing else is taken under
//! them.

use super::Poison;
use crate::Result;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::{Condvar, Mutex};
use smallvec::SmallVec;
use std::path::Path;

/// The syncs of a database that are under way.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    state: Mutex<UnderWay>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// The number of the next one to begin.
    next: u64,
    numbers: SmallVec<[u64; 8]>,
}

/// Syncs with a lower number had begun.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SyncMoment(u64);

impl Syncs {
    pub fn moment(&self) -> SyncMoment {
        SyncMoment(self.state.lock().next)
    }

    pub fn wait_for(&self, moment: SyncMoment) {
        if mutants::on(Mutant::PageSyncsApart) {
            return;
        }
        let mut state = self.state.lock();
        while state.numbers.iter().any(|&n| n < moment.0) {
            self.ended.wait(&mut state);
        }
    }

    fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        let number = state.next;
        paranoid!(
            state.numbers.last().is_none_or(|last| *last < number),
            "sync {number} begins behind {:?}",
            state.numbers
        );
        state.next += 1;
        state.numbers.push(number);
        number
    }

    fn end(&self, number: u64) {
        let mut state = self.state.lock();
        let before = state.numbers.len();
        state.numbers.retain(|n| *n != number);
        paranoid!(
            state.numbers.len() + 1 == before && number < state.next,
            "sync {number} ended, and was not under way"
        );
        drop(state);
        self.ended.notify_all();
    }
}

/// A sync under way, whose result is not known.
#[derive(Debug)]
pub(crate) struct SyncUnderWay {
    poison: Poison,
    number: u64,
}

impl SyncUnderWay {
    pub(super) fn new(poison: Poison) -> Self {
        let number = poison.shared.syncs.begin();
        Self { poison, number }
    }

    /// Takes notice of the result, before any thread is told that the sync has ended.
    pub fn end(self, path: &Path, result: std::io::Result<()>) -> Result<()> {
        match result {
            Ok(()) if mutants::on(Mutant::PageSyncsApart) => Ok(()),
            Ok(()) => self.poison.check(),
            Err(error) => {
                let path = path.display();
                Err(self
                    .poison
                    .set(format_args!("{path} could not be synced: {error}")))
            }
        }
    }
}

impl Drop for SyncUnderWay {
    fn drop(&mut self) {
        self.poison.shared.syncs.end(self.number);
    }
}

/// The syncs of one file.
#[derive(Debug, Default)]
pub(crate) struct FileSyncs {
    state: Mutex<OfFile>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct OfFile {
    under_way: bool,
    /// Syncs that have begun.
    begun: u64,
    /// The last that ended well, of those.
    succeeded: u64,
}

/// The first sync that begins after this was asked for: it covers what had been written by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedSync(u64);

/// What a thread does about a sync that it wants.
pub(crate) enum SyncTurn<'f> {
    /// It has ended well.
    Done,
    /// It is the caller's to run.
    Lead(SyncLead<'f>),
    /// One is under way. See [`FileSyncs::wait`].
    Busy,
}

impl FileSyncs {
    /// To be asked for when the writes that the sync is to cover have ended.
    pub fn want(&self) -> WantedSync {
        WantedSync(self.state.lock().begun + 1)
    }

    /// Whether the wanted sync is done, must wait for another, or is the caller's to run. After a
    /// failed sync it is the next caller's to run: callers check the poison first.
    pub fn turn(&self, wanted: WantedSync) -> SyncTurn<'_> {
        let mut state = self.state.lock();
        if mutants::on(Mutant::PageSyncsApart) {
            return SyncTurn::Lead(SyncLead {
                syncs: self,
                number: state.begun,
            });
        }
        paranoid!(
            state.succeeded <= state.begun && wanted.0 <= state.begun + 1,
            "sync {} is wanted, {} have begun, {} ended well",
            wanted.0,
            state.begun,
            state.succeeded
        );
        if state.succeeded >= wanted.0 {
            SyncTurn::Done
        } else if state.under_way {
            SyncTurn::Busy
        } else {
            state.under_way = true;
            state.begun += 1;
            SyncTurn::Lead(SyncLead {
                syncs: self,
                number: state.begun,
            })
        }
    }

    /// Waits until no sync is under way, or the wanted one has ended well.
    pub fn wait(&self, wanted: WantedSync) {
        let mut state = self.state.lock();
        while state.under_way && state.succeeded < wanted.0 {
            self.ended.wait(&mut state);
        }
    }

    /// Runs the wanted sync, or waits for the thread that does.
    pub fn sync(
        &self,
        poison: &Poison,
        path: &Path,
        run: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<()> {
        let wanted = self.want();
        loop {
            poison.check()?;
            match self.turn(wanted) {
                SyncTurn::Done => return poison.check(),
                SyncTurn::Busy => self.wait(wanted),
                SyncTurn::Lead(lead) => {
                    let under_way = poison.begin_sync();
                    return lead.end(under_way.end(path, run()));
                }
            }
        }
    }
}

/// The right, and the duty, to run a sync. Dropped without a result it counts as failed.
pub(crate) struct SyncLead<'f> {
    syncs: &'f FileSyncs,
    number: u64,
}

impl SyncLead<'_> {
    /// Tells the waiters. A failure has poisoned the engine by now ([`SyncUnderWay::end`]).
    pub fn end(self, result: Result<()>) -> Result<()> {
        if result.is_ok() {
            let mut state = self.syncs.state.lock();
            paranoid!(
                self.number <= state.begun,
                "sync {} ended, {} have begun",
                self.number,
                state.begun
            );
            state.succeeded = state.succeeded.max(self.number);
        }
        result
    }
}

impl Drop for SyncLead<'_> {
    fn drop(&mut self) {
        let under_way = std::mem::take(&mut self.syncs.state.lock().under_way);
        paranoid!(
            under_way || mutants::on(Mutant::PageSyncsApart),
            "sync {} of a file ended, and was not under way",
            self.number
        );
        self.syncs.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
