//! `cargo xtask experiment`: experiments that take more than a database and a server.

use inkstone_mariadb_kit::journal;
use inkstone_testkit::build::Result;
use std::process::ExitCode;

/// Repeats a published experiment that takes file systems of its own.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(clap::Subcommand)]
enum Experiment {
    Journal(journal::Arguments),
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.experiment {
        Experiment::Journal(arguments) => journal::run(arguments),
    }
}
