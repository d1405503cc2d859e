//! Whatever is linked into the library may be linked into a program under GPLv2: MariaDB's plugin.

mod common;

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// Licences of which one suffices. Apache-2.0 alone does not go with GPLv2.
const FINE: &[&str] = &[
    "MIT",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Zlib",
    "ISC",
    "Unlicense",
    "0BSD",
];

#[test]
fn every_linked_crate_goes_with_gpl_2() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(common::root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let package = |id: &str| packages.iter().find(|p| p["id"] == id).unwrap();
    let ours = packages
        .iter()
        .find(|p| p["name"] == "inkstone-capi")
        .unwrap();
    let mut waiting = vec![ours["id"].as_str().unwrap()];
    let mut linked = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !linked.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|n| n["id"] == id).unwrap();
        for dependency in node["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                waiting.push(dependency["pkg"].as_str().unwrap());
            }
        }
    }
    assert!(linked.len() > 10, "{linked:?}");
    for id in linked {
        let (name, licence) = (&package(id)["name"], package(id)["license"].as_str());
        let licence = licence.unwrap_or_else(|| panic!("{name} names no licence"));
        let alternatives = licence.split(" OR ").flat_map(|part| part.split('/'));
        let is_fine = |part: &str| FINE.contains(&part.trim_matches(['(', ')', ' ']));
        let mut alternatives = alternatives.map(|part| part.split(" AND ").all(is_fine));
        assert!(alternatives.any(|fine| fine), "{name}: {licence}");
    }
}
