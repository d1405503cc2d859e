//! Statistics and verification.

use crate::catalog::{ink_table, ink_tree};
use crate::entry::entry;
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_buffer, ink_slice};
use std::ffi::{c_int, c_void};
use std::fmt::Write;

/// `ink_table_estimates`.
#[repr(C)]
pub struct ink_table_estimates {
    rows: u64,
    row_bytes: u64,
    clustered_pages: u64,
    secondary_pages: u64,
    page_bytes: u64,
    file_bytes: u64,
    free_bytes: u64,
    allocated_bytes: u64,
    long_value_bytes: u64,
}

/// `ink_tree_estimates`.
#[repr(C)]
pub struct ink_tree_estimates {
    rows: u64,
    leaf_pages: u64,
    pages: u64,
    height: u32,
}

/// Estimates about a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_estimate_table(
    table: *const ink_table,
    estimates: *mut ink_table_estimates,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |table| {
        let ink_table { database, table } = table;
        let found = database.statistics(table)?;
        let page_bytes = database.options().page_size;
        let pages = |levels: &[u64]| levels.iter().sum::<u64>();
        let leaf_bytes = found.pages_by_level.first().copied().unwrap_or(0) * page_bytes;
        raw::put(
            estimates,
            ink_table_estimates {
                rows: found.rows,
                row_bytes: leaf_bytes.checked_div(found.rows).unwrap_or(0),
                clustered_pages: pages(&found.pages_by_level),
                secondary_pages: found.secondary_pages,
                page_bytes,
                file_bytes: found.file_bytes,
                free_bytes: found.free_bytes,
                allocated_bytes: found.allocated_bytes,
                long_value_bytes: found.long_value_bytes,
            },
        );
    })
}

/// Estimates about a tree.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_estimate_tree(
    tree: *const ink_tree,
    estimates: *mut ink_tree_estimates,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |tree| {
        let found = tree.0.estimates()?;
        raw::put(
            estimates,
            ink_tree_estimates {
                rows: found.rows,
                leaf_pages: found.pages_by_level.first().copied().unwrap_or(0),
                pages: found.pages_by_level.iter().sum(),
                height: u32::from(found.height),
            },
        );
    })
}

pub type VisitBeginning = Option<unsafe extern "C" fn(*mut c_void, ink_slice) -> usize>;

/// Estimates the different values of a tree's keys.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_estimate_values(
    tree: *const ink_tree,
    leaves: usize,
    beginning_of: VisitBeginning,
    context: *mut c_void,
    values: *mut u64,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |tree| {
        let beginning_of = beginning_of.ok_or_else(|| Failure::invalid("a function is NULL"))?;
        let mut bytes = |key: &[u8]| match beginning_of(context, ink_slice::lend(key)) {
            0 => None,
            bytes => Some(bytes.min(key.len())),
        };
        raw::put(values, tree.0.estimate_values(leaves, &mut bytes)?);
    })
}

/// Checks every page of a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_verify_table(
    table: *const ink_table,
    text: *mut ink_buffer,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |table| {
        let ink_table { database, table } = table;
        let report = database.verify_table(table)?;
        let mut found = String::new();
        for (tree, found_in_it) in &report.trees {
            // Writing to a string does not fail.
            let _ = writeln!(
                found,
                "tree {tree}: {} rows, {} pages",
                found_in_it.rows,
                found_in_it.pages.len()
            );
        }
        let _ = write!(
            found,
            "{} pages of long values; {} of {} pages of the file are allocated",
            report.overflow_pages, report.allocated_pages, report.file_pages
        );
        raw::fill(text, found.as_bytes())?;
    })
}
