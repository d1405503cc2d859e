//! `bench-peers`: Inkstone and the stores that one would embed otherwise, the same work in one run.
//!
//! | module | subject |
//! |---|---|
//! | [`store`] | what every store must be able to do |
//! | [`stores`] | the stores |
//! | [`workloads`] | the work, measured |
//! | [`confine`] | a memory limit for a child process |
//! | [`report`] | tables and ratios |
//!
//! Each store runs each workload in a process of its own, one after the other, so that none
//! inherits memory or threads of another; rounds alternate between the stores. docs/peers.md says
//! what is unequal.

mod confine;
mod report;
mod store;
mod stores;
mod workloads;

use crate::store::Result;
use clap::Parser;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use stores::STORES;
use workloads::{Measurement, Sizes, Workload};

/// Inkstone beside RocksDB, LMDB, SQLite, redb and fjall: the same work, with equal durability and
/// cache sizes, in one run. Prints rates, and the ratio to the first store named.
#[derive(Debug, Parser)]
struct Arguments {
    /// Stores to run; all of them unless told otherwise
    #[arg(long, value_delimiter = ',', default_values_t = STORES.iter().map(|(name, _)| (*name).to_owned()))]
    stores: Vec<String>,
    /// Workloads to run
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "commit,relaxed,wide-load,narrow-load,point-reads,scans,update-large"
    )]
    workloads: Vec<Workload>,
    /// Rounds; the figure is the median
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[command(flatten)]
    sizes: Sizes,
    /// Where the databases are made, in a fresh directory that is removed afterwards
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// One JSON object a line for each measurement instead of tables
    #[arg(long)]
    json: bool,
    /// For the child process: the one store and workload to run here
    #[arg(long, hide = true, num_args = 2)]
    child: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.child {
        Some(child) => run_here(&arguments, &child[0], &child[1]),
        None => run_all(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The child: runs one workload and prints its measurements as JSON.
fn run_here(arguments: &Arguments, store: &str, workload: &str) -> Result<()> {
    let open = STORES.iter().find(|(name, _)| *name == store);
    let (_, open) = open.ok_or_else(|| format!("no store is called {store}"))?;
    let workload = <Workload as clap::ValueEnum>::from_str(workload, false)?;
    let directory = tempfile::tempdir_in(&arguments.directory)?;
    workloads::run(workload, *open, directory.path(), &arguments.sizes, |m| {
        println!("{}", m.to_json(store, workload));
    })
}

fn run_all(arguments: &Arguments) -> Result<()> {
    for name in &arguments.stores {
        if !STORES.iter().any(|(known, _)| known == name) {
            let known: Vec<_> = STORES.iter().map(|(known, _)| *known).collect();
            return Err(format!("--stores {name}: the stores are {}", known.join(", ")).into());
        }
    }
    let mut failed = false;
    for workload in &arguments.workloads {
        let mut report = report::Report::default();
        let bar = indicatif::ProgressBar::new((arguments.rounds * arguments.stores.len()) as u64);
        for round in 0..arguments.rounds {
            for name in &arguments.stores {
                bar.set_message(format!("{workload}: {name}"));
                let measured = match run_child(arguments, name, *workload) {
                    Ok(measured) => measured,
                    Err(error) => {
                        bar.suspend(|| eprintln!("{error}"));
                        failed = true;
                        continue;
                    }
                };
                for (line, measurement) in measured {
                    if arguments.json {
                        println!("{line}");
                    }
                    report.take(name, round, measurement);
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        if !arguments.json {
            report.print(*workload, &arguments.stores);
        }
    }
    match failed {
        true => Err("not every store did everything: see above".into()),
        false => Ok(()),
    }
}

/// Runs a workload in a child process, and reads what it prints.
fn run_child(
    arguments: &Arguments,
    store: &str,
    workload: Workload,
) -> Result<Vec<(String, Measurement)>> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(arguments.sizes.to_arguments())
        .arg("--directory")
        .arg(&arguments.directory)
        .args(["--child", store, &workload.to_string()])
        .stdout(Stdio::piped());
    let limit = workload.memory_limit(&arguments.sizes);
    let group = limit.map(|bytes| confine::Group::new(bytes)).transpose()?;
    if let Some(group) = &group {
        group.confine(&mut command);
    }
    let output = command.spawn()?.wait_with_output()?;
    if !output.status.success() {
        return Err(format!(
            "{store}, {workload}: the child ended with {}",
            output.status
        )
        .into());
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .map(|line| Ok((line.to_owned(), Measurement::from_json(line)?)))
        .collect()
}
