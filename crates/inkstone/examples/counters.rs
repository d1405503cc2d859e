//! Counters that many threads add to: four ways, all of which lose nothing.
//!
//! `cargo run --release --example counters`

use std::thread;
use std::time::{Duration, Instant};

use inkstone::typed::TypedTable;
use inkstone::{Database, Isolation, Options, Result};

const THREADS: u64 = 8;
const ADDITIONS: u64 = 100;

/// Runs `add` from all threads, and returns how long that took.
fn from_all_threads(add: impl Fn(u64) -> Result<()> + Sync) -> Result<Duration> {
    let start = Instant::now();
    thread::scope(|scope| {
        let add = &add;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || (0..ADDITIONS).try_for_each(|_| add(thread))))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(start.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path(), Options::default())?;
    let counters = TypedTable::<(String, u64), u64>::builder("counters").open(&db)?;
    let key = |name: &str, shard| (name.to_owned(), shard);
    db.transact(Isolation::ReadCommitted, |txn| {
        counters.insert(txn, &key("read and written", 0), &0)?;
        counters.insert(txn, &key("locked", 0), &0)?;
        // "merged" is there with its first addition.
        (0..THREADS).try_for_each(|shard| counters.insert(txn, &key("sharded", shard), &0))
    })?;

    // Read, then write: at repeatable read the second of two writers gets a conflict, and
    // `transact` repeats it.
    let repeated = from_all_threads(|_| {
        db.transact(Isolation::RepeatableRead, |txn| {
            let key = key("read and written", 0);
            let count = counters.get(txn, &key)?.unwrap_or(0);
            counters.upsert(txn, &key, &(count + 1)).map(drop)
        })
    })?;
    // Lock, then read and write: each waits for its turn, and none is repeated.
    let locked = from_all_threads(|_| {
        db.transact(Isolation::ReadCommitted, |txn| {
            counters.update_with(txn, &key("locked", 0), |count| *count += 1)
        })
    })?;
    // Merge: as that, and at repeatable read others' additions since the snapshot are no conflict.
    let merged = from_all_threads(|_| {
        db.transact(Isolation::RepeatableRead, |txn| {
            counters.merge(txn, &key("merged", 0), |count| count.unwrap_or(0) + 1)
        })
    })?;
    // A row for each thread: none waits for another one's row, and their commits share syncs.
    let sharded = from_all_threads(|thread| {
        db.transact(Isolation::ReadCommitted, |txn| {
            counters.update_with(txn, &key("sharded", thread), |count| *count += 1)
        })
    })?;

    for (name, time) in [
        ("read and written", repeated),
        ("locked", locked),
        ("merged", merged),
        ("sharded", sharded),
    ] {
        let txn = db.begin(Isolation::RepeatableRead)?;
        let of_name = counters.range(&txn, inkstone::typed::starting_with((name.to_owned(),)))?;
        let sum: u64 = of_name
            .map(|row| row.map(|(_, count)| count))
            .sum::<Result<_>>()?;
        println!("{name}: {sum} additions in {} ms", time.as_millis());
        assert_eq!(sum, THREADS * ADDITIONS);
    }
    Ok(())
}
