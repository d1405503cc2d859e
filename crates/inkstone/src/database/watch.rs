//! Transactions, locks and waits of an open database, to find the one that is in the way. Each list
//! is one look; two lists need not fit together.

use super::{Database, Inner, Table};
use crate::locks::{
    LockInfo, LockMode, LockTarget, LockWaitHooks, Names, Standing, TreeKey, TreeNames,
};
use crate::mvcc::Isolation;
use crate::mvcc::system::{HeldSnapshot, Holder, TrxState, TrxStatus};
use crate::paranoid::paranoid;
use crate::sync::{HashMap, HashSet};
use crate::{Error, Result, catalog::TableDefinition};
use inkstone_format::{SpaceId, TreeId, TrxId};
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A transaction that has not ended.
#[derive(Clone, Debug)]
pub struct TransactionView {
    /// Its number.
    pub id: u64,
    /// What [`Transaction::set_tag`](crate::Transaction::set_tag) said; 0 of a recovered one.
    pub tag: u64,
    /// Its level.
    pub isolation: Isolation,
    /// Whether it is prepared.
    pub prepared: bool,
    /// How long ago it began; nothing of a recovered one.
    pub age: Duration,
    /// The name of the thread that began it, if it has one.
    pub thread: Option<String>,
    /// Snapshots of it that are in force, those of its cursors with them: old versions are kept
    /// for them.
    pub snapshots: u32,
    /// Row changes made, of secondary trees too.
    pub changes: u64,
    /// Rows of tables that it has changed, and not undone. A row that is changed twice counts
    /// twice.
    pub rows: u64,
    /// Explicit row locks that it holds. Rows that it has changed are locked without one.
    pub row_locks: u64,
    /// Ranges and gaps that it has locked.
    pub range_locks: u64,
    /// The transaction that it waits for, and how long by now.
    pub waits: Option<(u64, Duration)>,
    /// The statement that it is in, if the program says so ([`LockWaitHooks::statement`]).
    pub statement: Option<String>,
}

/// Snapshots in force that one transaction has taken: what was overwritten or deleted since is kept
/// for them, and not purged.
#[derive(Clone, Debug)]
pub struct SnapshotView {
    /// The transaction's number.
    pub transaction: u64,
    /// What [`Transaction::set_tag`](crate::Transaction::set_tag) said; 0 if the transaction is
    /// over.
    pub tag: u64,
    /// How long ago the transaction began: as old are they at most.
    pub age: Duration,
    /// The name of the thread that took the first of them, if it has one.
    pub thread: Option<String>,
    /// How many: of the transaction itself, and of its cursors.
    pub count: u32,
    /// How many of them are cursors'.
    pub cursors: u32,
    /// The transaction is over, and a cursor of it was not dropped.
    pub is_left_over: bool,
    /// Transactions that have committed since they were taken.
    pub commits_since: u64,
}

/// How a transaction stands to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockState {
    /// It holds it.
    Held,
    /// It has changed the row, for which others wait. Of changed rows only those are listed.
    Changed,
    /// It waits for it.
    Waits {
        /// How long by now.
        waited: Duration,
        /// The place in the row's queue, from 1; none for a range, which has no queue.
        place: Option<usize>,
        /// Whether it is to put a new row there.
        inserts: bool,
        /// The transactions that it waits for. Of several before it in the queue: the last that
        /// waits for the others, too.
        blockers: Vec<u64>,
        /// In which statement, if the program says so ([`LockWaitHooks::statement`]).
        statement: Option<String>,
    },
}

/// A lock that is held or waited for.
#[derive(Clone, Debug)]
pub struct LockView {
    /// The transaction that has it or waits for it.
    pub transaction: u64,
    /// What [`Transaction::set_tag`](crate::Transaction::set_tag) said.
    pub tag: u64,
    /// The table's name; none if it was dropped meanwhile.
    pub table: Option<String>,
    /// The tree's name; none of a statement lock.
    pub tree: Option<String>,
    /// How it is held, or wanted.
    pub mode: LockMode,
    /// What is locked.
    pub target: LockTarget,
    /// Whether it is held.
    pub state: LockState,
}

/// Names of tables and trees by their numbers: those of open tables, and the catalog's if it must
/// be asked.
struct NamesFound {
    open: HashMap<SpaceId, Table>,
    others: Option<Vec<TableDefinition>>,
}

impl NamesFound {
    fn of_open_tables(inner: &Inner) -> Self {
        let tables = inner.tables.lock();
        let tables = tables.values().cloned();
        Self {
            open: tables.map(|table| (table.inner.space.id, table)).collect(),
            others: None,
        }
    }

    fn find_open(&self, (space, tree): TreeKey) -> Option<Names> {
        names_in(self.open.get(&space)?, tree)
    }

    /// Table and tree; `None` for what was dropped meanwhile.
    fn find(&mut self, db: &Database, place: TreeKey) -> Result<(Option<String>, Option<String>)> {
        if let Some((table, tree)) = self.find_open(place) {
            return Ok((Some(table), Some(tree)));
        }
        if self.others.is_none() {
            self.others = Some(db.definitions()?);
        }
        let (space, tree) = place;
        let mut tables = self.others.iter().flatten();
        let table = tables.find(|table| table.space == space);
        let trees = table.map_or(&[][..], |table| &table.trees);
        let tree = trees.iter().find(|(id, _)| *id == tree);
        Ok((
            table.map(|table| table.name.clone()),
            tree.map(|(_, name)| name.clone()),
        ))
    }
}

fn names_in(table: &Table, tree: TreeId) -> Option<Names> {
    let tree = table.trees().iter().find(|open| open.tree.id == tree)?;
    Some((table.name().to_owned(), tree.name().to_owned()))
}

/// Names open tables for the accounts of deadlocks, and for lock wait timeouts.
pub(super) struct OpenNames(pub Weak<Inner>);

impl TreeNames for OpenNames {
    fn names(&self, (space, tree): TreeKey) -> Option<Names> {
        let inner = self.0.upgrade()?;
        let tables = inner.tables.lock();
        let table = tables.values().find(|table| table.inner.space.id == space);
        names_in(table?, tree)
    }
}

impl Database {
    /// Whether this is a forked child of the process that opened the database. Code that takes
    /// latches asks first: threads that the child does not have may hold them.
    pub(super) fn is_forked(&self) -> bool {
        self.inner.core.storage.poison.is_forked()
    }

    /// Has `hooks` told of lock waits, from the next one on. Does nothing in a forked child.
    pub fn set_lock_wait_hooks(&self, hooks: Arc<dyn LockWaitHooks>) {
        if self.is_forked() {
            return;
        }
        self.inner.core.locks.graph().set_hooks(hooks);
    }

    /// All transactions that have not ended, the oldest first. None in a forked child.
    pub fn transactions(&self) -> Vec<TransactionView> {
        if self.is_forked() {
            return Vec::new();
        }
        let core = &self.inner.core;
        let locks = core.locks.counts_by_transaction();
        let mut waits: HashMap<TrxId, (u64, Duration)> = HashMap::default();
        for lock in core.locks.waits() {
            if let Standing::Waits(wish) = lock.standing
                && let Some(blocker) = wish.blockers.first()
            {
                paranoid!(
                    *blocker != lock.transaction.id(),
                    "{blocker:?} is shown as waiting for itself"
                );
                waits.insert(lock.transaction.id(), (blocker.0, wish.waited));
            }
        }
        let mut snapshots: HashMap<TrxId, u32> = HashMap::default();
        for held in core.trxs.snapshots_held() {
            *snapshots.entry(held.holder.trx).or_default() += held.count;
        }
        let view = |trx: &Arc<TrxState>| {
            let (id, details) = (trx.id(), trx.details());
            let (row_locks, range_locks) = locks.get(&id).copied().unwrap_or_default();
            TransactionView {
                id: id.0,
                tag: details.tag,
                isolation: details.isolation,
                prepared: trx.status() == TrxStatus::Prepared,
                age: details
                    .begun
                    .map_or(Duration::ZERO, |begun| begun.elapsed()),
                thread: details
                    .thread
                    .and_then(|thread| thread.name().map(str::to_owned)),
                snapshots: snapshots.get(&id).copied().unwrap_or_default(),
                changes: trx.weight(),
                rows: trx.rows(),
                row_locks,
                range_locks,
                waits: waits.get(&id).copied(),
                statement: core.locks.statement(trx),
            }
        };
        let mut all: Vec<TransactionView> = core.trxs.active().iter().map(view).collect();
        all.sort_by_key(|trx| trx.id);
        paranoid!(
            all.is_sorted_by(|a, b| a.id < b.id),
            "two transactions have one number"
        );
        all
    }

    /// The snapshots in force, the oldest first: what keeps old versions from being purged. A
    /// cursor has one of its own until it is dropped, also when its transaction is over. None in a
    /// forked child.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let db = Database::in_memory(Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.set_tag(7);
    /// let forgotten = txn.range(&table, ..)?;
    /// assert_eq!(db.snapshots()[0].tag, 7);
    /// txn.commit()?;
    /// assert!(db.transactions().is_empty());
    /// assert!(db.snapshots()[0].is_left_over); // purge waits for the cursor
    /// drop(forgotten);
    /// assert!(db.snapshots().is_empty());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn snapshots(&self) -> Vec<SnapshotView> {
        if self.is_forked() {
            return Vec::new();
        }
        let trxs = &self.inner.core.trxs;
        let held = trxs.snapshots_held();
        let last = trxs.last_seq();
        let active = trxs.active();
        let active: HashMap<TrxId, u64> = active
            .iter()
            .map(|trx| (trx.id(), trx.details().tag))
            .collect();
        let place = |held: HeldSnapshot| (held.seq, held.holder.trx);
        // A cursor that was dropped in between has taken its own along.
        let still = trxs.snapshots_held().into_iter();
        let still = still.filter(|held| held.cursors > 0).map(place);
        let still: HashSet<_> = still.collect();
        let view = |held: HeldSnapshot| {
            let tag = active.get(&held.holder.trx).copied();
            SnapshotView {
                transaction: held.holder.trx.0,
                tag: tag.unwrap_or_default(),
                age: held
                    .holder
                    .begun
                    .map_or(Duration::ZERO, |begun| begun.elapsed()),
                commits_since: last.saturating_sub(held.seq),
                count: held.count,
                cursors: held.cursors,
                is_left_over: tag.is_none(),
                thread: held.thread,
            }
        };
        // What has ended and has no cursor is about to let go of its own.
        let of_transactions = held.into_iter().filter(|held| {
            held.holder != Holder::ENGINE
                && (active.contains_key(&held.holder.trx)
                    || still.contains(&(held.seq, held.holder.trx)))
        });
        of_transactions.map(view).collect()
    }

    /// Whether a transaction has the statement lock of a table
    /// ([`Transaction::lock_for_statement`](crate::Transaction::lock_for_statement)), or waits for
    /// it. False in a forked child.
    pub fn is_locked_for_statement(&self, table: &Table) -> bool {
        let space = table.inner.space.id;
        let is_ours = self.inner.core.check_own(&table.trees[0].tree).is_ok();
        is_ours && !self.is_forked() && self.inner.core.locks.is_locked_for_statement(space)
    }

    /// Shows all explicit locks, and the queues of waiters, until `show` says false. What is shown
    /// costs as much as it is: no list is made, and no latch is held meanwhile.
    pub fn visit_locks(&self, mut show: impl FnMut(&LockView) -> bool) -> Result<()> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let mut names = NamesFound::of_open_tables(&self.inner);
        let mut failed = None;
        let _ = self.inner.core.locks.visit(|lock| {
            match self.lock_view(lock, &mut names) {
                Ok(view) if show(&view) => return ControlFlow::Continue(()),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            ControlFlow::Break(())
        });
        failed.map_or(Ok(()), Err)
    }

    /// All explicit locks, and the queues of waiters.
    pub fn locks(&self) -> Result<Vec<LockView>> {
        let mut all = Vec::new();
        self.visit_locks(|lock| {
            all.push(lock.clone());
            true
        })?;
        Ok(all)
    }

    /// Every transaction that waits for a lock, the longest wait first: each [`LockState::Waits`].
    pub fn lock_waits(&self) -> Result<Vec<LockView>> {
        if self.is_forked() {
            return Err(Error::Forked);
        }
        let mut names = NamesFound::of_open_tables(&self.inner);
        let waits = self.inner.core.locks.waits();
        let views = waits.iter().map(|wait| self.lock_view(wait, &mut names));
        views.collect()
    }

    fn lock_view(&self, lock: &LockInfo, names: &mut NamesFound) -> Result<LockView> {
        let (table, tree) = names.find(self, lock.tree)?;
        let state = match &lock.standing {
            Standing::Held => LockState::Held,
            Standing::Changed => LockState::Changed,
            Standing::Waits(wish) => LockState::Waits {
                waited: wish.waited,
                place: wish.place,
                inserts: wish.inserts,
                blockers: wish.blockers.iter().map(|id| id.0).collect(),
                statement: self.inner.core.locks.statement(&lock.transaction),
            },
        };
        Ok(LockView {
            transaction: lock.transaction.id().0,
            tag: lock.transaction.details().tag,
            table,
            tree,
            mode: lock.mode,
            target: lock.target.clone(),
            state,
        })
    }
}
