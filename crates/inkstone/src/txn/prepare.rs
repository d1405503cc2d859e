//! The first phase of a commit in two: prepared transactions, and their XIDs.

use crate::debug::debug_as;
use crate::log::Claim;
use crate::mtr::Mtr;
use crate::mvcc::system::TrxState;
use crate::options::Durability;
use crate::paranoid::paranoid;
use crate::txn::core::Core;
use crate::txn::pending::PendingCommit;
use crate::txn::state::{HasChanged, Inner, Phase, Shared};
use crate::txn::transaction::{Transaction, finish_commit, rollback_all};
use crate::{Error, Result};
use inkstone_format::record::Record;
use inkstone_format::{Lsn, SpaceId};
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The longest XID, bytes: 128 as in XA, and what a coordinator may want to put before them.
pub const XID_LEN_MAX: usize = 140;

/// A prepared transaction. Dropping it leaves it prepared, without an owner.
pub struct Prepared {
    core: Arc<Core>,
    state: Arc<TrxState>,
    xid: Vec<u8>,
}

debug_as!(Prepared, "Prepared", |this| "xid" = this.xid);

impl Drop for Prepared {
    fn drop(&mut self) {
        self.state.set_owner(0);
    }
}

impl Prepared {
    /// Commits as [`Transaction::commit_deferred`] does. [`Error::NotFound`] if it has already been
    /// ended by its XID.
    pub fn commit_deferred(self, durability: Durability) -> Result<PendingCommit> {
        self.core.commit_prepared(&self.xid, durability)
    }

    /// Gives back rows and ranges that it has locked shared, and its gaps: others can write them
    /// now. It reads no more, so that such transactions are as serializable as before; one that
    /// commits meanwhile may have overwritten what this one has read, and commit first.
    pub fn release_shared_locks(&self) {
        let shared = self.core.prepared.lock().get(&self.xid).cloned();
        let Some(shared) = shared else {
            return;
        };
        let inner = shared.inner.lock();
        if inner.phase == Phase::Prepared && shared.state.id() == self.state.id() {
            self.core.locks.release_shared(&shared.state, &inner.held);
        }
    }

    /// Rolls it back, and waits for that as [`Transaction::commit`] does: by the option
    /// `flush_log_at_trx_commit`. At 1 it is durable: the XID is not there after a crash. At 2 it
    /// survives a killed process, at 0 perhaps neither: the XID may be prepared again, and is to be
    /// rolled back again. An error from waiting leaves the outcome to recovery.
    pub fn rollback(self) -> Result<()> {
        let durability = self.core.options.durability;
        self.core.rollback_prepared(&self.xid, durability)
    }
}

impl Transaction {
    /// Prepares the transaction under an XID (1 to 140 bytes): its changes are durable and
    /// locked, also over a restart, until the XID is committed or rolled back.
    /// [`Error::AlreadyExists`] if another prepared transaction has the XID. If it fails, the
    /// transaction is rolled back.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path();
    /// let db = Database::open(path, Options::default())?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"a", b"1")?;
    /// txn.prepare(b"branch-1")?;
    /// drop((table, db)); // the process ends; the coordinator decides later
    ///
    /// let db = Database::open(path, Options::default())?;
    /// assert_eq!(db.prepared_transactions(), [b"branch-1"]);
    /// db.commit_prepared(b"branch-1")?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// assert!(txn.get(&db.table("t")?, b"a")?.is_some());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn prepare(self, xid: &[u8]) -> Result<()> {
        self.prepare_with(xid, Durability::Sync).map(drop)
    }

    /// As [`prepare`](Self::prepare), waiting as `durability` says; and a handle for a caller that
    /// goes on with the transaction at once.
    pub fn prepare_with(self, xid: &[u8], durability: Durability) -> Result<Prepared> {
        if xid.is_empty() || xid.len() > XID_LEN_MAX {
            return Err(Error::InvalidOption {
                name: "xid".to_owned(),
                value: format!("{} bytes", xid.len()),
                reason: format!("an XID has 1 to {XID_LEN_MAX} bytes"),
            });
        }
        if self.changes() == 0 {
            // It may be the first that it logs.
            self.core.before_write()?;
        }
        let mut inner = self.active()?;
        self.settle_left_out(&mut inner)?;
        if self.shared.state.is_doomed() {
            self.roll_back(&mut inner)?;
            return Err(Error::Deadlock);
        }
        // Entered at once, so that of two that come with one XID only one gets through. A thread
        // that finds it there waits for our latch.
        match self.core.prepared.lock().entry(xid.to_vec()) {
            Entry::Vacant(entry) => entry.insert(self.shared.clone()),
            Entry::Occupied(_) => {
                let what = format!("prepared transaction {}", show_xid(xid));
                return Err(Error::AlreadyExists(what));
            }
        };
        let claim = Claim::of_commit(durability);
        let lsn = self.log_prepare(&mut inner, xid, claim)?;
        inner.phase = Phase::Prepared;
        inner.xid = Some(xid.to_vec());
        inner.snapshot = None;
        inner.statement = None;
        self.shared.state.set_prepared();
        drop(inner);
        let prepared = Prepared {
            core: self.core.clone(),
            state: self.shared.state.clone(),
            xid: xid.to_vec(),
        };
        self.core.wait_for_commit(lsn, durability)?;
        Ok(prepared)
    }

    fn log_prepare(&self, inner: &mut Inner, xid: &[u8], claim: Claim) -> Result<Lsn> {
        let (state, core) = (&self.shared.state, &self.core);
        paranoid!(
            inner.phase == Phase::Active && (inner.logged || inner.undo_count == 0),
            "{:?} is prepared in phase {:?}, with {} changes that the log does not know",
            state.id(),
            inner.phase,
            inner.undo_count
        );
        let mut mtr = Mtr::new(&core.storage);
        let xid = xid.to_vec();
        if inner.logged {
            let trx_slot = state.slot();
            mtr.note(&Record::Prepare { trx_slot, xid });
            return Ok(mtr.commit_with(claim, |_, _| {})?.1);
        }
        // The log does not know it yet: its whole undo, which is empty, names it and its XID.
        core.add_writer(&self.shared);
        mtr.note(&Record::UndoCopy {
            trx_slot: state.slot(),
            trx: state.id(),
            first: true,
            last: true,
            xid: Some(xid),
            entries: Vec::new(),
        });
        let (_, end) = mtr.commit_with(claim, |start, _| state.note_first_lsn(start))?;
        inner.logged = true;
        Ok(end)
    }
}

fn show_xid(xid: &[u8]) -> String {
    String::from_utf8_lossy(xid).into_owned()
}

impl Core {
    /// Whether a prepared transaction has changed rows of a tablespace, or one of an earlier run
    /// that is being rolled back.
    pub(crate) fn prepared_has_changed(&self, space: SpaceId) -> Result<HasChanged> {
        let mut found = HasChanged::No;
        let recovered = self.recovered.lock().clone();
        for shared in recovered {
            if shared.has_changed(self, space)? != HasChanged::No {
                found = HasChanged::Busy;
            }
        }
        let all: Vec<_> = self.prepared.lock().values().cloned().collect();
        for shared in all {
            // In the middle of a call: it is being prepared, committed, or rolled back. Its entry
            // stays until it has ended, so that the next look sees how it goes on.
            match shared.has_changed(self, space)? {
                HasChanged::Yes => return Ok(HasChanged::Yes),
                HasChanged::Busy => found = HasChanged::Busy,
                HasChanged::No => {}
            }
        }
        Ok(found)
    }

    /// Reads all that undoes prepared transactions and is not in the log. For `salvage`.
    pub(crate) fn read_prepared_undo(&self) -> Result<()> {
        let all: Vec<_> = self.prepared.lock().values().cloned().collect();
        for shared in all {
            let inner = shared.inner.lock();
            let undone = inner.undo_place.undone;
            self.versions.read_logged(&inner.touched, undone)?;
        }
        Ok(())
    }

    /// It stays entered until it has ended, and `prepared_has_changed` sees it to its end.
    fn find_prepared(&self, xid: &[u8]) -> Result<Arc<Shared>> {
        let shared = self.prepared.lock().get(xid).cloned();
        shared.ok_or_else(|| unknown_xid(xid))
    }

    /// It has ended, and its XID can be another's.
    fn forget_prepared(&self, xid: &[u8], ended: &Arc<Shared>) {
        let gone = self.prepared.lock().remove(xid);
        paranoid!(
            gone.is_some_and(|gone| Arc::ptr_eq(&gone, ended)),
            "the XID of {:?} was not entered, or is another's",
            ended.state.id()
        );
    }

    /// Commits a prepared transaction without waiting: see [`Transaction::commit_deferred`].
    pub fn commit_prepared(
        self: &Arc<Self>,
        xid: &[u8],
        durability: Durability,
    ) -> Result<PendingCommit> {
        self.storage.poison.check()?;
        let shared = self.find_prepared(xid)?;
        let mut inner = shared.inner.lock();
        // Another thread has ended it while we came: its entry may be another transaction's now.
        if inner.phase != Phase::Prepared {
            return Err(unknown_xid(xid));
        }
        if inner.xid.is_none() {
            return Err(Error::TransactionState(
                "being rolled back; roll it back again",
            ));
        }
        let lsn = finish_commit(self, &shared, &mut inner, durability)?;
        self.forget_prepared(xid, &shared);
        Ok(PendingCommit::new(self, lsn, durability))
    }

    /// Of a transaction whose undo has moved no record of its rollback tells that it began.
    fn log_unprepared(&self, shared: &Shared, inner: &Inner) -> Result<()> {
        paranoid!(
            inner.xid.is_none() && inner.logged,
            "{:?} is no longer prepared, and has XID {:x?}",
            shared.state.id(),
            inner.xid
        );
        if !inner.undo_place.is_moved() {
            return Ok(());
        }
        let mut mtr = Mtr::new(&self.storage);
        mtr.note(&Record::Prepare {
            trx_slot: shared.state.slot(),
            xid: Vec::new(),
        });
        mtr.commit().map(drop)
    }

    /// Rolls a prepared transaction back. If that fails in the middle it can only be called again:
    /// the transaction can no longer be committed, here or after a restart. Waits as `durability`
    /// says: until the end of the rollback is durable the XID comes back after a crash.
    pub fn rollback_prepared(self: &Arc<Self>, xid: &[u8], durability: Durability) -> Result<()> {
        self.storage.poison.check()?;
        let shared = self.find_prepared(xid)?;
        let mut inner = shared.inner.lock();
        if inner.phase != Phase::Prepared {
            return Err(unknown_xid(xid));
        }
        inner.xid = None;
        self.log_unprepared(&shared, &inner)?;
        let claim = Claim::of_commit(durability);
        let lsn = rollback_all(self, &shared, &mut inner, claim)?;
        self.forget_prepared(xid, &shared);
        drop(inner);
        self.wait_for_commit(lsn, durability)
    }
}

fn unknown_xid(xid: &[u8]) -> Error {
    Error::NotFound(format!("prepared transaction {}", show_xid(xid)))
}
