//! Runs the `inkstone` program.

use serde_json::Value;
use std::process::Command;

/// Runs it; the exit code, stdout and stderr.
pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_inkstone"));
    let out = program.args(arguments).output().expect("the program runs");
    (
        out.status.code().expect("no signal"),
        String::from_utf8(out.stdout).unwrap(),
        String::from_utf8(out.stderr).unwrap(),
    )
}

/// Runs it with `--json`: the exit code, and each line as a value.
pub fn json(arguments: &[&str]) -> (i32, Vec<Value>) {
    let (code, out, err) = run(&[&["--json"], arguments].concat());
    let lines = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}\n{err}")));
    (code, lines.collect())
}

/// Runs it with `--json`: what a command that succeeds prints.
pub fn json_ok(arguments: &[&str]) -> Vec<Value> {
    let (code, lines) = json(arguments);
    assert_eq!(code, 0, "{arguments:?}: {lines:#?}");
    lines
}

/// Databases that fit in a test.
pub const SMALL: [&str; 4] = [
    "--set",
    "buffer_pool_size=64m",
    "--set",
    "log_file_size=64m",
];
