//! The work that every store does, and how it is measured.

use crate::store::{Client, Key, Open, Result, Settings, Store};
use clap::{Args, ValueEnum};
use inkstone_bench::clients;
use inkstone_bench::random::Random;
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::Instant;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Updates of one row, each a durable commit, in memory
    Commit,
    /// The same without waiting for the device
    Relaxed,
    /// Loading rows of 1,000 bytes in one transaction, until all is in the data files
    WideLoad,
    /// Loading rows of 8 bytes in one transaction
    NarrowLoad,
    /// Point reads in memory
    PointReads,
    /// Scans of 100 rows in memory
    Scans,
    /// Updates without waiting for the device, of data five times the cache and more than memory
    UpdateLarge,
}

impl fmt::Display for Workload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => formatter.write_str(value.get_name()),
            None => Err(fmt::Error),
        }
    }
}

/// Sizes of the workloads.
#[derive(Args, Clone, Debug)]
pub struct Sizes {
    /// Rows of 120 bytes of commit, relaxed, point-reads and scans
    #[arg(long, default_value_t = 800_000)]
    pub rows: u64,
    /// Rows of 1,000 bytes of wide-load
    #[arg(long, default_value_t = 500_000)]
    pub wide_rows: u64,
    /// Rows of 8 bytes of narrow-load
    #[arg(long, default_value_t = 2_097_152)]
    pub narrow_rows: u64,
    /// Rows of 120 bytes of update-large; its cache is a fifth of their bytes
    #[arg(long, default_value_t = 8_000_000)]
    pub large_rows: u64,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Bytes of cache where the data fits in it
    #[arg(long, default_value_t = 1 << 30)]
    pub cache_bytes: usize,
    /// Threads of commit
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    pub clients: Vec<usize>,
    /// Do not limit the memory of update-large (then the page cache hides the device)
    #[arg(long)]
    pub unconfined: bool,
}

impl Sizes {
    /// The arguments that give these sizes.
    pub fn to_arguments(&self) -> Vec<String> {
        let clients: Vec<_> = self.clients.iter().map(usize::to_string).collect();
        let mut arguments = vec![
            format!("--rows={}", self.rows),
            format!("--wide-rows={}", self.wide_rows),
            format!("--narrow-rows={}", self.narrow_rows),
            format!("--large-rows={}", self.large_rows),
            format!("--seconds={}", self.seconds),
            format!("--cache-bytes={}", self.cache_bytes),
            format!("--clients={}", clients.join(",")),
        ];
        arguments.extend(self.unconfined.then(|| "--unconfined".to_owned()));
        arguments
    }

    fn large_cache(&self) -> usize {
        (self.large_rows as usize * VALUE_BYTES / 5).max(16 << 20)
    }
}

/// Bytes of a value, of a wide and of a narrow one.
const VALUE_BYTES: usize = 120;
const WIDE_BYTES: usize = 1000;
const NARROW_BYTES: usize = 8;
/// What a process may need beside its cache.
const MEMORY_BESIDE_CACHE: u64 = 256 << 20;
/// Rows of a scan.
const SCAN_ROWS: usize = 100;
/// Reads between two looks at the clock.
const READ_BATCH: usize = 64;

impl Workload {
    /// What the rate counts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Commit => "durable commits a second",
            Self::Relaxed => "commits a second, not waiting for the device",
            Self::WideLoad | Self::NarrowLoad => "rows a second",
            Self::PointReads => "reads a second",
            Self::Scans => "scans of 100 rows a second",
            Self::UpdateLarge => "updates a second, data larger than memory",
        }
    }

    /// Bytes of memory that the process may use, page cache included.
    pub fn memory_limit(self, sizes: &Sizes) -> Option<u64> {
        (self == Self::UpdateLarge && !sizes.unconfined)
            .then(|| sizes.large_cache() as u64 + MEMORY_BESIDE_CACHE)
    }
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Place among the cases of the workload.
    pub order: usize,
    pub case: String,
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Bytes written to all devices of the machine meanwhile, for each operation.
    pub device_bytes_per_operation: f64,
}

impl Measurement {
    pub fn to_json(&self, store: &str, workload: Workload) -> Value {
        json!({
            "workload": workload.to_string(), "store": store, "order": self.order, "case": self.case,
            "rate": self.rate, "p50_us": self.p50_us, "p99_us": self.p99_us,
            "device_bytes_per_operation": self.device_bytes_per_operation,
        })
    }

    pub fn from_json(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line)?;
        let number = |name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            order: value["order"].as_u64().unwrap_or(0) as usize,
            case: value["case"].as_str().unwrap_or("?").to_owned(),
            rate: number("rate"),
            p50_us: number("p50_us"),
            p99_us: number("p99_us"),
            device_bytes_per_operation: number("device_bytes_per_operation"),
        })
    }
}

/// Runs a workload on a fresh store.
pub fn run(
    workload: Workload,
    open: Open,
    directory: &Path,
    sizes: &Sizes,
    mut tell: impl FnMut(Measurement),
) -> Result<()> {
    let settings = |durable, clients| Settings {
        cache_bytes: sizes.cache_bytes,
        durable,
        clients,
    };
    match workload {
        Workload::Commit | Workload::Relaxed => {
            let durable = workload == Workload::Commit;
            for (order, &clients) in sizes.clients.iter().enumerate() {
                let directory = directory.join(clients.to_string());
                std::fs::create_dir(&directory)?;
                let store = open(&directory, settings(durable, clients))?;
                fill(&*store, sizes.rows)?;
                warm(&*store, sizes.rows)?;
                let case = format!("{clients} clients");
                let run = Run {
                    order,
                    case,
                    clients,
                    seconds: sizes.seconds,
                };
                tell(run.measure(&*store, updates(sizes.rows))?);
            }
        }
        Workload::WideLoad | Workload::NarrowLoad => {
            let (rows, bytes) = match workload {
                Workload::WideLoad => (sizes.wide_rows, WIDE_BYTES),
                _ => (sizes.narrow_rows, NARROW_BYTES),
            };
            let store = open(directory, settings(true, 1))?;
            let (begin, written) = (Instant::now(), device_bytes());
            store.load(&mut generate(0..rows, bytes))?;
            let committed = begin.elapsed();
            if workload == Workload::WideLoad {
                store.settle()?;
            }
            let seconds = begin.elapsed().as_secs_f64();
            tell(Measurement {
                order: 0,
                case: "load".to_owned(),
                rate: rows as f64 / seconds,
                p50_us: committed.as_micros() as f64,
                p99_us: f64::NAN,
                device_bytes_per_operation: (device_bytes() - written) / rows as f64,
            });
        }
        Workload::PointReads | Workload::Scans => {
            let store = open(directory, settings(true, 2))?;
            fill(&*store, sizes.rows)?;
            warm(&*store, sizes.rows)?;
            for (order, clients) in [1, 2].into_iter().enumerate() {
                let case = format!("{clients} threads");
                let run = Run {
                    order,
                    case,
                    clients,
                    seconds: sizes.seconds,
                };
                tell(match workload {
                    Workload::PointReads => run.measure(&*store, reads(sizes.rows))?,
                    _ => run.measure(&*store, scans(sizes.rows))?,
                });
            }
        }
        Workload::UpdateLarge => {
            let mut settings = settings(false, 8);
            settings.cache_bytes = sizes.large_cache();
            let store = open(directory, settings)?;
            fill(&*store, sizes.large_rows)?;
            let case = "8 clients".to_owned();
            let run = Run {
                order: 0,
                case,
                clients: 8,
                seconds: sizes.seconds,
            };
            tell(run.measure(&*store, updates(sizes.large_rows))?);
        }
    }
    Ok(())
}

/// Rows of a transaction of [`fill`].
const FILL_ROWS: u64 = 100_000;

fn fill(store: &dyn Store, rows: u64) -> Result<()> {
    let mut from = 0;
    while from < rows {
        let to = (from + FILL_ROWS).min(rows);
        store.load(&mut generate(from..to, VALUE_BYTES))?;
        from = to;
    }
    store.settle()
}

/// Reads every row once: a store that bypasses the page cache has what it loaded in no cache.
fn warm(store: &dyn Store, rows: u64) -> Result<()> {
    let mut client = store.client()?;
    for from in (0..rows).step_by(SCAN_ROWS) {
        client.scan(from.to_be_bytes(), SCAN_ROWS)?;
    }
    Ok(())
}

/// Rows with random text.
fn generate(rows: std::ops::Range<u64>, bytes: usize) -> impl Iterator<Item = (Key, Vec<u8>)> {
    let mut random = Random::new(rows.start + 1);
    rows.map(move |n| (n.to_be_bytes(), text(&mut random, bytes)))
}

/// Something that a client does over and over; how often it did it.
type Operation = Box<dyn Fn(&mut dyn Client, &mut Random) -> Result<usize> + Sync>;

fn updates(rows: u64) -> Operation {
    Box::new(move |client, random| {
        let key = random.below(rows).to_be_bytes();
        client.update(key, &text(random, VALUE_BYTES))?;
        Ok(1)
    })
}

fn reads(rows: u64) -> Operation {
    Box::new(move |client, random| {
        for _ in 0..READ_BATCH {
            let found = client.get(random.below(rows).to_be_bytes())?;
            if found != Some(VALUE_BYTES) {
                return Err(format!("a row that was loaded reads as {found:?} bytes").into());
            }
        }
        Ok(READ_BATCH)
    })
}

fn scans(rows: u64) -> Operation {
    Box::new(move |client, random| {
        let from = random.below(rows - SCAN_ROWS as u64);
        let found = client.scan(from.to_be_bytes(), SCAN_ROWS)?;
        if found != (SCAN_ROWS * VALUE_BYTES, SCAN_ROWS) {
            return Err(format!("a scan found {found:?} bytes and rows").into());
        }
        Ok(1)
    })
}

struct Run {
    order: usize,
    case: String,
    clients: usize,
    seconds: f64,
}

impl Run {
    fn measure(self, store: &dyn Store, operation: Operation) -> Result<Measurement> {
        let written = device_bytes();
        let run = clients::measure(
            self.clients as u64,
            self.seconds,
            |random| -> Result<_> { Ok((store.client()?, random)) },
            |(client, random)| -> Result<u64> { Ok(operation(&mut **client, random)? as u64) },
        )?;
        let written = device_bytes() - written;
        Ok(Measurement {
            order: self.order,
            case: self.case,
            rate: run.per_second(),
            p50_us: run.quantile_us(0.5),
            p99_us: run.quantile_us(0.99),
            device_bytes_per_operation: written / run.operations as f64,
        })
    }
}

/// Bytes that all whole devices have been given so far: sectors of 512 bytes in `/proc/diskstats`.
fn device_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let written = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Partitions and loop devices would count the same bytes again.
        let whole = Path::new("/sys/block").join(fields.get(2)?).is_dir();
        let own = whole && !fields[2].starts_with("loop");
        own.then(|| fields.get(9)?.parse::<f64>().ok()).flatten()
    });
    written.sum::<f64>() * 512.0
}

fn text(random: &mut Random, bytes: usize) -> Vec<u8> {
    let mut text = vec![0; bytes];
    random.fill_text(&mut text);
    text
}
