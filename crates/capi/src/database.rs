//! Opening and closing, options, the log.

use crate::entry::{entry, guard_or, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_buffer, ink_slice};
use inkstone::{Database, Durability, OpenReport, OptionKind, Options, Progress, Shutdown};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

/// `ink_database`.
pub struct ink_database(pub Database);

/// `ink_option`.
#[repr(C)]
pub struct ink_option {
    pub name: ink_slice,
    pub value: ink_slice,
}

/// `ink_option_info`.
#[repr(C)]
pub struct ink_option_info {
    name: ink_slice,
    kind: u32,
    choices: ink_slice,
    default_value: ink_slice,
    help: ink_slice,
}

pub type VisitOption = Option<unsafe extern "C" fn(*mut c_void, *const ink_option_info) -> bool>;
pub type VisitProgress = Option<unsafe extern "C" fn(*mut c_void, ink_slice) -> bool>;
pub type VisitText = Option<unsafe extern "C" fn(*mut c_void, ink_slice, ink_slice) -> bool>;

/// `enum ink_durability`.
pub fn durability(number: u32) -> Result<Durability, Failure> {
    match number {
        0 => Ok(Durability::Lazy),
        1 => Ok(Durability::Sync),
        2 => Ok(Durability::Write),
        _ => Err(Failure::invalid(format!("durability {number}"))),
    }
}

/// The version, for ever.
#[unsafe(no_mangle)]
pub extern "C" fn ink_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Lists the options that there are.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_options(visit: VisitOption, context: *mut c_void) {
    guard_or((), || {
        for option in Options::describe() {
            let (kind, choices) = match option.kind {
                OptionKind::Bool => (0, String::new()),
                OptionKind::Number => (1, String::new()),
                OptionKind::Choice(words) => (2, words.join("|")),
            };
            let info = ink_option_info {
                name: ink_slice::lend(option.name.as_bytes()),
                kind,
                choices: ink_slice::lend(choices.as_bytes()),
                default_value: ink_slice::lend(option.default.as_bytes()),
                help: ink_slice::lend(option.help.as_bytes()),
            };
            // SAFETY: the caller's function, which the header asks to return normally.
            if !visit.is_some_and(|visit| unsafe { visit(context, &raw const info) }) {
                return;
            }
        }
    });
}

/// Opens a database.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_open(
    directory: *const c_char,
    options: *const ink_option,
    option_count: usize,
    database: *mut *mut ink_database,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let options = (options, option_count);
        open(directory, options, database, |path, options| {
            Database::open(path, options)
        })?;
    })
}

/// Opens a database, and tells how far recovery is.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_open_watched(
    directory: *const c_char,
    options: *const ink_option,
    option_count: usize,
    visit: VisitProgress,
    context: *mut c_void,
    database: *mut *mut ink_database,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let options = (options, option_count);
        let listens = Cell::new(true);
        let progress = |progress: Progress| {
            if listens.get() {
                let text = progress.to_string();
                // The caller's function, which the header asks to return normally.
                let text = ink_slice::lend(text.as_bytes());
                listens.set(visit.is_some_and(|visit| visit(context, text)));
            }
        };
        open(directory, options, database, |path, options| {
            Database::open_watched(path, options, &progress)
        })?;
    })
}

/// Makes a database for scratch data.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_open_scratch(
    folder: *const c_char,
    options: *const ink_option,
    option_count: usize,
    database: *mut *mut ink_database,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let options = (options, option_count);
        open(folder, options, database, |path, options| {
            Database::scratch(path, options)
        })?;
    })
}

/// Opens a database in a way of its own, and puts it where the caller wants it.
///
/// # Safety
/// The path ends with a zero, the options are an array of so many, `place` is as [`raw::place`]
/// asks.
unsafe fn open(
    path: *const c_char,
    (options, count): (*const ink_option, usize),
    place: *mut *mut ink_database,
    how: impl FnOnce(&Path, Options) -> inkstone::Result<Database>,
) -> Result<(), Failure> {
    // SAFETY: as this function asks.
    let (place, path) = unsafe { (raw::place(place)?, raw::path(path)?) };
    // SAFETY: as this function asks.
    let options = unsafe { wanted(options, count) }?;
    *place = raw::into_handle(ink_database(how(path, options)?));
    Ok(())
}

/// The options of an opening.
///
/// # Safety
/// `options` is an array of so many.
unsafe fn wanted(options: *const ink_option, count: usize) -> Result<Options, Failure> {
    // A server is told of its deliberate bug by its environment.
    #[cfg(inkstone_mutants)]
    if let Ok(name) = std::env::var("INKSTONE_MUTANT") {
        inkstone::internals::mutants::switch_on(&name).expect("a mutant of this name");
    }
    let mut wanted = Options::default();
    // SAFETY: as this function asks.
    for option in unsafe { raw::array(options, count) }? {
        // SAFETY: the slices of an option live as long as it.
        let (name, value) = unsafe { (option.name.text()?, option.value.text()?) };
        wanted.set(name, value)?;
    }
    Ok(wanted)
}

/// Closes a database as its option says.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_close(database: *mut ink_database, error: *mut ink_error) -> c_int {
    entry!(error, || {
        if let Some(database) = raw::from_handle(database) {
            database.0.close()?;
        }
    })
}

/// Closes a database in a way of the caller's choice.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_close_as(
    database: *mut ink_database,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        // Given back in any case.
        let database = raw::from_handle(database);
        let how = shutdown(how)?;
        if let Some(database) = database {
            database.0.close_as(how)?;
        }
    })
}

/// `enum ink_shutdown`.
fn shutdown(number: u32) -> Result<Shutdown, Failure> {
    match number {
        0 => Ok(Shutdown::Slow),
        1 => Ok(Shutdown::Fast),
        2 => Ok(Shutdown::LogOnly),
        _ => Err(Failure::invalid(format!("shutdown {number}"))),
    }
}

/// Pages that were left out are named up to so many.
const LEFT_OUT_SHOWN: usize = 100;

fn report_text(report: &OpenReport) -> String {
    let mut text = recovery_text(report);
    if !report.removed.is_empty() {
        let removed = report.removed.iter().map(|path| path.display().to_string());
        let removed: Vec<_> = removed.collect();
        text += &format!(
            "; removed, as their tables were dropped or not made to the end: {}",
            removed.join(", ")
        );
    }
    if let Some(bound) = &report.memory_bound {
        text += &format!("; {bound}");
    }
    if let Some(why) = &report.doublewrite_renewed {
        text += &format!("; the doublewrite file was made anew: {why}");
    }
    if let Some(why) = &report.page_lsn_map_lost {
        text += &format!(
            "; the page LSN map could not be used, older versions of pages may pass for new: {why}"
        );
    }
    for aside in &report.set_aside {
        text += &format!("; {aside}");
    }
    for left_out in report.left_out.iter().take(LEFT_OUT_SHOWN) {
        text += &format!("; left out: {left_out}");
    }
    if let Some(more @ 1..) = report.left_out.len().checked_sub(LEFT_OUT_SHOWN) {
        text += &format!("; {more} more were left out");
    }
    text
}

fn recovery_text(report: &OpenReport) -> String {
    let took = report.milliseconds;
    match &report.recovered {
        _ if report.created => format!("created in {took} ms"),
        None => format!("opened in {took} ms, it had been closed in order"),
        Some(found) if report.clean => format!(
            "opened in {took} ms, it had been closed in order: {}",
            found.transactions_text()
        ),
        Some(found) => format!(
            "recovered in {took} ms: {} torn pages repaired, {}{}",
            found.torn_pages_repaired,
            found.transactions_text(),
            found.left_text()
        ),
    }
}

pub type ink_recovery_done = Option<unsafe extern "C" fn(ink_slice)>;

/// Has a function told when recovery behind the opening is complete.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_tell_when_recovered(
    database: *const ink_database,
    told: ink_recovery_done,
) {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        on_or(database, (), |database| {
            let Some(told) = told else { return };
            database.0.tell_when_recovered(Arc::new(move |text| {
                // The caller's function, which the header asks to return normally.
                told(ink_slice::lend(text.as_bytes()));
            }));
        });
    }
}

/// What opening did.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_open_report(
    database: *const ink_database,
    text: *mut ink_buffer,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        raw::fill(text, report_text(database.0.open_report()).as_bytes())?;
    })
}

/// Whether every write is refused.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_is_read_only(database: *const ink_database) -> bool {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(database, false, |database| database.0.is_read_only()) }
}

/// Whether the database had not been closed in order.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_recovered(database: *const ink_database) -> bool {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(database, false, |database| {
            let report = database.0.open_report();
            !report.clean && !report.created
        })
    }
}

/// The longest key.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_key_bytes_max(database: *const ink_database) -> usize {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(database, 0, |database| database.0.key_len_max()) }
}

/// The options in force.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_option_values(
    database: *const ink_database,
    visit: VisitText,
    context: *mut c_void,
) {
    // SAFETY: the caller's pointers are as the header asks; its function returns normally.
    unsafe {
        on_or(database, (), |database| {
            visit_values(&database.0.options().show(), visit, context);
        });
    }
}

/// Calls a visitor of names and values.
///
/// # Safety
/// `visit` is null, or may be called with `context`.
pub unsafe fn visit_values(values: &[(&str, String)], visit: VisitText, context: *mut c_void) {
    for (name, value) in values {
        let (name, value) = (
            ink_slice::lend(name.as_bytes()),
            ink_slice::lend(value.as_bytes()),
        );
        // SAFETY: what this function asks for.
        if !visit.is_some_and(|visit| unsafe { visit(context, name, value) }) {
            break;
        }
    }
}

/// Makes what is committed durable.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_flush_log(
    database: *const ink_database,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.flush_log_as(durability(how)?)?;
    })
}

/// Writes a checkpoint.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_checkpoint(
    database: *const ink_database,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| database.0.checkpoint()?)
}
