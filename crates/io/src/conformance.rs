//! One suite for all backends: what the crate's documentation promises, short of power loss.

use crate::posix::PosixVfs;
use crate::scratch::ScratchVfs;
use crate::sim::SimVfs;
use crate::uring::UringVfs;
use crate::{
    AlignedBuffer, Create, Directory, ErrorKind, File, Op, OpenOptions, Result, Submission, Vfs,
};
use std::path::Path;
use std::sync::Arc;

const BUFFERED: OpenOptions = OpenOptions {
    create: Create::IfMissing,
    read_only: false,
    direct: false,
    dsync: false,
};
const DIRECT: OpenOptions = OpenOptions {
    direct: true,
    ..BUFFERED
};

/// A backend and a directory to work in.
struct Place {
    vfs: Arc<dyn Vfs>,
    directory: Arc<dyn Directory>,
    /// Removes a real directory at the end.
    temporary: Option<tempfile::TempDir>,
}

impl Place {
    fn real(vfs: Arc<dyn Vfs>) -> Self {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let directory = vfs.open_directory(temporary.path(), Create::Never);
        Self {
            vfs,
            directory: directory.expect("an open directory"),
            temporary: Some(temporary),
        }
    }

    fn posix() -> Option<Self> {
        Some(Self::real(Arc::new(PosixVfs::new())))
    }

    fn io_uring() -> Option<Self> {
        match UringVfs::new() {
            Ok(vfs) => Some(Self::real(Arc::new(vfs))),
            Err(error) => {
                eprintln!("skipped: no io_uring here ({error})");
                None
            }
        }
    }

    fn sim() -> Option<Self> {
        let vfs = SimVfs::new(7);
        let directory = vfs.open_directory(Path::new("/data"), Create::New);
        Some(Self {
            vfs: Arc::new(vfs),
            directory: directory.expect("a new directory"),
            temporary: None,
        })
    }

    fn scratch() -> Option<Self> {
        let folder = std::env::temp_dir();
        let vfs = ScratchVfs::new(&folder, "log").expect("a file without a name");
        let directory = vfs.open_directory(Path::new("/data"), Create::New);
        Some(Self {
            vfs: Arc::new(vfs),
            directory: directory.expect("a new directory"),
            temporary: None,
        })
    }

    fn open(&self, name: &str, options: OpenOptions) -> Arc<dyn File> {
        self.directory.open(name, options).expect("an open file")
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.open(name, BUFFERED);
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.kind(),
    }
}

/// Makes a test of each case for each backend; of those about unbuffered files where there are
/// any.
macro_rules! conformance {
    (all: $($case:ident),*; unbuffered: $($direct:ident),*;) => {
        conformance!(@backend posix: $($case,)* $($direct),*);
        conformance!(@backend io_uring: $($case,)* $($direct),*);
        conformance!(@backend sim: $($case,)* $($direct),*);
        conformance!(@backend scratch: $($case),*);
    };
    (@backend $backend:ident: $($case:ident),*) => {
        mod $backend {
            $(#[test] fn $case() {
                if let Some(place) = super::Place::$backend() {
                    super::$case(&place);
                }
            })*
        }
    };
}

conformance!(
    all:
    reads_see_writes,
    reading_past_the_end_fails,
    lengths_change,
    space_is_reserved,
    names_change,
    opening_respects_create,
    read_only_files_refuse_changes,
    directories_list_their_files,
    directories_are_made_as_asked,
    a_moved_directory_stays_the_same,
    names_stay_inside,
    one_file_is_opened_by_its_path,
    locks_exclude,
    vectored_writes_are_in_order,
    batches_mix_operations,
    batches_are_larger_than_their_depth,
    syncs_in_batches_follow_writes,
    batches_move_between_threads,
    results_are_told_while_others_wait_for_them,
    the_whole_file_system_is_synced,
    threads_share_a_file,
    what_was_written_is_there_after_the_cache_is_given_up,
    files_are_opened_past_the_cache_where_that_can_be;
    unbuffered:
    operations_lead_to_others,
    batches_report_each_failure,
    a_panic_waits_for_what_is_under_way,
    a_driven_failure_stops_no_other,
    unbuffered_files_want_alignment,
    written_through_files_work,
    atomic_writes_work_or_are_unsupported,
    batches_serve_unbuffered_files;
);

fn reads_see_writes(place: &Place) {
    let file = place.open("file", BUFFERED);
    assert!(file.is_empty().unwrap());
    file.write_at(b"hello", 10_000).unwrap();
    file.write_at(b"HE", 10_000).unwrap();
    file.write_at(b"", 99_999).unwrap();
    assert_eq!(file.len().unwrap(), 10_005);
    let mut bytes = [9; 8];
    file.read_at(&mut bytes, 9_997).unwrap();
    assert_eq!(&bytes, b"\0\0\0HEllo");
    file.sync().unwrap();
    let again = place.open("file", BUFFERED);
    again.read_at(&mut bytes, 9_997).unwrap();
    assert_eq!(&bytes, b"\0\0\0HEllo");
    assert_eq!(again.path(), place.directory.path_of("file"));
    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number / 7) as u8)
        .collect();
    file.write_at(&large, 123).unwrap();
    let mut found = vec![0; large.len()];
    file.read_at(&mut found, 123).unwrap();
    assert!(found == large);
}

fn what_was_written_is_there_after_the_cache_is_given_up(place: &Place) {
    let file = place.open("file", BUFFERED);
    file.write_at(&[1; 10_000], 0).unwrap();
    file.sync_and_forget().unwrap();
    file.write_at(&[2; 100], 4000).unwrap();
    // Also through a handle that cannot write.
    let read_only = OpenOptions {
        create: Create::Never,
        read_only: true,
        ..BUFFERED
    };
    place.open("file", read_only).sync_and_forget().unwrap();
    let mut expected = vec![1; 10_000];
    expected[4000..4100].fill(2);
    assert!(place.bytes("file") == expected);
}

fn files_are_opened_past_the_cache_where_that_can_be(place: &Place) {
    let open = |name| crate::open_past_cache(&*place.directory, name);
    assert_eq!(kind(open("no")), ErrorKind::NotFound);
    let (whole, cut) = (place.open("whole", BUFFERED), place.open("cut", BUFFERED));
    whole.write_at(&[1; 8192], 0).unwrap();
    cut.write_at(&[1; 8191], 0).unwrap();
    let takes_direct = match place.directory.open("whole", DIRECT) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            false
        }
    };
    let mut bytes = AlignedBuffer::zeroed(8192);
    let file = open("whole").unwrap();
    assert_eq!(file.is_direct(), takes_direct);
    file.read_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 1));
    assert_eq!(kind(file.write_at(&bytes, 0)), ErrorKind::PermissionDenied);
    let file = open("cut").unwrap();
    assert!(!file.is_direct());
    file.read_at(&mut bytes[..100], 8091).unwrap();
}

fn reading_past_the_end_fails(place: &Place) {
    let file = place.open("file", BUFFERED);
    file.write_at(&[1; 100], 0).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(kind(file.read_at(&mut bytes, 91)), ErrorKind::UnexpectedEof);
    assert_eq!(
        kind(file.read_at(&mut bytes, 5000)),
        ErrorKind::UnexpectedEof
    );
    assert_eq!(
        kind(file.read_at(&mut bytes, u64::MAX - 3)),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind(file.write_at(&bytes, i64::MAX as u64)),
        ErrorKind::InvalidInput
    );
    file.read_at(&mut bytes, 90).unwrap();
    file.read_at(&mut [], 100).unwrap();
}

fn lengths_change(place: &Place) {
    let file = place.open("file", BUFFERED);
    file.write_at(&[1; 9000], 0).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(file.len().unwrap(), 5000);
    file.set_len(9000).unwrap();
    let mut bytes = vec![7; 9000];
    file.read_at(&mut bytes, 0).unwrap();
    assert!(bytes[..5000].iter().all(|&byte| byte == 1));
    assert!(bytes[5000..].iter().all(|&byte| byte == 0));
    file.set_len(0).unwrap();
    assert!(file.is_empty().unwrap());
}

fn space_is_reserved(place: &Place) {
    let file = place.open("file", BUFFERED);
    file.write_at(&[1; 100], 0).unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    let bytes = place.bytes("file");
    assert!(bytes[..100].iter().all(|&byte| byte == 1));
    assert!(bytes[100..].iter().all(|&byte| byte == 0));
    file.allocate(0, 4096).unwrap();
    file.allocate(77, 0).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    // More than any disk here has, or more than the file system takes in a file.
    let error = kind(file.allocate(0, 1 << 62));
    assert!(matches!(error, ErrorKind::StorageFull), "{error}");
    assert_eq!(file.len().unwrap(), 1 << 20);
}

fn names_change(place: &Place) {
    let directory = &place.directory;
    let old = place.open("old", BUFFERED);
    old.write_at(b"old", 0).unwrap();
    place
        .open("new", BUFFERED)
        .write_at(b"replaced", 0)
        .unwrap();
    directory.rename("old", "new").unwrap();
    assert!(!directory.exists("old").unwrap());
    assert!(directory.exists("new").unwrap());
    assert_eq!(place.bytes("new"), b"old");
    directory.sync().unwrap();
    directory.remove("new").unwrap();
    assert!(!directory.exists("new").unwrap());
    // An open file outlives its name.
    let mut bytes = [0; 3];
    old.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"old");
    assert_eq!(kind(directory.remove("missing")), ErrorKind::NotFound);
    assert_eq!(kind(directory.rename("missing", "x")), ErrorKind::NotFound);
}

fn opening_respects_create(place: &Place) {
    let open = |name: &str, create| {
        let options = OpenOptions { create, ..BUFFERED };
        place.directory.open(name, options)
    };
    assert_eq!(kind(open("a", Create::Never)), ErrorKind::NotFound);
    assert_eq!(kind(open("no/directory", Create::New)), ErrorKind::NotFound);
    open("a", Create::New).unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(kind(open("a", Create::New)), ErrorKind::AlreadyExists);
    assert_eq!(open("a", Create::Never).unwrap().len().unwrap(), 1);
    assert_eq!(open("a", Create::IfMissing).unwrap().len().unwrap(), 1);
}

fn read_only_files_refuse_changes(place: &Place) {
    let writer = place.open("file", BUFFERED);
    writer.write_at(b"text", 0).unwrap();
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        ..BUFFERED
    };
    let reader = place.open("file", options);
    let mut bytes = [0; 4];
    reader.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"text");
    let denied = ErrorKind::PermissionDenied;
    assert_eq!(kind(reader.write_at(b"x", 0)), denied);
    assert_eq!(kind(reader.set_len(0)), denied);
    assert_eq!(kind(reader.allocate(0, 9)), denied);
    let mut batch = place.vfs.batch(4).unwrap();
    let mut operations = [write_op(&*reader, b"x", 0)];
    assert_eq!(kind(batch.run(&mut operations).remove(0)), denied);
    assert_eq!(place.bytes("file"), b"text");
}

fn directories_list_their_files(place: &Place) {
    let root = &place.directory;
    let below = root.subdirectory("a", Create::New).unwrap();
    let inner = root.subdirectory("a/b", Create::IfMissing).unwrap();
    for name in ["z", "a/b/2", "a/b/10", "a/b/1"] {
        place.open(name, BUFFERED);
    }
    assert_eq!(inner.list().unwrap(), ["1", "10", "2"]);
    assert_eq!(root.list().unwrap(), ["z"]);
    assert!(below.list().unwrap().is_empty());
    root.rename("a/b/2", "a/moved").unwrap();
    assert_eq!(below.list().unwrap(), ["moved"]);
    assert!(below.exists("b").unwrap() && !below.exists("c").unwrap());
    inner.sync().unwrap();
    let again = root.subdirectory("a/b", Create::Never).unwrap();
    assert_eq!(again.list().unwrap(), ["1", "10"]);
    assert_eq!(again.path(), root.path_of("a/b"));
}

fn directories_are_made_as_asked(place: &Place) {
    let root = &place.directory;
    let whole = |name: &str, create| place.vfs.open_directory(&root.path_of(name), create);
    assert_eq!(kind(whole("no", Create::Never)), ErrorKind::NotFound);
    let below = |name, create| root.subdirectory(name, create);
    assert_eq!(kind(below("no", Create::Never)), ErrorKind::NotFound);
    assert!(!root.exists("no").unwrap());
    whole("a/b/c", Create::IfMissing).unwrap();
    whole("a/b/c", Create::Never).unwrap();
    whole("a/b/c", Create::IfMissing).unwrap();
    let exists = ErrorKind::AlreadyExists;
    assert_eq!(kind(whole("a/b/c", Create::New)), exists);
    assert_eq!(kind(below("a/b", Create::New)), exists);
    whole("a/x", Create::New).unwrap();
    below("a/y", Create::New).unwrap();
    place.open("file", BUFFERED);
    for create in [Create::Never, Create::IfMissing] {
        assert!(below("file", create).is_err());
        assert!(whole("file/below", create).is_err());
    }
    let not_one = ErrorKind::NotADirectory;
    assert_eq!(kind(below("file", Create::Never)), not_one);
    assert_eq!(kind(whole("file", Create::Never)), not_one);
}

/// A handle goes on with the directory that it was opened on, whatever its name is now.
fn a_moved_directory_stays_the_same(place: &Place) {
    let Some(temporary) = &place.temporary else {
        return; // Simulated directories do not move.
    };
    let (old, new) = (temporary.path().join("old"), temporary.path().join("new"));
    let open = |create| place.vfs.open_directory(&old, create).unwrap();
    let moved = open(Create::New);
    std::fs::rename(&old, &new).unwrap();
    let stranger = open(Create::New);
    moved.open("file", BUFFERED).unwrap();
    moved.rename("file", "renamed").unwrap();
    moved.subdirectory("log", Create::New).unwrap();
    moved.sync().unwrap();
    assert!(new.join("renamed").exists() && new.join("log").is_dir());
    assert_eq!(moved.list().unwrap(), ["renamed"]);
    assert!(stranger.list().unwrap().is_empty() && !old.join("log").exists());
    assert!(!stranger.exists("renamed").unwrap());
    moved.remove("renamed").unwrap();
    assert!(!moved.exists("renamed").unwrap());
}

fn names_stay_inside(place: &Place) {
    let inner = place.directory.subdirectory("inner", Create::New).unwrap();
    place.open("outside", BUFFERED);
    for name in ["", "../outside", "/outside", ".."] {
        let bad = ErrorKind::InvalidInput;
        assert_eq!(kind(inner.open(name, BUFFERED)), bad, "{name}");
        assert_eq!(kind(inner.remove(name)), bad, "{name}");
        assert_eq!(kind(inner.exists(name)), bad, "{name}");
        assert_eq!(kind(inner.rename(name, "x")), bad, "{name}");
    }
}

fn one_file_is_opened_by_its_path(place: &Place) {
    place.open("file", BUFFERED).write_at(b"x", 0).unwrap();
    let path = place.directory.path_of("file");
    let file = place.vfs.open_file(&path, BUFFERED).unwrap();
    assert_eq!((file.len().unwrap(), file.path()), (1, &*path));
}

fn locks_exclude(place: &Place) {
    let lock = |name| place.directory.lock(name);
    let guard = lock("lock").unwrap();
    assert_eq!(kind(lock("lock")), ErrorKind::WouldBlock);
    let other = lock("other lock").unwrap();
    drop(guard);
    let guard = lock("lock").unwrap();
    drop(other);
    assert_eq!(kind(lock("lock")), ErrorKind::WouldBlock);
    drop(guard);
}

fn unbuffered_files_want_alignment(place: &Place) {
    let file = place.open("file", DIRECT);
    assert!(file.is_direct());
    let mut buffer = AlignedBuffer::zeroed(16384);
    buffer.fill(5);
    file.write_at(&buffer, 8192).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 8192 + 16384);
    let bad = ErrorKind::InvalidInput;
    assert_eq!(kind(file.write_at(&buffer[..512], 0)), bad);
    assert_eq!(kind(file.write_at(&buffer[1..4097], 0)), bad);
    assert_eq!(kind(file.write_at(&buffer[..4096], 512)), bad);
    assert_eq!(kind(file.read_at(&mut buffer[1..4097], 0)), bad);
    file.read_at(&mut buffer, 4096).unwrap();
    assert!(buffer[..4096].iter().all(|&byte| byte == 0));
    assert!(buffer[4096..].iter().all(|&byte| byte == 5));
    // The end of an unbuffered file need not be aligned.
    file.set_len(10_000).unwrap();
    assert_eq!(
        kind(file.read_at(&mut buffer[..8192], 4096)),
        ErrorKind::UnexpectedEof
    );
    file.read_at(&mut buffer[..4096], 4096).unwrap();
}

fn written_through_files_work(place: &Place) {
    let options = OpenOptions {
        dsync: true,
        ..DIRECT
    };
    let file = place.open("file", options);
    let mut buffer = AlignedBuffer::zeroed(4096);
    buffer.fill(3);
    file.write_at(&buffer, 0).unwrap();
    assert_eq!(place.bytes("file"), [3; 4096]);
}

fn vectored_writes_are_in_order(place: &Place) {
    let file = place.open("file", BUFFERED);
    file.write_vectored_at(&[b"ab", b"", b"c", b"def"], 1, false)
        .unwrap();
    file.write_vectored_at(&[], 100, false).unwrap();
    assert_eq!(place.bytes("file"), b"\0abcdef");
}

fn atomic_writes_work_or_are_unsupported(place: &Place) {
    let file = place.open("file", DIRECT);
    let mut buffer = AlignedBuffer::zeroed(16384);
    buffer.fill(4);
    file.write_at(&buffer, 0).unwrap();
    buffer.fill(5);
    let limits = file.atomic_write_limits();
    let able = limits.is_some_and(|limits| limits.unit_max >= 16384);
    match file.write_atomic_at(&buffer, 0) {
        Ok(()) => assert!(able),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
    }
    let mut operation = [Op::Write {
        file: &*file,
        buffers: vec![&buffer],
        offset: 0,
        atomic: true,
    }];
    match place.vfs.batch(1).unwrap().run(&mut operation).remove(0) {
        Ok(()) => assert!(able),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
    }
    assert_eq!(place.bytes("file"), vec![if able { 5 } else { 4 }; 16384]);
    let buffered = place.open("buffered", BUFFERED);
    assert!(buffered.atomic_write_limits().is_none());
    assert_eq!(
        kind(buffered.write_atomic_at(&buffer, 0)),
        ErrorKind::Unsupported
    );
}

fn write_op<'a>(file: &'a dyn File, bytes: &'a [u8], offset: u64) -> Op<'a> {
    Op::Write {
        file,
        buffers: vec![bytes],
        offset,
        atomic: false,
    }
}

fn all_done(results: Vec<Result<()>>) {
    for result in results {
        result.unwrap();
    }
}

fn batches_mix_operations(place: &Place) {
    let (first, second) = (
        place.open("first", BUFFERED),
        place.open("second", BUFFERED),
    );
    first.write_at(b"0123456789", 0).unwrap();
    let mut batch = place.vfs.batch(8).unwrap();
    let (mut head, mut tail) = ([0; 4], [0; 4]);
    let mut operations = [
        Op::Read {
            file: &*first,
            buffer: &mut head,
            offset: 0,
        },
        write_op(&*second, b"abc", 5),
        Op::Write {
            file: &*second,
            buffers: vec![b"v", b"", b"wx", b"yz"],
            offset: 0,
            atomic: false,
        },
        Op::Sync { file: &*second },
        Op::Read {
            file: &*first,
            buffer: &mut tail,
            offset: 6,
        },
        write_op(&*second, b"", 1000),
        Op::Sync { file: &*first },
    ];
    all_done(batch.run(&mut operations));
    assert_eq!((&head, &tail), (b"0123", b"6789"));
    assert_eq!(place.bytes("second"), b"vwxyzabc");
    assert!(batch.run(&mut []).is_empty());
}

fn batches_report_each_failure(place: &Place) {
    let (buffered, direct) = (place.open("file", BUFFERED), place.open("direct", DIRECT));
    buffered.write_at(b"0123", 0).unwrap();
    let mut batch = place.vfs.batch(2).unwrap();
    let (mut long, mut short) = ([0; 10], [0; 4]);
    let mut operations = [
        Op::Read {
            file: &*buffered,
            buffer: &mut long,
            offset: 0,
        },
        write_op(&*direct, b"unaligned", 0),
        Op::Sync { file: &*direct },
        Op::Read {
            file: &*buffered,
            buffer: &mut short,
            offset: 0,
        },
    ];
    let results = batch.run(&mut operations);
    let kinds: Vec<_> = results
        .iter()
        .map(|one| one.as_ref().err().map(|e| e.kind()))
        .collect();
    let expected = [
        Some(ErrorKind::UnexpectedEof),
        Some(ErrorKind::InvalidInput),
        None,
        None,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(&short, b"0123");
}

fn batches_are_larger_than_their_depth(place: &Place) {
    let file = place.open("file", BUFFERED);
    let bytes: Vec<u8> = (0..1000_u32 * 64)
        .map(|number| (number / 64) as u8)
        .collect();
    for depth in [0, 1, 3, 64] {
        let mut batch = place.vfs.batch(depth).unwrap();
        let chunks = bytes.chunks(64).enumerate();
        let mut writes: Vec<_> = chunks
            .map(|(number, chunk)| write_op(&*file, chunk, number as u64 * 64))
            .collect();
        all_done(batch.run(&mut writes));
        let mut found = vec![0; bytes.len()];
        let chunks = found.chunks_mut(640).enumerate();
        let mut reads: Vec<_> = chunks
            .map(|(number, buffer)| Op::Read {
                file: &*file,
                buffer,
                offset: number as u64 * 640,
            })
            .collect();
        all_done(batch.run(&mut reads));
        assert!(found == bytes);
        file.set_len(0).unwrap();
    }
}

fn syncs_in_batches_follow_writes(place: &Place) {
    // That the sync comes after shows only in the simulation's crash tests; here: many syncs
    // between many writes come to an end, with the right results.
    let file = place.open("file", BUFFERED);
    let mut batch = place.vfs.batch(16).unwrap();
    let bytes = [1; 100];
    let mut operations = Vec::new();
    for number in 0..20 {
        operations.push(write_op(&*file, &bytes, number * 100));
        if number % 3 == 0 {
            operations.push(Op::Sync { file: &*file });
            operations.push(Op::Sync { file: &*file });
        }
    }
    all_done(batch.run(&mut operations));
    assert_eq!(place.bytes("file"), [1; 2000]);
}

fn batches_serve_unbuffered_files(place: &Place) {
    let file = place.open("file", DIRECT);
    let mut pages = AlignedBuffer::zeroed(64 * 4096);
    for (number, page) in pages.chunks_mut(4096).enumerate() {
        page.fill(number as u8);
    }
    let mut batch = place.vfs.batch(8).unwrap();
    let chunks = pages.chunks(4 * 4096).enumerate();
    let mut operations: Vec<_> = chunks
        .map(|(number, chunk)| Op::Write {
            file: &*file,
            buffers: chunk.chunks(4096).collect(),
            offset: number as u64 * 4 * 4096,
            atomic: false,
        })
        .collect();
    operations.push(Op::Sync { file: &*file });
    all_done(batch.run(&mut operations));
    let mut found = AlignedBuffer::zeroed(64 * 4096);
    let mut read = [Op::Read {
        file: &*file,
        buffer: &mut found,
        offset: 0,
    }];
    all_done(batch.run(&mut read));
    assert!(found[..] == pages[..]);
    // A transfer that begins inside and ends past the unaligned end.
    file.set_len(5000).unwrap();
    let mut read = [Op::Read {
        file: &*file,
        buffer: &mut found[..8192],
        offset: 0,
    }];
    assert_eq!(
        kind(batch.run(&mut read).remove(0)),
        ErrorKind::UnexpectedEof
    );
}

fn batches_move_between_threads(place: &Place) {
    let file = place.open("file", BUFFERED);
    let mut batch = place.vfs.batch(4).unwrap();
    for number in 0..4 {
        let file = Arc::clone(&file);
        let worker = std::thread::spawn(move || {
            let bytes = [number; 10];
            let mut operations = [write_op(&*file, &bytes, u64::from(number) * 10)];
            all_done(batch.run(&mut operations));
            batch
        });
        batch = worker.join().unwrap();
    }
    let expected: Vec<u8> = (0..40).map(|position| position / 10).collect();
    assert_eq!(place.bytes("file"), expected);
}

/// Chains of writes, each begun when the one before it is over, side by side.
fn operations_lead_to_others(place: &Place) {
    for (depth, direct) in [(0, true), (1, false), (3, true), (64, true), (64, false)] {
        let options = if direct { DIRECT } else { BUFFERED };
        let file = place.open("file", options);
        let mut blocks = AlignedBuffer::zeroed(100 * 4096);
        for (number, block) in blocks.chunks_mut(4096).enumerate() {
            block.fill(number as u8 + 1);
        }
        let submission = |number: u64| Submission {
            number,
            operation: match number {
                100.. => Op::Sync { file: &*file },
                _ => Op::Write {
                    file: &*file,
                    buffers: vec![&blocks[number as usize * 4096..][..4096]],
                    offset: number * 4096,
                    atomic: false,
                },
            },
        };
        let mut told = Vec::new();
        let mut batch = place.vfs.batch(depth).unwrap();
        let first = (0..10).map(submission).collect();
        batch.drive(first, &mut |number, result, next| {
            result.unwrap();
            told.push(number);
            match number {
                100.. => {}
                _ => next.push(submission(number + 10)),
            }
        });
        let place_of = |number| told.iter().position(|&one| one == number).unwrap();
        assert!((0..100).all(|number| place_of(number) < place_of(number + 10)));
        assert_eq!(told.len(), 110, "each is told once");
        assert!(place.bytes("file") == blocks[..]);
        batch.drive(Vec::new(), &mut |_, _, _| panic!("nothing was to be done"));
        file.set_len(0).unwrap();
    }
}

/// With depth, what is submitted late does not wait for what was submitted early: a chain of reads
/// ends although other operations were there before all but its first.
fn results_are_told_while_others_wait_for_them(place: &Place) {
    let file = place.open("file", BUFFERED);
    file.write_at(&[5; 4096 * 40], 0).unwrap();
    let mut buffers = vec![[0; 4096]; 40];
    let mut submissions: Vec<_> = (0..)
        .zip(&mut buffers)
        .map(|(number, buffer)| Submission {
            number,
            operation: Op::Read {
                file: &*file,
                buffer,
                offset: number * 4096,
            },
        })
        .collect();
    let mut later = submissions.split_off(30);
    let mut told = Vec::new();
    let mut batch = place.vfs.batch(4).unwrap();
    batch.drive(submissions, &mut |number, result, next| {
        result.unwrap();
        told.push(number);
        next.extend(later.pop());
    });
    told.sort_unstable();
    assert_eq!(told, (0..40).collect::<Vec<_>>());
    assert!(buffers.iter().all(|buffer| buffer == &[5; 4096]));
}

fn a_driven_failure_stops_no_other(place: &Place) {
    let (buffered, direct) = (place.open("file", BUFFERED), place.open("direct", DIRECT));
    let mut long = [0; 10];
    let first = vec![
        Submission {
            number: 1,
            operation: Op::Read {
                file: &*buffered,
                buffer: &mut long,
                offset: 0,
            },
        },
        Submission {
            number: 2,
            operation: write_op(&*direct, b"unaligned", 0),
        },
        Submission {
            number: 3,
            operation: Op::Sync { file: &*direct },
        },
    ];
    let mut found = Vec::new();
    place
        .vfs
        .batch(2)
        .unwrap()
        .drive(first, &mut |number, result, next| {
            found.push((number, result.err().map(|error| error.kind())));
            if number == 1 {
                next.push(Submission {
                    number: 4,
                    operation: write_op(&*buffered, b"0123456789", 0),
                });
            }
        });
    found.sort_unstable_by_key(|one| one.0);
    let expected = [
        (1, Some(ErrorKind::UnexpectedEof)),
        (2, Some(ErrorKind::InvalidInput)),
        (3, None),
        (4, None),
    ];
    assert_eq!(found, expected);
    assert_eq!(place.bytes("file"), b"0123456789");
}

fn a_panic_waits_for_what_is_under_way(place: &Place) {
    let file = place.open("file", DIRECT);
    let mut blocks = AlignedBuffer::zeroed(64 * 4096);
    blocks.fill(1);
    let first: Vec<_> = (0..)
        .zip(blocks.chunks(4096))
        .map(|(number, block)| Submission {
            number,
            operation: write_op(&*file, block, number * 4096),
        })
        .collect();
    let mut batch = place.vfs.batch(16).unwrap();
    let driven = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        batch.drive(first, &mut |_, _, _| panic!("as the test wants it"));
    }));
    assert!(driven.is_err());
    // Nothing is under way: what is written now stays.
    drop(batch);
    blocks.fill(2);
    file.write_at(&blocks, 0).unwrap();
    assert!(place.bytes("file").iter().all(|&byte| byte == 2));
}

fn the_whole_file_system_is_synced(place: &Place) {
    if place.temporary.is_some() {
        // Others write on this machine's file system too: only that the call is there.
        return place.directory.sync_file_system().unwrap();
    }
    place.open("file", BUFFERED).write_at(b"x", 0).unwrap();
    place.directory.sync_file_system().unwrap();
}

fn threads_share_a_file(place: &Place) {
    let file = place.open("file", BUFFERED);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..50_u64 {
                    let offset = (round * 4 + u64::from(thread)) * 1000;
                    file.write_at(&[thread + 1; 1000], offset).unwrap();
                    if round % 10 == 0 {
                        file.sync().unwrap();
                    }
                    let mut bytes = [0; 1000];
                    file.read_at(&mut bytes, offset).unwrap();
                    assert_eq!(bytes, [thread + 1; 1000]);
                }
            });
        }
    });
    let bytes = place.bytes("file");
    let right = |(position, &byte): (usize, &u8)| usize::from(byte) == position / 1000 % 4 + 1;
    assert!(bytes.len() == 200_000 && bytes.iter().enumerate().all(right));
}

/// Not a `Path` of the sim: a relative one and one with superfluous parts.
#[test]
fn simulated_paths_are_normal() {
    let vfs = SimVfs::new(1);
    vfs.create_dir_all(Path::new("a/b/")).unwrap();
    vfs.open(Path::new("./a/b/./c"), BUFFERED).unwrap();
    assert!(vfs.exists(Path::new("a/b/c")).unwrap());
    assert_eq!(vfs.read_dir(Path::new("a/b")).unwrap(), ["c"]);
    assert_eq!(
        kind(vfs.open(Path::new("a/b"), BUFFERED)),
        ErrorKind::IsADirectory
    );
}
