//! Interrupting what a transaction does from another thread.

use crate::mvcc::system::TrxState;
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Error, Result};
use std::sync::Arc;

/// Interrupts the statements of the transactions that were given it
/// ([`Transaction::set_interrupt`](crate::txn::Transaction::set_interrupt)): a wait for a lock, or
/// a scan, fails with [`Error::Interrupted`] as soon as it is raised, and until it is cleared.
/// Clones are the same interrupt. Commits and rollbacks are not interrupted.
///
/// No wakeup is lost: a thread that is about to sleep enters itself first and looks at the flag
/// afterwards; one that raises the interrupt sets the flag first and wakes afterwards.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    raised: AtomicBool,
    /// Those of its transactions that wait. Latch; innermost.
    sleepers: Checked<Vec<Arc<TrxState>>>,
}

impl Check for Vec<Arc<TrxState>> {
    /// A transaction sleeps once at a time.
    fn check(&self) {
        if let Some((last, others)) = self.split_last() {
            let again = others.iter().rev().take(MANY);
            paranoid!(
                again.filter(|other| Arc::ptr_eq(other, last)).count() == 0,
                "transaction {:?} sleeps twice",
                last.id()
            );
        }
    }
}

impl Interrupt {
    /// One that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Interrupts, from any thread.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::SeqCst);
        for sleeper in &*self.0.sleepers.lock() {
            sleeper.wake_up();
        }
    }

    /// Later statements are not interrupted.
    pub fn clear(&self) {
        // Each statement does this, and hardly any of them follows a raised one.
        if self.is_raised() {
            self.0.raised.store(false, Ordering::SeqCst);
        }
    }

    /// Whether it is raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::SeqCst)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_raised() {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Has `trx` woken when the interrupt is raised, until the guard is dropped.
    pub(crate) fn watch<'i>(&'i self, trx: &'i Arc<TrxState>) -> Watch<'i> {
        self.0.sleepers.lock().push(trx.clone());
        Watch {
            interrupt: self,
            trx,
        }
    }
}

pub(crate) struct Watch<'i> {
    interrupt: &'i Interrupt,
    trx: &'i Arc<TrxState>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.interrupt.0.sleepers.lock();
        let before = sleepers.len();
        sleepers.retain(|sleeper| !Arc::ptr_eq(sleeper, self.trx));
        paranoid!(
            sleepers.len() + 1 == before,
            "transaction {:?} was among the sleepers {} times",
            self.trx.id(),
            before - sleepers.len()
        );
    }
}
