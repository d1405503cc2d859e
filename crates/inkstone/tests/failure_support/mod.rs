//! What the tests of failures share.
#![allow(dead_code, reason = "each test program uses a part")]

use inkstone::{Database, Error, Isolation, Options, Result, Table};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Small everything, so that tests are quick and caches small.
pub fn small() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        version_store_memory: 1 << 20,
        recovery_threads: 2,
        buffer_pool_dump_at_shutdown: false,
        ..Options::default()
    }
}

pub fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Bytes that no compression makes fewer, in the log neither.
pub fn noise(n: u64, length: usize) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Directory of a database on a simulated disk.
pub fn sim_dir() -> &'static Path {
    Path::new("db")
}

pub fn open_sim(vfs: &SimVfs, options: Options) -> Result<Database> {
    Database::open_on(Arc::new(vfs.clone()), sim_dir(), options, &|_| {})
}

/// Inserts rows and commits.
pub fn insert(
    db: &Database,
    table: &Table,
    keys: impl IntoIterator<Item = u64>,
    value: &[u8],
) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    for n in keys {
        txn.insert(table, &key(n), value)?;
    }
    txn.commit()
}

/// The numbers of all rows, in order.
pub fn rows(db: &Database, table: &Table) -> Result<Vec<u64>> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    let mut rows = Vec::new();
    for row in txn.range(table, ..)? {
        rows.push(u64::from_be_bytes(row?.0.try_into().expect("eight bytes")));
    }
    Ok(rows)
}

/// The error of something that must not succeed.
pub fn failed<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("this should have failed"),
        Err(error) => error,
    }
}

/// All bytes of all files under a directory.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return all;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
            // An empty directory counts too.
            all.insert(path, Vec::new());
        } else {
            let bytes = std::fs::read(&path).unwrap();
            all.insert(path, bytes);
        }
    }
    all
}

/// All bytes of all files of a simulated disk.
pub fn sim_contents(vfs: &SimVfs) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| (path.clone(), vfs.read_raw(&path).unwrap());
    vfs.files().into_iter().map(read).collect()
}

/// Asserts that each of the words is in the error's text.
#[track_caller]
pub fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
    if std::env::var_os("SHOW_ERRORS").is_some() {
        println!("| {text}");
    }
}
