//! Prepared transactions over restarts: their rows stay locked, readers see what was before, and
//! they can be committed or rolled back by their XID.

mod common;

use common::{all, commit, key, num, number, open, options, rows, val, within};
use inkstone::Isolation::{LockingRepeatableRead, ReadCommitted, RepeatableRead};
use inkstone::{Database, Durability, Error, LockMode, Table, Transaction, Wait};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

type Rows = BTreeMap<u64, Vec<u8>>;

fn long(n: u64) -> Vec<u8> {
    vec![n as u8; 90_000 + n as usize]
}

fn contents(txn: &Transaction, table: &Table) -> Rows {
    let rows = txn.range(table, ..).unwrap().map(|row| row.unwrap());
    rows.map(|(k, v)| (number(&k), v)).collect()
}

/// Rows 0..100 short, 200..205 long.
fn before() -> Rows {
    let short = (0..100).map(|n| (n, val(n as i64)));
    short.chain((200..205).map(|n| (n, long(n)))).collect()
}

/// What the transaction "a" does, to the table and to the model. Returns the keys that it changed.
fn change(txn: &Transaction, table: &Table, model: &mut Rows) -> Vec<u64> {
    let mut put = |k: u64, value: Vec<u8>| {
        txn.upsert(table, &key(k), &value).unwrap();
        model.insert(k, value);
    };
    for k in 0..10 {
        put(k, vec![1; 500]);
        put(k, vec![2; 3]);
        put(k, vec![3; 900]);
    }
    for k in 300..310 {
        put(k, val(k as i64));
    }
    put(200, long(7));
    put(201, val(7));
    put(40, long(8));
    put(400, long(9));
    put(400, long(10));
    txn.savepoint("s").unwrap();
    for k in 30..35 {
        txn.update(table, &key(k), b"undone").unwrap();
    }
    txn.insert(table, &key(500), &long(11)).unwrap();
    txn.rollback_to_savepoint("s").unwrap();
    for k in (10..20).chain([202]) {
        assert!(txn.delete(table, &key(k)).unwrap());
        model.remove(&k);
    }
    for k in (20..25).chain([203]) {
        assert!(txn.delete(table, &key(k)).unwrap());
        txn.insert(table, &key(k), &val(-5)).unwrap();
        model.insert(k, val(-5));
    }
    for k in [320, 25] {
        txn.upsert(table, &key(k), &val(1)).unwrap();
        txn.delete(table, &key(k)).unwrap();
        model.remove(&k);
    }
    let short = (0..26).chain(200..204).chain(300..310);
    short.chain([40, 320, 400]).collect()
}

/// Leaves two prepared transactions and an unfinished one.
fn prepare(db: &Database, dies: bool) {
    let table = db.create_table("t", &["s"]).unwrap();
    commit(db, |txn| {
        for (k, value) in before() {
            txn.insert(&table, &key(k), &value).unwrap();
            txn.insert(table.tree("s").unwrap(), &key(k), b"").unwrap();
        }
    });
    db.checkpoint().unwrap();
    let a = db.begin(RepeatableRead).unwrap();
    change(&a, &table, &mut before());
    a.delete(table.tree("s").unwrap(), &key(3)).unwrap();
    // Others split the leaves that it changed.
    commit(db, |txn| {
        for k in 0..60u64 {
            let between = [&key(k)[..], b"between"].concat();
            txn.insert(&table, &between, &[k as u8; 700]).unwrap();
        }
    });
    commit(db, |txn| {
        for k in 0..60u64 {
            txn.delete(&table, &[&key(k)[..], b"between"].concat())
                .unwrap();
        }
    });
    let b = db.begin(ReadCommitted).unwrap();
    for k in 50..60 {
        b.update(&table, &key(k), &val(-1)).unwrap();
    }
    a.prepare(b"a").unwrap();
    b.prepare(b"b").unwrap();
    let lost = db.begin(ReadCommitted).unwrap();
    for k in 70..80 {
        lost.update(&table, &key(k), &val(-2)).unwrap();
    }
    if dies {
        db.flush_log().unwrap();
        common::ready_to_die();
    }
}

/// What must hold while both are prepared.
fn check_locked(db: &Database, table: &Table) {
    assert_eq!(db.prepared_transactions(), [b"a".to_vec(), b"b".to_vec()]);
    let txn = db.begin(ReadCommitted).unwrap();
    assert!(contents(&txn, table) == before());
    let backward = txn.range_backward(table, ..).unwrap();
    let backward: Vec<_> = backward.map(|row| row.unwrap()).collect();
    assert_eq!(backward.len(), before().len());
    txn.set_lock_wait_timeout(Duration::from_millis(1));
    let timed_out = |error: Error| assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
    let scratch = db.begin_with_snapshot().unwrap();
    let changed: Vec<u64> = (0..26)
        .chain(200..204)
        .chain(300..310)
        .chain([40, 320, 400])
        .chain(50..60)
        .collect();
    for &k in &changed {
        timed_out(txn.upsert(table, &key(k), b"").unwrap_err());
        timed_out(txn.delete(table, &key(k)).unwrap_err());
        timed_out(txn.insert(table, &key(k), b"").unwrap_err());
        let locked = txn.get_locking(table, &key(k), LockMode::Shared, Wait::NoWait);
        assert!(matches!(locked, Err(Error::LockNotAvailable)));
        assert_eq!(
            scratch.get(table, &key(k)).unwrap(),
            before().get(&k).cloned()
        );
    }
    timed_out(
        txn.insert(table.tree("s").unwrap(), &key(3), b"")
            .unwrap_err(),
    );
    // Other rows are free.
    for k in (30..35).chain(70..80) {
        txn.update(table, &key(k), &[1; 2000]).unwrap();
    }
    txn.rollback().unwrap();
    db.purge().unwrap();
}

fn check_outcome(db: &Database, table: &Table, commits: bool) {
    assert!(db.prepared_transactions().is_empty());
    let mut expected = before();
    if commits {
        // The model's part of `change`, on a scratch table.
        let scratch = db.create_table("scratch", &[]).unwrap();
        let txn = db.begin(ReadCommitted).unwrap();
        for (k, value) in before() {
            txn.insert(&scratch, &key(k), &value).unwrap();
        }
        change(&txn, &scratch, &mut expected);
        txn.rollback().unwrap();
    } else {
        for k in 50..60 {
            expected.insert(k, val(-1));
        }
    }
    let txn = db.begin(RepeatableRead).unwrap();
    assert!(contents(&txn, table) == expected);
    assert_eq!(
        txn.get(table.tree("s").unwrap(), &key(3))
            .unwrap()
            .is_none(),
        commits
    );
    drop(txn);
    let mut report = db.verify_table(table).unwrap();
    for _ in 0..30 {
        db.purge().unwrap();
        report = db.verify_table(table).unwrap();
    }
    // The long values that nothing refers to are freed without another restart.
    let long = expected.values().filter(|v| v.len() > 5000).count() as u64;
    assert_eq!(report.overflow_pages, long * 6);
    assert!(report.allocated_pages < long * 6 + 24, "{report:?}");
}

fn reopen(dir: &Path) -> (Database, Table) {
    let db = Database::open(dir, options()).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

fn story(dir: &Path, commits: bool, restarts: u32) {
    let (mut db, mut table) = reopen(dir);
    check_locked(&db, &table);
    for n in 1..restarts {
        drop(table);
        if n % 2 == 0 {
            db.close().unwrap();
        } else {
            drop(db);
        }
        (db, table) = reopen(dir);
        check_locked(&db, &table);
    }
    let old = db.begin_with_snapshot().unwrap();
    if commits {
        db.commit_prepared(b"a").unwrap();
        db.rollback_prepared(b"b").unwrap();
    } else {
        db.rollback_prepared(b"a").unwrap();
        db.commit_prepared(b"b").unwrap();
    }
    assert!(matches!(db.commit_prepared(b"a"), Err(Error::NotFound(_))));
    assert!(matches!(
        db.rollback_prepared(b"b"),
        Err(Error::NotFound(_))
    ));
    assert!(contents(&old, &table) == before());
    drop(old);
    check_outcome(&db, &table, commits);
    drop((db, table));
    let (db, table) = reopen(dir);
    let txn = db.begin(RepeatableRead).unwrap();
    assert_eq!(contents(&txn, &table).contains_key(&300), commits);
}

#[test]
fn prepared_transactions_survive_closing() {
    within(60, || {
        for (commits, restarts) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
            let dir = tempfile::tempdir().unwrap();
            let db = open(&dir);
            prepare(&db, false);
            db.close().unwrap();
            // Prepared transactions do not make a close a crash; each opening tells of them.
            for _ in 0..2 {
                let db = Database::open(dir.path(), options()).unwrap();
                let report = db.open_report().clone();
                let recovered = report.recovered.expect("transactions");
                assert_eq!((report.clean, recovered.prepared), (true, 2));
                db.close().unwrap();
            }
            story(dir.path(), commits, restarts);
        }
    });
}

#[test]
fn prepared_transactions_survive_a_kill() {
    if let Some(dir) = common::child_dir() {
        prepare(&Database::open(dir, options()).unwrap(), true);
    }
    within(90, || {
        for (commits, restarts) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
            let dir = tempfile::tempdir().unwrap();
            common::killed("prepared_transactions_survive_a_kill", dir.path());
            story(dir.path(), commits, restarts);
        }
    });
}

#[test]
fn a_prepared_transaction_that_was_rolled_back_is_gone_after_a_kill() {
    let test = "a_prepared_transaction_that_was_rolled_back_is_gone_after_a_kill";
    if let Some(dir) = common::child_dir() {
        let by_handle = dir.join("by handle").exists();
        let mut options = options();
        options.flush_log_at_trx_commit = Durability::Sync;
        let db = Database::open(dir.join("db"), options).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(ReadCommitted).unwrap();
        txn.insert(&table, &key(1), &val(1)).unwrap();
        let prepared = txn.prepare_with(b"a", Durability::Sync).unwrap();
        if by_handle {
            prepared.rollback().unwrap();
        } else {
            db.rollback_prepared(b"a").unwrap();
        }
        common::ready_to_die();
    }
    for by_handle in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        if by_handle {
            std::fs::write(dir.path().join("by handle"), "").unwrap();
        }
        common::killed(test, dir.path());
        let db = Database::open(dir.path().join("db"), options()).unwrap();
        assert!(
            db.prepared_transactions().is_empty(),
            "by handle: {by_handle}"
        );
        assert!(rows(&db, &db.table("t").unwrap()).is_empty());
    }
}

#[test]
fn prepared_transactions_without_a_restart() {
    within(60, || {
        for commits in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let db = open(&dir);
            prepare(&db, false);
            let table = db.table("t").unwrap();
            check_locked(&db, &table);
            if commits {
                db.commit_prepared(b"a").unwrap();
                db.rollback_prepared(b"b").unwrap();
            } else {
                db.rollback_prepared(b"a").unwrap();
                db.commit_prepared(b"b").unwrap();
            }
            check_outcome(&db, &table, commits);
        }
    });
}

#[test]
fn xids_are_checked() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        for bad in [&b""[..], &[0; 141]] {
            let txn = db.begin(ReadCommitted).unwrap();
            txn.insert(&table, &key(1), &[]).unwrap();
            let refused = txn.prepare(bad);
            assert!(matches!(refused, Err(Error::InvalidOption { .. })));
        }
        // Of two with the same XID one gets through; the other is rolled back.
        let both: Vec<_> = (0..2)
            .map(|n| {
                let txn = db.begin(ReadCommitted).unwrap();
                txn.insert(&table, &key(n), &val(0)).unwrap();
                txn
            })
            .collect();
        let outcomes: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> = both
                .into_iter()
                .map(|txn| s.spawn(|| txn.prepare(&[255; 128])))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(outcomes.iter().filter(|r| r.is_ok()).count(), 1);
        assert_eq!(db.prepared_transactions(), [vec![255; 128]]);
        db.commit_prepared(&[255; 128]).unwrap();
        assert_eq!(rows(&db, &table).len(), 1);
        assert!(matches!(db.commit_prepared(b"x"), Err(Error::NotFound(_))));
        // One that changed nothing.
        let txn = db.begin(ReadCommitted).unwrap();
        txn.prepare(b"reader").unwrap();
        db.rollback_prepared(b"reader").unwrap();
        // An XID may come again.
        for _ in 0..2 {
            let txn = db.begin(ReadCommitted).unwrap();
            txn.upsert(&table, &key(5), &val(5)).unwrap();
            txn.prepare(b"again").unwrap();
            db.commit_prepared(b"again").unwrap();
        }
        let txn = db.begin(ReadCommitted).unwrap();
        assert!(all(&txn, &table).contains(&(5, 5)));
        assert_eq!(num(&txn.get(&table, &key(5)).unwrap().unwrap()), 5);
    });
}

/// A prepared transaction that changed enough for its log to be given up, and stays for long.
#[test]
fn a_prepared_transaction_does_not_pin_the_log() {
    within(90, || {
        let dir = tempfile::tempdir().unwrap();
        let small = inkstone::Options {
            log_file_size: 4 << 20,
            ..options()
        };
        let mut db = Database::open(dir.path(), small.clone()).unwrap();
        let mut table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            let rows = (0..2000).map(|n| (key(n), vec![1; 300]));
            txn.insert_many(&table, rows).unwrap();
        });
        let txn = db.begin(ReadCommitted).unwrap();
        for n in 0..2000 {
            match n % 4 {
                0 => txn.update(&table, &key(n), &[2; 300]).unwrap(),
                1 => assert!(txn.delete(&table, &key(n)).unwrap()),
                2 => txn.insert(&table, &key(n + 5000), &[2; 300]).unwrap(),
                _ => {
                    txn.delete(&table, &key(n)).unwrap();
                    txn.insert(&table, &key(n), &[2; 30]).unwrap();
                    txn.update(&table, &key(n), &[3; 20]).unwrap();
                }
            }
        }
        txn.prepare(b"long").unwrap();
        let mut random = common::Random::new(1);
        for round in 0..3 {
            for _ in 0..30 {
                commit(&db, |txn| {
                    for _ in 0..80 {
                        let value: Vec<u8> = (0..3000).map(|_| random.next() as u8).collect();
                        txn.upsert(&table, &key(10_000 + random.below(500)), &value)
                            .unwrap();
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(1500));
            assert!(common::log_bytes(dir.path()) < 32 << 20);
            drop(table);
            drop(db);
            db = Database::open(dir.path(), small.clone()).unwrap();
            table = db.table("t").unwrap();
            assert_eq!(db.prepared_transactions(), [b"long".to_vec()], "{round}");
        }
        db.rollback_prepared(b"long").unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        for n in 0..2000 {
            assert_eq!(txn.get(&table, &key(n)).unwrap(), Some(vec![1; 300]));
            assert_eq!(txn.get(&table, &key(n + 5000)).unwrap(), None);
        }
        drop(txn);
        db.verify_table(&table).unwrap();
    });
}

/// The log knew nothing of a transaction that had changed nothing: its XID was gone after a
/// restart.
#[test]
fn a_prepared_transaction_without_changes_is_kept() {
    within(60, || {
        let mut disk = SimVfs::new(1);
        let open = |disk: &SimVfs| {
            let vfs = Arc::new(disk.clone());
            Database::open_on(vfs, Path::new("db"), options(), &|_| {}).unwrap()
        };
        let db = open(&disk);
        let table = db.create_table("t", &[]).unwrap();
        for xid in [b"read", b"lock", b"undo"] {
            let txn = db.begin(RepeatableRead).unwrap();
            match xid {
                b"lock" => {
                    drop(txn.get_locking(&table, &key(1), LockMode::Exclusive, Wait::Timeout));
                }
                b"undo" => {
                    txn.savepoint("s").unwrap();
                    txn.insert(&table, &key(2), b"").unwrap();
                    txn.rollback_to_savepoint("s").unwrap();
                }
                _ => assert_eq!(all(&txn, &table), []),
            }
            txn.prepare(xid).unwrap();
        }
        drop(table);
        let mut db = db;
        for round in 0..3 {
            // Its undo, which is empty, is copied forward like any other.
            db.maintain(0).unwrap();
            db.checkpoint().unwrap();
            let after = match round {
                0 => disk.crash(7),
                _ => disk.kill(),
            };
            drop(db);
            disk = after;
            db = open(&disk);
            assert_eq!(
                db.prepared_transactions(),
                [b"lock", b"read", b"undo"],
                "{round}"
            );
        }
        db.commit_prepared(b"read").unwrap();
        db.rollback_prepared(b"lock").unwrap();
        db.commit_prepared(b"undo").unwrap();
        let after = disk.kill();
        drop(db);
        let db = open(&after);
        assert!(db.prepared_transactions().is_empty());
        let table = db.table("t").unwrap();
        assert_eq!(rows(&db, &table), []);
        db.verify_table(&table).unwrap();
    });
}

/// What is only read is free for others once nothing more is read: a transaction that waits for it
/// goes on, and the prepared one can still commit.
#[test]
fn shared_locks_of_a_prepared_transaction_can_be_given_back() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            for k in [10, 20, 30, 40] {
                txn.insert(&table, &key(k), &val(0)).unwrap();
            }
        });
        let txn = db.begin(LockingRepeatableRead).unwrap();
        let lock = |k, mode| {
            txn.get_locking(&table, &key(k), mode, Wait::Timeout)
                .unwrap()
        };
        txn.update(&table, &key(10), &val(1)).unwrap();
        assert!(lock(20, LockMode::Shared).is_some());
        assert!(lock(30, LockMode::Exclusive).is_some());
        assert!(lock(35, LockMode::Shared).is_none());
        let prepared = txn.prepare_with(b"x", Durability::Sync).unwrap();
        std::thread::scope(|scope| {
            let waits = common::blocked(scope, || {
                commit(&db, |txn| txn.update(&table, &key(20), &val(2)).unwrap());
            });
            prepared.release_shared_locks();
            waits.join().unwrap();
        });
        commit(&db, |txn| txn.insert(&table, &key(35), &val(2)).unwrap());
        let other = db.begin(ReadCommitted).unwrap();
        for k in [10, 30] {
            let got = other.get_locking(&table, &key(k), LockMode::Shared, Wait::NoWait);
            assert!(got.is_err(), "row {k} is not locked");
        }
        drop(other);
        drop(prepared.commit_deferred(Durability::Sync).unwrap());
        let expected = [(10, 1), (20, 2), (30, 0), (35, 2), (40, 0)];
        assert_eq!(all(&db.begin(ReadCommitted).unwrap(), &table), expected);
        commit(&db, |txn| txn.update(&table, &key(30), &val(3)).unwrap());
    });
}
