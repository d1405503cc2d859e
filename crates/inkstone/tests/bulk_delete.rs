//! Bulk deletes: the rows of a range that share one version, invisible to later snapshots and seen
//! by older ones, and there again when it is undone.

use inkstone::internals::counters::Counter;
use inkstone::internals::options::Durability;
use inkstone::{Database, Error, Isolation, Options, Transaction, TreeRef};
use inkstone_io::sim::SimVfs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 2 << 20,
        log_file_size: 4 << 20,
        lock_wait_timeout_ms: 0,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn rows(numbers: impl Iterator<Item = u64>) -> Rows {
    let row = |n: u64| {
        (
            n.to_be_bytes().to_vec(),
            format!("row {n} {n}").into_bytes(),
        )
    };
    numbers.map(row).collect()
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn seen_by(txn: &Transaction, tree: &impl TreeRef) -> Rows {
    let all = txn.range(tree, ..).unwrap();
    all.map(|row| row.unwrap()).collect()
}

fn rows_of(db: &Database, tree: &impl TreeRef) -> Rows {
    seen_by(&db.begin(Isolation::ReadCommitted).unwrap(), tree)
}

fn fill(db: &Database, tree: &impl TreeRef, numbers: Range<u64>) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert_many(tree, rows(numbers)).unwrap();
    txn.commit_with(Durability::Sync).unwrap();
}

fn delete(txn: &Transaction, tree: &impl TreeRef, numbers: Range<u64>) -> Result<u64, Error> {
    let (low, high) = (key(numbers.start), key(numbers.end));
    txn.delete_range(tree, &low[..]..&high[..])
}

fn count(db: &Database, counter: Counter) -> u64 {
    db.counters().get(counter)
}

#[test]
fn old_snapshots_see_the_rows() {
    let db = open(&SimVfs::new(1));
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table, 0..9000);
    let old = db.begin_with_snapshot().unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(delete(&txn, &table, 1000..8000).unwrap(), 7000);
    // All but those before the bulk.
    assert!(count(&db, Counter::RowsBulkDeleted) > 6000);
    assert_eq!(count(&db, Counter::BulkDeletes), 1);
    let left = rows((0..1000).chain(8000..9000));
    assert_eq!(seen_by(&txn, &table), left);
    assert_eq!(rows_of(&db, &table), rows(0..9000));
    assert_eq!(seen_by(&old, &table), rows(0..9000));
    txn.commit().unwrap();
    assert_eq!(rows_of(&db, &table), left);
    // Rows come again; each reader sees its own.
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for (key, _) in rows(2000..2100) {
        txn.insert(&table, &key, b"again").unwrap();
    }
    txn.commit().unwrap();
    db.purge().unwrap();
    assert_eq!(seen_by(&old, &table), rows(0..9000));
    assert_eq!(rows_of(&db, &table).len(), 2100);
    // One that was there is of a transaction behind the old snapshot.
    let conflict = delete(&old, &table, 2000..3000).unwrap_err();
    assert!(matches!(conflict, Error::WriteConflict), "{conflict}");
    drop(old);
    db.purge().unwrap();
    assert_eq!(rows_of(&db, &table).len(), 2100);
    db.verify_table(&table).unwrap();
}

/// What it takes: no version and no log by row, and pages come back.
#[test]
fn a_range_takes_no_version_by_row_and_its_pages_come_back() {
    let db = open(&SimVfs::new(2));
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table, 0..30_000);
    let pages = |db: &Database| db.verify_table(&table).unwrap().trees[0].1.pages.len();
    let full = pages(&db);
    let (bytes, log) = (
        count(&db, Counter::VersionBytes),
        count(&db, Counter::LogBytes),
    );
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert_eq!(txn.delete_range(&table, ..).unwrap(), 30_000);
    let bytes = count(&db, Counter::VersionBytes) - bytes;
    assert!(bytes < 200_000, "{bytes}");
    let log = count(&db, Counter::LogBytes) - log;
    assert!(log < 30_000 * 8, "{log}");
    txn.commit().unwrap();
    for _ in 0..4 {
        db.purge().unwrap();
    }
    assert!(pages(&db) < 4, "{} of {full}", pages(&db));
    assert_eq!(rows_of(&db, &table), vec![]);
}

#[test]
fn rows_that_are_not_plain_go_one_by_one() {
    let db = open(&SimVfs::new(3));
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table, 0..4000);
    let setup = db.begin(Isolation::ReadCommitted).unwrap();
    setup.update(&table, &key(700), &[7; 20_000]).unwrap();
    setup.commit().unwrap();
    let old = db.begin_with_snapshot().unwrap();
    let newer = db.begin(Isolation::ReadCommitted).unwrap();
    newer.update(&table, &key(2000), b"newer").unwrap();
    newer.delete(&table, &key(2001)).unwrap();
    newer
        .insert(&table, &[&key(2001)[..], &[1]].concat(), b"new")
        .unwrap();
    newer.commit().unwrap();
    let mut seen = rows(0..4000);
    seen[700].1 = vec![7; 20_000];
    assert_eq!(seen_by(&old, &table), seen);
    let busy = db.begin(Isolation::ReadCommitted).unwrap();
    busy.update(&table, &key(3000), b"busy").unwrap();
    // It waits for the one that is changed, and has deleted none then.
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(&table, &key(5000), b"own").unwrap();
    txn.update(&table, &key(3500), b"own").unwrap();
    let taken = txn.delete_range(&table, ..).unwrap_err();
    assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
    assert_eq!(seen_by(&txn, &table).len(), 4001);
    drop(busy);
    db.finish_rollbacks().unwrap();
    assert_eq!(txn.delete_range(&table, ..).unwrap(), 4001);
    assert_eq!(seen_by(&txn, &table), vec![]);
    txn.commit().unwrap();
    assert_eq!(seen_by(&old, &table), seen);
    drop(old);
    db.purge().unwrap();
    assert_eq!(rows_of(&db, &table), vec![]);
    db.verify_table(&table).unwrap();
}

#[test]
fn what_was_deleted_comes_back() {
    let db = open(&SimVfs::new(4));
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table, 0..6000);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    delete(&txn, &table, 0..2000).unwrap();
    txn.savepoint("s").unwrap();
    let before = seen_by(&txn, &table);
    delete(&txn, &table, 1000..5000).unwrap();
    // Rows of the first bulk and of the second one are inserted, changed and deleted again.
    txn.insert_many(&table, rows(1500..2500)).unwrap();
    txn.update(&table, &key(1600), b"another").unwrap();
    txn.delete(&table, &key(1700)).unwrap();
    delete(&txn, &table, 1800..2200).unwrap();
    assert_eq!(seen_by(&txn, &table).len(), 1599);
    txn.rollback_to_savepoint("s").unwrap();
    assert_eq!(seen_by(&txn, &table), before);
    delete(&txn, &table, 3000..9000).unwrap();
    txn.rollback().unwrap();
    assert_eq!(rows_of(&db, &table), rows(0..6000));
    assert!(count(&db, Counter::BulkDeletesUndone) >= 3);
    db.verify_table(&table).unwrap();
}

#[test]
fn the_range_is_locked() {
    let db = open(&SimVfs::new(5));
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table, 0..2000);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    delete(&txn, &table, 0..1900).unwrap();
    let other = db.begin(Isolation::ReadCommitted).unwrap();
    for number in [0, 1000, 1899] {
        let taken = other.insert(&table, &key(number), b"").unwrap_err();
        assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
        let taken = other.update(&table, &key(number), b"").unwrap_err();
        assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
    }
    let between = [&key(1000)[..], &[1]].concat();
    let taken = other.insert(&table, &between, b"").unwrap_err();
    assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
    let all = other.delete_range(&table, ..).unwrap_err().to_string();
    assert!(all.contains("for all keys in tree primary"), "{all}");
    other.update(&table, &key(1900), b"free").unwrap();
    txn.commit().unwrap();
    other.insert(&table, &key(1000), b"free").unwrap();
    other.commit().unwrap();
    assert_eq!(rows_of(&db, &table).len(), 101);
}

/// Leaves without room for addresses are split.
#[test]
fn full_leaves_of_an_earlier_run() {
    let vfs = SimVfs::new(6);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    for first in 0..80 {
        // So that addresses of the rows before are gone when a leaf is full.
        fill(&db, &table, first * 50..first * 50 + 50);
        db.purge().unwrap();
    }
    drop(table);
    db.close().unwrap();
    let db = open(&vfs);
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert_eq!(txn.delete_range(&table, ..).unwrap(), 4000);
    assert!(count(&db, Counter::RowsBulkDeleted) > 3000);
    txn.rollback().unwrap();
    assert_eq!(rows_of(&db, &table), rows(0..4000));
    db.verify_table(&table).unwrap();
}

#[test]
fn a_loser_is_undone_after_a_crash() {
    for seed in 0..12u64 {
        let vfs = SimVfs::new(seed);
        let db = open(&vfs);
        let table = db.create_table("t", &["second"]).unwrap();
        let second = table.tree("second").unwrap();
        fill(&db, &table, 0..5000);
        fill(&db, second, 0..3000);
        let loser = db.begin(Isolation::ReadCommitted).unwrap();
        delete(&loser, &table, 100..4000).unwrap();
        loser.insert_many(&table, rows(200..300)).unwrap();
        loser.update(&table, &key(4500), b"another").unwrap();
        // The undo is saved in the middle of it.
        db.maintain(if seed % 4 < 2 { 0 } else { 1 << 40 }).unwrap();
        if seed % 3 == 1 {
            db.checkpoint().unwrap();
        }
        loser.delete_range(second, ..).unwrap();
        loser.update(&table, &key(250), b"third").unwrap();
        delete(&loser, &table, 240..260).unwrap();
        let mut left = rows((0..100).chain(200..240).chain(260..300).chain(4000..5000));
        left[680].1 = b"another".to_vec();
        assert_eq!(left[680].0, key(4500));
        assert_eq!(seen_by(&loser, &table), left);
        let is_prepared = seed % 3 == 0;
        if is_prepared {
            loser.prepare(b"x").unwrap();
        } else {
            db.flush_log().unwrap();
            std::mem::forget(loser);
        }
        let vfs = match seed % 2 {
            0 => vfs.kill(),
            _ => vfs.crash(seed),
        };
        std::mem::forget((table, db));
        let db = open(&vfs);
        let table = db.table("t").unwrap();
        let second = table.tree("second").unwrap();
        let (all, all_second) = (rows(0..5000), rows(0..3000));
        // Whether it is undone yet or not.
        assert_eq!(rows_of(&db, &table), all, "seed {seed}");
        assert_eq!(rows_of(&db, second), all_second, "seed {seed}");
        let mut expected = (all, all_second);
        if is_prepared {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            let taken = txn.update(&table, &key(2000), b"").unwrap_err();
            assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
            drop(txn);
            match seed {
                3 | 9 => {
                    db.commit_prepared(b"x").unwrap();
                    expected = (left, Vec::new());
                }
                _ => db.rollback_prepared(b"x").unwrap(),
            }
        }
        db.finish_rollbacks().unwrap();
        for _ in 0..3 {
            db.purge().unwrap();
        }
        assert_eq!(rows_of(&db, &table), expected.0, "seed {seed}");
        assert_eq!(rows_of(&db, second), expected.1, "seed {seed}");
        db.verify_table(&table).unwrap();
    }
}
