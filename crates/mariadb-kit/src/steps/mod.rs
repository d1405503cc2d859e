//! `--steps`: each statement of DDL of partitioned tables, those that copy a table that is not, and
//! DISCARD TABLESPACE, killed before each single change of a file that the server makes in it, with
//! `flush_log_at_trx_commit` 0. After each restart the tables are
//! those before the statement or those behind it, and nothing is left over. Also, without kills,
//! which files are placed ([`places`]).

mod places;

use super::apt::output;
use super::orphans::{self, TABLESPACE_DISCARDED, mended};
use super::plugin::Plugin;
use super::server::Server;
use super::smoke::check_tables_but;
use super::tree::{Tree, home};
use inkstone_testkit::build::{Result, root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

const DATABASE: &str = "steps";

/// Tables by name, and how many rows each has, or that it is [`DISCARDED`].
type Tables = BTreeMap<String, String>;

const DISCARDED: &str = "discarded";

/// `t0` and `t1` by hash, `r` by range; `x` and `y` are not partitioned.
const BEFORE: &str = "r 29, s 19, t0 30, t1 20, x 4, y 4";
const SET_UP: &str = "CREATE OR REPLACE DATABASE steps; USE steps;
CREATE TABLE t0 (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 3;
CREATE TABLE t1 (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 2;
CREATE TABLE r (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Inkstone PARTITION BY RANGE (id)
  (PARTITION p10 VALUES LESS THAN (10), PARTITION p20 VALUES LESS THAN (20), PARTITION p30 VALUES LESS THAN (30));
CREATE TABLE s (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Inkstone PARTITION BY RANGE (id)
  SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION p10 VALUES LESS THAN (10), PARTITION p20 VALUES LESS THAN (20));
CREATE TABLE x (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(100), KEY (a)) ENGINE=Inkstone;
CREATE TABLE y LIKE x;
INSERT INTO t0 SELECT seq, seq, 'b' FROM seq_1_to_30;
INSERT INTO t1 SELECT seq, seq, 'b' FROM seq_1_to_20;
INSERT INTO r SELECT seq, seq, 'b' FROM seq_1_to_29;
INSERT INTO s SELECT seq, seq, 'b' FROM seq_1_to_19;
INSERT INTO x SELECT seq, seq, 'b' FROM seq_10_to_13;
INSERT INTO y SELECT seq, seq, 'b' FROM seq_30_to_33";

/// Name, statement, and the tables behind it. CONVERT PARTITION and CONVERT TABLE are not among
/// them: their ddl log deletes the definition of the table, with any engine, if the server is
/// killed before it was renamed.
const CASES: [(&str, &str, &str); 32] = [
    (
        "create",
        "CREATE TABLE n (id INT PRIMARY KEY, a INT) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 3",
        "n 0, r 29, s 19, t0 30, t1 20, x 4, y 4",
    ),
    (
        "create_select",
        "CREATE TABLE n (id INT PRIMARY KEY) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 2 SELECT seq AS id FROM seq_1_to_9",
        "n 9, r 29, s 19, t0 30, t1 20, x 4, y 4",
    ),
    (
        "create_select_plain",
        "CREATE TABLE n (id INT PRIMARY KEY) ENGINE=Inkstone SELECT seq AS id FROM seq_1_to_9",
        "n 9, r 29, s 19, t0 30, t1 20, x 4, y 4",
    ),
    ("drop", "DROP TABLE t0", "r 29, s 19, t1 20, x 4, y 4"),
    (
        "rename",
        "RENAME TABLE t0 TO n",
        "n 30, r 29, s 19, t1 20, x 4, y 4",
    ),
    (
        "swap",
        "RENAME TABLE t0 TO n, t1 TO t0, n TO t1",
        "r 29, s 19, t0 20, t1 30, x 4, y 4",
    ),
    ("copy", "ALTER TABLE t0 FORCE, ALGORITHM=COPY", BEFORE),
    ("copy_plain", "ALTER TABLE x FORCE, ALGORITHM=COPY", BEFORE),
    (
        "copy_ignoring",
        "ALTER IGNORE TABLE x ADD UNIQUE KEY (b), ALGORITHM=COPY",
        "r 29, s 19, t0 30, t1 20, x 1, y 4",
    ),
    (
        "copy_rename",
        "ALTER TABLE t0 RENAME TO n, FORCE, ALGORITHM=COPY",
        "n 30, r 29, s 19, t1 20, x 4, y 4",
    ),
    ("inplace", "ALTER TABLE t0 ADD INDEX ab (a, b)", BEFORE),
    (
        "inplace_rename",
        "ALTER TABLE t0 ADD COLUMN e INT DEFAULT 5, RENAME TO n",
        "n 30, r 29, s 19, t1 20, x 4, y 4",
    ),
    ("anew", "ALTER TABLE t0 FORCE, ALGORITHM=INPLACE", BEFORE),
    (
        "anew_plain",
        "ALTER TABLE x ADD COLUMN e INT DEFAULT 5, ADD INDEX (e, b), ALGORITHM=INPLACE",
        BEFORE,
    ),
    (
        "anew_rename",
        "ALTER TABLE x FORCE, RENAME TO n, ALGORITHM=INPLACE",
        "n 4, r 29, s 19, t0 30, t1 20, y 4",
    ),
    (
        "drop_column",
        "ALTER TABLE t0 DROP COLUMN b, ALGORITHM=INSTANT",
        BEFORE,
    ),
    (
        "truncate",
        "TRUNCATE TABLE t0",
        "r 29, s 19, t0 0, t1 20, x 4, y 4",
    ),
    (
        "partition",
        "ALTER TABLE x PARTITION BY HASH (id) PARTITIONS 3",
        BEFORE,
    ),
    ("unpartition", "ALTER TABLE t0 REMOVE PARTITIONING", BEFORE),
    (
        "add_hash",
        "ALTER TABLE t0 ADD PARTITION PARTITIONS 1",
        BEFORE,
    ),
    ("coalesce", "ALTER TABLE t0 COALESCE PARTITION 1", BEFORE),
    (
        "add",
        "ALTER TABLE r ADD PARTITION (PARTITION p40 VALUES LESS THAN (40))",
        BEFORE,
    ),
    (
        "drop_partition",
        "ALTER TABLE r DROP PARTITION p20",
        "r 19, s 19, t0 30, t1 20, x 4, y 4",
    ),
    (
        "truncate_partition",
        "ALTER TABLE r TRUNCATE PARTITION p20",
        "r 19, s 19, t0 30, t1 20, x 4, y 4",
    ),
    (
        "truncate_partitions",
        "ALTER TABLE r TRUNCATE PARTITION p10, p30",
        "r 10, s 19, t0 30, t1 20, x 4, y 4",
    ),
    (
        "truncate_subpartitions",
        "ALTER TABLE s TRUNCATE PARTITION p20",
        "r 29, s 9, t0 30, t1 20, x 4, y 4",
    ),
    (
        "reorganize",
        "ALTER TABLE r REORGANIZE PARTITION p20 INTO (PARTITION p15 VALUES LESS THAN (15), PARTITION p20 VALUES LESS THAN (20))",
        BEFORE,
    ),
    (
        "exchange",
        "ALTER TABLE r EXCHANGE PARTITION p20 WITH TABLE x",
        "r 23, s 19, t0 30, t1 20, x 10, y 4",
    ),
    ("placed", "ALTER TABLE x PAGE_PLACEMENT=placed", BEFORE),
    (
        "placed_partitions",
        "ALTER TABLE t0 PAGE_COMPRESSED=1",
        BEFORE,
    ),
    (
        "placed_create",
        "CREATE TABLE n (id INT PRIMARY KEY) ENGINE=Inkstone ROW_FORMAT=COMPRESSED SELECT seq AS id FROM seq_1_to_9",
        "n 9, r 29, s 19, t0 30, t1 20, x 4, y 4",
    ),
    (
        "discard",
        "ALTER TABLE x DISCARD TABLESPACE",
        "r 29, s 19, t0 30, t1 20, x discarded, y 4",
    ),
];

/// What is looked at without kills: [`places`].
const PLACES: &str = "places";

/// Runs all cases, or those whose name begins with `filter`.
pub fn run(tree: &Tree, plugin: &Plugin, filter: Option<&str>) -> Result<ExitCode> {
    let wanted = |name: &str| name.starts_with(filter.unwrap_or_default());
    if !CASES.iter().any(|(name, ..)| wanted(name)) && !wanted(PLACES) {
        return Err(format!(
            "no case has such a name; there are {PLACES} and {:?}",
            CASES.map(|case| case.0)
        ));
    }
    let mut server = Server::temporary(tree, "steps")
        .with_plugin(plugin)
        .with_options(["--log-bin=binlog", "--sync-binlog=1"]);
    let trigger = server.folder().join("kill-after");
    server = server
        .with_environment("LD_PRELOAD", &build_library()?.display().to_string())
        .with_environment("KILL_AFTER", &trigger.display().to_string());
    server.start()?;
    if filter.is_none() {
        keeps_what_may_be_needed(&mut server)?;
        drops_what_is_half_built(&mut server, "ADD INDEX ab (b, a)")?;
        drops_what_is_half_built(&mut server, "FORCE, ALGORITHM=INPLACE")?;
    }
    if wanted(PLACES) {
        places::check(&mut server)?;
    }
    let mut kills = 0;
    for (name, statement, after) in CASES.iter().filter(|(name, ..)| wanted(name)) {
        let case = Case {
            statement,
            after: tables(after),
            trigger: &trigger,
        };
        match case.run(&mut server) {
            Ok(steps) => {
                println!("{name:20} killed before each of {steps} steps");
                kills += steps;
            }
            Err(error) => {
                let folder = server.folder().to_owned();
                return Err(format!(
                    "{name}, {error}\nthe server's files are kept: {folder:?}"
                ));
            }
        }
    }
    println!(
        "{kills} kills: nothing is half done, nothing is left over; {}",
        mended(&server)
    );
    server.remove();
    Ok(ExitCode::SUCCESS)
}

/// A partition whose definition was lost is kept, also over a further crash, and whether or not
/// another table lacks its list; with its definition back it is what it was.
fn keeps_what_may_be_needed(server: &mut Server) -> Result<()> {
    server.sql(SET_UP)?;
    let before = look(server)?;
    let files = |server: &Server| orphans::table_files(&server.data().join("inkstone"));
    let expected = files(server)?;
    let folder = server.data().join(DATABASE);
    let away = |name: &str| folder.join(format!("{name}.away"));
    let take = |name: &str| std::fs::rename(folder.join(name), away(name));
    let put_back = |name: &str| std::fs::rename(away(name), folder.join(name));
    let say = |error| format!("files of {} cannot be changed: {error}", folder.display());
    // The ddl log of this life names none of them.
    server.kill();
    server.start()?;
    for lost in [
        &["t0.frm", "t0.par", "t1.par"][..],
        &["t0.frm", "t0.par"],
        &["t0.par"],
    ] {
        server.kill();
        lost.iter().try_for_each(|name| take(name)).map_err(say)?;
        for _ in 0..2 {
            server.start()?;
            server.kill();
        }
        lost.iter()
            .try_for_each(|name| put_back(name))
            .map_err(say)?;
        let definition = folder.join("t0.frm");
        let bytes = std::fs::read(&definition).map_err(say)?;
        std::fs::write(&definition, []).map_err(say)?;
        server.start()?;
        server.kill();
        std::fs::write(&definition, bytes).map_err(say)?;
        server.start()?;
        let (left, found) = (files(server)?, look(server)?);
        if left != expected || found != before {
            return Err(format!(
                "without {lost:?}, and with an empty definition, of {expected:?} {left:?} were kept; the tables \
                 are {found:?}"
            ));
        }
    }
    println!(
        "partitions whose definition or list is lost or empty are kept, and are there when it is back"
    );
    Ok(())
}

/// An ALTER that is killed while it fills an index, or a table that is made anew, leaves nothing of
/// it: CHECK TABLE knows every tree. The library does not count the writes of the engine, so time
/// decides where.
fn drops_what_is_half_built(server: &mut Server, change: &str) -> Result<()> {
    let rows = "INSERT INTO x SELECT seq, seq, 'b' FROM seq_100_to_300099";
    let mut interrupted = 0;
    for milliseconds in (1..).map(|turn| 60 * turn) {
        server.sql(&format!("{SET_UP}; {rows}"))?;
        let done = std::thread::scope(|scope| {
            let alter = scope.spawn(|| server.sql(&format!("ALTER TABLE steps.x {change}")));
            std::thread::sleep(Duration::from_millis(milliseconds));
            server.kill();
            alter.join().is_ok_and(|result| result.is_ok())
        });
        server.kill();
        server.start()?;
        let found = look(server)?;
        if found != tables(&BEFORE.replace("x 4", "x 300004")) {
            return Err(format!("killed in {change}: the tables are {found:?}"));
        }
        if done {
            break;
        }
        interrupted += 1;
    }
    println!("{interrupted} kills in {change} left nothing of it");
    match interrupted {
        0 => Err(format!(
            "{change} was done before the server could be killed"
        )),
        _ => Ok(()),
    }
}

struct Case<'a> {
    statement: &'a str,
    after: Tables,
    trigger: &'a Path,
}

impl Case<'_> {
    /// Kills the server before each step of the statement; gives how many there are.
    fn run(&self, server: &mut Server) -> Result<u64> {
        let before = tables(BEFORE);
        for step in 1.. {
            server.sql(SET_UP)?;
            let say = |error: String| format!("killed before step {step}: {error}");
            std::fs::write(self.trigger, step.to_string()).map_err(|error| {
                format!("{} cannot be written: {error}", self.trigger.display())
            })?;
            // DDL is durable under each setting.
            let done = server.sql(&format!(
                "SET GLOBAL inkstone_flush_log_at_trx_commit = 0; USE {DATABASE}; {}",
                self.statement
            ));
            let died = server.exited().is_some() || !server.answers();
            if let (Err(error), false) = (&done, died) {
                return Err(error.clone());
            }
            // Behind its last step the statement must have been done for good.
            server.kill();
            let _ = std::fs::remove_file(self.trigger);
            server.start().map_err(say)?;
            let found = look(server).map_err(say)?;
            if found != self.after && (done.is_ok() || found != before) {
                return Err(say(format!("the tables are {found:?}")));
            }
            if done.is_ok() {
                return Ok(step - 1);
            }
        }
        Ok(0)
    }
}

/// The tables, when nothing is wrong with them and nothing else is there.
fn look(server: &Server) -> Result<Tables> {
    orphans::check_running(server, DATABASE)?;
    orphans::check_number(server)?;
    let names = server
        .sql("SELECT table_name FROM information_schema.tables WHERE table_schema = 'steps'")?;
    let counts = names.lines().map(|name| {
        let count = match server.sql(&format!("SELECT COUNT(*) FROM {DATABASE}.{name}")) {
            Ok(count) => count.trim().to_owned(),
            Err(error) if error.contains(TABLESPACE_DISCARDED) => DISCARDED.to_owned(),
            Err(error) => return Err(error),
        };
        Ok((name.to_owned(), count))
    });
    let found: Tables = counts.collect::<Result<_>>()?;
    let is_discarded = |(_, count): &(&String, &String)| *count == DISCARDED;
    let discarded: Vec<_> = found.iter().filter(is_discarded).collect();
    let discarded: Vec<&str> = discarded.iter().map(|(name, _)| name.as_str()).collect();
    check_tables_but(server, &discarded)?;
    Ok(found)
}

/// Tables from a list of names and numbers of rows.
fn tables(list: &str) -> Tables {
    let pairs = list.split(", ").filter_map(|pair| pair.split_once(' '));
    pairs
        .map(|(name, rows)| (name.to_owned(), rows.to_owned()))
        .collect()
}

/// Builds what counts the steps.
fn build_library() -> Result<PathBuf> {
    let library = home().join("kill_after.so");
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "gcc".to_owned()));
    compiler
        .args(["-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(root().join("crates/mariadb-kit/src/steps/kill_after.c"));
    output(&mut compiler)?;
    Ok(library)
}
