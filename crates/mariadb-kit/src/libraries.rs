//! Shared libraries and Perl modules that the server's programs need and the machine lacks.

use super::apt::{Apt, output};
use super::packages::unpack_all;
use super::tree::Tree;
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Programs that are run here.
const PROGRAMS: [&str; 8] = [
    "mariadb",
    "mariadb-admin",
    "mariadb-binlog",
    "mariadb-check",
    "mariadb-dump",
    "mariadb-test",
    "my_print_defaults",
    "sysbench",
];

/// Fetches what is missing, until nothing is.
pub fn complete(apt: &Apt, tree: &Tree, downloads: &Path, unpacked: &Path) -> Result<()> {
    if let Some(packages) = missing_perl()? {
        fetch(apt, &packages, downloads, unpacked)?;
    }
    let mut fetched = BTreeSet::new();
    loop {
        let missing = missing(tree)?;
        let packages: BTreeSet<String> = missing.iter().map(|name| package_of(name)).collect();
        if packages.is_empty() {
            return Ok(());
        }
        if packages.is_subset(&fetched) {
            let names: Vec<&str> = missing.iter().map(String::as_str).collect();
            return Err(format!(
                "the server needs libraries that no package brought: {}",
                names.join(" ")
            ));
        }
        let new: Vec<String> = packages.difference(&fetched).cloned().collect();
        fetch(apt, &new, downloads, unpacked)?;
        fetched.extend(packages);
    }
}

fn fetch(apt: &Apt, packages: &[String], downloads: &Path, unpacked: &Path) -> Result<()> {
    eprintln!("fetching what this machine lacks: {}", packages.join(" "));
    apt.download(downloads, packages)?;
    unpack_all(downloads, unpacked)
}

/// Names of libraries that the dynamic linker does not find.
fn missing(tree: &Tree) -> Result<BTreeSet<String>> {
    let mut programs = vec![tree.server()];
    programs.extend(PROGRAMS.map(|name| tree.program(name)));
    let printed = output(tree.command(Path::new("ldd")).args(programs))?;
    let lines = printed.lines().filter(|line| line.contains("not found"));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    Ok(names.map(str::to_owned).collect())
}

/// The package that has a library, by Debian's rule: `libedit.so.2` is in `libedit2`, and with a
/// digit before the version in `libkrb5-3`.
fn package_of(library: &str) -> String {
    let exceptions = [("libcrypto.", "libssl"), ("liblber-", "libldap-")];
    let (name, version) = library.split_once(".so.").unwrap_or((library, ""));
    let mut name = name.replace('_', "-").to_lowercase();
    for (of_library, of_package) in exceptions {
        if let Some(rest) = format!("{name}.").strip_prefix(of_library) {
            name = format!("{of_package}{}", rest.trim_end_matches('.'));
        }
    }
    let digit = name.ends_with(|last: char| last.is_ascii_digit());
    format!("{name}{}{version}", if digit { "-" } else { "" })
}

/// The packages of Perl's modules, where the machine has `perl-base` only: the test driver needs
/// more.
fn missing_perl() -> Result<Option<Vec<String>>> {
    let modules = [
        "-MFile::Find",
        "-MFile::Copy",
        "-MSys::Hostname",
        "-MTime::HiRes",
        "-MSocket",
        "-MErrno",
    ];
    let all = output(Command::new("perl").args(modules).args(["-e", "1"]));
    if all.is_ok() {
        return Ok(None);
    }
    let version = output(Command::new("perl").args(["-e", "printf '%vd', $^V"]))?;
    let series = version
        .rsplit_once('.')
        .map_or(&*version, |(series, _)| series);
    Ok(Some(vec![
        format!("perl-modules-{series}"),
        format!("libperl{series}"),
    ]))
}

#[cfg(test)]
mod tests {
    use super::package_of;

    #[test]
    fn libraries_are_in_packages_of_their_name() {
        let cases = [
            ("libaio.so.1", "libaio1"),
            ("liburing.so.2", "liburing2"),
            ("libpcre2-8.so.0", "libpcre2-8-0"),
            ("libpcre2-posix.so.3", "libpcre2-posix3"),
            ("libluajit-5.1.so.2", "libluajit-5.1-2"),
            ("libgssapi_krb5.so.2", "libgssapi-krb5-2"),
            ("libcrypto.so.3", "libssl3"),
            ("liblber-2.5.so.0", "libldap-2.5-0"),
        ];
        for (library, package) in cases {
            assert_eq!(package_of(library), package);
        }
    }
}
