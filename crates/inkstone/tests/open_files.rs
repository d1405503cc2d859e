//! More tables than files may be open at once: `open_files`, and the process's own limit.

mod common;

use common::within;
use inkstone::{Database, Isolation, Options, Result};
use inkstone_io::sim::SimVfs;
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
