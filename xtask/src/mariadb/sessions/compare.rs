//! Whether two engines' traces of a case are equal.

use super::script::Script;
use super::stage::{self, Outcome, What};
use crate::mariadb::client::Reply;

/// What came of each statement, in order.
pub type Trace = Vec<(String, Outcome)>;

/// The first place at which two traces differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// In words that the differences of one cause have in common.
    pub what: String,
    /// Where in the trace.
    pub at: usize,
    /// Each engine's side, as text.
    pub sides: [String; 2],
}

/// Compares InnoDB's trace with Inkstone's.
pub fn compare(script: &Script, traces: &[Trace; 2]) -> Option<Difference> {
    let [innodb, inkstone] = traces;
    let longest = innodb.len().max(inkstone.len());
    (0..longest).find_map(|at| {
        let of = |trace: &Trace| trace.get(at).map(|(_, outcome)| outcome.clone());
        let sides = [
            of(innodb).unwrap_or_default(),
            of(inkstone).unwrap_or_default(),
        ];
        let mut sessions = sides[0].keys().chain(sides[1].keys());
        let session =
            *sessions.find(|session| !same(sides[0].get(session), sides[1].get(session)))?;
        let kind = |outcome: &Outcome| {
            outcome
                .get(&session)
                .map_or("says nothing".to_owned(), What::kind)
        };
        let said = innodb.get(at).or(inkstone.get(at));
        let statement = said.map_or("", |(statement, _)| statement);
        let who = match script.steps.get(at) {
            Some(step) if step.session != session => "another session, at ",
            _ => "",
        };
        Some(Difference {
            what: format!(
                "{who}{}: InnoDB {}, Inkstone {}",
                class(statement),
                kind(&sides[0]),
                kind(&sides[1])
            ),
            at,
            sides: sides.map(|outcome| stage::text(&outcome)),
        })
    })
}

/// Numbers, and who says it, left out.
fn class(statement: &str) -> String {
    let statement = statement
        .split_once(": ")
        .map_or(statement, |(_, said)| said);
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

fn same(innodb: Option<&What>, inkstone: Option<&What>) -> bool {
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
    use crate::mariadb::client::Refusal;

    fn trace(what: What) -> Trace {
        vec![(
            "1: UPDATE t SET v = 17".to_owned(),
            Outcome::from([(1, what)]),
        )]
    }

    #[test]
    fn who_waits_is_compared_and_for_whom_is_not() {
        let script = Script::default();
        let waits = |whom: usize| trace(What::Waits(vec![whom]));
        assert!(compare(&script, &[waits(2), waits(3)]).is_none());
        let refused = |code| {
            let message = String::new();
            trace(What::Ended(Reply::Refused(Refusal { code, message })))
        };
        assert!(compare(&script, &[refused(1213), refused(1213)]).is_none());
        let found = compare(&script, &[waits(2), refused(1213)]).unwrap();
        assert_eq!(
            found.what,
            "UPDATE t SET v = N: InnoDB waits, Inkstone gives error 1213"
        );
    }
}
