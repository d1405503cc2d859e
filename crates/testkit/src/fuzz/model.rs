//! Work on a database on the simulated disk, with crashes, beside the reference model.
//!
//! One writer, one reader with an old snapshot, prepared transactions: what a single thread can do
//! without waiting for itself. The input decides every step; the engine's own threads are real.

use super::Target;
use super::input::{Input, dice_seeds};
use crate::model::{Change, End, Event, Found, Model, State, TableId, Value, show};
use inkstone::{Database, Durability, Error, Isolation, Options, Table, Transaction};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// `model`: work on a database beside the reference model.
pub const MODEL: Target = Target {
    name: "model",
    about: "transactions, savepoints, XA, DDL, bulk inserts, crashes, beside the reference model",
    run: model,
    seeds: model_seeds,
    input_max: 1 << 10,
    allocation_max_mib: 64,
};

/// Steps of an input that are taken.
const STEPS_MAX: usize = 300;
/// Ends of the process in an input.
const ENDS_MAX: usize = 6;
const TABLES_MAX: usize = 3;

fn model(data: &[u8]) {
    let mut input = Input::new(data);
    let mut session = Session::new(&mut input);
    session.open(End::Close);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        session.step(&mut input);
        if session.vfs.is_dead() {
            session.power_loss(1);
        }
    }
    session.power_loss(2);
    session.verify();
    session.forget_process();
}

fn model_seeds() -> Vec<(String, Vec<u8>)> {
    dice_seeds(12, 600)
}

/// The writer's transaction.
struct Writer {
    txn: Transaction,
    own: Vec<Change>,
    /// How many changes there were at the savepoint.
    savepoint: Option<usize>,
}

struct Session {
    vfs: SimVfs,
    options: Options,
    model: Model,
    db: Option<Database>,
    tables: BTreeMap<TableId, Table>,
    writer: Option<Writer>,
    reader: Option<(Transaction, State)>,
    names: u64,
    ends: usize,
}

impl Session {
    fn new(input: &mut Input<'_>) -> Self {
        let page_size = input.pick(&[4096, 4096, 8192, 16384]);
        let options = Options {
            page_size,
            buffer_pool_size: 64 * page_size,
            buffer_pool_instances: 1,
            log_file_size: 4 << 20,
            log_buffer_size: 2 << 20,
            version_store_memory: 1 << 20,
            lock_wait_timeout_ms: 1,
            recovery_threads: 1,
            recovery_memory: input.pick(&[0, 4096, 65536]),
            doublewrite_skip_fresh: input.u8().is_multiple_of(2),
            ..Options::default()
        };
        Self {
            vfs: SimVfs::new(u64::from(input.u8())),
            options,
            model: Model::default(),
            db: None,
            tables: BTreeMap::new(),
            writer: None,
            reader: None,
            names: 0,
            ends: 0,
        }
    }

    fn database(&self) -> Database {
        self.db.clone().expect("the database is open")
    }

    /// An error is legal only if the disk is dead.
    fn must<T>(&self, what: &str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(_) if self.vfs.is_dead() => None,
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn forget_process(&mut self) {
        self.vfs.kill();
        self.writer = None;
        self.reader = None;
        self.tables.clear();
        self.db = None;
    }

    fn power_loss(&mut self, seed: u64) {
        let after = self.vfs.crash(seed + self.ends as u64);
        self.forget_process();
        self.vfs = after;
        self.ends += 1;
        self.open(End::PowerLoss);
    }

    /// Opens the database and compares it with the model.
    fn open(&mut self, mut end: End) {
        loop {
            let vfs = Arc::new(self.vfs.clone());
            let options = self.options.clone();
            match Database::open_on(vfs, Path::new("db"), options, &|_| {}) {
                Ok(db) => {
                    self.db = Some(db);
                    self.vfs.crash_at(u64::MAX);
                    if !self.vfs.is_dead() {
                        break;
                    }
                }
                Err(_) if self.vfs.is_dead() => {}
                Err(error) => panic!("the database cannot be opened after {end:?}: {error}"),
            }
            let after = self.vfs.crash(self.ends as u64);
            self.forget_process();
            self.vfs = after;
            self.ends += 1;
            end = End::PowerLoss;
        }
        let db = self.database();
        let found = found(&db).expect("a recovered database can be read");
        if let Err(text) = self.model.recovered(end, &found) {
            panic!("{text}");
        }
        for (&id, table) in &self.model.now.tables {
            let handle = db.table(&table.name).expect("a table of the model");
            self.tables.insert(id, handle);
        }
        self.verify();
    }

    fn verify(&self) {
        for table in self.tables.values() {
            // What purge had under way is no error.
            let verified = (0..20).any(|n| {
                std::thread::sleep(Duration::from_millis(n * n));
                self.database().verify_table(table).is_ok()
            });
            if !verified {
                let report = self.database().verify_table(table);
                report.expect("a table that verifies");
            }
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 26 {
            0..=9 => self.change(input),
            10 => self.bulk(input),
            11 => self.read(input),
            12 => self.scan(),
            13 => self.savepoint(),
            14 => self.roll_back_to_savepoint(),
            15..=16 => self.commit(input),
            17 => self.roll_back(),
            18 => self.upkeep(input),
            19 => self.read_old(input),
            20 => self.ddl(input),
            21 => self.prepare(),
            22 => self.decide(input),
            _ if self.ends >= ENDS_MAX => {}
            23 => self.power_loss(u64::from(input.u8())),
            24 => self.vfs.crash_at(1 + u64::from(input.u8())),
            _ => self.close(),
        }
    }

    fn any_table(&mut self, input: &mut Input<'_>) -> Option<(TableId, Table)> {
        if self.tables.is_empty() {
            self.create(input);
        }
        let at = input.below(self.tables.len().max(1));
        let (&id, table) = self.tables.iter().nth(at)?;
        Some((id, table.clone()))
    }

    fn writer(&mut self) -> Option<&mut Writer> {
        if self.writer.is_none() {
            let begun = self.database().begin(Isolation::ReadCommitted);
            let txn = self.must("begin", begun)?;
            self.writer = Some(Writer {
                txn,
                own: Vec::new(),
                savepoint: None,
            });
        }
        self.writer.as_mut()
    }

    /// What the writer sees.
    fn view(&self) -> State {
        let mut state = self.model.now.clone();
        if let Some(writer) = &self.writer {
            state.change(&writer.own);
        }
        state
    }

    fn value(&self, input: &mut Input<'_>) -> Vec<u8> {
        let (fill, length) = (input.u8(), input.u8());
        let length = match length {
            0..200 => u64::from(length) * 3,
            200..230 => self.options.page_size / 2 - 200 + u64::from(length),
            _ => u64::from(length - 229) * self.options.page_size / 3,
        };
        let mut value = vec![fill; length as usize];
        let head = input.take(usize::from(fill % 4));
        let count = head.len().min(value.len());
        value[..count].copy_from_slice(&head[..count]);
        value
    }

    fn change(&mut self, input: &mut Input<'_>) {
        let Some((id, table)) = self.any_table(input) else {
            return;
        };
        let (op, tree) = (input.u8(), input.below(table.trees().len()));
        let row = (id, tree, key(input));
        let exists = self.view().get(&row).is_some();
        let value = self.value(input);
        let tree = table.trees()[tree].clone();
        let Some(writer) = self.writer() else { return };
        let (txn, key) = (&writer.txn, &row.2);
        let result = match op % 8 {
            0..=2 => txn.insert(&tree, key, &value).map(|()| Some(value)),
            3..=4 => txn.update(&tree, key, &value).map(|()| Some(value)),
            5 => txn.upsert(&tree, key, &value).map(|inserted| {
                assert_eq!(inserted, !exists, "upsert of {}", show(key));
                Some(value)
            }),
            _ => txn.delete(&tree, key).map(|deleted| {
                assert_eq!(deleted, exists, "delete of {}", show(key));
                None
            }),
        };
        match result {
            // It deleted nothing.
            Ok(None) if !exists => {}
            Ok(value) => {
                assert!(op % 8 > 2 || !exists, "insert over {}", show(key));
                assert!(
                    !matches!(op % 8, 3 | 4) || exists,
                    "update of no row {}",
                    show(key)
                );
                let value = value.map(Value::from);
                writer.own.push(Change { row, value });
            }
            Err(Error::DuplicateKey { .. }) if exists => {}
            Err(Error::RowNotFound { .. }) if !exists => {}
            Err(error) => self.judge("a change", &error),
        }
    }

    /// A statement failed: locks of prepared transactions may be in the way.
    fn judge(&self, what: &str, error: &Error) {
        let waits = matches!(error, Error::LockTimeout { .. });
        let legal = waits && !self.model.now.prepared.is_empty();
        assert!(legal || self.vfs.is_dead(), "{what}: {error}");
    }

    fn bulk(&mut self, input: &mut Input<'_>) {
        let Some((id, table)) = self.any_table(input) else {
            return;
        };
        let (first, count) = (u64::from(input.u8()), 1 + u64::from(input.u8()) * 2);
        let value = self.value(input);
        let value = &value[..value.len().min(1000)];
        let keys = (first..first + count).map(|n| n.to_be_bytes().to_vec());
        let rows: Vec<_> = keys.map(|key| (key, value.to_vec())).collect();
        let view = self.view();
        let exists = rows
            .iter()
            .any(|(key, _)| view.get(&(id, 0, key.clone())).is_some());
        let Some(writer) = self.writer() else { return };
        match writer.txn.insert_many(&table, rows.clone()) {
            Ok(_) => {
                assert!(!exists, "a bulk insert over rows that are there");
                let changes = rows.into_iter().map(|(key, value)| Change {
                    row: (id, 0, key),
                    value: Some(value.into()),
                });
                writer.own.extend(changes);
            }
            Err(Error::DuplicateKey { .. }) if exists => {}
            Err(error) => self.judge("a bulk insert", &error),
        }
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let Some((id, table)) = self.any_table(input) else {
            return;
        };
        let row = (id, 0, key(input));
        let view = self.view();
        let Some(writer) = self.writer() else { return };
        let value = writer.txn.get(&table, &row.2);
        if let Some(value) = self.must("get", value) {
            assert_eq!(
                value.as_deref(),
                view.get(&row).map(|v| &v[..]),
                "{}",
                show(&row.2)
            );
        }
    }

    fn scan(&mut self) {
        let (view, tables) = (self.view(), self.tables.clone());
        let Some(writer) = self.writer() else { return };
        let checked = compare(&writer.txn, &tables, &view);
        self.must("scan", checked);
    }

    fn read_old(&mut self, input: &mut Input<'_>) {
        if let Some((txn, state)) = self.reader.take() {
            let checked = compare(&txn, &self.tables, &state);
            self.must("an old snapshot", checked);
            if input.u8().is_multiple_of(2) {
                self.reader = Some((txn, state));
            }
        } else {
            let begun = self.database().begin_with_snapshot();
            let begun = self.must("begin", begun);
            self.reader = begun.map(|txn| (txn, self.model.now.clone()));
        }
    }

    fn savepoint(&mut self) {
        let Some(writer) = self.writer() else { return };
        writer.savepoint = Some(writer.own.len());
        let set = writer.txn.savepoint("s");
        self.must("savepoint", set);
    }

    fn roll_back_to_savepoint(&mut self) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let Some(length) = writer.savepoint else {
            return;
        };
        writer.own.truncate(length);
        let done = writer.txn.rollback_to_savepoint("s");
        self.must("rollback to savepoint", done);
    }

    fn commit(&mut self, input: &mut Input<'_>) {
        let durability = input.pick(&[Durability::Sync, Durability::Write, Durability::Lazy]);
        let Some(Writer { txn, own, .. }) = self.writer.take() else {
            return;
        };
        let result = txn.commit_with(durability);
        if own.is_empty() {
            return;
        }
        self.model.happened(Event::Commit(own));
        if self.must("commit", result).is_some() {
            match durability {
                Durability::Sync => self.model.synced(),
                Durability::Write => self.model.written(),
                Durability::Lazy => {}
            }
        }
    }

    fn roll_back(&mut self) {
        if let Some(writer) = self.writer.take() {
            let done = writer.txn.rollback();
            self.must("rollback", done);
        }
    }

    /// Prepares the writer, if it has changed something: a branch that has not leaves no trace.
    fn prepare(&mut self) {
        if self
            .writer
            .as_ref()
            .is_none_or(|writer| writer.own.is_empty())
        {
            return self.roll_back();
        }
        let Some(writer) = self.writer.take() else {
            return;
        };
        self.names += 1;
        let xid = format!("xid{}", self.names).into_bytes();
        let prepared = writer.txn.prepare(&xid);
        self.model
            .happened(Event::Prepare(xid, Arc::new(writer.own)));
        if self.must("prepare", prepared).is_some() {
            self.model.synced();
        }
    }

    fn decide(&mut self, input: &mut Input<'_>) {
        let prepared = &self.model.now.prepared;
        let at = input.below(prepared.len().max(1));
        let Some(xid) = prepared.keys().nth(at).cloned() else {
            return;
        };
        if input.u8().is_multiple_of(2) {
            let done = self.database().commit_prepared(&xid);
            self.model.happened(Event::CommitPrepared(xid));
            if self
                .must("commit of a prepared transaction", done)
                .is_some()
            {
                self.model.synced();
            }
        } else {
            let done = self.database().rollback_prepared(&xid);
            self.model.happened(Event::RollbackPrepared(xid));
            if self
                .must("rollback of a prepared transaction", done)
                .is_some()
            {
                self.model.synced();
            }
        }
    }

    fn upkeep(&mut self, input: &mut Input<'_>) {
        let db = self.database();
        let choice = input.u8() % 5;
        let done = match choice {
            0 => db.checkpoint(),
            1 => db.flush_log(),
            2 => db.purge(),
            3 => db.maintain(u64::from(input.u8()) << 10),
            _ => match self.any_table(input) {
                Some((_, table)) => db.flush_table(&table),
                None => Ok(()),
            },
        };
        if self.must("upkeep", done).is_some() && choice < 2 {
            self.model.synced();
        }
    }

    fn ddl(&mut self, input: &mut Input<'_>) {
        // A statement of DDL would wait for the writer's rows.
        if self.writer.is_some() {
            return;
        }
        match input.u8() % 3 {
            0 => self.create(input),
            1 => self.drop_table(input),
            _ => self.rename(input),
        }
    }

    /// DDL is durable when it returns; if the disk died it may have happened.
    fn statement<T>(&mut self, what: &str, result: Result<T, Error>, event: Event) -> Option<T> {
        let done = self.must(what, result);
        self.model.happened(event);
        if done.is_some() {
            self.model.synced();
        }
        done
    }

    fn create(&mut self, input: &mut Input<'_>) {
        if self.tables.len() >= TABLES_MAX || self.vfs.is_dead() {
            return;
        }
        self.names += 1;
        let name = format!("t{}", self.names);
        let secondary: &[&str] = input.pick(&[&[], &["a"], &["a", "b"]]);
        let id = self.model.new_table_id();
        let created = self.database().create_table(&name, secondary);
        let event = Event::Create(id, name, 1 + secondary.len());
        if let Some(table) = self.statement("create", created, event) {
            self.tables.insert(id, table);
        }
    }

    fn drop_table(&mut self, input: &mut Input<'_>) {
        let Some((id, table)) = self.any_table(input) else {
            return;
        };
        let Some(name) = self.model.now.tables.get(&id).map(|t| t.name.clone()) else {
            return;
        };
        drop(table);
        self.tables.remove(&id);
        let dropped = self.database().drop_table_at_once(&name);
        self.statement("drop", dropped, Event::Drop(id));
    }

    fn rename(&mut self, input: &mut Input<'_>) {
        let Some((id, _)) = self.any_table(input) else {
            return;
        };
        let Some(name) = self.model.now.tables.get(&id).map(|t| t.name.clone()) else {
            return;
        };
        self.names += 1;
        let to = format!("t{}", self.names);
        let renamed = self.database().rename_table(&name, &to);
        self.statement("rename", renamed, Event::Rename(id, to));
    }

    fn close(&mut self) {
        self.ends += 1;
        self.writer = None;
        self.reader = None;
        self.tables.clear();
        let Some(db) = self.db.take() else { return };
        let closed = db.close();
        if self.must("close", closed).is_some() {
            self.vfs = self.vfs.kill();
            self.open(End::Close);
        }
    }
}

fn key(input: &mut Input<'_>) -> Vec<u8> {
    let mut key = u64::from(input.u8()).to_be_bytes().to_vec();
    match input.u8() {
        0..200 => {}
        200..240 => key.extend([b'k'; 50]),
        _ => key.resize(700, b'x'),
    }
    key
}

/// Compares all rows that a transaction sees with what it should see.
fn compare(
    txn: &Transaction,
    tables: &BTreeMap<TableId, Table>,
    state: &State,
) -> Result<(), Error> {
    for (id, wanted) in &state.tables {
        // Dropped since the snapshot was taken.
        let Some(table) = tables.get(id) else {
            continue;
        };
        for (n, tree) in table.trees().iter().enumerate() {
            let rows: Result<BTreeMap<_, _>, _> = txn.range(tree, ..)?.collect();
            let rows = rows?;
            let same = rows.len() == wanted.trees[n].len()
                && rows
                    .iter()
                    .zip(&*wanted.trees[n])
                    .all(|(a, b)| a.0 == b.0 && a.1[..] == b.1[..]);
            assert!(same, "table {id}, tree {n}: other rows than the snapshot's");
        }
    }
    Ok(())
}

/// All that a database holds.
pub(super) fn found(db: &Database) -> Result<Found, Error> {
    let mut found = Found {
        prepared: db.prepared_transactions(),
        ..Found::default()
    };
    let txn = db.begin(Isolation::ReadCommitted)?;
    for name in db.tables()? {
        let mut trees = Vec::new();
        for tree in db.table(&name)?.trees() {
            let rows: Result<BTreeMap<_, _>, _> = txn.range(tree, ..)?.collect();
            trees.push(rows?);
        }
        found.tables.insert(name, trees);
    }
    Ok(found)
}
