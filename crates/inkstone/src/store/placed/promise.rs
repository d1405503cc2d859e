//! The size of the file, and what it promises: a page that is allocated can be written, however
//! full the disk is.
//!
//! A page that was placed leaves units when it is written anew, and they are free when the map has
//! been settled. So there is room for one after the other, in rounds, if there is some to begin
//! with: the *slack*. A page that was never placed leaves nothing. So the file grows when pages are
//! allocated, not when they are written: units that no page has are at least the slack, and those
//! of a whole page for each one that has a promise and was never placed. What such a page does not
//! need of them, as it is compressed, serves the next ones, or is cut off.
//!
//! An image that is compressed may become longer when rows are changed. So before a statement does
//! that, the file has units for what all dirty pages may become ([`PlacedPages::has_room`]), up to
//! [`LONGER_UNITS_MAX`]. What images become longer by deletes and rollbacks, which nothing can
//! refuse, is taken from the slack. Where free units are scattered, they are brought together
//! (`compaction.rs`).
//!
//! After a crash the map says less than it did, and pages that it does not name are written anew.
//! There are units for them, as all of that was in the file before: old images, and new ones beside
//! them. Only what is allocated then is to have units of its own.
//!
//! # Promises
//!
//! 1. On a full disk each page that is allocated can be written, in whatever order, again and
//!    again, after a crash too. Tested by `what_is_allocated_is_written_on_a_full_disk`.
//! 2. On a full disk what makes data grow fails, and all else goes on. Tested by
//!    `a_full_disk_stops_what_grows_and_nothing_else`, `images_that_become_long_on_a_full_disk`,
//!    `a_full_disk_that_stays_full_after_a_kill_has_all_rows`.

use super::PlacedPages;
use super::state::{Block, State};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::image::{Compression, UNIT_LEN};
use inkstone_format::place_map::{BLOCK_PLACES, Place};

/// A file grows by this part of itself, within these bounds.
const GROWTH_PARTS: u32 = 32;
const GROWTH_UNITS: std::ops::RangeInclusive<u32> = 16..=4096;
/// The file is cut when so many units at its end are free, and this part of it.
const CUT_UNITS_MIN: u32 = 256;
const CUT_PARTS: u32 = 8;
/// Units that a file has in advance for images that become longer, at most: 16 MiB.
const LONGER_UNITS_MAX: usize = 4096;

/// By how many units a file of so many grows.
pub(super) fn growth(count: u32) -> u32 {
    (count / GROWTH_PARTS).clamp(*GROWTH_UNITS.start(), *GROWTH_UNITS.end())
}

/// Units side by side that a file of such pages keeps.
pub(super) fn hole_of(page_size: u32) -> u32 {
    2 * page_size.div_ceil(UNIT_LEN as u32)
}

impl PlacedPages {
    /// How many pages, from the first on, have a promise, or had it when they were allocated.
    pub fn promised(&self) -> u32 {
        self.state.lock().promised
    }

    /// Whether so many pages have one, and there are units for each.
    pub fn promises(&self, pages: u32) -> bool {
        let has_room = || self.room.load(Ordering::Relaxed) >= self.slack(0);
        pages <= self.promised() && (has_room() || mutants::on(Mutant::PlacedUnpromised))
    }

    /// Makes room in the map for `pages` pages, and in the file: each can be written from now on.
    /// When the disk is full nothing changes.
    pub fn ensure_pages(&self, pages: u32) -> Result<()> {
        let _growing = self.growing.lock();
        self.grow_map(pages)?;
        self.grow_for(pages)?;
        self.owe(pages);
        paranoid!(
            self.promised() >= pages,
            "{} pages have a promise, of {pages}",
            self.promised()
        );
        Ok(())
    }

    /// Makes room in the map for `pages` pages that there were before, as the log says. What was
    /// allocated had its units then; but another page is promised only when there are enough again.
    pub fn reach_pages(&self, pages: u32) -> Result<()> {
        let _growing = self.growing.lock();
        self.grow_map(pages)?;
        self.owe(pages);
        paranoid!(
            self.pages() >= pages,
            "a map of {} pages reaches as far as {pages}",
            self.pages()
        );
        Ok(())
    }

    /// The caller holds `growing`.
    fn grow_map(&self, pages: u32) -> Result<()> {
        paranoid!(pages > 0, "a place map is to have room for no page");
        let now = self.state.lock().blocks.len() as u32;
        let blocks = pages.div_ceil(BLOCK_PLACES as u32);
        if blocks <= now {
            return Ok(());
        }
        self.map.grow(&self.open_files, now, blocks)?;
        let (mut state, blocks) = (self.state.lock(), blocks as usize);
        state.blocks.resize_with(blocks, Block::default);
        state.places.resize(blocks * BLOCK_PLACES, Place::default());
        Ok(())
    }

    /// Units for a promise of so many pages. The caller holds `growing`.
    fn grow_for(&self, pages: u32) -> Result<()> {
        let (short, step) = {
            let state = self.state.lock();
            let owed = if mutants::on(Mutant::PlacedUnpromised) {
                self.slack(state.units.count())
            } else {
                self.owed(&state, pages)
            };
            let short = owed.saturating_sub(state.available());
            (short, growth(state.units.count()))
        };
        if short > 0 {
            self.grow_by_about(short, step)?;
        }
        Ok(())
    }

    /// What is left for pages the images of which become longer.
    pub(super) fn note_room(&self, state: &State) {
        paranoid!(
            state.unplaced <= state.promised && state.promised as usize <= state.places.len(),
            "{} pages of {} that are promised have no place, in a map of {}",
            state.unplaced,
            state.promised,
            state.places.len()
        );
        let promised = state.unplaced.saturating_mul(self.units_of_page());
        let room = state.available().saturating_sub(promised);
        self.room.store(room, Ordering::Relaxed);
        let slack = self.slack(state.units.count());
        self.slack.store(slack, Ordering::Relaxed);
    }

    /// Whether there are units for what the images of so many dirty pages may become. Pages as they
    /// are need no more than they have.
    pub fn has_room(&self, dirty: usize) -> bool {
        self.compression == Compression::None
            || self.growth_of(dirty) <= self.room.load(Ordering::Relaxed)
    }

    /// Makes that room. When the disk is full nothing changes.
    pub fn make_room(&self, dirty: usize) -> Result<()> {
        let _growing = self.growing.lock();
        let room = self.room.load(Ordering::Relaxed);
        let short = self.growth_of(dirty).saturating_sub(room);
        if short == 0 {
            return Ok(());
        }
        let step = growth(self.state.lock().units.count());
        self.grow_by_about(short, step)
    }

    /// Units that are to be there for so many dirty pages. The slack is for changes that nothing
    /// can refuse: those of deletes, rollbacks and purge.
    fn growth_of(&self, dirty: usize) -> u32 {
        self.longer_by(dirty) + self.slack.load(Ordering::Relaxed)
    }

    /// Units that the images of so many pages may take beyond those that they have.
    fn longer_by(&self, pages: usize) -> u32 {
        let each = match self.compression {
            Compression::None => 0,
            _ => self.units_of_page() as usize - 1,
        };
        pages.saturating_mul(each).min(LONGER_UNITS_MAX) as u32
    }

    /// By `step`, or if the disk is too full by what is needed. The caller holds `growing`.
    fn grow_by_about(&self, needed: u32, step: u32) -> Result<()> {
        paranoid!(needed > 0, "a file grows where nothing is needed");
        match self.grow_by(needed.max(step)) {
            Err(Error::DiskFull { .. }) if step > needed => self.grow_by(needed),
            grown => grown,
        }
    }

    /// Units that are to be free, or wait, while so many pages have a promise.
    fn owed(&self, state: &State, pages: u32) -> u32 {
        let unplaced = state.unplaced_of(pages);
        let pages = unplaced.saturating_mul(self.units_of_page());
        pages.saturating_add(self.slack(state.units.count()))
    }

    /// Units of a page that is not compressed.
    pub(super) fn units_of_page(&self) -> u32 {
        self.page_size.div_ceil(UNIT_LEN as u32)
    }

    /// Units for pages that leave others, in a file of so many.
    fn slack(&self, count: u32) -> u32 {
        growth(count).max(2 * self.reserve())
    }

    /// Units of the hole.
    pub(super) fn reserve(&self) -> u32 {
        hole_of(self.page_size)
    }

    /// The first `pages` pages have, or had, a promise.
    pub(super) fn owe(&self, pages: u32) {
        let mut state = self.state.lock();
        state.promise(pages);
        self.note_room(&state);
    }

    /// The caller holds `growing`.
    pub(super) fn grow_by(&self, units: u32) -> Result<()> {
        self.poison.check()?;
        paranoid!(units > 0, "a file grows by nothing");
        let count = self.state.lock().units.count();
        let in_use = self
            .data
            .acquire(&self.open_files, inkstone_io::Create::Never)?;
        let (start, length) = (
            u64::from(count) * UNIT_LEN as u64,
            u64::from(units) * UNIT_LEN as u64,
        );
        let grown = in_use.change_size(|file| file.allocate(start, length));
        grown.map_err(|e| Error::io("extend", self.data.path(), e))?;
        let mut state = self.state.lock();
        state.units.grow(count + units);
        self.note_room(&state);
        Ok(())
    }

    /// Pages from `from` on are gone.
    pub fn cut(&self, from: u32) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.end_promise(from);
        paranoid!(
            state.promised <= from,
            "{} pages are promised behind a cut at {from}",
            state.promised
        );
        for page in from as usize..state.places.len() {
            let old = std::mem::take(&mut state.places[page]);
            if old != Place::default() {
                state.live -= old.units();
                let block = &mut state.blocks[page / BLOCK_PLACES];
                state.waiting += block.leave(page % BLOCK_PLACES, &old, &mut state.units);
            }
        }
        self.is_dirty.store(true, Ordering::Release);
        self.note_room(state);
    }

    /// Gives the free end of the file back to the file system, if it is long and not promised;
    /// so many pages of the tablespace are dirty, at most.
    pub fn cut_file(&self, dirty: usize) -> Result<()> {
        let (_moving, _growing) = (self.moving.lock(), self.growing.lock());
        while let Some(count) = self.cut_units(dirty) {
            let in_use = self
                .data
                .acquire(&self.open_files, inkstone_io::Create::Never)?;
            let length = u64::from(count) * UNIT_LEN as u64;
            let cut = in_use.change_size(|file| file.set_len(length));
            cut.map_err(|e| Error::io("cut", self.data.path(), e))?;
        }
        Ok(())
    }

    /// Units that no page has, and that are promised to none, while so many pages are dirty.
    pub(super) fn spare(&self, state: &State, dirty: usize) -> u32 {
        let longer = self.longer_by(dirty.min(state.promised as usize));
        let owed = self.owed(state, state.promised).saturating_add(longer);
        state.available().saturating_sub(owed)
    }

    /// How many units the file is to have, if it is to have fewer.
    fn cut_units(&self, dirty: usize) -> Option<u32> {
        let mut state = self.state.lock();
        state.units.place_hole();
        let (count, end) = (state.units.count(), state.units.free_at_end());
        let spare = self.spare(&state, dirty);
        let cut = end.saturating_sub(growth(count)).min(spare);
        if cut < CUT_UNITS_MIN || cut < count / CUT_PARTS {
            return None;
        }
        paranoid!(
            cut < count && cut <= spare,
            "{cut} units of {count} are cut, and {spare} are not promised"
        );
        state.units.cut(count - cut);
        self.note_room(&state);
        Some(count - cut)
    }
}
