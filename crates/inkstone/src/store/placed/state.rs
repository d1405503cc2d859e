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
}

impl State {
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
