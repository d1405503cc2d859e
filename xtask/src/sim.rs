//! `cargo xtask sim`: the engine on the simulated disk, from seeds.

use inkstone_testkit::build::{Result, SIMULATED};
use std::process::ExitCode;

/// Runs the engine on a simulated disk that loses power, from seeds (see docs/testing.md).
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// What the program `sim` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `sim`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    SIMULATED.run_testkit("sim", &arguments.rest)
}
