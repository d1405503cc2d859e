//! Counters of a database at two moments, and what lies between.

use crate::output::{ratio, rounded};
use inkstone::Database;
use inkstone_format::control::CONTROL_COPY_LEN;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Name and value of status counters.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    values: BTreeMap<String, u64>,
}

impl Counts {
    /// The counters now.
    pub fn of(db: &Database) -> Self {
        let values = db.counters().snapshot().into_iter();
        Self {
            values: values.map(|(name, n)| (name.to_owned(), n)).collect(),
        }
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let values = self.values.iter();
        Self {
            values: values
                .map(|(name, n)| (name.clone(), n.saturating_sub(before.get(name))))
                .collect(),
        }
    }

    /// One counter; 0 if there is none of this name.
    pub fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// The sum of some counters.
    pub fn sum(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.get(name)).sum()
    }

    /// Bytes written for each of so many operations, by class of file.
    pub fn bytes_written_for(&self, operations: u64) -> Value {
        let each = |bytes: u64| rounded(ratio(bytes, operations), 1);
        json!({
            "log": each(self.get("log_bytes_written")),
            "data": each(self.get("page_bytes_written")),
            "doublewrite": each(self.get("doublewrite_bytes")),
            "place_maps": each(self.get("place_map_bytes")),
            "control": each(self.get("checkpoints") * CONTROL_COPY_LEN as u64),
            "versions": each(self.get("version_bytes_spilled")),
        })
    }

    /// Syncs of all files.
    pub fn syncs(&self) -> u64 {
        self.sum(&["log_syncs", "data_syncs", "doublewrite_syncs"])
    }

    /// As `name=value name=value`: the inverse of [`Counts::parse`].
    pub fn to_line(&self) -> String {
        let pairs: Vec<String> = self
            .values
            .iter()
            .filter(|(_, n)| **n != 0)
            .map(|(name, n)| format!("{name}={n}"))
            .collect();
        pairs.join(" ")
    }

    /// Understands `name=value name=value`; what is neither is left out.
    pub fn parse(line: &str) -> Self {
        let pair = |text: &str| {
            let (name, n) = text.split_once('=')?;
            Some((name.to_owned(), n.parse().ok()?))
        };
        Self {
            values: line.split_whitespace().filter_map(pair).collect(),
        }
    }
}
