//! `cargo xtask determinism`: whether simulations follow from their seeds.

use inkstone_testkit::build::{Result, SIMULATED};
use std::process::ExitCode;

/// Runs seeds of `sim` twice each, and compares every decision and every byte (see
/// docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// What the program `determinism` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `determinism`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    SIMULATED.run_testkit("determinism", &arguments.rest)
}
