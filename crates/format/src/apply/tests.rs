//! Records that a page must refuse, whatever the log says.

use super::*;
use crate::record::{Diff, Row, TrxRef};
use crate::space::{PAGES_MAX, region_max, region_pages};
use crate::{PageNo, SpaceId, TreeId};

const ID: PageId = PageId::new(SpaceId(3), PageNo(7));
const SIZE: usize = 4096;

fn init(level: u8, low: &[u8], high: Option<&[u8]>) -> Record {
    let init = TreePageInit {
        tree: TreeId(1),
        level,
        low: low.to_vec(),
        high: high.map(<[u8]>::to_vec),
    };
    Record::TreeInit { page: ID, init }
}

fn row(flags: u8, key: &[u8]) -> Record {
    let rows = vec![Row {
        flags,
        key: key.to_vec(),
        value: b"value".to_vec(),
    }];
    Record::LeafCells {
        page: ID,
        slot: 0,
        rows,
    }
}

fn children(slot: u16, keys: &[&[u8]]) -> Record {
    let children = keys.iter().map(|key| (key.to_vec(), PageNo(9)));
    Record::InnerCells {
        page: ID,
        slot,
        children: children.collect(),
    }
}

/// A page after these records, which it takes.
fn page(records: &[Record]) -> Vec<u8> {
    let mut page = vec![0; SIZE];
    for record in records {
        replay(&mut page, ID, record).unwrap();
    }
    TreePage(&page).check().unwrap();
    page
}

fn refused(page: &[u8], record: &Record) {
    let mut copy = page.to_vec();
    let result = replay(&mut copy, ID, record);
    assert!(result.is_err(), "{record:?} is accepted");
}

#[test]
fn a_tree_page_is_made_only_by_its_own_record() {
    let leaf = page(&[init(0, b"", None), row(0, b"key")]);
    for page_type in [PageType::Leaf, PageType::Inner] {
        let page_type = page_type as u8;
        let record = Record::PageInit {
            page: ID,
            page_type,
        };
        refused(&leaf, &record);
    }
    let bytes = |offset| Record::Bytes {
        page: ID,
        offset,
        bytes: vec![3],
    };
    refused(&leaf, &bytes(100));
    // The type byte of a page that is none.
    refused(&vec![0; SIZE], &bytes(12));
}

#[test]
fn fences_are_in_order_and_no_longer_than_keys() {
    let empty = vec![0; SIZE];
    let long = vec![b'k'; key_len_max(SIZE) + 1];
    refused(&empty, &init(0, b"b", Some(b"a")));
    refused(&empty, &init(0, b"b", Some(b"b")));
    refused(&empty, &init(0, &long, None));
    refused(&empty, &init(65, b"", None));
    let leaf = page(&[init(0, b"", None), row(0, b"key")]);
    refused(&leaf, &row(0, &long));
    let high = Some(long);
    let record = Record::SetHigh {
        page: ID,
        keep: 1,
        high,
    };
    refused(&leaf, &record);
}

#[test]
fn cells_have_known_flags() {
    let leaf = page(&[init(0, b"", None), row(0, b"key")]);
    refused(&leaf, &row(8, b"a"));
    let record = Record::RowUpdate {
        page: ID,
        trx: TrxRef {
            slot: 0,
            first: None,
            version: None,
        },
        tree: TreeId(1),
        slot: 0,
        key: b"key".to_vec(),
        old_flags: 0,
        flags: 0x10,
        diff: Diff::between(b"value", b"other"),
    };
    refused(&leaf, &record);
}

#[test]
fn an_inner_node_keeps_its_first_child() {
    let inner = page(&[init(1, b"", None), children(0, &[b"", b"k", b"m"])]);
    let remove = |slot, count| Record::Remove {
        page: ID,
        slot,
        count,
    };
    refused(&inner, &remove(0, 1));
    refused(&inner, &children(0, &[b""]));
    let mut copy = inner.clone();
    replay(&mut copy, ID, &remove(1, 2)).unwrap();
    TreePage(&copy).check().unwrap();
}

#[test]
fn the_keys_of_an_inner_node_lie_within_its_fences() {
    let mut inner = page(&[init(1, b"b", Some(b"x")), children(0, &[b"b", b"k", b"m"])]);
    // The high fence, which lies at the end of the page, sinks below the last key.
    inner[SIZE - 1] = b'l';
    let corrupt = TreePage(&inner).check().unwrap_err();
    assert!(corrupt.detail.contains("fences"), "{corrupt}");
}

#[test]
fn clear_bits_are_found_and_counted() {
    let covered = map_pages(4096);
    let mut map = vec![0xff; 4096];
    for bit in [0, 63, 64, 130, 4095, covered - 1] {
        set_bits(&mut map, bit, 1, false);
    }
    for end in [1, 63, 64, 65, 131, 4096, covered - 1, covered] {
        let clear: Vec<u32> = (0..end).filter(|&n| !bit(&map, n)).collect();
        assert_eq!(count_clear_bits(&map, end) as usize, clear.len(), "{end}");
        for from in [0, 1, 64, 65, 131, covered - 1, covered] {
            let expected = clear.iter().copied().find(|&n| n >= from);
            assert_eq!(next_clear_bit(&map, from, end), expected, "{from}..{end}");
        }
    }
}

/// The pages of all regions are those that there can be.
#[test]
fn regions_cover_every_page_number() {
    for page_size in [4096, 8192, 16_384, 32_768, 65_536] {
        let last = region_max(page_size);
        let before = u64::from(last) * u64::from(map_pages(page_size));
        let pages = before + u64::from(region_pages(page_size, last));
        assert_eq!(pages, u64::from(PAGES_MAX));
        assert!(region_pages(page_size, last) > 2);
        assert_eq!(region_pages(page_size, last - 1), map_pages(page_size));
    }
}
