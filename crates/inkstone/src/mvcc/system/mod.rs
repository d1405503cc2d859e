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
use crate::sync::Instant;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::{self, Thread};
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

/// Live snapshots, ascending by number (as `next` never shrinks) and transaction.
#[derive(Debug, Default)]
struct LiveSnapshots(VecDeque<LiveSnapshot>);

/// The snapshots of one number that one transaction has, itself and in cursors.
#[derive(Debug)]
struct LiveSnapshot {
    seq: u64,
    holder: Holder,
    /// The thread that took the first of them.
    thread: Thread,
    count: u32,
    /// How many of them are cursors'.
    cursors: u32,
}

impl LiveSnapshot {
    fn place(&self) -> (u64, TrxId) {
        (self.seq, self.holder.trx)
    }

    fn add(&mut self, of: HolderPart) {
        self.count += 1;
        self.cursors += u32::from(of == HolderPart::Cursor);
    }

    fn take(&mut self, of: HolderPart) {
        let of_cursor = u32::from(of == HolderPart::Cursor);
        paranoid!(
            self.count > 0 && self.cursors >= of_cursor,
            "{self:?} is left once too often, by a {of:?}"
        );
        self.count -= 1;
        self.cursors -= of_cursor;
    }
}

impl LiveSnapshots {
    /// Where the snapshots of a number are that a transaction has, or would stand.
    fn find(&self, place: (u64, TrxId)) -> std::result::Result<usize, usize> {
        self.0.binary_search_by_key(&place, LiveSnapshot::place)
    }

    fn enter(&mut self, seq: u64, holder: Holder, of: HolderPart) {
        paranoid!(
            holder != Holder::ENGINE || of == HolderPart::Own,
            "a cursor over snapshot {seq} without a transaction"
        );
        let place = (seq, holder.trx);
        let at = match self.0.back() {
            Some(last) if place <= last.place() => self.find(place),
            _ => Err(self.0.len()),
        };
        match at {
            Ok(at) => self.0[at].add(of),
            Err(at) => {
                let thread = thread::current();
                let live = LiveSnapshot {
                    seq,
                    holder,
                    thread,
                    count: 1,
                    cursors: u32::from(of == HolderPart::Cursor),
                };
                self.0.insert(at, live);
            }
        }
    }

    /// The entry of a snapshot that is in force.
    fn known(&self, place: (u64, TrxId)) -> Option<usize> {
        let at = self.find(place);
        crate::invariant!(at.is_ok(), "snapshot {place:?} is not registered");
        at.ok()
    }
}

/// For which transaction a snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number; 0 of what is no transaction.
    pub trx: TrxId,
    /// When it began.
    pub begun: Option<Instant>,
}

impl Holder {
    /// The engine itself, for a moment.
    pub const ENGINE: Self = Self {
        trx: TrxId(0),
        begun: None,
    };
}

/// What of a transaction has a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderPart {
    /// The transaction itself, or a call of it.
    Own,
    /// A cursor, which may outlive the transaction.
    Cursor,
}

/// Snapshots in force that one transaction has, of one number.
#[derive(Clone, Debug)]
pub struct HeldSnapshot {
    /// Their number.
    pub seq: u64,
    /// Whose they are.
    pub holder: Holder,
    /// The name of the thread that took the first of them.
    pub thread: Option<String>,
    /// How many.
    pub count: u32,
    /// How many of them are cursors'.
    pub cursors: u32,
}

impl Check for LiveSnapshots {
    fn check(&self) {
        let mut before = None;
        for live in self.0.iter().rev().take(MANY) {
            let place = live.place();
            paranoid!(
                live.count > 0 && before.is_none_or(|before| place < before),
                "snapshot {place:?} held {} times, before {before:?}",
                live.count
            );
            paranoid!(
                live.cursors <= live.count,
                "of {} snapshots {} are of cursors",
                live.count,
                live.cursors
            );
            before = Some(place);
        }
    }
}

/// The live snapshots of one shard.
#[derive(Debug, Default)]
struct SnapshotShard(Checked<LiveSnapshots>);

impl SnapshotShard {
    fn enter(&self, next: &AtomicU64, holder: Holder, of: HolderPart) -> u64 {
        let live = &mut *self.0.lock();
        let seq = next.load(Ordering::SeqCst);
        preemption_point();
        paranoid!(
            live.0.back().is_none_or(|last| last.seq <= seq),
            "snapshot {seq} after {:?}",
            live.0.back()
        );
        live.enter(seq, holder, of);
        seq
    }

    fn enter_again(&self, place: (u64, TrxId), of: HolderPart) {
        let live = &mut *self.0.lock();
        if let Some(at) = live.known(place) {
            live.0[at].add(of);
        }
    }

    fn leave(&self, place: (u64, TrxId), of: HolderPart) {
        let live = &mut *self.0.lock();
        if let Some(at) = live.known(place) {
            live.0[at].take(of);
            if live.0[at].count == 0 {
                live.0.remove(at);
            }
        }
    }
}

/// A snapshot that is in force until it is dropped: versions that it may need are kept.
#[derive(Debug)]
pub struct Snapshot {
    seq: u64,
    trx: TrxId,
    of: HolderPart,
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

    /// A second snapshot of the same number, for a part of its holder; each is in force by itself.
    pub fn clone_for(&self, of: HolderPart) -> Self {
        self.shard.enter_again((self.seq, self.trx), of);
        Self {
            seq: self.seq,
            trx: self.trx,
            of,
            shard: self.shard.clone(),
        }
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        self.clone_for(self.of)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shard.leave((self.seq, self.trx), self.of);
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
        self.snapshot_for(Holder::ENGINE, HolderPart::Own)
    }

    /// As [`TrxSystem::snapshot`], for a transaction.
    #[inline]
    pub fn snapshot_for(&self, holder: Holder, of: HolderPart) -> Snapshot {
        let shard = &self.snapshots[thread_stripe()];
        Snapshot {
            seq: shard.enter(&self.next, holder, of),
            trx: holder.trx,
            of,
            shard: shard.clone(),
        }
    }

    /// All snapshots in force, the oldest first.
    pub fn snapshots_held(&self) -> Vec<HeldSnapshot> {
        let mut all = Vec::new();
        for shard in &self.snapshots {
            let live = shard.0.lock();
            all.extend(live.0.iter().map(|live| HeldSnapshot {
                seq: live.seq,
                holder: live.holder,
                thread: live.thread.name().map(str::to_owned),
                count: live.count,
                cursors: live.cursors,
            }));
        }
        all.sort_by_key(|held| (held.seq, held.holder.trx));
        paranoid!(
            all.iter().all(|held| held.cursors <= held.count),
            "snapshots are counted wrongly: {all:?}"
        );
        all
    }

    /// A lower bound of all snapshots, living or to be taken (promise 2); the latest commit
    /// number when there are none.
    pub fn oldest_snapshot(&self) -> u64 {
        let next = self.next.load(Ordering::SeqCst);
        let oldest_of = |shard: &SnapshotShard| {
            preemption_point();
            shard.0.lock().0.front().map(|first| first.seq)
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
