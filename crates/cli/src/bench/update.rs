//! `bench update`.

use super::sink::{Fields, Sink};
use super::{Common, at_least, clients, probe};
use crate::counts::Counts;
use crate::database::{open_or_create, parse_size};
use crate::failure::{Failure, Result};
use crate::output::{Output, ratio, rounded};
use crate::progress;
use clap::Args;
use inkstone::options::{FlushMethod, OptionValue};
use inkstone::{Database, Durability, Isolation, Options};
use std::path::{Path, PathBuf};

/// Arguments of `bench update`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Update of one random row by key and commit, data larger than the buffer pool (MySQL bugs 45892 and 68555): \
every combination of flush method, buffer pool instances and clients. Each option takes a list. The table is \
loaded once; each combination of flush method and instances opens the database anew, and the pool is filled \
by the run itself: let it run long enough (--seconds, --warmup).

Bytes written for each update are split by class of file. device_reads_per_s is what the device gives for \
random page reads at depth 32, measured in the same run: one read for each miss is the floor.")]
pub struct Update {
    /// O_DIRECT, O_DIRECT_NO_FSYNC, fsync or O_DSYNC
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "O_DIRECT,O_DIRECT_NO_FSYNC", value_parser = flush_method)]
    flush_method: Vec<FlushMethod>,
    /// Threads
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "8,16,32,64,128,256"
    )]
    clients: Vec<u64>,
    /// Partitions of the buffer pool
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,8"
    )]
    buffer_pool_instances: Vec<u64>,
    /// Bytes of the buffer pool
    #[arg(long, default_value = "256m", value_name = "BYTES", value_parser = parse_size)]
    buffer_pool_size: u64,
    /// What a commit waits for: 1, 2 or 0 (published: 2)
    #[arg(long, default_value = "2", value_name = "SETTING", value_parser = durability)]
    flush_log_at_trx_commit: Durability,
    /// Rows; with values of 180 bytes 7,000,000 take 1.4 GB
    #[arg(long, default_value = "7000000", value_name = "N", value_parser = parse_size)]
    rows: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 180, value_name = "N")]
    value_bytes: usize,
    /// Seconds that are measured, for each combination
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    /// Seconds before, for each opening of the database
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    warmup: f64,
    #[command(flatten)]
    common: Common,
}

fn flush_method(text: &str) -> Result<FlushMethod, String> {
    FlushMethod::parse(text).map_err(|e| format!("expected {e}"))
}

fn durability(text: &str) -> Result<Durability, String> {
    Durability::parse(text).map_err(|e| format!("expected {e}"))
}

pub fn run(arguments: &Update, output: &Output) -> Result<()> {
    at_least("rows", arguments.rows, 1)?;
    for clients in &arguments.clients {
        at_least("clients", *clients, 1)?;
    }
    let work = arguments.common.work("update")?;
    let columns = [
        "flush_method",
        "buffer_pool_instances",
        "clients",
        "updates_per_s",
        "p50_us",
        "p99_us",
        "max_us",
        "log_bytes_per_update",
        "data_bytes_per_update",
        "doublewrite_bytes_per_update",
        "pages_read",
        "reads_per_device_read",
        "worst_over_median",
    ];
    let mut sink = Sink::new(output, &columns);
    let directory = work.path().join("database");
    let base = arguments.common.engine.over(Options {
        buffer_pool_size: arguments.buffer_pool_size,
        log_file_size: 1 << 30,
        flush_log_at_trx_commit: arguments.flush_log_at_trx_commit,
        buffer_pool_dump_at_shutdown: false,
        ..Options::default()
    })?;
    let file = load(arguments, &directory, base.clone())?;
    for method in &arguments.flush_method {
        for instances in &arguments.buffer_pool_instances {
            let options = Options {
                flush_method: *method,
                buffer_pool_instances: *instances,
                ..base.clone()
            };
            let db = open_or_create(&directory, options)?;
            let most = arguments.clients.iter().copied().max().unwrap_or(1);
            if arguments.warmup > 0.0 {
                updates(arguments, &db, most, arguments.warmup, "warming up")?;
            }
            for client_count in &arguments.clients {
                sink.take(one(arguments, &db, *client_count, &file)?);
            }
            db.close()?;
        }
    }
    sink.finish();
    Ok(())
}

/// Fills the table; returns its file.
fn load(arguments: &Update, directory: &Path, options: Options) -> Result<PathBuf> {
    let db = open_or_create(directory, options)?;
    let table = db.create_table("t", &[])?;
    let bar = progress::bar("filling the table", arguments.rows);
    clients::fill(&db, &table, arguments.rows, arguments.value_bytes, &bar)?;
    bar.finish_and_clear();
    let definitions = db.definitions()?;
    let space = definitions.iter().find(|t| t.name == "t").map(|t| t.space);
    drop(table);
    db.close()?;
    let space = space.ok_or_else(|| Failure::Check("the table is gone".to_owned()))?;
    Ok(crate::inspect::read::tablespace_path(directory, space))
}

fn updates(
    arguments: &Update,
    db: &Database,
    client_count: u64,
    seconds: f64,
    what: &str,
) -> Result<clients::Run> {
    let table = db.table("t")?;
    clients::run(
        client_count,
        seconds,
        format!("{what}: {client_count} clients"),
        |random| Ok((random, vec![0; arguments.value_bytes])),
        |(random, value)| {
            let key = random.below(arguments.rows).to_be_bytes();
            random.fill_text(value);
            let transaction = db.begin(Isolation::ReadCommitted)?;
            transaction.update(&table, &key, value)?;
            transaction.commit()?;
            Ok(1)
        },
    )
}

fn one(arguments: &Update, db: &Database, client_count: u64, file: &Path) -> Result<Fields> {
    let options = db.options();
    let page_size = options.page_size as usize;
    let device = probe::reads_per_s(file, page_size, (arguments.seconds / 10.0).min(1.0))?;
    let before = Counts::of(db);
    let run = updates(arguments, db, client_count, arguments.seconds, "updating")?;
    let counts = Counts::of(db).since(&before);
    let per_update = |name: &str| rounded(ratio(counts.get(name), run.operations), 1);
    let reads_per_s = counts.get("pages_read") as f64 / run.seconds;
    let fields = Fields::of("update")
        .with("flush_method", options.flush_method.to_string())
        .with("clients", client_count)
        .with("buffer_pool_instances", options.buffer_pool_instances)
        .with("buffer_pool_size", options.buffer_pool_size)
        .with("rows", arguments.rows)
        .with("seconds", rounded(run.seconds, 2))
        .with("updates_per_s", rounded(run.per_second(), 0));
    Ok(run
        .describe(fields)
        .with("log_bytes_per_update", per_update("log_bytes_written"))
        .with("data_bytes_per_update", per_update("page_bytes_written"))
        .with(
            "doublewrite_bytes_per_update",
            per_update("doublewrite_bytes"),
        )
        .with("pages_read", counts.get("pages_read"))
        .with("pages_written", counts.get("pages_written"))
        .with("doublewrite_pages", counts.get("doublewrite_pages"))
        .with(
            "page_writes_per_page_flushed",
            rounded(
                ratio(
                    counts.get("pages_written") + counts.get("doublewrite_pages"),
                    counts.get("pages_written"),
                ),
                3,
            ),
        )
        .with("buffer_frame_waits", counts.get("buffer_frame_waits"))
        .with("checkpoint_waits", counts.get("checkpoint_waits"))
        .with("device_reads_per_s", rounded(device, 0))
        .with(
            "reads_per_device_read",
            rounded(reads_per_s / device.max(1.0), 3),
        ))
}
