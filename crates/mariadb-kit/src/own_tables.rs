//! Temporary tables: they write no log and sync nothing, outgrow their pool, are their session's
//! own, and nothing is left of them behind its end, a kill or a restart.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;

/// Beyond the pool of temporary tables, which is an eighth of 128 MiB.
const FILL: &str =
    "INSERT INTO own SELECT seq, REPEAT(CHAR(97 + seq % 26), 300) FROM seq_1_to_150000;";
const SUMS: &str = "SELECT COUNT(*), SUM(id), SUM(LENGTH(t)) FROM own;";
const SUMS_EXPECTED: &str = "150000\t11250075000\t45000000";

/// Statements that write to temporary tables alone.
const WRITES: [&str; 10] = [
    "CREATE TEMPORARY TABLE w (id INT PRIMARY KEY AUTO_INCREMENT, v INT, KEY (v)) ENGINE=Inkstone;",
    "INSERT INTO w (v) SELECT seq FROM seq_1_to_5000;",
    "INSERT INTO w (v) VALUES (1), (2);",
    "BEGIN; UPDATE w SET v = v + 1; SAVEPOINT s; DELETE FROM w WHERE v < 100; ROLLBACK TO s; COMMIT;",
    "BEGIN; DELETE FROM w; ROLLBACK;",
    "ALTER TABLE w ADD COLUMN n INT, ADD KEY (n);",
    "ALTER TABLE w MODIFY v BIGINT, ALGORITHM=COPY;",
    "CREATE TEMPORARY TABLE x ENGINE=Inkstone AS SELECT * FROM w;",
    "TRUNCATE TABLE w; ANALYZE TABLE x;",
    "DROP TEMPORARY TABLE w, x;",
];

/// Checks it on a server without other clients.
pub fn check(server: &mut Server) -> Result<()> {
    server.sql(
        "CREATE OR REPLACE DATABASE own; \
         CREATE TABLE own.kept (id INT PRIMARY KEY, v INT) ENGINE=Inkstone",
    )?;
    let mut one = Session::open(server, "own")?;
    writes_nothing(server, &mut one)?;
    outgrow(server, &mut one)?;
    let mut other = Session::open(server, "own")?;
    is_missing(&mut other)?;
    make(&mut other)?;
    expect(&mut other, "SELECT COUNT(*) FROM own;", "0")?;
    expect(&mut one, SUMS, SUMS_EXPECTED)?;
    expect(
        &mut one,
        "BEGIN; DELETE FROM own; INSERT INTO kept VALUES (1, 1); COMMIT; SELECT COUNT(*) FROM own;",
        "0",
    )?;
    expect(
        &mut other,
        "BEGIN; INSERT INTO own VALUES (1, 'x'); INSERT INTO kept VALUES (2, 2); SELECT id FROM own;",
        "1",
    )?;
    server.kill();
    drop((one, other));
    server.start()?;
    let found = server.sql("SELECT * FROM own.kept")?;
    if found.trim() != "1\t1" {
        return Err(format!("behind a kill there is {found:?}"));
    }
    let mut one = Session::open(server, "own")?;
    is_missing(&mut one)?;
    make(&mut one)?;
    expect(&mut one, FILL, "")?;
    expect(&mut one, SUMS, SUMS_EXPECTED)?;
    let files = std::fs::read_dir(server.data().join("inkstone"));
    let files = files.map_err(|error| format!("the engine's directory: {error}"))?;
    let names: Vec<_> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .collect();
    if names.iter().any(|name| name.contains("scratch")) {
        return Err(format!("there is a name of scratch: {names:?}"));
    }
    drop(one);
    server.sql("DROP DATABASE own").map(drop)
}

fn make(session: &mut Session) -> Result<()> {
    let create = "CREATE TEMPORARY TABLE own (id INT PRIMARY KEY, t VARCHAR(400)) ENGINE=Inkstone;";
    expect(session, create, "")
}

/// The session has no table of this name, whatever others have, or had before.
fn is_missing(session: &mut Session) -> Result<()> {
    let found = session.run(SUMS).ok_or("the server is gone")?;
    if found.iter().any(|line| line.starts_with("ERROR 1146 ")) {
        Ok(())
    } else {
        Err(format!("a table of another session is there: {found:?}"))
    }
}

fn expect(session: &mut Session, statements: &str, expected: &str) -> Result<()> {
    let found = session.run(statements).ok_or("the server is gone")?;
    if found.join("\n") == expected {
        Ok(())
    } else {
        Err(format!("{statements}: {found:?}, not {expected:?}"))
    }
}

/// Purge and checkpoints of what was before log a little now and then, in the background.
const ATTEMPTS: usize = 5;
const BACKGROUND_BYTES_MAX: u64 = 4096;

fn writes_nothing(server: &Server, session: &mut Session) -> Result<()> {
    // The first temporary table makes their database.
    let first = "CREATE TEMPORARY TABLE f (a INT) ENGINE=Inkstone; DROP TABLE f;";
    expect(session, first, "")?;
    let mut logged = Vec::new();
    for _ in 0..ATTEMPTS {
        logged = run_writes(server, session)?;
        if logged.is_empty() {
            return Ok(());
        }
    }
    Err(format!(
        "these write to the log or to rows that are kept: {logged:?}"
    ))
}

/// Those during which something was written.
fn run_writes(server: &Server, session: &mut Session) -> Result<Vec<&'static str>> {
    let mut logged = Vec::new();
    for statements in WRITES {
        let before = written(server)?;
        session.run(statements).ok_or("the server is gone")?;
        if written(server)? != before {
            logged.push(statements);
        }
    }
    Ok(logged)
}

/// Bytes of log, and rows that were written, as the database that is kept counts them.
fn written(server: &Server) -> Result<(u64, u64)> {
    let count = |names: &str| {
        let sum = format!(
            "SELECT CAST(SUM(variable_value) AS UNSIGNED) FROM information_schema.global_status \
             WHERE variable_name IN ({names})"
        );
        let found = server.sql(&sum)?;
        let number = found.trim().parse::<u64>();
        number.map_err(|error| format!("{names}: {found:?}: {error}"))
    };
    Ok((
        count("'inkstone_os_log_written'")?,
        count("'inkstone_rows_inserted', 'inkstone_rows_updated', 'inkstone_rows_deleted'")?,
    ))
}

fn outgrow(server: &Server, session: &mut Session) -> Result<()> {
    make(session)?;
    let (log_before, rows_before) = written(server)?;
    expect(session, FILL, "")?;
    expect(session, SUMS, SUMS_EXPECTED)?;
    let (log, rows) = written(server)?;
    if rows == rows_before && log - log_before < BACKGROUND_BYTES_MAX {
        Ok(())
    } else {
        Err(format!(
            "a large one logged {} bytes, and wrote {} rows that are kept",
            log - log_before,
            rows - rows_before
        ))
    }
}
