//! The state that transactions share: which are active, in which order they committed, which
//! snapshots live, and the small slot numbers that stand for transactions in the log.
//!
//! # Words
//!
//! - *commit number* (seq): the place of a commit in the order of all commits, from 1 on. Numbers
//!   are taken by rollbacks too, see promise 4.
//! - *snapshot*: one number S; it sees exactly the transactions that committed with a number of
//!   at most S.
//! - *slot*: a small number that belongs to one transaction while it is active.
//!
//! # Promises
//!
//! 1. **Commits are atomic to snapshots.** Commit: `status = Committing`;
//!    `seq = 1 + next.fetch_add(1)`; `status = Committed(seq)`. Snapshot: `S = next.load()`. All
//!    are SeqCst. A snapshot sees T iff T's number is at most S, however often and whenever it
//!    asks:
//!    - If `seq <= S`, T's `fetch_add` precedes the snapshot's load in the single order, and
//!      `status = Committing` precedes the `fetch_add`. So every later look at T's status finds
//!      `Committing` (the reader waits, then finds `Committed(seq)`) or `Committed(seq)`: seen.
//!    - If `seq > S`, or T never commits, a look finds `Active`, `Prepared` or `Aborted` (not
//!      seen), `Committed(seq)` (compared: not seen) or `Committing` (waits, then as before): not
//!      seen.
//!
//!    The answer depends on seq and S alone, thus is the same for all rows that T changed. Tested
//!    by `transfers_are_atomic_to_snapshots`.
//! 2. **[`TrxSystem::oldest_snapshot`] is a lower bound** of all snapshots that live when it
//!    returns or will be taken later. It reads `next` first (N), then scans the shards, each under
//!    its latch; its answer is at most N. A snapshot reads `next` and enters itself under its
//!    shard's latch. If it had the latch before the scan, the scan found it; if after, its read of
//!    `next` comes after ours, so its number is at least N. Tested by
//!    `oldest_snapshot_never_passes_a_live_one`.
//! 3. A slot belongs to at most one active transaction. It is free again once `finish_commit` or
//!    `finish_abort` ran; these come after the commit or rollback record was appended, so in the
//!    log too the slot's next owner comes after the record that ended the former one. Checked by
//!    `TrxSystem::leave`. Tested by `slots_are_small_and_unique`,
//!    `nothing_acknowledged_is_lost_in_a_crash`.
//! 4. **Rollbacks take a number too**: a reader may hold a copy of a row with the version address
//!    of a transaction that is rolled back meanwhile. Its snapshot is older than the number of the
//!    rollback, so the version segment stays readable for it, and `Aborted` tells it to go on to
//!    the older version. (With no number the segment could retire at once, and the dead address
//!    would say "visible to all".) Tested by `retiring_waits_for_snapshots_and_writers`.
//! 5. No queue of a row misses the end of the transaction that has changed the row: the status is
//!    set first, then the thread that ends the transaction takes the queues that watch it
//!    (`TrxState::take_watches`), under the latch under which a new watch checks the status. The
//!    same for what it takes back before its end: a watch knows the number of such events when the
//!    row was looked at. Tested by `no_wakeup_is_lost`,
//!    `a_waiter_is_woken_when_a_row_is_given_back`. Tested by the simulator (`hand-off-lost`).
//! 6. `finish_commit` and `finish_abort` return when no thread holds the transaction's owner, and
//!    none can hold it afterwards: a holder counts itself under the latch under which it has
//!    checked the status, and the count is looked at after the status was set. Tested by
//!    `a_blocker_does_not_end_while_it_is_named`, `an_owner_is_let_go_before_it_is_changed`.
//!
//! Not promised: that a transaction that is visible is durable; the caller decides when it calls
//! `finish_commit`.
//!
//! # Latches
//!
//! `active` shards, `snapshots` shards: each innermost and held for a few instructions. A thread
//! holds at most one. No global mutex: shards are chosen by the thread's stripe.

mod trx;

#[cfg(test)]
mod tests;

pub use trx::{Details, TreeKey, TrxState, TrxStatus};

use crate::counters::{STRIPES, thread_stripe};
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use inkstone_format::{Lsn, TrxId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// Slots are below this number.
pub const SLOT_LIMIT: u32 = 1 << 24;

/// A place where the order of threads matters. Unit tests let other threads run here now and then.
#[inline(always)]
fn preemption_point() {
    #[cfg(test)]
    tests::yield_now_and_then();
}

/// A part of the active set: its entry `i` has slot `i * STRIPES + shard`.
#[derive(Default)]
struct ActiveShard {
    entries: Vec<Option<Arc<TrxState>>>,
    /// Indexes of the empty entries; the smallest is used first.
    free: BinaryHeap<Reverse<u32>>,
}

impl Check for ActiveShard {
    fn check(&self) {
        for (index, trx) in self.entries.iter().enumerate().take(MANY) {
            let Some(trx) = trx else { continue };
            paranoid!(
                trx.slot() as usize / STRIPES == index,
                "{:?} with slot {} stands at place {index}",
                trx.id(),
                trx.slot()
            );
        }
        for &Reverse(index) in self.free.iter().take(MANY) {
            let entry = self.entries.get(index as usize);
            paranoid!(
                entry.is_some_and(Option::is_none),
                "place {index} of {} is free and taken",
                self.entries.len()
            );
        }
        paranoid!(
            self.entries.len() <= SLOT_LIMIT as usize / STRIPES,
            "{} slots of transactions in a shard",
            self.entries.len()
        );
        if self.entries.len() <= MANY {
            let empty = self.entries.iter().filter(|entry| entry.is_none()).count();
            paranoid!(
                empty == self.free.len(),
                "{empty} empty slots of transactions, {} of them free",
                self.free.len()
            );
        }
    }
}

/// Live snapshot numbers, ascending (as `next` never shrinks), with how many have each.
#[derive(Debug, Default)]
struct LiveSnapshots(VecDeque<(u64, u32)>);

impl Check for LiveSnapshots {
    fn check(&self) {
        let mut before = None;
        for &(seq, count) in self.0.iter().rev().take(MANY) {
            paranoid!(
                count > 0 && before.is_none_or(|before| seq < before),
                "snapshot {seq} held {count} times, before {before:?}"
            );
            before = Some(seq);
        }
    }
}

/// The live snapshots of one shard.
#[derive(Debug, Default)]
struct SnapshotShard(Checked<LiveSnapshots>);

impl SnapshotShard {
    fn enter(&self, next: &AtomicU64) -> u64 {
        let live = &mut self.0.lock().0;
        let seq = next.load(Ordering::SeqCst);
        preemption_point();
        paranoid!(
            live.back().is_none_or(|&(last, _)| last <= seq),
            "snapshot {seq} after {:?}",
            live.back()
        );
        match live.back_mut() {
            Some((last, count)) if *last == seq => *count += 1,
            _ => live.push_back((seq, 1)),
        }
        seq
    }

    fn enter_again(&self, seq: u64) {
        let live = &mut self.0.lock().0;
        let at = live.binary_search_by_key(&seq, |&(seq, _)| seq);
        crate::invariant!(at.is_ok(), "snapshot {seq} is not registered");
        if let Ok(at) = at {
            live[at].1 += 1;
        }
    }

    fn leave(&self, seq: u64) {
        let live = &mut self.0.lock().0;
        let at = live.binary_search_by_key(&seq, |&(seq, _)| seq);
        crate::invariant!(at.is_ok(), "snapshot {seq} is not registered");
        if let Ok(at) = at {
            paranoid!(live[at].1 > 0, "snapshot {seq} is left once too often");
            live[at].1 -= 1;
            if live[at].1 == 0 {
                live.remove(at);
            }
        }
    }
}

/// A snapshot that is in force until it is dropped: versions that it may need are kept.
#[derive(Debug)]
pub struct Snapshot {
    seq: u64,
    shard: Arc<CachePadded<SnapshotShard>>,
}

impl Snapshot {
    /// Its number: it sees what committed with at most this number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether it sees the changes of `trx`, for a reader that is transaction `me`.
    pub fn sees(&self, me: TrxId, trx: &TrxState) -> bool {
        trx.id() == me || trx.is_visible_at(self.seq)
    }
}

impl Clone for Snapshot {
    /// A second snapshot of the same number; each is in force by itself.
    fn clone(&self) -> Self {
        self.shard.enter_again(self.seq);
        Self {
            seq: self.seq,
            shard: self.shard.clone(),
        }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shard.leave(self.seq);
    }
}

/// The transactions of one open database. See the module's text.
pub struct TrxSystem {
    next_trx_id: CachePadded<AtomicU64>,
    /// The latest commit number that was given out.
    next: CachePadded<AtomicU64>,
    active: Box<[CachePadded<Checked<ActiveShard>>]>,
    /// Each shard in its own `Arc`, so that snapshots of different stripes count references on
    /// different cache lines.
    snapshots: Box<[Arc<CachePadded<SnapshotShard>>]>,
}

impl std::fmt::Debug for TrxSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrxSystem")
            .field("next_trx_id", &self.peek_next_trx_id())
            .field("last_seq", &self.last_seq())
            .finish_non_exhaustive()
    }
}

impl TrxSystem {
    /// A system without transactions, whose first new one gets the id `first_trx_id`.
    pub fn new(first_trx_id: TrxId) -> Self {
        Self {
            next_trx_id: CachePadded::new(AtomicU64::new(first_trx_id.0)),
            next: CachePadded::new(AtomicU64::new(0)),
            active: (0..STRIPES).map(|_| CachePadded::default()).collect(),
            snapshots: (0..STRIPES).map(|_| Arc::default()).collect(),
        }
    }

    /// A new transaction id.
    pub fn next_trx_id(&self) -> TrxId {
        TrxId(self.next_trx_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The id that the next transaction will get, at the earliest (for the control file).
    pub fn peek_next_trx_id(&self) -> TrxId {
        TrxId(self.next_trx_id.load(Ordering::Relaxed))
    }

    /// The latest commit number.
    pub fn last_seq(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// As [`TrxSystem::try_begin`], for the few transactions of the engine itself.
    pub fn begin(&self, id: TrxId) -> Arc<TrxState> {
        let begun = self.try_begin(id);
        crate::invariant!(begun.is_some(), "too many transactions are active");
        begun.expect("checked")
    }

    /// Enters a transaction into the active set and gives it the smallest free slot of the
    /// thread's shard. `None` if all are taken.
    pub fn try_begin(&self, id: TrxId) -> Option<Arc<TrxState>> {
        let shard_number = thread_stripe();
        let mut shard = self.active[shard_number].lock();
        let index = match shard.free.pop() {
            Some(Reverse(index)) => index,
            None if shard.entries.len() >= SLOT_LIMIT as usize / STRIPES => return None,
            None => {
                shard.entries.push(None);
                (shard.entries.len() - 1) as u32
            }
        };
        let slot = index * STRIPES as u32 + shard_number as u32;
        paranoid!(slot < SLOT_LIMIT, "slot {slot} was given to {id:?}");
        let trx = Arc::new(TrxState::new(id, slot));
        shard.entries[index as usize] = Some(trx.clone());
        Some(trx)
    }

    /// Enters a transaction that recovery found prepared, under the slot that its records in the
    /// log carry: while those may be read again, no other transaction may get the slot. `None` if
    /// the slot is taken or not below [`SLOT_LIMIT`].
    pub fn begin_recovered(&self, id: TrxId, slot: u32) -> Option<Arc<TrxState>> {
        if slot >= SLOT_LIMIT {
            return None;
        }
        let index = slot / STRIPES as u32;
        let mut shard = self.active[slot as usize % STRIPES].lock();
        while shard.entries.len() <= index as usize {
            let new = shard.entries.len() as u32;
            shard.entries.push(None);
            shard.free.push(Reverse(new));
        }
        if shard.entries[index as usize].is_some() {
            return None;
        }
        let before = shard.free.len();
        shard.free.retain(|free| free.0 != index);
        paranoid!(
            shard.free.len() + 1 == before,
            "slot {slot} was free {} times",
            before - shard.free.len()
        );
        let trx = Arc::new(TrxState::new(id, slot));
        shard.entries[index as usize] = Some(trx.clone());
        Some(trx)
    }

    /// Makes a transaction's changes visible and returns its commit number. To be called after its
    /// commit record was appended to the log (promise 3).
    pub fn finish_commit(&self, trx: &TrxState) -> u64 {
        crate::invariant!(!trx.is_ended(), "second end of {trx:?}");
        trx.set_status(TrxStatus::Committing);
        preemption_point();
        let seq = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        preemption_point();
        trx.set_status(TrxStatus::Committed(seq));
        self.leave(trx);
        seq
    }

    /// Ends a transaction whose changes have been taken back, and returns the number up to which
    /// its version segments must be kept (promise 4): pass it to `VersionStore::finish`.
    pub fn finish_abort(&self, trx: &TrxState) -> u64 {
        crate::invariant!(!trx.is_ended(), "second end of {trx:?}");
        trx.set_status(TrxStatus::Aborted);
        let seq = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        self.leave(trx);
        seq
    }

    fn leave(&self, trx: &TrxState) {
        paranoid!(
            trx.slot() < SLOT_LIMIT,
            "{:?} ends without a slot",
            trx.id()
        );
        let index = trx.slot() / STRIPES as u32;
        let mut shard = self.active[trx.slot() as usize % STRIPES].lock();
        let entry = shard.entries[index as usize].take();
        shard.free.push(Reverse(index));
        drop(shard);
        crate::invariant!(
            entry.is_some_and(|e| e.id() == trx.id()),
            "slot {} does not belong to {trx:?}",
            trx.slot()
        );
        trx.wait_until_owner_is_not_held();
    }

    /// A snapshot of everything that has committed, in force until it is dropped.
    pub fn snapshot(&self) -> Snapshot {
        let shard = &self.snapshots[thread_stripe()];
        Snapshot {
            seq: shard.enter(&self.next),
            shard: shard.clone(),
        }
    }

    /// A lower bound of all snapshots, living or to be taken (promise 2); the latest commit
    /// number when there are none.
    pub fn oldest_snapshot(&self) -> u64 {
        let next = self.next.load(Ordering::SeqCst);
        let oldest_of = |shard: &SnapshotShard| {
            preemption_point();
            shard.0.lock().0.front().map(|&(seq, _)| seq)
        };
        let oldest = self.snapshots.iter().filter_map(|shard| oldest_of(shard));
        oldest.fold(next, u64::min)
    }

    /// All active (and prepared) transactions.
    pub fn active(&self) -> Vec<Arc<TrxState>> {
        let mut all = Vec::new();
        for shard in &self.active {
            all.extend(shard.lock().entries.iter().flatten().cloned());
        }
        all
    }

    /// Number of active transactions; approximate while they come and go.
    pub fn active_count(&self) -> usize {
        self.active
            .iter()
            .map(|shard| {
                let shard = shard.lock();
                shard.entries.len() - shard.free.len()
            })
            .sum()
    }

    /// The smallest first LSN of the active transactions that have written: recovery must be able
    /// to scan from here to roll them back.
    ///
    /// A checkpoint uses it so: (1) read `ready_lsn`, (2) call this, (3) scan start = the smaller
    /// of both, (4) read the log's end as it is now and wait until the log is durable up to there,
    /// (5) write the control file. (1) before (2): a transaction that writes its first record above
    /// `ready_lsn` need not be found, one below has noted its LSN before the frame was published.
    /// (4): a transaction that ended between (1) and (2) is not found, although its first record
    /// lies below the scan start; if its commit record were lost in a crash it would have to be
    /// rolled back without its before-images. Its commit record was appended before it left the
    /// active set, so (4) makes it durable.
    pub fn oldest_first_lsn(&self) -> Option<Lsn> {
        let mut oldest = None;
        for shard in &self.active {
            let shard = shard.lock();
            let first = shard.entries.iter().flatten().filter_map(|t| t.first_lsn());
            oldest = first.chain(oldest).min();
        }
        oldest
    }
}
