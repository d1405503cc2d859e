//! The areas of the doublewrite file: which batch goes to which, and which copies must stay. A
//! writer takes an area for each batch, and waits if all are taken: the holder of an area is
//! writing, and never waits for another one.
//!
//! # The life of an area
//!
//! ```text
//!   free --take_area--> taken --write_batch--> holding --in_place_done--> free
//!    ^                                            |
//!    |                                            +-- in_place_done, writes failed --> kept
//!    |                                                                                  |
//!    +---- the last of its kept pages was written in place, or gathered elsewhere ------+
//! ```
//!
//! *Holding*: the area's copies may be all that is whole of some pages, because they are being
//! overwritten in place. Dropped like that (a sync failed: the engine is poisoned) it is not used
//! again.
//!
//! *Kept*: the write in place of some of the pages failed. Their copies here are all that is whole
//! of them, and stay until a later write in place of the same page is durable. They are what
//! protects that write, too: recovery puts the copy in place and the log has what changed since. So
//! a page with a kept copy gets no other ([`DoublewriteFile::keeps`]), however often it is tried.
//!
//! # Why lasting failures of one file do not stop the others
//!
//! 1. Kept copies are gathered: those of two areas in a third ([`DoublewriteFile::gather`]). One
//!    area is given to no batch, so that there is a third.
//! 2. A file with [`KEPT_OF_FILE_MAX`] kept copies gets no area for others of its pages
//!    ([`DoublewriteFile::is_crowded_by`]): they wait until some of the kept ones were written.
//!
//! Where kept copies fill the file all the same, pages that need a copy stay dirty, with the error
//! of the last write that failed.

use super::DoublewriteFile;
use crate::counters::Timed;
use crate::paranoid::{MANY, paranoid};
use crate::poison::syncs::SyncMoment;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::{Error, Result, invariant};
use inkstone_format::doublewrite::{BLOCK_LEN, BatchEntry, BatchHeader, image_crc};
use inkstone_format::header::check_page;
use inkstone_format::{PageId, PageNo, SpaceId};
use inkstone_io::{AlignedBuffer, Batch, Op};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Kept copies from which on a file gets no more.
const KEPT_OF_FILE_MAX: usize = 32;

/// The areas of an open file.
#[derive(Debug)]
pub(super) struct Areas {
    state: Mutex<State>,
    /// Signalled when an area is given back, or kept.
    given_back: Condvar,
    /// Copy of the number of kept copies.
    kept: AtomicUsize,
    /// How many are not given to batches.
    spare: usize,
}

/// Those in none of the fields are not used again.
#[derive(Debug)]
struct State {
    /// The first one given back is taken first. Syncs that were under way at that moment must end
    /// well before it is written.
    free: VecDeque<(u32, SyncMoment)>,
    /// Each is given back by its holder, whatever becomes of the copies that are kept there.
    taken: BTreeSet<u32>,
    kept: BTreeMap<PageId, Place>,
    /// The areas whose kept copies are being gathered.
    gathering: Option<[u32; 2]>,
    /// Why copies are kept.
    why: Option<Error>,
}

/// Where a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    area: u32,
    image: u32,
}

impl Areas {
    pub fn new(areas: u32) -> Self {
        let free = |area| (area, SyncMoment::default());
        let state = State {
            free: (0..areas).map(free).collect(),
            taken: BTreeSet::new(),
            kept: BTreeMap::new(),
            gathering: None,
            why: None,
        };
        Self {
            state: Mutex::new(state),
            given_back: Condvar::new(),
            kept: AtomicUsize::new(0),
            spare: usize::from(areas > 1),
        }
    }
}

impl State {
    /// An area is free, or taken, or has kept copies, or is none of these for good; a copy that is
    /// kept is where no batch is written.
    fn check(&self, areas: u32, batch_pages: u32) {
        let free = self.free.len() as u32;
        paranoid!(
            free + self.taken.len() as u32 <= areas,
            "{free} areas are free and {:?} taken, of {areas}",
            self.taken
        );
        let mut seen = self.taken.clone();
        paranoid!(
            self.free
                .iter()
                .take(MANY)
                .all(|(area, _)| seen.insert(*area)),
            "an area is free twice, or taken as well"
        );
        for (id, place) in self.kept.iter().take(MANY) {
            paranoid!(
                place.area < areas && place.image < batch_pages,
                "the copy of page {id} is kept in area {} at {}",
                place.area,
                place.image
            );
            paranoid!(
                self.taken.contains(&place.area) || !seen.contains(&place.area),
                "the copy of page {id} is kept in area {}, which is free",
                place.area
            );
        }
    }

    /// Gives an area back, if nothing is kept there, and it is not taken or being gathered.
    fn release(&mut self, area: u32, moment: SyncMoment) {
        paranoid!(
            self.free.iter().take(MANY).all(|(free, _)| *free != area),
            "area {area} is given back, and was free"
        );
        let gathered = self.gathering.is_some_and(|areas| areas.contains(&area));
        let is_held = gathered || self.taken.contains(&area);
        if !is_held && self.kept.values().all(|place| place.area != area) {
            self.free.push_back((area, moment));
        }
    }

    /// The two areas with the fewest kept copies.
    fn sparsest(&self) -> Option<[(u32, usize); 2]> {
        let mut of_areas = BTreeMap::new();
        for place in self.kept.values() {
            *of_areas.entry(place.area).or_insert(0) += 1;
        }
        let mut of_areas: Vec<(u32, usize)> = of_areas.into_iter().collect();
        of_areas.sort_unstable_by_key(|&(_, copies)| copies);
        of_areas.first_chunk().copied()
    }
}

impl DoublewriteFile {
    /// An area for one batch. Waits while others have all of them. Fails if copies are kept in all.
    pub(crate) fn take_area(self: &Arc<Self>) -> Result<Area> {
        let mut state = self.areas.state.lock();
        let free = loop {
            if state.free.len() > self.areas.spare
                && let Some(free) = state.free.pop_front()
            {
                break free;
            }
            if state.taken.is_empty() {
                self.poison.check()?;
                return Err(state.why.clone().unwrap_or_else(|| {
                    let reason = "no area of the doublewrite file can be used";
                    self.poison.set(reason)
                }));
            }
            self.areas.given_back.wait(&mut state);
        };
        self.prepare_area(state, free)
    }

    fn prepare_area(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        (number, settled): (u32, SyncMoment),
    ) -> Result<Area> {
        state.taken.insert(number);
        paranoid!(
            state
                .kept
                .values()
                .take(MANY)
                .all(|place| place.area != number),
            "area {number} is taken, and holds copies that must stay"
        );
        drop(state);
        let mut area = Area {
            doublewrite: self.clone(),
            number,
            // Until it is known that its copies are not needed.
            holding: true,
            pages: Vec::new(),
            failed: Vec::new(),
            why: None,
            header: AlignedBuffer::zeroed(BLOCK_LEN),
        };
        self.poison.settle_syncs(settled)?;
        area.holding = false;
        Ok(area)
    }

    /// Whether any copies are kept.
    pub(crate) fn keeps_any(&self) -> bool {
        self.areas.kept.load(Ordering::Acquire) > 0
    }

    /// Whether a copy of the page is kept: then it may be written in place without another one.
    pub(crate) fn keeps(&self, id: PageId) -> bool {
        self.areas.state.lock().kept.contains_key(&id)
    }

    /// Why a file gets no more copies, if so: so many of them are kept.
    pub(crate) fn is_crowded_by(&self, space: SpaceId) -> Option<Error> {
        let state = self.areas.state.lock();
        let pages = PageId::new(space, PageNo(0))..=PageId::new(space, PageNo(u32::MAX));
        let crowded = state.kept.range(pages).count() >= KEPT_OF_FILE_MAX;
        state.why.clone().filter(|_| crowded)
    }

    /// Copies of these pages need not be kept any more: they are durable in place, or will not be
    /// read again.
    pub(crate) fn give_up(&self, is_one: impl Fn(PageId) -> bool) {
        let mut state = self.areas.state.lock();
        let mut areas = BTreeSet::new();
        state.kept.retain(|&id, place| {
            let gone = is_one(id);
            if gone {
                areas.insert(place.area);
            }
            !gone
        });
        let moment = self.poison.sync_moment();
        for area in areas {
            state.release(area, moment);
        }
        self.end_change(state);
    }

    fn end_change(&self, state: MutexGuard<'_, State>) {
        state.check(self.layout.areas, self.layout.batch_pages);
        let kept = state.kept.len();
        self.areas.kept.store(kept, Ordering::Release);
        drop(state);
        // All of them: if copies are kept in all areas now, none will come.
        self.areas.given_back.notify_all();
    }

    /// Puts the kept copies of two areas into one, if there are two and they fit.
    pub(crate) fn gather(self: &Arc<Self>, batch: &mut dyn Batch) -> Result<()> {
        let mut state = self.areas.state.lock();
        let Some([first, second]) = state.sparsest().filter(|_| state.gathering.is_none()) else {
            return Ok(());
        };
        if first.1 + second.1 > self.batch_pages() {
            return Ok(());
        }
        let Some(free) = state.free.pop_front() else {
            return Ok(());
        };
        let from = [first.0, second.0];
        state.gathering = Some(from);
        let kept = state.kept.iter().map(|(&id, &place)| (id, place));
        let pages: Vec<_> = kept.filter(|(_, at)| from.contains(&at.area)).collect();
        let gathered = self
            .prepare_area(state, free)
            .and_then(|area| self.copy_kept(area, &pages, batch));
        self.end_gathering(from, &pages, gathered)
    }

    /// Copies kept copies to an area, durably.
    fn copy_kept(
        &self,
        mut area: Area,
        pages: &[(PageId, Place)],
        batch: &mut dyn Batch,
    ) -> Result<Area> {
        let page_size = self.layout.page_size as usize;
        let mut room = AlignedBuffer::zeroed(pages.len() * page_size);
        paranoid!(
            pages.iter().all(|(_, at)| at.area != area.number),
            "copies of area {} are gathered in it",
            area.number
        );
        for (image, &(id, at)) in room.chunks_exact_mut(page_size).zip(pages) {
            let offset = self.layout.image_offset(at.area, at.image);
            let read = self.file.read_at(image, offset);
            read.map_err(|e| Error::io("read a page copy from", &self.path, e))?;
            check_page(image, id).map_err(|c| Error::corrupt_page(&self.path, id, c))?;
        }
        let images = pages.iter().zip(room.chunks_exact(page_size));
        let copies: Vec<_> = images.map(|((id, _), image)| (*id, image)).collect();
        area.write_batch(batch, &copies)?;
        Ok(area)
    }

    /// The copies are where they were gathered, unless that failed.
    fn end_gathering(
        &self,
        from: [u32; 2],
        pages: &[(PageId, Place)],
        gathered: Result<Area>,
    ) -> Result<()> {
        let mut state = self.areas.state.lock();
        paranoid!(
            state.gathering == Some(from),
            "areas {from:?} were gathered, or {:?}",
            state.gathering
        );
        state.gathering = None;
        if let Ok(area) = &gathered {
            for (image, (id, was)) in (0..).zip(pages) {
                let area = area.number;
                // Unless it was written in place meanwhile.
                if let Some(place) = state.kept.get_mut(id).filter(|place| *place == was) {
                    *place = Place { area, image };
                }
            }
        }
        let moment = self.poison.sync_moment();
        for area in from {
            state.release(area, moment);
        }
        self.end_change(state);
        // Dropped with nothing under the latch: it is given back if nothing is kept there after
        // all.
        gathered.map(|mut area| area.holding = false)
    }
}

/// An area of the doublewrite file, taken for one batch.
pub(crate) struct Area {
    doublewrite: Arc<DoublewriteFile>,
    number: u32,
    /// Whether the copies here may be all that is whole of some pages.
    holding: bool,
    /// Those of the last batch.
    pages: Vec<PageId>,
    /// Those of them whose write in place failed, and why.
    failed: Vec<(PageId, Place)>,
    why: Option<Error>,
    header: AlignedBuffer,
}

impl Area {
    /// Makes copies of the pages durable: one write, one sync. From here on the area is held,
    /// until [`Area::in_place_done`].
    pub fn write_batch(&mut self, batch: &mut dyn Batch, pages: &[(PageId, &[u8])]) -> Result<()> {
        let doublewrite = self.doublewrite.clone();
        invariant!(
            !self.holding && pages.len() <= doublewrite.batch_pages(),
            "area {} takes no batch of {} pages now",
            self.number,
            pages.len()
        );
        let entries = pages.iter().map(|&(id, bytes)| BatchEntry {
            id,
            crc: image_crc(bytes),
        });
        let header = BatchHeader {
            sequence: doublewrite.sequence.fetch_add(1, Ordering::Relaxed),
            entries: entries.collect(),
        };
        header.encode(&doublewrite.layout, &mut self.header);
        let header = std::iter::once(&*self.header);
        let buffers: Vec<_> = header.chain(pages.iter().map(|&(_, b)| b)).collect();
        let bytes = buffers.iter().map(|b| b.len() as u64).sum();
        let file = &*doublewrite.file;
        let mut operations = [Op::Write {
            file,
            buffers,
            offset: doublewrite.layout.area_offset(self.number),
            atomic: false,
        }];
        let timing = doublewrite.counters.time(Timed::DoublewriteWrite);
        let written = batch.run(&mut operations).into_iter().collect();
        drop(timing);
        doublewrite.finish_batch(written, pages.len() as u64, bytes)?;
        self.pages = pages.iter().map(|&(id, _)| id).collect();
        self.holding = true;
        Ok(())
    }

    /// The pages of the batch are durable in place, but for those that did not land: their copies
    /// are kept.
    pub fn in_place_done(mut self, landed: impl Fn(usize) -> bool, why: Option<&Error>) {
        let area = self.number;
        let failed = self.pages.iter().enumerate().filter(|(n, _)| !landed(*n));
        let image = |n: usize| Place {
            area,
            image: n as u32,
        };
        self.failed = failed.map(|(n, &id)| (id, image(n))).collect();
        paranoid!(
            self.holding && (self.failed.is_empty() || why.is_some()),
            "{} pages of area {area} did not land, for no reason",
            self.failed.len()
        );
        self.why = why.cloned();
        self.holding = false;
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let areas = &self.doublewrite.areas;
        let mut state = areas.state.lock();
        let was_taken = state.taken.remove(&self.number);
        paranoid!(was_taken, "area {} is not taken", self.number);
        if !self.holding {
            if !self.failed.is_empty() {
                state.why = self.why.take().or(state.why.take());
                state.kept.extend(self.failed.drain(..));
            }
            let moment = self.doublewrite.poison.sync_moment();
            state.release(self.number, moment);
        }
        self.doublewrite.end_change(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the last kept copy of an area is given up before the holder of the area lets go of it
    /// (it has just gathered copies there), two batches would share the area.
    #[test]
    fn an_area_is_given_back_by_its_holder() {
        let mut state = Areas::new(2).state.into_inner();
        let (moment, area) = (SyncMoment::default(), 0);
        state.free.retain(|(free, _)| *free != area);
        state.taken.insert(area);
        state.release(area, moment);
        state.check(2, 1);
        assert_eq!(state.free.len(), 1);
        state.taken.remove(&area);
        state.release(area, moment);
        state.check(2, 1);
        assert_eq!(state.free.len(), 2);
    }
}
