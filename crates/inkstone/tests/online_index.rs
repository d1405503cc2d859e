//! Keys of rows that change are noted while an index is built beside their writers.

use inkstone::{
    ChangeTracker, Database, Durability, Error, Isolation, Options, Table, Transaction,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KEYS: u64 = 300;
const PATIENCE: Duration = Duration::from_secs(20);

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Numbers from a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn open(dir: &tempfile::TempDir) -> (Database, Table) {
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    (db, table)
}

fn all_rows(txn: &Transaction, table: &Table) -> Rows {
    let rows = txn.range(table, ..).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

fn write_one(txn: &Transaction, table: &Table, numbers: &mut Numbers) -> inkstone::Result<()> {
    let key = numbers.below(KEYS).to_be_bytes();
    let value = vec![numbers.below(200) as u8; 1 + numbers.below(400) as usize];
    match numbers.below(4) {
        0 => txn.delete(table, &key).map(drop),
        1 => {
            // A run, behind the others or among them.
            let first = numbers.below(2 * KEYS);
            let rows = (first..first + 20).map(|n| (n.to_be_bytes(), &value[..]));
            txn.insert_many(table, rows).map(drop)
        }
        _ => txn.upsert(table, &key, &value).map(drop),
    }
}

/// Transactions of a few writes, of which some are rolled back, as a whole or in part.
fn write(db: &Database, table: &Table, seed: u64, over: &AtomicBool) {
    let mut numbers = Numbers(seed);
    while !over.load(Ordering::Relaxed) {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let mark = txn.mark().unwrap();
        let mut is_doomed = false;
        for n in 0..1 + numbers.below(8) {
            match write_one(&txn, table, &mut numbers) {
                Ok(()) | Err(Error::DuplicateKey { .. }) => {}
                Err(Error::Deadlock) => {
                    is_doomed = true;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            if n == 3 && numbers.below(3) == 0 {
                txn.rollback_to_mark(mark).unwrap();
            }
        }
        match numbers.below(3) {
            _ if is_doomed => drop(txn),
            0 => txn.rollback().unwrap(),
            _ => txn.commit_with(Durability::Lazy).unwrap(),
        }
    }
}

/// Brings what stands for an index up to date: only rows that were noted may differ.
fn bring_up_to_date(
    tracker: &ChangeTracker,
    table: &Table,
    before: Transaction,
    index: &mut Rows,
) -> Transaction {
    let changed = tracker.changed_rows().unwrap().expect("they fit");
    for key in changed.keys {
        let old = before.get(table, &key).unwrap();
        assert_eq!(index.get(&key), old.as_ref(), "{key:?}");
        match changed.seen.get(table, &key).unwrap() {
            Some(new) => index.insert(key, new),
            None => index.remove(&key),
        };
    }
    assert!(all_rows(&changed.seen, table) == *index);
    changed.seen
}

#[test]
fn an_index_is_built_beside_writers() {
    let mut rounds_with_changes = 0;
    for seed in 1..=4 {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(&dir);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..KEYS / 2 {
            txn.insert(&table, &n.to_be_bytes(), b"first").unwrap();
        }
        txn.commit().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for n in 0..3 {
                let (db, table, over) = (&db, &table, &over);
                scope.spawn(move || write(db, table, 977 * seed + n, over));
            }
            std::thread::sleep(Duration::from_millis(20));
            let tracker = db.track_changes(&table, 16 << 20, Some(PATIENCE)).unwrap();
            let mut before = tracker.changed_rows().unwrap().expect("they fit").seen;
            let mut index = all_rows(&before, &table);
            for _ in 0..40 {
                let last = index.clone();
                before = bring_up_to_date(&tracker, &table, before, &mut index);
                rounds_with_changes += u32::from(last != index);
            }
            over.store(true, Ordering::Relaxed);
            // Writers of the last round are let end: then a round finds what they have changed.
            while db.transactions().iter().any(|trx| trx.changes > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
            bring_up_to_date(&tracker, &table, before, &mut index);
        });
    }
    assert!(rounds_with_changes > 20, "{rounds_with_changes}");
}

/// A key whose last writer was rolled back stays noted as long as one before may not be seen.
#[test]
fn a_rollback_hides_no_commit_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let tracker = db.track_changes(&table, 1 << 20, Some(PATIENCE)).unwrap();
    let first = tracker.changed_rows().unwrap().unwrap();
    assert!(first.keys.is_empty());
    let one = db.begin(Isolation::ReadCommitted).unwrap();
    one.insert(&table, b"k", b"1").unwrap();
    // It does not see it, but is told.
    let second = tracker.changed_rows().unwrap().unwrap();
    assert_eq!(second.keys, [b"k".to_vec()]);
    assert_eq!(second.seen.get(&table, b"k").unwrap(), None);
    one.commit().unwrap();
    let other = db.begin(Isolation::ReadCommitted).unwrap();
    other.update(&table, b"k", b"2").unwrap();
    other.rollback().unwrap();
    let third = tracker.changed_rows().unwrap().unwrap();
    assert_eq!(third.keys, [b"k".to_vec()]);
    assert_eq!(
        third.seen.get(&table, b"k").unwrap().as_deref(),
        Some(&b"1"[..])
    );
    // Once more, for a commit between its snapshot and the rollback could have been missed.
    assert_eq!(tracker.changed_rows().unwrap().unwrap().keys.len(), 1);
    assert!(tracker.changed_rows().unwrap().unwrap().keys.is_empty());
}

#[test]
fn tracking_waits_for_those_that_have_changed_the_table_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let other = db.create_table("other", &[]).unwrap();
    let short = Duration::from_millis(20);
    let elsewhere = db.begin(Isolation::ReadCommitted).unwrap();
    elsewhere.insert(&other, b"k", b"1").unwrap();
    drop(db.track_changes(&table, 1 << 20, Some(short)).unwrap());
    let here = db.begin(Isolation::ReadCommitted).unwrap();
    here.insert(&table, b"k", b"1").unwrap();
    let waited = db.track_changes(&table, 1 << 20, Some(short));
    assert!(
        matches!(waited, Err(Error::LockTimeout { .. })),
        "{waited:?}"
    );
    here.commit().unwrap();
    drop(db.track_changes(&table, 1 << 20, Some(short)).unwrap());
}

#[test]
fn too_many_changes_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(&dir);
    let tracker = db.track_changes(&table, 2_000, Some(PATIENCE)).unwrap();
    let enough = db.track_changes(&table, 200_000, Some(PATIENCE)).unwrap();
    for n in 0..50u64 {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.insert(&table, &n.to_be_bytes(), b"1").unwrap();
        txn.commit().unwrap();
        assert!(n > 10 || tracker.changed_rows().unwrap().is_some());
    }
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert_many(&table, (100..200u64).map(|n| (n.to_be_bytes(), b"1")))
        .unwrap();
    txn.commit().unwrap();
    assert!(tracker.changed_rows().unwrap().is_none());
    assert!(tracker.changed_rows().unwrap().is_none());
    assert_eq!(enough.changed_rows().unwrap().unwrap().keys.len(), 150);
}
