//! fjall, an LSM tree in Rust. A durable update is an insert and a sync of the journal.

use crate::store::{Client, Key, Result, Settings, Store};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

struct Fjall {
    db: Database,
    table: Keyspace,
    durable: bool,
}

struct Session<'s>(&'s Fjall);

pub fn open(directory: &Path, settings: Settings) -> Result<Box<dyn Store>> {
    let db = Database::builder(directory)
        .cache_size(settings.cache_bytes as u64)
        .journal_compression(CompressionType::None)
        .open()?;
    let table = db.keyspace("t", || {
        KeyspaceCreateOptions::default()
            .data_block_compression_policy(CompressionPolicy::disabled())
    })?;
    Ok(Box::new(Fjall {
        db,
        table,
        durable: settings.durable,
    }))
}

impl Fjall {
    fn persist(&self) -> Result<()> {
        if self.durable {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Store for Fjall {
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        let mut batch = self.db.batch();
        for (key, value) in rows {
            batch.insert(&self.table, key, value);
        }
        batch.commit()?;
        self.persist()
    }

    fn settle(&self) -> Result<()> {
        self.table.rotate_memtable_and_wait()?;
        Ok(self.table.major_compact()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(Session(self)))
    }
}

impl Client for Session<'_> {
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()> {
        self.0.table.insert(key, value)?;
        self.0.persist()
    }

    fn get(&mut self, key: Key) -> Result<Option<usize>> {
        Ok(self.0.table.get(key)?.map(|value| value.len()))
    }

    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)> {
        let (mut bytes, mut found) = (0, 0);
        for row in self.0.table.range(from..).take(rows) {
            bytes += row.value()?.len();
            found += 1;
        }
        Ok((bytes, found))
    }
}
