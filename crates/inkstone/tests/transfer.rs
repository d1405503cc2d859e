//! Export of a table's file, and import of a copy.

mod common;

use common::{all, commit, key, open, options, val, within};
use inkstone::Isolation::{ReadCommitted, RepeatableRead};
use inkstone::{Database, Error, Options, PageCompression, Table, TableOptions};
use inkstone_io::sim::SimVfs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table with rows of several versions, deleted rows and long values, exported to a file.
fn exported(dir: &tempfile::TempDir, options: Options) -> (Database, Table, PathBuf) {
    let db = Database::open(dir.path().join("source"), options).unwrap();
    // So that the tablespace has another number than the copy gets.
    db.create_table("first", &[]).unwrap();
    let table = db.create_table("t", &["second"]).unwrap();
    let second = table.tree("second").unwrap();
    commit(&db, |txn| {
        for n in 0..3000 {
            txn.insert(&table, &key(n), &val(n as i64)).unwrap();
            txn.insert(second, &key(9999 - n), &[n as u8; 100]).unwrap();
        }
        txn.insert(second, b"long", &[5; 100_000]).unwrap();
        txn.insert(second, b"longer", &[6; 300_000]).unwrap();
    });
    let snapshot = db.begin_with_snapshot().unwrap();
    commit(&db, |txn| {
        for n in (0..3000).step_by(3) {
            txn.delete(&table, &key(n)).unwrap();
            txn.update(second, &key(9999 - n), b"new").unwrap();
        }
        txn.update(second, b"longer", &[7; 200_000]).unwrap();
    });
    let copy = dir.path().join("copy");
    let export = db.export_table(&table).unwrap();
    // Reading, and purge, go on; the file does not change.
    let before = std::fs::read(table.path()).unwrap();
    assert_eq!(all(&snapshot, &table).len(), 3000);
    drop(snapshot);
    db.purge().unwrap();
    db.purge().unwrap();
    db.checkpoint().unwrap();
    assert!(before == std::fs::read(table.path()).unwrap());
    std::fs::write(&copy, before).unwrap();
    drop(export);
    (db, table, copy)
}

const TREES: [(u32, &str); 2] = [(0, "primary"), (1, "renamed")];

fn content(db: &Database, table: &Table, tree: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let txn = db.begin(RepeatableRead).unwrap();
    let rows = txn.range(&table.trees()[tree], ..).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

#[test]
fn a_copy_is_a_table_of_another_database() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let (source, table, copy) = exported(&dir, options());
        let target = Database::open(dir.path().join("target"), options()).unwrap();
        // Versions of its own, whose addresses those in the file may equal.
        let busy = target.create_table("busy", &[]).unwrap();
        let open_txn = target.begin(ReadCommitted).unwrap();
        for n in 0..5000 {
            open_txn.insert(&busy, &key(n), &val(1)).unwrap();
        }
        let imported = target.import_table("t", &copy, &TREES).unwrap();
        for tree in 0..2 {
            let same = content(&source, &table, tree) == content(&target, &imported, tree);
            assert!(same, "tree {tree}");
        }
        assert_eq!(imported.trees()[1].name(), "renamed");
        let txn = target.begin(ReadCommitted).unwrap();
        txn.update(&imported, &key(1), b"9").unwrap();
        txn.insert(&imported, &key(0), b"8").unwrap();
        txn.delete(imported.tree("renamed").unwrap(), b"long")
            .unwrap();
        txn.commit().unwrap();
        open_txn.rollback().unwrap();
        target.purge().unwrap();
        target.verify_table(&imported).unwrap();
        drop((imported, busy));
        target.close().unwrap();

        let target = Database::open(dir.path().join("target"), options()).unwrap();
        let imported = target.table("t").unwrap();
        target.verify_table(&imported).unwrap();
        let txn = target.begin(ReadCommitted).unwrap();
        assert_eq!(common::read(&txn, &imported, 1), Some(9));
        assert_eq!(all(&txn, &imported).len(), 2001);
        // The source goes on as well, and is imported beside itself.
        commit(&source, |txn| txn.insert(&table, &key(0), b"1").unwrap());
        source.import_table("again", &copy, &TREES).unwrap();
        // Without one of its trees, whose pages are freed.
        let partly = source.import_table("partly", &copy, &TREES[..1]).unwrap();
        assert_eq!(partly.trees().len(), 1);
        let before = source.verify_table(&partly).unwrap().allocated_pages;
        // The third retires what the first has deleted, if that was in a new segment of versions.
        for _ in 0..3 {
            source.purge().unwrap();
        }
        let after = source.verify_table(&partly).unwrap().allocated_pages;
        assert!(after < before.min(20), "{before} {after}");
    });
}

#[test]
fn what_cannot_be_imported_leaves_nothing() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let (source, _table, copy) = exported(&dir, options());
        let target = Database::open(dir.path().join("target"), options()).unwrap();
        let import = |file: &Path, trees: &[(u32, &str)]| target.import_table("t", file, trees);
        for trees in [
            &[(1, "renamed"), (0, "primary")][..],
            &[(0, "primary"), (1, "a"), (2, "b")],
            &[(0, "primary"), (1, "primary")],
            &[(0, "primary"), (1, "a"), (127, "b")],
            &[],
        ] {
            let refused = import(&copy, trees);
            assert!(
                matches!(refused, Err(Error::InvalidOption { .. })),
                "{trees:?}"
            );
        }
        assert!(import(&dir.path().join("none"), &TREES).is_err());
        let bytes = std::fs::read(&copy).unwrap();
        let broken = dir.path().join("broken");
        let pages = bytes.len() / 16384;
        let mut refused = 0;
        for page in 0..pages {
            let mut copy = bytes.clone();
            if copy[page * 16384..][..16384].iter().all(|&b| b == 0) {
                continue;
            }
            copy[page * 16384 + 5000] ^= 1;
            std::fs::write(&broken, copy).unwrap();
            match import(&broken, &TREES) {
                Err(Error::Corrupt { file, .. }) => {
                    assert_eq!(file, broken);
                    refused += 1;
                }
                // A page that is free.
                Ok(_) => target.drop_table("t").unwrap(),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > 20, "{refused} of {pages}");
        std::fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
        assert!(matches!(
            import(&broken, &TREES),
            Err(Error::Corrupt { .. })
        ));
        std::fs::write(&broken, b"no pages").unwrap();
        assert!(matches!(
            import(&broken, &TREES),
            Err(Error::Corrupt { .. })
        ));
        // Two pages that changed places.
        let mut copy = bytes.clone();
        copy.copy_within(5 * 16384..6 * 16384, 7 * 16384);
        std::fs::write(&broken, copy).unwrap();
        assert!(matches!(
            import(&broken, &TREES),
            Err(Error::Corrupt { .. })
        ));

        let other = Options {
            page_size: 8192,
            ..options()
        };
        let other = Database::open(dir.path().join("other"), other).unwrap();
        let error = other
            .import_table("t", &dir.path().join("copy"), &TREES)
            .err()
            .unwrap();
        assert!(error.to_string().contains("16384"), "{error}");
        assert!(target.tables().unwrap().is_empty());
        assert!(
            source
                .import_table("t", &dir.path().join("copy"), &TREES)
                .is_err(),
            "it exists"
        );
        target.close().unwrap();
        Database::open(dir.path().join("target"), options()).unwrap();
    });
}

#[test]
fn an_export_wants_a_table_that_does_not_change() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &["a"]).unwrap();
        let other = db.create_table("other", &[]).unwrap();
        let elsewhere = db.begin(ReadCommitted).unwrap();
        elsewhere.insert(&other, b"k", b"").unwrap();
        let txn = db.begin(ReadCommitted).unwrap();
        txn.insert(table.tree("a").unwrap(), b"k", b"").unwrap();
        txn.insert(&other, b"k2", b"").unwrap();
        let refused = || matches!(db.export_table(&table), Err(Error::TransactionState(_)));
        assert!(refused());
        txn.prepare(b"x").unwrap();
        assert!(refused());
        db.commit_prepared(b"x").unwrap();
        let export = db.export_table(&table).unwrap();
        assert!(refused(), "one at a time");
        drop(export);
        db.export_table(&table).unwrap();
    });
}

/// Power fails while a table is imported: it is there as a whole or not at all, and no file is
/// left.
#[test]
fn a_crash_leaves_a_whole_table_or_none() {
    within(300, || {
        let small = || Options {
            page_size: 4096,
            buffer_pool_size: 1 << 20,
            log_file_size: 4 << 20,
            log_buffer_size: 2 << 20,
            ..Options::default()
        };
        let open_on = |disk: &SimVfs, name: &str| {
            let vfs = Arc::new(disk.clone());
            Database::open_on(vfs, Path::new(name), small(), &|_| {}).unwrap()
        };
        let (mut none, mut whole) = (0, 0);
        for seed in 0..80 {
            let disk = SimVfs::new(seed);
            let source = open_on(&disk, "source");
            let table = source.create_table("t", &[]).unwrap();
            commit(&source, |txn| {
                for n in 0..300 {
                    txn.insert(&table, &key(n), &val(n as i64)).unwrap();
                }
            });
            let export = source.export_table(&table).unwrap();
            let db = open_on(&disk, "db");
            // What a database makes of its log when it is first written is made before.
            db.create_table("before", &[]).unwrap();
            db.drop_table("before").unwrap();
            db.close().unwrap();
            let db = open_on(&disk, "db");
            db.flush_log().unwrap();
            disk.crash_at(1 + seed / 2);
            let path = table.path().to_owned();
            let imported = db.import_table("t", &path, &[(0, "primary")]).is_ok();
            let after = disk.crash(seed);
            drop((db, export, table));
            drop(source);
            let db = open_on(&after, "db");
            match db.table("t") {
                Ok(table) => {
                    db.verify_table(&table).unwrap();
                    let txn = db.begin(ReadCommitted).unwrap();
                    assert_eq!(all(&txn, &table).len(), 300, "seed {seed}");
                    whole += 1;
                }
                Err(Error::NotFound(_)) => {
                    assert!(!imported, "seed {seed}: an import that was acknowledged");
                    let files = after.files();
                    let left = files.iter().find(|f| {
                        let name = f.file_name().unwrap().to_string_lossy();
                        f.starts_with("db") && name.starts_with('t') && name.ends_with(".ink")
                    });
                    assert_eq!(left, None, "seed {seed}");
                    none += 1;
                }
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        assert!(none > 5 && whole > 5, "{none} {whole}");
    });
}

fn placed() -> Options {
    Options {
        page_placement: inkstone::internals::options::PagePlacement::Placed,
        ..options()
    }
}

/// The map of a copied table beside it.
fn map_of(copy: &Path) -> PathBuf {
    copy.with_extension("places")
}

/// As `exported`, from a database whose tables are placed: the copy has its map beside it.
fn exported_placed(dir: &tempfile::TempDir) -> (Database, Table, PathBuf) {
    let (source, table, copy) = exported(dir, placed());
    let export = source.export_table(&table).unwrap();
    let files = export.files();
    assert_eq!(files.len(), 2);
    std::fs::copy(&files[0], &copy).unwrap();
    std::fs::copy(&files[1], map_of(&copy)).unwrap();
    drop(export);
    (source, table, copy)
}

/// Its rows went just before: the end of the file is free, and is cut before it is copied.
#[test]
fn the_file_of_a_placed_table_stays_as_it_is_while_it_is_exported() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), placed()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    commit(&db, |txn| {
        for n in 0..20_000 {
            // Nothing that can be compressed.
            let value: Vec<u8> = (0..125u64)
                .flat_map(|at| {
                    (n * 125 + at)
                        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        .to_be_bytes()
                })
                .collect();
            txn.insert(&table, &key(n), &value).unwrap();
        }
    });
    db.checkpoint().unwrap();
    commit(&db, |txn| {
        for n in 100..20_000 {
            txn.delete(&table, &key(n)).unwrap();
        }
    });
    db.purge().unwrap();
    db.shrink_table(&table).unwrap();
    let export = db.export_table(&table).unwrap();
    let bytes_of = |path: PathBuf| path.metadata().unwrap().len();
    let bytes = || export.files().into_iter().map(bytes_of).collect::<Vec<_>>();
    let before = bytes();
    db.checkpoint().unwrap();
    assert_eq!(bytes(), before);
}

#[test]
fn a_placed_table_is_exported_as_a_file_and_its_map() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let (source, table, copy) = exported_placed(&dir);
        for (name, options) in [("in place", options()), ("placed", placed())] {
            let target = Database::open(dir.path().join(name), options.clone()).unwrap();
            let imported = target.import_table("t", &copy, &TREES).unwrap();
            let is_placed = map_of(imported.path()).exists();
            assert_eq!(is_placed, name == "placed");
            for tree in 0..2 {
                let same = content(&source, &table, tree) == content(&target, &imported, tree);
                assert!(same, "tree {tree}, {name}");
            }
            drop(imported);
            target.close().unwrap();
            let target = Database::open(dir.path().join(name), options).unwrap();
            let imported = target.table("t").unwrap();
            target.verify_table(&imported).unwrap();
            // One of pages in place becomes one of placed pages, and the other way round.
            let export = target.export_table(&imported).unwrap();
            let again = dir.path().join(format!("again {name}"));
            let copies = [again.clone(), map_of(&again)];
            for (from, to) in export.files().iter().zip(&copies) {
                std::fs::copy(from, to).unwrap();
            }
            drop(export);
            let wanted = TableOptions::new().page_compression(PageCompression::Zstd);
            let back = (source.import_table_with(name, &again, &TREES, &wanted)).unwrap();
            assert_eq!(back.page_compression(), PageCompression::Zstd);
            assert!(content(&source, &back, 0) == content(&source, &table, 0));
        }
    });
}

#[test]
fn a_placed_table_without_its_own_map_is_not_imported() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let (source, _, copy) = exported_placed(&dir);
        let target = Database::open(dir.path().join("target"), options()).unwrap();
        let refused = |text: &str| {
            let imported = target.import_table("t", &copy, &TREES);
            let error = imported.expect_err("it is refused");
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        };
        std::fs::remove_file(map_of(&copy)).unwrap();
        refused("copy.places; copy both files");
        let other = source.table("first").unwrap();
        let export = source.export_table(&other).unwrap();
        std::fs::copy(&export.files()[1], map_of(&copy)).unwrap();
        refused("the place map of tablespace");
        assert!(target.tables().unwrap().is_empty());
    });
}

/// An import of damaged files fails, or the damage was where nothing is.
#[test]
fn damaged_copies_of_a_placed_table_give_no_wrong_rows() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let (source, table, copy) = exported_placed(&dir);
        let expected = [0, 1].map(|tree| content(&source, &table, tree));
        let target = Database::open(dir.path().join("target"), options()).unwrap();
        let mut refused = 0;
        for path in [copy.clone(), map_of(&copy)] {
            let whole = std::fs::read(&path).unwrap();
            let step = if path == copy { 5 } else { 1 };
            for block in (0..whole.len() / 4096).step_by(step) {
                for (at, bytes) in [(9, 1), (300, 1), (0, 4096)] {
                    let mut damaged = whole.clone();
                    for byte in &mut damaged[block * 4096 + at..][..bytes] {
                        *byte = byte.wrapping_mul(5).wrapping_add(3);
                    }
                    std::fs::write(&path, &damaged).unwrap();
                    match target.import_table("t", &copy, &TREES) {
                        Ok(imported) => {
                            let found = [0, 1].map(|tree| content(&target, &imported, tree));
                            assert!(found == expected, "{path:?}, block {block}, byte {at}");
                            drop(imported);
                            target.drop_table("t").unwrap();
                        }
                        Err(Error::Corrupt { .. }) => refused += 1,
                        Err(error) => panic!("{path:?}, block {block}, byte {at}: {error}"),
                    }
                }
            }
            std::fs::write(&path, &whole[..whole.len() - 3 * 4096]).unwrap();
            let cut = target.import_table("t", &copy, &TREES);
            if let Ok(imported) = cut {
                assert!(content(&target, &imported, 0) == expected[0], "{path:?}");
                drop(imported);
                target.drop_table("t").unwrap();
            }
            std::fs::write(&path, &whole).unwrap();
        }
        assert!(refused > 10, "{refused}");
        target.import_table("t", &copy, &TREES).unwrap();
    });
}
