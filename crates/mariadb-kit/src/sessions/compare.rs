//! Whether two engines' sides of a step are equal.

use super::script::Step;
use super::stage::{self, Outcome, What};
use crate::client::Reply;

/// The first place at which two sides differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// In words that the differences of one cause have in common.
    pub what: String,
    /// At which step; behind the last one, sessions commit and tables are read.
    pub at: usize,
    /// Each engine's side, as text.
    pub sides: [String; 2],
}

impl Difference {
    /// What the sides have come to at a step, if it differs.
    pub fn between(at: usize, step: &Step, sides: [&Outcome; 2]) -> Option<Self> {
        let mut sessions = sides[0].keys().chain(sides[1].keys());
        let session =
            *sessions.find(|session| !same(sides[0].get(session), sides[1].get(session)))?;
        let kind = |outcome: &Outcome| {
            outcome
                .get(&session)
                .map_or("says nothing".to_owned(), What::kind)
        };
        let prefix = if step.session != session {
            "another session, at "
        } else {
            ""
        };
        Some(Self {
            what: format!(
                "{prefix}{}: InnoDB {}, Inkstone {}",
                class(&step.statement),
                kind(sides[0]),
                kind(sides[1])
            ),
            at,
            sides: sides.map(stage::text),
        })
    }

    /// Something that is wrong of one side alone.
    pub fn of_one(at: usize, step: &Step, wrong: &str) -> Self {
        let first = wrong.lines().next().unwrap_or_default();
        Self {
            what: format!("{}: {}", class(&step.statement), class(first)),
            at,
            sides: ["(not asked)\n".to_owned(), format!("    {wrong}\n")],
        }
    }
}

/// Numbers left out.
fn class(statement: &str) -> String {
    let mut class = String::new();
    for letter in statement.chars() {
        match letter {
            '0'..='9' if class.ends_with('N') => {}
            '0'..='9' => class.push('N'),
            other => class.push(other),
        }
    }
    class
}

pub(super) fn same(innodb: Option<&What>, inkstone: Option<&What>) -> bool {
    match (innodb, inkstone) {
        (Some(What::Ended(one)), Some(What::Ended(other))) => same_reply(one, other),
        // Which of several blockers is named is not compared: InnoDB names those in its queue, too.
        (Some(What::Waits(_)), Some(What::Waits(_))) => true,
        _ => innodb == inkstone,
    }
}

fn same_reply(one: &Reply, other: &Reply) -> bool {
    match (one, other) {
        (Reply::Done(one), Reply::Done(other)) => one.affected == other.affected,
        (Reply::Refused(one), Reply::Refused(other)) => one.code == other.code,
        (Reply::Rows(one), Reply::Rows(other)) => {
            let sorted = |rows: &Vec<Vec<_>>| {
                let mut rows = rows.clone();
                rows.sort();
                rows
            };
            sorted(&one.rows) == sorted(&other.rows)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Refusal;

    fn between(innodb: What, inkstone: What) -> Option<Difference> {
        let step = Step {
            session: 1,
            statement: "UPDATE t SET v = 17".to_owned(),
        };
        let [innodb, inkstone] = [innodb, inkstone].map(|what| Outcome::from([(1, what)]));
        Difference::between(0, &step, [&innodb, &inkstone])
    }

    #[test]
    fn waiters_are_compared_and_blockers_are_not() {
        let waits = |blocker: usize| What::Waits(vec![blocker]);
        assert!(between(waits(2), waits(3)).is_none());
        let refused = |code| {
            let message = String::new();
            What::Ended(Reply::Refused(Refusal { code, message }))
        };
        assert!(between(refused(1213), refused(1213)).is_none());
        let found = between(waits(2), refused(1213)).unwrap();
        assert_eq!(
            found.what,
            "UPDATE t SET v = N: InnoDB waits, Inkstone gives error 1213"
        );
    }
}
