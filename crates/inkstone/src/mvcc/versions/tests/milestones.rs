//! Rows with very many versions.

use super::model::Cells;
use super::*;
use crate::mvcc::versions::milestones::{Milestones, steps_between};

/// Versions of a row that a reader goes past, at most: to the first milestone, and from the last.
fn passed_max(f: &Fixture, given_up: u32) -> u64 {
    let between = f.store.steps_between_milestones() as u64;
    between + (between << given_up)
}

impl Fixture {
    /// Adds one to a row, in a transaction that commits.
    fn add_one(&self, cells: &Cells, row: usize) {
        let mut trx = self.begin();
        assert!(self.add(&mut trx, cells, row, 1, 0));
        self.commit(trx);
    }

    /// What a snapshot sees, without milestones.
    fn step_by_step(&self, cell: (i64, VersionAddress), snapshot: &Snapshot) -> i64 {
        let (mut value, mut address) = cell;
        while let Some(entry) = self.store.read(address).unwrap() {
            let view = entry.view();
            if snapshot.sees(TrxId(u64::MAX), view.trx) {
                break;
            }
            value = i64::from_le_bytes(view.kept_value[..8].try_into().unwrap());
            address = view.previous;
        }
        value
    }
}

#[test]
fn readers_pass_many_versions() {
    let f = fixture(1 << 20);
    let cells: Cells = (0..3).map(|_| Mutex::new((0, NONE))).collect();
    let mut snapshots = Vec::new();
    // One transaction is open all the time, and some are rolled back.
    let mut open = f.begin();
    assert!(f.add(&mut open, &cells, 2, 1000, 0));
    for round in 0..3000 {
        f.add_one(&cells, 0);
        assert!(f.add(&mut open, &cells, 2, 1, 0));
        if round % 7 == 0 {
            let mut undone = f.begin();
            for _ in 0..round % 50 {
                assert!(f.add(&mut undone, &cells, 1, -1, 0));
            }
            f.roll_back(undone, &cells);
        }
        f.add_one(&cells, 1);
        if round % 100 == 0 {
            snapshots.push((round + 1, f.system.snapshot()));
        }
        if round % 500 == 0 {
            f.retire();
        }
    }
    for (round, snapshot) in &snapshots {
        for (row, seen) in [(0, *round), (1, *round), (2, 0)] {
            let cell = *cells[row].lock();
            assert_eq!(
                f.visible(cell, snapshot),
                seen,
                "row {row} in round {round}"
            );
            assert_eq!(f.step_by_step(cell, snapshot), seen);
        }
    }
    let rows = 3 * snapshots.len() as u64;
    assert!(f.jumps.load(Ordering::Relaxed) > rows / 2);
    let passed = f.passed.load(Ordering::Relaxed);
    assert!(
        passed <= rows * passed_max(&f, 0),
        "{passed} for {rows} rows"
    );
    f.roll_back(open, &cells);
    let snapshot = f.system.snapshot();
    assert_eq!(f.visible(*cells[2].lock(), &snapshot), 0);
    drop((snapshot, snapshots));
    f.expect_empty();
}

#[test]
fn milestones_take_bounded_memory() {
    let f = fixture(1 << 20);
    let cells: Cells = (0..200).map(|_| Mutex::new((0, NONE))).collect();
    let mut snapshots = Vec::new();
    let mut largest = 0;
    for round in 0..120_000 {
        if round % 6000 == 0 {
            snapshots.push((round as i64 / 2, f.system.snapshot()));
        }
        f.add_one(&cells, if round % 2 == 0 { 0 } else { round % 200 });
        largest = largest.max(f.store.milestones.lock().bytes());
    }
    assert!(largest <= 1 << 16 && largest > 1 << 15, "{largest} bytes");
    // 60,000 versions make 15,000 milestones, of which some 4,000 have room beside other rows'.
    for (seen, snapshot) in &snapshots {
        f.passed.store(0, Ordering::Relaxed);
        assert_eq!(f.visible(*cells[0].lock(), snapshot), *seen);
        let passed = f.passed.load(Ordering::Relaxed);
        assert!(passed <= passed_max(&f, 3), "{passed} versions");
    }
    drop(snapshots);
    f.expect_empty();
}

/// Rows of which only the last milestone is live fill the list, too.
#[test]
fn a_list_of_single_milestones_is_thinned() {
    let row = |n: u32| (SpaceId(1), TreeId(2), n.to_be_bytes().into());
    let mut milestones = Milestones::new(1 << 20);
    for n in 0..2000 {
        milestones.add(row(n), VersionAddress(1));
        milestones.add(row(n), VersionAddress(2 + u64::from(n)));
        milestones.remove_dead(|address| address != VersionAddress(1));
        assert!(milestones.bytes() <= 1 << 16);
    }
    assert!(milestones.bytes() > 0);
    milestones.remove_dead(|_| false);
    assert_eq!(milestones.bytes(), 0);
}

#[test]
fn a_tree_of_the_same_number_has_no_milestones() {
    let f = fixture(1 << 20);
    let cells: Cells = vec![Mutex::new((0, NONE))];
    let snapshot = f.system.snapshot();
    for _ in 0..100 {
        f.add_one(&cells, 0);
    }
    assert!(f.store.milestones.lock().bytes() > 0);
    f.store.unlist_milestones_of(SpaceId(7), TreeId(1));
    assert!(f.store.milestones.lock().bytes() > 0);
    f.store.unlist_milestones_of(SpaceId(7), TreeId(2));
    assert_eq!(f.store.milestones.lock().bytes(), 0);
    assert_eq!(f.visible(*cells[0].lock(), &snapshot), 0);
    drop(snapshot);
    f.expect_empty();
}

#[test]
fn milestones_are_as_far_apart_as_memory_allows() {
    assert_eq!(steps_between(0), 4);
    assert_eq!(steps_between(1 << 20), 4);
    assert_eq!(steps_between(16 << 20), 64);
    assert_eq!(steps_between(64 << 20), 254);
    assert_eq!(steps_between(u64::MAX), 254);
}
