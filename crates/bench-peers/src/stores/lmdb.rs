//! LMDB through heed. Its cache is the page cache of the system; one writer at a time.

use crate::store::{Client, Key, Result, Settings, Store};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls};
use std::ops::Bound;
use std::path::Path;

/// Address space for the file; not memory.
const MAP_BYTES: usize = 64 << 30;

struct Lmdb {
    env: Env<WithoutTls>,
    table: Database<Bytes, Bytes>,
}

struct Session<'s> {
    store: &'s Lmdb,
    /// Opened at the first read: one that is open keeps a writer from reusing pages.
    reader: Option<RoTxn<'s, WithoutTls>>,
}

pub fn open(directory: &Path, settings: Settings) -> Result<Box<dyn Store>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_readers(1024);
    if !settings.durable {
        // SAFETY: without syncs a crash of the machine may damage the file; it is thrown away.
        unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP) };
    }
    // SAFETY: the directory is ours alone, and no other process maps the file.
    let env = unsafe { options.open(directory)? };
    let mut transaction = env.write_txn()?;
    let table = env.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb { env, table }))
}

impl Store for Lmdb {
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in rows {
            self.table
                .put_with_flags(&mut transaction, PutFlags::APPEND, &key, &value)?;
        }
        Ok(transaction.commit()?)
    }

    fn settle(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(Session {
            store: self,
            reader: None,
        }))
    }
}

impl<'s> Session<'s> {
    fn reader(&mut self) -> Result<&RoTxn<'s, WithoutTls>> {
        if self.reader.is_none() {
            self.reader = Some(self.store.env.read_txn()?);
        }
        self.reader.as_ref().ok_or_else(|| "no reader".into())
    }
}

impl Client for Session<'_> {
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let mut transaction = self.store.env.write_txn()?;
        self.store.table.put(&mut transaction, &key, value)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: Key) -> Result<Option<usize>> {
        let table = self.store.table;
        Ok(table.get(self.reader()?, &key)?.map(<[u8]>::len))
    }

    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)> {
        let table = self.store.table;
        let (mut bytes, mut found) = (0, 0);
        let rest = (Bound::Included(&from[..]), Bound::Unbounded);
        for row in table.range(self.reader()?, &rest)?.take(rows) {
            bytes += row?.1.len();
            found += 1;
        }
        Ok((bytes, found))
    }
}
