//! Large and old transactions: their undo gets a place of its own, is saved as they go on, and is
//! all there after a crash, when their rows are invisible and locked until each is undone.

mod undo_support;

use inkstone::internals::counters::Counter;
use inkstone::internals::options::Durability;
use inkstone::{
    Database, Error, Interrupt, Isolation, LockMode, Options, Table, Transaction, Wait,
};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use undo_support::{Rows, gauge, noise, open, rows_of};

/// Of the log, before undo is saved.
const SHARE: u64 = 256 << 10;

/// Changes a row for each number, with a round of maintenance now and then.
fn change_many(db: &Database, (count, share): (u64, u64), mut change: impl FnMut(u64)) {
    for n in 0..count {
        change(n);
        if n % 200 == 199 {
            db.maintain(share).unwrap();
        }
    }
}

/// Rows of three tables; updates, deletes, revivals and inserts by one transaction, over several
/// times the share that it has of the log.
#[test]
fn a_large_transaction_is_undone_after_a_crash() {
    for seed in 0..6 {
        let vfs = SimVfs::new(seed);
        let db = open(&vfs);
        let tables: Vec<Table> = ["a", "b", "c"]
            .iter()
            .map(|name| db.create_table(name, &["second"]).unwrap())
            .collect();
        for table in &tables {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for n in 0..300u64 {
                let value = format!("old value of {n}");
                txn.insert(table, &n.to_be_bytes(), value.as_bytes())
                    .unwrap();
            }
            txn.commit_with(Durability::Sync).unwrap();
        }
        let before: Vec<Rows> = tables.iter().map(|table| rows_of(&db, table)).collect();
        let loser = db.begin(Isolation::ReadCommitted).unwrap();
        change_many(&db, (6_000, SHARE), |n| change_one(&loser, &tables, n));
        loser.savepoint("middle").unwrap();
        change_many(&db, (6_000, SHARE), |n| {
            change_one(&loser, &tables, 6_000 + n);
        });
        let counted = |counter| db.counters().get(counter);
        assert_eq!(counted(Counter::UndoMoves), 1);
        assert!(
            counted(Counter::UndoSaves) >= 3,
            "{}",
            counted(Counter::UndoSaves)
        );
        if seed >= 4 {
            loser.rollback_to_savepoint("middle").unwrap();
        }
        db.flush_log().unwrap();
        let vfs = if seed % 2 == 0 {
            vfs.kill()
        } else {
            vfs.crash(seed)
        };
        drop((loser, tables, db));
        let db = open(&vfs);
        let recovered = db.open_report().recovered.clone().unwrap();
        assert_eq!((recovered.losers, recovered.rows_undone), (1, 0));
        let (left, text) = (recovered.rows_to_undo, recovered.transactions_text());
        assert!(
            text.contains(&format!("{left} to be undone behind the opening)")),
            "{text}"
        );
        for (name, before) in ["a", "b", "c"].iter().zip(&before) {
            let table = db.table(name).unwrap();
            // Whether it is undone yet or not.
            assert_eq!(&rows_of(&db, &table), before);
            assert_eq!(rows_of(&db, table.tree("second").unwrap()), []);
        }
        db.finish_rollbacks().unwrap();
        for (name, before) in ["a", "b", "c"].iter().zip(&before) {
            let table = db.table(name).unwrap();
            assert_eq!(&rows_of(&db, &table), before);
            assert_eq!(rows_of(&db, table.tree("second").unwrap()), []);
            db.verify_table(&table).unwrap();
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for (key, _) in before {
                txn.update(&table, key, b"new").unwrap();
            }
            txn.commit().unwrap();
        }
        let (told, heard) = std::sync::mpsc::channel();
        db.tell_when_recovered(Arc::new(move |text| drop(told.send(text.to_owned()))));
        let wanted =
            format!("rollback behind the opening is complete: {left} row changes undone, ");
        let minute = std::time::Duration::from_secs(60);
        while !heard.recv_timeout(minute).unwrap().starts_with(&wanted) {}
    }
}

fn change_one(txn: &Transaction, tables: &[Table], n: u64) {
    let table = &tables[(n % 3) as usize];
    let old = (n * 7 % 300).to_be_bytes();
    match n % 8 {
        0 => drop(txn.upsert(table, &old, &n.to_be_bytes()).unwrap()),
        // It may be gone already.
        1 => drop(txn.delete(table, &old)),
        2 => drop(txn.upsert(table, &old, &noise(n, 300)).unwrap()),
        _ => {
            let key = (1000 + n).to_be_bytes();
            txn.insert(table, &key, &noise(n, 300)).unwrap();
            let hashed = noise(n, 8);
            let second = table.tree("second").unwrap();
            txn.insert(second, &hashed, &key).unwrap();
        }
    }
}

/// What a loser has changed is locked and invisible before any of it is undone.
#[test]
fn rows_of_a_loser_are_locked_until_they_are_undone() {
    let vfs = SimVfs::new(3);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..100u64 {
        txn.insert(&table, &n.to_be_bytes(), b"old").unwrap();
    }
    txn.prepare(b"x").unwrap();
    db.commit_prepared(b"x").unwrap();
    let loser = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 50..150u64 {
        loser.upsert(&table, &n.to_be_bytes(), b"new").unwrap();
    }
    loser.prepare(b"y").unwrap();
    db.maintain(0).unwrap();
    assert_eq!(db.counters().get(Counter::UndoSaves), 1);
    let vfs = vfs.crash(3);
    drop((table, db));
    let db = open(&vfs);
    let table = db.table("t").unwrap();
    let rows = rows_of(&db, &table);
    assert_eq!(rows.len(), 100);
    assert!(rows.iter().all(|(_, value)| value == b"old"));
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.set_lock_wait_timeout(std::time::Duration::ZERO);
    txn.update(&table, &49u64.to_be_bytes(), b"mine").unwrap();
    for n in [50u64, 99, 149] {
        let refused = txn.upsert(&table, &n.to_be_bytes(), b"mine");
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "{n}: {refused:?}"
        );
    }
    txn.commit().unwrap();
    db.rollback_prepared(b"y").unwrap();
    let rows = rows_of(&db, &table);
    assert_eq!(rows.len(), 100);
    let mine = |(key, value): &(Vec<u8>, Vec<u8>)| (key[7] == 49) == (value == b"mine");
    assert!(rows.iter().all(mine));
    db.verify_table(&table).unwrap();
}

/// What is left of a loser is shown while it is undone.
#[test]
fn changes_of_a_loser_are_counted_down() {
    const ROWS: u64 = 20_000;
    let vfs = SimVfs::new(3);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let loser = db.begin(Isolation::ReadCommitted).unwrap();
    change_many(&db, (ROWS, SHARE), |n| {
        loser
            .insert(&table, &n.to_be_bytes(), &noise(n, 40))
            .unwrap();
    });
    db.flush_log().unwrap();
    let vfs = vfs.crash(3);
    drop((loser, table, db));
    let db = open(&vfs);
    let left = || gauge(&db, "undo_recovered_changes");
    let all = left();
    assert!(all > ROWS / 2, "{all} changes to undo");
    std::thread::scope(|s| {
        let undoing = s.spawn(|| db.finish_rollbacks().unwrap());
        let mut before = all;
        let mut steps = 0;
        while !undoing.is_finished() {
            let now = left();
            assert!(now <= before);
            steps += u64::from(now < before);
            before = now;
        }
        assert!(steps > 2, "seen to fall {steps} times");
    });
    assert_eq!(left(), 0);
    assert_eq!(rows_of(&db, &db.table("t").unwrap()), []);
}

/// The log that a transaction keeps is bounded, however long it stays open.
#[test]
fn an_idle_transaction_does_not_keep_the_log() {
    let vfs = SimVfs::new(5);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let idle = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..10u64 {
        idle.insert(&table, &(1 << 32 | n).to_be_bytes(), b"idle")
            .unwrap();
    }
    let mut longest = 0;
    for n in 0..20_000_u64 {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.upsert(&table, &(n % 500).to_be_bytes(), &noise(n, 600))
            .unwrap();
        txn.commit().unwrap();
        if n % 500 == 0 {
            db.checkpoint().unwrap();
            db.maintain(SHARE).unwrap();
            longest = longest.max(gauge(&db, "log_kept_bytes"));
        }
    }
    assert!(longest < 3 << 20, "{longest} bytes of log were kept");
    let saves = db.counters().get(Counter::UndoSaves);
    assert!((3..200).contains(&saves), "{saves} times saved");
    // Of ten rows: a block for their versions, and for each save one for the list; one may not be
    // named yet.
    let saved = db.counters().get(Counter::UndoBytesSaved);
    assert!(saved <= 4096 * (saves + 2), "{saved} bytes, {saves} saves");
    idle.rollback().unwrap();
    assert_eq!(rows_of(&db, &table).len(), 500);
    db.close().unwrap();
}

/// An opening would hold in memory what is not saved of all large transactions: with little memory
/// for versions they save sooner than a large log asks for.
#[test]
fn what_is_not_saved_of_all_fits_the_memory_for_versions() {
    let vfs = SimVfs::new(8);
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 8 << 20,
        log_file_size: 64 << 20,
        version_store_memory: 2 << 20,
        ..Options::default()
    };
    let db = Database::open_on(Arc::new(vfs), Path::new("db"), options, &|_| {}).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let rows = 6_000u64;
    let filling = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..rows {
        filling
            .insert(&table, &n.to_be_bytes(), &noise(n, 600))
            .unwrap();
    }
    filling.commit().unwrap();
    let counted = || db.counters().get(Counter::UndoSaves);
    let before = counted();
    // A third of what the log alone lets each keep.
    let giants = [0, 1].map(|_| db.begin(Isolation::ReadCommitted).unwrap());
    for n in 0..rows {
        giants[n as usize % 2]
            .update(&table, &n.to_be_bytes(), &noise(n + rows, 600))
            .unwrap();
        if n == 400 {
            db.maintain(u64::MAX).unwrap();
            assert_eq!(counted(), before, "little is not saved");
        }
    }
    // The background may be in the midst of a save, which counts behind it.
    let begun = std::time::Instant::now();
    db.maintain(u64::MAX).unwrap();
    while counted() < before + 2 {
        let waited = begun.elapsed();
        let saves = counted() - before;
        assert!(waited < Duration::from_secs(60), "{saves} saves");
        std::thread::sleep(Duration::from_millis(1));
    }
    for giant in giants {
        giant.rollback().unwrap();
    }
    assert_eq!(rows_of(&db, &table).len() as u64, rows);
    db.close().unwrap();
}

/// A scan may begin between inserts that are coded against each other, just before a record that
/// says that undo from before them is saved, and needs none of them. Here one of several distances
/// has it begin there.
#[test]
fn a_scan_begins_anywhere_before_what_is_saved() {
    for distance in (20..60).step_by(4) {
        let was_seen = (0..20).any(|_| scan_begins_before_what_is_saved(distance));
        assert!(
            was_seen,
            "the checkpoint of the background is first, again and again"
        );
    }
}

/// False: the checkpoint of the background has saved what is to be saved here.
fn scan_begins_before_what_is_saved(distance: u64) -> bool {
    let vfs = SimVfs::new(distance);
    let db = open(&vfs);
    let (table, other) = (
        db.create_table("t", &[]).unwrap(),
        db.create_table("other", &[]).unwrap(),
    );
    let giant = db.begin(Isolation::ReadCommitted).unwrap();
    let mut n = 0u64;
    let mut insert = |rows: u64| {
        for _ in 0..rows {
            giant.insert(&table, &n.to_be_bytes(), b"giant").unwrap();
            n += 1;
        }
    };
    // Until it has given the checkpoint what is to be saved: that is called saved between two
    // inserts later.
    insert(8_300);
    let saves = db.counters().get(Counter::UndoSaves);
    insert(30);
    db.maintain(u64::MAX).unwrap();
    if db.counters().get(Counter::UndoSaves) != saves + 1 {
        return false;
    }
    insert(100);
    db.maintain(0).unwrap();
    for step in 0..distance {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..20u64 {
            txn.upsert(&other, &n.to_be_bytes(), &noise(step << 8 | n, 300))
                .unwrap();
        }
        txn.commit().unwrap();
        db.maintain(u64::MAX).unwrap();
    }
    db.checkpoint().unwrap();
    db.flush_log().unwrap();
    let vfs = vfs.kill();
    drop((giant, table, other, db));
    let db = open(&vfs);
    db.finish_rollbacks().unwrap();
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    assert_eq!(rows_of(&db, &table), []);
    assert_eq!(rows_of(&db, &other).len(), 20);
    db.close().unwrap();
    true
}

/// A savepoint from before the move is a place to go back to after it.
#[test]
fn savepoints_outlive_the_move() {
    let vfs = SimVfs::new(6);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(&table, b"first", b"1").unwrap();
    let mark = txn.mark().unwrap();
    txn.insert(&table, b"second", b"2").unwrap();
    txn.savepoint("s").unwrap();
    txn.update(&table, b"first", b"3").unwrap();
    db.maintain(0).unwrap();
    txn.update(&table, b"first", b"4").unwrap();
    txn.rollback_to_savepoint("s").unwrap();
    assert_eq!(txn.get(&table, b"first").unwrap().unwrap(), b"1");
    txn.insert(&table, b"third", b"5").unwrap();
    txn.rollback_to_mark(mark).unwrap();
    txn.insert(&table, b"fourth", b"6").unwrap();
    db.maintain(0).unwrap();
    txn.commit().unwrap();
    let rows = rows_of(&db, &table);
    let keys: Vec<_> = rows.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"first"[..], b"fourth"]);
}

/// The log that an open transaction keeps slows no other transaction down: pauses would not end it.
#[test]
fn an_open_transaction_larger_than_the_log_slows_no_other_down() {
    let vfs = SimVfs::new(7);
    let db = open(&vfs);
    let (large, small) = (
        db.create_table("large", &[]).unwrap(),
        db.create_table("small", &[]).unwrap(),
    );
    let write = |txn: &Transaction, changed: usize| {
        for n in 0..40_000_u64 {
            let mut value = noise(n, 300);
            value[..changed].fill(7);
            txn.upsert(&large, &n.to_be_bytes(), &value).unwrap();
        }
    };
    let first = db.begin(Isolation::ReadCommitted).unwrap();
    write(&first, 0);
    first.commit().unwrap();
    let giant = db.begin(Isolation::ReadCommitted).unwrap();
    // Half of each value: a copy of the undo would take about as much log as the changes have.
    write(&giant, 150);
    db.checkpoint().unwrap();
    let waits = || db.counters().get(Counter::CheckpointWaits);
    let before = waits();
    for n in 0..2_000_u64 {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.upsert(&small, &(n % 500).to_be_bytes(), &noise(n, 100))
            .unwrap();
        txn.commit().unwrap();
        if n % 200 == 0 {
            // No page is old.
            db.checkpoint().unwrap();
        }
    }
    assert_eq!(waits(), before);
    giant.rollback().unwrap();
    assert!(rows_of(&db, &large)[7].1 == noise(7, 300));
    assert_eq!(rows_of(&db, &small).len(), 500);
}

/// Transactions of many times the log, and their rollbacks, beside small ones and an idle one.
#[test]
fn the_log_is_no_longer_than_its_size() {
    let vfs = SimVfs::new(8);
    let db = open(&vfs);
    let (large, small) = (
        db.create_table("large", &["second"]).unwrap(),
        db.create_table("small", &[]).unwrap(),
    );
    let done = AtomicBool::new(false);
    let longest = AtomicU64::new(0);
    let idle = db.begin(Isolation::ReadCommitted).unwrap();
    idle.insert(&small, b"idle", b"1").unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let now = vfs.bytes_in(Path::new("db/log"));
                longest.fetch_max(now, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for thread in 0..2u64 {
            let (db, small, done) = (&db, &small, &done);
            s.spawn(move || {
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    let txn = db.begin(Isolation::ReadCommitted).unwrap();
                    let key = (n % 100 + thread * 1000).to_be_bytes();
                    txn.upsert(small, &key, &noise(n, 400)).unwrap();
                    txn.commit_with(Durability::Write).unwrap();
                }
            });
        }
        let rows = 10_000u64;
        let change = |case: u64, n: u64, txn: &Transaction| {
            let key = (n * 7919 % rows).to_be_bytes();
            match case {
                0 => {
                    txn.insert(&large, &key, &noise(n, 300)).unwrap();
                    let second = large.tree("second").unwrap();
                    txn.insert(second, &noise(n, 12), &key).unwrap();
                }
                1 => drop(txn.upsert(&large, &key, &noise(n + 1, 350)).unwrap()),
                _ => drop(txn.delete(&large, &key).unwrap()),
            }
        };
        for case in 0..3 {
            for committed in [false, true] {
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                for n in 0..rows {
                    change(case, n, &txn);
                }
                if committed {
                    txn.commit().unwrap();
                } else {
                    txn.rollback().unwrap();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let longest = longest.into_inner();
    assert!(longest <= 4 << 20, "{longest} bytes of log");
    assert!(longest > 2 << 20, "{longest} bytes of log");
    assert!(db.counters().get(Counter::LogBytes) > 20 << 20);
    idle.rollback().unwrap();
    assert_eq!(rows_of(&db, &large), []);
    db.verify_table(&large).unwrap();
    db.close().unwrap();
}

/// However a large transaction waits for a lock: others write many times the log meanwhile. (A
/// locking scan waited with the transaction's latch and saved nothing: after ten seconds they were
/// refused.)
#[test]
fn a_transaction_that_waits_for_a_lock_keeps_no_log() {
    type Waits = fn(&Transaction, &Table);
    let ways: [(&str, Waits); 3] = [
        ("a write", |txn, table| {
            assert!(txn.delete(table, b"held").unwrap());
        }),
        ("a read", |txn, table| {
            let found = txn.get_locking(table, b"held", LockMode::Shared, Wait::Timeout);
            assert!(found.unwrap().is_some());
        }),
        ("a scan", |txn, table| {
            let rows = txn.range_locking(table, .., LockMode::Exclusive, Wait::Timeout);
            let rows: Vec<_> = rows.unwrap().map(|row| row.unwrap()).collect();
            assert_eq!(rows.len(), 1);
        }),
    ];
    for (name, wait) in ways {
        let vfs = SimVfs::new(12);
        let db = open(&vfs);
        let [held, large, small] = ["held", "large", "small"].map(|name| {
            let made = db.create_table(name, &[]);
            made.unwrap()
        });
        let holder = db.begin(Isolation::ReadCommitted).unwrap();
        holder.insert(&held, b"held", b"1").unwrap();
        let waiter = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..1500u64 {
            let key = (n * 7919).to_be_bytes();
            waiter.insert(&large, &key, &noise(n, 300)).unwrap();
        }
        std::thread::scope(|s| {
            s.spawn(|| wait(&waiter, &held));
            while db.counters().get(Counter::LockWaits) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            for n in 0..40_000u64 {
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                let written = txn.upsert(&small, &(n % 100).to_be_bytes(), &noise(n, 400));
                written.unwrap_or_else(|error| panic!("beside {name} that waits: {error}"));
                txn.commit_with(Durability::Lazy).unwrap();
            }
            holder.commit().unwrap();
        });
        assert!(db.counters().get(Counter::LogBytes) > 12 << 20);
        waiter.rollback().unwrap();
        assert_eq!(rows_of(&db, &large), []);
        db.close().unwrap();
    }
}

/// A step of a rollback may log a split of pages of 64 KiB, more than the log has room for at
/// times, with a log of 4 MiB: it waits for that. (It failed at once.)
#[test]
fn a_rollback_to_a_savepoint_waits_for_room() {
    let vfs = SimVfs::new(13);
    let options = Options {
        page_size: 64 << 10,
        buffer_pool_size: 8 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    };
    let db = Database::open_on(Arc::new(vfs), Path::new("db"), options, &|_| {}).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let (giant, done) = (
        db.begin(Isolation::ReadCommitted).unwrap(),
        AtomicBool::new(false),
    );
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 0..20_000u64 {
                let key = [&[200], &noise(n, 12)[..]].concat();
                giant.insert(&table, &key, &noise(n, 300)).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        for n in 0u64.. {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.savepoint("s").unwrap();
            for row in 0..50 {
                let key = [&n.to_be_bytes()[..], &[row]].concat();
                let long = if row % 50 == n as u8 % 50 {
                    20_000
                } else {
                    100
                };
                txn.insert(&table, &key, &noise(n, long)).unwrap();
            }
            txn.rollback_to_savepoint("s").unwrap();
            txn.insert(&table, &n.to_be_bytes(), b"kept").unwrap();
            txn.commit_with(Durability::Lazy).unwrap();
            if done.load(Ordering::Relaxed) && n >= 3000 {
                break;
            }
        }
    });
    giant.rollback().unwrap();
    db.verify_table(&table).unwrap();
    db.close().unwrap();
}

/// Files that a larger log has left go, first those that are spare.
#[test]
fn a_log_that_is_opened_smaller_gives_files_back() {
    let vfs = SimVfs::new(11);
    let open = |log_file_size| {
        let options = Options {
            page_size: 4096,
            buffer_pool_size: 1 << 20,
            log_file_size,
            ..Options::default()
        };
        Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
    };
    let write = |db: &Database, bytes: u64| {
        let table = db.table("t").or_else(|_| db.create_table("t", &[]));
        let table = table.unwrap();
        for n in 0..bytes / 500 {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.upsert(&table, &(n % 1000).to_be_bytes(), &noise(n, 400))
                .unwrap();
            txn.commit_with(Durability::Write).unwrap();
        }
    };
    let log_files = || vfs.bytes_in(Path::new("db/log"));
    let db = open(64 << 20);
    // Where writers are slow the checkpoint keeps up with them, and the log stays short.
    for _ in 0..10 {
        write(&db, 80 << 20);
        if log_files() > 40 << 20 {
            break;
        }
    }
    db.close().unwrap();
    let large = log_files();
    assert!(large > 32 << 20, "{large} bytes of log");
    for small in [32 << 20, 16 << 20] {
        let db = open(small);
        write(&db, small);
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while log_files() > small && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let left = log_files();
        assert!(left <= small, "{left} bytes of log, of {small}");
        db.close().unwrap();
    }
}

/// DDL waits for the rollback of what an earlier run has left only where that has changed rows.
#[test]
fn a_loser_of_one_table_keeps_no_other_table_waiting() {
    let vfs = SimVfs::new(5);
    let db = open(&vfs);
    let changed = db.create_table("changed", &[]).unwrap();
    db.create_table("other", &[]).unwrap();
    let loser = db.begin(Isolation::ReadCommitted).unwrap();
    change_many(&db, (6_000, SHARE), |n| {
        loser
            .insert(&changed, &n.to_be_bytes(), &noise(n, 300))
            .unwrap();
    });
    assert_eq!(db.counters().get(Counter::UndoMoves), 1);
    db.flush_log().unwrap();
    let vfs = vfs.crash(5);
    drop((loser, changed, db));
    let db = open(&vfs);
    let (changed, other) = (db.table("changed").unwrap(), db.table("other").unwrap());
    db.wait_for_prepared(&other, Duration::ZERO, None).unwrap();
    let interrupt = Interrupt::new();
    interrupt.raise();
    let refused = db.wait_for_prepared(&changed, Duration::ZERO, Some(&interrupt));
    let is_undone = gauge(&db, "undo_recovered_changes") == 0;
    let waits = matches!(refused, Err(Error::Interrupted));
    assert!(waits || is_undone && refused.is_ok(), "{refused:?}");
    // Also in the midst of it.
    std::thread::scope(|scope| {
        let undoes = scope.spawn(|| db.finish_rollbacks());
        while !undoes.is_finished() {
            db.wait_for_prepared(&other, Duration::ZERO, None).unwrap();
        }
        undoes.join().unwrap().unwrap();
    });
    db.wait_for_prepared(&changed, Duration::ZERO, None)
        .unwrap();
}
