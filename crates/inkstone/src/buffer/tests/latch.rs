use crate::buffer::latch::HybridLatch;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::cell::UnsafeCell;
use std::time::Duration;

/// Words that an exclusive holder changes together.
struct Guarded {
    latch: HybridLatch,
    words: UnsafeCell<[u64; 16]>,
}

// SAFETY: the tests write `words` under the exclusive latch only, and read them through volatile
// reads that they validate, or under the shared latch.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Self {
        Self {
            latch: HybridLatch::default(),
            words: UnsafeCell::new([0; 16]),
        }
    }
    fn write(&self) {
        for i in 0..16 {
            // SAFETY: the caller holds the latch exclusively.
            unsafe {
                let word = self.words.get().cast::<u64>().add(i);
                word.write_volatile(word.read_volatile() + 1);
            }
        }
    }
    fn read(&self) -> [u64; 16] {
        // SAFETY: the caller holds the latch, or is alone.
        unsafe { self.words.get().read() }
    }
    /// While others write, unlike `read`. (A function of its own for `cargo xtask tsan`.)
    #[inline(never)]
    fn read_optimistically(&self) -> [u64; 16] {
        // SAFETY: in bounds; what is torn fails validation.
        std::array::from_fn(|i| unsafe { self.words.get().cast::<u64>().add(i).read_volatile() })
    }
}

fn all_equal(words: [u64; 16]) -> bool {
    words.iter().all(|&w| w == words[0])
}

#[test]
fn modes_exclude_each_other() {
    let latch = HybridLatch::default();
    let v0 = latch.try_optimistic().unwrap();
    assert!(latch.try_lock_shared() && latch.try_lock_shared());
    assert!(latch.validate(v0) && !latch.try_lock_exclusive() && !latch.try_upgrade(v0));
    latch.unlock_shared();
    latch.unlock_shared();
    assert!(latch.try_upgrade(v0));
    assert!(!latch.validate(v0) && latch.try_optimistic().is_none());
    assert!(!latch.try_lock_shared() && !latch.try_lock_exclusive() && !latch.try_shared_at(v0));
    latch.unlock_exclusive();
    assert!(!latch.validate(v0) && !latch.try_upgrade(v0) && !latch.try_shared_at(v0));
    let v1 = latch.try_optimistic().unwrap();
    assert!(v0 != v1 && latch.try_shared_at(v1));
    latch.unlock_shared();
    assert!(latch.validate(v1));
}

#[test]
fn optimistic_readers_never_validate_a_torn_read() {
    let guarded = Guarded::new();
    let stop = AtomicBool::new(false);
    let validated = AtomicU64::new(0);
    crate::sync::test_scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) || validated.load(Ordering::Relaxed) == 0 {
                    let version = guarded.latch.optimistic(|| true).unwrap();
                    let words = guarded.read_optimistically();
                    if guarded.latch.validate(version) {
                        assert!(all_equal(words));
                        validated.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    assert!(guarded.latch.lock_exclusive(|| true));
                    guarded.write();
                    guarded.latch.unlock_exclusive();
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    });
    assert!(validated.load(Ordering::Relaxed) > 0);
    assert!(all_equal(guarded.read()));
}

#[test]
fn many_threads_mix_modes_and_none_is_left_parked() {
    let guarded = Guarded::new();
    let readers_inside = AtomicUsize::new(0);
    let writes = AtomicU64::new(0);
    crate::sync::test_scope(|scope| {
        for thread in 0..256 {
            let (guarded, readers_inside, writes) = (&guarded, &readers_inside, &writes);
            scope.spawn(move || {
                for round in 0..200 {
                    if (thread + round) % 3 == 0 {
                        assert!(guarded.latch.lock_exclusive(|| true));
                        assert_eq!(readers_inside.load(Ordering::SeqCst), 0);
                        guarded.write();
                        if round % 50 == 0 {
                            std::thread::yield_now();
                        }
                        writes.fetch_add(1, Ordering::Relaxed);
                        guarded.latch.unlock_exclusive();
                    } else {
                        assert!(guarded.latch.lock_shared(|| true));
                        readers_inside.fetch_add(1, Ordering::SeqCst);
                        assert!(all_equal(guarded.read()));
                        if round % 50 == 0 {
                            std::thread::yield_now();
                        }
                        readers_inside.fetch_sub(1, Ordering::SeqCst);
                        guarded.latch.unlock_shared();
                    }
                }
            });
        }
    });
    assert_eq!(guarded.read()[0], writes.load(Ordering::Relaxed));
}

#[test]
fn a_writer_gets_in_between_readers_that_overlap() {
    let latch = HybridLatch::default();
    let stop = AtomicBool::new(false);
    crate::sync::test_scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    latch.lock_shared(|| true);
                    std::thread::sleep(Duration::from_millis(1));
                    latch.unlock_shared();
                }
            });
        }
        for _ in 0..20 {
            latch.lock_exclusive(|| true);
            latch.unlock_exclusive();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Without `wanted`, a thread could wait for ever for a latch that by then guards another page.
#[test]
fn every_waiter_for_a_page_that_goes_gives_up() {
    let latch = HybridLatch::default();
    let wanted = AtomicBool::new(true);
    let gave_up = AtomicUsize::new(0);
    latch.lock_exclusive(|| true);
    crate::sync::test_scope(|scope| {
        for thread in 0..8 {
            let (latch, wanted, gave_up) = (&latch, &wanted, &gave_up);
            scope.spawn(move || {
                let wanted = || wanted.load(Ordering::SeqCst);
                let got = match thread % 3 {
                    0 => latch.lock_exclusive(wanted),
                    1 => latch.lock_shared(wanted),
                    _ => latch.optimistic(wanted).is_some(),
                };
                // Woken before the next exclusive holder comes, some get the latch.
                match (got, thread % 3) {
                    (false, _) => drop(gave_up.fetch_add(1, Ordering::SeqCst)),
                    (true, 0) => latch.unlock_exclusive(),
                    (true, 1) => latch.unlock_shared(),
                    (true, _) => {}
                }
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        wanted.store(false, Ordering::SeqCst);
        latch.unlock_exclusive_gone();
        // A thread that comes too late to find the latch free must not wait for this holder.
        latch.lock_exclusive(|| true);
        std::thread::sleep(Duration::from_millis(50));
        latch.unlock_exclusive();
    });
    assert!(gave_up.load(Ordering::SeqCst) <= 8);
}
