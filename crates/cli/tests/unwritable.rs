//! What only reads a database reads it where it cannot be written: on a read-only mount, in a
//! directory of another user. Nothing of it is changed.

mod common;
#[path = "common/database.rs"]
mod database;

use common::{SMALL, json_ok, run};
use database::{copy_directory, fruit, options, traces};
use inkstone::{Database, Isolation};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory seen at another place, where it cannot be written; until it is dropped.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn mount(directory: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mount = |arguments: &[&str]| {
            let output = Command::new("mount").args(arguments).arg(at).output();
            output.is_ok_and(|output| output.status.success())
        };
        if !mount(&["--bind", directory.to_str().unwrap()]) {
            return None;
        }
        let mounted = Self(at.to_owned());
        mount(&["-o", "remount,bind,ro"]).then_some(mounted)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// The program, run as another user if this one is root, to which no right is missing.
fn as_other_user(arguments: &[&str]) -> Option<std::process::Output> {
    let program = env!("CARGO_BIN_EXE_inkstone");
    let is_root = Command::new("id").arg("-u").output().ok()?.stdout == b"0\n";
    if !is_root {
        return Command::new(program).args(arguments).output().ok();
    }
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let output = other.arg(program).args(arguments).output().ok()?;
    // The program itself may lie where that user cannot go.
    (output.status.code() != Some(126) && output.status.code() != Some(127)).then_some(output)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A database that was closed, and one as a kill leaves it, with a transaction under way.
fn databases(folder: &Path) -> [PathBuf; 2] {
    let [closed, live, killed] = ["closed", "live", "killed"].map(|name| folder.join(name));
    fruit(&closed).close().unwrap();
    let db = fruit(&live);
    let open = db.begin(Isolation::ReadCommitted).unwrap();
    let table = db.table("fruit").unwrap();
    open.update(&table, b"banana", b"brown").unwrap();
    db.flush_log().unwrap();
    copy_directory(&live, &killed);
    drop((open, table));
    db.close().unwrap();
    [closed, killed]
}

/// Commands that read, in the order in which they are run, and what they print.
fn reads<'a>(from: &'a str, to: &'a str) -> [(Vec<&'a str>, &'static str); 7] {
    [
        (vec!["verify", from], "all is well: 2 tables"),
        ([&["stat", from][..], &SMALL].concat(), "fruit"),
        (vec!["stat", from, "--prometheus"], "# TYPE inkstone_"),
        (vec!["inspect", "control", from], "page"),
        (vec!["inspect", "catalog", from], "trees (root page)"),
        (vec!["copy", from, to], "has 1 tables"),
        (vec!["verify", to], "all is well: 2 tables"),
    ]
}

#[test]
fn a_read_only_mount_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for (n, directory) in databases(folder.path()).iter().enumerate() {
        // As others leave it: the file `lock` is no part of the database.
        if n == 1 {
            let _ = std::fs::remove_file(directory.join("lock"));
        }
        let before = traces(directory);
        let at = folder.path().join(format!("mounted{n}"));
        let Some(mounted) = ReadOnly::mount(directory, &at) else {
            println!("SKIPPED: nothing can be mounted here");
            return;
        };
        let (from, to) = (
            text(&mounted.0),
            text(&folder.path().join(format!("copy{n}"))),
        );
        for (arguments, expected) in reads(&from, &to) {
            let (code, out, err) = run(&arguments);
            assert_eq!(code, 0, "{arguments:?}: {err}");
            assert!(out.contains(expected), "{arguments:?}: {out}");
        }
        let stat = &json_ok(&["stat", &from])[0];
        assert_eq!(stat["opening"]["clean"], n == 0);
        let (code, _, err) = run(&["recover", &from]);
        assert_eq!(code, 3, "{err}");
        assert!(err.contains("option read_only"), "{err}");
        // A process that has it open to write keeps these out, wherever they see it.
        drop(mounted);
        assert!(traces(directory) == before);
        let at = folder.path().join(format!("again{n}"));
        let mounted = ReadOnly::mount(directory, &at).unwrap();
        let db = Database::open(directory, options()).unwrap();
        let (from, to) = (text(&mounted.0), to + ".other");
        for arguments in [vec!["stat", &from], vec!["copy", &from, &to]] {
            let (code, _, err) = run(&arguments);
            assert_eq!(code, 3, "{err}");
            assert!(err.contains("in use"), "{err}");
        }
        db.close().unwrap();
    }
}

#[test]
fn a_directory_without_the_right_to_write_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let databases = databases(folder.path());
    let copies = folder.path().join("copies");
    std::fs::create_dir(&copies).unwrap();
    allow(folder.path(), 0o755);
    allow(&copies, 0o777);
    for (n, directory) in databases.iter().enumerate() {
        let before = traces(directory);
        for (path, ..) in &before {
            allow(path, 0o444);
        }
        allow(&directory.join("log"), 0o555);
        allow(directory, 0o555);
        let (from, to) = (text(directory), text(&copies.join(n.to_string())));
        for (arguments, expected) in reads(&from, &to) {
            let Some(output) = as_other_user(&arguments) else {
                println!("SKIPPED: the program cannot be run as another user");
                return;
            };
            let out = String::from_utf8_lossy(&output.stdout);
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {err}");
            assert!(out.contains(expected), "{arguments:?}: {out}");
        }
        let output = as_other_user(&["recover", &from]).unwrap();
        assert_eq!(output.status.code(), Some(3));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains("must be allowed to read and write"), "{err}");
        allow(directory, 0o755);
        allow(&directory.join("log"), 0o755);
        assert!(traces(directory) == before);
    }
}
