//! Rows that an UPDATE or DELETE changes, and that an index of InnoDB leaves out.

use super::compare::{indexes_of, rows_of};
use super::plans;
use super::sides::{Sides, neutral};
use crate::client::{Done, Refusal, Reply};

/// Whose rows an UPDATE or DELETE changes: all for which a condition holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Changed<'t> {
    /// A table whose indexes may have been used, and what stands before it and behind it in FROM.
    table: &'t str,
    before: &'t str,
    behind: &'t str,
    condition: &'t str,
    /// In which order it comes to them: an index may leave others out when it is read backwards.
    order: &'t str,
    /// Or so many of them, of which an index may leave out more.
    limited: bool,
}

/// A way to find rows: a hint for the table, one for the first table of a join, and whether that is
/// read first.
#[derive(Clone, Copy, Debug, Default)]
struct Way<'h> {
    hint: &'h str,
    first: &'h str,
    straight: &'h str,
}

impl<'t> Changed<'t> {
    fn of(text: &'t str) -> Option<Self> {
        // A join may have none.
        let joined = text.contains(" JOIN ").then_some((text, "TRUE"));
        let (head, rest) = text.rsplit_once(" WHERE ").or(joined)?;
        let (condition, order) = rest.split_once(" ORDER BY ").unwrap_or((rest, ""));
        let tables = match head.strip_prefix("UPDATE ") {
            Some(target) => target.strip_prefix("IGNORE ").unwrap_or(target),
            None => head.strip_prefix("DELETE ")?.split_once("FROM ")?.1,
        };
        let tables = tables.split(" SET ").next()?;
        let limited = order.contains(" LIMIT ");
        let order = order.split(" LIMIT ").next()?;
        let Some((first, second)) = tables.split_once("JOIN ") else {
            let table = tables.split(' ').next()?;
            let (before, behind) = ("", "");
            return Some(Self {
                table,
                before,
                behind,
                condition,
                order,
                limited,
            });
        };
        // `t x JOIN t2 y ON ..`
        let (table, behind) = second.split_once(" y ")?;
        let before = &tables[..first.len() + "JOIN ".len()];
        Some(Self {
            table,
            before,
            behind,
            condition,
            order,
            limited,
        })
    }

    /// How many rows InnoDB finds in this way; in this order if there is one.
    fn count(&self, sides: &mut Sides, way: Way<'_>, order: &str) -> Option<u64> {
        let Way {
            hint,
            first,
            straight,
        } = way;
        let Self {
            table,
            before,
            behind,
            condition,
            ..
        } = self;
        let alias = if before.is_empty() { "" } else { " y" };
        let before = before.replacen(" x ", &format!(" x {first} "), 1);
        let from = format!("{before}{table}{alias} {hint} {behind}");
        // Only a LIMIT keeps the order of rows that are counted.
        let order = match order {
            "" => String::new(),
            order => format!(" ORDER BY {order} LIMIT {}", u64::MAX),
        };
        // The server makes one SELECT of the two, and joins as the outer one says.
        let found = format!("SELECT {straight} 1 FROM {from} WHERE {condition}{order}");
        let rows = rows_of(
            sides,
            &format!("SELECT {straight} COUNT(*) FROM ({found}) found"),
        )?;
        let cell = rows.into_iter().next()?.into_iter().next()??;
        String::from_utf8(cell).ok()?.parse().ok()
    }

    /// Whether InnoDB finds by its indexes just so many rows fewer than in the table, or more: a
    /// key looked up may be cut to what its column has place for. Indexes that are merged find
    /// what the parts of an OR ask for.
    fn leaves_out(&self, sides: &mut Sides, rows: u64) -> bool {
        let of_part = |part| Changed {
            condition: part,
            ..*self
        };
        self.leaves_out_together(sides, rows)
            || parts_of_or(self.condition)
                .into_iter()
                .any(|part| of_part(part).leaves_out_together(sides, rows))
    }

    fn leaves_out_together(&self, sides: &mut Sides, rows: u64) -> bool {
        let none = Way {
            hint: "USE INDEX ()",
            first: "USE INDEX ()",
            straight: "",
        };
        let Some(all) = self.count(sides, none, "") else {
            return false;
        };
        let seconds = hints(sides, self.table);
        let firsts = match self.before.split_once(" x ") {
            Some((first, _)) => hints(sides, first),
            None => Vec::new(),
        };
        let mut ways = Vec::new();
        for hint in &seconds {
            for straight in ["", "STRAIGHT_JOIN"] {
                ways.push(Way {
                    hint,
                    first: "",
                    straight,
                });
            }
        }
        ways.extend(firsts.iter().map(|first| Way {
            first,
            ..Way::default()
        }));
        // A row of a join may be found several times, and is changed once.
        let or_more = self.limited || !self.before.is_empty();
        let mut is_left_out = |way: Way<'_>, order: &str| {
            let found = self.count(sides, way, order);
            let left_out = found.map(|found| all.abs_diff(found));
            left_out.is_some_and(|it| it == rows || (or_more && it > rows))
        };
        ways.into_iter()
            .any(|way| is_left_out(way, "") || is_left_out(way, self.order))
    }
}

/// The conditions of which one must hold, if there are several.
fn parts_of_or(condition: &str) -> Vec<&str> {
    let parts: Vec<_> = condition.split(" OR ").collect();
    let is_whole = |part: &&str| part.matches('(').count() == part.matches(')').count();
    if parts.len() > 1 && parts.iter().all(is_whole) {
        parts
    } else {
        Vec::new()
    }
}

/// What makes InnoDB use each of a table's indexes; all, which may be merged; and what it likes.
fn hints(sides: &mut Sides, table: &str) -> Vec<String> {
    let mut indexes = indexes_of(sides, table);
    indexes.push(indexes.join("`, `"));
    let hints = indexes.iter().map(|it| format!("FORCE INDEX (`{it}`)"));
    hints.chain([String::new()]).collect()
}

/// How many rows an UPDATE or DELETE has found.
pub fn matched(done: &Done) -> u64 {
    let matched = done.info.strip_prefix("Rows matched: ");
    let matched = matched.and_then(|rest| rest.split(' ').next()?.parse().ok());
    matched.unwrap_or(done.affected)
}

/// Whether InnoDB, behind an UPDATE or DELETE, finds by its indexes just so many rows fewer than in
/// the table.
pub fn leaves_out(sides: &mut Sides, text: &str, rows: u64) -> bool {
    let Some(changed) = Changed::of(text) else {
        return false;
    };
    changed.leaves_out(sides, rows)
}

/// Whether InnoDB, given the rows that Inkstone has left, would leave so many of them out by an
/// index, too.
pub fn would_leave_out(sides: &mut Sides, text: &str, rows: u64) -> bool {
    let Some(changed) = Changed::of(text) else {
        return false;
    };
    // A join with itself has one copy.
    let first = changed.before.strip_suffix(" x JOIN ");
    let is_simple = changed.before.is_empty() || first.is_some_and(|first| !first.contains(' '));
    let copied = is_simple.then(|| sides.copy_to_innodb(changed.table));
    let Some(copy) = copied.flatten() else {
        return false;
    };
    let before = match first {
        None => Some(String::new()),
        Some(first) if first == changed.table => Some(format!("{copy} x JOIN ")),
        Some(first) => (sides.copy_to_innodb(first)).map(|first| format!("{first} x JOIN ")),
    };
    before.is_some_and(|before| {
        let of_copy = Changed {
            table: &copy,
            before: &before,
            ..changed
        };
        of_copy.leaves_out(sides, rows)
    })
}

/// An UPDATE of one table, with this hint.
fn hinted(text: &str, hint: &str) -> Option<String> {
    let (head, rest) = text.split_once(" SET ")?;
    let target = head.split(" FORCE INDEX ").next()?;
    let table = target.strip_prefix("UPDATE ")?;
    let table = table.strip_prefix("IGNORE ").unwrap_or(table);
    let is_one = !table.contains([' ', ',']);
    is_one.then(|| format!("{target} {hint} SET {rest}"))
}

/// Whether InnoDB refuses an UPDATE that it has done by an index when it uses none, and names the
/// row that Inkstone names.
pub fn refuses_by_no_index(sides: &mut Sides, text: &str, inkstone: &Refusal) -> bool {
    let reply = hinted(text, "USE INDEX ()").and_then(|text| sides.ask(&text));
    match reply {
        Some(Reply::Refused(innodb)) => {
            innodb.code == inkstone.code && neutral(&innodb.message) == neutral(&inkstone.message)
        }
        _ => false,
    }
}

/// Whether InnoDB does an UPDATE that it has refused when it is made to use the index of Inkstone's
/// plan, and finds as many rows as Inkstone.
pub fn is_done_by_inkstones_plan(sides: &mut Sides, text: &str, inkstone: &Done) -> bool {
    let hint = plans::inkstones_index(sides, text);
    let text = hint.and_then(|hint| hinted(text, &hint));
    match text.and_then(|text| sides.ask(&text)) {
        Some(Reply::Done(innodb)) => {
            innodb.affected == inkstone.affected && innodb.info == inkstone.info
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, hinted, parts_of_or};

    #[test]
    fn parts_of_a_condition() {
        let parts = ["a LIKE CONCAT('', 'x')", "b > 1"];
        assert_eq!(parts_of_or("a LIKE CONCAT('', 'x') OR b > 1"), parts);
        assert!(parts_of_or("a > 1").is_empty());
        assert!(parts_of_or("(a > 1 OR b > 1) AND (c > 1 OR d > 1)").is_empty());
    }

    #[test]
    fn an_update_by_no_index() {
        let of = |text| hinted(text, "USE INDEX ()");
        let by_index = "UPDATE IGNORE t1 FORCE INDEX (`k`) SET a = 1 WHERE b = 2";
        let without = "UPDATE IGNORE t1 USE INDEX () SET a = 1 WHERE b = 2";
        assert_eq!(of(by_index), Some(without.to_owned()));
        let plain = "UPDATE t1 SET a = 1";
        assert_eq!(
            of(plain),
            Some("UPDATE t1 USE INDEX () SET a = 1".to_owned())
        );
        assert_eq!(of("UPDATE t1 x JOIN t2 y ON x.a = y.b SET x.c = 1"), None);
        assert_eq!(of("DELETE FROM t1"), None);
    }

    #[test]
    fn whose_rows_are_changed() {
        let of = |text| {
            let changed = Changed::of(text)?;
            let from = [changed.before, changed.table, changed.behind];
            Some((from, changed.condition))
        };
        let update = "UPDATE IGNORE t1 FORCE INDEX (k) SET a = 'x' WHERE b LIKE 'y%'";
        assert_eq!(of(update), Some((["", "t1", ""], "b LIKE 'y%'")));
        let delete = "DELETE FROM t2 WHERE b > 1 AND b < 5";
        assert_eq!(of(delete), Some((["", "t2", ""], "b > 1 AND b < 5")));
        let sorted = "UPDATE t1 SET a = 1 WHERE b = 2 ORDER BY c DESC";
        assert_eq!(of(sorted), Some((["", "t1", ""], "b = 2")));
        let order = |text| Changed::of(text).map(|changed| changed.order);
        assert_eq!(order(sorted), Some("c DESC"));
        let joined = "UPDATE t1 x JOIN t2 y ON x.a = y.b SET x.c = 1 WHERE y.d = 1";
        let from = ["t1 x JOIN ", "t2", "ON x.a = y.b"];
        assert_eq!(of(joined), Some((from, "y.d = 1")));
        let joined = "DELETE x FROM t1 x JOIN t2 y ON x.a = y.b WHERE y.d = 1";
        assert_eq!(of(joined), Some((from, "y.d = 1")));
        let unlimited = "UPDATE t1 x JOIN t2 y ON x.a = y.b SET x.c = 1";
        assert_eq!(of(unlimited), Some((from, "TRUE")));
        let limited = "DELETE FROM t2 WHERE b > 1 ORDER BY c LIMIT 3";
        assert_eq!(of(limited), Some((["", "t2", ""], "b > 1")));
        assert!(Changed::of(limited).is_some_and(|changed| changed.limited));
        assert_eq!(order(limited), Some("c"));
        for other in [
            "DELETE FROM t2",
            "INSERT INTO t1 SELECT * FROM t2 WHERE a = 1",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
