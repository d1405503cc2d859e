//! What the DDL statements do: a function of the run's seed and of how many there were before.

use super::plan::filler;
use crate::Rng;
use inkstone::internals::catalog::CLUSTERED;
use inkstone::{Database, Durability, Isolation, Result};
use std::collections::BTreeMap;

/// Tables at a time.
const TABLES_MAX: usize = 4;

/// Trees of a table, the clustered one first: name and number of rows.
pub type Trees = Vec<(String, u64)>;

/// The tables that a number of steps leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    seed: u64,
    /// Steps so far.
    pub steps: u64,
    /// Tables by name.
    pub tables: BTreeMap<String, Trees>,
}

/// A DDL statement, or filling a table.
#[derive(Clone, Debug)]
pub enum Step {
    /// Creates a table with secondary trees.
    Create(String, Vec<&'static str>),
    /// Fills a table and its trees with so many rows, in one transaction.
    Fill(String, u64),
    /// Adds an empty tree.
    AddTree(String, &'static str),
    /// Renames a table.
    Rename(String, String),
    /// Drops a table.
    Drop(String),
}

impl Schema {
    /// The tables after so many steps.
    pub fn after(seed: u64, steps: u64) -> Self {
        let mut schema = Self {
            seed: seed ^ 0xdd1,
            steps: 0,
            tables: BTreeMap::new(),
        };
        for _ in 0..steps {
            let step = schema.next_step();
            schema.apply(&step);
        }
        schema
    }

    /// What comes next.
    pub fn next_step(&self) -> Step {
        let mut rng = Rng::new(self.seed ^ self.steps << 16);
        let name = format!("x{}", self.steps);
        let secondary = rng.pick(&[&[][..], &["one"], &["one", "two"]]).to_vec();
        if self.tables.is_empty() {
            return Step::Create(name, secondary);
        }
        let at = rng.below(self.tables.len() as u64) as usize;
        let (old, trees) = self
            .tables
            .iter()
            .nth(at)
            .map_or((&name, &[][..]), |it| (it.0, it.1));
        let empty = trees.iter().all(|(_, rows)| *rows == 0);
        match rng.below(10) {
            0..=3 if self.tables.len() < TABLES_MAX => Step::Create(name, secondary),
            0..=3 => Step::Drop(old.clone()),
            4..=6 if empty => Step::Fill(old.clone(), 1 + rng.skewed(3000)),
            7 if trees.iter().all(|(tree, _)| tree != "late") => Step::AddTree(old.clone(), "late"),
            8 => Step::Drop(old.clone()),
            _ => Step::Rename(old.clone(), name),
        }
    }

    /// Makes a step happen here.
    pub fn apply(&mut self, step: &Step) {
        self.steps += 1;
        match step {
            Step::Create(name, secondary) => {
                let names = std::iter::once(&CLUSTERED).chain(secondary);
                let trees = names.map(|tree| ((*tree).to_owned(), 0)).collect();
                self.tables.insert(name.clone(), trees);
            }
            Step::Fill(name, rows) => {
                for tree in self.tables.get_mut(name).into_iter().flatten() {
                    tree.1 = *rows;
                }
            }
            Step::AddTree(name, tree) => {
                if let Some(trees) = self.tables.get_mut(name) {
                    trees.push(((*tree).to_owned(), 0));
                }
            }
            Step::Rename(from, to) => {
                if let Some(trees) = self.tables.remove(from) {
                    self.tables.insert(to.clone(), trees);
                }
            }
            Step::Drop(name) => {
                self.tables.remove(name);
            }
        }
    }
}

/// A row that [`Step::Fill`] writes, the same in every table.
pub fn row(tree: usize, number: u64) -> (Vec<u8>, Vec<u8>) {
    let key = [tree as u64, number].map(u64::to_be_bytes).concat();
    (key, filler(number ^ (tree as u64) << 32, number % 300))
}

impl Step {
    /// Makes it happen in a database, durably.
    pub fn run(&self, db: &Database) -> Result<()> {
        match self {
            Step::Create(name, secondary) => db.create_table(name, secondary).map(drop),
            Step::AddTree(name, tree) => db.create_tree(name, tree).map(drop),
            Step::Rename(from, to) => db.rename_table(from, to),
            Step::Drop(name) => db.drop_table_at_once(name),
            Step::Fill(name, rows) => {
                let table = db.table(name)?;
                let transaction = db.begin(Isolation::ReadCommitted)?;
                for (at, tree) in table.trees().iter().enumerate() {
                    transaction.insert_many(tree, (0..*rows).map(|n| row(at, n)))?;
                }
                transaction.commit_with(Durability::Sync)
            }
        }
    }
}
