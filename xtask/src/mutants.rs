//! `cargo xtask mutants`: switches each deliberate bug on, and shows that its machine notices it.

use inkstone::internals::mutants::{self, Description, Machine};
use inkstone_testkit::build::{Result, SIMULATED};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Switches every deliberate bug of the engine on, one after the other, each in a process of its
/// own, and runs the machine that must notice it (see docs/testing.md).
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this mutant
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Those that a command of `cargo xtask mariadb` must notice, instead of all others: they need
    /// a MariaDB server
    #[arg(long, conflicts_with = "only")]
    mariadb: bool,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
}

/// Machines that run at the same time: each has one thread that works, of a machine with two cores.
const AT_ONCE: usize = 2;

/// What `--sessions` says of a statement that ends otherwise than InnoDB's.
const DIFFERS: &str = "DIFFERS: ";
/// What it says of a replica that is apart.
const REPLICA: &str = "DIFFERS: on the replica";

/// How a machine's program ended.
struct Outcome {
    /// Whether it said that a promise is broken, or died of it.
    caught: bool,
    /// How many runs or cases that took, where the program says so.
    runs: Option<u64>,
    seconds: f64,
    /// What it said first.
    said: String,
}

/// A mutant and what became of it.
struct Row {
    mutant: &'static Description,
    outcome: Outcome,
}

/// Runs all of it; the exit code says whether every mutant was caught, and nothing else.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<_> = match &arguments.only {
        Some(name) => vec![mutants::find(name)?],
        None => mutants::ALL
            .iter()
            .filter(|mutant| is_of_mariadb(mutant.machine) == arguments.mariadb)
            .collect(),
    };
    let at_once = if arguments.mariadb { 1 } else { AT_ONCE };
    let rows = run_all(&chosen, at_once, arguments.json)?;
    let false_catches = without_mutants(&rows, at_once)?;
    let survivors = rows.iter().filter(|row| !row.outcome.caught).count();
    if arguments.json {
        println!("{}", json_of(&rows, &false_catches));
    } else {
        for text in &false_catches {
            println!("caught without a mutant: {text}");
        }
        println!(
            "{} of {} mutants caught; without them {}",
            rows.len() - survivors,
            rows.len(),
            match false_catches.len() {
                0 => "the same runs pass",
                _ => "the same runs fail",
            }
        );
    }
    Ok(ExitCode::from(u8::from(
        survivors > 0 || !false_catches.is_empty(),
    )))
}

/// Runs the machines of these mutants: one row for each, in their order.
fn run_all(chosen: &[&'static Description], at_once: usize, is_quiet: bool) -> Result<Vec<Row>> {
    let machines: BTreeSet<_> = chosen.iter().map(|mutant| mutant.machine).collect();
    for machine in machines {
        // Built before the time counts.
        program_of(machine)?;
    }
    side_by_side(chosen, at_once, |&mutant| {
        let limit = Duration::from_secs(mutant.seconds_max);
        let mut line = line_of(mutant.machine, None);
        line.extend(["--mutant".to_owned(), mutant.name.to_owned()]);
        let outcome = outcome(mutant.machine, &line, limit)?;
        let row = Row { mutant, outcome };
        if !is_quiet {
            println!("{}", text_of(&row));
        }
        Ok(row)
    })
}

/// What `work` makes of each, in their order; so many at the same time.
fn side_by_side<I: Sync, O: Send>(
    items: &[I],
    at_once: usize,
    work: impl Fn(&I) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    let next = AtomicUsize::new(0);
    let some = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        let taken = numbers.map_while(|number| Some((number, items.get(number)?)));
        taken
            .map(|(number, item)| Ok((number, work(item)?)))
            .collect::<Result<Vec<_>>>()
    };
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(some)).collect();
        let mut done = Vec::with_capacity(items.len());
        for worker in workers {
            let part = worker.join().map_err(|_| "a thread has panicked")?;
            done.extend(part?);
        }
        Ok::<_, String>(done)
    })?;
    done.sort_by_key(|&(number, _)| number);
    Ok(done.into_iter().map(|(_, made)| made).collect())
}

fn is_of_mariadb(machine: Machine) -> bool {
    matches!(machine, Machine::Replica(_) | Machine::Sessions(_))
}

/// The runs that caught mutants, once more without any: what they say then is no mutant's doing.
fn without_mutants(rows: &[Row], at_once: usize) -> Result<Vec<String>> {
    let machines: BTreeSet<_> = rows.iter().map(|row| row.mutant.machine).collect();
    let of_machine = |machine: Machine| {
        let caught = rows.iter().filter(|row| row.outcome.caught);
        caught.filter(move |row| row.mutant.machine == machine)
    };
    let seconds = |machine: Machine| {
        let seconds = of_machine(machine).map(|row| row.outcome.seconds);
        seconds.fold(0.0, f64::max)
    };
    let mut machines: Vec<_> = machines.into_iter().collect();
    // First what takes long, that all cores have work to the end.
    machines.sort_by(|&a, &b| seconds(b).total_cmp(&seconds(a)));
    let outcomes = side_by_side(&machines, at_once, |&machine| {
        let runs = of_machine(machine).map(|row| row.outcome.runs).max();
        // What died of a mutant has not said how far it was: all there is.
        let all = of_machine(machine).any(|row| row.outcome.runs.is_none());
        let line = line_of(machine, runs.flatten().filter(|_| !all));
        outcome(machine, &line, Duration::from_secs(600))
    })?;
    let found = machines.iter().zip(outcomes);
    let false_catches = found.filter(|(_, outcome)| outcome.caught);
    let text = |(machine, outcome): (&Machine, Outcome)| {
        format!("{}: {}", machine.program(), outcome.said)
    };
    Ok(false_catches.map(text).collect())
}

/// The arguments of a machine; `runs`: as many as that, or until something is found.
fn line_of(machine: Machine, runs: Option<u64>) -> Vec<String> {
    let text = match machine {
        Machine::Sim | Machine::Histories => {
            let runs = runs.unwrap_or(1_000_000);
            format!("--seed 1 --runs {runs}")
        }
        Machine::FailedSync(files) => {
            let runs = runs.unwrap_or(1_000_000);
            format!("--failing {files} --seed 1 --runs {runs}")
        }
        Machine::Profile(name) => {
            let runs = runs.unwrap_or(1_000_000);
            format!("--profile {name} --seed 1 --runs {runs}")
        }
        Machine::SmallLog => {
            let runs = runs.unwrap_or(1_000_000);
            format!("--small-log --seed 1 --runs {runs}")
        }
        // Each written script at each format of the binary log.
        Machine::Replica(names) | Machine::Sessions(names) => {
            format!("mariadb --sessions {names} --seed 1")
        }
        // A third of the cases is more than every mutant needs.
        Machine::Faults(kind) => {
            let cases = runs.unwrap_or(u64::MAX);
            format!("--kind {kind} --stride 3 --cases {cases}")
        }
    };
    text.split(' ').map(str::to_owned).collect()
}

/// The program of a machine, built.
fn program_of(machine: Machine) -> Result<PathBuf> {
    match machine {
        Machine::Replica(_) | Machine::Sessions(_) => {
            std::env::current_exe().map_err(|error| error.to_string())
        }
        _ => SIMULATED.build("inkstone-testkit", machine.program()),
    }
}

/// Runs a machine to its end, or for so long.
fn outcome(machine: Machine, line: &[String], limit: Duration) -> Result<Outcome> {
    let program = program_of(machine)?;
    let begin = Instant::now();
    let mut child = Command::new(&program)
        .args(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let reads = [read_all(stdout), read_all(stderr)];
    let failed = wait(&mut child, limit)?;
    let seconds = begin.elapsed().as_secs_f64();
    let texts = reads.map(|read| read.join().unwrap_or_default());
    let caught = failed && is_seen_by(machine, &texts);
    let said = said(&texts);
    Ok(Outcome {
        caught,
        runs: runs_of(&texts),
        seconds,
        said,
    })
}

/// A server that cannot be started fails as well: what was seen must have been said.
fn is_seen_by(machine: Machine, texts: &[String; 2]) -> bool {
    let mut lines = texts.iter().flat_map(|text| text.lines());
    match machine {
        Machine::Replica(_) => lines.any(|line| line.starts_with(REPLICA)),
        Machine::Sessions(_) => {
            lines.any(|line| line.starts_with(DIFFERS) && !line.starts_with(REPLICA))
        }
        _ => true,
    }
}

fn read_all(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether the program found something: it then fails, or aborts. Ends it after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<bool> {
    let begin = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        match ended.map(|status| status.code()) {
            Some(Some(0)) => return Ok(false),
            Some(Some(2)) => return Err("a machine did not understand its arguments".to_owned()),
            Some(_) => return Ok(true),
            None if begin.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(false);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The line that says what is wrong.
fn said(texts: &[String; 2]) -> String {
    let lines = || texts.iter().flat_map(|text| text.lines());
    let found = lines()
        .find(|line| line.starts_with("FAILED"))
        .or_else(|| lines().find(|line| line.starts_with(REPLICA)))
        .or_else(|| lines().find(|line| line.starts_with(DIFFERS)))
        .or_else(|| lines().find(|line| line.contains("broken invariant")))
        .or_else(|| {
            // A panic: the line after the one that says where.
            let mut rest = lines().skip_while(|line| !line.contains("panicked at"));
            rest.nth(1)
        });
    found.unwrap_or("").trim_start_matches("FAILED ").to_owned()
}

/// The seed that failed (seeds begin at 1), or how many cases it took.
fn runs_of(texts: &[String; 2]) -> Option<u64> {
    let mut words = texts.iter().flat_map(|text| text.split_whitespace());
    words.find(|word| ["seed", "--seed", "--cases"].contains(word))?;
    words.next()?.trim_end_matches(':').parse().ok()
}

fn text_of(row: &Row) -> String {
    let Row { mutant, outcome } = row;
    let runs = outcome
        .runs
        .map_or(String::new(), |n| format!("{n} runs, "));
    let said: String = outcome.said.chars().take(110).collect();
    if outcome.caught {
        format!(
            "{:<26} {:<8} {runs}{:.1} s: {said}",
            mutant.name,
            mutant.machine.program(),
            outcome.seconds
        )
    } else {
        format!(
            "{:<26} {:<8} SURVIVED {:.0} s: {}",
            mutant.name,
            mutant.machine.program(),
            outcome.seconds,
            mutant.bug
        )
    }
}

fn json_of(rows: &[Row], false_catches: &[String]) -> String {
    let rows = rows.iter().map(|Row { mutant, outcome }| {
        serde_json::json!({
            "name": mutant.name,
            "bug": mutant.bug,
            "machine": mutant.machine.program(),
            "caught": outcome.caught,
            "runs": outcome.runs,
            "seconds": outcome.seconds,
            "said": outcome.said,
        })
    });
    serde_json::json!({
        "mutants": rows.collect::<Vec<_>>(),
        "caught_without_a_mutant": false_catches,
    })
    .to_string()
}
