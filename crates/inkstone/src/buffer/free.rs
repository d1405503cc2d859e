//! Free frames, the threads that wait for them, and the budget of reservations.
//!
//! # Why waiting for frames cannot deadlock
//!
//! 1. Reservations together hold at most a quarter of the frames ([`Budget`], first come, first
//!    served), so three quarters circulate whatever the reservations' owners do, even if they load
//!    pages.
//! 2. A loader holds one frame that is in no table, and gives it to the table when its read ends:
//!    it waits for nothing else.
//! 3. A resident page stays only while it is latched, in flight or dirty. The holder of a latch
//!    waits for no frame; flights end; the thread `ink-frames` writes dirty pages and needs no
//!    frame for it.

use super::frame::Frame;
use crate::paranoid::{Check, Checked, ON, paranoid};
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::time::Duration;

/// The longest sleep of a waiter before it looks again (poison set elsewhere wakes no waiter).
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(50);

/// The free frames of a partition.
struct FreeList(Vec<u32>);

/// Frames of a list that a check looks at.
const CHECKED: usize = 16;

impl Check for FreeList {
    /// What was given back last was not free.
    fn check(&self) {
        if let Some((last, others)) = self.0.split_last() {
            let mut others = others.iter().rev().take(CHECKED);
            paranoid!(
                others.all(|other| other != last),
                "frame {last} is free twice"
            );
        }
    }
}

/// Lists of free frames, one for each partition, and a waiting room.
pub(crate) struct FreeFrames {
    lists: Box<[Checked<FreeList>]>,
    count: AtomicUsize,
    waiting: AtomicUsize,
    /// Frames that were given back.
    given: AtomicUsize,
    room: Mutex<Option<Error>>,
    freed: Condvar,
}

impl FreeFrames {
    /// All `frames` are free.
    pub fn new(partitions: usize, frames: u32) -> Self {
        let list = |p: usize| {
            // Low indices on top: memory is touched from the start on.
            let mut own: Vec<u32> = (p as u32..frames).step_by(partitions).collect();
            own.reverse();
            Checked::new(FreeList(own))
        };
        Self {
            lists: (0..partitions).map(list).collect(),
            count: AtomicUsize::new(frames as usize),
            waiting: AtomicUsize::new(0),
            given: AtomicUsize::new(0),
            room: Mutex::new(None),
            freed: Condvar::new(),
        }
    }

    /// A free frame, of the partition `home` if it has one.
    pub fn pop(&self, home: usize) -> Option<u32> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let partitions = self.lists.len();
        (0..partitions).find_map(|step| {
            let number = (home + step) % partitions;
            let index = self.lists[number].lock().0.pop()?;
            paranoid!(
                index as usize % partitions == number,
                "frame {index} was free in partition {number} of {partitions}"
            );
            self.count.fetch_sub(1, Ordering::Relaxed);
            Some(index)
        })
    }

    /// Gives a frame back, and wakes one waiter.
    pub fn push(&self, index: u32, frame: &Frame) {
        debug_assert!(frame.page_id().is_none() && !frame.is_dirty());
        self.lists[index as usize % self.lists.len()]
            .lock()
            .0
            .push(index);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.given.fetch_add(1, Ordering::Relaxed);
        // Either the waiter's last look sees the frame, or we see the waiter.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            drop(self.room.lock());
            self.freed.notify_one();
        }
    }

    /// Number of free frames.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Number of threads that wait for a frame.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A number that rises with each frame given back.
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed) as u64
    }

    /// Waits until `attempt` yields a frame or an error. It is tried at once, whenever a frame was
    /// freed, and now and then.
    pub fn wait(&self, mut attempt: impl FnMut() -> Option<Result<u32>>) -> Result<u32> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let outcome = loop {
            let mut room = self.room.lock();
            fence(Ordering::SeqCst);
            if let Some(outcome) = attempt() {
                break outcome;
            }
            if let Some(error) = &*room {
                break Err(error.clone());
            }
            self.freed.wait_for(&mut room, WAIT_SLICE);
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    /// Lets every waiter look again.
    pub fn announce(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            drop(self.room.lock());
            self.freed.notify_all();
        }
    }

    /// Lets every caller that finds no frame fail with `error`.
    pub fn set_error(&self, error: Error) {
        *self.room.lock() = Some(error);
        self.freed.notify_all();
    }
}

/// How many frames reservations may hold together.
pub(crate) struct Budget {
    limit: usize,
    state: Mutex<BudgetState>,
    changed: Condvar,
}

#[derive(Default)]
struct BudgetState {
    taken: usize,
    next_ticket: u64,
    queue: VecDeque<u64>,
}

impl BudgetState {
    fn check(&self, limit: usize) {
        paranoid!(
            self.taken <= limit,
            "{} frames reserved, of {limit}",
            self.taken
        );
        let (first, last) = (self.queue.front(), self.queue.back());
        paranoid!(
            first <= last && last.is_none_or(|last| *last < self.next_ticket),
            "tickets {first:?} to {last:?} wait, the next is {}",
            self.next_ticket
        );
    }
}

impl Budget {
    /// At most `limit` frames.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The largest single request.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Takes `frames` of the budget, in turn; `check` may end the wait with an error.
    pub fn take(&self, frames: usize, check: impl Fn() -> Result<()>) -> Result<()> {
        paranoid!(
            frames > 0 && frames <= self.limit,
            "{frames} frames of a budget of {}",
            self.limit
        );
        let mut state = self.state.lock();
        if state.queue.is_empty() && state.taken + frames <= self.limit {
            state.taken += frames;
            return Ok(());
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queue.push_back(ticket);
        let outcome = loop {
            let first = state.queue.front() == Some(&ticket);
            if first && state.taken + frames <= self.limit {
                state.taken += frames;
                break Ok(());
            }
            if let Err(error) = check() {
                break Err(error);
            }
            self.changed.wait_for(&mut state, WAIT_SLICE);
        };
        state.queue.retain(|&other| other != ticket);
        if ON {
            state.check(self.limit);
        }
        drop(state);
        self.changed.notify_all();
        outcome
    }

    /// Gives `frames` back.
    pub fn give_back(&self, frames: usize) {
        let mut state = self.state.lock();
        paranoid!(
            state.taken >= frames,
            "{frames} frames given back, of {}",
            state.taken
        );
        state.taken -= frames;
        let queued = !state.queue.is_empty();
        drop(state);
        if queued {
            self.changed.notify_all();
        }
    }
}
