//! What is measured of every store: the same operations with the same guarantees.

use std::error::Error;
use std::path::Path;

/// Whatever a store complains of.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How a store is set up for a workload.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of cache (buffer pool, block cache).
    pub cache_bytes: usize,
    /// A commit is on the device when it returns; otherwise it may be lost in a crash, but never
    /// half.
    pub durable: bool,
    /// Threads that will use the store at once.
    pub clients: usize,
}

/// A row: its number is the key, as eight big-endian bytes.
pub type Key = [u8; 8];

/// A store that is open.
pub trait Store: Send + Sync {
    /// Inserts rows in ascending key order, in one transaction (or batch), and commits it.
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()>;

    /// Brings what was loaded to the state in which a store at rest has it: flushed, compacted.
    fn settle(&self) -> Result<()>;

    /// A handle for one thread.
    fn client(&self) -> Result<Box<dyn Client + '_>>;
}

/// One thread's use of a store.
pub trait Client {
    /// Replaces a row's value in a transaction of its own, and commits it.
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()>;

    /// Reads a row; the length of its value.
    fn get(&mut self, key: Key) -> Result<Option<usize>>;

    /// Reads `rows` rows from a key on; the sum of the lengths of their values, and how many there
    /// were.
    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)>;
}

/// Opens a store of one kind in an empty directory.
pub type Open = fn(&Path, Settings) -> Result<Box<dyn Store>>;
