//! One run from one seed: a database that is worked on, loses its disk, is recovered, and must be
//! what the model says, several times over.

mod check;
mod client;
mod generate;
mod work;

use crate::Rng;
use crate::model::{End, Model, TableId};
use crate::schedule;
use client::Client;
use generate::{Shape, first_options, vary_options};
use inkstone::{Database, Error, Options, Table};
use inkstone_io::sim::{FaultRule, OpKind, SimVfs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Where the database lies on the simulated disk.
pub const DIRECTORY: &str = "db";

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything else.
    pub seed: u64,
    /// How often the process ends.
    pub cycles: u64,
    /// Long rows, bulk inserts and old transactions, so that the log comes round.
    pub heavy: bool,
    /// Steps of work in a cycle, at most.
    pub steps_max: u64,
    /// An operation on the disk that fails, in the first cycle. Errors are legal then.
    pub fault: Option<FaultRule>,
    /// Prints each step.
    pub trace: bool,
}

impl Plan {
    /// The usual plan of a seed.
    pub fn of_seed(seed: u64) -> Self {
        Self {
            seed,
            cycles: 5,
            heavy: seed % 8 == 7,
            steps_max: 250,
            fault: None,
            trace: false,
        }
    }
}

/// Counts of what was seen, by name.
#[derive(Clone, Debug, Default)]
pub struct Marks(pub BTreeMap<&'static str, u64>);

impl Marks {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.0.entry(name).or_default() += count;
    }

    /// Adds all counts of another.
    pub fn merge(&mut self, other: &Marks) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }

    /// A count.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// Why a piece of work stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The disk is dead, or the engine is poisoned by a fault.
    Dead,
    /// The engine does not do what it promises.
    Bug(String),
}

pub(crate) type Outcome<T = ()> = Result<T, Stop>;

pub(crate) fn bug<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Stop::Bug(text.into()))
}

/// A run under way.
pub struct Run {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) vfs: SimVfs,
    pub(crate) options: Options,
    pub(crate) model: Model,
    pub(crate) shapes: BTreeMap<TableId, Shape>,
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) tables: BTreeMap<TableId, Table>,
    pub(crate) db: Option<Database>,
    pub(crate) marks: Marks,
    /// Whether I/O errors are legal.
    pub(crate) tolerant: bool,
    pub(crate) names: u64,
    pub(crate) step: u64,
}

impl Run {
    /// A run that has not begun.
    pub fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let vfs = SimVfs::new(rng.next());
        schedule::attach(&vfs);
        let options = first_options(&mut rng, plan.heavy);
        if options.doublewrite == inkstone::options::Doublewrite::Off {
            vfs.set_untorn_bytes(options.page_size);
        }
        Self {
            plan,
            rng,
            vfs,
            options,
            model: Model::default(),
            shapes: BTreeMap::new(),
            clients: (0..4).map(|_| None).collect(),
            tables: BTreeMap::new(),
            db: None,
            marks: Marks::default(),
            tolerant: false,
            names: 0,
            step: 0,
        }
    }

    /// Runs all of it.
    pub fn run(mut self) -> (Marks, Result<(), String>) {
        let result = self.cycles();
        if result.is_err() {
            // A wrecked engine may not be able to close.
            self.vfs.kill();
        }
        self.forget_process();
        (self.marks, result)
    }

    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if self.plan.trace {
            eprintln!("[{}] {}", self.step, text());
        }
    }

    fn cycles(&mut self) -> Result<(), String> {
        let mut end = End::Close;
        for cycle in 0..=self.plan.cycles {
            crate::campaign::alive();
            if cycle == 0
                && let Some(fault) = self.plan.fault.clone()
            {
                self.vfs.fail(fault);
                self.tolerant = true;
            }
            self.open(&mut end)?;
            self.settle(self.plan.fault.is_none() || cycle > 0, |run| {
                run.check_recovered(end)
            })?;
            self.marks.add("cycles", 1);
            if cycle == self.plan.cycles {
                break;
            }
            end = self.live()?;
            self.tolerant = false;
        }
        Ok(())
    }

    /// Runs something that must not fail (`strict`), or that may die.
    fn settle(&mut self, strict: bool, f: impl FnOnce(&mut Self) -> Outcome) -> Result<(), String> {
        match f(self) {
            Ok(()) => Ok(()),
            Err(Stop::Bug(text)) => Err(text),
            Err(Stop::Dead) if strict => Err("the database is dead after recovery".to_owned()),
            Err(Stop::Dead) => Ok(()),
        }
    }

    /// Opens the database, with crashes in the middle of it.
    fn open(&mut self, end: &mut End) -> Result<(), String> {
        for attempt in 0..12 {
            vary_options(&mut self.rng, &mut self.options);
            let armed = attempt < 6 && !self.tolerant && self.rng.chance(35);
            if armed {
                let most = self.rng.pick(&[10, 100, 1000]);
                self.vfs.crash_at(1 + self.rng.below(most));
            }
            let vfs = Arc::new(self.vfs.clone());
            let opened =
                Database::open_on(vfs, Path::new(DIRECTORY), self.options.clone(), &|_| {});
            match opened {
                Ok(db) => {
                    self.vfs.crash_at(u64::MAX);
                    self.db = Some(db);
                    if !self.vfs.is_dead() {
                        return Ok(());
                    }
                    self.forget_process();
                }
                Err(error) if self.vfs.is_dead() => {
                    self.trace(|| format!("crash while opening: {error}"));
                }
                Err(error) if self.tolerant && is_fault(&error) => {
                    self.trace(|| format!("fault while opening: {error}"));
                    self.vfs.clear_faults();
                    *end = (*end).max_loss(self.die());
                    self.tolerant = false;
                    continue;
                }
                Err(error) => {
                    if self.plan.trace {
                        let vfs = self.vfs.kill();
                        let text = crate::diagnose::of_error(&vfs, Path::new(DIRECTORY), &error);
                        self.trace(|| text);
                    }
                    return Err(format!("after {end:?} open failed: {error}"));
                }
            }
            self.marks.add("crashes while opening", 1);
            *end = (*end).max_loss(self.die());
        }
        Err("the database cannot be opened".to_owned())
    }

    /// The process ends: power loss or kill.
    fn die(&mut self) -> End {
        if self.rng.chance(75) {
            self.vfs = self.vfs.crash(self.rng.next());
            self.marks.add("power losses", 1);
            End::PowerLoss
        } else {
            self.marks.add("kills", 1);
            self.kill()
        }
    }

    /// The process is killed. If one of its syncs failed, what that should have made durable is lost
    /// as by a power loss: the cache shows it, and the disk will never have it.
    fn kill(&mut self) -> End {
        self.vfs = self.vfs.kill();
        let fault = self.plan.fault.as_ref().filter(|_| self.tolerant);
        match fault.is_some_and(|f| f.kind.is_none_or(|kind| kind == OpKind::Sync)) {
            true => End::PowerLoss,
            false => End::Kill,
        }
    }

    /// Drops all handles of a process that has ended.
    fn forget_process(&mut self) {
        self.note_counters();
        for client in &mut self.clients {
            *client = None;
        }
        self.tables.clear();
        self.db = None;
    }

    /// Works until the process ends, and ends it.
    fn live(&mut self) -> Result<End, String> {
        let steps = self.rng.from_to(1, self.plan.steps_max);
        let how = self.rng.below(100);
        if how < 65 && !self.tolerant {
            let most = self.rng.pick(&[30, 300, 3000]);
            self.vfs.crash_at(1 + self.rng.below(most));
        }
        let mut stopped = Ok(());
        for _ in 0..steps {
            self.step += 1;
            stopped = self.one_step();
            if stopped.is_err() || self.vfs.is_dead() {
                break;
            }
        }
        if let Err(Stop::Bug(text)) = stopped {
            return Err(format!("step {}: {text}", self.step));
        }
        self.vfs.crash_at(u64::MAX);
        if how >= 90 && stopped.is_ok() && !self.vfs.is_dead() {
            return self.close();
        }
        self.note_counters();
        let end = if (80..90).contains(&how) {
            self.marks.add("kills", 1);
            self.kill()
        } else if self.tolerant {
            self.die()
        } else {
            self.vfs = self.vfs.crash(self.rng.next());
            self.marks.add("power losses", 1);
            End::PowerLoss
        };
        self.trace(|| format!("{end:?} with {} events", self.model.events()));
        self.forget_process();
        Ok(end)
    }

    /// Closes in order.
    fn close(&mut self) -> Result<End, String> {
        self.note_counters();
        let keep = self.rng.chance(30);
        if !keep {
            self.clients.iter_mut().for_each(|client| *client = None);
        }
        self.tables.clear();
        let Some(db) = self.db.take() else {
            return Err("no database".to_owned());
        };
        let closed = db.close();
        // Transactions that outlive the database.
        self.clients.iter_mut().for_each(|client| *client = None);
        self.marks.add("closes", 1);
        let killed = self.kill();
        match closed {
            Ok(()) => Ok(End::Close),
            Err(error) if self.tolerant && is_fault(&error) => Ok(killed),
            Err(error) => Err(format!("close failed: {error}")),
        }
    }

    fn note_counters(&mut self) {
        let Some(db) = &self.db else { return };
        let kept = [
            "buffer_evictions",
            "leaf_splits",
            "inner_splits",
            "page_merges",
            "rows_purged",
            "version_segments_spilled",
            "version_segments_retired",
            "log_segments_recycled",
            "checkpoints",
            "doublewrite_skipped",
            "doublewrite_pages",
            "lock_timeouts",
            "checkpoint_waits",
            "log_bytes",
        ];
        for (name, count) in db.counters().snapshot() {
            if kept.contains(&name) {
                self.marks.add(name, count);
            }
        }
    }

    /// An error that the plan does not explain is a bug. Otherwise: whether work can go on.
    pub(crate) fn judge(&self, what: &str, error: &Error) -> Outcome {
        if self.vfs.is_dead() {
            return Err(Stop::Dead);
        }
        match error {
            Error::Poisoned(_) if self.tolerant => Err(Stop::Dead),
            // A change could not be undone: the whole transaction is being rolled back.
            Error::TransactionState(_) if self.tolerant => Ok(()),
            // Until purge has done so it keeps its locks.
            Error::LockTimeout { .. } | Error::LockNotAvailable if self.tolerant => Ok(()),
            error if self.tolerant && is_fault(error) => Ok(()),
            _ => bug(format!("{what}: {error}")),
        }
    }

    pub(crate) fn database(&self) -> Database {
        match &self.db {
            Some(db) => db.clone(),
            None => unreachable!("a step without a database"),
        }
    }
}

impl End {
    /// Which of two ends loses more. What was closed in order is not lost by what comes later.
    fn max_loss(self, later: End) -> End {
        match (self, later) {
            (End::Close, _) => End::Close,
            (End::PowerLoss, _) | (_, End::PowerLoss) => End::PowerLoss,
            _ => End::Kill,
        }
    }
}

/// Whether an error is one that a failing disk explains.
pub(crate) fn is_fault(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. } | Error::DiskFull { .. } | Error::Poisoned(_)
    )
}
