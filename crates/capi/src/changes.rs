//! Which rows change while an index is built.

use crate::catalog::ink_tree;
use crate::database::ink_database;
use crate::entry::{entry, free};
use crate::error::ink_error;
use crate::raw::{self, ink_slice};
use crate::transaction::ink_transaction;
use inkstone::ChangeTracker;
use std::ffi::c_int;
use std::time::Duration;

/// `INK_NO_WRITERS`.
const NO_WRITERS: u64 = u64::MAX;

/// `ink_change_tracker`.
pub struct ink_change_tracker {
    tracker: ChangeTracker,
    /// The keys that are lent out.
    keys: Vec<Vec<u8>>,
    lent: Vec<ink_slice>,
}

/// `ink_changed_rows`.
#[repr(C)]
pub struct ink_changed_rows {
    seen: *mut ink_transaction,
    keys: *const ink_slice,
    count: usize,
    too_many: bool,
}

/// Begins to note what changes.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_track_changes(
    database: *const ink_database,
    tree: *const ink_tree,
    bytes_max: u64,
    milliseconds: u64,
    tracker: *mut *mut ink_change_tracker,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database, tree| {
        let place = raw::place(tracker)?;
        let patience = (milliseconds != NO_WRITERS).then(|| Duration::from_millis(milliseconds));
        *place = raw::into_handle(ink_change_tracker {
            tracker: database.0.track_changes(&tree.0, bytes_max, patience)?,
            keys: Vec::new(),
            lent: Vec::new(),
        });
    })
}

/// Ends that.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_change_tracker_free(tracker: *mut ink_change_tracker) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(tracker) }
}

/// Takes a snapshot, and tells what has changed since the one before.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_take_changed_rows(
    tracker: *mut ink_change_tracker,
    changed: *mut ink_changed_rows,
    error: *mut ink_error,
) -> c_int {
    entry!(error, || {
        let (tracker, place) = (raw::place(tracker)?, raw::place(changed)?);
        let found = tracker.tracker.changed_rows()?;
        let too_many = found.is_none();
        let (seen, keys) = found.map_or_else(Default::default, |rows| (Some(rows.seen), rows.keys));
        tracker.keys = keys;
        tracker.lent = tracker
            .keys
            .iter()
            .map(|key| ink_slice::lend(key))
            .collect();
        *place = ink_changed_rows {
            seen: seen.map_or(std::ptr::null_mut(), |seen| {
                raw::into_handle(ink_transaction::new(seen))
            }),
            keys: tracker.lent.as_ptr(),
            count: tracker.lent.len(),
            too_many,
        };
    })
}
