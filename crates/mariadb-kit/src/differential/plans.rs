//! Which plan a statement has on each side, and the same statement made to have the other's.

use super::sides::{Side, Sides};
use crate::client::{Cell, Reply};

/// How a table is read: a line of EXPLAIN, but for how many rows are expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its name in the statement.
    table: String,
    /// One, several that are merged, or none.
    indexes: Vec<String>,
    /// The rest of the line.
    way: Vec<Cell>,
}

impl Access {
    fn of(line: &[Cell]) -> Option<Self> {
        let [_, _, table, kind, _, key, length, by, _, extra] = line else {
            return None;
        };
        let text =
            |cell: &Cell| String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned();
        let indexes = text(key);
        let names = indexes.split(',').filter(|name| !name.is_empty());
        Some(Self {
            table: text(table),
            indexes: names.map(str::to_owned).collect(),
            way: [kind, length, by, extra].map(Clone::clone).to_vec(),
        })
    }

    /// All rows of a table, by no index.
    fn whole(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            indexes: Vec::new(),
            way: Vec::new(),
        }
    }

    /// What makes the optimizer use these indexes.
    fn hint(&self) -> String {
        if self.indexes.is_empty() {
            "USE INDEX ()".to_owned()
        } else {
            format!("FORCE INDEX (`{}`)", self.indexes.join("`, `"))
        }
    }

    /// The same, of a plan that comes to each entry, where the optimizer would rather come to the
    /// first of each group.
    fn hint_of_each_entry(&self) -> String {
        let indexes = self.indexes.join("`, `");
        format!("FORCE INDEX (`{indexes}`) IGNORE INDEX FOR GROUP BY (`{indexes}`)")
    }

    /// Whether only some entries of each group are come to.
    fn is_loose(&self) -> bool {
        self.says("Using index for group-by")
    }

    /// Whether rows are put into a temporary table as they come, and not sorted there.
    fn is_buffer(&self) -> bool {
        self.says("Using temporary") && !self.says("Using filesort")
    }

    fn says(&self, words: &str) -> bool {
        let extra = self.way.last().and_then(Option::as_deref);
        String::from_utf8_lossy(extra.unwrap_or_default()).contains(words)
    }
}

/// Tables in the order in which they are read.
pub type Plan = Vec<Access>;

/// A side's plan for a statement.
pub fn plan(sides: &mut Sides, side: Side, statement: &str) -> Option<Plan> {
    match sides.ask_of(side, &format!("EXPLAIN {statement}"))? {
        Reply::Rows(rows) => rows.rows.iter().map(|line| Access::of(line)).collect(),
        _ => None,
    }
}

/// Whether one of two plans for the same rows of one table has them in order by an index, and puts
/// them into a temporary table, and the other one sorts them there.
pub fn is_one_sorted(plans: [&Plan; 2]) -> bool {
    match plans.map(|plan| &plan[..]) {
        [[a], [b]] => {
            a.is_buffer() && b.says("Using filesort") || b.is_buffer() && a.says("Using filesort")
        }
        _ => false,
    }
}

/// The hint for the index by which Inkstone finds the rows of a statement of one table.
pub fn inkstones_index(sides: &mut Sides, text: &str) -> Option<String> {
    match &plan(sides, Side::Inkstone, text)?[..] {
        [only] if !only.indexes.is_empty() => Some(only.hint()),
        _ => None,
    }
}

/// A SELECT of one table, or of tables `x` and `y`, that InnoDB is made to do by the indexes, and
/// in the order, of Inkstone's plan.
pub fn by_inkstones_plan(sides: &mut Sides, text: &str) -> Option<String> {
    let inkstones = plan(sides, Side::Inkstone, text)?;
    match &inkstones[..] {
        [only] => {
            let innodbs = plan(sides, Side::Innodb, text)?;
            let is_loose = matches!(&innodbs[..], [innodbs] if innodbs.is_loose());
            let is_of_each = is_loose && !only.is_loose() && !only.indexes.is_empty();
            let hint = if is_of_each {
                only.hint_of_each_entry()
            } else {
                only.hint()
            };
            of_one_table_by(text, &hint)
        }
        [first, second] => join_by(text, first, second),
        _ => None,
    }
}

/// An INSERT or REPLACE .. SELECT of one table that InnoDB is made to read by the index of
/// Inkstone's plan, or by none.
pub fn inserts_by(text: &str, inkstones: &Plan) -> Option<String> {
    match &inkstones[..] {
        [only] => of_one_table_by(text, &only.hint()),
        _ => None,
    }
}

/// `SELECT .. FROM t ..`, with a hint or without one, by this one.
fn of_one_table_by(text: &str, hint: &str) -> Option<String> {
    let (head, rest) = text.split_once(" FROM ")?;
    let (table, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let rest = match rest.strip_prefix("FORCE INDEX (") {
        Some(hinted) => hinted.split_once(')')?.1.trim_start(),
        None => rest,
    };
    Some(format!("{head} FROM {table} {hint} {rest}"))
}

/// `SELECT .. FROM t x JOIN t2 y ON ..`, by these.
fn join_by(text: &str, first: &Access, second: &Access) -> Option<String> {
    let (head, rest) = text.strip_prefix("SELECT ")?.split_once(" FROM ")?;
    let (left, rest) = rest.split_once(" x ")?;
    let (way, rest) = rest.split_once("JOIN ")?;
    let (right, rest) = rest.split_once(" y ON ")?;
    let named = |name: &str, access: &Access| {
        let table = if name == "x" { left } else { right };
        format!("{table} {name} {}", access.hint())
    };
    match (&*first.table, &*second.table) {
        ("x", "y") if !way.is_empty() => {
            let (x, y) = (named("x", first), named("y", second));
            Some(format!("SELECT {head} FROM {x} {way}JOIN {y} ON {rest}"))
        }
        ("x", "y") | ("y", "x") if way.is_empty() => {
            let (one, other) = (named(&first.table, first), named(&second.table, second));
            Some(format!(
                "SELECT {head} FROM {one} STRAIGHT_JOIN {other} ON {rest}"
            ))
        }
        _ => None,
    }
}

/// A statement that is to use an index, made to use none.
fn unhinted(text: &str) -> Option<String> {
    let (before, rest) = text.split_once(" FORCE INDEX (")?;
    let (_, behind) = rest.split_once(')')?;
    Some(format!("{before} USE INDEX (){behind}"))
}

/// The same, also of a statement of one table, or of tables `x` and `y`, that says nothing of
/// indexes.
pub fn by_no_index(text: &str) -> Option<String> {
    let unhinted = unhinted(text);
    if unhinted.is_some() {
        return unhinted;
    }
    if text.contains("JOIN ") {
        return join_by(text, &Access::whole("x"), &Access::whole("y"));
    }
    let (head, rest) = text.split_once(" FROM ")?;
    let (table, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(format!("{head} FROM {table} USE INDEX () {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(table: &str, indexes: &[&str]) -> Access {
        Access {
            table: table.to_owned(),
            indexes: indexes.iter().map(|&name| name.to_owned()).collect(),
            way: Vec::new(),
        }
    }

    #[test]
    fn statements_without_an_index() {
        let of = |text| by_no_index(text).unwrap_or_default();
        assert_eq!(
            of("SELECT a, MIN(b) FROM t1 GROUP BY a"),
            "SELECT a, MIN(b) FROM t1 USE INDEX () GROUP BY a"
        );
        assert_eq!(
            of("SELECT a FROM t1 FORCE INDEX (k) GROUP BY a"),
            "SELECT a FROM t1 USE INDEX () GROUP BY a"
        );
        assert_eq!(of("SELECT * FROM t1"), "SELECT * FROM t1 USE INDEX () ");
        assert_eq!(
            of("SELECT x.a FROM t1 x LEFT JOIN t2 y ON x.a = y.a"),
            "SELECT x.a FROM t1 x USE INDEX () LEFT JOIN t2 y USE INDEX () ON x.a = y.a"
        );
    }

    #[test]
    fn joins_as_they_are_made() {
        let (x, y) = (access("x", &[]), access("y", &["k1", "k2"]));
        let join = "SELECT x.a, y.* FROM t1 x JOIN t2 y ON x.a = y.b WHERE x.c = 1";
        assert_eq!(
            join_by(join, &y, &x).unwrap_or_default(),
            "SELECT x.a, y.* FROM t2 y FORCE INDEX (`k1`, `k2`) STRAIGHT_JOIN t1 x USE INDEX () \
             ON x.a = y.b WHERE x.c = 1"
        );
        let left = "SELECT x.a, y.* FROM t1 x LEFT JOIN t1 y ON x.a = y.b";
        assert_eq!(
            join_by(left, &x, &y).unwrap_or_default(),
            "SELECT x.a, y.* FROM t1 x USE INDEX () LEFT JOIN t1 y FORCE INDEX (`k1`, `k2`) ON x.a = y.b"
        );
        assert_eq!(join_by(left, &y, &x), None);
    }

    #[test]
    fn one_table_by_an_index() {
        let k1 = access("t1", &["k1"]);
        let of = |text| of_one_table_by(text, &k1.hint()).unwrap_or_default();
        assert_eq!(
            of("SELECT MIN(a) FROM t1 WHERE a > 1"),
            "SELECT MIN(a) FROM t1 FORCE INDEX (`k1`) WHERE a > 1"
        );
        assert_eq!(
            of("SELECT a FROM t1 FORCE INDEX (k2) WHERE a > 1"),
            "SELECT a FROM t1 FORCE INDEX (`k1`) WHERE a > 1"
        );
    }

    #[test]
    fn rows_that_are_sorted_in_a_temporary_table_and_rows_that_are_not() {
        let plan = |index: &[&str], extra: &str| {
            vec![Access {
                way: vec![Some(extra.as_bytes().to_vec())],
                ..access("t1", index)
            }]
        };
        let by_index = plan(&["k5"], "Using temporary");
        let sorted = plan(&[], "Using temporary; Using filesort");
        let direct = plan(&["k5"], "");
        assert!(is_one_sorted([&by_index, &sorted]));
        assert!(is_one_sorted([&sorted, &by_index]));
        assert!(!is_one_sorted([&sorted, &sorted]));
        assert!(!is_one_sorted([&by_index, &direct]));
        let insert = "INSERT IGNORE INTO t1 (a, b) SELECT b, 'x' FROM t1 ORDER BY c LIMIT 20";
        assert_eq!(
            inserts_by(insert, &sorted).unwrap_or_default(),
            "INSERT IGNORE INTO t1 (a, b) SELECT b, 'x' FROM t1 USE INDEX () ORDER BY c LIMIT 20"
        );
    }

    #[test]
    fn lines_of_explain() {
        let cell = |text: &str| Some(text.as_bytes().to_vec());
        let line = |rows: &str| {
            let cells = [
                "1",
                "SIMPLE",
                "t1",
                "index_merge",
                "k1,k2",
                "k1,k2",
                "5,6",
                "",
                rows,
                "Using union",
            ];
            cells.map(cell)
        };
        let (one, other) = (Access::of(&line("3")), Access::of(&line("4")));
        assert_eq!(one, other);
        assert_eq!(
            one.map(|access| access.hint()).unwrap_or_default(),
            "FORCE INDEX (`k1`, `k2`)"
        );
        let loose = "1 SIMPLE t1 range k1 k1 5 - 1 Using_where;_Using_index_for_group-by";
        let of = |line: &str| {
            let cells = line.split(' ').map(|text| cell(&text.replace('_', " ")));
            Access::of(&cells.collect::<Vec<Cell>>())
        };
        let is_loose = |line| of(line).map(|access| access.is_loose());
        assert_eq!(is_loose(loose), Some(true));
        let each = "1 SIMPLE t1 ref k1 k1 5 const 7 Using_index";
        assert_eq!(is_loose(each), Some(false));
        let hint = of(each).map(|access| access.hint_of_each_entry());
        assert_eq!(
            hint.unwrap_or_default(),
            "FORCE INDEX (`k1`) IGNORE INDEX FOR GROUP BY (`k1`)"
        );
    }
}
