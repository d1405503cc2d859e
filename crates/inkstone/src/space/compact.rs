//! What compaction asks of a tablespace: which page is the last one, and a free one before it.
//!
//! # Promises
//! 1. Two space maps are latched in the order of their regions, and no third. Tested by
//!    `pages_move_over_regions`.

use super::{FreePage, SYSTEM_PAGES, Space};
use crate::Result;
use crate::buffer::{Reservation, Shared};
use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use inkstone_format::PageNo;
use inkstone_format::apply::{bit, map_pages, next_clear_bit};
use inkstone_format::header::{PageType, page_type};

/// A free page before one that is in use, under the exclusive latches of both their space maps.
pub struct Place<'p> {
    /// With the latched maps, and nothing else.
    pub mtr: Mtr<'p>,
    /// The free page.
    pub free: FreePage,
    /// The map of the page that is in use, by its number in the mini-transaction.
    pub map: usize,
}

impl Space {
    /// The last page before `end` that is allocated, without those that hold the shape of the file.
    pub fn last_allocated_before(&self, end: PageNo) -> Result<Option<PageNo>> {
        let _shape = self.keep_shape();
        for region in (0..=self.last_region()?).rev() {
            let (start, len) = (self.region_start(region), self.region_len(region));
            let behind = end.0.saturating_sub(start).min(len);
            if behind <= SYSTEM_PAGES {
                continue;
            }
            let map = self.storage.pool.shared(self.map_id(region))?;
            let last = (SYSTEM_PAGES..behind).rev().find(|&n| bit(&map, n));
            if let Some(last) = last {
                paranoid!(
                    start + last < end.0,
                    "page {} lies before page {end}",
                    start + last
                );
                return Ok(Some(PageNo(start + last)));
            }
        }
        Ok(None)
    }

    /// The first free page before `page`, and both their space maps latched. `None`: there is none,
    /// or `page` has no map any more. The caller holds no latch.
    pub fn free_before<'p>(
        &'p self,
        page: PageNo,
        _frames: &Reservation<'p>,
    ) -> Result<Option<Place<'p>>> {
        let covered = map_pages(self.storage.page_size);
        let last = page.0 / covered;
        let mut pins = self.storage.pool.pins();
        for region in 0..=last {
            if self.regions.free_pages(region) == Some(0) {
                continue;
            }
            let start = self.region_start(region);
            loop {
                pins.hold(self.map_id(last))?;
                let mut mtr = Mtr::new(&self.storage);
                let Some(map_index) = self.latch_map_if_any(&mut mtr, PageNo(start))? else {
                    return Ok(None);
                };
                let map = mtr.page(map_index);
                let end = self.region_len(region).min(page.0 - start);
                let Some(found) = next_clear_bit(map, 0, end).filter(|&found| found < end) else {
                    break;
                };
                let free = FreePage {
                    page: PageNo(start + found),
                    map_index,
                };
                paranoid!(
                    free.page < page && self.file.promises(free.page.0 + 1),
                    "page {} is to move to page {}",
                    page,
                    free.page
                );
                if region == last {
                    let map = map_index;
                    return Ok(Some(Place { mtr, free, map }));
                }
                // The later of the two: it was read before, so that no latch is held over I/O.
                let Some(map) = self.storage.pool.exclusive_if_resident(self.map_id(last)) else {
                    continue;
                };
                if page_type(&map) != Some(PageType::SpaceMap) {
                    return Ok(None);
                }
                let map = mtr.push(map);
                return Ok(Some(Place { mtr, free, map }));
            }
        }
        Ok(None)
    }

    /// What a page is, as of now: its bytes, if it is allocated and can be read.
    pub fn page_if_allocated(&self, page: PageNo) -> Result<Option<Shared<'_>>> {
        let read = self.storage.pool.shared(self.page_id(page));
        match read {
            Ok(read) => Ok(Some(read)),
            // Freed meanwhile, it may not be readable.
            Err(_) if !self.is_allocated(page)? => Ok(None),
            Err(error) => Err(error),
        }
    }
}
