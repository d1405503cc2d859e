//! The version store under many schedules (`cargo xtask races`).

use super::model::Cells;
use super::*;
use crate::sync::explore::{Seen, explore};
use crate::sync::thread;

/// Large enough that two transfers fill a segment.
const PADDING: usize = 5000;

#[test]
fn snapshots_see_whole_transfers_while_segments_spill_and_retire() {
    static SPILLED: Seen = Seen::never();
    static RETIRED: Seen = Seen::never();
    static OLD_VERSION: Seen = Seen::never();
    explore(|| {
        let f = Arc::new(fixture(8 << 10));
        let cells: Arc<Cells> = Arc::new((0..3).map(|_| Mutex::new((100, NONE))).collect());
        let mut threads = Vec::new();
        for nth in 0..2 {
            let (f, cells) = (f.clone(), cells.clone());
            let body = move || {
                for round in 0..3 {
                    let mut trx = f.begin();
                    let (from, to) = (nth, (nth + 1 + round % 2) % 3);
                    let done = f.add(&mut trx, &cells, from, -1, PADDING)
                        && f.add(&mut trx, &cells, to, 1, PADDING);
                    if done && round != 1 {
                        f.commit(trx);
                    } else {
                        f.roll_back(trx, &cells);
                    }
                }
            };
            threads.push(thread::spawn("writer", body).unwrap());
        }
        let reader = {
            let (f, cells) = (f.clone(), cells.clone());
            move || {
                for _ in 0..2 {
                    let snapshot = f.system.snapshot();
                    // Copies of the cells, resolved later: they may be out of date by then.
                    let copies: Vec<_> = cells.iter().map(|c| *c.lock()).collect();
                    thread::yield_now();
                    let sum = |cells: &mut dyn Iterator<Item = (i64, VersionAddress)>| {
                        cells.map(|c| f.visible(c, &snapshot)).sum::<i64>()
                    };
                    assert_eq!(sum(&mut copies.iter().copied()), 300);
                    assert_eq!(sum(&mut cells.iter().map(|c| *c.lock())), 300);
                    let is_old = |cell: (i64, VersionAddress)| f.visible(cell, &snapshot) != cell.0;
                    if cells.iter().map(|c| *c.lock()).any(is_old) {
                        OLD_VERSION.see();
                    }
                }
            }
        };
        threads.push(thread::spawn("reader", reader).unwrap());
        let cleaner = {
            let f = f.clone();
            move || {
                for _ in 0..3 {
                    f.store.seal_idle();
                    if f.retire() > 0 {
                        RETIRED.see();
                    }
                    thread::yield_now();
                }
            }
        };
        threads.push(thread::spawn("cleaner", cleaner).unwrap());
        threads.into_iter().for_each(|t| t.join().unwrap());
        if f.counters.get(Counter::VersionSegmentsSpilled) > 0 {
            SPILLED.see();
        }
        f.expect_empty();
        assert_eq!(cells.iter().map(|c| c.lock().0).sum::<i64>(), 300);
    });
    SPILLED.check("a segment that is spilled");
    RETIRED.check("a segment that retires while others write");
    OLD_VERSION.check("a snapshot that needs an old version");
}
