//! Random SELECTs, and conditions for other statements.

use super::schema::{Column, Key, Maker, Table};
use super::sql::{Sql, list, text};
use super::step::{Expected, Representative, Statement};
use super::types::Kind;
use crate::random::Random;

impl Maker {
    /// A condition on one of these columns, which are `prefix` and a name.
    pub fn condition(&self, random: &mut Random, columns: &[&Column], prefix: &str) -> Sql {
        if columns.is_empty() {
            return text("1 = 1");
        }
        let column = *random.pick(columns);
        let name = format!("{prefix}{}", column.name);
        let mut value = || column.kind.value(random, &self.strings);
        let (first, second) = (value(), value());
        if column.kind.is_text() && random.chance(20) {
            return like(random, &name, &first);
        }
        let compared = |sign: &str, value| Sql::Row(vec![text(format!("{name} {sign} ")), value]);
        match random.weighted(&[20, 4, 12, 12, 12, 20, 10, 6, 4]) {
            0 => compared("=", first),
            1 => compared("<=>", first),
            2 => compared("<", first),
            3 => compared(">=", first),
            4 => compared(">", first),
            5 => Sql::Row(vec![
                text(format!("{name} BETWEEN ")),
                first,
                text(" AND "),
                second,
            ]),
            6 => Sql::Row(vec![
                text(format!("{name} IN (")),
                list([first, second]),
                text(")"),
            ]),
            7 => text(format!("{name} IS NULL")),
            _ => compared("<>", first),
        }
    }

    /// A WHERE with its blank before it, or nothing.
    pub fn filter(&self, random: &mut Random, columns: &[&Column], prefix: &str) -> Sql {
        let mut parts = vec![text(" WHERE ")];
        match random.weighted(&[20, 50, 15, 15]) {
            0 => return text(""),
            1 => parts.push(self.condition(random, columns, prefix)),
            at => {
                parts.push(self.condition(random, columns, prefix));
                parts.push(text(if at == 2 { " AND " } else { " OR " }));
                parts.push(self.condition(random, columns, prefix));
            }
        }
        Sql::Row(parts)
    }

    /// A condition that a range of this key may serve.
    pub fn range(&self, random: &mut Random, table: &Table, key: &Key) -> Sql {
        let columns = key.parts.iter();
        let columns: Vec<&Column> = columns
            .filter_map(|part| table.column(&part.column))
            .collect();
        let mut parts = vec![text(" WHERE ")];
        parts.push(self.condition(random, &columns[..1.min(columns.len())], ""));
        if columns.len() > 1 && random.chance(40) {
            parts.push(text(" AND "));
            parts.push(self.condition(random, &columns[1..], ""));
        }
        Sql::Row(parts)
    }

    /// A random SELECT.
    pub fn query(&self, random: &mut Random, tables: &[Table]) -> Statement {
        let table = random.pick(tables);
        match random.weighted(&[18, 36, 14, 10, 10, 5, 7]) {
            0 => self.whole(random, table),
            1 => self.ordered(random, table),
            2 => self.grouped(random, table),
            3 => self.extremes(random, table),
            4 => self.joined(random, table, tables),
            5 => self.counted(random, table),
            _ => self.merged(random, table),
        }
    }

    fn whole(&self, random: &mut Random, table: &Table) -> Statement {
        let columns: Vec<&Column> = table.columns.iter().collect();
        let filter = self.filter(random, &columns, "");
        let lock = random.word(&["", "", "", " FOR UPDATE", " LOCK IN SHARE MODE"]);
        let begin = text(format!("SELECT * FROM {}", table.name));
        Statement::any_order(Sql::Row(vec![begin, filter, text(lock)]))
    }

    /// By an index, one way or the other.
    fn ordered(&self, random: &mut Random, table: &Table) -> Statement {
        let Some(key) = random_key(random, table) else {
            return self.whole(random, table);
        };
        let filter = if random.chance(60) {
            self.range(random, table, key)
        } else {
            text("")
        };
        by_index(random, table, key, filter)
    }

    fn grouped(&self, random: &mut Random, table: &Table) -> Statement {
        let sorted = |column: &&Column| column.kind.can_be_sorted();
        let columns: Vec<&Column> = table.columns.iter().filter(sorted).collect();
        let Some(key) = random_key(random, table) else {
            return self.whole(random, table);
        };
        let by = table.column(&key.parts[0].column);
        let Some(by) = by.filter(|column| column.kind.can_be_sorted()) else {
            return self.whole(random, table);
        };
        let of = *random.pick(&columns);
        let filter = if random.chance(50) {
            self.range(random, table, key)
        } else {
            text("")
        };
        let as_column =
            |column: &Column| Representative::As(table.name.clone(), column.name.clone());
        let (what, columns) = match random.below(4) {
            0 => (format!("DISTINCT {}", by.name), vec![as_column(by)]),
            1 => (
                format!("{}, COUNT(*)", by.name),
                vec![as_column(by), Representative::Itself],
            ),
            2 => (
                format!("{}, MIN({of}), MAX({of})", by.name, of = of.name),
                vec![as_column(by), as_column(of), as_column(of)],
            ),
            _ => (
                format!("{}, COUNT(DISTINCT {})", by.name, of.name),
                vec![as_column(by), Representative::Itself],
            ),
        };
        let group = if what.starts_with("DISTINCT") {
            String::new()
        } else {
            format!(" GROUP BY {}", by.name)
        };
        let hint = hint(random, key);
        Statement {
            sql: Sql::Row(vec![
                text(format!("SELECT {what} FROM {}{hint}", table.name)),
                filter,
                text(format!("{group} ORDER BY {}", by.name)),
            ]),
            rows: Expected::Representatives(columns),
        }
    }

    fn extremes(&self, random: &mut Random, table: &Table) -> Statement {
        let Some(key) = random_key(random, table) else {
            return self.whole(random, table);
        };
        let by = &key.parts[0].column;
        let filter = if random.chance(60) {
            self.range(random, table, key)
        } else {
            text("")
        };
        let hint = hint(random, key);
        Statement {
            sql: Sql::Row(vec![
                text(format!(
                    "SELECT MIN({by}), MAX({by}), COUNT({by}) FROM {}{hint}",
                    table.name
                )),
                filter,
            ]),
            rows: Expected::Representatives(vec![
                Representative::As(table.name.clone(), by.clone()),
                Representative::As(table.name.clone(), by.clone()),
                Representative::Itself,
            ]),
        }
    }

    fn joined(&self, random: &mut Random, left: &Table, tables: &[Table]) -> Statement {
        let right = random.pick(tables);
        let Some((a, b)) = alike(random, left, right) else {
            return self.whole(random, left);
        };
        let way = random.word(&["JOIN", "LEFT JOIN", "STRAIGHT_JOIN"]);
        let columns: Vec<&Column> = left.columns.iter().collect();
        let filter = self.filter(random, &columns, "x.");
        Statement::any_order(Sql::Row(vec![
            text(format!(
                "SELECT x.{}, y.* FROM {} x {way} {} y ON x.{} = y.{}",
                a.name, left.name, right.name, a.name, b.name
            )),
            filter,
        ]))
    }

    /// By two indexes: their entries merged, or the one's rows filtered by the other.
    fn merged(&self, random: &mut Random, table: &Table) -> Statement {
        let first = |key: &Key| table.column(&key.parts[0].column);
        let Some((one, other)) = random_key(random, table).zip(random_key(random, table)) else {
            return self.whole(random, table);
        };
        let Some((a, b)) = first(one).zip(first(other)) else {
            return self.whole(random, table);
        };
        let (table, one, other) = (&table.name, one.hint(), other.hint());
        let begin = format!("SELECT * FROM {table} FORCE INDEX ({one}, {other}) WHERE ");
        Statement::any_order(Sql::Row(vec![
            text(begin),
            self.condition(random, &[a], ""),
            text(random.word(&[" AND ", " OR "])),
            self.condition(random, &[b], ""),
        ]))
    }

    fn counted(&self, random: &mut Random, table: &Table) -> Statement {
        let columns: Vec<&Column> = table.columns.iter().collect();
        let hint = random_key(random, table).map_or(String::new(), |key| hint(random, key));
        let filter = self.filter(random, &columns, "");
        let begin = text(format!("SELECT COUNT(*) FROM {}{hint}", table.name));
        Statement::exact(Sql::Row(vec![begin, filter]))
    }
}

/// All rows that a filter lets through, by an index.
pub fn by_index(random: &mut Random, table: &Table, key: &Key, filter: Sql) -> Statement {
    let sortable = |part: &&super::schema::Part| {
        let column = table.column(&part.column);
        column.is_some_and(|column| column.kind.can_be_sorted())
    };
    let turned = random.chance(40);
    let parts: Vec<String> = key
        .parts
        .iter()
        .take_while(sortable)
        .map(|part| {
            if part.descending != turned {
                format!("{} DESC", part.column)
            } else {
                part.column.clone()
            }
        })
        .collect();
    let names = if random.chance(30) {
        // What the key covers, alone.
        let names: Vec<&str> = key.parts.iter().map(|part| &*part.column).collect();
        names.join(", ")
    } else {
        table.names().join(", ")
    };
    let hint = hint(random, key);
    let begin = text(format!("SELECT {names} FROM {}{hint}", table.name));
    if parts.is_empty() {
        return Statement::any_order(Sql::Row(vec![begin, filter]));
    }
    let order = parts.join(", ");
    let mut end = format!(" ORDER BY {order}");
    if let (Some(total), true) = (table.total_order(), random.chance(25)) {
        let rows = random.between(1, 6);
        let begin_at = random.below(4);
        end = format!(" ORDER BY {order}, {total} LIMIT {begin_at}, {rows}");
        let scan = text(format!("SELECT {names} FROM {} USE INDEX ()", table.name));
        let same = Sql::Row(vec![scan, filter.clone(), text(end.clone())]);
        return Statement {
            sql: Sql::Row(vec![begin, filter, text(end)]),
            rows: Expected::Some(same),
        };
    }
    // Of the whole table: by no index a filter may let other rows through (a fraction of a second
    // that the column has no place for).
    let ranks = text(format!(
        "SELECT {names}, DENSE_RANK() OVER (ORDER BY {order}) FROM {} USE INDEX ()",
        table.name
    ));
    let rows = Expected::Ranked(ranks);
    end.push_str(random.word(&["", "", "", " FOR UPDATE"]));
    let sql = Sql::Row(vec![begin, filter, text(end)]);
    Statement { sql, rows }
}

/// An index to use.
pub fn hint(random: &mut Random, key: &Key) -> String {
    if random.chance(85) {
        format!(" FORCE INDEX ({})", key.hint())
    } else {
        String::new()
    }
}

/// One of the table's keys.
pub fn random_key<'a>(random: &mut Random, table: &'a Table) -> Option<&'a Key> {
    if table.keys.is_empty() {
        None
    } else {
        Some(random.pick(&table.keys))
    }
}

fn like(random: &mut Random, name: &str, value: &Sql) -> Sql {
    let Sql::Value(value, simpler) = value else {
        return text("1 = 1");
    };
    let (before, behind) = *random.pick(&[("", "'%'"), ("", "'%'"), ("'_'", "'%'"), ("", "'_'")]);
    let before = if before.is_empty() { "''" } else { before };
    let concat = |value: &String| format!("CONCAT({before}, {value}, {behind})");
    let simpler = simpler.iter().map(concat).collect();
    Sql::Row(vec![
        text(format!("{name} LIKE ")),
        Sql::Value(concat(value), simpler),
    ])
}

/// Columns that compare as what they are. Comparing text with numbers warns for each pair of rows
/// that the plan at hand looks at.
pub fn alike<'a>(
    random: &mut Random,
    left: &'a Table,
    right: &'a Table,
) -> Option<(&'a Column, &'a Column)> {
    use std::mem::discriminant;
    for _ in 0..12 {
        let (a, b) = (random.pick(&left.columns), random.pick(&right.columns));
        let numbers = counts(&a.kind) && counts(&b.kind);
        if numbers || discriminant(&a.kind) == discriminant(&b.kind) {
            return Some((a, b));
        }
    }
    None
}

/// True if a change of this column may meet a duplicate, or move a row in a key.
pub fn is_unique(table: &Table, column: &Column) -> bool {
    use super::schema::KeyKind;
    let generated_over = |key: &Key| {
        key.parts.iter().any(|part| {
            table
                .column(&part.column)
                .is_some_and(|other| other.is_over(&column.name))
        })
    };
    table
        .keys
        .iter()
        .any(|key| key.kind != KeyKind::Plain && (key.has(&column.name) || generated_over(key)))
}

/// True if adding one to it means something.
pub fn counts(kind: &Kind) -> bool {
    matches!(kind, Kind::Integer(..) | Kind::Decimal(..) | Kind::Year)
}
