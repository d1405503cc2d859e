//! Finding, marking and freeing pages.
//!
//! # Promises
//! 1. The lowest region that is known to have room is taken. Tested by
//!    `regions_are_known_once_they_were_looked_at`, `the_first_number_that_is_large_enough_is_found`.
//! 2. To find a page costs the same however large the file is: at most [`LOOKS_MAX`] maps of
//!    unknown regions are read, then the file grows. The background looks at the rest
//!    ([`Space::look_around`]). Only where no page number is left behind the file's end are all
//!    maps read, once. Tested by `a_page_is_found_in_a_full_terabyte`,
//!    `the_last_free_pages_are_found_wherever_they_lie`.
//! 3. A file grows, physically, before any page in the new part is allocated. Tested by
//!    `dirty_pages_have_their_place`.
//! 4. Where every page number is in use, an error says so. Tested by
//!    `page_numbers_come_to_an_end`.
//!
//! In the region the free pages behind the one that was allocated last are taken, or else its first
//! ones: pages that are filled one after the other lie side by side.

use super::{MAP_ATTEMPTS, SYSTEM_PAGES, Space};
use crate::buffer::{Exclusive, Reservation, Shared};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::apply::{bit, count_clear_bits, map_pages, next_clear_bit};
use inkstone_format::header::{PAGE_TYPE_AT, PageType, page_type};
use inkstone_format::record::Record;
use inkstone_format::space::{self as format, PAGES_MAX};
use inkstone_format::{Corrupt, PageId, PageNo};
use std::ops::Deref;

/// Maps of unknown regions that are read before a file is made longer.
const LOOKS_MAX: usize = 8;
/// Maps that one round of the background reads.
const BACKGROUND_LOOKS_MAX: usize = 16;

/// A free page, found under the exclusive latch of its space map page, not yet marked.
#[derive(Clone, Copy, Debug)]
pub struct FreePage {
    /// The page.
    pub page: PageNo,
    pub(super) map_index: usize,
}

impl Space {
    /// The region of a page.
    fn region_of(&self, page: PageNo) -> u32 {
        page.0 / map_pages(self.storage.page_size)
    }

    /// The first page of a region that there can be.
    pub(super) fn region_start(&self, region: u32) -> u32 {
        region * map_pages(self.storage.page_size)
    }

    /// Pages of a region that there can be.
    pub(super) fn region_len(&self, region: u32) -> u32 {
        format::region_pages(self.storage.page_size, region)
    }

    /// The map of a region that there can be.
    pub(super) fn map_id(&self, region: u32) -> PageId {
        self.page_id(PageNo(self.region_start(region) + 1))
    }

    /// Free pages that a map says there are.
    fn free_pages_in(&self, region: u32, map: &[u8]) -> u32 {
        count_clear_bits(map, self.region_len(region))
    }

    /// Latches the space map page of `page`, which is allocated.
    pub fn latch_map_of<'p>(&'p self, mtr: &mut Mtr<'p>, page: PageNo) -> Result<usize> {
        self.latch_map_if_any(mtr, page)?.ok_or_else(|| {
            let what = Corrupt::at(
                format::MORE_MAPS_AT,
                format!("page {page} has no space map"),
            );
            Error::corrupt_page(self.file.path(), self.page_id(PageNo(0)), what)
        })
    }

    /// Latches the space map page of `page`; `None` if its region is gone, and the page with it.
    pub fn latch_map_if_any<'p>(
        &'p self,
        mtr: &mut Mtr<'p>,
        page: PageNo,
    ) -> Result<Option<usize>> {
        let latch = |id| self.storage.pool.exclusive(id);
        let map: Option<Exclusive<'p>> = self.map_if_any(self.region_of(page), latch)?;
        Ok(map.map(|map| mtr.push(map)))
    }

    /// The map of a region as `latch` latches it; `None` if the region is gone.
    fn map_if_any<G: Deref<Target = [u8]>>(
        &self,
        region: u32,
        latch: impl Fn(PageId) -> Result<G>,
    ) -> Result<Option<G>> {
        let id = self.map_id(region);
        let mut attempts = 0;
        loop {
            let error = match latch(id) {
                Ok(map) if page_type(&map) == Some(PageType::SpaceMap) => return Ok(Some(map)),
                // The latch goes before the header is looked at, which may have to be read.
                Ok(map) => {
                    let what = format!("type {} where a space map is expected", map[PAGE_TYPE_AT]);
                    Error::corrupt_page(self.file.path(), id, Corrupt::at(12, what))
                }
                Err(error) => error,
            };
            if self.last_region()? < region {
                return Ok(None);
            }
            // The region may have been gone just now, and be made again.
            attempts += 1;
            if attempts == MAP_ATTEMPTS {
                return Err(error);
            }
        }
    }

    /// Before rows are made or changed, with no page latched: whatever dirty pages become, they can
    /// be written, however full the disk is then. Fails if that cannot be.
    #[inline]
    pub fn check_room(&self) -> Result<()> {
        let pool = &self.storage.pool;
        if self.file.has_room(pool.frames()) || self.file.has_room(pool.dirty_pages()) {
            return Ok(());
        }
        self.make_room()
    }

    /// On a full disk there may be room for the pages of this tablespace alone, or when those are
    /// written.
    #[cold]
    fn make_room(&self) -> Result<()> {
        let (pool, space) = (&self.storage.pool, self.file.space());
        paranoid!(
            self.file.is_placed(),
            "room for images is sought where pages of {space} are in place"
        );
        let Err(error) = self.file.make_room(pool.dirty_pages()) else {
            return Ok(());
        };
        let has_room = || self.file.has_room(pool.dirty_pages_of(space));
        if !matches!(error, Error::DiskFull { .. }) {
            return Err(error);
        }
        if has_room() {
            return Ok(());
        }
        pool.flush_space(space)?;
        if has_room() { Ok(()) } else { Err(error) }
    }

    /// Finds `count` free pages: latches a space map page (the mini-transaction must hold no latch
    /// yet) and makes sure that the file reaches that far. Nothing is changed before
    /// [`Space::mark`].
    pub fn find_free<'p>(
        &'p self,
        count: usize,
        frames: &mut Reservation<'p>,
        attempt: impl Fn() -> Mtr<'p>,
    ) -> Result<(Mtr<'p>, Vec<FreePage>)> {
        loop {
            let Some(region) = self.region_with(count as u32, frames)? else {
                continue;
            };
            let mut mtr = attempt();
            let start = self.region_start(region);
            let Some(map_index) = self.latch_map_if_any(&mut mtr, PageNo(start))? else {
                continue;
            };
            paranoid!(
                self.is_counted_right(region, mtr.page(map_index)),
                "region {region} has another number of free pages than its map"
            );
            let found = self.free_in(region, mtr.page(map_index), count);
            paranoid!(
                found.iter().all(|&page| self.region_of(page) == region),
                "free pages of region {region}: {found:?}"
            );
            if found.len() < count {
                // Others were quicker.
                let free = self.free_pages_in(region, mtr.page(map_index));
                self.regions.learn(region, free);
                continue;
            }
            paranoid!(
                found.len() == count && found.is_sorted_by(|a, b| a < b),
                "{count} free pages were to be found: {found:?}"
            );
            let pages = found[count - 1].0 + 1;
            if !self.file.promises(pages) {
                drop(mtr);
                self.file.ensure_pages(pages)?;
                continue;
            }
            let free = |page| FreePage { page, map_index };
            return Ok((mtr, found.into_iter().map(free).collect()));
        }
    }

    /// Promise 1 of `space/regions.rs`, of a region whose map is latched exclusively.
    fn is_counted_right(&self, region: u32, map: &[u8]) -> bool {
        let known = self.regions.free_pages(region);
        known.is_none_or(|free| free == self.free_pages_in(region, map))
            || mutants::on(Mutant::PageLeaked)
    }

    /// At most `count` free pages of a region, in order: those behind the last one that was
    /// allocated, if there are so many.
    fn free_in(&self, region: u32, map: &[u8], count: usize) -> Vec<PageNo> {
        let (start, len) = (self.region_start(region), self.region_len(region));
        let free_from = |from: u32| {
            let mut at = from;
            let next = || {
                let bit = next_clear_bit(map, at, len)?;
                at = bit + 1;
                Some(PageNo(start + bit))
            };
            std::iter::from_fn(next).take(count).collect::<Vec<_>>()
        };
        let hint = self.hint.load(Ordering::Relaxed);
        match hint.checked_sub(start).filter(|&from| from < len) {
            Some(from) => {
                let found = free_from(from);
                if found.len() == count {
                    return found;
                }
                free_from(0)
            }
            None => free_from(0),
        }
    }

    /// A region that has, as far as is known, so many free pages; it is made if need be. `None`:
    /// try again.
    fn region_with(&self, count: u32, frames: &mut Reservation<'_>) -> Result<Option<u32>> {
        let looks_max = if mutants::on(Mutant::AllMapsRead) {
            usize::MAX
        } else {
            LOOKS_MAX
        };
        for _ in 0..looks_max {
            if let Some(region) = self.regions.lowest_with(count) {
                return Ok(Some(region));
            }
            let Some(unknown) = self.regions.lowest_unknown(self.last_region()?) else {
                break;
            };
            self.look_at(unknown)?;
        }
        let last = self.last_region()?;
        if !self.regions.is_known(last) {
            self.look_at(last)?;
        }
        let more = self.regions.lowest_unknown(last).is_some();
        self.regions.set_more_to_know(more);
        if let Some(region) = self.regions.lowest_with(count) {
            return Ok(Some(region));
        }
        if last < format::region_max(self.storage.page_size) {
            self.create_region(last + 1, frames)?;
            return Ok(Some(last + 1));
        }
        // No page number is left behind what is in use: whatever is free lies in unknown regions.
        while let Some(unknown) = self.regions.lowest_unknown(self.last_region()?) {
            self.look_at(unknown)?;
            if let Some(region) = self.regions.lowest_with(count) {
                return Ok(Some(region));
            }
        }
        if self.last_region()? < last || mutants::on(Mutant::PageNumbersUnending) {
            Ok(None)
        } else {
            Err(self.no_page_number_left())
        }
    }

    /// Learns how many pages of a region are free, if it is there.
    fn look_at(&self, region: u32) -> Result<()> {
        let latch = |id| self.storage.pool.shared(id);
        let map: Option<Shared<'_>> = self.map_if_any(region, latch)?;
        if let Some(map) = map {
            let free = self.free_pages_in(region, &map);
            self.regions.learn(region, free);
        }
        Ok(())
    }

    /// One round of the background: learns of a few regions that a search for a page has left
    /// unknown.
    pub fn look_around(&self) -> Result<()> {
        if !self.regions.is_more_to_know() {
            return Ok(());
        }
        // If a map is damaged the flag stays false, so that this does not fail again and again. The
        // next search for a page that leaves regions unknown sets it again.
        self.regions.set_more_to_know(false);
        for _ in 0..BACKGROUND_LOOKS_MAX {
            let Some(unknown) = self.regions.lowest_unknown(self.last_region()?) else {
                return Ok(());
            };
            self.look_at(unknown)?;
        }
        self.regions.set_more_to_know(true);
        Ok(())
    }

    /// Makes the space map of a region that the file has just grown into. The header page's latch
    /// keeps two threads from doing so at once.
    fn create_region(&self, region: u32, frames: &mut Reservation<'_>) -> Result<()> {
        let (id, len) = (self.map_id(region), self.region_len(region));
        let pages = self.region_start(region) + SYSTEM_PAGES;
        self.file.ensure_pages(pages)?;
        let mut mtr = Mtr::new(&self.storage);
        let header_id = self.page_id(PageNo(0));
        let header = mtr.push(self.storage.pool.exclusive(header_id)?);
        // The file may have been cut meanwhile, or a region be gone: the caller tries again.
        if format::more_maps(mtr.page(header)) + 1 != region || !self.file.promises(pages) {
            return Ok(());
        }
        paranoid!(
            region > 0 && region <= format::region_max(self.storage.page_size),
            "region {region} is made"
        );
        self.tails.note_marked(id.page);
        let map = mtr.push(self.storage.pool.create(id, frames)?);
        mtr.replay(
            map,
            &Record::PageInit {
                page: id,
                page_type: PageType::SpaceMap as u8,
            },
        );
        mtr.replay(
            map,
            &Record::Bits {
                page: id,
                first: 0,
                count: SYSTEM_PAGES,
                set: true,
            },
        );
        let offset = format::MORE_MAPS_AT as u32;
        let bytes = region.to_le_bytes().to_vec();
        mtr.replay(
            header,
            &Record::Bytes {
                page: header_id,
                offset,
                bytes,
            },
        );
        paranoid!(
            self.free_pages_in(region, mtr.page(map)) == len - SYSTEM_PAGES,
            "a new map has {} free pages of {len}",
            self.free_pages_in(region, mtr.page(map))
        );
        paranoid!(
            format::more_maps(mtr.page(header)) == region,
            "region {region} was made, and is not the last one"
        );
        self.regions.learn(region, len - SYSTEM_PAGES);
        mtr.commit().map(drop)
    }

    fn no_page_number_left(&self) -> Error {
        Error::DiskFull {
            what: format!(
                "another page of {}: the {PAGES_MAX} pages that a table's file can have are in use",
                self.file.path().display()
            ),
        }
    }

    /// Marks a page that `find_free` found as allocated.
    pub fn mark(&self, mtr: &mut Mtr<'_>, free: FreePage) {
        let page = mtr.id(free.map_index);
        let region = self.region_of(free.page);
        let first = free.page.0 - self.region_start(region);
        paranoid!(
            page == self.map_id(region),
            "page {} is marked in the map {page}",
            free.page
        );
        paranoid!(
            !bit(mtr.page(free.map_index), first),
            "page {} is given out twice",
            free.page
        );
        mtr.replay(
            free.map_index,
            &Record::Bits {
                page,
                first,
                count: 1,
                set: true,
            },
        );
        self.note_change();
        self.regions.note_taken(region);
        self.tails.note_marked(free.page);
        self.hint.store(free.page.0 + 1, Ordering::Relaxed);
    }

    /// A number that is another one when a page was allocated or freed, which is noted before any
    /// other thread can see it.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Frees a page that the mini-transaction has latched as `page_index`, with its map.
    pub fn free(&self, mtr: &mut Mtr<'_>, map_index: usize, page_index: usize) {
        let (map, page) = (mtr.id(map_index), mtr.id(page_index));
        let region = self.region_of(page.page);
        let first = page.page.0 - self.region_start(region);
        paranoid!(
            map == self.map_id(region) && page.space == self.id,
            "page {page} is freed in the map {map}"
        );
        mtr.replay(page_index, &Record::PageFree { page });
        mtr.replay(
            map_index,
            &Record::Bits {
                page: map,
                first,
                count: 1,
                set: mutants::on(Mutant::PageLeaked),
            },
        );
        paranoid!(
            bit(mtr.page(map_index), first) == mutants::on(Mutant::PageLeaked),
            "page {page} was freed, and is allocated"
        );
        let count = || self.free_pages_in(region, mtr.page(map_index));
        self.note_change();
        self.regions.note_freed(region, count);
        self.tails.note_freed();
        self.hint.fetch_min(page.page.0, Ordering::Relaxed);
    }
}
