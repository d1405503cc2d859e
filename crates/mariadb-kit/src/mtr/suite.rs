//! Which suites there are, and the tests of each.

use super::named::names_engine;
use crate::tree::Tree;
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};

/// Suites that are compared unless others are asked for.
pub const USUAL: [&str; 4] = [
    "storage_engine",
    "storage_engine/trx",
    "storage_engine/parts",
    "engines/iuds",
];

/// A suite, or one test of it.
#[derive(Clone, Debug)]
pub struct Suite {
    /// As the test driver names it: `storage_engine/trx`.
    pub name: String,
    only: Option<String>,
}

/// How a suite learns which engine it tests.
pub enum Kind {
    /// Through the overlay's `define_engine.inc`.
    Overlay,
    /// Through `--default-storage-engine`.
    DefaultEngine,
    /// Its statements name InnoDB: those are rewritten, and only tests that have some are run.
    NamedEngine,
}

impl Suite {
    /// `SUITE` or `SUITE.TEST`.
    pub fn parse(text: &str) -> Self {
        let (name, only) = match text.split_once('.') {
            Some((name, test)) => (name, Some(test.to_owned())),
            None => (text, None),
        };
        let name = name.trim_end_matches('/').to_owned();
        Self { name, only }
    }

    /// How it learns which engine it tests.
    pub fn kind(&self) -> Kind {
        match self.top() {
            "storage_engine" => Kind::Overlay,
            "engines" => Kind::DefaultEngine,
            _ => Kind::NamedEngine,
        }
    }

    /// Its folder below `mysql-test`.
    pub fn folder(&self) -> PathBuf {
        match self.name.as_str() {
            "main" => "main".into(),
            name => Path::new("suite").join(name),
        }
    }

    /// The first part of its name: what is copied.
    pub fn top(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }

    /// As the driver prints it before the test's name.
    pub fn printed(&self) -> String {
        match self.kind() {
            Kind::Overlay => format!("{}-inkstone", self.name),
            Kind::DefaultEngine | Kind::NamedEngine => self.name.clone(),
        }
    }

    /// Where the recorded output of a test is, below `mysql-test`.
    pub fn recorded(&self, test: &str) -> PathBuf {
        match self.kind() {
            Kind::Overlay => format!("plugin/inkstone/{}/{test}.result", self.name).into(),
            // The suite "main" has tests and results in one folder.
            Kind::NamedEngine if self.name == "main" => format!("main/{test}.result").into(),
            Kind::DefaultEngine | Kind::NamedEngine => {
                self.folder().join(format!("r/{test}.result"))
            }
        }
    }

    /// Its tests, in order.
    pub fn tests(&self, tree: &Tree) -> Result<Vec<String>> {
        let folder = tree.share().join("mysql-test").join(self.folder());
        let folder = if folder.join("t").exists() {
            folder.join("t")
        } else {
            folder
        };
        let entries = std::fs::read_dir(&folder)
            .map_err(|_| format!("the test suite has no suite {:?}", self.name))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut tests: Vec<String> = names
            .filter_map(|name| name.to_str()?.strip_suffix(".test").map(str::to_owned))
            .filter(|test| self.only.as_ref().is_none_or(|only| only == test))
            .filter(|test| self.can_take(&folder.join(format!("{test}.test"))))
            .collect();
        tests.sort();
        if tests.is_empty() {
            Err(format!("the suite {:?} has no such test", self.name))
        } else {
            Ok(tests)
        }
    }
}

impl Suite {
    /// True if a test can be run for one engine and for another.
    fn can_take(&self, test: &Path) -> bool {
        match self.kind() {
            Kind::Overlay | Kind::DefaultEngine => true,
            Kind::NamedEngine => std::fs::read(test).is_ok_and(|text| names_engine(&text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Suite;

    #[test]
    fn a_suite_may_be_reduced_to_one_test() {
        let suite = Suite::parse("storage_engine/trx.xa");
        assert_eq!(suite.name, "storage_engine/trx");
        assert_eq!(suite.only.as_deref(), Some("xa"));
        assert_eq!(suite.top(), "storage_engine");
        assert_eq!(suite.printed(), "storage_engine/trx-inkstone");
    }
}
