mod registered;

use super::*;
use rustix::fs::{CWD, FileType, Mode};
use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// The reading end of a pipe as a file: reads come short and late.
#[derive(Debug)]
struct Stream(fs::File);

/// The ends of a pipe: reading, writing.
fn pipe() -> (Stream, fs::File) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    // Opening one end alone would wait for the other.
    let _both = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let sender = fs::File::options().write(true).open(&path).unwrap();
    (Stream(fs::File::open(&path).unwrap()), sender)
}

impl File for Stream {
    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn write_at(&self, _buffer: &[u8], _offset: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn write_atomic_at(&self, _buffer: &[u8], _offset: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn len(&self) -> Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }
    fn set_len(&self, _length: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn allocate(&self, _offset: u64, _length: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn atomic_write_limits(&self) -> Option<crate::AtomicWriteLimits> {
        None
    }
    fn path(&self) -> &Path {
        Path::new("stream")
    }
    fn raw_fd(&self) -> Option<i32> {
        Some(self.0.as_raw_fd())
    }
}

fn ring() -> Option<IoUring> {
    IoUring::new(4)
        .inspect_err(|error| eprintln!("skipped: no io_uring here ({error})"))
        .ok()
}

fn write_job<'a>(file: &'a Stream, buffers: &[&'a [u8]], atomic: bool) -> Job<'a> {
    let work = Work::Write {
        slices: buffers.iter().map(|buffer| IoSlice::new(buffer)).collect(),
        first: 0,
        atomic,
    };
    Job::begin(file, 100, work, None, false)
}

fn is_at(job: &Job<'_>, offset: u64, expected: &[&[u8]]) -> bool {
    let Work::Write { slices, first, .. } = &job.work else {
        return false;
    };
    let left: Vec<&[u8]> = slices[*first..].iter().map(|slice| &slice[..]).collect();
    job.result.is_none() && job.offset == offset && left == expected
}

#[test]
fn short_writes_go_on_where_they_stopped() {
    let (file, _sender) = pipe();
    let mut job = write_job(&file, &[b"abc", b"defg", b"h"], false);
    job.complete(2);
    assert!(is_at(&job, 102, &[b"c", b"defg", b"h"]));
    job.complete(-Errno::INTR.raw_os_error());
    job.complete(-Errno::AGAIN.raw_os_error());
    job.complete(1);
    assert!(is_at(&job, 103, &[b"defg", b"h"]));
    job.complete(4);
    assert!(is_at(&job, 107, &[b"h"]));
    job.complete(1);
    assert!(matches!(job.result, Some(Ok(()))));
}

#[test]
fn syncs_are_phases_of_their_own() {
    let (file, _sender) = pipe();
    let sync = || Op::Sync { file: &file };
    let write = || Op::Write {
        file: &file,
        buffers: vec![b"a"],
        offset: 0,
        atomic: false,
    };
    let operations = [write(), write(), sync(), sync(), write()];
    let starts = 0..operations.len();
    let ends: Vec<usize> = starts
        .map(|start| start + crate::phase_end(&operations[start..]))
        .collect();
    assert_eq!(ends, [2, 2, 3, 4, 5]);
}

#[test]
fn failures_have_their_kinds() {
    let (file, _sender) = pipe();
    let kind_after = |mut job: Job<'_>, code: i32| {
        job.complete(code);
        job.into_result().expect_err("a failure").kind()
    };
    let write = |atomic| write_job(&file, &[b"abc"], atomic);
    let code = |errno: Errno| -errno.raw_os_error();
    assert_eq!(kind_after(write(false), 0), ErrorKind::WriteZero);
    assert_eq!(
        kind_after(write(false), code(Errno::NOSPC)),
        ErrorKind::StorageFull
    );
    assert_eq!(
        kind_after(write(false), code(Errno::INVAL)),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        kind_after(write(true), code(Errno::INVAL)),
        ErrorKind::Unsupported
    );
    assert_eq!(kind_after(write(true), 2), ErrorKind::Other);
    // An interrupted sync may have lost something: it is not repeated.
    let sync = Job::begin(&file, 0, Work::Sync, None, false);
    assert_eq!(kind_after(sync, code(Errno::INTR)), ErrorKind::Interrupted);
}

#[test]
fn short_reads_are_continued_until_the_stream_ends() {
    if ring().is_none() {
        return;
    }
    let (file, mut sender) = pipe();
    let mut batch = UringVfs::new().unwrap().batch(4).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for part in [&b"ab"[..], b"cdef", b"g", b"xy"] {
                std::thread::sleep(Duration::from_millis(10));
                sender.write_all(part).unwrap();
            }
        });
        let (mut first, mut second) = ([0; 7], [0; 7]);
        let mut read = |buffer: &mut [u8]| {
            let file = &file;
            let offset = 0;
            batch
                .run(&mut [Op::Read {
                    file,
                    buffer,
                    offset,
                }])
                .remove(0)
        };
        read(&mut first).unwrap();
        assert_eq!(&first, b"abcdefg");
        assert_eq!(
            read(&mut second).unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
        assert_eq!(&second[..2], b"xy");
    });
}

#[test]
fn leaving_early_waits_for_what_is_in_flight() {
    let Some(mut ring) = ring() else { return };
    let (Stream(receiver), mut sender) = pipe();
    let mut buffers = [[0_u8; 4]; 2];
    let mut broken = false;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            sender.write_all(b"late").unwrap();
        });
        let mut flight = Flight {
            ring: &mut ring,
            in_flight: 0,
            broken: &mut broken,
        };
        for (number, buffer) in buffers.iter_mut().enumerate() {
            let fd = Fd(receiver.as_raw_fd());
            let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), 4).build();
            // SAFETY: the buffers and the stream live until `flight` is dropped below.
            unsafe { flight.push(entry).unwrap() };
            // The second one is never submitted.
            if number == 0 {
                flight.submit_and_wait(0).unwrap();
            }
        }
        assert_eq!(flight.in_flight, 2);
        drop(flight);
    });
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(&buffers, &[*b"late", [0; 4]]);
    assert!(broken);
}

#[test]
fn a_broken_ring_does_nothing_any_more() {
    let Some(ring) = ring() else { return };
    let (file, _sender) = pipe();
    let mut batch = UringBatch {
        ring,
        depth: 4,
        patient: false,
        broken: true,
        registered: Registered::default(),
    };
    let mut bytes = [0; 4];
    let mut operations = [
        Op::Read {
            file: &file,
            buffer: &mut bytes,
            offset: 0,
        },
        Op::Sync { file: &file },
    ];
    assert!(batch.run(&mut operations).iter().all(Result::is_err));
}
