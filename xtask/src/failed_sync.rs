//! `cargo xtask failed-sync`: slow syncs of which one fails, on the simulated disk.

use inkstone_testkit::build::{Result, SIMULATED};
use std::process::ExitCode;

/// Lets one of many slow syncs fail under several flushers, and the power after it (see
/// docs/testing.md).
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// What the program `failed-sync` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `failed-sync`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    SIMULATED.run_testkit("failed-sync", &arguments.rest)
}
