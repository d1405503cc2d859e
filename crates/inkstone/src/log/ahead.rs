//! Reads of the log ahead of its reader: while one piece is looked at, a thread reads the next.
//!
//! # Promises
//! 1. What is taken is what the files have where it was asked for, or the error of that read: a
//!    piece that was read ahead and not asked for changes nothing. Tested by
//!    `pieces_read_ahead_are_those_asked_for`.
//!
//! One piece is on its way at a time, in a buffer of its own: the taker gives its buffer for it.

use crate::paranoid::paranoid;
use crate::sync::{Condvar, Mutex, thread};
use inkstone_io::{AlignedBuffer, File};
use std::io;
use std::sync::Arc;

/// A range of a file: where a transfer begins, and how many bytes it has.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub file: Arc<dyn File>,
    pub offset: u64,
    pub len: usize,
}

impl Piece {
    /// Reads it to the beginning of the buffer.
    pub fn read(&self, buffer: &mut AlignedBuffer) -> io::Result<()> {
        paranoid!(
            self.len <= buffer.len(),
            "{} bytes are read into {}",
            self.len,
            buffer.len()
        );
        self.file.read_at(&mut buffer[..self.len], self.offset)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && (self.offset, self.len) == (other.offset, other.len)
    }
}

#[derive(Debug)]
enum State {
    Idle,
    Asked(Piece),
    Reading,
    Read(Piece, io::Result<()>),
    Stop,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Locked by the thread while it reads, by the taker when that is over.
    buffer: Mutex<AlignedBuffer>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ahead {
    /// Starts the thread, with a buffer of so many bytes; `None` where it cannot be started: then
    /// reading only takes longer.
    pub fn start(bytes: usize) -> Option<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Idle),
            changed: Condvar::new(),
            buffer: Mutex::new(AlignedBuffer::zeroed(bytes)),
        });
        let of_thread = shared.clone();
        let thread = thread::spawn("ink-log-ahead", move || of_thread.run()).ok()?;
        Some(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has a piece read. What was asked for before must have been taken.
    pub fn ask(&self, piece: Piece) {
        let mut state = self.shared.state.lock();
        paranoid!(
            matches!(*state, State::Idle),
            "two pieces are read ahead: {state:?}"
        );
        *state = State::Asked(piece);
        self.shared.changed.notify_all();
    }

    /// What came of reading a piece, which is in `buffer` then; `None` if another one was asked
    /// for, or none.
    pub fn take(&self, piece: &Piece, buffer: &mut AlignedBuffer) -> Option<io::Result<()>> {
        let mut state = self.shared.state.lock();
        while matches!(*state, State::Asked(_) | State::Reading) {
            self.shared.changed.wait(&mut state);
        }
        match std::mem::replace(&mut *state, State::Idle) {
            State::Read(read, result) if read.is(piece) => {
                paranoid!(
                    buffer.len() == self.shared.buffer.lock().len(),
                    "a buffer of {} bytes is given for a longer or shorter one",
                    buffer.len()
                );
                std::mem::swap(&mut *self.shared.buffer.lock(), buffer);
                Some(result)
            }
            _ => None,
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        *self.shared.state.lock() = State::Stop;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Reading) {
                State::Asked(piece) => {
                    drop(state);
                    let result = piece.read(&mut self.buffer.lock());
                    state = self.state.lock();
                    if matches!(*state, State::Reading) {
                        *state = State::Read(piece, result);
                    }
                    self.changed.notify_all();
                }
                State::Stop => return,
                other => {
                    *state = other;
                    self.changed.wait(&mut state);
                }
            }
        }
    }
}
