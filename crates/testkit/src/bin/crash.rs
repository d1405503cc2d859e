//! `cargo xtask crash`: real processes, killed, and power loss under them (see docs/testing.md).

use clap::{Parser, Subcommand};
use inkstone_testkit::crash::campaign::{self, CampaignArguments};
use inkstone_testkit::crash::{ChildArguments, run_child};
use std::process::ExitCode;

/// Kills real processes at random times, loses power under them, and checks what is left.
#[derive(Parser)]
#[command(name = "crash", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    campaign: CampaignArguments,
}

#[derive(Subcommand)]
enum Role {
    /// The process that is killed.
    #[command(hide = true)]
    Child(ChildArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Child(child)) => run_child(&child),
        None => campaign::run(&arguments.campaign),
    }
}
