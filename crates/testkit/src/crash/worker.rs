//! The process that runs transactions until it is killed.

use super::child::{ChildArguments, ERROR_EXIT, LIFETIME};
use super::plan::{
    Account, Decision, Effect, Ending, JUNK_PART, JUNK_ROW, Load, Plan, QUEUE_LEN, TxnId,
    balance_key,
};
use super::protocol::{Ack, Line};
use super::schema::Schema;
use crate::Rng;
use inkstone::{
    Database, Durability, Error, Isolation, LockMode, Result, Table, Transaction, Wait,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Names of the tables that are always there, with their secondary trees.
pub const TABLES: [(&str, &[&str]); 5] = [
    ("accounts", &["by_balance"]),
    ("journal", &["by_account"]),
    ("queue", &[]),
    ("blobs", &[]),
    ("wide", &[]),
];

/// Runs transactions on an open database until the process is killed, or something fails.
pub fn work(db: &Database, arguments: &ChildArguments) -> Result<()> {
    let load = Load::of_seed(arguments.seed);
    for (name, trees) in TABLES {
        match db.table(name) {
            Err(Error::NotFound(_)) => db.create_table(name, trees).map(drop)?,
            found => found.map(drop)?,
        }
    }
    let worker = Worker {
        accounts: db.table("accounts")?,
        journal: db.table("journal")?,
        queue: db.table("queue")?,
        blobs: db.table("blobs")?,
        wide: db.table("wide")?,
        db,
        load: &load,
        arguments,
    };
    worker.fill()?;
    Line::Loaded.say();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let worker = &worker;
        let clients = arguments.first.iter().enumerate();
        let mut threads: Vec<_> = clients
            .map(|(client, &first)| scope.spawn(move || worker.client(client as u32, first)))
            .collect();
        if load.straggler {
            threads.push(scope.spawn(|| worker.straggle()));
        }
        if load.ddl {
            threads.push(scope.spawn(|| worker.change_schema()));
        }
        if load.audit {
            threads.push(scope.spawn(|| worker.audit()));
        }
        if load.upkeep {
            threads.push(scope.spawn(|| worker.keep_up()));
        }
        while begin.elapsed() < LIFETIME && threads.iter().all(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for thread in threads.into_iter().filter(|thread| thread.is_finished()) {
            if let Ok(Err(error)) = thread.join() {
                Line::Error(error.to_string()).say();
            }
        }
        // The other threads would never end.
        std::process::exit(i32::from(ERROR_EXIT))
    })
}

/// What became of a transaction.
enum Outcome {
    Committed,
    RolledBack,
    Prepared(Decision),
}

/// Conflicts are expected and roll back; everything else is an error.
fn rolled_back_by(error: Error) -> Result<Outcome> {
    match error {
        Error::Deadlock | Error::LockTimeout { .. } | Error::WriteConflict => {
            Ok(Outcome::RolledBack)
        }
        error => Err(error),
    }
}

struct Worker<'d> {
    db: &'d Database,
    load: &'d Load,
    arguments: &'d ChildArguments,
    accounts: Table,
    journal: Table,
    queue: Table,
    blobs: Table,
    wide: Table,
}

impl Worker<'_> {
    /// Writes the first rows, if they are not there, in one transaction.
    fn fill(&self) -> Result<()> {
        let transaction = self.db.begin(Isolation::RepeatableRead)?;
        if transaction
            .get(&self.accounts, &0u32.to_be_bytes())?
            .is_some()
        {
            return transaction.rollback();
        }
        let accounts = 0..self.load.accounts;
        let new = Account::NEW.encode();
        let rows = accounts.clone().map(|n| (n.to_be_bytes(), new.clone()));
        transaction.insert_many(&self.accounts, rows)?;
        let keys = accounts.map(|n| (balance_key(Account::NEW.balance, n), Vec::new()));
        transaction.insert_many(self.accounts.tree("by_balance")?, keys)?;
        let rows = (0..self.load.wide_rows).map(|n| (n.to_be_bytes(), self.load.wide_row(n)));
        transaction.insert_many(&self.wide, rows)?;
        transaction.commit_with(Durability::Sync)
    }

    fn rng(&self, thread: u64) -> Rng {
        Rng::new(self.arguments.seed ^ self.arguments.life << 32 ^ thread << 56)
    }

    /// Runs one client's transactions one after the other, until the process is killed.
    fn client(&self, client: u32, first: u64) -> Result<()> {
        let mut queued = self.queued(client)?;
        for sequence in first.. {
            let id = TxnId { client, sequence };
            let plan = self.load.plan(id);
            let oldest = (queued.len() >= QUEUE_LEN).then(|| queued[0]);
            match self.transact(&plan, oldest)? {
                Outcome::Committed => {
                    Line::Acknowledged(Ack::Committed(id)).say();
                    if oldest.is_some() {
                        queued.pop_front();
                    }
                    queued.push_back(id);
                }
                Outcome::RolledBack => Line::Acknowledged(Ack::RolledBack(id)).say(),
                Outcome::Prepared(decision) => {
                    Line::Acknowledged(Ack::Prepared(id)).say();
                    self.decide(id, decision)?;
                }
            }
        }
        Ok(())
    }

    /// The client's entries in the queue, oldest first.
    fn queued(&self, client: u32) -> Result<VecDeque<TxnId>> {
        let (from, to) = (client.to_be_bytes(), (client + 1).to_be_bytes());
        let transaction = self.db.begin(Isolation::ReadCommitted)?;
        let rows = transaction.range(&self.queue, &from[..]..&to[..])?;
        let keys: Result<Vec<_>> = rows.map(|row| row.map(|(key, _)| key)).collect();
        Ok(keys?.iter().filter_map(|key| TxnId::of_key(key)).collect())
    }

    fn transact(&self, plan: &Plan, oldest: Option<TxnId>) -> Result<Outcome> {
        let transaction = self.db.begin(plan.isolation)?;
        if let Err(error) = self.write(&transaction, plan, oldest) {
            drop(transaction);
            return rolled_back_by(error);
        }
        let (done, outcome) = match (plan.ending, plan.durability) {
            (Ending::Commit, None) => (transaction.commit(), Outcome::Committed),
            (Ending::Commit, Some(own)) => (transaction.commit_with(own), Outcome::Committed),
            (Ending::Rollback, _) => (transaction.rollback(), Outcome::RolledBack),
            (Ending::Prepare(decision), _) => (
                transaction.prepare(&plan.id.xid()),
                Outcome::Prepared(decision),
            ),
        };
        match done {
            Ok(()) => Ok(outcome),
            Err(error) => rolled_back_by(error),
        }
    }

    fn decide(&self, id: TxnId, decision: Decision) -> Result<()> {
        match decision {
            Decision::Commit => {
                self.db.commit_prepared(&id.xid())?;
                Line::Acknowledged(Ack::DecidedCommit(id)).say();
            }
            Decision::Rollback => {
                self.db.rollback_prepared(&id.xid())?;
                Line::Acknowledged(Ack::DecidedRollback(id)).say();
            }
            Decision::Leave => {}
        }
        Ok(())
    }

    fn write(&self, transaction: &Transaction, plan: &Plan, oldest: Option<TxnId>) -> Result<()> {
        let mut effects = Vec::new();
        for (at, &(account, amount)) in plan.touches.iter().enumerate() {
            if plan.savepoint && at == 1 {
                self.change_of_mind(transaction, plan)?;
            }
            effects.push(self.add(transaction, plan.id, account, amount)?);
        }
        let row = |part| (plan.journal_key(part), plan.journal_value(part, &effects));
        let rows = (0..plan.parts).map(row);
        if plan.bulk {
            transaction.insert_many(&self.journal, rows)?;
        } else {
            for (key, value) in rows {
                transaction.insert(&self.journal, &key, &value)?;
            }
        }
        let by_account = self.journal.tree("by_account")?;
        for effect in &effects {
            transaction.insert(by_account, &effect.by_account_key(), &plan.id.key())?;
        }
        if let Some((slot, length)) = plan.blob {
            let value = plan.blob_value(length);
            transaction.upsert(&self.blobs, &plan.blob_key(slot), &value)?;
        }
        if plan.ending == Ending::Commit {
            transaction.insert(&self.queue, &plan.id.key(), b"")?;
            if let Some(oldest) = oldest
                && !transaction.delete(&self.queue, &oldest.key())?
            {
                return Err(Error::NotFound(format!("queue entry {oldest:?}")));
            }
        }
        Ok(())
    }

    /// Changes an account.
    fn add(
        &self,
        transaction: &Transaction,
        writer: TxnId,
        account: u32,
        amount: i64,
    ) -> Result<Effect> {
        let key = account.to_be_bytes();
        let (mode, wait) = (LockMode::Exclusive, Wait::Timeout);
        let row = transaction.get_locking(&self.accounts, &key, mode, wait)?;
        let old = row.as_deref().and_then(Account::decode);
        let old = old.ok_or_else(|| Error::NotFound(format!("account {account}")))?;
        let new = Account {
            balance: old.balance + amount,
            version: old.version + 1,
            writer: Some(writer),
        };
        transaction.update(&self.accounts, &key, &new.encode())?;
        let by_balance = self.accounts.tree("by_balance")?;
        if !transaction.delete(by_balance, &balance_key(old.balance, account))? {
            return Err(Error::NotFound(format!("balance of account {account}")));
        }
        transaction.insert(by_balance, &balance_key(new.balance, account), b"")?;
        Ok(Effect {
            account,
            version: new.version,
            balance: new.balance,
        })
    }

    /// Writes what a rollback to a savepoint undoes at once.
    fn change_of_mind(&self, transaction: &Transaction, plan: &Plan) -> Result<()> {
        transaction.savepoint("before")?;
        for part in JUNK_PART..JUNK_PART + 3 {
            transaction.insert(&self.journal, &plan.journal_key(part), b"never to be seen")?;
        }
        self.add(transaction, plan.id, plan.touches[0].0, 1_000_000)?;
        if plan.ending == Ending::Commit {
            transaction.insert(&self.queue, &plan.id.key(), b"never to be seen")?;
        }
        transaction.rollback_to_savepoint("before")
    }

    /// Changes the wide table in long transactions that never commit.
    fn straggle(&self) -> Result<()> {
        let mut rng = self.rng(1);
        loop {
            let transaction = self.db.begin(Isolation::ReadCommitted)?;
            let undone_after = rng.from_to(2, 200);
            for n in 0..rng.from_to(1, 3_000) {
                if n % undone_after == 0 {
                    if n / undone_after % 2 == 1 {
                        transaction.rollback_to_savepoint("half")?;
                    }
                    transaction.savepoint("half")?;
                }
                let key = rng.below(self.load.wide_rows).to_be_bytes();
                match n % 5 {
                    0 | 1 => {
                        let junk = (JUNK_ROW + rng.below(1 << 40)).to_be_bytes();
                        transaction.upsert(&self.wide, &junk, &[b'x'; 500])?;
                    }
                    2 => transaction.delete(&self.wide, &key).map(drop)?,
                    3 => {
                        let long = vec![b'y'; rng.skewed(60_000) as usize];
                        transaction.upsert(&self.wide, &key, &long)?;
                    }
                    _ => {
                        transaction.upsert(&self.wide, &key, b"never to be seen")?;
                        std::thread::sleep(Duration::from_millis(rng.below(3)));
                    }
                }
            }
            transaction.rollback()?;
        }
    }

    /// Creates, fills, renames and drops tables.
    fn change_schema(&self) -> Result<()> {
        let mut rng = self.rng(2);
        let mut schema = Schema::after(self.arguments.seed, self.arguments.steps);
        loop {
            let step = schema.next_step();
            step.run(self.db)?;
            schema.apply(&step);
            Line::Acknowledged(Ack::Steps(schema.steps)).say();
            std::thread::sleep(Duration::from_millis(rng.skewed(60)));
        }
    }

    /// Reads all accounts twice in one snapshot, with time in between: the balances add up, and
    /// nothing changes.
    fn audit(&self) -> Result<()> {
        let mut rng = self.rng(4);
        loop {
            let snapshot = self.db.begin_with_snapshot()?;
            let accounts = || -> Result<Vec<_>> { snapshot.range(&self.accounts, ..)?.collect() };
            let before = accounts()?;
            std::thread::sleep(Duration::from_millis(rng.skewed(120)));
            let balances = before.iter().filter_map(|(_, row)| Account::decode(row));
            let sum: i64 = balances.map(|account| account.balance).sum();
            let wanted = Account::NEW.balance * i64::from(self.load.accounts);
            if sum != wanted {
                let text = format!("in a snapshot the balances add up to {sum}, not {wanted}");
                Line::Violation(text).say();
            }
            if accounts()? != before {
                Line::Violation("a snapshot has changed".to_owned()).say();
            }
        }
    }

    /// Asks for what the engine else does when it sees fit.
    fn keep_up(&self) -> Result<()> {
        let mut rng = self.rng(3);
        loop {
            std::thread::sleep(Duration::from_millis(rng.skewed(80)));
            match rng.below(5) {
                0 => self.db.checkpoint()?,
                1 => self.db.purge()?,
                2 => self.db.flush_log()?,
                3 => self.db.flush_table(&self.journal)?,
                _ => self.db.maintain(rng.pick(&[4 << 10, 1 << 20]))?,
            }
        }
    }
}
