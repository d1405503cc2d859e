//! Export and import of a table's file.

use crate::catalog::{ink_table, table_options};
use crate::database::{ink_database, ink_option};
use crate::entry::{entry, free};
use crate::error::ink_error;
use crate::raw::{self, ink_slice};
use inkstone::Export;
use std::ffi::{c_char, c_int};

/// `ink_export`.
pub struct ink_export(#[expect(dead_code, reason = "dropping it ends the export")] Export);

/// `ink_import_tree`.
#[repr(C)]
pub struct ink_import_tree {
    number: u32,
    name: ink_slice,
}

/// Begins an export.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_export_begin(
    table: *const ink_table,
    export: *mut *mut ink_export,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |table| {
        let place = raw::place(export)?;
        let exported = table.database.export_table(&table.table)?;
        *place = raw::into_handle(ink_export(exported));
    })
}

/// Ends an export.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_export_end(export: *mut ink_export) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(export) }
}

/// Makes a table of a file.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_import_table(
    database: *const ink_database,
    name: ink_slice,
    file: *const c_char,
    trees: *const ink_import_tree,
    tree_count: usize,
    options: *const ink_option,
    option_count: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let mut named = Vec::new();
        for tree in raw::array(trees, tree_count)? {
            named.push((tree.number, tree.name.text()?));
        }
        let (name, file) = (name.text()?, raw::path(file)?);
        let options = table_options(options, option_count)?;
        database.0.import_table_with(name, file, &named, &options)?;
    })
}
