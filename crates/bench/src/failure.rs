//! What goes wrong.

use inkstone::Error;
use std::path::Path;
use std::sync::Arc;

/// Why something was not measured.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that cannot be.
    Usage(String),
    /// What was measured is not what should have happened.
    Check(String),
    /// The engine's error.
    Engine(Error),
}

/// Result of a workload or a part of one.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Failure {
    /// The operating system refused something that was asked of it directly.
    pub fn io(action: &str, path: &Path, source: std::io::Error) -> Self {
        Self::Engine(Error::Io {
            action: action.to_owned(),
            path: path.to_owned(),
            source: Arc::new(source),
        })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(message) | Self::Check(message) => formatter.write_str(message),
            Self::Engine(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Failure {}
