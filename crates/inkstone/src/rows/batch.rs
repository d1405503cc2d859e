//! Rows of a leaf, copied for a cursor.

use crate::buffer::Ahead;
use crate::paranoid::paranoid;
use inkstone_format::VersionAddress;
use inkstone_format::tree_page::{Cell, TreePage};
use std::ops::Range;

/// Keys with a suffix of up to so many bytes are made by a move of so many, without a call.
const SHORT: usize = 16;

/// A row of a batch. Its key is [`Batch::key`] as long as it is the last one handed out.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// Where its cell begins in the batch's heap.
    cell_at: usize,
    value_at: usize,
    end: usize,
    pub flags: u8,
    pub version: Option<VersionAddress>,
}

impl Row {
    /// Where the value lies: see [`Batch::bytes`].
    #[inline]
    pub fn value(&self) -> Range<usize> {
        self.value_at..self.end
    }
}

/// Rows of a leaf, in the order in which they are handed out: their cells, as they lay in the page.
#[derive(Default)]
pub(crate) struct Batch {
    /// The part of the leaf's heap in which the cells lie, and [`SHORT`] bytes. Copied as one
    /// piece: cells of neighbours mostly are neighbours.
    heap: Vec<u8>,
    /// Where each row's cell begins in `heap`.
    cells: Vec<u16>,
    /// The next row to hand out.
    at: usize,
    /// The key of the row that was handed out last, and bytes that do not matter. It begins with
    /// what all keys of the leaf share.
    key: Vec<u8>,
    key_len: usize,
    prefix_len: usize,
    /// Rows handed out that no reader will ever see again.
    pub dead: usize,
    /// The leaf behind this one.
    pub ahead: Ahead,
}

impl Batch {
    /// Without rows.
    pub fn clear(&mut self) {
        self.at = 0;
        self.dead = 0;
        self.heap.clear();
        self.cells.clear();
        self.ahead = Ahead::default();
    }

    pub fn copy(&mut self, page: TreePage<'_>, slots: Range<usize>, backward: bool) {
        paranoid!(
            self.at == self.cells.len(),
            "{} rows of a leaf were not handed out",
            self.cells.len() - self.at
        );
        paranoid!(
            page.is_leaf() && slots.start <= slots.end && slots.end <= page.count(),
            "slots {slots:?} are copied of a page of {}, of level {}",
            page.count(),
            page.level()
        );
        self.clear();
        self.key.clear();
        self.key.extend_from_slice(page.prefix());
        self.prefix_len = self.key.len();
        self.key_len = self.prefix_len;
        self.key.resize(self.prefix_len + SHORT, 0);
        // At once as much as any leaf takes.
        self.cells.reserve(page.count());
        self.cells.extend(page.slot_offsets(slots));
        let (first, last) = (self.cells.iter().min(), self.cells.iter().max());
        let (Some(&first), Some(&last)) = (first, last) else {
            return;
        };
        let (from, last) = (usize::from(first), usize::from(last));
        let end = last + Cell::read(page.0, last).len;
        self.heap.reserve(page.0.len() + SHORT);
        self.heap.extend_from_slice(&page.0[from..end]);
        self.heap.extend_from_slice(&[0; SHORT]);
        self.cells.iter_mut().for_each(|at| *at -= first);
        if backward {
            self.cells.reverse();
        }
    }

    /// How many rows were copied.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Bytes that were copied.
    pub fn heap_len(&self) -> usize {
        self.heap.len()
    }

    /// The next row. Makes its key.
    #[inline(always)]
    pub fn next(&mut self) -> Option<Row> {
        let cell_at = usize::from(*self.cells.get(self.at)?);
        self.at += 1;
        self.ahead.step();
        let cell = Cell::read(&self.heap, cell_at);
        let end = cell_at + cell.len;
        let value_at = end - cell.value.len();
        let suffix_len = cell.suffix.len();
        self.key_len = self.prefix_len + suffix_len;
        if suffix_len <= SHORT {
            let suffix_at = value_at - suffix_len;
            self.key[self.prefix_len..self.prefix_len + SHORT]
                .copy_from_slice(&self.heap[suffix_at..suffix_at + SHORT]);
        } else {
            self.key.truncate(self.prefix_len);
            self.key.extend_from_slice(cell.suffix);
        }
        Some(Row {
            cell_at,
            value_at,
            end,
            flags: cell.flags,
            version: cell.version,
        })
    }

    /// Has the last row be the next one again.
    pub fn back(&mut self) {
        paranoid!(self.at > 0, "a batch goes back to before its first row");
        self.at -= 1;
    }

    /// The key of the row that was handed out last.
    #[inline]
    pub fn key(&self) -> &[u8] {
        paranoid!(
            self.prefix_len <= self.key_len && self.key_len <= self.key.len(),
            "a key of {} bytes in a buffer of {}, behind a prefix of {}",
            self.key_len,
            self.key.len(),
            self.prefix_len
        );
        &self.key[..self.key_len]
    }

    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        paranoid!(
            range.end + SHORT <= self.heap.len(),
            "a row's bytes {range:?} are of another batch than one of {} bytes",
            self.heap.len()
        );
        &self.heap[range]
    }

    /// The cell of a row.
    pub fn cell(&self, row: Row) -> Cell<'_> {
        paranoid!(
            row.cell_at < row.value_at && row.end + SHORT <= self.heap.len(),
            "a cell at {}..{} is of another batch than one of {} bytes",
            row.cell_at,
            row.end,
            self.heap.len()
        );
        Cell::read(&self.heap, row.cell_at)
    }

    /// The key of the row that comes last.
    pub fn last_key(&self) -> Option<Vec<u8>> {
        let last = Cell::read(&self.heap, usize::from(*self.cells.last()?));
        Some([&self.key[..self.prefix_len], last.suffix].concat())
    }
}
