//! The stores that are compared.

mod fjall;
mod inkstone;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use crate::store::Open;

/// Names, and how to open each.
pub const STORES: &[(&str, Open)] = &[
    ("inkstone", inkstone::open),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", rocksdb::open),
    ("lmdb", lmdb::open),
    ("sqlite", sqlite::open),
    ("redb", redb::open),
    ("fjall", fjall::open),
];
