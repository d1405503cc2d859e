//! The `inkstone` program, run as a process. What `inkstone bench` prints stands in `bench.rs`.

mod common;
#[path = "common/database.rs"]
mod database;

use common::{SMALL, json, json_ok, run};
use database::{copy_directory, fruit, traces};
use inkstone::{Database, Isolation, Options, PageCompression, PagePlacement, TableOptions};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn the_tour_proves_itself() {
    let arguments = ["tour", "--rows", "2000", "--seconds", "1", "--clients", "4"];
    let report = &json_ok(&[&arguments[..], &["--accounts", "300"], &SMALL].concat())[0];
    assert_eq!(report["ok"], true);
    assert_eq!(report["opening"]["clean"], false);
    assert!(report["commits_acknowledged"].as_u64().unwrap() > 0);
    assert!(report["opening"]["recovered"]["losers"].as_u64().unwrap() > 0);
    assert!(report["log_bytes_per_row"].as_f64().unwrap() < 60.0);
    let proofs = report["proofs"].as_array().unwrap();
    assert!(proofs.len() > 8);
    assert!(proofs.iter().all(|proof| proof["holds"] == true));
    assert_eq!(report["tables"].as_array().unwrap().len(), 5);
}

#[test]
fn the_tour_keeps_the_directory_it_is_given_and_speaks_to_people() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new").display().to_string();
    let arguments = [
        "tour",
        "--rows",
        "500",
        "--seconds",
        "0.5",
        "--page-size",
        "4k",
    ];
    let tour = [&arguments[..], &["--directory", &path], &SMALL].concat();
    let (code, out, err) = run(&tour);
    assert_eq!(code, 0, "{out}{err}");
    for part in [
        "All is well",
        "SIGKILL",
        "doublewrite",
        "losers rolled back",
        "ok  ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert_eq!(run(&["verify", &path]).0, 0);
    let (code, _, err) = run(&tour);
    assert_eq!(code, 2, "the directory is not empty");
    assert!(err.contains("must be empty"), "{err}");
}

#[test]
fn the_tour_finds_what_is_broken() {
    for (sabotage, claim) in [
        ("lost", "every acknowledged commit is there"),
        ("half", "no transaction is half there"),
        ("sum", "accounts has the balance"),
    ] {
        let arguments = [
            "tour",
            "--rows",
            "100",
            "--seconds",
            "0.4",
            "--sabotage",
            sabotage,
        ];
        let (code, lines) = json(&[&arguments[..], &SMALL].concat());
        assert_eq!(code, 1, "{sabotage}");
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["ok"], false);
        assert_eq!(lines[0]["exit_code"], 1);
        let proofs = lines[0]["proofs"].as_array().unwrap();
        let failed: Vec<&Value> = proofs.iter().filter(|p| p["holds"] == false).collect();
        let named = |p: &&&Value| p["claim"].as_str().unwrap().contains(claim);
        assert!(
            failed.iter().find(named).is_some(),
            "{sabotage}: {failed:#?}"
        );
    }
}

#[test]
fn inspect_shows_what_was_inserted_without_opening_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    let copy = dir.path().join("copy");
    let db = fruit(&live);
    copy_directory(&live, &copy);
    db.close().unwrap();
    let (live, copy) = (live.display().to_string(), copy.display().to_string());

    // The copy is as after a kill: the insert is in its log.
    let (code, log, err) = run(&["inspect", "log", &copy]);
    assert_eq!(code, 0, "{err}");
    let insert = "LEAF_INSERT page 1:";
    assert!(log.contains(insert), "{log}");
    assert!(
        log.contains("key 6170706c65 \"apple\" value 726564 \"red\""),
        "{log}"
    );
    assert!(log.contains("ROW_UPDATE") && log.contains("ROW_MARK") && log.contains("COMMIT"));
    assert!(log.contains("the log ends at LSN"), "{log}");
    let limited = json_ok(&["inspect", "log", &copy, "--limit", "3"]);
    assert_eq!(limited.len(), 3);
    let from = limited[2]["lsn"].as_u64().unwrap().to_string();
    let later = json_ok(&["inspect", "log", &copy, "--from", &from]);
    assert_eq!(later[0], limited[2]);
    let (_, control, _) = run(&["inspect", "control", &copy]);
    assert!(control.contains("in force") && control.contains("clean_shutdown"));

    let catalog = &json_ok(&["inspect", "catalog", &live])[0];
    assert_eq!(catalog["clean_shutdown"], true);
    let table = &catalog["tables"][0];
    assert_eq!(table["table"], "fruit");
    assert_eq!(table["trees"][1]["name"], "by_colour");
    let page = format!("{}:{}", table["space"], table["trees"][0]["root"]);
    let (code, text, _) = run(&["inspect", "page", &live, &page]);
    assert_eq!(code, 0);
    assert!(text.contains("checksum  right"), "{text}");
    assert!(
        text.contains("key 6170706c65 \"apple\" value 677265656e \"green\""),
        "{text}"
    );
    assert!(
        text.contains("key 6d656c6f6e \"melon\" value 100000 bytes from page"),
        "{text}"
    );
    let shown = &json_ok(&["inspect", "page", &live, &page, "--dump"])[0];
    assert_eq!(shown["checksum_ok"], true);
    assert_eq!(shown["content"]["slots"][0]["key"], "6170706c65");
    assert!(
        run(&["inspect", "page", &live, "1:0"])
            .1
            .contains("root page")
    );
    assert!(
        run(&["inspect", "page", &live, "1:1"])
            .1
            .contains("allocated")
    );
    let only = json_ok(&["inspect", "log", &copy, "--page", &page]);
    let names = |line: &Value| line["records"].as_array().unwrap().len();
    assert!(!only.is_empty() && only.iter().all(|line| names(line) > 0));
    assert!(
        only.iter()
            .all(|l| l["records"][0]["page"] == page.as_str())
    );
}

#[test]
fn recover_verify_and_stat_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let (live, copy) = (dir.path().join("live"), dir.path().join("copy"));
    let db = fruit(&live);
    let open = db.begin(Isolation::ReadCommitted).unwrap();
    let table = db.table("fruit").unwrap();
    open.update(&table, b"banana", b"brown").unwrap();
    db.flush_log().unwrap();
    copy_directory(&live, &copy);
    drop(open);
    drop((table, db));
    check_verify_writes_nothing(&copy);
    let copy = copy.display().to_string();
    let (code, out, _) = run(&["recover", &copy]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("1 unfinished transactions rolled back"),
        "{out}"
    );
    let (_, again, _) = run(&["recover", &copy]);
    assert!(again.contains("closed in order"), "{again}");
    let verified = &json_ok(&["verify", &copy])[0];
    assert_eq!(verified["ok"], true);
    assert_eq!(verified["tables"][1]["table"], "fruit");
    assert_eq!(verified["tables"][1]["trees"][0]["rows"], 3);
    assert!(verified["tables"][1]["overflow_pages"].as_u64().unwrap() > 0);
    let stat = &json_ok(&["stat", &copy])[0];
    assert_eq!(stat["tables"][0]["height"], 1);
    assert_eq!(stat["options"]["page_size"], "16384");
    assert!(stat["status"]["lsn_current"].as_u64().unwrap() > 0);
    let (code, metrics, _) = run(&["stat", &copy, "--prometheus"]);
    assert_eq!(code, 0);
    let counted = check_prometheus(&metrics);
    let (status, durations) = (&stat["status"], &stat["durations"]);
    let (status, durations) = (status.as_object().unwrap(), durations.as_array().unwrap());
    // A summary of each duration, and a gauge of the longest; and gauges of snapshots.
    let of_snapshots = [
        "snapshots",
        "snapshots_left_over",
        "oldest_snapshot_age_ms",
        "oldest_snapshot_commits",
    ];
    for name in of_snapshots {
        assert!(
            metrics.contains(&format!("# TYPE inkstone_{name} gauge")),
            "{name}: {metrics}"
        );
    }
    assert_eq!(
        counted,
        status.len() + of_snapshots.len() + 2 * durations.len()
    );
    let reads = durations.iter().find(|d| d["name"] == "page_read").unwrap();
    assert!(reads["count"].as_u64().unwrap() > 0, "{reads}");
    assert!(
        reads["p50_ns"].as_u64() <= reads["max_ns"].as_u64(),
        "{reads}"
    );
}

#[test]
fn copy_makes_a_database_that_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    let db = fruit(&source);
    let [from, to] = [&source, &target].map(|path| path.display().to_string());
    assert_eq!(run(&["copy", &from, &to]).0, 3, "it is in use");
    db.close().unwrap();
    let copied = &json_ok(&["copy", &from, &to, "--rate", "100M"])[0];
    assert_eq!(copied["tables"], 1);
    assert_eq!(copied["opened"]["clean"], true);
    assert!(copied["page_bytes"].as_u64().unwrap() > 0);
    let verified = &json_ok(&["verify", &to])[0];
    assert_eq!(verified["ok"], true);
    assert_eq!(verified["tables"][1]["trees"][0]["rows"], 3);
    let (code, _, err) = run(&["copy", &from, &to]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("empty"), "{err}");
    let other = dir.path().join("other").display().to_string();
    let (code, out, _) = run(&["copy", &to, &other]);
    assert_eq!(code, 0);
    assert!(
        out.contains("1 tables") && out.contains("as of LSN"),
        "{out}"
    );
}

/// It was an error of a full disk, which is not full.
#[test]
fn a_limit_on_file_sizes_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fruit(&source).close().unwrap();
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$@\"";
    let mut limited = Command::new("sh");
    limited.args(["-c", script, "sh", env!("CARGO_BIN_EXE_inkstone"), "copy"]);
    let output = limited.arg(&source).arg(&target).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("ulimit -f"), "{err}");
}

#[test]
fn verify_names_all_damaged_tables() {
    let dir = tempfile::tempdir().unwrap();
    let db = fruit(dir.path());
    for name in ["second", "third", "fourth"] {
        let table = db.create_table(name, &[]).unwrap();
        let txn = db.begin(inkstone::Isolation::ReadCommitted).unwrap();
        txn.insert(&table, b"key", b"value").unwrap();
        txn.commit().unwrap();
    }
    db.close().unwrap();
    let path = dir.path().display().to_string();
    let catalog = &json_ok(&["inspect", "catalog", &path])[0]["tables"];
    let tables = catalog.as_array().unwrap().clone();
    let of = |name: &str| {
        let table = tables.iter().find(|table| table["table"] == name).unwrap();
        (
            table["file"].as_str().unwrap().to_owned(),
            table["trees"][0]["root"].as_u64().unwrap(),
        )
    };
    for name in ["second", "fourth"] {
        let (file, root) = of(name);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[root as usize * 16384 + 16000] ^= 4;
        std::fs::write(&file, &bytes).unwrap();
    }
    std::fs::remove_file(of("third").0).unwrap();
    let (code, _, err) = run(&["verify", &path]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("damage in 3 places"), "{err}");
    for text in [&of("second").0, "table third is missing", &of("fourth").0] {
        assert!(err.contains(text), "{text}: {err}");
    }
    let (code, lines) = json(&["verify", &path]);
    assert_eq!(code, 1);
    assert_eq!(lines[0]["error"]["others"].as_array().unwrap().len(), 2);
}

#[test]
fn verify_names_files_that_were_cut_short_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = fruit(dir.path());
    let mut files = Vec::new();
    for name in ["empty", "half a page", "one page", "damaged"] {
        let table = db.create_table(name, &[]).unwrap();
        files.push(table.path().to_owned());
    }
    db.close().unwrap();
    for (file, length) in files.iter().zip([0, 8192, 16384]) {
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_len(length).unwrap();
    }
    let mut bytes = std::fs::read(&files[3]).unwrap();
    bytes[100] ^= 4;
    std::fs::write(&files[3], &bytes).unwrap();
    let path = dir.path().display().to_string();
    let (code, _, err) = run(&["verify", &path]);
    assert_eq!(code, 1, "{err}");
    for file in &files {
        assert!(err.contains(&*file.to_string_lossy()), "{file:?}: {err}");
    }
    let (code, lines) = json(&["verify", &path]);
    assert_eq!(code, 1);
    assert_eq!(lines[0]["error"]["kind"], "corrupt");
}

#[test]
fn verify_names_the_damaged_page() {
    let dir = tempfile::tempdir().unwrap();
    fruit(dir.path()).close().unwrap();
    let path = dir.path().display().to_string();
    let catalog = &json_ok(&["inspect", "catalog", &path])[0]["tables"][0];
    let root = catalog["trees"][0]["root"].as_u64().unwrap();
    let file = catalog["file"].as_str().unwrap().to_owned();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[root as usize * 16384 + 16000] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let (code, _, err) = run(&["verify", &path]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains(&file), "{err}");
    assert!(err.contains(&format!("page 1:{root}")), "{err}");
    let (code, lines) = json(&["verify", &path]);
    assert_eq!(code, 1);
    assert_eq!(lines[0]["error"]["kind"], "corrupt");
    assert_eq!(lines[0]["error"]["file"], file.as_str());
    assert_eq!(lines[0]["error"]["page"], format!("1:{root}"));
    let (code, text, _) = run(&["inspect", "page", &path, &format!("1:{root}")]);
    assert_eq!(code, 0);
    assert!(
        text.contains("DAMAGED") && text.contains("checksum"),
        "{text}"
    );
}

#[test]
fn what_is_undamaged_is_salvaged_in_memory_and_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let db = fruit(dir.path());
    let table = db.create_table("second", &["by"]).unwrap();
    let by = table.tree("by").unwrap();
    let txn = db.begin(inkstone::Isolation::ReadCommitted).unwrap();
    for n in 0..2000u32 {
        txn.insert(&table, &n.to_be_bytes(), &[7; 100]).unwrap();
        txn.insert(by, &n.to_be_bytes(), b"").unwrap();
    }
    txn.insert(&table, b"long", &[9; 50_000]).unwrap();
    txn.commit().unwrap();
    drop(table);
    db.close().unwrap();
    let path = dir.path().display().to_string();
    let catalog = &json_ok(&["inspect", "catalog", &path])[0]["tables"];
    let tables = catalog.as_array().unwrap();
    let second = tables
        .iter()
        .find(|table| table["table"] == "second")
        .unwrap();
    let (root, file) = (
        &second["trees"][0]["root"],
        second["file"].as_str().unwrap(),
    );
    let mut bytes = std::fs::read(file).unwrap();
    // The root, from which nothing but the way to the leaves is lost, a leaf of the same tree, and
    // a page of the long value, which is free afterwards.
    let root = root.as_u64().unwrap() as usize;
    let first = |kind: u8, tree: Option<u8>| {
        let pages = bytes.chunks_exact(16384);
        let mut kinds = pages.map(|page| page[12] == kind && tree.is_none_or(|t| page[24] == t));
        kinds.position(|is_it| is_it).unwrap()
    };
    let mut damaged = [root, first(3, Some(0)), first(5, None)];
    damaged.sort_unstable();
    for page in damaged {
        bytes[page * 16384 + 16000] ^= 4;
    }
    std::fs::write(file, &bytes).unwrap();
    let salvaged = &json_ok(&["recover", "--salvage", &path])[0];
    assert_eq!(salvaged["written"], false);
    assert_eq!(
        salvaged["rebuilt"].as_array().unwrap().len(),
        1,
        "{salvaged}"
    );
    let pages: Vec<String> = salvaged["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|left_out| left_out["page"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(pages, damaged.map(|page| format!("2:{page}")), "{salvaged}");
    assert_eq!(
        std::fs::read(file).unwrap(),
        bytes,
        "nothing on disk changes"
    );
    assert_eq!(run(&["verify", &path]).0, 1);
    let (code, text, err) = run(&["recover", "--salvage", "--write", &path]);
    assert_eq!(code, 0, "{err}");
    assert!(
        text.contains("left out") && text.contains("was rebuilt"),
        "{text}"
    );
    assert!(
        text.contains("other trees may still have entries"),
        "{text}"
    );
    let verified = &json_ok(&["verify", &path])[0]["tables"];
    let rows = |name: &str| {
        let table = verified
            .as_array()
            .unwrap()
            .iter()
            .find(|table| table["table"] == name);
        table.unwrap()["trees"][0]["rows"].as_u64().unwrap()
    };
    assert!((1700..2000).contains(&rows("second")), "{verified}");
    let (code, text, _) = run(&["recover", "--salvage", &path]);
    assert_eq!(code, 0);
    assert!(text.contains("nothing to salvage"), "{text}");
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().display().to_string();
    let missing = dir.path().join("missing").display().to_string();
    let wrong: [&[&str]; 9] = [
        &[],
        &["fly"],
        &["bench"],
        &["verify"],
        &["tour", "--no-such-option"],
        &["inspect", "page", &empty, "seven"],
        &["bench", "logvolume", "--rows", "many"],
        &["tour", "--set", "no_such_option=1"],
        &["tour", "--page-size", "5000"],
    ];
    for arguments in wrong {
        let (code, _, err) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(!err.is_empty());
        let (code, lines) = json(arguments);
        assert_eq!((code, lines.len()), (2, 1), "{arguments:?}");
        assert_eq!(lines[0]["error"]["kind"], "usage", "{arguments:?}");
    }
    for command in ["verify", "recover", "stat"] {
        for path in [&empty, &missing] {
            let (code, lines) = json(&[command, path]);
            assert_eq!(code, 3, "{command} {path}");
            assert_eq!(lines[0]["error"]["kind"], "not_a_database");
        }
    }
    for what in ["log", "catalog", "control"] {
        assert_eq!(run(&["inspect", what, &missing]).0, 3, "{what}");
    }
    assert!(!Path::new(&missing).exists(), "nothing is created");
    assert_eq!(
        dir.path().read_dir().unwrap().count(),
        0,
        "nothing is created"
    );
    let live = dir.path().join("live");
    let db = fruit(&live);
    let live = live.display().to_string();
    let (code, lines) = json(&["verify", &live]);
    assert_eq!(
        (code, &lines[0]["error"]["kind"]),
        (3, &Value::from("in_use"))
    );
    assert_eq!(
        run(&["inspect", "catalog", &live]).0,
        0,
        "inspect needs no lock"
    );
    db.close().unwrap();
    assert_eq!(run(&["verify", &live, "--set", "page_size=4k"]).0, 2);
    assert_eq!(run(&["verify", &live]).0, 0);
}

#[test]
fn help_teaches_and_options_are_listed() {
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for word in ["tour", "bench", "inspect", "verify", "Exit codes"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("tour-child"));
    let (_, options, _) = run(&["options"]);
    assert!(options.contains("doublewrite = on"), "{options}");
    let listed = &json_ok(&["options"])[0];
    assert!(listed.as_array().unwrap().len() > 15);
}

#[test]
fn a_closed_pipe_ends_nothing_halfway() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_inkstone"))
        .args(["tour", "--rows", "100", "--seconds", "0.3"])
        .args(SMALL)
        .env("TMPDIR", dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    let left = dir.path().read_dir().unwrap().count();
    assert_eq!(left, 0, "the temporary database was left behind");
}

/// Nothing but metrics, each with description, type and values. How many.
fn check_prometheus(text: &str) -> usize {
    let parts: Vec<&str> = text.split("# HELP ").collect();
    assert_eq!(parts[0], "");
    for part in &parts[1..] {
        let lines: Vec<&str> = part.lines().collect();
        let name = lines[0].split(' ').next().unwrap();
        let kind = lines[1].strip_prefix(&format!("# TYPE {name} ")).unwrap();
        assert_eq!(name.ends_with("_total"), kind == "counter");
        assert_eq!(lines.len(), if kind == "summary" { 8 } else { 3 }, "{part}");
        for line in &lines[2..] {
            let (shown, value) = line.split_once(' ').unwrap();
            assert!(shown.starts_with(name), "{line}");
            value.parse::<f64>().unwrap();
        }
    }
    parts.len() - 1
}

/// A killed database, which recovery would change, is checked and stays as it is.
fn check_verify_writes_nothing(directory: &Path) {
    let before = traces(directory);
    let path = directory.display().to_string();
    let (code, out, err) = run(&["verify", &path]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("nothing on disk was changed"), "{out}");
    assert!(
        out.contains("1 unfinished transactions rolled back"),
        "{out}"
    );
    let verified = &json_ok(&["verify", &path])[0];
    assert_eq!(verified["opening"]["clean"], false);
    assert_eq!(verified["tables"][1]["trees"][0]["rows"], 3);
    assert!(traces(directory) == before);
}

/// It showed where a page would be if the file were one of pages in place, and so its size.
#[test]
fn inspect_shows_placed_pages_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let options = TableOptions::new()
        .page_placement(PagePlacement::Placed)
        .page_compression(PageCompression::Zstd);
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let table = db.create_table_with("t", &[], &options).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for key in 0..100_000_u32 {
        txn.insert(&table, &key.to_be_bytes(), b"always the same value")
            .unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
    let path = dir.path().display().to_string();
    let file = std::fs::read(table.path()).unwrap();
    let catalog = &json_ok(&["inspect", "catalog", &path])[0]["tables"][0];
    assert_eq!(catalog["bytes"], file.len());
    let pages = catalog["pages"].as_u64().unwrap();
    assert!(
        pages > 150 && pages * 16384 > 2 * file.len() as u64,
        "{catalog}"
    );
    let mut compressed = 0;
    for page in 0..pages {
        let shown = &json_ok(&["inspect", "page", &path, &format!("1:{page}")])[0];
        let (from, to) = (&shown["bytes_from"], &shown["bytes_to"]);
        let (from, to) = (from.as_u64().unwrap(), to.as_u64().unwrap());
        assert!(to <= file.len() as u64, "{shown}");
        assert!(from == to || shown["checksum_ok"] == true, "{shown}");
        compressed += u64::from(shown["codec"] == "zstd");
    }
    assert!(compressed * 10 > pages * 9, "{compressed} of {pages}");
    let cut = std::fs::File::options()
        .write(true)
        .open(table.path())
        .unwrap();
    cut.set_len(file.len() as u64 / 2).unwrap();
    let (code, _, err) = run(&["verify", &path]);
    assert!(code == 1 && err.contains("was cut short"), "{code}: {err}");
    std::fs::write(table.path(), &file).unwrap();
    // The first block of the map is damaged in both slots: its pages are lost, and said to be.
    let map = table.path().with_extension("places");
    let mut places = std::fs::read(&map).unwrap();
    for slot in [1, 2] {
        places[slot * 4096 + 100] ^= 1;
    }
    std::fs::write(&map, &places).unwrap();
    let (code, _, err) = run(&["inspect", "page", &path, "1:3"]);
    assert!(
        code == 3 && err.contains("place map has lost"),
        "{code}: {err}"
    );
    let (code, text, err) = run(&["inspect", "page", &path, "1:256"]);
    assert!(code == 0 && text.contains("placed    zstd"), "{text}{err}");
}
