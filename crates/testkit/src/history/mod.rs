//! Histories of concurrent transactions: recorded on the real engine, and checked for what their
//! isolation level forbids, in the manner of Elle (Kingsbury and Alvaro, 2020) and of Adya's
//! thesis.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | what a history is |
//! | `rows` | keys and values as bytes of a table |
//! | `client` | a client: random transactions on the engine, recorded |
//! | `life` | a database's life from seed: clients on threads, power losses, what is left |
//! | `campaign` | many lives, counts, the line that repeats a failing one |
//! | `walk` | one transaction alone: what it read of others, whether it agrees with itself |
//! | `versions` | in which order the versions of each key were written, and by which transaction |
//! | `graph` | which transaction must come before which |
//! | `cycles` | circles among them, by class |
//! | `check` | all of it, and what each level promises |
//! | `report` | anomalies as text |
//!
//! # Words
//!
//! - *Version*: a state of one key. Each is written once, so that a read of it names its writer.
//! - *Life*: from an opening of the database to its orderly end, kill or power loss. A history is
//!   one life: what was there at first, what clients did, what was found afterwards. So a
//!   transaction that a power loss takes has existed for those that saw it, and the next life
//!   begins without it.
//! - *Time*: a number that a clock common to all clients gives out. If one event was over before
//!   another began, its number is smaller.

pub mod campaign;
mod check;
mod client;
mod cycles;
mod graph;
mod life;
mod report;
mod rows;
mod versions;
mod walk;

#[cfg(test)]
mod tests;

pub use check::{Anomaly, Checked, Class, check, forbidden};
pub use life::{Plan, run};

use inkstone::{Durability, Isolation};
use std::collections::BTreeMap;
use std::fmt;

/// A moment: see the module.
pub type Time = u64;

/// What a key holds. Elements are unique in a history.
///
/// A list has its elements in the order in which they were appended. A register has the one that
/// was written last. A row has its number. No elements: there is no such key.
pub type Value = Vec<u64>;

/// A key: what can be done with it, and how the order of its versions is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Elements are appended. A version holds all that came before it.
    List(u32),
    /// A value is written over the last one. Of two versions the order is known if the writer
    /// of one has read the other.
    Register(u32),
    /// Inserted once, deleted once.
    Row {
        /// The range of rows that it belongs to.
        range: u32,
        /// Its number, unique.
        id: u64,
    },
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::List(number) => write!(f, "list {number}"),
            Key::Register(number) => write!(f, "register {number}"),
            Key::Row { range, id } => write!(f, "row {range}/{id}"),
        }
    }
}

/// What a scan goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Lists from the first number up to, and without, the second.
    Lists(u32, u32),
    /// All rows of a range.
    Rows(u32),
}

impl Range {
    /// The least key in it, and the least one beyond it.
    pub fn bounds(self) -> (Key, Key) {
        match self {
            Range::Lists(low, high) => (Key::List(low), Key::List(high)),
            Range::Rows(range) => {
                let first = |range| Key::Row { range, id: 0 };
                (first(range), first(range + 1))
            }
        }
    }
}

/// What a transaction did, successfully.
#[derive(Clone, Debug)]
pub enum Action {
    /// Read a key.
    Read {
        /// Of it.
        key: Key,
        /// What was there.
        value: Value,
        /// Whether the key was locked until the transaction's end.
        locking: bool,
    },
    /// Read a range.
    Scan {
        /// The range.
        range: Range,
        /// What was there.
        found: BTreeMap<Key, Value>,
        /// How it was read.
        kind: ScanKind,
    },
    /// Made a key's new version.
    Write {
        /// The key.
        key: Key,
        /// All that it holds now.
        value: Value,
    },
    /// Set the savepoint; the one before it is forgotten.
    Savepoint,
    /// Undid what was written since the savepoint.
    RollBack,
}

/// How a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// One statement, one snapshot.
    Plain,
    /// Key by key, each locked.
    Locking,
    /// As `Locking`, without the keys that others had locked.
    SkipLocked,
}

/// An action and when it began.
#[derive(Clone, Debug)]
pub struct Op {
    /// Before the engine was called.
    pub at: Time,
    /// What was done.
    pub action: Action,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged.
    Committed {
        /// After the engine's answer.
        at: Time,
        /// What the answer waited for.
        durability: Durability,
    },
    /// It must have had no effect; why.
    Aborted(String),
    /// The process died in the middle of the commit.
    Unknown,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Txn {
    /// Which client.
    pub client: u32,
    /// Its isolation level.
    pub level: Isolation,
    /// Before the engine was called.
    pub begin: Time,
    /// What it did.
    pub ops: Vec<Op>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All transactions were over.
    Quiet,
    /// The process was killed: what was written to files is there.
    Kill,
    /// Power loss: what was synced is there.
    PowerLoss,
}

impl End {
    /// Whether a commit that was acknowledged so must be there afterwards.
    pub fn keeps(self, durability: Durability) -> bool {
        match self {
            End::Quiet => true,
            End::Kill => durability != Durability::Lazy,
            End::PowerLoss => durability == Durability::Sync,
        }
    }
}

/// Everything that a database holds.
pub type State = BTreeMap<Key, Value>;

/// One life.
#[derive(Clone, Debug)]
pub struct History {
    /// What was there before the first transaction.
    pub initial: State,
    /// The transactions of all clients.
    pub txns: Vec<Txn>,
    /// How it ended.
    pub end: End,
    /// What was there afterwards.
    pub last: State,
}
