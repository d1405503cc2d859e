//! `bench commit`.

use super::{Common, at_least, open};
use crate::chart::{Chart, Form};
use crate::counts::Counts;
use crate::database::{open_or_create, parse, parse_size};
use crate::device::Written;
use crate::failure::Result;
use crate::output::{Output, ratio, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::{clients, memory, probe};
use clap::Args;
use inkstone::internals::options::LogWrite;
use inkstone::{Database, Durability, Isolation, Options, Table};
use std::path::Path;

/// Arguments of `bench commit`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Single-row updates of random rows, memory-resident: clients are threads, each transaction changes one \
120-byte row of one of the tables and commits (MDEV-28766). Every combination of the options is run; each \
takes a list, so that --flush-log-at-trx-commit 1 --log-write sync --clients 1,16,64 is a part of the matrix.

device_syncs_per_s is what one thread gets by appending 4 KiB and syncing over and over: to a file on the same \
file system, opened as these options open the log, right before and right after each run. \
commits_per_device_sync is commits_per_s over it. worst_second and median_second are commits; they are given \
for runs of 2 s and more. memory_ratio is peak resident memory over buffer pool + log buffer + version store. \
device_bytes_written, and for each commit device_bytes_written_per_commit, is what the kernel counted for the \
device, of all processes; bytes_written_per_commit is what the engine wrote, split by class of file.")]
pub struct Commit {
    /// 1: commit waits for the sync; 2: for the write; 0: for neither
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,0", value_parser = parse::<Durability>)]
    flush_log_at_trx_commit: Vec<Durability>,
    /// on: the log goes through the page cache; off: O_DIRECT
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "on,off", value_parser = parse::<bool>)]
    log_file_buffering: Vec<bool>,
    /// sync or async (io_uring)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sync,async", value_parser = parse::<LogWrite>)]
    log_write: Vec<LogWrite>,
    /// Threads
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "20,40,80,160,320,640"
    )]
    clients: Vec<u64>,
    /// Seconds for each combination
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    /// Tables
    #[arg(long, default_value_t = 8, value_name = "N")]
    tables: u64,
    /// Rows of each table
    #[arg(long, default_value = "100000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    #[command(flatten)]
    common: Common,
}

/// Bytes of a row's value.
const VALUE: usize = 120;

pub fn run(arguments: &Commit, output: &Output) -> Result<()> {
    at_least("tables", arguments.tables, 1)?;
    at_least("rows", arguments.rows, 1)?;
    for clients in &arguments.clients {
        at_least("clients", *clients, 1)?;
    }
    let columns = [
        "flush_log_at_trx_commit",
        "log_file_buffering",
        "log_write",
        "clients",
        "commits_per_s",
        "p50_us",
        "p99_us",
        "p999_us",
        "max_us",
        "log_bytes_per_commit",
        "commits_per_sync",
        "device_syncs_per_s",
        "commits_per_device_sync",
        "worst_over_median",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("commit")?;
    let directory = work.path().join("database");
    let base = arguments.common.options()?;
    create(arguments, &directory, base.clone())?;
    for flush in &arguments.flush_log_at_trx_commit {
        for buffering in &arguments.log_file_buffering {
            for write in &arguments.log_write {
                let options = Options {
                    flush_log_at_trx_commit: *flush,
                    log_file_buffering: *buffering,
                    log_write: *write,
                    ..base.clone()
                };
                let db = open(&directory, options)?;
                let tables = warm(&db, arguments)?;
                for clients in &arguments.clients {
                    sink.take(one(arguments, &db, &tables, *clients, work.path())?);
                }
                drop(tables);
                db.close()?;
            }
        }
    }
    sink.finish(&Chart {
        title: "Commits a second, by clients",
        by: &["flush_log_at_trx_commit", "log_file_buffering", "log_write"],
        form: Form::Lines {
            x: "clients",
            y: "commits_per_s",
        },
    })
}

fn table_name(n: u64) -> String {
    format!("t{n}")
}

fn create(arguments: &Commit, directory: &Path, options: Options) -> Result<()> {
    let db = open_or_create(directory, options)?;
    let bar = progress::bar("filling tables", arguments.tables * arguments.rows);
    for n in 0..arguments.tables {
        let table = db.create_table(&table_name(n), &[])?;
        clients::fill(&db, &table, arguments.rows, VALUE, &bar)?;
    }
    bar.finish_and_clear();
    Ok(db.close()?)
}

/// Opens the tables, and reads them so that they are in memory.
fn warm(db: &Database, arguments: &Commit) -> Result<Vec<Table>> {
    let bar = progress::bar("reading tables", arguments.tables);
    let transaction = db.begin(Isolation::ReadCommitted)?;
    let mut tables = Vec::new();
    for n in 0..arguments.tables {
        let table = db.table(&table_name(n))?;
        let mut rows = transaction.range(&table, ..)?;
        while rows.next_row()?.is_some() {}
        tables.push(table);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(tables)
}

fn one(
    arguments: &Commit,
    db: &Database,
    tables: &[Table],
    client_count: u64,
    probed: &Path,
) -> Result<Fields> {
    let options = db.options();
    let probe = || probe::syncs_per_s(probed, options, (arguments.seconds / 8.0).min(0.5));
    let device_before = probe()?;
    let written = Written::begin(probed);
    let before = Counts::of(db);
    let what = format!(
        "commit: setting {}, {client_count} clients",
        options.flush_log_at_trx_commit
    );
    let run = clients::run(
        client_count,
        arguments.seconds,
        what,
        |random| Ok((random, [0; VALUE])),
        |(random, value)| {
            let table = &tables[random.below(tables.len() as u64) as usize];
            let key = random.below(arguments.rows).to_be_bytes();
            random.fill_text(value);
            let transaction = db.begin(Isolation::ReadCommitted)?;
            transaction.update(table, &key, &value[..])?;
            transaction.commit()?;
            Ok(1)
        },
    )?;
    let counts = Counts::of(db).since(&before);
    let written = written.bytes();
    let device = (device_before + probe()?) / 2.0;
    let fields = Fields::of("commit")
        .with(
            "flush_log_at_trx_commit",
            setting(options.flush_log_at_trx_commit),
        )
        .with("log_file_buffering", options.log_file_buffering)
        .with("log_write", options.log_write.to_string())
        .with("clients", client_count)
        .with("seconds", rounded(run.seconds, 2))
        .with("commits_per_s", rounded(run.per_second(), 0));
    let fields = run
        .describe(fields)
        .with(
            "log_bytes_per_commit",
            rounded(ratio(counts.get("log_bytes"), run.operations), 1),
        )
        .with(
            "log_bytes_written_per_commit",
            rounded(ratio(counts.get("log_bytes_written"), run.operations), 1),
        )
        .with(
            "commits_per_sync",
            rounded(ratio(run.operations, counts.get("log_syncs")), 2),
        )
        .with("device_syncs_per_s", rounded(device, 0))
        .with(
            "commits_per_device_sync",
            rounded(run.per_second() / device, 2),
        )
        .with("checkpoints", counts.get("checkpoints"))
        .with("pages_written", counts.get("pages_written"))
        .with(
            "bytes_written_per_commit",
            counts.bytes_written_for(run.operations),
        )
        .with("device_bytes_written", written)
        .with(
            "device_bytes_written_per_commit",
            written.map(|bytes| rounded(ratio(bytes, run.operations), 1)),
        );
    Ok(memory::describe(fields, options))
}

/// The number that the option has.
fn setting(durability: Durability) -> u8 {
    match durability {
        Durability::Lazy => 0,
        Durability::Sync => 1,
        Durability::Write => 2,
    }
}
