//! Single rows, and many that are inserted.

use crate::catalog::{ink_table, ink_tree};
use crate::database::{durability, ink_database};
use crate::entry::{entry, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_buffer, ink_row, ink_slice};
use crate::transaction::ink_transaction;
use inkstone::{Isolation, LockMode, Locked, Wait};
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let buffer = raw::place(value)?;
        let mut bytes = buffer.take();
        bytes.clear();
        let result = transaction.get_into(&tree.0, key.bytes()?, &mut bytes);
        buffer.put(bytes);
        raw::put(found, result?);
    })
}

/// Reads the pages of rows that will be looked up.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_prefetch(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    keys: *const ink_slice,
    count: usize,
    pages: *mut usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let keys = raw::array(keys, count)?.iter();
        let keys = keys
            .map(|key| key.bytes())
            .collect::<Result<Vec<_>, Failure>>()?;
        raw::put(pages, transaction.prefetch(&tree.0, &keys)?);
    })
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let (mode, waits) = (lock_mode(lock)?, wait(waits)?);
        let (row, taken) = transaction.get_locking_new(&tree.0, key.bytes()?, mode, waits)?;
        raw::put(found, row.is_some());
        raw::put(locked, taken == Locked::Now);
        let buffer = raw::place(value)?;
        drop(buffer.take());
        buffer.put(row.unwrap_or_default());
    })
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        transaction.unlock_row(&tree.0, key.bytes()?)?;
    })
}

/// Takes a table's statement lock.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_lock_for_statement(
    transaction: *const ink_transaction,
    table: *const ink_table,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, table| {
        let transaction = transaction.0.active()?;
        transaction.lock_for_statement(&table.table)?;
    })
}

/// Whether a table's statement lock is held or waited for.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_is_locked_for_statement(table: *const ink_table) -> bool {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(table, false, |t| {
            t.database.is_locked_for_statement(&t.table)
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        transaction.insert(&tree.0, key.bytes()?, value.bytes()?)?;
    })
}

/// Inserts a row, or locks the one that is there.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_insert_or_lock(
    transaction: *const ink_transaction,
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
    duplicate: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let mode = lock_mode(duplicate)?;
        transaction.insert_or_lock(&tree.0, key.bytes()?, value.bytes()?, mode)?;
    })
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
    entry!(error, || {
        raw::put(done, 0);
        let (transaction, tree) = (raw::handle(transaction)?, raw::handle(tree)?);
        let transaction = transaction.0.active()?;
        let rows = raw::rows(rows, count)?;
        let (inserted, result) = transaction.insert_until_duplicate(&tree.0, &rows);
        raw::put(done, inserted);
        result?;
    })
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        transaction.update(&tree.0, key.bytes()?, value.bytes()?)?;
    })
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let new = transaction.upsert(&tree.0, key.bytes()?, value.bytes()?)?;
        raw::put(inserted, new);
    })
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
    entry!(error, |transaction, tree| {
        let transaction = transaction.0.active()?;
        let gone = transaction.delete(&tree.0, key.bytes()?)?;
        raw::put(deleted, gone);
    })
}

/// `ink_tree_row`.
#[repr(C)]
pub struct ink_tree_row {
    tree: *const ink_tree,
    key: ink_slice,
    value: ink_slice,
}

/// Writes rows in a transaction of their own.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_write_rows(
    database: *const ink_database,
    rows: *const ink_tree_row,
    count: usize,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let how = durability(how)?;
        let transaction = database.0.begin(Isolation::ReadCommitted)?;
        for row in raw::array(rows, count)? {
            let tree = raw::handle(row.tree)?;
            transaction.upsert(&tree.0, row.key.bytes()?, row.value.bytes()?)?;
        }
        transaction.commit_with(how)?;
    })
}

/// Reads what was committed last of a row.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_read_row(
    database: *const ink_database,
    tree: *const ink_tree,
    key: ink_slice,
    value: *mut ink_buffer,
    found: *mut bool,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database, tree| {
        let transaction = database.0.begin(Isolation::ReadCommitted)?;
        let row = transaction.get(&tree.0, key.bytes()?)?;
        raw::fill(value, row.as_deref().unwrap_or_default())?;
        raw::put(found, row.is_some());
    })
}
