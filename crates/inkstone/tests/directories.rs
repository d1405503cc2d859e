//! A database is the directory that was opened, whatever its path means later.

mod common;

use common::child_dir;
use inkstone::{Database, Isolation, Options};
use std::path::{Path, PathBuf};

fn options() -> Options {
    Options {
        buffer_pool_size: 4 << 20,
        log_file_size: 4 << 20,
        log_archive: true,
        ..Options::default()
    }
}

/// Log enough for several segments, tables made and dropped, an export's worth of everything that
/// opens, renames or removes files.
fn work(db: &Database, from: u64) {
    let table = match db.table("rows") {
        Ok(table) => table,
        Err(_) => db.create_table("rows", &[]).unwrap(),
    };
    for batch in 0..20 {
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        for n in 0..50 {
            let key = (from + batch * 50 + n).to_be_bytes();
            txn.insert(&table, &key, &[7; 8000]).unwrap();
        }
        txn.commit().unwrap();
    }
    let name = format!("made at {from}");
    db.create_table(&name, &[]).unwrap();
    db.drop_table(&name).unwrap();
    db.create_table(&format!("kept from {from}"), &[]).unwrap();
    db.checkpoint().unwrap();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn check(directory: &Path, rows: u64, tables: usize) {
    let db = Database::open(directory, options()).unwrap();
    let report = db.open_report();
    assert!(report.clean && !report.created, "{report:?}");
    let table = db.table("rows").unwrap();
    assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, rows);
    assert_eq!(db.tables().unwrap().len(), tables);
    db.close().unwrap();
}

/// A process opened "db" and then went to a folder that had another "db": segments, tables and removals
/// went to both, and neither could be opened any more.
#[test]
fn a_relative_path_is_resolved_once() {
    if let Some(place) = child_dir() {
        std::env::set_current_dir(place.join("one")).unwrap();
        let db = Database::open("db", options()).unwrap();
        work(&db, 0);
        std::env::set_current_dir(place.join("two")).unwrap();
        work(&db, 10_000);
        assert_eq!(db.directory(), place.join("one/db"));
        return db.close().unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir(place.path().join(name)).unwrap();
    }
    let other = place.path().join("two/db");
    let db = Database::open(&other, options()).unwrap();
    work(&db, 0);
    db.close().unwrap();
    let before = files(&other);
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_relative_path_is_resolved_once", "--exact"])
        .env("INKSTONE_TEST_CHILD_DIR", place.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}");
    assert_eq!(files(&other), before);
    check(&place.path().join("one/db"), 2000, 3);
    check(&other, 1000, 2);
}

/// Moved while it is open, even with a stranger at its old place, a database goes on.
#[test]
fn a_directory_is_renamed_while_open() {
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (place.path().join("old"), place.path().join("new"));
    let db = Database::open(&old, options()).unwrap();
    work(&db, 0);
    std::fs::rename(&old, &new).unwrap();
    std::fs::create_dir(&old).unwrap();
    work(&db, 10_000);
    db.close().unwrap();
    assert!(files(&old).is_empty());
    check(&new, 2000, 3);
}

fn is_refused(directory: &Path) -> bool {
    let opened = Database::open(directory, options());
    matches!(opened, Err(inkstone::Error::InUse { .. }))
}

/// The lock was an empty file: whoever removed it let a second process in, which destroyed the database.
/// A copy by hard links without it got in as well.
#[test]
fn a_removed_lock_lets_nobody_in() {
    let place = tempfile::tempdir().unwrap();
    let (path, copy) = (place.path().join("db"), place.path().join("copy"));
    for created in [true, false] {
        let db = Database::open(&path, options()).unwrap();
        assert_eq!(db.open_report().created, created);
        assert!(is_refused(&path));
        std::fs::remove_file(path.join("lock")).unwrap();
        assert!(is_refused(&path));
        std::fs::create_dir_all(copy.join("log")).unwrap();
        for file in files(&path) {
            let name = file.strip_prefix(&path).unwrap();
            if name != Path::new("lock") {
                std::fs::hard_link(&file, copy.join(name)).unwrap();
            }
        }
        assert!(is_refused(&copy));
        std::fs::remove_dir_all(&copy).unwrap();
        db.create_table(&format!("created {created}"), &[]).unwrap();
        db.close().unwrap();
    }
    let db = Database::open(&path, options()).unwrap();
    assert!(db.open_report().clean);
    assert_eq!(db.tables().unwrap().len(), 2);
}
