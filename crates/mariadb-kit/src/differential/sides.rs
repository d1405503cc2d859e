//! One server, two databases of the same tables: InnoDB's and Inkstone's, with a connection each.

use super::objects::FOLDER;
use super::pages;
use super::plans::{self, Plan};
use super::sql::{ENGINE, XID};
use super::step::Step;
use super::text::Collation;
use crate::client::{Client, Reply};
use crate::plugin::Plugin;
use crate::server::{Server, run_folder};
use crate::tree::{Configuration, Tree};
use inkstone_testkit::build::Result;
use std::path::{Path, PathBuf};

/// The engines and their databases. Names of databases are equally long: limits of lengths are the
/// same.
const ENGINES: [(&str, &str); 2] = [("InnoDB", "d_inno"), ("Inkstone", "d_inks")];

/// What each session is set to. Results are the bytes that the engine stores. The time stands
/// still; keys of sorts are as long as those of indexes, or ORDER BY would depend on the plan.
const SESSION: &str = "SET NAMES utf8mb4, character_set_results = NULL, timestamp = 1700000000, max_sort_length = 16384";

/// Options of the server: a kill loses nothing that the operating system was handed.
const OPTIONS: [&str; 6] = [
    "--innodb-flush-log-at-trx-commit=2",
    "--inkstone-flush-log-at-trx-commit=2",
    "--innodb-lock-wait-timeout=1",
    "--inkstone-lock-wait-timeout=1",
    "--performance-schema=off",
    "--innodb-buffer-pool-dump-at-shutdown=off",
];

/// An engine, and its place in [`ENGINES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Innodb,
    Inkstone,
}

/// What a statement gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub reply: Reply,
    pub warnings: Vec<Warning>,
}

/// A line of SHOW WARNINGS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub level: String,
    pub code: String,
    pub message: String,
}

/// Why a step has no outcome: the server ended, or does not answer.
#[derive(Clone, Debug)]
pub struct Gone {
    /// The engine whose statement it was.
    pub engine: &'static str,
    pub how: String,
    /// File and condition of an assertion of InnoDB that failed.
    pub assertion: Option<(String, String)>,
    /// It gave more rows than are kept.
    pub is_too_large: bool,
}

/// The server, and a connection to each database.
pub struct Sides {
    server: Server,
    clients: Vec<Client>,
    /// Where statements write files, a folder for each engine.
    files: PathBuf,
    /// The plans that each side had for the latest statement before it was done, if it is a join:
    /// behind it there are other rows.
    plans: [Option<Plan>; 2],
    /// The same of an INSERT or REPLACE .. SELECT .. ORDER BY.
    sources: [Option<Plan>; 2],
    /// Collations of the server, by name.
    pub collations: Vec<Collation>,
}

impl Sides {
    /// Starts a server.
    pub fn start(tree: &Tree, plugin: &Plugin) -> Result<Self> {
        let folder = folder();
        let mut server = Server::new(tree, &folder)
            .with_plugin(plugin)
            .with_options(OPTIONS);
        server.start()?;
        let mut sides = Self {
            server,
            clients: Vec::new(),
            files: folder.join("files"),
            plans: [None, None],
            sources: [None, None],
            collations: Vec::new(),
        };
        sides.collations = sides.ask_collations()?;
        Ok(sides)
    }

    /// Takes everything away.
    pub fn remove(self) {
        self.server.remove();
    }

    fn ask_collations(&self) -> Result<Vec<Collation>> {
        let lines = self.server.sql(
            "SELECT a.full_collation_name, a.character_set_name, c.maxlen \
             FROM information_schema.collation_character_set_applicability a \
             JOIN information_schema.character_sets c USING (character_set_name) \
             WHERE a.character_set_name <> 'binary' ORDER BY 1",
        )?;
        let collation = |line: &str| {
            let mut fields = line.split('\t').map(str::to_owned);
            Some(Collation {
                name: fields.next()?,
                charset: fields.next()?,
                character_max_bytes: fields.next()?.parse().ok()?,
            })
        };
        Ok(lines.lines().filter_map(collation).collect())
    }

    /// The server from now on has this configuration.
    pub fn configure(&mut self, configuration: Configuration) -> Result<()> {
        if self.configuration() == configuration {
            return Ok(());
        }
        self.server.configure(configuration);
        self.restart(false)
    }

    /// The configuration that the server has.
    pub fn configuration(&self) -> Configuration {
        self.server.tree().configuration
    }

    /// New, empty databases and new sessions.
    pub fn renew(&mut self) -> Result<()> {
        if self.server.exited().is_some() {
            self.server.kill();
            self.server.start()?;
        }
        // One that is not ended would keep its tables.
        let end = format!("XA ROLLBACK {XID}");
        for (client, (engine, _)) in self.clients.iter_mut().zip(ENGINES) {
            let _ = client.run(&end.replace(ENGINE, engine));
        }
        self.clients.clear();
        let _ = std::fs::remove_dir_all(&self.files);
        for (engine, database) in ENGINES {
            let folder = self.files.join(engine);
            std::fs::create_dir_all(&folder)
                .map_err(|error| format!("{}: {error}", folder.display()))?;
            let mut client = self.connection()?;
            // Of before a kill.
            let _ = client.run(&end.replace(ENGINE, engine));
            // A table that cannot be dropped is a difference that is reported elsewhere.
            let _ = client.run(&format!("DROP DATABASE IF EXISTS {database}"));
            must(&mut client, &format!("CREATE DATABASE {database}"))?;
        }
        self.connect()
    }

    fn connection(&self) -> Result<Client> {
        Client::connect(self.server.socket())
            .map_err(|error| format!("the server cannot be connected to: {error}"))
    }

    fn connect(&mut self) -> Result<()> {
        self.clients.clear();
        for (engine, database) in ENGINES {
            let mut client = self.connection()?;
            must(&mut client, SESSION)?;
            must(
                &mut client,
                &format!("SET default_storage_engine = {engine}"),
            )?;
            must(&mut client, &format!("USE {database}"))?;
            self.clients.push(client);
        }
        Ok(())
    }

    /// What an engine notes without a commit that waits (counters of AUTO_INCREMENT behind a
    /// statement that failed) is there after a kill only by chance: a commit behind it makes it
    /// certain.
    fn settle(&self) -> Result<()> {
        let mut client = self.connection()?;
        for (engine, database) in ENGINES {
            let name = format!("{database}.settled");
            must(
                &mut client,
                &format!("CREATE TABLE {name} (a INT) ENGINE={engine}"),
            )?;
            must(&mut client, &format!("INSERT INTO {name} VALUES (1)"))?;
            must(&mut client, &format!("DROP TABLE {name}"))?;
        }
        Ok(())
    }

    fn restart(&mut self, kill: bool) -> Result<()> {
        if kill {
            self.settle()?;
        }
        self.clients.clear();
        if kill {
            self.server.kill();
        } else {
            self.server.stop()?;
        }
        self.server.start()
    }

    /// Does a step; gives what came of it on both sides, if it is a statement.
    pub fn run(&mut self, step: &Step) -> std::result::Result<Option<[Outcome; 2]>, Gone> {
        let statement = match step {
            Step::Run(statement) => statement.sql.render(),
            Step::Restart | Step::Kill => {
                let kill = matches!(step, Step::Kill);
                let restarted = self.restart(kill).and_then(|()| self.connect());
                return restarted.map(|()| None).map_err(|how| Gone {
                    engine: "the server",
                    how,
                    assertion: None,
                    is_too_large: false,
                });
            }
        };
        let is_join = statement.contains("JOIN ");
        self.plans = self.plans_if(is_join, &statement);
        self.sources = self.plans_if(super::buffered::inserts_in_order(&statement), &statement);
        let innodb = self.run_on(0, &statement)?;
        let inkstone = self.run_on(1, &statement)?;
        Ok(Some([innodb, inkstone]))
    }

    fn plans_if(&mut self, is_asked: bool, statement: &str) -> [Option<Plan>; 2] {
        if is_asked {
            [Side::Innodb, Side::Inkstone].map(|side| plans::plan(self, side, statement))
        } else {
            [None, None]
        }
    }

    fn run_on(&mut self, side: usize, statement: &str) -> std::result::Result<Outcome, Gone> {
        let (engine, _) = ENGINES[side];
        let folder = self.files.join(engine).to_string_lossy().into_owned();
        let statement = match engine {
            "InnoDB" => pages::for_innodb(statement),
            _ => pages::for_inkstone(statement),
        };
        let statement = statement.replace(ENGINE, engine).replace(FOLDER, &folder);
        let client = &mut self.clients[side];
        let outcome = client.run(&statement).and_then(|reply| {
            let warned = match &reply {
                Reply::Done(done) => done.warnings > 0,
                Reply::Rows(rows) => rows.warnings > 0,
                Reply::Refused(_) => true,
            };
            let warnings = if warned {
                warnings(client)?
            } else {
                Vec::new()
            };
            Ok(Outcome { reply, warnings })
        });
        outcome.map_err(|error| self.gone(ENGINES[side].0, &error))
    }

    /// Waits a moment for a server that is dying, and says how it did.
    fn gone(&mut self, engine: &'static str, error: &std::io::Error) -> Gone {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let how = match self.server.exited() {
            Some(status) => format!("the server ended ({status}):\n{}", self.server.end_of_log()),
            None => {
                let running = self.server.sql("SHOW FULL PROCESSLIST").unwrap_or_default();
                self.server.kill();
                // If it cannot be started, the next case says why.
                let _ = self.server.start();
                format!("the server does not answer ({error}); it had\n{running}")
            }
        };
        Gone {
            engine,
            how,
            assertion: self.server.failed_assertion(),
            is_too_large: error.kind() == std::io::ErrorKind::OutOfMemory,
        }
    }

    /// True if InnoDB finds one of its tables corrupt, and Inkstone none of its own.
    pub fn only_innodb_is_corrupt(&mut self) -> bool {
        let [innodb, inkstone] = [0, 1].map(|side| self.has_corrupt_table(side));
        innodb && !inkstone
    }

    fn has_corrupt_table(&mut self, side: usize) -> bool {
        let Some(Ok(Reply::Rows(tables))) = self
            .clients
            .get_mut(side)
            .map(|client| client.run("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'"))
        else {
            return false;
        };
        let names = tables.rows.into_iter();
        let names = names.filter_map(|row| row.into_iter().next().flatten());
        let names: Vec<String> = names
            .map(|name| String::from_utf8_lossy(&name).into_owned())
            .collect();
        names.iter().any(|name| {
            self.is_found_corrupt(side, name) || self.has_index_of_other_rows(side, name)
        })
    }

    /// What CHECK TABLE says; it cannot be done in an XA transaction.
    fn is_found_corrupt(&mut self, side: usize, table: &str) -> bool {
        let check = format!("CHECK TABLE {table} EXTENDED");
        let Ok(Reply::Rows(said)) = self.clients[side].run(&check) else {
            return false;
        };
        // The last line is `status | OK`, or what is wrong.
        let last = said
            .rows
            .last()
            .and_then(|row| row.last().cloned().flatten());
        last.as_deref() != Some(b"OK")
    }

    /// True if some index gives other values than the table has.
    fn has_index_of_other_rows(&mut self, side: usize, table: &str) -> bool {
        let indexes = format!(
            "SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index) \
             FROM information_schema.statistics \
             WHERE table_schema = DATABASE() AND table_name = '{table}' GROUP BY index_name"
        );
        let mut sorted_rows = |statement: &str| {
            let Ok(Reply::Rows(mut rows)) = self.clients[side].run(statement) else {
                return Vec::new();
            };
            rows.rows.sort();
            rows.rows
        };
        let indexes = sorted_rows(&indexes);
        let text = |cell: &Option<Vec<u8>>| String::from_utf8(cell.clone()?).ok();
        indexes.iter().any(|row| {
            let (Some(index), Some(columns)) =
                (row.first().and_then(text), row.get(1).and_then(text))
            else {
                return false;
            };
            let select = format!("SELECT {columns} FROM {table}");
            sorted_rows(&format!(
                "{select} FORCE INDEX (`{index}`) ORDER BY {columns}"
            )) != sorted_rows(&format!("{select} USE INDEX ()"))
        })
    }

    /// Makes a table of InnoDB's with the rows that Inkstone's of this name has; its name. Ends
    /// transactions.
    pub fn copy_to_innodb(&mut self, table: &str) -> Option<String> {
        self.copy_of(1, table)
    }

    /// Gives rows to a copy of a table of InnoDB's, those that a key refuses left out: whether
    /// InnoDB's indexes of the copy are not what its rows are. Ends transactions.
    pub fn innodb_corrupts_a_copy(&mut self, table: &str, rows: &str) -> bool {
        let Some(copy) = self.copy_of(0, table) else {
            return false;
        };
        if self.is_found_corrupt(0, &copy) || self.has_index_of_other_rows(0, &copy) {
            return false;
        }
        let insert = format!("INSERT IGNORE INTO {copy} {rows}");
        let inserted = matches!(self.ask(&insert), Some(Reply::Done(_)));
        inserted && (self.is_found_corrupt(0, &copy) || self.has_index_of_other_rows(0, &copy))
    }

    /// Ends what transactions are under way.
    pub fn end_transactions(&mut self) {
        for (client, (engine, _)) in self.clients.iter_mut().zip(ENGINES) {
            // What is not in such a state refuses it.
            for end in [
                format!("XA END {XID}"),
                format!("XA COMMIT {XID} ONE PHASE"),
                "COMMIT".to_owned(),
            ] {
                let _ = client.run(&end.replace(ENGINE, engine));
            }
        }
    }

    /// Makes a table of InnoDB's with the rows that a side's of this name has.
    fn copy_of(&mut self, side: usize, table: &str) -> Option<String> {
        let [(_, innodb), _] = ENGINES;
        let (_, from) = ENGINES[side];
        let copy = format!("copy_of_{table}");
        self.end_transactions();
        let client = self.clients.get_mut(1)?;
        let done = |reply: std::io::Result<Reply>| match reply {
            Ok(Reply::Done(done)) => Some(done),
            _ => None,
        };
        let make = format!("CREATE TABLE {innodb}.{copy} LIKE {innodb}.{table}");
        done(client.run(&make))?;
        let columns = format!(
            "SELECT GROUP_CONCAT(CONCAT('`', column_name, '`')) FROM information_schema.columns \
             WHERE table_schema = '{from}' AND table_name = '{table}' AND is_generated = 'NEVER'"
        );
        let Ok(Reply::Rows(named)) = client.run(&columns) else {
            return None;
        };
        let columns = named.rows.into_iter().next()?.into_iter().next()??;
        let columns = String::from_utf8(columns).ok()?;
        let fill = format!(
            "INSERT INTO {innodb}.{copy} ({columns}) SELECT {columns} FROM {from}.{table} USE INDEX ()"
        );
        done(client.run(&fill))?;
        done(client.run("COMMIT"))?;
        Some(copy)
    }

    /// Does a statement again, on one side.
    pub fn again(&mut self, side: Side, statement: &str) -> Option<Outcome> {
        self.run_on(side as usize, statement).ok()
    }

    /// Asks InnoDB's side something about its own rows.
    pub fn ask(&mut self, statement: &str) -> Option<Reply> {
        self.ask_of(Side::Innodb, statement)
    }

    /// Asks a side something about its own rows.
    pub fn ask_of(&mut self, side: Side, statement: &str) -> Option<Reply> {
        self.clients.get_mut(side as usize)?.run(statement).ok()
    }

    /// True if the latest statement inserted rows by way of a temporary table, and only one engine
    /// sorted them there.
    pub fn buffered_otherwise(&self) -> bool {
        match &self.sources {
            [Some(innodb), Some(inkstone)] => plans::is_one_sorted([innodb, inkstone]),
            _ => false,
        }
    }

    /// True if the latest statement was a join, and was done in another way by one engine than by
    /// the other.
    pub fn joined_otherwise(&self) -> bool {
        matches!(&self.plans, [Some(innodb), Some(inkstone)] if innodb != inkstone)
    }
}

/// A folder of this process's own, in memory if the machine has such a place: a sync costs nothing
/// there, and what is tested here is not the disk. Those of processes that are gone are removed.
fn folder() -> PathBuf {
    const NAME: &str = "inkstone-differential-";
    let memory = Path::new("/dev/shm");
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let folder = memory.join(format!("{NAME}{}", std::process::id()));
    match std::fs::create_dir_all(&folder) {
        Ok(()) => folder,
        Err(_) => run_folder("differential"),
    }
}

fn must(client: &mut Client, statement: &str) -> Result<()> {
    match client.run(statement) {
        Ok(Reply::Refused(refusal)) => Err(format!("{statement}: {}", refusal.message)),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{statement}: {error}")),
    }
}

fn warnings(client: &mut Client) -> std::io::Result<Vec<Warning>> {
    let Reply::Rows(rows) = client.run("SHOW WARNINGS")? else {
        return Ok(Vec::new());
    };
    let warning = |row: Vec<Option<Vec<u8>>>| {
        let mut fields = row
            .into_iter()
            .map(|cell| String::from_utf8_lossy(&cell.unwrap_or_default()).into_owned());
        Some(Warning {
            level: fields.next()?,
            code: fields.next()?,
            message: neutral(&fields.next()?),
        })
    };
    Ok(rows.rows.into_iter().filter_map(warning).collect())
}

/// Text without the names of engines and databases.
pub fn neutral(text: &str) -> String {
    let mut neutral = crate::compare::without_name(&pages::unshown(text));
    for (_, database) in ENGINES {
        neutral = neutral.replace(database, "<DATABASE>");
    }
    // A temporary name has the connection's number.
    match neutral.split_once("#sql-alter-") {
        Some((before, behind)) => {
            let number = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
            format!("{before}#sql{}", behind.trim_start_matches(number))
        }
        None => neutral,
    }
}
