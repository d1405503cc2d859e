//! Values with parts that may leave the row: of a value that does not fit its leaf only the longest
//! parts go to chains of pages, one each, until the rest fits
//! ([`inkstone_format::overflow::LongValue`]). A value without parts, or one whose rest is still
//! too long, lies in one chain as a whole; so does one whose parts would take many more pages.
//!
//! # Chains that are kept
//!
//! An update locks the row, compares its new parts with the chains that the row has, and keeps
//! those that hold the same bytes: nothing of them is written or logged. Old and new version of the
//! row refer to such a chain. It gets its entry in the tree of chains to be freed from the change
//! that gives it up (`overflow`), which no snapshot with an older version of the row sees.

use super::change::{CellValue, Written};
use super::overflow::chains;
use super::tables::TreeRef;
use super::write::Write;
use crate::btree::{Target, Tree};
use crate::locks::LockMode;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::PageNo;
use inkstone_format::overflow::{
    LongValue, PART_LEN, PARTS_HEAD_LEN, Part, VALUE_LEN_MAX, bytes_per_page, cell_with_parts,
    reference,
};
use inkstone_format::tree_page::{CELL_OVERFLOW, TreePage, is_inline};
use std::ops::Range;

/// How a value lies that is too long for its leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'l> {
    /// What may leave the row. In the order of the value, without overlaps.
    pub parts: &'l [Range<usize>],
    /// Whether an update keeps chains with the same bytes.
    pub keep: bool,
}

impl Layout<'_> {
    /// The whole value in one chain.
    pub const WHOLE: Layout<'static> = Layout {
        parts: &[],
        keep: false,
    };
}

/// The parts of a value as it lies now; none if it lies in one chain.
pub(crate) fn parts_of(value: &LongValue<'_>) -> Vec<Range<usize>> {
    let parts = value
        .parts
        .iter()
        .map(|part| part.at..part.at + part.length);
    let parts = parts.map(|part| part.start as usize..part.end as usize);
    let parts: Vec<_> = parts.collect();
    paranoid!(
        parts.is_sorted_by_key(|part| part.start),
        "the parts {parts:?} of a value are not in its order"
    );
    parts
}

/// Pages that parts may take beside twice what the value would take as a whole.
const SPARE_PAGES: usize = 8;

/// Which parts leave a value, in its order; none: it leaves as a whole, as they do not help, or
/// are so short that their pages would be mostly empty.
fn leaving(
    page_size: usize,
    key: usize,
    value: usize,
    parts: &[Range<usize>],
) -> Vec<Range<usize>> {
    let mut longest_first: Vec<&Range<usize>> = parts.iter().collect();
    longest_first.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let pages = |length: usize| length.div_ceil(bytes_per_page(page_size));
    let mut pages_left = 2 * pages(value) + SPARE_PAGES;
    let (mut left, mut leaving) = (value + PARTS_HEAD_LEN, Vec::new());
    for part in longest_first {
        if part.len() <= PART_LEN || pages(part.len()) > pages_left {
            break;
        }
        pages_left -= pages(part.len());
        left = left - part.len() + PART_LEN;
        leaving.push(part.clone());
        if is_inline(page_size, key, left) {
            leaving.sort_by_key(|part| part.start);
            paranoid!(
                leaving.windows(2).all(|pair| pair[0].end <= pair[1].start),
                "the parts {leaving:?} of a value overlap"
            );
            return leaving;
        }
    }
    Vec::new()
}

/// Values of which parts may leave the row.
impl Transaction {
    /// As [`insert`](Self::insert). If the row is too long for its page the longest of `parts`, as
    /// many as must, go to pages of their own; the others stay, and are read without them
    /// ([`get_slice`](Self::get_slice)). Where that would take many more pages than the value as a
    /// whole (more than twice as many and 8), as parts are short, the whole value goes to pages
    /// together. Parts are ranges of the value, in its order, which do not
    /// overlap: [`Error::InvalidOption`] otherwise.
    pub fn insert_with_parts(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        value: &[u8],
        parts: &[Range<usize>],
    ) -> Result<()> {
        self.insert_or_lock_with_parts(tree, key, value, parts, LockMode::Shared)
    }

    /// As [`insert_or_lock`](Self::insert_or_lock), and as
    /// [`insert_with_parts`](Self::insert_with_parts).
    pub fn insert_or_lock_with_parts(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        value: &[u8],
        parts: &[Range<usize>],
        duplicate: LockMode,
    ) -> Result<()> {
        let (tree, write) = (tree.tree_ref(), Write::Insert(value, duplicate));
        let layout = layout(value, parts)?;
        match self.write_as(tree.live(&self.core)?, key, write, layout)? {
            Written::Inserted => Ok(()),
            _ => Err(tree.duplicate()),
        }
    }

    /// As [`update`](Self::update), and as [`insert_with_parts`](Self::insert_with_parts). A part
    /// of which the row has the same bytes in pages of its own already is compared with them; it
    /// is not written or logged again.
    pub fn update_with_parts(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        value: &[u8],
        parts: &[Range<usize>],
    ) -> Result<()> {
        let (tree, layout) = (tree.tree_ref(), layout(value, parts)?);
        match self.write_as(tree.live(&self.core)?, key, Write::Update(value), layout)? {
            Written::Changed => Ok(()),
            _ => Err(tree.missing()),
        }
    }

    /// As [`upsert`](Self::upsert), and as [`update_with_parts`](Self::update_with_parts).
    pub fn upsert_with_parts(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        value: &[u8],
        parts: &[Range<usize>],
    ) -> Result<bool> {
        let tree = tree.tree_ref().live(&self.core)?;
        let written = self.write_as(tree, key, Write::Upsert(value), layout(value, parts)?)?;
        Ok(written == Written::Inserted)
    }
}

/// The layout of a value with these parts.
pub(super) fn layout<'l>(value: &[u8], parts: &'l [Range<usize>]) -> Result<Layout<'l>> {
    let mut end = 0;
    for part in parts {
        if part.start < end || part.end < part.start || part.end > value.len() {
            return Err(Error::InvalidOption {
                name: "parts".into(),
                value: format!("{parts:?}"),
                reason: format!("not ranges in order of a value of {} bytes", value.len()),
            });
        }
        end = part.end;
    }
    Ok(Layout { parts, keep: true })
}

impl Transaction {
    /// Writes a row whose value does not fit its leaf.
    pub(super) fn write_long(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        (value, layout): (&[u8], Layout<'_>),
    ) -> Result<Written> {
        let length = value.len() as u64;
        if length > VALUE_LEN_MAX {
            return Err(Error::ValueTooLong {
                length,
                limit: VALUE_LEN_MAX,
            });
        }
        let page_size = tree.storage().page_size;
        let leaving = leaving(page_size, key.len(), value.len(), layout.parts);
        let had = match write {
            Write::Update(_) | Write::Upsert(_) if layout.keep && !leaving.is_empty() => {
                self.parts_to_keep(inner, tree, key)?
            }
            _ => Vec::new(),
        };
        let mut stored = Stored::default();
        let written = self
            .store_parts(inner, tree, (value, &leaving), had, &mut stored)
            .and_then(|cell| {
                paranoid!(
                    is_inline(page_size, key.len(), cell.len()),
                    "a cell of {} bytes does not fit beside a key of {}",
                    cell.len(),
                    key.len()
                );
                let cell = CellValue {
                    bytes: &cell,
                    flags: CELL_OVERFLOW,
                    kept: &stored.kept,
                };
                self.write_cell(inner, tree, key, write, cell)
            });
        for &first in &stored.made {
            match written {
                Ok(Written::Inserted | Written::Changed) => {
                    self.adopt_long_value(inner, tree, first)?;
                }
                _ => (self.core).disown_long_value(&self.shared, &tree.space, first)?,
            }
        }
        written
    }

    /// The chains of a row that is to be updated, which is locked if it has any.
    fn parts_to_keep(&self, inner: &mut Inner, tree: &Tree, key: &[u8]) -> Result<Vec<Part>> {
        let has_any = {
            let leaf = tree.leaf_shared(Target::Key(key))?;
            let page = TreePage(&leaf);
            let cell = page.search(key).ok().map(|slot| page.cell(slot));
            cell.is_some_and(|cell| cell.is_overflow() && !cell.is_deleted())
        };
        if !has_any {
            return Ok(Vec::new());
        }
        let deadline = Some(self.deadline());
        let found = self.newest_cell(inner, tree, key, LockMode::Exclusive, deadline)?;
        match found {
            Some((seen, _)) if seen.flags & CELL_OVERFLOW != 0 => {
                Ok(self.core.long_value(tree, &seen.value)?.parts)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Stores what leaves a value, but for what the row has already. The cell.
    fn store_parts(
        &self,
        inner: &mut Inner,
        tree: &Tree,
        (value, leaving): (&[u8], &[Range<usize>]),
        mut had: Vec<Part>,
        stored: &mut Stored,
    ) -> Result<Vec<u8>> {
        if leaving.is_empty() {
            let first = self.store_long_value(inner, tree, value)?;
            stored.made.push(first);
            return Ok(reference(value.len() as u64, first));
        }
        let (mut parts, mut inline, mut end) = (Vec::new(), Vec::new(), 0);
        for part in leaving {
            let bytes = &value[part.clone()];
            let first = match self.find_same(tree, &mut had, bytes)? {
                Some(first) => {
                    stored.kept.push(first);
                    first
                }
                None => {
                    let first = self.store_long_value(inner, tree, bytes)?;
                    stored.made.push(first);
                    first
                }
            };
            let (at, length) = (part.start as u64, bytes.len() as u64);
            parts.push(Part { at, length, first });
            inline.extend_from_slice(&value[end..part.start]);
            end = part.end;
        }
        inline.extend_from_slice(&value[end..]);
        let cell = cell_with_parts(&parts, &inline);
        paranoid!(
            chains(&cell).len() == leaving.len(),
            "{} parts are read as the chains {:?}",
            leaving.len(),
            chains(&cell)
        );
        Ok(cell)
    }

    /// The chain of the row that holds these bytes; it is taken out of those that it had.
    fn find_same(&self, tree: &Tree, had: &mut Vec<Part>, bytes: &[u8]) -> Result<Option<PageNo>> {
        paranoid!(
            bytes.len() > PART_LEN,
            "a part of {} bytes leaves a row for a longer reference",
            bytes.len()
        );
        for n in 0..had.len() {
            let same = had[n].length == bytes.len() as u64
                && (mutants::on(Mutant::PartsNotCompared)
                    || (self.core).chain_holds(&tree.space, had[n].first, bytes)?);
            if same {
                return Ok(Some(had.remove(n).first));
            }
        }
        Ok(None)
    }
}

/// The chains of a row that is about to be written.
#[derive(Default)]
struct Stored {
    /// New ones.
    made: Vec<PageNo>,
    /// Those that the row has.
    kept: Vec<PageNo>,
}
