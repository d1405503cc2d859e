//! The life of a transaction: begin, statements and savepoints, prepare, commit, rollback.
//!
//! | module | subject |
//! |---|---|
//! | [`core`] | what all transactions of an open database share |
//! | [`transaction`] | begin, commit, rollback |
//! | `state` | what a transaction has, and shares with the checkpoint and recovery |
//! | `change` | a row's change, its version and its record |
//! | `pending` | a commit that is not durable yet, for a thread or a future |
//! | `gates` | what a thread passes before it changes pages |
//! | `savepoints` | statements, marks and savepoints |
//! | `statement_locks` | locks of tables that end with a statement |
//! | `prepare` | the first phase of a commit in two, and XIDs |
//! | `left_out` | rows that the log does not have: on disk before their transaction commits |
//! | `rollback` | undoing changes |
//! | `thin_leaves` | leaves that are to be merged when readers let go of them |
//! | `promise` | the log space that is there for a rollback, also on a full disk |
//! | `tracked` | keys of rows that change while an index is built |
//! | `undo_place` | where undo is: in the log, or, of large and old transactions, in the undo file |

pub(crate) mod change;
pub mod core;
mod gates;
mod left_out;
mod pending;
mod prepare;
pub(crate) mod promise;
pub(crate) mod rollback;
mod savepoints;
pub mod state;
mod statement_locks;
pub(crate) mod thin_leaves;
pub(crate) mod tracked;
pub mod transaction;
pub(crate) mod undo_place;

pub use pending::PendingCommit;
pub use prepare::Prepared;
pub use savepoints::Mark;
pub use transaction::Transaction;
