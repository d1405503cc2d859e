//! What the tour's transactions do: a function of seed, client and sequence number, so that a later
//! reader of the database knows each byte that a transaction must have written.
//!
//! # Tables
//!
//! - `accounts`: account (u32) to balance (i64), last writer (client u32, sequence u64). Its
//!   secondary tree `by_balance` has a key (balance, account) for each account.
//! - `journal`: (client u32, sequence u64, part u16) to the transfer, the number of parts, and a
//!   filler. A transaction writes its parts 0, 1, .., so that one that is half there shows.
//! - `queue`: (client u32, sequence u64); each transaction appends its own and, once
//!   [`QUEUE_LEN`] are there, deletes its client's oldest.
//! - `t1`: the wide table that the tour loads.

use crate::random::Random;

/// Balance of every account in the beginning.
pub const BALANCE: i64 = 1_000;
/// Entries that a client keeps in the queue.
pub const QUEUE_LEN: usize = 50;
/// Parts from here on are written only to be undone by a rollback to a savepoint.
pub const JUNK_PART: u16 = 60_000;
/// Rows of `t1` from here on are written only by a transaction that never commits.
pub const JUNK_ROW: u64 = 1 << 62;

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub client: u32,
    pub sequence: u64,
    /// Account that the amount is taken from.
    pub from: u32,
    /// Account that it goes to.
    pub to: u32,
    pub amount: u32,
    /// Journal rows to write.
    pub parts: u16,
    /// Writes rows and undoes them by a rollback to a savepoint.
    pub savepoint: bool,
    /// Inserts its journal rows in one call.
    pub bulk: bool,
    /// Rolls back at the end.
    pub abort: bool,
    filler_seed: u64,
}

impl Plan {
    /// The transaction of a client's sequence number.
    pub fn of(seed: u64, client: u32, sequence: u64, accounts: u32) -> Self {
        let mut random = Random::new(seed ^ u64::from(client) << 48 ^ sequence);
        let from = random.below(u64::from(accounts)) as u32;
        let other = random.below(u64::from(accounts) - 1) as u32;
        Self {
            client,
            sequence,
            from,
            to: if other >= from { other + 1 } else { other },
            amount: random.below(100) as u32 + 1,
            parts: random.below(8) as u16 + 1,
            savepoint: random.below(8) == 0,
            bulk: random.below(2) == 0,
            abort: random.below(16) == 0,
            filler_seed: random.number(),
        }
    }

    /// Key of a journal row.
    pub fn journal_key(&self, part: u16) -> [u8; 14] {
        let mut key = [0; 14];
        key[..12].copy_from_slice(&self.queue_key());
        key[12..].copy_from_slice(&part.to_be_bytes());
        key
    }

    /// Value of a journal row.
    pub fn journal_value(&self, part: u16) -> Vec<u8> {
        let mut random = Random::new(self.filler_seed ^ u64::from(part) << 40);
        let mut filler = vec![0; random.below(200) as usize];
        random.fill_text(&mut filler);
        let mut value = Vec::with_capacity(14 + filler.len());
        value.extend_from_slice(&self.parts.to_be_bytes());
        value.extend_from_slice(&self.from.to_be_bytes());
        value.extend_from_slice(&self.to.to_be_bytes());
        value.extend_from_slice(&self.amount.to_be_bytes());
        value.extend_from_slice(&filler);
        value
    }

    /// Key of the queue's row.
    pub fn queue_key(&self) -> [u8; 12] {
        queue_key(self.client, self.sequence)
    }
}

/// Key of a row of the queue.
pub fn queue_key(client: u32, sequence: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&client.to_be_bytes());
    key[4..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// Client, sequence and part of a journal row's key.
pub fn parse_journal_key(key: &[u8]) -> Option<(u32, u64, u16)> {
    if key.len() != 14 {
        return None;
    }
    Some((
        u32::from_be_bytes(key[..4].try_into().ok()?),
        u64::from_be_bytes(key[4..12].try_into().ok()?),
        u16::from_be_bytes(key[12..].try_into().ok()?),
    ))
}

/// An account's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    pub balance: i64,
    /// Client and sequence of the transaction that wrote it last.
    pub writer: Option<(u32, u64)>,
}

impl Account {
    pub fn encode(&self) -> [u8; 20] {
        let (client, sequence) = self.writer.unwrap_or((u32::MAX, u64::MAX));
        let mut value = [0; 20];
        value[..8].copy_from_slice(&self.balance.to_be_bytes());
        value[8..].copy_from_slice(&queue_key(client, sequence));
        value
    }

    pub fn decode(value: &[u8]) -> Option<Self> {
        let value: &[u8; 20] = value.try_into().ok()?;
        let client = u32::from_be_bytes(value[8..12].try_into().ok()?);
        let sequence = u64::from_be_bytes(value[12..].try_into().ok()?);
        Some(Self {
            balance: i64::from_be_bytes(value[..8].try_into().ok()?),
            writer: (client != u32::MAX).then_some((client, sequence)),
        })
    }
}

/// Key in the tree `by_balance`: balances in order, negative ones first.
pub fn balance_key(balance: i64, account: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&(balance as u64 ^ 1 << 63).to_be_bytes());
    key[8..].copy_from_slice(&account.to_be_bytes());
    key
}
