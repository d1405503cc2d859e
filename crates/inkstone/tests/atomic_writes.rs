//! `doublewrite=atomic`: refused where the device has no untorn writes, and used where it has.

mod failure_support;

use failure_support::*;
use inkstone::internals::options::{Doublewrite, FlushMethod};
use inkstone::{Database, Error, Options};
use inkstone_io::AtomicWriteLimits;
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::process::Command;

fn atomic() -> Options {
    Options {
        doublewrite: Doublewrite::Atomic,
        ..small()
    }
}

fn limits(unit_min: u32, unit_max: u32) -> Option<AtomicWriteLimits> {
    Some(AtomicWriteLimits {
        unit_min,
        unit_max,
        unit_max_opt: 0,
    })
}

#[test]
fn refused_by_a_file_system_without() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    let db = Database::open(&old, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..100, b"row").unwrap();
    drop(table);
    db.close().unwrap();
    let before = contents(&old);
    match Database::open(&old, atomic()) {
        Err(error) => {
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
            says(
                &error,
                &[
                    "doublewrite=atomic",
                    "RWF_ATOMIC",
                    "catalog.ink",
                    "use doublewrite=on",
                ],
            );
            assert!(contents(&old) == before);
        }
        Ok(_) => println!("the file system of {} has untorn writes", old.display()),
    }
    if let Err(error) = Database::open(&new, atomic()) {
        says(&error, &["doublewrite=atomic", "use doublewrite=on"]);
        let left: Vec<_> = contents(&new).into_keys().collect();
        assert_eq!(left, [new.join("lock"), new.join("log")]);
    }
    for directory in [new, old] {
        drop(Database::open(directory, small()).unwrap());
    }
}

#[test]
fn refused_by_a_device_with_smaller_units() {
    let vfs = SimVfs::new(1);
    vfs.set_atomic_write_limits(limits(512, 2048));
    let error = failed(open_sim(&vfs, atomic()));
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    says(&error, &["512 to 2048 bytes", "a page has 4096"]);
    assert!(vfs.files().iter().all(|path| path.ends_with("lock")));
}

/// Power goes while pages are overwritten in place. How many of so many databases are whole after
/// it.
fn survivors(options: &Options, seeds: u64) -> u64 {
    let survives = |seed: u64| {
        let vfs = SimVfs::new(seed);
        vfs.set_atomic_write_limits(limits(4096, 65536));
        let db = open_sim(&vfs, options.clone()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        insert(&db, &table, 0..1000, &[1; 200]).unwrap();
        db.checkpoint().unwrap();
        let txn = db.begin(inkstone::Isolation::ReadCommitted).unwrap();
        for n in 0..1000 {
            txn.update(&table, &key(n), &[2; 200]).unwrap();
        }
        txn.commit().unwrap();
        vfs.crash_at(1 + seed % 8);
        let _ = db.checkpoint();
        let copied = db
            .counters()
            .get(inkstone::internals::counters::Counter::DoublewritePages);
        assert_eq!(copied, 0);
        drop((db, table));
        let vfs = vfs.crash(seed);
        assert!(!vfs.files().contains(&sim_dir().join("doublewrite")));
        let check = || {
            let db = open_sim(&vfs, options.clone())?;
            let table = db.table("t")?;
            db.verify_table(&table)?;
            let txn = db.begin(inkstone::Isolation::ReadCommitted)?;
            for n in 0..1000 {
                assert_eq!(txn.get(&table, &key(n))?, Some(vec![2; 200]));
            }
            Ok(())
        };
        match check() {
            Ok(()) => true,
            Err(Error::Corrupt { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    };
    (0..seeds).filter(|&seed| survives(seed)).count() as u64
}

#[test]
fn untorn_writes_survive_power_loss_without_copies() {
    assert_eq!(survivors(&atomic(), 40), 40);
    // Without any protection some are torn: the test would notice.
    let off = Options {
        doublewrite: Doublewrite::Off,
        ..small()
    };
    let survivors = survivors(&off, 160);
    assert!(survivors < 160, "{survivors}");
}

/// Untorn writes by the kernel, on XFS over a loop device.
#[test]
#[ignore = "needs root, mkfs.xfs (package xfsprogs), a loop device and Linux 6.16: run it with --ignored"]
fn works_on_xfs() {
    let dir = tempfile::tempdir().unwrap();
    let mount = XfsMount::new(dir.path());
    for (page_size, method) in [
        (4096, FlushMethod::ODirect),
        (16384, FlushMethod::ODirect),
        (65536, FlushMethod::ODirectNoFsync),
    ] {
        let options = Options {
            page_size,
            buffer_pool_size: 64 * page_size,
            flush_method: method,
            ..atomic()
        };
        let directory = mount.0.join(format!("db{page_size}"));
        let db = Database::open(&directory, options.clone()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        for part in 0..20 {
            insert(
                &db,
                &table,
                part * 500..(part + 1) * 500,
                &[part as u8; 600],
            )
            .unwrap();
        }
        db.checkpoint().unwrap();
        let counters = db.counters();
        assert_eq!(
            counters.get(inkstone::internals::counters::Counter::DoublewritePages),
            0
        );
        assert!(counters.get(inkstone::internals::counters::Counter::PagesWritten) > 80);
        drop(table);
        drop(db);
        let db = Database::open(&directory, options).unwrap();
        let table = db.table("t").unwrap();
        assert_eq!(rows(&db, &table).unwrap().len(), 10_000);
        db.verify_table(&table).unwrap();
        println!("pages of {page_size} bytes, {method}: all is well");
    }
}

struct XfsMount(std::path::PathBuf);

impl XfsMount {
    fn new(directory: &Path) -> Self {
        let (image, mount) = (directory.join("xfs.img"), directory.join("mnt"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::File::create(&image)
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        run(Command::new("mkfs.xfs")
            .args(["-q", "-m", "reflink=1"])
            .arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&mount));
        Self(mount)
    }
}

impl Drop for XfsMount {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "{command:?}: {status:?}; this test needs root and xfsprogs"
    );
}
