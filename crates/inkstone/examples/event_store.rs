//! An event store: streams that only grow, appends that say which version they expect, an index by
//! time, replay, and pruning of what is old.
//!
//! `cargo run --release --example event_store`

use std::thread;

use inkstone::typed::{Row, TypedTable, starting_with};
use inkstone::{Database, Error, Isolation, Options, Transaction};

#[derive(Row, Clone, Debug, PartialEq)]
struct Event {
    /// Milliseconds since some beginning.
    at: u64,
    what: String,
    amount: i64,
}

/// Why events were not appended.
#[derive(Debug)]
enum AppendError {
    /// The stream has another version than expected: read it again, and decide again.
    Version,
    Database(Error),
}

impl From<Error> for AppendError {
    fn from(error: Error) -> Self {
        match error {
            // The version is there now that was not when this transaction looked.
            Error::DuplicateKey { .. } => Self::Version,
            error => Self::Database(error),
        }
    }
}

struct EventStore {
    db: Database,
    /// By stream and version; versions of a stream begin with 1 and have no holes.
    events: TypedTable<(String, u64), Event>,
}

impl EventStore {
    fn open(db: Database) -> Result<Self, Error> {
        let events = TypedTable::builder("events")
            .index("by_time", |_, event: &Event| event.at)
            .open(&db)?;
        Ok(Self { db, events })
    }

    fn version(&self, txn: &Transaction, stream: &str) -> Result<u64, Error> {
        let newest = self
            .events
            .range_backward(txn, starting_with((stream.to_owned(),)))?
            .next();
        Ok(newest.transpose()?.map_or(0, |((_, version), _)| version))
    }

    /// Appends all of the events, durably, or none. Of two that expect one version one succeeds.
    fn append(&self, stream: &str, expected: u64, events: &[Event]) -> Result<u64, AppendError> {
        self.db.transact(Isolation::RepeatableRead, |txn| {
            if self.version(txn, stream)? != expected {
                return Err(AppendError::Version);
            }
            for (version, event) in (expected + 1..).zip(events) {
                self.events
                    .insert(txn, &(stream.to_owned(), version), event)?;
            }
            Ok(expected + events.len() as u64)
        })
    }

    /// What a stream has come to: its version, and the sum of its amounts.
    fn replay(&self, txn: &Transaction, stream: &str) -> Result<(u64, i64), Error> {
        self.events
            .range(txn, starting_with((stream.to_owned(),)))?
            .try_fold((0, 0), |(_, sum), row| {
                row.map(|((_, version), event)| (version, sum + event.amount))
            })
    }

    /// Deletes what is older than `before`, in transactions of a thousand events: others wait for
    /// none of them for long.
    fn prune(&self, before: u64) -> Result<usize, Error> {
        let mut pruned = 0;
        loop {
            let batch = self.db.transact(Isolation::ReadCommitted, |txn| {
                let old: Vec<_> = self
                    .events
                    .by_index(txn, "by_time", ..before)?
                    .take(1000)
                    .collect::<Result<_, _>>()?;
                old.iter()
                    .try_for_each(|(_at, id)| self.events.delete(txn, id).map(drop))?;
                Ok::<_, Error>(old.len())
            })?;
            if batch == 0 {
                return Ok(pruned);
            }
            pruned += batch;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let store = EventStore::open(Database::open(directory.path(), Options::default())?)?;
    let deposit = |at| Event {
        at,
        what: "deposit".to_owned(),
        amount: 1,
    };

    // Four threads append to one stream: each reads its version, and tries again where another
    // thread has come first.
    let append_one = |at| loop {
        let version = store.version(&store.db.begin(Isolation::ReadCommitted)?, "account-1")?;
        match store.append("account-1", version, &[deposit(at)]) {
            Err(AppendError::Version) => {}
            Err(AppendError::Database(error)) => return Err(error),
            Ok(_) => return Ok(()),
        }
    };
    thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread| {
            scope.spawn(move || (0..250).try_for_each(|n| append_one(1000 * n + thread)))
        });
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    // Streams do not disturb each other: 20,000 events more in one transaction each hundred.
    for stream in 2..202 {
        let events: Vec<_> = (0..100).map(|n| deposit(1000 * n + stream)).collect();
        store
            .append(&format!("account-{stream}"), 0, &events)
            .map_err(|e| format!("{e:?}"))?;
    }

    let txn = store.db.begin(Isolation::RepeatableRead)?;
    assert_eq!(store.replay(&txn, "account-1")?, (1000, 1000));
    assert_eq!(store.replay(&txn, "account-100")?, (100, 100));
    let late = store
        .events
        .by_index(&txn, "by_time", 90_000u64..100_000)?
        .count();
    println!("replayed; {late} events lie between 90 s and 100 s");
    assert_eq!(late, 4 * 10 + 200 * 10);
    txn.rollback()?;

    let pruned = store.prune(50_000)?;
    let txn = store.db.begin(Isolation::RepeatableRead)?;
    let left = store.events.range(&txn, ..)?.count();
    println!("pruned {pruned} events, {left} are left");
    assert_eq!((pruned, left), (4 * 50 + 200 * 50, 4 * 200 + 200 * 50));
    assert!(matches!(
        store.append("account-1", 7, &[]),
        Err(AppendError::Version)
    ));
    Ok(())
}
