//! A run: a database that several clients work on, over several lives, from one seed.

use super::campaign::{Tally, level_name};
use super::client::{Client, World, everything};
use super::{Action, End, History, Key, Op, Outcome, State, Txn, check};
use crate::Rng;
use inkstone::internals::options::{Doublewrite, FlushMethod, LogWrite};
use inkstone::{Database, Durability, Interrupt, Isolation, Options, Table};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Where the database lies on the simulated disk.
const DIRECTORY: &str = "db";
const TABLE: &str = "history";

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything but the order of threads.
    pub seed: u64,
    /// The level of all transactions; `None`: each has its own.
    pub level: Option<Isolation>,
    /// Clients at a time.
    pub clients: u32,
    /// Transactions of a client in a life.
    pub transactions: usize,
    /// How many lives.
    pub lives: u64,
}

impl Plan {
    /// The levels that are tried in turn. At locking repeatable read every read locks, and all must
    /// be as at serializable.
    pub const LEVELS: [Option<Isolation>; 5] = [
        Some(Isolation::ReadCommitted),
        Some(Isolation::LockingRepeatableRead),
        Some(Isolation::RepeatableRead),
        Some(Isolation::Serializable),
        None,
    ];

    /// The usual plan of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            seed,
            level: Self::LEVELS[(seed % 5) as usize],
            clients: rng.from_to(2, 8) as u32,
            transactions: 60,
            lives: 4,
        }
    }
}

/// What the work of a run looks like.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// How frequent lists, registers and scans are.
    pub lists: u64,
    pub registers: u64,
    pub scans: u64,
    pub steps_max: u64,
    pub sleep_percent: u64,
    /// Of a hundred pauses of a client, in how many it interrupts one, be it itself.
    pub interrupt_percent: u64,
    /// Bytes that values are longer than need be.
    pub paddings: Vec<u64>,
}

impl Shape {
    fn random(rng: &mut Rng) -> Self {
        let paddings = [
            vec![0],
            vec![0, 100, 300],
            vec![1200, 1500],
            vec![0, 1500, 6000, 20_000],
        ];
        Self {
            lists: rng.pick(&[0, 4, 4, 10]),
            registers: rng.pick(&[0, 4, 4, 10]),
            scans: rng.pick(&[1, 4, 4, 10]),
            steps_max: rng.pick(&[3, 6, 10]),
            sleep_percent: rng.pick(&[0, 10, 40]),
            interrupt_percent: rng.pick(&[0, 0, 5, 30]),
            paddings: paddings[rng.below(4) as usize].clone(),
        }
    }

    /// All of it together.
    pub fn total(&self) -> u64 {
        self.lists + self.registers + self.scans
    }
}

/// Options for the next opening; page size and doublewrite belong to the database.
fn vary(rng: &mut Rng, options: &mut Options) {
    options.buffer_pool_size = options.page_size * rng.pick(&[64, 64, 100, 1000]);
    options.buffer_pool_instances = rng.pick(&[1, 1, 2, 8]);
    options.log_buffer_size = 2 << 20;
    options.log_file_buffering = rng.chance(40);
    options.log_write = rng.pick(&[LogWrite::Sync, LogWrite::Async]);
    options.flush_method = rng.pick(&[FlushMethod::Fsync, FlushMethod::ODirect]);
    options.version_store_memory = 1 << 20;
    options.recovery_threads = rng.from_to(1, 3);
    options.flush_log_at_trx_commit = Durability::Sync;
    options.lock_memory_max = rng.pick(&[0, 500, 64 << 20, 64 << 20]);
}

fn first_options(rng: &mut Rng) -> Options {
    Options {
        page_size: rng.pick(&[4096, 4096, 8192, 16384]),
        doublewrite: rng.pick(&[Doublewrite::On, Doublewrite::On, Doublewrite::Off]),
        log_file_size: rng.pick(&[4, 8]) << 20,
        ..Options::default()
    }
}

/// The clients' threads: the one place that makes them.
fn on_threads<T: Send>(jobs: Vec<impl FnOnce() -> T + Send>) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

struct Run {
    world: World,
    rng: Rng,
    vfs: SimVfs,
    options: Options,
    tally: Tally,
}

/// Runs a plan: what was seen, and the first thing that is wrong.
pub fn run(plan: Plan) -> (Tally, Result<(), String>) {
    let mut rng = Rng::new(plan.seed);
    rng.next();
    let vfs = SimVfs::new(rng.next());
    let options = first_options(&mut rng);
    if options.doublewrite == Doublewrite::Off {
        vfs.set_untorn_bytes(options.page_size);
    }
    vfs.set_sync_delay(Duration::from_micros(rng.pick(&[0, 0, 100])));
    let world = World {
        shape: Shape::random(&mut rng),
        interrupts: (0..plan.clients).map(|_| Interrupt::new()).collect(),
        interrupted: AtomicU64::new(0),
        merges: AtomicU64::new(0),
        range_deletes: AtomicU64::new(0),
        plan,
        clock: AtomicU64::new(0),
        element: AtomicU64::new(0),
        lists: AtomicU32::new(0),
        over: AtomicBool::new(false),
    };
    let mut run = Run {
        world,
        rng,
        vfs,
        options,
        tally: Tally::default(),
    };
    run.tally.marks.add("runs", 1);
    let result = run.lives();
    let interrupted = run.world.interrupted.load(Ordering::Relaxed);
    run.tally.marks.add("statements interrupted", interrupted);
    for (name, count) in [
        ("merges", &run.world.merges),
        ("range deletes", &run.world.range_deletes),
    ] {
        run.tally.marks.add(name, count.load(Ordering::Relaxed));
    }
    (run.tally, result)
}

impl Run {
    fn lives(&mut self) -> Result<(), String> {
        let (mut db, mut table) = self.open()?;
        let mut initial = State::new();
        for _ in 0..self.world.plan.lives {
            if self.rng.chance(50) {
                let most = self.rng.pick(&[50, 500, 3000]);
                self.vfs.crash_at(1 + self.rng.below(most));
            }
            let (txns, wrong) = self.work(&db, &table);
            self.vfs.crash_at(u64::MAX);
            self.tally.note_counters(&db);
            if let Some(text) = wrong {
                self.vfs.kill();
                return Err(text);
            }
            let end = self.end(&db)?;
            if end != End::Quiet || self.rng.chance(30) {
                drop((db, table));
                if end == End::Quiet {
                    self.vfs = self.vfs.kill();
                    self.tally.marks.add("orderly restarts", 1);
                }
                (db, table) = self.open()?;
            }
            let last = everything(&db, &table)?;
            let history = History {
                initial,
                txns,
                end,
                last: last.clone(),
            };
            let checked = check(&history);
            self.tally.note(&history, &checked);
            if let Some(anomaly) = checked.violations().next() {
                self.vfs.kill();
                return Err(anomaly.to_string());
            }
            initial = last;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(Database, Table), String> {
        vary(&mut self.rng, &mut self.options);
        let vfs = Arc::new(self.vfs.clone());
        let options = self.options.clone();
        let db = Database::open_on(vfs, Path::new(DIRECTORY), options, &|_| {});
        let db = db.map_err(|error| format!("open: {error}"))?;
        let table = match db.table(TABLE) {
            Err(inkstone::Error::NotFound(_)) => db.create_table(TABLE, &[]),
            found => found,
        };
        let table = table.map_err(|error| format!("opening the table: {error}"))?;
        Ok((db, table))
    }

    fn work(&mut self, db: &Database, table: &Table) -> (Vec<Txn>, Option<String>) {
        let clients: Vec<_> = (0..self.world.plan.clients)
            .map(|number| Client {
                world: &self.world,
                db,
                table,
                vfs: &self.vfs,
                number,
                rng: Rng::new(self.rng.next()),
            })
            .collect();
        let jobs = clients.into_iter().map(|client| || client.run()).collect();
        let mut all = (Vec::new(), None);
        for (txns, wrong) in on_threads(jobs) {
            all.0.extend(txns);
            all.1 = all.1.or(wrong);
        }
        all
    }

    /// How the life ends. If it goes on, what is there must not be lost by a later end.
    fn end(&mut self, db: &Database) -> Result<End, String> {
        let dead = self.vfs.is_dead();
        if dead || self.rng.chance(20) {
            self.vfs = self.vfs.crash(self.rng.next());
            self.tally.marks.add("power losses", 1);
            return Ok(End::PowerLoss);
        }
        if self.rng.chance(20) {
            self.tally.marks.add("kills", 1);
            self.vfs = self.vfs.kill();
            return Ok(End::Kill);
        }
        db.flush_log().map_err(|error| format!("flush: {error}"))?;
        Ok(End::Quiet)
    }
}

/// Whether a commit to lists was acknowledged and is not there.
fn is_lost(txn: &Txn, last: &State) -> bool {
    let lost = |op: &Op| match &op.action {
        Action::Write {
            key: key @ Key::List(_),
            value,
        } => {
            let there = last.get(key).map_or(&[][..], |value| value);
            !there.starts_with(value)
        }
        _ => false,
    };
    let undoes = txn
        .ops
        .iter()
        .any(|op| matches!(op.action, Action::RollBack));
    let committed = matches!(txn.outcome, Outcome::Committed { .. });
    committed && !undoes && txn.ops.iter().any(lost)
}

impl Tally {
    /// Counts what a life showed.
    pub fn note(&mut self, history: &History, checked: &super::Checked) {
        let marks = &mut self.marks;
        marks.add("lives", 1);
        marks.add("edges", checked.edges);
        for txn in &history.txns {
            marks.add("operations", txn.ops.len() as u64);
            let (name, why) = match &txn.outcome {
                Outcome::Committed { .. } => ("transactions committed", None),
                Outcome::Aborted(why) => ("transactions rolled back", Some(why)),
                Outcome::Unknown => ("transactions that died in their commit", None),
            };
            marks.add(name, 1);
            marks.add(
                "commits lost legally",
                u64::from(is_lost(txn, &history.last)),
            );
            match why.map(String::as_str) {
                Some("deadlock") => marks.add("deadlocks", 1),
                Some(why) if why.contains("timeout") => marks.add("lock timeouts", 1),
                Some(why) if why.contains("snapshot") => marks.add("write conflicts", 1),
                _ => {}
            }
        }
        for class in checked.classes() {
            *self
                .shown
                .entry((level_name(checked.level), class))
                .or_default() += 1;
        }
    }
}
