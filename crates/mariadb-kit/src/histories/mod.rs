//! `--histories`: concurrent transactions in SQL, recorded, and checked for what their isolation
//! level forbids, by the checker of `cargo xtask histories` (`inkstone_testkit::history`). The
//! server is killed now and then, and in some runs single statements are, or connections, or the
//! tables are altered beside them; its binary log is on, so that commits go through the server's
//! group commit.

mod beside;
mod client;
mod level;
mod lost;

use super::client::{Client as Connection, Reply};
use super::crash::Plan;
use super::kept;
use super::pair::Format;
use super::plugin::Plugin;
use super::random::Random;
use super::server::Server;
use super::tree::Tree;
use beside::{Altered, Altering, Killing, check_tables};
use client::{Client, TABLES, World, everything};
use inkstone_testkit::build::Result;
use inkstone_testkit::history::campaign::Tally;
use inkstone_testkit::history::{End, History, State, Txn, check};
use level::Level;
use lost::Line;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Synced with each group of commits.
const OPTIONS: [&str; 2] = ["--log-bin=bin", "--sync-binlog=1"];
const DATABASE: &str = "histories";
/// Lives of the same tables.
const LIVES: u64 = 4;
/// Runs below which a campaign may miss what the levels let through.
const RUNS_FOR_CLASSES: u64 = 60;
/// Transactions of a client in a life.
const TRANSACTIONS: usize = 40;

/// When the server is killed.
enum Kill {
    /// While the clients work.
    Amid(Duration),
    /// Once the last of them has ended: what it was told last had no later sync to cover it.
    AtEnd,
}

/// Records and checks until the time is up; the exit code says whether every promise was kept.
pub fn run(tree: &Tree, plugin: &Plugin, plan: Plan, json: bool) -> Result<ExitCode> {
    let server = Server::temporary(tree, "histories")
        .with_plugin(plugin)
        .with_options(OPTIONS)
        .with_options(kept::options(&mut Random(plan.seed)));
    let mut campaign = Campaign {
        server,
        tally: Tally::default(),
        format: Format::Row,
    };
    campaign.server.start()?;
    let result = campaign.runs(plan);
    let missing = if campaign.tally.marks.get("runs") >= RUNS_FOR_CLASSES {
        campaign.tally.never_shown()
    } else {
        Vec::new()
    };
    if json {
        let mut tally = campaign.tally.json();
        tally["never_seen"] = missing.clone().into();
        println!("{tally:#}");
    } else {
        campaign.print();
    }
    if let Err(error) = result {
        let folder = campaign.server.folder().display();
        return Err(format!("{error}\nthe server's files are kept: {folder}"));
    }
    campaign.server.remove();
    for what in &missing {
        eprintln!("never seen: {what}");
    }
    Ok(ExitCode::from(u8::from(!missing.is_empty())))
}

impl World {
    /// For the lives of a run.
    fn random(random: &mut Random, level: Option<Level>) -> Self {
        let paddings = [vec![0], vec![0, 100, 300], vec![0, 1500, 20_000]];
        let kills_statements = random.chance(50);
        Self {
            level,
            transactions: TRANSACTIONS,
            xa_percent: *random.pick(&[12, 12, 70]),
            paddings: random.pick(&paddings).clone(),
            clock: AtomicU64::new(0),
            element: AtomicU64::new(0),
            lists: AtomicU32::new(0),
            killed: AtomicBool::new(false),
            kills_statements,
            kills_connections: kills_statements && random.chance(50),
            alters: random.chance(40),
            statements_killed: AtomicU64::new(0),
            connections_killed: AtomicU64::new(0),
            prepared_detached: AtomicU64::new(0),
            reads_refused: AtomicU64::new(0),
        }
    }
}

/// What the clients of a life have seen, or what is wrong, and what came of the changes beside
/// them.
type Worked = (
    Vec<(Vec<Txn>, Option<String>)>,
    std::thread::Result<Altered>,
);

struct Campaign {
    server: Server,
    tally: Tally,
    /// Of what the clients log: it decides what statements lock of what they only read.
    format: Format,
}

/// Of the run of this number: each level has each format in turn that it can be logged in.
fn format(number: u64, level: Option<Level>) -> Format {
    let round = number / (Level::ALL.len() as u64 + 1);
    let formats = if level.is_some_and(Level::locks_gaps) {
        &Format::ALL[..]
    } else {
        &[Format::Row, Format::Mixed]
    };
    formats[(round % formats.len() as u64) as usize]
}

impl Campaign {
    fn runs(&mut self, plan: Plan) -> Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(plan.minutes * 60.0);
        // A level each in turn, then all at once.
        let levels = Level::ALL.map(Some).into_iter().chain([None]).cycle();
        for (seed, level) in (plan.seed..).zip(levels) {
            if Instant::now() >= end {
                break;
            }
            self.format = format(seed - plan.seed, level);
            let logged = format!("runs logged as {}", self.format.name());
            self.tally.marks.add(&logged, 1);
            let name = level.map_or("all levels", Level::name);
            self.lives(seed, level)
                .map_err(|error| format!("run {seed}, {name}: {error}"))?;
            self.tally.marks.add("runs", 1);
            let format = self.format.name();
            eprintln!("run {seed}, {name}, {format}: nothing that it forbids");
        }
        Ok(())
    }

    fn print(&self) {
        for (name, count) in &self.tally.marks.0 {
            println!("{count:>12}  {name}");
        }
        println!("\n{}\n", self.tally.table());
    }

    fn connect(&self, database: &str) -> Result<Connection> {
        let mut connection = Connection::connect(self.server.socket())
            .map_err(|error| format!("no connection: {error}"))?;
        connection
            .run(&format!("USE {database}"))
            .map_err(|error| format!("no connection: {error}"))?;
        let set = format!("SET SESSION binlog_format = {}", self.format.name());
        match connection.run(&set) {
            Ok(Reply::Done(_)) => {}
            other => return Err(format!("{set}: {other:?}")),
        }
        Ok(connection)
    }

    fn lives(&mut self, seed: u64, level: Option<Level>) -> Result<()> {
        let mut random = Random(seed);
        let world = World::random(&mut random, level);
        self.server
            .sql(&format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))?;
        self.server
            .sql(&format!("USE {DATABASE}; {}", TABLES.join("; ")))?;
        let mut initial = State::new();
        for _ in 0..LIVES {
            let kill = match random.below(8) {
                0 | 1 => Some(Kill::Amid(Duration::from_millis(random.between(20, 1500)))),
                2 => Some(Kill::AtEnd),
                _ => None,
            };
            let clients = random.between(2, 8) as u32;
            let (txns, altered) = self.life(&world, clients, &mut random, kill)?;
            self.tally.marks.add("tables altered", altered.made);
            self.tally
                .marks
                .add("changes that gave way", altered.gave_way);
            let end = if world.killed.swap(false, Ordering::SeqCst) {
                kept::choose(&mut self.server, &mut random);
                self.server.start()?;
                self.settle(&mut random)?;
                self.tally.marks.add("kills", 1);
                End::Kill
            } else {
                End::Quiet
            };
            if world.alters {
                check_tables(&mut self.connect(DATABASE)?)?;
            }
            let last = everything(&world, self.connect(DATABASE)?)?;
            let history = History {
                initial,
                txns,
                end,
                last: last.clone(),
            };
            let checked = check(&history);
            self.tally.note(&history, &checked);
            if let Some(anomaly) = checked.violations().next() {
                let path = self.server.folder().join("history.txt");
                std::fs::write(&path, history.to_string()).map_err(|error| error.to_string())?;
                let text = format!("{anomaly}\nall of this life: {}", path.display());
                return Err(text);
            }
            initial = last;
        }
        for (what, count) in [
            ("statements killed", &world.statements_killed),
            ("connections killed", &world.connections_killed),
            (
                "prepared over a killed connection",
                &world.prepared_detached,
            ),
            ("statements older than a table", &world.reads_refused),
        ] {
            self.tally.marks.add(what, count.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Ends what was prepared when the server was killed, the one way or the other: no client was
    /// told.
    fn settle(&mut self, random: &mut Random) -> Result<()> {
        for line in self.server.sql("XA RECOVER")?.lines() {
            let name = line.rsplit('\t').next().unwrap_or_default();
            let way = random.word(&["COMMIT", "ROLLBACK"]);
            self.server.sql(&format!("XA {way} '{name}'"))?;
            self.tally.marks.add("prepared over a kill", 1);
        }
        Ok(())
    }

    /// Clients at work, until all have done it or the server is killed.
    fn life(
        &self,
        world: &World,
        clients: u32,
        random: &mut Random,
        kill: Option<Kill>,
    ) -> Result<(Vec<Txn>, Altered)> {
        let connect = || self.connect(DATABASE);
        let mut connections = Vec::new();
        let mut lines = Vec::new();
        for _ in 0..clients {
            let connection = connect()?;
            lines.push(Line::new(connect, connection.id()));
            connections.push(connection);
        }
        let ready: Vec<_> = (0..clients)
            .zip(connections)
            .map(|(number, connection)| Client {
                world,
                connection,
                line: &lines[number as usize],
                number,
                random: Random(random.bits()),
                said: String::new(),
            })
            .collect();
        let killing = Killing {
            connection: connect()?,
            lines: &lines,
            random: Random(random.bits()),
            connections: world.kills_connections,
        };
        let altering = Altering {
            world,
            connection: connect()?,
            random: Random(random.bits()),
        };
        let (results, altered) = self.at_work(ready, (killing, altering), kill.as_ref());
        if let Some(Kill::AtEnd) = kill {
            world.killed.store(true, Ordering::SeqCst);
            self.server.kill();
        }
        let altered = altered.map_err(|_| "what alters the tables panicked")?;
        if let Some(text) = &altered.wrong {
            return Err(text.clone());
        }
        let mut all = Vec::new();
        for (txns, wrong) in results {
            if let Some(text) = wrong {
                return Err(text);
            }
            all.extend(txns);
        }
        Ok((all, altered))
    }

    fn at_work(
        &self,
        clients: Vec<Client<'_>>,
        (killing, altering): (Killing<'_>, Altering<'_>),
        kill: Option<&Kill>,
    ) -> Worked {
        let world = altering.world;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if world.kills_statements {
                scope.spawn(|| killing.run(&is_over));
            }
            let altered = world.alters.then(|| scope.spawn(|| altering.run(&is_over)));
            let threads: Vec<_> = clients
                .into_iter()
                .map(|client| scope.spawn(|| client.run()))
                .collect();
            if let Some(Kill::Amid(after)) = kill {
                std::thread::sleep(*after);
                world.killed.store(true, Ordering::SeqCst);
                self.server.kill();
            }
            let joined = threads.into_iter().map(|thread| thread.join());
            let results = joined
                .map(|result| {
                    result.unwrap_or_else(|_| (Vec::new(), Some("a client panicked".to_owned())))
                })
                .collect();
            is_over.store(true, Ordering::SeqCst);
            let altered = altered.map_or_else(|| Ok(Altered::default()), |thread| thread.join());
            (results, altered)
        })
    }
}
