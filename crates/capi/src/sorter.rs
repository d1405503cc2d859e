//! Sorting rows.

use crate::database::ink_database;
use crate::entry::{entry, free, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_row, ink_slice};
use inkstone::{Sorted, Sorter};
use std::ffi::c_int;

enum State {
    Gathering(Sorter),
    Sorted(Sorted),
    /// Sorting has failed.
    Failed,
}

/// `ink_sorter`.
pub struct ink_sorter {
    state: State,
    count: u64,
    /// What is lent out: keys and values, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
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

    /// Copies up to `max` rows to where they are lent out from.
    fn fill(&mut self, max: usize) -> Result<(), Failure> {
        let (mut bytes, mut ends) = (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.ends),
        );
        bytes.clear();
        ends.clear();
        let sorted = self.sorted()?;
        while ends.len() < max {
            let Some(entry) = sorted.next_entry()? else {
                break;
            };
            bytes.extend_from_slice(entry.key);
            let key_end = bytes.len();
            bytes.extend_from_slice(entry.value);
            ends.push((key_end, bytes.len()));
        }
        (self.bytes, self.ends) = (bytes, ends);
        Ok(())
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
            bytes: Vec::new(),
            ends: Vec::new(),
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

/// Gives rows back by key.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_sorter_fetch(
    sorter: *mut ink_sorter,
    rows: *mut ink_row,
    max: usize,
    count: *mut usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let (sorter, count) = (raw::place(sorter)?, raw::place(count)?);
        raw::handle(rows)?;
        *count = 0;
        sorter.fill(max)?;
        let mut start = 0;
        for &(key_end, end) in &sorter.ends {
            let row = ink_row {
                key: ink_slice::lend(&sorter.bytes[start..key_end]),
                value: ink_slice::lend(&sorter.bytes[key_end..end]),
            };
            // At most `max`, as many as the caller's array has room for.
            rows.add(*count).write(row);
            *count += 1;
            start = end;
        }
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
        sorter.bytes = key;
        let key_end = sorter.bytes.len();
        sorter.bytes.extend_from_slice(&value);
        sorter.ends.clear();
        raw::put(number, at);
        let lent = ink_row {
            key: ink_slice::lend(&sorter.bytes[..key_end]),
            value: ink_slice::lend(&sorter.bytes[key_end..]),
        };
        raw::put(row, lent);
    })
}
