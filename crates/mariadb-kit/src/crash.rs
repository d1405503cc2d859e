//! `--crash`: a server killed at random under transactions and DDL, with its binary log on. Its log
//! is small, and some transactions are larger than it. From one start to the next new tables have
//! their pages placed or not, compressed or not, and DDL changes that. Indexes come and go beside
//! writers of tables that refer to each other.
//!
//! After each restart: everything acknowledged is there, both engines of a transaction agree, the
//! binary log agrees (a replica that is never killed has the same rows), no table is half made or
//! left over, no row is without its parent, each index has its table's rows, and every page is
//! sound.

use super::copies;
use super::families::{FAMILIES, Families};
use super::giants::{self, Giants};
use super::kept;
use super::orphans;
use super::pair::{Pair, Shape};
use super::partitioned::Partitioned;
use super::plugin::Plugin;
use super::random::Random;
use super::server::Server;
use super::smoke::check_tables;
use super::tree::Tree;
use super::workload::{self, DEFINITIONS, TRANSFERS, Workload};
use inkstone_testkit::build::Result;
use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORKERS: u64 = 5;
const GIANTS: u64 = 2;
const FAMILY_WRITERS: u64 = 3;
/// Kills in a row under DDL that copies: of each setting of `flush_log_at_trx_commit` one.
const COPYING_KILLS: u64 = 3;

/// How long, and which way.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Plan {
    /// Minutes of --crash, --replication, --differential, --sessions and --histories
    #[arg(long, default_value_t = 1.0, value_name = "M")]
    pub minutes: f64,
    /// Decides statements and moments of --crash, --replication, --differential, --sessions,
    /// --histories and --collations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Kills and checks until the time is up.
pub fn run(tree: &Tree, plugin: &Plugin, plan: Plan) -> Result<ExitCode> {
    // A server that dies in TRUNCATE or CREATE OR REPLACE may have done it and not have logged it,
    // with any engine: the replica leaves DDL alone.
    let chosen = kept::options(&mut Random(plan.seed));
    let own = chosen.iter().map(String::as_str);
    let options: Vec<&str> = giants::OPTIONS.into_iter().chain(own).collect();
    let shape = Shape {
        name: "crash",
        databases: &[TRANSFERS, FAMILIES],
        options: &options,
        ..Shape::default()
    };
    let mut pair = Pair::start(tree, plugin, &shape)?;
    let result = kill_loop(&mut pair, plan);
    if let Err(error) = result {
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

fn kill_loop(pair: &mut Pair, plan: Plan) -> Result<()> {
    workload::set_up(&pair.primary)?;
    let work = Workload::new(plan.seed);
    let partitioned =
        ["parts", "more_parts"].map(|name| Partitioned::new(name, plan.seed ^ name.len() as u64));
    for partitioned in &partitioned {
        partitioned.set_up(&pair.primary)?;
    }
    let giants = Giants::set_up(&pair.primary, plan.seed)?;
    let families = Families::set_up(&pair.primary, plan.seed)?;
    let everything = Everything {
        work: &work,
        giants: &giants,
        partitioned: &partitioned,
        families: &families,
    };
    let mut random = Random(plan.seed);
    let end = Instant::now() + Duration::from_secs_f64(plan.minutes * 60.0);
    let (mut crashes, mut copied) = (0, 0);
    while Instant::now() < end || crashes < Turn::ALL.len() as u64 {
        let turn = Turn::ALL[(crashes % 3) as usize];
        let lives = turn.lives(&mut random);
        live_and_die(&pair.primary, &everything, turn, lives)?;
        crashes += 1;
        kept::choose(&mut pair.primary, &mut random);
        pair.primary.start()?;
        work.settle(&pair.primary)?;
        check(pair, &everything)?;
        // Every fifth crash the engine's own checks run, too, and DDL that copies has its turn.
        if crashes % 5 == 0 {
            copied += copies::check(&mut pair.primary, plan.seed + crashes, COPYING_KILLS)?;
            check_files(&mut pair.primary)?;
        }
        eprintln!("crash {crashes}: {everything}; all agree");
    }
    check_files(&mut pair.primary)?;
    println!(
        "{crashes} crashes, {everything}, {copied} that copied or drew numbers: nothing lost, \
         engines and binary log agree, no orphan files; {}",
        orphans::mended(&pair.primary)
    );
    Ok(())
}

/// What runs until a kill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    All,
    /// DDL of partitioned tables, and nothing else.
    Partitioned,
    /// Families, and nothing else.
    Families,
}

impl Turn {
    const ALL: [Self; 3] = [Self::All, Self::Partitioned, Self::Families];

    fn lives(self, random: &mut Random) -> Duration {
        Duration::from_millis(match self {
            // Longer than a thread waits for room in the log.
            Self::All if random.chance(20) => 14_000,
            Self::All => 300 + random.below(3000),
            Self::Partitioned => 30 + random.below(1000),
            Self::Families => 100 + random.below(1100),
        })
    }
}

/// All workloads.
struct Everything<'a> {
    work: &'a Workload,
    giants: &'a Giants,
    partitioned: &'a [Partitioned],
    families: &'a Families,
}

impl fmt::Display for Everything<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let of_partitions = self.partitioned.iter().map(|each| count(&each.statements));
        write!(
            out,
            "{} transactions acknowledged, {} statements of giants, {} of families, {} that changed their indexes \
             ({} more when a server was killed), {} DDL statements, {} of partitioned tables",
            self.work.count(),
            count(&self.giants.statements),
            count(&self.families.written),
            count(&self.families.altered),
            count(&self.families.cut),
            count(&self.work.definitions),
            of_partitions.sum::<u64>()
        )
    }
}

/// Lets the workloads of a turn run, and kills the server in the midst of it.
fn live_and_die(
    server: &Server,
    everything: &Everything<'_>,
    turn: Turn,
    lives: Duration,
) -> Result<()> {
    let Everything {
        work,
        giants,
        partitioned,
        families,
    } = *everything;
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        if turn != Turn::Families {
            let of_partitions = |each| scope.spawn(move || Partitioned::run(each, server));
            threads.extend(partitioned.iter().map(of_partitions));
        }
        if turn != Turn::Partitioned {
            let write = |worker| scope.spawn(move || families.write(server, worker));
            threads.extend((1..=FAMILY_WRITERS).map(write));
            threads.push(scope.spawn(|| families.alter(server)));
        }
        if turn == Turn::All {
            let run = |k| scope.spawn(move || giants.run(server, k));
            threads.extend((1..=GIANTS).map(run));
            let transfers = |worker| scope.spawn(move || work.transfer(server, worker));
            threads.extend((0..WORKERS).map(transfers));
            threads.push(scope.spawn(|| work.distribute(server)));
            threads.push(scope.spawn(|| work.define(server)));
        }
        std::thread::sleep(lives);
        server.kill();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a worker panicked".to_owned()))
            })
            .collect()
    });
    results.into_iter().collect()
}

fn check(pair: &Pair, everything: &Everything<'_>) -> Result<()> {
    workload::check(&pair.primary, everything.work)?;
    check_tables(&pair.primary)?;
    orphans::check_running(&pair.primary, DEFINITIONS)?;
    orphans::check_running(&pair.primary, FAMILIES)?;
    everything.families.check(&pair.primary)?;
    for partitioned in everything.partitioned {
        orphans::check_running(&pair.primary, partitioned.database())?;
        partitioned.check(&pair.primary)?;
    }
    orphans::check_number(&pair.primary)?;
    everything.giants.check(&pair.primary)?;
    pair.catch_up()?;
    pair.compare().map(drop)
}

fn check_files(server: &mut Server) -> Result<()> {
    let expected = orphans::expected(server)?;
    server.stop()?;
    orphans::check_stopped(&server.data(), &expected)?;
    server.start()
}
