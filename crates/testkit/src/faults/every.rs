//! Every operation on the disk fails: for each life of the [`work`](super::work), each kind of
//! operation and each fault, the first one, the second one, and so on until there are no more.
//!
//! # What must hold
//!
//! 1. Every call returns an error that says what failed, or succeeds. Nothing panics or hangs.
//! 2. A failed sync poisons the engine, or the open fails. A poisoned engine gives the same error
//!    to every later call. Only where the one sync of the whole file system fails, at an opening,
//!    each file is synced instead.
//! 3. An engine that is not poisoned goes on: when the fault has passed, the same statement
//!    succeeds. Reads and a full disk do not poison, but for a write to the log.
//! 4. A read that is answered with older bytes, and a write that is acknowledged and lost, lead to
//!    no wrong row: all is right, or an error says what is corrupt. After a lost write that may
//!    stay so. Of the log's end as many commits may be lost as writes were, or one if a read was
//!    wrong.
//! 5. After the process has ended (by power loss, if a sync failed) the database opens, is whole,
//!    is in a state not older than the last acknowledged one, and works.

use super::after::{self, After};
use super::session::{DIRECTORY, History, Session, Stop, is_clear};
use super::work::{Life, Start, work};
use crate::campaign::watched;
use inkstone::{Error, Isolation};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Cases that differ only in which operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// In which life.
    pub life: Life,
    /// Which operations.
    pub kind: OpKind,
    /// How.
    pub fault: Fault,
    /// How many in a row.
    pub times: u64,
}

/// One operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Of this series.
    pub series: Series,
    /// Which one, from 1.
    pub nth: u64,
}

/// What came of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consequence {
    /// There was no such operation: the series has come to its end.
    NoSuchOperation,
    /// No caller noticed.
    Unnoticed,
    /// A call failed, and succeeded later.
    Failed,
    /// Opening failed.
    NotOpened,
    /// Closing failed.
    NotClosed,
    /// The engine was poisoned.
    Poisoned,
}

impl Consequence {
    /// The consequences that a fault can have.
    pub const ALL: [Consequence; 5] = [
        Consequence::Unnoticed,
        Consequence::Failed,
        Consequence::NotOpened,
        Consequence::NotClosed,
        Consequence::Poisoned,
    ];
}

/// How often each consequence came, by kind and fault.
pub type Tally = BTreeMap<(String, String), BTreeMap<Consequence, u64>>;

impl Series {
    /// Text in the paths of the files whose operations fail. A stale page beside a stale block of
    /// the map that would tell are two faults.
    fn files(&self) -> &'static str {
        match self.fault {
            Fault::Stale | Fault::Lost if self.times > 1 => ".ink",
            // What is not a placed table's own is as in the other lives.
            _ if self.life.is_placed() => "/t0",
            _ => "",
        }
    }

    /// All series of a kind of operation.
    pub fn all(kind: OpKind) -> Vec<Series> {
        let faults: &[Fault] = match kind {
            OpKind::Read => &[
                Fault::Eio,
                Fault::FlippedBit,
                Fault::WrongPlace,
                Fault::Stale,
            ],
            OpKind::Write => &[Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::Lost],
            OpKind::Sync | OpKind::Look => &[Fault::Eio],
            OpKind::Open => &[Fault::Eio, Fault::Enospc, Fault::Emfile, Fault::Eacces],
            OpKind::List | OpKind::Lock => &[Fault::Eio, Fault::Emfile, Fault::Eacces],
            _ => &[Fault::Eio, Fault::Enospc],
        };
        let mut all = Vec::new();
        let is_of_files = !matches!(
            kind,
            OpKind::SyncDir | OpKind::List | OpKind::CreateDir | OpKind::Lock
        );
        let lives = Life::ALL.into_iter();
        for life in lives.filter(|life| is_of_files || !life.is_placed()) {
            for &fault in faults {
                all.extend([1, 4].map(|times| Series {
                    life,
                    kind,
                    fault,
                    times,
                }));
            }
        }
        all
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Series {
            life,
            kind,
            fault,
            times,
        } = self.series;
        write!(f, "{}/{kind:?}/{fault:?}/{times}/{}", life.name(), self.nth)
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: not LIFE/KIND/FAULT/TIMES/NTH as in work/Sync/Eio/1/12");
        let parts: Vec<&str> = text.split('/').collect();
        let &[life, kind, fault, times, nth] = &parts[..] else {
            return Err(wrong());
        };
        let kinds = OpKind::ALL;
        let kind = kinds.into_iter().find(|k| format!("{k:?}") == kind);
        let mut all = kind.into_iter().flat_map(Series::all);
        let series = all.find(|s| {
            let names = (s.life.name(), format!("{:?}", s.fault), s.times.to_string());
            (names.0, &names.1[..], &names.2[..]) == (life, fault, times)
        });
        let nth = nth.parse().map_err(|_| wrong())?;
        let series = series.ok_or_else(wrong)?;
        Ok(Case { series, nth })
    }
}

/// A promise is broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which one, and how to repeat it.
    pub text: String,
    /// Whether the operation was there, and failed.
    pub happened: bool,
}

/// Runs a case.
pub fn run(starts: &[Start], case: Case) -> Result<Consequence, Broken> {
    let line = format!("cargo xtask faults --case {case}");
    let run = Run::new(starts, case);
    watched(&line, || run.run()).map_err(|text| Broken {
        text: format!("{case}: {text}\n  repeat: {line}"),
        happened: run.happened(),
    })
}

struct Run<'a> {
    case: Case,
    start: &'a Start,
    vfs: SimVfs,
}

impl<'a> Run<'a> {
    fn new(starts: &'a [Start], case: Case) -> Self {
        let start = &starts[case.series.life as usize];
        let vfs = start.copy();
        vfs.fail(FaultRule {
            kind: Some(case.series.kind),
            path_contains: case.series.files().to_owned(),
            nth: case.nth,
            times: case.series.times,
            fault: case.series.fault,
        });
        Self { case, start, vfs }
    }

    /// Whether there was an operation to fail.
    fn happened(&self) -> bool {
        !self.vfs.faulted().is_empty()
    }

    fn run(&self) -> Result<Consequence, String> {
        let (history, consequence) = self.live()?;
        let happened = self.happened();
        if !happened && consequence != Consequence::Unnoticed {
            return Err(format!("{consequence:?}, and nothing had failed"));
        }
        if happened {
            self.check_policy(consequence)?;
        }
        self.check_after(history)?;
        if happened {
            Ok(consequence)
        } else {
            Ok(Consequence::NoSuchOperation)
        }
    }

    /// The life in which the operation fails.
    fn live(&self) -> Result<(History, Consequence), String> {
        let history = self.start.history.clone();
        let mut session = match Session::open(self.vfs.clone(), history.clone()) {
            Ok(session) => session,
            Err(error) if is_clear(&error) => return Ok((history, Consequence::NotOpened)),
            Err(error) => return Err(format!("opening: {error}")),
        };
        if self.loses_writes() {
            session.expect_lasting_damage();
        }
        let done = work(&mut session, self.case.series.life);
        let history = session.history.clone();
        match done {
            Ok(()) => {}
            Err(Stop::Bug(text)) => return Err(text),
            Err(Stop::Refused) => return Err("a statement was left out".to_owned()),
            Err(Stop::Engine(Error::Corrupt { .. })) => {
                self.vfs.kill();
                return Ok((history, Consequence::Failed));
            }
            Err(Stop::Engine(error)) => {
                check_poisoned(&session, &error)?;
                self.vfs.kill();
                return Ok((history, Consequence::Poisoned));
            }
        }
        let failed = !session.errors.is_empty();
        let poisoned = session.db().flush_log().err();
        if self.case.series.life.is_killed() {
            self.vfs.kill();
        } else if let Err(error) = session.close() {
            return if is_clear(&error) {
                Ok((history, Consequence::NotClosed))
            } else {
                Err(format!("closing: {error}"))
            };
        }
        Ok(match (poisoned, failed) {
            (Some(_), _) => (history, Consequence::Poisoned),
            (None, true) => (history, Consequence::Failed),
            (None, false) => (history, Consequence::Unnoticed),
        })
    }

    fn loses_writes(&self) -> bool {
        self.case.series.fault == Fault::Lost
    }

    /// How many commits may be missing at the end: those frames of the log that were read wrong, or
    /// never written, are like frames of a write that did not finish, if nothing after them says
    /// otherwise.
    fn lost_max(&self) -> usize {
        let is_log = |path: &&PathBuf| path.extension().is_some_and(|e| e == "log");
        let faulted = self.vfs.faulted();
        let wrong = faulted.iter().filter(is_log).count();
        match self.case.series.fault {
            Fault::FlippedBit | Fault::WrongPlace | Fault::Stale => wrong.min(1),
            Fault::Lost => wrong,
            Fault::Eio | Fault::Enospc | Fault::Emfile | Fault::Eacces | Fault::ShortWrite => 0,
        }
    }

    fn sync_fails(&self) -> bool {
        matches!(self.case.series.kind, OpKind::Sync | OpKind::SyncDir)
    }

    /// Whether what failed was the sync of the whole file system.
    fn failed_of_all(&self) -> bool {
        let faulted = self.vfs.faulted();
        self.case.series.kind == OpKind::Sync && faulted == [PathBuf::from(DIRECTORY)]
    }

    /// Promises 2 and 3.
    fn check_policy(&self, consequence: Consequence) -> Result<(), String> {
        use Consequence::{Failed, Poisoned, Unnoticed};
        let may_poison = self.sync_fails() || self.case.series.kind == OpKind::Write;
        match consequence {
            Unnoticed if self.failed_of_all() => Ok(()),
            Unnoticed | Failed if self.sync_fails() => {
                Err(format!("{consequence:?}: a failed sync was passed over"))
            }
            Poisoned if !may_poison => Err("this poisons the engine, and should not".to_owned()),
            _ => Ok(()),
        }
    }

    /// Promises 4 and 5.
    fn check_after(&self, history: History) -> Result<(), String> {
        match self.after(history) {
            Err(After::Error(_, Error::Corrupt { .. } | Error::NotADatabase { .. }))
                if self.loses_writes() =>
            {
                Ok(())
            }
            done => done.map_err(After::text),
        }
    }

    fn after(&self, history: History) -> Result<(), After> {
        let lose_power = self.sync_fails() || self.case.nth.is_multiple_of(2);
        let disk = if lose_power {
            self.vfs.crash(self.case.nth)
        } else {
            self.vfs.kill()
        };
        after::look(&disk, history, self.lost_max())
    }
}

/// The same error for every call.
pub(super) fn check_poisoned(session: &Session, first: &Error) -> Result<(), String> {
    let db = session.db();
    let insert = || {
        let txn = db.begin(Isolation::RepeatableRead)?;
        txn.insert(&db.table("rows")?, b"poisoned", b"")?;
        txn.commit()
    };
    let calls = [
        ("inserting", insert()),
        ("flushing the log", db.flush_log()),
        ("a checkpoint", db.checkpoint()),
        (
            "creating a table",
            db.create_table("poisoned", &[]).map(drop),
        ),
        ("dropping a table", db.drop_table_at_once("rows")),
    ];
    for (what, result) in calls {
        match result {
            Err(error) if error.to_string() == first.to_string() => {}
            Err(error) => {
                return Err(format!(
                    "poisoned with \"{first}\", but {what}: \"{error}\""
                ));
            }
            Ok(()) => return Err(format!("poisoned with \"{first}\", but {what} succeeds")),
        }
    }
    Ok(())
}
