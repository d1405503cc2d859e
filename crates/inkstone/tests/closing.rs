//! The end of a database: its last handle closes it, and what outlives it does no harm.

mod common;
mod failure_support;

use common::{commit, key, open, rows, val, within};
use failure_support::{open_sim, sim_dir, small};
use inkstone::Isolation::{ReadCommitted, RepeatableRead};
use inkstone::{Database, Durability, Error, LockMode, Options, Shutdown, Wait};
use inkstone_io::sim::SimVfs;
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
            assert!(matches!(committed.commit(), Err(Error::Closed)));
            assert!(matches!(
                kept.update(&table, &key(1), &val(7)),
                Err(Error::Closed)
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

/// The shortest time of ten attempts: what the code takes, and not what else the machine does.
fn shortest_of_ten(attempt: impl FnMut() -> Duration) -> Duration {
    let times = std::iter::repeat_with(attempt).take(10);
    times.min().expect("ten times")
}

/// A pool of the usual size has several threads that wait for the same call; the end is for all of
/// them. They sleep for up to a second, and an end that only one of them hears takes 0.9 s. The
/// disk is simulated, so that its syncs take no time.
#[test]
fn closing_waits_for_no_sleeper() {
    let bound = Duration::from_millis(500);
    let vfs = SimVfs::new(1);
    let open = || open_sim(&vfs, Options::default());
    let closed = shortest_of_ten(|| {
        let db = open().unwrap();
        // Every thread has found nothing to do, and sleeps.
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        db.close().unwrap();
        begin.elapsed()
    });
    assert!(closed < bound, "closing took {closed:?}");
    // What the log needs is gone: the opening fails when threads run already.
    for path in vfs.files() {
        if path.starts_with(sim_dir().join("log")) {
            vfs.remove_raw(&path).unwrap();
        }
    }
    let failed = shortest_of_ten(|| {
        let begin = Instant::now();
        assert!(open().is_err());
        begin.elapsed()
    });
    assert!(failed < bound, "a failed opening took {failed:?}");
}

/// What was committed is there after each kind of close, also when the power is lost behind it and
/// no commit had waited for anything.
#[test]
fn a_close_makes_all_that_was_committed_durable() {
    for lazy in [Durability::Lazy, Durability::Write] {
        for (how, clean) in [
            (Shutdown::Slow, true),
            (Shutdown::Fast, true),
            (Shutdown::LogOnly, false),
        ] {
            for by_drop in [false, true] {
                let vfs = SimVfs::new(1);
                let options = Options {
                    flush_log_at_trx_commit: lazy,
                    fast_shutdown: if by_drop { how } else { Shutdown::Fast },
                    ..small()
                };
                let db = open_sim(&vfs, options).unwrap();
                let table = db.create_table("t", &[]).unwrap();
                for n in 0..500 {
                    commit(&db, |txn| txn.insert(&table, &key(n), &val(7)).unwrap());
                }
                let open = db.begin(ReadCommitted).unwrap();
                open.insert(&table, &key(999), &val(0)).unwrap();
                if by_drop {
                    drop((table, db));
                } else {
                    db.close_as(how).unwrap();
                }
                drop(open);
                let vfs = vfs.crash(7);
                let db = open_sim(&vfs, small()).unwrap();
                assert_eq!(db.open_report().clean, clean, "{how}");
                let table = db.table("t").unwrap();
                assert_eq!(rows(&db, &table).len(), 500, "{how}, {lazy}, {by_drop}");
                db.verify_table(&table).unwrap();
            }
        }
    }
}

/// It takes as long as the log takes, however many pages were changed.
#[test]
fn a_close_with_the_log_alone_writes_no_page() {
    let written = |how| {
        let vfs = SimVfs::new(1);
        let options = Options {
            buffer_pool_size: 16 << 20,
            log_file_size: 64 << 20,
            ..small()
        };
        let db = open_sim(&vfs, options).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            for n in 0..5000 {
                txn.insert(&table, &key(n), &val(7)).unwrap();
            }
        });
        let counters = db.counters().clone();
        let pages = || -> u64 {
            let all = counters.snapshot();
            let found = all.into_iter().find(|(name, _)| *name == "pages_written");
            found.expect("a counter of that name").1
        };
        let before = pages();
        db.close_as(how).unwrap();
        pages() - before
    };
    // A cleaner may write some just then by itself, on a busy machine; a close that writes pages
    // would each time.
    assert!((0..10).any(|_| written(Shutdown::LogOnly) == 0));
    assert!(written(Shutdown::Fast) > 10);
}

/// Rows that are marked as deleted are gone when it has ended, but for those that a snapshot may
/// see.
#[test]
fn a_slow_close_purges_everything() {
    let purged = |reads: bool| {
        let vfs = SimVfs::new(1);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            for n in 0..1000 {
                txn.insert(&table, &key(n), &val(7)).unwrap();
            }
        });
        let reader = reads.then(|| db.begin_with_snapshot().unwrap());
        commit(&db, |txn| {
            for n in 0..1000 {
                txn.delete(&table, &key(n)).unwrap();
            }
        });
        let counters = db.counters().clone();
        db.close_as(Shutdown::Slow).unwrap();
        drop(reader);
        let all = counters.snapshot();
        let found = all.into_iter().find(|(name, _)| *name == "rows_purged");
        found.expect("a counter of that name").1
    };
    assert_eq!(purged(false), 1000);
    assert_eq!(purged(true), 0);
}

/// Calls of handles that outlive their database, one a line: each is told so.
macro_rules! all_closed {
    ($($call:expr;)+) => {
        $(
            match $call {
                Err(Error::Closed) => {}
                Err(other) => panic!("{}: {other:?}", stringify!($call)),
                Ok(_) => panic!("{}: went on", stringify!($call)),
            }
        )+
    };
}

#[test]
fn every_handle_that_outlives_its_database_is_told_so() {
    within(60, || {
        let db = Database::in_memory(small()).unwrap();
        let table = db.create_table("t", &["s"]).unwrap();
        commit(&db, |txn| {
            (0..2000).for_each(|n| txn.insert(&table, &key(n), &[7; 100]).unwrap());
        });
        let txn = db.begin(ReadCommitted).unwrap();
        let kept = db.begin(RepeatableRead).unwrap();
        txn.savepoint("s").unwrap();
        let mut cursor = kept.range(&table, ..).unwrap();
        cursor.next_row().unwrap();
        let mut locking = txn
            .range_locking(&table, .., LockMode::Shared, Wait::Timeout)
            .unwrap();
        locking.next_row().unwrap();
        let clone = db.clone();
        db.close().unwrap();

        let (k, tree) = (&key(1)[..], table.tree("s").unwrap());
        all_closed! {
            clone.begin(ReadCommitted);
            clone.begin_with_snapshot();
            clone.create_table("u", &[]);
            clone.drop_table("t");
            clone.rename_table("t", "u");
            clone.create_tree("t", "u");
            clone.drop_tree("t", "s");
            clone.table("u");
            clone.verify_table(&table);
            clone.shrink_table(&table);
            clone.flush_log();
            clone.purge();
            clone.commit_prepared(b"x");
            clone.rollback_prepared(b"x");
            txn.get(&table, k);
            txn.get(tree, k);
            txn.get_locking(&table, k, LockMode::Shared, Wait::Timeout);
            txn.insert(&table, k, b"v");
            txn.upsert(&table, k, b"v");
            txn.update(&table, k, b"v");
            txn.delete(&table, k);
            txn.range(&table, ..);
            txn.range_locking(&table, .., LockMode::Shared, Wait::Timeout);
            txn.savepoint("t");
            txn.rollback_to_savepoint("s");
            txn.take_snapshot();
            locking.next_row();
            kept.rollback();
        }
        // A cursor hands out what it has copied, and then hears of it.
        let rest = loop {
            match cursor.next_row() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("a closed database was read to its end"),
                Err(error) => break error,
            }
        };
        assert!(matches!(rest, Error::Closed), "{rest:?}");
        drop(locking);
        assert!(matches!(txn.commit(), Err(Error::Closed)));
    });
}
