//! Each numbered promise of a module names what executes it, and that exists.
//!
//! A promise ends with ``Checked by `Type::function`.``, a function that executes it, or
//! ``Tested by `name`, `other`.``, tests of it, or ``Tested by the simulator (`mutant`).``, a
//! mutant that breaks it. Two of them may follow each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What such a section was called once. The one name makes it found.
const OLD_HEADINGS: &[&str] = &[
    "Invariants",
    "What it promises",
    "What must hold",
    "What they promise",
    "What this crate promises",
    "What this module promises",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Sources with their paths below the repository.
fn sources(directories: &[&str]) -> Vec<(String, String)> {
    let root = root();
    let mut paths = Vec::new();
    for directory in directories {
        rust_files(&root.join(directory), &mut paths);
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// An item of a numbered list in the head of a module, its lines joined.
struct Item {
    heading: String,
    line: usize,
    number: String,
    text: String,
}

fn items(source: &str) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut heading = String::new();
    let mut is_open = false;
    for (at, line) in source.lines().enumerate() {
        let Some(text) = line.trim_start().strip_prefix("//!") else {
            (heading, is_open) = (String::new(), false);
            continue;
        };
        let text = text.strip_prefix(' ').unwrap_or(text);
        let (number, rest) = text.split_once(". ").unwrap_or_default();
        if let Some(name) = text.strip_prefix('#') {
            heading = name.trim_start_matches('#').trim().to_owned();
            is_open = false;
        } else if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            items.push(Item {
                heading: heading.clone(),
                line: at + 1,
                number: number.to_owned(),
                text: rest.trim().to_owned(),
            });
            is_open = true;
        } else if text.is_empty() {
            // An indented paragraph may follow.
        } else if !text.starts_with(' ') {
            is_open = false;
        } else if let Some(item) = items.last_mut().filter(|_| is_open) {
            item.text += " ";
            item.text += text.trim();
        }
    }
    items
}

/// What a promise says that it is executed by.
#[derive(Debug, Default, PartialEq)]
struct Named {
    checks: Vec<String>,
    tests: Vec<String>,
    mutants: Vec<String>,
}

fn in_backquotes(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// What the last sentences of a promise name; `None` if they name nothing.
fn named(promise: &str) -> Option<Named> {
    let forms = ["Checked by `", "Tested by the simulator (`", "Tested by `"];
    let mut named = Named::default();
    let mut rest = promise.trim_end();
    let mut found = false;
    while let Some((at, form)) = forms
        .iter()
        .filter_map(|form| Some((rest.rfind(form)?, *form)))
        .max()
    {
        // Only what stands at the end, and is a list of names.
        let sentence = &rest[at..];
        let is_list = sentence
            .split('`')
            .skip(2)
            .step_by(2)
            .all(|between| matches!(between, ", " | "." | ")."));
        if !is_list || !sentence.ends_with('.') {
            break;
        }
        let list = match form {
            "Checked by `" => &mut named.checks,
            "Tested by `" => &mut named.tests,
            _ => &mut named.mutants,
        };
        list.extend(in_backquotes(sentence));
        found = true;
        rest = rest[..at].trim_end();
    }
    found.then_some(named)
}

/// What there is to be named.
#[derive(Default)]
struct Known {
    /// Functions that check something, with their type and their module's names.
    checks: BTreeSet<String>,
    tests: BTreeSet<String>,
    mutants: BTreeSet<String>,
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| {
        matches!(word, "pub" | "const" | "unsafe" | "async" | "in")
            || word.starts_with("pub(")
            || word.ends_with(')')
    });
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (is_head && end > 0).then_some(&after[..end])
}

/// The type that an `impl` is of, without its path and parameters.
fn type_of_impl(line: &str) -> Option<String> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        rest = &rest[rest.find("> ")? + 1..];
    }
    let named = rest.rsplit(" for ").next()?;
    // `Check for HashMap<TreeKey, TreeLocks>` is named after the type that it is of.
    let name: String = named
        .trim_start()
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    Some(name)
}

impl Known {
    fn learn(&mut self, path: &str, source: &str) {
        let mut owner = None;
        let mut is_test = false;
        let mut in_suite = false;
        let lines: Vec<&str> = source.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim();
            if line.starts_with('}') {
                owner = None;
            } else if line.starts_with("impl") {
                owner = type_of_impl(line);
            }
            match code {
                "#[test]" => is_test = true,
                "conformance!(" => in_suite = true,
                ");" => in_suite = false,
                _ if in_suite => _ = self.tests.insert(code.trim_end_matches(',').to_owned()),
                _ => {}
            }
            let Some(name) = function_name(line) else {
                continue;
            };
            if std::mem::take(&mut is_test) {
                self.tests.insert(name.to_owned());
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            let end = format!("{}}}", &line[..indent]);
            let is_one_line = line.trim_end().ends_with('}');
            let rest = &lines[at..if is_one_line { at + 1 } else { lines.len() }];
            let body = rest.iter().take_while(|line| **line != end);
            let words = ["invariant!", "paranoid!", "assert", "Err(", "Error::"];
            if body
                .map(|line| line.split("//").next().unwrap_or_default())
                .any(|line| words.iter().any(|word| line.contains(word)))
            {
                self.checks.insert(name.to_owned());
                if let Some(owner) = &owner {
                    self.checks.insert(format!("{owner}::{name}"));
                }
                let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
                let module = module.rsplit('/').next().unwrap();
                self.checks.insert(format!("{module}::{name}"));
            }
        }
    }

    /// What is wrong with the promises of a source.
    fn judge(&self, path: &str, source: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for item in items(source) {
            let place = format!("{path}:{}: promise {}", item.line, item.number);
            if OLD_HEADINGS.contains(&item.heading.as_str()) {
                wrong.push(format!(
                    "{place}: \"# {}\" is not \"# Promises\"",
                    item.heading
                ));
            }
            if item.heading != "Promises" {
                continue;
            }
            let Some(named) = named(&item.text) else {
                wrong.push(format!("{place} names no check and no test at its end"));
                continue;
            };
            for (names, known, kind) in [
                (&named.checks, &self.checks, "check"),
                (&named.tests, &self.tests, "test"),
                (&named.mutants, &self.mutants, "mutant"),
            ] {
                for name in names.iter().filter(|name| !known.contains(*name)) {
                    wrong.push(format!("{place}: there is no {kind} `{name}`"));
                }
            }
        }
        wrong
    }
}

/// The names in the table of mutants: `Variant, "name", Machine, ...`.
fn mutants(source: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (variant, rest) = line.trim().split_once(", \"")?;
        let is_row = variant.chars().all(char::is_alphanumeric);
        let name = rest.split('"').next()?;
        is_row.then(|| name.to_owned())
    };
    source.lines().filter_map(name).collect()
}

const ENGINE: [&str; 3] = ["crates/inkstone/src", "crates/io/src", "crates/sync/src"];

fn known() -> Known {
    let tests = [
        "crates/inkstone/tests",
        "crates/io/tests",
        "crates/testkit/tests",
    ];
    let mut known = Known::default();
    for (path, source) in sources(&ENGINE) {
        known.learn(&path, &source);
    }
    // All but this file, whose example has a test.
    let others = sources(&tests).into_iter();
    for (path, source) in others.filter(|(path, _)| !path.ends_with("/promises.rs")) {
        let mut only_tests = Known::default();
        only_tests.learn(&path, &source);
        known.tests.append(&mut only_tests.tests);
    }
    let table = root().join("crates/inkstone/src/mutants.rs");
    known.mutants = mutants(&std::fs::read_to_string(table).unwrap());
    known
}

#[test]
fn each_promise_names_a_check_or_a_test_that_exists() {
    let known = known();
    assert!(known.mutants.len() > 30, "{:?}", known.mutants);
    let mut wrong = Vec::new();
    let mut promises = 0;
    for (path, source) in sources(&ENGINE) {
        promises += items(&source)
            .iter()
            .filter(|item| item.heading == "Promises")
            .count();
        wrong.append(&mut known.judge(&path, &source));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(promises > 100, "{promises} promises were found");
}

const EXAMPLE: &str = r#"
//! A module.
//!
//! # Promises
//!
//! 1. It checks. Checked by `Type::check`.
//! 2. It tests, in words that take more than
//!    one line. Checked by `example::check`, `errs`. Tested by `a_test`,
//!    `a_case`.
//! 3. Each machine tests it:
//!    - it does.
//!
//!    It is said here. Tested by the simulator (`a-mutant`).
//! 4. It says nothing.
//! 5. Tested by `a_test`, which it says too early.
//! 6. It names others. Checked by `Type::other`, `empty`. Tested by `no_test`, `check`.
//! 7. It means another type. Checked by `Other::check`.
//! 8. It means another machine. Tested by the simulator (`no-mutant`).
//!
//! # Not promised
//!
//! 1. This.

impl Check for Type {
    fn check(&self) {
        paranoid!(self.is_right(), "wrong");
    }

    fn other(&self) {
        // paranoid!(self.is_right(), "wrong");
    }

    fn empty(&self) {}

    fn errs(&self) -> Result<()> {
        Err(Error::Closed)
    }
}

#[test]
fn a_test() {}

conformance!(
    a_case,
);
"#;

#[test]
fn what_is_missing_is_found() {
    let mut known = Known::default();
    known.learn("example.rs", EXAMPLE);
    known.mutants = mutants("    Bad, \"a-mutant\", Sim, 60,\n        \"it is bad\";");
    let wrong = known.judge("example.rs", EXAMPLE);
    let expected = [
        "example.rs:14: promise 4 names no check and no test at its end",
        "example.rs:15: promise 5 names no check and no test at its end",
        "example.rs:16: promise 6: there is no check `Type::other`",
        "example.rs:16: promise 6: there is no check `empty`",
        "example.rs:16: promise 6: there is no test `no_test`",
        "example.rs:16: promise 6: there is no test `check`",
        "example.rs:17: promise 7: there is no check `Other::check`",
        "example.rs:18: promise 8: there is no mutant `no-mutant`",
    ];
    assert_eq!(wrong, expected);
}

#[test]
fn old_headings_are_found() {
    let known = Known::default();
    for heading in OLD_HEADINGS {
        let head = format!("//! # {heading}\n//! 1. It holds.\n");
        let wrong = known.judge("example.rs", &head);
        assert_eq!(
            wrong,
            [format!(
                "example.rs:2: promise 1: \"# {heading}\" is not \"# Promises\""
            )]
        );
        assert!(
            known
                .judge("example.rs", &format!("//! # {heading}\n"))
                .is_empty()
        );
    }
}
