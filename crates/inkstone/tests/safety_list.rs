//! SAFETY.md lists every file with unsafe code, and no other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether the word `unsafe` stands in the code, outside of line comments and strings.
fn has_unsafe(source: &str) -> bool {
    let word = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let code: String = code.split('"').step_by(2).collect();
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| word == "unsafe")
    };
    source.lines().any(word)
}

#[test]
fn safety_md_lists_the_files_with_unsafe_code() {
    let root = root();
    let mut files = Vec::new();
    for part in ["crates", "xtask"].map(|part| root.join(part)) {
        if part.is_dir() {
            rust_files(&part, &mut files);
        }
    }
    let unsafe_files: BTreeSet<String> = files
        .iter()
        .filter(|path| has_unsafe(&std::fs::read_to_string(path).unwrap()))
        .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
        .collect();
    let document = std::fs::read_to_string(root.join("SAFETY.md")).unwrap();
    let listed: BTreeSet<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    let missing: Vec<_> = unsafe_files.difference(&listed).collect();
    let stale: Vec<_> = listed.difference(&unsafe_files).collect();
    assert!(missing.is_empty(), "SAFETY.md does not list {missing:?}");
    assert!(
        stale.is_empty(),
        "SAFETY.md lists {stale:?}, which have none"
    );
    assert!(unsafe_files.len() > 5, "{unsafe_files:?}");
}

#[test]
fn the_word_is_found_in_code_only() {
    assert!(has_unsafe("    let x = unsafe { *p };"));
    assert!(!has_unsafe(
        "// unsafe\n#![forbid(unsafe_code)]\nlet x = \"unsafe\";"
    ));
}

#[test]
fn the_formats_have_no_unsafe_code() {
    let lib = std::fs::read_to_string(root().join("crates/format/src/lib.rs")).unwrap();
    assert!(lib.contains("#![forbid(unsafe_code)]"));
}
