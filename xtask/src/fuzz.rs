//! `cargo xtask fuzz`: libFuzzer over every parser, and over the engine.
//!
//! The targets are built by the toolchain at hand, with coverage for libFuzzer and with
//! AddressSanitizer, which also bounds single allocations. `-Zsanitizer` asks for a nightly
//! compiler or for `RUSTC_BOOTSTRAP`; the compiler of everything else is the one to test.

use inkstone_testkit::build::{Result, root, status};
use std::process::{Command, ExitCode};

/// Fuzzes every parser, and the engine (see docs/testing.md): a minute for each target.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// What the program `fuzz` takes; `--help` shows it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

const INSTRUMENTATION: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address";

/// Builds the targets and runs the program `fuzz` over them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let only_talks = ["--list", "--help", "-h"];
    let talks = arguments
        .rest
        .iter()
        .any(|argument| only_talks.contains(&argument.as_str()));
    let host = host()?;
    if !talks {
        check_compiler()?;
        build(&host, &arguments.rest)?;
    }
    let target = root().join("target/fuzz");
    let mut program = Command::new(cargo());
    program
        .current_dir(root())
        .args([
            "run",
            "--quiet",
            "-p",
            "inkstone-testkit",
            "--bin",
            "fuzz",
            "--",
        ])
        .args(&arguments.rest);
    if !talks {
        program
            .arg("--programs")
            .arg(target.join(&host).join("release"));
        program.arg("--work").arg(target.join("work"));
    }
    status(&mut program)
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or("cargo".to_owned())
}

fn build(host: &str, arguments: &[String]) -> Result<()> {
    eprintln!("building the fuzz targets (the first time takes minutes)");
    let mut command = Command::new(cargo());
    command
        .current_dir(root())
        .env("RUSTFLAGS", INSTRUMENTATION)
        .env("RUSTC_BOOTSTRAP", "1")
        .args([
            "build",
            "--quiet",
            "--release",
            "--manifest-path",
            "fuzz/Cargo.toml",
        ])
        // Named, so that build scripts and macros are not instrumented.
        .args(["--target", host, "--target-dir", "target/fuzz"]);
    let named = arguments.windows(2).filter(|pair| pair[0] == "--target");
    for pair in named {
        command.args(["--bin", &pair[1]]);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the fuzz targets cannot be built (see above)".to_owned()),
        Err(error) => Err(format!("cargo cannot be started: {error}")),
    }
}

/// libFuzzer is built from source.
fn check_compiler() -> Result<()> {
    let compiler = std::env::var("CXX").unwrap_or("c++".to_owned());
    match Command::new(&compiler).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(format!(
            "libFuzzer needs a C++ compiler, and {compiler} does not run: install one (on Debian: \
             apt-get install g++), or name it in CXX"
        )),
    }
}

/// The platform that this toolchain builds for.
fn host() -> Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or("rustc".to_owned());
    let output = Command::new(&rustc).arg("-vV").output();
    let output = output.map_err(|error| format!("{rustc} cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| format!("{rustc} -vV names no host"))
}
