//! `--bench tpcc`: a mix of five transactions like TPC-C's ([`transactions`]), InnoDB and Inkstone
//! in the same server, in turns.
//!
//! Clients speak the server's protocol, one statement at a time, and wait for nothing between two
//! transactions. A transaction that a deadlock or a lock wait has rolled back is repeated until it
//! commits; what it took is counted from its first beginning. After each run the sums that the mix
//! keeps must add up.

mod transactions;

use super::bench::{Effort, FAIR};
use super::client::Client;
use super::plugin::Plugin;
use super::random::Random;
use super::server::Server;
use super::tree::Tree;
use inkstone_bench::statistics::{median_of, percentile};
use inkstone_testkit::build::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use transactions::{Outcome, check, load, transaction};

/// The name by which `--bench` knows it.
pub const NAME: &str = "tpcc";

const WAREHOUSES: [u64; 2] = [1, 10];
const CLIENTS: [u64; 2] = [16, 64];
const ENGINES: [&str; 2] = ["InnoDB", "Inkstone"];
/// Before each measured run, of the same mix; it does not count.
const WARM_UP: Duration = Duration::from_secs(2);
/// No case may be slower than this part of InnoDB's rate.
const FLOOR: f64 = 0.9;

/// What a run measured.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    per_second: f64,
    /// Times that a transaction was rolled back, of a hundred that committed.
    repeated_percent: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// Runs of both engines, in the order of [`ENGINES`].
struct Row {
    warehouses: u64,
    clients: u64,
    runs: [Vec<Run>; 2],
}

impl Row {
    fn middle(&self, engine: usize, value: impl Fn(&Run) -> f64) -> f64 {
        median_of(&self.runs[engine], value)
    }

    fn ratio(&self) -> f64 {
        self.middle(1, |run| run.per_second) / self.middle(0, |run| run.per_second)
    }
}

/// Measures and prints it.
pub fn run(tree: &Tree, plugin: &Plugin, effort: Effort, json: bool) -> Result<ExitCode> {
    let mut server = Server::temporary(tree, "tpcc")
        .with_plugin(plugin)
        .with_options(FAIR);
    server.start()?;
    let mut rows = Vec::new();
    for warehouses in WAREHOUSES {
        for engine in ENGINES {
            eprintln!("{warehouses} warehouses of {engine} are filled");
            load(&server, &database(engine), engine, warehouses)?;
        }
        for clients in CLIENTS {
            let mut row = Row {
                warehouses,
                clients,
                runs: Default::default(),
            };
            for round in 0..effort.rounds {
                eprintln!(
                    "{warehouses} warehouses, {clients} clients: round {} of {}",
                    round + 1,
                    effort.rounds
                );
                for (engine, runs) in ENGINES.iter().zip(&mut row.runs) {
                    let time = Duration::from_secs(effort.seconds);
                    runs.push(measure(
                        &server,
                        &database(engine),
                        warehouses,
                        clients,
                        time,
                    )?);
                }
            }
            rows.push(row);
        }
    }
    server.stop()?;
    server.remove();
    report(&rows, json);
    let slow = rows.iter().any(|row| row.ratio() < FLOOR);
    Ok(ExitCode::from(u8::from(slow)))
}

fn database(engine: &str) -> String {
    format!("tpcc_{}", engine.to_lowercase())
}

/// What one client has done while it counted.
#[derive(Default)]
struct Work {
    latencies: Vec<Duration>,
    repeated: u64,
}

fn measure(
    server: &Server,
    database: &str,
    warehouses: u64,
    clients: u64,
    time: Duration,
) -> Result<Run> {
    let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (works, took) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|n| {
                let (counting, stop) = (&counting, &stop);
                scope.spawn(move || {
                    let work = work(server, database, warehouses, n, counting, stop);
                    if work.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    work
                })
            })
            .collect();
        sleep_unless(&stop, WARM_UP);
        counting.store(true, Ordering::Relaxed);
        let began = Instant::now();
        sleep_unless(&stop, time);
        stop.store(true, Ordering::Relaxed);
        let took = began.elapsed();
        let works = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a client panicked".to_owned()))
        });
        (works.collect::<Result<Vec<_>>>(), took)
    });
    let works = works?;
    check(server, database)?;
    let mut latencies: Vec<Duration> = works
        .iter()
        .flat_map(|work| &work.latencies)
        .copied()
        .collect();
    latencies.sort_unstable();
    let repeated: u64 = works.iter().map(|work| work.repeated).sum();
    let at = |percent| {
        let latency: Option<Duration> = percentile(&latencies, percent);
        let latency = latency.ok_or_else(|| format!("{database}: nothing was committed"))?;
        Ok::<_, String>(latency.as_secs_f64() * 1000.0)
    };
    Ok(Run {
        per_second: latencies.len() as f64 / took.as_secs_f64(),
        repeated_percent: 100.0 * repeated as f64 / latencies.len() as f64,
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        max_ms: at(100)?,
    })
}

fn sleep_unless(stop: &AtomicBool, time: Duration) {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) && Instant::now() < end {
        std::thread::sleep(
            Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())),
        );
    }
}

/// One client. A transaction that begins while it is counted counts.
fn work(
    server: &Server,
    database: &str,
    warehouses: u64,
    number: u64,
    counting: &AtomicBool,
    stop: &AtomicBool,
) -> Result<Work> {
    let broken = |error: std::io::Error| format!("{database}: {error}");
    let mut client = Client::connect(server.socket()).map_err(broken)?;
    client.run(&format!("USE {database}")).map_err(broken)?;
    // Each has a warehouse of its own as far as there are as many.
    let w = 1 + number % warehouses;
    let mut seeds = Random(number);
    let mut work = Work::default();
    while !stop.load(Ordering::Relaxed) {
        let seed = seeds.bits();
        let counts = counting.load(Ordering::Relaxed);
        let began = Instant::now();
        while let Outcome::Again = transaction(&mut client, &mut Random(seed), w)? {
            work.repeated += u64::from(counts);
        }
        if counts {
            work.latencies.push(began.elapsed());
        }
    }
    Ok(work)
}

fn report(rows: &[Row], json: bool) {
    if json {
        let rows = rows.iter().map(|row| {
            let values = |engine| {
                serde_json::json!({
                    "commits_per_s": row.middle(engine, |run| run.per_second),
                    "repeated_percent": row.middle(engine, |run| run.repeated_percent),
                    "p50_ms": row.middle(engine, |run| run.p50_ms),
                    "p99_ms": row.middle(engine, |run| run.p99_ms),
                    "max_ms": row.middle(engine, |run| run.max_ms),
                })
            };
            serde_json::json!({
                "case": NAME,
                "warehouses": row.warehouses,
                "clients": row.clients,
                "innodb": values(0),
                "inkstone": values(1),
                "ratio": row.ratio(),
            })
        });
        println!("{:#}", rows.collect::<serde_json::Value>());
        return;
    }
    println!(
        "a mix like TPC-C's, each commit synced; medians; of each value InnoDB's, then Inkstone's"
    );
    println!(
        "{:>10} {:>7} {:>8} {:>8} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}",
        "warehouses",
        "clients",
        "commits/s",
        "",
        "ratio",
        "p50 ms",
        "",
        "p99 ms",
        "",
        "max ms",
        "",
        "% again",
        ""
    );
    for row in rows {
        print!("{:>10} {:>7}", row.warehouses, row.clients);
        print!(
            " {:>8.0} {:>8.0} {:>5.2}",
            row.middle(0, |run| run.per_second),
            row.middle(1, |run| run.per_second),
            row.ratio()
        );
        let values: [fn(&Run) -> f64; 4] = [
            |run| run.p50_ms,
            |run| run.p99_ms,
            |run| run.max_ms,
            |run| run.repeated_percent,
        ];
        for value in values {
            print!(
                " {:>7.1} {:>7.1}",
                row.middle(0, value),
                row.middle(1, value)
            );
        }
        println!("{}", if row.ratio() < FLOOR { "  SLOWER" } else { "" });
    }
}
