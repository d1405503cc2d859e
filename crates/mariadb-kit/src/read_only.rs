//! `inkstone_read_only` and `inkstone_force_recovery`: after a kill everything that was committed
//! can be read, nothing can be written, and no file changes.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What InnoDB's tables answer, too: `ER_OPEN_AS_READONLY`.
const ANSWER: &str = "ERROR 1036";

/// Options, and the value that rows have that a transaction changed and did not commit.
const MODES: [(&str, &str, &str); 4] = [
    ("loose-inkstone-read-only", "1", "1"),
    ("loose-inkstone-force-recovery", "1", "1"),
    ("loose-inkstone-force-recovery", "3", "1"),
    ("loose-inkstone-force-recovery", "5", "2"),
];

/// Checks it on a server without other clients.
pub fn check(server: &mut Server) -> Result<()> {
    server.sql(
        "CREATE OR REPLACE DATABASE dumped; \
         CREATE TABLE dumped.other (id INT) ENGINE=Inkstone; \
         CREATE TABLE dumped.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT, KEY (v)) ENGINE=Inkstone; \
         INSERT INTO dumped.t (v) SELECT 1 FROM seq_1_to_1000",
    )?;
    let mut session = Session::open(server, "dumped")?;
    let changed = session.run("BEGIN; UPDATE t SET v = 2; SELECT COUNT(*) FROM t WHERE v = 2;");
    if changed.as_deref() != Some(&["1000".to_owned()]) {
        return Err(format!("a transaction could not begin: {changed:?}"));
    }
    // With it the changes of the other one are durable. The server decides of a commit that was
    // under way when it starts; one that only reads is asked nothing.
    server.sql("INSERT INTO dumped.other VALUES (1); CREATE TABLE dumped.later (id INT) ENGINE=Inkstone; FLUSH LOGS")?;
    server.kill();
    let directory = server.data().join("inkstone");
    let before = files(&directory)?;
    for (option, value, expected) in MODES {
        server.set_option(option, value);
        server.start()?;
        check_mode(server, expected).map_err(|error| format!("{option}={value}: {error}"))?;
        server.stop()?;
        server.set_option(option, "0");
        if files(&directory)? != before {
            return Err(format!("{option}={value}: a file was changed"));
        }
    }
    server.start()?;
    server
        .sql("UPDATE dumped.t SET v = 3; DROP DATABASE dumped")
        .map(drop)
}

fn check_mode(server: &Server, expected: &str) -> Result<()> {
    let found = server.sql("SELECT COUNT(*), MIN(v), MAX(v) FROM dumped.t")?;
    let rows = format!("1000\t{expected}\t{expected}");
    if found.trim() != rows {
        return Err(format!("there is {found:?}, not {rows:?}"));
    }
    for look in ["ANALYZE", "CHECK"] {
        let said = server.sql(&format!("{look} TABLE dumped.t"))?;
        if !said.trim().ends_with("\tstatus\tOK") {
            return Err(format!("{look} TABLE: {said:?}"));
        }
    }
    server.sql(
        "XA START 'x'; SELECT COUNT(*) FROM dumped.t; XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
    )?;
    for write in [
        "INSERT INTO dumped.t (v) VALUES (1)",
        "UPDATE dumped.t SET v = v + 1 WHERE id = 1",
        "DELETE FROM dumped.t WHERE id = 1",
    ] {
        match server.sql(&format!("SET inkstone_lock_wait_timeout = 0; {write}")) {
            Err(error) if error.contains(ANSWER) || error.contains("ERROR 1205") => {}
            other => return Err(format!("{write}: not {ANSWER}, but {other:?}")),
        }
    }
    for change in [
        "CREATE TABLE dumped.u (id INT) ENGINE=Inkstone",
        "ALTER TABLE dumped.t ADD COLUMN w INT",
        "ALTER TABLE dumped.t ADD KEY (v, id)",
        "TRUNCATE TABLE dumped.t",
        "DROP TABLE dumped.t",
    ] {
        if let Ok(said) = server.sql(change) {
            return Err(format!("{change}: not refused, but {said:?}"));
        }
    }
    Ok(())
}

/// Length and time of the last change of all files of a directory and those in it.
fn files(directory: &Path) -> Result<BTreeMap<PathBuf, (u64, SystemTime)>> {
    let mut all = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if path.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                left.push(entry.map_err(failed)?.path());
            }
            continue;
        }
        let found = std::fs::metadata(&path).map_err(failed)?;
        let changed = found.modified().map_err(failed)?;
        all.insert(path, (found.len(), changed));
    }
    Ok(all)
}
