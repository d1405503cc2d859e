//! What a case is made of.

use super::sql::{Sql, Tag};

/// A step of a case.
#[derive(Clone, Debug)]
pub enum Step {
    /// A statement, for both engines.
    Run(Statement),
    /// The server ends in order, and starts again.
    Restart,
    /// The server is killed, and starts again.
    Kill,
}

/// What makes a case, step by step: what comes next may depend on what became of the last one.
pub trait Steps {
    /// The next step.
    fn next(&mut self) -> Option<Step>;
    /// Says whether the statement of the last step succeeded.
    fn observe(&mut self, succeeded: bool);
}

/// A statement, and which rows it may give.
#[derive(Clone, Debug)]
pub struct Statement {
    pub sql: Sql,
    pub rows: Expected,
}

/// What the rows of both engines have in common.
#[derive(Clone, Debug)]
pub enum Expected {
    /// All, in this order.
    Exact,
    /// All, in any order.
    AnyOrder,
    /// All; in the order in which this statement ranks them, in its last column.
    Ranked(Sql),
    /// Those that this statement gives, which asks for the same without an index, in this order.
    Some(Sql),
    /// All, in this order, but that of values that their column takes for equal either may stand
    /// there.
    Representatives(Vec<Representative>),
}

/// A column of rows that stand for groups.
#[derive(Clone, Debug)]
pub enum Representative {
    /// A value that is equal in every bit.
    Itself,
    /// A value as this column of this table compares it.
    As(String, String),
}

impl Statement {
    /// Whose rows come as they are.
    pub fn exact(sql: Sql) -> Self {
        Self {
            sql,
            rows: Expected::Exact,
        }
    }

    /// Whose rows have no order.
    pub fn any_order(sql: Sql) -> Self {
        Self {
            sql,
            rows: Expected::AnyOrder,
        }
    }

    /// Without what is about this column or key.
    pub fn without_tag(&self, tag: Tag) -> Self {
        let rows = match &self.rows {
            Expected::Ranked(ranks) => Expected::Ranked(ranks.without_tag(tag)),
            Expected::Some(same) => Expected::Some(same.without_tag(tag)),
            rows => rows.clone(),
        };
        let sql = self.sql.without_tag(tag);
        Self { sql, rows }
    }
}
