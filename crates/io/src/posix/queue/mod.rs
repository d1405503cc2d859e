//! Operations in flight without io_uring: a few threads that wait for the device.
//!
//! # Promises
//!
//! 1. [`Batch::drive`] returns, normally or by panic, only when no thread works any more: the
//!    threads live in a scope of its call (so the borrow checker proves it). Tested by
//!    `a_panic_waits_for_what_is_under_way`.
//! 2. At most [`THREADS_MAX`] threads, and none that is not needed: one starts when an operation
//!    would wait for another otherwise. An operation that is alone, and one that is only a copy
//!    into the page cache, runs in the calling thread. Tested by
//!    `as_many_are_under_way_as_the_depth_says`, `what_is_alone_runs_where_it_was_asked_for`.
//!
//! Where no thread can be started, all run in the calling thread.
//!
//! Latch: `state`, held for a moment, never during an operation.

use crate::{Batch, Completed, Op, Result, Submission, run_in_phases};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::thread::Scope;

/// Most threads of one call.
const THREADS_MAX: usize = 16;

/// See the module.
pub(super) struct PosixBatch {
    threads_max: usize,
}

impl PosixBatch {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            threads_max: depth.min(THREADS_MAX),
        }
    }
}

/// What the calling thread and the others share.
struct Shared<'a> {
    state: Mutex<State<'a>>,
    /// There is something to do, or nothing any more.
    work: Condvar,
    /// Something is done.
    done: Condvar,
}

struct State<'a> {
    todo: VecDeque<Submission<'a>>,
    done: Vec<(u64, Result<()>)>,
    /// Threads that wait for work.
    idle: usize,
    closed: bool,
}

impl<'a> Shared<'a> {
    fn new() -> Self {
        let state = State {
            todo: VecDeque::new(),
            done: Vec::new(),
            idle: 0,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        }
    }

    /// The life of a thread.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(mut one) = state.todo.pop_front() {
                drop(state);
                let result = one.operation.run_alone();
                state = self.state.lock();
                state.done.push((one.number, result));
                self.done.notify_one();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    /// Hands an operation to a thread. Gives it back if there is none and none can be started.
    fn hand_over<'scope>(
        &'scope self,
        one: Submission<'a>,
        crew: &mut Crew<'scope, '_>,
    ) -> std::result::Result<(), Submission<'a>> {
        let mut state = self.state.lock();
        if state.idle <= state.todo.len() && crew.threads < crew.threads_max {
            let thread = std::thread::Builder::new().name("ink-io".to_owned());
            let started = thread.spawn_scoped(crew.scope, || self.serve());
            crew.threads += usize::from(started.is_ok());
        }
        if crew.threads == 0 {
            return Err(one);
        }
        state.todo.push_back(one);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// What was done since the last call, at least one thing.
    fn wait(&self) -> Vec<(u64, Result<()>)> {
        let mut state = self.state.lock();
        while state.done.is_empty() {
            self.done.wait(&mut state);
        }
        std::mem::take(&mut state.done)
    }
}

/// The threads of one call.
struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    threads: usize,
    threads_max: usize,
}

/// Sends the threads home, also when the caller panics.
struct Closing<'s, 'a>(&'s Shared<'a>);

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        state.todo.clear();
        drop(state);
        self.0.work.notify_all();
    }
}

/// Whether an operation may wait for the device. A write into the page cache is a copy.
fn waits(operation: &Op<'_>) -> bool {
    match operation {
        Op::Read { .. } | Op::Sync { .. } => true,
        Op::Write { file, .. } => file.is_direct(),
    }
}

impl Batch for PosixBatch {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        run_in_phases(self, operations)
    }

    fn drive<'a>(&mut self, first: Vec<Submission<'a>>, completed: &mut Completed<'a, '_>) {
        let shared = Shared::new();
        std::thread::scope(|scope| {
            let _closing = Closing(&shared);
            let mut crew = Crew {
                scope,
                threads: 0,
                threads_max: self.threads_max,
            };
            let (mut waiting, mut next) = (VecDeque::from(first), Vec::new());
            let mut in_flight = 0;
            loop {
                while let Some(one) = waiting.pop_front() {
                    let alone = in_flight == 0 && waiting.is_empty();
                    let refused = if alone || !waits(&one.operation) {
                        Some(one)
                    } else {
                        shared.hand_over(one, &mut crew).err()
                    };
                    match refused {
                        None => in_flight += 1,
                        Some(mut one) => {
                            completed(one.number, one.operation.run_alone(), &mut next);
                            waiting.extend(next.drain(..));
                        }
                    }
                }
                if in_flight == 0 {
                    return;
                }
                for (number, result) in shared.wait() {
                    in_flight -= 1;
                    completed(number, result, &mut next);
                }
                waiting.extend(next.drain(..));
            }
        });
    }
}

#[cfg(test)]
mod tests;
