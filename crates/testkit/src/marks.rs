//! What runs have seen: counts by name, and those without which a campaign proves less than it
//! seems to.

use std::collections::BTreeMap;

/// "Sometimes" marks: a campaign of [`RUNS_TO_JUDGE`] runs or more that never saw one of them
/// fails. Name, and what sets it.
pub const SOMETIMES: &[(&str, &str)] = &[
    (
        "torn pages repaired",
        "a page in place was neither whole nor empty after a power loss, its copy in the doublewrite file was, and recovery put it back",
    ),
    (
        "doublewrite batches half written",
        "after a power loss the header of a batch was whole and one of its copies was not",
    ),
    (
        "crashes inside recovery",
        "the process ended while it opened a database that needed recovery, after it had begun to change files",
    ),
    (
        "crashes inside recovery in a row",
        "and the one before it ended inside the same recovery",
    ),
    (
        "splits partly on disk",
        "of the pages that one split in the log changed, the disk had some with the change and some without",
    ),
    (
        "splits in the lost tail",
        "a split had been written to the log, behind what turned out to be its end",
    ),
    (
        "losers of thousands of rows",
        "recovery rolled back more than 2000 row changes for each loser",
    ),
    ("losers", "transactions that recovery rolled back"),
    (
        "version_segments_spilled",
        "old versions went to the spill file",
    ),
    (
        "rows of open cursors that were changed",
        "a cursor that stayed open gave a row that its transaction, or another one, had changed meanwhile",
    ),
    (
        "long values given by open cursors that were taken back",
        "a cursor had copied a row, and read its long value after the row was taken back",
    ),
    (
        "rows_left_out",
        "a bulk insert put rows into pages that it had to itself, and the log did not have them",
    ),
    (
        "pages_logged_whole",
        "another transaction, or a rollback, changed such a page, of which the log lacked rows",
    ),
    (
        "unlogged_commits",
        "a transaction with such rows committed, or was prepared, once its pages were on disk",
    ),
    (
        "milestones_taken",
        "a read passed many versions of a row at once",
    ),
    (
        "pages_read_ahead",
        "a scan read leaves together, before it had come to them",
    ),
    (
        "prepared over a crash",
        "a prepared transaction was there after a power loss or a kill",
    ),
    (
        "stale frames behind the end",
        "behind the proven end of the log lay a whole frame of an earlier life of a recycled segment",
    ),
    (
        "orphans removed",
        "recovery removed the file of a table whose creation was lost, or whose drop was not finished",
    ),
    (
        "commits lost legally",
        "commits that were not acknowledged as durable were gone",
    ),
    (
        "more than one batch",
        "recovery's memory held only a part of the changes",
    ),
    (
        "changes to redo in a file",
        "recovery's memory had no room for changes, which went to a file and came back",
    ),
    (
        "reads while pages waited",
        "a database was read before all pages were redone, and the reader redid some",
    ),
    (
        "commits while pages waited",
        "a table was made, filled and dropped before all pages were redone",
    ),
    (
        "checkpoints while pages waited",
        "a round of checkpoints was over before all pages were redone",
    ),
    (
        "crashes while pages waited",
        "the process ended before all pages were redone",
    ),
    (
        "crashes while losers were undone",
        "the process ended before all changes of an earlier run's transactions were undone",
    ),
    (
        "closes while pages waited",
        "a database was closed before all pages were redone",
    ),
    (
        "other outcomes",
        "the same power loss was recovered again from another disk that it could have left",
    ),
    (
        "looks over an overlay",
        "a closed, killed or crashed database was recovered in memory and verified, and its disk stayed as it was",
    ),
    (
        "rows read ahead",
        "keys were said before they were looked up, and pages of their rows read together",
    ),
    (
        "old snapshots read",
        "a repeatable read saw another version than the newest",
    ),
    (
        "rows locked twice",
        "a row was locked by name twice, and could not be given back",
    ),
    (
        "rows unlocked",
        "a row was locked by name once, and given back",
    ),
    (
        "locks made shared again",
        "a row locked shared, then exclusive, gave back the second lock alone",
    ),
    (
        "tables newer than a snapshot",
        "a repeatable read was refused, as its snapshot was older than the table",
    ),
    (
        "rollback_waits",
        "a step of a rollback waited for room in the log, which came",
    ),
    (
        "slow syncs of which one failed",
        "a sync failed while others of many files were under way, and power was lost after it",
    ),
    (
        "closes that wrote only the log",
        "a database was closed with `Shutdown::LogOnly`, and all that was committed was there after a recovery, also where the power was lost behind the close",
    ),
    ("slow closes", "a database was closed with `Shutdown::Slow`"),
    (
        "page_write_failures",
        "pages could not be written, for as long as a spell lasted",
    ),
    (
        "spells survived",
        "pages could be written again, and the engine went on",
    ),
    (
        "bulk_inserts",
        "a statement inserted many rows of a tree with one version",
    ),
    (
        "bulk inserts undone after a crash",
        "such rows were removed by the rollback of a loser that a power loss or a kill had left",
    ),
    (
        "failing statements that went back",
        "a statement that fails began with a rollback to a savepoint set before it",
    ),
    ("range deletes", "a statement deleted all rows of a range"),
    (
        "ranges of many rows deleted",
        "more than forty rows of a range were deleted at once, and the statement succeeded",
    ),
    (
        "bulk_deletes",
        "rows of a range that is deleted got one version for many",
    ),
    ("rows_bulk_deleted", "rows that had such a version"),
    (
        "bulk deletes undone after a crash",
        "such rows were given back by the rollback of a loser that a power loss or a kill had left",
    ),
    (
        "undo_file_cuts",
        "the free end of the undo file went back to the file system",
    ),
    ("power losses", ""),
    ("kills", ""),
    ("closes", ""),
    ("buffer_evictions", ""),
    ("leaf_splits", ""),
    ("page_merges", ""),
    (
        "pages_moved",
        "a compaction moved a page of a tree nearer to the beginning of its file",
    ),
    ("rows_purged", ""),
    ("log_segments_recycled", ""),
    ("doublewrite_skipped", ""),
];

/// Runs after which a campaign must have seen everything.
pub const RUNS_TO_JUDGE: u64 = 400;

/// Counts of what was seen, by name.
#[derive(Clone, Debug, Default)]
pub struct Marks(pub BTreeMap<String, u64>);

impl Marks {
    /// Adds to a count.
    pub fn add(&mut self, name: &str, count: u64) {
        match self.0.get_mut(name) {
            Some(sum) => *sum += count,
            None => drop(self.0.insert(name.to_owned(), count)),
        }
    }

    /// Adds all counts of another.
    pub fn merge(&mut self, other: &Marks) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// A count.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// How often a process ended otherwise than in order.
    pub fn crashes(&self) -> u64 {
        self.get("power losses") + self.get("kills")
    }

    /// The "sometimes" marks that were never seen.
    pub fn missing(&self) -> Vec<&'static str> {
        let names = SOMETIMES.iter().map(|(name, _)| *name);
        names.filter(|name| self.get(name) == 0).collect()
    }
}
