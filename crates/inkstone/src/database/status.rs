//! What one can watch of an open database: the [counters and durations](crate::counters), and the
//! gauges, which stand in one table here.

use super::{Database, Inner, SnapshotView};
use crate::buffer::BufferStatus;
use crate::counters::{COUNTERS, DurationBucket, DurationSummary, SlowWait};
use crate::log::LogStat;
use crate::mvcc::versions::VersionStats;
use crate::paranoid::paranoid;
use crate::recovery::RedoStat;
use std::fmt::Write;

/// What gauges show: one look at each part, so that values of one part fit together.
struct Now {
    log: LogStat,
    checkpoint_age: u64,
    pool: BufferStatus,
    versions: VersionStats,
    log_kept: u64,
    undo_file_bytes: u64,
    undo_file_size: u64,
    undo_recovered: u64,
    redo_left: RedoStat,
    table_files_open: usize,
    active_transactions: usize,
    /// Row locks and range locks.
    locks: (usize, usize),
    lock_waiting: usize,
}

impl Now {
    fn of(db: &Inner) -> Self {
        Self {
            log: db.core.storage.log.stat(),
            checkpoint_age: db.checkpoint_age(),
            pool: db.core.storage.pool.status(),
            versions: db.core.versions.stats(),
            log_kept: db.kept_log(),
            undo_file_bytes: db.core.versions.undo_file_bytes(),
            undo_file_size: db.core.versions.undo_file_length(),
            undo_recovered: db.core.changes_to_undo(),
            redo_left: db.redo_left(),
            table_files_open: db.files.open_files().count(),
            active_transactions: db.core.trxs.active_count(),
            locks: db.core.locks.counts(),
            lock_waiting: db.core.locks.graph().waiting(),
        }
    }
}

/// A value that goes up and down.
struct Gauge {
    name: &'static str,
    help: &'static str,
    read: fn(&Now) -> u64,
}

macro_rules! gauges {
    ($($name:literal $help:literal $read:expr,)+) => {
        const GAUGES: &[Gauge] = &[$(Gauge { name: $name, help: $help, read: $read },)+];
    };
}

gauges! {
    "lsn_current" "LSN behind the last mini-transaction: bytes of log ever reserved" |now| now.log.current.0,
    "lsn_written" "LSN up to which the log was handed to the operating system" |now| now.log.written.0,
    "lsn_durable" "LSN up to which the log survives power loss" |now| now.log.durable.0,
    "checkpoint_age_bytes" "Bytes of log that recovery would read" |now| now.checkpoint_age,
    "log_kept_bytes" "Bytes of log that recovery would scan, for transactions and contexts too" |now| now.log_kept,
    "log_segments" "Files of the log, spare ones with them" |now| now.log.segments as u64,
    "buffer_pool_frames" "Pages that the buffer pool has room for" |now| now.pool.frames as u64,
    "buffer_pool_free" "Frames that hold no page" |now| now.pool.free as u64,
    "buffer_pool_dirty" "Pages that are newer in memory than on disk" |now| now.pool.dirty as u64,
    "buffer_pool_refused" "Of those, pages whose last write failed: they are tried again, and no checkpoint passes them" |now| now.pool.refused as u64,
    "table_files_open" "Files of tables that are open" |now| now.table_files_open as u64,
    "active_transactions" "Transactions that have begun and not ended, prepared ones with them" |now| now.active_transactions as u64,
    "version_store_bytes" "Bytes of old versions in memory" |now| now.versions.memory_bytes,
    "version_store_spilled_bytes" "Bytes of old versions in the spill file" |now| now.versions.spilled_bytes,
    "undo_file_bytes" "Bytes of the undo file in use, for large and old transactions" |now| now.undo_file_bytes,
    "undo_file_size_bytes" "Bytes of the undo file, with what is free in it" |now| now.undo_file_size,
    "undo_recovered_changes" "Changes of an earlier run that are still to be undone, about" |now| now.undo_recovered,
    "redo_pages_left" "Pages that recovery has still to redo: a reader of one does it at once" |now| now.redo_left.pages,
    "redo_bytes_left" "Bytes of changes of those pages" |now| now.redo_left.bytes,
    "lock_waiting" "Transactions that wait for a row or range lock right now" |now| now.lock_waiting as u64,
    "row_locks" "Explicit row locks that are held or waited for" |now| now.locks.0 as u64,
    "range_locks" "Range locks that are held or waited for" |now| now.locks.1 as u64,
}

/// A counter or gauge, with its value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it counts or shows.
    pub help: &'static str,
    /// Its value.
    pub value: u64,
    /// Whether it goes up and down, or only grows.
    pub is_gauge: bool,
}

/// A gauge that is shown with its value.
fn gauge(name: &'static str, help: &'static str, value: u64) -> Metric {
    Metric {
        name,
        help,
        value,
        is_gauge: true,
    }
}

impl Database {
    /// Every counter since this open, then the gauges, each with its description. In a forked child
    /// the gauges are left out, and the counters stand still.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.counters_and_gauges();
        if !self.is_forked() {
            metrics.extend(self.snapshot_gauges());
        }
        metrics
    }

    /// What keeps old versions: [`Database::snapshots`] says which transactions and threads.
    fn snapshot_gauges(&self) -> [Metric; 4] {
        let snapshots = self.snapshots();
        let count = |of: &dyn Fn(&SnapshotView) -> bool| {
            let counted = snapshots.iter().filter(|snapshot| of(snapshot));
            counted.map(|snapshot| u64::from(snapshot.count)).sum()
        };
        let oldest = snapshots.first();
        [
            gauge(
                "snapshots",
                "Snapshots in force, of transactions and cursors",
                count(&|_| true),
            ),
            gauge(
                "snapshots_left_over",
                "Of those, snapshots of cursors whose transaction is over",
                count(&|snapshot| snapshot.is_left_over),
            ),
            gauge(
                "oldest_snapshot_age_ms",
                "Milliseconds since the transaction began that took the oldest snapshot in force",
                oldest.map_or(0, |oldest| oldest.age.as_millis() as u64),
            ),
            gauge(
                "oldest_snapshot_commits",
                "Transactions that have committed since the oldest snapshot in force was taken",
                oldest.map_or(0, |oldest| oldest.commits_since),
            ),
        ]
    }

    fn counters_and_gauges(&self) -> Vec<Metric> {
        let counters = &self.inner.core.storage.counters;
        let now = (!self.is_forked()).then(|| Now::of(&self.inner));
        let counted = COUNTERS.iter().map(|&(counter, name, help)| Metric {
            name,
            help,
            value: counters.get(counter),
            is_gauge: false,
        });
        let shown = now.iter().flat_map(|now| {
            let shown = GAUGES.iter();
            shown.map(|of| gauge(of.name, of.help, (of.read)(now)))
        });
        counted.chain(shown).collect()
    }

    /// Every counter since this open, then the gauges, by name, without those of snapshots.
    pub fn status(&self) -> Vec<(&'static str, u64)> {
        let metrics = self.counters_and_gauges().into_iter();
        metrics.map(|metric| (metric.name, metric.value)).collect()
    }

    /// How long threads waited for devices and for each other since this open: for each kind of
    /// operation how often, the sum, percentiles and the longest. When commits are slow, the kinds
    /// whose percentiles are as high say why.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("db");
    /// let db = inkstone::Database::open(&path, inkstone::Options::default())?;
    /// db.create_table("t", &[])?;
    /// let durations = db.durations();
    /// let writes = durations.iter().find(|d| d.name == "log_write").unwrap();
    /// assert!(writes.count > 0 && writes.p50 <= writes.p99 && writes.p99 <= writes.max);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durations(&self) -> Vec<DurationSummary> {
        self.inner.core.storage.counters.durations()
    }

    /// How many operations of each kind took how long: those of [`Database::durations`] by powers
    /// of two, as far as there were any.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("db");
    /// let db = inkstone::Database::open(&path, inkstone::Options::default())?;
    /// let writes = db.durations().into_iter().find(|d| d.name == "log_write").unwrap();
    /// let histogram = db.duration_histogram();
    /// let counts = histogram.iter().filter(|b| b.name == "log_write").map(|b| b.count);
    /// assert!(counts.sum::<u64>() >= writes.count);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn duration_histogram(&self) -> Vec<DurationBucket> {
        self.inner.core.storage.counters.duration_histogram()
    }

    /// The latest 64 waits of `slow_wait_ms` and longer since this open, the last one last: for the
    /// disk, for room, or for a lock, of a statement, a commit, or a thread of the engine. With the
    /// feature `tracing` each is an event at level WARN as well.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # use std::time::Duration;
    /// let options = Options { slow_wait_ms: 20, ..Options::default() };
    /// let db = Database::in_memory(options)?;
    /// let table = db.create_table("t", &[])?;
    /// let first = db.begin(Isolation::ReadCommitted)?;
    /// first.insert(&table, b"key", b"one")?;
    /// let second = db.begin(Isolation::ReadCommitted)?;
    /// second.set_lock_wait_timeout(Duration::from_millis(50));
    /// assert!(second.upsert(&table, b"key", b"two").is_err());
    /// let waits = db.slow_waits();
    /// let lock = waits.iter().rfind(|wait| wait.name == "row_lock_wait").unwrap();
    /// assert!(lock.took >= Duration::from_millis(50));
    /// # first.rollback()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn slow_waits(&self) -> Vec<SlowWait> {
        self.inner.core.storage.counters.slow_waits()
    }

    /// [`Database::metrics`] and [`Database::durations`] in the text format that Prometheus reads:
    /// each value with its description and type, names prefixed with `inkstone_`, counters ending
    /// in `_total`, durations as summaries in seconds, the longest of each as a gauge ending in
    /// `_seconds_max`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("db");
    /// let db = inkstone::Database::open(&path, inkstone::Options::default())?;
    /// let text = db.prometheus();
    /// assert!(text.contains("# TYPE inkstone_commits_total counter\n"));
    /// assert!(text.contains("# TYPE inkstone_buffer_pool_dirty gauge\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        for metric in self.metrics() {
            let Metric {
                name, help, value, ..
            } = metric;
            if metric.is_gauge {
                put_metric(&mut text, name, help, "gauge", value);
            } else {
                put_metric(&mut text, &format!("{name}_total"), help, "counter", value);
            }
        }
        for duration in self.durations() {
            put_duration(&mut text, &duration);
        }
        text
    }
}

fn put_metric(text: &mut String, name: &str, help: &str, kind: &str, value: u64) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "# HELP inkstone_{name} {help}\n# TYPE inkstone_{name} {kind}\ninkstone_{name} {value}"
    );
}

fn put_duration(text: &mut String, duration: &DurationSummary) {
    let DurationSummary { help, .. } = duration;
    let name = format!("inkstone_{}_seconds", duration.name);
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} summary");
    let quantiles = [
        ("0.5", duration.p50),
        ("0.9", duration.p90),
        ("0.99", duration.p99),
        ("0.999", duration.p999),
    ];
    paranoid!(
        quantiles.is_sorted_by(|a, b| a.1 <= b.1) && duration.p999 <= duration.max,
        "the quantiles of {name} do not grow: {duration:?}"
    );
    for (quantile, value) in quantiles {
        let value = value.as_secs_f64();
        let _ = writeln!(text, "{name}{{quantile=\"{quantile}\"}} {value}");
    }
    let (sum, max) = (duration.sum.as_secs_f64(), duration.max.as_secs_f64());
    let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {}", duration.count);
    let _ = writeln!(
        text,
        "# HELP {name}_max The longest: {help}\n# TYPE {name}_max gauge\n{name}_max {max}"
    );
}
