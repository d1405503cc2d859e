//! Transactions larger than the log, while servers are killed: each session inserts rows, then
//! updates them by a scan that meets the others' rows, and waits for those with all that it has
//! written. With a small log others must find room beside them all the same.

use super::random::Random;
use super::server::Server;
use super::session::Session;
use super::workload::is_conflict;
use inkstone_testkit::build::Result;
use std::sync::atomic::{AtomicU64, Ordering};

const DATABASE: &str = "giants";
/// Rows of a transaction: some 7 MB of log, and as much again for their update.
const ROWS: u64 = 100_000;
/// Options of a server on which they are larger than the log.
pub const OPTIONS: [&str; 2] = [
    "--inkstone-log-file-size=8M",
    "--inkstone-buffer-pool-size=32M",
];

/// Sessions that run giants.
pub struct Giants {
    seed: u64,
    /// Statements that were done.
    pub statements: AtomicU64,
}

impl Giants {
    /// Makes the table.
    pub fn set_up(server: &Server, seed: u64) -> Result<Self> {
        // They are for this server alone.
        server.script(&format!(
            "SET SESSION sql_log_bin = 0;
CREATE DATABASE {DATABASE};
CREATE TABLE {DATABASE}.rws (id BIGINT PRIMARY KEY, k INT, a INT, b BIGINT, v VARCHAR(100), KEY (a), UNIQUE (b)) ENGINE=Inkstone;
"
        ))?;
        Ok(Self {
            seed,
            statements: AtomicU64::new(0),
        })
    }

    /// Runs the transactions of session `k` until the server is gone.
    pub fn run(&self, server: &Server, k: u64) -> Result<()> {
        let mut session = Session::open(server, DATABASE)?;
        let done = self.statements.load(Ordering::Relaxed);
        let mut random = Random(self.seed ^ (k << 32) ^ done);
        let settings = "SET SESSION sql_log_bin = 0, inkstone_lock_wait_timeout = 20;";
        if session.run(settings).is_none() {
            return Ok(());
        }
        loop {
            let end = match random.below(3) {
                0 => "COMMIT;",
                1 => "ROLLBACK;",
                _ => "ROLLBACK TO half; COMMIT;",
            };
            let statements = [
                "BEGIN;".to_owned(),
                format!("DELETE FROM rws WHERE k = {k};"),
                "SAVEPOINT half;".to_owned(),
                format!(
                    "INSERT INTO rws SELECT {k} * 1000000 + seq * 7919 % 100003, {k}, seq % 1000, \
                     {k} * 1000000 + seq, REPEAT('g', 90) FROM seq_1_to_{ROWS};"
                ),
                format!("UPDATE rws SET a = a + 1, v = REPEAT('u', 80) WHERE k = {k};"),
                end.to_owned(),
            ];
            for statement in statements {
                let Some(lines) = session.run(&statement) else {
                    return Ok(());
                };
                if let Some(error) = lines.iter().find(|line| line.starts_with("ERROR")) {
                    if !is_conflict(error) {
                        return Err(format!("a giant fails: {statement} {error}"));
                    }
                    if session.run("ROLLBACK;").is_none() {
                        return Ok(());
                    }
                    break;
                }
                self.statements.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Fails if a transaction is there in part.
    pub fn check(&self, server: &Server) -> Result<()> {
        let parts = server.sql(&format!(
            "SELECT k, COUNT(*) FROM {DATABASE}.rws GROUP BY k HAVING COUNT(*) <> {ROWS}"
        ))?;
        if parts.trim().is_empty() {
            Ok(())
        } else {
            Err(format!("parts of giants of {ROWS} rows:\n{parts}"))
        }
    }
}
