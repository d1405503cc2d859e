//! Free space at the end of a table's file goes back to the file system while the table is in use,
//! and no crash around it loses anything.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Isolation, Options, Table};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads that write pages of a large pool (suppliers, cleaner, behind, checkpoint), and the pages
/// of the largest batch.
const WRITERS: u64 = 7;
const BATCH_PAGES: u64 = 256;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn all_rows(db: &Database, table: &Table) -> Rows {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let rows = txn.range(table, ..).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

fn delete(db: &Database, table: &Table, keys: std::ops::Range<u64>) -> inkstone::Result<()> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    for n in keys {
        txn.delete(table, &key(n))?;
    }
    txn.commit()
}

fn file_bytes(db: &Database, table: &Table) -> u64 {
    db.statistics(table).unwrap().file_bytes
}

fn purge(db: &Database) -> inkstone::Result<()> {
    (0..4).try_for_each(|_| db.purge())
}

fn counter(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn the_background_gives_back_what_many_deletes_leave() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &["second"]).unwrap();
    insert(&db, &table, 0..500, b"stays").unwrap();
    insert(&db, &table, 500..20_000, &[1; 400]).unwrap();
    let large = file_bytes(&db, &table);
    assert!(large > 8 << 20, "{large}");
    delete(&db, &table, 500..20_000).unwrap();
    let begin = Instant::now();
    while file_bytes(&db, &table) > 2 << 20 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{}",
            file_bytes(&db, &table)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    // The size on the disk, not only what is said of it.
    let on_disk = vfs
        .read_raw(&sim_dir().join("t00000001.ink"))
        .unwrap()
        .len() as u64;
    assert!(on_disk < large / 4, "{on_disk}");
    assert!(counter(&db, "file_cuts") > 0);
    assert!(counter(&db, "file_bytes_given_back") >= large - (2 << 20));
    assert_eq!(rows(&db, &table).unwrap(), (0..500).collect::<Vec<u64>>());
    db.verify_table(&table).unwrap();
    // It grows again.
    insert(&db, &table, 500..5_000, &[2; 400]).unwrap();
    db.verify_table(&table).unwrap();
    let expected = all_rows(&db, &table);
    drop((table, db));
    let vfs = vfs.kill();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    assert!(all_rows(&db, &table) == expected);
    db.verify_table(&table).unwrap();
}

/// In whatever order rows go, their pages do, also where a merge finds pages evicted, or latched by
/// readers.
#[test]
fn pages_go_with_their_rows_in_any_order() {
    for order in 0..6 {
        let db = open_sim(&SimVfs::new(order), small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        insert(&db, &table, 0..500, b"stays").unwrap();
        insert(&db, &table, 500..8_000, &[1; 400]).unwrap();
        let mut gone: Vec<u64> = (500..8_000).collect();
        match order {
            0 => {}
            1 => gone.reverse(),
            // Odd factors: each key once.
            _ => gone.sort_by_key(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * order)),
        }
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in gone {
            txn.delete(&table, &key(n)).unwrap();
        }
        txn.commit().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        all_rows(&db, &table);
                    }
                });
            }
            purge(&db).unwrap();
            // What was seen by the readers goes behind them.
            std::thread::sleep(Duration::from_millis(300));
            over.store(true, Ordering::Relaxed);
        });
        purge(&db).unwrap();
        let report = db.verify_table(&table).unwrap();
        let (_, rows) = &report.trees[0];
        assert_eq!((rows.rows, rows.deleted_rows), (500, 0));
        assert!(rows.pages.len() < 12, "order {order}: {:?}", rows.pages);
    }
}

/// A table that only grows has a free end, as files grow in steps; it is left alone.
#[test]
fn what_a_file_has_grown_by_is_not_cut() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    insert(&db, &table, 0..9_000, &[1; 400]).unwrap();
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(counter(&db, "file_cuts"), 0);
    // On demand it is.
    assert!(db.shrink_table(&table).unwrap() > 0);
    assert_eq!(db.shrink_table(&table).unwrap(), 0);
    db.verify_table(&table).unwrap();
}

/// What stands in the log about pages that were cut, before and after, on whatever of it a crash
/// leaves: a power loss at each mutation of the disk around a cut and the growth after it.
#[test]
fn a_crash_at_every_step_around_a_cut() {
    let prepare = |seed| {
        let vfs = SimVfs::new(seed);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        insert(&db, &table, 0..100, &[1; 300]).unwrap();
        insert(&db, &table, 100..800, &[2; 900]).unwrap();
        insert(&db, &table, 800..803, &[3; 100_000]).unwrap();
        if seed % 2 == 0 {
            db.checkpoint().unwrap();
        }
        (vfs, db, table)
    };
    // Every statement is acknowledged durably or fails.
    let work = |db: &Database, table: &Table, model: &mut Rows| -> inkstone::Result<()> {
        delete(db, table, 100..803)?;
        model.retain(|k, _| k[..] < key(100)[..]);
        purge(db)?;
        db.shrink_table(table)?;
        insert(db, table, 2000..2900, &[4; 800])?;
        model.extend((2000..2900).map(|n| (key(n).to_vec(), vec![4; 800])));
        insert(db, table, 3000..3002, &[5; 50_000])?;
        model.extend((3000..3002).map(|n| (key(n).to_vec(), vec![5; 50_000])));
        db.shrink_table(table)?;
        delete(db, table, 2000..3002)?;
        model.retain(|k, _| k[..] < key(2000)[..]);
        purge(db)?;
        db.shrink_table(table)?;
        insert(db, table, 4000..4100, &[6; 800])?;
        model.extend((4000..4100).map(|n| (key(n).to_vec(), vec![6; 800])));
        Ok(())
    };
    let (vfs, db, table) = prepare(0);
    let before = vfs.mutations();
    work(&db, &table, &mut all_rows(&db, &table)).unwrap();
    let mutations = vfs.mutations() - before;
    assert!(
        counter(&db, "file_cuts") >= 2,
        "{}",
        counter(&db, "file_cuts")
    );
    drop((table, db));
    assert!(mutations > 30, "{mutations}");
    for at in 1..mutations + 10 {
        let (vfs, db, table) = prepare(at);
        let mut done = all_rows(&db, &table);
        vfs.crash_at(at);
        let result = work(&db, &table, &mut done);
        drop((table, db));
        let mut vfs = vfs.crash(at);
        // And once more in the middle of recovery.
        if at % 3 == 0 {
            vfs.crash_at(1 + at % 17);
            drop(open_sim(&vfs, small()));
            vfs = vfs.crash(at + 1);
        }
        let db = open_sim(&vfs, small()).unwrap_or_else(|e| panic!("crash at {at}: {e}"));
        let table = db.table("t").unwrap();
        let found = all_rows(&db, &table);
        let count = |rows: &Rows, from: u64, to: u64| {
            rows.range(key(from).to_vec()..key(to).to_vec()).count()
        };
        // Each of these is one transaction: there or not, and there if it was acknowledged.
        assert_eq!(count(&found, 0, 100), 100, "crash at {at}");
        // The one that failed may have been committed all the same.
        let mut different = 0;
        for (from, to) in [(100, 803), (2000, 2900), (3000, 3002), (4000, 4100)] {
            let (now, known) = (count(&found, from, to), count(&done, from, to));
            let whole = now == 0 || now as u64 == to - from;
            assert!(whole, "crash at {at}: {now} of rows {from} to {to}");
            different += usize::from(now != known);
        }
        // One transaction deletes the rows of two.
        if count(&found, 2000, 3002) == 0 && count(&done, 2000, 3002) == 902 {
            different -= 1;
        }
        assert!(
            different <= usize::from(result.is_err()),
            "crash at {at}: {different}"
        );
        for (key, value) in &found {
            assert!(
                done.get(key).is_none_or(|known| known == value),
                "crash at {at}"
            );
        }
        db.verify_table(&table).unwrap();
        let _ = db.shrink_table(&table).unwrap();
        insert(&db, &table, 9000..9200, &[7; 900]).unwrap();
        db.verify_table(&table).unwrap();
    }
}

/// Cutting goes on while others insert, delete, read, and drop long values.
#[test]
fn cuts_under_load() {
    let vfs = SimVfs::new(5);
    let db = open_sim(
        &vfs,
        Options {
            buffer_pool_size: 2 << 20,
            ..small()
        },
    )
    .unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..50, b"stays").unwrap();
    let begin = Instant::now();
    let running = || begin.elapsed() < Duration::from_secs(6);
    std::thread::scope(|scope| {
        for thread in 1..5u64 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let base = thread << 32;
                for round in 0u64.. {
                    if !running() {
                        break;
                    }
                    let value = vec![round as u8; 200 + (round as usize % 7) * 100];
                    let keys = base..base + 300;
                    insert(db, table, keys.clone(), &value).unwrap();
                    let long = db.begin(Isolation::ReadCommitted).unwrap();
                    long.upsert(table, &key(base + 1000), &vec![round as u8; 60_000])
                        .unwrap();
                    long.commit().unwrap();
                    let txn = db.begin(Isolation::ReadCommitted).unwrap();
                    let found = txn
                        .range(table, &key(base)[..]..&key(base + 300)[..])
                        .unwrap();
                    assert!(found.map(|row| row.unwrap().1).all(|found| found == value));
                    drop(txn);
                    delete(db, table, keys).unwrap();
                    delete(db, table, base + 1000..base + 1001).unwrap();
                }
            });
        }
        while running() {
            purge(&db).unwrap();
            db.shrink_table(&table).unwrap();
        }
    });
    purge(&db).unwrap();
    db.verify_table(&table).unwrap();
    db.shrink_table(&table).unwrap();
    assert!(
        counter(&db, "file_cuts") > 3,
        "{}",
        counter(&db, "file_cuts")
    );
    let expected = all_rows(&db, &table);
    assert_eq!(expected.len(), 50);
    drop((table, db));
    let vfs = vfs.kill();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    assert!(all_rows(&db, &table) == expected);
    db.verify_table(&table).unwrap();
}

/// A file of several regions, each with a space map of its own, gets down to the first one and up
/// again; also after a crash in between.
#[test]
fn regions_at_the_end_go_and_come_back() {
    let vfs = SimVfs::new(9);
    let options = || Options {
        buffer_pool_size: 8 << 20,
        ..small()
    };
    let db = open_sim(&vfs, options()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..10, b"stays").unwrap();
    let long = |n: u64| insert(&db, &table, n..n + 1, &vec![n as u8; 10 << 20]);
    for n in 100..114 {
        long(n).unwrap();
    }
    let large = file_bytes(&db, &table);
    assert!(large > 135 << 20, "{large}");
    delete(&db, &table, 100..114).unwrap();
    purge(&db).unwrap();
    while db.shrink_table(&table).unwrap() > 0 {}
    assert!(
        file_bytes(&db, &table) < 1 << 20,
        "{}",
        file_bytes(&db, &table)
    );
    db.verify_table(&table).unwrap();
    for n in 200..214 {
        long(n).unwrap();
    }
    assert!(file_bytes(&db, &table) > 135 << 20);
    db.verify_table(&table).unwrap();
    drop((table, db));
    let vfs = vfs.crash(3);
    let db = open_sim(&vfs, options()).unwrap();
    let table = db.table("t").unwrap();
    db.verify_table(&table).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 200..214 {
        assert!(txn.get(&table, &key(n)).unwrap() == Some(vec![n as u8; 10 << 20]));
    }
    drop(txn);
    delete(&db, &table, 200..214).unwrap();
    purge(&db).unwrap();
    db.shrink_table(&table).unwrap();
    drop((table, db));
    let vfs = vfs.crash(4);
    let db = open_sim(&vfs, options()).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(rows(&db, &table).unwrap(), (0..10).collect::<Vec<u64>>());
    db.verify_table(&table).unwrap();
}

/// Frames of a dropped table that is larger than what is forgotten at once are left to leave by
/// themselves: nothing of them is written, and no checkpoint waits for them.
#[test]
fn a_large_table_is_dropped_and_nothing_of_it_is_written() {
    let vfs = SimVfs::new(1);
    let options = inkstone::Options {
        buffer_pool_size: 64 << 20,
        log_file_size: 128 << 20,
        ..small()
    };
    let db = open_sim(&vfs, options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..8_000, &[1; 3000]).unwrap();
    db.checkpoint().unwrap();
    // Each page once more.
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..8_000 {
        txn.update(&table, &key(n), &[2; 3000]).unwrap();
    }
    txn.commit().unwrap();
    drop(table);
    db.drop_table("t").unwrap();
    let written = counter(&db, "pages_written");
    db.checkpoint().unwrap();
    // Of some 8,000 dirty pages only those are written that were in flight when the table was
    // dropped: one batch of each writing thread, at most.
    let written = counter(&db, "pages_written") - written;
    assert!(written <= WRITERS * BATCH_PAGES, "{written}");
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..8_000, &[3; 3000]).unwrap();
    db.verify_table(&table).unwrap();
    db.close().unwrap();
}
