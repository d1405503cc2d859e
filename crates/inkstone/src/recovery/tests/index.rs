//! The page index.

use super::super::index::{PageIndex, Place};
use inkstone_format::record::Record;
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, Directory, Vfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn push(index: &mut PageIndex, start: u64, record: &Record) {
    let place = Place {
        start: Lsn(start),
        end: Lsn(start + 10),
    };
    let (page, mut bytes) = (record.page().unwrap(), Vec::new());
    record.put(&mut bytes);
    index.push(page, place, record.initialises_page(), &bytes);
}

fn bytes(page: u32, offset: u32, length: usize) -> Record {
    Record::Bytes {
        page: PageId::new(SpaceId(1), PageNo(page)),
        offset,
        bytes: vec![1; length],
    }
}

/// A page that the log initialised again counted as changed from there on only, though the disk
/// lacked changes before it. A checkpoint could pass those; recovery then began among them, and if
/// its memory did not reach to the initialisation it applied what did not fit the page.
#[test]
fn an_initialised_page_is_dirty_since_the_first_change_that_was_dropped() {
    let page = PageId::new(SpaceId(1), PageNo(2));
    let mut index = PageIndex::default();
    push(&mut index, 100, &bytes(2, 100, 1));
    push(&mut index, 200, &bytes(2, 100, 1));
    let page_type = 2;
    push(&mut index, 300, &Record::PageInit { page, page_type });
    push(&mut index, 400, &bytes(2, 100, 1));
    push(&mut index, 500, &Record::PageFree { page });
    let batch = index.take();
    let mut room = Vec::new();
    let changes: Vec<_> = batch.changes(batch.pages[0], &mut room).unwrap().collect();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].start, changes[0].end), (Lsn(100), Lsn(510)));
}

#[test]
fn changes_come_back_by_page_in_the_order_of_the_log() {
    let mut index = PageIndex::default();
    let mut expected: Vec<Vec<(u64, Record)>> = vec![Vec::new(); 50];
    for n in 0..40_000_u32 {
        let page = n.wrapping_mul(2_654_435_761) % 50;
        let record = bytes(page, n, 1 + n as usize % 90);
        push(&mut index, u64::from(n) * 20, &record);
        expected[page as usize].push((u64::from(n) * 20, record));
    }
    assert!(index.bytes() > 40_000 * 8, "{} bytes", index.bytes());
    let batch = index.take();
    assert_eq!(index.bytes(), 0);
    assert_eq!(batch.pages.len(), 50);
    let mut room = Vec::new();
    for (page, expected) in batch.pages.iter().zip(expected) {
        let changes = batch.changes(*page, &mut room).unwrap();
        let found = changes.map(|c| (c.start.0, c.record().unwrap()));
        assert!(found.eq(expected), "page {}", page.page);
    }
}

/// A directory for the file of changes.
fn directory(vfs: &SimVfs) -> Arc<dyn Directory> {
    let vfs: &dyn Vfs = vfs;
    vfs.open_directory(Path::new("db"), Create::IfMissing)
        .unwrap()
}

/// As without a file; and what is initialised anew has nothing of what the file has of it.
#[test]
fn changes_come_back_from_memory_and_from_the_file() {
    const MEMORY: usize = 1 << 20;
    let vfs = SimVfs::new(1);
    let directory = directory(&vfs);
    let mut index = PageIndex::default();
    let mut expected: Vec<Vec<(u64, Record)>> = vec![Vec::new(); 200];
    let mut ends = [0; 200];
    let mut spilled = 0;
    for n in 0..60_000_u32 {
        let page = n.wrapping_mul(2_654_435_761) % 200;
        let start = 100 + u64::from(n) * 20;
        let record = match n % 997 {
            0 => Record::PageInit {
                page: PageId::new(SpaceId(1), PageNo(page)),
                page_type: 2,
            },
            _ => bytes(page, n, 1 + n as usize % 30),
        };
        push(&mut index, start, &record);
        let of_page = &mut expected[page as usize];
        let mut from = start;
        if record.initialises_page() {
            from = of_page.first().map_or(start, |&(first, _)| first);
            of_page.clear();
        }
        of_page.push((from, record));
        ends[page as usize] = start + 10;
        if index.bytes() > MEMORY {
            let bytes = index.spill(&directory, MEMORY).unwrap().unwrap();
            assert!(bytes > 0 && index.bytes() < MEMORY / 2);
            spilled += 1;
        }
    }
    assert!(spilled >= 2, "{spilled}");
    assert_eq!(vfs.files().len(), 1);
    let batch = index.take();
    let mut room = Vec::new();
    for page in &batch.pages {
        let expected = expected[page.page.page.0 as usize].clone();
        let span = page.span();
        assert_eq!(span.start.0, expected[0].0);
        assert_eq!(span.end.0, ends[page.page.page.0 as usize]);
        assert_eq!(span.initialises, expected[0].1.initialises_page());
        let changes = batch.changes(*page, &mut room).unwrap();
        let found = changes.map(|c| (c.start.0, c.record().unwrap()));
        assert!(found.eq(expected), "page {}", page.page);
    }
    batch.end();
    assert_eq!(vfs.files(), Vec::<PathBuf>::new());
}

/// A full disk, too many pages, a page of too many changes: what was gathered stays as it was.
#[test]
fn what_cannot_go_to_the_file_stays_in_memory() {
    let fill = |pages: u32, each: u32| {
        let mut index = PageIndex::default();
        for n in 0..pages * each {
            push(
                &mut index,
                100 + u64::from(n) * 20,
                &bytes(n % pages, n, 20),
            );
        }
        index
    };
    let count = |index: &mut PageIndex| {
        let batch = index.take();
        let mut room = Vec::new();
        let of_page = |page| batch.changes(page, &mut room).unwrap().count();
        batch.pages.clone().into_iter().map(of_page).sum::<usize>()
    };
    let vfs = SimVfs::new(1);
    let directory = directory(&vfs);
    let mut many = fill(1000, 5);
    assert_eq!(many.spill(&directory, 300_000).unwrap(), None);
    assert_eq!(count(&mut many), 5000);
    let mut one = fill(1, 10_000);
    assert_eq!(one.spill(&directory, 1 << 20).unwrap(), None);
    assert_eq!(count(&mut one), 10_000);
    let mut some = fill(100, 100);
    assert!(some.spill(&directory, 1 << 20).unwrap().is_some());
    for n in 0..10_000 {
        push(&mut some, 500_000 + n * 20, &bytes(n as u32 % 100, 7, 20));
    }
    vfs.set_capacity_bytes(0);
    assert!(some.spill(&directory, 1 << 20).is_err());
    assert_eq!(count(&mut some), 20_000);
}

/// What is read is what was written, or an error that names the file.
#[test]
fn a_damaged_file_of_changes_is_an_error() {
    let vfs = SimVfs::new(1);
    let directory = directory(&vfs);
    let mut index = PageIndex::default();
    for n in 0..100 {
        push(&mut index, 100 + n * 20, &bytes(n as u32 % 2, 7, 20));
    }
    index.spill(&directory, 1 << 20).unwrap().unwrap();
    let path = vfs.files()[0].clone();
    let byte = vfs.read_raw(&path).unwrap()[30];
    vfs.write_raw(&path, 30, &[byte ^ 1]).unwrap();
    let batch = index.take();
    let mut room = Vec::new();
    let error = batch
        .changes(batch.pages[0], &mut room)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("redo.tmp"), "{error}");
    assert_eq!(
        batch.changes(batch.pages[1], &mut room).unwrap().count(),
        50
    );
}
