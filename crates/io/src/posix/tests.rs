use super::*;
use std::fs;

fn new_file(direct: bool) -> (tempfile::TempDir, PosixFile) {
    let directory = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        create: Create::New,
        read_only: false,
        direct,
        dsync: false,
    };
    let path = directory.path().join("file");
    let file = PosixFile::open(CWD, &path, &path, options).unwrap();
    (directory, file)
}

#[test]
fn zeroes_stand_in_for_fallocate_and_keep_what_was_there() {
    for direct in [false, true] {
        for (old_length, end) in [(0, 10), (5, 4000), (5, 9000), (4096, 3 << 20), (100, 50)] {
            let (_directory, file) = new_file(direct);
            let mut old = crate::AlignedBuffer::zeroed(4096);
            old.fill(9);
            file.write_at(&old, 0).unwrap();
            file.set_len(old_length).unwrap();
            file.write_zeroes_to(end).unwrap();
            let mut expected = vec![9; old_length as usize];
            expected.resize(old_length.max(end) as usize, 0);
            assert!(
                fs::read(file.path()).unwrap() == expected,
                "{old_length} to {end}"
            );
        }
    }
}

#[test]
fn a_quota_reads_as_a_full_disk() {
    assert_eq!(storage_error(Errno::DQUOT).kind(), ErrorKind::StorageFull);
    assert_eq!(storage_error(Errno::NOSPC).kind(), ErrorKind::StorageFull);
    let too_large = storage_error(Errno::FBIG);
    assert_eq!(too_large.kind(), ErrorKind::StorageFull);
    assert!(too_large.to_string().contains("ulimit -f"), "{too_large}");
    assert_eq!(atomic_error(Errno::INVAL).kind(), ErrorKind::Unsupported);
    assert_eq!(
        atomic_error(Errno::OPNOTSUPP).kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(atomic_error(Errno::NOSPC).kind(), ErrorKind::StorageFull);
}

#[test]
fn more_buffers_than_one_call_takes() {
    let (_directory, file) = new_file(false);
    let bytes: Vec<u8> = (0..5000_u32).map(|number| number as u8).collect();
    let mut buffers: Vec<&[u8]> = bytes.chunks(2).collect();
    buffers.insert(0, &[]);
    file.write_vectored_at(&buffers, 3, false).unwrap();
    assert_eq!(fs::read(file.path()).unwrap()[3..], bytes);
}

/// Whether the first byte of a file is in the page cache; `None` where the file system cannot tell.
fn is_cached(file: &PosixFile) -> Option<bool> {
    let mut byte = [0];
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    match rustix::io::preadv2(&file.fd, &mut slices, 0, ReadWriteFlags::NOWAIT) {
        Ok(read) => Some(read == 1),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// The advice is taken on the file systems of which that is known; others may ignore it.
#[test]
fn a_file_system_lets_go_of_what_it_cached() {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    let (_directory, file) = new_file(false);
    file.write_at(&[1; 1 << 20], 0).unwrap();
    let kind = rustix::fs::fstatfs(&file.fd).unwrap().f_type as u64;
    if ![EXT, XFS].contains(&kind) || is_cached(&file).is_none() {
        eprintln!("skipped: not known of file systems of type {kind:#x}");
        return;
    }
    assert_eq!(is_cached(&file), Some(true));
    file.sync_and_forget().unwrap();
    assert_eq!(is_cached(&file), Some(false));
    let mut bytes = [0; 2];
    file.read_at(&mut bytes, 4095).unwrap();
    assert_eq!((bytes, is_cached(&file)), ([1, 1], Some(true)));
}

#[test]
fn a_name_that_leads_to_another_file_system_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("here"), "").unwrap();
    // Always another file system than that of a directory that can be written.
    std::os::unix::fs::symlink("/proc/version", place.path().join("there")).unwrap();
    let directory = PosixDirectory::open(place.path(), Create::Never).unwrap();
    let directory: &dyn Directory = &directory;
    assert!(directory.is_on_file_system("here").unwrap());
    assert!(!directory.is_on_file_system("there").unwrap());
    let error = directory.is_on_file_system("nowhere").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
