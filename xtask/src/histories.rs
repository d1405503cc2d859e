//! `cargo xtask histories`: histories of concurrent transactions, checked.

use inkstone_testkit::build::{Result, SIMULATED};
use std::process::ExitCode;

/// Records histories of concurrent transactions and checks them (see docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// What the program `histories` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `histories`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    SIMULATED.run_testkit("histories", &arguments.rest)
}
