//! Snapshots and commits under many schedules (`cargo xtask races`).

use super::*;
use crate::sync::explore::{Seen, explore};
use crate::sync::thread;

#[test]
fn transfers_are_atomic_to_snapshots() {
    static MOVED: Seen = Seen::never();
    static WAITED: Seen = Seen::never();
    explore(|| {
        let system = Arc::new(TrxSystem::new(TrxId(1)));
        let rows = Arc::new(Rows((0..3).map(|_| Mutex::default()).collect()));
        let mut threads = Vec::new();
        for nth in 0..2 {
            let (system, rows) = (system.clone(), rows.clone());
            let body = move || {
                for round in 0..2 {
                    let (from, to) = (nth, 2 * round);
                    let trx = system.begin(system.next_trx_id());
                    if rows.add(from, &trx, -1) && rows.add(to, &trx, 1) {
                        system.finish_commit(&trx);
                    } else {
                        rows.take_back(from, &trx);
                        rows.take_back(to, &trx);
                        system.finish_abort(&trx);
                        WAITED.see();
                    }
                }
            };
            threads.push(thread::spawn("writer", body).unwrap());
        }
        let reader = {
            let (system, rows) = (system.clone(), rows.clone());
            move || {
                for _ in 0..2 {
                    let snapshot = system.snapshot();
                    // The bound may not pass a snapshot that is in force.
                    assert!(system.oldest_snapshot() <= snapshot.seq());
                    let all = || [0, 1, 2].map(|row| rows.read(row, &snapshot));
                    let first = all();
                    assert_eq!(first.iter().sum::<i64>(), 0, "half a transfer was visible");
                    assert_eq!(all(), first, "a snapshot changed");
                    if first != [0; 3] {
                        MOVED.see();
                    }
                }
            }
        };
        threads.push(thread::spawn("reader", reader).unwrap());
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(system.active_count(), 0);
    });
    MOVED.check("a snapshot after a transfer");
    WAITED.check("two writers of one row");
}
