//! The options, split into what each part needs.

use crate::buffer::PoolOptions;
use crate::database::background::UpkeepOptions;
use crate::log::LogOptions;
use crate::options::{BulkLogging, LOG_BUFFER_SIZE_MIN, MemoryBound, NewTable, Options};
use crate::paranoid::paranoid;
use crate::recovery::RedoOptions;
use crate::store::StoreOptions;
use crate::txn::core::{Losers, TransactionOptions};
use std::time::Duration;

/// The options of each part. They were checked, the page size is that of the database, and what
/// they take fits the system's limit on memory.
pub(super) struct Parts {
    pub log: LogOptions,
    pub pool: PoolOptions,
    pub store: StoreOptions,
    pub redo: RedoOptions,
    /// Bytes of old versions in memory.
    pub version_memory: u64,
    pub transactions: TransactionOptions,
    pub upkeep: UpkeepOptions,
    /// A wait of that length and longer is slow; zero: none is.
    pub slow_wait: Duration,
    /// A table that does not say otherwise.
    pub new_table: NewTable,
    /// What they were made from, for the program to see.
    pub all: Options,
    /// What was made smaller to fit the limit.
    pub memory_bound: Option<MemoryBound>,
}

impl Parts {
    /// Splits options that were checked. `page_size` must be resolved.
    pub fn split(mut all: Options, memory_limit: Option<u64>) -> Self {
        let memory_bound = all.fit_memory(memory_limit);
        paranoid!(
            all.validate().is_ok() && all.recovery_thread_count() > 0,
            "options that were checked are refused when they are split"
        );
        Self {
            log: LogOptions {
                capacity_bytes: all.log_file_size,
                buffer_bytes: ring_bytes(&all) as usize,
                buffering: all.log_file_buffering,
                write: all.log_write,
                write_through: all.log_write_through,
                archive: all.log_archive,
            },
            pool: PoolOptions {
                page_size: all.page_size as usize,
                bytes: all.buffer_pool_size as usize,
                instances: all.buffer_pool_instances as usize,
            },
            store: StoreOptions {
                page_size: all.page_size as u32,
                doublewrite: all.doublewrite,
                doublewrite_skip_fresh: all.doublewrite_skip_fresh,
                flush_method: all.flush_method,
                open_files: all.open_files,
                pool_bytes: all.buffer_pool_size,
            },
            redo: RedoOptions {
                threads: all.recovery_thread_count(),
                index_bytes_max: all.recovery_memory_bytes() as usize,
            },
            version_memory: all.version_store_memory,
            slow_wait: Duration::from_millis(all.slow_wait_ms),
            transactions: TransactionOptions {
                durability: all.flush_log_at_trx_commit,
                lock_wait_timeout: Duration::from_millis(all.lock_wait_timeout_ms),
                lock_memory_max: all.lock_memory_max,
                rows_may_be_lost: false,
                read_only: all.is_read_only(),
                bulks_leave_rows_out: all.bulk_logging == BulkLogging::Minimal && !all.log_archive,
                losers: match all.force_recovery {
                    0..=2 => Losers::RollBack,
                    3 | 4 => Losers::Leave,
                    _ => Losers::Commit,
                },
            },
            upkeep: UpkeepOptions {
                log_file_size: all.log_file_size,
                stays_warm: all.buffer_pool_dump_at_shutdown,
            },
            new_table: NewTable {
                placement: all.page_placement,
                compression: all.page_compression,
                level: all.page_compression_level,
            },
            all,
            memory_bound,
        }
    }
}

/// What is in memory alone is a part of the log: a quarter at most.
fn ring_bytes(all: &Options) -> u64 {
    let quarter = (all.log_file_size / 4).max(LOG_BUFFER_SIZE_MIN);
    let ring = all.log_buffer_size.min(1 << quarter.ilog2());
    paranoid!(
        ring.is_power_of_two() && ring >= LOG_BUFFER_SIZE_MIN,
        "a ring of {ring} bytes for a log of {}",
        all.log_file_size
    );
    ring
}
