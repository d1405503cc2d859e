//! Many runs, their counts, and the line that repeats a failing one.

use crate::driver::{Marks, Plan};
use crate::failed_sync::flushers;
use crate::{schedule, small_log};
use clap::ValueEnum;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// Seconds without progress after which a run counts as hung. Less than the mutants have that show
/// themselves by hanging.
const HANG_SECONDS: u64 = 60;

static PROGRESS: AtomicU64 = AtomicU64::new(0);
static CURRENT: Mutex<String> = Mutex::new(String::new());
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Notes that the driver goes on.
pub(crate) fn alive() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Ends the process, with the line that repeats the run, when a run hangs or any thread panics.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            usual(info);
            let engine = std::thread::current()
                .name()
                .is_some_and(|name| name.starts_with("ink-"));
            if engine || WATCHED.load(Ordering::Relaxed) > 0 {
                let current = CURRENT.lock().map(|c| c.clone()).unwrap_or_default();
                // The text as well: a test's output is lost when its process aborts.
                say(&format!(
                    "a thread panicked; runs under way: {current}\n{info}"
                ));
                std::process::abort();
            }
        }));
        std::thread::spawn(|| {
            let (mut last, mut idle) = (0, 0);
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let now = PROGRESS.load(Ordering::Relaxed);
                let watched = WATCHED.load(Ordering::Relaxed) > 0;
                idle = if watched && now == last { idle + 1 } else { 0 };
                last = now;
                if idle > HANG_SECONDS {
                    let current = CURRENT.lock().map(|c| c.clone()).unwrap_or_default();
                    say(&format!(
                        "no progress for {idle} s; runs under way: {current}"
                    ));
                    std::process::abort();
                }
            }
        });
    });
}

/// The command that repeats a run.
pub fn repeat_line(plan: &Plan) -> String {
    let usual = Plan::of_seed(plan.seed);
    let mut line = format!("cargo xtask sim --seed {}", plan.seed);
    if let Some(profile) = plan.profile.and_then(|profile| profile.to_possible_value()) {
        line.push_str(&format!(" --profile {}", profile.get_name()));
    }
    let mut add = |name: &str, value: u64, usual: u64| {
        if value != usual {
            line.push_str(&format!(" --{name} {value}"));
        }
    };
    add("cycles", plan.cycles, usual.cycles);
    add("steps", plan.steps_total, usual.steps_total);
    line + " --trace"
}

/// Runs `f` watched: if it hangs, or a thread panics, `name` is printed.
pub fn watched<T>(name: &str, f: impl FnOnce() -> T) -> T {
    watch();
    if let Ok(mut current) = CURRENT.lock() {
        *current = name.to_owned();
    }
    WATCHED.fetch_add(1, Ordering::Relaxed);
    alive();
    let result = f();
    WATCHED.fetch_sub(1, Ordering::Relaxed);
    result
}

/// Runs a plan; the error says how to repeat it.
pub fn run(plan: Plan) -> (Marks, Result<(), String>) {
    let line = repeat_line(&plan);
    let (marks, result) = watched(&line, || schedule::run(plan));
    (
        marks,
        result.map_err(|text| format!("{text}\n  repeat: {line}")),
    )
}

/// Runs a case of slow syncs of which one fails; the error says how to repeat it.
pub fn run_flushers(case: flushers::Case) -> (Marks, Result<(), String>) {
    let failing = case
        .failing
        .map_or(String::new(), |failing| format!(" {}", failing.argument()));
    let line = format!(
        "cargo xtask failed-sync --seed {}{failing} --runs 1 --trace",
        case.seed
    );
    let text = format!("{case:?}");
    let (marks, result) = watched(&line, || flushers::run(case));
    (
        marks,
        result.map_err(|error| format!("{error}\n  {text}\n  repeat: {line}")),
    )
}

/// Runs a case of clients that share a small log; the error says how to repeat it.
pub fn run_small_log(case: small_log::Case) -> (Marks, Result<(), String>) {
    let line = format!("cargo xtask sim --small-log --seed {} --trace", case.seed);
    let text = format!("{case:?}");
    let (marks, result) = watched(&line, || small_log::run(case));
    (
        marks,
        result.map_err(|error| format!("{error}\n  {text}\n  repeat: {line}")),
    )
}

/// Runs the seeds from `first` on; stops at the first that fails.
pub fn run_seeds(first: u64, count: u64) -> (Marks, Result<(), String>) {
    let mut marks = Marks::default();
    for seed in first..first + count {
        let (seen, result) = run(Plan::of_seed(seed));
        marks.merge(&seen);
        marks.add("runs", 1);
        if let Err(text) = result {
            return (marks, Err(format!("seed {seed}: {text}")));
        }
    }
    (marks, Ok(()))
}

/// The command that repeats a run with a failing operation.
pub fn repeat_fault_line(
    seed: u64,
    kind: inkstone_io::sim::OpKind,
    nth: u64,
    fault: inkstone_io::sim::Fault,
    times: u64,
) -> String {
    format!(
        "cargo xtask sim --seed {seed} --fault {kind:?} --nth {nth} --times {times} --error {fault:?} --trace"
    )
}
