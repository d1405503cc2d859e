//! Pins: pages that stay resident while a thread gathers the pages it needs.
//!
//! A thread that must latch several pages at once may not read a missing one under a latch. It lets
//! go of all, reads the missing one and starts over. Without pins the page that was read last could
//! push out the one before, round and round: where most frames hold pages that cannot be written,
//! for ever. A pin (a fix, in the words of the literature) is no latch: others may read, change and
//! write the page.

use super::pool::Inner;
use crate::Result;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use inkstone_format::PageId;

/// The most pages that one caller pins: the way down a tree and a batch of pages. Of more, the
/// one that was pinned first is let go.
const PINS_MAX: usize = 16;

/// Pages that are not evicted while this lives, unless a quarter of all frames is pinned already.
/// They can be latched with `*_if_resident`.
pub struct Pins<'a> {
    pool: &'a Inner,
    frames: Vec<u32>,
}

impl<'a> Pins<'a> {
    pub(super) fn new(pool: &'a Inner) -> Self {
        Self {
            pool,
            frames: Vec::new(),
        }
    }

    /// Makes the page resident, reading it if it is absent, and pins it. The caller holds no latch.
    pub fn hold(&mut self, id: PageId) -> Result<()> {
        let page = self.pool.shared(id)?;
        if self.frames.contains(&page.index) {
            return Ok(());
        }
        if self.frames.len() == PINS_MAX {
            let first = self.frames.remove(0);
            self.unpin(first);
        }
        let pool = self.pool;
        if pool.pinned.fetch_add(1, Ordering::Relaxed) >= pool.pins_max() {
            pool.pinned.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        // Eviction looks at it under the exclusive latch, so after this.
        let pins = &pool.arena.frame(page.index).pins;
        pins.fetch_add(1, Ordering::Relaxed);
        self.frames.push(page.index);
        paranoid!(
            self.frames.len() <= PINS_MAX,
            "{} pins of one caller",
            self.frames.len()
        );
        Ok(())
    }

    fn unpin(&self, index: u32) {
        let pins = &self.pool.arena.frame(index).pins;
        let of_frame = pins.fetch_sub(1, Ordering::Release);
        let of_pool = self.pool.pinned.fetch_sub(1, Ordering::Relaxed);
        paranoid!(
            of_frame > 0 && of_pool > 0,
            "frame {index} was pinned {of_frame} times, all of them {of_pool}"
        );
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        for &index in &self.frames {
            self.unpin(index);
        }
    }
}

impl Inner {
    /// How many pins there may be: their holders wait for frames.
    pub(crate) fn pins_max(&self) -> usize {
        self.arena.len() / 4
    }
}
