//! Statements, marks and savepoints.

use crate::error::{guard, ink_error};
use crate::raw::{self, ink_slice};
use crate::transaction::ink_transaction;
use inkstone::{Mark, Transaction};
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            raw::handle(transaction)?
                .0
                .with(Transaction::begin_statement)
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            raw::handle(transaction)?
                .0
                .with(Transaction::rollback_statement)
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            raw::handle(transaction)?.0.with(Transaction::end_statement)
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let set = raw::handle(transaction)?.0.with(Transaction::mark)?;
            raw::place(mark)?.opaque = set.to_words();
            Ok(())
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let mark = Mark::from_words(raw::handle(mark)?.opaque);
            let cell = &raw::handle(transaction)?.0;
            cell.with(|transaction| transaction.rollback_to_mark(mark))
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, name) = (&raw::handle(transaction)?.0, name.text()?);
            cell.with(|transaction| transaction.savepoint(name))
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, name) = (&raw::handle(transaction)?.0, name.text()?);
            cell.with(|transaction| transaction.rollback_to_savepoint(name))
        })
    }
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
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, name) = (&raw::handle(transaction)?.0, name.text()?);
            cell.with(|transaction| transaction.release_savepoint(name))
        })
    }
}
