//! `cargo xtask failed-sync`: many tables, slow syncs, one of which fails. See docs/testing.md.

use clap::Parser;
use inkstone_testkit::campaign;
use inkstone_testkit::failed_sync::flushers::{self, Case, Failing};
use inkstone_testkit::workers::{self, Campaign};
use std::process::ExitCode;
use std::time::Instant;

/// Several threads write and flush many tables on a simulated disk whose syncs are slow; one sync
/// fails once, and power is lost. Every acknowledged row must be there.
///
/// A seed decides the tables, the options, which sync fails, and the schedule of the threads.
#[derive(Parser, Debug)]
#[command(name = "failed-sync", bin_name = "cargo xtask failed-sync", version)]
struct Arguments {
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 100)]
    runs: u64,
    /// Only syncs of these files fail [default: of any file]
    #[arg(long, value_name = "FILES")]
    failing: Option<Failing>,
    /// Processes that run seeds at the same time [default: one for each core]
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Goes on after a run has failed
    #[arg(long)]
    keep_going: bool,
    /// Prints the case of each seed to the error output
    #[arg(long)]
    trace: bool,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
    /// Switches a deliberate bug of the engine on; a wrong name prints all
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Runs the seeds that come on the input (for the processes of a campaign)
    #[arg(long, hide = true)]
    worker: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.worker {
        serve(&arguments).map(|()| ExitCode::SUCCESS)
    } else {
        lead(&arguments)
    };
    done.unwrap_or_else(|error| {
        eprintln!("failed-sync: {error}");
        ExitCode::from(2)
    })
}

fn serve(arguments: &Arguments) -> std::io::Result<()> {
    if let Some(name) = &arguments.mutant {
        inkstone::internals::mutants::switch_on(name).map_err(std::io::Error::other)?;
    }
    workers::serve(|seed| {
        let case = Case::of_seed(seed, arguments.failing);
        if arguments.trace {
            eprintln!("{case:?}");
        }
        campaign::run_flushers(case)
    })
}

/// Runs the campaign and reports.
fn lead(arguments: &Arguments) -> std::io::Result<ExitCode> {
    if let Some(name) = &arguments.mutant {
        inkstone::internals::mutants::find(name).map_err(std::io::Error::other)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut given = Vec::new();
    if arguments.trace {
        given.push("--trace".to_owned());
    }
    if let Some(name) = &arguments.mutant {
        given.extend(["--mutant".to_owned(), name.clone()]);
    }
    if let Some(failing) = arguments.failing {
        given.push(failing.argument().to_owned());
    }
    let campaign = Campaign {
        first_seed: arguments.seed,
        runs: Some(arguments.runs),
        time: None,
        jobs: arguments.jobs.map_or(cores, |jobs| jobs as usize),
        keep_going: arguments.keep_going,
        show_output: arguments.trace,
        arguments: given,
    };
    let begin = Instant::now();
    let tally = workers::run(&campaign, &|_| ())?;
    if arguments.json {
        println!("{:#}", tally.to_json());
    } else {
        for failure in &tally.failures {
            println!("FAILED seed {}: {}\n", failure.seed, failure.text);
        }
        println!(
            "{} runs from seed {}, in {} a sync failed, {} acknowledged rows checked, {} runs lost rows, {:.1} s",
            tally.marks.get("runs"),
            arguments.seed,
            tally.marks.get(flushers::FAILED_MARK),
            tally.marks.get("rows checked"),
            tally.failures.len(),
            begin.elapsed().as_secs_f64(),
        );
    }
    // Without a failed sync nothing was shown.
    let shown = tally.marks.get(flushers::FAILED_MARK) > 0;
    let bad = !tally.failures.is_empty() || !shown && arguments.runs >= 20;
    Ok(ExitCode::from(u8::from(bad)))
}
