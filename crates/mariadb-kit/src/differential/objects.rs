//! Random statements that make tables of others, and about what stands beside tables: indexes,
//! triggers, views, handlers, files, partitions that change places with tables.
//!
//! Each is a few statements that belong together. The first one makes what the others use.

use super::pages;
use super::partitioning::Method;
use super::query::counts;
use super::schema::{Column, KeyKind, Maker, Table};
use super::sql::{Sql, list, tagged, text};
use super::step::Statement;
use super::topics::Topic;
use super::types::Kind;
use crate::random::Random;

/// Stands for a folder of the engine's own.
pub const FOLDER: &str = "{folder}";

/// More tables than that are not made of others.
const TABLES_MAX: usize = 4;

impl Maker {
    /// Some statements; `number` is of no other call. Changes what the generator knows of the
    /// tables.
    pub fn objects(
        &mut self,
        random: &mut Random,
        tables: &mut Vec<Table>,
        number: u32,
    ) -> Vec<Statement> {
        let full = tables.len() >= TABLES_MAX;
        match random.weighted(&[10, 10, 12, 14, 10, 14, 10, 12]) {
            0 | 1 if full => drop_table(random, tables),
            0 => create_like(random, tables, &format!("t{number}")),
            1 => self.create_select(random, tables, &format!("t{number}")),
            2 => self.index(random, tables),
            3 => self.trigger(random, tables, number),
            4 => self.view(random, tables, number),
            5 => self.handler(random, tables),
            6 => self.file(random, tables, number),
            _ if full => drop_table(random, tables),
            _ => {
                let mixes = self.topics.has(Topic::Pages) && random.chance(50);
                exchange(random, tables, &format!("t{number}"), mixes)
            }
        }
    }

    fn create_select(
        &mut self,
        random: &mut Random,
        tables: &mut Vec<Table>,
        name: &str,
    ) -> Vec<Statement> {
        let from = random.pick(tables).clone();
        let mut made = Table {
            name: name.to_owned(),
            columns: Vec::new(),
            keys: Vec::new(),
            partitioning: None,
            temporary: false,
            options: String::new(),
        };
        for column in &from.columns {
            if random.chance(80) || made.columns.is_empty() {
                made.columns.push(Column {
                    generated: None,
                    auto_increment: false,
                    check: None,
                    ..column.clone()
                });
            }
        }
        let mut begin = vec![text(format!("CREATE TABLE {name} "))];
        let order = from.total_order();
        let mut end = format!(" FROM {}", from.name);
        if let (Some(mut key), true) = (self.key(random, &made), random.chance(50)) {
            if order.is_none() {
                // Which of several duplicates comes first is open.
                key.kind = KeyKind::Plain;
            }
            begin.push(text("("));
            begin.push(list([key.definition()]));
            // Not IGNORE or REPLACE: InnoDB 10.11 may lose all rows in it when some are duplicates.
            begin.push(text(") "));
            made.keys.push(key);
        }
        if self.topics.has(Topic::Pages) && random.chance(30) {
            begin.push(text(pages::options(random) + " "));
        }
        begin.push(text("SELECT "));
        let names = made.columns.iter();
        let names = names.map(|column| tagged(column.tag, text(&*column.name)));
        begin.push(Sql::List(names.collect()));
        if let Some(order) = order {
            end += &format!(" ORDER BY {order}");
        }
        begin.push(text(end));
        tables.push(made);
        let show = format!("SHOW CREATE TABLE {name}");
        let all = format!("SELECT * FROM {name}");
        vec![
            Statement::exact(Sql::Row(begin)),
            Statement::exact(text(show)),
            Statement::any_order(text(all)),
        ]
    }

    /// CREATE INDEX, DROP INDEX, RENAME INDEX.
    fn index(&mut self, random: &mut Random, tables: &mut [Table]) -> Vec<Statement> {
        let at = random.place(tables.len());
        let table = &mut tables[at];
        let name = table.name.clone();
        let plain = |table: &Table| {
            let keys = table.keys.iter().enumerate();
            let keys = keys.filter(|(_, key)| key.kind != KeyKind::Primary);
            keys.map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let places = plain(table);
        let sql = match (random.below(4), places.is_empty()) {
            (0, false) => {
                let key = table.keys.remove(*random.pick(&places));
                text(format!("DROP INDEX {} ON {name}", key.name))
            }
            (1, false) => {
                let key = &mut table.keys[*random.pick(&places)];
                let new = format!("{}r", key.name);
                let old = std::mem::replace(&mut key.name, new.clone());
                text(format!("ALTER TABLE {name} RENAME INDEX {old} TO {new}"))
            }
            _ => {
                let Some(mut key) = self.key(random, table) else {
                    return vec![Statement::exact(text(format!("SHOW CREATE TABLE {name}")))];
                };
                if table.has_unique() {
                    key.kind = KeyKind::Plain;
                }
                let unique = match key.kind {
                    KeyKind::Unique => "UNIQUE ",
                    _ => "",
                };
                let begin = format!("CREATE {unique}INDEX {} ON {name} (", key.name);
                let sql = Sql::Row(vec![text(begin), key.part_list(), text(")")]);
                table.keys.push(key);
                sql
            }
        };
        let show = Statement::exact(text(format!("SHOW CREATE TABLE {name}")));
        vec![Statement::exact(sql), show]
    }

    /// A trigger that writes what it sees into a table of its own, changes a row, refuses it, or
    /// reads its table.
    fn trigger(
        &mut self,
        random: &mut Random,
        tables: &mut Vec<Table>,
        number: u32,
    ) -> Vec<Statement> {
        let on = random.pick(tables).clone();
        let columns: Vec<&Column> = on.written().collect();
        let column = *random.pick(&columns);
        let mut statements = Vec::new();
        let name = &column.name;
        let event = random.word(&["INSERT", "INSERT", "UPDATE", "DELETE"]);
        let row = if event == "DELETE" { "OLD" } else { "NEW" };
        // The server does not compute again what is over a column that a trigger sets; a copy of
        // the table does.
        let is_base = on.columns.iter().any(|other| other.is_over(name));
        let (time, body) = match random.below(6) {
            0 | 1 if is_base => {
                let refuse = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'always refused'";
                (
                    "BEFORE",
                    format!("IF {row}.{name} IS NULL THEN {refuse}; END IF"),
                )
            }
            0 if row == "NEW" => {
                let value = column.kind.value(random, &self.strings).render();
                ("BEFORE", format!("SET NEW.{name} = {value}"))
            }
            1 if row == "NEW" && counts(&column.kind) => {
                let sql = format!("SET NEW.{name} = (SELECT COUNT(*) FROM {})", on.name);
                ("BEFORE", sql)
            }
            2 if event == "INSERT" => {
                let value = column.kind.value(random, &self.strings).render();
                let refuse = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'";
                let body = format!("IF NEW.{name} = {value} THEN {refuse}; END IF");
                (random.word(&["BEFORE", "AFTER"]), body)
            }
            _ => {
                let log = self.log(tables, &mut statements);
                let body =
                    format!("INSERT INTO {log} VALUES ('{event}', LEFT(HEX({row}.{name}), 60))");
                (random.word(&["BEFORE", "AFTER"]), body)
            }
        };
        statements.push(Statement::exact(text(format!(
            "CREATE TRIGGER g{number} {time} {event} ON {} FOR EACH ROW {body}",
            on.name
        ))));
        statements
    }

    /// The name of the table that triggers write into, which is made if there is none.
    fn log(&mut self, tables: &mut Vec<Table>, statements: &mut Vec<Statement>) -> &'static str {
        const LOG: &str = "seen";
        if tables.iter().any(|table| table.name == LOG) {
            return LOG;
        }
        let columns = ["event", "value"].map(|name| Column {
            tag: self.tag(),
            name: name.to_owned(),
            kind: Kind::Varchar(60, None),
            null: true,
            default: None,
            generated: None,
            auto_increment: false,
            check: None,
        });
        let log = Table {
            name: LOG.to_owned(),
            columns: columns.into(),
            keys: Vec::new(),
            partitioning: None,
            temporary: false,
            options: String::new(),
        };
        statements.push(Statement::exact(log.definition()));
        tables.push(log);
        LOG
    }

    /// A view, and what goes through it.
    fn view(&mut self, random: &mut Random, tables: &[Table], number: u32) -> Vec<Statement> {
        let table = random.pick(tables);
        let columns: Vec<&Column> = table.columns.iter().collect();
        let filter = self.filter(random, &columns, "");
        let check = random.word(&["", " WITH CHECK OPTION"]);
        let name = format!("v{}", number % 2);
        let create = Sql::Row(vec![
            text(format!(
                "CREATE OR REPLACE VIEW {name} AS SELECT * FROM {} USE INDEX ()",
                table.name
            )),
            filter,
            text(check),
        ]);
        let through = Table {
            name: name.clone(),
            keys: Vec::new(),
            ..table.clone()
        };
        let all = format!("SELECT * FROM {name}");
        let mut statements = vec![
            Statement::exact(create),
            Statement::any_order(text(&*all)),
            Statement::exact(self.insert(random, &through)),
        ];
        let column = random.pick(&columns);
        if column.generated.is_none() && !super::query::is_unique(table, column) {
            let value = column.kind.value(random, &self.strings);
            let begin = text(format!("UPDATE {name} SET {} = ", column.name));
            statements.push(Statement::exact(Sql::Row(vec![begin, value])));
        }
        statements.push(Statement::any_order(text(all)));
        statements
    }

    /// Of one table, not of partitions: there InnoDB loses its place in an index of a virtual text.
    fn handler(&mut self, random: &mut Random, tables: &[Table]) -> Vec<Statement> {
        let whole: Vec<&Table> = tables
            .iter()
            .filter(|table| table.partitioning.is_none())
            .collect();
        let Some(table) = whole.get(random.place(whole.len())) else {
            return self.file(random, tables, 0);
        };
        let columns: Vec<&Column> = table.columns.iter().collect();
        let open = format!("HANDLER {} OPEN AS h", table.name);
        let mut statements = vec![Statement::exact(text(open))];
        for _ in 0..random.between(1, 5) {
            let limit = text(format!(" LIMIT {}", random.pick(&[1, 3, 100])));
            let filter = if random.chance(20) {
                self.filter(random, &columns, "")
            } else {
                text("")
            };
            let read = match super::query::random_key(random, table) {
                Some(key) if random.chance(80) => {
                    let begin = format!("HANDLER h READ `{}` ", key.hint());
                    if random.chance(50) {
                        let place = random.word(&["FIRST", "NEXT", "PREV", "LAST", "NEXT"]);
                        text(begin + place)
                    } else {
                        let count = 1 + random.place(key.parts.len());
                        let parts = key.parts.iter().take(count);
                        let values =
                            parts
                                .filter_map(|part| table.column(&part.column))
                                .map(|column| {
                                    let value = column.kind.value(random, &self.strings);
                                    tagged(column.tag, value)
                                });
                        let values = Sql::List(values.collect());
                        let sign = random.word(&["=", "<=", ">=", "<", ">"]);
                        let begin = text(begin + sign + " (");
                        Sql::Row(vec![begin, values, text(")")])
                    }
                }
                _ if table.total_order().is_none() => {
                    // Without a key rows come as they were put in, which plans of INSERT .. SELECT
                    // and triggers decide.
                    let all = Sql::Row(vec![
                        text("HANDLER h READ FIRST"),
                        filter,
                        text(" LIMIT 10000"),
                    ]);
                    statements.push(Statement::any_order(all));
                    continue;
                }
                _ => text(random.word(&["HANDLER h READ FIRST", "HANDLER h READ NEXT"])),
            };
            let sql = Sql::Row(vec![read, filter, limit]);
            statements.push(Statement::exact(sql));
        }
        statements.push(Statement::exact(text("HANDLER h CLOSE")));
        statements
    }

    /// Rows go into a file, and come back from it.
    fn file(&mut self, random: &mut Random, tables: &[Table], number: u32) -> Vec<Statement> {
        let from = random.pick(tables);
        let to = random.pick(tables);
        let columns: Vec<&Column> = from
            .written()
            .filter(|column| !matches!(column.kind, Kind::Point))
            .filter(|column| to.written().any(|other| other.name == column.name))
            .collect();
        let (to, columns) = if columns.is_empty() {
            (from, from.written().collect())
        } else {
            (to, columns)
        };
        let names = || {
            let names = columns.iter();
            let names = names.map(|column| tagged(column.tag, text(&*column.name)));
            Sql::List(names.collect())
        };
        let order = from
            .total_order()
            .map_or(String::new(), |order| format!(" ORDER BY {order}"));
        let file = format!("'{FOLDER}/{number}' CHARACTER SET utf8mb4");
        let out = Sql::Row(vec![
            text("SELECT "),
            names(),
            text(format!(
                " INTO OUTFILE {file} FROM {} USE INDEX (){order}",
                from.name
            )),
        ]);
        let way = random.word(&["", "IGNORE ", "REPLACE "]);
        let load = Sql::Row(vec![
            text(format!(
                "LOAD DATA INFILE '{FOLDER}/{number}' {way}INTO TABLE {} CHARACTER SET utf8mb4 (",
                to.name
            )),
            names(),
            text(")"),
        ]);
        let all = format!("SELECT * FROM {}", to.name);
        vec![
            Statement::exact(out),
            Statement::exact(load),
            Statement::any_order(text(all)),
        ]
    }
}

fn drop_table(random: &mut Random, tables: &mut Vec<Table>) -> Vec<Statement> {
    let table = tables.remove(random.place(tables.len()));
    vec![Statement::exact(text(format!("DROP TABLE {}", table.name)))]
}

/// All rows of one table, into another with the same columns.
fn copy_rows(from: &Table, to: &str) -> Statement {
    let names = || {
        let names = from.written();
        let names = names.map(|column| tagged(column.tag, text(&*column.name)));
        Sql::List(names.collect())
    };
    Statement::exact(Sql::Row(vec![
        text(format!("INSERT INTO {to} (")),
        names(),
        text(") SELECT "),
        names(),
        text(format!(" FROM {} USE INDEX ()", from.name)),
    ]))
}

fn create_like(random: &mut Random, tables: &mut Vec<Table>, name: &str) -> Vec<Statement> {
    let from = random.pick(tables).clone();
    let create = text(format!("CREATE TABLE {name} LIKE {}", from.name));
    let statements = vec![Statement::exact(create), copy_rows(&from, name)];
    tables.push(Table {
        name: name.to_owned(),
        temporary: false,
        ..from
    });
    statements
}

/// A partition and a table change places; `mixes`: whose pages may be kept otherwise.
fn exchange(
    random: &mut Random,
    tables: &mut Vec<Table>,
    name: &str,
    mixes: bool,
) -> Vec<Statement> {
    let Some(from) = tables.iter().find(|table| table.partitioning.is_some()) else {
        return create_like(random, tables, name);
    };
    let from = from.clone();
    let method = from.partitioning.as_ref().map(|by| &by.method);
    let partition = match method {
        Some(Method::Hash(count) | Method::Key(count) | Method::List(count)) => {
            format!("p{}", random.below(u64::from(*count)))
        }
        _ => random.word(&["p0", "p1", "pmax"]).to_owned(),
    };
    let old = &from.name;
    let all = format!("SELECT * FROM {old}");
    let mut sql = vec![
        format!("CREATE TABLE {name} LIKE {old}"),
        format!("ALTER TABLE {name} REMOVE PARTITIONING"),
    ];
    if mixes {
        let kept = [old, name];
        sql.extend(
            kept.map(|table| format!("ALTER TABLE {table} {}", pages::alter_uncompressed(random))),
        );
    }
    sql.push(format!(
        "ALTER TABLE {old} EXCHANGE PARTITION {partition} WITH TABLE {name}"
    ));
    let sql = sql.into_iter().map(|sql| Statement::exact(text(sql)));
    let mut statements: Vec<Statement> = sql.collect();
    if random.chance(50) {
        statements.insert(2, copy_rows(&from, name));
    }
    statements.push(Statement::any_order(text(all)));
    tables.push(Table {
        name: name.to_owned(),
        partitioning: None,
        temporary: false,
        ..from
    });
    statements
}
