//! A database is open before its pages are redone.

mod failure_support;

use failure_support::{failed, insert, key, open_sim, rows};
use inkstone::internals::options::Doublewrite;
use inkstone::{Database, Error, Isolation, Options, Shutdown, Table};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::sync::{Arc, Mutex};

const ROWS: u64 = 3000;

/// Without copies of pages, which opening would compare with what is in place.
fn small() -> Options {
    Options {
        doublewrite: Doublewrite::Off,
        ..failure_support::small()
    }
}

/// A disk after a kill: table `t` has pages that need redo, and must be read for it, and `u`
/// has rows. With the name of the file of `t`.
fn crashed() -> (SimVfs, String) {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let (t, u) = (db.create_table("t", &[]), db.create_table("u", &[]));
    let (t, u) = (t.unwrap(), u.unwrap());
    insert(&db, &t, 0..ROWS, &[1; 100]).unwrap();
    insert(&db, &u, 0..10, b"u").unwrap();
    db.checkpoint().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        txn.update(&t, &key(n), &[2; 100]).unwrap();
    }
    txn.commit().unwrap();
    db.flush_log().unwrap();
    let name = t.path().file_name().unwrap().to_string_lossy().into_owned();
    let disk = vfs.kill();
    drop((t, u, db));
    (disk, name)
}

/// From now on nothing can be read of a file.
fn fail_reads(vfs: &SimVfs, file: &str) {
    vfs.fail(FaultRule {
        kind: Some(OpKind::Read),
        path_contains: file.to_owned(),
        nth: 1,
        times: u64::MAX,
        fault: Fault::Eio,
    });
}

fn gauge(db: &Database, name: &str) -> u64 {
    let mut status = db.status().into_iter();
    status.find(|(n, _)| *n == name).unwrap().1
}

#[track_caller]
fn check(db: &Database, table: &Table) {
    assert_eq!(rows(db, table).unwrap().len() as u64, ROWS);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for row in txn.range(table, ..).unwrap() {
        assert_eq!(row.unwrap().1, [2; 100]);
    }
    db.verify_table(table).unwrap();
}

#[test]
fn opening_returns_while_pages_wait() {
    let (disk, name) = crashed();
    fail_reads(&disk, &name);
    let db = open_sim(&disk, small()).unwrap();
    let report = db.open_report().clone();
    let recovered = report.recovered.unwrap();
    let redo = &recovered.redo;
    assert!(
        redo.pages_left > 50 && redo.bytes_left > 30 * ROWS,
        "{redo:?}"
    );
    let text = recovered.left_text();
    assert!(
        text.contains(&format!("{} pages", redo.pages_left)),
        "{text}"
    );
    // Others are there meanwhile.
    let u = db.table("u").unwrap();
    assert_eq!(rows(&db, &u).unwrap().len(), 10);
    insert(&db, &u, 10..20, b"u").unwrap();
    let left = db.redo_left();
    assert!(left.pages > 50 && left.bytes > 30 * ROWS, "{left:?}");
    assert_eq!(gauge(&db, "redo_pages_left"), left.pages);
    assert_eq!(gauge(&db, "redo_bytes_left"), left.bytes);
    assert!(db.table("t").is_err());
    assert!(matches!(failed(db.finish_redo()), Error::Io { .. }));
    // No checkpoint passes them, whatever is done.
    assert!(matches!(failed(db.checkpoint()), Error::Io { .. }));
    assert!(matches!(failed(db.flush_table(&u)), Error::Io { .. }));
    db.maintain(u64::MAX).unwrap();
    assert!(gauge(&db, "checkpoint_age_bytes") > 30 * ROWS);
    // They can be read again.
    disk.clear_faults();
    db.finish_redo().unwrap();
    assert_eq!(
        (db.redo_left().pages, gauge(&db, "redo_bytes_left")),
        (0, 0)
    );
    check(&db, &db.table("t").unwrap());
    db.checkpoint().unwrap();
    assert!(gauge(&db, "checkpoint_age_bytes") < 1000);
    drop(u);
    db.close().unwrap();
    assert!(open_sim(&disk, small()).unwrap().open_report().clean);
}

#[test]
fn pages_are_redone_in_the_background() {
    let (disk, _) = crashed();
    let db = open_sim(&disk, small()).unwrap();
    let begin = std::time::Instant::now();
    while db.redo_left().pages > 0 {
        assert!(begin.elapsed().as_secs() < 60, "{:?}", db.redo_left());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    check(&db, &db.table("t").unwrap());
}

#[test]
fn what_is_done_behind_the_opening_is_told_once() {
    let (disk, name) = crashed();
    for begins_late in [false, true] {
        let disk = disk.crash(1);
        if !begins_late {
            fail_reads(&disk, &name);
        }
        let db = open_sim(&disk, small()).unwrap();
        let redo = &db.open_report().recovered.as_ref().unwrap().redo;
        let wanted = format!(
            "redo behind the opening is complete: {} pages, {} bytes of changes, ",
            redo.pages_left, redo.bytes_left
        );
        if begins_late {
            until(&|| db.redo_left().pages == 0);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        db.tell_when_recovered(Arc::new(move |text| {
            hears.lock().unwrap().push(text.to_owned());
        }));
        if !begins_late {
            assert!(heard.lock().unwrap().is_empty());
            disk.clear_faults();
        }
        until(&|| !heard.lock().unwrap().is_empty());
        db.close().unwrap();
        let heard = heard.lock().unwrap();
        assert!(
            heard.len() == 1 && heard[0].starts_with(&wanted),
            "{heard:?}"
        );
    }
}

/// Waits for something that a background thread does.
fn until(is_so: &dyn Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_crash_while_pages_wait_loses_nothing() {
    let (disk, name) = crashed();
    fail_reads(&disk, &name);
    let db = open_sim(&disk, small()).unwrap();
    let u = db.table("u").unwrap();
    insert(&db, &u, 10..20, b"u").unwrap();
    db.maintain(u64::MAX).unwrap();
    db.flush_log().unwrap();
    assert!(db.redo_left().pages > 50);
    let again = disk.kill();
    again.clear_faults();
    drop((u, db));
    let db = open_sim(&again, small()).unwrap();
    assert!(db.open_report().recovered.as_ref().unwrap().redo.pages_left > 50);
    check(&db, &db.table("t").unwrap());
    assert_eq!(rows(&db, &db.table("u").unwrap()).unwrap().len(), 20);
}

#[test]
fn closes_while_pages_wait() {
    for how in [Shutdown::Slow, Shutdown::Fast, Shutdown::LogOnly] {
        for can_be_read in [true, false] {
            let (disk, name) = crashed();
            fail_reads(&disk, &name);
            let db = open_sim(&disk, small()).unwrap();
            assert!(db.redo_left().pages > 50);
            if can_be_read {
                disk.clear_faults();
            }
            let closed = db.close_as(how);
            let whole = how != Shutdown::LogOnly;
            assert_eq!(closed.is_ok(), can_be_read || !whole, "{closed:?}");
            disk.clear_faults();
            let db = open_sim(&disk, small()).unwrap();
            assert_eq!(db.open_report().clean, can_be_read && whole);
            check(&db, &db.table("t").unwrap());
        }
    }
}

#[test]
fn an_option_has_opening_wait() {
    let (disk, name) = crashed();
    let options = Options {
        redo_before_open: true,
        ..small()
    };
    fail_reads(&disk, &name);
    let refused = failed(open_sim(&disk, options.clone()));
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    disk.clear_faults();
    let db = open_sim(&disk, options).unwrap();
    let recovered = db.open_report().recovered.clone().unwrap();
    assert!(recovered.redo.pages_applied > 50 && recovered.redo.pages_left == 0);
    assert_eq!(
        (recovered.left_text().as_str(), db.redo_left().pages),
        ("", 0)
    );
    check(&db, &db.table("t").unwrap());
}

#[test]
fn a_table_is_dropped_while_its_pages_wait() {
    let (disk, name) = crashed();
    let db = open_sim(&disk, small()).unwrap();
    let t = db.table("t").unwrap();
    drop(t);
    fail_reads(&disk, &name);
    db.drop_table("t").unwrap();
    disk.clear_faults();
    db.finish_redo().unwrap();
    assert_eq!(db.redo_left().pages, 0);
    db.checkpoint().unwrap();
    let again = disk.kill();
    drop(db);
    let db = open_sim(&again, small()).unwrap();
    assert_eq!(db.tables().unwrap(), ["u"]);
}
