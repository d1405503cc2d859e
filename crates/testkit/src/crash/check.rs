//! The checker: reads everything, says what is there, and reports every contradiction. What should
//! be there of the commits it does not know; the parent does.

use super::plan::{Account, BALANCE, Effect, Ending, Load, Plan, QUEUE_LEN, TxnId, balance_key};
use super::protocol::Line;
use super::schema;
use super::worker::TABLES;
use inkstone::{Database, Error, Isolation, LockMode, Result, Table, Transaction, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Violations that are said of many.
const SAID_MAX: usize = 12;
/// How long purge is waited for that had a page in hand while a table was verified.
const VERIFY_WAIT: Duration = Duration::from_secs(3);

/// Reads an open database that has no clients, and decides what is prepared.
pub fn check(db: &Database, load: &Load) -> Result<()> {
    say_what_recovery_did(db);
    verify(db)?;
    let mut checker = Checker {
        transaction: db.begin_with_snapshot()?,
        db,
        load,
        said: 0,
    };
    let present = checker.journal()?;
    checker.accounts(&present)?;
    checker.queue(&present)?;
    checker.blobs(&present)?;
    checker.wide()?;
    checker.schema()?;
    let prepared = checker.prepared(&present)?;
    drop(checker);
    for id in prepared {
        if load.plan(id).commit_if_left {
            db.commit_prepared(&id.xid())?;
        } else {
            db.rollback_prepared(&id.xid())?;
        }
    }
    Line::Complete.say();
    Ok(())
}

fn say_what_recovery_did(db: &Database) {
    let report = db.open_report();
    let Some(recovered) = &report.recovered else {
        return;
    };
    let marks = [
        ("recoveries completed", 1),
        ("torn pages repaired", recovered.torn_pages_repaired),
        ("losers rolled back", recovered.losers),
        (
            "losers of thousands of rows",
            u64::from(recovered.rows_undone + recovered.rows_to_undo > 2_000),
        ),
        ("prepared transactions found", recovered.prepared),
        ("orphaned files removed", report.removed.len() as u64),
        ("log records replayed", recovered.redo.records),
    ];
    for (name, count) in marks {
        Line::Mark(name.to_owned(), count).say();
    }
}

/// Verifies all trees. Purge runs in the background: what it had in hand is no error, if it is well
/// a moment later.
fn verify(db: &Database) -> Result<()> {
    let begin = Instant::now();
    loop {
        let result = verify_once(db);
        match result {
            Err(Error::Corrupt { .. }) if begin.elapsed() < VERIFY_WAIT => {
                std::thread::sleep(Duration::from_millis(100));
            }
            result => return result,
        }
    }
}

fn verify_once(db: &Database) -> Result<()> {
    db.verify_catalog()?;
    for name in db.tables()? {
        db.verify_table(&db.table(&name)?)?;
    }
    Ok(())
}

/// What the journal says: each transaction, and what it did to accounts.
type Present = BTreeMap<TxnId, Vec<Effect>>;

struct Checker<'d> {
    db: &'d Database,
    load: &'d Load,
    transaction: Transaction,
    said: usize,
}

impl Checker<'_> {
    fn must(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if holds {
            return;
        }
        self.said += 1;
        if self.said <= SAID_MAX {
            Line::Violation(violation()).say();
        }
    }

    /// Two collections that must be the same.
    fn same<T: Ord + Debug>(&mut self, what: &str, found: BTreeSet<T>, wanted: BTreeSet<T>) {
        for it in found.difference(&wanted) {
            self.must(false, || {
                format!("{what}: {it:02x?} is there and must not be")
            });
        }
        for it in wanted.difference(&found) {
            self.must(false, || format!("{what}: {it:02x?} is missing"));
        }
    }

    fn rows(&self, table: &Table, tree: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.transaction.range(&table.trees()[tree], ..)?.collect()
    }

    /// Which transactions are there, each whole, byte by byte.
    fn journal(&mut self) -> Result<Present> {
        let table = self.db.table("journal")?;
        let mut present = Present::new();
        let mut found: BTreeMap<TxnId, BTreeSet<u16>> = BTreeMap::new();
        for row in self.transaction.range(&table, ..)? {
            let (key, value) = row?;
            let Some(id) = key.get(..12).and_then(TxnId::of_key) else {
                Line::Violation(format!("journal: strange key {key:02x?}")).say();
                continue;
            };
            let part = u16::from_be_bytes(key[12..].try_into().unwrap_or_default());
            let plan = self.load.plan(id);
            let effects = match part {
                0 => Effect::all_of(&value).unwrap_or_default(),
                _ => Vec::new(),
            };
            let whole = part < plan.parts && value == plan.journal_value(part, &effects);
            if !whole {
                Line::Violation(format!("journal: part {part} of {id:?} is not as written")).say();
            }
            found.entry(id).or_default().insert(part);
            if part == 0 {
                present.insert(id, effects);
            }
        }
        for (&id, parts) in &found {
            let plan = self.load.plan(id);
            let wanted = usize::from(plan.parts);
            self.must(parts.len() == wanted, || {
                format!(
                    "journal: {id:?} is half there: {} of {wanted} parts",
                    parts.len()
                )
            });
            self.must(plan.ending != Ending::Rollback, || {
                format!("journal: {id:?} is there, which always rolls back")
            });
            Line::Found(id).say();
        }
        let mut histories = BTreeSet::new();
        for (id, effects) in &present {
            let accounts = effects.iter().map(|effect| effect.account);
            let touched = self.load.plan(*id).touches;
            let agree = accounts.eq(touched.iter().map(|touch| touch.0));
            self.must(agree, || {
                format!("journal: {id:?} has changed other accounts")
            });
            let keys = effects.iter().map(Effect::by_account_key);
            histories.extend(keys.map(|key| (key.to_vec(), id.key().to_vec())));
        }
        let tree = self.rows(&table, 1)?.into_iter().collect();
        self.same("tree by_account", tree, histories);
        Ok(present)
    }

    /// Each account's history has no gap and ends with what its row says.
    fn accounts(&mut self, present: &Present) -> Result<()> {
        let mut histories: BTreeMap<u32, BTreeMap<u64, (TxnId, i64, i64)>> = BTreeMap::new();
        for (&id, effects) in present {
            for (effect, (_, amount)) in effects.iter().zip(self.load.plan(id).touches) {
                let history = histories.entry(effect.account).or_default();
                let entry = (id, amount, effect.balance);
                let other = history.insert(effect.version, entry);
                self.must(other.is_none(), || {
                    format!(
                        "account {}: a lost update: {id:?} and {other:?}",
                        effect.account
                    )
                });
            }
        }
        let table = self.db.table("accounts")?;
        let (mut keys, mut sum, mut count) = (BTreeSet::new(), 0, 0);
        for (key, value) in self.rows(&table, 0)? {
            let account = u32::from_be_bytes(key.as_slice().try_into().unwrap_or([0xff; 4]));
            let mut wanted = Account::NEW;
            for (version, (id, amount, balance)) in histories.remove(&account).unwrap_or_default() {
                self.must(version == wanted.version + 1, || {
                    let after = wanted.version;
                    format!("account {account}: version {version} of {id:?} follows {after}: a commit before it is gone")
                });
                wanted = Account {
                    balance: wanted.balance + amount,
                    version,
                    writer: Some(id),
                };
                self.must(balance == wanted.balance, || {
                    format!(
                        "account {account}: {id:?} left {balance}, not {}",
                        wanted.balance
                    )
                });
            }
            let row = Account::decode(&value);
            self.must(row == Some(wanted), || {
                format!("account {account} is {row:?}, its history says {wanted:?}")
            });
            let balance = row.map_or(0, |row| row.balance);
            sum += balance;
            count += 1;
            keys.insert(balance_key(balance, account).to_vec());
        }
        self.must(histories.is_empty(), || {
            format!(
                "accounts that are not there have a history: {:?}",
                histories.keys()
            )
        });
        let accounts = self.load.accounts;
        self.must(count == accounts, || {
            format!("{count} accounts, not {accounts}")
        });
        self.must(sum == BALANCE * i64::from(accounts), || {
            format!("the sum of all balances is {sum}")
        });
        let tree = self.rows(&table, 1)?.into_iter().map(|(key, _)| key);
        self.same("tree by_balance", tree.collect(), keys);
        Ok(())
    }

    /// Each client's last commits, and nothing that was deleted.
    fn queue(&mut self, present: &Present) -> Result<()> {
        let mut by_client: BTreeMap<u32, Vec<TxnId>> = BTreeMap::new();
        for &id in present.keys() {
            if self.load.plan(id).ending == Ending::Commit {
                by_client.entry(id.client).or_default().push(id);
            }
        }
        let last = |ids: &Vec<TxnId>| ids[ids.len().saturating_sub(QUEUE_LEN)..].to_vec();
        let wanted = by_client.values().flat_map(last);
        let wanted = wanted.map(|id| (id.key().to_vec(), Vec::new())).collect();
        let found = self.rows(&self.db.table("queue")?, 0)?;
        self.same("queue", found.into_iter().collect(), wanted);
        Ok(())
    }

    /// The last long value of each slot.
    fn blobs(&mut self, present: &Present) -> Result<()> {
        let mut wanted: BTreeMap<Vec<u8>, (Plan, u64)> = BTreeMap::new();
        for &id in present.keys() {
            let plan = self.load.plan(id);
            if let Some((slot, length)) = plan.blob {
                wanted.insert(plan.blob_key(slot).to_vec(), (plan, length));
            }
        }
        let table = self.db.table("blobs")?;
        for (key, value) in self.rows(&table, 0)? {
            let last = wanted.remove(&key);
            let right = last
                .as_ref()
                .is_some_and(|(plan, length)| value == plan.blob_value(*length));
            self.must(right, || {
                let writer = value.get(..12).and_then(TxnId::of_key);
                let last = last.map(|(plan, length)| (plan.id, length));
                format!(
                    "blob {key:02x?} of {} bytes is by {writer:?}, not {last:?}",
                    value.len()
                )
            });
        }
        self.must(wanted.is_empty(), || {
            format!("{} blobs are missing", wanted.len())
        });
        Ok(())
    }

    /// As it was loaded: what changes it never commits.
    fn wide(&mut self) -> Result<()> {
        let table = self.db.table("wide")?;
        let mut count = 0;
        for (key, value) in self.rows(&table, 0)? {
            let right = key == u64::to_be_bytes(count) && value == self.load.wide_row(count);
            self.must(right, || {
                format!("wide: row {count} is {key:02x?}, changed by no transaction that committed")
            });
            count += 1;
        }
        let rows = self.load.wide_rows;
        self.must(count == rows, || format!("wide: {count} rows, not {rows}"));
        Ok(())
    }

    /// Which other tables are there, and that their rows are right.
    fn schema(&mut self) -> Result<()> {
        for name in self.db.tables()? {
            if TABLES.iter().any(|(fixed, _)| *fixed == name) {
                continue;
            }
            let table = self.db.table(&name)?;
            let mut text = name.clone();
            for (at, tree) in table.trees().iter().enumerate() {
                let rows = self.rows(&table, at)?;
                let right = (0..)
                    .zip(&rows)
                    .all(|(n, found)| *found == schema::row(at, n));
                self.must(right, || {
                    format!("table {name}, tree {}: other rows", tree.name())
                });
                text.push_str(&format!(" {}={}", tree.name(), rows.len()));
            }
            Line::FoundTable(text).say();
        }
        Ok(())
    }

    /// Prepared transactions: not to be seen, and their rows are locked.
    fn prepared(&mut self, present: &Present) -> Result<Vec<TxnId>> {
        let table = self.db.table("accounts")?;
        let mut prepared = Vec::new();
        for xid in self.db.prepared_transactions() {
            let Some(id) = TxnId::of_xid(&xid) else {
                self.must(false, || format!("a strange XID: {xid:02x?}"));
                continue;
            };
            self.must(!present.contains_key(&id), || {
                format!("{id:?} is prepared, and to be seen")
            });
            for (account, _) in self.load.plan(id).touches {
                let other = self.db.begin(Isolation::ReadCommitted)?;
                let key = account.to_be_bytes();
                let locked = other.get_locking(&table, &key, LockMode::Exclusive, Wait::NoWait);
                self.must(matches!(locked, Err(Error::LockNotAvailable)), || {
                    format!("account {account} of prepared {id:?} is not locked: {locked:?}")
                });
            }
            Line::FoundPrepared(id).say();
            prepared.push(id);
        }
        Ok(prepared)
    }
}
