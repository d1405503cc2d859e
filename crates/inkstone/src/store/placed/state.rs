//! The place map in memory: where pages are, what its blocks are known to say, which units are
//! taken.

use super::units::{Extent, Units};
use crate::mutants::{self, Mutant};
use crate::paranoid::{MANY, paranoid};
use inkstone_format::PageNo;
use inkstone_format::image::{Codec, UNIT_LEN};
use inkstone_format::place_map::{BLOCK_PLACES, Place, PlaceBlock};

#[derive(Debug)]
pub(super) struct State {
    pub places: Vec<Place>,
    pub blocks: Vec<Block>,
    pub units: Units,
    /// Units that blocks have waiting.
    pub waiting: u32,
    /// Units of the pages' present places, and others that are never to be used.
    pub live: u32,
    /// Pages below this one have a promise: whichever of them was never placed can be.
    pub promised: u32,
    /// How many of them were never placed.
    pub unplaced: u32,
    /// Images that have units, and have not landed.
    pub flying: u32,
    /// How many have landed, or were given up.
    pub landed: u64,
    /// Where the hole goes: towards the start of the file.
    pub hole_goes_down: bool,
}

impl State {
    /// A map of no pages, for a file of such units.
    pub fn empty(units: Units) -> Self {
        Self {
            places: Vec::new(),
            blocks: Vec::new(),
            units,
            waiting: 0,
            live: 0,
            promised: 0,
            unplaced: 0,
            flying: 0,
            landed: 0,
            hole_goes_down: false,
        }
    }

    /// Units that no page has, or will not have when those have landed that are being written.
    pub fn available(&self) -> u32 {
        paranoid!(
            self.live <= self.units.count(),
            "pages have {} units of {}",
            self.live,
            self.units.count()
        );
        self.units.count().saturating_sub(self.live)
    }

    /// No unit that is there is to be used.
    pub fn use_none(&mut self) {
        self.units.occupy_all();
        self.live = self.units.count();
    }

    /// How many pages there are up to the last one that was placed.
    pub fn placed_pages(&self) -> u32 {
        let last = self.places.iter().rposition(|place| !place.is_empty());
        last.map_or(0, |last| last as u32 + 1)
    }

    /// Of `pages` pages those that were never placed.
    pub fn unplaced_of(&self, pages: u32) -> u32 {
        let is_empty = |page: u32| {
            let place = self.places.get(page as usize);
            u32::from(place.is_none_or(Place::is_empty))
        };
        self.unplaced + (self.promised..pages).map(is_empty).sum::<u32>()
    }

    /// Pages below `pages` have a promise from now on.
    pub fn promise(&mut self, pages: u32) {
        self.unplaced = self.unplaced_of(pages);
        self.promised = self.promised.max(pages);
    }

    /// Pages from `pages` on have none any more.
    pub fn end_promise(&mut self, pages: u32) {
        if pages < self.promised {
            let ended = &self.places[pages as usize..self.promised as usize];
            let ended = ended.iter().filter(|place| place.is_empty()).count() as u32;
            paranoid!(
                ended <= self.unplaced,
                "{ended} pages without a place are gone of {}",
                self.unplaced
            );
            self.unplaced -= ended;
            self.promised = pages;
        }
    }

    /// Takes a block that was read, and the units of its pages; or the page in it that cannot be
    /// where it is said to be.
    pub fn take_block(&mut self, number: u32, block: &PlaceBlock) -> Result<(), (usize, String)> {
        let mut named = Block {
            written: block.written,
            ..Block::default()
        };
        for (n, place) in block.places.iter().enumerate() {
            if place.is_empty() {
                continue;
            }
            named.named[n / 64] |= 1 << (n % 64);
            if !self.units.occupy(extent_of(place)) {
                let detail = format!(
                    "the image of page {} is said to be in units {} to {} of {}, which are not \
                     there, or another page's",
                    number as usize * BLOCK_PLACES + n,
                    place.unit,
                    u64::from(place.unit) + u64::from(place.units()),
                    self.units.count()
                );
                return Err((n, detail));
            }
            self.live += place.units();
        }
        self.places.extend(&block.places);
        self.blocks.push(named);
        Ok(())
    }

    /// Each block has its pages, and what waits is counted.
    pub fn check(&self) {
        paranoid!(
            self.places.len() == self.blocks.len() * BLOCK_PLACES,
            "{} places in {} blocks of a map",
            self.places.len(),
            self.blocks.len()
        );
        let first = self.blocks.len().saturating_sub(MANY);
        let places = &self.places[first * BLOCK_PLACES..];
        let live: u32 = places.iter().map(Place::units).sum();
        paranoid!(
            live <= self.live,
            "pages have {live} units, and {} in all",
            self.live
        );
        let waiting = self.blocks[first..].iter().flat_map(|block| &block.waiting);
        let waiting: u32 = waiting.map(|extent| extent.length).sum();
        paranoid!(
            waiting <= self.waiting,
            "{waiting} units wait in blocks, and {} in all",
            self.waiting
        );
    }
}

/// What is to be known of a block of the map.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// How often it was written, and is durable.
    pub written: u64,
    pub is_dirty: bool,
    /// Pages the present place of which a slot names, or may.
    pub named: [u64; BLOCK_PLACES.div_ceil(64)],
    /// Units that a slot names, and no page has any more.
    pub waiting: Vec<Extent>,
}

impl Block {
    fn is_named(&self, page: usize) -> bool {
        self.named[page / 64] >> (page % 64) & 1 == 1
    }
    fn forget_name(&mut self, page: usize) {
        self.named[page / 64] &= !(1 << (page % 64));
    }

    /// A page of it was moved: these units wait until the block is durable again, whether a slot
    /// names them or not.
    pub fn leave_at_once(&mut self, page: usize, extents: [Extent; 2]) -> u32 {
        paranoid!(page < BLOCK_PLACES, "page {page} of a block is moved");
        self.is_dirty = true;
        self.forget_name(page);
        let waiting = extents.into_iter().filter(|extent| extent.length > 0);
        self.waiting.extend(waiting);
        extents.iter().map(|extent| extent.length).sum()
    }

    /// A page of it has left its place: how many units wait until the block is durable again.
    pub fn leave(&mut self, page: usize, old: &Place, units: &mut Units) -> u32 {
        paranoid!(page < BLOCK_PLACES, "page {page} of a block");
        self.is_dirty = true;
        if old.is_empty() {
            return 0;
        }
        let extent = extent_of(old);
        if self.is_named(page) && !mutants::on(Mutant::UnitsFreedEarly) {
            self.forget_name(page);
            self.waiting.push(extent);
            extent.length
        } else {
            units.give_back(extent);
            0
        }
    }
}

/// An image that has units, and is to be written there.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Placing {
    pub page: PageNo,
    pub place: Place,
}

impl Placing {
    /// Bytes of its units.
    pub fn unit_bytes(&self) -> usize {
        self.place.units() as usize * UNIT_LEN
    }

    /// Whether the image is another than the page as it is.
    pub fn is_compressed(&self) -> bool {
        self.place.codec != Codec::None
    }

    /// Where they are in the file.
    pub fn offset(&self) -> u64 {
        u64::from(self.place.unit) * UNIT_LEN as u64
    }

    pub(super) fn extent(&self) -> Extent {
        extent_of(&self.place)
    }
}

pub(super) fn extent_of(place: &Place) -> Extent {
    Extent {
        start: place.unit,
        length: place.units(),
    }
}
