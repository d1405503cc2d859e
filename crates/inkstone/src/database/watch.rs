//! Transactions, locks and waits of an open database, for people who look for the one that is in the
//! way. Each list is one look; two lists need not fit together.

use super::{Database, Table};
use crate::sync::HashMap;
use crate::txn::Isolation;
use crate::txn::locks::{LockMode, LockTarget, LockWaitHooks};
use crate::txn::system::TrxStatus;
use crate::{Result, catalog::TableDefinition};
use inkstone_format::{SpaceId, TreeId};
use std::sync::Arc;
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
    /// Row changes made, of secondary trees too.
    pub changes: u64,
    /// Explicit row locks that it holds. Rows that it has changed are locked without one.
    pub row_locks: u64,
    /// Ranges and gaps that it has locked.
    pub range_locks: u64,
    /// Whose end it waits for, and how long by now.
    pub waits: Option<(u64, Duration)>,
}

/// An explicit lock.
#[derive(Clone, Debug)]
pub struct LockView {
    /// Who holds it.
    pub transaction: u64,
    /// The table's name; none if it was dropped meanwhile.
    pub table: Option<String>,
    /// The tree's name; none of a statement lock.
    pub tree: Option<String>,
    /// How it is held.
    pub mode: LockMode,
    /// What is locked.
    pub target: LockTarget,
}

/// Someone who waits for a transaction.
#[derive(Clone, Debug)]
pub struct WaitView {
    /// Who waits.
    pub waiter: u64,
    /// For whom.
    pub blocker: u64,
    /// How long by now.
    pub waited: Duration,
    /// The table's name; none if it was dropped meanwhile.
    pub table: Option<String>,
    /// The tree's name; none of a statement lock.
    pub tree: Option<String>,
    /// The key that it wants to lock or change.
    pub key: Vec<u8>,
    /// How.
    pub mode: LockMode,
}

/// Names of tables and trees by their numbers.
struct Names(Vec<TableDefinition>);

impl Names {
    fn of(&self, space: SpaceId, tree: TreeId) -> (Option<String>, Option<String>) {
        let table = self.0.iter().find(|table| table.space == space);
        let trees = table.map_or(&[][..], |table| &table.trees);
        let tree = trees.iter().find(|(id, _)| *id == tree);
        (
            table.map(|table| table.name.clone()),
            tree.map(|(_, name)| name.clone()),
        )
    }
}

impl Database {
    /// Whether this is a forked child of the process that opened the database. Who takes latches
    /// asks first: threads may hold them that the child does not have.
    pub(super) fn is_forked(&self) -> bool {
        self.inner.core.redo.poison.is_forked()
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
        let mut locks: HashMap<u64, (u64, u64)> = HashMap::default();
        for lock in core.locks.list() {
            let (rows, ranges) = locks.entry(lock.transaction.0).or_default();
            match lock.target {
                LockTarget::Row(_) => *rows += 1,
                LockTarget::Range(..) | LockTarget::Gap(..) => *ranges += 1,
            }
        }
        let waiters = core.locks.graph().waiters();
        let mut all: Vec<TransactionView> = core
            .trxs
            .active()
            .iter()
            .map(|trx| {
                let (id, details) = (trx.id(), trx.details());
                let (row_locks, range_locks) = locks.get(&id.0).copied().unwrap_or_default();
                let wait = waiters.iter().find(|wait| wait.waiter == id);
                TransactionView {
                    id: id.0,
                    tag: details.tag,
                    isolation: details.isolation,
                    prepared: trx.status() == TrxStatus::Prepared,
                    age: details
                        .begun
                        .map_or(Duration::ZERO, |begun| begun.elapsed()),
                    changes: trx.weight(),
                    row_locks,
                    range_locks,
                    waits: wait.map(|wait| (wait.blocker.0, wait.waited)),
                }
            })
            .collect();
        all.sort_by_key(|trx| trx.id);
        all
    }

    /// Whether anybody has the statement lock of a table
    /// ([`Transaction::lock_for_statement`](crate::Transaction::lock_for_statement)), or waits for it. False in a forked
    /// child.
    pub fn is_locked_for_statement(&self, table: &Table) -> bool {
        let space = table.inner.space.id;
        !self.is_forked() && self.inner.core.locks.is_locked_for_statement(space)
    }

    /// All explicit locks.
    pub fn locks(&self) -> Result<Vec<LockView>> {
        let names = Names(self.definitions()?);
        let locks = self.inner.core.locks.list().into_iter().map(|lock| {
            let (table, tree) = names.of(lock.space, lock.tree);
            LockView {
                transaction: lock.transaction.0,
                table,
                tree,
                mode: lock.mode,
                target: lock.target,
            }
        });
        Ok(locks.collect())
    }

    /// Everyone who waits for somebody.
    pub fn lock_waits(&self) -> Result<Vec<WaitView>> {
        let names = Names(self.definitions()?);
        let mut all = Vec::new();
        for wait in self.inner.core.locks.graph().waiters() {
            let wanted = wait.wanted;
            let (table, tree) = names.of(wanted.space, wanted.tree);
            all.push(WaitView {
                waiter: wait.waiter.0,
                blocker: wait.blocker.0,
                waited: wait.waited,
                table,
                tree,
                key: wanted.key,
                mode: wanted.mode,
            });
        }
        Ok(all)
    }
}
