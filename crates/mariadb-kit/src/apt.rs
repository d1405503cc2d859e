//! Debian's packages without installing any: `apt-get` with folders of its own.
//!
//! The machine's own package sources are copied, reduced to those of its Debian release, and asked
//! for source packages, too. Nothing of the machine is changed, and root is not needed.

use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `apt-get` and `apt-cache` over folders of their own.
pub struct Apt {
    config: PathBuf,
}

impl Apt {
    /// Sets the folders up in `folder` and fetches the lists of packages.
    pub fn update(folder: &Path) -> Result<Self> {
        let sources = folder.join("sources.list.d");
        for needed in [
            sources.clone(),
            folder.join("lists/partial"),
            folder.join("cache/archives/partial"),
        ] {
            std::fs::create_dir_all(&needed)
                .map_err(|error| format!("{} cannot be made: {error}", needed.display()))?;
        }
        copy_sources(Path::new("/etc/apt"), &sources)?;
        let place = folder.display();
        let config = format!(
            "Dir::Etc::sourcelist \"/dev/null\";\n\
             Dir::Etc::sourceparts \"{place}/sources.list.d\";\n\
             Dir::State::lists \"{place}/lists\";\n\
             Dir::Cache \"{place}/cache\";\n\
             APT::Sandbox::User \"\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\n"
        );
        let path = folder.join("apt.conf");
        std::fs::write(&path, config)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let apt = Self { config: path };
        let output = apt.run(
            folder,
            "apt-get",
            &["update", "--quiet", "-o", "APT::Update::Error-Mode=any"],
        );
        output.map_err(|error| {
            format!("the lists of packages cannot be fetched (is this machine offline?):\n{error}")
        })?;
        Ok(apt)
    }

    /// Versions of a binary package, as `apt-cache madison` lists them.
    pub fn binary_versions(&self, package: &str) -> Result<BTreeSet<String>> {
        let text = self.run(Path::new("/"), "apt-cache", &["madison", package])?;
        let lines = text.lines().filter(|line| !line.contains("Sources"));
        let versions = lines.filter_map(|line| line.split('|').nth(1));
        Ok(versions.map(|version| version.trim().to_owned()).collect())
    }

    /// Versions of a source package.
    pub fn source_versions(&self, package: &str) -> Result<BTreeSet<String>> {
        let text = self.run(
            Path::new("/"),
            "apt-cache",
            &["showsrc", "--only-source", package],
        )?;
        let versions = text
            .lines()
            .filter_map(|line| line.strip_prefix("Version: "));
        Ok(versions.map(str::to_owned).collect())
    }

    /// Downloads binary packages (`name` or `name=version`) into `folder`.
    pub fn download(&self, folder: &Path, packages: &[String]) -> Result<()> {
        let mut arguments = vec!["download", "--quiet"];
        arguments.extend(packages.iter().map(String::as_str));
        self.run(folder, "apt-get", &arguments).map(drop)
    }

    /// Downloads the upstream archive of a source package into `folder`.
    pub fn download_source(&self, folder: &Path, package: &str) -> Result<()> {
        let arguments = [
            "source",
            "--quiet",
            "--download-only",
            "--tar-only",
            package,
        ];
        self.run(folder, "apt-get", &arguments).map(drop)
    }

    fn run(&self, folder: &Path, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(folder)
            .env("APT_CONFIG", &self.config)
            .env("LC_ALL", "C.UTF-8");
        output(&mut command)
    }
}

/// Runs a command; gives what it printed, or what it complained about.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        format!("{program} cannot be started: {error} (this command needs Debian's tools)")
    })?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}\n{complaint}", output.status))
}

/// True if `a` is an older version than `b`.
pub fn is_older(a: &str, b: &str) -> bool {
    let mut compare = Command::new("dpkg");
    compare.args(["--compare-versions", a, "lt", b]);
    compare.status().is_ok_and(|status| status.success())
}

/// Copies the sources of the machine's Debian release, with source packages asked for.
fn copy_sources(etc: &Path, to: &Path) -> Result<()> {
    let codename = codename(&std::fs::read_to_string("/etc/os-release").unwrap_or_default());
    let parts = std::fs::read_dir(etc.join("sources.list.d"));
    let mut files: Vec<PathBuf> = parts
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.push(etc.join("sources.list"));
    let mut found = false;
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let extension = file.extension().and_then(|extension| extension.to_str());
        let rewritten = match extension {
            Some("list") => one_line_sources(&text, &codename),
            Some("sources") => stanza_sources(&text, &codename),
            _ => continue,
        };
        let Some(name) = file.file_name() else {
            continue;
        };
        found |= !rewritten.is_empty();
        let copy = to.join(name);
        std::fs::write(&copy, rewritten)
            .map_err(|error| format!("{} cannot be written: {error}", copy.display()))?;
    }
    if found {
        return Ok(());
    }
    Err(format!(
        "no package source of Debian's {codename:?} is named in {}: this command needs a Debian \
         machine, or its sources",
        etc.display()
    ))
}

fn codename(os_release: &str) -> String {
    let line = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    line.unwrap_or_default().trim_matches('"').to_owned()
}

fn of_release(suite: &str, codename: &str) -> bool {
    suite.starts_with(codename)
}

/// `deb [options] address suite components`.
fn one_line_sources(text: &str, codename: &str) -> String {
    let mut lines = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        let Some(rest) = line.strip_prefix("deb ") else {
            continue;
        };
        let after_options = match rest.trim_start().strip_prefix('[') {
            Some(options) => options.split_once(']').map_or("", |(_, after)| after),
            None => rest,
        };
        let suite = after_options.split_whitespace().nth(1).unwrap_or_default();
        if of_release(suite, codename) {
            lines.insert(format!("deb {rest}\n"));
            lines.insert(format!("deb-src {rest}\n"));
        }
    }
    lines.into_iter().collect()
}

/// Stanzas of `Types:`, `URIs:`, `Suites:`, `Components:`.
fn stanza_sources(text: &str, codename: &str) -> String {
    let mut rewritten = String::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            let lines = stanza.lines();
            let value = lines
                .filter_map(|line| line.split_once(':'))
                .find(|(field, _)| field.eq_ignore_ascii_case(name));
            value.map(|(_, value)| value.trim().to_owned())
        };
        let suites = field("Suites").unwrap_or_default();
        let types = field("Types").unwrap_or_default();
        let enabled = field("Enabled").is_none_or(|value| value != "no");
        let binary = types.split_whitespace().any(|kind| kind == "deb");
        let release = suites
            .split_whitespace()
            .any(|suite| of_release(suite, codename));
        if !(enabled && binary && release) {
            continue;
        }
        for line in stanza.lines() {
            let is_types = line.to_ascii_lowercase().starts_with("types:");
            rewritten.push_str(if is_types { "Types: deb deb-src" } else { line });
            rewritten.push('\n');
        }
        rewritten.push('\n');
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_sources_of_the_release_are_asked_for_source_packages() {
        let text = "# deb http://old bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main contrib\n\
                    deb http://m/security bookworm-security main\n\
                    deb-src http://m/debian bookworm main\n\
                    deb http://other stable main\n";
        let expected = "deb [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main contrib\n\
                        deb http://m/security bookworm-security main\n\
                        deb-src [arch=amd64 signed-by=/k.gpg] http://m/debian bookworm main contrib\n\
                        deb-src http://m/security bookworm-security main\n";
        assert_eq!(one_line_sources(text, "bookworm"), expected);
    }

    #[test]
    fn stanzas_of_other_releases_and_disabled_ones_are_left_out() {
        let text = "Types: deb\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main\n\n\
                    Types: deb\nURIs: http://other\nSuites: nodistro\nComponents: main\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://m\nSuites: bookworm\nComponents: main\n";
        let expected = "Types: deb deb-src\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\n\
                        Components: main\n\n";
        assert_eq!(stanza_sources(text, "bookworm"), expected);
    }

    #[test]
    fn the_release_is_read() {
        assert_eq!(
            codename("ID=debian\nVERSION_CODENAME=bookworm\n"),
            "bookworm"
        );
    }
}
