//! More tables than handles: the process may have so many files open at once, for every number from
//! none to more than it needs.
//!
//! What must hold stands in [`trial`](super::trial); nothing here stops the engine. And: a database
//! that has [`SPARE_HANDLES`] more than one without tables needs opens, and all statements succeed,
//! however many tables it has.

use super::every::Consequence;
use super::session::{self, DIRECTORY, Finish, History, Outcome, Session, Stop};
use super::trial::{End, Promises, Trial};
use super::work::Start;
use crate::campaign::watched;
use inkstone_io::sim::SimVfs;
use std::fmt;
use std::path::Path;

/// Tables of the database.
const TABLES: u64 = 24;
/// Handles for tables that are enough for any number of them.
pub const SPARE_HANDLES: u64 = 8;

/// How the life before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Before {
    /// The database was closed.
    Closed,
    /// The process was killed.
    Killed,
}

/// One budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is opened.
    pub before: Before,
    /// How many files may be open at once.
    pub handles: u64,
}

/// What all cases begin with.
pub struct Crowd {
    closed: Start,
    killed: Start,
    /// Handles that a database without tables needs.
    floor: u64,
    /// Handles that this one needs when there is no limit.
    needed: u64,
}

fn name(table: u64) -> String {
    format!("crowd{table:02}")
}

fn put(s: &mut Session, round: u8) -> Outcome {
    for table in 0..TABLES {
        s.transaction(Finish::Commit, |t| {
            (0..8u64).try_for_each(|n| t.put(&name(table), &n.to_be_bytes(), &[round; 200]))
        })?;
    }
    Ok(())
}

fn make(s: &mut Session) -> Outcome {
    (0..TABLES).try_for_each(|table| s.create(&name(table), &[]))?;
    put(s, 1)
}

/// What is done with few handles: something with each table, and DDL.
fn work(s: &mut Session) -> Outcome {
    s.compare()?;
    put(s, 3)?;
    s.transaction(Finish::Commit, |t| {
        (0..TABLES).try_for_each(|table| t.put(&name(table), b"all", b"at once"))
    })?;
    for table in 0..TABLES {
        s.upkeep("flushing a table", |db| {
            db.flush_table(&db.table(&name(table))?)
        })?;
    }
    s.upkeep("a checkpoint", |db| db.checkpoint())?;
    s.create("new", &[])?;
    s.transaction(Finish::Commit, |t| t.put("new", b"key", b"value"))?;
    s.rename("new", "renamed")?;
    s.drop_table(&name(1))?;
    s.upkeep("purge", |db| db.purge())?;
    s.upkeep("verification", session::verify)?;
    s.compare()
}

fn failed(stop: Stop) -> String {
    match stop {
        Stop::Bug(text) => text,
        Stop::Engine(error) => error.to_string(),
        Stop::Refused => "a statement was left out".to_owned(),
    }
}

impl Crowd {
    /// Makes the databases, with no limit.
    pub fn new() -> Result<Self, String> {
        let disk = SimVfs::new(1);
        let made = disk.create_dir_all(Path::new(DIRECTORY));
        made.map_err(|error| error.to_string())?;
        let empty = live(&disk, &History::default(), |_| Ok(()), true)?;
        let floor = disk.handles_max();
        let disk = empty.copy();
        let closed = live(&disk, &empty.history, make, true)?;
        let disk = closed.copy();
        let killed = live(&disk, &closed.history, |s| put(s, 2), false)?;
        let disk = killed.copy();
        live(&disk, &killed.history, work, true)?;
        let needed = disk.handles_max();
        Ok(Self {
            closed,
            killed,
            floor,
            needed,
        })
    }

    /// Every budget.
    pub fn cases(&self) -> Vec<Case> {
        let both = [Before::Closed, Before::Killed];
        let of = |before| (0..=self.needed).map(move |handles| Case { before, handles });
        both.into_iter().flat_map(of).collect()
    }
}

/// An undisturbed life; what it leaves.
fn live(
    disk: &SimVfs,
    history: &History,
    work: impl FnOnce(&mut Session) -> Outcome,
    closes: bool,
) -> Result<Start, String> {
    let session = Session::open(disk.clone(), history.clone());
    let mut session = session.map_err(|error| error.to_string())?;
    work(&mut session).map_err(failed)?;
    let history = session.history.clone();
    if closes {
        session.close().map_err(|error| error.to_string())?;
        return Ok(Start::of(disk.kill(), history));
    }
    let left = disk.kill();
    drop(session);
    Ok(Start::of(left, history))
}

impl Case {
    /// Runs the case; the error says what is wrong.
    pub fn run(&self, crowd: &Crowd) -> Result<Consequence, String> {
        let line = format!("cargo xtask faults --case {self}");
        watched(&line, || self.trial(crowd).run())
    }

    fn trial(&self, crowd: &Crowd) -> Trial<'static> {
        let start = match self.before {
            Before::Closed => &crowd.closed,
            Before::Killed => &crowd.killed,
        };
        let vfs = start.copy();
        vfs.limit_handles(self.handles);
        let enough = self.handles >= crowd.floor + SPARE_HANDLES;
        Trial {
            vfs,
            history: start.history.clone(),
            work: &work,
            before_step: Box::new(|_| {}),
            end: End {
                relieved: self.handles.is_multiple_of(2),
                killed: self.handles % 4 < 2,
                power_loss: self.handles.is_multiple_of(3).then_some(self.handles),
            },
            promises: Promises {
                may_poison: false,
                opens: enough,
                works: enough,
                named: &["Too many open files"],
            },
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handles/{:?}/{}", self.before, self.handles)
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (before, handles) = text.strip_prefix("handles/")?.split_once('/')?;
            let both = [Before::Closed, Before::Killed];
            let before = both.into_iter().find(|b| format!("{b:?}") == before)?;
            let handles = handles.parse().ok()?;
            Some(Case { before, handles })
        };
        parse().ok_or_else(|| format!("{text}: not handles/BEFORE/NUMBER as in handles/Killed/12"))
    }
}
