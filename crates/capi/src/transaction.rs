//! Transactions: begin, commit, rollback, prepare, interrupts.

use crate::catalog::{VisitName, visit_names};
use crate::database::{durability, ink_database};
use crate::entry::{entry, free, guard_or, on_or};
use crate::error::{Failure, ink_error};
use crate::raw::{self, ink_slice};
use inkstone::{Durability, Error, Interrupt, Isolation, PendingCommit, Prepared, Transaction};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Where in its life a transaction is, as its handle sees it.
enum State {
    Active(Transaction),
    Prepared(Prepared),
    /// Committed, and perhaps not durable yet.
    Committed(PendingCommit),
    Ended,
}

/// A transaction, as its handle and its cursors share it. The lock is never waited for while a
/// transaction is used by one thread at a time, as the header asks: it keeps callers that do
/// otherwise from using what is gone.
pub struct Cell {
    id: u64,
    state: RwLock<State>,
}

impl Cell {
    /// A transaction that goes on.
    pub fn active(&self) -> Result<MappedRwLockReadGuard<'_, Transaction>, Failure> {
        let active = RwLockReadGuard::try_map(self.state.read(), |state| match state {
            State::Active(transaction) => Some(transaction),
            _ => None,
        });
        active.map_err(|other| match &*other {
            State::Prepared(_) => state("prepared; commit it or roll it back"),
            _ => over(),
        })
    }

    /// Takes the state out; `Ended` is left.
    fn take(&self) -> State {
        std::mem::replace(&mut *self.state.write(), State::Ended)
    }

    fn put(&self, state: State) {
        *self.state.write() = state;
    }

    /// The first part of a commit.
    fn commit_deferred(&self, how: Durability) -> Result<PendingCommit, Failure> {
        match self.take() {
            State::Active(transaction) => Ok(transaction.commit_deferred(how)?),
            State::Prepared(prepared) => Ok(prepared.commit_deferred(how)?),
            State::Committed(_) | State::Ended => Err(over()),
        }
    }
}

fn state(what: &'static str) -> Failure {
    Error::TransactionState(what).into()
}

fn over() -> Failure {
    state("over; begin a new one")
}

/// `ink_transaction`.
pub struct ink_transaction(pub Arc<Cell>);

impl ink_transaction {
    pub fn new(begun: Transaction) -> Self {
        Self(Arc::new(Cell {
            id: begun.id().0,
            state: RwLock::new(State::Active(begun)),
        }))
    }
}

impl Drop for ink_transaction {
    /// Its cursors may live on; it does not.
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// `ink_interrupt`.
pub struct ink_interrupt(pub Interrupt);

/// `enum ink_isolation`.
pub fn isolation(number: u32) -> Result<Isolation, Failure> {
    Ok(match number {
        0 => Isolation::ReadUncommitted,
        1 => Isolation::ReadCommitted,
        2 => Isolation::LockingRepeatableRead,
        3 => Isolation::RepeatableRead,
        4 => Isolation::Serializable,
        _ => return Err(Failure::invalid(format!("isolation level {number}"))),
    })
}

/// The inverse of [`isolation`].
pub fn isolation_number(isolation: Isolation) -> u32 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
        Isolation::LockingRepeatableRead => 2,
        Isolation::RepeatableRead => 3,
        Isolation::Serializable => 4,
    }
}

/// A new interrupt.
#[unsafe(no_mangle)]
pub extern "C" fn ink_interrupt_new() -> *mut ink_interrupt {
    guard_or(std::ptr::null_mut(), || {
        raw::into_handle(ink_interrupt(Interrupt::new()))
    })
}

/// Gives an interrupt back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_interrupt_free(interrupt: *mut ink_interrupt) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(interrupt) }
}

/// Interrupts.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_interrupt_raise(interrupt: *const ink_interrupt) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(interrupt, (), |interrupt| interrupt.0.raise()) }
}

/// Interrupts no more.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_interrupt_clear(interrupt: *const ink_interrupt) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(interrupt, (), |interrupt| interrupt.0.clear()) }
}

/// Begins a transaction.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_begin(
    database: *const ink_database,
    level: u32,
    interrupt: *const ink_interrupt,
    transaction: *mut *mut ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let place = raw::place(transaction)?;
        let mut begun = database.0.begin(isolation(level)?)?;
        if let Some(interrupt) = interrupt.as_ref() {
            begun.set_interrupt(&interrupt.0);
        }
        *place = raw::into_handle(ink_transaction::new(begun));
    })
}

/// Gives a transaction back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_transaction_free(transaction: *mut ink_transaction) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { free(transaction) }
}

/// A transaction's number.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_transaction_id(transaction: *const ink_transaction) -> u64 {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe { on_or(transaction, 0, |transaction| transaction.0.id) }
}

/// Sets the number that lists show.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_transaction_set_tag(transaction: *const ink_transaction, tag: u64) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(transaction, (), |transaction| {
            // One that is over is shown nowhere.
            if let Ok(transaction) = transaction.0.active() {
                transaction.set_tag(tag);
            }
        });
    }
}

/// Sets the owner by which the hooks on lock waits know the transaction.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_transaction_set_owner(
    transaction: *const ink_transaction,
    owner: *mut c_void,
) {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(transaction, (), |transaction| {
            // One that is over has none.
            if let Ok(transaction) = transaction.0.active() {
                transaction.set_owner(owner.expose_provenance());
            }
        });
    }
}

/// Whether a transaction has changed something.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_transaction_has_changes(transaction: *const ink_transaction) -> bool {
    // SAFETY: the caller's pointer is as the header asks.
    unsafe {
        on_or(transaction, false, |transaction| {
            let active = transaction.0.active();
            active.is_ok_and(|transaction| transaction.changes() > 0)
        })
    }
}

/// Sets the lock wait timeout.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_set_lock_wait_timeout(
    transaction: *const ink_transaction,
    milliseconds: u64,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let timeout = Duration::from_millis(milliseconds);
        transaction.0.active()?.set_lock_wait_timeout(timeout);
    })
}

/// Takes the snapshot now.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_take_snapshot(
    transaction: *const ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        transaction.0.active()?.take_snapshot()?;
    })
}

/// Commits and waits.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_commit(
    transaction: *mut ink_transaction,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let how = durability(how)?;
        transaction.0.commit_deferred(how)?.wait(how)?;
    })
}

/// The first part of a commit.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_commit_ordered(
    transaction: *mut ink_transaction,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let pending = transaction.0.commit_deferred(durability(how)?)?;
        transaction.0.put(State::Committed(pending));
    })
}

/// The second part of a commit.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_commit_wait(
    transaction: *mut ink_transaction,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let how = durability(how)?;
        match transaction.0.take() {
            State::Committed(pending) => pending.wait(how)?,
            other => {
                transaction.0.put(other);
                return Err(state("not committed; call ink_commit_ordered first"));
            }
        }
    })
}

/// Rolls back.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_rollback(
    transaction: *mut ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| match transaction.0.take() {
        State::Active(transaction) => match transaction.rollback() {
            // A deadlock's victim, or one whose rollback goes on in the background.
            Err(Error::TransactionState(_)) => {}
            result => result?,
        },
        State::Prepared(prepared) => prepared.rollback()?,
        State::Committed(_) | State::Ended => return Err(over()),
    })
}

/// Prepares under an XID.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_prepare(
    transaction: *mut ink_transaction,
    xid: ink_slice,
    how: u32,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        let how = durability(how)?;
        match transaction.0.take() {
            State::Active(active) => {
                let prepared = active.prepare_with(xid.bytes()?, how)?;
                transaction.0.put(State::Prepared(prepared));
            }
            other => {
                transaction.0.put(other);
                return Err(state("prepared or over"));
            }
        }
    })
}

/// Gives back the shared locks of a prepared transaction.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_release_shared_locks(
    transaction: *mut ink_transaction,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |transaction| {
        match transaction.0.take() {
            State::Prepared(prepared) => {
                prepared.release_shared_locks();
                transaction.0.put(State::Prepared(prepared));
            }
            other => {
                transaction.0.put(other);
                return Err(state("not prepared"));
            }
        }
    })
}

/// Visits the XIDs of prepared transactions.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_prepared(
    database: *const ink_database,
    visit: VisitName,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let xids = database.0.prepared_transactions();
        visit_names(xids.iter().map(Vec::as_slice), visit, context);
    })
}

/// Commits by XID.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_commit_by_xid(
    database: *const ink_database,
    xid: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.commit_prepared(xid.bytes()?)?;
    })
}

/// Rolls back by XID.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_rollback_by_xid(
    database: *const ink_database,
    xid: ink_slice,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        database.0.rollback_prepared(xid.bytes()?)?;
    })
}
