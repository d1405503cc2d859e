//! A full disk: the error is InnoDB's, in strict mode and without; what was committed is there, and
//! statements succeed again when there is room. Of temporary tables as well.

use super::server::{Server, run_folder};
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the file system.
const DISK: &str = "384m";
/// Bytes of it that are left for what the statements write.
const LEFT: u64 = 24 << 20;

/// What is run for each engine. 64 MB do not fit.
const STATEMENTS: &str = "
    INSERT INTO full.t SELECT seq + 100, REPEAT('x', 1000000) FROM seq_1_to_64;
    SELECT COUNT(*), SUM(LENGTH(b)) FROM full.t;
    SET SESSION sql_mode = '';
    INSERT INTO full.t SELECT seq + 100, REPEAT('x', 1000000) FROM seq_1_to_64;
    SELECT COUNT(*), SUM(LENGTH(b)) FROM full.t;
    SET SESSION sql_mode = DEFAULT;
    INSERT INTO full.u SELECT seq + 100, REPEAT('x', 1000000) FROM seq_1_to_64;
    SELECT COUNT(*), SUM(LENGTH(b)) FROM full.u;
    BEGIN;
    UPDATE full.t SET b = 'changed';
    INSERT INTO full.t SELECT seq + 100, REPEAT('x', 1000000) FROM seq_1_to_64;
    COMMIT;
    SELECT id, b FROM full.t;";
/// What they must say: `ER_RECORD_FILE_FULL` of each insert.
const ERRORS: [&str; 4] = [
    "ERROR 1114 (HY000): The table 't' is full",
    "ERROR 1114 (HY000): The table 't' is full",
    "ERROR 1114 (HY000): The table 'u' is full",
    "ERROR 1114 (HY000): The table 't' is full",
];
const ROWS: &str = "2\t2\n2\t2\n2\t2\n1\tchanged\n2\tchanged\n";

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
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Checks it on a server of its own with the options of this one.
pub fn check(server: &Server) -> Result<()> {
    let folder = run_folder("full_disk");
    let disk = match Disk::mount(&folder) {
        Ok(disk) => disk,
        Err(error) => {
            println!("full_disk                SKIPPED: no file system can be mounted: {error}");
            return Ok(());
        }
    };
    let mut other = server.beside(&folder);
    other.set_option("innodb-log-file-size", "16M");
    other.start()?;
    for engine in ["InnoDB", "Inkstone"] {
        check_engine(&other, &disk, engine).map_err(|error| format!("{engine}: {error}"))?;
    }
    other.stop()?;
    drop(disk);
    other.remove();
    Ok(())
}

fn check_engine(server: &Server, disk: &Disk, engine: &str) -> Result<()> {
    server.sql(&format!(
        "CREATE OR REPLACE DATABASE full; \
         CREATE TABLE full.t (id INT PRIMARY KEY, b LONGBLOB) ENGINE={engine}; \
         INSERT INTO full.t VALUES (1, 'a'), (2, 'b')"
    ))?;
    let ballast = disk.0.join("ballast");
    let free = disk.free()?;
    let bytes = free
        .checked_sub(LEFT)
        .ok_or_else(|| format!("{free} bytes of {DISK} are left"))?;
    let mut allocate = Command::new("fallocate");
    let status = allocate
        .args(["-l", &bytes.to_string()])
        .arg(&ballast)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(format!("{} cannot be filled", ballast.display()));
    }
    let script = format!(
        "CREATE TEMPORARY TABLE full.u (id INT PRIMARY KEY, b LONGBLOB) ENGINE={engine};
         INSERT INTO full.u VALUES (1, 'a'), (2, 'b');{STATEMENTS}"
    );
    let mut client = server.client_for(&script)?;
    let output = client
        .args(["--batch", "--force", "--skip-column-names"])
        .output();
    let output = output.map_err(|error| format!("the client cannot be run: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors: Vec<String> = errors.lines().map(without_line).collect();
    if errors != ERRORS || rows != ROWS {
        return Err(format!(
            "on a full disk the errors are {errors:#?}, not {ERRORS:#?}, and the rows {rows:?}, \
             not {ROWS:?}"
        ));
    }
    std::fs::remove_file(&ballast).map_err(|error| format!("{}: {error}", ballast.display()))?;
    let after = server.sql(
        "INSERT INTO full.t SELECT seq + 100, REPEAT('x', 1000000) FROM seq_1_to_64; \
         SELECT COUNT(*) FROM full.t; CHECK TABLE full.t; DROP DATABASE full",
    )?;
    let expected = "66\nfull.t\tcheck\tstatus\tOK\n";
    if after != expected {
        return Err(format!("with room again {after:?}, not {expected:?}"));
    }
    Ok(())
}

/// An error without the line of the script that it is of.
fn without_line(error: &str) -> String {
    let line = error.split_once(" at line ");
    let rest = line.and_then(|(start, rest)| Some((start, rest.split_once(": ")?.1)));
    rest.map_or(error.to_owned(), |(start, text)| format!("{start}: {text}"))
}
