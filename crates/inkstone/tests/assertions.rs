//! How many assertions a function there are, by room: `paranoid!`, `invariant!` and the like, over
//! what is no test. The aim is 0.3 (CONTRIBUTING.md, "How to add a promise"); no room falls below
//! what it has reached.
//!
//! `cargo test -p inkstone --test assertions -- --nocapture` prints the table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a room has reached, in assertions for a hundred functions.
const REACHED: &[(&str, usize)] = &[
    ("btree", 26),
    ("buffer", 28),
    ("catalog", 30),
    ("control", 18),
    ("counters", 9),
    ("database", 27),
    ("locks", 30),
    ("log", 33),
    ("mtr", 30),
    ("mvcc", 28),
    ("options", 9),
    ("poison", 21),
    ("recovery", 28),
    ("rows", 41),
    ("salvage", 28),
    ("sort", 36),
    ("space", 34),
    ("store", 32),
    ("txn", 32),
];

const ASSERTIONS: &[&str] = &[
    "paranoid!",
    "invariant!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "unreachable!",
];

/// What stands before `fn`.
const QUALIFIERS: &[&str] = &["const", "unsafe", "extern", "\"C\""];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    assertions: usize,
    functions: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.assertions += other.assertions;
        self.functions += other.functions;
    }

    fn in_a_hundred(self) -> usize {
        100 * self.assertions / self.functions.max(1)
    }
}

fn begins_function(line: &str) -> bool {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        None => line,
        Some(rest) => match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((_, rest)) => rest,
            None => rest,
        },
    };
    let mut words = line.split_whitespace();
    let word = words.find(|word| !QUALIFIERS.contains(word));
    word == Some("fn") && words.next().is_some()
}

fn asserts(line: &str) -> bool {
    let at = |name: &&str| line.find(*name).map(|at| (at, at + name.len()));
    ASSERTIONS.iter().filter_map(at).any(|(start, end)| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        !line[..start].ends_with(is_word) && line[end..].starts_with(['(', '{'])
    })
}

/// Counts what stands before the tests of a source.
fn count(source: &str) -> Count {
    let tests = source.match_indices("#[cfg(test)]\nmod ");
    let block = tests.map(|(at, _)| at).find(|&at| {
        let mut lines = source[at..].lines().skip(1);
        lines.next().is_some_and(|line| line.ends_with('{'))
    });
    let code = &source[..block.unwrap_or(source.len())];
    let mut found = Count::default();
    for line in code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        found.functions += usize::from(begins_function(line));
        found.assertions += usize::from(asserts(line));
    }
    found
}

fn visit(directory: &Path, see: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            visit(&path, see);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            see(&path);
        }
    }
}

/// The rooms of the engine: the modules of its top.
fn rooms() -> BTreeMap<String, Count> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut rooms: BTreeMap<String, Count> = BTreeMap::new();
    visit(&root, &mut |path| {
        let below = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let room = below.split('/').next().unwrap().trim_end_matches(".rs");
        let source = std::fs::read_to_string(path).unwrap();
        rooms
            .entry(room.to_owned())
            .or_default()
            .add(count(&source));
    });
    rooms
}

#[test]
fn no_room_loses_its_assertions() {
    let rooms = rooms();
    let mut all = Count::default();
    for (room, count) in &rooms {
        all.add(*count);
        println!("{room:12} {count:?}: {} in a hundred", count.in_a_hundred());
    }
    println!("all          {all:?}: {} in a hundred", all.in_a_hundred());
    assert!(all.functions > 1500, "{all:?}");
    for (room, reached) in REACHED {
        let found = rooms.get(*room).copied().unwrap_or_default();
        assert!(
            found.in_a_hundred() >= *reached,
            "{room} has {} assertions for a hundred functions, and had {reached}",
            found.in_a_hundred()
        );
    }
}

#[test]
fn functions_and_assertions_are_counted() {
    let source = "\
pub(crate) fn one() {
    paranoid!(true, \"\");
    // paranoid!(false)
}
const extern \"C\" fn two() {}
    fn three() { crate::invariant!(true); my_assert!(x) }
    let f: fn() = one;
#[cfg(test)]
mod tests;
fn four() {}
#[cfg(test)]
mod tests {
    fn five() { assert!(true) }
}
";
    let expected = Count {
        assertions: 2,
        functions: 4,
    };
    assert_eq!(count(source), expected);
}
