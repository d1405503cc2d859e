use crate::catalog::{CATALOG_ISOLATION, Catalog};
use crate::txn::Transaction;
use crate::{Database, Error, Isolation, Options};
use std::thread;
use std::time::Duration;

/// An index made beside a prepared transaction's end would lack its entries. The latch holds
/// that end up, as the checkpoint does that moves undo.
#[test]
fn a_prepared_transaction_is_waited_for_until_it_has_ended() {
    for commits in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, b"a", b"1").unwrap();
        txn.prepare(b"x").unwrap();
        let shared = db.inner.core.prepared.lock()[&b"x"[..]].clone();
        let latch = shared.inner.lock();
        let end = || {
            if commits {
                db.commit_prepared(b"x")
            } else {
                db.rollback_prepared(b"x")
            }
        };
        thread::scope(|scope| {
            let ends = [scope.spawn(end), scope.spawn(end)];
            let waits = scope.spawn(|| db.wait_for_prepared(&table, Duration::from_secs(60), None));
            thread::sleep(Duration::from_millis(200));
            assert!(!waits.is_finished());
            drop(latch);
            waits.join().unwrap().unwrap();
            // What is made now has its rows.
            let txn = db.begin(Isolation::RepeatableRead).unwrap();
            assert_eq!(txn.get(&table, b"a").unwrap().is_some(), commits);
            let mut results = ends.map(|end| end.join().unwrap());
            results.sort_by_key(Result::is_err);
            let is_late = matches!(results[1], Err(Error::NotFound(_)));
            assert!(results[0].is_ok() && is_late, "ended twice: {results:?}");
        });
        assert!(db.prepared_transactions().is_empty());
    }
}

/// A statement that waits for no lock failed beside the end of a transaction that had changed
/// another table.
#[test]
fn a_prepared_transaction_in_the_middle_of_a_call_is_looked_at_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let [changed, other] = ["changed", "other"].map(|name| db.create_table(name, &[]).unwrap());
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&changed, b"a", b"1").unwrap();
    txn.prepare(b"x").unwrap();
    let shared = db.inner.core.prepared.lock()[&b"x"[..]].clone();
    let latch = shared.inner.lock();
    thread::scope(|scope| {
        let db = &db;
        let waits = [&changed, &other]
            .map(|table| scope.spawn(move || db.wait_for_prepared(table, Duration::ZERO, None)));
        thread::sleep(Duration::from_millis(50));
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        drop(latch);
        let [of_changed, of_other] = waits.map(|wait| wait.join().unwrap());
        assert!(
            matches!(of_changed, Err(Error::LockTimeout { .. })),
            "{of_changed:?}"
        );
        of_other.unwrap();
    });
    db.rollback_prepared(b"x").unwrap();
}

/// How long a statement waits for a row says nothing of DDL.
#[test]
fn ddl_waits_for_the_catalog_where_statements_do_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        lock_wait_timeout_ms: 0,
        ..Options::default()
    };
    let db = Database::open(dir.path(), options).unwrap();
    db.create_table("t", &[]).unwrap();
    let other = Transaction::begin_own(&db.inner.core, CATALOG_ISOLATION).unwrap();
    let catalog = Catalog::new(&db.inner.catalog, &other);
    catalog.remove("t").unwrap();
    thread::scope(|scope| {
        let dropping = scope.spawn(|| db.drop_table("t"));
        thread::sleep(Duration::from_millis(50));
        assert!(!dropping.is_finished());
        other.rollback().unwrap();
        dropping.join().unwrap().unwrap();
    });
}
