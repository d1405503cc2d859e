//! `bench reads`.

use super::{Common, at_least, open};
use crate::chart::{Chart, Form};
use crate::database::parse_size;
use crate::failure::Result;
use crate::output::{Output, rounded};
use crate::progress;
use crate::random::Random;
use crate::sink::Fields;
use crate::{clients, memory};
use clap::Args;
use inkstone::{Error, Isolation, Table, Transaction};

/// Arguments of `bench reads`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Reads of a memory-resident table: point reads by random key, and scans of 100 rows from a random key on. \
Each thread reads in one repeatable-read transaction.")]
pub struct Reads {
    /// Rows of the table
    #[arg(long, default_value = "800000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 120, value_name = "N")]
    value_bytes: usize,
    /// Rows of a scan
    #[arg(long, default_value_t = 100, value_name = "N")]
    scan_rows: u64,
    /// Threads
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,2"
    )]
    clients: Vec<u64>,
    /// Seconds for each run
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

/// Operations between two looks at the clock.
const BATCH: u64 = 64;

/// Reads random rows. How many.
fn points(
    random: &mut Random,
    transaction: &mut Transaction,
    table: &Table,
    rows: u64,
) -> inkstone::Result<u64> {
    for _ in 0..BATCH {
        let key = random.below(rows).to_be_bytes();
        if transaction.get(table, &key)?.is_none() {
            return Err(Error::NotFound("a row that was loaded".to_owned()));
        }
    }
    Ok(BATCH)
}

/// Reads rows from a random one on.
fn scan(
    random: &mut Random,
    transaction: &mut Transaction,
    table: &Table,
    arguments: &Reads,
) -> inkstone::Result<u64> {
    let from = random.below(arguments.rows - arguments.scan_rows + 1);
    let key = from.to_be_bytes();
    let mut rows = transaction.range(table, &key[..]..)?;
    for _ in 0..arguments.scan_rows {
        if rows.next_row()?.is_none() {
            return Err(Error::NotFound("a row that was loaded".to_owned()));
        }
    }
    Ok(1)
}

pub fn run(arguments: &Reads, output: &Output) -> Result<()> {
    at_least("rows", arguments.rows, arguments.scan_rows.max(1))?;
    let columns = [
        "case",
        "clients",
        "operations_per_s",
        "rows_per_s",
        "times_first",
        "p50_us",
        "p99_us",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("reads")?;
    let options = arguments.common.options()?;
    let db = open(&work.path().join("database"), options)?;
    let table = db.create_table("t", &[])?;
    let bar = progress::bar("filling the table", arguments.rows);
    clients::fill(&db, &table, arguments.rows, arguments.value_bytes, &bar)?;
    db.checkpoint()?;
    bar.finish_and_clear();
    for case in ["point", "scan"] {
        let mut alone = None;
        for client_count in &arguments.clients {
            at_least("clients", *client_count, 1)?;
            let run = clients::run(
                *client_count,
                arguments.seconds,
                format!("{case} reads, {client_count} threads"),
                |random| Ok((random, db.begin(Isolation::RepeatableRead)?)),
                |(random, transaction)| {
                    if case == "point" {
                        points(random, transaction, &table, arguments.rows)
                    } else {
                        scan(random, transaction, &table, arguments)
                    }
                },
            )?;
            let rate = run.per_second();
            let one = *alone.get_or_insert(rate);
            let rows = if case == "point" {
                1
            } else {
                arguments.scan_rows
            };
            let fields = Fields::of("reads")
                .with("case", case)
                .with("rows", arguments.rows)
                .with("value_bytes", arguments.value_bytes)
                .with("clients", *client_count)
                .with("operations_per_s", rounded(rate, 0))
                .with("rows_per_s", rounded(rate * rows as f64, 0))
                .with("times_first", rounded(rate / one, 2));
            sink.take(memory::describe(run.describe(fields), db.options()));
        }
    }
    drop(table);
    db.close()?;
    sink.finish(&Chart {
        title: "Rows read a second, by threads",
        by: &["case"],
        form: Form::Lines {
            x: "clients",
            y: "rows_per_s",
        },
    })
}
