//! A case of several sessions as text: what is there first, and which session says what, in which
//! order.
//!
//! ```text
//! == a name
//! # why
//! setup: CREATE TABLE t (id INT PRIMARY KEY) ENGINE=<ENGINE>
//! 1: BEGIN
//! 2: INSERT INTO t VALUES (1)
//! 2: KILL QUERY <1>
//! ```

use crate::pair::Format;
use inkstone_testkit::build::Result;

/// Stands for the engine's name, which is also the name of an XA transaction.
pub const ENGINE: &str = "<ENGINE>";
/// First line of a script whose deleted rows purge may take.
const PURGED: &str = "purged";
/// The line that says how the script is logged.
const FORMAT: &str = "log: ";
/// What is written with the project.
const FILES: [&str; 7] = [
    include_str!("scripts/hermitage.txt"),
    include_str!("scripts/foreign_keys.txt"),
    include_str!("scripts/locks.txt"),
    include_str!("scripts/auto_increment.txt"),
    include_str!("scripts/others.txt"),
    include_str!("scripts/replica.txt"),
    include_str!("scripts/tables.txt"),
];

/// A case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub name: String,
    /// Statements of a session of its own, before the others begin.
    pub setup: Vec<String>,
    pub steps: Vec<Step>,
    /// Purge is not held back: what is deleted is soon gone, or is not.
    pub purged: bool,
    /// Of the binary log; by the seed, if the script does not say.
    pub format: Option<Format>,
}

/// Stands for the number of a session's connection.
pub fn connection(session: usize) -> String {
    format!("<{session}>")
}

/// A statement of one of the sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Counted from 1.
    pub session: usize,
    pub statement: String,
}

impl Script {
    /// How many sessions it has.
    pub fn sessions(&self) -> usize {
        let numbers = self.steps.iter().map(|step| step.session);
        numbers.max().unwrap_or(0)
    }

    /// What ends whatever a session has open.
    pub fn last_words(&self, end: &'static str) -> Vec<&'static str> {
        let says = |words: &str| {
            self.steps
                .iter()
                .any(|step| step.statement.starts_with(words))
        };
        let roll_back = "XA ROLLBACK '<ENGINE>'";
        let mut all = Vec::new();
        if says("XA ") {
            all.extend(["XA END '<ENGINE>'", roll_back]);
        }
        if says("LOCK ") || says("FLUSH ") {
            all.push("UNLOCK TABLES");
        }
        all.push(end);
        if says("XA ") {
            // One of a killed session: refused where a transaction of another kind is open.
            all.push(roll_back);
        }
        all
    }

    /// As text that [`parse`] reads.
    pub fn render(&self) -> String {
        let mut text = format!("== {}\n", self.name);
        if self.purged {
            text += &format!("{PURGED}\n");
        }
        if let Some(format) = self.format {
            text += &format!("{FORMAT}{}\n", format.name());
        }
        for statement in &self.setup {
            text += &format!("setup: {statement}\n");
        }
        for Step { session, statement } in &self.steps {
            text += &format!("{session}: {statement}\n");
        }
        text
    }
}

/// The scripts that are written with the project.
pub fn written() -> Result<Vec<Script>> {
    let scripts = FILES.iter().map(|text| parse(text));
    Ok(scripts.collect::<Result<Vec<_>>>()?.concat())
}

/// Reads scripts.
pub fn parse(text: &str) -> Result<Vec<Script>> {
    let mut scripts: Vec<Script> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            scripts.push(Script {
                name: name.to_owned(),
                ..Script::default()
            });
            continue;
        }
        let wrong = || {
            format!(
                "line {}: neither `setup: SQL` nor `N: SQL`: {line}",
                number + 1
            )
        };
        let script = scripts.last_mut().ok_or_else(wrong)?;
        if line == PURGED {
            script.purged = true;
            continue;
        }
        if let Some(name) = line.strip_prefix(FORMAT) {
            let format = Format::ALL.into_iter().find(|format| format.name() == name);
            script.format = Some(format.ok_or_else(wrong)?);
            continue;
        }
        let (speaker, statement) = line.split_once(": ").ok_or_else(wrong)?;
        let statement = statement.to_owned();
        match speaker {
            "setup" => script.setup.push(statement),
            _ => {
                let session = speaker.parse().ok().filter(|number| *number > 0);
                let session = session.ok_or_else(wrong)?;
                script.steps.push(Step { session, statement });
            }
        }
    }
    Ok(scripts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_printed_as_it_is() {
        let scripts = written().unwrap();
        assert!(scripts.len() > 20);
        for script in scripts {
            assert!(script.sessions() > 0, "{}", script.name);
            assert_eq!(parse(&script.render()).unwrap(), [script]);
        }
        let with_format = "== a\nlog: MIXED\n1: SELECT 1\n";
        assert_eq!(parse(with_format).unwrap()[0].render(), with_format);
        assert!(parse("== a\nlog: BOTH\n").is_err(), "no such format");
        assert!(parse("1: SELECT 1").is_err(), "no name before it");
        assert!(parse("== a\n0: SELECT 1").is_err(), "no session");
    }
}
