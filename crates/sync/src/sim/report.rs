//! What is told of a run.

use super::context::Place;
use super::policy::mix;
use super::scheduler::{Key, State, Status};
use std::fmt::Write;

/// Why a thread's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was long enough.
    Preempted,
    /// It yielded, or spun.
    GaveWay,
    /// The thread waits for another, or for the clock.
    Waits,
    /// The thread ended.
    Ended,
}

/// A decision of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose turn ended.
    pub thread: usize,
    /// Why.
    pub turn: Turn,
    /// Its length.
    pub spent: u64,
    /// Whose turn is next.
    pub next: usize,
    /// Virtual nanoseconds since the run began.
    pub now: u64,
    /// The operation at which it ended.
    pub at: Place,
}

impl Event {
    pub(super) fn mixed_into(&self, fingerprint: u64) -> u64 {
        let parts = [
            self.thread as u64,
            self.turn as u64,
            self.spent,
            self.next as u64,
            self.now,
            u64::from(self.at.line()),
        ];
        parts
            .iter()
            .fold(fingerprint, |all, &part| mix(all.rotate_left(5) ^ part))
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Operations, weighted by what they cost of a turn.
    pub steps: u64,
    /// How often another thread went on.
    pub switches: u64,
    /// All decisions in one number: two runs with the same are the same.
    pub fingerprint: u64,
    /// The decisions, if they were to be recorded.
    pub events: Vec<Event>,
    /// Virtual time that passed.
    pub virtual_time: std::time::Duration,
}

impl Report {
    /// Where two runs that should be the same part, in words.
    pub fn difference(&self, other: &Report) -> Option<String> {
        if self.fingerprint == other.fingerprint {
            return None;
        }
        let pairs = self.events.iter().zip(&other.events);
        let same = pairs.take_while(|(one, two)| one == two).count();
        let show = |report: &Report| match report.events.get(same) {
            Some(event) => format!("{event:?}"),
            None => "the end".to_owned(),
        };
        Some(format!(
            "decision {same} of {} and {} differs:\n  {}\n  {}",
            self.events.len(),
            other.events.len(),
            show(self),
            show(other)
        ))
    }
}

/// Why a run stopped, and what each of its threads does.
pub(super) fn describe(state: &State, seed: u64, why: &str, last: (usize, Place)) -> String {
    let mut text = format!(
        "{why} (schedule of seed {seed}, step {}, after {:?} of virtual time)",
        state.report.steps,
        std::time::Duration::from_nanos(state.now)
    );
    for panic in &state.panics {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {panic}");
    }
    for (number, thread) in state.threads.iter().enumerate() {
        let name = &thread.name;
        let _ = match thread.status {
            Status::Ended => Ok(()),
            Status::Ready if number == last.0 => write!(text, "\n  {name} runs at {}", last.1),
            Status::Ready => write!(text, "\n  {name} can run"),
            Status::Waiting(wait) => {
                let what = match wait.key {
                    Key::Lock(_) => "a lock".to_owned(),
                    Key::Condvar(_) => "a condition variable".to_owned(),
                    Key::Park(_) => "being unparked".to_owned(),
                    Key::End(number) => format!("the end of {}", state.threads[number].name),
                    Key::Sleep => "the clock".to_owned(),
                };
                write!(text, "\n  {name} waits for {what} at {}", wait.at)
            }
        };
    }
    text
}
