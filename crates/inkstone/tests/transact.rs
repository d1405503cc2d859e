//! Transactions that repeat themselves while others are in their way.

mod common;

use common::{key, num, open, val, within};
use inkstone::{Database, Error, Isolation, Options, Table, TransactOptions, Transaction};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn with_table() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = db.create_table("t", &[]).unwrap();
    db.transact(Isolation::RepeatableRead, |txn| {
        (0..3).try_for_each(|k| txn.insert(&table, &key(k), &val(0)))
    })
    .unwrap();
    (dir, db, table)
}

fn read(txn: &Transaction, table: &Table, k: u64) -> inkstone::Result<i64> {
    Ok(num(&txn.get(table, &key(k))?.unwrap()))
}

fn now(db: &Database, table: &Table, k: u64) -> i64 {
    db.transact(Isolation::RepeatableRead, |txn| read(txn, table, k))
        .unwrap()
}

/// Changes the row in a transaction of its own.
fn meanwhile(db: &Database, table: &Table, k: u64, n: i64) {
    let other = db.begin(Isolation::ReadCommitted).unwrap();
    other.update(table, &key(k), &val(n)).unwrap();
    other.commit().unwrap();
}

#[test]
fn no_increment_is_lost_and_none_fails() {
    within(120, || {
        let (_dir, db, table) = with_table();
        for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
            let before = now(&db, &table, 0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..100 {
                            let added = db.transact(isolation, |txn| {
                                let n = read(txn, &table, 0)?;
                                txn.update(&table, &key(0), &val(n + 1))
                            });
                            added.unwrap();
                        }
                    });
                }
            });
            assert_eq!(now(&db, &table, 0), before + 400, "{isolation:?}");
        }
    });
}

#[derive(Debug)]
enum Own {
    Refused,
    SomethingWithTheDatabase,
}

impl From<Error> for Own {
    fn from(_: Error) -> Self {
        Self::SomethingWithTheDatabase
    }
}

#[test]
fn a_conflict_is_repeated_whatever_error_the_program_makes_of_it() {
    let (_dir, db, table) = with_table();
    let mut attempts = 0;
    let mut add = |txn: &Transaction| {
        attempts += 1;
        let n = read(txn, &table, 0)?;
        if attempts < 4 {
            meanwhile(&db, &table, 0, n + 10);
        }
        txn.update(&table, &key(0), &val(n + 1))?;
        Ok::<i64, Own>(n)
    };
    let read_last = db.transact(Isolation::RepeatableRead, &mut add).unwrap();
    assert_eq!((read_last, now(&db, &table, 0)), (30, 31));
    assert_eq!(attempts, 4);

    let boxed: Result<(), Box<dyn std::error::Error>> =
        db.transact(Isolation::RepeatableRead, |txn| {
            txn.update(&table, &key(0), &val(0))?;
            Err("not today".into())
        });
    assert_eq!(boxed.unwrap_err().to_string(), "not today");
    assert_eq!(now(&db, &table, 0), 31);
}

#[test]
fn attempts_are_bounded() {
    let (_dir, db, table) = with_table();
    for (allowed, expected) in [(0, 1), (1, 1), (5, 5)] {
        let mut attempts = 0;
        let options = TransactOptions::new().attempts(allowed);
        let result = db.transact_with(Isolation::RepeatableRead, &options, |txn| {
            attempts += 1;
            let n = read(txn, &table, 0)?;
            meanwhile(&db, &table, 0, n + 1);
            txn.update(&table, &key(0), &val(-1))
        });
        assert!(matches!(result, Err(Error::WriteConflict)));
        assert_eq!(attempts, expected);
    }
}

#[test]
fn what_fails_or_panics_is_rolled_back_and_not_repeated() {
    let (_dir, db, table) = with_table();
    let mut attempts = 0;
    let refused = db.transact(Isolation::RepeatableRead, |txn| {
        attempts += 1;
        txn.update(&table, &key(0), &val(5))?;
        Err::<(), Own>(Own::Refused)
    });
    assert!(matches!(refused, Err(Own::Refused)));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        db.transact(Isolation::RepeatableRead, |txn| -> inkstone::Result<()> {
            attempts += 1;
            txn.update(&table, &key(0), &val(6))?;
            panic!("in the middle of it");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(attempts, 2);
    // Its lock is gone, too.
    let next = db.begin(Isolation::RepeatableRead).unwrap();
    next.set_lock_wait_timeout(Duration::ZERO);
    next.update(&table, &key(0), &val(7)).unwrap();
    next.rollback().unwrap();
    assert_eq!(now(&db, &table, 0), 0);
}

#[test]
fn a_lock_wait_that_timed_out_is_not_repeated() {
    let (_dir, db, table) = with_table();
    let holder = db.begin(Isolation::ReadCommitted).unwrap();
    holder.update(&table, &key(0), &val(1)).unwrap();
    let mut attempts = 0;
    let result = db.transact(Isolation::RepeatableRead, |txn| {
        attempts += 1;
        txn.set_lock_wait_timeout(Duration::from_millis(5));
        txn.update(&table, &key(0), &val(2))
    });
    assert!(matches!(result, Err(Error::LockTimeout { .. })));
    assert_eq!(attempts, 1);
}

/// The victim's closure takes the deadlock for no error: its commit must not pass for done.
#[test]
fn a_deadlock_that_the_closure_ignores_is_repeated() {
    within(60, || {
        let (_dir, db, table) = with_table();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (first, second) in [(0, 1), (1, 0)] {
                let (db, table, both) = (&db, &table, &both);
                scope.spawn(move || {
                    let mut attempts = 0;
                    let added = db.transact(Isolation::ReadCommitted, |txn| {
                        attempts += 1;
                        txn.update(table, &key(first), &val(attempts))?;
                        if attempts == 1 {
                            both.wait();
                        }
                        let _ = txn.update(table, &key(second), &val(attempts));
                        Ok::<(), Error>(())
                    });
                    added.unwrap();
                });
            }
        });
        // The one that was repeated came last.
        assert_eq!((now(&db, &table, 0), now(&db, &table, 1)), (2, 2));
    });
}

#[test]
fn a_snapshot_older_than_a_table_is_taken_anew() {
    let (_dir, db, table) = with_table();
    let mut made = None;
    let rows = db.transact(Isolation::RepeatableRead, |txn| {
        read(txn, &table, 0)?;
        let made = made.get_or_insert_with(|| db.create_table("new", &[]).unwrap());
        let point = txn.get(made, &key(0))?;
        assert_eq!(point, None);
        Ok::<usize, Own>(txn.range(made, ..)?.count())
    });
    assert_eq!(rows.unwrap(), 0);
}

#[test]
fn a_database_that_is_closed_begins_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    db.clone().close().unwrap();
    let never = db.transact(Isolation::RepeatableRead, |_| -> inkstone::Result<()> {
        panic!("it began");
    });
    assert!(matches!(never, Err(Error::Closed)));
}

#[test]
fn what_may_be_repeated() {
    assert!(Error::Deadlock.is_retryable());
    assert!(Error::WriteConflict.is_retryable());
    let path = "t1.ink".into();
    assert!(Error::TableChanged { path }.is_retryable());
    let (waited_ms, place) = (5, "for key 1".to_owned());
    for other in [
        Error::LockTimeout { waited_ms, place },
        Error::LockNotAvailable,
        Error::TooManyTransactions,
        Error::Closed,
        Error::TransactionState("over; begin a new one"),
    ] {
        assert!(!other.is_retryable(), "{other}");
    }
}
