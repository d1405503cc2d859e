//! Databases that earlier versions made are opened, are what they were, and go on.

use inkstone::{Database, Isolation, Table};
use inkstone_format::control::FORMAT_VERSION;
use inkstone_format::header::{PageType, page_type};
use inkstone_format::tree_page::TreePage;
use inkstone_testkit::fixtures::log::undo_copies;
use inkstone_testkit::fixtures::manifest::{Manifest, contents, sums};
use inkstone_testkit::fixtures::{all, make, unpack, version_folder};
use std::fs::File;
use std::path::Path;

/// Rows of each table that the test itself writes.
const NEW_ROWS: u64 = 300;

fn open(directory: &Path) -> Database {
    // Whatever the page size is.
    Database::open(directory, make::options(0)).unwrap()
}

#[test]
fn there_are_fixtures_of_the_present_format() {
    let folder = version_folder(FORMAT_VERSION);
    for variant in make::VARIANTS {
        for extension in ["manifest", "tar.gz"] {
            let path = folder.join(variant.name).with_extension(extension);
            assert!(
                path.is_file(),
                "{}: run `cargo xtask fixtures`",
                path.display()
            );
        }
    }
}

#[test]
fn databases_of_all_versions_open_and_go_on() {
    let fixtures = all().unwrap();
    assert!(fixtures.len() >= make::VARIANTS.len());
    for fixture in fixtures {
        println!("{}", fixture.display());
        let text = std::fs::read_to_string(fixture.with_extension("manifest")).unwrap();
        let manifest = Manifest::parse(&text).unwrap();
        assert_eq!(
            manifest.show(),
            text,
            "a manifest that is read as another one"
        );
        for commit in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let archive = File::open(fixture.with_extension("tar.gz")).unwrap();
            unpack(archive, directory.path()).unwrap();
            check(directory.path(), &manifest, commit);
        }
    }
}

/// What recovery makes of copied undo and of old versions' addresses is tested above; here, that
/// there are some.
#[test]
fn killed_databases_hold_copied_undo_and_rows_that_name_old_versions() {
    let fixtures = all().unwrap();
    let is_killed = |path: &Path| path.to_string_lossy().contains("killed-");
    let killed: Vec<_> = fixtures.iter().filter(|path| is_killed(path)).collect();
    assert!(killed.len() >= 2);
    for fixture in killed {
        let directory = tempfile::tempdir().unwrap();
        let archive = File::open(fixture.with_extension("tar.gz")).unwrap();
        unpack(archive, directory.path()).unwrap();
        let vfs = inkstone_io::default_vfs(inkstone_io::BackendChoice::Posix).unwrap();
        let copies = undo_copies(&*vfs, directory.path()).unwrap();
        assert!(copies >= 2, "{}: {copies}", fixture.display());
        let named = rows_that_name_old_versions(directory.path(), fixture);
        assert!(named >= 100, "{}: {named}", fixture.display());
    }
}

fn rows_that_name_old_versions(directory: &Path, fixture: &Path) -> usize {
    let text = std::fs::read_to_string(fixture.with_extension("manifest")).unwrap();
    let page_size = Manifest::parse(&text).unwrap().page_size as usize;
    let mut named = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ink") {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        for page in bytes.chunks_exact(page_size) {
            if page_type(page) == Some(PageType::Leaf) {
                let leaf = TreePage(page);
                let versions = (0..leaf.count()).filter_map(|slot| leaf.version(slot));
                named += versions.count();
            }
        }
    }
    named
}

fn check(directory: &Path, manifest: &Manifest, commit: bool) {
    let db = open(directory);
    assert_eq!(db.options().page_size, manifest.page_size);
    check_recovery(&db, manifest);
    verify(&db);
    assert_eq!(sums(&contents(&db).unwrap()), manifest.rows);
    let xids: Vec<Vec<u8>> = manifest
        .prepared
        .iter()
        .map(|xid| xid.clone().into())
        .collect();
    assert_eq!(db.prepared_transactions(), xids);
    for xid in &xids {
        if commit {
            db.commit_prepared(xid).unwrap();
        } else {
            db.rollback_prepared(xid).unwrap();
        }
    }
    let decided = if commit {
        &manifest.rows_after_commit
    } else {
        &manifest.rows
    };
    assert_eq!(sums(&contents(&db).unwrap()), *decided);
    for table in tables(&db) {
        work(&db, &table);
    }
    db.create_table("of this version", &["secondary"]).unwrap();
    db.checkpoint().unwrap();
    verify(&db);
    let now = contents(&db).unwrap();
    db.close().unwrap();

    let db = open(directory);
    assert!(
        db.open_report().recovered.is_none(),
        "it was closed in order"
    );
    assert_eq!(contents(&db).unwrap(), now);
    for table in tables(&db)
        .iter()
        .filter(|table| table.name() != "of this version")
    {
        undo_work(&db, table);
    }
    db.drop_table("of this version").unwrap();
    db.purge().unwrap();
    verify(&db);
    assert_eq!(sums(&contents(&db).unwrap()), *decided);
}

fn check_recovery(db: &Database, manifest: &Manifest) {
    assert!(!db.open_report().created);
    let recovered = db.open_report().recovered.clone().unwrap_or_default();
    for (what, &least) in &manifest.recovers {
        let count = match what.as_str() {
            "torn_pages_repaired" => recovered.torn_pages_repaired,
            "losers" => recovered.losers,
            "rows_undone" => recovered.rows_undone,
            "prepared" => recovered.prepared,
            other => panic!("the manifest asks for {other}"),
        };
        assert!(count >= least, "{what}: {count}, {least} expected");
    }
}

fn tables(db: &Database) -> Vec<Table> {
    let names = db.tables().unwrap();
    names.iter().map(|name| db.table(name).unwrap()).collect()
}

fn verify(db: &Database) {
    for table in tables(db) {
        db.verify_table(&table).unwrap();
    }
}

fn new_key(n: u64) -> Vec<u8> {
    [&b"new"[..], &n.to_be_bytes()].concat()
}

/// Inserts short and long rows, and changes some.
fn work(db: &Database, table: &Table) {
    for part in 0..3 {
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        for n in part * NEW_ROWS / 3..(part + 1) * NEW_ROWS / 3 {
            let length = if n % 50 == 0 { 70_000 } else { 400 };
            txn.insert(table, &new_key(n), &make::text(n, length))
                .unwrap();
            if n % 3 == 0 {
                txn.update(table, &new_key(n), b"changed").unwrap();
            }
        }
        txn.commit().unwrap();
    }
}

fn undo_work(db: &Database, table: &Table) {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..NEW_ROWS {
        assert!(txn.delete(table, &new_key(n)).unwrap());
    }
    txn.commit().unwrap();
}
