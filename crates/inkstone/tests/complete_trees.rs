//! A snapshot that is older than a table or a tree gets an error from it, and never fewer rows.

mod common;

use common::{key, open, options, val};
use inkstone::{Cursor, Database, Error, Isolation, Table, Transaction};

const ROWS: u64 = 500;

fn is_changed<T>(result: inkstone::Result<T>) -> bool {
    matches!(result, Err(Error::TableChanged { .. }))
}

/// What a transaction finds in a table: by key, forward, backward.
fn reads(txn: &Transaction, table: &Table) -> [inkstone::Result<usize>; 3] {
    let count = |rows: inkstone::Result<Cursor>| rows?.try_fold(0, |n, row| row.map(|_| n + 1));
    let found = txn.get(table, &key(7));
    [
        found.map(|row| usize::from(row.is_some())),
        count(txn.range(table, ..)),
        count(txn.range_backward(table, ..)),
    ]
}

fn fill(db: &Database, table: &Table) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let rows = (0..ROWS).map(|n| (key(n), val(n as i64)));
    txn.insert_many(table, rows).unwrap();
    txn.commit().unwrap();
}

fn snapshot(db: &Database) -> Transaction {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.take_snapshot().unwrap();
    txn
}

#[test]
fn a_snapshot_reads_no_table_that_was_made_or_replaced_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table);
    let old = snapshot(&db);
    let copy = db.create_table("copy", &[]).unwrap();
    for result in reads(&old, &copy) {
        assert!(is_changed(result));
    }
    // What ALTER TABLE does: a copy takes the table's place.
    fill(&db, &copy);
    db.replace_table("copy", "t").unwrap();
    let table = db.table("t").unwrap();
    for result in reads(&old, &table) {
        assert!(is_changed(result));
    }
    let Err(error) = old.get(&table, &key(1)) else {
        panic!("it is read");
    };
    assert!(error.to_string().contains(&*table.path().to_string_lossy()));
    // The transaction goes on elsewhere, and later ones read everything.
    let other = db.create_table("other", &[]).unwrap();
    old.insert(&other, &key(1), &val(1)).unwrap();
    old.commit().unwrap();
    let all = [1, ROWS as usize, ROWS as usize];
    let found = reads(&snapshot(&db), &table).map(Result::unwrap);
    assert_eq!(found, all);
    // Nothing of it outlives the closing.
    drop((table, copy, other));
    db.close().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let found = reads(&snapshot(&db), &db.table("t").unwrap()).map(Result::unwrap);
    assert_eq!(found, all);
}

#[test]
fn a_tree_that_is_filled_while_others_begin_is_complete_when_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = db.create_table("t", &[]).unwrap();
    fill(&db, &table);
    let before = snapshot(&db);
    let table = db.create_tree("t", "index").unwrap();
    let index = table.tree("index").unwrap();
    assert!(is_changed(before.get(index, &key(1))));
    // The table's rows are as they were.
    assert_eq!(before.get(&table, &key(1)).unwrap(), Some(val(1)));
    let meanwhile = snapshot(&db);
    assert_eq!(meanwhile.get(index, &key(1)).unwrap(), None);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(index, &key(1), &val(1)).unwrap();
    txn.commit().unwrap();
    db.complete_tree(index).unwrap();
    assert!(is_changed(meanwhile.get(index, &key(1))));
    assert!(is_changed(meanwhile.range(index, ..)));
    assert_eq!(snapshot(&db).get(index, &key(1)).unwrap(), Some(val(1)));
    // A locking read is of the newest version, whatever the snapshot.
    let locking = db.begin(Isolation::LockingRepeatableRead).unwrap();
    assert_eq!(locking.get(index, &key(1)).unwrap(), Some(val(1)));
}
