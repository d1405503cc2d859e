//! Sessions that are rolled back because of a deadlock, and why they may be others.

use super::evidence::Party;
use super::meant::{Case, Reason};
use super::stage::{Outcome, What};
use crate::client::Reply;
use inkstone_testkit::build::Result;

impl Case<'_> {
    /// InnoDB's first deadlock of this step is of the same sessions as Inkstone's first, and they
    /// have rolled back another one of them: what came behind it are deadlocks of other
    /// transactions.
    pub(super) fn chose_otherwise(&mut self) -> Result<bool> {
        let [mut one, _] = self.sides.map(victims);
        let deadlocks = self.innodb.all_deadlocks_of_step()?;
        let (Some((parties, later)), Some((circle, other))) = (
            deadlocks.split_first(),
            self.inkstone.first_circle_of_step()?,
        ) else {
            return Ok(false);
        };
        let connections_of = |parties: &[Party]| -> Vec<u64> {
            parties.iter().map(|party| party.connection).collect()
        };
        let in_innodb = self.innodb.numbered(&connections_of(parties));
        // The first one's victim is in none that was found later.
        for parties in later {
            let found_later = self.innodb.numbered(&connections_of(parties));
            one.retain(|victim| in_innodb.contains(victim) && !found_later.contains(victim));
        }
        let in_inkstone = self.inkstone.numbered(&circle);
        let other = self.inkstone.numbered(&[other]);
        let all_are_known = in_innodb.len() == parties.len() && in_inkstone.len() == circle.len();
        Ok(all_are_known
            && in_innodb == in_inkstone
            && one.len() == 1
            && one != other
            && self.other_victims(&one, &other)?.is_some())
    }

    /// Each circle that InnoDB has found in this step is also of a session that both have rolled
    /// back: Inkstone had no other one to find.
    pub(super) fn fewer_are_enough(&mut self, of_both: &[usize]) -> Result<bool> {
        let deadlocks = self.innodb.all_deadlocks_of_step()?;
        for parties in &deadlocks {
            let connections: Vec<u64> = parties.iter().map(|party| party.connection).collect();
            let sessions = self.innodb.numbered(&connections);
            let all_are_known = sessions.len() == parties.len();
            if !all_are_known || !sessions.iter().any(|one| of_both.contains(one)) {
                return Ok(false);
            }
        }
        Ok(deadlocks.len() > of_both.len())
    }

    /// Both have rolled a session back for a deadlock. In InnoDB it waited for the lock of a
    /// table's AUTO_INCREMENT, as its report says, behind another one of that deadlock; Inkstone
    /// has rolled that one back first, then given it the lock, and it has closed the next deadlock.
    pub(super) fn waited_for_numbers(&mut self, session: usize) -> Result<bool> {
        let [innodb, inkstone] =
            [&*self.innodb, &*self.inkstone].map(|stage| stage.sessions[session - 1].connection);
        let parties = self
            .innodb
            .deadlocks_with(session)?
            .pop()
            .unwrap_or_default();
        let in_innodb = parties
            .iter()
            .any(|party| party.connection == innodb && party.wanted_numbers);
        let order = self.inkstone.rolled_back_in_step()?;
        let Some(place) = order.iter().position(|&victim| victim == inkstone) else {
            return Ok(false);
        };
        let of_circle: Vec<u64> = parties.iter().map(|party| party.connection).collect();
        let of_circle = self.innodb.numbered(&of_circle);
        let before = self.inkstone.numbered(&order[..place]);
        Ok(in_innodb && before.iter().any(|one| of_circle.contains(one)))
    }

    /// In InnoDB all victims have waited for the lock of a table's AUTO_INCREMENT, and with them
    /// rolled back this step's session still waits in a circle.
    pub(super) fn beside_numbers(&mut self, victims: &[usize]) -> Result<Option<Reason>> {
        let waited = |session: &usize| matches!(self.sides[0].get(session), Some(What::Ended(Reply::Refused(it))) if it.code == NUMBERS_DEADLOCK);
        if victims.iter().all(waited) {
            self.late_deadlock(self.acting)
        } else {
            Ok(None)
        }
    }

    /// Both count rows changed, and kinds of locks, but Inkstone has fewer locks: so each victim of
    /// Inkstone's alone has changed no more rows than one of InnoDB's alone has rows and locks.
    pub(super) fn other_victims(
        &mut self,
        innodb: &[usize],
        inkstone: &[usize],
    ) -> Result<Option<Reason>> {
        let parties = self.innodb.deadlocks_of_step()?;
        let of = |session: &usize| {
            let connection = self.innodb.sessions[session - 1].connection;
            parties.iter().find(|party| party.connection == connection)
        };
        let is_meant = |other: &usize| {
            let no_more = |one: &usize| match (of(one), of(other)) {
                (Some(one), Some(other)) => other.changes <= one.changes + one.locks,
                _ => false,
            };
            innodb.iter().any(no_more)
        };
        Ok(inkstone.iter().all(is_meant).then_some(Reason::Victim))
    }
}

/// Of victims of several deadlocks those that only the first engine has, and those that only the
/// other has.
pub(super) fn only_in_one(victims: &[Vec<usize>; 2]) -> [Vec<usize>; 2] {
    [0, 1].map(|of| {
        let mut only = victims[of].clone();
        only.retain(|one| !victims[1 - of].contains(one));
        only
    })
}

/// What InnoDB says where the deadlock is over the lock of a table's AUTO_INCREMENT.
pub(super) const NUMBERS_DEADLOCK: u16 = 1467;

/// What both say of any other.
pub(super) const DEADLOCK: u16 = 1213;

/// Sessions that were rolled back because of a deadlock.
pub(super) fn victims(outcome: &Outcome) -> Vec<usize> {
    let is_victim = |what: &What| matches!(what, What::Ended(Reply::Refused(r)) if [DEADLOCK, NUMBERS_DEADLOCK].contains(&r.code));
    let victims = outcome.iter().filter(|(_, what)| is_victim(what));
    victims.map(|(session, _)| *session).collect()
}
