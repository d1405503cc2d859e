//! The log ring: where mini-transactions are copied to in parallel, and written to disk from.
//!
//! # Words
//! - LSN `x` stands at byte `x % capacity` of the ring.
//! - *released*: everything below was written and may be overwritten; a multiple of the block.
//! - *reserved*: end of the last reservation. *published*: the tag byte of the frame is stored.
//! - *ready*: end of the contiguous prefix of published frames.
//!
//! `released <= written <= ready <= reserved`, and an appender copies only once
//! `end <= released + capacity`.
//!
//! # Promises
//! 1. The bytes of `[ready, released + capacity)` are zero wherever no appender has copied: a tag
//!    byte there that is not zero was stored by a publication. Tested by
//!    `many_threads_wrap_a_small_ring`.
//! 2. A byte is written by exactly one thread at a time: by the appender that reserved it, until
//!    it publishes; by the flush that wrote its block, when it zeroes it, before it is released.
//!    Tested by `many_threads_wrap_a_small_ring`,
//!    `the_ring_wraps_and_fills_without_losing_a_frame`.
//! 3. A published frame does not change until it is released. Tested by
//!    `many_threads_asynchronously`, `the_ring_wraps_and_fills_without_losing_a_frame`.
//!
//! Latches: `walk` (leaf) guards the walk that advances `ready`, so that no walker reads a tag at a
//! place that another one has left behind.

use crate::paranoid::paranoid;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use inkstone_format::frame;
use inkstone_format::segment::LOG_BLOCK;
use inkstone_io::AlignedBuffer;

use crossbeam_utils::CachePadded;

#[derive(Debug)]
pub(super) struct Ring {
    memory: AlignedBuffer,
    mask: u64,
    released: CachePadded<AtomicU64>,
    ready: CachePadded<AtomicU64>,
    walk: Mutex<()>,
}

impl Ring {
    /// A ring that begins at `start`, whose block's earlier bytes are `prefix`.
    pub(super) fn new(capacity: usize, start: u64, prefix: &[u8]) -> Self {
        crate::invariant!(capacity.is_power_of_two(), "ring of {capacity} bytes");
        paranoid!(
            prefix.len() as u64 <= start && prefix.len() < capacity,
            "{} bytes before LSN {start} in a ring of {capacity}",
            prefix.len()
        );
        let ring = Self {
            memory: AlignedBuffer::zeroed(capacity),
            mask: capacity as u64 - 1,
            released: CachePadded::new(AtomicU64::new(start - prefix.len() as u64)),
            ready: CachePadded::new(AtomicU64::new(start)),
            walk: Mutex::new(()),
        };
        // SAFETY: no other thread knows the ring yet.
        unsafe { ring.copy_in(start - prefix.len() as u64, prefix) };
        ring
    }

    pub(super) fn capacity(&self) -> u64 {
        self.mask + 1
    }

    pub(super) fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// As far as the last walk came; see [`Ring::advance_ready`].
    #[cfg(test)]
    pub(super) fn ready_seen(&self) -> u64 {
        self.ready.load(Ordering::Acquire)
    }

    fn at(&self, lsn: u64) -> *mut u8 {
        // SAFETY: the mask keeps the offset within the allocation.
        unsafe { self.memory.raw().add((lsn & self.mask) as usize) }
    }

    /// Copies bytes to their place.
    ///
    /// # Safety
    /// `[lsn, lsn + bytes.len())` is reserved by the caller, not published, and within
    /// `released + capacity` (promise 2).
    #[inline]
    pub(super) unsafe fn copy_in(&self, lsn: u64, bytes: &[u8]) {
        let room = (self.capacity() - (lsn & self.mask)) as usize;
        let first = room.min(bytes.len());
        paranoid!(
            bytes.len() as u64 <= self.capacity(),
            "{} bytes at LSN {lsn} in a ring of {}",
            bytes.len(),
            self.capacity()
        );
        // SAFETY: the caller owns the range; `first` bytes fit before the end of the memory, and
        // the rest starts over at its beginning.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(lsn), first);
            if first < bytes.len() {
                std::ptr::copy_nonoverlapping(
                    bytes.as_ptr().add(first),
                    self.memory.raw(),
                    bytes.len() - first,
                );
            }
        }
    }

    fn tag(&self, lsn: u64) -> &AtomicU8 {
        // SAFETY: a valid byte within the allocation; tag bytes are written through this atomic
        // only, except while they are zeroed, when no walker is near (promise 2).
        unsafe { AtomicU8::from_ptr(self.at(lsn)) }
    }

    /// Publishes the frame at `lsn`, whose other bytes were copied.
    #[inline]
    pub(super) fn publish(&self, lsn: u64, tag: u8) {
        // It would not be seen.
        paranoid!(tag != 0, "the frame at LSN {lsn} has no tag");
        self.tag(lsn).store(tag, Ordering::Release);
    }

    /// Walks over newly published frames, and returns the end of the published prefix.
    pub(super) fn advance_ready(&self) -> u64 {
        let _walk = self.walk.lock();
        let mut at = self.ready.load(Ordering::Relaxed);
        let before = at;
        let mut limit = self.released() + self.capacity();
        loop {
            if at >= limit {
                // When the ring is full, the byte at `at` is still the one at `released`.
                limit = self.released() + self.capacity();
                if at >= limit {
                    break;
                }
            }
            let tag = self.tag(at).load(Ordering::Acquire);
            if tag == 0 {
                break;
            }
            // SAFETY: published (Acquire above), and not released as it is above `written`.
            at += unsafe { self.frame_len(at, tag) };
        }
        paranoid!(
            at <= limit,
            "frames published up to LSN {at}, beyond the ring's end at {limit}"
        );
        if at != before {
            self.ready.store(at, Ordering::Release);
        }
        at
    }

    /// Length of the published frame at `at`.
    ///
    /// # Safety
    /// A frame with this tag is published there, and is not released during the call.
    unsafe fn frame_len(&self, at: u64, tag: u8) -> u64 {
        let mut head = [tag, 0, 0, 0];
        for (i, byte) in (1..).zip(&mut head[1..]) {
            // SAFETY: within the allocation, and stable as the caller promises. Behind a short
            // frame's last length byte we do not read.
            *byte = unsafe { self.at(at + i).read() };
            if *byte < 0x80 {
                break;
            }
        }
        match frame::frame_len(&head) {
            Some(len) => len as u64,
            None => crate::error::broken_invariant(
                format_args!("log ring holds no frame at LSN {at}: {head:02x?}"),
                file!(),
                line!(),
            ),
        }
    }

    /// The last frame boundary at or below `limit`, and the first at or above it.
    ///
    /// # Safety
    /// `from <= limit` is a frame boundary; the frames from there to above `limit` are published
    /// and not released during the call.
    pub(super) unsafe fn boundaries_around(&self, from: u64, limit: u64) -> (u64, u64) {
        paranoid!(from <= limit, "frames from LSN {from} to {limit}");
        let mut at = from;
        while at < limit {
            let tag = self.tag(at).load(Ordering::Acquire);
            // SAFETY: as the caller promises.
            let next = at + unsafe { self.frame_len(at, tag) };
            if next > limit {
                return (at, next);
            }
            at = next;
        }
        (at, at)
    }

    /// The ring holds a whole turn at most.
    fn check_range(&self, from: u64, to: u64) {
        paranoid!(
            from <= to && to - from <= self.capacity(),
            "bytes from LSN {from} to {to} in a ring of {}",
            self.capacity()
        );
    }

    /// The bytes `[from, to)`, in one or two parts (the second may be empty).
    ///
    /// # Safety
    /// The range is published and is not released while the slices live (promise 3).
    pub(super) unsafe fn parts(&self, from: u64, to: u64) -> [&[u8]; 2] {
        self.check_range(from, to);
        let len = (to - from) as usize;
        let first = len.min((self.capacity() - (from & self.mask)) as usize);
        // SAFETY: both parts are within the allocation (`len <= capacity`), and stable as the
        // caller promises.
        unsafe {
            [
                std::slice::from_raw_parts(self.at(from), first),
                std::slice::from_raw_parts(self.memory.raw(), len - first),
            ]
        }
    }

    /// Zeroes the whole blocks `[from, to)`, which are written and about to be released.
    ///
    /// # Safety
    /// The range is written, not released, and no other thread reads or zeroes it.
    pub(super) unsafe fn zero(&self, from: u64, to: u64) {
        self.check_range(from, to);
        let len = (to - from) as usize;
        let first = len.min((self.capacity() - (from & self.mask)) as usize);
        // SAFETY: as in `parts`; the caller has the range for itself.
        unsafe {
            self.at(from).write_bytes(0, first);
            self.memory.raw().write_bytes(0, len - first);
        }
    }

    /// Gives the space below `lsn` to appenders; it was zeroed before.
    pub(super) fn release(&self, lsn: u64) {
        paranoid!(
            lsn.is_multiple_of(LOG_BLOCK as u64),
            "the ring is released up to LSN {lsn}, within a block"
        );
        self.released.store(lsn, Ordering::Release);
    }
}
