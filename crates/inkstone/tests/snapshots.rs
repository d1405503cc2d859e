//! What keeps old versions: the snapshots in force, and whose they are.

mod common;

use common::{key, val, within};
use inkstone::{Database, Isolation, Options, SnapshotView};
use std::thread;
use std::time::Duration;

fn make() -> Database {
    Database::in_memory(Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    })
    .unwrap()
}

fn metric(db: &Database, name: &str) -> u64 {
    let metrics = db.metrics();
    let found = metrics.iter().find(|metric| metric.name == name);
    found.expect("a metric of that name").value
}

fn named<T: Send>(name: &str, body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn_scoped(scope, body).unwrap();
        thread.join().unwrap()
    })
}

/// A cursor that was not dropped kept every old version, and nothing showed it.
#[test]
fn a_forgotten_cursor_is_found() {
    within(60, || {
        let db = make();
        let table = db.create_table("t", &[]).unwrap();
        let write = |n: u64| {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.upsert(&table, &key(n), &val(1)).unwrap();
            txn.commit().unwrap();
        };
        write(0);
        for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
            let forgotten = named("reporter", || {
                let txn = db.begin(isolation).unwrap();
                let cursor = txn.range(&table, ..).unwrap();
                txn.commit().unwrap();
                cursor
            });
            (1..5).for_each(write);
            thread::sleep(Duration::from_millis(20));
            assert!(db.transactions().is_empty());
            let snapshots = db.snapshots();
            let [found] = &snapshots[..] else {
                panic!("{snapshots:?}");
            };
            assert!(found.is_left_over && found.count == 1 && found.tag == 0);
            assert_eq!(found.thread.as_deref(), Some("reporter"));
            assert!(found.age >= Duration::from_millis(20) && found.commits_since >= 4);
            assert_eq!(metric(&db, "snapshots"), 1);
            assert_eq!(metric(&db, "snapshots_left_over"), 1);
            assert!(metric(&db, "oldest_snapshot_age_ms") >= 20);
            assert!(metric(&db, "oldest_snapshot_commits") >= 4);
            assert!(
                db.prometheus()
                    .contains("\ninkstone_snapshots_left_over 1\n")
            );
            drop(forgotten);
            assert!(db.snapshots().is_empty());
            assert_eq!(metric(&db, "oldest_snapshot_age_ms"), 0);
        }
    });
}

#[test]
fn each_transaction_shows_its_thread_and_snapshots() {
    within(60, || {
        let db = make();
        let table = db.create_table("t", &[]).unwrap();
        let [old, new] = [1, 2].map(|tag| {
            let txn = named("worker", || db.begin(Isolation::RepeatableRead).unwrap());
            txn.set_tag(tag);
            txn
        });
        let shown = |tag: u64| {
            let all = db.transactions();
            let found = all.into_iter().find(|txn| txn.tag == tag);
            let found = found.expect("a transaction of that tag");
            assert_eq!(found.thread.as_deref(), Some("worker"));
            found.snapshots
        };
        // None has been needed yet.
        assert_eq!((shown(1), shown(2)), (0, 0));
        old.take_snapshot().unwrap();
        let writer = db.begin(Isolation::ReadCommitted).unwrap();
        writer.insert(&table, b"a", b"1").unwrap();
        writer.commit().unwrap();
        let cursors = [(); 2].map(|()| new.range(&table, ..).unwrap());
        assert_eq!((shown(1), shown(2)), (1, 3));
        let tags = |snapshots: &[SnapshotView]| -> Vec<u64> {
            snapshots.iter().map(|snapshot| snapshot.tag).collect()
        };
        let snapshots = db.snapshots();
        assert_eq!(tags(&snapshots), [1, 2]);
        assert!(snapshots[0].commits_since > snapshots[1].commits_since);
        assert!(snapshots.iter().all(|snapshot| !snapshot.is_left_over));
        old.rollback().unwrap();
        drop(cursors);
        assert_eq!(tags(&db.snapshots()), [2]);
        assert_eq!(shown(2), 1);
    });
}

/// Beside transactions that come and go no snapshot seems left over.
#[test]
fn a_transaction_that_ends_meanwhile_leaves_nothing() {
    within(60, || {
        let db = make();
        let table = db.create_table("t", &[]).unwrap();
        thread::scope(|scope| {
            let (db, table) = (&db, &table);
            let threads: Vec<_> = (0..3u64)
                .map(|t| {
                    scope.spawn(move || {
                        for n in 0..1500 {
                            let txn = db.begin(Isolation::RepeatableRead).unwrap();
                            txn.get(table, &key(n)).unwrap();
                            if n % 16 == t {
                                txn.upsert(table, &key(t), &val(1)).unwrap();
                            }
                            txn.commit().unwrap();
                        }
                    })
                })
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                let snapshots = db.snapshots();
                let left_over = snapshots.iter().find(|snapshot| snapshot.is_left_over);
                assert!(left_over.is_none(), "{left_over:?}");
            }
        });
        assert!(db.snapshots().is_empty());
    });
}
