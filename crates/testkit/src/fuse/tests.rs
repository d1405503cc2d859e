//! The mounted file system by real system calls: what POSIX asks for, and what a power loss leaves.

use super::{Disk, Mount, Surface, Trigger, unavailable};
use inkstone_io::posix::PosixVfs;
use inkstone_io::uring::UringVfs;
use inkstone_io::{AlignedBuffer, Create, Directory, ErrorKind, File, Op, OpenOptions, Vfs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;

/// A mounted disk, or `None` (and a word on stderr) where nothing can be mounted.
struct Rig {
    disk: Disk,
    mount: Option<Mount>,
    place: TempDir,
}

fn cannot() -> Option<&'static str> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    WHY.get_or_init(unavailable).as_deref()
}

impl Rig {
    fn new(surface: Surface) -> Option<Self> {
        if let Some(why) = cannot() {
            eprintln!("skipped: {why}");
            return None;
        }
        let (disk, place) = (Disk::new(surface), tempfile::tempdir().unwrap());
        let mount = Some(Mount::new(&disk, place.path()).unwrap());
        Some(Self { disk, mount, place })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    /// Loses power, and mounts what is left.
    fn power_loss(&mut self, seed: u64) {
        let (disk, _, _) = self.disk.power_loss(seed).unwrap();
        self.mount = None;
        self.mount = Some(Mount::new(&disk, self.place.path()).unwrap());
        self.disk = disk;
    }

    fn open(&self, name: &str, direct: bool, dsync: bool) -> Arc<dyn File> {
        let options = OpenOptions {
            create: Create::IfMissing,
            read_only: false,
            direct,
            dsync,
        };
        self.directory("").open(name, options).unwrap()
    }

    fn sync_root(&self) {
        self.directory("").sync().unwrap();
    }

    fn directory(&self, name: &str) -> Arc<dyn Directory> {
        let opened = PosixVfs::new().open_directory(&self.path(name), Create::Never);
        opened.unwrap()
    }
}

fn blocks(byte: u8, count: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(count * 4096);
    buffer.fill(byte);
    buffer
}

#[test]
fn files_behave_as_posix_says() {
    let Some(rig) = Rig::new(Surface::Plain) else {
        return;
    };
    let root = rig.directory("");
    let file = rig.open("a", false, false);
    file.write_at(b"hello", 3).unwrap();
    assert_eq!(file.len().unwrap(), 8);
    assert_eq!(std::fs::read(rig.path("a")).unwrap(), b"\0\0\0hello");
    let exclusive = OpenOptions {
        create: Create::New,
        read_only: false,
        direct: false,
        dsync: false,
    };
    let again = root.open("a", exclusive).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let missing = std::fs::read(rig.path("none")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    file.set_len(4).unwrap();
    file.allocate(4096, 4096).unwrap();
    assert_eq!(file.len().unwrap(), 8192);
    let mut bytes = [1; 6];
    file.read_at(&mut bytes, 2).unwrap();
    assert_eq!(bytes, *b"\0h\0\0\0\0");

    // Renamed over, the old file lives as long as it is open.
    std::fs::write(rig.path("b"), b"other").unwrap();
    root.rename("b", "a").unwrap();
    assert_eq!(std::fs::read(rig.path("a")).unwrap(), b"other");
    file.write_at(b"still", 0).unwrap();
    file.read_at(&mut bytes[..5], 0).unwrap();
    assert_eq!(bytes[..5], *b"still");
    root.remove("a").unwrap();
    assert!(!root.exists("a").unwrap());

    PosixVfs::new()
        .open_directory(&rig.path("log/archive"), Create::IfMissing)
        .unwrap();
    std::fs::write(rig.path("log/1"), b"one").unwrap();
    let names = |name: &str| rig.directory(name).list().unwrap();
    assert_eq!(names("log"), ["1"]);
    assert!(names("").is_empty() && names("log/archive").is_empty());
    assert!(rig.path("log/archive").is_dir());
    let full = std::fs::create_dir(rig.path("log")).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn directories_of_many_names_are_read_whole() {
    let Some(rig) = Rig::new(Surface::Plain) else {
        return;
    };
    let mut names = BTreeSet::new();
    for n in 0..500 {
        let name = format!("a rather long name of a file, number {n:04}");
        std::fs::write(rig.path(&name), b"").unwrap();
        names.insert(name);
    }
    let found = rig.directory("").list().unwrap();
    assert_eq!(found, names.into_iter().collect::<Vec<_>>());
}

#[test]
fn locks_exclude() {
    let Some(rig) = Rig::new(Surface::Plain) else {
        return;
    };
    let root = rig.directory("");
    let held = root.lock("lock").unwrap();
    let refused = root.lock("lock").err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    drop(held);
    root.lock("lock").unwrap();
}

#[test]
fn unbuffered_and_buffered_see_the_same_bytes() {
    let Some(rig) = Rig::new(Surface::Plain) else {
        return;
    };
    let direct = rig.open("f", true, false);
    let buffered = rig.open("f", false, false);
    let mut bytes = [0; 4];
    for round in 1..20 {
        direct.write_at(&blocks(round, 600), 4096).unwrap();
        buffered.read_at(&mut bytes, 4096 * 300).unwrap();
        assert_eq!(bytes, [round; 4], "read through the cache");
        buffered.write_at(&[round + 100; 4096], 4096).unwrap();
        let mut block = AlignedBuffer::zeroed(4096);
        direct.read_at(&mut block, 4096).unwrap();
        assert!(block.iter().all(|&byte| byte == round + 100), "past it");
    }
    let raw = std::fs::OpenOptions::new().write(true).open(rig.path("f"));
    let raw = raw.unwrap();
    let flags = rustix::fs::OFlags::DIRECT;
    rustix::fs::fcntl_setfl(&raw, flags).unwrap();
    let error = rustix::io::pwrite(&raw, &blocks(1, 1)[..512], 512);
    assert_eq!(error, Err(rustix::io::Errno::INVAL), "unaligned");
}

/// What is left of three writes, each with another kind of promise, over many seeds.
fn outcomes(surface: Surface, direct: bool, dsync: bool, synced: bool) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    for seed in 0..14 {
        let Some(mut rig) = Rig::new(surface) else {
            return BTreeSet::new();
        };
        {
            let file = rig.open("f", direct, dsync);
            file.write_at(&blocks(1, 4), 0).unwrap();
            file.sync().unwrap();
            rig.sync_root();
            file.write_at(&blocks(2, 4), 0).unwrap();
            if synced {
                file.sync().unwrap();
            }
        }
        rig.power_loss(seed);
        let mut bytes = std::fs::read(rig.path("f")).unwrap();
        assert_eq!(bytes.len(), 4 * 4096);
        bytes.dedup();
        seen.insert(bytes);
    }
    seen
}

#[test]
fn power_loss_takes_what_was_not_synced() {
    if cannot().is_some() {
        return;
    }
    for direct in [false, true] {
        let lost = outcomes(Surface::Plain, direct, false, false);
        assert!(lost.contains(&vec![1]), "never lost: {lost:?}");
        assert!(lost.contains(&vec![2]), "never kept: {lost:?}");
        assert!(lost.iter().any(|bytes| bytes.len() > 1), "never torn");
    }
    let whole = outcomes(Surface::Untorn(4 * 4096), true, false, false);
    assert_eq!(whole, BTreeSet::from([vec![1], vec![2]]));
}

#[test]
fn synced_bytes_survive() {
    if cannot().is_some() {
        return;
    }
    let new = BTreeSet::from([vec![2]]);
    assert_eq!(outcomes(Surface::Plain, false, false, true), new);
    assert_eq!(outcomes(Surface::Plain, true, false, true), new);
    assert_eq!(outcomes(Surface::Plain, false, true, false), new);
    assert_eq!(outcomes(Surface::Plain, true, true, false), new);
    assert_eq!(outcomes(Surface::NoCache, true, false, false), new);
    let cached = outcomes(Surface::NoCache, false, false, false);
    assert!(
        cached.len() > 1,
        "through the page cache nothing is durable"
    );
}

#[test]
fn io_uring_syncs_what_it_wrote() {
    let Ok(vfs) = UringVfs::new() else {
        eprintln!("skipped: no io_uring here");
        return;
    };
    let mut lost = 0;
    for seed in 0..12 {
        let Some(mut rig) = Rig::new(Surface::Plain) else {
            return;
        };
        {
            let options = OpenOptions {
                create: Create::New,
                read_only: false,
                direct: true,
                dsync: false,
            };
            let file = vfs.open_file(&rig.path("f"), options).unwrap();
            rig.sync_root();
            let (first, second) = (blocks(1, 8), blocks(2, 8));
            let write = |buffer, offset| Op::Write {
                file: &*file,
                buffers: vec![buffer],
                offset,
                atomic: false,
            };
            let mut batch = vfs.batch(8).unwrap();
            let mut operations = [
                write(&first[..], 0),
                write(&first[..], 8 * 4096),
                Op::Sync { file: &*file },
            ];
            assert!(batch.run(&mut operations).iter().all(Result::is_ok));
            let mut operations = [write(&second[..], 8 * 4096)];
            assert!(batch.run(&mut operations).iter().all(Result::is_ok));
        }
        rig.power_loss(seed);
        let bytes = std::fs::read(rig.path("f")).unwrap();
        assert_eq!(bytes.len(), 16 * 4096);
        assert!(bytes[..8 * 4096].iter().all(|&byte| byte == 1));
        lost += u32::from(bytes[8 * 4096..].contains(&1));
    }
    assert!(lost > 0, "what was not synced never went");
}

#[test]
fn names_and_directories_survive_only_a_sync_of_their_directory() {
    let (mut lost, mut kept) = ([0; 4], 0);
    for seed in 0..20 {
        let Some(mut rig) = Rig::new(Surface::Plain) else {
            return;
        };
        let synced = rig.path("synced");
        std::fs::create_dir(&synced).unwrap();
        let directory = rig.directory("synced");
        rig.sync_root();
        for name in ["old", "gone", "a"] {
            std::fs::write(synced.join(name), name).unwrap();
            let file = std::fs::File::open(synced.join(name)).unwrap();
            file.sync_all().unwrap();
        }
        directory.sync().unwrap();
        // A synced file without a synced name, and so on.
        let file = std::fs::File::create(synced.join("new")).unwrap();
        file.sync_all().unwrap();
        directory.rename("a", "old").unwrap();
        directory.remove("gone").unwrap();
        std::fs::create_dir(rig.path("unsynced")).unwrap();
        std::fs::write(rig.path("unsynced/child"), b"child").unwrap();
        rig.directory("unsynced").sync().unwrap();
        drop((file, directory));
        rig.power_loss(seed);
        let there = |path: &Path| path.try_exists().unwrap();
        lost[0] += u32::from(!there(&synced.join("new")));
        let renamed = !there(&synced.join("a"));
        let text = std::fs::read(synced.join("old")).unwrap();
        assert_eq!(text, if renamed { &b"a"[..] } else { b"old" });
        lost[1] += u32::from(!renamed);
        lost[2] += u32::from(there(&synced.join("gone")));
        let lost_directory = !there(&rig.path("unsynced"));
        assert_eq!(!lost_directory, there(&rig.path("unsynced/child")));
        lost[3] += u32::from(lost_directory);
        if lost_directory {
            std::fs::create_dir(rig.path("unsynced")).unwrap();
            assert!(!there(&rig.path("unsynced/child")));
        }
        kept += u32::from(renamed);
    }
    if cannot().is_none() {
        assert!(lost.iter().all(|&count| count > 0) && kept > 0, "{lost:?}");
    }
}

#[test]
fn after_the_armed_mutation_nothing_works() {
    let Some(mut rig) = Rig::new(Surface::Plain) else {
        return;
    };
    let file = rig.open("f", true, false);
    rig.sync_root();
    rig.disk.arm(Trigger::Mutation(3));
    file.write_at(&blocks(1, 1), 0).unwrap();
    file.sync().unwrap();
    let error = file.write_at(&blocks(2, 1), 0).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    assert!(rig.disk.is_dead());
    assert!(file.sync().is_err());
    assert!(std::fs::write(rig.path("g"), b"").is_err());
    drop(file);
    rig.power_loss(1);
    assert!(rig.path("f").exists());
}

#[test]
fn power_fails_at_the_armed_name() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..16 {
        let Some(mut rig) = Rig::new(Surface::Plain) else {
            return;
        };
        std::fs::write(rig.path("new"), b"new").unwrap();
        rig.sync_root();
        rig.disk.arm(Trigger::Name(2));
        std::fs::write(rig.path("other"), b"first").unwrap();
        assert!(rig.directory("").rename("new", "old").is_err());
        assert!(rig.disk.is_dead());
        rig.power_loss(seed);
        let old = rig.path("old").try_exists().unwrap();
        assert_ne!(old, rig.path("new").try_exists().unwrap());
        outcomes.insert(old);
    }
    assert_eq!(outcomes.len(), 2, "always the same");
}

#[test]
fn a_mount_ends_though_files_are_open() {
    let Some(mut rig) = Rig::new(Surface::Plain) else {
        return;
    };
    let file = rig.open("f", false, false);
    rig.mount = None;
    assert!(file.write_at(b"late", 0).is_err());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let place = rig.place.path().to_str().unwrap();
    assert!(!mounts.contains(place), "still mounted");
    assert!(
        std::fs::read_dir(Path::new(place))
            .unwrap()
            .next()
            .is_none()
    );
}
