//! Pages and files: what is read, what is created, what is dropped, and what is corrupt.

use super::rig::{
    How, LogBuilder, MemoryDisk, PAGE, SPACE, leaf_init, page, pool, pool_with, redo_from, run,
    still_pool,
};
use crate::poison::Poison;
use crate::recovery::{FrameSource, Phase, Progress, RedoInputs, RedoOptions, redo};
use crate::{Error, Result};
use inkstone_format::header::{PageType, init_page, page_lsn};
use inkstone_format::record::{Record, Row};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};
use std::cell::RefCell;
use std::sync::Arc;

const START: Lsn = Lsn(5000);

fn bytes(page: PageId, byte: u8) -> Record {
    Record::Bytes {
        page,
        offset: 100,
        bytes: vec![byte; 10],
    }
}

fn init(page: PageId) -> Record {
    let page_type = PageType::Overflow as u8;
    Record::PageInit { page, page_type }
}

fn disk_with(pages: u32) -> MemoryDisk {
    let disk = MemoryDisk::default();
    disk.state().files.insert(SPACE, Vec::new());
    for number in 0..pages {
        disk.put_page(page(number), Lsn(100));
    }
    disk
}

fn error<T>(result: Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn initialised_pages_are_not_read() {
    let disk = disk_with(3);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1), bytes(page(1), 1), init(page(2))]);
    log.records(&[init(page(1)), bytes(page(2), 2), init(page(7))]);
    let (start, end) = log.records(&[bytes(page(1), 3)]);
    let pool = still_pool(&disk, 64);
    let outcome = run(&mut log.from(START), &disk, &pool, How::from(START)).unwrap();
    assert_eq!(disk.state().reads, [page(0)]);
    let report = &outcome.report;
    assert_eq!((report.pages_read, report.pages_initialised), (1, 3));
    assert_eq!((report.pages_applied, report.batches), (4, 1));
    assert_eq!((report.records, report.records_applied), (7, 6));
    assert_eq!((report.frames, report.bytes_scanned), (3, end.0 - START.0));
    let found = pool.shared(page(1)).unwrap();
    assert_eq!(page_lsn(&found), end);
    assert_eq!(found[100..110], [3; 10]);
    assert!(start > START && pool.oldest_dirty_lsn() == Some(START));
}

#[test]
fn changes_that_a_page_has_are_not_applied_again() {
    let disk = disk_with(1);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1)]);
    let (start, _) = log.records(&[bytes(page(0), 2)]);
    disk.put_page(page(0), start);
    let pool = still_pool(&disk, 64);
    run(&mut log.from(START), &disk, &pool, How::from(START)).unwrap();
    assert_eq!(pool.shared(page(0)).unwrap()[100], 2);
    assert_eq!(pool.oldest_dirty_lsn(), Some(start));
    disk.put_page(page(0), log.end);
    let clean = still_pool(&disk, 64);
    run(&mut log.from(START), &disk, &clean, How::from(START)).unwrap();
    assert_eq!(clean.oldest_dirty_lsn(), None);
}

#[test]
fn a_page_from_the_future_is_corrupt() {
    let disk = disk_with(2);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1), bytes(page(1), 1)]);
    log.records(&[init(page(5))]);
    disk.put_page(page(1), Lsn(log.end.0 + 1));
    for budget in [1, 1 << 30] {
        let how = How {
            budget,
            ..How::from(START)
        };
        let pool = pool(&disk, 64);
        let error = run(&mut log.from(START), &disk, &pool, how).unwrap_err();
        let Error::Corrupt { page: found, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*found, Some(page(1)));
        assert!(error.to_string().contains("in the future"), "{error}");
    }
    // Exactly at the end is not the future.
    disk.put_page(page(1), log.end);
    redo_from(&log, &disk, START).unwrap();
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_unless_it_is_initialised_later() {
    let disk = disk_with(2);
    disk.put_raw(page(1), vec![7; PAGE]);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(1), 1)]);
    log.records(&[bytes(page(0), 1)]);
    let how = How {
        budget: 1,
        ..How::from(START)
    };
    let failed = run(&mut log.from(START), &disk, &pool(&disk, 64), how);
    assert!(error(failed).contains("page 3:1"));
    log.records(&[bytes(page(1), 2)]);
    log.records(&[init(page(1)), bytes(page(1), 3)]);
    let pool = pool(&disk, 64);
    run(&mut log.from(START), &disk, &pool, how).unwrap();
    assert_eq!(pool.shared(page(1)).unwrap()[100], 3);
}

#[test]
fn changes_that_do_not_fit_leave_the_page_and_name_it() {
    let disk = disk_with(1);
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1)]);
    let at = log.records(&[cells(page(0))]).0;
    let pool = pool(&disk, 64);
    let message = error(run(&mut log.from(START), &disk, &pool, How::from(START)));
    assert!(message.contains("page 3:0"), "{message}");
    assert!(
        message.contains(&format!("LEAF_CELLS of LSN {at}")),
        "{message}"
    );
    assert_eq!(pool.shared(page(0)).unwrap()[100], 0);
}

/// A change that fits no page of bytes.
fn cells(page: PageId) -> Record {
    let rows = vec![Row {
        flags: 0,
        key: vec![1],
        value: vec![],
    }];
    let slot = 0;
    Record::LeafCells { page, slot, rows }
}

const SMALL_BATCHES: How = How {
    checkpoint: START,
    threads: 1,
    budget: 1,
};

/// A dropped tablespace's dirty pages hold the checkpoint back no longer: it passes changes that
/// the disk never got, and the later ones do not fit. A small batch meets them before the deletion.
#[test]
fn changes_that_do_not_fit_are_an_error_unless_their_tablespace_is_deleted_later() {
    let mut log = LogBuilder::new();
    let at = log.records(&[bytes(page(0), 1), cells(page(1))]).0;
    log.records(&[init(page(2)), cells(page(2))]);
    log.records(&[cells(page(1))]);
    let disk = disk_with(3);
    let failed = run(&mut log.from(START), &disk, &pool(&disk, 64), SMALL_BATCHES);
    let message = error(failed);
    assert!(message.contains("page 3:1"), "{message}");
    let first = format!("LEAF_CELLS of LSN {at}");
    assert!(message.contains(&first), "{message}");
    log.records(&[Record::FileDelete { space: SPACE }]);
    for threads in [1, 3] {
        let how = How {
            threads,
            ..SMALL_BATCHES
        };
        let disk = disk_with(3);
        let outcome = run(&mut log.from(START), &disk, &pool(&disk, 64), how).unwrap();
        assert!(outcome.files_deleted.contains(&SPACE));
    }
}

#[test]
fn changes_that_do_not_fit_are_no_error_if_the_page_is_initialised_later() {
    let mut log = LogBuilder::new();
    let at = log.records(&[cells(page(1))]).0;
    log.records(&[bytes(page(1), 2)]);
    log.records(&[init(page(1)), cells(page(1))]);
    log.records(&[init(page(1)), bytes(page(1), 3)]);
    let disk = disk_with(2);
    let pool = still_pool(&disk, 64);
    run(&mut log.from(START), &disk, &pool, SMALL_BATCHES).unwrap();
    assert_eq!(pool.shared(page(1)).unwrap()[100], 3);
    // The disk lacks everything since the first change that was passed over.
    assert_eq!(pool.oldest_dirty_lsn(), Some(at));
}

#[test]
fn a_page_of_sound_checksum_and_broken_structure_is_an_error() {
    let disk = disk_with(0);
    let mut bytes = vec![0xff; PAGE];
    init_page(&mut bytes[..24], page(0), PageType::Leaf);
    disk.put(page(0), &bytes);
    let mut log = LogBuilder::new();
    log.records(&[Record::Remove {
        page: page(0),
        slot: 3,
        count: 2,
    }]);
    assert!(error(redo_from(&log, &disk, START)).contains("page 3:0"));
}

#[test]
fn files_are_made_long_enough() {
    let disk = disk_with(1);
    let mut log = LogBuilder::new();
    log.records(&[init(page(9)), leaf_init(page(4))]);
    let pool = pool(&disk, 64);
    run(&mut log.from(START), &disk, &pool, How::from(START)).unwrap();
    assert_eq!(disk.state().files[&SPACE].len(), 10);
    pool.flush_all().unwrap();
    assert_eq!(disk.lsn(page(4)), log.end);
}

#[test]
fn a_missing_file_is_created_if_the_log_says_so() {
    let disk = MemoryDisk::default();
    let mut log = LogBuilder::new();
    log.records(&[
        Record::FileCreate { space: SPACE },
        init(page(0)),
        init(page(1)),
    ]);
    let space = SpaceId(9);
    log.records(&[Record::FileCreate { space }]);
    let outcome = redo_from(&log, &disk, START).unwrap();
    assert_eq!(disk.state().files[&SPACE].len(), 2);
    assert!(disk.state().files.contains_key(&space));
    assert_eq!(
        outcome.files_created.into_iter().collect::<Vec<_>>(),
        [SPACE, space]
    );
    assert_eq!(outcome.space_id_max, Some(space));
    // Before the checkpoint the file must have been durable.
    let disk = MemoryDisk::default();
    let checkpoint = log.end;
    log.records(&[bytes(page(0), 1)]);
    assert!(error(redo_from(&log, &disk, checkpoint)).contains("is missing"));
}

#[test]
fn the_order_in_a_frame_matters() {
    let mut log = LogBuilder::new();
    log.records(&[init(page(0)), Record::FileCreate { space: SPACE }]);
    let message = error(redo_from(&log, &MemoryDisk::default(), START));
    assert!(message.contains("tablespace 3 is missing"), "{message}");
}

#[test]
fn changes_of_a_missing_file_need_its_deletion() {
    let missing = PageId::new(SpaceId(8), PageNo(0));
    let mut log = LogBuilder::new();
    log.records(&[bytes(missing, 1), bytes(page(0), 1)]);
    log.records(&[bytes(page(0), 2)]);
    for budget in [1, 1 << 30] {
        let how = How {
            budget,
            ..How::from(START)
        };
        let disk = disk_with(1);
        let pool = pool(&disk, 64);
        let message = error(run(&mut log.from(START), &disk, &pool, how));
        assert!(message.contains("tablespace 8 is missing"), "{message}");
    }
    log.records(&[Record::FileDelete { space: SpaceId(8) }]);
    let outcome = redo_from(&log, &disk_with(1), START).unwrap();
    assert!(outcome.files_deleted.contains(&SpaceId(8)));
}

#[test]
fn changes_of_a_deleted_tablespace_are_dropped() {
    let mut log = LogBuilder::new();
    let created = PageId::new(SpaceId(8), PageNo(0));
    let space = created.space;
    log.records(&[Record::FileCreate { space }, init(created)]);
    log.records(&[bytes(page(0), 1)]);
    log.records(&[Record::FileDelete { space }]);
    log.records(&[Record::FileDelete { space: SPACE }]);
    let disk = disk_with(1);
    disk.put_raw(page(0), vec![7; PAGE]);
    let outcome = redo_from(&log, &disk, START).unwrap();
    assert_eq!(outcome.report.pages_dropped, 2);
    assert!(disk.state().reads.is_empty());
    assert!(!disk.state().files.contains_key(&space));
    // In small batches it is applied before the deletion is known; the caller removes the file.
    let how = How {
        budget: 1,
        ..How::from(START)
    };
    let outcome = run(&mut log.from(START), &disk, &pool(&disk, 64), how).unwrap();
    assert!(disk.state().files.contains_key(&space));
    assert!(outcome.files_deleted.contains(&space));
}

#[test]
fn a_log_that_ends_before_the_checkpoint_is_corrupt() {
    let mut log = LogBuilder::new();
    log.records(&[bytes(page(0), 1)]);
    // Nothing is read: no frame reaches over the checkpoint.
    let how = How::from(Lsn(log.end.0 + 1));
    let disk = disk_with(1);
    let message = error(run(&mut log.from(log.end), &disk, &pool(&disk, 64), how));
    assert!(message.contains("ends before the checkpoint"), "{message}");
    let inside = Lsn(log.end.0 - 1);
    let message = error(redo_from(&log, &disk_with(1), inside));
    assert!(message.contains("within a mini-transaction"), "{message}");
}

#[test]
fn bytes_that_are_no_records_name_their_place() {
    let mut log = LogBuilder::new();
    log.records(&[init(page(0))]);
    let at = log.append(vec![0x7e, 0xff]).0;
    let message = error(redo_from(&log, &disk_with(1), START));
    assert!(message.contains("log/0.log"), "{message}");
    assert!(message.contains(&format!("LSN {at}")), "{message}");
    let mut log = LogBuilder::new();
    log.append(vec![0x30]);
    assert!(error(redo_from(&log, &disk_with(1), START)).contains("unknown record kind 30"));
}

#[test]
fn a_poisoned_pool_stops_redo() {
    let poison = Poison::default();
    let disk = disk_with(40);
    let mut log = LogBuilder::new();
    for number in 0..40 {
        log.records(&[bytes(page(number), 1)]);
    }
    let pool = pool_with(&disk, 64, poison.clone());
    poison.set("a test says so");
    let how = How {
        threads: 4,
        ..How::from(START)
    };
    let error = run(&mut log.from(START), &disk, &pool, how).unwrap_err();
    assert!(matches!(error, Error::Poisoned(_)), "{error}");
}

/// A source that takes its time.
struct Slow(super::rig::MemorySource);

impl FrameSource for Slow {
    fn next(&mut self) -> Result<Option<crate::recovery::FrameView<'_>>> {
        std::thread::sleep(std::time::Duration::from_millis(30));
        self.0.next()
    }
    fn position(&self) -> Lsn {
        self.0.position()
    }
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
    fn locate(&self, lsn: Lsn) -> (std::path::PathBuf, u64) {
        self.0.locate(lsn)
    }
    fn bytes_total(&self) -> Option<u64> {
        Some(12345)
    }
}

#[test]
fn progress_is_told_now_and_then() {
    let disk = disk_with(1);
    let mut log = LogBuilder::new();
    for n in 0..10 {
        log.records(&[bytes(page(0), n)]);
    }
    let told = RefCell::new(Vec::new());
    let progress = |progress: Progress| told.borrow_mut().push(progress);
    let inputs = RedoInputs {
        pool: pool(&disk, 64),
        files: Arc::new(disk.clone()),
        checkpoint: START,
        options: RedoOptions {
            threads: 2,
            index_bytes_max: 1 << 20,
        },
        spill: None,
        progress: &progress,
    };
    redo(&mut Slow(log.from(START)), inputs).unwrap();
    let told = told.into_inner();
    assert!((2..=5).contains(&told.len()), "{told:?}");
    let last = told.last().unwrap();
    assert_eq!((last.phase, last.pages_done), (Phase::Done, 1));
    assert_eq!(last.bytes_done, log.end.0 - START.0);
    assert!(told.iter().all(|p| p.bytes_total == Some(12345)));
    assert_eq!(told[0].phase, Phase::Scan);
}
