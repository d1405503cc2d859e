//! `cargo xtask experiment journal`: doublewrite beside file systems that are to make it needless.
//!
//! | module | subject |
//! |---|---|
//! | `load` | what is measured: loads, and what a run gives |
//! | `inkstone` | a run of `inkstone bench` |
//! | `innodb` | the same load in SQL, on InnoDB |
//! | `power` | what a power loss leaves, by the machine of `cargo xtask crash` |
//! | `report` | medians as a table, JSON and a chart |
//!
//! The cases are a table, [`inkstone_testkit::loops::CASES`].

mod inkstone;
mod innodb;
mod load;
mod power;
mod report;

use super::packages;
use inkstone_bench::database::parse_size;
use inkstone_bench::output::Output;
use inkstone_testkit::build::{Result, root};
use inkstone_testkit::loops::{self, Case, Ground, Mounted};
use innodb::Innodb;
use load::{Load, Program, Sizes};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Doublewrite beside file systems that are to make it needless
#[derive(clap::Args, Debug)]
#[command(long_about = "\
Doublewrite beside file systems that are to make it needless. Each case is a file system on a loop device \
of its own (its file lies in target/journal), the doublewrite that belongs to it, and a page size:

  ext4-journal, ext4-journal-4k   ext4 data=journal, doublewrite=off: all bytes go to the file system's journal first
  ext4-ordered, ext4-ordered-4k   ext4 data=ordered, doublewrite=on: the usual way
  xfs-atomic                      XFS, doublewrite=atomic: pages are written with RWF_ATOMIC

Pages are of 16 KiB, or of 4 KiB where the name says so. With pages of 16 KiB data=journal is not safe: ext4 takes \
a write apart into blocks of 4 KiB, and the power can fail between the two transactions that they are in.

Two loads, 16 clients, each commit synced: `memory` updates rows of tables that fit half of the buffer pool, with \
a log of an eighth of it, so that pages are flushed all the time; `larger` updates data five and a half times the \
pool. Inkstone runs them in `inkstone bench commit` and `bench update`; InnoDB as sysbench \
oltp_update_non_index in a private MariaDB server, so through SQL: compare its cases with each other, not its rates \
with Inkstone's. All rows of a load run in turns, --rounds times; medians are printed.

  updates_per_s            the rate
  to_usual                 the rate, over that of the usual way with the same page size
  worst_over_median        the worst second as a part of the median one
  device_bytes_per_update  what the kernel counted for the loop device (/proc/diskstats)
  own_bytes_per_update     what the engine says that it wrote; `written`: by class of file

Then the power fails. The device's file lies on a file system of ours that loses what the kernel has not flushed to \
it, or tears it at sectors; the device is detached, attached again and mounted (the file system replays its journal).

  losses_with_torn_pages   pages alone, written over and over while another file is synced: power losses that left a \
page of two writes. Where there is a doublewrite it mends them
  violations               --power-losses runs of `cargo xtask crash --above CASE`: Inkstone recovers, every tree is \
verified, and every commit that was acknowledged as synced must be there

Exit code 1 if a case breaks its promise; ext4-journal promises nothing.

It needs root, loop devices, mkfs.ext4, mkfs.xfs (Debian: e2fsprogs, xfsprogs) and /dev/fuse; what is missing is \
left out, and SKIPPED says so. Mounts are seen by this command's processes alone, and end with them, as do the loop \
devices, however the command ends.

A short run, six minutes on two cores: \
cargo xtask experiment journal --rounds 1 --seconds 3 --pool-size 32m --power-losses 4")]
pub struct Arguments {
    /// Only these cases
    #[arg(long = "case", value_name = "LIST", value_delimiter = ',', value_parser = loops::case)]
    cases: Vec<&'static Case>,
    /// Only these programs
    #[arg(
        long = "program",
        value_name = "LIST",
        value_delimiter = ',',
        value_enum
    )]
    programs: Vec<Program>,
    /// Runs of each row; the median counts; 0: nothing is measured
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Bytes of the buffer pool; log and data follow
    #[arg(long, default_value = "64m", value_name = "BYTES", value_parser = parse_size)]
    pool_size: u64,
    /// Bytes of each device [default: 768 MiB and 13 times the buffer pool]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    device_size: Option<u64>,
    /// Runs with power losses, of each case and page size; 0: none
    #[arg(long, default_value_t = 20, value_name = "N")]
    power_losses: u64,
    /// Write a chart of the rates to this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object a line for each result
    #[arg(long)]
    json: bool,
}

/// Measures, and loses power.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = root().join("target/journal");
    let ground = match Ground::claim(&folder) {
        Ok(ground) => ground,
        Err(loops::Refusal::Unavailable(why)) => {
            eprintln!("SKIPPED: {why}");
            return Ok(ExitCode::SUCCESS);
        }
        Err(loops::Refusal::Busy(why)) => return Err(why),
    };
    let cases = available(arguments, &ground);
    if cases.is_empty() {
        eprintln!("SKIPPED: none of the cases can be had here");
        return Ok(ExitCode::SUCCESS);
    }
    let output = Output::new(arguments.json);
    if arguments.rounds > 0 {
        let report = Report::new(&output, arguments.plot.as_deref())?;
        measure(arguments, &ground, &cases, report)?;
    }
    if arguments.power_losses == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    power::run(&ground, &cases, arguments.power_losses, &output)
}

/// The chosen cases that can be had here; says which are left out, and why.
fn available(arguments: &Arguments, ground: &Ground) -> Vec<&'static Case> {
    let chosen = |case: &&Case| arguments.cases.is_empty() || arguments.cases.contains(case);
    let there = |case: &&Case| match case.unavailable(ground.folder()) {
        None => true,
        Some(why) => {
            eprintln!("SKIPPED: {}: {why}", case.name);
            false
        }
    };
    loops::CASES.iter().filter(chosen).filter(there).collect()
}

/// A case on its device.
struct Place {
    case: &'static Case,
    /// A server for it, if InnoDB has such a doublewrite. It is dropped first: it has files open.
    innodb: Option<Innodb>,
    mounted: Mounted,
}

fn measure(
    arguments: &Arguments,
    ground: &Ground,
    cases: &[&'static Case],
    mut report: Report<'_>,
) -> Result<()> {
    let sizes = Sizes::of(arguments.pool_size, arguments.seconds);
    let wants = |program| arguments.programs.is_empty() || arguments.programs.contains(&program);
    let program = wants(Program::Inkstone).then(inkstone::build).transpose()?;
    let mut places = places(arguments, ground, cases)?;
    if wants(Program::Innodb) {
        equip(&mut places, sizes);
    }
    for load in [Load::Memory, Load::Larger] {
        for innodb in places.iter_mut().filter_map(|place| place.innodb.as_mut()) {
            innodb.prepare(load)?;
        }
        for round in 0..arguments.rounds {
            eprintln!(
                "{}, round {} of {}",
                load.name(),
                round + 1,
                arguments.rounds
            );
            for place in &mut places {
                if let Some(program) = &program {
                    let run = inkstone::run(program, place.case, &place.mounted, load, sizes)?;
                    report.take(load, Program::Inkstone, place.case, run);
                }
                if let Some(innodb) = &mut place.innodb {
                    report.take(load, Program::Innodb, place.case, innodb.run(load)?);
                }
            }
        }
    }
    report.finish(sizes)
}

/// Makes and mounts a device for each case.
fn places(arguments: &Arguments, ground: &Ground, cases: &[&'static Case]) -> Result<Vec<Place>> {
    let usual = (768 << 20) + 13 * arguments.pool_size;
    let bytes = arguments.device_size.unwrap_or(usual);
    let place = |case: &&'static Case| {
        eprintln!("{}: making the file system, {} MiB", case.name, bytes >> 20);
        let mounted = ground.mount(case, bytes);
        let mounted = mounted.map_err(|error| {
            let (name, folder) = (case.name, ground.folder().display());
            format!(
                "{name}: a device of {bytes} bytes in {folder}: {error}; without space there, \
                 lower --pool-size or --device-size, or name fewer cases"
            )
        })?;
        Ok(Place {
            case,
            innodb: None,
            mounted,
        })
    };
    cases.iter().map(place).collect()
}

/// Gives places their servers, where there are packages of MariaDB.
fn equip(places: &mut [Place], sizes: Sizes) {
    match packages::tree() {
        Ok(tree) => {
            for place in places {
                place.innodb = Innodb::new(&tree, place.case, place.mounted.directory(), sizes);
            }
        }
        Err(why) => eprintln!("SKIPPED: InnoDB: {why}"),
    }
}
