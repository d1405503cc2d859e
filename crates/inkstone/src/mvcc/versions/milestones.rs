//! Ways past the many versions of one row.
//!
//! A row's versions are linked from the newest to the oldest. Of a row that has many live ones
//! every so many changes one is a *milestone*: its entry keeps the whole old value, so a reader can
//! go on there without the versions before it. Along a chain those that a snapshot does not see
//! come first. So a reader that has gone some way looks for the oldest milestone that it does not
//! see, by halves, and is close behind.
//!
//! # Promises
//!
//! 1. A milestone that is listed is a change that was not undone. So a reader that does not see it
//!    finds what it sees behind it, also from a copy of the row's cell that is older than the list.
//!    Rollback takes it from the list before it changes the row back. Tested by
//!    `readers_pass_many_versions`. Tested by the simulator (`milestone-undone`).
//! 2. The list takes a bounded part of memory: when it is full every other milestone is given up,
//!    and of the next ones every other one is listed, so that they are evenly far apart. Tested by
//!    `milestones_take_bounded_memory`.

use super::VersionView;
use crate::paranoid::{Check, MANY, paranoid};
use crate::sync::HashMap;
use inkstone_format::{SpaceId, TreeId, VersionAddress};
use std::collections::VecDeque;

/// Memory that a row is reckoned at beside its key and its milestones.
const ROW_BYTES: u64 = 128;
const ADDRESS_BYTES: u64 = 8;

/// How many of a row's changes lie between two milestones, at most: entries count them in a byte.
const STEPS_MAX: u64 = 254;
const STEPS_MIN: u64 = 4;
/// The part of the memory budget that milestones take.
const PART_OF_BUDGET: u64 = 16;

/// What an entry that is a milestone has in place of the count.
pub(super) const MILESTONE: u8 = 255;

pub(super) type RowKey = (SpaceId, TreeId, Box<[u8]>);

/// The milestones of one row, the oldest first.
#[derive(Debug, Default)]
struct OfRow {
    addresses: VecDeque<VersionAddress>,
    /// The number of the first one: each has the next, until every other one is given up.
    first: u64,
    /// How many could have been listed so far.
    seen: u64,
    /// One in two to the power of this is listed.
    level: u32,
}

/// The milestones of all rows. See the module.
#[derive(Debug)]
pub(super) struct Milestones {
    rows: HashMap<RowKey, OfRow>,
    bytes: u64,
    bytes_max: u64,
}

/// How many changes of a row lie between two milestones, with this memory budget.
pub(super) fn steps_between(budget: u64) -> u8 {
    (budget >> 18).clamp(STEPS_MIN, STEPS_MAX) as u8
}

pub(super) fn row_of(entry: &VersionView<'_>) -> RowKey {
    (entry.space, entry.tree, entry.key.into())
}

/// Whether a version with this count is a milestone.
pub(crate) fn is_milestone(steps: u8) -> bool {
    steps == MILESTONE
}

fn row_bytes(row: &RowKey) -> u64 {
    ROW_BYTES + row.2.len() as u64
}

impl Milestones {
    pub fn new(budget: u64) -> Self {
        Self {
            rows: HashMap::default(),
            bytes: 0,
            bytes_max: budget / PART_OF_BUDGET,
        }
    }

    /// Memory that they are reckoned at.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lists the newest version of a row, if it is that one's turn.
    pub fn add(&mut self, row: RowKey, address: VersionAddress) {
        if !self.rows.contains_key(&row) {
            self.bytes += row_bytes(&row);
        }
        let of_row = self.rows.entry(row).or_default();
        paranoid!(
            !of_row
                .addresses
                .iter()
                .rev()
                .take(MANY)
                .any(|&other| other == address),
            "version {address} is a milestone twice"
        );
        of_row.seen += 1;
        if !of_row.seen.is_multiple_of(1 << of_row.level) {
            return;
        }
        of_row.addresses.push_back(address);
        self.bytes += ADDRESS_BYTES;
        while self.bytes > self.bytes_max {
            self.thin();
        }
    }

    /// Gives up every other one. Of a row that has a single one nothing is left.
    fn thin(&mut self) {
        let before = self.bytes;
        self.retain(|_, of_row| {
            let mut number = 0_u64;
            of_row.addresses.retain(|_| {
                number += 1;
                number.is_multiple_of(2)
            });
            of_row.addresses.shrink_to_fit();
            of_row.level += 1;
            !of_row.addresses.is_empty()
        });
        paranoid!(
            self.bytes < before,
            "{before} bytes of milestones, and no fewer after a thinning"
        );
    }

    /// Takes one off the list. It is among the newest of its row, or not listed.
    pub fn remove(&mut self, row: RowKey, address: VersionAddress) {
        paranoid!(
            address != VersionAddress(0),
            "no version is taken off the list"
        );
        let Some(of_row) = self.rows.get_mut(&row) else {
            return;
        };
        let place = of_row.addresses.iter().rposition(|&other| other == address);
        if let Some(place) = place {
            of_row.addresses.remove(place);
            self.bytes -= ADDRESS_BYTES;
        }
        if of_row.addresses.is_empty() {
            self.bytes -= row_bytes(&row);
            self.rows.remove(&row);
        }
    }

    /// Takes those of a tree off the list: another may get its number.
    pub fn remove_tree(&mut self, space: SpaceId, tree: TreeId) {
        self.retain(|row, _| (row.0, row.1) != (space, tree));
    }

    /// Takes off the list what is no longer live, but for what lies between live ones.
    pub fn remove_dead(&mut self, is_live: impl Fn(VersionAddress) -> bool) {
        self.retain(|_, of_row| {
            while let Some(&oldest) = of_row.addresses.front()
                && !is_live(oldest)
            {
                of_row.addresses.pop_front();
                of_row.first += 1;
            }
            !of_row.addresses.is_empty()
        });
    }

    fn retain(&mut self, mut is_left: impl FnMut(&RowKey, &mut OfRow) -> bool) {
        let mut bytes = 0;
        self.rows.retain(|row, of_row| {
            let is_left = is_left(row, of_row);
            if is_left {
                bytes += row_bytes(row) + of_row.addresses.len() as u64 * ADDRESS_BYTES;
            }
            is_left
        });
        paranoid!(
            bytes <= self.bytes,
            "{} bytes of milestones have become {bytes}",
            self.bytes
        );
        self.bytes = bytes;
    }

    /// The numbers of a row's: the first, and one beyond the last.
    pub fn numbers(&self, row: &RowKey) -> (u64, u64) {
        let of_row = self.rows.get(row);
        of_row.map_or((0, 0), |of_row| {
            (of_row.first, of_row.first + of_row.addresses.len() as u64)
        })
    }

    /// A row's by its number; `None` if that is gone.
    pub fn nth(&self, row: &RowKey, number: u64) -> Option<VersionAddress> {
        let of_row = self.rows.get(row)?;
        paranoid!(
            of_row.addresses.len() as u64 <= of_row.seen,
            "{} of {} milestones are listed",
            of_row.addresses.len(),
            of_row.seen
        );
        let at = number.checked_sub(of_row.first)?;
        of_row.addresses.get(usize::try_from(at).ok()?).copied()
    }
}

impl Check for Milestones {
    fn check(&self) {
        paranoid!(
            self.bytes <= self.bytes_max,
            "{} bytes of milestones, of at most {}",
            self.bytes,
            self.bytes_max
        );
        paranoid!(
            self.rows.is_empty() == (self.bytes == 0),
            "{} rows have milestones of {} bytes",
            self.rows.len(),
            self.bytes
        );
        for (row, of_row) in self.rows.iter().take(MANY) {
            paranoid!(
                !of_row.addresses.is_empty(),
                "row {row:x?} is listed without a milestone"
            );
        }
    }
}
