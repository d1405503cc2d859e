//! What goes wrong, and the exit code that it becomes.

use inkstone::Error;
use inkstone_bench::output::Output;
use serde_json::{Value, json};
use std::path::Path;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that cannot be.
    Usage(String),
    /// A check failed: a proof of the tour, or corruption that a check was to find.
    Check(String),
    /// All has been said already; only the exit code is left.
    Told(u8),
    /// A check found corruption: of each damaged table or file the first, at least one.
    Corrupt(Damage),
    /// The engine's error.
    Engine(Error),
}

/// What a check found damaged.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The first that was found.
    pub first: Error,
    /// In other tables and files.
    pub others: Vec<Error>,
}

/// Gathers damage while a check goes on.
#[derive(Debug, Default)]
pub struct Damages(Vec<Error>);

impl Damages {
    /// Notes damage; what is no damage is returned.
    pub fn note<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => return Ok(Some(value)),
            Err(Failure::Corrupt(damage)) => {
                self.push(damage.first);
                damage.others.into_iter().for_each(|error| self.push(error));
            }
            Err(Failure::Engine(error @ (Error::Corrupt { .. } | Error::NotADatabase { .. }))) => {
                self.push(error);
            }
            Err(other) => return Err(other),
        }
        Ok(None)
    }

    /// Notes damage, unless it is of a page of which some is noted.
    fn push(&mut self, error: Error) {
        let place = |error: &Error| match error {
            Error::Corrupt { file, page, .. } => Some((file.clone(), *page)),
            _ => None,
        };
        let new = place(&error);
        if new.is_none() || self.0.iter().all(|known| place(known) != new) {
            self.0.push(error);
        }
    }

    /// Fails if there was any.
    pub fn into_result(self) -> Result<()> {
        let mut all = self.0.into_iter();
        match all.next() {
            None => Ok(()),
            Some(first) => Err(Failure::Corrupt(Damage {
                first,
                others: all.collect(),
            })),
        }
    }
}

/// Result of a command or a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<inkstone_bench::Failure> for Failure {
    fn from(failure: inkstone_bench::Failure) -> Self {
        match failure {
            inkstone_bench::Failure::Usage(message) => Self::Usage(message),
            inkstone_bench::Failure::Check(message) => Self::Check(message),
            inkstone_bench::Failure::Engine(error) => Self::Engine(error),
        }
    }
}

impl Failure {
    /// The operating system refused something that this program asked for itself.
    pub fn io(action: &str, path: &Path, source: std::io::Error) -> Self {
        inkstone_bench::Failure::io(action, path, source).into()
    }

    /// Prints it: to stderr, and with `--json` as an object to stdout.
    pub fn print(&self, output: &Output) {
        eprintln!("inkstone: {}", self.message());
        output.json(&self.to_json());
    }

    /// As documented in `--help`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Told(code) => *code,
            Self::Check(_) | Self::Corrupt(_) => 1,
            Self::Usage(_) | Self::Engine(Error::InvalidOption { .. }) => 2,
            Self::Engine(_) => 3,
        }
    }

    /// For people.
    pub fn message(&self) -> String {
        match self {
            Self::Usage(message) | Self::Check(message) => message.clone(),
            Self::Told(_) => String::new(),
            Self::Engine(error) => error.to_string(),
            Self::Corrupt(Damage { first, others }) if others.is_empty() => first.to_string(),
            Self::Corrupt(damage) => {
                let mut text = format!("damage in {} places:", damage.others.len() + 1);
                for error in std::iter::once(&damage.first).chain(&damage.others) {
                    text += &format!("\n  {error}");
                }
                text
            }
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let mut error = json!({ "kind": self.kind(), "message": self.message() });
        let (engine, others) = match self {
            Self::Engine(error) => (Some(error), &[][..]),
            Self::Corrupt(damage) => (Some(&damage.first), &damage.others[..]),
            _ => (None, &[][..]),
        };
        if !others.is_empty() {
            let others = others.iter().map(ToString::to_string);
            error["others"] = json!(others.collect::<Vec<_>>());
        }
        if let Some(Error::Corrupt {
            file, page, offset, ..
        }) = engine
        {
            error["file"] = json!(file.display().to_string());
            error["page"] = json!(page.map(|page| page.to_string()));
            error["offset"] = json!(offset);
        }
        json!({ "error": error, "exit_code": self.exit_code() })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Usage(_) | Self::Engine(Error::InvalidOption { .. }) => "usage",
            Self::Check(_) | Self::Told(_) => "check",
            Self::Engine(Error::Io { .. }) => "io",
            Self::Corrupt(_) | Self::Engine(Error::Corrupt { .. }) => "corrupt",
            Self::Engine(Error::InUse { .. }) => "in_use",
            Self::Engine(Error::NotADatabase { .. }) => "not_a_database",
            Self::Engine(Error::NewerFormat { .. }) => "newer_format",
            Self::Engine(Error::DiskFull { .. }) => "disk_full",
            Self::Engine(Error::Poisoned(_)) => "poisoned",
            Self::Engine(_) => "engine",
        }
    }
}
