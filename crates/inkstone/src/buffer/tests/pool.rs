use super::mock::{Bench, PAGE_SIZE, check_pattern, eventually, page};
use crate::Error;
use crate::counters::Counter;
use crate::sync::atomic::Ordering;
use inkstone_format::header;
use inkstone_format::{PageId, PageNo, SpaceId};
use std::time::{Duration, Instant};

#[test]
fn a_page_is_read_once_and_then_hit() {
    let bench = Bench::new(64, 10, 4);
    for _ in 0..3 {
        assert_eq!(bench.pool.shared(page(3)).unwrap().id(), page(3));
        let optimistic = bench.pool.optimistic(page(3)).unwrap();
        assert!(optimistic.validate());
        let again = bench.pool.optimistic_at(optimistic.frame_index(), page(3));
        assert!(again.is_some());
        assert!(
            bench
                .pool
                .optimistic_at(optimistic.frame_index(), page(4))
                .is_none()
        );
        assert!(bench.pool.optimistic_at(u32::MAX, page(4)).is_none());
        assert!(bench.pool.exclusive_if_resident(page(3)).is_some());
    }
    assert_eq!(bench.store.reads.load(Ordering::Relaxed), 1);
    assert!(bench.pool.shared_if_resident(page(4)).is_none());
    assert!(bench.pool.try_exclusive(page(4)).is_none());
    assert_eq!(bench.pool.resident_pages(), vec![page(3)]);
    bench.pool.check_invariants();
}

#[test]
fn guards_turn_into_each_other_only_while_the_page_is_unchanged() {
    let bench = Bench::new(64, 10, 1);
    let optimistic = bench.pool.optimistic(page(1)).unwrap();
    let shared = optimistic.try_shared().unwrap();
    assert!(optimistic.try_upgrade().is_none(), "it is held shared");
    assert!(bench.pool.try_exclusive(page(1)).is_none());
    drop(shared);
    let exclusive = optimistic.try_upgrade().unwrap();
    assert!(!optimistic.validate());
    drop(exclusive);
    assert!(optimistic.try_shared().is_none() && optimistic.into_shared().is_none());
    assert!(optimistic.try_page_id().is_none());
    let now = bench.pool.optimistic(page(1)).unwrap();
    assert!(now.into_shared().is_some() && now.validate());
}

#[test]
fn changed_pages_come_back_after_eviction() {
    let bench = Bench::new(64, 500, 8);
    bench.pool.start_cleaners().unwrap();
    let ends: Vec<_> = (0..500).map(|n| bench.touch(n).1).collect();
    for (n, end) in ends.iter().enumerate() {
        let guard = bench.pool.shared(page(n as u32)).unwrap();
        assert_eq!(check_pattern(&guard), *end);
    }
    assert!(bench.pool.status().evictions >= 800);
    bench.pool.flush_all().unwrap();
    bench.pool.close();
    assert_eq!(bench.pool.status().dirty, 0);
    assert_eq!(bench.pool.oldest_dirty_lsn(), None);
    bench.pool.check_invariants();
}

#[test]
fn clean_pages_are_evicted_by_callers_alone() {
    let bench = Bench::new(64, 500, 3);
    for n in 0..500 {
        bench.pool.shared(page(n)).unwrap();
    }
    assert_eq!(bench.pool.resident_pages().len(), 64);
    bench.pool.check_invariants();
}

#[test]
fn a_scan_leaves_pages_that_were_used_repeatedly() {
    let bench = Bench::new(64, 2000, 1);
    let mut next = 100;
    let mut scan = |pages: u32| {
        for _ in 0..pages {
            drop(bench.pool.shared(page(next)).unwrap());
            next += 1;
        }
    };
    // Twenty hot pages earn their heat over some revolutions.
    for _ in 0..12 {
        for hot in 0..20 {
            bench.pool.optimistic(page(hot)).unwrap();
        }
        scan(15);
    }
    let before = bench.store.reads.load(Ordering::Relaxed);
    scan(60);
    for hot in 0..20 {
        bench.pool.optimistic(page(hot)).unwrap();
    }
    let misses = bench.store.reads.load(Ordering::Relaxed) - before - 60;
    assert_eq!(misses, 0, "the scan pushed hot pages out");
}

#[test]
fn many_threads_that_want_one_page_read_it_once() {
    let bench = Bench::new(64, 10, 4);
    bench.store.hold_reads.store(true, Ordering::SeqCst);
    crate::sync::test_scope(|scope| {
        for thread in 0..16 {
            let bench = &bench;
            scope.spawn(move || match thread % 3 {
                0 => drop(bench.pool.shared(page(7)).unwrap()),
                1 => drop(bench.pool.exclusive(page(7)).unwrap()),
                _ => drop(bench.pool.optimistic(page(7)).unwrap()),
            });
        }
        std::thread::sleep(Duration::from_millis(30));
        bench.store.hold_reads.store(false, Ordering::SeqCst);
    });
    assert_eq!(bench.store.reads.load(Ordering::Relaxed), 1);
    bench.pool.check_invariants();
}

#[test]
fn a_read_error_reaches_every_waiter_and_is_not_remembered() {
    let bench = Bench::new(64, 10, 4);
    bench.store.hold_reads.store(true, Ordering::SeqCst);
    bench.store.fail_reads.store(true, Ordering::SeqCst);
    crate::sync::test_scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| bench.pool.shared(page(7)).map(drop)))
            .collect();
        std::thread::sleep(Duration::from_millis(30));
        bench.store.hold_reads.store(false, Ordering::SeqCst);
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Err(Error::Io { .. })));
        }
    });
    bench.store.fail_reads.store(false, Ordering::SeqCst);
    assert!(bench.pool.shared(page(7)).is_ok());
    assert!(matches!(
        bench.pool.shared(page(99)),
        Err(Error::NotFound(_))
    ));
    let mut bytes = vec![1; PAGE_SIZE];
    header::init_page(&mut bytes, page(8), header::PageType::Leaf);
    bench.store.pages.lock().insert(page(8), bytes);
    let corrupt = bench.pool.optimistic(page(8)).map(|_| ());
    assert!(matches!(corrupt, Err(Error::Corrupt { .. })));
    bench.pool.check_invariants();
}

#[test]
fn create_overtakes_a_read_of_the_same_page() {
    let bench = Bench::new(64, 10, 4);
    bench.store.hold_reads.store(true, Ordering::SeqCst);
    crate::sync::test_scope(|scope| {
        let reader = scope.spawn(|| {
            let guard = bench.pool.shared(page(5)).unwrap();
            check_pattern(&guard)
        });
        eventually("the read begins", || {
            bench.store.reads.load(Ordering::Relaxed) == 1
        });
        let mut reservation = bench.pool.reserve(1).unwrap();
        let guard = bench.pool.create(page(5), &mut reservation).unwrap();
        assert_eq!(header::page_id(&guard), page(5));
        let (_, end) = bench.change(&mut [guard]);
        bench.store.hold_reads.store(false, Ordering::SeqCst);
        assert_eq!(
            reader.join().unwrap(),
            end,
            "the reader sees the created page"
        );
    });
    bench.pool.check_invariants();
}

#[test]
fn reservations_are_bounded_and_given_back() {
    let bench = Bench::new(64, 100, 4);
    let max = bench.pool.reservation_max();
    assert_eq!(max, 16);
    assert!(matches!(bench.pool.reserve(17), Err(Error::Unsupported(_))));
    let first = bench.pool.reserve(10).unwrap();
    assert_eq!((first.len(), bench.pool.status().free), (10, 54));
    crate::sync::test_scope(|scope| {
        let second = scope.spawn(|| bench.pool.reserve(10).unwrap().len());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!second.is_finished(), "over the bound");
        drop(first);
        assert_eq!(second.join().unwrap(), 10);
    });
    assert_eq!(bench.pool.status().free, 64);

    let mut reservation = bench.pool.reserve(2).unwrap();
    drop(bench.pool.create(page(1000), &mut reservation).unwrap());
    // Resident already: costs no frame.
    drop(bench.pool.create(page(1000), &mut reservation).unwrap());
    assert_eq!(reservation.len(), 1);
    drop(reservation);
    bench.pool.check_invariants();
}

#[test]
fn dropped_spaces_and_pages_are_forgotten() {
    let bench = Bench::new(64, 20, 4);
    for n in 0..20 {
        bench.touch(n);
    }
    let other = PageId::new(SpaceId(2), PageNo(0));
    let mut reservation = bench.pool.reserve(1).unwrap();
    let guard = bench.pool.create(other, &mut reservation).unwrap();
    let (start, _) = bench.change(&mut [guard]);
    drop(reservation);

    bench.pool.discard_page(page(0));
    bench.pool.discard_page(page(0));
    bench.pool.discard_pages(SpaceId(1), 10..20);
    assert_eq!(bench.pool.resident_pages().len(), 10);
    bench.pool.check_invariants();
    // A page that is discarded is read again as the disk has it.
    assert_eq!(check_pattern(&bench.pool.shared(page(0)).unwrap()).0, 0);

    bench.pool.drop_space(SpaceId(1), 20);
    assert_eq!(bench.pool.resident_pages(), vec![other]);
    assert_eq!(bench.pool.oldest_dirty_lsn(), Some(start));
    assert!(bench.store.writes.lock().is_empty());
    bench.pool.check_invariants();
}

/// It is the pages of the tablespace that are looked for, not the frames of the pool that are
/// looked at: in turns, the fastest of several runs.
#[test]
fn a_large_pool_drops_a_small_tablespace_as_fast() {
    let benches = [Bench::new(256, 1, 8), Bench::new(64 << 10, 1, 8)];
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..8 {
        for (bench, fastest) in benches.iter().zip(&mut fastest) {
            bench.touch(0);
            let began = Instant::now();
            for _ in 0..100 {
                bench.pool.drop_space(SpaceId(1), 4);
            }
            *fastest = began.elapsed().min(*fastest);
            assert!(bench.pool.resident_pages().is_empty());
        }
    }
    let [small, large] = fastest;
    assert!(large < 4 * small, "{small:?}, {large:?}");
}

#[test]
fn drop_space_waits_for_pages_in_flight() {
    let bench = Bench::new(64, 20, 4);
    bench.touch(1);
    bench.store.hold_writes.store(true, Ordering::SeqCst);
    crate::sync::test_scope(|scope| {
        let flush = scope.spawn(|| bench.pool.flush_all());
        std::thread::sleep(Duration::from_millis(20));
        let dropping = scope.spawn(|| bench.pool.drop_space(SpaceId(1), 20));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!dropping.is_finished());
        bench.store.hold_writes.store(false, Ordering::SeqCst);
        flush.join().unwrap().unwrap();
    });
    assert!(bench.pool.resident_pages().is_empty());
    bench.pool.check_invariants();
}

#[test]
fn poison_wakes_waiters_for_frames() {
    let bench = Bench::new(64, 200, 4);
    bench.store.hold_writes.store(true, Ordering::SeqCst);
    for n in 0..64 {
        bench.touch(n);
    }
    bench.pool.start_cleaners().unwrap();
    crate::sync::test_scope(|scope| {
        let waiting: Vec<_> = (100..110)
            .map(|n| {
                let pool = &bench.pool;
                scope.spawn(move || pool.shared(page(n)).map(drop))
            })
            .collect();
        eventually("they wait", || {
            bench.counters.get(Counter::BufferFrameWaits) >= 10
        });
        bench.poison.set("a test says so");
        bench.store.hold_writes.store(false, Ordering::SeqCst);
        for thread in waiting {
            let outcome = thread.join().unwrap();
            // A flight that was under way may have freed a frame before.
            assert!(matches!(outcome, Ok(()) | Err(Error::Poisoned(_))));
        }
    });
    let looked = bench.pool.flush_all();
    assert!(matches!(looked, Err(Error::Poisoned(_))), "{looked:?}");
}

/// All frames are dirty, and the thread that writes pages to free frames is not there yet.
#[test]
fn a_caller_that_needs_a_frame_writes_no_page() {
    let bench = Bench::new(64, 200, 4);
    for n in 0..64 {
        bench.touch(n);
    }
    crate::sync::test_scope(|scope| {
        let waiting = scope.spawn(|| bench.pool.shared(page(100)).map(drop));
        eventually("it waits", || {
            bench.counters.get(Counter::BufferFrameWaits) > 0
        });
        assert_eq!(bench.store.batches.load(Ordering::Relaxed), 0);
        bench.pool.start_cleaners().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(bench.store.batches.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_closed_pool_says_so() {
    let bench = Bench::new(64, 200, 4);
    bench.pool.start_cleaners().unwrap();
    bench.pool.close();
    bench.pool.close();
    assert!(matches!(bench.pool.shared(page(1)), Err(Error::Closed)));
}

#[test]
fn many_pages_are_loaded_as_far_as_frames_are_free() {
    let bench = Bench::new(64, 100, 4);
    drop(bench.pool.shared(page(3)).unwrap());
    let some: Vec<_> = (0..20).map(page).collect();
    assert!(bench.pool.load_many(&some).unwrap());
    assert_eq!(bench.pool.resident_pages(), some);
    assert_eq!(bench.store.reads.load(Ordering::Relaxed), 20);
    let all: Vec<_> = (0..100).map(page).collect();
    assert!(!bench.pool.load_many(&all).unwrap());
    assert_eq!(bench.pool.resident_pages().len(), 64);
    assert_eq!(bench.pool.status().evictions, 0);
    assert!(bench.pool.shared_if_resident(page(63)).is_some());
    bench.pool.check_invariants();
}
