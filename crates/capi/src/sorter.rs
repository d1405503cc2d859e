//! Sorting rows.

use crate::catalog::ink_tree;
use crate::database::ink_database;
use crate::entry::{entry, free, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_row, ink_slice};
use crate::transaction::ink_transaction;
use inkstone::{Sorted, Sorter};
use std::ffi::c_int;

enum State {
    Gathering(Sorter),
    Sorted(Sorted),
    /// Sorting has failed.
    Failed,
}

/// `ink_inserted`.
#[repr(C)]
#[derive(Default)]
pub struct ink_inserted {
    pub rows: u64,
    pub bytes: u64,
    pub refused: ink_row,
}

/// `ink_sorter`.
pub struct ink_sorter {
    state: State,
    count: u64,
    /// The repeated row that is lent out.
    repeated: (Vec<u8>, Vec<u8>),
}

impl ink_sorter {
    fn sorted(&mut self) -> Result<&mut Sorted, Failure> {
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Gathering(sorter) => State::Sorted(sorter.sort()?),
            other => other,
        };
        match &mut self.state {
            State::Sorted(sorted) => Ok(sorted),
            _ => Err(Failure::invalid("a sort that has failed".to_owned())),
        }
    }
}

/// Makes a sorter.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_new(
    database: *const ink_database,
    sorter: *mut *mut ink_sorter,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        *raw::place(sorter)? = raw::into_handle(ink_sorter {
            state: State::Gathering(database.0.sorter()),
            count: 0,
            repeated: Default::default(),
        });
    })
}

/// Gives a sorter back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_free(sorter: *mut ink_sorter) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(sorter) }
}

/// Adds a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_add(
    sorter: *mut ink_sorter,
    key: ink_slice,
    value: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let sorter = raw::place(sorter)?;
        let State::Gathering(gathering) = &mut sorter.state else {
            return Err(Failure::invalid("a sorter that gives rows back".to_owned()));
        };
        gathering.add(key.bytes()?, value.bytes()?)?;
        sorter.count += 1;
    })
}

/// The number of rows that were added.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_count(sorter: *const ink_sorter) -> u64 {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(sorter, 0, |sorter| sorter.count) }
}

/// Inserts the next rows by key.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_insert(
    sorter: *mut ink_sorter,
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    max: usize,
    inserted: *mut ink_inserted,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let (sorter, inserted) = (raw::place(sorter)?, raw::place(inserted)?);
        *inserted = ink_inserted::default();
        let transaction = transaction.0.active()?;
        let sorted = sorter.sorted()?;
        let result = transaction.insert_sorted(&tree.0, sorted, max);
        if let Some((key, value)) = sorted.refused() {
            inserted.refused = ink_row::lend(key, value);
        }
        let done = result?;
        (inserted.rows, inserted.bytes) = (done.rows, done.bytes);
    })
}

/// Finds the first row whose key an earlier one has.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_first_repeated(
    sorter: *mut ink_sorter,
    number: *mut u64,
    row: *mut ink_row,
    found: *mut bool,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let sorter = raw::place(sorter)?;
        let repeated = sorter.sorted()?.first_repeated()?;
        raw::put(found, repeated.is_some());
        let Some((at, key, value)) = repeated else {
            return Ok(());
        };
        raw::put(number, at);
        sorter.repeated = (key, value);
        let (key, value) = &sorter.repeated;
        raw::put(row, ink_row::lend(key, value));
    })
}
