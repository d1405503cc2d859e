//! `--replication`: a replica killed and restarted while the primary works; in the end every table is
//! the same on both. Some tables have different engines on the two sides.

use super::crash::Plan;
use super::pair::Pair;
use super::plugin::Plugin;
use super::random::Random;
use super::smoke::check_tables;
use super::tree::Tree;
use super::workload::{self, DEFINITIONS, TRANSFERS, Workload};
use crate::build::Result;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WORKERS: u64 = 3;

/// Kills the replica until the time is up, then compares.
pub fn run(tree: &Tree, plugin: &Plugin, plan: Plan) -> Result<ExitCode> {
    let mut pair = Pair::start(tree, plugin, "replication", 4, &[TRANSFERS, DEFINITIONS])?;
    if let Err(error) = kill_replica(&mut pair, plan) {
        let folders = [pair.primary.folder(), pair.replica.folder()];
        return Err(format!(
            "{error}\nseed {}, the servers' files are kept: {folders:?}",
            plan.seed
        ));
    }
    pair.primary.remove();
    pair.replica.remove();
    Ok(ExitCode::SUCCESS)
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
    let mut random = Random(plan.seed);
    let end = Instant::now() + Duration::from_secs_f64(plan.minutes * 60.0);
    let mut kills = 0;
    let (primary, replica) = (&pair.primary, &mut pair.replica);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let work = &work;
        let mut threads: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || work.transfer(primary, worker)))
            .collect();
        threads.push(scope.spawn(move || work.define(primary)));
        let killed = (|| {
            while Instant::now() < end || kills == 0 {
                std::thread::sleep(Duration::from_millis(300 + random.below(3000)));
                replica.kill();
                kills += 1;
                replica.start()?;
                eprintln!(
                    "replica killed {kills} times, {} transactions on the primary",
                    work.count()
                );
            }
            Ok(())
        })();
        work.stop.store(true, Ordering::Relaxed);
        let ends = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err("a worker panicked".to_owned()))
        });
        ends.chain([killed]).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    pair.catch_up()?;
    let tables = pair.compare()?;
    check_tables(&pair.replica)?;
    println!(
        "the replica was killed {kills} times in {} transactions and {} DDL statements: all {tables} tables are equal",
        work.count(),
        work.definitions.load(Ordering::Relaxed)
    );
    Ok(())
}
