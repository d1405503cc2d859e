//! The file of a tablespace as a handle that comes and goes, and its syncs.
//!
//! A [`TableFile`] knows what was done to the file and not synced yet, whether it is open or not.
//! A thread that reads, writes or syncs it takes a [`FileInUse`]; what holds for that stands in
//! [`open_files`](super::open_files).

use super::open_files::{OpenFiles, wants_descriptor};
use super::space_files::open_options;
use crate::counters::{Counter, Counters, Timed, Timing};
use crate::mutants::{self, Mutant};
use crate::options::FlushMethod;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::poison::syncs::{FileSyncs, SyncLead, SyncTurn, SyncUnderWay, WantedSync};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::{Error, Result};
use inkstone_io::{Batch, Create, Directory, ErrorKind, File, Op, OpenOptions, Submission};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    pub(super) slot: Mutex<Slot>,
    /// Since the hand of the clock came by.
    used: AtomicBool,
    /// Writes into it that a sync has to follow, and changes of its size.
    writes: Progress,
    sizes: Progress,
    syncs: FileSyncs,
}

/// The handle, if there is one.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub handle: Option<Arc<dyn File>>,
    pub users: usize,
    /// In the round, if it is open.
    pub place: u64,
    pub removed: bool,
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
        paranoid!(
            done <= self.done(),
            "a sync has covered {done} writes of {}",
            self.done()
        );
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

    /// Whether it was used since this was asked last.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Whether its name is gone: it will not be read again.
    pub fn is_removed(&self) -> bool {
        self.slot.lock().removed
    }

    /// Its name is gone: it is closed when its last user lets go, and never opened again.
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

    /// The file, opened if need be; `None` if that would mean to wait for a descriptor, or for a
    /// sync.
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

/// An open file in use.
#[derive(Debug)]
pub(crate) struct FileInUse<'f> {
    // Let go of before the user is counted off: then the thread that closes the file has the last
    // handle.
    handle: Arc<dyn File>,
    user: User<'f>,
}

/// One of the users of a file.
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
    pub(super) fn to_be_closed(open_files: &'f OpenFiles, file: &'f TableFile) -> Option<Self> {
        Self::with(&mut file.slot.lock(), open_files, file)
    }

    pub(super) fn with(
        slot: &mut Slot,
        open_files: &'f OpenFiles,
        file: &'f TableFile,
    ) -> Option<Self> {
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

    /// Whether it is the caller's turn to run the wanted sync. The caller checks the poison first.
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
                timing: file.counters.time(Timed::PageSync),
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
        paranoid!(
            slot.users > 0 && slot.handle.is_some(),
            "{} users of {}, which is not open",
            slot.users,
            self.file.path.display()
        );
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
    timing: Timing<'f>,
    lead: SyncLead<'f>,
}

impl<'f> SyncOfFile<'f> {
    /// What is to be synced.
    pub fn bytes(&self) -> &'f dyn File {
        self.handle
    }

    /// Takes notice of the result.
    pub fn end(self, result: std::io::Result<()>) -> Result<()> {
        drop(self.timing);
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

/// Runs the wanted syncs, or waits for the threads that run them.
pub(crate) fn sync_side_by_side(
    queue: &mut dyn Batch,
    poison: &Poison,
    mut wanted: Vec<(&FileInUse<'_>, WantedSync)>,
) -> Result<()> {
    while !wanted.is_empty() {
        poison.check()?;
        let (mut led, mut later) = (Vec::new(), Vec::new());
        for (file, sync) in wanted {
            match file.sync_turn(sync) {
                Turn::Done => {}
                Turn::Lead(lead) => led.push(lead),
                Turn::Busy => later.push((file, sync)),
            }
        }
        match (led.is_empty(), later.first()) {
            (true, Some((file, sync))) => file.wait_for_sync(*sync),
            _ => run_syncs(queue, led)?,
        }
        wanted = later;
    }
    // One that failed meanwhile may have been of the same writes.
    if mutants::on(Mutant::PageSyncsApart) {
        Ok(())
    } else {
        poison.check()
    }
}

/// Runs syncs side by side; each result is looked at when it is there.
fn run_syncs(queue: &mut dyn Batch, led: Vec<SyncOfFile<'_>>) -> Result<()> {
    let first = (0..).zip(&led).map(|(number, sync)| Submission {
        number,
        operation: Op::Sync { file: sync.bytes() },
    });
    let first = first.collect();
    let mut led: Vec<_> = led.into_iter().map(Some).collect();
    let mut outcome = Ok(());
    let mut notice = |(number, result): (u64, _)| {
        paranoid!(
            led[number as usize].is_some(),
            "sync {number} has two results"
        );
        if let Some(sync) = led[number as usize].take() {
            let ended = sync.end(result);
            if outcome.is_ok() {
                outcome = ended;
            }
        }
    };
    let (late, mut unnoticed) = (mutants::on(Mutant::PageSyncsApart), Vec::new());
    queue.drive(first, &mut |number, result, _| {
        if late {
            unnoticed.push((number, result));
        } else {
            notice((number, result));
        }
    });
    unnoticed.into_iter().for_each(notice);
    paranoid!(led.iter().all(Option::is_none), "a sync has no result");
    outcome
}
