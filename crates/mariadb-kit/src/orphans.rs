//! After crashes in DDL: the server's table files, its idea of tables, and the engine's are the
//! same.

use super::server::Server;
use inkstone::{Database, Options};
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::path::Path;

/// What a discarded table says when it is read.
pub const TABLESPACE_DISCARDED: &str = "ERROR 1814";

/// Checks a database of a server that runs: no half-made files, every table can be opened and is
/// sound.
pub fn check_running(server: &Server, database: &str) -> Result<()> {
    let folder = server.data().join(database);
    let half_made: Vec<String> = names(&folder)?
        .into_iter()
        .filter(|name| name.starts_with('#'))
        .collect();
    if !half_made.is_empty() {
        return Err(format!(
            "files of unfinished DDL are left in {database}: {half_made:?}"
        ));
    }
    let tables = server.sql(&format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'"
    ))?;
    let files = names(&folder)?;
    let of_files: BTreeSet<&str> = files
        .iter()
        .filter_map(|name| name.strip_suffix(".frm"))
        .collect();
    let of_sql: BTreeSet<&str> = tables.lines().collect();
    if of_files != of_sql {
        return Err(format!(
            "{database} has files of {of_files:?}, and tables {of_sql:?}"
        ));
    }
    for table in of_sql {
        match server.sql(&format!("SELECT COUNT(*) FROM {database}.{table}")) {
            Err(error) if !error.contains(TABLESPACE_DISCARDED) => {
                return Err(format!("{database}.{table} cannot be read: {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// How often the engine had something to repair when the server started, by its error log.
pub fn mended(server: &Server) -> String {
    let text = std::fs::read(server.log()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let count = |what: &str| {
        let lines = text.lines();
        lines
            .filter(|line| line.contains("Inkstone: ") && line.contains(what))
            .count()
    };
    format!(
        "{} tables were put together, {} partitions dropped, {} lists deleted",
        count("are put back"),
        count("left, is dropped"),
        count("left, is deleted")
    )
}

/// Names of the engine's tables that the server's tables of Inkstone must have.
pub fn expected(server: &Server) -> Result<BTreeSet<String>> {
    let rows = server.sql(
        "SELECT t.table_schema, t.table_name, p.partition_name, p.subpartition_name FROM information_schema.tables t \
         JOIN information_schema.partitions p USING (table_schema, table_name) WHERE t.engine = 'Inkstone'",
    )?;
    let name = |row: &str| {
        let mut fields = row.split('\t');
        let (schema, table) = (fields.next()?, fields.next()?);
        Some(match (fields.next()?, fields.next()?) {
            ("NULL", _) => format!("{schema}/{table}"),
            (part, "NULL") => format!("{schema}/{table}#P#{part}"),
            (part, below) => format!("{schema}/{table}#P#{part}#SP#{below}"),
        })
    };
    Ok(rows.lines().filter_map(name).collect())
}

/// Checks that a server that runs has as many files of tables as its tables need: which, if not,
/// only [`check_stopped`] can tell.
pub fn check_number(server: &Server) -> Result<()> {
    let expected = expected(server)?;
    let directory = server.data().join("inkstone");
    let files = table_files(&directory)?;
    let mut maps = names(&directory)?;
    maps.retain(|name| {
        name.strip_suffix(".places")
            .is_some_and(|table| !files.contains(&format!("{table}.ink")))
    });
    if !maps.is_empty() {
        return Err(format!("place maps are left without a file: {maps:?}"));
    }
    if files.len() == expected.len() {
        Ok(())
    } else {
        Err(format!(
            "the engine has the files {files:?}; the tables are {expected:?}"
        ))
    }
}

/// Opens the engine's directory by the library, while no server has it: its tables are those
/// expected, each with one file, and every page of them is sound.
pub fn check_stopped(data: &Path, expected: &BTreeSet<String>) -> Result<()> {
    let directory = data.join("inkstone");
    let say = |error| format!("{}: {error}", directory.display());
    let database = Database::open(&directory, Options::default()).map_err(say)?;
    let tables: BTreeSet<String> = database.tables().map_err(say)?.into_iter().collect();
    if tables != *expected {
        let orphans: Vec<&String> = tables.difference(expected).collect();
        let missing: Vec<&String> = expected.difference(&tables).collect();
        return Err(format!(
            "the engine has tables that the server does not: {orphans:?}; and lacks {missing:?}"
        ));
    }
    for name in &tables {
        let table = database.table(name).map_err(say)?;
        database.verify_table(&table).map_err(say)?;
    }
    database.close().map_err(say)?;
    let files = table_files(&directory)?;
    if files.len() == tables.len() {
        Ok(())
    } else {
        Err(format!("{} tables have the files {files:?}", tables.len()))
    }
}

/// The files that tables have in the engine's directory.
pub fn table_files(directory: &Path) -> Result<Vec<String>> {
    let mut files = names(directory)?;
    files.retain(|name| name.starts_with('t') && name.ends_with(".ink"));
    Ok(files)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .map(|name| name.to_string_lossy().into_owned())
        .collect())
}
