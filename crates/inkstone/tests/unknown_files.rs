//! Files that the database does not know: opening removes what its own log says it may, and nothing
//! else.

mod failure_support;

use failure_support::*;
use inkstone::internals::log::{LogReader, ReadParams};
use inkstone::{Database, Error, Isolation, Table};
use inkstone_format::Lsn;
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::segment::{LOG_BLOCK, parse_segment_file_name};
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, Vfs};
use std::ops::Range;
use std::path::Path;

/// A database with table `a` of 500 rows, closed.
fn make(directory: &Path) {
    let db = Database::open(directory, small()).unwrap();
    let table = db.create_table("a", &["second"]).unwrap();
    insert(&db, &table, 0..500, &[7; 100]).unwrap();
    db.close().unwrap();
}

/// Copies files of `from` over those of `to`; the log as a whole.
fn copy(from: &Path, to: &Path, wanted: impl Fn(&Path) -> bool) {
    let log = to.join("log");
    // It may not be there yet.
    let _ = std::fs::remove_dir_all(&log);
    std::fs::create_dir(&log).unwrap();
    for (path, bytes) in contents(from) {
        if path.is_file() && wanted(&path) {
            std::fs::write(to.join(path.strip_prefix(from).unwrap()), bytes).unwrap();
        }
    }
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "ink") && !path.ends_with("catalog.ink")
}

/// Control file, catalog and log are put back from a copy, as after their loss: tables that were
/// made since are not in that catalog, and must not be lost for that.
#[test]
fn an_older_catalog_destroys_no_newer_table() {
    let (dir, older) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(dir.path());
    copy(dir.path(), older.path(), |_| true);
    let db = Database::open(dir.path(), small()).unwrap();
    let table = db.create_table("b", &[]).unwrap();
    insert(&db, &table, 0..500, &[8; 100]).unwrap();
    let path = table.path();
    db.close().unwrap();
    let newer = std::fs::read(path).unwrap();

    copy(older.path(), dir.path(), |path| !is_table(path));
    let db = Database::open(dir.path(), small()).unwrap();
    assert_eq!(db.tables().unwrap(), ["a"]);
    let report = db.open_report().clone();
    assert!(report.removed.is_empty());
    let [aside] = &report.set_aside[..] else {
        panic!("{:?}", report.set_aside)
    };
    assert_eq!(aside.was, path);
    assert!(
        aside.to_string().contains("t00000002.ink.unknown"),
        "{aside}"
    );
    // Its number is not given to another table: it may get its name again.
    let next = db.create_table("c", &[]).unwrap();
    assert!(next.path().ends_with("t00000003.ink"));
    db.close().unwrap();
    let kept = contents(dir.path())
        .into_values()
        .any(|bytes| bytes == newer);
    assert!(kept, "the newer table's file is gone");
    let db = Database::open(dir.path(), small()).unwrap();
    assert!(db.open_report().set_aside.is_empty());
    let next = db.create_table("d", &[]).unwrap();
    assert!(next.path().ends_with("t00000004.ink"));
}

/// The log of every moment of a creation, beside the table's file of a later time: the log says
/// that the file was made, and not that a table has it, but the file's pages say that it was more
/// than that.
#[test]
fn a_log_that_was_cut_removes_no_table_of_a_later_time() {
    let vfs = SimVfs::new(1);
    vfs.open_directory(sim_dir(), Create::IfMissing).unwrap();
    open_sim(&vfs, small()).unwrap().close().unwrap();
    let db = open_sim(&vfs, small()).unwrap();
    let path = db.create_table("a", &[]).unwrap().path().to_owned();
    let killed = vfs.kill();
    drop(db);
    killed.settle();
    let later = killed.crash(1);
    let db = open_sim(&later, small()).unwrap();
    insert(&db, &db.table("a").unwrap(), 0..500, &[8; 100]).unwrap();
    db.close().unwrap();
    let newer = later.read_raw(&path).unwrap();

    let mut kept = 0;
    for end in frames(&killed) {
        let disk = killed.crash(1);
        cut_log(&disk, end);
        disk.truncate_raw(&path, 0).unwrap();
        disk.write_raw(&path, 0, &newer).unwrap();
        let Ok(db) = open_sim(&disk, small()) else {
            continue;
        };
        if db.tables().unwrap().is_empty() {
            kept += 1;
            db.close().unwrap();
            let files = disk.files();
            // Pages that the creation initialises are what the log says; all others are of the
            // later time.
            let (rows, read) = (&newer[8 * 4096..], |f| disk.read_raw(f).unwrap());
            let found = files.iter().any(|f| read(f).get(8 * 4096..) == Some(rows));
            assert!(
                found,
                "with the log up to LSN {end} the table is gone: {files:?}"
            );
        }
    }
    assert!(
        kept > 3,
        "the log of the creation was cut in {kept} places only"
    );
}

fn control(disk: &SimVfs) -> Control {
    let control = disk.read_raw(&sim_dir().join("control")).unwrap();
    let (first, second) = control.split_at(CONTROL_COPY_LEN);
    Control::choose([first, second]).unwrap().0
}

/// Where the frames that recovery would read end.
fn frames(disk: &SimVfs) -> Vec<Lsn> {
    let control = control(disk);
    let log = (disk.crash(1))
        .open_directory(&sim_dir().join("log"), Create::Never)
        .unwrap();
    let mut log = LogReader::open(ReadParams {
        must_reach: Lsn(0),
        ..ReadParams::of(&control, log)
    })
    .unwrap();
    let mut ends = Vec::new();
    while let Some(frame) = log.next().unwrap() {
        ends.push(frame.end);
    }
    ends
}

/// Nothing of the log is left behind `end`.
fn cut_log(disk: &SimVfs, end: Lsn) {
    let bytes = control(disk).log_segment_bytes;
    for path in disk.files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(number) = parse_segment_file_name(name) else {
            continue;
        };
        let keep = LOG_BLOCK as u64 + end.0.saturating_sub(number * bytes).min(bytes);
        let length = disk.read_raw(&path).unwrap().len() as u64;
        let zeroes = vec![0; length.saturating_sub(keep) as usize];
        disk.write_raw(&path, keep, &zeroes).unwrap();
    }
}

/// Files with names of log segments that are none: below the log's end they would be recycled,
/// beyond it removed or written to.
#[test]
fn what_is_no_segment_of_the_log_keeps_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let log = dir.path().join("log");
    let strange = [("0000000000000000.log", 1), ("00000000000000ff.log", 2)];
    for (name, byte) in strange {
        assert!(parse_segment_file_name(name).is_some());
        std::fs::write(log.join(name), [byte; 10_000]).unwrap();
    }
    let db = Database::open(dir.path(), small()).unwrap();
    let was: Vec<_> = db.open_report().set_aside.iter().map(|a| &a.was).collect();
    assert_eq!(was, [&log.join(strange[0].0), &log.join(strange[1].0)]);
    // More log than the file's size, so that all that is old is recycled.
    let table = db.table("a").unwrap();
    for n in 0..8 {
        insert(&db, &table, 1000 * (n + 1)..1000 * (n + 2), &[9; 1000]).unwrap();
        db.checkpoint().unwrap();
    }
    db.close().unwrap();
    for (name, byte) in strange {
        let is = log.join(format!("{name}.unknown"));
        assert_eq!(std::fs::read(is).unwrap(), [byte; 10_000]);
    }
}

/// An interrupted creation is begun anew, and removes what the first one left: not tables, which a
/// creation does not make.
#[test]
fn tables_beside_an_interrupted_creation_are_not_removed() {
    let (dir, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    make(made.path());
    std::fs::write(dir.path().join("creating"), "").unwrap();
    copy(made.path(), dir.path(), |path| !path.ends_with("control"));
    let before = contents(dir.path());
    let error = failed(Database::open(dir.path(), small()));
    assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
    assert!(error.to_string().contains("t00000001.ink"), "{error}");
    assert_eq!(contents(dir.path()), before);
}

/// The process ends at each step of a creation, by a kill or a power loss. Of what is left, opening
/// removes what is no table's, and names it.
#[test]
fn what_an_interrupted_creation_left_is_removed_and_named() {
    let mut removed = 0;
    for at in 1.. {
        let vfs = SimVfs::new(at);
        vfs.open_directory(sim_dir(), Create::IfMissing).unwrap();
        let db = open_sim(&vfs, small()).unwrap();
        vfs.crash_at(at);
        let created = db.create_table("a", &[]).is_ok();
        let disk = match at % 2 {
            0 => vfs.kill(),
            _ => vfs.crash(at),
        };
        drop(db);
        let tables = |disk: &SimVfs| {
            let files = disk.files().into_iter().filter(|path| is_table(path));
            files.collect::<Vec<_>>()
        };
        let before = tables(&disk);
        let db = open_sim(&disk, small()).unwrap();
        assert_eq!(db.open_report().set_aside.len(), 0, "mutation {at}");
        let (after, names) = (tables(&disk), db.tables().unwrap());
        assert_eq!(after.len(), names.len(), "mutation {at}: {after:?}");
        let gone: Vec<_> = before.iter().filter(|path| !after.contains(path)).collect();
        let named: Vec<_> = db.open_report().removed.iter().collect();
        assert_eq!(named, gone, "mutation {at}");
        removed += gone.len();
        if created {
            assert_eq!(names, ["a"]);
            break;
        }
    }
    assert!(removed > 0, "no crash left a file");
}

/// A recycled segment gets a new header in place. Power is lost at each step of that: no file with
/// a torn header is left under a segment's name, to be taken for that of another database.
#[test]
fn a_recycled_segment_is_never_taken_for_a_strange_file() {
    let vfs = SimVfs::new(1);
    vfs.open_directory(sim_dir(), Create::IfMissing).unwrap();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("a", &[]).unwrap();
    // The log has its full size when this ends: no new segment is made after it.
    let more = |db: &Database, table: &Table, rounds: Range<u64>| {
        for round in rounds {
            let txn = db.begin(Isolation::ReadCommitted)?;
            for n in 1000 * round..1000 * (round + 1) {
                // No two rows have bytes in common: the log holds all of them.
                let mut word = n + 1;
                let value: [u8; 1000] = std::array::from_fn(|_| {
                    word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n);
                    (word >> 56) as u8
                });
                txn.insert(table, &key(n), &value)?;
            }
            txn.commit()?;
            db.checkpoint()?;
        }
        Ok::<(), Error>(())
    };
    more(&db, &table, 0..8).unwrap();
    db.close().unwrap();
    let mut recycled = 0;
    for seed in 0..60 {
        let disk = vfs.crash(seed);
        let db = open_sim(&disk, small()).unwrap();
        let table = db.table("a").unwrap();
        disk.crash_at_in("prepare.tmp", 1 + seed % 20);
        let _ = more(&db, &table, 8..20);
        let status = db.status();
        let of_log = status
            .iter()
            .find(|(name, _)| *name == "log_segments_recycled");
        recycled += of_log.expect("the counter is there").1;
        drop((table, db));
        let disk = disk.crash(seed);
        let db = open_sim(&disk, small()).unwrap();
        let aside = &db.open_report().set_aside;
        assert!(aside.is_empty(), "seed {seed}: {aside:?}");
    }
    assert!(recycled > 0, "no segment was recycled");
}
