#[cfg(inkstone_shuttle)]
mod races;

use super::*;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicI64};
use std::collections::HashSet;
use std::thread;

/// Widens the windows of races, also for the tests of the other modules.
pub(super) fn yield_now_and_then() {
    thread_local! {
        static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let calls = CALLS.get().wrapping_add(1);
    CALLS.set(calls);
    if calls.is_multiple_of(61) {
        thread::yield_now();
    }
}

/// Stops the other threads when its own is done, or has panicked.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Version = (Arc<TrxState>, i64);

/// Rows with their versions, newest last; the tests' stand-in for pages and version store.
struct Rows(Vec<Mutex<Vec<Version>>>);

impl Rows {
    fn read(&self, row: usize, snapshot: &Snapshot) -> i64 {
        let versions = self.0[row].lock();
        let mut seen = versions.iter().rev();
        // The search itself is the visibility rule under test.
        seen.find(|(trx, _)| snapshot.sees(TrxId(u64::MAX), trx))
            .map_or(0, |(_, v)| *v)
    }

    /// Adds `amount` unless the newest version is another transaction's uncommitted one.
    fn add(&self, row: usize, trx: &Arc<TrxState>, amount: i64) -> bool {
        let mut versions = self.0[row].lock();
        let newest = versions.last().map(|(t, v)| (t.clone(), *v));
        let value = match newest {
            Some((t, _)) if t.id() != trx.id() && !t.is_ended() => return false,
            Some((_, v)) => v,
            None => 0,
        };
        versions.push((trx.clone(), value + amount));
        true
    }

    fn take_back(&self, row: usize, trx: &TrxState) {
        self.0[row].lock().retain(|(t, _)| t.id() != trx.id());
    }
}

#[test]
fn transfers_are_atomic_to_snapshots() {
    const ROWS: usize = 6;
    let system = TrxSystem::new(TrxId(1));
    let rows = Rows((0..ROWS).map(|_| Mutex::default()).collect());
    let stop = AtomicBool::new(false);
    let committed = AtomicI64::new(0);
    crate::sync::test_scope(|scope| {
        for seed in 0..3_usize {
            let (system, rows, stop, committed) = (&system, &rows, &stop, &committed);
            scope.spawn(move || {
                let mut x = seed * 7919 + 1;
                while !stop.load(Ordering::Relaxed) {
                    x = x
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let (from, to) = ((x >> 33) % ROWS, (x >> 40) % ROWS);
                    let trx = system.begin(system.next_trx_id());
                    let done = rows.add(from, &trx, -1) && rows.add(to, &trx, 1);
                    if done && x >> 50 & 7 != 0 {
                        system.finish_commit(&trx);
                        committed.fetch_add(1, Ordering::Relaxed);
                    } else {
                        rows.take_back(from, &trx);
                        rows.take_back(to, &trx);
                        system.finish_abort(&trx);
                    }
                }
            });
        }
        let _stop = StopOnDrop(&stop);
        let mut last = 0;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while std::time::Instant::now() < end {
            let snapshot = system.snapshot();
            assert!(snapshot.seq() >= last);
            last = snapshot.seq();
            let first: Vec<i64> = (0..ROWS).map(|row| rows.read(row, &snapshot)).collect();
            thread::yield_now();
            let second: Vec<i64> = (0..ROWS)
                .rev()
                .map(|row| rows.read(row, &snapshot))
                .collect();
            assert_eq!(first.iter().sum::<i64>(), 0, "half a transfer was visible");
            assert!(first.iter().eq(second.iter().rev()), "a snapshot changed");
        }
    });
    assert!(committed.into_inner() > 1000);
    assert_eq!(system.active_count(), 0);
}

#[test]
fn oldest_snapshot_never_passes_a_live_one() {
    let system = TrxSystem::new(TrxId(1));
    let stop = AtomicBool::new(false);
    // What purge would have destroyed: everything below this.
    let horizon = AtomicU64::new(0);
    crate::sync::test_scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                system.finish_commit(&system.begin(system.next_trx_id()));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let oldest = system.oldest_snapshot();
                let before = horizon.fetch_max(oldest, Ordering::SeqCst);
                assert!(
                    oldest >= before,
                    "the bound went back from {before} to {oldest}"
                );
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let _stop = StopOnDrop(&stop);
                for i in 0..100_000_u32 {
                    let snapshot = system.snapshot();
                    let second = (i % 3 == 0).then(|| snapshot.clone());
                    if i % 64 == 0 {
                        thread::yield_now();
                    }
                    assert!(horizon.load(Ordering::SeqCst) <= snapshot.seq());
                    drop(snapshot);
                    if let Some(second) = second {
                        assert!(system.oldest_snapshot() <= second.seq());
                    }
                }
            });
        }
    });
    assert_eq!(system.oldest_snapshot(), system.last_seq());
}

#[test]
fn slots_are_small_and_unique() {
    let system = TrxSystem::new(TrxId(1));
    let taken = Mutex::new(HashSet::new());
    crate::sync::test_scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    let held: Vec<_> = (0..round % 5 + 1)
                        .map(|_| system.begin(system.next_trx_id()))
                        .collect();
                    for trx in &held {
                        assert!(taken.lock().insert(trx.slot()), "slot given twice");
                        assert!(trx.slot() < 5 * 8 * STRIPES as u32);
                    }
                    for trx in &held {
                        taken.lock().remove(&trx.slot());
                        system.finish_abort(trx);
                    }
                }
            });
        }
    });
    assert_eq!(system.active_count(), 0);
    let a = system.begin(TrxId(900));
    let b = system.begin(TrxId(901));
    assert!(
        a.slot() < STRIPES as u32,
        "the smallest free slot is reused"
    );
    system.finish_commit(&a);
    assert_eq!(system.begin(TrxId(902)).slot(), a.slot());
    drop(b);
}

#[test]
fn recovered_transactions_keep_their_slots() {
    let system = TrxSystem::new(TrxId(50));
    let stripe = thread_stripe() as u32;
    let slot = stripe + 2 * STRIPES as u32;
    let prepared = system.begin_recovered(TrxId(7), slot).unwrap();
    prepared.set_prepared();
    assert_eq!(prepared.status(), TrxStatus::Prepared);
    assert!(system.begin_recovered(TrxId(8), slot).is_none());
    assert!(system.begin_recovered(TrxId(8), SLOT_LIMIT).is_none());
    let others: Vec<u32> = (0..4).map(|i| system.begin(TrxId(50 + i)).slot()).collect();
    let expected = [0, 1, 3, 4].map(|i| stripe + i * STRIPES as u32);
    assert_eq!(others, expected);
    assert!(!prepared.is_visible_at(u64::MAX >> 8));
    let seq = system.finish_commit(&prepared);
    assert!(prepared.is_visible_at(seq) && !prepared.is_visible_at(seq - 1));
    assert_eq!(system.begin(TrxId(60)).slot(), slot);
}

#[test]
fn oldest_first_lsn_counts_writers_only() {
    let system = TrxSystem::new(TrxId(1));
    let trx: Vec<_> = (0..3).map(|_| system.begin(system.next_trx_id())).collect();
    assert_eq!(system.oldest_first_lsn(), None);
    trx[1].note_first_lsn(Lsn(900));
    trx[2].note_first_lsn(Lsn(700));
    trx[2].note_first_lsn(Lsn(950));
    assert_eq!(system.oldest_first_lsn(), Some(Lsn(700)));
    trx[2].move_first_lsn(Lsn(1000));
    assert_eq!(system.oldest_first_lsn(), Some(Lsn(900)));
    system.finish_commit(&trx[1]);
    assert_eq!(system.oldest_first_lsn(), Some(Lsn(1000)));
    system.finish_abort(&trx[2]);
    assert_eq!(system.oldest_first_lsn(), None);
    assert_eq!(system.active().len(), 1);
    assert_eq!(system.peek_next_trx_id(), TrxId(4));
}

#[test]
fn size_of_the_shared_state() {
    // One is kept for each transaction and version segment that it wrote to.
    assert!(size_of::<TrxState>() <= 96, "{}", size_of::<TrxState>());
}
