//! Writing images: each to units that nothing needs.

use super::PlacedPages;
use super::promise::growth;
use super::state::{Placing, State};
use crate::counters::Counter;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::header::page_lsn;
use inkstone_format::image::{self, Codec, Compression, Made, Packer, UNIT_LEN};
use inkstone_format::place_map::{BLOCK_PLACES, Place};
use inkstone_format::{Lsn, PageId, PageNo};
use inkstone_io::AlignedBuffer;
use std::time::Duration;

/// Units that compaction gathers at once for images that wait, if one of them alone needs no more.
const COMPACTED_UNITS: u32 = 256;
/// A thread that waits for others' images looks as often, at least, whether it is in vain.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// An image that was made, of a page as it was at an LSN.
type Image = (PageNo, Lsn, Made);

fn units_of(image: &Image) -> u32 {
    image.2.length.div_ceil(UNIT_LEN as u32)
}

impl PlacedPages {
    /// Finds units for the images of some pages. Those that are compressed are made, one behind the
    /// other in `room`; the others are the pages as they are. Pages for which there are no units
    /// are left out; the error says why.
    pub fn prepare<'p>(
        &self,
        pages: impl Iterator<Item = (PageNo, Lsn, &'p [u8])>,
        room: &mut [u8],
        packer: &mut Packer,
    ) -> (Vec<Placing>, Option<Error>) {
        let (mut units, mut at, mut made, mut compressed) = (0, 0, Vec::new(), 0);
        for (page, lsn, bytes) in pages {
            let id = PageId::new(self.space, page);
            let compression = if self.attempts.is_due() {
                self.compression
            } else {
                Compression::None
            };
            let image = image::make(compression, (id, lsn), bytes, &mut room[at..], packer);
            let is_compressed = image.codec != Codec::None;
            self.attempts.note(is_compressed);
            if is_compressed {
                compressed += 1;
                at += image.unit_bytes();
            }
            units += (image.unit_bytes() / UNIT_LEN) as u32;
            made.push((page, lsn, image));
        }
        self.counters.add(Counter::PagesCompressed, compressed);
        paranoid!(
            at <= room.len() && at.is_multiple_of(UNIT_LEN) && !made.is_empty(),
            "{} images take {at} bytes of {}, and {units} units",
            made.len(),
            room.len()
        );
        match self.take_all(&made, units) {
            Ok(placings) => (placings, None),
            // Some of them at least: what they leave is free when the map is settled.
            Err(error @ Error::DiskFull { .. }) => match self.take_some(&made) {
                Ok(placings) if placings.len() == made.len() => (placings, None),
                Ok(placings) => (placings, Some(error)),
                Err(error) => (Vec::new(), Some(error)),
            },
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    fn take_all(&self, made: &[Image], units: u32) -> Result<Vec<Placing>> {
        loop {
            if let Some(placings) = self.try_take_all(made, units) {
                return Ok(placings);
            }
            // Not before much waits: to settle little takes as long, and pages wait for it.
            if self.settle_if_due(None)?
                && let Some(placings) = self.try_take_all(made, units)
            {
                return Ok(placings);
            }
            let growing = self.growing.lock();
            let step = growth(self.state.lock().units.count()).max(units);
            let grown = match self.grow_by(step) {
                Err(Error::DiskFull { .. }) if step > units => self.grow_by(units),
                grown => grown,
            };
            drop(growing);
            match grown {
                Err(error @ Error::DiskFull { .. }) => {
                    self.settle()?;
                    return self.try_take_all(made, units).ok_or(error);
                }
                grown => grown?,
            }
        }
    }

    /// The first of them, as many as find a place. None only where there is too little free, and no
    /// image of others is on its way that would leave its old units.
    fn take_some(&self, made: &[Image]) -> Result<Vec<Placing>> {
        loop {
            let landed = self.state.lock().landed;
            self.settle()?;
            let mut placings = self.take_each(made);
            if placings.is_empty() && self.await_landing(landed)? {
                continue;
            }
            if placings.is_empty() {
                placings = self.take_scattered(made)?;
            }
            if !placings.is_empty() || !self.await_landing(landed)? {
                return Ok(placings);
            }
        }
    }

    /// As [`take_each`](Self::take_each), where what is free is too scattered for the first one:
    /// images are moved for it and some others.
    fn take_scattered(&self, made: &[Image]) -> Result<Vec<Placing>> {
        paranoid!(!made.is_empty(), "units are brought together for nothing");
        let _moving = self.moving.lock();
        let placings = self.take_each(made);
        if !placings.is_empty() {
            return Ok(placings);
        }
        let wanted = made.iter().map(units_of).sum::<u32>().min(COMPACTED_UNITS);
        self.compact(units_of(&made[0]), wanted)?;
        Ok(self.take_each(made))
    }

    /// Waits while images are on their way, until one has landed since: false if there is none.
    fn await_landing(&self, landed: u64) -> Result<bool> {
        let mut state = self.state.lock();
        while state.landed == landed {
            if state.flying == 0 {
                return Ok(false);
            }
            // What fails for good tells nothing but the poison.
            self.landing.wait_for(&mut state, LOOK_EVERY);
            self.poison.check()?;
        }
        Ok(true)
    }

    /// The first of them, as many as find a place.
    fn take_each(&self, made: &[Image]) -> Vec<Placing> {
        let mut state = self.state.lock();
        let placings = made.iter().map_while(|image| {
            let &(page, lsn, Made { codec, length }) = image;
            let unit = state.units.take_tight(units_of(image))?.start;
            let place = Place {
                unit,
                length,
                codec,
                lsn,
            };
            Some(Placing { page, place })
        });
        let placings: Vec<_> = placings.collect();
        paranoid!(
            placings.len() <= made.len(),
            "{} of {} images have units",
            placings.len(),
            made.len()
        );
        state.flying += placings.len() as u32;
        placings
    }

    /// One run for all, else one for each; `None` if some find no place.
    fn try_take_all(&self, made: &[Image], units: u32) -> Option<Vec<Placing>> {
        let mut state = self.state.lock();
        if state.units.free() < units {
            return None;
        }
        let mut run = state.units.take(units).map(|extent| extent.start);
        let mut placings = Vec::with_capacity(made.len());
        for &(page, lsn, Made { codec, length }) in made {
            let needed = length.div_ceil(UNIT_LEN as u32);
            let unit = match &mut run {
                Some(next) => {
                    let unit = *next;
                    *next += needed;
                    Some(unit)
                }
                None => state.units.take(needed).map(|extent| extent.start),
            };
            let Some(unit) = unit else {
                for placing in &placings {
                    state.units.give_back(Placing::extent(placing));
                }
                return None;
            };
            let place = Place {
                unit,
                length,
                codec,
                lsn,
            };
            placings.push(Placing { page, place });
        }
        paranoid!(
            placings.len() == made.len(),
            "{} of {} images have a place",
            placings.len(),
            made.len()
        );
        state.flying += placings.len() as u32;
        Some(placings)
    }

    /// Images that could not be written: their units are free again.
    pub fn give_up(&self, placings: &[Placing]) {
        let mut state = self.state.lock();
        for placing in placings {
            state.units.give_back(placing.extent());
        }
        self.end_flights(&mut state, placings.len());
    }

    /// Images that have landed, or will not.
    fn end_flights(&self, state: &mut State, count: usize) {
        paranoid!(
            count <= state.flying as usize,
            "{count} images land, and {} were on their way",
            state.flying
        );
        state.flying -= count as u32;
        state.landed += count as u64;
        self.landing.notify_all();
    }

    /// Images that are durable: the pages are there from now on.
    pub fn land(&self, placings: &[Placing]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for placing in placings {
            let page = placing.page.0 as usize;
            paranoid!(
                !placing.place.is_empty(),
                "page {} is placed nowhere",
                placing.page
            );
            let Some(place) = state.places.get_mut(page) else {
                // The tablespace was cut meanwhile.
                state.units.give_back(placing.extent());
                continue;
            };
            let old = std::mem::replace(place, placing.place);
            if old.is_empty() && placing.page.0 < state.promised {
                state.unplaced -= 1;
            }
            paranoid!(
                old.units() <= state.live,
                "page {} leaves {} units of {}",
                placing.page,
                old.units(),
                state.live
            );
            state.live = state.live + placing.place.units() - old.units();
            let block = &mut state.blocks[page / BLOCK_PLACES];
            state.waiting += block.leave(page % BLOCK_PLACES, &old, &mut state.units);
        }
        self.end_flights(state, placings.len());
        self.is_dirty.store(true, Ordering::Release);
        self.note_room(state);
    }

    /// Writes a page past the page writer; it is durable when the map has been settled.
    pub fn write(&self, page: PageNo, bytes: &[u8]) -> Result<()> {
        paranoid!(
            bytes.len() == self.page_size as usize,
            "{} bytes are written as page {page}",
            bytes.len()
        );
        let mut room = AlignedBuffer::zeroed(self.page_size as usize);
        let pages = std::iter::once((page, page_lsn(bytes), bytes));
        let (placings, error) = self.prepare(pages, &mut room, &mut self.packer.lock());
        if let Some(error) = error {
            self.give_up(&placings);
            return Err(error);
        }
        if !placings.iter().any(Placing::is_compressed) {
            room.copy_from_slice(bytes);
        }
        let written = placings.iter().try_for_each(|placing| {
            let in_use = self
                .data
                .acquire(&self.open_files, inkstone_io::Create::Never)?;
            let image = &room[..placing.unit_bytes()];
            let written = in_use.begin_write().write_at(image, placing.offset());
            let id = PageId::new(self.space, page);
            written.map_err(|e| Error::io(format!("write page {id} to"), self.data.path(), e))
        });
        if written.is_err() {
            self.give_up(&placings);
            return written;
        }
        self.is_unsynced.store(true, Ordering::Release);
        self.land(&placings);
        Ok(())
    }
}
