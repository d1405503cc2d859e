//! The undo file shrinks behind giant transactions, while the database is open and at the next
//! opening, and what other transactions have saved there stays.

mod undo_support;

use inkstone::internals::counters::Counter;
use inkstone::internals::options::Durability;
use inkstone::{Database, Isolation, Options, Shutdown, Table, Transaction};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use undo_support::{gauge, noise, open, rows_of};

/// Bytes of the undo file, on the disk.
fn undo_file(vfs: &SimVfs) -> u64 {
    let bytes = vfs.read_raw(Path::new("db/undo"));
    bytes.map_or(0, |bytes| bytes.len() as u64)
}

/// What may stay of it free, when all else is given back.
const SPARE_MAX: u64 = 4 << 20;

/// Opened so that a giant transaction is soon over.
fn with_rows(vfs: &SimVfs) -> (Database, Table) {
    let db = open(vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..16_000u64 {
        txn.insert(&table, &n.to_be_bytes(), &noise(n, 600))
            .unwrap();
    }
    txn.commit_with(Durability::Sync).unwrap();
    while gauge(&db, "undo_file_bytes") > 0 {
        db.purge().unwrap();
    }
    (db, table)
}

/// Changes all rows but the last hundred, several times what stays free.
fn giant(db: &Database, table: &Table) -> Transaction {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..15_900u64 {
        txn.update(table, &n.to_be_bytes(), &noise(n + 1, 600))
            .unwrap();
    }
    txn
}

/// Behind a giant transaction, committed or rolled back, the file is short again: in the
/// background, or at once when that is asked for.
#[test]
fn the_undo_file_is_cut_behind_a_giant_transaction() {
    for (commits, asks) in [(true, false), (false, false), (true, true)] {
        let vfs = SimVfs::new(11);
        let (db, table) = with_rows(&vfs);
        let txn = giant(&db, &table);
        let long = undo_file(&vfs);
        assert!(long > 2 * SPARE_MAX, "{long} bytes");
        assert_eq!(gauge(&db, "undo_file_size_bytes"), long);
        if commits {
            txn.commit_with(Durability::Sync).unwrap();
        } else {
            txn.rollback().unwrap();
        }
        let begin = Instant::now();
        while undo_file(&vfs) > SPARE_MAX {
            assert!(begin.elapsed() < Duration::from_secs(60));
            if asks {
                db.purge().unwrap();
                db.checkpoint().unwrap();
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let given_back = db.counters().get(Counter::UndoFileBytesGivenBack);
        assert!(given_back >= long - SPARE_MAX, "{given_back} of {long}");
        assert_eq!(gauge(&db, "undo_file_size_bytes"), undo_file(&vfs));
        db.verify_table(&table).unwrap();
        db.close().unwrap();
    }
}

/// An older transaction has its undo at the low end: that stays, and undoes it.
#[test]
fn the_undo_file_is_cut_beside_an_open_transaction() {
    for (seed, power) in [(0, None), (1, Some(false)), (2, Some(true))] {
        let vfs = SimVfs::new(seed);
        let (db, table) = with_rows(&vfs);
        let before = rows_of(&db, &table);
        let old = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 15_900..16_000u64 {
            old.update(&table, &n.to_be_bytes(), b"old").unwrap();
        }
        let saves = db.counters().get(Counter::UndoSaves);
        db.maintain(0).unwrap();
        assert!(db.counters().get(Counter::UndoSaves) > saves);
        giant(&db, &table).rollback().unwrap();
        let begin = Instant::now();
        while undo_file(&vfs) > SPARE_MAX {
            assert!(begin.elapsed() < Duration::from_secs(60));
            db.purge().unwrap();
            db.checkpoint().unwrap();
        }
        assert!(gauge(&db, "undo_file_bytes") > 0);
        db.verify_undo().unwrap();
        let Some(power) = power else {
            old.rollback().unwrap();
            assert!(rows_of(&db, &table) == before);
            db.close().unwrap();
            continue;
        };
        db.flush_log().unwrap();
        let vfs = if power { vfs.crash(seed) } else { vfs.kill() };
        drop((old, table, db));
        let db = open(&vfs);
        db.finish_rollbacks().unwrap();
        let table = db.table("t").unwrap();
        assert!(rows_of(&db, &table) == before);
        db.verify_table(&table).unwrap();
        db.close().unwrap();
    }
}

/// The process ends before the space is free: the next one finds that nothing needs it. One that
/// may only read leaves the file as it is.
#[test]
fn an_undo_file_that_was_left_long_is_cut_at_the_next_opening() {
    for seed in 0..2 {
        let vfs = SimVfs::new(seed);
        let (db, table) = with_rows(&vfs);
        // Until it ends the giant's versions are kept, and what was saved of them.
        let reader = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(reader.get(&table, &0u64.to_be_bytes()).unwrap().is_some());
        giant(&db, &table).commit_with(Durability::Sync).unwrap();
        let after = rows_of(&db, &table);
        let vfs = if seed == 0 {
            drop(table);
            db.close_as(Shutdown::LogOnly).unwrap();
            drop(reader);
            vfs.kill()
        } else {
            let vfs = vfs.crash(seed);
            drop((reader, table, db));
            vfs
        };
        let long = undo_file(&vfs);
        assert!(long > 2 * SPARE_MAX, "{long} bytes");
        let options = Options {
            read_only: true,
            page_size: 4096,
            ..Options::default()
        };
        let reading =
            Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        reading.close().unwrap();
        assert_eq!(undo_file(&vfs), long);
        let db = open(&vfs);
        let begin = Instant::now();
        while undo_file(&vfs) > SPARE_MAX {
            assert!(begin.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(rows_of(&db, &db.table("t").unwrap()) == after);
        db.close().unwrap();
    }
}

/// A file that cannot be cut stays long; nothing fails, and it is tried again.
#[test]
fn a_cut_that_fails_keeps_nothing_from_going_on() {
    let vfs = SimVfs::new(4);
    let (db, table) = with_rows(&vfs);
    vfs.fail(FaultRule {
        kind: Some(OpKind::Truncate),
        path_contains: "undo".to_owned(),
        nth: 1,
        times: u64::MAX,
        fault: Fault::Eio,
    });
    giant(&db, &table).commit().unwrap();
    let long = undo_file(&vfs);
    while gauge(&db, "undo_file_bytes") > 0 {
        db.purge().unwrap();
        db.flush_log().unwrap();
    }
    for _ in 0..3 {
        db.checkpoint().unwrap();
        db.maintain(0).unwrap();
    }
    assert_eq!(undo_file(&vfs), long);
    assert_eq!(db.counters().get(Counter::UndoFileCuts), 0);
    giant(&db, &table).rollback().unwrap();
    vfs.clear_faults();
    let begin = Instant::now();
    while undo_file(&vfs) > SPARE_MAX {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    db.verify_table(&table).unwrap();
    db.close().unwrap();
}
