//! Bad input: each kind has its own clear error, and a refused open changes nothing on disk.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Error, Isolation, Options};
use inkstone_format::PageId;
use inkstone_format::header::stamp_checksum;
use std::path::{Path, PathBuf};

/// A database with tables `a` (tablespace 1) and `b` (tablespace 2) of 500 rows each, closed.
fn make(directory: &Path) {
    let db = Database::open(directory, small()).unwrap();
    for name in ["a", "b"] {
        let table = db.create_table(name, &["second"]).unwrap();
        insert(&db, &table, 0..500, &[7; 100]).unwrap();
    }
    db.close().unwrap();
}

fn made() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    dir
}

/// The error of an open that must be refused, and must leave every file as it was.
#[track_caller]
fn refused_with(directory: &Path, options: Options) -> Error {
    let before = contents(directory);
    let error = failed(Database::open(directory, options));
    let after = contents(directory);
    let names = |all: &std::collections::BTreeMap<PathBuf, Vec<u8>>| -> Vec<PathBuf> {
        all.keys().cloned().collect()
    };
    assert_eq!(names(&before), names(&after), "{error}");
    for (path, bytes) in &before {
        assert!(after[path] == *bytes, "{} changed; {error}", path.display());
    }
    error
}

#[track_caller]
fn refused(directory: &Path) -> Error {
    refused_with(directory, small())
}

/// Opens, and expects table `good` to work (if given) and `bad` to fail with the error returned.
#[track_caller]
fn one_table_fails(directory: &Path, bad: &str, good: Option<&str>) -> Error {
    let db = Database::open(directory, small()).unwrap();
    let error = failed(use_table(&db, bad));
    if let Some(good) = good {
        let table = db.table(good).unwrap();
        assert_eq!(rows(&db, &table).unwrap().len(), 500);
        insert(&db, &table, 500..510, b"new").unwrap();
        db.verify_table(&table).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 500..510 {
            txn.delete(&table, &key(n)).unwrap();
        }
        txn.commit().unwrap();
    }
    assert_eq!(db.tables().unwrap(), ["a", "b"]);
    let other = db.create_table("c", &[]).unwrap();
    insert(&db, &other, 0..10, b"x").unwrap();
    db.drop_table("c").unwrap();
    db.close().unwrap();
    error
}

fn use_table(db: &Database, name: &str) -> inkstone::Result<Vec<u64>> {
    rows(db, &db.table(name)?)
}

fn patch(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn only_segment(directory: &Path) -> PathBuf {
    let names = std::fs::read_dir(directory.join("log")).unwrap();
    let mut paths: Vec<PathBuf> = names.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.remove(0)
}

#[test]
fn unknown_options_and_values() {
    let mut options = Options::default();
    for (name, value, words) in [
        (
            "bufer_pool_size",
            "1m",
            &["bufer_pool_size", "no such option"][..],
        ),
        (
            "page_size",
            "sixteen",
            &["page_size = sixteen", "whole number"],
        ),
        ("page_size", "99999999999g", &["page_size", "2^64"]),
        ("page_size", "-1", &["page_size", "whole number"]),
        (
            "doublewrite",
            "maybe",
            &["doublewrite = maybe", "one of on off atomic"],
        ),
        ("log_archive", "2", &["log_archive = 2", "on or off"]),
        ("bulk_logging", "off", &["one of full minimal"]),
        ("flush_log_at_trx_commit", "3", &["one of 0 1 2"]),
        ("flush_method", "", &["O_DIRECT_NO_FSYNC"]),
    ] {
        let error = failed(options.set(name, value));
        assert!(matches!(&error, Error::InvalidOption { name: n, .. } if n == name));
        says(&error, words);
    }
    assert_eq!(options, Options::default());
}

#[test]
fn impossible_sizes_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let made = made();
    let cases: &[(&str, &str, &str)] = &[
        ("page_size", "5000", "4096, 8192"),
        ("page_size", "128k", "65536"),
        ("buffer_pool_size", "64k", "at least 64 pages"),
        ("buffer_pool_size", "0", "at least 64 pages"),
        ("buffer_pool_size", "64t", "2^32"),
        ("buffer_pool_instances", "0", "from 1 to 64"),
        ("buffer_pool_instances", "65", "from 1 to 64"),
        ("log_file_size", "1m", "4m"),
        ("log_file_size", "100000g", "16t"),
        ("log_buffer_size", "3m", "power of two"),
        ("log_buffer_size", "1m", "2m"),
        ("log_buffer_size", "8g", "4g"),
        ("open_files", "9", "at least 10"),
        ("version_store_memory", "0", "at least 1m"),
        ("recovery_threads", "257", "from 0 to 256"),
        ("page_compression_level", "0", "from 1 to 19"),
        ("page_compression_level", "20", "from 1 to 19"),
        ("force_recovery", "6", "without the log is not supported"),
        ("force_recovery", "7", "from 0 to 5"),
    ];
    for (name, value, word) in cases {
        let mut options = small();
        let value = value.replace("64t", "65536g");
        options.set(name, &value).unwrap();
        for directory in [dir.path().join("new"), made.path().to_owned()] {
            let error = refused_with(&directory, options.clone());
            if let Error::InvalidOption { name: n, .. } = &error {
                assert_eq!(n, name);
            } else {
                panic!("{error}");
            }
            says(&error, &[name, word]);
        }
        assert_eq!(contents(dir.path()).len(), 0);
    }
}

#[test]
fn options_that_do_not_go_together() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        doublewrite: inkstone::internals::options::Doublewrite::Atomic,
        flush_method: inkstone::internals::options::FlushMethod::Fsync,
        ..small()
    };
    let made = made();
    for directory in [dir.path(), made.path()] {
        let error = failed(Database::open(directory, options.clone()));
        assert!(matches!(error, Error::InvalidOption { .. }));
        says(
            &error,
            &["doublewrite = atomic", "flush_method", "O_DIRECT"],
        );
    }
    let error = refused_with(made.path(), options);
    assert!(matches!(error, Error::InvalidOption { .. }));
}

#[test]
fn another_page_size() {
    let dir = made();
    let options = Options {
        page_size: 16384,
        ..small()
    };
    let error = refused_with(dir.path(), options);
    assert!(matches!(&error, Error::InvalidOption { name, .. } if name == "page_size"));
    says(
        &error,
        &[
            "page_size = 16384",
            "4096",
            "or 0",
            &dir.path().display().to_string(),
        ],
    );
    let whatever = Options {
        page_size: 0,
        ..small()
    };
    let db = Database::open(dir.path(), whatever).unwrap();
    assert_eq!(db.options().page_size, 4096);
}

#[test]
fn newer_formats() {
    let dir = made();
    let control = dir.path().join("control");
    let good = std::fs::read(&control).unwrap();
    patch(&control, |bytes| {
        for copy in bytes.chunks_mut(4096) {
            copy[8..12].copy_from_slice(&7u32.to_le_bytes());
            let crc = crc32c::crc32c(&copy[..4092]);
            copy[4092..].copy_from_slice(&crc.to_le_bytes());
        }
    });
    let error = refused(dir.path());
    assert!(matches!(
        error,
        Error::NewerFormat {
            found: 7,
            known: 1,
            ..
        }
    ));
    says(
        &error,
        &[&dir.path().display().to_string(), "7", "newer program"],
    );
    std::fs::write(&control, good).unwrap();

    let newer_space = |bytes: &mut Vec<u8>| {
        bytes[24..28].copy_from_slice(&9u32.to_le_bytes());
        stamp_checksum(&mut bytes[..4096]);
    };
    patch(&dir.path().join("t00000001.ink"), newer_space);
    let error = one_table_fails(dir.path(), "a", Some("b"));
    assert!(matches!(
        error,
        Error::NewerFormat {
            found: 9,
            known: 1,
            ..
        }
    ));
    says(&error, &["t00000001.ink", "newer program"]);

    patch(&dir.path().join("catalog.ink"), newer_space);
    let error = refused(dir.path());
    assert!(matches!(error, Error::NewerFormat { found: 9, .. }));
    says(&error, &["catalog.ink"]);
}

#[test]
fn a_directory_in_use() {
    let dir = made();
    let directory = dir.path();
    if let Some(other) = std::env::var_os("INKSTONE_TEST_OPENS") {
        // The other process: see below.
        let error = failed(Database::open(PathBuf::from(other), small()));
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        return;
    }
    let db = Database::open(directory, small()).unwrap();
    let table = db.table("a").unwrap();
    let error = failed(Database::open(directory, small()));
    assert!(matches!(error, Error::InUse { .. }));
    says(&error, &[&directory.display().to_string(), "in use"]);
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_directory_in_use"])
        .env("INKSTONE_TEST_OPENS", directory)
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stdout)
    );
    insert(&db, &table, 1000..1010, b"still works").unwrap();
    drop((db, table));
    Database::open(directory, small()).unwrap();
}

#[test]
fn directories_that_are_no_databases() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "mine").unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, Error::NotADatabase { .. }));
    says(
        &error,
        &[
            &dir.path().display().to_string(),
            "notes.txt",
            "empty directory",
        ],
    );
    // A file where a directory is expected.
    let error = refused(&file);
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    says(&error, &["notes.txt", "not a directory"]);
    let error = refused(&file.join("below"));
    says(&error, &["notes.txt"]);
}

#[test]
fn the_control_file_missing_damaged_foreign() {
    let dir = made();
    let control = dir.path().join("control");
    let good = std::fs::read(&control).unwrap();
    std::fs::remove_file(&control).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, Error::NotADatabase { .. }));
    says(
        &error,
        &[
            "restore the control file",
            &dir.path().display().to_string(),
        ],
    );
    for bytes in [&b""[..], &good[..100], &[0; 8192], &[0xff; 8192]] {
        std::fs::write(&control, bytes).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        says(&error, &["control is corrupt"]);
    }
    // One copy is enough.
    std::fs::write(&control, [&good[..4096], &[0; 4096]].concat()).unwrap();
    let one = Database::open(dir.path(), small());
    std::fs::write(&control, [&[0; 4096], &good[4096..]].concat()).unwrap();
    assert!(one.is_ok());
    drop(one);
    let other = made();
    std::fs::copy(other.path().join("control"), &control).unwrap();
    let error = refused(dir.path());
    says(&error, &["another database"]);
}

/// What a process that is killed now leaves.
fn killed(of: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("log")).unwrap();
    for part in ["", "log"] {
        for entry in std::fs::read_dir(of.join(part)).unwrap() {
            let from = entry.unwrap().path();
            if from.is_file() {
                let to = dir.path().join(part).join(from.file_name().unwrap());
                std::fs::copy(from, to).unwrap();
            }
        }
    }
    dir
}

/// A control file of an earlier opening is refused as often as it is tried (each refusal had
/// counted the epoch up, until it fitted); if only its newer copy is lost, the older one will do.
#[test]
fn a_control_file_of_an_earlier_opening() {
    let dir = made();
    let (control, mut olds) = (dir.path().join("control"), Vec::new());
    for _ in 0..3 {
        olds.push(std::fs::read(&control).unwrap());
        let db = Database::open(dir.path(), small()).unwrap();
        db.create_table(&format!("t{}", olds.len()), &[]).unwrap();
        db.flush_log().unwrap();
        let left = killed(dir.path());
        let newest = std::fs::read(left.path().join("control")).unwrap();
        let sequence = |copy: usize| {
            let at = copy * 4096 + 32;
            u64::from_le_bytes(newest[at..at + 8].try_into().unwrap())
        };
        let copy = usize::from(sequence(1) > sequence(0));
        patch(&left.path().join("control"), |bytes| {
            bytes[copy * 4096 + 50] ^= 1;
        });
        let found = Database::open(left.path(), small()).unwrap();
        assert!(found.table(&format!("t{}", olds.len())).is_ok());
        found.close().unwrap();
        let left = killed(dir.path());
        db.close().unwrap();
        for old in &olds {
            let found = left.path().join("control");
            std::fs::write(&found, old).unwrap();
            for _ in 0..5 {
                refused(left.path());
                assert!(std::fs::read(&found).unwrap() == *old, "the refusal wrote");
            }
        }
    }
}

#[test]
fn the_catalog_missing_truncated_foreign() {
    let dir = made();
    let catalog = dir.path().join("catalog.ink");
    let good = std::fs::read(&catalog).unwrap();
    std::fs::remove_file(&catalog).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, Error::NotADatabase { .. }));
    says(
        &error,
        &["catalog.ink is missing", &dir.path().display().to_string()],
    );
    for length in [0, 100, 4096, 2 * 4096] {
        std::fs::write(&catalog, &good[..length]).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        says(&error, &["catalog.ink is corrupt"]);
    }
    for (offset, word) in [(50, "0:0"), (2 * 4096 + 99, "0:2")] {
        let mut bytes = good.clone();
        bytes[offset] ^= 1;
        std::fs::write(&catalog, bytes).unwrap();
        says(
            &refused(dir.path()),
            &["catalog.ink is corrupt", word, "checksum"],
        );
    }
    let other = made();
    std::fs::copy(other.path().join("catalog.ink"), &catalog).unwrap();
    says(&refused(dir.path()), &["catalog.ink", "another database"]);
    std::fs::copy(dir.path().join("t00000001.ink"), &catalog).unwrap();
    says(&refused(dir.path()), &["catalog.ink", "page 1:0"]);
    std::fs::write(&catalog, good).unwrap();
    Database::open(dir.path(), small()).unwrap();
}

#[test]
fn a_tablespace_missing_truncated_swapped() {
    let dir = made();
    let (a, b) = (
        dir.path().join("t00000001.ink"),
        dir.path().join("t00000002.ink"),
    );
    let good_a = std::fs::read(&a).unwrap();
    std::fs::remove_file(&a).unwrap();
    let error = one_table_fails(dir.path(), "a", Some("b"));
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    says(
        &error,
        &["t00000001.ink", "table a is missing", "restore it"],
    );
    assert!(!a.exists());
    for length in [0, 1000, 4096, 4096 * 5] {
        std::fs::write(&a, &good_a[..length]).unwrap();
        let error = one_table_fails(dir.path(), "a", Some("b"));
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        says(&error, &["t00000001.ink is corrupt"]);
        assert_eq!(std::fs::read(&a).unwrap(), good_a[..length]);
    }
    let other = made();
    std::fs::copy(other.path().join("t00000001.ink"), &a).unwrap();
    let error = one_table_fails(dir.path(), "a", Some("b"));
    says(&error, &["t00000001.ink", "another database"]);
    std::fs::write(&a, std::fs::read(&b).unwrap()).unwrap();
    let error = one_table_fails(dir.path(), "a", Some("b"));
    says(&error, &["t00000001.ink", "page 1:0", "page 2:0"]);
    // Both swapped: both fail, and neither is harmed. (Table b was written meanwhile: its file of
    // the beginning would be found to be old.)
    let good_b = std::fs::read(&b).unwrap();
    std::fs::write(&b, &good_a).unwrap();
    says(&one_table_fails(dir.path(), "a", None), &["t00000001.ink"]);
    says(&one_table_fails(dir.path(), "b", None), &["t00000002.ink"]);
    std::fs::write(&a, good_a).unwrap();
    std::fs::write(&b, good_b).unwrap();
    let db = Database::open(dir.path(), small()).unwrap();
    for name in ["a", "b"] {
        db.verify_table(&db.table(name).unwrap()).unwrap();
    }
}

#[test]
fn a_missing_table_can_be_dropped() {
    let dir = made();
    std::fs::remove_file(dir.path().join("t00000001.ink")).unwrap();
    let db = Database::open(dir.path(), small()).unwrap();
    db.drop_table("a").unwrap();
    assert_eq!(db.tables().unwrap(), ["b"]);
    let table = db.create_table("a", &[]).unwrap();
    insert(&db, &table, 0..10, b"new").unwrap();
}

#[test]
fn a_file_of_another_database_is_not_removed() {
    let dir = made();
    let other = made();
    let guest = dir.path().join("t00000033.ink");
    std::fs::copy(other.path().join("t00000001.ink"), &guest).unwrap();
    // The page numbers in it say 1, so make it a whole stranger: page 0 of tablespace 0x33.
    patch(&guest, |bytes| {
        bytes[4..12].copy_from_slice(&page_id_bytes(0x33));
        stamp_checksum(&mut bytes[..4096]);
    });
    let bytes = std::fs::read(&guest).unwrap();
    drop(Database::open(dir.path(), small()).unwrap());
    let aside = dir.path().join("t00000033.ink.unknown");
    assert!(!guest.exists() && std::fs::read(aside).unwrap() == bytes);
}

/// Bytes 4..12 of page 0 of a tablespace.
fn page_id_bytes(space: u32) -> [u8; 8] {
    let mut page = vec![0; 4096];
    let id = PageId::new(inkstone_format::SpaceId(space), inkstone_format::PageNo(0));
    inkstone_format::header::init_page(
        &mut page,
        id,
        inkstone_format::header::PageType::SpaceHeader,
    );
    page[4..12].try_into().unwrap()
}

/// After an orderly close nothing depends on the doublewrite file: it is made anew, the report says
/// so, and what was there is kept.
#[test]
fn the_doublewrite_file_missing_truncated_foreign() {
    let dir = made();
    let doublewrite = dir.path().join("doublewrite");
    let good = std::fs::read(&doublewrite).unwrap();
    let opens_anew = |why: &str| {
        let db = Database::open(dir.path(), small()).unwrap();
        let report = db.open_report().clone();
        let said = report.doublewrite_renewed.unwrap();
        assert!(said.contains(why), "{said}");
        assert_eq!(use_table(&db, "a").unwrap().len(), 500);
        db.close().unwrap();
        report.set_aside
    };
    for length in [0, 100, 4096, good.len() - 4096] {
        std::fs::write(&doublewrite, &good[..length]).unwrap();
        let [aside] = &opens_anew("")[..] else {
            panic!("the file was not set aside")
        };
        assert_eq!(std::fs::read(&aside.is).unwrap(), good[..length]);
    }
    let other = made();
    std::fs::copy(other.path().join("doublewrite"), &doublewrite).unwrap();
    assert_eq!(opens_anew("another database").len(), 1);
    std::fs::remove_file(&doublewrite).unwrap();
    assert_eq!(opens_anew("missing").len(), 0);
    // A damaged log is refused before that.
    std::fs::remove_file(&doublewrite).unwrap();
    patch(&only_segment(dir.path()), |bytes| bytes.fill(0));
    refused(dir.path());
}

/// After a kill a page may be torn, and its copy is in the doublewrite file alone: without that
/// file recovery stops at the page, and says what is missing.
#[test]
fn a_torn_page_whose_copy_is_gone() {
    let page_bytes = usize::try_from(small().page_size).unwrap();
    for damaged in [true, false] {
        let dir = made();
        let db = Database::open(dir.path(), small()).unwrap();
        let table = db.table("a").unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..500 {
            txn.update(&table, &key(n), &[8; 100]).unwrap();
        }
        txn.commit().unwrap();
        let killed = tempfile::tempdir().unwrap();
        std::fs::create_dir(killed.path().join("log")).unwrap();
        for (path, bytes) in contents(dir.path()) {
            if path.is_file() {
                let name = path.strip_prefix(dir.path()).unwrap();
                std::fs::write(killed.path().join(name), bytes).unwrap();
            }
        }
        drop((table, db));
        patch(&killed.path().join("t00000001.ink"), |bytes| {
            for page in bytes.chunks_mut(page_bytes).skip(2) {
                page[page_bytes / 2..].fill(0xee);
            }
        });
        let doublewrite = killed.path().join("doublewrite");
        if damaged {
            patch(&doublewrite, |bytes| bytes[..100].fill(0));
        } else {
            std::fs::remove_file(&doublewrite).unwrap();
        }
        // Each time: a supervisor opens again at once.
        for _ in 0..3 {
            let error = failed(Database::open(killed.path(), small()));
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            says(
                &error,
                &["t00000001.ink", "doublewrite", "put the right one back"],
            );
        }
    }
}

#[test]
fn a_log_segment_missing_truncated_foreign() {
    let dir = made();
    let segment = only_segment(dir.path());
    let name = segment.file_name().unwrap().to_str().unwrap();
    let good = std::fs::read(&segment).unwrap();
    std::fs::remove_file(&segment).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    says(&error, &[name, "missing", "recovery begins"]);
    for length in [0, 4096, 5000] {
        std::fs::write(&segment, &good[..length]).unwrap();
        let error = refused(dir.path());
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        says(&error, &[name]);
    }
    let other = made();
    std::fs::copy(only_segment(other.path()), &segment).unwrap();
    says(&refused(dir.path()), &[name, "another database"]);
    std::fs::write(&segment, &good).unwrap();
    let log = dir.path().join("log");
    std::fs::rename(&log, dir.path().join("log.away")).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    says(&error, &["directory log is missing"]);
    std::fs::rename(dir.path().join("log.away"), &log).unwrap();
    Database::open(dir.path(), small()).unwrap();
}

#[test]
fn a_log_damaged_in_the_middle() {
    let dir = made();
    {
        let db = Database::open(dir.path(), small()).unwrap();
        let table = db.table("a").unwrap();
        for n in 0..20 {
            insert(&db, &table, 1000 + n * 10..1010 + n * 10, &[3; 200]).unwrap();
        }
        copy_while_open(dir.path(), &dir.path().join("crashed"));
    }
    let crashed = dir.path().join("crashed");
    let segment = only_segment(&crashed);
    let good = std::fs::read(&segment).unwrap();
    let used = good.iter().rposition(|&byte| byte != 0).unwrap();
    // Within the twenty transactions, and not in the last block.
    patch(&segment, |bytes| bytes[used - 800] ^= 0x10);
    let error = refused(&crashed);
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    says(&error, &["log", "is corrupt", "durable up to LSN"]);
    std::fs::write(&segment, &good).unwrap();
    let missing = crashed.join("t00000001.ink");
    std::fs::rename(&missing, crashed.join("away")).unwrap();
    let error = refused(&crashed);
    says(&error, &["t00000001.ink", "missing", "put the file back"]);
    std::fs::rename(crashed.join("away"), &missing).unwrap();
    let db = Database::open(&crashed, small()).unwrap();
    assert_eq!(use_table(&db, "a").unwrap().len(), 700);
}

/// What a killed process would leave.
fn copy_while_open(from: &Path, to: &Path) {
    let files = contents(from);
    for (path, bytes) in files {
        let target = to.join(path.strip_prefix(from).unwrap());
        if path.is_dir() {
            continue;
        }
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::write(target, bytes).unwrap();
    }
}
