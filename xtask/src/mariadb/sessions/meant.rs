//! Differences that are meant, each with its reason and what proves it of the very case. docs/isolation.md has the
//! same list. Behind a difference the engines are in different states, so its script ends there.
//!
//! InnoDB is asked which lock it waits for ([`evidence`]), and the case what was asked for ([`ask`]). Nothing is
//! excused because of how a statement looks.

use super::ask::{self, Ask};
use super::evidence::{Wanted, is_record};
use super::held::Holders;
use super::stage::{Outcome, Stage, What};
use crate::build::Result;
use crate::mariadb::client::{Reply, Rows};
use std::collections::BTreeSet;

/// Why a difference is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Gap,
    Mark,
    Neighbour,
    OfBlocker,
    Unwanted,
    LateDeadlock,
    GapDeadlock,
    Victim,
    Order,
}

impl Reason {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Gap => {
                "InnoDB waits to insert into a gap that reaches further than anybody asked"
            }
            Self::Mark => "InnoDB waits for the mark of a row that is deleted and committed",
            Self::Neighbour => "InnoDB waits for a record beside the range of the statement",
            Self::OfBlocker => {
                "InnoDB waits for a record beside the range that its blockers have read"
            }
            Self::Unwanted => {
                "InnoDB waits for a row that its blockers have read at read committed, and not wanted"
            }
            Self::LateDeadlock => "InnoDB has not found a deadlock: its sessions wait in a circle",
            Self::GapDeadlock => "InnoDB has a deadlock over one of these locks",
            Self::Order => "two who waited go on at once, and one of them then waits for the other",
            Self::Victim => "another victim: the engines count a transaction's locks otherwise",
        }
    }
}

/// The sides of a case, what its sessions hold, and what the two sides have come to.
pub struct Case<'a> {
    pub innodb: &'a mut Stage,
    pub inkstone: &'a mut Stage,
    pub holders: &'a Holders,
    /// Who waited before this step.
    pub before: &'a [usize],
    pub sides: [&'a Outcome; 2],
}

impl Case<'_> {
    /// The reason, if every session's difference has one.
    pub fn reason(&mut self) -> Result<Option<Reason>> {
        let sides = self.sides;
        let victims = sides.map(victims);
        match (&victims[0][..], &victims[1][..]) {
            ([], [victim]) => return self.late_deadlock(*victim),
            (several, []) if !several.is_empty() => return self.gap_deadlock(several),
            ([one], [other]) if one != other => return self.other_victim(*one, *other),
            _ => {}
        }
        let mut reasons = Vec::new();
        // Those whom another waits for in Inkstone, and in InnoDB did not; and those who ended otherwise.
        let (mut first, mut changed) = (Vec::new(), Vec::new());
        let sessions: BTreeSet<usize> =
            sides.iter().flat_map(|side| side.keys().copied()).collect();
        for session in sessions {
            let [one, other] = sides.map(|side| side.get(&session));
            if one == other {
                continue;
            }
            let reason = match (one, other) {
                (None | Some(What::Waits(_)), Some(What::Ended(_))) => self.waits(session)?,
                (Some(What::Ended(_)), None) => {
                    let blockers = self.order(session)?;
                    let is_order = !blockers.is_empty();
                    first.extend(blockers);
                    is_order.then_some(Reason::Order)
                }
                (Some(What::Ended(one)), Some(What::Ended(Reply::Rows(other)))) => {
                    match self.impatient(session, one, other)? {
                        None if matches!(one, Reply::Rows(_)) => {
                            changed.push(session);
                            continue;
                        }
                        reason => reason,
                    }
                }
                (Some(What::Ended(Reply::Done(_))), Some(What::Ended(Reply::Done(_)))) => {
                    changed.push(session);
                    continue;
                }
                _ => None,
            };
            match reason {
                Some(reason) => reasons.push(reason),
                None => return Ok(None),
            }
        }
        // Who went first in Inkstone, and second in InnoDB, has not seen there what the other has done.
        match changed.iter().all(|session| first.contains(session)) {
            true => Ok(reasons.first().copied()),
            false => Ok(None),
        }
    }

    /// A session of InnoDB's waits, and Inkstone's has gone on.
    fn waits(&mut self, session: usize) -> Result<Option<Reason>> {
        if !self.innodb.working().contains(&session) {
            return Ok(None);
        }
        let Some(wanted) = self.innodb.wanted(session)? else {
            return Ok(None);
        };
        let statement = self.innodb.statement(session);
        let blockers = self.innodb.numbered(&wanted.blockers);
        self.beyond(&statement, &wanted, &blockers)
    }

    /// A session has gone on in InnoDB, and waits in Inkstone for those that are given, who have all gone on in this
    /// very step in both: who waited for different locks of one transaction goes on in no certain order.
    fn order(&mut self, session: usize) -> Result<Vec<usize>> {
        if !self.before.contains(&session) {
            return Ok(Vec::new());
        }
        let waits = self.inkstone.waits()?;
        let connection = self.inkstone.sessions[session - 1].connection;
        let blockers = waits.get(&connection).cloned().unwrap_or_default();
        let mut blockers = self.inkstone.numbered(&blockers);
        let went_on = |blocker: &usize| {
            self.before.contains(blocker)
                && self.sides.iter().all(|side| side.contains_key(blocker))
        };
        if !blockers.iter().all(went_on) {
            blockers.clear();
        }
        Ok(blockers)
    }

    /// Whether a lock is beyond what the statement, or those that hold it, have asked for.
    fn beyond(
        &mut self,
        statement: &str,
        wanted: &Wanted,
        blockers: &[usize],
    ) -> Result<Option<Reason>> {
        if wanted.is_intention || wanted.is_supremum {
            return Ok(Some(Reason::Gap));
        }
        let schema = self.holders.schema();
        let (Some(ask), Some(record)) = (Ask::of(statement, schema), is_record(wanted, schema))
        else {
            return Ok(None);
        };
        if ask.table != wanted.table {
            return Ok(None);
        }
        let row = format!("SELECT * FROM {} WHERE {record}", wanted.table);
        let [newest, committed] = self.seen(&row)?;
        let absent = newest.rows.is_empty() && committed.rows.is_empty();
        if absent && wanted.is_marked {
            return Ok(Some(Reason::Mark));
        }
        if !self.is_in(&ask, &record)? {
            return Ok(Some(Reason::Neighbour));
        }
        if blockers.is_empty() || newest != committed {
            return Ok(None);
        }
        // Those who wait hold what they wait for, too, to those who stand behind them.
        let mut asks = self.holders.asks(blockers);
        for &blocker in blockers {
            if self.waits_for_locks(blocker) {
                let ask = Ask::of(&self.innodb.statement(blocker), schema);
                asks.extend(ask.map(|ask| (ask, self.holders.unlocks(blocker))));
            }
        }
        let mut reason = Reason::OfBlocker;
        for (mut ask, unlocks) in asks {
            if ask.table != wanted.table || !self.is_in(&ask, &record)? {
                continue;
            }
            // InnoDB gives back what it has read through the clustered index, and not what through another.
            ask.asked = match unlocks {
                true => ask.condition.clone(),
                false => return Ok(None),
            };
            if self.is_in(&ask, &record)? {
                return Ok(None);
            }
            reason = Reason::Unwanted;
        }
        Ok(Some(reason))
    }

    /// Whether a session waits in InnoDB, or was a victim in this step.
    fn waits_for_locks(&self, session: usize) -> bool {
        self.innodb.working().contains(&session) || victims(self.sides[0]).contains(&session)
    }

    /// Whether a record is one that is asked for: as it is now, or as it is committed.
    fn is_in(&mut self, ask: &Ask, record: &str) -> Result<bool> {
        let Ask { table, asked, .. } = ask;
        let select = format!("SELECT 1 FROM {table} WHERE ({asked}) AND {record}");
        let seen = self.seen(&select)?;
        Ok(seen.iter().any(|rows| !rows.rows.is_empty()))
    }

    /// What a SELECT sees of newest versions, and of committed ones.
    fn seen(&mut self, select: &str) -> Result<[Rows; 2]> {
        let mut at = |level: &str| {
            self.innodb.ask(&format!(
                "SET SESSION TRANSACTION ISOLATION LEVEL READ {level}"
            ))?;
            self.innodb.ask(select)
        };
        Ok([at("UNCOMMITTED")?, at("COMMITTED")?])
    }

    /// NOWAIT, SKIP LOCKED or WAIT has met a lock of InnoDB's: the same statement without it waits for that.
    fn impatient(
        &mut self,
        session: usize,
        innodb: &Reply,
        inkstone: &Rows,
    ) -> Result<Option<Reason>> {
        let statement = self.innodb.statement(session);
        let Some(mut patient) = ask::patient(&statement) else {
            return Ok(None);
        };
        match innodb {
            Reply::Refused(refusal) if refusal.code == 1205 => {}
            Reply::Rows(rows) if rows.rows.iter().all(|row| inkstone.rows.contains(row)) => {
                match self.passed_over(&statement, rows, inkstone) {
                    Some(of_row) => patient = of_row,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        }
        let outcome = self.innodb.step(session, &patient)?;
        match outcome.get(&session) {
            Some(What::Waits(_)) => self.waits(session),
            _ => Ok(None),
        }
    }

    /// The statement for one row alone that InnoDB has passed over.
    fn passed_over(&self, statement: &str, innodb: &Rows, inkstone: &Rows) -> Option<String> {
        let ask = Ask::of(statement, self.holders.schema())?;
        let row = inkstone
            .rows
            .iter()
            .find(|row| !innodb.rows.contains(row))?;
        let table = self.holders.schema().table(&ask.table)?;
        let forced = ask
            .force
            .split(['(', ')'])
            .nth(1)
            .and_then(|name| table.index(name));
        let index = forced.or(table.indexes.first())?;
        let value = |name: &String| {
            let at = table.columns.iter().position(|column| column == name)?;
            Some(format!("{name} <=> {}", ask::literal(&row[at])))
        };
        let same: Option<Vec<String>> = index.columns.iter().map(value).collect();
        let Ask { table, force, .. } = &ask;
        let lock = ask.lock();
        Some(format!(
            "SELECT * FROM {table} {force} WHERE {}{lock}",
            same?.join(" AND ")
        ))
    }

    /// Inkstone has found a deadlock. InnoDB follows one blocker of each: so its sessions must wait in a circle.
    fn late_deadlock(&mut self, victim: usize) -> Result<Option<Reason>> {
        let waits = self.innodb.waits()?;
        let mut reached = vec![self.innodb.sessions[victim - 1].connection];
        let start = reached[0];
        let mut next = 0;
        while let Some(connection) = reached.get(next) {
            let blockers = waits.get(connection).cloned().unwrap_or_default();
            if blockers.contains(&start) {
                return Ok(Some(Reason::LateDeadlock));
            }
            reached.extend(
                blockers
                    .into_iter()
                    .filter(|blocker| !reached.contains(blocker))
                    .collect::<Vec<_>>(),
            );
            next += 1;
        }
        Ok(None)
    }

    /// InnoDB has found a deadlock, and Inkstone has none: one of the locks is beyond what was asked.
    /// Of several at once InnoDB reports the last one. All are of the one wait that has closed them, which is the
    /// wait of somebody who goes on: it is that wait's lock, then.
    fn gap_deadlock(&mut self, victims: &[usize]) -> Result<Option<Reason>> {
        let parties = self.innodb.latest_deadlock()?;
        let connections: Vec<u64> = parties.iter().map(|party| party.connection).collect();
        for party in parties {
            let Some(wanted) = party.wanted else {
                continue;
            };
            let mut others = connections.clone();
            others.retain(|&connection| connection != party.connection);
            let others = self.innodb.numbered(&others);
            for session in self.innodb.numbered(&[party.connection]) {
                if victims.len() > 1 && victims.contains(&session) {
                    continue;
                }
                let statement = self.innodb.statement(session);
                if self.beyond(&statement, &wanted, &others)?.is_some() {
                    return Ok(Some(Reason::GapDeadlock));
                }
            }
        }
        Ok(None)
    }

    /// Both count rows changed, and kinds of locks, but Inkstone has fewer locks: so Inkstone's victim has changed
    /// no more rows than InnoDB's has rows and locks.
    fn other_victim(&mut self, innodb: usize, inkstone: usize) -> Result<Option<Reason>> {
        let parties = self.innodb.latest_deadlock()?;
        let of = |session: usize| {
            let connection = self.innodb.sessions[session - 1].connection;
            parties.iter().find(|party| party.connection == connection)
        };
        let (Some(one), Some(other)) = (of(innodb), of(inkstone)) else {
            return Ok(None);
        };
        Ok((other.changes <= one.changes + one.locks).then_some(Reason::Victim))
    }
}

/// Sessions that were rolled back because of a deadlock.
fn victims(outcome: &Outcome) -> Vec<usize> {
    let is_victim = |what: &What| matches!(what, What::Ended(Reply::Refused(r)) if r.code == 1213);
    let victims = outcome.iter().filter(|(_, what)| is_victim(what));
    victims.map(|(session, _)| *session).collect()
}
