//! What a transaction has: its own state, under its latch, and what its handle, the checkpoint and
//! recovery share of it.

use crate::Result;
use crate::locks::HeldLocks;
use crate::mvcc::system::{Snapshot, TrxState};
use crate::mvcc::versions::TouchedSegments;
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::sync::atomic::AtomicU64;
use crate::sync::{Mutex, OnceLock};
use crate::txn::core::Core;
use crate::txn::left_out::LeftOut;
use crate::txn::promise::LogPromise;
use crate::txn::savepoints::{ClosureStatement, Place, Savepoint};
use crate::txn::undo_place::{HandedOver, UndoPlace};
use inkstone_format::record::{CONTEXT_CHAIN_MAX, Context, LoggedVersion, TrxRef};
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
    pub context_chain: u32,
    pub context_from: Lsn,
    pub savepoints: Vec<Savepoint>,
    /// Where the statement that goes on began. At read committed `snapshot` is that statement's.
    pub statement: Option<Place>,
    /// Statements that are closures and go on, one within the other.
    pub closures: Vec<ClosureStatement>,
    /// The latest number of a savepoint or closure.
    pub numbers: u64,
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
    /// Whether a statement has failed as another transaction came first.
    pub had_conflict: bool,
    /// The number of the thread that merges: its changes commute with those of others
    /// (`rows/merging.rs`).
    pub passes_over: Option<usize>,
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
            closures: Vec::new(),
            numbers: 0,
            statement_locks: Vec::new(),
            bulks: Vec::new(),
            left_out: LeftOut::default(),
            last_insert: None,
            xid: None,
            is_own: false,
            had_conflict: false,
            passes_over: None,
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
        let closure = self.closures.last().map(|closure| closure.place);
        for place in self.statement.into_iter().chain(closure) {
            paranoid!(
                place.undo_count <= self.undo_count,
                "{} changes to undo, and a statement that began at {place:?}",
                self.undo_count
            );
        }
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
