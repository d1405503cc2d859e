//! How tables are partitioned.

use super::schema::{Column, Key, KeyKind, Maker, Table, part_of};
use super::sql::{Sql, Tag, list, text};
use crate::random::Random;

/// How a table is partitioned.
#[derive(Clone, Debug)]
pub struct Partitioning {
    pub tag: Tag,
    pub column: String,
    pub method: Method,
}

/// `HASH` and `KEY` by number of partitions; `RANGE` by upper ends, the last one open; `LIST` by
/// number of lists, each of the numbers that leave its number as rest.
#[derive(Clone, Debug)]
pub enum Method {
    Hash(u32),
    Key(u32),
    Range(Vec<i64>),
    List(u32),
}

impl Partitioning {
    /// `PARTITION BY ...`.
    pub fn definition(&self) -> Sql {
        let column = &self.column;
        match &self.method {
            Method::Hash(count) => text(format!("PARTITION BY HASH ({column}) PARTITIONS {count}")),
            Method::Key(count) => text(format!("PARTITION BY KEY ({column}) PARTITIONS {count}")),
            Method::Range(ends) => {
                let ends = ends.iter().enumerate();
                let part = |(at, end): (usize, &i64)| {
                    text(format!("PARTITION p{at} VALUES LESS THAN ({end})"))
                };
                let mut parts: Vec<Sql> = ends.map(part).collect();
                parts.push(text("PARTITION pmax VALUES LESS THAN MAXVALUE"));
                let begin = text(format!("PARTITION BY RANGE ({column}) ("));
                Sql::Row(vec![begin, list(parts), text(")")])
            }
            Method::List(count) => {
                let part = |at: u32| {
                    let numbers: Vec<String> = (0..60)
                        .filter(|number| number % count == at)
                        .map(|number| number.to_string())
                        .collect();
                    let null = if at == 0 { ", NULL" } else { "" };
                    text(format!(
                        "PARTITION p{at} VALUES IN ({}{null})",
                        numbers.join(", ")
                    ))
                };
                let begin = text(format!("PARTITION BY LIST ({column}) ("));
                Sql::Row(vec![begin, list((0..*count).map(part)), text(")")])
            }
        }
    }
}

impl Maker {
    /// Partitions a table, by a column that all its unique keys get.
    pub fn partition(&mut self, random: &mut Random, table: &mut Table) {
        let integers: Vec<&Column> = table
            .written()
            .filter(|column| column.kind.is_integer())
            .collect();
        if integers.is_empty() {
            return;
        }
        let column = (*random.pick(&integers)).clone();
        let primary = |key: &Key| key.kind == KeyKind::Primary;
        if column.null && table.keys.iter().any(primary) {
            return;
        }
        for key in &mut table.keys {
            if key.kind != KeyKind::Plain && !key.has(&column.name) {
                key.parts.push(part_of(&column));
            }
        }
        let method = match random.below(4) {
            0 => Method::Hash(random.between(1, 5) as u32),
            1 => Method::Key(random.between(1, 5) as u32),
            2 => Method::Range(vec![3, 7, 15]),
            _ => Method::List(random.between(1, 4) as u32),
        };
        let tag = self.tag();
        table.partitioning = Some(Partitioning {
            tag,
            column: column.name,
            method,
        });
    }
}
