//! The tour: a database is filled, its process is killed in the middle of its work, it recovers,
//! and what it promised is proved.
//!
//! | module | subject |
//! |---|---|
//! | [`plan`] | what each transaction does, as a function of its number |
//! | [`child`] | the process that runs them and is killed |
//! | [`watch`] | starting it, listening to it, killing it |
//! | [`proof`] | what must hold afterwards |
//! | [`report`] | the tables at the end |

pub mod child;
mod plan;
mod proof;
mod report;
mod watch;

use crate::check::{check_files, verify_tables};
use crate::failure::{Failure, Result};
use clap::{Args, ValueEnum};
use inkstone::{Database, Durability, Error, Isolation, Options};
use inkstone_bench::counts::Counts;
use inkstone_bench::database::{
    EngineArguments, WorkDirectory, open_existing, open_or_create, parse_size,
};
use inkstone_bench::output::{Output, bytes, count};
use inkstone_bench::progress;
use inkstone_bench::wide::{self, Fill, WIDE_VALUE_LEN, WideValues};
use inkstone_io::posix::PosixVfs;
use plan::{Account, BALANCE, balance_key};
use proof::Proof;
use report::{Loaded, Report};
use std::path::{Path, PathBuf};
use std::time::Instant;
use watch::Heard;

/// Arguments of `tour`.
#[derive(Args, Clone, Debug)]
#[command(long_about = "\
Show what Inkstone does, and prove it, in under a minute:

  1. create a database and load the wide table of writebench in one transaction
  2. start this program again as a child process, in which several threads run transactions at once: \
transfers between accounts, sets of rows, savepoints, rollbacks, a long transaction that never commits. \
Each commit is acknowledged through a pipe after commit() returned
  3. kill the child with SIGKILL in the middle
  4. open the database again, which recovers it
  5. prove that every acknowledged commit is there, that no transaction is half there, that what was \
rolled back is gone, that all sums hold; then verify every page
  6. show what the write path did

Exits with 1 if any proof fails.")]
pub struct Tour {
    /// Where to put the database: an empty or missing directory, which is kept. Without this, a
    /// fresh directory in the system's place for temporary files, which is removed afterwards
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Keep the temporary directory
    #[arg(long)]
    keep: bool,
    /// Rows of the wide table (1,793 bytes each)
    #[arg(long, default_value = "200000", value_name = "N", value_parser = parse_size)]
    pub rows: u64,
    /// Bytes in a page: 4k, 8k, 16k, 32k or 64k
    #[arg(long, default_value = "16k", value_name = "BYTES", value_parser = parse_size)]
    page_size: u64,
    /// Seconds after which the child is killed
    #[arg(long, default_value_t = 4.0, value_name = "S")]
    pub seconds: f64,
    /// Threads in the child that run transactions, beside the one that never commits
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub clients: u32,
    /// Accounts to transfer between
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub accounts: u32,
    /// Seed of the transactions' contents
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    #[command(flatten)]
    pub engine: EngineArguments,
    /// Break a promise on purpose, to see that the tour finds it
    #[arg(long, hide = true)]
    sabotage: Option<Sabotage>,
}

/// What [`Tour::sabotage`] breaks after recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sabotage {
    /// A commit that never was counts as acknowledged.
    Lost,
    /// A row of a committed transaction is deleted.
    Half,
    /// Money appears on an account.
    Sum,
}

/// `inkstone tour`.
pub fn run(tour: &Tour, output: &Output) -> Result<()> {
    let options = tour.engine.over(Options {
        page_size: tour.page_size,
        ..Options::default()
    })?;
    options.validate()?;
    if tour.accounts < 2 || !(0.0..=240.0).contains(&tour.seconds) {
        return Err(Failure::Usage("--seconds must be from 0 to 240".to_owned()));
    }
    let work = WorkDirectory::chosen_or_fresh(tour.directory.as_deref(), tour.keep, "tour")?;
    let directory = work.path();
    output.text(format!("database in {}", directory.display()));
    let loaded = load(tour, options, directory)?;
    output.text(format!(
        "loaded {} rows of {} bytes in one transaction: {:.1} s, {} of log, {} of pages",
        count(tour.rows),
        WIDE_VALUE_LEN + 8,
        loaded.seconds,
        bytes(loaded.counts.get("log_bytes")),
        bytes(loaded.counts.get("page_bytes_written")),
    ));
    let mut heard = watch::run_and_kill(tour, directory)?;
    output.text(format!(
        "{} threads in a child process: {} commits and {} rollbacks acknowledged in {:.1} s, then SIGKILL",
        tour.clients,
        count(heard.commits()),
        count(heard.rollbacks()),
        heard.seconds
    ));
    let db = open_existing(directory, tour.engine.for_existing()?)?;
    let opened = db.open_report().clone();
    let after_recovery = Counts::of(&db);
    crate::check::say_opening(&opened, output);
    sabotage(tour, &db, &mut heard)?;
    let (mut proofs, present) = proof::prove(&db, tour, &heard)?;
    proofs.push(recovered_something(&opened));
    let tables = check(
        &mut proofs,
        "every tree, and what is allocated",
        verify_tables(&db),
    )?;
    let bar = progress::spinner("closing");
    db.close()?;
    bar.finish_and_clear();
    let files = check(
        &mut proofs,
        "every page in its file: checksum, identity, structure",
        check_files(&PosixVfs::new(), directory),
    )?;
    let report = Report {
        directory: work.is_kept().then_some(directory),
        rows: tour.rows,
        loaded,
        heard,
        opened,
        after_recovery,
        transactions_found: present,
        proofs,
        tables: tables.unwrap_or_default(),
        files: files.unwrap_or_default(),
    };
    report.print(output)
}

/// Turns corruption into a proof that fails.
fn check<T>(proofs: &mut Vec<Proof>, what: &str, result: Result<T>) -> Result<Option<T>> {
    let mut proof = Proof::new(format!("verified: {what}"));
    let found = match result {
        Ok(found) => Some(found),
        Err(Failure::Engine(error @ Error::Corrupt { .. })) => {
            proof.check(false, || error.to_string());
            None
        }
        Err(other) => return Err(other),
    };
    proofs.push(proof);
    Ok(found)
}

/// If nothing had to be recovered, nothing was shown.
fn recovered_something(opened: &inkstone::OpenReport) -> Proof {
    let mut proof = Proof::new("there was something to recover");
    let records = opened.recovered.as_ref().map_or(0, |r| r.redo.records);
    proof.check(records > 0, || "the log was empty".to_owned());
    proof
}

/// Creates the tables, fills the wide one and the accounts, writes it all to disk, closes.
fn load(tour: &Tour, options: Options, directory: &Path) -> Result<Loaded> {
    let db = open_or_create(directory, options)?;
    let begin = Instant::now();
    let before = Counts::of(&db);
    let table = db.create_table("t1", &[])?;
    let transaction = db.begin(Isolation::RepeatableRead)?;
    let bar = progress::bar("loading", tour.rows);
    let mut values = WideValues::new(Fill::Padding);
    for n in 0..tour.rows {
        transaction.insert(&table, &wide::key(n), values.next())?;
        if n % 1024 == 1023 {
            bar.inc(1024);
        }
    }
    transaction.commit_with(Durability::Sync)?;
    bar.finish_and_clear();
    let seconds = begin.elapsed().as_secs_f64();
    let bar = progress::spinner("writing the table's pages");
    db.flush_table(&table)?;
    let counts = Counts::of(&db).since(&before);
    db.create_table("journal", &[])?;
    db.create_table("queue", &[])?;
    let accounts = db.create_table("accounts", &["by_balance"])?;
    let transaction = db.begin(Isolation::RepeatableRead)?;
    let account = Account {
        balance: BALANCE,
        writer: None,
    };
    let all = 0..tour.accounts;
    let rows = all.clone().map(|n| (n.to_be_bytes(), account.encode()));
    transaction.insert_many(&accounts, rows)?;
    let keys = all.map(|n| (balance_key(BALANCE, n), Vec::new()));
    transaction.insert_many(accounts.tree("by_balance")?, keys)?;
    transaction.commit_with(Durability::Sync)?;
    db.close()?;
    bar.finish_and_clear();
    Ok(Loaded { seconds, counts })
}

fn sabotage(tour: &Tour, db: &Database, heard: &mut Heard) -> Result<()> {
    let Some(sabotage) = tour.sabotage else {
        return Ok(());
    };
    if sabotage == Sabotage::Lost {
        heard.committed[0].insert(1 << 40);
        return Ok(());
    }
    let transaction = db.begin(Isolation::ReadCommitted)?;
    if sabotage == Sabotage::Half {
        let journal = db.table("journal")?;
        // Of a transaction of several parts: the key ends with the part's number.
        for row in transaction.range_backward(&journal, ..)? {
            let (key, _) = row?;
            if !key.ends_with(&0u16.to_be_bytes()) {
                transaction.delete(&journal, &key)?;
                break;
            }
        }
    } else {
        let accounts = db.table("accounts")?;
        let rich = Account {
            balance: 1_000_000,
            writer: None,
        };
        transaction.update(&accounts, &0u32.to_be_bytes(), &rich.encode())?;
    }
    Ok(transaction.commit()?)
}
