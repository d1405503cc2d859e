//! Prose of this repository: comments of the sources, and documents. Its lines are at most 100
//! characters long, and it has none of the words that the house does not use.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Characters in a line of prose, at most.
const WIDTH: usize = 100;

/// Words that stand for a person where a thing is meant: the thing has a name.
const PERSONS: &[&str] = &[
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "nobody",
    "somebody",
    "someone",
    "who",
    "whoever",
    "whom",
    "whomever",
];

/// Folders and files whose words are not ours to choose: what MariaDB's own tests print, licences,
/// notes as they were written on their day, and changes as they were announced.
const AS_IT_IS: &[&str] = &[
    "mariadb/mtr/",
    "mariadb/COPYING",
    "LICENSE",
    "docs/notes/",
    "CHANGELOG.md",
    // Has the words.
    "crates/testkit/tests/prose.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of the files under version control whose names end so.
fn files(endings: &[&str]) -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    assert!(output.status.success(), "git ls-files: {}", output.status);
    let names = String::from_utf8(output.stdout).expect("names of files are UTF-8");
    let ends_so = |name: &&str| endings.iter().any(|ending| name.ends_with(ending));
    let found: Vec<String> = names.lines().filter(ends_so).map(str::to_owned).collect();
    let there = |name: &String| root().join(name).is_file();
    found.into_iter().filter(there).collect()
}

/// A line of prose: its number, itself with what is around it, and the words.
struct Line {
    number: usize,
    whole: String,
    words: String,
}

/// The comments of a source, outside of examples. `block`: the language has `/* .. */`.
fn comments(source: &str, block: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    let (mut in_block, mut in_example) = (false, false);
    for (at, line) in source.lines().enumerate() {
        let text = line.trim_start();
        let begins = block && text.starts_with("/*");
        let comment = match text.strip_prefix("//") {
            Some(rest) if !in_block => Some(rest.trim_start_matches(['/', '!'])),
            _ if in_block || begins => Some(text.trim_start_matches(['/', '*'])),
            _ => None,
        };
        in_block = (in_block || begins) && !text.contains("*/");
        let Some(words) = comment.map(str::trim) else {
            in_example = false;
            // The width of code is the formatter's.
            if let Some((_, words)) = line.split_once(" // ") {
                lines.push(Line {
                    number: at + 1,
                    whole: words.to_owned(),
                    words: words.to_owned(),
                });
            }
            continue;
        };
        let fence = words.starts_with("```");
        if !in_example && !fence {
            lines.push(Line {
                number: at + 1,
                whole: line.to_owned(),
                words: words.to_owned(),
            });
        }
        in_example ^= fence;
    }
    lines
}

/// The lines of a document outside of examples.
fn paragraphs(document: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut in_example = false;
    for (at, line) in document.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        if !in_example && !fence {
            lines.push(Line {
                number: at + 1,
                whole: line.to_owned(),
                words: line.trim().to_owned(),
            });
        }
        in_example ^= fence;
    }
    lines
}

fn prose() -> impl Iterator<Item = (String, Vec<Line>)> {
    let endings = [".rs", ".cc", ".h", ".c", ".md"];
    let ours = |name: &String| !AS_IT_IS.iter().any(|start| name.starts_with(start));
    files(&endings).into_iter().filter(ours).map(|name| {
        let text = std::fs::read_to_string(root().join(&name)).expect("a source is UTF-8");
        let lines = if name.ends_with(".md") {
            paragraphs(&text)
        } else {
            comments(&text, !name.ends_with(".rs"))
        };
        (name, lines)
    })
}

/// Whether a line cannot be broken: a row of a table, an indented example, or one long word.
fn is_whole(line: &Line) -> bool {
    let text = line.whole.trim_start().trim_start_matches(['/', '!', '*']);
    let example = |text: &str| text.starts_with("     ") || text.starts_with("\t");
    line.words.starts_with('|')
        || example(text)
        || line.whole.starts_with("    ") && line.whole.trim() == line.words
        || line.words.starts_with("----")
        || line
            .words
            .split('`')
            .step_by(2)
            .all(|text| !text.trim().contains(' '))
}

#[test]
fn lines_of_prose_are_not_too_long() {
    let mut long = Vec::new();
    for (name, lines) in prose() {
        for line in lines {
            if line.whole.chars().count() > WIDTH && !is_whole(&line) {
                long.push(format!("{name}:{}: {}", line.number, line.words));
            }
        }
    }
    assert!(
        long.is_empty(),
        "{} lines of prose are longer than {WIDTH} characters:\n{}",
        long.len(),
        long.join("\n")
    );
}

#[test]
fn things_are_called_by_their_names() {
    let mut found = Vec::new();
    for (name, lines) in prose() {
        for line in lines {
            let words = line.words.to_lowercase();
            let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.any(|word| PERSONS.contains(&word)) {
                found.push(format!("{name}:{}: {}", line.number, line.words));
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} lines name a person, and mean a thing:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn prose_is_found_where_it_is() {
    let source = "/// A word.\nfn f() {} // Behind.\n/// ```\n/// who\n/// ```\n// End.";
    let words: Vec<_> = comments(source, false)
        .into_iter()
        .map(|line| line.words)
        .collect();
    assert_eq!(words, ["A word.", "Behind.", "End."]);
    let source = "/* One\n   two */\nint who;\n";
    let words: Vec<_> = comments(source, true)
        .into_iter()
        .map(|line| line.words)
        .collect();
    assert_eq!(words, ["One", "two */"]);
    let document = "# Title\n```sh\nwho\n```\nText.";
    let words: Vec<_> = paragraphs(document)
        .into_iter()
        .map(|line| line.words)
        .collect();
    assert_eq!(words, ["# Title", "Text."]);
}
