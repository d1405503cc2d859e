//! What C passes in and gets out: pointers into references, slices and buffers.
//!
//! Every function here is as safe as its caller's pointers. What is asked of them is what the
//! header says: handles are live, out-parameters can be written, a slice's bytes can be read for
//! the time of the call. A null where there must be a pointer is noticed.

use crate::error::Failure;
use std::ffi::{CStr, c_char};

/// `ink_slice`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ink_slice {
    pub data: *const u8,
    pub len: usize,
}

impl Default for ink_slice {
    fn default() -> Self {
        Self {
            data: std::ptr::null(),
            len: 0,
        }
    }
}

impl ink_slice {
    /// Bytes that are lent to C.
    pub fn lend(bytes: &[u8]) -> Self {
        Self {
            data: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// # Safety
    /// `data` points to `len` readable bytes that do not change while the result is used, or `len`
    /// is 0.
    pub unsafe fn bytes<'a>(self) -> Result<&'a [u8], Failure> {
        match self.len {
            0 => Ok(&[]),
            len if self.data.is_null() => {
                Err(Failure::invalid(format!("{len} bytes at a null pointer")))
            }
            // SAFETY: what this function asks for.
            len => Ok(unsafe { std::slice::from_raw_parts(self.data, len) }),
        }
    }

    /// # Safety
    /// As [`ink_slice::bytes`].
    pub unsafe fn text<'a>(self) -> Result<&'a str, Failure> {
        // SAFETY: what this function asks for.
        let bytes = unsafe { self.bytes() }?;
        std::str::from_utf8(bytes).map_err(|_| Failure::invalid("a name is not UTF-8"))
    }
}

/// `ink_row`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ink_row {
    pub key: ink_slice,
    pub value: ink_slice,
}

impl ink_row {
    pub fn lend(key: &[u8], value: &[u8]) -> Self {
        Self {
            key: ink_slice::lend(key),
            value: ink_slice::lend(value),
        }
    }
}

/// `ink_buffer`: a `Vec<u8>` in parts, or zeroes.
#[repr(C)]
pub struct ink_buffer {
    pub data: *mut u8,
    pub len: usize,
    pub capacity: usize,
}

impl ink_buffer {
    /// Takes the memory out; the buffer is empty afterwards.
    ///
    /// # Safety
    /// The fields are zero, or were put there by [`ink_buffer::put`] and not changed since.
    pub unsafe fn take(&mut self) -> Vec<u8> {
        let Self {
            data,
            len,
            capacity,
        } = std::mem::replace(self, Self::empty());
        if data.is_null() {
            return Vec::new();
        }
        // SAFETY: the parts of a vector that `put` took apart, used once: the fields are zero now.
        unsafe { Vec::from_raw_parts(data, len, capacity) }
    }

    /// Puts a vector in. What was there must have been taken out.
    pub fn put(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() == 0 {
            *self = Self::empty();
            return;
        }
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        *self = Self {
            data: bytes.as_mut_ptr(),
            len: bytes.len(),
            capacity: bytes.capacity(),
        };
    }

    fn empty() -> Self {
        Self {
            data: std::ptr::null_mut(),
            len: 0,
            capacity: 0,
        }
    }
}

/// Gives a buffer's memory back.
///
/// # Safety
/// The buffer is null, or one that the library has filled, or zeroes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_buffer_free(buffer: *mut ink_buffer) {
    // SAFETY: what this function asks for.
    unsafe {
        if let Some(buffer) = buffer.as_mut() {
            drop(buffer.take());
        }
    }
}

/// A handle, or another object that the caller lends.
///
/// # Safety
/// Null, or it points to a live object that does not change while the result is used.
pub unsafe fn handle<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: what this function asks for.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid("a pointer is NULL"))
}

/// A place for a result.
///
/// # Safety
/// Null, or it points to an object of the type that is not used otherwise while the result is used.
pub unsafe fn place<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: what this function asks for.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::invalid("a pointer is NULL"))
}

/// Writes a result, which may not be wanted.
///
/// # Safety
/// Null, or it can be written.
pub unsafe fn put<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: what this function asks for; `write` drops nothing that was there.
        unsafe { pointer.write(value) };
    }
}

/// Replaces the content of a buffer.
///
/// # Safety
/// As [`place`], and the buffer as [`ink_buffer::take`].
pub unsafe fn fill(buffer: *mut ink_buffer, bytes: &[u8]) -> Result<(), Failure> {
    // SAFETY: what this function asks for.
    unsafe {
        let buffer = place(buffer)?;
        let mut content = buffer.take();
        content.clear();
        content.extend_from_slice(bytes);
        buffer.put(content);
    }
    Ok(())
}

/// An array.
///
/// # Safety
/// `pointer` points to `count` objects that do not change while the result is used, or `count` is
/// 0.
pub unsafe fn array<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: what this function asks for.
    unsafe {
        handle(pointer)?;
        Ok(std::slice::from_raw_parts(pointer, count))
    }
}

/// A key and a value.
type RowRef<'a> = (&'a [u8], &'a [u8]);

/// Rows that the caller lends.
///
/// # Safety
/// As [`array`], and as [`ink_slice::bytes`] for each key and value.
pub unsafe fn rows<'a>(rows: *const ink_row, count: usize) -> Result<Vec<RowRef<'a>>, Failure> {
    // SAFETY: what this function asks for.
    unsafe {
        let rows = array(rows, count)?.iter();
        rows.map(|row| Ok((row.key.bytes()?, row.value.bytes()?)))
            .collect()
    }
}

/// Memory that is to be filled. It holds zeroes then.
///
/// # Safety
/// `to` points to `len` bytes that can be written and are not used otherwise while the result is
/// used, or `len` is 0.
pub unsafe fn room<'a>(to: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: what this function asks for; the bytes are written before they can be read.
    unsafe {
        place(to)?;
        to.write_bytes(0, len);
        Ok(std::slice::from_raw_parts_mut(to, len))
    }
}

/// A path in the file system's bytes.
///
/// # Safety
/// Null, or bytes that end with a zero and do not change while the result is used.
pub unsafe fn path<'a>(text: *const c_char) -> Result<&'a std::path::Path, Failure> {
    use std::os::unix::ffi::OsStrExt;
    if text.is_null() {
        return Err(Failure::invalid("a path is NULL"));
    }
    // SAFETY: what this function asks for.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(std::path::Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// Gives a box to C.
pub fn into_handle<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Takes back what [`into_handle`] gave.
///
/// # Safety
/// Null, or from [`into_handle`] and not taken back yet.
pub unsafe fn from_handle<T>(pointer: *mut T) -> Option<Box<T>> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: what this function asks for.
    Some(unsafe { Box::from_raw(pointer) })
}
