//! How long threads waited for devices and for each other: a histogram for each [`Timed`].
//!
//! # Promises
//!
//! 1. A percentile is at most an eighth too long, and never shorter than what it stands for. Tested
//!    by `percentiles_are_those_of_the_sorted_list_rounded_up`.
//! 2. Count, sum and maximum are exact once the threads that record are quiet. Tested by
//!    `percentiles_are_those_of_the_sorted_list_rounded_up`.
//!
//! Recording takes no lock: relaxed additions to one bucket and the sum, and a maximum. The clock
//! is read where a thread does I/O or waits in any case, nowhere else.
//!
//! Each power of two of nanoseconds has [`STEPS`] buckets. What takes longer than [`LONGEST_NS`]
//! counts in the last one; then only the maximum tells how long it was.

use crate::paranoid::paranoid;
use crate::sync::Instant;
use crate::trace;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets for each power of two.
const STEPS: u64 = 8;
/// log2 of that.
const STEP_BITS: u32 = STEPS.ilog2();
/// The last power of two with buckets of its own: about 18 minutes.
const LAST_POWER: u32 = 40;
/// Nanoseconds: the longest duration that a percentile can tell.
const LONGEST_NS: u64 = (1 << (LAST_POWER + 1)) - 1;
const BUCKETS: usize = bucket_of(LONGEST_NS) + 1;

macro_rules! durations {
    ($($variant:ident $name:literal $help:literal,)+) => {
        /// What is timed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Timed { $(#[doc = $help] $variant,)+ }

        /// Everything that is timed with its name and description, in declaration order.
        pub const DURATIONS: &[(Timed, &str, &str)] = &[$((Timed::$variant, $name, $help),)+];
    };
}

durations! {
    CommitWait "commit_wait" "What a commit waited until its log was written or durable, as its durability asks",
    LogWrite "log_write" "A write to a log segment; until it is durable with log_write_through, and with its sync where log_write=async submits both",
    LogSync "log_sync" "A sync of a log segment",
    LogBufferWait "log_buffer_wait" "A wait for room in the log buffer",
    LogSpaceWait "log_space_wait" "A writer held back because too much log waits for a checkpoint",
    PageRead "page_read" "A page read from a tablespace file",
    PageWrite "page_write" "A batch of pages written in place",
    PageSync "page_sync" "A sync of a tablespace file",
    DoublewriteWrite "doublewrite_write" "A batch of pages written to the doublewrite file",
    DoublewriteSync "doublewrite_sync" "A sync of the doublewrite file",
    FrameWait "frame_wait" "A wait for a free frame of the buffer pool",
    RowLockWait "row_lock_wait" "A wait for a row or range lock, also one that ended in a timeout or deadlock",
}

const fn bucket_of(nanoseconds: u64) -> usize {
    if nanoseconds < STEPS {
        return nanoseconds as usize;
    }
    let power = nanoseconds.ilog2();
    let step = nanoseconds >> (power - STEP_BITS) & (STEPS - 1);
    ((power - STEP_BITS + 1) as u64 * STEPS + step) as usize
}

/// The longest duration of a bucket, nanoseconds.
const fn longest_in(bucket: usize) -> u64 {
    let (row, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if row == 0 {
        return step;
    }
    ((STEPS + step + 1) << (row - 1)) - 1
}

/// The durations of one kind of operation.
#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Histogram {
    const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }

    fn record(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let number = bucket_of(nanoseconds.min(LONGEST_NS));
        paranoid!(
            nanoseconds.min(LONGEST_NS) <= longest_in(number),
            "{nanoseconds} ns are counted among those of {} at most",
            longest_in(number)
        );
        let bucket = &self.buckets[number];
        bucket.fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        self.max_ns.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// Counts by powers of two of nanoseconds, as far as there are any.
    fn powers(&self, name: &'static str) -> impl Iterator<Item = DurationBucket> {
        let rows = self.buckets.chunks(STEPS as usize).enumerate();
        rows.filter_map(move |(row, buckets)| {
            let counts = buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
            let count = counts.sum();
            let last = (row + 1) * STEPS as usize - 1;
            (count > 0).then(|| DurationBucket {
                name,
                longest: (last < BUCKETS - 1).then(|| Duration::from_nanos(longest_in(last))),
                count,
            })
        })
    }

    fn summary(&self, name: &'static str, help: &'static str) -> DurationSummary {
        let counts = self.buckets.each_ref();
        let counts = counts.map(|bucket| bucket.load(Ordering::Relaxed));
        let max = self.max_ns.load(Ordering::Relaxed);
        let percentile = |per_mille| {
            let nanoseconds = percentile(&counts, per_mille);
            Duration::from_nanos(nanoseconds.min(max))
        };
        DurationSummary {
            name,
            help,
            count: counts.iter().sum(),
            sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)),
            p50: percentile(500),
            p90: percentile(900),
            p99: percentile(990),
            p999: percentile(999),
            max: Duration::from_nanos(max),
        }
    }
}

/// What so many of a thousand durations did not exceed, nanoseconds.
fn percentile(counts: &[u64; BUCKETS], per_mille: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let rank = (u128::from(all) * u128::from(per_mille)).div_ceil(1000) as u64;
    let mut seen = 0;
    let reaches = |&count: &u64| {
        seen += count;
        seen >= rank
    };
    let bucket = counts.iter().position(reaches);
    paranoid!(
        per_mille <= 1000 && bucket.is_some(),
        "no bucket has the one at {per_mille} of a thousand among {all}"
    );
    bucket.map_or(0, longest_in)
}

/// How long one kind of operation took since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationSummary {
    /// Its name.
    pub name: &'static str,
    /// What was timed.
    pub help: &'static str,
    /// How often.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
    /// Half of them took no longer. Percentiles are at most an eighth too long.
    pub p50: Duration,
    /// 90 of 100 took no longer.
    pub p90: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// 999 of 1,000 took no longer.
    pub p999: Duration,
    /// The longest, exactly.
    pub max: Duration,
}

/// How many operations of one kind took longer than half of `longest`, and at most that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationBucket {
    /// The operation's name.
    pub name: &'static str,
    /// The longest that is counted here; none for all that is longer.
    pub longest: Option<Duration>,
    /// How often.
    pub count: u64,
}

/// A histogram for each [`Timed`].
#[derive(Debug)]
pub(super) struct Durations {
    histograms: Box<[Histogram]>,
    slow: SlowWaits,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            histograms: DURATIONS.iter().map(|_| Histogram::new()).collect(),
            slow: SlowWaits::default(),
        }
    }
}

impl Durations {
    pub fn begin(&self, timed: Timed) -> Timing<'_> {
        Timing {
            durations: self,
            timed,
            since: Instant::now(),
        }
    }

    pub fn record(&self, timed: Timed, took: Duration) {
        let (_, name, help) = DURATIONS[timed as usize];
        self.histograms[timed as usize].record(took);
        let is_slow = self.slow.note((name, help), took);
        trace::waited((name, help), took, is_slow);
    }

    pub fn set_slow_from(&self, from: Duration) {
        self.slow.set_from(from);
    }

    pub fn slow_waits(&self) -> Vec<SlowWait> {
        self.slow.latest()
    }

    pub fn histogram(&self) -> Vec<DurationBucket> {
        let powers = |&(timed, name, _): &(Timed, &'static str, _)| {
            self.histograms[timed as usize].powers(name)
        };
        DURATIONS.iter().flat_map(powers).collect()
    }

    pub fn summaries(&self) -> Vec<DurationSummary> {
        let summary = |&(timed, name, help): &(Timed, &'static str, &'static str)| {
            self.histograms[timed as usize].summary(name, help)
        };
        DURATIONS.iter().map(summary).collect()
    }
}

/// An operation under way; its duration is recorded when this is dropped.
#[must_use = "dropped at once it records nothing that took time"]
#[derive(Debug)]
pub struct Timing<'c> {
    durations: &'c Durations,
    timed: Timed,
    since: Instant,
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.durations.record(self.timed, self.since.elapsed());
    }
}

mod slow;
#[cfg(test)]
mod tests;

pub use slow::SlowWait;
use slow::SlowWaits;
