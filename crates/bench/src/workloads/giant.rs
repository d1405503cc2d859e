//! `bench giant`.

use super::{Common, at_least, open, remove};
use crate::chart::{Chart, Form};
use crate::clients;
use crate::counts::Counts;
use crate::database::parse_size;
use crate::failure::{Failure, Result};
use crate::memory;
use crate::output::{Output, name_of, ratio, rounded};
use crate::progress;
use crate::random::Random;
use crate::sink::Fields;
use crate::statistics::median;
use clap::{Args, ValueEnum};
use inkstone::{Database, Durability, Isolation, Options, Table, Transaction};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `bench giant`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
One transaction whose log is many times what the log holds, and its rollback:

  insert_ascending  rows of an 8-byte key and 120 bytes of random text, by ascending keys
  insert_random     the same in random order, each with a row of a secondary tree
  update            every row of a table, by ascending keys: another text
  delete            every row of a table, by ascending keys
  delete_range      the same rows with one call of Transaction::delete_range (both rates are that of all rows)
  idle              insert_ascending, then the transaction does nothing while others update single rows of a small \
table, a transaction each; in turns with the same updates without it

rows is what takes --times the log's size, going by what a row of the case takes without more than its own undo; \
--rows sets it. first_tenth_rows_per_s and last_tenth_rows_per_s are the rates of the first and the last tenth of \
the rows. others_rows_per_s is the median over the rounds of idle, others_rows_per_s_alone the same without the \
transaction. log_bytes is what was appended until the rollback began (in idle: by the last giant alone). \
log_files_bytes is the largest size of the log's files, undo_bytes the largest value of the gauge of that name, 0 in \
an engine without it; both are looked at every 10 ms, until the end of the rollback. peak_memory is the most that \
was resident, memory_ratio that over buffer pool + log buffer + version store. rollback_s ends when the rollback \
has returned. Afterwards the table must be as it was.

A small log makes pages be written more often the more of them there are, whatever the size of transactions: compare the rates with those of --rows-per-transaction.")]
pub struct Giant {
    /// What the transaction's log is, in sizes of the log
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "10")]
    times: Vec<u64>,
    /// Rows of the transaction, instead of --times
    #[arg(long, value_name = "N", value_parser = parse_size)]
    rows: Option<u64>,
    /// Commits behind as many rows each: what the same rows cost without a giant. Nothing is
    /// rolled back then, and idle and delete_range are left out
    #[arg(long, value_name = "N", value_parser = parse_size)]
    rows_per_transaction: Option<u64>,
    /// Cases to run, all by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Case::InsertAscending, Case::InsertRandom, Case::Update, Case::Delete, Case::DeleteRange, Case::Idle])]
    case: Vec<Case>,
    /// Threads of the others, in the case idle
    #[arg(long, default_value = "2", value_name = "N")]
    clients: u64,
    /// Seconds that the others work in each turn
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    /// Turns of the case idle with the transaction, and as many without
    #[arg(long, default_value = "3", value_name = "N")]
    rounds: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    InsertAscending,
    InsertRandom,
    Update,
    Delete,
    DeleteRange,
    Idle,
}

impl Case {
    /// Bytes of log that a row takes, with its own undo and no more: decides how many rows there
    /// are. Measured with a log that held the transaction (2026-11-24); a constant, so that two
    /// builds do the same work.
    fn log_bytes_per_row(self) -> u64 {
        match self {
            Self::InsertAscending | Self::Idle => 129,
            Self::InsertRandom => 281,
            Self::Update => 273,
            // The range takes less: as many rows as the case before.
            Self::Delete | Self::DeleteRange => 22,
        }
    }

    /// Whether the rows are there before the transaction begins.
    fn has_rows(self) -> bool {
        matches!(self, Self::Update | Self::Delete | Self::DeleteRange)
    }
}

/// Bytes of a row's text.
const TEXT: usize = 120;
/// What a text of the giant begins with, and no other.
const MARK: u8 = b'!';
/// Rows of the table that the others update.
const OTHERS_ROWS: u64 = 100_000;
const SECONDARY: &str = "by_text";

pub fn run(arguments: &Giant, output: &Output) -> Result<()> {
    for times in &arguments.times {
        at_least("times", *times, 1)?;
    }
    at_least("rows", arguments.rows.unwrap_or(10), 10)?;
    at_least("clients", arguments.clients, 1)?;
    at_least(
        "rows_per_transaction",
        arguments.rows_per_transaction.unwrap_or(1),
        1,
    )?;
    at_least("rounds", arguments.rounds, 1)?;
    let columns = [
        "case",
        "rows",
        "log_file_size",
        "first_tenth_rows_per_s",
        "last_tenth_rows_per_s",
        "giant_s",
        "others_rows_per_s",
        "others_rows_per_s_alone",
        "peak_memory",
        "log_bytes",
        "log_files_bytes",
        "undo_bytes",
        "rollback_s",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("giant")?;
    let directory = work.path().join("database");
    let times = match arguments.rows {
        None => &arguments.times[..],
        Some(_) => &[1],
    };
    for &times in times {
        // Those that have nothing to commit in between.
        let is_one = |case: Case| matches!(case, Case::Idle | Case::DeleteRange);
        let has_giant = |case: &&Case| arguments.rows_per_transaction.is_none() || !is_one(**case);
        for case in arguments.case.iter().filter(has_giant) {
            sink.take(one(arguments, *case, times, &directory)?);
            remove(&directory)?;
        }
    }
    sink.finish(&Chart {
        title: "Rows a second of a giant transaction, first and last tenth",
        by: &["case", "rows"],
        form: Form::Bars {
            values: &["first_tenth_rows_per_s", "last_tenth_rows_per_s"],
            unit: "rows a second",
        },
    })
}

/// A database with the tables of a case.
struct Bench {
    db: Database,
    table: Table,
    case: Case,
    rows: u64,
    rows_per_transaction: Option<u64>,
    /// Where the log's files are.
    log: PathBuf,
}

/// What a giant transaction did.
#[derive(Default)]
struct Done {
    first_tenth: f64,
    last_tenth: f64,
    /// All of it.
    seconds: f64,
    log_bytes: u64,
}

/// The largest values that were seen.
#[derive(Clone, Copy, Default)]
struct Largest {
    log_files: u64,
    undo: u64,
}

fn one(arguments: &Giant, case: Case, times: u64, directory: &Path) -> Result<Fields> {
    let options = arguments.common.engine.over(Options {
        buffer_pool_size: 256 << 20,
        log_file_size: 64 << 20,
        flush_log_at_trx_commit: Durability::Lazy,
        ..Options::default()
    })?;
    let rows = arguments
        .rows
        .unwrap_or(options.log_file_size * times / case.log_bytes_per_row());
    let db = open(directory, options.clone())?;
    let bench = Bench {
        table: db.create_table("giant", &[SECONDARY])?,
        db,
        case,
        rows,
        rows_per_transaction: arguments.rows_per_transaction,
        log: directory.join("log"),
    };
    if case.has_rows() {
        bench.fill(&bench.table, rows)?;
    }
    memory::forget_peak();
    let (mut others, mut alone) = (Vec::new(), Vec::new());
    let (done, rollback_s, largest) = match case {
        Case::Idle => bench.idle(arguments, &mut others, &mut alone)?,
        _ => {
            let (result, largest) = bench.watched(|| {
                let (txn, done) = bench.giant()?;
                let rollback_s = match bench.rows_per_transaction {
                    None => Some(bench.roll_back(txn)?),
                    Some(_) => txn.commit().map(|()| None)?,
                };
                Ok((done, rollback_s))
            })?;
            (result.0, result.1, largest)
        }
    };
    let (peak, budget) = (memory::peak_bytes(), memory::budget_bytes(&options));
    let ratio = peak.map(|peak| rounded(ratio(peak, budget), 3));
    if rollback_s.is_some() {
        bench.check()?;
    }
    let Bench { db, table, .. } = bench;
    drop(table);
    db.close()?;
    let rate = |rates: &[f64]| (!rates.is_empty()).then(|| rounded(median(rates), 0));
    let fields = Fields::of("giant")
        .with("case", name_of(case))
        .with("rows", rows)
        .with("log_file_size", options.log_file_size)
        .with("first_tenth_rows_per_s", rounded(done.first_tenth, 0))
        .with("last_tenth_rows_per_s", rounded(done.last_tenth, 0))
        .with("giant_s", rounded(done.seconds, 4))
        .with("others_rows_per_s", rate(&others))
        .with("others_rows_per_s_alone", rate(&alone))
        .with("peak_memory", peak)
        .with("memory_budget_bytes", budget)
        .with("memory_ratio", ratio)
        .with("log_bytes", done.log_bytes)
        .with("log_files_bytes", largest.log_files)
        .with("undo_bytes", largest.undo)
        .with("rollback_s", rollback_s.map(|seconds| rounded(seconds, 3)))
        .with("rows_per_transaction", arguments.rows_per_transaction);
    Ok(fields)
}

impl Bench {
    /// Fills a table, and writes it to disk.
    fn fill(&self, table: &Table, rows: u64) -> Result<()> {
        let bar = progress::bar("filling the table", rows);
        clients::fill(&self.db, table, rows, TEXT, &bar)?;
        self.db.checkpoint()?;
        bar.finish_and_clear();
        Ok(())
    }

    /// All rows are deleted with one call.
    fn delete_range(&self) -> Result<(Transaction, Done)> {
        let txn = self.db.begin(Isolation::ReadCommitted)?;
        let before = Counts::of(&self.db);
        let begin = Instant::now();
        let deleted = txn.delete_range(&self.table, ..)?;
        let seconds = begin.elapsed().as_secs_f64();
        let rate = deleted as f64 / seconds;
        let done = Done {
            first_tenth: rate,
            last_tenth: rate,
            seconds,
            log_bytes: Counts::of(&self.db).since(&before).get("log_bytes"),
        };
        Ok((txn, done))
    }

    /// The transaction with all its rows, not ended.
    fn giant(&self) -> Result<(Transaction, Done)> {
        if self.case == Case::DeleteRange {
            return self.delete_range();
        }
        let bar = progress::bar(name_of(self.case), self.rows);
        let mut txn = self.db.begin(Isolation::ReadCommitted)?;
        let before = Counts::of(&self.db);
        let mut random = Random::new(5);
        let mut text = [0; TEXT];
        let begin = Instant::now();
        let tenth = self.rows / 10;
        let (mut first_end, mut last_begin) = (0.0, 0.0);
        for n in 0..self.rows {
            if n == tenth {
                first_end = begin.elapsed().as_secs_f64();
            }
            if n == self.rows - tenth {
                last_begin = begin.elapsed().as_secs_f64();
            }
            random.fill_text(&mut text);
            text[0] = MARK;
            self.change(&txn, n, &text)?;
            if self
                .rows_per_transaction
                .is_some_and(|rows| (n + 1).is_multiple_of(rows))
            {
                txn.commit()?;
                txn = self.db.begin(Isolation::ReadCommitted)?;
            }
            if n % 4096 == 4095 {
                bar.inc(4096);
            }
        }
        let end = begin.elapsed().as_secs_f64();
        bar.finish_and_clear();
        let done = Done {
            first_tenth: tenth as f64 / first_end,
            last_tenth: tenth as f64 / (end - last_begin),
            seconds: end,
            log_bytes: Counts::of(&self.db).since(&before).get("log_bytes"),
        };
        Ok((txn, done))
    }

    /// One row of the giant.
    fn change(&self, txn: &Transaction, n: u64, text: &[u8; TEXT]) -> Result<()> {
        let key = n.to_be_bytes();
        match self.case {
            Case::InsertAscending | Case::Idle => txn.insert(&self.table, &key, text)?,
            Case::InsertRandom => {
                // An odd factor: no two rows have one key.
                let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                txn.insert(&self.table, &key, text)?;
                let entry = [&text[1..17], &key].concat();
                txn.insert(self.table.tree(SECONDARY)?, &entry, b"")?;
            }
            Case::Update => {
                txn.update(&self.table, &key, text)?;
            }
            Case::Delete | Case::DeleteRange => {
                txn.delete(&self.table, &key)?;
            }
        }
        Ok(())
    }

    /// Rolls it back; the seconds that takes.
    fn roll_back(&self, txn: Transaction) -> Result<f64> {
        let bar = progress::spinner("rolling back");
        let begin = Instant::now();
        txn.rollback()?;
        let seconds = begin.elapsed().as_secs_f64();
        bar.finish_and_clear();
        Ok(seconds)
    }

    /// Turns without the giant and beside it, while it does nothing.
    fn idle(
        &self,
        arguments: &Giant,
        others: &mut Vec<f64>,
        alone: &mut Vec<f64>,
    ) -> Result<(Done, Option<f64>, Largest)> {
        let table = self.db.create_table("others", &[])?;
        self.fill(&table, OTHERS_ROWS)?;
        let (result, largest) = self.watched(|| {
            let mut last = (Done::default(), 0.0);
            for _ in 0..arguments.rounds {
                alone.push(self.others(arguments, &table, "without it")?);
                let (txn, done) = self.giant()?;
                others.push(self.others(arguments, &table, "beside it")?);
                last = (done, self.roll_back(txn)?);
                // What it leaves is not to be removed in the turn without it.
                self.db.purge()?;
                self.db.checkpoint()?;
            }
            Ok(last)
        })?;
        Ok((result.0, Some(result.1), largest))
    }

    /// Updates of single rows by the others; rows a second.
    fn others(&self, arguments: &Giant, table: &Table, what: &str) -> Result<f64> {
        let run = clients::run(
            arguments.clients,
            arguments.seconds,
            format!("others, {what}"),
            Ok,
            |random| {
                let mut text = [0; TEXT];
                random.fill_text(&mut text);
                let key = random.below(OTHERS_ROWS).to_be_bytes();
                let txn = self.db.begin(Isolation::ReadCommitted)?;
                txn.update(table, &key, &text)?;
                txn.commit()?;
                Ok(1)
            },
        )?;
        Ok(run.per_second())
    }

    /// Does something, and looks at log and undo meanwhile.
    fn watched<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Largest)> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut largest = Largest::default();
                loop {
                    let last = over.load(Ordering::Relaxed);
                    largest.log_files = largest.log_files.max(file_bytes(&self.log));
                    let metrics = self.db.metrics().into_iter();
                    let undo = metrics.filter(|metric| metric.name == "undo_file_bytes");
                    largest.undo = undo.fold(largest.undo, |most, metric| most.max(metric.value));
                    if last {
                        return largest;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            let done = work();
            over.store(true, Ordering::Relaxed);
            let largest = watch.join().map_err(|_| {
                Failure::Check("the thread that looks at the log panicked".to_owned())
            })?;
            Ok((done?, largest))
        })
    }

    /// The table is what it was before the transaction.
    fn check(&self) -> Result<()> {
        let expected = if self.case.has_rows() { self.rows } else { 0 };
        let txn = self.db.begin(Isolation::RepeatableRead)?;
        for tree in self.table.trees() {
            let expected = if tree.name() == SECONDARY {
                0
            } else {
                expected
            };
            let mut found = 0;
            let mut rows = txn.range(tree, ..)?;
            while let Some((key, text)) = rows.next_row()? {
                found += 1;
                if text.first() == Some(&MARK) {
                    return Err(Failure::Check(format!(
                        "row {key:?} of {} is the giant's, which was rolled back",
                        tree.name()
                    )));
                }
            }
            if found != expected {
                return Err(Failure::Check(format!(
                    "{} has {found} rows after the rollback, {expected} before it",
                    tree.name()
                )));
            }
        }
        Ok(())
    }
}

/// The sizes of the files in a directory, and not of those below it.
fn file_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .sum()
}
