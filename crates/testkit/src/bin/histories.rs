//! Histories of concurrent transactions, checked for what their isolation level forbids: see
//! docs/testing.md.

use clap::Parser;
use inkstone_testkit::history::Plan;
use inkstone_testkit::history::campaign::{Tally, level_of, run_plan};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs below which a campaign may miss what it should see sometimes.
const RUNS_FOR_MARKS: u64 = 200;

/// Records histories of concurrent transactions on the engine and checks them.
#[derive(Parser)]
struct Arguments {
    /// The first seed; each run takes the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs.
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// Runs for so long instead of a number of runs.
    #[arg(long, conflicts_with = "runs")]
    minutes: Option<f64>,
    /// read-committed, repeatable-read, serializable or mixed; else all in turn.
    #[arg(long, value_parser = |name: &str| level_of(name).map(|_| name.to_owned()))]
    level: Option<String>,
    /// Clients at a time; otherwise drawn at random.
    #[arg(long)]
    clients: Option<u32>,
    /// Goes on after a violation.
    #[arg(long)]
    keep_going: bool,
    /// Switches a deliberate bug on.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Prints the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn plan(&self, seed: u64) -> Result<Plan, String> {
        let mut plan = Plan::of_seed(seed);
        if let Some(name) = &self.level {
            plan.level = level_of(name)?;
        }
        plan.clients = self.clients.unwrap_or(plan.clients);
        Ok(plan)
    }

    fn goes_on(&self, runs: u64, begin: Instant) -> bool {
        match self.minutes {
            Some(minutes) => begin.elapsed() < Duration::from_secs_f64(60.0 * minutes),
            None => runs < self.runs,
        }
    }
}

fn main() -> Result<ExitCode, String> {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.mutant {
        inkstone::mutants::switch_on(name)?;
    }
    let (begin, mut tally, mut runs, mut failed) =
        (Instant::now(), Tally::default(), 0, Vec::new());
    while arguments.goes_on(runs, begin) && (failed.is_empty() || arguments.keep_going) {
        let seed = arguments.seed + runs;
        let (seen, result) = run_plan(arguments.plan(seed)?);
        tally.merge(&seen);
        runs += 1;
        if let Err(text) = result {
            eprintln!("FAILED seed {seed}: {text}");
            failed.push(seed);
        }
    }
    let whole = arguments.level.is_none() && runs >= RUNS_FOR_MARKS;
    let missing = if whole && failed.is_empty() {
        tally.never_seen()
    } else {
        Vec::new()
    };
    let seconds = begin.elapsed().as_secs_f64();
    if arguments.json {
        let mut result = tally.json();
        result["failed_seeds"] = failed.clone().into();
        result["seconds"] = seconds.into();
        println!("{result:#}");
    } else {
        for (name, count) in &tally.marks.0 {
            println!("{count:>12}  {name}");
        }
        println!("\n{}\n", tally.table());
        println!("{} failed, {seconds:.1} s", failed.len());
    }
    for what in &missing {
        eprintln!("never seen: {what}");
    }
    Ok(ExitCode::from(u8::from(
        !failed.is_empty() || !missing.is_empty(),
    )))
}
