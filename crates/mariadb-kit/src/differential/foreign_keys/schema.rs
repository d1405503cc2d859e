//! Tables that refer to each other: columns of few types, so that they often fit.

use super::super::sql::{Item, Sql, Tag, list, tagged, text};
use crate::random::Random;

/// A type, and values that collide, or nearly do.
pub struct Domain {
    pub sql: &'static str,
    pub values: &'static [&'static str],
}

const NUMBERS: &[&str] = &["0", "1", "2", "3", "4"];
const TEXTS: &[&str] = &["'a'", "'A'", "'b'", "'ä'", "'a '", "''", "'ss'", "'ß'"];
const BYTES: &[&str] = &["'a'", "'A'", "'b'", "'a '", "''", "'a\\0'"];

const DOMAINS: [Domain; 19] = [
    of("INT", NUMBERS),
    of("INT", NUMBERS),
    of("BIGINT UNSIGNED", NUMBERS),
    of("SMALLINT", NUMBERS),
    of("VARCHAR(10)", TEXTS),
    of("CHAR(10)", TEXTS),
    of("VARCHAR(300)", TEXTS),
    of(
        "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        TEXTS,
    ),
    of(
        "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        TEXTS,
    ),
    of(
        "CHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        TEXTS,
    ),
    of(
        "CHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
        TEXTS,
    ),
    of(
        "VARCHAR(15) CHARACTER SET latin1 COLLATE latin1_german2_ci",
        TEXTS,
    ),
    of("VARBINARY(8)", BYTES),
    of("BINARY(4)", BYTES),
    of("DATE", &["'2020-01-01'", "'2020-01-02'", "'2021-02-03'"]),
    of(
        "DATETIME(3)",
        &["'2020-01-01 00:00:00.001'", "'2020-01-01'"],
    ),
    of("DECIMAL(6,2)", &["0", "1", "1.5", "2", "-1"]),
    of("ENUM('a', 'b', 'ss')", &["'a'", "'b'", "'ss'"]),
    of("DOUBLE", NUMBERS),
];

const fn of(sql: &'static str, values: &'static [&'static str]) -> Domain {
    Domain { sql, values }
}

impl Domain {
    fn is_of_bytes(&self) -> bool {
        let kept = ["VARBINARY", "BINARY", "DATETIME", "DECIMAL"];
        kept.iter().any(|name| self.sql.starts_with(name))
    }
}

/// What a foreign key does with children.
pub const ACTIONS: [&str; 5] = ["", " RESTRICT", " NO ACTION", " CASCADE", " SET NULL"];

#[derive(Clone, Debug)]
pub struct Column {
    pub tag: Tag,
    pub name: String,
    /// A place in [`DOMAINS`].
    pub domain: usize,
    pub nullable: bool,
    /// Its expression and kind, if it is generated.
    pub generated: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    /// Names of the primary key's columns.
    pub primary: Vec<String>,
    /// Names, and whether they are unique, with their columns.
    pub keys: Vec<(String, bool, Vec<String>)>,
}

/// A foreign key, before it is text.
#[derive(Clone, Debug)]
pub struct Reference {
    pub tag: Tag,
    pub name: Option<String>,
    pub child: usize,
    pub parent: usize,
    pub columns: Vec<String>,
    pub parent_columns: Vec<String>,
    pub on_delete: &'static str,
    pub on_update: &'static str,
}

impl Column {
    pub fn value(&self, random: &mut Random) -> Sql {
        if self.nullable && random.chance(12) {
            return text("NULL");
        }
        let values = DOMAINS[self.domain].values;
        Sql::Value(
            (*random.pick(values)).to_owned(),
            vec![values[0].to_owned()],
        )
    }

    pub fn definition(&self) -> String {
        let (name, sql) = (&self.name, DOMAINS[self.domain].sql);
        match &self.generated {
            Some(generated) => format!("{name} {sql} AS {generated}"),
            None if self.nullable => format!("{name} {sql}"),
            None => format!("{name} {sql} NOT NULL"),
        }
    }
}

impl Table {
    /// Columns that a statement may give values.
    pub fn written(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|it| it.generated.is_none())
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|it| it.name == name)
    }

    /// By all columns: rows that are equal in them are.
    pub fn order(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|it| it.name.as_str()).collect();
        format!(" ORDER BY {}", names.join(", "))
    }

    /// CREATE TABLE, with these foreign keys.
    pub fn definition(&self, references: &[Reference], tables: &[Table]) -> Sql {
        let columns = self.columns.iter();
        let mut items: Vec<Item> = columns
            .map(|it| tagged(it.tag, text(it.definition())))
            .collect();
        let other = |sql: String| Item {
            tag: None,
            sql: text(sql),
        };
        if !self.primary.is_empty() {
            items.push(other(format!("PRIMARY KEY ({})", self.primary.join(", "))));
        }
        for (name, unique, columns) in &self.keys {
            let unique = if *unique { "UNIQUE " } else { "" };
            items.push(other(format!(
                "{unique}KEY {name} ({})",
                columns.join(", ")
            )));
        }
        for reference in references {
            items.push(tagged(reference.tag, text(reference.definition(tables))));
        }
        let create = text(format!("CREATE TABLE {} (", self.name));
        Sql::Row(vec![create, Sql::List(items), text(")")])
    }
}

impl Reference {
    pub fn definition(&self, tables: &[Table]) -> String {
        let mut sql = String::new();
        if let Some(name) = &self.name {
            sql += &format!("CONSTRAINT {name} ");
        }
        sql += &format!(
            "FOREIGN KEY ({}) REFERENCES {} ({})",
            self.columns.join(", "),
            tables[self.parent].name,
            self.parent_columns.join(", ")
        );
        for (when, action) in [("DELETE", self.on_delete), ("UPDATE", self.on_update)] {
            if !action.is_empty() {
                sql += &format!(" ON {when}{action}");
            }
        }
        sql
    }
}

/// What makes tables of a case.
#[derive(Debug)]
pub struct Maker {
    domains: Vec<usize>,
    pub tags: Tag,
    names: u32,
}

impl Maker {
    pub fn new(random: &mut Random) -> Self {
        let count = random.between(1, 3);
        let mut domains: Vec<usize> = Vec::new();
        for _ in 0..count {
            let domain = random.place(DOMAINS.len());
            // InnoDB takes types that it keeps as bytes for one.
            let is_of_bytes = |at: usize| DOMAINS[at].is_of_bytes();
            if !is_of_bytes(domain) || !domains.iter().any(|it| is_of_bytes(*it)) {
                domains.push(domain);
            }
        }
        Self {
            domains,
            tags: 0,
            names: 0,
        }
    }

    pub fn tag(&mut self) -> Tag {
        self.tags += 1;
        self.tags
    }

    /// A name that no other thing of the case has.
    pub fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    pub fn domain(&self, random: &mut Random) -> usize {
        *random.pick(&self.domains)
    }

    pub fn column(&mut self, random: &mut Random, name: &str) -> Column {
        Column {
            tag: self.tag(),
            name: name.to_owned(),
            domain: self.domain(random),
            nullable: random.chance(75),
            generated: None,
        }
    }

    pub fn table(&mut self, random: &mut Random) -> Table {
        let name = self.fresh("t");
        let mut columns = Vec::new();
        let mut id = self.column(random, "id");
        (id.domain, id.nullable) = (0, false);
        columns.push(id);
        for name in ["a", "b", "c", "d"]
            .iter()
            .take(random.between(1, 4) as usize)
        {
            columns.push(self.column(random, name));
        }
        if random.chance(25) {
            let of = random.pick(&columns[1..]).clone();
            let kind = random.word(&["VIRTUAL", "STORED"]);
            let generated = Some(format!("({}) {kind}", of.name));
            columns.push(Column {
                tag: self.tag(),
                name: "g".to_owned(),
                generated,
                ..of
            });
        }
        let mut primary = vec!["id".to_owned()];
        if random.chance(30) {
            primary = some_columns(random, &columns, 2);
            columns
                .iter_mut()
                .for_each(|it| it.nullable &= !primary.contains(&it.name));
        } else if random.chance(8) {
            primary.clear();
        }
        if primary.iter().any(|name| name == "g") {
            primary = vec!["id".to_owned()];
        }
        let mut keys = Vec::new();
        for number in 0..random.below(3) {
            let key = format!("k{number}");
            keys.push((key, random.chance(40), some_columns(random, &columns, 3)));
        }
        Table {
            name,
            columns,
            primary,
            keys,
        }
    }

    /// A foreign key of one of these tables; most of the time the parent is given an index for it.
    pub fn reference(&mut self, random: &mut Random, tables: &[Table]) -> Reference {
        let (child, parent) = (random.place(tables.len()), random.place(tables.len()));
        let columns = some_columns(random, &tables[child].columns, 2);
        let mut parent_columns: Vec<String> = Vec::new();
        for name in &columns {
            let domain = tables[child].column(name).map(|it| it.domain);
            // A column that refers to itself means nothing; InnoDB does not see that a virtual one
            // of the same table changes.
            let may_be = |it: &&Column| {
                (child != parent || it.name != *name)
                    && !parent_columns.contains(&it.name)
                    && !it
                        .generated
                        .as_ref()
                        .is_some_and(|it| it.ends_with("VIRTUAL"))
            };
            let others: Vec<&Column> = tables[parent].columns.iter().filter(may_be).collect();
            let fits: Vec<&Column> = others
                .iter()
                .copied()
                .filter(|it| Some(it.domain) == domain)
                .collect();
            if others.is_empty() {
                break;
            }
            let any = random.pick(&others).name.clone();
            parent_columns.push(match fits[..] {
                [] => any,
                _ => random.pick(&fits).name.clone(),
            });
        }
        let name = random.chance(60).then(|| self.fresh("f"));
        Reference {
            tag: self.tag(),
            name,
            child,
            parent,
            columns,
            parent_columns,
            on_delete: random.word(&ACTIONS),
            on_update: random.word(&ACTIONS),
        }
    }
}

/// Different columns, by their names.
pub fn some_columns(random: &mut Random, columns: &[Column], most: u64) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let count = if random.chance(65) {
        1
    } else {
        random.between(1, most)
    };
    for _ in 0..count {
        let name = &random.pick(columns).name;
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// `a = 1, b = NULL`
pub fn assignments(random: &mut Random, table: &Table, alias: &str) -> Sql {
    let written: Vec<&Column> = table.written().collect();
    let count = if random.chance(70) { 1 } else { 2 };
    list((0..count).map(|_| {
        let column = *random.pick(&written);
        let value = if column.domain == 0 && random.chance(30) {
            text(format!("{alias}{} + 1", column.name))
        } else {
            column.value(random)
        };
        Sql::Row(vec![text(format!("{alias}{} = ", column.name)), value])
    }))
}

/// A condition, or none.
pub fn condition(random: &mut Random, table: &Table, alias: &str) -> Sql {
    if random.chance(12) {
        return text("");
    }
    let column = random.pick(&table.columns).clone();
    let compared = random.word(&["=", "=", "=", "<>", ">", "<="]);
    Sql::Row(vec![
        text(format!(" WHERE {alias}{} {compared} ", column.name)),
        column.value(random),
    ])
}
