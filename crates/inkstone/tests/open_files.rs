//! More tables than files may be open at once: `open_files`, and the process's own limit.

mod common;

use common::within;
use inkstone::counters::{Counter, Counters};
use inkstone::{Database, Isolation, Options, Result};
use inkstone_io::sim::{OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;

const TABLES: u64 = 40;

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 64 * 4096,
        log_file_size: 8 << 20,
        open_files: 10,
        ..common::options()
    }
}

fn open(disk: &SimVfs, options: Options) -> Result<Database> {
    let disk = Arc::new(disk.clone());
    Database::open_on(disk, Path::new("db"), options, &|_| {})
}

fn name(table: u64) -> String {
    format!("table{table:05}")
}

/// Writes a row into each table.
fn put(db: &Database, tables: u64, value: &[u8]) -> Result<()> {
    for table in 0..tables {
        let txn = db.begin(Isolation::ReadCommitted)?;
        txn.upsert(&db.table(&name(table))?, b"key", value)?;
        txn.commit()?;
    }
    db.flush_log()
}

fn check(db: &Database, tables: u64, value: &[u8]) -> Result<()> {
    for table in 0..tables {
        let table = db.table(&name(table))?;
        let txn = db.begin(Isolation::ReadCommitted)?;
        assert_eq!(txn.get(&table, b"key")?.as_deref(), Some(value));
        txn.commit()?;
        db.verify_table(&table)?;
    }
    Ok(())
}

fn make(db: &Database, tables: u64) -> Result<()> {
    (0..tables).try_for_each(|table| db.create_table(&name(table), &[]).map(drop))
}

fn metric(db: &Database, name: &str) -> u64 {
    let found = db.status().into_iter().find(|(found, _)| *found == name);
    found.unwrap().1
}

#[test]
fn no_more_tables_than_the_option_says_are_open() {
    within(120, || {
        let disk = SimVfs::new(1);
        let db = open(&disk, options()).unwrap();
        make(&db, TABLES).unwrap();
        for round in 0..3 {
            put(&db, TABLES, &[round; 100]).unwrap();
            assert!(metric(&db, "table_files_open") <= 10);
        }
        db.checkpoint().unwrap();
        check(&db, TABLES, &[2; 100]).unwrap();
        db.close().unwrap();
        let db = open(&disk.kill(), options()).unwrap();
        check(&db, TABLES, &[2; 100]).unwrap();
        assert!(metric(&db, "table_files_open") <= 10);
        assert!(metric(&db, "table_files_opened") > TABLES);
        db.close().unwrap();
    });
}

#[test]
fn more_tables_than_descriptors() {
    within(120, || {
        let disk = SimVfs::new(2);
        let db = open(&disk, options()).unwrap();
        let without_tables = disk.handles_max();
        drop(db);
        let mut disk = disk.kill();
        for round in 0..3u8 {
            // Whatever the option says: the process may not have so many.
            let many = Options {
                open_files: 1000,
                ..options()
            };
            disk.limit_handles(without_tables + 8);
            let db = open(&disk, many).unwrap();
            if round == 0 {
                make(&db, TABLES).unwrap();
            } else {
                check(&db, TABLES, &[round - 1; 100]).unwrap();
            }
            put(&db, TABLES, &[round; 100]).unwrap();
            for table in 0..TABLES {
                db.flush_table(&db.table(&name(table)).unwrap()).unwrap();
            }
            db.checkpoint().unwrap();
            let killed = disk.kill();
            drop(db);
            disk = killed;
        }
    });
}

/// Syncs of files since the process began.
fn syncs(disk: &SimVfs) -> u64 {
    disk.operations_of(OpKind::Sync)
}

#[test]
fn unchanged_tables_cost_no_sync() {
    within(240, || {
        const MANY: u64 = 1000;
        let many = Options {
            open_files: 100,
            ..options()
        };
        let disk = SimVfs::new(3);
        let db = open(&disk, many.clone()).unwrap();
        make(&db, MANY).unwrap();
        put(&db, 3, b"value").unwrap();
        db.checkpoint().unwrap();
        // After a kill: one sync of the file system, and those of the log and of single files.
        let disk = disk.kill();
        drop(db);
        let db = open(&disk, many.clone()).unwrap();
        assert!(syncs(&disk) < 100, "{} syncs at open", syncs(&disk));
        assert!(metric(&db, "table_files_opened") < 10);
        put(&db, 3, b"other").unwrap();
        let before = syncs(&disk);
        db.close().unwrap();
        let closing = syncs(&disk) - before;
        assert!(closing < 40, "{closing} syncs at close");
        // After an orderly close.
        let disk = disk.kill();
        let db = open(&disk, many).unwrap();
        assert!(syncs(&disk) < 40, "{} syncs at open", syncs(&disk));
        assert!(metric(&db, "table_files_opened") < 10);
        check(&db, 3, b"other").unwrap();
        let last = db.table(&name(MANY - 1)).unwrap();
        db.verify_table(&last).unwrap();
        db.close().unwrap();
    });
}

#[test]
fn a_missing_or_damaged_file_is_told_when_its_table_is_used() {
    within(60, || {
        let disk = SimVfs::new(4);
        let db = open(&disk, options()).unwrap();
        make(&db, 3).unwrap();
        put(&db, 3, b"value").unwrap();
        let path = |n: u64| db.table(&name(n)).unwrap().path().to_owned();
        let (missing, damaged) = (path(0), path(1));
        db.close().unwrap();
        disk.remove_raw(&missing).unwrap();
        disk.flip_bit(&damaged, 1000, 3).unwrap();
        let db = open(&disk.kill(), options()).unwrap();
        let error = |n: u64| db.table(&name(n)).err().unwrap().to_string();
        assert!(error(0).contains("is missing; restore it"), "{}", error(0));
        assert!(error(1).contains("checksum"), "{}", error(1));
        assert!(db.table(&name(2)).is_ok());
        db.close().unwrap();
    });
}

/// `cargo test --release -p inkstone --test open_files -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn ten_thousand_tables() {
    const MANY: u64 = 10_000;
    let directory = tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or(".".into())).unwrap();
    let options = Options {
        buffer_pool_size: 512 << 20,
        ..common::options()
    };
    let begin = std::cell::Cell::new(std::time::Instant::now());
    let note = |what: &str, counters: &Counters| {
        let seconds = begin.replace(std::time::Instant::now()).elapsed();
        let syncs = counters.get(Counter::DataSyncs);
        let seconds = seconds.as_secs_f64();
        println!("{what}: {seconds:.2} s, {syncs} syncs of tables since open");
    };
    let close = |db: Database| {
        let counters = db.counters().clone();
        db.close().unwrap();
        note("closed", &counters);
    };
    let open = || Database::open(directory.path(), options.clone()).unwrap();
    let db = open();
    make(&db, MANY).unwrap();
    note("created", db.counters());
    put(&db, MANY, b"a row in each").unwrap();
    note("written", db.counters());
    db.checkpoint().unwrap();
    note("flushed", db.counters());
    put(&db, MANY, b"another in each").unwrap();
    note("written again", db.counters());
    close(db);
    let db = open();
    note("opened", db.counters());
    put(&db, 3, b"three").unwrap();
    close(db);
}
