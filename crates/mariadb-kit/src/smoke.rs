//! `--smoke`: every `mariadb/tests/*.sql` for InnoDB and for Inkstone in the same server. What the
//! two print must be equal: rows, warnings, errors, plans. A line `# restart` restarts the server
//! in order between what is above it and what is below it.

use super::compare::{differences, neutral};
use super::inputs::{Input, inputs};
use super::plugin::Plugin;
use super::server::Server;
use super::tree::{Configuration, Tree};
use super::watching;
use super::{
    alter_matrix, full_disk, idle, import, kills, long_columns, missing, online, own_tables,
    read_only, shutdown, wrong_indexes,
};
use inkstone_testkit::build::Result;
use std::io::Read;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs all files, or those whose name begins with `filter`, under this configuration or under
/// each.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    filter: Option<&str>,
    configuration: Option<Configuration>,
) -> Result<ExitCode> {
    let files = inputs("tests", filter, ".sql")?;
    let mut wrong = 0;
    for each in [Configuration::Debian, Configuration::Plain] {
        if configuration.is_none_or(|only| only == each) {
            let tree = tree.clone().configured(each);
            let is_first = configuration.is_some() || each == Configuration::Debian;
            let differ = run_files(&tree, plugin, &files, is_first)?;
            println!("{each:?}: {} files, {differ} differ", files.len());
            wrong += differ;
        }
    }
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// Checks a server without other clients.
type Check = fn(&mut Server) -> Result<()>;

/// Checks that no option of the server makes a difference to, and that take long.
const ONCE: [&str; 4] = ["alter_matrix", "full_disk", "online", "read_only"];

/// What is looked at behind the files.
const CHECKS: [(&str, Check); 16] = [
    ("databases", |server| check_databases(server)),
    ("status", |server| check_status(server)),
    ("watching", |server| watching::check(server)),
    ("idle", |server| idle::check(server)),
    ("alter_matrix", |server| alter_matrix::check(server)),
    ("online", |server| online::check(server)),
    ("kills", |server| kills::check(server)),
    ("long_columns", |server| long_columns::check(server)),
    ("refusals", |server| check_refusals(server)),
    ("import", |server| import::check(server)),
    ("missing", missing::check),
    ("wrong_indexes", wrong_indexes::check),
    ("shutdown", shutdown::check),
    ("own_tables", own_tables::check),
    ("read_only", read_only::check),
    ("full_disk", |server| full_disk::check(server)),
];

/// Runs files in a server of their own; gives how many differ.
fn run_files(
    tree: &Tree,
    plugin: &Plugin,
    files: &[Input],
    with_all_checks: bool,
) -> Result<usize> {
    let options = [
        "--log-bin=binlog",
        "--binlog-format=row",
        "--innodb-lock-wait-timeout=1",
        "--loose-inkstone-lock-wait-timeout=1",
    ];
    let mut server = Server::temporary(tree, "smoke")
        .with_plugin(plugin)
        .with_options(options);
    server.start()?;
    let mut wrong = 0;
    for Input { name, text } in files {
        let began = Instant::now();
        let differences = compare(&mut server, text).unwrap_or_else(|error| error);
        let seconds = began.elapsed().as_secs_f64();
        if differences.is_empty() {
            println!("{name:24} equal   {seconds:6.1} s");
        } else {
            wrong += 1;
            println!("{name:24} DIFFERS {seconds:6.1} s\n{differences}");
        }
        if let Some(status) = server.exited() {
            println!(
                "the server ended ({status}) in {name}:\n{}",
                server.end_of_log()
            );
            server.kill();
            server.start()?;
        }
    }
    let is_wanted = |name: &str| with_all_checks || !ONCE.contains(&name);
    for (name, check) in CHECKS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let began = Instant::now();
        check(&mut server)?;
        println!("{name:24} checked {:6.1} s", began.elapsed().as_secs_f64());
    }
    // The data must survive a restart as they are, also under options that are out of bounds.
    server.stop()?;
    server.set_option("loose-inkstone-buffer-pool-size", "300k");
    server.set_option("loose-inkstone-page-size", "0");
    server.start()?;
    check_adjusted(&server)?;
    check_tables(&server)?;
    server.stop()?;
    server.remove();
    Ok(wrong)
}

/// Runs a file for both engines; gives the differences of what they print, and of their errors.
fn compare(server: &mut Server, text: &str) -> Result<String> {
    let (innodb, innodb_errors) = run_file(server, text, "InnoDB")?;
    let (inkstone, inkstone_errors) = run_file(server, text, "Inkstone")?;
    let work = server.folder();
    let mut found = differences(&neutral(&innodb), &neutral(&inkstone), work)?;
    found += &differences(&neutral(&innodb_errors), &neutral(&inkstone_errors), work)?;
    Ok(found)
}

/// The line between two parts of a file.
const RESTART: &str = "\n# restart\n";

/// Runs a file in a database of its own; gives standard output and standard error.
fn run_file(server: &mut Server, text: &str, engine: &str) -> Result<(String, String)> {
    let text = text
        .replace("Inkstone", engine)
        .replace("inkstone", &engine.to_lowercase());
    // Both have the same name: it is printed here and there.
    server.sql("CREATE OR REPLACE DATABASE smoke")?;
    let (mut printed, mut errors) = (String::new(), String::new());
    for (part, text) in text.split(RESTART).enumerate() {
        if part > 0 {
            server.stop()?;
            server.start()?;
        }
        let (more, more_errors) = run_part(server, text, engine)?;
        printed += &more;
        errors += &more_errors;
    }
    Ok((printed, errors))
}

/// Runs statements between two restarts.
fn run_part(server: &Server, text: &str, engine: &str) -> Result<(String, String)> {
    let mut client = server.client_for(text)?;
    client.args([
        "--database=smoke",
        "--batch",
        "--force",
        "--verbose",
        "--show-warnings",
        &format!("--init-command=SET SESSION default_storage_engine={engine}"),
    ]);
    let output = output_within(&mut client, PATIENCE).map_err(|error| {
        let running = server.sql("SHOW FULL PROCESSLIST").unwrap_or_default();
        format!("{error} for {engine}; the server has\n{running}")
    })?;
    Ok((
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

/// How long a file may take for one engine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a command to its end, which must come in time.
fn output_within(command: &mut Command, patience: Duration) -> Result<Output> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("the client cannot be started: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if began.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break Err(format!("a statement has not ended after {patience:?}"));
                }
            }
        };
        Ok(Output {
            status: status?,
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
        })
    })
}

fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

/// What the engine cannot give: clauses of CREATE TABLE and of ALTER TABLE, and what the error must
/// name.
const REFUSED: [(&str, &str); 6] = [
    (
        "CREATE TABLE n (a INT) DATA DIRECTORY='/tmp'",
        "DATA DIRECTORY",
    ),
    (
        "CREATE TABLE n (a INT) INDEX DIRECTORY='/tmp'",
        "INDEX DIRECTORY",
    ),
    ("CREATE TABLE n (a INT) ENCRYPTED=YES", "encrypted"),
    (
        "CREATE TABLE n (a INT) ENCRYPTION_KEY_ID=1",
        "encryption_key_id",
    ),
    ("ALTER TABLE csv ENGINE=Inkstone", "ietf_quotes"),
    // Its rows lie by a key that did not admit NULL from the beginning.
    (
        "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE apart",
        "different definitions",
    ),
];

/// Checks that what has no effect is refused, with its name, and changes nothing.
fn check_refusals(server: &Server) -> Result<()> {
    let set_up =
        "CREATE OR REPLACE DATABASE smoke; USE smoke; SET default_storage_engine=Inkstone;";
    server.sql(&format!(
        "{set_up} CREATE TABLE t (a INT PRIMARY KEY); CREATE TABLE csv (a INT NOT NULL) ENGINE=CSV IETF_QUOTES=YES; \
         CREATE TABLE p (a INT NOT NULL, b INT, c INT, UNIQUE (b, a), UNIQUE (c, a)) PARTITION BY RANGE (a) (PARTITION p1 VALUES LESS THAN (7)); \
         ALTER TABLE p MODIFY c INT NOT NULL; CREATE TABLE apart LIKE p; ALTER TABLE apart REMOVE PARTITIONING"
    ))?;
    let definitions = || {
        server.sql(
            "SHOW CREATE TABLE smoke.t; SHOW CREATE TABLE smoke.csv; SELECT * FROM smoke.p; \
             SELECT * FROM smoke.apart; SHOW TABLES FROM smoke",
        )
    };
    let before = definitions()?;
    for (statement, named) in REFUSED {
        let result = server.sql(&format!(
            "USE smoke; SET default_storage_engine=Inkstone; {statement}"
        ));
        match result {
            Err(error) if error.to_lowercase().contains(&named.to_lowercase()) => {}
            other => {
                return Err(format!(
                    "{statement}: not refused with {named}, but {other:?}"
                ));
            }
        }
    }
    if definitions()? == before {
        Ok(())
    } else {
        Err("a refused statement has changed a table".to_owned())
    }
}

/// Checks that the engine's directory is not taken for a database: a dump of all databases would
/// drop it.
fn check_databases(server: &Server) -> Result<()> {
    let databases = server.sql("SHOW DATABASES")?;
    if databases.lines().any(|name| name == "inkstone") {
        Err(format!(
            "the engine's directory is a database: {databases:?}"
        ))
    } else {
        Ok(())
    }
}

/// Checks that connections that ask for the status at once all get it. A server that gathered it in
/// one place for all of them showed names that another connection had freed.
fn check_status(server: &Server) -> Result<()> {
    let ask = "SHOW GLOBAL STATUS LIKE 'inkstone%';";
    let names = |answer: String| -> String {
        let lines = answer.lines();
        lines
            .map(|line| format!("{}\n", line.split('\t').next().unwrap_or_default()))
            .collect()
    };
    let expected = names(server.sql(ask)?).repeat(100);
    std::thread::scope(|scope| {
        let clients = [(); 6].map(|()| scope.spawn(|| server.sql(&ask.repeat(100))));
        for client in clients {
            let answer = client.join().map_err(|_| "a client panicked")??;
            if names(answer) != expected {
                return Err("SHOW STATUS differs where several ask at once".to_owned());
            }
        }
        Ok(())
    })
}

/// Checks that a pool of too few pages was made larger, and the administrator told.
fn check_adjusted(server: &Server) -> Result<()> {
    let bytes = server.sql("SELECT @@inkstone_buffer_pool_size")?;
    let log = server.log();
    let text = std::fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let warned = String::from_utf8_lossy(&text).contains("inkstone_buffer_pool_size is 307200");
    if bytes.trim() == (64_u32 * 65536).to_string() && warned {
        Ok(())
    } else {
        Err(format!(
            "a pool of 300 KiB has become {bytes} bytes, with a warning: {warned}"
        ))
    }
}

/// Checks every table of Inkstone that is there.
pub fn check_tables(server: &Server) -> Result<()> {
    check_tables_but(server, &[])
}

/// As [`check_tables`], but for those of these names.
pub fn check_tables_but(server: &Server, without: &[&str]) -> Result<()> {
    let without: String = without
        .iter()
        .map(|name| format!(" AND table_name <> '{name}'"))
        .collect();
    let tables = server.sql(&format!(
        "SELECT CONCAT('CHECK TABLE `', table_schema, '`.`', table_name, '` EXTENDED;') \
         FROM information_schema.tables WHERE engine = 'Inkstone'{without}"
    ))?;
    if tables.trim().is_empty() {
        return Ok(());
    }
    let checked = server.sql(&tables)?;
    let bad: Vec<&str> = checked
        .lines()
        .filter(|line| !line.ends_with("\tOK"))
        .collect();
    if bad.is_empty() {
        Ok(())
    } else {
        Err(format!("CHECK TABLE finds damage:\n{}", bad.join("\n")))
    }
}
