//! Values of which parts may leave the row, and reading rows without those.

use crate::catalog::ink_tree;
use crate::cursor::ink_cursor;
use crate::entry::{entry, free, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_row, ink_slice};
use crate::rows::lock_mode;
use crate::transaction::{Cell, ink_transaction};
use inkstone::{Outline, OutsidePart};
use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

/// `ink_part`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ink_part {
    at: u64,
    len: u64,
}

impl From<&OutsidePart> for ink_part {
    fn from(part: &OutsidePart) -> Self {
        Self {
            at: part.at,
            len: part.length,
        }
    }
}

/// `ink_parts`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ink_parts {
    parts: *const ink_part,
    count: usize,
}

impl ink_parts {
    const NONE: Self = Self {
        parts: std::ptr::null(),
        count: 0,
    };

    /// Parts that are lent to C.
    fn lend(parts: &[ink_part]) -> Self {
        Self {
            parts: parts.as_ptr(),
            count: parts.len(),
        }
    }

    /// # Safety
    /// As [`raw::array`].
    unsafe fn ranges(self) -> Result<Vec<Range<usize>>, Failure> {
        // SAFETY: what this function asks for.
        let parts = unsafe { raw::array(self.parts, self.count) }?.iter();
        let end = |part: &ink_part| part.at.checked_add(part.len);
        let range = |part: &ink_part| {
            Some(usize::try_from(part.at).ok()?..usize::try_from(end(part)?).ok()?)
        };
        parts
            .map(|part| range(part).ok_or_else(|| Failure::invalid("a part without an end")))
            .collect()
    }
}

/// Inserts a row with parts, or locks the one that is there.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_insert_with_parts(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    parts: ink_parts,
    duplicate: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let (key, value, parts) = (key.bytes()?, value.bytes()?, parts.ranges()?);
        let mode = lock_mode(duplicate)?;
        transaction.insert_or_lock_with_parts(&tree.0, key, value, &parts, mode)?;
    })
}

/// Inserts rows with parts.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_insert_many_with_parts(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    rows: *const ink_row,
    parts: *const ink_parts,
    count: usize,
    done: *mut usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        raw::put(done, 0);
        let (transaction, tree) = (raw::handle(transaction)?, raw::handle(tree)?);
        let transaction = transaction.0.active()?;
        let rows = raw::rows(rows, count)?;
        let parts = raw::array(parts, count)?.iter();
        let parts = parts
            .map(|parts| parts.ranges())
            .collect::<Result<Vec<_>, Failure>>()?;
        let (inserted, result) =
            transaction.insert_until_duplicate_with_parts(&tree.0, &rows, &parts);
        raw::put(done, inserted);
        result?;
    })
}

/// Updates a row with parts.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_update_with_parts(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    parts: ink_parts,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let (key, value, parts) = (key.bytes()?, value.bytes()?, parts.ranges()?);
        transaction.update_with_parts(&tree.0, key, value, &parts)?;
    })
}

/// Inserts or updates a row with parts.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_upsert_with_parts(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    parts: ink_parts,
    inserted: *mut bool,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let (key, value, parts) = (key.bytes()?, value.bytes()?, parts.ranges()?);
        let new = transaction.upsert_with_parts(&tree.0, key, value, &parts)?;
        raw::put(inserted, new);
    })
}

/// `ink_outline`.
pub struct ink_outline {
    /// Whether it still goes on: what it has taken back may be freed behind it.
    transaction: Arc<Cell>,
    outline: Outline,
    parts: Vec<ink_part>,
}

/// Reads a row without what lies outside of it.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_get_outline(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    outline: *mut *mut ink_outline,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let place = raw::place(outline)?;
        let found = transaction.0.active()?.get_outline(&tree.0, key.bytes()?)?;
        *place = found.map_or(std::ptr::null_mut(), |outline| {
            raw::into_handle(ink_outline {
                transaction: transaction.0.clone(),
                parts: outline.left_out().iter().map(ink_part::from).collect(),
                outline,
            })
        });
    })
}

/// Gives an outline back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_outline_free(outline: *mut ink_outline) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(outline) }
}

/// The bytes that lie in the row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_outline_inline(outline: *const ink_outline) -> ink_slice {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(outline, ink_slice::default(), |outline| {
            ink_slice::lend(outline.outline.inline())
        })
    }
}

/// The parts that lie outside.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_outline_parts(outline: *const ink_outline) -> ink_parts {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(outline, ink_parts::NONE, |outline| {
            ink_parts::lend(&outline.parts)
        })
    }
}

/// Reads bytes of a part.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_outline_read(
    outline: *mut ink_outline,
    part: usize,
    from: u64,
    to: *mut u8,
    len: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let outline = raw::place(outline)?;
        let _active = outline.transaction.active()?;
        outline.outline.read(part, from, raw::room(to, len)?)?;
    })
}

/// Parts of the rows that a cursor has fetched.
#[derive(Default)]
pub struct FetchedParts {
    parts: Vec<ink_part>,
    /// Where those of each row end.
    ends: Vec<usize>,
}

impl FetchedParts {
    pub fn clear(&mut self) {
        self.parts.clear();
        self.ends.clear();
    }

    /// Takes those of the next row.
    pub fn add(&mut self, parts: &[OutsidePart]) {
        self.parts.extend(parts.iter().map(ink_part::from));
        self.ends.push(self.parts.len());
    }

    fn of(&self, row: usize) -> &[ink_part] {
        let start = row.checked_sub(1).and_then(|before| self.ends.get(before));
        let end = self.ends.get(row);
        end.map_or(&[], |&end| &self.parts[start.copied().unwrap_or(0)..end])
    }
}

/// The parts that were left out of a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_parts(cursor: *const ink_cursor, row: usize) -> ink_parts {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(cursor, ink_parts::NONE, |cursor| {
            ink_parts::lend(cursor.left_out.of(row))
        })
    }
}

/// Reads bytes of a part that was left out.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_read(
    cursor: *mut ink_cursor,
    row: usize,
    part: usize,
    from: u64,
    to: *mut u8,
    len: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let cursor = raw::place(cursor)?;
        cursor.read_left_out((row, part), from, raw::room(to, len)?)?;
    })
}
