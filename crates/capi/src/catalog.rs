//! Tables and their trees.

use crate::database::{VisitText, ink_database, ink_option, visit_values};
use crate::entry::{entry, free, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_buffer, ink_slice};
use crate::transaction::ink_interrupt;
use inkstone::{Database, Error, Table, TableOptions, TableTree};
use std::ffi::{c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null;
use std::time::{Duration, Instant};

/// `ink_table`.
pub struct ink_table {
    pub database: Database,
    pub table: Table,
}

/// `ink_tree`: a tree of a table, lent out.
#[repr(transparent)]
pub struct ink_tree(pub TableTree);

pub type VisitName = Option<unsafe extern "C" fn(*mut c_void, ink_slice) -> bool>;

fn lend_tree(tree: Option<&TableTree>) -> *const ink_tree {
    // `ink_tree` is transparent over `TableTree`.
    tree.map_or(null(), |tree| (&raw const *tree).cast())
}

/// Creates a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_create_table(
    database: *const ink_database,
    name: ink_slice,
    secondary: *const ink_slice,
    secondary_count: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let trees = raw::array(secondary, secondary_count)?;
        let trees: Vec<&str> = trees.iter().map(|t| t.text()).collect::<Result<_, _>>()?;
        database.0.create_table(name.text()?, &trees)?;
    })
}

/// Creates a table with options of its own.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_create_table_with(
    database: *const ink_database,
    name: ink_slice,
    secondary: *const ink_slice,
    secondary_count: usize,
    options: *const ink_option,
    option_count: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let trees = raw::array(secondary, secondary_count)?;
        let trees: Vec<&str> = trees.iter().map(|t| t.text()).collect::<Result<_, _>>()?;
        let wanted = table_options(options, option_count)?;
        database
            .0
            .create_table_with(name.text()?, &trees, &wanted)?;
    })
}

/// The options of a table that is made.
///
/// # Safety
/// The array, and the names and values in it, are as the header asks.
pub unsafe fn table_options(
    options: *const ink_option,
    count: usize,
) -> Result<TableOptions, Failure> {
    let mut wanted = TableOptions::new();
    // SAFETY: the caller's array.
    for option in unsafe { raw::array(options, count)? } {
        // SAFETY: the caller's texts.
        let (name, value) = unsafe { (option.name.text()?, option.value.text()?) };
        wanted.set(name, value)?;
    }
    Ok(wanted)
}

/// Visits a table's options.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_options(
    table: *const ink_table,
    visit: VisitText,
    context: *mut c_void,
) {
    // SAFETY: the caller's pointers are as the header asks; its function returns normally.
    unsafe {
        on_or(table, (), |table| {
            visit_values(&table.table.options().show(), visit, context);
        });
    }
}

/// Drops a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_drop_table(
    database: *const ink_database,
    name: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.drop_table_at_once(name.text()?)?;
    })
}

/// Renames a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_rename_table(
    database: *const ink_database,
    from: ink_slice,
    to: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.rename_table(from.text()?, to.text()?)?;
    })
}

/// Renames a table that references stay behind of.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_rename_table_alone(
    database: *const ink_database,
    from: ink_slice,
    to: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.rename_table_alone(from.text()?, to.text()?)?;
    })
}

/// Adds a tree.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_create_tree(
    database: *const ink_database,
    table: ink_slice,
    tree: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.create_tree(table.text()?, tree.text()?)?;
    })
}

/// Notes that a tree is filled.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_complete_tree(
    database: *const ink_database,
    tree: *const ink_tree,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database, tree| {
        database.0.complete_tree(&tree.0)?;
    })
}

/// Notes that every snapshot may read a tree.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_complete_tree_for_all(
    database: *const ink_database,
    tree: *const ink_tree,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database, tree| {
        database.0.complete_tree_for_all(&tree.0)?;
    })
}

/// Waits for prepared transactions.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_wait_for_prepared(
    database: *const ink_database,
    tables: *const ink_slice,
    table_count: usize,
    milliseconds: u64,
    interrupt: *const ink_interrupt,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let interrupt = interrupt.as_ref().map(|interrupt| &interrupt.0);
        let (began, patience) = (Instant::now(), Duration::from_millis(milliseconds));
        for name in raw::array(tables, table_count)? {
            // Of what cannot be opened no row can be waited for.
            let Ok(table) = database.0.table(name.text()?) else {
                continue;
            };
            // All together wait no longer than one.
            let left = patience.saturating_sub(began.elapsed());
            match database.0.wait_for_prepared(&table, left, interrupt) {
                // Dropped meanwhile.
                Err(Error::NotFound(_)) => {}
                waited => waited?,
            }
        }
    })
}

/// Drops a tree.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_drop_tree(
    database: *const ink_database,
    table: ink_slice,
    tree: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.drop_tree(table.text()?, tree.text()?)?;
    })
}

/// Renames a tree.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_rename_tree(
    database: *const ink_database,
    table: ink_slice,
    from: ink_slice,
    to: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let (table, from, to) = (table.text()?, from.text()?, to.text()?);
        database.0.rename_tree(table, from, to)?;
    })
}

/// Puts a table in the place of another.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_replace_table(
    database: *const ink_database,
    from: ink_slice,
    to: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.replace_table(from.text()?, to.text()?)?;
    })
}

/// Puts tables in the places of others.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_replace_tables(
    database: *const ink_database,
    from: *const ink_slice,
    to: *const ink_slice,
    count: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let (from, to) = (raw::array(from, count)?, raw::array(to, count)?);
        let pairs = from.iter().zip(to);
        let pairs: Vec<(&str, &str)> = pairs
            .map(|(from, to)| Ok((from.text()?, to.text()?)))
            .collect::<Result<_, Failure>>()?;
        database.0.replace_tables(&pairs)?;
    })
}

/// Visits names of tables.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_tables(
    database: *const ink_database,
    visit: VisitName,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let names = database.0.tables()?;
        visit_names(names.iter().map(String::as_bytes), visit, context);
    })
}

/// Calls a visitor of names.
///
/// # Safety
/// `visit` is null, or may be called with `context`.
pub unsafe fn visit_names<'n>(
    mut names: impl Iterator<Item = &'n [u8]>,
    visit: VisitName,
    context: *mut c_void,
) {
    // SAFETY: what this function asks for.
    names.all(|name| visit.is_some_and(|visit| unsafe { visit(context, ink_slice::lend(name)) }));
}

/// Opens a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_open(
    database: *const ink_database,
    name: ink_slice,
    table: *mut *mut ink_table,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let place = raw::place(table)?;
        let database = database.0.clone();
        let table = database.table(name.text()?)?;
        *place = raw::into_handle(ink_table { database, table });
    })
}

/// Gives a table back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_close(table: *mut ink_table) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(table) }
}

/// The number of trees.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_tree_count(table: *const ink_table) -> usize {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(table, 0, |table| table.table.trees().len()) }
}

/// A tree by its place.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_tree(
    table: *const ink_table,
    position: usize,
) -> *const ink_tree {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(table, null(), |t| lend_tree(t.table.trees().get(position))) }
}

/// A tree by its name.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_find_tree(
    table: *const ink_table,
    name: ink_slice,
) -> *const ink_tree {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        on_or(table, null(), |table| {
            let Ok(name) = name.bytes() else {
                return null();
            };
            let mut trees = table.table.trees().iter();
            lend_tree(trees.find(|tree| tree.name().as_bytes() == name))
        })
    }
}

/// A tree's name.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_tree_name(tree: *const ink_tree) -> ink_slice {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(tree, ink_slice::lend(&[]), |tree| {
            ink_slice::lend(tree.0.name().as_bytes())
        })
    }
}

/// A tree's number.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_tree_number(tree: *const ink_tree) -> u32 {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(tree, u32::MAX, |tree| tree.0.number()) }
}

/// A table's file.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_path(
    table: *const ink_table,
    path: *mut ink_buffer,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |table| {
        raw::fill(path, table.table.path().as_os_str().as_bytes())?;
    })
}

/// Whether the name of an open table is another table's now.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_table_is_replaced(table: *const ink_table, name: ink_slice) -> bool {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        on_or(table, false, |open| {
            let Ok(name) = name.text() else { return false };
            let now = open.database.table(name);
            now.is_ok_and(|now| now.path() != open.table.path())
        })
    }
}
