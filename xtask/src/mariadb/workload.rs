//! What runs while servers are killed: transfers between accounts, over both engines and by XA, each
//! with a row that says that it was committed; and DDL.

use super::random::Random;
use super::server::Server;
use super::session::Session;
use crate::build::Result;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub const ACCOUNTS: u64 = 100;
const BALANCE: u64 = 1000;

/// Databases of the workload.
pub const DATABASES: [&str; 2] = ["transfers", "definitions"];

/// Makes databases, tables and procedures. The `innodb_` tables take part in each third transaction.
pub fn set_up(server: &Server) -> Result<()> {
    server.sql("CREATE DATABASE transfers; CREATE DATABASE definitions")?;
    let script = format!(
        "USE transfers;
CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT, note VARCHAR(200), KEY (balance)) ENGINE=Inkstone;
INSERT INTO accounts SELECT seq, {BALANCE}, 'opened' FROM seq_0_to_{last};
CREATE TABLE done (worker INT, n BIGINT, PRIMARY KEY (worker, n)) ENGINE=Inkstone;
CREATE TABLE innodb_done (worker INT, n BIGINT, PRIMARY KEY (worker, n)) ENGINE=InnoDB;
CREATE TABLE history (id BIGINT AUTO_INCREMENT PRIMARY KEY, worker INT, n BIGINT, note LONGTEXT, KEY (worker, n)) ENGINE=Inkstone;
DELIMITER //
CREATE PROCEDURE transfer(w INT, m BIGINT, a INT, b INT, amount INT)
BEGIN
  DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK;
  START TRANSACTION;
  CALL work(w, m, a, b, amount);
  COMMIT;
  SELECT 'committed';
END//
CREATE PROCEDURE work(w INT, m BIGINT, a INT, b INT, amount INT)
BEGIN
  UPDATE accounts SET balance = balance - amount WHERE id = a;
  SAVEPOINT half;
  UPDATE accounts SET balance = 0 WHERE id = b;
  ROLLBACK TO half;
  UPDATE accounts SET balance = balance + amount, note = CONCAT('from ', a, ' by ', w, ' ', m) WHERE id = b;
  INSERT INTO history (worker, n, note) VALUES (w, m, REPEAT(CHAR(97 + m MOD 26), amount * IF(m MOD 50 = 0, 500, 1)));
  DELETE FROM history WHERE worker = w AND n = m - 200;
  INSERT INTO done VALUES (w, m);
  IF m MOD 3 = 0 THEN INSERT INTO innodb_done VALUES (w, m); END IF;
END//
DELIMITER ;
",
        last = ACCOUNTS - 1
    );
    server.script(&script)
}

/// A transaction of a worker.
pub type Done = (u64, u64);

/// Runs while servers come and go.
pub struct Workload {
    /// Transactions that a client was told are committed.
    pub acknowledged: Mutex<BTreeSet<Done>>,
    /// Tells the workers to come to an end.
    pub stop: AtomicBool,
    /// DDL statements that succeeded.
    pub definitions: AtomicU64,
    next: AtomicU64,
    seed: u64,
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        Self {
            acknowledged: Mutex::default(),
            stop: AtomicBool::new(false),
            definitions: AtomicU64::new(0),
            next: AtomicU64::new(1),
            seed,
        }
    }

    /// How many transactions were acknowledged.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().map_or(0, |set| set.len())
    }

    /// Transfers until the server is gone or `stop` is set. Worker 0 goes through XA.
    pub fn transfer(&self, server: &Server, worker: u64) -> Result<()> {
        let mut session = Session::open(server, "transfers")?;
        let mut random = Random(self.seed ^ (worker << 32) ^ self.next.load(Ordering::Relaxed));
        while !self.stop.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let (a, b) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            let amount = 1 + random.below(9);
            let call = format!("({worker}, {n}, {a}, {b}, {amount});");
            let lines = match worker {
                0 => xa(&mut session, n, &call),
                _ => session.run(&format!("CALL transfer{call}")),
            };
            let Some(lines) = lines else {
                return Ok(());
            };
            if lines.iter().any(|line| line == "committed")
                && let Ok(mut acknowledged) = self.acknowledged.lock()
            {
                acknowledged.insert((worker, n));
            }
        }
        Ok(())
    }

    /// Makes, changes, renames and drops tables until the server is gone or `stop` is set.
    pub fn define(&self, server: &Server) -> Result<()> {
        let mut session = Session::open(server, "definitions")?;
        let mut random = Random(self.seed ^ self.next.load(Ordering::Relaxed));
        while !self.stop.load(Ordering::Relaxed) {
            let Some(lines) = session.run(&definition(&mut random)) else {
                return Ok(());
            };
            if !lines.iter().any(|line| line.starts_with("ERROR")) {
                self.definitions.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// One transfer as an XA transaction. An error of a part rolls all of it back.
fn xa(session: &mut Session, n: u64, call: &str) -> Option<Vec<String>> {
    let failed = |lines: &[String]| lines.iter().any(|line| line.starts_with("ERROR"));
    let lines = session.run(&format!("XA START 'x{n}'; CALL work{call}"))?;
    if failed(&lines) {
        return session.run(&format!("XA END 'x{n}'; XA ROLLBACK 'x{n}';"));
    }
    let lines = session.run(&format!("XA END 'x{n}'; XA PREPARE 'x{n}';"))?;
    if failed(&lines) {
        return session.run(&format!("XA ROLLBACK 'x{n}';"));
    }
    let lines = session.run(&format!("XA COMMIT 'x{n}';"))?;
    match failed(&lines) {
        true => Some(lines),
        false => Some(vec!["committed".to_owned()]),
    }
}

/// A statement of DDL over few names, so that many of them meet a table.
fn definition(random: &mut Random) -> String {
    let name = format!("d{}", random.below(6));
    let other = format!("d{}", random.below(6));
    let columns =
        "(id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(100), c MEDIUMTEXT, KEY (a))";
    let parts = "PARTITION BY HASH (id) PARTITIONS 3";
    match random.below(14) {
        0 => format!("CREATE TABLE {name} {columns} ENGINE=Inkstone;"),
        1 => format!("CREATE TABLE {name} {columns} ENGINE=Inkstone {parts};"),
        2 => format!(
            "CREATE OR REPLACE TABLE {name} {columns} ENGINE=Inkstone SELECT seq AS a, 'x' AS b FROM seq_1_to_300;"
        ),
        3 | 4 => format!(
            "INSERT INTO {name} (a, b, c) SELECT seq, CONCAT('b', seq), REPEAT('c', seq) FROM seq_1_to_200;"
        ),
        5 => format!("ALTER TABLE {name} ADD INDEX ab (a, b);"),
        6 => format!("ALTER TABLE {name} DROP INDEX ab;"),
        7 => format!("ALTER TABLE {name} ADD COLUMN e INT DEFAULT 5;"),
        8 => format!("ALTER TABLE {name} ENGINE=Inkstone, FORCE;"),
        9 => format!("RENAME TABLE {name} TO {other};"),
        10 => format!("TRUNCATE TABLE {name};"),
        11 => format!("ALTER TABLE {name} {parts};"),
        12 => format!("ALTER TABLE {name} REMOVE PARTITIONING;"),
        _ => format!("DROP TABLE {name};"),
    }
}

/// Checks what must hold at any time in the tables of the transfers.
pub fn check(server: &Server, acknowledged: &BTreeSet<Done>) -> Result<()> {
    let total = server.sql("SELECT SUM(balance) FROM transfers.accounts")?;
    if total.trim() != (ACCOUNTS * BALANCE).to_string() {
        return Err(format!(
            "the accounts add up to {}, not {}",
            total.trim(),
            ACCOUNTS * BALANCE
        ));
    }
    let done = server.sql("SELECT worker, n FROM transfers.done")?;
    let done: BTreeSet<Done> = done
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(worker, n)| Some((worker.parse().ok()?, n.parse().ok()?)))
        .collect();
    let lost: Vec<&Done> = acknowledged.difference(&done).collect();
    if !lost.is_empty() {
        return Err(format!(
            "{} acknowledged transactions are lost: {lost:?}",
            lost.len()
        ));
    }
    let apart = server.sql(
        "SELECT worker, n, 'only Inkstone' FROM transfers.done WHERE n MOD 3 = 0 AND (worker, n) NOT IN \
         (SELECT worker, n FROM transfers.innodb_done) \
         UNION ALL SELECT worker, n, 'only InnoDB' FROM transfers.innodb_done WHERE (worker, n) NOT IN \
         (SELECT worker, n FROM transfers.done)",
    )?;
    match apart.trim().is_empty() {
        true => Ok(()),
        false => Err(format!(
            "transactions are committed in one engine only:\n{apart}"
        )),
    }
}
