//! Databases that are opened for reading only, also such as would not open otherwise.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Error, Isolation, Options, Table};
use inkstone_io::sim::SimVfs;
use std::path::PathBuf;

const ROWS: u64 = 300;

/// A database with a table `t` that was killed while a transaction had changed all rows and not
/// committed: its changes are durable.
fn killed() -> SimVfs {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &["by"]).unwrap();
    insert(&db, &table, 0..ROWS, b"committed").unwrap();
    let loser = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        loser.update(&table, &key(n), b"changed").unwrap();
    }
    loser.insert(&table, &key(ROWS), b"new").unwrap();
    let prepared = db.begin(Isolation::ReadCommitted).unwrap();
    prepared.insert(&table, &key(9999), b"prepared").unwrap();
    prepared.prepare(b"xid").unwrap();
    db.flush_log().unwrap();
    let killed = vfs.kill();
    drop((loser, table, db));
    killed
}

fn files(vfs: &SimVfs) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = vfs.files().into_iter();
    let bytes = |path: &PathBuf| vfs.read_raw(path).unwrap();
    paths.map(|path| (path.clone(), bytes(&path))).collect()
}

fn with(force_recovery: u64) -> Options {
    Options {
        force_recovery,
        read_only: force_recovery == 0,
        ..small()
    }
}

fn values(db: &Database, table: &Table) -> Vec<Vec<u8>> {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let rows = txn.range(table, ..).unwrap();
    rows.map(|row| row.unwrap().1).collect()
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::ReadOnly))
}

#[test]
fn each_value_shows_what_it_says_and_changes_nothing() {
    let vfs = killed();
    let before = files(&vfs);
    let mutations = vfs.mutations();
    for force in 0..=5 {
        let db = open_sim(&vfs, with(force)).unwrap();
        assert!(db.is_read_only());
        assert!(db.open_report().left_out.is_empty());
        let table = db.table("t").unwrap();
        let found = values(&db, &table);
        match force {
            5 => {
                assert_eq!(found.len() as u64, ROWS + 2);
                assert!(found[..ROWS as usize].iter().all(|v| v == b"changed"));
            }
            _ => {
                assert_eq!(found.len() as u64, ROWS, "{force}");
                assert!(found.iter().all(|v| v == b"committed"), "{force}");
            }
        }
        // Where nothing was rolled back the rows are locked.
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let locked = txn.get_locking(
            &table,
            &key(1),
            inkstone::LockMode::Exclusive,
            inkstone::Wait::NoWait,
        );
        assert_eq!(
            locked.is_err(),
            matches!(force, 3 | 4),
            "{force}: {locked:?}"
        );
        drop(txn);
        db.close().unwrap();
        assert_eq!(vfs.mutations(), mutations, "{force}");
        assert!(files(&vfs) == before, "{force}");
    }
    // It is as it was.
    let db = open_sim(&vfs, small()).unwrap();
    assert_eq!(db.prepared_transactions(), [b"xid".to_vec()]);
    db.commit_prepared(b"xid").unwrap();
    assert_eq!(values(&db, &db.table("t").unwrap()).len() as u64, ROWS + 1);
}

#[test]
fn every_write_is_refused() {
    let vfs = killed();
    let db = open_sim(&vfs, with(0)).unwrap();
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(is_refused(txn.insert(&table, &key(7777), b"")));
    assert!(is_refused(txn.insert(&table, &key(7777), &[1; 100_000])));
    assert!(is_refused(txn.update(&table, &key(1), b"")));
    assert!(is_refused(txn.delete(&table, &key(1))));
    assert_eq!(txn.get(&table, &key(1)).unwrap().unwrap(), b"committed");
    txn.commit().unwrap();
    assert!(is_refused(db.create_table("u", &[])));
    assert!(is_refused(db.drop_table("t")));
    assert!(is_refused(db.rename_table("t", "u")));
    assert!(is_refused(db.create_tree("t", "more")));
    assert!(is_refused(db.drop_tree("t", "by")));
    assert!(is_refused(db.export_table(&table)));
    assert!(is_refused(db.shrink_table(&table)));
    assert!(is_refused(db.commit_prepared(b"xid")));
    assert!(is_refused(db.rollback_prepared(b"xid")));
    assert_eq!(db.prepared_transactions(), [b"xid".to_vec()]);
    db.verify_table(&table).unwrap();
}

/// Readers share it, and no writer is there beside them.
#[test]
fn several_readers_and_no_writer() {
    // The simulated disk knows no shared locks.
    let directory = tempfile::tempdir().unwrap();
    let open = |options| Database::open(directory.path(), options);
    let in_use = |options| matches!(open(options), Err(Error::InUse { .. }));
    open(small()).unwrap().close().unwrap();
    let first = open(with(0)).unwrap();
    let second = open(with(1)).unwrap();
    assert!(in_use(small()));
    drop((first, second));
    let db = open(small()).unwrap();
    assert!(in_use(with(0)));
    drop(db);
}

#[test]
fn a_damaged_page_is_left_out_and_named() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..ROWS, &[7; 100]).unwrap();
    let path = table.path().to_owned();
    db.close().unwrap();
    drop(table);
    let bytes = vfs.read_raw(&path).unwrap();
    let pages = bytes.len() / 4096;
    let is_leaf = |page: &[u8]| {
        inkstone_format::header::page_type(page) == Some(inkstone_format::header::PageType::Leaf)
    };
    let damaged = (10..pages).find(|n| is_leaf(&bytes[n * 4096..][..4096]));
    let at = damaged.unwrap() * 4096 + 200;
    vfs.write_raw(&path, at as u64, &[bytes[at] ^ 1]).unwrap();
    let db = open_sim(&vfs, small()).unwrap();
    assert!(matches!(
        rows(&db, &db.table("t").unwrap()),
        Err(Error::Corrupt { .. })
    ));
    drop(db);
    for force in 1..=5 {
        let db = open_sim(&vfs, with(force)).unwrap();
        let left_out = &db.open_report().left_out;
        let page = |left: &inkstone::LeftOut| left.page.map(|id| id.page.0 as usize);
        let named = left_out.iter().any(|left| page(left) == damaged);
        assert!(named, "page {damaged:?}: {left_out:?}");
        let found = rows(&db, &db.table("t").unwrap()).unwrap().len() as u64;
        assert!((ROWS - 100..ROWS).contains(&found), "{found}");
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    let vfs = killed();
    for (force, why) in [(6, "without the log is not supported"), (7, "from 0 to 5")] {
        let error = open_sim(&vfs, with(force)).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
    let empty = SimVfs::new(1);
    let options = with(0);
    assert!(matches!(
        open_sim(&empty, options),
        Err(Error::NotADatabase { .. } | Error::Io { .. })
    ));
    assert!(empty.files().is_empty());
}
