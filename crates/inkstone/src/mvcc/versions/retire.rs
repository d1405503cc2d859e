//! The end of segments: they are sealed when nothing is appended to them any more, and retired when
//! no snapshot needs them.

use super::VersionStore;
use super::segment::Segment;
use super::view::VersionView;
use crate::Result;
use crate::counters::Counter;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use inkstone_format::{Lsn, VersionAddress};

impl VersionStore {
    /// Retires every segment that no snapshot from `oldest_snapshot` on needs, after `purge` has
    /// seen its entries in order (those flagged [`NO_PURGE`] excepted). During the call the entry's
    /// own segment is still live. Entries that were rolled back, or overtaken by later changes, are
    /// shown too: purge acts only if the row's cell still has this very address. `log_end`: where
    /// the log stands. Returns how many retired.
    ///
    /// # Errors
    /// Those of `purge` and of reading the spill file: the segment at hand stays, and all of its
    /// entries will be shown again.
    pub fn retire(
        &self,
        oldest_snapshot: u64,
        log_end: Lsn,
        purge: &mut dyn FnMut(VersionAddress, &VersionView<'_>) -> Result<()>,
    ) -> Result<usize> {
        let _one_at_a_time = self.retiring.lock();
        let retirable: Vec<_> = {
            let sealed = self.sealed.lock();
            let all = sealed.all.values();
            all.filter(|s| s.is_retirable(oldest_snapshot))
                .cloned()
                .collect()
        };
        let mut failed = None;
        let mut retired = 0;
        for segment in &retirable {
            // One page that cannot be read must not keep all later segments.
            match segment
                .wants_purge()
                .then(|| segment.purge(self.path_of(segment), purge))
            {
                Some(Err(error)) => {
                    failed.get_or_insert(error);
                }
                _ => {
                    self.drop_segment(segment, log_end);
                    retired += 1;
                }
            }
        }
        if retired > 0 {
            let mut milestones = self.milestones.lock();
            milestones.remove_dead(|address| self.is_live(address));
        }
        failed.map_or(Ok(retired), Err)
    }

    /// `log_end`: where the log stands; what tells that the segment is needless is before it.
    fn drop_segment(&self, segment: &Segment, log_end: Lsn) {
        let number = segment.number;
        {
            let mut directory = self.directory.write();
            let was_live = directory.live.remove(&number).is_some();
            paranoid!(was_live, "segment {number} retired and was not live");
            self.oldest_live.set(&directory);
        }
        // With its file latched no thread is in the middle of spilling it.
        let mut file = if segment.is_logged() {
            self.undo.lock()
        } else {
            self.spill.lock()
        };
        {
            let mut sealed = self.sealed.lock();
            let was_sealed = sealed.all.remove(&number).is_some();
            paranoid!(was_sealed, "segment {number} retired and was not sealed");
            sealed.in_memory.remove(&number);
        }
        if let Some(room) = segment.take_room() {
            // It was never written, so nothing names it.
            file.release(room);
        }
        let extent = segment.retire();
        if extent.is_some() {
            let before = self.kept.fetch_sub(segment.memory(), Ordering::Relaxed);
            paranoid!(
                before >= segment.memory(),
                "spilled segments keep {before} bytes, one of them {}",
                segment.memory()
            );
        }
        match extent {
            // An earlier place in the log may name it.
            Some(extent) if segment.is_logged() => {
                drop(file);
                self.give_up_extent(extent, log_end);
            }
            Some(extent) => file.release(extent),
            None => {}
        }
        self.charge(-(segment.memory() as i64));
        self.counters.add(Counter::VersionSegmentsRetired, 1);
    }

    /// Seals the segments that were open at the last call already, so that what they hold can be
    /// purged and retired. To be called about twice a second. Returns how many.
    pub fn seal_idle(&self) -> usize {
        let mut count = 0;
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            let number = stripe.open.as_ref().map_or(0, |open| open.number);
            if number != 0
                && number == stripe.seen
                && let Some(open) = stripe.open.take()
            {
                self.seal(&open);
                count += 1;
            }
            stripe.seen = number;
        }
        count
    }
}
