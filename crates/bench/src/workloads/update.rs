//! `bench update`.

use super::layout::{self, Layout, Loaded};
use super::{Common, at_least, open, published};
use crate::chart::{Chart, Form};
use crate::counts::Counts;
use crate::database::{open_or_create, parse, parse_size};
use crate::device::Written;
use crate::failure::{Failure, Result};
use crate::output::{Output, bytes, ratio, rounded};
use crate::progress;
use crate::sink::Fields;
use crate::values::{Chooser, Content, Distribution};
use crate::{clients, memory, probe};
use clap::Args;
use inkstone::internals::options::FlushMethod;
use inkstone::{Database, Durability, Isolation, Options};
use std::path::{Path, PathBuf};

/// Arguments of `bench update`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Update of one random row by key and commit, data larger than the buffer pool (MySQL bugs 45892 and 68555): \
every combination of flush method, buffer pool instances and clients. Each option takes a list. The table is \
loaded once; each combination of flush method and instances opens the database anew and warms up before \
the first number of clients.

The data is at least five times the buffer pool, or nearly every update would find its page in memory: by \
default as many rows are loaded as that takes, and --rows with less is refused.

A commit waits until its log is written, not synced, and the log goes through the page cache, as in the \
published runs; --flush-log-at-trx-commit 1 and --set log_file_buffering=off change that.

bytes_written_per_update is split by class of file. reads_per_device_read is pages_read a second over \
device_reads_per_s: what the device gives for random reads of pages of the same file at depth 32, past the \
page cache, right before and right after each run. One read a miss is the floor of the workload. Data files \
are read and written past the page cache as well, unless the flush method is fsync or O_DSYNC: then \
data_page_cache is true, memory serves reads that the device would have to serve, and the ratio says \
nothing of the device.

--layout compares how pages lie in their file, each in a database of its own: with --turns they are \
measured by turns, so that what else the machine does falls on all of them. data_bytes has the place map \
of a placed table in it.")]
pub struct Update {
    /// O_DIRECT, O_DIRECT_NO_FSYNC, fsync or O_DSYNC
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "O_DIRECT,O_DIRECT_NO_FSYNC", value_parser = parse::<FlushMethod>)]
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
    #[arg(long, default_value = "2", value_name = "SETTING", value_parser = parse::<Durability>)]
    flush_log_at_trx_commit: Durability,
    /// Rows; by default as many as make 5.5 times the buffer pool
    #[arg(long, value_name = "N", value_parser = parse_size)]
    rows: Option<u64>,
    /// Bytes of a value
    #[arg(long, default_value_t = 180, value_name = "N")]
    value_bytes: usize,
    /// What values hold
    #[arg(long, value_enum, default_value_t)]
    content: Content,
    /// Which rows are updated
    #[arg(long, value_enum, default_value_t)]
    distribution: Distribution,
    /// How pages lie in their file; by default as the engine's options say
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    layout: Vec<Layout>,
    /// How often each combination is measured
    #[arg(long, default_value_t = 1, value_name = "N")]
    turns: u64,
    /// Seconds that are measured, for each combination
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    /// Seconds before, for each opening of the database
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    warmup: f64,
    #[command(flatten)]
    common: Common,
}

/// The data must be so many times the buffer pool.
const TIMES_POOL: u64 = 5;

impl Update {
    /// Bytes of a row: key and value. In the file it takes more.
    fn row_bytes(&self) -> u64 {
        8 + self.value_bytes as u64
    }

    /// The rows to load: as asked for, or half a buffer pool above the least.
    fn rows(&self) -> Result<u64> {
        let pool = self.buffer_pool_size;
        let least = (TIMES_POOL * pool).div_ceil(self.row_bytes());
        match self.rows {
            None => Ok(least + (pool / 2).div_ceil(self.row_bytes())),
            Some(rows) if rows >= least => Ok(rows),
            Some(rows) => Err(Failure::Usage(format!(
                "--rows {rows}: the data must be at least {TIMES_POOL} times the buffer pool of {}, \
                 which takes {least} rows; raise --rows or lower --buffer-pool-size",
                bytes(pool)
            ))),
        }
    }
}

pub fn run(arguments: &Update, output: &Output) -> Result<()> {
    let rows = arguments.rows()?;
    for clients in &arguments.clients {
        at_least("clients", *clients, 1)?;
    }
    at_least("turns", arguments.turns, 1)?;
    let columns = [
        "layout",
        "flush_method",
        "buffer_pool_instances",
        "clients",
        "updates_per_s",
        "p50_us",
        "p99_us",
        "max_us",
        "bytes_written_per_update",
        "pages_read",
        "page_writes_per_page_flushed",
        "reads_per_device_read",
        "worst_over_median",
        "memory_ratio",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("update")?;
    let mut base = arguments.common.engine.over(Options {
        buffer_pool_dump_at_shutdown: false,
        log_file_buffering: true,
        ..published()
    })?;
    base.buffer_pool_size = arguments.buffer_pool_size;
    base.flush_log_at_trx_commit = arguments.flush_log_at_trx_commit;
    let chooser = Chooser::new(arguments.distribution, rows);
    let mut databases = Vec::new();
    for (nth, options) in layout::options_of(&arguments.layout, &base)
        .into_iter()
        .enumerate()
    {
        let directory = work.path().join(format!("database-{nth}"));
        let file = load(arguments, rows, &directory, options.clone())?;
        databases.push(Loaded {
            directory,
            file,
            options,
        });
    }
    for turn in 1..=arguments.turns {
        for database in &databases {
            for method in &arguments.flush_method {
                for instances in &arguments.buffer_pool_instances {
                    let options = Options {
                        flush_method: *method,
                        buffer_pool_instances: *instances,
                        ..database.options.clone()
                    };
                    let bench = Bench {
                        arguments,
                        turn,
                        chooser: &chooser,
                        rows,
                        db: open(&database.directory, options)?,
                        file: &database.file,
                    };
                    bench.measure_all(|fields| sink.take(fields))?;
                    bench.db.close()?;
                }
            }
        }
    }
    sink.finish(&Chart {
        title: "Updates a second of data larger than the buffer pool, by clients",
        by: &["layout", "flush_method", "buffer_pool_instances"],
        form: Form::Lines {
            x: "clients",
            y: "updates_per_s",
        },
    })
}

/// Fills the table; returns its file.
fn load(arguments: &Update, rows: u64, directory: &Path, options: Options) -> Result<PathBuf> {
    let db = open_or_create(directory, options)?;
    let table = db.create_table("t", &[])?;
    let bar = progress::bar("filling the table", rows);
    let values = (arguments.content, arguments.value_bytes);
    clients::fill_with(&db, &table, rows, values, &bar)?;
    bar.finish_and_clear();
    let file = layout::file_of(&db, directory)?;
    drop(table);
    db.close()?;
    Ok(file)
}

/// An open database of a run.
struct Bench<'a> {
    arguments: &'a Update,
    turn: u64,
    chooser: &'a Chooser,
    rows: u64,
    db: Database,
    /// Of the table.
    file: &'a Path,
}

impl Bench<'_> {
    /// Warms up, and measures each number of clients.
    fn measure_all(&self, mut take: impl FnMut(Fields)) -> Result<()> {
        let arguments = self.arguments;
        let most = arguments.clients.iter().copied().max().unwrap_or(1);
        if arguments.warmup > 0.0 {
            self.updates(most, arguments.warmup, "warming up")?;
        }
        for client_count in &arguments.clients {
            take(self.measure(*client_count)?);
        }
        Ok(())
    }

    fn updates(&self, client_count: u64, seconds: f64, what: &str) -> Result<clients::Run> {
        let (db, table) = (&self.db, self.db.table("t")?);
        clients::run(
            client_count,
            seconds,
            format!("{what}: {client_count} clients"),
            |random| Ok((random, vec![0; self.arguments.value_bytes])),
            |(random, value)| {
                let key = self.chooser.choose(random).to_be_bytes();
                self.arguments.content.fill(random, value);
                let transaction = db.begin(Isolation::ReadCommitted)?;
                transaction.update(&table, &key, value)?;
                transaction.commit()?;
                Ok(1)
            },
        )
    }

    fn measure(&self, client_count: u64) -> Result<Fields> {
        let (arguments, options) = (self.arguments, self.db.options());
        let page_size = options.page_size;
        let probe_s = (arguments.seconds / 16.0).min(0.5);
        let probe = || probe::reads_per_s(self.file, page_size as usize, probe_s);
        let device_before = probe()?;
        let (before, written) = (Counts::of(&self.db), Written::begin(self.file));
        let run = self.updates(client_count, arguments.seconds, "updating")?;
        let (counts, written) = (Counts::of(&self.db).since(&before), written.bytes());
        let device = (device_before + probe()?) / 2.0;
        let (data, doublewrite) = (
            counts.get("page_bytes_written"),
            counts.get("doublewrite_bytes"),
        );
        let per_update = |bytes: u64| rounded(ratio(bytes, run.operations), 1);
        let fields = Fields::of("update")
            .with("layout", layout::name_of(options))
            .with("turn", self.turn)
            .with("content", arguments.content.name())
            .with("distribution", arguments.distribution.name())
            .with("flush_method", options.flush_method.to_string())
            .with("clients", client_count)
            .with("buffer_pool_instances", options.buffer_pool_instances)
            .with("buffer_pool_size", options.buffer_pool_size)
            .with("doublewrite", options.doublewrite.to_string())
            .with("log_file_buffering", options.log_file_buffering)
            .with("rows", self.rows)
            .with("data_bytes", layout::file_bytes(self.file))
            .with("data_page_cache", is_cached(options.flush_method))
            .with("seconds", rounded(run.seconds, 2))
            .with("updates_per_s", rounded(run.per_second(), 0));
        let fields = run
            .describe(fields)
            .with(
                "bytes_written_per_update",
                counts.bytes_written_for(run.operations),
            )
            .with("device_bytes_written_per_update", written.map(per_update))
            .with("pages_read", counts.get("pages_read"))
            .with("pages_written", counts.get("pages_written"))
            .with("doublewrite_pages", counts.get("doublewrite_pages"))
            .with(
                "page_writes_per_page_flushed",
                rounded(
                    ratio(data + doublewrite, counts.get("pages_written") * page_size),
                    3,
                ),
            )
            .with("buffer_frame_waits", counts.get("buffer_frame_waits"))
            .with("checkpoint_waits", counts.get("checkpoint_waits"))
            .with("device_reads_per_s", rounded(device, 0))
            .with(
                "reads_per_device_read",
                rounded(counts.get("pages_read") as f64 / run.seconds / device, 3),
            );
        Ok(memory::describe(fields, options))
    }
}

/// Whether data files go through the page cache.
fn is_cached(method: FlushMethod) -> bool {
    match method {
        FlushMethod::Fsync | FlushMethod::ODsync => true,
        FlushMethod::ODirect | FlushMethod::ODirectNoFsync => false,
    }
}
