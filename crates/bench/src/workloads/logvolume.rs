//! `bench logvolume`.

use super::{Common, at_least, open, remove};
use crate::chart::{Chart, Form};
use crate::counts::Counts;
use crate::database::parse_size;
use crate::failure::Result;
use crate::memory;
use crate::output::{Output, name_of, ratio, rounded};
use crate::progress;
use crate::random::Random;
use crate::sink::Fields;
use clap::{Args, ValueEnum};
use inkstone::{Database, Isolation, Table};
use std::time::Instant;

/// Arguments of `bench logvolume`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Log bytes for each row (MDEV-21724):

  row_by_row         rows of an 8-byte key and an 8-byte value, one by one in one transaction, as
                     CREATE TABLE t2 SELECT * FROM seq_1_to_2097152 (value: the sequence number)
  bulk               the same rows through insert_many
  autocommit_insert  one such row for each transaction
  autocommit_update  a 120-byte random-text column of one random row for each transaction

log_bytes is what the mini-transactions take, without the padding of blocks. Time is from begin to the end of \
the last commit.")]
pub struct Logvolume {
    /// Rows of row_by_row and bulk
    #[arg(long, default_value = "2097152", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Rows of the table that autocommit_update changes
    #[arg(long, default_value = "800000", value_name = "N", value_parser = parse_size)]
    table_rows: u64,
    /// Transactions of the autocommit cases
    #[arg(long, default_value = "1000", value_name = "N", value_parser = parse_size)]
    transactions: u64,
    /// Cases to run, all by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::RowByRow, Case::Bulk, Case::AutocommitInsert, Case::AutocommitUpdate])]
    case: Vec<Case>,
    /// The 8-byte values of the first three cases
    #[arg(long, value_enum, default_value_t = Values::Sequence)]
    value: Values,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    RowByRow,
    Bulk,
    AutocommitInsert,
    AutocommitUpdate,
}

/// What the 8-byte values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Values {
    /// The sequence number
    Sequence,
    /// Random bytes
    Random,
}

impl Values {
    fn of(self, n: u64, random: &mut Random) -> [u8; 8] {
        match self {
            Self::Sequence => n.to_be_bytes(),
            Self::Random => random.number().to_be_bytes(),
        }
    }
}

/// Bytes of the column that `autocommit_update` changes.
const COLUMN: usize = 120;

pub fn run(arguments: &Logvolume, output: &Output) -> Result<()> {
    at_least("rows", arguments.rows, 1)?;
    at_least("table-rows", arguments.table_rows, 1)?;
    at_least("transactions", arguments.transactions, 1)?;
    let columns = [
        "case",
        "rows",
        "log_bytes",
        "log_bytes_per_row",
        "seconds",
        "rows_per_s",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("logvolume")?;
    let options = arguments.common.options()?;
    for case in &arguments.case {
        let directory = work.path().join(name_of(*case));
        let db = open(&directory, options.clone())?;
        let rows = arguments.rows.max(arguments.table_rows);
        memory::warm(&db, rows * 40)?;
        let table = db.create_table("t2", &[])?;
        sink.take(one(arguments, *case, &db, &table)?);
        drop(table);
        db.close()?;
        remove(&directory)?;
    }
    sink.finish(&Chart {
        title: "Log bytes for each row",
        by: &["case"],
        form: Form::Bars {
            values: &["log_bytes_per_row"],
            unit: "bytes",
        },
    })
}

fn one(arguments: &Logvolume, case: Case, db: &Database, table: &Table) -> Result<Fields> {
    if case == Case::AutocommitUpdate {
        fill(db, table, arguments.table_rows)?;
    }
    let rows = match case {
        Case::RowByRow | Case::Bulk => arguments.rows,
        Case::AutocommitInsert | Case::AutocommitUpdate => arguments.transactions,
    };
    let bar = progress::bar(name_of(case), rows);
    let mut random = Random::new(7);
    let before = Counts::of(db);
    let begin = Instant::now();
    match case {
        Case::RowByRow => {
            let transaction = db.begin(Isolation::RepeatableRead)?;
            for n in 1..=rows {
                let value = arguments.value.of(n, &mut random);
                transaction.insert(table, &n.to_be_bytes(), &value)?;
                if n % 16384 == 0 {
                    bar.inc(16384);
                }
            }
            transaction.commit()?;
        }
        Case::Bulk => {
            let transaction = db.begin(Isolation::RepeatableRead)?;
            let rows = (1..=rows).map(|n| {
                if n % 16384 == 0 {
                    bar.inc(16384);
                }
                (n.to_be_bytes(), arguments.value.of(n, &mut random))
            });
            transaction.insert_many(table, rows)?;
            transaction.commit()?;
        }
        Case::AutocommitInsert => {
            for n in 1..=rows {
                let transaction = db.begin(Isolation::RepeatableRead)?;
                let value = arguments.value.of(n, &mut random);
                transaction.insert(table, &n.to_be_bytes(), &value)?;
                transaction.commit()?;
                bar.inc(1);
            }
        }
        Case::AutocommitUpdate => {
            let mut column = [0; COLUMN];
            for _ in 0..rows {
                let transaction = db.begin(Isolation::RepeatableRead)?;
                random.fill_text(&mut column);
                let key = random.below(arguments.table_rows).to_be_bytes();
                transaction.update(table, &key, &column)?;
                transaction.commit()?;
                bar.inc(1);
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let log_bytes = Counts::of(db).since(&before).get("log_bytes");
    bar.finish_and_clear();
    Ok(Fields::of("logvolume")
        .with("case", name_of(case))
        .with("rows", rows)
        .with("log_bytes", log_bytes)
        .with("log_bytes_per_row", rounded(ratio(log_bytes, rows), 2))
        .with("seconds", rounded(seconds, 3))
        .with("rows_per_s", rounded(rows as f64 / seconds, 0)))
}

/// Fills the table of `autocommit_update`, and writes it to disk.
fn fill(db: &Database, table: &Table, rows: u64) -> Result<()> {
    let bar = progress::bar("filling the table", rows);
    crate::clients::fill(db, table, rows, COLUMN, &bar)?;
    db.checkpoint()?;
    bar.finish_and_clear();
    Ok(())
}
