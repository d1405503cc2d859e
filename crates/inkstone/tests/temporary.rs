//! Databases that end with their process: in a directory that is removed, in memory, and in a file
//! without a name.

mod common;

use common::{key, val, within};
use inkstone::{Database, Durability, Error, Isolation, Options, Table};
use std::thread::scope;

fn small() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 16 << 20,
        version_store_memory: 1 << 20,
        ..Options::default()
    }
}

type Make = fn(Options) -> inkstone::Result<Database>;
const MAKES: [Make; 3] = [Database::temporary, Database::in_memory, scratch];

fn scratch(options: Options) -> inkstone::Result<Database> {
    Database::scratch(std::env::temp_dir(), options)
}

fn count(db: &Database, table: &Table) -> usize {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.range(table, ..).unwrap().map(Result::unwrap).count()
}

#[test]
fn several_threads_use_one() {
    within(120, || {
        for make in MAKES {
            let db = make(small()).unwrap();
            let table = db.create_table("t", &["by_value"]).unwrap();
            scope(|scope| {
                for t in 0..4u64 {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        for n in 0..50 {
                            let txn = db.begin(Isolation::RepeatableRead).unwrap();
                            let k = key(n << 8 | t);
                            txn.insert(table, &k, &val(n as i64)).unwrap();
                            txn.insert(table.tree("by_value").unwrap(), &k, b"")
                                .unwrap();
                            txn.commit_with(Durability::Sync).unwrap();
                        }
                    });
                }
            });
            assert_eq!(count(&db, &table), 200);
            assert!(db.verify_table(&table).is_ok());
            drop(table);
            db.close().unwrap();
        }
    });
}

/// More rows than the pool has pages for, more versions than memory, and a log that goes round.
#[test]
fn one_may_outgrow_its_pool() {
    within(120, || {
        for make in MAKES {
            let db = make(small()).unwrap();
            let table = db.create_table("t", &[]).unwrap();
            let reader = db.begin(Isolation::RepeatableRead).unwrap();
            reader.take_snapshot().unwrap();
            for round in 0..3u8 {
                for part in 0..10u64 {
                    let txn = db.begin(Isolation::ReadCommitted).unwrap();
                    for n in 0..500 {
                        txn.upsert(&table, &key(part * 500 + n), &[round; 1200])
                            .unwrap();
                    }
                    txn.commit_with(Durability::Write).unwrap();
                }
            }
            assert_eq!(reader.range(&table, ..).unwrap().count(), 0);
            drop(reader);
            assert_eq!(count(&db, &table), 5000);
            let written = |name| db.status().iter().find(|(n, _)| *n == name).unwrap().1;
            assert!(written("pages_written") > 0 && written("version_segments_spilled") > 0);
        }
    });
}

#[test]
fn a_temporary_directory_is_gone_with_the_last_handle() {
    within(60, || {
        let db = Database::temporary(small()).unwrap();
        let path = db.directory().to_owned();
        assert!(path.join("control").exists());
        let table = db.create_table("t", &[]).unwrap();
        let clone = db.clone();
        db.close().unwrap();
        assert!(path.exists(), "a handle is left");
        drop(clone);
        assert!(!path.exists());
        // What outlives it does no harm.
        assert_eq!(table.name(), "t");

        // Nor does an open transaction, or an opening that fails.
        let db = Database::temporary(small()).unwrap();
        let path = db.directory().to_owned();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, b"a", b"1").unwrap();
        drop(db);
        assert!(!path.exists());
        assert!(matches!(txn.commit(), Err(Error::Closed)));
        let impossible = Options {
            page_size: 5000,
            ..small()
        };
        for make in MAKES {
            let refused = make(impossible.clone());
            assert!(matches!(refused, Err(Error::InvalidOption { .. })));
        }
    });
}

#[test]
fn many_at_once_share_nothing() {
    within(120, || {
        for make in MAKES {
            let all: Vec<_> = (0..24u64)
                .map(|n| {
                    let db = make(small()).unwrap();
                    let table = db.create_table("t", &[]).unwrap();
                    let txn = db.begin(Isolation::RepeatableRead).unwrap();
                    (0..=n).for_each(|k| txn.insert(&table, &key(k), b"v").unwrap());
                    txn.commit().unwrap();
                    (db, table)
                })
                .collect();
            for (n, (db, table)) in all.iter().enumerate() {
                assert_eq!(count(db, table), n + 1);
            }
            let (other, _) = &all[0];
            let txn = other.begin(Isolation::RepeatableRead).unwrap();
            let wrong = txn.insert(&all[1].1, b"k", b"v");
            assert!(matches!(wrong, Err(Error::OtherDatabase { .. })));
        }
    });
}

#[test]
fn closing_one_without_a_directory_is_its_end() {
    within(60, || {
        for make in [Database::in_memory, scratch] {
            let db = make(small()).unwrap();
            let table = db.create_table("t", &[]).unwrap();
            let clone = db.clone();
            db.close().unwrap();
            let begun = clone.begin(Isolation::RepeatableRead);
            assert!(matches!(begun, Err(Error::Closed)));
            drop((table, clone));
            let db = make(small()).unwrap();
            assert!(db.open_report().created && db.tables().unwrap().is_empty());
        }
    });
}

#[test]
fn a_scratch_database_leaves_nothing_and_is_not_copied() {
    within(60, || {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::scratch(folder.path(), small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        for n in 0..20_000 {
            txn.insert(&table, &key(n), &[7; 500]).unwrap();
        }
        txn.commit_with(Durability::Sync).unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names(), 0);
        let copy = tempfile::tempdir().unwrap();
        let refused = db.checkpoint_to(copy.path());
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
        assert!(db.checkpoint().is_ok() && db.verify_table(&table).is_ok());
        drop((table, db));
        assert_eq!(names(), 0);
    });
}
