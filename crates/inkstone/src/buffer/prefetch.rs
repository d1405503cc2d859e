//! Tells the processor early what a search in a page will read.
//!
//! A search in a page that is in no cache is a chain of misses, one behind the other: descriptor,
//! page header, some slots, fences. Their addresses are known as soon as the frame is, so they can
//! be under way all at once. It is a hint: nothing depends on it.

/// Bytes of a cache line of the processors that Inkstone runs on.
const LINE: usize = 64;
/// Lines fetched from the start of a page: its header and about a hundred slots.
const LINES: usize = 10;

/// Lines fetched in one step: not more than can be under way beside what the reader does.
const STEP_LINES_MAX: usize = 8;

/// Fetches what a search reads first: the start of a page and its last bytes, where the fences are.
#[inline]
pub(crate) fn page(start: *const u8, page_size: usize) {
    for line in 0..LINES {
        fetch(start.wrapping_add(line * LINE));
    }
    fetch(start.wrapping_add(page_size - LINE));
}

/// A page that will be read next, fetched bit by bit while its reader is busy with another. From
/// its end to its start: so lie rows that came in key order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    /// Address behind the next line. Nothing is read through it.
    at: usize,
    /// Lines left.
    lines: usize,
    /// Lines for a step.
    step: usize,
}

impl Ahead {
    /// So many bytes of the page at `start`, with so many steps until they are wanted.
    pub fn new(start: *const u8, page_size: usize, bytes: usize, steps: usize) -> Self {
        let lines = bytes.min(page_size) / LINE;
        Self {
            at: start.addr() + page_size,
            lines,
            step: lines.div_ceil(steps.max(1)).min(STEP_LINES_MAX),
        }
    }

    /// Fetches the next lines.
    #[inline(always)]
    pub fn step(&mut self) {
        let step = self.step.min(self.lines);
        self.lines -= step;
        for _ in 0..step {
            self.at -= LINE;
            fetch(std::ptr::without_provenance::<u8>(self.at));
        }
    }
}

/// Fetches the line of an address.
#[inline]
pub(crate) fn fetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing as far as the program can tell, and faults at no
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
