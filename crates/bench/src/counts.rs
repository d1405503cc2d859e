//! Counters of a database at two moments, and what lies between.

use inkstone::Database;
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
