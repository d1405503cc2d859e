//! redb: one writer at a time; every durable commit syncs.

use crate::store::{Client, Key, Result, Settings, Store};
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition, WriteTransaction,
};
use std::path::Path;

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("t");

struct Redb {
    db: Database,
    durable: bool,
}

struct Session<'s> {
    store: &'s Redb,
    /// Opened at the first read.
    reader: Option<ReadOnlyTable<u64, &'static [u8]>>,
}

pub fn open(directory: &Path, settings: Settings) -> Result<Box<dyn Store>> {
    let mut builder = Database::builder();
    builder.set_cache_size(settings.cache_bytes);
    let store = Redb {
        db: builder.create(directory.join("redb.db"))?,
        durable: settings.durable,
    };
    let transaction = store.db.begin_write()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    Ok(Box::new(store))
}

fn number(key: Key) -> u64 {
    u64::from_be_bytes(key)
}

impl Redb {
    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = self.db.begin_write()?;
        if !self.durable {
            transaction.set_durability(Durability::None)?;
        }
        Ok(transaction)
    }
}

impl Store for Redb {
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in rows {
                table.insert(number(key), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn settle(&self) -> Result<()> {
        // A durable commit makes all earlier ones durable, and their pages reusable.
        Ok(self.db.begin_write()?.commit()?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(Session {
            store: self,
            reader: None,
        }))
    }
}

impl Session<'_> {
    fn reader(&mut self) -> Result<&ReadOnlyTable<u64, &'static [u8]>> {
        if self.reader.is_none() {
            self.reader = Some(self.store.db.begin_read()?.open_table(TABLE)?);
        }
        self.reader.as_ref().ok_or_else(|| "no reader".into())
    }
}

impl Client for Session<'_> {
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let transaction = self.store.begin()?;
        transaction.open_table(TABLE)?.insert(number(key), value)?;
        Ok(transaction.commit()?)
    }

    fn get(&mut self, key: Key) -> Result<Option<usize>> {
        Ok(self.reader()?.get(number(key))?.map(|v| v.value().len()))
    }

    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)> {
        let (mut bytes, mut found) = (0, 0);
        for row in self.reader()?.range(number(from)..)?.take(rows) {
            bytes += row?.1.value().len();
            found += 1;
        }
        Ok((bytes, found))
    }
}
