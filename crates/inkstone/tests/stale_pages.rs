//! Older versions of pages in their own place, and what becomes of the page LSN map between
//! openings.

use inkstone::internals::store::PAGE_LSN_MAP_FILE;
use inkstone::{Database, Error, Isolation, Options, Result};
use std::path::Path;

const PAGE: usize = 4096;
/// More pages than the doublewrite file has copies of.
const ROWS: u32 = 1200;
const FILE: &str = "t00000001.ink";

fn open(directory: &Path) -> Result<Database> {
    let options = Options {
        page_size: PAGE as u64,
        buffer_pool_size: 64 * PAGE as u64,
        buffer_pool_dump_at_shutdown: false,
        ..Options::default()
    };
    Database::open(directory, options)
}

/// Writes every row anew, and closes.
fn write(directory: &Path, value: u8) {
    let db = open(directory).unwrap();
    let table = db
        .table("t")
        .or_else(|_| db.create_table("t", &[]))
        .unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        txn.upsert(&table, &n.to_be_bytes(), &[value; 400]).unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
}

fn read(directory: &Path) -> Result<Vec<Vec<u8>>> {
    let db = open(directory)?;
    let txn = db.begin(Isolation::ReadCommitted)?;
    let rows: Result<Vec<_>> = txn.range(&db.table("t")?, ..)?.collect();
    drop(txn);
    db.close()?;
    Ok(rows?.into_iter().map(|(_, value)| value).collect())
}

/// Pages of the table's file that differ between two times, where both have some.
fn differing(old: &[u8], new: &[u8]) -> Vec<usize> {
    let pages = old.chunks(PAGE).zip(new.chunks(PAGE)).enumerate();
    let written = pages.filter(|(_, (old, new))| old != new && old.iter().any(|&b| b != 0));
    written.map(|(n, _)| n).collect()
}

#[test]
fn each_page_that_goes_back_in_time_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    write(dir.path(), 1);
    let old = std::fs::read(&path).unwrap();
    write(dir.path(), 2);
    let new = std::fs::read(&path).unwrap();
    let changed = differing(&old, &new);
    assert!(changed.len() > 50, "{} pages", changed.len());
    // The last batches of pages have their copies in the doublewrite file: not here.
    let copies = dir.path().join("doublewrite");
    let whole = std::fs::read(&copies).unwrap();
    let (mut found, mut mended) = (0, 0);
    for page in changed.into_iter().step_by(3) {
        let mut bytes = new.clone();
        bytes[page * PAGE..][..PAGE].copy_from_slice(&old[page * PAGE..][..PAGE]);
        std::fs::write(&path, &bytes).unwrap();
        match read(dir.path()) {
            Err(Error::Corrupt { file, page: at, .. }) => {
                assert_eq!((file, at.unwrap().page.0 as usize), (path.clone(), page));
                found += 1;
            }
            Ok(rows) => {
                assert!(rows.iter().all(|value| value == &[2; 400]));
                mended += 1;
            }
            Err(error) => panic!("page {page}: {error}"),
        }
        std::fs::write(&path, &new).unwrap();
        std::fs::write(&copies, &whole).unwrap();
    }
    assert!(found > 0 && mended > 0, "{found} found, {mended} mended");
}

#[test]
fn a_map_that_is_missing_is_made_and_learns() {
    let dir = tempfile::tempdir().unwrap();
    let (path, map) = (dir.path().join(FILE), dir.path().join(PAGE_LSN_MAP_FILE));
    write(dir.path(), 1);
    std::fs::remove_file(&map).unwrap();
    assert_eq!(read(dir.path()).unwrap().len(), ROWS as usize);
    assert!(map.exists());
    let old = std::fs::read(&path).unwrap();
    write(dir.path(), 2);
    std::fs::remove_file(dir.path().join("doublewrite")).unwrap();
    let new = std::fs::read(&path).unwrap();
    let page = differing(&old, &new)[20];
    let mut bytes = new;
    bytes[page * PAGE..][..PAGE].copy_from_slice(&old[page * PAGE..][..PAGE]);
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(read(dir.path()), Err(Error::Corrupt { .. })));
}

/// Of the files of one time beside the map of a later one: the map is not believed.
#[test]
fn a_restored_database_has_no_use_for_a_newer_map() {
    let (dir, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = |from: &Path, to: &Path, with_map: bool| {
        for part in ["", "log"] {
            std::fs::create_dir_all(to.join(part)).unwrap();
            for entry in std::fs::read_dir(from.join(part)).unwrap() {
                let name = entry.unwrap().file_name();
                let (from, to) = (from.join(part).join(&name), to.join(part).join(&name));
                if from.is_file() && (with_map || name != PAGE_LSN_MAP_FILE) {
                    std::fs::copy(from, to).unwrap();
                }
            }
        }
    };
    write(dir.path(), 1);
    copy(dir.path(), backup.path(), false);
    for value in [2, 3] {
        write(dir.path(), value);
        let newer = std::fs::read(dir.path().join(PAGE_LSN_MAP_FILE)).unwrap();
        let restored = tempfile::tempdir().unwrap();
        copy(backup.path(), restored.path(), false);
        std::fs::write(restored.path().join(PAGE_LSN_MAP_FILE), newer).unwrap();
        for _ in 0..2 {
            let rows = read(restored.path()).unwrap();
            assert!(rows.iter().all(|value| value == &[1; 400]));
        }
    }
    // With its own map, the backup is what it was.
    copy(dir.path(), backup.path(), true);
    assert!(
        read(backup.path())
            .unwrap()
            .iter()
            .all(|value| value == &[3; 400])
    );
}
