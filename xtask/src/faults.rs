//! `cargo xtask faults`: every operation on the disk fails once; every byte on it changes.

use inkstone_testkit::build::{Result, SIMULATED};
use std::process::ExitCode;

/// Lets every operation on a simulated disk fail, and damages its bytes (see docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// What the program `faults` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `faults`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    SIMULATED.run_testkit("faults", &arguments.rest)
}
