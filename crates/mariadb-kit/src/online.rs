//! Tables that are altered beside writers: none of their changes may be missing in an index or in a
//! table that is made anew, and they do not wait for the whole ALTER. And children follow their
//! parents' rows meanwhile.

use super::client::{Client, Reply};
use super::random::Random;
use super::server::Server;
use inkstone_testkit::build::Result;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the indexes of one table come and go.
const TIME: Duration = Duration::from_secs(2);
const WRITERS: u64 = 3;
const ROWS: u64 = 6_000;
const PARENTS: u64 = 50;
const CHILDREN: u64 = 500;
/// Between transactions of a writer of parents, at most.
const THINKS_US: u64 = 8_000;

/// What a writer may be told: a duplicate, a lock wait that is too long, a deadlock, and that the
/// definition has changed.
const TOLD: [u16; 4] = [1062, 1205, 1213, 1412];

/// What an ALTER changes, and what takes it back.
const CHANGES: [(&str, &str); 13] = [
    ("ADD INDEX i (a)", "DROP INDEX i"),
    ("ADD INDEX i (s)", "DROP INDEX i"),
    ("ADD INDEX i (t(100))", "DROP INDEX i"),
    ("ADD INDEX i (twice)", "DROP INDEX i"),
    ("ADD INDEX i (a DESC, s(3))", "DROP INDEX i"),
    ("ADD UNIQUE i (u, id)", "DROP INDEX i"),
    ("ADD UNIQUE i (s, id)", "DROP INDEX i"),
    (
        "ADD INDEX i (a), ADD INDEX j (s), ADD UNIQUE k (id, a)",
        "DROP INDEX i, DROP INDEX j, DROP INDEX k",
    ),
    ("FORCE", "FORCE"),
    (
        "FORCE, ADD INDEX i (twice), ADD UNIQUE k (s, id)",
        "DROP INDEX i, DROP INDEX k",
    ),
    (
        "DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    ),
    (
        "ADD COLUMN z INT NOT NULL DEFAULT 3, ADD INDEX i (z, a)",
        "DROP COLUMN z, DROP INDEX i",
    ),
    (
        "ADD INDEX i (n), MODIFY n INT NULL DEFAULT 0",
        "DROP COLUMN n, DROP INDEX i, ADD COLUMN n INT NOT NULL DEFAULT 0",
    ),
];

/// What all rows of the table and of the one that its triggers keep sum up to: the same.
const SUMS: &str = "SELECT (SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT_WS('/', id, a, s, t, u)))) FROM t), \
    (SELECT CONCAT(COUNT(*), ' ', SUM(CRC32(CONCAT_WS('/', id, a, s, t, u)))) FROM kept)";

/// Checks it on a server without other clients.
pub fn check(server: &Server) -> Result<()> {
    for partitions in ["", "PARTITION BY HASH (id) PARTITIONS 3"] {
        server.sql(&format!(
            "CREATE OR REPLACE DATABASE online; USE online; CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(60), \
             t TEXT, u BIGINT, n INT NOT NULL DEFAULT 0, twice INT AS (a * 2)) ENGINE = Inkstone {partitions}; \
             INSERT INTO t (id, a, s, t, u) \
             SELECT seq, seq % 97, CONCAT('name ', seq % 50), REPEAT('long ', seq % 90), seq FROM seq_1_to_{ROWS}; \
             CREATE TABLE kept (id INT PRIMARY KEY, a INT, s VARCHAR(60), t TEXT, u BIGINT) ENGINE = Inkstone; \
             INSERT INTO kept SELECT id, a, s, t, u FROM t; \
             CREATE TRIGGER inserted AFTER INSERT ON t FOR EACH ROW \
             INSERT INTO kept VALUES (NEW.id, NEW.a, NEW.s, NEW.t, NEW.u); \
             CREATE TRIGGER updated AFTER UPDATE ON t FOR EACH ROW \
             UPDATE kept SET id = NEW.id, a = NEW.a, s = NEW.s, t = NEW.t, u = NEW.u WHERE id = OLD.id; \
             CREATE TRIGGER deleted AFTER DELETE ON t FOR EACH ROW DELETE FROM kept WHERE id = OLD.id"
        ))?;
        let (over, written) = (&AtomicBool::new(false), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let socket = server.socket();
            let writer = |seed| scope.spawn(move || write(socket, Random(seed), over, written));
            let writers: Vec<_> = (1..=WRITERS).map(writer).collect();
            let altered = alter(server, written, !partitions.is_empty());
            over.store(true, Ordering::Relaxed);
            let ended = writers
                .into_iter()
                .try_for_each(|writer| writer.join().expect("a writer does not panic"));
            altered.and(ended)
        })?;
    }
    check_followers(server)?;
    server.sql("DROP DATABASE online").map(drop)
}

/// Has rows of a parent change beside ALTERs of its child that give its indexes other numbers.
fn check_followers(server: &Server) -> Result<()> {
    server.sql(&format!(
        "USE online; CREATE TABLE parents (id INT PRIMARY KEY) ENGINE = Inkstone; \
         CREATE TABLE children (id INT PRIMARY KEY, parent INT, u INT, KEY (parent), \
         FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE = Inkstone; \
         INSERT INTO parents SELECT seq FROM seq_1_to_{PARENTS}; \
         INSERT INTO children SELECT seq, 1 + seq % {PARENTS}, seq FROM seq_1_to_{CHILDREN}"
    ))?;
    let (over, followed) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        let socket = server.socket();
        let writer =
            |seed| scope.spawn(move || change_parents(socket, Random(seed), over, followed));
        let writers: Vec<_> = (1..=WRITERS).map(writer).collect();
        let altered = alter_children(socket);
        over.store(true, Ordering::Relaxed);
        let ended = writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("a writer does not panic"));
        altered.and(ended)
    })?;
    match followed.load(Ordering::Relaxed) {
        0 => Err("no row of a parent was changed beside ALTERs of its child".to_owned()),
        _ => Ok(()),
    }
}

fn alter_children(socket: &Path) -> Result<()> {
    let mut client = connect(socket)?;
    let began = Instant::now();
    while began.elapsed() < 2 * TIME {
        for change in ["ADD UNIQUE i (u, id)", "DROP INDEX i"] {
            run(
                &mut client,
                &format!("ALTER TABLE children {change}, LOCK=NONE"),
                &[],
            )?;
        }
    }
    Ok(())
}

/// Changes rows of the parent, and takes it back: meanwhile none may have children.
fn change_parents(
    socket: &Path,
    mut random: Random,
    over: &AtomicBool,
    followed: &AtomicU64,
) -> Result<()> {
    let mut client = connect(socket)?;
    while !over.load(Ordering::Relaxed) {
        let id = random.between(1, PARENTS);
        let change = match random.below(2) {
            0 => format!("UPDATE parents SET id = id + {PARENTS} WHERE id = {id}"),
            _ => format!("DELETE FROM parents WHERE id = {id}"),
        };
        run(&mut client, "BEGIN", &[])?;
        if let Reply::Done(_) = run(&mut client, &change, &TOLD)? {
            let left = format!("SELECT id FROM children WHERE parent = {id}");
            match run(&mut client, &left, &TOLD)? {
                Reply::Rows(found) if !found.rows.is_empty() => {
                    return Err(format!(
                        "beside ALTERs of the child, behind {change}: {} children are left",
                        found.rows.len()
                    ));
                }
                _ => followed.fetch_add(1, Ordering::Relaxed),
            };
        }
        run(&mut client, "ROLLBACK", &[])?;
        // One that waits for the ALTER already does not come in the midst of it.
        std::thread::sleep(Duration::from_micros(random.below(THINKS_US)));
    }
    Ok(())
}

/// Alters the table, has it checked, and takes it back, again and again.
fn alter(server: &Server, written: &AtomicU64, is_partitioned: bool) -> Result<()> {
    let mut client = connect(server.socket())?;
    let (mut random, mut beside) = (Random(9), 0);
    let began = Instant::now();
    // The server copies a partitioned table for another primary key, with any engine.
    let copies = |change: &str| is_partitioned && change.contains("PRIMARY KEY");
    let mut changes: Vec<_> = CHANGES.iter().collect();
    while began.elapsed() < TIME || beside == 0 || !changes.is_empty() {
        if began.elapsed() > 15 * TIME {
            return Err("no writer comes to write beside ALTER .. LOCK=NONE".to_owned());
        }
        let before = written.load(Ordering::Relaxed);
        let (change, back) = match changes.pop() {
            Some(change) => change,
            None => random.pick(&CHANGES),
        };
        if copies(change) {
            continue;
        }
        let statement = format!("ALTER TABLE t {change}, ALGORITHM=INPLACE, LOCK=NONE");
        run(&mut client, &statement, &[])?;
        beside += written.load(Ordering::Relaxed) - before;
        check_altered(&mut client, change)?;
        run(
            &mut client,
            &format!("ALTER TABLE t {back}, LOCK=NONE"),
            &[],
        )?;
        check_altered(&mut client, back)?;
    }
    Ok(())
}

/// Indexes agree with the rows, and the rows are those that were written.
fn check_altered(client: &mut Client, change: &str) -> Result<()> {
    let mut rows_of = |statement: &str| match run(client, statement, &[])? {
        Reply::Rows(found) => Ok(found.rows),
        _ => Err(format!("{statement} gives no rows")),
    };
    let checked = rows_of("CHECK TABLE t")?;
    if checked.len() != 1 || checked[0][3].as_deref() != Some(b"OK") {
        return Err(format!("beside writers, behind {change}: {checked:?}"));
    }
    let sums = rows_of(SUMS)?;
    if sums[0][0] != sums[0][1] {
        return Err(format!("rows are lost beside {change}: {sums:?}"));
    }
    Ok(())
}

fn write(socket: &Path, mut random: Random, over: &AtomicBool, written: &AtomicU64) -> Result<()> {
    let mut client = connect(socket)?;
    while !over.load(Ordering::Relaxed) {
        let statements = if random.chance(50) {
            1
        } else {
            random.between(2, 6)
        };
        if statements > 1 {
            run(&mut client, "BEGIN", &[])?;
        }
        for _ in 0..statements {
            run(&mut client, &change(&mut random), &TOLD)?;
            written.fetch_add(1, Ordering::Relaxed);
        }
        if statements > 1 {
            let end = if random.chance(30) {
                "ROLLBACK"
            } else {
                "COMMIT"
            };
            run(&mut client, end, &[])?;
        }
    }
    Ok(())
}

fn change(random: &mut Random) -> String {
    let (id, n) = (random.between(1, ROWS + 500), random.below(900));
    match random.below(7) {
        0 => format!("UPDATE t SET a = {n}, s = 'n\u{e1}me {n}' WHERE id = {id}"),
        1 => format!("DELETE FROM t WHERE id = {id}"),
        2 => format!("UPDATE t SET id = {n} WHERE id = {id}"),
        3 => format!("UPDATE t SET u = -u WHERE id BETWEEN {id} AND {id} + 5"),
        4 => format!("UPDATE t SET t = REPEAT('q', {n} * 10) WHERE id = {id}"),
        5 => format!("REPLACE INTO t (id, a, s, t, u) VALUES ({id}, {n}, 'x', 'y', {id})"),
        _ => format!(
            "INSERT IGNORE INTO t (id, a, s, t, u) SELECT seq, seq % 33, seq, seq, seq FROM seq_{id}_to_{}",
            id + 30
        ),
    }
}

fn connect(socket: &Path) -> Result<Client> {
    let mut client = Client::connect(socket).map_err(|error| format!("connecting: {error}"))?;
    run(&mut client, "USE online", &[])?;
    Ok(client)
}

/// Runs a statement that fails with none but these errors.
fn run(client: &mut Client, statement: &str, told: &[u16]) -> Result<Reply> {
    match client.run(statement) {
        Ok(Reply::Refused(refusal)) if !told.contains(&refusal.code) => Err(format!(
            "{statement}: error {}: {}",
            refusal.code, refusal.message
        )),
        Ok(reply) => Ok(reply),
        Err(error) => Err(format!("{statement}: {error}")),
    }
}
