//! What programs do that use the library for the first time: panics that they catch, closures that
//! change what is being changed, tables that are dropped beside their writers.

mod common;

use common::{blocked, key, val, within};
use inkstone::typed::TypedTable;
use inkstone::{Database, Error, Isolation, Options, Transaction};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

type Numbers = TypedTable<u64, i64>;

fn make(lock_wait_timeout_ms: u64) -> Database {
    let options = Options {
        lock_wait_timeout_ms,
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    };
    Database::in_memory(options).unwrap()
}

/// A table with an index of numbers, which cannot be made of 0.
fn numbers(db: &Database) -> Numbers {
    Numbers::builder("numbers")
        .index("by_number", |_, n| 100 / *n)
        .open(db)
        .unwrap()
}

/// Rows and entries of the index, which must fit each other.
fn check(numbers: &Numbers, txn: &Transaction, expected: &[(u64, i64)]) {
    let rows = numbers.range(txn, ..).unwrap();
    let rows: Vec<_> = rows.collect::<Result<_, _>>().unwrap();
    assert_eq!(rows, expected);
    let entries = numbers.by_index::<i64>(txn, "by_number", ..).unwrap();
    let entries: Vec<_> = entries.collect::<Result<_, _>>().unwrap();
    let mut made: Vec<_> = rows.iter().map(|(id, n)| (100 / n, *id)).collect();
    made.sort_unstable();
    assert_eq!(entries, made);
}

fn panics(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// A program that caught the panic committed one half of it: of a typed table a row without an
/// entry in its index.
#[test]
fn a_statement_that_panics_leaves_nothing() {
    let db = make(1000);
    let numbers = numbers(&db);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    numbers.insert(&txn, &1, &5).unwrap();
    assert!(panics(|| numbers.insert(&txn, &2, &0).unwrap()));
    assert!(panics(|| numbers.update(&txn, &1, &0).unwrap()));
    assert!(panics(|| drop(numbers.update_with(&txn, &1, |n| *n = 0))));
    let in_the_middle = |txn: &Transaction| -> inkstone::Result<()> {
        txn.insert(&table, &key(1), &val(1))?;
        txn.savepoint("inside")?;
        txn.insert(&table, &key(2), &val(2))?;
        panic!("in the middle of it");
    };
    assert!(panics(|| drop(txn.statement(in_the_middle))));
    // One in the other: what the outer one goes on with is its own.
    txn.statement(|txn| {
        txn.insert(&table, &key(3), &val(3))?;
        assert!(panics(|| drop(txn.statement(in_the_middle))));
        txn.insert(&table, &key(4), &val(4))
    })
    .unwrap();
    assert!(txn.rollback_to_savepoint("inside").is_err());
    check(&numbers, &txn, &[(1, 5)]);
    txn.commit().unwrap();
    assert_eq!(common::rows(&db, &table), [(3, 3), (4, 4)]);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    check(&numbers, &txn, &[(1, 5)]);
}

/// An iterator of the program's that panics behind many rows.
#[test]
fn rows_whose_iterator_panics_are_not_inserted() {
    let db = make(1000);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let rows = (0..20_000u64).map(|n| {
        assert!(n < 15_000, "no more of them");
        (key(n), val(1))
    });
    assert!(panics(|| drop(txn.insert_many(&table, rows))));
    txn.insert(&table, &key(7), &val(7)).unwrap();
    txn.commit().unwrap();
    assert_eq!(common::rows(&db, &table), [(7, 7)]);
}

/// The value that `update_with` wrote was that of before, and the row's entry in the index stayed
/// behind.
#[test]
fn update_with_refuses_a_row_that_its_closure_has_changed() {
    let db = make(1000);
    let numbers = numbers(&db);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    numbers.insert(&txn, &1, &5).unwrap();
    let refused = |change: &dyn Fn()| {
        let refused = numbers.update_with(&txn, &1, |n| {
            change();
            *n += 1;
        });
        assert!(matches!(refused, Err(Error::TransactionState(_))));
        check(&numbers, &txn, &[(1, 5)]);
    };
    refused(&|| numbers.update(&txn, &1, &50).unwrap());
    refused(&|| assert!(numbers.delete(&txn, &1).unwrap()));
    refused(&|| numbers.update_with(&txn, &1, |n| *n += 10).unwrap());
    // Other rows are its own affair.
    let moved = numbers.update_with(&txn, &1, |n| {
        numbers.insert(&txn, &2, &3).unwrap();
        *n -= 3;
    });
    moved.unwrap();
    check(&numbers, &txn, &[(1, 2), (2, 3)]);
}

/// As by `update_with`; and a rollback to a savepoint, which `update_with` did not see either.
#[test]
fn a_row_that_the_closure_has_changed_or_restored_is_not_merged() {
    let db = make(1000);
    let numbers = numbers(&db);
    let bytes = db.create_table("bytes", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    numbers.insert(&txn, &1, &20).unwrap();
    txn.insert(&bytes, b"1", b"old").unwrap();
    txn.savepoint("s").unwrap();
    let refused = |change: &dyn Fn(), left: i64| {
        let merged = numbers.merge(&txn, &1, |n| {
            change();
            n.unwrap() + 1
        });
        assert!(matches!(merged, Err(Error::TransactionState(_))));
        check(&numbers, &txn, &[(1, left)]);
    };
    let go_back = || txn.rollback_to_savepoint("s").unwrap();
    refused(&|| numbers.update(&txn, &1, &50).unwrap(), 20);
    refused(&|| assert!(numbers.delete(&txn, &1).unwrap()), 20);
    refused(&|| numbers.merge(&txn, &1, |n| n.unwrap() + 5).unwrap(), 20);
    numbers.update(&txn, &1, &25).unwrap();
    refused(&go_back, 20);
    numbers.update(&txn, &1, &25).unwrap();
    let updated = numbers.update_with(&txn, &1, |n| {
        go_back();
        *n += 5;
    });
    assert!(matches!(updated, Err(Error::TransactionState(_))));
    check(&numbers, &txn, &[(1, 20)]);
    // Other rows are its own affair, as with `update_with`.
    let mut first = true;
    let merged = numbers.merge(&txn, &2, |n| {
        if std::mem::take(&mut first) {
            numbers.insert(&txn, &3, &10).unwrap();
        }
        n.unwrap_or(0) + 10
    });
    merged.unwrap();
    check(&numbers, &txn, &[(1, 20), (2, 10), (3, 10)]);

    let changes: [&dyn Fn(); 3] = [
        &|| assert!(!txn.upsert(&bytes, b"1", b"inner").unwrap()),
        &|| assert!(txn.delete(&bytes, b"1").unwrap()),
        &|| assert_eq!(txn.delete_range(&bytes, ..).unwrap(), 1),
    ];
    for change in changes {
        let merged = txn.merge(&bytes, b"1", |old| {
            change();
            [old.unwrap(), b"+"].concat()
        });
        assert!(matches!(merged, Err(Error::TransactionState(_))));
        let value = txn.get(&bytes, b"1").unwrap();
        assert_eq!(value.as_deref(), Some(&b"old"[..]));
    }
}

/// P5 of 2026-11-22: it succeeded, and so did the commit of the rows that were gone.
#[test]
fn p5_a_table_is_not_dropped_beside_uncommitted_changes() {
    within(60, || {
        let db = make(200);
        let table = db.create_table("t", &["s"]).unwrap();
        let other = db.create_table("other", &[]).unwrap();
        let elsewhere = db.begin(Isolation::ReadCommitted).unwrap();
        elsewhere.insert(&other, &key(1), &val(1)).unwrap();
        for prepares in [false, true] {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            let tree = table.tree("s").unwrap();
            txn.upsert(tree, &key(1), &val(1)).unwrap();
            let txn = if prepares {
                txn.prepare(b"x").unwrap();
                None
            } else {
                Some(txn)
            };
            let begun = Instant::now();
            let refused = db.drop_table("t").unwrap_err();
            assert!(
                matches!(&refused, Error::LockTimeout { place, .. } if place.contains("table t")),
                "{refused}"
            );
            assert!(begun.elapsed() >= Duration::from_millis(200));
            match txn {
                Some(txn) => txn.commit().unwrap(),
                None => db.commit_prepared(b"x").unwrap(),
            }
        }
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        assert!(
            txn.get(table.tree("s").unwrap(), &key(1))
                .unwrap()
                .is_some()
        );
        // A reader is no reason to wait, nor is a writer of another table.
        db.drop_table("t").unwrap();
        assert!(matches!(txn.get(&table, &key(1)), Err(Error::NotFound(_))));
        elsewhere.commit().unwrap();
    });
}

#[test]
fn a_drop_goes_on_when_the_writer_has_ended() {
    within(60, || {
        let db = make(20_000);
        for commits in [true, false] {
            let table = db.create_table("t", &[]).unwrap();
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.insert(&table, &key(1), &val(1)).unwrap();
            thread::scope(|scope| {
                let drops = [(); 2].map(|()| blocked(scope, || db.drop_table("t")));
                let ended = if commits {
                    txn.commit()
                } else {
                    txn.rollback()
                };
                ended.unwrap();
                // One of them finds that there is no such table any more.
                let results = drops.map(|thread| thread.join().unwrap());
                assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
                let other = results.into_iter().find_map(Result::err).unwrap();
                assert!(matches!(other, Error::NotFound(_)), "{other}");
            });
        }
    });
}

/// Handles are fields of a program's own structs, which derive `Debug`.
#[test]
fn handles_say_what_they_are() {
    let db = Database::in_memory(Options::default()).unwrap();
    let table = db.create_table("jobs", &["by_time"]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, b"k", b"a secret").unwrap();
    let cursor = txn.range(&table, ..).unwrap();
    let said = format!("{db:?} {table:?} {txn:?} {cursor:?}");
    for part in ["jobs", "by_time", "RepeatableRead", "Database", "Cursor"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("secret"), "{said}");
}
