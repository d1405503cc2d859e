//! The embedded API on real files: rows, ranges, reopening.

use inkstone::internals::counters::Counter;
use inkstone::{Database, Error, Isolation, Options};

fn options() -> Options {
    Options {
        buffer_pool_size: 8 << 20,
        log_file_size: 32 << 20,
        ..Options::default()
    }
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

#[test]
fn rows_survive_closing_and_dropping_without_close() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4u64 {
        let db = Database::open(dir.path(), options()).unwrap();
        let table = match db.table("t") {
            Ok(table) => table,
            Err(Error::NotFound(_)) => db.create_table("t", &["by_name"]).unwrap(),
            Err(other) => panic!("{other}"),
        };
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        for n in 0..round * 1000 {
            let value = txn.get(&table, &key(n)).unwrap();
            assert_eq!(
                value.as_deref(),
                Some(&format!("value {n}").into_bytes()[..]),
                "{n} round {round}"
            );
        }
        for n in round * 1000..(round + 1) * 1000 {
            txn.insert(&table, &key(n), format!("value {n}").as_bytes())
                .unwrap();
        }
        txn.commit().unwrap();
        let lost = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..100 {
            lost.update(&table, &key(n), b"never").unwrap();
            lost.delete(&table, &key(n + 200)).unwrap();
        }
        lost.insert(&table, b"lost", b"").unwrap();
        drop(lost);
        let report = db.verify_table(&table).unwrap();
        assert_eq!(report.trees[0].1.rows, (round + 1) * 1000);
        if round % 2 == 0 {
            db.close().unwrap();
        }
    }
}

#[test]
fn ranges_run_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..5000u64 {
        let n = n * 7919 % 5000;
        txn.insert(&table, &key(n), &[n as u8; 100]).unwrap();
    }
    let all: Vec<u64> = txn
        .range(&table, ..)
        .unwrap()
        .map(|row| u64::from_be_bytes(row.unwrap().0.try_into().unwrap()))
        .collect();
    assert_eq!(all, (0..5000).collect::<Vec<_>>());
    let (low, high) = (key(1000), key(2000));
    let part: Vec<u64> = txn
        .range_backward(&table, &low[..]..&high[..])
        .unwrap()
        .map(|row| u64::from_be_bytes(row.unwrap().0.try_into().unwrap()))
        .collect();
    assert_eq!(part, (1000..2000).rev().collect::<Vec<_>>());
    let inclusive = txn
        .range_backward(&table, &low[..]..=&high[..])
        .unwrap()
        .count();
    assert_eq!(inclusive, 1001);
    txn.commit().unwrap();
    assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, 5000);
}

#[test]
fn long_values_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let long = |n: u8| vec![n; 300_000 + usize::from(n)];
    // The catalog's row.
    let made = db.counters().get(Counter::RowsInserted);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..10u8 {
        txn.insert(&table, &[n], &long(n)).unwrap();
    }
    txn.commit().unwrap();
    let old = db.begin_with_snapshot().unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..5u8 {
        txn.update(&table, &[n], &long(n + 100)).unwrap();
    }
    txn.delete(&table, &[9]).unwrap();
    txn.commit().unwrap();
    let gone = db.begin(Isolation::RepeatableRead).unwrap();
    gone.update(&table, &[7], &long(200)).unwrap();
    gone.rollback().unwrap();
    let counted = [
        (Counter::RowsInserted, made + 10),
        (Counter::RowsUpdated, 6),
        (Counter::RowsDeleted, 1),
    ];
    for (counter, rows) in counted {
        assert_eq!(db.counters().get(counter), rows, "{counter:?}");
    }
    for n in 0..10u8 {
        assert_eq!(old.get(&table, &[n]).unwrap(), Some(long(n)));
    }
    drop(old);
    for _ in 0..4 {
        db.purge().unwrap();
    }
    let report = db.verify_table(&table).unwrap();
    assert_eq!(report.trees[0].1.rows, 9);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(txn.get(&table, &[3]).unwrap(), Some(long(103)));
    assert_eq!(txn.get(&table, &[7]).unwrap(), Some(long(7)));
    assert_eq!(txn.get(&table, &[9]).unwrap(), None);
    drop(txn);
    drop(db);
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.table("t").unwrap();
    db.verify_table(&table).unwrap();
}
