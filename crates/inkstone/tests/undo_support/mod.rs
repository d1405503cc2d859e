//! What the tests of undo in its file share.

use inkstone::{Database, Isolation, Options, TreeRef};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

/// Keys and values.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A database with a log of 4 MiB.
pub fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

/// All rows, as of now.
pub fn rows_of(db: &Database, table: &impl TreeRef) -> Rows {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let all = txn.range(table, ..).unwrap();
    all.map(|row| row.unwrap()).collect()
}

/// A metric, by its name.
pub fn gauge(db: &Database, name: &str) -> u64 {
    let metrics = db.metrics();
    metrics.iter().find(|m| m.name == name).unwrap().value
}

/// Bytes that no log can shorten, the same for the same number.
pub fn noise(n: u64, len: usize) -> Vec<u8> {
    let mut state = n;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}
