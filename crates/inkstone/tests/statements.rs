//! What SQL needs of statements: their snapshot, marks, unlocking rows, interrupts, and looking at
//! which transaction is in the way of which.

mod common;

use common::{all, blocked, commit, key, open, read, val, within};
use inkstone::Isolation::{
    self, LockingRepeatableRead, ReadCommitted, RepeatableRead, Serializable,
};
use inkstone::LockMode::{Exclusive, Shared};
use inkstone::{Database, Error, Interrupt, LockState, LockTarget, Locked, Table, Wait};
use std::ops::Bound::{Excluded, Included};
use std::thread::scope;
use std::time::{Duration, Instant};

fn with_rows() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = db.create_table("t", &["second"]).unwrap();
    commit(&db, |txn| {
        for n in 0..5 {
            txn.insert(&table, &key(n), &val(n as i64)).unwrap();
        }
    });
    (dir, db, table)
}

#[test]
fn a_statement_at_read_committed_has_one_snapshot() {
    within(30, || {
        let (_dir, db, table) = with_rows();
        let txn = db.begin(ReadCommitted).unwrap();
        let change = |v| {
            commit(&db, |txn| {
                txn.update(&table, &key(0), &val(v)).unwrap();
                txn.upsert(&table, &key(9), &val(v)).unwrap();
            });
        };
        txn.begin_statement().unwrap();
        assert_eq!(read(&txn, &table, 0), Some(0));
        change(10);
        assert_eq!(
            (read(&txn, &table, 0), read(&txn, &table, 9)),
            (Some(0), None)
        );
        assert_eq!(all(&txn, &table).len(), 5);
        // Locking reads see the newest rows, as ever.
        let newest = txn.get_locking(&table, &key(0), Shared, Wait::Timeout);
        assert_eq!(newest.unwrap(), Some(val(10)));
        txn.end_statement().unwrap();
        assert_eq!(
            (read(&txn, &table, 0), read(&txn, &table, 9)),
            (Some(10), Some(10))
        );
        txn.commit().unwrap();

        let txn = db.begin(ReadCommitted).unwrap();
        txn.begin_statement().unwrap();
        assert_eq!(read(&txn, &table, 0), Some(10));
        change(11);
        txn.begin_statement().unwrap();
        assert_eq!(read(&txn, &table, 0), Some(11), "a new statement");
        change(12);
        assert_eq!(read(&txn, &table, 0), Some(11));
        change(13);
        txn.end_statement().unwrap();
        change(14);
        assert_eq!(read(&txn, &table, 0), Some(14), "each call for itself");
    });
}

#[test]
fn statements_and_marks_are_undone() {
    within(30, || {
        for level in [
            ReadCommitted,
            LockingRepeatableRead,
            RepeatableRead,
            Serializable,
        ] {
            let (_dir, db, table) = with_rows();
            let txn = db.begin(level).unwrap();
            assert!(matches!(
                txn.rollback_statement(),
                Err(Error::TransactionState(_))
            ));
            txn.insert(&table, &key(10), &val(10)).unwrap();
            txn.begin_statement().unwrap();
            txn.delete(&table, &key(0)).unwrap();
            txn.savepoint("inside").unwrap();
            let mark = txn.mark().unwrap();
            txn.insert(&table, &key(11), &val(11)).unwrap();
            txn.update(&table, &key(1), &vec![1; 60_000]).unwrap();
            txn.rollback_to_mark(mark).unwrap();
            assert_eq!(all(&txn, &table).len(), 5);
            txn.insert(&table, &key(12), &val(12)).unwrap();
            txn.rollback_statement().unwrap();
            assert!(txn.rollback_to_savepoint("inside").is_err());
            assert_eq!(all(&txn, &table).len(), 6);
            // The statement goes on, and can be undone again.
            txn.delete(&table, &key(1)).unwrap();
            txn.rollback_statement().unwrap();
            txn.end_statement().unwrap();
            let mark_of_other = db.begin(level).unwrap().mark().unwrap();
            assert!(txn.rollback_to_mark(mark_of_other).is_err());
            txn.commit().unwrap();
            assert_eq!(common::rows(&db, &table).len(), 6);
            db.verify_table(&table).unwrap();
        }
    });
}

#[test]
fn a_waiter_is_woken_when_a_row_is_given_back() {
    within(60, || {
        let (_dir, db, table) = with_rows();
        let holder = db.begin(ReadCommitted).unwrap();
        let lock = |k| holder.get_locking_new(&table, &key(k), Exclusive, Wait::Timeout);
        assert_eq!(lock(1).unwrap().1, Locked::Now);
        assert_eq!(lock(3).unwrap().1, Locked::Now);
        assert_eq!(lock(3).unwrap().1, Locked::Before);
        assert!(
            !holder.unlock_row(&table, &key(3)).unwrap(),
            "the first request keeps it"
        );
        let begun = Instant::now();
        scope(|s| {
            let other = blocked(s, || {
                commit(&db, |t| t.update(&table, &key(1), b"9").unwrap());
            });
            assert!(holder.unlock_row(&table, &key(1)).unwrap());
            other.join().unwrap();
            assert!(!holder.unlock_row(&table, &key(1)).unwrap(), "it has none");
        });
        // Rows that it has changed and changed back.
        holder.savepoint("s").unwrap();
        holder.update(&table, &key(2), b"8").unwrap();
        scope(|s| {
            let other = blocked(s, || {
                commit(&db, |t| t.update(&table, &key(2), b"9").unwrap());
            });
            holder.rollback_to_savepoint("s").unwrap();
            other.join().unwrap();
        });
        // A row that it has changed stays locked.
        lock(3).unwrap();
        holder.update(&table, &key(3), b"7").unwrap();
        holder.unlock_row(&table, &key(3)).unwrap();
        let other = db.begin(ReadCommitted).unwrap();
        let refused = other.get_locking(&table, &key(3), Shared, Wait::NoWait);
        assert!(matches!(refused, Err(Error::LockNotAvailable)));
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "timeouts are not what woke them"
        );

        // The cursor's last row; and not at the levels where locks stay.
        for (level, given) in [(ReadCommitted, true), (LockingRepeatableRead, false)] {
            let txn = db.begin(level).unwrap();
            let low = key(4);
            let mut cursor = txn
                .range_locking(&table, &low[..].., Exclusive, Wait::Timeout)
                .unwrap();
            cursor.next_row().unwrap().unwrap();
            assert_eq!(cursor.unlock_row().unwrap(), given);
            assert!(!cursor.unlock_row().unwrap());
            let refused = other.get_locking(&table, &key(4), Shared, Wait::NoWait);
            assert_eq!(refused.is_ok(), given, "{level:?}");
            other.unlock_row(&table, &key(4)).unwrap();
        }
    });
}

#[test]
fn interrupts_end_waits_and_scans() {
    within(60, || {
        let (_dir, db, table) = with_rows();
        let holder = db.begin(ReadCommitted).unwrap();
        holder.update(&table, &key(1), b"9").unwrap();
        let interrupt = Interrupt::new();
        for level in [
            ReadCommitted,
            LockingRepeatableRead,
            RepeatableRead,
            Serializable,
        ] {
            let mut txn = db.begin(level).unwrap();
            txn.set_interrupt(&interrupt);
            txn.insert(&table, &key(70), b"1").unwrap();
            for what in 0..3 {
                let begun = Instant::now();
                scope(|s| {
                    let waiting = blocked(s, || match what {
                        0 => txn.update(&table, &key(1), b"0"),
                        1 => txn
                            .get_locking(&table, &key(1), Shared, Wait::Timeout)
                            .map(drop),
                        _ => txn
                            .range_locking(&table, .., Shared, Wait::Timeout)
                            .and_then(|mut rows| rows.try_for_each(|row| row.map(drop))),
                    });
                    interrupt.raise();
                    let result = waiting.join().unwrap();
                    assert!(
                        matches!(result, Err(Error::Interrupted)),
                        "{level:?} {result:?}"
                    );
                });
                assert!(begun.elapsed() < Duration::from_secs(10));
                // What begins while it is raised fails too.
                assert!(matches!(txn.range(&table, ..), Err(Error::Interrupted)));
                interrupt.clear();
            }
            // The statements had no effect; the transaction goes on.
            assert_eq!(txn.get(&table, &key(70)).unwrap(), Some(b"1".to_vec()));
            interrupt.raise();
            txn.rollback().unwrap();
            interrupt.clear();
        }
        assert!(db.lock_waits().unwrap().is_empty());
    });
}

#[test]
fn lists_show_which_transaction_is_in_the_way() {
    within(60, || {
        let (_dir, db, table) = with_rows();
        let holder = db.begin(LockingRepeatableRead).unwrap();
        holder.set_tag(77);
        holder.update(&table, &key(1), b"9").unwrap();
        let (low, high) = (key(2), key(4));
        let rows = holder.range_locking(&table, &low[..]..&high[..], Shared, Wait::Timeout);
        assert_eq!(rows.unwrap().count(), 2);
        let waiter = db.begin(ReadCommitted).unwrap();
        scope(|s| {
            let waiting = blocked(s, || waiter.update(&table, &key(3), b"0"));
            let all = db.transactions();
            assert_eq!(all.len(), 2);
            assert_eq!((all[0].id, all[1].id), (holder.id().0, waiter.id().0));
            assert_eq!((all[0].tag, all[0].changes, all[0].range_locks), (77, 1, 2));
            assert_eq!((all[0].rows, all[1].rows), (1, 0));
            assert_eq!(all[0].isolation, Isolation::LockingRepeatableRead);
            assert!(all[0].age >= Duration::from_millis(50) && !all[0].prepared);
            let (blocker, waited) = all[1].waits.unwrap();
            assert_eq!(blocker, holder.id().0);
            assert!(waited >= Duration::from_millis(30));
            let waits = db.lock_waits().unwrap();
            assert_eq!((waits.len(), waits[0].transaction), (1, waiter.id().0));
            assert_eq!(waits[0].target, LockTarget::Row(key(3).to_vec()));
            assert_eq!(waits[0].mode, Exclusive);
            assert_eq!(waits[0].table.as_deref(), Some("t"));
            assert_eq!(waits[0].tree.as_deref(), Some("primary"));
            let locks = db.locks().unwrap();
            assert!(matches!(
                &locks[2].state,
                LockState::Waits { place: Some(1), inserts: false, blockers, .. } if *blockers == [holder.id().0]
            ));
            let held = locks
                .into_iter()
                .filter(|lock| lock.state == LockState::Held);
            let targets: Vec<_> = held.map(|lock| lock.target).collect();
            let [two, three, four] = [2, 3, 4].map(|k| key(k).to_vec());
            let read = LockTarget::Range(Included(two), Included(three.clone()));
            let behind = LockTarget::Gap(Excluded(three), Excluded(four));
            assert_eq!(targets, [read, behind]);
            holder.prepare(b"x").unwrap();
            assert!(db.transactions()[0].prepared);
            db.rollback_prepared(b"x").unwrap();
            waiting.join().unwrap().unwrap();
        });
        waiter.commit().unwrap();
        assert!(db.transactions().is_empty() && db.locks().unwrap().is_empty());
    });
}

#[test]
fn a_statement_lock_is_given_back_when_the_statement_ends() {
    within(60, || {
        let (_dir, db, table) = with_rows();
        let other = db.create_table("other", &[]).unwrap();
        for level in [ReadCommitted, LockingRepeatableRead, Serializable] {
            let [first, second] = [(); 2].map(|()| db.begin(level).unwrap());
            second.set_lock_wait_timeout(Duration::from_millis(20));
            let is_refused = || {
                let refused = second.lock_for_statement(&table);
                matches!(refused, Err(Error::LockTimeout { .. }))
            };
            // Each way to end a statement.
            let ends: [&dyn Fn(); 3] = [
                &|| first.end_statement().unwrap(),
                &|| first.rollback_statement().unwrap(),
                &|| first.begin_statement().unwrap(),
            ];
            for end in ends {
                first.begin_statement().unwrap();
                first.lock_for_statement(&table).unwrap();
                first.lock_for_statement(&table).unwrap();
                assert!(db.is_locked_for_statement(&table) && is_refused());
                assert!(!db.is_locked_for_statement(&other));
                second.lock_for_statement(&other).unwrap();
                second.end_statement().unwrap();
                end();
                assert!(!db.is_locked_for_statement(&table));
            }
            // It is in the way of no row, not of a range's lock either.
            first.lock_for_statement(&table).unwrap();
            second.insert(&table, &key(50), &val(1)).unwrap();
            assert!(all(&second, &table).len() > 5 && is_refused());
            drop(second);
            // Without a statement it ends with the transaction.
            first.rollback().unwrap();
            assert!(!db.is_locked_for_statement(&table));
        }
    });
}

#[test]
fn a_waiter_for_a_statement_lock_gets_it_or_hears_why_not() {
    within(60, || {
        let (_dir, db, table) = with_rows();
        let begin = |level| db.begin(level).unwrap();
        let [first, second] = [(); 2].map(|()| begin(LockingRepeatableRead));
        first.lock_for_statement(&table).unwrap();
        scope(|s| {
            let waiting = blocked(s, || second.lock_for_statement(&table));
            let wait = db.lock_waits().unwrap().remove(0);
            assert_eq!((wait.table.as_deref(), wait.tree), (Some("t"), None));
            first.end_statement().unwrap();
            waiting.join().unwrap().unwrap();
        });
        second.end_statement().unwrap();

        // An interrupt.
        let interrupt = Interrupt::new();
        let mut third = begin(ReadCommitted);
        third.set_interrupt(&interrupt);
        first.lock_for_statement(&table).unwrap();
        scope(|s| {
            let waiting = blocked(s, || third.lock_for_statement(&table));
            interrupt.raise();
            assert!(matches!(waiting.join().unwrap(), Err(Error::Interrupted)));
        });

        // A deadlock over it and a row: the transaction that has done less is rolled back, and
        // gives the lock back with it.
        for n in 0..4 {
            second.update(&table, &key(n), &val(7)).unwrap();
        }
        scope(|s| {
            let victim = blocked(s, || first.update(&table, &key(0), &val(8)));
            second.lock_for_statement(&table).unwrap();
            assert!(matches!(victim.join().unwrap(), Err(Error::Deadlock)));
        });
        assert!(db.is_locked_for_statement(&table));
        second.commit().unwrap();
        assert!(!db.is_locked_for_statement(&table));
    });
}
