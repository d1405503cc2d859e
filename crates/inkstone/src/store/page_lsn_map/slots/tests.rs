//! Slots against a plain model.

use super::*;
use crate::sync::HashSet;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

#[test]
fn slots_are_as_a_plain_map_has_them() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let (mut slots, mut model) = (Slots::default(), HashMap::<Run, u32>::default());
        let mut released = HashSet::<SpaceId>::default();
        for _ in 0..400 {
            let space = SpaceId(1 + random.below(6) as u32);
            match random.below(40) {
                0 => slots.make_room(slots.capacity() + random.below(700) as usize),
                1 if random.below(3) == 0 => {
                    slots.release(space);
                    released.insert(space);
                    model.retain(|(of, _), _| *of != space);
                }
                2 => {
                    slots.retain(|of| of == space);
                    model.retain(|(of, _), _| *of == space);
                }
                _ if released.contains(&space) => {}
                _ => {
                    let run = (space, random.below(60) as u32);
                    if !model.contains_key(&run) {
                        let lowest = (0..slots.capacity() as u32)
                            .find(|slot| !model.values().any(|other| other == slot));
                        assert_eq!(slots.give(run), lowest.is_some());
                        model.extend(lowest.map(|slot| (run, slot)));
                    }
                }
            }
            slots.check();
        }
        for space in (1..=6).map(SpaceId) {
            assert_eq!(slots.is_released(space), released.contains(&space));
            for run in (0..60).map(|run| (space, run)) {
                assert_eq!(slots.slot(run), model.get(&run).copied());
            }
        }
        let mut seen = 0;
        while let Some((group, entries)) = slots.take_changed() {
            for (n, entry) in entries.into_iter().enumerate() {
                let slot = group * BLOCK_ENTRIES as u32 + n as u32;
                let owner = model.iter().find(|(_, of)| **of == slot);
                assert_eq!(parse_index_entry(entry), owner.map(|(run, _)| *run));
                seen += u64::from(owner.is_some());
            }
        }
        assert_eq!(seen, model.len() as u64);
    }
}

/// What stands on disk may give a run two slots, or name no run.
#[test]
fn an_index_that_contradicts_itself_is_believed_once() {
    let mut slots = Slots::default();
    slots.make_room(10);
    let entry = index_entry(SpaceId(7), 2);
    for slot in [4, 5, 4] {
        slots.assign(slot, entry);
        slots.check();
    }
    slots.assign(6, u64::MAX);
    slots.check();
    assert_eq!(slots.slot((SpaceId(7), 2)), Some(4));
    assert_eq!((slots.free_count(), slots.run(5)), (9, None));
}

/// A tablespace that grew by itself has one stretch, however large: giving it up takes one step.
#[test]
fn a_tablespace_that_grows_alone_has_one_stretch() {
    let mut slots = Slots::default();
    slots.make_room(100_000);
    let all = (0..90_000).map(|run| (SpaceId(1), run));
    assert!(all.into_iter().all(|run| slots.give(run)));
    assert_eq!(slots.of_space[&SpaceId(1)].len(), 1);
    slots.release(SpaceId(1));
    assert_eq!((slots.free.len(), slots.free_count()), (1, 100_000));
    slots.check();
}
