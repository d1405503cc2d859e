//! Bulk inserts: many rows with one version, invisible and locked until their transaction has
//! ended, and gone as one when it is undone.

use inkstone::internals::counters::Counter;
use inkstone::internals::options::Durability;
use inkstone::{Database, Error, Isolation, Options, Table, Transaction, TreeRef};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        lock_wait_timeout_ms: 0,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn rows_of(db: &Database, tree: &impl TreeRef) -> Rows {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    seen_by(&txn, tree)
}

fn seen_by(txn: &Transaction, tree: &impl TreeRef) -> Rows {
    let all = txn.range(tree, ..).unwrap();
    all.map(|row| row.unwrap()).collect()
}

/// Rows of these numbers.
fn rows(numbers: impl Iterator<Item = u64>) -> Rows {
    let row = |n: u64| (n.to_be_bytes().to_vec(), format!("row {n}").into_bytes());
    numbers.map(row).collect()
}

/// Numbers below `count`, in an order of their own.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    assert!(!count.is_multiple_of(7919));
    (0..count).map(move |n| n * 7919 % count)
}

/// As a part of a statement: later calls go on with the bulk.
fn insert(txn: &Transaction, tree: &impl TreeRef, rows: &Rows) {
    for rows in rows.chunks(10_000) {
        let slices: Vec<_> = rows
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        let (done, result) = txn.insert_until_duplicate(tree, &slices);
        result.unwrap();
        assert_eq!(done, rows.len());
    }
}

fn bulks(db: &Database) -> u64 {
    db.counters().get(Counter::BulkInserts)
}

fn is_empty(db: &Database, table: &Table) -> bool {
    let report = db.verify_table(table).unwrap();
    report.trees.iter().all(|(_, tree)| tree.pages.len() == 1)
}

#[test]
fn a_bulk_ends_at_a_savepoint() {
    let db = open(&SimVfs::new(1));
    let table = db.create_table("t", &["second"]).unwrap();
    let second = table.tree("second").unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_many(&table, rows(0..5000)).unwrap();
    insert(&txn, second, &rows(shuffled(3000)));
    assert_eq!(bulks(&db), 2);
    txn.update(&table, &7u64.to_be_bytes(), b"another").unwrap();
    txn.savepoint("s").unwrap();
    let (before, before_second) = (seen_by(&txn, &table), seen_by(&txn, second));
    assert_eq!((before.len(), before_second.len()), (5000, 3000));
    // Behind the rows that there are: a bulk of its own.
    insert(&txn, &table, &rows(5000..7000));
    insert(&txn, second, &rows(3000..3020));
    assert_eq!(bulks(&db), 3);
    txn.delete(&table, &9u64.to_be_bytes()).unwrap();
    txn.update(&table, &5500u64.to_be_bytes(), b"another")
        .unwrap();
    // And what comes behind a mark, too.
    let mark = txn.mark().unwrap();
    let marked = seen_by(&txn, &table);
    insert(&txn, &table, &rows(7000..8000));
    txn.rollback_to_mark(mark).unwrap();
    assert_eq!(seen_by(&txn, &table), marked);
    txn.rollback_to_savepoint("s").unwrap();
    assert_eq!(seen_by(&txn, &table), before);
    assert_eq!(seen_by(&txn, second), before_second);
    txn.rollback().unwrap();
    assert_eq!(
        (rows_of(&db, &table), rows_of(&db, second)),
        (vec![], vec![])
    );
    assert!(is_empty(&db, &table));
}

#[test]
fn a_statement_that_fails_undoes_its_own_rows() {
    let db = open(&SimVfs::new(2));
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let all = rows(0..6000);
    let twice = all.iter().chain(&all[2000..2001]).cloned();
    let failed = txn.insert_many(&table, twice).unwrap_err();
    assert!(matches!(failed, Error::DuplicateKey { .. }), "{failed}");
    assert_eq!((bulks(&db), seen_by(&txn, &table)), (1, vec![]));
    txn.insert_many(&table, all.clone()).unwrap();
    let later = rows(6000..8000).into_iter().chain(rows(5..6));
    txn.insert_many(&table, later).unwrap_err();
    txn.commit().unwrap();
    assert_eq!((bulks(&db), rows_of(&db, &table)), (3, all));
}

#[test]
fn nothing_of_a_bulk_is_seen_before_its_commit() {
    let db = open(&SimVfs::new(3));
    let table = db.create_table("t", &[]).unwrap();
    let older = db.begin_with_snapshot().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let all = rows(0..2000);
    txn.insert_many(&table, all.clone()).unwrap();
    assert_eq!(rows_of(&db, &table), []);
    // The rows are locked, keys beside them are free.
    let other = db.begin(Isolation::ReadCommitted).unwrap();
    let taken = other.insert(&table, &all[9].0, b"").unwrap_err();
    assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
    other.insert(&table, b"beside", b"other").unwrap();
    other.commit().unwrap();
    txn.commit().unwrap();
    assert_eq!(seen_by(&older, &table), []);
    assert_eq!(rows_of(&db, &table).len(), all.len() + 1);
    drop(older);
    // Where no snapshot needs the version its address goes when the room is needed.
    db.purge().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for (key, _) in &all {
        txn.update(&table, key, b"longer than it was before")
            .unwrap();
    }
    txn.rollback().unwrap();
    assert_eq!(rows_of(&db, &table).len(), all.len() + 1);
    db.verify_table(&table).unwrap();
}

#[test]
fn a_bulk_in_a_table_that_is_dropped_is_passed_over() {
    let db = open(&SimVfs::new(5));
    let kept = db.create_table("kept", &[]).unwrap();
    let dropped = db.create_table("dropped", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    insert(&txn, &kept, &rows(0..5000));
    txn.savepoint("s").unwrap();
    insert(&txn, &dropped, &rows(0..5000));
    drop(dropped);
    db.drop_table_at_once("dropped").unwrap();
    txn.rollback_to_savepoint("s").unwrap();
    assert_eq!(seen_by(&txn, &kept).len(), 5000);
    let last = db.create_table("last", &[]).unwrap();
    insert(&txn, &last, &rows(0..5000));
    drop((last, kept));
    db.drop_table_at_once("last").unwrap();
    db.drop_table_at_once("kept").unwrap();
    txn.rollback().unwrap();
    assert_eq!(
        db.status()
            .iter()
            .find(|s| s.0 == "active_transactions")
            .unwrap()
            .1,
        0
    );
}

/// Versions of a bulk take no bytes by row.
#[test]
fn a_bulk_takes_no_undo_by_row() {
    let db = open(&SimVfs::new(4));
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let counted = |counter| db.counters().get(counter);
    let (bytes, log) = (counted(Counter::VersionBytes), counted(Counter::LogBytes));
    insert(&txn, &table, &rows(0..20_000));
    assert!(counted(Counter::VersionBytes) - bytes < 1000);
    let log = counted(Counter::LogBytes) - log;
    assert!(log < 20_000 * 8, "{log}");
    // As little to undo it: leaves go, not rows.
    let before = counted(Counter::LogBytes);
    txn.rollback().unwrap();
    let undone = counted(Counter::LogBytes) - before;
    assert!(undone < 20_000 * 3, "{undone}");
    assert!(is_empty(&db, &table));
}

#[test]
fn others_rows_stay_when_a_bulk_is_undone() {
    for seed in 0..8u64 {
        let vfs = SimVfs::new(seed);
        let db = open(&vfs);
        let table = db.create_table("t", &["second"]).unwrap();
        let second = table.tree("second").unwrap();
        let others: Rows = rows((0..40).map(|n| n * 100 + 50));
        let mine: Rows = rows(shuffled(4000).filter(|n| n % 100 != 50));
        let loser = db.begin(Isolation::ReadCommitted).unwrap();
        insert(&loser, &table, &mine[..2000].to_vec());
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for (key, value) in &others {
            txn.insert(&table, key, value).unwrap();
            txn.insert(second, key, b"").unwrap();
        }
        txn.commit_with(Durability::Sync).unwrap();
        // The undo is saved in the middle of it.
        db.maintain(if seed % 4 < 2 { 0 } else { 1 << 40 }).unwrap();
        insert(&loser, &table, &mine[2000..].to_vec());
        insert(&loser, second, &rows(5000..6000));
        loser.update(&table, &mine[3].0, b"another").unwrap();
        loser.delete(&table, &mine[4].0).unwrap();
        assert_eq!(bulks(&db), 2);
        if seed == 0 {
            loser.rollback().unwrap();
            assert_eq!(rows_of(&db, &table), others);
            db.verify_table(&table).unwrap();
            continue;
        }
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
        // Whether it is undone yet or not.
        assert_eq!(rows_of(&db, &table), others, "seed {seed}");
        if is_prepared {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            let taken = txn.insert(&table, &mine[0].0, b"").unwrap_err();
            assert!(matches!(taken, Error::LockTimeout { .. }), "{taken}");
            drop(txn);
            match seed {
                3 => db.commit_prepared(b"x").unwrap(),
                _ => db.rollback_prepared(b"x").unwrap(),
            }
        }
        db.finish_rollbacks().unwrap();
        let found = rows_of(&db, &table);
        match seed {
            3 => assert_eq!(found.len(), others.len() + mine.len() - 1),
            _ => assert_eq!((found, rows_of(&db, second).len()), (others, 40)),
        }
        db.verify_table(&table).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn sorted_rows_are_inserted_until_one_is_refused() {
    let db = open(&SimVfs::new(1));
    let table = db.create_table("t", &[]).unwrap();
    let all = rows(0..6000);
    let sorter = || {
        let mut sorter = db.sorter();
        for n in shuffled(6000) {
            let (key, value) = &all[n as usize];
            sorter.add(key, value).unwrap();
        }
        sorter.sort().unwrap()
    };
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let (key, value) = &all[5000];
    txn.insert(&table, key, value).unwrap();
    txn.commit().unwrap();

    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let mut sorted = sorter();
    let mut inserted = txn.insert_sorted(&table, &mut sorted, 4096).unwrap();
    assert_eq!(inserted.rows, 4096);
    assert_eq!(inserted.bytes, bytes_of(&all[..4096]));
    assert_eq!(sorted.refused(), None);
    let error = txn.insert_sorted(&table, &mut sorted, 4096).unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { .. }), "{error}");
    assert_eq!(sorted.refused(), Some((&key[..], &value[..])));
    assert_eq!(seen_by(&txn, &table), all[..=5000]);
    drop(txn);
    assert_eq!(rows_of(&db, &table), all[5000..=5000]);

    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.delete(&table, key).unwrap();
    let (mut sorted, mut total) = (sorter(), 0);
    inserted = txn.insert_sorted(&table, &mut sorted, 1 << 20).unwrap();
    while inserted.rows > 0 {
        total += inserted.rows;
        inserted = txn.insert_sorted(&table, &mut sorted, 1 << 20).unwrap();
    }
    assert_eq!(total, 6000);
    txn.commit().unwrap();
    assert_eq!(rows_of(&db, &table), all);
}

fn bytes_of(rows: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    rows.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum()
}
