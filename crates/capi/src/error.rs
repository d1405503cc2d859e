//! Errors as C sees them.

use inkstone::Error;
use std::ffi::{c_char, c_int};

/// Bytes of `ink_error::message`.
pub const MESSAGE_LEN: usize = 508;

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
    Forked = 23,
    TableChanged = 24,
    Closed = 25,
    TooManyTransactions = 26,
    ReadOnly = 27,
    OtherDatabase = 28,
}

/// `ink_error`.
#[repr(C)]
pub struct ink_error {
    pub code: i32,
    pub message: [c_char; MESSAGE_LEN],
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

    /// A panic that was caught.
    pub fn panic(text: &str) -> Self {
        Self {
            code: Code::Panic,
            message: format!("a bug in Inkstone: {text}"),
        }
    }

    /// Tells the caller, if it wants to know more than the code; gives the code.
    ///
    /// # Safety
    /// `error` is null or can be written.
    pub unsafe fn report(&self, error: *mut ink_error) -> c_int {
        // SAFETY: what this function asks for; all bytes are values of the type.
        if let Some(error) = unsafe { error.as_mut() } {
            error.code = self.code as i32;
            let text = cut(&self.message, MESSAGE_LEN - 1);
            for (to, from) in error.message.iter_mut().zip(text.bytes()) {
                *to = from as c_char;
            }
            error.message[text.len()] = 0;
        }
        self.code as c_int
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
            Error::Forked => Code::Forked,
            Error::TableChanged { .. } => Code::TableChanged,
            Error::Closed => Code::Closed,
            Error::TooManyTransactions => Code::TooManyTransactions,
            Error::ReadOnly => Code::ReadOnly,
            Error::OtherDatabase { .. } => Code::OtherDatabase,
            // The enum may grow; the message says what it is.
            _ => Code::Unsupported,
        };
        Self {
            code,
            message: error.to_string(),
        }
    }
}

/// The longest prefix of at most `len` bytes that is UTF-8.
fn cut(text: &str, len: usize) -> &str {
    let mut end = text.len().min(len);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn long_messages_are_cut_between_characters() {
        for before in 0..4 {
            let long = "a".repeat(before) + &"é€".repeat(400);
            let mut error = ink_error {
                code: 0,
                message: [1; MESSAGE_LEN],
            };
            // SAFETY: a live object.
            let code = unsafe { Failure::invalid(long.clone()).report(&raw mut error) };
            assert_eq!((code, error.code), (16, 16));
            // SAFETY: `report` ends the message with a zero.
            let text = unsafe { CStr::from_ptr(error.message.as_ptr()) };
            let text = text.to_str().unwrap();
            assert!(text.len() < MESSAGE_LEN && text.len() > MESSAGE_LEN - 5);
            assert!(long.starts_with(text));
        }
    }
}
