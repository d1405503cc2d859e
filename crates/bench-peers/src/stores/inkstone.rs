//! Inkstone with its defaults: O_DIRECT data files, doublewrite on.

use crate::store::{Client, Key, Result, Settings, Store};
use inkstone::{Database, Durability, Isolation, Options, Table, Transaction};
use std::path::Path;

struct Inkstone {
    db: Database,
    table: Table,
    durability: Durability,
}

struct Session<'s> {
    store: &'s Inkstone,
    /// For reads, as the other stores keep a read transaction open.
    reader: Transaction,
}

pub fn open(directory: &Path, settings: Settings) -> Result<Box<dyn Store>> {
    let options = Options {
        buffer_pool_size: settings.cache_bytes as u64,
        log_file_size: 1 << 30,
        ..Options::default()
    };
    let db = Database::open(directory, options)?;
    touch(&db, settings.cache_bytes)?;
    let table = db.create_table("t", &[])?;
    let durability = match settings.durable {
        true => Durability::Sync,
        false => Durability::Lazy,
    };
    Ok(Box::new(Inkstone {
        db,
        table,
        durability,
    }))
}

/// Puts something into most of the buffer pool and drops it. A virtual machine whose free memory
/// goes back to its host takes seconds for the first touch of a gigabyte; no other store takes its
/// cache at once.
fn touch(db: &Database, cache_bytes: usize) -> Result<()> {
    const ROW_BYTES: usize = 1000;
    let table = db.create_table("touched", &[])?;
    let transaction = db.begin(Isolation::ReadCommitted)?;
    let rows = (cache_bytes - cache_bytes / 8) / ROW_BYTES;
    let row = |n: usize| ((n as u64).to_be_bytes(), [0; ROW_BYTES]);
    transaction.insert_many(&table, (0..rows).map(row))?;
    transaction.commit()?;
    drop(table);
    db.drop_table("touched")?;
    Ok(db.purge()?)
}

impl Store for Inkstone {
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        let transaction = self.db.begin(Isolation::RepeatableRead)?;
        for (key, value) in rows {
            transaction.insert(&self.table, &key, &value)?;
        }
        Ok(transaction.commit_with(self.durability)?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.checkpoint()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>> {
        let reader = self.db.begin(Isolation::RepeatableRead)?;
        Ok(Box::new(Session {
            store: self,
            reader,
        }))
    }
}

impl Client for Session<'_> {
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let transaction = self.store.db.begin(Isolation::ReadCommitted)?;
        transaction.update(&self.store.table, &key, value)?;
        Ok(transaction.commit_with(self.store.durability)?)
    }

    fn get(&mut self, key: Key) -> Result<Option<usize>> {
        Ok(self.reader.get(&self.store.table, &key)?.map(|v| v.len()))
    }

    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)> {
        let mut cursor = self.reader.range(&self.store.table, &from[..]..)?;
        let (mut bytes, mut found) = (0, 0);
        while found < rows
            && let Some((_, value)) = cursor.next_row()?
        {
            bytes += value.len();
            found += 1;
        }
        Ok((bytes, found))
    }
}
