//! Transactions that outgrow the log: their undo is copied forward, more than once, and is all
//! there after a crash; what the copies take stays in proportion.

use inkstone::counters::Counter;
use inkstone::options::Durability;
use inkstone::{Database, Isolation, Options, Table, Transaction, TreeRef};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

/// Of the log, before undo is copied forward.
const SHARE: u64 = 256 << 10;

/// A frame of a copy, and more.
const PART: u64 = 256 << 10;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn rows_of(db: &Database, table: &impl TreeRef) -> Rows {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let all = txn.range(table, ..).unwrap();
    all.map(|row| row.unwrap()).collect()
}

/// Bytes that no log can shorten, the same for the same number.
fn noise(n: u64, len: usize) -> Vec<u8> {
    let mut state = n;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Changes a row for each number, with a round of maintenance now and then: what was logged for it,
/// copies with it.
fn log_bytes(db: &Database, (count, share): (u64, u64), mut change: impl FnMut(u64)) -> u64 {
    let before = db.counters().get(Counter::LogBytes);
    for n in 0..count {
        change(n);
        if n % 200 == 199 {
            db.maintain(share).unwrap();
        }
    }
    db.counters().get(Counter::LogBytes) - before
}

/// Rows of three tables; updates, deletes, revivals and inserts by one transaction, over several
/// times the share that it has of the log.
#[test]
fn a_loser_whose_undo_was_copied_several_times_is_rolled_back() {
    for seed in 0..4 {
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
        log_bytes(&db, (12_000, SHARE), |n| {
            let table = &tables[(n % 3) as usize];
            let old = (n * 7 % 300).to_be_bytes();
            match n % 8 {
                0 => drop(loser.upsert(table, &old, &n.to_be_bytes()).unwrap()),
                // It may be gone already.
                1 => drop(loser.delete(table, &old)),
                2 => drop(loser.upsert(table, &old, &noise(n, 300)).unwrap()),
                _ => {
                    let key = (1000 + n).to_be_bytes();
                    loser.insert(table, &key, &noise(n, 300)).unwrap();
                    let hashed = noise(n, 8);
                    let second = table.tree("second").unwrap();
                    loser.insert(second, &hashed, &key).unwrap();
                }
            }
        });
        let copies = db.counters().get(Counter::UndoCopies);
        assert!(copies >= 3, "{copies} copies");
        db.flush_log().unwrap();
        let vfs = if seed % 2 == 0 {
            vfs.kill()
        } else {
            vfs.crash(seed)
        };
        drop((loser, tables, db));
        let db = open(&vfs);
        let recovered = db.open_report().recovered.clone().unwrap();
        assert_eq!(recovered.losers, 1);
        assert!(recovered.rows_undone > 10_000);
        for (name, before) in ["a", "b", "c"].iter().zip(&before) {
            let table = db.table(name).unwrap();
            assert_eq!(&rows_of(&db, &table), before);
            assert_eq!(rows_of(&db, table.tree("second").unwrap()), []);
            db.verify_table(&table).unwrap();
        }
    }
}

/// Log bytes of a transaction.
struct Copied {
    copies: u64,
    rest: u64,
    given_up: u64,
}

fn copied(rows: u64, change: impl Fn(&Transaction, &Table, u64)) -> Copied {
    let vfs = SimVfs::new(1);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let bytes = log_bytes(&db, (rows, SHARE / 2), |n| change(&txn, &table, n));
    let copies = db.counters().get(Counter::UndoCopyBytes);
    let given_up = db.counters().get(Counter::UndoCopiesGivenUp);
    txn.rollback().unwrap();
    assert_eq!(rows_of(&db, &table), []);
    let rest = bytes - copies;
    println!("{rows} changes: {copies} bytes of copies, {rest} besides");
    assert!(copies <= rest / 2 + PART);
    Copied {
        copies,
        rest,
        given_up,
    }
}

/// The log from before the copy counts.
#[test]
fn a_loser_whose_copy_was_given_up_is_rolled_back() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let change_all = |txn: &Transaction, round: u8| {
        for n in 0..100u64 {
            let mut value = noise(n, 700);
            value[0] = round;
            txn.upsert(&table, &n.to_be_bytes(), &value).unwrap();
        }
    };
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    change_all(&txn, 0);
    txn.commit_with(Durability::Sync).unwrap();
    let before = rows_of(&db, &table);
    let loser = db.begin(Isolation::ReadCommitted).unwrap();
    for round in 1..=20 {
        change_all(&loser, round);
    }
    db.maintain(0).unwrap();
    assert_eq!(db.counters().get(Counter::UndoCopiesGivenUp), 1);
    change_all(&loser, 21);
    db.flush_log().unwrap();
    let vfs = vfs.kill();
    drop((loser, table, db));
    let db = open(&vfs);
    let recovered = db.open_report().recovered.clone().unwrap();
    assert_eq!((recovered.losers, recovered.rows_undone), (1, 2100));
    assert_eq!(rows_of(&db, &db.table("t").unwrap()), before);
}

/// All that is not undone has to be copied each time. So that this does not grow with the square of
/// the transaction, copies get rarer, and are not made where they take more than they free.
#[test]
fn copies_take_at_most_half_of_the_rest_of_the_log() {
    for rows in [2_000, 8_000, 32_000] {
        let random_keys = copied(rows, |txn, table, n| {
            let key = noise(n, 8);
            txn.insert(table, &key, &n.to_be_bytes()).unwrap();
        });
        let ascending_keys = copied(rows, |txn, table, n| {
            let value = noise(n, 8);
            txn.insert(table, &n.to_be_bytes(), &value).unwrap();
        });
        // A byte of a long value: its undo is the value, its log the byte.
        let updates = copied(rows, |txn, table, n| {
            let mut value = noise(n % 100, 700);
            value[0] = n as u8;
            txn.upsert(table, &(n % 100).to_be_bytes(), &value).unwrap();
        });
        if rows == 32_000 {
            assert!(random_keys.copies > 0);
            assert!(ascending_keys.copies < ascending_keys.rest / 4);
            assert!(updates.given_up > 0);
        }
    }
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
