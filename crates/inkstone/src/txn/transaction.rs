//! A transaction: begin, commit, rollback.
//!
//! # Promises
//!
//! 1. Every change is made by one mini-transaction that changes the row and says how to undo it.
//!    Its version entry exists before the row points to it. Tested by `transfers_keep_the_sum`,
//!    `nothing_acknowledged_is_lost_in_a_crash`.
//! 2. Commit: the commit record is appended, then the transaction becomes visible, then (by
//!    durability) the log is written and synced. A transaction that has seen another one's changes
//!    has its commit record behind that one's: what survives a crash is a prefix. Tested by
//!    `lazy_leaves_a_prefix`,
//!    `write_survives_a_killed_process_and_leaves_a_prefix_after_power_loss`. Tested by the
//!    simulator (`log-unsynced`).
//! 3. Rollback undoes the changes in reverse order, each with a compensation record, so that a
//!    crash in the middle of it goes on where it was. Tested by `savepoints_against_a_model`,
//!    `a_crash_in_the_middle_of_a_large_transaction`. Tested by the simulator (`undo-skips-first`).
//! 4. Whatever ends a transaction releases its locks, its versions and its place in the log. Tested
//!    by `transfers_keep_the_sum`, `oldest_first_lsn_counts_writers_only`,
//!    `versions_beyond_their_memory_go_to_a_file_and_come_back`.
//!
//! Latch: `Shared::inner`, one for each transaction, taken before any page latch; its only other
//! taker is the checkpoint that moves, or saves, the undo of a transaction (`undo_place`). What is
//! saved is written without it.

use crate::counters::Counter;
use crate::locks::HeldLocks;
use crate::log::Claim;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::interrupt::Interrupt;
use crate::mvcc::isolation::Isolation;
use crate::mvcc::system::{Details, Snapshot, TrxState};
use crate::mvcc::versions::{NewVersion, TouchedSegments};
use crate::options::Durability;
use crate::paranoid::{Check, Checked, CheckedGuard, MANY, paranoid};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Instant, Mutex, OnceLock};
use crate::txn::core::Core;
use crate::txn::left_out::LeftOut;
use crate::txn::promise::LogPromise;
use crate::txn::rollback::undo_until;
use crate::txn::savepoints::{Place, Savepoint};
use crate::txn::undo_place::{HandedOver, UndoPlace};
use crate::{Error, Result};
use inkstone_format::catalog::CATALOG_SPACE;
use inkstone_format::record::{CONTEXT_CHAIN_MAX, Context, LoggedVersion, Record, TrxRef};
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::version::version_bytes;
use inkstone_format::{Lsn, PageNo, SpaceId, TreeId, VersionAddress};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Where in its life a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Active,
    Prepared,
    /// Undoing failed (a full disk, a page that cannot be read): purge tries again.
    RollingBack,
    Ended,
}

/// How long a call is waited for whose transaction may have changed a tablespace.
pub const LOOK_TIME_MAX: Duration = Duration::from_secs(10);

/// Whether a transaction has unfinished changes in a tablespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HasChanged {
    /// It has.
    Yes,
    /// It has none.
    No,
    /// It is in the middle of a call: a later look will tell.
    Busy,
}

impl From<bool> for HasChanged {
    fn from(it_has: bool) -> Self {
        if it_has { Self::Yes } else { Self::No }
    }
}

/// What the transaction's handle, the checkpoint and recovery share of it.
pub struct Shared {
    /// What other transactions see.
    pub state: Arc<TrxState>,
    pub(crate) inner: Checked<Inner>,
    /// What the checkpoint has saved of its undo, and the log does not name yet.
    pub(crate) handed_over: Mutex<HandedOver>,
    /// Bytes of its versions that are not saved, for a look without its latch.
    pub(crate) unsaved_undo: AtomicU64,
    /// Of a transaction of an earlier run: where it has changed rows, once that was read.
    recovered_spaces: OnceLock<BTreeSet<SpaceId>>,
}

/// Many rows that a statement inserts into one tree, with one version for all of them.
#[derive(Debug)]
pub(crate) struct Bulk {
    pub space: SpaceId,
    pub tree: TreeId,
    /// Rows of keys below this are no part of it.
    pub from: Vec<u8>,
    /// Their version; none before the transaction's first record.
    pub address: Option<VersionAddress>,
    /// The log may lack them from now on.
    pub is_unlogged: bool,
}

/// A transaction's own state.
pub(crate) struct Inner {
    pub phase: Phase,
    pub snapshot: Option<Snapshot>,
    /// Its latest version entry; 0 for none.
    pub undo_last: VersionAddress,
    /// Changes made and not undone: the length of the chain from `undo_last` back.
    pub undo_count: u64,
    /// The log space that is there for its rollback.
    pub promise: LogPromise,
    pub touched: TouchedSegments,
    pub held: HeldLocks,
    /// Whether its first record is in the log.
    pub logged: bool,
    pub context: Context,
    context_chain: u32,
    context_from: Lsn,
    pub savepoints: Vec<Savepoint>,
    /// Where the statement that goes on began. At read committed `snapshot` is that statement's.
    pub statement: Option<Place>,
    /// Tables whose statement lock it has.
    pub statement_locks: Vec<SpaceId>,
    /// Trees of which a bulk insert is going on: until the next place to go back to.
    pub bulks: Vec<Bulk>,
    /// What the log lacks of them, and of those that have ended.
    pub left_out: LeftOut,
    /// Where the last insert went: the next one often goes beside it.
    pub last_insert: Option<(SpaceId, TreeId, PageNo, u16)>,
    pub xid: Option<Vec<u8>>,
    /// Whether the database itself has begun it.
    pub is_own: bool,
    /// Where its undo is.
    pub undo_place: UndoPlace,
    /// Tablespaces whose long values are to be looked through if something was undone.
    pub long_values: Vec<SpaceId>,
    /// Whether there may be long values that no row refers to: a statement failed or was undone.
    pub orphans: bool,
    /// Tablespaces whose files are no longer needed once it has committed.
    pub files_deleted: Vec<SpaceId>,
}

impl Inner {
    fn new() -> Self {
        Self {
            phase: Phase::Active,
            snapshot: None,
            undo_last: VersionAddress(0),
            undo_count: 0,
            promise: LogPromise::default(),
            touched: TouchedSegments::default(),
            held: HeldLocks::default(),
            logged: false,
            context: Context::default(),
            context_chain: 0,
            context_from: Lsn(0),
            savepoints: Vec::new(),
            statement: None,
            statement_locks: Vec::new(),
            bulks: Vec::new(),
            left_out: LeftOut::default(),
            last_insert: None,
            xid: None,
            is_own: false,
            undo_place: UndoPlace::default(),
            long_values: Vec::new(),
            orphans: false,
            files_deleted: Vec::new(),
        }
    }
}

impl Check for Inner {
    fn check(&self) {
        match self.phase {
            Phase::Active => self.check_active(),
            Phase::Prepared => paranoid!(
                self.logged && self.snapshot.is_none() && self.statement.is_none(),
                "prepared, logged: {}, and reads still",
                self.logged
            ),
            // It gives back what it has step by step, and may not have come to an end.
            Phase::RollingBack => {}
            Phase::Ended => {
                paranoid!(
                    self.held.is_empty() && self.touched.is_empty(),
                    "over, with locks or versions"
                );
                paranoid!(
                    self.snapshot.is_none() && self.promise.need() == 0,
                    "over, with a snapshot or a promise of {} bytes",
                    self.promise.need()
                );
            }
        }
        self.promise.check();
        for bulk in &self.bulks {
            paranoid!(
                bulk.address.is_none() || self.undo_place.is_moved(),
                "a bulk insert with undo in the log: {bulk:?}"
            );
        }
        paranoid!(
            self.context_chain <= CONTEXT_CHAIN_MAX,
            "{} inserts coded against each other",
            self.context_chain
        );
        paranoid!(
            self.xid.is_none() || matches!(self.phase, Phase::Prepared | Phase::Ended),
            "an XID in phase {:?}",
            self.phase
        );
    }
}

impl Inner {
    fn check_active(&self) {
        paranoid!(
            self.undo_count == 0 || self.undo_last != VersionAddress(0),
            "{} changes to undo, and no version",
            self.undo_count
        );
        paranoid!(
            self.undo_last == VersionAddress(0) || !self.touched.is_empty(),
            "version {} in no segment",
            self.undo_last
        );
        paranoid!(
            self.statement_locks.is_empty() || !self.held.is_empty(),
            "{} statement locks are noted nowhere",
            self.statement_locks.len()
        );
        if let Some((last, others)) = self.statement_locks.split_last() {
            let mut others = others.iter().rev().take(MANY);
            paranoid!(
                others.all(|other| other != last),
                "two statement locks of {last:?}"
            );
        }
        if let Some((last, others)) = self.savepoints.split_last() {
            let mut others = others.iter().rev().take(MANY);
            paranoid!(
                others.all(|other| !other.has_name_of(last)),
                "two savepoints of one name: {last:?}"
            );
        }
    }
}

impl Shared {
    /// A transaction that has done nothing.
    pub(crate) fn new(state: Arc<TrxState>) -> Arc<Self> {
        Arc::new(Self {
            state,
            inner: Checked::new(Inner::new()),
            handed_over: Mutex::default(),
            unsaved_undo: AtomicU64::new(0),
            recovered_spaces: OnceLock::new(),
        })
    }

    /// Whether it has unfinished changes in a tablespace.
    pub fn has_changed(&self, core: &Core, space: SpaceId) -> Result<HasChanged> {
        // Also while it is being rolled back.
        let recovered = self.recovered_spaces.get();
        if recovered.is_some_and(|spaces| !spaces.contains(&space)) {
            return Ok(HasChanged::No);
        }
        let Some(inner) = self.inner.try_lock() else {
            return Ok(HasChanged::Busy);
        };
        // Its versions are no longer its own, and may be gone.
        if inner.phase == Phase::Ended {
            return Ok(HasChanged::No);
        }
        if inner.undo_place.is_recovered {
            let is_there = self.recovered_spaces(core, &inner)?.contains(&space);
            return Ok(HasChanged::from(is_there));
        }
        for entry in core
            .versions
            .undo_entries(inner.undo_last, VersionAddress(0))
        {
            if entry?.1.view().space == space {
                return Ok(HasChanged::Yes);
            }
        }
        Ok(HasChanged::No)
    }

    /// The tablespaces in which an earlier run has made its changes. They are read of its undo
    /// once: it gets no more.
    pub(crate) fn recovered_spaces(
        &self,
        core: &Core,
        inner: &Inner,
    ) -> Result<&BTreeSet<SpaceId>> {
        paranoid!(
            inner.undo_place.is_recovered,
            "{:?} is of this run",
            self.state.id()
        );
        if let Some(spaces) = self.recovered_spaces.get() {
            return Ok(spaces);
        }
        let go_on = || core.check_stopping();
        let spaces = core.versions.spaces_logged(&inner.touched, &go_on)?;
        Ok(self.recovered_spaces.get_or_init(|| spaces))
    }

    /// What a row record says of the transaction, and of the version that it makes.
    pub(crate) fn trx_ref(
        &self,
        inner: &Inner,
        address: VersionAddress,
        previous: Option<VersionAddress>,
    ) -> TrxRef {
        paranoid!(
            !inner.undo_place.is_moved() || address.is_logged(),
            "undo has moved, and a record names version {address}"
        );
        let previous = previous.filter(|previous| previous.is_logged());
        let version = LoggedVersion {
            address,
            previous: previous.unwrap_or_default(),
        };
        TrxRef {
            slot: self.state.slot(),
            first: (!inner.logged).then(|| self.state.id()),
            version: inner.undo_place.is_moved().then_some(version),
        }
    }
}

/// A transaction in progress. Dropping it rolls it back.
///
/// ```
/// use inkstone::{Database, Durability, Isolation, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = Database::open(dir.path(), Options::default())?;
/// # let table = db.create_table("t", &[])?;
/// let txn = db.begin(Isolation::RepeatableRead)?;
/// txn.insert(&table, b"a", b"1")?;
/// txn.commit_with(Durability::Write)?; // written, not synced
///
/// let forgotten = db.begin(Isolation::RepeatableRead)?;
/// forgotten.delete(&table, b"a")?;
/// drop(forgotten);
/// let txn = db.begin(Isolation::ReadCommitted)?;
/// assert!(txn.get(&table, b"a")?.is_some());
/// # Ok::<(), inkstone::Error>(())
/// ```
pub struct Transaction {
    pub(crate) core: Arc<Core>,
    pub(crate) shared: Arc<Shared>,
    isolation: Isolation,
    pub(crate) interrupt: Option<Interrupt>,
    lock_wait_timeout: Mutex<Duration>,
}

/// How long a transaction of the database's own waits for a row lock. They are all short.
const OWN_LOCK_WAIT_TIMEOUT: Duration = Duration::from_secs(60);

impl Transaction {
    /// Begins one of the database's own, which reads the catalog, say: the counter of rollbacks
    /// leaves it out, and it waits for others of its kind however short a statement may wait.
    pub(crate) fn begin_own(core: &Arc<Core>, isolation: Isolation) -> Result<Self> {
        let transaction = Self::begin(core, isolation)?;
        transaction.set_lock_wait_timeout(OWN_LOCK_WAIT_TIMEOUT);
        transaction.shared.inner.lock().is_own = true;
        Ok(transaction)
    }

    /// Begins.
    pub(crate) fn begin(core: &Arc<Core>, isolation: Isolation) -> Result<Self> {
        core.storage.poison.check()?;
        let state = core
            .trxs
            .try_begin(core.trxs.next_trx_id())
            .ok_or(Error::TooManyTransactions)?;
        state.set_patient(!core.options.lock_wait_timeout.is_zero());
        state.set_details(|details| {
            details.begun = Some(Instant::now());
            details.isolation = isolation;
        });
        Ok(Self {
            core: core.clone(),
            shared: Shared::new(state),
            isolation,
            interrupt: None,
            lock_wait_timeout: Mutex::new(core.options.lock_wait_timeout),
        })
    }

    /// Its id.
    pub fn id(&self) -> inkstone_format::TrxId {
        self.shared.state.id()
    }

    /// Its isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Has its statements interrupted by `interrupt`. To be called before the first of them.
    pub fn set_interrupt(&mut self, interrupt: &Interrupt) {
        self.interrupt = Some(interrupt.clone());
        let interrupt = interrupt.clone();
        self.change_details(|details| details.interrupt = Some(interrupt));
    }

    /// In a forked child nothing: a thread of the parent that looks at the transaction may have its
    /// latch.
    fn change_details(&self, change: impl FnOnce(&mut Details)) {
        if !self.core.storage.poison.is_forked() {
            self.shared.state.set_details(change);
        }
    }

    /// A number of the caller's, such as a connection's:
    /// [`Database::transactions`](crate::Database::transactions) and accounts of deadlocks show it.
    pub fn set_tag(&self, tag: u64) {
        self.change_details(|details| details.tag = tag);
    }

    /// The owner that [`LockWaitHooks`](crate::LockWaitHooks) are told of: a number of the
    /// caller's, or an address; at first 0, for none. When this returns, no hook is using the
    /// former owner. A transaction that goes on without its handle (prepared, or rolled back in the
    /// background) has none.
    pub fn set_owner(&self, owner: usize) {
        if !self.core.storage.poison.is_forked() {
            self.shared.state.set_owner(owner);
        }
    }

    /// How long its statements wait for a row lock; at first the option `lock_wait_timeout_ms`.
    /// With zero a statement that would wait fails at once, and is part of no deadlock.
    pub fn set_lock_wait_timeout(&self, timeout: Duration) {
        self.shared.state.set_patient(!timeout.is_zero());
        *self.lock_wait_timeout.lock() = timeout;
    }

    pub(crate) fn deadline(&self) -> Instant {
        // As good as never: `Instant` has an end.
        const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        Instant::now() + (*self.lock_wait_timeout.lock()).min(LONGEST)
    }

    /// Row changes made so far, of secondary trees and of long values too. Changes that were undone
    /// count as well.
    pub fn changes(&self) -> u64 {
        self.shared.state.weight()
    }

    /// Takes the snapshot now instead of at the first read.
    pub fn take_snapshot(&self) -> Result<()> {
        self.keep_snapshot().map(drop)
    }

    /// As [`Transaction::take_snapshot`]; its number.
    pub(crate) fn keep_snapshot(&self) -> Result<u64> {
        let mut inner = self.active()?;
        Ok(self.snapshot_of(&mut inner).seq())
    }

    /// The inner state of a transaction that may still work.
    pub(crate) fn active(&self) -> Result<CheckedGuard<'_, Inner>> {
        self.core.storage.poison.check()?;
        self.latch_active()
    }

    /// As [`Transaction::active`], behind a look at the poison.
    #[inline]
    pub(crate) fn latch_active(&self) -> Result<CheckedGuard<'_, Inner>> {
        let inner = self.shared.inner.lock();
        match inner.phase {
            Phase::Active => Ok(inner),
            Phase::Prepared => Err(Error::TransactionState(
                "prepared; commit it or roll it back by its XID",
            )),
            Phase::RollingBack => Err(Error::TransactionState(
                "being rolled back, as a change could not be undone; begin a new one",
            )),
            Phase::Ended => Err(Error::TransactionState("over; begin a new one")),
        }
    }

    /// The snapshot that the transaction, or its statement, reads with: taken now if it has none
    /// yet. `None`: each call takes one of its own.
    pub(crate) fn kept_snapshot<'i>(&self, inner: &'i mut Inner) -> Option<&'i Snapshot> {
        let kept = self.isolation.keeps_snapshot()
            || inner.statement.is_some() && !self.isolation.locks_reads();
        kept.then(|| {
            let snapshot = &mut inner.snapshot;
            &*snapshot.get_or_insert_with(|| self.core.trxs.snapshot())
        })
    }

    /// The snapshot for a call.
    pub(crate) fn snapshot_of(&self, inner: &mut Inner) -> Snapshot {
        match self.kept_snapshot(inner) {
            Some(snapshot) => snapshot.clone(),
            None => self.core.trxs.snapshot(),
        }
    }

    /// Makes sure that a transaction whose writes are compared with its snapshot has one before it
    /// writes.
    pub(crate) fn pin_snapshot(&self, inner: &mut Inner) {
        if self.isolation.first_committer_wins() && inner.snapshot.is_none() {
            inner.snapshot = Some(self.core.trxs.snapshot());
        }
    }

    /// Fails if the transaction was interrupted.
    pub(crate) fn check_interrupt(&self) -> Result<()> {
        self.interrupt.as_ref().map_or(Ok(()), Interrupt::check)
    }

    /// After a failed statement: a deadlock's victim is rolled back at once.
    pub(crate) fn after_error<T>(
        &self,
        mut inner: CheckedGuard<'_, Inner>,
        result: Result<T>,
    ) -> Result<T> {
        if matches!(result, Err(Error::Deadlock)) {
            self.roll_back(&mut inner)?;
        }
        result
    }

    /// Rolls back, or leaves that to purge if it fails: then too the transaction is over for its
    /// owner.
    pub(crate) fn roll_back(&self, inner: &mut Inner) -> Result<()> {
        paranoid!(
            inner.phase == Phase::Active,
            "{:?} is rolled back in phase {:?}",
            self.id(),
            inner.phase
        );
        self.release_statement_locks(inner);
        let result = rollback_all(&self.core, &self.shared, inner, Claim::WhenDue);
        if result.is_err() {
            self.leave_to_purge(inner);
        }
        result.map(drop)
    }

    pub(crate) fn leave_to_purge(&self, inner: &mut Inner) {
        paranoid!(
            inner.phase == Phase::Active,
            "{:?} is left to purge in phase {:?}",
            self.id(),
            inner.phase
        );
        inner.phase = Phase::RollingBack;
        self.shared.state.set_owner(0);
        self.core.unfinished.lock().push(self.shared.clone());
    }

    /// Has the commit say in the log that a tablespace's file is no longer needed: both are there
    /// after a crash, or neither is.
    pub(crate) fn delete_file(&self, space: SpaceId) -> Result<()> {
        paranoid!(
            space != CATALOG_SPACE,
            "the file of the catalog is to be deleted"
        );
        self.active()?.files_deleted.push(space);
        Ok(())
    }

    /// Commits with the database's durability.
    pub fn commit(self) -> Result<()> {
        let durability = self.core.options.durability;
        self.commit_with(durability)
    }

    /// Commits, waiting as `durability` says. An error from waiting (the engine is poisoned) leaves
    /// the outcome to recovery. [`Error::Deadlock`]: it had been chosen as a victim, and is rolled
    /// back.
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        let lsn = self.finish(durability)?;
        self.core.wait_for_commit(lsn, durability)
    }

    /// Commits without waiting: the order of commits is the order of these calls, other
    /// transactions see the changes, and [`PendingCommit::wait`] waits for durability.
    pub fn commit_deferred(self, durability: Durability) -> Result<PendingCommit> {
        let lsn = self.finish(durability)?;
        let core = self.core.clone();
        Ok(PendingCommit { core, lsn })
    }

    /// Makes the changes visible; the end of the commit record.
    fn finish(&self, durability: Durability) -> Result<Lsn> {
        let mut inner = self.active()?;
        self.settle_left_out(&mut inner)?;
        if self.shared.state.is_doomed() {
            self.roll_back(&mut inner)?;
            return Err(Error::Deadlock);
        }
        finish_commit(&self.core, &self.shared, &mut inner, durability)
    }

    /// Rolls back. If that fails (a full disk, a page that cannot be read) it is tried again in the
    /// background; until then the transaction's rows stay locked.
    pub fn rollback(self) -> Result<()> {
        let mut inner = self.active()?;
        self.roll_back(&mut inner)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.core.storage.poison.is_forked() {
            // It is the parent's, with all that it holds.
            std::mem::forget((self.core.clone(), self.shared.clone()));
            return;
        }
        let mut inner = self.shared.inner.lock();
        if inner.phase == Phase::Active {
            // A failure is purge's to mend, or has poisoned the engine.
            let _ = self.roll_back(&mut inner);
        }
    }
}

/// A commit that is visible, and durable once `wait` has returned.
pub struct PendingCommit {
    pub(crate) core: Arc<Core>,
    pub(crate) lsn: Lsn,
}

impl PendingCommit {
    /// Waits as `durability` says.
    pub fn wait(self, durability: Durability) -> Result<()> {
        self.core.wait_for_commit(self.lsn, durability)
    }

    /// End of the commit record in the log; 0 if the transaction changed nothing.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }
}

pub(crate) fn finish_commit(
    core: &Arc<Core>,
    shared: &Shared,
    inner: &mut Inner,
    durability: Durability,
) -> Result<Lsn> {
    paranoid!(
        matches!(inner.phase, Phase::Active | Phase::Prepared),
        "commit of {:?} in phase {:?}",
        shared.state.id(),
        inner.phase
    );
    inner.left_out.check_settled(core);
    let mut lsn = Lsn(0);
    if inner.logged {
        let mut mtr = Mtr::new(&core.storage);
        for &space in &inner.files_deleted {
            mtr.note(&Record::FileDelete { space });
        }
        mtr.note(&Record::Commit {
            trx_slot: shared.state.slot(),
        });
        lsn = mtr.commit_with(Claim::of_commit(durability), |_, _| {})?.1;
        core.remove_writer(&shared.state);
    }
    let seq = core.trxs.finish_commit(&shared.state);
    end(core, shared, inner, seq);
    if inner.orphans {
        core.pending_free.lock().extend(inner.long_values.drain(..));
    }
    core.storage.counters.add(Counter::Commits, 1);
    Ok(lsn)
}

fn end(core: &Core, shared: &Shared, inner: &mut Inner, seq: u64) {
    paranoid!(
        inner.phase != Phase::Ended && seq > 0,
        "{:?} ends again, with number {seq}",
        shared.state.id()
    );
    inner.phase = Phase::Ended;
    inner.left_out.end(core);
    inner.promise.end(core);
    core.forget_saved(shared, inner);
    core.locks.release_all(&shared.state, &mut inner.held);
    core.versions
        .finish(std::mem::take(&mut inner.touched), seq);
    inner.snapshot = None;
}

/// Rolls the whole transaction back and ends it; the end of the record that says so, 0 if the log
/// does not know the transaction.
pub(crate) fn rollback_all(
    core: &Arc<Core>,
    shared: &Shared,
    inner: &mut Inner,
    claim: Claim,
) -> Result<Lsn> {
    let mut lsn = Lsn(0);
    if inner.logged {
        if inner.undo_place.is_recovered {
            core.undo_moved(shared, inner)?;
        } else {
            undo_until(core, shared, inner, VersionAddress(0))?;
            paranoid!(
                inner.undo_last == VersionAddress(0) || mutants::on(Mutant::UndoSkipsFirst),
                "{:?} is rolled back down to version {}",
                shared.state.id(),
                inner.undo_last
            );
        }
        let mut mtr = Mtr::new(&core.storage);
        mtr.note(&Record::RollbackEnd {
            trx_slot: shared.state.slot(),
        });
        lsn = mtr.commit_with(claim, |_, _| {})?.1;
        core.remove_writer(&shared.state);
    } else {
        // A first change that the log has not taken is on its page and cannot be undone: it must
        // not pass for undone with threads that looked at the poison before it was set.
        core.storage.poison.check()?;
    }
    let seq = core.trxs.finish_abort(&shared.state);
    end(core, shared, inner, seq);
    core.pending_free.lock().extend(inner.long_values.drain(..));
    if !inner.is_own {
        core.storage.counters.add(Counter::Rollbacks, 1);
    }
    Ok(lsn)
}

impl Core {
    /// Tries again to roll back transactions whose rollback failed.
    pub(crate) fn finish_rollbacks(self: &Arc<Self>) -> Result<()> {
        self.roll_back_each(&self.unfinished)
    }

    /// Rolls back the transactions of an earlier run that have undo of their own. After an error,
    /// also of damaged undo, they stay as they are, and it can be called again: a read that was
    /// wrong poisons nothing.
    pub(crate) fn finish_recovered(self: &Arc<Self>) -> Result<()> {
        self.roll_back_each(&self.recovered)
    }

    /// Changes of those that are still to be undone, about.
    pub(crate) fn changes_to_undo(&self) -> u64 {
        let all = self.recovered.lock();
        all.iter().map(|shared| shared.state.weight()).sum()
    }

    fn roll_back_each(self: &Arc<Self>, waiting: &Mutex<Vec<Arc<Shared>>>) -> Result<()> {
        // The newest first: an older one may wait for its pages.
        let all = waiting.lock().clone();
        let mut failed = None;
        for shared in all.iter().rev() {
            let mut inner = shared.inner.lock();
            // Two threads may be at it.
            let result = match inner.phase {
                Phase::Ended => Ok(()),
                _ => rollback_all(self, shared, &mut inner, Claim::WhenDue).map(drop),
            };
            drop(inner);
            match result {
                Ok(()) => waiting.lock().retain(|other| !Arc::ptr_eq(other, shared)),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A row change that is about to be made: what its version entry and its log record need.
pub(crate) struct Change<'a> {
    pub core: &'a Arc<Core>,
    pub shared: &'a Arc<Shared>,
    pub inner: &'a mut Inner,
}

/// A change that is in its mini-transaction, which is to commit.
pub(crate) struct Made {
    /// Its version entry.
    pub address: VersionAddress,
    pub tree: TreeId,
    /// Rows changed.
    pub rows: u64,
    /// A bound of the log that undoing them takes.
    pub undo_bytes: u64,
    pub coding: Coding,
    /// The version is that of a bulk insert, which was there before.
    pub is_of_bulk: bool,
}

/// How a change's record stands to the transaction's inserts, which are coded against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// It is none of them.
    Apart,
    /// An insert that stands for itself; later ones are coded against it.
    InFull,
    /// An insert that is coded against those before it.
    InContext,
}

impl Change<'_> {
    /// Stores the before-image. To be called last before the page is changed.
    pub fn version(&mut self, version: NewVersion<'_>) -> Result<VersionAddress> {
        paranoid!(
            version.undo_previous == self.inner.undo_last,
            "a version after {}, and the last one is {}",
            version.undo_previous,
            self.inner.undo_last
        );
        // Of a table's trees the first has its rows.
        if version.tree == CLUSTERED_TREE {
            self.shared.state.add_cost();
        }
        let bytes = version_bytes(version.key.len(), version.old_value.len());
        self.inner.undo_place.add(bytes as u64, self.shared);
        let Inner { touched, .. } = &mut *self.inner;
        let address = (self.core.versions).append(&self.shared.state, touched, version)?;
        self.core.versions.list_milestone(&version, address);
        Ok(address)
    }

    /// Readies the context for one more contextual insert: a full record from time to time, so
    /// that decoding never has to begin far back. How the insert is to be coded.
    pub fn ready_context(&mut self) -> Coding {
        let reach = self
            .core
            .storage
            .log
            .current_lsn()
            .0
            .saturating_sub(self.inner.context_from.0);
        if self.inner.context_chain >= CONTEXT_CHAIN_MAX
            || reach > self.core.storage.log.context_reach() / 2
        {
            self.inner.context.clear();
        }
        if self.inner.context.is_known() && self.inner.logged {
            Coding::InContext
        } else {
            Coding::InFull
        }
    }

    /// Commits the mini-transaction that made the change.
    pub fn commit(self, mtr: Mtr<'_>, made: Made) -> Result<()> {
        let Self {
            core,
            shared,
            inner,
        } = self;
        paranoid!(
            inner.phase == Phase::Active,
            "{:?} changes rows in phase {:?}",
            shared.state.id(),
            inner.phase
        );
        paranoid!(
            made.address != VersionAddress(0) && made.rows > 0,
            "{} rows changed, the last one's version {}",
            made.rows,
            made.address
        );
        let first = !inner.logged;
        if first {
            core.add_writer(shared);
        }
        let chain_from = inner.context_from;
        let (start, _) = mtr.commit_with(Claim::WhenDue, |start, _| {
            shared.state.note_first_lsn(start);
            if made.coding == Coding::InContext {
                core.note_context(start, chain_from);
            }
        })?;
        match made.coding {
            Coding::InFull => (inner.context_from, inner.context_chain) = (start, 0),
            Coding::InContext => inner.context_chain += 1,
            Coding::Apart => {}
        }
        inner.logged = true;
        if !made.is_of_bulk {
            inner.undo_last = made.address;
        }
        inner.undo_count += made.rows;
        inner.promise.add(made.undo_bytes);
        shared.state.add_weight(made.rows);
        if made.tree == CLUSTERED_TREE {
            shared.state.add_rows(made.rows);
        }
        Ok(())
    }
}
