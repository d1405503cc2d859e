//! Counters, gauges and durations; lists of transactions, locks and waits.

use crate::database::ink_database;
use crate::entry::{entry, on_or};
use crate::error::ink_error;
use crate::raw::{self, ink_buffer, ink_slice};
use crate::rows::lock_number;
use crate::transaction::isolation_number;
use inkstone::{LockState, LockTarget, LockView};
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
    rows: u64,
    row_locks: u64,
    range_locks: u64,
    waits_for: u64,
    waited_ms: u64,
    statement: ink_slice,
}

/// `ink_duration_bucket`.
#[repr(C)]
pub struct ink_duration_bucket {
    name: ink_slice,
    longest_ns: u64,
    count: u64,
}

/// `ink_lock_info`.
#[repr(C)]
pub struct ink_lock_info {
    transaction: u64,
    tag: u64,
    state: u32,
    kind: u32,
    mode: u32,
    table: ink_slice,
    tree: ink_slice,
    low: ink_slice,
    high: ink_slice,
    low_bound: u32,
    high_bound: u32,
    waits_for: u64,
    waited_ms: u64,
    place: u64,
    inserts: bool,
    statement: ink_slice,
}

pub type VisitMetric = Option<unsafe extern "C" fn(*mut c_void, *const ink_metric) -> bool>;
pub type VisitDuration = Option<unsafe extern "C" fn(*mut c_void, *const ink_duration) -> bool>;
pub type VisitTransaction =
    Option<unsafe extern "C" fn(*mut c_void, *const ink_transaction_info) -> bool>;
pub type VisitLock = Option<unsafe extern "C" fn(*mut c_void, *const ink_lock_info) -> bool>;
pub type VisitBucket =
    Option<unsafe extern "C" fn(*mut c_void, *const ink_duration_bucket) -> bool>;

/// Whether a visitor has seen it and wants more.
///
/// # Safety
/// `visit` and `context` are the caller's; its function returns normally.
unsafe fn shown<T>(
    visit: Option<unsafe extern "C" fn(*mut c_void, *const T) -> bool>,
    context: *mut c_void,
    item: &T,
) -> bool {
    // SAFETY: as this function asks; the item lives until the visitor is back.
    visit.is_some_and(|visit| unsafe { visit(context, item) })
}

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
                if !shown(visit, context, &metric) {
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
                if !shown(visit, context, &duration) {
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
                rows: trx.rows,
                row_locks: trx.row_locks,
                range_locks: trx.range_locks,
                waits_for,
                waited_ms: milliseconds(waited),
                statement: text(&trx.statement),
            };
            if !shown(visit, context, &info) {
                break;
            }
        }
    })
}

/// Visits the buckets of the durations.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_duration_buckets(
    database: *const ink_database,
    visit: VisitBucket,
    context: *mut c_void,
) {
    // SAFETY: the caller's pointers are as the header asks; its function returns normally.
    unsafe {
        on_or(database, (), |database| {
            for bucket in database.0.duration_histogram() {
                let bucket = ink_duration_bucket {
                    name: ink_slice::lend(bucket.name.as_bytes()),
                    longest_ns: bucket.longest.map_or(u64::MAX, nanoseconds),
                    count: bucket.count,
                };
                if !shown(visit, context, &bucket) {
                    break;
                }
            }
        });
    }
}

/// Shows a lock to a visitor; a wait once for each that it waits for.
fn show_lock(lock: &LockView, mut visit: impl FnMut(&ink_lock_info) -> bool) -> bool {
    let (kind, low, high) = match &lock.target {
        LockTarget::Row(key) => {
            let key = (1, ink_slice::lend(key));
            (0, key, key)
        }
        LockTarget::Range(low, high) => (1, lend_bound(low), lend_bound(high)),
        LockTarget::Gap(low, high) => (2, lend_bound(low), lend_bound(high)),
    };
    let mut info = ink_lock_info {
        transaction: lock.transaction,
        tag: lock.tag,
        state: 0,
        kind,
        mode: lock_number(lock.mode),
        table: text(&lock.table),
        tree: text(&lock.tree),
        low: low.1,
        high: high.1,
        low_bound: low.0,
        high_bound: high.0,
        waits_for: 0,
        waited_ms: 0,
        place: 0,
        inserts: false,
        statement: ink_slice::lend(&[]),
    };
    match &lock.state {
        LockState::Held => visit(&info),
        LockState::Changed => {
            info.state = 1;
            visit(&info)
        }
        LockState::Waits {
            waited,
            place,
            inserts,
            blockers,
            statement,
        } => {
            info.state = 2;
            info.waited_ms = milliseconds(*waited);
            info.place = place.unwrap_or_default() as u64;
            info.inserts = *inserts;
            info.statement = text(statement);
            blockers.iter().all(|&blocker| {
                info.waits_for = blocker;
                visit(&info)
            })
        }
    }
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
        let show = |info: &ink_lock_info| shown(visit, context, info);
        database.0.visit_locks(|lock| show_lock(lock, show))?;
    })
}

/// Visits the waiters.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ink_waits(
    database: *const ink_database,
    visit: VisitLock,
    context: *mut c_void,
    error: *mut ink_error,
) -> c_int {
    entry!(error, |database| {
        let show = |info: &ink_lock_info| shown(visit, context, info);
        for wait in database.0.lock_waits()? {
            if !show_lock(&wait, show) {
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
