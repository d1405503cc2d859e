//! A full disk: the statement gets `Error::DiskFull` and has no effect, the engine lives on, and
//! writes go on when space is back.

mod failure_support;

use failure_support::*;
use inkstone::internals::counters::Counter;
use inkstone::{Database, Durability, Error, Isolation, LockMode, Options, Result, Table, Wait};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn with_table(options: Options) -> (SimVfs, Database, Table) {
    let vfs = SimVfs::new(3);
    let db = open_sim(&vfs, options).unwrap();
    let table = db.create_table("t", &["second"]).unwrap();
    (vfs, db, table)
}

#[track_caller]
fn is_full(error: &Error) {
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    says(error, &["no space left", "rolled back", "free some space"]);
}

/// Until `f` no longer finds the disk full: a shortage of log segments is looked at each second.
fn soon<T>(f: impl Fn() -> Result<T>) -> T {
    let begin = Instant::now();
    loop {
        match f() {
            Ok(done) => return done,
            Err(Error::DiskFull { .. }) if begin.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(other) => panic!("{other} after {:?}", begin.elapsed()),
        }
    }
}

fn all_rows(db: &Database, table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let rows = txn.range(table, ..).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

fn reopen(vfs: &SimVfs, db: Database, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    drop(db);
    let vfs = vfs.kill();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    assert!(all_rows(&db, &table) == *expected);
    db.verify_table(&table).unwrap();
}

/// One statement of some kind, with the rows that it adds.
type Statement = fn(&inkstone::Transaction, &Table, u64) -> Result<()>;

fn one_row(txn: &inkstone::Transaction, table: &Table, n: u64) -> Result<()> {
    txn.insert(table, &key(n), &[n as u8; 900])
}

fn many_rows(txn: &inkstone::Transaction, table: &Table, n: u64) -> Result<()> {
    let rows = (0..300).map(|m| (key(n * 1000 + m), [n as u8; 700]));
    txn.insert_many(table, rows).map(drop)
}

fn long_value(txn: &inkstone::Transaction, table: &Table, n: u64) -> Result<()> {
    txn.insert(table, &key(n), &vec![n as u8; 150_000])
}

fn longer_and_longer(txn: &inkstone::Transaction, table: &Table, n: u64) -> Result<()> {
    txn.upsert(
        table,
        &key(n % 5),
        &vec![n as u8; 40_000 + (n as usize % 1000) * 1000],
    )
    .map(drop)
}

#[test]
fn a_full_disk_fails_statements_only() {
    let kinds: [(&str, Statement); 4] = [
        ("one row", one_row),
        ("insert_many", many_rows),
        ("long value", long_value),
        ("update of a long value", longer_and_longer),
    ];
    for (name, statement) in kinds {
        let (vfs, db, table) = with_table(small());
        insert(&db, &table, 1 << 40..(1 << 40) + 50, b"before").unwrap();
        let used = vfs.used_bytes();
        vfs.set_capacity_bytes(used + (2 << 20));
        let mut expected = all_rows(&db, &table);
        let mut failures = 0;
        for n in 0..20_000 {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            match statement(&txn, &table, n) {
                Ok(()) => {
                    txn.commit().unwrap();
                    continue;
                }
                Err(error) => is_full(&error),
            }
            if failures == 0 {
                txn.rollback().unwrap();
                expected = all_rows(&db, &table);
                // Another transaction's statement and its own earlier ones.
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                let update = txn.upsert(&table, &key(1 << 40), b"small change");
                if let Err(error) = &update {
                    is_full(error);
                }
                let _ = statement(&txn, &table, n);
                txn.rollback().unwrap();
            } else {
                // What failed has no effect, and the transaction may commit.
                txn.commit().unwrap();
            }
            assert!(all_rows(&db, &table) == expected, "{name}");
            failures += 1;
            if failures == 4 {
                break;
            }
        }
        assert_eq!(failures, 4, "{name}");
        wait_for_purge(&db);
        db.verify_table(&table).unwrap();
        vfs.set_capacity_bytes(used + (64 << 20));
        for n in 30_000..30_010 {
            soon(|| {
                let txn = db.begin(Isolation::ReadCommitted)?;
                statement(&txn, &table, n)?;
                txn.commit()
            });
        }
        wait_for_purge(&db);
        db.verify_table(&table).unwrap();
        let expected = all_rows(&db, &table);
        drop(table);
        reopen(&vfs, db, &expected);
    }
}

fn wait_for_purge(db: &Database) {
    for _ in 0..4 {
        db.purge().unwrap();
    }
}

/// Recovery needs no log that was not there before, however often it is repeated.
#[test]
fn a_database_killed_on_a_full_disk_opens_on_it() {
    for free in [0, 300 << 10, 1 << 20, 3 << 20] {
        let (vfs, db, table) = with_table(small());
        insert(&db, &table, 0..500, &[1; 900]).unwrap();
        vfs.set_capacity_bytes(vfs.used_bytes() + free);
        let open = db.begin(Isolation::ReadCommitted).unwrap();
        let mut added = 1 << 50..(1 << 50) + 500;
        let _ = added.try_for_each(|n| open.insert(&table, &key(n), &[2; 400]));
        let full = (1000..).find_map(|n| insert(&db, &table, n..n + 1, &[3; 900]).err());
        is_full(&full.unwrap());
        let wanted = {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            let rows = txn.range(&table, ..).unwrap().map(|row| row.unwrap());
            rows.count()
        };
        let mut disk = vfs.kill();
        drop((open, table, db));
        for _ in 0..3 {
            disk.set_capacity_bytes(disk.used_bytes());
            let db = open_sim(&disk, small()).unwrap();
            let table = db.table("t").unwrap();
            let rows = all_rows(&db, &table);
            assert_eq!(rows.len(), wanted, "{free} bytes free");
            assert!((0..500).all(|n| rows[&key(n)[..]] == [1; 900]));
            db.verify_table(&table).unwrap();
            disk = disk.kill();
            drop((table, db));
        }
        disk.set_capacity_bytes(u64::MAX);
        let db = open_sim(&disk, small()).unwrap();
        let table = db.table("t").unwrap();
        soon(|| insert(&db, &table, 1 << 40..(1 << 40) + 100, &[4; 900]));
        db.close().unwrap();
    }
}

/// Others took the room of rows that shrank, and the file has no page to split theirs into. The
/// loser waits: its rows are as they were for readers and locked for writers, until there is space.
#[test]
fn a_loser_that_needs_pages_waits_until_the_disk_has_some() {
    let (vfs, db, table) = with_table(small());
    insert(&db, &table, (0..200).map(|n| n * 100), &[1; 300]).unwrap();
    let open = db.begin(Isolation::ReadCommitted).unwrap();
    (0..200).for_each(|n| open.update(&table, &key(n * 100), b"small").unwrap());
    let between = (0..200).flat_map(|n| n * 100 + 1..n * 100 + 11);
    insert(&db, &table, between, &[2; 26]).unwrap();
    // What the file has left.
    vfs.set_capacity_bytes(vfs.used_bytes());
    let full = (1 << 40..).find_map(|n| insert(&db, &table, n..n + 1, &[3; 900]).err());
    is_full(&full.unwrap());
    db.flush_log().unwrap();
    let wanted = all_rows(&db, &table).len();
    let mut disk = vfs.kill();
    drop((open, table, db));
    for life in 0..4 {
        disk.set_capacity_bytes(disk.used_bytes());
        let db = open_sim(&disk, small()).unwrap();
        let report = db.open_report().recovered.clone().unwrap();
        assert!(report.rows_to_undo > 0, "{report:?}");
        let (left, text) = (report.rows_to_undo, report.transactions_text());
        assert!(
            text.contains(&format!("{left} to be undone when the disk has space)")),
            "{text}"
        );
        let table = db.table("t").unwrap();
        let rows = all_rows(&db, &table);
        assert_eq!(rows.len(), wanted);
        assert!((0..200).all(|n| rows[&key(n * 100)[..]] == [1; 300]));
        is_full(&db.purge().unwrap_err());
        db.verify_table(&table).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let locked = (0..200).filter(|n| {
            let row = txn.get_locking(&table, &key(n * 100), LockMode::Exclusive, Wait::NoWait);
            matches!(row, Err(Error::LockNotAvailable))
        });
        assert!(locked.count() > 0);
        drop(txn);
        if life == 3 {
            disk.set_capacity_bytes(u64::MAX);
            soon(|| db.purge());
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            (0..200).for_each(|n| txn.update(&table, &key(n * 100), &[3; 300]).unwrap());
            txn.commit().unwrap();
            db.verify_table(&table).unwrap();
            db.close().unwrap();
            return;
        }
        // Each second life ends in order, as far as a full disk lets it.
        if life % 2 == 1 {
            drop(table);
            let _ = db.close();
            disk = disk.kill();
        } else {
            disk = disk.kill();
            drop((table, db));
        }
    }
}

#[test]
fn a_new_database_on_a_full_disk_is_refused_and_leaves_nothing() {
    let vfs = SimVfs::new(3);
    vfs.set_capacity_bytes(200 << 10);
    is_full(&open_sim(&vfs, small()).err().unwrap());
    vfs.set_capacity_bytes(u64::MAX);
    open_sim(&vfs, small()).unwrap().close().unwrap();
}

/// A new database has a small part of its log, and a small doublewrite file. Where the disk is too
/// full for more the first statement is refused, and the database is closed in order and opened
/// again; when there is space it is written as any other.
#[test]
fn an_unused_database_on_a_full_disk_is_refused_its_first_statement() {
    let vfs = SimVfs::new(3);
    open_sim(&vfs, small()).unwrap().close().unwrap();
    vfs.set_capacity_bytes(vfs.used_bytes());
    for _ in 0..3 {
        let db = open_sim(&vfs, small()).unwrap();
        assert!(db.open_report().clean);
        is_full(&db.create_table("t", &["second"]).err().unwrap());
        db.checkpoint().unwrap();
        db.close().unwrap();
    }
    let db = open_sim(&vfs, small()).unwrap();
    assert!(db.open_report().clean);
    vfs.set_capacity_bytes(u64::MAX);
    let table = soon(|| db.create_table("t", &["second"]));
    insert(&db, &table, 0..100, &[1; 800]).unwrap();
    let expected = all_rows(&db, &table);
    assert_eq!(expected.len(), 100);
    drop(table);
    reopen(&vfs, db, &expected);
}

/// One that was killed, or lost power, had the rest of its log's first segment made at its next
/// opening, and 48 MB with it, or was not opened where there was no room for that.
#[test]
fn an_unwritten_database_that_was_killed_stays_small_and_opens_on_a_full_disk() {
    for (spare, lose_power) in [(0, false), (0, true), (64 << 20, false), (64 << 20, true)] {
        let mut vfs = SimVfs::new(4);
        drop(open_sim(&vfs, small()).unwrap());
        let small_bytes = vfs.used_bytes() + 8192;
        for round in 1..40 {
            vfs.set_capacity_bytes(small_bytes + spare);
            let db = open_sim(&vfs, small()).unwrap();
            assert_eq!(db.open_report().clean, round == 1);
            if spare == 0 && round % 3 == 0 {
                is_full(&db.create_table("t", &["second"]).err().unwrap());
            }
            let used = vfs.used_bytes();
            assert!(used <= small_bytes, "{used} bytes, of {small_bytes}");
            vfs = if lose_power {
                vfs.crash(round)
            } else {
                vfs.kill()
            };
            drop(db);
        }
        vfs.set_capacity_bytes(u64::MAX);
        let db = open_sim(&vfs, small()).unwrap();
        let table = soon(|| db.create_table("t", &["second"]));
        insert(&db, &table, 0..100, &[1; 800]).unwrap();
        let expected = all_rows(&db, &table);
        drop(table);
        reopen(&vfs, db, &expected);
    }
}

#[test]
fn dropping_a_table_gives_space_back() {
    let (vfs, db, table) = with_table(small());
    let big = db.create_table("big", &[]).unwrap();
    insert(&db, &big, 0..2000, &[1; 800]).unwrap();
    vfs.set_capacity_bytes(vfs.used_bytes() + (1 << 20));
    let error = (0..100_000)
        .find_map(|n| insert(&db, &table, n..n + 1, &[2; 800]).err())
        .unwrap();
    is_full(&error);
    drop(big);
    db.drop_table("big").unwrap();
    soon(|| insert(&db, &table, 200_000..200_100, &[2; 800]));
    db.verify_table(&table).unwrap();
    let expected = all_rows(&db, &table);
    drop(table);
    reopen(&vfs, db, &expected);
}

#[test]
fn many_threads_on_a_full_disk() {
    let (vfs, db, table) = with_table(small());
    vfs.set_capacity_bytes(vfs.used_bytes() + (3 << 20));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (db, table, vfs) = (&db, &table, &vfs);
            scope.spawn(move || {
                let mut full = 0;
                for n in 0.. {
                    let at = (thread << 32) + n;
                    match insert(db, table, at..at + 1, &[thread as u8; 1000]) {
                        Ok(()) => {}
                        Err(error) => {
                            is_full(&error);
                            full += 1;
                        }
                    }
                    if full == 20 && thread == 0 {
                        vfs.set_capacity_bytes(vfs.used_bytes() + (8 << 20));
                    }
                    if full > 60 || begin.elapsed() > Duration::from_secs(5) {
                        break;
                    }
                }
            });
        }
    });
    vfs.set_capacity_bytes(1 << 30);
    soon(|| insert(&db, &table, 1 << 50..(1 << 50) + 10, b"x"));
    db.verify_table(&table).unwrap();
    let expected = all_rows(&db, &table);
    drop(table);
    reopen(&vfs, db, &expected);
}

#[test]
fn the_version_spill_file_full() {
    let (vfs, db, table) = with_table(Options {
        log_file_size: 64 << 20,
        ..small()
    });
    insert(&db, &table, 0..1000, &[1; 900]).unwrap();
    db.checkpoint().unwrap();
    vfs.fail(FaultRule {
        kind: Some(OpKind::Write),
        path_contains: "versions.tmp".to_owned(),
        nth: 1,
        times: u64::MAX,
        fault: Fault::Enospc,
    });
    let old = db.begin_with_snapshot().unwrap();
    let expected = all_rows(&db, &table);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let mut full = None;
    'rounds: for round in 0..20u8 {
        for n in 0..1000 {
            if let Err(error) = txn.update(&table, &key(n), &[round; 900]) {
                full = Some(error);
                break 'rounds;
            }
        }
    }
    is_full(&full.expect("the store of versions fills"));
    says(&failed(txn.update(&table, &key(5), b"")), &["versions.tmp"]);
    let many = txn.insert_many(&table, (5000..6000).map(|n| (key(n), b"new")));
    is_full(&failed(many));
    assert!(txn.get(&table, &key(3)).unwrap().is_some());
    txn.rollback().unwrap();
    for n in 0..1000 {
        assert_eq!(
            old.get(&table, &key(n)).unwrap(),
            expected.get(&key(n)[..]).cloned()
        );
    }
    assert!(all_rows(&db, &table) == expected);
    vfs.clear_faults();
    soon(|| insert(&db, &table, 9000..9010, b"x"));
    drop(old);
    db.verify_table(&table).unwrap();
    let expected = all_rows(&db, &table);
    drop(table);
    reopen(&vfs, db, &expected);
}

#[test]
fn log_segments_cannot_be_made() {
    let (vfs, db, table) = with_table(small());
    vfs.fail(FaultRule {
        kind: Some(OpKind::Allocate),
        path_contains: "log/prepare.tmp".to_owned(),
        nth: 1,
        times: u64::MAX,
        fault: Fault::Enospc,
    });
    // A transaction that stays open keeps nothing of the log that its undo does not need; but a
    // prepared one's log is not recycled at once. So segments run out.
    let mut rows = 0;
    let mut error = None;
    let value: Vec<u8> = (0..3000u32).map(|n| (n * n % 251) as u8).collect();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    while rows < 20_000 && error.is_none() {
        error = txn.upsert(&table, &key(rows % 100), &value).err();
        rows += 1;
    }
    match error {
        // Recycling kept pace: segments were never needed beyond those that there are.
        None => txn.commit().unwrap(),
        Some(error) => {
            is_full(&error);
            says(&error, &["log"]);
            assert!(txn.get(&table, &key(1)).unwrap().is_some());
            // There is room for the rollback.
            txn.rollback().unwrap();
        }
    }
    assert!(db.begin(Isolation::ReadCommitted).is_ok());
    vfs.clear_faults();
    soon(|| insert(&db, &table, 9000..9010, b"x"));
    db.verify_table(&table).unwrap();
    let expected = all_rows(&db, &table);
    drop(table);
    reopen(&vfs, db, &expected);
}

/// The disk is full from here on for the log.
fn no_more_segments(vfs: &SimVfs) {
    for path in ["log/prepare.tmp", "log/reserve"] {
        vfs.fail(FaultRule {
            kind: Some(OpKind::Allocate),
            path_contains: path.to_owned(),
            nth: 1,
            times: u64::MAX,
            fault: Fault::Enospc,
        });
    }
}

/// A table over a disk that is large enough for all but the log.
fn with_large_table() -> (SimVfs, Database, Table) {
    let (vfs, db, table) = with_table(Options {
        buffer_pool_size: 8 << 20,
        version_store_memory: 64 << 20,
        ..small()
    });
    insert(&db, &table, 1 << 40..(1 << 40) + 50, b"before").unwrap();
    (vfs, db, table)
}

/// The engine lives: others read, and once there is space they write.
fn lives(vfs: &SimVfs, db: Database, table: Table, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    assert!(all_rows(&db, &table) == *expected);
    wait_for_purge_on_full(&db);
    db.verify_table(&table).unwrap();
    vfs.clear_faults();
    vfs.set_capacity_bytes(u64::MAX);
    soon(|| insert(&db, &table, 1 << 50..(1 << 50) + 100, b"after"));
    wait_for_purge(&db);
    db.verify_table(&table).unwrap();
    let expected = all_rows(&db, &table);
    drop(table);
    reopen(vfs, db, &expected);
}

fn wait_for_purge_on_full(db: &Database) {
    for _ in 0..4 {
        if let Err(error) = db.purge() {
            is_full(&error);
        }
        if let Err(error) = db.checkpoint() {
            is_full(&error);
        }
    }
}

/// Inserts of few bytes need more log to be undone than to be made.
#[test]
fn a_rollback_of_many_small_inserts_on_a_disk_that_stays_full() {
    let (vfs, db, table) = with_large_table();
    let expected = all_rows(&db, &table);
    no_more_segments(&vfs);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    // The log, which cannot grow, is used again and again: its undo is in a file of its own.
    let before = db.counters().get(Counter::LogBytes);
    for n in 0..200_000 {
        txn.insert(&table, &key(n), b"v").unwrap();
    }
    let logged = db.counters().get(Counter::LogBytes) - before;
    assert!(logged > 2 << 20, "{logged} bytes of log");
    vfs.set_capacity_bytes(vfs.used_bytes());
    txn.rollback().unwrap();
    lives(&vfs, db, table, &expected);
}

/// The disk becomes full, for every process, only when a large transaction is about to be rolled
/// back: by itself, or by recovery after a crash.
#[test]
fn what_a_rollback_needs_is_there_before_the_disk_is_full() {
    for crash in [false, true] {
        let (vfs, db, table) = with_large_table();
        let expected = all_rows(&db, &table);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let rows = (0..250_000).map(|n| (key(n), b"v"));
        txn.insert_many(&table, rows).unwrap();
        let reserve = |vfs: &SimVfs| {
            let names = vfs.files();
            let names = names.iter().map(|path| path.to_string_lossy().into_owned());
            names.filter(|name| name.contains("log/reserve.")).count()
        };
        // Of the log it needs no more than others do.
        assert!(reserve(&vfs) < 4, "{:?}", vfs.files());
        vfs.set_capacity_bytes(vfs.used_bytes());
        if crash {
            db.flush_log().unwrap();
            std::mem::forget(txn);
            let crashed = vfs.kill();
            crashed.set_capacity_bytes(crashed.used_bytes());
            let db = open_sim(&crashed, small()).unwrap();
            let table = db.table("t").unwrap();
            lives(&crashed, db, table, &expected);
        } else {
            txn.rollback().unwrap();
            let begin = Instant::now();
            while reserve(&vfs) > 0 {
                // Until no transaction holds a promise any more.
                assert!(begin.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(50));
            }
            lives(&vfs, db, table, &expected);
        }
    }
}

#[test]
fn a_rollback_of_a_large_bulk_insert_on_a_full_disk() {
    let (vfs, db, table) = with_large_table();
    let expected = all_rows(&db, &table);
    no_more_segments(&vfs);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    // Some rows before, which stay when the statement fails.
    for n in 500_000..500_100 {
        txn.insert(&table, &key(n), b"kept").unwrap();
    }
    vfs.set_capacity_bytes(vfs.used_bytes() + (2 << 20));
    let error = txn
        .insert_many(&table, (0..300_000).map(|n| (key(n), b"v")))
        .unwrap_err();
    is_full(&error);
    assert_eq!(txn.range(&table, ..).unwrap().count(), expected.len() + 100);
    vfs.set_capacity_bytes(vfs.used_bytes());
    txn.rollback().unwrap();
    lives(&vfs, db, table, &expected);
}

/// Rollback to a savepoint on a full disk; the rest may commit.
#[test]
fn a_savepoint_on_a_full_disk() {
    let (vfs, db, table) = with_large_table();
    no_more_segments(&vfs);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(&table, &key(7_000_000), b"kept").unwrap();
    let mut expected = all_rows(&db, &table);
    expected.insert(key(7_000_000).to_vec(), b"kept".to_vec());
    txn.savepoint("s").unwrap();
    vfs.set_capacity_bytes(vfs.used_bytes() + (4 << 20));
    let error = (0..1_000_000)
        .find_map(|n| {
            txn.upsert(&table, &key(n * 7919 % 100_003), &[n as u8; 40])
                .err()
        })
        .expect("the undo file cannot grow");
    is_full(&error);
    vfs.set_capacity_bytes(vfs.used_bytes());
    txn.rollback_to_savepoint("s").unwrap();
    txn.commit().unwrap();
    lives(&vfs, db, table, &expected);
}

/// Several transactions reach the end of the log at once, each with much to undo, while the disk
/// stays full for all of them.
#[test]
fn many_rollbacks_at_once_on_a_full_disk() {
    let (vfs, db, table) = with_large_table();
    insert(&db, &table, 0..4000, &[1; 200]).unwrap();
    wait_for_purge(&db);
    let expected = all_rows(&db, &table);
    vfs.set_capacity_bytes(vfs.used_bytes() + (1 << 20));
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                let mut failures = 0;
                for n in 0..2_000_000u64 {
                    let own = key(thread * 600 + n / 2 % 600);
                    let result = match thread % 3 {
                        0 => txn.insert(table, &key(((thread + 8) << 40) + n), b"v"),
                        1 => txn.upsert(table, &own, &[n as u8; 150]).map(drop),
                        _ if n % 2 == 0 => txn.delete(table, &own).map(drop),
                        _ => txn.upsert(table, &own, &[n as u8; 100]).map(drop),
                    };
                    if let Err(error) = result {
                        is_full(&error);
                        failures += 1;
                        if failures > 3 {
                            break;
                        }
                    }
                }
                assert!(failures > 3);
                txn.rollback().unwrap();
            });
        }
        for _ in 0..20 {
            wait_for_purge_on_full(&db);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    lives(&vfs, db, table, &expected);
}

/// The disk may be full at whatever moment: pages that are dirty have their place in the file, and
/// what is needed to write them and to state a checkpoint is there.
#[test]
fn dirty_pages_have_their_place() {
    for spare in 0..24u64 {
        let (vfs, db, table) = with_table(Options {
            buffer_pool_size: 8 << 20,
            ..small()
        });
        insert(&db, &table, 0..100, &[1; 500]).unwrap();
        vfs.set_capacity_bytes(vfs.used_bytes() + spare * 40_000);
        let error = (0..u64::MAX).find_map(|n| {
            let value = vec![n as u8; if n % 50 == 0 { 9000 } else { 700 }];
            let txn = db.begin(Isolation::ReadCommitted).ok()?;
            let result = txn.insert(&table, &key((n * 7919) ^ (1 << 30)), &value);
            txn.commit().unwrap();
            result.err()
        });
        is_full(&error.unwrap());
        vfs.set_capacity_bytes(vfs.used_bytes());
        let expected = all_rows(&db, &table);
        db.flush_table(&table).unwrap();
        db.checkpoint().unwrap();
        lives(&vfs, db, table, &expected);
    }
}

/// Whatever DDL statement, at whichever step the disk is full: nothing is left behind.
#[test]
fn ddl_on_a_full_disk() {
    let mut failures = [0; 4];
    for spare in 0..48 {
        let (vfs, db, table) = with_table(small());
        insert(&db, &table, 0..50, b"row").unwrap();
        db.checkpoint().unwrap();
        let files = vfs.files();
        vfs.set_capacity_bytes(vfs.used_bytes() + spare * 4096);
        let results = [
            db.create_table("new", &["x", "y"]).map(drop),
            db.create_tree("t", "third").map(drop),
            db.rename_table("t", "u")
                .and_then(|()| db.rename_table("u", "t")),
            insert(&db, &table, 100..101, &[1; 500]),
        ];
        for (n, result) in results.iter().enumerate() {
            if let Err(error) = result {
                is_full(error);
                failures[n] += 1;
            }
        }
        let made = results[0].is_ok();
        let names: &[&str] = if made { &["new", "t"] } else { &["t"] };
        assert_eq!(db.tables().unwrap(), names);
        assert_eq!(db.table("new").is_ok(), made);
        let found = vfs.files();
        assert_eq!(found.len(), files.len() + usize::from(made), "{found:?}");
        let table = db.table("t").unwrap();
        assert_eq!(table.tree("third").is_ok(), results[1].is_ok());
        db.verify_table(&table).unwrap();
        vfs.set_capacity_bytes(1 << 30);
        if !made {
            soon(|| db.create_table("new", &["x", "y"]));
        }
        if results[1].is_err() {
            db.create_tree("t", "third").unwrap();
        }
        for name in ["t", "new"] {
            db.verify_table(&db.table(name).unwrap()).unwrap();
        }
        drop(table);
        db.close().unwrap();
        let vfs = vfs.kill();
        let db = open_sim(&vfs, small()).unwrap();
        assert_eq!(db.tables().unwrap(), ["new", "t"]);
        for name in ["t", "new"] {
            db.verify_table(&db.table(name).unwrap()).unwrap();
        }
    }
    assert!(failures[0] > 5, "{failures:?}");
}

#[test]
fn creating_a_database_on_a_full_disk() {
    let whole = SimVfs::new(1);
    drop(open_sim(&whole, small()).unwrap());
    let needed = whole.used_bytes();
    for part in 0..12 {
        let vfs = SimVfs::new(1);
        vfs.set_capacity_bytes(needed / 12 * part);
        let error = failed(open_sim(&vfs, small()));
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        let left = vfs.files();
        assert!(left.iter().all(|path| path.ends_with("lock")), "{left:?}");
        vfs.set_capacity_bytes(1 << 30);
        open_sim(&vfs, small()).unwrap();
    }
}

#[test]
fn opening_and_closing_on_a_full_disk() {
    let (vfs, db, table) = with_table(small());
    insert(&db, &table, 0..2000, &[7; 300]).unwrap();
    vfs.set_capacity_bytes(vfs.used_bytes());
    let expected = all_rows(&db, &table);
    drop(table);
    drop(db);
    let vfs = vfs.kill();
    vfs.set_capacity_bytes(vfs.used_bytes());
    let db = match open_sim(&vfs, small()) {
        Ok(db) => db,
        Err(error) => {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            vfs.set_capacity_bytes(1 << 30);
            open_sim(&vfs, small()).unwrap()
        }
    };
    let table = db.table("t").unwrap();
    assert!(all_rows(&db, &table) == expected);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let _ = txn.upsert(&table, &key(1), b"short");
    txn.commit_with(Durability::Sync).unwrap();
    drop(table);
    db.close().unwrap();
}
