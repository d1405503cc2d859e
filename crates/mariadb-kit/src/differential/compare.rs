//! Whether both engines did the same.

use super::accepted::{self, Accepted};
use super::changes::{
    is_done_by_inkstones_plan, leaves_out, matched, refuses_by_no_index, would_leave_out,
};
use super::faults;
use super::pages;
use super::plans;
use super::sides::{Outcome, Side, Sides, Warning, neutral};
use super::step::{Expected, Representative, Statement};
use crate::client::{Cell, Reply};
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
    let text = pages::for_innodb(&statement.sql.render());
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
    if what == Aspect::OnlyInnodbsPruning {
        *accepted.entry(accepted::INNODB_STAYS_PRUNED).or_default() += 1;
        return Judged::Ends;
    }
    if what == Aspect::OnlyInnodbsMarks {
        *accepted.entry(accepted::INNODB_PURGES_LATER).or_default() += 1;
        return Judged::Equal;
    }
    if sides.joined_otherwise() && accepted::is_about_joined_rows(what, innodb, inkstone) {
        *accepted.entry(accepted::JOINED_OTHERWISE).or_default() += 1;
        return Judged::Equal;
    }
    if accepted::accept(&text, what, innodb, inkstone, accepted) {
        return Judged::Equal;
    }
    if let Some(reason) = accepted::of_several_faults(&text, what, innodb, inkstone)
        && let Some(reason) = faults::proved(sides, &text, reason, outcomes)
    {
        *accepted.entry(reason).or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::Warnings && faults::warns_of_another_column(sides, &text, outcomes) {
        *accepted.entry(accepted::INNODB_COUNTS_COLUMNS).or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::Warnings && warns_behind_failed_copy(sides, &text, outcomes) {
        *accepted.entry(accepted::COUNTS_BEHIND_COPY).or_default() += 1;
        return Judged::Ends;
    }
    if let Some(reason) = accepted::refuses_reference(&text, innodb, inkstone) {
        *accepted.entry(reason).or_default() += 1;
        return Judged::Ends;
    }
    if matches!(what, Aspect::Outcome | Aspect::Affected | Aspect::Info)
        && faults::refuses_before_followed(sides, outcomes)
    {
        let reason = accepted::REFUSED_BEFORE_FOLLOWED;
        *accepted.entry(reason).or_default() += 1;
        return Judged::Ends;
    }
    if what == Aspect::Outcome && faults::exchanges_other_keys(sides, &text, outcomes) {
        let reason = accepted::INNODB_EXCHANGES_OTHER_KEYS;
        *accepted.entry(reason).or_default() += 1;
        return Judged::Ends;
    }
    if what == Aspect::Outcome && faults::refuses_to_copy(sides, &text, outcomes)
        || what == Aspect::Rows && faults::refuses_to_recreate(sides, &text, outcomes)
    {
        *accepted.entry(accepted::COPIES_ARE_CHECKED).or_default() += 1;
        return Judged::Ends;
    }
    if accepted::is_about_row_numbers(&text, what, innodb, inkstone) && lie_otherwise(sides, &text)
    {
        *accepted.entry(accepted::ROWS_LIE_OTHERWISE).or_default() += 1;
        return Judged::Equal;
    }
    if what == Aspect::Rows
        && (gives_so_when_copied(sides, Side::Innodb, &text, inkstone)
            || gives_so_when_copied(sides, Side::Inkstone, &text, innodb))
    {
        *accepted.entry(accepted::STALE_UNTIL_COPIED).or_default() += 1;
        return Judged::Ends;
    }
    if accepted::finds_no_row(innodb) && loses_an_entry(sides, &text) {
        *accepted.entry(accepted::INNODB_LOSES_ENTRY).or_default() += 1;
        return Judged::Ends;
    }
    if let Some((side, other)) = accepted::refuses_renamed_check(&text, innodb, inkstone)
        && alters_when_reopened(sides, side, &text, other)
    {
        *accepted.entry(accepted::CHECK_OF_FAILED_COPY).or_default() += 1;
        return Judged::Ends;
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
    OnlyInnodbsMarks,
    OnlyInnodbsPruning,
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
    let finds_none = matches!(&innodb.reply, Reply::Done(done) if matched(done) == 0);
    if finds_none && innodb != inkstone && changes_when_reopened(sides, text, inkstone) {
        return Some(Aspect::OnlyInnodbsPruning);
    }
    match (&innodb.reply, &inkstone.reply) {
        (Reply::Refused(a), Reply::Refused(b)) => {
            if a.code != b.code {
                return Some(Aspect::Outcome);
            }
            if neutral(&a.message) != neutral(&b.message) {
                return if names_other_key(sides, text, innodb, inkstone) {
                    Some(Aspect::OnlyInnodbsKey)
                } else {
                    Some(Aspect::Message)
                };
            }
        }
        (Reply::Done(_), Reply::Refused(b)) if refuses_by_no_index(sides, text, b) => {
            return Some(Aspect::OnlyInnodbsChange);
        }
        (Reply::Refused(_), Reply::Done(b)) if is_done_by_inkstones_plan(sides, text, b) => {
            return Some(Aspect::OnlyInnodbsChangePlan);
        }
        (Reply::Rows(a), Reply::Rows(b)) => {
            if let Some(aspect) = unequal_rows(sides, statement, text, &a.rows, &b.rows) {
                return Some(aspect);
            }
        }
        (Reply::Done(a), Reply::Done(b)) => {
            if a.affected != b.affected || matched(a) != matched(b) {
                let more = matched(b).saturating_sub(matched(a));
                if more > 0 && leaves_out(sides, text, more) {
                    return Some(Aspect::OnlyInnodbsChange);
                }
                let fewer = matched(a).saturating_sub(matched(b));
                if fewer > 0 && would_leave_out(sides, text, fewer) {
                    return Some(Aspect::OnlyInnodbsChangePlan);
                }
                return Some(if a.affected == b.affected {
                    Aspect::Info
                } else {
                    Aspect::Affected
                });
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
        let same = are_represented(sides, columns, innodb, inkstone);
        if same || are_tied_otherwise(sides, columns, innodb, inkstone) {
            return None;
        }
        // By an index InnoDB may also take a group for several, of which each partition has a part.
        let aspect = given_by_innodb(sides, text, &mut |sides, rows| {
            are_represented(sides, columns, rows, inkstone)
        });
        return Some(match aspect {
            Aspect::OnlyInnodbsIndex if sorted(innodb) == sorted(inkstone) => {
                Aspect::OnlyInnodbsOrder
            }
            aspect => aspect,
        });
    }
    if matches!(&statement.rows, Expected::Exact) {
        if text.starts_with("SELECT") {
            let same = &mut |_: &mut Sides, rows: &[Row]| rows == inkstone;
            return Some(given_by_innodb(sides, text, same));
        }
        let same = named_neutrally(innodb) == named_neutrally(inkstone);
        if !same && finds_marks(innodb) && is_ok(inkstone) {
            return Some(Aspect::OnlyInnodbsMarks);
        }
        return (!same).then_some(Aspect::Rows);
    }
    if let Expected::Some(same) = &statement.rows {
        return match sides.ask(&same.render()) {
            Some(Reply::Rows(rows)) if rows.rows == inkstone => Some(Aspect::OnlyInnodbsOrder),
            _ => Some(Aspect::Rows),
        };
    }
    if sorted(innodb) != sorted(inkstone) {
        let same = &mut |_: &mut Sides, rows: &[Row]| sorted(rows) == sorted(inkstone);
        return Some(given_by_innodb(sides, text, same));
    }
    match &statement.rows {
        Expected::Ranked(ranks) => match rank_of(sides, &ranks.render()) {
            // A row that the ranks take for less may stand behind in an index: CHAR is ranked by
            // its sort key, in which letters that weigh nothing are lost, and told apart by so
            // many characters.
            Some(rank_of) if are_ranked_alike(&rank_of, innodb, inkstone) => None,
            Some(rank_of) if is_ranked(&rank_of, inkstone) => {
                (!is_ranked(&rank_of, innodb)).then_some(Aspect::OnlyInnodbsOrder)
            }
            _ => Some(Aspect::Order),
        },
        _ => None,
    }
}

/// How InnoDB gives the rows of a SELECT that it does not give: by no index, or by Inkstone's plan,
/// if at all.
fn given_by_innodb(
    sides: &mut Sides,
    text: &str,
    is_given: &mut dyn FnMut(&mut Sides, &[Row]) -> bool,
) -> Aspect {
    let mut gives = |sides: &mut Sides, text: Option<String>| {
        let rows = text.and_then(|text| rows_of(sides, &text));
        rows.is_some_and(|rows| is_given(sides, &rows))
    };
    if gives(sides, plans::by_no_index(text)) {
        return Aspect::OnlyInnodbsIndex;
    }
    let by_plan = plans::by_inkstones_plan(sides, text);
    match (gives(sides, by_plan), has_fraction(text)) {
        (true, _) if text.contains("JOIN ") => Aspect::OnlyInnodbsJoin,
        (true, true) => Aspect::OnlyInnodbsPlan,
        (true, false) => Aspect::OnlyInnodbsChoice,
        (false, _) => Aspect::Rows,
    }
}

/// Whether CHECK TABLE of InnoDB finds nothing but rows that are marked as deleted, and entries
/// whose rows are gone already.
fn finds_marks(checked: &[Row]) -> bool {
    let is_mark = |row: &Row| {
        let text =
            String::from_utf8_lossy(row.last().and_then(Option::as_deref).unwrap_or_default());
        let is_left = [
            "Clustered index record not found for index",
            "Unpurged clustered index record",
        ];
        is_left.iter().any(|words| text.contains(words)) && text.contains("(info_bits=32,")
    };
    let [marks @ .., last] = checked else {
        return false;
    };
    !marks.is_empty() && marks.iter().all(is_mark) && is_ok(std::slice::from_ref(last))
}

/// Whether CHECK TABLE finds nothing at all.
fn is_ok(checked: &[Row]) -> bool {
    matches!(checked, [only] if only.last().and_then(Option::as_deref) == Some(b"OK"))
}

/// Whether a literal has a fraction of a second.
fn has_fraction(text: &str) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    text.match_indices('.').any(|(at, _)| {
        at > 2 && digit(bytes.get(at + 1)) && digit(bytes.get(at - 1)) && bytes[at - 3] == b':'
    })
}

/// Whether InnoDB, of a row of a partitioned table that is updated, means the key that Inkstone
/// names: it takes the key's place among its own indexes, which are in the order in which they were
/// made, for one in the order of the server.
fn names_other_key(sides: &mut Sides, text: &str, innodb: &Outcome, inkstone: &Outcome) -> bool {
    let Some(table) = accepted::updates_rows_of(text) else {
        return false;
    };
    let named = [innodb, inkstone].map(accepted::duplicate_key);
    let [Some(named), Some(violated)] = named else {
        return false;
    };
    // The error itself is the last warning.
    let before = [innodb, inkstone].map(|outcome| outcome.warnings.split_last());
    let [Some((_, before)), Some((_, before_inkstones))] = before else {
        return false;
    };
    let shown = indexes_of(sides, table);
    // A partition that was rebuilt has them in the server's order.
    let takes_for_named = |made: Vec<String>| {
        let place = made.iter().position(|index| index == violated);
        place.and_then(|place| shown.get(place)).map(String::as_str) == Some(named)
    };
    before == before_inkstones
        && named != violated
        && indexes_by_age(sides, table)
            .into_iter()
            .any(takes_for_named)
}

/// Whether a side gives the other one's rows when its tables with stored columns have been copied,
/// which computes these anew, and a trigger may have left them as they were.
fn gives_so_when_copied(sides: &mut Sides, side: Side, text: &str, others: &Outcome) -> bool {
    const TABLES: &str = "SELECT DISTINCT c.table_name FROM information_schema.columns c JOIN \
                          information_schema.triggers t ON t.event_object_schema = \
                          c.table_schema AND t.event_object_table = c.table_name WHERE \
                          c.table_schema = DATABASE() AND c.extra LIKE '%STORED GENERATED%'";
    let (Reply::Rows(others), Some(Reply::Rows(tables))) =
        (&others.reply, sides.ask_of(side, TABLES))
    else {
        return false;
    };
    let names = tables.rows.into_iter();
    let tables: Vec<String> = names
        .filter_map(|row| String::from_utf8(row.into_iter().next()??).ok())
        .collect();
    let mut copies = |table: &String| {
        let copy = format!("ALTER TABLE {table} FORCE, ALGORITHM=COPY");
        matches!(sides.ask_of(side, &copy), Some(Reply::Done(_)))
    };
    if tables.is_empty() || !tables.iter().all(&mut copies) {
        return false;
    }
    match sides.ask_of(side, text) {
        Some(Reply::Rows(found)) => sorted(&found.rows) == sorted(&others.rows),
        _ => false,
    }
}

/// Whether an UPDATE or DELETE of a partitioned table, of which InnoDB has found no rows, does to
/// InnoDB's what it did to Inkstone's when the server has opened the table anew.
fn changes_when_reopened(sides: &mut Sides, text: &str, inkstone: &Outcome) -> bool {
    let head = text.split(" WHERE ").next().unwrap_or_default();
    let head = head.split(" ORDER BY ").next().unwrap_or_default();
    let words = head.strip_prefix("DELETE FROM ").or_else(|| {
        let target = head.strip_prefix("UPDATE ")?;
        Some(target.strip_prefix("IGNORE ").unwrap_or(target))
    });
    let Some(table) = words.and_then(|words| words.split(' ').next()) else {
        return false;
    };
    if indexes_by_age(sides, table).is_empty() {
        return false;
    }
    sides.end_transactions();
    let flushed = sides.ask(&format!("FLUSH TABLES {table}"));
    let again = flushed.and_then(|_| sides.again(Side::Innodb, text));
    let Some(again) = again else {
        return false;
    };
    match (&again.reply, &inkstone.reply) {
        (Reply::Done(a), Reply::Done(b)) => (a.affected, &a.info) == (b.affected, &b.info),
        (Reply::Refused(a), Reply::Refused(b)) => {
            a.code == b.code
                && (neutral(&a.message) == neutral(&b.message)
                    || names_other_key(sides, text, &again, inkstone))
        }
        _ => false,
    }
}

/// Whether the table of an ALTER TABLE or UPDATE has the same rows on both sides, and not in the
/// same order.
fn lie_otherwise(sides: &mut Sides, text: &str) -> bool {
    let Some(table) = accepted::numbers_rows_of(text) else {
        return false;
    };
    let select = format!("SELECT * FROM {table} USE INDEX ()");
    let rows = [Side::Innodb, Side::Inkstone].map(|side| sides.ask_of(side, &select));
    match rows {
        [Some(Reply::Rows(a)), Some(Reply::Rows(b))] => {
            a.rows != b.rows && sorted(&a.rows) == sorted(&b.rows)
        }
        _ => false,
    }
}

/// Whether InnoDB, which has read without a warning, warns of what Inkstone has warned of when a
/// row has refused a copy in its session. Ends transactions.
fn warns_behind_failed_copy(
    sides: &mut Sides,
    text: &str,
    [innodb, inkstone]: &[Outcome; 2],
) -> bool {
    if !(reads_by_values(text) || text.starts_with("SELECT ")) || !innodb.warnings.is_empty() {
        return false;
    }
    // An engine that looks at its keys with each row.
    let refused = [
        "CREATE TEMPORARY TABLE copied (a INT) ENGINE=MEMORY",
        "INSERT INTO copied VALUES (1), (1)",
        "ALTER TABLE copied ADD PRIMARY KEY (a), ALGORITHM=COPY",
    ];
    let replies = refused.map(|statement| sides.ask(statement));
    matches!(replies, [_, _, Some(Reply::Refused(refusal))] if refusal.code == 1062)
        && sides.again(Side::Innodb, text).as_ref() == Some(inkstone)
}

/// True of a HANDLER that reads from a place that values say: again it reads the same.
fn reads_by_values(text: &str) -> bool {
    let read = text.strip_prefix("HANDLER h READ `");
    let place = read.and_then(|rest| Some(rest.split_once("` ")?.1));
    place.is_some_and(|place| place.starts_with(['=', '<', '>']))
}

/// Whether an engine says of an ALTER TABLE what the other one has said, when the server has closed
/// the table before it.
fn alters_when_reopened(sides: &mut Sides, side: Side, text: &str, other: &Outcome) -> bool {
    let table = text.strip_prefix("ALTER TABLE ");
    let Some(table) = table.and_then(|rest| rest.split(' ').next()) else {
        return false;
    };
    let _ = sides.ask_of(side, &format!("FLUSH TABLES {table}"));
    match (sides.ask_of(side, text), &other.reply) {
        (Some(Reply::Done(_)), Reply::Done(_)) => true,
        (Some(Reply::Refused(a)), Reply::Refused(b)) => {
            a.code == b.code && neutral(&a.message) == neutral(&b.message)
        }
        _ => false,
    }
}

/// Whether InnoDB, given the rows of an INSERT or REPLACE and told to leave out those that a key
/// refuses, leaves an index without entries that its rows have.
fn loses_an_entry(sides: &mut Sides, text: &str) -> bool {
    inserted(text).is_some_and(|(table, rows)| sides.innodb_corrupts_a_copy(table, rows))
}

/// The table, and columns and rows, of an INSERT or REPLACE.
fn inserted(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("INTO ")?;
    let verb = ["INSERT", "REPLACE"]
        .iter()
        .any(|verb| text.starts_with(verb));
    let (table, rows) = rest.split_once(' ').filter(|_| verb)?;
    let rows = rows.split(" ON DUPLICATE KEY UPDATE ").next()?;
    Some((table, rows))
}

/// The indexes of each partition of a table, as InnoDB has made them.
fn indexes_by_age(sides: &mut Sides, table: &str) -> Vec<Vec<String>> {
    let ask = format!(
        "SELECT t.name, i.name FROM information_schema.innodb_sys_indexes i \
         JOIN information_schema.innodb_sys_tables t USING (table_id) \
         WHERE i.name <> 'GEN_CLUST_INDEX' AND t.name LIKE CONCAT(DATABASE(), '/{table}#P#%') \
         ORDER BY t.name, i.index_id"
    );
    let rows = rows_of(sides, &ask).unwrap_or_default();
    let of_one = rows.chunk_by(|a, b| a[0] == b[0]);
    let names = of_one.map(|rows| {
        let names = rows.iter().filter_map(|row| row[1].clone());
        names
            .filter_map(|name| String::from_utf8(name).ok())
            .collect()
    });
    names.collect()
}

/// The names of the table's indexes in InnoDB.
pub fn indexes_of(sides: &mut Sides, table: &str) -> Vec<String> {
    let Some(Reply::Rows(rows)) = sides.ask(&format!("SHOW KEYS FROM {table}")) else {
        return Vec::new();
    };
    let name = |row: Row| String::from_utf8(row.into_iter().nth(2)??).ok();
    let mut names: Vec<String> = rows.rows.into_iter().filter_map(name).collect();
    names.dedup();
    names
}

/// What InnoDB gives for a statement.
pub fn rows_of(sides: &mut Sides, statement: &str) -> Option<Vec<Row>> {
    match sides.ask(statement)? {
        Reply::Rows(rows) => Some(rows.rows),
        _ => None,
    }
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

fn ranks<'r>(rank_of: &'r HashMap<Row, u64>, rows: &[Row]) -> Option<Vec<&'r u64>> {
    rows.iter().map(|row| rank_of.get(row)).collect()
}

fn is_ranked(rank_of: &HashMap<Row, u64>, rows: &[Row]) -> bool {
    ranks(rank_of, rows).is_some_and(|ranks| ranks.is_sorted())
}

/// Whether only rows of the same rank have other places.
fn are_ranked_alike(rank_of: &HashMap<Row, u64>, innodb: &[Row], inkstone: &[Row]) -> bool {
    let [a, b] = [innodb, inkstone].map(|rows| ranks(rank_of, rows));
    a.is_some() && a == b
}

/// True if both have the same groups in the same order.
fn are_represented(sides: &mut Sides, columns: &[Representative], a: &[Row], b: &[Row]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| same_representatives(sides, columns, a, b))
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

/// Whether these are the same rows, but for the order of those whose first columns the server sorts
/// alike: texts that are not equal may have the same sort key (without PAD SPACE, and with letters
/// at the end that weigh nothing).
fn are_tied_otherwise(
    sides: &mut Sides,
    columns: &[Representative],
    innodb: &[Row],
    inkstone: &[Row],
) -> bool {
    let Some(Representative::As(table, column)) = columns.first() else {
        return false;
    };
    if innodb.len() != inkstone.len() {
        return false;
    }
    let mut moved: Vec<(&Row, &Row)> = Vec::new();
    for (a, b) in innodb.iter().zip(inkstone) {
        if !same_representatives(sides, columns, a, b) {
            moved.push((a, b));
        }
    }
    let mut others: Vec<&Row> = moved.iter().map(|(_, b)| *b).collect();
    moved.iter().all(|(a, b)| {
        let place = others
            .iter()
            .position(|other| same_representatives(sides, columns, a, other));
        place.map(|place| others.swap_remove(place)).is_some()
            && are_sorted_alike(sides, table, column, &a[0], &b[0])
    })
}

/// True if a column's values have the same sort key.
fn are_sorted_alike(sides: &mut Sides, table: &str, column: &str, a: &Cell, b: &Cell) -> bool {
    let (Some(a), Some(b), Some(text)) = (a, b, collation_of(sides, table, column)) else {
        return false;
    };
    let TextColumn {
        charset,
        collation,
        characters,
    } = text;
    let key = |bytes: &[u8]| {
        let hex = super::text::hex(bytes);
        format!("WEIGHT_STRING(_{charset} x'{hex}' COLLATE {collation} AS CHAR({characters}))")
    };
    let ask = format!("SELECT {} = {}", key(a), key(b));
    matches!(rows_of(sides, &ask), Some(rows) if rows == [[Some(b"1".to_vec())]])
}

/// Of a column of texts.
struct TextColumn {
    charset: String,
    collation: String,
    characters: String,
}

fn collation_of(sides: &mut Sides, table: &str, column: &str) -> Option<TextColumn> {
    let ask = format!(
        "SELECT character_set_name, collation_name, character_maximum_length FROM information_schema.columns \
         WHERE table_schema = DATABASE() AND table_name = '{table}' AND column_name = '{column}'"
    );
    let row = rows_of(sides, &ask)?.into_iter().next()?;
    let names: Option<Vec<String>> = row
        .into_iter()
        .map(|cell| String::from_utf8(cell?).ok())
        .collect();
    let [charset, collation, characters] = <[String; 3]>::try_from(names?).ok()?;
    Some(TextColumn {
        charset,
        collation,
        characters,
    })
}

/// True if a column takes these values for equal.
fn are_equal(sides: &mut Sides, table: &str, column: &str, a: &[u8], b: &[u8]) -> bool {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<f64>().ok();
    let Some(TextColumn {
        charset, collation, ..
    }) = collation_of(sides, table, column)
    else {
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
        | Aspect::OnlyInnodbsMarks
        | Aspect::OnlyInnodbsIndex
        | Aspect::OnlyInnodbsJoin
        | Aspect::OnlyInnodbsPlan
        | Aspect::OnlyInnodbsChoice => format!("{verb}: rows"),
        Aspect::Order | Aspect::OnlyInnodbsOrder => format!("{verb}: order of rows"),
        Aspect::Affected
        | Aspect::OnlyInnodbsPruning
        | Aspect::OnlyInnodbsChange
        | Aspect::OnlyInnodbsChangePlan => format!("{verb}: affected rows"),
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
    use super::{HashMap, Row, are_ranked_alike, is_ranked, reads_by_values};

    #[test]
    fn rows_of_the_same_rank_have_any_order() {
        let row = |name: &str| -> Row { vec![Some(name.as_bytes().to_vec())] };
        let rows = |names: &[&str]| -> Vec<Row> { names.iter().map(|name| row(name)).collect() };
        let ranks = [("empty", 1), ("ignored", 2), ("a", 3), ("b", 3)];
        let rank_of: HashMap<Row, u64> = ranks.map(|(name, rank)| (row(name), rank)).into();
        let innodb = rows(&["ignored", "empty", "a", "b"]);
        let inkstone = rows(&["ignored", "empty", "b", "a"]);
        assert!(!is_ranked(&rank_of, &inkstone));
        assert!(are_ranked_alike(&rank_of, &innodb, &inkstone));
        let other = rows(&["empty", "ignored", "a", "b"]);
        assert!(!are_ranked_alike(&rank_of, &innodb, &other));
        let unknown = rows(&["ignored", "empty", "c", "b"]);
        assert!(!are_ranked_alike(&rank_of, &unknown, &unknown));
    }
    #[test]
    fn handlers_that_read_by_values() {
        assert!(reads_by_values("HANDLER h READ `k3` < ('x') LIMIT 3"));
        assert!(reads_by_values("HANDLER h READ `k 3` = (1, 2) LIMIT 1"));
        assert!(!reads_by_values(
            "HANDLER h READ `k3` NEXT WHERE a < ('x') LIMIT 1"
        ));
        assert!(!reads_by_values("HANDLER h READ FIRST LIMIT 1"));
    }
}
