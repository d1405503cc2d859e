//! Statements, marks and savepoints.

use crate::entry::entry;
use crate::error::ink_error;
use crate::raw::{self, ink_slice};
use crate::transaction::ink_transaction;
use inkstone::Mark;
use std::ffi::c_int;

/// `ink_mark`.
#[repr(C)]
pub struct ink_mark {
    opaque: [u64; 4],
}

/// Begins a statement.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_statement_begin(
    transaction: *const ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        transaction.0.active()?.begin_statement()?;
    })
}

/// Undoes a statement.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_statement_rollback(
    transaction: *const ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        transaction.0.active()?.rollback_statement()?;
    })
}

/// Ends a statement.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_statement_end(
    transaction: *const ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        transaction.0.active()?.end_statement()?;
    })
}

/// Sets a mark.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_mark_set(
    transaction: *const ink_transaction,
    mark: *mut ink_mark,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let set = transaction.0.active()?.mark()?;
        raw::place(mark)?.opaque = set.to_words();
    })
}

/// Goes back to a mark.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_mark_rollback(
    transaction: *const ink_transaction,
    mark: *const ink_mark,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, mark| {
        let transaction = transaction.0.active()?;
        transaction.rollback_to_mark(Mark::from_words(mark.opaque))?;
    })
}

/// Sets a savepoint.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_savepoint_set(
    transaction: *const ink_transaction,
    name: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        transaction.0.active()?.savepoint(name.text()?)?;
    })
}

/// Goes back to a savepoint.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_savepoint_rollback(
    transaction: *const ink_transaction,
    name: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let transaction = transaction.0.active()?;
        transaction.rollback_to_savepoint(name.text()?)?;
    })
}

/// Forgets a savepoint.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_savepoint_release(
    transaction: *const ink_transaction,
    name: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        transaction.0.active()?.release_savepoint(name.text()?)?;
    })
}
