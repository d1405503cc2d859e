//! A handle of a table of one open database is of no use with another one: its pages would be named
//! in that one's log, which could not be recovered after a crash.

mod common;

use common::{key, open, options, val};
use inkstone::typed::TypedTable;
use inkstone::{
    Database, Durability, Error, ErrorKind, Isolation, LockMode, Result, Table, Transaction, Wait,
};
use std::time::Duration;

type Call = (
    &'static str,
    fn(&Database, &Transaction, &Table) -> Result<()>,
);

const WRITES: &[Call] = &[
    ("insert", |_, txn, t| txn.insert(t, &key(1), &val(1))),
    ("update", |_, txn, t| txn.update(t, &key(0), &val(1))),
    ("upsert", |_, txn, t| {
        txn.upsert(t, &key(1), &val(1)).map(drop)
    }),
    ("delete", |_, txn, t| txn.delete(t, &key(0)).map(drop)),
    ("insert_many", |_, txn, t| {
        txn.insert_many(t, [(key(1), val(1))]).map(drop)
    }),
    ("insert_until_duplicate", |_, txn, t| {
        txn.insert_until_duplicate(t, &[(&key(1), &val(1))]).1
    }),
    ("insert_or_lock_with_parts", |_, txn, t| {
        let (value, mode) = (val(1), LockMode::Exclusive);
        txn.insert_or_lock_with_parts(t, &key(1), &value, &[], mode)
    }),
    ("insert_until_duplicate_with_parts", |_, txn, t| {
        txn.insert_until_duplicate_with_parts(t, &[(&key(1), &val(1))], &[])
            .1
    }),
    ("insert into a secondary tree", |_, txn, t| {
        txn.insert(t.tree("s")?, &key(1), &val(1))
    }),
];

const READS: &[Call] = &[
    ("get", |_, txn, t| txn.get(t, &key(0)).map(drop)),
    ("get_outline", |_, txn, t| {
        txn.get_outline(t, &key(0)).map(drop)
    }),
    ("range", |_, txn, t| txn.range(t, ..).map(drop)),
    ("range_backward", |_, txn, t| {
        txn.range_backward(t, ..).map(drop)
    }),
    ("get_locking", |_, txn, t| {
        let row = txn.get_locking(t, &key(0), LockMode::Shared, Wait::NoWait);
        row.map(drop)
    }),
    ("range_locking", |_, txn, t| {
        let rows = txn.range_locking(t, .., LockMode::Exclusive, Wait::NoWait);
        rows.map(drop)
    }),
    ("unlock_row", |_, txn, t| {
        txn.unlock_row(t, &key(0)).map(drop)
    }),
    ("lock_for_statement", |_, txn, t| txn.lock_for_statement(t)),
];

const OF_THE_DATABASE: &[Call] = &[
    ("statistics", |db, _, t| db.statistics(t).map(drop)),
    ("records_in_range", |db, _, t| {
        db.records_in_range(t, &key(0), None).map(drop)
    }),
    ("flush_table", |db, _, t| db.flush_table(t)),
    ("verify_table", |db, _, t| db.verify_table(t).map(drop)),
    ("export_table", |db, _, t| db.export_table(t).map(drop)),
    ("shrink_table", |db, _, t| db.shrink_table(t).map(drop)),
    ("compact_table", |db, _, t| db.compact_table(t).map(drop)),
    ("complete_tree", |db, _, t| db.complete_tree(t)),
    ("wait_for_prepared", |db, _, t| {
        db.wait_for_prepared(t, Duration::from_millis(1), None)
    }),
];

fn check_refused(what: &str, result: Result<()>, directories: [&std::path::Path; 2]) {
    let Err(error) = result else {
        panic!("{what} took a handle of another database");
    };
    assert!(
        matches!(error, Error::OtherDatabase { .. }),
        "{what}: {error}"
    );
    assert_eq!(error.kind(), ErrorKind::Usage, "{what}");
    for directory in directories {
        let text = error.to_string();
        assert!(
            text.contains(&*directory.to_string_lossy()),
            "{what}: {text}"
        );
    }
}

#[test]
fn every_call_refuses_a_handle_of_another_database() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (a, b) = (open(&dirs[0]), open(&dirs[1]));
    let directories = [a.directory(), b.directory()];
    // Of the same name and tablespace in both: only the database differs.
    let own = a.create_table("t", &["s"]).unwrap();
    let foreign = b.create_table("t", &["s"]).unwrap();
    for (db, table) in [(&a, &own), (&b, &foreign)] {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.insert(table, &key(0), &val(0)).unwrap();
        txn.commit().unwrap();
    }
    let levels = [
        Isolation::ReadCommitted,
        Isolation::LockingRepeatableRead,
        Isolation::Serializable,
    ];
    for level in levels {
        for (what, call) in WRITES.iter().chain(READS).chain(OF_THE_DATABASE) {
            let txn = a.begin(level).unwrap();
            check_refused(what, call(&a, &txn, &foreign), directories);
            // The transaction goes on.
            txn.insert(&own, &key(2), &val(2)).unwrap();
            txn.rollback().unwrap();
        }
    }
    let txn = a.begin(Isolation::RepeatableRead).unwrap();
    let other = b.begin(Isolation::RepeatableRead).unwrap();
    other.lock_for_statement(&foreign).unwrap();
    assert!(b.is_locked_for_statement(&foreign) && !a.is_locked_for_statement(&foreign));
    txn.lock_for_statement(&own).unwrap();
    assert!(!b.is_locked_for_statement(&own));
    check_cursors(&txn, &own, (&other, &foreign), directories);
    let typed = TypedTable::<u64, u64>::builder("typed").open(&b).unwrap();
    check_refused("typed", typed.insert(&txn, &1, &1), directories);
}

/// Cursors that one transaction has begun, given to a transaction of another database.
fn check_cursors(
    txn: &Transaction,
    own: &Table,
    (other, foreign): (&Transaction, &Table),
    directories: [&std::path::Path; 2],
) {
    let mut cursor = other.range(foreign, ..).unwrap();
    let result = txn.seek(own, &mut cursor, .., false);
    check_refused("seek of a foreign cursor", result, directories);
    let mut cursor = txn.range(own, ..).unwrap();
    let result = txn.seek(foreign, &mut cursor, .., false);
    check_refused("seek in a foreign table", result, directories);
    let mut scan = other
        .locking_scan_of(foreign, .., false, LockMode::Exclusive, Wait::NoWait)
        .unwrap();
    let result = scan.next_row(txn).map(drop);
    check_refused("a foreign locking scan", result, directories);
    assert!(scan.next_row(other).unwrap());
    let result = scan.unlock_row(txn).map(drop);
    check_refused("a row of a foreign locking scan", result, directories);
}

#[test]
fn a_database_is_opened_after_a_crash_whatever_handles_it_was_given() {
    if let Some(dir) = common::child_dir() {
        write_with_a_foreign_handle(&dir);
        common::ready_to_die();
    }
    let dir = tempfile::tempdir().unwrap();
    let test = "a_database_is_opened_after_a_crash_whatever_handles_it_was_given";
    common::killed(test, dir.path());
    let db = Database::open(dir.path().join("a"), options()).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let row = txn.get(&db.table("own").unwrap(), &key(1)).unwrap();
    assert_eq!(row, Some(val(1)));
}

fn write_with_a_foreign_handle(dir: &std::path::Path) {
    let [a, b] = ["a", "b"].map(|name| Database::open(dir.join(name), options()).unwrap());
    let own = a.create_table("own", &[]).unwrap();
    for n in 0..5 {
        b.create_table(&format!("t{n}"), &[]).unwrap();
    }
    let foreign = b.table("t4").unwrap();
    let txn = a.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&own, &key(1), &val(1)).unwrap();
    // Refused or not: what it has committed is there after a crash.
    let _ = txn.insert(&foreign, &key(1), &val(1));
    txn.commit_with(Durability::Sync).unwrap();
    // Not closed: killed.
    std::mem::forget((a, b));
}
