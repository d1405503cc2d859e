//! What an embedder is told of lock waits, and when its transactions' owners are let go.

mod common;

use common::{blocked, commit, key, open, rows, val, within};
use inkstone::LockMode::{Exclusive, Shared};
use inkstone::{Database, Error, Interrupt, Isolation, LockWaitHooks, Table, Transaction, Wait};
use parking_lot::{Condvar, Mutex};
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::scope;

/// Notes which transaction waits for which; stops there while its gate is shut.
#[derive(Default)]
struct Notes {
    waits: Mutex<Vec<(usize, usize)>>,
    shut: Mutex<bool>,
    opened: Condvar,
    victim: Mutex<Option<usize>>,
    deadlocks: Mutex<Vec<String>>,
    panics: bool,
}

impl Notes {
    fn shut(&self) {
        *self.shut.lock() = true;
    }
    fn open(&self) {
        *self.shut.lock() = false;
        self.opened.notify_all();
    }
    fn waits(&self) -> Vec<(usize, usize)> {
        self.waits.lock().clone()
    }
    /// Waits for that many notes.
    fn until(&self, count: usize) {
        while self.waits.lock().len() < count {
            std::thread::yield_now();
        }
    }
}

impl LockWaitHooks for Notes {
    fn about_to_wait(&self, waiter: usize, blocker: usize) {
        assert!(!self.panics, "the embedder's bug");
        self.waits.lock().push((waiter, blocker));
        self.opened.wait_while(&mut self.shut.lock(), |shut| *shut);
    }
    fn statement(&self, owner: usize) -> Option<String> {
        Some(format!("statement of {owner}"))
    }
    fn deadlock_found(&self, account: &str) {
        self.deadlocks.lock().push(account.to_owned());
    }
    fn compare_victims(&self, first: usize, second: usize) -> Ordering {
        let preferred = *self.victim.lock();
        (preferred == Some(second)).cmp(&(preferred == Some(first)))
    }
}

struct Case {
    db: Database,
    table: Table,
    notes: Arc<Notes>,
    _dir: tempfile::TempDir,
}

impl Case {
    /// Rows 0 to 3, and notes of the waits.
    fn new(notes: Notes) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            txn.insert_many(&table, (0..4).map(|n| (key(n), val(0))))
                .unwrap();
        });
        let notes = Arc::new(notes);
        db.set_lock_wait_hooks(notes.clone());
        Self {
            db,
            table,
            notes,
            _dir: dir,
        }
    }
    fn begin(&self, owner: usize) -> Transaction {
        let txn = self.db.begin(Isolation::ReadCommitted).unwrap();
        txn.set_owner(owner);
        txn
    }
    fn update(&self, txn: &Transaction, k: u64) -> inkstone::Result<()> {
        txn.update(&self.table, &key(k), &val(1))
    }
    /// A whole transaction.
    fn change(&self, owner: usize, k: u64) {
        let txn = self.begin(owner);
        self.update(&txn, k).unwrap();
        txn.commit().unwrap();
    }
}

#[test]
fn each_blocker_is_named() {
    within(30, || {
        let case = Case::new(Notes::default());
        let (a, b, c) = (case.begin(1), case.begin(2), case.begin(3));
        for txn in [&a, &b] {
            txn.get_locking(&case.table, &key(0), Shared, Wait::NoWait)
                .unwrap();
        }
        case.update(&c, 1).unwrap();
        let refused = c.get_locking(&case.table, &key(0), Exclusive, Wait::NoWait);
        assert!(matches!(refused, Err(Error::LockNotAvailable)));
        assert_eq!(
            case.notes.waits(),
            [],
            "a transaction that does not wait is not named"
        );
        scope(|s| {
            let waiting = blocked(s, || case.update(&c, 0));
            case.notes.until(2);
            let mut waits = case.notes.waits();
            waits.sort();
            assert_eq!(waits, [(3, 1), (3, 2)]);
            a.commit().unwrap();
            b.rollback().unwrap();
            waiting.join().unwrap().unwrap();
            assert_eq!(case.notes.waits().len(), 2, "no waiter is woken in vain");
        });
        // A row that was changed, by a transaction without an owner.
        let (d, e) = (case.begin(0), case.begin(5));
        case.update(&d, 2).unwrap();
        scope(|s| {
            let waiting = blocked(s, || case.update(&e, 2));
            assert_eq!(case.notes.waits()[2..], [(5, 0)]);
            d.rollback().unwrap();
            waiting.join().unwrap().unwrap();
        });
    });
}

/// They end with the blocker's statement, so it would be rolled back in vain.
#[test]
fn waits_for_statement_locks_are_not_told() {
    within(30, || {
        let case = Case::new(Notes::default());
        let (a, b) = (case.begin(1), case.begin(2));
        a.begin_statement().unwrap();
        a.lock_for_statement(&case.table).unwrap();
        scope(|s| {
            let waiting = blocked(s, || b.lock_for_statement(&case.table));
            a.end_statement().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(case.notes.waits(), []);
    });
}

/// What a replica needs: the blocker is there, and stays, while the embedder decides about it.
#[test]
fn a_blocker_does_not_end_while_it_is_named() {
    within(30, || {
        for commits in [false, true] {
            let case = Case::new(Notes::default());
            let a = case.begin(1);
            case.update(&a, 0).unwrap();
            case.notes.shut();
            scope(|s| {
                let waiting = s.spawn(|| case.change(2, 0));
                case.notes.until(1);
                // No lock is held meanwhile: these look everywhere.
                let statements = case.db.transactions().into_iter().map(|trx| trx.statement);
                let expected =
                    ["statement of 1", "statement of 2"].map(|text| Some(text.to_owned()));
                assert_eq!(statements.collect::<Vec<_>>(), expected);
                assert_eq!(case.db.lock_waits().unwrap().len(), 1);
                case.update(&a, 1).unwrap();
                let end = move || if commits { a.commit() } else { a.rollback() };
                let ending = blocked(s, end);
                case.notes.open();
                ending.join().unwrap().unwrap();
                waiting.join().unwrap();
            });
            assert_eq!(rows(&case.db, &case.table)[1].1, i64::from(commits));
        }
    });
}

#[test]
fn an_owner_is_let_go_before_it_is_changed() {
    within(30, || {
        let case = Case::new(Notes::default());
        let a = case.begin(1);
        case.update(&a, 0).unwrap();
        case.notes.shut();
        scope(|s| {
            s.spawn(|| case.change(2, 0));
            case.notes.until(1);
            let changing = blocked(s, move || {
                a.set_owner(9);
                a
            });
            case.notes.open();
            let a = changing.join().unwrap();
            s.spawn(|| case.change(3, 0));
            // A transaction that stands in the queue before it is in its way, too.
            case.notes.until(3);
            assert_eq!(case.notes.waits(), [(2, 1), (3, 2), (3, 9)]);
            // Prepared it goes on without a handle, thus without its owner.
            a.prepare(b"x").unwrap();
            s.spawn(|| case.change(4, 0));
            case.notes.until(6);
            assert_eq!(case.notes.waits()[3..], [(4, 3), (4, 2), (4, 0)]);
            case.db.commit_prepared(b"x").unwrap();
        });
    });
}

/// The later of two transactions of a replica: it has the row, and waits for its turn to commit
/// outside of the engine. The hook has it interrupted.
#[test]
fn an_embedder_breaks_a_circle_that_the_engine_cannot_see() {
    struct Turns(Interrupt);
    impl LockWaitHooks for Turns {
        fn about_to_wait(&self, waiter: usize, blocker: usize) {
            if waiter < blocker {
                self.0.raise();
            }
        }
    }
    within(30, || {
        let case = Case::new(Notes::default());
        let killed = Interrupt::new();
        case.db.set_lock_wait_hooks(Arc::new(Turns(killed.clone())));
        let (first, second) = (case.begin(1), case.begin(2));
        case.update(&second, 0).unwrap();
        scope(|s| {
            let killed = &killed;
            let turn = s.spawn(move || {
                while !killed.is_raised() {
                    std::thread::yield_now();
                }
                second.rollback().unwrap();
            });
            case.update(&first, 0).unwrap();
            turn.join().unwrap();
            first.commit().unwrap();
        });
    });
}

#[test]
fn the_embedder_chooses_the_victim_of_a_deadlock() {
    within(60, || {
        for victim in [1, 2] {
            let case = &Case::new(Notes::default());
            *case.notes.victim.lock() = Some(victim);
            let (a, b) = (case.begin(1), case.begin(2));
            // By itself the engine chooses the second, which has changed less.
            case.update(&a, 0).unwrap();
            case.update(&a, 2).unwrap();
            case.update(&b, 1).unwrap();
            let (of_a, of_b) = scope(|s| {
                let waiting = s.spawn(move || case.update(&a, 1).and_then(|()| a.commit()));
                case.notes.until(1);
                let of_b = case.update(&b, 0).and_then(|()| b.commit());
                (waiting.join().unwrap(), of_b)
            });
            let (lost, won) = if victim == 1 {
                (of_a, of_b)
            } else {
                (of_b, of_a)
            };
            assert!(matches!(lost, Err(Error::Deadlock)), "{lost:?}");
            won.unwrap();
            let why = [
                "the program prefers it",
                "it had the fewest changes and locks",
            ][victim - 1];
            let text = case.db.latest_deadlock().unwrap();
            assert!(text.ends_with(why), "{text}");
            for part in [
                "tree primary of table t",
                "    statement of 1\n",
                "    statement of 2\n",
            ] {
                assert!(text.contains(part), "{text}");
            }
            // The program is told of each once.
            assert_eq!(*case.notes.deadlocks.lock(), [text]);
        }
    });
}

#[test]
fn a_hook_that_panics_harms_no_other_transaction() {
    within(30, || {
        let case = Case::new(Notes {
            panics: true,
            ..Notes::default()
        });
        let (a, b) = (case.begin(1), case.begin(2));
        case.update(&a, 0).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| case.update(&b, 0)));
        assert!(panicked.is_err());
        assert!(case.db.lock_waits().unwrap().is_empty());
        a.commit().unwrap();
        case.update(&b, 0).unwrap();
        b.commit().unwrap();
        assert_eq!(rows(&case.db, &case.table)[0].1, 1);
    });
}
