//! What is missing or was swapped behind the server's back. A table's file: its statements say so,
//! the error log says which file, and other tables are as before. A table's definition: another's
//! is there. The directory of the database: none is begun.

use super::server::Server;
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What InnoDB's tables answer, too: `ER_NO_SUCH_TABLE_IN_ENGINE`.
const ANSWER: &str = "ERROR 1932";

/// What a table says that has another's definition.
const SWAPPED: &str = "(.frm) of table missing/swapped is of another table";

/// Checks it on a server without other clients.
pub fn check(server: &mut Server) -> Result<()> {
    let directory = server.data().join("inkstone");
    let before = files(&directory)?;
    server.sql(
        "CREATE OR REPLACE DATABASE missing; USE missing; SET default_storage_engine = Inkstone; \
         CREATE TABLE lost (id INT PRIMARY KEY); INSERT INTO lost VALUES (1)",
    )?;
    let made = files(&directory)?;
    let file = made
        .difference(&before)
        .next()
        .ok_or("a table without a file")?;
    server.sql(
        "USE missing; CREATE TABLE whole (id INT PRIMARY KEY) ENGINE = Inkstone; INSERT INTO whole VALUES (2); \
         CREATE TABLE swapped (id INT PRIMARY KEY) ENGINE = Inkstone; \
         CREATE TABLE keyed (id INT PRIMARY KEY, v INT, KEY v (v)) ENGINE = Inkstone",
    )?;
    server.stop()?;
    let aside = file.with_extension("aside");
    rename(file, &aside)?;
    let definitions = server.data().join("missing");
    let [swapped, keyed, kept] =
        ["swapped.frm", "keyed.frm", "kept.frm"].map(|it| definitions.join(it));
    copy(&swapped, &kept)?;
    copy(&keyed, &swapped)?;
    server.start()?;
    for statement in ["SELECT * FROM lost", "INSERT INTO lost VALUES (3)"] {
        match server.sql(&format!("USE missing; {statement}")) {
            Err(error) if error.contains(ANSWER) => {}
            other => return Err(format!("{statement}: not {ANSWER}, but {other:?}")),
        }
    }
    match server.sql("SELECT * FROM missing.swapped") {
        Err(error) if error.contains(SWAPPED) => {}
        other => return Err(format!("not {SWAPPED:?}, but {other:?}")),
    }
    let text = std::fs::read_to_string(server.log()).map_err(|error| error.to_string())?;
    if !text.contains("the file of table missing/lost is missing") {
        return Err("the error log does not say which table's file is missing".to_owned());
    }
    let whole = server.sql("SELECT id FROM missing.whole")?;
    server.stop()?;
    rename(&aside, file)?;
    rename(&kept, &swapped)?;
    check_home(server)?;
    server.start()?;
    let found = server.sql("SELECT id FROM missing.lost")?;
    match (whole.trim(), found.trim()) {
        ("2", "1") => server.sql("DROP DATABASE missing").map(drop),
        other => Err(format!("rows 2 and 1 were expected, not {other:?}")),
    }
}

/// Checks that a directory that is named is not made, on a server that is stopped.
fn check_home(server: &mut Server) -> Result<()> {
    const OPTION: &str = "loose-inkstone-data-home-dir";
    let home = server.folder().join("not-there");
    server.set_option(OPTION, &home.join("x").display().to_string());
    // Without the engine the server goes on, or ends at an option that it no longer knows.
    if server.start().is_ok() {
        let engines = server.sql("SHOW ENGINES")?;
        server.stop()?;
        if engines.contains("INKSTONE") {
            return Err("the engine runs, and its directory is missing".to_owned());
        }
    }
    server.set_option(OPTION, "");
    let text = std::fs::read_to_string(server.log()).map_err(|error| error.to_string())?;
    let said = format!("the directory {}/x cannot be used", home.display());
    match (text.contains(&said), home.exists()) {
        (true, false) => Ok(()),
        (false, _) => Err(format!("the error log does not say: {said}")),
        (_, true) => Err(format!("{} was made", home.display())),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = std::fs::copy(from, to).map(drop);
    copied.map_err(|error| format!("{}: {error}", from.display()))
}

fn files(directory: &Path) -> Result<BTreeSet<PathBuf>> {
    let entries = std::fs::read_dir(directory).map_err(|error| error.to_string())?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|it| it == "ink"))
        .collect())
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|error| format!("{}: {error}", from.display()))
}
