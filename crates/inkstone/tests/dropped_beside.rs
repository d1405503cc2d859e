//! Tables that are dropped, replaced and renamed while other threads look them up, read and write
//! them: those are told that the table is not there, and never that something is damaged.

mod common;

use common::{Random, key, within};
use inkstone::{
    Database, Error, ErrorKind, Isolation, LockMode, Options, Result, Table, Transaction, Wait,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROWS: u64 = 600;
const TIME: Duration = Duration::from_secs(4);

/// What a thread may be told of a table that another one drops.
fn is_fair(error: &Error) -> bool {
    matches!(error, Error::NotFound(_))
        || matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Busy)
        || matches!(
            error,
            Error::DuplicateKey { .. } | Error::RowNotFound { .. }
        )
}

/// Adds rows, unless the table's users have been there first.
fn fill(db: &Database, table: &Table) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        if let Err(error) = txn.upsert(table, &key(n), &[n as u8; 200]) {
            assert!(is_fair(&error), "{error:?}");
            if error.kind() == ErrorKind::Conflict {
                // It was rolled back.
                return;
            }
        }
    }
    txn.commit().unwrap();
}

/// Ends the other threads, also if this one panics.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Makes the table, and has it go, in several ways.
fn drop_again_and_again(db: &Database, over: &AtomicBool) {
    let _over = Over(over);
    let begun = Instant::now();
    for round in 0u64.. {
        if begun.elapsed() > TIME {
            break;
        }
        fill(db, &db.create_table("t", &["s"]).unwrap());
        match round % 3 {
            0 => db.drop_table_at_once("t").unwrap(),
            1 => {
                fill(db, &db.create_table("new", &["s"]).unwrap());
                db.replace_table("new", "t").unwrap();
                db.drop_table_at_once("t").unwrap();
            }
            _ => {
                db.rename_table("t", "old").unwrap();
                db.drop_table_at_once("old").unwrap();
            }
        }
    }
}

fn statement(db: &Database, txn: &Transaction, table: &Table, random: &mut Random) -> Result<()> {
    let row = key(random.below(ROWS + 50));
    match random.below(10) {
        0 => txn.get(table, &row).map(drop),
        1 => txn.range(table, ..)?.try_for_each(|row| row.map(drop)),
        2 => {
            let mut rows = txn.range_backward(table, ..)?;
            rows.try_for_each(|row| row.map(drop))
        }
        3 => txn.insert(table, &row, &[1; 300]),
        4 => txn.upsert(table, &row, &[2; 500]).map(drop),
        5 => txn.delete(table, &row).map(drop),
        6 => txn.upsert(table.tree("s")?, &row, &[3; 9000]).map(drop),
        7 => {
            let row = txn.get_locking(table, &row, LockMode::Exclusive, Wait::SkipLocked);
            row.map(drop)
        }
        8 => db.statistics(table).map(drop),
        _ => table.trees()[0].estimates().map(drop),
    }
}

fn use_it(db: &Database, random: &mut Random, statements: &AtomicU64) -> Result<()> {
    let table = db.table("t")?;
    let levels = [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    let txn = db.begin(levels[random.below(3) as usize])?;
    for _ in 0..1 + random.below(12) {
        match statement(db, &txn, &table, random) {
            Ok(()) => drop(statements.fetch_add(1, Ordering::Relaxed)),
            Err(error) if error.kind() == ErrorKind::Conflict => return Err(error),
            Err(error) if is_fair(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // The table may be gone: that is no reason for an end to fail.
    let ended = match random.below(2) {
        0 => txn.commit(),
        _ => txn.rollback(),
    };
    match ended {
        Err(Error::NotFound(what)) => panic!("the end of a transaction says that {what} is gone"),
        ended => ended,
    }
}

#[test]
fn users_of_a_table_that_is_dropped_are_told_so() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            page_size: 4096,
            lock_wait_timeout_ms: 50,
            ..common::options()
        };
        let db = Database::open(dir.path(), options).unwrap();
        let (over, statements) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let (db, over, statements) = (&db, &over, &statements);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    while !over.load(Ordering::SeqCst) {
                        if let Err(error) = use_it(db, &mut random, statements) {
                            assert!(is_fair(&error), "{error:?}");
                        }
                    }
                });
            }
            drop_again_and_again(&db, &over);
        });
        assert!(statements.into_inner() > 100);
        db.verify_catalog().unwrap();
        assert!(db.tables().unwrap().is_empty());
        db.close().unwrap();
    });
}
