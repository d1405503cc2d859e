//! What the process does that is killed, and what is done after the recovery.

use super::TABLE;
use crate::clients;
use crate::failure::Result;
use crate::random::Random;
use crate::wide::WIDE_VALUE_LEN;
use clap::ValueEnum;
use inkstone::{Database, Durability, Isolation, Table};

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Updates of random rows with values of 120 bytes, each committed
    Updates,
    /// Updates of 8 bytes of random rows with values of 16 bytes, each committed
    Narrow,
    /// Rows of 8 + 16 bytes, 200 a transaction
    Inserts,
    /// Rows of 1,793 random bytes, 50 a transaction
    Wide,
}

/// What a client keeps.
struct Client {
    random: Random,
    value: Vec<u8>,
    /// Key of its last insert.
    last: u64,
}

impl Case {
    /// Bytes of a value of the table as it is filled.
    pub fn value_bytes(self) -> usize {
        match self {
            Self::Updates => 120,
            Self::Narrow | Self::Inserts => 16,
            Self::Wide => 64,
        }
    }

    fn inserted_bytes(self) -> usize {
        match self {
            Self::Wide => WIDE_VALUE_LEN - 8,
            _ => self.value_bytes(),
        }
    }

    /// Rows of a transaction.
    fn rows(self) -> u64 {
        match self {
            Self::Updates | Self::Narrow => 1,
            Self::Inserts => 200,
            Self::Wide => 50,
        }
    }

    /// Lets so many clients work on a table of `rows` rows; `done` is told of rows.
    pub fn work(
        self,
        db: &Database,
        rows: u64,
        clients: u64,
        seconds: f64,
        done: &(dyn Fn(u64) + Sync),
    ) -> Result<clients::Run> {
        let table = db.table(TABLE)?;
        let state = |mut random: Random| {
            // A range of keys of its own, behind those that are there, in each process.
            let process = u64::from(std::process::id()) << 40;
            let last = ((random.number() ^ process) >> 2).max(rows);
            let value = vec![b'a'; self.inserted_bytes()];
            Ok(Client {
                random,
                value,
                last,
            })
        };
        clients::run(
            clients,
            seconds,
            "changing rows".to_owned(),
            state,
            |client| {
                let changed = self.transaction(db, &table, rows, client)?;
                done(changed);
                Ok(changed)
            },
        )
    }

    fn transaction(
        self,
        db: &Database,
        table: &Table,
        rows: u64,
        client: &mut Client,
    ) -> std::result::Result<u64, inkstone::Error> {
        let transaction = db.begin(Isolation::ReadCommitted)?;
        for _ in 0..self.rows() {
            match self {
                Self::Updates => client.random.fill_text(&mut client.value),
                Self::Narrow => client.random.fill_text(&mut client.value[8..]),
                Self::Inserts => client.random.fill_text(&mut client.value[..8]),
                Self::Wide => client.random.fill(&mut client.value),
            }
            match self {
                Self::Updates | Self::Narrow => {
                    let key = client.random.below(rows).to_be_bytes();
                    transaction.update(table, &key, &client.value)?;
                }
                Self::Inserts | Self::Wide => {
                    client.last += 1;
                    let key = client.last.to_be_bytes();
                    transaction.insert(table, &key, &client.value)?;
                }
            }
        }
        transaction.commit_with(Durability::Lazy)?;
        Ok(self.rows())
    }
}
