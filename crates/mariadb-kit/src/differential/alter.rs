//! Random ALTER TABLE, and what the table is afterwards.
//!
//! Not ALTER IGNORE: InnoDB 10.11 may lose all rows in it when some are duplicates.

use super::pages;
use super::partitioning::{Method, Partitioning};
use super::schema::{Column, Key, KeyKind, Maker, Table};
use super::sql::{Item, Sql, list, tagged, text};
use super::text::Collation;
use super::topics::Topic;
use super::types::Kind;
use crate::random::Random;

/// A clause of ALTER TABLE.
struct Clause {
    sql: Item,
    /// It stands alone in its statement.
    alone: bool,
}

impl Clause {
    fn of(sql: Sql) -> Self {
        Self {
            sql: Item { tag: None, sql },
            alone: false,
        }
    }

    fn about(tag: u32, sql: Sql) -> Self {
        Self {
            sql: tagged(tag, sql),
            alone: false,
        }
    }

    fn alone(sql: impl Into<String>) -> Self {
        let mut clause = Self::of(text(sql));
        clause.alone = true;
        clause
    }
}

impl Maker {
    /// An ALTER TABLE; changes `table` to what it is once that is done.
    pub fn alter(&mut self, random: &mut Random, table: &mut Table) -> Sql {
        let name = table.name.clone();
        let mut clauses: Vec<Item> = Vec::new();
        let count = *random.pick(&[1, 1, 1, 2, 3]);
        while clauses.len() < count {
            let Some(clause) = self.clause(random, table, clauses.is_empty()) else {
                continue;
            };
            clauses.push(clause.sql);
            if clause.alone {
                break;
            }
        }
        Sql::Row(vec![
            text(format!("ALTER TABLE {name} ")),
            Sql::List(clauses),
        ])
    }

    fn clause(&mut self, random: &mut Random, table: &mut Table, first: bool) -> Option<Clause> {
        match random.weighted(&[18, 9, 16, 5, 16, 10, 4, 5, 5, 4, 4, 6, 4, 4, 8]) {
            0 => Some(self.add_column(random, table)),
            1 => drop_column(random, table),
            2 => self.modify(random, table),
            3 => rename_column(random, table),
            4 => self.add_key(random, table),
            5 => drop_key(random, table),
            6 => Some(Clause::of(text("FORCE"))),
            7 if first => Some(Clause::alone("ENGINE={engine}")),
            // Alone: beside what is copied it counts in other steps than beside what is done in
            // place.
            8 if first && self.topics.has(Topic::AutoIncrement) => {
                let next = random.pick(&[1, 5, 100, 126, 300]);
                Some(Clause::alone(format!("AUTO_INCREMENT={next}")))
            }
            9 => self.set_default(random, table),
            12 if self.topics.has(Topic::Checks) => self.constraint(random, table),
            13 => rename_key(random, table),
            14 if first && self.topics.has(Topic::Pages) => {
                Some(Clause::alone(pages::alter(random)))
            }
            10 if first => self.convert(random, table),
            11 if first && self.topics.has(Topic::Partitions) => self.repartition(random, table),
            _ => None,
        }
    }

    fn add_column(&mut self, random: &mut Random, table: &mut Table) -> Clause {
        let generated = if self.topics.has(Topic::Generated) && random.chance(20) {
            self.generated(random, table)
        } else {
            None
        };
        let mut column = generated.unwrap_or_else(|| self.column(random));
        if matches!(column.kind, Kind::Json) && !column.null {
            // Old rows would break its constraint, at which an ALTER that copies looks, one in
            // place does not.
            column.default = Some("'{}'".to_owned());
        }
        // Old rows may break it, at which an ALTER that copies looks, one in place does not.
        column.check = None;
        if column.generated.is_none() && random.chance(20) {
            column.default = computed_default(random, table, &column).or(column.default);
        }
        let at = random.place(table.columns.len() + 1);
        let place = match at {
            0 => " FIRST".to_owned(),
            at if at == table.columns.len() => String::new(),
            at => format!(" AFTER {}", table.columns[at - 1].name),
        };
        let sql = text(format!("ADD COLUMN {}{place}", column.definition()));
        let tag = column.tag;
        table.columns.insert(at, column);
        Clause::about(tag, sql)
    }

    fn modify(&mut self, random: &mut Random, table: &mut Table) -> Option<Clause> {
        let at = random.place(table.columns.len());
        let mut column = table.columns[at].clone();
        if column.generated.is_some() {
            return None;
        }
        let is_base = table
            .columns
            .iter()
            .any(|other| other.is_over(&column.name));
        // What is computed of it, or must hold, may not fit a value of another type or length: a
        // copy looks.
        let is_bound = is_base || column.check.is_some();
        match random.below(4) {
            // NULLs become the old default in place, and the type's zero in a copy.
            0 if !self.strict && holds_other_nulls(&column) => return None,
            0 => column.null = !column.null,
            1..=3 if is_bound => return None,
            1 => column.kind = self.wider(random, &column.kind),
            // InnoDB does some of these in place, and forgets what was reserved.
            2 if column.kind.is_text() && table.counts() => return None,
            2 if column.kind.is_text() && !self.palette.collations.is_empty() => {
                let other = match column.kind.collation().and_then(with_longer_characters) {
                    Some(longer) if random.chance(50) => longer,
                    _ => random.pick(&self.palette.collations).clone(),
                };
                column.kind = column.kind.with_collation(&other);
            }
            2 => column.kind = self.wider(random, &column.kind),
            _ if column.auto_increment => return None,
            _ => {
                column.kind = self.palette.kind(random);
                column.default = None;
            }
        }
        if column.auto_increment && !column.kind.is_integer() {
            return None;
        }
        column.default = column
            .default
            .filter(|value| column.null || value != "NULL");
        if matches!(column.kind, Kind::Timestamp(_)) && column.default.is_none() {
            column.default = Some("'2001-01-01 00:00:00'".to_owned());
        }
        let tag = column.tag;
        let mut definition = column.definition();
        table.columns[at] = column;
        if random.chance(25) {
            definition += &move_column(random, table, at);
        }
        let sql = text(format!("MODIFY COLUMN {definition}"));
        Some(Clause::about(tag, sql))
    }

    /// A type like this one, longer or shorter.
    fn wider(&self, random: &mut Random, kind: &Kind) -> Kind {
        let length = *random.pick(&[1, 8, 20, 100, 255]);
        match kind {
            Kind::Integer(_, unsigned, _) => {
                Kind::Integer(*random.pick(&[1, 2, 3, 4, 8]), *unsigned, false)
            }
            Kind::Decimal(digits, behind) => Kind::Decimal((digits + 3).min(65), *behind),
            Kind::Char(_, collation) => Kind::Char(length, collation.clone()),
            Kind::Varchar(_, collation) => {
                Kind::Varchar(*random.pick(&[1, 8, 60, 255, 256, 700]), collation.clone())
            }
            Kind::Text(_, collation) => Kind::Text(
                random.word(&["TINY", "", "MEDIUM", "LONG"]),
                collation.clone(),
            ),
            Kind::Binary(_) => Kind::Binary(length),
            Kind::Varbinary(_) => Kind::Varbinary(length),
            Kind::Time(_) => Kind::Time(random.below(7) as u32),
            Kind::Datetime(_) => Kind::Datetime(random.below(7) as u32),
            Kind::Timestamp(_) => Kind::Timestamp(random.below(7) as u32),
            Kind::Bit(_) => Kind::Bit(random.between(1, 64) as u32),
            // Of more than 255, and of more than eight, each value has a byte more.
            Kind::Enum(count, collation) => Kind::Enum(
                *random.pick(&[count + 1, count + 1, 256]),
                collation.clone(),
            ),
            Kind::Set(count, collation) => {
                Kind::Set(*random.pick(&[count + 1, 8, 9]), collation.clone())
            }
            Kind::Float => Kind::Double,
            kind => kind.clone(),
        }
    }

    fn add_key(&mut self, random: &mut Random, table: &mut Table) -> Option<Clause> {
        let has_primary = table.keys.iter().any(|key| key.kind == KeyKind::Primary);
        let key = if !has_primary && random.chance(40) {
            self.key_of(random, table, KeyKind::Primary)?
        } else {
            self.key(random, table)?
        };
        if key.kind == KeyKind::Primary {
            let holds = |column: &Column| key.has(&column.name) && holds_other_nulls(column);
            if !self.strict && table.columns.iter().any(holds) {
                return None;
            }
            for column in &mut table.columns {
                if key.has(&column.name) {
                    column.null = false;
                }
            }
        }
        let sql = Sql::Row(vec![text("ADD "), key.definition()]);
        let tag = key.tag;
        if key.kind == KeyKind::Unique && table.has_unique() {
            return None;
        }
        match key.kind {
            KeyKind::Primary => table.keys.insert(0, key),
            _ => table.keys.push(key),
        }
        Some(Clause::about(tag, sql))
    }

    fn set_default(&mut self, random: &mut Random, table: &mut Table) -> Option<Clause> {
        let at = random.place(table.columns.len());
        let column = &mut table.columns[at];
        if column.generated.is_some() || column.auto_increment || !column.kind.can_be_sorted() {
            return None;
        }
        let value = column.kind.default(random, &self.strings);
        let sql = text(format!("ALTER COLUMN {} SET DEFAULT {value}", column.name));
        column.default = Some(value);
        Some(Clause::about(column.tag, sql))
    }

    /// A constraint of the table: added, or taken away.
    fn constraint(&mut self, random: &mut Random, table: &mut Table) -> Option<Clause> {
        let at = random.place(table.columns.len());
        let column = &table.columns[at];
        let name = format!("x{}", column.tag);
        if random.chance(30) {
            return Some(Clause::of(text(format!(
                "DROP CONSTRAINT IF EXISTS {name}"
            ))));
        }
        let check = self.check_of(random, column);
        let sql = text(format!("ADD CONSTRAINT {name} CHECK ({check})"));
        Some(Clause::about(column.tag, sql))
    }

    fn convert(&mut self, random: &mut Random, table: &mut Table) -> Option<Clause> {
        if self.palette.collations.is_empty() || table.counts() {
            return None;
        }
        let other = random.pick(&self.palette.collations).clone();
        for column in &mut table.columns {
            column.kind = column.kind.with_collation(&other);
        }
        Some(Clause::alone(format!(
            "CONVERT TO CHARACTER SET {} COLLATE {}",
            other.charset, other.name
        )))
    }

    /// Changes of partitions.
    fn repartition(&mut self, random: &mut Random, table: &mut Table) -> Option<Clause> {
        let Some(Partitioning { tag, method, .. }) = &mut table.partitioning else {
            let mut partitioned = table.clone();
            self.partition(random, &mut partitioned);
            let definition = partitioned.partitioning.as_ref()?.definition();
            table.partitioning = partitioned.partitioning;
            let mut clause = Clause::of(definition);
            clause.alone = true;
            return Some(clause);
        };
        if random.chance(15) {
            table.partitioning = None;
            return Some(Clause::alone("REMOVE PARTITIONING"));
        }
        let _ = tag;
        change_partitions(random, method)
    }
}

/// A default that is computed: of another column, or for each row, or once.
fn computed_default(random: &mut Random, table: &Table, column: &Column) -> Option<String> {
    let others: Vec<&Column> = table
        .written()
        .filter(|other| other.kind == column.kind && !other.auto_increment)
        .collect();
    match &column.kind {
        Kind::Datetime(digits) | Kind::Timestamp(digits) => {
            Some(format!("CURRENT_TIMESTAMP({digits})"))
        }
        _ if !others.is_empty() && column.null => Some(format!("({})", random.pick(&others).name)),
        Kind::Integer(..) => Some("(LENGTH(CURRENT_DATE()))".to_owned()),
        _ => None,
    }
}

/// Puts a column elsewhere; what ALTER says of that.
fn move_column(random: &mut Random, table: &mut Table, at: usize) -> String {
    let column = table.columns.remove(at);
    let to = random.place(table.columns.len() + 1);
    let place = match to {
        0 => " FIRST".to_owned(),
        to => format!(" AFTER {}", table.columns[to - 1].name),
    };
    table.columns.insert(to, column);
    place
}

/// The collation with the same order whose characters may have more bytes.
fn with_longer_characters(collation: &Collation) -> Option<Collation> {
    let name = collation.name.strip_prefix("utf8mb3_")?;
    Some(Collation {
        name: format!("utf8mb4_{name}"),
        charset: "utf8mb4".to_owned(),
        character_max_bytes: 4,
    })
}

/// True if NULLs of it become something else in place than in a copy when it is made NOT NULL: its
/// old default, or what a constraint refuses, at which only a copy looks.
fn holds_other_nulls(column: &Column) -> bool {
    column.null
        && (column.default.is_some() || column.check.is_some() || matches!(column.kind, Kind::Json))
}

fn change_partitions(random: &mut Random, method: &mut Method) -> Option<Clause> {
    let sql = match method {
        Method::Hash(count) | Method::Key(count) => match random.chance(50) {
            true => {
                *count += 1;
                "ADD PARTITION PARTITIONS 1".to_owned()
            }
            false if *count > 1 => {
                *count -= 1;
                "COALESCE PARTITION 1".to_owned()
            }
            false => "TRUNCATE PARTITION p0".to_owned(),
        },
        Method::Range(ends) => match random.below(4) {
            0 if ends.len() == 3 => {
                // The second goes into the third.
                ends.remove(1);
                let end = ends[1];
                let sql = format!(
                    "REORGANIZE PARTITION p1, p2 INTO (PARTITION p1 VALUES LESS THAN ({end}))"
                );
                return Some(Clause::alone(sql));
            }
            1 => "TRUNCATE PARTITION p0".to_owned(),
            2 => "REBUILD PARTITION p0".to_owned(),
            _ => "OPTIMIZE PARTITION pmax".to_owned(),
        },
        Method::List(_) => match random.below(3) {
            0 => "TRUNCATE PARTITION p0".to_owned(),
            1 => "REBUILD PARTITION ALL".to_owned(),
            _ => "CHECK PARTITION ALL".to_owned(),
        },
    };
    Some(Clause::alone(sql))
}

fn drop_column(random: &mut Random, table: &mut Table) -> Option<Clause> {
    let at = random.place(table.columns.len());
    let column = &table.columns[at];
    let used = table
        .columns
        .iter()
        .any(|other| other.is_over(&column.name));
    let partitions = table
        .partitioning
        .as_ref()
        .is_some_and(|by| by.column == column.name);
    if table.columns.len() < 2 || used || partitions {
        return None;
    }
    let column = table.columns.remove(at);
    for key in &mut table.keys {
        key.parts.retain(|part| part.column != column.name);
    }
    table.keys.retain(|key| !key.parts.is_empty());
    let sql = text(format!("DROP COLUMN {}", column.name));
    Some(Clause::about(column.tag, sql))
}

fn rename_column(random: &mut Random, table: &mut Table) -> Option<Clause> {
    let at = random.place(table.columns.len());
    let old = table.columns[at].name.clone();
    let generated = table.columns.iter().any(|other| other.generated.is_some());
    if generated
        || table.columns.iter().any(|other| other.is_over(&old))
        || table.partitioning.is_some()
    {
        return None;
    }
    let new = format!("{old}r");
    table.columns[at].name = new.clone();
    for part in table.keys.iter_mut().flat_map(|key| &mut key.parts) {
        if part.column == old {
            part.column = new.clone();
        }
    }
    let tag = table.columns[at].tag;
    let sql = if random.chance(50) {
        format!("RENAME COLUMN {old} TO {new}")
    } else {
        format!("CHANGE COLUMN {old} {}", table.columns[at].definition())
    };
    Some(Clause::about(tag, text(sql)))
}

fn rename_key(random: &mut Random, table: &mut Table) -> Option<Clause> {
    if table.keys.is_empty() {
        return None;
    }
    let at = random.place(table.keys.len());
    let key = &mut table.keys[at];
    if key.kind == KeyKind::Primary {
        return None;
    }
    let new = format!("{}r", key.name);
    let sql = text(format!("RENAME INDEX {} TO {new}", key.name));
    key.name = new;
    Some(Clause::about(key.tag, sql))
}

fn drop_key(random: &mut Random, table: &mut Table) -> Option<Clause> {
    if table.keys.is_empty() {
        return None;
    }
    let at = random.place(table.keys.len());
    let key: Key = table.keys.remove(at);
    let sql = match key.kind {
        KeyKind::Primary => "DROP PRIMARY KEY".to_owned(),
        _ => format!("DROP KEY {}", key.name),
    };
    Some(Clause::about(key.tag, text(sql)))
}

/// Statements about whole tables that are not ALTER; changes what the generator knows of them.
pub fn whole_table(random: &mut Random, tables: &mut [Table], fresh: &str) -> Sql {
    let at = random.place(tables.len());
    let table = &mut tables[at];
    let name = table.name.clone();
    match random.below(6) {
        0 => text(format!("TRUNCATE TABLE {name}")),
        1 => {
            table.name = fresh.to_owned();
            Sql::Row(vec![
                text("RENAME TABLE "),
                list([text(format!("{name} TO {fresh}"))]),
            ])
        }
        2 => text(format!("OPTIMIZE TABLE {name}")),
        3 => text(format!("ANALYZE TABLE {name}")),
        4 => text(format!("CHECK TABLE {name}")),
        _ => text(format!("FLUSH TABLES {name}")),
    }
}
