//! What is measured: loads, their sizes, and what a run gives.

use serde_json::{Map, Value};

/// Threads that update.
pub const CLIENTS: u32 = 16;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Data of half the buffer pool.
    Memory,
    /// Data of more than five times the buffer pool.
    Larger,
}

impl Load {
    pub fn name(self) -> &'static str {
        match self {
            Load::Memory => "memory",
            Load::Larger => "larger",
        }
    }
}

/// What runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    /// `inkstone bench`
    Inkstone,
    /// sysbench on InnoDB in a MariaDB server
    Innodb,
}

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Program::Inkstone => "inkstone",
            Program::Innodb => "innodb-sql",
        }
    }
}

/// What both programs have in common.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub pool_bytes: u64,
    pub log_bytes: u64,
    /// Of a run, behind its warm-up.
    pub seconds: u64,
}

/// The least that InnoDB and Inkstone both take.
const LOG_BYTES_MIN: u64 = 4 << 20;

impl Sizes {
    /// A log that comes round within a run, so that pages are flushed while data is in memory.
    pub fn of(pool_bytes: u64, seconds: u64) -> Self {
        Self {
            pool_bytes,
            log_bytes: (pool_bytes / 8).max(LOG_BYTES_MIN),
            seconds,
        }
    }

    /// Seconds that do not count, before a run.
    pub fn warm_up(self) -> u64 {
        (self.seconds / 2).max(1)
    }

    /// Bytes of rows; for the larger load half a pool above what `bench update` demands.
    pub fn data_bytes(self, load: Load) -> u64 {
        match load {
            Load::Memory => self.pool_bytes / 2,
            Load::Larger => self.pool_bytes * 11 / 2,
        }
    }
}

/// What a run gives.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub updates_per_s: f64,
    /// Of runs of two seconds and more.
    pub worst_over_median: Option<f64>,
    pub device_bytes_per_update: Option<f64>,
    /// What the engine says that it wrote for each update, by class of file.
    pub written: Vec<(String, f64)>,
}

impl Run {
    pub fn own_bytes_per_update(&self) -> f64 {
        self.written.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The bytes of one class of file.
    pub fn written_to(&self, class: &str) -> f64 {
        let found = self.written.iter().find(|(name, _)| name == class);
        found.map_or(0.0, |(_, bytes)| *bytes)
    }
}

/// Bytes by class of file, as `inkstone bench` prints them.
pub fn classes(object: &Map<String, Value>) -> Vec<(String, f64)> {
    let class = |(name, value): (&String, &Value)| Some((name.clone(), value.as_f64()?));
    object.iter().filter_map(class).collect()
}
