//! `bench locks`.

mod tpcc;

use super::{Common, at_least, open, published};
use crate::chart::{Chart, Form};
use crate::clients;
use crate::counts::Counts;
use crate::failure::{Failure, Result};
use crate::output::{Output, ratio, rounded};
use crate::sink::Fields;
use clap::{Args, ValueEnum};
use inkstone::{Durability, Isolation, LockMode, Options, Wait};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Arguments of `bench locks`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Transactions that wait for each other, in memory. hot_row: every client adds one to the same row, which it locks \
first, and commits. tpcc: a mix of five transactions like that of TPC-C (new order 45%, payment 43%, order status, \
delivery and stock level 4% each) over some warehouses of 10 districts, with locking reads and gaps as SQL's \
repeatable read has them; a deadlock's victim begins again, and its time counts. Commits are lazy (not waited for) \
unless --flush-log-at-trx-commit says otherwise: what is measured is the waiting for locks. At the end the rows must \
add up.

cpu_us_per_commit is what the processors spent on the process. max_over_fair is the longest transaction over what \
each takes when clients are served in turns, clients / commits_per_s. max_turns (hot_row) is the same in commits: how \
many others were made during one transaction, at most, over the number of clients; while the machine does something \
else there are none, so it tells of the lock's queue alone.")]
pub struct Locks {
    /// The cases
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "hot_row,tpcc"
    )]
    case: Vec<Case>,
    /// Threads; by default 2, 16, 64 and 512 for hot_row, 4, 16 and 64 for tpcc
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    clients: Vec<u64>,
    /// Warehouses of tpcc
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,10"
    )]
    warehouses: Vec<u64>,
    /// 0: commits wait for nothing; 1: for the sync; 2: for the write
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    flush_log_at_trx_commit: u8,
    /// Seconds for each run
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    seconds: f64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Case {
    HotRow,
    Tpcc,
}

impl Locks {
    fn clients(&self, case: Case) -> Vec<u64> {
        match (case, &self.clients[..]) {
            (Case::HotRow, []) => vec![2, 16, 64, 512],
            (Case::Tpcc, []) => vec![4, 16, 64],
            (_, chosen) => chosen.to_vec(),
        }
    }

    fn options(&self) -> Result<Options> {
        let flush_log_at_trx_commit = match self.flush_log_at_trx_commit {
            0 => Durability::Lazy,
            1 => Durability::Sync,
            _ => Durability::Write,
        };
        self.common.engine.over(Options {
            flush_log_at_trx_commit,
            // A server's patience: no client of a crowd is to give up.
            lock_wait_timeout_ms: 50_000,
            ..published()
        })
    }
}

pub fn run(arguments: &Locks, output: &Output) -> Result<()> {
    for clients in &arguments.clients {
        at_least("clients", *clients, 1)?;
    }
    for warehouses in &arguments.warehouses {
        at_least("warehouses", *warehouses, 1)?;
    }
    let columns = [
        "case",
        "warehouses",
        "clients",
        "commits_per_s",
        "cpu_us_per_commit",
        "p50_us",
        "p99_us",
        "p999_us",
        "max_us",
        "max_over_fair",
        "max_turns",
        "lock_waits_per_commit",
        "deadlocks",
    ];
    let mut sink = arguments.common.sink(output, &columns)?;
    let work = arguments.common.work("locks")?;
    for &case in &arguments.case {
        let warehouses: &[u64] = match case {
            Case::HotRow => &[0],
            Case::Tpcc => &arguments.warehouses,
        };
        for &warehouses in warehouses {
            for clients in arguments.clients(case) {
                let directory = work.path().join(format!("{case:?}-{warehouses}-{clients}"));
                sink.take(match case {
                    Case::HotRow => hot_row(arguments, &directory, clients)?,
                    Case::Tpcc => tpcc::run(arguments, &directory, warehouses, clients)?,
                });
                super::remove(&directory)?;
            }
        }
    }
    sink.finish(&Chart {
        title: "Commits a second, by clients",
        by: &["case", "warehouses"],
        form: Form::Lines {
            x: "clients",
            y: "commits_per_s",
        },
    })
}

fn hot_row(arguments: &Locks, directory: &Path, client_count: u64) -> Result<Fields> {
    let db = open(directory, arguments.options()?)?;
    let table = db.create_table("t", &[])?;
    let key = 0_u64.to_be_bytes();
    let setup = db.begin(Isolation::ReadCommitted)?;
    setup.insert(&table, &key, &0_u64.to_be_bytes())?;
    setup.commit()?;
    let before = Counts::of(&db);
    let (commits, most_passed) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = clients::run(
        client_count,
        arguments.seconds,
        format!("locks: one row, {client_count} clients"),
        |_| Ok(()),
        |()| {
            let begun = commits.load(Ordering::Relaxed);
            let transaction = db.begin(Isolation::ReadCommitted)?;
            let wait = Wait::Timeout;
            let row = transaction.get_locking(&table, &key, LockMode::Exclusive, wait)?;
            let count = row.and_then(|row| row.try_into().ok());
            let count = count.map_or(0, u64::from_be_bytes);
            transaction.update(&table, &key, &(count + 1).to_be_bytes())?;
            transaction.commit()?;
            let passed = commits.fetch_add(1, Ordering::Relaxed) - begun;
            most_passed.fetch_max(passed, Ordering::Relaxed);
            Ok(1)
        },
    )?;
    let counts = Counts::of(&db).since(&before);
    let transaction = db.begin(Isolation::ReadCommitted)?;
    let row = transaction.get(&table, &key)?.unwrap_or_default();
    if row != run.operations.to_be_bytes() {
        let done = run.operations;
        let text = format!("{done} commits, and the row says {row:?}");
        return Err(Failure::Check(text));
    }
    drop(transaction);
    drop(table);
    db.close()?;
    let turns = most_passed.into_inner() as f64 / client_count as f64;
    let fields = describe("hot_row", 0, client_count, &run, &counts);
    Ok(fields.with("max_turns", rounded(turns, 2)))
}

fn describe(
    case: &str,
    warehouses: u64,
    clients: u64,
    run: &clients::Run,
    counts: &Counts,
) -> Fields {
    let fair_us = clients as f64 * 1e6 / run.per_second();
    let fields = Fields::of("locks")
        .with("case", case)
        .with("warehouses", warehouses)
        .with("clients", clients)
        .with("seconds", rounded(run.seconds, 2))
        .with("commits_per_s", rounded(run.per_second(), 0))
        .with("cpu_us_per_commit", rounded(run.cpu_us_per_operation(), 2));
    run.describe(fields)
        .with("max_over_fair", rounded(run.max_us() / fair_us, 2))
        .with(
            "lock_waits_per_commit",
            rounded(ratio(counts.get("lock_waits"), run.operations), 3),
        )
        .with("deadlocks", counts.get("deadlocks"))
}
