//! Waiting at an address: queues of parked threads, as `parking_lot_core` has them.

pub use super::super::parked::{Choice, Woken};

use shuttle::rand::Rng;
use shuttle::sync::{Mutex, MutexGuard};
use shuttle::thread::Thread;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// Not woken yet.
const ASLEEP: usize = usize::MAX;

/// A thread in a queue.
struct Parked {
    thread: Thread,
    token: usize,
    woken_with: Arc<AtomicUsize>,
}

type Queues = BTreeMap<usize, VecDeque<Parked>>;

shuttle::lazy_static! {
    static ref QUEUES: Mutex<Queues> = Mutex::new(Queues::new());
}

fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spins a little before it parks.
#[derive(Debug, Default)]
pub struct SpinWait(u32);

#[allow(missing_docs, reason = "as in `parking_lot_core`")]
impl SpinWait {
    pub const fn new() -> Self {
        Self(0)
    }

    pub fn spin(&mut self) -> bool {
        if self.0 == 2 {
            return false;
        }
        self.0 += 1;
        shuttle::thread::yield_now();
        true
    }

    pub fn reset(&mut self) {
        self.0 = 0;
    }
}

/// Queues the calling thread at `key` and lets it sleep, if `validate` says so; the queue does not
/// move while it is asked. Others see `token`. Returns the waker's token, or `None` if it did not
/// sleep.
///
/// # Safety
///
/// As in the ordinary backend; nothing depends on it here.
pub unsafe fn park(key: usize, token: usize, validate: impl FnOnce() -> bool) -> Option<usize> {
    let woken_with = Arc::new(AtomicUsize::new(ASLEEP));
    let mut all = queues();
    if !validate() {
        return None;
    }
    all.entry(key).or_default().push_back(Parked {
        thread: shuttle::thread::current(),
        token,
        woken_with: woken_with.clone(),
    });
    drop(all);
    while woken_with.load(Ordering::SeqCst) == ASLEEP {
        shuttle::thread::park();
    }
    Some(woken_with.load(Ordering::SeqCst))
}

fn wake(woken: impl IntoIterator<Item = Parked>, token: usize) {
    for parked in woken {
        parked.woken_with.store(token, Ordering::SeqCst);
        parked.thread.unpark();
    }
}

/// Wakes the thread that has been parked longest.
///
/// # Safety
///
/// As for [`park`].
pub unsafe fn unpark_one(key: usize, token: usize) {
    let first = queues().get_mut(&key).and_then(VecDeque::pop_front);
    wake(first, token);
}

/// Wakes all parked threads.
///
/// # Safety
///
/// As for [`park`].
pub unsafe fn unpark_all(key: usize, token: usize) {
    let woken = queues().remove(&key).unwrap_or_default();
    wake(woken, token);
}

/// Wakes the threads that `choose` picks by their tokens, from the one that has been parked
/// longest. `settle` gives the token that they get; the queue has not moved since they were chosen.
///
/// # Safety
///
/// As for [`park`].
pub unsafe fn unpark_filter(
    key: usize,
    mut choose: impl FnMut(usize) -> Choice,
    settle: impl FnOnce(Woken) -> usize,
) {
    let mut all = queues();
    let queue = all.entry(key).or_default();
    let stop = queue
        .iter()
        .position(|parked| choose(parked.token) == Choice::Stop);
    let woken: Vec<Parked> = queue.drain(..stop.unwrap_or(queue.len())).collect();
    let token = settle(Woken {
        count: woken.len(),
        more: !queue.is_empty(),
        be_fair: shuttle::rand::thread_rng().r#gen(),
    });
    drop(all);
    wake(woken, token);
}
