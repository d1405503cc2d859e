//! `bench load`.

use super::{Common, at_least, open, published, remove};
use crate::chart::{Chart, Form};
use crate::clients::cpu_seconds;
use crate::counts::Counts;
use crate::database::parse_size;
use crate::failure::Result;
use crate::output::{Output, name_of, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::wide::{self, Fill, WIDE_VALUE_LEN, WideValues};
use crate::{memory, probe};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use inkstone::{Database, Isolation, Options, Table};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

/// Arguments of `bench load`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Loading, each case in one transaction into an empty table (with --clients: so many threads, each with its share \
of the rows, a transaction and a table of its own):

  narrow_row_by_row  rows of an 8-byte key and an 8-byte value, one by one
  narrow_bulk        the same rows through insert_many
  wide_row_by_row    the wide rows of writebench, one by one
  wide_bulk          the same rows through insert_many

insert_s ends with the commit, rows_per_s is rows over it; insert_cpu_s is what the processors spent, background \
threads and system calls with it. flush_s is what it takes to have every page on disk \
then. device_write_bytes_per_s is what the device takes, right before and right after: writes of 1 MiB at depth \
32 past the page cache, over blocks that were written before. device_new_file_bytes_per_s is the same into a file \
that grows, as files grow under a load. written_per_device_write and written_per_device_new_file are the share of \
it that the load used until its pages were on disk: all bytes of log, data and doublewrite files over insert_s + \
flush_s. payload_per_device_write counts keys and values alone; written_per_payload is the bytes written for each of \
theirs (--set bulk_logging=minimal: once).")]
pub struct Load {
    /// Rows of the narrow cases
    #[arg(long, default_value = "2097152", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Rows of the wide cases, 1,793 bytes each
    #[arg(long, default_value = "1000000", value_name = "N", value_parser = parse_size)]
    wide_rows: u64,
    /// Threads that load at the same time
    #[arg(long, default_value = "1", value_name = "N")]
    clients: u64,
    /// What the columns of wide rows hold: blanks, or random bytes
    #[arg(long, value_enum, default_value_t = Fill::Random)]
    fill: Fill,
    /// Cases to run, all by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::NarrowRowByRow, Case::NarrowBulk, Case::WideRowByRow, Case::WideBulk])]
    case: Vec<Case>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    NarrowRowByRow,
    NarrowBulk,
    WideRowByRow,
    WideBulk,
}

impl Case {
    fn is_wide(self) -> bool {
        matches!(self, Self::WideRowByRow | Self::WideBulk)
    }
}

/// Bytes of the file that the device is probed with.
const PROBE_BYTES_MIN: u64 = 32 << 20;
const PROBE_BYTES_MAX: u64 = 1 << 30;

pub fn run(arguments: &Load, output: &Output) -> Result<()> {
    at_least("rows", arguments.rows, 1)?;
    at_least("wide-rows", arguments.wide_rows, 1)?;
    at_least("clients", arguments.clients, 1)?;
    let columns = [
        "case",
        "clients",
        "rows",
        "insert_s",
        "insert_cpu_s",
        "flush_s",
        "rows_per_s",
        "written_bytes",
        "written_per_payload",
        "device_write_bytes_per_s",
        "written_per_device_write",
        "written_per_device_new_file",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("load")?;
    let directory = work.path().join("database");
    for case in &arguments.case {
        sink.take(one(arguments, *case, work.path(), &directory)?);
        remove(&directory)?;
    }
    sink.finish(&Chart {
        title: "Rows loaded a second",
        by: &["case"],
        form: Form::Bars {
            values: &["rows_per_s"],
            unit: "rows a second",
        },
    })
}

fn one(arguments: &Load, case: Case, probed: &Path, directory: &Path) -> Result<Fields> {
    let options = arguments.common.engine.over(Options {
        buffer_pool_size: 2 << 30,
        ..published()
    })?;
    let (rows, row_bytes) = if case.is_wide() {
        (arguments.wide_rows, 8 + WIDE_VALUE_LEN as u64)
    } else {
        (arguments.rows, 16)
    };
    let payload = rows * row_bytes;
    let probed_bytes = payload.clamp(PROBE_BYTES_MIN, PROBE_BYTES_MAX);
    let probe = || probe::write_bandwidth(probed, probed_bytes);
    let device_before = probe()?;
    let db = open(directory, options.clone())?;
    memory::warm(&db, payload + payload / 4)?;
    let tables = (0..arguments.clients).map(|n| db.create_table(&format!("t{n}"), &[]));
    let tables = tables.collect::<inkstone::Result<Vec<_>>>()?;
    let before = Counts::of(&db);
    let bar = progress::bar(name_of(case), rows);
    let (begin, cpu_begin) = (Instant::now(), cpu_seconds());
    insert_all(arguments, case, rows, &db, &tables, &bar)?;
    let insert_s = begin.elapsed().as_secs_f64();
    let insert_cpu_s = cpu_seconds() - cpu_begin;
    bar.finish_and_clear();
    let bar = progress::spinner("flushing");
    tables.iter().try_for_each(|table| db.flush_table(table))?;
    let flushed_s = begin.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let counts = Counts::of(&db).since(&before);
    let written = counts.sum(&[
        "log_bytes_written",
        "page_bytes_written",
        "doublewrite_bytes",
    ]);
    drop(tables);
    db.close()?;
    let device = device_before.mean(probe()?);
    let share = |bytes: u64, of: f64| rounded(bytes as f64 / flushed_s / of, 3);
    let fields = Fields::of("load")
        .with("case", name_of(case))
        .with("fill", case.is_wide().then(|| name_of(arguments.fill)))
        .with("clients", arguments.clients)
        .with("rows", rows)
        .with("payload_bytes", payload)
        .with("insert_s", rounded(insert_s, 3))
        .with("flush_s", rounded(flushed_s - insert_s, 3))
        .with("insert_cpu_s", rounded(insert_cpu_s, 3))
        .with("rows_per_s", rounded(rows as f64 / insert_s, 0))
        .with("log_bytes", counts.get("log_bytes"))
        .with("data_bytes", counts.get("page_bytes_written"))
        .with("doublewrite_bytes", counts.get("doublewrite_bytes"))
        .with("written_bytes", written)
        .with(
            "written_per_payload",
            rounded(written as f64 / payload as f64, 3),
        )
        .with("device_write_bytes_per_s", rounded(device.overwrite, 0))
        .with("device_new_file_bytes_per_s", rounded(device.new_file, 0))
        .with("written_per_device_write", share(written, device.overwrite))
        .with(
            "written_per_device_new_file",
            share(written, device.new_file),
        )
        .with("payload_per_device_write", share(payload, device.overwrite));
    Ok(memory::describe(fields, &options))
}

/// Rows between two steps of a progress bar.
const STEP: u64 = 4096;

/// Each client's share of the rows, by a thread of its own.
fn insert_all(
    arguments: &Load,
    case: Case,
    rows: u64,
    db: &Database,
    tables: &[Table],
    bar: &ProgressBar,
) -> Result<()> {
    let of = tables.len() as u64;
    std::thread::scope(|scope| {
        let clients = tables.iter().zip(0..).map(|(table, n)| {
            let share = rows * n / of + 1..=rows * (n + 1) / of;
            scope.spawn(move || insert(arguments.fill, case, share, db, table, bar))
        });
        let clients: Vec<_> = clients.collect();
        let ends = clients.into_iter().map(|client| match client.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect()
    })
}

fn insert(
    fill: Fill,
    case: Case,
    rows: RangeInclusive<u64>,
    db: &Database,
    table: &Table,
    bar: &ProgressBar,
) -> Result<()> {
    let transaction = db.begin(Isolation::RepeatableRead)?;
    let rows = rows.inspect(|n| {
        if n.is_multiple_of(STEP) {
            bar.inc(STEP);
        }
    });
    let narrow = |n: u64| (n.to_be_bytes(), n.to_be_bytes());
    let mut values = WideValues::new(fill);
    match case {
        Case::NarrowRowByRow => {
            for (key, value) in rows.map(narrow) {
                transaction.insert(table, &key, &value)?;
            }
        }
        Case::NarrowBulk => {
            transaction.insert_many(table, rows.map(narrow))?;
        }
        Case::WideRowByRow => {
            for n in rows {
                transaction.insert(table, &wide::key(n), values.next())?;
            }
        }
        Case::WideBulk => {
            let wide = rows.map(|n| (wide::key(n), values.next().to_vec()));
            transaction.insert_many(table, wide)?;
        }
    }
    Ok(transaction.commit()?)
}
