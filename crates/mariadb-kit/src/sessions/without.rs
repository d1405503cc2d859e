//! Proof that sessions found something else because of others alone: Inkstone runs the script again
//! to that step, and those others do not say what they waited with. What is found then must be what
//! InnoDB has found, where they still wait.

use super::compare::{Difference, same};
use super::play::end_all;
use super::script::{Script, Step};
use super::stage::{Engine, Outcome, Stage};
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// The sessions that are left out, and what is to be found without them.
#[derive(Clone, Debug)]
pub struct Without {
    /// Sessions that wait in InnoDB, and have gone on in Inkstone.
    pub sessions: Vec<usize>,
    /// What InnoDB gave to those that found something else.
    pub found: Outcome,
}

/// A difference that is meant if this holds.
pub struct Claim {
    pub without: Without,
    /// The difference if it does not.
    pub difference: Difference,
    /// All that was said to there.
    pub all_said: Vec<Step>,
    /// At which of these each session began what it does, or has done last.
    pub said: BTreeMap<usize, usize>,
}

impl Claim {
    /// Whether Inkstone's sessions find without those others what InnoDB's have found. The case
    /// itself is over, and its sessions are gone.
    pub fn holds(&self, socket: &Path, script: &Script) -> Result<bool> {
        let script = self.left_out(script);
        let mut stage = Stage::set(Engine::Inkstone, socket, &script)?;
        let mut outcome = Outcome::new();
        for step in &script.steps {
            outcome = stage.step(step.session, &step.statement)?;
        }
        end_all(&mut stage, &script, "ROLLBACK")?;
        let Without { found, .. } = &self.without;
        Ok(!found.is_empty()
            && found
                .iter()
                .all(|(session, what)| same(Some(what), outcome.get(session))))
    }

    /// What was said, where the sessions say nothing in place of what they waited with.
    fn left_out(&self, script: &Script) -> Script {
        // There are as many sessions as before.
        let nothing = Step {
            session: script.sessions(),
            statement: "DO 0".to_owned(),
        };
        let mut script = script.clone();
        script.steps.clone_from(&self.all_said);
        for (at, step) in script.steps.iter_mut().enumerate() {
            let waits = self.without.sessions.contains(&step.session);
            if waits && self.said.get(&step.session).is_some_and(|&said| at >= said) {
                "DO 0".clone_into(&mut step.statement);
            }
        }
        script.steps.insert(0, nothing);
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::script::parse;

    #[test]
    fn what_was_waited_with_is_left_out_and_what_was_said_before_is_not() {
        let text = "== a name\n1: BEGIN\n2: BEGIN\n1: A\n2: B\n1: C\n3: D\n";
        let script = parse(text).unwrap().remove(0);
        let end = Step {
            session: 2,
            statement: "COMMIT".to_owned(),
        };
        let said = script.steps[..5].iter().cloned();
        let claim = Claim {
            without: Without {
                sessions: vec![1],
                found: Outcome::new(),
            },
            difference: Difference::of_one(5, &end, "differs"),
            all_said: said.chain([end]).collect(),
            said: BTreeMap::from([(1, 2), (2, 5)]),
        };
        let said: Vec<_> = claim.left_out(&script).steps;
        let said: Vec<_> = said.iter().map(|step| step.statement.as_str()).collect();
        assert_eq!(said[1..], ["BEGIN", "BEGIN", "DO 0", "B", "DO 0", "COMMIT"]);
        assert_eq!(claim.left_out(&script).sessions(), 3);
    }
}
