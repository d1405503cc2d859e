//! Results as a table, or as JSON with one object a line; and as a chart.

use crate::chart::{self, Chart};
use crate::failure::{Failure, Result};
use crate::output::{Output, TextTable, bytes, count};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

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

    /// A field as a number, if it is one.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// A field as it is shown to people; empty if there is none.
    pub fn text(&self, name: &str) -> String {
        self.0.get(name).map_or(String::new(), |v| shown(name, v))
    }
}

/// Where the results of a workload go: with `--json` a line at once; a table and a chart at the
/// end.
#[derive(Debug)]
pub struct Sink<'o> {
    output: &'o Output,
    columns: Vec<&'static str>,
    results: Vec<Fields>,
    plot: Option<PathBuf>,
}

impl<'o> Sink<'o> {
    /// A sink whose table shows these fields. Refuses a file for the chart that cannot be written
    /// now, rather than after minutes of work.
    pub fn new(output: &'o Output, plot: Option<&Path>, columns: &[&'static str]) -> Result<Self> {
        if let Some(path) = plot {
            std::fs::File::create(path).map_err(|e| Failure::io("create", path, e))?;
        }
        Ok(Self {
            output,
            columns: columns.to_vec(),
            results: Vec::new(),
            plot: plot.map(Path::to_owned),
        })
    }

    /// Takes a result.
    pub fn take(&mut self, fields: Fields) {
        self.output.json(&Value::Object(fields.0.clone()));
        self.results.push(fields);
    }

    /// Prints the table, and writes the chart.
    pub fn finish(self, chart: &Chart) -> Result<()> {
        let mut table = TextTable::new(self.columns.iter().copied());
        for fields in &self.results {
            table.row(self.columns.iter().map(|name| fields.text(name)));
        }
        table.print(self.output);
        match &self.plot {
            Some(path) => chart::draw(chart, &self.results, path),
            None => Ok(()),
        }
    }
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(b) => if *b { "yes" } else { "no" }.to_owned(),
        Value::Number(n) => match (n.as_u64(), n.as_f64()) {
            (Some(n), _) if name.ends_with("_bytes") => bytes(n),
            (Some(n), _) if name.ends_with("_size") => bytes(n),
            (Some(n), _) => count(n),
            (None, Some(f)) if f >= 1000.0 => count(f.round() as u64),
            (None, Some(f)) if f.fract() == 0.0 => format!("{f:.0}"),
            _ => n.to_string(),
        },
        // Bytes by class of file, as in `log=300 data=17,000`.
        Value::Object(parts) => {
            let parts = parts
                .iter()
                .map(|(name, v)| format!("{name}={}", shown(name, v)));
            parts.collect::<Vec<_>>().join(" ")
        }
        Value::Array(_) => value.to_string(),
    }
}
