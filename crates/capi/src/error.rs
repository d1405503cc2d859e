//! Errors as C sees them, and the guard around every entry point.

use inkstone::Error;
use std::any::Any;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes of `ink_error::message`.
const MESSAGE_LEN: usize = 508;

/// `enum ink_code`: the codes are part of the header and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Io = 1,
    Corrupt = 2,
    Poisoned = 3,
    DiskFull = 4,
    KeyTooLong = 5,
    ValueTooLong = 6,
    DuplicateKey = 7,
    RowNotFound = 8,
    WriteConflict = 9,
    Deadlock = 10,
    LockTimeout = 11,
    LockNotAvailable = 12,
    TransactionState = 13,
    NotFound = 14,
    AlreadyExists = 15,
    Invalid = 16,
    NewerFormat = 17,
    InUse = 18,
    NotADatabase = 19,
    Unsupported = 20,
    Interrupted = 21,
    Panic = 22,
}

/// `ink_error`.
#[repr(C)]
pub struct ink_error {
    code: i32,
    message: [c_char; MESSAGE_LEN],
}

/// Why an entry point fails.
pub struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    /// An argument that cannot be taken.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: Code::Invalid,
            message: message.into(),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Io { .. } => Code::Io,
            Error::Corrupt { .. } => Code::Corrupt,
            Error::Poisoned(_) => Code::Poisoned,
            Error::DiskFull { .. } => Code::DiskFull,
            Error::KeyTooLong { .. } => Code::KeyTooLong,
            Error::ValueTooLong { .. } => Code::ValueTooLong,
            Error::DuplicateKey { .. } => Code::DuplicateKey,
            Error::RowNotFound { .. } => Code::RowNotFound,
            Error::WriteConflict => Code::WriteConflict,
            Error::Deadlock => Code::Deadlock,
            Error::LockTimeout { .. } => Code::LockTimeout,
            Error::LockNotAvailable => Code::LockNotAvailable,
            Error::TransactionState(_) => Code::TransactionState,
            Error::NotFound(_) => Code::NotFound,
            Error::AlreadyExists(_) => Code::AlreadyExists,
            Error::InvalidOption { .. } => Code::Invalid,
            Error::NewerFormat { .. } => Code::NewerFormat,
            Error::InUse { .. } => Code::InUse,
            Error::NotADatabase { .. } => Code::NotADatabase,
            Error::Interrupted => Code::Interrupted,
            // The enum may grow; the message says what it is.
            _ => Code::Unsupported,
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

/// Runs an entry point: returns 0 or a code, and fills `error`. A panic ends here.
///
/// # Safety
/// `error` is null or can be written.
pub unsafe fn guard(error: *mut ink_error, f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // Unwind safety: what a panic leaves half done is a handle, which the header tells the caller
    // to give back; the engine aborts rather than go on with a broken invariant.
    let failure = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure {
            code: Code::Panic,
            message: format!("a bug in Inkstone: {}", panic_text(&*panic)),
        },
    };
    // SAFETY: what this function asks for; all bytes are values of the type.
    if let Some(error) = unsafe { error.as_mut() } {
        error.code = failure.code as i32;
        let text = cut(&failure.message, MESSAGE_LEN - 1);
        for (to, from) in error.message.iter_mut().zip(text.bytes()) {
            *to = from as c_char;
        }
        error.message[text.len()] = 0;
    }
    failure.code as c_int
}

/// As [`guard`], for what cannot fail: a panic gives `otherwise`.
pub fn guard_or<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}

/// The longest prefix of at most `len` bytes that is UTF-8.
fn cut(text: &str, len: usize) -> &str {
    let mut end = text.len().min(len);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn run(f: impl FnOnce() -> Result<(), Failure>) -> (c_int, String) {
        let mut error = ink_error {
            code: 0,
            message: [1; MESSAGE_LEN],
        };
        // SAFETY: a live object.
        let code = unsafe { guard(&raw mut error, f) };
        if code == 0 {
            return (code, String::new());
        }
        assert_eq!(code, error.code);
        // SAFETY: `guard` ends the message with a zero.
        let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
        (code, message.to_str().unwrap().to_owned())
    }

    #[test]
    fn failures_become_codes_and_panics_end_here() {
        assert_eq!(run(|| Ok(())), (0, String::new()));
        let (code, text) = run(|| Err(Error::Deadlock.into()));
        assert_eq!(code, 10);
        assert_eq!(text, Error::Deadlock.to_string());
        let (code, text) = run(|| panic!("page {}", 7));
        assert_eq!((code, text.as_str()), (22, "a bug in Inkstone: page 7"));
        assert_eq!(guard_or(3, || panic!("no")), 3);
        // SAFETY: nobody wants the error.
        let code = unsafe { guard(std::ptr::null_mut(), || Err(Failure::invalid("x"))) };
        assert_eq!(code, 16);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        for before in 0..4 {
            let long = "a".repeat(before) + &"é€".repeat(400);
            let (_, text) = run(|| Err(Failure::invalid(long.clone())));
            assert!(text.len() < MESSAGE_LEN && text.len() > MESSAGE_LEN - 5);
            assert!(long.starts_with(&text));
        }
    }
}
