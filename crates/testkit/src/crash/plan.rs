//! What the transactions do: a function of the run's seed, client and sequence number, so that a
//! later reader of the database knows each byte that a transaction must have written. Only the
//! order in which transactions met at an account is not known beforehand; it is in the rows.
//!
//! # Tables
//!
//! - `accounts`: account (u32) to an [`Account`]. Tree `by_balance`: (balance, account).
//! - `journal`: (client u32, sequence u64, part u16) to the number of parts, in part 0 the
//!   [`Effect`]s on accounts, and a filler. Tree `by_account`: (account, version) to client and
//!   sequence.
//! - `queue`: (client, sequence). Each commit appends its own and, once [`QUEUE_LEN`] are there,
//!   deletes its client's oldest. Transactions that are prepared leave it alone, and `blobs`.
//! - `blobs`: (client u32, slot u8) to the last writer and a value that may be long.
//! - `wide`: rows that a long transaction changes, which never commits.

use crate::Rng;
use inkstone::{Durability, Isolation};

/// Balance of every account in the beginning.
pub const BALANCE: i64 = 1_000;
/// Entries that a client keeps in the queue.
pub const QUEUE_LEN: usize = 40;
/// Parts from here on are written only to be undone by a rollback to a savepoint.
pub const JUNK_PART: u16 = 60_000;
/// Rows of `wide` from here on are written only by a transaction that never commits.
pub const JUNK_ROW: u64 = 1 << 62;
/// Slots of a client in `blobs`.
const BLOB_SLOTS: u64 = 6;

/// Names a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The thread that runs it.
    pub client: u32,
    /// Its number among those of the client.
    pub sequence: u64,
}

impl TxnId {
    /// Key of its row in the queue, and the first part of its keys in the journal.
    pub fn key(self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&self.client.to_be_bytes());
        key[4..].copy_from_slice(&self.sequence.to_be_bytes());
        key
    }

    /// The inverse of [`TxnId::key`].
    pub fn of_key(key: &[u8]) -> Option<Self> {
        let key: &[u8; 12] = key.try_into().ok()?;
        Some(Self {
            client: u32::from_be_bytes(key[..4].try_into().ok()?),
            sequence: u64::from_be_bytes(key[4..].try_into().ok()?),
        })
    }

    /// Its XID, if it is prepared.
    pub fn xid(self) -> Vec<u8> {
        format!("{}:{}", self.client, self.sequence).into_bytes()
    }

    /// The inverse of [`TxnId::xid`].
    pub fn of_xid(xid: &[u8]) -> Option<Self> {
        let (client, sequence) = std::str::from_utf8(xid).ok()?.split_once(':')?;
        Some(Self {
            client: client.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It commits.
    Commit,
    /// It rolls back.
    Rollback,
    /// It is prepared, and then decided.
    Prepare(Decision),
}

/// What its client does with a prepared transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Commits it.
    Commit,
    /// Rolls it back.
    Rollback,
    /// Leaves it to the checker.
    Leave,
}

/// What a run's transactions have in common. Features are switched off at random, so that what
/// needs their absence is seen too.
#[derive(Clone, Debug)]
pub struct Load {
    /// Seed of the run.
    pub seed: u64,
    /// Accounts.
    pub accounts: u32,
    /// Rows of `wide`.
    pub wide_rows: u64,
    /// Whether a long transaction works on `wide`.
    pub straggler: bool,
    /// Whether tables are created and dropped.
    pub ddl: bool,
    /// Whether snapshots are read while others write.
    pub audit: bool,
    /// Whether checkpoints, purges and log flushes are asked for.
    pub upkeep: bool,
    parts_max: u64,
    filler_max: u64,
    blob_percent: u64,
    blob_max: u64,
    prepare_percent: u64,
    isolation: Option<Isolation>,
    own_durability_percent: u64,
}

impl Load {
    /// The load of a run.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x10ad);
        let levels = [
            Some(Isolation::ReadCommitted),
            Some(Isolation::ReadCommitted),
            Some(Isolation::RepeatableRead),
            None,
        ];
        Self {
            seed,
            accounts: rng.pick(&[30, 300, 3000]),
            wide_rows: rng.pick(&[500, 3000]),
            straggler: rng.chance(60),
            ddl: rng.chance(60),
            audit: rng.chance(50),
            upkeep: rng.chance(70),
            parts_max: rng.pick(&[2, 8, 40]),
            filler_max: rng.pick(&[50, 300, 3000]),
            blob_percent: rng.pick(&[0, 10, 40]),
            blob_max: rng.pick(&[2_000, 40_000, 400_000]),
            prepare_percent: rng.pick(&[0, 5, 20]),
            isolation: rng.pick(&levels),
            own_durability_percent: rng.pick(&[0, 30]),
        }
    }

    /// The transaction of a number.
    pub fn plan(&self, id: TxnId) -> Plan {
        let mut rng = Rng::new(self.seed ^ (u64::from(id.client) + 1) << 48 ^ id.sequence);
        rng.next();
        let ending = match rng.below(100) {
            n if n < 6 => Ending::Rollback,
            n if n < 6 + self.prepare_percent => Ending::Prepare(match rng.below(20) {
                0 => Decision::Leave,
                n if n < 6 => Decision::Rollback,
                _ => Decision::Commit,
            }),
            _ => Ending::Commit,
        };
        let levels = [
            Isolation::ReadCommitted,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ];
        let durabilities = [Durability::Sync, Durability::Write, Durability::Lazy];
        let blob = ending == Ending::Commit && rng.chance(self.blob_percent);
        Plan {
            id,
            ending,
            touches: self.touches(&mut rng),
            parts: rng.from_to(1, self.parts_max) as u16,
            bulk: rng.chance(50),
            savepoint: rng.chance(10),
            isolation: self.isolation.unwrap_or(rng.pick(&levels)),
            durability: rng
                .chance(self.own_durability_percent)
                .then(|| rng.pick(&durabilities)),
            blob: blob.then(|| (rng.below(BLOB_SLOTS) as u8, rng.skewed(self.blob_max))),
            commit_if_left: rng.chance(50),
            filler_max: self.filler_max,
            filler_seed: rng.next(),
        }
    }

    /// Different accounts, and amounts that add up to nothing.
    fn touches(&self, rng: &mut Rng) -> Vec<(u32, i64)> {
        let first = rng.below(u64::from(self.accounts));
        let count = rng.from_to(1, 4);
        let step = 1 + rng.below(u64::from(self.accounts) / 4 - 1);
        let mut touches = Vec::new();
        let mut sum = 0;
        for n in 0..count {
            let account = (first + n * step) % u64::from(self.accounts);
            let amount = if n + 1 == count {
                -sum
            } else {
                rng.below(200) as i64 - 100
            };
            sum += amount;
            touches.push((account as u32, amount));
        }
        touches
    }

    /// A row of `wide` as it must always be.
    pub fn wide_row(&self, row: u64) -> Vec<u8> {
        filler(self.seed ^ row << 20, 60 + row % 200)
    }
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name.
    pub id: TxnId,
    /// How it ends.
    pub ending: Ending,
    /// Accounts, and what is added to each.
    pub touches: Vec<(u32, i64)>,
    /// Journal rows to write.
    pub parts: u16,
    /// Inserts its journal rows in one call.
    pub bulk: bool,
    /// Writes rows and undoes them by a rollback to a savepoint.
    pub savepoint: bool,
    /// Isolation level.
    pub isolation: Isolation,
    /// Durability, if not the database's.
    pub durability: Option<Durability>,
    /// Slot and length of a long value to write.
    pub blob: Option<(u8, u64)>,
    /// What a checker decides that finds it prepared.
    pub commit_if_left: bool,
    filler_max: u64,
    filler_seed: u64,
}

impl Plan {
    /// Key of a journal row.
    pub fn journal_key(&self, part: u16) -> [u8; 14] {
        let mut key = [0; 14];
        key[..12].copy_from_slice(&self.id.key());
        key[12..].copy_from_slice(&part.to_be_bytes());
        key
    }

    /// Value of a journal row, given what happened to the accounts.
    pub fn journal_value(&self, part: u16, effects: &[Effect]) -> Vec<u8> {
        let mut value = self.parts.to_be_bytes().to_vec();
        if part == 0 {
            value.push(effects.len() as u8);
            for effect in effects {
                value.extend_from_slice(&effect.encode());
            }
        }
        let mut rng = Rng::new(self.filler_seed ^ u64::from(part) << 40);
        value.extend(filler(rng.next(), rng.skewed(self.filler_max)));
        value
    }

    /// Key of the row in `blobs`, for its slot.
    pub fn blob_key(&self, slot: u8) -> [u8; 5] {
        let mut key = [slot; 5];
        key[..4].copy_from_slice(&self.id.client.to_be_bytes());
        key
    }

    /// Value of the row in `blobs`, for its length.
    pub fn blob_value(&self, length: u64) -> Vec<u8> {
        let mut value = self.id.key().to_vec();
        value.extend(filler(self.filler_seed ^ 0xb10b, length));
        value
    }
}

/// Bytes from a seed: some that repeat, some that do not.
pub fn filler(seed: u64, length: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = vec![rng.next() as u8; length as usize];
    for chunk in bytes.chunks_mut(8).step_by(3) {
        let random = rng.next().to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
    bytes
}

/// What a transaction did to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The account.
    pub account: u32,
    /// The account's version that it made; the first is 1.
    pub version: u64,
    /// The balance that it left.
    pub balance: i64,
}

impl Effect {
    /// Bytes of an effect.
    const BYTES: usize = 20;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.account.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.version.to_be_bytes());
        bytes[12..].copy_from_slice(&self.balance.to_be_bytes());
        bytes
    }

    /// The effects in the value of a part 0.
    pub fn all_of(value: &[u8]) -> Option<Vec<Self>> {
        let count = usize::from(*value.get(2)?);
        let bytes = value.get(3..3 + count * Self::BYTES)?;
        let one = |bytes: &[u8]| {
            Some(Self {
                account: u32::from_be_bytes(bytes[..4].try_into().ok()?),
                version: u64::from_be_bytes(bytes[4..12].try_into().ok()?),
                balance: i64::from_be_bytes(bytes[12..].try_into().ok()?),
            })
        };
        bytes.chunks(Self::BYTES).map(one).collect()
    }

    /// Key in the tree `by_account`.
    pub fn by_account_key(&self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&self.account.to_be_bytes());
        key[4..].copy_from_slice(&self.version.to_be_bytes());
        key
    }
}

/// An account's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its balance.
    pub balance: i64,
    /// How often it was changed.
    pub version: u64,
    /// The transaction that changed it last.
    pub writer: Option<TxnId>,
}

impl Account {
    /// As it is in the beginning.
    pub const NEW: Self = Self {
        balance: BALANCE,
        version: 0,
        writer: None,
    };

    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = self.balance.to_be_bytes().to_vec();
        value.extend_from_slice(&self.version.to_be_bytes());
        value.extend(self.writer.iter().flat_map(|writer| writer.key()));
        value
    }

    /// The inverse of [`Account::encode`].
    pub fn decode(value: &[u8]) -> Option<Self> {
        let writer = value.get(16..)?;
        Some(Self {
            balance: i64::from_be_bytes(value[..8].try_into().ok()?),
            version: u64::from_be_bytes(value[8..16].try_into().ok()?),
            writer: if writer.is_empty() {
                None
            } else {
                Some(TxnId::of_key(writer)?)
            },
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
