//! One run from one seed: a database that is worked on, loses its disk, is recovered, and must be
//! what the model says, several times over.
//!
//! | file | subject |
//! |---|---|
//! | `features` | what a run does and leaves out, and its options |
//! | `life` | opening, working, ending, again and again |
//! | `late` | what happens while pages wait to be redone |
//! | `steps` | one random step |
//! | `client`, `expect` | what a client's transaction may see and meet |
//! | `rows`, `bulk`, `ranges`, `reads`, `ends`, `tables` | what clients do |
//! | `generate` | keys and values |
//! | `spells` | spells in which pages cannot be written |
//! | `wreck` | what a power loss left on the disk |
//! | `check` | the whole database after recovery |

mod bulk;
mod check;
mod client;
mod cursor;
mod ends;
mod expect;
mod features;
mod generate;
mod hot;
mod late;
mod life;
mod load;
mod profiles;
mod ranges;
mod reads;
mod rows;
mod spells;
mod steps;
mod tables;
mod wreck;

pub use crate::marks::Marks;
pub use features::{Disk, Ending, Features};
pub use profiles::Profile;

use crate::Rng;
use crate::model::{Model, TableId};
use crate::schedule;
use client::Client;
use generate::Shape;
use inkstone::{Database, Error, Options, Table};
use inkstone_io::sim::{FaultRule, SimVfs};
use std::collections::BTreeMap;
use wreck::Wreck;

/// Where the database lies on the simulated disk.
pub const DIRECTORY: &str = "db";

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything else.
    pub seed: u64,
    /// What the run does and leaves out.
    pub features: Features,
    /// Which profile has changed the features.
    pub profile: Option<Profile>,
    /// How often the process ends, at most.
    pub cycles: u64,
    /// Steps of work in a cycle, at most.
    pub steps_max: u64,
    /// Steps of work in the run, at most.
    pub steps_total: u64,
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
            features: Features::of_seed(seed),
            profile: None,
            cycles: 5,
            steps_max: 250,
            steps_total: u64::MAX,
            fault: None,
            trace: false,
        }
    }

    /// The usual plan of a seed, in runs that lead to a certain kind of trouble.
    pub fn of_profile(profile: Profile, seed: u64) -> Self {
        let mut plan = Self::of_seed(seed);
        profile.change(&mut plan.features);
        plan.profile = Some(profile);
        plan
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
    plan: Plan,
    rng: Rng,
    vfs: SimVfs,
    options: Options,
    model: Model,
    shapes: BTreeMap<TableId, Shape>,
    clients: Vec<Option<Client>>,
    tables: BTreeMap<TableId, Table>,
    db: Option<Database>,
    marks: Marks,
    /// What the last power loss left, until the database is open again.
    wreck: Option<Wreck>,
    /// It was closed, with the log alone, and has not been open since.
    closed_log_only: bool,
    /// Whether I/O errors are legal.
    tolerant: bool,
    /// A spell is on.
    failing: bool,
    names: u64,
    /// Numbers of rows that loads have taken lie below this.
    load_end: u64,
    step: u64,
}

impl Run {
    /// A run that has not begun.
    pub fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed);
        let vfs = SimVfs::new(rng.next());
        schedule::attach(&vfs);
        plan.features.set_up(&vfs);
        Self::on(plan, rng, vfs, Model::default())
    }

    fn on(plan: Plan, mut rng: Rng, vfs: SimVfs, model: Model) -> Self {
        Self {
            options: plan.features.options(&mut rng),
            clients: (0..plan.features.clients).map(|_| None).collect(),
            plan,
            rng,
            vfs,
            model,
            shapes: BTreeMap::new(),
            tables: BTreeMap::new(),
            db: None,
            marks: Marks::default(),
            wreck: None,
            closed_log_only: false,
            tolerant: false,
            failing: false,
            names: 0,
            load_end: 0,
            step: 0,
        }
    }

    /// Runs all of it.
    pub fn run(mut self) -> (Marks, Result<(), String>) {
        self.trace(|| format!("{:#?}", self.plan.features));
        let result = self.cycles();
        self.abandon();
        (self.marks, result)
    }

    fn features(&self) -> &Features {
        &self.plan.features
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.plan.trace {
            eprintln!("[{}] {}", self.step, text());
        }
    }

    /// An error that the plan does not explain is a bug. Otherwise: whether work can go on.
    fn judge(&self, what: &str, error: &Error) -> Outcome {
        if self.vfs.is_dead() {
            return Err(Stop::Dead);
        }
        match error {
            Error::Poisoned(_) if self.excuses(error) => Err(Stop::Dead),
            // A change could not be undone: the whole transaction is being rolled back.
            Error::TransactionState(_) if self.tolerant => Ok(()),
            // Until purge has done so it keeps its locks.
            Error::LockTimeout { .. } | Error::LockNotAvailable if self.tolerant => Ok(()),
            error if self.excuses(error) => Ok(()),
            _ => bug(format!("{what}: {error}")),
        }
    }

    /// Whether what fails on this disk explains an error. Pages that cannot be written poison
    /// nothing.
    fn excuses(&self, error: &Error) -> bool {
        let may_poison = self.plan.fault.is_some();
        self.tolerant && is_fault(error) && (may_poison || !matches!(error, Error::Poisoned(_)))
    }

    fn database(&self) -> Database {
        match &self.db {
            Some(db) => db.clone(),
            None => unreachable!("a step without a database"),
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
