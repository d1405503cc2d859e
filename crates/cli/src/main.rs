//! The `inkstone` program: shows, measures, inspects and checks an Inkstone database.
//!
//! | module | subject |
//! |---|---|
//! | `arguments` | the command line |
//! | [`tour`] | load, concurrent transactions, kill, recovery, proof |
//! | [`inspect`] | pages, log, catalog, control file, read without opening the database |
//! | `check` | `verify`, `recover`, `stat`, `options` |
//! | `copy` | `copy` |
//! | `reading` | opening a database to read it, also where it cannot be written |
//! | `failure` | what goes wrong, and the exit code that it becomes |
//!
//! `bench`, and what the other commands share with it (opening databases, output, progress, random
//! rows), is `crates/bench`. Results go to stdout, everything else to stderr.

mod arguments;
mod check;
mod copy;
mod failure;
mod inspect;
mod reading;
mod tour;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use inkstone_bench::output::Output;
use inkstone_bench::workloads;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let output = Output::new(arguments.json);
    match run(arguments.command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Told(_)) {
                failure.print(&output);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Help that was asked for, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    // Nothing more can be done where that cannot be written.
    let _ = error.print();
    let code = error.exit_code();
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if code != 0 && wants_json {
        let failure = Failure::Usage(error.render().to_string());
        Output::new(true).json(&failure.to_json());
    }
    ExitCode::from(code as u8)
}

fn run(command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Tour(tour) => tour::run(&tour, output),
        Command::TourChild(child) => tour::child::run(&child),
        Command::Bench { workload } => Ok(workloads::run(&workload, output)?),
        Command::BenchRecoveryChild(child) => Ok(workloads::run_recovery_child(&child)?),
        Command::Inspect { what } => inspect::run(&what, output),
        Command::Verify(verify) => check::verify(&verify, output),
        Command::Recover(recover) => check::recover(&recover, output),
        Command::Copy(arguments) => copy::copy(&arguments, output),
        Command::Stat(stat) => check::stat(&stat, output),
        Command::Options => {
            check::options(output);
            Ok(())
        }
    }
}
