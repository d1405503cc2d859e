//! A transaction that replaces long values over and over rolls back. What went wrong: the entry of
//! a new chain was inserted into the tree of chains to be freed by the code of recovery, which
//! compacts a leaf without its version addresses; then the transaction did not know its own rows.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Isolation};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[test]
fn replaced_long_values_roll_back() {
    for count in [250, 350, 1200] {
        let vfs = SimVfs::new(3);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..count {
            txn.upsert(&table, &key(n % 100), &[n as u8; 3000]).unwrap();
        }
        txn.rollback().unwrap();
        assert_eq!(rows(&db, &table).unwrap(), []);
        for _ in 0..4 {
            db.purge().unwrap();
        }
        db.verify_table(&table).unwrap();
    }
}

/// Pages of a value whose row was refused stayed taken until the transaction ended.
#[test]
fn a_refused_row_gives_its_long_value_back() {
    let vfs = SimVfs::new(3);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(&table, &key(1), &[1; 3000]).unwrap();
    let used = || db.verify_table(&table).unwrap().allocated_pages;
    let before = used();
    let refused = txn.insert(&table, &key(1), &[9; 400_000]);
    assert!(matches!(refused, Err(inkstone::Error::DuplicateKey { .. })));
    assert!(used() > before + 80);
    (0..4).for_each(|_| db.purge().unwrap());
    assert!(used() <= before + 2, "{} pages, before {before}", used());
    txn.commit().unwrap();
    assert_eq!(rows(&db, &table).unwrap().len(), 1);
}

/// A cursor has copied rows that are then taken back, and gives them with their long values: these
/// are there as long as it may come to them.
#[test]
fn a_cursor_reads_long_values_that_were_taken_back() {
    let vfs = SimVfs::new(3);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.savepoint("s").unwrap();
    for n in 0..20 {
        txn.insert(&table, &key(n), &[n as u8; 20_000]).unwrap();
    }
    let mut cursor = txn.range(&table, ..).unwrap();
    cursor.next().unwrap().unwrap();
    txn.rollback_to_savepoint("s").unwrap();
    for _ in 0..4 {
        db.purge().unwrap();
    }
    for n in 100..120 {
        txn.insert(&table, &key(n), &[77; 20_000]).unwrap();
    }
    for row in cursor {
        let (found, value) = row.unwrap();
        let n = (0..20).find(|&n| key(n)[..] == found[..]);
        let byte = n.map_or(77, |n| n as u8);
        assert!(value.iter().all(|&each| each == byte), "{found:x?}");
    }
}

/// The end of the log falls between the records of one deletion: the row is marked, and no entry
/// says yet that its long value is to be freed. While that transaction waits to be rolled back in
/// the background its table is whole.
#[test]
fn a_deletion_is_cut_off_in_the_middle() {
    let mut marked = 0;
    for cut in 0.. {
        let vfs = SimVfs::new(4);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.insert(&table, &key(1), &[7; 10_000]).unwrap();
        txn.commit().unwrap();
        let loser = db.begin(Isolation::ReadCommitted).unwrap();
        loser.insert(&table, &key(2), b"moved").unwrap();
        db.maintain(0).unwrap();
        let before = written(&db, &vfs);
        loser.delete(&table, &key(1)).unwrap();
        let after = written(&db, &vfs);
        let (log, after) = after
            .into_iter()
            .find(|(log, bytes)| before[log] != *bytes)
            .unwrap();
        let before = &before[&log];
        let mut changed = (0..after.len()).filter(|&at| before[at] != after[at]);
        let (first, last) = (
            changed.clone().next().unwrap(),
            changed.next_back().unwrap(),
        );
        let end = first + cut;
        if end > last {
            break;
        }
        let vfs = vfs.kill();
        vfs.write_raw(&log, end as u64, &before[end..=last])
            .unwrap();
        drop((loser, table, db));
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.table("t").unwrap();
        db.verify_table(&table).unwrap();
        marked += db.verify_table(&table).unwrap().trees[0].1.deleted_rows;
        db.finish_rollbacks().unwrap();
        db.verify_table(&table).unwrap();
        assert_eq!(rows(&db, &table).unwrap().len(), 1);
        db.close().unwrap();
    }
    assert!(marked > 0, "no opening found the row marked");
}

/// The bytes of the log's files, as far as the log goes now.
fn written(db: &Database, vfs: &SimVfs) -> BTreeMap<PathBuf, Vec<u8>> {
    db.flush_log().unwrap();
    let files = vfs.files().into_iter();
    let logs = files.filter(|file| file.starts_with("db/log"));
    logs.map(|file| (file.clone(), vfs.read_raw(&file).unwrap()))
        .collect()
}
