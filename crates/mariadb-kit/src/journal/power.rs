//! What a power loss leaves: of pages alone, and of a database, by the machine of
//! `cargo xtask crash`, above a device that loses power.

use inkstone_bench::output::{Output, TextTable};
use inkstone_testkit::build::{Result, SIMULATED};
use inkstone_testkit::crash::tear;
use inkstone_testkit::fuse;
use inkstone_testkit::loops::{Case, Ground, Promise};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The seed of the first run.
const SEED: u64 = 1;

/// Columns: what the machine counts, and what it is called here.
const COUNTS: [(&str, &str); 7] = [
    ("power losses", "power_losses"),
    ("unsynced writes lost", "device_writes_lost"),
    ("unsynced writes torn", "device_writes_torn"),
    ("recoveries completed", "recoveries"),
    ("commits checked", "commits_checked"),
    ("commits lost legally", "unsynced_commits_lost"),
    ("torn pages repaired", "torn_pages_repaired"),
];

/// Loses power in each case, `runs` times of each kind. The exit code is 1 if a case broke its
/// promise.
pub fn run(
    ground: &Ground,
    cases: &[&'static Case],
    runs: u64,
    output: &Output,
) -> Result<ExitCode> {
    if let Some(why) = fuse::unavailable() {
        eprintln!("SKIPPED: power losses. No file system of our own can be mounted: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    let program = SIMULATED.build("inkstone-testkit", "crash")?;
    let mut table: Option<TextTable> = None;
    let mut broken = false;
    for case in cases {
        eprintln!("{}: losing power", case.name);
        let torn = tear::probe(&ground.folder().join("tear"), case, runs, SEED);
        let torn = torn.map_err(|error| format!("{}: {error}", case.name))?;
        let report = lose(&program, case, runs)?;
        let line = line(case, torn, &report);
        output.json(&line);
        let fields = line.as_object().into_iter().flatten().skip(1);
        let (names, cells): (Vec<_>, Vec<_>) =
            fields.map(|(name, value)| (name, cell(value))).unzip();
        table
            .get_or_insert_with(|| TextTable::new(names))
            .row(cells);
        let failed = report["failed"].as_array().map_or(&[][..], Vec::as_slice);
        failed.iter().for_each(print_failure);
        let tears = torn.pages > 0 && !case.mends();
        broken |= case.promise == Promise::Whole && (tears || !failed.is_empty());
    }
    if let Some(table) = table {
        table.print(output);
    }
    Ok(ExitCode::from(u8::from(broken)))
}

fn line(case: &Case, torn: tear::Torn, report: &Value) -> Value {
    let mut line = json!({
        "workload": "journal_power_loss",
        "case": case.name,
        "page_size": case.page_bytes,
        "losses_with_torn_pages": format!("{} of {}", torn.losses_with_torn, torn.losses),
        "runs": report["runs"],
    });
    for (mark, name) in COUNTS {
        line[name] = report["marks"][mark].as_u64().unwrap_or_default().into();
    }
    line["violations"] = report["failed"].as_array().map_or(0, Vec::len).into();
    line
}

fn cell(value: &Value) -> String {
    value.to_string().trim_matches('"').to_owned()
}

/// Runs of the machine; gives its report.
fn lose(program: &Path, case: &Case, runs: u64) -> Result<Value> {
    // Its children end with it, and its mounts with them.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command.args(["--above", case.name, "--keep-going", "--json"]);
    command.args(["--seed", &SEED.to_string(), "--runs", &runs.to_string()]);
    let done = command.stderr(Stdio::inherit()).output();
    let done = done.map_err(|error| format!("{program:?} cannot be started: {error}"))?;
    let printed = String::from_utf8_lossy(&done.stdout);
    serde_json::from_str(printed.trim()).map_err(|error| {
        let status = done.status;
        format!("crash ended with {status}, and printed no report: {error}")
    })
}

fn print_failure(failure: &Value) {
    eprintln!(
        "VIOLATION. Repeat (timing differs): {}",
        cell(&failure["repeat"])
    );
    for text in failure["violations"].as_array().into_iter().flatten() {
        eprintln!("  {}", cell(text));
    }
}
