//! The isolation levels, and what each of them asks of reads and writes.

/// What a transaction sees of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Plain reads see the newest version of a row, committed or not (a long value: the committed
    /// one). All else is as at [`Isolation::ReadCommitted`].
    ReadUncommitted,
    /// Each statement sees what was committed when it began. A write goes on from the newest
    /// committed version.
    ReadCommitted,
    /// Plain reads see what was committed when the first one began. Writes and locking reads act on
    /// the newest committed version, and locking reads of ranges lock the gaps that they pass, so
    /// that inserts into them wait. This is InnoDB's repeatable read; updates can be lost.
    LockingRepeatableRead,
    /// All statements see what was committed when the first one began (snapshot isolation). To
    /// write a row that was changed since is an error: no update is lost.
    #[default]
    RepeatableRead,
    /// As if transactions ran one after the other: reads lock what they read.
    Serializable,
}

/// How a locking read leaves the place of a row that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingRow {
    /// Others may insert it.
    Free,
    /// Others may lock the gap as well, and not insert.
    Gap,
    /// It is locked as a row would be.
    Row,
}

impl Isolation {
    /// Whether all statements of a transaction share one snapshot.
    pub(crate) fn keeps_snapshot(self) -> bool {
        matches!(self, Self::LockingRepeatableRead | Self::RepeatableRead)
    }

    /// Whether a write must not pass over what was committed after the transaction's snapshot.
    pub(crate) fn first_committer_wins(self) -> bool {
        self == Self::RepeatableRead
    }

    /// Whether a locking scan locks the gaps between the rows that it locks.
    pub(crate) fn locks_gaps(self) -> bool {
        self == Self::LockingRepeatableRead
    }

    /// What a locking read locks where there is no row.
    pub(crate) fn locks_missing_rows(self) -> MissingRow {
        match self {
            Self::ReadUncommitted | Self::ReadCommitted => MissingRow::Free,
            Self::LockingRepeatableRead => MissingRow::Gap,
            Self::RepeatableRead | Self::Serializable => MissingRow::Row,
        }
    }

    /// Whether plain reads lock the range that they cover.
    pub(crate) fn locks_reads(self) -> bool {
        self == Self::Serializable
    }

    /// Whether a row's lock may be given back before the transaction ends.
    pub(crate) fn unlocks_rows(self) -> bool {
        matches!(self, Self::ReadUncommitted | Self::ReadCommitted)
    }
}
