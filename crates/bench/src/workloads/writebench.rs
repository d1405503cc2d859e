//! `bench writebench`.

use super::{Common, at_least, open, published, remove};
use crate::chart::{Chart, Form};
use crate::counts::Counts;
use crate::database::parse_size;
use crate::failure::Result;
use crate::memory;
use crate::output::{Output, name_of, ratio, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::wide::{self, Fill, WIDE_VALUE_LEN, WideValues};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use inkstone::internals::options::Doublewrite;
use inkstone::{Database, Isolation, Options, Table};
use std::path::Path;
use std::time::Instant;

/// Arguments of `bench writebench`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Load t1(a BIGINT PRIMARY KEY, b..h CHAR(255) NOT NULL DEFAULT '') in one transaction, flush the table \
to disk, drop it; with doublewrite on for all pages, on without those that were just initialised, and off \
(MDEV-19738).

insert_s includes the commit. log_bytes is what the mini-transactions take in the log (see also \
log_bytes_written, with padding); data_bytes and write_calls are of tablespace files alone, pages_per_write \
is data_pages for each of those calls; syncs are of all files. All are counted from creating the table until \
its pages are on disk.")]
pub struct Writebench {
    /// Rows
    #[arg(long, default_value = "1000000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// What the columns hold: blanks, or random bytes
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Fill::Padding])]
    fill: Vec<Fill>,
    /// Bytes in a page
    #[arg(long, default_value = "4k,16k", value_name = "BYTES", value_delimiter = ',', value_parser = parse_size)]
    page_size: Vec<u64>,
    /// Configurations to run, all three by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Configuration::On, Configuration::Skip, Configuration::Off])]
    doublewrite: Vec<Configuration>,
    /// Times that each configuration is run
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: u32,
    /// Insert runs of rows (insert_many) instead of row by row
    #[arg(long)]
    bulk: bool,
    #[command(flatten)]
    common: Common,
}

/// How pages are protected from torn writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Configuration {
    /// Doublewrite of all pages
    On,
    /// Doublewrite of all but freshly initialised pages
    Skip,
    /// No doublewrite
    Off,
}

pub fn run(arguments: &Writebench, output: &Output) -> Result<()> {
    at_least("rows", arguments.rows, 1)?;
    let columns = [
        "doublewrite",
        "skip_fresh",
        "fill",
        "page_size",
        "insert_s",
        "flush_s",
        "drop_s",
        "log_bytes",
        "log_bytes_per_row",
        "data_bytes",
        "doublewrite_bytes",
        "data_pages",
        "doublewrite_pages",
        "write_calls",
        "pages_per_write",
        "syncs",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("writebench")?;
    let directory = work.path().join("database");
    for round in 0..arguments.rounds {
        for fill in &arguments.fill {
            for page_size in &arguments.page_size {
                for configuration in &arguments.doublewrite {
                    let fields = one(arguments, *fill, *page_size, *configuration, &directory)?;
                    sink.take(fields.with("round", round + 1));
                    remove(&directory)?;
                }
            }
        }
    }
    sink.finish(&Chart {
        title: "Loading, flushing and dropping a wide table",
        by: &["doublewrite", "skip_fresh", "fill", "page_size", "round"],
        form: Form::Bars {
            values: &["insert_s", "flush_s", "drop_s"],
            unit: "seconds",
        },
    })
}

fn one(
    arguments: &Writebench,
    fill: Fill,
    page_size: u64,
    configuration: Configuration,
    directory: &Path,
) -> Result<Fields> {
    let mut options = arguments.common.engine.over(Options {
        buffer_pool_size: 2 << 30,
        ..published()
    })?;
    options.page_size = page_size;
    options.doublewrite = match configuration {
        Configuration::On | Configuration::Skip => Doublewrite::On,
        Configuration::Off => Doublewrite::Off,
    };
    options.doublewrite_skip_fresh = configuration != Configuration::On;
    let db = open(directory, options.clone())?;
    let payload = arguments.rows * (WIDE_VALUE_LEN as u64 + 8);
    memory::warm(&db, payload + payload / 4)?;
    // Nothing is under way where counts are taken: of a page in flight the copy is counted before
    // the page.
    db.checkpoint()?;
    let before = Counts::of(&db);
    let table = db.create_table("t1", &[])?;
    let bar = progress::bar("inserting", arguments.rows);
    let begin = Instant::now();
    insert(&db, &table, arguments, fill, &bar)?;
    let insert_s = begin.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let bar = progress::spinner("flushing");
    let begin = Instant::now();
    db.flush_table(&table)?;
    let flush_s = begin.elapsed().as_secs_f64();
    db.checkpoint()?;
    let counts = Counts::of(&db).since(&before);
    bar.set_message("dropping");
    let begin = Instant::now();
    db.drop_table("t1")?;
    let drop_s = begin.elapsed().as_secs_f64();
    db.close()?;
    bar.finish_and_clear();
    let memory = |fields| memory::describe(fields, &options);
    let rows = arguments.rows;
    let log_bytes = counts.get("log_bytes");
    Ok(memory(
        Fields::of("writebench")
            .with("doublewrite", options.doublewrite.to_string())
            .with("skip_fresh", options.doublewrite_skip_fresh)
            .with("fill", name_of(fill))
            .with("bulk", arguments.bulk)
            .with("page_size", page_size)
            .with("rows", rows)
            .with("insert_s", rounded(insert_s, 3))
            .with("flush_s", rounded(flush_s, 3))
            .with("drop_s", rounded(drop_s, 3))
            .with("log_bytes", log_bytes)
            .with("log_bytes_per_row", rounded(ratio(log_bytes, rows), 2))
            .with(
                "log_bytes_per_payload_byte",
                rounded(ratio(log_bytes, payload), 4),
            )
            .with("log_bytes_written", counts.get("log_bytes_written"))
            .with("data_bytes", counts.get("page_bytes_written"))
            .with("doublewrite_bytes", counts.get("doublewrite_bytes"))
            .with("data_pages", counts.get("pages_written"))
            .with("doublewrite_pages", counts.get("doublewrite_pages"))
            .with("write_calls", counts.get("data_write_calls"))
            .with(
                "pages_per_write",
                rounded(
                    ratio(counts.get("pages_written"), counts.get("data_write_calls")),
                    1,
                ),
            )
            .with(
                "doublewrite_write_calls",
                counts.get("doublewrite_write_calls"),
            )
            .with("log_write_calls", counts.get("log_write_calls"))
            .with("syncs", counts.syncs())
            .with("data_syncs", counts.get("data_syncs"))
            .with("doublewrite_syncs", counts.get("doublewrite_syncs"))
            .with("log_syncs", counts.get("log_syncs")),
    ))
}

fn insert(
    db: &Database,
    table: &Table,
    arguments: &Writebench,
    fill: Fill,
    bar: &ProgressBar,
) -> Result<()> {
    let mut values = WideValues::new(fill);
    let transaction = db.begin(Isolation::RepeatableRead)?;
    if arguments.bulk {
        let rows = (0..arguments.rows).map(|n| {
            if n % 4096 == 4095 {
                bar.inc(4096);
            }
            (wide::key(n), values.next().to_vec())
        });
        transaction.insert_many(table, rows)?;
    } else {
        for n in 0..arguments.rows {
            transaction.insert(table, &wide::key(n), values.next())?;
            if n % 4096 == 4095 {
                bar.inc(4096);
            }
        }
    }
    Ok(transaction.commit()?)
}
