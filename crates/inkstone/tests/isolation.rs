//! What each isolation level lets through and what it prevents: the cases of Hermitage
//! (Martin Kleppmann), each at each level. The outcome is the table in docs/isolation.md.

mod common;

use common::{all, blocked, commit, key, open, read, rows, val, within};
use inkstone::Isolation::{
    LockingRepeatableRead, ReadCommitted, ReadUncommitted, RepeatableRead, Serializable,
};
use inkstone::{Database, Error, Isolation, LockMode, Result, Table, Transaction, Wait};
use std::thread::scope;

const LEVELS: [Isolation; 5] = [
    ReadUncommitted,
    ReadCommitted,
    LockingRepeatableRead,
    RepeatableRead,
    Serializable,
];

/// Whether all plain reads of a transaction see the same.
fn one_snapshot(level: Isolation) -> bool {
    matches!(level, LockingRepeatableRead | RepeatableRead)
}

/// A database with the rows 1 -> 10 and 2 -> 20.
struct Case {
    db: Database,
    table: Table,
    _dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("test", &[]).unwrap();
        commit(&db, |txn| {
            txn.insert(&table, &key(1), &val(10)).unwrap();
            txn.insert(&table, &key(2), &val(20)).unwrap();
        });
        Self {
            db,
            table,
            _dir: dir,
        }
    }
    fn begin(&self, level: Isolation) -> Transaction {
        self.db.begin(level).unwrap()
    }
    fn update(&self, txn: &Transaction, k: u64, v: i64) -> Result<()> {
        txn.update(&self.table, &key(k), &val(v))
    }
    fn set(&self, txn: &Transaction, k: u64, v: i64) {
        self.update(txn, k, v).unwrap();
    }
    fn get(&self, txn: &Transaction, k: u64) -> Option<i64> {
        read(txn, &self.table, k)
    }
    fn try_get(&self, txn: &Transaction, k: u64) -> Result<Option<Vec<u8>>> {
        txn.get(&self.table, &key(k))
    }
    /// Rows whose value is a multiple of `n`.
    fn multiples(&self, txn: &Transaction, n: i64) -> Vec<(u64, i64)> {
        let mut found = all(txn, &self.table);
        found.retain(|row| row.1 % n == 0);
        found
    }
    fn rows(&self) -> Vec<(u64, i64)> {
        rows(&self.db, &self.table)
    }
}

fn each_level(test: fn(&Case, Isolation)) {
    for level in LEVELS {
        within(30, move || test(&Case::new(), level));
    }
}

/// Dirty writes.
#[test]
fn g0_is_prevented() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        case.set(&t1, 1, 11);
        let t2 = scope(|s| {
            let waiting = blocked(s, || case.update(&t2, 1, 12).map(|()| t2));
            case.set(&t1, 2, 21);
            t1.commit().unwrap();
            waiting.join().unwrap()
        });
        if level == RepeatableRead {
            assert!(matches!(t2, Err(Error::WriteConflict)));
            assert_eq!(case.rows(), [(1, 11), (2, 21)]);
            return;
        }
        let t2 = t2.unwrap();
        case.set(&t2, 2, 22);
        t2.commit().unwrap();
        assert_eq!(case.rows(), [(1, 12), (2, 22)]);
    });
}

/// Reading what is rolled back.
#[test]
fn g1a() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        case.set(&t1, 1, 101);
        if level == Serializable {
            scope(|s| {
                let waiting = blocked(s, || all(&t2, &case.table));
                t1.rollback().unwrap();
                assert_eq!(waiting.join().unwrap(), [(1, 10), (2, 20)]);
            });
        } else {
            let seen = if level == ReadUncommitted { 101 } else { 10 };
            assert_eq!(all(&t2, &case.table), [(1, seen), (2, 20)]);
            t1.rollback().unwrap();
        }
        assert_eq!(all(&t2, &case.table), [(1, 10), (2, 20)]);
        t2.commit().unwrap();
    });
}

/// Reading what is not the last write of its transaction.
#[test]
fn g1b() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        case.set(&t1, 1, 101);
        if level == Serializable {
            scope(|s| {
                let waiting = blocked(s, || all(&t2, &case.table));
                // Its own row: the reader that waits for it is not in the way.
                case.set(&t1, 1, 11);
                t1.commit().unwrap();
                assert_eq!(waiting.join().unwrap(), [(1, 11), (2, 20)]);
            });
            return;
        }
        let seen = if level == ReadUncommitted { 101 } else { 10 };
        assert_eq!(all(&t2, &case.table), [(1, seen), (2, 20)]);
        case.set(&t1, 1, 11);
        t1.commit().unwrap();
        let seen = if one_snapshot(level) { 10 } else { 11 };
        assert_eq!(all(&t2, &case.table), [(1, seen), (2, 20)]);
    });
}

/// Two transactions that each read the other's write.
#[test]
fn g1c() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        case.set(&t1, 1, 11);
        case.set(&t2, 2, 22);
        if level == Serializable {
            scope(|s| {
                let waiting = blocked(s, || case.try_get(&t1, 2));
                let second = case.try_get(&t2, 1);
                drop(t2);
                let first = waiting.join().unwrap();
                let deadlocks = [&first, &second].map(|r| matches!(r, Err(Error::Deadlock)));
                assert_eq!(deadlocks.iter().filter(|&&d| d).count(), 1);
            });
            return;
        }
        let seen = match level {
            ReadUncommitted => (Some(22), Some(11)),
            _ => (Some(20), Some(10)),
        };
        assert_eq!((case.get(&t1, 2), case.get(&t2, 1)), seen);
        t1.commit().unwrap();
        t2.commit().unwrap();
        assert_eq!(case.rows(), [(1, 11), (2, 22)]);
    });
}

/// Observed transaction vanishes.
#[test]
fn otv() {
    each_level(|case, level| {
        // At repeatable read the second writer would only find its conflict.
        let writer = if level == RepeatableRead {
            ReadCommitted
        } else {
            level
        };
        let (t1, t2, t3) = (case.begin(writer), case.begin(writer), case.begin(level));
        case.set(&t1, 1, 11);
        case.set(&t1, 2, 19);
        scope(|s| {
            let waiting = blocked(s, || case.set(&t2, 1, 12));
            t1.commit().unwrap();
            waiting.join().unwrap();
        });
        if level == Serializable {
            scope(|s| {
                let waiting = blocked(s, || all(&t3, &case.table));
                case.set(&t2, 1, 13);
                t2.commit().unwrap();
                assert_eq!(waiting.join().unwrap(), [(1, 13), (2, 19)]);
            });
            return;
        }
        let dirty = level == ReadUncommitted;
        assert_eq!(case.get(&t3, 1), Some(if dirty { 12 } else { 11 }));
        case.set(&t2, 2, 18);
        assert_eq!(case.get(&t3, 2), Some(if dirty { 18 } else { 19 }));
        t2.commit().unwrap();
        let after = if !one_snapshot(level) {
            (Some(18), Some(12))
        } else {
            (Some(19), Some(11))
        };
        assert_eq!((case.get(&t3, 2), case.get(&t3, 1)), after);
    });
}

/// Predicate-many-preceders: a predicate that gives different rows later.
#[test]
fn pmp_reads() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        assert_eq!(case.multiples(&t1, 30), []);
        let insert = |txn: Transaction| {
            txn.insert(&case.table, &key(3), &val(30)).unwrap();
            txn.commit().unwrap();
        };
        if level == Serializable {
            scope(|s| {
                let waiting = blocked(s, || insert(t2));
                assert_eq!(case.multiples(&t1, 3), []);
                t1.commit().unwrap();
                waiting.join().unwrap();
            });
            return;
        }
        insert(t2);
        let seen = if !one_snapshot(level) {
            vec![(3, 30)]
        } else {
            vec![]
        };
        assert_eq!(case.multiples(&t1, 3), seen);
    });
}

/// The same with a write that follows a predicate: a locking scan reads the newest rows.
#[test]
fn pmp_writes() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        t2.take_snapshot().unwrap();
        case.set(&t1, 1, 20);
        case.set(&t1, 2, 30);
        let deleted = scope(|s| {
            let delete = || -> Result<Vec<u64>> {
                let mut deleted = Vec::new();
                let cursor =
                    t2.range_locking(&case.table, .., LockMode::Exclusive, Wait::Timeout)?;
                for row in cursor {
                    let (k, v) = row?;
                    if common::num(&v) == 20 {
                        t2.delete(&case.table, &k)?;
                        deleted.push(common::number(&k));
                    }
                }
                Ok(deleted)
            };
            let waiting = blocked(s, delete);
            t1.commit().unwrap();
            waiting.join().unwrap()
        });
        match level {
            RepeatableRead => assert!(matches!(deleted, Err(Error::WriteConflict))),
            _ => assert_eq!(deleted.unwrap(), [1]),
        }
    });
}

/// Lost updates.
#[test]
fn p4_lost_update() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        assert_eq!(case.get(&t1, 1), Some(10));
        assert_eq!(case.get(&t2, 1), Some(10));
        scope(|s| {
            if level == Serializable {
                // Both have read: the first to write waits, the second closes the circle.
                let waiting = blocked(s, || case.update(&t1, 1, 11).and_then(|()| t1.commit()));
                let second = case.update(&t2, 1, 12).and_then(|()| t2.commit());
                let first = waiting.join().unwrap();
                assert_eq!([&first, &second].iter().filter(|r| r.is_ok()).count(), 1);
                return;
            }
            case.set(&t1, 1, 11);
            let waiting = blocked(s, || case.update(&t2, 1, 12).and_then(|()| t2.commit()));
            t1.commit().unwrap();
            let second = waiting.join().unwrap();
            match level {
                RepeatableRead => assert!(matches!(second, Err(Error::WriteConflict))),
                _ => assert!(second.is_ok(), "{level:?} does not look"),
            }
        });
    });
}

/// At read committed a locking read is the remedy.
#[test]
fn p4_is_prevented_by_locking_reads() {
    within(30, || {
        let case = Case::new();
        let (t1, t2) = (case.begin(ReadCommitted), case.begin(ReadCommitted));
        let add = |txn: &Transaction| {
            let old = txn
                .get_locking(&case.table, &key(1), LockMode::Exclusive, Wait::Timeout)
                .unwrap();
            case.set(txn, 1, common::num(&old.unwrap()) + 1);
        };
        add(&t1);
        scope(|s| {
            let waiting = blocked(s, || add(&t2));
            t1.commit().unwrap();
            waiting.join().unwrap();
        });
        t2.commit().unwrap();
        assert_eq!(case.rows()[0], (1, 12));
    });
}

/// Read skew.
#[test]
fn g_single() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        assert_eq!(case.get(&t1, 1), Some(10));
        let write = |txn: Transaction| {
            case.set(&txn, 1, 12);
            case.set(&txn, 2, 18);
            txn.commit().unwrap();
        };
        if level == Serializable {
            scope(|s| {
                let waiting = blocked(s, || write(t2));
                assert_eq!(case.get(&t1, 2), Some(20));
                t1.commit().unwrap();
                waiting.join().unwrap();
            });
            return;
        }
        write(t2);
        let seen = if one_snapshot(level) { 20 } else { 18 };
        assert_eq!(case.get(&t1, 2), Some(seen));
        // And the write that rests on it.
        let deleted = t1.delete(&case.table, &key(2));
        match level {
            RepeatableRead => assert!(matches!(deleted, Err(Error::WriteConflict))),
            _ => assert!(deleted.unwrap()),
        }
    });
}

/// Write skew on two rows.
#[test]
fn g2_item() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        for txn in [&t1, &t2] {
            assert_eq!((case.get(txn, 1), case.get(txn, 2)), (Some(10), Some(20)));
        }
        let outcomes = write_both(
            level,
            || case.update(&t1, 1, 11).and_then(|()| t1.commit()),
            || case.update(&t2, 2, 21).and_then(|()| t2.commit()),
        );
        check_skew(level, outcomes);
    });
}

/// Write skew on a predicate.
#[test]
fn g2() {
    each_level(|case, level| {
        let (t1, t2) = (case.begin(level), case.begin(level));
        assert_eq!(case.multiples(&t1, 3), []);
        assert_eq!(case.multiples(&t2, 3), []);
        let insert = |txn: Transaction, k, v| {
            txn.insert(&case.table, &key(k), &val(v))
                .and_then(|()| txn.commit())
        };
        let outcomes = write_both(level, || insert(t1, 3, 30), || insert(t2, 4, 42));
        check_skew(level, outcomes);
    });
}

/// A write that finds nothing to write, or something in the way, has read that.
#[test]
fn writes_without_effect_count_as_reads() {
    within(60, || {
        for what in 0..3 {
            let case = Case::new();
            let (t1, t2) = (case.begin(Serializable), case.begin(Serializable));
            match what {
                0 => assert!(!t1.delete(&case.table, &key(5)).unwrap()),
                1 => assert!(matches!(
                    case.update(&t1, 5, 1),
                    Err(Error::RowNotFound { .. })
                )),
                _ => assert!(matches!(
                    t1.insert(&case.table, &key(1), &[]),
                    Err(Error::DuplicateKey { .. })
                )),
            }
            scope(|s| {
                let waiting = blocked(s, || {
                    if what < 2 {
                        t2.insert(&case.table, &key(5), &val(50)).unwrap();
                    } else {
                        assert!(t2.delete(&case.table, &key(1)).unwrap());
                    }
                    t2.commit().unwrap();
                });
                t1.commit().unwrap();
                waiting.join().unwrap();
            });
        }
    });
}

fn write_both(
    level: Isolation,
    first: impl FnOnce() -> Result<()> + Send,
    second: impl FnOnce() -> Result<()>,
) -> [Result<()>; 2] {
    if level != Serializable {
        return [first(), second()];
    }
    scope(|s| {
        let waiting = blocked(s, first);
        let second = second();
        [waiting.join().unwrap(), second]
    })
}

fn check_skew(level: Isolation, outcomes: [Result<()>; 2]) {
    let committed = outcomes.iter().filter(|r| r.is_ok()).count();
    let expected = if level == Serializable { 1 } else { 2 };
    assert_eq!(committed, expected, "{level:?}: {outcomes:?}");
}

/// What read uncommitted shows of a long value is whole, and committed.
#[test]
fn uncommitted_long_values_are_not_shown() {
    within(60, || {
        let case = Case::new();
        let (old, new) = (vec![1; 100_000], vec![2; 150_000]);
        commit(&case.db, |txn| {
            txn.insert(&case.table, &key(7), &old).unwrap();
        });
        let reader = case.begin(ReadUncommitted);
        let read = || reader.get(&case.table, &key(7)).unwrap();
        let scan = || reader.range(&case.table, ..).unwrap().last().unwrap();
        for commits in [false, true] {
            let writer = case.begin(ReadCommitted);
            writer.update(&case.table, &key(7), &new).unwrap();
            writer.delete(&case.table, &key(1)).unwrap();
            assert!(read().as_ref() == Some(&old) && scan().unwrap().1 == old);
            assert_eq!(case.get(&reader, 1), None, "short values are");
            if !commits {
                writer.rollback().unwrap();
            } else {
                writer.commit().unwrap();
            }
        }
        assert!(read() == Some(new.clone()) && scan().unwrap().1 == new);
    });
}

/// A row that another transaction inserted, deleted, or replaced after the snapshot.
#[test]
fn snapshots_conflict_with_any_later_change() {
    within(30, || {
        let case = Case::new();
        let t1 = case.db.begin_with_snapshot().unwrap();
        commit(&case.db, |txn| {
            txn.insert(&case.table, &key(3), &val(30)).unwrap();
            txn.delete(&case.table, &key(1)).unwrap();
            txn.delete(&case.table, &key(2)).unwrap();
            txn.insert(&case.table, &key(2), &val(20)).unwrap();
        });
        for k in 1..=3 {
            let changed = case.update(&t1, k, 0);
            assert!(matches!(changed, Err(Error::WriteConflict)), "{k}");
            let deleted = t1.delete(&case.table, &key(k));
            assert!(matches!(deleted, Err(Error::WriteConflict)), "{k}");
            let upserted = t1.upsert(&case.table, &key(k), &[]);
            assert!(matches!(upserted, Err(Error::WriteConflict)), "{k}");
        }
        let locked = t1.get_locking(&case.table, &key(2), LockMode::Shared, Wait::Timeout);
        assert!(matches!(locked, Err(Error::WriteConflict)));
        assert_eq!(all(&t1, &case.table), [(1, 10), (2, 20)]);
        // The failed statements had no effect, and locked nothing.
        commit(&case.db, |txn| {
            txn.update(&case.table, &key(2), &val(21)).unwrap();
        });
        t1.commit().unwrap();
        assert_eq!(case.rows(), [(2, 21), (3, 30)]);
    });
}
