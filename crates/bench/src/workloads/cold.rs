//! `bench cold`.

use super::layout::{self, Layout, Loaded};
use super::{Common, at_least, open, published};
use crate::chart::{Chart, Form};
use crate::counts::Counts;
use crate::database::{open_or_create, parse_size};
use crate::failure::{Failure, Result};
use crate::output::{Output, rounded};
use crate::progress;
use crate::random::Random;
use crate::sink::Fields;
use crate::values::Content;
use crate::{clients, memory};
use clap::Args;
use inkstone::{Database, Durability, Isolation, Options, Table};
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `bench cold`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Reads of a table of which nothing is in memory: whole scans in ascending and in descending order, and random rows \
by key, asked for in batches. The database is opened anew for each, with an empty pool, and data files are \
read past the page cache.

--updates rows are changed at random before, one after the other, so that pages that are placed lie as \
updates leave them. data_bytes has the place map of a placed table in it. --layout compares how pages lie \
in their file, by turns.")]
pub struct Cold {
    /// Rows of the table
    #[arg(long, default_value = "1000000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 180, value_name = "N")]
    value_bytes: usize,
    /// What values hold
    #[arg(long, value_enum, default_value_t)]
    content: Content,
    /// Random rows that are updated before
    #[arg(long, default_value = "0", value_name = "N", value_parser = parse_size)]
    updates: u64,
    /// Random rows that are read by key
    #[arg(long, default_value = "20000", value_name = "N", value_parser = parse_size)]
    points: u64,
    /// Bytes of the buffer pool
    #[arg(long, default_value = "32m", value_name = "BYTES", value_parser = parse_size)]
    buffer_pool_size: u64,
    /// How pages lie in their file; by default as the engine's options say
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    layout: Vec<Layout>,
    /// How often each is measured
    #[arg(long, default_value_t = 1, value_name = "N")]
    turns: u64,
    #[command(flatten)]
    common: Common,
}

/// Keys that are asked for together.
const BATCH: u64 = 256;
/// Updates in one transaction.
const UPDATES: u64 = 1000;

/// What is read.
#[derive(Clone, Copy, Debug)]
enum Case {
    Ascending,
    Descending,
    Points,
}

impl Case {
    const ALL: [Self; 3] = [Self::Ascending, Self::Descending, Self::Points];

    fn name(self) -> &'static str {
        match self {
            Self::Ascending => "ascending",
            Self::Descending => "descending",
            Self::Points => "points",
        }
    }
}

pub fn run(arguments: &Cold, output: &Output) -> Result<()> {
    at_least("rows", arguments.rows, 1)?;
    at_least("turns", arguments.turns, 1)?;
    let columns = [
        "layout",
        "turn",
        "case",
        "rows_per_s",
        "pages_read",
        "pages_per_read",
        "data_bytes",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("cold")?;
    let mut base = arguments.common.engine.over(Options {
        buffer_pool_dump_at_shutdown: false,
        ..published()
    })?;
    base.buffer_pool_size = arguments.buffer_pool_size;
    let mut databases = Vec::new();
    for (nth, options) in layout::options_of(&arguments.layout, &base)
        .into_iter()
        .enumerate()
    {
        let directory = work.path().join(format!("database-{nth}"));
        databases.push(load(arguments, directory, options)?);
    }
    for turn in 1..=arguments.turns {
        for case in Case::ALL {
            for database in &databases {
                sink.take(measure(arguments, database, case, turn)?);
            }
        }
    }
    sink.finish(&Chart {
        title: "Rows read a second from an empty pool",
        by: &["layout", "case"],
        form: Form::Bars {
            values: &["rows_per_s"],
            unit: "rows a second",
        },
    })
}

fn load(arguments: &Cold, directory: PathBuf, options: Options) -> Result<Loaded> {
    let db = open_or_create(&directory, options.clone())?;
    let table = db.create_table("t", &[])?;
    let bar = progress::bar("filling the table", arguments.rows);
    let values = (arguments.content, arguments.value_bytes);
    clients::fill_with(&db, &table, arguments.rows, values, &bar)?;
    bar.finish_and_clear();
    update(arguments, &db, &table)?;
    let file = layout::file_of(&db, &directory)?;
    drop(table);
    db.close()?;
    Ok(Loaded {
        file,
        directory,
        options,
    })
}

/// Changes random rows.
fn update(arguments: &Cold, db: &Database, table: &Table) -> Result<()> {
    let bar = progress::bar("updating", arguments.updates);
    let mut random = Random::new(7);
    let mut value = vec![0; arguments.value_bytes];
    let mut left = arguments.updates;
    while left > 0 {
        let now = left.min(UPDATES);
        let transaction = db.begin(Isolation::ReadCommitted)?;
        for _ in 0..now {
            let key = random.below(arguments.rows).to_be_bytes();
            arguments.content.fill(&mut random, &mut value);
            transaction.update(table, &key, &value)?;
        }
        transaction.commit_with(Durability::Lazy)?;
        left -= now;
        bar.inc(now);
    }
    bar.finish_and_clear();
    Ok(())
}

fn measure(arguments: &Cold, database: &Loaded, case: Case, turn: u64) -> Result<Fields> {
    let db = open(&database.directory, database.options.clone())?;
    let table = db.table("t")?;
    let before = Counts::of(&db);
    let begun = Instant::now();
    let rows = read(arguments, &db, &table, case)?;
    let seconds = begun.elapsed().as_secs_f64();
    let counts = Counts::of(&db).since(&before);
    let (pages, calls) = (counts.get("pages_read"), counts.get("data_read_calls"));
    let fields = Fields::of("cold")
        .with("layout", layout::name_of(&database.options))
        .with("turn", turn)
        .with("case", case.name())
        .with("content", arguments.content.name())
        .with("rows", arguments.rows)
        .with("rows_updated", arguments.updates)
        .with("buffer_pool_size", arguments.buffer_pool_size)
        .with("data_bytes", layout::file_bytes(&database.file))
        .with("seconds", rounded(seconds, 3))
        .with("rows_read", rows)
        .with("rows_per_s", rounded(rows as f64 / seconds, 0))
        .with("pages_read", pages)
        .with("data_read_calls", calls)
        .with(
            "pages_per_read",
            rounded(pages as f64 / calls.max(1) as f64, 1),
        );
    let fields = memory::describe(fields, db.options());
    drop(table);
    db.close()?;
    Ok(fields)
}

/// How many rows were read; each must be there.
fn read(arguments: &Cold, db: &Database, table: &Table, case: Case) -> Result<u64> {
    let transaction = db.begin(Isolation::RepeatableRead)?;
    let (rows, wanted) = match case {
        Case::Points => (points(arguments, &transaction, table)?, arguments.points),
        Case::Ascending | Case::Descending => {
            let mut scan = if matches!(case, Case::Ascending) {
                transaction.range(table, ..)?
            } else {
                transaction.range_backward(table, ..)?
            };
            let mut rows = 0;
            loop {
                let found = scan.next_rows(1000)?.len() as u64;
                if found == 0 {
                    break;
                }
                rows += found;
            }
            (rows, arguments.rows)
        }
    };
    if rows != wanted {
        let what = format!("{rows} rows were read of {wanted}");
        return Err(Failure::Check(what));
    }
    Ok(rows)
}

fn points(arguments: &Cold, transaction: &inkstone::Transaction, table: &Table) -> Result<u64> {
    let mut random = Random::new(3);
    let (mut rows, mut value) = (0, Vec::new());
    while rows < arguments.points {
        let now = BATCH.min(arguments.points - rows);
        let keys: Vec<_> = (0..now)
            .map(|_| random.below(arguments.rows).to_be_bytes())
            .collect();
        transaction.prefetch(table, &keys)?;
        for key in &keys {
            rows += u64::from(transaction.get_into(table, key, &mut value)?);
        }
        if rows == 0 {
            break;
        }
    }
    Ok(rows)
}
