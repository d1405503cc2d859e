//! Aligned memory for the ring and for write scratch. The only allocation of the log; to be
//! swapped for `inkstone_io::buffer::AlignedBuffer` when that is there.

use inkstone_io::DIRECT_ALIGNMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Zeroed bytes at an address that unbuffered I/O takes.
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory alone; shared access goes through `&[u8]`, or through raw
// pointers whose users prove their own exclusion (see ring.rs).
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` bytes, a positive multiple of [`DIRECT_ALIGNMENT`].
    pub(super) fn zeroed(len: usize) -> Self {
        crate::invariant!(
            len > 0 && len.is_multiple_of(DIRECT_ALIGNMENT) && len <= isize::MAX as usize / 2,
            "buffer of {len} bytes"
        );
        let Ok(layout) = Layout::from_size_align(len, DIRECT_ALIGNMENT) else {
            crate::error::broken_invariant(format_args!("layout of {len}"), file!(), line!())
        };
        // SAFETY: the layout's size is not zero (checked above).
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Self { start, layout },
            None => handle_alloc_error(layout),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    /// Start of the memory, for users that prove their own exclusion.
    pub(super) fn raw(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that live as long as `self`; a user of `raw` must not
        // write while such a slice exists (the ring never calls this).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
