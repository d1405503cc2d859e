//! Many runs, and their report.

use super::run::{Marks, Run, Setting, Violation, takes_direct};
use crate::loops::{self, Case};
use crate::{Rng, fuse};
use clap::ValueEnum;
use inkstone::internals::mutants;
use inkstone::internals::options::IoBackend;
use inkstone_io::BackendChoice;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which backends children use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backends {
    /// pread, pwrite, fdatasync.
    Posix,
    /// io_uring.
    Uring,
    /// Each run one of them, by its seed.
    Both,
}

/// Where databases lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Places {
    /// On a file system of this machine: kills only.
    Disk,
    /// On one of ours: kills and power losses.
    Fuse,
    /// Each run on one of them, by its seed.
    Both,
}

/// Arguments of a campaign.
#[derive(clap::Args, Clone, Debug)]
pub struct CampaignArguments {
    /// How long to go on (default: 1, unless --runs is given).
    #[arg(long)]
    pub minutes: Option<f64>,
    /// How many runs to make.
    #[arg(long)]
    pub runs: Option<u64>,
    /// Seed of the first run; the next one has the next number (default: by the clock).
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print one JSON object at the end instead of text.
    #[arg(long)]
    pub json: bool,
    /// Go on after a violation, up to twenty.
    #[arg(long)]
    pub keep_going: bool,
    /// Where to put databases (default: the system's place for temporary files).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Which I/O backend children use.
    #[arg(long, value_enum, default_value = "both")]
    pub backend: Backends,
    /// Which file system databases lie on.
    #[arg(long, value_enum, default_value = "both")]
    pub on: Places,
    /// Put databases on a file system of the kernel, whose device loses power: kills and power
    /// losses, with the doublewrite and page size that belong to it. Needs root and loop devices.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["on", "require_marks"], value_parser = loops::case)]
    pub above: Option<&'static Case>,
    /// Fail where our own file system cannot be mounted, instead of leaving it out.
    #[arg(long)]
    pub require_fuse: bool,
    /// Switch a deliberate bug on, to see that it is noticed.
    #[arg(long, value_name = "NAME")]
    pub mutant: Option<String>,
    /// Fail if one of the events that matter was never seen.
    #[arg(long)]
    pub require_marks: bool,
}

/// What a campaign must have seen, if it was long enough to mean anything.
const WANTED: [&str; 7] = [
    "kills",
    "kills inside recovery",
    "losers rolled back",
    "prepared transactions found",
    "commits checked",
    "commits there unheard of",
    "losers of thousands of rows",
];
/// And where power was lost.
const WANTED_OF_POWER_LOSS: [&str; 7] = [
    "power losses",
    "power losses inside recovery",
    "power losses while working, at a write or sync",
    "unsynced writes torn",
    "unsynced renames lost",
    "torn pages repaired",
    "commits lost legally",
];

/// Failed runs after which a campaign ends in any case.
const FAILURES_MAX: usize = 20;

/// What this machine can do.
struct Machine {
    fuse: bool,
    uring: bool,
    direct: bool,
}

/// Runs a campaign. The result is the exit code: 0 all is well, 1 violations, 2 it could not run.
pub fn run(arguments: &CampaignArguments) -> ExitCode {
    match campaign(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("crash: {text}");
            ExitCode::from(2)
        }
    }
}

fn campaign(arguments: &CampaignArguments) -> Result<bool, String> {
    // Whether there is such a bug; this process itself opens no database.
    let mutant = arguments.mutant.as_deref();
    mutant.map_or(Ok(()), mutants::switch_on)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|e| e.to_string())?;
    }
    // Before there are other threads, so that all have the same mounts.
    fuse::own_mount_namespace();
    let mut home = tempfile::Builder::new();
    home.prefix("inkstone-crash-");
    let home = match &arguments.dir {
        Some(directory) => {
            std::fs::create_dir_all(directory).and_then(|()| home.tempdir_in(directory))
        }
        None => home.tempdir(),
    };
    let home = home.map_err(|e| format!("a directory for databases: {e}"))?;
    let machine = Machine::look(arguments, home.path())?;
    if let Some(case) = arguments.above
        && let Some(why) = machine.cannot(case, home.path())
    {
        eprintln!("SKIPPED: {}. {why}", case.name);
        return Ok(true);
    }
    let mut report = Report::default();
    let begin = Instant::now();
    let until = time(arguments).map(|time| begin + time);
    let first = arguments.seed.unwrap_or_else(by_the_clock);
    for seed in first.. {
        if stop.load(Ordering::Relaxed) || is_over(arguments, &report, until) {
            break;
        }
        let setting = machine.setting(arguments, seed, home.path(), until);
        report.one(&setting, &stop)?;
        let most = if arguments.keep_going {
            FAILURES_MAX
        } else {
            1
        };
        if report.failed.len() >= most {
            break;
        }
    }
    report.interrupted = stop.load(Ordering::Relaxed);
    report.seconds = begin.elapsed().as_secs_f64();
    report.never_seen(machine.fuse && arguments.on != Places::Disk);
    if !report.failed.is_empty() {
        let _ = home.keep();
    }
    report.print(arguments.json);
    let unseen = arguments.require_marks && !report.unseen.is_empty();
    Ok(report.failed.is_empty() && !unseen)
}

/// How long a campaign goes on; no limit where only a number of runs is given.
fn time(arguments: &CampaignArguments) -> Option<Duration> {
    let minutes = match (arguments.minutes, arguments.runs) {
        (None, None) => Some(1.0),
        (minutes, _) => minutes,
    };
    minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0))
}

fn is_over(arguments: &CampaignArguments, report: &Report, until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
        || arguments.runs.is_some_and(|runs| report.runs >= runs)
}

fn by_the_clock() -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    now.map_or(1, |now| now.as_millis() as u64 % 1_000_000_000)
}

impl Machine {
    fn look(arguments: &CampaignArguments, home: &Path) -> Result<Self, String> {
        let no_fuse = match arguments.on {
            Places::Disk => None,
            _ => fuse::unavailable(),
        };
        if let Some(why) = &no_fuse {
            if arguments.require_fuse {
                return Err(format!("no file system of our own can be mounted: {why}"));
            }
            eprintln!("SKIPPED: power loss. No file system of our own can be mounted: {why}");
        }
        let no_uring = match arguments.backend {
            Backends::Posix => None,
            _ => inkstone_io::default_vfs(BackendChoice::IoUring).err(),
        };
        if let Some(why) = &no_uring {
            eprintln!("SKIPPED: io_uring. The kernel does not allow it: {why}");
        }
        let direct = takes_direct(home);
        if !direct {
            let home = home.display();
            eprintln!("SKIPPED: O_DIRECT on {home}, which does not take it");
        }
        Ok(Self {
            fuse: no_fuse.is_none(),
            uring: no_uring.is_none(),
            direct,
        })
    }

    /// Why there can be no run above a device that loses power, if so.
    fn cannot(&self, case: &Case, home: &Path) -> Option<String> {
        let no_fuse = (!self.fuse).then(|| "It needs our own file system below it".to_owned());
        no_fuse.or_else(|| case.unavailable(home))
    }

    /// Place and backend of a run.
    fn setting(
        &self,
        arguments: &CampaignArguments,
        seed: u64,
        home: &Path,
        until: Option<Instant>,
    ) -> Setting {
        let mut rng = Rng::new(seed ^ 0x5e77);
        let (on_fuse, on_uring) = (rng.chance(65), rng.chance(50));
        let fuse = match arguments.on {
            Places::Disk => false,
            Places::Fuse => true,
            Places::Both => on_fuse,
        };
        let uring = match arguments.backend {
            Backends::Posix => false,
            Backends::Uring => true,
            Backends::Both => on_uring,
        };
        Setting {
            seed,
            home: home.join(format!("run-{seed}")),
            fuse: (fuse || arguments.above.is_some()) && self.fuse,
            case: arguments.above,
            backend: if uring && self.uring {
                IoBackend::IoUring
            } else {
                IoBackend::Posix
            },
            takes_direct: self.direct,
            mutant: arguments.mutant.clone(),
            until,
        }
    }
}

/// What a campaign has seen.
#[derive(Default)]
struct Report {
    runs: u64,
    marks: Marks,
    failed: Vec<(String, Violation)>,
    unseen: Vec<&'static str>,
    seconds: f64,
    interrupted: bool,
}

impl Report {
    fn one(&mut self, setting: &Setting, stop: &AtomicBool) -> Result<(), String> {
        let run = Run::new(setting, stop);
        let run = run.map_err(|error| format!("run {} cannot begin: {error}", setting.seed))?;
        let (marks, result) = run.run();
        self.runs += 1;
        for (name, count) in marks {
            *self.marks.entry(name).or_default() += count;
        }
        match result {
            Err(violation) => self.failed.push((repeat_line(setting), *violation)),
            // What cannot be removed goes with the campaign's directory.
            Ok(()) => drop(std::fs::remove_dir_all(&setting.home)),
        }
        Ok(())
    }

    fn never_seen(&mut self, power: bool) {
        let of_power = WANTED_OF_POWER_LOSS.iter().filter(|_| power);
        let all = WANTED.iter().chain(of_power);
        self.unseen = all
            .filter(|name| !self.marks.contains_key(**name))
            .copied()
            .collect();
    }

    fn print(&self, as_json: bool) {
        if as_json {
            let failed = self.failed.iter().map(|(line, violation)| {
                json!({
                    "repeat": line,
                    "violations": violation.texts,
                    "options": violation.options,
                    "stderr": violation.stderr,
                    "kept": violation.kept.iter().map(|(_, path)| path).collect::<Vec<_>>(),
                })
            });
            let report = json!({
                "runs": self.runs,
                "seconds": self.seconds,
                "interrupted": self.interrupted,
                "marks": self.marks,
                "never_seen": self.unseen,
                "failed": failed.collect::<Vec<_>>(),
            });
            println!("{report}");
            return;
        }
        for (line, violation) in &self.failed {
            print_violation(line, violation);
        }
        for (name, count) in &self.marks {
            println!("{count:>12}  {name}");
        }
        for name in &self.unseen {
            println!("{:>12}  {name} (never seen)", 0);
        }
        let get = |name: &str| self.marks.get(name).copied().unwrap_or_default();
        println!(
            "{} runs in {:.0} s: {} kills, {} power losses, {} recoveries, {} commits checked, {} violations{}",
            self.runs,
            Duration::from_secs_f64(self.seconds).as_secs_f64(),
            get("kills"),
            get("power losses"),
            get("recoveries completed"),
            get("commits checked"),
            self.failed.len(),
            if self.interrupted {
                " (interrupted)"
            } else {
                ""
            },
        );
    }
}

/// The command that makes the same run again: the same contents, options and moments; what threads
/// do in between is not repeated.
fn repeat_line(setting: &Setting) -> String {
    let on = match setting.case {
        Some(case) => format!("--above {}", case.name),
        None if setting.fuse => "--on fuse".to_owned(),
        None => "--on disk".to_owned(),
    };
    let backend = match setting.backend {
        IoBackend::IoUring => "uring",
        _ => "posix",
    };
    let seed = setting.seed;
    let mutant = setting
        .mutant
        .iter()
        .map(|name| format!(" --mutant {name}"));
    let mutant: String = mutant.collect();
    format!("cargo xtask crash --seed {seed} --runs 1 {on} --backend {backend}{mutant}")
}

fn print_violation(line: &str, violation: &Violation) {
    println!("VIOLATION");
    for text in &violation.texts {
        println!("  {text}");
    }
    println!("  options: {}", violation.options.join(" "));
    if !violation.stderr.is_empty() {
        println!("  stderr of the child:");
        for text in violation.stderr.lines() {
            println!("    {text}");
        }
    }
    for (what, path) in &violation.kept {
        println!("  kept, {what}: {}", path.display());
        println!("    inkstone inspect control {}", path.display());
        println!("    inkstone inspect log {}", path.display());
        println!("    inkstone verify {}    (recovers it)", path.display());
    }
    println!("  repeat (timing differs): {line}");
}
