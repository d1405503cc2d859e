//! The command line.

use crate::{check, copy, inspect, tour};
use clap::{Parser, Subcommand};
use inkstone_bench::workloads::{RecoveryChild, Workload};

/// Said at the end of `--help`.
const AFTER: &str = "\
Exit codes:
  0  all is well
  1  a check failed: a proof of the tour, or something corrupt found by `verify`
  2  wrong usage: an unknown command or option, or a value that cannot be
  3  the database said no: it is missing, in use, damaged, or the operating system refused

Results go to standard output, as text or with --json as JSON; messages and progress bars go to
standard error (bars only if it is a terminal). With --json a failure is an object too:
{\"error\": {\"kind\", \"message\", ..}, \"exit_code\"}.

Start with `inkstone tour`: it fills a database, kills itself in the middle of its work, recovers
and proves that nothing was lost.";

/// Inkstone: a crash-safe transactional storage engine. This program shows it at work, measures
/// it, and looks inside its databases.
#[derive(Debug, Parser)]
#[command(name = "inkstone", version, after_help = AFTER, max_term_width = 100)]
pub struct Arguments {
    /// Print results as JSON (one object; `bench` and `inspect log` print one object a line)
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a table, run transactions, be killed in the middle, recover, prove it (start here)
    Tour(tour::Tour),
    /// The part of the tour that is killed
    #[command(hide = true)]
    TourChild(tour::child::Child),
    /// Measure a workload; each prints one row (with --json one line) for each configuration
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Bench {
        #[command(subcommand)]
        workload: Workload,
    },
    /// The part of `bench recovery` that is killed
    #[command(hide = true)]
    BenchRecoveryChild(RecoveryChild),
    /// Look inside the files of a database, without opening it and without changing them
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Inspect {
        #[command(subcommand)]
        what: inspect::What,
    },
    /// Check every table and every page of a database, and change nothing: recovery, if one is due,
    /// runs in memory
    Verify(check::Verify),
    /// Open a database, which recovers it, say what recovery did, and close it
    Recover(check::Recover),
    /// Copy a database, every page checked, to an empty directory
    Copy(copy::Copy),
    /// Open a database (which recovers it if it was not closed in order) and show its tables,
    /// status counters and options
    Stat(check::Stat),
    /// List the engine's options, which `--set NAME=VALUE` sets, with defaults and descriptions
    Options,
}
