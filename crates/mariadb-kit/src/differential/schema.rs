//! Tables as the generator knows them, and how random ones are made.

use super::pages;
use super::partitioning::Partitioning;
use super::sql::{Item, Sql, Tag, tagged, text};
use super::text::{Collation, Strings};
use super::topics::{Topic, Topics};
use super::types::{Kind, Palette};
use crate::random::Random;

/// What random tables of a case are made from.
pub struct Maker {
    pub palette: Palette,
    pub strings: Strings,
    pub topics: Topics,
    /// The session's SQL mode is a strict one.
    pub strict: bool,
    next: Tag,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    pub tag: Tag,
    pub name: String,
    pub kind: Kind,
    pub null: bool,
    /// A literal, or an expression in brackets.
    pub default: Option<String>,
    /// The expression; stored or virtual.
    pub generated: Option<(String, bool)>,
    pub auto_increment: bool,
    /// What its values must be like.
    pub check: Option<String>,
}

/// What a key promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Primary,
    Unique,
    Plain,
}

/// A column of a key.
#[derive(Clone, Debug)]
pub struct Part {
    pub tag: Tag,
    pub column: String,
    pub prefix: Option<u32>,
    pub descending: bool,
}

/// A key.
#[derive(Clone, Debug)]
pub struct Key {
    pub tag: Tag,
    pub name: String,
    pub kind: KeyKind,
    pub parts: Vec<Part>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub keys: Vec<Key>,
    pub partitioning: Option<Partitioning>,
    /// It is its session's own.
    pub temporary: bool,
    pub options: String,
}

impl Column {
    /// True if it is computed from the column of this name.
    pub fn is_over(&self, name: &str) -> bool {
        let expressions = self.generated.iter().map(|(expression, _)| expression);
        let default = self
            .default
            .iter()
            .filter(|default| default.starts_with('('));
        expressions
            .chain(default)
            .any(|expression| expression.contains(name))
    }

    /// As CREATE TABLE and ALTER TABLE have it.
    pub fn definition(&self) -> String {
        let mut definition = format!("{} {}", self.name, self.kind.definition());
        if let Some((expression, stored)) = &self.generated {
            let way = if *stored { "STORED" } else { "VIRTUAL" };
            return definition + &format!(" AS ({expression}) {way}");
        }
        // TIMESTAMP has its own thoughts about NULL.
        definition += if self.null { " NULL" } else { " NOT NULL" };
        if let Some(default) = &self.default {
            definition += &format!(" DEFAULT {default}");
        }
        if self.auto_increment {
            definition += " AUTO_INCREMENT";
        }
        if let Some(check) = &self.check {
            definition += &format!(" CHECK ({check})");
        }
        definition
    }
}

impl Key {
    /// `UNIQUE KEY k3 (c1, c2(10) DESC)`.
    pub fn definition(&self) -> Sql {
        let begin = match self.kind {
            KeyKind::Primary => "PRIMARY KEY (".to_owned(),
            KeyKind::Unique => format!("UNIQUE KEY {} (", self.name),
            KeyKind::Plain => format!("KEY {} (", self.name),
        };
        Sql::Row(vec![text(begin), self.part_list(), text(")")])
    }

    /// `c1, c2(10) DESC`.
    pub fn part_list(&self) -> Sql {
        let parts = self.parts.iter().map(|part| {
            let prefix = part
                .prefix
                .map_or(String::new(), |prefix| format!("({prefix})"));
            let way = if part.descending { " DESC" } else { "" };
            tagged(part.tag, text(format!("{}{prefix}{way}", part.column)))
        });
        Sql::List(parts.collect())
    }

    /// Its name in FORCE INDEX.
    pub fn hint(&self) -> &str {
        match self.kind {
            KeyKind::Primary => "PRIMARY",
            _ => &self.name,
        }
    }

    /// True if it holds this column.
    pub fn has(&self, column: &str) -> bool {
        self.parts.iter().any(|part| part.column == column)
    }
}

impl Table {
    /// CREATE TABLE.
    pub fn definition(&self) -> Sql {
        let columns = self
            .columns
            .iter()
            .map(|column| tagged(column.tag, text(column.definition())));
        let keys = self
            .keys
            .iter()
            .map(|key| tagged(key.tag, key.definition()));
        let kind = if self.temporary { " TEMPORARY" } else { "" };
        let mut parts = vec![
            text(format!("CREATE{kind} TABLE {} (", self.name)),
            Sql::List(columns.chain(keys).collect()),
            text(format!(") {}", self.options)),
        ];
        if let Some(partitioning) = &self.partitioning {
            // A list of one, which shrinking can empty.
            parts.push(text(" "));
            parts.push(Sql::List(vec![Item {
                tag: Some(partitioning.tag),
                sql: partitioning.definition(),
            }]));
        }
        Sql::Row(parts)
    }

    /// Columns that statements can give values to.
    pub fn written(&self) -> impl Iterator<Item = &Column> {
        self.columns
            .iter()
            .filter(|column| column.generated.is_none())
    }

    /// Names of all columns.
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| &*column.name).collect()
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// True if it has a unique key, of which a second one is not to be added: of two keys the one
    /// that was made first refuses a row, and which one that is depends on whether an ALTER or
    /// TRUNCATE makes them anew.
    pub fn has_unique(&self) -> bool {
        self.keys.iter().any(|key| key.kind == KeyKind::Unique)
    }

    /// True if it has AUTO_INCREMENT.
    pub fn counts(&self) -> bool {
        self.columns.iter().any(|column| column.auto_increment)
    }

    /// An order that leaves nothing open: a key that names each row.
    pub fn total_order(&self) -> Option<String> {
        let names_rows = |key: &&Key| {
            key.kind != KeyKind::Plain
                && key.parts.iter().all(|part| {
                    let column = self.column(&part.column);
                    part.prefix.is_none()
                        && column.is_some_and(|column| !column.null && column.kind.can_be_sorted())
                })
        };
        let key = self.keys.iter().find(names_rows)?;
        let parts = key.parts.iter().map(|part| &*part.column);
        Some(parts.collect::<Vec<_>>().join(", "))
    }
}

impl Maker {
    pub fn new(palette: Palette, strings: Strings, topics: Topics) -> Self {
        Self {
            palette,
            strings,
            topics,
            strict: true,
            next: 1,
        }
    }

    /// A number that no column or key has.
    pub fn tag(&mut self) -> Tag {
        self.next += 1;
        self.next - 1
    }

    /// A random table.
    pub fn table(&mut self, random: &mut Random, name: &str) -> Table {
        let mut columns: Vec<Column> = Vec::new();
        for _ in 0..random.between(1, 7) {
            columns.push(self.column(random));
        }
        let mut table = Table {
            name: name.to_owned(),
            columns,
            keys: Vec::new(),
            partitioning: None,
            temporary: false,
            options: self.options(random),
        };
        if self.topics.has(Topic::Generated) && random.chance(25) {
            let generated = self.generated(random, &table);
            table.columns.extend(generated);
        }
        if random.chance(75) {
            self.add_primary(random, &mut table);
        }
        for _ in 0..*random.pick(&[0, 1, 1, 2, 2, 3, 4]) {
            if let Some(key) = self.key(random, &table) {
                table.keys.push(key);
            }
        }
        if self.topics.has(Topic::Partitions) && random.chance(15) {
            self.partition(random, &mut table);
        }
        table
    }

    fn options(&self, random: &mut Random) -> String {
        let mut options = String::new();
        if random.chance(30) && !self.palette.collations.is_empty() {
            let Collation { name, charset, .. } = random.pick(&self.palette.collations);
            options += &format!("DEFAULT CHARACTER SET {charset} COLLATE {name}");
        }
        if random.chance(10) && self.topics.has(Topic::AutoIncrement) {
            options += &format!(" AUTO_INCREMENT={}", random.between(1, 120));
        }
        if random.chance(8) {
            options += random.word(&[" ROW_FORMAT=DYNAMIC", " COMMENT='x'", " CHECKSUM=1"]);
        }
        if random.chance(35) && self.topics.has(Topic::Pages) {
            options += &pages::options(random);
        }
        options
    }

    /// A random column, in no table yet.
    pub fn column(&mut self, random: &mut Random) -> Column {
        let tag = self.tag();
        let kind = self.palette.kind(random);
        let null = random.chance(65);
        let mut default = None;
        let can_have = !matches!(
            kind,
            Kind::Point | Kind::Json | Kind::Blob(_) | Kind::Text(..)
        );
        if can_have && random.chance(25) {
            default = if null && random.chance(30) {
                Some("NULL".to_owned())
            } else {
                Some(kind.default(random, &self.strings))
            };
        }
        if matches!(kind, Kind::Timestamp(_)) {
            // An explicit one: the implicit one is the present.
            default = Some("'2001-01-01 00:00:00'".to_owned());
        }
        let mut column = Column {
            tag,
            name: format!("c{tag}"),
            kind,
            null,
            default,
            generated: None,
            auto_increment: false,
            check: None,
        };
        if self.topics.has(Topic::Checks) && random.chance(5) {
            column.check = Some(self.check_of(random, &column));
        }
        column
    }

    /// What values of a column must be like; a default may break it.
    pub fn check_of(&self, random: &mut Random, column: &Column) -> String {
        let name = &column.name;
        match &column.kind {
            Kind::Integer(..) | Kind::Decimal(..) => {
                let limit = random.below(20);
                format!("{name} {} {limit}", random.word(&["<>", "<", ">", "<="]))
            }
            kind if kind.is_text() => format!("LENGTH({name}) < {}", random.pick(&[3, 10, 40])),
            _ => format!("{name} IS NOT NULL"),
        }
    }

    /// A generated column over one of the table's.
    pub fn generated(&mut self, random: &mut Random, table: &Table) -> Option<Column> {
        let base: Vec<&Column> = table
            .written()
            .filter(|column| !column.auto_increment)
            .collect();
        if base.is_empty() {
            return None;
        }
        let base = *random.pick(&base);
        let name = &base.name;
        let (kind, expression) = match &base.kind {
            Kind::Integer(..) => match random.below(3) {
                // Nothing that can be out of range: a copy of the table computes it, a change in
                // place does not.
                0 => (Kind::Integer(8, false, false), format!("{name} DIV 2")),
                1 => (Kind::Integer(4, false, false), format!("{name} MOD 5")),
                _ => (Kind::Varchar(30, None), format!("CONCAT('n', {name})")),
            },
            Kind::Decimal(..) => (Kind::Decimal(65, 1), format!("ROUND({name}, 1)")),
            kind if kind.is_text() => match random.below(4) {
                0 => (kind.clone(), format!("LEFT({name}, 3)")),
                1 => (kind.clone(), format!("UPPER({name})")),
                2 => (Kind::Integer(4, false, false), format!("LENGTH({name})")),
                _ => (kind.clone(), name.clone()),
            },
            Kind::Date | Kind::Datetime(_) => {
                (Kind::Integer(4, false, false), format!("YEAR({name})"))
            }
            _ => (Kind::Integer(4, false, false), format!("{name} IS NULL")),
        };
        let tag = self.tag();
        Some(Column {
            tag,
            name: format!("c{tag}"),
            kind,
            null: true,
            default: None,
            generated: Some((expression, random.chance(50))),
            auto_increment: false,
            check: None,
        })
    }

    fn add_primary(&mut self, random: &mut Random, table: &mut Table) {
        let automatic = self.topics.has(Topic::AutoIncrement) && random.chance(45);
        if automatic {
            let tag = self.tag();
            let kind = Kind::Integer(*random.pick(&[1, 2, 4, 4, 8]), random.chance(30), false);
            let column = Column {
                tag,
                name: format!("c{tag}"),
                kind,
                null: false,
                default: None,
                generated: None,
                auto_increment: true,
                check: None,
            };
            let at = random.place(table.columns.len() + 1);
            table.columns.insert(at, column);
        }
        let Some(mut key) = self.key_of(random, table, KeyKind::Primary) else {
            return;
        };
        if automatic && random.chance(90) {
            // The server wants it at the head of a key.
            if let Some(column) = table.columns.iter().find(|column| column.auto_increment) {
                key.parts.retain(|part| part.column != column.name);
                key.parts.truncate(*random.pick(&[0, 0, 0, 1]));
                key.parts.insert(0, part_of(column));
            }
        } else if automatic {
            let column = table.columns.iter().find(|column| column.auto_increment);
            let parts: Vec<Part> = column.map(part_of).into_iter().collect();
            let tag = self.tag();
            let kind = *random.pick(&[KeyKind::Unique, KeyKind::Plain]);
            table.keys.push(Key {
                tag,
                name: format!("k{tag}"),
                kind,
                parts,
            });
        }
        for part in &key.parts {
            for column in &mut table.columns {
                if column.name == part.column {
                    column.null = false;
                    column.default = column.default.take().filter(|value| value != "NULL");
                }
            }
        }
        table.keys.insert(0, key);
    }

    /// A random key of a table that has none of its name.
    pub fn key(&mut self, random: &mut Random, table: &Table) -> Option<Key> {
        let kind = if random.chance(35) {
            KeyKind::Unique
        } else {
            KeyKind::Plain
        };
        self.key_of(random, table, kind)
    }

    /// A random key.
    pub fn key_of(&mut self, random: &mut Random, table: &Table, kind: KeyKind) -> Option<Key> {
        let fits = |column: &&Column| {
            let generated = column.generated.is_some();
            column.kind.can_be_key() && !(generated && kind == KeyKind::Primary)
        };
        let mut columns: Vec<&Column> = table.columns.iter().filter(fits).collect();
        if columns.is_empty() {
            return None;
        }
        let tag = self.tag();
        let mut parts = Vec::new();
        for _ in 0..*random.pick(&[1, 1, 1, 2, 2, 3]) {
            if columns.is_empty() {
                break;
            }
            let column = columns.swap_remove(random.place(columns.len()));
            parts.push(random_part(random, column));
        }
        Some(Key {
            tag,
            name: format!("k{tag}"),
            kind,
            parts,
        })
    }
}

/// The whole column.
pub fn part_of(column: &Column) -> Part {
    Part {
        tag: column.tag,
        column: column.name.clone(),
        prefix: None,
        descending: false,
    }
}

fn random_part(random: &mut Random, column: &Column) -> Part {
    let mut part = part_of(column);
    part.descending = random.chance(20);
    if let Some(length) = column.kind.length() {
        let character = match &column.kind {
            Kind::Binary(_) | Kind::Varbinary(_) | Kind::Blob(_) => 1,
            kind => kind
                .collation()
                .map_or(4, |collation| collation.character_max_bytes),
        };
        // Beside other columns, or as long as a key can be.
        let fits = 3072 / character / random.pick(&[1, 2, 2]);
        // Now and then one that is too long: both engines say so.
        let is_long = length > fits && random.chance(90);
        if column.kind.needs_prefix() || is_long || random.chance(20) {
            let most = u64::from(length.min(fits).max(1));
            let prefix = *random.pick(&[1, 2, 3, 10, 30, most, most]);
            part.prefix = Some(prefix.min(most) as u32);
        }
    }
    part
}
