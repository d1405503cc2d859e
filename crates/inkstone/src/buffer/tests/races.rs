//! Latch, page table and flights under many schedules (`cargo xtask races`).

use super::mock::{Bench, check_pattern, page};
use crate::buffer::RedoLog;
use crate::buffer::latch::HybridLatch;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::explore::{Seen, explore};
use crate::sync::thread;
use inkstone_format::Lsn;
use std::sync::Arc;

/// Two words that an exclusive holder changes together. They are atomics so that reads without a
/// latch are well defined, and so that a switch can come between them.
#[derive(Default)]
struct Guarded {
    latch: HybridLatch,
    words: [AtomicU64; 2],
    writer_inside: AtomicBool,
}

impl Guarded {
    fn write(&self) {
        assert!(
            !self.writer_inside.swap(true, Ordering::SeqCst),
            "two writers"
        );
        for word in &self.words {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.writer_inside.store(false, Ordering::SeqCst);
    }

    fn read(&self) -> [u64; 2] {
        [0, 1].map(|i| self.words[i].load(Ordering::Relaxed))
    }
}

fn in_threads(bodies: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = bodies
        .into_iter()
        .map(|body| thread::spawn("race", body).unwrap())
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn latch_modes_exclude_and_no_wakeup_is_lost() {
    static PARKED_BY_TURNS: Seen = Seen::never();
    explore(|| {
        let guarded = Arc::new(Guarded::default());
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for nth in 0..4 {
            let guarded = guarded.clone();
            bodies.push(Box::new(move || {
                for round in 0..3 {
                    if (nth + round) % 2 == 0 {
                        assert!(guarded.latch.lock_exclusive(|| true));
                        guarded.write();
                        guarded.latch.unlock_exclusive();
                    } else {
                        if !guarded.latch.try_lock_shared() {
                            PARKED_BY_TURNS.see();
                            assert!(guarded.latch.lock_shared(|| true));
                        }
                        let [a, b] = guarded.read();
                        assert_eq!(a, b, "a writer beside a reader");
                        guarded.latch.unlock_shared();
                    }
                }
            }));
        }
        in_threads(bodies);
        assert_eq!(guarded.read(), [6, 6]);
    });
    PARKED_BY_TURNS.check("a reader that has to wait");
}

#[test]
fn optimistic_reads_that_validate_are_whole() {
    static REFUSED: Seen = Seen::never();
    static VALIDATED: Seen = Seen::never();
    explore(|| {
        let guarded = Arc::new(Guarded::default());
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..2 {
            let guarded = guarded.clone();
            bodies.push(Box::new(move || {
                for _ in 0..3 {
                    let version = guarded.latch.optimistic(|| true).unwrap();
                    let [a, b] = guarded.read();
                    if guarded.latch.validate(version) {
                        assert_eq!(a, b, "a torn read was validated");
                        VALIDATED.see();
                        // What was read is still so for a thread that gets in at that version.
                        if guarded.latch.try_upgrade(version) {
                            assert_eq!(guarded.read(), [a, b]);
                            guarded.write();
                            guarded.latch.unlock_exclusive();
                        }
                    } else {
                        REFUSED.see();
                    }
                }
            }));
        }
        let writer = guarded.clone();
        bodies.push(Box::new(move || {
            for _ in 0..3 {
                assert!(writer.latch.lock_exclusive(|| true));
                writer.write();
                writer.latch.unlock_exclusive();
            }
        }));
        in_threads(bodies);
    });
    VALIDATED.check("a read that validates");
    REFUSED.check("a read that does not");
}

#[test]
fn every_waiter_for_a_page_that_goes_gives_up() {
    static GAVE_UP: Seen = Seen::never();
    explore(|| {
        let latch = Arc::new(HybridLatch::default());
        let wanted = Arc::new(AtomicBool::new(true));
        assert!(latch.lock_exclusive(|| true));
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for nth in 0..3 {
            let (latch, wanted) = (latch.clone(), wanted.clone());
            bodies.push(Box::new(move || {
                let wanted = || wanted.load(Ordering::SeqCst);
                let got = match nth {
                    0 => latch.lock_exclusive(wanted),
                    1 => latch.lock_shared(wanted),
                    _ => latch.optimistic(wanted).is_some(),
                };
                match (got, nth) {
                    (false, _) => GAVE_UP.see(),
                    (true, 0) => latch.unlock_exclusive(),
                    (true, 1) => latch.unlock_shared(),
                    (true, _) => {}
                }
            }));
        }
        bodies.push(Box::new(move || {
            wanted.store(false, Ordering::SeqCst);
            latch.unlock_exclusive_gone();
            // A thread that comes for the next page in the frame is not disturbed by those.
            assert!(latch.lock_exclusive(|| true));
            latch.unlock_exclusive();
        }));
        in_threads(bodies);
    });
    GAVE_UP.check("a waiter whose page went");
}

#[test]
fn a_page_that_many_want_is_read_once_and_dropped_pages_do_not_come_back() {
    static SHARED_A_LOAD: Seen = Seen::never();
    explore(|| {
        let bench = Arc::new(Bench::new(16, 2, 1));
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..3 {
            let bench = bench.clone();
            bodies.push(Box::new(move || {
                let guard = bench.pool.shared(page(0)).unwrap();
                assert_eq!(check_pattern(&guard), Lsn(0));
            }));
        }
        let dropper = bench.clone();
        bodies.push(Box::new(move || dropper.pool.discard_page(page(1))));
        let reader = bench.clone();
        bodies.push(Box::new(move || drop(reader.pool.shared(page(1)).unwrap())));
        in_threads(bodies);
        let reads = bench.store.reads.load(Ordering::Relaxed);
        // Page 0 once; page 1 again if it was dropped between.
        assert!((2..=3).contains(&reads), "{reads} reads");
        SHARED_A_LOAD.see();
        bench.pool.check_invariants();
    });
    SHARED_A_LOAD.check("a load that several wait for");
}

#[test]
fn flights_writers_and_checkpoints_agree_on_what_is_clean() {
    explore(|| {
        let bench = Arc::new(Bench::new(16, 2, 1));
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..2 {
            let bench = bench.clone();
            bodies.push(Box::new(move || {
                for number in [0, 1] {
                    bench.touch(number);
                }
            }));
        }
        for _ in 0..2 {
            let bench = bench.clone();
            bodies.push(Box::new(move || {
                let before = bench.log.ready_lsn();
                bench.pool.flush_all().unwrap();
                // What was published before the flush began needs no recovery any more.
                assert!(bench.checkpoint() >= before, "a change was passed over");
            }));
        }
        in_threads(bodies);
        bench.pool.flush_all().unwrap();
        for number in [0, 1] {
            let newest = check_pattern(&bench.pool.shared(page(number)).unwrap());
            assert_eq!(bench.stored_lsn(number), newest);
        }
        bench.pool.check_invariants();
    });
}
