//! The fewest and shortest statements that still differ in the same way.

use super::sql::Sql;
use super::step::{Statement, Step};
use std::time::Instant;

/// Shrinks, as long as there is time. `differs` runs steps in new databases, and says whether they
/// still differ.
pub fn shrink(
    steps: Vec<Step>,
    until: Instant,
    differs: &mut dyn FnMut(&[Step]) -> bool,
) -> Vec<Step> {
    let mut shrinking = Shrinking {
        steps,
        until,
        differs,
    };
    loop {
        let mut progress = shrinking.drop_steps();
        progress |= shrinking.drop_tags();
        progress |= shrinking.drop_items();
        progress |= shrinking.simplify_values();
        if !progress || shrinking.is_late() {
            return shrinking.steps;
        }
    }
}

struct Shrinking<'a> {
    steps: Vec<Step>,
    until: Instant,
    differs: &'a mut dyn FnMut(&[Step]) -> bool,
}

impl Shrinking<'_> {
    fn is_late(&self) -> bool {
        Instant::now() > self.until
    }

    /// Takes these steps if they still differ.
    fn try_steps(&mut self, steps: Vec<Step>) -> bool {
        if self.is_late() || !(self.differs)(&steps) {
            return false;
        }
        self.steps = steps;
        true
    }

    /// Ranges of steps, long ones first.
    fn drop_steps(&mut self) -> bool {
        let before = self.steps.len();
        let mut length = (before / 2).max(1);
        loop {
            // From the end: what stands there was needed least by what comes before it.
            let mut end = self.steps.len();
            while end > 0 {
                let begin = end.saturating_sub(length);
                let mut steps = self.steps.clone();
                steps.drain(begin..end);
                self.try_steps(steps);
                end = begin.min(self.steps.len());
            }
            if length == 1 {
                return self.steps.len() < before;
            }
            length /= 2;
        }
    }

    /// Columns and keys, in all statements.
    fn drop_tags(&mut self) -> bool {
        let mut tags = Vec::new();
        for statement in self.steps.iter().filter_map(statement) {
            statement.sql.tags(&mut tags);
        }
        tags.sort_unstable();
        tags.dedup();
        let mut progress = false;
        for tag in tags {
            let without = |step: &Step| match step {
                Step::Run(statement) => Step::Run(statement.without_tag(tag)),
                other => other.clone(),
            };
            let steps = self.steps.iter().map(without).collect();
            progress |= self.try_steps(steps);
        }
        progress
    }

    /// Rows of INSERT, clauses of ALTER, columns of a key.
    fn drop_items(&mut self) -> bool {
        let mut progress = false;
        for at in 0..self.steps.len() {
            let Some(count) = self.sql(at).map(Sql::count_items) else {
                continue;
            };
            let mut length = (count / 2).max(1);
            loop {
                let mut end = self.sql(at).map_or(0, Sql::count_items);
                while end > 0 {
                    let begin = end.saturating_sub(length);
                    let fewer = self.sql(at).map(|sql| sql.without_items(begin..end));
                    progress |= fewer.is_some_and(|sql| self.try_sql(at, sql));
                    end = begin;
                }
                if length == 1 {
                    break;
                }
                length /= 2;
            }
        }
        progress
    }

    fn simplify_values(&mut self) -> bool {
        let mut progress = false;
        for at in 0..self.steps.len() {
            let mut simpler = self.sql(at).map(Sql::simpler).unwrap_or_default();
            simpler.reverse();
            while let Some(sql) = simpler.pop() {
                if self.try_sql(at, sql) {
                    progress = true;
                    simpler = self.sql(at).map(Sql::simpler).unwrap_or_default();
                    simpler.reverse();
                }
                if self.is_late() {
                    return progress;
                }
            }
        }
        progress
    }

    fn sql(&self, at: usize) -> Option<&Sql> {
        self.steps.get(at).and_then(statement).map(|each| &each.sql)
    }

    /// With this statement instead. What ranks its rows stays: only ties depend on it.
    fn try_sql(&mut self, at: usize, sql: Sql) -> bool {
        let mut steps = self.steps.clone();
        if let Some(Step::Run(statement)) = steps.get_mut(at) {
            statement.sql = sql;
        }
        self.try_steps(steps)
    }
}

fn statement(step: &Step) -> Option<&Statement> {
    match step {
        Step::Run(statement) => Some(statement),
        Step::Restart | Step::Kill => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sql::{list, text};
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_does_not_matter_is_taken_away() {
        let step = |sql| Step::Run(Statement::exact(sql));
        let rows = list((0..40).map(|row| text(format!("({row})"))));
        let insert = Sql::Row(vec![text("INSERT INTO t VALUES "), rows]);
        let mut steps: Vec<Step> = (0..60)
            .map(|at| step(text(format!("SELECT {at}"))))
            .collect();
        steps.insert(30, step(insert));
        let rendered = |steps: &[Step]| -> Vec<String> {
            let statements = steps.iter().filter_map(statement);
            statements.map(|each| each.sql.render()).collect()
        };
        // It takes statement 17, and row 23 of the INSERT.
        let mut runs = 0;
        let until = Instant::now() + Duration::from_secs(60);
        let shrunk = shrink(steps, until, &mut |steps| {
            runs += 1;
            let texts = rendered(steps);
            texts.iter().any(|text| text == "SELECT 17")
                && texts.iter().any(|text| text.contains("(23)"))
        });
        assert_eq!(
            rendered(&shrunk),
            ["SELECT 17", "INSERT INTO t VALUES (23)"]
        );
        assert!(runs < 400, "{runs} runs");
    }
}
