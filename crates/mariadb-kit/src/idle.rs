//! What an idle session keeps: at READ COMMITTED nothing, at REPEATABLE READ the rows that its
//! snapshot sees.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::time::{Duration, Instant};

/// Purge that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(60);
/// Purge that has not come by then is held back. It comes four times a second; a machine that is
/// slower fails nothing.
const HELD_BACK: Duration = Duration::from_secs(1);
/// Rows, each in the table and in an index.
const ROWS: u64 = 500;

/// Statements of an open transaction, after which the session is idle: one that works, and those
/// that fail in the midst of their reads and changes.
const STATEMENTS: [&str; 4] = [
    "SELECT COUNT(*) FROM kept",
    "INSERT INTO kept SELECT id + 1, v FROM kept",
    "UPDATE kept SET id = id + 1 ORDER BY id",
    "SELECT (SELECT id FROM kept)",
];

/// Checks it on a server without other clients.
pub fn check(server: &Server) -> Result<()> {
    for statement in STATEMENTS {
        for (level, keeps) in [("READ COMMITTED", false), ("REPEATABLE READ", true)] {
            let what = format!("an idle session at {level} after {statement}");
            check_level(server, statement, level, keeps)
                .map_err(|error| format!("{what}: {error}"))?;
        }
    }
    server.sql("DROP DATABASE idle").map(drop)
}

fn check_level(server: &Server, statement: &str, level: &str, keeps: bool) -> Result<()> {
    server.sql(&format!(
        "CREATE OR REPLACE DATABASE idle; USE idle; SET default_storage_engine = Inkstone; \
         CREATE TABLE kept (id INT PRIMARY KEY, v INT, KEY (v)); INSERT INTO kept VALUES (1, 1), (2, 2); \
         CREATE TABLE gone (id INT PRIMARY KEY, v INT, KEY (v)); \
         INSERT INTO gone SELECT seq, seq FROM seq_1_to_{ROWS}"
    ))?;
    let mut session = Session::open(server, "idle")?;
    // Locking reads, as those of INSERT .. SELECT, take no snapshot: the first one does.
    let statements = format!(
        "SET TRANSACTION ISOLATION LEVEL {level}; BEGIN; SELECT id FROM kept; {statement};"
    );
    session.run(&statements).ok_or("the server is gone")?;
    let before = purged(server)?;
    server.sql("DELETE FROM idle.gone")?;
    if keeps {
        std::thread::sleep(HELD_BACK);
        if purged(server)? >= before + 2 * ROWS {
            return Err("the rows of its snapshot were purged".to_owned());
        }
        session.run("COMMIT;").ok_or("the server is gone")?;
    }
    let began = Instant::now();
    while purged(server)? < before + 2 * ROWS {
        if began.elapsed() > PATIENCE {
            return Err("nothing is purged".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    session.run("ROLLBACK;").ok_or("the server is gone")?;
    Ok(())
}

fn purged(server: &Server) -> Result<u64> {
    let value = server.sql(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'inkstone_rows_purged'",
    )?;
    value
        .trim()
        .parse()
        .map_err(|error| format!("rows purged: {value:?}: {error}"))
}
