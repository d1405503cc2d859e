//! Long values: chains of overflow pages, and the reference to one in a cell.
//!
//! An overflow page has the next page (u32, 0 at the end) at byte 24, the number of bytes here
//! (u32) at byte 28, and the bytes from 32. A reference: total length u64, first page u32
//! (little-endian).

use crate::PageNo;
use crate::header::{PageType, page_type};

/// The longest value, bytes.
pub const VALUE_LEN_MAX: u64 = 1 << 30;

/// Where the number of the next page is. What is written of a new page begins here.
pub const NEXT_AT: usize = 24;
const LENGTH_AT: usize = 28;
const DATA_AT: usize = 32;

/// Bytes of a long value that a page holds.
pub fn bytes_per_page(page_size: usize) -> usize {
    page_size - DATA_AT
}

/// An overflow page that is read.
#[derive(Clone, Copy)]
pub struct OverflowPage<'p>(&'p [u8]);

impl<'p> OverflowPage<'p> {
    /// `None`: the page is of another type.
    pub fn of(page: &'p [u8]) -> Option<Self> {
        (page_type(page) == Some(PageType::Overflow)).then_some(Self(page))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    /// The next page of the chain; page 0 at its end.
    pub fn next(self) -> PageNo {
        PageNo(self.u32(NEXT_AT))
    }

    /// How many bytes of the value it says that it holds.
    pub fn length(self) -> usize {
        self.u32(LENGTH_AT) as usize
    }

    /// The bytes of the value; `None` if there are none, or more than a page has.
    pub fn data(self) -> Option<&'p [u8]> {
        let end = DATA_AT.checked_add(self.length())?;
        self.0.get(DATA_AT..end).filter(|data| !data.is_empty())
    }
}

/// What an overflow page holds from [`NEXT_AT`] on.
pub fn overflow_bytes(next: PageNo, data: &[u8]) -> Vec<u8> {
    let head = [next.0.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    [&head[..], data].concat()
}

/// The reference to a long value of this length.
pub fn reference(length: u64, first: PageNo) -> Vec<u8> {
    [&length.to_le_bytes()[..], &first.0.to_le_bytes()].concat()
}

/// The length and the first page of a long value; `None`: it is no reference.
pub fn parse_reference(bytes: &[u8]) -> Option<(u64, PageNo)> {
    let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let first = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    (bytes.len() == 12 && length <= VALUE_LEN_MAX).then_some((length, PageNo(first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::PAGE_TYPE_AT;

    fn page(length: u32) -> Vec<u8> {
        let mut page = vec![0; 4096];
        page[PAGE_TYPE_AT] = PageType::Overflow as u8;
        page[NEXT_AT..NEXT_AT + 8].copy_from_slice(&overflow_bytes(PageNo(9), &[])[..8]);
        page[LENGTH_AT..DATA_AT].copy_from_slice(&length.to_le_bytes());
        page
    }

    #[test]
    fn a_page_gives_back_what_was_put_in() {
        let mut bytes = page(0);
        let written = overflow_bytes(PageNo(7), b"value");
        bytes[NEXT_AT..NEXT_AT + written.len()].copy_from_slice(&written);
        let read = OverflowPage::of(&bytes).unwrap();
        assert_eq!((read.next(), read.data()), (PageNo(7), Some(&b"value"[..])));
        bytes[PAGE_TYPE_AT] = PageType::Leaf as u8;
        assert!(OverflowPage::of(&bytes).is_none());
    }

    #[test]
    fn a_wrong_length_is_no_data() {
        for length in [0, 4096 - DATA_AT as u32 + 1, u32::MAX] {
            assert_eq!(OverflowPage::of(&page(length)).unwrap().data(), None);
        }
        let full = page(bytes_per_page(4096) as u32);
        assert_eq!(OverflowPage::of(&full).unwrap().data().unwrap().len(), 4064);
    }

    #[test]
    fn a_reference_has_twelve_bytes_and_a_possible_length() {
        let bytes = reference(100_000, PageNo(5));
        assert_eq!(parse_reference(&bytes), Some((100_000, PageNo(5))));
        assert_eq!(parse_reference(&bytes[..11]), None);
        assert_eq!(parse_reference(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(
            parse_reference(&reference(VALUE_LEN_MAX + 1, PageNo(5))),
            None
        );
    }
}
