//! How many pages are free in each region of a file: a page is found without a walk over the space
//! maps.
//!
//! # Words
//! A *region* is what one space map has bits for. It is *known* once its map was looked at; after
//! an opening none is.
//!
//! # Promises
//! 1. While a map is latched exclusively by a thread that has changed nothing in it, a known
//!    region's number is that of the clear bits of its map (`Space::is_counted_right`). Checked by
//!    `Space::find_free`.
//! 2. What is not known counts as full; a number in the tree is the greatest one below it. Checked
//!    by `Counts::check`. Tested by `the_first_number_that_is_large_enough_is_found`.
//! 3. A region that is gone is unknown. Tested by `regions_are_known_once_they_were_looked_at`,
//!    `regions_at_the_end_go_and_come_back`.
//!
//! Memory: eight to sixteen bytes for each region, which is a gigabyte or two.
//!
//! Latches: the mutex is held for a few steps, under the latch of a map; nothing is latched under
//! it.

use crate::mutants::{self, Mutant};
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Regions {
    counts: Checked<Counts>,
    /// Whether a search for a page left regions unknown: the background looks at them.
    more_to_know: AtomicBool,
}

#[derive(Debug, Default)]
struct Counts {
    /// Free pages of known regions; zero for others.
    free: MaxTree,
    known: Vec<bool>,
    /// All regions below are known.
    known_below: usize,
}

impl Regions {
    /// The lowest region that is known to have so many free pages.
    pub fn lowest_with(&self, pages: u32) -> Option<u32> {
        let counts = self.counts.lock();
        let found = counts.free.first_with(pages);
        paranoid!(
            found.is_none_or(|region| counts.is_known(region) && counts.free.get(region) >= pages),
            "region {found:?} is not known to have {pages} free pages"
        );
        found.map(|region| region as u32)
    }

    /// The lowest region up to `last` that is not known.
    pub fn lowest_unknown(&self, last: u32) -> Option<u32> {
        let mut counts = self.counts.lock();
        while counts.is_known(counts.known_below) {
            counts.known_below += 1;
        }
        (counts.known_below <= last as usize).then_some(counts.known_below as u32)
    }

    /// Free pages of a region, if it is known.
    pub fn free_pages(&self, region: u32) -> Option<u32> {
        let (counts, region) = (self.counts.lock(), region as usize);
        counts.is_known(region).then(|| counts.free.get(region))
    }

    /// Whether a region is known.
    pub fn is_known(&self, region: u32) -> bool {
        self.counts.lock().is_known(region as usize)
    }

    /// A region has so many free pages. Its map is latched.
    pub fn learn(&self, region: u32, free: u32) {
        let (mut counts, region) = (self.counts.lock(), region as usize);
        if counts.known.len() <= region {
            counts.known.resize(region + 1, false);
        }
        counts.known[region] = true;
        counts.free.set(region, free);
    }

    /// A page of a region was allocated. Its map is latched exclusively.
    pub fn note_taken(&self, region: u32) {
        let (mut counts, region) = (self.counts.lock(), region as usize);
        if counts.is_known(region) {
            let free = counts.free.get(region);
            paranoid!(
                free > 0 || mutants::on(Mutant::PageLeaked),
                "a page was taken in region {region}, which has none"
            );
            counts.free.set(region, free.saturating_sub(1));
        }
    }

    /// A page of a region was freed; `count` counts its free pages. Its map is latched exclusively.
    pub fn note_freed(&self, region: u32, count: impl FnOnce() -> u32) {
        {
            let (mut counts, region) = (self.counts.lock(), region as usize);
            if counts.is_known(region) {
                let free = counts.free.get(region) + 1;
                return counts.free.set(region, free);
            }
        }
        self.learn(region, count());
    }

    /// A region is gone. Its map is latched exclusively.
    pub fn forget(&self, region: u32) {
        let (mut counts, region) = (self.counts.lock(), region as usize);
        if counts.is_known(region) {
            counts.known[region] = false;
            counts.known_below = counts.known_below.min(region);
            counts.free.set(region, 0);
        }
    }

    /// Notes whether a search for a page left regions unknown.
    pub fn set_more_to_know(&self, more: bool) {
        self.more_to_know.store(more, Ordering::Relaxed);
    }

    /// Whether they were.
    pub fn is_more_to_know(&self) -> bool {
        self.more_to_know.load(Ordering::Relaxed)
    }
}

impl Check for Counts {
    /// What is not known counts as full, and each number of the tree is the greater one below it.
    fn check(&self) {
        paranoid!(
            self.known_below <= self.known.len(),
            "regions below {} are known, of {}",
            self.known_below,
            self.known.len()
        );
        let below = self.known.iter().take(self.known_below).rev().take(MANY);
        paranoid!(
            below.copied().all(|known| known),
            "a region below {} is not known",
            self.known_below
        );
        let unknown = (0..self.known.len().min(MANY)).filter(|&region| !self.known[region]);
        for region in unknown {
            paranoid!(
                self.free.get(region) == 0,
                "region {region} is not known, and has free pages"
            );
        }
        self.free.check();
    }
}

impl Check for MaxTree {
    fn check(&self) {
        let nodes = &self.nodes;
        paranoid!(
            nodes.is_empty() || nodes.len().is_power_of_two(),
            "a tree of {} nodes",
            nodes.len()
        );
        for at in 1..self.capacity().min(MANY) {
            paranoid!(
                nodes[at] == nodes[2 * at].max(nodes[2 * at + 1]),
                "node {at} is not the greater one of its children"
            );
        }
    }
}

impl Counts {
    fn is_known(&self, region: usize) -> bool {
        self.known.get(region).copied().unwrap_or(false)
    }
}

/// Numbers by index, zero at first, of which the first one that is large enough is found in a
/// number of steps that grows with the logarithm of how many there are.
#[derive(Debug, Default)]
struct MaxTree {
    /// Node 1 is the root; 2 n and 2 n + 1 are the children of n, which is the greater one of them.
    /// The second half are the numbers. Empty, or a power of two long.
    nodes: Vec<u32>,
}

impl MaxTree {
    fn capacity(&self) -> usize {
        self.nodes.len() / 2
    }

    fn get(&self, index: usize) -> u32 {
        let at = self.capacity() + index;
        self.nodes.get(at).copied().unwrap_or(0)
    }

    fn set(&mut self, index: usize, value: u32) {
        if index >= self.capacity() {
            self.grow(index);
        }
        let mut at = self.capacity() + index;
        self.nodes[at] = value;
        while at > 1 {
            at /= 2;
            self.nodes[at] = self.nodes[2 * at].max(self.nodes[2 * at + 1]);
        }
    }

    /// Makes room for an index.
    fn grow(&mut self, index: usize) {
        let numbers = self.nodes.split_off(self.capacity());
        let capacity = (index + 1).next_power_of_two();
        self.nodes = vec![0; 2 * capacity];
        self.nodes[capacity..capacity + numbers.len()].copy_from_slice(&numbers);
        for at in (1..capacity).rev() {
            self.nodes[at] = self.nodes[2 * at].max(self.nodes[2 * at + 1]);
        }
    }

    /// The first index whose number is at least `least`, which is not zero.
    fn first_with(&self, least: u32) -> Option<usize> {
        if self.nodes.get(1).is_none_or(|&greatest| greatest < least) {
            return None;
        }
        let mut at = 1;
        while at < self.capacity() {
            at *= 2;
            if self.nodes[at] < least {
                at += 1;
            }
        }
        paranoid!(
            self.nodes[at] >= least,
            "the number found is {}, not {least}",
            self.nodes[at]
        );
        Some(at - self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_that_is_large_enough_is_found() {
        let (mut tree, mut model, mut dice) = (MaxTree::default(), Vec::new(), 1u64);
        assert_eq!(tree.first_with(1), None);
        for _ in 0..20_000 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            let (index, value) = ((dice >> 20) as usize % 300, (dice >> 40) as u32 % 5);
            if model.len() <= index {
                model.resize(index + 1, 0);
            }
            model[index] = value;
            tree.set(index, value);
            assert_eq!(tree.get(index), value);
            for least in 1..6 {
                let expected = model.iter().position(|&number| number >= least);
                assert_eq!(tree.first_with(least), expected, "{least} in {model:?}");
            }
        }
    }

    #[test]
    fn regions_are_known_once_they_were_looked_at() {
        let regions = Regions::default();
        assert_eq!(regions.lowest_with(1), None);
        assert_eq!(regions.lowest_unknown(2), Some(0));
        regions.learn(0, 0);
        regions.learn(2, 7);
        assert_eq!(regions.lowest_unknown(2), Some(1));
        // A thread that frees a page has the map at hand.
        regions.note_freed(1, || 3);
        assert_eq!(regions.lowest_unknown(2), None);
        assert_eq!(regions.lowest_with(1), Some(1));
        assert_eq!(regions.lowest_with(4), Some(2));
        (0..3).for_each(|_| regions.note_taken(1));
        assert_eq!(regions.lowest_with(1), Some(2));
        regions.note_freed(0, || panic!("it is known"));
        assert_eq!(regions.lowest_with(1), Some(0));
        regions.forget(2);
        assert!(!regions.is_known(2));
        assert_eq!(regions.lowest_with(2), None);
        assert_eq!(regions.lowest_unknown(2), Some(2));
    }
}
