//! The cache of open files, over a simulated disk with few handles.

use super::*;
use crate::counters::Counters;
use crate::options::FlushMethod;
use crate::poison::Poison;
use crate::{Error, Result};
use inkstone_io::Create;
use inkstone_io::sim::{Fault, OpKind, SimVfs};
use std::path::Path;

/// Files on a disk, and a cache.
struct Rig {
    disk: SimVfs,
    poison: Poison,
    cache: OpenFiles,
    files: Vec<Arc<TableFile>>,
}

fn rig(files: usize, limit: usize) -> Rig {
    let disk = SimVfs::new(1);
    let directory = disk.directory("");
    let poison = Poison::default();
    let file = |n: usize| {
        let counters = Arc::new(Counters::default());
        let method = FlushMethod::Fsync;
        let (name, poison) = (format!("file{n}"), poison.clone());
        let file = TableFile::new(directory.clone(), name, method, counters, poison);
        Arc::new(file)
    };
    let rig = Rig {
        cache: OpenFiles::new(limit),
        files: (0..files).map(file).collect(),
        disk,
        poison,
    };
    for file in &rig.files {
        let used = file.acquire(&rig.cache, Create::New).unwrap();
        used.begin_write().write_at(b"bytes", 0).unwrap();
        used.sync().unwrap();
    }
    rig
}

impl Rig {
    fn read(&self, file: usize) -> Result<()> {
        let used = self.files[file].acquire(&self.cache, Create::Never)?;
        let mut bytes = [0; 5];
        used.bytes().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"bytes");
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.disk.operations_of(OpKind::Sync)
    }
}

#[test]
fn no_more_files_are_open_than_the_limit_says() {
    let rig = rig(9, 3);
    for round in 0..3 {
        for file in 0..9 {
            rig.read(file).unwrap();
            assert!(rig.cache.count() <= 3, "round {round}");
        }
    }
    assert_eq!(rig.cache.count(), 3);
    let opens = rig.disk.operations_of(OpKind::Open);
    rig.read(8).unwrap();
    assert_eq!(rig.disk.operations_of(OpKind::Open), opens, "it was open");
}

#[test]
fn files_that_are_used_often_stay_open() {
    let rig = rig(20, 4);
    for file in 1..20 {
        rig.read(0).unwrap();
        rig.read(file).unwrap();
    }
    let opens = rig.disk.operations_of(OpKind::Open);
    rig.read(0).unwrap();
    assert_eq!(rig.disk.operations_of(OpKind::Open), opens);
}

#[test]
fn too_few_descriptors_close_an_idle_file() {
    let rig = rig(9, 100);
    let directory = rig.disk.directory("");
    assert_eq!(rig.cache.count(), 9);
    // The two directories have handles, too.
    rig.disk.limit_handles(4);
    for file in 0..9 {
        rig.cache.close(&rig.files[file]);
    }
    for file in (0..9).chain(0..9) {
        rig.read(file).unwrap();
    }
    assert_eq!(rig.cache.count(), 2);
    let list = || rig.cache.with_descriptor(|| directory.list());
    assert_eq!(list().unwrap().len(), 9);
    assert_eq!(rig.cache.count(), 1);
    rig.disk.limit_handles(2);
    let error = list().unwrap_err();
    assert_eq!(rig.cache.count(), 0, "all were closed, in vain");
    assert!(wants_descriptor(&error), "{error}");
    let error = rig.read(0).unwrap_err().to_string();
    assert!(error.contains("Too many open files"), "{error}");
    assert!(!rig.poison.is_set());
}

#[test]
fn a_file_in_use_stays_open_and_others_wait_for_it() {
    let rig = rig(3, 1);
    let used = rig.files[0].acquire(&rig.cache, Create::Never).unwrap();
    assert!(rig.files[1].try_acquire(&rig.cache).unwrap().is_none());
    assert!(rig.files[0].try_acquire(&rig.cache).unwrap().is_some());
    crate::sync::test_scope(|scope| {
        let waiters = [1, 2].map(|file| {
            let rig = &rig;
            scope.spawn(move || rig.read(file).unwrap())
        });
        let mut bytes = [0; 5];
        used.bytes().read_at(&mut bytes, 0).unwrap();
        drop(used);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    assert_eq!(rig.cache.count(), 1);
}

#[test]
fn a_file_is_synced_before_it_is_closed() {
    let rig = rig(4, 2);
    let write = |file: usize| {
        let used = rig.files[file].acquire(&rig.cache, Create::Never).unwrap();
        used.begin_write().write_at(b"bytes", 0).unwrap();
    };
    let before = rig.syncs();
    write(0);
    rig.read(1).unwrap();
    rig.read(2).unwrap();
    assert_eq!(rig.syncs(), before, "the file without changes is closed");
    write(2);
    assert!(rig.files[1].try_acquire(&rig.cache).unwrap().is_none());
    rig.read(1).unwrap();
    assert_eq!(rig.syncs(), before + 1);
    let unsynced = |file: &usize| rig.files[*file].is_unsynced();
    assert_eq!((0..4).filter(unsynced).count(), 1);

    rig.disk.fail_nth(OpKind::Sync, 1, Fault::Eio);
    let used = rig.files[1].acquire(&rig.cache, Create::Never).unwrap();
    used.begin_write().write_at(b"bytes", 0).unwrap();
    drop(used);
    let error = rig.read(3).unwrap_err();
    assert!(matches!(error, Error::Poisoned(_)), "{error:?}");
}

#[test]
fn a_removed_file_is_closed_by_its_last_user() {
    let rig = rig(2, 2);
    let file = &rig.files[0];
    let used = file.acquire(&rig.cache, Create::Never).unwrap();
    file.set_removed(&rig.cache);
    used.begin_write().write_at(b"to no effect", 0).unwrap();
    assert_eq!(rig.cache.count(), 2);
    let error = rig.read(0).unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error:?}");
    drop(used);
    assert_eq!(rig.cache.count(), 1);
    rig.files[1].set_removed(&rig.cache);
    assert_eq!(rig.cache.count(), 0);
}

#[test]
fn many_threads_share_few_handles() {
    let rig = rig(12, 3);
    crate::sync::test_scope(|scope| {
        for thread in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                for n in 0..60 {
                    let file = (n * 7 + thread * 5) % 12;
                    let used = rig.files[file].acquire(&rig.cache, Create::Never).unwrap();
                    used.begin_write().write_at(b"bytes", 0).unwrap();
                    if n % 3 == 0 {
                        used.sync().unwrap();
                    }
                    drop(used);
                    rig.read((file + 1) % 12).unwrap();
                    assert!(rig.cache.count() <= 3);
                }
            });
        }
    });
    assert!(
        rig.disk.handles_max() <= 3 + 2,
        "{}",
        rig.disk.handles_max()
    );
}

/// A kernel tells of a failed write-back to the handles that were open.
#[test]
fn a_failed_write_back_is_told_of_a_file_that_was_closed() {
    for fails_while_open in [true, false] {
        let rig = rig(5, 1);
        rig.disk.sync_dir(Path::new("")).unwrap();
        let used = rig.files[0].acquire(&rig.cache, Create::Never).unwrap();
        used.begin_write().write_at(b"other", 0).unwrap();
        drop(used);
        let fail = |now: bool| now.then(|| rig.disk.fail_write_back("file0"));
        fail(fails_while_open);
        let others = || (1..5).chain(1..5).try_for_each(|file| rig.read(file));
        let closed = others();
        fail(!fails_while_open);
        let synced = closed.and_then(|()| {
            let used = rig.files[0].acquire(&rig.cache, Create::Never)?;
            used.sync()
        });
        assert_eq!(synced.is_err(), fails_while_open);
        assert_eq!(rig.poison.is_set(), fails_while_open);
        let survives =
            |seed| rig.disk.crash(seed).read_raw(Path::new("file0")).unwrap() == b"other";
        assert!(synced.is_err() || (0..20).all(survives));
    }
}
