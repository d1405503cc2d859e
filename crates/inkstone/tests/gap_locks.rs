//! Locking reads of ranges at `LockingRepeatableRead`: the gaps that a cursor passes are locked,
//! against inserts and nothing else.

mod common;

use common::{blocked, commit, key, number, open, rows, val, within};
use inkstone::Isolation::{LockingRepeatableRead, ReadCommitted, Serializable};
use inkstone::LockMode::{Exclusive, Shared};
use inkstone::{Database, Error, LockMode, Result, Table, Transaction, Wait};
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

/// Rows 10, 20, 30, 40, 50.
struct Case {
    db: Database,
    table: Table,
    _dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            for n in (10..=50).step_by(10) {
                txn.insert(&table, &key(n), &val(n as i64)).unwrap();
            }
        });
        Self {
            db,
            table,
            _dir: dir,
        }
    }

    fn begin(&self) -> Transaction {
        self.db.begin(LockingRepeatableRead).unwrap()
    }

    /// Which of the keys another transaction may insert now, and which it may update.
    fn free(&self, keys: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let txn = self.db.begin(ReadCommitted).unwrap();
        txn.set_lock_wait_timeout(Duration::from_millis(5));
        let mut free = Vec::new();
        for k in keys {
            match txn.upsert(&self.table, &key(k), b"0") {
                Ok(_) => free.push(k),
                Err(Error::LockTimeout { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        txn.rollback().unwrap();
        free
    }
}

fn locked<'k>(
    txn: &Transaction,
    table: &Table,
    range: impl RangeBounds<&'k [u8]>,
    mode: LockMode,
    take: usize,
) -> Vec<u64> {
    let cursor = txn.range_locking(table, range, mode, Wait::Timeout);
    let rows = cursor.unwrap().take(take);
    rows.map(|row| number(&row.unwrap().0)).collect()
}

#[test]
fn what_a_scan_has_passed_is_locked_and_nothing_else() {
    within(60, || {
        for mode in [Shared, Exclusive] {
            let case = Case::new();
            let txn = case.begin();
            let (low, high) = (key(15), key(35));
            let range = || &low[..]..&high[..];
            assert_eq!(locked(&txn, &case.table, range(), mode, 1), [20]);
            assert_eq!(case.free([10, 14, 21, 29, 30]), [10, 14, 21, 29, 30]);
            assert_eq!(case.free([15, 19, 20]), []);
            assert_eq!(locked(&txn, &case.table, range(), mode, 9), [20, 30]);
            assert_eq!(case.free([14, 15, 25, 30, 34, 35, 40]), [14, 35, 40]);
            txn.commit().unwrap();
            assert_eq!(case.free([15, 20, 25, 30, 34]), [15, 20, 25, 30, 34]);
        }
    });
}

#[test]
fn backwards_and_to_the_ends() {
    within(60, || {
        let case = Case::new();
        let txn = case.begin();
        let mut scan = txn
            .locking_scan_of(&case.table, .., true, Exclusive, Wait::Timeout)
            .unwrap();
        assert!(scan.next_row(&txn).unwrap());
        assert_eq!(number(scan.key()), 50);
        assert_eq!(case.free([45, 50, 55]), [45]);
        assert!(scan.next_row(&txn).unwrap());
        assert_eq!(case.free([39, 40, 41, 45]), [39]);
        txn.commit().unwrap();

        let txn = case.begin();
        let low = key(45);
        assert_eq!(locked(&txn, &case.table, &low[..].., Shared, 9), [50]);
        assert_eq!(case.free([44, 45, 51, u64::MAX]), [44]);
        // An empty range is locked too, and both may lock it.
        let other = case.begin();
        let (low, high) = (key(60), key(70));
        assert_eq!(
            locked(&other, &case.table, &low[..]..&high[..], Exclusive, 9),
            []
        );
        txn.commit().unwrap();
        assert_eq!(case.free([59, 60, 69, 70]), [59, 70]);
    });
}

#[test]
fn gaps_are_in_the_way_of_inserts_only() {
    within(60, || {
        let case = Case::new();
        commit(&case.db, |txn| {
            txn.delete(&case.table, &key(30)).unwrap();
        });
        let (txn, other) = (case.begin(), case.db.begin(ReadCommitted).unwrap());
        let (low, high) = (key(21), key(39));
        let range = || &low[..]..&high[..];
        assert_eq!(locked(&txn, &case.table, range(), Exclusive, 9), []);
        other.set_lock_wait_timeout(Duration::from_millis(5));
        // No row is there to be changed: that needs no wait.
        assert!(!other.delete(&case.table, &key(30)).unwrap());
        let missing = other.update(&case.table, &key(25), b"");
        assert!(matches!(missing, Err(Error::RowNotFound { .. })));
        let rows = [(key(11), val(1)), (key(25), val(1))];
        for refused in [
            other.insert(&case.table, &key(25), b""),
            // The place of a row that was deleted.
            other.insert(&case.table, &key(30), b""),
            other.upsert(&case.table, &key(30), b"").map(drop),
            other.insert_many(&case.table, rows).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::LockTimeout { .. })));
        }
        // Its own gaps are not in its way.
        txn.insert(&case.table, &key(25), b"1").unwrap();
        txn.commit().unwrap();
        other.insert(&case.table, &key(26), b"1").unwrap();
    });
}

/// As in InnoDB: both lock the same gap, and an insert of one waits for the other.
#[test]
fn two_that_insert_into_a_gap_of_both_are_a_deadlock() {
    within(60, || {
        let case = Case::new();
        let (t1, t2) = (case.begin(), case.begin());
        let (low, high) = (key(21), key(29));
        for txn in [&t1, &t2] {
            assert_eq!(
                locked(txn, &case.table, &low[..]..&high[..], Exclusive, 9),
                []
            );
        }
        let insert = |txn: &Transaction, k| txn.insert(&case.table, &key(k), b"1");
        let outcomes = scope(|s| {
            let first = blocked(s, || insert(&t1, 22));
            let second = insert(&t2, 23);
            [first.join().unwrap(), second]
        });
        let dead = |r: &&Result<()>| matches!(r, Err(Error::Deadlock));
        assert_eq!(outcomes.iter().filter(dead).count(), 1);
    });
}

#[test]
fn plain_reads_keep_the_snapshot_and_writes_take_the_newest() {
    within(60, || {
        let case = Case::new();
        let txn = case.begin();
        assert_eq!(common::read(&txn, &case.table, 10), Some(10));
        commit(&case.db, |other| {
            other.update(&case.table, &key(10), &val(11)).unwrap();
            other.insert(&case.table, &key(60), &val(60)).unwrap();
        });
        assert_eq!(common::read(&txn, &case.table, 10), Some(10));
        assert_eq!(common::read(&txn, &case.table, 60), None);
        let newest = txn.get_locking(&case.table, &key(10), Exclusive, Wait::Timeout);
        assert_eq!(newest.unwrap(), Some(val(11)));
        assert_eq!(locked(&txn, &case.table, .., Shared, 9).last(), Some(&60));
        txn.update(&case.table, &key(10), &val(12)).unwrap();
        assert_eq!(common::read(&txn, &case.table, 10), Some(12));
        txn.commit().unwrap();
        assert_eq!(rows(&case.db, &case.table)[0], (10, 12));
    });
}

/// Queue workers at serializable, each of which takes the first row that is free.
#[test]
fn skip_locked_works_at_every_level() {
    within(60, || {
        for level in [ReadCommitted, LockingRepeatableRead, Serializable] {
            let case = Case::new();
            let workers: Vec<Transaction> = (0..6).map(|_| case.db.begin(level).unwrap()).collect();
            let mut taken = Vec::new();
            for worker in &workers {
                let mut cursor = worker
                    .range_locking(&case.table, .., Exclusive, Wait::SkipLocked)
                    .unwrap();
                taken.extend(cursor.next_row().unwrap().map(|(k, _)| number(&k)));
            }
            assert_eq!(taken, [10, 20, 30, 40, 50], "{level:?}");
            for (worker, k) in workers.into_iter().zip(taken) {
                assert!(worker.delete(&case.table, &key(k)).unwrap());
                worker.commit().unwrap();
            }
        }
    });
}

/// As InnoDB has it: the gap in front of a row that is skipped stays free, of a range that others
/// scan to a row behind it, too.
#[test]
fn the_gap_in_front_of_a_skipped_row_is_not_locked() {
    within(60, || {
        let case = Case::new();
        let other = case.begin();
        let taken = locked(
            &other,
            &case.table,
            &key(30)[..]..=&key(30)[..],
            Exclusive,
            9,
        );
        assert_eq!(taken, [30]);
        let skip = |txn: &Transaction, low: u64, high: u64| -> Vec<u64> {
            let (low, high) = (key(low), key(high));
            let rows =
                txn.range_locking(&case.table, &low[..]..=&high[..], Shared, Wait::SkipLocked);
            rows.unwrap().map(|row| number(&row.unwrap().0)).collect()
        };
        let txn = case.begin();
        assert_eq!(skip(&txn, 15, 50), [20, 40, 50]);
        assert_eq!(case.free([17, 25, 30, 35, 45, 55]), [25, 55]);
        txn.rollback().unwrap();
        // The skipped row is the range's end.
        let txn = case.begin();
        assert_eq!(skip(&txn, 15, 30), [20]);
        assert_eq!(case.free([17, 25, 35]), [25, 35]);
        other.rollback().unwrap();
        // A serializable transaction has seen that nothing is there.
        let other = case.begin();
        locked(
            &other,
            &case.table,
            &key(30)[..]..=&key(30)[..],
            Exclusive,
            9,
        );
        let serializable = case.db.begin(Serializable).unwrap();
        assert_eq!(skip(&serializable, 15, 40), [20, 40]);
        assert_eq!(case.free([17, 25, 35, 45]), [45]);
    });
}

/// What a locking scan has seen does not change until its transaction ends, whatever others do.
#[test]
fn no_phantoms() {
    within(120, || {
        let case = Case::new();
        let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let enough = || written.load(Ordering::Relaxed) > 100;
        scope(|s| {
            let writers: Vec<_> = (0..3u64)
                .map(|seed| {
                    let (case, over, written) = (&case, &over, &written);
                    s.spawn(move || {
                        let mut x = seed + 1;
                        while !over.load(Ordering::Relaxed) {
                            x = x.wrapping_mul(6364136223846793005).wrapping_add(99991);
                            let k = key((x >> 33) % 64);
                            let txn = case.db.begin(ReadCommitted).unwrap();
                            let result = match x >> 62 {
                                0 => txn.delete(&case.table, &k).map(drop),
                                1 => {
                                    let rows =
                                        [(k.to_vec(), val(1)), ([&k[..], &k].concat(), val(2))];
                                    txn.insert_many(&case.table, rows).map(drop)
                                }
                                _ => txn.upsert(&case.table, &k, &[7; 300]).map(drop),
                            };
                            match result {
                                Ok(()) => txn.commit().unwrap(),
                                Err(Error::DuplicateKey { .. }) => txn.rollback().unwrap(),
                                Err(Error::Deadlock) => {}
                                Err(other) => panic!("{other}"),
                            }
                            written.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let mut whole = 0;
            // On a machine with one free core the writers hardly get a turn in 400 rounds.
            for round in (0u64..).take_while(|&round| round < 400 || !enough()) {
                let txn = case.begin();
                let (low, high) = (key(round * 7 % 50), key(round * 7 % 50 + 14));
                let backward = round % 2 == 0;
                let scan = || -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
                    let range = &low[..]..&high[..];
                    let mut scan =
                        txn.locking_scan_of(&case.table, range, backward, Shared, Wait::Timeout)?;
                    let mut rows = Vec::new();
                    while scan.next_row(&txn)? {
                        rows.push((scan.key().to_vec(), scan.value().to_vec()));
                    }
                    Ok(rows)
                };
                match (scan(), scan()) {
                    (Ok(first), Ok(second)) => {
                        assert_eq!(first, second, "round {round}");
                        whole += 1;
                        txn.commit().unwrap();
                    }
                    (Err(Error::Deadlock), _) | (_, Err(Error::Deadlock)) => {}
                    (first, second) => panic!("{:?} {:?}", first.err(), second.err()),
                }
            }
            assert!(whole > 100, "{whole} rounds came through");
            over.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|w| w.join().unwrap());
        });
        case.db.verify_table(&case.table).unwrap();
        assert_eq!(case.db.locks().unwrap().len(), 0);
    });
}
