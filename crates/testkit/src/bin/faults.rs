//! `cargo xtask faults`: every operation on the disk fails once; every byte on it changes. See
//! docs/testing.md.

use clap::{Parser, Subcommand};
use inkstone_io::sim::OpKind;
use inkstone_testkit::faults::damage;
use inkstone_testkit::faults::processes::{self, ChildArguments};
use inkstone_testkit::faults::report::{Budget, Case, Report};
use inkstone_testkit::faults::work::{self, Start};
use std::process::ExitCode;
use std::time::Duration;

/// Lets every operation on a simulated disk fail, one after the other, whole files for as long as
/// it lasts, changes its bytes in every region, and gives processes small budgets. The engine must
/// give an error, and lose nothing.
#[derive(Parser, Debug)]
#[command(
    name = "cargo xtask faults",
    version,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// Only this kind: read, write, sync, allocate, truncate, rename, syncdir, open, remove, look,
    /// list, createdir, lock; or damage, placed, huge, lasting, full, handles, processes, around
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// At most so many minutes; without it, until every case has run
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Every S-th case only
    #[arg(long, value_name = "S", default_value_t = 1)]
    stride: u64,
    /// At most so many cases
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    cases: u64,
    /// Only this case, as a failure names it
    #[arg(long, value_name = "CASE")]
    case: Option<Case>,
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

#[derive(Subcommand, Debug)]
enum Role {
    /// A process with a budget.
    #[command(hide = true)]
    Child(ChildArguments),
}

/// What there is besides operations that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Operations of this kind fail.
    Operation(OpKind),
    Damage,
    Placed,
    Huge,
    Lasting,
    Full,
    Handles,
    Processes,
    Around,
}

impl Kind {
    /// All kinds, first what is quick.
    fn all() -> Vec<Kind> {
        let mut all = vec![
            Kind::Around,
            Kind::Handles,
            Kind::Damage,
            Kind::Placed,
            Kind::Huge,
            Kind::Full,
            Kind::Lasting,
            Kind::Processes,
        ];
        all.extend(OpKind::ALL.map(Kind::Operation));
        all
    }

    fn name(self) -> String {
        match self {
            Kind::Operation(kind) => format!("{kind:?}").to_lowercase(),
            kind => format!("{kind:?}").to_lowercase(),
        }
    }

    fn run(self, report: &mut Report, starts: &[Start]) {
        match self {
            Kind::Operation(kind) => report.kind(starts, kind),
            Kind::Damage => report.damage(starts, &damage::IN_PLACE),
            Kind::Placed => report.damage(starts, &damage::PLACED),
            Kind::Huge => report.huge(),
            Kind::Lasting => report.lasting(starts),
            Kind::Full => report.full(),
            Kind::Handles => report.handles(),
            Kind::Processes => report.processes(),
            Kind::Around => report.around(starts),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Role::Child(child)) = &arguments.role {
        return processes::run_child(child);
    }
    match run(&arguments) {
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
        inkstone::internals::mutants::switch_on(name)?;
    }
    let kinds = kinds(arguments.kind.as_deref())?;
    let starts = work::starts();
    let mut report = Report::new(Budget {
        time: arguments.minutes.map(|m| Duration::from_secs_f64(m * 60.0)),
        stride: arguments.stride.max(1),
        cases: arguments.cases,
        keep_going: arguments.keep_going,
    });
    match (starts, arguments.case) {
        // A mutant may break what a fault would only show.
        (Err(text), _) => report.broken(text),
        (Ok(starts), Some(case)) => report.case(&starts, case),
        (Ok(starts), None) => kinds.iter().for_each(|kind| kind.run(&mut report, &starts)),
    }
    if arguments.json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    Ok(report.is_clean())
}

/// The kinds that are asked for.
fn kinds(only: Option<&str>) -> Result<Vec<Kind>, String> {
    let mut kinds = Kind::all();
    if let Some(name) = only {
        kinds.retain(|kind| kind.name().eq_ignore_ascii_case(name));
        if kinds.is_empty() {
            return Err(format!("there is no kind {name}; --help lists them"));
        }
    }
    Ok(kinds)
}
