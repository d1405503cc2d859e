//! Single operations of the engine, for `cargo xtask counts` and `cargo xtask lock-times`. Each is
//! in a function of its own: valgrind counts what happens below these functions and nothing else.

use crate::rng::Rng;
use inkstone::options::IoBackend;
use inkstone::{Database, Durability, Error, Isolation, Options, Result, Table, Transaction};
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
    /// A transaction that changes one row, until that is on the disk (setting 1).
    DurableCommit,
}

impl Operation {
    fn has_transactions_of_its_own(self) -> bool {
        matches!(
            self,
            Self::ReadTransaction | Self::UpdateCommit | Self::DurableCommit
        )
    }
}

/// One of several threads that do the same at the same time, each in rows of its own.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Which one, from 0.
    pub number: u64,
    /// How many there are.
    pub of: u64,
}

impl Client {
    /// The only one.
    pub const ALONE: Self = Self { number: 0, of: 1 };
}

/// Bytes of a value.
const VALUE_LEN: usize = 120;
/// Rows of a scan.
const SCAN_ROWS: usize = 100;
/// Rows have every other number, so that there is room between them.
const STEP: u64 = 2;

/// A table of so many rows, all of it in memory.
pub struct Bench {
    db: Database,
    table: Table,
    rows: u64,
}

impl Bench {
    /// Makes the table in an empty directory.
    pub fn new(directory: &std::path::Path, rows: u64, io_backend: IoBackend) -> Result<Self> {
        let options = Options {
            buffer_pool_size: 256 << 20,
            io_backend,
            flush_log_at_trx_commit: Durability::Lazy,
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
        Ok(Self { db, table, rows })
    }

    /// Does an operation so many times.
    pub fn run(&self, operation: Operation, times: u64, client: Client) -> Result<()> {
        let (mut rng, mut value) = (Rng::new(2 + client.number), vec![0; VALUE_LEN]);
        fill(&mut rng, &mut value);
        let mut transaction = self.db.begin(Isolation::RepeatableRead)?;
        // The first use of a transaction, of a tree and of a thread costs what later ones do not.
        transaction.get(&self.table, &key(0))?;
        transaction.insert(&self.table, &self.key_behind(0, client), &value)?;
        if operation.has_transactions_of_its_own() {
            // They have no other snapshot in their way.
            transaction.commit()?;
            transaction = self.db.begin(Isolation::RepeatableRead)?;
        }
        for n in 0..times {
            let random = self.random_row(&mut rng, client);
            let row = key(random * STEP);
            match operation {
                Operation::PointRead => {
                    counted_point_read(&transaction, &self.table, &row, &mut value)?;
                }
                Operation::ReadTransaction => {
                    counted_read_transaction(&self.db, &self.table, &row, &mut value)?;
                }
                Operation::Scan100 => counted_scan(&transaction, &self.table, &row)?,
                Operation::InsertAscending => {
                    let new = self.key_behind(1 + n, client);
                    counted_insert(&transaction, &self.table, &new, &value)?;
                }
                Operation::InsertRandom => {
                    let new = key(random * STEP + 1);
                    let inserted = counted_insert(&transaction, &self.table, &new, &value);
                    // The same place may be drawn twice.
                    if !matches!(inserted, Err(Error::DuplicateKey { .. })) {
                        inserted?;
                    }
                }
                Operation::Update => {
                    fill(&mut rng, &mut value[50..60]);
                    counted_update(&transaction, &self.table, &row, &value)?;
                }
                Operation::UpdateCommit => {
                    fill(&mut rng, &mut value[50..60]);
                    counted_update_commit(&self.db, &self.table, &row, &value, Durability::Lazy)?;
                }
                Operation::DurableCommit => {
                    fill(&mut rng, &mut value[50..60]);
                    counted_update_commit(&self.db, &self.table, &row, &value, Durability::Sync)?;
                }
            }
        }
        transaction.commit()
    }

    /// Closes the database, so that its threads end.
    pub fn close(self) -> Result<()> {
        drop(self.table);
        self.db.close()
    }

    fn random_row(&self, rng: &mut Rng, client: Client) -> u64 {
        let from = self.rows * client.number / client.of;
        let end = self.rows * (client.number + 1) / client.of;
        from + rng.below(end - from)
    }

    /// Keys behind all others; those of the clients take turns.
    fn key_behind(&self, n: u64, client: Client) -> [u8; 8] {
        key((self.rows + n * client.of + client.number) * STEP)
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
fn counted_update_commit(
    db: &Database,
    table: &Table,
    key: &[u8],
    value: &[u8],
    durability: Durability,
) -> Result<()> {
    let transaction = db.begin(Isolation::RepeatableRead)?;
    transaction.update(table, key, value)?;
    transaction.commit_with(durability)
}
