//! The page index: the changes that the log has for each page, gathered while it is scanned.
//!
//! Nothing here depends on the order of pages; the changes of one page are in LSN order. What
//! stands before an initialisation of the page is dropped at once.
//!
//! Records stand as bytes, one behind the other, in pieces of memory that are never moved, with a
//! reference to the next one of their page: adding one allocates nothing. Records are made of them
//! one by one, when they are applied.

use crate::buffer::Late;
use crate::paranoid::paranoid;
use crate::sync::HashMap;
use inkstone_format::record::{Record, decode_one, initialises_page};
use inkstone_format::{Corrupt, IdHash, Lsn, PageId};

/// A change of one page.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Start of the frame that holds it; for an initialisation, of the first one whose change of
    /// the page it made needless.
    pub start: Lsn,
    /// End of that frame: the page LSN once it is applied.
    pub end: Lsn,
    record: &'a [u8],
}

impl Change<'_> {
    /// As [`Record::initialises_page`].
    pub fn initialises_page(&self) -> bool {
        self.record
            .first()
            .is_some_and(|&kind| initialises_page(kind))
    }

    /// What it does. Bytes that are no record are an error of what put them in.
    pub fn record(&self) -> Result<Record, Corrupt> {
        decode_one(self.record)
    }
}

/// Where a record stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Start of its frame.
    pub start: Lsn,
    /// End of its frame.
    pub end: Lsn,
}

/// See the module.
#[derive(Default)]
pub(super) struct PageIndex {
    pages: HashMap<PageId, u32, IdHash>,
    batch: PageBatch,
    bytes: usize,
    /// The page of the last change, and its number.
    last: Option<(PageId, u32)>,
}

/// The changes of pages.
#[derive(Default)]
pub(super) struct PageBatch {
    pub pages: Vec<PageChanges>,
    pieces: Vec<Vec<u8>>,
    /// The piece with room for more.
    open: Option<u32>,
}

/// A page, and where its changes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChanges {
    pub page: PageId,
    first: Reference,
    last: Reference,
    /// What they take in the index.
    pub bytes: u64,
}

/// Where a change is: the number of its piece, and the offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reference {
    piece: u32,
    offset: u32,
}

/// There is no next change.
const NONE: Reference = Reference {
    piece: u32::MAX,
    offset: u32::MAX,
};

/// Bytes of a piece, but for a change that alone has a fourth of that: it has a piece of its own.
const PIECE: usize = 1 << 20;
/// Bytes before a record: piece and offset of the next change, start, end, length.
const HEAD: usize = 4 + 4 + 8 + 8 + 4;
/// Bytes for a page's entry in the index, about.
const PAGE_BYTES: usize = 160;

impl PageIndex {
    /// Adds a page's next change: the bytes of its record, and whether they initialise the page.
    pub fn push(&mut self, page: PageId, mut place: Place, initialises: bool, record: &[u8]) {
        let number = self.page(page);
        self.check(number, place, record);
        if initialises {
            // The disk lacks what is dropped, too: until it has the page, the checkpoint must stay
            // before that, or the next recovery would find a part of it and no page that it fits.
            let changes = &self.batch.pages[number as usize];
            if changes.first != NONE {
                place.start = self.batch.head(changes.first).1.start;
            }
        }
        let bytes = HEAD + record.len();
        self.bytes += bytes;
        let at = self.batch.add(place, record);
        let changes = self.batch.pages[number as usize];
        let (first, before) = if changes.first == NONE || initialises {
            (at, 0)
        } else {
            self.batch.set_next(changes.last, at);
            (changes.first, changes.bytes)
        };
        self.batch.pages[number as usize] = PageChanges {
            page,
            first,
            last: at,
            bytes: before + bytes as u64,
        };
    }

    fn check(&self, number: u32, place: Place, record: &[u8]) {
        let PageChanges { page, last, .. } = self.batch.pages[number as usize];
        let (start, end) = (place.start, place.end);
        paranoid!(
            decode_one(record).is_ok_and(|record| record.page() == Some(page)) && start < end,
            "a change from LSN {start} to {end} of page {page}: {record:02x?}"
        );
        paranoid!(
            last == NONE || self.batch.head(last).1.end <= end,
            "a change of page {page} to LSN {end} behind a later one"
        );
    }

    fn page(&mut self, page: PageId) -> u32 {
        if let Some((last, number)) = self.last
            && last == page
        {
            return number;
        }
        let pages = &mut self.batch.pages;
        let number = *self.pages.entry(page).or_insert_with(|| {
            self.bytes += PAGE_BYTES;
            pages.push(PageChanges {
                page,
                first: NONE,
                last: NONE,
                bytes: 0,
            });
            (pages.len() - 1) as u32
        });
        self.last = Some((page, number));
        number
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Empties it: the pages in order, so that they are read in order.
    pub fn take(&mut self) -> PageBatch {
        let mut batch = std::mem::take(self).batch;
        batch.pages.sort_unstable_by_key(|changes| changes.page);
        paranoid!(
            batch.pages.iter().all(|changes| changes.first != NONE),
            "a page without changes is in the index"
        );
        batch
    }
}

impl PageBatch {
    /// The changes of a page of this batch, in the order of the log. The first one alone may
    /// initialise the page.
    pub fn changes(&self, page: PageChanges) -> impl Iterator<Item = Change<'_>> + Clone {
        let mut at = page.first;
        std::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let (next, Place { start, end }, record) = self.head(at);
            at = next;
            Some(Change { start, end, record })
        })
    }

    /// Where the changes of a page of this batch begin and end, and whether they need nothing of
    /// the page.
    pub fn span(&self, page: PageChanges) -> Late {
        let (_, Place { start, .. }, record) = self.head(page.first);
        let (_, Place { end, .. }, _) = self.head(page.last);
        Late {
            start,
            end,
            initialises: record.first().is_some_and(|&kind| initialises_page(kind)),
        }
    }

    fn add(&mut self, place: Place, record: &[u8]) -> Reference {
        let number = self.piece(HEAD + record.len());
        let piece = &mut self.pieces[number as usize];
        paranoid!(
            piece.capacity() - piece.len() >= HEAD + record.len(),
            "a piece of {} bytes would be moved",
            piece.len()
        );
        let at = Reference {
            piece: number,
            offset: piece.len() as u32,
        };
        let mut head = [0xff; HEAD];
        head[8..16].copy_from_slice(&place.start.0.to_le_bytes());
        head[16..24].copy_from_slice(&place.end.0.to_le_bytes());
        head[24..28].copy_from_slice(&(record.len() as u32).to_le_bytes());
        piece.extend_from_slice(&head);
        piece.extend_from_slice(record);
        at
    }

    /// The number of a piece with so much room.
    fn piece(&mut self, needed: usize) -> u32 {
        let room = |piece: &Vec<u8>| piece.capacity() - piece.len();
        if let Some(open) = self.open
            && room(&self.pieces[open as usize]) >= needed
        {
            return open;
        }
        let number = self.pieces.len() as u32;
        if needed > PIECE / 4 {
            self.pieces.push(Vec::with_capacity(needed));
        } else {
            self.pieces.push(Vec::with_capacity(PIECE));
            self.open = Some(number);
        }
        number
    }

    fn set_next(&mut self, of: Reference, next: Reference) {
        paranoid!(self.head(of).0 == NONE, "a change has two next ones");
        let at = of.offset as usize;
        let head = &mut self.pieces[of.piece as usize][at..at + 8];
        head[..4].copy_from_slice(&next.piece.to_le_bytes());
        head[4..].copy_from_slice(&next.offset.to_le_bytes());
    }

    /// The next change, where this one stands in the log, and its record.
    fn head(&self, at: Reference) -> (Reference, Place, &[u8]) {
        let bytes = &self.pieces[at.piece as usize][at.offset as usize..];
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let next = Reference {
            piece: word(0),
            offset: word(4),
        };
        let place = Place {
            start: Lsn(long(8)),
            end: Lsn(long(16)),
        };
        (next, place, &bytes[HEAD..HEAD + word(24) as usize])
    }
}
