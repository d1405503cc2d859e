//! README.md is true: what is there after a crash for each durability, and the limits.

use inkstone::{Database, Durability, Error, Isolation, Options, Table};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

const DIRECTORY: &str = "db";

fn options(page_size: u64) -> Options {
    Options {
        page_size,
        buffer_pool_size: 4 << 20,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        ..Options::default()
    }
}

fn open(disk: &SimVfs) -> Database {
    let vfs = Arc::new(disk.clone());
    Database::open_on(vfs, Path::new(DIRECTORY), options(4096), &|_| {}).unwrap()
}

fn insert(db: &Database, table: &Table, n: u64, durability: Durability) {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    // Two rows a transaction: both are there, or none.
    for half in [0, 1] {
        txn.insert(table, &(2 * n + half).to_be_bytes(), b"x")
            .unwrap();
    }
    txn.commit_with(durability).unwrap();
}

/// Commits ten transactions, ends the process as `end` does, and returns how many are there.
fn survivors(seed: u64, durability: Durability, end: impl Fn(&SimVfs) -> SimVfs) -> usize {
    let disk = SimVfs::new(seed);
    let db = open(&disk);
    let table = db.create_table("t", &[]).unwrap();
    for n in 0..10 {
        insert(&db, &table, n, durability);
    }
    let after = end(&disk);
    drop((table, db));
    let db = open(&after);
    let table = db.table("t").unwrap();
    db.verify_table(&table).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let keys: Vec<u64> = txn
        .range(&table, ..)
        .unwrap()
        .map(|row| u64::from_be_bytes(row.unwrap().0.try_into().unwrap()))
        .collect();
    let expected: Vec<u64> = (0..keys.len() as u64).collect();
    assert_eq!(keys, expected, "a prefix of the commits");
    assert_eq!(keys.len() % 2, 0, "transactions are there as a whole");
    keys.len() / 2
}

#[test]
fn sync_survives_power_loss() {
    for seed in 0..8 {
        let found = survivors(seed, Durability::Sync, |disk| disk.crash(seed));
        assert_eq!(found, 10, "seed {seed}");
    }
}

#[test]
fn write_survives_a_killed_process_and_leaves_a_prefix_after_power_loss() {
    assert_eq!(survivors(1, Durability::Write, SimVfs::kill), 10);
    for seed in 0..8 {
        survivors(seed, Durability::Write, |disk| disk.crash(seed));
    }
}

#[test]
fn lazy_leaves_a_prefix() {
    survivors(1, Durability::Lazy, SimVfs::kill);
    for seed in 0..8 {
        survivors(seed, Durability::Lazy, |disk| disk.crash(seed));
    }
}

#[test]
fn keys_and_values_have_the_limits_that_the_readme_names() {
    for (page_size, key_max) in [(4096, 768), (8192, 1536), (16384, 3072), (65536, 3072)] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options(page_size)).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, &vec![7; key_max], b"").unwrap();
        let long = txn.insert(&table, &vec![7; key_max + 1], b"");
        assert!(
            matches!(long, Err(Error::KeyTooLong { limit, .. }) if limit == key_max),
            "pages of {page_size} bytes: {long:?}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4096)).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let value = vec![0; (1 << 30) + 1];
    let long = txn.insert(&table, b"k", &value);
    assert!(matches!(long, Err(Error::ValueTooLong { limit, .. }) if limit == 1 << 30));
}

#[test]
fn names_trees_and_xids_have_the_limits_that_the_readme_names() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4096)).unwrap();
    db.create_table(&"n".repeat(768), &[]).unwrap();
    for bad in ["", "a\0b", &"n".repeat(769)] {
        assert!(matches!(
            db.create_table(bad, &[]),
            Err(Error::InvalidOption { .. })
        ));
    }
    db.create_table("t", &[]).unwrap();
    for n in 1..127 {
        db.create_tree("t", &format!("tree {n}")).unwrap();
    }
    assert!(matches!(
        db.create_tree("t", "one more"),
        Err(Error::Unsupported(_))
    ));
    for bad in [0, 141] {
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(matches!(
            txn.prepare(&vec![1; bad]),
            Err(Error::InvalidOption { .. })
        ));
    }
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.prepare(&[1; 140]).unwrap();
    db.rollback_prepared(&[1; 140]).unwrap();
}

/// A table with one row, and a handle of a database that waits briefly for locks.
fn one_row(dir: &Path) -> (Database, Table) {
    let options = Options {
        lock_wait_timeout_ms: 50,
        ..options(4096)
    };
    let db = Database::open(dir, options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, b"k", b"old").unwrap();
    txn.commit().unwrap();
    (db, table)
}

#[test]
fn isolation_levels_see_what_the_readme_says() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = one_row(dir.path());
    let committed = db.begin(Isolation::ReadCommitted).unwrap();
    let repeatable = db.begin(Isolation::RepeatableRead).unwrap();
    for reader in [&committed, &repeatable] {
        assert_eq!(reader.get(&table, b"k").unwrap().unwrap(), b"old");
    }
    let writer = db.begin(Isolation::ReadCommitted).unwrap();
    writer.update(&table, b"k", b"new").unwrap();
    // Reads do not wait for writers.
    assert_eq!(committed.get(&table, b"k").unwrap().unwrap(), b"old");
    writer.commit().unwrap();
    assert_eq!(committed.get(&table, b"k").unwrap().unwrap(), b"new");
    assert_eq!(repeatable.get(&table, b"k").unwrap().unwrap(), b"old");
    let lost = repeatable.update(&table, b"k", b"mine");
    assert!(matches!(lost, Err(Error::WriteConflict)), "{lost:?}");
    repeatable.rollback().unwrap();
    committed.update(&table, b"k", b"newest").unwrap();
    committed.commit().unwrap();
}

#[test]
fn serializable_locks_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = one_row(dir.path());
    let reader = db.begin(Isolation::Serializable).unwrap();
    assert_eq!(reader.range(&table, ..).unwrap().count(), 1);
    let writer = db.begin(Isolation::ReadCommitted).unwrap();
    for blocked in [
        writer.update(&table, b"k", b"new"),
        writer.insert(&table, b"phantom", b""),
    ] {
        assert!(
            matches!(blocked, Err(Error::LockTimeout { .. })),
            "{blocked:?}"
        );
    }
    reader.commit().unwrap();
    writer.insert(&table, b"phantom", b"").unwrap();
    writer.commit().unwrap();
}

#[test]
fn the_licence_texts_are_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let apache = std::fs::read_to_string(root.join("LICENSE-APACHE")).unwrap();
    assert!(apache.contains("END OF TERMS AND CONDITIONS") && apache.len() > 10_000);
    let mit = std::fs::read_to_string(root.join("LICENSE-MIT")).unwrap();
    assert!(mit.contains("WITHOUT WARRANTY OF ANY KIND"));
}
