//! A run of `inkstone bench`, a process of its own.

use super::load::{CLIENTS, Load, Run, Sizes, classes};
use crate::apt::output;
use inkstone_testkit::build::{RELEASE, Result};
use inkstone_testkit::loops::{Case, Mounted};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a row of `bench commit`, with what its leaf adds.
const MEMORY_ROW_BYTES: u64 = 140;
const MEMORY_TABLES: u64 = 8;

/// Builds the program; gives its path.
pub fn build() -> Result<PathBuf> {
    RELEASE.build("inkstone-cli", "inkstone")
}

/// Makes a database on the device, runs the load, and removes the database.
pub fn run(program: &Path, case: &Case, device: &Mounted, load: Load, sizes: Sizes) -> Result<Run> {
    // It ends with this program, whatever happens to that, and lets go of the device.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
        .args(["bench", "--json"])
        .args(workload(load, sizes));
    command.arg("--directory").arg(device.directory());
    command.args(["--clients", &CLIENTS.to_string()]);
    command.args(["--flush-log-at-trx-commit", "1"]);
    command.args(["--seconds", &sizes.seconds.to_string()]);
    for option in [
        format!("doublewrite={}", case.doublewrite),
        format!("page_size={}", case.page_bytes),
        format!("log_file_size={}", sizes.log_bytes),
    ] {
        command.args(["--set", &option]);
    }
    let printed = output(&mut command).map_err(|error| format!("{}: {error}", case.name))?;
    let run = printed.lines().find_map(|line| parse(line, load));
    run.ok_or_else(|| format!("inkstone bench printed something else:\n{printed}"))
}

/// The workload, and its own arguments.
fn workload(load: Load, sizes: Sizes) -> Vec<String> {
    let pool = sizes.pool_bytes;
    let text = match load {
        Load::Memory => {
            let rows = sizes.data_bytes(load) / MEMORY_ROW_BYTES / MEMORY_TABLES;
            format!(
                "commit --tables {MEMORY_TABLES} --rows {rows} --log-write sync \
                 --log-file-buffering off --set buffer_pool_size={pool} --set flush_method=O_DIRECT"
            )
        }
        Load::Larger => format!(
            "update --buffer-pool-size {pool} --flush-method O_DIRECT --buffer-pool-instances 1 \
             --set log_file_buffering=off --warmup {}",
            sizes.warm_up()
        ),
    };
    text.split_whitespace().map(str::to_owned).collect()
}

/// Understands the line of a result.
fn parse(line: &str, load: Load) -> Option<Run> {
    let line: Value = serde_json::from_str(line).ok()?;
    let (rate, each) = match load {
        Load::Memory => ("commits_per_s", "commit"),
        Load::Larger => ("updates_per_s", "update"),
    };
    let written = &line[format!("bytes_written_per_{each}")];
    let device = &line[format!("device_bytes_written_per_{each}")];
    Some(Run {
        updates_per_s: line[rate].as_f64()?,
        worst_over_median: line["worst_over_median"].as_f64(),
        device_bytes_per_update: device.as_f64(),
        written: classes(written.as_object()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_bench_is_understood() {
        let line = r#"{"workload":"update","updates_per_s":900.0,"worst_over_median":null,
            "bytes_written_per_update":{"log":4.5,"data":10.0},
            "device_bytes_written_per_update":20.5}"#;
        let run = parse(line, Load::Larger).expect("a result");
        assert_eq!(run.updates_per_s, 900.0);
        assert_eq!(run.worst_over_median, None);
        assert_eq!(run.device_bytes_per_update, Some(20.5));
        assert_eq!(run.own_bytes_per_update(), 14.5);
        assert!(parse(line, Load::Memory).is_none());
    }
}
