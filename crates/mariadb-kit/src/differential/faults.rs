//! Faults of rows that an ALTER is refused for, all of them: what InnoDB says when the table's rows
//! come one by one into an empty table that was altered in the same way, or when it copies so.

use super::accepted;
use super::compare::rows_of;
use super::sides::{Outcome, Side, Sides, Warning, neutral};
use crate::client::{Reply, Rows};

/// A table of InnoDB's that is as the ALTER would have made it, without rows.
const ALTERED: &str = "altered";
/// `ER_GET_ERRNO`.
const CANNOT_OPEN: u16 = 1030;
/// `ER_TABLES_DIFFERENT_METADATA`.
const OTHER_DEFINITIONS: u16 = 1736;

/// Why two errors of an ALTER, which may both be right for this reason, are.
pub fn proved(
    sides: &mut Sides,
    text: &str,
    reason: &'static str,
    [innodb, inkstone]: &[Outcome; 2],
) -> Option<&'static str> {
    if are_both_there(sides, text, innodb, inkstone) {
        return Some(reason);
    }
    names_so_row_by_row(sides, text, inkstone).then_some(accepted::INNODB_COPIES_IN_BULK)
}

/// Whether InnoDB finds both faults in its rows: the one that it names, and the one that Inkstone
/// names. Of its own duplicate the key counts: in place it shows a part of a long text as empty.
fn are_both_there(sides: &mut Sides, text: &str, innodb: &Outcome, inkstone: &Outcome) -> bool {
    let Some((table, alter)) = of_another_table(text) else {
        return false;
    };
    let key = accepted::duplicate_key(innodb).map(|key| format!(" for key '{key}'"));
    let _ = sides.ask("SET max_error_count = 65535");
    let found = [
        is_there(sides, table, &alter, innodb, &|found, named| match &key {
            Some(key) => found.starts_with("1062: ") && found.ends_with(key),
            None => found == named,
        }),
        is_there(sides, table, &alter, inkstone, &|found, named| {
            found == named
        }),
    ];
    let _ = sides.ask(&format!("DROP TABLE IF EXISTS {ALTERED}"));
    let _ = sides.ask("SET max_error_count = DEFAULT");
    found == [true; 2]
}

/// Whether InnoDB refuses the ALTER for the duplicate that Inkstone names when it copies the table
/// row by row, where it would not copy it by itself too.
fn names_so_row_by_row(sides: &mut Sides, text: &str, inkstone: &Outcome) -> bool {
    let text = text.replace(super::sql::ENGINE, "InnoDB");
    let may_say = text.starts_with("ALTER TABLE ") && !text.contains("ALGORITHM=");
    let copying = may_say.then(|| format!("{text}, ALGORITHM=COPY"));
    let _ = sides.ask("SET GLOBAL innodb_alter_copy_bulk = OFF");
    let mut names_so = |text: &String| match (sides.ask(text), &inkstone.reply) {
        (Some(Reply::Refused(a)), Reply::Refused(b)) => {
            let said = |text: &str| neutral(&accepted::as_any_duplicate(text));
            (a.code, b.code) == (1062, 1062) && said(&a.message) == said(&b.message)
        }
        _ => false,
    };
    let names_so = names_so(&text) || copying.iter().any(names_so);
    let _ = sides.ask("SET GLOBAL innodb_alter_copy_bulk = DEFAULT");
    names_so
}

/// The table, and the statement for [`ALTERED`].
fn of_another_table(text: &str) -> Option<(&str, String)> {
    let (before, rest) = match text.strip_prefix("ALTER TABLE ") {
        Some(rest) => ("ALTER TABLE ", rest),
        None => {
            text.split_at(text.find(" ON ").filter(|_| text.contains("INDEX "))? + " ON ".len())
        }
    };
    let (table, behind) = rest.split_once(' ')?;
    let alter = format!("{before}{ALTERED} {behind}").replace(super::sql::ENGINE, "InnoDB");
    Some((table, alter))
}

/// Whether the error of an ALTER is one that the rows have; `is_same` compares one of theirs with
/// the error.
fn is_there(
    sides: &mut Sides,
    table: &str,
    alter: &str,
    outcome: &Outcome,
    is_same: &dyn Fn(&str, &str) -> bool,
) -> bool {
    let Reply::Refused(refusal) = &outcome.reply else {
        return false;
    };
    let code = refusal.code.to_string();
    let mut named = vec![fault(&code, &refusal.message, table)];
    let meant = meant_by_innodb(sides, table, &code, &refusal.message);
    named.extend(meant.map(|message| fault(&code, &message, table)));
    let key = accepted::duplicate_key(outcome);
    // Of rows that a key takes for equal the one that comes later is named, and a row that a
    // constraint refuses is no duplicate any more.
    let mut is_found = |checks: &str, direction: &str| {
        let _ = sides.ask(&format!("SET check_constraint_checks = {checks}"));
        let faults = faults(sides, table, alter, key, direction);
        let meant = meant_by_innodb(sides, ALTERED, &code, &refusal.message);
        let meant = meant.map(|message| fault(&code, &message, table));
        let is_named = |each: &String| {
            let mut named = named.iter().chain(&meant);
            named.any(|named| is_same(each, named))
        };
        faults.is_some_and(|faults| faults.iter().any(is_named))
    };
    let is_there = ["1", "0"]
        .iter()
        .any(|checks| is_found(checks, "") || is_found(checks, " DESC"));
    let _ = sides.ask("SET check_constraint_checks = DEFAULT");
    is_there
}

/// All faults, with no other unique key than this one: a row is refused by one key only.
fn faults(
    sides: &mut Sides,
    table: &str,
    alter: &str,
    key: Option<&str>,
    direction: &str,
) -> Option<Vec<String>> {
    // The server may refuse to alter a table again that it has given a long default.
    make_altered(sides, table, alter, key, false)
        .or_else(|| make_altered(sides, table, alter, key, true))?;
    let before = columns_of(sides, table)?;
    let (mut to, mut from) = (Vec::new(), Vec::new());
    let left_out = points_outside_keys(sides, ALTERED)?;
    let left_out_before = points_outside_keys(sides, table)?;
    for name in columns_of(sides, ALTERED)? {
        let old = old_name(alter, &name).unwrap_or(&name);
        let is_left_out = left_out.contains(&name) || left_out_before.iter().any(|it| it == old);
        if before.iter().any(|other| other == old) && !is_left_out {
            from.push(format!("`{old}`"));
            to.push(format!("`{name}`"));
        }
    }
    let (to, from) = (to.join(", "), from.join(", "));
    let insert = format!(
        "INSERT IGNORE INTO {ALTERED} ({to}) SELECT {from} FROM \
         (SELECT {from}, ROW_NUMBER() OVER () AS place FROM {table} USE INDEX ()) numbered ORDER BY place{direction}"
    );
    let Some(Reply::Done(_)) = sides.ask(&insert) else {
        return None;
    };
    let warnings = rows_of(sides, "SHOW WARNINGS")?;
    let faults = warnings.into_iter().map(|row| {
        let mut cells = row.into_iter().skip(1).map(|cell| {
            let cell = cell.unwrap_or_default();
            String::from_utf8_lossy(&cell).into_owned()
        });
        Some(fault(&cells.next()?, &cells.next()?, table))
    });
    faults.collect()
}

/// Makes the empty table; other unique keys are taken away behind the ALTER, or before it.
fn make_altered(
    sides: &mut Sides,
    table: &str,
    alter: &str,
    key: Option<&str>,
    first: bool,
) -> Option<()> {
    let mut run = |statement: &str| match sides.ask(statement)? {
        Reply::Refused(_) => None,
        _ => Some(()),
    };
    run(&format!("DROP TABLE IF EXISTS {ALTERED}"))?;
    run(&format!("CREATE TABLE {ALTERED} LIKE {table}"))?;
    if first {
        keep_one_unique_key(sides, key)?;
    }
    match sides.ask(alter)? {
        Reply::Refused(_) => None,
        _ => keep_one_unique_key(sides, key),
    }
}

/// Takes the others away; an AUTO_INCREMENT gets a plain one.
fn keep_one_unique_key(sides: &mut Sides, kept: Option<&str>) -> Option<()> {
    let counter = format!(
        "SELECT column_name FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = '{ALTERED}' AND extra = 'auto_increment'"
    );
    let unique = format!(
        "SELECT DISTINCT index_name FROM information_schema.statistics \
         WHERE table_schema = DATABASE() AND table_name = '{ALTERED}' AND non_unique = 0"
    );
    let mut others = names(sides, &unique)?;
    others.retain(|name| Some(&**name) != kept);
    if others.is_empty() {
        return Some(());
    }
    let others = others.iter().map(|name| format!("DROP KEY `{name}`"));
    let counter = names(sides, &counter)?.into_iter();
    let counter = counter.map(|column| format!("ADD KEY counter (`{column}`)"));
    let clauses: Vec<String> = others.chain(counter).collect();
    let alter = format!("ALTER TABLE {ALTERED} {}", clauses.join(", "));
    match sides.ask(&alter)? {
        Reply::Done(_) => Some(()),
        _ => None,
    }
}

/// Columns that have values of their own.
fn columns_of(sides: &mut Sides, table: &str) -> Option<Vec<String>> {
    let ask = format!(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() \
         AND table_name = '{table}' AND is_generated = 'NEVER' ORDER BY ordinal_position"
    );
    names(sides, &ask)
}

/// Points that are in no key, and of which nothing is computed that is stored or in a key. An empty
/// one, which IGNORE has let in, is refused when it is inserted again.
fn points_outside_keys(sides: &mut Sides, table: &str) -> Option<Vec<String>> {
    let ask = format!(
        "SELECT column_name FROM information_schema.columns c WHERE table_schema = DATABASE() \
         AND table_name = '{table}' AND data_type = 'point' \
         AND NOT EXISTS (SELECT * FROM information_schema.statistics s WHERE s.table_schema = DATABASE() \
           AND s.table_name = '{table}' AND s.column_name = c.column_name) \
         AND NOT EXISTS (SELECT * FROM information_schema.columns g WHERE g.table_schema = DATABASE() \
           AND g.table_name = '{table}' AND INSTR(g.generation_expression, CONCAT('`', c.column_name, '`')) \
           AND (g.extra LIKE 'STORED%' OR EXISTS (SELECT * FROM information_schema.statistics s \
             WHERE s.table_schema = DATABASE() AND s.table_name = '{table}' AND s.column_name = g.column_name)))"
    );
    names(sides, &ask)
}

/// What InnoDB means where it names the column of a value that is cut: it takes the column's place
/// among those that are stored for one among all.
fn meant_by_innodb(sides: &mut Sides, table: &str, code: &str, message: &str) -> Option<String> {
    let named = message.split_once("olumn '")?.1.split_once('\'')?.0;
    let columns = format!(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() \
         AND table_name = '{table}' "
    );
    let order = " ORDER BY ordinal_position";
    let all = names(sides, &format!("{columns} {order}"))?;
    let stored = format!("{columns} AND extra NOT LIKE 'VIRTUAL%' {order}");
    let place = all.iter().position(|name| name == named)?;
    let meant = names(sides, &stored)?.into_iter().nth(place)?;
    (code == "1265" && meant != named)
        .then(|| message.replace(&format!("'{named}'"), &format!("'{meant}'")))
}

/// Whether two ALTERs that are refused for the same have warned of the same, but for the columns
/// that InnoDB names. Where that is a duplicate one of them may have come to more rows.
pub fn warns_of_another_column(
    sides: &mut Sides,
    text: &str,
    [innodb, inkstone]: &[Outcome; 2],
) -> bool {
    let Some((table, _)) = of_another_table(text) else {
        return false;
    };
    let mut meant = |warning: &Warning| {
        let message = meant_by_innodb(sides, table, &warning.code, &warning.message);
        let message = message.unwrap_or_else(|| warning.message.clone());
        Warning {
            message,
            ..warning.clone()
        }
    };
    let (a, b) = (&innodb.warnings, &inkstone.warnings);
    let are_the_same = a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a == b || a.code == b.code && meant(a).message == b.message);
    innodb.reply == inkstone.reply
        && (are_the_same
            || accepted::are_duplicates(innodb, inkstone)
                && accepted::begin_alike(a, b, &mut |a, b| {
                    accepted::are_of_the_same(a, b) || accepted::are_of_the_same(&meant(a), b)
                }))
}

/// Whether the engine that has done an ALTER in place that the other one refuses, refuses for the
/// same reason to copy the table that it has now.
pub fn refuses_to_copy(sides: &mut Sides, text: &str, [innodb, inkstone]: &[Outcome; 2]) -> bool {
    let (side, refused) = match (&innodb.reply, &inkstone.reply) {
        (Reply::Done(_), Reply::Refused(refused)) => (Side::Innodb, refused),
        (Reply::Refused(refused), Reply::Done(_)) => (Side::Inkstone, refused),
        _ => return false,
    };
    let Some(table) = altered_table(text) else {
        return false;
    };
    let copy = format!("ALTER TABLE {table} FORCE, ALGORITHM=COPY");
    match sides.ask_of(side, &copy) {
        Some(Reply::Refused(refusal)) => {
            refusal.code == refused.code && neutral(&refusal.message) == neutral(&refused.message)
        }
        _ => false,
    }
}

/// Whether InnoDB has exchanged a partition, which Inkstone refuses, and cannot open one of the two
/// tables any more.
pub fn exchanges_other_keys(
    sides: &mut Sides,
    text: &str,
    [innodb, inkstone]: &[Outcome; 2],
) -> bool {
    let (Reply::Done(_), Reply::Refused(refused)) = (&innodb.reply, &inkstone.reply) else {
        return false;
    };
    let other = text.split_once(" WITH TABLE ").map(|(_, other)| other);
    let (Some(table), Some(other)) = (altered_table(text), other) else {
        return false;
    };
    let mut fails = |table: &str| {
        let read = sides.ask(&format!("SELECT 1 FROM {table} LIMIT 1"));
        matches!(read, Some(Reply::Refused(refusal)) if refusal.code == CANNOT_OPEN)
    };
    refused.code == OTHER_DEFINITIONS && (fails(table) || fails(other))
}

/// Whether InnoDB, that has recreated a table in place for an OPTIMIZE that Inkstone refuses,
/// refuses for the same reason to copy it.
pub fn refuses_to_recreate(
    sides: &mut Sides,
    text: &str,
    [innodb, inkstone]: &[Outcome; 2],
) -> bool {
    let (Reply::Rows(recreated), Reply::Rows(refused)) = (&innodb.reply, &inkstone.reply) else {
        return false;
    };
    let errors = |rows: &Rows| -> Vec<String> {
        let told = rows.rows.iter().filter_map(|row| match &row[..] {
            [_, _, Some(kind), Some(text)] if kind == b"error" => Some(text),
            _ => None,
        });
        told.map(|text| String::from_utf8_lossy(text).into_owned())
            .collect()
    };
    let table = text.strip_prefix("OPTIMIZE TABLE ");
    let (Some(table), [error], []) = (table, &errors(refused)[..], &errors(recreated)[..]) else {
        return false;
    };
    match sides.ask_of(
        Side::Innodb,
        &format!("ALTER TABLE {table} FORCE, ALGORITHM=COPY"),
    ) {
        Some(Reply::Refused(refusal)) => neutral(&refusal.message) == neutral(error),
        _ => false,
    }
}

/// Whether a foreign key refuses a row, by Inkstone alone, of a table of which another one makes
/// rows follow.
pub fn refuses_before_followed(sides: &mut Sides, [innodb, inkstone]: &[Outcome; 2]) -> bool {
    let refused = match (&innodb.reply, &inkstone.reply) {
        (Reply::Done(_), Reply::Refused(refused)) => {
            matches!(refused.code, 1451 | 1452).then_some(refused.message.as_str())
        }
        (Reply::Done(_), Reply::Done(_)) => {
            let mut told = inkstone.warnings.iter();
            let of_key = told.find(|it| matches!(&*it.code, "1451" | "1452"));
            of_key.map(|it| it.message.as_str())
        }
        _ => None,
    };
    let named = refused.and_then(|message| {
        let (_, rest) = message.split_once("CONSTRAINT `")?;
        let (_, parent) = rest.split_once("REFERENCES `")?;
        Some((rest.split('`').next()?, parent.split('`').next()?))
    });
    let Some((name, parent)) = named else {
        return false;
    };
    let follows = format!(
        "SELECT 1 FROM information_schema.referential_constraints \
         WHERE constraint_schema = DATABASE() AND constraint_name <> '{name}' \
         AND '{parent}' IN (table_name, referenced_table_name) \
         AND (update_rule IN ('CASCADE', 'SET NULL') OR delete_rule IN ('CASCADE', 'SET NULL'))"
    );
    rows_of(sides, &follows).is_some_and(|rows| !rows.is_empty())
}

/// The table that ALTER TABLE is about, under the name that it has then.
fn altered_table(text: &str) -> Option<&str> {
    let renamed = text.split_once("RENAME TO ").map(|(_, rest)| rest);
    let rest = renamed.or_else(|| text.strip_prefix("ALTER TABLE "))?;
    rest.split([' ', ',']).next()
}

fn names(sides: &mut Sides, ask: &str) -> Option<Vec<String>> {
    let rows = rows_of(sides, ask)?.into_iter();
    rows.map(|row| String::from_utf8(row.into_iter().next()??).ok())
        .collect()
}

/// The name that a column had before the ALTER.
fn old_name<'t>(alter: &'t str, new: &str) -> Option<&'t str> {
    let renames = ["RENAME COLUMN ", "CHANGE COLUMN "].into_iter();
    let mut renames = renames.flat_map(|words| alter.split(words).skip(1));
    renames.find_map(|rest| {
        let (old, rest) = rest.split_once(' ')?;
        let rest = rest.strip_prefix("TO ").unwrap_or(rest);
        let named = rest.split([' ', ',']).next()?;
        (named == new).then_some(old)
    })
}

/// A fault in words that ALTER and INSERT have in common: without the number of the row, and
/// without the table. That a value does not fit its column, or is NULL, has four names; of a
/// duplicate the server may say what may have caused it.
fn fault(code: &str, message: &str, table: &str) -> String {
    let column = || Some(message.split_once("olumn '")?.1.split_once('\'')?.0);
    match (code, column()) {
        ("1048" | "1264" | "1265" | "1406", Some(column)) => format!("value for {column}"),
        // A text that is no number; ALTER may not name the column.
        ("1292" | "1366", _) if message.contains("value: '") => {
            let value = message
                .split_once("value: '")
                .map_or("", |(_, value)| value);
            let value = value.split("' for column ").next().unwrap_or_default();
            format!("wrong value: {}", value.trim_end_matches('\''))
        }
        ("1062", _) => {
            let duplicate = message.split_once("uplicate entry ");
            format!("1062: {}", duplicate.map_or(message, |(_, entry)| entry))
        }
        _ => {
            let message = message.replace(&format!("`{ALTERED}`"), &format!("`{table}`"));
            // A constraint of a column's type is named by table and column.
            let message = message.replace(&format!("`{ALTERED}."), &format!("`{table}."));
            let message = accepted::unnumbered_message(&neutral(&message));
            let message = message.split(" failed for ").next().unwrap_or_default();
            format!("{code}: {message}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_for_another_table() {
        let of = |text| of_another_table(text).unwrap_or_default();
        let alter = "ALTER TABLE t1 ADD UNIQUE KEY k2 (c1), FORCE";
        let altered = "ALTER TABLE altered ADD UNIQUE KEY k2 (c1), FORCE";
        assert_eq!(of(alter), ("t1", altered.to_owned()));
        let create = "CREATE UNIQUE INDEX k2 ON t1 (c1, c2(10) DESC)";
        let altered = "CREATE UNIQUE INDEX k2 ON altered (c1, c2(10) DESC)";
        assert_eq!(of(create), ("t1", altered.to_owned()));
        assert_eq!(of("INSERT INTO t1 VALUES (' ON t2 ')"), ("", String::new()));
    }

    #[test]
    fn names_before_an_alter() {
        let alter = "ALTER TABLE t1 RENAME COLUMN c1 TO c1r, CHANGE COLUMN c2 c2r INT NULL, ADD UNIQUE KEY k (c1r)";
        assert_eq!(old_name(alter, "c1r"), Some("c1"));
        assert_eq!(old_name(alter, "c2r"), Some("c2"));
        assert_eq!(old_name(alter, "c3"), None);
    }

    #[test]
    fn the_same_fault_in_other_words() {
        let of = |code, message| fault(code, message, "t1");
        let expected = "value for c3";
        assert_eq!(
            of("1265", "Data truncated for column 'c3' at row 5"),
            expected
        );
        assert_eq!(
            of("1264", "Out of range value for column 'c3' at row 2"),
            expected
        );
        assert_eq!(of("1048", "Column 'c3' cannot be null"), expected);
        assert_eq!(
            of("1406", "Data too long for column 'c3' at row 1"),
            expected
        );
        let number = of("1292", "Truncated incorrect INTEGER value: 'x'");
        let of_column =
            "Incorrect integer value: 'x' for column `d_inno`.`altered`.`event` at row 3";
        assert_eq!(number, of("1366", of_column));
        assert_ne!(number, of("1292", "Truncated incorrect INTEGER value: 'y'"));
        let check = of("4025", "CONSTRAINT `x1` failed for `d_inno`.`altered`");
        assert_eq!(
            check,
            of("4025", "CONSTRAINT `x1` failed for `d_inks`.`t1`")
        );
        let duplicate = of("1062", "Duplicate entry 'a' for key 'k1'");
        assert_ne!(duplicate, of("1062", "Duplicate entry 'b' for key 'k1'"));
        let resequenced = "ALTER TABLE causes auto_increment resequencing, resulting in duplicate entry 'a' for key 'k1'";
        assert_eq!(duplicate, of("1062", resequenced));
    }
}
