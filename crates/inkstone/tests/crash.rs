//! The smallest workloads that once lost something in a crash, on the simulated disk. Found by
//! `inkstone-testkit`.

use inkstone::internals::options::Durability;
use inkstone::{Database, Error, Isolation, LockMode, Options, Wait};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    }
}

fn open_with(vfs: &SimVfs, options: Options) -> Database {
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn open(vfs: &SimVfs) -> Database {
    open_with(vfs, options())
}

/// A database with a table that has these rows.
fn with_rows(vfs: &SimVfs, rows: &[(&str, &str)]) -> Database {
    let db = open(vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for (key, value) in rows {
        txn.insert(&table, key.as_bytes(), value.as_bytes())
            .unwrap();
    }
    txn.commit_with(Durability::Sync).unwrap();
    db
}

fn rows(db: &Database) -> Vec<(String, String)> {
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    txn.range(&table, ..)
        .unwrap()
        .map(|row| row.unwrap())
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}

/// A revival's record had no old value, and the delete mark's record has none ever: after the
/// rollback of both the row had the new value.
#[test]
fn a_row_deleted_and_inserted_again_by_a_loser_comes_back_as_it_was() {
    for undo_bytes_max in [None, Some(0)] {
        let vfs = SimVfs::new(1);
        let db = with_rows(&vfs, &[("a", "old")]);
        let table = db.table("t").unwrap();
        let loser = db.begin(Isolation::ReadCommitted).unwrap();
        loser.delete(&table, b"a").unwrap();
        loser.insert(&table, b"a", b"new value").unwrap();
        if let Some(bytes) = undo_bytes_max {
            db.maintain(bytes).unwrap();
        }
        db.flush_log().unwrap();
        let vfs = vfs.kill();
        drop((loser, table, db));
        let db = open(&vfs);
        assert_eq!(rows(&db), [("a".to_owned(), "old".to_owned())]);
    }
}

/// Recovery took the rows of a dropped table for empty ones, and the prepared transaction's changes
/// did not fit them: the database could not be opened again.
#[test]
fn a_table_dropped_under_a_prepared_transaction_does_not_stop_recovery() {
    let vfs = SimVfs::new(1);
    let db = with_rows(&vfs, &[("a", "old")]);
    let table = db.table("t").unwrap();
    let other = db.create_table("other", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.update(&table, b"a", b"new").unwrap();
    txn.insert(&other, b"b", b"").unwrap();
    txn.prepare(b"xid").unwrap();
    db.drop_table_at_once("t").unwrap();
    let vfs = vfs.kill();
    drop((table, other, db));
    let db = open(&vfs);
    db.rollback_prepared(b"xid").unwrap();
    let other = db.table("other").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert_eq!(txn.get(&other, b"b").unwrap(), None);
}

/// Recovery gave the rows of a prepared transaction their versions in clean pages, which could be
/// evicted without them: the rows were unlocked, and the changes to be seen.
#[test]
fn rows_of_a_prepared_transaction_stay_locked_when_their_pages_are_evicted() {
    let vfs = SimVfs::new(1);
    let db = with_rows(&vfs, &[("a", "old")]);
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..2000u32 {
        txn.insert(&table, &n.to_be_bytes(), &[7; 700]).unwrap();
    }
    txn.commit().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.update(&table, b"a", b"new").unwrap();
    txn.prepare(b"xid").unwrap();
    db.checkpoint().unwrap();
    let vfs = vfs.kill();
    drop((table, db));
    let db = open(&vfs);
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    // More than fits the pool.
    for n in 0..2000u32 {
        assert!(txn.get(&table, &n.to_be_bytes()).unwrap().is_some());
    }
    assert_eq!(txn.get(&table, b"a").unwrap().unwrap(), b"old");
    let locked = txn.get_locking(&table, b"a", LockMode::Shared, Wait::NoWait);
    assert!(matches!(locked, Err(Error::LockNotAvailable)), "{locked:?}");
}

/// After a crash in the middle of its rollback a prepared transaction was prepared again, with what
/// was left of it, and could be committed by half.
#[test]
fn a_prepared_transaction_is_not_prepared_after_half_of_its_rollback() {
    let vfs = SimVfs::new(1);
    let db = with_rows(&vfs, &[("a", "old"), ("b", "old")]);
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..2000u32 {
        txn.insert(&table, &n.to_be_bytes(), &[7; 700]).unwrap();
    }
    txn.prepare(b"xid").unwrap();
    // Pages that have to be read cannot be, after others could.
    vfs.fail(FaultRule {
        kind: Some(OpKind::Read),
        path_contains: ".ink".to_owned(),
        nth: 20,
        times: 1_000_000,
        fault: Fault::Eio,
    });
    let half = db.rollback_prepared(b"xid");
    vfs.clear_faults();
    assert!(matches!(half, Err(Error::Io { .. })), "{half:?}");
    let commit = db.commit_prepared(b"xid");
    assert!(matches!(commit, Err(Error::TransactionState(_))));
    db.maintain(0).unwrap();
    db.flush_log().unwrap();
    let vfs = vfs.kill();
    drop((table, db));
    let db = open(&vfs);
    assert!(db.prepared_transactions().is_empty());
    assert_eq!(rows(&db).len(), 2);
}

/// Entering a chain of pages into the tree of those to be freed compacted its leaf without regard
/// for the version addresses in it: their transactions could not be rolled back.
#[test]
fn many_long_values_in_open_transactions_can_be_rolled_back() {
    let vfs = SimVfs::new(1);
    let db = with_rows(&vfs, &[]);
    let table = db.table("t").unwrap();
    let first = db.begin(Isolation::ReadCommitted).unwrap();
    let second = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..400u32 {
        first.insert(&table, &n.to_be_bytes(), &[1; 1200]).unwrap();
        let key = (n + 1000).to_be_bytes();
        second.savepoint("s").unwrap();
        second.insert(&table, &key, &[2; 1200]).unwrap();
        if n % 3 == 0 {
            second.rollback_to_savepoint("s").unwrap();
        }
        if n % 10 == 0 {
            db.purge().unwrap();
        }
    }
    first.rollback().unwrap();
    second.rollback().unwrap();
    assert!(rows(&db).is_empty());
    db.verify_table(&table).unwrap();
}

/// Two rounds of purge at once (the background's and one that was asked for) walked the same chain
/// of a long value: the second one freed, or stumbled over, what the first had freed.
#[test]
fn rounds_of_purge_at_the_same_time_free_each_chain_once() {
    let vfs = SimVfs::new(1);
    let db = with_rows(&vfs, &[]);
    let table = db.table("t").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let purge = || {
            while !done.load(Ordering::Relaxed) {
                if let Err(error) = db.purge() {
                    done.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        let purges = [scope.spawn(purge), scope.spawn(purge)];
        for round in 0..300u32 {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for n in 0..4u32 {
                let value = vec![round as u8; 60_000];
                txn.upsert(&table, &n.to_be_bytes(), &value).unwrap();
            }
            match round % 3 {
                0 => txn.rollback().unwrap(),
                _ => txn.commit_with(Durability::Lazy).unwrap(),
            }
            if done.load(Ordering::Relaxed) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        for purge in purges {
            purge.join().unwrap().unwrap();
        }
    });
    db.purge().unwrap();
    db.verify_table(&table).unwrap();
}

/// Dropping a table takes its dirty pages out of the pool, and the checkpoint passes changes that
/// the disk never got. Recovery in small batches applied the later ones before it had read that the
/// table is dropped: they did not fit, and the database could not be opened again. (Seed 86 of the
/// seeded scheduler.)
#[test]
fn a_dropped_table_whose_pages_were_never_written_does_not_stop_recovery() {
    // On a busy machine the cleaner may come first, and write the pages.
    let in_batches = (0..20).any(|_| recovers_a_dropped_table() > 1);
    assert!(in_batches, "there never was more than one batch");
}

/// Tells in how many batches.
fn recovers_a_dropped_table() -> u64 {
    let vfs = SimVfs::new(1);
    let db = with_rows(&vfs, &[]);
    let table = db.table("t").unwrap();
    let dropped = db.create_table("dropped", &[]).unwrap();
    db.checkpoint().unwrap();
    let put = |table, key: &[u8], value: &[u8]| {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.upsert(table, key, value).unwrap();
        txn.commit().unwrap();
    };
    put(&dropped, b"first", b"");
    // The checkpoint will lie here, behind the row that the next changes build on.
    put(&table, b"a", b"kept");
    for n in 0..100u8 {
        put(&dropped, b"first", &[n; 100]);
    }
    // The deletion is in the log, the file is still there.
    vfs.fail(FaultRule {
        kind: Some(OpKind::Remove),
        path_contains: ".ink".to_owned(),
        nth: 1,
        times: 1,
        fault: Fault::Eio,
    });
    let removed = db.drop_table("dropped");
    assert!(matches!(removed, Err(Error::Io { .. })), "{removed:?}");
    db.maintain(u64::MAX).unwrap();
    let vfs = vfs.crash(1);
    drop((table, dropped, db));
    let options = Options {
        recovery_memory: 1 << 12,
        // In batches: nothing goes to a file then.
        redo_before_open: true,
        ..options()
    };
    let db = open_with(&vfs, options);
    assert_eq!(rows(&db), [("a".to_owned(), "kept".to_owned())]);
    assert_eq!(db.tables().unwrap(), ["t"]);
    let recovered = db.open_report().recovered.clone().unwrap();
    recovered.redo.batches
}
