//! Scans of data that is not in memory: leaves come many at a time, before they are wanted.

mod failure_support;

use failure_support::{key, open_sim, small};
use inkstone::{Database, Isolation, LockMode, Options, Table, Transaction, Wait};
use inkstone_io::sim::{Fault, OpKind, SimVfs};

const ROWS: u64 = 20_000;
/// Of 400 bytes, in pages of 16 KiB.
const LEAVES: u64 = ROWS / 45;

fn options() -> Options {
    Options {
        page_size: 16 << 10,
        buffer_pool_size: 2 << 20,
        ..small()
    }
}

/// A database whose table is not in memory, filled in order or not.
fn cold(in_order: bool) -> (SimVfs, Database, Table) {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, options()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let at = |n: u64| if in_order { n } else { n * 7919 % ROWS };
    for from in (0..ROWS).step_by(1000) {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in from..from + 1000 {
            txn.insert(&table, &key(at(n)), &[7; 400]).unwrap();
        }
        txn.commit().unwrap();
    }
    db.close().unwrap();
    let db = open_sim(&vfs, options()).unwrap();
    let table = db.table("t").unwrap();
    (vfs, db, table)
}

fn metric(db: &Database, name: &str) -> u64 {
    let status = db.status();
    let found = status.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name}")).1
}

/// Pages, and calls that read them.
fn reads(db: &Database, scan: impl FnOnce(&Transaction) -> usize) -> (usize, u64, u64) {
    let counters = ["pages_read", "data_read_calls"];
    let before = counters.map(|name| metric(db, name));
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let rows = scan(&txn);
    txn.commit().unwrap();
    let [pages, calls] = [0, 1].map(|n| metric(db, counters[n]) - before[n]);
    (rows, pages, calls)
}

#[test]
fn a_scan_reads_many_leaves_at_a_time() {
    for way in ["forward", "backward", "locking"] {
        let (_vfs, db, table) = cold(true);
        let (rows, pages, calls) = reads(&db, |txn| match way {
            "forward" => txn.range(&table, ..).unwrap().count(),
            "backward" => txn.range_backward(&table, ..).unwrap().count(),
            _ => txn
                .range_locking(&table, .., LockMode::Exclusive, Wait::Timeout)
                .unwrap()
                .count(),
        });
        assert_eq!(rows as u64, ROWS, "{way}");
        assert!((LEAVES..LEAVES * 5 / 4).contains(&pages), "{way}: {pages}");
        assert!(calls * 5 < pages, "{way}: {calls} reads of {pages} pages");
        assert!(metric(&db, "pages_read_ahead") > LEAVES * 4 / 5, "{way}");
        db.close().unwrap();
    }
}

/// Where leaves do not lie in order they are read side by side.
#[test]
fn a_scan_of_scattered_leaves_reads_each_once() {
    let (_vfs, db, table) = cold(false);
    let (rows, pages, _) = reads(&db, |txn| txn.range(&table, ..).unwrap().count());
    assert_eq!(rows as u64, ROWS);
    let leaves = LEAVES * 2;
    assert!(pages < leaves, "{pages}");
    assert!(metric(&db, "pages_read_ahead") > pages / 2);
    db.close().unwrap();
}

/// Nothing behind the end of the range, and not much for a scan that stops.
#[test]
fn short_scans_read_little_for_nothing() {
    let (_vfs, db, table) = cold(true);
    let per_leaf = (ROWS / LEAVES) as usize;
    // The inner nodes.
    reads(&db, |txn| txn.get(&table, &key(0)).unwrap().iter().count());
    for (n, backward) in [(3, false), (5, true), (7, false), (9, true)] {
        let from = n * 2000;
        let to = from + 8 * per_leaf as u64;
        let range = key(from)..=key(to);
        let bounds = (
            std::ops::Bound::Included(&range.start()[..]),
            std::ops::Bound::Included(&range.end()[..]),
        );
        let (rows, pages, _) = reads(&db, |txn| {
            if backward {
                txn.range_backward(&table, bounds).unwrap().count()
            } else {
                txn.range(&table, bounds).unwrap().count()
            }
        });
        assert_eq!(rows as u64, to - from + 1);
        assert!(pages <= 11, "{pages} pages for about 9 leaves");
    }
    let (_, pages, _) = reads(&db, |txn| {
        let first = &key(15_000)[..];
        txn.range(&table, first..)
            .unwrap()
            .take(6 * per_leaf)
            .count()
    });
    assert!(pages <= 14, "{pages} pages for about 7 leaves");
    db.close().unwrap();
}

/// What fails ahead of a scan is read again when it is wanted.
#[test]
fn failed_reads_ahead_are_no_errors() {
    for nth in 1..30 {
        let (vfs, db, table) = cold(true);
        vfs.fail_nth(OpKind::Read, nth, Fault::Eio);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let scan = || {
            txn.range(&table, ..)
                .and_then(|rows| rows.collect::<Result<Vec<_>, _>>())
        };
        let rows = scan().or_else(|_| scan()).unwrap();
        assert_eq!(rows.len() as u64, ROWS);
        txn.commit().unwrap();
        db.close().unwrap();
    }
}

/// Scattered rows whose keys are known come together; those in memory are not read again.
#[test]
fn rows_that_are_looked_up_together_are_read_together() {
    let (_vfs, db, table) = cold(true);
    let keys = |from: u64| (0..8).map(move |n| key((from + n * 2357) % ROWS));
    for from in [0, 100, 5000] {
        let keys: Vec<_> = keys(from).collect();
        let (pages, read, _) = reads(&db, |txn| txn.prefetch(&table, &keys).unwrap());
        assert_eq!(pages, 8);
        // The root, the first time.
        assert!((8..=9).contains(&read), "{read}");
        let (rows, read, _) = reads(&db, |txn| {
            assert_eq!(txn.prefetch(&table, &keys).unwrap(), 0);
            let found = keys.iter().map(|key| txn.get(&table, key).unwrap());
            found.flatten().count()
        });
        assert_eq!((rows, read), (8, 0));
    }
    assert_eq!(metric(&db, "pages_read_ahead"), 3 * 8);
    // No more than stay.
    let many: Vec<_> = (0..ROWS).step_by(100).map(key).collect();
    let (pages, ..) = reads(&db, |txn| txn.prefetch(&table, &many).unwrap());
    assert_eq!(pages, 2 << 20 >> 14 >> 4);
    db.close().unwrap();
}
