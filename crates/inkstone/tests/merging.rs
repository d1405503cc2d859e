//! Changes that commute: of rows that are newer than the transaction's snapshot, without a conflict
//! and without a loss.

mod common;

use common::{options, within};
use inkstone::typed::TypedTable;
use inkstone::{Database, Error, Isolation, Transaction};
use std::thread::scope;

const LEVELS: [Isolation; 5] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::LockingRepeatableRead,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

fn add(old: Option<&[u8]>) -> Vec<u8> {
    let count = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
    (count + 1).to_le_bytes().to_vec()
}

fn count(db: &Database, table: &inkstone::Table, key: &[u8]) -> Option<u64> {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let value = txn.get(table, key).unwrap()?;
    Some(u64::from_le_bytes(value.try_into().unwrap()))
}

fn with_snapshot(db: &Database) -> Transaction {
    db.begin_with_snapshot().unwrap()
}

/// All begin before any of them ends: without merges all but one had a conflict.
#[test]
fn what_came_after_the_snapshot_is_added_to() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let all: Vec<_> = (0..20).map(|_| with_snapshot(&db)).collect();
        for txn in all {
            txn.merge(&table, b"there or not", add).unwrap();
            txn.merge(&table, b"there or not", add).unwrap();
            let own = txn.get(&table, b"there or not").unwrap();
            assert!(own.is_some(), "it reads what it has written");
            txn.commit().unwrap();
        }
        assert_eq!(count(&db, &table, b"there or not"), Some(40));
    });
}

#[test]
fn a_merge_that_is_undone_adds_nothing() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let late = with_snapshot(&db);
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.merge(&table, b"k", add).unwrap();
        txn.commit().unwrap();
        late.savepoint("before").unwrap();
        late.merge(&table, b"k", add).unwrap();
        late.rollback_to_savepoint("before").unwrap();
        late.merge(&table, b"k", add).unwrap();
        late.commit().unwrap();
        let undone = with_snapshot(&db);
        undone.merge(&table, b"k", add).unwrap();
        undone.merge(&table, b"new", add).unwrap();
        undone.rollback().unwrap();
        assert_eq!(count(&db, &table, b"k"), Some(2));
        assert_eq!(count(&db, &table, b"new"), None);
    });
}

/// Only the merge passes over: what rests on the snapshot is refused as before.
#[test]
fn other_changes_have_their_conflict() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let setup = db.begin(Isolation::RepeatableRead).unwrap();
        setup.insert(&table, b"other", b"1").unwrap();
        setup.commit().unwrap();
        let late = with_snapshot(&db);
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.update(&table, b"other", b"2").unwrap();
        txn.merge(&table, b"k", add).unwrap();
        txn.commit().unwrap();
        late.merge(&table, b"k", |old| {
            // The function may use the transaction, and does so as of the snapshot.
            let conflict = late.update(&table, b"other", b"3");
            assert!(matches!(conflict, Err(Error::WriteConflict)));
            add(old)
        })
        .unwrap();
        let conflict = late.update(&table, b"other", b"3");
        assert!(matches!(conflict, Err(Error::WriteConflict)));
        assert_eq!(late.get(&table, b"other").unwrap().unwrap(), b"1");
        late.rollback().unwrap();
    });
}

/// From many threads, at every level: nothing is lost, and at repeatable read nothing is repeated.
#[test]
fn additions_of_many_threads_are_all_there() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let counts = TypedTable::<u64, (u64, String)>::builder("counts")
            .index("by count", |_, value: &(u64, String)| value.0)
            .open(&db)
            .unwrap();
        for (row, level) in (0..).zip(LEVELS) {
            scope(|s| {
                for thread in 0..4 {
                    let (db, counts) = (&db, &counts);
                    s.spawn(move || {
                        for _ in 0..50 {
                            let txn = db.begin(level).unwrap();
                            // A snapshot that others' additions are newer than.
                            counts.get(&txn, &(1_000 + thread)).unwrap();
                            let added = counts.merge(&txn, &row, |old| {
                                let (count, text) = old.unwrap_or_default();
                                (count + 1, text + "+")
                            });
                            match added {
                                Ok(()) => txn.commit().unwrap(),
                                Err(Error::Deadlock) if level != Isolation::RepeatableRead => {
                                    db.transact(level, |txn| {
                                        counts.merge(txn, &row, |old| {
                                            let (count, text) = old.unwrap_or_default();
                                            (count + 1, text + "+")
                                        })
                                    })
                                    .unwrap();
                                }
                                Err(error) => panic!("{level:?}: {error}"),
                            }
                        }
                    });
                }
            });
            let txn = db.begin(Isolation::RepeatableRead).unwrap();
            let value = counts.get(&txn, &row).unwrap();
            assert_eq!(value, Some((200, "+".repeat(200))), "{level:?}");
        }
        // Its entries have followed.
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        let entries = counts.by_index::<u64>(&txn, "by count", ..).unwrap();
        let entries: Vec<_> = entries.map(Result::unwrap).collect();
        let expected: Vec<_> = (0..LEVELS.len() as u64).map(|row| (200, row)).collect();
        assert_eq!(entries, expected);
    });
}
