//! `bench recovery` and `bench open`: how long a database takes to open, after a kill and after a
//! close.
//!
//! | file | subject |
//! |---|---|
//! | `child` | the process that writes redo log and is killed |
//! | `open` | a large database that was closed in order |

pub mod child;
pub mod open;

use super::{Common, at_least, published};
use crate::chart::{Chart, Form};
use crate::database::{open_or_create, parse_size};
use crate::failure::{Failure, Result};
use crate::output::{Output, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::{clients, memory};
use clap::Args;
use inkstone::{Options, Recovered};
use std::path::Path;
use std::time::Instant;

/// Arguments of `bench recovery`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Recovery from so much redo log: a child process updates random rows of a table of 120-byte values until recovery \\
would have to read so much log, and is killed in the middle (SIGKILL). The database is opened then; seconds is how \\
long that took, from the call until transactions can begin. log_bytes is what recovery read, mib_per_s is that \\
over seconds. What the child wrote and the operating system holds is made durable and forgotten first, as after \\
every kill: that time counts.

The log may be four times --redo, and the buffer pool holds the table: so no checkpoint takes the work away \\
before the kill.")]
pub struct Recovery {
    /// Bytes of log that recovery has to read, at least
    #[arg(long, default_value = "1g", value_name = "BYTES", value_parser = parse_size)]
    redo: u64,
    /// Rows of the table
    #[arg(long, default_value = "4000000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Clients of the child process
    #[arg(long, default_value_t = 4, value_name = "N")]
    clients: u64,
    /// Times that a process is killed and the database opened
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

/// Bytes of a row's value.
const VALUE: usize = 120;
/// The table that is filled, updated, opened.
const TABLE: &str = "t";

pub fn run(arguments: &Recovery, output: &Output) -> Result<()> {
    at_least("redo", arguments.redo, 1)?;
    at_least("rows", arguments.rows, 1)?;
    at_least("clients", arguments.clients, 1)?;
    at_least("rounds", arguments.rounds, 1)?;
    let columns = [
        "round",
        "log_bytes",
        "seconds",
        "mib_per_s",
        "scan_s",
        "apply_s",
        "records",
        "pages_applied",
        "losers",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("recovery")?;
    let directory = work.path().join("database");
    let options = arguments.common.engine.over(Options {
        log_file_size: (4 * arguments.redo).max(64 << 20),
        buffer_pool_dump_at_shutdown: false,
        ..published()
    })?;
    let db = open_or_create(&directory, options.clone())?;
    let table = db.create_table(TABLE, &[])?;
    let bar = progress::bar("filling the table", arguments.rows);
    clients::fill(&db, &table, arguments.rows, VALUE, &bar)?;
    bar.finish_and_clear();
    drop(table);
    db.close()?;
    for round in 1..=arguments.rounds {
        child::run_and_kill(arguments, &options, &directory)?;
        sink.take(one(arguments, round, &options, &directory)?);
    }
    sink.finish(&Chart {
        title: "Recovery after a kill",
        by: &["round"],
        form: Form::Bars {
            values: &["seconds", "scan_s", "apply_s"],
            unit: "seconds",
        },
    })
}

/// Opens what the killed process left.
fn one(arguments: &Recovery, round: u64, options: &Options, directory: &Path) -> Result<Fields> {
    memory::forget_peak();
    let begin = Instant::now();
    let db = open_or_create(directory, options.clone())?;
    let seconds = begin.elapsed().as_secs_f64();
    let Recovered {
        redo,
        losers,
        rows_undone,
        torn_pages_repaired,
        ..
    } =
        db.open_report().recovered.clone().ok_or_else(|| {
            Failure::Check("the killed process left nothing to recover".to_owned())
        })?;
    let log = redo.bytes_scanned;
    let fields = Fields::of("recovery")
        .with("round", round)
        .with("rows", arguments.rows)
        .with("clients", arguments.clients)
        .with("log_bytes", log)
        .with("seconds", rounded(seconds, 3))
        .with(
            "mib_per_s",
            rounded(log as f64 / f64::from(1 << 20) / seconds, 1),
        )
        .with("scan_s", redo.scan_ms as f64 / 1000.0)
        .with("apply_s", redo.apply_ms as f64 / 1000.0)
        .with("batches", redo.batches)
        .with("records", redo.records)
        .with("records_applied", redo.records_applied)
        .with("pages_applied", redo.pages_applied)
        .with("pages_read", redo.pages_read)
        .with("torn_pages_repaired", torn_pages_repaired)
        .with("losers", losers)
        .with("rows_undone", rows_undone);
    let fields = memory::describe(fields, options);
    db.close()?;
    Ok(fields)
}
