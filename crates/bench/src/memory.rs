//! Resident memory against what the options allow.
//!
//! The budget is buffer pool + log buffer + version store. What a program needs besides (the stacks
//! and histograms of the clients among it) counts against the engine: the peak is of the process.

use crate::failure::Result;
use crate::output::{ratio, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::wide::{self, Fill, WIDE_VALUE_LEN, WideValues};
use inkstone::{Database, Isolation, Options};

/// Bytes that the options allow.
pub fn budget_bytes(options: &Options) -> u64 {
    options.buffer_pool_size + options.log_buffer_size + options.version_store_memory
}

/// Fills the buffer pool of a database with as many bytes of a table that is dropped then, so that
/// what follows finds its memory in place. A virtual machine whose free memory goes back to its
/// host takes seconds for the first touch of a gigabyte, which no workload is to measure.
pub fn warm(db: &Database, bytes: u64) -> Result<()> {
    const WARM: &str = "warm";
    let pool = db.options().buffer_pool_size;
    // Some room is left, or pages would be written to make more.
    let rows = bytes.min(pool - pool / 8) / (8 + WIDE_VALUE_LEN as u64);
    let table = db.create_table(WARM, &[])?;
    let bar = progress::bar("touching memory", rows);
    let transaction = db.begin(Isolation::ReadCommitted)?;
    let mut values = WideValues::new(Fill::Padding);
    for n in 0..rows {
        transaction.insert(&table, &wide::key(n), values.next())?;
        bar.inc(1);
    }
    transaction.commit()?;
    drop(table);
    db.drop_table(WARM)?;
    db.purge()?;
    bar.finish_and_clear();
    Ok(())
}

/// Lets the peak begin anew at what is resident now. Where the kernel does not allow that, the peak
/// stays that of the whole process, which is no less.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most that was resident at once (VmHWM).
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Adds peak, budget, and peak / budget.
pub fn describe(fields: Fields, options: &Options) -> Fields {
    let (peak, budget) = (peak_bytes(), budget_bytes(options));
    fields
        .with("peak_resident_bytes", peak)
        .with("memory_budget_bytes", budget)
        .with(
            "memory_ratio",
            peak.map(|peak| rounded(ratio(peak, budget), 3)),
        )
}
