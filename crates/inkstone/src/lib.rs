//! Inkstone, the engine.
pub mod btree;
pub mod buffer;
pub mod catalog;
pub mod control;
pub mod counters;
pub mod database;
pub mod error;
pub mod log;
pub mod mtr;
pub mod options;
pub mod poison;
pub mod recovery;
pub mod space;
pub mod store;
pub mod txn;

pub use btree::TreeReport;
pub use database::{
    Database, OpenReport, Recovered, Table, TableReport, TableStatistics, TableTree, TreeRef,
};
pub use error::{Error, Result};
pub use options::{Durability, Options};
pub use txn::locks::LockMode;
pub use txn::{Cursor, Isolation, LockingCursor, PendingCommit, Transaction, Wait};
