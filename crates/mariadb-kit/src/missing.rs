//! A table whose file is missing: its statements say so, the error log says which file, and other
//! tables are as before.

use super::server::Server;
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What InnoDB's tables answer, too: `ER_NO_SUCH_TABLE_IN_ENGINE`.
const ANSWER: &str = "ERROR 1932";

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
        "USE missing; CREATE TABLE whole (id INT PRIMARY KEY) ENGINE = Inkstone; INSERT INTO whole VALUES (2)",
    )?;
    server.stop()?;
    let aside = file.with_extension("aside");
    rename(file, &aside)?;
    server.start()?;
    for statement in ["SELECT * FROM lost", "INSERT INTO lost VALUES (3)"] {
        match server.sql(&format!("USE missing; {statement}")) {
            Err(error) if error.contains(ANSWER) => {}
            other => return Err(format!("{statement}: not {ANSWER}, but {other:?}")),
        }
    }
    let text = std::fs::read_to_string(server.log()).map_err(|error| error.to_string())?;
    if !text.contains("the file of table missing/lost is missing") {
        return Err("the error log does not say which table's file is missing".to_owned());
    }
    let whole = server.sql("SELECT id FROM missing.whole")?;
    server.stop()?;
    rename(&aside, file)?;
    server.start()?;
    let found = server.sql("SELECT id FROM missing.lost")?;
    match (whole.trim(), found.trim()) {
        ("2", "1") => server.sql("DROP DATABASE missing").map(drop),
        other => Err(format!("rows 2 and 1 were expected, not {other:?}")),
    }
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
