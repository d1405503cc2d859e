//! References between tables.

use crate::database::ink_database;
use crate::entry::{entry, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_slice};
use inkstone::{Reference, ReferenceAction};
use std::ffi::{c_int, c_void};

/// `ink_reference`.
#[repr(C)]
pub struct ink_reference {
    name: ink_slice,
    parent: ink_slice,
    columns: *const ink_slice,
    parent_columns: *const ink_slice,
    column_count: usize,
    on_delete: u32,
    on_update: u32,
}

/// `ink_table_references`.
#[repr(C)]
pub struct ink_table_references {
    table: ink_slice,
    references: *const ink_reference,
    count: usize,
}

pub type VisitReference =
    Option<unsafe extern "C" fn(*mut c_void, ink_slice, *const ink_reference) -> bool>;

fn action(number: u32) -> Result<ReferenceAction, Failure> {
    let known = u8::try_from(number).ok().and_then(ReferenceAction::of);
    known.ok_or_else(|| Failure::invalid(format!("{number} is no action of a reference")))
}

impl ink_reference {
    /// # Safety
    /// The slices and arrays are as the header asks.
    unsafe fn read(&self) -> Result<Reference, Failure> {
        // SAFETY: the caller's.
        let (name, parent, own, of_parent) = unsafe {
            (
                self.name.text()?,
                self.parent.text()?,
                raw::array(self.columns, self.column_count)?,
                raw::array(self.parent_columns, self.column_count)?,
            )
        };
        let columns = own.iter().zip(of_parent).map(|(own, of_parent)| {
            // SAFETY: the caller's texts.
            let (own, of_parent) = unsafe { (own.text()?, of_parent.text()?) };
            Ok((own.to_owned(), of_parent.to_owned()))
        });
        Ok(Reference {
            name: name.to_owned(),
            parent: parent.to_owned(),
            columns: columns.collect::<Result<_, Failure>>()?,
            on_delete: action(self.on_delete)?,
            on_update: action(self.on_update)?,
        })
    }
}

/// Lends a reference to a visitor; whether it wants more.
///
/// # Safety
/// The function returns normally.
unsafe fn show(
    table: &str,
    reference: &Reference,
    visit: VisitReference,
    context: *mut c_void,
) -> bool {
    let lend = |text: &String| ink_slice::lend(text.as_bytes());
    let columns: Vec<_> = reference.columns.iter().map(|(own, _)| lend(own)).collect();
    let parent_columns: Vec<_> = reference.columns.iter().map(|(_, of)| lend(of)).collect();
    let shown = ink_reference {
        name: lend(&reference.name),
        parent: lend(&reference.parent),
        columns: columns.as_ptr(),
        parent_columns: parent_columns.as_ptr(),
        column_count: columns.len(),
        on_delete: reference.on_delete as u32,
        on_update: reference.on_update as u32,
    };
    // SAFETY: the caller's function, which gets what lives until it returns.
    visit.is_some_and(|visit| unsafe {
        visit(context, ink_slice::lend(table.as_bytes()), &raw const shown)
    })
}

/// Sets tables' references.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_set_references(
    database: *const ink_database,
    tables: *const ink_table_references,
    count: usize,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let mut changed = Vec::new();
        for table in raw::array(tables, count)? {
            let references = raw::array(table.references, table.count)?.iter();
            let references: Result<Vec<_>, _> = references.map(|one| one.read()).collect();
            changed.push((table.table.text()?, references?));
        }
        database.0.set_references_of(changed)?;
    })
}

/// Visits references of a table, or of all.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_references(
    database: *const ink_database,
    table: ink_slice,
    visit: VisitReference,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let name = table.text()?;
        let tables = match name {
            "" => database.0.all_references()?,
            name => vec![(name.to_owned(), database.0.references(name)?)],
        };
        let all = tables
            .iter()
            .flat_map(|(table, of)| of.iter().map(move |one| (table, one)));
        for (table, reference) in all {
            if !show(table, reference, visit, context) {
                break;
            }
        }
    })
}

/// Visits references to a table.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_references_to(
    database: *const ink_database,
    parent: ink_slice,
    visit: VisitReference,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        for (child, reference) in database.0.references_to(parent.text()?)? {
            if !show(&child, &reference, visit, context) {
                break;
            }
        }
    })
}

/// The version of references.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_references_version(database: *const ink_database) -> u64 {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(database, 0, |database| database.0.references_version()) }
}
