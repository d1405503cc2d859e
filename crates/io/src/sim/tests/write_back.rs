//! Write-backs that fail, and which handles are told.

use super::*;

#[test]
fn a_failed_write_back_is_told_to_the_handles_that_were_open() {
    let vfs = SimVfs::new(1);
    let (first, second) = (open_durable(&vfs, "file"), open(&vfs, "file"));
    first.write_at(b"durable", 0).unwrap();
    first.sync().unwrap();
    vfs.fail_write_back("file");
    first.sync().unwrap();
    first.write_at(b"written", 0).unwrap();
    vfs.fail_write_back("other");
    vfs.fail_write_back("file");
    let later = open(&vfs, "file");
    later.sync().unwrap();
    for told in [&first, &second] {
        assert!(told.sync().is_err());
        told.sync().unwrap();
    }
    let lost = |seed| bytes(&vfs.crash(seed), "file") == b"durable";
    assert!((0..40).any(lost), "no sync made it durable");
}
