//! A queue whose ring is made when there is something to run: a thread that may never write costs
//! no descriptor, and no memory that the kernel has pinned.
//!
//! # Promises
//!
//! 1. Operations run whether a ring can be made or not: where there is no descriptor left, or no
//!    memory, they run as in the POSIX backend, and the next call tries again. Tested by
//!    `without_a_ring_operations_run_all_the_same`.
//! 2. There is no ring before the first operation. Tested by
//!    `an_idle_queue_has_no_descriptor`.

use super::UringBatch;
use crate::posix::PosixVfs;
use crate::{Batch, Completed, MemoryHandle, Op, Result, Submission, Vfs};

/// See the module.
pub(super) struct LateBatch {
    depth: usize,
    /// What the ring is to know.
    memory: Vec<MemoryHandle>,
    ring: Option<UringBatch>,
    make: fn(usize) -> Result<UringBatch>,
}

impl LateBatch {
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            memory: Vec::new(),
            ring: None,
            make: UringBatch::new,
        }
    }

    /// Has the ring, or what stands in for it this time, do something.
    fn with<T>(&mut self, work: impl FnOnce(&mut dyn Batch) -> T) -> Result<T> {
        if self.ring.is_none()
            && let Ok(mut ring) = (self.make)(self.depth)
        {
            if !self.memory.is_empty() {
                // Nothing but the cost depends on it.
                ring.register(&self.memory);
            }
            self.ring = Some(ring);
        }
        match &mut self.ring {
            Some(ring) => Ok(work(ring)),
            None => Ok(work(&mut *PosixVfs::new().batch(self.depth)?)),
        }
    }
}

impl Batch for LateBatch {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        let count = operations.len();
        match self.with(|batch| batch.run(operations)) {
            Ok(results) => results,
            Err(error) => (0..count).map(|_| Err(error.kind().into())).collect(),
        }
    }

    fn drive<'a>(&mut self, first: Vec<Submission<'a>>, completed: &mut Completed<'a, '_>) {
        let numbers: Vec<u64> = first.iter().map(|one| one.number).collect();
        if let Err(error) = self.with(|batch| batch.drive(first, completed)) {
            let mut next = Vec::new();
            for number in numbers {
                completed(number, Err(error.kind().into()), &mut next);
            }
        }
    }

    fn register(&mut self, memory: &[MemoryHandle]) -> bool {
        match &mut self.ring {
            Some(ring) => ring.register(memory),
            None => {
                self.memory = memory.to_vec();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Create, ErrorKind, File, OpenOptions};
    use std::sync::Arc;

    fn file(directory: &std::path::Path) -> Arc<dyn File> {
        let options = OpenOptions {
            create: Create::New,
            read_only: false,
            direct: false,
            dsync: false,
        };
        let path = directory.join("f");
        PosixVfs::new().open_file(&path, options).unwrap()
    }

    fn write_and_sync(batch: &mut LateBatch, file: &dyn File) -> Vec<Result<()>> {
        batch.run(&mut [
            Op::Write {
                file,
                buffers: vec![b"text"],
                offset: 0,
                atomic: false,
            },
            Op::Sync { file },
        ])
    }

    #[test]
    fn without_a_ring_operations_run_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        let mut batch = LateBatch::new(4);
        batch.make = |_| Err(ErrorKind::OutOfMemory.into());
        assert!(batch.register(&[]));
        let results = write_and_sync(&mut batch, &*file);
        assert!(results.len() == 2 && results.iter().all(Result::is_ok));
        assert!(batch.ring.is_none());
        let mut found = [0; 4];
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"text");
    }

    #[test]
    fn an_idle_queue_has_no_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        let Ok(vfs) = crate::uring::UringVfs::new() else {
            eprintln!("skipped: no io_uring here");
            return;
        };
        drop(vfs.batch(4).unwrap());
        let mut batch = LateBatch::new(4);
        assert!(batch.ring.is_none());
        assert!(write_and_sync(&mut batch, &*file).iter().all(Result::is_ok));
        assert!(batch.ring.is_some());
    }
}
