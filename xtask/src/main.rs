//! `cargo xtask COMMAND`: one entry point for whatever is more than a plain cargo command.
//!
//! The commands build the engine with switches that no ordinary build has (see
//! [`inkstone_testkit::build`]), each set of switches in a folder of its own under `target/`, and
//! run a program of `inkstone-testkit` or `inkstone-bench`.

mod counts;
mod crash;
mod determinism;
mod experiment;
mod failed_sync;
mod faults;
mod fixtures;
mod fuzz;
mod histories;
mod lock_times;
mod mutants;
mod public_api;
mod races;
mod sim;
mod tsan;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Proves Inkstone: simulation, crashes of real processes, races, fuzzing.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Counts(counts::Arguments),
    Crash(crash::Arguments),
    Determinism(determinism::Arguments),
    Experiment(Box<experiment::Arguments>),
    FailedSync(failed_sync::Arguments),
    Faults(faults::Arguments),
    Fixtures(fixtures::Arguments),
    Fuzz(fuzz::Arguments),
    Histories(histories::Arguments),
    LockTimes(lock_times::Arguments),
    Mariadb(Box<inkstone_mariadb_kit::Arguments>),
    Mutants(mutants::Arguments),
    PublicApi(public_api::Arguments),
    Races(races::Arguments),
    Sim(sim::Arguments),
    Tsan(tsan::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Counts(arguments) => counts::run(&arguments),
        Command::Crash(arguments) => crash::run(&arguments),
        Command::Determinism(arguments) => determinism::run(&arguments),
        Command::Experiment(arguments) => experiment::run(&arguments),
        Command::FailedSync(arguments) => failed_sync::run(&arguments),
        Command::Faults(arguments) => faults::run(&arguments),
        Command::Fixtures(arguments) => fixtures::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Histories(arguments) => histories::run(&arguments),
        Command::LockTimes(arguments) => lock_times::run(&arguments),
        Command::Mariadb(arguments) => inkstone_mariadb_kit::run(&arguments),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::PublicApi(arguments) => public_api::run(&arguments),
        Command::Races(arguments) => races::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Tsan(arguments) => tsan::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error}");
        ExitCode::from(2)
    })
}
