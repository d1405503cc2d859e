//! Tables as files: what is imported must be what the definition says. Part of `--smoke`.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::path::Path;

/// The columns and keys of the table that is exported.
const EXPORTED: &str =
    "id INT PRIMARY KEY, v INT, s VARCHAR(20) COLLATE utf8mb4_general_ci, KEY v (v)";

/// Other definitions, and what error 1808 says of the file for each.
const OTHERS: [(&str, &str); 7] = [
    (
        "id INT PRIMARY KEY, v CHAR(4), s VARCHAR(20) COLLATE utf8mb4_general_ci, KEY v (v)",
        "column 2 is v int(11) NULL in the file and v char(4)",
    ),
    (
        "id INT PRIMARY KEY, v INT NOT NULL, s VARCHAR(20) COLLATE utf8mb4_general_ci, KEY v (v)",
        "column 2 is v int(11) NULL in the file and v int(11) NOT NULL",
    ),
    (
        "id INT PRIMARY KEY, v INT, s VARCHAR(20) COLLATE utf8mb4_bin, KEY v (v)",
        "column 3 is s varchar(20)",
    ),
    (
        "id INT PRIMARY KEY, v INT, KEY v (v)",
        "the file has 3 columns and the table 2",
    ),
    (
        "id INT PRIMARY KEY, v INT, s VARCHAR(20) COLLATE utf8mb4_general_ci",
        "the file has 2 indexes and the table 1",
    ),
    (
        "id INT PRIMARY KEY, v INT, s VARCHAR(20) COLLATE utf8mb4_general_ci, UNIQUE KEY v (v)",
        "index 2 is v (v) in the file and v UNIQUE (v)",
    ),
    (
        "id INT PRIMARY KEY, v INT, s VARCHAR(20) COLLATE utf8mb4_general_ci, KEY v (v DESC)",
        "index 2 is v (v) in the file and v (v DESC)",
    ),
];

/// Checks that a file of another definition, or of an earlier plugin, is refused with error 1808,
/// harms nothing, and that one of the same definition is taken.
pub fn check(server: &Server) -> Result<()> {
    server.sql(&format!(
        "CREATE OR REPLACE DATABASE smoke; USE smoke; CREATE TABLE e ({EXPORTED}) ENGINE=Inkstone; \
         INSERT INTO e SELECT seq, seq MOD 7, CONCAT('row ', seq) FROM seq_1_to_1000"
    ))?;
    let folder = server.data().join("smoke");
    export(server, &folder)?;
    for (definition, said) in OTHERS {
        refuse(server, &folder, definition, said, |cfg| cfg)?;
    }
    let of_version_1 = |cfg: String| cfg.replace("inkstone table 2\n", "inkstone table 1\n");
    refuse(
        server,
        &folder,
        EXPORTED,
        "export the table again",
        of_version_1,
    )?;
    let of_the_future = |cfg: String| cfg.replace("images\t\t", "images\t\t9");
    refuse(
        server,
        &folder,
        EXPORTED,
        "the file has key images of version",
        of_the_future,
    )?;

    refuse_damaged(server, &folder)?;
    check_partitions(server, &folder)?;
    make_table(server, EXPORTED)?;
    copy(&folder, "kept", "i", |cfg| cfg)?;
    server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE")?;
    // It has rows now, which were not discarded.
    copy(&folder, "kept", "i", |cfg| cfg)?;
    match server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE") {
        Err(error) if error.contains("1813") => {}
        other => {
            return Err(format!(
                "an import over rows: not error 1813, but {other:?}"
            ));
        }
    }
    let sums = server.sql("CHECKSUM TABLE smoke.e, smoke.i")?;
    let mut of_each = sums.lines().filter_map(|line| line.split('\t').nth(1));
    match of_each.next() == of_each.next() {
        true => Ok(()),
        false => Err(format!("an imported table is not the exported one: {sums}")),
    }
}

/// A file with a wrong byte is refused with what is wrong, and where.
fn refuse_damaged(server: &Server, folder: &Path) -> Result<()> {
    make_table(server, EXPORTED)?;
    copy(folder, "kept", "i", |cfg| cfg)?;
    let file = folder.join("i.ink");
    let failed = |error: std::io::Error| format!("{} cannot be damaged: {error}", file.display());
    let mut bytes = std::fs::read(&file).map_err(failed)?;
    let middle = bytes.len() / 2;
    bytes[middle..middle + 16].fill(0x55);
    std::fs::write(&file, bytes).map_err(failed)?;
    match server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE") {
        Err(error) if error.contains("1815") && error.contains("i.ink") => Ok(()),
        other => Err(format!(
            "a damaged file: not error 1815 that names it, but {other:?}"
        )),
    }
}

/// Each partition of an exported table has files of its own, which a table without partitions
/// takes.
fn check_partitions(server: &Server, folder: &Path) -> Result<()> {
    server.sql(&format!(
        "CREATE TABLE smoke.p ({EXPORTED}) ENGINE=Inkstone PARTITION BY RANGE (id) \
         (PARTITION p0 VALUES LESS THAN (400), PARTITION p1 VALUES LESS THAN MAXVALUE); \
         INSERT INTO smoke.p SELECT * FROM smoke.e"
    ))?;
    let mut session = Session::open(server, "smoke")?;
    let flushed = session.run("FLUSH TABLES p FOR EXPORT;");
    let mut rows = Vec::new();
    for partition in ["p#P#p0", "p#P#p1"] {
        make_table(server, EXPORTED)?;
        copy(folder, partition, "i", |cfg| cfg).map_err(|error| format!("{error}; {flushed:?}"))?;
        server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE")?;
        rows.push(server.sql("SELECT COUNT(*), MIN(id), MAX(id) FROM smoke.i")?);
    }
    session.run("UNLOCK TABLES;");
    let left = folder.join("p#P#p0.cfg").exists();
    match rows.iter().map(|row| row.trim()).collect::<Vec<_>>()[..] {
        ["399\t1\t399", "601\t400\t1000"] if !left => Ok(()),
        _ => Err(format!(
            "partitions exported and imported: {rows:?}, files left: {left}"
        )),
    }
}

/// Keeps copies of the files of table e, made while it is exported; ANALYZE must leave the file
/// alone then.
fn export(server: &Server, folder: &Path) -> Result<()> {
    let mut session = Session::open(server, "smoke")?;
    let mut run = |statements: &str| session.run(statements).unwrap_or_default().join("\n");
    let flushed = run("FLUSH TABLES e FOR EXPORT;");
    let read = || std::fs::read(folder.join("e.ink")).unwrap_or_default();
    let before = read();
    let analyzed = run("ANALYZE TABLE e; SHOW WARNINGS;");
    let is_same = before == read();
    copy(folder, "e", "kept", |cfg| cfg)?;
    let unlocked = run("UNLOCK TABLES;");
    match is_same && analyzed.contains("not kept over a restart") {
        true => Ok(()),
        false => Err(format!(
            "ANALYZE of an exported table: file unchanged: {is_same}; {flushed}{analyzed}{unlocked}"
        )),
    }
}

/// Copies both files of a table, the description changed.
fn copy(folder: &Path, from: &str, to: &str, change: impl Fn(String) -> String) -> Result<()> {
    let failed = |error: std::io::Error| format!("files of table {from} cannot be copied: {error}");
    let file = |name: &str, extension: &str| folder.join(format!("{name}.{extension}"));
    std::fs::copy(file(from, "ink"), file(to, "ink")).map_err(failed)?;
    let cfg = std::fs::read_to_string(file(from, "cfg")).map_err(failed)?;
    std::fs::write(file(to, "cfg"), change(cfg)).map_err(failed)
}

/// Makes table i, waiting for a file.
fn make_table(server: &Server, definition: &str) -> Result<()> {
    let made = server.sql(&format!(
        "USE smoke; CREATE OR REPLACE TABLE i ({definition}) ENGINE=Inkstone; ALTER TABLE i DISCARD TABLESPACE"
    ));
    made.map(drop)
}

fn refuse(
    server: &Server,
    folder: &Path,
    definition: &str,
    said: &str,
    change: impl Fn(String) -> String,
) -> Result<()> {
    make_table(server, definition)?;
    copy(folder, "kept", "i", change)?;
    match server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE") {
        Err(error) if error.contains("1808") && error.contains(said) => Ok(()),
        other => Err(format!(
            "a file imported as ({definition}): not error 1808 with \"{said}\", but {other:?}"
        )),
    }
}
