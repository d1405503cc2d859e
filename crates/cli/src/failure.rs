//! What goes wrong, and the exit code that it becomes.

use inkstone::Error;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that cannot be.
    Usage(String),
    /// A check failed: a proof of the tour, or corruption that a check was to find.
    Check(String),
    /// All has been said already; only the exit code is left.
    Told(u8),
    /// A check found corruption: an [`Error::Corrupt`].
    Corrupt(Error),
    /// The engine's error.
    Engine(Error),
}

/// Result of a command or a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    /// The operating system refused something that this program asked for itself.
    pub fn io(action: &str, path: &Path, source: std::io::Error) -> Self {
        Self::Engine(Error::Io {
            action: action.to_owned(),
            path: path.to_owned(),
            source: Arc::new(source),
        })
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
            Self::Corrupt(error) | Self::Engine(error) => error.to_string(),
        }
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let mut error = json!({ "kind": self.kind(), "message": self.message() });
        if let Self::Corrupt(corrupt) | Self::Engine(corrupt) = self
            && let Error::Corrupt {
                file, page, offset, ..
            } = corrupt
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
