//! `--bench group_commit`: how many syncs a commit costs with a binary log, by clients; InnoDB and
//! Inkstone in the same server, in turns.
//!
//! With `sync_binlog=1` and durable prepares a commit needs a sync of the engine's log, for its
//! prepare, and one of the binary log. Clients that commit together share both. The engine's second
//! part needs none.

use super::bench::{Effort, FAIR};
use super::client::{Client, Reply};
use super::pair::{Pair, Shape};
use super::plugin::Plugin;
use super::server::Server;
use super::sysbench::{Sysbench, Tables, median};
use super::tree::Tree;
use inkstone_testkit::build::Result;
use std::process::ExitCode;

/// The name by which `--bench` knows it.
pub const NAME: &str = "group_commit";

const WORKLOAD: &str = "oltp_update_non_index";
const CLIENTS: [u32; 4] = [1, 4, 16, 64];
const TABLES: Tables = Tables {
    count: 4,
    rows: 10_000,
};

const OPTIONS: [&str; 3] = ["--log-bin=binlog", "--binlog-format=row", "--sync-binlog=1"];

/// The status variable that counts what makes an engine's log durable. InnoDB counts syncs of all
/// files together: of data there are few here. Inkstone writes its log through by default: each
/// write is durable, and there are no syncs.
fn sync_counter(engine: &str) -> &'static str {
    match engine {
        "InnoDB" => "innodb_data_fsyncs",
        _ => "inkstone_log_write_calls",
    }
}

/// Workers of the replica, clients of its primary, and transactions of each.
const REPLICA_WORKERS: u32 = 8;
const PRIMARY_CLIENTS: u64 = 16;
const PRIMARY_UPDATES: u64 = 200;

/// Inkstone may need this much more than InnoDB: what grouping gives varies from run to run.
const TOLERANCE: f64 = 1.1;

/// One run, each value for a commit.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    engine_syncs: f64,
    binlog_groups: f64,
}

struct Row {
    clients: u32,
    innodb: Vec<Run>,
    inkstone: Vec<Run>,
}

fn middle(runs: &[Run], value: impl Fn(&Run) -> f64) -> f64 {
    median(&runs.iter().map(value).collect::<Vec<_>>())
}

/// Measures and prints it. Exit code 1: Inkstone syncs more often.
pub fn run(tree: &Tree, plugin: &Plugin, effort: Effort, json: bool) -> Result<ExitCode> {
    let mut server = Server::temporary(tree, "group-commit")
        .with_plugin(plugin)
        .with_options(FAIR)
        .with_options(OPTIONS);
    server.start()?;
    let engine = |engine| Sysbench {
        server: &server,
        engine,
        tables: TABLES,
    };
    let (innodb, inkstone) = (engine("InnoDB"), engine("Inkstone"));
    innodb.prepare(WORKLOAD)?;
    inkstone.prepare(WORKLOAD)?;
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let mut row = Row {
            clients,
            innodb: Vec::new(),
            inkstone: Vec::new(),
        };
        for round in 0..effort.rounds {
            eprintln!(
                "{clients} clients: round {} of {}",
                round + 1,
                effort.rounds
            );
            row.innodb.push(measure(&innodb, clients, effort.seconds)?);
            row.inkstone
                .push(measure(&inkstone, clients, effort.seconds)?);
        }
        rows.push(row);
    }
    server.stop()?;
    server.remove();
    let replica = measure_replica(tree, plugin)?;
    report(&rows, replica, json);
    let more = rows.iter().any(|row| {
        let syncs = |runs| middle(runs, |run| run.engine_syncs);
        syncs(&row.inkstone) > syncs(&row.innodb) * TOLERANCE
    });
    let more = more || replica[1] > replica[0] * TOLERANCE;
    Ok(ExitCode::from(u8::from(more)))
}

/// Syncs of the engine for each transaction that a replica without a binary log applies: there only
/// the engine tells the workers whose turn to commit comes next.
fn measure_replica(tree: &Tree, plugin: &Plugin) -> Result<[f64; 2]> {
    let shape = Shape {
        name: NAME,
        parallel: REPLICA_WORKERS,
        databases: &[NAME],
        of_replica: &["--skip-log-bin", "--skip-log-slave-updates"],
        ..Shape::default()
    };
    let pair = Pair::start(tree, plugin, &shape)?;
    let (primary, replica) = (&pair.primary, &pair.replica);
    primary.sql(&format!("CREATE DATABASE {NAME}"))?;
    let mut syncs = [0.0; 2];
    for (engine, syncs) in ["InnoDB", "Inkstone"].iter().zip(&mut syncs) {
        primary.sql(&format!(
            "CREATE OR REPLACE TABLE {NAME}.t (id INT PRIMARY KEY, v INT) ENGINE={engine}; \
             INSERT INTO {NAME}.t SELECT seq, 0 FROM seq_1_to_{PRIMARY_CLIENTS}"
        ))?;
        pair.catch_up()?;
        // Position and rows in one engine.
        replica.sql(&format!(
            "STOP SLAVE; ALTER TABLE mysql.gtid_slave_pos ENGINE={engine}"
        ))?;
        std::thread::scope(|scope| {
            let clients =
                (1..=PRIMARY_CLIENTS).map(|id| scope.spawn(move || update_row(primary, id)));
            let clients: Vec<_> = clients.collect();
            clients
                .into_iter()
                .try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
        })?;
        let read = || counters(replica, [sync_counter(engine)]);
        let [before] = read()?;
        replica.sql("START SLAVE")?;
        pair.catch_up()?;
        let [after] = read()?;
        *syncs = (after - before) / (PRIMARY_CLIENTS * PRIMARY_UPDATES) as f64;
    }
    pair.compare()?;
    pair.primary.remove();
    pair.replica.remove();
    Ok(syncs)
}

/// Transactions of one client of the primary.
fn update_row(primary: &Server, id: u64) -> Result<()> {
    let broken = |error: std::io::Error| format!("the primary: {error}");
    let mut client = Client::connect(primary.socket()).map_err(broken)?;
    for _ in 0..PRIMARY_UPDATES {
        let done = client.run(&format!("UPDATE {NAME}.t SET v = v + 1 WHERE id = {id}"));
        if let Reply::Refused(refusal) = done.map_err(broken)? {
            return Err(refusal.message);
        }
    }
    Ok(())
}

/// Values of status variables.
fn counters<const N: usize>(server: &Server, names: [&str; N]) -> Result<[f64; N]> {
    let mut values = [0.0; N];
    for (value, name) in values.iter_mut().zip(names) {
        let text = server.sql(&format!(
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{name}'"
        ))?;
        let number = text.trim().parse();
        *value = number.map_err(|error| format!("{name} is {text:?}: {error}"))?;
    }
    Ok(values)
}

fn measure(sysbench: &Sysbench<'_>, clients: u32, seconds: u64) -> Result<Run> {
    let names = [
        "binlog_commits",
        "binlog_group_commits",
        sync_counter(sysbench.engine),
    ];
    let read = || counters(sysbench.server, names);
    let before = read()?;
    let measured = sysbench.run(WORKLOAD, clients, seconds)?;
    let after = read()?;
    let commits = after[0] - before[0];
    if commits < 1.0 {
        return Err("nothing was committed with the binary log".to_owned());
    }
    Ok(Run {
        per_second: measured.transactions_per_second,
        engine_syncs: (after[2] - before[2]) / commits,
        binlog_groups: (after[1] - before[1]) / commits,
    })
}

fn report(rows: &[Row], replica: [f64; 2], json: bool) {
    if json {
        let rows = rows.iter().map(|row| {
            let values = |runs: &[Run]| {
                serde_json::json!({
                    "commits_per_second": middle(runs, |run| run.per_second),
                    "engine_syncs_per_commit": middle(runs, |run| run.engine_syncs),
                    "binlog_groups_per_commit": middle(runs, |run| run.binlog_groups),
                })
            };
            serde_json::json!({
                "case": NAME,
                "clients": row.clients,
                "innodb": values(&row.innodb),
                "inkstone": values(&row.inkstone),
            })
        });
        let mut all: Vec<serde_json::Value> = rows.collect();
        all.push(serde_json::json!({
            "case": "replica_without_binary_log",
            "workers": REPLICA_WORKERS,
            "innodb": { "engine_syncs_per_commit": replica[0] },
            "inkstone": { "engine_syncs_per_commit": replica[1] },
        }));
        println!("{:#}", serde_json::Value::from(all));
        return;
    }
    println!(
        "{WORKLOAD} with a binary log, sync_binlog=1, durable prepares; of each value InnoDB's, then Inkstone's"
    );
    println!(
        "{:>8} {:>9} {:>9}   {:>14} {:>9}   {:>14} {:>9}",
        "clients", "commits/s", "", "syncs/commit", "", "groups/commit", ""
    );
    for row in rows {
        let [innodb, inkstone] = [&row.innodb, &row.inkstone];
        println!(
            "{:>8} {:>9.0} {:>9.0}   {:>14.3} {:>9.3}   {:>14.3} {:>9.3}",
            row.clients,
            middle(innodb, |run| run.per_second),
            middle(inkstone, |run| run.per_second),
            middle(innodb, |run| run.engine_syncs),
            middle(inkstone, |run| run.engine_syncs),
            middle(innodb, |run| run.binlog_groups),
            middle(inkstone, |run| run.binlog_groups),
        );
    }
    println!(
        "a replica without a binary log, {REPLICA_WORKERS} workers: {:.3} and {:.3} syncs a transaction",
        replica[0], replica[1]
    );
}
