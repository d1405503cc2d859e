//! The engine takes threads, locks, atomics, clocks and randomness from `crates/sync` only. What
//! came from elsewhere would not be under the control of a scheduler that repeats a run from its
//! seed.

use std::path::{Path, PathBuf};

/// Crates that only the seam may name.
const CRATES: &[&str] = &[
    "parking_lot",
    "parking_lot_core",
    "crossbeam_utils::sync",
    "shuttle",
];

/// What of `std` only the seam may name.
const STD: &[&str] = &[
    "Barrier",
    "Condvar",
    "HashMap",
    "HashSet",
    "Instant",
    "LazyLock",
    "Mutex",
    "Once",
    "OnceLock",
    "RandomState",
    "RwLock",
    "SystemTime",
    "atomic",
    "hint",
    "mpsc",
    "thread",
];

/// Files, and what they may name nevertheless: counting decides nothing.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("counters/mod.rs", "std: atomic"),
    ("counters/durations/mod.rs", "std: atomic"),
    ("counters/durations/slow.rs", "std: atomic"),
    // Memory is read ahead; what is read there is thrown away.
    ("recovery/index.rs", "std: hint"),
    // The switch of a deliberate bug is set before anything runs.
    ("mutants.rs", "std: atomic"),
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

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// What a source names that it should not.
fn named(source: &str) -> Vec<String> {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let code: Vec<String> = source.lines().map(code).collect();
    let code = code.join(" ");
    let mut named = Vec::new();
    for name in CRATES {
        if code.contains(&format!("{name}::")) {
            named.push(name.to_string());
        }
    }
    for root in ["std::", "core::"] {
        for rest in code.split(root).skip(1) {
            // A path, or the whole tree of a `use`.
            let path = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let end = match path {
                Some(end) if rest[end..].starts_with('{') => rest.find(';'),
                end => end,
            };
            let wrong = words(&rest[..end.unwrap_or(rest.len())]).filter(|word| STD.contains(word));
            named.extend(wrong.map(|word| format!("std: {word}")));
        }
    }
    named
}

#[test]
fn only_the_seam_names_threads_locks_and_clocks() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&base, &mut all);
    assert!(all.len() > 50, "{} files", all.len());
    let mut wrong = Vec::new();
    for path in all {
        let relative = path.strip_prefix(&base).unwrap().display().to_string();
        for name in named(&std::fs::read_to_string(&path).unwrap()) {
            if !EXCEPTIONS.contains(&(&relative, &name)) {
                wrong.push(format!("{relative} names {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "take these from crate::sync: {wrong:#?}");
}

#[test]
fn the_check_finds_what_it_is_for() {
    for bad in [
        "use parking_lot::Mutex;",
        "use std::sync::{Arc, Mutex};",
        "use std::time::{Duration, Instant};",
        "let now = std::time::Instant::now();",
        "use std::{\n    sync::Arc,\n    thread,\n};",
        "core::hint::spin_loop();",
        "let set = std::collections::HashSet::new();",
    ] {
        assert!(!named(bad).is_empty(), "{bad}");
    }
    for good in [
        "use std::sync::{Arc, Weak};\nuse crate::sync::{Mutex, thread};",
        "use std::time::Duration; // not Instant",
        "fn wait(lock: &Mutex<()>) -> std::io::Result<()> { f::<std::fmt::Error>(Instant::now()) }",
        "use std::collections::{BTreeMap, VecDeque};",
    ] {
        assert_eq!(named(good), Vec::<String>::new(), "{good}");
    }
}
