//! How a page comes into a frame: read from the store, or created.
//!
//! A page that is being read is in no frame that others can find; a slot in its page table shard
//! stands for it, and threads that want it wait there, with no latch held by the reader. The frame
//! is published when its bytes are complete, already latched for the thread that read it, so that
//! this thread makes progress even if the page would be evicted at once.

use super::frame::Frame;
use super::guard::{Exclusive, Optimistic, Reservation, Shared};
use super::late::Come;
use super::page_table::LoadSlot;
use super::pool::Inner;
use super::prefetch::{self, Ahead};
use super::refused::Patience;
use crate::counters::{Counter, Timed, thread_stripe};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::PageId;
use inkstone_format::header::{self, PAGE_HEADER_LEN};
use std::sync::Arc;

/// Frames that a caller looks at before it gives up evicting one by itself.
const CALLER_VISITS_MAX: usize = 64;

/// How the thread that reads a page wants to have it latched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Nothing,
    Shared,
    Exclusive,
}

impl Want {
    /// Takes the latch as long as `wanted`; false if it gave up.
    fn latch(self, frame: &Frame, wanted: impl Fn() -> bool) -> bool {
        match self {
            Want::Nothing => true,
            Want::Shared => frame.latch.lock_shared(wanted),
            Want::Exclusive => frame.latch.lock_exclusive(wanted),
        }
    }

    fn unlatch(self, frame: &Frame) {
        match self {
            Want::Nothing => {}
            Want::Shared => frame.latch.unlock_shared(),
            Want::Exclusive => frame.latch.unlock_exclusive(),
        }
    }
}

enum Found {
    /// The page was in this frame a moment ago.
    Resident(u32),
    /// The calling thread read it; the latch is taken as wanted.
    Loaded(u32),
}

/// What came of loading several pages.
struct Loaded {
    pages: u64,
    /// There were as many frames as pages.
    frames_left: bool,
}

impl Inner {
    /// Counts an access to the page in the frame, and has it stay a while.
    #[inline]
    fn accessed(&self, frame: &Frame) {
        self.counters.add(Counter::BufferReadRequests, 1);
        frame.touch();
    }

    /// The page if the frame holds it now; waits for an exclusive holder.
    #[inline]
    pub(crate) fn optimistic_at(&self, index: u32, id: PageId) -> Option<Optimistic<'_>> {
        let frame = self.arena.frames().get(index as usize)?;
        let version = frame.latch.optimistic(|| frame.holds(id))?;
        if !frame.holds(id) {
            return None;
        }
        self.accessed(frame);
        Some(Optimistic {
            pool: self,
            index,
            version,
            id,
        })
    }

    /// The page if it is resident, found without a lock.
    #[inline]
    pub(crate) fn optimistic_hit(&self, id: PageId) -> Option<Optimistic<'_>> {
        self.optimistic_at(self.table.hint(&self.arena, id)?, id)
    }

    /// Lets the processor fetch what a search in the page reads first, if it is resident.
    #[inline]
    pub(crate) fn prefetch(&self, id: PageId) {
        if let Some(index) = self.table.first(id) {
            prefetch::fetch(self.arena.frame(index));
            prefetch::page(self.arena.page_ptr(index), self.arena.page_size());
        }
    }

    /// As `prefetch`, and makes ready to fetch so many bytes of rows over so many steps.
    #[inline]
    pub(crate) fn ahead(&self, id: PageId, bytes: usize, steps: usize) -> Ahead {
        let Some(index) = self.table.first(id) else {
            return Ahead::default();
        };
        let (start, page_size) = (self.arena.page_ptr(index), self.arena.page_size());
        prefetch::fetch(self.arena.frame(index));
        prefetch::page(start, page_size);
        Ahead::new(start, page_size, bytes, steps)
    }

    #[cold]
    pub(crate) fn optimistic_miss(&self, id: PageId) -> Result<Optimistic<'_>> {
        loop {
            let (Found::Resident(index) | Found::Loaded(index)) =
                self.find_or_load(id, Want::Nothing)?;
            if let Some(page) = self.optimistic_at(index, id) {
                return Ok(page);
            }
        }
    }

    pub(crate) fn shared(&self, id: PageId) -> Result<Shared<'_>> {
        let index = self.latched(id, Want::Shared)?;
        Ok(Shared { pool: self, index })
    }

    pub(crate) fn exclusive(&self, id: PageId) -> Result<Exclusive<'_>> {
        let index = self.latched(id, Want::Exclusive)?;
        Ok(Exclusive { pool: self, index })
    }

    pub(crate) fn shared_if_resident(&self, id: PageId) -> Option<Shared<'_>> {
        let index = self.latched_if_resident(id, Want::Shared)?;
        Some(Shared { pool: self, index })
    }

    pub(crate) fn exclusive_if_resident(&self, id: PageId) -> Option<Exclusive<'_>> {
        let index = self.latched_if_resident(id, Want::Exclusive)?;
        Some(Exclusive { pool: self, index })
    }

    pub(crate) fn try_exclusive(&self, id: PageId) -> Option<Exclusive<'_>> {
        let index = self.find(id)?;
        let frame = self.arena.frame(index);
        if !frame.latch.try_lock_exclusive() {
            return None;
        }
        let guard = Exclusive { pool: self, index };
        frame.holds(id).then(|| {
            self.accessed(frame);
            guard
        })
    }

    /// The frame that holds the page: certain at the moment of looking.
    pub(crate) fn find(&self, id: PageId) -> Option<u32> {
        self.table
            .hint(&self.arena, id)
            .or_else(|| self.table.shard(&self.arena, id).find(id))
    }

    /// Latches the frame if it still holds the page.
    #[inline]
    fn latch_at(&self, index: u32, id: PageId, want: Want) -> bool {
        let frame = self.arena.frame(index);
        if !want.latch(frame, || frame.holds(id)) {
            return false;
        }
        if !frame.holds(id) {
            want.unlatch(frame);
            return false;
        }
        self.accessed(frame);
        true
    }

    fn latched_if_resident(&self, id: PageId, want: Want) -> Option<u32> {
        loop {
            let index = self.find(id)?;
            if self.latch_at(index, id, want) {
                return Some(index);
            }
        }
    }

    fn latched(&self, id: PageId, want: Want) -> Result<u32> {
        let mut hint = self.table.hint(&self.arena, id);
        loop {
            if let Some(index) = hint.filter(|&index| self.latch_at(index, id, want)) {
                return Ok(index);
            }
            match self.find_or_load(id, want)? {
                Found::Loaded(index) => {
                    self.counters.add(Counter::BufferReadRequests, 1);
                    return Ok(index);
                }
                Found::Resident(index) => hint = Some(index),
            }
        }
    }

    fn find_or_load(&self, id: PageId, want: Want) -> Result<Found> {
        loop {
            self.check()?;
            let mut shard = self.table.shard(&self.arena, id);
            if let Some(index) = shard.find(id) {
                return Ok(Found::Resident(index));
            }
            if let Some(slot) = shard.load_of(id) {
                drop(shard);
                slot.wait()?;
                continue;
            }
            let slot = shard.begin_load(id);
            drop(shard);
            let outcome = self.read_and_publish(id, &slot, want);
            slot.finish(outcome.as_ref().map(|_| ()).map_err(Error::clone));
            if let Some(index) = outcome? {
                return Ok(Found::Loaded(index));
            }
        }
    }

    /// Reads the page into a frame and publishes it; `None` if it was created or discarded
    /// meanwhile (then an error does not count either: the page was being written), or is resident
    /// and was not latched.
    fn read_and_publish(
        &self,
        id: PageId,
        slot: &Arc<LoadSlot>,
        want: Want,
    ) -> Result<Option<u32>> {
        self.publish(id, slot, self.read_into_frame(id), want)
    }

    /// A page was read into a frame, or not: see `read_and_publish`.
    fn publish(
        &self,
        id: PageId,
        slot: &Arc<LoadSlot>,
        outcome: Result<(u32, Come)>,
        want: Want,
    ) -> Result<Option<u32>> {
        let (index, come) = match outcome {
            Ok(found) => found,
            Err(error) => {
                let current = self.table.shard(&self.arena, id).end_load(slot);
                return if current { Err(error) } else { Ok(None) };
            }
        };
        let frame = self.arena.frame(index);
        let held = match come {
            Come::Whole => want,
            Come::Late(_) => Want::Exclusive,
        };
        // The frame is ours: a holder of its latch came too late for its former page, and lets go.
        held.latch(frame, || true);
        let mut shard = self.table.shard(&self.arena, id);
        if shard.end_load(slot) {
            shard.insert(id, index);
            drop(shard);
            let latched = match come {
                Come::Whole => true,
                Come::Late(made) => self.arrive(id, index, made, want),
            };
            return Ok(latched.then_some(index));
        }
        drop(shard);
        held.unlatch(frame);
        self.free.push(index, frame);
        Ok(None)
    }

    /// Makes the page resident.
    pub(crate) fn load(&self, id: PageId) -> Result<()> {
        self.find_or_load(id, Want::Nothing).map(drop)
    }

    /// Makes pages resident, in the order of their ids, as far as there are free frames: false if
    /// there are none left. A page that cannot be read is left out.
    pub(crate) fn load_many(&self, ids: &[PageId]) -> Result<bool> {
        self.check()?;
        let loaded = self.load_into(ids, || self.free.pop(thread_stripe()));
        Ok(loaded.frames_left)
    }

    /// As `load_many`, but clean cold pages leave for these.
    pub(crate) fn read_ahead(&self, ids: &[PageId]) {
        if self.check().is_err() {
            return;
        }
        let take = || {
            let taken = self.free.pop(thread_stripe());
            taken.or_else(|| self.sweep_clean(CALLER_VISITS_MAX))
        };
        let loaded = self.load_into(ids, take);
        self.counters.add(Counter::PagesReadAhead, loaded.pages);
        if self.free.count() < self.stock_low {
            self.supply.raise();
        }
    }

    /// Loads pages into frames that are taken one by one, as long as there are any.
    fn load_into(&self, ids: &[PageId], take: impl Fn() -> Option<u32>) -> Loaded {
        paranoid!(
            ids.is_sorted_by(|a, b| a < b),
            "{} pages to be loaded are not in order",
            ids.len()
        );
        let mut loads = Vec::with_capacity(ids.len());
        let mut frames_left = true;
        for &id in ids {
            if self.table.hint(&self.arena, id).is_some() {
                continue;
            }
            let Some(index) = take() else {
                frames_left = false;
                break;
            };
            match self.begin_load_of_absent(id) {
                Some(slot) => loads.push((id, index, slot)),
                None => self.free.push(index, self.arena.frame(index)),
            }
        }
        let pages = loads.len() as u64;
        self.read_loads(loads);
        Loaded { pages, frames_left }
    }

    /// Reads pages whose loads have begun into frames that are ours.
    fn read_loads(&self, loads: Vec<(PageId, u32, Arc<LoadSlot>)>) {
        // Those that the log has whole are not read.
        let is_read = |id| self.late_of(id).is_none_or(|(_, left)| !left.initialises);
        let (to_read, others): (Vec<_>, Vec<_>) = loads.into_iter().partition(|l| is_read(l.0));
        let mut pages: Vec<(PageId, &mut [u8])> = to_read
            .iter()
            // SAFETY: the frame was taken from the free ones and is not in the table: we own it.
            .map(|&(id, index, _)| (id, unsafe { self.arena.bytes_mut(index) }))
            .collect();
        let results = self.store.read_many(&mut pages);
        crate::invariant!(
            results.len() == pages.len(),
            "{} results of {} reads",
            results.len(),
            pages.len()
        );
        drop(pages);
        for ((id, index, slot), result) in to_read.into_iter().zip(results) {
            self.take_in(id, index, &slot, result);
        }
        for (id, index, slot) in others {
            self.take_in(id, index, &slot, Ok(()));
        }
    }

    /// A page was read into a frame that is ours, or not.
    fn take_in(&self, id: PageId, index: u32, slot: &Arc<LoadSlot>, read: Result<()>) {
        paranoid!(
            self.arena.frame(index).page_id().is_none(),
            "page {id} is read into a frame that has another one"
        );
        // SAFETY: the frame was taken from the free ones and is not in the table: we own it.
        let bytes = unsafe { self.arena.bytes_mut(index) };
        let come = self.fill_frame(id, bytes, |_| read);
        if come.is_err() {
            self.free.push(index, self.arena.frame(index));
        }
        let come = come.map(|come| (index, come));
        let outcome = self.publish(id, slot, come, Want::Nothing);
        slot.finish(outcome.map(drop));
    }

    /// The caller is to read the page, unless it is resident, or another thread reads it already.
    fn begin_load_of_absent(&self, id: PageId) -> Option<Arc<LoadSlot>> {
        let mut shard = self.table.shard(&self.arena, id);
        let absent = shard.find(id).is_none() && shard.load_of(id).is_none();
        absent.then(|| shard.begin_load(id))
    }

    fn read_into_frame(&self, id: PageId) -> Result<(u32, Come)> {
        let index = self.take_frame()?;
        // SAFETY: the frame was taken from the free ones and is not in the table: we own it.
        let bytes = unsafe { self.arena.bytes_mut(index) };
        match self.fill_frame(id, bytes, |bytes| self.store.read(id, bytes)) {
            Ok(come) => Ok((index, come)),
            Err(error) => {
                self.free.push(index, self.arena.frame(index));
                Err(error)
            }
        }
    }

    /// A frame for the caller to own: a free one, or one whose clean cold page it evicts, or the
    /// next one that the thread `ink-frames` supplies.
    pub(crate) fn take_frame(&self) -> Result<u32> {
        let home = thread_stripe();
        let taken = self.free.pop(home);
        if self.free.count() < self.stock_low {
            self.supply.raise();
        }
        if let Some(index) = taken.or_else(|| self.sweep_clean(CALLER_VISITS_MAX)) {
            paranoid!(
                self.arena.frame(index).page_id().is_none(),
                "frame {index} was free, and holds a page"
            );
            return Ok(index);
        }
        self.counters.add(Counter::BufferFrameWaits, 1);
        let _timing = self.counters.time(Timed::FrameWait);
        self.supply.raise();
        let mut patience = Patience::for_frame(self);
        self.free.wait(|| {
            if let Err(error) = self.check() {
                return Some(Err(error));
            }
            let taken = self.free.pop(home);
            let taken = taken.or_else(|| self.sweep_clean(CALLER_VISITS_MAX));
            match taken {
                Some(index) => Some(Ok(index)),
                None => patience.end(self, self.free.given()).map(Err),
            }
        })
    }

    pub(crate) fn reserve(&self, frames: usize) -> Result<Reservation<'_>> {
        if frames > self.budget.limit() {
            return Err(Error::Unsupported(format!(
                "{frames} pages cannot be created at once with {} page frames (at most a quarter); \
                 enlarge buffer_pool_size",
                self.arena.len()
            )));
        }
        if frames > 0 {
            self.budget.take(frames, || self.check())?;
        }
        let mut reservation = Reservation {
            pool: self,
            frames: Vec::with_capacity(frames),
            budget: frames,
        };
        for _ in 0..frames {
            let index = self.take_frame()?;
            paranoid!(
                !reservation.frames.contains(&index),
                "frame {index} was taken twice"
            );
            reservation.frames.push(index);
        }
        Ok(reservation)
    }

    pub(crate) fn create<'a>(
        &'a self,
        id: PageId,
        reservation: &mut Reservation<'_>,
    ) -> Result<Exclusive<'a>> {
        crate::invariant!(id.to_u64() != u64::MAX, "page {id} is no page");
        loop {
            if let Some(index) = self.latched_if_resident(id, Want::Exclusive) {
                return Ok(Exclusive { pool: self, index });
            }
            self.check()?;
            let reserved = reservation.frames.pop();
            crate::invariant!(
                reserved.is_some(),
                "page {id} created without a reserved frame"
            );
            let index = reserved.expect("checked");
            let frame = self.arena.frame(index);
            // As in `read_and_publish`: no thread keeps the latch of a frame that is ours.
            frame.latch.lock_exclusive(|| true);
            // SAFETY: the frame is reserved and not in the table: we own it.
            let bytes = unsafe { self.arena.bytes_mut(index) };
            // Its creator writes the rest.
            header::init_page(&mut bytes[..PAGE_HEADER_LEN], id, header::PageType::Free);
            let mut shard = self.table.shard(&self.arena, id);
            if shard.find(id).is_none() {
                shard.supersede_load(id);
                shard.insert(id, index);
                drop(shard);
                self.supersede_late(id, index, bytes);
                return Ok(Exclusive { pool: self, index });
            }
            drop(shard);
            frame.latch.unlock_exclusive();
            reservation.frames.push(index);
        }
    }
}
