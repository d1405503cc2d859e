//! Values with parts: what leaves the row, what an update writes, what a read fetches, and that no
//! page is lost or freed too early.

mod failure_support;

use failure_support::*;
use inkstone::internals::counters::Counter;
use inkstone::{Database, Error, Isolation, Table, Transaction};
use inkstone_io::sim::SimVfs;
use std::ops::Range;

/// A row of a number and two long columns, and its parts.
fn row(number: u64, columns: [&[u8]; 2]) -> (Vec<u8>, Vec<Range<usize>>) {
    let value = [
        &number.to_le_bytes()[..],
        columns[0],
        b"between",
        columns[1],
    ]
    .concat();
    let first = 8..8 + columns[0].len();
    let second = first.end + 7..value.len();
    (value, vec![first, second])
}

fn put(txn: &Transaction, table: &Table, n: u64, row: &(Vec<u8>, Vec<Range<usize>>)) {
    txn.upsert_with_parts(table, &key(n), &row.0, &row.1)
        .unwrap();
}

fn get(db: &Database, table: &Table, n: u64) -> Option<Vec<u8>> {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.get(table, &key(n)).unwrap()
}

fn purge(db: &Database) {
    (0..6).for_each(|_| db.purge().unwrap());
}

fn allocated(db: &Database, table: &Table) -> u64 {
    purge(db);
    db.verify_table(table).unwrap().allocated_pages
}

#[test]
fn a_changed_number_of_a_long_row_logs_little() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let columns = [noise(1, 1 << 20), noise(2, 50_000)];
    let columns = [&columns[0][..], &columns[1][..]];
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &row(1, columns));
    txn.commit().unwrap();
    let logged = || db.counters().get(Counter::LogBytes);
    let before = logged();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &row(2, columns));
    txn.commit().unwrap();
    let one = logged() - before;
    assert!(one < 1024, "{one} bytes are logged");
    assert_eq!(get(&db, &table, 1), Some(row(2, columns).0));
    // One column changed: the other one is not written again.
    let before = logged();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &row(2, [columns[0], &noise(3, 50_000)]));
    txn.commit().unwrap();
    let one = logged() - before;
    assert!((50_000..70_000).contains(&one), "{one} bytes are logged");
    assert_eq!(
        get(&db, &table, 1),
        Some(row(2, [columns[0], &noise(3, 50_000)]).0)
    );
    db.verify_table(&table).unwrap();
}

#[test]
fn a_number_of_a_long_row_costs_one_page() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let columns = [noise(1, 1 << 20), noise(2, 300_000)];
    let columns = [&columns[0][..], &columns[1][..]];
    let whole = row(77, columns);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &whole);
    txn.commit().unwrap();
    db.close().unwrap();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    for isolation in [
        Isolation::ReadUncommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let txn = db.begin(isolation).unwrap();
        txn.get(&table, &key(2)).unwrap();
        let before = db.counters().get(Counter::PagesRead);
        let number = txn.get_slice(&table, &key(1), 0..8).unwrap();
        assert_eq!(number, Some(77_u64.to_le_bytes().to_vec()));
        let between = 8 + (1 << 20)..8 + (1 << 20) + 7;
        let found = txn.get_slice(&table, &key(1), between).unwrap();
        assert_eq!(found, Some(b"between".to_vec()));
        assert_eq!(db.counters().get(Counter::PagesRead), before);
        assert_eq!(txn.get_slice(&table, &key(2), 0..8).unwrap(), None);
    }
    // Any bytes, across the parts' ends too.
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let length = whole.0.len();
    for (start, end) in [
        (0, 9),
        (7, 5000),
        (4072, 4073),
        (1 << 20, (1 << 20) + 50),
        (length - 1, length),
    ] {
        let found = txn.get_slice(&table, &key(1), start as u64..end as u64);
        assert!(
            found.unwrap().unwrap() == whole.0[start..end],
            "{start}..{end}"
        );
    }
    let behind = length as u64;
    assert_eq!(
        txn.get_slice(&table, &key(1), behind..behind + 9).unwrap(),
        Some(vec![])
    );
    assert_eq!(txn.get(&table, &key(1)).unwrap(), Some(whole.0));
}

/// An old snapshot, a savepoint, a rollback, a deletion: each after updates that keep chains.
#[test]
fn kept_chains_outlive_what_shares_them() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let empty = allocated(&db, &table);
    let (a, b, c) = (noise(1, 40_000), noise(2, 30_000), noise(3, 30_000));
    let (old, kept, new) = (row(1, [&a, &b]), row(2, [&a, &b]), row(3, [&a, &c]));
    let commit = |row: &_| {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        put(&txn, &table, 1, row);
        txn.commit().unwrap();
    };
    commit(&old);
    let full = allocated(&db, &table);
    let snapshot = db.begin_with_snapshot().unwrap();
    commit(&kept);
    commit(&new);
    purge(&db);
    assert_eq!(
        snapshot.get(&table, &key(1)).unwrap().as_ref(),
        Some(&old.0)
    );
    drop(snapshot);
    assert_eq!(get(&db, &table, 1).as_ref(), Some(&new.0));
    assert!(allocated(&db, &table) <= full + 1);
    // The chain of `b` is made, given up and made again.
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &kept);
    txn.savepoint("s").unwrap();
    put(&txn, &table, 1, &new);
    txn.delete(&table, &key(1)).unwrap();
    put(&txn, &table, 1, &old);
    txn.rollback_to_savepoint("s").unwrap();
    put(&txn, &table, 1, &old);
    assert_eq!(txn.get(&table, &key(1)).unwrap().as_ref(), Some(&old.0));
    txn.rollback().unwrap();
    purge(&db);
    assert_eq!(get(&db, &table, 1).as_ref(), Some(&new.0));
    assert!(allocated(&db, &table) <= full + 1);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &kept);
    txn.delete(&table, &key(1)).unwrap();
    txn.commit().unwrap();
    assert_eq!(get(&db, &table, 1), None);
    assert!(allocated(&db, &table) <= empty + 2);
}

/// A process is killed after each of many statements, with and without an end of its transaction.
#[test]
fn kept_chains_outlive_crashes() {
    let (a, b, c) = (noise(1, 40_000), noise(2, 9_000), noise(3, 9_000));
    let steps = [
        row(1, [&a, &b]),
        row(2, [&a, &b]),
        row(3, [&a, &c]),
        row(4, [&b, &c]),
        row(5, [&c, &b]),
        row(6, [b"short", &b]),
    ];
    for steps_done in 1..=steps.len() {
        for committed in 0..=steps_done {
            let vfs = SimVfs::new(steps_done as u64);
            let db = open_sim(&vfs, small()).unwrap();
            let table = db.create_table("t", &[]).unwrap();
            for step in &steps[..committed] {
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                put(&txn, &table, 1, step);
                txn.commit().unwrap();
            }
            let loser = db.begin(Isolation::ReadCommitted).unwrap();
            for step in &steps[committed..steps_done] {
                put(&loser, &table, 1, step);
            }
            db.flush_log().unwrap();
            let vfs = vfs.kill();
            drop((loser, table, db));
            let db = open_sim(&vfs, small()).unwrap();
            let table = db.table("t").unwrap();
            db.verify_table(&table).unwrap();
            db.finish_rollbacks().unwrap();
            purge(&db);
            db.verify_table(&table).unwrap();
            let expected = committed.checked_sub(1).map(|n| steps[n].0.clone());
            assert!(
                get(&db, &table, 1) == expected,
                "{committed} of {steps_done}"
            );
            db.close().unwrap();
        }
    }
}

/// Compaction writes every chain again, and the row has its parts as before.
#[test]
fn compaction_moves_parts() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let columns = |n: u64| [noise(n, 20_000), noise(n + 1000, 10_000)];
    let whole = |n: u64| row(n, [&columns(n)[0], &columns(n)[1]]);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    (0..100).for_each(|n| put(&txn, &table, n, &whole(n)));
    txn.commit().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in (0..100).filter(|n| n % 10 < 9) {
        txn.delete(&table, &key(n)).unwrap();
    }
    txn.commit().unwrap();
    let report = db.compact_table(&table).unwrap();
    assert!(report.long_values_moved > 5, "{report:?}");
    db.verify_table(&table).unwrap();
    let before = db.counters().get(Counter::LogBytes);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(
        &txn,
        &table,
        99,
        &row(5, [&columns(99)[0], &columns(99)[1]]),
    );
    txn.commit().unwrap();
    let logged = db.counters().get(Counter::LogBytes) - before;
    assert!(logged < 2048, "{logged} bytes are logged");
    for n in (9..99).step_by(10) {
        assert!(get(&db, &table, n) == Some(whole(n).0), "row {n}");
    }
}

/// Each of them took a page of its own: 8 MB for 200 KB.
#[test]
fn many_short_parts_take_no_page_each() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let before = allocated(&db, &table);
    let value = noise(1, 200_000);
    let parts: Vec<_> = (0..2000).map(|n| n * 100..n * 100 + 100).collect();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put(&txn, &table, 1, &(value.clone(), parts));
    txn.commit().unwrap();
    let pages = allocated(&db, &table) - before;
    let least = (value.len() as u64).div_ceil(db.options().page_size);
    assert!(pages <= 2 * least + 9, "{pages} pages, of {least}");
    assert!(get(&db, &table, 1) == Some(value));
}

#[test]
fn parts_out_of_order_are_refused() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let value = noise(1, 10_000);
    let refused_parts: [&[_]; 3] = [
        &[0..10_001, 10_001..10_001],
        &[5..9, 8..20],
        &[50..60, 0..9],
    ];
    for parts in refused_parts {
        let refused = failed(txn.insert_with_parts(&table, &key(1), &value, parts));
        assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
    }
    // Parts that do not help: the value lies in one chain.
    txn.insert_with_parts(&table, &key(1), &value, &[0..20, 30..60])
        .unwrap();
    assert_eq!(txn.get(&table, &key(1)).unwrap(), Some(value));
    txn.commit().unwrap();
    db.verify_table(&table).unwrap();
}
