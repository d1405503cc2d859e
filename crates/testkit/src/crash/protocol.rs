//! What children say on stdout: a line for each fact, written by one call, so that a killed child
//! leaves at most its last line incomplete.

use super::plan::TxnId;
use std::io::Write;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// It begins to open the database.
    Opening,
    /// The database is open.
    Open,
    /// The first rows are there, durably.
    Loaded,
    /// Something was acknowledged.
    Acknowledged(Ack),
    /// The checker found a transaction.
    Found(TxnId),
    /// The checker found a prepared transaction.
    FoundPrepared(TxnId),
    /// The checker found a table of the schema: name, then trees as `name=rows`.
    FoundTable(String),
    /// A checker, or a reader beside the workers, found something wrong.
    Violation(String),
    /// The checker has said everything, and what it decided is durable.
    Complete,
    /// Something was seen so often.
    Mark(String, u64),
    /// The child ends with an error.
    Error(String),
}

/// What a worker says when a call has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Commit.
    Committed(TxnId),
    /// Rollback, asked for or because of a conflict.
    RolledBack(TxnId),
    /// Prepare.
    Prepared(TxnId),
    /// Commit of a prepared transaction.
    DecidedCommit(TxnId),
    /// Rollback of a prepared transaction.
    DecidedRollback(TxnId),
    /// So many DDL steps, counted from the beginning of the run.
    Steps(u64),
}

impl Line {
    /// Writes the line. If it is not read any more the parent has died: then this process ends too.
    pub fn say(&self) {
        let text = self.to_text();
        let mut out = std::io::stdout().lock();
        let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if said.is_err() {
            std::process::exit(3);
        }
    }

    fn to_text(&self) -> String {
        let id = |kind, id: &TxnId| format!("{kind} {} {}\n", id.client, id.sequence);
        let text = |kind, text: &str| format!("{kind} {}\n", text.replace('\n', " | "));
        match self {
            Line::Opening => "B\n".to_owned(),
            Line::Open => "O\n".to_owned(),
            Line::Loaded => "L\n".to_owned(),
            Line::Complete => "Z\n".to_owned(),
            Line::Acknowledged(Ack::Committed(it)) => id("C", it),
            Line::Acknowledged(Ack::RolledBack(it)) => id("R", it),
            Line::Acknowledged(Ack::Prepared(it)) => id("P", it),
            Line::Acknowledged(Ack::DecidedCommit(it)) => id("K", it),
            Line::Acknowledged(Ack::DecidedRollback(it)) => id("U", it),
            Line::Acknowledged(Ack::Steps(steps)) => format!("D {steps}\n"),
            Line::Found(it) => id("T", it),
            Line::FoundPrepared(it) => id("X", it),
            Line::FoundTable(table) => text("N", table),
            Line::Violation(violation) => text("V", violation),
            Line::Mark(name, count) => format!("M {count} {name}\n"),
            Line::Error(error) => text("E", error),
        }
    }

    /// The inverse of [`Line::say`], without the line's end.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let id = || {
            let (client, sequence) = rest.split_once(' ')?;
            Some(TxnId {
                client: client.parse().ok()?,
                sequence: sequence.parse().ok()?,
            })
        };
        Some(match kind {
            "B" => Line::Opening,
            "O" => Line::Open,
            "L" => Line::Loaded,
            "Z" => Line::Complete,
            "C" => Line::Acknowledged(Ack::Committed(id()?)),
            "R" => Line::Acknowledged(Ack::RolledBack(id()?)),
            "P" => Line::Acknowledged(Ack::Prepared(id()?)),
            "K" => Line::Acknowledged(Ack::DecidedCommit(id()?)),
            "U" => Line::Acknowledged(Ack::DecidedRollback(id()?)),
            "D" => Line::Acknowledged(Ack::Steps(rest.parse().ok()?)),
            "T" => Line::Found(id()?),
            "X" => Line::FoundPrepared(id()?),
            "N" => Line::FoundTable(rest.to_owned()),
            "V" => Line::Violation(rest.to_owned()),
            "M" => {
                let (count, name) = rest.split_once(' ')?;
                Line::Mark(name.to_owned(), count.parse().ok()?)
            }
            "E" => Line::Error(rest.to_owned()),
            _ => return None,
        })
    }
}
