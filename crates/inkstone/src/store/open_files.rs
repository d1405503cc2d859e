//! The open files of tablespaces: a cache of handles with a limit.
//!
//! # Promises
//!
//! 1. At most `limit` of these files are open at once. Where the process is given fewer descriptors, one
//!    file is closed for another one, of whatever kind ([`with_descriptor`](OpenFiles::with_descriptor)): too
//!    few descriptors are an error only when none of these files is open.
//! 2. A file in use ([`FileInUse`]) stays open. The others are closed in the order of a clock: those
//!    that nobody has used for longest first, about.
//! 3. A file is closed only after a sync has covered everything that was done to it since the last one, as
//!    a kernel tells of a failed write-back to the handles that were open then, and perhaps to no later
//!    one. So a sync of a file that was closed and opened again means what it always means.
//! 4. A removed file is not opened again.
//!
//! # Who waits for whom
//!
//! Who waits for a handle ([`TableFile::acquire`]) has none in use, and holds no latch that someone
//! needs who has: so those who have one go on, and let go of it. Who has one in use already takes more
//! only if there is no wait ([`TableFile::try_acquire`]). Who runs a sync, or waits for that of another
//! one, has the file in use.
//!
//! # Latches
//!
//! `OpenFiles::state`, then a `TableFile::slot`. Never held across I/O.

use super::space_files::open_options;
use crate::counters::{Counter, Counters};
use crate::options::FlushMethod;
use crate::poison::Poison;
use crate::poison::syncs::{FileSyncs, SyncLead, SyncTurn, SyncUnderWay, WantedSync};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result};
use inkstone_io::{Create, Directory, ErrorKind, File, OpenOptions};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether an operation failed because the process, or the system, has too many files open.
fn wants_descriptor(error: &std::io::Error) -> bool {
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
    /// Told when a file is let go of, or closed, and somebody waits.
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

    /// Runs what opens something, and again after a file was closed for it, as long as there are too few
    /// descriptors. The caller has no file in use.
    pub fn with_descriptor<T>(&self, open: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
        loop {
            match open() {
                Err(error) if wants_descriptor(&error) && self.close_one(true) => {}
                result => return result,
            }
        }
    }

    /// Takes a place for a file that is to be opened; false if one must be waited for, and the caller
    /// does not.
    fn take_place(&self, waits: bool) -> bool {
        loop {
            let mut state = self.state.lock();
            if state.count < self.limit {
                state.count += 1;
                return true;
            }
            drop(state);
            if !self.close_one(waits) {
                return false;
            }
        }
    }

    fn give_place_back(&self) {
        self.state.lock().count -= 1;
        self.tell_waiters();
    }

    fn tell_waiters(&self) {
        // Who waits has said so before it looked for a file that is not in use.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _state = self.state.lock();
            self.let_go.notify_all();
        }
    }

    /// Closes a file that is not in use, or syncs it so that it can be closed, or, if all are in use, waits
    /// until one is let go of. False if there is nothing to close or to wait for, or the engine is
    /// poisoned.
    fn close_one(&self, waits: bool) -> bool {
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
    fn keep<'f>(
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
        slot.handle = Some(handle);
        slot.place = state.next;
        state.next += 1;
        state.round.insert(slot.place, file.clone());
        FileInUse::with(&mut slot, self, file)
    }

    /// Takes a file out of the cache: at once if nobody uses it, else when the last user lets go.
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
        drop(slot);
        drop(state);
        drop((handle, entry));
        self.give_place_back();
    }
}

impl State {
    /// A file that nobody uses: one that needs no sync if there is any. `syncs`: else another one.
    fn find_victim(&mut self, syncs: bool) -> Option<Victim> {
        let mut dirty = None;
        // Each is met twice: the first time it may have been used since the last round.
        for _ in 0..2 * self.round.len() {
            let (_, file) = self.round.pop_first()?;
            let mut slot = file.slot.lock();
            let idle = slot.users == 0 && !file.used.swap(false, Ordering::Relaxed);
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

/// The file of a tablespace, open or not.
#[derive(Debug)]
pub(crate) struct TableFile {
    directory: Arc<dyn Directory>,
    name: String,
    path: PathBuf,
    options: OpenOptions,
    /// Whether its writes are durable only after a sync.
    syncs_follow: bool,
    counters: Arc<Counters>,
    poison: Poison,
    slot: Mutex<Slot>,
    /// Since the hand of the clock came by.
    used: AtomicBool,
    /// Writes into it that a sync has to follow, and changes of its size.
    writes: Progress,
    sizes: Progress,
    syncs: FileSyncs,
}

#[derive(Debug, Default)]
struct Slot {
    handle: Option<Arc<dyn File>>,
    users: usize,
    /// In the round, if it is open.
    place: u64,
    removed: bool,
}

/// What was done to a file, and how much of that a sync has covered.
#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    synced: AtomicU64,
}

impl Progress {
    fn note(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
    }
    fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }
    fn is_unsynced(&self) -> bool {
        self.synced.load(Ordering::Acquire) < self.done()
    }
    fn note_synced(&self, done: u64) {
        self.synced.fetch_max(done, Ordering::AcqRel);
    }
}

impl TableFile {
    /// A file of a directory, which is not opened yet.
    pub fn new(
        directory: Arc<dyn Directory>,
        name: String,
        flush_method: FlushMethod,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Self {
        Self {
            path: directory.path_of(&name),
            directory,
            name,
            options: open_options(flush_method, Create::Never),
            syncs_follow: matches!(flush_method, FlushMethod::Fsync | FlushMethod::ODirect),
            counters,
            poison,
            slot: Mutex::default(),
            used: AtomicBool::new(false),
            writes: Progress::default(),
            sizes: Progress::default(),
            syncs: FileSyncs::default(),
        }
    }

    /// Where it is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name of a file that was just created.
    pub fn unmake(&self) -> std::io::Result<()> {
        self.directory.remove(&self.name)
    }

    /// Whether something was done to it that no sync has covered.
    pub fn is_unsynced(&self) -> bool {
        self.writes.is_unsynced() || self.sizes.is_unsynced()
    }

    /// Whether its size has changed since the last sync.
    pub fn is_size_unsynced(&self) -> bool {
        self.sizes.is_unsynced()
    }

    /// Whether its name is gone: nobody will read it any more.
    pub fn is_removed(&self) -> bool {
        self.slot.lock().removed
    }

    /// Its name is gone: it is closed when nobody uses it any more, and never opened again.
    pub fn set_removed(&self, open_files: &OpenFiles) {
        self.slot.lock().removed = true;
        open_files.close(self);
    }

    /// The file, opened if need be. The caller has no other one in use.
    pub fn acquire<'f>(
        self: &'f Arc<Self>,
        open_files: &'f OpenFiles,
        create: Create,
    ) -> Result<FileInUse<'f>> {
        loop {
            if let Some(used) = self.acquire_if(open_files, create, true)? {
                return Ok(used);
            }
        }
    }

    /// The file, opened if need be; `None` if that would mean to wait for a descriptor, or for a sync.
    pub fn try_acquire<'f>(
        self: &'f Arc<Self>,
        open_files: &'f OpenFiles,
    ) -> Result<Option<FileInUse<'f>>> {
        self.acquire_if(open_files, Create::Never, false)
    }

    fn acquire_if<'f>(
        self: &'f Arc<Self>,
        open_files: &'f OpenFiles,
        create: Create,
        waits: bool,
    ) -> Result<Option<FileInUse<'f>>> {
        loop {
            self.poison.check()?;
            if let Some(used) = FileInUse::of(open_files, self)? {
                return Ok(Some(used));
            }
            if !open_files.take_place(waits) {
                return Ok(None);
            }
            let options = OpenOptions {
                create,
                ..self.options
            };
            match self.directory.open(&self.name, options) {
                Ok(handle) => {
                    self.counters.add(Counter::TableFilesOpened, 1);
                    if let Some(used) = open_files.keep(self, handle) {
                        return Ok(Some(used));
                    }
                }
                Err(error) => {
                    open_files.give_place_back();
                    let retries = wants_descriptor(&error);
                    match retries && open_files.close_one(waits) {
                        true => {}
                        false if retries && !waits => return Ok(None),
                        false => return Err(self.open_error(error)),
                    }
                }
            }
        }
    }

    fn open_error(&self, error: std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::AlreadyExists => {
                Error::AlreadyExists(format!("file {}", self.path.display()))
            }
            _ => Error::io("open", &self.path, error),
        }
    }
}

/// An open file that somebody uses.
#[derive(Debug)]
pub(crate) struct FileInUse<'f> {
    // Let go of before the user is counted off: then whoever closes the file has the last handle.
    handle: Arc<dyn File>,
    user: User<'f>,
}

/// One of those who use a file.
#[derive(Debug)]
struct User<'f> {
    open_files: &'f OpenFiles,
    file: &'f TableFile,
}

impl<'f> FileInUse<'f> {
    /// The file, if it is open.
    fn of(open_files: &'f OpenFiles, file: &'f TableFile) -> Result<Option<Self>> {
        let mut slot = file.slot.lock();
        if slot.removed {
            let path = file.path.display();
            return Err(Error::NotFound(format!("file {path} (it was removed)")));
        }
        file.used.store(true, Ordering::Relaxed);
        Ok(Self::with(&mut slot, open_files, file))
    }

    /// The file, to be synced and closed, if it is open.
    fn to_be_closed(open_files: &'f OpenFiles, file: &'f TableFile) -> Option<Self> {
        Self::with(&mut file.slot.lock(), open_files, file)
    }

    fn with(slot: &mut Slot, open_files: &'f OpenFiles, file: &'f TableFile) -> Option<Self> {
        let handle = slot.handle.clone()?;
        slot.users += 1;
        let user = User { open_files, file };
        Some(Self { handle, user })
    }

    /// The bytes, for reading.
    pub fn bytes(&self) -> &dyn File {
        &*self.handle
    }

    /// The bytes, for a write.
    pub fn begin_write(&self) -> &dyn File {
        if self.user.file.syncs_follow {
            self.user.file.writes.note();
        }
        &*self.handle
    }

    /// Changes the size. A failure counts as well: the file system may have done a part.
    pub fn change_size(
        &self,
        change: impl FnOnce(&dyn File) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let changed = change(&*self.handle);
        self.user.file.sizes.note();
        changed
    }

    /// A sync that covers what has been written by now.
    pub fn want_sync(&self) -> WantedSync {
        self.user.file.syncs.want()
    }

    /// Waits until no sync is under way, or the wanted one has ended well.
    pub fn wait_for_sync(&self, wanted: WantedSync) {
        self.user.file.syncs.wait(wanted);
    }

    /// Whose turn it is to run the wanted sync. The caller checks the poison first.
    pub fn sync_turn(&self, wanted: WantedSync) -> Turn<'_> {
        let file = self.user.file;
        match file.syncs.turn(wanted) {
            SyncTurn::Done => Turn::Done,
            SyncTurn::Busy => Turn::Busy,
            SyncTurn::Lead(lead) => Turn::Lead(SyncOfFile {
                file,
                handle: &*self.handle,
                writes: file.writes.done(),
                sizes: file.sizes.done(),
                under_way: file.poison.begin_sync(),
                lead,
            }),
        }
    }

    /// Makes everything written so far durable. A failure poisons the engine.
    pub fn sync(&self) -> Result<()> {
        let wanted = self.want_sync();
        loop {
            self.user.file.poison.check()?;
            match self.sync_turn(wanted) {
                Turn::Done => return Ok(()),
                Turn::Busy => self.wait_for_sync(wanted),
                Turn::Lead(sync) => {
                    let result = sync.bytes().sync();
                    return sync.end(result);
                }
            }
        }
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut slot = self.file.slot.lock();
        slot.users -= 1;
        let (idle, removed) = (slot.users == 0, slot.removed);
        drop(slot);
        if idle && removed {
            self.open_files.close(self.file);
        }
        if idle {
            self.open_files.tell_waiters();
        }
    }
}

/// As [`SyncTurn`], of a tablespace's file.
pub(crate) enum Turn<'f> {
    Done,
    Busy,
    Lead(SyncOfFile<'f>),
}

/// A sync that the holder runs.
pub(crate) struct SyncOfFile<'f> {
    file: &'f TableFile,
    handle: &'f dyn File,
    /// What it covers.
    writes: u64,
    sizes: u64,
    under_way: SyncUnderWay,
    lead: SyncLead<'f>,
}

impl<'f> SyncOfFile<'f> {
    /// What is to be synced.
    pub fn bytes(&self) -> &'f dyn File {
        self.handle
    }

    /// Takes notice of the result.
    pub fn end(self, result: std::io::Result<()>) -> Result<()> {
        let file = self.file;
        file.counters.add(Counter::DataSyncs, 1);
        let result = self.under_way.end(&file.path, result);
        if result.is_ok() {
            file.writes.note_synced(self.writes);
            file.sizes.note_synced(self.sizes);
        }
        self.lead.end(result)
    }
}

#[cfg(test)]
mod tests;
