//! Lock waits and deadlock detection under many schedules (`cargo xtask races`).

use super::*;
use crate::sync::explore::{Seen, explore};
use crate::sync::thread;

/// Three transactions lock two of three rows each, in a circle: each waiter is woken, and a circle
/// loses a member. The time they have is longer than shuttle's clock ever shows, so that a lost
/// wake-up is a deadlock of the model and not a time-out.
#[test]
fn circles_lose_a_member_and_no_wakeup_is_lost() {
    static WAITED: Seen = Seen::never();
    static VICTIM: Seen = Seen::never();
    explore(|| {
        let f = Arc::new(fixture());
        let inside: Arc<[AtomicU64; 3]> = Arc::default();
        let threads: Vec<_> = (0..3_usize)
            .map(|first| {
                let (f, inside) = (f.clone(), inside.clone());
                let body = move || {
                    let (trx, mut held) = f.begin();
                    let mut entered = Vec::new();
                    for row in [first, (first + 1) % 3] {
                        let patience = Duration::from_secs(3600);
                        match f.lock_waiting(&trx, &mut held, &[row as u8], X, patience) {
                            Ok(()) => {
                                let others = inside[row].fetch_add(1, Ordering::SeqCst);
                                assert_eq!(others, 0, "two hold row {row}");
                                entered.push(row);
                            }
                            Err(Error::Deadlock) => {
                                VICTIM.see();
                                break;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    for row in entered {
                        inside[row].fetch_sub(1, Ordering::SeqCst);
                    }
                    f.end(&trx, &mut held);
                };
                thread::spawn("trx", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(f.table.counts(), (0, 0));
        if f.counters.get(Counter::LockWaits) > 0 {
            WAITED.see();
        }
    });
    WAITED.check("a lock wait");
    VICTIM.check("a deadlock");
}

#[test]
fn waits_end_by_time_or_by_poison() {
    static TIMED_OUT: Seen = Seen::never();
    static POISONED: Seen = Seen::never();
    explore(|| {
        let f = Arc::new(fixture());
        let mut holder = f.begin();
        assert!(f.lock(&mut holder, b"row", X));
        let waiter = |patience: Duration| {
            let f = f.clone();
            let body = move || {
                let (trx, mut held) = f.begin();
                match f.lock_waiting(&trx, &mut held, b"row", S, patience) {
                    Err(Error::LockTimeout { .. }) => TIMED_OUT.see(),
                    Err(Error::Poisoned(_)) => POISONED.see(),
                    other => panic!("{other:?}"),
                }
                f.end(&trx, &mut held);
            };
            thread::spawn("waiter", body).unwrap()
        };
        let [short, long] = [2, 900].map(|ms| waiter(Duration::from_millis(ms)));
        short.join().unwrap();
        let _ = f.poison.set(format_args!("poisoned by the test"));
        long.join().unwrap();
        f.end(&holder.0, &mut holder.1);
        assert_eq!(f.table.counts(), (0, 0));
    });
    TIMED_OUT.check("a wait that ends by time");
    POISONED.check("a wait that ends by poison");
}

/// A transaction that is prepared gives back what it has locked shared, and keeps the rest: the
/// waiter for the one goes on while the transaction lives, the waiter for the other only behind it.
#[test]
fn shared_locks_that_are_given_back_wake_their_waiters_and_no_others() {
    static WAITED: Seen = Seen::never();
    explore(|| {
        let f = Arc::new(fixture());
        let mut prepared = f.begin();
        assert!(f.lock(&mut prepared, b"kept", X));
        assert!(f.lock(&mut prepared, b"shared", S));
        let is_over = Arc::new(AtomicBool::new(false));
        let waiter = |key: &'static [u8]| {
            let (f, is_over) = (f.clone(), is_over.clone());
            let body = move || {
                let (trx, mut held) = f.begin();
                let patience = Duration::from_secs(3600);
                let locked = f.lock_waiting(&trx, &mut held, key, X, patience);
                locked.unwrap();
                let seen = is_over.load(Ordering::SeqCst);
                f.end(&trx, &mut held);
                seen
            };
            thread::spawn("waiter", body).unwrap()
        };
        let [of_shared, of_kept] = [&b"shared"[..], b"kept"].map(waiter);
        f.table.release_shared(&prepared.0, &prepared.1);
        of_shared.join().unwrap();
        if f.counters.get(Counter::LockWaits) > 0 {
            WAITED.see();
        }
        is_over.store(true, Ordering::SeqCst);
        f.end(&prepared.0, &mut prepared.1);
        assert!(of_kept.join().unwrap(), "a lock was given back too early");
        assert_eq!(f.table.counts(), (0, 0));
    });
    WAITED.check("a lock wait");
}
