//! A server, its headers and its test suite from Debian's packages, unpacked under `target/`.
//!
//! Headers and server must be of one version: class layouts change between patch releases. The
//! private headers come only with the source package, and not every version that a mirror lists can
//! be had from it. So the newest version is taken of which both the binaries and the source arrive.

use super::apt::{Apt, is_older, output};
use super::libraries;
use super::tree::{Tree, home};
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release series whose handler interface the plugin is written for.
const SERIES: &str = "10.11.";

/// Binary packages that carry the version of the server.
const PACKAGES: [&str; 9] = [
    "mariadb-server-core",
    "mariadb-server",
    "mariadb-client-core",
    "mariadb-client",
    "libmariadb3",
    "libmariadb-dev",
    "libmariadbd-dev",
    "mariadb-test",
    "mariadb-test-data",
];

/// What of the packages is not needed here: the embedded server, twice 24 MB and 47 MB, and papers.
const LEFT_OUT: [&str; 4] = [
    "*libmariadbd.a",
    "*-embedded",
    "./usr/share/doc",
    "./usr/share/man",
];

/// The unpacked tree; fetched if there is none yet.
pub fn tree() -> Result<Tree> {
    match newest_unpacked() {
        Some(tree) => Ok(tree),
        None => fetch(),
    }
}

/// Fetches the newest version that can be had, unless it is there already.
pub fn fetch() -> Result<Tree> {
    let home = home();
    eprintln!("looking for a MariaDB {SERIES}x whose binaries and source can both be had");
    let apt = Apt::update(&home.join("apt"))?;
    let mut failures = String::new();
    for version in candidates(&apt)? {
        let plain = without_epoch(&version);
        let folder = home.join(plain);
        if let Ok(tree) = Tree::open(&folder) {
            eprintln!("MariaDB {plain} is in {} already", folder.display());
            return Ok(tree);
        }
        match fetch_version(&apt, &version, &folder) {
            Ok(tree) => return Ok(tree),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                eprintln!("MariaDB {plain} cannot be had whole; trying an older one");
                failures.push_str(&format!("\n{plain}: {}", error.trim()));
            }
        }
    }
    Err(format!(
        "no version of MariaDB can be had of which both the binaries and the source arrive:{failures}"
    ))
}

/// Versions that are listed both as binaries and as source, the newest first.
fn candidates(apt: &Apt) -> Result<Vec<String>> {
    let binaries = apt.binary_versions("mariadb-server-core")?;
    let sources = apt.source_versions("mariadb")?;
    let of_series = |version: &&String| without_epoch(version).starts_with(SERIES);
    let mut both: Vec<String> = binaries
        .intersection(&sources)
        .filter(of_series)
        .cloned()
        .collect();
    both.sort_by(|a, b| {
        if is_older(a, b) {
            std::cmp::Ordering::Greater
        } else {
            std::cmp::Ordering::Less
        }
    });
    if both.is_empty() {
        return Err(format!(
            "the machine's package sources list no MariaDB {SERIES}x both as binaries ({}) and as \
             source ({}); the plugin is written for that series, which Debian 12 has",
            list(binaries.iter()),
            list(sources.iter()),
        ));
    }
    Ok(both)
}

fn list<'a>(versions: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = versions.map(String::as_str).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn without_epoch(version: &str) -> &str {
    version.split_once(':').map_or(version, |(_, rest)| rest)
}

fn newest_unpacked() -> Option<Tree> {
    let entries = std::fs::read_dir(home()).ok()?;
    let folders = entries.flatten().map(|entry| entry.path());
    let mut trees: Vec<Tree> = folders.filter_map(|path| Tree::open(&path).ok()).collect();
    trees.sort_by(|a, b| {
        if is_older(&a.version, &b.version) {
            std::cmp::Ordering::Less
        } else {
            std::cmp::Ordering::Greater
        }
    });
    trees.pop()
}

fn fetch_version(apt: &Apt, version: &str, folder: &Path) -> Result<Tree> {
    let plain = without_epoch(version);
    // What an interrupted fetch left is of no use.
    let _ = std::fs::remove_dir_all(folder);
    let downloads = folder.join("downloads");
    let unpacked = folder.join("root");
    make_folder(&downloads)?;
    make_folder(&unpacked)?;
    eprintln!("fetching the source of MariaDB {plain} for its headers (115 MB)");
    apt.download_source(&downloads, &format!("mariadb={version}"))?;
    eprintln!("fetching its binaries (54 MB)");
    let mut packages: Vec<String> = PACKAGES
        .iter()
        .map(|package| format!("{package}={version}"))
        .collect();
    packages.push("sysbench".to_owned());
    apt.download(&downloads, &packages)?;
    unpack_all(&downloads, &unpacked)?;
    unpack_headers(&downloads, folder)?;
    let tree = Tree::unfinished(folder, plain)?;
    libraries::complete(apt, &tree, &downloads, &unpacked)?;
    check(&tree)?;
    tree.finish()?;
    let _ = std::fs::remove_dir_all(&downloads);
    eprintln!("MariaDB {plain} is unpacked in {}", folder.display());
    Ok(tree)
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

/// Unpacks every `.deb` of a folder, and removes it.
pub fn unpack_all(downloads: &Path, to: &Path) -> Result<()> {
    let entries = std::fs::read_dir(downloads)
        .map_err(|error| format!("{} cannot be read: {error}", downloads.display()))?;
    for package in entries.flatten().map(|entry| entry.path()) {
        if package
            .extension()
            .is_some_and(|extension| extension == "deb")
        {
            unpack(&package, to)?;
            let _ = std::fs::remove_file(&package);
        }
    }
    Ok(())
}

fn unpack(package: &Path, to: &Path) -> Result<()> {
    let complain = |error| format!("{} cannot be unpacked: {error}", package.display());
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(complain)?;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(to).arg("--no-same-owner");
    for pattern in LEFT_OUT {
        tar.arg(format!("--exclude={pattern}"));
    }
    if let Some(stream) = reader.stdout.take() {
        tar.stdin(stream);
    }
    let unpacked = output(&mut tar);
    let read = reader.wait().map_err(complain)?;
    match (unpacked, read.success()) {
        (Ok(_), true) => Ok(()),
        (Err(error), _) => Err(format!("{}: {error}", package.display())),
        (Ok(_), false) => Err(format!("{} is damaged", package.display())),
    }
}

/// The headers of the source package, and the one that a build of the server would generate.
fn unpack_headers(downloads: &Path, folder: &Path) -> Result<()> {
    let archive = source_archive(downloads)?;
    let source = folder.join("source");
    make_folder(&source)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(&source);
    tar.args(["--strip-components=1", "--no-same-owner", "--wildcards"]);
    for headers in ["include", "sql", "wsrep-lib", "tpool"] {
        for extension in ["h", "hpp", "ic", "in"] {
            tar.arg(format!("*/{headers}/*.{extension}"));
        }
    }
    // A pattern that matches nothing is an error for tar; that the headers are there is seen below.
    let unpacked = output(&mut tar);
    let generated = folder.join("generated");
    make_folder(&generated)?;
    let name = "probes_mysql_nodtrace.h";
    let template = source.join("include").join(format!("{name}.in"));
    std::fs::copy(&template, generated.join(name)).map_err(|error| {
        let complaint = unpacked.err().unwrap_or_default();
        format!("{} has no {name}: {error}\n{complaint}", archive.display())
    })?;
    Ok(())
}

fn source_archive(downloads: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(downloads)
        .map_err(|error| format!("{} cannot be read: {error}", downloads.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let is_archive = |path: &PathBuf| path.to_string_lossy().ends_with(".orig.tar.gz");
    paths
        .find(is_archive)
        .ok_or_else(|| "the source package came without its archive".to_owned())
}

/// The server starts, and is of the version of its headers.
fn check(tree: &Tree) -> Result<()> {
    let printed = output(
        tree.command(&tree.server())
            .args(["--no-defaults", "--version"]),
    )?;
    let upstream = tree.version.split('-').next().unwrap_or_default();
    let header = tree.usr().join("include/mariadb/server/mysql_version.h");
    let header = std::fs::read_to_string(&header)
        .map_err(|error| format!("{} cannot be read: {error}", header.display()))?;
    if printed.contains(upstream) && header.contains(upstream) {
        return Ok(());
    }
    Err(format!(
        "the packages of {} disagree: the server says {}, the headers are of another version",
        tree.version,
        printed.trim()
    ))
}
