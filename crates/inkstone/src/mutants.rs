//! Deliberate bugs, to show that the test machines bite.
//!
//! Each *mutant* is one line of the engine made wrong: `mutants::on(Mutant::X)` stands at the
//! place. In ordinary builds that is the constant `false`. Compiled with `--cfg inkstone_mutants`
//! it asks a switch of the process, which [`switch_on`] sets by name. `cargo xtask mutants`
//! switches them on one after the other, each in a process of its own, and fails if its machine
//! does not notice.

/// The machine that must notice a mutant: a program of `inkstone-testkit`, or a command of
/// `cargo xtask mariadb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Machine {
    /// Random work on a simulated disk that loses power.
    Sim,
    /// The same, with features that lead to a certain kind of trouble: a profile of this name.
    Profile(&'static str),
    /// Operations on the disk fail, bytes on it change: this kind of the fault campaign.
    Faults(&'static str),
    /// Histories of concurrent transactions.
    Histories,
    /// Slow syncs of which one of these files fails, under several flushers.
    FailedSync(&'static str),
    /// Clients that share a small log.
    SmallLog,
    /// The scripts of several SQL sessions that have this in their name, on a MariaDB server: its
    /// replica is apart.
    Replica(&'static str),
    /// The same scripts: a statement ends otherwise than InnoDB's.
    Sessions(&'static str),
}

impl Machine {
    /// The program's or command's name.
    pub const fn program(self) -> &'static str {
        match self {
            Machine::Sim | Machine::Profile(_) | Machine::SmallLog => "sim",
            Machine::Faults(_) => "faults",
            Machine::Histories => "histories",
            Machine::FailedSync(_) => "failed-sync",
            Machine::Replica(_) | Machine::Sessions(_) => "mariadb --sessions",
        }
    }
}

/// What is to be known about a mutant.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The mutant.
    pub mutant: Mutant,
    /// Its name for `--mutant`.
    pub name: &'static str,
    /// The bug.
    pub bug: &'static str,
    /// Which machine must notice it.
    pub machine: Machine,
    /// Within how many seconds.
    pub seconds_max: u64,
}

macro_rules! mutants {
    ($($variant:ident, $name:literal, $machine:expr, $seconds:literal, $bug:literal;)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $(#[doc = $bug] $variant,)*
        }

        /// All mutants.
        pub const ALL: &[Description] = &[
            $(Description {
                mutant: Mutant::$variant,
                name: $name,
                bug: $bug,
                machine: $machine,
                seconds_max: $seconds,
            },)*
        ];
    };
}

use Machine::{FailedSync, Faults, Histories, Profile, Replica, Sessions, Sim, SmallLog};

mutants! {
    LogUnsynced, "log-unsynced", Sim, 60,
        "a commit is acknowledged without a sync of the log";
    FailedSyncIgnored, "failed-sync-ignored", Faults("sync"), 180,
        "a failed sync of the log is taken for a successful one";
    PageSyncsApart, "page-syncs-apart", FailedSync("pages"), 240,
        "syncs of a file of pages overlap, and a failed one is noticed when all of its batch have ended";
    LogSyncsApart, "log-syncs-apart", FailedSync("log"), 120,
        "two syncs of the log are under way";
    CachedCountsAsDurable, "cached-counts-as-durable", Sim, 120,
        "log that was handed to the page cache counts as durable where writes go through to the disk";
    ClosedLogUnsynced, "closed-log-unsynced", Sim, 120,
        "a close that writes only the log does not sync it";
    PagesUnsynced, "pages-unsynced", Sim, 60,
        "pages count as clean, and the checkpoint passes them, before they are synced";
    DoublewriteSkipped, "doublewrite-skipped", Sim, 120,
        "pages are written in place without a copy in the doublewrite file";
    DoublewriteUnsynced, "doublewrite-unsynced", Profile("torn-pages"), 120,
        "pages are written in place before their copies are durable";
    TornPageKept, "torn-page-kept", Faults("damage"), 60,
        "recovery does not put doublewrite copies in place of torn pages";
    ImageUnsynced, "image-unsynced", Sim, 120,
        "a page is said to be where its image was written and not synced";
    UnitsFreedEarly, "units-freed-early", Sim, 120,
        "units are used again while the map on disk says that a page is there";
    PlacesUnsettled, "places-unsettled", Sim, 120,
        "the checkpoint passes pages of which the map on disk names older images";
    LeftOutUnsettled, "left-out-unsettled", Profile("loads"), 120,
        "a transaction commits before the rows that the log lacks are on disk";
    SplitKeepsSlots, "split-keeps-slots", Profile("loads"), 120,
        "where a page of which the log lacks rows is split, the log says how many stay";
    PageNotLoggedWhole, "page-not-logged-whole", Profile("loads"), 120,
        "a row of another transaction is logged for a page of which the log lacks rows";
    PlacesUnsynced, "places-unsynced", Sim, 120,
        "a block of the place map counts as durable before it is synced";
    PageBeforeLog, "page-before-log", Sim, 60,
        "a page is written before the log of its changes is durable";
    KeptPartFreed, "kept-part-freed", Sim, 120,
        "a part of a long value that an update keeps is freed when the update is committed";
    PartsNotCompared, "parts-not-compared", Sim, 120,
        "a part of a long value counts as what the row has already if it is as long";
    DirtyPageEvicted, "dirty-page-evicted", Sim, 60,
        "a dirty page may be evicted";
    CheckpointTooHigh, "checkpoint-too-high", Sim, 60,
        "the checkpoint passes pages that are still dirty";
    CheckpointBeforeLateRedo, "checkpoint-before-late-redo", Sim, 120,
        "the checkpoint passes what redo has left to the readers of pages";
    LateRedoPassedOver, "late-redo-passed-over", Sim, 60,
        "a page is read without the changes that redo has left for it";
    LateRedoLeftClean, "late-redo-left-clean", Sim, 120,
        "a page that its reader redoes is not dirty";
    ControlCopyOverwritten, "control-copy-overwritten", Sim, 120,
        "the control file's valid copy is overwritten, not the other one";
    SegmentRecycledEarly, "segment-recycled-early", Sim, 60,
        "a log segment is recycled while recovery still needs it";
    RollbackKeepsLog, "rollback-keeps-log", SmallLog, 120,
        "a rollback waits for room in the log and keeps what there is of it";
    UndonePartMoves, "undone-part-moves", SmallLog, 120,
        "undo moves with rows of a version that were undone before";
    LogUnbounded, "log-unbounded", Sim, 120,
        "the log makes files beyond log_file_size";
    DirectoryUnsynced, "directory-unsynced", Sim, 60,
        "the name of a new tablespace file is not made durable";
    PageLsnUnchecked, "page-lsn-unchecked", Sim, 60,
        "redo applies changes to pages that have them already";
    LoserForgotten, "loser-forgotten", Sim, 60,
        "recovery does not roll unfinished transactions back";
    EndNotAwaited, "end-not-awaited", Sim, 60,
        "the scan takes a transaction that begins in a piece of the log for one that ends there";
    PreparedForgotten, "prepared-forgotten", Sim, 60,
        "recovery takes a prepared transaction for an unfinished one";
    SpilledChangesForgotten, "spilled-changes-forgotten", Sim, 60,
        "of a page's changes that recovery has put into a file, those that were put there first are not redone";
    MovedRowsForgotten, "moved-rows-forgotten", Sim, 120,
        "a row keeps its old version address when its transaction's undo moves";
    UndoSavedUnsynced, "undo-saved-unsynced", Sim, 120,
        "the log lets go of undo that was written to the undo file and not synced";
    UndoCutEarly, "undo-cut-early", Profile("large-transactions"), 180,
        "the undo file is cut, and written over, before the log is durable that makes it needless";
    SavedInsertNeeded, "saved-insert-needed", Profile("saved-undo"), 180,
        "an insert that the scan cannot decode, and whose undo is saved later, is an error";
    BulkLeftAfterCrash, "bulk-left-after-crash", Sim, 120,
        "what a bulk insert has put into its tree stays there after a crash";
    BulkOutlivesPlace, "bulk-outlives-place", Sim, 120,
        "rows behind a savepoint join a bulk insert that began before it";
    BulkDeleteLeftAfterCrash, "bulk-delete-left-after-crash", Profile("large-transactions"), 120,
        "rows that a bulk delete of a loser has marked stay deleted after a crash";
    StatementForgetsItWentBack, "statement-forgets-it-went-back", Sim, 60,
        "a statement that fails is undone to where it began, though it has gone back behind that";
    UndoSkipsFirst, "undo-skips-first", Sim, 60,
        "a rollback leaves the transaction's first change in place";
    MilestoneUndone, "milestone-undone", Sim, 120,
        "a change that was undone stays a milestone among the versions of its row";
    VersionRetiredEarly, "version-retired-early", Sim, 60,
        "versions are retired while a snapshot still needs them";
    MarkedRowRemovedEarly, "marked-row-removed-early", Sim, 60,
        "a delete-marked row is removed while a transaction may still need it";
    RowLockUnseen, "row-lock-unseen", Sim, 60,
        "a writer passes another's change that is not committed";
    LostUpdate, "lost-update", Sim, 60,
        "a writer passes a change that was committed after its snapshot";
    RangeLockSkipped, "range-lock-skipped", Histories, 60,
        "serializable reads do not lock the range that they read";
    HandOffLost, "hand-off-lost", Histories, 60,
        "a waiter for a row is not handed it when the transaction ends that has changed it";
    LockTokenIgnored, "lock-token-ignored", Sim, 60,
        "a row that was locked twice is given back by the second that asked for it";
    GapUnseen, "gap-unseen", Histories, 60,
        "rows are inserted where others have locked the range or the gap";
    VictimSpared, "victim-spared", Histories, 60,
        "the victim of a deadlock is not told";
    PageLeaked, "page-leaked", Sim, 60,
        "a freed page stays allocated in the space map";
    MovedPageNotFound, "moved-page-not-found", Profile("compactions"), 120,
        "the parent of a page that moves goes on naming the page that it leaves";
    MovedPageKept, "moved-page-kept", Profile("compactions"), 120,
        "a page that moves stays allocated where it was";
    LatchReleasedEarly, "latch-released-early", Sim, 120,
        "a page's latch is let go of between a change and the page's LSN";
    PageUnchecked, "page-unchecked", Faults("damage"), 60,
        "a page is believed without a look at its checksum and number";
    PageLsnMapUnchecked, "page-lsn-map-unchecked", Faults("damage"), 240,
        "an older version of a page in its own place is believed";
    ShortFileAccepted, "short-file-accepted", Faults("damage"), 120,
        "a tablespace file that was cut short is opened";
    AllMapsRead, "all-maps-read", Faults("huge"), 60,
        "the search for a free page reads the space maps of the whole file";
    PageNumbersUnending, "page-numbers-unending", Faults("huge"), 180,
        "where no page number is left the search for a free page begins again";
    PlacedUnpromised, "placed-unpromised", Faults("full"), 120,
        "placed pages are allocated for which their file has no units";
    ControlReplacedUnseen, "control-replaced-unseen", Faults("around"), 120,
        "it is not checked whether the control file is still the one that is locked";
    NewerTableRead, "newer-table-read", Sim, 60,
        "a snapshot reads a table that was made or filled after it";
    StatementLockSkipped, "statement-lock-skipped", Replica("AUTO_INCREMENT"), 300,
        "numbers for unknown rows are given out without the table's statement lock";
    PreparedKeepsShared, "prepared-keeps-shared", Sessions("shared"), 300,
        "a transaction that is prepared does not give back what it has locked shared";
}

/// The description of the mutant of a name; or, for people, which names there are.
pub fn find(name: &str) -> Result<&'static Description, String> {
    ALL.iter().find(|d| d.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|d| d.name).collect();
        format!("there is no mutant {name}; there are {}", names.join(", "))
    })
}

#[cfg(inkstone_mutants)]
mod switch {
    use super::{Mutant, find};
    use std::sync::atomic::{AtomicUsize, Ordering};

    static SWITCHED: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Whether the mutant is switched on in this process.
    #[inline]
    pub fn on(mutant: Mutant) -> bool {
        SWITCHED.load(Ordering::Relaxed) == mutant as usize
    }

    /// Switches the mutant of a name on, for the rest of the process.
    pub fn switch_on(name: &str) -> Result<(), String> {
        let mutant = find(name)?.mutant;
        SWITCHED.store(mutant as usize, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(not(inkstone_mutants))]
mod switch {
    use super::{Mutant, find};

    /// No: mutants are not compiled in.
    #[inline(always)]
    pub const fn on(_: Mutant) -> bool {
        false
    }

    /// Mutants are not compiled in: an error.
    pub fn switch_on(name: &str) -> Result<(), String> {
        find(name)?;
        Err(format!(
            "mutant {name} is not compiled in: build with --cfg inkstone_mutants, as cargo xtask does"
        ))
    }
}

pub use switch::{on, switch_on};
