//! One transaction's shared state: what other threads may ask about it.

use crate::mvcc::interrupt::Interrupt;
use crate::mvcc::isolation::Isolation;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Condvar, Instant, Mutex, hint, thread};
use inkstone_format::{Lsn, SpaceId, TreeId, TrxId};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a transaction is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrxStatus {
    /// Running; its changes are visible to itself only.
    Active,
    /// Prepared (XA): as active, but only commit or rollback may follow.
    Prepared,
    /// Taking its commit number: for a few instructions its place in the order is unknown.
    Committing,
    /// Committed with this commit number.
    Committed(u64),
    /// Rolled back: its changes have been taken back.
    Aborted,
}

const ACTIVE: u64 = 0;
const PREPARED: u64 = 1;
const COMMITTING: u64 = 2;
const ABORTED: u64 = 3;
const COMMITTED: u64 = 4;
/// Bits of the status word below the commit number.
const TAG_BITS: u32 = 3;

fn encode(status: TrxStatus) -> u64 {
    match status {
        TrxStatus::Active => ACTIVE,
        TrxStatus::Prepared => PREPARED,
        TrxStatus::Committing => COMMITTING,
        TrxStatus::Aborted => ABORTED,
        TrxStatus::Committed(seq) => {
            paranoid!(
                seq > 0 && seq >> (u64::BITS - TAG_BITS) == 0,
                "commit number {seq} does not fit the status word"
            );
            seq << TAG_BITS | COMMITTED
        }
    }
}

fn decode(word: u64) -> TrxStatus {
    match word & ((1 << TAG_BITS) - 1) {
        ACTIVE => TrxStatus::Active,
        PREPARED => TrxStatus::Prepared,
        COMMITTING => TrxStatus::Committing,
        ABORTED => TrxStatus::Aborted,
        tag => {
            paranoid!(tag == COMMITTED, "status word {word:x} of a transaction");
            TrxStatus::Committed(word >> TAG_BITS)
        }
    }
}

/// Adds to a counter that one thread writes.
fn add(counter: &AtomicU32, n: u64) {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    let sum = counter.load(Ordering::Relaxed).saturating_add(n);
    counter.store(sum, Ordering::Relaxed);
}

fn take_back(counter: &AtomicU32, n: u64) {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    let left = counter.load(Ordering::Relaxed).saturating_sub(n);
    counter.store(left, Ordering::Relaxed);
}

/// What lists show of a transaction, and what waiting needs: its owner for the hooks, and its
/// interrupt. Nothing else is decided by it.
#[derive(Clone, Debug, Default)]
pub struct Details {
    /// When it began; `None` for one that recovery found.
    pub begun: Option<Instant>,
    /// Its level.
    pub isolation: Isolation,
    /// What [`Transaction::set_tag`](crate::Transaction::set_tag) said.
    pub tag: u64,
    /// The thread that began it; `None` for one that recovery found.
    pub thread: Option<thread::Thread>,
    /// The owner that [`LockWaitHooks`](crate::LockWaitHooks) are told of; 0 for none.
    pub(crate) owner: usize,
    /// How many hold its owner.
    owner_holders: u32,
    pub(crate) interrupt: Option<Interrupt>,
}

/// A tree of the database.
pub type TreeKey = (SpaceId, TreeId);

/// What others want of a transaction.
#[derive(Debug, Default)]
struct ForOthers {
    /// Queues that go on when this one ends, or takes changes back.
    watches: Vec<(TreeKey, Box<[u8]>)>,
    /// Boxed, as version segments keep the state of transactions for long.
    details: Option<Box<Details>>,
}

/// A held owner: while this lives, neither the transaction's end nor a change of its owner returns.
pub(crate) struct HeldOwner<'t> {
    trx: &'t TrxState,
    owner: usize,
}

impl HeldOwner<'_> {
    pub(crate) fn get(&self) -> usize {
        self.owner
    }
}

impl Drop for HeldOwner<'_> {
    fn drop(&mut self) {
        self.trx.set_details(|details| {
            paranoid!(
                details.owner_holders > 0,
                "owner {} is let go of, and was not held",
                self.owner
            );
            details.owner_holders -= 1;
        });
        self.trx.wake_up();
    }
}

/// The longest sleep of a thread that waits until an owner is not held: two may wait, and one of
/// them is woken.
const HELD_OWNER_CHECK: Duration = Duration::from_millis(100);

/// It does not wait for locks: it fails where it would.
const IMPATIENT: u8 = 1;
/// It leaves the values of rows as they are: it moves long ones.
const MOVES: u8 = 2;

/// A transaction as other threads see it. Shared by `Arc`: the transaction itself, the active
/// set, the version segments that it wrote to, and its locks hold one.
pub struct TrxState {
    id: TrxId,
    slot: u32,
    doomed: AtomicBool,
    /// `IMPATIENT`, `MOVES`; changed by its own thread alone.
    manner: AtomicU8,
    status: AtomicU64,
    /// Changes, and those of rows; four bytes each, as a few of these are kept for long. They stop
    /// at the greatest number.
    weight: AtomicU32,
    rows: AtomicU32,
    /// What rolling it back would cost its user, as InnoDB counts it: rows changed, and kinds of
    /// locks in trees.
    cost: AtomicU32,
    first_lsn: AtomicU64,
    /// How often it has given something back before its end. See [`Blocker`].
    ///
    /// [`Blocker`]: crate::locks::Blocker
    releases: AtomicU32,
    /// Latch; innermost, held for a few instructions.
    others: Mutex<ForOthers>,
    /// Whether this transaction, which waits for another, or for its owner, has been woken.
    woken: Mutex<bool>,
    wake: Condvar,
}

impl fmt::Debug for TrxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrxState")
            .field("id", &self.id)
            .field("slot", &self.slot)
            .field("status", &self.status())
            .field("weight", &self.weight())
            .finish_non_exhaustive()
    }
}

impl TrxState {
    pub(super) fn new(id: TrxId, slot: u32) -> Self {
        Self::with_status(id, slot, TrxStatus::Active)
    }

    fn with_status(id: TrxId, slot: u32, status: TrxStatus) -> Self {
        paranoid!(
            slot < super::SLOT_LIMIT || slot == u32::MAX,
            "transaction {id:?} in slot {slot}"
        );
        Self {
            id,
            slot,
            doomed: AtomicBool::new(false),
            manner: AtomicU8::new(0),
            status: AtomicU64::new(encode(status)),
            weight: AtomicU32::new(0),
            rows: AtomicU32::new(0),
            cost: AtomicU32::new(0),
            first_lsn: AtomicU64::new(0),
            releases: AtomicU32::new(0),
            others: Mutex::default(),
            woken: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// A stand-in for a transaction that has ended, of which only id and outcome were kept.
    pub(crate) fn ended(id: TrxId, status: TrxStatus) -> Arc<Self> {
        let state = Self::with_status(id, u32::MAX, status);
        crate::invariant!(
            state.is_ended(),
            "stand-in for {state:?}, which has not ended"
        );
        Arc::new(state)
    }

    /// The transaction's id.
    pub fn id(&self) -> TrxId {
        self.id
    }

    /// The small number that stands for the transaction in the log while it is active.
    /// `u32::MAX` in the stand-in of a transaction that ended long ago.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Where it is in its life, right now.
    pub fn status(&self) -> TrxStatus {
        decode(self.status.load(Ordering::SeqCst))
    }

    pub(super) fn set_status(&self, status: TrxStatus) {
        self.status.store(encode(status), Ordering::SeqCst);
    }

    /// Marks the transaction prepared. Called by the transaction's own thread.
    pub fn set_prepared(&self) {
        let old = self.status();
        crate::invariant!(old == TrxStatus::Active, "prepare of {self:?}");
        self.set_status(TrxStatus::Prepared);
    }

    /// As [`TrxState::status`], never `Committing`: waits the few instructions that a commit
    /// needs to take its number.
    pub fn settled_status(&self) -> TrxStatus {
        let mut spins = 0;
        loop {
            match self.status() {
                TrxStatus::Committing if spins < 64 => {
                    spins += 1;
                    hint::spin_loop();
                }
                // The committing thread was preempted in between: let it run.
                TrxStatus::Committing => thread::yield_now(),
                status => return status,
            }
        }
    }

    /// Whether its changes are visible to a snapshot of this number (taken by another one; to
    /// itself a transaction is always visible). See the module's proof.
    pub fn is_visible_at(&self, snapshot_seq: u64) -> bool {
        matches!(self.settled_status(), TrxStatus::Committed(seq) if seq <= snapshot_seq)
    }

    /// Whether it has committed or has been rolled back; then it blocks no other.
    pub fn is_ended(&self) -> bool {
        matches!(self.status(), TrxStatus::Committed(_) | TrxStatus::Aborted)
    }

    /// Number of changes: what rolling it back would cost.
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed).into()
    }

    /// Counts `n` more changes. Called by the transaction's own thread.
    pub fn add_weight(&self, n: u64) {
        add(&self.weight, n);
    }

    /// So many changes of one that an earlier run has left were undone. Called by the thread that
    /// undoes them.
    pub(crate) fn take_back_weight(&self, undone: u64) {
        take_back(&self.weight, undone);
    }

    /// Number of rows changed, and not undone: each change of a clustered tree counts.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed).into()
    }

    /// Counts `n` more changed rows. Called by the transaction's own thread.
    pub fn add_rows(&self, n: u64) {
        add(&self.rows, n);
    }

    /// Changes of so many rows were undone. Called by the thread that undoes them.
    pub fn take_back_rows(&self, undone: u64) {
        take_back(&self.rows, undone);
    }

    /// By what a deadlock's victim is chosen: the least.
    pub(crate) fn cost(&self) -> u32 {
        self.cost.load(Ordering::Relaxed)
    }

    /// A row was changed, or something locked of which it had none.
    pub(crate) fn add_cost(&self) {
        self.cost.fetch_add(1, Ordering::Relaxed);
    }

    /// It has given back something that had counted.
    pub(crate) fn take_back_cost(&self) {
        let before = self.cost.fetch_sub(1, Ordering::Relaxed);
        paranoid!(
            before > 0,
            "a cost of nothing is taken back of {:?}",
            self.id
        );
    }

    /// Whether it was chosen as the victim of a deadlock: it must be rolled back.
    pub fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Acquire)
    }

    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
        self.wake_up();
    }

    /// It is no victim any more: it has stopped waiting. Called by its own thread, when no deadlock
    /// can be found that it is part of.
    pub(crate) fn spare(&self) {
        self.doomed.store(false, Ordering::Release);
    }

    /// Whether it waits for locks, for however short a time.
    pub fn is_patient(&self) -> bool {
        self.manner.load(Ordering::Relaxed) & IMPATIENT == 0
    }

    pub(crate) fn set_patient(&self, is_patient: bool) {
        let others = self.manner.load(Ordering::Relaxed) & !IMPATIENT;
        let manner = others | if is_patient { 0 } else { IMPATIENT };
        self.manner.store(manner, Ordering::Relaxed);
    }

    /// Whether rows that it has updated have the values that they had: no other transaction's
    /// update is lost under its own.
    pub fn only_moves(&self) -> bool {
        self.manner.load(Ordering::Relaxed) & MOVES != 0
    }

    /// It will update rows to what they are, and write nothing else.
    pub(crate) fn set_only_moves(&self) {
        paranoid!(
            self.first_lsn().is_none(),
            "{:?} has written, and is to move rows alone",
            self.id
        );
        let others = self.manner.load(Ordering::Relaxed);
        self.manner.store(others | MOVES, Ordering::Relaxed);
    }

    /// Start LSN of its first log record; `None` while it has written nothing.
    pub fn first_lsn(&self) -> Option<Lsn> {
        match self.first_lsn.load(Ordering::Acquire) {
            0 => None,
            lsn => Some(Lsn(lsn)),
        }
    }

    /// Notes that it has written a record at `lsn`; only the first call counts. Must be called
    /// before the frame that holds the record is published (inside the closure of the log's
    /// append), see [`super::TrxSystem::oldest_first_lsn`].
    pub fn note_first_lsn(&self, lsn: Lsn) {
        paranoid!(
            lsn.0 > 0,
            "{:?} wrote at LSN 0, which stands for none",
            self.id
        );
        if self.first_lsn.load(Ordering::Relaxed) == 0 {
            self.first_lsn.store(lsn.0, Ordering::Release);
        }
    }

    /// Moves the pin forward, after everything needed to roll it back was logged again from
    /// `lsn` on.
    pub fn move_first_lsn(&self, lsn: Lsn) {
        paranoid!(lsn.0 > 0, "the log of {:?} is kept from LSN 0", self.id);
        self.first_lsn.store(lsn.0, Ordering::Release);
    }

    /// A copy of its details.
    pub fn details(&self) -> Details {
        let others = self.others.lock();
        others.details.as_deref().cloned().unwrap_or_default()
    }

    pub(crate) fn set_details(&self, set: impl FnOnce(&mut Details)) {
        set(self.others.lock().details.get_or_insert_default());
    }

    /// The owner that is named to [`LockWaitHooks`](crate::LockWaitHooks).
    pub(crate) fn owner(&self) -> usize {
        let others = self.others.lock();
        others.details.as_ref().map_or(0, |details| details.owner)
    }

    /// Changes its owner; no thread holds the former one when this returns.
    pub(crate) fn set_owner(&self, owner: usize) {
        self.set_details(|details| details.owner = owner);
        self.wait_until_owner_is_not_held();
    }

    /// Holds its owner. `None` if it has ended: then no transaction waits for it, and its owner may
    /// be gone.
    pub(crate) fn hold_owner(&self) -> Option<HeldOwner<'_>> {
        let mut others = self.others.lock();
        // Its end looks for holders after the status was set.
        if self.is_ended() {
            return None;
        }
        let details = others.details.get_or_insert_default();
        details.owner_holders += 1;
        let owner = details.owner;
        Some(HeldOwner { trx: self, owner })
    }

    /// To be called at its end, after the status was set: holders of its owner use it.
    pub(super) fn wait_until_owner_is_not_held(&self) {
        let is_held = || {
            let others = self.others.lock();
            (others.details.as_ref()).is_some_and(|details| details.owner_holders > 0)
        };
        while is_held() {
            self.sleep(Instant::now() + HELD_OWNER_CHECK);
        }
    }

    /// How often it has given something back before its end.
    pub(crate) fn releases(&self) -> u32 {
        self.releases.load(Ordering::SeqCst)
    }

    /// Counts that it has given back something that it had changed.
    pub(crate) fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a row's queue goes on at this one's end, or when it takes changes back. False if
    /// it has ended, or taken some back since the look at the row that saw `releases`: the queue
    /// can go on.
    pub(crate) fn add_watch(&self, tree: TreeKey, key: &[u8], releases: u32) -> bool {
        let mut others = self.others.lock();
        // `take_watches` empties the list after the status, or the number, was set: a thread that
        // comes to the list later sees it.
        if self.is_ended() || self.releases() != releases {
            return false;
        }
        others.watches.push((tree, key.into()));
        true
    }

    /// Called when it has ended, or taken changes back.
    pub(crate) fn take_watches(&self) -> Vec<(TreeKey, Box<[u8]>)> {
        std::mem::take(&mut self.others.lock().watches)
    }

    pub(crate) fn wake_up(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }

    /// Sleeps until woken or `until`. Wakes may be stale: the caller checks what it waits for.
    pub(crate) fn sleep(&self, until: Instant) {
        let mut woken = self.woken.lock();
        while !*woken {
            if self.wake.wait_until(&mut woken, until).timed_out() {
                break;
            }
        }
        *woken = false;
    }
}
