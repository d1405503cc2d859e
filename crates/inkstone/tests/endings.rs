//! How things end that do not go well: rollbacks that fail, statements inside savepoints, undo that
//! is larger than the log, a poison that comes while others wait.

mod common;

use common::{key, options, within};
use inkstone::{Database, Error, Isolation, LockMode, Options, Table, Wait};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn on(disk: &SimVfs, options: Options) -> Database {
    Database::open_on(Arc::new(disk.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn small() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        ..options()
    }
}

fn status(db: &Database, name: &str) -> u64 {
    db.status().iter().find(|(n, _)| *n == name).unwrap().1
}

/// A savepoint that a failed statement had set was kept; going back to it undid everything, as its
/// place in the chain of undo was gone.
#[test]
fn a_savepoint_of_a_failed_statement_is_forgotten() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, b"a", b"1").unwrap();
        txn.savepoint("before").unwrap();
        txn.insert(&table, b"b", b"1").unwrap();
        let failed = txn.statement(|txn| {
            txn.insert(&table, b"c", b"1")?;
            txn.savepoint("inside")?;
            txn.insert(&table, b"a", b"2")
        });
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
        let gone = txn.rollback_to_savepoint("inside");
        assert!(matches!(gone, Err(Error::NotFound(_))));
        // A statement that goes back behind its own beginning and fails then undoes no more.
        let failed = txn.statement(|txn| {
            txn.insert(&table, b"d", b"1")?;
            txn.rollback_to_savepoint("before")?;
            txn.insert(&table, b"a", b"2")
        });
        assert!(failed.is_err());
        let keys: Vec<_> = txn
            .range(&table, ..)
            .unwrap()
            .map(|row| row.unwrap().0)
            .collect();
        assert_eq!(keys, [b"a".to_vec()]);
        txn.commit().unwrap();
    });
}

/// The undo of a transaction was copied forward again in every round when it took more than half of
/// the log, and no checkpoint came.
#[test]
fn undo_larger_than_the_log_is_not_copied_for_ever() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let load = db.begin(Isolation::ReadCommitted).unwrap();
        let rows = (0..6000u64).map(|n| (key(n).to_vec(), vec![n as u8; 900]));
        load.insert_many(&table, rows).unwrap();
        load.commit().unwrap();
        let long = db.begin(Isolation::RepeatableRead).unwrap();
        for n in 0..6000 {
            long.update(&table, &key(n), b"short").unwrap();
        }
        std::thread::sleep(Duration::from_secs(2));
        let before = status(&db, "lsn_current");
        std::thread::sleep(Duration::from_secs(2));
        let grown = status(&db, "lsn_current") - before;
        assert!(
            grown < 1 << 20,
            "{grown} bytes of log while nothing happens"
        );
        drop(db);
        drop((long, table));
        let db = Database::open(dir.path(), small()).unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        let table = db.table("t").unwrap();
        for n in 0..6000 {
            let value = txn.get(&table, &key(n)).unwrap();
            assert_eq!(value, Some(vec![n as u8; 900]), "{n}");
        }
    });
}

/// A failed sync of a data file poisons the engine while committers wait for the log: a leader
/// whose own sync succeeded left all others asleep.
#[test]
fn a_poison_from_elsewhere_wakes_waiters_for_the_log() {
    within(120, || {
        for round in 0..20 {
            let disk = SimVfs::new(round);
            let durable = Options {
                flush_log_at_trx_commit: inkstone::Durability::Sync,
                flush_method: inkstone::internals::options::FlushMethod::Fsync,
                ..small()
            };
            let db = on(&disk, durable);
            let table = db.create_table("t", &[]).unwrap();
            disk.set_sync_delay(Duration::from_millis(2));
            let next = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        loop {
                            let n = next.fetch_add(1, Ordering::Relaxed);
                            let done = db.begin(Isolation::ReadCommitted).and_then(|txn| {
                                txn.insert(&table, &key(n), &[7; 100])?;
                                txn.commit()
                            });
                            match done {
                                Ok(()) => {}
                                Err(Error::Poisoned(_)) => return,
                                Err(other) => panic!("{other}"),
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_millis(30 + round));
                disk.fail(FaultRule {
                    kind: Some(OpKind::Sync),
                    path_contains: ".ink".to_owned(),
                    nth: 1,
                    times: 1000,
                    fault: Fault::Eio,
                });
                let _ = db.flush_table(&table);
            });
        }
    });
}

/// A rollback that needs room on a full disk fails; the transaction must not hold its rows for
/// ever.
#[test]
fn a_rollback_that_found_the_disk_full_is_finished_later() {
    within(120, || {
        let disk = SimVfs::new(1);
        let db = on(&disk, small());
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..200 {
            txn.insert(&table, &key(n * 1000), &[1; 900]).unwrap();
        }
        txn.commit().unwrap();
        // Every row shrinks, and others fill the room that it gave up.
        let shrunk = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..200 {
            shrunk.update(&table, &key(n * 1000), b"").unwrap();
        }
        let filler = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..200 {
            for m in 1..4 {
                filler
                    .insert(&table, &key(n * 1000 + m), &[2; 700])
                    .unwrap();
            }
        }
        filler.commit().unwrap();
        fill_file(&db, &table, &disk);
        let result = shrunk.rollback();
        let full = matches!(result, Err(Error::DiskFull { .. }));
        disk.set_capacity_bytes(1 << 30);
        let mut left = 100;
        loop {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            let free = (0..200).all(|n| {
                let row =
                    txn.get_locking(&table, &key(n * 1000), LockMode::Exclusive, Wait::NoWait);
                matches!(row, Ok(Some(value)) if value == [1; 900])
            });
            if free {
                break;
            }
            left -= 1;
            assert!(
                left > 0,
                "rows are still locked or not restored; the rollback said {result:?}"
            );
            drop(txn);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(
            full,
            "the disk was not full enough for this test: {result:?}"
        );
        db.verify_table(&table).unwrap();
    });
}

/// Leaves no free page in the table's file and no room on the disk for more.
fn fill_file(db: &Database, table: &Table, disk: &SimVfs) {
    db.flush_table(table).unwrap();
    disk.set_capacity_bytes(disk.used_bytes());
    for n in 0u64.. {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        match txn.insert(table, &key((1 << 40) + n), &[3; 900]) {
            Ok(()) => txn.commit().unwrap(),
            Err(Error::DiskFull { .. }) => return,
            Err(other) => panic!("{other}"),
        }
    }
}

/// A prepared transaction's row that nearly fills its page: giving it its version address again at
/// open asked for room that no split could make, for ever.
#[test]
fn a_prepared_change_of_a_large_row_survives_a_restart() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let long_key = |n: u32| [&[b'a'; 764][..], &n.to_be_bytes()].concat();
        {
            let db = Database::open(dir.path(), small()).unwrap();
            let table = db.create_table("t", &[]).unwrap();
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for n in 0..6 {
                txn.insert(&table, &long_key(n), &[1; 960]).unwrap();
            }
            txn.commit().unwrap();
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.update(&table, &long_key(5), &[2; 960]).unwrap();
            txn.prepare(b"x").unwrap();
        }
        let db = Database::open(dir.path(), small()).unwrap();
        db.rollback_prepared(b"x").unwrap();
        let table = db.table("t").unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        assert_eq!(txn.get(&table, &long_key(5)).unwrap(), Some(vec![1; 960]));
    });
}

/// A handle that was being opened while the table was renamed was kept under the old name; rows of
/// a new table of that name then went into the renamed one.
#[test]
fn handles_follow_renames() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        db.create_table("a", &[]).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let _ = db.table("a");
                    }
                });
            }
            for n in 0..40 {
                let old = format!("old {n}");
                db.rename_table("a", &old).unwrap();
                let new = db.create_table("a", &[]).unwrap();
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                txn.insert(&new, &key(n), b"").unwrap();
                txn.commit().unwrap();
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                let rows = |name: &str| txn.range(&db.table(name).unwrap(), ..).unwrap().count();
                assert_eq!(rows("a"), 1);
                assert_eq!(rows(&old), usize::from(n > 0), "{n}");
                drop(txn);
            }
            over.store(true, Ordering::Relaxed);
        });
        let stale = db.table("a").unwrap();
        db.rename_table("a", "b").unwrap();
        db.drop_table("b").unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        assert!(matches!(txn.get(&stale, b"x"), Err(Error::NotFound(_))));
    });
}

#[test]
fn the_counter_of_rollbacks_is_of_the_callers_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("counted", &["s"]).unwrap();
    db.rename_table("counted", "renamed").unwrap();
    assert!(db.create_table("renamed", &[]).is_err());
    assert!(db.table("missing").is_err());
    assert_eq!(db.tables().unwrap(), ["renamed"]);
    assert_eq!(status(&db, "rollbacks"), 0);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(&table, b"a", b"1").unwrap();
    txn.rollback().unwrap();
    drop(db.begin(Isolation::ReadCommitted).unwrap());
    assert_eq!(status(&db, "rollbacks"), 2);
}
