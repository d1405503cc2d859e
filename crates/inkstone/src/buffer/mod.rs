//! The buffer pool: pages in memory, and the promise that they reach the disk in the right order.
//!
//! # Promises
//!
//! 1. A page is in at most one frame, and every request for it gets that frame. Tested by
//!    `many_threads_that_want_one_page_read_it_once`, `create_overtakes_a_read_of_the_same_page`.
//! 2. A page is written in place only after the log is durable up to its page LSN. Tested by
//!    `few_threads_small_log`. Tested by the simulator (`page-before-log`).
//! 3. A page's changes are on disk, or its `oldest_lsn` is in a dirty set: the smallest of those is
//!    never above the START of a mini-transaction whose change a crash would lose. So a checkpoint
//!    at `min(ready_lsn read first, oldest_dirty_lsn())` loses nothing. Tested by
//!    `few_threads_small_log`, `flights_writers_and_checkpoints_agree_on_what_is_clean`. Tested by
//!    the simulator (`dirty-page-evicted`, `checkpoint-too-high`).
//! 4. No latch is held during I/O, and no holder of a latch waits for a frame: such a caller brings
//!    a `Reservation`. Tested by `a_change_during_the_flight_becomes_the_oldest`,
//!    `create_overtakes_a_read_of_the_same_page`, `hundreds_of_threads_on_64_frames`.
//! 5. A caller never writes a page to get a frame. It takes a free one, or evicts a clean cold
//!    page, or waits for the thread `ink-frames`. Tested by
//!    `a_caller_that_needs_a_frame_writes_no_page`, `clean_pages_are_evicted_by_callers_alone`.
//!
//! # Words
//!
//! - *frame*: room for one page, and its descriptor (`frame.rs`). Free, or owned by one loader or
//!   reservation, or resident (found through the page table).
//! - *clean*: the frame's `oldest_lsn` is none, the disk has every logged change. *dirty*: not
//!   clean.
//! - *in flight*: a copy of the page is on its way to disk (`flushing`). One at a time for a page.
//! - *fresh*: initialised by a logged PAGE_INIT since its last copy was made.
//! - *pinned*: stays resident, however scarce frames are (`pin.rs`).
//! - *refused*: dirty, and its last write failed. `ink-cleaner` tries it again (`refused.rs`).
//!
//! # Latches and locks, in the order in which they may be taken
//!
//! 1. page latches (`latch.rs`), in the order that the trees decide; 2. a page table shard; or a
//!    partition's dirty set; or a partition's free list (never two of these at once). The shards
//!    and sets are leaves: nothing is waited for under them.
//!
//! A latch is not re-entrant, in shared mode neither: a thread that asks twice may wait for an
//! exclusive request that waits for it.
//!
//! # What it does not promise
//!
//! It knows nothing of what pages mean, and does not stop two mini-transactions from deadlocking on
//! page latches: the trees' latch order does.

mod behind;
mod cleaner;
mod dirty;
mod evict;
mod flush;
mod frame;
mod free;
mod guard;
mod latch;
mod late;
mod load;
mod page_table;
mod pin;
mod pool;
mod prefetch;
mod refused;
mod signal;
mod supplier;
#[cfg(test)]
mod tests;

pub use guard::{Exclusive, Optimistic, Reservation, Shared};
pub use late::{Late, LateRedo, Redone};
pub use pin::Pins;
pub use pool::{BufferPool, BufferStatus, PoolOptions};
pub use prefetch::Ahead;

use crate::Result;
use inkstone_format::{Lsn, PageId};
use inkstone_io::MemoryHandle;
use std::cell::Cell;

/// What the pool needs of the redo log.
pub trait RedoLog: Send + Sync {
    /// End of the contiguous published prefix of the log: every mini-transaction below it has its
    /// pages in the dirty sets.
    fn ready_lsn(&self) -> Lsn;
    /// End of the last mini-transaction that has a place in the log, published or not: an upper
    /// bound of [`ready_lsn`](RedoLog::ready_lsn), asked for by every write: it may take no latch.
    fn reserved_lsn(&self) -> Lsn {
        self.ready_lsn()
    }
    /// Returns when the log is durable up to `lsn`.
    fn make_durable(&self, lsn: Lsn) -> Result<()>;
    /// Bytes of log that may lie between the checkpoint and the end of the log.
    fn capacity_bytes(&self) -> u64;
}

/// What stands below the pool: decides where and how pages reach the disk.
pub trait PageStore: Send + Sync {
    /// Fills `buffer` (one page, 4096-aligned) and checks checksum and page id.
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()>;
    /// As [`read`](Self::read), for pages in the order of their ids: one result each. A store that
    /// has nothing better reads them one by one.
    fn read_many(&self, pages: &mut [(PageId, &mut [u8])]) -> Vec<Result<()>> {
        let read = |(id, bytes): &mut (PageId, &mut [u8])| self.read(*id, bytes);
        pages.iter_mut().map(read).collect()
    }
    /// A writer for the use of one thread.
    fn writer(&self) -> Result<Box<dyn PageWriter>>;
}

/// Writes batches of pages; see [`PageStore::writer`].
pub trait PageWriter: Send {
    /// Pages that are durable in place when this returns are marked as [landed](PageImage::landed):
    /// after `Ok` all, else the error says why not the others, which may be torn in place now;
    /// unless the engine was poisoned they are written by a later call, as whole as any. Pages of
    /// dropped tablespaces count as landed. The store stamps checksums and combines adjacent pages.
    /// The caller has made the log durable up to the page LSNs, and passes each page once, sorted
    /// by id.
    fn write(&mut self, pages: &mut [PageImage<'_>]) -> Result<()>;

    /// The memory that the images of most batches will lie in; see
    /// [`inkstone_io::Batch::register`].
    fn register(&mut self, memory: MemoryHandle) {
        let _ = memory;
    }
}

/// A copy of a page on its way to disk.
pub struct PageImage<'a> {
    /// The page.
    pub id: PageId,
    /// Initialised by a logged PAGE_INIT since the last image: recovery will not read it, so it
    /// needs no protection from tearing.
    pub fresh: bool,
    /// START of the oldest change in it that the disk lacks.
    pub oldest: Lsn,
    /// Its last write failed: it goes alone now, as another page may have been to blame.
    pub again: bool,
    /// Whether it is durable in place.
    pub landed: Cell<bool>,
    /// The page's bytes, 4096-aligned; the checksum is stale until the store stamps it.
    pub bytes: &'a mut [u8],
}
