use super::mock::{Bench, eventually, page};
use crate::Error;
use crate::buffer::RedoLog;
use crate::buffer::cleaner::{Plan, delay, plan};
use crate::buffer::flush::{Flusher, Join};
use crate::counters::Counter;
use crate::sync::Instant;
use crate::sync::atomic::Ordering;
use inkstone_format::header::{self, PageType};
use inkstone_format::{Lsn, SpaceId};
use std::time::Duration;

#[test]
fn oldest_lsn_is_the_start_of_the_first_change() {
    let bench = Bench::new(64, 10, 4);
    assert_eq!(bench.pool.oldest_dirty_lsn(), None);
    let (first, _) = bench.touch(1);
    bench.touch(2);
    let (_, last) = bench.touch(1);
    assert_eq!(bench.pool.oldest_dirty_lsn(), Some(first));
    bench.pool.flush_space(SpaceId(9)).unwrap();
    assert_eq!(bench.pool.status().dirty, 2);
    bench.pool.flush_space(SpaceId(1)).unwrap();
    assert_eq!(bench.pool.oldest_dirty_lsn(), None);
    assert_eq!(bench.stored_lsn(1), last);
    assert_eq!(bench.store.batches.load(Ordering::Relaxed), 1, "one batch");
    bench.pool.check_invariants();
}

/// The flight has the first change only: afterwards the page is dirty from the START of the first
/// mini-transaction after the copy, though later ones changed it too.
#[test]
fn a_change_during_the_flight_becomes_the_oldest() {
    let bench = Bench::new(64, 10, 4);
    let (first, first_end) = bench.touch(1);
    bench.store.hold_writes.store(true, Ordering::SeqCst);
    crate::sync::test_scope(|scope| {
        let flush = scope.spawn(|| bench.pool.flush_all());
        eventually("the copy", || {
            bench.log.durable.load(Ordering::SeqCst) >= first_end.0
        });
        let (second, _) = bench.touch(1);
        let (_, last) = bench.touch(1);
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(first), "not landed yet");
        bench.store.hold_writes.store(false, Ordering::SeqCst);
        flush.join().unwrap().unwrap();
        assert_eq!(bench.pool.oldest_dirty_lsn(), Some(second));
        assert_eq!(bench.stored_lsn(1), first_end);
        bench.pool.check_invariants();
        bench.pool.flush_all().unwrap();
        assert_eq!(bench.stored_lsn(1), last);
        assert_eq!(bench.pool.oldest_dirty_lsn(), None);
    });
}

/// A flush that finds the page in flight, in a copy from before the call, writes it again.
#[test]
fn flush_all_does_not_trust_a_flight_that_began_before() {
    let bench = Bench::new(64, 10, 4);
    let (_, end) = bench.touch(1);
    bench.store.hold_writes.store(true, Ordering::SeqCst);
    crate::sync::test_scope(|scope| {
        scope.spawn(|| bench.pool.flush_all().unwrap());
        eventually("the copy", || {
            bench.log.durable.load(Ordering::SeqCst) >= end.0
        });
        let (_, last) = bench.touch(1);
        let second = scope.spawn(|| bench.pool.flush_all().unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!second.is_finished());
        bench.store.hold_writes.store(false, Ordering::SeqCst);
        second.join().unwrap();
        assert_eq!(bench.stored_lsn(1), last);
    });
    bench.pool.check_invariants();
}

#[test]
fn fresh_goes_with_the_first_copy_only() {
    let bench = Bench::new(64, 10, 4);
    let init = || {
        let mut reservation = bench.pool.reserve(1).unwrap();
        let mut guard = bench.pool.create(page(100), &mut reservation).unwrap();
        guard.mark_fresh();
        bench.change(&mut [guard]).1
    };
    let a = init();
    bench.store.hold_writes.store(true, Ordering::SeqCst);
    let b = crate::sync::test_scope(|scope| {
        scope.spawn(|| bench.pool.flush_all().unwrap());
        eventually("the copy", || {
            bench.log.durable.load(Ordering::SeqCst) >= a.0
        });
        let (_, b) = bench.touch(100);
        bench.store.hold_writes.store(false, Ordering::SeqCst);
        b
    });
    bench.pool.flush_all().unwrap();
    let c = init();
    bench.pool.flush_all().unwrap();
    let expected = [
        (page(100), a, true),
        (page(100), b, false),
        (page(100), c, true),
    ];
    assert_eq!(*bench.store.writes.lock(), expected);
}

#[test]
fn unlogged_changes_dirty_nothing_and_go_with_the_next_copy() {
    let bench = Bench::new(64, 10, 4);
    let before = bench.pool.optimistic(page(1)).unwrap();
    let mut guard = bench.pool.exclusive(page(1)).unwrap();
    guard[13] = 0;
    guard.mark_changed_unlogged();
    assert!(!guard.is_dirty());
    drop(guard);
    assert!(!before.validate());
    assert_eq!(bench.pool.status().dirty, 0);
}

#[test]
fn a_full_disk_keeps_pages_dirty_and_can_be_retried() {
    let bench = Bench::new(64, 200, 4);
    let (start, _) = bench.touch(1);
    bench.store.disk_full.store(true, Ordering::SeqCst);
    assert!(matches!(
        bench.pool.flush_all(),
        Err(Error::DiskFull { .. })
    ));
    assert_eq!(bench.pool.oldest_dirty_lsn(), Some(start));
    // A thread that needs a frame which only a write could free gets the error too.
    for n in 0..64 {
        bench.touch(n);
    }
    bench.pool.start_cleaners().unwrap();
    let outcome = bench.pool.shared(page(100)).map(drop);
    assert!(matches!(outcome, Err(Error::DiskFull { .. })));
    assert!(!bench.poison.is_set());
    bench.store.disk_full.store(false, Ordering::SeqCst);
    eventually("frames again", || bench.pool.shared(page(100)).is_ok());
    bench.pool.flush_all().unwrap();
    assert_eq!(bench.pool.oldest_dirty_lsn(), None);
}

/// A write that failed costs its own page only, and poisons nothing.
#[test]
fn a_page_that_cannot_be_written_stays_and_the_others_land() {
    let bench = Bench::new(64, 200, 4);
    let (start, _) = bench.touch(1);
    let (_, end) = bench.touch(2);
    bench.store.refuse.lock().insert(page(1));
    assert!(matches!(bench.pool.flush_all(), Err(Error::Io { .. })));
    assert!(matches!(bench.pool.inner_refusal(), Some(Error::Io { .. })));
    assert!(!bench.poison.is_set());
    assert_eq!(bench.checkpoint(), start);
    assert_eq!(bench.stored_lsn(2), end);
    let status = bench.pool.status();
    assert_eq!((status.dirty, status.refused), (1, 1));
    // Threads that clean and supply frames go on with the others.
    bench.pool.start_cleaners().unwrap();
    for n in 3..200 {
        bench.touch(n);
    }
    eventually("clean but for one", || bench.pool.status().dirty == 1);
    bench.store.refuse.lock().clear();
    eventually("clean", || bench.pool.status().dirty == 0);
    eventually("forgotten", || bench.pool.inner_refusal().is_none());
}

/// The refused page is tried again in no time, the others take the device long.
#[test]
fn a_thread_waits_for_frames_while_there_are_other_pages_to_write() {
    let bench = Bench::new(64, 200, 4);
    bench.touch(1);
    bench.store.refuse.lock().insert(page(1));
    bench.store.write_delay_us.store(100_000, Ordering::Relaxed);
    assert!(matches!(bench.pool.flush_all(), Err(Error::Io { .. })));
    bench.pool.start_cleaners().unwrap();
    for n in 3..200 {
        bench.touch(n);
    }
    assert!(bench.pool.inner_refusal().is_some());
}

#[test]
fn a_refused_page_that_is_discarded_is_forgotten() {
    let bench = Bench::new(64, 20, 4);
    bench.touch(1);
    bench.store.refuse.lock().insert(page(1));
    bench.pool.flush_all().unwrap_err();
    bench.pool.discard_page(page(1));
    bench.pool.start_cleaners().unwrap();
    eventually("forgotten", || bench.pool.inner_refusal().is_none());
    bench.pool.check_invariants();
}

/// The log cannot be freed: a thread that would wait for that gets the error. When the log can be
/// freed again, the thread goes on.
#[test]
fn a_full_log_behind_a_refused_page_is_an_error_until_it_can_be_written() {
    let bench = Bench::new(64, 60, 4);
    bench.log.capacity.store(64 * 100, Ordering::Relaxed);
    bench.store.refuse.lock().insert(page(1));
    bench.pool.start_cleaners().unwrap();
    bench.touch(1);
    let error = (0..1000).find_map(|n| {
        bench.touch(2 + n % 50);
        bench.pool.throttle().err()
    });
    assert!(matches!(error, Some(Error::Io { .. })), "{error:?}");
    bench.store.refuse.lock().clear();
    bench.pool.throttle().unwrap();
}

#[test]
fn the_cleaner_writes_everything_when_idle() {
    let bench = Bench::new(256, 200, 4);
    bench.pool.start_cleaners().unwrap();
    for n in 0..200 {
        bench.touch(n);
    }
    eventually("clean", || bench.pool.status().dirty == 0);
    assert!(
        bench.store.batches.load(Ordering::Relaxed) < 20,
        "in batches"
    );
}

#[test]
fn throttle_keeps_the_age_below_the_capacity() {
    let bench = Bench::new(256, 250, 4);
    bench.log.capacity.store(64 * 1000, Ordering::Relaxed);
    bench.store.write_delay_us.store(3000, Ordering::Relaxed);
    bench.pool.start_cleaners().unwrap();
    let began = Instant::now();
    crate::sync::test_scope(|scope| {
        for thread in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                let mut n = thread;
                while began.elapsed() < Duration::from_millis(500) {
                    bench.pool.throttle().unwrap();
                    n = (n * 7 + 13) % 250;
                    bench.touch(n);
                    let age = bench.log.ready_lsn().0 - bench.checkpoint().0;
                    assert!(age < 64 * 1000, "{age}");
                }
            });
        }
    });
    assert!(bench.counters.get(Counter::CheckpointWaits) > 0);
}

/// The writes of one batch and the copies of the next: each cleaner has a batch under way, of other
/// pages.
#[test]
fn each_cleaner_has_a_batch_under_way() {
    for cleaners in [1, 2] {
        let bench = Bench::new(64, 60, 8);
        bench.log.capacity.store(64 * 40, Ordering::Relaxed);
        bench.store.hold_writes.store(true, Ordering::SeqCst);
        for number in 0..40 {
            bench.touch(number);
        }
        bench.pool.start_threads(1, cleaners).unwrap();
        for _ in 0..2000 {
            crate::sync::thread::sleep(Duration::from_millis(1));
            if bench.store.writing.load(Ordering::SeqCst) >= 2 {
                break;
            }
        }
        let under_way = bench.store.writing.load(Ordering::SeqCst);
        bench.store.hold_writes.store(false, Ordering::SeqCst);
        assert_eq!(under_way, cleaners);
        eventually("all is written", || bench.pool.oldest_dirty_lsn().is_none());
        assert_eq!(bench.store.writes.lock().len(), 40, "none twice");
    }
}

#[test]
fn the_plan_follows_the_fill() {
    let capacity = 8000;
    let at = |age: u64, grown| plan(Lsn(100_000), Some(Lsn(100_000 - age)), capacity, grown);
    assert!(matches!(plan(Lsn(5), None, capacity, 9.0), Plan::Rest(_)));
    assert!(matches!(at(900, 50.0), Plan::Rest(_)));
    assert_eq!(at(900, 0.0), Plan::Idle);
    // Half way (7/16) the oldest LSN moves as fast as the log grows.
    assert_eq!(at(3500, 100.0), Plan::Advance(Lsn(96_500 + 101)));
    assert_eq!(at(6000, 100.0), Plan::Furious);
    assert_eq!(at(6000, 0.0), Plan::Furious);

    assert_eq!(delay(0.5), Some(Duration::ZERO));
    assert_eq!(delay(0.8125), Some(Duration::from_micros(12_500)));
    assert_eq!(delay(0.875), None);
}

/// All but a few frames hold pages that cannot be written. A thread that needs several pages at
/// once gets them, or an error, and does not push its own pages out for ever.
#[test]
fn pinned_pages_stay_while_most_frames_are_refused() {
    let bench = Bench::new(16, 100, 1);
    let dirty = 16 - 4;
    bench.store.refuse.lock().extend((0..dirty).map(page));
    for n in 0..dirty {
        bench.touch(n);
    }
    bench.pool.flush_all().unwrap_err();
    bench.pool.start_cleaners().unwrap();
    {
        let mut pins = bench.pool.pins();
        for n in 50..50 + bench.pool.pins_max() as u32 {
            pins.hold(page(n)).unwrap();
        }
        let optimistic = bench.pool.optimistic(page(50)).unwrap();
        let error = bench.pool.shared(page(60)).map(drop).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(optimistic.validate(), "to look for a frame changes no page");
        for n in 50..50 + bench.pool.pins_max() as u32 {
            assert!(bench.pool.shared_if_resident(page(n)).is_some(), "{n}");
        }
    }
    bench.pool.shared(page(60)).unwrap();
    bench.store.refuse.lock().clear();
    bench.pool.flush_all().unwrap();
    bench.pool.check_invariants();
}

/// A mini-transaction that the log refuses has changed its pages already: one that it freed has no
/// LSN, so that no rule of the log keeps it from the disk.
#[test]
fn a_page_that_the_log_does_not_know_is_not_written() {
    let bench = Bench::new(64, 10, 1);
    let (_, known) = bench.touch(3);
    bench.pool.flush_all().unwrap();
    bench.touch(3);
    let mut refused = bench.pool.exclusive(page(3)).unwrap();
    header::init_page(&mut refused, page(3), PageType::Free);
    bench.poison.set("the log refused it");
    let frame = refused.frame_index();
    drop(refused);
    let pool = &bench.pool.inner;
    let mut flusher = Flusher::new(pool, 4).unwrap();
    assert_eq!(flusher.join(pool, frame, page(3), true), Join::Taken);
    assert!(matches!(flusher.write(pool), Err(Error::Poisoned(_))));
    assert_eq!(bench.stored_lsn(3), known);
}
