//! Units side by side, where those that are free are scattered: images move together.
//!
//! An image lies in one piece. On a full disk there may be units enough, and no two of them side by
//! side. So some units side by side are kept, the *hole*, which no page is given. The images next
//! to it are copied into it; when the map says so, their old units are the hole, and the free
//! ones that lay between them are beside it. So the hole goes through the file, and gathers what is
//! free, until there is enough beside it; at an end of the file it turns back.
//!
//! # Promises
//!
//! 1. However free units are scattered, some of them can be had side by side, as long as no other
//!    images are being written. Tested by `images_that_become_long_find_scattered_units`.
//! 2. A page is where it was or where it was moved to, whenever power is lost; one that is written
//!    meanwhile stays where that put it. Tested by `whatever_a_crash_leaves_of_moves_is_whole`.

use super::PlacedPages;
use super::state::{State, extent_of};
use super::units::Extent;
use crate::counters::Counter;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::image::UNIT_LEN;
use inkstone_format::place_map::{BLOCK_PLACES, Place};
use inkstone_format::{PageId, PageNo};
use inkstone_io::AlignedBuffer;

/// An image that moves, unchanged.
pub(super) struct Move {
    pub page: PageNo,
    pub from: Place,
    pub to: Place,
    /// Free units that it was apart from the one before: kept for the hole.
    pub gap: Extent,
}

impl PlacedPages {
    /// Moves images until so many units are free side by side, or half of what is free if that is
    /// less, but no fewer than `least`. False: there are too few, or images that are being written
    /// lie between them. The caller holds `moving`.
    pub(super) fn compact(&self, least: u32, wanted: u32) -> Result<bool> {
        let mut turns = 0;
        let outcome = loop {
            if let Err(error) = self.settle() {
                break Err(error);
            }
            let moves = {
                let mut state = self.state.lock();
                state.units.widen_hole(u32::MAX);
                let (hole, kept) = (state.units.hole().length, state.units.hole_wanted());
                let spare = (hole + state.units.free()).saturating_sub(kept);
                if spare < least {
                    break Ok(false);
                }
                if hole >= kept + wanted.min(spare / 2).max(least) {
                    break Ok(true);
                }
                state.next_moves()
            };
            if moves.is_empty() {
                if turns == 2 {
                    break Ok(false);
                }
                turns += 1;
                self.state.lock().turn();
            } else if let Err(error) = self.make(&moves) {
                break Err(error);
            }
        };
        self.state.lock().units.narrow_hole();
        outcome
    }

    /// Copies images, and says in memory where they are.
    pub(super) fn make(&self, moves: &[Move]) -> Result<()> {
        let copied = moves.iter().try_for_each(|of| self.copy(of));
        self.is_unsynced.store(true, Ordering::Release);
        let mut state = self.state.lock();
        for of in moves {
            state.end_move(of, copied.is_ok());
        }
        self.counters.add(Counter::ImagesMoved, moves.len() as u64);
        self.is_dirty.store(true, Ordering::Release);
        copied
    }

    fn copy(&self, of: &Move) -> Result<()> {
        paranoid!(
            of.from.units() == of.to.units(),
            "{:?} is moved to {:?}",
            of.from,
            of.to
        );
        let mut image = AlignedBuffer::zeroed(of.from.units() as usize * UNIT_LEN);
        self.read_units(of.page, &of.from, &mut image)?;
        let in_use = self
            .data
            .acquire(&self.open_files, inkstone_io::Create::Never)?;
        let offset = u64::from(of.to.unit) * UNIT_LEN as u64;
        let written = in_use.begin_write().write_at(&image, offset);
        let id = PageId::new(self.space, of.page);
        written.map_err(|e| Error::io(format!("write page {id} to"), self.data.path(), e))
    }
}

impl State {
    /// The hole goes the other way from now on.
    fn turn(&mut self) {
        self.hole_goes_down = !self.hole_goes_down;
    }

    /// The images next to the hole that fit into it, which is theirs now.
    fn next_moves(&mut self) -> Vec<Move> {
        let (down, mut moves) = (self.hole_goes_down, Vec::new());
        let hole = self.units.hole();
        let mut at = if down { hole.start } else { hole.end() };
        let mut left = hole.length;
        for (page, from) in self.images_beside_hole() {
            let extent = extent_of(&from);
            let (gap, far) = if down {
                (extent.end()..at, extent.start)
            } else {
                (at..extent.start, extent.end())
            };
            let is_free = gap.clone().all(|unit| self.units.is_free(unit));
            if !is_free || extent.length > left {
                break;
            }
            left -= extent.length;
            at = far;
            let gap = Extent {
                start: gap.start,
                length: gap.len() as u32,
            };
            self.units.occupy(gap);
            let unit = self.units.fill_hole(extent.length, down);
            let to = Place { unit, ..from };
            moves.push(Move {
                page,
                from,
                to,
                gap,
            });
        }
        let moved: u32 = moves.iter().map(|of| of.to.units()).sum();
        paranoid!(
            moved + left == hole.length && self.units.hole().length == left,
            "{moved} units go into {hole:?}, and {:?} is left",
            self.units.hole()
        );
        moves
    }

    /// Images that begin not far from the hole, on the side to which it goes, the nearest first.
    fn images_beside_hole(&self) -> Vec<(PageNo, Place)> {
        let hole = self.units.hole();
        let reach = hole.length.saturating_mul(4);
        let near = if self.hole_goes_down {
            hole.start.saturating_sub(reach)..hole.start
        } else {
            hole.end()..hole.end().saturating_add(reach)
        };
        let images = (0..).map(PageNo).zip(self.places.iter().copied());
        let is_near =
            |(_, place): &(PageNo, Place)| place.units() > 0 && near.contains(&place.unit);
        let mut images: Vec<_> = images.filter(is_near).collect();
        images.sort_unstable_by_key(|(_, place)| place.unit);
        paranoid!(
            images.windows(2).all(|two| two[0].1.end() <= two[1].1.unit),
            "images beside {hole:?} lie in each other"
        );
        if self.hole_goes_down {
            images.reverse();
        }
        images
    }

    /// Its old units are free when the map is settled, all those of one step at once: so they are
    /// the hole's before anything else can have them.
    fn end_move(&mut self, of: &Move, is_copied: bool) {
        let page = of.page.0 as usize;
        paranoid!(
            !self.units.is_free(of.to.unit),
            "page {} moves to free units",
            of.page
        );
        let is_there = self.places.get(page) == Some(&of.from);
        if !is_copied || !is_there {
            self.units.give_back(extent_of(&of.to));
            self.units.give_back(of.gap);
            return;
        }
        self.places[page] = of.to;
        let block = &mut self.blocks[page / BLOCK_PLACES];
        self.waiting += block.leave_at_once(page % BLOCK_PLACES, [extent_of(&of.from), of.gap]);
    }
}
