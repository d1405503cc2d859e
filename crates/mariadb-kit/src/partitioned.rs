//! DDL of partitioned tables while servers are killed. Every statement is all or nothing, over all
//! partitions: after each restart a table has the rows from before the statement that was running,
//! or those from after it.

use super::kept;
use super::random::Random;
use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of the tables; few, so that statements meet each other's tables.
const NAMES: u64 = 4;
/// The table that is exchanged with a partition.
const PARTNER: &str = "partner";
/// A table on its way, when two change names.
const SWAPPED: &str = "swapped";
/// Tables are filled with each seventh id.
const STEP: u64 = 7;

const COLUMNS: &str =
    "(id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Inkstone";
const RANGES: &str = "(PARTITION p1000 VALUES LESS THAN (1000), PARTITION p2000 VALUES LESS THAN (2000), \
                      PARTITION p3000 VALUES LESS THAN (3000))";

/// Number of rows, and the sum of their ids.
type Rows = (u64, u64);
/// Tables by name, with their rows.
type Tables = BTreeMap<String, Rows>;

/// What is known of the tables.
#[derive(Default)]
struct State {
    tables: Tables,
    /// What else the statement that was running when the server went may have made of them.
    possible: Vec<Tables>,
    statement: String,
}

/// A workload in a database of its own.
pub struct Partitioned {
    database: String,
    state: Mutex<State>,
    /// Statements that succeeded.
    pub statements: AtomicU64,
    seed: u64,
}

/// A partition's name, and where its range begins and ends.
type Range = (String, u64, u64);

/// How a table is partitioned.
enum Kind {
    Not,
    Hash,
    /// In order.
    Ranges(Vec<Range>),
}

/// A statement, and what it can make of the tables besides leaving them as they are; the last one
/// if it succeeds.
struct Step {
    statement: String,
    outcomes: Vec<Tables>,
}

impl Partitioned {
    pub fn new(database: &str, seed: u64) -> Self {
        Self {
            database: database.to_owned(),
            state: Mutex::default(),
            statements: AtomicU64::new(0),
            seed,
        }
    }

    pub fn database(&self) -> &str {
        &self.database
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_up(&self, server: &Server) -> Result<()> {
        let database = &self.database;
        server
            .sql(&format!("CREATE DATABASE IF NOT EXISTS {database}"))
            .map(drop)
    }

    /// Runs statements until the server is gone.
    pub fn run(&self, server: &Server) -> Result<()> {
        let mut session = Session::open(server, &self.database)?;
        let done = self.statements.load(Ordering::Relaxed);
        let mut random = Random(self.seed ^ (done << 20));
        while self.act(&mut session, &mut random)?.is_some() {}
        Ok(())
    }

    /// Runs a statement, or a few that belong together; nothing if the server is gone.
    fn act(&self, session: &mut Session, random: &mut Random) -> Result<Option<()>> {
        let name = format!("t{}", random.below(NAMES));
        let rows = self.state().tables.get(&name).copied();
        let Some(rows) = rows else {
            return self.execute(session, self.create(&name, random));
        };
        let Some(kind) = kind_of(session, &name) else {
            return Ok(None);
        };
        if rows == (0, 0) && random.below(3) > 0 {
            return self.execute(session, self.fill(&name, &kind));
        }
        match (random.below(3), kind) {
            (0, Kind::Ranges(ranges)) => self.change_ranges(session, random, &name, &ranges),
            (0, kind) => self.execute(session, self.change_partitioning(&name, &kind, random)),
            _ => self.execute(session, self.change(&name, random)),
        }
    }

    /// Runs a statement. It may fail, and has done nothing then.
    fn execute(&self, session: &mut Session, step: Step) -> Result<Option<()>> {
        {
            let mut state = self.state();
            state.statement.clone_from(&step.statement);
            state.possible.clone_from(&step.outcomes);
        }
        let Some(lines) = session.run(&format!("{};", step.statement)) else {
            return Ok(None);
        };
        let mut state = self.state();
        state.possible.clear();
        if !lines.iter().any(|line| line.starts_with("ERROR")) {
            self.statements.fetch_add(1, Ordering::Relaxed);
            if let Some(tables) = step.outcomes.into_iter().next_back() {
                state.tables = tables;
            }
        }
        Ok(Some(()))
    }

    /// A statement with one outcome.
    fn step(&self, statement: String, change: impl FnOnce(&mut Tables)) -> Step {
        let mut tables = self.state().tables.clone();
        change(&mut tables);
        Step {
            statement,
            outcomes: vec![tables],
        }
    }

    fn create(&self, name: &str, random: &mut Random) -> Step {
        let (partitions, rows) = match random.below(4) {
            0 => ("PARTITION BY HASH (id) PARTITIONS 3".to_owned(), 0),
            1 => {
                let source = format!(
                    "PARTITION BY HASH (id) PARTITIONS 3 SELECT seq AS id, seq * 3 AS a, 'c' AS b \
                     FROM seq_1_to_2000_step_{STEP}"
                );
                (source, 2000)
            }
            2 => (
                format!(
                    "PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 {RANGES}"
                ),
                0,
            ),
            _ => (format!("PARTITION BY RANGE (id) {RANGES}"), 0),
        };
        self.step(
            format!("CREATE TABLE {name} {COLUMNS} {partitions}"),
            |tables| {
                tables.insert(name.to_owned(), rows_up_to(rows));
            },
        )
    }

    fn fill(&self, name: &str, kind: &Kind) -> Step {
        let end = match kind {
            Kind::Ranges(ranges) => ranges.last().map_or(1, |(_, _, end)| end - 1),
            _ => 2500,
        };
        let statement = format!(
            "INSERT INTO {name} (id, a, b) SELECT seq, seq * 3, REPEAT('b', seq MOD 50) FROM seq_1_to_{end}_step_{STEP}"
        );
        self.step(statement, |tables| {
            tables.insert(name.to_owned(), rows_up_to(end));
        })
    }

    /// Statements on whole tables.
    fn change(&self, name: &str, random: &mut Random) -> Step {
        let other = format!("t{}", random.below(NAMES));
        let alter = |what: &str| self.step(format!("ALTER TABLE {name} {what}"), |_| ());
        match random.below(14) {
            0 => alter("ENGINE=Inkstone"),
            1 => alter("FORCE, ALGORITHM=COPY"),
            2 => alter("ADD COLUMN IF NOT EXISTS e INT DEFAULT 5"),
            3 => alter("ADD COLUMN IF NOT EXISTS e INT DEFAULT 5, ALGORITHM=COPY"),
            4 => alter("DROP COLUMN IF EXISTS e"),
            5 => alter("ADD INDEX IF NOT EXISTS ab (a, b)"),
            6 => alter("DROP INDEX IF EXISTS ab"),
            7 | 8 => self.step(format!("TRUNCATE TABLE {name}"), |tables| {
                tables.insert(name.to_owned(), (0, 0));
            }),
            9 => self.step(format!("DROP TABLE {name}"), |tables| {
                tables.remove(name);
            }),
            10 if self.state().tables.contains_key(&other) => self.step(
                format!(
                    "RENAME TABLE {name} TO {SWAPPED}, {other} TO {name}, {SWAPPED} TO {other}"
                ),
                |tables| {
                    let (rows, of_other) = (tables.remove(name), tables.remove(&other));
                    tables.extend(rows.map(|rows| (other.clone(), rows)));
                    tables.extend(of_other.map(|rows| (name.to_owned(), rows)));
                },
            ),
            10 | 11 => self.step(format!("RENAME TABLE {name} TO {other}"), |tables| {
                rename(tables, name, &other);
            }),
            12 => alter(kept::asked(random)),
            _ => self.step(
                format!("ALTER TABLE {name} RENAME TO {other}, FORCE, ALGORITHM=COPY"),
                |tables| rename(tables, name, &other),
            ),
        }
    }

    fn change_partitioning(&self, name: &str, kind: &Kind, random: &mut Random) -> Step {
        let what = match (kind, random.below(4)) {
            (Kind::Not, 0) => format!("PARTITION BY RANGE (id) {RANGES}"),
            (Kind::Not, _) => "PARTITION BY HASH (id) PARTITIONS 4".to_owned(),
            (_, 0) => "REMOVE PARTITIONING".to_owned(),
            (_, 1) => "COALESCE PARTITION 1".to_owned(),
            _ => "ADD PARTITION PARTITIONS 1".to_owned(),
        };
        self.step(format!("ALTER TABLE {name} {what}"), |_| ())
    }

    fn change_ranges(
        &self,
        session: &mut Session,
        random: &mut Random,
        name: &str,
        ranges: &[Range],
    ) -> Result<Option<()>> {
        let Some((part, start, end)) = ranges.get(random.below(ranges.len() as u64) as usize)
        else {
            return Err(format!("{name} has no partitions"));
        };
        let Some(rows) = rows_of(session, &format!("{name} PARTITION ({part})"))? else {
            return Ok(None);
        };
        let alter = |what: String, rest: fn(Rows, Rows) -> Rows| {
            self.step(format!("ALTER TABLE {name} {what}"), |tables| {
                if let Some(all) = tables.get_mut(name) {
                    *all = rest(*all, rows);
                }
            })
        };
        let keep = |all, _| all;
        let without = |all: Rows, rows: Rows| (all.0 - rows.0, all.1 - rows.1);
        let step = match random.below(9) {
            0 => alter("REMOVE PARTITIONING".to_owned(), keep),
            1 => alter(format!("DROP PARTITION {part}"), without),
            2 => alter(format!("TRUNCATE PARTITION {part}"), without),
            3 | 4 => {
                let middle = (start + end) / 2;
                let into = format!(
                    "(PARTITION p{middle} VALUES LESS THAN ({middle}), PARTITION p{end} VALUES LESS THAN ({end}))"
                );
                alter(format!("REORGANIZE PARTITION {part} INTO {into}"), keep)
            }
            5 if ranges.len() > 4 => {
                let (first, second) = (&ranges[0].0, &ranges[1].0);
                let end = ranges[1].2;
                let into = format!("(PARTITION p{end} VALUES LESS THAN ({end}))");
                alter(
                    format!("REORGANIZE PARTITION {first}, {second} INTO {into}"),
                    keep,
                )
            }
            6 | 7 => return self.exchange(session, name, (part, *start, *end)),
            _ => {
                let end = ranges.last().map_or(0, |(_, _, end)| *end) + 1000;
                alter(
                    format!("ADD PARTITION (PARTITION p{end} VALUES LESS THAN ({end}))"),
                    keep,
                )
            }
        };
        self.execute(session, step)
    }

    /// Makes a table that fits a partition, and exchanges the two.
    fn exchange(
        &self,
        session: &mut Session,
        name: &str,
        (part, start, end): (&str, u64, u64),
    ) -> Result<Option<()>> {
        let (from, to) = (start.max(1), end - 1);
        let drop = self.step(format!("DROP TABLE IF EXISTS {PARTNER}"), |tables| {
            tables.remove(PARTNER);
        });
        if self.execute(session, drop)?.is_none() {
            return Ok(None);
        }
        let create = self.step(format!("CREATE TABLE {PARTNER} LIKE {name}"), |tables| {
            tables.insert(PARTNER.to_owned(), (0, 0));
        });
        if self.execute(session, create)?.is_none() {
            return Ok(None);
        }
        let plain = format!("ALTER TABLE {PARTNER} REMOVE PARTITIONING");
        if self.execute(session, self.step(plain, |_| ()))?.is_none() {
            return Ok(None);
        }
        let statement = format!(
            "INSERT INTO {PARTNER} (id, a, b) SELECT seq, seq * 3, 'x' FROM seq_{from}_to_{to}"
        );
        let fill = self.step(statement, |tables| {
            let count = to + 1 - from;
            tables.insert(PARTNER.to_owned(), (count, (from + to) * count / 2));
        });
        if self.execute(session, fill)?.is_none() {
            return Ok(None);
        }
        let (Some(of_part), Some(of_partner)) = (
            rows_of(session, &format!("{name} PARTITION ({part})"))?,
            rows_of(session, PARTNER)?,
        ) else {
            return Ok(None);
        };
        let exchange = format!("ALTER TABLE {name} EXCHANGE PARTITION {part} WITH TABLE {PARTNER}");
        let exchange = self.step(exchange, |tables| {
            if let Some(all) = tables.get_mut(name) {
                *all = (
                    all.0 - of_part.0 + of_partner.0,
                    all.1 - of_part.1 + of_partner.1,
                );
            }
            tables.insert(PARTNER.to_owned(), of_part);
        });
        self.execute(session, exchange)
    }

    /// Fails unless the tables are as they were, or as the statement that was running makes them.
    /// From then on it is known which.
    pub fn check(&self, server: &Server) -> Result<()> {
        let database = &self.database;
        let names = server.sql(&format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'"
        ))?;
        let mut found = Tables::new();
        for name in names.lines() {
            let row = server.sql(&format!("{ROWS} {database}.{name}"))?;
            let rows = rows_from(row.trim())
                .ok_or_else(|| format!("{database}.{name} has wrong rows: {row}"))?;
            found.insert(name.to_owned(), rows);
        }
        let mut state = self.state();
        if state.tables != found && !state.possible.contains(&found) {
            return Err(format!(
                "{database} has {found:?}; before \"{}\" it had {:?}, behind it {:?}",
                state.statement, state.tables, state.possible
            ));
        }
        state.tables = found;
        state.possible.clear();
        Ok(())
    }
}

/// Gives a table another's name, unless there is one: then the statement fails.
fn rename(tables: &mut Tables, from: &str, to: &str) {
    if !tables.contains_key(to) {
        let rows = tables.remove(from);
        tables.extend(rows.map(|rows| (to.to_owned(), rows)));
    }
}

/// Number and sum of the ids, and what is wrong with another column.
const ROWS: &str = "SELECT COUNT(*), IFNULL(SUM(id), 0), IFNULL(SUM(a) - 3 * SUM(id), 0) FROM";

fn rows_from(line: &str) -> Option<Rows> {
    let mut fields = line.split('\t');
    let (count, sum, wrong) = (fields.next()?, fields.next()?, fields.next()?);
    let rows = (count.parse().ok()?, sum.parse().ok()?);
    (wrong == "0").then_some(rows)
}

/// The rows of a table or partition; nothing if the server is gone.
fn rows_of(session: &mut Session, what: &str) -> Result<Option<Rows>> {
    let Some(lines) = session.run(&format!("{ROWS} {what};")) else {
        return Ok(None);
    };
    match lines.first().and_then(|line| rows_from(line)) {
        Some(rows) => Ok(Some(rows)),
        None => Err(format!("the rows of {what} are {lines:?}")),
    }
}

/// What [`Partitioned::fill`] inserts.
fn rows_up_to(end: u64) -> Rows {
    let ids = (1..=end).step_by(STEP as usize);
    (ids.clone().count() as u64, ids.sum())
}

/// How a table is partitioned; nothing if the server is gone.
fn kind_of(session: &mut Session, name: &str) -> Option<Kind> {
    let lines = session.run(&format!(
        "SELECT partition_method, partition_name, partition_description \
         FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = '{name}' \
         ORDER BY partition_ordinal_position;"
    ))?;
    let mut ranges: Vec<Range> = Vec::new();
    for line in &lines {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            // Once for each subpartition.
            ["RANGE", part, _] if ranges.last().is_some_and(|(last, ..)| last == part) => {}
            ["RANGE", part, end] => {
                let start = ranges.last().map_or(0, |(_, _, end)| *end);
                ranges.push(((*part).to_owned(), start, end.parse().unwrap_or(0)));
            }
            ["HASH", ..] => return Some(Kind::Hash),
            _ => return Some(Kind::Not),
        }
    }
    Some(Kind::Ranges(ranges))
}
