//! Many runs: counts, the table of anomalies by level, the line that repeats a failing run.

use super::check::{Class, forbidden};
use super::life::{Plan, run};
use crate::driver::Marks;
use inkstone::{Database, Isolation};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts of what was seen.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By name.
    pub marks: Marks,
    /// How many lives showed an anomaly, by the lives' level.
    pub shown: BTreeMap<(&'static str, Class), u64>,
}

/// A level's name; `None`: transactions of all levels at once.
pub fn level_name(level: Option<Isolation>) -> &'static str {
    match level {
        Some(Isolation::ReadUncommitted) => "read-uncommitted",
        Some(Isolation::ReadCommitted) => "read-committed",
        Some(Isolation::LockingRepeatableRead) => "locking-reads",
        Some(Isolation::RepeatableRead) => "repeatable-read",
        Some(Isolation::Serializable) => "serializable",
        None => "mixed",
    }
}

/// The level of a name.
pub fn level_of(name: &str) -> Result<Option<Isolation>, String> {
    let found = Plan::LEVELS
        .into_iter()
        .find(|&level| level_name(level) == name);
    let names = || Plan::LEVELS.map(level_name).join(", ");
    found.ok_or_else(|| format!("there is no level {name}; there are {}", names()))
}

/// What a level lets through, and a useful campaign must have seen.
const SOMETIMES: &[(&str, Class)] = &[
    ("read-committed", Class::FuzzyRead),
    ("read-committed", Class::LostUpdate),
    ("read-committed", Class::GSingle),
    ("read-committed", Class::G2Item),
    ("read-committed", Class::G2),
    ("repeatable-read", Class::G2Item),
    ("repeatable-read", Class::G2),
    ("mixed", Class::LostUpdate),
    ("mixed", Class::G2),
];

/// Other things that it must have seen.
const SOMETIMES_SEEN: &[&str] = &[
    "power losses",
    "kills",
    "orderly restarts",
    "deadlocks",
    "lock timeouts",
    "write conflicts",
    "statements interrupted",
    "merges",
    "range deletes",
    "bulk_deletes",
    "transactions that died in their commit",
    "commits lost legally",
    "buffer_evictions",
    "leaf_splits",
    "rows_purged",
    "version_segments_retired",
];

impl Tally {
    /// Adds all counts of another.
    pub fn merge(&mut self, other: &Tally) {
        self.marks.merge(&other.marks);
        for (&what, count) in &other.shown {
            *self.shown.entry(what).or_default() += count;
        }
    }

    /// Adds the counters of a database that is about to end.
    pub(super) fn note_counters(&mut self, db: &Database) {
        let kept = SOMETIMES_SEEN.iter().copied();
        let kept: Vec<_> = kept
            .chain(["version_segments_spilled", "lock_waits"])
            .collect();
        for (name, count) in db.counters().snapshot() {
            if kept.contains(&name) {
                self.marks.add(name, count);
            }
        }
    }

    /// What should have been seen and was not: the load is too weak, or the check.
    pub fn never_seen(&self) -> Vec<String> {
        let marks = SOMETIMES_SEEN
            .iter()
            .filter(|name| self.marks.get(name) == 0);
        let marks = marks.map(|name| (*name).to_owned());
        self.never_shown().into_iter().chain(marks).collect()
    }

    /// Anomalies that their levels let through and no life showed, of those that are frequent.
    pub fn never_shown(&self) -> Vec<String> {
        let classes = SOMETIMES
            .iter()
            .filter(|what| !self.shown.contains_key(what));
        classes
            .map(|(level, class)| format!("{} at {level}", class.name()))
            .collect()
    }

    /// Lives that showed each anomaly, as a table; `-` where the level forbids it and none did.
    pub fn table(&self) -> String {
        let mut text = format!("{:<20}", "lives that showed");
        for level in Plan::LEVELS {
            let _ = write!(text, "{:>17}", level_name(level));
        }
        for &class in Class::ALL {
            let _ = write!(text, "\n{:<20}", class.name());
            for level in Plan::LEVELS {
                let count = self.shown.get(&(level_name(level), class)).copied();
                let cell = match (count.unwrap_or_default(), forbidden(level, class)) {
                    (0, true) => "-".to_owned(),
                    (count, true) => format!("{count} WRONG"),
                    (count, false) => count.to_string(),
                };
                let _ = write!(text, "{cell:>17}");
            }
        }
        text
    }

    /// Counts, and lives by level and anomaly, for programs.
    pub fn json(&self) -> serde_json::Value {
        let mut shown = serde_json::Map::new();
        for (&(level, class), &count) in &self.shown {
            let level = shown.entry(level).or_insert_with(|| serde_json::json!({}));
            level[class.name()] = count.into();
        }
        serde_json::json!({ "counts": self.marks.0, "lives": shown, "never_seen": self.never_seen() })
    }
}

/// The command that repeats a plan.
pub fn repeat_line(plan: &Plan) -> String {
    let level = level_name(plan.level);
    let (seed, clients) = (plan.seed, plan.clients);
    format!("cargo xtask histories --seed {seed} --runs 1 --level {level} --clients {clients}")
}

/// Runs a plan, watched; an error says how to repeat it.
pub fn run_plan(plan: Plan) -> (Tally, Result<(), String>) {
    let line = repeat_line(&plan);
    let (tally, result) = crate::campaign::watched(&line, || run(plan));
    (
        tally,
        result.map_err(|text| format!("{text}\n  repeat: {line}")),
    )
}
