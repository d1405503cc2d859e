//! The program `crash` for a few seconds: real processes killed, and power loss where file systems
//! can be mounted. And that it leaves nothing behind, however it ends.

use inkstone_testkit::fuse;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn crash(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crash"));
    command.arg("--dir").arg(place).args(arguments);
    command
}

/// A mark of a report in JSON.
fn mark(report: &str, name: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(report).unwrap();
    value["marks"][name].as_u64().unwrap_or_default()
}

fn run(arguments: &[&str]) -> String {
    let place = TempDir::new().unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = crash(place.path(), arguments).output().unwrap();
    let (report, errors) = (
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    );
    assert!(status.success(), "{status}\n{report}\n{errors}");
    assert!(nothing_left(place.path()));
    report
}

#[test]
fn killed_processes_lose_nothing() {
    let report = run(&["--json", "--on", "disk", "--minutes", "0.06", "--seed", "1"]);
    assert!(mark(&report, "kills") > 0, "{report}");
    assert!(mark(&report, "commits checked") > 0, "{report}");
}

#[test]
fn power_loss_loses_nothing_promised() {
    if let Some(why) = fuse::unavailable() {
        eprintln!("skipped: {why}");
        return;
    }
    let arguments = ["--json", "--on", "fuse", "--minutes", "0.06", "--seed", "2"];
    let report = run(&arguments);
    assert!(mark(&report, "power losses") > 0, "{report}");
    assert!(mark(&report, "commits checked") > 0, "{report}");
}

/// No mount, and no process that has the place in its arguments.
fn nothing_runs(place: &Path) -> bool {
    let place = place.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let mut of_place = lines.filter(|line| String::from_utf8_lossy(line).contains(place));
    of_place.next().is_none() && !mounts.contains(place)
}

fn nothing_left(place: &Path) -> bool {
    nothing_runs(place) && std::fs::read_dir(place).unwrap().count() == 0
}

/// Starts a campaign, sends a signal to it in the middle of its work, and waits for its end.
fn interrupt(place: &Path, signal: rustix::process::Signal) -> std::process::ExitStatus {
    let mut command = crash(place, &["--minutes", "5", "--seed", "3"]);
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut campaign = quiet.spawn().unwrap();
    let begin = Instant::now();
    let working = || std::fs::read_dir(place).unwrap().count() > 0;
    while !working() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(700));
    let id = rustix::process::Pid::from_child(&campaign);
    rustix::process::kill_process(id, signal).unwrap();
    campaign.wait().unwrap()
}

#[test]
fn an_interrupted_campaign_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let status = interrupt(place.path(), rustix::process::Signal::INT);
    assert!(status.success(), "{status}");
    assert!(nothing_left(place.path()));
}

#[test]
fn a_killed_campaign_leaves_no_processes_and_no_mounts() {
    let place = TempDir::new().unwrap();
    interrupt(place.path(), rustix::process::Signal::KILL);
    // Files are left: no process was there to remove them.
    let begin = Instant::now();
    while !nothing_runs(place.path()) {
        assert!(begin.elapsed() < Duration::from_secs(20), "still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}
