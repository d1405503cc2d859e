//! The end of a database: its last handle closes it, and what outlives it does no harm.

mod common;

use common::{commit, key, open, rows, val, within};
use inkstone::Isolation::ReadCommitted;
use inkstone::{Database, Error, Options};
use std::time::{Duration, Instant};

/// However a background thread stands, the directory is free when the last handle has gone.
#[test]
fn dropping_the_last_handle_closes() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..20 {
            let db = open(&dir);
            let table = match db.table("t") {
                Ok(table) => table,
                Err(_) => db.create_table("t", &[]).unwrap(),
            };
            commit(&db, |txn| txn.insert(&table, &key(n), &val(1)).unwrap());
            let clone = db.clone();
            drop(db);
            assert_eq!(rows(&clone, &table).len() as u64, n + 1);
            // About when the checkpoint and purge threads wake.
            std::thread::sleep(Duration::from_millis(95 + n % 8));
        }
    });
}

#[test]
fn a_transaction_that_outlives_its_database_is_over() {
    within(60, || {
        for closes in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let db = open(&dir);
            let table = db.create_table("t", &[]).unwrap();
            commit(&db, |txn| txn.insert(&table, &key(1), &val(1)).unwrap());
            let [kept, dropped, committed] = [2, 3, 4].map(|n| {
                let txn = db.begin(ReadCommitted).unwrap();
                txn.insert(&table, &key(n), &val(0)).unwrap();
                txn
            });
            if closes {
                db.close().unwrap();
            } else {
                drop(db);
            }
            let db = open(&dir);
            let again = db.table("t").unwrap();
            assert_eq!(rows(&db, &again), [(1, 1)]);
            commit(&db, |txn| txn.insert(&again, &key(3), &val(3)).unwrap());
            drop(dropped);
            assert!(matches!(committed.commit(), Err(Error::Poisoned(_))));
            assert!(matches!(
                kept.update(&table, &key(1), &val(7)),
                Err(Error::Poisoned(_))
            ));
            drop((kept, table));
            commit(&db, |txn| txn.insert(&again, &key(4), &val(4)).unwrap());
            db.verify_table(&again).unwrap();
            drop((again, db));
            let db = open(&dir);
            let again = db.table("t").unwrap();
            assert_eq!(rows(&db, &again), [(1, 1), (3, 3), (4, 4)]);
        }
    });
}

/// The shortest time of some attempts: what the code takes, and not what else the machine does.
fn shortest_of(attempts: usize, attempt: impl FnMut() -> Duration) -> Duration {
    std::iter::repeat_with(attempt)
        .take(attempts)
        .min()
        .unwrap()
}

/// A pool of the usual size has several threads that wait for the same call; the end is for all of them.
#[test]
fn closing_waits_for_no_sleeper() {
    let bound = Duration::from_millis(300);
    let closed = shortest_of(3, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        // Every thread has found nothing to do, and sleeps.
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        db.close().unwrap();
        begin.elapsed()
    });
    assert!(closed < bound, "closing took {closed:?}");
    let dir = tempfile::tempdir().unwrap();
    Database::open(dir.path(), Options::default())
        .unwrap()
        .close()
        .unwrap();
    // What the log needs is gone: the opening fails when threads run already.
    for segment in std::fs::read_dir(dir.path().join("log")).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
    let failed = shortest_of(3, || {
        let begin = Instant::now();
        let opened = Database::open(dir.path(), Options::default());
        assert!(opened.is_err());
        begin.elapsed()
    });
    assert!(failed < bound, "a failed opening took {failed:?}");
}
