//! `inkstone_fast_shutdown`: what the next start says of each value, and that what was committed is
//! there, and nothing else.

use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;

const DATABASE: &str = "shutdown";

/// Values, and what the next start says where a connection had a transaction open.
const EXPECTED: [(u32, &[&str]); 4] = [
    (0, &["it had been closed in order"]),
    (1, &["it had been closed in order"]),
    (2, &["recovered in"]),
    (
        3,
        &[
            "it had been closed in order",
            "1 unfinished transactions rolled back",
        ],
    ),
];

/// Checks it on a server without other clients.
pub fn check(server: &mut Server) -> Result<()> {
    server.sql(
        "CREATE OR REPLACE DATABASE shutdown; \
         CREATE TABLE shutdown.t (id INT PRIMARY KEY, v INT) ENGINE=Inkstone; \
         INSERT INTO shutdown.t SELECT seq, 0 FROM seq_1_to_1000",
    )?;
    for (value, expected) in EXPECTED {
        // Nothing but the close makes this durable.
        server.sql(&format!(
            "SET GLOBAL inkstone_fast_shutdown = {value}; SET GLOBAL inkstone_flush_log_at_trx_commit = 0; \
             UPDATE shutdown.t SET v = v + 1"
        ))?;
        let mut session = Session::open(server, DATABASE)?;
        let changed =
            session.run("BEGIN; UPDATE t SET v = -1; SELECT COUNT(*) FROM t WHERE v = -1;");
        if changed.as_deref() != Some(&["1000".to_owned()]) {
            return Err(format!("a transaction could not begin: {changed:?}"));
        }
        server.stop()?;
        server.start()?;
        let said = opening(server)?;
        let rollback = said.contains("unfinished transactions rolled back");
        if !expected.iter().all(|words| said.contains(words)) || rollback && value < 2 {
            return Err(format!(
                "after inkstone_fast_shutdown = {value} the start says {said:?}, not {expected:?}"
            ));
        }
        let found = server.sql("SELECT COUNT(*), MIN(v), MAX(v) FROM shutdown.t")?;
        let rows = format!("1000\t{0}\t{0}", value + 1);
        if found.trim() != rows {
            return Err(format!(
                "after inkstone_fast_shutdown = {value} there is {found:?}, not {rows:?}"
            ));
        }
    }
    server.sql("DROP DATABASE shutdown").map(drop)
}

/// What the engine said of its last opening.
fn opening(server: &Server) -> Result<String> {
    let log = server.log();
    let text = std::fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let is_opening = |line: &&str| {
        line.contains("Inkstone: opened in") || line.contains("Inkstone: recovered in")
    };
    let line = text.lines().rev().find(is_opening);
    line.map(str::to_owned)
        .ok_or_else(|| "the error log says nothing of an opening".to_owned())
}
