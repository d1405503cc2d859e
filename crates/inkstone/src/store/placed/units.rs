//! Which units of a placed tablespace's file are taken.
//!
//! Some side by side are kept free for `compaction.rs`, the *hole*: they count as taken. What is
//! given back beside them makes up for what it lacks, before anything else gets it.

use crate::paranoid::paranoid;

/// Units side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub start: u32,
    pub length: u32,
}

impl Extent {
    pub fn end(&self) -> u32 {
        self.start + self.length
    }
}

/// A bit for each unit, set where it is taken.
#[derive(Debug)]
pub(super) struct Units {
    words: Vec<u64>,
    count: u32,
    free: u32,
    /// Where the search begins: behind what was taken last.
    next: u32,
    /// So many side by side were not found since units were last given back.
    scarce: u32,
    /// Its place is known when it has no units too.
    hole: Extent,
    /// Units that the hole is to have.
    hole_wanted: u32,
}

const BITS: u32 = u64::BITS;

impl Units {
    /// So many units, all of them free.
    pub fn new(count: u32) -> Self {
        let mut units = Self {
            words: Vec::new(),
            count: 0,
            free: 0,
            next: 0,
            scarce: u32::MAX,
            hole: Extent::default(),
            hole_wanted: 0,
        };
        units.grow(count);
        units
    }

    /// So many units, all of them taken: those of a new file.
    pub fn with_header(count: u32) -> Self {
        let mut units = Self::new(count);
        units.occupy_all();
        units
    }

    /// None of those that are there is to be used.
    pub fn occupy_all(&mut self) {
        for unit in 0..self.count {
            self.words[(unit / BITS) as usize] |= 1 << (unit % BITS);
        }
        self.free = 0;
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    fn is_taken(&self, unit: u32) -> bool {
        self.words[(unit / BITS) as usize] >> (unit % BITS) & 1 == 1
    }

    /// There are so many now.
    pub fn grow(&mut self, count: u32) {
        paranoid!(count >= self.count, "{} units grow to {count}", self.count);
        self.words.resize(count.div_ceil(BITS) as usize, 0);
        self.scarce = u32::MAX;
        self.free += count - self.count;
        self.count = count;
        if self.hole.length < self.hole_wanted {
            self.place_hole();
        }
    }

    /// From now on so many are kept side by side, as soon as there are.
    pub fn keep_hole(&mut self, length: u32) {
        self.hole_wanted = length;
        self.place_hole();
    }

    /// Units that the hole is to have.
    pub fn hole_wanted(&self) -> u32 {
        self.hole_wanted
    }

    pub fn hole(&self) -> Extent {
        self.hole
    }

    /// The hole goes to the first units that suffice for it, or to the most that there are.
    pub fn place_hole(&mut self) {
        let old = std::mem::take(&mut self.hole);
        self.clear(old);
        let length = self.hole_wanted;
        let first = self.find(0, self.count, length.max(1));
        let chosen = first.map_or_else(|| self.longest(), |start| Extent { start, length });
        paranoid!(
            chosen.length <= length,
            "a hole of {} units is to have {length}",
            chosen.length
        );
        self.set(chosen);
        self.hole = chosen;
    }

    /// The most free units side by side.
    fn longest(&self) -> Extent {
        let (mut longest, mut start) = (Extent::default(), 0);
        while start < self.count {
            let length = self.free_from(start, self.count);
            if length > longest.length {
                longest = Extent { start, length };
            }
            start += length;
            start += self.taken_from(start);
        }
        longest
    }

    /// The hole takes the free units beside it, up to so many in all.
    pub fn widen_hole(&mut self, most: u32) {
        while self.hole.length < most {
            let Extent { start, length } = self.hole;
            let one = if self.is_free(self.hole.end()) {
                self.hole.length += 1;
                start + length
            } else if start > 0 && self.is_free(start - 1) {
                self.hole.start -= 1;
                self.hole.length += 1;
                start - 1
            } else {
                break;
            };
            self.set(Extent {
                start: one,
                length: 1,
            });
        }
        paranoid!(
            self.hole.end() <= self.count,
            "{:?} is the hole of {} units",
            self.hole,
            self.count
        );
    }

    /// What the hole has beyond its measure is free again, and is taken next.
    pub fn narrow_hole(&mut self) {
        let surplus = self.hole.length.saturating_sub(self.hole_wanted);
        let rest = Extent {
            start: self.hole.end() - surplus,
            length: surplus,
        };
        self.hole.length -= surplus;
        self.clear(rest);
        self.next = rest.start;
        paranoid!(
            self.next <= self.count && self.hole.length <= self.hole_wanted,
            "{:?} is what is left of the hole, in {} units",
            self.hole,
            self.count
        );
    }

    /// Units of the hole are an image's, at its start or at its end.
    pub fn fill_hole(&mut self, length: u32, at_end: bool) -> u32 {
        paranoid!(
            length <= self.hole.length,
            "{length} units of a hole of {} are an image's",
            self.hole.length
        );
        self.hole.length -= length;
        if at_end {
            return self.hole.end();
        }
        self.hole.start += length;
        self.hole.start - length
    }

    /// Whether there is such a unit, and nothing has it.
    pub fn is_free(&self, unit: u32) -> bool {
        unit < self.count && !self.is_taken(unit)
    }

    /// There are only so many now; those behind are free.
    pub fn cut(&mut self, count: u32) {
        paranoid!(
            count <= self.count && self.count - count <= self.free_at_end(),
            "{} units are cut to {count}, and the last {} are free",
            self.count,
            self.free_at_end()
        );
        self.free -= self.count - count;
        self.count = count;
        self.words.truncate(count.div_ceil(BITS) as usize);
        self.next = self.next.min(count);
    }

    /// How many at the end are free.
    pub fn free_at_end(&self) -> u32 {
        let mut free = 0;
        while free < self.count {
            let last = self.count - free - 1;
            let word = self.words[(last / BITS) as usize];
            if last % BITS == BITS - 1 && word == 0 {
                free += BITS;
            } else if self.is_taken(last) {
                break;
            } else {
                free += 1;
            }
        }
        paranoid!(
            free <= self.free,
            "{free} units at the end are free, of {}",
            self.free
        );
        free
    }

    /// Takes units that a page has: false if one of them is another's, or is not there.
    pub fn occupy(&mut self, extent: Extent) -> bool {
        let end = u64::from(extent.start) + u64::from(extent.length);
        if end > u64::from(self.count) {
            return false;
        }
        let range = extent.start..extent.start + extent.length;
        if range.clone().any(|unit| self.is_taken(unit)) {
            return false;
        }
        self.set(extent);
        true
    }

    fn set(&mut self, extent: Extent) {
        paranoid!(
            extent.length <= self.free && extent.start + extent.length <= self.count,
            "{extent:?} is taken of {} units, of which {} are free",
            self.count,
            self.free
        );
        for unit in extent.start..extent.start + extent.length {
            self.words[(unit / BITS) as usize] |= 1 << (unit % BITS);
        }
        self.free -= extent.length;
    }

    /// Takes so many units side by side: those that come next, round the file.
    pub fn take(&mut self, length: u32) -> Option<Extent> {
        if length == 0 || length > self.free || length >= self.scarce {
            return None;
        }
        paranoid!(
            self.next <= self.count,
            "units are sought from {} on, of {}",
            self.next,
            self.count
        );
        let start = self
            .find(self.next, self.count, length)
            .or_else(|| self.find(0, self.count.min(self.next + length), length));
        let Some(start) = start else {
            self.scarce = length;
            return None;
        };
        let extent = Extent { start, length };
        paranoid!(
            (start..start + length).all(|unit| !self.is_taken(unit)),
            "units of {extent:?} are taken twice"
        );
        self.set(extent);
        self.next = start + length;
        Some(extent)
    }

    /// Takes so many units side by side, of those that leave the fewest free beside them.
    pub fn take_tight(&mut self, length: u32) -> Option<Extent> {
        if length == 0 || length > self.free || length >= self.scarce {
            return None;
        }
        let (mut best, mut at) = (None, 0);
        while at < self.count {
            let run = self.free_from(at, self.count);
            if run >= length && best.is_none_or(|(shortest, _)| run < shortest) {
                best = Some((run, at));
                if run == length {
                    break;
                }
            }
            at += run;
            at += self.taken_from(at);
        }
        let Some((run, start)) = best else {
            self.scarce = length;
            return None;
        };
        paranoid!(
            (start..start + run).all(|unit| !self.is_taken(unit)),
            "{length} units are taken of {run} from {start} on that are not free"
        );
        let extent = Extent { start, length };
        self.set(extent);
        Some(extent)
    }

    /// Takes the first units side by side of those before `end`.
    pub fn take_before(&mut self, length: u32, end: u32) -> Option<Extent> {
        let start = self.find(0, end.min(self.count), length)?;
        let extent = Extent { start, length };
        paranoid!(
            extent.end() <= end,
            "units of {extent:?} are taken before {end}"
        );
        self.set(extent);
        Some(extent)
    }

    /// The first of `length` free units side by side, from `from` on and before `end`.
    fn find(&self, from: u32, end: u32, length: u32) -> Option<u32> {
        paranoid!(
            end <= self.count && length > 0,
            "{length} units are sought before unit {end} of {}",
            self.count
        );
        let mut at = from;
        while at.checked_add(length)? <= end {
            let run = self.free_from(at, length);
            if run == length {
                return Some(at);
            }
            at += run;
            at += self.taken_from(at);
        }
        None
    }

    /// How many units from `at` on are free, up to `most`.
    fn free_from(&self, at: u32, most: u32) -> u32 {
        let mut run = 0;
        while run < most && at + run < self.count {
            let unit = at + run;
            let ahead = self.words[(unit / BITS) as usize] >> (unit % BITS);
            let free = ahead.trailing_zeros().min(BITS - unit % BITS);
            run += free;
            if ahead != 0 {
                break;
            }
        }
        paranoid!(at < self.count, "unit {at} of {} is looked at", self.count);
        run.min(most).min(self.count - at)
    }

    /// How many units from `at` on are taken.
    fn taken_from(&self, at: u32) -> u32 {
        let mut run = 0;
        while at + run < self.count {
            let unit = at + run;
            let ahead = self.words[(unit / BITS) as usize] >> (unit % BITS);
            let taken = ahead.trailing_ones();
            run += taken;
            if taken < BITS - unit % BITS {
                break;
            }
        }
        paranoid!(
            at + run <= self.count,
            "{run} units from {at} on are taken, of {}",
            self.count
        );
        run
    }

    /// Units that nothing needs any more.
    pub fn give_back(&mut self, extent: Extent) {
        self.clear(extent);
        self.widen_hole(self.hole_wanted);
    }

    fn clear(&mut self, extent: Extent) {
        for unit in extent.start..extent.start + extent.length {
            paranoid!(self.is_taken(unit), "unit {unit} is given back twice");
            self.words[(unit / BITS) as usize] &= !(1 << (unit % BITS));
        }
        self.free += extent.length;
        self.scarce = u32::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_taken_once_whatever_the_order() {
        let mut state = 7_u64;
        let mut below = |n: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as u32 % n
        };
        let mut units = Units::new(300);
        let mut model = vec![false; 300];
        let mut taken: Vec<Extent> = Vec::new();
        for _ in 0..20_000 {
            match below(10) {
                0..5 => {
                    let length = 1 + below(5);
                    let fits = model
                        .windows(length as usize)
                        .any(|w| w.iter().all(|&t| !t));
                    let is_tight = below(2) == 0;
                    let extent = if is_tight {
                        units.take_tight(length)
                    } else {
                        units.take(length)
                    };
                    assert_eq!(extent.is_some(), fits, "{length} of {units:?}");
                    if let Some(extent) = extent {
                        let of = &mut model[extent.start as usize..][..length as usize];
                        assert!(of.iter().all(|&taken| !taken));
                        of.fill(true);
                        taken.push(extent);
                    }
                }
                5..9 if !taken.is_empty() => {
                    let extent = taken.swap_remove(below(taken.len() as u32) as usize);
                    units.give_back(extent);
                    model[extent.start as usize..][..extent.length as usize].fill(false);
                }
                _ => {
                    let end = model.iter().rev().take_while(|&&taken| !taken).count();
                    assert_eq!(units.free_at_end(), end as u32);
                    if below(2) == 0 {
                        let count = units.count() - end as u32;
                        units.cut(count);
                        model.truncate(count as usize);
                    }
                    let count = (units.count() + below(100)).min(1000);
                    units.grow(count.max(units.count()));
                    model.resize(units.count() as usize, false);
                }
            }
            let free = model.iter().filter(|&&taken| !taken).count();
            assert_eq!(units.free(), free as u32);
        }
    }
}
