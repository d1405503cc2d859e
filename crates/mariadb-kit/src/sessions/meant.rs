//! Differences that are meant, each with its reason and what proves it of the very case.
//! docs/isolation.md has the same list. Behind a difference the engines are in different states, so
//! its script ends there.
//!
//! InnoDB is asked which lock it waits for ([`evidence`]), and the case what was asked for
//! ([`ask`]). Nothing is excused because of how a statement looks.

use super::ask::{Ask, Kind};
use super::compare::same;
use super::evidence::{Wanted, is_record};
use super::held::{Holders, is_open};
use super::stage::{Outcome, Stage, What, is_locked_out};
use super::victims::{DEADLOCK, NUMBERS_DEADLOCK, only_in_one, victims};
use super::without::Without;
use crate::client::{Reply, Rows};
use inkstone_testkit::build::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Error numbers of a table that is newer than the snapshot: SQL's, and the one that the server
/// gives from within REPLACE.
const TABLE_CHANGED: [u16; 2] = [1412, 159];

/// The error of a key that is there.
const DUPLICATE: u16 = 1062;

/// How an UPDATE begins to say that it has found no rows.
const NONE_MATCHED: &str = "Rows matched: 0 ";

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
    Upgrade,
    Victim,
    Enough,
    Order,
    Snapshot,
    Overlooked,
    Numbers,
    Halfway,
}

impl Reason {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Gap => "InnoDB waits to insert into a gap that reaches further than was asked",
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
            Self::Upgrade => {
                "InnoDB has a deadlock because a shared holder of a row that wants it exclusively waits behind its queue"
            }
            Self::Order => {
                "sessions that waited go on at once, and one of them is then in another's way"
            }
            Self::Snapshot => {
                "InnoDB's snapshot is older than the table, of which only the newest rows are wanted"
            }
            Self::Overlooked => {
                "InnoDB passes over another's lock of an entry whose row the session has changed"
            }
            Self::Halfway => {
                "InnoDB, at READ UNCOMMITTED, finds no entry of a row that a statement which waits has half changed"
            }
            Self::Numbers => {
                "both roll a session back, InnoDB in a deadlock over numbers, Inkstone in a later one"
            }
            Self::Enough => {
                "InnoDB rolls a session back for each of several circles, which were all of one victim"
            }
            Self::Victim => "another victim: the engines count a transaction's locks otherwise",
        }
    }
}

/// Sessions that wait in both engines, in InnoDB for a lock that was beyond what was asked when the
/// wait began: by now another session may have changed the row, and it could not be told any more.
pub type Beyond = BTreeMap<usize, (Wanted, Reason)>;

/// The sides of a case, what its sessions hold, and what the two sides have come to.
pub struct Case<'a> {
    pub innodb: &'a mut Stage,
    pub inkstone: &'a mut Stage,
    pub holders: &'a Holders,
    /// The session of this step.
    pub acting: usize,
    /// Sessions that waited before this step.
    pub before: &'a [usize],
    pub beyond: &'a Beyond,
    pub sides: [&'a Outcome; 2],
    /// Set where the reason holds only if this does.
    pub without: Option<Without>,
}

impl Case<'_> {
    /// The reason, if every session's difference has one. Where DDL that waits for a table's name
    /// hides the table from the monitor, that DDL is ended first: the script ends here in any case.
    pub fn reason(&mut self) -> Result<Option<Reason>> {
        let reason = self.reason_of_all();
        if !reason.as_ref().is_err_and(|error| is_locked_out(error)) {
            return reason;
        }
        self.innodb.end_waits_for_names()?;
        self.inkstone.end_waits_for_names()?;
        match self.reason_of_all() {
            Err(error) if is_locked_out(&error) => Ok(None),
            reason => reason,
        }
    }

    fn reason_of_all(&mut self) -> Result<Option<Reason>> {
        let sides = self.sides;
        let victims = sides.map(victims);
        if victims[0].len() != victims[1].len() && self.chose_otherwise()? {
            return Ok(Some(Reason::Victim));
        }
        let deadlock = match (&victims[0][..], &victims[1][..]) {
            (fewer, more)
                if more.len() == fewer.len() + 1 && fewer.iter().all(|one| more.contains(one)) =>
            {
                let of_inkstone = more.iter().find(|one| !fewer.contains(one));
                of_inkstone
                    .map(|victim| self.late_deadlock(*victim))
                    .transpose()?
            }
            (more, fewer)
                if more.len() > fewer.len() && fewer.iter().all(|one| more.contains(one)) =>
            {
                if self.fewer_are_enough(fewer)? {
                    return Ok(Some(Reason::Enough));
                }
                Some(self.gap_deadlock(more, fewer)?)
            }
            _ => {
                let [innodb, inkstone] = only_in_one(&victims);
                if !innodb.is_empty() && !inkstone.is_empty() {
                    return match self.beside_numbers(&innodb)? {
                        None => self.other_victims(&innodb, &inkstone),
                        reason => Ok(reason),
                    };
                }
                None
            }
        };
        let let_go = self.let_go()?;
        match deadlock {
            Some(None) => {
                return match self.order_of_deadlock(&let_go)? {
                    None if victims[0].is_empty() => self.only_inkstones(victims[1][0]),
                    reason => Ok(reason),
                };
            }
            Some(reason) => return Ok(reason),
            None => {}
        }
        let mut reasons = Vec::new();
        // Sessions that are held back in InnoDB, and sessions that wait there for one of them.
        let (mut held_back, mut behind) = (Vec::new(), Vec::new());
        // Sessions that another waits for in one engine, and not in the other; and sessions that
        // ended otherwise.
        let (mut first, mut changed) = (Vec::new(), Vec::new());
        // Sessions that find in Inkstone what another one has inserted.
        let mut second = Vec::new();
        let sessions: BTreeSet<usize> =
            sides.iter().flat_map(|side| side.keys().copied()).collect();
        for session in sessions {
            let [one, other] = sides.map(|side| side.get(&session));
            if same(one, other) {
                continue;
            }
            let reason = match (one, other) {
                (None | Some(What::Waits(_)), Some(What::Ended(_))) => {
                    match self.waits(session)? {
                        None if let_go.contains(&session) && self.has_gone_first(session)? => {
                            first.extend(self.in_the_way(session, 0, &let_go)?);
                            Some(Reason::Order)
                        }
                        None => {
                            behind.push(session);
                            continue;
                        }
                        reason => {
                            held_back.push(session);
                            reason
                        }
                    }
                }
                (Some(What::Ended(_)), None) if let_go.contains(&session) => {
                    first.extend(self.in_the_way(session, 1, &let_go)?);
                    Some(Reason::Order)
                }
                (Some(What::Ended(Reply::Done(_) | Reply::Rows(_))), None) => {
                    self.refused_sooner(session)?
                }
                (Some(What::Ended(Reply::Refused(refusal))), Some(What::Ended(Reply::Done(_))))
                    if TABLE_CHANGED.contains(&refusal.code) =>
                {
                    self.is_older(session)?.then_some(Reason::Snapshot)
                }
                (
                    Some(What::Ended(Reply::Refused(one))),
                    Some(What::Ended(Reply::Refused(other))),
                ) if one.code == NUMBERS_DEADLOCK && other.code == DEADLOCK => {
                    self.waited_for_numbers(session)?.then_some(Reason::Numbers)
                }
                (
                    Some(What::Ended(one @ Reply::Rows(_))),
                    Some(What::Ended(other @ Reply::Refused(_))),
                ) => self.overtaken(session, one, other)?,
                (Some(What::Ended(one)), Some(What::Ended(other @ Reply::Rows(rows)))) => {
                    let reason = match self.impatient(session, one, rows)? {
                        None => self.overtaken(session, one, other)?,
                        reason => reason,
                    };
                    let reason = reason.or_else(|| self.read_later(session, one, rows));
                    let reason = match reason {
                        None => self.read_halfway(session, one, rows)?,
                        reason => reason,
                    };
                    if reason.is_none() && matches!(one, Reply::Rows(_)) {
                        changed.push(session);
                        continue;
                    }
                    reason
                }
                (
                    Some(What::Ended(Reply::Done(_) | Reply::Rows(_))),
                    Some(What::Waits(blockers)),
                ) => {
                    if self.overlooks(session, blockers)? {
                        Some(Reason::Overlooked)
                    } else {
                        self.not_inserted_yet(session, blockers)?
                    }
                }
                (Some(What::Ended(Reply::Done(_))), Some(What::Ended(Reply::Done(_)))) => {
                    changed.push(session);
                    continue;
                }
                (Some(What::Ended(Reply::Done(_))), Some(What::Ended(Reply::Refused(refusal))))
                    if refusal.code == DUPLICATE && let_go.contains(&session) =>
                {
                    second.push(session);
                    continue;
                }
                _ => None,
            };
            match reason {
                Some(reason) => reasons.push(reason),
                None => return Ok(None),
            }
        }
        for &session in &behind {
            if !self.is_behind(session, &held_back)? {
                return Ok(None);
            }
        }
        // A session that went first in one engine, and second in the other, differs: going first it
        // has not seen what the other has done.
        if !second.iter().all(|session| first.contains(session)) {
            return Ok(None);
        }
        changed.retain(|session| !first.contains(session));
        if changed.is_empty() {
            return Ok(reasons.first().copied());
        }
        // A session that is held back in InnoDB has done nothing there.
        let waited = |session: &usize| self.before.contains(session);
        if !held_back.is_empty() && changed.iter().all(waited) {
            let found = |session: &usize| Some((*session, sides[0].get(session)?.clone()));
            self.without = Some(Without {
                sessions: [held_back, behind].concat(),
                found: changed.iter().filter_map(found).collect(),
            });
            return Ok(reasons.first().copied());
        }
        // All have gone on at once, and none is in another's way now: the one that was second has
        // seen what the first has written.
        let writes = |session: &usize| {
            let wrote = |side: &Outcome| matches!(side.get(session), Some(What::Ended(Reply::Done(done))) if done.affected > 0);
            let_go.contains(session) && sides.iter().all(|side| wrote(side))
        };
        let has_other = |one: &usize| let_go.iter().any(|other| other != one && writes(other));
        let one_by_one = reasons.is_empty()
            && changed
                .iter()
                .all(|session| let_go.contains(session) && has_other(session));
        Ok(one_by_one.then_some(Reason::Order))
    }

    /// Whether sessions that waited, and were let go on by this step in both engines, have taken
    /// numbers of one AUTO_INCREMENT in another order. What they say is equal but for those.
    pub fn have_other_numbers(&mut self) -> Result<bool> {
        let others = other_numbers(self.sides);
        if !is_other_order(&others) {
            return Ok(false);
        }
        let tables: BTreeSet<Option<String>> = others
            .keys()
            .map(|&session| {
                let statement = self.inkstone.statement(session);
                let (_, behind) = statement.split_once(" INTO ")?;
                behind.split([' ', '(']).next().map(str::to_owned)
            })
            .collect();
        let let_go = self.let_go()?;
        Ok(tables.len() == 1
            && !tables.contains(&None)
            && others.keys().all(|session| let_go.contains(session)))
    }

    /// Whether a session waits in InnoDB only for such as are held back there, and whose
    /// transactions are over in Inkstone.
    fn is_behind(&mut self, session: usize, held_back: &[usize]) -> Result<bool> {
        let [blockers, _] = self.blockers(session)?;
        for blocker in &blockers {
            if !held_back.contains(blocker) || is_open(self.inkstone, *blocker)? {
                return Ok(false);
            }
        }
        Ok(!blockers.is_empty())
    }

    /// A session of InnoDB's waits, and Inkstone's has gone on.
    pub(super) fn waits(&mut self, session: usize) -> Result<Option<Reason>> {
        if !self.innodb.working().contains(&session) {
            return Ok(None);
        }
        let Some((wanted, reason)) = self.wanted_beyond(session)? else {
            return Ok(None);
        };
        Ok(reason.or_else(|| self.noted(session, &wanted)))
    }

    /// A session waits in Inkstone for others that have inserted rows there; in InnoDB they have
    /// not come so far, each waits for a lock beyond what it asked for, and so there is no such
    /// row.
    fn not_inserted_yet(&mut self, session: usize, blockers: &[usize]) -> Result<Option<Reason>> {
        let statement = self.inkstone.statement(session);
        let Some(ask) = Ask::of(&statement, self.holders.schema()) else {
            return Ok(None);
        };
        let rows = ask.select(false);
        let [newest, committed] = seen(self.inkstone, &rows)?;
        let [newest_innodb, committed_innodb] = seen(self.innodb, &rows)?;
        if newest == committed || newest_innodb != committed_innodb || committed != committed_innodb
        {
            return Ok(None);
        }
        let mut reason = None;
        for &blocker in blockers {
            reason = match self.wanted_beyond(blocker)? {
                Some((wanted, reason)) if wanted.index == "PRIMARY" => {
                    reason.or_else(|| self.noted(blocker, &wanted))
                }
                _ => None,
            };
            if reason.is_none() {
                break;
            }
        }
        Ok(reason)
    }

    /// The lock that a session waits for in InnoDB, and why that is beyond what was asked, if it
    /// is.
    pub fn wanted_beyond(&mut self, session: usize) -> Result<Option<(Wanted, Option<Reason>)>> {
        let Some(wanted) = self.innodb.wanted(session)? else {
            return Ok(None);
        };
        let blockers = self.innodb.numbered(&wanted.blockers);
        let reason = self.is_beyond(session, &wanted, &blockers)?;
        Ok(Some((wanted, reason)))
    }

    /// Why the lock that a session waits for in InnoDB was beyond what was asked when its wait
    /// began.
    pub(super) fn noted(&self, session: usize, wanted: &Wanted) -> Option<Reason> {
        let (noted, reason) = self.beyond.get(&session)?;
        let lock = |of: &Wanted| (of.table.clone(), of.index.clone(), of.key.clone());
        (lock(noted) == lock(wanted)).then_some(*reason)
    }

    /// Whether a session's snapshot is older than the table of its statement, in both engines:
    /// neither reads the table without locks. At SERIALIZABLE there are no such reads: Inkstone
    /// gives the newest rows, and InnoDB refuses them for the snapshot that it has all the same.
    fn is_older(&mut self, session: usize) -> Result<bool> {
        let statement = self.innodb.statement(session);
        let Some(ask) = Ask::of(&statement, self.holders.schema()) else {
            return Ok(false);
        };
        let read = format!("SELECT 1 FROM {} LIMIT 1", ask.table);
        let mut replies = Vec::new();
        for stage in [&mut *self.innodb, &mut *self.inkstone] {
            match stage.aside(session, &read)?.remove(&session) {
                Some(What::Ended(reply)) => replies.push(reply),
                _ => return Ok(false),
            }
        }
        let is_refused = |reply: &Reply| {
            let code = TABLE_CHANGED[0];
            matches!(reply, Reply::Refused(refusal) if refusal.code == code)
        };
        let reads_lock = self.holders.is_serializable(session);
        let takes_newest = |reply: &Reply| reads_lock && matches!(reply, Reply::Rows(_));
        let [innodb, inkstone] = &replies[..] else {
            return Ok(false);
        };
        Ok(is_refused(innodb) && (is_refused(inkstone) || takes_newest(inkstone)))
    }

    /// Sessions that waited before this step, and were let go on by it in both engines, in no
    /// certain order: each has ended, or waits for others of them that have. This step's session is
    /// one of them if it has closed a deadlock and the same other one was rolled back for it.
    fn let_go(&mut self) -> Result<Vec<usize>> {
        let mut waited = self.before.to_vec();
        let [victims, others] = self.sides.map(victims);
        let closes = victims.iter().any(|one| others.contains(one));
        if closes && !victims.contains(&self.acting) && !others.contains(&self.acting) {
            waited.push(self.acting);
        }
        let [innodb, inkstone] = [self.went_on(0, &waited)?, self.went_on(1, &waited)?];
        waited.retain(|session| innodb.contains(session) && inkstone.contains(session));
        Ok(waited)
    }

    /// Of the sessions that waited those that have ended in an engine, or wait there only for
    /// others of them that have gone on.
    fn went_on(&mut self, side: usize, waited: &[usize]) -> Result<Vec<usize>> {
        let has_ended =
            |session: &&usize| matches!(self.sides[side].get(session), Some(What::Ended(_)));
        let mut gone: Vec<usize> = waited.iter().filter(has_ended).copied().collect();
        let any_has_ended = !gone.is_empty();
        let mut left: Vec<(usize, Vec<usize>)> = Vec::new();
        for &session in waited {
            if !gone.contains(&session) {
                let [innodb, inkstone] = self.blockers(session)?;
                left.push((session, if side == 0 { innodb } else { inkstone }));
            }
        }
        loop {
            // Of a lock of the server's the holder is not told: one of the sessions that waited
            // with this one.
            let next = left.iter().position(|(_, blockers)| {
                if blockers.is_empty() {
                    any_has_ended
                } else {
                    blockers.iter().all(|blocker| gone.contains(blocker))
                }
            });
            match next {
                Some(next) => gone.push(left.remove(next).0),
                None => return Ok(gone),
            }
        }
    }

    /// The blockers of a session in InnoDB, and in Inkstone. One that is not of the case is session
    /// 0.
    pub(super) fn blockers(&mut self, session: usize) -> Result<[Vec<usize>; 2]> {
        let of = |stage: &mut Stage| -> Result<Vec<usize>> {
            let waits = stage.waits()?;
            let blockers = waits.get(&stage.sessions[session - 1].connection);
            let number = |connection| stage.numbered(&[connection]).first().copied();
            let blockers = blockers.into_iter().flatten();
            Ok(blockers.map(|&b| number(b).unwrap_or(0)).collect())
        };
        Ok([of(self.innodb)?, of(self.inkstone)?])
    }

    /// The blockers of a session in an engine. Of a lock of the server's the holder is not told: it
    /// is one of the sessions that were let go on with this one, and have ended.
    fn in_the_way(&mut self, session: usize, side: usize, let_go: &[usize]) -> Result<Vec<usize>> {
        let blockers = std::mem::take(&mut self.blockers(session)?[side]);
        if !blockers.is_empty() {
            return Ok(blockers);
        }
        let has_ended =
            |session: &&usize| matches!(self.sides[side].get(session), Some(What::Ended(_)));
        Ok(let_go.iter().filter(has_ended).copied().collect())
    }

    /// Of a session that waits in InnoDB for others that were let go on with it: in Inkstone it was
    /// before them, and not beside them. So one of them waits for it there, or its transaction has
    /// ended.
    fn has_gone_first(&mut self, session: usize) -> Result<bool> {
        let [blockers, _] = self.blockers(session)?;
        if blockers.is_empty() {
            // For a lock of the server's: then its holder in InnoDB waits for one in Inkstone.
            let [innodb, inkstone] = [self.innodb.waits()?, self.inkstone.waits()?];
            let number = |stage: &Stage, session: usize| stage.sessions[session - 1].connection;
            let waits = |map: &BTreeMap<u64, Vec<u64>>, connection| {
                map.get(&connection).is_some_and(Vec::is_empty)
            };
            let has_it = |other: &usize| {
                matches!(self.sides[0].get(other), Some(What::Ended(_)))
                    && waits(&inkstone, number(self.inkstone, *other))
            };
            if !waits(&innodb, number(self.innodb, session)) {
                return Ok(false);
            }
            // Or it is through with it there.
            return Ok(self.before.iter().any(has_it) || !is_open(self.inkstone, session)?);
        }
        for blocker in blockers {
            let [_, in_inkstone] = self.blockers(blocker)?;
            if in_inkstone.contains(&session) {
                return Ok(true);
            }
        }
        // Below REPEATABLE READ rows that are made behind it are not its matter. What it was given
        // is held for it, and looked at again in the end.
        let gives = self.inkstone.statement(session).starts_with("SELECT * ");
        Ok(gives && self.holders.unlocks(session)
            || !is_open(self.inkstone, session)?
            || self.has_found_none(session)?)
    }

    /// Below REPEATABLE READ a session's change has found no rows in Inkstone, and so holds nothing
    /// of it. Done again now, behind what the others have made meanwhile, it waits for those that
    /// it waits for in InnoDB.
    fn has_found_none(&mut self, session: usize) -> Result<bool> {
        let statement = self.inkstone.statement(session);
        let is_change =
            Ask::of(&statement, self.holders.schema()).is_some_and(|ask| ask.kind == Kind::Change);
        let finds_none = match self.sides[1].get(&session) {
            Some(What::Ended(Reply::Done(done))) => {
                done.affected == 0 && (done.info.is_empty() || done.info.starts_with(NONE_MATCHED))
            }
            _ => false,
        };
        if !is_change || !finds_none || !self.holders.unlocks(session) {
            return Ok(false);
        }
        let outcome = self.inkstone.aside(session, &statement)?;
        if !matches!(outcome.get(&session), Some(What::Waits(_))) {
            return Ok(false);
        }
        // InnoDB names those before it in the queue, too.
        let [innodb, inkstone] = self.blockers(session)?;
        Ok(!inkstone.is_empty() && inkstone.iter().all(|blocker| innodb.contains(blocker)))
    }

    /// Whether a lock is beyond what the statement, or those that hold it, have asked for.
    pub(super) fn is_beyond(
        &mut self,
        session: usize,
        wanted: &Wanted,
        blockers: &[usize],
    ) -> Result<Option<Reason>> {
        if wanted.is_intention || wanted.is_supremum {
            return Ok(Some(Reason::Gap));
        }
        let (schema, statement) = (self.holders.schema(), self.innodb.statement(session));
        let (Some(ask), Some(record)) = (Ask::of(&statement, schema), is_record(wanted, schema))
        else {
            return Ok(None);
        };
        if ask.table != wanted.table {
            return Ok(None);
        }
        let row = format!("SELECT * FROM {} WHERE {record}", wanted.table);
        let [newest, committed] = self.seen(&row)?;
        // An INSERT has put its own row into one index, and comes to the mark in another.
        let is_own = ask.kind == Kind::Insert;
        let absent = committed.rows.is_empty() && (newest.rows.is_empty() || is_own);
        if absent && wanted.is_marked {
            return Ok(Some(Reason::Mark));
        }
        let gone_on = matches!(
            self.sides[1].get(&session),
            Some(What::Ended(Reply::Done(_)))
        );
        if !self.is_asked(&ask, &record, gone_on)? {
            return Ok(Some(Reason::Neighbour));
        }
        // Below REPEATABLE READ a change passes over rows that are not committed yet. What it wants
        // of an index that it does not scan are keys of rows that it changes.
        let other_index = wanted.index != "PRIMARY" && !ask.force.contains(&wanted.index);
        let passed_over = committed.rows.is_empty() && !newest.rows.is_empty();
        if ask.kind == Kind::Change && self.holders.unlocks(session) && other_index {
            let changed = format!("{row} AND ({})", ask.condition);
            let mut is_changed = || -> Result<bool> {
                let [newest, committed] = self.seen(&changed)?;
                Ok(!newest.rows.is_empty() || !committed.rows.is_empty())
            };
            let columns = schema
                .table(&wanted.table)
                .and_then(|table| table.index(&wanted.index));
            let sets = columns.is_none_or(|index| {
                let sets = |column: &String| statement.contains(&format!(" SET {column} = "));
                index.columns.iter().any(sets)
            });
            // Where it makes no keys there it only looks for its own, and InnoDB locks the one
            // behind.
            if passed_over || !sets && !is_changed()? {
                return Ok(Some(Reason::Neighbour));
            }
        }
        // A session that changes the row itself has it alone.
        let own = matches!(ask.kind, Kind::Change | Kind::Insert) && {
            let Ask { condition, .. } = &ask;
            let own = format!("{row} AND ({condition})");
            !self.seen(&own)?[1].rows.is_empty()
        };
        if blockers.is_empty() || newest != committed && !own {
            return Ok(None);
        }
        // What they have changed is not as it is committed; and the new keys that a change has
        // asked for could not be told from the changed rows any more.
        let mut asks = self.holders.asks(blockers);
        for (held, _) in &mut asks {
            if held.kind == Kind::Change {
                held.asked.clone_from(&held.range);
            }
        }
        // Waiters hold what they wait for, too, to the sessions behind them in the queue.
        for &blocker in blockers {
            if self.waits_for_locks(blocker) {
                let ask = Ask::of(&self.innodb.statement(blocker), schema);
                asks.extend(ask.map(|ask| (ask, self.holders.unlocks(blocker))));
            }
        }
        // In Inkstone the session may have changed the row meanwhile, to one that they would have
        // wanted. Without a victim InnoDB has the row as they have read it; with one it has gone on
        // there, too, and what is committed is what they have read.
        let changes = matches!(ask.kind, Kind::Change | Kind::Insert);
        let changed_by_itself = changes && gone_on;
        let has_victim = !victims(self.sides[0]).is_empty();
        let wish_is_exclusive = ask.exclusive;
        let mut reason = Reason::OfBlocker;
        for (mut ask, unlocks) in asks {
            let both_share = !ask.exclusive && !wish_is_exclusive;
            if both_share || ask.table != wanted.table || !self.is_in(&ask, &record)? {
                continue;
            }
            // InnoDB gives back what it has read through the clustered index, and not what through
            // another.
            ask.asked = if unlocks {
                ask.condition.clone()
            } else {
                return Ok(None);
            };
            let is_wanted = match (changed_by_itself, has_victim) {
                (true, false) => self.is_in_innodb(&ask, &record)?,
                (true, true) => self.was_in(&ask, &record)?,
                (false, _) => self.is_in(&ask, &record)?,
            };
            if is_wanted {
                return Ok(None);
            }
            reason = Reason::Unwanted;
        }
        Ok(Some(reason))
    }

    /// Whether a record is one that the statement of a session that waits in InnoDB has asked for.
    /// Where it has `gone_on` in Inkstone the new keys that it asks for are not told from the rows
    /// that it has changed there.
    fn is_asked(&mut self, ask: &Ask, record: &str, gone_on: bool) -> Result<bool> {
        if !gone_on || ask.kind != Kind::Change {
            return self.is_in(ask, record);
        }
        let mut range = ask.clone();
        range.asked.clone_from(&range.range);
        Ok(self.is_in_innodb(ask, record)? || self.is_in(&range, record)?)
    }

    /// Whether a session waits in InnoDB, or was a victim in this step.
    fn waits_for_locks(&self, session: usize) -> bool {
        self.innodb.working().contains(&session) || victims(self.sides[0]).contains(&session)
    }

    /// Whether a record is one that is asked for: as it is now, or as it is committed. Inkstone has
    /// the row of a victim of InnoDB's still as it was.
    pub(super) fn is_in(&mut self, ask: &Ask, record: &str) -> Result<bool> {
        let inkstone = seen(self.inkstone, &one_of(ask, record))?;
        let in_inkstone = inkstone.iter().any(|rows| !rows.rows.is_empty());
        Ok(self.is_in_innodb(ask, record)? || in_inkstone)
    }

    /// The same of committed rows alone.
    fn was_in(&mut self, ask: &Ask, record: &str) -> Result<bool> {
        let select = one_of(ask, record);
        let both = [self.seen(&select)?, seen(self.inkstone, &select)?];
        Ok(both.iter().any(|[_, committed]| !committed.rows.is_empty()))
    }

    /// The same of InnoDB's rows alone.
    fn is_in_innodb(&mut self, ask: &Ask, record: &str) -> Result<bool> {
        let innodb = self.seen(&one_of(ask, record))?;
        Ok(innodb.iter().any(|rows| !rows.rows.is_empty()))
    }

    /// What a SELECT sees in InnoDB.
    fn seen(&mut self, select: &str) -> Result<[Rows; 2]> {
        seen(self.innodb, select)
    }
}

/// The first numbers that each session's statement was given, where those are others in InnoDB than
/// in Inkstone.
fn other_numbers(sides: [&Outcome; 2]) -> BTreeMap<usize, [u64; 2]> {
    let number = |side: &Outcome, session: usize| match side.get(&session) {
        Some(What::Ended(Reply::Done(done))) if done.affected > 0 => done.last_insert_id,
        _ => 0,
    };
    let both = |&session: &usize| (session, sides.map(|side| number(side, session)));
    let others = sides[0].keys().map(both);
    others
        .filter(|(_, [one, other])| one != other && *one > 0 && *other > 0)
        .collect()
}

/// Whether several have begun with the same number, but not the same session was first.
fn is_other_order(numbers: &BTreeMap<usize, [u64; 2]>) -> bool {
    let first = |engine: usize| numbers.values().map(|both| both[engine]).min();
    numbers.len() > 1 && first(0) == first(1)
}

/// Finds a record if it is one that is asked for.
fn one_of(ask: &Ask, record: &str) -> String {
    let Ask { table, asked, .. } = ask;
    format!("SELECT 1 FROM {table} WHERE ({asked}) AND {record}")
}

/// What a SELECT sees of newest versions, and of committed ones.
pub(super) fn seen(stage: &mut Stage, select: &str) -> Result<[Rows; 2]> {
    let mut at = |level: &str| {
        stage.ask(&format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ {level}"
        ))?;
        stage.ask(select)
    };
    Ok([at("UNCOMMITTED")?, at("COMMITTED")?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Done;

    #[test]
    fn numbers_that_two_have_taken_in_another_order() {
        let outcome = |numbers: [(usize, u64); 3]| -> Outcome {
            let ended = numbers.map(|(session, last_insert_id)| {
                let done = Done {
                    affected: 3,
                    last_insert_id,
                    warnings: 0,
                    info: String::new(),
                };
                (session, What::Ended(Reply::Done(done)))
            });
            ended.into()
        };
        let innodb = outcome([(1, 0), (2, 8), (3, 11)]);
        let others = |inkstone: &Outcome| other_numbers([&innodb, inkstone]);
        let swapped = others(&outcome([(1, 0), (2, 11), (3, 8)]));
        assert_eq!(swapped, BTreeMap::from([(2, [8, 11]), (3, [11, 8])]));
        assert!(is_other_order(&swapped));
        // Fewer numbers for the other one come first; a gap is no order.
        assert!(is_other_order(&others(&outcome([(1, 0), (2, 9), (3, 8)]))));
        assert!(!is_other_order(&others(&outcome([
            (1, 0),
            (2, 9),
            (3, 12)
        ]))));
        assert!(!is_other_order(&others(&outcome([
            (1, 0),
            (2, 8),
            (3, 12)
        ]))));
        assert!(!is_other_order(&others(&innodb)));
    }
}
