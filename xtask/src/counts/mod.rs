//! `cargo xtask counts`: what one operation of the engine costs in instructions, and where it asks
//! other processors for a cache line: its atomic operations, by line of the source.
//!
//! Valgrind counts each instruction below one function (`callgrind --dump-instr=yes`); which of
//! them are atomic read-modify-writes is read off the disassembly: those with a `lock` prefix, and
//! `xchg` with memory. Nothing is sampled and nothing depends on how busy the machine is.

mod profile;

use inkstone_testkit::build::{Result, root};
use profile::{Object, Profile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Counts instructions and atomic operations of single operations, under valgrind.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this operation, such as `point_read`
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// How often each is done. In one transaction, so that a thousand updates make it a large one,
    /// the undo of which moves once
    #[arg(long, default_value_t = 500)]
    times: u64,
    /// Rows of the table
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// Prints one object a line for each operation
    #[arg(long)]
    json: bool,
}

/// Operations, and the function of `inkstone_bench::operations` below which they are counted.
const OPERATIONS: [(&str, &str); 7] = [
    ("point_read", "counted_point_read"),
    ("read_transaction", "counted_read_transaction"),
    ("scan100", "counted_scan"),
    ("insert_ascending", "counted_insert"),
    ("insert_random", "counted_insert"),
    ("update", "counted_update"),
    ("update_commit", "counted_update_commit"),
];

/// Lines below this share of an operation are not listed.
const LISTED_FROM: f64 = 0.01;

/// What an operation costs.
struct Count {
    instructions: f64,
    atomics: f64,
    /// Atomic operations for each operation, by function and line.
    places: Vec<(String, f64)>,
}

/// Counts each operation and prints it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<_> = OPERATIONS
        .iter()
        .filter(|(name, _)| arguments.only.as_deref().is_none_or(|only| only == *name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<_> = OPERATIONS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there are these operations: {}", names.join(", ")));
    }
    let program = build()?;
    let mut objects = BTreeMap::new();
    for (name, function) in chosen {
        let profile = profile(arguments, &program, name, function)?;
        let count = count(&profile, arguments.times, &mut objects)?;
        if count.instructions == 0.0 {
            return Err(format!("nothing was counted below {function}"));
        }
        if arguments.json {
            print_json(name, &count);
        } else {
            print_text(name, &count);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn build() -> Result<PathBuf> {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or("cargo".to_owned()));
    command.current_dir(root()).args([
        "build",
        "--quiet",
        "--release",
        "-p",
        "inkstone-bench",
        "--bin",
        "operations",
    ]);
    match command.status() {
        Ok(status) if status.success() => Ok(root().join("target/release/operations")),
        Ok(_) => Err("operations cannot be built".to_owned()),
        Err(error) => Err(format!("{command:?} cannot be started: {error}")),
    }
}

fn profile(
    arguments: &Arguments,
    program: &Path,
    operation: &str,
    function: &str,
) -> Result<Profile> {
    let file = root().join("target/counts.callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--dump-instr=yes", "--quiet"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--toggle-collect=*{function}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .arg(operation)
        .args(["--times", &arguments.times.to_string()])
        .args(["--rows", &arguments.rows.to_string()])
        .output()
        .map_err(|error| format!("valgrind cannot be started ({error}): is it installed?"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{operation} failed under valgrind: {said}"));
    }
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    Profile::parse(&text)
}

fn count(profile: &Profile, times: u64, objects: &mut BTreeMap<String, Object>) -> Result<Count> {
    let each = |count: u64| count as f64 / times as f64;
    let mut places: BTreeMap<String, u64> = BTreeMap::new();
    for (name, addresses) in &profile.executed {
        if !objects.contains_key(name) {
            objects.insert(name.clone(), Object::disassemble(name)?);
        }
        let atomic: Vec<_> = addresses
            .iter()
            .filter(|(address, _)| objects[name].is_atomic(**address))
            .collect();
        let listed = objects[name].places(atomic.iter().map(|(address, _)| **address))?;
        for ((_, count), place) in atomic.iter().zip(listed) {
            *places.entry(place).or_default() += **count;
        }
    }
    let atomics = places.values().sum();
    let mut places: Vec<_> = places
        .into_iter()
        .map(|(place, count)| (place, each(count)))
        .collect();
    places.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(Count {
        instructions: each(profile.instructions()),
        atomics: each(atomics),
        places,
    })
}

fn print_text(name: &str, count: &Count) {
    println!(
        "{name}: {:.0} instructions, {:.2} atomic operations",
        count.instructions, count.atomics
    );
    for (place, each) in count.places.iter().filter(|place| place.1 >= LISTED_FROM) {
        println!("  {each:>6.2}  {place}");
    }
}

fn print_json(name: &str, count: &Count) {
    let places: serde_json::Map<_, _> = count
        .places
        .iter()
        .map(|(place, each)| (place.clone(), (*each).into()))
        .collect();
    let line = serde_json::json!({
        "operation": name,
        "instructions": count.instructions,
        "atomics": count.atomics,
        "places": places,
    });
    println!("{line}");
}
