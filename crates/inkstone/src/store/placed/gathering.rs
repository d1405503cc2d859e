//! Images at the end of the file move to free units before, for a file that is to become shorter.
//!
//! # Promises
//!
//! 1. An image moves to units before its own alone, so this comes to an end. Checked by
//!    `State::moves_to_front`. Tested by `a_placed_table_is_compacted`.

use super::PlacedPages;
use super::compaction::Move;
use super::state::{State, extent_of};
use super::units::Extent;
use crate::Result;
use crate::paranoid::paranoid;
use inkstone_format::PageNo;
use inkstone_format::image::UNIT_LEN;
use inkstone_format::place_map::Place;

/// A step moves so large a part of the file, at most.
const STEP_PARTS: u32 = 64;
/// Units that a step may move in a small file, too.
const STEP_UNITS_MIN: u32 = 256;

impl PlacedPages {
    /// Moves some of the last images to free units before them; so many pages of the tablespace are
    /// dirty, at most. How many bytes moved; none: there is nothing to gain.
    pub fn gather(&self, dirty: usize) -> Result<u64> {
        let _moving = self.moving.lock();
        // What was left is free only then.
        self.settle()?;
        let moves = {
            let mut state = self.state.lock();
            state.units.place_hole();
            // What is promised to writers stays free while the old units wait.
            let spare = self.spare(&state, dirty).min(state.units.free());
            let most = (state.units.count() / STEP_PARTS).max(STEP_UNITS_MIN);
            state.moves_to_front(most.min(spare / 2))
        };
        if moves.is_empty() {
            return Ok(0);
        }
        self.make(&moves)?;
        let units: u64 = moves.iter().map(|of| u64::from(of.to.units())).sum();
        Ok(units * UNIT_LEN as u64)
    }
}

impl State {
    /// The last images, of at most so many units, and the first free ones for them, which are
    /// theirs now.
    fn moves_to_front(&mut self, most: u32) -> Vec<Move> {
        let images = (0..).map(PageNo).zip(self.places.iter().copied());
        let mut images: Vec<(PageNo, Place)> =
            images.filter(|(_, place)| place.units() > 0).collect();
        images.sort_unstable_by_key(|(_, place)| std::cmp::Reverse(place.unit));
        let (mut left, mut moves) = (most, Vec::new());
        for (page, from) in images {
            let units = from.units();
            let found = (units <= left).then(|| self.units.take_before(units, from.unit));
            let Some(Extent { start: unit, .. }) = found.flatten() else {
                break;
            };
            left -= units;
            let to = Place { unit, ..from };
            paranoid!(
                extent_of(&to).end() <= from.unit,
                "the image of page {page} moves from {from:?} to {to:?}"
            );
            let gap = Extent::default();
            moves.push(Move {
                page,
                from,
                to,
                gap,
            });
        }
        moves
    }
}
