//! The page index: the changes that the log has for each page, gathered while it is scanned.
//!
//! Nothing here depends on the order of pages; the changes of one page are in LSN order. What
//! stands before an initialisation of the page is dropped at once.

use crate::paranoid::{MANY, paranoid};
use crate::sync::HashMap;
use inkstone_format::record::{Record, Undo, UndoEntry};
use inkstone_format::{Lsn, PageId};

/// A change of one page.
#[derive(Clone, Debug)]
pub struct Change {
    /// Start of the frame that holds it; for an initialisation, of the first one whose change of
    /// the page it made needless.
    pub start: Lsn,
    /// End of that frame: the page LSN once it is applied.
    pub end: Lsn,
    /// What it does.
    pub record: Record,
}

/// See the module.
#[derive(Default)]
pub(super) struct PageIndex {
    pages: HashMap<PageId, Vec<Change>>,
    bytes: usize,
}

/// Bytes for a page's entry in the index, about.
const PAGE_BYTES: usize = 128;

impl PageIndex {
    /// Adds a page's next change.
    pub fn push(&mut self, page: PageId, mut change: Change) {
        self.bytes += change_bytes(&change);
        let pages = &mut self.pages;
        let changes = pages.entry(page).or_insert_with(|| {
            self.bytes += PAGE_BYTES;
            Vec::new()
        });
        paranoid!(
            change.record.page() == Some(page) && change.start < change.end,
            "a change from LSN {} to {} of page {page}: {}",
            change.start,
            change.end,
            change.record.name()
        );
        paranoid!(
            changes.last().is_none_or(|last| last.end <= change.end),
            "a change of page {page} to LSN {} behind a later one",
            change.end
        );
        if change.record.initialises_page() {
            self.bytes -= changes.iter().map(change_bytes).sum::<usize>();
            // The disk lacks what is dropped, too: until it has the page, the checkpoint must stay
            // before that, or the next recovery would find a part of it and no page that it fits.
            change.start = changes.first().map_or(change.start, |first| first.start);
            changes.clear();
        }
        changes.push(change);
        let mut later = changes.iter().skip(1).rev().take(MANY);
        paranoid!(
            later.all(|change| !change.record.initialises_page()),
            "changes of page {page} stand before its initialisation"
        );
    }

    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Empties it: the pages in order, so that they are read in order.
    pub fn take(&mut self) -> Vec<(PageId, Vec<Change>)> {
        self.bytes = 0;
        let mut pages: Vec<_> = std::mem::take(&mut self.pages).into_iter().collect();
        pages.sort_unstable_by_key(|(page, _)| *page);
        paranoid!(
            pages.iter().all(|(_, changes)| !changes.is_empty()),
            "a page without changes is in the index"
        );
        pages
    }
}

fn change_bytes(change: &Change) -> usize {
    size_of::<Change>() + heap_bytes(&change.record)
}

/// Bytes that an allocation of `len` bytes costs, about.
fn heap(len: usize) -> usize {
    if len == 0 { 0 } else { len + 16 }
}

fn undo_bytes(undo: &Undo) -> usize {
    match undo {
        Undo::Update { diff, .. } => heap(diff.old.len()) + heap(diff.new.len()),
        Undo::Restore { value, .. } => heap(value.len()),
        Undo::Insert | Undo::Mark | Undo::Revive => 0,
    }
}

fn heap_bytes(record: &Record) -> usize {
    match record {
        Record::TreeInit { init, .. } => {
            heap(init.low.len()) + init.high.as_ref().map_or(0, |high| heap(high.len()))
        }
        Record::Bytes { bytes, .. } => heap(bytes.len()),
        Record::LeafCells { rows, .. } | Record::RowsInsert { rows, .. } => {
            let row =
                |row: &inkstone_format::record::Row| heap(row.key.len()) + heap(row.value.len());
            heap(size_of_val(&rows[..])) + rows.iter().map(row).sum::<usize>()
        }
        Record::InnerCells { children, .. } => {
            let keys: usize = children.iter().map(|(key, _)| heap(key.len())).sum();
            heap(size_of_val(&children[..])) + keys
        }
        Record::SetHigh { high, .. } => high.as_ref().map_or(0, |high| heap(high.len())),
        Record::RowUpdate { key, diff, .. } => {
            heap(key.len()) + heap(diff.old.len()) + heap(diff.new.len())
        }
        Record::RowMark { key, .. } => heap(key.len()),
        Record::RowRevive { key, value, .. } => heap(key.len()) + heap(value.len()),
        Record::RowUndo { undo, .. } => undo_bytes(undo),
        Record::UndoCopy { entries, .. } => {
            let entry = |entry: &UndoEntry| heap(entry.key.len()) + undo_bytes(&entry.undo);
            heap(size_of_val(&entries[..])) + entries.iter().map(entry).sum::<usize>()
        }
        _ => 0,
    }
}
