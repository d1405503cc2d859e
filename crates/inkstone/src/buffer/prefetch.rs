//! Tells the processor early what a search in a page will read.
//!
//! A search in a page that is in no cache is a chain of misses, one behind the other: descriptor,
//! page header, some slots, fences. Their addresses are known as soon as the frame is, so they can
//! be under way all at once. It is a hint: nothing depends on it.

/// Bytes of a cache line of the processors that Inkstone runs on.
const LINE: usize = 64;
/// Lines fetched from the start of a page: its header and about a hundred slots.
const LINES: usize = 10;

/// Fetches what a search reads first: the start of a page and its last bytes, where the fences are.
#[inline]
pub(crate) fn page(start: *const u8, page_size: usize) {
    for line in 0..LINES {
        fetch(start.wrapping_add(line * LINE));
    }
    fetch(start.wrapping_add(page_size - LINE));
}

/// Fetches the line of an address.
#[inline]
pub(crate) fn fetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing as far as the program can tell, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
