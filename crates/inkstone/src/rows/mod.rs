//! Rows through a transaction: reads, writes, scans, long values, and what purge removes.
//!
//! | module | subject |
//! |---|---|
//! | `tables` | handles of tables and trees |
//! | `read` | one row, with and without locks |
//! | `scan`, `batch` | ranges for snapshots, a leaf at a time |
//! | `scan_locking` | ranges with locks |
//! | `write`, `bulk`, `bulk_delete` | one change, and many at once |
//! | `merging` | changes that commute |
//! | `change` | what a change does to a row's leaf, and what the log has of it |
//! | `overflow` | long values |
//! | `parts` | which parts of them leave the row |
//! | `outline` | reading rows without those |
//! | [`purge`] | removing what no snapshot can see |
//! | `compact` | long values nearer the beginning of their file |
//! | `dropped` | freeing the pages of trees that were dropped |
//!
//! Latch order: a transaction's inner state, then pages (space map, then a tree from the top), then
//! the version store and the lock table, which latch no pages.

mod batch;
mod bulk;
mod bulk_delete;
mod change;
mod compact;
mod dropped;
pub(crate) mod merging;
mod outline;
mod overflow;
mod parts;
pub mod purge;
mod read;
mod scan;
mod scan_locking;
mod tables;
mod write;

pub use bulk::InsertedRows;
pub(crate) use change::Written;
pub use outline::{Outline, OutsidePart};
pub(crate) use overflow::chains;
pub use read::Wait;
pub use scan::{Cursor, Rows, RowsIter};
pub use scan_locking::{LockingCursor, LockingScan};
pub(crate) use tables::TableInner;
pub use tables::{Table, TableTree, TreeRef};
pub(crate) use write::Write;
