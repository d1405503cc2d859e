//! Single operations of the engine, each in a function of its own, for `cargo xtask counts`: valgrind
//! counts what happens below these functions and nothing else.

use crate::rng::Rng;
use inkstone::{Database, Error, Isolation, Options, Result, Table, Transaction};
use std::hint::black_box;

/// An operation to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Operation {
    /// One row by its key, in a transaction that goes on.
    PointRead,
    /// A transaction that reads one row.
    ReadTransaction,
    /// 100 rows in key order, in a transaction that goes on.
    Scan100,
    /// A row behind all others, in a transaction that goes on.
    InsertAscending,
    /// A row between others, in a transaction that goes on.
    InsertRandom,
    /// 10 bytes of a random row's 120, in a transaction that goes on.
    Update,
    /// A transaction that changes one row, not waiting for the disk (setting 0).
    UpdateCommit,
}

/// Bytes of a value.
const VALUE_LEN: usize = 120;
/// Rows of a scan.
const SCAN_ROWS: usize = 100;
/// Rows have every other number, so that there is room between them.
const STEP: u64 = 2;

/// A table of so many rows, all of it in memory, and what chooses among them.
pub struct Bench {
    db: Database,
    table: Table,
    rows: u64,
    rng: Rng,
    value: Vec<u8>,
}

impl Bench {
    /// Makes the table in an empty directory.
    pub fn new(directory: &std::path::Path, rows: u64) -> Result<Self> {
        let options = Options {
            buffer_pool_size: 256 << 20,
            // valgrind knows no io_uring.
            io_backend: inkstone::options::IoBackend::Posix,
            flush_log_at_trx_commit: inkstone::Durability::Lazy,
            ..Options::default()
        };
        let db = Database::open(directory, options)?;
        let table = db.create_table("t", &[])?;
        let (mut rng, mut value) = (Rng::new(1), vec![0; VALUE_LEN]);
        let load = db.begin(Isolation::RepeatableRead)?;
        for n in 0..rows {
            fill(&mut rng, &mut value);
            load.insert(&table, &key(n * STEP), &value)?;
        }
        load.commit()?;
        Ok(Self {
            db,
            table,
            rows,
            rng,
            value,
        })
    }

    /// Does an operation so many times.
    pub fn run(&mut self, operation: Operation, times: u64) -> Result<()> {
        let mut transaction = self.db.begin(Isolation::RepeatableRead)?;
        // The first use of a transaction, of a tree and of a thread costs what later ones do not.
        transaction.get(&self.table, &key(0))?;
        let end = self.rows * STEP;
        transaction.insert(&self.table, &key(end), &self.value)?;
        if matches!(
            operation,
            Operation::ReadTransaction | Operation::UpdateCommit
        ) {
            // These have transactions of their own, and nobody else's snapshot in their way.
            transaction.commit()?;
            transaction = self.db.begin(Isolation::RepeatableRead)?;
        }
        for n in 0..times {
            let random = self.rng.below(self.rows);
            let row = key(random * STEP);
            match operation {
                Operation::PointRead => {
                    counted_point_read(&transaction, &self.table, &row, &mut self.value)?;
                }
                Operation::ReadTransaction => {
                    counted_read_transaction(&self.db, &self.table, &row, &mut self.value)?;
                }
                Operation::Scan100 => counted_scan(&transaction, &self.table, &row)?,
                Operation::InsertAscending => {
                    let new = key((self.rows + 1 + n) * STEP);
                    counted_insert(&transaction, &self.table, &new, &self.value)?;
                }
                Operation::InsertRandom => {
                    let new = key(random * STEP + 1);
                    let inserted = counted_insert(&transaction, &self.table, &new, &self.value);
                    // The dice may fall twice on one place.
                    if !matches!(inserted, Err(Error::DuplicateKey { .. })) {
                        inserted?;
                    }
                }
                Operation::Update => {
                    fill(&mut self.rng, &mut self.value[50..60]);
                    counted_update(&transaction, &self.table, &row, &self.value)?;
                }
                Operation::UpdateCommit => {
                    fill(&mut self.rng, &mut self.value[50..60]);
                    counted_update_commit(&self.db, &self.table, &row, &self.value)?;
                }
            }
        }
        transaction.rollback()
    }
}

fn fill(rng: &mut Rng, bytes: &mut [u8]) {
    bytes.fill_with(|| rng.next() as u8);
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

#[inline(never)]
fn counted_point_read(
    transaction: &Transaction,
    table: &Table,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<()> {
    black_box(transaction.get_into(table, key, value)?);
    Ok(())
}

#[inline(never)]
fn counted_read_transaction(
    db: &Database,
    table: &Table,
    key: &[u8],
    value: &mut Vec<u8>,
) -> Result<()> {
    let transaction = db.begin(Isolation::RepeatableRead)?;
    black_box(transaction.get_into(table, key, value)?);
    transaction.commit()
}

#[inline(never)]
fn counted_scan(transaction: &Transaction, table: &Table, from: &[u8]) -> Result<()> {
    let mut rows = transaction.range(table, from..)?;
    for _ in 0..SCAN_ROWS {
        black_box(rows.next_row()?);
    }
    Ok(())
}

#[inline(never)]
fn counted_insert(
    transaction: &Transaction,
    table: &Table,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    transaction.insert(table, key, value)
}

#[inline(never)]
fn counted_update(
    transaction: &Transaction,
    table: &Table,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    transaction.update(table, key, value)
}

#[inline(never)]
fn counted_update_commit(db: &Database, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
    let transaction = db.begin(Isolation::RepeatableRead)?;
    transaction.update(table, key, value)?;
    transaction.commit()
}
