//! A word to programs in debug builds: a thread that waits for what it holds itself, in another
//! transaction, waits in vain.
//!
//! The thread cannot end the other transaction while it waits, and the graph of waits has no
//! circle: nothing ends it but the timeout. A transaction that was handed to another thread since
//! is an exception, so it is no error.

use super::LockTable;
use super::request::Request;
use crate::mvcc::system::TrxState;
use crate::sync::thread;
use std::io::Write;
use std::sync::Arc;

/// Whether it is said. Simulations and model checkers have debug assertions, too, and must decide
/// the same with them and without.
pub(super) const SAID: bool = cfg!(all(
    debug_assertions,
    not(any(inkstone_sim, inkstone_shuttle))
));

impl LockTable {
    /// Called by a waiter that has waited for a while.
    pub(super) fn warn_of_own_thread(&self, request: &Arc<Request>) {
        let here = thread::current().id();
        let is_begun_here = |trx: &&Arc<TrxState>| {
            let begun_by = &trx.details().thread;
            begun_by.as_ref().is_some_and(|thread| thread.id() == here)
        };
        let blockers = self.change_used(request.tree, |locks| locks.all_blockers(request));
        let own = blockers.iter().find(is_begun_here);
        let Some(own) = own else {
            return;
        };
        // Not `eprintln!`: it unwinds where nothing takes what is written.
        let _ = writeln!(
            std::io::stderr().lock(),
            "inkstone: transaction {} waits for {}, which transaction {} has locked or changed. This \
             same thread began it: if it is to end it, too, it waits in vain, until the lock wait \
             timeout. End that transaction first, or do both things in one. (Debug builds say \
             this.)",
            request.trx.id().0,
            self.graph.place_of(request),
            own.id().0,
        );
    }
}
