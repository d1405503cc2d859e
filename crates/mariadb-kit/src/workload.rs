//! What runs while servers are killed: transfers between accounts, each with a row that says that
//! it was committed; XA transactions over both engines; DDL.

use super::kept;
use super::random::Random;
use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const ACCOUNTS: u64 = 100;
const BALANCE: u64 = 1000;

/// The database of the transfers.
pub const TRANSFERS: &str = "transfers";
/// The database of the DDL.
pub const DEFINITIONS: &str = "definitions";
/// The database of the XA transactions.
pub const DISTRIBUTED: &str = "distributed";

/// Makes databases, tables and procedures. The `innodb_` tables take part in each third
/// transaction.
pub fn set_up(server: &Server) -> Result<()> {
    for database in [TRANSFERS, DEFINITIONS, DISTRIBUTED] {
        server.sql(&format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
    }
    let script = format!(
        "USE {TRANSFERS};
CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT, note VARCHAR(200), KEY (balance)) ENGINE=Inkstone;
INSERT INTO accounts SELECT seq, {BALANCE}, 'opened' FROM seq_0_to_{last};
CREATE TABLE done (worker INT, n BIGINT, PRIMARY KEY (worker, n)) ENGINE=Inkstone;
CREATE TABLE innodb_done (worker INT, n BIGINT, PRIMARY KEY (worker, n)) ENGINE=InnoDB;
CREATE TABLE history (id BIGINT AUTO_INCREMENT PRIMARY KEY, worker INT, n BIGINT, note LONGTEXT, KEY (worker, n)) ENGINE=Inkstone;
DELIMITER //
CREATE PROCEDURE transfer(w INT, m BIGINT, a INT, b INT, amount INT)
BEGIN
  DECLARE code INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
    GET DIAGNOSTICS CONDITION 1 code = MYSQL_ERRNO;
    ROLLBACK;
    SELECT CONCAT('ERROR ', code, ' in a transfer');
  END;
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
USE {DISTRIBUTED};
CREATE TABLE done (n BIGINT PRIMARY KEY) ENGINE=Inkstone;
CREATE TABLE innodb_done (n BIGINT PRIMARY KEY) ENGINE=InnoDB;
",
        last = ACCOUNTS - 1
    );
    server.script(&script)
}

/// A transaction of a worker.
type Done = (u64, u64);

/// Runs while servers come and go.
pub struct Workload {
    /// Transactions that a client was told are committed.
    acknowledged: Mutex<BTreeSet<Done>>,
    /// XA transactions that a client was told are prepared.
    prepared: Mutex<BTreeSet<u64>>,
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
            prepared: Mutex::default(),
            stop: AtomicBool::new(false),
            definitions: AtomicU64::new(0),
            next: AtomicU64::new(1),
            seed,
        }
    }

    /// How many transactions were acknowledged.
    pub fn count(&self) -> usize {
        locked(&self.acknowledged).len() + locked(&self.prepared).len()
    }

    /// Transfers until the server is gone or `stop` is set.
    pub fn transfer(&self, server: &Server, worker: u64) -> Result<()> {
        let mut session = Session::open(server, TRANSFERS)?;
        let mut random = Random(self.seed ^ (worker << 32) ^ self.next.load(Ordering::Relaxed));
        while !self.stop.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let (a, b) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            let amount = 1 + random.below(9);
            let call = format!("CALL transfer({worker}, {n}, {a}, {b}, {amount});");
            let Some(lines) = session.run(&call) else {
                return Ok(());
            };
            let error = lines.iter().find(|line| line.starts_with("ERROR"));
            if let Some(error) = error.filter(|error| !is_conflict(error)) {
                return Err(format!("{call} {error}"));
            }
            if lines.iter().any(|line| line == "committed") {
                locked(&self.acknowledged).insert((worker, n));
            }
        }
        Ok(())
    }

    /// XA transactions over both engines until the server is gone or `stop` is set. They are not in
    /// the binary log, which this version of MariaDB does not keep in step with user XA over a
    /// crash.
    pub fn distribute(&self, server: &Server) -> Result<()> {
        let mut session = Session::open(server, DISTRIBUTED)?;
        if session.run("SET SESSION sql_log_bin = 0;").is_none() {
            return Ok(());
        }
        while !self.stop.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let prepare = format!(
                "XA START '{n}'; INSERT INTO done VALUES ({n}); INSERT INTO innodb_done VALUES ({n}); \
                 XA END '{n}'; XA PREPARE '{n}'; SELECT 'prepared';"
            );
            let Some(lines) = session.run(&prepare) else {
                return Ok(());
            };
            if lines != ["prepared"] {
                return Err(format!(
                    "an XA transaction alone on its rows fails: {lines:?}"
                ));
            }
            locked(&self.prepared).insert(n);
            if session.run(&format!("XA COMMIT '{n}';")).is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends what a crash left prepared: committed if the client was told that it is prepared, else
    /// rolled back, because an engine may have missed it.
    pub fn settle(&self, server: &Server) -> Result<()> {
        for line in server.sql("XA RECOVER")?.lines() {
            let name = line.rsplit('\t').next().unwrap_or_default();
            let prepared = name
                .parse()
                .is_ok_and(|n| locked(&self.prepared).contains(&n));
            let way = if prepared { "COMMIT" } else { "ROLLBACK" };
            server.sql(&format!("SET SESSION sql_log_bin = 0; XA {way} '{name}'"))?;
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

/// Whether others are the reason of an error: it is a deadlock, or a wait that was too long.
pub fn is_conflict(error: &str) -> bool {
    ["ERROR 1213 ", "ERROR 1205 "]
        .iter()
        .any(|conflict| error.starts_with(conflict))
}

/// Locks; a thread that panicked meanwhile is reported where it is joined.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A statement of DDL over few names, so that many of them meet a table. Partitioned tables are
/// [`super::partitioned`]'s.
fn definition(random: &mut Random) -> String {
    let name = format!("d{}", random.below(6));
    let other = format!("d{}", random.below(6));
    let columns =
        "(id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(100), c MEDIUMTEXT, KEY (a))";
    match random.below(12) {
        0 => format!("CREATE TABLE {name} {columns} ENGINE=Inkstone;"),
        1 => format!(
            "CREATE OR REPLACE TABLE {name} {columns} ENGINE=Inkstone SELECT seq AS a, 'x' AS b FROM seq_1_to_300;"
        ),
        2 | 3 => format!(
            "INSERT INTO {name} (a, b, c) SELECT seq, CONCAT('b', seq), REPEAT('c', seq) FROM seq_1_to_200;"
        ),
        4 => format!("ALTER TABLE {name} ADD INDEX ab (a, b);"),
        5 => format!("ALTER TABLE {name} DROP INDEX ab;"),
        6 => format!("ALTER TABLE {name} ADD COLUMN e INT DEFAULT 5;"),
        7 => format!("ALTER TABLE {name} ENGINE=Inkstone, FORCE;"),
        8 => format!("RENAME TABLE {name} TO {other};"),
        9 => format!("TRUNCATE TABLE {name};"),
        10 => format!("ALTER TABLE {name} {};", kept::asked(random)),
        _ => format!("DROP TABLE {name};"),
    }
}

/// Fails unless every acknowledged transaction is there, and in both engines if it was in both.
pub fn check(server: &Server, work: &Workload) -> Result<()> {
    let total = server.sql("SELECT SUM(balance) FROM transfers.accounts")?;
    if total.trim() != (ACCOUNTS * BALANCE).to_string() {
        let expected = ACCOUNTS * BALANCE;
        return Err(format!(
            "the accounts add up to {}, not {expected}",
            total.trim()
        ));
    }
    let done = server.sql("SELECT worker, n FROM transfers.done")?;
    let done: BTreeSet<Done> = done
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(worker, n)| Some((worker.parse().ok()?, n.parse().ok()?)))
        .collect();
    let acknowledged = locked(&work.acknowledged);
    let lost: Vec<&Done> = acknowledged.difference(&done).collect();
    if !lost.is_empty() {
        return Err(format!(
            "{} acknowledged transactions are lost: {lost:?}",
            lost.len()
        ));
    }
    let done = server.sql("SELECT n FROM distributed.done")?;
    let done: BTreeSet<u64> = done.lines().filter_map(|line| line.parse().ok()).collect();
    let prepared = locked(&work.prepared);
    let lost: Vec<&u64> = prepared.difference(&done).collect();
    if !lost.is_empty() {
        return Err(format!(
            "{} prepared XA transactions are lost: {lost:?}",
            lost.len()
        ));
    }
    let apart = [("transfers", "n MOD 3 = 0"), ("distributed", "TRUE")].map(|(database, both)| {
        format!(
            "SELECT '{database}', n, 'only Inkstone' FROM {database}.done \
             WHERE {both} AND n NOT IN (SELECT n FROM {database}.innodb_done) \
             UNION ALL SELECT '{database}', n, 'only InnoDB' FROM {database}.innodb_done \
             WHERE n NOT IN (SELECT n FROM {database}.done)"
        )
    });
    let apart = server.sql(&apart.join("; "))?;
    if apart.trim().is_empty() {
        Ok(())
    } else {
        Err(format!(
            "transactions are committed in one engine only:\n{apart}"
        ))
    }
}
