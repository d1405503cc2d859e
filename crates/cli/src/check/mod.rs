//! `verify`, `recover`, `stat` and `options`.

mod files;
mod salvage;

pub use files::{FileReport, check_files};

use crate::failure::{Damage, Damages, Failure, Result};
use crate::reading::open_to_read;
use clap::Args;
use inkstone::internals::options::Doublewrite;
use inkstone::{Database, DurationSummary, Error, OpenReport, TableReport};
use inkstone_bench::database::{EngineArguments, open_existing, open_on, require, vfs};
use inkstone_bench::output::{Output, TextTable, bytes, count};
use inkstone_bench::progress;
use inkstone_io::overlay::OverlayVfs;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `verify`.
#[derive(Args, Debug)]
#[command(long_about = "\
Check a database without writing a byte to it: the structure of every tree (order, fences, levels), that \
every page in use is allocated exactly once and every allocated page is in use; then every page in \
its files: checksum, identity, structure, and that it is not older than the page LSN map says.

If the database was not closed in order, recovery runs in memory, which must hold the pages that it \
changes, and what is checked is what an opening would find; `recover` does the same on disk. A read-only mount \
will do. Fails if a process has the database open. Exits with 1 and names file, page and byte if \
anything is corrupt.")]
pub struct Verify {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Arguments of `recover`.
#[derive(Args, Debug)]
#[command(long_about = "\
Open a database, which recovers it if it was not closed in order, say what recovery found and did, \
and close it in order: the next open has nothing to recover.

Recovery may be interrupted at any point and begun again. It writes: on a read-only mount it fails (`verify`, `stat` \
and `copy` recover in memory there).

With --salvage, for a database with damaged pages or undo: what can be read of it is made a database that opens, and \
what is left out is named. That happens in memory, and nothing on disk is changed, unless --write is given, too: take \
a copy of the directory first. Files without damage stay as they are; in the others, what was in damaged pages is \
gone: rows of leaves, long values; inner nodes and maps are made anew. A table whose definition was lost is called \
!salvaged-N. If rows of a prepared transaction are lost, all prepared ones are rolled back. Where the file `undo` is \
missing or damaged, what it has of unfinished transactions is undone as far as it can be read, and their other changes \
stay. A damaged log is not salvaged.")]
pub struct Recover {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Say what can be salvaged of a database with damaged pages, and what is left out
    #[arg(long)]
    salvage: bool,
    /// Do so on disk
    #[arg(long, requires = "salvage")]
    write: bool,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Arguments of `stat`.
#[derive(Args, Debug)]
#[command(long_about = "\
Open a database (which recovers it if it was not closed in order) and show statistics of its tables \
(estimates from a few page visits; `verify` counts exactly), status counters and durations since this \
open, and the options in force. A database that cannot be written, on a read-only mount for example, is recovered in \
memory.")]
pub struct Stat {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print the status counters and durations only, as text that Prometheus reads
    #[arg(long)]
    prometheus: bool,
    #[command(flatten)]
    engine: EngineArguments,
}

/// `inkstone verify`.
pub fn verify(arguments: &Verify, output: &Output) -> Result<()> {
    // Corruption that a check was to find makes it fail; other errors stay what they are.
    verify_all(arguments, output).map_err(|failure| match failure {
        Failure::Engine(error @ Error::Corrupt { .. }) => Failure::Corrupt(Damage {
            first: error,
            others: Vec::new(),
        }),
        other => other,
    })
}

fn verify_all(arguments: &Verify, output: &Output) -> Result<()> {
    let mut options = arguments.engine.for_existing()?;
    // What is written goes to memory: it needs no copies, and no start is warmed from it.
    options.doublewrite = Doublewrite::Off;
    options.buffer_pool_dump_at_shutdown = false;
    // It is said what recovery did, and with what it could not.
    options.redo_before_open = true;
    let overlay = Arc::new(OverlayVfs::new(vfs(&options)?));
    require(&*overlay, &arguments.directory)?;
    let db = open_on(overlay.clone(), &arguments.directory, options)?;
    let opened = db.open_report().clone();
    if !opened.clean {
        output.text("in memory only, nothing on disk was changed:");
    }
    say_opening(&opened, output);
    let mut damages = Damages::default();
    damages.note(db.verify_undo().map_err(Failure::from))?;
    let tables = damages.note(verify_tables(&db))?.unwrap_or_default();
    db.close()?;
    let files = damages.note(check_files(&*overlay, &arguments.directory))?;
    damages.into_result()?;
    let files = files.unwrap_or_default();
    let mut table = TextTable::new([
        "table", "trees", "rows", "deleted", "leaves", "inner", "long", "pages", "in file",
    ]);
    for report in &tables {
        let sum = |f: fn(&inkstone::TreeReport) -> u64| {
            count(report.trees.iter().map(|(_, tree)| f(tree)).sum())
        };
        table.row([
            report.table.clone(),
            report.trees.len().to_string(),
            count(report.trees.first().map_or(0, |(_, tree)| tree.rows)),
            sum(|tree| tree.deleted_rows),
            sum(|tree| tree.leaves),
            sum(|tree| tree.inner_nodes),
            count(report.overflow_pages),
            count(report.allocated_pages),
            count(report.file_pages),
        ]);
    }
    table.print(output);
    let checked: u64 = files.iter().map(|file| file.pages_checked).sum();
    let dated: u64 = files.iter().map(|file| file.pages_dated).sum();
    output.text(format!(
        "all is well: {} tables, {} pages in {} files, {} of them known to the page LSN map",
        tables.len(),
        count(checked),
        files.len(),
        count(dated)
    ));
    output.json(&json!({
        "ok": true,
        "opening": opening_json(&opened),
        "tables": tables.iter().map(table_json).collect::<Vec<_>>(),
        "files": files.iter().map(FileReport::to_json).collect::<Vec<_>>(),
    }));
    Ok(())
}

/// Verifies the catalog and all tables of an open database that nothing writes to. Damage of one
/// table does not keep it from looking at the others.
pub fn verify_tables(db: &Database) -> Result<Vec<TableReport>> {
    let names = db.tables()?;
    let bar = progress::spinner("verifying the catalog");
    let mut damages = Damages::default();
    let mut reports = vec![db.verify_catalog()?];
    for name in names {
        bar.set_message(format!("verifying table {name}"));
        let report = || Ok(db.verify_table(&db.table(&name)?)?);
        reports.extend(damages.note(report())?);
    }
    bar.finish_and_clear();
    damages.into_result().map(|()| reports)
}

/// A verified table for programs.
pub fn table_json(report: &TableReport) -> Value {
    let tree = |(name, tree): &(String, inkstone::TreeReport)| {
        json!({
            "tree": name,
            "rows": tree.rows,
            "deleted_rows": tree.deleted_rows,
            "leaves": tree.leaves,
            "inner_nodes": tree.inner_nodes,
        })
    };
    json!({
        "table": report.table,
        "trees": report.trees.iter().map(tree).collect::<Vec<_>>(),
        "overflow_pages": report.overflow_pages,
        "allocated_pages": report.allocated_pages,
        "file_pages": report.file_pages,
    })
}

/// `inkstone recover`.
pub fn recover(arguments: &Recover, output: &Output) -> Result<()> {
    if arguments.salvage {
        return salvage::run(arguments, output);
    }
    let db = open_existing(&arguments.directory, arguments.engine.for_existing()?)?;
    let opened = db.open_report().clone();
    let bar = progress::spinner("closing");
    db.close()?;
    bar.finish_and_clear();
    say_opening(&opened, output);
    output.json(&opening_json(&opened));
    Ok(())
}

/// What opening found, for people.
pub fn say_opening(opened: &OpenReport, output: &Output) {
    say_recovery(opened, output);
    for path in &opened.removed {
        let path = path.display();
        output.text(format!(
            "{path} was removed: its table was dropped, or not made to the end"
        ));
    }
    if let Some(bound) = &opened.memory_bound {
        output.text(bound.to_string());
    }
    if let Some(why) = &opened.doublewrite_renewed {
        output.text(format!("the doublewrite file was made anew: {why}"));
    }
    if let Some(why) = &opened.page_lsn_map_lost {
        output.text(format!(
            "the page LSN map could not be used, older versions of pages may pass for new: {why}"
        ));
    }
    for aside in &opened.set_aside {
        output.text(aside.to_string());
    }
    for left_out in &opened.left_out {
        output.text(format!("left out: {left_out}"));
    }
}

fn say_recovery(opened: &OpenReport, output: &Output) {
    let Some(recovered) = &opened.recovered else {
        output.text("it had been closed in order: nothing to recover");
        return;
    };
    if opened.clean {
        let transactions = recovered.transactions_text();
        output.text(format!("it had been closed in order: {transactions}"));
        return;
    }
    let redo = &recovered.redo;
    output.text(format!(
        "it had not been closed in order; recovery took {} ms:",
        count(opened.milliseconds)
    ));
    let lines = [
        format!(
            "{} of log read: {} mini-transactions, {} records ({} ms)",
            bytes(redo.bytes_scanned),
            count(redo.frames),
            count(redo.records),
            count(redo.scan_ms)
        ),
        format!(
            "{} records applied to {} pages, {} of them rebuilt without reading ({} ms)",
            count(redo.records_applied),
            count(redo.pages_applied),
            count(redo.pages_initialised),
            count(redo.apply_ms)
        ),
        format!(
            "{} torn pages repaired from the doublewrite file",
            count(recovered.torn_pages_repaired)
        ),
        recovered.transactions_text(),
    ];
    for line in lines {
        output.text(format!("  {line}"));
    }
}

/// What opening found, for programs.
pub fn opening_json(opened: &OpenReport) -> Value {
    let recovered = opened.recovered.as_ref().map(|recovered| {
        let redo = &recovered.redo;
        json!({
            "log_bytes_scanned": redo.bytes_scanned,
            "mini_transactions": redo.frames,
            "records": redo.records,
            "records_applied": redo.records_applied,
            "batches": redo.batches,
            "pages_applied": redo.pages_applied,
            "pages_initialised": redo.pages_initialised,
            "pages_read": redo.pages_read,
            "pages_dropped": redo.pages_dropped,
            "pages_left": redo.pages_left,
            "scan_ms": redo.scan_ms,
            "apply_ms": redo.apply_ms,
            "torn_pages_repaired": recovered.torn_pages_repaired,
            "losers": recovered.losers,
            "rows_undone": recovered.rows_undone,
            "rows_to_undo": recovered.rows_to_undo,
            "rows_without_space": recovered.rows_without_space,
            "prepared": recovered.prepared,
        })
    });
    let aside = opened.set_aside.iter();
    let aside: Vec<_> = aside
        .map(|aside| json!({ "was": aside.was, "is": aside.is }))
        .collect();
    json!({
        "clean": opened.clean,
        "milliseconds": opened.milliseconds,
        "recovered": recovered,
        "removed": opened.removed,
        "set_aside": aside,
        "left_out": opened.left_out.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "doublewrite_renewed": opened.doublewrite_renewed,
        "memory_bound": opened.memory_bound.map(|bound| json!({
            "limit": bound.limit,
            "buffer_pool_size": bound.buffer_pool_size.1,
            "recovery_memory": bound.recovery_memory.1,
        })),
        "page_lsn_map_lost": opened.page_lsn_map_lost,
    })
}

/// `inkstone stat`.
pub fn stat(arguments: &Stat, output: &Output) -> Result<()> {
    let options = arguments.engine.for_existing()?;
    let db = open_to_read(&arguments.directory, &options)?;
    if arguments.prometheus {
        let metrics = db.prometheus();
        db.close()?;
        output.text(metrics.trim_end());
        output.json(&json!({ "prometheus": metrics }));
        return Ok(());
    }
    let opened = db.open_report().clone();
    let mut tables = Vec::new();
    let mut text = TextTable::new([
        "table",
        "rows (about)",
        "height",
        "pages by level",
        "file",
        "in use",
        "long values",
    ]);
    for name in db.tables()? {
        let s = db.statistics(&db.table(&name)?)?;
        let levels: Vec<String> = s.pages_by_level.iter().map(|n| count(*n)).collect();
        text.row([
            name.clone(),
            count(s.rows),
            s.height.to_string(),
            levels.join(" + "),
            bytes(s.file_bytes),
            bytes(s.allocated_bytes),
            bytes(s.long_value_bytes),
        ]);
        tables.push(json!({
            "table": name,
            "rows": s.rows,
            "height": s.height,
            "pages_by_level": s.pages_by_level,
            "file_bytes": s.file_bytes,
            "free_bytes": s.free_bytes,
            "allocated_bytes": s.allocated_bytes,
            "long_value_bytes": s.long_value_bytes,
        }));
    }
    let status = db.status();
    let durations = db.durations();
    let options = db.options().show();
    let prepared: Vec<String> = (db.prepared_transactions().iter())
        .map(|xid| crate::inspect::show::bytes(xid, None))
        .collect();
    db.close()?;
    say_opening(&opened, output);
    say_stat(&text, &status, &options, &prepared, output);
    say_durations(&durations, output);
    let object = |pairs: Vec<(&'static str, Value)>| -> Value {
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    output.json(&json!({
        "opening": opening_json(&opened),
        "tables": tables,
        "prepared": prepared,
        "status": object(status.into_iter().map(|(name, n)| (name, json!(n))).collect()),
        "durations": durations.iter().map(duration_json).collect::<Vec<_>>(),
        "options": object(options.into_iter().map(|(name, v)| (name, json!(v))).collect()),
    }));
    Ok(())
}

fn say_stat(
    tables: &TextTable,
    status: &[(&'static str, u64)],
    options: &[(&'static str, String)],
    prepared: &[String],
    output: &Output,
) {
    output.text("");
    tables.print(output);
    for xid in prepared {
        output.text(format!("prepared transaction {xid}"));
    }
    output.text("");
    let mut table = TextTable::new(["status since this open", "value"]);
    for (name, value) in status {
        table.row([(*name).to_owned(), count(*value)]);
    }
    table.print(output);
    output.text("");
    output.text("options");
    for (name, value) in options {
        output.text(format!("  {name} = {value}"));
    }
}

fn say_durations(durations: &[DurationSummary], output: &Output) {
    output.text("");
    let headings = [
        "microseconds",
        "count",
        "sum",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
    ];
    let mut table = TextTable::new(headings);
    for duration in durations {
        let micros = |time: std::time::Duration| count(time.as_micros() as u64);
        table.row([
            duration.name.to_owned(),
            count(duration.count),
            micros(duration.sum),
            micros(duration.p50),
            micros(duration.p90),
            micros(duration.p99),
            micros(duration.p999),
            micros(duration.max),
        ]);
    }
    table.print(output);
}

/// Durations of one kind of operation for programs, nanoseconds.
fn duration_json(duration: &DurationSummary) -> Value {
    let nanos = |time: std::time::Duration| time.as_nanos() as u64;
    json!({
        "name": duration.name,
        "help": duration.help,
        "count": duration.count,
        "sum_ns": nanos(duration.sum),
        "p50_ns": nanos(duration.p50),
        "p90_ns": nanos(duration.p90),
        "p99_ns": nanos(duration.p99),
        "p999_ns": nanos(duration.p999),
        "max_ns": nanos(duration.max),
    })
}

/// `inkstone options`.
pub fn options(output: &Output) {
    let all = inkstone::Options::describe();
    for option in &all {
        output.text(format!(
            "{} = {}\n    {}",
            option.name, option.default, option.help
        ));
    }
    let all = all.iter().map(
        |option| json!({ "name": option.name, "default": option.default, "help": option.help }),
    );
    output.json(&all.collect());
}

/// The directory as text, for JSON.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
