use super::*;
use crate::{AtomicWriteLimits, ErrorKind, File};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file whose reads end only when so many of them are under way.
#[derive(Debug)]
struct Meeting {
    barrier: Barrier,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Meeting {
    fn of(readers: usize) -> Self {
        Self {
            barrier: Barrier::new(readers),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }
}

impl File for Meeting {
    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> Result<()> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.barrier.wait();
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
    fn write_at(&self, _buffer: &[u8], _offset: u64) -> Result<()> {
        Ok(())
    }
    fn write_atomic_at(&self, _buffer: &[u8], _offset: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(0)
    }
    fn set_len(&self, _length: u64) -> Result<()> {
        Ok(())
    }
    fn allocate(&self, _offset: u64, _length: u64) -> Result<()> {
        Ok(())
    }
    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        None
    }
    fn path(&self) -> &Path {
        Path::new("meeting")
    }
}

fn reads<'a>(file: &'a Meeting, buffers: &'a mut [[u8; 1]]) -> Vec<Submission<'a>> {
    let numbered = (0..).zip(buffers);
    numbered
        .map(|(number, buffer)| Submission {
            number,
            operation: Op::Read {
                file,
                buffer,
                offset: 0,
            },
        })
        .collect()
}

#[test]
fn as_many_are_under_way_as_the_depth_says() {
    for depth in [2, 4, 40] {
        let together = depth.min(THREADS_MAX);
        let file = Meeting::of(together);
        let mut buffers = vec![[0]; together * 5];
        let mut told = 0;
        let submissions = reads(&file, &mut buffers);
        PosixBatch::new(depth).drive(submissions, &mut |_, result, _| {
            result.unwrap();
            told += 1;
        });
        assert_eq!(told, together * 5);
        assert_eq!(file.most.load(Ordering::SeqCst), together);
    }
}

#[test]
fn a_list_has_depth_too() {
    let file = Meeting::of(3);
    let mut buffers = [[0]; 3];
    let submissions = reads(&file, &mut buffers);
    let mut operations: Vec<_> = submissions.into_iter().map(|one| one.operation).collect();
    let results = PosixBatch::new(8).run(&mut operations);
    assert!(results.len() == 3 && results.iter().all(Result::is_ok));
}

/// What is alone needs no thread: the log's writes and syncs, one after the other.
#[test]
fn what_is_alone_runs_where_it_was_asked_for() {
    #[derive(Debug)]
    struct Here(std::thread::ThreadId);
    impl Here {
        fn check(&self) -> Result<()> {
            assert_eq!(std::thread::current().id(), self.0);
            Ok(())
        }
    }
    impl File for Here {
        fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
            self.check()
        }
        fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
            self.check()
        }
        fn write_atomic_at(&self, _: &[u8], _: u64) -> Result<()> {
            self.check()
        }
        fn sync(&self) -> Result<()> {
            self.check()
        }
        fn len(&self) -> Result<u64> {
            Ok(0)
        }
        fn set_len(&self, _: u64) -> Result<()> {
            self.check()
        }
        fn allocate(&self, _: u64, _: u64) -> Result<()> {
            self.check()
        }
        fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
            None
        }
        fn path(&self) -> &Path {
            Path::new("here")
        }
    }
    let file = Here(std::thread::current().id());
    let write = |number| Submission {
        number,
        operation: Op::Write {
            file: &file,
            buffers: vec![b"x"],
            offset: 0,
            atomic: false,
        },
    };
    let mut told = 0;
    // Through the page cache: copies, all of them here. Then a chain of syncs.
    PosixBatch::new(8).drive((0..9).map(write).collect(), &mut |number, result, next| {
        result.unwrap();
        told += 1;
        if number >= 8 && told < 20 {
            next.push(Submission {
                number,
                operation: Op::Sync { file: &file },
            });
        }
    });
    assert_eq!(told, 20);
}
