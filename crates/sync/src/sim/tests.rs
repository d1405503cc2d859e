//! The scheduler: it repeats, it finds what depends on the order, it sees deadlocks, time is
//! virtual.

use super::atomic::{AtomicU64, Ordering};
use super::thread::{scope, sleep, spawn, yield_now};
use super::{Condvar, Config, HashSet, Instant, Mutex, RwLock, parking, simulate};
use std::sync::Arc;
use std::time::Duration;

fn run<T: Send + 'static>(seed: u64, f: impl FnOnce() -> T + Send + 'static) -> T {
    match simulate(&Config::of_seed(seed), f) {
        Ok((result, _)) => result,
        Err(text) => panic!("{text}"),
    }
}

/// Two threads that add without excluding each other: the sum, and what the schedule was.
fn race(seed: u64) -> (u64, u64) {
    let config = Config::of_seed(seed);
    let add = || {
        let sum = AtomicU64::new(0);
        scope(|scope| {
            for name in ["one", "two"] {
                let add = || {
                    for _ in 0..20 {
                        let before = sum.load(Ordering::SeqCst);
                        sum.store(before + 1, Ordering::SeqCst);
                    }
                };
                scope.spawn(name, add).unwrap();
            }
        });
        sum.load(Ordering::SeqCst)
    };
    let (sum, report) = simulate(&config, add).unwrap();
    (sum, report.fingerprint)
}

#[test]
fn a_seed_repeats_and_seeds_differ() {
    let runs: Vec<(u64, u64)> = (0..200).map(race).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, race(seed as u64), "seed {seed}");
    }
    let sums = runs.iter().map(|run| run.0);
    assert!(sums.clone().any(|sum| sum < 40), "no race was found");
    assert!(sums.clone().any(|sum| sum == 40));
    let fingerprints: HashSet<u64> = runs.iter().map(|run| run.1).collect();
    assert!(fingerprints.len() > 20, "{} schedules", fingerprints.len());
}

#[test]
fn locks_exclude() {
    for seed in 0..50 {
        let sum = run(seed, || {
            let (sum, both) = (Mutex::new(0), RwLock::new((0, 0)));
            scope(|scope| {
                for number in 0..4 {
                    let add = || {
                        for _ in 0..10 {
                            let mut sum = sum.lock();
                            let before = *sum;
                            yield_now();
                            *sum = before + 1;
                            drop(sum);
                            let read = both.read();
                            assert_eq!(read.0, read.1);
                            drop(read);
                            let mut write = both.write();
                            write.0 += 1;
                            yield_now();
                            write.1 += 1;
                        }
                    };
                    scope.spawn(format!("adder {number}"), add).unwrap();
                }
            });
            let both = both.read();
            assert_eq!(*both, (40, 40));
            *sum.lock()
        });
        assert_eq!(sum, 40);
    }
}

#[test]
fn a_deadlock_is_told_with_what_each_thread_waits_for() {
    let found = (0..200).find_map(|seed| {
        let lock = || Arc::new(Mutex::new(()));
        let (a, b) = (lock(), lock());
        let take = |first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>| {
            let (first, second) = (first.clone(), second.clone());
            move || {
                let _first = first.lock();
                let _second = second.lock();
            }
        };
        let (one, two) = (take(&a, &b), take(&b, &a));
        let both = move || {
            let threads = [spawn("one", one), spawn("two", two)];
            for thread in threads {
                thread.unwrap().join().unwrap();
            }
        };
        simulate(&Config::of_seed(seed), both).err()
    });
    let text = found.expect("no seed leads to the deadlock");
    for part in [
        "a deadlock",
        "seed",
        "one waits for a lock at",
        "two waits for a lock at",
        "tests.rs",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_lost_wake_up_is_a_deadlock() {
    let lost = (0..100).any(|seed| {
        let shared = Arc::new((Mutex::new(()), Condvar::new(), AtomicU64::new(0)));
        let other = shared.clone();
        let body = move || {
            let thread = spawn("waiter", move || {
                let (lock, wake, done) = &*other;
                if done.load(Ordering::SeqCst) == 0 {
                    // Here the news is missed.
                    wake.wait(&mut lock.lock());
                }
            });
            shared.2.store(1, Ordering::SeqCst);
            shared.1.notify_one();
            thread.unwrap().join().unwrap();
        };
        let result = simulate(&Config::of_seed(seed), body);
        result.is_err_and(|text| text.contains("waiter waits for a condition variable"))
    });
    assert!(lost);
}

#[test]
fn time_is_virtual() {
    let real = std::time::Instant::now();
    let waited = run(1, || {
        let begin = Instant::now();
        sleep(Duration::from_secs(3600));
        let (lock, wake) = (Mutex::new(()), Condvar::new());
        let timeout = Duration::from_secs(1800);
        assert!(wake.wait_for(&mut lock.lock(), timeout).timed_out());
        let deadline = Instant::now() + timeout;
        assert!(wake.wait_until(&mut lock.lock(), deadline).timed_out());
        assert!(Instant::now() >= deadline);
        begin.elapsed()
    });
    let hours = Duration::from_secs(7200);
    assert!(
        waited >= hours && waited < hours + Duration::from_secs(1),
        "{waited:?}"
    );
    assert!(real.elapsed() < Duration::from_secs(60));
}

#[test]
fn parked_threads_get_the_token_of_their_waker() {
    for seed in 0..50 {
        run(seed, || {
            let word = AtomicU64::new(0);
            let key = std::ptr::from_ref(&word).addr();
            scope(|scope| {
                let wait = || {
                    let wanted = || word.load(Ordering::SeqCst) == 0;
                    // SAFETY: no other code parks at the word; the callback neither panics nor
                    // parks.
                    let token = unsafe { parking::park(key, 7, wanted) };
                    assert!(token.is_none_or(|token| token == 9));
                    assert_eq!(word.load(Ordering::SeqCst), 1);
                };
                scope.spawn("one", wait).unwrap();
                scope.spawn("two", wait).unwrap();
                word.store(1, Ordering::SeqCst);
                let choose = |token| {
                    assert_eq!(token, 7);
                    parking::Choice::Wake
                };
                // SAFETY: as above.
                unsafe {
                    parking::unpark_filter(key, choose, |woken| {
                        assert!(woken.count <= 2 && !woken.more);
                        9
                    });
                }
            });
        });
    }
}

#[test]
fn a_panic_is_told_and_the_others_go_on() {
    let ended = Arc::new(AtomicU64::new(0));
    let other = ended.clone();
    let body = move || {
        let panics = spawn("reckless", || panic!("on purpose"));
        let works = spawn("steady", move || {
            sleep(Duration::from_secs(1));
            other.store(1, Ordering::SeqCst);
        });
        assert!(panics.unwrap().join().is_err());
        drop(works);
    };
    let text = simulate(&Config::of_seed(5), body).unwrap_err();
    assert!(
        text.contains("the thread reckless panicked: on purpose"),
        "{text}"
    );
    assert!(text.contains("seed 5"), "{text}");
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn a_run_without_end_is_stopped() {
    let config = Config {
        steps_max: 100_000,
        ..Config::of_seed(3)
    };
    let text = simulate(&config, || {
        loop {
            yield_now();
        }
    });
    let text = text.map(|((), _)| ()).unwrap_err();
    assert!(
        text.contains("no end") && text.contains("tests.rs"),
        "{text}"
    );
}

#[test]
fn other_threads_are_not_scheduled() {
    let lock = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    *lock.lock() += 1;
                }
            });
        }
        // And runs in several threads do not disturb each other.
        for seed in 0..4 {
            scope.spawn(move || assert_eq!(race(seed), race(seed)));
        }
    });
    assert_eq!(lock.into_inner(), 4000);
    let begin = Instant::now();
    sleep(Duration::from_millis(20));
    assert!(begin.elapsed() >= Duration::from_millis(20));
}
