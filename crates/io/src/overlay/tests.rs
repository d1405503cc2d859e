use super::*;
use crate::sim::SimVfs;

const WRITES: OpenOptions = OpenOptions {
    create: Create::IfMissing,
    read_only: false,
    direct: false,
    dsync: false,
};

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    }
}

/// Random operations on a file that lies below in part: as a vector of bytes says, and nothing
/// below changes.
#[test]
fn a_file_reads_as_it_was_written() {
    for seed in 0..40 {
        let mut below = numbers(seed);
        let disk = SimVfs::new(seed);
        disk.create_dir_all(Path::new("/d")).unwrap();
        let mut model = vec![7u8; below(20_000) as usize];
        let file = disk.directory("/d").open("f", WRITES).unwrap();
        file.write_at(&model, 0).unwrap();
        let before = disk.mutations();
        let vfs = OverlayVfs::new(Arc::new(disk.clone()));
        let directory = vfs.open_directory(Path::new("/d"), Create::Never).unwrap();
        let file = directory.open("f", WRITES).unwrap();
        for step in 0..60u8 {
            match below(8) {
                0 => {
                    let length = below(25_000);
                    file.set_len(length).unwrap();
                    model.resize(length as usize, 0);
                }
                1 => {
                    let (from, length) = (below(20_000), below(9000));
                    file.allocate(from, length).unwrap();
                    model.resize(model.len().max((from + length) as usize), 0);
                }
                _ => {
                    let (from, length) = (below(20_000) as usize, below(9000) as usize);
                    let byte = if below(3) == 0 { 0 } else { step };
                    file.write_at(&vec![byte; length], from as u64).unwrap();
                    if length > 0 {
                        model.resize(model.len().max(from + length), 0);
                        model[from..from + length].fill(byte);
                    }
                }
            }
            assert_eq!(file.len().unwrap(), model.len() as u64);
            let from = below(model.len() as u64 + 1) as usize;
            let mut found = vec![1; model.len() - from];
            file.read_at(&mut found, from as u64).unwrap();
            assert!(
                found == model[from..],
                "seed {seed}, step {step}, from {from}"
            );
            assert!(
                file.read_at(&mut [0; 2], model.len() as u64 - model.len().min(1) as u64)
                    .is_err()
            );
        }
        file.sync().unwrap();
        assert_eq!(disk.mutations(), before);
    }
}

#[test]
fn names_change_above_only() {
    let disk = SimVfs::new(1);
    disk.create_dir_all(Path::new("/d/log")).unwrap();
    let below = disk.directory("/d");
    for name in ["a", "b", "log/1"] {
        below
            .open(name, WRITES)
            .unwrap()
            .write_at(name.as_bytes(), 0)
            .unwrap();
    }
    let before = disk.mutations();
    let vfs = OverlayVfs::new(Arc::new(disk.clone()));
    let directory = vfs.open_directory(Path::new("/d"), Create::Never).unwrap();
    directory.remove("a").unwrap();
    directory.rename("b", "c").unwrap();
    directory
        .open("new", WRITES)
        .unwrap()
        .write_at(b"x", 0)
        .unwrap();
    assert!(directory.remove("a").is_err() && directory.remove("none").is_err());
    assert_eq!(directory.list().unwrap(), ["c", "new"]);
    let exists = |name| directory.exists(name).unwrap();
    assert!(!exists("a") && !exists("b") && exists("c") && exists("log") && exists("log/1"));
    let mut bytes = [0; 1];
    directory
        .open("c", WRITES)
        .unwrap()
        .read_at(&mut bytes, 0)
        .unwrap();
    assert_eq!(&bytes, b"b");
    let log = directory.subdirectory("log", Create::Never).unwrap();
    log.rename("1", "2").unwrap();
    assert_eq!(log.list().unwrap(), ["2"]);
    assert!(directory.subdirectory("more", Create::Never).is_err());
    let more = directory.subdirectory("more", Create::IfMissing).unwrap();
    more.open("file", WRITES).unwrap();
    assert_eq!(
        directory
            .subdirectory("more", Create::Never)
            .unwrap()
            .list()
            .unwrap(),
        ["file"]
    );
    assert_eq!(directory.list().unwrap(), ["c", "new"]);
    assert_eq!(disk.mutations(), before);
    assert_eq!(below.list().unwrap(), ["a", "b"]);
}

/// A file below is open while it is in use, and no longer: a database of any number of tables can
/// be looked at with few descriptors. What was written over it is there when it is opened again,
/// under whatever name.
#[test]
fn files_that_are_closed_hold_nothing_below() {
    let disk = SimVfs::new(1);
    disk.open_directory(Path::new("/d"), Create::IfMissing)
        .unwrap();
    for n in 0..40 {
        let file = disk.directory("/d").open(&n.to_string(), WRITES).unwrap();
        file.write_at(&[n; 10_000], 0).unwrap();
    }
    disk.limit_handles(8);
    let overlay = OverlayVfs::new(Arc::new(disk));
    let directory = overlay
        .open_directory(Path::new("/d"), Create::Never)
        .unwrap();
    let look = |name: &str, byte: u8| {
        let mut bytes = [0; 5000];
        let file = directory.open(name, WRITES).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.read_at(&mut bytes, 4000).unwrap();
        assert_eq!(bytes[..10], [100; 10], "of {name}");
        assert_eq!(bytes[10..], [byte; 4990], "of {name}");
    };
    for n in 0..40 {
        let file = directory.open(&n.to_string(), WRITES).unwrap();
        file.write_at(&[100; 10], 4000).unwrap();
        drop(file);
        directory
            .rename(&n.to_string(), &format!("{n} as it is called now"))
            .unwrap();
    }
    for n in 0..40 {
        look(&format!("{n} as it is called now"), n);
        assert!(!directory.exists(&n.to_string()).unwrap());
    }
}
