//! Databases that end with their process: for tests, and for what need not be kept.
//!
//! # Promises
//!
//! 1. A scratch database syncs nothing, and leaves nothing on the disk, however its process ends.
//!    Tested by `no_call_syncs`, `a_scratch_database_leaves_nothing_and_is_not_copied`.

use super::Database;
use super::opening::LOG_DIRECTORY;
use crate::options::{Doublewrite, Durability, FlushMethod, LogWrite, Options, Shutdown};
use crate::{Error, Result};
use inkstone_io::scratch::ScratchVfs;
use inkstone_io::sim::SimVfs;
use inkstone_io::temporary::TemporaryDirectory;
use std::path::Path;
use std::sync::Arc;

/// Where a database in memory says it is.
const IN_MEMORY: &str = "in-memory";

/// What a scratch database calls its place, in the folder of its file.
const SCRATCH: &str = "scratch";

/// Bytes of log behind which a scratch database, whose log is not kept, writes pages: none that
/// fits into the buffer pool is written because the log has grown.
const SCRATCH_LOG_BYTES: u64 = 64 << 30;

/// Where a database is that ends with its process, other than in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// No other process sees what is written there.
    InMemory,
    /// In a file without a name; of the log nothing can be read.
    Scratch,
}

impl Database {
    /// A new database in a directory of its own, in the system's folder for temporary files
    /// (`TMPDIR`, or `/tmp`). The directory is removed when the last handle of the database is
    /// dropped. For tests, and for data that one run of a program needs.
    ///
    /// It is a database as others are, on a real file system, with its speed and its errors. What
    /// is not kept: everything, at the end of the handle. A process that is killed leaves the
    /// directory, named `inkstone-` and the process's number. Closing writes the log alone
    /// ([`Options::fast_shutdown`] is [`Shutdown::LogOnly`], whatever `options` say).
    ///
    /// ```
    /// use inkstone::{Database, Durability, Isolation, Options};
    ///
    /// let db = Database::temporary(Options {
    ///     buffer_pool_size: 16 << 20,
    ///     flush_log_at_trx_commit: Durability::Lazy, // a test need not wait for the disk
    ///     ..Options::default()
    /// })?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"value")?;
    /// txn.commit()?;
    /// let path = db.directory().to_owned();
    /// drop((table, db));
    /// assert!(!path.exists());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Database::open`], and of making a directory.
    pub fn temporary(options: Options) -> Result<Self> {
        let directory = TemporaryDirectory::create("inkstone")
            .map_err(|e| Error::io("make a directory in", &std::env::temp_dir(), e))?;
        let options = Options {
            fast_shutdown: Shutdown::LogOnly,
            ..options
        };
        let mut db = Self::open(directory.path(), options)?;
        db.keep_until_dropped(directory);
        Ok(db)
    }

    /// A new database that has no files: its disk is simulated, in memory. It is gone with its last
    /// handle. For tests.
    ///
    /// It does all that another one does, with the same code down to the calls of the file system:
    /// transactions, log, checkpoints. Nothing survives the process, whatever a commit waits for,
    /// and [`Database::close`] is the end of the data. Two of them share nothing. Options about
    /// devices (`io_backend`, `flush_method`) decide nothing that can be noticed. Beside the buffer
    /// pool memory is taken by the log's files, and by up to three copies of what was written: for
    /// megabytes, not for gigabytes. [`Table::path`](crate::Table::path) names no file, so there is
    /// nothing to [export](Database::export_table); [`Database::checkpoint_to`] writes a copy to
    /// the real file system.
    ///
    /// ```
    /// use inkstone::{Database, Isolation, Options};
    ///
    /// let db = Database::in_memory(Options {
    ///     buffer_pool_size: 16 << 20,
    ///     log_file_size: 16 << 20,
    ///     ..Options::default()
    /// })?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"value")?;
    /// txn.commit()?; // waits for no device
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for an impossible option.
    pub fn in_memory(options: Options) -> Result<Self> {
        let disk = SimVfs::new(0);
        disk.set_writes_through(true);
        let options = Options {
            fast_shutdown: Shutdown::LogOnly,
            ..options
        };
        let db = Self::open_on(Arc::new(disk), Path::new(IN_MEMORY), options, &|_| {})?;
        Ok(db.ends_with_process(Unkept::InMemory))
    }

    /// A new database for scratch data, as temporary tables are: it has the speed of one that waits
    /// for no disk, and may be larger than memory. Pages that do not fit into the buffer pool go to
    /// one file without a name, which is in `folder` (of the real file system; it must be there),
    /// and which the system removes when the process ends, however that happens. It is gone with
    /// its last handle.
    ///
    /// Nothing is synced, whatever a commit asks for, and the log is not written: it takes neither
    /// room nor time of the disk. Transactions are as in any database, but for what survives the
    /// process: nothing. Of `options` only those count that are about memory, locks, the size of
    /// pages and how they are kept. [`Table::path`](crate::Table::path) names no file, so there is
    /// nothing to [export](Database::export_table).
    ///
    /// ```
    /// use inkstone::{Database, Isolation, Options};
    ///
    /// let folder = std::env::temp_dir();
    /// let db = Database::scratch(&folder, Options {
    ///     buffer_pool_size: 16 << 20, // bytes; what is more goes to the file
    ///     ..Options::default()
    /// })?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"value")?;
    /// txn.commit()?; // waits for no device
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if there can be no file in the folder, [`Error::InvalidOption`] for an
    /// impossible option, later [`Error::DiskFull`] where the file cannot grow.
    /// [`Database::checkpoint_to`] fails with [`Error::Unsupported`].
    pub fn scratch(folder: impl AsRef<Path>, options: Options) -> Result<Self> {
        let folder = folder.as_ref();
        let disk = ScratchVfs::new(folder, LOG_DIRECTORY)
            .map_err(|e| Error::io("make a file without a name in", folder, e))?;
        let options = Options {
            buffer_pool_dump_at_shutdown: false,
            doublewrite: Doublewrite::Off,
            fast_shutdown: Shutdown::LogOnly,
            flush_log_at_trx_commit: Durability::Lazy,
            flush_method: FlushMethod::Fsync,
            force_recovery: 0,
            log_archive: false,
            log_file_buffering: true,
            log_file_size: SCRATCH_LOG_BYTES,
            log_write: LogWrite::Sync,
            log_write_through: false,
            read_only: false,
            ..options
        };
        let place = folder.join(SCRATCH);
        let db = Self::open_on(Arc::new(disk), &place, options, &|_| {})?;
        Ok(db.ends_with_process(Unkept::Scratch))
    }

    fn ends_with_process(self, how: Unkept) -> Self {
        let is_new = self.inner.unkept.set(how).is_ok();
        crate::invariant!(is_new, "a new database is kept in two ways");
        self
    }
}
