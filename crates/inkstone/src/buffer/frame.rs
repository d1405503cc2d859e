//! Frames: the memory that pages live in, and a descriptor for each.
//!
//! # Which thread may change which field of a descriptor
//!
//! | field         | changed by                                                                  |
//! |---------------|-----------------------------------------------------------------------------|
//! | `id`          | none -> page: the frame's owner, under the page table shard, when the bytes are complete; page -> none: an exclusive holder, under the shard |
//! | `next`        | under the page table shard                                                  |
//! | `pins`        | + 1: a shared holder; - 1: the thread that added it                         |
//! | `referenced`  | any thread, a hint                                                          |
//! | `heat`        | the clock, a hint                                                           |
//! | `flushing`    | false -> true: a shared holder; true -> false: the thread that set it, under the dirty set |
//! | `fresh`       | set by an exclusive holder, cleared by the shared holder that set `flushing` |
//! | `refused`     | set at the end of a flight, cleared at the beginning of one, or under the dirty set |
//! | `oldest`, `next_oldest` | under the dirty set (`dirty.rs`)                                  |
//!
//! The bytes of a frame are written by its exclusive holder, or, while `id` is none, by its owner.

use super::latch::HybridLatch;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::{Error, Result};
use inkstone_format::{Lsn, PageId};
use inkstone_io::AlignedBuffer;

/// The page id of a frame that holds no page (no tablespace has this number).
pub(crate) const NO_PAGE: u64 = u64::MAX;
/// `oldest` of a clean frame, `next_oldest` of one that did not change since it was copied.
pub(crate) const NO_LSN: u64 = u64::MAX;

/// A frame's descriptor, one cache line.
#[repr(C, align(64))]
pub(crate) struct Frame {
    pub latch: HybridLatch,
    /// [`PageId::to_u64`], or [`NO_PAGE`].
    pub id: AtomicU64,
    /// Page table chain: index of the next frame plus 1, or 0.
    pub next: AtomicU32,
    /// How many want the page to stay (`pin.rs`).
    pub pins: AtomicU32,
    /// Used since the clock hand came by.
    pub referenced: AtomicBool,
    /// See `evict.rs`.
    pub heat: AtomicU8,
    /// A copy of the page is on its way to disk.
    pub flushing: AtomicBool,
    /// Initialised by a logged PAGE_INIT since it was last copied.
    pub fresh: AtomicBool,
    /// Dirty, and its last write failed.
    pub refused: AtomicBool,
    /// Start LSN of the first mini-transaction that the disk lacks; [`NO_LSN`] when clean.
    pub oldest: AtomicU64,
    /// While `flushing`: start LSN of the first mini-transaction after the copy, or [`NO_LSN`].
    pub next_oldest: AtomicU64,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    fn new() -> Self {
        Self {
            latch: HybridLatch::default(),
            id: AtomicU64::new(NO_PAGE),
            next: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            referenced: AtomicBool::new(false),
            heat: AtomicU8::new(0),
            flushing: AtomicBool::new(false),
            fresh: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            oldest: AtomicU64::new(NO_LSN),
            next_oldest: AtomicU64::new(NO_LSN),
        }
    }

    /// The page that the frame holds now. Stays true only under a latch, or as long as the
    /// version that was taken before stays valid.
    #[inline]
    pub fn page_id(&self) -> Option<PageId> {
        let id = self.id.load(Ordering::Acquire);
        (id != NO_PAGE).then(|| PageId::from_u64(id))
    }

    /// Whether the frame holds `id` now.
    #[inline]
    pub fn holds(&self, id: PageId) -> bool {
        self.id.load(Ordering::Acquire) == id.to_u64()
    }

    /// Tells the clock that the page was used. Writes only once between visits of the hand.
    #[inline]
    pub fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the disk lacks changes of the page (as of now; stable under an exclusive latch
    /// while nothing is in flight).
    #[inline]
    pub fn is_dirty(&self) -> bool {
        self.oldest.load(Ordering::Acquire) != NO_LSN
    }

    /// The oldest LSN, when dirty.
    pub fn oldest_lsn(&self) -> Option<Lsn> {
        let oldest = self.oldest.load(Ordering::Acquire);
        (oldest != NO_LSN).then_some(Lsn(oldest))
    }
}

/// The memory of all frames, and their descriptors.
pub(crate) struct Arena {
    memory: AlignedBuffer,
    page_size_shift: u32,
    frames: Box<[Frame]>,
}

impl Arena {
    /// Maps `count` frames.
    pub fn new(page_size: usize, count: usize) -> Result<Self> {
        paranoid!(
            page_size.is_power_of_two() && count > 0,
            "{count} frames of {page_size} bytes"
        );
        let bytes = page_size * count;
        let memory = AlignedBuffer::try_zeroed(bytes).map_err(|error| Error::InvalidOption {
            name: "buffer_pool_size".to_owned(),
            value: bytes.to_string(),
            reason: format!("that much memory cannot be had: {error}"),
        })?;
        let mut frames = Vec::new();
        frames
            .try_reserve_exact(count)
            .map_err(|_| Error::InvalidOption {
                name: "buffer_pool_size".to_owned(),
                value: (page_size * count).to_string(),
                reason: format!("there is no memory for the descriptors of {count} frames"),
            })?;
        frames.extend((0..count).map(|_| Frame::new()));
        Ok(Self {
            memory,
            page_size_shift: page_size.trailing_zeros(),
            frames: frames.into_boxed_slice(),
        })
    }

    /// Bytes in a page.
    #[inline]
    pub fn page_size(&self) -> usize {
        1 << self.page_size_shift
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// The descriptor of a frame.
    #[inline]
    pub fn frame(&self, index: u32) -> &Frame {
        &self.frames[index as usize]
    }

    /// All descriptors.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The first byte of a frame's page.
    #[inline]
    pub fn page_ptr(&self, index: u32) -> *mut u8 {
        debug_assert!((index as usize) < self.len());
        // SAFETY: frame indices are below `len()`, so this stays inside the mapping.
        unsafe {
            self.memory
                .raw()
                .add((index as usize) << self.page_size_shift)
        }
    }

    /// The bytes of a frame.
    ///
    /// # Safety
    /// The caller holds the frame's latch (shared or exclusive), or owns the frame, for `'a`.
    #[inline]
    pub unsafe fn bytes<'a>(&self, index: u32) -> &'a [u8] {
        // SAFETY: the mapping outlives the pool's guards, and by the caller's promise no thread
        // writes the page meanwhile.
        unsafe { std::slice::from_raw_parts(self.page_ptr(index), self.page_size()) }
    }

    /// The bytes of a frame, for writing.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively, or owns the frame, for `'a`, and has no
    /// other reference to the bytes. (Optimistic readers look on with volatile reads and believe
    /// nothing until they have validated.)
    #[inline]
    pub unsafe fn bytes_mut<'a>(&self, index: u32) -> &'a mut [u8] {
        // SAFETY: as for `bytes`, and by the caller's promise no other thread reads or writes.
        unsafe { std::slice::from_raw_parts_mut(self.page_ptr(index), self.page_size()) }
    }
}
