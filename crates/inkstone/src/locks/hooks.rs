//! What an embedder hears of lock waits, and its say in deadlocks.

use std::cmp::Ordering;

/// For an embedder that knows of waits which the engine cannot see: a replica, say, whose
/// transactions must commit in the order of its primary. One of them that has its locks and waits
/// for its turn, and an earlier one that waits for such a lock, wait for each other; only the
/// embedder can tell, and roll one back.
/// [`Database::set_lock_wait_hooks`](crate::Database::set_lock_wait_hooks).
///
/// Transactions are named by their owners
/// ([`Transaction::set_owner`](crate::Transaction::set_owner)), 0 for one that has none. An owner
/// is *held* while a hook runs that is told of it: until the hook returns, neither the end of its
/// transaction nor a call that changes the owner returns. So an owner may be an address.
pub trait LockWaitHooks: Send + Sync {
    /// Whether [`about_to_wait`](Self::about_to_wait) is to be called for the waits of this owner.
    /// Asked before each of them.
    fn wants_waits(&self, waiter: usize) -> bool {
        let _ = waiter;
        true
    }

    /// The transaction of `waiter` is about to wait until that of `blocker` ends, or gives
    /// something back. Called in the waiter's thread, for each transaction that is in its way, also
    /// for earlier waiters for the same row. Called again when a wait was in vain and another
    /// follows. Often the wait is over at once. Waits for statement locks are not told: those end
    /// with a statement, before their holder waits for its turn.
    ///
    /// No lock of the engine is held, so it may ask the database for the other waits, or have the
    /// blocker rolled back by its own thread. It must not wait for the end of a transaction. If it
    /// panics, the waiter's statement does.
    fn about_to_wait(&self, waiter: usize, blocker: usize);

    /// The statement that the transaction of `owner` is in, for lists and the accounts of
    /// deadlocks; `None` if it is in none. A lock of the engine may be held: it must return at once
    /// and not call the database.
    fn statement(&self, owner: usize) -> Option<String> {
        let _ = owner;
        None
    }

    /// A deadlock was found, and this is its account, of several lines. Called once for each, in
    /// the thread of the victim. No lock of the engine is held.
    fn deadlock_found(&self, account: &str) {
        let _ = account;
    }

    /// Of two transactions of a deadlock, `Less`: rather roll back the first; `Equal`: whichever is
    /// cheaper. A lock of the engine is held: it must return at once and not call the database.
    fn compare_victims(&self, first: usize, second: usize) -> Ordering {
        let _ = (first, second);
        Ordering::Equal
    }
}
