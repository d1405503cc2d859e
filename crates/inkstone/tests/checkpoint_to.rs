//! Copies of a database that are made while it is used (`Database::checkpoint_to`): what they have,
//! what a crash or a full disk leaves of them, and that the database goes on.

mod failure_support;

use failure_support::*;
use inkstone::internals::counters::Counter;
use inkstone::internals::options::{BulkLogging, PageCompression, PagePlacement};
use inkstone::{
    CheckpointOptions, CheckpointProgress, Database, Durability, Error, Isolation, Options, Result,
    Table,
};
use inkstone_io::sim::SimVfs;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: u64 = 4;
/// Transactions of each before a copy is begun.
const WARM: u64 = 300;

fn options(placement: PagePlacement) -> Options {
    Options {
        page_placement: placement,
        ..small()
    }
}

fn open_copy(vfs: &SimVfs, options: Options) -> Result<Database> {
    Database::open_on(Arc::new(vfs.clone()), Path::new("copy"), options, &|_| {})
}

/// The copy on a disk that has lost power: all that it needs is durable.
fn open_behind_crash(vfs: &SimVfs, seed: u64) -> Database {
    let options = Options {
        page_size: 0,
        ..small()
    };
    let copy = open_copy(&vfs.crash(seed), options).unwrap();
    assert!(!copy.open_report().created);
    assert!(copy.open_report().set_aside.is_empty());
    copy.finish_redo().unwrap();
    copy.finish_rollbacks().unwrap();
    verify(&copy);
    copy
}

fn verify(db: &Database) {
    for name in db.tables().unwrap() {
        db.verify_table(&db.table(&name).unwrap()).unwrap();
    }
}

/// The file names in the copy's directory.
fn copied_files(vfs: &SimVfs) -> Vec<String> {
    let all = vfs.files().into_iter();
    let names = all.map(|path| path.display().to_string());
    names.filter(|name| name.contains("copy/")).collect()
}

/// Copies slowly enough for the log to go round several times.
fn slowly<'p>(progress: &'p dyn Fn(CheckpointProgress)) -> CheckpointOptions<'p> {
    CheckpointOptions::new()
        .bytes_per_second(1 << 20)
        .progress(progress)
}

/// Rows of 1000 bytes, five hundred in a transaction.
fn insert_noise(db: &Database, table: &Table, numbers: std::ops::Range<u64>) {
    for first in numbers.clone().step_by(500) {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in first..(first + 500).min(numbers.end) {
            txn.insert(table, &key(n), &noise(n, 1000)).unwrap();
        }
        txn.commit().unwrap();
    }
}

fn row(writer: u64, n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&writer.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Its `n`-th transaction: a row in each of two tables, and how many there are.
fn write(db: &Database, tables: &[Table; 3], writer: u64, n: u64) -> Result<()> {
    let [first, second, counts] = tables;
    let txn = db.begin(Isolation::ReadCommitted)?;
    let bytes = 100 + (n * 37 % 1500) as usize;
    txn.insert(first, &row(writer, n), &noise(n, bytes))?;
    txn.insert(first.tree("by_other")?, &row(n, writer), b"")?;
    if n % 7 == 3 {
        // Rows move, leaves are merged.
        txn.delete(first, &row(writer, n - 2))?;
        txn.insert(first, &row(writer, n - 2), b"short")?;
    }
    txn.insert(second, &row(writer, n), &n.to_be_bytes())?;
    txn.upsert(counts, &key(writer), &(n + 1).to_be_bytes())?;
    txn.commit_with(if n.is_multiple_of(3) {
        Durability::Sync
    } else {
        Durability::Write
    })
}

fn create_tables(db: &Database) -> [Table; 3] {
    [
        db.create_table("first", &["by_other"]).unwrap(),
        db.create_table("second", &[]).unwrap(),
        db.create_table("counts", &[]).unwrap(),
    ]
}

/// How many transactions of a writer the database has: whole ones, and a prefix of them.
fn count(db: &Database, writer: u64) -> u64 {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let [first, second, counts] = ["first", "second", "counts"].map(|t| db.table(t).unwrap());
    let count = txn.get(&counts, &key(writer)).unwrap();
    let count = count.map_or(0, |n| u64::from_be_bytes(n.try_into().unwrap()));
    for table in [&first, &second] {
        let rows = txn.range(table, &row(writer, 0)[..]..&row(writer + 1, 0)[..]);
        let keys: Vec<_> = rows.unwrap().map(|row| row.unwrap().0).collect();
        let expected: Vec<_> = (0..count).map(|n| row(writer, n).to_vec()).collect();
        assert!(
            keys == expected,
            "writer {writer}: {} rows of {count}",
            keys.len()
        );
    }
    let others = txn.range(first.tree("by_other").unwrap(), ..).unwrap();
    let others = others.filter(|entry| entry.as_ref().unwrap().0[8..] == writer.to_be_bytes());
    assert_eq!(others.count() as u64, count);
    count
}

/// Runs `copy` beside writers; what each had acknowledged when it was begun, and when it was over.
fn beside_writers<T>(
    db: &Database,
    tables: &[Table; 3],
    copy: impl FnOnce() -> T,
) -> (T, Vec<u64>, Vec<u64>) {
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let counts = || -> Vec<u64> {
        let counts = acknowledged.iter();
        counts.map(|n| n.load(Ordering::SeqCst)).collect()
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (writer, acknowledged) in (0..).zip(&acknowledged) {
            let over = &over;
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    write(db, tables, writer, n).unwrap();
                    acknowledged.store(n + 1, Ordering::SeqCst);
                    if n > WARM {
                        // Not so many that the test takes as long as they are.
                        std::thread::sleep(std::time::Duration::from_micros(500));
                    }
                }
            });
        }
        while counts().iter().any(|&n| n < WARM) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let before = counts();
        let copied = copy();
        over.store(true, Ordering::SeqCst);
        (copied, before, counts())
    })
}

#[test]
fn a_copy_beside_writers_has_what_was_acknowledged() {
    for (seed, placement) in (0..).zip([PagePlacement::InPlace, PagePlacement::Placed]) {
        let vfs = SimVfs::new(seed);
        let db = open_sim(&vfs, options(placement)).unwrap();
        let tables = create_tables(&db);
        let log = &Cell::new(0);
        let progress = |now: CheckpointProgress| log.set(now.log_bytes);
        let copy = || db.checkpoint_to_with("copy", &slowly(&progress)).unwrap();
        let (report, before, after) = beside_writers(&db, &tables, copy);
        assert_eq!(report.tables, 3);
        assert!(log.get() > 0 && report.log_bytes >= report.end.0 - report.checkpoint.0);
        let copy = open_behind_crash(&vfs, seed);
        for (writer, acknowledged) in (0..).zip(before) {
            let count = count(&copy, writer);
            assert!(count >= acknowledged, "{count} of {acknowledged}");
            assert!(count <= after[writer as usize] + 1);
        }
        // It is a database as any other.
        copy.create_table("new", &[]).unwrap();
        copy.close().unwrap();
        drop((tables, db));
    }
}

/// The log goes round while a copy is made: what is copied of it keeps none of it.
#[test]
fn a_copy_keeps_no_more_log_than_it_has_to_copy() {
    let vfs = SimVfs::new(5);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert_noise(&db, &table, 0..4000);
    let next = &Cell::new(10_000);
    // Three times the log, while one table is copied.
    let progress = |_: CheckpointProgress| {
        if next.get() < 22_000 {
            insert_noise(&db, &table, next.get()..next.get() + 3000);
            next.set(next.get() + 3000);
        }
    };
    let options = CheckpointOptions::new().progress(&progress);
    let report = db.checkpoint_to_with("copy", &options).unwrap();
    assert!(report.log_bytes > 2 * small().log_file_size, "{report:?}");
    assert!(vfs.bytes_in(Path::new("db/log")) <= small().log_file_size + (1 << 20));
    let copy = open_behind_crash(&vfs, 5);
    let expected: Vec<u64> = (0..4000).chain(10_000..next.get()).collect();
    assert_eq!(rows(&copy, &copy.table("t").unwrap()).unwrap(), expected);
}

/// Tables and trees are made, dropped, renamed and replaced between the steps of a copy.
#[test]
fn tables_come_and_go_while_a_copy_is_made() {
    for seed in 0..6u64 {
        let vfs = SimVfs::new(seed);
        let db = open_sim(&vfs, options(PagePlacement::InPlace)).unwrap();
        for n in 0..6 {
            let table = db.create_table(&format!("t{n}"), &["s"]).unwrap();
            insert(&db, &table, 0..2500, &[n as u8; 500]).unwrap();
        }
        let step = &Cell::new(0u64);
        let progress = |_: CheckpointProgress| {
            let n = step.get();
            step.set(n + 1);
            match (n + seed) % 6 {
                // Else there were always one more.
                _ if n > 14 => {}
                0 => {
                    let new = db.create_table(&format!("new{n}"), &[]).unwrap();
                    insert(&db, &new, 0..50, b"new").unwrap();
                }
                1 => {
                    let name = format!("t{}", n % 3);
                    if db.table(&name).is_ok() {
                        db.drop_table(&name).unwrap();
                    }
                }
                2 => drop(db.create_tree("t5", &format!("tree{n}")).unwrap()),
                3 => {
                    let other = db.create_table("other", &[]).unwrap();
                    insert(&db, &other, 0..20, b"other").unwrap();
                    db.replace_table("other", "t4").unwrap();
                }
                4 if db.table("t3").is_ok() => db.rename_table("t3", "renamed").unwrap(),
                _ => {
                    let table = db.table("t5").unwrap();
                    insert(&db, &table, 10_000 + n * 10..10_005 + n * 10, b"row").unwrap();
                }
            }
        };
        let options = CheckpointOptions::new().progress(&progress);
        db.checkpoint_to_with("copy", &options).unwrap();
        assert!(step.get() >= 6, "{} steps", step.get());
        // Nothing has changed since the last step.
        let contents = |db: &Database| -> Vec<(String, Vec<u64>, usize)> {
            let names = db.tables().unwrap().into_iter();
            let content = |name: String| {
                let table = db.table(&name).unwrap();
                (name, rows(db, &table).unwrap(), table.trees().len())
            };
            names.map(content).collect()
        };
        let expected = contents(&db);
        let copy = open_behind_crash(&vfs, seed);
        assert_eq!(contents(&copy), expected);
    }
}

/// Transactions whose undo is in the undo file: one that ends while the copy is made, one that does
/// not, and one that is begun meanwhile.
#[test]
fn large_transactions_are_there_whole_or_not_at_all() {
    for commits in [true, false] {
        let vfs = SimVfs::new(3);
        let db = open_sim(&vfs, small()).unwrap();
        let tables: Vec<_> = (0..3)
            .map(|n| db.create_table(&format!("t{n}"), &[]).unwrap())
            .collect();
        for table in &tables {
            insert(&db, table, 0..4000, &[1; 500]).unwrap();
        }
        let giant = |n: usize| {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for row in 0..4000 {
                txn.update(&tables[n], &key(row), &[2; 500]).unwrap();
            }
            db.maintain(0).unwrap();
            txn
        };
        let open = Cell::new(vec![giant(0), giant(1)]);
        let saved = || db.counters().get(Counter::UndoBytesSaved);
        assert!(saved() > 1 << 20);
        let step = Cell::new(0);
        let progress = |_: CheckpointProgress| {
            step.set(step.get() + 1);
            let mut all = open.take();
            match step.get() {
                2 if commits => all.remove(0).commit().unwrap(),
                2 => all.remove(0).rollback().unwrap(),
                3 => all.push(giant(2)),
                _ => {}
            }
            open.set(all);
        };
        let options = CheckpointOptions::new().progress(&progress);
        let report = db.checkpoint_to_with("copy", &options).unwrap();
        assert!(report.undo_bytes > 1 << 20 && step.get() > 3, "{report:?}");
        let copy = open_behind_crash(&vfs, 3);
        for (n, changed) in [commits, false, false].into_iter().enumerate() {
            let table = copy.table(&format!("t{n}")).unwrap();
            let txn = copy.begin(Isolation::ReadCommitted).unwrap();
            let rows = txn.range(&table, ..).unwrap().map(|row| row.unwrap().1);
            let values: Vec<_> = rows.collect();
            assert_eq!(values.len(), 4000);
            let value = [1 + u8::from(changed); 500];
            assert!(values.iter().all(|found| *found == value), "table {n}");
        }
        open.take().into_iter().for_each(std::mem::forget);
    }
}

/// Bulk inserts of which the log lacks rows when the copy is begun, and others meanwhile.
#[test]
fn rows_that_are_not_in_the_log_are_in_the_copy() {
    let vfs = SimVfs::new(4);
    let minimal = Options {
        bulk_logging: BulkLogging::Minimal,
        buffer_pool_size: 8 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    };
    let db = open_sim(&vfs, minimal).unwrap();
    let load = |table: &Table, numbers: std::ops::Range<u64>| {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        load_more(&txn, table, numbers);
        txn
    };
    let tables: Vec<_> = (0..3)
        .map(|n| db.create_table(&format!("t{n}"), &[]).unwrap())
        .collect();
    let mut begun = Some(load(&tables[0], 0..8000));
    let left_out = || db.counters().get(Counter::RowsLeftOut);
    assert!(left_out() > 0);
    let never = load(&tables[1], 0..8000);
    let before = left_out();
    let step = Cell::new(0);
    let begun_cell = Cell::new(begun.take());
    let progress = |_: CheckpointProgress| {
        step.set(step.get() + 1);
        match step.get() {
            3 => {
                let txn = begun_cell.take().unwrap();
                load_more(&txn, &tables[0], 8000..12_000);
                txn.commit().unwrap();
            }
            4 => load(&tables[2], 0..8000).commit().unwrap(),
            _ => {}
        }
    };
    let options = CheckpointOptions::new().progress(&progress);
    db.checkpoint_to_with("copy", &options).unwrap();
    assert!(step.get() >= 4);
    assert_eq!(left_out(), before, "rows were left out beside a copy");
    load(&tables[2], 8000..16_000).commit().unwrap();
    assert!(left_out() > before, "all rows are logged behind a copy");
    let copy = open_behind_crash(&vfs, 4);
    for (n, count) in [12_000, 0, 8000].into_iter().enumerate() {
        let found = rows(&copy, &copy.table(&format!("t{n}")).unwrap()).unwrap();
        assert_eq!(found, (0..count).collect::<Vec<u64>>(), "table {n}");
    }
    std::mem::forget(never);
}

fn load_more(txn: &inkstone::Transaction, table: &Table, numbers: std::ops::Range<u64>) {
    let all: Vec<_> = numbers.map(|n| (key(n), [n as u8; 1000])).collect();
    for part in all.chunks(1000) {
        let part: Vec<_> = part.iter().map(|(k, v)| (&k[..], &v[..])).collect();
        txn.insert_until_duplicate(table, &part).1.unwrap();
    }
}

/// A table that becomes shorter while it is copied.
#[test]
fn files_are_cut_while_a_copy_is_made() {
    for placement in [PagePlacement::InPlace, PagePlacement::Placed] {
        let vfs = SimVfs::new(8);
        let db = open_sim(&vfs, options(placement)).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        insert(&db, &table, 0..8000, &[1; 1000]).unwrap();
        let step = Cell::new(0);
        let progress = |_: CheckpointProgress| {
            step.set(step.get() + 1);
            if step.get() == 2 {
                for first in (2000..8000).step_by(500) {
                    let txn = db.begin(Isolation::ReadCommitted).unwrap();
                    for n in first..first + 500 {
                        txn.delete(&table, &key(n)).unwrap();
                    }
                    txn.commit().unwrap();
                }
                for _ in 0..4 {
                    db.purge().unwrap();
                }
                db.shrink_table(&table).unwrap();
                insert(&db, &table, 20_000..22_000, &[2; 1000]).unwrap();
            }
        };
        let options = CheckpointOptions::new().progress(&progress);
        db.checkpoint_to_with("copy", &options).unwrap();
        assert!(step.get() > 3);
        let copy = open_behind_crash(&vfs, 8);
        let expected: Vec<u64> = (0..2000).chain(20_000..22_000).collect();
        assert_eq!(rows(&copy, &copy.table("t").unwrap()).unwrap(), expected);
        // What waited for the copy is given back now.
        assert!(copy.shrink_table(&copy.table("t").unwrap()).is_ok());
    }
}

/// The copy of a compressed table is no larger than the table.
#[test]
fn a_copy_is_compressed() {
    let vfs = SimVfs::new(3);
    let compressed = Options {
        page_compression: PageCompression::Lz4,
        page_size: 16 << 10,
        buffer_pool_size: 4 << 20,
        ..options(PagePlacement::Placed)
    };
    let db = open_sim(&vfs, compressed).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..6000, &[1; 1000]).unwrap();
    db.checkpoint_to("copy").unwrap();
    let length = |directory: &str| {
        let files = vfs.files().into_iter();
        let path = Path::new(directory).join("t00000001.ink");
        let mut found = files.filter(|file| file.ends_with(&path));
        vfs.read_raw(&found.next().unwrap()).unwrap().len()
    };
    let (original, copied) = (length("db"), length("copy"));
    assert!(copied <= original + original / 2, "{copied} of {original}");
    let copy = open_behind_crash(&vfs, 3);
    let all: Vec<u64> = (0..6000).collect();
    assert_eq!(rows(&copy, &copy.table("t").unwrap()).unwrap(), all);
}

/// A small database, to be copied step by step.
fn small_source(vfs: &SimVfs) -> Database {
    let db = open_sim(vfs, small()).unwrap();
    for (name, placement) in [("a", PagePlacement::InPlace), ("b", PagePlacement::Placed)] {
        let options = inkstone::TableOptions::new().page_placement(placement);
        let table = db.create_table_with(name, &[], &options).unwrap();
        insert(&db, &table, 0..200, &[1; 200]).unwrap();
    }
    db
}

#[test]
fn no_crash_leaves_half_a_copy_that_opens() {
    let (mut whole, mut none, mut mutation) = (0, 0, 0);
    loop {
        mutation += 1 + mutation / 20;
        let vfs = SimVfs::new(mutation);
        let db = small_source(&vfs);
        vfs.crash_at_in("copy", mutation);
        let copied = db.checkpoint_to("copy");
        let is_over = copied.is_ok();
        std::mem::forget(db);
        let vfs = vfs.crash(mutation);
        if copied_files(&vfs)
            .iter()
            .any(|name| name.ends_with("copy/control"))
        {
            let copy = open_copy(&vfs, small()).unwrap();
            verify(&copy);
            for name in ["a", "b"] {
                let found = rows(&copy, &copy.table(name).unwrap()).unwrap();
                assert_eq!(found.len(), 200);
            }
            whole += 1;
        } else {
            assert!(!is_over, "a copy that was made is gone");
            let left = copied_files(&vfs);
            let opened = open_copy(&vfs, small());
            match &opened {
                Ok(new) => assert!(new.open_report().created && left.is_empty(), "{left:?}"),
                Err(error) => says(error, &["no file named control"]),
            }
            none += 1;
        }
        // The source recovers as ever.
        let db = open_sim(&vfs, small()).unwrap();
        verify(&db);
        if is_over {
            break;
        }
    }
    assert!(
        whole >= 1 && none > 20,
        "{whole} whole ones, {none} of none"
    );
}

#[test]
fn a_copy_to_a_full_disk_is_refused_and_harms_nothing() {
    let vfs = SimVfs::new(2);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..3000, &[1; 1000]).unwrap();
    db.checkpoint().unwrap();
    let used = vfs.used_bytes();
    for room in [16 << 10, 100 << 10, 1 << 20, 3 << 20, 5 << 20] {
        vfs.set_capacity_bytes(used + room);
        let error = db.checkpoint_to("copy").unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{room}: {error}");
        assert_eq!(copied_files(&vfs), Vec::<String>::new());
        vfs.set_capacity_bytes(u64::MAX);
        insert(&db, &table, [10_000 + room], b"more").unwrap();
        db.checkpoint().unwrap();
    }
    db.checkpoint_to("copy").unwrap();
    let copy = open_behind_crash(&vfs, 2);
    assert_eq!(rows(&copy, &copy.table("t").unwrap()).unwrap().len(), 3005);
}

#[test]
fn a_damaged_page_ends_the_copy() {
    let vfs = SimVfs::new(6);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..3000, &[1; 1000]).unwrap();
    db.checkpoint().unwrap();
    vfs.flip_bit(table.path(), 100 * 4096 + 77, 3).unwrap();
    let error = db.checkpoint_to("copy").unwrap_err();
    let Error::Corrupt { page, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(page.unwrap().page.0, 100);
    assert_eq!(copied_files(&vfs), Vec::<String>::new());
    insert(&db, &table, 5000..5001, b"more").unwrap();
}

#[test]
fn a_directory_that_is_not_empty_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), Options::default()).unwrap();
    db.create_table("t", &[]).unwrap();
    let backup = dir.path().join("backup");
    std::fs::create_dir(&backup).unwrap();
    std::fs::write(backup.join("notes"), "mine").unwrap();
    for directory in [&backup, &dir.path().join("db")] {
        let error = db.checkpoint_to(directory).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        says(&error, &["directory", "empty"]);
    }
    assert_eq!(std::fs::read(backup.join("notes")).unwrap(), b"mine");
    std::fs::remove_file(backup.join("notes")).unwrap();
    // Empty, or missing: twice.
    db.checkpoint_to(&backup).unwrap();
    db.checkpoint_to(dir.path().join("deep/er")).unwrap();
    assert!(db.checkpoint_to(&backup).is_err());
    for copy in [backup, dir.path().join("deep/er")] {
        let copy = Database::open(copy, Options::default()).unwrap();
        assert_eq!(copy.tables().unwrap(), ["t"]);
        copy.close().unwrap();
    }
    db.close().unwrap();
}

/// A copy of a database in memory is on the real file system.
#[test]
fn a_database_in_memory_is_copied_to_the_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::in_memory(small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..1000, &[1; 1000]).unwrap();
    db.checkpoint_to(dir.path().join("kept")).unwrap();
    drop((table, db));
    let kept = Database::open(dir.path().join("kept"), small()).unwrap();
    let table = kept.table("t").unwrap();
    assert_eq!(rows(&kept, &table).unwrap().len(), 1000);
    assert_eq!(kept.verify_table(&table).unwrap().trees[0].1.rows, 1000);
}

/// Prepared transactions are prepared in the copy, too.
#[test]
fn prepared_transactions_are_copied() {
    let vfs = SimVfs::new(9);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    for (xid, n) in [(b"one", 1), (b"two", 2)] {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.insert(&table, &key(n), b"row").unwrap();
        txn.prepare(xid).unwrap();
    }
    db.checkpoint_to("copy").unwrap();
    let copy = open_behind_crash(&vfs, 9);
    copy.commit_prepared(b"one").unwrap();
    copy.rollback_prepared(b"two").unwrap();
    assert_eq!(rows(&copy, &copy.table("t").unwrap()).unwrap(), [1]);
}
