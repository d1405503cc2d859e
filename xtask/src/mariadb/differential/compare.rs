//! Whether both engines did the same.

use super::accepted::{self, Accepted};
use super::sides::{Outcome, Sides, Warning, neutral};
use super::step::{Expected, Representative, Statement};
use crate::mariadb::client::{Cell, Done, Reply};
use std::collections::HashMap;
use std::fmt::Write;

/// Two outcomes that are not the same.
#[derive(Clone, Debug)]
pub struct Difference {
    /// In few words, without anything of the case: differences of the same words are taken for one.
    pub what: String,
    pub innodb: String,
    pub inkstone: String,
}

/// How two outcomes compare.
pub enum Judged {
    Equal,
    Differ(Difference),
    /// They differ as they may, and what follows cannot be compared.
    Ends,
}

/// Compares what a statement gave; a difference that is accepted is noted in `accepted`.
pub fn compare(
    sides: &mut Sides,
    statement: &Statement,
    outcomes: &[Outcome; 2],
    accepted: &mut Accepted,
) -> Judged {
    let text = statement.sql.render();
    let Some(what) = unequal(sides, statement, &text, outcomes) else {
        return Judged::Equal;
    };
    let [innodb, inkstone] = outcomes;
    if what == Aspect::OnlyInnodbsOrder {
        *accepted.entry(accepted::INNODB_UNORDERED).or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::OnlyInnodbsIndex {
        *accepted.entry(accepted::INNODB_LEAVES_OUT).or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::OnlyInnodbsPlan {
        *accepted
            .entry(accepted::INNODB_BY_ANOTHER_INDEX)
            .or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::OnlyInnodbsChoice {
        *accepted
            .entry(accepted::INNODB_WOULD_LEAVE_OUT)
            .or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::OnlyInnodbsJoin {
        *accepted.entry(accepted::INNODB_JOINS_SO_TOO).or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::OnlyInnodbsChange {
        *accepted.entry(accepted::INNODB_CHANGES_FEWER).or_default() += 1;
        // From here on they have other rows.
        return Judged::Ends;
    }
    if what == Aspect::OnlyInnodbsChangePlan {
        *accepted
            .entry(accepted::INNODB_WOULD_CHANGE_FEWER)
            .or_default() += 1;
        return Judged::Ends;
    }
    if what == Aspect::OnlyInnodbsKey {
        *accepted.entry(accepted::INNODB_COUNTS_KEYS).or_default() += 1;
        return Judged::Equal;
    }
    if accepted::accept(&text, what, innodb, inkstone, accepted) {
        return Judged::Equal;
    }
    if sides.only_innodb_is_corrupt() {
        *accepted.entry(accepted::INNODB_CORRUPT).or_default() += 1;
        return Judged::Ends;
    }
    Judged::Differ(Difference {
        what: describe(what, &text, outcomes),
        innodb: shown(innodb),
        inkstone: shown(inkstone),
    })
}

/// What of two outcomes is not equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    Outcome,
    Message,
    Rows,
    Order,
    OnlyInnodbsOrder,
    OnlyInnodbsIndex,
    OnlyInnodbsPlan,
    OnlyInnodbsChoice,
    OnlyInnodbsJoin,
    OnlyInnodbsChange,
    OnlyInnodbsChangePlan,
    OnlyInnodbsKey,
    Affected,
    LastInsertId,
    Info,
    Warnings,
}

fn unequal(
    sides: &mut Sides,
    statement: &Statement,
    text: &str,
    [innodb, inkstone]: &[Outcome; 2],
) -> Option<Aspect> {
    match (&innodb.reply, &inkstone.reply) {
        (Reply::Refused(a), Reply::Refused(b)) => {
            if a.code != b.code {
                return Some(Aspect::Outcome);
            }
            if neutral(&a.message) != neutral(&b.message) {
                return match names_other_key(sides, text, innodb, inkstone) {
                    true => Some(Aspect::OnlyInnodbsKey),
                    false => Some(Aspect::Message),
                };
            }
        }
        (Reply::Rows(a), Reply::Rows(b)) => {
            if let Some(aspect) = unequal_rows(sides, statement, text, &a.rows, &b.rows) {
                return Some(aspect);
            }
        }
        (Reply::Done(a), Reply::Done(b)) => {
            if a.affected != b.affected {
                let more = matched(b).saturating_sub(matched(a));
                if more > 0 && leaves_out(sides, text, more) {
                    return Some(Aspect::OnlyInnodbsChange);
                }
                let fewer = matched(a).saturating_sub(matched(b));
                if fewer > 0 && would_leave_out(sides, text, fewer) {
                    return Some(Aspect::OnlyInnodbsChangePlan);
                }
                return Some(Aspect::Affected);
            }
            if a.last_insert_id != b.last_insert_id {
                return Some(Aspect::LastInsertId);
            }
            if a.info != b.info {
                return Some(Aspect::Info);
            }
        }
        _ => return Some(Aspect::Outcome),
    }
    (innodb.warnings != inkstone.warnings).then_some(Aspect::Warnings)
}

type Row = Vec<Cell>;

fn unequal_rows(
    sides: &mut Sides,
    statement: &Statement,
    text: &str,
    innodb: &[Row],
    inkstone: &[Row],
) -> Option<Aspect> {
    if innodb == inkstone {
        return None;
    }
    if let Expected::Representatives(columns) = &statement.rows {
        let same = innodb.len() == inkstone.len()
            && innodb
                .iter()
                .zip(inkstone)
                .all(|(a, b)| same_representatives(sides, columns, a, b));
        if same {
            return None;
        }
        // InnoDB gives the same rows in Inkstone's order when it is made to use no index.
        let ordered = by_no_index(text).and_then(|text| rows_of(sides, &text));
        return match ordered.as_deref() == Some(inkstone) && sorted(innodb) == sorted(inkstone) {
            true => Some(Aspect::OnlyInnodbsOrder),
            false => Some(Aspect::Rows),
        };
    }
    if matches!(&statement.rows, Expected::Exact) {
        let about_tables = !text.starts_with("SELECT");
        let same = about_tables && named_neutrally(innodb) == named_neutrally(inkstone);
        return (!same).then_some(Aspect::Rows);
    }
    if let Expected::Some(same) = &statement.rows {
        return match sides.ask(&same.render()) {
            Some(Reply::Rows(rows)) if rows.rows == inkstone => Some(Aspect::OnlyInnodbsOrder),
            _ => Some(Aspect::Rows),
        };
    }
    if sorted(innodb) != sorted(inkstone) {
        let same = |rows: Option<Vec<Row>>| rows.is_some_and(|it| sorted(&it) == sorted(inkstone));
        let by_none = unhinted(text).and_then(|text| rows_of(sides, &text));
        if same(by_none) || same(with_hint(sides, text, "USE INDEX ()")) {
            return Some(Aspect::OnlyInnodbsIndex);
        }
        if joins_of(sides, text).any(|join| same(rows_of(sides, &join))) {
            return Some(Aspect::OnlyInnodbsJoin);
        }
        let mut hints = indexes(sides, text);
        // Several may be merged.
        hints.push(hints.join("`, `"));
        let by_another = hints.into_iter().any(|index| {
            let hint = format!("FORCE INDEX (`{index}`)");
            same(with_hint(sides, text, &hint))
        });
        return Some(match (by_another, has_fraction(text)) {
            (true, true) => Aspect::OnlyInnodbsPlan,
            (true, false) => Aspect::OnlyInnodbsChoice,
            (false, _) => Aspect::Rows,
        });
    }
    match &statement.rows {
        Expected::Ranked(ranks) => match rank_of(sides, &ranks.render()) {
            Some(rank_of) if is_ranked(&rank_of, inkstone) => {
                (!is_ranked(&rank_of, innodb)).then_some(Aspect::OnlyInnodbsOrder)
            }
            _ => Some(Aspect::Order),
        },
        _ => None,
    }
}

/// Table and rest of `SELECT * FROM t ...`.
fn of_one_table(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("SELECT * FROM ")?.split_once(' ')
}

/// Whether a literal has a fraction of a second.
fn has_fraction(text: &str) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    text.match_indices('.').any(|(at, _)| {
        at > 2 && digit(bytes.get(at + 1)) && digit(bytes.get(at - 1)) && bytes[at - 3] == b':'
    })
}

/// Whose rows an UPDATE or DELETE changes: all for which a condition holds.
#[derive(Debug, PartialEq)]
struct Changed<'t> {
    /// A table whose indexes may have been used, and what stands before it and behind it in FROM.
    table: &'t str,
    before: &'t str,
    behind: &'t str,
    condition: &'t str,
}

impl<'t> Changed<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let (head, rest) = text.rsplit_once(" WHERE ")?;
        let (condition, order) = rest.split_once(" ORDER BY ").unwrap_or((rest, ""));
        let tables = match head.strip_prefix("UPDATE ") {
            Some(target) => target.strip_prefix("IGNORE ").unwrap_or(target),
            None => head.strip_prefix("DELETE ")?.split_once("FROM ")?.1,
        };
        let tables = tables.split(" SET ").next()?;
        if order.contains(" LIMIT ") {
            return None;
        }
        let Some((first, second)) = tables.split_once("JOIN ") else {
            let table = tables.split(' ').next()?;
            let (before, behind) = ("", "");
            return Some(Self {
                table,
                before,
                behind,
                condition,
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
        })
    }

    /// How many rows InnoDB finds, with a hint for the table and one for the first table of a join.
    fn count(&self, sides: &mut Sides, hint: &str, first: &str) -> Option<u64> {
        let Self {
            table,
            before,
            behind,
            condition,
        } = self;
        let alias = if before.is_empty() { "" } else { " y" };
        let before = before.replacen(" x ", &format!(" x {first} "), 1);
        let from = format!("{before}{table}{alias} {hint} {behind}");
        let rows = rows_of(
            sides,
            &format!("SELECT COUNT(*) FROM {from} WHERE {condition}"),
        )?;
        let cell = rows.into_iter().next()?.into_iter().next()??;
        String::from_utf8(cell).ok()?.parse().ok()
    }

    /// Whether InnoDB finds by its indexes just so many rows fewer than in the table.
    fn leaves_out(&self, sides: &mut Sides, rows: u64) -> bool {
        let Some(all) = self.count(sides, "USE INDEX ()", "USE INDEX ()") else {
            return false;
        };
        let mut indexes = indexes_of(sides, self.table);
        // Several may be merged.
        indexes.push(indexes.join("`, `"));
        let mut hints: Vec<String> = indexes
            .iter()
            .map(|index| format!("FORCE INDEX (`{index}`)"))
            .collect();
        // A join may use one of its first table.
        hints.push(String::new());
        hints.into_iter().any(|hint| {
            let found = self.count(sides, &hint, "");
            found.is_some_and(|found| all.checked_sub(found) == Some(rows))
        })
    }
}

/// How many rows an UPDATE or DELETE has found.
fn matched(done: &Done) -> u64 {
    let matched = done.info.strip_prefix("Rows matched: ");
    let matched = matched.and_then(|rest| rest.split(' ').next()?.parse().ok());
    matched.unwrap_or(done.affected)
}

/// Whether InnoDB, behind an UPDATE or DELETE, finds by its indexes just so many rows fewer than in the table.
fn leaves_out(sides: &mut Sides, text: &str, rows: u64) -> bool {
    let Some(changed) = Changed::of(text) else {
        return false;
    };
    changed.leaves_out(sides, rows)
}

/// Whether InnoDB, given the rows that Inkstone has left, would leave so many of them out by an index, too.
fn would_leave_out(sides: &mut Sides, text: &str, rows: u64) -> bool {
    let Some(changed) = Changed::of(text).filter(|changed| changed.before.is_empty()) else {
        return false;
    };
    sides.copy_to_innodb(changed.table).is_some_and(|copy| {
        let of_copy = Changed {
            table: &copy,
            ..changed
        };
        of_copy.leaves_out(sides, rows)
    })
}

/// Whether InnoDB, of an UPDATE of a partitioned table, means the key that Inkstone names: it takes the key's place
/// among its own indexes, which are in the order in which they were made, for one in the order of the server.
fn names_other_key(sides: &mut Sides, text: &str, innodb: &Outcome, inkstone: &Outcome) -> bool {
    let Some(target) = text.strip_prefix("UPDATE ") else {
        return false;
    };
    let target = target.strip_prefix("IGNORE ").unwrap_or(target);
    let table = target.split(' ').next().unwrap_or_default();
    let named = [innodb, inkstone].map(accepted::duplicate_key);
    let [Some(named), Some(violated)] = named else {
        return false;
    };
    // The error itself is the last warning.
    let before = [innodb, inkstone].map(|outcome| outcome.warnings.split_last());
    let [Some((_, before)), Some((_, before_inkstones))] = before else {
        return false;
    };
    let made = indexes_by_age(sides, table);
    let place = made.iter().position(|index| index == violated);
    let shown = indexes_of(sides, table);
    before == before_inkstones
        && named != violated
        && place.and_then(|place| shown.get(place)).map(String::as_str) == Some(named)
}

/// The indexes of a partitioned table's first partition, as InnoDB has made them.
fn indexes_by_age(sides: &mut Sides, table: &str) -> Vec<String> {
    let ask = format!(
        "SELECT i.name FROM information_schema.innodb_sys_indexes i \
         JOIN information_schema.innodb_sys_tables t USING (table_id) \
         WHERE i.name <> 'GEN_CLUST_INDEX' AND t.name = \
           (SELECT MIN(p.name) FROM information_schema.innodb_sys_tables p \
            WHERE p.name LIKE CONCAT(DATABASE(), '/{table}#P#%')) \
         ORDER BY i.index_id"
    );
    let name = |row: Row| String::from_utf8(row.into_iter().next()??).ok();
    let rows = rows_of(sides, &ask).unwrap_or_default();
    rows.into_iter().filter_map(name).collect()
}

/// The names of the table's indexes in InnoDB.
fn indexes(sides: &mut Sides, text: &str) -> Vec<String> {
    let Some((table, _)) = of_one_table(text) else {
        return Vec::new();
    };
    indexes_of(sides, table)
}

fn indexes_of(sides: &mut Sides, table: &str) -> Vec<String> {
    let Some(Reply::Rows(rows)) = sides.ask(&format!("SHOW KEYS FROM {table}")) else {
        return Vec::new();
    };
    let name = |row: Row| String::from_utf8(row.into_iter().nth(2)??).ok();
    let mut names: Vec<String> = rows.rows.into_iter().filter_map(name).collect();
    names.dedup();
    names
}

/// What InnoDB gives for `SELECT * FROM t ...` with an index hint.
fn with_hint(sides: &mut Sides, text: &str, hint: &str) -> Option<Vec<Row>> {
    let (table, rest) = of_one_table(text)?;
    rows_of(sides, &format!("SELECT * FROM {table} {hint} {rest}"))
}

/// What InnoDB gives for a statement.
fn rows_of(sides: &mut Sides, statement: &str) -> Option<Vec<Row>> {
    match sides.ask(statement)? {
        Reply::Rows(rows) => Some(rows.rows),
        _ => None,
    }
}

/// A statement that is to use an index, made to use none.
fn unhinted(text: &str) -> Option<String> {
    let (before, rest) = text.split_once(" FORCE INDEX (")?;
    let (_, behind) = rest.split_once(')')?;
    Some(format!("{before} USE INDEX (){behind}"))
}

/// The same, also of a statement of one table that says nothing of indexes.
fn by_no_index(text: &str) -> Option<String> {
    let unhinted = unhinted(text);
    if unhinted.is_some() || text.contains("JOIN ") {
        return unhinted;
    }
    let (head, rest) = text.split_once(" FROM ")?;
    let (table, rest) = rest.split_once(' ')?;
    Some(format!("{head} FROM {table} USE INDEX () {rest}"))
}

/// `SELECT .. FROM t x JOIN t2 y ON ..` by no index, and by each of those of the second table.
fn joins_of(sides: &mut Sides, text: &str) -> std::vec::IntoIter<String> {
    let parts = || {
        let (head, rest) = text.split_once("JOIN ")?;
        let (table, rest) = rest.split_once(" y ON ")?;
        Some((head, table, rest))
    };
    let Some((head, table, rest)) = parts() else {
        return Vec::new().into_iter();
    };
    let mut hints = vec!["USE INDEX ()".to_owned()];
    let names = indexes_of(sides, table);
    hints.extend(names.iter().map(|name| format!("FORCE INDEX (`{name}`)")));
    let join = |hint: String| format!("{head}JOIN {table} y {hint} ON {rest}");
    hints.into_iter().map(join).collect::<Vec<_>>().into_iter()
}

fn sorted(rows: &[Row]) -> Vec<&Row> {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort();
    sorted
}

fn named_neutrally(rows: &[Row]) -> Vec<Vec<Option<String>>> {
    let neutral_cell = |cell: &Cell| {
        cell.as_ref()
            .map(|bytes| neutral(&String::from_utf8_lossy(bytes)))
    };
    rows.iter()
        .map(|row| row.iter().map(neutral_cell).collect())
        .collect()
}

/// The rank of each row.
fn rank_of(sides: &mut Sides, ranks: &str) -> Option<HashMap<Row, u64>> {
    let Reply::Rows(rows) = sides.ask(ranks)? else {
        return None;
    };
    let rank_of_row = |mut row: Row| {
        let rank = String::from_utf8(row.pop()??).ok()?.parse().ok()?;
        Some((row, rank))
    };
    rows.rows.into_iter().map(rank_of_row).collect()
}

fn is_ranked(rank_of: &HashMap<Row, u64>, rows: &[Row]) -> bool {
    let ranks: Option<Vec<&u64>> = rows.iter().map(|row| rank_of.get(row)).collect();
    ranks.is_some_and(|ranks| ranks.is_sorted())
}

fn same_representatives(sides: &mut Sides, columns: &[Representative], a: &Row, b: &Row) -> bool {
    let cells = a.iter().zip(b).zip(columns);
    let mut same = true;
    for ((a, b), column) in cells {
        same &= match (a, b, column) {
            (a, b, _) if a == b => true,
            (Some(a), Some(b), Representative::As(table, column)) => {
                are_equal(sides, table, column, a, b)
            }
            _ => false,
        };
    }
    same && a.len() == b.len()
}

/// True if a column takes these values for equal.
fn are_equal(sides: &mut Sides, table: &str, column: &str, a: &[u8], b: &[u8]) -> bool {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<f64>().ok();
    let ask = format!(
        "SELECT character_set_name, collation_name FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = '{table}' AND column_name = '{column}'"
    );
    let Some(Reply::Rows(answer)) = sides.ask(&ask) else {
        return false;
    };
    let names: Option<Vec<String>> = answer.rows.first().and_then(|row| {
        let name = |cell: &Cell| String::from_utf8(cell.clone()?).ok();
        row.iter().map(name).collect()
    });
    let Some([charset, collation]) = names.as_deref().and_then(|names| names.first_chunk()) else {
        // Not text: 0 and -0 are equal, and nothing else is.
        return number(a).is_some() && number(a) == number(b);
    };
    let (a, b) = (super::text::hex(a), super::text::hex(b));
    let ask = format!("SELECT _{charset} x'{a}' COLLATE {collation} = _{charset} x'{b}'");
    match sides.ask(&ask) {
        Some(Reply::Rows(answer)) => answer.rows == [[Some(b"1".to_vec())]],
        _ => false,
    }
}

/// The verb, the aspect, and the numbers of errors and warnings that are not the same.
fn describe(aspect: Aspect, text: &str, [innodb, inkstone]: &[Outcome; 2]) -> String {
    let verb: Vec<&str> = text.split_whitespace().take(1).collect();
    let verb = verb.join(" ");
    let codes = |outcome: &Outcome| match &outcome.reply {
        Reply::Refused(refusal) => format!("error {}", refusal.code),
        _ => "success".to_owned(),
    };
    // Those that only one of them has: two statements with the same bug have different others.
    let only = |these: &[Warning], others: &[Warning]| {
        let mut numbers: Vec<&str> = these
            .iter()
            .filter(|warning| !others.contains(warning))
            .map(|warning| &*warning.code)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.join(" ")
    };
    match aspect {
        Aspect::Outcome => format!("{verb}: {} / {}", codes(innodb), codes(inkstone)),
        Aspect::Message | Aspect::OnlyInnodbsKey => format!("{verb}: message of {}", codes(innodb)),
        Aspect::Rows
        | Aspect::OnlyInnodbsIndex
        | Aspect::OnlyInnodbsJoin
        | Aspect::OnlyInnodbsPlan
        | Aspect::OnlyInnodbsChoice => format!("{verb}: rows"),
        Aspect::Order | Aspect::OnlyInnodbsOrder => format!("{verb}: order of rows"),
        Aspect::Affected | Aspect::OnlyInnodbsChange | Aspect::OnlyInnodbsChangePlan => {
            format!("{verb}: affected rows")
        }
        Aspect::LastInsertId => format!("{verb}: LAST_INSERT_ID"),
        Aspect::Info => format!("{verb}: info"),
        Aspect::Warnings => format!(
            "{verb}: warnings [{}] / [{}]",
            only(&innodb.warnings, &inkstone.warnings),
            only(&inkstone.warnings, &innodb.warnings)
        ),
    }
}

/// As a person reads it.
fn shown(outcome: &Outcome) -> String {
    let mut text = match &outcome.reply {
        Reply::Refused(refusal) => format!("ERROR {}: {}\n", refusal.code, refusal.message),
        Reply::Done(done) => format!(
            "{} rows affected, last insert id {}, {} warnings. {}\n",
            done.affected, done.last_insert_id, done.warnings, done.info
        ),
        Reply::Rows(rows) => {
            let mut text = String::new();
            for row in rows.rows.iter().take(12) {
                let cells: Vec<String> = row.iter().map(shown_cell).collect();
                let _ = writeln!(text, "{}", cells.join(" | "));
            }
            let _ = writeln!(text, "({} rows)", rows.rows.len());
            text
        }
    };
    for warning in outcome.warnings.iter().take(6) {
        let Warning {
            level,
            code,
            message,
        } = warning;
        let _ = writeln!(text, "{level} {code}: {message}");
    }
    text
}

fn shown_cell(cell: &Cell) -> String {
    const END: usize = 150;
    let Some(bytes) = cell else {
        return "NULL".to_owned();
    };
    if bytes.len() <= 3 * END {
        return shown_bytes(bytes);
    }
    let (head, end) = (&bytes[..2 * END], &bytes[bytes.len() - END..]);
    let (head, end) = (shown_bytes(head), shown_bytes(end));
    format!("{head} .. {end} ({} bytes)", bytes.len())
}

fn shown_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text)
            if !text
                .chars()
                .any(|letter| letter.is_control() && letter != '\n') =>
        {
            format!("'{text}'")
        }
        _ => format!("x'{}'", super::text::hex(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Changed, by_no_index};

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
        assert_eq!(of("SELECT x.a FROM t1 x JOIN t2 y ON x.a = y.a"), "");
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
        let joined = "UPDATE t1 x JOIN t2 y ON x.a = y.b SET x.c = 1 WHERE y.d = 1";
        let from = ["t1 x JOIN ", "t2", "ON x.a = y.b"];
        assert_eq!(of(joined), Some((from, "y.d = 1")));
        let joined = "DELETE x FROM t1 x JOIN t2 y ON x.a = y.b WHERE y.d = 1";
        assert_eq!(of(joined), Some((from, "y.d = 1")));
        for other in [
            "DELETE FROM t2 WHERE b > 1 ORDER BY c LIMIT 3",
            "DELETE FROM t2",
            "INSERT INTO t1 SELECT * FROM t2 WHERE a = 1",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
