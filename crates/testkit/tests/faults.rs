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

/// A sync fails, the process ends, and the next one finds in the page cache what the disk will
/// never have: it took a successful sync of its own for a proof, and went on behind the log's end.
#[test]
fn a_restart_after_a_failed_sync_trusts_nothing_in_the_page_cache() {
    for nth in 1..60 {
        for seed in 0..3 {
            let (seed, fault) = (nth * 7 + seed, Fault::Eio);
            let (_, result) = faults::run(seed, OpKind::Sync, nth, fault, 1, false);
            result.unwrap_or_else(|text| panic!("{text}"));
        }
    }
}
