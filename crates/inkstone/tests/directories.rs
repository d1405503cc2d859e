//! A database is the directory that was opened, whatever its path means later.

mod common;

use common::child_dir;
use inkstone::{Database, Error, Isolation, Options};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
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
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
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

/// A process opened "db" and then went to a folder that had another "db": segments, tables and
/// removals went to both, and neither could be opened any more.
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

/// The lock was an empty file: removing it let a second process in, which destroyed the database. A
/// copy by hard links without it got in as well.
#[test]
fn a_removed_lock_lets_no_process_in() {
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

/// Another control file is put in place, or the file is taken away: with it goes the lock. Before,
/// this process went on beside the next one.
#[test]
fn a_replaced_control_file_stops_the_engine() {
    let place = tempfile::tempdir().unwrap();
    let (path, other) = (place.path().join("db"), place.path().join("other"));
    for (what, by_ddl) in [
        ("replaced", true),
        ("replaced", false),
        ("removed", true),
        ("removed", false),
    ] {
        let db = Database::open(&path, options()).unwrap();
        work(&db, 0);
        std::fs::copy(path.join("control"), &other).unwrap();
        match what {
            "replaced" => {
                std::fs::copy(&other, path.join("copy")).unwrap();
                std::fs::rename(path.join("copy"), path.join("control")).unwrap();
            }
            _ => std::fs::rename(path.join("control"), place.path().join("taken")).unwrap(),
        }
        let refused = if by_ddl {
            db.create_table("new", &[]).map(drop)
        } else {
            db.checkpoint()
        };
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("control was") && text.contains(what),
            "{text}"
        );
        let before = std::fs::read(path.join("control")).ok();
        assert!(matches!(db.close(), Err(Error::Poisoned(_))));
        assert_eq!(std::fs::read(path.join("control")).ok(), before);
        if what == "removed" {
            std::fs::rename(place.path().join("taken"), path.join("control")).unwrap();
        }
        // Nothing is lost: the log goes on where it was.
        check_rows(&path, 1000);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

fn check_rows(directory: &Path, rows: u64) {
    let db = Database::open(directory, options()).unwrap();
    let table = db.table("rows").unwrap();
    assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, rows);
    db.close().unwrap();
}

/// Two creators of a database at once were kept apart by an empty file.
#[test]
fn a_removed_lock_lets_no_second_creator_in() {
    let place = tempfile::tempdir().unwrap();
    let vfs = inkstone_io::default_vfs(inkstone_io::BackendChoice::Posix).unwrap();
    let directory = vfs
        .open_directory(place.path(), inkstone_io::Create::Never)
        .unwrap();
    // As far as the first one comes before there is a control file.
    let _first = (
        directory.lock_itself().unwrap(),
        directory.lock("lock").unwrap(),
    );
    std::fs::remove_file(place.path().join("lock")).unwrap();
    assert!(is_refused(place.path()));
    assert_eq!(files(place.path()), [] as [PathBuf; 0]);
}

/// A run as root left a segment that the database's user must not write: an opening found it in the
/// middle of its work. And a directory that must not be listed. As root, the child is another user.
#[test]
fn what_the_user_must_not_touch_is_named_before_anything_is_changed() {
    if let Some(place) = child_dir() {
        let error = Database::open(place.join("db"), options()).err().unwrap();
        return std::fs::write(place.join("error"), error.to_string()).unwrap();
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("db");
    let db = Database::open(&path, options()).unwrap();
    work(&db, 0);
    db.close().unwrap();
    let all = files(&path);
    let log = path.join("log");
    let segment = all.iter().find(|file| file.starts_with(&log)).unwrap();
    let before: Vec<_> = all
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
    for (forbidden, mode, action) in [(segment, 0o400, "open for writing"), (&path, 0o300, "open")]
    {
        let usual = forbidden.metadata().unwrap().permissions();
        std::fs::set_permissions(forbidden, std::fs::Permissions::from_mode(mode)).unwrap();
        let text = refusal(
            place.path(),
            &[&all[..], &[path.clone(), log.clone()]].concat(),
        );
        let wanted = format!("{action} {}: Permission denied", forbidden.display());
        assert!(
            text.starts_with(&wanted) && text.contains("chown"),
            "{text}"
        );
        std::fs::set_permissions(forbidden, usual).unwrap();
        assert_eq!(files(&path), all);
        let after = all.iter().map(|file| std::fs::read(file).unwrap());
        assert!(after.eq(before.iter().cloned()));
    }
}

/// Why a child that is not root does not open the database in `place`, whose files it is given.
fn refusal(place: &Path, all: &[PathBuf]) -> String {
    const UNPRIVILEGED: u32 = 65534;
    let test = place.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
    let mut child = std::process::Command::new(&test);
    if place.metadata().unwrap().uid() == 0 || test.metadata().unwrap().uid() == 0 {
        for entry in all.iter().map(PathBuf::as_path).chain([place]) {
            chown(entry, Some(UNPRIVILEGED), None).unwrap();
        }
        child.uid(UNPRIVILEGED);
    }
    let name = "what_the_user_must_not_touch_is_named_before_anything_is_changed";
    let output = child
        .args([name, "--exact"])
        .env("INKSTONE_TEST_CHILD_DIR", place)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    std::fs::read_to_string(place.join("error")).unwrap()
}
