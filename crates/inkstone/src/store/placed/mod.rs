//! Placed pages: an image of a page is written once, compressed, to units of the file that nothing
//! needs, and never over bytes that recovery may need. So no page is torn, and none needs a copy.
//!
//! Where each page is, the *place map* says: a file of its own beside the tablespace's
//! (`inkstone_format::place_map`), all of it in memory, 16 bytes a page.
//!
//! # A page is written
//!
//! 1. Its image goes to free units, and is synced.
//! 2. The map in memory says so ([`PlacedPages::land`]); from now on it is read there.
//! 3. The block of the map is written to the slot that is not the newest, and synced; then to the
//!    other one, and synced ([`PlacedPages::settle`]): before the next checkpoint, or when much
//!    waits for it.
//! 4. The units that it had before are free.
//!
//! # What holds after a crash
//!
//! The map is as the newest whole slot of each block says. Whatever a durable slot names is whole:
//! it was durable before the slot was written (1 before 3), and its units are not used again
//! before another slot of the block is durable (4). What the images lack is in the log from the
//! checkpoint on: a page counts as clean when it has landed, and before a checkpoint passes that
//! every block of which a page has landed is settled. That a block is newer than the checkpoint
//! does no harm: redo passes over what a page has.
//!
//! # What holds when the storage loses or damages something
//!
//! The slots of a block say the same but while it is written, so each stands for the other when it
//! is damaged, or is an older one that was put back. Where neither can be read, the block is lost:
//! its pages cannot be read, but all others can, and the units that no page has are not used, as
//! salvage may find the lost images there. A page that is written anew has a place again.
//!
//! The first unit of the tablespace's file says that it needs a map ([`PlaceMapHeader`]): without
//! one it is refused. Files that were made before that was so have an image there.
//!
//! A block that was written and not synced when the process died may be read, and be lost with
//! power later: the file of the map is synced when it is opened, before units are given out.
//!
//! # Promises
//!
//! 1. No unit is written that a place in memory, a durable slot or one that is being written
//!    names. Checked by `Units::take`. Tested by
//!    `whatever_a_crash_leaves_is_a_map_of_whole_images`.
//! 2. What was placed and settled is read after power loss; what was only placed is read, or what
//!    was there before. Tested by `whatever_a_crash_leaves_is_a_map_of_whole_images`.
//! 3. On a full disk each page is where it was, or where it was written. Tested by
//!    `on_a_full_disk_pages_stay_where_they_are`.
//! 4. With one slot of a block nothing is lost. Tested by
//!    `each_slot_of_a_block_stands_for_the_other`.
//! 5. A block that is lost loses its pages alone. Tested by
//!    `a_lost_block_of_the_map_loses_its_pages_alone`.
//! 6. A placed tablespace without a map is refused. Tested by `a_missing_map_is_refused`.
//!
//! # Latches
//!
//! `packer`, `moving`, `settling`, then `growing` (all held across I/O), then `state` (never held
//! across I/O).

mod attempts;
mod compaction;
mod gathering;
mod map_file;
mod promise;
mod settling;
mod state;
mod units;
mod writing;

use super::open_files::OpenFiles;
use super::table_file::TableFile;
use crate::counters::{Counter, Counters};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::atomic::{AtomicBool, AtomicU32};
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result};
use attempts::Attempts;
use inkstone_format::header::page_lsn;
use inkstone_format::image::{self, Codec, Compression, Made, Packer, UNIT_LEN};
use inkstone_format::place_map::{BLOCK_PLACES, Place, PlaceBlock, PlaceMapHeader, slot_offset};
use inkstone_format::{Corrupt, Lsn, PageId, PageNo, SpaceId};
use inkstone_io::AlignedBuffer;
use map_file::MapFile;
use promise::hole_of;
use state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{Extent, Units};

pub(super) use map_file::{is_empty_place_map, parse_place_map_file_name};
pub use map_file::{is_place_map_file_name, place_map_file_name};
pub(super) use state::Placing;

/// Buffers for reading that are kept.
const IDLE_BUFFERS_MAX: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct PlacedPages {
    space: SpaceId,
    page_size: u32,
    compression: Compression,
    attempts: Attempts,
    data: Arc<TableFile>,
    map: MapFile,
    open_files: Arc<OpenFiles>,
    counters: Arc<Counters>,
    poison: Poison,
    state: Mutex<State>,
    /// Images have landed.
    landing: Condvar,
    /// Some block is to be written.
    is_dirty: AtomicBool,
    /// An image was written past the page writer, and is not synced.
    is_unsynced: AtomicBool,
    /// Units that pages may take when their images become longer, with the slack.
    room: AtomicU32,
    /// Of these the slack.
    slack: AtomicU32,
    /// Held while images are moved.
    moving: Mutex<()>,
    /// Held while blocks are written.
    settling: Mutex<()>,
    /// Held while the file's size changes.
    growing: Mutex<()>,
    idle: Mutex<Vec<AlignedBuffer>>,
    /// For pages that are written past the page writer.
    packer: Mutex<Packer>,
    /// Why a block of the map could not be read.
    lost: BTreeMap<u32, Error>,
}

/// What the first unit of the file is for.
const HEADER: Extent = Extent {
    start: 0,
    length: 1,
};

/// What placed pages share with the files of the database.
pub(super) struct Shared {
    pub open_files: Arc<OpenFiles>,
    pub counters: Arc<Counters>,
    pub poison: Poison,
}

impl PlacedPages {
    /// Makes the map of a new tablespace: durable but for its name. Its file is to begin with what
    /// [`PlaceMapHeader::encode_in_data`] says.
    pub fn create(
        header: PlaceMapHeader,
        data: Arc<TableFile>,
        map: Arc<TableFile>,
        shared: Shared,
    ) -> Result<Self> {
        let map = MapFile::create(map, &shared.open_files, &header)?;
        let mut state = State::empty(Units::with_header(HEADER.length));
        state.live = HEADER.length;
        state.units.keep_hole(hole_of(header.page_size));
        Ok(Self::new(header, data, map, state, shared, BTreeMap::new()))
    }

    /// Reads the map of a tablespace. `data_bytes`: the length of its file. The compression
    /// is the map's.
    pub fn open(
        expected: PlaceMapHeader,
        data: Arc<TableFile>,
        data_bytes: u64,
        map: Arc<TableFile>,
        shared: Shared,
    ) -> Result<Self> {
        let (map, header, blocks) = MapFile::open(map, &shared.open_files)?;
        let (space, page_size) = (expected.space, expected.page_size);
        if header.space != space || header.page_size != page_size {
            let detail = format!(
                "the place map of tablespace {} with pages of {} bytes, not of {space} with \
                 {page_size}",
                header.space, header.page_size
            );
            return Err(Error::corrupt_file(map.path(), 0, detail));
        }
        let count = u32::try_from(data_bytes / UNIT_LEN as u64).unwrap_or(u32::MAX);
        let mut state = State::empty(Units::new(count));
        state.places.reserve_exact(blocks.len() * BLOCK_PLACES);
        state.blocks.reserve_exact(blocks.len());
        let mut lost = BTreeMap::new();
        for (number, block) in blocks.into_iter().enumerate() {
            let number = number as u32;
            let block = block.unwrap_or_else(|error| {
                lost.insert(number, error);
                PlaceBlock::lost()
            });
            let taken = state.take_block(number, &block);
            taken.map_err(|(page, detail)| {
                let at = slot_offset(number, block.written) + 16 * (1 + page as u64);
                Error::corrupt_file(map.path(), at, detail)
            })?;
        }
        // Of a file that was made before files had a header an image may be there.
        if state.units.occupy(HEADER) {
            state.live += HEADER.length;
        }
        if state.places.iter().any(Place::is_lost) {
            state.use_none();
        }
        state.units.keep_hole(hole_of(page_size));
        let pages = state.placed_pages();
        let placed = Self::new(header, data, map, state, shared, lost);
        placed.owe(pages);
        Ok(placed)
    }

    fn new(
        header: PlaceMapHeader,
        data: Arc<TableFile>,
        map: MapFile,
        state: State,
        shared: Shared,
        lost: BTreeMap<u32, Error>,
    ) -> Self {
        Self {
            space: header.space,
            page_size: header.page_size,
            compression: header.compression,
            attempts: Attempts::default(),
            data,
            map,
            open_files: shared.open_files,
            counters: shared.counters,
            poison: shared.poison,
            state: Mutex::new(state),
            landing: Condvar::new(),
            is_dirty: AtomicBool::new(false),
            is_unsynced: AtomicBool::new(false),
            room: AtomicU32::new(0),
            slack: AtomicU32::new(0),
            moving: Mutex::new(()),
            settling: Mutex::new(()),
            growing: Mutex::new(()),
            idle: Mutex::default(),
            packer: Mutex::default(),
            lost,
        }
    }

    /// How new images are stored.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How many pages the map has room for.
    pub fn pages(&self) -> u32 {
        self.state.lock().places.len() as u32
    }

    /// Bytes of the tablespace's file.
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.state.lock().units.count()) * UNIT_LEN as u64
    }

    /// Bytes of the units that are free, the hole among them.
    pub fn free_bytes(&self) -> u64 {
        let (free, count) = {
            let units = &self.state.lock().units;
            (units.free() + units.hole().length, units.count())
        };
        paranoid!(free <= count, "{free} units of {count} are free");
        u64::from(free) * UNIT_LEN as u64
    }

    /// Bytes of the units that pages have.
    #[cfg(test)]
    pub fn live_bytes(&self) -> u64 {
        let state = self.state.lock();
        let live = state.places.iter().map(Place::units);
        live.map(u64::from).sum::<u64>() * UNIT_LEN as u64
    }

    /// Puts the page of an image into `page`, if the image is still its own: false if not, or if
    /// there is anything wrong with it.
    pub fn unpack(&self, number: PageNo, place: &Place, image: &[u8], page: &mut [u8]) -> bool {
        let id = PageId::new(self.space, number);
        image::unpack(made_of(place), id, image, page).is_ok()
            && page_lsn(page) == place.lsn
            && self.place(number) == *place
    }

    /// Where a page is.
    pub fn place(&self, page: PageNo) -> Place {
        let state = self.state.lock();
        state
            .places
            .get(page.0 as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Reads a page, whichever checksum it has; one that was never written is zeroes. The page LSN
    /// that it must have.
    pub fn read(&self, page: PageNo, buffer: &mut [u8]) -> Result<Option<Lsn>> {
        paranoid!(
            buffer.len() == self.page_size as usize,
            "page {page} is read into {} bytes",
            buffer.len()
        );
        loop {
            let place = self.place(page);
            if place.is_lost() {
                return Err(self.lost(page));
            }
            if place.is_empty() {
                buffer.fill(0);
                return Ok(None);
            }
            let read = if place.codec == Codec::None && place.length == self.page_size {
                self.read_units(page, &place, buffer)
            } else {
                self.read_packed(page, &place, buffer)
            };
            // Its units may be another page's by now if it was placed anew meanwhile.
            if self.place(page) == place {
                return read.map(|()| Some(place.lsn));
            }
        }
    }

    /// That it is not known where a page is.
    fn lost(&self, page: PageNo) -> Error {
        let number = page.0 / BLOCK_PLACES as u32;
        let (offset, why) = match self.lost.get(&number) {
            Some(Error::Corrupt { offset, detail, .. }) => (*offset, detail.as_str()),
            _ => (slot_offset(number, 0), "it was damaged when it was read"),
        };
        let detail = format!(
            "block {number} of the place map has lost where the page is ({why}); restore the table \
             from a backup, or let `inkstone recover --salvage` look for its pages"
        );
        Error::Corrupt {
            file: self.map.path().to_owned(),
            page: Some(PageId::new(self.space, page)),
            offset,
            detail,
        }
    }

    fn read_packed(&self, page: PageNo, place: &Place, buffer: &mut [u8]) -> Result<()> {
        let corrupt = |c| Error::corrupt_page(self.data.path(), PageId::new(self.space, page), c);
        let units = place.units() as usize * UNIT_LEN;
        if units > self.page_size as usize {
            let detail = format!("an image of {} bytes", place.length);
            return Err(corrupt(Corrupt::at(0, detail)));
        }
        let idle = self.idle.lock().pop();
        let mut room = idle.unwrap_or_else(|| AlignedBuffer::zeroed(self.page_size as usize));
        let read = self.read_units(page, place, &mut room[..units]);
        let unpacked = read.and_then(|()| {
            let id = PageId::new(self.space, page);
            image::unpack(made_of(place), id, &room, buffer).map_err(corrupt)
        });
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_BUFFERS_MAX {
            idle.push(room);
        }
        unpacked
    }

    fn read_units(&self, page: PageNo, place: &Place, bytes: &mut [u8]) -> Result<()> {
        paranoid!(
            bytes.len() == place.units() as usize * UNIT_LEN,
            "{} units are read into {} bytes",
            place.units(),
            bytes.len()
        );
        let in_use = self
            .data
            .acquire(&self.open_files, inkstone_io::Create::Never)?;
        let offset = u64::from(place.unit) * UNIT_LEN as u64;
        let read = in_use.bytes().read_at(bytes, offset);
        drop(in_use);
        read.map_err(|e| {
            let id = PageId::new(self.space, page);
            Error::io(format!("read page {id} of"), self.data.path(), e)
        })?;
        self.counters.add(Counter::DataReadCalls, 1);
        Ok(())
    }
}

fn made_of(place: &Place) -> Made {
    Made {
        codec: place.codec,
        length: place.length,
    }
}
