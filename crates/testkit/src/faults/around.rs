//! What is around the process changes (decision 0022): the control file is replaced, renamed or
//! removed while the database is open, and the system limits memory.
//!
//! # What must hold
//!
//! 1. A control file that is not the one that was opened stops the engine at the next checkpoint or
//!    DDL statement at the latest, with an error that names it; every later call gets the same
//!    error. What was acknowledged until then is there for the next process that opens the database
//!    with a copy, or with the file put back.
//! 2. Whatever the limit on memory, the database opens and everything works. The pool is made to
//!    fit, or is the least that there is, and the report says so exactly if it was made smaller.

use super::after::{self, After};
use super::every::{Consequence, check_poisoned};
use super::session::{DIRECTORY, Session, Stop, options};
use super::work::{Life, Start};
use crate::campaign::watched;
use inkstone::internals::control::CONTROL_FILE;
use inkstone::{Error, Options};
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, OpenOptions, Vfs};
use std::fmt;
use std::path::Path;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The control file is replaced by a copy of itself before this step.
    Replaced(u64),
    /// It gets another name.
    Renamed(u64),
    /// Its name is removed.
    Removed(u64),
    /// The system lets the process have so many KiB.
    Memory(u64),
}

/// One life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Which one.
    pub life: Life,
    /// What changes in it.
    pub change: Change,
}

const STEPS: [u64; 5] = [0, 2, 4, 7, 10];
const LIMITS: [u64; 6] = [0, 256, 2 << 10, 4 << 10, 16 << 10, 1 << 30];
/// Where the control file is while it is renamed or removed.
const AWAY: &str = "control.away";
/// The pool that is asked for.
const POOL_BYTES: u64 = 24 << 20;
/// Frames that a pool has at least.
const FRAMES_MIN: u64 = 64;

impl Case {
    /// All cases.
    pub fn all() -> Vec<Case> {
        let of_control = STEPS.into_iter().flat_map(|step| {
            [Change::Replaced, Change::Renamed, Change::Removed].map(|change| change(step))
        });
        let changes: Vec<Change> = of_control.chain(LIMITS.map(Change::Memory)).collect();
        let cases = |life| changes.iter().map(move |&change| Case { life, change });
        let lives = Life::ALL.into_iter().filter(|life| !life.is_placed());
        lives.flat_map(cases).collect()
    }

    /// Runs the case; the error says what is wrong.
    pub fn run(&self, starts: &[Start]) -> Result<Consequence, String> {
        let line = format!("cargo xtask faults --case {self}");
        let start = &starts[self.life as usize];
        watched(&line, || match self.change {
            Change::Memory(limit) => self.with_memory(start, limit << 10),
            Change::Replaced(step) | Change::Renamed(step) | Change::Removed(step) => {
                self.without_control(start, step)
            }
        })
    }

    fn with_memory(&self, start: &Start, limit: u64) -> Result<Consequence, String> {
        let vfs = start.copy();
        vfs.limit_memory(limit);
        let asked = POOL_BYTES;
        let options = Options {
            buffer_pool_size: asked,
            ..options()
        };
        let least = FRAMES_MIN * options.page_size;
        let session = Session::open_with(vfs.clone(), start.history.clone(), options);
        let mut session = session.map_err(|error| format!("opening: {error}"))?;
        let bound = session.db().open_report().memory_bound;
        let pool = session.db().options().buffer_pool_size;
        if pool > limit && pool > least {
            return Err(format!("a pool of {pool} bytes under a limit of {limit}"));
        }
        let (is_smaller, is_told) = (pool < asked, bound.is_some());
        if is_smaller != is_told || is_smaller != (limit < 2 * asked) {
            return Err(format!(
                "a pool of {pool} bytes, not {asked}, under a limit of {limit}; said: {bound:?}"
            ));
        }
        done(self.life.work()(&mut session))?;
        if let Some(error) = session.errors.first() {
            return Err(format!("with little memory: {error}"));
        }
        let history = session.history.clone();
        let disk = if self.life.is_killed() {
            vfs.crash(limit)
        } else {
            let closed = session.close();
            closed.map_err(|error| format!("closing: {error}"))?;
            vfs.kill()
        };
        disk.limit_memory(limit);
        after::look(&disk, history, 0).map_err(After::text)?;
        Ok(Consequence::Unnoticed)
    }

    fn without_control(&self, start: &Start, at: u64) -> Result<Consequence, String> {
        let vfs = start.copy();
        let mut session = open(&vfs, start)?;
        let (this, on) = (*self, vfs.clone());
        session.before_steps(move |step| {
            if step == at {
                this.take_away(&on).expect("nothing fails on this disk");
            }
        });
        let stopped = match self.life.work()(&mut session) {
            Err(Stop::Engine(error)) => Some(error),
            other => done(other).map(|()| None)?,
        };
        session.before_steps(|_| {});
        let there = vfs.exists(&Path::new(DIRECTORY).join(AWAY));
        if !there.map_err(|error| error.to_string())? {
            return Ok(Consequence::NoSuchOperation);
        }
        // The work may have ended before the engine had to look.
        let error = stopped.or_else(|| session.db().checkpoint().err());
        let Some(error) = error else {
            return Err("a checkpoint is stated in a file that will not be found".to_owned());
        };
        let is_clear = error.to_string().contains("control") && matches!(error, Error::Poisoned(_));
        if !is_clear {
            return Err(format!("this is no clear error: {error}"));
        }
        check_poisoned(&session, &error)?;
        let history = session.history.clone();
        let disk = vfs.kill();
        drop(session);
        self.put_back(&disk).map_err(|error| error.to_string())?;
        after::look(&disk, history, 0).map_err(After::text)?;
        Ok(Consequence::Poisoned)
    }

    /// What is done from outside.
    fn take_away(&self, vfs: &SimVfs) -> std::io::Result<()> {
        let directory = vfs.open_directory(Path::new(DIRECTORY), Create::Never)?;
        let bytes = vfs.read_raw(&Path::new(DIRECTORY).join(CONTROL_FILE))?;
        let made = match self.change {
            Change::Removed(_) => {
                directory.remove(CONTROL_FILE)?;
                AWAY
            }
            _ => {
                directory.rename(CONTROL_FILE, AWAY)?;
                CONTROL_FILE
            }
        };
        if !matches!(self.change, Change::Renamed(_)) {
            let options = OpenOptions {
                create: Create::New,
                read_only: false,
                direct: false,
                dsync: false,
            };
            let file = directory.open(made, options)?;
            file.write_at(&bytes, 0)?;
            file.sync()?;
        }
        directory.sync()
    }

    /// The file, or what was kept of it, has its name again.
    fn put_back(&self, disk: &SimVfs) -> std::io::Result<()> {
        let directory = disk.open_directory(Path::new(DIRECTORY), Create::Never)?;
        match self.change {
            Change::Replaced(_) => directory.remove(AWAY)?,
            _ => directory.rename(AWAY, CONTROL_FILE)?,
        }
        directory.sync()
    }
}

fn open(vfs: &SimVfs, start: &Start) -> Result<Session, String> {
    let session = Session::open(vfs.clone(), start.history.clone());
    session.map_err(|error| format!("opening: {error}"))
}

fn done(outcome: super::session::Outcome) -> Result<(), String> {
    match outcome {
        Ok(()) => Ok(()),
        Err(Stop::Bug(text)) => Err(text),
        Err(Stop::Engine(error)) => Err(error.to_string()),
        Err(Stop::Refused) => Err("a statement was left out".to_owned()),
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, number) = match self.change {
            Change::Replaced(step) => ("replaced", step),
            Change::Renamed(step) => ("renamed", step),
            Change::Removed(step) => ("removed", step),
            Change::Memory(limit) => ("memory", limit),
        };
        write!(f, "around/{}/{what}/{number}", self.life.name())
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Case::all()
            .into_iter()
            .find(|case| case.to_string() == text);
        found.ok_or_else(|| format!("{text}: no such case; one is around/work/replaced/4"))
    }
}
