//! `cargo xtask crash`: real processes, killed, and power loss under them.

use inkstone_testkit::build::{Result, SIMULATED};
use std::process::ExitCode;

/// Kills real processes at random times, loses power under them, and checks what is left (see
/// docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// What the program `crash` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `crash`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    SIMULATED.run_testkit("crash", &arguments.rest)
}
