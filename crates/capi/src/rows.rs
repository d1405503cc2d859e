//! Single rows, and many that are inserted.

use crate::catalog::ink_tree;
use crate::error::{Failure, guard, ink_error};
use crate::raw::{self, ink_buffer, ink_row, ink_slice};
use crate::transaction::ink_transaction;
use inkstone::{LockMode, Locked, Wait};
use std::ffi::c_int;

/// `enum ink_lock`, where one is asked for.
pub fn lock_mode(number: u32) -> Result<LockMode, Failure> {
    match number {
        1 => Ok(LockMode::Shared),
        2 => Ok(LockMode::Exclusive),
        _ => Err(Failure::invalid(format!("lock {number}"))),
    }
}

/// The inverse of [`lock_mode`].
pub fn lock_number(mode: LockMode) -> u32 {
    match mode {
        LockMode::Shared => 1,
        LockMode::Exclusive => 2,
    }
}

/// `enum ink_wait`.
pub fn wait(number: u32) -> Result<Wait, Failure> {
    match number {
        0 => Ok(Wait::Timeout),
        1 => Ok(Wait::NoWait),
        2 => Ok(Wait::SkipLocked),
        _ => Err(Failure::invalid(format!("wait {number}"))),
    }
}

/// Reads a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_get(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: *mut ink_buffer,
    found: *mut bool,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            let buffer = raw::place(value)?;
            let mut bytes = buffer.take();
            bytes.clear();
            let result =
                cell.with(|transaction| transaction.get_into(tree, key.bytes(), &mut bytes));
            buffer.put(bytes);
            raw::put(found, result?);
            Ok(())
        })
    }
}

/// Locks and reads a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_get_locking(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    lock: u32,
    waits: u32,
    value: *mut ink_buffer,
    found: *mut bool,
    locked: *mut bool,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            let (mode, waits) = (lock_mode(lock)?, wait(waits)?);
            let (row, taken) = cell.with(|t| t.get_locking_new(tree, key.bytes(), mode, waits))?;
            raw::put(found, row.is_some());
            raw::put(locked, taken == Locked::Now);
            let buffer = raw::place(value)?;
            drop(buffer.take());
            buffer.put(row.unwrap_or_default());
            Ok(())
        })
    }
}

/// Gives a row's lock back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_unlock_row(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            cell.with(|transaction| transaction.unlock_row(tree, key.bytes()).map(drop))
        })
    }
}

/// Inserts a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_insert(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            cell.with(|transaction| transaction.insert(tree, key.bytes(), value.bytes()))
        })
    }
}

/// Inserts rows.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_insert_many(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    rows: *const ink_row,
    count: usize,
    done: *mut usize,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        raw::put(done, 0);
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            let rows = raw::array(rows, count)?.iter();
            let rows: Vec<(&[u8], &[u8])> = rows
                .map(|row| (row.key.bytes(), row.value.bytes()))
                .collect();
            cell.with(|transaction| {
                let (inserted, result) = transaction.insert_until_duplicate(tree, &rows);
                raw::put(done, inserted);
                result
            })
        })
    }
}

/// Updates a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_update(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            cell.with(|transaction| transaction.update(tree, key.bytes(), value.bytes()))
        })
    }
}

/// Inserts or updates a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_upsert(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    inserted: *mut bool,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            let new = cell.with(|t| t.upsert(tree, key.bytes(), value.bytes()))?;
            raw::put(inserted, new);
            Ok(())
        })
    }
}

/// Deletes a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_delete(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    deleted: *mut bool,
    error: *mut ink_error,
) -> c_int {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        guard(error, || {
            let (cell, tree) = (&raw::handle(transaction)?.0, &raw::handle(tree)?.0);
            let gone = cell.with(|transaction| transaction.delete(tree, key.bytes()))?;
            raw::put(deleted, gone);
            Ok(())
        })
    }
}
