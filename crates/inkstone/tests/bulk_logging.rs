//! Bulk inserts of which the log lacks rows (`bulk_logging=minimal`): nothing of them is lost that
//! was committed, nothing stays that was not, and what others do beside them is as safe as ever.

mod failure_support;

use failure_support::noise;
use inkstone::internals::counters::Counter;
use inkstone::internals::options::{BulkLogging, PagePlacement};
use inkstone::{Database, Durability, Error, Isolation, Options, Table, Transaction};
use inkstone_format::header::{PageType, page_type};
use inkstone_format::tree_page::TreePage;
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;

/// Rows of a load that is large enough: ten megabytes.
const ROWS: u64 = 10_000;
const ROW_BYTES: u64 = 1000;
const PAGE: usize = 16 << 10;

fn options(bulk_logging: BulkLogging, page_placement: PagePlacement) -> Options {
    Options {
        buffer_pool_size: 8 << 20,
        log_file_size: 16 << 20,
        lock_wait_timeout_ms: 0,
        bulk_logging,
        page_placement,
        ..Options::default()
    }
}

fn open_with(vfs: &SimVfs, options: Options) -> Database {
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn open(vfs: &SimVfs) -> Database {
    open_with(vfs, options(BulkLogging::Minimal, PagePlacement::InPlace))
}

fn key(n: u64) -> Vec<u8> {
    (n * 10).to_be_bytes().to_vec()
}

/// A value that no compression makes smaller.
fn value(n: u64) -> Vec<u8> {
    noise(n, ROW_BYTES as usize - 8)
}

fn load(txn: &Transaction, table: &Table, numbers: impl Iterator<Item = u64>) {
    let rows: Vec<_> = numbers.map(|n| (key(n), value(n))).collect();
    for rows in rows.chunks(1000) {
        let slices: Vec<_> = rows.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        let (done, result) = txn.insert_until_duplicate(table, &slices);
        result.unwrap();
        assert_eq!(done, rows.len());
    }
}

/// The database, and its table with the rows that were there before.
fn with_load(vfs: &SimVfs, numbers: std::ops::Range<u64>) -> (Database, Table, Transaction) {
    let db = open(vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    load(&txn, &table, numbers);
    assert!(counted(&db, Counter::RowsLeftOut) > 0);
    (db, table, txn)
}

fn counted(db: &Database, counter: Counter) -> u64 {
    db.counters().get(counter)
}

/// What is there behind a power loss, with the table whole.
#[track_caller]
fn check_behind_crash(vfs: &SimVfs, seed: u64, db: (Database, Table), expected: &[(u64, u64)]) {
    let vfs = vfs.crash(seed);
    std::mem::forget(db);
    check(&open(&vfs), expected);
}

/// The table has the rows of these numbers with the values of those, and no others.
#[track_caller]
fn check(db: &Database, expected: &[(u64, u64)]) {
    db.finish_rollbacks().unwrap();
    let table = db.table("t").unwrap();
    db.verify_table(&table).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let mut found = txn.range(&table, ..).unwrap();
    for &(n, of) in expected {
        let row = found.next().unwrap().unwrap();
        assert_eq!(row, (key(n), value(of)), "row {n}");
    }
    assert!(found.next().is_none());
}

fn plain(numbers: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    numbers.map(|n| (n, n)).collect()
}

/// Bytes that a load writes for each of its own.
fn bytes_written(logging: BulkLogging, placement: PagePlacement, order: u64) -> f64 {
    let vfs = SimVfs::new(1);
    let db = open_with(&vfs, options(logging, placement));
    let table = db.create_table("t", &[]).unwrap();
    let counters = [
        Counter::LogBytesWritten,
        Counter::PageBytesWritten,
        Counter::DoublewriteBytes,
    ];
    let sum = || counters.map(|c| counted(&db, c)).iter().sum::<u64>();
    let before = sum();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    load(&txn, &table, (0..4 * ROWS).map(|n| n * order % (4 * ROWS)));
    txn.commit().unwrap();
    db.flush_table(&table).unwrap();
    let ratio = (sum() - before) as f64 / (4 * ROWS * ROW_BYTES) as f64;
    check(&db, &plain(0..4 * ROWS));
    ratio
}

#[test]
fn a_large_load_writes_its_bytes_once() {
    for placement in [PagePlacement::InPlace, PagePlacement::Placed] {
        let full = bytes_written(BulkLogging::Full, placement, 1);
        assert!(full > 1.9, "{placement}: {full}");
        let minimal = bytes_written(BulkLogging::Minimal, placement, 1);
        assert!(minimal < 1.2, "{placement}: {minimal}");
    }
}

#[test]
fn a_committed_load_is_there_after_a_crash() {
    for (seed, durability) in (0..).zip([Durability::Sync, Durability::Sync, Durability::Lazy]) {
        let vfs = SimVfs::new(seed);
        let (db, table, txn) = with_load(&vfs, 0..ROWS);
        txn.commit_with(durability).unwrap();
        if durability == Durability::Lazy {
            db.flush_log().unwrap();
        }
        assert_eq!(counted(&db, Counter::UnloggedCommits), 1);
        check_behind_crash(&vfs, seed, (db, table), &plain(0..ROWS));
    }
}

#[test]
fn a_load_that_was_not_committed_is_gone_after_a_crash() {
    for seed in 0..4 {
        let vfs = SimVfs::new(seed);
        let (db, table, txn) = with_load(&vfs, 0..ROWS);
        db.flush_log().unwrap();
        if seed % 2 == 0 {
            db.checkpoint().unwrap();
            load(&txn, &table, ROWS..ROWS + 500);
        }
        std::mem::forget(txn);
        check_behind_crash(&vfs, seed, (db, table), &[]);
    }
}

#[test]
fn a_load_that_is_rolled_back_is_gone() {
    let vfs = SimVfs::new(7);
    let (db, table, txn) = with_load(&vfs, 0..ROWS);
    let before = counted(&db, Counter::LogBytes);
    txn.rollback().unwrap();
    // The pages are emptied: what was in them is not logged for that.
    let log = counted(&db, Counter::LogBytes) - before;
    assert!(log < ROWS * ROW_BYTES / 10, "{log}");
    db.flush_log().unwrap();
    check(&db, &[]);
    check_behind_crash(&vfs, 7, (db, table), &[]);
}

/// A savepoint ends a bulk; what comes later is one of its own, and is undone apart.
#[test]
fn what_is_behind_a_savepoint_is_undone_apart() {
    let vfs = SimVfs::new(8);
    let (db, table, txn) = with_load(&vfs, 0..ROWS);
    txn.savepoint("s").unwrap();
    load(&txn, &table, ROWS..ROWS + 2000);
    txn.rollback_to_savepoint("s").unwrap();
    load(&txn, &table, ROWS..ROWS + 1000);
    txn.update(&table, &key(5), &value(6)).unwrap();
    txn.delete(&table, &key(0)).unwrap();
    txn.commit().unwrap();
    let mut expected = plain(1..ROWS + 1000);
    expected[4] = (5, 6);
    check(&db, &expected);
    check_behind_crash(&vfs, 8, (db, table), &expected);
}

/// The number of the only leaf in a file, and its bytes.
fn only_leaf(vfs: &SimVfs, path: &Path) -> (usize, Vec<u8>) {
    let bytes = vfs.read_raw(path).unwrap();
    let is_leaf = |page: &[u8]| page_type(page) == Some(PageType::Leaf);
    let mut leaves = bytes.chunks(PAGE).enumerate().filter(|(_, p)| is_leaf(p));
    let (number, leaf) = leaves.next().unwrap();
    assert!(leaves.next().is_none());
    (number, leaf.to_vec())
}

/// Redo makes a leaf anew without its rows, and with the LSN of the version that has them on disk.
/// Once the load is undone that version is known for older, if the disk loses the leaf's write.
#[test]
fn a_lost_write_of_a_leaf_without_its_rows_is_found() {
    let (vfs, path) = (SimVfs::new(10), Path::new("db/t00000002.ink"));
    let (db, table, txn) = with_load(&vfs, 0..ROWS);
    let small = db.create_table("small", &[]).unwrap();
    let mut keys: Vec<_> = (0..10_000).map(key).collect();
    keys[10] = key(9);
    let rows: Vec<_> = keys.iter().map(|key| (&key[..], &b"small"[..])).collect();
    // A bulk that a duplicate ends has all its rows in the root.
    assert_eq!(txn.insert_until_duplicate(&small, &rows).0, 10);
    db.flush_table(&small).unwrap();
    let vfs = vfs.crash(10);
    std::mem::forget((txn, small, table, db));
    let (leaf, with_rows) = only_leaf(&vfs, path);
    assert_eq!(TreePage(&with_rows).count(), 10);
    let db = open(&vfs);
    db.finish_rollbacks().unwrap();
    db.close().unwrap();
    assert_eq!(TreePage(&only_leaf(&vfs, path).1).count(), 0);
    let at = (leaf * PAGE) as u64;
    vfs.write_raw(path, at, &with_rows).unwrap();
    let db = open(&vfs);
    let table = db.table("small").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let first = txn
        .range(&table, ..)
        .and_then(|mut rows| rows.next().transpose());
    assert!(
        matches!(first, Ok(None) | Err(Error::Corrupt { .. })),
        "{first:?}"
    );
}

#[test]
fn rows_of_others_are_logged_with_the_page() {
    for seed in 0..4u64 {
        let vfs = SimVfs::new(seed);
        let db = open(&vfs);
        let table = db.create_table("t", &[]).unwrap();
        let loader = db.begin(Isolation::ReadCommitted).unwrap();
        let gap = |n: u64| n % 1000 == 999;
        load(&loader, &table, (0..ROWS).filter(|&n| !gap(n)));
        let others: Vec<u64> = (0..ROWS).filter(|&n| gap(n)).collect();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for &n in &others {
            txn.insert(&table, &key(n), &value(n)).unwrap();
        }
        txn.commit().unwrap();
        assert!(counted(&db, Counter::PagesLoggedWhole) > 0);
        let mut expected: Vec<_> = others.iter().map(|&n| (n, n)).collect();
        if seed % 2 == 0 {
            loader.commit().unwrap();
            expected = plain(0..ROWS);
        } else {
            std::mem::forget(loader);
        }
        check_behind_crash(&vfs, seed, (db, table), &expected);
    }
}

#[test]
fn a_prepared_load_is_there_after_a_crash() {
    for commits in [true, false] {
        let vfs = SimVfs::new(9);
        let (db, table, txn) = with_load(&vfs, 0..ROWS);
        txn.prepare(b"x").unwrap();
        let vfs = vfs.crash(9);
        std::mem::forget((db, table));
        let db = open(&vfs);
        if commits {
            db.commit_prepared(b"x").unwrap();
        } else {
            db.rollback_prepared(b"x").unwrap();
        }
        check(&db, &plain(0..if commits { ROWS } else { 0 }));
    }
}

/// The pages of a load, or the checkpoint behind them, cannot be written: the commit says which,
/// and the load is gone. Once they can be, the next one is committed.
#[test]
fn a_commit_that_cannot_settle_names_the_reason() {
    for file in ["control", "t00000001.ink"] {
        let vfs = SimVfs::new(11);
        let (db, table, txn) = with_load(&vfs, 0..ROWS);
        vfs.fail(FaultRule {
            kind: Some(OpKind::Write),
            path_contains: file.to_owned(),
            nth: 1,
            times: u64::MAX,
            fault: Fault::Eio,
        });
        let error = txn.commit().unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(error.to_string().contains(file), "{error}");
        vfs.clear_faults();
        check(&db, &[]);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        load(&txn, &table, 0..ROWS);
        txn.commit().unwrap();
        check_behind_crash(&vfs, 11, (db, table), &plain(0..ROWS));
    }
}

#[test]
fn an_archive_has_all_rows() {
    let vfs = SimVfs::new(3);
    let db = open_with(
        &vfs,
        Options {
            log_archive: true,
            ..options(BulkLogging::Minimal, PagePlacement::InPlace)
        },
    );
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    load(&txn, &table, 0..ROWS);
    txn.commit().unwrap();
    assert_eq!(counted(&db, Counter::RowsLeftOut), 0);
    assert!(counted(&db, Counter::LogBytes) > ROWS * ROW_BYTES);
}
