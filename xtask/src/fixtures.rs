//! `cargo xtask fixtures`: databases of the present format, for later versions to open.

use inkstone_testkit::build::{Result, root, status};
use std::process::{Command, ExitCode};

/// Writes the databases of the present format that later versions must open (see docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// Those to write, all by default
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the program `fixtures`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or("cargo".to_owned()));
    command.current_dir(root()).args([
        "run",
        "--quiet",
        "-p",
        "inkstone-testkit",
        "--bin",
        "fixtures",
        "--",
    ]);
    command.args(&arguments.names);
    status(&mut command)
}
