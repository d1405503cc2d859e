//! The open files of tablespaces: a cache of handles with a limit.
//!
//! # Promises
//!
//! 1. At most `limit` of these files are open at once. Where the process is given fewer
//!    descriptors, one file is closed for another one, of whatever kind
//!    ([`with_descriptor`](OpenFiles::with_descriptor)): too few descriptors are an error only when
//!    none of these files is open. Tested by `no_more_files_are_open_than_the_limit_says`,
//!    `too_few_descriptors_close_an_idle_file`.
//! 2. A file in use ([`FileInUse`]) stays open. The others are closed in the order of a clock:
//!    roughly, those that were unused for longest first. Tested by
//!    `a_file_in_use_stays_open_and_others_wait_for_it`, `files_that_are_used_often_stay_open`.
//! 3. A file is closed only after a sync has covered everything that was done to it since the last
//!    one, as a kernel tells of a failed write-back to the handles that were open then, and perhaps
//!    to no later one. So a sync of a file that was closed and opened again means what it always
//!    means. Tested by `a_file_is_synced_before_it_is_closed`,
//!    `a_failed_write_back_is_told_of_a_file_that_was_closed`.
//! 4. A removed file is not opened again. Tested by `a_removed_file_is_closed_by_its_last_user`.
//!
//! # Which thread waits for which
//!
//! A thread that waits for a handle ([`TableFile::acquire`]) has none in use, and holds no latch
//! that a thread with a handle needs: so threads with a handle go on, and let go of it. A thread
//! with a handle in use takes more only if there is no wait ([`TableFile::try_acquire`]). A thread
//! that runs a sync of a file, or waits for the sync of another thread, has the file in use.
//!
//! # Latches
//!
//! `OpenFiles::state`, then a `TableFile::slot`. Never held across I/O.

use super::table_file::{FileInUse, TableFile};
use crate::paranoid::{MANY, paranoid};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use inkstone_io::File;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether an operation failed because the process, or the system, has too many files open.
pub(super) fn wants_descriptor(error: &std::io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

/// The cache. See the [module](self).
#[derive(Debug)]
pub(crate) struct OpenFiles {
    limit: usize,
    state: Mutex<State>,
    /// Told when a file is let go of, or closed, and a thread waits.
    let_go: Condvar,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Files that are open, or about to be.
    count: usize,
    /// The open files, in the order in which the hand of the clock meets them.
    round: BTreeMap<u64, Arc<TableFile>>,
    /// The next place at the end of the round.
    next: u64,
}

/// What is given up for another file.
enum Victim {
    /// This handle.
    Clean(Arc<dyn File>),
    /// This file, which is in use by the finder now, after a sync.
    Dirty(Arc<TableFile>),
}

impl OpenFiles {
    /// An empty cache of at most `limit` files.
    pub fn new(limit: usize) -> Self {
        paranoid!(limit > 0, "no file may be open");
        Self {
            limit,
            state: Mutex::default(),
            let_go: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// How many files are open.
    pub fn count(&self) -> usize {
        self.state.lock().count
    }

    /// Runs what opens something, and again after a file was closed for it, as long as there are
    /// too few descriptors. The caller has no file in use.
    pub fn with_descriptor<T>(&self, open: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
        loop {
            match open() {
                Err(error) if wants_descriptor(&error) && self.close_one(true) => {}
                result => return result,
            }
        }
    }

    /// Takes a place for a file that is to be opened; false if one must be waited for, and the
    /// caller does not.
    pub(super) fn take_place(&self, waits: bool) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.count < self.limit {
                state.count += 1;
                state.check(self.limit);
                return true;
            }
            drop(state);
            if !self.close_one(waits) {
                return false;
            }
        }
    }

    pub(super) fn give_place_back(&self) {
        {
            let mut state = self.state.lock();
            paranoid!(state.count > 0, "a place was given back that was not taken");
            state.count -= 1;
            state.check(self.limit);
        }
        self.tell_waiters();
    }

    pub(super) fn tell_waiters(&self) {
        // A waiter has said so before it looked for a file that is not in use.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _state = self.state.lock();
            self.let_go.notify_all();
        }
    }

    /// Closes a file that is not in use, or syncs it so that it can be closed, or, if all are in
    /// use, waits until one is let go of. False if there is nothing to close or to wait for, or the
    /// engine is poisoned.
    pub(super) fn close_one(&self, waits: bool) -> bool {
        let mut state = self.state.lock();
        let mut victim = state.find_victim(waits);
        if victim.is_none() {
            if !waits || state.count == 0 {
                return false;
            }
            self.waiting.fetch_add(1, Ordering::SeqCst);
            victim = state.find_victim(true);
            if victim.is_none() {
                self.let_go.wait(&mut state);
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        drop(state);
        match victim {
            None => {}
            Some(Victim::Clean(handle)) => {
                drop(handle);
                self.give_place_back();
            }
            Some(Victim::Dirty(file)) => {
                let used = FileInUse::to_be_closed(self, &file);
                // A failure has poisoned the engine: the caller will hear of that.
                return used.is_none_or(|used| used.sync().is_ok());
            }
        }
        true
    }

    /// A file that was opened is in the cache from now on, and in use. `None` if it was removed
    /// meanwhile, or opened by another thread as well.
    pub(super) fn keep<'f>(
        &'f self,
        file: &'f Arc<TableFile>,
        handle: Arc<dyn File>,
    ) -> Option<FileInUse<'f>> {
        let mut state = self.state.lock();
        let mut slot = file.slot.lock();
        if slot.removed || slot.handle.is_some() {
            drop((slot, state));
            drop(handle);
            self.give_place_back();
            return None;
        }
        paranoid!(
            slot.users == 0,
            "{} users of a file that was not open",
            slot.users
        );
        slot.handle = Some(handle);
        slot.place = state.next;
        state.next += 1;
        let other = state.round.insert(slot.place, file.clone());
        paranoid!(other.is_none(), "two files have place {}", slot.place);
        state.check(self.limit);
        FileInUse::with(&mut slot, self, file)
    }

    /// Takes a file out of the cache: at once if it is not in use, else when the last user lets go.
    pub fn close(&self, file: &TableFile) {
        let mut state = self.state.lock();
        let mut slot = file.slot.lock();
        if slot.users > 0 {
            return;
        }
        let Some(handle) = slot.handle.take() else {
            return;
        };
        let entry = state.round.remove(&slot.place);
        paranoid!(
            entry.is_some(),
            "an open file is not in the round, at place {}",
            slot.place
        );
        drop(slot);
        drop(state);
        drop((handle, entry));
        self.give_place_back();
    }
}

impl State {
    /// An open file has a place, and those that have one are in front of the next.
    fn check(&self, limit: usize) {
        paranoid!(
            self.round.len() <= self.count && self.count <= limit,
            "{} files are open, with {} places of {limit}",
            self.round.len(),
            self.count
        );
        let mut last = self.round.keys().rev().take(MANY);
        paranoid!(
            last.all(|&place| place < self.next),
            "a file is behind place {}",
            self.next
        );
    }

    /// A file that is not in use: one that needs no sync if there is any. `syncs`: else another
    /// one.
    fn find_victim(&mut self, syncs: bool) -> Option<Victim> {
        let mut dirty = None;
        // Each is met twice: the first time it may have been used since the last round.
        for _ in 0..2 * self.round.len() {
            let (_, file) = self.round.pop_first()?;
            let mut slot = file.slot.lock();
            paranoid!(
                slot.handle.is_some(),
                "the file at place {} of the round is not open",
                slot.place
            );
            let idle = slot.users == 0 && !file.take_used();
            if idle && !file.is_unsynced() {
                return slot.handle.take().map(Victim::Clean);
            }
            slot.place = self.next;
            drop(slot);
            if idle && dirty.is_none() {
                dirty = Some(file.clone());
            }
            self.round.insert(self.next, file);
            self.next += 1;
        }
        dirty.filter(|_| syncs).map(Victim::Dirty)
    }
}

#[cfg(test)]
mod tests;
