//! Columns and keys of the tables of a case.

use super::stage::Stage;
use crate::client::Cell;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;

/// The tables by name.
#[derive(Clone, Debug, Default)]
pub struct Schema(BTreeMap<String, Table>);

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<String>,
    pub indexes: Vec<Index>,
}

#[derive(Clone, Debug)]
pub struct Index {
    pub name: String,
    pub unique: bool,
    pub columns: Vec<String>,
}

const COLUMNS: &str = "SELECT table_name, column_name FROM information_schema.columns \
    WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position";
/// The clustered one first: PRIMARY, or the first unique one.
const INDEXES: &str = "SELECT table_name, index_name, non_unique, column_name \
    FROM information_schema.statistics WHERE table_schema = DATABASE() \
    ORDER BY table_name, index_name <> 'PRIMARY', non_unique, index_name, seq_in_index";

impl Schema {
    /// What is there now.
    pub fn read(stage: &mut Stage) -> Result<Self> {
        let mut tables = BTreeMap::<String, Table>::new();
        for row in stage.ask(COLUMNS)?.rows {
            let [table, column] = [0, 1].map(|at| text(&row[at]));
            tables.entry(table).or_default().columns.push(column);
        }
        for row in stage.ask(INDEXES)?.rows {
            let [table, name, non_unique, column] = [0, 1, 2, 3].map(|at| text(&row[at]));
            let indexes = &mut tables.entry(table).or_default().indexes;
            match indexes.last_mut() {
                Some(last) if last.name == name => last.columns.push(column),
                _ => indexes.push(Index {
                    name,
                    unique: non_unique == "0",
                    columns: vec![column],
                }),
            }
        }
        Ok(Self(tables))
    }

    pub fn table(&self, name: &str) -> Option<&Table> {
        self.0.get(name)
    }
}

impl<const N: usize> From<[(String, Table); N]> for Schema {
    fn from(tables: [(String, Table); N]) -> Self {
        Self(tables.into())
    }
}

impl Table {
    pub fn index(&self, name: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| index.name == name)
    }

    /// The one that has the rows.
    pub fn clustered(&self) -> Option<&Index> {
        self.indexes.first()
    }

    /// The first index whose first column one of these terms begins with.
    pub fn led_by_one_of(&self, terms: &[String]) -> Option<&Index> {
        let leads = |index: &&Index| {
            let first = format!("{} ", index.columns[0]);
            terms.iter().any(|term| term.starts_with(&first))
        };
        self.indexes.iter().find(leads)
    }

    /// The columns of an index's records: its own, and those of the clustered index.
    pub fn record(&self, name: &str) -> Option<Vec<&String>> {
        let mut columns: Vec<&String> = self.index(name)?.columns.iter().collect();
        for column in self.clustered().iter().flat_map(|index| &index.columns) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        Some(columns)
    }
}

fn text(cell: &Cell) -> String {
    String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned()
}
