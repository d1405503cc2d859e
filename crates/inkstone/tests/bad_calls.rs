//! Calls with bad arguments, and with handles of what is gone: each has its own clear error, and
//! changes nothing.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Error, Isolation, Table};

fn with_table() -> (tempfile::TempDir, Database, Table) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small()).unwrap();
    let table = db.create_table("t", &["second"]).unwrap();
    (dir, db, table)
}

#[test]
fn keys_and_values_too_long() {
    let (_dir, db, table) = with_table();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let limit = inkstone_format::tree_page::key_len_max(4096);
    let (fits, long) = (vec![1; limit], vec![1; limit + 1]);
    txn.insert(&table, &fits, b"v").unwrap();
    let results = [
        txn.insert(&table, &long, b"v"),
        txn.update(&table, &long, b"v"),
        txn.upsert(&table, &long, b"v").map(drop),
        txn.delete(&table, &long).map(drop),
        txn.insert_many(&table, [(long.clone(), b"v".to_vec())])
            .map(drop),
    ];
    for result in results {
        let error = failed(result);
        assert!(
            matches!(error, Error::KeyTooLong { length, limit: l } if length == limit + 1 && l == limit)
        );
        says(
            &error,
            &[&format!("{}", limit + 1), &format!("limit of {limit}")],
        );
    }
    // Reading one finds nothing, or says so; it does no harm.
    let _ = txn.get(&table, &long);
    assert_eq!(txn.range(&table, &long[..]..).unwrap().count(), 0);
    txn.commit().unwrap();
    // Zeroed memory that is not touched costs no memory.
    let value = vec![0u8; (1 << 30) + 1];
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for result in [
        txn.insert(&table, b"k", &value),
        txn.upsert(&table, b"k", &value).map(drop),
        txn.update(&table, &fits, &value),
    ] {
        let error = failed(result);
        assert!(matches!(error, Error::ValueTooLong { length, limit } if length == limit + 1));
        says(&error, &["1073741825", "limit of 1073741824"]);
    }
    txn.insert(&table, b"", b"the empty key is a key").unwrap();
    txn.commit().unwrap();
    assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, 2);
}

#[test]
fn bad_names() {
    let (dir, db, table) = with_table();
    drop(table);
    let long = "x".repeat(769);
    for name in ["", "a\0b", &long] {
        let results = [
            db.create_table(name, &[]).map(drop),
            db.create_table("ok", &[name]).map(drop),
            db.rename_table("t", name),
            db.create_tree("t", name).map(drop),
        ];
        for result in results {
            let error = failed(result);
            assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
            says(&error, &["a name has 1 to 768 bytes"]);
        }
    }
    assert_eq!(db.tables().unwrap(), ["t"]);
    let fits = "ü/../".repeat(128);
    db.create_table(&fits, &[]).unwrap();
    db.create_tree(&fits, &fits).unwrap();
    drop(db);
    let db = Database::open(dir.path(), small()).unwrap();
    assert_eq!(db.tables().unwrap(), ["t", &fits]);
    assert_eq!(db.table(&fits).unwrap().trees().len(), 2);
    db.drop_table(&fits).unwrap();
}

#[test]
fn tables_that_exist_or_not() {
    let (dir, db, table) = with_table();
    let before = contents(dir.path()).len();
    db.create_table("u", &[]).unwrap();
    for result in [
        db.create_table("t", &[]).map(drop),
        db.rename_table("u", "t"),
        db.rename_table("t", "t"),
    ] {
        let error = failed(result);
        assert!(matches!(error, Error::AlreadyExists(_)));
        says(&error, &["table t exists already"]);
    }
    let error = failed(db.create_table("v", &["x", "x"]));
    says(&error, &["tree x of table v exists already"]);
    says(
        &failed(db.create_table("v", &["primary"])),
        &["tree primary"],
    );
    says(
        &failed(db.create_tree("t", "second")),
        &["tree second of table t exists"],
    );
    for result in [
        db.table("no").map(drop),
        db.drop_table("no"),
        db.rename_table("no", "yes"),
        db.create_tree("no", "x").map(drop),
    ] {
        let error = failed(result);
        assert!(matches!(error, Error::NotFound(_)));
        says(&error, &["table no does not exist"]);
    }
    says(&failed(table.tree("no").map(drop)), &["tree no of table t"]);
    db.drop_table("u").unwrap();
    assert_eq!(contents(dir.path()).len(), before);
}

#[test]
fn handles_of_dropped_tables() {
    let (_dir, db, table) = with_table();
    insert(&db, &table, 0..100, b"row").unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let scan = txn.range(&table, ..).unwrap();
    db.drop_table("t").unwrap();
    let second = table.tree("second").unwrap();
    let results = [
        txn.get(&table, b"k").map(drop),
        txn.insert(&table, b"k", b"v"),
        txn.insert_many(&table, [(b"k", b"v")]).map(drop),
        txn.delete(second, b"k").map(drop),
        txn.range(&table, ..).map(drop),
        db.statistics(&table).map(drop),
        db.records_in_range(second, b"", None).map(drop),
        db.flush_table(&table),
        db.verify_table(&table).map(drop),
    ];
    for (n, result) in results.into_iter().enumerate() {
        let error = failed(result);
        assert!(matches!(error, Error::NotFound(_)), "{n}: {error}");
        says(&error, &["table t (it was dropped)"]);
    }
    // A scan that began before sees rows or an error.
    for row in scan {
        if row.is_err() {
            break;
        }
    }
    txn.commit().unwrap();
    // A table of the same name is another table.
    let new = db.create_table("t", &[]).unwrap();
    insert(&db, &new, 0..5, b"new").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert!(matches!(txn.get(&table, &key(1)), Err(Error::NotFound(_))));
}

#[test]
fn transactions_that_are_over_and_savepoints_that_are_not() {
    let (_dir, db, table) = with_table();
    let (first, second) = (
        db.begin(Isolation::ReadCommitted).unwrap(),
        db.begin(Isolation::ReadCommitted).unwrap(),
    );
    // Dooms one of them: the API ends the others by consuming them.
    first.insert(&table, b"a", b"1").unwrap();
    second.insert(&table, b"b", b"2").unwrap();
    let (one, two) = std::thread::scope(|scope| {
        let waits = scope.spawn(|| first.upsert(&table, b"b", b"1"));
        let other = scope.spawn(|| second.upsert(&table, b"a", b"2"));
        // The victim's rollback lets the other one go on.
        (waits.join().unwrap(), other.join().unwrap())
    });
    let victim = match (one, two) {
        (Err(Error::Deadlock), Ok(_)) => &first,
        (Ok(_), Err(Error::Deadlock)) => &second,
        (one, two) => panic!("{one:?} {two:?}"),
    };
    for result in [
        victim.get(&table, b"a").map(drop),
        victim.insert(&table, b"c", b""),
        victim.savepoint("s"),
        victim.range(&table, ..).map(drop),
        victim.insert_many(&table, [(b"k", b"v")]).map(drop),
    ] {
        let error = failed(result);
        assert!(matches!(error, Error::TransactionState(_)), "{error}");
        says(&error, &["over; begin a new one"]);
    }
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for result in [txn.rollback_to_savepoint("s"), txn.release_savepoint("s")] {
        let error = failed(result);
        assert!(matches!(error, Error::NotFound(_)));
        says(&error, &["savepoint s does not exist"]);
    }
    // A timeout longer than time.
    txn.set_lock_wait_timeout(std::time::Duration::MAX);
    txn.upsert(&table, b"z", b"").unwrap();
}

#[test]
fn bad_and_duplicate_xids() {
    let (_dir, db, table) = with_table();
    let begin = |name: &[u8]| {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.insert(&table, name, b"").unwrap();
        txn
    };
    for xid in [vec![], vec![1; 141]] {
        let error = failed(begin(b"bad").prepare(&xid));
        assert!(matches!(&error, Error::InvalidOption { name, .. } if name == "xid"));
        says(&error, &["1 to 140 bytes"]);
    }
    begin(b"first").prepare(&[9; 128]).unwrap();
    let error = failed(begin(b"second").prepare(&[9; 128]));
    assert!(matches!(error, Error::AlreadyExists(_)));
    says(&error, &["prepared transaction", "exists already"]);
    for result in [db.commit_prepared(b"no"), db.rollback_prepared(b"no")] {
        let error = failed(result);
        assert!(matches!(error, Error::NotFound(_)));
        says(&error, &["prepared transaction no does not exist"]);
    }
    db.commit_prepared(&[9; 128]).unwrap();
    assert!(matches!(
        db.commit_prepared(&[9; 128]),
        Err(Error::NotFound(_))
    ));
    // Those that were refused were rolled back.
    let report = db.verify_table(&table).unwrap();
    assert_eq!(report.trees[0].1.rows, 1);
}
