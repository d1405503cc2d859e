//! Rows that a statement reads from the table that it inserts into: the server puts them into a
//! temporary table first. Where an index gives them in the order of ORDER BY they are not sorted
//! there, and where one of them is a long text the temporary table (of Aria) does not give them
//! back in the order in which they came: a short row behind a long one has gone to an earlier page.
//! So the order that is asked for is kept only by the plan that sorts, whichever engine has it.
//! `SELECT SQL_BUFFER_RESULT` shows the same of one table alone, of any engine.

use super::compare::Difference;
use super::plans;
use super::sides::{Outcome, Side, Sides, neutral};
use super::step::Step;
use crate::client::Reply;

/// Whether a statement inserts rows that it reads in an order.
pub fn inserts_in_order(text: &str) -> bool {
    let verb = ["INSERT", "REPLACE"]
        .iter()
        .any(|verb| text.starts_with(verb));
    verb && text.contains(" SELECT ") && text.contains(" ORDER BY ")
}

/// What differs behind a statement that has given the same on both sides, but may have put rows in
/// in another order: which of several was refused or replaced, or which number it has got.
pub fn unequal_rows(sides: &mut Sides, text: &str) -> Option<Difference> {
    let are_equal = !sides.buffered_otherwise() || have_the_same_rows(sides, text);
    (!are_equal).then(|| Difference {
        what: "INSERT: rows that were in order".to_owned(),
        innodb: "(other rows than Inkstone)\n".to_owned(),
        inkstone: "(other rows than InnoDB)\n".to_owned(),
    })
}

fn have_the_same_rows(sides: &mut Sides, text: &str) -> bool {
    let target = text.split_once("INTO ").map_or("", |(_, rest)| rest);
    let table = target.split(' ').next().unwrap_or_default();
    let select = format!("SELECT * FROM {table} USE INDEX ()");
    let rows = [Side::Innodb, Side::Inkstone].map(|side| match sides.ask_of(side, &select) {
        Some(Reply::Rows(rows)) => {
            let mut rows = rows.rows;
            rows.sort();
            Some(rows)
        }
        _ => None,
    });
    matches!(rows, [Some(a), Some(b)] if a == b)
}

/// Whether the last of these steps, of which only one engine has sorted the rows, gives the same on
/// both sides, and leaves the same rows, when InnoDB is made to read them by Inkstone's plan. The
/// steps before are done again in new databases.
pub fn proved(sides: &mut Sides, steps: &[Step]) -> bool {
    same_by_inkstones_plan(sides, steps).unwrap_or(false)
}

fn same_by_inkstones_plan(sides: &mut Sides, steps: &[Step]) -> Option<bool> {
    let (Step::Run(last), before) = steps.split_last()? else {
        return None;
    };
    let text = last.sql.render();
    sides.renew().ok()?;
    for step in before {
        sides.run(step).ok()?;
    }
    let inkstones = plans::plan(sides, Side::Inkstone, &text)?;
    let by_inkstones = plans::inserts_by(&text, &inkstones)?;
    let made = plans::plan(sides, Side::Innodb, &by_inkstones)?;
    // The hint must have been followed.
    if plans::is_one_sorted([&made, &inkstones]) {
        return Some(false);
    }
    let innodb = sides.again(Side::Innodb, &by_inkstones)?;
    let inkstone = sides.again(Side::Inkstone, &text)?;
    Some(are_equal(&innodb, &inkstone) && have_the_same_rows(sides, &text))
}

fn are_equal(innodb: &Outcome, inkstone: &Outcome) -> bool {
    let replies = match (&innodb.reply, &inkstone.reply) {
        (Reply::Refused(a), Reply::Refused(b)) => {
            a.code == b.code && neutral(&a.message) == neutral(&b.message)
        }
        (a, b) => a == b,
    };
    replies && innodb.warnings == inkstone.warnings
}

#[cfg(test)]
mod tests {
    use super::inserts_in_order;

    #[test]
    fn statements_that_insert_in_an_order() {
        assert!(inserts_in_order(
            "REPLACE INTO t1 (a) SELECT a FROM t1 ORDER BY b LIMIT 20"
        ));
        assert!(!inserts_in_order(
            "INSERT INTO t1 (a) SELECT seq FROM seq_1_to_3"
        ));
        assert!(!inserts_in_order("SELECT a FROM t1 ORDER BY b"));
    }
}
