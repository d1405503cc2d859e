//! `cargo xtask tsan`: the engine with threads of its own under ThreadSanitizer.
//!
//! Needs the nightly toolchain. Its standard library is not built for ThreadSanitizer:
//! `xtask/tsan/decrement.rs` and `xtask/tsan/suppressions.txt` say what follows from that.
//!
//! ThreadSanitizer writes its reports to files, one for each process, and they are judged at the
//! end: a report counts whatever the process made of its exit code.

mod reports;

use inkstone_testkit::build::{Result, root};
use reports::Reports;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Tests of the library in which threads meet.
const MODULES: &[&str] = &["buffer::", "log::", "mvcc::", "locks::", "txn::"];
/// Tests of the whole engine in which threads meet.
const TESTS: &[&str] = &["threads", "locks", "isolation"];

/// Runs the tests in which threads meet, and campaigns of `histories` and `sim`, under
/// ThreadSanitizer (see docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// Run only the tests whose name contains this, and no campaigns
    filter: Option<String>,
    /// Runs of `histories`
    #[arg(long, default_value_t = 12)]
    histories: u64,
    /// Runs of `sim`
    #[arg(long, default_value_t = 12)]
    crashes: u64,
}

/// Builds and runs them. The exit code is 1 if a test failed or there was a report.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let nightly = Nightly::find()?;
    nightly.compile_decrement()?;
    let reports = Reports::begin(&folder().join("reports"))?;
    let mut failed = Vec::new();
    for (what, mut command) in steps(&nightly, arguments) {
        println!("== {what}");
        let status = command
            .env("TSAN_OPTIONS", reports.options())
            .status()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        if !status.success() {
            failed.push(format!("{what}: {status}"));
        }
    }
    let found = reports.print()?;
    for what in &failed {
        eprintln!("failed: {what}");
    }
    Ok(ExitCode::from(u8::from(found > 0 || !failed.is_empty())))
}

/// What runs, in turn.
fn steps(nightly: &Nightly, arguments: &Arguments) -> Vec<(&'static str, Command)> {
    // The runner's copy of what a test writes is freed by the last thread of the test, in code that
    // is not built for ThreadSanitizer: so it makes none.
    let mut modules = nightly.cargo("test");
    modules.args(["-p", "inkstone", "--lib", "--", "--nocapture"]);
    let mut engine = nightly.cargo("test");
    engine.args(["-p", "inkstone", "--no-fail-fast"]);
    for test in TESTS {
        engine.args(["--test", test]);
    }
    engine.args(["--", "--nocapture"]);
    if let Some(filter) = &arguments.filter {
        modules.arg(filter);
        engine.arg(filter);
        return vec![("modules", modules), ("engine", engine)];
    }
    modules.args(MODULES);
    let campaign = |program, runs: u64| {
        let mut command = nightly.cargo("run");
        command.args(["-p", "inkstone-testkit", "--bin", program, "--"]);
        command.args(["--seed", "1", "--runs", &runs.to_string()]);
        command
    };
    vec![
        ("modules", modules),
        ("engine", engine),
        ("histories", campaign("histories", arguments.histories)),
        ("crashes", campaign("sim", arguments.crashes)),
    ]
}

fn folder() -> PathBuf {
    root().join("target/tsan")
}

/// The nightly toolchain; only it has sanitizers.
struct Nightly {
    /// What it compiles for. Named to cargo, so that build scripts and macros, which run in the
    /// compiler, are built as usual.
    host: String,
}

impl Nightly {
    fn find() -> Result<Self> {
        let output = Command::new("rustup")
            .args(["run", "nightly", "rustc", "-vV"])
            .output()
            .map_err(|error| format!("rustup cannot be started: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        match host {
            Some(host) if output.status.success() => Ok(Self {
                host: host.to_owned(),
            }),
            _ => Err(format!(
                "ThreadSanitizer needs the nightly toolchain (rustup toolchain install nightly): {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    /// A program of the toolchain.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("rustup");
        command.current_dir(root()).args(["run", "nightly", name]);
        command
    }

    /// A cargo command that builds for ThreadSanitizer.
    fn cargo(&self, subcommand: &str) -> Command {
        let flags = [
            std::env::var("RUSTFLAGS").unwrap_or_default(),
            "-Zsanitizer=thread".to_owned(),
            // The standard library has none.
            "-Cunsafe-allow-abi-mismatch=sanitizer".to_owned(),
            // Locks that ThreadSanitizer understands; mappings by calls that it sees.
            "--cfg inkstone_tsan --cfg rustix_use_libc".to_owned(),
            format!("-Clink-arg={}", folder().join("decrement.o").display()),
            "-Clink-arg=-Wl,--wrap=__tsan_atomic64_fetch_sub".to_owned(),
        ];
        let mut command = self.program("cargo");
        command
            .env("RUSTFLAGS", flags.join(" ").trim())
            .arg(subcommand)
            .args(["--quiet", "--profile", "sim", "--target", &self.host])
            .arg("--target-dir")
            .arg(folder());
        command
    }

    fn compile_decrement(&self) -> Result<()> {
        std::fs::create_dir_all(folder()).map_err(|error| format!("target/tsan: {error}"))?;
        let mut command = self.program("rustc");
        command
            .args(["--edition", "2024", "--crate-type", "lib", "--emit", "obj"])
            .args(["-O", "-Cpanic=abort", "-o"])
            .arg(folder().join("decrement.o"))
            .arg(root().join("xtask/tsan/decrement.rs"));
        let status = command
            .status()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{command:?} failed"))
        }
    }
}
