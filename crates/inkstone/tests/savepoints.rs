//! Undoing parts and wholes: savepoints, statements, rollbacks over splits and merges; and what old
//! snapshots see of rows that come and go.

mod common;

use common::{Random, all, blocked, commit, key, num, number, open, read, rows, val, within};
use inkstone::Isolation::{ReadCommitted, RepeatableRead};
use inkstone::{Error, Table, Transaction, TreeRef};
use std::collections::BTreeMap;
use std::thread::scope;

#[test]
fn savepoints_nest_replace_and_go() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        txn.savepoint("empty").unwrap();
        txn.insert(&table, &key(1), &val(1)).unwrap();
        txn.savepoint("a").unwrap();
        txn.insert(&table, &key(2), &val(2)).unwrap();
        txn.savepoint("b").unwrap();
        txn.update(&table, &key(1), &val(10)).unwrap();
        txn.delete(&table, &key(2)).unwrap();
        txn.rollback_to_savepoint("b").unwrap();
        assert_eq!(all(&txn, &table), [(1, 1), (2, 2)]);
        txn.rollback_to_savepoint("b").unwrap();
        txn.update(&table, &key(1), &val(11)).unwrap();
        txn.rollback_to_savepoint("a").unwrap();
        assert_eq!(all(&txn, &table), [(1, 1)]);
        assert!(matches!(
            txn.rollback_to_savepoint("b"),
            Err(Error::NotFound(_))
        ));
        txn.insert(&table, &key(3), &val(3)).unwrap();
        // Set again, it is the later one.
        txn.savepoint("a").unwrap();
        txn.insert(&table, &key(4), &val(4)).unwrap();
        txn.rollback_to_savepoint("a").unwrap();
        assert_eq!(all(&txn, &table), [(1, 1), (3, 3)]);
        txn.release_savepoint("a").unwrap();
        assert!(matches!(
            txn.release_savepoint("a"),
            Err(Error::NotFound(_))
        ));
        txn.rollback_to_savepoint("empty").unwrap();
        assert_eq!(all(&txn, &table), []);
        txn.insert(&table, &key(5), &val(5)).unwrap();
        txn.commit().unwrap();
        assert_eq!(rows(&db, &table), [(5, 5)]);
    });
}

#[test]
fn changed_rows_are_counted_without_what_was_undone() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &["other"]).unwrap();
        let other = table.tree("other").unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        let counts = || {
            let all = db.transactions();
            (all[0].rows, all[0].changes)
        };
        txn.insert(&table, &key(1), &val(1)).unwrap();
        txn.insert(other, &key(1), b"").unwrap();
        assert_eq!(counts(), (1, 2), "entries of secondary trees are no rows");
        txn.savepoint("a").unwrap();
        txn.update(&table, &key(1), &val(2)).unwrap();
        txn.delete(other, &key(1)).unwrap();
        txn.insert_many(&table, [(key(2), val(2)), (key(3), val(3))])
            .unwrap();
        assert_eq!(counts(), (4, 6));
        txn.rollback_to_savepoint("a").unwrap();
        assert_eq!(counts(), (1, 6));
        txn.prepare(b"xa").unwrap();
        drop(db);
        let db = open(&dir);
        let all = db.transactions();
        assert_eq!((all[0].prepared, all[0].rows), (true, 1));
        db.rollback_prepared(b"xa").unwrap();
    });
}

#[test]
fn a_failing_statement_leaves_nothing() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| txn.insert(&table, &key(5000), &val(1)).unwrap());
        let txn = db.begin(RepeatableRead).unwrap();
        txn.insert(&table, &key(1_000_000), &val(2)).unwrap();
        let rows_in = (0..6000).map(|n| (key(n), val(0)));
        let failed = txn.insert_many(&table, rows_in.clone());
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
        assert_eq!(all(&txn, &table), [(5000, 1), (1_000_000, 2)]);
        // A duplicate among the rows themselves; long values that no row took; a key too long.
        let failed = txn.insert_many(&table, [(key(1), val(1)), (key(1), val(2))]);
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
        let long = vec![7u8; 200_000];
        let failed = txn.insert(&table, &key(5000), &long);
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
        let failed = txn.insert_many(&table, [(key(1), long.clone()), (key(5000), long)]);
        assert!(matches!(failed, Err(Error::DuplicateKey { .. })));
        let failed = txn.insert_many(&table, [(vec![1], val(1)), (vec![2; 5000], val(2))]);
        assert!(matches!(failed, Err(Error::KeyTooLong { .. })));
        let failed = txn.statement(|txn| {
            txn.delete(&table, &key(5000))?;
            txn.delete(&table, &key(1_000_000))?;
            txn.update(&table, &key(3), &val(1))
        });
        assert!(matches!(failed, Err(Error::RowNotFound { .. })));
        assert_eq!(all(&txn, &table), [(5000, 1), (1_000_000, 2)]);
        txn.commit().unwrap();
        assert_eq!(rows(&db, &table), [(5000, 1), (1_000_000, 2)]);
        let report = db.verify_table(&table).unwrap();
        assert_eq!(report.trees[0].1.rows, 2);
        // The long values that no row took are freed, without a restart.
        for _ in 0..20 {
            db.purge().unwrap();
        }
        assert!(db.verify_table(&table).unwrap().allocated_pages < 20);
        commit(&db, |txn| {
            txn.delete(&table, &key(5000)).unwrap();
            txn.insert_many(&table, rows_in).unwrap();
        });
        assert_eq!(rows(&db, &table).len(), 6001);
    });
}

fn change_odd_keys(txn: Transaction, table: &Table, random: &mut Random, deletes: bool) {
    for _ in 0..4 {
        let odd = key(random.below(1000) * 2 + 1);
        if deletes {
            txn.delete(table, &odd).unwrap();
        } else {
            txn.upsert(table, &odd, &[1; 900]).unwrap();
        }
    }
    if random.below(4) == 0 {
        txn.rollback().unwrap();
    } else {
        txn.commit().unwrap();
    }
}

/// Random changes with savepoints, against a model; other transactions split and merge the same
/// leaves in between.
#[test]
fn savepoints_against_a_model() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let mut random = Random::new(11);
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let snapshot_of = |txn: &Transaction| -> BTreeMap<u64, Vec<u8>> {
            let rows = txn.range(&table, ..).unwrap().map(|row| row.unwrap());
            rows.map(|(k, v)| (number(&k), v))
                .filter(|(k, _)| k % 2 == 0)
                .collect()
        };
        for round in 0..12 {
            let txn = db.begin(ReadCommitted).unwrap();
            let mut stack: Vec<BTreeMap<u64, Vec<u8>>> = vec![model.clone()];
            let mut now = model.clone();
            for _ in 0..400 {
                // Even keys are this transaction's, odd ones others'.
                let k = random.below(1000) * 2;
                match random.below(12) {
                    0 => {
                        txn.savepoint(&stack.len().to_string()).unwrap();
                        stack.push(now.clone());
                    }
                    1 if stack.len() > 1 => {
                        let to = 1 + random.below(stack.len() as u64 - 1) as usize;
                        txn.rollback_to_savepoint(&to.to_string()).unwrap();
                        stack.truncate(to + 1);
                        now = stack[to].clone();
                    }
                    2..=4 => {
                        let deleted = txn.delete(&table, &key(k)).unwrap();
                        assert_eq!(deleted, now.remove(&k).is_some());
                    }
                    _ => {
                        let value = vec![k as u8; random.below(600) as usize];
                        txn.upsert(&table, &key(k), &value).unwrap();
                        now.insert(k, value);
                    }
                }
                if random.below(3) == 0 {
                    let other = db.begin(ReadCommitted).unwrap();
                    change_odd_keys(other, &table, &mut random, round % 3 == 2);
                }
            }
            assert_eq!(snapshot_of(&txn), now);
            if random.below(2) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                model = now;
            }
            let check = db.begin(RepeatableRead).unwrap();
            assert_eq!(snapshot_of(&check), model);
            db.purge().unwrap();
        }
        db.verify_table(&table).unwrap();
    });
}

#[test]
fn a_rollback_of_100_000_rows() {
    within(100, || {
        const ROWS: u64 = 100_000;
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            let rows = (0..ROWS).map(|n| (key(n * 2), val(n as i64)));
            txn.insert_many(&table, rows).unwrap();
        });
        let before = rows(&db, &table);
        let txn = db.begin(RepeatableRead).unwrap();
        txn.insert_many(&table, (0..ROWS).map(|n| (key(n * 2 + 1), vec![1; 40])))
            .unwrap();
        for n in (0..ROWS).step_by(10) {
            txn.update(&table, &key(n * 2), &[3; 60]).unwrap();
            txn.delete(&table, &key(n * 2 + 2)).unwrap();
        }
        assert_eq!(rows(&db, &table), before);
        txn.rollback().unwrap();
        assert_eq!(rows(&db, &table), before);
        let report = db.verify_table(&table).unwrap();
        assert_eq!(report.trees[0].1.rows, ROWS);
        assert_eq!(report.trees[0].1.deleted_rows, 0);
    });
}

#[test]
fn a_crash_in_the_middle_of_a_large_transaction() {
    const ROWS: u64 = 20_000;
    if let Some(dir) = common::child_dir() {
        let db = inkstone::Database::open(dir, common::options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            let rows = (0..ROWS).map(|n| (key(n * 2), val(n as i64)));
            txn.insert_many(&table, rows).unwrap();
        });
        let txn = db.begin(RepeatableRead).unwrap();
        txn.insert_many(&table, (0..ROWS).map(|n| (key(n * 2 + 1), vec![1; 40])))
            .unwrap();
        for n in 0..ROWS / 4 {
            txn.update(&table, &key(n * 2), &[3; 60]).unwrap();
            txn.delete(&table, &key(n * 2 + ROWS)).unwrap();
        }
        txn.savepoint("s").unwrap();
        for n in 0..ROWS / 4 {
            txn.upsert(&table, &key(n * 2), &[4; 90]).unwrap();
        }
        txn.rollback_to_savepoint("s").unwrap();
        // What the transaction deletes itself and inserts again must come back as it was.
        for n in ROWS - 300..ROWS {
            txn.delete(&table, &key(n * 2)).unwrap();
            txn.insert(&table, &key(n * 2), &[5; 10]).unwrap();
        }
        db.flush_log().unwrap();
        common::ready_to_die();
    }
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        common::killed("a_crash_in_the_middle_of_a_large_transaction", dir.path());
        let db = open(&dir);
        let table = db.table("t").unwrap();
        let expected: Vec<_> = (0..ROWS).map(|n| (n * 2, n as i64)).collect();
        assert_eq!(rows(&db, &table), expected);
        db.verify_table(&table).unwrap();
        assert_eq!(db.open_report().recovered.as_ref().unwrap().losers, 1);
    });
}

/// Small rows fill a page; one transaction makes some of them smaller, others fill the page up and
/// split it, then the first rolls back: the old rows do not fit where they were.
#[test]
fn an_old_row_that_no_longer_fits_splits_the_page() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            for n in 0..40 {
                txn.insert(&table, &key(n * 100), &[n as u8; 350]).unwrap();
            }
        });
        let txn = db.begin(ReadCommitted).unwrap();
        for n in 0..40 {
            if n % 2 == 0 {
                txn.update(&table, &key(n * 100), b"small").unwrap();
            } else {
                txn.delete(&table, &key(n * 100)).unwrap();
            }
        }
        commit(&db, |other| {
            for n in 0..400 {
                other.insert(&table, &key(n * 10 + 1), &[9; 120]).unwrap();
            }
        });
        txn.savepoint("s").unwrap();
        for n in 0..40 {
            txn.upsert(&table, &key(n * 100), b"smaller").unwrap();
        }
        txn.rollback().unwrap();
        let check = db.begin(RepeatableRead).unwrap();
        for n in 0..40 {
            let value = check.get(&table, &key(n * 100)).unwrap();
            assert_eq!(value, Some(vec![n as u8; 350]));
        }
        let report = db.verify_table(&table).unwrap();
        assert_eq!(report.trees[0].1.rows, 440);
    });
}

/// Every state of a few rows is held by a snapshot of its own.
#[test]
fn old_snapshots_see_every_version() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &["second"]).unwrap();
        let second = table.tree("second").unwrap();
        let mut random = Random::new(5);
        let mut model: BTreeMap<u64, i64> = BTreeMap::new();
        let mut snapshots = Vec::new();
        for step in 0..150 {
            snapshots.push((db.begin_with_snapshot().unwrap(), model.clone()));
            let txn = db.begin(ReadCommitted).unwrap();
            let mut now = model.clone();
            for _ in 0..=random.below(4) {
                let k = random.below(5);
                // Several changes of the same row in one transaction.
                for v in 0..=random.below(3) as i64 {
                    let value = step * 10 + v;
                    if let Some(old) = now.get(&k) {
                        assert!(txn.delete(&table, &key(k)).unwrap());
                        assert!(txn.delete(second, &key(*old as u64)).unwrap());
                        now.remove(&k);
                    }
                    if random.below(3) > 0 {
                        txn.insert(&table, &key(k), &val(value)).unwrap();
                        let stale = txn.upsert(second, &key(value as u64), &val(k as i64));
                        stale.unwrap();
                        let twice = now.iter().find(|(_, v)| **v == value).map(|(k, _)| *k);
                        if let Some(other) = twice {
                            txn.delete(&table, &key(other)).unwrap();
                            now.remove(&other);
                        }
                        now.insert(k, value);
                    }
                }
            }
            if random.below(5) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                model = now;
            }
            if step % 7 == 0 {
                db.purge().unwrap();
            }
            if step % 10 == 9 {
                snapshots.swap_remove(random.below(snapshots.len() as u64) as usize);
            }
            if step % 30 != 29 {
                continue;
            }
            for (txn, seen) in &snapshots {
                check_both(txn, &table, second, seen);
            }
        }
        drop(snapshots);
        for _ in 0..6 {
            db.purge().unwrap();
        }
        let report = db.verify_table(&table).unwrap();
        for tree in &report.trees {
            assert_eq!(tree.1.rows, model.len() as u64);
            assert_eq!(tree.1.deleted_rows, 0, "{}", tree.0);
        }
    });
}

fn check_both(
    txn: &Transaction,
    table: &inkstone::Table,
    second: &impl TreeRef,
    seen: &BTreeMap<u64, i64>,
) {
    let found: BTreeMap<u64, i64> = all(txn, table).into_iter().collect();
    assert_eq!(&found, seen);
    let mut backward: Vec<(i64, u64)> = txn
        .range_backward(second, ..)
        .unwrap()
        .map(|row| row.unwrap())
        .map(|(k, v)| (number(&k) as i64, num(&v) as u64))
        .collect();
    backward.reverse();
    let mut expected: Vec<(i64, u64)> = seen.iter().map(|(&k, &v)| (v, k)).collect();
    expected.sort_unstable();
    assert_eq!(backward, expected);
    for k in 0..5 {
        assert_eq!(read(txn, table, k), seen.get(&k).copied());
    }
}

#[test]
fn delete_and_insert_of_one_key_in_one_transaction() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| txn.insert(&table, &key(1), &val(1)).unwrap());
        let old = db.begin_with_snapshot().unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        for n in 2..50 {
            assert!(txn.delete(&table, &key(1)).unwrap());
            assert!(!txn.delete(&table, &key(1)).unwrap());
            assert_eq!(read(&txn, &table, 1), None);
            txn.insert(&table, &key(1), &val(n)).unwrap();
            let again = txn.insert(&table, &key(1), &val(n));
            assert!(matches!(again, Err(Error::DuplicateKey { .. })));
            assert_eq!(read(&txn, &table, 1), Some(n));
        }
        assert_eq!(read(&old, &table, 1), Some(1));
        txn.savepoint("s").unwrap();
        txn.delete(&table, &key(1)).unwrap();
        txn.rollback_to_savepoint("s").unwrap();
        assert_eq!(read(&txn, &table, 1), Some(49));
        txn.commit().unwrap();
        assert_eq!(read(&old, &table, 1), Some(1));
        // A new row that is deleted again in its transaction.
        let txn = db.begin(RepeatableRead).unwrap();
        txn.insert(&table, &key(2), &val(2)).unwrap();
        txn.delete(&table, &key(2)).unwrap();
        assert_eq!(read(&old, &table, 2), None);
        txn.commit().unwrap();
        assert_eq!(rows(&db, &table), [(1, 49)]);
        drop(old);
    });
}

/// After a rollback to a savepoint others may have the rows; what was locked explicitly stays so.
#[test]
fn locks_after_a_rollback_to_a_savepoint() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            for k in 0..3 {
                txn.insert(&table, &key(k), &val(0)).unwrap();
            }
        });
        let txn = db.begin(ReadCommitted).unwrap();
        txn.savepoint("s").unwrap();
        txn.update(&table, &key(0), &val(1)).unwrap();
        let exclusive = inkstone::LockMode::Exclusive;
        txn.get_locking(&table, &key(1), exclusive, inkstone::Wait::Timeout)
            .unwrap();
        txn.rollback_to_savepoint("s").unwrap();
        commit(&db, |other| {
            other.update(&table, &key(0), &val(2)).unwrap();
        });
        let other = db.begin(ReadCommitted).unwrap();
        scope(|s| {
            let waiting = blocked(s, || other.update(&table, &key(1), &val(2)));
            txn.update(&table, &key(0), &val(3)).unwrap();
            txn.update(&table, &key(1), &val(3)).unwrap();
            txn.commit().unwrap();
            waiting.join().unwrap().unwrap();
        });
        other.commit().unwrap();
        assert_eq!(rows(&db, &table), [(0, 3), (1, 2), (2, 0)]);
    });
}

/// A mark that was set behind the place that the transaction went back to is no place in it.
#[test]
fn a_void_mark_undoes_nothing() {
    for level in [ReadCommitted, RepeatableRead] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(level).unwrap();
        for n in 0..10u32 {
            txn.insert(&table, &n.to_be_bytes(), b"").unwrap();
        }
        let first = txn.mark().unwrap();
        txn.savepoint("s").unwrap();
        txn.insert(&table, b"undone", b"").unwrap();
        let void = txn.mark().unwrap();
        txn.rollback_to_mark(first).unwrap();
        for more in 0..4u32 {
            let undone = txn.rollback_to_mark(void);
            assert!(matches!(undone, Err(Error::TransactionState(_))));
            assert_eq!(txn.range(&table, ..).unwrap().count(), 10 + more as usize);
            txn.insert(&table, format!("more {more}").as_bytes(), b"")
                .unwrap();
        }
        let later = txn.mark().unwrap();
        txn.rollback_to_savepoint("s").unwrap();
        assert!(txn.rollback_to_mark(later).is_err());
        // Nothing was undone since: it is where the transaction is.
        txn.rollback_to_mark(first).unwrap();
        txn.commit().unwrap();
        let txn = db.begin(level).unwrap();
        assert_eq!(txn.range(&table, ..).unwrap().count(), 10);
    }
}

/// What a statement does that goes back to a savepoint set before it, and then changes more.
fn goes_back_and_on(txn: &Transaction, table: &Table, changes: u64) -> inkstone::Result<()> {
    txn.rollback_to_savepoint("s")?;
    for n in 0..changes {
        txn.insert(table, &key(100 + n), &val(5))?;
    }
    Err(Error::TransactionState("told to fail"))
}

/// With fewer changes than it had undone they stayed; with more the whole transaction was undone,
/// and went on.
#[test]
fn a_failing_statement_that_went_back_behind_its_beginning_leaves_nothing() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        for (undone, changes) in [(1, 0), (1, 1), (1, 2), (2, 1), (3, 50)] {
            let name = format!("{undone} and {changes}");
            let table = db.create_table(&name, &[]).unwrap();
            let txn = db.begin(RepeatableRead).unwrap();
            txn.insert(&table, &key(1), &val(1)).unwrap();
            txn.savepoint("s").unwrap();
            let undo_some = || {
                for n in 0..undone {
                    txn.insert(&table, &key(10 + n), &val(5)).unwrap();
                }
            };
            let is_as_at_the_savepoint = |how: &str| {
                assert_eq!(all(&txn, &table), [(1, 1)], "{name}, {how}");
            };
            undo_some();
            let failed = txn.statement(|txn| goes_back_and_on(txn, &table, changes));
            assert!(failed.is_err());
            is_as_at_the_savepoint("a closure");
            undo_some();
            let failed = txn.statement(|txn| {
                let inner = txn.statement(|txn| goes_back_and_on(txn, &table, changes));
                assert!(inner.is_err());
                txn.insert(&table, &key(7), &val(7))?;
                inner
            });
            assert!(failed.is_err());
            is_as_at_the_savepoint("two closures");
            undo_some();
            txn.begin_statement().unwrap();
            goes_back_and_on(&txn, &table, changes).unwrap_err();
            txn.rollback_statement().unwrap();
            is_as_at_the_savepoint("a statement with a beginning and an end");
            txn.end_statement().unwrap();
            txn.insert(&table, &key(2), &val(2)).unwrap();
            txn.commit().unwrap();
            assert_eq!(rows(&db, &table), [(1, 1), (2, 2)], "{name}");
        }
    });
}

/// It stayed, in the place of the other, and to go back to it undid the whole transaction.
#[test]
fn a_savepoint_that_a_failing_statement_set_anew_is_gone() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        txn.savepoint("other").unwrap();
        txn.insert(&table, &key(1), &val(1)).unwrap();
        txn.savepoint("s").unwrap();
        let failed = txn.statement(|txn| -> inkstone::Result<()> {
            txn.insert(&table, &key(2), &val(2))?;
            txn.savepoint("s")?;
            txn.insert(&table, &key(3), &val(3))?;
            Err(Error::TransactionState("told to fail"))
        });
        assert!(failed.is_err());
        txn.insert(&table, &key(4), &val(4)).unwrap();
        let gone = txn.rollback_to_savepoint("s");
        assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
        assert_eq!(all(&txn, &table), [(1, 1), (4, 4)]);
        txn.rollback_to_savepoint("other").unwrap();
        assert_eq!(all(&txn, &table), []);
        txn.commit().unwrap();
    });
}
