//! A job queue in a database: workers that share the jobs, retries, dead letters, and a killed
//! process whose job comes back.
//!
//! A worker locks the first job that no other one has locked, and does it in the transaction that
//! takes it off the queue. So the lock is the lease: a worker that dies holds none.
//!
//! `cargo run --release --example queue`

use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, path::Path, process, thread};

use inkstone::typed::{Row, TypedTable};
use inkstone::{Database, Isolation, LockMode, Options, Result, Transaction, Wait};

const JOBS: u64 = 2000;
const ATTEMPTS_MAX: u32 = 3;
/// After so many jobs the first process is killed, in the middle of the next one.
const KILLED_BEHIND: u64 = 500;

#[derive(Row, Clone, Debug, PartialEq)]
struct Job {
    mail_to: String,
    attempts: u32,
}

struct Queue {
    db: Database,
    waiting: TypedTable<u64, Job>,
    /// Jobs that have failed too often, for a person to look at.
    dead: TypedTable<u64, Job>,
    /// What the jobs have done, by job.
    sent: TypedTable<u64, String>,
}

impl Queue {
    fn open(directory: &Path) -> Result<Self> {
        let db = Database::open(directory, Options::default())?;
        let waiting = TypedTable::builder("waiting").open(&db)?;
        let dead = TypedTable::builder("dead").open(&db)?;
        let sent = TypedTable::builder("sent").open(&db)?;
        Ok(Self {
            db,
            waiting,
            dead,
            sent,
        })
    }

    /// Takes a job and does it with `work`; false if there is none that is not locked.
    fn work_one(&self, work: impl Fn(&Transaction, u64, &Job) -> Result<bool>) -> Result<bool> {
        self.db.transact(Isolation::ReadCommitted, |txn| {
            let mut free =
                self.waiting
                    .range_locking(txn, .., LockMode::Exclusive, Wait::SkipLocked)?;
            let Some((id, mut job)) = free.next().transpose()? else {
                return Ok(false);
            };
            txn.savepoint("taken")?;
            if work(txn, id, &job)? {
                self.waiting.delete(txn, &id)?;
                return Ok(true);
            }
            txn.rollback_to_savepoint("taken")?; // what a failed job has done is undone
            job.attempts += 1;
            if job.attempts < ATTEMPTS_MAX {
                self.waiting.update(txn, &id, &job)?;
            } else {
                self.waiting.delete(txn, &id)?;
                self.dead.insert(txn, &id, &job)?;
            }
            Ok(true)
        })
    }

    /// Sends a mail, for the example: every hundredth job fails whenever it is tried.
    fn send(&self, txn: &Transaction, id: u64, job: &Job) -> Result<bool> {
        self.sent.insert(txn, &id, &job.mail_to)?;
        Ok(!id.is_multiple_of(100))
    }
}

/// The first process: fills the queue, works, and is killed with a job half done.
fn be_killed(directory: &Path) -> Result<()> {
    let queue = Queue::open(directory)?;
    queue.db.transact(Isolation::ReadCommitted, |txn| {
        (1..=JOBS).try_for_each(|id| {
            let job = Job {
                mail_to: format!("user{id}@example.org"),
                attempts: 0,
            };
            queue.waiting.insert(txn, &id, &job)
        })
    })?;
    let done = AtomicU64::new(0);
    loop {
        queue.work_one(|txn, id, job| {
            let sent = queue.send(txn, id, job)?;
            if done.fetch_add(1, Ordering::Relaxed) == KILLED_BEHIND {
                process::abort(); // sent, but not committed
            }
            Ok(sent)
        })?;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(directory) = env::args().nth(1) {
        return Ok(be_killed(Path::new(&directory))?);
    }
    let directory = tempfile::tempdir()?;
    let killed = process::Command::new(env::current_exe()?)
        .arg(directory.path())
        .status()?;
    println!("the first process: {killed}");

    let queue = Queue::open(directory.path())?; // recovers
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        let worker = || -> Result<()> {
            while queue.work_one(|txn, id, job| queue.send(txn, id, job))? {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let workers = [(); 4].map(|()| scope.spawn(worker));
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    println!("four workers: {} attempts", done.into_inner());

    let txn = queue.db.begin(Isolation::RepeatableRead)?;
    let (sent, dead) = (
        queue.sent.range(&txn, ..)?.count(),
        queue.dead.range(&txn, ..)?.count(),
    );
    println!("{sent} mails sent, each once; {dead} dead letters; nothing waits");
    assert_eq!((sent as u64, dead as u64), (JOBS - JOBS / 100, JOBS / 100));
    assert_eq!(queue.waiting.range(&txn, ..)?.count(), 0);
    Ok(())
}
