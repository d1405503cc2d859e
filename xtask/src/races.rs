//! `cargo xtask races`: the engine's small structures under many schedules.

use inkstone_testkit::build::{Build, Result, status};
use std::process::ExitCode;

const MODELLED: Build = Build {
    folder: "races",
    profile: "sim",
    cfgs: &["inkstone_shuttle"],
};

/// Runs the race tests: latch, page table, flights, log ring, group commit, lock waits, snapshots
/// and version store, each under hundreds of schedules that `shuttle` chooses (see
/// docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// Run only the tests whose name begins with this
    filter: Option<String>,
    /// Schedules of each kind for each test
    #[arg(long, default_value_t = 1000)]
    schedules: u64,
    /// Decides the schedules
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Builds and runs them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut command = MODELLED.cargo("test");
    command
        .args(["-p", "inkstone", "--lib", "--"])
        .env("INKSTONE_RACES_SCHEDULES", arguments.schedules.to_string())
        .env("INKSTONE_RACES_SEED", arguments.seed.to_string())
        // A backtrace of the model's threads says nothing.
        .env("RUST_BACKTRACE", "0");
    command.arg(format!(
        "races::{}",
        arguments.filter.as_deref().unwrap_or_default()
    ));
    status(&mut command)
}
