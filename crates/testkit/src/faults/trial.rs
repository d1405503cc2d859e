//! A life of the process under something that lasts: files that cannot be read or written, few
//! handles. What fails is left out of the work; then what lasted is over, or the process ends.
//!
//! # What must hold
//!
//! 1. Opening fails with an error that names what cannot be had, or succeeds; and so does each
//!    statement. Nothing panics or hangs.
//! 2. The engine is poisoned only where the case says so ([`Promises::may_poison`]).
//! 3. Once it is over, the same process opens the database, or goes on: every statement succeeds.
//! 4. Every row read is right, during it and afterwards; the next process finds the database whole
//!    and with each acknowledged commit, also after a power loss.

use super::after::{self, After};
use super::every::{Consequence, check_poisoned};
use super::session::{Finish, History, Outcome, Session, Stop, is_clear};
use crate::nothing_is_open;
use inkstone::Error;
use inkstone_io::sim::SimVfs;

/// What a case promises.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promises {
    /// The engine may stop.
    pub may_poison: bool,
    /// The database opens.
    pub opens: bool,
    /// Once it is open, every statement succeeds.
    pub works: bool,
    /// The first error of a life contains one of these texts.
    pub named: &'static [&'static str],
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// What lasts is over before.
    pub relieved: bool,
    /// It is killed, not closed.
    pub killed: bool,
    /// Power fails when it has ended, with outcomes drawn from this seed.
    pub power_loss: Option<u64>,
}

/// A life to be led.
pub(super) struct Trial<'a> {
    /// The disk, with what is wrong with it from the beginning.
    pub vfs: SimVfs,
    /// What the disk holds.
    pub history: History,
    /// What is done.
    pub work: &'a dyn Fn(&mut Session) -> Outcome,
    /// Called before each step.
    pub before_step: Box<dyn Fn(u64)>,
    /// How it ends.
    pub end: End,
    /// What must hold.
    pub promises: Promises,
}

impl Trial<'_> {
    /// Leads the life, and looks at what it leaves.
    pub fn run(self) -> Result<Consequence, String> {
        let (vfs, end) = (self.vfs.clone(), self.end);
        let (history, consequence) = self.live()?;
        let disk = match end.power_loss {
            Some(seed) => vfs.crash(seed),
            None => vfs.kill(),
        };
        after::look(&disk, history, 0).map_err(After::text)?;
        if vfs.faulted().is_empty() {
            Ok(Consequence::NoSuchOperation)
        } else {
            Ok(consequence)
        }
    }

    fn live(self) -> Result<(History, Consequence), String> {
        let mut session = match Session::open(self.vfs.clone(), self.history.clone()) {
            Ok(session) => session,
            Err(error) => {
                self.check_refusal(&error)?;
                nothing_is_open(&self.vfs)?;
                relieve(&self.vfs);
                let again = Session::open(self.vfs.clone(), self.history.clone());
                let session = again.map_err(|error| format!("opening once it is over: {error}"))?;
                return self.relieved(session, Consequence::NotOpened);
            }
        };
        session.go_on(true);
        session.before_steps(self.before_step);
        match (self.work)(&mut session) {
            Ok(()) | Err(Stop::Refused) => {}
            Err(Stop::Bug(text)) => return Err(text),
            Err(Stop::Engine(error)) => return poisoned(&self.vfs, self.promises, session, &error),
        }
        if let Err(error @ Error::Poisoned(_)) = session.db().flush_log() {
            return poisoned(&self.vfs, self.promises, session, &error);
        }
        let this = Trial {
            before_step: Box::new(|_| {}),
            ..self
        };
        this.check_errors(&session.errors)?;
        let consequence = if session.errors.is_empty() {
            Consequence::Unnoticed
        } else {
            Consequence::Failed
        };
        if this.end.relieved {
            this.relieved(session, consequence)
        } else {
            this.unrelieved(session, consequence)
        }
    }

    /// What was wrong is over: everything works.
    fn relieved(
        self,
        mut session: Session,
        consequence: Consequence,
    ) -> Result<(History, Consequence), String> {
        relieve(&self.vfs);
        session.go_on(false);
        session.before_steps(|_| {});
        match relieved_work(&mut session) {
            Ok(()) => {}
            Err(Stop::Engine(error)) => return Err(format!("once it is over: {error}")),
            Err(Stop::Bug(text)) => return Err(format!("once it is over: {text}")),
            Err(Stop::Refused) => return Err("a statement was left out".to_owned()),
        }
        let history = session.history.clone();
        if self.end.killed {
            self.vfs.kill();
        } else {
            let closed = session.close();
            closed.map_err(|error| format!("closing once it is over: {error}"))?;
            nothing_is_open(&self.vfs)?;
        }
        Ok((history, consequence))
    }

    /// The process ends with what is wrong.
    fn unrelieved(
        self,
        session: Session,
        consequence: Consequence,
    ) -> Result<(History, Consequence), String> {
        let history = session.history.clone();
        if self.end.killed {
            self.vfs.kill();
            return Ok((history, consequence));
        }
        let closed = session.close();
        nothing_is_open(&self.vfs)?;
        match closed {
            Ok(()) => Ok((history, consequence)),
            Err(error) => {
                self.check_errors(std::slice::from_ref(&error))
                    .map_err(|text| format!("closing: {text}"))?;
                Ok((history, Consequence::NotClosed))
            }
        }
    }

    fn check_refusal(&self, error: &Error) -> Result<(), String> {
        if self.promises.opens {
            return Err(format!("a good database does not open: {error}"));
        }
        self.check_clear(std::slice::from_ref(error))
            .map_err(|text| format!("opening: {text}"))
    }

    fn check_errors(&self, errors: &[Error]) -> Result<(), String> {
        match errors.first() {
            Some(error) if self.promises.works => {
                Err(format!("what fails needs nothing of it: {error}"))
            }
            _ => self.check_clear(errors),
        }
    }

    /// The first error names what is wrong; later ones may be of transactions that it left behind.
    fn check_clear(&self, errors: &[Error]) -> Result<(), String> {
        let Some(first) = errors.first() else {
            return Ok(());
        };
        let text = first.to_string();
        if matches!(first, Error::Poisoned(_)) && !self.promises.may_poison {
            return Err(format!("this must not stop the engine: {text}"));
        }
        let named = self.promises.named.iter().any(|name| text.contains(name));
        let wrong = errors.iter().find(|e| matches!(e, Error::Corrupt { .. }));
        match (named && is_clear(first), wrong) {
            (true, None) => Ok(()),
            (false, _) => Err(format!("this error is not clear: {text}")),
            (true, Some(error)) => Err(format!("what cannot be had is not corrupt: {error}")),
        }
    }
}

/// Poisoned: the same error for every call.
fn poisoned(
    vfs: &SimVfs,
    promises: Promises,
    session: Session,
    error: &Error,
) -> Result<(History, Consequence), String> {
    if !promises.may_poison {
        return Err(format!("this must not stop the engine: {error}"));
    }
    check_poisoned(&session, error)?;
    let history = session.history.clone();
    vfs.kill();
    Ok((history, Consequence::Poisoned))
}

fn relieve(vfs: &SimVfs) {
    vfs.clear_faults();
    vfs.limit_handles(u64::MAX);
}

/// Something of everything.
fn relieved_work(s: &mut Session) -> Outcome {
    s.compare()?;
    s.create("relieved", &["by_name"])?;
    s.transaction(Finish::Commit, |t| {
        (0..20u64).try_for_each(|n| t.put("relieved", &n.to_be_bytes(), &[n as u8; 500]))
    })?;
    s.upkeep("a checkpoint", |db| db.checkpoint())?;
    s.upkeep("purge", |db| db.purge())?;
    s.compare()
}
