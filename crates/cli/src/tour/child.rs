//! The part of the tour that is killed: a process that runs transactions and says on stdout, one
//! line each, what was acknowledged.
//!
//! | line | meaning |
//! |---|---|
//! | `O` | the database is open |
//! | `C client sequence` | commit has returned |
//! | `R client sequence` | rollback has returned (also after a deadlock) |
//! | `S name=value ..` | status counters |
//! | `E text` | an error, the process ends |

use super::plan::{Account, JUNK_PART, JUNK_ROW, Plan, QUEUE_LEN, balance_key, queue_key};
use crate::counts::Counts;
use crate::database::{EngineArguments, open_existing};
use crate::failure::{Failure, Result};
use crate::random::Random;
use crate::wide;
use clap::Args;
use inkstone::{Database, Error, Isolation, LockMode, Table, Transaction, Wait};
use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of the hidden `tour-child`.
#[derive(Args, Clone, Debug)]
pub struct Child {
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[arg(long)]
    pub clients: u32,
    #[arg(long)]
    pub accounts: u32,
    #[arg(long)]
    pub rows: u64,
    #[arg(long)]
    pub seed: u64,
    #[command(flatten)]
    pub engine: EngineArguments,
}

/// An orphan ends by itself.
const LIFETIME: Duration = Duration::from_secs(300);

/// Writes a line in one call. If it is not read any more the parent has died: then this process
/// ends too.
fn say(line: &str) {
    let line = format!("{line}\n");
    let mut out = std::io::stdout().lock();
    if out
        .write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(3);
    }
}

/// `inkstone tour-child`.
pub fn run(arguments: &Child) -> Result<()> {
    let result = work(arguments);
    if let Err(failure) = &result {
        say(&format!("E {}", failure.message()));
    }
    result
}

fn work(arguments: &Child) -> Result<()> {
    let db = open_existing(&arguments.directory, arguments.engine.for_existing()?)?;
    let work = Work {
        accounts: db.table("accounts")?,
        journal: db.table("journal")?,
        queue: db.table("queue")?,
        wide: db.table("t1")?,
        db: &db,
        arguments,
    };
    say("O");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let mut threads: Vec<_> = (0..arguments.clients)
            .map(|client| {
                let work = &work;
                scope.spawn(move || work.client(client))
            })
            .collect();
        threads.push(scope.spawn(|| work.straggler()));
        while begin.elapsed() < LIFETIME && threads.iter().all(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(100));
            say(&format!("S {}", Counts::of(&db).to_line()));
        }
        for thread in threads.into_iter().filter(|t| t.is_finished()) {
            if let Ok(Err(failure)) = thread.join() {
                say(&format!("E {}", failure.message()));
            }
        }
        // The other threads would never end.
        std::process::exit(3);
    })
}

struct Work<'d> {
    db: &'d Database,
    arguments: &'d Child,
    accounts: Table,
    journal: Table,
    queue: Table,
    wide: Table,
}

impl Work<'_> {
    /// Runs one client's transactions one after the other, until the process is killed.
    fn client(&self, client: u32) -> Result<()> {
        let mut queued = VecDeque::new();
        for sequence in 0.. {
            let plan = Plan::of(
                self.arguments.seed,
                client,
                sequence,
                self.arguments.accounts,
            );
            let oldest = (queued.len() >= QUEUE_LEN).then(|| queued[0]);
            let transaction = self.db.begin(Isolation::ReadCommitted)?;
            let done = self.transact(&transaction, &plan, oldest);
            let committed = match done {
                Ok(()) if plan.abort => transaction.rollback().map(|()| false),
                Ok(()) => match transaction.commit() {
                    Err(Error::Deadlock) => Ok(false),
                    other => other.map(|()| true),
                },
                Err(Error::Deadlock | Error::LockTimeout { .. } | Error::WriteConflict) => {
                    drop(transaction);
                    Ok(false)
                }
                Err(error) => Err(error),
            };
            if committed? {
                say(&format!("C {client} {sequence}"));
                if oldest.is_some() {
                    queued.pop_front();
                }
                queued.push_back(sequence);
            } else {
                say(&format!("R {client} {sequence}"));
            }
        }
        Ok(())
    }

    fn transact(
        &self,
        transaction: &Transaction,
        plan: &Plan,
        oldest: Option<u64>,
    ) -> Result<(), Error> {
        self.add(transaction, plan, plan.from, -i64::from(plan.amount))?;
        if plan.savepoint {
            self.change_of_mind(transaction, plan)?;
        }
        self.add(transaction, plan, plan.to, i64::from(plan.amount))?;
        let rows = (0..plan.parts).map(|part| (plan.journal_key(part), plan.journal_value(part)));
        if plan.bulk {
            transaction.insert_many(&self.journal, rows)?;
        } else {
            for (key, value) in rows {
                transaction.insert(&self.journal, &key, &value)?;
            }
        }
        transaction.insert(&self.queue, &plan.queue_key(), b"")?;
        if let Some(oldest) = oldest {
            let there = transaction.delete(&self.queue, &queue_key(plan.client, oldest))?;
            if !there {
                return Err(Error::NotFound(format!(
                    "queue entry {oldest} of client {}",
                    plan.client
                )));
            }
        }
        Ok(())
    }

    /// Changes the balance of an account.
    fn add(
        &self,
        transaction: &Transaction,
        plan: &Plan,
        account: u32,
        amount: i64,
    ) -> Result<(), Error> {
        let key = account.to_be_bytes();
        let row =
            transaction.get_locking(&self.accounts, &key, LockMode::Exclusive, Wait::Timeout)?;
        let row = row.as_deref().and_then(Account::decode);
        let old = row.ok_or_else(|| Error::NotFound(format!("account {account}")))?;
        let new = Account {
            balance: old.balance + amount,
            writer: Some((plan.client, plan.sequence)),
        };
        transaction.update(&self.accounts, &key, &new.encode())?;
        let by_balance = self.accounts.tree("by_balance")?;
        transaction.delete(by_balance, &balance_key(old.balance, account))?;
        transaction.insert(by_balance, &balance_key(new.balance, account), b"")
    }

    /// Writes what a rollback to a savepoint undoes at once.
    fn change_of_mind(&self, transaction: &Transaction, plan: &Plan) -> Result<(), Error> {
        transaction.savepoint("before")?;
        for part in JUNK_PART..JUNK_PART + 3 {
            transaction.insert(&self.journal, &plan.journal_key(part), b"never to be seen")?;
        }
        self.add(transaction, plan, plan.from, 1_000_000)?;
        transaction.insert(&self.queue, &plan.queue_key(), b"never to be seen")?;
        transaction.rollback_to_savepoint("before")
    }

    /// Changes the wide table in long transactions that never commit.
    fn straggler(&self) -> Result<()> {
        let mut random = Random::new(self.arguments.seed);
        loop {
            let transaction = self.db.begin(Isolation::ReadCommitted)?;
            for n in 0..2_000 {
                if n % 2 == 0 {
                    let key = wide::key(JUNK_ROW + random.below(1 << 40));
                    transaction.upsert(&self.wide, &key, &[b'x'; 500])?;
                } else if n % 5 == 0 {
                    let key = wide::key(random.below(self.arguments.rows));
                    transaction.delete(&self.wide, &key)?;
                } else {
                    let key = wide::key(random.below(self.arguments.rows));
                    transaction.upsert(&self.wide, &key, b"never to be seen")?;
                }
                if n % 8 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            transaction.rollback().map_err(Failure::Engine)?;
        }
    }
}
