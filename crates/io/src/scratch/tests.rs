use super::{HEAD, ScratchVfs, UNIT};
use crate::{Create, Directory, ErrorKind, File, OpenOptions, Vfs};
use std::path::Path;
use std::sync::Arc;

const OPTIONS: OpenOptions = OpenOptions {
    create: Create::IfMissing,
    read_only: false,
    direct: false,
    dsync: false,
};

fn scratch(folder: &Path) -> (ScratchVfs, Arc<dyn Directory>) {
    let vfs = ScratchVfs::new(folder, "log").unwrap();
    let directory = vfs.open_directory(Path::new("/of"), Create::New).unwrap();
    (vfs, directory)
}

fn open(directory: &Arc<dyn Directory>, name: &str) -> Arc<dyn File> {
    directory.open(name, OPTIONS).unwrap()
}

#[test]
fn nothing_has_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let (vfs, directory) = scratch(folder.path());
    open(&directory, "file").write_at(&[1; 100_000], 0).unwrap();
    assert!(vfs.shared.room.len() >= 100_000);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_given_back_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let (vfs, directory) = scratch(folder.path());
    let room = &vfs.shared.room;
    let (first, second) = (open(&directory, "first"), open(&directory, "second"));
    first.allocate(0, 100 * UNIT).unwrap();
    second.allocate(0, 10 * UNIT).unwrap();
    let full = room.len();
    directory.remove("first").unwrap();
    let third = open(&directory, "third");
    // The file that has lost its name has still a handle.
    third.allocate(0, 100 * UNIT).unwrap();
    assert!(room.len() > full);
    drop(third);
    directory.remove("third").unwrap();
    drop(first);
    let third = open(&directory, "third");
    third.allocate(0, 100 * UNIT).unwrap();
    assert!(room.len() <= full);
    drop((second, third));
    directory.remove("second").unwrap();
    directory.remove("third").unwrap();
    assert_eq!(room.len(), 0);
}

#[test]
fn what_was_given_back_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (_vfs, directory) = scratch(folder.path());
    let (old, held) = (open(&directory, "old"), open(&directory, "held"));
    old.write_at(&[7; 4 * UNIT as usize], 0).unwrap();
    held.write_at(&[7], 0).unwrap();
    old.set_len(UNIT + 10).unwrap();
    old.set_len(2 * UNIT).unwrap();
    let new = open(&directory, "new");
    new.allocate(0, 3 * UNIT).unwrap();
    new.write_at(&[1], UNIT + 1).unwrap();
    let mut bytes = vec![9; 3 * UNIT as usize];
    new.read_at(&mut bytes, 0).unwrap();
    let mut expected = vec![0; 3 * UNIT as usize];
    expected[UNIT as usize + 1] = 1;
    assert!(bytes == expected);
    bytes.truncate(2 * UNIT as usize);
    old.read_at(&mut bytes, 0).unwrap();
    expected.truncate(2 * UNIT as usize);
    expected.fill(0);
    expected[..UNIT as usize + 10].fill(7);
    assert!(bytes == expected);
}

#[test]
fn a_forgotten_file_keeps_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let (vfs, directory) = scratch(folder.path());
    let log = directory.subdirectory("log", Create::New).unwrap();
    let file = open(&log, "segment");
    file.write_at(&[3; 100_000], 10).unwrap();
    file.write_at(&[4; 100], HEAD as u64 - 50).unwrap();
    assert_eq!(file.len().unwrap(), 100_010);
    assert_eq!(vfs.shared.room.len(), 0);
    let mut head = vec![0; HEAD];
    file.read_at(&mut head, 0).unwrap();
    assert!(head[..10].iter().all(|&byte| byte == 0));
    assert!(head[10..HEAD - 50].iter().all(|&byte| byte == 3));
    assert!(head[HEAD - 50..].iter().all(|&byte| byte == 4));
    let behind = file.read_at(&mut head, 1).unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::Unsupported);
    let past = file.read_at(&mut head, 99_000).unwrap_err();
    assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
}
