//! Differences that are none: what InnoDB leaves open, or says of its own ways. Each with its reason. A bug of
//! Inkstone never stands here.
//!
//! Not on this list, because the comparison itself knows it: rows without ORDER BY come in any order, rows that
//! ORDER BY takes for equal come in any order among each other, and a group of values that a collation takes for
//! equal is named by any of them.

use super::compare::Aspect;
use super::sides::Outcome;
use crate::mariadb::client::Reply;
use std::collections::BTreeMap;

/// How often each was met.
pub type Accepted = BTreeMap<&'static str, u64>;

struct Rule {
    reason: &'static str,
    applies: fn(&str, Aspect, &Outcome, &Outcome) -> bool,
}

const RULES: [Rule; 3] = [
    Rule {
        reason: "how many rows an ALTER copied says which way it was done, not what it did",
        applies: |statement, aspect, _, _| {
            statement.starts_with("ALTER") && matches!(aspect, Aspect::Affected | Aspect::Info)
        },
    },
    Rule {
        reason: "NULL made NOT NULL: of ways to ALTER, the one in place adds error 1138 to 1265, copying does not",
        applies: |statement, aspect, innodb, inkstone| {
            statement.starts_with("ALTER")
                && aspect == Aspect::Warnings
                && innodb
                    .warnings
                    .last()
                    .is_some_and(|last| last.code == "1138")
                && innodb.warnings[..innodb.warnings.len() - 1] == inkstone.warnings
        },
    },
    Rule {
        reason: "NULL made NOT NULL: the one in place counts rows of a partition, copying those of the table",
        applies: |statement, aspect, innodb, inkstone| {
            let refused = |outcome: &Outcome| match &outcome.reply {
                Reply::Refused(refusal) => refusal.code,
                _ => 0,
            };
            statement.starts_with("ALTER")
                && aspect == Aspect::Message
                && [refused(innodb), refused(inkstone)] == [1265; 2]
        },
    },
];

/// True if this difference is accepted.
pub fn accept(
    statement: &str,
    aspect: Aspect,
    innodb: &Outcome,
    inkstone: &Outcome,
    accepted: &mut Accepted,
) -> bool {
    let rule = RULES
        .iter()
        .find(|rule| (rule.applies)(statement, aspect, innodb, inkstone));
    if let Some(rule) = rule {
        *accepted.entry(rule.reason).or_default() += 1;
    }
    rule.is_some()
}
