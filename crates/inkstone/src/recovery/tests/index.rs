//! The page index.

use super::super::index::{PageIndex, Place};
use inkstone_format::record::Record;
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};

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
    let changes: Vec<_> = batch.changes(batch.pages[0]).collect();
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
    for (page, expected) in batch.pages.iter().zip(expected) {
        let changes = batch.changes(*page);
        let found = changes.map(|c| (c.start.0, c.record().unwrap()));
        assert!(found.eq(expected), "page {}", page.page);
    }
}
