//! A table is verified while others write to it.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Durability, Error, Isolation, Table};
use inkstone_io::sim::SimVfs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Inserts and deletes whole ranges, so that pages are split and merged, and some long values.
fn write(db: &Database, table: &Table, seed: u64, over: &AtomicBool) {
    let mut state = seed;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    while !over.load(Ordering::Relaxed) {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let first = below(4_000);
        let inserts = below(2) == 0;
        let longest = if below(20) == 0 { 9_000 } else { 300 };
        let value = vec![1; 1 + below(longest) as usize];
        let written = (first..first + 1 + below(60)).try_for_each(|n| {
            if inserts {
                txn.upsert(table, &key(n), &value).map(drop)
            } else {
                txn.delete(table, &key(n)).map(drop)
            }
        });
        match written {
            Ok(()) if below(5) > 0 => txn.commit_with(Durability::Lazy).unwrap(),
            Ok(()) => txn.rollback().unwrap(),
            Err(Error::Deadlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_table_is_sound_while_others_write() {
    let db = open_sim(&SimVfs::new(1), small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, (0..4_000).step_by(2), &[1; 200]).unwrap();
    let over = AtomicBool::new(false);
    let (mut changed, mut last) = (0, 0);
    std::thread::scope(|scope| {
        for seed in 1..4 {
            let (db, table, over) = (&db, &table, &over);
            scope.spawn(move || write(db, table, seed, over));
        }
        for _ in 0..60 {
            let found = db.verify_table(&table);
            if found.is_err() {
                over.store(true, Ordering::Relaxed);
            }
            let pages = found.unwrap().allocated_pages;
            changed += u64::from(pages != last);
            last = pages;
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(changed > 5, "{changed}");
    let report = db.verify_table(&table).unwrap();
    let rows = rows(&db, &table).unwrap();
    assert_eq!(report.trees[0].1.rows, rows.len() as u64);
}
