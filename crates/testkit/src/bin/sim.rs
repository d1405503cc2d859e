//! `cargo xtask sim`: the engine on a simulated disk that loses power. See docs/testing.md.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use inkstone_io::sim::{Fault, OpKind};
use inkstone_testkit::driver::{Marks, Plan, Profile};
use inkstone_testkit::failed_sync::flushers;
use inkstone_testkit::marks::{RUNS_TO_JUDGE, SOMETIMES};
use inkstone_testkit::workers::{self, Campaign, Tally};
use inkstone_testkit::{campaign, faults, small_log};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Every so many seeds a run is one of slow syncs of which one fails (`failed-sync`).
const FLUSHERS_EVERY: u64 = 4;
/// Of so many seeds one is of clients that share a small log.
const SMALL_LOG_EVERY: u64 = 16;
const SMALL_LOG_AT: u64 = 6;

/// Runs the real engine on a simulated disk: random work of several clients, then a power loss or a
/// kill, then recovery (interrupted, too), then a comparison with a model. Again and again.
///
/// A seed decides everything: the features of the run, the work, where the power fails, what the
/// disk keeps. A run that fails prints the command that repeats it.
#[derive(Parser, Debug)]
#[command(name = "sim", bin_name = "cargo xtask sim", version, after_help = AFTER_HELP)]
struct Arguments {
    /// The seed of the run, or the first seed of a campaign [a campaign's default: from the clock]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Runs so many seeds, one after the other
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Runs seeds for so many minutes; a run that has begun is finished
    #[arg(long, value_name = "M", value_parser = minutes)]
    minutes: Option<Duration>,
    /// Steps of work in a run, at most [default: as many as its cycles have]
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// How often the process ends in a run, at most [default: 5, or with --steps as often as it
    /// comes]
    #[arg(long, value_name = "C")]
    cycles: Option<u64>,
    /// Only clients that are threads and share a small log (otherwise one seed of sixteen)
    #[arg(long, conflicts_with_all = ["steps", "cycles", "fault"])]
    small_log: bool,
    /// Only runs with features that lead to a certain kind of trouble
    #[arg(long, value_name = "NAME", conflicts_with_all = ["small_log", "fault"])]
    profile: Option<Profile>,
    /// Processes that run seeds at the same time [default: two for each core]
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Goes on after a run has failed
    #[arg(long)]
    keep_going: bool,
    /// Prints the features of the run and each of its steps to the error output
    #[arg(long)]
    trace: bool,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
    /// One operation on the disk fails, of this kind: read, write, sync, allocate, rename, syncdir,
    /// open, remove
    #[arg(long, value_name = "KIND", value_parser = kind)]
    fault: Option<OpKind>,
    /// With --fault: which operation of the kind, counted from 1
    #[arg(long, value_name = "K", default_value_t = 1, requires = "fault")]
    nth: u64,
    /// With --fault: how many of them
    #[arg(long, value_name = "T", default_value_t = 1, requires = "fault")]
    times: u64,
    /// With --fault: Eio, Enospc or ShortWrite
    #[arg(long, value_name = "E", default_value = "Eio", requires = "fault", value_parser = fault)]
    error: Fault,
    /// Switches a deliberate bug of the engine on; a wrong name prints all
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Runs the seeds that come on the input (for the processes of a campaign)
    #[arg(long, hide = true)]
    worker: bool,
}

const AFTER_HELP: &str = "\
Examples:
  cargo xtask sim --minutes 2                a campaign on all cores
  cargo xtask sim --seed 42 --steps 500      one run
  cargo xtask sim --seed 42 --trace          the same features and seed, step by step
  cargo xtask sim --seed 1 --runs 300 --json a campaign that is the same each time

Exit code: 0 all is well; 1 a promise was broken, or a campaign of 400 runs or more never saw one
of its marks; 2 wrong use.";

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "a number, as in 2 or 0.5")?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| "a number above 0".to_owned())
}

fn kind(text: &str) -> Result<OpKind, String> {
    let mut kinds = OpKind::ALL.into_iter();
    let found = kinds.find(|kind| format!("{kind:?}").eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("one of {:?}", OpKind::ALL))
}

fn fault(text: &str) -> Result<Fault, String> {
    let all = [Fault::Eio, Fault::Enospc, Fault::ShortWrite];
    let mut faults = all.into_iter();
    let found = faults.find(|fault| format!("{fault:?}").eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("one of {all:?}"))
}

impl Arguments {
    /// Whether there are marks that its runs cannot come to.
    fn is_narrow(&self) -> bool {
        self.small_log || self.profile.is_some()
    }

    fn run_seed(&self, seed: u64) -> (Marks, Result<(), String>) {
        if let Some(kind) = self.fault {
            return faults::run(seed, kind, self.nth, self.error, self.times, self.trace);
        }
        let own = self.steps.is_none() && self.cycles.is_none() && self.profile.is_none();
        if self.small_log || own && seed % SMALL_LOG_EVERY == SMALL_LOG_AT {
            let case = small_log::Case::of_seed(seed);
            if self.trace {
                eprintln!("{case:?}");
            }
            return campaign::run_small_log(case);
        }
        if own && seed.is_multiple_of(FLUSHERS_EVERY) {
            let case = flushers::Case::of_seed(seed / FLUSHERS_EVERY, None);
            if self.trace {
                eprintln!("{case:?}");
            }
            return campaign::run_flushers(case);
        }
        let usual = match self.profile {
            Some(profile) => Plan::of_profile(profile, seed),
            None => Plan::of_seed(seed),
        };
        let cycles = match self.steps {
            Some(_) => u64::MAX,
            None => usual.cycles,
        };
        campaign::run(Plan {
            cycles: self.cycles.unwrap_or(cycles),
            steps_total: self.steps.unwrap_or(usual.steps_total),
            trace: self.trace,
            ..usual
        })
    }

    fn campaign(&self) -> Campaign {
        let single = self.runs.is_none() && self.minutes.is_none();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = clock.map_or(1, |time| time.as_secs() * 1000);
        // The engine's threads sleep at times: pacing, group commit.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let own = ["--runs", "--minutes", "--jobs"];
        let mut arguments = Vec::new();
        let mut given = std::env::args().skip(1);
        while let Some(argument) = given.next() {
            let name = argument.split('=').next().unwrap_or_default();
            match own.contains(&name) {
                true if argument.contains('=') => {}
                true => drop(given.next()),
                false => arguments.push(argument),
            }
        }
        Campaign {
            first_seed: self.seed.unwrap_or(if single { 1 } else { clock }),
            runs: if single { Some(1) } else { self.runs },
            time: self.minutes,
            jobs: if single || self.trace {
                1
            } else {
                self.jobs.map_or(2 * cores, |jobs| jobs as usize)
            },
            keep_going: self.keep_going,
            show_output: self.trace,
            arguments,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.mutant
        && let Err(error) = inkstone::internals::mutants::switch_on(name)
    {
        eprintln!("sim: {error}");
        return ExitCode::from(2);
    }
    let done = if arguments.worker {
        workers::serve(|seed| arguments.run_seed(seed)).map(|()| ExitCode::SUCCESS)
    } else {
        lead(&arguments)
    };
    done.unwrap_or_else(|error| {
        eprintln!("sim: {error}");
        ExitCode::from(2)
    })
}

/// Runs the campaign and reports.
fn lead(arguments: &Arguments) -> std::io::Result<ExitCode> {
    let (campaign, begin) = (arguments.campaign(), Instant::now());
    let bar = match campaign.runs {
        Some(runs) => ProgressBar::new(runs),
        None => ProgressBar::no_length(),
    };
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:20} {msg}") {
        bar.set_style(style);
    }
    let tally = workers::run(&campaign, &|tally| {
        let marks = &tally.marks;
        let (runs, crashes) = (marks.get("runs"), marks.crashes());
        let (commits, failed) = (marks.get("commits checked"), tally.failures.len());
        bar.set_position(runs);
        bar.set_message(format!(
            "{runs} runs, {crashes} crashes, {commits} commits checked, {failed} failed"
        ));
    })?;
    bar.finish_and_clear();
    if arguments.json {
        println!("{:#}", tally.to_json());
    } else {
        report(&campaign, &tally, begin.elapsed());
        if !arguments.is_narrow() {
            report_missing(&tally);
        }
    }
    let lacks_marks = !arguments.is_narrow() && !tally.missing().is_empty();
    let bad = lacks_marks || !tally.failures.is_empty();
    Ok(ExitCode::from(u8::from(bad)))
}

fn report(campaign: &Campaign, tally: &Tally, time: Duration) {
    let marks = &tally.marks;
    for failure in &tally.failures {
        println!("FAILED seed {}: {}\n", failure.seed, failure.text);
    }
    let sometimes = |name: &str| SOMETIMES.iter().any(|(other, _)| *other == name);
    println!("{:>12}  what else was counted", "");
    for (name, count) in marks.0.iter().filter(|(name, _)| !sometimes(name)) {
        println!("{count:>12}  {name}");
    }
    println!("{:>12}  marks", "");
    for (name, _) in SOMETIMES {
        println!("{:>12}  {name}", marks.get(name));
    }
    let (runs, crashes) = (marks.get("runs"), marks.crashes());
    let seconds = time.as_secs_f64();
    println!(
        "{runs} runs from seed {}, {crashes} crashes (power losses and kills, {} of them inside an opening), {} commits checked, {} failed, {seconds:.1} s",
        campaign.first_seed,
        marks.get("crashes while opening"),
        marks.get("commits checked"),
        tally.failures.len(),
    );
}

fn report_missing(tally: &Tally) {
    match tally.missing() {
        missing if !missing.is_empty() => println!("NEVER SEEN: {}", missing.join(", ")),
        _ if tally.is_judged() => println!("every mark was seen"),
        _ => println!("marks are judged from {RUNS_TO_JUDGE} runs without a failure on"),
    }
}
