//! Random cases: small tables with rows, marks of deleted rows and gaps, and what two to four sessions do to them.
//!
//! Every WHERE names its index, so that both engines read, and lock, the same way.

use super::script::{ENGINE, Script, Step};
use crate::mariadb::random::Random;

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

/// The case of this seed and number.
pub fn case(seed: u64, number: u64) -> Script {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9) ^ number.wrapping_mul(0x85eb_ca6b_27d4));
    let table = random.place(TABLES.len());
    let mut generator = Generator { random, table };
    Script {
        name: format!("seed {seed} case {number}"),
        setup: generator.setup(),
        steps: generator.steps(),
    }
}

struct Generator {
    random: Random,
    table: usize,
}

/// An index, and a condition on it.
struct Place {
    index: &'static str,
    condition: String,
}

impl Generator {
    fn setup(&mut self) -> Vec<String> {
        let mut setup = vec![format!(
            "CREATE TABLE t ({}) ENGINE={ENGINE}",
            TABLES[self.table]
        )];
        for n in (10..END).step_by(10) {
            if self.random.chance(85) {
                setup.push(format!("INSERT INTO t VALUES {}", self.row(n)));
            }
        }
        for n in (10..END).step_by(10) {
            if self.random.chance(20) {
                setup.push(format!("DELETE FROM t WHERE id = {n}"));
            }
        }
        setup
    }

    fn row(&mut self, id: u64) -> String {
        let u = match self.table != 1 && self.random.chance(10) {
            true => "NULL".to_owned(),
            false => id.to_string(),
        };
        format!("({id}, {u}, {}, {})", id / 20, self.random.below(3))
    }

    fn steps(&mut self) -> Vec<Step> {
        let sessions = self.random.between(2, 4) as usize;
        let mut steps = Vec::new();
        let usual = self.random.word(&LEVELS);
        let mut open = vec![0; sessions];
        for session in 1..=sessions {
            let level = match self.random.chance(70) {
                true => usual,
                false => self.random.word(&LEVELS),
            };
            let statement = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            steps.push(Step { session, statement });
        }
        for _ in 0..self.random.between(STEPS / 3, STEPS) {
            let session = 1 + self.random.place(sessions);
            let statement = self.next(&mut open[session - 1]);
            steps.push(Step { session, statement });
        }
        steps
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
        match self.random.weighted(&[10, 25, 14, 5, 6, 6, 22, 12]) {
            0 => {
                let place = self.place();
                format!("SELECT * FROM t {}", place.clause())
            }
            1 => {
                let lock = ["FOR UPDATE", "FOR UPDATE", "LOCK IN SHARE MODE"];
                let (lock, patience) = (self.random.word(&lock), self.patience());
                let place = self.place();
                format!("SELECT * FROM t {} {lock}{patience}", place.clause())
            }
            2 => format!("INSERT INTO t VALUES {}", self.rows()),
            3 => format!("INSERT IGNORE INTO t VALUES {}", self.rows()),
            4 => format!("REPLACE INTO t VALUES {}", self.rows()),
            5 => format!(
                "INSERT INTO t VALUES {} ON DUPLICATE KEY UPDATE v = v + 1",
                self.rows()
            ),
            6 => {
                let (change, place) = (self.change(), self.place());
                let Place { index, condition } = place;
                format!("UPDATE t FORCE INDEX ({index}) SET {change} WHERE {condition}")
            }
            _ => {
                let place = self.place();
                format!("DELETE t FROM t {}", place.clause())
            }
        }
    }

    fn patience(&mut self) -> &'static str {
        self.random
            .word(&["", "", "", "", "", " NOWAIT", " SKIP LOCKED"])
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
        match self.random.chance(65) {
            true => 10 * self.random.between(1, END / 10),
            false => self.random.between(1, END + 5),
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
        let condition = match self.random.weighted(&[8, 4, 2, 2, 1, 1]) {
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
