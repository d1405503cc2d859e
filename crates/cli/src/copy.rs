//! `copy`: a database, to a directory of its own.

use crate::check::{opening_json, say_opening};
use crate::failure::Result;
use crate::reading::open_to_read;
use clap::Args;
use inkstone::{CheckpointOptions, CheckpointProgress};
use inkstone_bench::database::{EngineArguments, parse_size};
use inkstone_bench::output::{Output, bytes};
use inkstone_bench::progress;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `copy`.
#[derive(Args, Debug)]
#[command(long_about = "\
Copy a database to a directory that is empty or missing: open it, which recovers it if it was not closed in order, \
copy it, checking every page, and close it. The copy opens like any database.

A database that cannot be written, on a read-only mount for example, is recovered in memory, which must hold the pages \
that this changes, and copied as it is there. No process of this system can open it to change it meanwhile; one of \
another system that has the file system mounted must not.

Fails if a process has the database open: a program that has can copy it itself, beside its writers \
(`Database::checkpoint_to`). What there is of a copy that fails is removed.")]
pub struct Copy {
    /// The database's directory
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The copy's directory: empty, or missing
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Bytes a second that are copied at most, as 100M
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    rate: Option<u64>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// `inkstone copy`.
pub fn copy(arguments: &Copy, output: &Output) -> Result<()> {
    let db = open_to_read(&arguments.source, &arguments.engine.for_existing()?)?;
    let opened = db.open_report().clone();
    say_opening(&opened, output);
    let bar = progress::bytes_bar("copying", 0);
    let show = |now: CheckpointProgress| {
        bar.set_length(now.page_bytes_total);
        bar.set_position(now.page_bytes);
    };
    let mut options = CheckpointOptions::new().progress(&show);
    if let Some(rate) = arguments.rate {
        options = options.bytes_per_second(rate);
    }
    let copied = db.checkpoint_to_with(&arguments.target, &options);
    bar.finish_and_clear();
    let closed = db.close();
    let report = copied?;
    closed?;
    output.text(format!(
        "{} has {} tables, {} of pages and {} of log: the database as of LSN {}",
        arguments.target.display(),
        report.tables,
        bytes(report.page_bytes),
        bytes(report.log_bytes),
        report.end
    ));
    output.json(&json!({
        "opened": opening_json(&opened),
        "target": arguments.target,
        "tables": report.tables,
        "page_bytes": report.page_bytes,
        "log_bytes": report.log_bytes,
        "undo_bytes": report.undo_bytes,
        "checkpoint_lsn": report.checkpoint.0,
        "end_lsn": report.end.0,
    }));
    Ok(())
}
