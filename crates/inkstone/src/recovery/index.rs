//! The page index: the changes that the log has for each page, gathered while it is scanned.
//!
//! Nothing here depends on the order of pages; the changes of one page are in LSN order. What
//! stands before an initialisation of the page is dropped at once.
//!
//! Records stand as bytes, one behind the other, in pieces of memory that are never moved, with a
//! reference to the next one of their page: adding one allocates nothing. Records are made of them
//! one by one, when they are applied.
//!
//! When memory is used up they go to a file (`spill.rs`), page by page; what stays is where the
//! changes of each page are. A page whose changes are many is not read of the file again at once:
//! then the caller must apply what there is, as it must where the pages are too many.

use super::spill::{self, NO_PART, PART_BYTES, PartNumber, SpillFile};
use crate::Result;
use crate::buffer::Late;
use crate::paranoid::paranoid;
use crate::sync::HashMap;
use inkstone_format::record::{Record, decode_one, initialises_page};
use inkstone_format::{Corrupt, IdHash, Lsn, PageId};
use inkstone_io::Directory;
use std::sync::Arc;

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

impl<'a> Change<'a> {
    pub(super) fn new(Place { start, end }: Place, record: &'a [u8]) -> Self {
        Self { start, end, record }
    }

    /// Where it stands in the log, and its record's bytes.
    pub(super) fn parts(&self) -> (Place, &'a [u8]) {
        let Self { start, end, record } = *self;
        (Place { start, end }, record)
    }

    /// As [`Record::initialises_page`].
    pub fn initialises_page(&self) -> bool {
        self.record
            .first()
            .is_some_and(|&kind| initialises_page(kind))
    }

    /// What it does. Bytes that are no record are an error of what put them in.
    pub fn record(&self) -> std::result::Result<Record, Corrupt> {
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
    /// Where earlier changes are.
    file: Option<SpillFile>,
}

/// A page, and where its changes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChanges {
    pub page: PageId,
    first: Reference,
    last: Reference,
    /// Those before `first` that are in the file.
    spilled: PartNumber,
    /// What they take in the index, or would.
    pub bytes: u64,
    span: Late,
}

impl PageChanges {
    fn none(page: PageId) -> Self {
        Self {
            page,
            first: NONE,
            last: NONE,
            spilled: NO_PART,
            bytes: 0,
            span: Late {
                start: Lsn(0),
                end: Lsn(0),
                initialises: false,
            },
        }
    }

    fn is_empty(&self) -> bool {
        self.first == NONE && self.spilled == NO_PART
    }

    /// Where the changes begin and end, and whether they need nothing of the page.
    pub fn span(&self) -> Late {
        self.span
    }
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
const PAGE_BYTES: usize = 200;
/// The part of the index's memory that entries of pages may take when changes go to the file.
const PAGES_PARTS: usize = 2;
/// The part of it that the changes of one page may take that are read of the file; so many bytes
/// may be in any case.
const PAGE_PARTS: usize = 16;
const PAGE_READ_MIN: usize = 256 << 10;

impl PageIndex {
    /// Adds a page's next change: the bytes of its record, and whether they initialise the page.
    pub fn push(&mut self, page: PageId, mut place: Place, initialises: bool, record: &[u8]) {
        let number = self.page(page);
        self.check(number, place, record);
        let mut changes = self.batch.pages[number as usize];
        if initialises && !changes.is_empty() {
            // The disk lacks what is dropped, too: until it has the page, the checkpoint must stay
            // before that, or the next recovery would find a part of it and no page that it fits.
            place.start = changes.span.start;
        }
        let bytes = HEAD + record.len();
        self.bytes += bytes;
        let at = self.batch.add(place, record);
        if changes.is_empty() || initialises {
            changes = PageChanges::none(page);
            changes.span.start = place.start;
            changes.span.initialises = initialises;
        }
        if changes.first == NONE {
            changes.first = at;
        } else {
            self.batch.set_next(changes.last, at);
        }
        changes.last = at;
        changes.span.end = place.end;
        changes.bytes += bytes as u64;
        self.batch.pages[number as usize] = changes;
    }

    fn check(&self, number: u32, place: Place, record: &[u8]) {
        let changes = self.batch.pages[number as usize];
        let page = changes.page;
        let (start, end) = (place.start, place.end);
        paranoid!(
            decode_one(record).is_ok_and(|record| record.page() == Some(page)) && start < end,
            "a change from LSN {start} to {end} of page {page}: {record:02x?}"
        );
        paranoid!(
            changes.span.end <= end,
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
            pages.push(PageChanges::none(page));
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
            batch.pages.iter().all(|changes| !changes.is_empty()),
            "a page without changes is in the index"
        );
        batch
    }
}

impl PageIndex {
    /// Writes what it has to a file, made in the directory when it is needed. How many bytes;
    /// `None` if that would not do, as too much memory would be taken by the pages, or by the
    /// changes of one when they are read again. After that, and after an error, it is as it was.
    pub fn spill(&mut self, directory: &Arc<dyn Directory>, memory: usize) -> Result<Option<u64>> {
        let batch = &mut self.batch;
        let parts = batch.file.as_ref().map_or(0, SpillFile::parts) + batch.pages.len();
        let kept = batch.pages.len() * PAGE_BYTES + parts * PART_BYTES;
        let read_max = (memory / PAGE_PARTS).max(PAGE_READ_MIN) as u64;
        let is_large = |page: &PageChanges| page.bytes > read_max;
        if kept > memory / PAGES_PARTS || batch.pages.iter().any(is_large) {
            return Ok(None);
        }
        let mut file = match batch.file.take() {
            Some(file) => file,
            None => SpillFile::create(directory.clone())?,
        };
        let spilled = batch.spill_to(&mut file);
        batch.file = Some(file);
        let (parts, bytes) = spilled?;
        for (number, part) in parts {
            let page = &mut batch.pages[number];
            (page.first, page.last, page.spilled) = (NONE, NONE, part);
        }
        batch.pieces.clear();
        batch.open = None;
        let parts = batch.file.as_ref().map_or(0, SpillFile::parts);
        self.bytes = batch.pages.len() * PAGE_BYTES + parts * PART_BYTES;
        paranoid!(
            self.bytes <= memory / PAGES_PARTS && batch.pages.iter().all(|page| !page.is_empty()),
            "{} bytes stay in an index of {memory}, or a page lost its changes",
            self.bytes
        );
        Ok(Some(bytes))
    }
}

impl PageBatch {
    /// Writes what is in memory: for each page of which something is, by its place in `pages`, its
    /// part; and how many bytes.
    fn spill_to(&self, file: &mut SpillFile) -> Result<(Vec<(usize, PartNumber)>, u64)> {
        let mut pages: Vec<usize> = (0..self.pages.len())
            .filter(|&number| self.pages[number].first != NONE)
            .collect();
        // Neighbours are read after one another.
        pages.sort_unstable_by_key(|&number| self.pages[number].page);
        let mut append = file.append();
        let mut parts = Vec::with_capacity(pages.len());
        for number in pages {
            let page = self.pages[number];
            parts.push((number, append.part(page.spilled, self.gathered(page))?));
        }
        Ok((parts, append.finish()?))
    }

    /// Nothing of it is needed any more.
    pub fn end(self) {
        if let Some(file) = self.file {
            file.remove();
        }
    }

    /// The changes of a page of this batch, in the order of the log. The first one alone may
    /// initialise the page. `room` keeps those that are read of the file.
    pub fn changes<'b>(
        &'b self,
        page: PageChanges,
        room: &'b mut Vec<u8>,
    ) -> Result<impl Iterator<Item = Change<'b>> + Clone> {
        room.clear();
        if let Some(file) = &self.file {
            file.read(page.spilled, room)?;
        }
        let spilled = spill::changes(room);
        paranoid!(
            room.is_empty() == (page.spilled == NO_PART),
            "{} bytes are read of the file for page {}",
            room.len(),
            page.page
        );
        Ok(spilled.chain(self.gathered(page)))
    }

    /// Those that are in memory.
    fn gathered(&self, page: PageChanges) -> impl Iterator<Item = Change<'_>> + Clone {
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
