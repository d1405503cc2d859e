//! Commits that are awaited as futures, by executors of the test's own: nothing but `std::task`.

mod common;

use common::{key, open, within};
use inkstone::{Database, Durability, Error, Isolation, Options, PendingCommit, Table};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A task of [`run_all`], and whether it is to be polled.
struct Task(AtomicBool, Thread);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
        self.1.unpark();
    }
}

/// Runs many futures in the calling thread, each polled only when it was woken.
fn run_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    struct Running<F: Future> {
        future: Pin<Box<F>>,
        task: Arc<Task>,
        output: Option<F::Output>,
    }
    let start = |future| Running {
        future: Box::pin(future),
        task: Arc::new(Task(AtomicBool::new(true), thread::current())),
        output: None,
    };
    let mut all: Vec<Running<F>> = futures.into_iter().map(start).collect();
    loop {
        let mut waiting = false;
        for running in &mut all {
            if running.output.is_none() && running.task.0.swap(false, Ordering::SeqCst) {
                let waker = Waker::from(running.task.clone());
                let polled = running
                    .future
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(ready) = polled {
                    running.output = Some(ready);
                }
            }
            waiting |= running.output.is_none();
        }
        if !waiting {
            break;
        }
        // A wake-up since a task was looked at makes this return at once.
        thread::park();
    }
    all.into_iter()
        .filter_map(|running| running.output)
        .collect()
}

fn commit(db: &Database, table: &Table, k: u64, durability: Durability) -> PendingCommit {
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(table, &key(k), b"v").unwrap();
    txn.commit_deferred(durability).unwrap()
}

fn on(vfs: &SimVfs) -> Database {
    let options = Options {
        buffer_pool_size: 4 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

#[test]
fn an_awaited_commit_is_there_after_a_power_loss() {
    within(30, || {
        let vfs = SimVfs::new(7);
        let db = on(&vfs);
        let table = db.create_table("t", &[]).unwrap();
        block_on(commit(&db, &table, 1, Durability::Sync)).unwrap();
        let disk = vfs.crash(7);
        drop((table, db));
        let db = on(&disk);
        let table = db.table("t").unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(txn.get(&table, &key(1)).unwrap().is_some());
    });
}

#[test]
fn hundreds_of_commits_are_awaited_by_one_thread_and_share_syncs() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let syncs = |db: &Database| {
            let metrics = db.metrics();
            let found = metrics.iter().find(|metric| metric.name == "log_syncs");
            found.expect("log_syncs").value
        };
        let before = syncs(&db);
        let durability =
            |k| [Durability::Sync, Durability::Write, Durability::Lazy][k as usize % 3];
        let commits = (0..600).map(|k| commit(&db, &table, k, durability(k)));
        let results = run_all(commits.collect::<Vec<_>>());
        assert!(results.len() == 600 && results.iter().all(Result::is_ok));
        let syncs = syncs(&db) - before;
        assert!(syncs < 100, "{syncs} syncs for 200 commits at once");
        db.close().unwrap();
    });
}

#[test]
fn futures_and_threads_wait_beside_each_other() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        thread::scope(|scope| {
            for t in 0..6 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for k in 0..40 {
                        let pending = commit(db, table, t << 32 | k, Durability::Sync);
                        match (t % 2, k % 5) {
                            (_, 4) => drop(pending),
                            (0, _) => pending.wait(Durability::Sync).unwrap(),
                            (_, _) => block_on(pending).unwrap(),
                        }
                    }
                });
            }
        });
        db.close().unwrap();
    });
}

#[test]
fn a_future_that_outlives_its_database_is_ready() {
    within(30, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let unpolled = commit(&db, &table, 1, Durability::Sync);
        let mut polled = commit(&db, &table, 2, Durability::Sync);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let _ = Pin::new(&mut polled).poll(&mut Context::from_waker(&waker));
        db.close().unwrap();
        block_on(unpolled).unwrap();
        block_on(polled).unwrap();
    });
}

#[test]
fn a_log_that_cannot_be_synced_is_an_error_of_its_futures() {
    within(30, || {
        let vfs = SimVfs::new(3);
        let db = on(&vfs);
        let table = db.create_table("t", &[]).unwrap();
        let pending: Vec<_> = (0..8)
            .map(|k| commit(&db, &table, k, Durability::Sync))
            .collect();
        let since = Instant::now();
        vfs.fail(FaultRule {
            kind: Some(OpKind::Sync),
            path_contains: String::new(),
            nth: 1,
            times: u64::MAX,
            fault: Fault::Eio,
        });
        let results = run_all(pending);
        assert!(since.elapsed() < Duration::from_secs(30));
        for result in results {
            assert!(matches!(result, Err(Error::Poisoned(_))), "{result:?}");
        }
    });
}
