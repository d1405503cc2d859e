//! Giving the free end of a file back to the file system while the table is in use.
//!
//! # Words
//! The *tail* of a file is what lies behind its last allocated page, and a little spare behind
//! that.
//!
//! # How no page is lost, with nothing in the log
//! 1. [`Space::find_tail`] notes where the tail begins and where the log ends. From then on every
//!    page that is allocated in it is noticed ([`Tails::marked`]).
//! 2. Once a checkpoint at or behind that LSN is durable, the pages of the tail have been written
//!    as free pages, and so have the maps that say so; recovery will apply no change to a tail page
//!    that is not led by a new initialisation of it, and take no doublewrite copy of one.
//! 3. [`Space::cut_tail`] cuts if no page of the tail was allocated since: under the latches of the
//!    last map and the header, which every allocation needs, it says that the file is shorter. With
//!    no latch held it forgets those pages, which are clean and in no flight, and cuts the file.
//!    A thread that needs a page there meanwhile waits for `SpaceFile`'s latch of growth, and the
//!    file grows again.
//!
//! So a file that a crash brings back longer than it was cut is as good as one that is shorter, and
//! recovery never has to allocate space for pages that are not in use: it may be gone.
//! [Decision 0013](../../../../docs/decisions/0013-files-are-cut-behind-a-checkpoint.md).
//!
//! A region whose pages are all free loses its map first: that is a logged change
//! ([`Space::remove_empty_regions`]).
//!
//! Latch order: `tidy`, `trees` (`upkeep.rs`), `shape`, the file's latch of growth, then the map
//! and page 0.

use super::{SYSTEM_PAGES, Space};
use crate::Result;
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use inkstone_format::apply::{bit, count_clear_bits};
use inkstone_format::record::Record;
use inkstone_format::space as format;
use inkstone_format::{Lsn, PageNo};

/// A file shorter than this is never cut in the background.
const CUT_BYTES_MIN: u64 = 1 << 20;
/// Part of what is in use that is left behind it, so that a table that grows a little does not find
/// its file cut.
const SPARE_PARTS: u32 = 16;
/// The most that is left behind what is in use.
const SPARE_BYTES_MAX: u64 = 4 << 20;
/// Part of a file that its tail must be to be worth a cut.
const WORTH_PARTS: u32 = 8;

/// What a tablespace remembers for finding and cutting its tail.
#[derive(Debug)]
pub(super) struct Tails {
    /// The tail that was found last. Latched exclusively while regions or the file's end go, shared
    /// by every walk over all maps. No thread waits for the exclusive latch: it is only tried.
    shape: RwLock<Option<Tail>>,
    /// The page behind the highest one that was allocated since the last look.
    marked: AtomicU32,
    /// Whether there is a tail in `shape`: it waits for a checkpoint.
    waiting: AtomicBool,
    /// Whether a look may find something new: a page was freed since the last one. So at first, as
    /// nothing is known of earlier runs.
    changed: AtomicBool,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            shape: RwLock::default(),
            marked: AtomicU32::new(0),
            waiting: AtomicBool::new(false),
            changed: AtomicBool::new(true),
        }
    }
}

impl Tails {
    /// A page was allocated. Its map (for a new map: the header) is latched exclusively.
    pub fn note_marked(&self, page: PageNo) {
        self.marked.fetch_max(page.0 + 1, Ordering::AcqRel);
    }

    /// A page was freed.
    pub fn note_freed(&self) {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Release);
        }
    }
}

/// A tail that may be cut once a checkpoint at or behind `lsn` is durable.
#[derive(Clone, Copy, Debug)]
struct Tail {
    /// The first page that goes.
    first: PageNo,
    /// The last region.
    region: u32,
    /// End of the log when it was found.
    lsn: Lsn,
    /// Pages of the file then.
    pages: u32,
}

/// How large a tail must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// A good part of the file; some spare pages stay.
    Much,
    /// Whatever is free.
    Anything,
}

impl Space {
    /// Keeps regions and the end of the file where they are, for a walk over the maps.
    #[must_use]
    pub fn keep_shape(&self) -> impl Sized + '_ {
        self.tails.shape.read()
    }

    /// Whether a look may find a tail that is worth a cut. Not while one waits for a checkpoint:
    /// another look would have it wait for a later one, again and again where pages are freed all
    /// the time.
    pub fn may_have_tail(&self) -> bool {
        let bytes = u64::from(self.file.pages()) * self.storage.page_size as u64;
        let tails = &self.tails;
        bytes > CUT_BYTES_MIN
            && tails.changed.load(Ordering::Relaxed)
            && !tails.waiting.load(Ordering::Relaxed)
    }

    fn worth(&self, pages: u32) -> u32 {
        let least = CUT_BYTES_MIN / self.storage.page_size as u64;
        (pages / WORTH_PARTS).max(least as u32)
    }

    /// Looks for a tail, and tells whether there is one that is worth it. Not while another thread
    /// walks over the maps.
    pub fn find_tail(&self, worth: Worth) -> Result<bool> {
        let Some(_tidy) = self.tidy() else {
            return Ok(false);
        };
        let Some(mut found) = self.tails.shape.try_write() else {
            return Ok(false);
        };
        *found = None;
        self.tails.waiting.store(false, Ordering::Relaxed);
        self.tails.changed.store(false, Ordering::Release);
        self.remove_empty_regions()?;
        let region = self.last_region()?;
        let used = {
            let map = self.storage.pool.shared(self.map_id(region))?;
            // An allocation in this region comes before this or is noticed. So is the region after
            // it: its maker holds the header, which is looked at once more.
            self.tails.marked.store(0, Ordering::Release);
            let last = (0..self.region_len(region)).rev().find(|&n| bit(&map, n));
            self.region_start(region) + last.unwrap_or(0) + 1
        };
        if self.last_region()? != region {
            self.tails.changed.store(true, Ordering::Release);
            return Ok(false);
        }
        let lsn = self.storage.log.current_lsn();
        let pages = self.file.pages();
        let (spare, least) = match worth {
            Worth::Much => {
                let most = (SPARE_BYTES_MAX / self.storage.page_size as u64) as u32;
                ((used / SPARE_PARTS).min(most), self.worth(pages))
            }
            Worth::Anything => (0, 1),
        };
        let first = PageNo(used.saturating_add(spare));
        let tail = Tail {
            first,
            region,
            lsn,
            pages,
        };
        paranoid!(
            least > 0 && used <= first.0 && used > self.region_start(region),
            "a tail from page {first} on, where {used} are in use"
        );
        *found = (pages.saturating_sub(first.0) >= least).then_some(tail);
        self.tails.waiting.store(found.is_some(), Ordering::Relaxed);
        Ok(found.is_some())
    }

    /// Cuts the tail that was found, if it still is one and the checkpoint that is durable lies at
    /// or behind its LSN. The caller holds no latch. Tells how many pages went.
    pub fn cut_tail(&self, checkpoint: Lsn) -> Result<u32> {
        let Some(_tidy) = self.tidy() else {
            return Ok(0);
        };
        let Some(mut found) = self.tails.shape.try_write() else {
            return Ok(0);
        };
        let Some(tail) = found.take_if(|tail| tail.lsn <= checkpoint) else {
            return Ok(0);
        };
        paranoid!(
            tail.lsn <= checkpoint && tail.first.0 < tail.pages,
            "a tail from page {} to {}, found at LSN {}, is cut at LSN {checkpoint}",
            tail.first,
            tail.pages,
            tail.lsn
        );
        self.tails.waiting.store(false, Ordering::Relaxed);
        // If it comes to nothing, another look is due.
        self.tails.changed.store(true, Ordering::Release);
        let mut cut = self.file.begin_cut();
        {
            let map = self.map_id(tail.region);
            let mut pins = self.storage.pool.pins();
            pins.hold(map)?;
            pins.hold(self.page_id(PageNo(0)))?;
            let map = self.storage.pool.shared_if_resident(map);
            let header = self
                .storage
                .pool
                .shared_if_resident(self.page_id(PageNo(0)));
            let (Some(_map), Some(header)) = (map, header) else {
                return Ok(0);
            };
            let moved = format::more_maps(&header) != tail.region;
            let used = self.tails.marked.load(Ordering::Acquire) > tail.first.0;
            if moved || used || self.is_dropped() || self.file.pages() != tail.pages {
                return Ok(0);
            }
            // Both latches keep others from allocating what lies behind until they see this.
            cut.lower(tail.first.0);
        }
        let pages = tail.first.0..tail.pages;
        if self.storage.pool.is_any_dirty(self.id, &pages) {
            // The checkpoint says that this cannot be. To wait for a flight here would be for ever:
            // the writer of a page behind the end waits for the file to grow.
            return Ok(0);
        }
        self.storage.pool.discard_pages(self.id, pages);
        cut.finish()?;
        let pages = tail.pages - tail.first.0;
        let counters = &self.storage.counters;
        counters.add(Counter::FileCuts, 1);
        let bytes = u64::from(pages) * self.storage.page_size as u64;
        counters.add(Counter::FileBytesGivenBack, bytes);
        Ok(pages)
    }

    /// Takes away the maps of regions at the end in which nothing is allocated. The first one
    /// stays.
    fn remove_empty_regions(&self) -> Result<()> {
        loop {
            let region = self.last_region()?;
            if region == 0 {
                return Ok(());
            }
            let map_id = self.map_id(region);
            let header_id = self.page_id(PageNo(0));
            let mut pins = self.storage.pool.pins();
            pins.hold(map_id)?;
            let mut mtr = Mtr::new(&self.storage);
            let header = mtr.push(self.storage.pool.exclusive(header_id)?);
            // The holder of the map may want the header, so this does not wait for the map.
            let Some(map) = self.storage.pool.try_exclusive(map_id) else {
                return Ok(());
            };
            let len = self.region_len(region);
            let empty = count_clear_bits(&map, len) == len - SYSTEM_PAGES;
            if format::more_maps(mtr.page(header)) != region || !empty {
                return Ok(());
            }
            let map = mtr.push(map);
            mtr.replay(
                header,
                &Record::Bytes {
                    page: header_id,
                    offset: format::MORE_MAPS_AT as u32,
                    bytes: (region - 1).to_le_bytes().to_vec(),
                },
            );
            paranoid!(
                format::more_maps(mtr.page(header)) == region - 1,
                "region {region} is gone, and the last one is {}",
                format::more_maps(mtr.page(header))
            );
            mtr.replay(map, &Record::PageFree { page: map_id });
            self.regions.forget(region);
            mtr.commit()?;
        }
    }
}
