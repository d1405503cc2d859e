//! SQLite: WAL, `synchronous=FULL` where commits are durable, a connection for each client.

use crate::store::{Client, Key, Result, Settings, Store};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Sqlite {
    path: PathBuf,
    settings: Settings,
}

struct Session {
    connection: Connection,
    /// Reads run in one transaction, as those of the other stores.
    reading: bool,
}

pub fn open(directory: &Path, settings: Settings) -> Result<Box<dyn Store>> {
    let store = Sqlite {
        path: directory.join("sqlite.db"),
        settings,
    };
    store
        .connect()?
        .execute_batch("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB NOT NULL)")?;
    Ok(Box::new(store))
}

impl Sqlite {
    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(Duration::from_secs(600))?;
        let synchronous = match self.settings.durable {
            true => "FULL",
            false => "OFF",
        };
        // Each connection has a cache of its own.
        let cache_kib = self.settings.cache_bytes / self.settings.clients.max(1) / 1024;
        connection.execute_batch(&format!(
            "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
             PRAGMA cache_size = -{cache_kib}; PRAGMA wal_autocheckpoint = 4096;"
        ))?;
        Ok(connection)
    }
}

/// Keys are SQLite's own row numbers.
fn number(key: Key) -> i64 {
    i64::from_be_bytes(key)
}

impl Store for Sqlite {
    fn load(&self, rows: &mut dyn Iterator<Item = (Key, Vec<u8>)>) -> Result<()> {
        let mut connection = self.connect()?;
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare("INSERT INTO t VALUES (?1, ?2)")?;
            for (key, value) in rows {
                insert.execute(params![number(key), value])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn settle(&self) -> Result<()> {
        let connection = self.connect()?;
        Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    fn client(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(Session {
            connection: self.connect()?,
            reading: false,
        }))
    }
}

impl Session {
    fn read(&mut self, sql: &str) -> Result<CachedStatement<'_>> {
        if !self.reading {
            self.connection.execute_batch("BEGIN")?;
            self.reading = true;
        }
        Ok(self.connection.prepare_cached(sql)?)
    }
}

impl Client for Session {
    fn update(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let mut update = self
            .connection
            .prepare_cached("UPDATE t SET v = ?2 WHERE k = ?1")?;
        update.execute(params![number(key), value])?;
        Ok(())
    }

    fn get(&mut self, key: Key) -> Result<Option<usize>> {
        let mut select = self.read("SELECT v FROM t WHERE k = ?1")?;
        let found = select.query_row([number(key)], |row| Ok(row.get_ref(0)?.as_blob()?.len()));
        Ok(found.optional()?)
    }

    fn scan(&mut self, from: Key, rows: usize) -> Result<(usize, usize)> {
        let mut select = self.read("SELECT k, v FROM t WHERE k >= ?1 ORDER BY k LIMIT ?2")?;
        let mut found = select.query(params![number(from), rows as i64])?;
        let (mut bytes, mut count) = (0, 0);
        while let Some(row) = found.next()? {
            bytes += row.get_ref(1)?.as_blob()?.len();
            count += 1;
        }
        Ok((bytes, count))
    }
}
