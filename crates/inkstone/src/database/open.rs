//! Creating, opening and closing a database.
//!
//! # The order of opening, and why
//!
//! 1. The directory's lock. 2. The control file: nothing else can be understood without it. 3.
//!    After anything but an orderly close: what is in the files is made what the disk has (see
//!    `settle`), as from here on it is trusted, and what depends on it is written. 4. Checks that
//!    can refuse (see `preflight`), then the scan of the log. 5. Before the first page is changed,
//!    and before the log is written: a new epoch is made durable in the page LSN map and then in
//!    the control file, and torn pages are repaired from the doublewrite file, before its areas are
//!    used again. 6. Redo. 7. The log goes on at its proven end. 8. Losers are rolled back,
//!    prepared transactions get their versions and locks again. 9. Tablespace files that no table
//!    has are removed or set aside (see `unknown`).
//!
//! Each step can be interrupted and done again.

use super::background::Background;
use super::checkpoint::Checkpoints;
use super::pool_ends::{CheckedStore, PoolLog};
use super::preflight::{CREATING, LOCK, check_creation, check_files, clear_creation};
use super::settle::settle;
use super::unknown::{self, Unowned};
use super::{Database, Inner};
use crate::aside::{SetAside, set_aside};
use crate::btree::Tree;
use crate::buffer::BufferPool;
use crate::catalog::{CATALOG_ISOLATION, CATALOG_SPACE, CATALOG_TREE, Catalog, TableDefinition};
use crate::control::{CONTROL_FILE, ControlFile};
use crate::counters::Counters;
use crate::log::{Log, LogParams, ReadParams};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxSystem;
use crate::mvcc::versions::VersionStore;
use crate::options::{Doublewrite, MemoryBound, Options};
use crate::poison::Poison;
use crate::recovery::{self, LogSource, Progress, RecoveryReport, RedoInputs, RedoOutcome};
use crate::space::{SYSTEM_PAGES, Space};
use crate::storage::Storage;
use crate::store::{
    DOUBLEWRITE_FILE, DoublewriteFound, FilePageStore, RepairReport, SpaceFiles, is_direct,
};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{HashMap, Instant, Mutex, OnceLock, random_bits};
use crate::txn::Transaction;
use crate::txn::core::Core;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::record::Record;
use inkstone_format::segment::segment_bytes_for;
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::{Lsn, SpaceId, TreeId, TrxId};
use inkstone_io::{Create, Directory, ErrorKind, OpenOptions, Vfs};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Directory of the log segments.
pub(super) const LOG_DIRECTORY: &str = "log";

/// What opening found.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// The database was created by this call.
    pub created: bool,
    /// It had been closed in order.
    pub clean: bool,
    /// What recovery did, if the database had not been closed in order, or had unfinished or
    /// prepared transactions when it was.
    pub recovered: Option<Recovered>,
    /// Tablespace files that were removed: the log says that their table was dropped, or was not
    /// made to the end.
    pub removed: Vec<PathBuf>,
    /// Files that the database does not know, with the names that they have now.
    pub set_aside: Vec<SetAside>,
    /// The limit on memory into which the buffer pool and recovery had to be fitted, if they had.
    pub memory_bound: Option<MemoryBound>,
    /// Why the doublewrite file was made anew, if it was. If a crash came before, it could not mend
    /// torn pages; recovery met none, or opening would have failed.
    pub doublewrite_renewed: Option<String>,
    /// Why the page LSN map could not be read or written, if so. It was begun anew, or will be by
    /// the next opening that can: older versions of pages that were written before may pass for
    /// new.
    pub page_lsn_map_lost: Option<String>,
    /// Milliseconds that opening took.
    pub milliseconds: u64,
}

/// What recovery did.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Scan and redo.
    pub redo: RecoveryReport,
    /// Torn pages repaired from the doublewrite file.
    pub torn_pages_repaired: u64,
    /// Unfinished transactions rolled back.
    pub losers: u64,
    /// Row changes undone.
    pub rows_undone: u64,
    /// Row changes that could not be undone, as the disk is full: their rows are locked, readers
    /// see what was there before, and purge undoes them when there is space.
    pub rows_to_undo: u64,
    /// Prepared transactions found.
    pub prepared: u64,
}

impl Recovered {
    /// Whether there were transactions that had neither committed nor been rolled back.
    pub fn has_transactions(&self) -> bool {
        self.losers > 0 || self.prepared > 0
    }

    /// What became of unfinished transactions, for people.
    pub fn transactions_text(&self) -> String {
        let later = match self.rows_to_undo {
            0 => String::new(),
            left => format!(", {left} to be undone when the disk has space"),
        };
        format!(
            "{} unfinished transactions rolled back ({} row changes undone{later}), {} prepared transactions kept",
            self.losers, self.rows_undone, self.prepared
        )
    }
}

/// Everything below the engine, set up for a directory.
struct Foundation {
    vfs: Arc<dyn Vfs>,
    directory: Arc<dyn Directory>,
    options: Options,
    counters: Arc<Counters>,
    poison: Poison,
    files: Arc<SpaceFiles>,
    pool: Arc<BufferPool>,
    pool_log: Arc<PoolLog>,
}

/// See [`Database::open_on`].
pub(super) fn open(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    mut options: Options,
    progress: &dyn Fn(Progress),
) -> Result<Database> {
    let begin = Instant::now();
    let poison = Poison::default();
    inkstone_io::limits::raise_open_files();
    let found = find_directory(&*vfs, path)?;
    let exists = match &found {
        Some(directory) => ControlFile::exists(&**directory)?,
        None => false,
    };
    if !exists {
        if options.page_size == 0 {
            options.page_size = Options::default().page_size;
        }
        options.validate()?;
        found.as_deref().map_or(Ok(()), check_creation)?;
    }
    let directory = match found {
        Some(directory) => directory,
        None => vfs
            .open_directory(path, Create::IfMissing)
            .map_err(|e| Error::io("create", path, e))?,
    };
    let first = lock_first(&*directory)?;
    let inner = if ControlFile::exists(&*directory)? {
        let locks = Box::new((first, lock(&*directory, CONTROL_FILE)?));
        open_existing(vfs, directory, options, poison, locks, progress)?
    } else {
        let mut inner = create(vfs, directory.clone(), options, poison, first)?;
        let first = std::mem::replace(&mut inner._lock, Box::new(()));
        inner._lock = Box::new((first, lock(&*directory, CONTROL_FILE)?));
        inner
    };
    let mut inner = inner;
    inner.report.milliseconds = begin.elapsed().as_millis() as u64;
    let inner = Arc::new(inner);
    inner.core.storage.pool.start_cleaners()?;
    *inner.background.lock() = Some(Background::start(&inner)?);
    Ok(Database::new(inner))
}

/// The directory, if it is there.
fn find_directory(vfs: &dyn Vfs, path: &Path) -> Result<Option<Arc<dyn Directory>>> {
    match vfs.open_directory(path, Create::Never) {
        Ok(directory) => Ok(Some(directory)),
        Err(e) => match e.kind() {
            ErrorKind::NotFound => Ok(None),
            ErrorKind::NotADirectory => Err(Error::NotADatabase {
                path: path.to_owned(),
                reason: "it is, or lies below, a file: not a directory".to_owned(),
            }),
            _ => Err(Error::io("open", path, e)),
        },
    }
}

/// Locks what is there before the control file is, for creators at the same time: the directory
/// itself, where the file system can, and the file `lock`, which older programs ask. That file is
/// empty, and may be taken for rubbish and removed.
fn lock_first(directory: &dyn Directory) -> Result<Box<dyn Send + Sync>> {
    let itself = directory.lock_itself();
    let itself = itself.map_err(|e| lock_error(directory, directory.path(), e))?;
    Ok(Box::new((itself, lock(directory, LOCK)?)))
}

/// Locks a file of the directory. The control file is there as long as there is a database, and it
/// is noticed when it is replaced; a copy by hard links shares it, and is locked with it.
fn lock(directory: &dyn Directory, name: &str) -> Result<Box<dyn Send + Sync>> {
    let locked = directory.lock(name);
    locked.map_err(|e| lock_error(directory, &directory.path_of(name), e))
}

fn lock_error(directory: &dyn Directory, path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => Error::InUse {
            path: directory.path().to_owned(),
        },
        _ => Error::io("lock", path, error),
    }
}

impl Foundation {
    fn new(
        vfs: Arc<dyn Vfs>,
        directory: Arc<dyn Directory>,
        options: Options,
        poison: Poison,
        control: &Control,
        files: Arc<SpaceFiles>,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let store = FilePageStore::new(
            vfs.clone(),
            &*directory,
            control.uuid,
            &options,
            files.clone(),
            counters.clone(),
            poison.clone(),
        )?;
        let pool_log = Arc::new(PoolLog {
            log: OnceLock::new(),
            checkpoint: control.checkpoint_lsn,
            capacity: options.log_file_size,
        });
        let store = Arc::new(CheckedStore {
            store,
            files: files.clone(),
            log: pool_log.clone(),
        });
        let pool = BufferPool::new(
            options.page_size as usize,
            options.buffer_pool_size as usize,
            options.buffer_pool_instances as usize,
            store,
            pool_log.clone(),
            counters.clone(),
            poison.clone(),
        )?;
        Ok(Self {
            vfs,
            directory,
            options,
            counters,
            poison,
            files,
            pool,
            pool_log,
        })
    }

    fn open_log(
        &self,
        control: &Control,
        start_lsn: Lsn,
        end_block: Vec<u8>,
        is_new: bool,
    ) -> Result<Arc<Log>> {
        let options = &self.options;
        let params = LogParams {
            vfs: self.vfs.clone(),
            directory: log_directory(&*self.directory, Create::Never)?,
            uuid: control.uuid,
            segment_bytes: control.log_segment_bytes,
            epoch: control.epoch,
            start_lsn,
            end_block,
            capacity_bytes: options.log_file_size,
            buffer_bytes: options.log_buffer_size as usize,
            buffering: options.log_file_buffering,
            write: options.log_write,
            write_through: options.log_write_through,
            archive: options.log_archive,
            keep_from: control.scan_start_lsn,
            is_new,
        };
        let log = Log::open(params, self.counters.clone(), self.poison.clone())?;
        let fresh = self.pool_log.log.set(log.clone()).is_ok();
        crate::invariant!(fresh, "the log was opened twice");
        Ok(log)
    }

    fn core(&self, log: Arc<Log>, control: &Control, next_trx: TrxId) -> Result<Arc<Core>> {
        let storage = Storage {
            pool: self.pool.clone(),
            log,
            counters: self.counters.clone(),
            poison: self.poison.clone(),
            page_size: self.options.page_size as usize,
        };
        let versions = VersionStore::open(
            self.directory.clone(),
            self.options.version_store_memory,
            control.version_epoch,
            self.counters.clone(),
        )?;
        let trxs = TrxSystem::new(next_trx);
        let timeout = Duration::from_millis(self.options.lock_wait_timeout_ms);
        let durability = self.options.flush_log_at_trx_commit;
        Ok(Arc::new(Core::new(
            storage,
            versions,
            trxs,
            durability,
            (timeout, self.options.lock_memory_max),
            (self.files.clone(), control.uuid),
        )))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the last step, which joins all parts"
    )]
    fn finish(
        self,
        core: Arc<Core>,
        control: ControlFile,
        catalog: Tree,
        lock: Box<dyn Send + Sync>,
        report: OpenReport,
        next_space: u32,
        run_start: Lsn,
    ) -> Inner {
        let uuid = control.current().uuid;
        let checkpoint = control.current().checkpoint_lsn;
        core.checkpoint_lsn.store(checkpoint.0, Ordering::Relaxed);
        Inner {
            core,
            vfs: self.vfs,
            directory: self.directory,
            options: self.options,
            uuid,
            files: self.files,
            catalog,
            next_space: AtomicU32::new(next_space),
            tables: Mutex::new(HashMap::default()),
            ddl: Mutex::new(()),
            checkpoints: Checkpoints::new(control, run_start),
            background: Mutex::new(None),
            report,
            _lock: lock,
        }
    }
}

fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    for half in uuid.chunks_mut(8) {
        half.copy_from_slice(&random_bits().to_le_bytes());
    }
    uuid
}

/// The names of the database's files are durable, also where a process was killed that had just
/// created it, and no marker is left by which its files could be taken for rubbish.
fn finish_creation(directory: &dyn Directory, poison: &Poison) -> Result<()> {
    let unsynced = |e| poison.set(Error::io("sync", directory.path(), e));
    let marker = || directory.path_of(CREATING);
    directory.sync().map_err(unsynced)?;
    let left = directory.exists(CREATING);
    if left.map_err(|e| Error::io("look for", &marker(), e))? {
        directory
            .remove(CREATING)
            .map_err(|e| Error::io("remove", &marker(), e))?;
        directory.sync().map_err(unsynced)?;
    }
    Ok(())
}

/// The directory of the log segments.
pub(super) fn log_directory(
    directory: &dyn Directory,
    create: Create,
) -> Result<Arc<dyn Directory>> {
    directory
        .subdirectory(LOG_DIRECTORY, create)
        .map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NotADatabase {
                path: directory.path().to_owned(),
                reason: format!("the directory {LOG_DIRECTORY} is missing; put it back"),
            },
            _ => Error::io("open", &directory.path_of(LOG_DIRECTORY), e),
        })
}

/// Creates a database; after a failure what was made is removed again.
fn create(
    vfs: Arc<dyn Vfs>,
    directory: Arc<dyn Directory>,
    mut options: Options,
    poison: Poison,
    lock: Box<dyn Send + Sync>,
) -> Result<Inner> {
    if options.page_size == 0 {
        options.page_size = Options::default().page_size;
    }
    options.validate()?;
    check_creation(&*directory)?;
    // Held until what a failure leaves is removed.
    let lock: Arc<dyn Send + Sync> = Arc::from(lock);
    let shared = Box::new(lock.clone());
    let created = create_files(vfs, directory.clone(), options, poison, shared);
    if created.is_err() && matches!(ControlFile::exists(&*directory), Ok(false)) {
        // What stays, if this fails too, the next creation removes.
        let _ = clear_creation(&*directory).and_then(|()| remove_marker(&*directory));
    }
    drop(lock);
    created
}

fn remove_marker(directory: &dyn Directory) -> Result<()> {
    directory
        .remove(CREATING)
        .and_then(|()| directory.sync())
        .map_err(|e| Error::io("remove", &directory.path_of(CREATING), e))
}

fn create_files(
    vfs: Arc<dyn Vfs>,
    directory: Arc<dyn Directory>,
    mut options: Options,
    poison: Poison,
    lock: Box<dyn Send + Sync>,
) -> Result<Inner> {
    clear_creation(&*directory)?;
    let marker_options = OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct: false,
        dsync: false,
    };
    directory
        .open(CREATING, marker_options)
        .map_err(|e| Error::io("create", &directory.path_of(CREATING), e))?;
    log_directory(&*directory, Create::IfMissing)?;
    directory
        .sync()
        .map_err(|e| Error::io("sync", directory.path(), e))?;
    let memory_bound = options.fit_memory(vfs.memory_limit());
    let log_segment_bytes = segment_bytes_for(options.log_file_size);
    let start = Lsn(log_segment_bytes);
    let control = Control {
        page_size: options.page_size as u32,
        uuid: random_uuid(),
        sequence: 1,
        epoch: 1,
        checkpoint_lsn: start,
        scan_start_lsn: start,
        scan_start_epoch: 1,
        known_durable_lsn: start,
        log_segment_bytes,
        next_trx_id: TrxId(1),
        next_space_id: SpaceId(1),
        version_epoch: 1,
        next_commit: 0,
        clean_shutdown: false,
    };
    let counters = Arc::new(Counters::default());
    let files = SpaceFiles::new(
        directory.clone(),
        &options,
        counters.clone(),
        poison.clone(),
    )?;
    let files = Arc::new(files);
    let directory = files.directory().clone();
    let foundation = Foundation::new(
        vfs,
        directory.clone(),
        options,
        poison.clone(),
        &control,
        files,
        counters,
    )?;
    foundation
        .files
        .page_lsns()
        .create(control.uuid, control.epoch)?;
    let log = foundation.open_log(&control, start, Vec::new(), true)?;
    let core = foundation.core(log.clone(), &control, control.next_trx_id)?;
    let file = foundation.files.create(CATALOG_SPACE, SYSTEM_PAGES + 14)?;
    let space = Arc::new(Space::new(CATALOG_SPACE, core.storage.clone(), file));
    space.initialise(&control.uuid)?;
    core.add_space(&space);
    let catalog = Tree::create(space, CATALOG_TREE, core.storage.clone())?;
    foundation.pool.start_cleaners()?;
    foundation.pool.flush_all()?;
    foundation.files.sync_all(&*foundation.vfs)?;
    log.wait_durable(log.current_lsn())?;
    let control = ControlFile::create(&*directory, &control, &poison)?;
    remove_marker(&*directory)?;
    let report = OpenReport {
        created: true,
        memory_bound,
        ..OpenReport::default()
    };
    Ok(foundation.finish(core, control, catalog, lock, report, 1, start))
}

fn check_page_size(directory: &Path, options: &mut Options, control: &Control) -> Result<()> {
    let found = u64::from(control.page_size);
    if options.page_size != 0 {
        options.validate()?;
    }
    if options.page_size != 0 && options.page_size != found {
        return Err(Error::InvalidOption {
            name: "page_size".to_owned(),
            value: options.page_size.to_string(),
            reason: format!(
                "{} was created with pages of {found} bytes; give that, or 0 for whatever the database has",
                directory.display()
            ),
        });
    }
    options.page_size = found;
    options.validate()
}

fn open_existing(
    vfs: Arc<dyn Vfs>,
    directory: Arc<dyn Directory>,
    mut options: Options,
    poison: Poison,
    lock: Box<dyn Send + Sync>,
    progress: &dyn Fn(Progress),
) -> Result<Inner> {
    let mut control_file = ControlFile::open(&*directory, &poison)?;
    let old = control_file.current().clone();
    check_page_size(directory.path(), &mut options, &old)?;
    let memory_bound = options.fit_memory(vfs.memory_limit());
    let control = Control {
        epoch: old.epoch + 1,
        version_epoch: old.version_epoch + 1,
        clean_shutdown: false,
        ..old.clone()
    };
    let counters = Arc::new(Counters::default());
    let files = SpaceFiles::new(
        directory.clone(),
        &options,
        counters.clone(),
        poison.clone(),
    )?;
    let files = Arc::new(files);
    let directory = files.directory().clone();
    if !old.clean_shutdown {
        settle(&*directory, is_direct(options.flush_method))?;
    }
    let reads = read_params(&*directory, &control)?;
    let doublewrite = check_files(&*directory, &old, &files, &reads)?;
    let (renewed, aside) = renew_doublewrite(&*directory, doublewrite, &options)?;
    let mut log_source = LogSource::open(reads)?;
    let foundation = Foundation::new(
        vfs,
        directory.clone(),
        options,
        poison.clone(),
        &control,
        files,
        counters,
    )?;
    foundation.pool.start_cleaners()?;
    let (mut repaired, mut map_lost) = (RepairReport::default(), None);
    let mut before_changes = |log_end| {
        finish_creation(&*directory, &poison)?;
        let (uuid, checkpoint) = (control.uuid, control.checkpoint_lsn);
        let files = &foundation.files;
        let page_lsns = files.page_lsns();
        map_lost = page_lsns.open(uuid, old.epoch, checkpoint, log_end)?;
        control_file.write(&control)?;
        repaired = crate::store::repair(&*directory, files, uuid, checkpoint)?;
        Ok(())
    };
    let inputs = RedoInputs {
        pool: &foundation.pool,
        files: &*foundation.files,
        checkpoint: control.checkpoint_lsn,
        threads: recovery::threads(&foundation.options),
        index_bytes_max: recovery::index_bytes_max(&foundation.options),
        progress,
    };
    let redone = recovery::redo_after(&mut log_source, inputs, &mut before_changes)
        .map_err(|error| say_what_is_lost(error, renewed.as_deref()))?;
    foundation.files.page_lsns().redo_done(redone.end)?;
    let end_block = log_source.end_block().to_vec();
    drop(log_source);
    let log = foundation.open_log(&control, redone.end, end_block, false)?;
    let next_trx = TrxId(control.next_trx_id.0.max(redone.trx_id_max.0 + 1));
    let core = foundation.core(log, &control, next_trx)?;
    let mut epoch = Mtr::new(&core.storage);
    epoch.note(&Record::Epoch {
        epoch: control.epoch,
        end_of_previous: redone.end,
    });
    epoch.commit()?;
    let (highest, mut removed) = remove_deleted(&foundation, &core, &redone)?;
    let space = core
        .space(CATALOG_SPACE)?
        .ok_or_else(|| Error::NotADatabase {
            path: foundation.files.path(CATALOG_SPACE),
            reason: "the file of the catalog is missing".to_owned(),
        })?;
    let catalog = Tree::open(space, CATALOG_TREE, core.storage.clone())?;
    let recovered = finish_transactions(&core, &redone, &repaired)?;
    let unowned = remove_unowned(&foundation, &core, &catalog, &redone)?;
    removed.extend(unowned.removed);
    let report = OpenReport {
        created: false,
        clean: old.clean_shutdown,
        recovered: (!old.clean_shutdown || recovered.has_transactions()).then_some(recovered),
        removed,
        set_aside: aside
            .into_iter()
            .chain(core.storage.log.set_aside())
            .collect(),
        memory_bound,
        doublewrite_renewed: renewed,
        page_lsn_map_lost: map_lost.map(|error| error.to_string()),
        milliseconds: 0,
    };
    let next_space = (control.next_space_id.0).max(highest + 1);
    let mut inner = foundation.finish(
        core,
        control_file,
        catalog,
        lock,
        report,
        next_space,
        redone.end,
    );
    let aside = inner.set_aside(&unowned.unknown)?;
    inner.report.set_aside.extend(aside);
    Ok(inner)
}

/// Sets a doublewrite file aside that cannot be used. Why it will be made anew, if it will.
fn renew_doublewrite(
    directory: &dyn Directory,
    found: DoublewriteFound,
    options: &Options,
) -> Result<(Option<String>, Option<SetAside>)> {
    let wanted = options.doublewrite == Doublewrite::On;
    let why = match found {
        DoublewriteFound::Whole => return Ok((None, None)),
        DoublewriteFound::Missing => {
            return Ok((wanted.then(|| "it was missing".to_owned()), None));
        }
        DoublewriteFound::Damaged(why) => why,
    };
    let aside = set_aside(
        directory,
        DOUBLEWRITE_FILE,
        "is no whole doublewrite file of this database",
    )?;
    let synced = directory.sync();
    synced.map_err(|e| Error::io("sync", directory.path(), e))?;
    Ok((Some(why), Some(aside)))
}

/// A page that recovery needs is damaged, and the file that may have had a copy of it was lost.
fn say_what_is_lost(error: Error, renewed: Option<&str>) -> Error {
    match (error, renewed) {
        (
            Error::Corrupt {
                file,
                page: Some(page),
                offset,
                detail,
            },
            Some(why),
        ) => Error::Corrupt {
            file,
            page: Some(page),
            offset,
            detail: format!(
                "{detail}; the crash may have torn the page, and its copy may have been in the file \
                 {DOUBLEWRITE_FILE}, which cannot be used ({why}): put the right one back, and open \
                 again, or restore the database from a backup"
            ),
        },
        (error, _) => error,
    }
}

fn read_params(directory: &dyn Directory, control: &Control) -> Result<ReadParams> {
    Ok(ReadParams {
        directory: log_directory(directory, Create::Never)?,
        uuid: control.uuid,
        segment_bytes: control.log_segment_bytes,
        from: control.scan_start_lsn,
        epoch: control.scan_start_epoch,
        newest_epoch: control.epoch,
        must_reach: control.known_durable_lsn,
    })
}

/// Finishes removing the files of tablespaces that were dropped. Returns the highest tablespace
/// number seen, and what was removed. No other file is opened here: tables are, when they are used.
fn remove_deleted(
    foundation: &Foundation,
    core: &Core,
    redone: &RedoOutcome,
) -> Result<(u32, Vec<PathBuf>)> {
    let files = &foundation.files;
    let highest = files.highest()?.max(redone.space_id_max);
    let mut removed = Vec::new();
    for space in files.list()? {
        if redone.files_deleted.contains(&space) {
            core.forget_space(space);
            files.remove(space)?;
            removed.push(files.path(space));
        }
    }
    Ok((highest.map_or(0, |space| space.0), removed))
}

/// Rolls back losers, newest first, and takes prepared transactions up again.
fn finish_transactions(
    core: &Arc<Core>,
    redone: &RedoOutcome,
    repaired: &RepairReport,
) -> Result<Recovered> {
    let mut recovered = Recovered {
        redo: redone.report.clone(),
        torn_pages_repaired: repaired.repaired.len() as u64,
        losers: redone.losers.len() as u64,
        prepared: redone.prepared.len() as u64,
        ..Recovered::default()
    };
    let all = redone.prepared.iter().chain(&redone.losers);
    let states: HashMap<TrxId, _> = all
        .map(|open| {
            Ok((
                open.id,
                core.recovered_state(open.id, open.slot, open.first_lsn)?,
            ))
        })
        .collect::<Result<_>>()?;
    for open in redone.losers.iter().rev() {
        if mutants::on(Mutant::LoserForgotten) {
            continue;
        }
        let left = core.roll_back_recovered(&states[&open.id], open)? as u64;
        recovered.rows_undone += open.undo.len() as u64 - left;
        recovered.rows_to_undo += left;
    }
    for open in &redone.prepared {
        core.adopt_prepared(&states[&open.id], open)?;
    }
    Ok(recovered)
}

/// Removes tablespace files that no table has.
fn remove_unowned(
    foundation: &Foundation,
    core: &Arc<Core>,
    catalog: &Tree,
    redone: &RedoOutcome,
) -> Result<Unowned> {
    let transaction = Transaction::begin(core, CATALOG_ISOLATION)?;
    let tables = Catalog::new(catalog, &transaction).all()?;
    let mut known: BTreeSet<SpaceId> = tables.iter().map(|table| table.space).collect();
    known.insert(CATALOG_SPACE);
    drop(transaction);
    let files = &foundation.files;
    let unowned = unknown::remove_unowned(&*foundation.directory, files, core, redone, &known)?;
    files.page_lsns().retain(&files.list()?);
    Ok(unowned)
}

impl Core {
    /// Has trees removed that a table's file has and its definition does not name: a crash came
    /// between making the tree and naming it, or before all pages of a dropped tree were free; or
    /// the file was imported without them.
    pub(super) fn remove_unnamed_trees(
        &self,
        table: &TableDefinition,
        space: &Space,
    ) -> Result<()> {
        let dropped = self.dropped_trees_of(table.space);
        for tree in (0..PENDING_FREE_TREE.0).map(TreeId) {
            let named = table.trees.iter().any(|(id, _)| *id == tree);
            if !named && !dropped.contains(&tree) && space.root(tree)?.is_some() {
                self.drop_tree(space, tree);
            }
        }
        Ok(())
    }

    /// Says in the log, durably, that a tablespace's file is no longer needed.
    pub(super) fn log_file_delete(&self, space: SpaceId) -> Result<()> {
        let mut mtr = Mtr::new(&self.storage);
        mtr.note(&Record::FileDelete { space });
        let (_, end) = mtr.commit()?;
        self.storage.log.wait_durable(end)
    }

    /// Forgets a tablespace and its pages: it is not found any more.
    pub(super) fn forget_space(&self, space: SpaceId) {
        let dropped = self.remove_space(space);
        let pages = dropped.as_ref().map_or(u32::MAX, |it| it.file().pages());
        if let Some(dropped) = dropped {
            dropped.set_dropped();
        }
        self.storage.pool.drop_space(space, pages);
    }
}

impl Inner {
    /// Stops the background threads and, if all is well, writes what is left and a last checkpoint.
    pub(super) fn shut_down(&self) -> Result<()> {
        if self.core.storage.poison.is_forked() {
            return Err(Error::Forked);
        }
        let Some(background) = self.background.lock().take() else {
            return Ok(());
        };
        self.core.stopping.store(true, Ordering::Release);
        background.stop();
        let result = self.write_everything();
        self.core.storage.pool.close();
        let closed = self.core.storage.log.close();
        // A transaction that outlives the database must not touch files that the next opener owns.
        let was = self.core.storage.poison.check();
        self.core.storage.poison.set("it was closed");
        was.and(result).and(closed)
    }

    fn write_everything(&self) -> Result<()> {
        self.core.storage.poison.check()?;
        // A hint for the next open: failing to write it spoils nothing else.
        let _ = self.dump_buffer_pool();
        let log = &self.core.storage.log;
        log.wait_durable(log.current_lsn())?;
        self.core.storage.pool.flush_all()?;
        self.files.sync_all(&*self.vfs)?;
        self.checkpoint(true, true)
    }
}
