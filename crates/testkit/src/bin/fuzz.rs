//! `cargo xtask fuzz` builds the instrumented programs and runs this, which steers them.

use clap::Parser;
use inkstone_testkit::fuzz::TARGETS;
use inkstone_testkit::fuzz::campaign::{Campaign, Result, select};
use std::path::PathBuf;
use std::process::ExitCode;

/// Fuzzes Inkstone's parsers and the engine.
#[derive(Parser)]
struct Arguments {
    /// Targets to fuzz (as a rule all, one after the other).
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Lists the targets.
    #[arg(long)]
    list: bool,
    /// Runs this one input of the one target that is named.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The folder of the instrumented programs.
    #[arg(long, hide = true, default_value = ".")]
    programs: PathBuf,
    /// The folder for seeds, corpora and findings.
    #[arg(long, hide = true, default_value = "target/fuzz/work")]
    work: PathBuf,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<bool> {
    if arguments.list {
        TARGETS
            .iter()
            .for_each(|target| println!("{:<12} {}", target.name, target.about));
        return Ok(true);
    }
    let targets = select(&arguments.targets)?;
    let Arguments {
        programs,
        work,
        seconds,
        ..
    } = arguments;
    let campaign = Campaign {
        programs,
        work,
        seconds,
    };
    match (arguments.input, targets.as_slice()) {
        (None, targets) => campaign.run(targets),
        (Some(input), [target]) => {
            let status = campaign.program(target).arg(input).status();
            Ok(status
                .map_err(|error| format!("{}: {error}", target.name))?
                .success())
        }
        (Some(_), _) => Err("--input needs the one --target that it is for".to_owned()),
    }
}
