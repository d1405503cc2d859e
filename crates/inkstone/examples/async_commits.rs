//! Commits that are awaited: a small executor, `spawn_blocking` for statements, and a thousand
//! tasks whose commits share the syncs of the log.
//!
//! The library has no runtime, and needs none: [`inkstone::PendingCommit`] is a future. With tokio
//! `spawn_blocking` and `block_on` are tokio's, and nothing else is different.
//!
//! `cargo run --release --example async_commits`

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use inkstone::typed::TypedTable;
use inkstone::{Database, Durability, Isolation, Options, PendingCommit, Result};

type Work = Box<dyn FnOnce() + Send>;

/// Threads where blocking is allowed.
#[derive(Clone)]
struct Blocking(mpsc::Sender<Work>);

impl Blocking {
    fn new(threads: usize) -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..threads {
            let receiver = Arc::clone(&receiver);
            let next = move || receiver.lock().expect("no holder panics").recv();
            thread::spawn(move || {
                while let Ok(work) = next() {
                    work()
                }
            });
        }
        Self(sender)
    }

    /// Runs `work` there; what it returns can be awaited.
    fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
        let slot = Arc::new(Mutex::new((None, None::<Waker>)));
        let answer = Answer(Arc::clone(&slot));
        let work = move || {
            let value = work();
            let mut slot = slot.lock().expect("no holder panics");
            slot.0 = Some(value);
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
        };
        self.0
            .send(Box::new(work))
            .expect("the threads live as long as a sender");
        answer
    }
}

struct Answer<T>(Arc<Mutex<(Option<T>, Option<Waker>)>>);

impl<T> Future for Answer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().expect("no holder panics");
        slot.1 = Some(context.waker().clone());
        slot.0.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Polls all futures on this thread until they are ready: any executor will do.
fn block_on_all<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T>>>>) -> Vec<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut outputs = Vec::new();
    while !futures.is_empty() {
        futures.retain_mut(|future| {
            let poll = pin!(future).poll(&mut Context::from_waker(&waker));
            match poll {
                Poll::Ready(output) => outputs.push(output),
                Poll::Pending => return true,
            }
            false
        });
        if !futures.is_empty() {
            thread::park();
        }
    }
    outputs
}

/// The statements of a transaction: they may wait for pages and row locks, so they run where
/// blocking is allowed. Its durability does not: that is for the caller to await.
fn register(db: &Database, users: &TypedTable<u64, String>, id: u64) -> Result<PendingCommit> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    users.insert(&txn, &id, &format!("user {id}"))?;
    txn.commit_deferred(Durability::Sync)
}

fn main() -> Result<()> {
    let db = Database::temporary(Options::default())?;
    let users = Arc::new(TypedTable::<u64, String>::builder("users").open(&db)?);
    let blocking = Blocking::new(2);

    let mut tasks: Vec<Pin<Box<dyn Future<Output = Result<()>>>>> = Vec::new();
    for id in 0..1000 {
        let (db, users, blocking) = (db.clone(), Arc::clone(&users), blocking.clone());
        tasks.push(Box::pin(async move {
            let commit = blocking.spawn(move || register(&db, &users, id)).await?;
            commit.await // on disk when this is ready; no thread waits for it
        }));
    }
    block_on_all(tasks)
        .into_iter()
        .collect::<Result<Vec<()>>>()?;

    let txn = db.begin(Isolation::RepeatableRead)?;
    assert_eq!(users.range(&txn, ..)?.count(), 1000);
    let syncs = db
        .durations()
        .iter()
        .find(|d| d.name == "log_sync")
        .map_or(0, |d| d.count);
    println!("1000 commits, each awaited, with {syncs} syncs of the log");
    Ok(())
}
