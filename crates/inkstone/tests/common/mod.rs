//! What the integration tests share. Each of them runs under [`within`]: a hang is a failure with
//! a message, not a test that never ends.
#![allow(dead_code, reason = "not every test file uses every helper")]

use inkstone::{Database, Error, Isolation, Options, Table, Transaction};
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// Options for a small database: commits do not wait for the disk unless a test asks.
pub fn options() -> Options {
    Options {
        buffer_pool_size: 8 << 20,
        log_file_size: 32 << 20,
        log_buffer_size: 4 << 20,
        flush_log_at_trx_commit: inkstone::Durability::Lazy,
        lock_wait_timeout_ms: 20_000,
        ..Options::default()
    }
}

/// Runs a test; panics if it is not over after so many seconds.
pub fn within(seconds: u64, test: impl FnOnce() + Send + 'static) {
    let (over, is_over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = over.send(());
    });
    match is_over.recv_timeout(Duration::from_secs(seconds)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs: not over after {seconds} s"),
        _ => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Starts something that must block. It cannot be over while it does, so the check is never wrong.
pub fn blocked<'s, 'e, T: Send + 's>(
    scope: &'s Scope<'s, 'e>,
    f: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let thread = scope.spawn(f);
    std::thread::sleep(Duration::from_millis(60));
    assert!(!thread.is_finished(), "it went on, but should have waited");
    thread
}

pub fn open(dir: &tempfile::TempDir) -> Database {
    Database::open(dir.path(), options()).unwrap()
}

pub fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

pub fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

/// A value that holds a number.
pub fn val(n: i64) -> Vec<u8> {
    n.to_string().into_bytes()
}

pub fn num(value: &[u8]) -> i64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

pub fn read(txn: &Transaction, table: &Table, k: u64) -> Option<i64> {
    txn.get(table, &key(k)).unwrap().map(|value| num(&value))
}

/// The rows of a table as a new transaction sees them.
pub fn rows(db: &Database, table: &Table) -> Vec<(u64, i64)> {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    all(&txn, table)
}

pub fn all(txn: &Transaction, table: &Table) -> Vec<(u64, i64)> {
    txn.range(table, ..)
        .unwrap()
        .map(|row| row.unwrap())
        .map(|(k, v)| (number(&k), num(&v)))
        .collect()
}

/// One committed transaction.
pub fn commit(db: &Database, f: impl FnOnce(&Transaction)) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    f(&txn);
    txn.commit().unwrap();
}

/// Whether an error is one after which a transaction is to be repeated.
pub fn is_retryable(error: &Error) -> bool {
    matches!(
        error,
        Error::Deadlock | Error::WriteConflict | Error::LockTimeout { .. }
    )
}

/// Copies a database directory as a crash would leave it (the files as the process wrote them).
pub fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Random numbers (xorshift), so that a failing run can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
