//! What can go wrong, said for people: what was asked, what was found, what to do.

use inkstone_format::{Corrupt, PageId};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any failure of an engine call. The database goes on working, except after [`Error::Corrupt`] and
/// errors of [`ErrorKind::Gone`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was being done, as in "read page 3:17 of".
        action: String,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: Arc<std::io::Error>,
    },
    /// Bytes on disk are not what they must be.
    #[error("{} is corrupt{}, byte {offset}: {detail}", file.display(), page.map(|p| format!(" in page {p}")).unwrap_or_default())]
    Corrupt {
        /// The file that holds them.
        file: PathBuf,
        /// The page, where there is one.
        page: Option<PageId>,
        /// Byte offset in the page, or in the file where there is no page.
        offset: u64,
        /// What was found and what was expected.
        detail: String,
    },
    /// A log write or a sync failed earlier: nothing can be promised until the database is
    /// reopened, and recovery has run.
    #[error("the database stopped because {0}; close it and open it again to recover")]
    Poisoned(Arc<str>),
    /// The disk, or a limit on space, is full. What was begun is rolled back; free some space and
    /// repeat it.
    #[error(
        "no space left for {what}; what was begun is rolled back, free some space and repeat it"
    )]
    DiskFull {
        /// What could not grow.
        what: String,
    },
    /// A key is longer than the limit.
    #[error("key of {length} bytes is longer than the limit of {limit} bytes")]
    KeyTooLong {
        /// Bytes in the key.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A value is longer than the limit.
    #[error("value of {length} bytes is longer than the limit of {limit} bytes")]
    ValueTooLong {
        /// Bytes in the value.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A row of this key exists.
    #[error("duplicate key in table {table}, tree {tree}")]
    DuplicateKey {
        /// The table's name.
        table: String,
        /// The tree's name.
        tree: String,
    },
    /// There is no row of this key.
    #[error("no row of this key in table {table}, tree {tree}")]
    RowNotFound {
        /// The table's name.
        table: String,
        /// The tree's name.
        tree: String,
    },
    /// The row was changed by a transaction that committed after this one's snapshot. Roll back
    /// and repeat the transaction.
    #[error(
        "the row was changed after this transaction's snapshot was taken; roll back and repeat the transaction"
    )]
    WriteConflict,
    /// The table, or the tree, was made or filled after this transaction's snapshot was taken: read
    /// with it it would have too few rows. The statement had no effect; end the transaction and
    /// repeat it.
    #[error(
        "{} was made or filled after this transaction's snapshot was taken; end the transaction and repeat it",
        path.display()
    )]
    TableChanged {
        /// The table's file.
        path: PathBuf,
    },
    /// This transaction was chosen as the victim of a deadlock and was rolled back. Repeat it.
    #[error("deadlock: this transaction was rolled back; repeat it")]
    Deadlock,
    /// A row lock was not granted in time. The statement had no effect.
    #[error("lock wait timeout after {waited_ms} ms, for {place}")]
    LockTimeout {
        /// How long it waited, milliseconds.
        waited_ms: u64,
        /// For what, in which tree of which table.
        place: String,
    },
    /// A row is locked and NOWAIT was asked for.
    #[error("the row is locked by another transaction")]
    LockNotAvailable,
    /// The transaction's interrupt was raised. The statement had no effect.
    #[error("the statement was interrupted")]
    Interrupted,
    /// The transaction has ended, or is prepared and may only be committed or rolled back.
    #[error("the transaction is {0}")]
    TransactionState(&'static str),
    /// There is no such table, tree, savepoint or prepared transaction.
    #[error("{0} does not exist")]
    NotFound(String),
    /// A thing of that name exists already.
    #[error("{0} exists already")]
    AlreadyExists(String),
    /// An option or argument cannot be taken.
    #[error("{name} = {value}: {reason}")]
    InvalidOption {
        /// The option's name.
        name: String,
        /// The value that was given.
        value: String,
        /// Why it cannot be, and what can.
        reason: String,
    },
    /// The directory holds a database of a format that this program does not know.
    #[error("{} has format version {found}, this program knows up to {known}; use a newer program", path.display())]
    NewerFormat {
        /// The database's directory.
        path: PathBuf,
        /// Version found.
        found: u32,
        /// Newest version known.
        known: u32,
    },
    /// Another process, or another handle of this one, has the database open.
    #[error("{} is in use by another process or handle", path.display())]
    InUse {
        /// The database's directory.
        path: PathBuf,
    },
    /// This process was forked from the one that opened the database, which goes on using it. The
    /// handle, its transactions and cursors are of no use here, and dropping them does nothing. Nor
    /// can another database be opened here: a latch that one of the parent's threads had is never
    /// let go. After `exec` it can.
    #[error(
        "a database was opened before this process was forked, and belongs to the parent; open \
         databases after forking, or in a process that was started anew"
    )]
    Forked,
    /// The directory does not hold a database, or not a whole one.
    #[error("{}: {reason}", path.display())]
    NotADatabase {
        /// The directory or file.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// The database is being closed, or was.
    #[error("the database is closed")]
    Closed,
    /// The database was opened for reading only ([`Options::read_only`](crate::Options::read_only),
    /// or to save what can be read of it). Nothing was changed.
    #[error("the database was opened for reading only")]
    ReadOnly,
    /// Too many transactions are active. Nothing was begun: end some, and begin again.
    #[error("too many transactions are active (up to 2^24, dealt out over threads); end some")]
    TooManyTransactions,
    /// A handle of a table of another open database, or a cursor over one, was given to this
    /// database, or to a transaction of it. Nothing was done.
    #[error(
        "the table of {} is not one of the database in {}; look it up there", path.display(), database.display()
    )]
    OtherDatabase {
        /// The file of the handle's table, in its database's directory.
        path: PathBuf,
        /// The directory of the database that was called, or whose transaction was.
        database: PathBuf,
    },
    /// The device, file system or database cannot do what was asked.
    #[error("{0}")]
    Unsupported(String),
}

/// What a caller can do about an [`Error`], for a program that handles errors in groups.
///
/// ```
/// use inkstone::{Database, Error, ErrorKind, Isolation, Options, Result};
///
/// /// Moves one from a to b, as often as other transactions are in the way. (As does
/// /// `Database::transact`, which pauses between the attempts.)
/// fn transfer(db: &Database) -> Result<()> {
///     let accounts = db.table("accounts")?;
///     loop {
///         let txn = db.begin(Isolation::RepeatableRead)?;
///         let moved = txn
///             .update(&accounts, b"a", b"9")
///             .and_then(|()| txn.update(&accounts, b"b", b"1"))
///             .and_then(|()| txn.commit());
///         match moved {
///             Err(error) if error.kind() == ErrorKind::Conflict => continue,
///             other => return other,
///         }
///     }
/// }
/// # let directory = tempfile::tempdir()?;
/// # let db = Database::open(directory.path().join("db"), Options::default())?;
/// # let accounts = db.create_table("accounts", &[])?;
/// # let txn = db.begin(Isolation::RepeatableRead)?;
/// # txn.insert(&accounts, b"a", b"10")?;
/// # txn.insert(&accounts, b"b", b"0")?;
/// # txn.commit()?;
/// # transfer(&db)?;
/// # assert_eq!(Error::Closed.kind(), ErrorKind::Gone);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another transaction came first: roll this one back, if that was not done, and repeat it from
    /// its beginning.
    Conflict,
    /// The statement had no effect, and the transaction goes on. Later, or when room was made, the
    /// same statement may succeed.
    Busy,
    /// Keys, values or names that are there, are not there, or are too long. The statement had no
    /// effect, and the transaction goes on.
    Data,
    /// The call is wrong for this database, device or transaction: repeated, it fails again.
    Usage,
    /// The operating system refuses something, or the directory is not a database that this program
    /// can open now.
    Environment,
    /// Bytes on disk are damaged. What was found cannot be used, the rest can.
    Corrupt,
    /// The handle is of no use any more: close the database, and open it again.
    Gone,
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Deadlock | Self::WriteConflict | Self::TableChanged { .. } => ErrorKind::Conflict,
            Self::LockTimeout { .. }
            | Self::LockNotAvailable
            | Self::Interrupted
            | Self::DiskFull { .. }
            | Self::TooManyTransactions => ErrorKind::Busy,
            Self::DuplicateKey { .. }
            | Self::RowNotFound { .. }
            | Self::KeyTooLong { .. }
            | Self::ValueTooLong { .. }
            | Self::NotFound(_)
            | Self::AlreadyExists(_) => ErrorKind::Data,
            Self::TransactionState(_)
            | Self::InvalidOption { .. }
            | Self::ReadOnly
            | Self::OtherDatabase { .. }
            | Self::Unsupported(_) => ErrorKind::Usage,
            Self::Io { .. }
            | Self::NewerFormat { .. }
            | Self::InUse { .. }
            | Self::NotADatabase { .. } => ErrorKind::Environment,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Poisoned(_) | Self::Closed | Self::Forked => ErrorKind::Gone,
        }
    }

    /// Whether the transaction, rolled back and repeated from its beginning, may succeed with
    /// nothing else done: another one came first. So of [`Error::Deadlock`],
    /// [`Error::WriteConflict`] and [`Error::TableChanged`]. Not of [`Error::LockTimeout`] and
    /// [`Error::LockNotAvailable`], which have waited as long as they were to: the transaction goes
    /// on, and the program decides; nor of [`Error::TooManyTransactions`], as transactions that
    /// were forgotten do not end by themselves. [`Database::transact`](crate::Database::transact)
    /// repeats what this says.
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Conflict
    }

    /// An I/O failure; a full disk becomes [`Error::DiskFull`], and a refusal says what is needed.
    pub fn io(action: impl Into<String>, path: &Path, source: std::io::Error) -> Self {
        if matches!(
            source.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        ) {
            let path = path.display();
            return Self::DiskFull {
                // A quota or a limit says what it is; a disk says nothing.
                what: match source.get_ref() {
                    Some(limit) => format!("{path} ({limit})"),
                    None => path.to_string(),
                },
            };
        }
        let source = match source.kind() {
            std::io::ErrorKind::PermissionDenied => std::io::Error::new(
                source.kind(),
                format!(
                    "{source}; the user of this process must be allowed to read and write the database's \
                     directory and its files: check their owner (ls -l; after a run as root: chown -R)"
                ),
            ),
            std::io::ErrorKind::ReadOnlyFilesystem => std::io::Error::new(
                source.kind(),
                format!(
                    "{source}; there a database is opened to be read only, with the option read_only, or by \
                     `inkstone verify`, `stat`, `copy` and `inspect`"
                ),
            ),
            _ => source,
        };
        Self::Io {
            action: action.into(),
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// Whether nothing that is tried later can succeed: this handle is of no use any more.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Poisoned(_) | Self::Closed | Self::Forked)
    }

    /// Corruption found in a page.
    #[doc(hidden)]
    pub fn corrupt_page(file: &Path, page: PageId, corrupt: Corrupt) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            page: Some(page),
            offset: corrupt.offset as u64,
            detail: corrupt.detail,
        }
    }

    /// Corruption found in a file that has no pages.
    #[doc(hidden)]
    pub fn corrupt_file(file: &Path, offset: u64, detail: impl Into<String>) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            page: None,
            offset,
            detail: detail.into(),
        }
    }
}

/// Ends the process because Inkstone itself is wrong (never because of bytes from disk).
macro_rules! invariant {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::error::broken_invariant(format_args!($($message)+), file!(), line!());
        }
    };
}
pub(crate) use invariant;

/// Aborts with a message: see [`invariant!`].
#[cold]
pub fn broken_invariant(message: std::fmt::Arguments<'_>, file: &str, line: u32) -> ! {
    // Not `eprintln!`: it unwinds where nothing takes what is written, and tests would keep the
    // line for a report that they never come to write.
    let mut out = std::io::stderr().lock();
    let _ = writeln!(
        out,
        "inkstone: broken invariant at {file}:{line}: {message}"
    );
    std::process::abort()
}
