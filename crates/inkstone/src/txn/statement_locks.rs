//! Statement locks: see [`Transaction::lock_for_statement`].

use crate::mutants::{self, Mutant};
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::SpaceId;

impl Transaction {
    /// Takes the statement lock of a table, unless the transaction has it.
    pub(crate) fn take_statement_lock(&self, space: SpaceId) -> Result<()> {
        self.core.storage.poison.check()?;
        self.check_interrupt()?;
        let mut inner = self.active()?;
        let is_skipped = mutants::on(Mutant::StatementLockSkipped);
        if is_skipped || inner.statement_locks.contains(&space) {
            return Ok(());
        }
        let result = self.wait_for_statement_lock(&mut inner, space);
        if result.is_ok() {
            inner.statement_locks.push(space);
        }
        self.after_error(inner, result)
    }

    fn wait_for_statement_lock(&self, inner: &mut Inner, space: SpaceId) -> Result<()> {
        let (locks, state, deadline) = (&self.core.locks, &self.shared.state, self.deadline());
        loop {
            if state.is_doomed() {
                locks.give_up_statement_lock(state, space);
                return Err(Error::Deadlock);
            }
            match locks.lock_for_statement(state, &mut inner.held, space) {
                Ok(()) => return Ok(()),
                Err(taken) => self.wait(inner, taken, Some(deadline))?,
            }
        }
    }

    /// Gives back the statement locks of the statement that ends.
    pub(crate) fn release_statement_locks(&self, inner: &mut Inner) {
        for space in std::mem::take(&mut inner.statement_locks) {
            let (locks, state) = (&self.core.locks, &self.shared.state);
            locks.unlock_after_statement(state, space);
        }
    }
}
