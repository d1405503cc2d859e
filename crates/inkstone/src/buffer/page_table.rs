//! From page id to frame: a hash table whose chains run through the frames' descriptors.
//!
//! Looking up takes no lock and is a hint: a chain may change under the reader, which then finds
//! nothing (and asks again under the shard's mutex) but never a frame that does not hold the page,
//! because the caller compares the frame's id under a version or a latch. Changing a chain, and
//! looking up for certain, take the mutex of the bucket's shard.
//!
//! A shard also holds the pages that are being read just now, so that a page is read once however
//! many threads ask for it.

use super::frame::{Arena, NO_PAGE};
use crate::Result;
use crate::paranoid::{Check, Checked, CheckedGuard, MANY, paranoid};
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex};
use inkstone_format::PageId;
use std::sync::Arc;

/// A chain longer than this is searched under the mutex.
const HINT_STEPS_MAX: usize = 16;
const SHARDS: usize = 64;

/// A page that is being read. The thread that made the slot reads; the others wait for it.
#[derive(Default)]
pub(crate) struct LoadSlot {
    outcome: Mutex<Option<Result<()>>>,
    finished: Condvar,
    /// The page was created or discarded meanwhile: what was read must not be used.
    pub superseded: AtomicBool,
}

impl LoadSlot {
    /// Waits for the reading thread and returns what it met.
    pub fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(result) => return result.clone(),
                None => self.finished.wait(&mut outcome),
            }
        }
    }

    /// Tells the waiters.
    pub fn finish(&self, result: Result<()>) {
        let before = self.outcome.lock().replace(result);
        paranoid!(before.is_none(), "a read of a page ended twice: {before:?}");
        self.finished.notify_all();
    }
}

/// Pages being read, by [`PageId::to_u64`].
type Loads = Vec<(u64, Arc<LoadSlot>)>;

impl Check for Loads {
    /// A page is read once at a time.
    fn check(&self) {
        if let Some(((last, _), others)) = self.split_last() {
            let mut others = others.iter().rev().take(MANY);
            paranoid!(
                others.all(|(other, _)| other != last),
                "page {last:x} is being read twice"
            );
        }
    }
}

/// See the module's comment.
pub(crate) struct PageTable {
    /// Index of the first frame plus 1, or 0.
    buckets: Box<[AtomicU32]>,
    /// 64 minus the number of bits in a bucket number.
    shift: u32,
    shards: Box<[Checked<Loads>]>,
}

/// A shard, locked: chains of its buckets stand still.
pub(crate) struct Shard<'a> {
    table: &'a PageTable,
    arena: &'a Arena,
    loads: CheckedGuard<'a, Loads>,
}

impl PageTable {
    /// A table for so many frames.
    pub fn new(frames: usize) -> Self {
        let buckets = (frames * 2).next_power_of_two().max(SHARDS);
        Self {
            buckets: (0..buckets).map(|_| AtomicU32::new(0)).collect(),
            shift: 64 - buckets.trailing_zeros(),
            shards: (0..SHARDS).map(|_| Checked::default()).collect(),
        }
    }

    #[inline]
    fn bucket_of(&self, id: u64) -> usize {
        // Fibonacci hashing: neighbouring page numbers land far apart, and evenly.
        let mixed = (id ^ (id >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> self.shift) as usize
    }

    /// A frame that seems to hold the page.
    #[inline]
    pub fn hint(&self, arena: &Arena, id: PageId) -> Option<u32> {
        let id = id.to_u64();
        let mut link = self.buckets[self.bucket_of(id)].load(Ordering::Acquire);
        for _ in 0..HINT_STEPS_MAX {
            let index = link.checked_sub(1)?;
            let frame = arena.frame(index);
            if frame.id.load(Ordering::Acquire) == id {
                return Some(index);
            }
            link = frame.next.load(Ordering::Acquire);
        }
        None
    }

    /// The frame at which the chain of the page's bucket begins: most likely the page's.
    #[inline]
    pub fn first(&self, id: PageId) -> Option<u32> {
        let link = self.buckets[self.bucket_of(id.to_u64())].load(Ordering::Relaxed);
        link.checked_sub(1)
    }

    /// Locks the shard of a page.
    pub fn shard<'a>(&'a self, arena: &'a Arena, id: PageId) -> Shard<'a> {
        let number = self.bucket_of(id.to_u64()) % SHARDS;
        Shard {
            table: self,
            arena,
            loads: self.shards[number].lock(),
        }
    }

    /// Makes the results of reads that are under way unusable, for pages that `which` selects.
    pub fn supersede_loads(&self, which: impl Fn(PageId) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|(id, slot)| {
                let hit = which(PageId::from_u64(*id));
                if hit {
                    slot.superseded.store(true, Ordering::Relaxed);
                }
                !hit
            });
        }
    }
}

impl Shard<'_> {
    fn bucket(&self, id: PageId) -> &AtomicU32 {
        &self.table.buckets[self.table.bucket_of(id.to_u64())]
    }

    /// The frame that holds the page: for certain.
    pub fn find(&self, id: PageId) -> Option<u32> {
        let mut link = self.bucket(id).load(Ordering::Relaxed);
        while let Some(index) = link.checked_sub(1) {
            let frame = self.arena.frame(index);
            if frame.id.load(Ordering::Relaxed) == id.to_u64() {
                return Some(index);
            }
            link = frame.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Makes the frame, whose bytes are the page, findable. The page must not be in the table.
    pub fn insert(&self, id: PageId, index: u32) {
        let bucket = self.bucket(id);
        let frame = self.arena.frame(index);
        let first = bucket.load(Ordering::Relaxed);
        paranoid!(
            id.to_u64() != NO_PAGE && first != index + 1,
            "page {id} enters a chain that begins with its frame {index}"
        );
        paranoid!(
            frame.id.load(Ordering::Relaxed) == NO_PAGE,
            "page {id} is put into frame {index}, which holds another"
        );
        frame.next.store(first, Ordering::Relaxed);
        frame.id.store(id.to_u64(), Ordering::Release);
        bucket.store(index + 1, Ordering::Release);
    }

    /// Takes the page out; the caller holds the frame exclusively and owns it afterwards.
    pub fn remove(&self, id: PageId, index: u32) {
        let mut link = self.bucket(id);
        loop {
            let at = link.load(Ordering::Relaxed);
            crate::invariant!(at != 0, "page {id} is not in its chain");
            let frame = self.arena.frame(at - 1);
            if at - 1 == index {
                paranoid!(
                    frame.id.load(Ordering::Relaxed) == id.to_u64(),
                    "page {id} is taken out of frame {index}, which holds another"
                );
                link.store(frame.next.load(Ordering::Relaxed), Ordering::Release);
                frame.id.store(NO_PAGE, Ordering::Release);
                return;
            }
            link = &frame.next;
        }
    }

    /// The read of this page that is under way.
    pub fn load_of(&self, id: PageId) -> Option<Arc<LoadSlot>> {
        let found = self.loads.iter().find(|(other, _)| *other == id.to_u64());
        found.map(|(_, slot)| slot.clone())
    }

    /// Announces a read.
    pub fn begin_load(&mut self, id: PageId) -> Arc<LoadSlot> {
        paranoid!(
            self.find(id).is_none(),
            "page {id} is to be read, and is in the pool"
        );
        let slot = Arc::new(LoadSlot::default());
        self.loads.push((id.to_u64(), slot.clone()));
        slot
    }

    /// Ends a read that was announced; false if it was superseded.
    pub fn end_load(&mut self, slot: &Arc<LoadSlot>) -> bool {
        let before = self.loads.len();
        self.loads.retain(|(_, other)| !Arc::ptr_eq(other, slot));
        self.loads.len() < before
    }

    /// Makes the result of a read that is under way unusable.
    pub fn supersede_load(&mut self, id: PageId) {
        if let Some(slot) = self.load_of(id) {
            slot.superseded.store(true, Ordering::Relaxed);
            self.end_load(&slot);
        }
    }
}
