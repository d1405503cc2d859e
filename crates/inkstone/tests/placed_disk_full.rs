//! A full disk under placed tables that are larger than the pool: what would make data grow gets
//! `Error::DiskFull`; all else goes on, and everything when there is space again.

mod failure_support;

use failure_support::*;
use inkstone::internals::options::BulkLogging;
use inkstone::{
    Database, Error, Isolation, Options, PageCompression, PagePlacement, Result, Table,
};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What an error names that is about room for the table.
const TABLE_FILE: &str = "t00000001.ink";

type Rows = BTreeMap<u64, Vec<u8>>;

const KINDS: [PageCompression; 3] = [
    PageCompression::None,
    PageCompression::Lz4,
    PageCompression::Zstd,
];

fn options(page_compression: PageCompression) -> Options {
    Options {
        page_size: 16 << 10,
        buffer_pool_size: 8 << 20,
        log_file_size: 16 << 20,
        version_store_memory: 64 << 20,
        page_placement: PagePlacement::Placed,
        page_compression,
        ..small()
    }
}

/// A row that compresses a little; the more versions it had, the less.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut state = (n << 20 | version) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    let random = (50 + 100 * version as usize).min(700);
    let bytes = (0..random).map(|_| next());
    bytes.chain(std::iter::repeat(b'x')).take(800).collect()
}

fn is_full(error: &Error) {
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
}

/// Changes some rows in one transaction; undone where one of them finds the disk full.
fn change(
    db: &Database,
    table: &Table,
    rows: &mut Rows,
    changed: impl Iterator<Item = (u64, Option<Vec<u8>>)>,
) -> Result<()> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    let mut after = Vec::new();
    for (n, value) in changed {
        match &value {
            Some(value) => txn.upsert(table, &key(n), value).map(drop)?,
            None => txn.delete(table, &key(n)).map(drop)?,
        }
        after.push((n, value));
    }
    txn.commit()?;
    for (n, value) in after {
        match value {
            Some(value) => rows.insert(n, value),
            None => rows.remove(&n),
        };
    }
    Ok(())
}

/// Each row is found, by a scan and by its key.
#[track_caller]
fn has(db: &Database, table: &Table, rows: &Rows) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let found: Vec<_> = txn.range(table, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), rows.len());
    let keys = rows.iter().map(|(n, value)| (key(*n).to_vec(), value));
    assert!(found.iter().map(|(k, v)| (k.clone(), v)).eq(keys));
    for (n, value) in rows.iter().step_by(7) {
        assert_eq!(txn.get(table, &key(*n)).unwrap().as_ref(), Some(value));
    }
}

/// Updates and inserts, until a few in a row of each have found the disk full.
fn fill(db: &Database, table: &Table, rows: &mut Rows) -> u64 {
    let (mut failures, mut done) = (0, 0);
    for round in 1..4000 {
        let count = rows.len() as u64;
        let begin = round * 7919 % count;
        let updates = (0..20).map(|n| (begin + n * 97) % count);
        let updates = updates.map(|n| (n, Some(value(n, round % 8))));
        let inserts = (count..count + 20).map(|n| (n, Some(value(n, round % 4))));
        for result in [
            change(db, table, rows, updates),
            change(db, table, rows, inserts),
        ] {
            match result {
                Ok(()) => done += 1,
                Err(error) => {
                    is_full(&error);
                    failures += 1;
                }
            }
        }
        if failures > 20 {
            return done;
        }
    }
    panic!("the disk is never full: {failures} failures");
}

fn with_rows(compression: PageCompression, seed: u64) -> (SimVfs, Database, Table, Rows) {
    let vfs = SimVfs::new(seed);
    let db = open_sim(&vfs, options(compression)).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let mut rows = Rows::new();
    for begin in (0..30_000).step_by(500) {
        let new = (begin..begin + 500).map(|n| (n, Some(value(n, 0))));
        change(&db, &table, &mut rows, new).unwrap();
    }
    (vfs, db, table, rows)
}

/// Until the disk is no longer found full.
fn soon(mut f: impl FnMut() -> Result<()>) {
    let begin = Instant::now();
    while let Err(error) = f() {
        is_full(&error);
        assert!(begin.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// On the full disk rows are deleted, and a change is rolled back.
fn shrinks(db: &Database, table: &Table, rows: &mut Rows) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for &n in rows.keys().step_by(300) {
        txn.delete(table, &key(n)).unwrap();
    }
    txn.rollback().unwrap();
    has(db, table, rows);
    let gone: Vec<u64> = rows.keys().copied().step_by(11).collect();
    for gone in gone.chunks(100) {
        let gone = gone.iter().map(|&n| (n, None));
        change(db, table, rows, gone).unwrap();
    }
    has(db, table, rows);
}

/// Each page of the pool is changed to rows that do not compress, in few transactions.
/// Rows can be deleted, and everything can be done when there is space again.
fn ends_well(vfs: &SimVfs, db: &Database, table: &Table, rows: &mut Rows) {
    shrinks(db, table, rows);
    vfs.set_capacity_bytes(u64::MAX);
    let more = || (100_000..102_000).map(|n| (n, Some(value(n, 3))));
    soon(|| change(db, table, rows, more()));
    db.verify_table(table).unwrap();
    has(db, table, rows);
}

#[test]
fn images_that_become_long_on_a_full_disk() {
    for compression in KINDS {
        let (vfs, db, table, mut rows) = with_rows(compression, 3);
        vfs.set_capacity_bytes(vfs.used_bytes());
        let mut failures = 0;
        for round in 0..600 {
            let updates = (0..60).map(|n| ((n * 500 + round * 31) % 30_000, Some(value(n, 7))));
            if let Err(error) = change(&db, &table, &mut rows, updates) {
                is_full(&error);
                failures += u64::from(error.to_string().contains(TABLE_FILE));
            }
            if round % 60 == 0 {
                has(&db, &table, &rows);
            }
        }
        // Pages as they are can be changed at will; what is compressed needs room to become long.
        assert_eq!(
            failures > 0,
            compression != PageCompression::None,
            "{failures}"
        );
        has(&db, &table, &rows);
        ends_well(&vfs, &db, &table, &mut rows);
    }
}

#[test]
fn a_full_disk_stops_what_grows_and_nothing_else() {
    for compression in KINDS {
        for spare in [0, 200_000, 3 << 20] {
            let (vfs, db, table, mut rows) = with_rows(compression, 3);
            vfs.set_capacity_bytes(vfs.used_bytes() + spare);
            let done = fill(&db, &table, &mut rows);
            assert!(done > 20, "{compression:?}, {spare} bytes: {done} changes");
            has(&db, &table, &rows);
            ends_well(&vfs, &db, &table, &mut rows);
        }
    }
}

#[test]
fn a_full_disk_that_stays_full_after_a_kill_has_all_rows() {
    for compression in KINDS {
        for part in 0..4 {
            let (vfs, db, table, mut rows) = with_rows(compression, 5 + part);
            vfs.set_capacity_bytes(vfs.used_bytes() + part * 300_000);
            fill(&db, &table, &mut rows);
            if part % 2 == 1 {
                shrinks(&db, &table, &mut rows);
            }
            db.flush_log().unwrap();
            let capacity = vfs.used_bytes();
            drop(table);
            let killed = vfs.kill();
            std::mem::forget(db);
            killed.set_capacity_bytes(capacity.max(killed.used_bytes()));
            let db = open_sim(&killed, options(compression)).unwrap();
            let table = db.table("t").unwrap();
            has(&db, &table, &rows);
            shrinks(&db, &table, &mut rows);
            killed.set_capacity_bytes(u64::MAX);
            let more = || (100_000..100_500).map(|n| (n, Some(value(n, 3))));
            soon(|| change(&db, &table, &mut rows, more()));
            has(&db, &table, &rows);
        }
    }
}

/// A load that leaves its rows out of the log takes all that the disk has: rows are read and
/// deleted, and the table is dropped, all the same.
#[test]
fn a_table_that_a_load_has_filled_the_disk_with_is_dropped() {
    for compression in KINDS {
        let vfs = SimVfs::new(7);
        let minimal = Options {
            bulk_logging: BulkLogging::Minimal,
            ..options(compression)
        };
        let db = open_sim(&vfs, minimal).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let mut rows = Rows::new();
        let new = (0..200).map(|n| (n, Some(value(n, 0))));
        change(&db, &table, &mut rows, new).unwrap();
        vfs.set_capacity_bytes(vfs.used_bytes() + (24 << 20));
        for _ in 0..2 {
            is_full(&load_until_full(&db, &table, 1000));
            db.finish_rollbacks().unwrap();
            has(&db, &table, &rows);
        }
        shrinks(&db, &table, &mut rows);
        let dropped = db.drop_table("t");
        dropped.unwrap();
        drop(table);
        let table = soon_made(&db);
        let new = (0..200).map(|n| (n, Some(value(n, 0))));
        change(&db, &table, &mut Rows::new(), new).unwrap();
    }
}

/// Loads rows until the disk is full, and rolls them back.
fn load_until_full(db: &Database, table: &Table, from: u64) -> Error {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for begin in (from..from + 200_000).step_by(500) {
        let new = (begin..begin + 500).map(|n| (key(n), value(n, 7)));
        let rows: Vec<_> = new.collect();
        let slices: Vec<_> = rows.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        if let (_, Err(error)) = txn.insert_until_duplicate(table, &slices) {
            txn.rollback().unwrap();
            return error;
        }
    }
    panic!("the disk is never full");
}

fn soon_made(db: &Database) -> Table {
    soon(|| db.create_table("u", &[]).map(drop));
    db.table("u").unwrap()
}
