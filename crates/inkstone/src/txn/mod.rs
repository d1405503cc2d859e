//! Transactions: their shared state and snapshots, old versions of rows, locks, and what reads and
//! writes rows through them.
//!
//! | module | subject |
//! |---|---|
//! | [`system`] | who is active, commit order, snapshots, slots |
//! | [`versions`] | the store of before-images that rollback and snapshots read |
//! | [`locks`] | explicit locks of rows and ranges; queues and deadlocks |
//! | [`core`] | what all transactions of an open database share |
//! | [`transaction`] | begin, commit, rollback |
//! | `isolation` | the levels, and what they ask for |
//! | [`interrupt`] | interrupting a statement from another thread |
//! | `savepoints` | statements, marks and savepoints |
//! | `statement_locks` | locks of tables that end with a statement |
//! | `prepare` | the first phase of a commit in two, and XIDs |
//! | `write`, `bulk`, `read`, `scan`, `scan_locking` | rows through a transaction |
//! | `overflow` | long values |
//! | `rollback` | undoing changes |
//! | `promise` | the log space that is there for a rollback, also on a full disk |
//! | [`purge`] | removing what no snapshot can see |
//! | `dropped` | freeing the pages of trees that were dropped |
//!
//! Latch order: a transaction's inner state, then pages (space map, then a tree from the top), then
//! the version store and the lock table, which latch no pages.

mod batch;
mod bulk;
pub mod core;
mod dropped;
pub mod interrupt;
mod isolation;
pub mod locks;
mod overflow;
mod prepare;
mod promise;
pub mod purge;
mod read;
pub(crate) mod recovered;
mod rollback;
mod savepoints;
mod scan;
mod scan_locking;
mod statement_locks;
pub mod system;
pub mod transaction;
mod undo_copy;
pub mod versions;
mod write;

pub(crate) use bulk::{GATHERED_BYTES, GATHERED_ROWS, RowRef};
pub use interrupt::Interrupt;
pub use isolation::Isolation;
pub use prepare::Prepared;
pub use read::{Locked, Wait};
pub use savepoints::Mark;
pub use scan::{Cursor, Rows, RowsIter};
pub use scan_locking::{LockingCursor, LockingScan};
pub use transaction::{PendingCommit, Transaction};
