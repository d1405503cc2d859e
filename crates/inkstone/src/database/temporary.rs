//! Databases that end with their process: for tests, and for what need not be kept.

use super::Database;
use crate::options::{Options, Shutdown};
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_io::sim::SimVfs;
use inkstone_io::temporary::TemporaryDirectory;
use std::path::Path;
use std::sync::Arc;

/// Where a database in memory says it is.
const IN_MEMORY: &str = "in-memory";

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
        db.inner.is_in_memory.store(true, Ordering::Relaxed);
        Ok(db)
    }
}
