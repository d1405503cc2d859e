//! `cargo xtask lock-times`: how long operations hold the engine's locks.

use inkstone_testkit::build::{Build, Result};
use std::process::ExitCode;

/// The engine with a clock at each lock.
const TIMED: Build = Build {
    folder: "lock-times",
    profile: "release",
    cfgs: &["inkstone_lock_times"],
};

/// Measures how long operations hold the engine's locks, and which of them would bound more cores.
#[derive(clap::Args)]
pub struct Arguments {
    /// What the program `lock-times` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the program `lock-times`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    TIMED.run("inkstone-bench", "lock-times", &arguments.rest)
}
