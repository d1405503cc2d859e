//! Writing the place map: both slots of each block, one after the other.

use super::PlacedPages;
use super::state::State;
use super::units::Extent;
use crate::Result;
use crate::counters::Counter;
use crate::paranoid::paranoid;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use inkstone_format::place_map::{BLOCK_LEN, BLOCK_PLACES, encode_again, encode_block};
use inkstone_io::Batch;

/// The part of a file's units that may wait for a block of the map before that is written for
/// them.
const WAITING_PARTS: u32 = 8;
/// So many may wait in any case.
const WAITING_MIN: u32 = 256;

/// A block that is being written.
pub(super) struct Due {
    pub number: u32,
    pub bytes: [u8; BLOCK_LEN],
    /// How often it was written, with this.
    pub written: u64,
    /// Free when it is durable.
    waiting: Vec<Extent>,
}

impl Due {
    /// It is to be written once more, to its other slot.
    fn again(&mut self) {
        self.written += 1;
        encode_again(&mut self.bytes);
    }
}

impl PlacedPages {
    /// As [`settle`](Self::settle), if so much waits for the map that it is to be written now:
    /// whether that was so. The blocks go through the queue.
    pub fn settle_if_due(&self, queue: Option<&mut dyn Batch>) -> Result<bool> {
        if !self.is_settling_due() {
            return Ok(false);
        }
        let settling = self.settling.lock();
        // Another thread may have done it meanwhile.
        if self.is_settling_due() {
            self.settle_alone(&settling, queue)?;
        }
        Ok(true)
    }

    fn is_settling_due(&self) -> bool {
        let state = self.state.lock();
        state.waiting > (state.units.count() / WAITING_PARTS).max(WAITING_MIN)
    }

    /// Writes the blocks of the map that do not say where their pages are, and makes them durable;
    /// then the units that pages had before are free.
    pub fn settle(&self) -> Result<()> {
        // First: what another thread is writing is not durable before that has ended.
        let settling = self.settling.lock();
        self.settle_alone(&settling, None)
    }

    /// The blocks go through the queue, side by side; without one each by itself.
    fn settle_alone(
        &self,
        _settling: &MutexGuard<'_, ()>,
        mut queue: Option<&mut dyn Batch>,
    ) -> Result<()> {
        if !self.is_dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        self.poison.check()?;
        let mut due = self.take_due();
        if due.is_empty() {
            return Ok(());
        }
        let mut write = |due: &[Due]| match &mut queue {
            Some(queue) => self.map.write(&self.open_files, due, Some(&mut **queue)),
            None => self.map.write(&self.open_files, due, None),
        };
        let first = self.sync_images().and_then(|()| write(&due));
        // Only now: one of the slots is whole whenever power is lost.
        let second = first.clone().and_then(|()| {
            due.iter_mut().for_each(Due::again);
            write(&due)
        });
        let slots = usize::from(first.is_ok()) + usize::from(second.is_ok());
        let bytes = (slots * due.len() * BLOCK_LEN) as u64;
        self.counters.add(Counter::PlaceMapBytes, bytes);
        self.state.lock().end_settling(due, slots);
        if second.is_err() {
            self.is_dirty.store(true, Ordering::Release);
        }
        second
    }

    /// What a block is about to name is durable: the page writer has seen to that, but for pages
    /// that were written past it.
    fn sync_images(&self) -> Result<()> {
        if !self.is_unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let in_use = self
            .data
            .acquire(&self.open_files, inkstone_io::Create::Never);
        let synced = in_use.and_then(|in_use| in_use.sync());
        if synced.is_err() {
            self.is_unsynced.store(true, Ordering::Release);
        }
        synced
    }

    fn take_due(&self) -> Vec<Due> {
        let mut state = self.state.lock();
        self.is_dirty.store(false, Ordering::Release);
        state.take_due()
    }
}

impl State {
    fn take_due(&mut self) -> Vec<Due> {
        self.check();
        let mut due = Vec::new();
        for (number, block) in self.blocks.iter_mut().enumerate() {
            if !std::mem::take(&mut block.is_dirty) {
                continue;
            }
            let first = number * BLOCK_PLACES;
            let places = &self.places[first..first + BLOCK_PLACES];
            let written = block.written + 1;
            // From now on it may be what a crash leaves.
            for (n, place) in places.iter().enumerate() {
                block.named[n / 64] |= u64::from(!place.is_empty()) << (n % 64);
            }
            due.push(Due {
                number: number as u32,
                bytes: encode_block(number as u32, written, places),
                written,
                waiting: std::mem::take(&mut block.waiting),
            });
        }
        due
    }

    /// Blocks were written to so many of their slots, or tried to be.
    fn end_settling(&mut self, due: Vec<Due>, slots: usize) {
        paranoid!(
            due.len() <= self.blocks.len() && slots <= 2,
            "{} blocks of {} were written to {slots} slots",
            due.len(),
            self.blocks.len()
        );
        let mut freed = 0;
        for due in due {
            let block = &mut self.blocks[due.number as usize];
            // The next goes to the slot that is not known to be durable.
            block.written = match slots {
                0 => block.written,
                1 => block.written + 1,
                _ => due.written,
            };
            if slots < 2 {
                block.is_dirty = true;
                block.waiting.extend(due.waiting);
                continue;
            }
            for extent in due.waiting {
                self.units.give_back(extent);
                freed += extent.length;
            }
        }
        paranoid!(
            freed <= self.waiting,
            "{freed} units are free of {} that waited",
            self.waiting
        );
        self.waiting -= freed;
    }
}
