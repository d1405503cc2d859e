//! RocksDB: direct I/O for data files, so that the page cache is no second cache; bloom filters, as
//! its users have them; no compression, as none of the others compresses.

use crate::store::{Client, Key, Result, Settings, Store};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, FlushOptions, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use std::path::Path;

struct RocksDb {
    db: DB,
    durable: bool,
}

struct Session<'s> {
    store: &'s RocksDb,
    write: WriteOptions,
}

pub fn open(directory: &Path, settings: Settings) -> Result<Box<dyn Store>> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(settings.cache_bytes));
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::None);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.increase_parallelism(2);
    // A log that is extended as it grows costs a commit of the file system's journal at each sync.
    options.set_recycle_log_file_num(4);
    let db = DB::open(&options, directory)?;
    Ok(Box::new(RocksDb {
        db,
        durable: settings.durable,
    }))
}

impl RocksDb {
    fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.durable);
        options
    }
}

impl Store for RocksDb {
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in rows {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.write_options())?)
    }

    fn settle(&self) -> Result<()> {
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        self.db.flush_opt(&flush)?;
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn client(&self) -> Result<Box<dyn Client + '_>> {
        let write = self.write_options();
        Ok(Box::new(Session { store: self, write }))
    }
}

impl Client for Session<'_> {
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()> {
        Ok(self.store.db.put_opt(key, value, &self.write)?)
    }

    fn get(&mut self, key: Key) -> Result<Option<usize>> {
        Ok(self.store.db.get_pinned(key)?.map(|value| value.len()))
    }

    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)> {
        let mut iterator = self.store.db.raw_iterator_opt(ReadOptions::default());
        iterator.seek(from);
        let (mut bytes, mut found) = (0, 0);
        while found < rows
            && let Some(value) = iterator.value()
        {
            bytes += value.len();
            found += 1;
            iterator.next();
        }
        iterator.status()?;
        Ok((bytes, found))
    }
}
