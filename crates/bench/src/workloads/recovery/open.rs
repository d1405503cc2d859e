//! `bench open`.

use super::{Chart, Form, TABLE};
use crate::database::{open_existing, open_or_create, parse_size};
use crate::failure::{Failure, Result};
use crate::memory;
use crate::output::{Output, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::wide::{self, Fill, WIDE_VALUE_LEN, WideValues};
use crate::workloads::{Common, at_least};
use clap::Args;
use inkstone::{Durability, Isolation, Options};
use std::path::Path;
use std::time::Instant;

/// Arguments of `bench open`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
How long it takes to open a database of so many bytes that was closed in order: seconds from the call until \\
transactions can begin, and until the first row was read by key (first_read_s, counted from the same moment). Each \\
round opens and closes it again. Pages that were resident at the close are loaded in the background by default; \\
--set buffer_pool_dump_at_shutdown=off leaves that out.")]
pub struct Open {
    /// Bytes of the table's file, at least
    #[arg(long, default_value = "10g", value_name = "BYTES", value_parser = parse_size)]
    size: u64,
    /// Times that it is opened
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

pub fn run(arguments: &Open, output: &Output) -> Result<()> {
    at_least("rounds", arguments.rounds, 1)?;
    let columns = [
        "round",
        "data_bytes",
        "rows",
        "seconds",
        "first_read_s",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("open")?;
    let directory = work.path().join("database");
    let options = arguments.common.options()?;
    let rows = arguments.size.div_ceil(8 + WIDE_VALUE_LEN as u64).max(1);
    fill(rows, &directory, options.clone())?;
    for round in 1..=arguments.rounds {
        sink.take(one(round, rows, &directory, &options)?);
    }
    sink.finish(&Chart {
        title: "Opening a database that was closed in order",
        by: &["round"],
        form: Form::Bars {
            values: &["seconds", "first_read_s"],
            unit: "seconds",
        },
    })
}

/// Rows in one transaction.
const FILL_ROWS: u64 = 50_000;

fn fill(rows: u64, directory: &Path, options: Options) -> Result<()> {
    let db = open_or_create(directory, options)?;
    let table = db.create_table(TABLE, &[])?;
    let bar = progress::bar("filling the table", rows);
    let mut values = WideValues::new(Fill::Padding);
    let mut from = 0;
    while from < rows {
        let to = (from + FILL_ROWS).min(rows);
        let transaction = db.begin(Isolation::RepeatableRead)?;
        let batch = (from..to).map(|n| (wide::key(n), values.next().to_vec()));
        transaction.insert_many(&table, batch)?;
        transaction.commit_with(Durability::Lazy)?;
        bar.inc(to - from);
        from = to;
    }
    bar.finish_and_clear();
    drop(table);
    Ok(db.close()?)
}

fn one(round: u64, rows: u64, directory: &Path, options: &Options) -> Result<Fields> {
    memory::forget_peak();
    let begin = Instant::now();
    let db = open_existing(directory, options.clone())?;
    let seconds = begin.elapsed().as_secs_f64();
    let table = db.table(TABLE)?;
    let transaction = db.begin(Isolation::RepeatableRead)?;
    if transaction.get(&table, &wide::key(rows / 2))?.is_none() {
        return Err(Failure::Check("a row that was loaded is gone".to_owned()));
    }
    let first_read_s = begin.elapsed().as_secs_f64();
    if !db.open_report().clean {
        return Err(Failure::Check(
            "the database was not closed in order".to_owned(),
        ));
    }
    transaction.commit()?;
    let data_bytes = db.statistics(&table)?.file_bytes;
    let fields = Fields::of("open")
        .with("round", round)
        .with("data_bytes", data_bytes)
        .with("rows", rows)
        .with("seconds", rounded(seconds, 4))
        .with("first_read_s", rounded(first_read_s, 4));
    let fields = memory::describe(fields, options);
    drop(table);
    db.close()?;
    Ok(fields)
}
