//! Runs seeds twice each and compares: `determinism --seed S --runs N`.

use clap::Parser;
use std::process::ExitCode;

/// Checks that the runs of `cargo xtask sim` follow from their seeds: runs each twice, and compares
/// every decision of the scheduler, every write to the disk and every count.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask determinism", version)]
struct Arguments {
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u64,
    /// Prints a line for each run
    #[arg(long)]
    verbose: bool,
}

#[cfg(not(inkstone_sim))]
fn main() -> ExitCode {
    Arguments::parse();
    eprintln!("this build has no seeded scheduler: use `cargo xtask determinism`");
    ExitCode::from(2)
}

#[cfg(inkstone_sim)]
fn main() -> ExitCode {
    use inkstone_testkit::campaign::watched;
    use inkstone_testkit::driver::Plan;
    use inkstone_testkit::schedule::scheduled;

    let arguments = Arguments::parse();
    let (begin, mut steps, mut switches, mut failed) = (std::time::Instant::now(), 0, 0, 0);
    for seed in arguments.seed..arguments.seed + arguments.runs {
        let line = format!("cargo xtask determinism --seed {seed} --runs 1");
        match watched(&line, || scheduled::check(&Plan::of_seed(seed))) {
            Ok(ran) => {
                let report = &ran.report;
                steps += report.steps;
                switches += report.switches;
                if arguments.verbose {
                    println!(
                        "seed {seed}: fingerprint {:016x}, {} steps, {} switches, {:.1?} of virtual time",
                        report.fingerprint, report.steps, report.switches, report.virtual_time
                    );
                }
                if let Err(text) = ran.result {
                    failed += 1;
                    println!("seed {seed} fails, twice in the same way: {text}");
                }
            }
            Err(text) => {
                failed += 1;
                println!("FAILED {text}\n  repeat: {line}");
            }
        }
    }
    println!(
        "{} seeds twice each: {steps} steps, {switches} switches, {failed} failed, {:.1} s",
        arguments.runs,
        begin.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(failed > 0))
}
