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

/// The directory that a child process started by [`killed`] works in; `None` in the test itself.
pub fn child_dir() -> Option<std::path::PathBuf> {
    std::env::var_os("INKSTONE_TEST_CHILD_DIR").map(Into::into)
}

/// Says, in a child process, that it is time to be killed.
pub fn ready_to_die() -> ! {
    use std::io::Write;
    // Not `println`, which the test harness captures.
    let mut out = std::io::stdout();
    out.write_all(b"\nREADY TO DIE\n").unwrap();
    out.flush().unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The test of this name as a process of its own, in which [`child_dir`] is `dir`.
pub fn child(test: &str, dir: &std::path::Path) -> std::process::Command {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child
        .args([test, "--exact", "--nocapture"])
        .env("INKSTONE_TEST_CHILD_DIR", dir);
    child
}

/// Runs the test of this name in a process of its own, which is killed (SIGKILL) when it says that
/// it is ready.
pub fn killed(test: &str, dir: &std::path::Path) {
    use std::io::BufRead;
    let mut child = child(test, dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .map_while(Result::ok)
        .any(|line| line == "READY TO DIE");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready, "the child process failed");
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

/// Bytes of the log's files.
pub fn log_bytes(dir: &std::path::Path) -> u64 {
    // A segment may be renamed while we look.
    std::fs::read_dir(dir.join("log"))
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()))
        .sum()
}
