//! Statement locks: exclusive ones of a whole table, of no row, that a statement gives back when it
//! ends.
//!
//! Each is the lock of one key in a tree that no table has, so queues, deadlocks and time limits
//! are those of rows. As in InnoDB it counts for the choice of a deadlock's victim only as long as
//! it is held.

use super::{Access, HeldLocks, IfTaken, LockMode, LockTable, Newest, RowName, Taken, TreeKey};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use inkstone_format::space::TREES_MAX;
use inkstone_format::{SpaceId, TreeId, TrxId};
use std::sync::Arc;

/// A number beyond the trees that a table can have.
const NO_TREE: TreeId = TreeId(TREES_MAX);

fn lock_of(space: SpaceId) -> RowName<'static> {
    RowName {
        tree: (space, NO_TREE),
        key: &[],
    }
}

/// Whether a tree stands for a table's statement lock.
pub(crate) fn is_statement_lock((_, tree): TreeKey) -> bool {
    tree == NO_TREE
}

impl HeldLocks {
    /// As [`note`](Self::note), without adding to the transaction's cost.
    fn note_statement_lock(&mut self, tree: TreeKey) {
        if !self.trees.contains(&tree) {
            self.trees.push(tree);
        }
    }
}

impl LockTable {
    /// Takes a table's statement lock for `trx`, which does not have it; or a place in its queue.
    pub fn lock_for_statement(
        &self,
        trx: &Arc<TrxState>,
        held: &mut HeldLocks,
        space: SpaceId,
    ) -> std::result::Result<(), Taken<'_>> {
        let lock = lock_of(space);
        held.note_statement_lock(lock.tree);
        let (mode, newest) = (LockMode::Exclusive, Newest::Free);
        self.lock_row(trx, held, lock, mode, &newest, IfTaken::Queue)
            .map(drop)
    }

    /// Gives it back. The next waiter for it goes on.
    pub fn unlock_after_statement(&self, trx: &TrxState, space: SpaceId) {
        let lock = lock_of(space);
        self.change_used(lock.tree, |locks| {
            paranoid!(
                locks.owner(trx.id()).is_none_or(|owner| owner.count() <= 1),
                "{:?} has the statement lock of {space:?} and other locks there",
                trx.id()
            );
            if locks.unlock_point(trx.id(), lock.key) {
                locks.forget_if_idle(trx.id());
                trx.take_back_cost();
                locks.hand_off(lock.key, &self.graph);
            }
        });
    }

    /// `trx` has waited for it in vain.
    pub fn give_up_statement_lock(&self, trx: &TrxState, space: SpaceId) {
        self.give_up(trx, lock_of(space).tree);
    }

    /// Whether a transaction has it, or waits for it.
    pub fn is_locked_for_statement(&self, space: SpaceId) -> bool {
        let lock = lock_of(space);
        self.change_used(lock.tree, |locks| {
            let access = Access::Row(LockMode::Exclusive);
            !locks.is_free(TrxId(0), lock.key, access)
        })
    }
}
