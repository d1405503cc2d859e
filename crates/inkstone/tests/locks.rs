//! Locking reads, waiting, deadlocks.

mod common;

use common::{blocked, commit, key, num, number, open, rows, val, within};
use inkstone::Isolation::{LockingRepeatableRead, ReadCommitted, RepeatableRead, Serializable};
use inkstone::LockMode::{Exclusive, Shared};
use inkstone::{
    Database, Error, Isolation, LockMode, LockState, LockTarget, LockView, Result, Table,
    Transaction, Wait,
};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::thread::scope;
use std::time::{Duration, Instant};

const LEVELS: [Isolation; 3] = [ReadCommitted, RepeatableRead, Serializable];

struct Case {
    db: Database,
    table: Table,
    _dir: tempfile::TempDir,
}

impl Case {
    /// Rows 0..count, each with its key as value.
    fn new(count: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            let rows = (0..count).map(|n| (key(n), val(n as i64)));
            txn.insert_many(&table, rows).unwrap();
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
    fn lock(&self, txn: &Transaction, k: u64, mode: LockMode, wait: Wait) -> Result<Option<i64>> {
        let value = txn.get_locking(&self.table, &key(k), mode, wait)?;
        Ok(value.map(|value| num(&value)))
    }
    fn update(&self, txn: &Transaction, k: u64, v: i64) -> Result<()> {
        txn.update(&self.table, &key(k), &val(v))
    }
}

#[test]
fn modes_conflict_as_they_should() {
    within(30, || {
        for level in LEVELS {
            let case = Case::new(3);
            let (a, b, c) = (case.begin(level), case.begin(level), case.begin(level));
            assert_eq!(case.lock(&a, 0, Shared, Wait::NoWait).unwrap(), Some(0));
            assert_eq!(case.lock(&b, 0, Shared, Wait::NoWait).unwrap(), Some(0));
            let refused = case.lock(&c, 0, Exclusive, Wait::NoWait);
            assert!(matches!(refused, Err(Error::LockNotAvailable)));
            assert_eq!(case.lock(&c, 0, Exclusive, Wait::SkipLocked).unwrap(), None);
            // Having been refused it holds nothing: the others may upgrade.
            b.commit().unwrap();
            assert_eq!(case.lock(&a, 0, Exclusive, Wait::NoWait).unwrap(), Some(0));
            let refused = case.lock(&c, 0, Shared, Wait::NoWait);
            assert!(matches!(refused, Err(Error::LockNotAvailable)));
            case.update(&a, 0, 5).unwrap();
            a.rollback().unwrap();
            assert_eq!(case.lock(&c, 0, Exclusive, Wait::NoWait).unwrap(), Some(0));
        }
    });
}

#[test]
fn plain_writes_respect_explicit_locks() {
    within(30, || {
        let case = Case::new(3);
        for mode in [Shared, Exclusive] {
            let (a, b) = (case.begin(LockingRepeatableRead), case.begin(ReadCommitted));
            case.lock(&a, 1, mode, Wait::Timeout).unwrap();
            // A row that is not there can be locked too, but not at read committed.
            assert_eq!(case.lock(&b, 7, mode, Wait::Timeout).unwrap(), None);
            assert_eq!(case.lock(&a, 7, mode, Wait::Timeout).unwrap(), None);
            b.set_lock_wait_timeout(Duration::from_millis(50));
            let insert = || b.insert(&case.table, &key(7), &val(7));
            for refused in [
                case.update(&b, 1, 0),
                b.delete(&case.table, &key(1)).map(drop),
                b.upsert(&case.table, &key(1), &[]).map(drop),
                insert(),
                b.insert_many(&case.table, [(key(6), val(6)), (key(7), val(7))])
                    .map(drop),
            ] {
                assert!(matches!(refused, Err(Error::LockTimeout { .. })));
            }
            // Reading without locks goes past them.
            assert_eq!(common::read(&b, &case.table, 1), Some(1));
            a.commit().unwrap();
            case.update(&b, 1, 9).unwrap();
            insert().unwrap();
            b.rollback().unwrap();
            assert_eq!(rows(&case.db, &case.table), [(0, 0), (1, 1), (2, 2)]);
        }
    });
}

#[test]
fn timeouts_are_kept() {
    within(30, || {
        let case = Case::new(1);
        let (a, b) = (case.begin(ReadCommitted), case.begin(ReadCommitted));
        case.update(&a, 0, 1).unwrap();
        b.set_lock_wait_timeout(Duration::from_millis(200));
        for what in 0..2 {
            let begin = Instant::now();
            let error = match what {
                0 => case.update(&b, 0, 2).unwrap_err(),
                _ => case.lock(&b, 0, Shared, Wait::Timeout).unwrap_err(),
            };
            assert!(matches!(error, Error::LockTimeout { waited_ms, .. } if waited_ms >= 190));
            assert!(begin.elapsed() >= Duration::from_millis(190));
        }
        // The transaction goes on, and so does the other one, with this very row.
        case.update(&a, 0, 3).unwrap();
        a.commit().unwrap();
        case.update(&b, 0, 4).unwrap();
        b.commit().unwrap();
        assert_eq!(rows(&case.db, &case.table), [(0, 4)]);
    });
}

/// A bystander's attempt must not stop the row's writer from changing the row again.
#[test]
fn a_writer_goes_on_with_its_row_whatever_waits_for_it() {
    within(60, || {
        for level in LEVELS {
            for wait in [Wait::NoWait, Wait::SkipLocked, Wait::Timeout] {
                let case = Case::new(2);
                let (a, b) = (case.begin(level), case.begin(ReadCommitted));
                case.update(&a, 0, 1).unwrap();
                scope(|s| {
                    let lock = || case.lock(&b, 0, Exclusive, wait);
                    let waiting = match wait {
                        Wait::Timeout => Some(blocked(s, lock)),
                        Wait::NoWait => {
                            assert!(matches!(lock(), Err(Error::LockNotAvailable)));
                            None
                        }
                        Wait::SkipLocked => {
                            assert_eq!(lock().unwrap(), None);
                            None
                        }
                    };
                    case.update(&a, 0, 2).unwrap();
                    assert!(a.delete(&case.table, &key(0)).unwrap());
                    a.insert(&case.table, &key(0), &val(3)).unwrap();
                    a.commit().unwrap();
                    if let Some(waiting) = waiting {
                        assert_eq!(waiting.join().unwrap().unwrap(), Some(3));
                    }
                });
            }
        }
    });
}

#[test]
fn serializable_readers_wait_for_locks_and_writers() {
    within(30, || {
        let case = Case::new(3);
        let (a, b) = (case.begin(ReadCommitted), case.begin(Serializable));
        case.lock(&a, 1, Exclusive, Wait::Timeout).unwrap();
        scope(|s| {
            let waiting = blocked(s, || common::all(&b, &case.table));
            case.update(&a, 1, 10).unwrap();
            a.commit().unwrap();
            assert_eq!(waiting.join().unwrap(), [(0, 0), (1, 10), (2, 2)]);
        });
        let c = case.begin(ReadCommitted);
        c.set_lock_wait_timeout(Duration::from_millis(50));
        let refused = c.insert(&case.table, &key(9), &[]);
        assert!(matches!(refused, Err(Error::LockTimeout { .. })));
        b.commit().unwrap();
        c.insert(&case.table, &key(9), &[]).unwrap();
    });
}

#[test]
fn uncommitted_rows_are_waited_for() {
    within(60, || {
        let case = Case::new(2);
        for commits in [false, true] {
            // An insert, a delete, and an insert after a delete of others.
            let (a, b) = (case.begin(ReadCommitted), case.begin(ReadCommitted));
            a.insert(&case.table, &key(5), &val(5)).unwrap();
            assert!(a.delete(&case.table, &key(1)).unwrap());
            assert_eq!(case.lock(&b, 5, Shared, Wait::SkipLocked).unwrap(), None);
            assert_eq!(case.lock(&b, 1, Shared, Wait::SkipLocked).unwrap(), None);
            scope(|s| {
                let insert = blocked(s, || b.insert(&case.table, &key(5), &val(6)));
                if commits {
                    a.commit().unwrap();
                    let inserted = insert.join().unwrap();
                    assert!(matches!(inserted, Err(Error::DuplicateKey { .. })));
                } else {
                    a.rollback().unwrap();
                    insert.join().unwrap().unwrap();
                }
            });
            assert_eq!(b.delete(&case.table, &key(1)).unwrap(), !commits);
            b.rollback().unwrap();
        }
        assert_eq!(rows(&case.db, &case.table), [(0, 0), (5, 5)]);
        let (a, b) = (case.begin(ReadCommitted), case.begin(ReadCommitted));
        assert!(a.delete(&case.table, &key(5)).unwrap());
        scope(|s| {
            let insert = blocked(s, || b.insert(&case.table, &key(5), &val(7)));
            a.commit().unwrap();
            insert.join().unwrap().unwrap();
        });
        b.commit().unwrap();
        assert_eq!(rows(&case.db, &case.table), [(0, 0), (5, 7)]);
    });
}

#[test]
fn locking_ranges_wait_fail_or_skip() {
    within(30, || {
        let case = Case::new(10);
        let a = case.begin(ReadCommitted);
        case.lock(&a, 3, Exclusive, Wait::Timeout).unwrap();
        case.update(&a, 5, 50).unwrap();
        a.insert(&case.table, &key(20), &val(20)).unwrap();
        let keys = |txn: &Transaction, wait| -> Result<Vec<u64>> {
            txn.range_locking(&case.table, .., Exclusive, wait)?
                .map(|row| row.map(|(k, _)| number(&k)))
                .collect()
        };
        let b = case.begin(ReadCommitted);
        assert_eq!(
            keys(&b, Wait::SkipLocked).unwrap(),
            [0, 1, 2, 4, 6, 7, 8, 9]
        );
        assert!(matches!(
            keys(&b, Wait::NoWait),
            Err(Error::LockNotAvailable)
        ));
        b.rollback().unwrap();
        let b = case.begin(ReadCommitted);
        scope(|s| {
            let waiting = blocked(s, || keys(&b, Wait::Timeout));
            case.update(&a, 3, 30).unwrap();
            a.commit().unwrap();
            let found = waiting.join().unwrap().unwrap();
            assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20]);
        });
    });
}

/// A scan that locks no gaps began again at the row before, and returned what had been put there
/// while it waited; InnoDB's goes on with the row.
#[test]
fn a_scan_that_has_waited_goes_on_with_the_row() {
    within(30, || {
        // Where gaps are locked, what is in one is locked with it.
        let levels = [
            (ReadCommitted, &[1, 5, 7, 9][..]),
            (LockingRepeatableRead, &[1, 3, 5, 7, 9]),
        ];
        for (level, expected) in levels {
            let case = Case::new(0);
            commit(&case.db, |txn| {
                for k in [1, 5, 9] {
                    txn.insert(&case.table, &key(k), &val(0)).unwrap();
                }
            });
            let (a, b) = (case.begin(ReadCommitted), case.begin(level));
            case.update(&a, 5, 50).unwrap();
            scope(|s| {
                let waiting = blocked(s, || {
                    let wait = Wait::Timeout;
                    let rows = b.range_locking(&case.table, .., Exclusive, wait)?;
                    rows.map(|row| row.map(|(k, _)| number(&k)))
                        .collect::<Result<Vec<u64>>>()
                });
                for k in [3, 7] {
                    a.insert(&case.table, &key(k), &val(0)).unwrap();
                }
                a.commit().unwrap();
                let found = waiting.join().unwrap().unwrap();
                assert_eq!(found, expected);
            });
        }
    });
}

/// Workers take jobs with SKIP LOCKED; some give up and roll back. Every job is done exactly once.
#[test]
fn a_queue_hands_out_every_job_once() {
    const JOBS: u64 = 600;
    within(60, || {
        let case = Case::new(JOBS);
        let done = Mutex::new(Vec::new());
        scope(|s| {
            for worker in 0..8 {
                let (case, done) = (&case, &done);
                s.spawn(move || {
                    let mut random = common::Random::new(worker);
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_secs(40) {
                        let txn = case.begin(ReadCommitted);
                        let mut jobs = txn
                            .range_locking(&case.table, .., Exclusive, Wait::SkipLocked)
                            .unwrap();
                        let Some(job) = jobs.next() else {
                            if rows(&case.db, &case.table).is_empty() {
                                return;
                            }
                            continue;
                        };
                        let job = job.unwrap().0;
                        assert!(txn.delete(&case.table, &job).unwrap());
                        if random.below(4) == 0 {
                            txn.rollback().unwrap();
                        } else {
                            txn.commit().unwrap();
                            done.lock().push(number(&job));
                        }
                    }
                });
            }
        });
        let done = std::mem::take(&mut *done.lock());
        assert_eq!(done.len() as u64, JOBS);
        let distinct: BTreeSet<u64> = done.into_iter().collect();
        assert_eq!(distinct, (0..JOBS).collect());
    });
}

#[test]
fn the_victim_of_a_deadlock_is_rolled_back_and_the_other_goes_on() {
    within(60, || {
        for level in LEVELS {
            let case = Case::new(10);
            let (heavy, light) = (case.begin(level), case.begin(level));
            for k in 0..5 {
                case.update(&heavy, k, 100).unwrap();
            }
            case.update(&light, 9, 200).unwrap();
            scope(|s| {
                // The cheaper one is the victim, though it came first.
                let waiting = blocked(s, || {
                    let outcome = case.update(&light, 0, 200);
                    (outcome, light)
                });
                case.update(&heavy, 9, 100).unwrap();
                let (outcome, light) = waiting.join().unwrap();
                assert!(matches!(outcome, Err(Error::Deadlock)));
                let later = case.update(&light, 8, 0);
                assert!(matches!(later, Err(Error::TransactionState(_))));
            });
            heavy.commit().unwrap();
            let changed = rows(&case.db, &case.table);
            let changed = changed.iter().filter(|row| row.1 == 100).count();
            assert_eq!(changed, 6);
            // Its table is named still when it is gone.
            case.db.drop_table(case.table.name()).unwrap();
            let text = case.db.latest_deadlock().unwrap();
            let named = format!("of table {}", case.table.name());
            assert!(text.contains(&named), "{text}");
        }
    });
}

/// A transaction that did not wait closed the circle all the same, and one of its members, mostly
/// the other, was rolled back.
#[test]
fn a_transaction_that_does_not_wait_is_in_no_deadlock() {
    within(30, || {
        for level in LEVELS {
            let case = Case::new(3);
            let (hasty, patient) = (case.begin(level), case.begin(level));
            case.update(&hasty, 0, 100).unwrap();
            case.update(&hasty, 1, 100).unwrap();
            case.update(&patient, 2, 200).unwrap();
            hasty.set_lock_wait_timeout(Duration::ZERO);
            scope(|s| {
                let waiting = blocked(s, || case.update(&patient, 0, 200));
                let refused = case.lock(&hasty, 2, Shared, Wait::Timeout);
                assert!(matches!(refused, Err(Error::LockTimeout { .. })));
                let refused = case.update(&hasty, 2, 100);
                assert!(matches!(refused, Err(Error::LockTimeout { .. })));
                assert!(!waiting.is_finished());
                hasty.rollback().unwrap();
                waiting.join().unwrap().unwrap();
            });
            patient.commit().unwrap();
            assert!(case.db.latest_deadlock().is_none());
        }
    });
}

/// The one in between was rolled back as well, and first: whether the one behind it closes the
/// circle, and whatever that one wants, or the one before it.
#[test]
fn a_waiter_in_a_queue_between_two_of_a_deadlock_is_spared() {
    for (mode, last_closes) in [(Exclusive, false), (Exclusive, true), (Shared, true)] {
        within(30, move || {
            let case = Case::new(10);
            let [holder, between, last] = [(); 3].map(|()| case.begin(ReadCommitted));
            case.update(&holder, 0, 100).unwrap();
            // It is not the cheapest.
            case.update(&holder, 1, 100).unwrap();
            case.update(&last, 9, 300).unwrap();
            let holder_waits = || (case.update(&holder, 9, 100), holder);
            let last_waits = || {
                let locked = case.lock(&last, 0, mode, Wait::Timeout);
                (locked.map(drop), last)
            };
            scope(|s| {
                let between = blocked(s, || (case.update(&between, 0, 200), between));
                let outcomes = if last_closes {
                    let waits = blocked(s, holder_waits);
                    let (last, outcome) = (last_waits(), waits.join().unwrap());
                    [outcome, last]
                } else {
                    let waits = blocked(s, last_waits);
                    let outcome = holder_waits();
                    [outcome, waits.join().unwrap()]
                };
                let is_victim = |outcome: &&(Result<()>, Transaction)| {
                    matches!(outcome.0, Err(Error::Deadlock))
                };
                assert_eq!(outcomes.iter().filter(is_victim).count(), 1);
                for (outcome, txn) in outcomes {
                    if outcome.is_ok() {
                        txn.commit().unwrap();
                    }
                }
                let (outcome, between) = between.join().unwrap();
                outcome.unwrap();
                between.commit().unwrap();
            });
            assert_eq!(status(&case.db, "deadlocks"), 1);
        });
    }
}

#[test]
fn two_upgrades_of_shared_locks_are_a_deadlock() {
    within(30, || {
        let case = Case::new(1);
        let (a, b) = (case.begin(ReadCommitted), case.begin(ReadCommitted));
        case.lock(&a, 0, Shared, Wait::Timeout).unwrap();
        case.lock(&b, 0, Shared, Wait::Timeout).unwrap();
        scope(|s| {
            let first = blocked(s, || case.update(&a, 0, 1).and_then(|()| a.commit()));
            let second = case
                .lock(&b, 0, Exclusive, Wait::Timeout)
                .and_then(|_| b.commit());
            let first = first.join().unwrap();
            assert_eq!([&first, &second].iter().filter(|r| r.is_ok()).count(), 1);
            for outcome in [first, second] {
                assert!(matches!(outcome, Ok(()) | Err(Error::Deadlock)));
            }
        });
    });
}

/// Rings of deadlocks among many threads: all come to an end, and every one that got through
/// counts.
#[test]
fn many_deadlocks_all_end() {
    within(60, || {
        let case = Case::new(6);
        let commits = Mutex::new([0i64; 6]);
        scope(|s| {
            for worker in 0..8u64 {
                let (case, commits) = (&case, &commits);
                s.spawn(move || {
                    let mut random = common::Random::new(worker + 100);
                    for _ in 0..60 {
                        let txn = case.begin(ReadCommitted);
                        let picks = [(); 3].map(|()| random.below(6));
                        let all = picks.iter().try_for_each(|&k| {
                            let old = case.lock(&txn, k, Exclusive, Wait::Timeout)?.unwrap();
                            std::thread::yield_now();
                            case.update(&txn, k, old + 1)
                        });
                        match all {
                            Ok(()) => {
                                txn.commit().unwrap();
                                for k in picks {
                                    commits.lock()[k as usize] += 1;
                                }
                            }
                            Err(Error::Deadlock) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        });
        let expected = *commits.lock();
        let found = rows(&case.db, &case.table);
        for (k, v) in found {
            assert_eq!(v, expected[k as usize] + k as i64);
        }
        assert_eq!(status(&case.db, "row_locks"), 0);
        assert_eq!(status(&case.db, "range_locks"), 0);
    });
}

fn status(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter().find(|(n, _)| *n == name).unwrap().1
}

/// A list is shown in portions: nothing is missing, nothing twice, and a reader that has seen
/// enough ends it.
#[test]
fn a_list_of_locks_shows_each_once_and_ends_when_told() {
    within(60, || {
        let case = Case::new(1000);
        let holder = case.begin(ReadCommitted);
        for k in 0..1000 {
            case.lock(&holder, k, Shared, Wait::NoWait).unwrap();
        }
        let locks = case.db.locks().unwrap();
        let keys: Vec<_> = locks.iter().map(|lock| lock.target.clone()).collect();
        let expected: Vec<_> = (0..1000)
            .map(|k| LockTarget::Row(key(k).to_vec()))
            .collect();
        assert_eq!(keys, expected);
        assert!(
            locks
                .iter()
                .all(|lock| lock.state == LockState::Held && lock.transaction == holder.id().0)
        );
        let mut shown = 0;
        let stop_at_seven = |_: &LockView| {
            shown += 1;
            shown < 7
        };
        case.db.visit_locks(stop_at_seven).unwrap();
        assert_eq!(shown, 7);
    });
}

/// A queue shows which transaction has the row, which one waits in which place, and for which.
#[test]
fn a_queue_is_listed_in_its_order() {
    within(60, || {
        let case = Case::new(3);
        let holder = case.begin(ReadCommitted);
        case.update(&holder, 1, 9).unwrap();
        let (first, second) = (case.begin(ReadCommitted), case.begin(ReadCommitted));
        first.set_tag(8);
        let ids = [&holder, &first, &second].map(|txn| txn.id().0);
        scope(|s| {
            let first = blocked(s, || case.update(&first, 1, 10));
            let second = blocked(s, || case.update(&second, 1, 11));
            let locks = case.db.locks().unwrap();
            assert_eq!(
                locks
                    .iter()
                    .map(|lock| lock.transaction)
                    .collect::<Vec<_>>(),
                ids
            );
            assert!(
                locks
                    .iter()
                    .all(|lock| lock.target == LockTarget::Row(key(1).to_vec()))
            );
            assert_eq!((&locks[0].state, locks[1].tag), (&LockState::Changed, 8));
            for (at, lock) in locks.iter().enumerate().skip(1) {
                let LockState::Waits {
                    place, blockers, ..
                } = &lock.state
                else {
                    panic!("{lock:?}");
                };
                assert_eq!((*place, &blockers[..]), (Some(at), &ids[at - 1..at]));
            }
            // The longest wait comes first.
            let waits = case.db.lock_waits().unwrap();
            assert_eq!(
                waits
                    .iter()
                    .map(|lock| lock.transaction)
                    .collect::<Vec<_>>(),
                ids[1..]
            );
            let waiting = |name| case.db.status().iter().find(|(n, _)| *n == name).unwrap().1;
            assert_eq!(waiting("lock_waiting"), 2);
            drop(holder);
            first.join().unwrap().unwrap();
            drop(second);
        });
    });
}

/// Two transactions of one thread: nothing ends the wait but the timeout, so a debug build says it.
#[test]
fn a_thread_that_waits_for_itself_is_told() {
    const NAME: &str = "a_thread_that_waits_for_itself_is_told";
    if let Some(dir) = common::child_dir() {
        let db = Database::open(dir, common::options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let begin = || {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.set_lock_wait_timeout(Duration::from_millis(600));
            txn
        };
        let (holder, waiter) = (begin(), begin());
        holder.insert(&table, b"row", b"").unwrap();
        holder.insert(&table, b"other", b"").unwrap();
        std::thread::scope(|scope| {
            // Another thread waits for a transaction that can go on: nothing to say.
            scope.spawn(|| begin().insert(&table, b"other", b"").unwrap_err());
        });
        assert!(matches!(
            waiter.insert(&table, b"row", b""),
            Err(Error::LockTimeout { .. })
        ));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = common::child(NAME, dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let warnings = usize::from(cfg!(debug_assertions));
    assert_eq!(said.matches("waits in vain").count(), warnings, "{said}");
    let place = "waits for key 726f77 in tree primary of table t";
    assert_eq!(said.contains(place), warnings == 1, "{said}");
}
