//! A copy of the test suite's tree for one engine: links to what is only read, copies of the suites
//! that are run, because recording writes beside the tests.

use super::named::with_engine;
use super::suite::{Kind, Suite};
use crate::plugin::Plugin;
use crate::tree::Tree;
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};

/// Makes the tree below `folder`; gives the folder in which the test driver is started.
pub fn make(
    tree: &Tree,
    plugin: &Plugin,
    overlay: &Path,
    engine: &str,
    suites: &[Suite],
    folder: &Path,
) -> Result<PathBuf> {
    let usr = folder.join("usr");
    let tests = usr.join("share/mysql/mysql-test");
    link_all(&tree.usr(), &usr, &["share", "lib"])?;
    link_all(&tree.usr().join("lib"), &usr.join("lib"), &["mysql"])?;
    let plugins = usr.join("lib/mysql/plugin");
    link_all(&tree.plugins(), &plugins, &[])?;
    link(&plugin.library, &plugins.join("ha_inkstone.so"))?;
    link_all(&tree.share(), &usr.join("share/mysql"), &["mysql-test"])?;
    let original = tree.share().join("mysql-test");
    let names: Vec<&str> = suites.iter().map(Suite::top).collect();
    let replaced = ["suite", "plugin", "var"].into_iter();
    let main = names.iter().copied().filter(|name| *name == "main");
    link_all(&original, &tests, &replaced.chain(main).collect::<Vec<_>>())?;
    link_all(&original.join("suite"), &tests.join("suite"), &names)?;
    for suite in suites {
        let folder = match suite.top() {
            "main" => PathBuf::from("main"),
            top => Path::new("suite").join(top),
        };
        copy(&original.join(&folder), &tests.join(&folder))?;
        if let Kind::NamedEngine = suite.kind() {
            rename_engine(&tests.join(&folder), engine)?;
        }
    }
    let overlays = tests.join("plugin/inkstone");
    copy(
        &overlay.join("storage_engine"),
        &overlays.join("storage_engine"),
    )?;
    name_engine(&overlays.join("storage_engine/define_engine.inc"), engine)?;
    for suite in suites {
        if let Kind::DefaultEngine = suite.kind() {
            let combinations = format!(
                "[{engine}]\ninnodb\nplugin-maturity=experimental\n\
                 plugin-load-add=ha_inkstone.so\ndefault-storage-engine={engine}\n"
            );
            let path = tests.join("suite").join(&suite.name).join("combinations");
            write(&path, &combinations)?;
        }
    }
    Ok(tests)
}

/// The overlay names Inkstone; for the other engine the name is replaced.
fn name_engine(file: &Path, engine: &str) -> Result<()> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    write(
        file,
        text.replace("$ENGINE = Inkstone", &format!("$ENGINE = {engine}")),
    )
}

/// Lets every test of a folder name another engine where it names InnoDB.
fn rename_engine(folder: &Path, engine: &str) -> Result<()> {
    for path in entries(folder)? {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            rename_engine(&path, engine)?;
        } else if matches!(extension, Some("test" | "inc")) {
            let text = std::fs::read(&path)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            write(&path, with_engine(&text, engine))?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Links every entry of a folder but `except` into another one.
fn link_all(from: &Path, to: &Path, except: &[&str]) -> Result<()> {
    make_folder(to)?;
    for path in entries(from)? {
        let name = path.file_name().unwrap_or_default();
        if !except.iter().any(|except| name == *except) {
            link(&path, &to.join(name))?;
        }
    }
    Ok(())
}

fn link(from: &Path, to: &Path) -> Result<()> {
    match std::os::unix::fs::symlink(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be linked: {error}", to.display()))
        }
        _ => Ok(()),
    }
}

/// Copies a folder without the results, and what depends on them: those are recorded anew.
fn copy(from: &Path, to: &Path) -> Result<()> {
    make_folder(to)?;
    for path in entries(from)? {
        let copied = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy(&path, &copied)?;
        } else if path
            .extension()
            .is_none_or(|extension| extension != "result" && extension != "rdiff")
        {
            std::fs::copy(&path, &copied)
                .map_err(|error| format!("{} cannot be copied: {error}", path.display()))?;
        }
    }
    Ok(())
}

fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}
