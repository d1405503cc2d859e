//! A long report beside writers: it sees one state of the data, from its first statement to its
//! last, takes no locks, and keeps no writer waiting.
//!
//! `cargo run --release --example snapshot_reports`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use inkstone::typed::TypedTable;
use inkstone::{Database, Durability, Isolation, Options, Result, Transaction};

const ACCOUNTS: u64 = 10_000;
const EACH: i64 = 100;

type Accounts = TypedTable<u64, i64>;

/// Moves money until `stop`; the sum over all accounts never changes. Counts in `moves`.
fn move_money(
    db: &Database,
    accounts: &Accounts,
    mut random: u64,
    (stop, moves): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let (from, to) = (random >> 33, random >> 13);
        db.transact(Isolation::ReadCommitted, |txn| {
            accounts.update_with(txn, &(from % ACCOUNTS), |balance| *balance -= 1)?;
            accounts.update_with(txn, &(to % ACCOUNTS), |balance| *balance += 1)
        })?;
        moves.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn sum(accounts: &Accounts, txn: &Transaction) -> Result<i64> {
    accounts
        .range(txn, ..)?
        .map(|row| row.map(|(_, balance)| balance))
        .sum()
}

/// Balances at the beginning of the report, and again at its end, one by one.
fn report(db: &Database, accounts: &Accounts, moves: &AtomicU64) -> Result<()> {
    let txn = db.begin_with_snapshot()?; // what is committed now is what it sees
    txn.set_tag(42); // names it in `Database::snapshots`
    let before = moves.load(Ordering::Relaxed);
    let first = sum(accounts, &txn)?;
    for _ in 0..20 {
        let mut again = 0;
        for id in 0..ACCOUNTS {
            again += accounts.get(&txn, &id)?.unwrap_or(0);
        }
        assert_eq!(again, first);
    }
    assert_eq!(first, ACCOUNTS as i64 * EACH);
    let oldest = &db.snapshots()[0]; // old versions are kept for it until it ends
    assert_eq!((oldest.tag, oldest.is_left_over), (42, false));
    let meanwhile = moves.load(Ordering::Relaxed) - before;
    println!("report: {first}, 21 times the same, while {meanwhile} transfers were committed");
    txn.rollback()
}

fn main() -> Result<()> {
    // The transfers of an example need not wait for the disk.
    let options = Options {
        flush_log_at_trx_commit: Durability::Write,
        ..Options::default()
    };
    let db = Database::temporary(options)?;
    let accounts = Accounts::builder("accounts").open(&db)?;
    db.transact(Isolation::ReadCommitted, |txn| {
        (0..ACCOUNTS).try_for_each(|id| accounts.insert(txn, &id, &EACH))
    })?;

    let stop = AtomicBool::new(false);
    let moves = AtomicU64::new(0);
    thread::scope(|scope| {
        let (db, accounts, stop, moves) = (&db, &accounts, &stop, &moves);
        let writers =
            [1, 2].map(|seed| scope.spawn(move || move_money(db, accounts, seed, (stop, moves))));
        let reports = (0..3).try_for_each(|_| report(db, accounts, moves));
        stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .try_for_each(|writer| writer.join().expect("no writer panics"))?;
        reports
    })?;
    assert!(db.snapshots().is_empty());
    Ok(())
}
