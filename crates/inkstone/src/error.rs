//! What can go wrong, said for people: what was asked, what was found, what to do.

use inkstone_format::{Corrupt, PageId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any failure of an engine call. After every variant but [`Error::Poisoned`] and
/// [`Error::Corrupt`] the database goes on working.
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
    /// handle, its transactions and cursors are of no use here, and dropping them does nothing.
    #[error(
        "the database was opened before this process was forked, and belongs to the parent; open it \
         after forking, in one process at a time"
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
    /// The device, file system or database cannot do what was asked.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// An I/O failure; a full disk becomes [`Error::DiskFull`], and a refusal says what is needed.
    pub fn io(action: impl Into<String>, path: &Path, source: std::io::Error) -> Self {
        if matches!(
            source.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        ) {
            return Self::DiskFull {
                what: path.display().to_string(),
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
        matches!(self, Self::Poisoned(_) | Self::Forked)
    }

    /// Corruption found in a page.
    pub fn corrupt_page(file: &Path, page: PageId, corrupt: Corrupt) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            page: Some(page),
            offset: corrupt.offset as u64,
            detail: corrupt.detail,
        }
    }

    /// Corruption found in a file that has no pages.
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
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::error::broken_invariant(format_args!($($message)+), file!(), line!());
        }
    };
}

/// Aborts with a message: see [`invariant!`].
#[cold]
pub fn broken_invariant(message: std::fmt::Arguments<'_>, file: &str, line: u32) -> ! {
    eprintln!("inkstone: broken invariant at {file}:{line}: {message}");
    std::process::abort()
}
