//! The io_uring backend: files as in [`posix`](crate::posix), batches through a ring.
//!
//! # Words
//!
//! - *Job*: an operation of a batch with how far it has come.
//! - *Slot*: the place of a job that was begun and is not over.
//! - *In flight*: put into the submission queue and not yet seen completed.
//!
//! # Promises
//!
//! 1. [`Batch::run`] and [`Batch::drive`] return, normally or by panic, only when nothing is in
//!    flight: the kernel holds no pointer into the caller's buffers any more (`Flight` sees to
//!    that). Tested by `leaving_early_waits_for_what_is_in_flight`,
//!    `a_panic_waits_for_what_is_under_way`.
//! 2. A sync of [`Batch::run`] is submitted only after all jobs before it have finished, short
//!    writes continued to their end. Tested by `syncs_are_phases_of_their_own`.
//! 3. Registered memory is kept alive until the ring that knows it is gone. Tested by
//!    `memory_outlives_its_buffer_while_a_ring_knows_it`.
//!
//! A job is in flight at most once at a time and stays in its slot, so its buffers and its vector
//! of slices are neither touched nor moved by us while the kernel may use them.
//!
//! # Why syncs wait here and not in the kernel
//!
//! `IOSQE_IO_DRAIN` and linked entries order completions, not finished jobs: when a write comes
//! back short, a drained sync would run before the rest of the write is even submitted, and a
//! broken link would cancel the sync. Both need the second phase anyway. A further system call
//! costs about a microsecond, a sync hundreds.

mod late;
mod registered;

use crate::buffer::{check_transfer, check_vectored};
use crate::posix::{
    PosixVfs, RWF_ATOMIC, VECTOR_BUFFERS_MAX, atomic_error, past_end, read_only, short_atomic,
    storage_error,
};
use crate::{
    Batch, Completed, Create, DIRECT_ALIGNMENT, Directory, Error, ErrorKind, File, MemoryHandle,
    Op, OpenOptions, Result, Submission, Vfs, run_in_phases,
};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode, squeue};
use late::LateBatch;
use registered::Registered;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes that one submission transfers (the kernel stops a little below 2 GiB).
const TRANSFER_BYTES_MAX: usize = 1 << 30;
/// Deepest ring that is made; deeper batches wait in our own queue.
const DEPTH_MAX: usize = 4096;
/// Pause before trying again what the kernel has no resources for.
const BACK_OFF: Duration = Duration::from_millis(1);

/// The file system of this machine, batches through io_uring.
#[derive(Clone, Copy, Debug)]
pub struct UringVfs {
    posix: PosixVfs,
}

impl UringVfs {
    /// Fails when the kernel has no io_uring, forbids it (containers often do), or lacks one of
    /// the operations used here.
    pub fn new() -> Result<Self> {
        let ring = IoUring::new(2)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Writev::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
        ];
        if !ring.params().is_feature_nodrop()
            || !needed.iter().all(|&code| probe.is_supported(code))
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the io_uring of this kernel is too old",
            ));
        }
        Ok(Self {
            posix: PosixVfs::new(),
        })
    }
}

impl Vfs for UringVfs {
    fn open_directory(&self, path: &Path, create: Create) -> Result<Arc<dyn Directory>> {
        self.posix.open_directory(path, create)
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.posix.open_file(path, options)
    }

    fn batch(&self, depth: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(LateBatch::new(depth.clamp(1, DEPTH_MAX))))
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn memory_limit(&self) -> Option<u64> {
        crate::limits::memory()
    }
}

/// A ring and the right to submit to it.
struct UringBatch {
    ring: IoUring,
    depth: usize,
    /// Single results are not looked at: all completions are waited for with one call.
    patient: bool,
    /// Submitting failed for good. The ring may hold entries that the kernel never took, with
    /// pointers to buffers long gone: it must not be submitted to again.
    broken: bool,
    /// Below `ring`, so that the ring is dropped first (promise 3).
    registered: Registered,
}

impl UringBatch {
    fn new(depth: usize) -> Result<Self> {
        Ok(Self {
            ring: IoUring::new(depth.next_power_of_two() as u32)?,
            depth,
            patient: false,
            broken: false,
            registered: Registered::default(),
        })
    }
}

impl Batch for UringBatch {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        self.patient = true;
        let results = run_in_phases(self, operations);
        self.patient = false;
        results
    }

    fn drive<'a>(&mut self, first: Vec<Submission<'a>>, completed: &mut Completed<'a, '_>) {
        let mut waiting = VecDeque::from(first);
        // Dropped after the flight that points to what is in it (promise 1).
        let mut slots = Slots::new(self.depth);
        let Err(error) = self.fly(&mut slots, &mut waiting, completed) else {
            return;
        };
        let lost = slots.jobs.into_iter().flatten().map(|(number, _)| number);
        let mut lost: VecDeque<u64> = lost.chain(waiting.iter().map(|one| one.number)).collect();
        let mut next = Vec::new();
        while let Some(number) = lost.pop_front() {
            let error = Error::new(error.kind(), error.to_string());
            completed(number, Err(error), &mut next);
            lost.extend(next.drain(..).map(|one| one.number));
        }
    }

    fn register(&mut self, memory: &[MemoryHandle]) -> bool {
        self.registered.replace(&self.ring, memory)
    }
}

/// Jobs that were begun, with their numbers. They stay where they are until they are over.
struct Slots<'a> {
    jobs: Vec<Option<(u64, Job<'a>)>>,
    free: Vec<usize>,
    /// Jobs that are not in flight: new ones, and those with more to do.
    ready: VecDeque<usize>,
}

impl<'a> Slots<'a> {
    fn new(depth: usize) -> Self {
        Self {
            jobs: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ready: VecDeque::new(),
        }
    }

    /// Begins as much as there is room for.
    fn fill(&mut self, waiting: &mut VecDeque<Submission<'a>>) {
        while !waiting.is_empty()
            && let Some(slot) = self.free.pop()
        {
            let job = waiting.pop_front();
            self.jobs[slot] = job.map(|one| (one.number, Job::new(one.operation)));
            self.ready.push_back(slot);
        }
    }

    fn job(&mut self, slot: usize) -> Result<&mut Job<'a>> {
        let job = self.jobs[slot].as_mut().map(|(_, job)| job);
        job.ok_or_else(|| Error::other(format!("slot {slot} of the ring has no job")))
    }

    /// Takes a job that is over out of its slot: its number and result.
    fn take_finished(&mut self, slot: usize) -> Option<(u64, Result<()>)> {
        self.jobs[slot].as_ref()?.1.result.as_ref()?;
        let (number, job) = self.jobs[slot].take()?;
        self.free.push(slot);
        Some((number, job.into_result()))
    }
}

impl UringBatch {
    /// Runs all that is waiting, and what `completed` adds. After an error what is left stands in
    /// `slots` and `waiting`, and nothing is in flight.
    fn fly<'a>(
        &mut self,
        slots: &mut Slots<'a>,
        waiting: &mut VecDeque<Submission<'a>>,
        completed: &mut Completed<'a, '_>,
    ) -> Result<()> {
        if self.broken {
            return Err(Error::other("this ring failed earlier"));
        }
        let mut flight = Flight {
            ring: &mut self.ring,
            in_flight: 0,
            broken: &mut self.broken,
        };
        let mut next = Vec::new();
        loop {
            slots.fill(waiting);
            while let Some(slot) = slots.ready.pop_front() {
                if let Some((number, result)) = slots.take_finished(slot) {
                    completed(number, result, &mut next);
                    waiting.extend(next.drain(..));
                    slots.fill(waiting);
                    continue;
                }
                let entry = slots.job(slot)?.entry(&self.registered);
                // SAFETY: the buffers are borrowed by the job, the slices owned by it; both stay
                // in place, in its slot, until `flight` has seen the completion, also when this
                // function is left early (promise 1).
                unsafe { flight.push(entry.user_data(slot as u64))? };
            }
            if flight.in_flight == 0 {
                return Ok(());
            }
            let all = self.patient && waiting.is_empty();
            flight.submit_and_wait(if all { flight.in_flight } else { 1 })?;
            let mut back_off = false;
            while let Some((slot, code)) = flight.reap() {
                let slot = slot as usize;
                slots.job(slot)?.complete(code);
                match slots.take_finished(slot) {
                    Some((number, result)) => completed(number, result, &mut next),
                    None => {
                        slots.ready.push_back(slot);
                        back_off |= code == -Errno::AGAIN.raw_os_error();
                    }
                }
            }
            waiting.extend(next.drain(..));
            if back_off {
                std::thread::sleep(BACK_OFF);
            }
        }
    }
}

/// Operations that the kernel may be working on. Dropping it waits for them.
struct Flight<'a> {
    ring: &'a mut IoUring,
    in_flight: usize,
    broken: &'a mut bool,
}

impl Flight<'_> {
    /// # Safety
    ///
    /// What the entry points to must stay in place until its completion was reaped, or until
    /// `self` is dropped.
    unsafe fn push(&mut self, entry: squeue::Entry) -> Result<()> {
        // SAFETY: as this function demands. The queue has room: `depth` entries, and each entry
        // in it is counted in `in_flight`, which the caller keeps below `depth`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Error::other("the submission queue is full"))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Submits what is queued and waits for `wanted` completions. May return early.
    fn submit_and_wait(&mut self, wanted: usize) -> Result<()> {
        match self.ring.submit_and_wait(wanted) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INTR) => Ok(()),
                Some(Errno::AGAIN | Errno::BUSY) => {
                    std::thread::sleep(BACK_OFF);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    fn reap(&mut self) -> Option<(u64, i32)> {
        let completion = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some((completion.user_data(), completion.result()))
    }
}

impl Drop for Flight<'_> {
    /// Reached with operations in flight only by a panic or when submitting failed for good. What
    /// the kernel has not taken it never will, as there is no further submit; the rest is waited
    /// for.
    fn drop(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        *self.broken = true;
        self.in_flight -= self.ring.submission().len();
        while self.in_flight > 0 {
            if self.reap().is_none() {
                std::thread::sleep(BACK_OFF);
            }
        }
    }
}

/// Start and length of slices that lie in memory one after the other. For the kernel only: no
/// slice of ours may be made of it, as it may span several allocations.
fn one_piece(slices: &[IoSlice<'_>]) -> Option<(*const u8, usize)> {
    let first = slices.first()?;
    let mut length = first.len();
    for slice in &slices[1..] {
        if slice.as_ptr().addr() != first.as_ptr().addr() + length {
            return None;
        }
        length += slice.len();
    }
    Some((first.as_ptr(), length))
}

/// See the module's words.
struct Job<'a> {
    /// The file; -1 for a job that was refused.
    fd: i32,
    direct: bool,
    /// Where the next transfer begins, bytes.
    offset: u64,
    work: Work<'a>,
    /// `None` until the job has finished.
    result: Option<Result<()>>,
}

/// What is left of a job.
enum Work<'a> {
    Read {
        rest: &'a mut [u8],
    },
    Write {
        slices: Vec<IoSlice<'a>>,
        /// Slices before this one are written.
        first: usize,
        atomic: bool,
    },
    Sync,
}

impl<'a> Job<'a> {
    fn new(operation: Op<'a>) -> Self {
        match operation {
            Op::Read {
                file,
                buffer,
                offset,
            } => {
                let refused = check_transfer(file.is_direct(), buffer, offset).err();
                let nothing = buffer.is_empty();
                Self::begin(file, offset, Work::Read { rest: buffer }, refused, nothing)
            }
            Op::Write {
                file,
                buffers,
                offset,
                atomic,
            } => {
                let refused = check_vectored(file.is_direct(), &buffers, offset).err();
                let full = buffers.into_iter().filter(|buffer| !buffer.is_empty());
                let slices: Vec<_> = full.map(IoSlice::new).collect();
                let nothing = slices.is_empty();
                let work = Work::Write {
                    slices,
                    first: 0,
                    atomic,
                };
                Self::begin(file, offset, work, refused, nothing)
            }
            Op::Sync { file } => Self::begin(file, 0, Work::Sync, None, false),
        }
    }

    fn begin(
        file: &dyn File,
        offset: u64,
        work: Work<'a>,
        refused: Option<Error>,
        nothing: bool,
    ) -> Self {
        let fd = file.raw_fd();
        let result = match (refused, fd) {
            (Some(error), _) => Some(Err(error)),
            (None, None) => Some(Err(Error::new(
                ErrorKind::InvalidInput,
                "a file of another backend in a batch of io_uring",
            ))),
            (None, Some(_)) if nothing => Some(Ok(())),
            (None, Some(_)) => None,
        };
        Self {
            fd: fd.unwrap_or(-1),
            direct: file.is_direct(),
            offset,
            work,
            result,
        }
    }

    fn is_sync(&self) -> bool {
        matches!(self.work, Work::Sync)
    }

    /// The next submission of a job that has not finished.
    fn entry(&mut self, registered: &Registered) -> squeue::Entry {
        let fd = Fd(self.fd);
        match &mut self.work {
            Work::Read { rest } => {
                let length = rest.len().min(TRANSFER_BYTES_MAX) as u32;
                let start = rest.as_mut_ptr();
                match registered.index_of(start, length) {
                    Some(index) => opcode::ReadFixed::new(fd, start, length, index)
                        .offset(self.offset)
                        .build(),
                    None => opcode::Read::new(fd, start, length)
                        .offset(self.offset)
                        .build(),
                }
            }
            Work::Write {
                slices,
                first,
                atomic,
            } => {
                let flags = if *atomic { RWF_ATOMIC as i32 } else { 0 };
                let left = &slices[*first..];
                if let Some((start, length)) = one_piece(left) {
                    let length = length.min(TRANSFER_BYTES_MAX) as u32;
                    // The kernel takes untorn writes from plain user memory only.
                    let index = match atomic {
                        true => None,
                        false => registered.index_of(start, length),
                    };
                    if let Some(index) = index {
                        let write = opcode::WriteFixed::new(fd, start, length, index);
                        return write.offset(self.offset).rw_flags(flags).build();
                    }
                    let write = opcode::Write::new(fd, start, length);
                    write.offset(self.offset).rw_flags(flags).build()
                } else {
                    let count = left.len().min(VECTOR_BUFFERS_MAX) as u32;
                    // IoSlice has the layout of iovec on Unix, as std promises.
                    let write = opcode::Writev::new(fd, left.as_ptr().cast(), count);
                    write.offset(self.offset).rw_flags(flags).build()
                }
            }
            Work::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        }
    }

    /// Takes note of a completion; `result` stays `None` if there is more to do.
    fn complete(&mut self, code: i32) {
        if code < 0 {
            let errno = Errno::from_raw_os_error(-code);
            let again = matches!(errno, Errno::INTR | Errno::AGAIN);
            // A failed sync is never repeated.
            if !again || self.is_sync() {
                self.result = Some(Err(self.error(errno)));
            }
            return;
        }
        let done = code as usize;
        self.offset += done as u64;
        self.result = match &mut self.work {
            Work::Sync => Some(Ok(())),
            Work::Read { rest } => {
                let left = std::mem::take(rest);
                *rest = &mut left[done..];
                let at_end = done == 0 || (self.direct && !done.is_multiple_of(DIRECT_ALIGNMENT));
                match rest.len() {
                    0 => Some(Ok(())),
                    length if at_end => Some(Err(past_end(self.offset, length))),
                    _ => None,
                }
            }
            Work::Write {
                slices,
                first,
                atomic,
            } => {
                let mut left = &mut slices[*first..];
                let length: usize = left.iter().map(|slice| slice.len()).sum();
                let before = left.len();
                IoSlice::advance_slices(&mut left, done);
                *first += before - left.len();
                if done == length {
                    Some(Ok(()))
                } else if done == 0 {
                    Some(Err(ErrorKind::WriteZero.into()))
                } else if *atomic {
                    Some(Err(short_atomic(done, length)))
                } else {
                    None
                }
            }
        };
    }

    fn error(&self, errno: Errno) -> Error {
        match self.work {
            Work::Write { .. } if errno == Errno::BADF => read_only(),
            Work::Write { atomic: true, .. } => atomic_error(errno),
            _ => storage_error(errno),
        }
    }

    fn into_result(self) -> Result<()> {
        self.result
            .unwrap_or_else(|| Err(Error::other("the operation was not finished")))
    }
}

#[cfg(test)]
mod tests;
