//! `cargo xtask public-api`: what a program can name of the library, compared with the listing that
//! is kept beside it.
//!
//! The listing is made from rustdoc's JSON, which only an unstable option writes: hence
//! `RUSTC_BOOTSTRAP`. What the features for programs add is in it. A line that goes or changes may
//! break a program: Cargo's rules ask for a version that programs do not take by themselves.

use inkstone_testkit::build::{Result, root};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Compares the public items of the library with `crates/inkstone/public-api.txt`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the listing anew. Refused where a program that uses the released version may not
    /// compile any more, and the version in Cargo.toml does not say so
    #[arg(long)]
    write: bool,
}

/// What the compiler finds out by itself of every type, but `Send` and `Sync`, on which programs
/// rely.
const UNPROMISED: &[&str] = &[
    "core::marker::Freeze for",
    "core::marker::Unpin for",
    "core::marker::UnsafeUnpin for",
    "core::panic::unwind_safe::UnwindSafe for",
    "core::panic::unwind_safe::RefUnwindSafe for",
];

/// Stands in the first line of a listing that no released version has.
const NOT_RELEASED: &str = "not released";

fn listing_path() -> PathBuf {
    root().join("crates/inkstone/public-api.txt")
}

/// The public items, a line each, in the order of their paths.
fn listing() -> Result<Vec<String>> {
    let target = root().join("target/public-api");
    let mut command = Command::new(std::env::var("CARGO").unwrap_or("cargo".to_owned()));
    command
        .current_dir(root())
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["rustdoc", "--quiet", "-p", "inkstone", "--lib"])
        .args(["--features", "derive,serde"])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json"]);
    let status = command
        .status()
        .map_err(|error| format!("cargo rustdoc cannot be run: {error}"))?;
    if !status.success() {
        return Err("the library cannot be documented (see above)".into());
    }
    let json = target.join("doc/inkstone.json");
    let items = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .build()
        .map_err(|error| {
            format!(
                "{}: {error}; this toolchain's rustdoc and the crate `public-api` (xtask/Cargo.toml) \
                 are of different times: update the older one",
                json.display()
            )
        })?;
    let promised = |line: &String| {
        !UNPROMISED
            .iter()
            .any(|unpromised| line.contains(unpromised))
    };
    Ok(items
        .items()
        .map(|i| i.to_string())
        .filter(promised)
        .collect())
}

/// Whether a program that asks for `old` takes `new` by itself.
fn is_compatible(old: &str, new: &str) -> bool {
    let leading = |version: &str| {
        let mut numbers: Vec<u64> = version.split('.').flat_map(str::parse).collect();
        numbers.truncate(if version.starts_with("0.") { 2 } else { 1 });
        numbers
    };
    leading(old) == leading(new)
}

/// Compares, or writes.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = listing_path();
    let version = env!("CARGO_PKG_VERSION");
    let now = listing()?;
    let noted = std::fs::read_to_string(&path).unwrap_or_default();
    let (head, noted) = noted.split_once('\n').unwrap_or_default();
    let before: BTreeSet<&str> = noted.lines().collect();
    let after: BTreeSet<&str> = now.iter().map(String::as_str).collect();
    let gone: Vec<_> = before.difference(&after).collect();
    let new: Vec<_> = after.difference(&before).collect();
    for line in &gone {
        println!("- {line}");
    }
    for line in &new {
        println!("+ {line}");
    }
    let released = head
        .strip_prefix("# inkstone ")
        .filter(|rest| !rest.contains(NOT_RELEASED));
    if !gone.is_empty() && released.is_some_and(|old| is_compatible(old, version)) {
        println!(
            "{} items of the released version {} are gone or have changed: the version in Cargo.toml, \
             {version}, is one that programs take by themselves",
            gone.len(),
            released.unwrap_or_default()
        );
        return Ok(ExitCode::FAILURE);
    }
    if arguments.write {
        let head = match released {
            Some(old) if old == version => format!("# inkstone {version}"),
            _ => format!("# inkstone {version}, {NOT_RELEASED}"),
        };
        std::fs::write(&path, format!("{head}\n{}\n", now.join("\n")))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        println!("{}: {} items", path.display(), now.len());
        return Ok(ExitCode::SUCCESS);
    }
    if gone.is_empty() && new.is_empty() {
        println!("{} items, as {} has them", now.len(), path.display());
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} items are gone or have changed, {} are new: `cargo xtask public-api --write` notes what is \
         meant, and CHANGELOG.md says why",
        gone.len(),
        new.len()
    );
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::is_compatible;

    #[test]
    fn cargo_s_rules() {
        assert!(is_compatible("0.1.0", "0.1.9"));
        assert!(!is_compatible("0.1.9", "0.2.0"));
        assert!(is_compatible("1.1.9", "1.2.0"));
        assert!(!is_compatible("1.9.0", "2.0.0"));
        assert!(!is_compatible("0.9.0", "1.0.0"));
    }
}
