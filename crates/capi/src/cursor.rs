//! Cursors over key ranges, and estimates of them.

use crate::catalog::ink_tree;
use crate::entry::{entry, free};
use crate::error::{Failure, ink_error};
use crate::parts::FetchedParts;
use crate::raw::{self, ink_row, ink_slice};
use crate::rows::{lock_mode, wait};
use crate::transaction::{Cell, ink_transaction};
use inkstone::{Cursor, LockingScan, TableTree, Transaction};
use std::ffi::c_int;
use std::ops::Bound;
use std::sync::Arc;

/// The bounds of a key range.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// `ink_range`.
#[repr(C)]
pub struct ink_range {
    low: ink_slice,
    high: ink_slice,
    low_bound: u32,
    high_bound: u32,
}

impl ink_range {
    /// # Safety
    /// As [`ink_slice::bytes`], for both ends.
    unsafe fn bounds<'a>(&self) -> Result<Bounds<'a>, Failure> {
        let bound = |kind, key: ink_slice| {
            // SAFETY: what this function asks for.
            let key = || unsafe { key.bytes() };
            match kind {
                0 => Ok(Bound::Unbounded),
                1 => Ok(Bound::Included(key()?)),
                2 => Ok(Bound::Excluded(key()?)),
                _ => Err(Failure::invalid(format!("bound {kind}"))),
            }
        };
        Ok((
            bound(self.low_bound, self.low)?,
            bound(self.high_bound, self.high)?,
        ))
    }
}

/// `ink_scan`.
#[repr(C)]
pub struct ink_scan {
    backward: bool,
    lock: u32,
    wait: u32,
    semi_consistent: bool,
    outlines: bool,
}

enum Kind {
    Plain(Box<Cursor>),
    Locking(Box<LockingScan>, Fetched),
}

/// `ink_cursor`.
pub struct ink_cursor {
    transaction: Arc<Cell>,
    tree: TableTree,
    kind: Kind,
    /// Whether rows come without the parts that lie outside; those of the rows fetched last.
    outlines: bool,
    pub left_out: FetchedParts,
}

impl ink_cursor {
    /// Fills `to` with bytes of a part of a row.
    pub fn read_left_out(
        &mut self,
        (row, part): (usize, usize),
        from: u64,
        to: &mut [u8],
    ) -> Result<(), Failure> {
        let _active = self.transaction.active()?;
        match &mut self.kind {
            Kind::Plain(plain) => Ok(plain.read_left_out(row, part, from, to)?),
            Kind::Locking(..) => Err(Failure::invalid("a locking cursor leaves nothing out")),
        }
    }
}

/// Rows of a locking cursor that are lent out: keys and values, one after the other.
#[derive(Default)]
struct Fetched {
    bytes: Vec<u8>,
    /// Where each key ends, and its value.
    ends: Vec<(usize, usize)>,
}

impl Fetched {
    /// Locks and copies up to `max` rows. A failure after the first row is left to the next call.
    fn fill(
        &mut self,
        scan: &mut LockingScan,
        transaction: &Transaction,
        max: usize,
    ) -> inkstone::Result<()> {
        self.bytes.clear();
        self.ends.clear();
        while self.ends.len() < max {
            match scan.next_row(transaction) {
                Ok(true) => {}
                Ok(false) => break,
                // A deadlock's victim is rolled back: what it has fetched means nothing.
                Err(error) if self.ends.is_empty() => return Err(error),
                Err(inkstone::Error::Deadlock) => return Err(inkstone::Error::Deadlock),
                Err(_) => break,
            }
            self.bytes.extend_from_slice(scan.key());
            let key_end = self.bytes.len();
            self.bytes.extend_from_slice(scan.value());
            self.ends.push((key_end, self.bytes.len()));
            if scan.is_unlocked() {
                // The caller is to say whether it wants the row.
                break;
            }
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(key_end, end)| {
            let row = (&self.bytes[start..key_end], &self.bytes[key_end..end]);
            start = end;
            row
        })
    }
}

fn open(
    transaction: &Transaction,
    tree: &TableTree,
    bounds: Bounds<'_>,
    scan: &ink_scan,
    modes: Option<(inkstone::LockMode, inkstone::Wait)>,
) -> inkstone::Result<Kind> {
    let plain = |cursor| Kind::Plain(Box::new(cursor));
    match modes {
        None if scan.backward => transaction.range_backward(tree, bounds).map(plain),
        None => transaction.range(tree, bounds).map(plain),
        Some((mode, wait)) => transaction
            .locking_scan_of(tree, bounds, scan.backward, mode, wait)
            .map(|mut locking| {
                locking.set_semi_consistent(scan.semi_consistent);
                Kind::Locking(Box::new(locking), Fetched::default())
            }),
    }
}

fn modes(scan: &ink_scan) -> Result<Option<(inkstone::LockMode, inkstone::Wait)>, Failure> {
    match scan.lock {
        0 => Ok(None),
        lock => Ok(Some((lock_mode(lock)?, wait(scan.wait)?))),
    }
}

/// Opens a cursor.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_open(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    range: *const ink_range,
    scan: *const ink_scan,
    cursor: *mut *mut ink_cursor,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree, range, scan| {
        let place = raw::place(cursor)?;
        let (bounds, modes) = (range.bounds()?, modes(scan)?);
        let active = transaction.0.active()?;
        let kind = open(&active, &tree.0, bounds, scan, modes)?;
        *place = raw::into_handle(ink_cursor {
            transaction: transaction.0.clone(),
            tree: tree.0.clone(),
            kind,
            outlines: scan.outlines,
            left_out: FetchedParts::default(),
        });
    })
}

/// Gives a cursor back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_close(cursor: *mut ink_cursor) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(cursor) }
}

/// Goes to another range.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_seek(
    cursor: *mut ink_cursor,
    range: *const ink_range,
    scan: *const ink_scan,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |range, scan| {
        let cursor = raw::place(cursor)?;
        let (bounds, modes) = (range.bounds()?, modes(scan)?);
        let transaction = cursor.transaction.active()?;
        match (modes, &mut cursor.kind) {
            (None, Kind::Plain(plain)) => {
                transaction.seek(&cursor.tree, plain, bounds, scan.backward)?;
            }
            (_, kind) => *kind = open(&transaction, &cursor.tree, bounds, scan, modes)?,
        }
        cursor.outlines = scan.outlines;
    })
}

/// Fetches rows.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_fetch(
    cursor: *mut ink_cursor,
    rows: *mut ink_row,
    max: usize,
    count: *mut usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let (cursor, count) = (raw::place(cursor)?, raw::place(count)?);
        raw::handle(rows)?;
        *count = 0;
        let mut lend = |(key, value): (&[u8], &[u8])| {
            let row = ink_row {
                key: ink_slice::lend(key),
                value: ink_slice::lend(value),
            };
            // At most `max`, as many as the caller's array has room for.
            rows.add(*count).write(row);
            *count += 1;
        };
        cursor.left_out.clear();
        match &mut cursor.kind {
            Kind::Plain(plain) => {
                plain.set_outlines(cursor.outlines);
                plain.next_rows(max)?.into_iter().for_each(&mut lend);
                if cursor.outlines {
                    (0..*count).for_each(|row| cursor.left_out.add(plain.left_out(row)));
                }
            }
            Kind::Locking(scan, fetched) => {
                let transaction = cursor.transaction.active()?;
                fetched.fill(scan, &transaction, max)?;
                fetched.rows().for_each(&mut lend);
            }
        }
    })
}

/// Gives back the lock of the row that was fetched last.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_unlock_row(
    cursor: *mut ink_cursor,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let cursor = raw::place(cursor)?;
        if let Kind::Locking(scan, _) = &mut cursor.kind {
            let transaction = cursor.transaction.active()?;
            scan.unlock_row(&transaction)?;
        }
    })
}

/// Whether the row that was fetched last is not locked.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_is_unlocked(cursor: *const ink_cursor) -> bool {
    // SAFETY: the caller's pointer is as the header asks.
    let cursor = unsafe { cursor.as_ref() };
    matches!(cursor, Some(ink_cursor { kind: Kind::Locking(scan, _), .. }) if scan.is_unlocked())
}

/// Has the row that was fetched last, and is not locked, fetched again.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_cursor_want_row(
    cursor: *mut ink_cursor,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        if let Kind::Locking(scan, _) = &mut raw::place(cursor)?.kind {
            scan.want_row();
        }
    })
}

/// Estimates about a range.
#[repr(C)]
pub struct ink_range_estimates {
    rows: u64,
    first_page: u32,
    last_page: u32,
}

/// Estimates the rows of a range.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_records_in_range(
    tree: *const ink_tree,
    range: *const ink_range,
    estimates: *mut ink_range_estimates,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |tree, range| {
        let found = tree.0.estimate_range(range.bounds()?)?;
        let found = ink_range_estimates {
            rows: found.rows,
            first_page: found.first_page.0,
            last_page: found.last_page.0,
        };
        raw::put(estimates, found);
    })
}

/// Deletes all rows of a range.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_delete_range(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    range: *const ink_range,
    deleted: *mut u64,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree, range| {
        let transaction = transaction.0.active()?;
        let rows = transaction.delete_range(&tree.0, range.bounds()?)?;
        raw::put(deleted, rows);
    })
}
