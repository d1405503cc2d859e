//! Tables that refer to each other, and whose indexes come and go beside writers, while servers are
//! killed. After each restart no row is without the row that it refers to, and a table's rows are
//! the same by each of its indexes.

use super::random::Random;
use super::server::Server;
use super::session::Session;
use inkstone_testkit::build::Result;
use std::sync::atomic::{AtomicU64, Ordering};

/// The database.
pub const FAMILIES: &str = "families";

const PARENTS: u64 = 1_000;
const ROWS: u64 = 5_000;
/// Parents that go at once, with some 3,000 rows behind them.
const MANY: u64 = 500;

/// What a writer may be told: a duplicate, a wait that is too long, a deadlock, a definition that
/// has changed, rows that refer to the row, and a row that is not there to be referred to.
const TOLD: [&str; 6] = ["1062", "1205", "1213", "1412", "1451", "1452"];
/// What an ALTER may be told: a wait that is too long.
const ALTER_TOLD: [&str; 1] = ["1205"];

/// Tables whose indexes come and go; those of partitioned tables have no foreign keys.
const TABLES: [&str; 2] = ["children", "hashed"];
const COLUMNS: &str = "(id INT PRIMARY KEY, parent INT, k INT, a INT NOT NULL, s VARCHAR(60) NOT NULL, u BIGINT, \
     twice INT AS (a * 2)";
/// What is behind the names of indexes that come and go, of which there are two.
const INDEXES: [&str; 7] = [
    "INDEX IF NOT EXISTS <I> (a)",
    "INDEX IF NOT EXISTS <I> (s(3), a)",
    "INDEX IF NOT EXISTS <I> (twice)",
    "INDEX IF NOT EXISTS <I> (a DESC, s)",
    "INDEX IF NOT EXISTS <I> (k, parent)",
    "UNIQUE IF NOT EXISTS <I> (u, id)",
    "UNIQUE IF NOT EXISTS <I> (s, id)",
];

/// A workload in a database of its own. Its writers' changes are in the binary log, of which a
/// replica makes the same: what follows a parent's row is not in it.
pub struct Families {
    seed: u64,
    /// Statements of writers that succeeded.
    pub written: AtomicU64,
    /// Statements that added or dropped indexes.
    pub altered: AtomicU64,
    /// Such statements in which a server was killed.
    pub cut: AtomicU64,
}

impl Families {
    /// Makes the tables.
    pub fn set_up(server: &Server, seed: u64) -> Result<Self> {
        let rows = format!(
            "SELECT seq, 1 + seq % {PARENTS}, IF(seq % 3, 1 + seq % {PARENTS}, NULL), seq % 97, \
             CONCAT('name ', seq % 50), seq FROM seq_1_to_{ROWS}"
        );
        server.script(&format!(
            "CREATE DATABASE {FAMILIES}; USE {FAMILIES};
CREATE TABLE parents (id INT PRIMARY KEY, k INT, UNIQUE (k)) ENGINE=Inkstone;
CREATE TABLE children {COLUMNS}, KEY (parent), KEY (k), \
FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE, \
FOREIGN KEY (k) REFERENCES parents (k) ON DELETE SET NULL ON UPDATE CASCADE) ENGINE=Inkstone;
CREATE TABLE grandchildren (id INT AUTO_INCREMENT PRIMARY KEY, child INT, KEY (child), \
FOREIGN KEY (child) REFERENCES children (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE=Inkstone;
CREATE TABLE hashed {COLUMNS}) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 3;
INSERT INTO parents SELECT seq, seq FROM seq_1_to_{PARENTS};
INSERT INTO children (id, parent, k, a, s, u) {rows};
INSERT INTO hashed (id, parent, k, a, s, u) {rows};
"
        ))?;
        Ok(Self {
            seed,
            written: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        })
    }

    fn random(&self, session: u64) -> Random {
        Random(self.seed ^ (session << 32) ^ self.written.load(Ordering::Relaxed))
    }

    /// Changes rows until the server is gone.
    pub fn write(&self, server: &Server, worker: u64) -> Result<()> {
        let mut session = Session::open(server, FAMILIES)?;
        let mut random = self.random(worker);
        while self.transact(&mut session, &mut random)?.is_some() {}
        Ok(())
    }

    /// Runs a transaction; nothing if the server is gone.
    fn transact(&self, session: &mut Session, random: &mut Random) -> Result<Option<()>> {
        let mut statements = vec!["BEGIN;".to_owned()];
        for _ in 0..random.between(1, 5) {
            statements.push(change(random));
        }
        if random.chance(20) {
            statements.insert(2, "SAVEPOINT half;".to_owned());
            statements.push("ROLLBACK TO half;".to_owned());
        }
        let end = if random.chance(25) {
            "ROLLBACK;"
        } else {
            "COMMIT;"
        };
        statements.push(end.to_owned());
        for statement in statements {
            let Some(succeeded) = run(session, &statement, &TOLD)? else {
                return Ok(None);
            };
            if !succeeded {
                return run(session, "ROLLBACK;", &[]).map(|done| done.map(drop));
            }
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Some(()))
    }

    /// Adds and drops indexes until the server is gone. A replica has the rows only: a server that
    /// is killed may have an index that its binary log has not.
    pub fn alter(&self, server: &Server) -> Result<()> {
        let mut session = Session::open(server, FAMILIES)?;
        let mut random = self.random(u64::from(u32::MAX));
        if session
            .run("SET SESSION sql_log_bin = 0, lock_wait_timeout = 5;")
            .is_none()
        {
            return Ok(());
        }
        loop {
            let Some(succeeded) = run(&mut session, &alteration(&mut random), &ALTER_TOLD)? else {
                self.cut.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            };
            self.altered
                .fetch_add(u64::from(succeeded), Ordering::Relaxed);
        }
    }

    /// Fails if a row is without the row that it refers to, or an index gives other rows than its
    /// table has.
    pub fn check(&self, server: &Server) -> Result<()> {
        let orphans = server.sql(&format!(
            "USE {FAMILIES}; \
             SELECT 'children', c.id FROM children c LEFT JOIN parents p ON p.id = c.parent \
             WHERE c.parent IS NOT NULL AND p.id IS NULL; \
             SELECT 'children by k', c.id FROM children c LEFT JOIN parents p ON p.k = c.k \
             WHERE c.k IS NOT NULL AND p.k IS NULL; \
             SELECT 'grandchildren', g.id FROM grandchildren g LEFT JOIN children c ON c.id = g.child \
             WHERE g.child IS NOT NULL AND c.id IS NULL"
        ))?;
        if !orphans.trim().is_empty() {
            return Err(format!("rows refer to rows that are not there:\n{orphans}"));
        }
        TABLES
            .iter()
            .try_for_each(|table| compare_indexes(server, table))
    }
}

fn change(random: &mut Random) -> String {
    let (id, n) = (random.between(1, ROWS + 500), random.below(900));
    let (table, parent) = (random.word(&TABLES), random.between(1, PARENTS));
    let aside = random.between(PARENTS + 1, 3 * PARENTS);
    match random.weighted(&[3, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2]) {
        0 => format!(
            "UPDATE {table} SET a = {n}, s = 'n\u{e1}me {n}' WHERE id BETWEEN {id} AND {id} + 4;"
        ),
        1 => format!("DELETE FROM {table} WHERE id = {id};"),
        2 => format!("UPDATE {table} SET id = {n} WHERE id = {id};"),
        3 => format!("UPDATE {table} SET u = -u, k = NULL WHERE id BETWEEN {id} AND {id} + 5;"),
        4 => format!(
            "REPLACE INTO {table} (id, parent, k, a, s, u) VALUES ({id}, {parent}, NULL, {n}, 'x', {id});"
        ),
        5 => format!(
            "INSERT INTO {table} (id, parent, a, s, u) SELECT seq, {parent}, seq % 33, seq, seq \
             FROM seq_{id}_to_{} ON DUPLICATE KEY UPDATE a = a + 1, s = CONCAT(LEFT(s, 9), '+');",
            id + 20
        ),
        6 => format!("DELETE FROM parents WHERE id = {parent};"),
        7 => format!("UPDATE parents SET id = {aside}, k = {aside} WHERE id = {parent};"),
        8 => format!("DELETE FROM parents WHERE id BETWEEN {parent} AND {parent} + {MANY};"),
        9 => format!("INSERT IGNORE INTO parents SELECT seq, seq FROM seq_1_to_{PARENTS};"),
        10 => format!(
            "INSERT IGNORE INTO children (id, parent, k, a, s, u) SELECT seq, id, k, seq % 97, 'again', seq \
             FROM parents, seq_1_to_{ROWS} WHERE id = 1 + seq % {PARENTS};"
        ),
        11 => format!(
            "INSERT INTO grandchildren (child) SELECT id FROM children WHERE id BETWEEN {id} AND {id} + 30;"
        ),
        _ => format!(
            "UPDATE children SET parent = {parent}, k = {parent} WHERE id BETWEEN {id} AND {id} + 3;"
        ),
    }
}

/// An ALTER of one index, or of both in one statement.
fn alteration(random: &mut Random) -> String {
    let add = |random: &mut Random, name: &str| {
        format!("ADD {}", random.word(&INDEXES).replace("<I>", name))
    };
    let drop = |name: &str| format!("DROP INDEX IF EXISTS {name}");
    let parts = match random.below(4) {
        0 => add(random, "i"),
        1 => format!("{}, {}", add(random, "i"), add(random, "j")),
        2 => format!("{}, {}", drop("i"), add(random, "j")),
        _ => format!("{}, {}", drop("i"), drop("j")),
    };
    format!("ALTER TABLE {} {parts}, LOCK=NONE;", random.word(&TABLES))
}

/// Fails unless each index, read from one end to the other, gives the rows of its table.
fn compare_indexes(server: &Server, table: &str) -> Result<()> {
    let indexes = server.sql(&format!(
        "SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = '{FAMILIES}' \
         AND table_name = '{table}' AND seq_in_index = 1 AND index_name <> 'PRIMARY'"
    ))?;
    for line in indexes.lines() {
        let (index, column) = line.split_once('\t').unwrap_or_default();
        let all = match column {
            "s" => "s >= ''".to_owned(),
            number => format!("({number} IS NULL OR {number} > -1000000)"),
        };
        let rows = |index: &str| {
            format!(
                "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', id, parent, IFNULL(k, '-'), a, s, u, twice))) \
                 FROM {FAMILIES}.{table} FORCE INDEX ({index}) WHERE {all}"
            )
        };
        let found = server.sql(&format!("{} UNION {}", rows(index), rows("PRIMARY")))?;
        if found.lines().count() != 1 {
            return Err(format!(
                "index {index} of {table} gives other rows than the table has, by number and sum:\n{found}"
            ));
        }
    }
    Ok(())
}

/// Whether a statement succeeded, which fails with none but these errors; nothing if the server is
/// gone.
fn run(session: &mut Session, statement: &str, told: &[&str]) -> Result<Option<bool>> {
    let Some(lines) = session.run(statement) else {
        return Ok(None);
    };
    let Some(error) = lines.iter().find(|line| line.starts_with("ERROR")) else {
        return Ok(Some(true));
    };
    let code = error.split(' ').nth(1).unwrap_or_default();
    if told.contains(&code) {
        Ok(Some(false))
    } else {
        Err(format!("{statement} {error}"))
    }
}
