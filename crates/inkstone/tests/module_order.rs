//! The engine's modules use only those before them, as ARCHITECTURE.md and the design have it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const ORDER: &[&str] = &[
    "debug", "mutants", "error", "paranoid", "trace", "poison", "options", "counters", "aside",
    "control", "log", "buffer", "store", "unlogged", "storage", "mtr", "space", "btree", "mvcc",
    "sort", "locks", "txn", "rows", "catalog", "recovery", "database", "salvage", "typed",
];

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.is_dir() {
            true if name != "tests" => files(&path, found),
            false if name.ends_with(".rs") && !name.contains("test") => found.push(path),
            _ => {}
        }
    }
}

fn place(module: &str) -> Option<usize> {
    ORDER.iter().position(|&m| m == module)
}

/// The modules that a source names after `crate::`.
fn used(source: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for line in source.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for rest in code.split("crate::").skip(1) {
            let name: String = rest
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            used.insert(name);
        }
    }
    used
}

#[test]
fn modules_use_only_those_before_them() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&base, &mut all);
    let mut wrong = BTreeSet::new();
    for path in all {
        let relative = path.strip_prefix(&base).unwrap().display().to_string();
        let first = relative.split('/').next().unwrap().trim_end_matches(".rs");
        if first == "lib" {
            continue;
        }
        let here = place(first).unwrap_or_else(|| panic!("{first} is not in the order"));
        for module in used(&std::fs::read_to_string(&path).unwrap()) {
            if place(&module).is_some_and(|there| there > here) {
                wrong.insert((relative.clone(), module));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new());
}

#[test]
fn architecture_md_lists_the_modules_in_this_order() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let document = std::fs::read_to_string(path).unwrap();
    let start = document.find("| module | subject |").unwrap();
    let table = &document[start..];
    let table = &table[..table.find("\n\n").unwrap()];
    let listed: Vec<&str> = table
        .lines()
        .skip(2)
        .flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(listed, ORDER);
}
