//! A script on both engines, in step: until it ends, until they differ, or until one of them does
//! what it must not.

use super::compare::Difference;
use super::evidence::Wanted;
use super::held::{Holders, is_ddl};
use super::meant::{Beyond, Case, Reason};
use super::script::{Script, Step};
use super::stage::{Engine, Outcome, Stage, What, is_locked_out};
use super::without::Claim;
use crate::client::Reply;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How a statement begins that locks the whole server for reading.
const FLUSH_WITH_LOCK: &str = "FLUSH TABLES WITH";
/// How often, at most, the server is asked what it keeps waiting.
const LOOKS: u32 = 20;
const LOOKS_APART: Duration = Duration::from_millis(50);

/// What a script came to.
#[derive(Default)]
pub struct Played {
    /// Statements that waited.
    pub waits: u64,
    /// It ended at a difference that is meant.
    pub meant: Option<Reason>,
    pub differs: Option<Difference>,
    /// It is meant only if this holds.
    pub claim: Option<Claim>,
}

/// Both sides of a script under way.
struct Play<'a> {
    script: &'a Script,
    /// InnoDB's and Inkstone's.
    stages: [Stage; 2],
    holders: Holders,
    beyond: Beyond,
    waits: Waits,
    /// All that was said, the end's COMMIT too.
    all_said: Vec<Step>,
    /// At which of these each session began what it does, or has done last.
    said: BTreeMap<usize, usize>,
    played: Played,
}

/// Runs a script.
pub fn play(socket: &Path, script: &Script) -> Result<Played> {
    let in_script = |error| format!("{error}\n{}", script.render());
    let [innodb, inkstone] = std::thread::scope(|scope| {
        let threads =
            Engine::BOTH.map(|engine| scope.spawn(move || Stage::set(engine, socket, script)));
        threads.map(|thread| thread.join().expect("a side of the case has panicked"))
    });
    let mut stages = [innodb.map_err(in_script)?, inkstone.map_err(in_script)?];
    let holders = Holders::new(&mut stages[1], script.sessions()).map_err(in_script)?;
    let mut play = Play {
        script,
        stages,
        holders,
        beyond: Beyond::new(),
        waits: Waits::default(),
        all_said: Vec::new(),
        said: BTreeMap::new(),
        played: Played::default(),
    };
    play.run().map_err(in_script)?;
    Ok(play.played)
}

/// The locks that sessions wait for in InnoDB, and whose these are, as they were at the last step.
#[derive(Default)]
struct Waits(BTreeMap<usize, Wanted>);

impl Waits {
    /// Waits that have begun, or are for other locks or sessions now, and that are for locks beyond
    /// what was asked.
    fn note(&mut self, case: &mut Case<'_>) -> Result<Beyond> {
        let mut noted = Beyond::new();
        let waiting = case.innodb.working();
        self.0.retain(|session, _| waiting.contains(session));
        for session in waiting {
            // A table that is locked by its name is not looked at, and nothing is noted of it.
            let wanted = match case.innodb.wanted(session) {
                Err(error) if is_locked_out(&error) => continue,
                Err(error) => return Err(error),
                Ok(None) => continue,
                Ok(Some(wanted)) => wanted,
            };
            if self.0.get(&session) == Some(&wanted) {
                continue;
            }
            self.0.insert(session, wanted);
            match case.wanted_beyond(session) {
                Ok(Some((wanted, Some(reason)))) => {
                    noted.insert(session, (wanted, reason));
                }
                Err(error) if !is_locked_out(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(noted)
    }
}

impl Play<'_> {
    fn run(&mut self) -> Result<()> {
        for (at, step) in self.script.steps.iter().enumerate() {
            if !self.step(at, step)? {
                return Ok(());
            }
        }
        let end = self.script.steps.len();
        // Inkstone alone would have more locks then, and waiters could go on later than in InnoDB.
        let waits = self.stages.iter().any(|stage| !stage.working().is_empty());
        if !waits && !self.lock_again(end)? {
            return Ok(());
        }
        let mut left: Vec<usize> = (1..=self.script.sessions()).collect();
        while let Some(session) = next_idle(&self.stages[0], &mut left) {
            for words in self.script.last_words("COMMIT") {
                let statement = words.to_owned();
                if !self.step(end, &Step { session, statement })? {
                    return Ok(());
                }
            }
        }
        if self.no_session_waits(end)? {
            self.compare_contents(end)?;
        }
        Ok(())
    }

    /// Both sides to the script's end, each by itself, as they cannot be compared any more: what
    /// they log is still compared with what a replica makes of it. Where one side can lock the
    /// whole server, so the other's sessions, too, there is no end but Inkstone's.
    fn go_on(&mut self, at: usize) -> Result<()> {
        let script = self.script;
        let locks_server = |step: &Step| step.statement.starts_with("FLUSH ");
        if script.steps.iter().any(locks_server) {
            return end_all(&mut self.stages[1], script, "ROLLBACK");
        }
        let rest = script.steps.get(at + 1..).unwrap_or_default();
        let sides = std::thread::scope(|scope| {
            let threads = self
                .stages
                .each_mut()
                .map(|stage| scope.spawn(move || go_on_alone(stage, script, rest)));
            threads.map(|thread| thread.join().expect("a side of the case has panicked"))
        });
        sides.into_iter().collect()
    }

    /// Says something on both sides; false if the script ends here.
    fn step(&mut self, at: usize, step: &Step) -> Result<bool> {
        let before = self.stages[1].working();
        if !before.contains(&step.session) {
            self.said.insert(step.session, self.all_said.len());
        }
        self.all_said.push(step.clone());
        let [innodb, inkstone] = std::thread::scope(|scope| {
            let threads = self
                .stages
                .each_mut()
                .map(|stage| scope.spawn(move || stage.step(step.session, &step.statement)));
            threads.map(|thread| thread.join().expect("a side of the case has panicked"))
        });
        let sides = [innodb?, inkstone?];
        let waits = |what: &&What| matches!(what, What::Waits(_));
        self.played.waits += sides[0].values().filter(waits).count() as u64;
        let [innodb, inkstone] = &mut self.stages;
        let wrong = self
            .holders
            .after(inkstone, step.session, &before, &sides[1])?;
        if let Some(wrong) = wrong {
            self.is_wrong(at, step, &wrong);
            self.go_on(at)?;
            return Ok(false);
        }
        let difference = Difference::between(at, step, [&sides[0], &sides[1]]);
        let mut case = Case {
            innodb,
            inkstone,
            holders: &self.holders,
            acting: step.session,
            before: &before,
            beyond: &self.beyond,
            sides: [&sides[0], &sides[1]],
            without: None,
        };
        let Some(difference) = difference else {
            if case.have_other_numbers()? {
                self.played.meant = Some(Reason::Order);
                self.part(at)?;
                return Ok(false);
            }
            let noted = self.waits.note(&mut case)?;
            let waiting = self.stages[0].working();
            self.beyond.retain(|session, _| waiting.contains(session));
            self.beyond.extend(noted);
            return Ok(true);
        };
        match case.reason()? {
            None => {
                self.played.differs = Some(difference);
                self.go_on(at)?;
            }
            Some(reason) => {
                self.played.meant = Some(reason);
                self.played.claim = case.without.take().map(|without| Claim {
                    without,
                    difference,
                    all_said: self.all_said.clone(),
                    said: self.said.clone(),
                });
                self.part(at)?;
            }
        }
        Ok(false)
    }

    fn is_wrong(&mut self, at: usize, step: &Step, wrong: &str) -> bool {
        self.played.differs = Some(Difference::of_one(at, step, wrong));
        false
    }

    /// Behind a difference that is meant: Inkstone's locks are there, its waiters wait for a
    /// session, its trees are whole.
    fn part(&mut self, at: usize) -> Result<()> {
        if !self.lock_again(at)? {
            return Ok(());
        }
        self.go_on(at)?;
        if !self.no_session_waits(at)? {
            return Ok(());
        }
        for (statement, outcome) in self.stages[1].contents()? {
            let is_whole = |what: &What| match what {
                What::Ended(Reply::Rows(rows)) => {
                    let ok = |row: &Vec<_>| row.last() == Some(&Some(b"OK".to_vec()));
                    rows.rows.iter().all(ok)
                }
                _ => false,
            };
            if statement.starts_with("CHECK") && !outcome.values().all(is_whole) {
                let step = end_of(statement);
                self.is_wrong(at, &step, &super::stage::text(&outcome));
            }
        }
        Ok(())
    }

    /// Whether Inkstone's sessions still have what they have locked.
    fn lock_again(&mut self, at: usize) -> Result<bool> {
        match self.holders.again(&mut self.stages[1])? {
            None => Ok(true),
            Some(wrong) => Ok(self.is_wrong(at, &end_of("the same locks again"), &wrong)),
        }
    }

    /// Whether the server itself keeps these sessions for ever, whichever engine the tables have.
    fn is_hung_server(&mut self, waiting: &[usize]) -> Result<bool> {
        Ok(self.want_server(waiting)? || self.wait_for_server(waiting)?)
    }

    fn has_said(&self, session: usize, verb: &str) -> Option<usize> {
        let is_said = |step: &Step| step.session == session && step.statement.starts_with(verb);
        self.all_said.iter().rposition(is_said)
    }

    /// Two sessions want the whole server locked for reading, and one of them has tables locked. No
    /// other waits for a lock of the engine.
    fn want_server(&mut self, waiting: &[usize]) -> Result<bool> {
        let waits = self.stages[1].waits()?;
        let has_tables = |&session: &usize| {
            self.has_said(session, "LOCK TABLES")
                .is_some_and(|at| Some(at) > self.has_said(session, "UNLOCK TABLES"))
        };
        let wants_server = |&session: &usize| {
            self.stages[1]
                .statement(session)
                .starts_with(FLUSH_WITH_LOCK)
        };
        let (wanting, others): (Vec<usize>, Vec<usize>) =
            waiting.iter().partition(|&one| wants_server(one));
        let waits_for_row = |&session: &usize| {
            let blockers = waits.get(&self.stages[1].sessions[session - 1].connection);
            blockers.is_some_and(|blockers| !blockers.is_empty())
        };
        Ok(
            wanting.len() > 1
                && wanting.iter().any(has_tables)
                && !others.iter().any(waits_for_row),
        )
    }

    /// A session has the whole server locked for reading, or changes rows while another wants that
    /// lock, or a table for itself; and it waits for a row of a third, whose COMMIT or next change
    /// the server keeps waiting for that lock. The engine knows nothing of the one half of the
    /// circle, and the server nothing of the other. As long as the engines were compared InnoDB's
    /// sessions wait, too.
    fn wait_for_server(&mut self, waiting: &[usize]) -> Result<bool> {
        let are_compared = self.played.meant.is_none() && self.played.differs.is_none();
        if are_compared && self.stages[0].working() != waiting {
            return Ok(false);
        }
        let has_server = |session: &usize| {
            let locked = self.has_said(*session, FLUSH_WITH_LOCK);
            let is_said_now = self.said.get(session).copied() == locked;
            locked > self.has_said(*session, "UNLOCK TABLES") && !is_said_now
        };
        let mut holders: Vec<usize> = waiting.iter().copied().filter(has_server).collect();
        let stage = &mut self.stages[1];
        let (all, kept) = (stage.waits()?, stage.kept_by_server()?);
        let wants_all = |session: &&usize| {
            let statement = stage.statement(**session);
            kept.contains(session) && (statement.starts_with(FLUSH_WITH_LOCK) || is_ddl(&statement))
        };
        if waiting.iter().any(|session| wants_all(&session)) {
            let keeps_server = |session: &&usize| !kept.contains(session);
            holders.extend(waiting.iter().filter(keeps_server));
        }
        let blockers = |session: usize| {
            let blockers = all.get(&stage.sessions[session - 1].connection);
            stage.numbered(blockers.map_or(&[], Vec::as_slice))
        };
        Ok(is_circle(waiting, &holders, &kept, &blockers))
    }

    /// Whether every session has gone on when all others have ended their transactions.
    fn no_session_waits(&mut self, at: usize) -> Result<bool> {
        let waiting = self.stages[1].working();
        if waiting.is_empty() {
            return Ok(true);
        }
        // A wait comes into the server's lists a moment after it has begun.
        for _ in 0..LOOKS {
            if self.is_hung_server(&waiting)? {
                return Ok(false);
            }
            std::thread::sleep(LOOKS_APART);
        }
        let wrong = format!("{waiting:?} wait without a blocker");
        Ok(self.is_wrong(at, &end_of("the end"), &wrong))
    }

    /// Rows of all tables, and what CHECK TABLE says.
    fn compare_contents(&mut self, at: usize) -> Result<()> {
        let [innodb, inkstone] = self.stages.each_mut().map(Stage::contents);
        let (innodb, inkstone) = (innodb?, inkstone?);
        let none = Outcome::new();
        for place in 0..innodb.len().max(inkstone.len()) {
            let side = |contents: &[(String, Outcome)]| contents.get(place).cloned();
            let sides = [side(&innodb), side(&inkstone)];
            let statement = sides.iter().flatten().next().map_or("", |(said, _)| said);
            let step = end_of(statement);
            let sides = sides
                .each_ref()
                .map(|side| side.as_ref().map_or(&none, |(_, o)| o));
            if let Some(difference) = Difference::between(at, &step, sides) {
                self.played.differs = Some(difference);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Whether a session that has the server waits for rows of one that the server keeps waiting, and
/// all others that wait are kept so, or wait for these sessions.
fn is_circle(
    waiting: &[usize],
    holders: &[usize],
    kept: &[usize],
    blockers: &dyn Fn(usize) -> Vec<usize>,
) -> bool {
    let closes = |&holder: &usize| blockers(holder).iter().any(|it| kept.contains(it));
    let is_in_circle = |session: &usize| {
        let blockers = blockers(*session);
        let all_wait = blockers.iter().all(|blocker| waiting.contains(blocker));
        kept.contains(session) || !blockers.is_empty() && all_wait
    };
    holders.iter().any(closes) && waiting.iter().all(is_in_circle)
}

fn go_on_alone(stage: &mut Stage, script: &Script, rest: &[Step]) -> Result<()> {
    for step in rest {
        stage.step(step.session, &step.statement)?;
    }
    end_all(stage, script, "COMMIT")
}

pub(super) fn end_all(stage: &mut Stage, script: &Script, end: &'static str) -> Result<()> {
    let mut left: Vec<usize> = (1..=script.sessions()).collect();
    while let Some(session) = next_idle(stage, &mut left) {
        for words in script.last_words(end) {
            stage.step(session, words)?;
        }
    }
    Ok(())
}

/// Of these sessions one that can be told something; it is taken out.
fn next_idle(stage: &Stage, left: &mut Vec<usize>) -> Option<usize> {
    let idle = stage.idle();
    let at = left.iter().position(|session| idle.contains(session))?;
    Some(left.remove(at))
}

/// Not a session's, but the end's.
fn end_of(statement: impl Into<String>) -> Step {
    Step {
        session: 0,
        statement: statement.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_circle;

    #[test]
    fn a_server_hangs_where_its_lock_and_a_row_wait_for_each_other() {
        // 3 has the server and waits for 2, which waits for that.
        let is_hung = |of_third: &[usize], holders: &[usize], kept: &[usize]| {
            let blockers = |session| match session {
                3 => of_third.to_vec(),
                _ => Vec::new(),
            };
            is_circle(&[2, 3], holders, kept, &blockers)
        };
        assert!(is_hung(&[2], &[3], &[2]));
        // A session that is idle could still let it go on.
        assert!(!is_hung(&[1, 2], &[3], &[2]));
        // No session has the server, or none waits for it, or only for that.
        assert!(!is_hung(&[2], &[], &[2]));
        assert!(!is_hung(&[2], &[3], &[]));
        assert!(!is_hung(&[], &[3], &[2, 3]));
    }
}
