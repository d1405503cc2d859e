//! A handle in a forked child: every call is an error, and nothing that the child does or leaves
//! undone reaches the files or holds the parent up.

mod common;

use common::child_dir;
use inkstone::{Database, Error, Isolation, Options, Table};
use std::path::Path;
use std::process::Command;

fn options() -> Options {
    Options {
        buffer_pool_size: 4 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    }
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Runs `body` in a forked child and returns its pid. The child ends with 0 if `body` returned
/// true.
#[expect(unsafe_code, reason = "fork is what is tested")]
fn fork(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs `body` and ends without returning to the test harness. `body` calls
    // what is under test, which promises not to wait for threads that are not in the child.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(i32::from(!body())),
            pid => pid,
        }
    }
}

/// Waits for a child; whether it ended with 0.
#[expect(unsafe_code, reason = "the children are not std's")]
fn ended_well(pid: i32) -> bool {
    let mut status = -1;
    // SAFETY: `status` can be written.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    waited == pid && status == 0
}

fn commit(db: &Database, table: &Table, n: u64) -> Result<(), Error> {
    let txn = db.begin(Isolation::RepeatableRead)?;
    txn.insert(table, &key(n), b"row")?;
    txn.commit()
}

fn forked<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked))
}

/// Everything a child may try.
fn misuse(db: Database, table: &Table, txn: inkstone::Transaction) -> bool {
    let refused = [
        forked(db.begin(Isolation::ReadCommitted)),
        forked(txn.insert(table, &key(1 << 40), b"from the child")),
        forked(txn.get(table, &key(1))),
        forked(txn.commit()),
        forked(db.create_table("child", &[])),
        forked(db.drop_table("rows")),
        forked(db.table("rows")),
        forked(db.checkpoint()),
        forked(db.flush_log()),
        forked(db.verify_table(table)),
        forked(db.clone().close()),
    ];
    let lists = [
        forked(db.locks()),
        forked(db.lock_waits()),
        db.transactions().is_empty(),
        db.prepared_transactions().is_empty(),
        db.latest_deadlock().is_none(),
        db.metrics().iter().all(|metric| !metric.is_gauge),
        db.durations().iter().any(|duration| duration.count > 0),
        db.prometheus().contains("inkstone_commits_total "),
    ];
    drop(db);
    refused.iter().chain(&lists).all(|&refused| refused)
}

/// In a process of its own, as a fork copies all that the tests beside it hold.
fn with_children(place: &Path) {
    let db = Database::open(place.join("db"), options()).unwrap();
    let table = db.create_table("rows", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, &key(1 << 30), b"of the parent").unwrap();
    let busy = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        // The latches of the lists are taken all the time.
        scope.spawn(|| {
            while busy.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::black_box((db.metrics(), db.transactions(), db.locks().unwrap()));
            }
        });
        for worker in 0..2u64 {
            let (db, table, busy) = (&db, &table, &busy);
            scope.spawn(move || {
                let mut n = worker << 20;
                while busy.load(std::sync::atomic::Ordering::Relaxed) {
                    commit(db, table, n).unwrap();
                    n += 1;
                }
            });
        }
        for round in 0..20 {
            let mine = db.begin(Isolation::RepeatableRead).unwrap();
            mine.insert(&table, &key((1 << 31) + round), b"x").unwrap();
            let db = db.clone();
            let child = fork(|| misuse(db, &table, mine));
            assert!(ended_well(child), "round {round}");
        }
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    txn.commit().unwrap();
    // Another database is none for a child either: it may lack the thread that has a latch.
    let other = place.join("other");
    let child = fork(|| forked(Database::open(&other, options())));
    assert!(ended_well(child) && !other.exists());
    // A child that only lives, and knows nothing of the database, holds nothing.
    let living = fork(|| {
        std::thread::sleep(std::time::Duration::from_secs(600));
        true
    });
    db.close().unwrap();
    drop(table);
    let again = Database::open(place.join("db"), options()).unwrap();
    assert!(again.open_report().clean);
    let table = again.table("rows").unwrap();
    let rows = again.verify_table(&table).unwrap().trees[0].1.rows;
    let txn = again.begin(Isolation::RepeatableRead).unwrap();
    assert!(txn.get(&table, &key(1 << 30)).unwrap().is_some());
    assert!(txn.get(&table, &key(1 << 40)).unwrap().is_none());
    assert!(rows > 2, "{rows}");
    drop(txn);
    end(living);
    again.close().unwrap();
}

#[expect(unsafe_code, reason = "the child is not std's")]
fn end(pid: i32) {
    // SAFETY: a signal to our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    assert!(!ended_well(pid));
}

/// Three children that committed 20 rows each, all acknowledged, left 20 rows; a child hung beside
/// a busy parent, and panicked when it dropped the handle.
#[test]
fn a_child_can_do_nothing_with_the_handle() {
    if let Some(place) = child_dir() {
        return with_children(&place);
    }
    let place = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .arg("120")
        .arg(std::env::current_exe().unwrap())
        .args([
            "a_child_can_do_nothing_with_the_handle",
            "--exact",
            "--nocapture",
        ])
        .env("INKSTONE_TEST_CHILD_DIR", place.path())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{}: {text}", output.status);
}

/// What the check costs that every call makes:
/// `cargo test -p inkstone --test fork -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn what_the_check_costs() {
    let owner = inkstone_io::process::Owner::this_process();
    let begin = std::time::Instant::now();
    let times = 100_000_000u32;
    for _ in 0..times {
        assert!(std::hint::black_box(&owner).is_this_process());
    }
    let check = begin.elapsed().as_secs_f64() * 1e9 / f64::from(times);
    let begin = std::time::Instant::now();
    for _ in 0..1_000_000 {
        std::hint::black_box(std::process::id());
    }
    let getpid = begin.elapsed().as_secs_f64() * 1e3;
    println!("check: {check:.2} ns; getpid: {getpid:.1} ns");
}
