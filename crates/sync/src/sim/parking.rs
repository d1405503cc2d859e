//! Parking by address under the scheduler, which wakes in the order of the queue as the real one
//! does.

use super::context::{cost, current, point, undisturbed};
use super::scheduler::{Key, Wait, Woken as Ended};
pub use crate::parked::{Choice, Woken};
use crate::real::parking as real;
use std::panic::Location;

/// How often, in percent, what is released is handed over to the woken thread.
const FAIR_PERCENT: u64 = 10;

/// See the ordinary backend's function of this name.
///
/// # Safety
///
/// As there.
#[track_caller]
pub unsafe fn park(key: usize, token: usize, validate: impl FnOnce() -> bool) -> Option<usize> {
    point(cost::LOCK);
    let Some(me) = current() else {
        // SAFETY: the caller's promises are those that are asked for here.
        return unsafe { real::park(key, token, validate) };
    };
    if !undisturbed(validate) {
        return None;
    }
    let wait = Wait {
        key: Key::Park(key),
        deadline: None,
        token,
        at: Location::caller(),
    };
    match me.scheduler.block(&me, wait) {
        Ended::By(token) => Some(token),
        Ended::TimedOut => None,
    }
}

/// See the ordinary backend's function of this name.
///
/// # Safety
///
/// As there.
#[track_caller]
pub unsafe fn unpark_one(key: usize, token: usize) {
    let Some(me) = current() else {
        // SAFETY: the caller's promises are those that are asked for here.
        return unsafe { real::unpark_one(key, token) };
    };
    let key = Key::Park(key);
    let mut state = me.scheduler.state();
    if let Some(&(first, _)) = state.waiting(key).first() {
        state.wake(first, key, token);
    }
    drop(state);
    point(cost::LOCK);
}

/// See the ordinary backend's function of this name.
///
/// # Safety
///
/// As there.
#[track_caller]
pub unsafe fn unpark_all(key: usize, token: usize) {
    let Some(me) = current() else {
        // SAFETY: the caller's promises are those that are asked for here.
        return unsafe { real::unpark_all(key, token) };
    };
    me.scheduler.state().wake_all(Key::Park(key), token);
    point(cost::LOCK);
}

/// See the ordinary backend's function of this name.
///
/// # Safety
///
/// As there.
#[track_caller]
pub unsafe fn unpark_filter(
    key: usize,
    mut choose: impl FnMut(usize) -> Choice,
    settle: impl FnOnce(Woken) -> usize,
) {
    let Some(me) = current() else {
        // SAFETY: the caller's promises are those that are asked for here.
        return unsafe { real::unpark_filter(key, choose, settle) };
    };
    let key = Key::Park(key);
    let waiting = me.scheduler.state().waiting(key);
    let token = undisturbed(|| {
        let picked = waiting
            .iter()
            .take_while(|(_, token)| choose(*token) == Choice::Wake);
        let count = picked.count();
        let be_fair = count > 0 && me.scheduler.state().dice().chance(FAIR_PERCENT);
        let token = settle(Woken {
            count,
            more: count < waiting.len(),
            be_fair,
        });
        (count, token)
    });
    let (count, token) = token;
    let mut state = me.scheduler.state();
    for &(number, _) in &waiting[..count] {
        state.wake(number, key, token);
    }
    drop(state);
    point(cost::LOCK);
}

/// Spins a little before parking.
#[derive(Default)]
pub struct SpinWait {
    spins: u32,
}

impl SpinWait {
    /// From the start.
    pub fn new() -> Self {
        Self::default()
    }

    /// From the start again.
    pub fn reset(&mut self) {
        self.spins = 0;
    }

    /// Lets others run; false when it is time to park.
    #[track_caller]
    pub fn spin(&mut self) -> bool {
        if self.spins >= 3 {
            return false;
        }
        self.spins += 1;
        super::thread::yield_now();
        true
    }
}
