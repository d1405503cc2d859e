#[cfg(inkstone_shuttle)]
mod races;

use super::*;
use crate::Error;
use crate::counters::{Counter, Counters};
use crate::poison::Poison;
use crate::sync::Instant;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::txn::system::TrxSystem;
use inkstone_format::TrxId;
use proptest::prelude::*;
use std::thread;
use std::time::Duration;

const S: LockMode = LockMode::Shared;
const X: LockMode = LockMode::Exclusive;
const SPACE: SpaceId = SpaceId(3);
const TREE: TreeId = TreeId(0);

struct Fixture {
    system: TrxSystem,
    table: LockTable,
    graph: WaitGraph,
    counters: Arc<Counters>,
    poison: Poison,
}

fn fixture() -> Fixture {
    let counters = Arc::new(Counters::default());
    let poison = Poison::default();
    Fixture {
        system: TrxSystem::new(TrxId(1)),
        table: LockTable::new(),
        graph: WaitGraph::new(counters.clone(), poison.clone()),
        counters,
        poison,
    }
}

impl Fixture {
    fn begin(&self) -> (Arc<TrxState>, HeldLocks) {
        let trx = self.system.begin(self.system.next_trx_id());
        (trx, HeldLocks::default())
    }

    fn end(&self, trx: &TrxState, held: &mut HeldLocks) {
        self.system.finish_commit(trx);
        self.table.release_all(trx, held);
    }

    fn try_record(&self, trx: &(Arc<TrxState>, HeldLocks), key: &[u8], mode: LockMode) -> Blockers {
        self.table.record_blockers(&trx.0, SPACE, TREE, key, mode)
    }

    fn lock(&self, trx: &mut (Arc<TrxState>, HeldLocks), key: &[u8], mode: LockMode) -> bool {
        let (trx, held) = trx;
        self.table
            .try_lock_record(trx, held, SPACE, TREE, key, mode)
            .is_ok()
    }

    fn lock_range(
        &self,
        trx: &mut (Arc<TrxState>, HeldLocks),
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: LockMode,
    ) -> bool {
        let (trx, held) = trx;
        self.table
            .try_lock_range(trx, held, SPACE, TREE, low, high, mode)
            .is_ok()
    }

    /// Locks a row, waiting as a statement would.
    fn lock_waiting(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        key: &[u8],
        mode: LockMode,
        patience: Duration,
    ) -> crate::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self
                .table
                .try_lock_record(trx, held, SPACE, TREE, key, mode)
            {
                Ok(_) => return Ok(()),
                Err(blockers) => self.graph.wait(trx, &blockers[0], deadline)?,
            }
        }
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn record_locks_conflict_upgrade_and_are_reentrant() {
    let f = fixture();
    let (mut a, mut b) = (f.begin(), f.begin());
    assert!(f.lock(&mut a, b"k", S) && f.lock(&mut b, b"k", S));
    assert!(f.lock(&mut a, b"k", S) && a.1.record_count() == 1);
    assert!(!f.lock(&mut a, b"k", X), "someone else has it shared");
    assert!(f.lock(&mut a, b"other", X));
    assert!(f.lock(&mut a, b"other", S) && a.1.record_count() == 2);
    assert_eq!(f.try_record(&b, b"other", S)[0].id(), a.0.id());
    assert!(f.try_record(&a, b"other", X).is_empty());
    assert!(f.try_record(&b, b"third", X).is_empty());
    assert_eq!(f.table.counts(), (3, 0));
    // Ended, but its locks are not released yet.
    f.system.finish_commit(&b.0);
    assert!(f.lock(&mut a, b"k", X), "upgrade");
    assert_eq!(a.1.record_count(), 2);
    f.table.release_all(&b.0, &mut b.1);
    let c = f.begin();
    assert_eq!(f.try_record(&c, b"k", S)[0].id(), a.0.id());
    f.end(&a.0, &mut a.1);
    assert!(a.1.is_empty());
    assert_eq!(f.table.counts(), (0, 0));
}

#[test]
fn same_key_of_other_trees_is_another_row() {
    let f = fixture();
    let (mut a, b) = (f.begin(), f.begin());
    assert!(f.lock(&mut a, b"k", X));
    for (space, tree) in [(4, 0), (3, 1), (0, 3)] {
        let found = f
            .table
            .record_blockers(&b.0, SpaceId(space), TreeId(tree), b"k", X);
        assert!(found.is_empty());
    }
}

#[test]
fn ranges_coalesce() {
    use Bound::{Excluded, Included, Unbounded};
    let f = fixture();
    let mut a = f.begin();
    let tree = (SPACE, TREE);
    for i in (0..200_u8).chain(0..200) {
        let (low, high) = ([i], [i + 1]);
        assert!(f.lock_range(&mut a, Included(&low), Excluded(&high), S));
    }
    assert_eq!(f.table.ranges.intervals(&a.0, tree), (1, 0));
    assert!(f.lock_range(&mut a, Excluded(&[210]), Included(&[220]), S));
    assert_eq!(f.table.ranges.intervals(&a.0, tree), (2, 0));
    assert!(f.lock_range(&mut a, Included(&[5]), Included(&[5]), X));
    assert!(f.lock_range(&mut a, Excluded(&[7]), Included(&[7]), X));
    assert_eq!(f.table.ranges.intervals(&a.0, tree), (2, 1));
    let b = f.begin();
    let hit = |key: &[u8], mode| {
        !f.table
            .range_blockers(&b.0, SPACE, TREE, key, mode)
            .is_empty()
    };
    assert!(hit(&[5], S) && !hit(&[5, 0], S) && hit(&[5, 0], X));
    assert!(!hit(&[200], X) && !hit(&[210], X) && hit(&[210, 0], X) && hit(&[220], X));
    assert!(!hit(&[220, 0], X));
    let mut c = f.begin();
    assert!(!f.lock_range(&mut c, Unbounded, Unbounded, S));
    assert!(f.lock_range(&mut c, Included(&[6]), Unbounded, S));
    assert!(!f.lock_range(&mut a, Unbounded, Unbounded, X));
    f.end(&c.0, &mut c.1);
    assert!(f.lock_range(&mut a, Unbounded, Unbounded, X));
    assert_eq!(f.table.ranges.intervals(&a.0, tree).1, 1);
    assert_eq!(a.1.trees.len(), 1);
    f.end(&a.0, &mut a.1);
    assert_eq!(f.table.counts(), (0, 0));
}

const KEYS: u8 = 26;

#[derive(Clone, Debug)]
enum Step {
    Lock(usize, Bound<u8>, Bound<u8>, LockMode),
    Access(usize, u8, LockMode),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bound = || {
        prop_oneof![
            4 => (0..12_u8).prop_map(Bound::Included),
            4 => (0..12_u8).prop_map(Bound::Excluded),
            1 => Just(Bound::Unbounded),
        ]
    };
    let mode = || prop_oneof![3 => Just(S), 1 => Just(X)];
    prop_oneof![
        6 => (0..4_usize, bound(), bound(), mode()).prop_map(|(t, l, h, m)| Step::Lock(t, l, h, m)),
        4 => (0..4_usize, 0..KEYS, mode()).prop_map(|(t, k, m)| Step::Access(t, k, m)),
        1 => (0..4_usize).prop_map(Step::End),
    ]
}

/// Keys of the model: 2n + 1 stands for key [n], 2n + 2 for [n, 0], which lies between [n] and
/// [n + 1], and 0 for the empty key.
fn model_key(k: u8) -> Vec<u8> {
    match k {
        0 => vec![],
        k if k % 2 == 1 => vec![k / 2],
        k => vec![k / 2 - 1, 0],
    }
}

fn model_range(low: Bound<u8>, high: Bound<u8>) -> Vec<u8> {
    let above = |k: u8| match low {
        Bound::Included(n) => k > 2 * n,
        Bound::Excluded(n) => k > 2 * n + 1,
        Bound::Unbounded => true,
    };
    let below = |k: u8| match high {
        Bound::Included(n) => k <= 2 * n + 1,
        Bound::Excluded(n) => k < 2 * n + 1,
        Bound::Unbounded => true,
    };
    (0..KEYS).filter(|&k| above(k) && below(k)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn ranges_match_a_model(steps in proptest::collection::vec(step(), 1..60)) {
        let f = fixture();
        let mut trx: Vec<_> = (0..4).map(|_| f.begin()).collect();
        // Per transaction, the strongest mode on each key.
        let mut model = vec![[None::<LockMode>; KEYS as usize]; 4];
        let in_way = |model: &Vec<[Option<LockMode>; KEYS as usize]>, me: usize, keys: &[u8], mode: LockMode| {
            let of = |t: usize| keys.iter().any(|&k| model[t][k as usize].is_some_and(|m| m.conflicts(mode)));
            (0..4).filter(|&t| t != me && of(t)).collect::<Vec<_>>()
        };
        for step in steps {
            match step {
                Step::Lock(t, low, high, mode) => {
                    let (l, h) = (low.map(|n| [n]), high.map(|n| [n]));
                    let (l, h) = (l.as_ref().map(|k| &k[..]), h.as_ref().map(|k| &k[..]));
                    let keys = model_range(low, high);
                    let (me, held) = &mut trx[t];
                    let got = f.table.try_lock_range(me, held, SPACE, TREE, l, h, mode);
                    let expected = in_way(&model, t, &keys, mode);
                    let mut got_ids: Vec<_> = got.err().unwrap_or_default().iter().map(|b| b.id()).collect();
                    got_ids.sort();
                    let mut ids: Vec<_> = expected.iter().map(|&t| trx[t].0.id()).collect();
                    ids.sort();
                    prop_assert_eq!(&got_ids, &ids);
                    if ids.is_empty() {
                        for k in keys {
                            let strongest = &mut model[t][k as usize];
                            *strongest = (*strongest).max(Some(mode));
                        }
                    }
                }
                Step::Access(t, k, mode) => {
                    let got = f.table.range_blockers(&trx[t].0, SPACE, TREE, &model_key(k), mode);
                    let mut got: Vec<_> = got.iter().map(|b| b.id()).collect();
                    got.sort();
                    let mut ids: Vec<_> = in_way(&model, t, &[k], mode).iter().map(|&t| trx[t].0.id()).collect();
                    ids.sort();
                    prop_assert_eq!(got, ids);
                }
                Step::End(t) => {
                    let (me, held) = &mut trx[t];
                    f.end(me, held);
                    trx[t] = f.begin();
                    model[t] = [None; KEYS as usize];
                }
            }
        }
        for (me, held) in &mut trx {
            f.end(me, held);
        }
        prop_assert_eq!(f.table.counts(), (0, 0));
    }
}

#[test]
fn exclusive_locks_exclude() {
    let f = fixture();
    let inside: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let victims = AtomicU64::new(0);
    crate::sync::test_scope(|scope| {
        for seed in 0..6_u64 {
            let (f, inside, victims) = (&f, &inside, &victims);
            scope.spawn(move || {
                let mut x = seed + 1;
                for _ in 0..3000 {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(99991);
                    let (trx, mut held) = f.begin();
                    let rows = [(x >> 33) as usize % 4, (x >> 43) as usize % 4];
                    let mut have = Vec::new();
                    for row in rows {
                        let key = [row as u8];
                        match f.lock_waiting(&trx, &mut held, &key, X, Duration::from_secs(30)) {
                            Ok(()) if !have.contains(&row) => {
                                have.push(row);
                                assert_eq!(inside[row].fetch_add(1, Ordering::SeqCst), 0);
                                trx.add_weight(1);
                            }
                            Ok(()) => {}
                            Err(Error::Deadlock) => {
                                victims.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    if x >> 60 == 0 {
                        thread::yield_now();
                    }
                    for row in have {
                        inside[row].fetch_sub(1, Ordering::SeqCst);
                    }
                    f.end(&trx, &mut held);
                }
            });
        }
    });
    assert_eq!(f.table.counts(), (0, 0));
    assert!(f.graph.waiters().is_empty());
    assert_eq!(f.counters.get(Counter::Deadlocks), victims.into_inner());
}

/// Lets transactions with these weights wait in a circle; returns who got the deadlock.
fn run_circle(weights: &[u64]) -> usize {
    let f = fixture();
    let n = weights.len();
    let trx: Vec<_> = (0..n).map(|_| f.begin().0).collect();
    for (trx, &weight) in trx.iter().zip(weights) {
        trx.set_weight(weight);
    }
    let victims = crate::sync::Mutex::new(Vec::new());
    crate::sync::test_scope(|scope| {
        for i in 0..n {
            let (f, trx, victims) = (&f, &trx, &victims);
            scope.spawn(move || {
                match f.graph.wait(&trx[i], &trx[(i + 1) % n], soon()) {
                    Ok(()) => assert!(trx[(i + 1) % n].is_ended()),
                    Err(Error::Deadlock) => victims.lock().push(i),
                    Err(other) => panic!("{other}"),
                }
                f.system.finish_abort(&trx[i]);
            });
        }
    });
    let text = f.graph.latest_deadlock().unwrap();
    assert!(
        text.contains(&format!("deadlock of {n} transactions")),
        "{text}"
    );
    assert_eq!(f.counters.get(Counter::Deadlocks), 1);
    assert!(f.graph.waiters().is_empty());
    let victims = victims.into_inner();
    assert_eq!(victims.len(), 1, "one victim is enough");
    victims[0]
}

#[test]
fn the_cheapest_of_a_circle_is_the_victim() {
    for _ in 0..200 {
        assert_eq!(run_circle(&[5, 3]), 1);
        assert_eq!(run_circle(&[1, 3]), 0);
        assert_eq!(run_circle(&[4, 9, 4]), 2, "of equals the youngest");
        assert_eq!(run_circle(&[4, 2, 7, 3]), 1);
        assert_eq!(run_circle(&[0, 0, 0, 0]), 3);
    }
}

#[test]
fn a_wait_times_out() {
    let f = fixture();
    let (a, mut b) = (f.begin(), f.begin());
    assert!(f.lock(&mut b, b"k", X));
    let begun = Instant::now();
    let result = f.graph.wait(&a.0, &b.0, begun + Duration::from_millis(50));
    assert!(matches!(result, Err(Error::LockTimeout { waited_ms }) if waited_ms >= 50));
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(f.counters.get(Counter::LockTimeouts), 1);
    assert!(f.graph.waiters().is_empty());
    f.end(&b.0, &mut b.1);
    f.graph.wait(&a.0, &b.0, soon()).unwrap();
    assert_eq!(
        f.counters.get(Counter::LockWaits),
        1,
        "no need to wait for the ended"
    );
}

#[test]
fn a_wait_ends_when_the_engine_is_poisoned() {
    let f = fixture();
    let (a, b) = (f.begin(), f.begin());
    crate::sync::test_scope(|scope| {
        let waiter = scope.spawn(|| f.graph.wait(&a.0, &b.0, soon()));
        while f.graph.waiters().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(f.graph.waiters()[0].blocker, b.0.id());
        f.poison.set("a test said so");
        assert!(matches!(waiter.join().unwrap(), Err(Error::Poisoned(_))));
    });
    assert!(matches!(
        f.graph.wait(&a.0, &b.0, soon()),
        Err(Error::Poisoned(_))
    ));
}

#[test]
fn no_wakeup_is_lost() {
    let f = fixture();
    let mut slow_rounds = 0;
    for round in 0..5000 {
        let blocker = f.begin().0;
        let waiting: Vec<_> = (0..2).map(|_| f.begin().0).collect();
        let begun = Instant::now();
        let go = AtomicBool::new(false);
        crate::sync::test_scope(|scope| {
            for me in &waiting {
                scope.spawn(|| {
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    f.graph.wait(me, &blocker, soon()).unwrap();
                    assert!(blocker.is_ended());
                });
            }
            go.store(true, Ordering::Release);
            for _ in 0..round % 97 {
                std::hint::spin_loop();
            }
            f.system.finish_commit(&blocker);
        });
        slow_rounds += usize::from(begun.elapsed() > Duration::from_millis(900));
        for me in &waiting {
            f.system.finish_abort(me);
        }
    }
    // The poison check wakes sleepers once a second, so a lost wakeup shows as a lost second. (The
    // machine may be busy now and then.)
    assert!(slow_rounds < 3, "{slow_rounds} rounds took a second");
}
