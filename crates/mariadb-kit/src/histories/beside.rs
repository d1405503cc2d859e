//! What goes on beside the clients of a life: statements and connections are killed, and tables
//! are altered, with all their rows.

use super::client::{DEADLOCK, KILLED, TIMEOUT, World};
use super::lost::Line;
use crate::client::{Client as Connection, Reply};
use crate::random::Random;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From one statement that is killed to the next, at most: about as long as a few statements take.
const KILLS_APART_US: u64 = 3000;
/// Of a hundred kills, how many are of connections where these are killed.
const CONNECTION_PERCENT: u64 = 5;
/// From one change of a table to the next, at most: some transactions of each client.
const CHANGES_APART_US: u64 = 40_000;
/// Of changes before one that is wrong, how many are told.
const CHANGES_TOLD: usize = 12;

/// What kills.
pub struct Killing<'l> {
    pub connection: Connection,
    pub lines: &'l [Line<'l>],
    pub random: Random,
    pub connections: bool,
}

impl Killing<'_> {
    /// Until the work is over, or the server is gone.
    pub fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            let apart = Duration::from_micros(self.random.below(KILLS_APART_US));
            std::thread::sleep(apart);
            let of_connection = self.connections && self.random.chance(CONNECTION_PERCENT);
            let what = if of_connection { "CONNECTION" } else { "QUERY" };
            let id = self.random.pick(self.lines).id.load(Ordering::Relaxed);
            if self.connection.run(&format!("KILL {what} {id}")).is_err() {
                break;
            }
        }
    }
}

/// Statements that change a table, or what there is beside it, and none of its rows. A column has
/// its default in rows of statements that name the others. No OPTIMIZE TABLE: where a session waits
/// for a row of another, the server keeps that other one waiting until it has closed the table.
const CHANGES: [&str; 14] = [
    "ALTER TABLE {} ADD COLUMN IF NOT EXISTS extra INT NOT NULL DEFAULT 7 AFTER id",
    "ALTER TABLE {} DROP COLUMN IF EXISTS extra",
    "ALTER TABLE {} ADD KEY IF NOT EXISTS by_pad (pad(8))",
    "ALTER TABLE {} DROP KEY IF EXISTS by_pad",
    "ALTER TABLE {} ADD UNIQUE KEY IF NOT EXISTS by_id (id)",
    "ALTER TABLE {} DROP KEY IF EXISTS by_id",
    "ALTER TABLE {} DROP KEY IF EXISTS v",
    "ALTER TABLE {} ADD KEY IF NOT EXISTS v (v(8))",
    "ALTER TABLE {} FORCE",
    "ALTER TABLE {} ENGINE=INKSTONE, ALGORITHM=COPY",
    "ALTER TABLE {} PAGE_PLACEMENT=in_place PAGE_COMPRESSED=0",
    "ALTER TABLE {} PAGE_PLACEMENT=placed PAGE_COMPRESSED=1",
    "RENAME TABLE {} TO aside, aside TO {}",
    "CREATE OR REPLACE TABLE copied ENGINE=INKSTONE AS SELECT id, v FROM {}",
];
const TABLES: [&str; 3] = ["lists", "registers", "rws"];
/// Tables that may be there behind a life.
const ALLOWED: [&str; 4] = ["copied", "lists", "registers", "rws"];

/// What alters tables.
pub struct Altering<'w> {
    pub world: &'w World,
    pub connection: Connection,
    pub random: Random,
}

/// What came of the changes.
#[derive(Default)]
pub struct Altered {
    pub made: u64,
    /// They gave way to transactions.
    pub gave_way: u64,
    pub wrong: Option<String>,
}

/// What came of one.
enum Change {
    Made,
    GaveWay(String),
    /// The server is gone.
    Over,
    Wrong(String),
}

impl Altering<'_> {
    /// Until the work is over, or the server is gone.
    pub fn run(mut self, is_over: &AtomicBool) -> Altered {
        let mut altered = Altered::default();
        let mut before = VecDeque::new();
        while !is_over.load(Ordering::SeqCst) {
            let apart = Duration::from_micros(self.random.below(CHANGES_APART_US));
            std::thread::sleep(apart);
            let statement = self.statement();
            match self.change(&statement) {
                Change::Made => {
                    altered.made += 1;
                    before.push_front(statement);
                }
                Change::GaveWay(why) => {
                    altered.gave_way += 1;
                    before.push_front(format!("{statement}: {why}"));
                }
                Change::Over => break,
                Change::Wrong(why) => {
                    let before = before.make_contiguous().join("\n    ");
                    let text = format!("{statement}: {why}\nbefore it: {before}");
                    altered.wrong = Some(text);
                    break;
                }
            }
            before.truncate(CHANGES_TOLD);
        }
        altered
    }

    fn change(&mut self, statement: &str) -> Change {
        // What waits behind a change may be what it waits for: it gives way soon.
        let patience = self.random.below(2);
        let set = format!("SET STATEMENT lock_wait_timeout = {patience} FOR {statement}");
        let reply = self.connection.run(&set);
        let is_server_killed = self.world.killed.load(Ordering::SeqCst);
        match reply {
            Ok(Reply::Done(_) | Reply::Rows(_)) => Change::Made,
            Ok(Reply::Refused(_)) | Err(_) if is_server_killed => Change::Over,
            Ok(Reply::Refused(refusal)) => match refusal.code {
                TIMEOUT | DEADLOCK => Change::GaveWay(refusal.message),
                KILLED if self.world.kills_statements => Change::GaveWay(refusal.message),
                code => Change::Wrong(format!("error {code}: {}", refusal.message)),
            },
            Err(error) => Change::Wrong(error.to_string()),
        }
    }

    fn statement(&mut self) -> String {
        let change = *self.random.pick(&CHANGES);
        let table = *self.random.pick(&TABLES);
        // Only lists are text.
        let change = if table == "lists" {
            change.to_owned()
        } else {
            change.replace("(v(8))", "(v)")
        };
        change.replace("{}", table)
    }
}

/// What is wrong with the tables behind a life, where they were altered in it.
pub fn check_tables(connection: &mut Connection) -> Result<(), String> {
    let mut rows = |statement: &str| match connection.run(statement) {
        Ok(Reply::Rows(found)) => Ok(found.rows),
        other => Err(format!("{statement}: {other:?}")),
    };
    let text = |cell: &Option<Vec<u8>>| {
        String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned()
    };
    for row in rows("SHOW TABLES")? {
        let name = text(&row[0]);
        if !ALLOWED.contains(&name.as_str()) {
            return Err(format!("a table {name} is left behind"));
        }
    }
    for row in rows("CHECK TABLE lists, registers, rws EXTENDED")? {
        let line: Vec<_> = row.iter().map(text).collect();
        if line[2] != "status" || line[3] != "OK" {
            return Err(format!("CHECK TABLE: {}", line.join(" ")));
        }
    }
    Ok(())
}
