//! Which tablespace has which slots of the map's file: tablespaces have them in *stretches*, runs
//! side by side in slots side by side, and so are the free ones. A tablespace that grew by itself
//! has one stretch; giving and taking slots costs no walk over others'.
//!
//! Invariants, executed by `check`: stretches overlap nowhere; neighbours that could be one are;
//! every slot is of one stretch or free; `entries` says the same.

#[cfg(test)]
mod tests;

use super::cache::Run;
use crate::paranoid::{Check, paranoid};
use crate::sync::HashMap;
use inkstone_format::SpaceId;
use inkstone_format::page_lsn_map::{BLOCK_ENTRIES, index_entry, parse_index_entry};
use std::collections::{BTreeMap, BTreeSet};

/// In a larger map the promises are not executed: they look at every slot.
const ENTRIES_CHECKED: usize = 2 * BLOCK_ENTRIES;

/// Slots side by side of runs side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    slot: u32,
    len: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Slots {
    /// The index entries of all slots that the file has room for.
    entries: Vec<u64>,
    /// By tablespace and first run.
    of_space: HashMap<SpaceId, BTreeMap<u32, Stretch>>,
    /// By first slot: how many are free from there on.
    free: BTreeMap<u32, u32>,
    free_count: usize,
    /// Groups whose index block on disk says something else.
    changed: BTreeSet<u32>,
    /// Tablespaces that were dropped: they get no slots again.
    released: BTreeSet<SpaceId>,
}

/// The index block that a slot is in.
pub(super) fn group_of(slot: u32) -> u32 {
    slot / BLOCK_ENTRIES as u32
}

impl Slots {
    /// Slots that the file has room for.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub fn free_count(&self) -> usize {
        self.free_count
    }

    /// The file has room for so many.
    pub fn make_room(&mut self, capacity: usize) {
        let before = self.entries.len();
        self.entries.resize(capacity, 0);
        if capacity > before {
            self.put_free(before as u32, (capacity - before) as u32);
        }
    }

    /// The slot of a run.
    pub fn slot(&self, (space, run): Run) -> Option<u32> {
        let stretches = self.of_space.get(&space)?;
        let (&first, stretch) = stretches.range(..=run).next_back()?;
        (run - first < stretch.len).then(|| stretch.slot + (run - first))
    }

    /// The run that has a slot.
    pub fn run(&self, slot: u32) -> Option<Run> {
        parse_index_entry(*self.entries.get(slot as usize)?)
    }

    /// Whether a tablespace was dropped.
    pub fn is_released(&self, space: SpaceId) -> bool {
        self.released.contains(&space)
    }

    /// Gives a free slot to the run that the index entry on disk names, if that run has none yet.
    pub fn assign(&mut self, slot: u32, entry: u64) {
        let Some(run) = parse_index_entry(entry) else {
            return;
        };
        if self.slot(run).is_none() && self.take_free(slot) {
            self.entries[slot as usize] = entry;
            self.join(run, slot);
        }
    }

    /// Gives a run the first free slot. False: there is none.
    pub fn give(&mut self, (space, run): Run) -> bool {
        let Some((&slot, _)) = self.free.first_key_value() else {
            return false;
        };
        self.assign(slot, index_entry(space, run));
        self.changed.insert(group_of(slot));
        true
    }

    /// Makes a run and its slot part of the tablespace's stretches.
    fn join(&mut self, (space, run): Run, slot: u32) {
        let stretches = self.of_space.entry(space).or_default();
        let mut joined = (run, Stretch { slot, len: 1 });
        if let Some((&first, &before)) = stretches.range(..run).next_back()
            && first + before.len == run
            && before.slot + before.len == slot
        {
            joined = (first, before);
            joined.1.len += 1;
        }
        if let Some(&after) = stretches.get(&(run + 1))
            && after.slot == slot + 1
        {
            stretches.remove(&(run + 1));
            joined.1.len += after.len;
        }
        stretches.insert(joined.0, joined.1);
    }

    /// Takes one slot from the free ones. False: it is not free.
    fn take_free(&mut self, slot: u32) -> bool {
        let Some((&first, &len)) = self.free.range(..=slot).next_back() else {
            return false;
        };
        if slot - first >= len {
            return false;
        }
        self.free.remove(&first);
        if slot > first {
            self.free.insert(first, slot - first);
        }
        if slot + 1 < first + len {
            self.free.insert(slot + 1, first + len - slot - 1);
        }
        self.free_count -= 1;
        true
    }

    fn put_free(&mut self, slot: u32, len: u32) {
        let (mut first, mut end) = (slot, slot + len);
        if let Some((&before, &before_len)) = self.free.range(..slot).next_back()
            && before + before_len == slot
        {
            first = before;
        }
        if let Some(after) = self.free.remove(&end) {
            end += after;
        }
        self.free.insert(first, end - first);
        self.free_count += len as usize;
    }

    /// A tablespace was dropped, for good.
    pub fn release(&mut self, space: SpaceId) {
        self.released.insert(space);
        self.take_from(space);
    }

    /// Takes their slots from the tablespaces that `stays` does not select.
    pub fn retain(&mut self, stays: impl Fn(SpaceId) -> bool) {
        let spaces = self.of_space.keys().copied();
        let gone: Vec<SpaceId> = spaces.filter(|&space| !stays(space)).collect();
        gone.into_iter().for_each(|space| self.take_from(space));
    }

    fn take_from(&mut self, space: SpaceId) {
        let stretches = self.of_space.remove(&space).unwrap_or_default();
        for Stretch { slot, len } in stretches.into_values() {
            self.entries[slot as usize..(slot + len) as usize].fill(0);
            self.changed
                .extend(group_of(slot)..=group_of(slot + len - 1));
            self.put_free(slot, len);
        }
    }

    /// A group whose index block is to be written, and what it says.
    pub fn take_changed(&mut self) -> Option<(u32, [u64; BLOCK_ENTRIES])> {
        let group = self.changed.pop_first()?;
        let mut entries = [0; BLOCK_ENTRIES];
        let first = group as usize * BLOCK_ENTRIES;
        for (to, &from) in entries.iter_mut().zip(&self.entries[first..]) {
            *to = from;
        }
        Some((group, entries))
    }

    /// It could not be written.
    pub fn put_changed(&mut self, group: u32) {
        self.changed.insert(group);
    }
}

impl Check for Slots {
    fn check(&self) {
        if self.entries.len() > ENTRIES_CHECKED {
            return;
        }
        let mut owner = vec![None; self.entries.len()];
        for (&space, stretches) in &self.of_space {
            let mut before: Option<(u32, Stretch)> = None;
            for (&first, &stretch) in stretches {
                for n in 0..stretch.len {
                    let place = &mut owner[(stretch.slot + n) as usize];
                    paranoid!(
                        place.replace((space, first + n)).is_none(),
                        "two runs in slot {}",
                        stretch.slot + n
                    );
                }
                if let Some((run, it)) = before {
                    let touches = run + it.len == first && it.slot + it.len == stretch.slot;
                    paranoid!(
                        run + it.len <= first && !touches,
                        "runs {run} and {first} of {space:?} are not apart"
                    );
                }
                before = Some((first, stretch));
            }
        }
        let (mut free, mut end) = (0, None);
        for (&first, &len) in &self.free {
            let is_free = (first..first + len).all(|slot| owner[slot as usize].is_none());
            paranoid!(
                len > 0 && is_free && end.is_none_or(|end| first > end),
                "{len} free slots from {first} on"
            );
            free += len as usize;
            end = Some(first + len);
        }
        let owned = owner.iter().flatten().count();
        paranoid!(
            (free, owned + free) == (self.free_count, owner.len()),
            "{free} free slots and {owned} others of {}, counted as {}",
            owner.len(),
            self.free_count
        );
        for (slot, &owner) in owner.iter().enumerate() {
            paranoid!(
                parse_index_entry(self.entries[slot]) == owner,
                "slot {slot} is another's"
            );
        }
    }
}
