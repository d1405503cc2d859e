//! A table's file is made as short as what is in it, while it is used.

mod failure_support;

use failure_support::*;
use inkstone::{
    CompactOptions, Database, Durability, Error, Isolation, Options, PageCompression,
    PagePlacement, Table, TableOptions,
};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn all_rows(db: &Database, table: &Table) -> Rows {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let rows = txn.range(table, ..).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

fn file_bytes(db: &Database, table: &Table) -> u64 {
    db.statistics(table).unwrap().file_bytes
}

/// Deletes all rows of `keys` but each tenth.
fn prune(db: &Database, table: &Table, keys: std::ops::Range<u64>) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in keys.filter(|n| n % 10 > 0) {
        txn.delete(table, &key(n)).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn what_is_pruned_goes_back() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &["second"]).unwrap();
    insert(&db, &table, 0..40_000, &[1; 400]).unwrap();
    db.shrink_table(&table).unwrap();
    let before = file_bytes(&db, &table);
    prune(&db, &table, 0..40_000);
    let report = db.compact_table(&table).unwrap();
    assert_eq!(report.bytes_after, file_bytes(&db, &table));
    assert!(report.bytes_after <= before / 9, "{before}: {report:?}");
    db.verify_table(&table).unwrap();
    let expected: Vec<u64> = (0..40_000).filter(|n| n % 10 == 0).collect();
    assert_eq!(rows(&db, &table).unwrap(), expected);
}

/// It was written again in each of eight rounds, each time behind the end and back.
#[test]
fn a_value_that_is_longer_than_the_hole_before_it_stays() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..1, &[1; 300_000]).unwrap();
    insert(&db, &table, 1..2, &[2; 1_000_000]).unwrap();
    insert(&db, &table, 2..3, &[3; 100_000]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.delete(&table, &key(0)).unwrap();
    txn.commit().unwrap();
    let before = all_rows(&db, &table);
    let report = db.compact_table(&table).unwrap();
    // The last one goes into the hole.
    assert_eq!(report.long_values_moved, 1, "{report:?}");
    assert!(report.bytes_after < report.bytes_before, "{report:?}");
    db.verify_table(&table).unwrap();
    assert!(all_rows(&db, &table) == before);
}

/// A snapshot that is older than the deletes reads on; when it is gone the space goes, too.
#[test]
fn an_old_snapshot_reads_on() {
    let vfs = SimVfs::new(2);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..5_000, &[1; 400]).unwrap();
    insert(&db, &table, 5_000..5_100, &[2; 20_000]).unwrap();
    let all = all_rows(&db, &table);
    let old = db.begin_with_snapshot().unwrap();
    prune(&db, &table, 0..5_100);
    let kept = db.compact_table(&table).unwrap();
    let seen: Rows = old.range(&table, ..).unwrap().map(Result::unwrap).collect();
    assert!(seen == all);
    old.commit().unwrap();
    let report = db.compact_table(&table).unwrap();
    assert!(
        report.bytes_after < kept.bytes_after / 5,
        "{kept:?} {report:?}"
    );
    db.verify_table(&table).unwrap();
    assert_eq!(all_rows(&db, &table).len(), 510);
}

/// Long values at the end of the file move, too; rows that others have locked stay.
#[test]
fn long_values_move() {
    let vfs = SimVfs::new(3);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..400, &[1; 30_000]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in (0..400).filter(|n| n % 10 < 9) {
        txn.delete(&table, &key(n)).unwrap();
    }
    txn.commit().unwrap();
    let busy = db.begin(Isolation::RepeatableRead).unwrap();
    busy.update(&table, &key(399), b"short").unwrap();
    let expected = all_rows(&db, &table);
    let report = db.compact_table(&table).unwrap();
    assert!(report.long_values_moved > 10, "{report:?}");
    assert!(all_rows(&db, &table) == expected);
    busy.rollback().unwrap();
    let report = db.compact_table(&table).unwrap();
    assert!(report.bytes_after < 40 * 40_000, "{report:?}");
    assert!(all_rows(&db, &table) == expected);
    db.verify_table(&table).unwrap();
}

/// Readers find every row that stays, and writers write, while leaves are packed and pages move.
#[test]
fn what_is_pruned_goes_back_beside_readers_and_writers() {
    let vfs = SimVfs::new(4);
    let options = Options {
        buffer_pool_size: 2 << 20,
        ..small()
    };
    let db = open_sim(&vfs, options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..20_000, &[1; 300]).unwrap();
    let before = file_bytes(&db, &table);
    prune(&db, &table, 0..20_000);
    let (over, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let report = std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (db, table, over, reads) = (&db, &table, &over, &reads);
            scope.spawn(move || {
                let mut n = thread;
                while !over.load(Ordering::Relaxed) {
                    n = (n * 7 + 10) % 20_000 / 10 * 10;
                    let txn = db.begin(Isolation::ReadCommitted).unwrap();
                    assert!(txn.get(table, &key(n)).unwrap().is_some(), "row {n}");
                    let from = key(n);
                    let some = txn.range(table, &from[..]..).unwrap().take(50);
                    some.for_each(|row| drop(row.unwrap()));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (db, table, over, writes) = (&db, &table, &over, &writes);
        scope.spawn(move || {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                n = (n + 7919) % 20_000;
                let at = n / 10 * 10 + 3;
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                txn.upsert(table, &key(at), &[2; 500]).unwrap();
                txn.delete(table, &key(at)).unwrap();
                txn.commit().unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Purge comes to the rows meanwhile, which takes its time beside others.
        let begin = Instant::now();
        let mut report = db.compact_table(table).unwrap();
        while report.bytes_after >= before / 3 && begin.elapsed() < Duration::from_secs(30) {
            report = db.compact_table(table).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        report
    });
    assert!(reads.into_inner() > 0 && writes.into_inner() > 0);
    assert!(report.bytes_after < before / 3, "{before}: {report:?}");
    db.verify_table(&table).unwrap();
    let report = db.compact_table(&table).unwrap();
    assert!(report.bytes_after < before / 8, "{before}: {report:?}");
    let expected: Vec<u64> = (0..20_000).filter(|n| n % 10 == 0).collect();
    assert_eq!(rows(&db, &table).unwrap(), expected);
    db.verify_table(&table).unwrap();
}

/// A power loss at mutations of the disk throughout a compaction: every row is there, once.
#[test]
fn a_crash_at_every_step_of_a_compaction() {
    let prepare = |seed| {
        let vfs = SimVfs::new(seed);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        insert(&db, &table, 0..2_000, &[1; 300]).unwrap();
        insert(&db, &table, 2_000..2_040, &[2; 20_000]).unwrap();
        prune(&db, &table, 0..2_040);
        if seed % 2 == 0 {
            db.checkpoint().unwrap();
        }
        (vfs, db, table)
    };
    let work = |db: &Database, table: &Table| {
        db.compact_table(table)?;
        insert(db, table, 5_000..5_100, &[3; 300])
    };
    let (vfs, db, table) = prepare(0);
    let expected = all_rows(&db, &table);
    let before = vfs.mutations();
    work(&db, &table).unwrap();
    let mutations = vfs.mutations() - before;
    assert!(mutations > 20, "{mutations}");
    for at in 1..mutations + 5 {
        let (vfs, db, table) = prepare(at);
        vfs.crash_at(at);
        let result = work(&db, &table);
        drop((table, db));
        let vfs = vfs.crash(at);
        let db = open_sim(&vfs, small()).unwrap_or_else(|e| panic!("crash at {at}: {e}"));
        let table = db.table("t").unwrap();
        db.verify_table(&table)
            .unwrap_or_else(|e| panic!("crash at {at}: {e}"));
        let mut found = all_rows(&db, &table);
        let new = found.split_off(&key(5_000)[..]);
        assert!(found == expected, "crash at {at}: {} rows", found.len());
        assert!(new.len() == 100 || new.is_empty() && result.is_err());
        let report = db.compact_table(&table).unwrap();
        assert!(report.bytes_after < 400_000, "crash at {at}: {report:?}");
        db.verify_table(&table).unwrap();
        let mut found = all_rows(&db, &table);
        found.split_off(&key(5_000)[..]);
        assert!(found == expected, "crash at {at}: {} rows", found.len());
    }
}

/// Figures, of a release build: `cargo test --release -p inkstone --test compact_table -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes a minute, and asserts nothing about speed"]
fn figures() {
    const ROWS: u64 = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        buffer_pool_size: 512 << 20,
        log_file_size: 256 << 20,
        ..Options::default()
    };
    let db = Database::open(directory.path(), options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    for from in (0..ROWS).step_by(10_000) {
        insert(&db, &table, from..from + 10_000, &noise(from, 200)).unwrap();
    }
    db.shrink_table(&table).unwrap();
    let before = file_bytes(&db, &table);
    let begin = Instant::now();
    for from in (0..ROWS).step_by(10_000) {
        prune(&db, &table, from..from + 10_000);
    }
    println!("{before} bytes; pruned in {:?}", begin.elapsed());
    let begin = Instant::now();
    (0..8).for_each(|_| db.purge().unwrap());
    println!("purged in {:?}", begin.elapsed());
    db.shrink_table(&table).unwrap();
    println!("{} bytes before the compaction", file_bytes(&db, &table));
    let (over, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                n = (n + 7_919 * 10) % ROWS;
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                assert!(txn.get(&table, &key(n)).unwrap().is_some(), "row {n}");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                n = (n + 7_907 * 10) % ROWS;
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                txn.update(&table, &key(n), &noise(n, 200)).unwrap();
                txn.commit_with(Durability::Lazy).unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let rates = |what: &str, work: &dyn Fn()| {
            let before = (
                reads.load(Ordering::Relaxed),
                writes.load(Ordering::Relaxed),
            );
            let begin = Instant::now();
            work();
            let seconds = begin.elapsed().as_secs_f64();
            let each = |count: &AtomicU64, before| {
                (count.load(Ordering::Relaxed) - before) as f64 / seconds
            };
            println!(
                "{what}: {seconds:.2} s, {:.0} reads and {:.0} updates a second",
                each(&reads, before.0),
                each(&writes, before.1)
            );
        };
        rates("alone", &|| std::thread::sleep(Duration::from_secs(3)));
        rates("beside it", &|| {
            println!("{:?}", db.compact_table(&table).unwrap());
        });
        rates("alone", &|| std::thread::sleep(Duration::from_secs(3)));
        over.store(true, Ordering::Relaxed);
    });
    println!("{:?}", db.compact_table(&table).unwrap());
    db.verify_table(&table).unwrap();
}

/// It ends when it is told to, at its speed, and not where it may not work.
#[test]
fn options_and_errors() {
    let vfs = SimVfs::new(6);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..10_000, &[1; 300]).unwrap();
    prune(&db, &table, 0..10_000);
    let stop = |_| false;
    let options = CompactOptions::new().progress(&stop);
    let report = db.compact_table_with(&table, &options).unwrap();
    assert!(report.nodes_packed < 70, "{report:?}");
    // 100 pages of 4 KiB in a second.
    let begin = std::time::Instant::now();
    let few = |now: inkstone::CompactReport| now.nodes_packed + now.pages_moved < 50;
    let options = CompactOptions::new()
        .bytes_per_second(100 * 4096)
        .progress(&few);
    db.compact_table_with(&table, &options).unwrap();
    assert!(begin.elapsed().as_millis() > 300, "{:?}", begin.elapsed());
    let export = db.export_table(&table).unwrap();
    let refused = failed(db.compact_table(&table));
    assert!(matches!(refused, Error::TransactionState(_)), "{refused}");
    drop(export);
    db.compact_table(&table).unwrap();
    db.drop_table("t").unwrap();
    assert!(matches!(
        failed(db.compact_table(&table)),
        Error::NotFound(_)
    ));
}

/// A long value that moves is no update that another transaction could lose.
#[test]
fn a_long_value_that_moves_is_no_conflict() {
    let vfs = SimVfs::new(7);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..100, &[1; 30_000]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..90 {
        txn.delete(&table, &key(n)).unwrap();
    }
    txn.commit().unwrap();
    (0..4).for_each(|_| db.purge().unwrap());
    let older = db.begin_with_snapshot().unwrap();
    let changed = db.begin(Isolation::ReadCommitted).unwrap();
    changed.update(&table, &key(98), &[2; 30_000]).unwrap();
    changed.commit().unwrap();
    let report = db.compact_table(&table).unwrap();
    assert!(report.long_values_moved >= 9, "{report:?}");
    assert_eq!(older.get(&table, &key(99)).unwrap().unwrap(), [1; 30_000]);
    older.update(&table, &key(99), b"mine").unwrap();
    older.update(&table, &key(97), &[3; 20_000]).unwrap();
    // What another one has changed still is, though it moved behind that.
    let lost = failed(older.update(&table, &key(98), b"mine"));
    assert!(matches!(lost, Error::WriteConflict), "{lost}");
    older.commit().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert_eq!(txn.get(&table, &key(99)).unwrap().unwrap(), b"mine");
    assert_eq!(txn.get(&table, &key(98)).unwrap().unwrap(), [2; 30_000]);
    db.compact_table(&table).unwrap();
    db.verify_table(&table).unwrap();
}

/// Pages of trees and long values move into regions before theirs, of another space map.
#[test]
fn pages_move_over_regions() {
    let vfs = SimVfs::new(9);
    let options = Options {
        buffer_pool_size: 8 << 20,
        ..small()
    };
    let db = open_sim(&vfs, options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    for n in 100..114 {
        insert(&db, &table, n..n + 1, &vec![n as u8; 10 << 20]).unwrap();
    }
    insert(&db, &table, 200..2_000, &[7; 400]).unwrap();
    insert(&db, &table, 3_000..3_010, &[8; 20_000]).unwrap();
    let before = file_bytes(&db, &table);
    assert!(before > 135 << 20, "{before}");
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 100..114 {
        txn.delete(&table, &key(n)).unwrap();
    }
    txn.commit().unwrap();
    let expected = all_rows(&db, &table);
    let report = db.compact_table(&table).unwrap();
    assert!(report.pages_moved > 100, "{report:?}");
    assert!(report.bytes_after < 2 << 20, "{report:?}");
    assert!(all_rows(&db, &table) == expected);
    db.verify_table(&table).unwrap();
    drop((table, db));
    let db = open_sim(&vfs.crash(1), small()).unwrap();
    let table = db.table("t").unwrap();
    assert!(all_rows(&db, &table) == expected);
    db.verify_table(&table).unwrap();
}

/// Of a placed table, too, the file's bytes go back.
#[test]
fn a_placed_table_is_compacted() {
    for compression in [PageCompression::None, PageCompression::Lz4] {
        let vfs = SimVfs::new(10);
        let db = open_sim(&vfs, small()).unwrap();
        let placed = TableOptions::new()
            .page_placement(PagePlacement::Placed)
            .page_compression(compression);
        let table = db.create_table_with("t", &[], &placed).unwrap();
        for n in 0..40_000 {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.insert(&table, &key(n), &noise(n, 300)).unwrap();
            txn.commit_with(Durability::Lazy).unwrap();
        }
        db.shrink_table(&table).unwrap();
        let before = file_bytes(&db, &table);
        prune(&db, &table, 0..40_000);
        let expected = all_rows(&db, &table);
        let report = db.compact_table(&table).unwrap();
        eprintln!("{before} {report:?}");
        assert!(report.bytes_after < before / 4, "{before} {report:?}");
        assert!(all_rows(&db, &table) == expected);
        db.verify_table(&table).unwrap();
        drop((table, db));
        let db = open_sim(&vfs.crash(1), small()).unwrap();
        let table = db.table("t").unwrap();
        assert!(all_rows(&db, &table) == expected);
        db.verify_table(&table).unwrap();
    }
}
