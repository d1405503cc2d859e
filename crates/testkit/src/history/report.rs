//! Anomalies as text: what the transactions concerned did.

use super::graph::Graph;
use super::{Action, History, Key, Op, Outcome, Range, ScanKind, State, Txn, Value};
use std::fmt::{self, Write};

/// Elements of a value that are shown.
const SHOWN: usize = 6;

fn value(value: &Value) -> String {
    let from = value.len().saturating_sub(SHOWN);
    let elements: Vec<_> = value[from..].iter().map(u64::to_string).collect();
    let more = if from > 0 { "... " } else { "" };
    format!("[{more}{}]", elements.join(" "))
}

fn op(op: &Op) -> String {
    match &op.action {
        Action::Read {
            key,
            value: seen,
            locking,
        } => {
            let how = if *locking { "locks" } else { "reads" };
            format!("{how} {key} = {}", value(seen))
        }
        Action::Scan { range, found, kind } => {
            let how = match kind {
                ScanKind::Plain => "scans",
                ScanKind::Locking => "scans and locks",
                ScanKind::SkipLocked => "scans and locks what is free of",
            };
            let what = match range {
                Range::Lists(low, high) => format!("lists {low} to {high}"),
                Range::Rows(range) => format!("rows {range}"),
            };
            let rows: Vec<_> = found.iter().map(|(key, seen)| row(key, seen)).collect();
            format!("{how} {what} = {{{}}}", rows.join(", "))
        }
        Action::Write { key, value: made } => format!("makes {key} {}", value(made)),
        Action::Savepoint => "savepoint".to_owned(),
        Action::RollBack => "rolls back to the savepoint".to_owned(),
    }
}

fn row(key: &Key, seen: &Value) -> String {
    match key {
        Key::Row { id, .. } => id.to_string(),
        Key::List(number) | Key::Register(number) => format!("{number}: {}", value(seen)),
    }
}

fn txn(number: usize, txn: &Txn) -> String {
    let mut text = format!(
        "\n  T{number}, client {}, {:?}, from {}: ",
        txn.client, txn.level, txn.begin
    );
    let _ = match &txn.outcome {
        Outcome::Committed { at, durability } => {
            write!(text, "committed at {at} ({durability:?})")
        }
        Outcome::Aborted(why) => write!(text, "rolled back ({why})"),
        Outcome::Unknown => write!(text, "died in its commit"),
    };
    for (at, step) in txn.ops.iter().enumerate() {
        let _ = write!(text, "\n    {at:>3} @{} {}", step.at, op(step));
    }
    text
}

/// A life as text: all that its transactions did, and what was there before and after.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = |state: &State| {
            let keys: Vec<_> = state.iter().map(|(key, seen)| row(key, seen)).collect();
            keys.join(", ")
        };
        write!(f, "at first: {}", state(&self.initial))?;
        for (number, did) in self.txns.iter().enumerate() {
            f.write_str(&txn(number, did))?;
        }
        writeln!(f, "\nat the end, {:?}: {}", self.end, state(&self.last))
    }
}

/// Appends what the transactions of some nodes did.
pub(super) fn add_transactions(
    text: &mut String,
    nodes: &[usize],
    history: &History,
    graph: &Graph,
) {
    let mut txns: Vec<usize> = nodes.iter().filter_map(|&node| graph.txn(node)).collect();
    txns.sort_unstable();
    txns.dedup();
    for number in txns {
        text.push_str(&txn(number, &history.txns[number]));
    }
}
