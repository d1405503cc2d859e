//! The frame of an entry point: a null handle is noticed, a failure becomes a code and a message, a
//! panic ends here. [`entry!`] is for what can fail; [`on_or`], [`guard_or`] and [`free`] are for
//! what cannot.

use crate::error::{Failure, ink_error};
use crate::raw;
use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The body of an entry point that can fail. The handles that it names become references, or the
/// call fails because they are null. The rest is written as in a function of `Result<(), Failure>`,
/// without the `Ok(())`.
///
/// It is for functions that are `unsafe`: what their callers promise is what the body relies on.
macro_rules! entry {
    ($error:ident, |$($handle:ident),+| $body:expr) => {
        $crate::entry::entry!($error, || {
            $(let $handle = $crate::raw::handle($handle)?;)+
            $body
        })
    };
    ($error:ident, || $body:expr) => {
        // SAFETY: the caller's pointers are as the header asks, and its functions return normally.
        unsafe {
            $crate::entry::guard($error, || {
                $body;
                Ok(())
            })
        }
    };
}
pub(crate) use entry;

/// Runs a call that can fail: returns 0 or a code, and fills `error`.
///
/// # Safety
/// `error` is null or can be written.
pub unsafe fn guard(error: *mut ink_error, call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Unwind safety: what a panic leaves half done is a handle, which the header tells the caller
    // to give back; the engine aborts rather than go on with a broken invariant.
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::panic(panic_text(&*panic)),
    };
    // SAFETY: what this function asks for.
    unsafe { failure.report(error) }
}

/// Runs a call that cannot fail: a panic gives `otherwise`.
pub fn guard_or<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

/// As [`guard_or`], for a call on a handle: a null gives `otherwise`, too.
///
/// # Safety
/// As [`raw::handle`].
pub unsafe fn on_or<H, T>(handle: *const H, otherwise: T, call: impl FnOnce(&H) -> T) -> T {
    // SAFETY: what this function asks for.
    match unsafe { handle.as_ref() } {
        Some(handle) => guard_or(otherwise, || call(handle)),
        None => otherwise,
    }
}

/// Takes a handle back, and drops what it stands for.
///
/// # Safety
/// As [`raw::from_handle`].
pub unsafe fn free<H>(handle: *mut H) {
    // SAFETY: what this function asks for.
    guard_or((), || drop(unsafe { raw::from_handle(handle) }));
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MESSAGE_LEN;
    use inkstone::Error;
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    /// The code of a call, which is in the error, too, and the message.
    fn failed(call: impl FnOnce(*mut ink_error) -> c_int) -> (c_int, String) {
        let mut error = ink_error {
            code: 0,
            message: [1; MESSAGE_LEN],
        };
        let code = call(&raw mut error);
        assert_eq!(code, error.code);
        // SAFETY: after a failure the message ends with a zero.
        let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
        (code, message.to_str().unwrap().to_owned())
    }

    #[test]
    fn failures_become_codes_and_panics_end_here() {
        // SAFETY: a live object, or the error is not wanted.
        unsafe {
            assert_eq!(guard(null_mut(), || Ok(())), 0);
            assert_eq!(guard(null_mut(), || Err(Failure::invalid("x"))), 16);
            let (code, text) = failed(|error| guard(error, || Err(Error::Deadlock.into())));
            assert_eq!((code, text), (10, Error::Deadlock.to_string()));
            let (code, text) = failed(|error| guard(error, || panic!("page {}", 7)));
            assert_eq!((code, text.as_str()), (22, "a bug in Inkstone: page 7"));
        }
        assert_eq!(guard_or(3, || panic!("no")), 3);
    }

    /// An entry point as others are.
    unsafe fn twice(number: *const u8, doubled: *mut u8, error: *mut ink_error) -> c_int {
        entry!(error, |number| {
            let sum = number.checked_add(*number);
            *raw::place(doubled)? = sum.ok_or_else(|| Failure::invalid("too large"))?;
        })
    }

    #[test]
    fn null_handles_are_noticed() {
        let (seven, mut doubled) = (7, 0);
        let large = 200;
        // SAFETY: null, or a live object.
        unsafe {
            let (code, text) = failed(|error| twice(null(), &raw mut doubled, error));
            assert_eq!((code, text.as_str()), (16, "a pointer is NULL"));
            let (code, text) = failed(|error| twice(&raw const large, &raw mut doubled, error));
            assert_eq!((code, text.as_str()), (16, "too large"));
            assert_eq!(twice(&raw const seven, null_mut(), null_mut()), 16);
            assert_eq!(twice(&raw const seven, &raw mut doubled, null_mut()), 0);
            assert_eq!(doubled, 14);
            assert_eq!(on_or(null::<u8>(), 3, |handle| *handle), 3);
            assert_eq!(on_or(&raw const seven, 3, |handle| *handle), 7);
            free(null_mut::<u8>());
        }
    }
}
