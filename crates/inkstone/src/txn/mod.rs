//! Transactions: their shared state and snapshots, old versions of rows, locks.
//!
//! | module | subject |
//! |---|---|
//! | [`system`] | who is active, commit order, snapshots, slots |
//! | [`versions`] | the store of before-images that rollback and snapshots read |
//! | [`locks`] | explicit record and range locks; waiting and deadlocks |
//!
//! Each module uses only those above it in this table.

pub mod locks;
pub mod system;
pub mod versions;
