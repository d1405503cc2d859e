//! `bench recovery` and `bench open`: how long a database takes to open, after a kill and after a
//! close.
//!
//! | file | subject |
//! |---|---|
//! | `child` | the process that writes redo log and is killed |
//! | `case` | what it does, and what is done after the recovery |
//! | `open` | a large database that was closed in order |

mod case;
pub mod child;
pub mod open;

use super::{Common, at_least, published};
use crate::chart::{Chart, Form};
use crate::database::{open_or_create, parse_size};
use crate::failure::{Failure, Result};
use crate::output::{Output, name_of, rounded};
use crate::progress;
use crate::sink::{Fields, Sink};
use crate::{clients, memory};
use case::Case;
use clap::Args;
use inkstone::{Database, Isolation, Options, Recovered};
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments of `bench recovery`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Recovery from so much redo log: a child process changes rows until recovery would have to read so much log, and is \
killed in the middle (SIGKILL). The database is opened then. What the child wrote and the operating system holds is \
made durable and forgotten first, as after every kill: that time counts.

case says what the child did: updates, of random rows with 120-byte values; narrow, the same with 16-byte values of \
which 8 change, about 60 bytes of log each with their COMMIT; inserts, of rows of 8 + 16 bytes, 200 a transaction; \
wide, of rows of 1,793 random bytes, 50 a transaction. With --loser-rows a transaction that has inserted so many \
rows is open at the kill; with --tables so many tables more were there, of which one row each was changed.

All times count from the call: open_ms until transactions can begin (seconds is the same), first_read_ms until a row \
was read by key, first_commit_ms until a change was committed durably, redo_done_ms until every page is as the log \
says (with --set redo_before_open=on opening does all of that), rollback_done_ms until what was unfinished is undone. \
normal_rate is what the child did a second (rows), rate_after_10_s what the same clients do a second from --seconds \
(10) after the call on. log_bytes is what recovery read, mib_per_s that over seconds, scan_mb_per_s that over scan_s, \
in millions of bytes: how fast the log was read and sorted. pages_left is how many pages were redone behind the \
opening. peak_memory is the most that was resident until opening was done.

The log may be sixteen times --redo-size, and the buffer pool holds the table: so no page is written, and no \
checkpoint takes the work away, before the kill. --pool-after-kill opens with a smaller one: the data is larger than \
memory then.")]
pub struct Recovery {
    /// What the killed process does
    #[arg(
        long = "case",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "updates"
    )]
    cases: Vec<Case>,
    /// Bytes of log that recovery has to read, at least
    #[arg(long = "redo-size", alias = "redo", default_value = "1g", value_name = "BYTES", value_parser = parse_size)]
    redo: u64,
    /// Rows of the table
    #[arg(long, default_value = "4000000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Rows that an unfinished transaction has inserted
    #[arg(long, default_value = "0", value_name = "N", value_parser = parse_size)]
    loser_rows: u64,
    /// Other tables, of a row each, which the killed process has changed
    #[arg(long, default_value = "0", value_name = "N", value_parser = parse_size)]
    tables: u64,
    /// Buffer pool of the opening; by default the killed process's, which is to hold the table
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pool_after_kill: Option<u64>,
    /// Clients of the child process
    #[arg(long, default_value_t = 4, value_name = "N")]
    clients: u64,
    /// Times that a process is killed and the database opened, for each case
    #[arg(long, default_value_t = 1, value_name = "N")]
    rounds: u64,
    /// Seconds after which the rate is measured; 0 leaves it out
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

/// The table that is filled, changed, opened.
const TABLE: &str = "t";
/// The table of the unfinished transaction.
const LOSER_TABLE: &str = "loser";

/// One of the other tables.
fn other_table(number: u64) -> String {
    format!("other{number}")
}

/// Between looks at what is left of redo.
const LOOK: Duration = Duration::from_millis(5);
/// Seconds for which the rate is measured.
const RATE_S: f64 = 2.0;

pub fn run(arguments: &Recovery, output: &Output) -> Result<()> {
    at_least("redo-size", arguments.redo, 1)?;
    at_least("rows", arguments.rows, 1)?;
    at_least("clients", arguments.clients, 1)?;
    at_least("rounds", arguments.rounds, 1)?;
    let columns = [
        "case",
        "round",
        "log_bytes",
        "open_ms",
        "first_read_ms",
        "first_commit_ms",
        "normal_rate",
        "rate_after_10_s",
        "redo_done_ms",
        "rollback_done_ms",
        "scan_mb_per_s",
        "apply_s",
        "records",
        "losers",
        "peak_memory",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    for &case in &arguments.cases {
        one_case(arguments, case, &mut sink)?;
    }
    sink.finish(&Chart {
        title: "Recovery after a kill",
        by: &["case", "round"],
        form: Form::Bars {
            values: &["seconds", "scan_s", "apply_s"],
            unit: "seconds",
        },
    })
}

fn one_case(arguments: &Recovery, case: Case, sink: &mut Sink<'_>) -> Result<()> {
    let work = arguments.common.work("recovery")?;
    let directory = work.path().join("database");
    let options = arguments.common.engine.over(Options {
        log_file_size: (16 * arguments.redo).max(64 << 20),
        buffer_pool_dump_at_shutdown: false,
        ..published()
    })?;
    let db = open_or_create(&directory, options.clone())?;
    let table = db.create_table(TABLE, &[])?;
    let bar = progress::bar("filling the table", arguments.rows);
    clients::fill(&db, &table, arguments.rows, case.value_bytes(), &bar)?;
    bar.finish_and_clear();
    drop(table);
    db.create_table(LOSER_TABLE, &[])?;
    let bar = progress::bar("making tables", arguments.tables);
    for number in 0..arguments.tables {
        db.create_table(&other_table(number), &[])?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    db.close()?;
    for round in 1..=arguments.rounds {
        let killed = child::run_and_kill(arguments, case, &options, &directory)?;
        let mut options = options.clone();
        if let Some(bytes) = arguments.pool_after_kill {
            options.buffer_pool_size = bytes;
        }
        let fields = Fields::of("recovery")
            .with("case", name_of(case))
            .with("round", round)
            .with("rows", arguments.rows)
            .with("loser_rows", arguments.loser_rows)
            .with("tables", arguments.tables)
            .with("clients", arguments.clients)
            .with("normal_rate", rounded(killed.rate, 0));
        sink.take(one(arguments, case, fields, &options, &directory)?);
    }
    Ok(())
}

/// Opens what the killed process left.
fn one(
    arguments: &Recovery,
    case: Case,
    fields: Fields,
    options: &Options,
    directory: &Path,
) -> Result<Fields> {
    memory::forget_peak();
    let begin = Instant::now();
    let milliseconds = || rounded(begin.elapsed().as_secs_f64() * 1000.0, 1);
    let db = open_or_create(directory, options.clone())?;
    let (open_ms, peak) = (milliseconds(), memory::peak_bytes());
    let table = db.table(TABLE)?;
    let key = (arguments.rows / 2).to_be_bytes();
    let transaction = db.begin(Isolation::ReadCommitted)?;
    if transaction.get(&table, &key)?.is_none() {
        return Err(Failure::Check("a row that was loaded is gone".to_owned()));
    }
    let first_read_ms = milliseconds();
    transaction.update(&table, &key, &vec![b'x'; case.value_bytes()])?;
    transaction.commit()?;
    let first_commit_ms = milliseconds();
    let fields = fields
        .with("open_ms", open_ms)
        .with("first_read_ms", first_read_ms)
        .with("first_commit_ms", first_commit_ms)
        .with("peak_memory", peak);
    let (rate, redo_done_ms, rollback_done_ms) = std::thread::scope(|scope| {
        // What is left of large transactions is undone behind the opening.
        let rollback = scope.spawn(|| db.finish_rollbacks().map(|()| milliseconds()));
        // Pages are redone when they are read, and behind that.
        let redo = scope.spawn(|| {
            while db.redo_left().pages > 0 {
                std::thread::sleep(LOOK);
            }
            milliseconds()
        });
        let rate = rate_later(arguments, case, &db, begin);
        // Nothing can be left then but a page that cannot be redone.
        db.finish_redo()?;
        let panicked = |_| Failure::Check("what waits for the rollback panicked".to_owned());
        let rollback_done_ms = rollback.join().map_err(panicked)??;
        Ok::<_, Failure>((rate?, redo.join().unwrap_or(f64::NAN), rollback_done_ms))
    })?;
    let fields = fields
        .with("redo_done_ms", redo_done_ms)
        .with("rollback_done_ms", rollback_done_ms)
        .with("rate_after_10_s", rate);
    let fields = describe(fields, &db, open_ms / 1000.0)?;
    let fields = memory::describe(fields, options);
    drop(table);
    db.close()?;
    Ok(fields)
}

/// What the clients do a second, so many seconds after `begin`.
fn rate_later(
    arguments: &Recovery,
    case: Case,
    db: &Database,
    begin: Instant,
) -> Result<Option<f64>> {
    if arguments.seconds <= 0.0 {
        return Ok(None);
    }
    let work = |seconds: f64| case.work(db, arguments.rows, arguments.clients, seconds, &|_| {});
    let until_then = arguments.seconds - begin.elapsed().as_secs_f64();
    if until_then > 0.0 {
        work(until_then)?;
    }
    Ok(Some(rounded(work(RATE_S)?.per_second(), 0)))
}

fn describe(fields: Fields, db: &Database, seconds: f64) -> Result<Fields> {
    let Recovered {
        redo,
        losers,
        rows_undone,
        rows_to_undo,
        torn_pages_repaired,
        ..
    } =
        db.open_report().recovered.clone().ok_or_else(|| {
            Failure::Check("the killed process left nothing to recover".to_owned())
        })?;
    let log = redo.bytes_scanned;
    let scan_s = redo.scan_ms as f64 / 1000.0;
    Ok(fields
        .with("log_bytes", log)
        .with("seconds", rounded(seconds, 3))
        .with(
            "mib_per_s",
            rounded(log as f64 / f64::from(1 << 20) / seconds, 1),
        )
        .with("scan_s", scan_s)
        .with(
            "scan_mb_per_s",
            rounded(log as f64 / 1e6 / scan_s.max(0.001), 1),
        )
        .with("apply_s", redo.apply_ms as f64 / 1000.0)
        .with("batches", redo.batches)
        .with("records", redo.records)
        .with("records_applied", redo.records_applied)
        .with("pages_applied", redo.pages_applied)
        .with("pages_read", redo.pages_read)
        .with("pages_left", redo.pages_left)
        .with("torn_pages_repaired", torn_pages_repaired)
        .with("losers", losers)
        .with("rows_undone", rows_undone + rows_to_undo))
}
