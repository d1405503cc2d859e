//! The disk becomes full under a table that is several times larger than the pool, and stays so.
//!
//! # What must hold
//!
//! 1. What makes data grow may fail: the error says that there is no space, and the statement has
//!    no effect. All else goes on: rows are read, transactions are rolled back, rows are deleted, a
//!    table is dropped. A delete alone may have to be repeated, where its undo is to be saved and a
//!    checkpoint has to make room first.
//! 2. The next process, on a disk that is as full, opens and finds each row.
//! 3. When there is space again everything succeeds.

use super::session::DIRECTORY;
use crate::campaign::watched;
use crate::rng::Rng;
use inkstone::{
    Database, Error, Isolation, Options, PageCompression, PagePlacement, Table, Transaction,
};
use inkstone_io::sim::SimVfs;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows that the table begins with: three times the pool.
const ROWS: u64 = 4000;
const ROW_BYTES: usize = 800;
const PAGE: u64 = 16 << 10;
/// Statements that find the disk full before the life ends.
const FAILURES: u64 = 12;
/// Transactions that lengthen images on the full disk, and rows of each.
const LENGTHENING_ROUNDS: usize = 200;
const LENGTHENED: usize = 60;
/// Transactions at most.
const TRANSACTIONS_MAX: u64 = 3000;
/// How long a shortage may be noticed after it has passed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How pages lie.
const PLACEMENTS: [(PagePlacement, PageCompression); 4] = [
    (PagePlacement::InPlace, PageCompression::None),
    (PagePlacement::Placed, PageCompression::None),
    (PagePlacement::Placed, PageCompression::Lz4),
    (PagePlacement::Placed, PageCompression::Zstd),
];
/// Bytes that the disk has left.
const SPARES: [u64; 4] = [0, 100_000, 500_000, 2 << 20];

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
    PowerLoss,
}

/// One life on a disk that becomes full.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    placement: (PagePlacement, PageCompression),
    spare: u64,
    end: End,
}

impl Case {
    /// All cases.
    pub fn all() -> impl Iterator<Item = Case> {
        let ends = [End::Closed, End::Killed, End::PowerLoss];
        let cases = PLACEMENTS.into_iter().flat_map(move |placement| {
            SPARES
                .into_iter()
                .flat_map(move |spare| ends.map(|end| (placement, spare, end)))
        });
        cases.map(|(placement, spare, end)| Case {
            placement,
            spare,
            end,
        })
    }

    /// Runs it; the error says what is wrong.
    pub fn run(self) -> Result<(), String> {
        let name = self.to_string();
        watched(&name, || Run::new(self).run()).map_err(|text| format!("{name}: {text}"))
    }

    fn options(self) -> Options {
        let (page_placement, page_compression) = self.placement;
        Options {
            page_size: PAGE,
            buffer_pool_size: 64 * PAGE,
            buffer_pool_instances: 1,
            buffer_pool_dump_at_shutdown: false,
            log_file_size: 4 << 20,
            log_buffer_size: 2 << 20,
            version_store_memory: 64 << 20,
            recovery_threads: 1,
            page_placement,
            page_compression,
            ..Options::default()
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (placement, compression) = self.placement;
        let Case { spare, end, .. } = self;
        write!(f, "full/{placement:?}/{compression:?}/{spare}/{end:?}")
    }
}

fn failed(what: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{what}: {error}")
}

struct Run {
    case: Case,
    vfs: SimVfs,
    rng: Rng,
    rows: BTreeMap<u64, Vec<u8>>,
    next_key: u64,
    /// Bytes that the full disk has.
    capacity: u64,
}

type Changes = Vec<(u64, Option<Vec<u8>>)>;

impl Run {
    fn new(case: Case) -> Self {
        Self {
            case,
            vfs: SimVfs::new(1),
            rng: Rng::new(case.spare),
            rows: BTreeMap::new(),
            next_key: 0,
            capacity: u64::MAX,
        }
    }

    fn run(mut self) -> Result<(), String> {
        let (db, table) = self.fill()?;
        self.capacity = self.vfs.used_bytes() + self.case.spare;
        self.vfs.set_capacity_bytes(self.capacity);
        self.write_until_full(&db, &table)?;
        self.lengthen(&db, &table)?;
        self.shrink(&db, &table)?;
        let (db, table) = self.next_process(db, table)?;
        self.compare(&db, &table)?;
        self.shrink(&db, &table)?;
        db.drop_table("other").map_err(failed("dropping"))?;
        self.vfs.set_capacity_bytes(u64::MAX);
        self.go_on(&db, &table)?;
        drop(table);
        db.close().map_err(failed("closing"))
    }

    fn open(&self) -> Result<Database, String> {
        let (vfs, options) = (Arc::new(self.vfs.clone()), self.case.options());
        Database::open_on(vfs, Path::new(DIRECTORY), options, &|_| {}).map_err(failed("opening"))
    }

    fn fill(&mut self) -> Result<(Database, Table), String> {
        let db = self.open()?;
        let table = db.create_table("t", &[]).map_err(failed("creating"))?;
        let other = db.create_table("other", &[]).map_err(failed("creating"))?;
        while self.next_key < ROWS {
            let rows = self.new_rows(200, 0);
            soon(|| Ok(change(&db, &other, &rows)? && change(&db, &table, &rows)?))?;
            self.apply(rows);
        }
        drop(other);
        Ok((db, table))
    }

    /// A row that compresses the less, the higher `noise` is.
    fn value(&mut self, noise: u64) -> Vec<u8> {
        let random = 0..50 + 100 * noise as usize;
        let bytes = random.map(|_| self.rng.next() as u8);
        let bytes = bytes.chain(std::iter::repeat(b'x')).take(ROW_BYTES);
        bytes.collect()
    }

    fn new_rows(&mut self, count: u64, noise: u64) -> Changes {
        let first = self.next_key;
        self.next_key += count;
        let keys = first..self.next_key;
        keys.map(|key| (key, Some(self.value(noise)))).collect()
    }

    /// Updates of rows here and there.
    fn updates(&mut self, count: u64, noise: u64) -> Changes {
        let keys: Vec<u64> = self.rows.keys().copied().collect();
        let chosen = (0..count).map(|_| (self.rng.pick(&keys), Some(self.value(noise))));
        let chosen: BTreeMap<_, _> = chosen.collect();
        chosen.into_iter().collect()
    }

    /// They are committed.
    fn apply(&mut self, changes: Changes) {
        for (key, value) in changes {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }

    /// Updates and inserts until some have found the disk full, with reads amid them.
    fn write_until_full(&mut self, db: &Database, table: &Table) -> Result<(), String> {
        let mut failures = 0;
        for _ in 0..TRANSACTIONS_MAX {
            let noise = self.rng.below(8);
            let changes = match self.rng.below(3) {
                0 => self.new_rows(10, noise),
                _ => self.updates(40, noise),
            };
            if change(db, table, &changes)? {
                self.apply(changes);
            } else {
                failures += 1;
                self.read_some(db, table)?;
            }
            if failures == FAILURES {
                return self.compare(db, table);
            }
        }
        Err(format!(
            "{TRANSACTIONS_MAX} transactions, and {failures} found the disk full"
        ))
    }

    /// Rows here and there come to compress badly, as far as there is room: what becomes free lies
    /// scattered.
    fn lengthen(&mut self, db: &Database, table: &Table) -> Result<(), String> {
        for round in 0..LENGTHENING_ROUNDS {
            let keys: Vec<u64> = self.rows.keys().copied().collect();
            let places =
                (0..LENGTHENED).map(|n| (n * keys.len() / LENGTHENED + 31 * round) % keys.len());
            let keys: BTreeSet<u64> = places.map(|place| keys[place]).collect();
            let changes: Changes = keys
                .into_iter()
                .map(|key| (key, Some(self.value(7))))
                .collect();
            if change(db, table, &changes)? {
                self.apply(changes);
            }
            if round % 20 == 0 {
                self.read_some(db, table)?;
            }
        }
        self.compare(db, table)
    }

    /// Rows are deleted; first some of them to be rolled back.
    fn shrink(&mut self, db: &Database, table: &Table) -> Result<(), String> {
        let keys: Vec<u64> = self.rows.keys().copied().collect();
        let gone = |keys: &mut dyn Iterator<Item = u64>| keys.map(|key| (key, None)).collect();
        let rolled_back: Changes = gone(&mut keys.iter().copied().step_by(40));
        soon(|| {
            let txn = begin_with(db, table, &rolled_back)?;
            let rolled_back = txn.map(Transaction::rollback).transpose();
            let done = rolled_back.map_err(failed("rolling back deletes"))?;
            Ok(done.is_some())
        })?;
        self.compare(db, table)?;
        let deleted: Vec<u64> = keys.into_iter().step_by(13).collect();
        for keys in deleted.chunks(50) {
            let changes = gone(&mut keys.iter().copied());
            soon(|| change(db, table, &changes))?;
            self.apply(changes);
        }
        self.compare(db, table)
    }

    /// The process ends; another one opens the database, and the disk is no larger. What a power
    /// loss has taken back from files is free, and nothing else took it.
    fn next_process(&mut self, db: Database, table: Table) -> Result<(Database, Table), String> {
        db.flush_log().map_err(failed("flushing the log"))?;
        drop(table);
        match self.case.end {
            End::Closed => {
                // It may have wanted space: it is as if it had been killed.
                let _ = db.close();
                self.vfs = self.vfs.kill();
            }
            End::Killed => {
                self.vfs = self.vfs.kill();
                std::mem::forget(db);
            }
            End::PowerLoss => {
                self.vfs = self.vfs.crash(self.case.spare + 1);
                std::mem::forget(db);
            }
        }
        self.vfs.set_capacity_bytes(self.capacity);
        let db = self.open()?;
        let table = db.table("t").map_err(failed("opening the table"))?;
        Ok((db, table))
    }

    /// There is space: all kinds of changes succeed.
    fn go_on(&mut self, db: &Database, table: &Table) -> Result<(), String> {
        for round in 0..20 {
            let changes = match round % 2 {
                0 => self.new_rows(100, 7),
                _ => self.updates(100, 7),
            };
            soon(|| change(db, table, &changes))?;
            self.apply(changes);
        }
        self.compare(db, table)?;
        let verified = db.verify_table(table);
        verified.map(drop).map_err(failed("verifying"))
    }

    fn read_some(&mut self, db: &Database, table: &Table) -> Result<(), String> {
        let keys: Vec<u64> = self.rows.keys().copied().collect();
        let begin = db.begin(Isolation::ReadCommitted);
        let txn = begin.map_err(failed("beginning to read"))?;
        for _ in 0..100 {
            let key = self.rng.pick(&keys);
            let found = txn.get(table, &key.to_be_bytes());
            let found = found.map_err(failed("reading a row on the full disk"))?;
            if found.as_ref() != self.rows.get(&key) {
                return Err(format!("row {key} is another one"));
            }
        }
        Ok(())
    }

    fn compare(&self, db: &Database, table: &Table) -> Result<(), String> {
        let read = || {
            let txn = db.begin(Isolation::ReadCommitted)?;
            let rows = txn.range(table, ..)?;
            rows.collect::<Result<Vec<_>, Error>>()
        };
        let found = read().map_err(failed("reading all rows"))?;
        let expected = self
            .rows
            .iter()
            .map(|(key, value)| (key.to_be_bytes(), value));
        let is_same = found.len() == self.rows.len()
            && (found.iter().zip(expected)).all(|((k, v), (key, value))| **k == key && v == value);
        is_same.then_some(()).ok_or_else(|| {
            let (found, expected) = (found.len(), self.rows.len());
            format!("{found} rows are not the {expected} that were committed")
        })
    }
}

/// Changes rows in one transaction. False: one of them found the disk full, and all are undone.
fn change(db: &Database, table: &Table, changes: &Changes) -> Result<bool, String> {
    let committed = begin_with(db, table, changes)?
        .map(Transaction::commit)
        .transpose();
    Ok(committed.map_err(failed("committing"))?.is_some())
}

/// A transaction with these changes; none if one of them found the disk full: all are undone.
fn begin_with(
    db: &Database,
    table: &Table,
    changes: &Changes,
) -> Result<Option<Transaction>, String> {
    let txn = db.begin(Isolation::ReadCommitted);
    let txn = txn.map_err(failed("beginning"))?;
    let done = changes.iter().try_for_each(|(key, value)| match value {
        Some(value) => txn.upsert(table, &key.to_be_bytes(), value).map(drop),
        None => txn.delete(table, &key.to_be_bytes()).map(drop),
    });
    match done {
        Ok(()) => Ok(Some(txn)),
        Err(Error::DiskFull { what }) => {
            let grows = changes.iter().any(|(_, value)| value.is_some());
            if !grows && !what.contains(" of undo in ") {
                return Err(format!("there is no room for a delete: {what}"));
            }
            txn.rollback().map_err(failed("rolling back"))?;
            Ok(None)
        }
        Err(error) => Err(format!("changing rows: {error}")),
    }
}

/// Until the disk is no longer found full.
fn soon(f: impl Fn() -> Result<bool, String>) -> Result<(), String> {
    let begin = Instant::now();
    while !f()? {
        if begin.elapsed() > PATIENCE {
            return Err("there is space, and the disk is found full".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
