//! What all transactions of an open database work on.

use crate::btree::Tree;
use crate::counters::{STRIPES, Timed};
use crate::locks::LockTable;
use crate::mvcc::system::{TrxState, TrxSystem};
use crate::mvcc::versions::VersionStore;
use crate::options::Durability;
use crate::paranoid::{MANY, paranoid};
use crate::space::Space;
use crate::storage::Storage;
use crate::store::SpaceFiles;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{HashMap, Mutex, RwLock};
use crate::txn::state::Shared;
use crate::txn::thin_leaves::ThinLeaves;
use crate::txn::tracked::Tracked;
use crate::txn::undo_place::saved_every;
use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use inkstone_format::{Lsn, SpaceId, TreeId, TrxId, VersionAddress};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Transactions that have written, of one stripe.
type WriterStripe = Mutex<HashMap<TrxId, Arc<Shared>>>;

/// The options of transactions.
#[derive(Clone, Copy, Debug)]
pub struct TransactionOptions {
    /// `flush_log_at_trx_commit`.
    pub durability: Durability,
    /// `lock_wait_timeout_ms`.
    pub lock_wait_timeout: Duration,
    /// `lock_memory_max`.
    pub lock_memory_max: u64,
    /// What an unfinished transaction did to rows that are lost with a damaged page is void
    /// (`salvage`); otherwise that is corruption.
    pub rows_may_be_lost: bool,
    /// Every write is refused, but for those of opening.
    pub read_only: bool,
    /// `bulk_logging=minimal`, and no archive wants the log whole.
    pub bulks_leave_rows_out: bool,
    /// What becomes of transactions that were not committed when the database was last open.
    pub losers: Losers,
}

/// What opening does about transactions that had not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losers {
    /// They are rolled back.
    RollBack,
    /// They stay as they are: their changes are invisible, and their rows locked.
    Leave,
    /// What they did stays, and is seen. Prepared ones count as committed, too.
    Commit,
}

impl Losers {
    /// What they are, if they are not rolled back, for people.
    pub fn instead_of_rollback(self) -> Option<&'static str> {
        match self {
            Self::RollBack => None,
            Self::Leave => Some("left as they were, invisible"),
            Self::Commit => Some("taken for committed"),
        }
    }
}

/// The parts of an open database that transactions use. Shared by Arc.
pub struct Core {
    /// Pages and log.
    pub storage: Storage,
    /// Old versions.
    pub versions: VersionStore,
    /// Active transactions, commit order, snapshots.
    pub trxs: TrxSystem,
    /// Explicit locks, and the transactions that wait for them.
    pub locks: LockTable,
    /// What transactions begin with.
    pub options: TransactionOptions,
    /// The tablespaces that were asked for; `None`: dropped.
    spaces: RwLock<HashMap<SpaceId, Option<Arc<Space>>>>,
    files: Arc<SpaceFiles>,
    uuid: [u8; 16],
    /// Tablespaces whose long values that are no longer referenced wait to be freed.
    pub pending_free: Mutex<BTreeSet<SpaceId>>,
    /// A tablespace gets at most one tree of long values that wait to be freed.
    pub(crate) making_pending_free: Mutex<()>,
    /// Trees whose pages are to be freed.
    pub(crate) dropped_trees: Mutex<Vec<DroppedTree>>,
    /// Trees of which it is noted what changes.
    pub(crate) tracked: Tracked,
    /// Thin leaves that purge tries again to merge.
    pub(crate) thin_leaves: Mutex<ThinLeaves>,
    /// One round of purge at a time: what it has been told to free can be freed only when the
    /// version segment that told it has been retired, by the same round.
    pub purging: Mutex<()>,
    /// Transactions whose rollback failed and is to be tried again.
    pub(crate) unfinished: Mutex<Vec<Arc<Shared>>>,
    /// Transactions of an earlier run, with undo of their own, that are being rolled back.
    pub(crate) recovered: Mutex<Vec<Arc<Shared>>>,
    /// Held while a segment of those is undone; a thread that looks at whole trees holds it, too.
    pub(crate) undoing: Mutex<()>,
    /// Transactions that have written and not ended, by stripe of their slot.
    writers: Box<[CachePadded<WriterStripe>]>,
    /// Prepared transactions by XID.
    pub(crate) prepared: Mutex<HashMap<Vec<u8>, Arc<Shared>>>,
    /// Records (start LSN) whose context lies further back than `Log::context_reach` (at the
    /// second LSN). Only a thread that sleeps between coding and reserving can bring this about.
    far_contexts: Mutex<Vec<(Lsn, Lsn)>>,
    /// The place up to which log was freed when a writer had waited for more in vain, and one.
    pub(crate) log_stuck_at: AtomicU64,
    /// Bytes of versions that a large transaction may have without having them saved: each
    /// checkpoint says anew ([`Core::bound_unsaved_undo`]).
    pub(crate) unsaved_undo_max: AtomicU64,
    /// Set when the database closes: background work stops between two steps.
    pub stopping: AtomicBool,
}

/// A tree that can no longer be opened.
pub(crate) struct DroppedTree {
    /// Its tablespace.
    pub space: SpaceId,
    /// Its number.
    pub tree: TreeId,
    /// Transactions that may have changed it, and may have to undo that.
    pub users: Vec<TrxId>,
}

impl Core {
    /// The shared parts over an open log and pool.
    pub fn new(
        storage: Storage,
        versions: VersionStore,
        trxs: TrxSystem,
        options: TransactionOptions,
        (files, uuid): (Arc<SpaceFiles>, [u8; 16]),
    ) -> Self {
        let locks = LockTable::new(
            options.lock_memory_max,
            storage.counters.clone(),
            storage.poison.clone(),
        );
        let unsaved_undo_max = saved_every(storage.log.capacity_bytes());
        Self {
            storage,
            versions,
            trxs,
            locks,
            options,
            spaces: RwLock::default(),
            files,
            uuid,
            pending_free: Mutex::default(),
            making_pending_free: Mutex::default(),
            thin_leaves: Mutex::default(),
            tracked: Tracked::default(),
            unfinished: Mutex::default(),
            recovered: Mutex::default(),
            undoing: Mutex::default(),
            dropped_trees: Mutex::default(),
            purging: Mutex::default(),
            writers: (0..STRIPES).map(|_| CachePadded::default()).collect(),
            prepared: Mutex::default(),
            far_contexts: Mutex::default(),
            log_stuck_at: AtomicU64::new(0),
            unsaved_undo_max: AtomicU64::new(unsaved_undo_max),
            stopping: AtomicBool::new(false),
        }
    }

    /// Whether a version address still matters.
    #[inline]
    pub fn is_live(&self, address: VersionAddress) -> bool {
        self.versions.is_live(address)
    }

    /// Whether a page keeps a version address: one that matters, and any logged one, for a later
    /// run replays what the log says of it. Those are taken out by a record (`clean_leaf`).
    #[inline]
    pub fn keeps(&self, address: VersionAddress) -> bool {
        address.is_logged() || self.versions.is_live(address)
    }

    /// As [`Core::keeps`], for the cells of a page that stays latched meanwhile.
    #[inline]
    pub fn liveness(&self) -> impl Fn(VersionAddress) -> bool + '_ {
        let live = self.versions.liveness();
        move |address| address.is_logged() || live(address)
    }

    /// A tablespace, opened if need be; `None` if its table was dropped, or there is no file.
    pub fn space(&self, id: SpaceId) -> Result<Option<Arc<Space>>> {
        if let Some(known) = self.spaces.read().get(&id) {
            return Ok(known.clone());
        }
        let Some(file) = self.files.find(id)? else {
            return Ok(None);
        };
        let found = Space::found(id, self.storage.clone(), file);
        found.check_header(&self.uuid)?;
        let mut spaces = self.spaces.write();
        let known = spaces.entry(id).or_insert_with(|| {
            // An earlier run may have left long values that are to be freed.
            self.pending_free.lock().insert(id);
            Some(Arc::new(found))
        });
        Ok(known.clone())
    }

    /// The tablespaces that were asked for.
    pub fn known_spaces(&self) -> Vec<Arc<Space>> {
        self.spaces.read().values().flatten().cloned().collect()
    }

    /// A tablespace that was just made.
    pub fn add_space(&self, space: &Arc<Space>) {
        let before = self.spaces.write().insert(space.id, Some(space.clone()));
        paranoid!(
            before.is_none(),
            "tablespace {} was known before it was made",
            space.id
        );
    }

    /// A tablespace is gone: it is not found any more. Gives it back if it was known.
    pub fn remove_space(&self, id: SpaceId) -> Option<Arc<Space>> {
        self.spaces.write().insert(id, None).flatten()
    }

    /// The file of a tablespace whose table was dropped is not read any more.
    pub(crate) fn set_file_dropped(&self, id: SpaceId) {
        self.files.set_dropped(id);
    }

    /// Whether the tablespace's table was dropped.
    pub(crate) fn is_space_dropped(&self, id: SpaceId) -> bool {
        matches!(self.spaces.read().get(&id), Some(None))
    }

    /// The tree that an undo entry or version names; `None` when its table was dropped.
    pub fn tree(&self, space: SpaceId, tree: TreeId) -> Result<Option<Tree>> {
        let Some(space) = self.space(space)? else {
            return Ok(None);
        };
        Tree::open(space, tree, self.storage.clone()).map(Some)
    }

    fn writer_stripe(&self, trx: &TrxState) -> &WriterStripe {
        &self.writers[trx.slot() as usize % STRIPES]
    }

    pub(crate) fn add_writer(&self, shared: &Arc<Shared>) {
        let mut stripe = self.writer_stripe(&shared.state).lock();
        let before = stripe.insert(shared.state.id(), shared.clone());
        paranoid!(
            before.is_none_or(|before| Arc::ptr_eq(&before, shared)),
            "two transactions that write are {:?}",
            shared.state.id()
        );
    }

    pub(crate) fn remove_writer(&self, state: &TrxState) {
        let gone = self.writer_stripe(state).lock().remove(&state.id());
        paranoid!(
            gone.is_some(),
            "{:?} has written, and is not entered",
            state.id()
        );
    }

    /// Transactions that have written and not ended.
    pub fn writers(&self) -> Vec<Arc<Shared>> {
        self.writers
            .iter()
            .flat_map(|s| s.lock().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    pub(crate) fn note_context(&self, start: Lsn, restart: Lsn) {
        paranoid!(
            restart <= start,
            "an insert at LSN {start} coded against a later one at {restart}"
        );
        if start.0 - restart.0 > self.storage.log.context_reach() {
            self.far_contexts.lock().push((start, restart));
        }
    }

    /// The least LSN from which scanning must begin so that every record from `checkpoint` on can
    /// be decoded, apart from the usual reach. Forgets what lies before the checkpoint.
    pub fn far_context_floor(&self, checkpoint: Lsn) -> Option<Lsn> {
        let mut far = self.far_contexts.lock();
        far.retain(|&(start, _)| start >= checkpoint);
        let mut last = far.iter().rev().take(MANY);
        paranoid!(
            last.all(|(start, restart)| start.0 - restart.0 > self.storage.log.context_reach()),
            "contexts that are near are noted as far: {far:?}"
        );
        far.iter().map(|&(_, restart)| restart).min()
    }

    /// XIDs of the prepared transactions.
    pub fn prepared_xids(&self) -> Vec<Vec<u8>> {
        let mut xids: Vec<_> = self.prepared.lock().keys().cloned().collect();
        xids.sort();
        xids
    }

    /// Waits for a commit whose record ends at `lsn`, as `durability` says.
    pub(crate) fn wait_for_commit(&self, lsn: Lsn, durability: Durability) -> Result<()> {
        let timing = || self.storage.counters.time(Timed::CommitWait);
        match durability {
            Durability::Sync => {
                let _timing = timing();
                self.storage.log.wait_durable(lsn)
            }
            Durability::Write => {
                let _timing = timing();
                self.storage.log.wait_written(lsn)
            }
            Durability::Lazy => Ok(()),
        }
    }

    /// That a tree is of this database, and not of another one that is open: that one's pages
    /// would be named in this one's log, which could not be recovered then.
    pub(crate) fn check_own(&self, tree: &Tree) -> Result<()> {
        if Arc::ptr_eq(&tree.storage().log, &self.storage.log) {
            return Ok(());
        }
        Err(self.of_other_database(tree))
    }

    #[cold]
    fn of_other_database(&self, tree: &Tree) -> Error {
        Error::OtherDatabase {
            path: tree.space.file().path().to_owned(),
            database: self.files.directory().path().to_owned(),
        }
    }

    /// Whether the database is closing.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Fails if the database is being closed: for long work that the next run goes on with.
    pub fn check_stopping(&self) -> Result<()> {
        if self.is_stopping() {
            Err(Error::TransactionState(
                "interrupted: the database is closing",
            ))
        } else {
            Ok(())
        }
    }
}
