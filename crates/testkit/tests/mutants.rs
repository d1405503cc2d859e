//! The table of deliberate bugs and what the documents say of it.

use inkstone::internals::mutants::{self, Machine};
use std::path::Path;

#[test]
fn names_are_unique_and_found() {
    for description in mutants::ALL {
        let found = mutants::find(description.name).unwrap();
        assert_eq!(found.mutant, description.mutant);
    }
    let error = mutants::find("none").unwrap_err();
    assert!(error.contains("log-unsynced"), "{error}");
}

#[test]
fn testing_md_lists_every_mutant_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing.md");
    let document = std::fs::read_to_string(path).unwrap();
    let listed: Vec<_> = document
        .lines()
        .filter(|line| line.starts_with("| `") && line.ends_with(" s |"))
        .collect();
    let rows = mutants::ALL.iter().map(|d| {
        let machine = match d.machine {
            Machine::Profile(name) => format!("{} --profile {name}", d.machine.program()),
            Machine::FailedSync(files) => format!("failed-sync --failing {files}"),
            Machine::SmallLog => format!("{} --small-log", d.machine.program()),
            Machine::Faults(kind) => format!("faults, kind `{kind}`"),
            Machine::Replica(names) => {
                format!("{}, `{names}`, its replica", d.machine.program())
            }
            Machine::Sessions(names) => format!("{}, `{names}`", d.machine.program()),
            machine => machine.program().to_owned(),
        };
        format!(
            "| `{}` | {} | {machine} | {} s |",
            d.name, d.bug, d.seconds_max
        )
    });
    assert_eq!(listed, rows.collect::<Vec<_>>());
}
