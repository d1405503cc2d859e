//! Pages that are redone when they are read.

use super::model::{Model, Random};
use super::random::{check_oldest, check_pages, workload};
use super::rig::{
    How, LogBuilder, MemoryDisk, PAGE, SPACE, page, pool, redo_from, run_late, still_pool,
};
use crate::Error;
use crate::buffer::BufferPool;
use crate::recovery::{RedoLeft, RedoStat};
use inkstone_format::header::{PageType, page_lsn};
use inkstone_format::record::Record;
use inkstone_format::{Lsn, PageId, SpaceId};
use std::sync::Arc;

const START: Lsn = Lsn(5000);

fn late(
    model: &Model,
    disk: &MemoryDisk,
    pool: &Arc<BufferPool>,
    how: How,
) -> Option<Arc<RedoLeft>> {
    let (_, scan_start) = model.checkpoint();
    let mut source = model.log.from(scan_start);
    run_late(&mut source, disk, pool, how).unwrap().left
}

/// One of the things that may happen to an open database while pages wait.
fn one_step(random: &mut Random, pages: &[PageId], pool: &BufferPool, left: Option<&RedoLeft>) {
    let id = pages[random.below(pages.len())];
    match random.below(8) {
        0 => drop(pool.shared(id).unwrap()),
        1 => drop(pool.exclusive(id).unwrap()),
        2 => pool.load(id).unwrap(),
        3 => {
            let to = 1 + random.below(pages.len());
            let some: Vec<PageId> = pages[..to].to_vec();
            pool.load_many(&some).unwrap();
        }
        4 => pool.flush_all().unwrap(),
        5 => {
            let again = left.is_some_and(|left| left.redo_some(pool).unwrap());
            assert!(!again || left.is_some());
        }
        _ => drop(pool.shared_if_resident(id)),
    }
}

/// A second crash, from what the pool says of a checkpoint: the same pages come out.
fn crash_again(model: &Model, disk: &MemoryDisk, pool: &BufferPool, what: &str) {
    let checkpoint = pool.oldest_dirty_lsn().unwrap_or(model.log.end);
    let disk = disk.snapshot();
    let again = super::rig::pool(&disk, 64);
    let how = How::from(checkpoint);
    late(model, &disk, &again, how);
    check_pages(model, &again, what);
}

#[test]
fn pages_are_redone_when_they_are_read() {
    let mut met_waiting = 0;
    for seed in 1..60 {
        let model = workload(seed, 60 + 5 * seed as usize);
        let (checkpoint, _) = model.checkpoint();
        let pages: Vec<PageId> = model.pages.keys().copied().collect();
        for (budget, frames) in [(usize::MAX, 64), (400, 16), (4000, 64)] {
            let what = format!("seed {seed}, {budget} bytes, {frames} frames");
            let disk = model.disk.snapshot();
            let pool = pool(&disk, frames);
            let how = How {
                budget,
                ..How::from(checkpoint)
            };
            let left = late(&model, &disk, &pool, how);
            let left = left.as_deref();
            let mut random = Random::new(seed);
            for _ in 0..random.below(12) {
                check_oldest(&model, &disk, &pool, checkpoint, &what);
                met_waiting += u64::from(left.is_some_and(|left| left.stat().pages > 0));
                crash_again(&model, &disk, &pool, &what);
                one_step(&mut random, &pages, &pool, left);
            }
            check_pages(&model, &pool, &what);
            if let Some(left) = left {
                left.redo_all(&pool).unwrap();
                assert_eq!(left.stat(), RedoStat::default(), "{what}");
            }
            pool.flush_all().unwrap();
            assert_eq!(pool.oldest_dirty_lsn(), None, "{what}");
        }
    }
    assert!(met_waiting > 200, "{met_waiting}");
}

#[test]
fn pages_are_redone_by_many_threads_once() {
    for seed in 1..10 {
        let model = workload(seed, 300);
        let (checkpoint, _) = model.checkpoint();
        let pages: Vec<PageId> = model.pages.keys().copied().collect();
        let disk = model.disk.snapshot();
        let pool = pool(&disk, 16);
        let left = late(&model, &disk, &pool, How::from(checkpoint)).unwrap();
        let waiting = left.stat().pages;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, left, pages) = (&pool, &left, &pages);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 10 + thread);
                    for _ in 0..30 {
                        one_step(&mut random, pages, pool, Some(left));
                    }
                    left.redo_all(pool).unwrap();
                });
            }
        });
        check_pages(&model, &pool, &format!("seed {seed}"));
        let counter = crate::counters::Counter::PagesRedoneLate;
        assert_eq!(pool.inner_counters().get(counter), waiting);
    }
}

fn bytes(page: PageId, byte: u8) -> Record {
    Record::Bytes {
        page,
        offset: 100,
        bytes: vec![byte; 10],
    }
}

fn disk_with(pages: u32) -> MemoryDisk {
    let disk = MemoryDisk::default();
    disk.state().files.insert(SPACE, Vec::new());
    for number in 0..pages {
        disk.put_page(page(number), Lsn(100));
    }
    disk
}

#[test]
fn a_page_that_is_created_keeps_the_log_of_its_past() {
    let disk = disk_with(2);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1)]);
    let (second, _) = log.records(&[bytes(page(1), 1)]);
    let (_, end) = log.records(&[bytes(page(0), 2)]);
    let pool = still_pool(&disk, 64);
    let how = How::from(START);
    let left = run_late(&mut log.from(START), &disk, &pool, how).unwrap();
    let left = left.left.unwrap();
    assert_eq!(pool.oldest_dirty_lsn(), Some(START));
    let mut frames = pool.reserve(1).unwrap();
    let mut created = pool.create(page(0), &mut frames).unwrap();
    assert_eq!(left.stat().pages, 1);
    assert_eq!(pool.oldest_dirty_lsn(), Some(START));
    assert_eq!((created[100], page_lsn(&created)), (0, end));
    let (start, end) = (Lsn(end.0 + 1), Lsn(end.0 + 10));
    inkstone_format::header::init_page(&mut created, page(0), PageType::Overflow);
    created.mark_fresh();
    created.mark_dirty(start, end);
    drop((created, frames));
    assert_eq!(pool.oldest_dirty_lsn(), Some(START));
    pool.flush_all().unwrap();
    assert_eq!(pool.oldest_dirty_lsn(), Some(second));
    // It is not redone a second time.
    left.redo_all(&pool).unwrap();
    assert_eq!(page_lsn(&pool.shared(page(0)).unwrap()), end);
    assert_eq!(disk.state().reads, [page(1)]);
}

#[test]
fn a_page_that_cannot_be_redone_stays() {
    let disk = disk_with(3);
    disk.put_raw(page(1), vec![7; PAGE]);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1)]);
    let (at, _) = log.records(&[bytes(page(1), 1)]);
    let (last, _) = log.records(&[bytes(page(2), 1)]);
    let pool = still_pool(&disk, 64);
    let outcome = run_late(&mut log.from(START), &disk, &pool, How::from(START)).unwrap();
    let left = outcome.left.unwrap();
    assert_eq!(left.stat().pages, 3);
    for _ in 0..2 {
        let failed = left.redo_all(&pool).unwrap_err();
        assert!(matches!(failed, Error::Corrupt { page: Some(id), .. } if id == page(1)));
        assert_eq!(left.stat().pages, 1);
    }
    assert!(!left.redo_some(&pool).unwrap());
    pool.flush_all().unwrap();
    assert_eq!(pool.oldest_dirty_lsn(), Some(at));
    assert!(pool.shared(page(1)).is_err());
    assert_eq!(pool.shared(page(2)).unwrap()[100], 1);
    // It can be read again.
    disk.put_page(page(1), Lsn(100));
    assert_eq!(pool.shared(page(1)).unwrap()[100], 1);
    assert_eq!(left.stat(), RedoStat::default());
    assert!(at < last && pool.oldest_dirty_lsn() == Some(at));
}

#[test]
fn a_page_from_the_future_is_no_page_of_this_log() {
    let disk = disk_with(2);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1), bytes(page(1), 1)]);
    disk.put_page(page(1), Lsn(log.end.0 + 1));
    let pool = pool(&disk, 64);
    let outcome = run_late(&mut log.from(START), &disk, &pool, How::from(START)).unwrap();
    let failed = outcome.left.unwrap().redo_all(&pool).unwrap_err();
    assert!(failed.to_string().contains("in the future"), "{failed}");
    assert!(redo_from(&log, &disk, START).is_err());
}

#[test]
fn pages_that_are_gone_are_not_redone() {
    let other = SpaceId(SPACE.0 + 1);
    let disk = disk_with(3);
    disk.state().files.insert(other, Vec::new());
    disk.put_page(PageId::new(other, page(0).page), Lsn(100));
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1), bytes(page(1), 1), bytes(page(2), 1)]);
    let (at, _) = log.records(&[bytes(PageId::new(other, page(0).page), 1)]);
    let pool = still_pool(&disk, 64);
    let outcome = run_late(&mut log.from(START), &disk, &pool, How::from(START)).unwrap();
    let left = outcome.left.unwrap();
    assert!(pool.is_any_dirty(SPACE, &(2..9)) && !pool.is_any_dirty(SPACE, &(3..9)));
    pool.discard_pages(SPACE, 2..9);
    assert!(!pool.is_any_dirty(SPACE, &(2..9)));
    assert_eq!(left.stat().pages, 3);
    pool.drop_space(SPACE, 3);
    assert_eq!(left.stat().pages, 1);
    assert_eq!(pool.oldest_dirty_lsn(), Some(at));
    left.redo_all(&pool).unwrap();
    assert_eq!(disk.state().reads, [PageId::new(other, page(0).page)]);
}
