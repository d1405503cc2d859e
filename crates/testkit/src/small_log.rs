//! Clients share a log that is small for them: it comes round again and again while they roll back
//! to savepoints, and power is lost.
//!
//! The driver of [`driver`](crate::driver) has one thread, so that none of its clients takes room
//! in the log that another one has just waited for. These clients are threads, each with rows of
//! its own.
//!
//! # What must hold
//!
//! No statement and no rollback fails, as the disk has space: a thread that finds no room in the
//! log waits for a checkpoint, and its own undo is moved and saved meanwhile. After the
//! power loss each client's rows are as of its last acknowledged commit, or of the one that was
//! under way.

use crate::Rng;
use crate::driver::{DIRECTORY, Marks};
use crate::schedule;
use inkstone::internals::options::{Doublewrite, Durability, FlushMethod, LogWrite};
use inkstone::internals::sync::thread;
use inkstone::{Database, Error, Isolation, Options, Table, Transaction};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The mark of a rollback that has waited for room in the log.
pub const WAITED_MARK: &str = "rollback_waits";
const LOG_BYTES: u64 = 4 << 20;
const TABLE: &str = "rows";
const SAVEPOINT: &str = "s";
/// Rows of a client, about.
const ROWS: u64 = 60;
/// Rows that a client inserts side by side, at most: fewer than a bulk insert has.
const RUN_ROWS: u64 = 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Decides what the other fields do not.
    pub seed: u64,
    /// Bytes in a page.
    pub page_size: u64,
    /// Threads that work.
    pub clients: u64,
    /// Transactions of each.
    pub transactions: u64,
    /// Operations of a transaction, at most.
    pub operations: u64,
    /// The longest value, in bytes.
    pub value_bytes: u64,
    /// Power is lost at so many writes and syncs; if there are not so many, at the end.
    pub crash_at: u64,
}

impl Case {
    /// The case of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x51a1);
        let rng = &mut rng;
        let page_size = rng.pick(&[4 << 10, 16 << 10, 64 << 10, 64 << 10]);
        Self {
            seed,
            page_size,
            clients: rng.from_to(3, 8),
            transactions: rng.from_to(6, 16),
            operations: rng.pick(&[8, 20, 60]),
            value_bytes: page_size * rng.pick(&[1, 2, 6]),
            crash_at: rng.pick(&[300, 3000, 30_000, u64::MAX]),
        }
    }

    fn options(&self, rng: &mut Rng) -> Options {
        Options {
            page_size: self.page_size,
            buffer_pool_size: self.page_size * rng.pick(&[64, 64, 300]),
            buffer_pool_instances: rng.pick(&[1, 4]),
            log_file_size: LOG_BYTES,
            log_buffer_size: 2 << 20,
            flush_method: rng.pick(&[FlushMethod::ODirect, FlushMethod::Fsync]),
            log_file_buffering: rng.chance(50),
            log_write: rng.pick(&[LogWrite::Sync, LogWrite::Async]),
            doublewrite: Doublewrite::On,
            flush_log_at_trx_commit: Durability::Sync,
            ..Options::default()
        }
    }
}

/// What a row's value is made of: a number that no other value has, and its length.
type Value = (u64, u64);

/// The rows of a client.
type Rows = BTreeMap<Vec<u8>, Value>;

fn bytes_of((number, length): Value) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut bytes = number.to_be_bytes().to_vec();
    while (bytes.len() as u64) < length {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes
}

/// What is known of a client's rows when power is lost.
#[derive(Debug, Default)]
struct Known {
    acknowledged: Rows,
    /// Of the commit that was under way.
    tried: Option<Rows>,
}

/// Runs a case; the error says what did not hold.
pub fn run(case: Case) -> (Marks, Result<(), String>) {
    schedule::under(case.seed, move || {
        let mut marks = Marks::default();
        let result = live(&case, &mut marks);
        (marks, result)
    })
}

fn live(case: &Case, marks: &mut Marks) -> Result<(), String> {
    let mut rng = Rng::new(case.seed);
    let vfs = SimVfs::new(rng.next());
    schedule::attach(&vfs);
    let options = case.options(&mut rng);
    let prepare = || {
        let db = open(&vfs, &options)?;
        let table = db.create_table(TABLE, &[])?;
        Ok((db, table))
    };
    let (db, table) = prepare().map_err(|error: Error| format!("prepare: {error}"))?;
    vfs.crash_at(case.crash_at);
    let ended: Vec<_> = (0..case.clients).map(|_| OnceLock::new()).collect();
    let spawned = thread::scope(|scope| {
        for (number, ended) in (0..).zip(&ended) {
            let (db, table) = (&db, &table);
            scope.spawn(format!("client {number}"), move || {
                let _ = ended.set(Client::new(case, number, db, table).run());
            })?;
        }
        std::io::Result::Ok(())
    });
    spawned.map_err(|error| format!("a thread does not start: {error}"))?;
    for (name, count) in db.counters().snapshot() {
        if [WAITED_MARK, "undo_moves", "undo_saves", "checkpoint_waits"].contains(&name) {
            marks.add(name, count);
        }
    }
    let is_dead = vfs.is_dead();
    let disk = vfs.crash(rng.next());
    drop((db, table));
    marks.add("power losses", 1);
    let mut known = Vec::new();
    for client in ended {
        let (rows, failed) = client.into_inner().ok_or("a client has not ended")?;
        known.push(rows);
        if let Some(error) = failed
            && !is_dead
        {
            return Err(format!("with space on the disk: {error}"));
        }
    }
    check(&disk, &options, &known, marks)
}

fn open(vfs: &SimVfs, options: &Options) -> inkstone::Result<Database> {
    let vfs = Arc::new(vfs.clone());
    Database::open_on(vfs, Path::new(DIRECTORY), options.clone(), &|_| {})
}

struct Client<'a> {
    case: &'a Case,
    number: u64,
    db: &'a Database,
    table: &'a Table,
    rng: Rng,
    known: Known,
    /// The number of its next value.
    next: u64,
}

impl<'a> Client<'a> {
    fn new(case: &'a Case, number: u64, db: &'a Database, table: &'a Table) -> Self {
        Self {
            case,
            number,
            db,
            table,
            rng: Rng::new(case.seed << 8 | (number + 1)),
            known: Known::default(),
            next: 1,
        }
    }

    fn run(mut self) -> (Known, Option<Error>) {
        for _ in 0..self.case.transactions {
            crate::campaign::alive();
            if let Err(error) = self.transaction() {
                return (self.known, Some(error));
            }
        }
        (self.known, None)
    }

    fn transaction(&mut self) -> inkstone::Result<()> {
        let txn = self.db.begin(Isolation::ReadCommitted)?;
        let mut rows = self.known.acknowledged.clone();
        let mut saved = None;
        for _ in 0..self.rng.from_to(1, self.case.operations) {
            match self.rng.below(20) {
                0..=9 => self.upsert(&txn, &mut rows)?,
                10..=12 => self.insert_run(&txn, &mut rows)?,
                13 | 14 => self.delete(&txn, &mut rows)?,
                15 | 16 => {
                    txn.savepoint(SAVEPOINT)?;
                    saved = Some(rows.clone());
                }
                17 | 18 => {
                    if let Some(saved) = &saved {
                        txn.rollback_to_savepoint(SAVEPOINT)?;
                        rows.clone_from(saved);
                    }
                }
                // Others go on meanwhile, and the log comes round.
                _ => thread::sleep(Duration::from_millis(self.rng.below(20))),
            }
        }
        match self.rng.below(10) {
            0..=5 => self.commit(txn, rows),
            6..=8 => txn.rollback(),
            _ => {
                drop(txn);
                Ok(())
            }
        }
    }

    fn commit(&mut self, txn: Transaction, rows: Rows) -> inkstone::Result<()> {
        self.known.tried = Some(rows.clone());
        txn.commit()?;
        (self.known.acknowledged, self.known.tried) = (rows, None);
        Ok(())
    }

    fn value(&mut self, longest: u64) -> Value {
        self.next += 1;
        let longest = self.rng.pick(&[60, longest / 8, longest]);
        let length = 8 * self.rng.from_to(1, (longest / 8).max(2));
        (self.number << 32 | self.next, length)
    }

    fn key(&self, row: u64) -> Vec<u8> {
        format!("{}/{row:06}", self.number).into_bytes()
    }

    fn upsert(&mut self, txn: &Transaction, rows: &mut Rows) -> inkstone::Result<()> {
        let row = self.rng.below(ROWS);
        let (key, value) = (self.key(row), self.value(self.case.value_bytes));
        txn.upsert(self.table, &key, &bytes_of(value))?;
        rows.insert(key, value);
        Ok(())
    }

    /// Rows side by side, behind all others: they have one version.
    fn insert_run(&mut self, txn: &Transaction, rows: &mut Rows) -> inkstone::Result<()> {
        let first = ROWS + self.next * RUN_ROWS;
        let count = self.rng.from_to(2, RUN_ROWS);
        let made: Vec<_> = (first..first + count)
            .map(|row| (self.key(row), self.value(200)))
            .collect();
        let with_values = made.iter().map(|(key, value)| (key, bytes_of(*value)));
        txn.insert_many(self.table, with_values)?;
        rows.extend(made);
        Ok(())
    }

    fn delete(&mut self, txn: &Transaction, rows: &mut Rows) -> inkstone::Result<()> {
        let nth = self.rng.below(ROWS) as usize;
        let Some(key) = rows.keys().nth(nth).cloned() else {
            return Ok(());
        };
        txn.delete(self.table, &key)?;
        rows.remove(&key);
        Ok(())
    }
}

/// What the [module](self) says.
fn check(
    disk: &SimVfs,
    options: &Options,
    known: &[Known],
    marks: &mut Marks,
) -> Result<(), String> {
    let failed = |error: Error| format!("after the power loss: {error}");
    let db = open(disk, options).map_err(failed)?;
    let table = db.table(TABLE).map_err(failed)?;
    db.verify_table(&table).map_err(failed)?;
    let mut found = vec![BTreeMap::new(); known.len()];
    let txn = db.begin(Isolation::RepeatableRead).map_err(failed)?;
    for row in txn.range(&table, ..).map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let client = usize::from(key[0].wrapping_sub(b'0'));
        let rows = found.get_mut(client);
        rows.ok_or("a row of nobody is there")?.insert(key, value);
    }
    drop(txn);
    for (number, (known, found)) in known.iter().zip(&found).enumerate() {
        marks.add("rows checked", found.len() as u64);
        let is = |rows: &Rows| {
            let same = |(key, value): (&Vec<u8>, &Value)| {
                found
                    .get(key)
                    .is_some_and(|found| *found == bytes_of(*value))
            };
            rows.len() == found.len() && rows.iter().all(same)
        };
        if !is(&known.acknowledged) && !known.tried.as_ref().is_some_and(is) {
            return Err(format!(
                "client {number} has {} rows, which are not those {} of its last commit{}",
                found.len(),
                known.acknowledged.len(),
                known
                    .tried
                    .as_ref()
                    .map_or("", |_| ", nor of the one under way"),
            ));
        }
    }
    db.close().map_err(failed)
}
