//! What opening tells of itself.

use crate::aside::SetAside;
use crate::options::MemoryBound;
use crate::recovery::RecoveryReport;
use inkstone_format::PageId;
use std::fmt;
use std::path::PathBuf;

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
    /// With [`Options::force_recovery`](crate::Options::force_recovery): pages that could not be
    /// read, and what is missing with them.
    pub left_out: Vec<LeftOut>,
    /// The limit on memory into which the buffer pool and recovery had to be fitted, if they had.
    pub memory_bound: Option<MemoryBound>,
    /// Why the doublewrite file was made anew, if it was. If a crash came before, it could not mend
    /// torn pages; recovery met none, or opening would have failed.
    pub doublewrite_renewed: Option<String>,
    /// Why there are no copies of torn pages, whether the file is wanted or not.
    pub(super) copies_lost: Option<String>,
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
    /// Row changes that are undone behind the opening: those of large transactions, whose undo has
    /// moved, and [`Recovered::rows_without_space`]. Until then their rows are locked, and readers
    /// see what was there before.
    pub rows_to_undo: u64,
    /// Of these, changes that could not be undone yet, as the disk is full: purge undoes them when
    /// there is space.
    pub rows_without_space: u64,
    /// Prepared transactions found.
    pub prepared: u64,
    /// What became of unfinished transactions instead, in words, where
    /// [`Options::force_recovery`](crate::Options::force_recovery) forbids to roll them back.
    pub instead: Option<&'static str>,
}

impl Recovered {
    /// Whether there were transactions that had neither committed nor been rolled back.
    pub fn has_transactions(&self) -> bool {
        self.losers > 0 || self.prepared > 0
    }

    /// What is left of redo when opening has returned, for people; nothing if nothing is.
    pub fn left_text(&self) -> String {
        match self.redo.pages_left {
            0 => String::new(),
            pages => format!(
                ", {pages} pages ({} bytes of changes) to be redone when they are read, or in the \
                 background",
                self.redo.bytes_left
            ),
        }
    }

    /// What became of unfinished transactions, for people.
    pub fn transactions_text(&self) -> String {
        if let Some(instead) = self.instead {
            return format!(
                "{} unfinished transactions are {instead}, {} prepared ones were found",
                self.losers, self.prepared
            );
        }
        let left = |rows, when| match rows {
            0 => String::new(),
            rows => format!(", {rows} to be undone {when}"),
        };
        let waiting = self.rows_without_space;
        let behind = left(self.rows_to_undo - waiting, "behind the opening");
        let later = left(waiting, "when the disk has space");
        format!(
            "{} unfinished transactions rolled back ({} row changes undone{behind}{later}), {} prepared transactions kept",
            self.losers, self.rows_undone, self.prepared
        )
    }
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The file that it is missing from.
    pub file: PathBuf,
    /// The page that could not be read, if there is one.
    pub page: Option<PageId>,
    /// What is missing, and why.
    pub what: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}
