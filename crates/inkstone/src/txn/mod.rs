//! Transactions: their shared state and snapshots, old versions of rows, locks, and what reads and
//! writes rows through them.
//!
//! | module | subject |
//! |---|---|
//! | [`system`] | who is active, commit order, snapshots, slots |
//! | [`versions`] | the store of before-images that rollback and snapshots read |
//! | [`locks`] | explicit record and range locks; waiting and deadlocks |
//! | [`core`] | what all transactions of an open database share |
//! | [`transaction`] | begin, savepoints, commit, rollback, prepare |
//! | `write`, `read`, `scan` | rows through a transaction |
//! | `overflow` | long values |
//! | `rollback` | undoing changes |
//! | `promise` | the log space that is there for a rollback, also on a full disk |
//! | [`purge`] | removing what no snapshot can see |
//!
//! Latch order: a transaction's inner state, then pages (space map, then a tree from the top), then
//! the version store and the lock table, which latch no pages.

mod bulk;
pub mod core;
pub mod locks;
mod overflow;
mod promise;
pub mod purge;
mod read;
pub(crate) mod recovered;
mod rollback;
mod scan;
pub mod system;
pub mod transaction;
pub mod versions;
mod write;

pub use read::Wait;
pub use scan::{Cursor, LockingCursor};
pub use transaction::{Isolation, PendingCommit, Transaction};
