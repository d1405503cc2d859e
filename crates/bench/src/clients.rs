//! Clients: threads that do one thing over and over for a time; latencies and rates.

use crate::failure::{Failure, Result};
use crate::output::rounded;
use crate::progress;
use crate::random::Random;
use crate::sink::Fields;
use crate::statistics::middle;
use crate::values::Content;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use inkstone::{Database, Durability, Error, Isolation, Table};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the clients of a run did.
#[derive(Debug)]
pub struct Run {
    /// How often they did it.
    pub operations: u64,
    /// How long it took.
    pub seconds: f64,
    /// Of the processors.
    cpu_seconds: f64,
    /// Nanoseconds.
    latency: Histogram<u64>,
    /// Operations that ended in each whole second.
    by_second: Vec<u64>,
}

/// Seconds that the processors spent on this process so far, background threads and system calls
/// with it: what a busy machine does not change.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// One client's share of a [`Run`].
struct Share {
    latency: Histogram<u64>,
    by_second: Vec<u64>,
}

/// Latencies from 16 ns to ten minutes, to a hundredth. Small, as each client has one, and what the
/// process has resident is measured.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(16, 600_000_000_000, 2)
        .map_err(|e| Failure::Usage(format!("histogram: {e}")))
}

/// Runs of this process so far: no two of them draw the same random numbers, or the second one
/// would write the values that the first one wrote, and log next to nothing.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// As [`measure`], of the engine, behind a spinner that says what is done.
pub fn run<S>(
    clients: u64,
    seconds: f64,
    what: String,
    state: impl Fn(Random) -> Result<S> + Sync,
    operation: impl Fn(&mut S) -> Result<u64, Error> + Sync,
) -> Result<Run> {
    let bar = progress::spinner(what);
    let operation = |state: &mut S| operation(state).map_err(Failure::from);
    let run = measure(clients, seconds, state, operation);
    bar.finish_and_clear();
    run
}

/// Runs `operation` in `clients` threads for some seconds. It gets the thread's own state, which
/// `state` makes of the thread's random numbers, and says how many operations it did.
pub fn measure<S, E: From<Failure> + Send>(
    clients: u64,
    seconds: f64,
    state: impl Fn(Random) -> Result<S, E> + Sync,
    operation: impl Fn(&mut S) -> Result<u64, E> + Sync,
) -> Result<Run, E> {
    let stop = AtomicBool::new(false);
    let run_number = RUNS.fetch_add(1, Ordering::Relaxed);
    let (begin, cpu_begin) = (Instant::now(), cpu_seconds());
    let client = |n: u64, mut share: Share| -> Result<Share, E> {
        let mut state = state(Random::new(run_number << 32 | n))?;
        let mut last = begin.elapsed();
        // Every client does something, however short the run and slow the device.
        loop {
            let done =
                operation(&mut state).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            let now = begin.elapsed();
            let nanos = (now - last).as_nanos() as u64 / done.max(1);
            // Bounded by the run's length: always within the histogram.
            let _ = share.latency.record_n(nanos.max(1), done);
            let second = now.as_secs() as usize;
            if share.by_second.len() <= second {
                share.by_second.resize(second + 1, 0);
            }
            share.by_second[second] += done;
            last = now;
            if stop.load(Ordering::Relaxed) {
                return Ok(share);
            }
        }
    };
    // Made here, side by side: in a thread of their own each would take a large piece of the heap.
    let share = || -> Result<Share> {
        Ok(Share {
            latency: histogram()?,
            by_second: Vec::new(),
        })
    };
    let shares: Vec<Share> = (0..clients).map(|_| share()).collect::<Result<_>>()?;
    let shares: Vec<Result<Share, E>> = std::thread::scope(|scope| {
        let client = &client;
        let threads: Vec<_> = (0..clients)
            .zip(shares)
            .map(|(n, share)| {
                let builder = std::thread::Builder::new().name(format!("client-{n}"));
                builder.spawn_scoped(scope, move || client(n, share))
            })
            .collect();
        let until = Duration::from_secs_f64(seconds);
        while begin.elapsed() < until && !stop.load(Ordering::Relaxed) {
            let left = until.saturating_sub(begin.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(Failure::Check("a client panicked".to_owned()).into())),
                Err(e) => Err(Failure::io("start a thread of", Path::new("inkstone"), e).into()),
            })
            .collect()
    });
    let elapsed = begin.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds() - cpu_begin;
    let mut run = Run {
        operations: 0,
        seconds: elapsed,
        cpu_seconds,
        latency: histogram()?,
        by_second: vec![0; seconds as usize],
    };
    for share in shares {
        let share = share?;
        run.operations += share.by_second.iter().sum::<u64>();
        // Both have the same bounds.
        let _ = run.latency.add(&share.latency);
        for (sum, n) in run.by_second.iter_mut().zip(share.by_second) {
            *sum += n;
        }
    }
    Ok(run)
}

impl Run {
    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Microseconds of the processors.
    pub fn cpu_us_per_operation(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.operations.max(1) as f64
    }

    /// The longest operation, microseconds.
    pub fn max_us(&self) -> f64 {
        self.latency.max() as f64 / 1000.0
    }

    /// Microseconds that this part of the operations did not exceed.
    pub fn quantile_us(&self, part: f64) -> f64 {
        self.latency.value_at_quantile(part) as f64 / 1000.0
    }

    /// Adds latencies in microseconds, what an operation takes of the processors, and the worst and
    /// the median second of runs of two seconds and more: one second is no distribution.
    pub(crate) fn describe(&self, fields: Fields) -> Fields {
        let quantile = |q| rounded(self.quantile_us(q), 1);
        let mut seconds = self.by_second.clone();
        if seconds.len() < 2 {
            seconds.clear();
        }
        seconds.sort_unstable();
        let median = middle(&seconds);
        let worst = seconds.first().copied();
        let share = match (worst, median) {
            (Some(worst), Some(median)) if median > 0 => {
                Some(rounded(worst as f64 / median as f64, 3))
            }
            _ => None,
        };
        fields
            .with("p50_us", quantile(0.5))
            .with("p99_us", quantile(0.99))
            .with("p999_us", quantile(0.999))
            .with("max_us", rounded(self.max_us(), 1))
            .with("worst_second", worst)
            .with("median_second", median)
            .with("worst_over_median", share)
            .with(
                "cpu_us_per_operation",
                rounded(self.cpu_us_per_operation(), 2),
            )
    }
}

/// Rows in one transaction of [`fill`].
const FILL_ROWS: u64 = 200_000;

/// Fills a table with rows 0.. of an 8-byte key and random text.
pub fn fill(
    db: &Database,
    table: &Table,
    rows: u64,
    value_bytes: usize,
    bar: &ProgressBar,
) -> Result<()> {
    fill_with(db, table, rows, (Content::Text, value_bytes), bar)
}

/// As [`fill`], with values of this content and so many bytes.
pub fn fill_with(
    db: &Database,
    table: &Table,
    rows: u64,
    (content, value_bytes): (Content, usize),
    bar: &ProgressBar,
) -> Result<()> {
    let mut random = Random::new(11);
    let mut value = vec![0; value_bytes];
    let mut from = 0;
    while from < rows {
        let to = (from + FILL_ROWS).min(rows);
        let transaction = db.begin(Isolation::RepeatableRead)?;
        let batch = (from..to).map(|n| {
            content.fill(&mut random, &mut value);
            (n.to_be_bytes(), value.clone())
        });
        transaction.insert_many(table, batch)?;
        transaction.commit_with(Durability::Lazy)?;
        bar.inc(to - from);
        from = to;
    }
    db.flush_log()?;
    Ok(())
}
