//! The account of the engine that SHOW ENGINE STATUS prints.

use inkstone::{Database, LockMode, LockState, LockView, Result};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Transactions that are listed, at most.
const TRANSACTIONS_SHOWN: usize = 100;
/// Waits that are listed, at most: the longest.
const WAITS_SHOWN: usize = 100;

/// What stands in each section: a heading, and sentences with the names of metrics in braces.
const SECTIONS: &[(&str, &[&str])] = &[
    (
        "LOG",
        &[
            "Log sequence number {lsn_current}, written up to {lsn_written}, durable up to {lsn_durable}",
            "Checkpoint age {checkpoint_age_bytes} bytes, {checkpoints} checkpoints, {log_segments} log files",
            "{log_mini_transactions} mini-transactions, {log_bytes} bytes; {log_write_calls} writes, {log_syncs} syncs",
            "{log_waits} waits for the log buffer, {checkpoint_waits} slowed down by checkpoint age",
        ],
    ),
    (
        "BUFFER POOL",
        &[
            "Frames {buffer_pool_frames}, free {buffer_pool_free}, dirty {buffer_pool_dirty}",
            "{buffer_read_requests} page accesses, {pages_read} pages read, {buffer_evictions} evictions, {buffer_frame_waits} waits for a free frame",
        ],
    ),
    (
        "PAGE CLEANER AND FILE I/O",
        &[
            "{pages_written} pages written in {data_write_calls} calls, {data_syncs} syncs",
            "Doublewrite: {doublewrite_pages} pages in {doublewrite_write_calls} calls, {doublewrite_syncs} syncs; {doublewrite_skipped} fresh pages needed none",
        ],
    ),
    (
        "ROW OPERATIONS",
        &[
            "{rows_inserted} inserted, {rows_updated} updated, {rows_deleted} deleted, {rows_read} read, {rows_purged} purged",
            "{leaf_splits} leaf splits, {page_merges} page merges",
            "Old versions: {version_store_bytes} bytes in memory, {version_store_spilled_bytes} spilled",
            "Undo file: {undo_file_size_bytes} bytes, {undo_file_bytes} in use, {undo_file_bytes_given_back} given back",
        ],
    ),
    (
        "LOCKS",
        &[
            "{row_locks} explicit row locks, {range_locks} range locks",
            "{lock_waits} waits, {lock_timeouts} timeouts, {deadlocks} deadlocks; {lock_waiting} wait right now",
        ],
    ),
];

pub fn text(database: &Database) -> Result<String> {
    let metrics: BTreeMap<&str, u64> = database
        .metrics()
        .iter()
        .map(|metric| (metric.name, metric.value))
        .collect();
    let mut text = String::new();
    for (heading, sentences) in SECTIONS {
        put_heading(&mut text, heading);
        for sentence in *sentences {
            text.push_str(&filled(sentence, &metrics));
            text.push('\n');
        }
    }
    put_lock_wait_histogram(&mut text, database);
    put_heading(&mut text, "LOCK WAITS");
    put_lock_waits(&mut text, &database.lock_waits()?);
    put_heading(&mut text, "DURATIONS");
    put_durations(&mut text, database);
    put_heading(&mut text, "SLOW WAITS");
    put_slow_waits(&mut text, database);
    if let Some(deadlock) = database.latest_deadlock() {
        put_heading(&mut text, "LATEST DEADLOCK");
        text.push_str(&deadlock);
        text.push('\n');
    }
    put_heading(&mut text, "TRANSACTIONS");
    put_transactions(&mut text, database);
    Ok(text)
}

/// The latest ones, the last one last.
fn put_slow_waits(text: &mut String, database: &Database) {
    for wait in database.slow_waits() {
        let _ = writeln!(
            text,
            "{:.3} s ago, {:.3} s, {}, {}: {}",
            wait.ago.as_secs_f64(),
            wait.took.as_secs_f64(),
            wait.thread.as_deref().unwrap_or("a thread without a name"),
            wait.name,
            wait.reason
        );
    }
}

fn put_heading(text: &mut String, heading: &str) {
    let line = "-".repeat(heading.len());
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}\n{heading}\n{line}");
}

/// A sentence with the values of the metrics that it names.
fn filled(sentence: &str, metrics: &BTreeMap<&str, u64>) -> String {
    let mut parts = sentence.split(['{', '}']);
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let (Some(name), Some(after)) = (parts.next(), parts.next()) {
        let value = metrics.get(name).map(u64::to_string);
        text.push_str(value.as_deref().unwrap_or(name));
        text.push_str(after);
    }
    text
}

/// A line for each kind of operation that there was, microseconds.
fn put_durations(text: &mut String, database: &Database) {
    let _ = writeln!(
        text,
        "Microseconds: {:<20}{:>12}{:>14}{:>11}{:>11}{:>11}{:>11}{:>11}",
        "", "count", "sum", "p50", "p90", "p99", "p99.9", "max"
    );
    for duration in database.durations() {
        let [sum, p50, p90, p99, p999, max] = [
            duration.sum,
            duration.p50,
            duration.p90,
            duration.p99,
            duration.p999,
            duration.max,
        ]
        .map(|time| time.as_micros());
        let _ = writeln!(
            text,
            "{:<34}{:>12}{sum:>14}{p50:>11}{p90:>11}{p99:>11}{p999:>11}{max:>11}",
            duration.name, duration.count
        );
    }
}

/// How many waits for locks took how long, microseconds.
fn put_lock_wait_histogram(text: &mut String, database: &Database) {
    let histogram = database.duration_histogram();
    for bucket in histogram.iter().filter(|b| b.name == "row_lock_wait") {
        let _ = match bucket.longest {
            Some(longest) => writeln!(
                text,
                "  {:>12} that took up to {} us",
                bucket.count,
                longest.as_nanos().div_ceil(1000)
            ),
            None => writeln!(text, "  {:>12} that took longer", bucket.count),
        };
    }
}

/// Which transaction waits how long for which other and for what, and in which statement; the
/// longest first.
fn put_lock_waits(text: &mut String, waits: &[LockView]) {
    let _ = writeln!(text, "{} that wait", waits.len());
    for wait in waits.iter().take(WAITS_SHOWN) {
        let LockState::Waits {
            waited,
            place,
            inserts,
            blockers,
            statement,
        } = &wait.state
        else {
            continue;
        };
        let how = match (inserts, wait.mode) {
            (true, _) => "to insert",
            (false, LockMode::Shared) => "to lock shared",
            (false, LockMode::Exclusive) => "to lock exclusive",
        };
        let blockers: Vec<String> = blockers.iter().map(u64::to_string).collect();
        let place = place.map_or("for a range".to_owned(), |place| {
            format!("place {place} in the queue")
        });
        let _ = writeln!(
            text,
            "Transaction {}, connection {}, waits for transaction {} since {} ms: {place}, {how} in {}",
            wait.transaction,
            wait.tag,
            blockers.join(" and "),
            waited.as_millis(),
            locked_place(wait)
        );
        put_statement(text, statement.as_deref());
    }
}

/// Statement locks are in no tree of their table; a tree may have been dropped.
fn locked_place(lock: &LockView) -> String {
    match (&lock.tree, &lock.table) {
        (Some(tree), Some(table)) => format!("tree {tree} of table {table}"),
        (None, Some(table)) => format!("table {table}, in none of its trees"),
        (_, None) => "a table that was dropped".to_owned(),
    }
}

/// In one line.
fn put_statement(text: &mut String, statement: Option<&str>) {
    if let Some(statement) = statement {
        let _ = writeln!(text, "  {}", statement.replace(['\n', '\r'], " "));
    }
}

fn put_transactions(text: &mut String, database: &Database) {
    let transactions = database.transactions();
    let _ = writeln!(text, "{} that have not ended", transactions.len());
    for trx in transactions.iter().take(TRANSACTIONS_SHOWN) {
        let state = if trx.prepared { "prepared" } else { "active" };
        let _ = writeln!(
            text,
            "Transaction {} ({state}, {:?}, {} s), connection {}: {} changes of {} rows, {} row locks, {} range locks",
            trx.id,
            trx.isolation,
            trx.age.as_secs(),
            trx.tag,
            trx.changes,
            trx.rows,
            trx.row_locks,
            trx.range_locks
        );
        if let Some((blocker, waited)) = trx.waits {
            let waited = waited.as_millis();
            let _ = writeln!(text, "  waits for transaction {blocker} since {waited} ms");
        }
        put_statement(text, trx.statement.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_a_sentence_is_a_metric() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path().join("db"), inkstone::Options::default());
        let database = database.unwrap();
        let names: Vec<&str> = database.metrics().iter().map(|m| m.name).collect();
        for (_, sentences) in SECTIONS {
            for sentence in *sentences {
                for name in sentence.split(['{', '}']).skip(1).step_by(2) {
                    assert!(names.contains(&name), "{name} in {sentence:?}");
                }
            }
        }
        let text = text(&database).unwrap();
        assert!(text.contains("Log sequence number ") && !text.contains('{'));
        let durations = database.durations();
        assert!(
            durations
                .iter()
                .all(|d| text.contains(&format!("\n{} ", d.name)))
        );
        assert!(text.ends_with("TRANSACTIONS\n------------\n0 that have not ended\n"));
    }
}
