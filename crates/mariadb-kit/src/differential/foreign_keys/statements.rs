//! Statements that change rows of tables that refer to each other, and the tables themselves.

use super::super::objects::FOLDER;
use super::super::sql::{Sql, list, tagged, text};
use super::super::step::Statement;
use super::Schema;
use super::schema::{Column, Maker, Reference, Table, assignments, condition, some_columns};
use crate::random::Random;

/// INSERT and what is like it.
pub fn insert(random: &mut Random, table: &Table) -> Sql {
    let verb = random.word(&["INSERT", "INSERT", "INSERT", "INSERT IGNORE", "REPLACE"]);
    let columns: Vec<&Column> = table.written().collect();
    let names = columns.iter().map(|it| tagged(it.tag, text(&*it.name)));
    let names = Sql::List(names.collect());
    let count = if random.chance(40) {
        1
    } else {
        random.between(2, 8)
    };
    let rows = (0..count).map(|_| {
        let values = columns
            .iter()
            .map(|it| tagged(it.tag, inserted(random, it)));
        Sql::Row(vec![text("("), Sql::List(values.collect()), text(")")])
    });
    let rows = list(rows.collect::<Vec<_>>());
    let mut parts = vec![
        text(format!("{verb} INTO {} (", table.name)),
        names,
        text(") VALUES "),
        rows,
    ];
    if verb.starts_with("INSERT") && random.chance(20) {
        parts.push(text(" ON DUPLICATE KEY UPDATE "));
        parts.push(assignments(random, table, ""));
    }
    Sql::Row(parts)
}

/// Ids are of a wider range, or most rows were duplicates.
fn inserted(random: &mut Random, column: &Column) -> Sql {
    if column.name == "id" {
        return text(random.below(12).to_string());
    }
    column.value(random)
}

/// A change of rows.
pub fn change(random: &mut Random, tables: &[Table], file: u32) -> Vec<Statement> {
    let table = random.pick(tables);
    let name = &table.name;
    let ignore = random.word(&["", "", "", "IGNORE "]);
    match random.weighted(&[40, 25, 30, 6, 6, 6, 4]) {
        0 => vec![Statement::exact(insert(random, table))],
        1 => vec![Statement::exact(Sql::Row(vec![
            text(format!("UPDATE {ignore}{name} SET ")),
            assignments(random, table, ""),
            condition(random, table, ""),
            text(table.order()),
        ]))],
        2 => vec![Statement::exact(Sql::Row(vec![
            text(format!("DELETE {ignore}FROM {name}")),
            condition(random, table, ""),
            text(table.order()),
        ]))],
        3 => vec![change_joined(random, table, tables)],
        4 => vec![insert_selected(random, table, tables)],
        5 => load(random, table, tables, file),
        _ => vec![Statement::exact(text(if random.chance(20) {
            format!("TRUNCATE TABLE {name}")
        } else {
            format!("SELECT * FROM {name}{} FOR UPDATE", table.order())
        }))],
    }
}

/// DELETE or UPDATE of one or both of two tables.
fn change_joined(random: &mut Random, table: &Table, tables: &[Table]) -> Statement {
    let other = random.pick(tables);
    let a = random.pick(&table.columns);
    let fits: Vec<&Column> = other
        .columns
        .iter()
        .filter(|it| it.domain == a.domain)
        .collect();
    let b = if fits.is_empty() {
        return insert_selected(random, table, tables);
    } else {
        *random.pick(&fits)
    };
    let joined = format!(
        "{} x STRAIGHT_JOIN {} y ON x.{} = y.{}",
        table.name, other.name, a.name, b.name
    );
    let what = random.word(&["x", "y", "x, y"]);
    let mut parts = if random.chance(50) {
        vec![text(format!("DELETE {what} FROM {joined}"))]
    } else {
        let set = text(format!("UPDATE {joined} SET "));
        vec![set, assignments(random, table, "x.")]
    };
    parts.push(condition(random, other, "y."));
    Statement::exact(Sql::Row(parts))
}

/// The columns that another table gives values for, in order; both sides.
fn selected(random: &mut Random, table: &Table, from: &Table) -> (String, String) {
    let mut names = Vec::new();
    let mut values = Vec::new();
    for column in table.written() {
        let fits: Vec<&Column> = from
            .columns
            .iter()
            .filter(|it| it.domain == column.domain)
            .collect();
        if !fits.is_empty() {
            names.push(column.name.clone());
            values.push(random.pick(&fits).name.clone());
        }
    }
    (names.join(", "), values.join(", "))
}

fn insert_selected(random: &mut Random, table: &Table, tables: &[Table]) -> Statement {
    let from = random.pick(tables);
    let (names, values) = selected(random, table, from);
    let verb = random.word(&["INSERT", "INSERT IGNORE", "REPLACE"]);
    Statement::exact(text(format!(
        "{verb} INTO {} ({names}) SELECT {values} FROM {} USE INDEX (){}",
        table.name,
        from.name,
        from.order()
    )))
}

fn load(random: &mut Random, table: &Table, tables: &[Table], file: u32) -> Vec<Statement> {
    let from = random.pick(tables);
    let (names, values) = selected(random, table, from);
    let way = random.word(&["", "IGNORE ", "REPLACE "]);
    let file = format!("'{FOLDER}/{file}'");
    let out = format!(
        "SELECT {values} INTO OUTFILE {file} CHARACTER SET utf8mb4 FROM {} USE INDEX (){}",
        from.name,
        from.order()
    );
    let load = format!(
        "LOAD DATA INFILE {file} {way}INTO TABLE {} CHARACTER SET utf8mb4 ({names})",
        table.name
    );
    vec![Statement::exact(text(out)), Statement::exact(text(load))]
}

/// An ALTER of one table, or what is like it. `references`: those that were made.
pub fn alter(
    random: &mut Random,
    maker: &mut Maker,
    Schema { tables, references }: &mut Schema,
    checks: bool,
) -> Sql {
    let at = random.place(tables.len());
    let way = random.word(&["", "", "", "", ", ALGORITHM=COPY", ", FORCE"]);
    let name = tables[at].name.clone();
    let change = match random.weighted(&[24, 14, 8, 8, 8, 10, 5, 6, 3, 4, 4, 4]) {
        0 => {
            let mut reference = maker.reference(random, tables);
            for _ in 0..8 {
                if reference.child == at {
                    break;
                }
                reference = maker.reference(random, tables);
            }
            let child = &tables[reference.child].name;
            let added = reference.definition(tables);
            // In place InnoDB, without checks, makes NO ACTION of RESTRICT.
            let way = if checks { way } else { ", ALGORITHM=COPY" };
            return text(format!("ALTER TABLE {child} ADD {added}{way}"));
        }
        1 => format!(
            "DROP FOREIGN KEY {}",
            some_reference(random, &name, references)
        ),
        2 => {
            let column = maker.fresh("n");
            let column = maker.column(random, &column);
            let added = format!("ADD COLUMN {}", column.definition());
            tables[at].columns.push(column);
            added
        }
        3 => drop_column(random, &mut tables[at]),
        4 => rename_column(random, maker, &mut tables[at]),
        5 => modify_column(random, maker, &mut tables[at]),
        6 => {
            let key = maker.fresh("k");
            let columns = some_columns(random, &tables[at].columns, 2);
            let unique = random.chance(30);
            let kind = if unique { "UNIQUE KEY" } else { "KEY" };
            let added = format!("ADD {kind} {key} ({})", columns.join(", "));
            tables[at].keys.push((key, unique, columns));
            added
        }
        7 if !tables[at].keys.is_empty() => {
            let key = random.place(tables[at].keys.len());
            format!("DROP KEY {}", tables[at].keys.remove(key).0)
        }
        8 => "DROP PRIMARY KEY, ADD PRIMARY KEY (id)".to_owned(),
        9 => {
            let fresh = maker.fresh("r");
            tables[at].name.clone_from(&fresh);
            // By a copy InnoDB renames no foreign keys: rows have no parents looked for.
            let way = way.replace(", ALGORITHM=COPY", ", FORCE");
            return text(format!("ALTER TABLE {name} RENAME TO {fresh}{way}"));
        }
        10 => return whole_tables(random, maker, tables),
        _ => "ENGINE={engine}".to_owned(),
    };
    text(format!("ALTER TABLE {name} {change}{way}"))
}

/// The name of a foreign key that the table may have.
fn some_reference(random: &mut Random, table: &str, references: &[Reference]) -> String {
    let named: Vec<&String> = references
        .iter()
        .filter_map(|it| it.name.as_ref())
        .collect();
    if named.is_empty() || random.chance(40) {
        return format!("{table}_ibfk_{}", random.between(1, 2));
    }
    (*random.pick(&named)).clone()
}

fn drop_column(random: &mut Random, table: &mut Table) -> String {
    if table.columns.len() < 3 {
        return "FORCE".to_owned();
    }
    let at = random.between(1, table.columns.len() as u64 - 1) as usize;
    let name = table.columns.remove(at).name;
    table
        .keys
        .iter_mut()
        .for_each(|key| key.2.retain(|it| *it != name));
    table.keys.retain(|key| !key.2.is_empty());
    table.primary.retain(|it| *it != name);
    format!("DROP COLUMN {name}")
}

fn rename_column(random: &mut Random, maker: &mut Maker, table: &mut Table) -> String {
    let at = random.between(1, table.columns.len() as u64 - 1) as usize;
    let fresh = maker.fresh("c");
    let old = std::mem::replace(&mut table.columns[at].name, fresh.clone());
    let renamed = |name: &mut String| {
        if *name == old {
            name.clone_from(&fresh);
        }
    };
    table
        .keys
        .iter_mut()
        .for_each(|key| key.2.iter_mut().for_each(renamed));
    table.primary.iter_mut().for_each(renamed);
    if random.chance(30) {
        return format!("CHANGE COLUMN {old} {}", table.columns[at].definition());
    }
    format!("RENAME COLUMN {old} TO {fresh}")
}

fn modify_column(random: &mut Random, maker: &Maker, table: &mut Table) -> String {
    let at = random.between(1, table.columns.len() as u64 - 1) as usize;
    let column = &mut table.columns[at];
    if random.chance(50) {
        column.domain = maker.domain(random);
    }
    column.nullable = random.chance(60);
    format!("MODIFY COLUMN {}", column.definition())
}

/// What is about whole tables.
fn whole_tables(random: &mut Random, maker: &mut Maker, tables: &mut Vec<Table>) -> Sql {
    let at = random.place(tables.len());
    let name = tables[at].name.clone();
    text(match random.below(5) {
        0 if tables.len() > 1 => {
            tables.remove(at);
            format!("DROP TABLE {name}")
        }
        1 => format!("OPTIMIZE TABLE {name}"),
        2 if tables.len() > 1 => {
            let with = (at + 1) % tables.len();
            let other = tables[with].name.clone();
            let (left, right) = (at.min(with), at.max(with));
            let (low, high) = tables.split_at_mut(right);
            std::mem::swap(&mut low[left].name, &mut high[0].name);
            let aside = maker.fresh("r");
            format!("RENAME TABLE {name} TO {aside}, {other} TO {name}, {aside} TO {other}")
        }
        _ => {
            let fresh = maker.fresh("r");
            tables[at].name.clone_from(&fresh);
            format!("RENAME TABLE {name} TO {fresh}")
        }
    })
}
