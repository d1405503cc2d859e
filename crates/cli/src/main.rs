//! The `inkstone` program: shows, measures, inspects and checks an Inkstone database.
//!
//! | module | subject |
//! |---|---|
//! | `arguments` | the command line |
//! | [`tour`] | load, concurrent transactions, kill, recovery, proof |
//! | [`bench`] | the workloads that have published figures |
//! | [`inspect`] | pages, log, catalog, control file, read without opening the database |
//! | `check` | `verify`, `recover`, `stat`, `options` |
//! | `database` | opening databases with progress, engine options, temporary directories |
//! | `counts`, `wide`, `random` | counters between two moments, the wide table, random numbers |
//! | `failure` | what goes wrong, and the exit code that it becomes |
//! | `output` | text and JSON on stdout |
//! | `progress` | progress bars on stderr, if it is a terminal |
//!
//! Results go to stdout, everything else to stderr.

mod arguments;
mod bench;
mod check;
mod counts;
mod database;
mod failure;
mod inspect;
mod output;
mod progress;
mod random;
mod tour;
mod wide;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output::new(arguments.json);
    match run(arguments.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Told(_)) {
                output.failure(&failure);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Tour(tour) => tour::run(&tour, output),
        Command::TourChild(child) => tour::child::run(&child),
        Command::Bench { workload } => bench::run(&workload, output),
        Command::BenchRecoveryChild(child) => bench::recovery::child::run(&child),
        Command::Inspect { what } => inspect::run(&what, output),
        Command::Verify(verify) => check::verify(&verify, output),
        Command::Recover(recover) => check::recover(&recover, output),
        Command::Stat(stat) => check::stat(&stat, output),
        Command::Options => {
            check::options(output);
            Ok(())
        }
    }
}
