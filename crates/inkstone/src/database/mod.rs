//! An open database: what programs call.
//!
//! | file | subject |
//! |---|---|
//! | `opening` | opening (with recovery), creating |
//! | `close` | closing |
//! | `pool_ends` | the log and the files as the buffer pool sees them |
//! | `temporary` | databases that end with their process |
//! | `tables` | tables and their trees |
//! | `transact` | transactions that are repeated while others are in their way |
//! | `ddl` | creating, dropping, renaming tables |
//! | `changes` | which rows change while an index is built |
//! | `references` | which tables refer to which |
//! | `transfer` | tables as files: export and import |
//! | `copying` | a copy of the database, made while it is used |
//! | `compacting` | a table's file made as short as what is in it |
//! | `checkpoint` | how far recovery must go back; long transactions' undo |
//! | `background` | the threads that purge, checkpoint and warm the pool |
//! | `inspect` | verification and statistics |
//! | `recovery_listener` | tells the program when work that opening has left to the background is done |
//! | `status`, `watch` | counters and gauges; transactions, locks and waits |

mod background;
mod changes;
mod checkpoint;
mod close;
mod compacting;
mod copying;
mod ddl;
mod inspect;
mod opening;
mod pool_ends;
mod recovery_listener;
mod references;
mod shrink;
mod status;
mod tables;
mod temporary;
mod transact;
mod transfer;
mod watch;

pub use changes::{ChangeTracker, ChangedRows};
pub use compacting::{CompactOptions, CompactReport};
pub use copying::{CheckpointOptions, CheckpointProgress, CheckpointReport};
pub use inspect::{TableReport, TableStatistics, TreeEstimates};
pub use opening::{LeftOut, OpenReport, Recovered};
pub use status::Metric;
pub use transact::TransactOptions;
pub use transfer::Export;
pub use watch::{LockState, LockView, SnapshotView, TransactionView};

use crate::btree::Tree;
use crate::counters::Counters;
use crate::debug::debug_as;
use crate::mvcc::Isolation;
use crate::options::{Durability, NewTable, Options, Shutdown};
use crate::paranoid::paranoid;
use crate::recovery::RedoLeft;
use crate::rows::Table;
use crate::sort::{SortFile, Sorter};
use crate::store::SpaceFiles;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{HashMap, Mutex, MutexGuard, OnceLock};
use crate::txn::Transaction;
use crate::txn::core::Core;
use crate::{Error, Result};
use background::{Background, UpkeepOptions};
use inkstone_format::SpaceId;
use inkstone_format::tree_page::key_len_max;
use inkstone_io::process::Threaded;
use inkstone_io::temporary::TemporaryDirectory;
use inkstone_io::{Directory, Vfs};
use opening::Locks;
use std::path::Path;
use std::sync::Arc;

/// An open database. Cheap to clone; closed when the last clone is dropped, or by
/// [`Database::close`].
///
/// ```
/// use inkstone::{Database, Error, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path();
/// let db = Database::open(path, Options::default())?;
/// assert!(db.open_report().created);
/// let table = match db.table("events") {
///     Err(Error::NotFound(_)) => db.create_table("events", &[])?,
///     other => other?,
/// };
/// assert_eq!(db.tables()?, ["events"]);
/// assert_eq!(db.verify_table(&table)?.trees[0].1.rows, 0);
/// // One process, and one handle in it, at a time.
/// assert!(matches!(Database::open(path, Options::default()), Err(Error::InUse { .. })));
/// db.close()?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
    _handle: Arc<Handle>,
}

debug_as!(Database, "Database", |this| "directory" = this.directory());

/// What the clones of a [`Database`] share: the last one closes it, in its own thread. (A
/// background thread that is in the middle of a round keeps `Inner` too; it is joined.)
struct Handle {
    inner: Arc<Inner>,
    /// Removed when the database is closed.
    _directory: Option<TemporaryDirectory>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.inner.core.storage.poison.is_forked() {
            // Everything in it is the parent's: threads that are not here, latches that they hold.
            return std::mem::forget(self.inner.clone());
        }
        // Errors here have been told to the callers already, through the poison.
        let _ = self.inner.shut_down(self.inner.options.fast_shutdown);
    }
}

/// What the handle and the background threads share.
pub(crate) struct Inner {
    pub core: Arc<Core>,
    pub vfs: Arc<dyn Vfs>,
    pub directory: Arc<dyn Directory>,
    /// As they are shown to the program: each part has its own.
    pub options: Options,
    pub upkeep: UpkeepOptions,
    /// A table that does not say otherwise.
    pub new_table: NewTable,
    pub uuid: [u8; 16],
    /// Where rows are sorted that do not fit into memory.
    pub sort_file: Arc<SortFile>,
    pub files: Arc<SpaceFiles>,
    pub catalog: Tree,
    /// The next tablespace number.
    pub next_space: AtomicU32,
    /// Open tables by name. Latched by DDL and by looking up a table.
    pub tables: Mutex<HashMap<String, Table>>,
    /// One DDL statement at a time.
    pub ddl: Mutex<()>,
    /// One copy of the database at a time. Latched before that of DDL.
    pub copying: Mutex<()>,
    /// Where it is, if it ends with the process.
    pub unkept: OnceLock<temporary::Unkept>,
    pub references: references::References,
    pub checkpoints: checkpoint::Checkpoints,
    /// What this opening has left of redo.
    pub redo_left: Option<Arc<RedoLeft>>,
    pub recovery_listener: recovery_listener::RecoveryListener,
    pub background: Mutex<Option<Background>>,
    pub report: OpenReport,
    /// There are threads, from the end of opening on.
    pub threaded: Option<Threaded>,
    /// Held until everything else is gone.
    _locks: Locks,
}

impl Database {
    /// Opens the database in `directory`, creating it if the directory is empty or missing.
    ///
    /// Recovery runs first if the database was not closed in order. After a crash every commit is
    /// there that was acknowledged with [`Durability::Sync`], and of those that were not, a prefix
    /// in commit order; no transaction is half there.
    ///
    /// Opening returns when the log is read: pages are redone when they are first read, and in the
    /// background. [`Database::open_report`] says how many are left to that,
    /// [`Database::redo_left`] how many still are, and [`Database::finish_redo`] waits. With
    /// [`Options::redo_before_open`] opening does all of it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if another process or handle has it open; [`Error::InvalidOption`] for an
    /// impossible option or another page size than the database has; [`Error::NewerFormat`];
    /// [`Error::NotADatabase`] if files are missing; [`Error::Corrupt`] if the log is damaged, or a
    /// page that opening needs. A page that is still to be redone and cannot be is an error of its
    /// readers.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_watched(directory, options, &|_| {})
    }

    /// As [`Database::open`], told of recovery's progress at most ten times a second, by the thread
    /// that opens.
    ///
    /// ```
    /// # use inkstone::{Database, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open_watched(dir.path(), Options::default(), &|progress| {
    ///     eprintln!("recovery: {progress}");
    /// })?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Database::open`].
    pub fn open_watched(
        directory: impl AsRef<Path>,
        options: Options,
        progress: &dyn Fn(crate::recovery::Progress),
    ) -> Result<Self> {
        let backend = match options.io_backend {
            crate::options::IoBackend::Auto => inkstone_io::BackendChoice::Auto,
            crate::options::IoBackend::Posix => inkstone_io::BackendChoice::Posix,
            crate::options::IoBackend::IoUring => inkstone_io::BackendChoice::IoUring,
        };
        let vfs = inkstone_io::default_vfs(backend)
            .map_err(|e| Error::io("set up I/O for", directory.as_ref(), e))?;
        Self::open_on(vfs, directory, options, progress)
    }

    /// As [`Database::open_on`], of a database that may be changed, or over a file system that
    /// keeps what is written in memory.
    pub(crate) fn open_over(
        vfs: Arc<dyn Vfs>,
        directory: &Path,
        options: Options,
        progress: &dyn Fn(crate::recovery::Progress),
    ) -> Result<Self> {
        opening::open(vfs, directory, options, None, progress)
    }

    /// Redo alone, for `salvage`.
    pub(crate) fn redo_on(vfs: Arc<dyn Vfs>, directory: &Path, options: Options) -> Result<()> {
        opening::redo_only(vfs, directory, options)
    }

    /// As [`Database::open_on`], for `salvage`: rows of unfinished transactions may be lost.
    /// `left_out`: what is not there any more.
    pub(crate) fn open_salvaged(
        vfs: Arc<dyn Vfs>,
        directory: &Path,
        options: Options,
        left_out: Vec<LeftOut>,
        progress: &dyn Fn(crate::recovery::Progress),
    ) -> Result<Self> {
        opening::open(vfs, directory, options, Some(left_out), progress)
    }

    /// Whether every write is refused: [`Options::read_only`] and [`Options::force_recovery`].
    pub fn is_read_only(&self) -> bool {
        self.inner.options.is_read_only()
    }

    /// For `salvage`: what of the undo file could not be read, and was passed over.
    pub(crate) fn lost_undo(&self) -> Vec<Error> {
        self.inner.core.versions.lost_undo()
    }

    /// For `salvage`: whether what undoes prepared transactions can be read.
    pub(crate) fn read_prepared_undo(&self) -> Result<()> {
        self.inner.core.read_prepared_undo()
    }

    /// Begins a transaction. Its snapshot, if the level has one, is taken by its first statement.
    pub fn begin(&self, isolation: Isolation) -> Result<Transaction> {
        Transaction::begin(&self.inner.core, isolation)
    }

    /// Begins a repeatable-read transaction whose snapshot is taken now.
    pub fn begin_with_snapshot(&self) -> Result<Transaction> {
        let transaction = self.begin(Isolation::RepeatableRead)?;
        transaction.take_snapshot()?;
        Ok(transaction)
    }

    /// XIDs of prepared transactions. None in a forked child.
    pub fn prepared_transactions(&self) -> Vec<Vec<u8>> {
        if self.is_forked() {
            Vec::new()
        } else {
            self.inner.core.prepared_xids()
        }
    }

    /// Sorts rows of which there are more than memory has room for, before a tree is filled with
    /// them: inserted in key order they cost a fraction of the reads, writes and log.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let mut sorter = db.sorter();
    /// for key in [&b"c"[..], b"a", b"b"] {
    ///     sorter.add(key, b"a value")?;
    /// }
    /// let mut sorted = sorter.sort()?;
    /// let txn = db.begin(Isolation::ReadCommitted)?;
    /// while txn.insert_sorted(&table, &mut sorted, 4096)?.rows > 0 {
    ///     // Say how far it has come.
    /// }
    /// txn.commit()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sorter(&self) -> Sorter {
        Sorter::new(self.inner.sort_file.clone())
    }

    /// Commits the prepared transaction of an XID, durably. [`Error::NotFound`] if there is none,
    /// [`Error::TransactionState`] if its rollback has begun and failed.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        let durability = Durability::Sync;
        self.inner.core.check_writable()?;
        let pending = self.inner.core.commit_prepared(xid, durability)?;
        pending.wait(durability)
    }

    /// As [`commit_prepared`](Self::commit_prepared), without waiting: see
    /// [`Transaction::commit_deferred`].
    pub fn commit_prepared_deferred(
        &self,
        xid: &[u8],
        durability: Durability,
    ) -> Result<crate::PendingCommit> {
        self.inner.core.check_writable()?;
        self.inner.core.commit_prepared(xid, durability)
    }

    /// Rolls the prepared transaction of an XID back, durably: when this has returned, the XID is
    /// not there after a crash. [`Error::NotFound`] if there is none. After another error it can be
    /// called again.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.inner.core.check_writable()?;
        self.inner.core.rollback_prepared(xid, Durability::Sync)
    }

    /// Makes everything that is committed durable, whatever the durability it was committed with:
    /// writes and syncs the log. The pages follow in the background.
    pub fn flush_log(&self) -> Result<()> {
        self.flush_log_as(Durability::Sync)
    }

    /// As [`flush_log`](Self::flush_log), waiting as `durability` says: [`Durability::Write`] only
    /// writes the log, [`Durability::Lazy`] does nothing.
    pub fn flush_log_as(&self, durability: Durability) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        let log = &self.inner.core.storage.log;
        match durability {
            Durability::Sync => log.wait_durable(log.current_lsn()),
            Durability::Write => log.wait_written(log.current_lsn()),
            Durability::Lazy => Ok(()),
        }
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The longest key that a tree takes: 3072 bytes; 1536 in pages of 8 KiB, 768 in 4 KiB.
    pub fn key_len_max(&self) -> usize {
        key_len_max(self.inner.core.storage.page_size)
    }

    /// The directory, absolute, where it was when the database was opened.
    pub fn directory(&self) -> &Path {
        self.inner.directory.path()
    }

    /// The counters.
    #[doc(hidden)]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.inner.core.storage.counters
    }

    /// What opening found, and what recovery had done when it returned. What was left then:
    /// [`Database::redo_left`].
    pub fn open_report(&self) -> &OpenReport {
        &self.inner.report
    }

    /// Text of the latest deadlock since the database was opened, for people.
    pub fn latest_deadlock(&self) -> Option<String> {
        if self.is_forked() {
            None
        } else {
            self.inner.core.locks.graph().latest_deadlock()
        }
    }

    /// Closes as [`Options::fast_shutdown`] says: in order, if that is not set. What is left to
    /// write is written then, so that the next open needs no recovery. Transactions must have
    /// ended; those that have not are rolled back by the next open. All clones of the database are
    /// closed with it, but the directory is in use ([`Error::InUse`]) until the last of them is
    /// dropped, and files stay open while there are handles of tables, or cursors.
    pub fn close(self) -> Result<()> {
        let how = self.inner.options.fast_shutdown;
        self.close_as(how)
    }

    /// As [`close`](Self::close), in another way than the option says.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options, Shutdown};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path();
    /// let db = Database::open(path, Options::default())?;
    /// let table = db.create_table("events", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"1", b"one")?;
    /// txn.commit()?;
    /// db.close_as(Shutdown::LogOnly)?; // at once, however many pages are to be written
    ///
    /// let db = Database::open(path, Options::default())?; // recovers
    /// assert!(!db.open_report().clean);
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// assert!(txn.get(&db.table("events")?, b"1")?.is_some());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// What could not be written: the next open recovers. With [`Shutdown::Slow`] also what kept
    /// purge or a rollback from coming to its end: the database is closed in order all the same.
    pub fn close_as(self, how: Shutdown) -> Result<()> {
        self.inner.shut_down(how)
    }

    fn new(inner: Arc<Inner>) -> Self {
        let names = watch::OpenNames(Arc::downgrade(&inner));
        inner.core.locks.graph().set_names(Arc::new(names));
        Self {
            _handle: Arc::new(Handle {
                inner: inner.clone(),
                _directory: None,
            }),
            inner,
        }
    }

    /// For a database that has no clone yet: its directory is gone with its last handle.
    fn keep_until_dropped(&mut self, directory: TemporaryDirectory) {
        let handle = Arc::get_mut(&mut self._handle);
        crate::invariant!(handle.is_some(), "a new database has two handles");
        if let Some(handle) = handle {
            handle._directory = Some(directory);
        }
    }
}

impl Inner {
    /// The latch of DDL, for a statement that changes tables.
    pub(crate) fn begin_ddl(&self) -> Result<MutexGuard<'_, ()>> {
        self.core.check_writable()?;
        self.latch_ddl()
    }

    /// The latch of DDL, if the control file is still ours.
    pub(crate) fn latch_ddl(&self) -> Result<MutexGuard<'_, ()>> {
        self.core.storage.poison.check()?;
        let latched = self.ddl.lock();
        self.checkpoints.place.check(&*self.directory)?;
        Ok(latched)
    }

    /// Whether some thread has the latch of DDL: for promises of those that must have it.
    pub(crate) fn is_ddl_latched(&self) -> bool {
        self.ddl.try_lock().is_none()
    }

    /// A number for a new tablespace: it was never given, and never will be again. The caller has
    /// the latch of DDL.
    pub(crate) fn new_space(&self) -> Result<SpaceId> {
        paranoid!(
            self.is_ddl_latched(),
            "two tables may get one number, as the latch of DDL is free"
        );
        let space = self.next_space.load(Ordering::SeqCst);
        let Some(next) = space.checked_add(1) else {
            return Err(Error::Unsupported(format!(
                "a table more: all {space} numbers of tables are used up; copy the tables to a new \
                 database"
            )));
        };
        self.next_space.store(next, Ordering::SeqCst);
        Ok(SpaceId(space))
    }
}
