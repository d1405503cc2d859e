//! The latest waits that were slow, each with its reason.

use crate::paranoid::paranoid;
use crate::sync::{Instant, Mutex, thread};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many are kept.
const KEPT: usize = 64;

/// A wait of `slow_wait_ms` and longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowWait {
    /// What was waited for, by the name that it has in
    /// [`Database::durations`](crate::Database::durations).
    pub name: &'static str,
    /// The same in words.
    pub reason: &'static str,
    /// How long it took.
    pub took: Duration,
    /// How long ago it ended.
    pub ago: Duration,
    /// The name of the thread that waited, if it has one.
    pub thread: Option<String>,
}

/// One that is kept.
#[derive(Debug)]
struct Kept {
    name: &'static str,
    reason: &'static str,
    took: Duration,
    ended: Instant,
    thread: Option<String>,
}

/// The latest ones.
#[derive(Debug)]
pub(super) struct SlowWaits {
    /// Nanoseconds from which on a wait is slow; all ones for none.
    from: AtomicU64,
    kept: Mutex<VecDeque<Kept>>,
}

impl Default for SlowWaits {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(u64::MAX),
            kept: Mutex::new(VecDeque::new()),
        }
    }
}

impl SlowWaits {
    /// Zero: no wait is slow.
    pub fn set_from(&self, from: Duration) {
        let nanoseconds = u64::try_from(from.as_nanos()).unwrap_or(u64::MAX);
        let from = if nanoseconds == 0 {
            u64::MAX
        } else {
            nanoseconds
        };
        self.from.store(from, Ordering::Relaxed);
    }

    /// Keeps a wait that has just ended, if it was slow; whether it was.
    pub fn note(&self, (name, reason): (&'static str, &'static str), took: Duration) -> bool {
        if took.as_nanos() < u128::from(self.from.load(Ordering::Relaxed)) {
            return false;
        }
        let thread = thread::current().name().map(str::to_owned);
        let mut kept = self.kept.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Kept {
            name,
            reason,
            took,
            ended: Instant::now(),
            thread,
        });
        paranoid!(kept.len() <= KEPT, "{} slow waits are kept", kept.len());
        true
    }

    /// Those that are kept, the latest one last.
    pub fn latest(&self) -> Vec<SlowWait> {
        let kept = self.kept.lock();
        let shown = kept.iter().map(|wait| SlowWait {
            name: wait.name,
            reason: wait.reason,
            took: wait.took,
            ago: wait.ended.elapsed(),
            thread: wait.thread.clone(),
        });
        shown.collect()
    }
}
