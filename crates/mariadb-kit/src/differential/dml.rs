//! Random statements that change rows.
//!
//! Where several rows are changed and one of them may fail, the statement says in which order: by
//! ORDER BY over a key that names each row, or by an index that it forces. Which plan an optimizer
//! takes without that depends on each engine's estimates.

use super::query::{alike, counts, is_unique, random_key};
use super::schema::{Column, Maker, Table};
use super::sql::{Item, Sql, list, tagged, text};
use super::step::Statement;
use crate::random::Random;

impl Maker {
    /// A random change of rows.
    pub fn change(&self, random: &mut Random, tables: &[Table]) -> Statement {
        let table = random.pick(tables);
        let sql = match random.weighted(&[50, 22, 12, 6, 5, 5]) {
            0 => self.insert(random, table),
            1 => self.update(random, table),
            2 => self.delete(random, table),
            3 => self.insert_select(random, table, tables),
            4 => self.update_several(random, tables),
            _ => self.delete_several(random, tables),
        };
        Statement::exact(sql)
    }

    /// INSERT of some rows, and similar statements.
    pub fn insert(&self, random: &mut Random, table: &Table) -> Sql {
        let (verb, updates) = self.verb(random);
        let columns = self.some_columns(random, table);
        let count = *random.pick(&[1, 1, 1, 2, 3, 5, 9, 20]);
        let rows: Vec<Sql> = (0..count).map(|_| self.row(random, &columns)).collect();
        let names = columns
            .iter()
            .map(|column| tagged(column.tag, text(&*column.name)));
        let mut parts = vec![
            text(format!("{verb} INTO {} (", table.name)),
            Sql::List(names.collect()),
            text(") VALUES "),
            list(rows),
        ];
        if updates {
            parts.push(text(" ON DUPLICATE KEY UPDATE "));
            parts.push(self.assignments(random, table, true));
        }
        Sql::Row(parts)
    }

    fn verb(&self, random: &mut Random) -> (&'static str, bool) {
        match random.weighted(&[50, 20, 12, 18]) {
            0 => ("INSERT", false),
            1 => ("INSERT IGNORE", false),
            2 => ("REPLACE", false),
            _ => ("INSERT", true),
        }
    }

    fn some_columns<'a>(&self, random: &mut Random, table: &'a Table) -> Vec<&'a Column> {
        let all = random.chance(40);
        let mut columns: Vec<&Column> = table
            .written()
            .filter(|column| {
                if column.auto_increment {
                    random.chance(30)
                } else {
                    all || random.chance(85)
                }
            })
            .collect();
        if columns.is_empty() {
            columns.extend(table.written().take(1));
        }
        columns
    }

    fn row(&self, random: &mut Random, columns: &[&Column]) -> Sql {
        let values = columns
            .iter()
            .map(|column| tagged(column.tag, self.value(random, column)));
        Sql::Row(vec![text("("), Sql::List(values.collect()), text(")")])
    }

    fn value(&self, random: &mut Random, column: &Column) -> Sql {
        let nulls = if column.null || column.auto_increment {
            12
        } else {
            1
        };
        match random.weighted(&[nulls, 3, 100]) {
            0 => Sql::Value("NULL".to_owned(), Vec::new()),
            1 if !column.auto_increment => Sql::Value("DEFAULT".to_owned(), Vec::new()),
            _ => column.kind.value(random, &self.strings),
        }
    }

    /// `c1 = 5, c2 = c2 + 1`.
    fn assignments(&self, random: &mut Random, table: &Table, of_insert: bool) -> Sql {
        let columns: Vec<&Column> = table.written().collect();
        let mut items: Vec<Item> = Vec::new();
        for _ in 0..*random.pick(&[1, 1, 2, 3]) {
            let column = *random.pick(&columns);
            if items.iter().any(|item| item.tag == Some(column.tag)) {
                continue;
            }
            let name = &column.name;
            let value = match random.below(10) {
                0..=2 if counts(&column.kind) => text(format!("{name} + 1")),
                0..=1 if column.kind.is_text() => text(format!("CONCAT({name}, 'x')")),
                0..=4 if of_insert => text(format!("VALUES({name})")),
                5 if of_insert && column.auto_increment => text(format!("LAST_INSERT_ID({name})")),
                _ => self.value(random, column),
            };
            let sql = Sql::Row(vec![text(format!("{name} = ")), value]);
            items.push(tagged(column.tag, sql));
        }
        Sql::List(items)
    }

    /// How a statement of one table gets at its rows: an index, a condition, an order.
    fn access(&self, random: &mut Random, table: &Table) -> (String, Sql, String) {
        let columns: Vec<&Column> = table.columns.iter().collect();
        let total = table.total_order();
        if let (Some(total), true) = (&total, random.chance(45)) {
            let way = random.word(&["", " DESC"]);
            let total = total.replace(", ", &format!("{way}, "));
            let mut order = format!(" ORDER BY {total}{way}");
            if random.chance(50) {
                order += &format!(" LIMIT {}", random.below(5));
            }
            return (String::new(), self.filter(random, &columns, ""), order);
        }
        let filter = match random_key(random, table) {
            // Rows of several partitions that an index takes for equal come in any order.
            Some(key) if table.partitioning.is_none() && random.chance(70) => {
                let filter = self.range(random, table, key);
                return (
                    format!(" FORCE INDEX ({})", key.hint()),
                    filter,
                    String::new(),
                );
            }
            _ => self.filter(random, &columns, ""),
        };
        (" USE INDEX ()".to_owned(), filter, String::new())
    }

    fn update(&self, random: &mut Random, table: &Table) -> Sql {
        let (hint, filter, order) = self.access(random, table);
        let ignore = random.word(&["", "", "", " IGNORE"]);
        Sql::Row(vec![
            text(format!("UPDATE{ignore} {}{hint} SET ", table.name)),
            self.assignments(random, table, false),
            filter,
            text(order),
        ])
    }

    fn delete(&self, random: &mut Random, table: &Table) -> Sql {
        let columns: Vec<&Column> = table.columns.iter().collect();
        let filter = match random_key(random, table) {
            Some(key) if random.chance(60) => self.range(random, table, key),
            _ => self.filter(random, &columns, ""),
        };
        let mut order = String::new();
        if let (Some(total), true) = (table.total_order(), random.chance(40)) {
            order = format!(" ORDER BY {total} LIMIT {}", random.below(5));
        }
        let begin = text(format!("DELETE FROM {}", table.name));
        Sql::Row(vec![begin, filter, text(order)])
    }

    /// INSERT .. SELECT from a table, or of numbers.
    fn insert_select(&self, random: &mut Random, table: &Table, tables: &[Table]) -> Sql {
        let numbers = random.chance(50);
        let (verb, updates) = self.verb(random);
        let columns = self.some_columns(random, table);
        let from = random.pick(tables);
        let order = from.total_order().filter(|_| !numbers);
        let values = columns.iter().map(|column| {
            let value = match &order {
                Some(_) if random.chance(60) => text(&*random.pick(&from.columns).name),
                None if counts(&column.kind) && random.chance(70) => {
                    text(random.word(&["seq", "seq * 3", "100 - seq", "seq MOD 7"]))
                }
                None if column.kind.is_text() && random.chance(50) => {
                    text(random.word(&["seq", "CONCAT('row', seq)", "REPEAT('z', seq)"]))
                }
                _ => self.value(random, column),
            };
            let value = match value {
                // Outside of VALUES there is no DEFAULT.
                Sql::Value(own, _) if own == "DEFAULT" => text("NULL"),
                value => value,
            };
            tagged(column.tag, value)
        });
        let values = Sql::List(values.collect());
        let source = match order {
            Some(order) => format!(" FROM {} ORDER BY {order} LIMIT 20", from.name),
            None => format!(" FROM seq_1_to_{}", random.pick(&[3, 20, 60, 300])),
        };
        let names = columns
            .iter()
            .map(|column| tagged(column.tag, text(&*column.name)));
        let mut parts = vec![
            text(format!("{verb} INTO {} (", table.name)),
            Sql::List(names.collect()),
            text(") SELECT "),
            values,
            text(source),
        ];
        if updates {
            parts.push(text(" ON DUPLICATE KEY UPDATE "));
            let unique: Vec<&Column> = table
                .written()
                .filter(|column| !is_unique(table, column))
                .collect();
            let Some(column) = unique.first() else {
                parts.truncate(parts.len() - 1);
                return Sql::Row(parts);
            };
            parts.push(text(format!("{} = ", column.name)));
            parts.push(column.kind.value(random, &self.strings));
        }
        Sql::Row(parts)
    }

    /// UPDATE of joined tables. Which row is changed first is open, so no key that could fail.
    fn update_several(&self, random: &mut Random, tables: &[Table]) -> Sql {
        let (left, right) = (random.pick(tables), random.pick(tables));
        let plain: Vec<&Column> = left
            .written()
            .filter(|column| !is_unique(left, column) && !column.auto_increment)
            .collect();
        if plain.is_empty() {
            return self.update(random, left);
        }
        let column = *random.pick(&plain);
        let Some((a, b)) = alike(random, left, right) else {
            return self.update(random, left);
        };
        let columns: Vec<&Column> = right.columns.iter().collect();
        Sql::Row(vec![
            text(format!(
                "UPDATE {} x JOIN {} y ON x.{} = y.{} SET x.{} = ",
                left.name, right.name, a.name, b.name, column.name
            )),
            column.kind.value(random, &self.strings),
            self.filter(random, &columns, "y."),
        ])
    }

    fn delete_several(&self, random: &mut Random, tables: &[Table]) -> Sql {
        let (left, right) = (random.pick(tables), random.pick(tables));
        let Some((a, b)) = alike(random, left, right) else {
            return self.delete(random, left);
        };
        let columns: Vec<&Column> = right.columns.iter().collect();
        Sql::Row(vec![
            text(format!(
                "DELETE x FROM {} x JOIN {} y ON x.{} = y.{}",
                left.name, right.name, a.name, b.name
            )),
            self.filter(random, &columns, "y."),
        ])
    }
}
