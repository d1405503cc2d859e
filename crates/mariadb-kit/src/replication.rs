//! `--replication`: a replica of several workers, killed and restarted while the primary works, and
//! then statements of its workers are killed, and workers; in the end every table is the same on
//! both. Some tables have different engines on the two sides.
//!
//! The primary logs rows, statements, or the one or the other as the server chooses: each in turn,
//! unless told.
//!
//! First the one case in which workers wait for each other so that only the server can know, and
//! one in which statements cannot be logged.

use super::client::{Client, Reply};
use super::crash::Plan;
use super::pair::{Format, Pair, Shape};
use super::plugin::Plugin;
use super::random::Random;
use super::server::Server;
use super::session::Session;
use super::smoke::check_tables;
use super::tree::Tree;
use super::workload::{self, DEFINITIONS, TRANSFERS, Workload};
use inkstone_testkit::build::Result;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sessions on the primary.
const WORKERS: u64 = 3;

/// Of the replica; in optimistic mode conflicting transactions run at once.
const PARALLEL: u32 = 4;
const MODES: [&str; 2] = ["conservative", "optimistic"];

/// From one worker that is killed to the next, at most.
const KILLS_APART_MS: u64 = 60;
/// Behind the last kill the replica's threads are started so many times, so long apart.
const LAST_STARTS: u32 = 20;
const LAST_STARTS_APART: Duration = Duration::from_millis(200);
/// The replica's workers.
const WORKING: &str = "SELECT id FROM information_schema.processlist WHERE user = 'system user' \
     AND command IN ('Slave_worker', 'Slave_SQL')";
/// `ER_NO_SUCH_THREAD`.
const NO_SUCH_THREAD: u16 = 1094;

/// How long workers may wait for each other: far less than until a lock wait ends by itself.
const CIRCLE: Duration = Duration::from_secs(20);

/// Each of these formats, or all of them, for its part of the time.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    mut plan: Plan,
    format: Option<Format>,
) -> Result<ExitCode> {
    let formats = format.map_or(Format::ALL.to_vec(), |format| vec![format]);
    plan.minutes /= formats.len() as f64;
    for format in formats {
        println!("binary log: {}", format.name());
        run_logged(tree, plugin, plan, format)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Kills the replica until the time is up, then compares.
fn run_logged(tree: &Tree, plugin: &Plugin, plan: Plan, format: Format) -> Result<()> {
    let shape = Shape {
        name: "replication",
        parallel: PARALLEL,
        format,
        databases: &[TRANSFERS, DEFINITIONS],
        ..Shape::default()
    };
    let mut pair = Pair::start(tree, plugin, &shape)?;
    if let Err(error) = break_circle(&mut pair, "OFF")
        .and_then(|()| break_circle(&mut pair, "ON"))
        .and_then(|()| log_phantoms(&pair, format))
        .and_then(|()| kill_replica(&mut pair, plan))
    {
        let folders = [pair.primary.folder(), pair.replica.folder()];
        return Err(format!(
            "{error}\n{}, seed {}, the servers' files are kept: {folders:?}",
            format.name(),
            plan.seed
        ));
    }
    pair.primary.remove();
    pair.replica.remove();
    Ok(())
}

/// Of two transactions the replica's second one changes a row and waits for its turn to commit; the
/// first, held up until then, wants the same row. The server must hear of that wait, and roll the
/// second one back. That the second one waits, the engine must see to where the replica does not
/// log it: each is one of two engines there, with the position that InnoDB keeps.
fn break_circle(pair: &mut Pair, logs_updates: &str) -> Result<()> {
    pair.replica.stop()?;
    pair.replica.set_option("log-slave-updates", logs_updates);
    pair.replica.set_option("slave-parallel-mode", MODES[1]);
    pair.replica.start()?;
    pair.replica.sql("START SLAVE")?;
    pair.primary.sql(
        "CREATE DATABASE IF NOT EXISTS transfers; CREATE OR REPLACE TABLE transfers.turns (id INT PRIMARY KEY, n INT) ENGINE=Inkstone; \
         INSERT INTO transfers.turns VALUES (1, 0), (2, 0)",
    )?;
    pair.catch_up()?;
    let mut holder = Session::open(&pair.replica, TRANSFERS)?;
    holder.run("BEGIN; SELECT n FROM turns WHERE id = 1 FOR UPDATE;");
    pair.primary.sql(
        "USE transfers; BEGIN; UPDATE turns SET n = 1 WHERE id = 1; UPDATE turns SET n = 1 WHERE id = 2; COMMIT; \
         UPDATE turns SET n = n + 1 WHERE id = 2",
    )?;
    let second = "SELECT COUNT(*) FROM information_schema.inkstone_trx WHERE trx_rows_modified > 0";
    let began = Instant::now();
    while pair.replica.sql(second)?.trim() != "1" {
        if began.elapsed() > CIRCLE {
            return Err("the replica does not run two transactions at once".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let began = Instant::now();
    holder.run("COMMIT;");
    pair.catch_up()?;
    let took = began.elapsed();
    let retried = transactions_retried(&pair.replica);
    if took > CIRCLE || retried == 0 {
        return Err(format!(
            "two workers waited for each other for {took:?}; {retried} transactions were retried"
        ));
    }
    let rows = pair.replica.sql("SELECT n FROM transfers.turns")?;
    if rows.split_whitespace().ne(["1", "2"]) {
        return Err(format!(
            "transactions changed places: the replica has {rows}"
        ));
    }
    println!(
        "two workers that wait for each other, log_slave_updates={logs_updates}: one is retried, within {took:?}"
    );
    Ok(())
}

/// Snapshot isolation locks no gaps: one that inserts into what an UPDATE has read may commit
/// before it. Run one after the other the UPDATE would find the row, so it must not be logged as a
/// statement, whatever the variable says since the transaction began.
fn log_phantoms(pair: &Pair, format: Format) -> Result<()> {
    pair.primary.sql(
        "CREATE TABLE transfers.phantoms (id INT PRIMARY KEY, v INT) ENGINE=Inkstone; \
         INSERT INTO transfers.phantoms VALUES (1, 0), (5, 0), (9, 0)",
    )?;
    for (id, later) in [(6, "ON"), (7, "OFF")] {
        let mut updater = Session::open(&pair.primary, TRANSFERS)?;
        let mut inserter = Session::open(&pair.primary, TRANSFERS)?;
        let say = |session: &mut Session, statements: String| {
            let printed = session.run(&statements);
            printed
                .map(|lines| lines.concat())
                .ok_or("the primary is gone")
        };
        let updated = say(
            &mut updater,
            format!(
                "SET inkstone_snapshot_isolation = ON; START TRANSACTION WITH CONSISTENT SNAPSHOT; \
                 SET inkstone_snapshot_isolation = {later}; UPDATE phantoms SET v = v + 1 WHERE id > 4;"
            ),
        )?;
        let expected = match format {
            Format::Statement => "ERROR 1665",
            Format::Row | Format::Mixed => "",
        };
        if !updated.contains(expected) || updated.is_empty() != expected.is_empty() {
            return Err(format!(
                "an UPDATE with snapshot isolation, {later}: {updated:?} instead of {expected:?}"
            ));
        }
        let inserted = say(
            &mut inserter,
            format!("INSERT INTO phantoms VALUES ({id}, 0);"),
        )?;
        let committed = say(&mut updater, "COMMIT;".to_owned())?;
        let said = inserted + &committed;
        if !said.is_empty() {
            return Err(format!("an INSERT beside an UPDATE: {said}"));
        }
    }
    pair.catch_up()?;
    pair.compare().map(drop)
}

/// Does something to the replica while the primary has transactions, and DDL if wanted.
fn while_working(
    pair: &mut Pair,
    work: &Workload,
    define: bool,
    act: impl FnOnce(&mut Server) -> Result<()>,
) -> Result<()> {
    let (primary, replica) = (&pair.primary, &mut pair.replica);
    work.stop.store(false, Ordering::Relaxed);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let mut threads: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || work.transfer(primary, worker)))
            .collect();
        if define {
            threads.push(scope.spawn(move || work.define(primary)));
        }
        let acted = act(replica);
        work.stop.store(true, Ordering::Relaxed);
        let ends = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a worker panicked".to_owned()))
        });
        ends.chain([acted]).collect()
    });
    results.into_iter().collect()
}

/// How often the replica has begun a transaction again; 0 if it does not answer.
fn transactions_retried(replica: &Server) -> u64 {
    let status = replica.sql("SHOW GLOBAL STATUS LIKE 'Slave_retried_transactions'");
    let value = |line: String| line.split_whitespace().nth(1)?.parse().ok();
    status.ok().and_then(value).unwrap_or(0)
}

fn kill_replica(pair: &mut Pair, plan: Plan) -> Result<()> {
    workload::set_up(&pair.primary)?;
    pair.catch_up()?;
    // From InnoDB to Inkstone, and the other way round.
    pair.replica.sql(
        "SET SESSION sql_log_bin = 0; STOP SLAVE; ALTER TABLE transfers.innodb_done ENGINE=Inkstone; \
         ALTER TABLE transfers.history ENGINE=InnoDB; \
         ALTER TABLE mysql.gtid_slave_pos ENGINE=Inkstone; START SLAVE",
    )?;
    let work = Workload::new(plan.seed);
    let time = Duration::from_secs_f64(plan.minutes * 60.0);
    // DDL while no server is killed: the server writes DDL to its binary log first and notes its
    // position then, so that a replica which is killed in between does it twice, with any engine.
    while_working(pair, &work, true, |_| {
        std::thread::sleep(time / 3);
        Ok(())
    })?;
    pair.catch_up()?;
    let (mut kills, mut retried) = (0, 0);
    while_working(pair, &work, false, |replica| {
        let mut random = Random(plan.seed);
        let end = Instant::now() + time * 2 / 3;
        while Instant::now() < end || kills < MODES.len() {
            std::thread::sleep(Duration::from_millis(300 + random.below(3000)));
            retried += transactions_retried(replica);
            replica.kill();
            replica.set_option("slave-parallel-mode", MODES[kills % MODES.len()]);
            kills += 1;
            replica.start()?;
            Pair::resume(replica)?;
            eprintln!(
                "replica killed {kills} times, {} transactions on the primary",
                work.count()
            );
        }
        Ok(())
    })?;
    pair.catch_up()?;
    let mut workers = 0;
    while_working(pair, &work, false, |replica| {
        workers = kill_workers(replica, plan.seed, time / 6)?;
        Ok(())
    })?;
    pair.catch_up()?;
    let tables = pair.compare()?;
    check_tables(&pair.replica)?;
    println!(
        "the replica was killed {kills} times, and its workers {workers} times; it retried {retried} of \
         {} transactions, in {} DDL statements: all {tables} tables are equal",
        work.count(),
        work.definitions.load(Ordering::Relaxed)
    );
    Ok(())
}

/// Kills statements of the replica's workers, and workers, for so long: how many. What was killed
/// stops the replica's threads, which are started again.
fn kill_workers(replica: &Server, seed: u64, time: Duration) -> Result<usize> {
    let told = |error: std::io::Error| format!("the replica does not answer: {error}");
    let mut connection = Client::connect(replica.socket()).map_err(told)?;
    let mut random = Random(seed);
    let mut kills = 0;
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(random.below(KILLS_APART_MS)));
        let ids = match connection.run(WORKING).map_err(told)? {
            Reply::Rows(found) => found.rows,
            other => return Err(format!("{WORKING}: {other:?}")),
        };
        let id =
            |row: &Vec<Option<Vec<u8>>>| row[0].clone().and_then(|id| String::from_utf8(id).ok());
        let ids: Vec<String> = ids.iter().filter_map(id).collect();
        if ids.is_empty() || random.chance(20) {
            replica.sql("START SLAVE")?;
            continue;
        }
        let what = random.word(&["QUERY", "CONNECTION"]);
        let kill = format!("KILL {what} {}", random.pick(&ids));
        match connection.run(&kill).map_err(told)? {
            Reply::Refused(refusal) if refusal.code != NO_SUCH_THREAD => {
                return Err(format!(
                    "{kill}: error {}: {}",
                    refusal.code, refusal.message
                ));
            }
            Reply::Refused(_) => {}
            _ => kills += 1,
        }
    }
    // What was killed last stops the threads a moment later: they run until then, and are not
    // started by an earlier call.
    for _ in 0..LAST_STARTS {
        std::thread::sleep(LAST_STARTS_APART);
        replica.sql("START SLAVE")?;
    }
    Ok(kills)
}
