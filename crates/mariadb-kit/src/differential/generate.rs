//! A random case: tables, then statements, each chosen with what became of those before it.

use super::alter::whole_table;
use super::query::by_index;
use super::schema::{Maker, Table};
use super::sql::{XID, text};
use super::step::{Statement, Step, Steps};
use super::text::{Collation, Strings};
use super::topics::{Topic, Topics};
use super::types::Palette;
use crate::random::Random;
use std::collections::VecDeque;

/// SQL modes that a session may have; nothing is the server's own. None has NO_ZERO_DATE: an ALTER
/// that copies fails at dates that are there, one in place does not, and which way is taken is each
/// engine's own (item S9).
const MODES: [&str; 7] = [
    "",
    "",
    "",
    "SET sql_mode = ''",
    "SET sql_mode = 'STRICT_ALL_TABLES,ANSI_QUOTES'",
    "SET sql_mode = 'STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO'",
    "SET sql_mode = 'STRICT_TRANS_TABLES,PAD_CHAR_TO_FULL_LENGTH'",
];

/// Makes the steps of one case. The same seed and case make the same steps, as long as InnoDB gives
/// the same statements the same outcomes.
pub struct Generator {
    random: Random,
    maker: Maker,
    /// The tables, if the statement under way succeeds, and as they are.
    tables: Vec<Table>,
    before: Option<Vec<Table>>,
    queue: VecDeque<Step>,
    left: u64,
    restart_at: Option<(u64, bool)>,
    transaction: Transaction,
    renamed: u32,
    /// Every second table is temporary, if it can be.
    temporary_tables: bool,
}

/// What the session has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    Plain,
    Xa,
}

impl Generator {
    /// The case of this number.
    pub fn new(seed: u64, case: u64, topics: &Topics, collations: &[Collation]) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ case);
        random.bits();
        let mut palette = Palette {
            collations: Vec::new(),
        };
        if topics.has(Topic::Collations) {
            palette.collations = some_collations(&mut random, collations);
        }
        let strings = Strings::new(&mut random);
        let left = random.between(30, 120);
        // A restart costs as much as a dozen cases.
        let restart_at = if topics.has(Topic::Restarts) && case % 24 == 23 {
            Some((random.below(left), random.chance(60)))
        } else {
            None
        };
        let mut generator = Self {
            maker: Maker::new(palette, strings, topics.clone()),
            random,
            tables: Vec::new(),
            before: None,
            queue: VecDeque::new(),
            left,
            restart_at,
            transaction: Transaction::None,
            renamed: 0,
            temporary_tables: case % 5 == 3 && topics.has(Topic::Temporary) && restart_at.is_none(),
        };
        generator.begin();
        generator
    }

    fn begin(&mut self) {
        let mode = self.random.word(&MODES);
        self.maker.strict = mode.is_empty() || mode.contains("STRICT");
        if !mode.is_empty() {
            self.push(Statement::exact(text(mode)));
        }
        if self.random.chance(10) && self.maker.topics.has(Topic::AutoIncrement) {
            let step = self.random.between(1, 5);
            let set = format!("SET auto_increment_increment = {step}, auto_increment_offset = 2");
            self.push(Statement::exact(text(set)));
        }
    }

    fn push(&mut self, statement: Statement) {
        self.queue.push_back(Step::Run(statement));
    }

    fn statement(&mut self) -> Statement {
        let wanted = 1 + self.tables.len() as u64 * 40;
        if self.tables.is_empty() || (self.tables.len() < 3 && self.random.below(wanted) == 0) {
            return self.create();
        }
        let mut weights = [46, 34, 7, 3, 10, 5];
        if !self.maker.topics.has(Topic::Alter) {
            weights[2] = 0;
        }
        if !self.maker.topics.has(Topic::Transactions) {
            weights[4] = 0;
        }
        if !self.maker.topics.has(Topic::Objects) {
            weights[5] = 0;
        }
        match self.random.weighted(&weights) {
            0 => {
                let change = self.maker.change(&mut self.random, &self.tables);
                // Now and then everything is looked at.
                if self.random.chance(25) {
                    let table = self.random.pick(&self.tables).name.clone();
                    self.push(Statement::any_order(text(format!("SELECT * FROM {table}"))));
                }
                change
            }
            1 => self.maker.query(&mut self.random, &self.tables),
            2 => self.alter(),
            3 => {
                self.before = Some(self.tables.clone());
                self.renamed += 1;
                let fresh = format!("r{}", self.renamed);
                Statement::exact(whole_table(&mut self.random, &mut self.tables, &fresh))
            }
            4 => self.transaction(),
            _ => self.objects(),
        }
    }

    fn objects(&mut self) -> Statement {
        self.before = Some(self.tables.clone());
        self.renamed += 1;
        let (maker, random) = (&mut self.maker, &mut self.random);
        let mut statements = maker.objects(random, &mut self.tables, self.renamed);
        let first = statements.remove(0);
        statements.into_iter().for_each(|each| self.push(each));
        first
    }

    fn create(&mut self) -> Statement {
        self.before = Some(self.tables.clone());
        self.renamed += 1;
        let name = format!("t{}", self.renamed);
        let mut table = self.maker.table(&mut self.random, &name);
        table.temporary =
            self.temporary_tables && self.renamed % 2 == 1 && table.partitioning.is_none();
        let definition = table.definition();
        let insert = self.maker.insert(&mut self.random, &table);
        self.tables.push(table);
        self.push(Statement::exact(insert));
        Statement::exact(definition)
    }

    fn alter(&mut self) -> Statement {
        self.before = Some(self.tables.clone());
        let at = self.random.place(self.tables.len());
        let alter = self.maker.alter(&mut self.random, &mut self.tables[at]);
        let name = &self.tables[at].name;
        let show = Statement::exact(text(format!("SHOW CREATE TABLE {name}")));
        let all = Statement::any_order(text(format!("SELECT * FROM {name}")));
        self.push(show);
        self.push(all);
        Statement::exact(alter)
    }

    fn transaction(&mut self) -> Statement {
        let point = format!("s{}", self.random.below(3));
        let xa = self.maker.topics.has(Topic::Xa);
        let sql = match (self.transaction, self.random.below(8)) {
            (Transaction::None, 0) => {
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned()
            }
            (Transaction::None, 1) => {
                "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned()
            }
            (Transaction::None, 2) => {
                "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE".to_owned()
            }
            (Transaction::None, 3) if xa => {
                self.transaction = Transaction::Xa;
                format!("XA START {XID}")
            }
            (Transaction::None, _) => {
                self.transaction = Transaction::Plain;
                "START TRANSACTION".to_owned()
            }
            (_, 0..=2) => return self.end_transaction(),
            (_, 3 | 4) => format!("SAVEPOINT {point}"),
            (_, 5 | 6) => format!("ROLLBACK TO SAVEPOINT {point}"),
            (_, _) => format!("RELEASE SAVEPOINT {point}"),
        };
        Statement::exact(text(sql))
    }

    fn end_transaction(&mut self) -> Statement {
        let commits = self.random.chance(67);
        if std::mem::replace(&mut self.transaction, Transaction::None) == Transaction::Plain {
            return Statement::exact(text(if commits { "COMMIT" } else { "ROLLBACK" }));
        }
        let end = match (commits, self.random.chance(30)) {
            (true, true) => format!("XA COMMIT {XID} ONE PHASE"),
            (true, false) => format!("XA COMMIT {XID}"),
            (false, _) => format!("XA ROLLBACK {XID}"),
        };
        if !end.ends_with("PHASE") {
            self.push(Statement::exact(text(format!("XA PREPARE {XID}"))));
        }
        self.push(Statement::exact(text(end)));
        Statement::exact(text(format!("XA END {XID}")))
    }

    fn finish(&mut self) {
        if self.transaction != Transaction::None {
            let end = self.end_transaction();
            self.queue.push_front(Step::Run(end));
        }
        self.check_all();
    }

    /// Every table, whole, by each of its keys, and its definition.
    fn check_all(&mut self) {
        for table in self.tables.clone() {
            let name = &table.name;
            let select = |what: &str| text(format!("SELECT {what} FROM {name}"));
            self.push(Statement::any_order(select("*")));
            for key in &table.keys {
                let ordered = by_index(&mut self.random, &table, key, text(""));
                self.push(ordered);
            }
            self.push(Statement::exact(text(format!("SHOW CREATE TABLE {name}"))));
            self.push(Statement::exact(text(format!(
                "CHECK TABLE {name} EXTENDED"
            ))));
        }
    }
}

impl Steps for Generator {
    fn next(&mut self) -> Option<Step> {
        if let Some(step) = self.queue.pop_front() {
            return Some(step);
        }
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        match self.restart_at {
            Some((at, kill)) if at == self.left => {
                self.transaction = Transaction::None;
                self.check_all();
                return Some(if kill { Step::Kill } else { Step::Restart });
            }
            _ => {}
        }
        if self.left == 0 {
            self.finish();
            return self.queue.pop_front();
        }
        let statement = self.statement();
        Some(Step::Run(statement))
    }

    fn observe(&mut self, succeeded: bool) {
        if let (Some(before), false) = (self.before.take(), succeeded) {
            self.tables = before;
        }
    }
}

/// Up to three for a case, and among them often those that most tables have.
fn some_collations(random: &mut Random, collations: &[Collation]) -> Vec<Collation> {
    let common = [
        "utf8mb4_general_ci",
        "utf8mb4_unicode_ci",
        "latin1_swedish_ci",
        "utf8mb4_bin",
    ];
    let mut chosen = Vec::new();
    if collations.is_empty() {
        return chosen;
    }
    for _ in 0..random.between(1, 3) {
        chosen.push(random.pick(collations).clone());
    }
    if random.chance(40) {
        let name = *random.pick(&common);
        chosen.extend(collations.iter().find(|each| each.name == name).cloned());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(step: &Step) -> String {
        match step {
            Step::Run(statement) => statement.sql.render(),
            Step::Restart => "-- restart".to_owned(),
            Step::Kill => "-- kill".to_owned(),
        }
    }

    fn steps(seed: u64, case: u64) -> Vec<String> {
        let collation = Collation {
            name: "utf8mb4_general_ci".to_owned(),
            charset: "utf8mb4".to_owned(),
            character_max_bytes: 4,
        };
        let mut generator = Generator::new(seed, case, &Topics::without(&[]), &[collation]);
        let mut steps = Vec::new();
        while let Some(step) = generator.next() {
            steps.push(rendered(&step));
            // Some fail, as in a server.
            generator.observe(steps.len() % 5 != 0);
        }
        steps
    }

    #[test]
    fn a_case_is_decided_by_its_seed_and_number() {
        for case in 0..50 {
            let first = steps(1, case);
            assert_eq!(first, steps(1, case));
            assert!(first.len() >= 30, "{first:?}");
            assert_ne!(first, steps(2, case));
        }
    }

    #[test]
    fn cases_have_everything() {
        let all: String = (0..200).flat_map(|case| steps(3, case)).collect();
        for what in [
            "ON DUPLICATE KEY",
            "REPLACE",
            "INSERT IGNORE",
            "SAVEPOINT",
            "PARTITION BY",
            "VIRTUAL",
            "STORED",
            "UNIQUE KEY",
            "DESC",
            "-- kill",
            "-- restart",
            "GROUP BY",
            "LIKE",
            "FORCE INDEX",
            "TRUNCATE",
            "RENAME",
            "MODIFY",
            "AUTO_INCREMENT",
            "STRAIGHT_JOIN",
            "XA PREPARE",
            "CREATE TRIGGER",
            "CREATE OR REPLACE VIEW",
            "HANDLER h READ",
            "LOAD DATA",
            "EXCHANGE PARTITION",
            "CREATE INDEX",
            "RENAME INDEX",
            "RENAME COLUMN",
            " AFTER c",
            "DEFAULT (c",
            "DEFAULT CURRENT_TIMESTAMP",
            "'m5'",
            "LIKE t",
            "CHECK (",
            "ADD CONSTRAINT",
            "CHECK TABLE",
            "ANALYZE TABLE",
        ] {
            assert!(all.contains(what), "no case has {what}");
        }
    }
}
