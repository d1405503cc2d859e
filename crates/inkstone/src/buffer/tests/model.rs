//! Many threads on a tiny pool, checked by content, and every possible checkpoint checked against
//! the history of changes.

use super::mock::{Bench, Random, check_pattern, page};
use crate::buffer::Exclusive;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Instant, Mutex};
use inkstone_format::header;
use inkstone_format::{Lsn, PageId};
use std::time::Duration;

const PAGES: u32 = 300;
/// Pages from here on are created, not read.
const PAGES_CREATED: u32 = 100;

/// The words of a page that others may be writing: to be believed once validated.
/// (A function of its own for `cargo xtask tsan`.)
#[inline(never)]
fn read_optimistically(page: *const u8) -> Vec<u64> {
    (0..512)
        // SAFETY: the caller's page is of 4096 bytes and stays mapped; what is torn fails
        // validation.
        .map(|i| unsafe { page.cast::<u64>().add(i).read_volatile() })
        .collect()
}

struct Model {
    bench: Bench,
    /// Start and end of every change, for each page; changed under the page's exclusive latch.
    history: Vec<Mutex<Vec<(Lsn, Lsn)>>>,
    reads: AtomicU64,
    changes: AtomicU64,
    /// Threads `ink-frames`.
    suppliers: usize,
    cleaners: usize,
}

impl Model {
    fn new(instances: usize) -> Self {
        Self {
            bench: Bench::new(64, PAGES, instances),
            history: (0..PAGES + PAGES_CREATED)
                .map(|_| Mutex::default())
                .collect(),
            reads: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            suppliers: 1,
            cleaners: 1,
        }
    }

    fn last_end(&self, id: PageId) -> Lsn {
        let history = self.history[id.page.0 as usize].lock();
        history.last().map_or(Lsn(0), |change| change.1)
    }

    /// Changes one to three pages in one mini-transaction; latches in page order.
    fn change(&self, random: &mut Random) {
        self.bench.pool.throttle().unwrap();
        let first = random.below(PAGES);
        let mut guards: Vec<Exclusive<'_>> = vec![self.bench.pool.exclusive(page(first)).unwrap()];
        let mut next = first + 1 + random.below(3);
        while guards.len() < 3 && next < PAGES {
            guards.extend(self.bench.pool.exclusive_if_resident(page(next)));
            next += 1 + random.below(40);
        }
        self.commit(&mut guards);
    }

    fn create(&self, random: &mut Random) {
        let mut reservation = self
            .bench
            .pool
            .reserve(1 + random.below(3) as usize)
            .unwrap();
        let id = page(PAGES + random.below(PAGES_CREATED));
        let mut guard = self.bench.pool.create(id, &mut reservation).unwrap();
        let lsn = header::page_lsn(&guard);
        header::init_page(&mut guard, id, header::PageType::Leaf);
        header::set_page_lsn(&mut guard, lsn);
        guard.mark_fresh();
        self.commit_without_check(&mut [guard]);
    }

    fn commit(&self, guards: &mut [Exclusive<'_>]) {
        for guard in guards.iter() {
            assert_eq!(check_pattern(guard), self.last_end(guard.id()));
        }
        self.commit_without_check(guards);
    }

    fn commit_without_check(&self, guards: &mut [Exclusive<'_>]) {
        let ids: Vec<PageId> = guards.iter().map(Exclusive::id).collect();
        // As `Bench::change`, and the history must be there before the change is published.
        self.bench.log.append(64, |start, end| {
            for (guard, id) in guards.iter_mut().zip(ids) {
                super::mock::write_pattern(guard, end);
                guard.mark_dirty(start, end);
                self.history[id.page.0 as usize].lock().push((start, end));
            }
        });
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn read_shared(&self, random: &mut Random) {
        let id = page(random.below(PAGES));
        let guard = self.bench.pool.shared(id).unwrap();
        assert_eq!(check_pattern(&guard), self.last_end(id));
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn read_optimistic(&self, random: &mut Random) {
        let id = page(random.below(PAGES));
        let guard = self.bench.pool.optimistic(id).unwrap();
        let bytes = read_optimistically(guard.page_ptr());
        if guard.validate() {
            let page: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(header::page_id(&page), id);
            check_pattern(&page);
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whatever a checkpoint may be now: the disk has every change that began below it.
    fn check_checkpoint(&self) -> Lsn {
        let checkpoint = self.bench.checkpoint();
        for (number, history) in (0..).zip(&self.history) {
            let changes = history.lock();
            let Some(below) = changes.iter().rev().find(|c| c.0 < checkpoint) else {
                continue;
            };
            let stored = self.bench.stored_lsn(number);
            assert!(
                stored >= below.1,
                "page {number}: the disk has {stored}, checkpoint {checkpoint} needs {}",
                below.1
            );
        }
        checkpoint
    }

    fn run(&self, threads: u64, time: Duration) {
        let pool = &self.bench.pool;
        pool.start_threads(self.suppliers, self.cleaners).unwrap();
        let stop = AtomicBool::new(false);
        let first_checkpoint = self.bench.checkpoint();
        crate::sync::test_scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut random = Random(0x9e37_79b9 + thread * 7919);
                        let began = Instant::now();
                        while began.elapsed() < time {
                            match random.below(10) {
                                0..4 => self.change(&mut random),
                                4 => self.create(&mut random),
                                5..7 => self.read_shared(&mut random),
                                _ => self.read_optimistic(&mut random),
                            }
                        }
                    })
                })
                .collect();
            let checker = scope.spawn(|| {
                let mut last = first_checkpoint;
                while !stop.load(Ordering::Relaxed) {
                    let checkpoint = self.check_checkpoint();
                    assert!(checkpoint >= last, "a checkpoint went back");
                    last = checkpoint;
                    std::thread::sleep(Duration::from_millis(1));
                }
                last
            });
            for worker in workers {
                worker.join().unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(checker.join().unwrap() > first_checkpoint);
        });
        self.bench.pool.flush_all().unwrap();
        assert_eq!(self.check_checkpoint(), self.bench.checkpoint());
        self.bench.pool.close();
        self.bench.pool.check_invariants();
        eprintln!(
            "{threads} threads: {} changes, {} reads, {:?}, {} batches",
            self.changes.load(Ordering::Relaxed),
            self.reads.load(Ordering::Relaxed),
            self.bench.pool.status(),
            self.bench.store.batches.load(Ordering::Relaxed),
        );
        assert!(self.changes.load(Ordering::Relaxed) > threads);
    }
}

#[test]
fn few_threads_small_log() {
    let model = Model::new(4);
    model.bench.log.capacity.store(64 * 400, Ordering::Relaxed);
    model
        .bench
        .store
        .write_delay_us
        .store(300, Ordering::Relaxed);
    model.run(8, Duration::from_millis(1500));
}

#[test]
fn one_partition() {
    let model = Model::new(1);
    model.bench.log.capacity.store(64 * 4000, Ordering::Relaxed);
    model.run(4, Duration::from_millis(1000));
}

#[test]
fn hundreds_of_threads_on_64_frames() {
    let model = Model::new(8);
    model.bench.log.capacity.store(64 * 2000, Ordering::Relaxed);
    model
        .bench
        .store
        .write_delay_us
        .store(200, Ordering::Relaxed);
    model.run(256, Duration::from_millis(3000));
}

/// A large pool has three threads that supply frames and two that clean: here their batches hold
/// most of the frames.
#[test]
fn three_suppliers_and_two_cleaners_of_64_frames() {
    let mut model = Model::new(8);
    model.suppliers = 3;
    model.cleaners = 2;
    model.bench.log.capacity.store(64 * 2000, Ordering::Relaxed);
    let delay = &model.bench.store.write_delay_us;
    delay.store(300, Ordering::Relaxed);
    model.run(48, Duration::from_millis(2000));
}

/// Flushes, drops of clean pages and evictions race with changes and the background threads.
#[test]
fn flush_space_races_with_everything() {
    let model = Model::new(8);
    let stop = AtomicBool::new(false);
    crate::sync::test_scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                model.bench.pool.flush_space(page(0).space).unwrap();
            }
        });
        model_run_and_stop(&model, &stop);
    });
}

fn model_run_and_stop(model: &Model, stop: &AtomicBool) {
    model.bench.pool.start_cleaners().unwrap();
    let began = Instant::now();
    crate::sync::test_scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                let mut random = Random(77 + thread);
                while began.elapsed() < Duration::from_millis(1000) {
                    model.change(&mut random);
                    model.read_shared(&mut random);
                    if thread == 0 {
                        model.check_checkpoint();
                    }
                }
            });
        }
    });
    stop.store(true, Ordering::Relaxed);
}
