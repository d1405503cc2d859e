//! Dropping, renaming and replacing: trees of a table, and tables.

mod common;

use common::{all, commit, key, open, val, within};
use inkstone::Isolation::ReadCommitted;
use inkstone::{Database, Error, LockMode, Options, Table, Wait};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROWS: u64 = 3000;

fn small() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 8 << 20,
        log_buffer_size: 2 << 20,
        ..Options::default()
    }
}

/// Three levels, with long values and deleted rows among them.
fn fill(db: &Database, table: &Table, tree: &str, rows: u64) {
    let tree = table.tree(tree).unwrap();
    commit(db, |txn| {
        for n in 0..rows {
            let value = vec![n as u8; if n % 500 == 7 { 30_000 } else { 60 }];
            let long_key = [&key(n * 7919 % 10_007)[..], &[3; 60]].concat();
            txn.upsert(tree, &long_key, &value).unwrap();
        }
    });
    commit(db, |txn| {
        for n in (0..rows).step_by(5) {
            let long_key = [&key(n * 7919 % 10_007)[..], &[3; 60]].concat();
            txn.delete(tree, &long_key).unwrap();
        }
    });
}

/// Runs purge until a table has no more pages allocated than an untouched one.
fn until_free(db: &Database, table: &Table) {
    let begun = Instant::now();
    loop {
        db.purge().unwrap();
        let report = db.verify_table(table).unwrap();
        // Header and map, and the roots: "primary" and the tree of long values to be freed.
        if report.allocated_pages <= 5 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{report:?}");
    }
}

#[test]
fn the_pages_of_a_dropped_tree_are_free_and_its_number_is() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), small()).unwrap();
        let table = db.create_table("t", &["a", "b"]).unwrap();
        commit(&db, |txn| txn.insert(&table, &key(1), &val(1)).unwrap());
        fill(&db, &table, "a", ROWS);
        fill(&db, &table, "b", 200);
        let numbers =
            |table: &Table| -> Vec<u32> { table.trees().iter().map(|t| t.number()).collect() };
        for name in ["a", "b"] {
            let handle = table.tree(name).unwrap();
            let reader = db.begin(ReadCommitted).unwrap();
            let mut cursor = reader.range(handle, ..).unwrap();
            cursor.next_row().unwrap().unwrap();
            let left = db.drop_tree("t", name).unwrap();
            assert!(left.tree(name).is_err());
            let txn = db.begin(ReadCommitted).unwrap();
            for error in [
                txn.get(handle, b"x").map(drop),
                txn.insert(handle, b"x", b""),
                cursor.by_ref().try_for_each(|row| row.map(drop)),
            ] {
                assert!(matches!(error, Err(Error::NotFound(_))), "{error:?}");
            }
            // Pages are not freed while they are read: they wait for the transactions that were
            // there.
            db.purge().unwrap();
            assert!(db.verify_table(&left).unwrap().allocated_pages > 10);
        }
        assert!(matches!(db.drop_tree("t", "a"), Err(Error::NotFound(_))));
        assert!(matches!(
            db.drop_tree("t", "primary"),
            Err(Error::Unsupported(_))
        ));
        let left = db.table("t").unwrap();
        until_free(&db, &left);
        assert_eq!(numbers(&left), [0]);
        // The number is given out again, and old handles do not wake up.
        let again = db.create_tree("t", "a").unwrap();
        assert_eq!(numbers(&again), [0, 1]);
        let txn = db.begin(ReadCommitted).unwrap();
        assert!(txn.get(table.tree("a").unwrap(), b"x").is_err());
        assert_eq!(txn.get(again.tree("a").unwrap(), b"x").unwrap(), None);
        assert_eq!(all(&txn, &table), [(1, 1)]);
    });
}

fn counter(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter().find(|(n, _)| *n == name).unwrap().1
}

/// A tree larger than the pool, with long values, is read once while it goes.
#[test]
fn each_page_of_a_dropped_tree_is_read_once() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let few_frames = Options {
            buffer_pool_size: 96 * 4096,
            buffer_pool_instances: 1,
            ..small()
        };
        let db = Database::open(dir.path(), few_frames).unwrap();
        let table = db.create_table("t", &["a"]).unwrap();
        fill(&db, &table, "a", 6000);
        db.checkpoint().unwrap();
        let pages = db.verify_table(&table).unwrap().allocated_pages;
        let before = counter(&db, "pages_read");
        let left = db.drop_tree("t", "a").unwrap();
        until_free(&db, &left);
        let read = counter(&db, "pages_read") - before;
        assert!(read < pages * 3 / 2, "{read} pages read of {pages}");
    });
}

/// What has to wait costs nothing meanwhile, however large it is.
#[test]
fn a_dropped_tree_that_has_to_wait_is_left_alone() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), small()).unwrap();
        let table = db.create_table("t", &["a"]).unwrap();
        fill(&db, &table, "a", ROWS);
        let left = db.drop_tree("t", "a").unwrap();
        let export = db.export_table(&left).unwrap();
        let pages = db.verify_table(&left).unwrap().allocated_pages;
        let before = counter(&db, "buffer_read_requests");
        (0..10).for_each(|_| db.purge().unwrap());
        let requests = counter(&db, "buffer_read_requests") - before;
        assert!(requests < pages, "{requests} requests, {pages} pages");
        drop(export);
        until_free(&db, &left);
    });
}

#[test]
fn a_transaction_can_undo_its_changes_in_a_dropped_tree() {
    within(60, || {
        for prepared in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = Database::open(dir.path(), small()).unwrap();
            let table = db.create_table("t", &["a"]).unwrap();
            fill(&db, &table, "a", 300);
            let txn = db.begin(ReadCommitted).unwrap();
            txn.insert(table.tree("a").unwrap(), b"zz", &[9; 20_000])
                .unwrap();
            txn.insert(&table, &key(1), &val(1)).unwrap();
            if prepared {
                txn.prepare(b"x").unwrap();
                db.drop_tree("t", "a").unwrap();
                db.purge().unwrap();
                drop((table, db));
                let db = Database::open(dir.path(), small()).unwrap();
                let table = db.table("t").unwrap();
                db.purge().unwrap();
                db.verify_table(&table).unwrap();
                db.rollback_prepared(b"x").unwrap();
                until_free(&db, &table);
                continue;
            }
            let left = db.drop_tree("t", "a").unwrap();
            db.purge().unwrap();
            txn.rollback().unwrap();
            until_free(&db, &left);
        }
    });
}

#[test]
fn names_of_trees_and_tables_change() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &["a", "b"]).unwrap();
        commit(&db, |txn| {
            txn.insert(table.tree("a").unwrap(), b"k", b"v").unwrap();
        });
        let renamed = db.rename_tree("t", "a", "c").unwrap();
        assert!(matches!(
            db.rename_tree("t", "b", "c"),
            Err(Error::AlreadyExists(_))
        ));
        assert!(matches!(
            db.rename_tree("t", "a", "d"),
            Err(Error::NotFound(_))
        ));
        assert!(matches!(
            db.rename_tree("t", "primary", "d"),
            Err(Error::Unsupported(_))
        ));
        let txn = db.begin(ReadCommitted).unwrap();
        let found = txn.get(renamed.tree("c").unwrap(), b"k").unwrap();
        assert_eq!(found.as_deref(), Some(&b"v"[..]));
        assert!(txn.get(table.tree("a").unwrap(), b"k").unwrap().is_some());
        txn.commit().unwrap();

        let new = db.create_table("new", &["a"]).unwrap();
        commit(&db, |txn| txn.insert(&new, b"n", b"").unwrap());
        assert!(db.replace_table("t", "t").is_err());
        assert!(matches!(
            db.replace_table("no", "t"),
            Err(Error::NotFound(_))
        ));
        db.replace_table("new", "t").unwrap();
        assert_eq!(db.tables().unwrap(), ["t"]);
        let txn = db.begin(ReadCommitted).unwrap();
        assert!(matches!(txn.get(&table, b"n"), Err(Error::NotFound(_))));
        assert!(txn.get(&new, b"n").unwrap().is_some());
        assert!(txn.get(&db.table("t").unwrap(), b"n").unwrap().is_some());
    });
}

fn open_on(disk: &SimVfs) -> Database {
    let vfs = Arc::new(disk.clone());
    Database::open_on(vfs, Path::new("db"), small(), &|_| {}).unwrap()
}

/// Power fails at every so many changes of the disk while a tree is dropped, and while its pages
/// are freed.
#[test]
fn a_crash_at_any_time_leaves_a_tree_or_none() {
    within(300, || {
        let (mut whole, mut gone) = (0, 0);
        for seed in 0..60 {
            let disk = SimVfs::new(seed);
            let db = open_on(&disk);
            let table = db.create_table("t", &["a"]).unwrap();
            commit(&db, |txn| txn.insert(&table, &key(1), &val(1)).unwrap());
            fill(&db, &table, "a", 800);
            db.flush_log().unwrap();
            disk.crash_at(1 + seed * 2 / 3);
            let dropped = db.drop_tree("t", "a").is_ok();
            for _ in 0..3 {
                let _ = db.purge();
                let _ = db.flush_log();
                let _ = db.checkpoint();
            }
            let after = disk.crash(seed);
            drop((table, db));
            let db = open_on(&after);
            let table = db.table("t").unwrap();
            let says = |what: &str, e: Error| panic!("seed {seed}: {what}: {e}");
            db.verify_table(&table)
                .unwrap_or_else(|e| says("at once", e));
            let txn = db.begin(ReadCommitted).unwrap();
            assert_eq!(all(&txn, &table), [(1, 1)]);
            txn.commit().unwrap();
            match table.tree("a") {
                Ok(_) => {
                    assert!(!dropped, "seed {seed}: a drop that was acknowledged");
                    whole += 1;
                }
                Err(_) => {
                    until_free(&db, &table);
                    gone += 1;
                }
            }
        }
        assert!(whole > 0 && gone > 10, "{whole} {gone}");
    });
}

/// The same while a table takes the place of another.
#[test]
fn a_crash_leaves_the_old_table_or_the_new_one() {
    within(300, || {
        let (mut old, mut new) = (0, 0);
        for seed in 0..60 {
            let disk = SimVfs::new(seed);
            let db = open_on(&disk);
            let table = db.create_table("t", &[]).unwrap();
            commit(&db, |txn| txn.insert(&table, &key(1), &val(1)).unwrap());
            let other = db.create_table("new", &[]).unwrap();
            commit(&db, |txn| txn.insert(&other, &key(2), &val(2)).unwrap());
            db.flush_log().unwrap();
            disk.crash_at(1 + seed / 6);
            let done = db.replace_table("new", "t").is_ok();
            let after = disk.crash(seed);
            drop((table, other, db));
            let db = open_on(&after);
            let table = db.table("t").unwrap();
            db.verify_table(&table).unwrap();
            let txn = db.begin(ReadCommitted).unwrap();
            match db.table("new") {
                Ok(other) => {
                    assert!(!done);
                    assert_eq!(
                        (all(&txn, &table), all(&txn, &other)),
                        (vec![(1, 1)], vec![(2, 2)])
                    );
                    old += 1;
                }
                Err(_) => {
                    assert_eq!(all(&txn, &table), [(2, 2)]);
                    let files = after.files();
                    let spaces = files
                        .iter()
                        .filter(|f| f.extension().is_some_and(|e| e == "ink"));
                    assert!(spaces.count() <= 2, "seed {seed}: {files:?}");
                    new += 1;
                }
            }
        }
        assert!(old > 0 && new > 10, "{old} {new}");
    });
}

/// And while several take the places of others: all or none.
#[test]
fn a_crash_replaces_all_tables_or_none() {
    within(300, || {
        let (mut old, mut new) = (0, 0);
        for seed in 0..60 {
            let disk = SimVfs::new(seed);
            let db = open_on(&disk);
            for n in 0..3 {
                let table = db.create_table(&format!("t{n}"), &[]).unwrap();
                commit(&db, |txn| txn.insert(&table, &key(1), &val(1)).unwrap());
                db.create_table(&format!("new{n}"), &[]).unwrap();
            }
            assert!(matches!(
                db.replace_tables(&[("new0", "t0"), ("no", "t1")]),
                Err(Error::NotFound(_))
            ));
            assert!(matches!(
                db.replace_tables(&[("new0", "t0"), ("new1", "t0")]),
                Err(Error::AlreadyExists(_))
            ));
            assert_eq!(db.tables().unwrap().len(), 6);
            disk.crash_at(1 + seed / 6);
            let pairs = [("new0", "t0"), ("new1", "t1"), ("new2", "t2")];
            let done = db.replace_tables(&pairs).is_ok();
            let after = disk.crash(seed);
            drop(db);
            let db = open_on(&after);
            let txn = db.begin(ReadCommitted).unwrap();
            let rows: Vec<usize> = pairs
                .iter()
                .map(|(_, to)| all(&txn, &db.table(to).unwrap()).len())
                .collect();
            txn.commit().unwrap();
            match db.tables().unwrap().len() {
                6 => {
                    assert!(!done, "seed {seed}");
                    assert_eq!(rows, [1, 1, 1], "seed {seed}");
                    old += 1;
                }
                left => {
                    assert_eq!((left, rows), (3, vec![0, 0, 0]), "seed {seed}");
                    new += 1;
                }
            }
        }
        assert!(old > 0 && new > 0, "{old} {new}");
    });
}

/// Trees go, page by page, while others ask for estimates: those see a tree or none, never what its
/// freed pages hold.
#[test]
fn estimates_do_not_see_the_pages_of_a_dropped_tree() {
    const ROUNDS: u64 = 150;
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path().join("db"), small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| txn.insert(&table, b"k", b"v").unwrap());
        let done = AtomicBool::new(false);
        let current = Mutex::new(db.table("t").unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    db.purge().unwrap();
                }
            });
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let table = current.lock().unwrap().clone();
                    db.statistics(&table).unwrap();
                    for tree in table.trees() {
                        match tree.estimates() {
                            Ok(_) | Err(Error::NotFound(_)) => {}
                            Err(error) => panic!("{}: {error}", tree.name()),
                        }
                    }
                }
            });
            for round in 0..ROUNDS {
                let table = db.create_tree("t", "extra").unwrap();
                let extra = table.tree("extra").unwrap();
                commit(&db, |txn| {
                    for n in 0..round % 7 * 20 {
                        txn.insert(extra, &key(n), &[7; 60]).unwrap();
                    }
                });
                *current.lock().unwrap() = table;
                db.drop_tree("t", "extra").unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        until_free(&db, &table);
    });
}

/// A loop over a cursor that looks at none of its rows ends, too.
#[test]
fn cursors_end_behind_an_error() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| txn.insert(&table, b"a", b"1").unwrap());
        let txn = db.begin(ReadCommitted).unwrap();
        let plain = txn.range(&table, ..).unwrap();
        let locking = txn
            .range_locking(&table, .., LockMode::Shared, Wait::Timeout)
            .unwrap();
        db.drop_table("t").unwrap();
        assert_eq!(plain.count(), 1);
        assert_eq!(locking.count(), 1);
    });
}
