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
use crate::debug::debug_as;
use crate::log::Claim;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::interrupt::Interrupt;
use crate::mvcc::isolation::Isolation;
use crate::mvcc::system::{Details, Holder, HolderPart, Snapshot};
use crate::options::Durability;
use crate::paranoid::{CheckedGuard, paranoid};
use crate::sync::{Instant, Mutex, thread};
use crate::txn::core::Core;
use crate::txn::pending::PendingCommit;
use crate::txn::rollback::undo_until;
use crate::txn::state::{Inner, Phase, Shared};
use crate::{Error, Result};
use inkstone_format::catalog::CATALOG_SPACE;
use inkstone_format::record::Record;
use inkstone_format::{Lsn, SpaceId, VersionAddress};
use std::sync::Arc;
use std::time::Duration;

/// A transaction in progress. Dropping it rolls it back.
///
/// It may go from thread to thread, and its calls may come from several. But what takes several
/// changes as one statement ([`statement`](Self::statement), and writes to typed tables) is for
/// one thread at a time: where it fails, it undoes what other threads have done meanwhile.
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
    begun: Option<Instant>,
    isolation: Isolation,
    pub(crate) interrupt: Option<Interrupt>,
    lock_wait_timeout: Mutex<Duration>,
}

debug_as!(
    Transaction,
    "Transaction",
    |this| "id" = this.id(),
    "isolation" = this.isolation
);

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
        let mut begun = None;
        state.set_details(|details| {
            begun = Some(Instant::now());
            details.begun = begun;
            details.isolation = isolation;
            details.thread = Some(thread::current());
        });
        Ok(Self {
            core: core.clone(),
            shared: Shared::new(state),
            begun,
            isolation,
            interrupt: None,
            lock_wait_timeout: Mutex::new(core.options.lock_wait_timeout),
        })
    }

    /// Its id.
    pub fn id(&self) -> inkstone_format::TrxId {
        self.shared.state.id()
    }

    /// As the snapshots that it takes know it.
    fn holder(&self) -> Holder {
        Holder {
            trx: self.id(),
            begun: self.begun,
        }
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

    /// How long its statements wait for a row lock; at first the option `lock_wait_timeout_ms`, by
    /// default 5 seconds.
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
        Ok(self.snapshot_of(&mut inner, HolderPart::Own).seq())
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
            &*snapshot
                .get_or_insert_with(|| self.core.trxs.snapshot_for(self.holder(), HolderPart::Own))
        })
    }

    /// The snapshot for a call, or for a cursor.
    pub(crate) fn snapshot_of(&self, inner: &mut Inner, of: HolderPart) -> Snapshot {
        match self.kept_snapshot(inner) {
            Some(snapshot) => snapshot.clone_for(of),
            None => self.core.trxs.snapshot_for(self.holder(), of),
        }
    }

    /// A snapshot of what is committed now, for what outlives a call.
    pub(crate) fn own_snapshot(&self) -> Snapshot {
        self.core.trxs.snapshot_for(self.holder(), HolderPart::Own)
    }

    /// Makes sure that a transaction whose writes are compared with its snapshot has one before it
    /// writes.
    pub(crate) fn pin_snapshot(&self, inner: &mut Inner) {
        if self.isolation.first_committer_wins() && inner.snapshot.is_none() {
            inner.snapshot = Some(self.core.trxs.snapshot_for(self.holder(), HolderPart::Own));
        }
    }

    /// Whether a statement has failed with an error that [`is_retryable`](Error::is_retryable),
    /// whatever the program has made of it.
    pub(crate) fn had_conflict(&self) -> bool {
        self.shared.inner.lock().had_conflict
    }

    /// Whether it has ended, as a deadlock's victim has.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.inner.lock().phase == Phase::Ended
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
        inner.had_conflict |= result.as_ref().is_err_and(Error::is_retryable);
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

    /// Commits without waiting: the order of commits is the order of these calls, and other
    /// transactions see the changes. What is returned is a future, and has
    /// [`PendingCommit::wait`] for threads: both wait for durability.
    pub fn commit_deferred(self, durability: Durability) -> Result<PendingCommit> {
        let lsn = self.finish(durability)?;
        Ok(PendingCommit::new(&self.core, lsn, durability))
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
