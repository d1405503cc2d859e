//! File systems of the kernel on loop devices: they go with what made them, and what they promise
//! of pages holds over power losses. Skipped where mounting is not allowed.

use inkstone_testkit::crash::tear;
use inkstone_testkit::fuse;
use inkstone_testkit::loops::{CASES, Ground, IMAGE_BYTES_MIN, Promise, Refusal};
use std::path::Path;

/// A folder, unless this machine has no loop devices, or does not let us have them.
fn claim(folder: &Path) -> Option<Ground> {
    match Ground::claim(folder) {
        Ok(ground) => Some(ground),
        Err(Refusal::Unavailable(why)) => {
            println!("SKIPPED: {why}");
            None
        }
        Err(Refusal::Busy(why)) => panic!("{why}"),
    }
}

fn mounts_below(folder: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let folder = folder.to_str().unwrap();
    table.lines().filter(|line| line.contains(folder)).count()
}

#[test]
fn what_was_made_goes_and_what_was_left_too() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ground");
    std::fs::create_dir_all(folder.join("left/behind")).unwrap();
    std::fs::write(folder.join("image"), b"left behind").unwrap();
    let Some(ground) = claim(&folder) else {
        return;
    };
    assert!(!folder.join("left").exists() && !folder.join("image").exists());
    assert!(matches!(Ground::claim(&folder), Err(Refusal::Busy(_))));
    for case in &CASES {
        if let Some(why) = case.unavailable(ground.folder()) {
            println!("SKIPPED: {}: {why}", case.name);
            continue;
        }
        let mounted = ground.mount(case, IMAGE_BYTES_MIN).unwrap();
        std::fs::write(mounted.directory().join("file"), b"bytes").unwrap();
        assert_eq!(mounts_below(&folder), 1);
        drop(mounted);
        assert_eq!(mounts_below(&folder), 0);
    }
    drop(ground);
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert_eq!(left.len(), 1, "the lock alone: {left:?}");
}

#[test]
fn pages_are_as_whole_as_promised() {
    let directory = tempfile::tempdir().unwrap();
    let Some(ground) = claim(&directory.path().join("ground")) else {
        return;
    };
    if let Some(why) = fuse::unavailable() {
        println!("SKIPPED: {why}");
        return;
    }
    for case in &CASES {
        if let Some(why) = case.unavailable(ground.folder()) {
            println!("SKIPPED: {}: {why}", case.name);
            continue;
        }
        let torn = tear::probe(&ground.folder().join(case.name), case, 2, 1).unwrap();
        let whole = case.promise == Promise::Whole && !case.mends();
        assert!(torn.losses == 2 && (torn.pages == 0 || !whole), "{torn:?}");
    }
}
