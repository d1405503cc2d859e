//! Running a race test under many schedules.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::sync::atomic::{AtomicU64, Ordering};

/// Schedules of each kind that a test runs under, unless `INKSTONE_RACES_SCHEDULES` says otherwise.
const SCHEDULES: usize = 200;
/// Stack of a thread of the model, bytes: unoptimised frames of the engine are large.
const STACK_BYTES: usize = 1 << 20;
/// Preemptions that the second kind of schedule is made of (see "A randomized scheduler with
/// probabilistic guarantees of finding bugs", Burckhardt et al. 2010).
const PREEMPTIONS: usize = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `test` under schedules drawn step by step, then under schedules of a few preemptions. A
/// schedule under which it panics, or in which all threads wait, is printed with what repeats it:
/// `INKSTONE_RACES_SEED`, the test's name, and shuttle's own encoding.
pub fn explore(test: impl Fn() + Clone + Send + Sync + 'static) {
    let schedules = number("INKSTONE_RACES_SCHEDULES").map_or(SCHEDULES, |n| n as usize);
    let seed = number("INKSTONE_RACES_SEED").unwrap_or(1);
    run(
        RandomScheduler::new_from_seed(seed, schedules),
        test.clone(),
    );
    run(
        PctScheduler::new_from_seed(seed, PREEMPTIONS, schedules),
        test,
    );
}

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(test);
}

/// How often something was seen, over all schedules: a test that never sees what it is about
/// proves nothing. A plain atomic: counting is no point of the schedule.
#[derive(Debug)]
pub struct Seen(AtomicU64);

impl Seen {
    /// Not seen yet.
    pub const fn never() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Sees it.
    pub fn see(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Panics if it was never seen.
    pub fn check(&self, what: &str) {
        assert!(self.0.load(Ordering::Relaxed) > 0, "never seen: {what}");
    }
}
