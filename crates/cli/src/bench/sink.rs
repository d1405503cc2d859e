//! Results as a table, or as JSON with one object a line.

use crate::output::{Output, TextTable, bytes, count};
use serde_json::{Map, Value};

/// One result: its fields in order.
#[derive(Clone, Debug, Default)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Begins with the workload's name.
    pub fn of(workload: &str) -> Self {
        Self::default().with("workload", workload)
    }

    /// Adds a field.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

/// Where the results of a workload go: with `--json` a line at once; a table at the end.
#[derive(Debug)]
pub struct Sink<'o> {
    output: &'o Output,
    columns: Vec<&'static str>,
    table: TextTable,
}

impl<'o> Sink<'o> {
    /// A sink whose table shows these fields.
    pub fn new(output: &'o Output, columns: &[&'static str]) -> Self {
        Self {
            output,
            columns: columns.to_vec(),
            table: TextTable::new(columns.iter().copied()),
        }
    }

    /// Takes a result.
    pub fn take(&mut self, fields: Fields) {
        let cells: Vec<String> = self
            .columns
            .iter()
            .map(|name| {
                fields
                    .0
                    .get(*name)
                    .map_or(String::new(), |v| shown(name, v))
            })
            .collect();
        self.table.row(cells);
        self.output.json(&Value::Object(fields.0));
    }

    /// Prints the table.
    pub fn finish(self) {
        self.table.print(self.output);
    }
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(b) => if *b { "yes" } else { "no" }.to_owned(),
        Value::Number(n) => match (n.as_u64(), n.as_f64()) {
            (Some(n), _) if name.ends_with("_bytes") => bytes(n),
            (Some(n), _) => count(n),
            (None, Some(f)) if f >= 1000.0 => count(f.round() as u64),
            _ => n.to_string(),
        },
        other => other.to_string(),
    }
}
