//! A database and what it must hold, through one life of the process, with or without faults.
//!
//! One thread, one transaction at a time: so the states that the database has gone through are a
//! list, and after any end it must be in one of them, not older than the last acknowledged one.

use crate::model::{Change, Event, Found, State, TableId};
use inkstone::internals::options::PagePlacement;
use inkstone::{Database, Error, Isolation, Options, Table, Transaction};
use inkstone_io::sim::SimVfs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The database's directory.
pub const DIRECTORY: &str = "db";

/// Bytes in a page that is placed.
pub const PLACED_PAGE: u64 = 8192;

/// How often a statement that failed is tried again, each time after twice as long: longer than any
/// fault lasts. (What a disk has refused to the log it is asked for once a second, and may refuse
/// four times.)
const ATTEMPTS: usize = 13;

/// Why a life ends before its work is done.
#[derive(Debug)]
pub enum Stop {
    /// The engine does not go on, as it should after such a fault. What was under way may be.
    Engine(Error),
    /// A statement failed, and the life goes on without it.
    Refused,
    /// A promise is broken.
    Bug(String),
}

/// The outcome of a step.
pub type Outcome<T = ()> = Result<T, Stop>;

/// The states that a database has gone through.
#[derive(Clone, Debug)]
pub struct History {
    states: Vec<State>,
    /// The oldest one that it may be in.
    floor: usize,
    /// XIDs of prepared transactions whose rollback has failed: where it has begun, the next
    /// process ends it.
    half_rolled_back: BTreeSet<Vec<u8>>,
    /// Where the pages of its tables are kept.
    placement: PagePlacement,
}

impl Default for History {
    fn default() -> Self {
        Self {
            states: vec![State::default()],
            floor: 0,
            half_rolled_back: BTreeSet::new(),
            placement: PagePlacement::InPlace,
        }
    }
}

impl History {
    /// Of a database whose tables are placed.
    pub fn placed() -> Self {
        Self {
            placement: PagePlacement::Placed,
            ..Self::default()
        }
    }

    /// The options of its sessions. Pages that are placed are larger than a unit: some are
    /// compressed, some are not.
    pub fn options(&self) -> Options {
        let all = options();
        match self.placement {
            PagePlacement::InPlace => all,
            PagePlacement::Placed => Options {
                page_size: PLACED_PAGE,
                buffer_pool_size: 64 * PLACED_PAGE,
                page_placement: PagePlacement::Placed,
                ..all
            },
        }
    }

    /// The newest state.
    pub fn now(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// How many states there are.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// Something happened, or may have happened.
    fn may_have_happened(&mut self, event: &Event) {
        let mut next = self.now().clone();
        next.apply(event);
        self.states.push(next);
    }

    /// Something happened and is durable.
    fn happened(&mut self, event: &Event) {
        self.may_have_happened(event);
        self.floor = self.states.len() - 1;
    }

    /// The database was found so: not older than the floor, but for `lost_max` states. That one is
    /// the only one from here on.
    pub fn settle(&mut self, found: &Found, lost_max: usize) -> Result<(), String> {
        for xid in std::mem::take(&mut self.half_rolled_back) {
            if !found.prepared.contains(&xid) {
                let event = Event::RollbackPrepared(xid);
                self.states.iter_mut().for_each(|state| state.apply(&event));
            }
        }
        let oldest = self.floor.saturating_sub(lost_max);
        let at =
            (oldest..self.states.len()).find(|&at| self.states[at].difference(found).is_none());
        let Some(at) = at else {
            let newest = self.now().difference(found).unwrap_or_default();
            let oldest_text = self.states[self.floor].difference(found);
            let older = (0..oldest).any(|at| self.states[at].difference(found).is_none());
            return Err(format!(
                "the database is in none of its states from {oldest} to {} (lost commits: {older}); to the \
                 newest: {newest}; to the last acknowledged: {}",
                self.states.len() - 1,
                oldest_text.unwrap_or_default()
            ));
        };
        self.states.truncate(at + 1);
        self.floor = at;
        Ok(())
    }
}

/// An open database beside what it must hold.
pub struct Session {
    /// The process's view of its disk.
    pub vfs: SimVfs,
    /// What the database has gone through.
    pub history: History,
    /// What calls failed with, in order.
    pub errors: Vec<Error>,
    db: Database,
    next_table: TableId,
    /// Transactions that stay open until the process ends.
    left: Vec<Transaction>,
    /// Whether what is corrupt may stay so.
    damage_lasts: bool,
    /// Whether a statement that fails is left out, not tried again.
    goes_on: bool,
    /// Called before each step with its number, from 0.
    on_step: Option<Box<dyn Fn(u64)>>,
    steps: u64,
}

/// A transaction under way, and what it has changed.
pub struct Work<'a> {
    /// The engine's transaction.
    pub txn: &'a Transaction,
    db: &'a Database,
    tables: BTreeMap<String, (TableId, Table)>,
    changes: Vec<Change>,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
pub enum Finish<'a> {
    /// It commits.
    Commit,
    /// It is rolled back.
    Rollback,
    /// It is prepared under an XID.
    Prepare(&'a str),
    /// It stays open until the process ends.
    Leave,
}

/// The options of all sessions: everything small.
pub fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 64 * 4096,
        buffer_pool_instances: 1,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        version_store_memory: 1 << 20,
        recovery_threads: 1,
        lock_wait_timeout_ms: 0,
        ..Options::default()
    }
}

/// Opens the database of a disk whose history is known.
pub fn open(vfs: &SimVfs, history: &History) -> Result<Database, Error> {
    open_with(vfs, history.options())
}

fn open_with(vfs: &SimVfs, options: Options) -> Result<Database, Error> {
    let vfs = Arc::new(vfs.clone());
    Database::open_on(vfs, Path::new(DIRECTORY), options, &|_| {})
}

/// All that a database holds.
pub fn found(db: &Database) -> Result<Found, Error> {
    let mut found = Found {
        prepared: db.prepared_transactions(),
        ..Found::default()
    };
    let txn = db.begin(Isolation::ReadCommitted)?;
    for name in db.tables()? {
        let table = db.table(&name)?;
        let trees = table.trees().iter();
        let trees: Result<Vec<_>, Error> =
            trees.map(|tree| txn.range(tree, ..)?.collect()).collect();
        found.tables.insert(name, trees?);
    }
    Ok(found)
}

/// Checks every page of every table, and of the catalog, when what an earlier process has left was
/// rolled back.
pub fn verify(db: &Database) -> Result<(), Error> {
    db.finish_rollbacks()?;
    db.verify_catalog()?;
    for name in db.tables()? {
        db.purge()?;
        db.verify_table(&db.table(&name)?)?;
    }
    Ok(())
}

impl Session {
    /// Opens the database of a disk whose history is known.
    pub fn open(vfs: SimVfs, history: History) -> Result<Self, Error> {
        let options = history.options();
        Self::open_with(vfs, history, options)
    }

    /// As [`Session::open`], with other options than [`options`].
    pub fn open_with(vfs: SimVfs, history: History, options: Options) -> Result<Self, Error> {
        let db = open_with(&vfs, options)?;
        let next_table = history.now().tables.keys().max().map_or(1, |id| id + 1);
        Ok(Self {
            vfs,
            history,
            errors: Vec::new(),
            db,
            next_table,
            left: Vec::new(),
            damage_lasts: false,
            goes_on: false,
            on_step: None,
            steps: 0,
        })
    }

    /// From now on what is corrupt may stay so: then the work ends.
    pub fn expect_lasting_damage(&mut self) {
        self.damage_lasts = true;
    }

    /// Whether statements that fail are left out from now on, as what they meet lasts; else they
    /// are tried again until they succeed.
    pub fn go_on(&mut self, goes_on: bool) {
        self.goes_on = goes_on;
    }

    /// Has something done before each step, which is told its number, from 0.
    pub fn before_steps(&mut self, f: impl Fn(u64) + 'static) {
        self.on_step = Some(Box::new(f));
    }

    /// How many steps have been taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The database.
    pub fn db(&self) -> &Database {
        &self.db
    }

    /// Tries something until it succeeds: a fault that has passed must leave nothing behind. An
    /// engine that is poisoned must stay so.
    fn insist<T>(
        &mut self,
        what: &str,
        mut f: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Outcome<T> {
        let mut last = None;
        if let Some(before) = &self.on_step {
            before(self.steps);
        }
        self.steps += 1;
        for attempt in 0..ATTEMPTS {
            match f(self) {
                Ok(done) => return Ok(done),
                Err(error) => {
                    self.errors.push(error.clone());
                    let lasts = self.damage_lasts && matches!(error, Error::Corrupt { .. });
                    if lasts || matches!(error, Error::Poisoned(_)) {
                        return Err(Stop::Engine(error));
                    }
                    // What is missing may be what an earlier statement should have made.
                    let missing = matches!(error, Error::NotFound(_));
                    let follows = self.goes_on && missing && self.errors.len() > 1;
                    if !is_clear(&error) && !follows {
                        return Err(Stop::Bug(format!("{what}: {error}")));
                    }
                    if self.goes_on {
                        return Err(Stop::Refused);
                    }
                    // Rollbacks that failed are tried again there, and pages that found no space on
                    // disk by the cleaner, after a while.
                    let _ = self.db.purge();
                    std::thread::sleep(Duration::from_millis(1 << attempt));
                    last = Some(error);
                }
            }
        }
        let last = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Stop::Bug(format!(
            "{what} fails although the fault has passed: {last}"
        )))
    }

    /// Runs a transaction, again if it fails.
    pub fn transaction(
        &mut self,
        finish: Finish<'_>,
        f: impl Fn(&mut Work<'_>) -> Result<(), Error>,
    ) -> Outcome {
        let what = format!("transaction ({finish:?})");
        let done = self.insist(&what, |this| {
            let txn = this.db.begin(Isolation::RepeatableRead)?;
            let mut work = Work {
                txn: &txn,
                db: &this.db,
                tables: this.tables()?,
                changes: Vec::new(),
            };
            f(&mut work)?;
            let changes = work.changes;
            match finish {
                Finish::Commit => this.end(txn.commit(), Event::Commit(changes)),
                Finish::Prepare(xid) => {
                    let event = Event::Prepare(xid.as_bytes().to_vec(), Arc::new(changes));
                    this.end(txn.prepare(xid.as_bytes()), event)
                }
                Finish::Rollback => txn.rollback(),
                Finish::Leave => {
                    this.left.push(txn);
                    Ok(())
                }
            }
        });
        left_out(done)
    }

    /// Notes an outcome that decides whether an event happened.
    fn end(&mut self, result: Result<(), Error>, event: Event) -> Result<(), Error> {
        match &result {
            Ok(()) => self.history.happened(&event),
            Err(Error::Poisoned(_)) => self.history.may_have_happened(&event),
            Err(_) => {}
        }
        result
    }

    fn tables(&self) -> Result<BTreeMap<String, (TableId, Table)>, Error> {
        let tables = self.history.now().tables.iter();
        let tables = tables.map(|(&id, t)| Ok((t.name.clone(), (id, self.db.table(&t.name)?))));
        tables.collect()
    }

    /// Does DDL, again if it fails; `happened` looks for its effect among the tables' names.
    fn ddl(
        &mut self,
        what: &str,
        event: &Event,
        f: impl Fn(&Database) -> Result<(), Error>,
        happened: impl Fn(&[String]) -> bool,
    ) -> Outcome {
        let done = self.insist(what, |this| {
            let result = f(&this.db);
            if result.is_err()
                && !matches!(result, Err(Error::Poisoned(_)))
                && happened(&this.db.tables()?)
            {
                // What failed came after the point of no return.
                return Ok(());
            }
            result
        });
        match &done {
            Ok(()) => self.history.happened(event),
            Err(Stop::Refused) => {}
            Err(_) => self.history.may_have_happened(event),
        }
        left_out(done)
    }

    /// Creates a table.
    pub fn create(&mut self, name: &str, secondary: &[&str]) -> Outcome {
        let event = Event::Create(self.next_table, name.to_owned(), secondary.len() + 1);
        self.next_table += 1;
        let wanted = name.to_owned();
        self.ddl(
            "creating a table",
            &event,
            |db| db.create_table(name, secondary).map(drop),
            |names| names.contains(&wanted),
        )
    }

    /// Drops a table.
    pub fn drop_table(&mut self, name: &str) -> Outcome {
        let id = self.history.now().table_named(name).unwrap_or_default();
        let gone = name.to_owned();
        self.ddl(
            "dropping a table",
            &Event::Drop(id),
            |db| db.drop_table_at_once(name),
            |names| !names.contains(&gone),
        )
    }

    /// Renames a table.
    pub fn rename(&mut self, from: &str, to: &str) -> Outcome {
        let id = self.history.now().table_named(from).unwrap_or_default();
        let wanted = to.to_owned();
        self.ddl(
            "renaming a table",
            &Event::Rename(id, to.to_owned()),
            |db| db.rename_table(from, to),
            |names| names.contains(&wanted),
        )
    }

    /// Commits or rolls back what was prepared.
    pub fn decide(&mut self, xid: &str, commit: bool) -> Outcome {
        let name = xid.as_bytes().to_vec();
        let event = if commit {
            Event::CommitPrepared(name)
        } else {
            Event::RollbackPrepared(name)
        };
        let done = self.insist("deciding a prepared transaction", |this| {
            if commit {
                let result = this.db.commit_prepared(xid.as_bytes());
                return this.end(result, event.clone());
            }
            let result = this.db.rollback_prepared(xid.as_bytes());
            match result {
                Ok(()) => this.history.happened(&event),
                Err(Error::Poisoned(_)) => this.history.may_have_happened(&event),
                Err(_) => drop(this.history.half_rolled_back.insert(xid.into())),
            }
            result
        });
        left_out(done)
    }

    /// Does something that changes nothing that can be seen, again if it fails.
    pub fn upkeep(&mut self, what: &str, f: impl Fn(&Database) -> Result<(), Error>) -> Outcome {
        left_out(self.insist(what, |this| f(&this.db)))
    }

    /// Reads everything and compares.
    pub fn compare(&mut self) -> Outcome {
        let found = match self.insist("reading", |this| found(&this.db)) {
            Err(Stop::Refused) => return Ok(()),
            found => found?,
        };
        match self.history.now().difference(&found) {
            None => Ok(()),
            Some(text) => Err(Stop::Bug(format!("wrong rows: {text}"))),
        }
    }

    /// Closes the database.
    pub fn close(self) -> Result<(), Error> {
        drop(self.left);
        self.db.close()
    }
}

impl Work<'_> {
    /// The database.
    pub fn db(&self) -> &Database {
        self.db
    }

    /// Inserts or changes a row, and its row in each secondary tree.
    pub fn put(&mut self, table: &str, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (id, table) = self.table(table)?;
        self.txn.upsert(&table, key, value)?;
        self.note((id, 0, key.to_vec()), Some(value));
        for tree in 1..table.trees().len() {
            let key = secondary_key(key);
            self.txn.upsert(&table.trees()[tree], &key, b"")?;
            self.note((id, tree, key), Some(b""));
        }
        Ok(())
    }

    /// Deletes a row everywhere.
    pub fn remove(&mut self, table: &str, key: &[u8]) -> Result<(), Error> {
        let (id, table) = self.table(table)?;
        self.txn.delete(&table, key)?;
        self.note((id, 0, key.to_vec()), None);
        for tree in 1..table.trees().len() {
            let key = secondary_key(key);
            self.txn.delete(&table.trees()[tree], &key)?;
            self.note((id, tree, key), None);
        }
        Ok(())
    }

    /// Inserts rows in key order.
    pub fn put_many(&mut self, table: &str, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        let (id, table) = self.table(table)?;
        self.txn.insert_many(&table, rows.iter().cloned())?;
        for (key, value) in rows {
            self.note((id, 0, key.clone()), Some(value));
        }
        Ok(())
    }

    /// Does something and takes it back.
    pub fn undone(&mut self, f: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let length = self.changes.len();
        self.txn.savepoint("undone")?;
        f(self)?;
        self.txn.rollback_to_savepoint("undone")?;
        self.changes.truncate(length);
        Ok(())
    }

    fn table(&self, name: &str) -> Result<(TableId, Table), Error> {
        let found = self.tables.get(name).cloned();
        found.ok_or_else(|| Error::NotFound(format!("table {name}")))
    }

    fn note(&mut self, row: crate::model::RowName, value: Option<&[u8]>) {
        let value = value.map(Arc::from);
        self.changes.push(Change { row, value });
    }
}

/// A statement that was refused is none.
fn left_out(done: Outcome) -> Outcome {
    match done {
        Err(Stop::Refused) => Ok(()),
        done => done,
    }
}

fn secondary_key(key: &[u8]) -> Vec<u8> {
    key.iter().rev().copied().collect()
}

/// Whether an error is one that a fault of the disk explains.
pub fn is_clear(error: &Error) -> bool {
    matches!(
        error,
        Error::Io { .. }
            | Error::Corrupt { .. }
            | Error::DiskFull { .. }
            | Error::Poisoned(_)
            // A change could not be undone: the transaction is left to purge, with its locks.
            | Error::TransactionState(_)
            | Error::LockTimeout { .. }
            | Error::LockNotAvailable
    )
}
