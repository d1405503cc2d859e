//! The page index.

use super::super::index::{Change, PageIndex};
use inkstone_format::record::Record;
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};

/// A page that the log initialised again counted as changed from there on only, though the disk
/// lacked changes before it. A checkpoint could pass those; recovery then began among them, and if
/// its memory did not reach to the initialisation it applied what did not fit the page.
#[test]
fn an_initialised_page_is_dirty_since_the_first_change_that_was_dropped() {
    let page = PageId {
        space: SpaceId(1),
        page: PageNo(2),
    };
    let change = |start, record| Change {
        start: Lsn(start),
        end: Lsn(start + 10),
        record,
    };
    let bytes = Record::Bytes {
        page,
        offset: 100,
        bytes: vec![1],
    };
    let mut index = PageIndex::default();
    index.push(page, change(100, bytes.clone()));
    index.push(page, change(200, bytes.clone()));
    let page_type = 2;
    index.push(page, change(300, Record::PageInit { page, page_type }));
    index.push(page, change(400, bytes));
    index.push(page, change(500, Record::PageFree { page }));
    let pages = index.take();
    let (_, changes) = &pages[0];
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].start, changes[0].end), (Lsn(100), Lsn(510)));
}
