//! The failure policy, on a simulated disk: a failed log write or sync poisons the engine and
//! loses nothing acknowledged; a failed read fails the statement; a damaged page is an error that
//! names it.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Error, Isolation, Options, Result, Table};
use inkstone_format::header::{page_lsn, set_page_lsn, stamp_checksum};
use inkstone_format::{Lsn, PageNo};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;

fn rule(kind: OpKind, path_contains: &str, nth: u64, fault: Fault) -> FaultRule {
    FaultRule {
        kind: Some(kind),
        path_contains: path_contains.to_owned(),
        nth,
        times: 1,
        fault,
    }
}

/// Commits rows one by one until an error; how many were acknowledged, and the error.
fn commit_until_error(db: &Database, table: &Table, from: u64, count: u64) -> (u64, Option<Error>) {
    for n in from..from + count {
        if let Err(error) = insert(db, table, n..n + 1, &[n as u8; 300]) {
            return (n, Some(error));
        }
    }
    (from + count, None)
}

/// Every call says the same.
fn all_poisoned(db: &Database, table: &Table, reason: &Error) {
    let reason = reason.to_string();
    let check = |name: &str, result: Result<()>| match result {
        Err(error @ Error::Poisoned(_)) => assert_eq!(error.to_string(), reason, "{name}"),
        other => panic!("{name}: {other:?}"),
    };
    check("begin", db.begin(Isolation::ReadCommitted).map(drop));
    check("begin_with_snapshot", db.begin_with_snapshot().map(drop));
    check("table", db.table("t").map(drop));
    check("tables", db.tables().map(drop));
    check("create_table", db.create_table("new", &[]).map(drop));
    check("drop_table", db.drop_table("t"));
    check("rename_table", db.rename_table("t", "u"));
    check("create_tree", db.create_tree("t", "x").map(drop));
    check("statistics", db.statistics(table).map(drop));
    check(
        "records_in_range",
        db.records_in_range(table, b"", None).map(drop),
    );
    check("flush_table", db.flush_table(table));
    check("flush_log", db.flush_log());
    check("checkpoint", db.checkpoint());
    check("verify_table", db.verify_table(table).map(drop));
    check("purge", db.purge());
    check("commit_prepared", db.commit_prepared(b"x"));
    check("rollback_prepared", db.rollback_prepared(b"x"));
}

/// Reopens as after `kill -9`, and checks that the acknowledged rows are there, and at most one
/// more.
fn reopen(vfs: &SimVfs, db: Database, acknowledged: u64) -> SimVfs {
    drop(db);
    let vfs = vfs.kill();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    let found = rows(&db, &table).unwrap();
    let count = found.len() as u64;
    assert!(found.iter().copied().eq(0..count), "{found:?}");
    assert!(
        (acknowledged..=acknowledged + 1).contains(&count),
        "{count}, {acknowledged}"
    );
    db.verify_table(&table).unwrap();
    insert(&db, &table, 5000..5010, b"it goes on").unwrap();
    vfs
}

fn with_table(options: Options) -> (SimVfs, Database, Table) {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, options).unwrap();
    let table = db.create_table("t", &["second"]).unwrap();
    (vfs, db, table)
}

#[test]
fn any_failed_log_write_poisons() {
    for fault in [Fault::Eio, Fault::ShortWrite, Fault::Enospc] {
        for nth in [1, 2, 5, 13] {
            let (vfs, db, table) = with_table(small());
            let open = db.begin(Isolation::RepeatableRead).unwrap();
            open.insert(&table, &key(9999), b"never committed").unwrap();
            let cursor = open.range(&table, ..).unwrap();
            vfs.fail(rule(OpKind::Write, "log/", nth, fault));
            let (acknowledged, error) = commit_until_error(&db, &table, 0, 50);
            let error = error.expect("a commit fails");
            assert!(matches!(error, Error::Poisoned(_)), "{error}");
            says(&error, &["log", "close it and open it again to recover"]);
            all_poisoned(&db, &table, &error);
            let same = |result: Result<()>| {
                assert_eq!(failed(result).to_string(), error.to_string());
            };
            same(open.get(&table, b"x").map(drop));
            same(open.insert(&table, b"x", b""));
            same(open.insert_many(&table, [(b"k", b"v")]).map(drop));
            same(open.savepoint("s"));
            for row in cursor.take(1) {
                same(row.map(drop));
            }
            same(open.commit());
            same(db.clone().close());
            drop(table);
            reopen(&vfs, db, acknowledged);
        }
    }
}

#[test]
fn any_failed_sync_poisons() {
    // The log, a table, the doublewrite file, the control file, a directory.
    for (kind, path) in [
        (OpKind::Sync, "log/"),
        (OpKind::Sync, "t00000001.ink"),
        (OpKind::Sync, "doublewrite"),
        (OpKind::Sync, "control"),
        (OpKind::SyncDir, ""),
    ] {
        for nth in [1, 2] {
            let (vfs, db, table) = with_table(Options {
                doublewrite_skip_fresh: false,
                ..small()
            });
            let mut acknowledged = 0;
            let mut error = None;
            vfs.fail(rule(kind, path, nth, Fault::Eio));
            for round in 0..4 {
                let (done, failed) = commit_until_error(&db, &table, round * 10, 10);
                acknowledged = done;
                error = failed
                    .or_else(|| db.flush_table(&table).err())
                    .or_else(|| db.checkpoint().err())
                    .or_else(|| db.create_table(&format!("u{round}"), &[]).err());
                if error.is_some() {
                    break;
                }
            }
            let error = error.unwrap_or_else(|| panic!("no error for {path} {nth}"));
            assert!(matches!(error, Error::Poisoned(_)), "{path}: {error}");
            all_poisoned(&db, &table, &error);
            drop(table);
            reopen(&vfs, db, acknowledged);
        }
    }
}

/// Only the page that was not written is affected: it is dirty still, and is written again.
#[test]
fn a_failed_page_write_stops_nothing_and_loses_nothing() {
    for (path, fault) in [
        ("t00000001.ink", Fault::Eio),
        ("t00000001.ink", Fault::ShortWrite),
        ("doublewrite", Fault::Eio),
        ("doublewrite", Fault::ShortWrite),
    ] {
        let (vfs, db, table) = with_table(Options {
            doublewrite_skip_fresh: false,
            ..small()
        });
        insert(&db, &table, 0..200, &[1; 300]).unwrap();
        vfs.fail(rule(OpKind::Write, path, 1, fault));
        // The background thread may meet the failure instead.
        if let Err(error) = db.checkpoint() {
            says(&error, &[path]);
        }
        let (acknowledged, error) = commit_until_error(&db, &table, 200, 50);
        assert_eq!(acknowledged, 250, "{path}: {error:?}");
        db.checkpoint().unwrap();
        drop(table);
        reopen(&vfs, db, acknowledged);
    }
}

#[test]
fn a_failed_write_of_the_control_file_loses_nothing() {
    let (vfs, db, table) = with_table(small());
    insert(&db, &table, 0..200, &[1; 300]).unwrap();
    vfs.fail(rule(OpKind::Write, "control", 1, Fault::Eio));
    let _ = db.checkpoint();
    let acknowledged = match commit_until_error(&db, &table, 200, 50) {
        (250, None) => 250,
        (acknowledged, Some(Error::Poisoned(_))) => acknowledged,
        (at, other) => panic!("{at}, {other:?}"),
    };
    drop(table);
    reopen(&vfs, db, acknowledged);
}

#[test]
fn a_failed_read_fails_the_statement_only() {
    let (vfs, db, table) = with_table(small());
    // Larger than the pool.
    for part in 0..10 {
        insert(&db, &table, part * 500..(part + 1) * 500, &[3; 400]).unwrap();
    }
    db.checkpoint().unwrap();
    let mut failures = 0;
    for round in 0..30u64 {
        vfs.fail(rule(
            OpKind::Read,
            "t00000001.ink",
            1 + round % 5,
            Fault::Eio,
        ));
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in (round * 3..5000).step_by(97) {
            match txn.get(&table, &key(n)) {
                Ok(value) => assert_eq!(value.as_deref(), Some(&[3; 400][..])),
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    says(&error, &["read page 1:", "t00000001.ink"]);
                    failures += 1;
                    // The same statement again.
                    txn.get(&table, &key(n)).unwrap();
                }
            }
        }
        // Writes and scans as well.
        vfs.fail(rule(
            OpKind::Read,
            "t00000001.ink",
            1 + round % 3,
            Fault::Eio,
        ));
        for n in (0..5000).step_by(611) {
            match txn.update(&table, &key(n), &[4; 400]) {
                Ok(()) => {}
                Err(Error::Io { .. }) => txn.update(&table, &key(n), &[4; 400]).unwrap(),
                Err(other) => panic!("{other}"),
            }
        }
        vfs.fail(rule(OpKind::Read, "t00000001.ink", 3, Fault::Eio));
        let mut seen = 0;
        for row in txn.range(&table, ..).unwrap() {
            match row {
                Ok(_) => seen += 1,
                Err(Error::Io { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(seen <= 5000);
        vfs.clear_faults();
        txn.rollback().unwrap();
    }
    assert!(failures > 5, "{failures}");
    assert_eq!(rows(&db, &table).unwrap().len(), 5000);
    db.verify_table(&table).unwrap();
    db.close().unwrap();
}

/// A closed database with 2,000 rows in table `t`, and the path of its file.
fn closed() -> (SimVfs, PathBuf) {
    let (vfs, db, table) = with_table(small());
    insert(&db, &table, 0..2000, &[5; 300]).unwrap();
    let other = db.create_table("other", &[]).unwrap();
    insert(&db, &other, 0..2000, &[6; 300]).unwrap();
    drop((table, other));
    db.close().unwrap();
    (vfs.kill(), sim_dir().join("t00000001.ink"))
}

/// Reads every row of both tables one by one: how many of `t` can be read, and the errors. The rows
/// of the other table must all be there.
fn read_all(vfs: &SimVfs) -> (u64, Vec<Error>) {
    let db = open_sim(vfs, small()).unwrap();
    let other = db.table("other").unwrap();
    assert_eq!(rows(&db, &other).unwrap().len(), 2000);
    let table = match db.table("t") {
        Ok(table) => table,
        Err(error) => return (0, vec![error]),
    };
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let (mut read, mut errors) = (0, Vec::new());
    for n in 0..2000 {
        match txn.get(&table, &key(n)) {
            Ok(Some(value)) => {
                assert_eq!(value, [5; 300]);
                read += 1;
            }
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
    }
    drop(txn);
    if let Err(error) = db.verify_table(&table) {
        errors.push(error);
    }
    insert(&db, &other, 2000..2100, b"it goes on").unwrap();
    let gone = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 2000..2100 {
        gone.delete(&other, &key(n)).unwrap();
    }
    gone.commit().unwrap();
    db.close().unwrap();
    (read, errors)
}

fn page(vfs: &SimVfs, path: &Path, number: usize) -> Vec<u8> {
    vfs.read_raw(path).unwrap()[number * PAGE..(number + 1) * PAGE].to_vec()
}

/// The number of a leaf in the middle of the table's file.
fn a_leaf(vfs: &SimVfs, path: &Path) -> usize {
    let bytes = vfs.read_raw(path).unwrap();
    let leaf = inkstone_format::header::PageType::Leaf as u8;
    let is_leaf = |n: &usize| bytes[n * PAGE + 12] == leaf && bytes[n * PAGE..][..4] != [0; 4];
    (40..bytes.len() / PAGE).find(is_leaf).unwrap()
}

fn corrupt_at(error: &Error, path: &Path, number: usize) -> u64 {
    match error {
        Error::Corrupt {
            file,
            page: Some(page),
            offset,
            ..
        } => {
            assert_eq!((&**file, page.page), (path, PageNo(number as u32)));
            assert_eq!(page.space.0, 1);
            *offset
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_flipped_bit_is_found_where_it_is() {
    for byte in [0, 5, 13, 17, 30, 100, 2000, 4095] {
        let (vfs, path) = closed();
        let leaf = a_leaf(&vfs, &path);
        vfs.flip_bit(&path, (leaf * PAGE + byte) as u64, 3).unwrap();
        let (read, errors) = read_all(&vfs);
        assert!((1900..2000).contains(&read), "{read}");
        assert_eq!(read as usize + errors.len(), 2001);
        for error in &errors {
            corrupt_at(error, &path, leaf);
            says(
                error,
                &["t00000001.ink", &format!("page 1:{leaf}"), "checksum"],
            );
        }
        vfs.flip_bit(&path, (leaf * PAGE + byte) as u64, 3).unwrap();
        assert_eq!(read_all(&vfs).0, 2000);
    }
}

#[test]
fn a_page_from_the_future() {
    let (vfs, path) = closed();
    let leaf = a_leaf(&vfs, &path);
    let mut bytes = page(&vfs, &path, leaf);
    let lsn = page_lsn(&bytes);
    set_page_lsn(&mut bytes, Lsn(lsn.0 + (1 << 40)));
    stamp_checksum(&mut bytes);
    vfs.write_raw(&path, (leaf * PAGE) as u64, &bytes).unwrap();
    let (read, errors) = read_all(&vfs);
    assert!((1900..2000).contains(&read), "{read}");
    for error in &errors {
        assert_eq!(corrupt_at(error, &path, leaf), 16);
        says(error, &["in the future", "the log ends at LSN"]);
    }
}

#[test]
fn a_misdirected_page() {
    let (vfs, path) = closed();
    let leaf = a_leaf(&vfs, &path);
    let neighbour = page(&vfs, &path, leaf + 1);
    vfs.write_raw(&path, (leaf * PAGE) as u64, &neighbour)
        .unwrap();
    let (read, errors) = read_all(&vfs);
    assert!((1900..2000).contains(&read), "{read}");
    for error in &errors {
        assert_eq!(corrupt_at(error, &path, leaf), 4);
        says(
            error,
            &[&format!("page 1:{leaf}"), &format!("page 1:{}", leaf + 1)],
        );
    }
    // The same place of another table.
    let (vfs, path) = closed();
    let foreign = page(&vfs, &sim_dir().join("t00000002.ink"), leaf);
    vfs.write_raw(&path, (leaf * PAGE) as u64, &foreign)
        .unwrap();
    let (_, errors) = read_all(&vfs);
    corrupt_at(&errors[0], &path, leaf);
    says(&errors[0], &[&format!("page 2:{leaf}")]);
}

/// A write that the disk acknowledged and did not do: the page is whole, and old. A checksum cannot
/// tell; the tree may (rows are missing, or a page is not what its parent says). No panic, and what
/// can be read is right.
#[test]
fn a_stale_page() {
    let (vfs, path) = closed();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    let old: Vec<Vec<u8>> = (0..200)
        .filter(|n| (n + 1) * PAGE <= vfs.read_raw(&path).unwrap().len())
        .map(|n| page(&vfs, &path, n))
        .collect();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..2000 {
        txn.update(&table, &key(n), &[7; 350]).unwrap();
    }
    txn.commit().unwrap();
    drop(table);
    db.close().unwrap();
    let good = vfs.read_raw(&path).unwrap();
    let mut told = 0;
    for (n, bytes) in old.iter().enumerate().skip(2) {
        if bytes[..] == good[n * PAGE..(n + 1) * PAGE] {
            continue;
        }
        vfs.write_raw(&path, (n * PAGE) as u64, bytes).unwrap();
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.table("t").unwrap();
        if db.verify_table(&table).is_err() {
            told += 1;
        }
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in (0..2000).step_by(7) {
            match txn.get(&table, &key(n)) {
                Ok(Some(value)) => assert!(value == [7; 350] || value == [5; 300]),
                Ok(None) | Err(Error::Corrupt { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        drop((txn, table));
        db.close().unwrap();
        vfs.write_raw(&path, (n * PAGE) as u64, &good[n * PAGE..(n + 1) * PAGE])
            .unwrap();
    }
    assert!(told > 0);
}
