//! Counters, gauges and durations; lists of transactions, locks and waits.

use crate::database::ink_database;
use crate::entry::{entry, on_or};
use crate::error::ink_error;
use crate::raw::{self, ink_buffer, ink_slice};
use crate::rows::lock_number;
use crate::transaction::isolation_number;
use inkstone::LockTarget;
use std::ffi::{c_int, c_void};
use std::ops::Bound;
use std::time::Duration;

/// `ink_metric`.
#[repr(C)]
pub struct ink_metric {
    name: ink_slice,
    help: ink_slice,
    value: u64,
    is_gauge: bool,
}

/// `ink_duration`.
#[repr(C)]
pub struct ink_duration {
    name: ink_slice,
    help: ink_slice,
    count: u64,
    sum_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

/// `ink_transaction_info`.
#[repr(C)]
pub struct ink_transaction_info {
    id: u64,
    tag: u64,
    state: u32,
    isolation: u32,
    age_ms: u64,
    changes: u64,
    row_locks: u64,
    range_locks: u64,
    waits_for: u64,
    waited_ms: u64,
}

/// `ink_lock_info`.
#[repr(C)]
pub struct ink_lock_info {
    transaction: u64,
    kind: u32,
    mode: u32,
    table: ink_slice,
    tree: ink_slice,
    low: ink_slice,
    high: ink_slice,
    low_bound: u32,
    high_bound: u32,
}

/// `ink_wait_info`.
#[repr(C)]
pub struct ink_wait_info {
    waiter: u64,
    blocker: u64,
    waited_ms: u64,
    table: ink_slice,
    tree: ink_slice,
    key: ink_slice,
    mode: u32,
}

pub type VisitMetric = unsafe extern "C" fn(*mut c_void, *const ink_metric) -> bool;
pub type VisitDuration = unsafe extern "C" fn(*mut c_void, *const ink_duration) -> bool;
pub type VisitTransaction = unsafe extern "C" fn(*mut c_void, *const ink_transaction_info) -> bool;
pub type VisitLock = unsafe extern "C" fn(*mut c_void, *const ink_lock_info) -> bool;
pub type VisitWait = unsafe extern "C" fn(*mut c_void, *const ink_wait_info) -> bool;

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn text(name: &Option<String>) -> ink_slice {
    ink_slice::lend(name.as_deref().unwrap_or_default().as_bytes())
}

fn lend_bound(bound: &Bound<Vec<u8>>) -> (u32, ink_slice) {
    match bound {
        Bound::Unbounded => (0, ink_slice::lend(&[])),
        Bound::Included(key) => (1, ink_slice::lend(key)),
        Bound::Excluded(key) => (2, ink_slice::lend(key)),
    }
}

/// Visits counters and gauges.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_metrics(
    database: *const ink_database,
    visit: VisitMetric,
    context: *mut c_void,
) {
    // SAFETY: the caller's pointers are as the header asks; its function returns normally.
    unsafe {
        on_or(database, (), |database| {
            for metric in database.0.metrics() {
                let metric = ink_metric {
                    name: ink_slice::lend(metric.name.as_bytes()),
                    help: ink_slice::lend(metric.help.as_bytes()),
                    value: metric.value,
                    is_gauge: metric.is_gauge,
                };
                if !visit(context, &raw const metric) {
                    break;
                }
            }
        });
    }
}

/// Visits the durations.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_durations(
    database: *const ink_database,
    visit: VisitDuration,
    context: *mut c_void,
) {
    // SAFETY: the caller's pointers are as the header asks; its function returns normally.
    unsafe {
        on_or(database, (), |database| {
            for duration in database.0.durations() {
                let duration = ink_duration {
                    name: ink_slice::lend(duration.name.as_bytes()),
                    help: ink_slice::lend(duration.help.as_bytes()),
                    count: duration.count,
                    sum_ns: nanoseconds(duration.sum),
                    p50_ns: nanoseconds(duration.p50),
                    p90_ns: nanoseconds(duration.p90),
                    p99_ns: nanoseconds(duration.p99),
                    p999_ns: nanoseconds(duration.p999),
                    max_ns: nanoseconds(duration.max),
                };
                if !visit(context, &raw const duration) {
                    break;
                }
            }
        });
    }
}

/// Visits the transactions that have not ended.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_transactions(
    database: *const ink_database,
    visit: VisitTransaction,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        for trx in database.0.transactions() {
            let (waits_for, waited) = trx.waits.unwrap_or_default();
            let info = ink_transaction_info {
                id: trx.id,
                tag: trx.tag,
                state: u32::from(trx.prepared),
                isolation: isolation_number(trx.isolation),
                age_ms: milliseconds(trx.age),
                changes: trx.changes,
                row_locks: trx.row_locks,
                range_locks: trx.range_locks,
                waits_for,
                waited_ms: milliseconds(waited),
            };
            if !visit(context, &raw const info) {
                break;
            }
        }
    })
}

/// Visits the explicit locks.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_locks(
    database: *const ink_database,
    visit: VisitLock,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        for lock in database.0.locks()? {
            let (kind, low, high) = match &lock.target {
                LockTarget::Row(key) => {
                    let key = (1, ink_slice::lend(key));
                    (0, key, key)
                }
                LockTarget::Range(low, high) => (1, lend_bound(low), lend_bound(high)),
                LockTarget::Gap(low, high) => (2, lend_bound(low), lend_bound(high)),
            };
            let info = ink_lock_info {
                transaction: lock.transaction,
                kind,
                mode: lock_number(lock.mode),
                table: text(&lock.table),
                tree: text(&lock.tree),
                low: low.1,
                high: high.1,
                low_bound: low.0,
                high_bound: high.0,
            };
            if !visit(context, &raw const info) {
                break;
            }
        }
    })
}

/// Visits those who wait.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_waits(
    database: *const ink_database,
    visit: VisitWait,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        for wait in database.0.lock_waits()? {
            let info = ink_wait_info {
                waiter: wait.waiter,
                blocker: wait.blocker,
                waited_ms: milliseconds(wait.waited),
                table: text(&wait.table),
                tree: text(&wait.tree),
                key: ink_slice::lend(&wait.key),
                mode: lock_number(wait.mode),
            };
            if !visit(context, &raw const info) {
                break;
            }
        }
    })
}

/// An account of the engine.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_status_text(
    database: *const ink_database,
    text: *mut ink_buffer,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        raw::fill(text, crate::status::text(&database.0)?.as_bytes())?;
    })
}

/// The latest deadlock.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_latest_deadlock(
    database: *const ink_database,
    text: *mut ink_buffer,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let latest = database.0.latest_deadlock().unwrap_or_default();
        raw::fill(text, latest.as_bytes())?;
    })
}
