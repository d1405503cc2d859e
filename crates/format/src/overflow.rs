//! Long values: chains of overflow pages, and the reference to one in a cell.
//!
//! An overflow page has the next page (u32, 0 at the end) at byte 24, the number of bytes here
//! (u32) at byte 28, and the bytes from 32. A reference: total length u64, first page u32
//! (little-endian).
//!
//! Of a row with *parts* only these lie in chains, each in one of its own. The cell holds the
//! number of parts u16, for each where it belongs in the value u32, its length u32 and its first
//! page u32, then the other bytes of the value. That is never 12 bytes long, as a reference is.

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

/// Bytes of a part in the table of a cell.
pub const PART_LEN: usize = 12;
/// Bytes of a cell's table before its parts.
pub const PARTS_HEAD_LEN: usize = 2;

/// A part of a value that lies in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins in the value.
    pub at: u64,
    /// Its bytes.
    pub length: u64,
    /// The first page of its chain.
    pub first: PageNo,
}

/// A value as a cell with the overflow flag has it: some parts in chains, the rest in the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongValue<'c> {
    /// In the order of the value; none overlap.
    pub parts: Vec<Part>,
    /// The bytes between them.
    pub inline: &'c [u8],
}

impl<'c> LongValue<'c> {
    /// `None`: the bytes are no such cell.
    pub fn parse(cell: &'c [u8]) -> Option<Self> {
        if let Some((length, first)) = parse_reference(cell) {
            let parts = vec![Part {
                at: 0,
                length,
                first,
            }];
            return Some(Self { parts, inline: &[] });
        }
        let count = usize::from(u16::from_le_bytes(
            cell.get(..PARTS_HEAD_LEN)?.try_into().ok()?,
        ));
        let end = PARTS_HEAD_LEN + count * PART_LEN;
        let (table, inline) = (cell.get(PARTS_HEAD_LEN..end)?, &cell[end..]);
        let word = |bytes: &[u8], at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let parts = table.chunks(PART_LEN).map(|bytes| Part {
            at: word(bytes, 0).into(),
            length: word(bytes, 4).into(),
            first: PageNo(word(bytes, 8)),
        });
        let value = Self {
            parts: parts.collect(),
            inline,
        };
        (count > 0 && value.is_possible()).then_some(value)
    }

    /// Whether the parts follow each other, and the bytes between them are there.
    fn is_possible(&self) -> bool {
        let (mut end, mut out) = (0, 0);
        for part in &self.parts {
            if part.at < end || part.length == 0 || part.at - out > self.inline.len() as u64 {
                return false;
            }
            (end, out) = (part.at + part.length, out + part.length);
        }
        self.length() <= VALUE_LEN_MAX
    }

    /// Bytes of the whole value.
    pub fn length(&self) -> u64 {
        let out: u64 = self.parts.iter().map(|part| part.length).sum();
        self.inline.len() as u64 + out
    }
}

/// The cell of a value with parts, which are in the order of the value.
pub fn cell_with_parts(parts: &[Part], inline: &[u8]) -> Vec<u8> {
    let mut cell = Vec::with_capacity(PARTS_HEAD_LEN + parts.len() * PART_LEN + inline.len());
    cell.extend_from_slice(&(parts.len() as u16).to_le_bytes());
    for part in parts {
        cell.extend_from_slice(&(part.at as u32).to_le_bytes());
        cell.extend_from_slice(&(part.length as u32).to_le_bytes());
        cell.extend_from_slice(&part.first.0.to_le_bytes());
    }
    cell.extend_from_slice(inline);
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::PAGE_TYPE_AT;

    fn part(at: u64, length: u64, first: u32) -> Part {
        let first = PageNo(first);
        Part { at, length, first }
    }

    #[test]
    fn a_cell_with_parts_gives_them_back() {
        let parts = [part(0, 5000, 7), part(5003, 9000, 8)];
        let cell = cell_with_parts(&parts, b"abcdef");
        let value = LongValue::parse(&cell).unwrap();
        assert_eq!(
            (&value.parts[..], value.inline),
            (&parts[..], &b"abcdef"[..])
        );
        assert_eq!(value.length(), 14_006);
        let whole = reference(100_000, PageNo(5));
        let whole = LongValue::parse(&whole).unwrap();
        assert_eq!(
            (whole.parts, whole.inline.len()),
            (vec![part(0, 100_000, 5)], 0)
        );
    }

    #[test]
    fn parts_that_cannot_be_are_refused() {
        let refused: [&[Part]; 6] = [
            &[],
            &[part(4, 5000, 7)],
            &[part(0, 0, 7)],
            &[part(0, 5000, 7), part(4999, 10, 8)],
            &[part(3, 5000, 7), part(0, 10, 8)],
            &[part(0, 1 << 30, 7)],
        ];
        for parts in refused {
            assert_eq!(LongValue::parse(&cell_with_parts(parts, b"abc")), None);
        }
        let cell = cell_with_parts(&[part(0, 5000, 7)], b"");
        assert!(LongValue::parse(&cell).is_some());
        for end in 0..cell.len() {
            let cut = &cell[..end];
            assert!(LongValue::parse(cut).is_none() || end == 12, "{end} bytes");
        }
    }

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
