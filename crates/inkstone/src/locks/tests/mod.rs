mod deadlocks;
mod model;
#[cfg(inkstone_shuttle)]
mod races;

use super::*;
use crate::Error;
use crate::counters::{Counter, Counters};
use crate::mvcc::system::TrxSystem;
use crate::poison::Poison;
use crate::sync::Instant;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use inkstone_format::{SpaceId, TreeId, TrxId};
use std::thread;
use std::time::Duration;

const S: LockMode = LockMode::Shared;
const X: LockMode = LockMode::Exclusive;
const SPACE: SpaceId = SpaceId(3);
const TREE: TreeId = TreeId(0);

struct Fixture {
    system: TrxSystem,
    table: LockTable,
    counters: Arc<Counters>,
    poison: Poison,
}

fn fixture() -> Fixture {
    fixture_of(u64::MAX)
}

/// One in which the locks of a transaction are joined beyond so many bytes.
fn fixture_of(lock_memory_max: u64) -> Fixture {
    let counters = Arc::new(Counters::default());
    let poison = Poison::default();
    Fixture {
        system: TrxSystem::new(TrxId(1)),
        table: LockTable::new(lock_memory_max, counters.clone(), poison.clone()),
        counters,
        poison,
    }
}

type Trx = (Arc<TrxState>, HeldLocks);

impl Fixture {
    fn begin(&self) -> Trx {
        let trx = self.system.begin(self.system.next_trx_id());
        (trx, HeldLocks::default())
    }

    fn end(&self, trx: &TrxState, held: &mut HeldLocks) {
        self.system.finish_commit(trx);
        self.table.release_all(trx, held);
    }

    /// The blockers of the longest wait.
    fn first_blockers(&self) -> Vec<TrxId> {
        match &self.table.waits()[0].standing {
            Standing::Waits(wish) => wish.blockers.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Whether nothing is in the way of an access.
    fn is_free(&self, trx: &Trx, key: &[u8], access: Access) -> bool {
        self.table
            .change(PLACE, |locks| locks.is_free(trx.0.id(), key, access))
    }

    fn is_row_locked(&self, key: &[u8]) -> bool {
        self.table.is_locked(row(key))
    }

    fn lock(&self, (trx, held): &mut Trx, key: &[u8], mode: LockMode) -> bool {
        let locked = self
            .table
            .lock_row(trx, held, row(key), mode, &Newest::Free, IfTaken::Refuse);
        locked.is_ok()
    }

    fn lock_range(
        &self,
        (trx, held): &mut Trx,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        mode: LockMode,
    ) -> bool {
        let locked = self
            .table
            .lock_range(trx, held, PLACE, (low, high), mode, IfTaken::Refuse);
        locked.is_ok()
    }

    fn lock_gap(&self, (trx, held): &mut Trx, low: &[u8], high: &[u8]) {
        let bounds = (Bound::Excluded(low), Bound::Excluded(high));
        self.table.lock_gap(trx, held, PLACE, bounds);
    }

    /// Stands in the queue of a row.
    fn queue(&self, (trx, held): &mut Trx, key: &[u8], mode: LockMode) -> Waiting<'_> {
        match self
            .table
            .lock_row(trx, held, row(key), mode, &Newest::Free, IfTaken::Queue)
        {
            Err(Taken::Queued(waiting)) => waiting,
            _ => panic!("{trx:?} need not wait"),
        }
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
                .lock_row(trx, held, row(key), mode, &Newest::Free, IfTaken::Queue)
            {
                Ok(_) => return Ok(()),
                Err(Taken::Queued(waiting)) => {
                    self.table.wait(waiting, deadline, &mut || Ok(()))?;
                }
                Err(Taken::Refused) => panic!("{trx:?} was given no place in the queue"),
            }
        }
    }

    /// Waits for the end of a transaction, as for one that has changed a row.
    fn wait_for(&self, me: &mut Trx, busy: &Arc<TrxState>, deadline: Instant) -> crate::Result<()> {
        let busy = Newest::Busy(Blocker::from(busy));
        let (trx, held) = me;
        match self
            .table
            .lock_row(trx, held, row(b"busy"), X, &busy, IfTaken::Queue)
        {
            Err(Taken::Queued(waiting)) => self.table.wait(waiting, deadline, &mut || Ok(())),
            _ => panic!("a changed row was locked"),
        }
    }
}

const PLACE: TreeKey = (SPACE, TREE);

fn row(key: &[u8]) -> RowName<'_> {
    RowName { tree: PLACE, key }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn record_locks_conflict_upgrade_and_are_reentrant() {
    let f = fixture();
    let (mut a, mut b) = (f.begin(), f.begin());
    assert!(f.lock(&mut a, b"k", S) && f.lock(&mut b, b"k", S));
    assert!(f.lock(&mut a, b"k", S) && f.table.counts() == (2, 0));
    assert!(!f.lock(&mut a, b"k", X), "another has it shared");
    assert!(f.lock(&mut a, b"other", X));
    assert!(f.lock(&mut a, b"other", S) && f.table.counts() == (3, 0));
    assert!(!f.is_free(&b, b"other", Access::Row(S)));
    assert!(f.is_free(&a, b"other", Access::Row(X)));
    assert!(f.is_free(&b, b"third", Access::Row(X)));
    // Ended, but its locks are not released yet.
    f.system.finish_commit(&b.0);
    assert!(f.lock(&mut a, b"k", X), "upgrade");
    f.table.release_all(&b.0, &mut b.1);
    assert_eq!(f.table.counts(), (2, 0));
    let c = f.begin();
    assert!(!f.is_free(&c, b"k", Access::Row(S)));
    f.end(&a.0, &mut a.1);
    assert!(a.1.is_empty());
    assert_eq!(f.table.counts(), (0, 0));
    assert!(f.table.is_idle(PLACE));
}

#[test]
fn same_key_of_other_trees_is_another_row() {
    let f = fixture();
    let (mut a, b) = (f.begin(), f.begin());
    assert!(f.lock(&mut a, b"k", X));
    for (space, tree) in [(4, 0), (3, 1), (0, 3)] {
        let tree = (SpaceId(space), TreeId(tree));
        assert!(!f.table.is_locked(RowName { tree, key: b"k" }));
    }
    assert!(f.table.is_locked(row(b"k")) && !f.is_free(&b, b"k", Access::Insert));
}

#[test]
fn a_lock_that_was_taken_twice_is_not_given_back_early() {
    let f = fixture();
    let mut a = f.begin();
    assert!(f.lock(&mut a, b"once", X) && f.lock(&mut a, b"twice", X));
    assert!(f.lock(&mut a, b"twice", S));
    assert!(f.table.unlock_row(&a.0, row(b"once")));
    assert!(!f.table.unlock_row(&a.0, row(b"once")));
    assert!(
        !f.table.unlock_row(&a.0, row(b"twice")),
        "an earlier statement has it, too"
    );
    assert!(!f.table.unlock_row(&a.0, row(b"never")));
    assert!(f.table.is_locked(row(b"twice")) && !f.table.is_locked(row(b"once")));
}

#[test]
fn a_lock_that_was_made_exclusive_is_made_shared_again() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    assert!(f.lock(&mut a, b"k", S) && f.lock(&mut a, b"k", X));
    let reader = f.queue(&mut b, b"k", S);
    assert!(f.table.unlock_row(&a.0, row(b"k")));
    f.table.wait(reader, soon(), &mut || Ok(())).unwrap();
    assert!(f.lock(&mut b, b"k", S));
    assert!(!f.is_free(&c, b"k", Access::Row(X)));
    assert!(
        !f.table.unlock_row(&a.0, row(b"k")),
        "the shared lock stays"
    );
    f.end(&b.0, &mut b.1);
    assert!(!f.lock(&mut c, b"k", X) && f.lock(&mut a, b"k", X));
    f.end(&a.0, &mut a.1);
    assert!(f.is_free(&c, b"k", Access::Row(X)));
}

#[test]
fn a_victim_that_is_interrupted_is_not_rolled_back() {
    let f = fixture();
    let [mut a, mut b] = [(); 2].map(|()| f.begin());
    b.0.add_cost();
    let interrupt = Interrupt::new();
    a.0.set_details(|details| details.interrupt = Some(interrupt.clone()));
    assert!(f.lock(&mut a, b"a", X) && f.lock(&mut b, b"b", X));
    let first = f.queue(&mut a, b"b", X);
    let second = f.queue(&mut b, b"a", X);
    assert!(a.0.is_doomed());
    interrupt.raise();
    let stopped = f.table.wait(first, soon(), &mut || Ok(()));
    assert!(matches!(stopped, Err(Error::Interrupted)) && !a.0.is_doomed());
    let text = f.table.graph().latest_deadlock().unwrap();
    assert!(
        text.ends_with("was interrupted, and waits no more"),
        "{text}"
    );
    // It has what it had, and may wait again: that closes the circle again.
    interrupt.clear();
    assert!(!f.is_free(&b, b"a", Access::Row(S)));
    let again = f.queue(&mut a, b"b", X);
    assert!(a.0.is_doomed());
    let stopped = f.table.wait(again, soon(), &mut || Ok(()));
    assert!(matches!(stopped, Err(Error::Deadlock)));
    f.end(&a.0, &mut a.1);
    f.table.wait(second, soon(), &mut || Ok(())).unwrap();
    f.end(&b.0, &mut b.1);
}

#[test]
fn rows_that_are_given_back_make_no_transaction_dearer() {
    let f = fixture();
    let mut a = f.begin();
    for _ in 0..9 {
        assert!(f.lock(&mut a, b"unwanted", X));
        assert!(f.table.unlock_row(&a.0, row(b"unwanted")));
    }
    assert_eq!(a.0.cost(), 2, "a tree, and rows in it");
}

#[test]
fn a_queue_is_served_in_order_without_overtaking() {
    let f = fixture();
    let [mut a, mut b, mut c, mut d, mut e] = [(); 5].map(|()| f.begin());
    assert!(f.lock(&mut a, b"k", S));
    let writer = f.queue(&mut b, b"k", X);
    assert!(
        !f.lock(&mut c, b"k", S),
        "a shared lock does not pass a waiting writer"
    );
    let first_reader = f.queue(&mut c, b"k", S);
    let second_reader = f.queue(&mut d, b"k", S);
    let last = f.queue(&mut e, b"k", X);
    let waiters: Vec<_> = f.table.waits().iter().map(|w| w.transaction.id()).collect();
    assert_eq!(waiters.len(), 4);
    f.end(&a.0, &mut a.1);
    f.table.wait(writer, soon(), &mut || Ok(())).unwrap();
    assert!(!f.is_free(&c, b"k", Access::Row(S)), "it was handed over");
    assert!(f.lock(&mut b, b"k", X));
    f.end(&b.0, &mut b.1);
    f.table.wait(first_reader, soon(), &mut || Ok(())).unwrap();
    f.table.wait(second_reader, soon(), &mut || Ok(())).unwrap();
    assert!(f.lock(&mut c, b"k", S) && f.lock(&mut d, b"k", S));
    f.end(&c.0, &mut c.1);
    // What was handed over and is not wanted goes on to the next.
    f.table.give_up(&d.0, PLACE);
    f.end(&d.0, &mut d.1);
    f.table.wait(last, soon(), &mut || Ok(())).unwrap();
    f.table.give_up(&e.0, PLACE);
    f.end(&e.0, &mut e.1);
    assert!(f.table.is_idle(PLACE) && f.table.waits().is_empty());
}

#[test]
fn an_upgrade_of_a_shared_lock_goes_before_the_waiters() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    assert!(f.lock(&mut a, b"k", S));
    let waits = f.queue(&mut b, b"k", X);
    assert!(f.lock(&mut a, b"k", X), "no deadlock with the waiter");
    assert!(f.lock(&mut c, b"l", S) && f.lock(&mut a, b"l", S));
    let upgrade = f.queue(&mut c, b"l", X);
    f.end(&a.0, &mut a.1);
    f.table.wait(upgrade, soon(), &mut || Ok(())).unwrap();
    f.table.wait(waits, soon(), &mut || Ok(())).unwrap();
    assert_eq!(f.counters.get(Counter::Deadlocks), 0);
}

#[test]
fn a_wait_that_is_given_up_lets_the_next_go_on() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    assert!(f.lock(&mut a, b"k", S));
    let writer = f.queue(&mut b, b"k", X);
    let reader = f.queue(&mut c, b"k", S);
    drop(writer);
    f.table.wait(reader, soon(), &mut || Ok(())).unwrap();
    assert!(f.lock(&mut c, b"k", S));
}

/// A scan takes what it has passed, and a gap that ends there, for one interval. Of a gap that
/// begins there the rest stays locked.
#[test]
fn a_gap_that_goes_on_behind_a_scan_stays_locked() {
    let f = fixture();
    let (mut a, mut b) = (f.begin(), f.begin());
    f.lock_gap(&mut a, b"b", b"d");
    f.lock_gap(&mut a, b"d", b"m");
    // The row came into the gap; the scan has passed those two.
    let (trx, held) = &mut a;
    let bounds = (Bound::Included(&b"d"[..]), Bound::Included(&b"f"[..]));
    let (newest, refuse) = (&Newest::Free, IfTaken::Refuse);
    let passed = f
        .table
        .lock_passed(trx, held, row(b"f"), bounds, X, newest, refuse);
    assert!(passed.is_ok());
    for key in [b"c", b"e", b"g", b"k"] {
        assert!(!f.is_free(&b, key, Access::Insert), "{key:?}");
    }
    assert!(f.is_free(&b, b"g", Access::Row(X)) && !f.is_free(&b, b"e", Access::Row(X)));
    assert!(f.is_free(&b, b"n", Access::Insert));
    f.end(&a.0, &mut a.1);
    f.end(&b.0, &mut b.1);
    assert!(f.table.is_idle(PLACE));
}

#[test]
fn gaps_are_in_the_way_of_inserts_alone() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    f.lock_gap(&mut a, b"d", b"m");
    f.lock_gap(&mut b, b"f", b"z");
    assert!(f.is_free(&c, b"e", Access::Row(X)) && !f.is_free(&c, b"e", Access::Insert));
    assert!(f.is_free(&a, b"e", Access::Insert) && !f.is_free(&a, b"g", Access::Insert));
    assert!(f.is_free(&c, b"m", Access::Row(X)) && f.is_free(&c, b"d", Access::Insert));
    let (trx, held) = &mut c;
    let insert = f
        .table
        .may_write(trx, held, row(b"g"), Access::Insert, &Newest::Free);
    f.end(&b.0, &mut b.1);
    assert_eq!(f.first_blockers(), [a.0.id()]);
    f.end(&a.0, &mut a.1);
    f.table
        .wait(insert.unwrap_err(), soon(), &mut || Ok(()))
        .unwrap();
    let (trx, held) = &mut c;
    assert!(
        f.table
            .may_write(trx, held, row(b"g"), Access::Insert, &Newest::Free)
            .is_ok()
    );
    f.table.wrote(trx, row(b"g"));
    f.end(&c.0, &mut c.1);
    assert!(f.table.is_idle(PLACE));
}

#[test]
fn a_gap_may_come_before_the_insert_that_was_handed_its_place() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    f.lock_gap(&mut a, b"d", b"m");
    let (trx, held) = &mut b;
    let insert = f
        .table
        .may_write(trx, held, row(b"g"), Access::Insert, &Newest::Free);
    f.end(&a.0, &mut a.1);
    f.table
        .wait(insert.unwrap_err(), soon(), &mut || Ok(()))
        .unwrap();
    f.lock_gap(&mut c, b"d", b"m");
    let (trx, held) = &mut b;
    let again = f
        .table
        .may_write(trx, held, row(b"g"), Access::Insert, &Newest::Free);
    let again = again.expect_err("the gap's owner would see a phantom");
    f.end(&c.0, &mut c.1);
    f.table.wait(again, soon(), &mut || Ok(())).unwrap();
}

#[test]
fn a_new_gap_is_seen_by_a_waiting_insert() {
    let f = fixture();
    let [mut a, mut b, mut c] = [(); 3].map(|()| f.begin());
    (0..9).for_each(|_| c.0.add_cost());
    f.lock_gap(&mut a, b"d", b"m");
    assert!(f.lock(&mut c, b"row", X));
    let (trx, held) = &mut c;
    let insert = f
        .table
        .may_write(trx, held, row(b"g"), Access::Insert, &Newest::Free);
    let waits = f.queue(&mut b, b"row", X);
    assert_eq!(f.counters.get(Counter::Deadlocks), 0);
    f.lock_gap(&mut b, b"f", b"h");
    assert!(
        b.0.is_doomed() && !c.0.is_doomed(),
        "the circle closes with the gap"
    );
    assert!(matches!(
        f.table.wait(waits, soon(), &mut || Ok(())),
        Err(Error::Deadlock)
    ));
    drop(insert);
}

#[test]
fn a_lock_of_a_row_costs_less_than_forty_bytes() {
    use points::{Point, PointSet};
    let point = Point {
        mode: X,
        kept: None,
    };
    for ascending in [true, false] {
        let mut set = PointSet::default();
        for n in 0..200_000_u64 {
            let n = if ascending {
                n
            } else {
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            };
            assert!(set.set(&n.to_be_bytes(), point));
        }
        let bytes = set.bytes() as f64 / set.len() as f64;
        assert!(
            bytes < if ascending { 15.0 } else { 30.0 },
            "{bytes} bytes a row"
        );
    }
}

/// Of one transaction that has locked very many rows, here and there.
#[test]
fn locks_beyond_their_memory_are_joined() {
    const MEMORY: u64 = 64 << 10;
    let f = fixture_of(MEMORY);
    let (mut a, mut b, mut c, mut d) = (f.begin(), f.begin(), f.begin(), f.begin());
    let key = |n: u64| (n * 1000).to_be_bytes();
    let (other, awaited) = (key(5_000_000), key(7_000_000));
    assert!(f.lock(&mut b, &other, S) && f.lock(&mut c, &awaited, X));
    let waiting = f.queue(&mut d, &awaited, S);
    let mut keys: Vec<u64> = (0..20_000).map(|n| n * 7919 % 10_000_000).collect();
    keys.retain(|&n| !f.is_row_locked(&key(n)));
    for &n in &keys {
        assert!(f.lock(&mut a, &key(n), if n % 5 == 0 { X } else { S }));
        let bytes = f
            .table
            .change(PLACE, |locks| locks.owner(a.0.id()).unwrap().bytes());
        assert!(bytes as u64 <= MEMORY + 4096, "{bytes} bytes");
    }
    assert!(f.counters.get(Counter::LocksJoined) > 4_000);
    for &n in &keys {
        let wants = if n % 5 == 0 { S } else { X };
        assert!(
            !f.is_free(&b, &key(n), Access::Row(wants)),
            "{n} was given back"
        );
    }
    // What was joined is not given back before the end.
    let is_point = |n: u64| {
        f.table.change(PLACE, |locks| {
            let owner = locks.owner(a.0.id()).unwrap();
            owner.points.get(&key(n)).is_some()
        })
    };
    let joined = key(*keys.iter().find(|&&n| !is_point(n)).unwrap());
    assert!(!f.table.unlock_row(&a.0, row(&joined)));
    assert!(!f.is_free(&b, &joined, Access::Row(X)));
    // The locks of others, and what they wait for, are as before.
    assert!(f.is_free(&b, &other, Access::Row(S)));
    f.end(&c.0, &mut c.1);
    f.table.wait(waiting, soon(), &mut || Ok(())).unwrap();
    f.end(&d.0, &mut d.1);
    f.end(&b.0, &mut b.1);
    f.end(&a.0, &mut a.1);
    assert_eq!(f.table.counts(), (0, 0));
}

#[test]
fn a_scan_is_one_interval() {
    use Bound::{Excluded, Included};
    let f = fixture();
    let (mut a, b) = (f.begin(), f.begin());
    for n in 0..1000_u32 {
        let (from, to) = (n.to_be_bytes(), (n + 1).to_be_bytes());
        let bounds = (Excluded(&from[..]), Included(&to[..]));
        let (trx, held) = &mut a;
        let locked = f.table.lock_passed(
            trx,
            held,
            row(&to),
            bounds,
            X,
            &Newest::Free,
            IfTaken::Refuse,
        );
        assert!(locked.is_ok());
    }
    assert_eq!(f.table.counts(), (0, 1));
    let key = 500_u32.to_be_bytes();
    assert!(!f.is_free(&b, &key, Access::Row(S)));
    assert!(!f.is_free(&b, &[&key[..], b"x"].concat(), Access::Insert));
}

/// At the end of each leaf, of ten rows here, a scan locks the gap up to there. What it has passed
/// is one interval all the same, and the transaction no dearer.
#[test]
fn a_scan_over_leaves_is_one_interval() {
    use Bound::{Excluded, Included};
    for backward in [false, true] {
        let f = fixture();
        let (mut a, b) = (f.begin(), f.begin());
        for n in 0..100_u32 {
            let n = if backward { 99 - n } else { n };
            // A row, the fence behind it, or in front of it, and the row beside it.
            let (key, fence) = (10 * n, 10 * n + 5);
            let (this, fence) = (key.to_be_bytes(), fence.to_be_bytes());
            let next = (key + 10).to_be_bytes();
            let (passed, gap) = if !backward {
                ((Included(&fence[..]), Included(&next[..])), (&this, &fence))
            } else {
                ((Included(&this[..]), Excluded(&fence[..])), (&fence, &next))
            };
            let row = row(if backward { &this } else { &next });
            if n % 10 == 0 {
                let (trx, held) = &mut a;
                let gap = if !backward {
                    (Excluded(&gap.0[..]), Excluded(&gap.1[..]))
                } else {
                    (Included(&gap.0[..]), Excluded(&gap.1[..]))
                };
                f.table.lock_gap(trx, held, PLACE, gap);
            }
            let passed = match n % 10 == 0 {
                true => passed,
                false if backward => (Included(&this[..]), Excluded(&next[..])),
                false => (Excluded(&this[..]), Included(&next[..])),
            };
            let (trx, held) = &mut a;
            let refuse = IfTaken::Refuse;
            let locked = f
                .table
                .lock_passed(trx, held, row, passed, X, &Newest::Free, refuse);
            assert!(locked.is_ok());
        }
        assert_eq!(f.table.counts(), (0, 1), "backward: {backward}");
        assert_eq!(a.0.cost(), 3, "a tree, rows of a range, gaps");
        let fence = 505_u32.to_be_bytes();
        assert!(!f.is_free(&b, &fence, Access::Row(S)));
    }
}

#[test]
fn ranges_coalesce() {
    use Bound::{Excluded, Included, Unbounded};
    let f = fixture();
    let mut a = f.begin();
    for i in (0..200_u8).chain(0..200) {
        let (low, high) = ([i], [i + 1]);
        assert!(f.lock_range(&mut a, Included(&low), Excluded(&high), S));
    }
    assert_eq!(f.table.counts(), (0, 1));
    assert!(f.lock_range(&mut a, Excluded(&[210]), Included(&[220]), S));
    assert_eq!(f.table.counts(), (0, 2));
    assert!(f.lock_range(&mut a, Included(&[5]), Included(&[5]), X));
    assert!(f.lock_range(&mut a, Excluded(&[7]), Included(&[7]), X));
    assert_eq!(f.table.counts(), (0, 3));
    let b = f.begin();
    let hit = |key: &[u8], mode| !f.is_free(&b, key, Access::Row(mode));
    assert!(hit(&[5], S) && !hit(&[5, 0], S) && hit(&[5, 0], X));
    assert!(!hit(&[200], X) && !hit(&[210], X) && hit(&[210, 0], X) && hit(&[220], X));
    assert!(!hit(&[220, 0], X));
    let mut c = f.begin();
    assert!(!f.lock_range(&mut c, Unbounded, Unbounded, S));
    assert!(f.lock_range(&mut c, Included(&[6]), Unbounded, S));
    assert!(!f.lock_range(&mut a, Unbounded, Unbounded, X));
    f.end(&c.0, &mut c.1);
    assert!(f.lock_range(&mut a, Unbounded, Unbounded, X));
    f.end(&a.0, &mut a.1);
    assert_eq!(f.table.counts(), (0, 0));
}

#[test]
fn ranges_and_rows_exclude_each_other() {
    use Bound::{Included, Unbounded};
    let f = fixture();
    let [mut a, mut b] = [(); 2].map(|()| f.begin());
    assert!(f.lock(&mut a, b"k", X) && f.lock(&mut a, b"m", S));
    assert!(!f.lock_range(&mut b, Unbounded, Unbounded, S));
    assert!(f.lock_range(&mut b, Included(b"l"), Unbounded, S));
    assert!(!f.lock_range(&mut b, Included(b"l"), Unbounded, X));
    let (trx, held) = &mut b;
    let bounds = (Unbounded, Unbounded);
    let taken = f
        .table
        .lock_range(trx, held, PLACE, bounds, X, IfTaken::Queue);
    f.end(&a.0, &mut a.1);
    let Err(Taken::Queued(waiting)) = taken else {
        panic!("a locked range was free");
    };
    f.table.wait(waiting, soon(), &mut || Ok(())).unwrap();
    let c = f.begin();
    assert!(!f.is_free(&c, b"a", Access::Row(S)));
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
                                trx.add_cost();
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
    assert!(f.table.waits().is_empty());
    assert_eq!(f.counters.get(Counter::Deadlocks), victims.into_inner());
}

#[test]
fn a_wait_times_out() {
    let f = fixture();
    let (mut a, mut b) = (f.begin(), f.begin());
    assert!(f.lock(&mut b, b"k", X));
    let begun = Instant::now();
    let patience = Duration::from_millis(50);
    let result = f.lock_waiting(&a.0, &mut a.1, b"k", X, patience);
    let Err(Error::LockTimeout { waited_ms, place }) = result else {
        panic!("{result:?}");
    };
    assert!(waited_ms >= 50);
    // No names are set here.
    assert_eq!(place, "key 6b in tablespace 3, tree 0");
    assert!(begun.elapsed() >= patience);
    assert_eq!(f.counters.get(Counter::LockTimeouts), 1);
    assert!(f.table.waits().is_empty());
    f.end(&b.0, &mut b.1);
    f.wait_for(&mut a, &b.0, soon()).unwrap();
}

#[test]
fn a_wait_ends_when_the_engine_is_poisoned() {
    let f = fixture();
    let (mut a, mut b) = (f.begin(), f.begin());
    assert!(f.lock(&mut b, b"k", X));
    crate::sync::test_scope(|scope| {
        let waiter =
            scope.spawn(|| f.lock_waiting(&a.0, &mut a.1, b"k", S, Duration::from_secs(60)));
        while f.table.waits().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(f.first_blockers(), [b.0.id()]);
        f.poison.set("a test said so");
        assert!(matches!(waiter.join().unwrap(), Err(Error::Poisoned(_))));
    });
    let mut c = f.begin();
    let waiting = f.queue(&mut c, b"k", S);
    assert!(matches!(
        f.table.wait(waiting, soon(), &mut || Ok(())),
        Err(Error::Poisoned(_))
    ));
}

#[test]
fn no_wakeup_is_lost() {
    let f = fixture();
    for round in 0..5000 {
        let mut blocker = f.begin();
        let state = blocker.0.clone();
        let mut waiting: Vec<_> = (0..2).map(|_| f.begin()).collect();
        let go = AtomicBool::new(false);
        crate::sync::test_scope(|scope| {
            for me in &mut waiting {
                let (f, go, state) = (&f, &go, &state);
                scope.spawn(move || {
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    f.wait_for(me, state, soon()).unwrap();
                    assert!(state.is_ended());
                    f.system.finish_abort(&me.0);
                    f.table.release_all(&me.0, &mut me.1);
                });
            }
            go.store(true, Ordering::Release);
            for _ in 0..round % 97 {
                std::hint::spin_loop();
            }
            f.end(&blocker.0, &mut blocker.1);
        });
    }
    assert!(f.table.is_idle(PLACE));
}
