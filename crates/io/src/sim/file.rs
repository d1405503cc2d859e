//! Open files and batches of the simulated disk.

use super::Disk;
use super::faults::{Fault, OpKind, Process, Verdict, dead, input_output_error};
use super::node::{Node, NodeState};
use super::rng::Rng;
use crate::buffer::{check_transfer, check_vectored};
use crate::posix::{past_end, read_only};
use crate::{
    AtomicWriteLimits, Batch, Completed, Error, ErrorKind, File, Identity, Op, OpenOptions, Result,
    Submission,
};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An open file: a node as one process sees it.
#[derive(Debug)]
pub(super) struct SimFile {
    disk: Arc<Disk>,
    process: Arc<Process>,
    node: Arc<Node>,
    path: PathBuf,
    options: OpenOptions,
    /// Failed write-backs of the node that this handle has told of, or need not.
    told: AtomicU64,
}

impl SimFile {
    pub(super) fn new(
        disk: Arc<Disk>,
        process: Arc<Process>,
        node: Arc<Node>,
        path: PathBuf,
        options: OpenOptions,
    ) -> Self {
        let mut state = node.state.lock();
        state.handles += 1;
        let told = AtomicU64::new(state.write_backs_failed);
        drop(state);
        process.opened();
        Self {
            told,
            disk,
            process,
            node,
            path,
            options,
        }
    }

    fn admit(&self, kind: OpKind) -> Result<Verdict> {
        let looks = kind == OpKind::Look;
        self.process.admit(kind, &self.path, !looks)
    }

    /// As `admit`, for an operation on some bytes.
    fn admit_bytes(&self, kind: OpKind, offset: u64, length: usize) -> Result<Verdict> {
        let bytes = offset..offset.saturating_add(length as u64);
        let mutates = kind != OpKind::Read;
        self.process
            .admit_bytes(kind, &self.path, mutates, Some(bytes))
    }

    /// An operation begins: no lock is held. Whether there is an observer.
    fn begin(&self, kind: OpKind, bytes: &[u8]) -> bool {
        self.disk.observer.see(kind, &self.path, bytes)
    }

    fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(read_only());
        }
        Ok(())
    }

    fn check_atomic(&self, length: usize, offset: u64) -> Result<()> {
        let fits = self.atomic_write_limits().is_some_and(|limits| {
            let sizes = limits.unit_min as usize..=limits.unit_max as usize;
            length.is_power_of_two()
                && sizes.contains(&length)
                && offset.is_multiple_of(length as u64)
        });
        if !fits {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the file takes no atomic write of this length and place",
            ));
        }
        Ok(())
    }

    /// Writes as far as there is space.
    fn store(
        &self,
        state: &mut NodeState,
        bytes: &[u8],
        offset: u64,
        certain: bool,
        atomic: bool,
    ) -> Result<()> {
        let length = bytes.len() as u64;
        self.disk
            .take_space(state.content().missing_blocks(offset, length))?;
        state.write(bytes, offset, certain, atomic);
        Ok(())
    }

    /// The time between the beginning and the end of a sync.
    fn pass_sync_time(&self) {
        let observed = self.begin(OpKind::Sync, &[]);
        match self.disk.sync_delay(&self.path) {
            Duration::ZERO if observed => {}
            Duration::ZERO => std::thread::yield_now(),
            delay => self.disk.clock.sleep(delay),
        }
    }

    /// A change of space or length: `change` is done unless a fault forbids it.
    fn resize(
        &self,
        kind: OpKind,
        change: impl FnOnce(&mut NodeState) -> Result<()>,
    ) -> Result<()> {
        self.check_writable()?;
        self.begin(kind, &[]);
        let mut state = self.node.state.lock();
        match self.admit(kind)? {
            Verdict::Proceed => change(&mut state),
            Verdict::LastGasp => change(&mut state).and(Err(dead())),
            Verdict::Fail(error) => Err(error),
            Verdict::Short | Verdict::Lose | Verdict::Misread(_) => Err(input_output_error()),
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        check_transfer(self.options.direct, buffer, offset)?;
        self.begin(OpKind::Read, &[]);
        let mut state = self.node.state.lock();
        let mut wrong = None;
        match self.admit_bytes(OpKind::Read, offset, buffer.len())? {
            Verdict::Proceed => {}
            Verdict::Misread(fault) => wrong = Some(fault),
            Verdict::Fail(error) => return Err(error),
            Verdict::Short | Verdict::Lose | Verdict::LastGasp => {
                return Err(input_output_error());
            }
        }
        if self.options.direct {
            self.disk.forget(&mut state);
        }
        let (length, end) = (state.content().length(), offset + buffer.len() as u64);
        if buffer.is_empty() {
            return Ok(());
        }
        if end > length {
            return Err(past_end(offset, buffer.len()));
        }
        let place = match wrong {
            Some(Fault::WrongPlace) if end + buffer.len() as u64 <= length => end,
            Some(Fault::WrongPlace) => offset.saturating_sub(buffer.len() as u64),
            _ => offset,
        };
        state.content().read(buffer, place);
        if wrong == Some(Fault::Stale) {
            state.before().read_present(buffer, place);
        }
        if wrong == Some(Fault::FlippedBit) {
            let bit = self.disk.dice(buffer.len() as u64 * 8);
            buffer[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write_vectored_at(&[buffer], offset, false)
    }

    fn write_atomic_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write_vectored_at(&[buffer], offset, true)
    }

    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64, atomic: bool) -> Result<()> {
        self.check_writable()?;
        check_vectored(self.options.direct, buffers, offset)?;
        let bytes = match buffers {
            [buffer] => Cow::Borrowed(*buffer),
            _ => Cow::Owned(buffers.concat()),
        };
        if atomic {
            self.check_atomic(bytes.len(), offset)?;
        }
        self.begin(OpKind::Write, &bytes);
        let mut state = self.node.state.lock();
        match self.admit_bytes(OpKind::Write, offset, bytes.len())? {
            Verdict::Proceed => {
                let certain = self.options.dsync
                    || self.disk.writes_through.load(Ordering::Relaxed)
                    || (self.options.direct
                        && !self.disk.volatile_cache.load(Ordering::Relaxed)
                        && state.overwrites(offset, bytes.len() as u64));
                self.store(&mut state, &bytes, offset, certain, atomic)
            }
            Verdict::Fail(error) => Err(error),
            Verdict::Lose => {
                let mut old = vec![0; bytes.len()];
                state.content().read(&mut old, offset);
                self.store(&mut state, &old, offset, false, atomic)
            }
            Verdict::LastGasp => self
                .store(&mut state, &bytes, offset, false, atomic)
                .and(Err(dead())),
            Verdict::Misread(_) => Err(input_output_error()),
            Verdict::Short => {
                let part = if atomic {
                    0
                } else {
                    self.disk.dice(bytes.len() as u64) as usize
                };
                self.store(&mut state, &bytes[..part], offset, false, false)
                    .and(Err(input_output_error()))
            }
        }
    }

    fn sync(&self) -> Result<()> {
        self.begin(OpKind::Sync, &[]);
        let covered = {
            let mut state = self.node.state.lock();
            match self.admit(OpKind::Sync)? {
                Verdict::Proceed => {
                    let failed = state.write_backs_failed;
                    if self.told.swap(failed, Ordering::Relaxed) < failed {
                        Err(input_output_error())
                    } else {
                        Ok(state.sync_mark())
                    }
                }
                Verdict::LastGasp => return Err(dead()),
                Verdict::Fail(error) => {
                    state.forsake();
                    Err(error)
                }
                Verdict::Short | Verdict::Lose | Verdict::Misread(_) => {
                    return Err(input_output_error());
                }
            }
        };
        // Others may write now, which this sync does not cover, or sync: of what was lost they
        // learn no sooner than the caller.
        self.pass_sync_time();
        let mark = covered?;
        let mut state = self.node.state.lock();
        self.process.check_alive()?;
        state.finish_sync(mark);
        Ok(())
    }

    fn forget(&self) -> Result<()> {
        let mut state = self.node.state.lock();
        self.process.check_alive()?;
        if !self.disk.keeps_cache.load(Ordering::Relaxed) {
            self.disk.forget(&mut state);
        }
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        if let Verdict::Fail(error) = self.admit(OpKind::Look)? {
            return Err(error);
        }
        Ok(self.node.state.lock().content().length())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.resize(OpKind::Truncate, |state| {
            let before = state.content().block_count();
            state.set_length(length);
            self.disk.give_space(before - state.content().block_count());
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(ErrorKind::InvalidInput.into());
        }
        if length == 0 {
            return Ok(());
        }
        self.resize(OpKind::Allocate, |state| {
            self.disk
                .take_space(state.content().missing_blocks(offset, length))?;
            state.allocate(offset, length);
            Ok(())
        })
    }

    fn identity(&self) -> Result<Option<Identity>> {
        Ok(Some(self.node.identity()))
    }

    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        let limits = *self.disk.atomic_write_limits.lock();
        limits.filter(|_| self.options.direct)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.options.direct
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.process.closed();
        let mut state = self.node.state.lock();
        state.handles -= 1;
        self.disk.give_back_if_gone(&state);
    }
}

/// Runs operations in an order that differs from run to run, but keeps what [`Batch::run`]
/// promises and no more.
pub(super) struct SimBatch {
    pub(super) rng: Rng,
    pub(super) depth: usize,
}

impl Batch for SimBatch {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        let mut results: Vec<Option<Result<()>>> = operations.iter().map(|_| None).collect();
        let mut first_open = 0;
        for index in self.shuffled_transfers(operations) {
            first_open = run_ready_syncs(operations, &mut results, first_open);
            results[index] = Some(operations[index].run_alone());
        }
        run_ready_syncs(operations, &mut results, first_open);
        let never = || Err(Error::other("a batch that did not run"));
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(never))
            .collect()
    }

    /// What is in flight is done in any order, and told in another one.
    fn drive<'a>(&mut self, first: Vec<Submission<'a>>, completed: &mut Completed<'a, '_>) {
        let (mut waiting, mut next) = (VecDeque::from(first), Vec::new());
        let (mut undone, mut untold) = (Vec::new(), Vec::new());
        loop {
            let room = self.depth - undone.len() - untold.len();
            undone.extend(waiting.drain(..room.min(waiting.len())));
            let in_flight = undone.len() + untold.len();
            if in_flight == 0 {
                return;
            }
            let dice = self.rng.below(in_flight as u64) as usize;
            if dice < undone.len() {
                let mut one: Submission<'a> = undone.swap_remove(dice);
                untold.push((one.number, one.operation.run_alone()));
            } else {
                let (number, result) = untold.swap_remove(dice - undone.len());
                completed(number, result, &mut next);
                waiting.extend(next.drain(..));
            }
        }
    }
}

impl SimBatch {
    fn shuffled_transfers(&mut self, operations: &[Op<'_>]) -> Vec<usize> {
        let is_transfer = |index: &usize| !matches!(operations[*index], Op::Sync { .. });
        let mut order: Vec<usize> = (0..operations.len()).filter(is_transfer).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.rng.below(last as u64 + 1) as usize);
        }
        order
    }
}

/// Runs the syncs that have nothing unfinished before them. Returns the first unfinished
/// operation.
fn run_ready_syncs(
    operations: &mut [Op<'_>],
    results: &mut [Option<Result<()>>],
    mut first_open: usize,
) -> usize {
    while first_open < results.len() {
        if results[first_open].is_none() {
            if !matches!(operations[first_open], Op::Sync { .. }) {
                break;
            }
            results[first_open] = Some(operations[first_open].run_alone());
        }
        first_open += 1;
    }
    first_open
}
