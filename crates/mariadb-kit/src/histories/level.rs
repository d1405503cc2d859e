//! What SQL calls isolation, and what the checker knows it as.

use inkstone::Isolation;

/// An isolation level of SQL, with `inkstone_snapshot_isolation` on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    ReadCommitted,
    /// REPEATABLE READ as InnoDB has it. Plain reads beside writes would show what it does not
    /// forbid, and the checker has no name for what is left: here every read locks, and all must be
    /// serializable.
    Locking,
    /// REPEATABLE READ with `snapshot_isolation`.
    Snapshot,
    Serializable,
    /// SERIALIZABLE with `snapshot_isolation`.
    SerializableSnapshot,
}

impl Level {
    pub const ALL: [Self; 5] = [
        Self::ReadCommitted,
        Self::Locking,
        Self::Snapshot,
        Self::Serializable,
        Self::SerializableSnapshot,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::Locking => "REPEATABLE READ, all reads lock",
            Self::Snapshot => "REPEATABLE READ, snapshot_isolation",
            Self::Serializable => "SERIALIZABLE",
            Self::SerializableSnapshot => "SERIALIZABLE, snapshot_isolation",
        }
    }

    /// The statements that choose it for the next transaction.
    pub fn settings(self) -> [&'static str; 2] {
        let level = match self {
            Self::ReadCommitted => "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            Self::Locking | Self::Snapshot => {
                "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            }
            Self::Serializable | Self::SerializableSnapshot => {
                "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"
            }
        };
        let snapshot = if self.may_conflict() {
            "SET SESSION inkstone_snapshot_isolation = ON"
        } else {
            "SET SESSION inkstone_snapshot_isolation = OFF"
        };
        [level, snapshot]
    }

    /// Whether its changes may be logged as statements: where what was read is locked with its
    /// gaps.
    pub fn locks_gaps(self) -> bool {
        !matches!(self, Self::ReadCommitted | Self::Snapshot)
    }

    /// Whose promises the checker holds it to.
    pub fn isolation(self) -> Isolation {
        match self {
            Self::ReadCommitted => Isolation::ReadCommitted,
            Self::Locking => Isolation::LockingRepeatableRead,
            Self::Snapshot => Isolation::RepeatableRead,
            Self::Serializable | Self::SerializableSnapshot => Isolation::Serializable,
        }
    }

    /// Whether every read must name its lock.
    pub fn locks_all(self) -> bool {
        self == Self::Locking
    }

    /// Whether `START TRANSACTION WITH CONSISTENT SNAPSHOT` does something that agrees with the
    /// rest.
    pub fn has_snapshot(self) -> bool {
        self == Self::Snapshot
    }

    /// Whether a write may be refused because the row was changed after the snapshot.
    pub fn may_conflict(self) -> bool {
        matches!(self, Self::Snapshot | Self::SerializableSnapshot)
    }
}
