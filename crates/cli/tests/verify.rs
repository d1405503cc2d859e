//! `inkstone verify` of databases that are larger than most tests', or were left in the middle.

mod common;

use common::{SMALL, json, json_ok, run};
use inkstone::{Database, Isolation, Options};

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 8 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    }
}

/// The first page of the second region stays unused; it was taken for a page that was lost.
#[test]
fn a_file_of_two_regions_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let long = vec![b'x'; 45 << 20];
    for key in [b"a", b"b", b"c"] {
        txn.insert(&table, key, &long).unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
    let region = inkstone_format::apply::map_pages(4096);
    let pages = table.path().metadata().unwrap().len() / 4096;
    assert!(pages > u64::from(region) + 2, "{pages} pages");
    let path = dir.path().display().to_string();
    let verify = [&["verify", &path], &SMALL[..]].concat();
    assert_eq!(json_ok(&verify)[0]["ok"], true);
    let mut bytes = std::fs::read(table.path()).unwrap();
    bytes[(region as usize + 2) * 4096 + 100] ^= 1;
    std::fs::write(table.path(), &bytes).unwrap();
    let (code, lines) = json(&verify);
    assert_eq!(code, 1);
    assert_eq!(lines[0]["error"]["page"], format!("1:{}", region + 2));
}

/// It looked at tables alone, and opening told of the damage later.
#[test]
fn undo_that_is_damaged_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for key in 0..20_000u32 {
        txn.insert(&table, &key.to_be_bytes(), &[7; 200]).unwrap();
    }
    txn.commit().unwrap();
    let open = db.begin(Isolation::ReadCommitted).unwrap();
    for key in 0..20_000u32 {
        open.update(&table, &key.to_be_bytes(), &[8; 200]).unwrap();
    }
    open.prepare(b"xid").unwrap();
    db.maintain(0).unwrap();
    db.close().unwrap();
    let path = dir.path().display().to_string();
    let (code, out, err) = run(&["verify", &path]);
    assert_eq!(code, 0, "{out}{err}");
    let undo = dir.path().join("undo");
    let mut bytes = std::fs::read(&undo).unwrap();
    let mut values = bytes.windows(100).enumerate();
    let at = values.find(|(_, window)| window.iter().all(|&byte| byte == 7));
    let (at, _) = at.expect("an old value in the undo file");
    bytes[at..at + 8].fill(0xa5);
    std::fs::write(&undo, &bytes).unwrap();
    let (code, out, err) = run(&["verify", &path]);
    let named = err.contains(&undo.display().to_string());
    assert!(code == 1 && named, "{code}: {out}{err}");
}
