//! `verify_table` finds a page that is lost, and a page of a long value that others may be given.

use inkstone::{Database, Error, Isolation, Options};
use inkstone_format::apply::{bit, set_bits};
use inkstone_format::header::{PageType, page_type, stamp_checksum};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
const FILE: &str = "db/t00000001.ink";

fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: PAGE as u64,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

/// A closed database of one table with a long value.
fn made() -> SimVfs {
    let vfs = SimVfs::new(1);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.insert(&table, b"long", &[7; 3 * PAGE]).unwrap();
    txn.commit().unwrap();
    db.verify_table(&table).unwrap();
    db.close().unwrap();
    vfs.kill()
}

/// Sets or clears the bit of a page in the space map.
fn change_map(vfs: &SimVfs, page: u32, set: bool) {
    let mut map = vfs.read_raw(Path::new(FILE)).unwrap()[PAGE..2 * PAGE].to_vec();
    assert_ne!(bit(&map, page), set);
    set_bits(&mut map, page, 1, set);
    stamp_checksum(&mut map);
    vfs.write_raw(Path::new(FILE), PAGE as u64, &map).unwrap();
}

fn complaint(vfs: &SimVfs) -> String {
    let db = open(vfs);
    let table = db.table("t").unwrap();
    let error = db.verify_table(&table).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_lost_page_is_found() {
    let vfs = made();
    let file = vfs.read_raw(Path::new(FILE)).unwrap();
    let pages = (file.len() / PAGE) as u32;
    let free = (2..pages).find(|&page| !bit(&file[PAGE..], page)).unwrap();
    change_map(&vfs, free, true);
    let text = complaint(&vfs);
    assert!(text.contains("allocated but not in use"), "{text}");
}

#[test]
fn a_page_that_is_used_and_free_is_found() {
    let vfs = made();
    let file = vfs.read_raw(Path::new(FILE)).unwrap();
    let is_overflow = |page: &[u8]| page_type(page) == Some(PageType::Overflow);
    let used = file.chunks(PAGE).position(is_overflow).unwrap();
    change_map(&vfs, used as u32, false);
    let text = complaint(&vfs);
    assert!(text.contains("used by a long value of"), "{text}");
    assert!(text.contains("but not allocated"), "{text}");
}

/// As `ALTER TABLE .. ADD KEY` builds one while `CHECK TABLE` of another session looks.
#[test]
fn pages_of_a_tree_that_is_being_built_are_no_lost_pages() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs);
    let before = db.create_table("t", &[]).unwrap();
    let tree = db.create_tree("t", "built").unwrap();
    let tree = tree.tree("built").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for i in 0..1000_u32 {
        txn.insert(tree, &i.to_be_bytes(), &[7; 100]).unwrap();
    }
    txn.commit().unwrap();
    db.verify_table(&before).unwrap();
    assert_eq!(db.statistics(&before).unwrap().long_value_bytes, 0);
    db.drop_tree("t", "built").unwrap();
    db.verify_table(&before).unwrap();
}
