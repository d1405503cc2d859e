//! `--bench`: sysbench, InnoDB and Inkstone in the same server, in turns.

use super::group_commit;
use super::plugin::Plugin;
use super::server::Server;
use super::sysbench::{Measured, Sysbench, Tables};
use super::tpcc;
use super::tree::Tree;
use inkstone_bench::statistics::median_of;
use inkstone_testkit::build::Result;
use std::process::ExitCode;

const WORKLOADS: [&str; 5] = [
    "oltp_read_write",
    "oltp_update_non_index",
    "oltp_update_index",
    "oltp_insert",
    "oltp_point_select",
];

const CLIENTS: u32 = 16;

const TABLES: Tables = Tables {
    count: 4,
    rows: 100_000,
};

/// No workload may be slower than this part of InnoDB's rate.
const FLOOR: f64 = 0.9;

/// Options for a comparison: the same memory, the same log, the same durability.
pub const FAIR: [&str; 9] = [
    "--innodb-buffer-pool-size=1g",
    "--inkstone-buffer-pool-size=1g",
    "--innodb-log-file-size=1g",
    "--inkstone-log-file-size=1g",
    "--innodb-flush-log-at-trx-commit=1",
    "--inkstone-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-dump-at-shutdown=off",
    "--performance-schema=off",
    "--max-connections=2000",
];

/// How long and how often.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Effort {
    /// Seconds of each measured run of --bench and --experiments
    #[arg(long, default_value_t = 10, value_name = "S")]
    pub seconds: u64,
    /// Runs of each engine in --bench and --experiments, in turns; the median counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
}

/// The rates of both engines in one workload.
struct Row {
    workload: &'static str,
    innodb: Vec<Measured>,
    inkstone: Vec<Measured>,
}

impl Row {
    fn rates(runs: &[Measured]) -> f64 {
        median_of(runs, |run| run.transactions_per_second)
    }

    fn latency(runs: &[Measured]) -> f64 {
        median_of(runs, |run| run.latency_p99_ms)
    }

    fn ratio(&self) -> f64 {
        Self::rates(&self.inkstone) / Self::rates(&self.innodb)
    }
}

/// Runs every workload, or those whose name contains `filter`.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    filter: Option<&str>,
    effort: Effort,
    json: bool,
) -> Result<ExitCode> {
    if filter == Some(group_commit::NAME) {
        return group_commit::run(tree, plugin, effort, json);
    }
    if filter == Some(tpcc::NAME) {
        return tpcc::run(tree, plugin, effort, json);
    }
    let mut server = Server::temporary(tree, "bench")
        .with_plugin(plugin)
        .with_options(FAIR);
    server.start()?;
    let engine = |engine| Sysbench {
        server: &server,
        engine,
        tables: TABLES,
    };
    let (innodb, inkstone) = (engine("InnoDB"), engine("Inkstone"));
    let mut rows = Vec::new();
    let wanted = WORKLOADS
        .iter()
        .filter(|name| name.contains(filter.unwrap_or_default()));
    for workload in wanted {
        let mut row = Row {
            workload,
            innodb: Vec::new(),
            inkstone: Vec::new(),
        };
        for sysbench in [&innodb, &inkstone] {
            eprintln!(
                "{workload}: filling {} tables of {}",
                TABLES.count, sysbench.engine
            );
            sysbench.prepare(workload)?;
            // To warm up; it does not count.
            sysbench.run(workload, CLIENTS, 2)?;
        }
        for round in 0..effort.rounds {
            eprintln!("{workload}: round {} of {}", round + 1, effort.rounds);
            row.innodb
                .push(innodb.run(workload, CLIENTS, effort.seconds)?);
            row.inkstone
                .push(inkstone.run(workload, CLIENTS, effort.seconds)?);
        }
        rows.push(row);
    }
    server.stop()?;
    server.remove();
    report(&rows, json);
    if rows.is_empty() {
        return Err("no workload has such a name".to_owned());
    }
    let slow = rows.iter().any(|row| row.ratio() < FLOOR);
    Ok(ExitCode::from(u8::from(slow)))
}

fn report(rows: &[Row], json: bool) {
    if json {
        let rows = rows.iter().map(|row| {
            serde_json::json!({
                "workload": row.workload,
                "clients": CLIENTS,
                "innodb_per_second": Row::rates(&row.innodb),
                "inkstone_per_second": Row::rates(&row.inkstone),
                "innodb_p99_ms": Row::latency(&row.innodb),
                "inkstone_p99_ms": Row::latency(&row.inkstone),
                "ratio": row.ratio(),
            })
        });
        println!("{:#}", rows.collect::<serde_json::Value>());
        return;
    }
    println!(
        "transactions a second, {CLIENTS} clients, {} tables x {} rows, each commit synced; p99 in ms",
        TABLES.count, TABLES.rows
    );
    println!(
        "{:24} {:>10} {:>10} {:>7} {:>12} {:>13}",
        "workload", "InnoDB", "Inkstone", "ratio", "InnoDB p99", "Inkstone p99"
    );
    for row in rows {
        println!(
            "{:24} {:>10.0} {:>10.0} {:>7.2} {:>12.2} {:>13.2}{}",
            row.workload,
            Row::rates(&row.innodb),
            Row::rates(&row.inkstone),
            row.ratio(),
            Row::latency(&row.innodb),
            Row::latency(&row.inkstone),
            if row.ratio() < FLOOR { "  SLOWER" } else { "" }
        );
    }
}
