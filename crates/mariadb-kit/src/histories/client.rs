//! A client: random transactions in SQL, recorded as it sees them.

use super::level::Level;
use super::lost::{Line, Phase};
use crate::client::{Client as Connection, Refusal, Reply};
use crate::random::Random;
use inkstone_testkit::history::{
    Action, Key, Op, Outcome, Range, ScanKind, State, Time, Txn, Value,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Elements in a list, about at most: then another list takes its place.
const LIST_LENGTH_MAX: usize = 48;
/// Lists that are worked on at a time.
const LISTS: u64 = 5;
const REGISTERS: u64 = 4;
const ROW_RANGES: u64 = 3;
/// Rows in a range, about.
const ROWS: usize = 8;
/// `inkstone_lock_wait_timeout` of connections that wait long, in seconds: longer than any wait
/// lasts while no hand-off is lost and each deadlock is found.
const PATIENCE_S: u64 = 30;
/// `ER_LOCK_WAIT_TIMEOUT`, also of NOWAIT.
pub(super) const TIMEOUT: u16 = 1205;
pub(super) const DEADLOCK: u16 = 1213;
const DUPLICATE: u16 = 1062;
/// `ER_CHECKREAD`: the row was changed after the snapshot.
const CHANGED: u16 = 1020;
/// `ER_QUERY_INTERRUPTED`.
pub(super) const KILLED: u16 = 1317;
/// `ER_CONNECTION_KILLED`: the server closes the connection behind it.
const CONNECTION_KILLED: u16 = 1927;
/// `ER_TABLE_DEF_CHANGED`: the table was altered after the snapshot.
const ALTERED: u16 = 1412;
/// `ER_XA_RBROLLBACK`: the transaction is rolled back, as a statement of it was killed.
const XA_ROLLED_BACK: u16 = 1402;
/// `ER_XAER_NOTA` and `ER_XAER_RMFAIL`: what was killed had done it.
const XA_DONE: [u16; 2] = [1397, 1399];

/// What the clients of a run share.
pub struct World {
    /// The level of all transactions; `None`: each has its own.
    pub level: Option<Level>,
    /// Transactions of a client in a life.
    pub transactions: usize,
    /// Of a hundred transactions, how many are XA transactions.
    pub xa_percent: u64,
    /// Bytes that rows are longer than need be.
    pub paddings: Vec<u64>,
    pub clock: AtomicU64,
    /// The latest element that was given out.
    pub element: AtomicU64,
    /// The first of the lists that are worked on.
    pub lists: AtomicU32,
    /// The server is about to be killed, or was.
    pub killed: AtomicBool,
    /// Statements are killed (KILL QUERY).
    pub kills_statements: bool,
    /// Connections are killed, too.
    pub kills_connections: bool,
    /// Tables are altered while the clients work.
    pub alters: bool,
    /// Statements that said that they were killed.
    pub statements_killed: AtomicU64,
    /// Connections that were, and were made anew.
    pub connections_killed: AtomicU64,
    /// Transactions that were found prepared behind such, and ended.
    pub prepared_detached: AtomicU64,
    /// Reads by a snapshot older than the table.
    pub reads_refused: AtomicU64,
}

impl World {
    pub(super) fn tick(&self) -> Time {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn new_element(&self) -> u64 {
        self.element.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Why a statement was not done.
pub(super) enum Stop {
    /// The connection is gone.
    Gone(String),
    Refused(Refusal),
    /// So that the transaction must be rolled back.
    Over(Refusal),
    /// The engine does not do what it promises.
    Wrong(String),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Self::Wrong(format!("the server does not answer: {error}"))
            }
            _ => Self::Gone(error.to_string()),
        }
    }
}

pub(super) type Done<T = ()> = Result<T, Stop>;

/// Whether the server said that what was asked is done, or only that it was killed.
pub(super) enum Ended {
    Said,
    Unsaid,
}

/// A lock that a SELECT takes.
const LOCKS: [&str; 2] = ["LOCK IN SHARE MODE", "FOR UPDATE"];

/// A transaction under way.
pub(super) struct Running {
    level: Level,
    ops: Vec<Op>,
    savepoint: bool,
    /// Its name, if it is an XA transaction.
    pub(super) xa: Option<String>,
    /// Rows that a scan found.
    rows: Vec<Key>,
}

impl Running {
    fn note(&mut self, at: Time, action: Action) {
        self.ops.push(Op { at, action });
    }
}

/// A client.
pub struct Client<'w> {
    pub world: &'w World,
    pub connection: Connection,
    pub line: &'w Line<'w>,
    pub number: u32,
    pub random: Random,
    /// The statement that was run last.
    pub said: String,
}

impl Client<'_> {
    /// Runs transactions until there are enough or the server is killed. What was recorded, and
    /// what is wrong beyond what a check of the history would find.
    pub fn run(mut self) -> (Vec<Txn>, Option<String>) {
        let mut txns = Vec::new();
        while txns.len() < self.world.transactions {
            match self.transaction() {
                Ok((txn, goes_on)) => {
                    txns.extend(txn);
                    if !goes_on {
                        break;
                    }
                }
                Err(text) => return (txns, Some(format!("client {}: {text}", self.number))),
            }
        }
        (txns, None)
    }

    /// Begins a transaction whose waits last so long at most. When that was.
    fn begin(&mut self, level: Level, seconds: u64, xa: Option<&str>) -> Result<Time, Stop> {
        for statement in level.settings() {
            self.run_whole(statement)?;
        }
        self.run_whole(&format!("SET inkstone_lock_wait_timeout = {seconds}"))?;
        let begun = self.world.tick();
        match xa {
            Some(name) => self.run_xa(&format!("XA START '{name}'")).map(drop)?,
            None if level.has_snapshot() && self.random.chance(30) => {
                self.run_whole("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
            }
            None => self.run_whole("START TRANSACTION")?,
        }
        Ok(begun)
    }

    /// One transaction, if it began, and whether the server still answers.
    fn transaction(&mut self) -> Result<(Option<Txn>, bool), String> {
        let level = self.world.level;
        let level = level.unwrap_or_else(|| *self.random.pick(&Level::ALL));
        let seconds = *self.random.pick(&[1, PATIENCE_S]);
        let is_xa = self.random.chance(self.world.xa_percent);
        let xa = is_xa.then(|| format!("{}-{}", self.number, self.world.tick()));
        let begun = match self.begin(level, seconds, xa.as_deref()) {
            Ok(begun) => begun,
            Err(stop) => {
                let (_, goes_on) = self.lose(stop, None, Phase::Working)?;
                return Ok((None, goes_on));
            }
        };
        let mut running = Running {
            level,
            ops: Vec::new(),
            savepoint: false,
            xa,
            rows: Vec::new(),
        };
        let steps = if self.random.chance(4) {
            self.random.between(15, 40)
        } else {
            self.random.between(1, 6)
        };
        let mut outcome = None;
        for _ in 0..steps {
            self.pause();
            let began = Instant::now();
            outcome = match self.step(&mut running) {
                Ok(()) => None,
                Err(Stop::Refused(refusal)) => self.judge(level, &refusal, began.elapsed())?,
                Err(Stop::Over(refusal)) => {
                    let why = self.judge(level, &refusal, began.elapsed())?;
                    why.or(Some(refusal.message))
                }
                Err(stop) => {
                    let (outcome, goes_on) = self.lose(stop, Some(&running), Phase::Working)?;
                    return Ok((Some(self.over(running, begun, outcome)), goes_on));
                }
            };
            if outcome.is_some() {
                break;
            }
        }
        self.pause();
        let (ended, goes_on) = match outcome {
            Some(why) => self.take_back(&running, why),
            None if self.random.chance(8) => self.take_back(&running, "rollback".to_owned()),
            None => self.end(&running),
        }?;
        Ok((Some(self.over(running, begun, ended)), goes_on))
    }

    fn over(&self, running: Running, begin: Time, outcome: Outcome) -> Txn {
        Txn {
            client: self.number,
            level: running.level.isolation(),
            begin,
            ops: running.ops,
            outcome,
        }
    }

    /// After an error: why the transaction is over, if it is.
    fn judge(
        &mut self,
        level: Level,
        refusal: &Refusal,
        took: Duration,
    ) -> Result<Option<String>, String> {
        // The server ends statements while it goes down.
        if self.world.killed.load(Ordering::SeqCst) {
            return Ok(Some("the server was killed".to_owned()));
        }
        let text = format!("error {}: {}", refusal.code, refusal.message);
        match refusal.code {
            DEADLOCK => return Ok(Some("deadlock".to_owned())),
            TIMEOUT if took >= Duration::from_secs(PATIENCE_S) => {
                return Err(format!("{}: a lock that never came: {text}", level.name()));
            }
            TIMEOUT => {}
            KILLED if self.world.kills_statements => {}
            ALTERED if self.world.alters => {
                self.world.reads_refused.fetch_add(1, Ordering::Relaxed);
            }
            // Without gap locks a row that is missing may come.
            DUPLICATE if matches!(level, Level::ReadCommitted | Level::Snapshot) => {}
            CHANGED if level.may_conflict() => {
                return Ok(Some("changed after the snapshot".to_owned()));
            }
            _ => return Err(format!("{} fails with {text}", level.name())),
        }
        // The statement had no effect: the transaction may go on.
        let why = match refusal.code {
            TIMEOUT => "lock timeout".to_owned(),
            _ => text,
        };
        Ok(self.random.chance(60).then_some(why))
    }

    fn roll_back(&mut self, running: &Running) -> Done {
        let Some(name) = &running.xa else {
            return self.run_whole("ROLLBACK");
        };
        match self.run_xa(&format!("XA END '{name}'")) {
            Ok(Ended::Said) => {
                let prepares = self.random.chance(50);
                if prepares && self.ends_xa(&format!("XA PREPARE '{name}'"))? {
                    return Ok(());
                }
            }
            // The server says once more that it was a deadlock; perhaps to a statement that was
            // killed.
            Ok(Ended::Unsaid) | Err(Stop::Refused(_)) => {}
            Err(other) => return Err(other),
        }
        self.ends_xa(&format!("XA ROLLBACK '{name}'")).map(drop)
    }

    /// Runs a statement of an XA transaction: whether it says that this is rolled back.
    pub(super) fn ends_xa(&mut self, statement: &str) -> Done<bool> {
        match self.run_xa(statement) {
            Err(Stop::Refused(refusal)) if self.is_rolled_back(&refusal) => Ok(true),
            other => other.map(|_| false),
        }
    }

    fn commit(&mut self, running: &Running) -> Done<Ended> {
        let Some(name) = &running.xa else {
            return match self.run_done("COMMIT") {
                // What it leaves open is rolled back: which of the two it was is not asked.
                Err(Stop::Refused(refusal)) if self.is_kill(&refusal) => {
                    self.run_whole("ROLLBACK").map(|()| Ended::Unsaid)
                }
                other => other.map(|()| Ended::Said),
            };
        };
        self.run_xa(&format!("XA END '{name}'"))?;
        if self.random.chance(20) {
            return self.run_xa(&format!("XA COMMIT '{name}' ONE PHASE"));
        }
        self.run_xa(&format!("XA PREPARE '{name}'"))?;
        self.pause();
        self.run_xa(&format!("XA COMMIT '{name}'"))
    }

    /// Rolls the transaction back, for this reason.
    fn take_back(&mut self, running: &Running, why: String) -> Result<(Outcome, bool), String> {
        match self.roll_back(running) {
            Ok(()) => Ok((Outcome::Aborted(why), true)),
            Err(stop) => self.lose(stop, Some(running), Phase::RollingBack),
        }
    }

    /// Commits the transaction: what came of it, and whether the server still answers.
    fn end(&mut self, running: &Running) -> Result<(Outcome, bool), String> {
        match self.commit(running) {
            Ok(Ended::Unsaid) => Ok((Outcome::Unknown, true)),
            Ok(Ended::Said) => Ok((self.committed(), true)),
            Err(Stop::Refused(refusal))
                if refusal.code == DEADLOCK || self.is_rolled_back(&refusal) =>
            {
                Ok((Outcome::Aborted(refusal.message), true))
            }
            Err(Stop::Refused(_)) if self.world.killed.load(Ordering::SeqCst) => {
                Ok((Outcome::Unknown, false))
            }
            Err(stop) => self.lose(stop, Some(running), Phase::Committing),
        }
    }

    pub(super) fn committed(&self) -> Outcome {
        Outcome::Committed {
            at: self.world.tick(),
            durability: inkstone::Durability::Sync,
        }
    }

    /// Lets others run.
    fn pause(&mut self) {
        if self.random.chance(20) {
            std::thread::sleep(Duration::from_micros(self.random.below(2000)));
        }
    }

    fn run_reply(&mut self, statement: &str) -> Done<Reply> {
        statement.clone_into(&mut self.said);
        match self.connection.run(statement)? {
            Reply::Refused(refusal)
                if refusal.code == CONNECTION_KILLED && self.world.kills_connections =>
            {
                Err(Stop::Gone(refusal.message))
            }
            Reply::Refused(refusal) => {
                let killed = u64::from(self.is_kill(&refusal));
                self.world
                    .statements_killed
                    .fetch_add(killed, Ordering::Relaxed);
                Err(Stop::Refused(refusal))
            }
            reply => Ok(reply),
        }
    }

    fn run_done(&mut self, statement: &str) -> Done {
        self.run_reply(statement).map(drop)
    }

    /// Whether a statement was killed: it had no effect, but for one that ends a transaction.
    fn is_kill(&self, refusal: &Refusal) -> bool {
        refusal.code == KILLED && self.world.kills_statements
    }

    fn is_rolled_back(&self, refusal: &Refusal) -> bool {
        refusal.code == XA_ROLLED_BACK && self.world.kills_statements
    }

    /// Runs a statement that may be run twice until it is not killed.
    pub(super) fn run_whole(&mut self, statement: &str) -> Done {
        loop {
            match self.run_done(statement) {
                Err(Stop::Refused(refusal)) if self.is_kill(&refusal) => {}
                other => return other,
            }
        }
    }

    /// Runs a statement of an XA transaction until it is not killed. One that was killed may have
    /// done it all the same.
    pub(super) fn run_xa(&mut self, statement: &str) -> Done<Ended> {
        let mut killed = false;
        loop {
            match self.run_done(statement) {
                Err(Stop::Refused(refusal)) if self.is_kill(&refusal) => killed = true,
                Err(Stop::Refused(refusal)) if killed && XA_DONE.contains(&refusal.code) => {
                    return Ok(Ended::Unsaid);
                }
                other => return other.map(|()| Ended::Said),
            }
        }
    }

    /// The rows that a statement changed, as it says.
    fn changed(&mut self, statement: &str) -> Done<u64> {
        match self.run_reply(statement)? {
            Reply::Done(done) => Ok(done.affected),
            _ => Err(Stop::Wrong(format!("{statement} gives rows"))),
        }
    }

    /// The rows that a DELETE has taken. Where statements are killed, none is no answer: the server
    /// says so of a DELETE that was killed while its plan was made, whatever the engine.
    fn deleted(&mut self, statement: &str) -> Done<u64> {
        let count = self.changed(statement)?;
        if count == 0 && self.world.kills_statements {
            return Err(Stop::Refused(Refusal {
                code: KILLED,
                message: "a DELETE of nothing, which may have been killed".to_owned(),
            }));
        }
        Ok(count)
    }

    pub(super) fn rows(&mut self, statement: &str) -> Done<Vec<Vec<String>>> {
        let Reply::Rows(found) = self.run_reply(statement)? else {
            return Err(Stop::Wrong(format!("{statement} gives no rows")));
        };
        let text =
            |cell: Option<Vec<u8>>| String::from_utf8_lossy(&cell.unwrap_or_default()).into_owned();
        let row = |cells: Vec<_>| cells.into_iter().map(text).collect();
        Ok(found.rows.into_iter().map(row).collect())
    }

    fn step(&mut self, running: &mut Running) -> Done {
        match self.random.below(12) {
            0..4 => self.list(running),
            4..8 => self.register(running),
            _ => match self.random.below(8) {
                // Before the engine is used a savepoint is none of the engine's: going back to it,
                // the server rolls the whole transaction back, and its locks go.
                0 if !running.ops.is_empty() => self.savepoint(running),
                1 | 2 => self.scan_lists(running),
                _ => self.some_rows(running),
            },
        }
    }

    fn savepoint(&mut self, running: &mut Running) -> Done {
        let at = self.world.tick();
        if running.savepoint && self.random.chance(60) {
            self.run_whole("ROLLBACK TO SAVEPOINT s")?;
            running.note(at, Action::RollBack);
        } else {
            self.run_whole("SAVEPOINT s")?;
            running.savepoint = true;
            running.note(at, Action::Savepoint);
        }
        Ok(())
    }

    /// Reads a key; `lock`: LOCK IN SHARE MODE, FOR UPDATE.
    fn read(&mut self, running: &mut Running, key: Key, lock: Option<&'static str>) -> Done<Value> {
        let at = self.world.tick();
        let lock = if running.level.locks_all() {
            lock.or(Some(LOCKS[0]))
        } else {
            lock
        };
        let mut statement = format!(
            "SELECT {} FROM {} WHERE id = {}",
            value_column(key),
            table(key),
            id(key)
        );
        if let Some(lock) = lock {
            let wait = if self.random.chance(10) {
                " NOWAIT"
            } else {
                ""
            };
            let _ = write!(statement, " {lock}{wait}");
        }
        let found = self.rows(&statement)?;
        let value = match &found[..] {
            [] => Value::new(),
            [row] => decoded(key, &row[0])?,
            _ => {
                return Err(Stop::Wrong(format!(
                    "{statement} gives {} rows",
                    found.len()
                )));
            }
        };
        // Read committed locks no row that is not there.
        let locks = !found.is_empty() || running.level != Level::ReadCommitted;
        let action = Action::Read {
            key,
            value: value.clone(),
            locking: lock.is_some() && locks,
        };
        running.note(at, action);
        Ok(value)
    }

    /// Makes a key's new version, of one that is there or not.
    fn write(&mut self, running: &mut Running, key: Key, value: Value, exists: bool) -> Done {
        let at = self.world.tick();
        let insert = self.insert_text(&[(key, &value)]);
        match (exists, self.random.below(10)) {
            // It would pass over a row that came after this transaction saw none.
            (false, _) if running.level == Level::ReadCommitted => self.run_done(&insert)?,
            (_, 0..3) => {
                let upsert = self.upsert_text(key, &value);
                self.run_done(&upsert)?;
            }
            (false, _) => self.run_done(&insert)?,
            // No other transaction may see it gone.
            (true, 3) => {
                let delete = format!("DELETE FROM {} WHERE id = {}", table(key), id(key));
                if self.deleted(&delete)? == 0 {
                    return Err(Stop::Wrong(format!("{key} is gone: it cannot be deleted")));
                }
                self.run_done(&insert).map_err(|stop| match stop {
                    Stop::Refused(refusal) if refusal.code != DUPLICATE => Stop::Over(refusal),
                    stop => stop,
                })?;
            }
            (true, _) => {
                let update = format!(
                    "UPDATE {} SET v = '{}', pad = {} WHERE id = {}",
                    table(key),
                    encoded(&value),
                    self.padding(),
                    id(key)
                );
                if self.changed(&update)? == 0 {
                    return Err(Stop::Wrong(format!("{key} is gone: it cannot be updated")));
                }
            }
        }
        running.note(at, Action::Write { key, value });
        Ok(())
    }

    fn padding(&mut self) -> String {
        format!("REPEAT('x', {})", self.random.pick(&self.world.paddings))
    }

    /// The statement that inserts these, which are of one table.
    fn insert_text(&mut self, keys: &[(Key, &Value)]) -> String {
        let rows: Vec<_> = keys
            .iter()
            .map(|(key, value)| {
                let second = match key {
                    Key::Row { range, .. } => range.to_string(),
                    _ => encoded(value),
                };
                format!("({}, '{second}', {})", id(*key), self.padding())
            })
            .collect();
        let into = keys.first().map_or("", |(key, _)| table(*key));
        format!("INSERT INTO {into} (id, v, pad) VALUES {}", rows.join(", "))
    }

    fn upsert_text(&mut self, key: Key, value: &Value) -> String {
        let insert = self.insert_text(&[(key, value)]);
        if self.random.chance(50) {
            insert.replacen("INSERT", "REPLACE", 1)
        } else {
            insert + " ON DUPLICATE KEY UPDATE v = VALUES(v), pad = VALUES(pad)"
        }
    }

    fn lock(&mut self, percent: u64) -> Option<&'static str> {
        let lock = *self.random.pick(&LOCKS);
        self.random.chance(percent).then_some(lock)
    }

    /// Reads a list or appends to it. At read committed an append locks what it read: the
    /// versions of lists must follow from each other.
    fn list(&mut self, running: &mut Running) -> Done {
        let first = self.world.lists.load(Ordering::Relaxed);
        let key = Key::List(first + self.random.below(LISTS) as u32);
        if self.random.chance(45) {
            let lock = self.lock(15);
            return self.read(running, key, lock).map(drop);
        }
        let locks = running.level == Level::ReadCommitted || self.random.chance(30);
        let mut value = self.read(running, key, locks.then_some(LOCKS[1]))?;
        let exists = !value.is_empty();
        if value.len() >= LIST_LENGTH_MAX {
            let lists = &self.world.lists;
            let _ = lists.compare_exchange(first, first + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        value.push(self.world.new_element());
        self.pause();
        self.write(running, key, value, exists)
    }

    /// Reads a register, or writes it, having read it or not.
    fn register(&mut self, running: &mut Running) -> Done {
        let key = Key::Register(self.random.below(REGISTERS) as u32);
        let lock = self.lock(15);
        match self.random.below(10) {
            0..4 => self.read(running, key, lock).map(drop),
            4..9 => {
                let value = self.read(running, key, lock)?;
                self.pause();
                // Without a lock it may have come since.
                let exists = !value.is_empty() && running.level != Level::ReadCommitted;
                self.set(running, key, exists)
            }
            _ => self.set(running, key, false),
        }
    }

    fn set(&mut self, running: &mut Running, key: Key, exists: bool) -> Done {
        let value = vec![self.world.new_element()];
        if exists {
            return self.write(running, key, value, true);
        }
        let at = self.world.tick();
        let upsert = self.upsert_text(key, &value);
        self.run_done(&upsert)?;
        running.note(at, Action::Write { key, value });
        Ok(())
    }

    fn scan(&mut self, running: &mut Running, range: Range) -> Done {
        let at = self.world.tick();
        let (kind, lock) = match self.random.below(20) {
            0 => (ScanKind::SkipLocked, " SKIP LOCKED"),
            1 | 2 => (ScanKind::Locking, ""),
            _ if running.level.locks_all() => (ScanKind::Locking, ""),
            _ => (ScanKind::Plain, ""),
        };
        let mode = match kind {
            ScanKind::Plain => "",
            _ => *self.random.pick(&LOCKS),
        };
        let order = *self.random.pick(&["", " ORDER BY id", " ORDER BY id DESC"]);
        let statement = match range {
            Range::Lists(low, high) => format!(
                "SELECT id, v FROM lists WHERE id >= {low} AND id < {high}{order} {mode}{lock}"
            ),
            Range::Rows(range) => {
                format!("SELECT id, v FROM rws WHERE v = {range}{order} {mode}{lock}")
            }
        };
        let rows = self.rows(&statement)?;
        let found = match range {
            Range::Lists(..) => lists(&rows)?,
            Range::Rows(_) => numbered(&rows)?,
        };
        if found.len() != rows.len() {
            return Err(Stop::Wrong(format!("{statement} gives a row twice")));
        }
        if let Range::Rows(_) = range {
            running.rows = found.keys().copied().collect();
        }
        running.note(at, Action::Scan { range, found, kind });
        Ok(())
    }

    fn scan_lists(&mut self, running: &mut Running) -> Done {
        let first = self.world.lists.load(Ordering::Relaxed);
        let low = first + self.random.below(LISTS) as u32;
        let high = low + 1 + self.random.below(LISTS) as u32;
        self.scan(running, Range::Lists(low, high))
    }

    /// Scans rows, and then adds some or deletes some: what it decides by may change meanwhile.
    fn some_rows(&mut self, running: &mut Running) -> Done {
        let range = self.random.below(ROW_RANGES) as u32;
        self.scan(running, Range::Rows(range))?;
        self.pause();
        match self.random.below(10) {
            0..5 => Ok(()),
            _ if running.rows.len() > ROWS => self.delete(running),
            5 => self.insert_many(running, range),
            6 | 7 => self.insert(running, range),
            8 => self.insert(running, (range + 1) % ROW_RANGES as u32),
            _ => self.delete(running),
        }
    }

    fn insert(&mut self, running: &mut Running, range: u32) -> Done {
        let id = self.world.new_element();
        let (at, key, value) = (self.world.tick(), Key::Row { range, id }, vec![id]);
        let insert = self.insert_text(&[(key, &value)]);
        self.run_done(&insert)?;
        running.note(at, Action::Write { key, value });
        Ok(())
    }

    fn insert_many(&mut self, running: &mut Running, range: u32) -> Done {
        let at = self.world.tick();
        let ids: Vec<Value> = (0..self.random.between(2, 4))
            .map(|_| vec![self.world.new_element()])
            .collect();
        let row = |value: &Value| Key::Row {
            range,
            id: value[0],
        };
        let rows: Vec<_> = ids.iter().map(|value| (row(value), value)).collect();
        let insert = self.insert_text(&rows);
        self.run_done(&insert)?;
        for value in ids {
            let key = row(&value);
            running.note(at, Action::Write { key, value });
        }
        Ok(())
    }

    /// Deletes a row that a scan found. If another transaction has done so, that is something read.
    fn delete(&mut self, running: &mut Running) -> Done {
        if running.rows.is_empty() {
            return Ok(());
        }
        let at = self.world.tick();
        let key = *self.random.pick(&running.rows);
        let delete = format!("DELETE FROM {} WHERE id = {}", table(key), id(key));
        if self.deleted(&delete)? > 0 {
            let value = Value::new();
            running.note(at, Action::Write { key, value });
            return Ok(());
        }
        if running.level == Level::ReadCommitted {
            let (value, locking) = (Value::new(), false);
            running.note(
                at,
                Action::Read {
                    key,
                    value,
                    locking,
                },
            );
            return Ok(());
        }
        let value = self.read(running, key, None)?;
        if value.is_empty() {
            Ok(())
        } else {
            Err(Stop::Wrong(format!(
                "{key} is {value:?}, and a delete does not find it"
            )))
        }
    }
}

/// The tables of a run, new.
pub const TABLES: [&str; 6] = [
    "DROP TABLE IF EXISTS lists",
    "DROP TABLE IF EXISTS registers",
    "DROP TABLE IF EXISTS rws",
    "CREATE TABLE lists (id BIGINT PRIMARY KEY, v LONGTEXT NOT NULL, pad LONGTEXT NOT NULL) ENGINE=INKSTONE",
    "CREATE TABLE registers (id BIGINT PRIMARY KEY, v BIGINT NOT NULL, pad LONGTEXT NOT NULL) ENGINE=INKSTONE",
    "CREATE TABLE rws (id BIGINT PRIMARY KEY, v BIGINT NOT NULL, pad LONGTEXT NOT NULL, KEY (v)) ENGINE=INKSTONE",
];

fn table(key: Key) -> &'static str {
    match key {
        Key::List(_) => "lists",
        Key::Register(_) => "registers",
        Key::Row { .. } => "rws",
    }
}

fn id(key: Key) -> u64 {
    match key {
        Key::List(number) | Key::Register(number) => number.into(),
        Key::Row { id, .. } => id,
    }
}

/// What a row's value is read from: the number of a row is all that it holds.
fn value_column(key: Key) -> &'static str {
    match key {
        Key::List(_) | Key::Register(_) => "v",
        Key::Row { .. } => "id",
    }
}

fn encoded(value: &Value) -> String {
    let words: Vec<_> = value.iter().map(u64::to_string).collect();
    words.join(",")
}

fn number(text: &str) -> Done<u64> {
    let wrong = |_| Stop::Wrong(format!("{text:?} is no number"));
    text.parse().map_err(wrong)
}

fn decoded(key: Key, text: &str) -> Done<Value> {
    let elements: Done<Value> = text.split(',').map(number).collect();
    elements.map_err(|_| Stop::Wrong(format!("{key} is {text:?}")))
}

/// Lists from rows of number and value.
fn lists(rows: &[Vec<String>]) -> Done<BTreeMap<Key, Value>> {
    let list = |row: &Vec<String>| {
        let key = Key::List(number(&row[0])? as u32);
        Ok((key, decoded(key, &row[1])?))
    };
    rows.iter().map(list).collect()
}

/// Rows of ranges from rows of number and range.
fn numbered(rows: &[Vec<String>]) -> Done<BTreeMap<Key, Value>> {
    let row = |row: &Vec<String>| {
        let (id, range) = (number(&row[0])?, number(&row[1])? as u32);
        Ok((Key::Row { range, id }, vec![id]))
    };
    rows.iter().map(row).collect()
}

/// All that the tables hold.
pub fn everything(world: &World, connection: Connection) -> Result<State, String> {
    let line = Line::none();
    let mut client = Client {
        world,
        connection,
        line: &line,
        number: 0,
        random: Random(0),
        said: String::new(),
    };
    let mut read = || -> Done<State> {
        let mut state = lists(&client.rows("SELECT id, v FROM lists")?)?;
        for row in client.rows("SELECT id, v FROM registers")? {
            let key = Key::Register(number(&row[0])? as u32);
            state.insert(key, vec![number(&row[1])?]);
        }
        state.extend(numbered(&client.rows("SELECT id, v FROM rws")?)?);
        Ok(state)
    };
    read().map_err(|stop| match stop {
        Stop::Gone(text) | Stop::Wrong(text) => format!("reading everything: {text}"),
        Stop::Refused(refusal) | Stop::Over(refusal) => {
            format!(
                "reading everything: error {}: {}",
                refusal.code, refusal.message
            )
        }
    })
}
