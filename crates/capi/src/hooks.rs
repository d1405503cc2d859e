//! Lock waits, told to the program.

use crate::database::ink_database;
use crate::entry::on_or;
use crate::raw::ink_slice;
use inkstone::LockWaitHooks;
use std::cmp::Ordering;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

pub type ink_wants_waits = Option<unsafe extern "C" fn(*mut c_void) -> bool>;
pub type ink_about_to_wait = Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>;
pub type ink_compare_victims = Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>;

pub type ink_statement_of = Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> usize>;
pub type ink_deadlock_found = Option<unsafe extern "C" fn(ink_slice)>;

/// Bytes of a statement that are shown.
const STATEMENT_BYTES_SHOWN: usize = 1024;

struct Hooks {
    wants_waits: ink_wants_waits,
    about_to_wait: ink_about_to_wait,
    compare_victims: ink_compare_victims,
    statement_of: ink_statement_of,
    deadlock_found: ink_deadlock_found,
}

impl LockWaitHooks for Hooks {
    fn wants_waits(&self, waiter: usize) -> bool {
        self.about_to_wait.is_some()
            && self.wants_waits.is_none_or(|hook| {
                // SAFETY: as below.
                unsafe { hook(with_exposed_provenance_mut(waiter)) }
            })
    }

    fn about_to_wait(&self, waiter: usize, blocker: usize) {
        let owner = with_exposed_provenance_mut;
        if let Some(hook) = self.about_to_wait {
            // SAFETY: the caller's function, which the header asks to return normally; the pointers
            // are what it set as owners.
            unsafe { hook(owner(waiter), owner(blocker)) }
        }
    }

    fn statement(&self, owner: usize) -> Option<String> {
        let mut text = [0; STATEMENT_BYTES_SHOWN];
        let hook = self.statement_of?;
        let place = text.as_mut_ptr().cast::<c_char>();
        // SAFETY: as above, and it writes no more than it is given room for.
        let len = unsafe { hook(with_exposed_provenance_mut(owner), place, text.len()) };
        let text = text.get(..len)?;
        (len > 0).then(|| String::from_utf8_lossy(text).into_owned())
    }

    fn deadlock_found(&self, account: &str) {
        if let Some(hook) = self.deadlock_found {
            // SAFETY: as above.
            unsafe { hook(ink_slice::lend(account.as_bytes())) }
        }
    }

    fn compare_victims(&self, first: usize, second: usize) -> Ordering {
        let owner = with_exposed_provenance_mut;
        self.compare_victims.map_or(Ordering::Equal, |hook| {
            // SAFETY: as above.
            unsafe { hook(owner(first), owner(second)) }.cmp(&0)
        })
    }
}

/// Sets the hooks on lock waits.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_set_lock_wait_hooks(
    database: *const ink_database,
    wants_waits: ink_wants_waits,
    about_to_wait: ink_about_to_wait,
    compare_victims: ink_compare_victims,
    statement_of: ink_statement_of,
    deadlock_found: ink_deadlock_found,
) {
    // SAFETY: the caller's pointers are as the header asks.
    unsafe {
        on_or(database, (), |database| {
            database.0.set_lock_wait_hooks(Arc::new(Hooks {
                wants_waits,
                about_to_wait,
                compare_victims,
                statement_of,
                deadlock_found,
            }));
        });
    }
}
