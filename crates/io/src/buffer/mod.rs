//! Memory for unbuffered I/O.
//!
//! # Promises
//!
//! 1. An [`AlignedBuffer`] starts at a multiple of [`DIRECT_ALIGNMENT`], has exactly the length
//!    asked for, reads as zeroes until written, and never moves. Tested by
//!    `buffers_are_zeroed_aligned_and_of_the_length_asked_for`.
//! 2. Large ones (from [`MAPPED_BYTES_MIN`] on) are anonymous mappings: memory that was never
//!    touched costs none. Those of many [`HUGE_PAGE_BYTES`] ask the kernel for huge pages: a buffer
//!    pool is read at random, and with small pages each read would miss the processor's address
//!    cache too. Tested by `untouched_large_buffers_cost_nothing`,
//!    `what_is_worth_huge_pages_begins_at_one`.
//! 3. A [`MemoryHandle`] keeps the memory of a buffer where it is, and gives no access to its
//!    bytes. Tested by `memory_outlives_its_buffer_while_a_ring_knows_it`.
//! 4. `check_transfer` is the one place that decides whether a transfer may go to an
//!    unbuffered file; all backends, the simulated one too, ask it. Tested by
//!    `transfers_are_checked`, `unbuffered_files_want_alignment`.

use crate::{DIRECT_ALIGNMENT, Error, ErrorKind, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Buffers of at least this many bytes are mapped, smaller ones come from the heap.
pub const MAPPED_BYTES_MIN: usize = 1 << 20;

/// Size of a huge page of the processors that Inkstone runs on.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Mappings of at least this many bytes ask for huge pages: the memory that a half-used huge page
/// wastes is then a small part of them.
const HUGE_MAPPING_BYTES_MIN: usize = 16 * HUGE_PAGE_BYTES;

/// Zeroed bytes at an address that unbuffered (`O_DIRECT`) files accept.
///
/// ```
/// use inkstone_io::{AlignedBuffer, DIRECT_ALIGNMENT};
/// let mut page = AlignedBuffer::zeroed(16384);
/// page[0] = 1;
/// assert_eq!(page.as_ptr().addr() % DIRECT_ALIGNMENT, 0);
/// assert_eq!(page.len(), 16384);
/// ```
pub struct AlignedBuffer {
    /// Where the memory begins, to be had without a detour.
    start: NonNull<u8>,
    length: usize,
    memory: Arc<Memory>,
}

/// Keeps the memory of an [`AlignedBuffer`] in its place, without access to its bytes. See
/// [`Batch::register`](crate::Batch::register).
#[derive(Clone, Debug)]
pub struct MemoryHandle {
    memory: Arc<Memory>,
    length: usize,
}

/// What was taken from the allocator or the kernel.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    /// The length asked for, rounded up; never zero.
    layout: Layout,
    mapped: bool,
}

// SAFETY: the bytes are reached through one `AlignedBuffer` alone: by `&[u8]`, or by `raw`, whose
// users prove their own exclusion. `Memory` by itself gives its address and is freed by the last
// owner.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuffer {}
// SAFETY: as above.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl AlignedBuffer {
    /// `length` zeroes. Aborts when there is no memory, as `Vec` does.
    pub fn zeroed(length: usize) -> Self {
        match Self::try_zeroed(length) {
            Ok(buffer) => buffer,
            Err(_) => handle_alloc_error(Layout::new::<[u8; DIRECT_ALIGNMENT]>()),
        }
    }

    /// `length` zeroes, or `OutOfMemory`: for sizes that come from an option.
    pub fn try_zeroed(length: usize) -> Result<Self> {
        let taken = length
            .max(1)
            .checked_next_multiple_of(DIRECT_ALIGNMENT)
            .and_then(|bytes| Layout::from_size_align(bytes, DIRECT_ALIGNMENT).ok());
        let layout = taken.ok_or_else(|| no_memory(length))?;
        let mapped = length >= MAPPED_BYTES_MIN;
        let start = if mapped {
            map(layout.size())?
        } else {
            // SAFETY: the size is at least DIRECT_ALIGNMENT, so not zero.
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| no_memory(length))?
        };
        let memory = Memory {
            start,
            layout,
            mapped,
        };
        Ok(Self {
            start,
            length,
            memory: Arc::new(memory),
        })
    }

    /// A handle that keeps the memory in its place also after the buffer is gone.
    pub fn handle(&self) -> MemoryHandle {
        MemoryHandle {
            memory: self.memory.clone(),
            length: self.length,
        }
    }

    /// Start of the memory, for users that share it between threads and prove their own
    /// exclusion. The pointer may be written through as long as no slice of these bytes lives.
    pub fn raw(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl MemoryHandle {
    /// Where the memory begins.
    pub fn start(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    /// Bytes in the buffer.
    pub fn length(&self) -> usize {
        self.length
    }
}

fn no_memory(length: usize) -> Error {
    Error::new(
        ErrorKind::OutOfMemory,
        format!("no memory for {length} bytes"),
    )
}

/// `bytes` of fresh memory, at a multiple of [`HUGE_PAGE_BYTES`] if they are worth huge pages.
fn map(bytes: usize) -> Result<NonNull<u8>> {
    if bytes < HUGE_MAPPING_BYTES_MIN {
        return map_anywhere(bytes);
    }
    let Some(with_room) = bytes.checked_add(HUGE_PAGE_BYTES) else {
        return Err(no_memory(bytes));
    };
    let mapped = map_anywhere(with_room)?;
    let before = mapped.addr().get().wrapping_neg() % HUGE_PAGE_BYTES;
    let after = HUGE_PAGE_BYTES - before;
    // SAFETY: `before` is less than HUGE_PAGE_BYTES, so all three are parts of the mapping above,
    // which no other code knows yet. What is unmapped at both ends is used no more.
    unsafe {
        let start = mapped.add(before);
        unmap(mapped, before);
        unmap(start.add(bytes), after);
        // Only a wish: a kernel without huge pages refuses it, and everything works as well.
        let _ = madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage);
        Ok(start)
    }
}

fn map_anywhere(bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: a new private anonymous mapping at an address that the kernel chooses touches no
    // memory of ours.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let start = start.map_err(|_| no_memory(bytes))?;
    NonNull::new(start.cast()).ok_or_else(|| no_memory(bytes))
}

/// Gives whole pages of a mapping back.
///
/// # Safety
///
/// The bytes are mapped by [`map_anywhere`], and they are no longer used.
unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: promised by the caller. Unmapping what is mapped cannot fail in a way that we
        // could repair.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised (zeroed or written) bytes that live as long as `self`;
        // users of `raw` must not write while such a slice lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `deref`, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: mapped in `map` with this size, unmapped once; no slice outlives the buffer,
            // which is an owner.
            unsafe { unmap(self.start, self.layout.size()) };
        } else {
            // SAFETY: allocated in `try_zeroed` with this very layout, freed once.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.length)
    }
}

/// Answers `InvalidInput` for a transfer that no file takes (it passes the largest offset), or
/// that an unbuffered file does not take (unaligned).
pub(crate) fn check_transfer(direct: bool, buffer: &[u8], offset: u64) -> Result<()> {
    let end = offset.checked_add(buffer.len() as u64);
    if end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{} bytes at offset {offset} pass the largest offset",
                buffer.len()
            ),
        ));
    }
    let aligned = |value: usize| value.is_multiple_of(DIRECT_ALIGNMENT);
    let address = buffer.as_ptr().addr();
    if direct
        && !(aligned(address)
            && aligned(buffer.len())
            && offset.is_multiple_of(DIRECT_ALIGNMENT as u64))
    {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "unbuffered file: address {address:#x}, length {} and offset {offset} must be \
                 multiples of {DIRECT_ALIGNMENT}",
                buffer.len()
            ),
        ));
    }
    Ok(())
}

/// [`check_transfer`] of each buffer where it will stand.
pub(crate) fn check_vectored(direct: bool, buffers: &[&[u8]], offset: u64) -> Result<()> {
    let mut position = offset;
    for buffer in buffers {
        check_transfer(direct, buffer, position)?;
        position += buffer.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
