//! A full disk, of Inkstone's tables alone (InnoDB ends the server there): the error is
//! `ER_RECORD_FILE_FULL`, in strict mode and without; what was committed is there, also behind a
//! kill; rollbacks work, and what is deleted or dropped gives room. Of temporary tables as well.

use super::server::{Server, run_folder};
use super::session::Session;
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the file system.
const DISK: &str = "320m";
/// Bytes of it that are left for what the statements write.
const LEFT: u64 = 24 << 20;
/// Bytes that are left where the server is killed and started: for its own files.
const LEFT_FOR_START: u64 = 256 << 10;
/// Rows of a megabyte that do not fit.
const ROWS_MAX: u32 = 64;
/// How long it may take until what was deleted is purged.
const PATIENCE: Duration = Duration::from_secs(20);
/// Above and below a statement that has failed.
const RULE: &str = "--------------";
/// Does not fit.
const TOO_MUCH: &str = "SELECT seq + 1000, REPEAT('x', 1000000) FROM seq_1_to_64";

/// A file system of its own, in memory.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={DISK}"), "tmpfs"]);
        let output = mount.arg(folder).output();
        let output = output.map_err(|error| format!("mount cannot be run: {error}"))?;
        if output.status.success() {
            return Ok(Self(folder.to_owned()));
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Bytes that are free.
    fn free(&self) -> Result<u64> {
        let mut look = Command::new("df");
        let output = look.args(["--output=avail", "-B1"]).arg(&self.0).output();
        let output = output.map_err(|error| format!("df cannot be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let free = text
            .lines()
            .last()
            .and_then(|line| line.trim().parse().ok());
        free.ok_or_else(|| format!("df says {text:?}"))
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all but so many bytes.
    fn fill(&self, left: u64) -> Result<()> {
        let there = std::fs::metadata(self.ballast()).map_or(0, |found| found.len());
        let bytes = (self.free()? + there)
            .checked_sub(left)
            .ok_or_else(|| format!("{left} bytes of {DISK} are not there"))?;
        let mut allocate = Command::new("fallocate");
        let status = allocate
            .args(["-l", &bytes.to_string()])
            .arg(self.ballast())
            .status();
        if status.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(format!("{} cannot be filled", self.ballast().display()))
    }

    fn relieve(&self) -> Result<()> {
        std::fs::remove_file(self.ballast())
            .map_err(|error| format!("{}: {error}", self.ballast().display()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A server that was killed a moment ago may have it in use.
        for _ in 0..50 {
            let status = Command::new("umount").arg(&self.0).status();
            if status.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Checks it on a server of its own, with the plugin of this one.
pub fn check(server: &Server) -> Result<()> {
    let folder = run_folder("full_disk");
    let mut other = server.beside(&folder);
    let disk = match Disk::mount(&other.data()) {
        Ok(disk) => disk,
        Err(error) => {
            println!("full_disk                SKIPPED: no file system can be mounted: {error}");
            return Ok(());
        }
    };
    other.set_option("innodb-log-file-size", "8M");
    // What the server itself writes for DDL is elsewhere: a DROP TABLE would fail for its sake.
    let ddl_log = folder.join("ddl_recovery.log");
    other.set_option("log-ddl-recovery", &ddl_log.display().to_string());
    let checked = check_on(&mut other, &disk);
    let log = other.end_of_log();
    // Also after a failure: the server ends first, then its disk goes.
    other.kill();
    drop(disk);
    other.remove();
    checked.map_err(|error| format!("{error}\n{log}"))
}

fn check_on(server: &mut Server, disk: &Disk) -> Result<()> {
    server.start()?;
    server.sql(
        "CREATE DATABASE full; \
         CREATE TABLE full.t (id INT PRIMARY KEY, b LONGBLOB) ENGINE=Inkstone; \
         CREATE TABLE full.other LIKE full.t; \
         INSERT INTO full.other SELECT seq, REPEAT('o', 1000000) FROM seq_1_to_8; \
         INSERT INTO full.t VALUES (1, 'a'), (2, 'b')",
    )?;
    let mut session = Session::open(server, "full")?;
    expect(
        &mut session,
        "CREATE TEMPORARY TABLE u (id INT PRIMARY KEY, b LONGBLOB) ENGINE=Inkstone;
         INSERT INTO u VALUES (1, 'a'), (2, 'b');",
        &[],
    )?;
    disk.fill(LEFT)?;
    for mode in ["DEFAULT", "''"] {
        expect(
            &mut session,
            &format!("SET SESSION sql_mode = {mode};"),
            &[],
        )?;
        for table in ["t", "u"] {
            check_table(&mut session, table).map_err(|error| format!("{mode}: {error}"))?;
        }
    }
    check_room(&mut session)?;
    drop(session);
    check_kill(server, disk)?;
    disk.relieve()?;
    let after = server.sql(&format!(
        "INSERT INTO full.t {TOO_MUCH}; SELECT COUNT(*) FROM full.t; CHECK TABLE full.t; \
         DROP DATABASE full"
    ))?;
    let expected = "67\nfull.t\tcheck\tstatus\tOK\n";
    if after != expected {
        return Err(format!("with room again {after:?}, not {expected:?}"));
    }
    server.stop()
}

/// One statement, and a transaction that is rolled back, or committed without the statement that
/// has failed.
fn check_table(session: &mut Session, table: &str) -> Result<()> {
    let full = format!("ERROR 1114 (HY000): The table '{table}' is full");
    let insert = format!("INSERT INTO {table} {TOO_MUCH};");
    let rows = format!("SELECT id, b FROM {table};");
    let (before, changed) = (["1\ta", "2\tb"], ["1\tchanged", "2\tchanged"]);
    expect(session, &insert, &[&full])?;
    expect(session, &rows, &before)?;
    let change = format!("BEGIN; UPDATE {table} SET b = 'changed';");
    expect(session, &change, &[])?;
    expect(session, &insert, &[&full])?;
    expect(session, &rows, &changed)?;
    expect(session, "ROLLBACK;", &[])?;
    expect(session, &rows, &before)?;
    expect(session, &change, &[])?;
    expect(session, &insert, &[&full])?;
    expect(session, "COMMIT;", &[])?;
    expect(session, &rows, &changed)?;
    let back = format!("UPDATE {table} SET b = IF(id = 1, 'a', 'b');");
    expect(session, &back, &[])?;
    expect(session, &rows, &before)
}

/// Rows that are deleted, and a table that is dropped, give room to others.
fn check_room(session: &mut Session) -> Result<()> {
    fill_up(session)?;
    expect(session, "DELETE FROM t WHERE id > 100;", &[])?;
    soon(session, "INSERT INTO t VALUES (100, REPEAT('y', 1000000));")?;
    fill_up(session)?;
    expect(session, "DROP TABLE other;", &[])?;
    soon(session, "INSERT INTO t VALUES (99, REPEAT('z', 4000000));")?;
    expect(session, "DELETE FROM t WHERE id > 2;", &[])?;
    expect(session, "CHECK TABLE t;", &["full.t\tcheck\tstatus\tOK"])
}

/// Inserts rows until there is no room for one more.
fn fill_up(session: &mut Session) -> Result<()> {
    for _ in 0..ROWS_MAX {
        let insert = "INSERT INTO t SELECT MAX(id) + 100, REPEAT('x', 1000000) FROM t;";
        let said = run(session, insert)?;
        if said == ["ERROR 1114 (HY000): The table 't' is full"] {
            return Ok(());
        }
        if !said.is_empty() {
            return Err(format!("{insert}: {said:?}"));
        }
    }
    Err(format!(
        "{ROWS_MAX} rows of a megabyte fit into {LEFT} bytes"
    ))
}

/// A server that is killed on the full disk, with a transaction open, starts on it.
fn check_kill(server: &mut Server, disk: &Disk) -> Result<()> {
    disk.fill(LEFT_FOR_START)?;
    let mut session = Session::open(server, "full")?;
    expect(&mut session, "UPDATE t SET b = 'last' WHERE id = 2;", &[])?;
    let create = "CREATE TABLE v (id INT) ENGINE=Inkstone;";
    let said = run(&mut session, create)?;
    if !said.iter().any(|line| line.starts_with("ERROR 1005 ")) {
        return Err(format!("{create} on the full disk: {said:?}"));
    }
    expect(
        &mut session,
        "BEGIN; UPDATE t SET b = 'open' WHERE id = 1;",
        &[],
    )?;
    // With it what the other one has changed is durable.
    server.sql("INSERT INTO full.t VALUES (3, 'c')")?;
    server.kill();
    server.start()?;
    let found = server.sql("SELECT * FROM full.t; CHECK TABLE full.t")?;
    let expected = "1\ta\n2\tlast\n3\tc\nfull.t\tcheck\tstatus\tOK\n";
    if found != expected {
        return Err(format!("behind a kill {found:?}, not {expected:?}"));
    }
    Ok(())
}

/// Runs statements; gives their lines, errors without the line that they are of, and without the
/// statement, which the client shows between rules.
fn run(session: &mut Session, statements: &str) -> Result<Vec<String>> {
    let lines = session.run(statements);
    let lines = lines.ok_or_else(|| format!("{statements}: the server is gone"))?;
    let mut is_statement = false;
    let said = lines.iter().filter(|line| {
        let is_rule = *line == RULE;
        is_statement ^= is_rule;
        !is_statement && !is_rule && !line.is_empty()
    });
    Ok(said.map(|line| without_line(line)).collect())
}

fn expect(session: &mut Session, statements: &str, expected: &[&str]) -> Result<()> {
    let lines = run(session, statements)?;
    if lines == expected {
        return Ok(());
    }
    Err(format!("{statements}: {lines:#?}, not {expected:#?}"))
}

/// Repeats a statement until there is room for it.
fn soon(session: &mut Session, statement: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        let lines = run(session, statement)?;
        if lines.is_empty() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("{statement}: {lines:?} after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// An error without the line of the script that it is of.
fn without_line(error: &str) -> String {
    let line = error.split_once(" at line ");
    let rest = line.and_then(|(start, rest)| Some((start, rest.split_once(": ")?.1)));
    rest.map_or(error.to_owned(), |(start, text)| format!("{start}: {text}"))
}
