//! Random cases: small tables with rows, marks of deleted rows and gaps, and what two to four
//! sessions do to them.
//!
//! Every WHERE names its index, so that both engines read, and lock, the same way.

use super::script::{self, ENGINE, Script, Step};
use crate::random::Random;

/// How the table of a case is keyed.
const TABLES: [&str; 4] = [
    "id INT PRIMARY KEY, u INT, k INT, v INT, UNIQUE KEY u (u), KEY k (k)",
    "id INT NOT NULL, u INT NOT NULL, k INT, v INT, UNIQUE KEY u (u), KEY k (k), KEY id (id)",
    "id INT, u INT, k INT, v INT, PRIMARY KEY (k, id), UNIQUE KEY u (u)",
    "id VARCHAR(20) PRIMARY KEY, u INT, k INT, v INT, UNIQUE KEY u (u), KEY k (k, v)",
];
const LEVELS: [&str; 4] = [
    "READ UNCOMMITTED",
    "READ COMMITTED",
    "REPEATABLE READ",
    "SERIALIZABLE",
];
/// The rows of the beginning are multiples of ten below this.
const END: u64 = 100;
const STEPS: u64 = 22;
/// Of a hundred cases that are about rows alone, how many also give out numbers.
const NUMBERS: u64 = 20;
/// How many rows others give numbers to.
const SOURCE: u64 = 4;

/// What the names of random scripts begin with.
pub const NAME: &str = "seed ";

/// The case of this seed and number.
pub fn case(seed: u64, number: u64) -> Script {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9) ^ number.wrapping_mul(0x85eb_ca6b_27d4));
    let table = random.place(TABLES.len());
    let purged = random.chance(15);
    let names = if random.chance(30) { 2 } else { 1 };
    let topic = random.weighted(&[70, 8, 8, 6, 8]);
    let topic = [
        Topic::Rows,
        Topic::Deadlock,
        Topic::Ddl,
        Topic::Tables,
        Topic::Xa,
    ][topic];
    // From random numbers of its own, so that the other cases are what they were.
    let mut of_numbers =
        Random(seed.wrapping_mul(0xc2b2_ae35) ^ number.wrapping_mul(0x27d4_eb2f_1656));
    let topic = match topic {
        Topic::Rows if of_numbers.chance(NUMBERS) => Topic::Numbers,
        topic => topic,
    };
    let mut generator = Generator {
        random,
        table,
        names,
        topic,
        xa: 0,
    };
    Script {
        name: format!("{NAME}{seed} case {number}"),
        setup: generator.setup(),
        steps: generator.steps(),
        purged,
        format: None,
    }
}

/// What a case has beside plain statements on rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topic {
    Rows,
    /// Sessions each lock a row, and then want another's.
    Deadlock,
    Ddl,
    /// LOCK TABLES, FLUSH TABLES WITH READ LOCK.
    Tables,
    /// One prepared transaction, with its session or detached from it.
    Xa,
    /// Beside them rows get numbers of AUTO_INCREMENT.
    Numbers,
}

struct Generator {
    random: Random,
    table: usize,
    /// How many tables of this kind there are.
    names: usize,
    topic: Topic,
    /// How far the XA transaction is: which of [`XA`] was said last.
    xa: usize,
}

const NAMES: [&str; 2] = ["t", "w"];
/// A table that is moved, and is where it was.
fn there_and_back(table: &str) -> String {
    format!("RENAME TABLE {table} TO moved, moved TO {table}")
}

/// What the session of an XA transaction says, with other statements before the second.
const XA: [&str; 4] = [
    "",
    "XA START '<ENGINE>'",
    "XA END '<ENGINE>'",
    "XA PREPARE '<ENGINE>'",
];

/// An index, and a condition on it.
struct Place {
    index: &'static str,
    condition: String,
}

impl Generator {
    fn setup(&mut self) -> Vec<String> {
        let mut setup = Vec::new();
        for name in &NAMES[..self.names] {
            setup.push(format!(
                "CREATE TABLE {name} ({}) ENGINE={ENGINE}",
                TABLES[self.table]
            ));
            for n in (10..END).step_by(10) {
                if self.random.chance(85) {
                    setup.push(format!("INSERT INTO {name} VALUES {}", self.row(n)));
                }
            }
            for n in (10..END).step_by(10) {
                if self.random.chance(20) {
                    setup.push(format!("DELETE FROM {name} WHERE id = {n}"));
                }
            }
        }
        if self.topic == Topic::Numbers {
            setup.push(format!(
                "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT) ENGINE={ENGINE}"
            ));
            setup.push("INSERT INTO n (v) VALUES (1), (2), (3)".to_owned());
            setup.push(format!(
                "CREATE TABLE s (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}"
            ));
            for id in 1..=SOURCE {
                setup.push(format!("INSERT INTO s VALUES ({id}, {id})"));
            }
        }
        setup
    }

    fn row(&mut self, id: u64) -> String {
        let u = if self.table != 1 && self.random.chance(10) {
            "NULL".to_owned()
        } else {
            id.to_string()
        };
        format!("({id}, {u}, {}, {})", id / 20, self.random.below(3))
    }

    fn steps(&mut self) -> Vec<Step> {
        let sessions = self.random.between(2, 4) as usize;
        let mut steps = Vec::new();
        let usual = self.random.word(&LEVELS);
        let mut open = vec![0; sessions];
        for session in 1..=sessions {
            let level = if self.random.chance(70) {
                usual
            } else {
                self.random.word(&LEVELS)
            };
            let statement = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            steps.push(Step { session, statement });
        }
        if self.topic == Topic::Deadlock {
            self.circle(sessions, &mut steps);
            open.fill(4);
        }
        for _ in 0..self.random.between(STEPS / 3, STEPS) {
            let session = 1 + self.random.place(sessions);
            let statement = match self.beside(session, sessions, open[session - 1]) {
                Some(statement) => statement,
                None => self.next(&mut open[session - 1]),
            };
            steps.push(Step { session, statement });
        }
        steps
    }

    /// All sessions but perhaps the last lock rows, and then each wants the next one's.
    fn circle(&mut self, sessions: usize, steps: &mut Vec<Step>) {
        let parties = sessions.min(3);
        let mut say = |session: usize, statement: String| steps.push(Step { session, statement });
        let column = if self.table == 2 { "u" } else { "id" };
        let mut rows: Vec<u64> = (1..END / 10).map(|n| 10 * n).collect();
        for session in 1..=parties {
            say(session, "BEGIN".to_owned());
        }
        let own: Vec<u64> = (0..parties)
            .map(|_| rows.remove(self.random.place(rows.len())))
            .collect();
        for (at, row) in own.iter().enumerate() {
            say(at + 1, self.at_row(column, *row));
            for _ in 0..self.random.below(3) {
                let row = rows.remove(self.random.place(rows.len()).min(1));
                say(at + 1, self.at_row(column, row));
            }
        }
        for at in 0..parties {
            let row = own[(at + 1) % parties];
            say(at + 1, self.at_row(column, row));
        }
    }

    /// Locks or changes one row.
    fn at_row(&mut self, column: &str, row: u64) -> String {
        let index = match (column, self.table) {
            ("id", 0 | 3) => "PRIMARY",
            (column, _) => column,
        };
        let value = if self.table == 3 {
            format!("'{row}'")
        } else {
            row.to_string()
        };
        match self.random.weighted(&[4, 2, 1]) {
            0 => format!("UPDATE t FORCE INDEX ({index}) SET v = v + 1 WHERE {column} = {value}"),
            1 => {
                format!("SELECT * FROM t FORCE INDEX ({index}) WHERE {column} = {value} FOR UPDATE")
            }
            _ => format!("DELETE t FROM t FORCE INDEX ({index}) WHERE {column} = {value}"),
        }
    }

    /// A statement that is none on rows, if this is its time.
    fn beside(&mut self, session: usize, sessions: usize, open: u64) -> Option<String> {
        if self.random.chance(3) {
            let other = script::connection(1 + self.random.place(sessions));
            return match self.random.chance(75) {
                true => Some(format!("KILL QUERY {other}")),
                false if other != script::connection(session) => Some(format!("KILL {other}")),
                false => None,
            };
        }
        let table = self.name();
        match self.topic {
            Topic::Ddl if open == 0 && self.random.chance(25) => {
                let number = self.random.below(1000);
                Some(match self.random.below(6) {
                    0 => format!("ALTER TABLE {table} ADD KEY n{number} (v)"),
                    1 => format!("TRUNCATE TABLE {table}"),
                    2 => format!("ALTER TABLE {table} FORCE, ALGORITHM=COPY"),
                    3 => "START TRANSACTION WITH CONSISTENT SNAPSHOT".to_owned(),
                    4 => there_and_back(table),
                    _ => format!("CHECK TABLE {table}"),
                })
            }
            Topic::Tables if open == 0 && self.random.chance(35) => {
                let mode = self.random.word(&["READ", "WRITE"]);
                Some(match self.random.below(4) {
                    0 => format!("LOCK TABLES {table} {mode}"),
                    1 => "FLUSH TABLES WITH READ LOCK".to_owned(),
                    _ => "UNLOCK TABLES".to_owned(),
                })
            }
            Topic::Xa => self.xa(session, table),
            Topic::Numbers if self.random.chance(45) => Some(self.numbers()),
            _ => None,
        }
    }

    /// Numbers of rows that others may hold back in the middle; nothing is in the way of the
    /// engines there but these rows, each found by its key.
    fn numbers(&mut self) -> String {
        // Never one that a running statement has given out: its rows may not be there yet, for they
        // are held back and inserted many at a time, which InnoDB does not do.
        let far = 1000 * self.random.between(1, 90_000);
        let (id, v) = (self.random.between(1, 3), self.random.below(9));
        let row = self.random.between(1, SOURCE);
        match self.random.weighted(&[7, 3, 3, 1, 1, 1, 3, 3]) {
            0 => "INSERT INTO n (v) SELECT v FROM s".to_owned(),
            1 => format!("INSERT INTO n (v) VALUES ({v}), (10)"),
            2 => format!("INSERT INTO n (v) SELECT {v} UNION ALL SELECT 11"),
            3 => format!("INSERT INTO n VALUES ({far}, {v})"),
            4 => format!("UPDATE n FORCE INDEX (PRIMARY) SET id = id + {far} WHERE id = {id}"),
            5 => format!("REPLACE INTO n (v) SELECT v + {v} FROM s"),
            6 => format!("SELECT * FROM s FORCE INDEX (PRIMARY) WHERE id = {row} FOR UPDATE"),
            _ => format!("UPDATE s FORCE INDEX (PRIMARY) SET v = v + 1 WHERE id = {row}"),
        }
    }

    /// The first session has an XA transaction; others end its connection, end the transaction, and
    /// define.
    fn xa(&mut self, session: usize, table: &str) -> Option<String> {
        let prepared = self.xa + 1 == XA.len();
        let chance = if prepared { 30 } else { 40 };
        if !self.random.chance(chance) {
            return None;
        }
        match (session, prepared) {
            (1, false) => {
                self.xa += 1;
                Some(XA[self.xa].to_owned())
            }
            (1, true) => Some(format!(
                "XA {} '{ENGINE}'",
                self.random.word(&["COMMIT", "ROLLBACK"])
            )),
            (_, true) => Some(match self.random.below(7) {
                0 => format!("KILL {}", script::connection(1)),
                1 => format!(
                    "XA {} '{ENGINE}'",
                    self.random.word(&["COMMIT", "ROLLBACK"])
                ),
                2 => format!(
                    "ALTER TABLE {table} ADD KEY n{} (v)",
                    self.random.below(1000)
                ),
                3 => there_and_back(table),
                4 => format!("DROP TABLE {table}"),
                5 => format!(
                    "CREATE OR REPLACE TABLE {table} (id INT PRIMARY KEY, v INT) ENGINE={ENGINE}"
                ),
                _ => format!("TRUNCATE TABLE {table}"),
            }),
            _ => None,
        }
    }

    /// One of the tables.
    fn name(&mut self) -> &'static str {
        if self.names > 1 && self.random.chance(30) {
            NAMES[1]
        } else {
            NAMES[0]
        }
    }

    /// What a session says next. `open`: statements of its transaction, 0 outside of one.
    fn next(&mut self, open: &mut u64) -> String {
        if *open == 0 && self.random.chance(75) {
            *open = 1;
            return "BEGIN".to_owned();
        }
        if *open > 0 {
            *open += 1;
            match self.random.below(12 + 2 * *open) {
                0 => return "SAVEPOINT a".to_owned(),
                1 if *open > 3 => return "ROLLBACK TO a".to_owned(),
                2 if *open > 3 => {
                    *open = 0;
                    return "ROLLBACK".to_owned();
                }
                n if n >= 14 => {
                    *open = 0;
                    return "COMMIT".to_owned();
                }
                _ => {}
            }
        }
        self.statement()
    }

    fn statement(&mut self) -> String {
        let t = self.name();
        match self.random.weighted(&[10, 25, 14, 5, 6, 6, 22, 12]) {
            0 => {
                let place = self.place();
                format!("SELECT * FROM {t} {}", place.clause())
            }
            1 => {
                let lock = ["FOR UPDATE", "FOR UPDATE", "LOCK IN SHARE MODE"];
                let (lock, patience) = (self.random.word(&lock), self.patience());
                let place = self.place();
                format!("SELECT * FROM {t} {} {lock}{patience}", place.clause())
            }
            2 => format!("INSERT INTO {t} VALUES {}", self.rows()),
            3 => format!("INSERT IGNORE INTO {t} VALUES {}", self.rows()),
            4 => format!("REPLACE INTO {t} VALUES {}", self.rows()),
            5 => format!(
                "INSERT INTO {t} VALUES {} ON DUPLICATE KEY UPDATE v = v + 1",
                self.rows()
            ),
            6 => {
                let (change, place) = (self.change(), self.place());
                let Place { index, condition } = place;
                format!("UPDATE {t} FORCE INDEX ({index}) SET {change} WHERE {condition}")
            }
            _ => {
                let place = self.place();
                format!("DELETE {t} FROM {t} {}", place.clause())
            }
        }
    }

    fn patience(&mut self) -> &'static str {
        self.random.word(&[
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            " NOWAIT",
            " SKIP LOCKED",
            " WAIT 1",
        ])
    }

    fn rows(&mut self) -> String {
        let count = self.random.weighted(&[0, 4, 1]);
        let rows: Vec<String> = (0..count)
            .map(|_| {
                let id = self.number();
                self.row(id)
            })
            .collect();
        rows.join(", ")
    }

    /// A row that may be there, may have been, or a gap.
    fn number(&mut self) -> u64 {
        if self.random.chance(65) {
            10 * self.random.between(1, END / 10)
        } else {
            self.random.between(1, END + 5)
        }
    }

    fn change(&mut self) -> String {
        match self.random.weighted(&[6, 2, 2, 2]) {
            0 => "v = v + 1".to_owned(),
            1 => format!("k = {}", self.random.below(END / 20 + 1)),
            2 => format!("u = u + {}", self.random.between(1, 10)),
            _ => format!("id = id + {}", self.random.between(1, 10)),
        }
    }

    fn place(&mut self) -> Place {
        // Where a table has no such index, its primary key or its only other one is scanned.
        let primary = if self.table == 1 { "id" } else { "PRIMARY" };
        let by_k = if self.table == 2 { "PRIMARY" } else { "k" };
        let (index, column, end) = match self.random.weighted(&[10, 5, 5, 2]) {
            0 if self.table != 2 => (primary, "id", END),
            0 | 1 => ("u", "u", END),
            2 => (by_k, "k", END / 20),
            _ => {
                return Place {
                    index: primary,
                    condition: format!("v = {}", self.random.below(3)),
                };
            }
        };
        let is_text = self.table == 3 && column == "id";
        let value = |random: &mut Random, n: u64| {
            let n = if column == "k" { random.below(end) } else { n };
            if is_text {
                format!("'{n}'")
            } else {
                n.to_string()
            }
        };
        let (one, other) = (self.number(), self.number());
        let low = value(&mut self.random, one.min(other));
        let high = value(&mut self.random, one.max(other));
        let condition = match self.random.weighted(&[10, 4, 2, 2, 1, 1]) {
            0 => format!("{column} = {low}"),
            1 => format!("{column} BETWEEN {low} AND {high}"),
            2 => format!("{column} > {high}"),
            3 => format!("{column} <= {low}"),
            4 => format!("{column} IN ({low}, {high})"),
            _ => format!("{column} >= {low} AND v = 1"),
        };
        Place { index, condition }
    }
}

impl Place {
    fn clause(&self) -> String {
        let Self { index, condition } = self;
        format!("FORCE INDEX ({index}) WHERE {condition}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_decided_by_its_seed_and_number() {
        assert_eq!(case(3, 7), case(3, 7));
        assert_ne!(case(3, 7).steps, case(3, 8).steps);
        assert_ne!(case(3, 7).steps, case(4, 7).steps);
    }
}
