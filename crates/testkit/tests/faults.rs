//! The k-th read, write, sync, allocation or other operation fails, for many k.

use inkstone_io::sim::{Fault, OpKind};
use inkstone_testkit::driver::Marks;
use inkstone_testkit::faults;

fn campaign(kind: OpKind, fault: Fault, first: u64, step: u64, count: u64) {
    let mut marks = Marks::default();
    for n in 0..count {
        let times = if n % 3 == 2 { 3 } else { 1 };
        let (seen, result) = faults::run(n, kind, first + n * step, fault, times, false);
        marks.merge(&seen);
        result.unwrap_or_else(|text| panic!("{text}"));
    }
    assert!(marks.get("cycles") > count);
}

#[test]
fn failing_syncs_lose_nothing() {
    campaign(OpKind::Sync, Fault::Eio, 1, 2, 20);
}

#[test]
fn failing_writes_lose_nothing() {
    campaign(OpKind::Write, Fault::Eio, 1, 7, 15);
    campaign(OpKind::Write, Fault::ShortWrite, 3, 11, 10);
}

#[test]
fn a_full_disk_loses_nothing() {
    campaign(OpKind::Write, Fault::Enospc, 20, 9, 10);
    campaign(OpKind::Allocate, Fault::Enospc, 1, 1, 20);
}

#[test]
fn failing_reads_lose_nothing() {
    campaign(OpKind::Read, Fault::Eio, 1, 13, 20);
}

/// Not solved: a sync of the log fails, the process ends, the next one finds the log's end in the
/// page cache, takes its own successful sync for a proof that it is on disk, and goes on behind it;
/// then power fails. The kernel had dropped the bytes from what is to be written at the failed
/// sync. Recovery would have to write the log's tail again before it trusts it.
#[test]
#[ignore = "known: recovery trusts the page cache after another process's failed sync"]
fn a_restart_after_a_failed_sync_trusts_nothing_in_the_page_cache() {
    for nth in 1..60 {
        for seed in 0..8 {
            let mut plan = faults::plan(nth * 7 + seed, OpKind::Sync, nth, Fault::Eio, 1);
            plan.restart_after_failed_sync = true;
            let (_, result) = inkstone_testkit::campaign::run(plan);
            result.unwrap_or_else(|text| panic!("sync {nth}, seed {seed}: {text}"));
        }
    }
}
