//! The page index: the changes that the log has for each page, gathered while it is scanned.
//!
//! Nothing here depends on the order of pages; the changes of one page are in LSN order. What
//! stands before an initialisation of the page is dropped at once.
//!
//! Records stand as bytes, one behind the other, in pieces of memory that are never moved, with a
//! reference to the one before of their page: adding one allocates nothing. Records are made of
//! them one by one, when they are applied.
//!
//! Where the pages are many, neither a page's entry nor the record before is in a near cache, and
//! waiting for memory is most of the work. So some changes are joined to their pages together, and
//! the chains of some pages are followed together: then the processor waits for several at once.
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
    /// The last changes, which are not joined to their pages.
    pending: Vec<Pending>,
    /// The page of the last change that was joined, and its number.
    last: Option<(PageId, u32)>,
}

/// A change that is in memory, and not joined to its page.
#[derive(Clone, Copy)]
struct Pending {
    page: PageId,
    place: Place,
    initialises: bool,
    at: Reference,
    bytes: u32,
}

/// Changes that are joined to their pages together, and pages whose chains are followed together.
const TOGETHER: usize = 32;

/// The changes of pages.
#[derive(Default)]
pub(super) struct PageBatch {
    pub pages: Vec<PageChanges>,
    pieces: Vec<Vec<u8>>,
    /// The piece with room for more.
    open: Option<u32>,
    /// Pieces to be used again.
    spare: Vec<Vec<u8>>,
    /// Where earlier changes are.
    file: Option<SpillFile>,
}

/// A page, and where its changes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChanges {
    pub page: PageId,
    /// The last one that is in memory.
    last: Reference,
    /// Those before the ones in memory that are in the file.
    spilled: PartNumber,
    /// What they take in the index, or would.
    pub bytes: u64,
    span: Late,
}

impl PageChanges {
    fn none(page: PageId) -> Self {
        Self {
            page,
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
        self.last == NONE && self.spilled == NO_PART
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

/// There is no change before.
const NONE: Reference = Reference {
    piece: u32::MAX,
    offset: u32::MAX,
};

/// Bytes of a piece, but for a change that alone has a fourth of that: it has a piece of its own.
const PIECE: usize = 1 << 20;
/// Bytes before a record: piece and offset of the change before, start, end, length.
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
    pub fn push(&mut self, page: PageId, place: Place, initialises: bool, record: &[u8]) {
        let at = self.batch.add(place, record);
        let bytes = (HEAD + record.len()) as u32;
        self.bytes += bytes as usize;
        self.pending.push(Pending {
            page,
            place,
            initialises,
            at,
            bytes,
        });
        if self.pending.len() >= TOGETHER {
            self.join();
        }
    }

    /// Joins the last changes to their pages.
    fn join(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let mut numbers = [0; TOGETHER];
        paranoid!(
            pending.len() <= TOGETHER,
            "{} changes wait to be joined to their pages",
            pending.len()
        );
        for (number, change) in numbers.iter_mut().zip(&pending) {
            *number = self.page(change.page);
        }
        // The entries are read here, so that they are near when they are needed one by one.
        let pages = &self.batch.pages;
        let near = numbers.iter().map(|&number| pages.get(number as usize));
        let near = near.map(|page| page.map_or(0, |page| page.bytes ^ page.span.end.0));
        std::hint::black_box(near.fold(0, |all, one| all ^ one));
        for (&number, change) in numbers.iter().zip(&pending) {
            self.join_one(number, change);
        }
        self.pending = pending;
        self.pending.clear();
    }

    fn join_one(&mut self, number: u32, change: &Pending) {
        let (mut start, end) = (change.place.start, change.place.end);
        self.check(number, change);
        let before = self.batch.pages[number as usize];
        let mut changes = before;
        if change.initialises && !before.is_empty() {
            // The disk lacks what is dropped, too: until it has the page, the checkpoint must stay
            // before that, or the next recovery would find a part of it and no page that it fits.
            start = before.span.start;
            self.batch.set_start(change.at, start);
        }
        if before.is_empty() || change.initialises {
            changes = PageChanges::none(change.page);
            changes.span.start = start;
            changes.span.initialises = change.initialises;
        }
        self.batch.set_previous(change.at, changes.last);
        changes.last = change.at;
        changes.span.end = end;
        changes.bytes += u64::from(change.bytes);
        self.batch.pages[number as usize] = changes;
    }

    fn check(&self, number: u32, change: &Pending) {
        let before = self.batch.pages[number as usize];
        let (page, start, end) = (before.page, change.place.start, change.place.end);
        paranoid!(
            self.batch
                .change(change.at)
                .record()
                .is_ok_and(|record| record.page() == Some(page))
                && start < end,
            "a change from LSN {start} to {end} of page {page} is of another page"
        );
        paranoid!(
            before.span.end <= end,
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
        self.join();
        let mut batch = std::mem::take(self).batch;
        batch.spare.clear();
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
        self.join();
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
            (page.last, page.spilled) = (NONE, part);
        }
        let pieces = batch.pieces.drain(..);
        batch.spare = pieces.filter(|piece| piece.capacity() == PIECE).collect();
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
            .filter(|&number| self.pages[number].last != NONE)
            .collect();
        // Neighbours are read after one another.
        pages.sort_unstable_by_key(|&number| self.pages[number].page);
        let mut append = file.append();
        let mut parts = Vec::with_capacity(pages.len());
        for numbers in pages.chunks(TOGETHER) {
            let chains = self.chains(numbers.iter().map(|&number| self.pages[number].last));
            for (&number, chain) in numbers.iter().zip(&chains) {
                let changes = chain.iter().rev().map(|&at| self.change(at));
                parts.push((number, append.part(self.pages[number].spilled, changes)?));
            }
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
        let chain = self.chains(std::iter::once(page.last)).swap_remove(0);
        chain.into_iter().rev().map(|at| self.change(at))
    }

    /// For each of these changes itself and those before it of its page, the last one first.
    fn chains(&self, from: impl Iterator<Item = Reference>) -> Vec<Vec<Reference>> {
        let mut heads: Vec<Reference> = from.collect();
        let mut chains = vec![Vec::new(); heads.len()];
        while heads.iter().any(|&head| head != NONE) {
            for (head, chain) in heads.iter_mut().zip(&mut chains) {
                if *head != NONE {
                    chain.push(*head);
                    *head = self.previous(*head);
                }
            }
        }
        chains
    }

    /// Adds a change, which is joined to its page later.
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
            let mut piece = self.spare.pop();
            piece.iter_mut().for_each(Vec::clear);
            let new = || Vec::with_capacity(PIECE);
            self.pieces.push(piece.unwrap_or_else(new));
            self.open = Some(number);
        }
        number
    }

    fn set_previous(&mut self, of: Reference, previous: Reference) {
        paranoid!(self.previous(of) == NONE, "a change has two before it");
        let at = of.offset as usize;
        let head = &mut self.pieces[of.piece as usize][at..at + 8];
        head[..4].copy_from_slice(&previous.piece.to_le_bytes());
        head[4..].copy_from_slice(&previous.offset.to_le_bytes());
    }

    fn set_start(&mut self, of: Reference, start: Lsn) {
        paranoid!(
            start <= self.change(of).start,
            "a change would begin at LSN {start}, behind its frame"
        );
        let at = of.offset as usize + 8;
        self.pieces[of.piece as usize][at..at + 8].copy_from_slice(&start.0.to_le_bytes());
    }

    fn from(&self, at: Reference) -> &[u8] {
        &self.pieces[at.piece as usize][at.offset as usize..]
    }

    /// The change before this one of its page.
    fn previous(&self, at: Reference) -> Reference {
        let bytes = self.from(at);
        Reference {
            piece: word(bytes, 0),
            offset: word(bytes, 4),
        }
    }

    /// Where this one stands in the log, and its record.
    fn change(&self, at: Reference) -> Change<'_> {
        let bytes = self.from(at);
        let place = Place {
            start: Lsn(long(bytes, 8)),
            end: Lsn(long(bytes, 16)),
        };
        Change::new(place, &bytes[HEAD..HEAD + word(bytes, 24) as usize])
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
