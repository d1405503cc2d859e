//! `cargo xtask faults`: every operation on the disk fails once; every byte on it changes. See
//! docs/testing.md.

use clap::Parser;
use inkstone_io::sim::OpKind;
use inkstone_testkit::faults::report::{Budget, Report};
use inkstone_testkit::faults::{every, work};
use std::process::ExitCode;
use std::time::Duration;

/// Lets every operation on a simulated disk fail, one after the other, and changes its bytes in every
/// region. The engine must give an error, and lose nothing.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask faults", version)]
struct Arguments {
    /// Only this kind: read, write, sync, allocate, truncate, rename, syncdir, open, remove, look,
    /// createdir, lock; or damage; or huge
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// At most so many minutes; without it, until every case has run
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Every S-th case only
    #[arg(long, value_name = "S", default_value_t = 1)]
    stride: u64,
    /// Only this case, as a failure names it
    #[arg(long, value_name = "CASE")]
    case: Option<every::Case>,
    /// Goes on after a failure
    #[arg(long)]
    keep_going: bool,
    /// Switches a deliberate bug on
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every promise was kept.
fn run(arguments: &Arguments) -> Result<bool, String> {
    if let Some(name) = &arguments.mutant {
        inkstone::mutants::switch_on(name)?;
    }
    let (kinds, damage, huge) = kinds(arguments.kind.as_deref())?;
    let starts = work::starts();
    let mut report = Report::new(Budget {
        time: arguments.minutes.map(|m| Duration::from_secs_f64(m * 60.0)),
        stride: arguments.stride.max(1),
        keep_going: arguments.keep_going,
    });
    match (starts, arguments.case) {
        // A mutant may break what a fault would only show.
        (Err(text), _) => report.broken(text),
        (Ok(starts), Some(case)) => report.case(&starts, case),
        (Ok(starts), None) => {
            // First what is quick.
            if damage {
                report.damage(&starts);
            }
            if huge {
                report.huge();
            }
            kinds.iter().for_each(|&kind| report.kind(&starts, kind));
        }
    }
    match arguments.json {
        true => println!("{}", report.json()),
        false => print!("{report}"),
    }
    Ok(report.is_clean())
}

/// The kinds of operations, whether to damage bytes, and whether to try huge files.
fn kinds(only: Option<&str>) -> Result<(Vec<OpKind>, bool, bool), String> {
    let all = OpKind::ALL.to_vec();
    match only {
        None => Ok((all, true, true)),
        Some("damage") => Ok((Vec::new(), true, false)),
        Some("huge") => Ok((Vec::new(), false, true)),
        Some(name) => {
            let named = |kind: &OpKind| format!("{kind:?}").eq_ignore_ascii_case(name);
            let kinds: Vec<_> = all.into_iter().filter(named).collect();
            match kinds.is_empty() {
                true => Err(format!("there is no kind {name}; --help lists them")),
                false => Ok((kinds, false, false)),
            }
        }
    }
}
