//! Why a session is given other rows in InnoDB than in Inkstone, or is refused them there, if that
//! is meant: locks beyond what was asked have kept it, or another one, from going as far.

use super::ask::{self, Ask, Kind};
use super::meant::{Case, Reason, seen};
use super::schema::Index;
use super::stage::{Stage, What};
use super::victims::victims;
use crate::client::{Reply, Rows};
use inkstone_testkit::build::Result;

impl Case<'_> {
    /// Below REPEATABLE READ a session has waited in both engines, in InnoDB for a lock beyond what
    /// it asked for, and so came later to rows that others have made behind that: InnoDB gives the
    /// rows of Inkstone, and more.
    pub(super) fn read_later(
        &self,
        session: usize,
        innodb: &Reply,
        inkstone: &Rows,
    ) -> Option<Reason> {
        let (_, reason) = self.beyond.get(&session)?;
        let Reply::Rows(innodb) = innodb else {
            return None;
        };
        let has_more = inkstone.rows.iter().all(|row| innodb.rows.contains(row));
        (has_more && self.before.contains(&session) && self.holders.unlocks(session))
            .then_some(*reason)
    }

    /// A statement that takes no locks reads by an index of InnoDB beside one that waits, and gives
    /// fewer rows than Inkstone; by no index InnoDB gives those of Inkstone.
    pub(super) fn read_halfway(
        &mut self,
        session: usize,
        innodb: &Reply,
        inkstone: &Rows,
    ) -> Result<Option<Reason>> {
        let statement = self.innodb.statement(session);
        let plain = Ask::of(&statement, self.holders.schema());
        let plain = plain.filter(|ask| ask.kind == Kind::Plain && !ask.force.is_empty());
        let (Some(ask), Reply::Rows(fewer)) = (plain, innodb) else {
            return Ok(None);
        };
        let is_fewer = fewer.rows.iter().all(|row| inkstone.rows.contains(row));
        let waits = |stage: &Stage| stage.working().iter().any(|&other| other != session);
        if !is_fewer || !waits(self.innodb) || !waits(self.inkstone) {
            return Ok(None);
        }
        let whole = statement.replacen(&ask.force, "USE INDEX ()", 1);
        let outcome = self.innodb.aside(session, &whole)?;
        let of_all = match outcome.get(&session) {
            Some(What::Ended(Reply::Rows(of_all))) => &of_all.rows,
            _ => return Ok(None),
        };
        let is_same = of_all.len() == inkstone.rows.len()
            && of_all.iter().all(|row| inkstone.rows.contains(row));
        Ok(is_same.then_some(Reason::Halfway))
    }

    /// NOWAIT, SKIP LOCKED or WAIT has met a lock of InnoDB's: the same statement without it waits
    /// for that.
    pub(super) fn impatient(
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
                match self.passed_over(&statement, rows, inkstone)? {
                    Some(of_row) => patient = of_row,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        }
        let outcome = self.innodb.step(session, &patient)?;
        match outcome.get(&session) {
            Some(What::Waits(_)) => self.waits(session),
            // One of its blockers then waits for it already.
            // There another deadlock may come behind this session's.
            _ if !victims(&outcome).is_empty() => {
                let deadlocks = self.innodb.deadlocks_with(session)?;
                match deadlocks.first() {
                    Some(parties) => self.in_deadlock(&[session], parties),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// NOWAIT or SKIP LOCKED meets a lock in Inkstone alone. The session that has it waits in both
    /// engines, and is held back in InnoDB by a lock beyond what was asked: there it has not come
    /// to that row.
    pub(super) fn overtaken(
        &mut self,
        session: usize,
        innodb: &Reply,
        inkstone: &Reply,
    ) -> Result<Option<Reason>> {
        let statement = self.inkstone.statement(session);
        let patient = match (innodb, inkstone) {
            (Reply::Rows(_), Reply::Refused(refusal)) if refusal.code == 1205 => {
                ask::patient(&statement)
            }
            (Reply::Rows(rows), Reply::Rows(fewer)) if ask::patient(&statement).is_some() => {
                let is_fewer = fewer.rows.iter().all(|row| rows.rows.contains(row));
                if is_fewer {
                    self.passed_over(&statement, fewer, rows)?
                } else {
                    None
                }
            }
            _ => None,
        };
        let Some(patient) = patient else {
            return Ok(None);
        };
        let outcome = self.inkstone.step(session, &patient)?;
        let blockers = match outcome.get(&session) {
            Some(What::Waits(_)) => std::mem::take(&mut self.blockers(session)?[1]),
            // One of its blockers then waits for it already.
            _ if !victims(&outcome).is_empty() => {
                let circle = self.inkstone.latest_circle()?;
                let mut circle = self.inkstone.numbered(&circle);
                circle.retain(|&other| other != session);
                circle
            }
            _ => return Ok(None),
        };
        let mut reason = None;
        for blocker in blockers {
            reason = if self.beyond.contains_key(&blocker) {
                self.innodb.wanted(blocker)?
            } else {
                None
            }
            .and_then(|wanted| self.noted(blocker, &wanted));
            if reason.is_none() {
                return Ok(None);
            }
        }
        Ok(reason)
    }

    /// A session that waited in InnoDB for a row which its blocker had read and not wanted goes on
    /// there. What it waits for in Inkstone are rows that NOWAIT has locked before it was refused:
    /// in InnoDB it was refused at that first row, and has locked none.
    pub(super) fn refused_sooner(&mut self, session: usize) -> Result<Option<Reason>> {
        let statement = self.inkstone.statement(session);
        let (Some((_, Reason::Unwanted)), Some(ask)) = (
            self.beyond.get(&session),
            Ask::of(&statement, self.holders.schema()),
        ) else {
            return Ok(None);
        };
        let blockers = std::mem::take(&mut self.blockers(session)?[1]);
        for &blocker in &blockers {
            let is_impatient = ask::patient(&self.inkstone.statement(blocker)).is_some();
            let granted = self.innodb.granted(blocker)?;
            if !is_impatient || granted.iter().any(|lock| lock.of.table == ask.table) {
                return Ok(None);
            }
        }
        Ok((!blockers.is_empty()).then_some(Reason::Unwanted))
    }

    /// The statement for one row alone that one engine has passed over, and the other has not.
    /// Where other rows have its key in the index that is scanned, too, it is looked up in the
    /// clustered one.
    fn passed_over(
        &mut self,
        statement: &str,
        fewer: &Rows,
        more: &Rows,
    ) -> Result<Option<String>> {
        let schema = self.holders.schema();
        let (Some(ask), Some(row)) = (
            Ask::of(statement, schema),
            more.rows.iter().find(|row| !fewer.rows.contains(row)),
        ) else {
            return Ok(None);
        };
        let Some(table) = schema.table(&ask.table) else {
            return Ok(None);
        };
        let is_it = |index: &Index| -> Option<String> {
            let value = |name: &String| {
                let at = table.columns.iter().position(|column| column == name)?;
                Some(format!("{name} <=> {}", ask::literal(&row[at])))
            };
            let same: Option<Vec<String>> = index.columns.iter().map(value).collect();
            Some(same?.join(" AND "))
        };
        let clustered = table.clustered();
        let forced = ask.force.split(['(', ')']).nth(1);
        let forced = forced.and_then(|name| table.index(name));
        let (Some(index), lock) = (forced.or(clustered), ask.lock()) else {
            return Ok(None);
        };
        let Some(mut same) = is_it(index) else {
            return Ok(None);
        };
        let mut force = ask.force.clone();
        let alike = format!("SELECT * FROM {} WHERE {same}", ask.table);
        if let Some((clustered, its)) = clustered
            .filter(|clustered| clustered.unique && !index.unique)
            .and_then(|clustered| Some((clustered, is_it(clustered)?)))
            && seen(self.innodb, &alike)?
                .iter()
                .any(|rows| rows.rows.len() > 1)
        {
            (same, force) = (its, format!("FORCE INDEX ({})", clustered.name));
        }
        let table = &ask.table;
        Ok(Some(format!(
            "SELECT * FROM {table} {force} WHERE {same}{lock}"
        )))
    }
}
