//! Tables as files: what is imported must be what the definition says. Part of `--smoke`.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};

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

/// Definitions of which each column is alike, and what an index says of its rows is not: of the
/// file, of the table, and what error 1808 says.
const OTHER_ENTRIES: [(&str, &str, &str); 3] = [
    (
        "id INT PRIMARY KEY, s INT AS (id + 1) VIRTUAL, KEY s (s)",
        "id INT PRIMARY KEY, s INT AS (id + 2) VIRTUAL, KEY s (s)",
        "index 2 is s (s AS (`id` + 1)) in the file and s (s AS (`id` + 2))",
    ),
    (
        "id INT PRIMARY KEY, s TEXT DEFAULT id, t TEXT, UNIQUE KEY u (s)",
        "id INT PRIMARY KEY, s TEXT DEFAULT id, t TEXT, UNIQUE KEY u (t)",
        "index 2 is u (DB_ROW_HASH_1 AS (<hash>(`s`))) in the file and",
    ),
    (
        "id INT NOT NULL, s INT NOT NULL DEFAULT (-id), UNIQUE KEY i (id), UNIQUE KEY s (s)",
        "id INT NOT NULL, s INT NOT NULL DEFAULT (-id), UNIQUE KEY s (s), UNIQUE KEY i (id)",
        "by another unique index",
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
        refuse(server, &folder, "kept", definition, said, |cfg| cfg)?;
    }
    let of_version_1 = |cfg: String| cfg.replace("inkstone table 2\n", "inkstone table 1\n");
    refuse(
        server,
        &folder,
        "kept",
        EXPORTED,
        "export the table again",
        of_version_1,
    )?;
    let of_the_future = |cfg: String| cfg.replace("images\t\t", "images\t\t9");
    refuse(
        server,
        &folder,
        "kept",
        EXPORTED,
        "the file has key images of version",
        of_the_future,
    )?;

    compare_with_innodb(server, &folder)?;
    refuse_damaged(server, &folder)?;
    refuse_other_entries(server, &folder)?;
    check_partitions(server, &folder)?;
    check_placed(server, &folder)?;
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
    if of_each.next() == of_each.next() {
        Ok(())
    } else {
        Err(format!("an imported table is not the exported one: {sums}"))
    }
}

/// Tables that are exported, and imported as others: definition, statements before.
const COUNTED: [(&str, &str); 6] = [
    (
        "TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO c (v) VALUES (1), (2), (3), (4), (5); DELETE FROM c WHERE id > 3",
    ),
    (
        "TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, v INT) AUTO_INCREMENT=100",
        "INSERT INTO c (id, v) VALUES (5, 1)",
    ),
    (
        "TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, v INT, UNIQUE (v))",
        "INSERT INTO c (v) VALUES (1), (2); INSERT IGNORE INTO c (v) VALUES (1), (2)",
    ),
    (
        "TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO c VALUES (3, 3), (9, 9); UPDATE c SET id = 20 WHERE id = 9",
    ),
    ("TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, v INT)", "DO 1"),
    ("SEQUENCE c", "SELECT NEXTVAL(c), NEXTVAL(c)"),
];

/// What AUTO_INCREMENT and sequences give behind an import, sizes, and which files a DROP leaves,
/// must be as with InnoDB.
fn compare_with_innodb(server: &Server, folder: &Path) -> Result<()> {
    let exported: Vec<PathBuf> = ["ink", "cfg"]
        .iter()
        .map(|extension| folder.join(format!("kept.{extension}")))
        .collect();
    let failed = |error: std::io::Error| format!("the exported files cannot be read: {error}");
    let kept: Vec<Vec<u8>> = exported
        .iter()
        .map(std::fs::read)
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    let innodb = imported_by(server, folder, "InnoDB", "ibd")?;
    let inkstone = imported_by(server, folder, "Inkstone", "ink")?;
    for (path, bytes) in exported.iter().zip(kept) {
        std::fs::write(path, bytes).map_err(failed)?;
    }
    if innodb == inkstone {
        Ok(())
    } else {
        Err(format!(
            "tables of InnoDB and of Inkstone that were imported:\n{innodb}\n{inkstone}"
        ))
    }
}

/// What is seen of imported tables.
fn imported_by(server: &Server, folder: &Path, engine: &str, extension: &str) -> Result<String> {
    let mut seen = String::new();
    for (definition, statements) in COUNTED {
        let drop = "DROP TABLE IF EXISTS c, d";
        server.sql(&format!(
            "USE smoke; {drop}; CREATE {definition} ENGINE={engine}; {statements}"
        ))?;
        let mut session = Session::open(server, "smoke")?;
        session.run("FLUSH TABLES c FOR EXPORT;");
        copy_as(folder, "c", "kept", extension)?;
        session.run("UNLOCK TABLES;");
        server.sql("USE smoke; CREATE TABLE d LIKE c; ALTER TABLE d DISCARD TABLESPACE")?;
        copy_as(folder, "kept", "d", extension)?;
        let of_table =
            "INSERT INTO d (v) VALUES (77); SELECT * FROM d ORDER BY id; SHOW CREATE TABLE d";
        let uses = if definition.starts_with("SEQUENCE") {
            "SELECT NEXTVAL(d); SELECT * FROM d"
        } else {
            of_table
        };
        seen += &server.sql(&format!(
            "USE smoke; ALTER TABLE d IMPORT TABLESPACE; SHOW CREATE TABLE d; {uses}; \
             SELECT DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES WHERE TABLE_NAME = 'd'"
        ))?;
        // Files that are there for a discarded table go with it.
        server.sql("USE smoke; ALTER TABLE d DISCARD TABLESPACE")?;
        copy_as(folder, "kept", "d", extension)?;
        server.sql("USE smoke; DROP TABLE d")?;
        let left = |extension: &str| folder.join(format!("d.{extension}")).exists();
        seen += &format!("files left: {} {}\n", left(extension), left("cfg"));
        server.sql(&format!("USE smoke; {drop}"))?;
    }
    Ok(seen
        .replace(engine, "ENGINE")
        .replace(&engine.to_uppercase(), "ENGINE"))
}

/// Copies both files of a table.
fn copy_as(folder: &Path, from: &str, to: &str, extension: &str) -> Result<()> {
    for each in [extension, "cfg"] {
        let file = |name: &str| folder.join(format!("{name}.{each}"));
        std::fs::copy(file(from), file(to))
            .map_err(|error| format!("{from}.{each} cannot be copied: {error}"))?;
    }
    Ok(())
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

/// A file is refused whose index has other entries, and taken where it has the same ones, however
/// the session that exports quotes names.
fn refuse_other_entries(server: &Server, folder: &Path) -> Result<()> {
    for (exported, definition, said) in OTHER_ENTRIES {
        server.sql(&format!(
            "USE smoke; CREATE OR REPLACE TABLE o ({exported}) ENGINE=Inkstone; \
             INSERT INTO o (id) SELECT seq FROM seq_1_to_100"
        ))?;
        let mut session = Session::open(server, "smoke")?;
        session.run("SET sql_mode = 'ANSI_QUOTES', sql_quote_show_create = 0;");
        let flushed = session.run("FLUSH TABLES o FOR EXPORT;");
        let copied = copy(folder, "o", "others", |cfg| cfg);
        copied.map_err(|error| format!("{error}; {flushed:?}"))?;
        session.run("UNLOCK TABLES;");
        refuse(server, folder, "others", definition, said, |cfg| cfg)?;
        make_table(server, exported)?;
        copy(folder, "others", "i", |cfg| cfg)?;
        let checked = server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE; CHECK TABLE smoke.i")?;
        if !checked.contains("status\tOK") {
            return Err(format!("({exported}) imported: {checked}"));
        }
    }
    Ok(())
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

/// A table of placed pages is exported with its place map, and imported as the definition there
/// says; without the map it is refused.
fn check_placed(server: &Server, folder: &Path) -> Result<()> {
    server.sql(&format!(
        "CREATE TABLE smoke.q ({EXPORTED}) ENGINE=Inkstone PAGE_COMPRESSED=1; \
         INSERT INTO smoke.q SELECT * FROM smoke.e"
    ))?;
    let mut session = Session::open(server, "smoke")?;
    let flushed = session.run("FLUSH TABLES q FOR EXPORT;");
    let kept = copy(folder, "q", "placed", |cfg| cfg);
    kept.map_err(|error| format!("{error}; {flushed:?}"))?;
    session.run("UNLOCK TABLES;");
    let map = |name: &str| folder.join(format!("{name}.places"));
    if !map("placed").exists() || map("q").exists() {
        return Err("the place map of a placed table is not exported, or left".to_owned());
    }
    for placement in ["in_place", "placed"] {
        make_table(server, EXPORTED)?;
        server.sql(&format!(
            "USE smoke; CREATE OR REPLACE TABLE i ({EXPORTED}) ENGINE=Inkstone \
             PAGE_PLACEMENT={placement}; ALTER TABLE i DISCARD TABLESPACE"
        ))?;
        copy(folder, "placed", "i", |cfg| cfg)?;
        std::fs::remove_file(map("i")).map_err(|error| format!("i.places: {error}"))?;
        match server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE") {
            Err(error) if error.contains("1815") && error.contains("i.places") => {}
            other => return Err(format!("an import without its place map: {other:?}")),
        }
        copy(folder, "placed", "i", |cfg| cfg)?;
        server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE")?;
        let sums = server.sql("CHECKSUM TABLE smoke.e, smoke.i")?;
        let format = server.sql(
            "SELECT ROW_FORMAT FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'smoke' \
             AND TABLE_NAME = 'i'",
        )?;
        let mut of_each = sums.lines().filter_map(|line| line.split('\t').nth(1));
        if of_each.next() != of_each.next() || map("i").exists() {
            return Err(format!("a placed table imported as {placement}: {sums}"));
        }
        // The variable inkstone_page_compression is lz4 unless it is set.
        if format.contains("Compressed") != (placement == "placed") {
            return Err(format!("a table that was {placement} is now {format}"));
        }
    }
    Ok(())
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
    if is_same && analyzed.contains("not kept over a restart") {
        Ok(())
    } else {
        Err(format!(
            "ANALYZE of an exported table: file unchanged: {is_same}; {flushed}{analyzed}{unlocked}"
        ))
    }
}

/// Copies the files of a table, the description changed.
fn copy(folder: &Path, from: &str, to: &str, change: impl Fn(String) -> String) -> Result<()> {
    let failed = |error: std::io::Error| format!("files of table {from} cannot be copied: {error}");
    let file = |name: &str, extension: &str| folder.join(format!("{name}.{extension}"));
    std::fs::copy(file(from, "ink"), file(to, "ink")).map_err(failed)?;
    if file(from, "places").exists() {
        std::fs::copy(file(from, "places"), file(to, "places")).map_err(failed)?;
    }
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
    kept: &str,
    definition: &str,
    said: &str,
    change: impl Fn(String) -> String,
) -> Result<()> {
    make_table(server, definition)?;
    copy(folder, kept, "i", change)?;
    match server.sql("ALTER TABLE smoke.i IMPORT TABLESPACE") {
        Err(error) if error.contains("1808") && error.contains(said) => Ok(()),
        other => Err(format!(
            "a file imported as ({definition}): not error 1808 with \"{said}\", but {other:?}"
        )),
    }
}
