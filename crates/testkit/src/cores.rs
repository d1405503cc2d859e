//! Which core a seeded run has.
//!
//! Of the threads of a seeded run one works at a time, and hands over to another thousands of times
//! a second. Where that one is on another core, which sleeps, it is woken by an interrupt, which
//! costs more than what it then does: on a virtual machine half of a campaign's time was neither's.
//! On one core the kernel just goes over to the next thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The variable of a worker's environment that has its number in its campaign.
pub(crate) const WORKER: &str = "INKSTONE_WORKER";

/// A thread that has one core until this is dropped, as have the threads that it starts.
#[must_use]
pub(crate) struct OneCore {
    all: Option<CpuSet>,
}

/// Leaves this thread, and what it starts from now on, one of its cores; workers of a campaign have
/// different ones. Where that fails it is slower, and not wrong.
pub(crate) fn keep_one() -> OneCore {
    let all = sched_getaffinity(None).ok();
    let kept = all.filter(|all| {
        let cores: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|&core| all.is_set(core))
            .collect();
        let mut one = CpuSet::new();
        one.set(cores[number() % cores.len()]);
        sched_setaffinity(None, &one).is_ok()
    });
    OneCore { all: kept }
}

/// Campaigns that run at the same time begin at different cores.
fn number() -> usize {
    let worker = std::env::var(WORKER)
        .ok()
        .and_then(|n| n.parse::<usize>().ok());
    match worker {
        Some(worker) => std::os::unix::process::parent_id() as usize + worker,
        None => std::process::id() as usize,
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            // As above.
            let _ = sched_setaffinity(None, all);
        }
    }
}
