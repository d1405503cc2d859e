//! One engine's side of a case: sessions that run statements beside each other.
//!
//! After each statement the stage is *settled*: each session is idle, or known to wait for another.
//! Which sessions wait is asked of the engine's own tables of transactions and of the server's list
//! of processes. Nothing depends on how fast the machine is: a session that neither answers nor
//! waits is asked about again.

use super::script::{self, ENGINE, Script};
use crate::client::{Cell, Client, Reply, Rows};
use crate::server::LOG;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A statement that does not wait has mostly ended after this time.
const SOON: Duration = Duration::from_millis(15);
/// InnoDB gives the same answer for 100 ms to queries that come sooner.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(110);
/// How long purge is waited for.
const PURGE_TIME_MAX: Duration = Duration::from_secs(5);
/// A session that neither ends nor waits for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine and its database. Names of databases are equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    InnoDb,
    Inkstone,
}

impl Engine {
    pub const BOTH: [Self; 2] = [Self::InnoDb, Self::Inkstone];

    pub fn name(self) -> &'static str {
        match self {
            Self::InnoDb => "InnoDB",
            Self::Inkstone => "Inkstone",
        }
    }

    pub fn database(self) -> &'static str {
        match self {
            Self::InnoDb => "s_inno",
            Self::Inkstone => "s_inks",
        }
    }

    /// The status variable that is 0 when all that is deleted has been purged.
    fn left_to_purge(self) -> &'static str {
        match self {
            Self::InnoDb => "INNODB_HISTORY_LIST_LENGTH",
            Self::Inkstone => "INKSTONE_VERSION_STORE_BYTES",
        }
    }

    /// Which connection waits for a row, and for which others, by their numbers. In InnoDB all
    /// transactions that have changed nothing have the number 0: those without locks block none.
    fn waits(self) -> &'static str {
        match self {
            Self::InnoDb => {
                "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id \
                 FROM information_schema.innodb_trx r \
                 LEFT JOIN information_schema.innodb_lock_waits w ON w.requesting_trx_id = r.trx_id \
                 LEFT JOIN information_schema.innodb_trx b \
                 ON b.trx_id = w.blocking_trx_id AND b.trx_lock_structs > 0 \
                 WHERE r.trx_state = 'LOCK WAIT'"
            }
            Self::Inkstone => {
                "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id \
                 FROM information_schema.inkstone_trx r \
                 LEFT JOIN information_schema.inkstone_trx b ON b.trx_id = r.trx_waits_for \
                 WHERE r.trx_waits_for IS NOT NULL"
            }
        }
    }
}

/// Waiters for what the server itself locks: tables, names. FLUSH TABLES looks again and again, and
/// says in between that it does nothing.
const SERVER_WAITS: &str = "SELECT id, NULL FROM information_schema.processlist \
     WHERE state LIKE 'Waiting for %' OR info LIKE 'FLUSH TABLES%' AND time_ms > 1000";

/// How the monitor's errors begin where a table's name is locked, or a session waits for its lock
/// before the monitor.
const LOCKED_OUT: &str = "the monitor does not get at a table";

/// Whether an error of [`Stage::ask`] is that of a locked name.
pub(super) fn is_locked_out(error: &str) -> bool {
    error.starts_with(LOCKED_OUT)
}

/// Waiters for the name of a table.
const NAME_WAITS: &str = "SELECT id FROM information_schema.processlist \
     WHERE state = 'Waiting for table metadata lock'";

/// Waiters for the lock of the whole server, which writes and commits take.
const BACKUP_WAITS: &str = "SELECT id FROM information_schema.processlist \
     WHERE state = 'Waiting for backup lock'";

/// A lock did not come within the session's time.
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// What a session has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Its statement has ended.
    Ended(Reply),
    /// It waits for these sessions; for none of them that is known, if the server makes it wait.
    Waits(Vec<usize>),
    /// It waits still, so it cannot be told anything.
    Busy,
    /// It neither waits nor ends.
    Hangs,
    /// Its connection has been killed.
    Gone,
}

/// What a step of the script came to: of its own session first, then those that it let go on.
pub type Outcome = BTreeMap<usize, What>;

pub(super) struct Session {
    pub(super) connection: u64,
    statements: Sender<String>,
    replies: Receiver<std::io::Result<Reply>>,
    /// What it does, or has done last.
    pub(super) statement: String,
    pub(super) working: bool,
    /// Its connection was told to end.
    killed: bool,
    gone: bool,
}

/// The sessions of a case.
pub struct Stage {
    pub(super) engine: Engine,
    socket: PathBuf,
    /// Bytes of the server's log when the latest step began.
    log_bytes: u64,
    pub(super) monitor: Client,
    pub(super) sessions: Vec<Session>,
    /// Holds a snapshot from before the first row, so that purge takes nothing away: what is
    /// deleted stays as a mark, for both engines, at all speeds. None if the script wants purge.
    _holder: Option<Client>,
}

impl Stage {
    /// A new database with what the script begins with, and its sessions.
    pub fn set(engine: Engine, socket: &Path, script: &Script) -> Result<Self> {
        let connect = || Client::connect(socket).map_err(|error| format!("no connection: {error}"));
        let mut monitor = connect()?;
        let database = engine.database();
        must(&mut monitor, &format!("DROP DATABASE IF EXISTS {database}"))?;
        must(&mut monitor, &format!("CREATE DATABASE {database}"))?;
        must(&mut monitor, &format!("USE {database}"))?;
        // It looks at tables while DDL waits for their names, and would wait behind that.
        must(&mut monitor, "SET lock_wait_timeout = 1")?;
        let holder = if script.purged {
            None
        } else {
            let mut holder = connect()?;
            must(&mut holder, "START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
            Some(holder)
        };
        let mut setup = connect()?;
        must(&mut setup, &format!("USE {database}"))?;
        for statement in &script.setup {
            must(&mut setup, &statement.replace(ENGINE, engine.name()))?;
        }
        if script.purged {
            await_purge(&mut monitor, engine)?;
        }
        let mut stage = Self {
            engine,
            socket: socket.to_owned(),
            log_bytes: 0,
            monitor,
            sessions: Vec::new(),
            _holder: holder,
        };
        for _ in 0..script.sessions() {
            let session = stage.session()?;
            stage.sessions.push(session);
        }
        Ok(stage)
    }

    fn session(&self) -> Result<Session> {
        let mut client =
            Client::connect(&self.socket).map_err(|e| format!("no connection: {e}"))?;
        client.wait_for_ever().map_err(|error| error.to_string())?;
        must(&mut client, &format!("USE {}", self.engine.database()))?;
        let connection = client.id().into();
        let (statements, received) = channel::<String>();
        let (sender, replies) = channel();
        // It ends with its channel, or with its connection.
        thread::spawn(move || {
            for statement in received {
                if sender.send(client.run(&statement)).is_err() {
                    return;
                }
            }
        });
        Ok(Session {
            connection,
            statements,
            replies,
            statement: String::new(),
            working: false,
            killed: false,
            gone: false,
        })
    }

    /// Lets a session say something, and waits until everything is settled.
    pub fn step(&mut self, session: usize, statement: &str) -> Result<Outcome> {
        if self.sessions[session - 1].gone {
            return Ok(Outcome::from([(session, What::Gone)]));
        }
        if self.sessions[session - 1].working {
            return Ok(Outcome::from([(session, What::Busy)]));
        }
        let statement = self.filled(statement);
        self.log_bytes = std::fs::metadata(self.log()).map_or(0, |log| log.len());
        self.say(session, statement)?;
        let mut outcome = self.settle()?;
        // Sessions that waited before, and wait still, are no news.
        outcome.retain(|&other, what| other == session || !matches!(what, What::Waits(_)));
        Ok(outcome)
    }

    /// The server's log, which lies beside its socket.
    fn log(&self) -> PathBuf {
        self.socket.with_file_name(LOG)
    }

    /// What the server has logged since the latest step began.
    pub(super) fn logged(&self) -> Result<String> {
        let log = self.log();
        let bytes = std::fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let new = bytes.get(self.log_bytes as usize..).unwrap_or_default();
        Ok(String::from_utf8_lossy(new).into_owned())
    }

    /// What a session does, or has done last.
    pub fn statement(&self, session: usize) -> String {
        self.sessions[session - 1].statement.clone()
    }

    /// As [`Self::step`], and the session's statement, and the step, remain the one before.
    pub fn aside(&mut self, session: usize, statement: &str) -> Result<Outcome> {
        let (before, log_bytes) = (self.statement(session), self.log_bytes);
        let outcome = self.step(session, statement);
        self.sessions[session - 1].statement = before;
        self.log_bytes = log_bytes;
        outcome
    }

    /// A statement of the script with the engine's name and the numbers of connections.
    fn filled(&mut self, statement: &str) -> String {
        let mut filled = statement.replace(ENGINE, self.engine.name());
        for (at, session) in self.sessions.iter_mut().enumerate() {
            let number = script::connection(at + 1);
            // KILL QUERY ends a statement only.
            session.killed |= filled.starts_with(&format!("KILL {number}"));
            filled = filled.replace(&number, &session.connection.to_string());
        }
        filled
    }

    fn say(&mut self, session: usize, statement: String) -> Result<()> {
        let session = &mut self.sessions[session - 1];
        session.working = true;
        session.statement.clone_from(&statement);
        let gone = |_| "a session's thread is gone".to_owned();
        session.statements.send(statement).map_err(gone)
    }

    /// Waits until each session has ended its statement, or waits for another.
    fn settle(&mut self) -> Result<Outcome> {
        let mut outcome = Outcome::new();
        let begin = Instant::now();
        let mut pause = SOON;
        loop {
            self.collect(pause, &mut outcome)?;
            pause = ASK_AGAIN;
            if self.is_ending(&mut outcome)? {
                continue;
            }
            if !self.sessions.iter().any(|session| session.working) {
                return Ok(outcome);
            }
            if begin.elapsed() < ASK_AGAIN || self.is_patient() {
                continue;
            }
            let waits = self.waits()?;
            // Answers that came meanwhile may have changed what is true of the others.
            if self.collect(Duration::ZERO, &mut outcome)? {
                continue;
            }
            let hangs = begin.elapsed() > PATIENCE;
            let working = self.sessions.iter().enumerate().filter(|(_, s)| s.working);
            let all: Option<Vec<_>> = working
                .map(|(at, session)| match waits.get(&session.connection) {
                    Some(blockers) => Some((at + 1, What::Waits(self.numbered(blockers)))),
                    None => hangs.then_some((at + 1, What::Hangs)),
                })
                .collect();
            if let Some(all) = all {
                outcome.extend(all);
                return Ok(outcome);
            }
        }
    }

    /// Takes the answers that come within this time; whether there were any.
    fn collect(&mut self, within: Duration, outcome: &mut Outcome) -> Result<bool> {
        let until = Instant::now() + within;
        let mut any = false;
        for (at, session) in self.sessions.iter_mut().enumerate() {
            if !session.working {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            match session.replies.recv_timeout(left) {
                // Whether a statement hears that its connection is killed before that ends is a
                // race.
                Ok(_) if session.killed => {
                    (session.working, session.gone, any) = (false, true, true);
                    outcome.insert(at + 1, What::Gone);
                }
                Ok(Ok(reply)) => {
                    session.working = false;
                    any = true;
                    let reply = nameless(reply, self.engine.database());
                    let reply = without_copies(reply, &session.statement);
                    outcome.insert(at + 1, What::Ended(reply));
                }
                Ok(Err(error)) => return Err(format!("session {}: {error}", at + 1)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("a session's thread is gone".to_owned());
                }
            }
        }
        Ok(any)
    }

    /// Whether a statement waits that gives up by itself: nothing else is done until it has.
    fn is_patient(&self) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.any(|session| session.working && session.statement.contains(" WAIT "))
    }

    /// Whether a connection that was killed is still there. One that was idle says nothing when it
    /// goes.
    fn is_ending(&mut self, outcome: &mut Outcome) -> Result<bool> {
        if !self.sessions.iter().any(|s| s.killed && !s.gone) {
            return Ok(false);
        }
        let rows = self.ask("SELECT id FROM information_schema.processlist")?;
        let ids = numbers(&rows).concat();
        let mut ending = false;
        for (at, session) in self.sessions.iter_mut().enumerate() {
            if !session.killed || session.gone {
                continue;
            }
            let there = ids.contains(&Some(session.connection));
            ending |= there;
            session.gone = !there && !session.working;
            if session.gone {
                outcome.insert(at + 1, What::Gone);
            }
        }
        Ok(ending)
    }

    /// Rows that the monitor reads in the case's database.
    pub(super) fn ask(&mut self, statement: &str) -> Result<Rows> {
        match self.monitor.run(statement) {
            Ok(Reply::Rows(rows)) => Ok(rows),
            Ok(Reply::Done(_)) => Ok(Rows {
                rows: Vec::new(),
                warnings: 0,
            }),
            Ok(Reply::Refused(refusal)) if refusal.code == LOCK_WAIT_TIMEOUT => {
                Err(format!("{LOCKED_OUT}: {statement}"))
            }
            Ok(Reply::Refused(refusal)) => Err(format!("{statement}: {}", refusal.message)),
            Err(error) => Err(format!("{statement}: {error}")),
        }
    }

    /// Ends the statements that wait for the name of a table.
    pub(super) fn end_waits_for_names(&mut self) -> Result<()> {
        let rows = self.ask(NAME_WAITS)?;
        let waiting = numbers(&rows).concat();
        let mut ended = Vec::new();
        for (at, session) in self.sessions.iter().enumerate() {
            if session.working && waiting.contains(&Some(session.connection)) {
                ended.push(at);
            }
        }
        for at in ended {
            let kill = format!("KILL QUERY {}", self.sessions[at].connection);
            must(&mut self.monitor, &kill)?;
            let begin = Instant::now();
            while self.sessions[at].working {
                if begin.elapsed() > PATIENCE {
                    return Err(format!("session {} does not hear {kill}", at + 1));
                }
                self.collect(SOON, &mut Outcome::new())?;
            }
        }
        Ok(())
    }

    /// Connections that wait, and for which.
    pub(super) fn waits(&mut self) -> Result<BTreeMap<u64, Vec<u64>>> {
        let mut waits = BTreeMap::<u64, Vec<u64>>::new();
        for statement in [self.engine.waits(), SERVER_WAITS] {
            let rows = self.ask(statement)?;
            for row in numbers(&rows) {
                let [Some(waits_here), blocker] = row[..] else {
                    continue;
                };
                waits.entry(waits_here).or_default().extend(blocker);
            }
        }
        Ok(waits)
    }

    /// Sessions that wait for the lock of the whole server, or for the name of a table.
    pub(super) fn kept_by_server(&mut self) -> Result<Vec<usize>> {
        let mut connections = Vec::new();
        for statement in [BACKUP_WAITS, NAME_WAITS] {
            connections.extend(
                numbers(&self.ask(statement)?)
                    .into_iter()
                    .flatten()
                    .flatten(),
            );
        }
        Ok(self.numbered(&connections))
    }

    pub(super) fn numbered(&self, connections: &[u64]) -> Vec<usize> {
        let is_one = |session: &Session| connections.contains(&session.connection);
        let sessions = self.sessions.iter().enumerate();
        let blockers = sessions.filter(|(_, session)| is_one(session));
        blockers.map(|(at, _)| at + 1).collect()
    }

    /// Sessions that can be told something.
    pub fn idle(&self) -> Vec<usize> {
        let sessions = self.sessions.iter().enumerate();
        let idle = sessions.filter(|(_, session)| !session.working && !session.gone);
        idle.map(|(at, _)| at + 1).collect()
    }

    /// Sessions whose statement has not ended.
    pub fn working(&self) -> Vec<usize> {
        let sessions = self.sessions.iter().enumerate();
        let working = sessions.filter(|(_, session)| session.working);
        working.map(|(at, _)| at + 1).collect()
    }

    /// Rows of all tables, and what CHECK TABLE says.
    pub fn contents(&mut self) -> Result<Vec<(String, Outcome)>> {
        // Looks at newest versions have left another level; what is prepared is not to be seen.
        self.ask("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
        let tables = self.ask("SHOW TABLES")?;
        let mut contents = Vec::new();
        for table in tables.rows.into_iter().flatten().flatten() {
            let table = String::from_utf8_lossy(&table).into_owned();
            for statement in [
                format!("SELECT * FROM {table}"),
                format!("CHECK TABLE {table}"),
            ] {
                let reply = self.monitor.run(&statement);
                let reply = reply.map_err(|error| format!("{statement}: {error}"))?;
                let reply = nameless(reply, self.engine.database());
                contents.push((statement, Outcome::from([(0, What::Ended(reply))])));
            }
        }
        Ok(contents)
    }
}

impl Drop for Stage {
    /// A thread whose statement waits for ever ends with its connection. A prepared transaction
    /// outlives its session, and its locks would keep the database.
    fn drop(&mut self) {
        for session in &self.sessions {
            let _ = self.monitor.run(&format!("KILL {}", session.connection));
        }
        let begin = Instant::now();
        let prepared = format!("XA ROLLBACK '{}'", self.engine.name());
        while self.is_connected() && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(2));
            // ALTER waits for one in InnoDB, and does not hear that it is killed.
            let _ = self.monitor.run(&prepared);
        }
        let _ = self.monitor.run(&prepared);
    }
}

impl Stage {
    /// Whether any session still is.
    fn is_connected(&mut self) -> bool {
        let reply = self
            .monitor
            .run("SELECT id FROM information_schema.processlist");
        let Ok(Reply::Rows(rows)) = reply else {
            return false;
        };
        let ids = numbers(&rows).concat();
        let mut sessions = self.sessions.iter();
        sessions.any(|session| ids.contains(&Some(session.connection)))
    }
}

fn must(client: &mut Client, statement: &str) -> Result<()> {
    match client.run(statement) {
        Ok(Reply::Refused(refusal)) => Err(format!("{statement}: {}", refusal.message)),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{statement}: {error}")),
    }
}

/// A reply without the name of the engine's database, which CHECK TABLE and messages have in them.
fn nameless(mut reply: Reply, database: &str) -> Reply {
    if let Reply::Rows(rows) = &mut reply {
        for cell in rows.rows.iter_mut().flatten().flatten() {
            let text = String::from_utf8_lossy(cell);
            if text.contains(database) {
                *cell = text.replace(database, "<DATABASE>").into_bytes();
            }
        }
    }
    reply
}

/// A reply without the number of rows that an ALTER has copied, where the engines may choose
/// whether they copy.
fn without_copies(mut reply: Reply, statement: &str) -> Reply {
    if let Reply::Done(done) = &mut reply
        && statement.starts_with("ALTER TABLE ")
        && !statement.contains("ALGORITHM=COPY")
    {
        done.affected = 0;
    }
    reply
}

/// A cell as it is shown.
pub(super) fn text_of(cell: &Cell) -> String {
    match cell {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => "NULL".to_owned(),
    }
}

/// Waits until purge has taken what the script's beginning has deleted: which locks InnoDB takes
/// beside a deleted row is decided by whether it is still there. Where a snapshot is in the way it
/// goes on without.
fn await_purge(monitor: &mut Client, engine: Engine) -> Result<()> {
    let begun = Instant::now();
    let left = format!(
        "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '{}'",
        engine.left_to_purge()
    );
    while begun.elapsed() < PURGE_TIME_MAX {
        match monitor.run(&left) {
            Ok(Reply::Rows(rows)) if numbers(&rows) == [[Some(0)]] => return Ok(()),
            Ok(Reply::Rows(_)) => thread::sleep(Duration::from_millis(20)),
            other => return Err(format!("what is left to purge: {other:?}")),
        }
    }
    Ok(())
}

/// Cells as numbers.
pub(super) fn numbers(rows: &Rows) -> Vec<Vec<Option<u64>>> {
    let number = |cell: &Option<Vec<u8>>| std::str::from_utf8(cell.as_deref()?).ok()?.parse().ok();
    let row = |row: &Vec<_>| row.iter().map(number).collect();
    rows.rows.iter().map(row).collect()
}

/// An outcome as a line for each session.
pub fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (session, what) in outcome {
        let _ = writeln!(text, "    {session}: {}", what.text());
    }
    text
}

impl What {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Self::Ended(Reply::Done(done)) => format!("done, {} rows", done.affected),
            Self::Ended(Reply::Refused(refusal)) => {
                format!("error {}: {}", refusal.code, refusal.message)
            }
            Self::Ended(Reply::Rows(rows)) => {
                let row = |row: &Vec<_>| row.iter().map(text_of).collect::<Vec<_>>().join(",");
                let rows: Vec<String> = rows.rows.iter().map(row).collect();
                format!("rows ({})", rows.join(") ("))
            }
            Self::Waits(blockers) => format!("waits for {blockers:?}"),
            Self::Busy => "waits still".to_owned(),
            Self::Hangs => "hangs".to_owned(),
            Self::Gone => "is gone".to_owned(),
        }
    }

    /// Its kind, without what is in it.
    pub fn kind(&self) -> String {
        match self {
            Self::Ended(Reply::Done(_)) => "is done".to_owned(),
            Self::Ended(Reply::Refused(refusal)) => format!("gives error {}", refusal.code),
            Self::Ended(Reply::Rows(_)) => "gives rows".to_owned(),
            Self::Waits(_) => "waits".to_owned(),
            Self::Busy => "waits still".to_owned(),
            Self::Hangs => "hangs".to_owned(),
            Self::Gone => "is gone".to_owned(),
        }
    }
}
