//! Deadlocks that one engine finds and the other does not, or finds later: why, if that is meant.

use super::evidence::Party;
use super::held::is_open;
use super::meant::{Case, Reason};
use super::stage::What;
use super::victims::victims;
use crate::client::Reply;
use inkstone_testkit::build::Result;

impl Case<'_> {
    /// Why Inkstone has a deadlock, and InnoDB has none.
    pub(super) fn only_inkstones(&mut self, victim: usize) -> Result<Option<Reason>> {
        for why in [Self::further_on, Self::overlooked, Self::held_back] {
            let reason = why(self, victim)?;
            if reason.is_some() {
                return Ok(reason);
            }
        }
        Ok(None)
    }

    /// Inkstone has a deadlock of sessions one of which is held back in InnoDB, where it has waited
    /// since before this step for a lock beyond what it asked for: there it has not taken what the
    /// other one wants now.
    fn held_back(&mut self, _victim: usize) -> Result<Option<Reason>> {
        let connections = self.inkstone.latest_circle()?;
        let circle = self.inkstone.numbered(&connections);
        let [innodb, inkstone] = self.sides;
        let all = innodb.keys().chain(inkstone.keys());
        let mut differ = all.filter(|session| innodb.get(session) != inkstone.get(session));
        if !differ.all(|session| circle.contains(session)) {
            return Ok(None);
        }
        for &session in &circle {
            if !self.before.contains(&session) || !self.innodb.working().contains(&session) {
                continue;
            }
            let Some(wanted) = self.innodb.wanted(session)? else {
                continue;
            };
            let reason = self.noted(session, &wanted);
            if reason.is_some() {
                return Ok(reason);
            }
        }
        Ok(None)
    }

    /// Inkstone has a deadlock that this step's session has closed; in InnoDB it has not come so
    /// far, and waits for a lock that is beyond what was asked. Others of the circle may go on in
    /// Inkstone then.
    fn further_on(&mut self, victim: usize) -> Result<Option<Reason>> {
        match self.closed_circle(victim)? {
            Some(_) => self.waits(self.acting),
            None => Ok(None),
        }
    }

    /// Inkstone has a deadlock that this step's session has closed; InnoDB has overlooked the lock
    /// that it wants, and has given it what it asked for.
    fn overlooked(&mut self, victim: usize) -> Result<Option<Reason>> {
        let Some(circle) = self.closed_circle(victim)? else {
            return Ok(None);
        };
        let acting = self.acting;
        let Some(What::Ended(Reply::Done(_) | Reply::Rows(_))) = self.sides[0].get(&acting) else {
            return Ok(None);
        };
        for other in circle {
            if other != acting && self.overlooks(acting, &[other])? {
                return Ok(Some(Reason::Overlooked));
            }
        }
        Ok(None)
    }

    /// The sessions of Inkstone's latest deadlock, if this step's session and the victim are of
    /// them, and no others differ.
    fn closed_circle(&mut self, victim: usize) -> Result<Option<Vec<usize>>> {
        let connections = self.inkstone.latest_circle()?;
        let circle = self.inkstone.numbered(&connections);
        let sessions = self.sides.iter().flat_map(|side| side.keys());
        let mut differ = sessions.filter(|session| {
            let [one, other] = self.sides.map(|side| side.get(session));
            one != other
        });
        let is_of_circle = differ.all(|session| circle.contains(session));
        let is_closed = [self.acting, victim].iter().all(|one| circle.contains(one));
        Ok((is_of_circle && is_closed).then_some(circle))
    }

    /// One engine has a deadlock of sessions that were let go on together, and in the other one
    /// they went one after another. Where that is Inkstone, no two neighbours of InnoDB's circle
    /// can both be in a transaction that has gone on: one of them is over, or waits.
    pub(super) fn order_of_deadlock(&mut self, let_go: &[usize]) -> Result<Option<Reason>> {
        let both = self.sides.map(victims);
        let is_innodb = both[0].len() > both[1].len();
        let connections = if is_innodb {
            let parties = self.innodb.latest_deadlock()?;
            parties.iter().map(|party| party.connection).collect()
        } else {
            self.inkstone.latest_circle()?
        };
        let stage = if is_innodb {
            &*self.innodb
        } else {
            &*self.inkstone
        };
        let circle = stage.numbered(&connections);
        let [more, fewer] = if is_innodb {
            &both
        } else {
            &[both[1].clone(), both[0].clone()]
        };
        let mut victims = more.iter().filter(|one| !fewer.contains(one));
        let sessions = self.sides.iter().flat_map(|side| side.keys());
        let mut differ = sessions.filter(|session| {
            let [one, other] = self.sides.map(|side| side.get(session));
            one != other
        });
        let of_circle = |session: &usize| circle.contains(session);
        if circle.len() != connections.len()
            || circle.len() < 2
            || !victims.all(of_circle)
            || !circle.iter().all(|session| let_go.contains(session))
            || !differ.all(|session| let_go.contains(session))
        {
            return Ok(None);
        }
        if is_innodb {
            let mut going = 0;
            for &session in &circle {
                let idle = self.inkstone.idle().contains(&session);
                going += usize::from(idle && is_open(self.inkstone, session)?);
            }
            if 2 * going > circle.len() {
                return Ok(None);
            }
        }
        Ok(Some(Reason::Order))
    }

    /// Inkstone has found a deadlock. InnoDB follows one blocker of each: so its sessions must wait
    /// in a circle.
    pub(super) fn late_deadlock(&mut self, victim: usize) -> Result<Option<Reason>> {
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

    /// InnoDB has found deadlocks, and Inkstone has none, or has not those: in each of them one of
    /// the locks is beyond what was asked, or is one that Inkstone gives before the queue.
    /// `shared`: victims in both. Where several are found at once they are of the one wait that has
    /// closed them: that of a session that goes on, or of this step's, the last victim then. It is
    /// that wait's lock.
    pub(super) fn gap_deadlock(
        &mut self,
        victims: &[usize],
        shared: &[usize],
    ) -> Result<Option<Reason>> {
        let mut sessions: Vec<usize> = (1..=self.innodb.sessions.len()).collect();
        if victims.len() > 1 {
            sessions.retain(|session| !victims.contains(session) || *session == self.acting);
        }
        let mut reason = None;
        for &victim in victims.iter().filter(|victim| !shared.contains(victim)) {
            // The one that it was rolled back for.
            let Some(parties) = self.innodb.deadlocks_with(victim)?.pop() else {
                return Ok(None);
            };
            let connections: Vec<u64> = parties.iter().map(|party| party.connection).collect();
            let numbered = self.innodb.numbered(&connections);
            if numbered.iter().any(|party| shared.contains(party)) {
                return Ok(None);
            }
            reason = match self.in_deadlock(&sessions, &parties)? {
                None => return Ok(None),
                Some(Reason::Upgrade) => Some(Reason::Upgrade),
                Some(_) => Some(Reason::GapDeadlock),
            };
        }
        Ok(reason)
    }

    /// Why a lock that one of these sessions wanted in a deadlock of InnoDB's is beyond what was
    /// asked, or is one for which it waits behind others that wait for what it has.
    pub(super) fn in_deadlock(
        &mut self,
        sessions: &[usize],
        parties: &[Party],
    ) -> Result<Option<Reason>> {
        let connections: Vec<u64> = parties.iter().map(|party| party.connection).collect();
        for party in parties {
            let Some(wanted) = &party.wanted else {
                continue;
            };
            let mut others = connections.clone();
            others.retain(|&connection| connection != party.connection);
            let others = self.innodb.numbered(&others);
            for session in self.innodb.numbered(&[party.connection]) {
                if !sessions.contains(&session) {
                    continue;
                }
                if party.is_upgrade(parties) {
                    return Ok(Some(Reason::Upgrade));
                }
                let reason = self.is_beyond(session, wanted, &others)?;
                if reason.is_some() {
                    return Ok(reason);
                }
            }
        }
        Ok(None)
    }
}
