//! Faults, capacity, the ends of a process. Crashes have their own files.

mod crash;
mod names;
mod write_back;

use super::*;
use crate::{AlignedBuffer, Op, Submission};

const OPTIONS: OpenOptions = OpenOptions {
    create: Create::IfMissing,
    read_only: false,
    direct: false,
    dsync: false,
};

fn open(vfs: &SimVfs, name: &str) -> Arc<dyn File> {
    vfs.open(Path::new(name), OPTIONS).expect("an open file")
}

/// A file with a durable name.
fn open_durable(vfs: &SimVfs, name: &str) -> Arc<dyn File> {
    let file = open(vfs, name);
    vfs.sync_dir(Path::new("")).expect("a synced directory");
    file
}

fn bytes(vfs: &SimVfs, name: &str) -> Vec<u8> {
    vfs.read_raw(Path::new(name)).expect("the bytes of a file")
}

fn check_invariants(vfs: &SimVfs) {
    for node in vfs.disk.names.lock().files().values() {
        node.state.lock().check_invariants();
    }
}

#[test]
fn the_nth_operation_fails_once() {
    let vfs = SimVfs::new(1);
    let file = open(&vfs, "file");
    vfs.fail_nth(OpKind::Write, 2, Fault::Enospc);
    vfs.fail_nth(OpKind::Read, 1, Fault::Eio);
    file.write_at(b"one", 0).unwrap();
    let error = file.write_at(b"two", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let error = file.read_at(&mut [0; 3], 0).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    assert_eq!(bytes(&vfs, "file"), b"one");
    file.write_at(b"two", 0).unwrap();
    file.read_at(&mut [0; 3], 0).unwrap();
    assert_eq!(vfs.operations_of(OpKind::Write), 3);
}

#[test]
fn every_kind_fails_on_command_and_then_works() {
    for kind in OpKind::ALL {
        let vfs = SimVfs::new(1);
        let file = open(&vfs, "file");
        open(&vfs, "other");
        file.write_at(&[1; 10], 0).unwrap();
        let run = |kind| match kind {
            OpKind::Read => file.read_at(&mut [0; 10], 0),
            OpKind::Write => file.write_at(&[2; 10], 0),
            OpKind::Sync => file.sync(),
            OpKind::Allocate => file.allocate(0, 100),
            OpKind::Rename => vfs.rename(Path::new("file"), Path::new("new")),
            OpKind::SyncDir => vfs.sync_dir(Path::new("")),
            OpKind::Open => vfs.open(Path::new("other"), OPTIONS).map(drop),
            OpKind::Remove => vfs.remove(Path::new("other")),
            OpKind::Truncate => file.set_len(5),
            OpKind::Look => file.len().map(drop),
            OpKind::List => vfs.read_dir(Path::new("")).map(drop),
            OpKind::CreateDir => vfs.create_dir_all(Path::new("directory")),
            OpKind::Lock => vfs.lock(Path::new("other")).map(drop),
        };
        for fault in [Fault::Eio, Fault::Enospc] {
            let before = (vfs.files(), bytes(&vfs, "file"));
            vfs.fail_nth(kind, 1, fault);
            assert!(run(kind).is_err(), "{kind:?}");
            assert!(before == (vfs.files(), bytes(&vfs, "file")), "{kind:?}");
        }
        run(kind).unwrap();
    }
}

#[test]
fn some_bytes_of_a_file_fail_for_ever() {
    let vfs = SimVfs::new(1);
    let (bad, good) = (open(&vfs, "bad"), open(&vfs, "good"));
    bad.write_at(&[1; 8192], 0).unwrap();
    good.write_at(&[1; 8192], 0).unwrap();
    let rule = FaultRule {
        kind: Some(OpKind::Read),
        path_contains: "bad".to_owned(),
        nth: 1,
        times: u64::MAX,
        fault: Fault::Eio,
    };
    vfs.fail_bytes(rule, 4096..4097);
    for _ in 0..10 {
        let read = |offset| bad.read_at(&mut [0; 4096], offset).is_ok();
        assert_eq!((read(0), read(1), read(4096)), (true, false, false));
        good.read_at(&mut [0; 4096], 4096).unwrap();
        bad.write_at(&[2; 4096], 4096).unwrap();
    }
    vfs.clear_faults();
    bad.read_at(&mut [0; 4096], 4096).unwrap();
}

#[test]
fn handles_come_to_an_end() {
    let vfs = SimVfs::new(1);
    open(&vfs, "there");
    vfs.limit_handles(2);
    let held = [open(&vfs, "one"), open(&vfs, "two")];
    let too_many = |error: crate::Error| {
        let wanted = rustix::io::Errno::MFILE.raw_os_error();
        assert_eq!(error.raw_os_error(), Some(wanted));
    };
    too_many(vfs.open(Path::new("there"), OPTIONS).map(drop).unwrap_err());
    too_many(vfs.open(Path::new("new"), OPTIONS).map(drop).unwrap_err());
    too_many(vfs.read_dir(Path::new("")).map(drop).unwrap_err());
    too_many(vfs.lock(Path::new("lock")).map(drop).unwrap_err());
    assert!(!vfs.exists(Path::new("new")).unwrap());
    drop(held);
    let _held = (open(&vfs, "three"), vfs.lock(Path::new("lock")).unwrap());
    assert_eq!(vfs.handles_max(), 2);
    too_many(vfs.open(Path::new("there"), OPTIONS).map(drop).unwrap_err());
    vfs.limit_handles(3);
    open(&vfs, "there");
}

#[test]
fn wrong_reads_answer_wrong_bytes_once() {
    let vfs = SimVfs::new(1);
    let file = open(&vfs, "file");
    file.write_at(&[1, 2, 3, 4], 0).unwrap();
    let read = |offset| {
        let mut pair = [0; 2];
        file.read_at(&mut pair, offset).unwrap();
        pair
    };
    vfs.fail_nth(OpKind::Read, 1, Fault::WrongPlace);
    assert_eq!((read(0), read(0)), ([3, 4], [1, 2]));
    vfs.fail_nth(OpKind::Read, 1, Fault::WrongPlace);
    assert_eq!((read(2), read(2)), ([1, 2], [3, 4]));
    vfs.fail_nth(OpKind::Read, 1, Fault::FlippedBit);
    let bits =
        |a: [u8; 2], b: [u8; 2]| (u16::from_le_bytes(a) ^ u16::from_le_bytes(b)).count_ones();
    assert_eq!(bits(read(0), [1, 2]), 1);
    assert_eq!(read(0), [1, 2]);
}

#[test]
fn a_settled_disk_survives_every_crash_as_it_is() {
    let vfs = SimVfs::new(1);
    open(&vfs, "gone");
    open(&vfs, "file").write_at(b"bytes", 0).unwrap();
    vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
    assert!(open(&vfs, "file").sync().is_err());
    vfs.settle();
    vfs.remove_raw(Path::new("gone")).unwrap();
    for seed in 0..20 {
        let after = vfs.crash(seed);
        assert_eq!(after.files(), [Path::new("file")]);
        assert_eq!(bytes(&after, "file"), b"bytes");
    }
}

#[test]
fn rules_match_paths_and_repeat() {
    let vfs = SimVfs::new(1);
    let (log, data) = (open(&vfs, "log.1"), open(&vfs, "data"));
    vfs.fail(FaultRule {
        kind: None,
        path_contains: "log".to_owned(),
        nth: 2,
        times: 2,
        fault: Fault::Eio,
    });
    let run = || {
        (
            log.write_at(b"x", 0).is_ok(),
            data.write_at(b"x", 0).is_ok(),
        )
    };
    let found = [run(), run(), run(), run()];
    assert_eq!(
        found,
        [(true, true), (false, true), (false, true), (true, true)]
    );
    vfs.fail_nth_of_all(1, Fault::Eio);
    vfs.clear_faults();
    assert!(data.sync().is_ok());
    vfs.fail_nth_of_all(3, Fault::Eio);
    assert!(data.sync().is_ok());
    assert!(log.len().is_ok());
    assert!(log.sync().is_err());
}

#[test]
fn short_writes_write_a_first_part() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let vfs = SimVfs::new(seed);
        let file = open(&vfs, "file");
        vfs.fail_nth(OpKind::Write, 1, Fault::ShortWrite);
        file.write_at(&[1; 100], 0).unwrap_err();
        let found = bytes(&vfs, "file");
        assert!(found.len() < 100 && found.iter().all(|&byte| byte == 1));
        lengths.insert(found.len());
    }
    assert!(lengths.len() > 10, "only {lengths:?}");
}

#[test]
fn a_full_disk_refuses_and_changes_nothing() {
    let vfs = SimVfs::new(1);
    vfs.set_capacity_bytes(40 * 4096 + 100);
    let file = open(&vfs, "file");
    file.allocate(0, 30 * 4096).unwrap();
    file.write_at(&[1; 4096], 4096).unwrap();
    assert_eq!(vfs.used_bytes(), 30 * 4096);
    let other = open(&vfs, "other");
    let full = ErrorKind::StorageFull;
    assert_eq!(other.allocate(0, 11 * 4096).unwrap_err().kind(), full);
    assert!(other.is_empty().unwrap());
    other.write_at(&[1; 10 * 4096], 4096).unwrap();
    assert_eq!(
        other.write_at(&[2; 4097], 10 * 4096).unwrap_err().kind(),
        full
    );
    assert_eq!(bytes(&vfs, "other")[4096..], [1; 10 * 4096]);
    file.write_at(&[3; 4096], 0).unwrap();
    file.set_len(20 * 4096).unwrap();
    other.write_at(&[2; 4096], 0).unwrap();
    assert_eq!(vfs.used_bytes(), 31 * 4096);
    let after = vfs.crash(3);
    assert_eq!(after.disk.take_space(1000).unwrap_err().kind(), full);
}

#[test]
fn removed_files_give_their_space_back_when_closed() {
    let vfs = SimVfs::new(1);
    let file = open(&vfs, "file");
    file.write_at(&[1; 8192], 0).unwrap();
    open(&vfs, "other").write_at(&[1; 4096], 0).unwrap();
    vfs.remove(Path::new("file")).unwrap();
    assert_eq!(vfs.used_bytes(), 3 * 4096);
    file.write_at(&[1; 4096], 8192).unwrap();
    drop(file);
    assert_eq!(vfs.used_bytes(), 4096);
    open(&vfs, "third");
    vfs.rename(Path::new("third"), Path::new("other")).unwrap();
    assert_eq!(vfs.used_bytes(), 0);
}

#[test]
fn a_dead_process_can_do_nothing() {
    let vfs = SimVfs::new(1);
    let file = open_durable(&vfs, "file");
    file.write_at(b"text", 0).unwrap();
    file.sync().unwrap();
    let lock = vfs.lock(Path::new("lock")).unwrap();
    let mut batch = vfs.batch(4).unwrap();
    let killed = vfs.kill();
    let new_lock = killed.lock(Path::new("lock")).unwrap();
    drop(lock);
    assert!(
        killed.lock(Path::new("lock")).is_err(),
        "the dead guard frees nothing"
    );
    drop(new_lock);
    let path = Path::new("file");
    let mut operations = [Op::Sync { file: &*file }];
    let outcomes = [
        file.write_at(b"x", 0),
        file.read_at(&mut [0], 0),
        file.sync(),
        file.set_len(0),
        file.allocate(0, 9),
        file.len().map(drop),
        vfs.open(path, OPTIONS).map(drop),
        vfs.remove(path),
        vfs.rename(path, Path::new("new")),
        vfs.sync_dir(Path::new("")),
        vfs.create_dir_all(Path::new("directory")),
        vfs.read_dir(Path::new("")).map(drop),
        vfs.exists(path).map(drop),
        vfs.lock(Path::new("lock")).map(drop),
        vfs.batch(1).map(drop),
        batch.run(&mut operations).remove(0),
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        assert!(is_dead_error(&outcome.unwrap_err()), "outcome {number}");
    }
    assert!(vfs.is_dead() && !killed.is_dead());
    assert_eq!(bytes(&killed, "file"), b"text");
}

#[test]
fn a_kill_keeps_what_was_written_and_a_crash_may_still_lose_it() {
    let mut lost = 0;
    for seed in 0..50 {
        let vfs = SimVfs::new(1);
        open_durable(&vfs, "file").write_at(b"text", 0).unwrap();
        let killed = vfs.kill();
        assert_eq!(bytes(&killed, "file"), b"text");
        let again = open(&killed, "file");
        let mut found = [0; 4];
        again.read_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"text");
        lost += usize::from(bytes(&killed.crash(seed), "file") != b"text");
    }
    assert!((5..45).contains(&lost), "{lost}");
}

#[test]
fn crash_at_stops_at_the_mutation_asked_for() {
    let run = |vfs: &SimVfs| -> Result<()> {
        let file = vfs.open(Path::new("file"), OPTIONS)?;
        vfs.sync_dir(Path::new(""))?;
        file.allocate(0, 100)?;
        file.write_at(&[1; 100], 0)?;
        file.read_at(&mut [0; 100], 0)?;
        file.sync()?;
        vfs.rename(Path::new("file"), Path::new("new"))?;
        vfs.sync_dir(Path::new(""))?;
        vfs.remove(Path::new("new"))
    };
    let whole = SimVfs::new(1);
    run(&whole).unwrap();
    assert_eq!((whole.mutations(), whole.operations()), (8, 9));
    for mutation in 1..=8 {
        let vfs = SimVfs::new(1);
        vfs.crash_at(mutation);
        assert!(is_dead_error(&run(&vfs).unwrap_err()));
        assert_eq!(vfs.mutations(), mutation);
        assert!(vfs.is_dead());
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let after = vfs.crash(seed);
            assert_eq!(after.mutations(), 0);
            let content = |path: PathBuf| (after.read_raw(&path).unwrap(), path);
            seen.insert(after.files().into_iter().map(content).collect::<Vec<_>>());
        }
        // The effect of the last operation may be there or not, unless it is a sync.
        let expected = [2, 2, 2, 3, 3, 2, 2, 2];
        let (least, found) = (expected[mutation as usize - 1], seen.len());
        assert!(found >= least, "mutation {mutation}: {seen:?}");
    }
    let vfs = SimVfs::new(1);
    vfs.crash_at(9);
    run(&vfs).unwrap();
}

#[test]
fn corruption_is_durable() {
    let vfs = SimVfs::new(1);
    let file = open_durable(&vfs, "file");
    file.write_at(&[0; 10_000], 0).unwrap();
    file.sync().unwrap();
    let path = Path::new("file");
    vfs.flip_bit(path, 5000, 3).unwrap();
    vfs.write_raw(path, 9_999, b"ab").unwrap();
    let check = |vfs: &SimVfs| {
        let found = bytes(vfs, "file");
        assert_eq!(
            (found.len(), found[5000], &found[9_999..]),
            (10_001, 8, &b"ab"[..])
        );
    };
    check(&vfs);
    check_invariants(&vfs);
    let after = vfs.crash(1);
    check(&after);
    after.truncate_raw(path, 6000).unwrap();
    assert_eq!(bytes(&after.crash(1), "file").len(), 6000);
    assert_eq!(after.used_bytes(), 2 * 4096);
    assert_eq!(
        after.flip_bit(path, 6000, 0).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    assert_eq!(
        after.flip_bit(Path::new("no"), 0, 0).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

/// Of a write that was torn a stale read gives what it gave when the write was whole.
#[test]
fn a_torn_write_leaves_what_was_there() {
    let vfs = SimVfs::new(1);
    let file = open_durable(&vfs, "file");
    file.write_at(&[1; 8192], 0).unwrap();
    file.write_at(&[2; 8192], 0).unwrap();
    let path = Path::new("file");
    vfs.tear_raw(path, 2048, 2048).unwrap();
    vfs.tear_raw(path, 8192, 100).unwrap();
    let expected = [[2; 2048], [1; 2048], [2; 2048], [2; 2048], [0; 2048]].concat();
    assert!(bytes(&vfs, "file") == expected[..8292]);
    vfs.fail_nth(OpKind::Read, 1, Fault::Stale);
    let mut stale = [0; 8192];
    file.read_at(&mut stale, 0).unwrap();
    assert!(stale == [1; 8192]);
    check_invariants(&vfs);
    assert!(bytes(&vfs.crash(1), "file") == expected[..8292]);
}

#[test]
fn atomic_writes_have_limits() {
    let vfs = SimVfs::new(1);
    let options = OpenOptions {
        direct: true,
        ..OPTIONS
    };
    let file = vfs.open(Path::new("file"), options).unwrap();
    let buffer = AlignedBuffer::zeroed(65536);
    let write = |length: usize, offset| file.write_atomic_at(&buffer[..length], offset);
    assert_eq!(write(4096, 0).unwrap_err().kind(), ErrorKind::Unsupported);
    vfs.set_atomic_write_limits(Some(AtomicWriteLimits {
        unit_min: 4096,
        unit_max: 32768,
        unit_max_opt: 0,
    }));
    assert_eq!(file.atomic_write_limits().unwrap().unit_max, 32768);
    write(16384, 16384).unwrap();
    for (length, offset) in [(65536, 0), (12288, 0), (16384, 4096)] {
        assert_eq!(
            write(length, offset).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}

#[test]
fn batches_run_in_many_orders() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let vfs = SimVfs::new(seed);
        let file = open(&vfs, "file");
        let parts: Vec<[u8; 1]> = (0..4).map(|number| [number]).collect();
        let mut operations: Vec<_> = parts
            .iter()
            .map(|part| Op::Write {
                file: &*file,
                buffers: vec![part],
                offset: 0,
                atomic: false,
            })
            .collect();
        vfs.batch(4).unwrap().run(&mut operations);
        orders.insert(bytes(&vfs, "file"));
    }
    assert_eq!(orders.len(), 4);
}

#[test]
fn driven_operations_complete_in_many_orders() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let run = || {
            let vfs = SimVfs::new(seed);
            let file = open(&vfs, "file");
            let first = (0..4).map(|number| Submission {
                number,
                operation: Op::Write {
                    file: &*file,
                    buffers: vec![b"x"],
                    offset: number,
                    atomic: false,
                },
            });
            let mut told = Vec::new();
            let mut batch = vfs.batch(4).unwrap();
            batch.drive(first.collect(), &mut |number, result, _| {
                result.unwrap();
                told.push(number);
            });
            told
        };
        let told = run();
        assert_eq!(run(), told, "another order with the same seed");
        orders.insert(told);
    }
    assert!(orders.len() > 10, "{orders:?}");
}

/// A driven sync covers the writes whose completion was told before it was submitted, and of those
/// that are under way beside it, nothing for certain.
#[test]
fn a_driven_sync_covers_what_was_told_before_it() {
    let mut lost = 0;
    for seed in 0..60 {
        let vfs = SimVfs::new(seed);
        let file = open_durable(&vfs, "file");
        let write = |number: u64| Submission {
            number,
            operation: Op::Write {
                file: &*file,
                buffers: vec![b"x"],
                offset: number * 4096,
                atomic: false,
            },
        };
        let mut batch = vfs.batch(4).unwrap();
        batch.drive(vec![write(0)], &mut |number, result, next| {
            result.unwrap();
            if number == 0 {
                let sync = Op::Sync { file: &*file };
                next.extend([write(1), write(2)]);
                next.push(Submission {
                    number: 9,
                    operation: sync,
                });
            }
        });
        let after = bytes(&vfs.crash(seed), "file");
        assert_eq!(after.first(), Some(&b'x'));
        lost += usize::from(after.get(4096) != Some(&b'x'));
    }
    assert!(lost > 0, "a sync covers what is under way beside it");
}

#[test]
fn a_sync_of_the_file_system_covers_files_and_names() {
    for seed in 0..20 {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new("below")).unwrap();
        open(&vfs, "below/file").write_at(b"text", 0).unwrap();
        open(&vfs, "old").write_at(b"text", 0).unwrap();
        vfs.rename(Path::new("old"), Path::new("new")).unwrap();
        vfs.directory("").sync_file_system().unwrap();
        let after = vfs.crash(seed);
        assert_eq!(after.files(), [Path::new("below/file"), Path::new("new")]);
        assert_eq!(bytes(&after, "new"), b"text");
        assert_eq!(bytes(&after, "below/file"), b"text");
    }
    let vfs = SimVfs::new(1);
    open(&vfs, "file").write_at(b"text", 0).unwrap();
    vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
    assert!(vfs.directory("").sync_file_system().is_err());
}
