//! Cases of foreign keys: two to five tables that refer to each other and to themselves, in cycles
//! too; rows that come and go on both sides; definitions that change beneath.
//!
//! [`schema`] makes tables, [`statements`] what is done with them.

mod schema;
mod statements;

use super::sql::text;
use super::step::{Statement, Step, Steps};
use crate::random::Random;
use schema::{Maker, Reference, Table};
use std::collections::VecDeque;

/// Which cases these are: one of so many.
const SHARE: u64 = 3;
/// One of so many of these ends a server in its midst.
const RESTARTS: u64 = 12;

/// True of cases that are about foreign keys.
pub fn is_one(case: u64) -> bool {
    case % SHARE == 1
}

/// Definitions of a case's tables.
#[derive(Clone, Debug, Default)]
struct Schema {
    tables: Vec<Table>,
    references: Vec<Reference>,
}

/// Makes the steps of one case.
pub struct ForeignKeys {
    random: Random,
    maker: Maker,
    /// If the statement under way succeeds, and as it is.
    schema: Schema,
    before: Option<Schema>,
    queue: VecDeque<Step>,
    left: u64,
    restart_at: Option<u64>,
    in_transaction: bool,
    checks: bool,
    files: u32,
}

impl ForeignKeys {
    /// The case of this number; some end the server if `restarts`.
    pub fn new(seed: u64, case: u64, restarts: bool) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ case);
        random.bits();
        let left = random.between(25, 90);
        let ends = restarts && (case / SHARE) % RESTARTS == RESTARTS - 1;
        let mut cases = Self {
            maker: Maker::new(&mut random),
            restart_at: ends.then(|| random.below(left)),
            random,
            schema: Schema::default(),
            before: None,
            queue: VecDeque::new(),
            left,
            in_transaction: false,
            checks: true,
            files: 0,
        };
        cases.begin();
        cases
    }

    fn push(&mut self, statement: Statement) {
        self.queue.push_back(Step::Run(statement));
    }

    fn say(&mut self, sql: impl Into<String>) {
        self.push(Statement::exact(text(sql)));
    }

    /// Tables, parents of most before their children, and some rows.
    fn begin(&mut self) {
        let random = &mut self.random;
        let count = random.between(2, 5);
        let mut tables: Vec<Table> = (0..count).map(|_| self.maker.table(random)).collect();
        let references: Vec<Reference> = (0..random.between(1, count + 1))
            .map(|_| self.maker.reference(random, &tables))
            .collect();
        for reference in &references {
            if random.chance(90) {
                let key = self.maker.fresh("p");
                let mut columns = reference.parent_columns.clone();
                if random.chance(15) && !columns.iter().any(|it| it == "id") {
                    columns.push("id".to_owned());
                }
                let unique = random.chance(50);
                tables[reference.parent].keys.push((key, unique, columns));
            }
        }
        // Behind both tables; a table is there then, whatever becomes of its foreign keys.
        let (early, later): (Vec<Reference>, Vec<Reference>) = references
            .iter()
            .cloned()
            .partition(|it| it.parent <= it.child && random.chance(40));
        for (at, table) in tables.iter().enumerate() {
            let own: Vec<Reference> = early.iter().filter(|it| it.child == at).cloned().collect();
            self.queue
                .push_back(Step::Run(Statement::exact(table.definition(&own, &tables))));
        }
        for reference in &later {
            let child = &tables[reference.child].name;
            self.say(format!(
                "ALTER TABLE {child} ADD {}",
                reference.definition(&tables)
            ));
        }
        for table in &tables {
            let insert = statements::insert(&mut self.random, table);
            self.push(Statement::exact(insert));
        }
        self.schema = Schema { tables, references };
    }

    fn statement(&mut self) {
        match self.random.weighted(&[72, 12, 10, 3, 3]) {
            0 => self.change(),
            1 => self.alter(),
            2 => self.transaction(),
            3 => {
                self.checks = self.random.chance(60);
                let on = u64::from(self.checks);
                self.say(format!("SET foreign_key_checks = {on}"));
            }
            _ => self.create(),
        }
    }

    fn change(&mut self) {
        self.files += 1;
        let changes = statements::change(&mut self.random, &self.schema.tables, self.files);
        changes.into_iter().for_each(|each| self.push(each));
        if self.random.chance(50) {
            self.look_at_rows();
        }
    }

    fn alter(&mut self) {
        self.before = Some(self.schema.clone());
        let (random, maker) = (&mut self.random, &mut self.maker);
        let alter = statements::alter(random, maker, &mut self.schema, self.checks);
        self.push(Statement::exact(alter));
        self.in_transaction = false;
    }

    /// One table more, perhaps one that was dropped.
    fn create(&mut self) {
        if self.schema.tables.len() > 5 {
            return self.look_at_definitions();
        }
        self.before = Some(self.schema.clone());
        let table = self.maker.table(&mut self.random);
        let tables = &mut self.schema.tables;
        tables.push(table.clone());
        let mut own = self.maker.reference(&mut self.random, tables);
        own.child = tables.len() - 1;
        let definition = table.definition(&[own], tables);
        self.push(Statement::exact(definition));
        self.in_transaction = false;
    }

    fn transaction(&mut self) {
        let sql = match (self.in_transaction, self.random.below(6)) {
            (false, 0) => "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            (false, 1) => "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            (false, _) => {
                self.in_transaction = true;
                "START TRANSACTION"
            }
            (true, 0 | 1) => "SAVEPOINT s",
            (true, 2) => "ROLLBACK TO SAVEPOINT s",
            (true, end) => {
                self.in_transaction = false;
                if end == 3 { "COMMIT" } else { "ROLLBACK" }
            }
        };
        self.say(sql);
    }

    fn look_at_rows(&mut self) {
        for table in self.schema.tables.clone() {
            let select = format!("SELECT * FROM {}", table.name);
            self.push(Statement::any_order(text(select)));
        }
    }

    fn look_at_definitions(&mut self) {
        for table in self.schema.tables.clone() {
            self.say(format!("SHOW CREATE TABLE {}", table.name));
        }
        self.say(
            "SELECT constraint_name, table_name, column_name, ordinal_position, \
             position_in_unique_constraint, referenced_table_name, referenced_column_name \
             FROM information_schema.key_column_usage WHERE table_schema = DATABASE() \
             ORDER BY constraint_name, table_name, ordinal_position",
        );
        self.say(
            "SELECT constraint_name, match_option, update_rule, delete_rule, table_name, \
             referenced_table_name \
             FROM information_schema.referential_constraints \
             WHERE constraint_schema = DATABASE() ORDER BY constraint_name",
        );
    }

    /// Every table, whole and by each of its keys, and its definition.
    fn check_all(&mut self) {
        self.look_at_rows();
        for table in self.schema.tables.clone() {
            for (key, _, columns) in &table.keys {
                let (name, columns) = (&table.name, columns.join(", "));
                let select = format!("SELECT {columns} FROM {name} FORCE INDEX ({key})");
                self.push(Statement::any_order(text(select)));
            }
            self.say(format!("CHECK TABLE {} EXTENDED", table.name));
        }
        self.look_at_definitions();
    }
}

impl Steps for ForeignKeys {
    fn next(&mut self) -> Option<Step> {
        while self.queue.is_empty() && self.left > 0 {
            self.left -= 1;
            if self.restart_at == Some(self.left) {
                (self.in_transaction, self.checks) = (false, true);
                let kill = self.random.chance(60);
                self.queue
                    .push_back(if kill { Step::Kill } else { Step::Restart });
                self.check_all();
            } else if self.left == 0 {
                self.say("COMMIT");
                self.check_all();
            } else {
                self.statement();
            }
        }
        self.queue.pop_front()
    }

    fn observe(&mut self, succeeded: bool) {
        if let (Some(before), false) = (self.before.take(), succeeded) {
            self.schema = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seed: u64, case: u64) -> Vec<String> {
        let mut cases = ForeignKeys::new(seed, case, true);
        let mut steps = Vec::new();
        while let Some(step) = cases.next() {
            steps.push(match step {
                Step::Run(statement) => statement.sql.render(),
                Step::Restart => "-- restart".to_owned(),
                Step::Kill => "-- kill".to_owned(),
            });
            // Some fail, as in a server.
            cases.observe(steps.len() % 5 != 0);
        }
        steps
    }

    #[test]
    fn a_case_is_decided_by_its_seed_and_number() {
        for case in (0..90).filter(|case| is_one(*case)) {
            let first = steps(1, case);
            assert_eq!(first, steps(1, case));
            assert_ne!(first, steps(2, case));
        }
    }

    #[test]
    fn cases_have_everything() {
        let cases = (0..600).filter(|case| is_one(*case));
        let all: String = cases.flat_map(|case| steps(3, case)).collect();
        for what in [
            "FOREIGN KEY (id) REFERENCES",
            "ON DELETE CASCADE ON UPDATE SET NULL",
            "ON DELETE RESTRICT ON UPDATE NO ACTION",
            "ADD CONSTRAINT",
            "DROP FOREIGN KEY",
            "INSERT IGNORE",
            "REPLACE",
            "ON DUPLICATE KEY",
            "UPDATE IGNORE",
            "DELETE x, y FROM",
            "LOAD DATA",
            "STORED",
            "foreign_key_checks = 0",
            "ROLLBACK TO SAVEPOINT",
            "RENAME TABLE",
            "RENAME TO",
            "RENAME COLUMN",
            "MODIFY COLUMN",
            "DROP COLUMN",
            "TRUNCATE",
            "DROP TABLE",
            "OPTIMIZE",
            "-- kill",
            "-- restart",
        ] {
            assert!(all.contains(what), "no case has {what}");
        }
    }
}
