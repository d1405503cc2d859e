//! What a statement asks of its table: which rows and which gaps it reads, changes, or makes.

use super::schema::{Index, Schema};
use crate::client::Cell;

/// How a statement takes what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without a lock, unless the level says so.
    Plain,
    Shared,
    Exclusive,
    /// UPDATE and DELETE.
    Change,
    /// INSERT and REPLACE: rows of these keys, if there are any.
    Insert,
}

/// What a statement asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub table: String,
    /// `FORCE INDEX (..)`, or nothing.
    pub force: String,
    /// The whole condition.
    pub condition: String,
    /// Of the condition, what bounds the range that is read of the index.
    pub range: String,
    /// The range, and keys that are to be made.
    pub asked: String,
    pub kind: Kind,
    /// Rows that it finds are locked exclusively.
    pub exclusive: bool,
    /// Rows that others have locked are passed over.
    pub skips: bool,
    /// The columns that stay as they are while it holds what it has found: of a row all.
    columns: String,
}

/// The columns of a row.
const ROW: &str = "*";

fn verb_of(statement: &str) -> &str {
    statement.split(' ').next().unwrap_or_default()
}

/// What can follow a condition.
const ENDS: [&str; 2] = [" FOR UPDATE", " LOCK IN SHARE MODE"];
/// What makes a statement wait otherwise than for ever.
pub const PATIENCE: [&str; 3] = [" NOWAIT", " SKIP LOCKED", " WAIT "];

impl Ask {
    /// Nothing if the statement is none of those that read or write rows of one table.
    pub fn of(statement: &str, schema: &Schema) -> Option<Self> {
        let verb = verb_of(statement);
        match verb {
            "INSERT" | "REPLACE" => Self::of_insert(statement, schema),
            "SELECT" | "UPDATE" | "DELETE" => Self::of_read(statement, verb, schema),
            _ => None,
        }
    }

    fn of_read(statement: &str, verb: &str, schema: &Schema) -> Option<Self> {
        let table = match verb {
            "UPDATE" => word_behind(statement, "UPDATE ")?,
            _ => word_behind(statement, " FROM ")?,
        };
        let keys = schema.table(table)?;
        let (body, lock) = split_lock(statement);
        // Which rows a limit leaves out is not known.
        if body.contains(" LIMIT ") {
            return None;
        }
        let body = body.split(" ORDER BY ").next()?;
        let condition = body.split_once(" WHERE ").map_or("TRUE", |(_, c)| c);
        let forced = body.split_once("FORCE INDEX (");
        let forced = forced.and_then(|(_, rest)| Some(rest.split_once(')')?.0));
        let index = match forced {
            Some(name) => Some(keys.index(name)?),
            None => keys.led_by_one_of(&terms(condition)),
        };
        let range = bounds(condition, index);
        let mut asked = range.clone();
        if let ("UPDATE", Some((_, rest))) = (verb, body.split_once(" SET ")) {
            let (change, _) = rest.split_once(" WHERE ").unwrap_or((rest, ""));
            let (column, value) = change.split_once(" = ")?;
            // A unique key's new values are asked for as well.
            for index in keys.indexes.iter().filter(|index| index.unique) {
                if index.columns.iter().any(|name| name == column) {
                    let new = |name: &String| if name == column { value } else { name }.to_owned();
                    let new: Vec<String> = index.columns.iter().map(new).collect();
                    let (old, new) = (index.columns.join(", "), new.join(", "));
                    asked +=
                        &format!(" OR ({old}) IN (SELECT {new} FROM {table} WHERE {condition})");
                }
            }
        }
        let kind = match (verb, lock.starts_with(ENDS[0]), lock.is_empty()) {
            ("SELECT", _, true) => Kind::Plain,
            ("SELECT", true, _) => Kind::Exclusive,
            ("SELECT", false, _) => Kind::Shared,
            _ => Kind::Change,
        };
        Some(Self {
            table: table.to_owned(),
            force: forced.map_or(String::new(), |name| format!("FORCE INDEX ({name})")),
            condition: condition.to_owned(),
            range,
            asked,
            kind,
            exclusive: matches!(kind, Kind::Exclusive | Kind::Change),
            skips: lock.ends_with("SKIP LOCKED"),
            columns: ROW.to_owned(),
        })
    }

    fn of_insert(statement: &str, schema: &Schema) -> Option<Self> {
        let table = word_behind(statement, " INTO ")?;
        let keys = schema.table(table)?;
        let (head, rows) = statement.split_once(" VALUES ")?;
        let columns: Vec<&str> = match head.split_once('(') {
            Some((_, list)) => list.trim_end_matches(')').split(", ").collect(),
            None => keys.columns.iter().map(String::as_str).collect(),
        };
        let rows = rows.split(" ON DUPLICATE").next()?;
        let mut same = Vec::new();
        for row in rows.trim_matches(['(', ')']).split("), (") {
            let values: Vec<&str> = row.split(", ").collect();
            let value_of = |name: &String| {
                let at = columns.iter().position(|column| column == name)?;
                values.get(at).copied().filter(|value| *value != "NULL")
            };
            for index in keys.indexes.iter().filter(|index| index.unique) {
                let equal = |name: &String| Some(format!("{name} <=> {}", value_of(name)?));
                let equal: Option<Vec<String>> = index.columns.iter().map(equal).collect();
                same.extend(equal.map(|equal| format!("({})", equal.join(" AND "))));
            }
        }
        let range = if same.is_empty() {
            "FALSE".to_owned()
        } else {
            same.join(" OR ")
        };
        Some(Self {
            table: table.to_owned(),
            force: String::new(),
            condition: range.clone(),
            asked: range.clone(),
            range,
            kind: Kind::Insert,
            // A duplicate that is not written is locked shared.
            exclusive: verb_of(statement) == "REPLACE" || statement.contains(" ON DUPLICATE"),
            skips: false,
            columns: ROW.to_owned(),
        })
    }

    /// Of an INSERT that has failed: the row that it has found, of the key that the server names.
    /// Rows and keys behind that one it has not come to. Of a secondary key it has locked the entry
    /// alone, with InnoDB as well: other columns of the row may change.
    pub fn of_duplicate(statement: &str, message: &str, schema: &Schema) -> Option<Self> {
        let mut ask = Self::of(statement, schema)?;
        let mut quoted = message.split('\'').skip(1).step_by(2);
        let (entry, key) = (quoted.next()?, quoted.next()?);
        let keys = schema.table(&ask.table)?;
        let index = keys.index(key)?;
        if keys.clustered().is_some_and(|first| first.name != key) {
            let record: Vec<&str> = keys.record(key)?.into_iter().map(String::as_str).collect();
            ask.columns = record.join(", ");
        }
        let columns = index.columns.iter().zip(entry.split('-'));
        let same: Vec<String> = columns
            .map(|(name, value)| format!("{name} <=> '{value}'"))
            .collect();
        let found = format!("({})", same.join(" AND "));
        ask.condition.clone_from(&found);
        ask.range.clone_from(&found);
        ask.asked = found;
        Some(ask)
    }

    /// The words that take the lock.
    pub fn lock(&self) -> &'static str {
        match self.kind {
            Kind::Exclusive | Kind::Change => ENDS[0],
            _ => ENDS[1],
        }
    }

    /// The rows of the range, or those of the condition.
    pub fn select(&self, whole: bool) -> String {
        let Self {
            table,
            force,
            columns,
            ..
        } = self;
        let which = if whole { &self.range } else { &self.condition };
        format!("SELECT {columns} FROM {table} {force} WHERE ({which})")
    }

    /// Whether it holds rows, and not only the entries of an index.
    pub fn is_of_rows(&self) -> bool {
        self.columns == ROW
    }
}

/// A statement that waits for ever for what it would wait for.
pub fn patient(statement: &str) -> Option<String> {
    let place = PATIENCE.iter().find_map(|words| statement.find(words))?;
    Some(statement[..place].to_owned())
}

/// An SQL literal.
pub fn literal(cell: &Cell) -> String {
    match cell {
        Some(bytes) => format!("'{}'", String::from_utf8_lossy(bytes)),
        None => "NULL".to_owned(),
    }
}

fn word_behind<'a>(statement: &'a str, before: &str) -> Option<&'a str> {
    let (_, behind) = statement.split_once(before)?;
    behind.split([' ', ',', '(']).next()
}

/// A statement without its lock, and the lock.
fn split_lock(statement: &str) -> (&str, &str) {
    let place = ENDS.iter().find_map(|end| statement.find(end));
    statement.split_at(place.unwrap_or(statement.len()))
}

/// What AND joins.
fn terms(condition: &str) -> Vec<String> {
    let mut terms: Vec<String> = Vec::new();
    for part in condition.split(" AND ") {
        match terms.last_mut() {
            Some(last) if last.contains(" BETWEEN ") && !last.contains(" AND ") => {
                *last += &format!(" AND {part}");
            }
            _ => terms.push(part.to_owned()),
        }
    }
    terms
}

/// The terms that bound a range of the index: those on its first column.
fn bounds(condition: &str, index: Option<&Index>) -> String {
    let Some(first) = index.and_then(|index| index.columns.first()) else {
        return "TRUE".to_owned();
    };
    let mut terms = terms(condition);
    terms.retain(|term| term.starts_with(&format!("{first} ")));
    if terms.is_empty() {
        "TRUE".to_owned()
    } else {
        terms.join(" AND ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::Table;
    use super::*;

    fn schema() -> Schema {
        let index = |name: &str, unique, columns: &[&str]| Index {
            name: name.to_owned(),
            unique,
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
        };
        let table = Table {
            columns: ["id", "u", "k"].map(str::to_owned).to_vec(),
            indexes: vec![
                index("PRIMARY", true, &["id"]),
                index("u", true, &["u"]),
                index("k", false, &["k"]),
            ],
        };
        Schema::from([("t".to_owned(), table)])
    }

    #[test]
    fn of_a_condition_only_what_bounds_the_index_is_the_range() {
        let range = |statement: &str| Ask::of(statement, &schema()).unwrap().asked;
        let both =
            "SELECT * FROM t FORCE INDEX (PRIMARY) WHERE id BETWEEN 1 AND 5 AND k = 1 FOR UPDATE";
        assert_eq!(range(both), "id BETWEEN 1 AND 5");
        assert_eq!(range("DELETE FROM t WHERE v = 3"), "TRUE");
        let ordered = "DELETE FROM t FORCE INDEX (k) WHERE k = 3 ORDER BY id";
        assert_eq!(range(ordered), "k = 3");
        assert_eq!(Ask::of(&format!("{ordered} LIMIT 1"), &schema()), None);
        assert_eq!(
            range("UPDATE t FORCE INDEX (k) SET u = u + 5 WHERE k <= 2"),
            "k <= 2 OR (u) IN (SELECT u + 5 FROM t WHERE k <= 2)"
        );
        assert_eq!(
            range("INSERT INTO t VALUES (1, NULL, 3), (2, 7, 3) ON DUPLICATE KEY UPDATE k = 1"),
            "(id <=> 1) OR (id <=> 2) OR (u <=> 7)"
        );
    }

    #[test]
    fn an_insert_that_fails_has_locked_what_it_has_found() {
        let statement = "INSERT INTO t VALUES (1, 7, 3), (2, 8, 3)";
        let message = "Duplicate entry '7' for key 'u'";
        let ask = Ask::of_duplicate(statement, message, &schema()).unwrap();
        assert_eq!(ask.asked, "(u <=> '7')");
        assert_eq!(ask.kind, Kind::Insert);
        assert!(!ask.is_of_rows());
        let entry = "SELECT u, id FROM t  WHERE ((u <=> '7'))";
        assert_eq!(ask.select(false), entry);
    }

    #[test]
    fn a_lock_is_no_part_of_the_condition() {
        let statement = "SELECT * FROM t WHERE id = 5 LOCK IN SHARE MODE SKIP LOCKED";
        let ask = Ask::of(statement, &schema()).unwrap();
        assert_eq!((ask.kind, ask.skips), (Kind::Shared, true));
        assert_eq!(ask.condition, "id = 5");
        let patient = patient(statement).unwrap();
        assert_eq!(patient, "SELECT * FROM t WHERE id = 5 LOCK IN SHARE MODE");
    }
}
